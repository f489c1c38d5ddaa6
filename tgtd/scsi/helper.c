/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Threads for what may block: opening and closing stores, extent maps, reservation files. What is
 * about one store, or one logical unit, is done in order; a store that hangs holds up nobody else.
 */
#include "tgtd/scsi/lu.h"

#define LANES 256 /* keys that fall together wait for each other, but for key 0 */

static struct offload_lane lane[LANES];

uint64_t scsi_work_key(const char *path)
{
	return path ? blk_identity(path) : 0;
}

static void work_run(struct offload_job *job)
{
	struct scsi_work *w = container_of(job, struct scsi_work, job);

	w->work(w);
}

static void work_over(struct offload_job *job)
{
	struct scsi_work *w = container_of(job, struct scsi_work, job);

	w->done(w);
}

/* What stands in for a store that hangs must not wait for that: no path has a lane of its own. */
static unsigned lane_of(uint64_t key)
{
	const uint64_t hash = key * 0x9e3779b97f4a7c15ull >> 32;

	return key ? 1 + (unsigned)(hash * (LANES - 1) >> 32) : 0;
}

void scsi_helper_run(struct scsi_work *w)
{
	ASSERT(w->home);
	offload_submit_serial(&lane[lane_of(w->key)], &w->job, w->home, work_run, work_over);
}
