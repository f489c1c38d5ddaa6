/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The Data-Out side of a command (RFC 7143 4.2.5.2, 11.7, 11.8). Data comes as immediate data, as
 * unsolicited Data-Out up to FirstBurstLength, and as solicited Data-Out that answers our R2Ts.
 * Instead of R2Ts a transport may fetch what was not sent unsolicited (RDMA read).
 *
 *   buffer   0 ......... unsol_len ............................. edtl
 *            |immediate|Data-Out|   solicited: R2T by R2T, or fetch  |
 *
 * Bytes may arrive before the device server has blocks for them (scsi ops->fetch not yet called).
 * Then they wait in spill memory. A command has at most FirstBurstLength of it. Where none is left
 * for its session the command ends with TASK SET FULL. Reading from the connection never stops for
 * that, so a command that holds blocks always gets its data, whatever waits behind it. R2Ts are
 * only sent for bytes that have their blocks.
 *
 * Everything runs on the loop of the session.
 */
#ifndef TGTD_ISCSI_DATAOUT_H
#define TGTD_ISCSI_DATAOUT_H

#include "tgtd/iscsi/transport.h"

struct iscsi_session;

#define ISCSI_R2T_MAX 8 /* R2Ts outstanding per task, the most that MaxOutstandingR2T is used for */
/*
 * Spill memory. Each session has ISCSI_SPILL_LEAST, whatever others do. What it has beyond that is
 * of a pool of ISCSI_SPILL_MAX, which is shared out by what is left. What a session has of it, what
 * its target has and what all have are ISCSI_SPILL_MAX together at most. So a target has half of
 * the pool at most, however many sessions it has; and in all no session has more than
 * ISCSI_SPILL_SHARE.
 */
#define ISCSI_SPILL_MAX MiB(256)
#define ISCSI_SPILL_SHARE MiB(64)
#define ISCSI_SPILL_LEAST KiB(256)

struct iscsi_spill {
	struct iscsi_spill *next;
	uint64_t off;	/* of the command's data */
	uint32_t len;
	uint32_t taken; /* bytes copied into segments already */
	bool complete;	/* all received */
	uint8_t data[];
};
/* Memory for [off, off + len) of a command's data, which the caller gives back. NULL: there is none
 * left for this session. Loop of the session, which is a target's (spill.c). */
struct iscsi_spill *iscsi_spill_get(struct iscsi_session *s, uint64_t off,
				    uint32_t len) must_check;
void iscsi_spill_put(struct iscsi_session *s, struct iscsi_spill *sp);

/* What has come of a sequence whose PDUs may be in any order
 * (DataPDUInOrder=No): disjoint, ascending. */
#define ISCSI_RANGES_MAX 32
struct iscsi_ranges {
	unsigned n; /* 0: not in use, all came in order so far */
	struct {
		uint64_t from, to;
	} r[ISCSI_RANGES_MAX];
};
/* Adds [from, to); false when it overlaps what is there, or would make too many. */
bool iscsi_ranges_add(struct iscsi_ranges *s, uint64_t from, uint64_t to) must_check;
/* Does [off, off + len) belong next into the sequence that began at @start and of which @got bytes
 * came? With DataPDUInOrder=No it may be anywhere where nothing is yet, and is added to @s. */
bool iscsi_in_place(const struct iscsi_conn *conn, struct iscsi_ranges *s, uint64_t start,
		    uint64_t got, uint64_t off, uint32_t len) must_check;
/* Are they [0, @end), without a hole? */
bool iscsi_ranges_whole(const struct iscsi_ranges *s, uint64_t end) must_check;

/* RFC 7143 11.4.7.2: what is wrong with a command's data, with ABORTED COMMAND */
#define ASC_INCORRECT_AMOUNT_OF_DATA 0x0c0d
#define ASC_PROTOCOL_SERVICE_CRC_ERROR 0x4705

/* An R2T sent and not yet answered in full. */
struct iscsi_r2t {
	uint32_t ttt; /* ISCSI_TAG_NONE: slot is free */
	uint32_t r2t_sn;
	uint64_t off;
	uint32_t len, got; /* bytes asked for and received */
	uint32_t data_sn;  /* of the next Data-Out */
	bool lost;	   /* a Data-Out of it was damaged (ERL 1): asked for again at its end */
	uint64_t lost_off; /* from here on */
	bool sending;	   /* ->pdu is with the transport */
	uint64_t since_ns; /* when its sequence began */
	struct iscsi_ranges ranges;
	struct iscsi_pdu pdu;
};

struct iscsi_dataout {
	uint64_t unsol_len;   /* bytes that come without R2T */
	uint64_t unsol_got;
	uint64_t next;	      /* first byte not yet solicited */
	uint32_t unsol_data_sn;
	uint32_t r2t_sn;      /* of the next R2T */
	uint32_t owed_looks;  /* of owed.c, at which something was owed */
	uint8_t r2t_busy;     /* slots waiting for data */
	uint8_t fetching;     /* transport fetches under way */
	bool unsol_lost;      /* part of it went missing (ERL 1) */
	bool closed;	      /* the command has ended: sink the rest */
	bool waiting;	      /* wait_link is on conn->solicit_waitq */
	bool stale;	      /* what is outstanding the process before has asked for: it is
			       * thrown away, and only then asked for again */
	uint64_t owed_ns;     /* unsol_open by F = 0: since when */
	uint64_t charged;     /* of conn->solicited */
	struct list wait_link;
	uint64_t unsol_lost_off;
	struct iscsi_ranges *unsol_ranges; /* allocated when first needed in the object's life */
	struct iscsi_spill *spill, *rx_spill;
	struct scsi_seg *seg[SCSI_CMD_SEGS]; /* being filled; host_word[0]: bytes there */
	struct iscsi_r2t *r2t; /* [ISCSI_R2T_MAX], allocated with the
			        * first R2T of the object's life */
	/* the PDU being received */
	struct iscsi_r2t *rx_r2t; /* NULL: unsolicited */
	uint64_t rx_off;
	uint32_t rx_len;
	bool rx_final;
	/*
	 * Not in one word with r2t_busy: compilers then test the two with one load. That cannot be
	 * forwarded from the byte store just before. It waits until all payload stored before that
	 * has reached the cache: a fifth of the time of a 4 KiB write.
	 */
	bool unsol_open; /* its F bit has not come yet */
};

/*
 * When so many bytes have been asked for on a connection and not yet come, other commands wait for
 * their turn to ask. No network needs more in flight, and data that goes to less memory at a time
 * stays in the processor's caches.
 */
#define ISCSI_SOLICIT_MAX MiB(8)

/*
 * The deadline of write data that is owed (owed.c). It is data_out_timeout without any write data
 * on the connection. For one R2T, or a command's unsolicited data, it is ISCSI_OWED_TIMES that.
 * A command as a whole has that, too, and data_out_timeout more for each ISCSI_OWED_LEAST bytes
 * that have come. When it passes for the third time, the connection ends.
 */
#define ISCSI_OWED_LEAST KiB(64)
#define ISCSI_OWED_TIMES 8
#define ISCSI_OWED_MISSES 3
#define ISCSI_OWED_TIMEOUT_S 20
#define ISCSI_OWED_TIMEOUT_MAX_S 3600
/* With the connection on its loop, and before it leaves. */
void iscsi_owed_start(struct iscsi_conn *conn);
void iscsi_owed_stop(struct iscsi_conn *conn);

/* loop_deferred of iscsi_conn: there is room for those who wait. */
void iscsi_solicit_more(struct loop_deferred *d);

/* A write command has come with @immediate bytes; @unsolicited: F = 0, Data-Out follows unasked. */
void iscsi_dataout_init(struct iscsi_task *task, uint32_t immediate, bool unsolicited);
/* A write goes on that the process before was owed data of: so much has been carried out, and these
 * sequences are outstanding (flight_form.h). Before it is started. */
struct flight_cmd;
void iscsi_dataout_again(struct iscsi_task *task, const struct flight_cmd *before);
/* Where does immediate data go? Sets conn->sink. After the command was started. */
void iscsi_dataout_immediate(struct iscsi_task *task, uint32_t len);
/* A Data-Out PDU: checks it, sets conn->sink. False: against the
 * protocol; its data is discarded. */
bool iscsi_dataout_begin(struct iscsi_task *task, const uint8_t *bhs) must_check;
/* The data announced by the one or the other is there, or was damaged. May end the task. */
void iscsi_dataout_end(struct iscsi_task *task, bool ok);
/* scsi_transport_ops.fetch */
void iscsi_dataout_fetch(struct scsi_cmd *cmd, struct scsi_seg *seg);
/* Is anything still to come that the initiator will send for sure? */
bool iscsi_dataout_pending(const struct iscsi_task *task);
/* The device server has taken the data from where it was received (scsi_cmd.imm_data). */
static inline void iscsi_dataout_taken(struct iscsi_dataout *o)
{
	o->unsol_got = o->unsol_len;
	o->unsol_open = false;
}
/* The command has ended or is being aborted: segments go back (-ECANCELED), the rest is sunk. */
void iscsi_dataout_close(struct iscsi_task *task);
/* What is owed is not waited for any longer: CHECK CONDITION, ABORTED COMMAND at once (RFC 7143
 * 11.4.7.2), its blocks go back. What comes nevertheless is thrown away. May end the task. */
void iscsi_dataout_late(struct iscsi_task *task);
void iscsi_dataout_fini(struct iscsi_task *task);

#endif
