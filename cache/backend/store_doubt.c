/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See store_doubt.h. */
#include <string.h>
#include "cache/backend/store_doubt.h"
#include "cache/blk/dirty_record.h"
#include "events/log.h"
#include "events/report.h"

bool store_in_doubt(const struct blk *blk, struct blk_req *req)
{
	if (likely(blk->rewrites) || likely(!dirty_record_doubt(blk->record)) ||
	    (req->flags & BLK_F_WHAT_CAN))
		return false;
	req->status = -EIO;
	return true;
}

int store_sync_status(const struct blk *blk, struct store_doubt *d, int status)
{
	if (atomic_exchange(&d->untold, false)) {
		status = status ? status : -EIO;
		if (!blk->rewrites && !atomic_exchange(&d->doubt, true)) {
			log_error(
				"%s: SYNC failed: %s: what was written before it may be LOST. All SYNCs fail until the store is looked after (tgtadm, update with --params refresh=1)",
				blk->path, strerror(-status));
			report_store("doubtful", blk->path,
				     "data may be lost: SYNC fails until refresh=1");
		}
	}
	return !status && d->doubt ? -EIO : status;
}

void store_looked_at(const struct blk *blk, struct store_doubt *d)
{
	if (!blk->rewrites)
		atomic_store(&d->untold, false);
	if (atomic_exchange(&d->doubt, false)) {
		log_notice("%s: looked at again: what may have been lost is taken for known",
			   blk->path);
		report_store("trusted", blk->path, "what may have been lost is known");
	}
}

int store_trust(struct blk *blk)
{
	return blk->record ? dirty_record_trust(blk->record, false) : 0;
}
