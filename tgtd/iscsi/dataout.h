/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The Data-Out side of a command: immediate data, unsolicited Data-Out up to FirstBurstLength, and
 * solicited Data-Out answering our R2Ts (RFC 7143 4.2.5.2, 11.7, 11.8), or a transport's own fetch
 * (RDMA read) for what was not sent unasked.
 *
 *   buffer   0 ......... unsol_len ............................. edtl
 *            |immediate|Data-Out|   solicited: R2T by R2T, or fetch  |
 *
 * Bytes may arrive before the device server has blocks for them (scsi ops->fetch not yet called):
 * then they wait in spill memory, bounded by FirstBurstLength a command and by a limit for the whole
 * daemon, beyond which the command ends with TASK SET FULL. Reading from the connection never stops
 * for that, so a command that holds blocks always gets its data, whatever waits behind it.
 * R2Ts are only sent for bytes that have their blocks.
 *
 * Everything runs on the loop of the session.
 */
#ifndef ISCSI_DATAOUT_H
#define ISCSI_DATAOUT_H

#include "tgtd/iscsi/pdu.h"
#include "tgtd/scsi/cmd.h"

struct iscsi_task;
struct iscsi_conn;

#define ISCSI_R2T_MAX 8 /* R2Ts outstanding per task, the most that MaxOutstandingR2T may become */

struct iscsi_spill {
	struct iscsi_spill *next;
	uint64_t off;
	uint32_t len;
	uint8_t data[];
};

/* An R2T sent and not yet answered in full. */
struct iscsi_r2t {
	uint32_t ttt; /* ISCSI_TAG_NONE: slot is free */
	uint32_t r2t_sn;
	uint64_t off;
	uint32_t len, got; /* bytes asked for and received */
	uint32_t data_sn;  /* of the next Data-Out */
	bool recovery;	   /* asks again for what was lost (ERL 1) */
};

struct iscsi_dataout {
	uint64_t unsol_len;   /* bytes that come without R2T */
	uint64_t unsol_got;
	uint64_t next;	      /* first byte not yet solicited */
	uint32_t unsol_data_sn;
	uint32_t r2t_sn;      /* of the next R2T */
	uint8_t r2t_busy;     /* slots in use */
	bool unsol_open;      /* its F bit has not come yet */
	bool closed;	      /* the command has ended: sink the rest */
	bool overflow;	      /* spill memory ran out */
	uint8_t fetching;     /* transport fetches under way */
	struct iscsi_spill *spill;
	struct scsi_seg *seg[SCSI_CMD_SEGS]; /* being filled */
	struct iscsi_r2t *r2t; /* [ISCSI_R2T_MAX], allocated with the first R2T of the object's life */
};

/* @immediate bytes come with the command; @unsolicited: F = 0, Data-Out follows unasked. */
void iscsi_dataout_init(struct iscsi_task *task, uint32_t immediate, bool unsolicited);
/* scsi_transport_ops.fetch */
void iscsi_dataout_fetch(struct scsi_cmd *cmd, struct scsi_seg *seg);
/* Bytes [off, off + len) are about to arrive: where to? False: out of spill memory, discard. */
bool iscsi_dataout_sink(struct iscsi_task *task, uint64_t off, uint32_t len, struct iscsi_conn *conn);
/* They are there (or not: @ok). */
void iscsi_dataout_arrived(struct iscsi_task *task, uint64_t off, uint32_t len, bool ok);
/* Is anything still to come that the initiator will send for sure? */
bool iscsi_dataout_pending(const struct iscsi_task *task);
/* The command has ended or is being aborted: segments go back (-ECANCELED), the rest is sunk. */
void iscsi_dataout_close(struct iscsi_task *task);
void iscsi_dataout_fini(struct iscsi_task *task);

#endif
