/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stores that tell of another size by themselves (rbd): each LU of theirs does what it does for
 * resize=1. A target that is busy is looked at again a second later.
 */
#include "events/bug.h"
#include "events/log.h"
#include "tgtd/admin/admin_int.h"

static struct {
	struct loop_msg msg;
	struct timer again;
	_Atomic bool posted;
} resized;

/* False: it is to be looked at once more. */
static bool resized_lu(struct adm_lu *lu)
{
	struct scsi_lu_info info;
	const struct blk *store;
	uint32_t news;

	scsi_lu_get_info(lu->scsi, &info);
	store = info.conf.blk;
	if (!store)
		return true;
	while (store->lower)
		store = store->lower;
	news = atomic_load(&store->news);
	if (news == lu->size_news)
		return true;
	if (lu->target->busy)
		return false;
	lu->size_news = news;
	if (scsi_lu_resize(lu->scsi))
		log_error("target %u, LUN %u: %s has a size that no unit can have", lu->target->tid,
			  lu->lun, store->path);
	return true;
}

static void resized_look(void)
{
	bool all = true;

	for (struct scsi_target *s = scsi_target_next(NULL); s; s = scsi_target_next(s)) {
		struct adm_target *t = registry_target(scsi_target_tid(s));
		struct adm_lu *lu;

		if (t)
			list_for_each(lu, &t->luns, link)
				all &= resized_lu(lu);
	}
	if (!all)
		loop_timer_arm(adm.conf.main, &resized.again, NSEC_PER_SEC);
}

static void resized_handle(struct loop_msg *msg)
{
	(void)msg;
	atomic_store(&resized.posted, false);
	resized_look();
}

static void resized_again(struct timer *t)
{
	(void)t;
	resized_look();
}

/* On any thread. */
static void resized_hear(void)
{
	if (atomic_exchange(&resized.posted, true))
		return;
	resized.msg.handle = resized_handle;
	loop_post(adm.conf.main, &resized.msg);
}

void resized_start(void)
{
	timer_init(&resized.again, resized_again);
	blk_on_resized(resized_hear);
}

void resized_stop(void)
{
	blk_on_resized(NULL);
	loop_timer_cancel(adm.conf.main, &resized.again);
}
