/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Commands of all device types (SPC-4) that are not large enough for a file of their own. */
#include "tgtd/scsi/commands/commands.h"

void op_test_unit_ready(struct scsi_cmd *cmd)
{
	scsi_done(cmd);
}

/* SPC-4 6.39. With autosense there is never sense data waiting: what is reported is a unit
 * attention or the state of the logical unit. */
void op_request_sense(struct scsi_cmd *cmd)
{
	bool desc = cmd->cdb[1] & 0x01;
	uint8_t *b = scsi_heap(cmd, 64), n;
	uint16_t asc;
	int progress;

	if (!b)
		return;
	if (cmd->state & CMD_NO_LU) {
		n = scsi_sense_put(b, desc, SENSE_ILLEGAL_REQUEST, ASC_LOGICAL_UNIT_NOT_SUPPORTED);
	} else if (cmd->itl && (asc = scsi_ua_pop(cmd->itl)) != 0) {
		n = scsi_sense_put(b, desc, SENSE_UNIT_ATTENTION, asc);
	} else if (cmd->itl && (progress = scsi_sanitize_progress(cmd->lu, &asc)) >= 0) {
		n = scsi_sense_put_progress(b, desc, asc, (uint16_t)progress);
	} else if (cmd->itl && (cmd->itl->gate & (GATE_ALUA | GATE_LEASE)) &&
		   (asc = scsi_alua_not_ready(cmd->itl)) != 0) {
		n = scsi_sense_put(b, desc, SENSE_NOT_READY, asc);
	} else if (cmd->itl && (cmd->itl->gate & (GATE_NO_MEDIUM | GATE_OFFLINE))) {
		n = scsi_sense_put(b, desc, SENSE_NOT_READY,
				   cmd->itl->gate & GATE_NO_MEDIUM ?
					   ASC_MEDIUM_NOT_PRESENT_TRAY_OPEN :
					   ASC_MEDIUM_NOT_PRESENT);
	} else {
		n = scsi_sense_put(b, desc, SENSE_NO_SENSE, ASC_NO_ADDITIONAL_SENSE);
	}
	scsi_data_in(cmd, n, cmd->cdb[4]);
}

/* ---- REPORT LUNS (SPC-4 6.33) ---------------------------------------------------------------- */

static uint64_t lun_encode(uint32_t lun)
{
	/* SAM-5 4.7.7: peripheral device addressing while it reaches,
	 * then flat space addressing. */
	return (uint64_t)(lun < 256 ? lun : 0x4000 | lun) << 48;
}

void op_report_luns(struct scsi_cmd *cmd)
{
	struct scsi_nexus *n = cmd->nexus;
	struct scsi_target *t = n->target;
	uint8_t select = cmd->cdb[2], *b;
	uint32_t alloc = get_be32(cmd->cdb + 6);
	size_t count = 0, at = 8;
	bool units = false, wluns = false;

	switch (select) {
	case 0x00: /* all but well known */
		units = true;
		break;
	case 0x01: /* well known only */
		wluns = true;
		break;
	case 0x02:
		units = wluns = true;
		break;
	case 0x10: /* administrative, subsidiary: none here */
	case 0x11:
	case 0x12:
		break;
	default:
		scsi_bad_cdb(cmd, 2, -1);
		return;
	}
	if (alloc < 16) {
		scsi_bad_cdb(cmd, 6, -1);
		return;
	}
	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; units && i < t->nlu; i++)
		count += t->lu[i] && scsi_target_sees(t, n, i);
	count += wluns;
	pthread_mutex_unlock(&t->lock);
	b = scsi_heap(cmd, 8 + count * 8);
	if (!b)
		return;
	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; units && i < t->nlu && at < 8 + count * 8; i++)
		if (t->lu[i] && scsi_target_sees(t, n, i)) {
			put_be64(b + at, lun_encode(i));
			at += 8;
		}
	pthread_mutex_unlock(&t->lock);
	if (wluns && at < 8 + count * 8) {
		put_be64(b + at, 0xc101000000000000ull);
		at += 8;
	}
	put_be32(b, (uint32_t)(at - 8));
	atomic_fetch_and(&n->gate, ~(uint32_t)GATE_LUNS); /* the news has been told */
	scsi_data_in(cmd, at, alloc);
}

/* ---- START STOP UNIT (SBC-4 5.31) ------------------------------------------------------------ */

static void start_stop_finish(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	bool loej = cmd->cdb[4] & 0x02, start = cmd->cdb[4] & 0x01;

	if (cmd->step && cmd->seg[1].io.status < 0) {
		cmd->state |= CMD_WRITE;
		scsi_sense_errno(cmd, cmd->seg[1].io.status, SENSE_NO_INFO);
		scsi_done(cmd);
		return;
	}
	pthread_mutex_lock(&lu->lock);
	if (loej && lu->prevents > 0) { /* loading, too, moves the medium */
		pthread_mutex_unlock(&lu->lock);
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_MEDIUM_REMOVAL_PREVENTED);
		return;
	}
	if (loej && lu->ejected == start) {
		lu->ejected = !start;
		if (start)
			scsi_ua_raise_locked(lu, cmd->itl, UA_MEDIUM);
		scsi_lu_update_gate_locked(lu);
		scsi_lu_record_locked(lu);
	}
	pthread_mutex_unlock(&lu->lock);
	scsi_done(cmd);
}

/* POWER CONDITION (SBC-4 table 119); IDLE, STANDBY and how to force these are not offered. */
enum { PC_START_VALID = 0x0, PC_ACTIVE = 0x1, PC_LU_CONTROL = 0x7 };

void op_start_stop(struct scsi_cmd *cmd)
{
	uint8_t condition = cmd->cdb[4] >> 4, modifier = cmd->cdb[3] & 0x0f;
	bool no_flush = cmd->cdb[4] & 0x04, loej = cmd->cdb[4] & 0x02, start = cmd->cdb[4] & 0x01;
	struct blk_req *io;

	/* SPC-4 table 66: only a plain start passes a reservation. */
	if ((!start || condition) && (cmd->itl->gate & GATE_DENY_WRITE)) {
		cmd->status = SAM_RESERVATION_CONFLICT;
		scsi_done(cmd);
		return;
	}
	if (condition != PC_START_VALID || modifier) {
		/* LOEJ and START do not count then. The unit is always active, and has no timers:
		 * what would put it to rest is refused (SPC-4 5.11.1). */
		if ((condition != PC_ACTIVE && condition != PC_LU_CONTROL))
			scsi_bad_cdb(cmd, condition ? 4 : 3, condition ? 7 : 3);
		else if (modifier)
			scsi_bad_cdb(cmd, 3, 3);
		else
			scsi_done(cmd);
		return;
	}
	if (loej && !scsi_lu_is(cmd->lu, LU_REMOVABLE)) {
		scsi_bad_cdb(cmd, 4, 1);
		return;
	}
	cmd->step = 0;
	if (start || no_flush || (cmd->itl->gate & (GATE_NO_MEDIUM | GATE_OFFLINE))) {
		start_stop_finish(cmd);
		return;
	}
	cmd->step = 1; /* stopping: what is in the cache goes to the medium first */
	io = scsi_io(cmd);
	io->op = BLK_SYNC;
	io->offset = io->len = 0;
	scsi_io_submit(cmd, start_stop_finish);
}

void op_prevent_allow(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	bool prevent = cmd->cdb[4] & 0x01;

	if (cmd->cdb[4] & 0x02) { /* of an attached medium changer */
		scsi_bad_cdb(cmd, 4, 1);
		return;
	}
	if (prevent && (cmd->itl->gate & GATE_DENY_WRITE)) {
		cmd->status = SAM_RESERVATION_CONFLICT;
		scsi_done(cmd);
		return;
	}
	if (!scsi_lu_is(lu, LU_REMOVABLE)) {
		if (prevent)
			scsi_bad_cdb(cmd, 4, 0);
		else
			scsi_done(cmd);
		return;
	}
	pthread_mutex_lock(&lu->lock);
	if (prevent && !cmd->itl->prevent)
		lu->prevents++;
	else if (!prevent && cmd->itl->prevent)
		lu->prevents--;
	cmd->itl->prevent = prevent;
	scsi_nexus_changes(cmd->nexus);
	pthread_mutex_unlock(&lu->lock);
	scsi_done(cmd);
}

void scsi_prevent_lost_locked(struct scsi_itl *itl)
{
	if (itl->prevent)
		itl->lu->prevents--;
	itl->prevent = false;
}

bool scsi_prevent_holds_locked(const struct scsi_itl *itl)
{
	return itl->prevent;
}

void scsi_prevent_hold_locked(struct scsi_itl *itl)
{
	if (itl->prevent || !scsi_lu_is(itl->lu, LU_REMOVABLE))
		return;
	itl->prevent = true;
	itl->lu->prevents++;
}

bool scsi_prevent_reset_locked(struct scsi_lu *lu)
{
	struct scsi_itl *itl;

	lu->prevents = 0;
	list_for_each(itl, &lu->itls, link)
		itl->prevent = false;
	return false;
}

/* ---- task management functions, time, diagnostics -------------------------------------------- */

/* SPC-4 6.36 */
void op_report_tmfs(struct scsi_cmd *cmd)
{
	uint32_t alloc = get_be32(cmd->cdb + 6);
	uint8_t *b;

	if (alloc < 4) {
		scsi_bad_cdb(cmd, 6, -1);
		return;
	}
	b = scsi_heap(cmd, 16);
	if (!b)
		return;
	/* ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LU RESET, QUERY TASK */
	b[0] = 0x80 | 0x40 | 0x10 | 0x08 | 0x04;
	b[1] = 0x04 | 0x02 | 0x01; /* QUERY ASYNC EVENT, QUERY TASK SET, I_T NEXUS RESET */
	if (cmd->cdb[2] & 0x80) { /* REPD: nothing takes more than ten seconds */
		b[3] = 0x0c;
		b[4] = 0x01; /* TMFTMOV */
		put_be32(b + 8, 100);
		put_be32(b + 12, 100);
		scsi_data_in(cmd, 16, alloc);
		return;
	}
	scsi_data_in(cmd, 4, alloc);
}

static int64_t realtime_ms(void)
{
	return (int64_t)(clock_realtime_ns() / NSEC_PER_MSEC);
}

/* SPC-4 6.38: milliseconds since 1970; origin 010b set by SET TIMESTAMP, 011b by other means. */
void op_report_timestamp(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	uint8_t *b = scsi_heap(cmd, 12);

	if (!b)
		return;
	pthread_mutex_lock(&lu->lock);
	put_be16(b, 10);
	b[2] = lu->timestamp_set ? 0x02 : 0x03;
	put_be48(b + 4, (uint64_t)(realtime_ms() + lu->timestamp_offset_ms) & 0xffffffffffffull);
	pthread_mutex_unlock(&lu->lock);
	scsi_data_in(cmd, 12, get_be32(cmd->cdb + 6));
}

/* A clock for each unit: whoever may not see a unit neither sets its clock nor raises its
 * attentions. The I_T nexus that sets it knows. */
static void set_timestamp(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;

	if (cmd->heap_got < 12) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
		return;
	}
	pthread_mutex_lock(&lu->lock);
	lu->timestamp_offset_ms = (int64_t)get_be48(cmd->heap + 4) - realtime_ms();
	lu->timestamp_set = true;
	scsi_ua_raise_locked(lu, cmd->itl, UA_TIMESTAMP);
	scsi_lu_record_locked(lu);
	pthread_mutex_unlock(&lu->lock);
	scsi_done(cmd);
}

void op_set_timestamp(struct scsi_cmd *cmd)
{
	uint32_t len = get_be32(cmd->cdb + 6);

	if (len == 0)
		scsi_done(cmd);
	else if (len < 12)
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
	else
		scsi_data_out(cmd, MIN(len, 12), set_timestamp);
}

/* SPC-4 6.42: the default self-test finds nothing wrong; others do not exist. */
void op_send_diagnostic(struct scsi_cmd *cmd)
{
	if (cmd->cdb[1] & 0xe0) /* SELF-TEST CODE */
		scsi_bad_cdb(cmd, 1, 7);
	else if (get_be16(cmd->cdb + 3))
		scsi_bad_cdb(cmd, 3, -1);
	else
		scsi_done(cmd);
}
