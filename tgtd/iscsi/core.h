/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of the iSCSI core tell each other. Nobody outside of tgtd/iscsi includes it.
 */
#ifndef TGTD_ISCSI_CORE_H
#define TGTD_ISCSI_CORE_H

#include "events/log.h"
#include "events/metrics.h"
#include "events/report.h"
#include "tgtd/iscsi/conn.h"
#include "tgtd/iscsi/session.h"
#include "tgtd/iscsi/task.h"

/* Addresses that count as one where many must be told apart. */
#define ISCSI_ADDRESS_BUCKETS 256

/* ---- the layer's one instance (core.c) ------------------------------------------------------- */
struct iscsi_core {
	struct iscsi_conf conf;
	struct loop *main;
	bool started, stopping;
	_Atomic bool returns; /* it stops, and another process goes on at once */
	unsigned nconns, nhalf_open; /* main */
	unsigned njoined, ndiscovery; /* connections of sessions; of discovery sessions */
	unsigned nabsent; /* known initiators without a session (known.c) */
	unsigned half_open_from[ISCSI_ADDRESS_BUCKETS];
	struct list half_open;
	struct list sessions;	     /* by TSIH, ascending */
	struct list transports;
	unsigned portals_changed; /* counts: one has come or gone */
};
extern struct iscsi_core iscsi_core;
/* The index into ->half_open_from for an address. Any thread. */
unsigned iscsi_address_bucket(const struct sockaddr_storage *a);
/* Also at start-up and at exit, when the main loop does not run. */
#define ASSERT_ON_MAIN() ASSERT(!loop_current() || loop_current() == iscsi_core.main)

struct iscsi_transport_link {
	struct list link;
	struct iscsi_transport *tp;
};

/* ---- control requests and their answers (ctl.c) ---------------------------------------------- */
/* A request other than a SCSI command or data, with room for its data segment. Also holds a PDU
 * that we send. Heap memory; freed when the answer has left. */
struct iscsi_ctl {
	struct iscsi_pending pending;
	struct iscsi_conn *conn;
	struct list link; /* conn->ctls */
	struct iscsi_pdu pdu;
	uint8_t bhs[ISCSI_BHS_LEN]; /* of the request */
	void (*after)(struct iscsi_ctl *ctl); /* the answer has left (or the
					       * connection is closing) */
	void (*take)(struct iscsi_ctl *ctl); /* discovery: what is done with it in its turn */
	bool is_immediate, sending;
	bool is_tmf; /* counts in session->tmfs_live */
	bool doubt;  /* counts in flight_slot.doubts (flight.h) */
	bool numbered; /* its CmdSN has just been taken */
	uint64_t serial;
	uint32_t len; /* room in ->data */
	uint8_t data[];
};
/* NULL: out of memory; the connection has been failed. */
struct iscsi_ctl *iscsi_ctl_new(struct iscsi_conn *conn, uint32_t len);
/* Sends ctl->pdu, whose BHS is filled in but for serial numbers; @data_len bytes of ctl->data. */
void iscsi_ctl_send(struct iscsi_ctl *ctl, uint8_t flags, uint32_t data_len);
void iscsi_ctl_free(struct iscsi_ctl *ctl);
/* Starts an answer: zeroes ctl->pdu.bhs, sets opcode, F and the ITT of the request. */
uint8_t *iscsi_ctl_answer(struct iscsi_ctl *ctl, uint8_t opcode);

/* ---- connections ----------------------------------------------------------------------------- */
void iscsi_conn_end(struct iscsi_conn *conn, bool flush, const char *why);
/* Something of it has ended: is it all gone? */
void iscsi_conn_check_cleaned(struct iscsi_conn *conn);
/* What follows from the parameters, which text may change in full feature phase, and from a
 * fence that comes or goes. */
void iscsi_conn_renegotiated(struct iscsi_conn *conn);
void iscsi_nop_start(struct iscsi_conn *conn);
void iscsi_nop_stop(struct iscsi_conn *conn);
/* The node of the adapter that has this address, -1 unknown. Main. */
int iscsi_address_node(const struct sockaddr *addr);
/* Bound what a peer can make us queue. The first is called when an answer whose data takes @bytes
 * of memory goes to the transport, the second when it has left. */
void iscsi_conn_throttle(struct iscsi_conn *conn, uint32_t bytes);
void iscsi_conn_unthrottle(struct iscsi_conn *conn, uint32_t bytes);

/* ---- room (room.c), main loop ---------------------------------------------------------------- */
/* A login that fails: may its connection stay until the reason has been read? */
bool iscsi_room_to_linger(void);
/* Is there room for one more connection of a normal session, for which @l asks? */
bool iscsi_room_for_normal(const struct iscsi_login *l);
/* Is there room for the discovery session that @conn logs in to? *silent: the connection of another
 * discovery session that has to be closed for it, or NULL. */
bool iscsi_room_for_discovery(const struct iscsi_conn *conn, struct iscsi_conn **silent);
/* A discovery session that has had a request within this time is neither reinstated nor closed to
 * make room. */
#define DISCOVERY_AT_WORK_NS (2 * NSEC_PER_SEC)
bool iscsi_discovery_at_work(const struct iscsi_conn *conn);

/* ---- known initiators (known.c), main loop --------------------------------------------------- */
/* A session of this name with @t is there from now on, or no more. */
void iscsi_known_session(const struct scsi_target *t, const char *name, bool begins);
/* Has the administrator named it, and has it no session with @t? */
bool iscsi_known_absent(const struct scsi_target *t, const char *name);

/* ---- login (handover.c), main loop ----------------------------------------------------------- */
bool iscsi_login_begin(struct iscsi_conn *conn, const uint8_t *bhs, uint32_t ahs_len);
bool iscsi_login_end(struct iscsi_conn *conn);
void iscsi_login_start(struct iscsi_conn *conn);
void iscsi_login_stop(struct iscsi_conn *conn);

/* Of conn->joined: what its target says of connections; main shows it from now on. */
void iscsi_conn_joins(struct iscsi_conn *conn);
/* Full feature phase begins, on conn->loop, which main has given it to. Without @reads nothing is
 * received before its ->rx_resume. */
void iscsi_enter_ffp(struct iscsi_conn *conn, bool reads);

/* ---- wrong CHAP answers (tries.c), main loop ------------------------------------------------- */
void iscsi_tries_start(void);
/* May a CHAP response for @user be verified now? LOGIN_OK; LOGIN_PENDING: conn->login_wake() will
 * be called when it may, then ask again; LOGIN_OUT_OF_RESOURCES: too many wait. */
uint16_t iscsi_tries_may(struct iscsi_conn *conn, const char *user);
/* It was wrong. */
void iscsi_tries_failed(struct iscsi_conn *conn, const char *user);
/* The connection waits no more, if it did. */
void iscsi_tries_leave(struct iscsi_conn *conn);

/* ---- registry (registry.c), main loop -------------------------------------------------------- */
/* As iscsi_session_event(), for what main knows of it. */
bool iscsi_registry_event(struct iscsi_session *s, enum iscsi_session_event ev);
/* A session of a target has begun, or ended (REPORT_LOGIN, REPORT_LOGOUT). Main thread. */
void iscsi_session_report(const struct iscsi_session *s, const char *address,
			  enum report_kind kind);
uint16_t iscsi_registry_establish(struct iscsi_conn *conn);
void iscsi_registry_window(struct iscsi_conn *conn, uint32_t *exp_cmd_sn, uint32_t *max_cmd_sn);
/* On the loop: nothing is left of the connection there. */
void iscsi_registry_conn_gone(struct iscsi_conn *conn);
/* Main: the connection shall end, ... */
enum iscsi_close_how {
	CLOSE_SILENTLY, /* ... as the initiator knows: it reinstates it, or its session */
	CLOSE_ASK,	/* ... by asking the initiator to log out */
	CLOSE_CONN,	/* ... which is announced: it alone */
	CLOSE_SESSION,	/* ... with all others of its session */
};
void iscsi_registry_close(struct iscsi_conn *conn, enum iscsi_close_how how);
/* @target is being deleted: its logins end. Connections that have completed their login keep it in
 * memory. */
void iscsi_registry_no_logins(const struct scsi_target *target);
/* Any loop: all sessions of its target but @s itself are to end. */
void iscsi_registry_drop_others(const struct iscsi_session *s);
/* As iscsi_stop(); @grace_ms is also what the initiators are told, rounded down to seconds. Of
 * sessions for which @stays (NULL: none) is true nothing is done, and none is waited for. */
void iscsi_registry_stop(unsigned grace_ms, bool (*stays)(const struct iscsi_session *s),
			 void (*done)(void *arg), void *arg);
/* A session that is in no list yet, of @target (NULL: discovery), on one of its event threads.
 * NULL: out of memory. */
struct iscsi_session *iscsi_registry_session_new(struct scsi_target *target,
						 int node_wish) must_check;
void iscsi_registry_session_free(struct iscsi_session *s);
/* ->asked no more: it is freed if it has ended meanwhile. */
void iscsi_registry_answered(struct iscsi_session *s);
void iscsi_registry_add_conn(struct iscsi_session *s, struct iscsi_conn *conn);
/* @s, which has been filled in, was logged in to another process: from now on it is to this one.
 * False: its TSIH is taken. */
bool iscsi_registry_adopt(struct iscsi_session *s) must_check;
/* The TSIH that is tried next; @next, if it is not 0, is the one from now on. */
uint16_t iscsi_registry_next_tsih(uint16_t next);
void iscsi_portals_close(void);

/* ---- whose a session is (owner.c), main loop ------------------------------------------------- */
/* Has this login proven the account that made @s? By name: it may have been deleted and made anew
 * meanwhile. A session made without authentication is that of who needs none. */
bool iscsi_owner_same(const struct iscsi_session *s, const struct iscsi_login *l);
/* The login is about to have a session of its own. LOGIN_AUTHORIZATION_FAILURE: another account has
 * one under the same initiator name. LOGIN_PENDING: so it is, but *wait ends: ask again then. */
uint16_t iscsi_owner_check(const struct iscsi_login *l, struct iscsi_session **wait);
/* Has anybody but @user a session with @t under this name, unless that is tied to @user? */
bool iscsi_owner_other(const struct scsi_target *t, const char *iqn, const char *user);

/* ---- sessions (session.c), their loop -------------------------------------------------------- */
void iscsi_session_init(struct iscsi_session *s);
/* Performs and logs a transition; an illegal one ends its connections, and nothing else. False
 * then. */
bool iscsi_session_event(struct iscsi_session *s, enum iscsi_session_event ev);
/* First connection has arrived: joins the target. 0 or -errno. */
int iscsi_session_attach(struct iscsi_session *s, struct iscsi_conn *conn) must_check;
void iscsi_session_conn_left(struct iscsi_session *s);
/* Closes all its connections. */
void iscsi_session_drop(struct iscsi_session *s, const char *why);
void iscsi_session_check_end(struct iscsi_session *s);
typedef bool iscsi_task_match(struct iscsi_task *t, const void *key);
/* Calls done(arg) when no task is left that @match accepts and whose serial is before @before. */
void iscsi_session_await(struct iscsi_session *s, uint64_t before, iscsi_task_match *match,
			 const void *key, void (*done)(void *arg), void *arg);
/* A task has ended: somebody may have waited for it. */
void iscsi_session_task_ended(struct iscsi_session *s);

/* ---- tasks (task.c) -------------------------------------------------------------------------- */
/* @tas: with TASK ABORTED, or the status that it has. */
void iscsi_task_abort(struct iscsi_task *t, bool tas);
/* Aborts every task that @match accepts, then done(arg). @tas: as scsi_transport_ops.abort_all has
 * it. */
void iscsi_session_abort(struct iscsi_session *s, iscsi_task_match *match, const void *key,
			 bool tas, void (*done)(void *arg), void *arg);
/* Nothing more will come for it: answers, or vanishes. */
void iscsi_task_finish(struct iscsi_task *t);
/* Ends it without a trace on the wire: never started, or response and segments are back. */
void iscsi_task_end(struct iscsi_task *t);
/* Status is known and no data is to come: send what has to be sent
 * (response.c), when it is its turn. */
void iscsi_task_respond(struct iscsi_task *t);
/* Ends it without a response, when its PDUs are back: completed, or never started. */
void iscsi_task_end_silently(struct iscsi_task *t);
/* Its data was lost while it waited for its turn in CmdSN order, which has come: it
 * is answered, never started. */
void iscsi_task_answer_lost(struct iscsi_task *t);
/* It may be answered now if it was waiting for data. */
void iscsi_task_data_over(struct iscsi_task *t);

/* A command that the process before this one had taken, and not answered (rx.c, flight_form.h).
 * @data: all data of a write that waits (FLIGHT_WRITE); else NULL. */
struct flight_cmd;
void iscsi_rx_again(struct iscsi_conn *conn, const struct flight_cmd *before, const uint8_t *data);

/* ---- one request each; all free @ctl sooner or later ----------------------------------------- */
void iscsi_nop_out(struct iscsi_ctl *ctl);
void iscsi_tmf_request(struct iscsi_ctl *ctl);
void iscsi_text_request(struct iscsi_ctl *ctl); /* text_request.c */
void iscsi_logout_request(struct iscsi_ctl *ctl);
void iscsi_snack_request(struct iscsi_ctl *ctl);
/*
 * Discovery sessions (text_request.c), main loop: @take(ctl) is called when it is its turn;
 * meanwhile its connection is not read.
 */
void iscsi_text_later(struct iscsi_ctl *ctl, void (*take)(struct iscsi_ctl *ctl));
/* The gap before requests that were held is closed: one at a time is taken, in its turn. */
void iscsi_text_held(struct iscsi_conn *conn);
/* Is an answer that has begun not over? */
static inline bool iscsi_text_open(const struct iscsi_conn *conn)
{
	return conn->text && (conn->text->answering || conn->text->ttt != ISCSI_TAG_NONE);
}
/* The connection ends. */
void iscsi_text_forget(struct iscsi_conn *conn);
/* Sends a Reject with the header of the rejected PDU. */
void iscsi_reject(struct iscsi_conn *conn, enum iscsi_reject_reason reason, const uint8_t *bhs);
/* With its additional header segments; for a Data/R2T SNACK with the next DataSN or R2TSN of the
 * task (11.17.3). */
void iscsi_reject_whole(struct iscsi_conn *conn, enum iscsi_reject_reason reason,
			const uint8_t *bhs, const uint8_t *ahs, uint32_t ahs_len);
void iscsi_reject_snack(struct iscsi_conn *conn, enum iscsi_reject_reason reason,
			const uint8_t *bhs, uint32_t next_sn);
/* The same for a control request, which ends with that, as if its CmdSN had not come. It must be
 * the first thing that is done for the request: no PDU may have been stamped since its CmdSN was
 * taken. */
void iscsi_ctl_refuse(struct iscsi_ctl *ctl, enum iscsi_reject_reason reason);
/* Asynchronous message (RFC 7143 11.9) with its three parameters;
 * without data, i.e. no SCSI event. */
/* How many seconds the initiator is to wait before it connects again (RFC 7143 11.9, 11.15.3). On
 * @conn's loop. */
uint16_t iscsi_time2wait(const struct iscsi_conn *conn);
void iscsi_async_send(struct iscsi_conn *conn, enum iscsi_async_event event, uint16_t p1,
		      uint16_t p2, uint16_t p3);
void iscsi_ask_logout(struct iscsi_conn *conn, uint16_t seconds);
/* Ends the connection on our side. Tells the initiator by @event (2 or 3) that, and when it may log
 * in again. */
void iscsi_conn_drop(struct iscsi_conn *conn, enum iscsi_async_event event, const char *why);

/* ---- ErrorRecoveryLevel 1 (retain.c, snack.c) ------------------------------------------------ */
static inline bool iscsi_recovers(const struct iscsi_conn *conn)
{
	return unlikely(conn->params.error_recovery_level > 0) && !conn->failed;
}
/* A PDU with a StatSN has left: keeps it until it is acknowledged. False: it is already. */
bool iscsi_keep(struct iscsi_conn *conn, struct iscsi_pdu *pdu);
/* Takes it out of what is kept. */
void iscsi_unkeep(struct iscsi_conn *conn, struct iscsi_pdu *pdu);
/* ExpStatSN has moved (task.c). */
void iscsi_acked(struct iscsi_conn *conn);
/* The connection ends: nothing will be asked for again (task.c). */
void iscsi_forget(struct iscsi_conn *conn);
#define ISCSI_ACK_MS 1000 /* what is not acknowledged by then is asked for by a ping */
void iscsi_snack_start(struct iscsi_conn *conn);
/* Notes a Data-In PDU that is being sent. False: out of memory. */
bool iscsi_sent_note(struct iscsi_task *t, uint32_t sn, uint32_t off, uint32_t len, uint8_t flags);
/* A segment has been sent: kept until it is acknowledged. */
void iscsi_seg_keep(struct iscsi_task *t, struct scsi_seg *seg);
void iscsi_seg_release_all(struct iscsi_task *t);
/* The segments whose last DataSN lies before @sn are acknowledged. */
void iscsi_seg_release(struct iscsi_task *t, uint32_t sn);
/* Sends it a second time. */
void iscsi_pdu_again(struct iscsi_conn *conn, struct iscsi_pdu *pdu);
/* The PDUs that a R-Data SNACK had to wait for are back. */
void iscsi_resegment(struct iscsi_task *t);
/* @flags: further PDU_F_*. */
void iscsi_ping(struct iscsi_conn *conn, uint8_t flags);

/* scsi_transport_ops.send and .complete (response.c) */
void iscsi_op_send(struct scsi_cmd *cmd, struct scsi_seg *seg);
void iscsi_op_complete(struct scsi_cmd *cmd);

extern const struct scsi_transport_ops iscsi_scsi_ops;
/* The same for sessions with a flight record (flight.h). */
extern const struct scsi_transport_ops iscsi_flight_scsi_ops;

#endif
