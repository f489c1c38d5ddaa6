/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An iSCSI session: an I_T nexus with up to eight connections, its command numbering (RFC 7143
 * 4.2.2.1) and its tasks.
 *
 * Owned by one loop, which has all its connections as well. So CmdSN order, window and task table
 * need no lock. The *registry* part (who is logged in, TSIH, connections as the admin sees them)
 * belongs to the main loop. The two sides send each other messages.
 */
#ifndef TGTD_ISCSI_SESSION_H
#define TGTD_ISCSI_SESSION_H

#include "tgtd/iscsi/conn.h"
#include "tgtd/iscsi/fence.h"
#include "tgtd/iscsi/task.h"

#define ISCSI_CMD_WINDOW 128	/* queue depth of a session: MaxCmdSN - ExpCmdSN + 1 at rest */
#define ISCSI_IMMEDIATE_MAX 32	/* immediate commands in flight at once; more get a Reject */
#define ISCSI_HELD_BYTES MiB(1) /* data of requests that wait for an
				 * earlier CmdSN; more get a Reject */
#define ISCSI_TMFS_MAX 128	/* task management requests in flight at once; more get a Reject */
#define ISCSI_MAX_CONNS 8	/* MaxConnections */
#define ISCSI_TASK_BUCKETS 64	/* a power of two */

/*
 * RFC 7143 8.3, as a target sees it. The main loop and the session's loop have a table each, since
 * what the one knows reaches the other by message: registry.c's and session.c's. Only
 * iscsi_registry_event() and iscsi_session_event() change a state. No session gets to Q5: nothing
 * is kept for Time2Retain below ErrorRecoveryLevel 2.
 */
enum iscsi_session_state {
	Q1_FREE = 1,  /* main: no loop has it (any more); loop: nothing of it is left there */
	Q2_ACTIVE,    /* main: the leading login is under way; loop: it is about to come */
	Q3_LOGGED_IN,
	Q4_FAILED,    /* all its connections are to end; no further one may join */
	Q5_IN_CONTINUE,
	SESSION_STATES
};
enum iscsi_session_event {
	SESSION_EV_LOGIN,     /* main: the leading login may have a session */
	SESSION_EV_LOGGED_IN, /* full feature phase of the leading connection begins */
	SESSION_EV_CLOSE,     /* all its connections are to end, or the last one has */
	SESSION_EV_CLEANED,   /* its loop is through with it */
	SESSION_EVENTS
};

struct quiet_slot;
struct iscsi_flight;

struct iscsi_session {
	/* ---- the loop's ---- */
	struct loop *loop;
	uint32_t exp_cmd_sn;	/* next non-immediate command to run */
	uint32_t max_cmd_sn;	/* last advertised */
	uint32_t in_window;	/* non-immediate tasks between arrival and response */
	uint32_t window;	/* ISCSI_CMD_WINDOW, or less (tgtadm: MaxQueueCmd) */
	uint32_t immediates;	/* immediate requests in flight */
	struct iscsi_task *tasks[ISCSI_TASK_BUCKETS]; /* by ITT */
	struct list conns;	/* iscsi_conn.sess_link, in full feature phase */
	struct list held;	/* iscsi_pending, by CmdSN */
	uint64_t held_bytes;	/* data of the requests there */
	unsigned tmfs_live;	/* task management requests whose answer has not left */
	uint32_t next_ttt;
	uint64_t spilled;	/* bytes of iscsi_spill that its tasks have */
	struct scsi_nexus nexus; /* ->target NULL: it has not joined one */
	uint8_t loop_state;	/* enum iscsi_session_state, as the loop knows it */
	bool discovery;
	struct iscsi_params params; /* as the leading connection negotiated them */
	struct iscsi_offer offer;   /* the target's, for renegotiation */
	struct list waits;	/* abort_wait: task management that waits for tasks to end */
	unsigned tmfs;		/* task management functions under way */
	struct iscsi_fence fence;
	uint64_t next_serial;	/* of tasks */
	struct quiet_slot *quiet; /* quiet.h; NULL: it ends with this process. Fixed, main's */
	struct iscsi_flight *flight; /* flight.h; NULL: what it does ends with this process */
	bool flight_used;	/* a connection has had it */
	uint64_t quiet_next_ns;	/* before, it is not recorded again */
	bool carrying;		/* it is being brought to rest, for another process (carry.c) */

	/* ---- the main loop's ---- */
	struct list link;	/* registry */
	uint8_t state;		/* enum iscsi_session_state, as main knows it */
	uint16_t tsih;
	uint16_t tpgt;
	uint8_t isid[6];
	struct scsi_target *target;
	struct scsi_home *home;	/* whose loop is ->loop; NULL: main is */
	struct list main_conns;	/* iscsi_conn.main_link: from establish to free */
	unsigned nconns;
	bool asked;		/* its loop has a message of carry.c: it is not freed */
	bool carry_knows;	/* carry.c has asked it, or leaves it */
	bool iser;		/* all its connections are, or none (RFC 7145 6.3) */
	struct list waiters;	/* iscsi_conn.wait_link: logins that wait for its end */
	char initiator[224], alias[256];
	char user[TEXT_VALUE_MAX + 1]; /* account that the leading login proved; fixed */
	struct sockaddr_storage peer;  /* of the leading connection; fixed */
	struct loop_msg msg;	/* loop -> main: SESSION_EV_CLEANED */
};

extern const char *const iscsi_session_states[SESSION_STATES];
extern const char *const iscsi_session_events[SESSION_EVENTS];
/* main: it ends, or is only there until its connections have gone. */
static inline bool iscsi_session_leaves(const struct iscsi_session *s)
{
	return s->state == Q4_FAILED || s->state == Q1_FREE;
}

/* Loop of the session. What every command passes through is inline. */

/* Is there one with this number among those that wait? */
bool iscsi_session_holds(const struct iscsi_session *s, uint32_t cmd_sn);

/* Where does a non-immediate request stand? -EAGAIN: seen already or outside of the window: drop it
 * silently (RFC 7143 4.2.2.1), so that no more can wait than the window has numbers.
 * 0: take it now. 1: hold it. */
static inline int iscsi_session_order(const struct iscsi_session *s, uint32_t cmd_sn)
{
	if (unlikely(sn_lt(cmd_sn, s->exp_cmd_sn) || sn_lt(s->max_cmd_sn, cmd_sn)))
		return -EAGAIN;
	if (likely(cmd_sn == s->exp_cmd_sn))
		return 0;
	return iscsi_session_holds(s, cmd_sn) ? -EAGAIN : 1;
}

/* The request with ExpCmdSN is being taken. (Main looks at it for login responses.) */
static inline void iscsi_session_take(struct iscsi_session *s)
{
	__atomic_store_n(&s->exp_cmd_sn, s->exp_cmd_sn + 1, __ATOMIC_RELAXED);
}

/* Then: runs what waited for that (each is taken before its run()). */
void iscsi_session_run_held_slow(struct iscsi_session *s);
static inline void iscsi_session_run_held(struct iscsi_session *s)
{
	if (unlikely(!list_empty(&s->held)))
		iscsi_session_run_held_slow(s);
}
/* The same for the first of them. True: there was one. */
bool iscsi_session_run_one_held(struct iscsi_session *s);
/* Would that find one? */
bool iscsi_session_held_ready(const struct iscsi_session *s);
/* @p waits in the order of its CmdSN, then ->run; or ->drop when its connection ends first. */
void iscsi_session_hold(struct iscsi_session *s, struct iscsi_pending *p);
/* @cmd_sn will not come, or shall have no effect when it comes (ABORT TASK of a command not
 * arrived, RFC 7143 11.5.1). Is it not the next one, then no record of flight.h holds from now
 * on. The session's loop. */
void iscsi_session_skip(struct iscsi_session *s, uint32_t cmd_sn);

static inline unsigned iscsi_itt_bucket(uint32_t itt)
{
	static_assert(ISCSI_TASK_BUCKETS == 64, "six bits");
	return (itt * 0x9e3779b1u) >> 26;
}

static inline struct iscsi_task *iscsi_session_task(struct iscsi_session *s, uint32_t itt)
{
	struct iscsi_task *t = s->tasks[iscsi_itt_bucket(itt)];

	while (t && t->itt != itt)
		t = t->hash_next;
	return t;
}

static inline void iscsi_session_task_add(struct iscsi_session *s, struct iscsi_task *t)
{
	struct iscsi_task **head = &s->tasks[iscsi_itt_bucket(t->itt)];

	t->hash_next = *head;
	*head = t;
	t->hashed = true;
	t->serial = s->next_serial++;
}

/* It is in there; t->hashed is the caller's. */
static inline void iscsi_session_task_unlink(struct iscsi_session *s, struct iscsi_task *t)
{
	struct iscsi_task **p = &s->tasks[iscsi_itt_bucket(t->itt)];

	while (unlikely(*p != t))
		p = &(*p)->hash_next;
	*p = t->hash_next;
}

static inline void iscsi_session_task_del(struct iscsi_session *s, struct iscsi_task *t)
{
	if (!t->hashed)
		return;
	iscsi_session_task_unlink(s, t);
	t->hashed = false;
}

#endif
