/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the gateways of a group answer alike (target.h): a command that asks the group, and nexuses
 * that obey a new state. Private to tgtd/scsi.
 */
#ifndef TGTD_SCSI_SHARED_H
#define TGTD_SCSI_SHARED_H

#include "tgtd/scsi/lu.h"

/*
 * A question of a command to the group. While it waits, the command counts in itl->asks: who waits
 * for commands that were admitted does not wait for it. An abort ends the command at once. What it
 * has asked for may then be done, or not.
 */
struct scsi_ask {
	/* Set by who makes it; the rest is 0. */
	bool looks; /* not a change */
	/* A change, as gateway.h has it: computes @to from @from. May come several times; main
	 * loop. What it is answered by is the last one's. */
	enum scsi_change (*change)(struct scsi_ask *a, const uint8_t *from, size_t from_len,
				   uint8_t *to, size_t *to_len);
	/* A look: what it has found; main loop. 0 or -errno, the result. */
	int (*seen)(struct scsi_ask *a, const uint8_t *bytes, size_t len);
	void (*free)(struct scsi_ask *a); /* any thread */
	int error;  /* of change(): there is none for it: -errno */
	int result; /* in the resume(): 0 or -errno */
	/* Its own. */
	struct loop_msg msg, cancel_msg;
	_Atomic unsigned refs;
	bool over; /* main loop */
	struct scsi_lu *lu;
	struct scsi_nexus *nexus;
	struct scsi_cmd *cmd; /* NULL: aborted; nexus->loop */
};
/* Asks. cmd->priv is @a until the command has ended. Then resume(cmd), unless it is aborted. nexus
 * loop. */
void scsi_ask_begin(struct scsi_cmd *cmd, struct scsi_ask *a,
		    void (*resume)(struct scsi_cmd *cmd));
/* So many of an I_T_L nexus wait at most; more are BUSY. */
#define SCSI_ASKS_MAX 16u
/* In resume(), with a->result: ends the command. */
void scsi_ask_failed(struct scsi_cmd *cmd, int result);
#endif
