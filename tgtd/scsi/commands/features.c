/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The features' rows, which the machine walks (feature.h). Their order matters in these places:
 *
 *   init   mode pages before reservations: a file of reservations that cannot be read refuses
 *          the unit, and nothing may be left to do then but to free
 *   pass   SANITIZE before the access state: that it is in progress is what everybody hears
 *   reset  in any order: nobody is told before all have happened
 */
#include "tgtd/scsi/carried.h"
#include "tgtd/scsi/commands/commands.h"
#include "tgtd/scsi/tpg.h"

const struct scsi_feature scsi_features[] = {
	{ .name = "mode pages",
	  .init = scsi_mode_init,
	  .free = scsi_mode_free,
	  .reset_locked = scsi_mode_reset_locked,
	  .record_locked = scsi_mode_record_locked,
	  .restore_locked = scsi_mode_restore_locked,
	  .key = "mode_page",
	  .check = scsi_mode_page_check,
	  .update = scsi_mode_page_update },
	{ .name = "persistent reservations",
	  .init = scsi_pr_init,
	  .free = scsi_pr_free,
	  .attach_locked = scsi_pr_attach_locked,
	  .set_shared = scsi_pr_set_shared,
	  .record_locked = scsi_pr_record_locked,
	  .restore_locked = scsi_pr_restore_locked },
	{ .name = "RESERVE and RELEASE",
	  .lost_locked = scsi_reserve_lost_locked,
	  .carried = SCSI_CARRIED_RESERVE,
	  .holds_locked = scsi_reserve_holds_locked,
	  .hold_locked = scsi_reserve_hold_locked,
	  .reset_locked = scsi_reserve_reset_locked },
	{ .name = "PREVENT ALLOW MEDIUM REMOVAL",
	  .lost_locked = scsi_prevent_lost_locked,
	  .carried = SCSI_CARRIED_PREVENT,
	  .holds_locked = scsi_prevent_holds_locked,
	  .hold_locked = scsi_prevent_hold_locked,
	  .reset_locked = scsi_prevent_reset_locked },
	{ .name = "SANITIZE",
	  .free = scsi_sanitize_free,
	  .wait = scsi_sanitize_wait,
	  .busy_locked = scsi_sanitize_running_locked,
	  .record_locked = scsi_sanitize_record_locked,
	  .restore_locked = scsi_sanitize_restore_locked,
	  .gate = GATE_SANITIZE,
	  .pass = scsi_sanitize_pass,
	  .ended = scsi_sanitize_ended },
	{ .name = "provisioning thresholds",
	  .init = scsi_thin_init,
	  .free = scsi_thin_free,
	  .wait = scsi_thin_wait },
	{ .name = "asymmetric access",
	  .attach_locked = scsi_alua_attach_locked,
	  .gate = GATE_ALUA | GATE_ALUA_OFF,
	  .pass = scsi_alua_pass },
	{ .name = "ROD tokens",
	  .free = scsi_tokens_free,
	  .new_store_locked = scsi_tokens_drop_locked, /* they stand for what the old one held */
	  .gate = GATE_TOKENS,
	  .passed = scsi_tokens_invalidate },
	{ .name = "INQUIRY", .facts_locked = scsi_inquiry_facts_locked },
	{ .name = "copy results", .free = scsi_copies_free },
};
const unsigned scsi_nfeatures = ARRAY_SIZE(scsi_features);
