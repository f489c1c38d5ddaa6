/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See mirror_lu.h. */
#include "tgtd/cluster/live/mirror_lu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache/blk/blk.h"
#include "cache/memory/lock.h"
#include "events/clock.h"
#include "events/log.h"
#include "events/metrics.h"

#define TICK_NS (50 * NSEC_PER_MSEC)
/* What is under way; what is begun anew when a session fails meanwhile; a few OPENs. */
#define OUTS (2 * MIRROR_WINDOW + 8)
#define SAYS 8
#define SECTOR_LOG 9
#define CUT_COOKIE 1
static_assert(CACHE_MIRROR_BLOCK_MAX == MIRROR_SECTORS << SECTOR_LOG, "one word says which");

struct lu_out {
	unsigned peer, channel;
	struct mirror_frame frame;
};
struct lu_advance {
	uint64_t block, gen;
};

/* What the rules have asked for. */
struct lu_notes {
	struct lu_advance *advance; /* [advances] */
	uint32_t nadvance;
	bool all; /* more than there is room for: all who wait look again */
	bool room, write_all, set;
	struct gw_mirror object;
	unsigned nsay;
	struct lu_say {
		int level;
		char text[160];
	} say[SAYS];
};

enum {
	TURN_TAKEN = 1 << 0,
	TURN_AGAIN = 1 << 1,	/* with TAKEN: another one has come, and left it to who has it */
	TURN_DEFERRED = 1 << 2, /* somebody will come: at the end of an iteration of some loop */
	TURN_POSTED = 1 << 3,	/* by a message */
	TURN_OVER = 1 << 4,	/* it is stopped */
};
#define STEPS 8 /* of a turn: then the loop's other work goes on */

struct mirror_lu {
	struct mirror_lu_conf conf;
	const struct mirror_lu_ops *ops;
	void *arg;
	struct cache_mirror *cache;
	uint32_t advances;
	struct leaf_lock lock;
	/* Under it. */
	struct mirror_owner *rules;
	struct lu_notes *notes; /* those that are being written */
	struct lu_out *out;	/* [OUTS], a ring */
	unsigned outs, first;
	unsigned lost; /* frames to this peer + 1 were too many: its link is as good as down */
	enum lu_cut { CUT_NONE, CUT_ASKED, CUT_OVER } cut; /* at @cut_end: of the only order */
	uint64_t cut_end;
	/* Who does what was noted has the turn, on whatever loop. */
	_Atomic unsigned turn; /* TURN_* */
	struct lu_notes pages[2];
	struct loop_deferred deferred; /* on the loop of who set TURN_DEFERRED */
	struct loop_msg msg, more;     /* TURN_POSTED; the turn itself */
	_Atomic bool stopped;
	/* The loop's. */
	struct timer timer;
	struct loop_msg start, stop;
	void (*when_stopped)(void *arg);
};

/* ---- struct mirror_owner_ops: under the lock, so noted only ---------------------------------- */
static void rules_send(void *arg, unsigned peer, unsigned channel, struct mirror_frame *f)
{
	struct mirror_lu *lu = arg;
	struct lu_out *out = &lu->out[(lu->first + lu->outs) % OUTS];

	if (lu->outs == OUTS) {
		lu->lost = peer + 1;
		return;
	}
	lu->outs++;
	out->peer = peer;
	out->channel = channel;
	memcpy(&out->frame, f, offsetof(struct mirror_frame, record));
	memcpy(out->frame.record, f->record, f->n * sizeof(f->record[0]));
	out->frame.data = NULL;
	out->frame.data_len = 0;
}

static void rules_set(void *arg, const struct gw_mirror *m)
{
	struct mirror_lu *lu = arg;

	lu->notes->set = true;
	lu->notes->object = *m;
}

static void rules_write_all(void *arg)
{
	((struct mirror_lu *)arg)->notes->write_all = true;
}

static void rules_advanced(void *arg, uint64_t block, uint64_t gen)
{
	struct mirror_lu *lu = arg;
	struct lu_notes *n = lu->notes;

	if (n->nadvance < lu->advances)
		n->advance[n->nadvance++] = (struct lu_advance){ block, gen };
	else
		n->all = true;
}

static void rules_room(void *arg)
{
	((struct mirror_lu *)arg)->notes->room = true;
}

static void rules_order(void *arg, uint64_t cookie)
{
	BUG("an order that nobody has given"); /* the cache has no use for them (mirror.h there) */
}

/* The only one that it gives: the peer has nothing behind the end any more. */
static void rules_cut(void *arg, uint64_t cookie)
{
	struct mirror_lu *lu = arg;

	BUG_ON(cookie != CUT_COOKIE || lu->cut != CUT_ASKED);
	lu->cut = CUT_OVER;
	lu->notes->room = true;
}

static void rules_group(void *arg, uint64_t cookie, uint64_t gen)
{
	rules_order(arg, cookie);
}

static void rules_say(void *arg, int level, const char *text)
{
	struct lu_notes *n = ((struct mirror_lu *)arg)->notes;

	if (n->nsay == SAYS)
		return;
	n->say[n->nsay].level = level;
	snprintf(n->say[n->nsay++].text, sizeof(n->say[0].text), "%s", text);
}

static const struct mirror_owner_ops rules_ops = {
	.send = rules_send,
	.set = rules_set,
	.write_all = rules_write_all,
	.advanced = rules_advanced,
	.room = rules_room,
	.zero_held = rules_order,
	.group_held = rules_group,
	.zero_done = rules_cut,
	.say = rules_say,
};

/* ---- what was noted is done ------------------------------------------------------------------ */
/* Its data, all of a record at one moment. False: there are none, and nothing is to be sent. */
static bool out_data(struct mirror_lu *lu, const struct mirror_frame *f, uint8_t *data)
{
	for (unsigned i = 0; i < f->n; i++) {
		const struct mirror_record *r = &f->record[i];

		if (r->op == MIRROR_WRITE && !cache_mirror_copy(lu->cache, r->block, r->map, data))
			return false;
		data += mirror_data_len(r, f->shift);
	}
	return true;
}

/* One frame, the oldest. False: there is none. */
static bool out_next(struct mirror_lu *lu, struct lu_out *out)
{
	const struct lu_out *next = &lu->out[lu->first];
	bool is;

	leaf_lock(&lu->lock);
	is = lu->outs > 0;
	if (is) {
		memcpy(out, next,
		       offsetof(struct lu_out, frame.record) +
			       next->frame.n * sizeof(next->frame.record[0]));
		lu->first = (lu->first + 1) % OUTS;
		lu->outs--;
	}
	leaf_unlock(&lu->lock);
	return is;
}

/* @n of them: what comes meanwhile is for the next step. */
static void outs_go(struct mirror_lu *lu, unsigned n)
{
	struct lu_out out;

	for (; n && out_next(lu, &out); n--) {
		uint8_t *data = NULL;
		void *to = lu->ops->begin(lu->arg, out.peer, out.channel, &out.frame, &data);

		if (!to)
			continue;
		/* What has an entry is in the cache. If it were not, then nothing would be sent: no
		 * answer depends upon it, and the peer is given up before long. */
		if (!out_data(lu, &out.frame, data)) {
			lu->ops->say(lu->arg, LOG_LVL_ERROR, "what is to be mirrored is not there");
			out.frame.n = 0;
			memset(data, 0, out.frame.data_len);
			out.frame.data_len = 0;
			out.frame.serial = 0;
		}
		lu->ops->send(lu->arg, to, &out.frame);
	}
}

static bool notes_take(struct mirror_lu *lu, struct lu_notes **taken)
{
	struct lu_notes *n = lu->notes;

	if (!(n->nadvance || n->all || n->room || n->write_all || n->set || n->nsay))
		return false;
	*taken = n;
	lu->notes = n == &lu->pages[0] ? &lu->pages[1] : &lu->pages[0];
	return true;
}

static void notes_do(struct mirror_lu *lu, struct lu_notes *n)
{
	for (unsigned i = 0; i < n->nsay; i++)
		lu->ops->say(lu->arg, n->say[i].level, n->say[i].text);
	for (uint32_t i = 0; i < n->nadvance; i++)
		cache_mirror_advanced(lu->cache, n->advance[i].block, n->advance[i].gen);
	if (n->all)
		cache_mirror_look(lu->cache);
	if (n->room)
		cache_mirror_room(lu->cache);
	if (n->write_all)
		cache_mirror_write_all(lu->cache);
	if (n->set)
		lu->ops->set(lu->arg, &n->object);
	n->nadvance = n->nsay = 0;
	n->all = n->room = n->write_all = n->set = false;
}

static uint64_t now_ns(void)
{
	return clock_now_ns();
}

/* ---- turns ----------------------------------------------------------------------------------- */
/* Who has come by what @come says, TURN_DEFERRED or TURN_POSTED. False: another one has it, and
 * looks again; then, and from turn_give() on, nothing of the LU may be touched. */
static bool turn_take(struct mirror_lu *lu, unsigned come)
{
	unsigned was = atomic_load(&lu->turn);

	while (!atomic_compare_exchange_weak(&lu->turn, &was,
					     (was & ~come) |
						     (was & TURN_TAKEN ? TURN_AGAIN : TURN_TAKEN)))
		;
	return !(was & TURN_TAKEN);
}

/* False: somebody has come meanwhile, and the turn goes on. */
static bool turn_give(struct mirror_lu *lu)
{
	unsigned was = atomic_load(&lu->turn);

	while (!atomic_compare_exchange_weak(
		&lu->turn, &was, was & ~(was & TURN_AGAIN ? TURN_AGAIN : TURN_TAKEN)))
		;
	return !(was & TURN_AGAIN);
}

/* What has gathered is sent, and all is done that was noted. False: there was nothing. */
static bool turn_step(struct mirror_lu *lu)
{
	struct lu_notes *n = NULL;

	leaf_lock(&lu->lock);
	mirror_owner_push(lu->rules, lu->conf.channel, now_ns());
	if (lu->lost)
		mirror_owner_down(lu->rules, lu->lost - 1, now_ns());
	lu->lost = 0;
	const unsigned outs = lu->outs;
	const bool noted = notes_take(lu, &n);
	leaf_unlock(&lu->lock);
	outs_go(lu, outs);
	if (noted)
		notes_do(lu, n);
	return outs || noted;
}

/* It is this loop's. There may be more for as long as others write; the rest is the LU's loop's,
 * which does it between what else it has. */
static void turn_run(struct mirror_lu *lu)
{
	bool given = false;

	for (unsigned i = 0; i < STEPS && !given; i++)
		if (atomic_load(&lu->stopped) || !turn_step(lu))
			given = turn_give(lu);
	if (!given)
		loop_post(lu->conf.loop, &lu->more);
}

static void lu_deferred(struct loop_deferred *d)
{
	struct mirror_lu *lu = container_of(d, struct mirror_lu, deferred);

	if (turn_take(lu, TURN_DEFERRED))
		turn_run(lu);
}

static void lu_message(struct loop_msg *msg)
{
	struct mirror_lu *lu = container_of(msg, struct mirror_lu, msg);

	if (turn_take(lu, TURN_POSTED))
		turn_run(lu);
}

static void lu_more(struct loop_msg *msg)
{
	turn_run(container_of(msg, struct mirror_lu, more));
}

/* Its own loop takes a turn: for threads that have no business with wires, and for what is in no
 * hurry. No lock is held, here and below. */
static void lu_kick(struct mirror_lu *lu)
{
	if (!(atomic_fetch_or(&lu->turn, TURN_POSTED) & (TURN_POSTED | TURN_OVER)))
		loop_post(lu->conf.loop, &lu->msg);
}

/* This loop takes one at the end of its iteration; or another one does, at the end of its own. So
 * who writes sends, and who hears of an answer tells, without the way to a third thread. */
static void lu_kick_here(struct mirror_lu *lu)
{
	struct loop *here = loop_current();

	if (!here)
		lu_kick(lu);
	else if (!(atomic_fetch_or(&lu->turn, TURN_DEFERRED) & (TURN_DEFERRED | TURN_OVER)))
		loop_defer(here, &lu->deferred);
}

static void lu_tick(struct timer *t)
{
	struct mirror_lu *lu = container_of(t, struct mirror_lu, timer);

	leaf_lock(&lu->lock);
	mirror_owner_tick(lu->rules, now_ns());
	leaf_unlock(&lu->lock);
	loop_timer_arm(lu->conf.loop, &lu->timer, TICK_NS);
	lu_kick_here(lu);
}

/* ---- struct cache_mirror_ops ----------------------------------------------------------------- */
static int hook_write(void *arg, const struct cache_change *w, uint64_t *gen)
{
	struct mirror_lu *lu = arg;
	const uint64_t now = now_ns();
	uint64_t each;
	int rc = 0;

	leaf_lock(&lu->lock);
	if (!mirror_owner_admits(lu->rules, w->first, w->n))
		rc = -EAGAIN;
	for (uint32_t i = 0; !rc && i < w->n; i++) {
		rc = mirror_owner_write(lu->rules, lu->conf.channel, w->first + i,
					cache_change_map(w, i), &each, now);
		BUG_ON(rc); /* there is room */
		if (!i)
			*gen = each;
	}
	leaf_unlock(&lu->lock);
	if (!rc)
		metric_add(M_mirror_writes, w->n);
	return rc;
}

static bool hook_shown(void *arg, uint64_t block)
{
	struct mirror_lu *lu = arg;

	leaf_lock(&lu->lock);
	const bool shown = mirror_owner_shown(lu->rules, block);
	leaf_unlock(&lu->lock);
	return shown;
}

static uint64_t hook_safe(void *arg, uint64_t block)
{
	struct mirror_lu *lu = arg;

	leaf_lock(&lu->lock);
	const uint64_t safe = mirror_owner_safe(lu->rules, block);
	leaf_unlock(&lu->lock);
	return safe;
}

static bool hook_keeps(void *arg, uint64_t block)
{
	struct mirror_lu *lu = arg;

	leaf_lock(&lu->lock);
	const bool keeps = mirror_owner_gen(lu->rules, block) != 0;
	leaf_unlock(&lu->lock);
	return keeps;
}

static uint64_t hook_newest(void *arg)
{
	struct mirror_lu *lu = arg;

	leaf_lock(&lu->lock);
	const uint64_t newest = mirror_owner_newest(lu->rules);
	leaf_unlock(&lu->lock);
	return newest;
}

static int hook_found(void *arg, uint64_t block, uint64_t dirty)
{
	struct mirror_lu *lu = arg;

	leaf_lock(&lu->lock);
	const int rc = mirror_owner_found(lu->rules, block, dirty);
	leaf_unlock(&lu->lock);
	return rc;
}

static void hook_stored(void *arg, uint64_t block, uint64_t gen)
{
	struct mirror_lu *lu = arg;

	leaf_lock(&lu->lock);
	mirror_owner_stored(lu->rules, block, MIN(gen, mirror_owner_gen(lu->rules, block)),
			    now_ns());
	leaf_unlock(&lu->lock);
	lu_kick(lu);
}

static bool hook_any(void *arg, uint64_t first, uint64_t end, uint64_t *block)
{
	struct mirror_lu *lu = arg;

	leaf_lock(&lu->lock);
	const bool any = mirror_owner_any(lu->rules, first, end, block);
	leaf_unlock(&lu->lock);
	return any;
}

/* (One that was asked for and not waited for is waited for by the next one. It has forgotten less
 * than that needs, or more: what it needs is asked for again.) */
static int hook_cut(void *arg, uint64_t end)
{
	struct mirror_lu *lu = arg;

	leaf_lock(&lu->lock);
	if (lu->cut == CUT_OVER && lu->cut_end != end)
		lu->cut = CUT_NONE;
	if (lu->cut == CUT_NONE) {
		lu->cut = CUT_ASKED;
		lu->cut_end = end;
		if (mirror_owner_cut(lu->rules, end, CUT_COOKIE, now_ns()))
			lu->cut = CUT_NONE; /* later: there will be room */
	}
	const bool over = lu->cut == CUT_OVER;
	if (over)
		lu->cut = CUT_NONE;
	leaf_unlock(&lu->lock);
	lu_kick(lu);
	return over ? 0 : -EAGAIN;
}

static bool hook_committed(void *arg)
{
	struct mirror_lu *lu = arg;

	leaf_lock(&lu->lock);
	const bool through = mirror_owner_mode(lu->rules) != MIRROR_VALID;
	leaf_unlock(&lu->lock);
	lu_kick_here(lu);
	return through;
}

static const struct cache_mirror_ops hooks = {
	.write = hook_write,
	.committed = hook_committed,
	.shown = hook_shown,
	.safe = hook_safe,
	.keeps = hook_keeps,
	.newest = hook_newest,
	.found = hook_found,
	.stored = hook_stored,
	.any = hook_any,
	.cut = hook_cut,
};

/* ---- for callers ----------------------------------------------------------------------------- */
static void mirror_lu_free(struct mirror_lu *lu)
{
	mirror_owner_free(lu->rules);
	free(lu->out);
	free(lu->pages[0].advance);
	free(lu->pages[1].advance);
	free(lu);
}

static struct mirror_lu *lu_make(const struct mirror_lu_conf *conf)
{
	struct mirror_lu *lu = calloc(1, sizeof(*lu));
	struct mirror_owner_config owner = conf->owner;

	if (!lu)
		return NULL;
	owner.shift = SECTOR_LOG;
	owner.least = conf->most;
	lu->conf = *conf;
	lu->advances = owner.blocks;
	lu->notes = &lu->pages[0];
	leaf_lock_init(&lu->lock);
	loop_deferred_init(&lu->deferred, lu_deferred);
	timer_init(&lu->timer, lu_tick);
	lu->msg.handle = lu_message;
	lu->more.handle = lu_more;
	lu->rules = mirror_owner_new(&owner, &rules_ops, lu);
	lu->out = calloc(OUTS, sizeof(*lu->out));
	for (unsigned i = 0; i < 2; i++)
		lu->pages[i].advance = calloc(lu->advances, sizeof(struct lu_advance));
	if (lu->rules && lu->out && lu->pages[0].advance && lu->pages[1].advance)
		return lu;
	mirror_lu_free(lu);
	return NULL;
}

int mirror_lu_begin(const struct mirror_lu_conf *conf, const struct mirror_lu_ops *ops, void *arg,
		    struct mirror_lu **out)
{
	struct mirror_lu *lu;
	int rc;

	if (!conf->most || conf->owner.blocks < 2 * conf->most)
		return -EINVAL;
	lu = lu_make(conf);
	if (!lu)
		return -ENOMEM;
	lu->ops = ops;
	lu->arg = arg;
	rc = cache_mirror_begin(conf->blk, &hooks, lu, &lu->cache);
	if (rc) {
		mirror_lu_free(lu);
		return rc;
	}
	*out = lu;
	return 0;
}

/* The first tick is the loop's. */
static void lu_begins(struct loop_msg *msg)
{
	struct mirror_lu *lu = container_of(msg, struct mirror_lu, start);

	if (!lu->stopped)
		lu_tick(&lu->timer);
}

void mirror_lu_start(struct mirror_lu *lu, uint64_t epoch, uint64_t incarnation,
		     const struct gw_mirror *m, bool resumed)
{
	leaf_lock(&lu->lock);
	mirror_owner_start(lu->rules, epoch, incarnation, m, resumed, now_ns());
	leaf_unlock(&lu->lock);
	lu->start.handle = lu_begins;
	loop_post(lu->conf.loop, &lu->start);
	cache_mirror_look(lu->cache); /* what was found may be shown, perhaps */
}

void mirror_lu_peers(struct mirror_lu *lu, uint32_t well)
{
	leaf_lock(&lu->lock);
	mirror_owner_peers(lu->rules, well, now_ns());
	leaf_unlock(&lu->lock);
	lu_kick(lu);
}

void mirror_lu_mirrored(struct mirror_lu *lu, bool mirrored)
{
	leaf_lock(&lu->lock);
	mirror_owner_mirrored(lu->rules, mirrored, now_ns());
	leaf_unlock(&lu->lock);
	lu_kick(lu);
}

void mirror_lu_frame(struct mirror_lu *lu, unsigned from, const struct mirror_frame *f)
{
	leaf_lock(&lu->lock);
	mirror_owner_frame(lu->rules, from, f, now_ns());
	leaf_unlock(&lu->lock);
	lu_kick_here(lu);
}

void mirror_lu_down(struct mirror_lu *lu, unsigned peer)
{
	leaf_lock(&lu->lock);
	mirror_owner_down(lu->rules, peer, now_ns());
	leaf_unlock(&lu->lock);
	lu_kick(lu);
}

void mirror_lu_set_done(struct mirror_lu *lu)
{
	leaf_lock(&lu->lock);
	mirror_owner_set_done(lu->rules, now_ns());
	leaf_unlock(&lu->lock);
	cache_mirror_look(lu->cache); /* resumed: what was closed is open */
	lu_kick(lu);
}

void mirror_lu_refresh(struct mirror_lu *lu)
{
	leaf_lock(&lu->lock);
	mirror_owner_refresh(lu->rules, now_ns());
	leaf_unlock(&lu->lock);
	lu_kick(lu);
}

void mirror_lu_show(struct mirror_lu *lu, struct mirror_show *show)
{
	leaf_lock(&lu->lock);
	mirror_owner_show(lu->rules, show, now_ns());
	leaf_unlock(&lu->lock);
}

void mirror_lu_fail(struct mirror_lu *lu, int status)
{
	cache_mirror_fail(lu->cache, status);
}

static void lu_stops(struct loop_msg *msg)
{
	struct mirror_lu *lu = container_of(msg, struct mirror_lu, stop);
	unsigned none = 0;

	atomic_store(&lu->stopped, true);
	loop_timer_cancel(lu->conf.loop, &lu->timer);
	/* Who has the turn, or is about to come, comes first. */
	if (atomic_compare_exchange_strong(&lu->turn, &none, TURN_OVER))
		lu->when_stopped(lu->arg);
	else
		loop_post(lu->conf.loop, &lu->stop);
}

void mirror_lu_stop(struct mirror_lu *lu, void (*stopped)(void *arg))
{
	lu->when_stopped = stopped;
	lu->stop.handle = lu_stops;
	loop_post(lu->conf.loop, &lu->stop);
}

void mirror_lu_end(struct mirror_lu *lu)
{
	cache_mirror_end(lu->cache);
	mirror_lu_free(lu);
}
