/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Buckets, and commands that wait for them; see limit.h. Nothing is locked: what several threads
 * take from are single words. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "events/metrics.h"
#include "tgtd/scsi/lu.h"
#include "tgtd/scsi/timing.h"

#define TICKS 16u			   /* of a nanosecond */
#define TICK_MS (TICKS * NSEC_PER_MSEC)
#define BURST (100 * TICK_MS)		   /* unless somebody says otherwise */
#define BURST_MIN (10 * TICK_MS)	   /* a timer that is late must not cost anything */
#define BEHIND (1000 * TICK_MS)		   /* nor an event thread, if others have the processors */
#define TURN (2 * TICK_MS)		   /* longer than a timer is late */
#define BYTES_MAX MiB(64)

/* ---- buckets --------------------------------------------------------------------------------- */

static uint64_t limit_load(const _Atomic uint64_t *v)
{
	return atomic_load_explicit(v, memory_order_relaxed);
}

static uint64_t limit_cost(uint64_t n, uint64_t rate)
{
	return rate ? (uint64_t)((__uint128_t)n * NSEC_PER_SEC * TICKS / rate) : 0;
}

/* Takes @n, and returns when they are there. @behind: who takes them is late, and has had commands
 * waiting meanwhile: for that time nothing has run over. */
static uint64_t bucket_take(struct scsi_bucket *b, uint64_t now, uint64_t n, bool behind)
{
	uint64_t rate = limit_load(&b->rate), need, from, burst, held, empty;

	if (!rate || !n)
		return 0;
	need = limit_cost(n, rate);
	burst = limit_load(&b->burst);
	held = behind ? MAX(burst, BEHIND) : burst;
	empty = limit_load(&b->empty);
	do
		from = MAX(empty, now > held ? now - held : 0); /* it runs over */
	while (!atomic_compare_exchange_weak_explicit(&b->empty, &empty, from + need,
						      memory_order_relaxed, memory_order_relaxed));
	return from + MIN(need, burst);
}

static void bucket_give(struct scsi_bucket *b, uint64_t n)
{
	uint64_t need = limit_cost(n, limit_load(&b->rate));

	if (need)
		atomic_fetch_sub_explicit(&b->empty, need, memory_order_relaxed);
}

static void bucket_set(struct scsi_bucket *b, uint64_t rate, uint64_t burst)
{
	uint64_t held = burst ? limit_cost(burst, rate) : BURST;

	held = MAX(held, MAX(BURST_MIN, limit_cost(1, rate)));
	atomic_store_explicit(&b->rate, rate, memory_order_relaxed);
	atomic_store_explicit(&b->burst, held, memory_order_relaxed);
	atomic_store_explicit(&b->empty, clock_now_ns() * TICKS, memory_order_relaxed);
}

void scsi_limit_set(struct scsi_limit *l, const struct scsi_limit_conf *c)
{
	for (unsigned d = 0; d < SCSI_LIMIT_DIRS; d++) {
		bucket_set(&l->bucket[SCSI_LIMIT_OPS][d], c->iops[d], c->iops_burst);
		bucket_set(&l->bucket[SCSI_LIMIT_BYTES][d], c->bandwidth[d], c->bandwidth_burst);
	}
	atomic_store_explicit(&l->longest, 0, memory_order_relaxed);
	atomic_fetch_add(&l->generation, 1);
}

/* ---- what commands cost ---------------------------------------------------------------------- */

/* By direction; [SCSI_LIMIT_ALL] is the sum. */
struct tokens {
	uint64_t n[SCSI_LIMIT_UNITS][SCSI_LIMIT_DIRS];
};

/* NUMBER OF LOGICAL BLOCKS and its like, by the CDB alone: it is yet to be checked. */
static uint64_t blocks_named(const uint8_t *cdb)
{
	switch (cdb[0]) {
	case 0x08: /* READ(6), WRITE(6) */
	case 0x0a:
		return cdb[4] ? cdb[4] : 256;
	case 0x28: /* READ(10), WRITE(10), WRITE AND VERIFY(10), VERIFY(10), PRE-FETCH(10) */
	case 0x2a:
	case 0x2e:
	case 0x2f:
	case 0x34:
		return get_be16(cdb + 7);
	case 0x41: /* WRITE SAME(10), (16): with UNMAP they are unmaps */
		return cdb[1] & 0x08 ? 0 : get_be16(cdb + 7);
	case 0x93:
		return cdb[1] & 0x08 ? 0 : get_be32(cdb + 10);
	case 0xa8: /* READ(12), WRITE(12), WRITE AND VERIFY(12), VERIFY(12) */
	case 0xaa:
	case 0xae:
	case 0xaf:
		return get_be32(cdb + 6);
	case 0x88: /* READ(16), WRITE(16), ORWRITE(16), WRITE AND VERIFY(16), VERIFY(16) ... */
	case 0x8a:
	case 0x8b:
	case 0x8e:
	case 0x8f:
	case 0x90: /* PRE-FETCH(16) */
		return get_be32(cdb + 10);
	case 0x89: /* COMPARE AND WRITE */
		return cdb[13];
	case 0x9c: /* WRITE ATOMIC(16) */
		return get_be16(cdb + 12);
	default:
		return 0;
	}
}

/* A command that will be refused for its length must not put others into debt. */
static void tokens_add(struct tokens *t, const struct scsi_cmd *cmd)
{
	uint64_t blocks = blocks_named(cmd->cdb), bytes = 0;
	unsigned dir = cmd->op->gate & GATE_DENY_WRITE ? SCSI_LIMIT_WRITE : SCSI_LIMIT_READ;

	if (blocks <= scsi_lu_blocks(cmd->lu))
		bytes = MIN(blocks << cmd->lu->block_shift, BYTES_MAX);
	t->n[SCSI_LIMIT_OPS][dir]++;
	t->n[SCSI_LIMIT_OPS][SCSI_LIMIT_ALL]++;
	t->n[SCSI_LIMIT_BYTES][dir] += bytes;
	t->n[SCSI_LIMIT_BYTES][SCSI_LIMIT_ALL] += bytes;
}

static uint64_t limit_take(struct scsi_limit *l, uint64_t now, const struct tokens *t, bool behind)
{
	uint64_t begin = 0;

	for (unsigned u = 0; u < SCSI_LIMIT_UNITS; u++)
		for (unsigned d = 0; d < SCSI_LIMIT_DIRS; d++) {
			uint64_t at = bucket_take(&l->bucket[u][d], now, t->n[u][d], behind);

			begin = MAX(begin, at);
		}
	return begin;
}

static void limit_give(struct scsi_limit *l, const struct tokens *t)
{
	for (unsigned u = 0; u < SCSI_LIMIT_UNITS; u++)
		for (unsigned d = 0; d < SCSI_LIMIT_DIRS; d++)
			bucket_give(&l->bucket[u][d], t->n[u][d]);
}

/* For how long @t takes all of some bucket: of those that everybody needs, where there are any. */
static uint64_t limit_time(const struct scsi_limit *l, const struct tokens *t)
{
	uint64_t time = 0;

	for (unsigned u = 0; u < SCSI_LIMIT_UNITS; u++) {
		bool all = limit_load(&l->bucket[u][SCSI_LIMIT_ALL].rate);

		for (unsigned d = 0; d < (all ? 1 : SCSI_LIMIT_DIRS); d++) {
			uint64_t c = limit_cost(t->n[u][d], limit_load(&l->bucket[u][d].rate));

			time = MAX(time, c);
		}
	}
	return time;
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* The two that hold for it; NULL: none. */
static struct scsi_limit *limit_of(const struct scsi_itl *itl, unsigned i)
{
	return i ? itl->nexus->limit : &itl->lu->limit;
}

static uint32_t limit_generation(struct scsi_limit *l)
{
	return atomic_load_explicit(&l->generation, memory_order_relaxed);
}

/* The first commands that wait get a turn, as long as a turn is. @behind: those before them have
 * had theirs just now. */
static void take_turn(struct scsi_itl *itl, bool behind)
{
	struct scsi_limit_wait *w = &itl->limit;
	uint64_t now = clock_now_ns() * TICKS, length = TURN;
	struct tokens all = { 0 };
	struct scsi_cmd *cmd;
	bool over = false;

	list_for_each(cmd, &w->cmds, link) {
		struct tokens one = { 0 };

		if (over)
			break;
		tokens_add(&one, cmd);
		tokens_add(&all, cmd);
		cmd->state |= CMD_LIMIT_TURN;
		for (unsigned i = 0; i < 2; i++) {
			struct scsi_limit *l = limit_of(itl, i);
			uint64_t longest, time;

			if (!l)
				continue;
			longest = limit_load(&l->longest);
			time = limit_time(l, &one);
			longest = MAX(time, longest - longest / 64);
			atomic_store_explicit(&l->longest, longest, memory_order_relaxed);
			length = MAX(length, longest);
			over |= limit_time(l, &all) >= length;
		}
	}
	w->begin = w->time = 0;
	w->length = length;
	for (unsigned i = 0; i < 2; i++) {
		struct scsi_limit *l = limit_of(itl, i);
		uint64_t at;

		if (!l)
			continue;
		w->generation[i] = limit_generation(l);
		at = limit_take(l, now, &all, behind);
		w->begin = MAX(w->begin, at);
		at = limit_time(l, &all);
		w->time = MAX(w->time, at);
	}
}

/* @cmd is to be the last that waits. If those before it have a turn that is not over, it gets a
 * part of it. */
static void join_turn(struct scsi_itl *itl, struct scsi_cmd *cmd)
{
	struct scsi_limit_wait *w = &itl->limit;
	uint64_t now = clock_now_ns() * TICKS, most = 0;
	const struct scsi_cmd *last = list_entry(w->cmds.prev, struct scsi_cmd, link);
	struct tokens t = { 0 };

	if (!(last->state & CMD_LIMIT_TURN) || w->time >= w->length)
		return;
	for (unsigned i = 0; i < 2; i++) {
		struct scsi_limit *l = limit_of(itl, i);

		if (l && limit_generation(l) != w->generation[i])
			return;
	}
	tokens_add(&t, cmd);
	for (unsigned i = 0; i < 2; i++) {
		struct scsi_limit *l = limit_of(itl, i);
		uint64_t time;

		if (!l)
			continue;
		(void)limit_take(l, now, &t, true);
		time = limit_time(l, &t);
		most = MAX(most, time);
	}
	w->time += most;
	cmd->state |= CMD_LIMIT_TURN;
}

static bool has_turn(const struct scsi_itl *itl)
{
	return !list_empty(&itl->limit.cmds) &&
	       (list_first(&itl->limit.cmds, struct scsi_cmd, link)->state & CMD_LIMIT_TURN);
}

static void limit_give_back(struct scsi_itl *itl, const struct tokens *t)
{
	for (unsigned i = 0; i < 2; i++) {
		struct scsi_limit *l = limit_of(itl, i);

		if (l && limit_generation(l) == itl->limit.generation[i])
			limit_give(l, t);
	}
}

void scsi_limit_cancel(struct scsi_itl *itl)
{
	struct scsi_cmd *cmd;

	ASSERT_ON_LOOP(itl->nexus->loop);
	list_for_each(cmd, &itl->limit.cmds, link) {
		struct tokens t = { 0 };

		if (!(cmd->state & CMD_LIMIT_TURN))
			break;
		tokens_add(&t, cmd);
		limit_give_back(itl, &t);
		cmd->state &= ~(uint32_t)CMD_LIMIT_TURN;
	}
}

/* Looks again when the turn comes. */
static void limit_arm(struct scsi_itl *itl)
{
	uint64_t now = clock_now_ns(), at = (itl->limit.begin + TICKS - 1) / TICKS;

	loop_timer_arm(itl->nexus->loop, &itl->limit.timer, at > now ? at - now : 0);
}

/* It begins anew, since what is in its way may have changed. It has its tokens already; when
 * something else stops it now, they go back. */
static void limit_begin(struct scsi_itl *itl, struct scsi_cmd *cmd)
{
	struct tokens t = { 0 };

	tokens_add(&t, cmd);
	list_del(&cmd->link);
	metric_sub(M_scsi_limit_waiting, 1);
	scsi_itl_count(itl, -1); /* counted again at once */
	itl->limit.used = false;
	cmd->state = CMD_IN_TURN | CMD_LIMIT_TURN;
	scsi_cmd_part_on(cmd, LAT_CACHE);
	cmd->resume(cmd);
	if (!itl->limit.used)
		limit_give_back(itl, &t);
}

/* Nobody waits any more. When the last ones have begun late, its bucket holds more than a burst,
 * which those would lose who cannot come before they have their answers. They have twice as long
 * as we were late: an initiator on a busy machine is late, too. */
static void limit_drained(struct scsi_limit_wait *w)
{
	const uint64_t now = clock_now_ns() * TICKS;

	if (w->begin && now > w->begin)
		w->late = now + 2 * MIN(now - w->begin, BEHIND);
}

/* Begins those whose turn has come; the next ones get a turn. */
static void limit_go_on(struct scsi_itl *itl)
{
	struct scsi_limit_wait *w = &itl->limit;
	bool behind = has_turn(itl);

	scsi_itl_pin(itl);
	while (!list_empty(&w->cmds)) {
		if (atomic_load_explicit(&itl->gate, memory_order_relaxed) & GATE_FROZEN) {
			scsi_limit_park(itl);
			break;
		}
		if (!has_turn(itl))
			take_turn(itl, behind);
		if (w->begin > clock_now_ns() * TICKS) {
			limit_arm(itl);
			break;
		}
		limit_begin(itl, list_first(&w->cmds, struct scsi_cmd, link));
	}
	if (list_empty(&w->cmds)) {
		loop_timer_cancel(itl->nexus->loop, &w->timer);
		limit_drained(w);
	}
	scsi_itl_unpin(itl);
}

static void limit_fired(struct timer *t)
{
	limit_go_on(container_of(t, struct scsi_itl, limit.timer));
}

void scsi_limit_again(struct scsi_itl *itl)
{
	ASSERT_ON_LOOP(itl->nexus->loop);
	scsi_limit_cancel(itl);
	if (!list_empty(&itl->limit.cmds))
		limit_go_on(itl);
}

/* ---- commands come and go -------------------------------------------------------------------- */

void scsi_limit_join(struct scsi_itl *itl)
{
	list_init(&itl->limit.cmds);
	timer_init(&itl->limit.timer, limit_fired);
}

void scsi_limit_part(struct scsi_itl *itl)
{
	ASSERT(list_empty(&itl->limit.cmds));
	loop_timer_cancel(itl->nexus->loop, &itl->limit.timer);
}

/* SAM-5 8.6.4: before all others; those with the attribute HEAD OF QUEUE stay in their order. */
static void limit_put_first(struct scsi_itl *itl, struct scsi_cmd *cmd)
{
	struct scsi_cmd *other;

	list_for_each(other, &itl->limit.cmds, link)
		if (other->attr != SCSI_ATTR_HEAD_OF_QUEUE)
			break;
	list_add_tail(&other->link, &cmd->link); /* before it, or at the end */
}

bool scsi_limit_pass(struct scsi_cmd *cmd)
{
	struct scsi_itl *itl = cmd->itl;
	struct scsi_limit_wait *w = &itl->limit;

	if (cmd->state & CMD_LIMIT_TURN) {
		cmd->state &= ~(uint32_t)CMD_LIMIT_TURN;
		w->used = true;
		return true;
	}
	list_del(&cmd->link);
	if (list_empty(&w->cmds)) {
		list_add_tail(&w->cmds, &cmd->link);
		take_turn(itl, clock_now_ns() * TICKS <= w->late);
		if (w->begin <= clock_now_ns() * TICKS) {
			list_del(&cmd->link);
			cmd->state &= ~(uint32_t)CMD_LIMIT_TURN;
			return true;
		}
		limit_arm(itl);
	} else if (cmd->attr == SCSI_ATTR_HEAD_OF_QUEUE) {
		scsi_limit_cancel(itl);
		limit_put_first(itl, cmd);
		take_turn(itl, true);
		limit_arm(itl);
	} else {
		join_turn(itl, cmd);
		list_add_tail(&w->cmds, &cmd->link);
	}
	cmd->state |= CMD_LIMITED;
	scsi_cmd_waits(cmd, LAT_WAIT_LIMIT);
	metric_inc(M_scsi_limit_waits);
	metric_add(M_scsi_limit_waiting, 1);
	return false;
}

void scsi_limit_leave(struct scsi_cmd *cmd)
{
	struct scsi_itl *itl = cmd->itl;
	struct tokens t = { 0 };

	ASSERT(cmd->state & CMD_LIMITED);
	if (cmd->state & CMD_LIMIT_TURN) {
		tokens_add(&t, cmd);
		limit_give_back(itl, &t);
	}
	list_del(&cmd->link);
	cmd->state &= ~(uint32_t)(CMD_LIMITED | CMD_LIMIT_TURN);
	metric_sub(M_scsi_limit_waiting, 1);
	if (list_empty(&itl->limit.cmds)) {
		loop_timer_cancel(itl->nexus->loop, &itl->limit.timer);
	} else if (!has_turn(itl)) {
		take_turn(itl, true);
		limit_arm(itl);
	}
}

void scsi_limit_park(struct scsi_itl *itl)
{
	struct scsi_limit_wait *w = &itl->limit;

	scsi_limit_cancel(itl);
	loop_timer_cancel(itl->nexus->loop, &w->timer);
	/* They are older than what is held already. */
	while (!list_empty(&w->cmds)) {
		struct scsi_cmd *cmd = list_entry(w->cmds.prev, struct scsi_cmd, link);

		list_del(&cmd->link);
		list_add_head(&itl->held, &cmd->link);
		cmd->state &= ~(uint32_t)CMD_LIMITED;
		cmd->state |= CMD_HELD;
		scsi_cmd_waits(cmd, LAT_WAIT_ORDER);
		metric_sub(M_scsi_limit_waiting, 1);
		scsi_itl_count(itl, -1);
	}
}

/* ---- limits of initiators -------------------------------------------------------------------- */

struct scsi_initiator_limit *scsi_limit_find_locked(struct scsi_target *t, const char *iqn)
{
	struct scsi_initiator_limit *l;

	list_for_each(l, &t->limits, link)
		if (strcasecmp(l->iqn, iqn) == 0)
			return l;
	return NULL;
}

void scsi_limit_attach_locked(struct scsi_nexus *n)
{
	struct scsi_initiator_limit *l = scsi_limit_find_locked(n->target, n->iqn);

	n->limit = l ? &l->limit : NULL;
	if (l)
		atomic_fetch_or_explicit(&n->gate, GATE_LIMIT, memory_order_relaxed);
	else
		atomic_fetch_and_explicit(&n->gate, ~(uint32_t)GATE_LIMIT, memory_order_relaxed);
}

void scsi_limit_free_all(struct scsi_target *t)
{
	struct scsi_initiator_limit *l, *tmp;

	list_for_each_safe(l, tmp, &t->limits, link) {
		list_del(&l->link);
		free(l);
	}
}
