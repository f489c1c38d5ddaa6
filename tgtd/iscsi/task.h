/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An iSCSI task is one SCSI command on its way through the target. It has everything that its PDUs
 * need, so nothing is allocated while it runs. Tasks come from a cache of the thread, and belong to
 * the session's loop. A task is bound to the connection that it came in by (allegiance, RFC 7143
 * 4.2.2.1).
 */
#ifndef TGTD_ISCSI_TASK_H
#define TGTD_ISCSI_TASK_H

#include "tgtd/iscsi/dataout.h"
#include "tgtd/iscsi/transport.h"

struct iscsi_conn;
struct iscsi_session;

enum iscsi_task_state {
	TASK_FREE,
	TASK_ARRIVING,	/* ERL 1: its data may be damaged, and then it has not come at all */
	TASK_HELD,	/* CmdSN order: an earlier command has not come yet */
	TASK_RUNNING,	/* with the device server */
	TASK_DRAINING,	/* status known; Data-Out that the initiator will
			 * send anyway is still to come */
	TASK_FENCED,	/* its response is in session->fence.queue */
	TASK_RESPONDING,/* status is in the send queue */
	TASK_ENDING,	/* no response (aborted); PDUs or fetches are still with the transport */
	TASK_UNACKED,	/* ERL 1: sent, kept until ExpStatSN covers it */
};

/* A request that waits for its turn in CmdSN order, or a response that waits for
 * acknowledgements (fence.h). */
struct iscsi_pending {
	struct list link; /* session->held or ->fence.queue */
	uint32_t cmd_sn;
	bool immediate;	  /* takes no number: runs once all before it have come */
	bool fenced;	  /* a response before which all others, and after which all others */
	struct iscsi_conn *conn;
	void (*run)(struct iscsi_pending *p);
	void (*drop)(struct iscsi_pending *p); /* its connection ends */
};

#define ISCSI_SENT_KEPT 1024 /* room for more is given back with the task */

/* A Data-In PDU sent at ErrorRecoveryLevel 1. */
struct iscsi_sent {
	uint32_t off, len;
	uint8_t flags; /* byte 1 of its header */
};

/* Where a task stands: eight bytes that are stored and compared as one. */
#define ISCSI_TASK_STANDING                                                        \
	uint8_t state;	       /* enum iscsi_task_state */                         \
	uint8_t pdus_out;      /* with the transport */                            \
	bool in_window;	       /* counts in session->in_window */                  \
	bool hashed;	       /* in session->tasks */                             \
	bool started;	       /* scsi_cmd_start() was called */                   \
	bool completed;	       /* the device server has called complete() */       \
	bool is_immediate;                                                         \
	bool aborting : 1;     /* scsi_cmd_abort() was called */                   \
	bool reply_full : 1;   /* answer TASK SET FULL instead of staying silent */\
	bool crc_error : 1;    /* a Data-Out was lost for good: CHECK CONDITION */ \
	bool has_cdb_long : 1; /* ->cdb_long */                                    \
	bool resending : 1;    /* ErrorRecoveryLevel 1, or ->sent_off */                  \
	bool silent : 1;       /* its initiator ended it: no response from then on */ \
	bool fenced : 1;       /* its response is (RFC 7143 4.2.2.3) */           \
	bool resegment : 1;    /* level 1: a R-Data SNACK waits for its PDUs */

union iscsi_task_word {
	struct {
		ISCSI_TASK_STANDING
	};
	uint64_t word;
};
static_assert(sizeof(union iscsi_task_word) == 8, "one word");
#define ISCSI_TASK_WORD(...) (((const union iscsi_task_word){ { __VA_ARGS__ } }).word)

struct iscsi_task {
	struct scsi_cmd cmd;
	struct iscsi_conn *conn;
	struct iscsi_task *hash_next; /* session->tasks */
	struct list link;    /* conn->tasks */
	uint32_t itt;
	uint32_t cmd_sn;
	union {
		struct {
			ISCSI_TASK_STANDING
		};
		uint64_t state_word; /* all of it, where it stands as most do */
	};
	uint32_t data_sn;    /* of the next Data-In */
	uint32_t burst_left; /* bytes until the F bit is due */
	uint32_t residual;
	uint32_t residual_flags; /* BHS_DATAIN_OVERFLOW or UNDERFLOW; as wide as ->residual, so that
				  * both are cleared as one */
	uint32_t edtl;
	uint16_t lost_asc; /* with crc_error: ASC and ASCQ */
	uint16_t flight;   /* flight.h: its number there; 0 none */
	uint32_t sent_off; /* so many bytes of its Data-In the process before has sent */
	struct iscsi_pending pending;
	struct iscsi_dataout out;
	struct iscsi_pdu data[SCSI_CMD_SEGS]; /* Data-In of cmd.seg[i] */
	struct iscsi_pdu rsp;
	/* ErrorRecoveryLevel 1: what was sent, by DataSN, and the
	 * segments kept to send it again. */
	struct iscsi_sent *sent;
	uint32_t sent_cap, resend_sn;
	uint32_t ack_ttt;    /* of the DataACK that is asked for */
	uint32_t acked_sn;   /* DataSN before which all is acknowledged by those */
	uint32_t snack_tag;  /* of the last R-Data SNACK, for the response; 0 none */
	uint32_t seg_end_sn[SCSI_CMD_SEGS]; /* DataSN behind the segment */
	uint8_t kept;	     /* bit per segment */
	uint64_t tp_word[4]; /* the transport's; conn->rx_word of the command PDU
			      * (iSER: STags, base offsets) */
	uint64_t serial;     /* order of arrival in the session */
	uint8_t *cdb_long;   /* CDB longer than 16 bytes */
	uint8_t cdb[16];
	uint8_t rsp_data[SCSI_SENSE_MAX + 4]; /* SenseLength, sense, padding */
};

static inline struct iscsi_task *iscsi_task_of(struct scsi_cmd *cmd)
{
	return container_of(cmd, struct iscsi_task, cmd);
}

/* Idle tasks of this thread, linked by hash_next. */
extern __thread struct iscsi_task *iscsi_task_cache_;

/* A fresh task on this thread; NULL when memory is short. */
struct iscsi_task *iscsi_task_get(struct iscsi_conn *conn);
/* All its PDUs and segments are back. */
static inline void iscsi_task_put(struct iscsi_task *t)
{
	t->state = TASK_FREE;
	t->hash_next = iscsi_task_cache_;
	iscsi_task_cache_ = t;
}

#endif
