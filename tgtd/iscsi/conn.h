/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An iSCSI connection: the part that does not depend on how bytes travel. A transport embeds it.
 *
 * Owner: the main loop until login is over, then the loop of its session until it is closed. Main
 * then owns the registry entry and the memory again. Nobody else touches it.
 */
#ifndef TGTD_ISCSI_CONN_H
#define TGTD_ISCSI_CONN_H

#include "events/loop.h"
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/iscsi/login.h"
#include "tgtd/iscsi/params.h"
#include "tgtd/iscsi/transport.h"

struct iscsi_session;
struct iscsi_task;
struct iscsi_ctl;
struct tries;
struct quiet_conn;
struct iscsi_flight;

/* RFC 7143 8.1.3: the connection's states as the target sees them. */
enum iscsi_conn_state {
	S1_FREE,
	S2_XPT_WAIT,
	S3_XPT_UP,	     /* accepted; first Login Request awaited */
	S4_IN_LOGIN,
	S5_LOGGED_IN,
	S6_IN_LOGOUT,
	S7_LOGOUT_REQUESTED, /* we asked for it by an asynchronous message */
	S8_CLEANUP_WAIT,     /* transport closing, tasks ending */
	CONN_STATES
};
/* What moves it (RFC 7143 8.1.2, T-numbers in conn.c's table). */
enum iscsi_conn_event {
	CONN_EV_ACCEPTED,    /* T3 */
	CONN_EV_LOGIN_PDU,   /* T4 */
	CONN_EV_LOGIN_DONE,  /* T5 */
	CONN_EV_LOGIN_FAILED,/* T7 */
	CONN_EV_LOGOUT_RX,   /* T9, T10 */
	CONN_EV_LOGOUT_ASKED,/* T11, T12 */
	CONN_EV_LOGOUT_DONE, /* T13 */
	CONN_EV_FAILED,	     /* T15 .. T18 */
	CONN_EV_CLEANED,     /* T8, M4 */
	CONN_EVENTS
};

struct iscsi_conn {
	/* ---- at every PDU ---- */
	const struct iscsi_transport *tp;
	struct iscsi_session *sess; /* NULL before login ends */
	struct loop *loop;
	union {
		struct {
			uint8_t state;	 /* enum iscsi_conn_state */
			bool rx_stopped; /* see transport.h */
			bool failed;	 /* ->close has been called or is about to be */
			bool plain;	 /* full feature phase of a normal
					  * session, ->collapse, and no fence */
		};
		uint8_t fast_word[4];	 /* all of it: iscsi_conn_fast() */
	};
	bool close_flush;	/* ... after what is queued has left */
	bool tp_closed;		/* iscsi_conn_closed() came */
	bool cleaned;		/* and nothing is left of it on its loop */
	uint16_t cid;
	uint32_t stat_sn;	/* next to assign */
	uint32_t exp_stat_sn;	/* acknowledged by the initiator */
	uint32_t ctl_out;	/* control PDUs with the transport: bounds
				 * what a peer can make us queue */
	uint32_t ctl_out_bytes; /* ... and what their data takes */
	struct iscsi_sink sink;
	/* the PDU between begin and end */
	struct iscsi_task *rx_task;
	struct iscsi_ctl *rx_ctl;
	uint32_t rx_len;
	uint32_t rx_max;	/* the longest data segment that a header may announce now */
	/* The fast path (fast.h): the longest Data-In that is one PDU, and the most immediate
	 * data; 0 when it is not taken at all (digests; tests) */
	uint32_t fast_max, fast_write_max;
	bool collapse;		/* status in the last Data-In: TCP at ErrorRecoveryLevel 0 */
	bool general;		/* tests: never the fast path; then iscsi_conn_renegotiated() */
	uint8_t rx_bhs[ISCSI_BHS_LEN]; /* for a Reject */
	uint64_t rx_word[4];	/* iSER: tags of the PDU being handed
				 * in, set before iscsi_rx_pdu() */
	struct iscsi_params params;
	struct list tasks;	/* iscsi_task.link */
	uint32_t round_cmd_sn;	/* ExpCmdSN as of the last iscsi_rx_round() */
	uint64_t last_rx_ns;	/* anything received: feeds the keepalive */
	struct iscsi_conn_stats stats; /* by counter_add(); anybody may read them */
	/* See ISCSI_SOLICIT_MAX. */
	uint64_t solicited;
	struct list solicit_waitq; /* iscsi_dataout.wait_link */
	struct loop_deferred solicit_later;

	struct quiet_conn *quiet; /* quiet.h; NULL: it ends with this process */
	struct iscsi_flight *flight; /* flight.h; NULL: what it does ends with this process */

	/* ---- now and then ---- */
	struct list sess_link;	/* session->conns */
	struct timer nop_timer;
	unsigned nop_interval_s, nop_count, nops_unanswered;
	uint64_t last_ping_ns;
	struct timer owed_timer; /* write data that it owes: owed.c */
	bool owed_armed;
	unsigned data_out_timeout_s, owed_misses;
	uint64_t owed_rx_ns, owed_missed_ns; /* the last that came; when some did not */
	struct timer close_timer; /* asked to log out */
	bool close_timer_armed;
	struct iscsi_text *text;
	bool text_doubt;	/* flight.h: an exchange has begun */
	struct list text_link;	/* discovery: waits for the main loop's leisure (text_request.c) */
	struct iscsi_ctl *text_next, *text_now; /* ... a request to begin with, one begun */
	uint64_t last_request_ns; /* discovery: a request has come */
	struct list ctls;	/* control requests and answers under way */
	struct loop_deferred close_later, clean_later;
	struct list unacked;	/* ERL 1: iscsi_pdu with a StatSN, sent and awaiting ExpStatSN */
	unsigned nunacked;
	uint64_t unacked_bytes; /* of their data */
	struct timer ack_timer;
	uint8_t fence_ask;	/* enum iscsi_fence_ask */
	uint32_t fence_sn;	/* ExpStatSN that a fence waits for */
	uint32_t fence_ttt;	/* of the ping that asks for it */

	/* ---- the main loop's ---- */
	struct list main_link;	/* session->main_conns */
	struct list half_open;	/* during login */
	struct list wait_link;	/* login that waits for another session to end */
	struct iscsi_login *login;
	struct iscsi_session *joined; /* registry entry; == sess from full feature phase on */
	struct timer login_timer;
	struct iscsi_pdu login_pdu;
	struct iscsi_reply *login_reply;
	void (*login_wake)(struct iscsi_conn *conn); /* what it waited for has ended */
	bool login_waiting, login_over, login_sending;
	struct tries *try_waits; /* its CHAP response waits for its turn (tries.c) */
	bool try_granted;	 /* ... and has it */
	bool kept;		/* the keeper has its socket: the end is shutdown(), too */
	bool in_ffp;		/* handed over: shown to the admin */
	bool leaving;		/* it ends, or logs out; set by its loop, main reads: atomic */
	struct loop_deferred handover_later;
	struct loop_msg msg;	/* hand-over main -> loop, and back at the end */
	struct loop_msg ctl_msg;/* main asks the loop to close it, the loop answers */
	bool ctl_msg_busy, gone;
	uint8_t close_how;	/* enum iscsi_close_how, in ctl_msg */
	uint8_t close_wanted;	/* + 1, while ctl_msg was busy */
	struct sockaddr_storage peer, local;
	uint8_t peer_bucket;	/* iscsi_address_bucket() of peer */
	uint16_t tpgt;
	int node_wish;		/* NUMA node of the adapter it came by, -1
				 * unknown; the transport may set it */
	char peer_text[64];	/* address without port */
};

static inline uint32_t iscsi_rx_max_data(const struct iscsi_conn *conn)
{
	return conn->rx_max;
}
/* Between begin() and end(): is there anything that waits for end()? */
static inline bool iscsi_rx_open(const struct iscsi_conn *conn)
{
	return conn->rx_task || conn->rx_ctl;
}

/* A discovery session's: it waits for its turn (text_request.c). False on any other loop. */
static inline bool iscsi_text_busy(const struct iscsi_conn *conn)
{
	return list_linked(&conn->text_link);
}

/* The I_T nexus that its commands come from, or NULL: it is not, or
 * never, in full feature phase. */
struct scsi_nexus *iscsi_conn_nexus(const struct iscsi_conn *conn);

/* Nothing is wrong with it, or special about it: commands may take the fast path (fast.h). */
static inline bool iscsi_conn_fast(const struct iscsi_conn *conn)
{
	static const uint8_t ordinary[4] = { S5_LOGGED_IN, false, false, true };

	return memcmp(conn->fast_word, ordinary, 4) == 0; /* one comparison */
}

/* Performs and logs a transition; an illegal one ends the connection. False then. */
bool iscsi_conn_event(struct iscsi_conn *conn, enum iscsi_conn_event ev);

/* iSER: how many control-type PDUs an initiator that keeps to our window may have on the way to us
 * at once, i.e. receives to post. */
unsigned iscsi_conn_credit(const struct iscsi_conn *conn);

#endif
