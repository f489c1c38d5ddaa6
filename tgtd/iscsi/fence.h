/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Response fences of a session (RFC 7143 4.2.2.3). A fenced response comes after all responses
 * before it, and before all that follow it, on whichever of the session's connections they are. See
 * fence.c. All on the session's loop.
 */
#ifndef TGTD_ISCSI_FENCE_H
#define TGTD_ISCSI_FENCE_H

#include "events/loop.h"

struct iscsi_conn;
struct iscsi_pending;
struct iscsi_session;

enum iscsi_fence_phase {
	FENCE_NONE,   /* responses leave as they come */
	FENCE_BEFORE, /* the first of ->queue waits until those before it are acknowledged */
	FENCE_AFTER,  /* it has been sent; ->queue waits until it is acknowledged */
};

/* Of a connection: what is awaited of it. */
enum iscsi_fence_ask {
	FENCE_NOTHING,
	FENCE_ASKED,  /* the ping has not been stamped yet */
	FENCE_NOTED,  /* conn->fence_sn shall be acknowledged */
};

struct iscsi_fence {
	uint8_t phase;		 /* enum iscsi_fence_phase */
	unsigned awaited;	 /* connections that have not acknowledged */
	unsigned fenced;	 /* in ->queue */
	struct list queue;	 /* iscsi_pending.link: responses, as the device server gave them */
	struct iscsi_conn *conn; /* FENCE_AFTER: whose the fenced one is; NULL once it has ended */
	struct timer deadline;
};

void iscsi_fence_init(struct iscsi_session *s);
/* @p->run sends a response of @p->conn: calls it, at once or in its turn; or ->drop, when
 * the connection ends first. */
void iscsi_fence_pass(struct iscsi_session *s, struct iscsi_pending *p, bool fenced);
/* ExpStatSN of @conn has moved, and conn->fence_ask says that this matters. */
void iscsi_fence_acked(struct iscsi_conn *conn);
/* A ping with @ttt was answered, and conn->fence_ask says that this matters. */
void iscsi_fence_answered(struct iscsi_conn *conn, uint32_t ttt);
/* A PDU with PDU_F_FENCE, the ping with @ttt, is being stamped: what was sent so far is
 * what shall be acknowledged. */
void iscsi_fence_note(struct iscsi_conn *conn, uint32_t ttt);
/* Its transport is closed, or about to be: it neither delivers nor
 * acknowledges anything any more. */
void iscsi_fence_conn_left(struct iscsi_conn *conn);

#endif
