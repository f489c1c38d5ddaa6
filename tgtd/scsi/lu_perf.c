/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Time spent on commands, without a look at the clock by any of them.
 *
 * A loop reads its clock when an iteration begins; what is new or over in an iteration is taken to
 * have begun, or ended, then. So a command that is under way for several iterations (it waits for a
 * disk, or for its data) is charged from the iteration it came in to the one it ended in. A command
 * that begins and ends within one iteration, as a hit in memory does, is charged an equal share of
 * how long that iteration took, from its beginning to when the clock is read next: commands of a
 * batch are served one after the other, so in sum that is what the batch took. What is exact is the
 * sum; a single command may be wrong by an iteration, which is microseconds, and as long as what it
 * did at most.
 *
 * How it is done: sums are of "so many under way" times "for so long", and are brought up to date
 * only when the number changes. The first change of an I_T_L nexus in an iteration touches it; who
 * is touched is looked at once more when the loop reads its clock. What makes a command touch it is
 * a bit of the gate, which every command asks anyway: so a batch of reads is charged for its first
 * one only. Everything belongs to the loop; nobody writes to what another loop writes to.
 */
#include <stdlib.h>

#include "events/clock.h"
#include "tgtd/scsi/latency_impl.h"
#include "tgtd/scsi/lu.h"

/* Of a loop: those with a touched I_T_L nexus. */
struct scsi_clock {
	struct loop_attachment att;
	struct loop *loop;
	struct loop_tick tick;
	struct list loads;
	unsigned users; /* loads there are; goes with the last */
};

static inline uint64_t rd_ended(const struct scsi_itl *itl)
{
	return itl->st.rd_done_cmds + itl->load.rd_errs;
}

static inline uint64_t wr_ended(const struct scsi_itl *itl)
{
	return itl->st.wr_done_cmds + itl->load.wr_errs;
}

/* ---- sums, which others may read ------------------------------------------------------------- */

static void lu_perf_write_begin(struct lu_perf *l)
{
	/* Acquire: no figure is written before it. */
	__atomic_fetch_add(&l->seq, 1, __ATOMIC_ACQUIRE);
}

static void lu_perf_write_end(struct lu_perf *l)
{
	__atomic_store_n(&l->seq, l->seq + 1, __ATOMIC_RELEASE);
}

static void set32(uint32_t *figure, uint32_t v)
{
	__atomic_store_n(figure, v, __ATOMIC_RELAXED);
}

/* What is under way was so until @now. @rd, @wr: time of what was not. */
static inline void lu_perf_advance(struct lu_perf *l, uint64_t now, uint64_t rd, uint64_t wr)
{
	uint64_t dt = now - l->since;

	ASSERT(now >= l->since);
	if (likely(!(l->rd_out | l->wr_out | l->cmds))) {
		/* Each figure stands for itself, whatever ->since is. */
		if (rd | wr) {
			counter_add(&l->sum.rd, rd);
			counter_add(&l->sum.wr, wr);
			counter_add(&l->sum.busy, rd + wr);
		}
		__atomic_store_n(&l->since, now, __ATOMIC_RELAXED);
		return;
	}
	lu_perf_write_begin(l);
	counter_add(&l->sum.rd, l->rd_out * dt + rd);
	counter_add(&l->sum.wr, l->wr_out * dt + wr);
	counter_add(&l->sum.busy, l->cmds ? dt : rd + wr);
	__atomic_store_n(&l->since, now, __ATOMIC_RELAXED);
	lu_perf_write_end(l);
}

static void lu_perf_read(const struct lu_perf *l, uint64_t now, struct lu_perf_times *to)
{
	uint32_t seq, rd, wr, cmds;
	struct lu_perf_times sum;
	uint64_t since, dt;

	/* Each is acquired: none is read after the second look at seq. */
	for (;;) {
		seq = __atomic_load_n(&l->seq, __ATOMIC_ACQUIRE);
		rd = __atomic_load_n(&l->rd_out, __ATOMIC_ACQUIRE);
		wr = __atomic_load_n(&l->wr_out, __ATOMIC_ACQUIRE);
		cmds = __atomic_load_n(&l->cmds, __ATOMIC_ACQUIRE);
		since = __atomic_load_n(&l->since, __ATOMIC_ACQUIRE);
		sum.rd = __atomic_load_n(&l->sum.rd, __ATOMIC_ACQUIRE);
		sum.wr = __atomic_load_n(&l->sum.wr, __ATOMIC_ACQUIRE);
		sum.busy = __atomic_load_n(&l->sum.busy, __ATOMIC_ACQUIRE);
		if (!(seq & 1) && seq == __atomic_load_n(&l->seq, __ATOMIC_RELAXED))
			break;
		cpu_relax();
	}
	dt = now > since ? now - since : 0;
	to->rd += sum.rd + rd * dt;
	to->wr += sum.wr + wr * dt;
	to->busy += sum.busy + (cmds ? dt : 0);
}

void scsi_lu_get_perf(struct scsi_lu *lu, uint64_t now, struct lu_perf_times *out, uint64_t *idle)
{
	const struct lu_perf *l;
	uint64_t elapsed;

	pthread_mutex_lock(&lu->lock);
	*out = lu->gone_perf;
	list_for_each(l, &lu->loads, link)
		lu_perf_read(l, now, out);
	elapsed = now > lu->made_ns ? now - lu->made_ns : 0;
	if (elapsed > out->busy)
		lu->idle_ns = MAX(lu->idle_ns, elapsed - out->busy);
	*idle = lu->idle_ns;
	pthread_mutex_unlock(&lu->lock);
}

/* ---- an iteration ---------------------------------------------------------------------------- */

void scsi_itl_touch(struct scsi_itl *itl)
{
	struct lu_perf *l = itl->load.of;
	struct scsi_clock *c = l->clock;

	ASSERT_ON_LOOP(c->loop);
	atomic_fetch_and_explicit(&itl->gate, ~(uint32_t)GATE_CLOCK, memory_order_relaxed);
	itl->load.rd_ended = rd_ended(itl);
	itl->load.wr_ended = wr_ended(itl);
	list_add_tail(&l->itls, &itl->load.link);
	itl->next_touched = itl->nexus->touched;
	itl->nexus->touched = itl;
	if (list_linked(&l->clock_link))
		return;
	lu_perf_advance(l, loop_now(c->loop), 0, 0);
	if (list_empty(&c->loads))
		loop_tick(c->loop, &c->tick);
	list_add_tail(&c->loads, &l->clock_link);
}

/* What has changed in @itl since it was touched. */
static void lu_perf_collect(struct lu_perf *l, struct scsi_itl *itl)
{
	struct itl_perf *il = &itl->load;
	uint64_t rd = rd_ended(itl), wr = wr_ended(itl);
	uint32_t rd_out = (uint32_t)(itl->st.rd_subm_cmds - rd),
		 wr_out = (uint32_t)(itl->st.wr_subm_cmds - wr);
	uint32_t cmds = itl->inflight - itl->pins;

	ASSERT((int32_t)rd_out >= 0 && (int32_t)wr_out >= 0 && (int32_t)cmds >= 0);
	l->rd_ended += rd - il->rd_ended;
	l->wr_ended += wr - il->wr_ended;
	list_del(&il->link);
	atomic_fetch_or_explicit(&itl->gate, GATE_CLOCK, memory_order_relaxed);
	if (likely(rd_out == il->rd_out && wr_out == il->wr_out && cmds == il->cmds))
		return;
	lu_perf_write_begin(l);
	set32(&l->rd_out, l->rd_out + rd_out - il->rd_out);
	set32(&l->wr_out, l->wr_out + wr_out - il->wr_out);
	set32(&l->cmds, l->cmds + cmds - il->cmds);
	lu_perf_write_end(l);
	il->rd_out = rd_out;
	il->wr_out = wr_out;
	il->cmds = cmds;
}

/* It goes before the iteration is over. */
static void untouch(struct scsi_itl *itl)
{
	struct scsi_itl **pp = &itl->nexus->touched;

	scsi_itl_count_batch(itl);
	while (*pp != itl)
		pp = &(*pp)->next_touched;
	*pp = itl->next_touched;
}

/* The iteration is over. */
static void tick(struct loop_tick *t, uint64_t now)
{
	struct scsi_clock *c = container_of(t, struct scsi_clock, tick);
	struct lu_perf *l;
	uint64_t ended = 0;

	list_for_each(l, &c->loads, clock_link) {
		while (!list_empty(&l->itls)) {
			struct scsi_itl *itl = list_first(&l->itls, struct scsi_itl, load.link);

			itl->nexus->touched = NULL; /* all of them are collected */
			lu_perf_collect(l, itl);
		}
		ended += l->rd_ended + l->wr_ended;
	}
	while (!list_empty(&c->loads)) {
		uint64_t dt;

		l = list_first(&c->loads, struct lu_perf, clock_link);
		list_del(&l->clock_link);
		dt = now - l->since;
		if (likely(l->rd_ended == ended)) /* most iterations know one kind of command */
			lu_perf_advance(l, now, ended ? dt : 0, 0);
		else
			lu_perf_advance(l, now, dt * l->rd_ended / ended, dt * l->wr_ended / ended);
		l->rd_ended = l->wr_ended = 0;
	}
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static void clock_detach(struct loop_attachment *a)
{
	struct scsi_clock *c = container_of(a, struct scsi_clock, att);

	ASSERT(!c->users && list_empty(&c->loads));
	list_del(&c->att.link);
	list_del(&c->tick.link);
	free(c);
}

static struct scsi_clock *clock_of(struct loop *loop)
{
	struct loop_attachment *a = loop_attached(loop, clock_detach);
	struct scsi_clock *c;

	if (a)
		return container_of(a, struct scsi_clock, att);
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->loop = loop;
	c->att.detach = clock_detach;
	loop_tick_init(&c->tick, tick);
	list_init(&c->loads);
	loop_attach(loop, &c->att);
	return c;
}

bool lu_perf_join_locked(struct scsi_itl *itl, struct lat_shard **spare)
{
	struct scsi_lu *lu = itl->lu;
	struct scsi_clock *c = clock_of(itl->nexus->loop);
	struct lu_perf *l;

	list_init(&itl->load.link);
	if (!c)
		return false;
	list_for_each(l, &lu->loads, link)
		if (l->clock == c)
			goto found;
	l = lu->gone_lat || *spare ? aligned_alloc(CACHE_LINE, sizeof(*l)) : NULL;
	if (!l) {
		if (!c->users)
			clock_detach(&c->att);
		return false;
	}
	memset(l, 0, sizeof(*l));
	if (lu->gone_lat) { /* what was counted before goes on */
		l->lat = lu->gone_lat;
		lu->gone_lat = NULL;
	} else {
		l->lat = *spare;
		*spare = NULL;
	}
	l->clock = c;
	c->users++;
	l->since = loop_now(c->loop);
	list_init(&l->itls);
	list_init(&l->clock_link);
	list_add_tail(&lu->loads, &l->link);
found:
	l->users++;
	itl->load.of = l;
	return true;
}

void lu_perf_carried(struct scsi_itl *itl)
{
	struct itl_perf *il = &itl->load;

	il->rd_errs = itl->st.rd_subm_cmds - itl->st.rd_done_cmds;
	il->wr_errs = itl->st.wr_subm_cmds - itl->st.wr_done_cmds;
	il->rd_ended = rd_ended(itl);
	il->wr_ended = wr_ended(itl);
}

void lu_perf_leave_locked(struct scsi_itl *itl)
{
	struct scsi_lu *lu = itl->lu;
	struct lu_perf *l = itl->load.of;

	ASSERT_ON_LOOP(l->clock->loop);
	if (list_linked(&itl->load.link)) {
		untouch(itl);
		lu_perf_collect(l, itl);
	}
	lat_own_free(itl->own);
	itl->own = NULL;
	ASSERT(!itl->load.rd_out && !itl->load.wr_out && !itl->load.cmds);
	if (--l->users)
		return;
	if (!lu->gone_lat)
		lu->gone_lat = l->lat;
	else
		lat_shard_fold(lu->gone_lat, l->lat);
	lu->gone_perf.rd += l->sum.rd;
	lu->gone_perf.wr += l->sum.wr;
	lu->gone_perf.busy += l->sum.busy;
	list_del(&l->clock_link);
	list_del(&l->link);
	if (--l->clock->users == 0)
		clock_detach(&l->clock->att);
	free(l);
}
