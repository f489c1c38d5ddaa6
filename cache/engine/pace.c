/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See pace.h. */
#include "cache/engine/pace.h"
#include "events/base.h"
#include "events/bug.h"

#include <string.h>

#define TAG_ALONE 0x80u

static const struct pace_limit {
	uint32_t writes, most;
	uint64_t delay_ns; /* that a write may have at the store because of others */
} limits[PACE_RULES] = {
	[PACE_QUIET] = { 16, MiB(1), 20 * NSEC_PER_MSEC },
	[PACE_READS] = { 4, KiB(256), 2 * NSEC_PER_MSEC },
	[PACE_WRITERS] = { 64, MiB(1), 10 * NSEC_PER_MSEC },
};

void pace_init(struct pace *p)
{
	memset(p, 0, sizeof(*p));
	for (unsigned i = 0; i < PACE_RULES; i++)
		p->window[i] = MiB(1);
}

void pace_look(struct pace *p, uint64_t now_ns, bool reads, bool writers)
{
	if (reads)
		p->read_ns = now_ns;
	if (writers)
		p->rule = PACE_WRITERS;
	else if (p->read_ns && now_ns - p->read_ns < PACE_READS_NS)
		p->rule = PACE_READS;
	else
		p->rule = PACE_QUIET;
}

struct flush_room pace_room(const struct pace *p)
{
	const struct pace_limit *l = &limits[p->rule];
	const bool sick = p->streak > PACE_STREAK;
	struct flush_room r = { .most = l->most };

	if (p->out &&
	    (sick || p->out >= l->writes || p->bytes >= p->window[p->rule] || p->runs >= PACE_RUNS))
		return r;
	r.writes = sick ? 1 : p->out ? l->writes - p->out : l->writes;
	r.runs = p->out ? PACE_RUNS - p->runs : PACE_RUNS;
	r.bytes = p->out ? p->window[p->rule] - p->bytes : p->window[p->rule];
	return r;
}

uint8_t pace_start(struct pace *p, uint64_t bytes, uint32_t runs, bool tried)
{
	const uint8_t tag = (uint8_t)(p->rule | (p->out ? 0 : TAG_ALONE));

	p->out++;
	p->bytes += bytes;
	p->runs += runs;
	p->tries += tried;
	return tag;
}

/* The window of the rule under which it was started. */
static void adapt(struct pace *p, const struct pace_write *w, uint64_t out, uint64_t now_ns)
{
	const unsigned rule = w->tag & (TAG_ALONE - 1);
	const uint64_t took = now_ns - w->started_ns;
	uint64_t *window = &p->window[rule], *mean = &p->mean_ns[rule], *alone = &p->alone_ns[rule];

	if (!*alone)
		*alone = took;
	else if (w->tag & TAG_ALONE)
		*alone = (3 * *alone + took) / 4;
	/* What had been started before it shrank cannot know of that. */
	if (w->started_ns < p->cut_ns[rule])
		return;
	*mean = *mean ? (7 * *mean + took) / 8 : took;
	if (*mean > 2 * *alone + limits[rule].delay_ns) {
		*window = MAX(*window - *window / 4, (uint64_t)PACE_MIN);
		p->cut_ns[rule] = now_ns;
		*mean = *alone;
	} else if (out >= *window / 2) { /* it was what held write-back back */
		*window += p->cut_ns[rule] ? w->bytes * PACE_STEP / *window : w->bytes;
		*window = MIN(*window, (uint64_t)PACE_MAX);
	}
}

static uint64_t hold_of(uint32_t beyond)
{
	return MIN(10 * NSEC_PER_MSEC << MIN(beyond / 16, 7u), NSEC_PER_SEC);
}

void pace_end(struct pace *p, const struct pace_write *w, uint64_t now_ns, int status)
{
	const uint64_t out = p->bytes;

	ASSERT(p->out && p->bytes >= w->bytes && p->runs >= w->runs);
	p->out--;
	p->bytes -= w->bytes;
	p->runs -= w->runs;
	p->tries -= w->tried;
	if (status) {
		if (w->tried)
			p->trust = 0;
		if (++p->streak > PACE_STREAK)
			p->hold_ns = now_ns + hold_of(p->streak - PACE_STREAK);
		return;
	}
	p->streak = 0;
	p->hold_ns = 0;
	if (w->tried) {
		p->credits = MIN(p->credits + 2 * w->blocks, PACE_CREDITS);
		p->trust = (uint8_t)MIN(p->trust + 1u, PACE_TRUST_MAX);
	}
	adapt(p, w, out, now_ns);
}
