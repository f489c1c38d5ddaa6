/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A snapshot of a store is made by somebody else (rbd snap create), who waits until what has been
 * acknowledged here is in the store: each LU of it writes what is dirty. Writes go on meanwhile, as
 * a snapshot has of them what it has. A store that is closed before it was looked at answers by
 * itself, that there is no snapshot.
 */
#include <stdlib.h>
#include "events/log.h"
#include "tgtd/admin/admin_int.h"

static struct {
	struct loop_msg msg;
	_Atomic bool posted;
} quiesced;

static void quiesced_flushed(void *arg, int status)
{
	struct blk *store = arg;

	if (status)
		log_error("%s: not all that was acknowledged is in the snapshot: %s", store->path,
			  strerror(-status));
	store->ops->quiesced(store, status);
}

static void quiesced_lu(struct adm_lu *lu)
{
	struct scsi_lu_info info;
	struct blk *store;

	scsi_lu_get_info(lu->scsi, &info);
	store = info.conf.blk;
	while (store && store->lower)
		store = store->lower;
	if (!store || !blk_quiesce_take(store))
		return;
	log_info("%s: a snapshot is about to be made: what is dirty is written", store->path);
	scsi_lu_flush(lu->scsi, quiesced_flushed, store);
}

static void quiesced_handle(struct loop_msg *msg)
{
	(void)msg;
	atomic_store(&quiesced.posted, false);
	for (struct scsi_target *s = scsi_target_next(NULL); s; s = scsi_target_next(s)) {
		struct adm_target *t = registry_target(scsi_target_tid(s));
		struct adm_lu *lu;

		if (t)
			list_for_each(lu, &t->luns, link)
				quiesced_lu(lu);
	}
}

/* On any thread. */
static void quiesced_hear(void)
{
	if (atomic_exchange(&quiesced.posted, true))
		return;
	quiesced.msg.handle = quiesced_handle;
	loop_post(adm.conf.main, &quiesced.msg);
}

void quiesced_start(void)
{
	blk_on_quiesce(quiesced_hear);
}

void quiesced_stop(void)
{
	blk_on_quiesce(NULL);
}
