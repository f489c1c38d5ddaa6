/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A TCP connection: what tcp.c, rx.c and tx.c of this folder share. */
#ifndef TGTD_TCP_CONN_H
#define TGTD_TCP_CONN_H

#include <sys/uio.h>
#include "events/log.h"
#include "events/metrics.h"
#include "tgtd/iscsi/conn.h"
#include "tgtd/iscsi/flight.h"
#include "tgtd/iscsi/transport.h"
#include "tgtd/tcp/tcp.h"

#define TCP_RX_BUF FLIGHT_RX_BYTES /* asked of one receive call */
#define TCP_RX_STASH 96		 /* a piece of a header that may wait without a whole buffer */
#define TCP_TX_IOVS FLIGHT_IOVS
#define TCP_TX_HEADERS FLIGHT_HEADERS
#define TCP_TX_BYTES (4u << 20)	 /* about so much payload in it */
#define TCP_TX_DEADLINE_S 60	 /* a peer that takes nothing for so long is gone */
#define TCP_LINGER_MS 1000	 /* for a last response to be read before the socket closes */

enum tcp_rx_state { RX_HEADER, RX_DATA, RX_TRAILER };

/* A receive buffer. Only connections with bytes in flight have one: see bufpool.c. */
struct tcp_rx_buf {
	uint8_t data[TCP_RX_BUF];
	struct tcp_rx_buf *next;
};
static_assert(sizeof(struct tcp_rx_buf) <= FLIGHT_RX_ROOM, "it may outlive the process");

/* A send under way: everything that sendmsg() points to and that has no other home. */
struct tcp_tx_batch {
	struct flight_log log; /* all of it but PDUs' own headers, and what iovecs point to */
	struct tcp_tx_batch *next;
	struct list pdus; /* complete in this batch, in order */
	unsigned pos;	  /* first iovec not (fully) sent */
	int node;	  /* that has its large payload, where workers send; else -1 */
	uint64_t bytes;	  /* left to send */
	uint8_t *own;	  /* heap memory of its only iovec: what the process before owed */
};
static_assert(sizeof(struct tcp_tx_batch) <= FLIGHT_TX_ROOM, "it may outlive the process");

struct tcp_conn {
	struct iscsi_conn conn;
	struct loop_fd lfd;
	/* ---- receiving ---- */
	struct tcp_rx_buf *buf;
	uint32_t head, tail;	/* unparsed bytes in buf->data */
	uint32_t skip;		/* bytes that come before them, and are thrown away */
	uint8_t rx_state;	/* enum tcp_rx_state */
	bool header_digest, data_digest; /* in force: since full feature phase */
	bool rx_busy;		/* parsing: rx_resume() must not start it again */
	uint8_t stash_len;
	uint32_t data_len, data_got; /* of the segment being received */
	uint32_t crc;
	uint64_t rx_progress;	/* bytes received in all */
	uint8_t stash[TCP_RX_STASH];
	struct loop_deferred parse_later;
	/* Of what was received last: when this connection's turn came and when it was over (0:
	 * nobody looked), and when sending the answers began (tgtd/scsi/timing.h). */
	uint64_t rx_begin_ns, rx_end_ns, tx_begin_ns;
	/* ---- sending ---- */
	struct list queue;	/* iscsi_pdu not yet (fully) in a batch */
	struct tcp_tx_batch *batch;
	bool blocked;		/* the socket is full: EPOLLOUT is armed */
	bool closing, shut, reported;
	bool away;		/* a worker has the batch, and the token to send (away.c) */
	bool finishing;		/* it ends when that is back */
	/* tx.c tells tcp.c: the queue has become empty, or the peer is gone, while closing. */
	void (*drained)(struct tcp_conn *tc);
	void (*finish)(struct tcp_conn *tc); /* the same: it was finishing, and may end now */
	/* tx.c, for away.c: the batch is back: bytes that the socket took, or -errno. */
	void (*sent)(struct tcp_conn *tc, ssize_t n);
	struct loop_msg away_msg;
	ssize_t away_result;
	struct loop_deferred flush;
	struct timer tx_timer;	/* deadline of a blocked send, or of lingering */
	uint64_t tx_progress;	/* bytes sent in all */
	uint64_t tx_seen;	/* ... when the deadline was set */
};

static inline bool tcp_tx_idle(const struct tcp_conn *tc)
{
	return !tc->batch && list_empty(&tc->queue);
}

/* All that was queued has been sent, or what came has been looked at: if that was all, it may go on
 * in another process. */
static inline void tcp_quiet(struct tcp_conn *tc)
{
	if (likely(tc->conn.quiet) && !tc->buf && !tc->stash_len && tc->rx_state == RX_HEADER &&
	    likely(!tc->skip) && tcp_tx_idle(tc))
		iscsi_quiet_point(&tc->conn, tc->rx_progress, tc->tx_progress);
}

static inline struct tcp_conn *tcp_of(struct iscsi_conn *conn)
{
	return container_of(conn, struct tcp_conn, conn);
}

/* Where the buffer is, and what of the stream is in it: the last ->tail bytes that came. */
static inline void tcp_flight_placed(struct tcp_conn *tc)
{
	struct flight_slot *slot = tc->conn.flight->slot;

	slot->rx_base = tc->rx_progress - tc->tail;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	slot->rx_buf = iscsi_flight_offset(tc->buf->data);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* It is about to move, or to go. */
static inline void tcp_flight_moves(struct tcp_conn *tc)
{
	tc->conn.flight->slot->rx_buf = 0;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* bufpool.c: buffers of this thread. NULL: out of memory. */
struct tcp_rx_buf *tcp_rx_buf_get(void);
void tcp_rx_buf_put(struct tcp_rx_buf *b);
struct tcp_tx_batch *tcp_tx_batch_get(void);
void tcp_tx_batch_put(struct tcp_tx_batch *b);

/* rx.c */
void tcp_rx_ready(struct tcp_conn *tc);
void tcp_rx_resume(struct iscsi_conn *conn);
void tcp_rx_fini(struct tcp_conn *tc);
void tcp_rx_rest(struct tcp_conn *tc); /* gives the buffer back when little is in it */
void tcp_rx_init(struct tcp_conn *tc);
/* Receives what there is behind what lies in the buffer. False: the connection has failed. */
bool tcp_rx_more(struct tcp_conn *tc);
/* Bytes of the PDU whose BHS lies at @p. */
uint32_t tcp_pdu_len(const struct tcp_conn *tc, const uint8_t *p);

/* tx.c */
void tcp_send(struct iscsi_conn *conn, struct iscsi_pdu *pdu);
void tcp_tx_init(struct tcp_conn *tc);
void tcp_tx_ready(struct tcp_conn *tc);
/* conn->flight is there: what is queued to be sent first is known to it. */
void tcp_tx_flight(struct tcp_conn *tc);
/* As iscsi_transport.owes. */
void tcp_owes(struct iscsi_conn *conn, uint8_t *bytes, uint32_t len);
/* Gives everything back unsent. */
void tcp_tx_drop(struct tcp_conn *tc);

/* away.c */
/* Bytes of one node from which a worker of it sends them; UINT32_MAX: never. */
uint32_t tcp_away_from(void);
/* Where workers send from @from bytes on: the node of the large payload that the queue begins with,
 * or -1; what begins with the first of another node's goes to @rest, an empty list. */
int tcp_away_cut(struct tcp_conn *tc, uint32_t from, struct list *rest);
/* Gives the batch, which has a node, to a worker of that if it is large enough and not here
 * already. True: nobody touches it until tcp_conn.sent() is called, on the connection's thread. */
bool tcp_away_go(struct tcp_conn *tc);
/* One sendmsg() of the batch: bytes, or -errno. Who has the token. */
ssize_t tcp_tx_call(struct tcp_conn *tc);

/* events.c: what is armed in epoll follows from the state. */
void tcp_update_events(struct tcp_conn *tc);

/* carry.c: for the process after this one, as transport.h has them. */
bool tcp_pause(struct iscsi_conn *conn);
void tcp_peek(struct iscsi_conn *conn);
int tcp_leave(struct iscsi_conn *conn, const uint8_t **bytes, uint32_t *len);
/* As iscsi_transport.skips. */
void tcp_skips(struct iscsi_conn *conn, uint32_t len);
void tcp_reset(int fd);
bool tcp_fits(int fd, const struct sockaddr_storage *peer, const struct sockaddr_storage *local);
/* What the process before had received and not parsed. False: no memory, or too long. */
bool tcp_rx_put_back(struct tcp_conn *tc, const uint8_t *bytes, uint32_t len) must_check;

/* listen.c: a socket that was accepted on the main loop is given to @accepted, which owns it. */
typedef int tcp_accept_fn(struct loop *main, int fd, const struct sockaddr_storage *peer,
			  const struct sockaddr_storage *local, unsigned short tpgt);
int tcp_listen(struct loop *main, const struct sockaddr *addr, socklen_t len, uint16_t tpgt,
	       tcp_accept_fn *accepted, void **portal);
void tcp_unlisten(void *portal);

#endif
