/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Targets: made, masked, deleted. The list of them is in target_list.c. */
#include <stdlib.h>
#include "tgtd/scsi/carried.h"
#include "tgtd/scsi/lu.h"
#include "tgtd/scsi/tpg.h"

static unsigned ntargets; /* targets_lock */

struct scsi_target *scsi_target_create(uint32_t tid, const char *name)
{
	struct scsi_target *t, *other;
	struct scsi_lu_conf conf;
	int err = 0;

	if (tid == 0 || !name || !name[0]) {
		errno = EINVAL;
		return NULL;
	}
	t = calloc(1, sizeof(*t));
	if (!t || !(t->name = strdup(name))) {
		free(t);
		errno = ENOMEM;
		return NULL;
	}
	t->tid = tid;
	pthread_mutex_init(&t->lock, NULL);
	pthread_mutex_init(&t->tpg_lock, NULL);
	scsi_tpgs_init(&t->tpgs);
	timer_init(&t->transition, scsi_tpg_arrive);
	list_init(&t->nexuses);
	list_init(&t->limits);
	list_init(&t->link);
	scsi_lu_conf_init(&conf);
	conf.lun = 0;
	conf.device_type = 0x0c;

	pthread_mutex_lock(&targets_lock);
	if (ntargets >= SCSI_MAX_TARGETS)
		err = ENOMEM;
	list_for_each(other, &targets, link)
		if (other->tid == tid || strcmp(other->name, name) == 0)
			err = EEXIST;
	if (!err) {
		list_for_each(other, &targets, link)
			if (other->tid > tid)
				break;
		/* Before the first greater one, or at the end. */
		list_add_tail(&other->link, &t->link);
		ntargets++;
	}
	pthread_mutex_unlock(&targets_lock);
	if (!err && !scsi_lu_create(t, &conf)) {
		err = errno;
		pthread_mutex_lock(&targets_lock);
		list_del(&t->link);
		ntargets--;
		pthread_mutex_unlock(&targets_lock);
	}
	if (err) {
		pthread_mutex_destroy(&t->lock);
		pthread_mutex_destroy(&t->tpg_lock);
		free(t->lu);
		free(t->name);
		free(t);
		errno = err;
		return NULL;
	}
	return t;
}

uint32_t scsi_target_tid(const struct scsi_target *t)
{
	return t->tid;
}

const char *scsi_target_name(const struct scsi_target *t)
{
	return t->name;
}

unsigned scsi_target_nexus_count(const struct scsi_target *t)
{
	struct scsi_target *m = (struct scsi_target *)(uintptr_t)t;
	unsigned n;

	pthread_mutex_lock(&m->lock);
	n = t->nnexus;
	pthread_mutex_unlock(&m->lock);
	return n;
}

void scsi_target_each_nexus(struct scsi_target *t, void (*fn)(struct scsi_nexus *n, void *arg),
			    void *arg)
{
	struct scsi_nexus *n;

	pthread_mutex_lock(&t->lock);
	list_for_each(n, &t->nexuses, link)
		fn(n, arg);
	pthread_mutex_unlock(&t->lock);
}

bool scsi_target_offline(const struct scsi_target *t)
{
	return t->offline;
}

void scsi_target_set_offline(struct scsi_target *t, bool offline)
{
	t->offline = offline;
}

/* ---- masking --------------------------------------------------------------------------------- */

static void mask_aborted(void *arg)
{
	(void)arg;
}

static void mask_left(struct scsi_itl *itl)
{
	scsi_itl_free(itl);
}

/* The nexus loses what it may no longer see; what it may see now it finds on first use. */
static bool remask(struct scsi_nexus_visit *v, struct scsi_nexus *n, struct scsi_itl *unused)
{
	struct scsi_target *t = n->target;

	const char *iqn = v->all->arg;

	(void)unused;
	if (iqn && strcmp(iqn, n->iqn) != 0)
		return true;
	for (uint32_t i = 0; i < n->nitl; i++) {
		struct scsi_itl *itl = n->itl[i];
		bool sees;

		if (!itl)
			continue;
		pthread_mutex_lock(&t->lock);
		sees = scsi_target_sees(t, n, i);
		pthread_mutex_unlock(&t->lock);
		if (sees)
			continue;
		scsi_itl_forget(itl);
		if (itl->inflight == 0 && list_empty(&itl->held)) {
			scsi_itl_free(itl);
			continue;
		}
		itl->quiet = mask_left;
		n->ops->abort_all(n, itl->lu, false, mask_aborted, NULL);
	}
	scsi_carried_luns_changed(n);
	return true;
}

static void remasked(struct scsi_nexus_walk *all)
{
	free(all->arg);
	free(all);
}

void scsi_target_set_mask(struct scsi_target *t, const char *iqn,
			  bool (*visible)(struct scsi_target *t, uint32_t lun, const char *iqn,
					  const char *address, void *arg),
			  void *arg)
{
	struct scsi_nexus_walk *all;

	pthread_mutex_lock(&t->lock);
	t->visible = visible;
	t->visible_arg = arg;
	pthread_mutex_unlock(&t->lock);
	if (!loop_current() || scsi_target_nexus_count(t) == 0)
		return;
	all = calloc(1, sizeof(*all));
	if (!all || (iqn && !(all->arg = strdup(iqn)))) {
		free(all);
		log_error("scsi: out of memory, sessions of target %u keep the LUNs they see",
			  t->tid);
		return;
	}
	all->target = t;
	all->fn = remask;
	all->done = remasked;
	(void)!scsi_for_each_nexus(all);
}

/* ---- who may log in, for copies into other targets ------------------------------------------- */

static struct {
	struct loop *main;
	bool (*may_log_in)(struct scsi_target *t, const struct scsi_nexus *n);
} access_rules;

void scsi_set_access(struct loop *main,
		     bool (*may_log_in)(struct scsi_target *t, const struct scsi_nexus *n))
{
	access_rules.main = main;
	access_rules.may_log_in = may_log_in;
}

struct loop *scsi_access_loop(void)
{
	return access_rules.may_log_in ? access_rules.main : NULL;
}

bool scsi_may_log_in(struct scsi_target *t, const struct scsi_nexus *n)
{
	return access_rules.may_log_in(t, n);
}

/* ---- delete ---------------------------------------------------------------------------------- */

static void target_free(struct scsi_target *t)
{
	void (*done)(void *, int) = t->deleted;
	void *arg = t->deleted_arg;

	pthread_mutex_lock(&targets_lock);
	list_del(&t->link);
	ntargets--;
	pthread_mutex_unlock(&targets_lock);
	ASSERT(t->nnexus == 0);
	scsi_tpg_stay(t);
	scsi_limit_free_all(t);
	pthread_mutex_destroy(&t->lock);
	pthread_mutex_destroy(&t->tpg_lock);
	free(t->lu);
	free(t->name);
	free(t);
	done(arg, 0);
}

static void next_lu(void *arg, int status)
{
	struct scsi_target *t = arg;
	struct scsi_lu *lu = scsi_lu_next(t, NULL);

	(void)status;
	if (lu)
		scsi_lu_delete(lu, true, next_lu, t);
	else
		target_free(t);
}

static void emptied_home(struct loop_msg *m)
{
	next_lu(container_of(m, struct scsi_target, empty_msg), 0);
}

static void emptied(struct scsi_target *t)
{
	t->empty_msg.handle = emptied_home;
	loop_post(t->main, &t->empty_msg);
}

static bool target_drop(struct scsi_nexus_visit *v, struct scsi_nexus *n, struct scsi_itl *unused)
{
	(void)v;
	(void)unused;
	n->ops->drop(n);
	return true;
}

static void dropped(struct scsi_nexus_walk *all)
{
	free(all);
}

int scsi_target_close(struct scsi_target *t, bool force)
{
	struct scsi_nexus_walk *all;
	bool busy;

	if (t->dying)
		return -EBUSY;
	all = calloc(1, sizeof(*all));
	if (!all)
		return -ENOMEM;
	pthread_mutex_lock(&t->lock);
	/* Sessions join on other threads: whether there is one is known here only. */
	busy = t->nnexus > 0 && !force;
	t->dying = !busy;
	pthread_mutex_unlock(&t->lock);
	if (busy) {
		free(all);
		return -EBUSY;
	}
	t->drops = all;
	return 0;
}

void scsi_target_delete(struct scsi_target *t, bool force, void (*done)(void *arg, int status),
			void *arg)
{
	int err = t->drops ? 0 : scsi_target_close(t, force);
	struct scsi_nexus_walk *all = t->drops;
	bool waits;

	if (err) {
		done(arg, err);
		return;
	}
	t->drops = NULL;
	pthread_mutex_lock(&t->lock);
	t->main = loop_current();
	t->deleted = done;
	t->deleted_arg = arg;
	waits = t->nnexus > 0 || t->visits > 0;
	t->emptied = waits ? emptied : NULL;
	pthread_mutex_unlock(&t->lock);
	if (!waits) {
		free(all);
		next_lu(t, 0);
		return;
	}
	all->target = t;
	all->fn = target_drop;
	all->done = dropped;
	if (scsi_for_each_nexus(all) < 0)
		log_error("scsi: out of memory while deleting target %u", t->tid);
}
