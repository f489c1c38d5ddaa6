/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The machine as OpenMetrics 1.0: families one after the other, each with TYPE, UNIT and HELP, then
 * all of its samples. Base units; counters end in _total. Labels of LUs are tid and lun alone, and
 * tgtd_lu_info says what these are: so a renamed file makes no new series of everything else.
 */
#include "tools/tgt-exporter/exporter.h"

#include <stdio.h>
#include <stdlib.h>

#include "events/metrics.h"

/* ---- text ------------------------------------------------------------------------------------ */

static bool text_room(struct text *t, size_t more)
{
	if (t->failed || t->len + more > TEXT_MAX) {
		t->failed = true;
		return false;
	}
	if (t->cap - t->len >= more)
		return true;
	size_t cap = MAX(t->cap * 2, ALIGN_UP(t->len + more, (size_t)65536));
	char *buf = realloc(t->buf, cap);

	if (!buf) {
		t->failed = true;
		return false;
	}
	t->buf = buf;
	t->cap = cap;
	return true;
}

static void put_bytes(struct text *t, const char *s, size_t n)
{
	if (!text_room(t, n))
		return;
	memcpy(t->buf + t->len, s, n);
	t->len += n;
}

static void put(struct text *t, const char *s)
{
	put_bytes(t, s, strlen(s));
}

static void put_number(struct text *t, uint64_t v)
{
	char digits[24];
	size_t i = sizeof(digits);

	do
		digits[--i] = (char)('0' + v % 10);
	while (v /= 10);
	put_bytes(t, digits + i, sizeof(digits) - i);
}

/* Nanoseconds as seconds, exactly. */
static void put_seconds(struct text *t, uint64_t ns)
{
	char fraction[12];

	put_number(t, ns / 1000000000);
	snprintf(fraction, sizeof(fraction), ".%09u", (unsigned)(ns % 1000000000));
	put(t, fraction);
}

/* Within the quotes of a label (OpenMetrics, "escaped-string"). */
static void put_escaped(struct text *t, const char *s)
{
	if (!text_room(t, strlen(s) * 2))
		return;
	for (; *s; s++) {
		if (*s == '\\' || *s == '"' || *s == '\n')
			t->buf[t->len++] = '\\';
		t->buf[t->len++] = *s == '\n' ? 'n' : *s;
	}
}

/* ---- families -------------------------------------------------------------------------------- */

static void family(struct text *t, const char *name, const char *type, const char *unit,
		   const char *help)
{
	put(t, "# TYPE tgtd_");
	put(t, name);
	put(t, " ");
	put(t, type);
	if (*unit) {
		put(t, "\n# UNIT tgtd_");
		put(t, name);
		put(t, " ");
		put(t, unit);
	}
	put(t, "\n# HELP tgtd_");
	put(t, name);
	put(t, " ");
	put_escaped(t, help);
	put(t, "\n");
}

static void begin(struct text *t, const char *name, const char *suffix)
{
	put(t, "tgtd_");
	put(t, name);
	put(t, suffix);
}

static void label(struct text *t, const char *key, const char *value, bool first)
{
	put(t, first ? "{" : ",");
	put(t, key);
	put(t, "=\"");
	put_escaped(t, value);
	put(t, "\"");
}

static void label_number(struct text *t, const char *key, int64_t value, bool first)
{
	put(t, first ? "{" : ",");
	put(t, key);
	put(t, value < 0 ? "=\"-" : "=\"");
	put_number(t, (uint64_t)(value < 0 ? -value : value));
	put(t, "\"");
}

static void end_number(struct text *t, uint64_t v)
{
	put(t, "} ");
	put_number(t, v);
	put(t, "\n");
}

static void end_seconds(struct text *t, uint64_t ns)
{
	put(t, "} ");
	put_seconds(t, ns);
	put(t, "\n");
}

static void one(struct text *t, const char *name, const char *unit, const char *help, uint64_t v)
{
	family(t, name, "gauge", unit, help);
	begin(t, name, " ");
	put_number(t, v);
	put(t, "\n");
}

/* ---- a figure of each row -------------------------------------------------------------------- */

enum form { COUNT, GAUGE, SECONDS, GAUGE_SECONDS };

static bool is_gauge(enum form form)
{
	return form == GAUGE || form == GAUGE_SECONDS;
}

struct figure {
	const char *name, *unit, *help;
	enum form form;
	size_t offset;
	bool scaled; /* blocks: times the size of one */
};

static const char *type_of(enum form form)
{
	return is_gauge(form) ? "gauge" : "counter";
}

static void sample(struct text *t, const struct figure *f, const void *row, uint64_t scale)
{
	uint64_t v = *(const uint64_t *)(const void *)((const char *)row + f->offset);

	if (f->form == SECONDS || f->form == GAUGE_SECONDS)
		end_seconds(t, v);
	else
		end_number(t, f->scaled ? v * scale : v);
}

#define F(type, name, unit, help, form, field) \
	{ name, unit, help, form, offsetof(struct type, field), false }

static const struct figure node_figures[] = {
	F(machine_node, "node_hits", "", "blocks found in the cache", COUNT, hits),
	F(machine_node, "node_misses", "", "blocks that were not there", COUNT, misses),
	F(machine_node, "node_local_bytes", "bytes", "of hits by threads of the node", COUNT,
	  local_bytes),
	F(machine_node, "node_remote_bytes", "bytes", "of hits by threads of other nodes", COUNT,
	  remote_bytes),
	F(machine_node, "node_fill_bytes", "bytes", "loaded from stores", COUNT, fill_bytes),
	F(machine_node, "node_readahead_bytes", "bytes", "of these loaded ahead", COUNT,
	  readahead_bytes),
	F(machine_node, "node_flush_bytes", "bytes", "written back to stores", COUNT, flush_bytes),
	F(machine_node, "node_evictions", "", "blocks given up for others", COUNT, evictions),
	F(machine_node, "node_waits", "", "requests that waited for blocks", COUNT, waits),
	F(machine_node, "node_wait_seconds", "seconds", "that they waited", SECONDS, wait_ns),
	F(machine_node, "node_waiting", "", "requests that wait for blocks now", GAUGE, waiting),
	F(machine_node, "node_lock_waits", "", "locks of partitions that were not free", COUNT,
	  lock_waits),
	F(machine_node, "node_forwards", "", "requests that threads of other nodes sent here",
	  COUNT, forwards),
	F(machine_node, "node_system_memory_bytes", "bytes", "memory of the node", GAUGE,
	  memory_total),
	F(machine_node, "node_system_memory_free_bytes", "bytes", "of that is free", GAUGE,
	  memory_free),
};

static const struct figure thread_figures[] = {
	F(machine_thread, "thread_cpu_seconds", "seconds", "processor time of the thread", SECONDS,
	  cpu_ns),
	F(machine_thread, "thread_iterations", "", "turns of its loop", COUNT, iterations),
	F(machine_thread, "thread_sleeps", "", "times that it went to sleep", COUNT, sleeps),
	F(machine_thread, "thread_wakeups", "", "times that another thread woke it", COUNT,
	  wakeups_sent),
	F(machine_thread, "thread_messages", "", "messages that it handled", COUNT, messages),
	F(machine_thread, "thread_events", "", "descriptors that it found ready", COUNT, fd_events),
	F(machine_thread, "thread_busy_seconds", "seconds", "turns of its loop that had work",
	  SECONDS, busy_ns),
	F(machine_thread, "thread_starved_seconds", "seconds",
	  "that it was ready to run, and had no processor", SECONDS, starved_ns),
};

static const struct figure lu_figures[] = {
	F(machine_lu, "lu_size_bytes", "bytes", "size of its store", GAUGE, size),
	F(machine_lu, "lu_dirty_bytes", "bytes", "cached data that its store has not yet", GAUGE,
	  dirty_bytes),
	F(machine_lu, "lu_store_hanging_seconds", "seconds",
	  "that its store has not answered a request; 0: it does", GAUGE_SECONDS, hanging_ns),
	F(machine_lu, "lu_threads", "", "event threads", GAUGE, threads),
	F(machine_lu, "lu_reads", "", "read commands done", COUNT, rd_cmds),
	F(machine_lu, "lu_read_bytes", "bytes", "read", COUNT, rd_bytes),
	F(machine_lu, "lu_writes", "", "write commands done", COUNT, wr_cmds),
	F(machine_lu, "lu_written_bytes", "bytes", "written", COUNT, wr_bytes),
	F(machine_lu, "lu_errors", "", "commands that failed", COUNT, errs),
	F(machine_lu, "lu_read_seconds", "seconds", "that reads took, summed", SECONDS, rd_ns),
	F(machine_lu, "lu_write_seconds", "seconds", "that writes took, summed", SECONDS, wr_ns),
	F(machine_lu, "lu_busy_seconds", "seconds", "with a command under way", SECONDS, busy_ns),
};

static const struct figure session_figures[] = {
	F(machine_session, "initiator_commands", "", "SCSI commands of the session", COUNT,
	  commands),
	F(machine_session, "initiator_receive_bytes", "bytes", "of data from it", COUNT, rx_bytes),
	F(machine_session, "initiator_transmit_bytes", "bytes", "of data to it", COUNT, tx_bytes),
};

/* ---- parts ----------------------------------------------------------------------------------- */

static void counters(struct text *t, const struct machine *m)
{
	for (uint32_t i = 0; i < m->ncounters; i++) {
		const struct machine_counter *c = &m->counters[i];
		enum metric known = 0;

		while (known < METRIC_COUNT && strcmp(metric_name(known), c->name))
			known++;
		const bool gauge =
			known < METRIC_COUNT && metric_kind(known) == METRIC_KIND_GAUGE;
		const size_t n = strlen(c->name);
		const char *unit = n > 6 && !strcmp(c->name + n - 6, "_bytes")	 ? "bytes" :
				   n > 8 && !strcmp(c->name + n - 8, "_seconds") ? "seconds" :
										   "";

		family(t, c->name, gauge ? "gauge" : "counter", unit,
		       known < METRIC_COUNT ? metric_help(known) : "of a newer daemon");
		begin(t, c->name, gauge ? " " : "_total ");
		put_number(t, c->value);
		put(t, "\n");
	}
}

static void nodes(struct text *t, const struct machine *m)
{
	static const struct {
		const char *state;
		size_t offset;
	} states[] = {
		{ "free", offsetof(struct machine_node, free) },
		{ "clean", offsetof(struct machine_node, clean) },
		{ "dirty", offsetof(struct machine_node, dirty) },
		{ "flushing", offsetof(struct machine_node, flushing) },
		{ "filling", offsetof(struct machine_node, filling) },
	};

	if (!m->nnodes)
		return;
	family(t, "node_memory_bytes", "gauge", "bytes", "of the cache, by what is in them");
	for (uint32_t i = 0; i < m->nnodes; i++)
		for (size_t s = 0; s < ARRAY_SIZE(states); s++) {
			const struct figure f = { .form = GAUGE,
						  .offset = states[s].offset,
						  .scaled = true };

			begin(t, "node_memory_bytes", "");
			label_number(t, "node", m->nodes[i].node, true);
			label(t, "state", states[s].state, false);
			sample(t, &f, &m->nodes[i], m->block_size);
		}
	for (size_t k = 0; k < ARRAY_SIZE(node_figures); k++) {
		const struct figure *f = &node_figures[k];

		family(t, f->name, type_of(f->form), f->unit, f->help);
		for (uint32_t i = 0; i < m->nnodes; i++) {
			begin(t, f->name, is_gauge(f->form) ? "" : "_total");
			label_number(t, "node", m->nodes[i].node, true);
			sample(t, f, &m->nodes[i], 1);
		}
	}
}

static int thread_compare(const void *a, const void *b)
{
	const struct machine_thread *x = *(const struct machine_thread *const *)a;
	const struct machine_thread *y = *(const struct machine_thread *const *)b;
	const int c = strcmp(x->name, y->name);

	return c ? c : x < y ? -1 : x > y;
}

/* Two threads may have one name for a moment, when a LU goes and comes again, and they need not
 * stand together: the number of each among its like, the older ones first, tells them apart.
 * [m->nthreads], the caller's to free. NULL: no memory. */
static unsigned *namesakes(const struct machine *m)
{
	const struct machine_thread **sorted = calloc(m->nthreads + 1, sizeof(*sorted));
	unsigned *nr = calloc(m->nthreads + 1, sizeof(*nr));

	for (uint32_t i = 0; sorted && i < m->nthreads; i++)
		sorted[i] = &m->threads[i];
	if (sorted)
		qsort(sorted, m->nthreads, sizeof(*sorted), thread_compare);
	for (uint32_t i = 1; sorted && nr && i < m->nthreads; i++)
		if (!strcmp(sorted[i]->name, sorted[i - 1]->name))
			nr[sorted[i] - m->threads] = nr[sorted[i - 1] - m->threads] + 1;
	if (!sorted) {
		free(nr);
		nr = NULL;
	}
	free(sorted);
	return nr;
}

static void threads(struct text *t, const struct machine *m)
{
	unsigned *nr = namesakes(m);

	if (!nr) {
		t->failed = true;
		return;
	}
	for (size_t k = 0; k < ARRAY_SIZE(thread_figures); k++) {
		const struct figure *f = &thread_figures[k];

		family(t, f->name, type_of(f->form), f->unit, f->help);
		for (uint32_t i = 0; i < m->nthreads; i++) {
			begin(t, f->name, "_total");
			label(t, "thread", m->threads[i].name, true);
			label_number(t, "node", m->threads[i].node, false);
			if (nr[i])
				label_number(t, "nr", nr[i], false);
			sample(t, f, &m->threads[i], 1);
		}
	}
	free(nr);
}

static void targets(struct text *t, const struct machine *m)
{
	family(t, "target", "info", "", "the name of a target");
	for (uint32_t i = 0; i < m->ntargets; i++) {
		begin(t, "target_info", "");
		label_number(t, "tid", (int64_t)m->targets[i].tid, true);
		label(t, "target", m->targets[i].name, false);
		label(t, "driver", m->targets[i].driver, false);
		end_number(t, 1);
	}
	family(t, "target_sessions", "gauge", "", "sessions that are logged in");
	for (uint32_t i = 0; i < m->ntargets; i++) {
		begin(t, "target_sessions", "");
		label_number(t, "tid", (int64_t)m->targets[i].tid, true);
		end_number(t, m->targets[i].sessions);
	}
}

static void lu_labels(struct text *t, const struct machine_lu *lu)
{
	label_number(t, "tid", (int64_t)lu->tid, true);
	label_number(t, "lun", (int64_t)lu->lun, false);
}

static void lus(struct text *t, const struct machine *m)
{
	family(t, "lu", "info", "", "what a logical unit is");
	for (uint32_t i = 0; i < m->nlus; i++) {
		const struct machine_lu *lu = &m->lus[i];

		begin(t, "lu_info", "");
		lu_labels(t, lu);
		label(t, "target", lu->target->name, false);
		label(t, "path", lu->path, false);
		label(t, "type", lu->type, false);
		end_number(t, 1);
	}
	family(t, "lu_online", "gauge", "", "1: it has a medium that can be used");
	for (uint32_t i = 0; i < m->nlus; i++) {
		begin(t, "lu_online", "");
		lu_labels(t, &m->lus[i]);
		end_number(t, m->lus[i].online);
	}
	family(t, "lu_in_doubt", "gauge", "", "1: its store may have lost acknowledged data");
	for (uint32_t i = 0; i < m->nlus; i++) {
		begin(t, "lu_in_doubt", "");
		lu_labels(t, &m->lus[i]);
		end_number(t, m->lus[i].in_doubt);
	}
	for (size_t k = 0; k < ARRAY_SIZE(lu_figures); k++) {
		const struct figure *f = &lu_figures[k];

		family(t, f->name, type_of(f->form), f->unit, f->help);
		for (uint32_t i = 0; i < m->nlus; i++) {
			begin(t, f->name, is_gauge(f->form) ? "" : "_total");
			lu_labels(t, &m->lus[i]);
			sample(t, f, &m->lus[i], 1);
		}
	}
}

/* ---- latency --------------------------------------------------------------------------------- */

#define LE_MAX 64u
#define LE_FROM 8192u		   /* ns */
#define LE_TO (16ull * 1000000000) /* ns */

/* Classic buckets: one a power of two. The daemon has eight, and @index is the last of them. The
 * same whatever was measured, so that series do not come and go. */
struct le {
	uint32_t index;
	char text[24];
};

static unsigned classic_buckets(const struct machine *m, struct le le[LE_MAX])
{
	unsigned n = 0;

	for (uint32_t i = 0; i < m->nbounds && n < LE_MAX; i++) {
		const uint64_t above = m->bounds_ns[i] + 1;

		if ((above & (above - 1)) || above < LE_FROM || above > LE_TO)
			continue;
		le[n].index = i;
		snprintf(le[n++].text, sizeof(le->text), "%u.%09u",
			 (unsigned)(above / 1000000000), (unsigned)(above % 1000000000));
	}
	return n;
}

static void lu_class(struct text *t, const struct machine_lu *lu, const char *suffix,
		     unsigned class)
{
	begin(t, "lu_latency_seconds", suffix);
	lu_labels(t, lu);
	label(t, "op", machine_classes[class], false);
}

static void histogram(struct text *t, const struct machine_lu *lu, unsigned class,
		      const struct le *le, unsigned nle)
{
	const struct machine_latency *l = &lu->latency[class];
	const size_t from = t->len;
	uint64_t sum = 0;
	uint32_t at = 0;

	/* most of a scrape are these lines, which begin alike */
	lu_class(t, lu, "_bucket", class);
	const size_t alike = t->len - from;

	for (unsigned i = 0; i <= nle && !t->failed; i++) {
		while (i < nle && at <= le[i].index)
			sum += l->bucket[at++];
		if (i && text_room(t, alike))
			put_bytes(t, t->buf + from, alike);
		put(t, ",le=\"");
		put(t, i < nle ? le[i].text : "+Inf");
		put(t, "\"");
		end_number(t, i < nle ? MIN(sum, l->count) : l->count);
	}
	lu_class(t, lu, "_count", class);
	end_number(t, l->count);
	lu_class(t, lu, "_sum", class);
	end_seconds(t, l->sum_ns);
}

static void latency(struct text *t, const struct machine *m)
{
	struct le le[LE_MAX];
	const unsigned nle = classic_buckets(m, le);

	if (!m->nbounds)
		return;
	family(t, "lu_latency_seconds", "histogram", "seconds",
	       "from a command's receipt until its answer is with the wire");
	for (uint32_t i = 0; i < m->nlus; i++)
		for (unsigned c = 0; c < MACHINE_CLASSES; c++)
			if (m->lus[i].latency[c].bucket)
				histogram(t, &m->lus[i], c, le, nle);
	family(t, "lu_time_seconds", "counter", "seconds", "where commands spent their time");
	for (uint32_t i = 0; i < m->nlus; i++)
		for (unsigned c = 0; c < MACHINE_CLASSES; c++)
			for (unsigned p = 0; p < MACHINE_PARTS; p++) {
				const struct machine_latency *l = &m->lus[i].latency[c];

				if (!l->bucket)
					continue;
				begin(t, "lu_time_seconds", "_total");
				lu_labels(t, &m->lus[i]);
				label(t, "op", machine_classes[c], false);
				label(t, "part", machine_parts[p], false);
				end_seconds(t, l->part_ns[p]);
			}
}

static void sessions(struct text *t, const struct machine *m)
{
	for (size_t k = 0; k < ARRAY_SIZE(session_figures); k++) {
		const struct figure *f = &session_figures[k];

		family(t, f->name, type_of(f->form), f->unit, f->help);
		for (uint32_t i = 0; i < m->nsessions; i++) {
			const struct machine_session *s = &m->sessions[i];

			begin(t, f->name, "_total");
			label_number(t, "tid", (int64_t)s->tid, true);
			label_number(t, "sid", (int64_t)s->sid, false);
			label(t, "initiator", s->initiator, false);
			label(t, "address", s->address, false);
			sample(t, f, s, 1);
		}
	}
}

void openmetrics(const struct machine *m, bool initiators, struct text *out)
{
	*out = (struct text){ 0 };
	one(out, "up", "", "1: the daemon answers", m != NULL);
	if (m) {
		family(out, "build", "info", "", "which daemon it is");
		begin(out, "build_info", "");
		label(out, "version", m->version, true);
		end_number(out, 1);
		one(out, "cache_bytes", "bytes", "size of the cache", m->cache_bytes);
		one(out, "sessions", "", "sessions that are logged in", m->nsessions);
		counters(out, m);
		nodes(out, m);
		threads(out, m);
		targets(out, m);
		lus(out, m);
		latency(out, m);
		if (initiators)
			sessions(out, m);
	}
	put(out, "# EOF\n");
}
