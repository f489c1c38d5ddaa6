/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How long a logical unit was busy, and with what (log page 19h). Time is what each loop reads once
 * an iteration: no command reads a clock. See lu_perf.c.
 */
#ifndef TGTD_SCSI_LU_PERF_H
#define TGTD_SCSI_LU_PERF_H

#include "events/base.h"
#include "events/list.h"

struct lat_shard;
struct scsi_clock;
struct scsi_itl;
struct scsi_lu;

/* Time by figure; nanoseconds. */
struct lu_perf_times {
	uint64_t rd, wr; /* summed over reads, and over writes */
	uint64_t busy;	 /* with any command */
};

/* A logical unit as one loop sees it: all I_T_L nexuses whose commands run there. */
struct lu_perf {
	struct list link;	 /* lu->loads; lu->lock */
	struct scsi_clock *clock;
	unsigned users;		 /* I_T_L nexuses; loop and lu->lock */
	/* The loop's, which others may read (seq). */
	uint32_t seq;		 /* odd while it writes */
	uint32_t rd_out, wr_out, cmds; /* under way since ->since */
	uint64_t since;
	struct lu_perf_times sum; /* until ->since */
	/* The loop's: this iteration. */
	struct list itls;	 /* scsi_itl.load_link, those touched */
	struct list clock_link;	 /* clock->loads, while there are any */
	uint64_t rd_ended, wr_ended;
	struct lat_shard *lat;	 /* latency.h */
} cacheline_aligned;

/* Figures of an I_T_L nexus that nobody but the load needs. */
struct itl_perf {
	struct lu_perf *of;
	struct list link;	 /* of->itls */
	uint64_t rd_errs, wr_errs; /* of those in rd_subm_cmds, wr_subm_cmds:
				    * ended without being done */
	uint64_t rd_ended, wr_ended; /* when touched */
	uint32_t rd_out, wr_out, cmds; /* as counted in ->of */
};

/* @itl comes into being, or goes; lu->lock is held, nexus->loop. False: out of memory.
 * @spare: one that it may take, and then *@spare is NULL: nothing of that size is allocated under
 * the lock. */
bool lu_perf_join_locked(struct scsi_itl *itl, struct lat_shard **spare) must_check;
void lu_perf_leave_locked(struct scsi_itl *itl);
/* itl->st is that of a process before, where nothing is under way any more: what was not done has
 * failed, and is not of this one's load. nexus->loop. */
void lu_perf_carried(struct scsi_itl *itl);
/* GATE_CLOCK, and some figure of @itl is about to change: takes it away, for the rest of
 * the iteration. nexus->loop. */
void scsi_itl_touch(struct scsi_itl *itl);
/* Until @now, of all loops; any thread. @idle: nanoseconds without any command since the logical
 * unit was made. Where several loops had commands of it at the same time, busy time counts for each
 * of them. So @idle may be less than the truth, by at most the overlap. It never goes back. */
void scsi_lu_get_perf(struct scsi_lu *lu, uint64_t now, struct lu_perf_times *out, uint64_t *idle);

#endif
