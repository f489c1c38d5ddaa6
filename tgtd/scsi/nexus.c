/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * I_T nexuses joining and leaving, their table of logical units, and the way to reach all of them:
 * a visit runs a function on the loop of every nexus of a target and
 * reports home when all are done.
 */
#include <stdlib.h>
#include "tgtd/scsi/carried.h"
#include "tgtd/scsi/latency_impl.h"
#include "tgtd/scsi/stream_id.h"
#include "tgtd/scsi/tpg.h"

#define NEXUSES_MAX 65536

/* ---- attach ---------------------------------------------------------------------------------- */

int scsi_nexus_attach(struct scsi_nexus *n)
{
	struct scsi_target *t = n->target;
	int ret = 0;

	n->itl = NULL;
	n->nitl = 0;
	n->touched = NULL;
	n->rounds = n->full_rounds = 0;
	n->gate = 0;
	n->limit = NULL;
	n->msgs = 0;
	n->detached = false;
	n->gone = NULL;
	list_init(&n->link);
	n->id = scsi_stream_take(n->address, n->iqn);
	pthread_mutex_lock(&t->lock);
	if (t->dying) {
		ret = -ENOENT;
	} else if (t->nnexus >= NEXUSES_MAX) {
		ret = -EBUSY;
	} else {
		list_add_tail(&t->nexuses, &n->link);
		t->nnexus++;
		scsi_limit_attach_locked(n);
	}
	pthread_mutex_unlock(&t->lock);
	if (ret)
		scsi_stream_give_back(n->id);
	return ret;
}

bool scsi_target_sees(struct scsi_target *t, const struct scsi_nexus *n, uint32_t lun)
{
	return !t->visible || t->visible(t, lun, n->iqn, n->address, t->visible_arg);
}

static bool grow_table(struct scsi_nexus *n, uint32_t lun)
{
	uint32_t want = MAX(ALIGN_UP(lun + 1, 16u), 16u);
	struct scsi_itl **v;

	if (lun < n->nitl)
		return true;
	v = realloc(n->itl, want * sizeof(*v));
	if (!v)
		return false;
	memset(v + n->nitl, 0, (want - n->nitl) * sizeof(*v));
	n->itl = v;
	n->nitl = want;
	return true;
}

struct scsi_itl *scsi_itl_get(struct scsi_nexus *n, uint32_t lun)
{
	struct scsi_target *t = n->target;
	struct scsi_itl *itl = NULL;
	struct lat_shard *spare;
	struct scsi_lu *lu;

	if (lun > SCSI_MAX_LUN)
		return NULL;
	if (lun < n->nitl && n->itl[lun])
		return n->itl[lun];
	spare = lat_shard_new();
	pthread_mutex_lock(&t->lock);
	lu = lun < t->nlu ? t->lu[lun] : NULL;
	if (!lu || n->detached || !scsi_target_sees(t, n, lun) || !grow_table(n, lun))
		goto out;
	itl = aligned_alloc(CACHE_LINE, ALIGN_UP(sizeof(*itl), (size_t)CACHE_LINE));
	if (!itl)
		goto out;
	memset(itl, 0, sizeof(*itl));
	itl->lu = lu;
	itl->nexus = n;
	list_init(&itl->held);
	list_init(&itl->uses);
	scsi_limit_join(itl);
	pthread_mutex_lock(&lu->lock);
	if (!lu_perf_join_locked(itl, &spare)) {
		pthread_mutex_unlock(&lu->lock);
		free(itl);
		itl = NULL;
		goto out;
	}
	list_add_tail(&lu->itls, &itl->link);
	itl->gate = lu->gate | GATE_CLOCK;
	/* As tgt and others have it: of all of 29h, iscsi-ls tries again after this one alone. */
	scsi_ua_add_locked(itl, UA_ANY_RESET);
	scsi_features_attach_locked(itl);
	pthread_mutex_unlock(&lu->lock);
	blk_pin_holder_join();
	n->itl[lun] = itl;
out:
	pthread_mutex_unlock(&t->lock);
	lat_shard_free(spare);
	return itl;
}

/* ---- leaving --------------------------------------------------------------------------------- */

void scsi_lu_gone_over_locked(struct scsi_lu *lu)
{
	ASSERT(lu->ngone > 0);
	if (--lu->ngone)
		return;
	while (!list_empty(&lu->gone_waits)) {
		struct scsi_gone_wait *w =
			list_first(&lu->gone_waits, struct scsi_gone_wait, link);

		list_del(&w->link);
		loop_post(w->home, &w->msg);
	}
}

void scsi_itl_free(struct scsi_itl *itl)
{
	struct scsi_lu *lu = itl->lu;
	struct scsi_lu_stats *g = &lu->gone_stats;
	const struct scsi_lu_stats *s = &itl->st;

	ASSERT(itl->inflight == 0 && list_empty(&itl->uses) && !itl->pin_holder.out);
	scsi_limit_part(itl);
	pthread_mutex_lock(&lu->lock);
	list_del(&itl->link);
	lu_perf_leave_locked(itl);
	scsi_features_lost_locked(itl);
	g->rd_subm_bytes += s->rd_subm_bytes;
	g->rd_subm_cmds += s->rd_subm_cmds;
	g->rd_done_bytes += s->rd_done_bytes;
	g->rd_done_cmds += s->rd_done_cmds;
	g->wr_subm_bytes += s->wr_subm_bytes;
	g->wr_subm_cmds += s->wr_subm_cmds;
	g->wr_done_bytes += s->wr_done_bytes;
	g->wr_done_cmds += s->wr_done_cmds;
	g->errs += s->errs;
	if (itl->gone)
		scsi_lu_gone_over_locked(lu);
	pthread_mutex_unlock(&lu->lock);
	blk_pin_holder_leave();
	free(itl);
}

bool scsi_lu_gone_wait(struct scsi_lu *lu, struct scsi_gone_wait *w)
{
	bool wait;

	pthread_mutex_lock(&lu->lock);
	wait = lu->ngone > 0;
	if (wait) {
		w->home = loop_current();
		list_init(&w->link);
		list_add_tail(&lu->gone_waits, &w->link);
	}
	pthread_mutex_unlock(&lu->lock);
	return wait;
}

/* Its nexus knows it no more. Whoever waits for it to be quiet (another store is to come) need not:
 * it waits for those that are gone. */
static void set_gone(struct scsi_itl *itl)
{
	void (*quiet)(struct scsi_itl *itl) = itl->quiet;

	pthread_mutex_lock(&itl->lu->lock);
	itl->gone = true;
	itl->lu->ngone++;
	pthread_mutex_unlock(&itl->lu->lock);
	itl->quiet = NULL;
	if (quiet)
		quiet(itl);
	if (itl->still)
		itl->still(itl);
}

void scsi_uses_abort(struct scsi_itl *itl)
{
	struct list uses = LIST_INIT(uses);

	list_splice_tail(&uses, &itl->uses);
	while (!list_empty(&uses)) {
		struct scsi_use *use = list_first(&uses, struct scsi_use, link);

		list_del(&use->link); /* it may end, and give the pin back, here and now */
		/* The LU's own commands are aborted as such, next. */
		if (use->cmd->lu != itl->lu && !scsi_aborted(use->cmd))
			scsi_io_abort(use->cmd);
	}
}

void scsi_itl_forget(struct scsi_itl *itl)
{
	struct scsi_nexus *n = itl->nexus;

	ASSERT_ON_LOOP(n->loop);
	if (itl->gone)
		return;
	n->itl[itl->lu->lun] = NULL;
	scsi_nexus_changes(n);
	set_gone(itl);
	scsi_uses_abort(itl);
}

void scsi_use_begin(struct scsi_use *use, struct scsi_itl *itl, struct scsi_cmd *cmd)
{
	ASSERT_ON_LOOP(itl->nexus->loop);
	ASSERT_ON_LOOP(cmd->nexus->loop);
	use->itl = itl;
	use->cmd = cmd;
	list_init(&use->link);
	list_add_tail(&itl->uses, &use->link);
	scsi_itl_pin(itl);
}

void scsi_use_end(struct scsi_use *use)
{
	struct scsi_itl *itl = use->itl;

	use->itl = NULL;
	list_del(&use->link);
	scsi_itl_unpin(itl);
}

/* A dying target goes when its last nexus has left and no visit is on its way. */
static void check_empty(struct scsi_target *t)
{
	if (t->dying && t->nnexus == 0 && t->visits == 0 && t->emptied) {
		void (*emptied)(struct scsi_target *) = t->emptied;
		t->emptied = NULL;
		emptied(t);
	}
}

void scsi_nexus_detach(struct scsi_nexus *n, void (*done)(void *arg), void *arg)
{
	struct scsi_target *t = n->target;
	bool now;

	ASSERT_ON_LOOP(n->loop);
	for (uint32_t i = 0; i < n->nitl; i++) {
		struct scsi_itl *itl = n->itl[i];

		if (!itl)
			continue;
		n->itl[i] = NULL;
		set_gone(itl);
		if (itl->inflight == 0)
			scsi_itl_free(itl);
		else /* a task management function holds it, commands there are none */
			itl->quiet = scsi_itl_free;
	}
	free(n->itl);
	n->itl = NULL;
	n->nitl = 0;
	scsi_stream_give_back(n->id);
	pthread_mutex_lock(&t->lock);
	n->detached = true;
	list_del(&n->link);
	t->nnexus--;
	scsi_port_left_locked(t, n->rtpi);
	now = n->msgs == 0;
	if (!now) {
		n->gone = done;
		n->gone_arg = arg;
	}
	check_empty(t);
	pthread_mutex_unlock(&t->lock);
	if (now)
		done(arg);
}

void scsi_nexus_hold(struct scsi_nexus *n)
{
	struct scsi_target *t = n->target;

	pthread_mutex_lock(&t->lock);
	n->msgs++;
	t->visits++;
	pthread_mutex_unlock(&t->lock);
}

void scsi_nexus_put(struct scsi_nexus *n)
{
	struct scsi_target *t = n->target;
	void (*gone)(void *) = NULL;
	void *gone_arg = NULL;

	ASSERT_ON_LOOP(n->loop);
	pthread_mutex_lock(&t->lock);
	ASSERT(n->msgs > 0 && t->visits > 0);
	if (--n->msgs == 0 && n->gone) {
		gone = n->gone;
		gone_arg = n->gone_arg;
		n->gone = NULL;
	}
	t->visits--;
	check_empty(t);
	pthread_mutex_unlock(&t->lock);
	if (gone)
		gone(gone_arg);
}

void scsi_target_hold(struct scsi_target *t)
{
	pthread_mutex_lock(&t->lock);
	t->visits++;
	pthread_mutex_unlock(&t->lock);
}

void scsi_target_put(struct scsi_target *t)
{
	pthread_mutex_lock(&t->lock);
	ASSERT(t->visits > 0);
	t->visits--;
	check_empty(t);
	pthread_mutex_unlock(&t->lock);
}

/* ---- visits ---------------------------------------------------------------------------------- */

static void visits_home(struct scsi_nexus_walk *all)
{
	if (--all->left == 0)
		all->done(all);
}

static void visit_back(struct loop_msg *m)
{
	struct scsi_nexus_visit *v = container_of(m, struct scsi_nexus_visit, msg);
	struct scsi_nexus_walk *all = v->all;

	free(v);
	visits_home(all);
}

void scsi_nexus_visited(struct scsi_nexus_visit *v)
{
	struct scsi_nexus *n = v->nexus;

	ASSERT_ON_LOOP(n->loop);
	v->msg.handle = visit_back;
	loop_post(v->all->home, &v->msg);
	scsi_nexus_put(n);
}

static void visit_arrived(struct loop_msg *m)
{
	struct scsi_nexus_visit *v = container_of(m, struct scsi_nexus_visit, msg);
	struct scsi_nexus *n = v->nexus;
	struct scsi_nexus_walk *all = v->all;

	if (n->detached) { /* written on this thread */
		scsi_nexus_visited(v);
		return;
	}
	v->itl = NULL;
	if (all->lu) {
		if (all->lu->lun < n->nitl)
			v->itl = n->itl[all->lu->lun];
		if (!v->itl || v->itl->lu != all->lu) {
			scsi_nexus_visited(v);
			return;
		}
	}
	if (all->fn(v, n, v->itl))
		scsi_nexus_visited(v);
}

static void visits_none(struct loop_msg *m)
{
	visits_home(container_of(m, struct scsi_nexus_walk, msg));
}

int scsi_for_each_nexus(struct scsi_nexus_walk *all)
{
	struct scsi_target *t = all->target;
	struct scsi_nexus *n;
	int ret = 0;

	all->home = loop_current();
	ASSERT(all->home);
	all->left = 1;
	pthread_mutex_lock(&t->lock);
	list_for_each(n, &t->nexuses, link) {
		struct scsi_nexus_visit *v;

		if (n == all->except)
			continue;
		v = calloc(1, sizeof(*v));
		if (!v) {
			ret = -ENOMEM; /* those already sent still report home */
			break;
		}
		v->all = all;
		v->nexus = n;
		v->msg.handle = visit_arrived;
		n->msgs++;
		t->visits++;
		all->left++;
		loop_post(n->loop, &v->msg);
	}
	pthread_mutex_unlock(&t->lock);
	/* The last one home is this, so that done() never runs inside this call. */
	all->msg.handle = visits_none;
	loop_post(all->home, &all->msg);
	return ret;
}
