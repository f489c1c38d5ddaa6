/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Measuring what latency.h shows. All on the loop of the nexus.
 *
 * Nearly all commands of a busy session are received together, found in memory, and answered by one
 * call: a *batch*. They took the same time, and it was spent in the same way. So nobody reads a
 * clock for one of them. The transport reads it twice a batch, before and after the call that sends
 * it, and says so by scsi_batch_begin() and scsi_batch_end(). A command that ends in between, and
 * has the batch's birth, only adds one to a number of its I_T_L nexus.
 *
 * Every other command is timed by itself: from scsi_cmd_part() on, which is called where a command
 * has to wait for something. That costs a look at the clock, where a disk or a network costs more.
 * Its birth has CMD_TIMED set, so it is no batch's.
 */
#ifndef TGTD_SCSI_TIMING_H
#define TGTD_SCSI_TIMING_H

#include "tgtd/scsi/cmd.h"

#define CMD_TIMED (1ull << 63)

/* 0 in VARIANT=unmeasured, which exists to tell what measuring costs (tests/bench/README.md). */
#ifdef TGT_UNMEASURED
enum { SCSI_MEASURED = 0 };
#else
enum { SCSI_MEASURED = 1 };
#endif

/* The batch whose answers are just being given back, by thread. */
struct scsi_batch {
	uint64_t born;	   /* BATCH_NONE: there is none */
	uint64_t rx_begin; /* when its connection was looked at: before that, its thread was busy */
	uint64_t rx_end, tx_begin, now;
};
#define BATCH_NONE 1 /* nobody is born then */
extern __thread struct scsi_batch scsi_batch_;

/* ---- the transport --------------------------------------------------------------------------- */
/* Commands are received from now on, which were there at @born (scsi_cmd.born_ns). */
static inline void scsi_rx_begin(uint64_t now)
{
	scsi_batch_.rx_begin = now;
}
/*
 * Commands born at @born are being given back: received from @rx_begin to @rx_end (0: until they
 * were sent), sent from @tx_begin to @now. What comes out of order is put right: a batch that the
 * socket did not take at once has waited for the wire ever since.
 */
void scsi_batch_begin(uint64_t born, uint64_t rx_begin, uint64_t rx_end, uint64_t tx_begin,
		      uint64_t now);
/* They are, all of @nexus (NULL: there were none). */
void scsi_batch_end(struct scsi_nexus *nexus);
/* @cmd has been answered, but will end later. */
void scsi_cmd_answered(struct scsi_cmd *cmd);

/* ---- commands that wait ---------------------------------------------------------------------- */
/* From now on its time is spent in @part. Of LAT_WAITING: scsi_cmd_waits(). */
void scsi_cmd_part(struct scsi_cmd *cmd, enum lat_figure part);
void scsi_cmd_waits(struct scsi_cmd *cmd, enum lat_wait why);
/* Only if it is timed already: it goes on with @part. */
static inline void scsi_cmd_part_on(struct scsi_cmd *cmd, enum lat_figure part)
{
	if (unlikely(cmd->born_ns & CMD_TIMED))
		scsi_cmd_part(cmd, part);
}
/* @req has come back, for which it waited in LAT_STORE, or for whose blocks it waited: what part of
 * it the device has been short of blocks is told apart. The daemon works on it now. */
void scsi_cmd_io_back(struct scsi_cmd *cmd, struct blk_req *req);
/* The end of one that is not of the batch. */
void scsi_cmd_count(struct scsi_cmd *cmd);

/* What latency.h calls it. Pure. */
enum lat_class scsi_cmd_class(const struct scsi_cmd *cmd);

#endif
