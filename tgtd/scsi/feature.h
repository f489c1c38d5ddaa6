/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a SCSI feature adds to the machine. A feature is state of a logical unit or of an I_T_L
 * nexus that some commands work with (mode pages, persistent reservations, SANITIZE ...). The
 * machine knows none of them by name. It walks the rows that tgtd/scsi/commands registers, and
 * calls the hooks that a row has, in the order of the rows.
 */
#ifndef TGTD_SCSI_FEATURE_H
#define TGTD_SCSI_FEATURE_H

#include <stdio.h>
#include "tgtd/scsi/cmd.h"

struct scsi_feature {
	const char *name;
	/* ---- a logical unit's life; main loop ---- */
	/* It is being made, nobody knows it yet; may block. 0 or -errno: it is not made then. */
	int (*init)(struct scsi_lu *lu);
	/* It goes, nobody knows it any more; also after an ->init that failed or never ran. */
	void (*free)(struct scsi_lu *lu);
	/* It is to go: work of its own ends soon. True: @msg will be posted to @home then. */
	bool (*wait)(struct scsi_lu *lu, struct loop_msg *msg, struct loop *home);
	/* Work of its own needs the store that there is: no other one now. lu->lock. */
	bool (*busy_locked)(const struct scsi_lu *lu);
	/* Another store has come in place of the old one. lu->lock. */
	void (*new_store_locked)(struct scsi_lu *lu);
	/* ---- an I_T_L nexus' life; its loop, lu->lock ---- */
	void (*attach_locked)(struct scsi_itl *itl);
	void (*lost_locked)(struct scsi_itl *itl); /* I_T nexus loss (SAM-5 6.3.4) */
	/* Logical unit reset (SAM-5 6.3.3), after all commands were aborted; lu->lock. True: what
	 * is cached is to be written. */
	bool (*reset_locked)(struct scsi_lu *lu);
	/* ---- the state journal; lu->lock ---- */
	/* Lines for the process after this one, each with a newline; none begins with "feature". */
	void (*record_locked)(const struct scsi_lu *lu, FILE *f);
	/* The way back, main loop, before there are nexuses; @lines may be cut. False: not what
	 * ->record_locked writes; what was understood holds. */
	bool (*restore_locked)(struct scsi_lu *lu, char *lines);
	/* What the gateways of a group share of it is now @bytes, as one of them wrote them; of
	 * none: as of a new unit. 0, -EBADMSG: not understood, nothing has changed; -ENOMEM. Main
	 * loop, without the lock. */
	int (*set_shared)(struct scsi_lu *lu, const uint8_t *bytes, size_t len);
	/* ---- an I_T_L nexus that goes on in the next process (carried.h); lu->lock ---- */
	uint32_t carried; /* SCSI_CARRIED_* */
	bool (*holds_locked)(const struct scsi_itl *itl); /* it has what is to be carried over */
	void (*hold_locked)(struct scsi_itl *itl); /* it has it again, unless another one has */
	/* A number that says something else when what initiators are told of @lu by INQUIRY does.
	 * Another version of this program may have another one. lu->lock. */
	uint32_t (*facts_locked)(const struct scsi_lu *lu);
	/* ---- commands; nexus->loop. For those whose GATE_* bit is set ---- */
	uint32_t gate;
	/* The bit is in the way: true: go on, false: answered. */
	bool (*pass)(struct scsi_cmd *cmd);
	/* Nothing was in the way, the command runs next. */
	void (*passed)(struct scsi_cmd *cmd);
	/* A command or pin has ended. */
	void (*ended)(struct scsi_itl *itl);
	/* ---- a setting of `tgtadm --op update` ---- */
	const char *key;
	int (*check)(const char *value); /* 0 or -EINVAL; any thread */
	int (*update)(struct scsi_lu *lu, const char *value); /* 0 or -errno; main loop */
};

/* @n rows, which stay where they are. Main thread, before the first target is made. */
void scsi_features_register(const struct scsi_feature *rows, unsigned n);

/* Each calls the hook of that name in all rows that have it. */
int scsi_features_init(struct scsi_lu *lu) must_check; /* stops at the first that fails */
void scsi_features_free(struct scsi_lu *lu);
/* Stops at the first that waits; the others are asked when that is over. */
bool scsi_features_wait(struct scsi_lu *lu, struct loop_msg *msg, struct loop *home);
bool scsi_features_busy_locked(const struct scsi_lu *lu);
void scsi_features_new_store_locked(struct scsi_lu *lu);
void scsi_features_attach_locked(struct scsi_itl *itl);
void scsi_features_lost_locked(struct scsi_itl *itl);
bool scsi_features_reset_locked(struct scsi_lu *lu);
void scsi_features_record_locked(const struct scsi_lu *lu, FILE *f);
/* Of the one that has it. */
int scsi_features_set_shared(struct scsi_lu *lu, const uint8_t *bytes, size_t len) must_check;
/* Of the one called @name; false also when there is none. */
bool scsi_features_restore_locked(struct scsi_lu *lu, const char *name, char *lines);
/* @bits: those that are set; rows of other bits are left out. */
bool scsi_features_pass(struct scsi_cmd *cmd, uint32_t bits); /* stops at the first that answers */
void scsi_features_passed(struct scsi_cmd *cmd, uint32_t bits);
void scsi_features_ended(struct scsi_itl *itl, uint32_t bits);
uint32_t scsi_features_holds_locked(const struct scsi_itl *itl); /* SCSI_CARRIED_* */
void scsi_features_hold_locked(struct scsi_itl *itl, uint32_t bits);
uint32_t scsi_features_facts_locked(const struct scsi_lu *lu); /* of all of them */
/* The row of this setting; NULL: none has it. */
const struct scsi_feature *scsi_feature_of(const char *key);

#endif
