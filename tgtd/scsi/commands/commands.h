/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the command files offer each other, their table (opcodes.c), and the features' rows
 * (features.c). Private to tgtd/scsi/commands, but for scsi_commands_init().
 */
#ifndef TGTD_SCSI_COMMANDS_COMMANDS_H
#define TGTD_SCSI_COMMANDS_COMMANDS_H

#include "tgtd/scsi/carried.h"
#include "tgtd/scsi/lu.h"
#include "tgtd/scsi/commands/init.h"

/* ---- sbc.c ----------------------------------------------------------------------------------- */
/* LBA and length of a 10, 12 or 16 byte CDB of the READ/WRITE shape. */
void scsi_cdb_range(const uint8_t *cdb, uint64_t *lba, uint64_t *nblocks);

/* ---- inquiry.c ------------------------------------------------------------------------------- */
/* The LU's own designators (VPD 83h, XCOPY); returns the end. At most 128 bytes. */
uint8_t *scsi_lu_designators(const struct scsi_lu *lu, uint8_t *p);


/* ---- mode pages (mode.c, mode_pages.c, mode_file.c) ------------------------------------------ */
int scsi_mode_init(struct scsi_lu *lu);
void scsi_mode_free(struct scsi_lu *lu);
bool scsi_mode_reset_locked(struct scsi_lu *lu);
void scsi_mode_record_locked(const struct scsi_lu *lu, FILE *f);
uint32_t scsi_inquiry_facts_locked(const struct scsi_lu *lu); /* feature.h */
bool scsi_mode_restore_locked(struct scsi_lu *lu, char *lines);
int scsi_mode_page_update(struct scsi_lu *lu, const char *text);
int scsi_mode_page_check(const char *text);
/* What MODE SELECT with SP = 1 saved. Load when the LU is made: into lu->mode_saved. Write on a
 * helper thread: 0 or -errno. */
void scsi_mode_load(struct scsi_lu *lu);
int scsi_mode_write(const struct scsi_lu *lu, const struct scsi_mode *m);
/* A whole page with the values of @m into @p (64 bytes), and what of it can be changed back out
 * of it. 0: no such page here. */
size_t scsi_mode_page(const struct scsi_lu *lu, const struct scsi_mode *m, uint8_t code,
		      uint8_t *p);
void scsi_mode_apply(struct scsi_mode *m, uint8_t code, uint8_t sub, const uint8_t *p);

/* ---- reservations ---------------------------------------------------------------------------- */
int scsi_pr_init(struct scsi_lu *lu);
void scsi_pr_record_locked(const struct scsi_lu *lu, FILE *f);
bool scsi_pr_restore_locked(struct scsi_lu *lu, char *lines);
void scsi_pr_free(struct scsi_lu *lu);
int scsi_pr_set_shared(struct scsi_lu *lu, const uint8_t *bytes, size_t len);
void scsi_pr_attach_locked(struct scsi_itl *itl);
/* RESERVE and RELEASE of SPC-2 beside persistent reservations (SPC-4 5.12.3, CRH = 1): +1 GOOD
 * without effect, -1 conflict, 0 nothing of ours. lu->lock held. */
int scsi_pr_spc2_locked(const struct scsi_itl *itl);
/* Sets or clears GATE_RESERVED, GATE_DENY_* on every I_T_L nexus. */
void scsi_lu_reservations_changed_locked(struct scsi_lu *lu);
void scsi_reserve_lost_locked(struct scsi_itl *itl);
bool scsi_reserve_holds_locked(const struct scsi_itl *itl);
void scsi_reserve_hold_locked(struct scsi_itl *itl);
bool scsi_reserve_reset_locked(struct scsi_lu *lu);
void scsi_prevent_lost_locked(struct scsi_itl *itl);
bool scsi_prevent_holds_locked(const struct scsi_itl *itl);
void scsi_prevent_hold_locked(struct scsi_itl *itl);
bool scsi_prevent_reset_locked(struct scsi_lu *lu);

/* ---- access states --------------------------------------------------------------------------- */
bool scsi_alua_pass(struct scsi_cmd *cmd);
/* Why the port by which @itl came takes no ordinary commands, as additional sense; 0: it does. */
uint16_t scsi_alua_not_ready(const struct scsi_itl *itl);

/* ---- SANITIZE, FORMAT UNIT ------------------------------------------------------------------- */
bool scsi_sanitize_pass(struct scsi_cmd *cmd);
/* GATE_SANITIZE, and a command or pin of @itl has ended. */
void scsi_sanitize_ended(struct scsi_itl *itl);
/* 0..65535, and the additional sense that says of what; -1: nothing is running. */
int scsi_sanitize_progress(struct scsi_lu *lu, uint16_t *asc);
/* Formats the unit: it reads as zeros then. Ends @cmd, with @immed at once. */
void scsi_format(struct scsi_cmd *cmd, bool immed);
bool scsi_sanitize_running_locked(const struct scsi_lu *lu);
/* Stops it and posts @msg to @home when it has ended; false: none was running. */
bool scsi_sanitize_wait(struct scsi_lu *lu, struct loop_msg *msg, struct loop *home);
void scsi_sanitize_free(struct scsi_lu *lu);
/* One that was under way when the process before ended has failed. */
void scsi_sanitize_record_locked(const struct scsi_lu *lu, FILE *f);
bool scsi_sanitize_restore_locked(struct scsi_lu *lu, char *lines);

/* ---- provisioning (thin.c) ------------------------------------------------------------------- */
struct scsi_space {
	uint64_t left, used; /* blocks */
	bool shared;	     /* others may take of what is left */
	bool want_used;	     /* set before: that takes a walk over the store */
	int err;
};
/* How it stands with @blk, a store of @lu's. A helper thread. */
void scsi_thin_look(const struct scsi_lu *lu, struct blk *blk, struct scsi_space *s);
int scsi_thin_init(struct scsi_lu *lu);
bool scsi_thin_wait(struct scsi_lu *lu, struct loop_msg *msg, struct loop *home);
void scsi_thin_free(struct scsi_lu *lu);

/* ---- ROD tokens and copies ------------------------------------------------------------------- */
/* ROD tokens of blocks that are about to change are revoked. Any thread. */
void scsi_tokens_written(struct scsi_lu *lu, uint64_t offset, uint64_t len);
void scsi_tokens_invalidate(struct scsi_cmd *cmd);
void scsi_tokens_drop_locked(struct scsi_lu *lu);
void scsi_tokens_free(struct scsi_lu *lu);
void scsi_copies_free(struct scsi_lu *lu);
size_t scsi_vpd_8f(const struct scsi_cmd *cmd, uint8_t *b);

/* ---- the tables ------------------------------------------------------------------------------ */
extern const struct scsi_feature scsi_features[];
extern const unsigned scsi_nfeatures;

/* Handlers, in the order of opcodes.c. */
#define SCSI_HANDLERS(X) \
	X(op_test_unit_ready) X(op_request_sense) X(op_format_unit) X(op_inquiry) \
	X(op_report_luns) X(op_start_stop) X(op_prevent_allow) X(op_mode_sense) X(op_mode_select) \
	X(op_read_capacity10) X(op_read_capacity16) X(op_read6) X(op_read10) X(op_read12) \
	X(op_read16) X(op_write6) X(op_write10) X(op_write12) X(op_write16) X(op_write_atomic16) \
	X(op_sync_cache) X(op_prefetch) X(op_verify) X(op_write_verify) X(op_caw) X(op_orwrite) \
	X(op_write_same10) X(op_write_same16) X(op_unmap) X(op_get_lba_status) \
	X(op_read_defect10) X(op_read_defect12) X(op_report_opcodes) X(op_report_tmfs) \
	X(op_report_timestamp) X(op_set_timestamp) X(op_send_diagnostic) X(op_reserve) \
	X(op_release) X(op_pr_out) X(op_pr_read_keys) X(op_pr_read_reservation) \
	X(op_pr_report_capabilities) X(op_pr_read_full_status) X(op_extended_copy) \
	X(op_copy_abort) X(op_copy_status_lid1) X(op_copy_failed_details) X(op_copy_status_lid4) \
	X(op_rod_token_information) X(op_copy_parameters) X(op_populate_token) \
	X(op_write_using_token) X(op_sanitize) X(op_log_sense) X(op_report_tpgs) X(op_set_tpgs)
#define X(name) void name(struct scsi_cmd *cmd);
SCSI_HANDLERS(X)
#undef X

#endif
