/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a TCP connection has under way, in memory that outlives the process: its *flight record*. If
 * that dies, the next one goes on with the connection in the middle of its commands (flight.h).
 *
 *     head | a slot for each session ... | receive buffers ... | send batches ...
 *
 * A session of one connection has the slot of the same number as in quiet_form.h, which says what
 * the session is. Here is what moves with each command:
 *
 *   received   up to where PDUs have been taken into account (->taken, or the end of a command that
 *              was taken since), and where in a receive buffer lies what came behind that
 *   commands   that were taken, and are not known to be answered
 *   sent       the send batch that the socket has a part of: a *log*, of headers and of addresses
 *
 * The kernel knows how many bytes went through the socket, both ways. So what the log has beyond
 * that is sent as it stands. What a log has answered is answered. A read that is not is carried out
 * again from the first byte that no log has. A write that waits for blocks is carried out. One that
 * was carried out is answered. One that was just being carried out is in doubt, and the connection
 * ends. So it does where anything else is under way (->doubts).
 *
 * A write that is owed data, unsolicited or by R2T, is gone on with from the first byte that was
 * not carried out. What had come behind that is lost with the process. So *sequences* of Data-Out
 * that the initiator has begun, or will, are thrown away up to their F bit. Then new R2Ts ask for
 * it.
 *
 * A process may die between any two stores, of which the kernel has all up to there. So each of
 * these is a commit word, stored behind what it vouches for: flight_cmd.state, .seq[], ->taken,
 * ->into, and of a log ->total. Where two words would have to change as one, ->moving says so
 * meanwhile.
 *
 * The reader trusts nothing. Pure computation, any thread that owns the memory.
 */
#ifndef TGTD_ISCSI_FLIGHT_FORM_H
#define TGTD_ISCSI_FLIGHT_FORM_H

#include <sys/uio.h>
#include "events/bug.h"
#include "tgtd/iscsi/pdu.h"

#define FLIGHT_VERSION 0x464c5432u /* another one's records are not read */
#define FLIGHT_HEAD KiB(4)
#define FLIGHT_SLOT KiB(24)
#define FLIGHT_CMDS 160u   /* more than a window; beyond, one is a doubt */
#define FLIGHT_ARENAS 64u
#define FLIGHT_RX_BYTES KiB(256)
#define FLIGHT_RX_ROOM KiB(260)
#define FLIGHT_TX_ROOM KiB(24)
#define FLIGHT_IOVS 512u   /* of one send call; well below IOV_MAX */
#define FLIGHT_HEADERS 192u /* PDUs in it that have their header here */
#define FLIGHT_SEQS 9u	    /* of Data-Out, a command: by its R2Ts, and unsolicited */
#define FLIGHT_UNSOLICITED 8u
#define FLIGHT_SKIP_MAX (MiB(16) + KiB(1)) /* bytes of a PDU at most, behind its header */

/* Memory that a log's addresses are in: of file @key, from its beginning on. */
struct flight_arena {
	uint64_t base, len; /* len 0: there is none */
};

struct flight_head {
	uint32_t version, slots;
	uint64_t size, base; /* of all of it, and where it was mapped */
	uint64_t rx_off, tx_off;
	uint32_t rooms;	     /* buffers, and as many batches */
	uint32_t reserved;
	struct flight_arena arena[FLIGHT_ARENAS]; /* by node */
};
static_assert(sizeof(struct flight_head) <= FLIGHT_HEAD, "fits");

enum flight_state {
	FLIGHT_FREE,
	FLIGHT_READ,	 /* may be carried out again */
	FLIGHT_WRITE,	 /* it waits, with all of its data in ->data: nothing has been done */
	FLIGHT_APPLYING, /* a write that may have been carried out, or was ended; or a read
			  * that tells of a unit attention */
	FLIGHT_DONE,	 /* one that has been, with status GOOD and nothing more to say */
	FLIGHT_OWED,	 /* one that is owed data: up to ->off it has been, and nothing else */
	FLIGHT_STATES
};

struct flight_cmd {
	uint8_t bhs[ISCSI_BHS_LEN];
	uint32_t state; /* enum flight_state */
	uint32_t at;	/* where its PDU ends in the received stream: the low bits */
	/* What a log that is over has of its Data-In: bytes, PDUs, bytes behind the last F bit. Of
	 * a write: bytes that were carried out, R2Ts that a log has. */
	uint32_t off, data_sn, burst;
	uint32_t data; /* FLIGHT_WRITE: number of the receive buffer with its data */
	uint32_t owed; /* 1: more data was to come than came with the command, and ->seq counts */
	uint64_t seq[FLIGHT_SEQS]; /* FLIGHT_SEQ_* */
};

/*
 * A sequence of Data-Out, by slot of its R2T (ISCSI_R2T_MAX), or unsolicited. 0: there is none.
 * Below, FLIGHT_SEQ_ASKED and the tag, with FLIGHT_SEQ_SENT from when a log with the R2T is over.
 * Or FLIGHT_SEQ_OVER, and above where its last PDU ends in the received stream.
 */
#define FLIGHT_SEQ_ASKED (1u << 31)
#define FLIGHT_SEQ_SENT (1u << 30)
#define FLIGHT_SEQ_TAG (FLIGHT_SEQ_SENT - 1)
#define FLIGHT_SEQ_OVER 1u

struct flight_slot {
	uint32_t version; /* 0: nobody has it */
	uint32_t tsih, cid;
	uint32_t doubts; /* things under way that nobody can go on with */
	uint64_t taken;	 /* flight_taken() */
	uint64_t into;	 /* flight_into(); 0: none */
	uint64_t rx_base; /* where in the received stream the buffer begins */
	uint64_t rx_buf;  /* where that is in this file; 0: there is none */
	uint64_t log;	  /* the same of the batch */
	/* As of the end of the last log: */
	uint64_t sent;
	uint32_t stat_sn, max_cmd_sn; /* the next one; the last that was announced */
	struct flight_cmd cmd[FLIGHT_CMDS];
};
static_assert(sizeof(struct flight_slot) <= FLIGHT_SLOT, "fits");

/* Of the received stream the low bits, and below them ExpCmdSN: one word. */
static inline uint64_t flight_taken(uint32_t at, uint32_t exp_cmd_sn)
{
	return (uint64_t)at << 32 | exp_cmd_sn;
}

/*
 * A Data-Out PDU has begun, and may be passed over up to where it ends, at @end. It is of command
 * number @cmd (0: of none, or of one that wants it no more) and its sequence @seq, and @final.
 */
static inline uint64_t flight_into(uint32_t end, unsigned cmd, unsigned seq, bool final)
{
	return (uint64_t)end << 32 | 1u << 31 | cmd << 8 | seq << 1 | final;
}

struct flight_header {
	uint8_t bhs[ISCSI_BHS_LEN];
	uint8_t digest[4];
};

/* The beginning of a send batch (tgtd/tcp/conn.h). */
struct flight_log {
	uint64_t base;	/* where in the sent stream it begins */
	uint32_t total; /* bytes; 0: it is none (yet, or any more) */
	uint32_t moving;
	uint32_t stat_sn, max_cmd_sn; /* behind it */
	uint32_t n, nheaders;	      /* iovecs, headers */
	struct iovec iov[FLIGHT_IOVS];
	struct flight_header header[FLIGHT_HEADERS];
	uint8_t trailer[FLIGHT_HEADERS][8]; /* padding, data digest */
	uint16_t cmd[FLIGHT_HEADERS];	    /* flight_slot.cmd[], + 1; 0: of none */
};
static_assert(sizeof(struct flight_log) + 128 <= FLIGHT_TX_ROOM, "a batch fits");

/* An R2T of @c with this header was sent. (Its data may have come already.) */
static inline void flight_asked(struct flight_cmd *c, const uint8_t *bhs)
{
	const uint32_t ttt = get_be32(bhs + BHS_TTT);
	uint64_t *seq = &c->seq[ttt % FLIGHT_UNSOLICITED];

	if (!c->owed)
		return;
	c->data_sn = get_be32(bhs + BHS_DATA_SN) + 1;
	if (*seq == (FLIGHT_SEQ_ASKED | (uint64_t)ttt))
		*seq |= FLIGHT_SEQ_SENT;
}

/* Of the header of a Data-In PDU, or an R2T: what of the command's data has been sent, or asked
 * for, behind it. */
static inline void flight_progress(struct flight_cmd *c, const uint8_t *bhs)
{
	const uint32_t len = bhs_data_len(bhs);

	if (unlikely(bhs_opcode(bhs) == ISCSI_R2T)) {
		flight_asked(c, bhs);
		return;
	}
	c->off = get_be32(bhs + BHS_BUFFER_OFFSET) + len;
	c->data_sn = get_be32(bhs + BHS_DATA_SN) + 1;
	c->burst = bhs[BHS_FLAGS] & BHS_FINAL ? 0 : c->burst + len;
}

/* Does a PDU with this header answer its command? */
static inline bool flight_answers(const uint8_t *bhs)
{
	return bhs_opcode(bhs) == ISCSI_SCSI_RSP ||
	       (bhs_opcode(bhs) == ISCSI_DATA_IN && bhs[BHS_FLAGS] & BHS_DATAIN_STATUS);
}

/* What a command with this CDB may be: FLIGHT_READ (one that may be carried out again),
 * FLIGHT_APPLYING (a write that has no other effect), or FLIGHT_FREE: neither. */
extern const uint8_t flight_kinds[256];
static inline enum flight_state flight_kind(uint8_t opcode)
{
	return (enum flight_state)flight_kinds[opcode];
}

/* ---- reading --------------------------------------------------------------------------------- */

struct flight_piece {
	uint32_t arena; /* FLIGHT_ARENAS: the record's own file */
	uint32_t len;
	uint64_t off; /* in the file */
};

/* A connection that can be gone on with. */
struct flight_found {
	uint32_t tsih, cid;
	uint32_t exp_cmd_sn, max_cmd_sn, stat_sn;
	uint64_t received, sent;
	uint32_t unparsed;    /* bytes that have been received and not taken, in the file from */
	uint64_t unparsed_off;
	uint32_t skip; /* bytes that are to be received, and thrown away, before anything else */
	uint32_t npieces, owed; /* what is to be sent first, and bytes of all of them */
	uint32_t ncmds;		/* by CmdSN; what their ->seq has is outstanding */
	struct flight_piece piece[FLIGHT_IOVS];
	struct flight_cmd cmd[FLIGHT_CMDS];
};

/* Is @h the head of a file of @size bytes? NULL, or why not. */
const char *flight_head_wrong(const struct flight_head *h, uint64_t size) must_check;
/* Can a batch lie there? */
bool flight_log_at(const struct flight_head *h, uint64_t off);
/*
 * Of a slot that is somebody's and its batch (NULL: it says that there is none), both of which
 * nobody writes any more, and of what the kernel has counted on the socket: what is to be done.
 * NULL; or why the connection ends. @h is not wrong.
 */
const char *flight_judge(const struct flight_head *h, const struct flight_slot *slot,
			 const struct flight_log *log, uint64_t received, uint64_t sent,
			 struct flight_found *out) must_check;

#endif
