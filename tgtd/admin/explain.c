/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * `--op explain`: what limits a logical unit now, in sentences. For a second it looks at where the
 * time of the unit's commands goes, who sends them, and how busy the threads are that serve them;
 * longer, up to EXPLAIN_LOOKS seconds, while commands are under way and none has ended. The first
 * line names the limit by one word; what follows are the figures that speak for it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/engine/stat.h"
#include "events/bug.h"
#include "events/clock.h"
#include "events/thread.h"
#include "tgtd/admin/json.h"
#include "tgtd/cluster/live/group.h"
#include "tgtd/iscsi/iscsi.h"

#define EXPLAIN_NS NSEC_PER_SEC
#define EXPLAIN_LOOKS 10
#define EXPLAIN_SESSIONS 1024 /* those that it tells apart */
#define EXPLAIN_THREADS 64

struct explain_session {
	uint64_t id, cmds, bytes, rounds, full_rounds;
	uint32_t under_way;
	char initiator[224];
};

struct explain_thread {
	struct loop *loop;
	char name[16];
	uint64_t busy_ns, starved_ns;
};

struct explain_look {
	uint64_t at_ns;
	struct lat_sums lat;
	unsigned nsessions, nthreads;
	struct explain_session *session; /* [EXPLAIN_SESSIONS] */
	struct explain_thread thread[EXPLAIN_THREADS];
};

struct explain {
	struct list link;
	struct adm_call *call;
	uint32_t tid, lun;
	struct scsi_lu *lu;
	unsigned looks;
	struct timer timer;
	struct explain_look before, now;
};

static struct list explains = LIST_INIT(explains);

/* ---- looking --------------------------------------------------------------------------------- */

static void explain_session_seen(const struct scsi_session_figures *f, void *arg)
{
	struct explain_look *l = arg;
	unsigned i;

	for (i = 0; i < l->nthreads && l->thread[i].loop != f->loop; i++)
		;
	if (i == l->nthreads && i < EXPLAIN_THREADS)
		l->thread[l->nthreads++].loop = f->loop;
	if (l->nsessions == EXPLAIN_SESSIONS)
		return;
	struct explain_session *s = &l->session[l->nsessions++];

	*s = (struct explain_session){ .id = f->id, .cmds = f->cmds, .bytes = f->bytes,
				       .rounds = f->rounds, .full_rounds = f->full_rounds,
				       .under_way = f->under_way };
	snprintf(s->initiator, sizeof(s->initiator), "%s", f->initiator);
}

/* The loops were there a moment ago, on the main loop: who ends one does so from here, too. */
static void explain_look(struct scsi_lu *lu, struct explain_look *l)
{
	l->nsessions = l->nthreads = 0;
	l->at_ns = clock_now_ns();
	scsi_lu_get_latency(lu, &l->lat);
	scsi_lu_each_session(lu, explain_session_seen, l);
	for (unsigned i = 0; i < l->nthreads; i++) {
		struct explain_thread *t = &l->thread[i];
		struct loop_stats st;

		loop_get_stats(t->loop, &st);
		snprintf(t->name, sizeof(t->name), "%s", loop_name(t->loop));
		t->busy_ns = st.busy_ns;
		t->starved_ns = thread_starved_ns(st.tid);
	}
}

/* ---- judging --------------------------------------------------------------------------------- */

struct judged {
	uint64_t dt, cmds, reads, writes, total;
	uint64_t part[LAT_FIGURES], wait[LAT_WAITS], read_wire, write_wire, write_store;
	unsigned active;		 /* sessions with commands in that time */
	const struct explain_session *top; /* the one that moved most */
	unsigned top_share, full_share;	 /* per cent */
	const char *thread;		 /* the busiest */
	unsigned busy, starved;		 /* per cent */
};

static unsigned percent(uint64_t part, uint64_t whole)
{
	return whole ? (unsigned)MIN(part * 100 / whole, 100u) : 0;
}

/* They are told in one order, so it is mostly @at. */
static const struct explain_session *session_before(const struct explain_look *l, unsigned at,
						    uint64_t id)
{
	for (unsigned i = 0; i < l->nsessions; i++) {
		const struct explain_session *s = &l->session[(at + i) % l->nsessions];

		if (s->id == id)
			return s;
	}
	return NULL;
}

static void judge_sessions(const struct explain *x, struct judged *j)
{
	uint64_t bytes = 0, most = 0, rounds = 0, full = 0;

	for (unsigned i = 0; i < x->now.nsessions; i++) {
		const struct explain_session *s = &x->now.session[i],
					     *b = session_before(&x->before, i, s->id);
		/* Small commands take time, too. */
		const uint64_t moved = s->bytes - (b ? b->bytes : 0) +
				       4096 * (s->cmds - (b ? b->cmds : 0));

		j->active += moved || s->under_way;
		bytes += moved;
		rounds += s->rounds - (b ? b->rounds : 0);
		full += s->full_rounds - (b ? b->full_rounds : 0);
		if (moved > most) {
			most = moved;
			j->top = s;
		}
	}
	j->top_share = percent(most, bytes);
	j->full_share = percent(full, rounds);
}

static void judge_threads(const struct explain *x, struct judged *j)
{
	for (unsigned i = 0; i < x->now.nthreads; i++)
		for (unsigned k = 0; k < x->before.nthreads; k++) {
			const struct explain_thread *t = &x->now.thread[i],
						    *b = &x->before.thread[k];

			if (t->loop != b->loop)
				continue;
			const unsigned busy = percent(t->busy_ns - b->busy_ns, j->dt);

			if (!j->thread || busy > j->busy) {
				j->thread = t->name;
				j->busy = busy;
				j->starved = percent(t->starved_ns - b->starved_ns, j->dt);
			}
		}
}

static void judge(const struct explain *x, struct judged *j)
{
	const struct lat_sums *n = &x->now.lat, *b = &x->before.lat;

	memset(j, 0, sizeof(*j));
	j->dt = x->now.at_ns - x->before.at_ns;
	for (unsigned c = 0; c < LAT_CLASSES; c++) {
		j->cmds += n->count[c] - b->count[c];
		for (unsigned f = 0; f < LAT_FIGURES; f++)
			j->part[f] += n->sum_ns[c][f] - b->sum_ns[c][f];
		for (unsigned w = 0; w < LAT_WAITS; w++)
			j->wait[w] += n->wait_ns[c][w] - b->wait_ns[c][w];
	}
	j->reads = n->count[LAT_READ] - b->count[LAT_READ];
	j->writes = n->count[LAT_WRITE] - b->count[LAT_WRITE];
	j->read_wire = n->sum_ns[LAT_READ][LAT_WIRE] - b->sum_ns[LAT_READ][LAT_WIRE];
	j->write_wire = n->sum_ns[LAT_WRITE][LAT_WIRE] - b->sum_ns[LAT_WRITE][LAT_WIRE];
	j->write_store = n->sum_ns[LAT_WRITE][LAT_STORE] - b->sum_ns[LAT_WRITE][LAT_STORE];
	j->total = j->part[LAT_TOTAL];
	judge_sessions(x, j);
	judge_threads(x, j);
}

/* ---- telling --------------------------------------------------------------------------------- */

#define HALF 50	    /* per cent of all commands' time: that is where it goes */
#define BUSY 85	    /* per cent of a thread's time */
#define GREEDY 80   /* per cent of what all sessions move */

/* Writes of a mirrored unit are answered when its peer has them: what they wait for below the
 * device server is the peer. False: the unit has none, or is answered by its store; or, with @now,
 * nothing waits for it at this moment. */
static bool tell_peer(const struct explain *x, bool now)
{
	struct adm_out *out = &x->call->out;
	struct group_mirror_view m;

	if (!group_get_lu_mirror(x->lu, &m) || !m.owned || m.owner.mode == MIRROR_THROUGH ||
	    (now && m.owner.mode != MIRROR_LOSING && !m.waits))
		return false;
	if (m.owner.mode == MIRROR_LOSING)
		out_printf(
			out,
			"Limited by: peer\nGateway %s mirrored it, and is lost: what it does not "
			"have is answered when all that is dirty is in the store, or with another "
			"gateway.\n",
			m.peer);
	else
		out_printf(out,
			   "Limited by: peer\nIts writes wait for gateway %s, which mirrors them "
			   "(%" PRIu64 " KiB not confirmed, the oldest batch sent %" PRIu64
			   " us ago).\n",
			   m.peer, m.waits >> 10, m.owner.lag_ns / 1000);
	return true;
}

static void tell_verdict(const struct explain *x, const struct judged *j)
{
	struct adm_out *out = &x->call->out;
	const struct adm_target *t = registry_target(x->tid);
	/* A unit that has less than half a command on average does not keep initiators waiting,
	 * wherever the time of the few goes. */
	const uint64_t total = j->total >= j->dt / 2 ? j->total : UINT64_MAX;
	const uint64_t dirty = j->wait[LAT_WAIT_BLOCKS] + j->wait[LAT_WAIT_SHARE];

	if (percent(j->wait[LAT_WAIT_LIMIT], j->total) >= HALF)
		out_puts(out, "Limited by: limit\nIts commands wait for a limit that was set.\n");
	else if (percent(dirty, total) >= HALF && adm.conf.cache)
		out_printf(out,
			   "Limited by: dirty\nIts commands wait for blocks of the cache: writes "
			   "come faster than the store takes them back (%u MiB are dirty).\n",
			   (unsigned)(cache_dirty_bytes(adm.conf.cache) >> 20));
	else if (percent(j->write_store, total) >= HALF && tell_peer(x, false))
		;
	else if (percent(j->part[LAT_STORE], total) >= HALF)
		out_printf(out, "Limited by: store\nIts commands wait for the store.\n");
	else if (percent(j->wait[LAT_WAIT_ORDER], total) >= HALF)
		out_puts(out, "Limited by: order\nIts commands wait for earlier ones.\n");
	else if (j->busy + j->starved >= BUSY && j->active > 1 && j->top_share >= GREEDY)
		out_printf(out,
			   "Limited by: session\n%s takes %u %% of what its %u sessions move, and "
			   "the event thread has no time left.\n",
			   j->top->initiator, j->top_share, j->active);
	else if (j->busy + j->starved >= BUSY)
		out_printf(out,
			   "Limited by: core\nThe event thread %s has no time left: more threads "
			   "(threads=) or a free processor would help.\n",
			   j->thread);
	else if (percent(j->read_wire, total) >= HALF)
		out_puts(out, "Limited by: reader\nIts answers wait for the socket: the initiator "
			      "or the network takes them slowly.\n");
	else if (percent(j->write_wire, total) >= HALF)
		out_puts(out, "Limited by: sender\nIts commands wait for their data: the initiator "
			      "or the network sends it slowly.\n");
	else if (j->full_share >= HALF)
		out_printf(out,
			   "Limited by: window\nInitiators use up the command window (MaxQueueCmd="
			   "%u) and wait for it; the unit has time left.\n",
			   t ? iscsi_target_max_queue_cmd(t->scsi) : 0);
	else
		out_puts(out, "Limited by: initiator\nNothing here keeps it back: initiators could "
			      "send more at the same time.\n");
}

static void explain_tell(const struct explain *x)
{
	struct adm_out *out = &x->call->out;
	struct judged j;
	uint32_t under_way = 0;

	judge(x, &j);
	for (unsigned i = 0; i < x->now.nsessions; i++)
		under_way += x->now.session[i].under_way;
	if (!j.cmds && under_way && tell_peer(x, true)) {
		out_printf(out, "Of %u commands under way none has ended for %u s.\n", under_way,
			   x->looks);
		return;
	}
	if (!j.cmds) {
		out_printf(out,
			   under_way ? "Limited by: store\nOf %u commands under way none has ended "
				       "for %u s.\n" :
				       "Limited by: nothing\nNo commands came.\n",
			   under_way, x->looks);
		return;
	}
	tell_verdict(x, &j);
	out_printf(out,
		   "In %u.%u s %" PRIu64 " commands ended (%" PRIu64 " reads, %" PRIu64
		   " writes), after %" PRIu64 " us on average.\n",
		   (unsigned)(j.dt / NSEC_PER_SEC), (unsigned)(j.dt / 100000000 % 10), j.cmds,
		   j.reads, j.writes, j.total / j.cmds / 1000);
	out_puts(out, "Of their time");
	for (unsigned f = LAT_WAITING; f < LAT_FIGURES; f++)
		out_printf(out, "%s %u %% was %s", f == LAT_WAITING ? "" : ",",
			   percent(j.part[f], j.total), lat_figure_names[f]);
	out_puts(out, ".\n");
	if (j.thread)
		out_printf(out,
			   "The event thread %s was busy for %u %% of the time, and had no "
			   "processor for %u %%.\n",
			   j.thread, j.busy, j.starved);
	out_printf(out, "Sessions with commands: %u. The window was used up %u %% of the time.\n",
		   j.active, j.full_share);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static void explain_free(struct explain *x)
{
	list_del(&x->link);
	free(x->before.session);
	free(x->now.session);
	free(x);
}

static void explain_again(struct timer *timer)
{
	struct explain *x = container_of(timer, struct explain, timer);
	struct adm_target *t = registry_target(x->tid);
	struct adm_lu *lu = t ? registry_lu(t, x->lun) : NULL;
	enum adm_status status = ADM_OK;
	struct adm_call *call = x->call;
	uint64_t ended = 0, under_way = 0;

	x->looks++;
	if (!lu || lu->scsi != x->lu) {
		status = ADM_NO_LUN;
	} else {
		explain_look(lu->scsi, &x->now);
		for (unsigned c = 0; c < LAT_CLASSES; c++)
			ended += x->now.lat.count[c] - x->before.lat.count[c];
		for (unsigned i = 0; i < x->now.nsessions; i++)
			under_way += x->now.session[i].under_way;
		if (!ended && under_way && x->looks < EXPLAIN_LOOKS) {
			loop_timer_arm(adm.conf.main, timer, EXPLAIN_NS);
			return;
		}
		explain_tell(x);
	}
	explain_free(x);
	if (status == ADM_OK && call->req.json)
		status = json_explain(call);
	adm_call_done(call, status);
}

enum adm_status verb_lu_explain(struct adm_call *call)
{
	struct adm_target *t = call_target(call);
	struct adm_lu *lu = call_lu(call, t);
	struct explain *x;

	if (!t)
		return ADM_NO_TARGET;
	if (!lu)
		return ADM_NO_LUN;
	x = calloc(1, sizeof(*x));
	if (!x)
		return ADM_NOMEM;
	list_init(&x->link);
	x->before.session = calloc(EXPLAIN_SESSIONS, sizeof(struct explain_session));
	x->now.session = calloc(EXPLAIN_SESSIONS, sizeof(struct explain_session));
	if (!x->before.session || !x->now.session) {
		explain_free(x);
		return ADM_NOMEM;
	}
	list_add_tail(&explains, &x->link);
	x->call = call;
	x->tid = t->tid;
	x->lun = lu->lun;
	x->lu = lu->scsi;
	explain_look(x->lu, &x->before);
	timer_init(&x->timer, explain_again);
	loop_timer_arm(adm.conf.main, &x->timer, EXPLAIN_NS);
	return ADM_PENDING;
}

void explain_stop(void)
{
	while (!list_empty(&explains)) {
		struct explain *x = list_first(&explains, struct explain, link);

		struct adm_call *call = x->call;

		loop_timer_cancel(adm.conf.main, &x->timer);
		explain_free(x);
		adm_call_done(call, admin_refuse(call, ADM_INVALID_REQUEST,
						 "the daemon is shutting down"));
	}
}
