/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Limits: how many commands a second a logical unit, or an initiator on a target, may have begun,
 * and how many bytes they may move. A command that is beyond a limit waits before anything is done
 * for it: it has no blocks, and its data has not been asked for.
 *
 * What counts: each command that reads or writes the medium is one operation. READ, WRITE and their
 * relatives, VERIFY, PRE-FETCH and WRITE SAME count the bytes that they name. UNMAP, FORMAT UNIT,
 * SANITIZE and copies count as one operation without bytes (sanitize_rate is for two of them). All
 * others, SYNCHRONIZE CACHE among them, neither count nor wait.
 *
 * A rate is a bucket of tokens, kept as the moment when it is empty (the virtual scheduling
 * algorithm, ITU-T I.371 annex A). So taking from it is one compare-and-swap by any thread, nothing
 * fills it, and it is exact over all event threads and sessions. A bucket holds what its rate lets
 * pass in a burst. A command that is larger than that begins when the bucket is full, and leaves a
 * debt. Event threads that are late because others have the processors cost nobody anything:
 * commands that waited meanwhile catch up, by at most a second. So do the next ones of an I_T_L
 * nexus whose last ones began late, if they come soon: few commands at a time get the rate, too.
 *
 * Commands of an I_T_L nexus wait in their order; HEAD OF QUEUE ones go before the others. Those
 * at the head have a turn: their tokens are taken already, and a moment is fixed at which they
 * begin. Nobody has two turns. So nexuses take turns, whatever threads they live on, and however
 * many commands each sends. A turn is of some commands, if need be as long as the largest command
 * that anybody sends, so that many small commands get as many bytes as few large ones. Commands
 * that come before it begins still join it, on credit.
 *
 * A waiting command is under way for everything else: an ORDERED one waits for it, an abort ends
 * it, deleting its unit waits for it. But when a store is replaced, it waits with all others for
 * the new one.
 */
#ifndef TGTD_SCSI_LIMIT_H
#define TGTD_SCSI_LIMIT_H

#include "events/list.h"
#include "events/timer.h"
#include "tgtd/scsi/target.h"

struct scsi_itl;

/* Time is in sixteenths of a nanosecond, so that what a command costs is not rounded much. */
struct scsi_bucket {
	_Atomic uint64_t rate;	/* a second; 0: no limit */
	_Atomic uint64_t burst; /* what it holds, as time */
	_Atomic uint64_t empty; /* when it is, or was; what was borrowed lies in the future */
};

enum { SCSI_LIMIT_OPS, SCSI_LIMIT_BYTES, SCSI_LIMIT_UNITS };

/* Of a logical unit, or of an initiator on a target. Any thread. */
struct scsi_limit {
	struct scsi_bucket bucket[SCSI_LIMIT_UNITS][SCSI_LIMIT_DIRS];
	_Atomic uint64_t longest;    /* what the largest command lately cost, as time */
	_Atomic uint32_t generation; /* of its rates: what was taken by others is not given back */
};

/* Commands of an I_T_L nexus that wait for a limit; nexus->loop. */
struct scsi_limit_wait {
	struct list cmds;   /* scsi_cmd.link; those with a turn first */
	struct timer timer; /* when that turn comes */
	uint64_t begin;	    /* the same, as buckets count time */
	uint64_t time, length; /* the turn: what its commands cost, and how long it may be */
	uint64_t late;	    /* who came away late and is back by then may catch up */
	bool used;	    /* the command that begins has passed */
	uint32_t generation[2]; /* of the limits that its tokens were taken from */
};

/* The rates from now on. Debts are forgiven, and buckets are empty. Main thread. */
void scsi_limit_set(struct scsi_limit *limit, const struct scsi_limit_conf *conf);
/* An I_T_L nexus comes into being; or it goes: nothing waits any more. */
void scsi_limit_join(struct scsi_itl *itl);
void scsi_limit_part(struct scsi_itl *itl);
/* GATE_LIMIT is set, and nothing else is in the way. True: @cmd goes on. False: it waits, and
 * begins anew by its ->resume. nexus->loop. */
bool scsi_limit_pass(struct scsi_cmd *cmd);
/* @cmd waits (CMD_LIMITED), and shall no longer: it was aborted. nexus->loop. */
void scsi_limit_leave(struct scsi_cmd *cmd);
/* The store is being replaced: commands that wait here wait for that (scsi_hold()). nexus->loop. */
void scsi_limit_park(struct scsi_itl *itl);
/* Its limits are other ones now. nexus->loop. */
void scsi_limit_again(struct scsi_itl *itl);
/* Tokens that were taken for commands of @itl go back; scsi_limit_again() takes others. */
void scsi_limit_cancel(struct scsi_itl *itl);

/* ---- limits of initiators -------------------------------------------------------------------- */
struct scsi_initiator_limit {
	struct list link; /* scsi_target.limits; target->lock */
	struct scsi_limit limit;
	struct scsi_limit_conf conf;
	char iqn[];
};
/* NULL: it has none. */
struct scsi_initiator_limit *scsi_limit_find_locked(struct scsi_target *t, const char *iqn);
/* Those that the target of @n has for its initiator hold for it. nexus->loop, target->lock. */
void scsi_limit_attach_locked(struct scsi_nexus *n);
/* At the end of a target, when nobody knows it any more. */
void scsi_limit_free_all(struct scsi_target *t);

/* ---- limit_set.c ----------------------------------------------------------------------------- */
/* What @lu->conf says is to hold, also for commands that wait. Main thread. */
void scsi_limit_lu(struct scsi_lu *lu);

#endif
