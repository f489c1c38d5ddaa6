/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One initiator connection, which is one session: its socket, what is queued to be sent, where the
 * parser stands, and its commands in flight.
 *
 *   submit: conn_issue() puts a command PDU (and unsolicited data) on the send queue
 *   flush:  conn_flush() hands everything queued to one sendmsg
 *   rx:     conn_rx() does one recv into a large buffer and parses in place, calling done() for
 *           each command that ended
 *
 * Nothing is allocated after conn_open(). A connection belongs to one thread.
 */
#ifndef TOOLS_BENCH_TGT_LOAD_CONN_H
#define TOOLS_BENCH_TGT_LOAD_CONN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "tools/bench/tgt-load/opts.h"
#include "tools/bench/tgt-load/wire.h"

enum {
	HBUF_SIZE = 512 << 10, /* of headers and small data to be sent */
	IOV_CAP = 8192,
	SLOT_BITS = 12,
};
_Static_assert(DEPTH_MAX <= 1 << SLOT_BITS, "a slot's index fits its tag");

/* A logical unit under load; shared read-only, but for gen and busy (verification, one thread). */
struct lu {
	unsigned index;
	unsigned lun;
	uint32_t block_size;
	uint64_t blocks;
	uint64_t range; /* bytes from 0 that are used, a multiple of the largest I/O size */
	uint32_t *gen;  /* per 512 bytes: generation last acknowledged, 0 = unknown */
	uint32_t *owed; /* per 512 bytes: generation being written */
	uint8_t *busy;  /* per 512 bytes: an I/O is in flight there */
};

/* A command in flight. The low bits of its initiator task tag are its index in conn.slot. */
struct slot {
	uint64_t start;  /* ns; in open-loop mode when it was due, not when it could go */
	uint64_t offset; /* bytes */
	struct lu *lu;
	uint8_t *data; /* write: what is sent; read under verification: where it lands */
	uint32_t len;
	uint32_t got;
	uint32_t itt;
	uint16_t use;
	bool write;
	bool lax; /* fewer bytes than asked for are fine (setup commands) */
	bool active;
};

/* A run of Data-Out PDUs owed: unsolicited, or asked for by an R2T. */
struct owed {
	struct slot *slot;
	uint32_t at;
	uint32_t end;
	uint32_t ttt;
	uint32_t data_sn;
};

/* What the negotiation left in force. */
struct agreed {
	struct keys keys;
	uint32_t max_send_segment;
};

struct conn_counts {
	uint64_t sends;
	uint64_t recvs;
	uint64_t empty_recvs;
	uint64_t pings;
};

struct conn;

/* A command ended: status is the SCSI status. Called while parsing; the slot is free afterwards. */
typedef void conn_done_fn(struct conn *c, struct slot *s, uint8_t status);

struct conn {
	int fd;
	bool dead;
	bool draining; /* the target asked for a logout, or we are leaving: nothing new is issued */
	bool tx_blocked;
	unsigned index; /* among all connections */
	unsigned local; /* among its worker's */
	void *owner;
	conn_done_fn *done;
	const struct opts *opts;
	struct agreed agreed;
	char why[200]; /* of death */

	uint32_t cmd_sn;
	uint32_t exp_stat_sn;
	uint32_t max_cmd_sn;

	unsigned depth;
	unsigned nfree;
	uint16_t *free;
	struct slot *slot;

	/* receive side */
	uint8_t *rbuf;
	uint32_t rsize, rpos, rend;
	uint32_t hdr_len;   /* of a PDU with no AHS: BHS and header digest */
	uint32_t data_left; /* data bytes of the current PDU still to come */
	uint32_t tail_left; /* then pad and digest bytes */
	uint32_t pad_left;  /* of the tail, how many are pad */
	uint32_t crc;
	uint8_t tail[4];
	bool in_body;
	struct slot *body_slot; /* Data-In: whose data */
	struct slot *end_slot;  /* whose command ends with this PDU */
	uint8_t end_status;
	uint32_t body_at;   /* offset in the command's data of the next body byte */
	uint8_t text[1024]; /* a small data segment kept: sense, login text, reject */
	uint32_t text_len;
	bool keep_text;

	/* send side */
	struct iovec *iov;
	unsigned iov_at, iov_n;
	uint8_t *hbuf;
	uint32_t hbuf_n;
	struct owed *owed;
	unsigned owed_at, owed_n, owed_cap;
	const uint8_t *pattern; /* what is written when not verifying */
	uint32_t crc_cache_at[64], crc_cache_len[64], crc_cache[64];

	struct conn_counts counts;
};

/* Monotonic time in ns. */
uint64_t now_ns(void);

/*
 * Connect, log in to `target` and clear unit attentions; the connection is then in full feature
 * phase and its socket non-blocking. `depth` commands can be in flight. Returns 0, or -1 with the
 * reason in c->why; either way conn_close() frees what was taken. May block for up to 10 s.
 */
int conn_open(struct conn *c, const struct opts *o, const char *target, unsigned index,
	      unsigned depth);

/* Log out when still possible, close and free. May block for up to a second. */
void conn_close(struct conn *c);

/*
 * During setup only (nothing in flight): one command with up to n bytes of data in, blocking.
 * Returns the SCSI status, or -1 when the connection died. *got, when wanted, is how many bytes
 * came.
 */
int conn_exec(struct conn *c, unsigned lun, const uint8_t *cdb, unsigned cdb_len, void *data,
	      uint32_t n, uint32_t *got);

/*
 * Queue one read or write. There must be a free slot (c->nfree > 0) and window (conn_window()).
 * `data` as in struct slot, NULL to write the pattern or to drop what is read. Returns the slot.
 */
struct slot *conn_issue(struct conn *c, struct lu *lu, bool write, uint64_t offset, uint32_t len,
			uint8_t *data, uint64_t start);

/* Send what is queued, as far as the socket takes it. Returns 0, or -1 when the connection died. */
int conn_flush(struct conn *c);

/*
 * One recv and parse; done() is called for every command that ended. When bytes came, *now (may be
 * NULL) is set to the time after the receive, before parsing. Returns the bytes received, 0 when
 * there were none, -1 when the connection died.
 */
int conn_rx(struct conn *c, uint64_t *now);

/* Whether the session's command window is open (RFC 7143, 4.2.2.1) and nothing forbids a command.
 */
static inline bool conn_window(const struct conn *c)
{
	return (int32_t)(c->max_cmd_sn - c->cmd_sn) >= 0 && !c->draining && !c->dead;
}

/* conn.c, login.c, tx.c and rx.c between themselves. */

/*
 * Queue a PDU: the header is copied, n bytes of data must stay until they are sent. `at`: they are
 * the pattern's from there on, whose digests are remembered; -1 for other data.
 */
void conn_tx_pdu(struct conn *c, uint8_t *bhs, const uint8_t *data, uint32_t n, int64_t at);

/* Data-Out for bytes [at, end) of the command is to follow; 0, or -1 with c->why. */
int conn_owe(struct conn *c, struct slot *s, uint32_t at, uint32_t end, uint32_t ttt);

/* Log in over a connected blocking socket; 0, or -1 with c->why. */
int login_run(struct conn *c, const char *target);

/* End the connection with a reason; always returns -1. */
int conn_fail(struct conn *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
