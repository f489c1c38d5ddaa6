/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sessions over TCP that do nothing when this process dies go on in the next one: no login, no unit
 * attention. What they are lies in slots (quiet_form.h) in a memfd that the keeper has, too, and
 * their sockets as of carry.h. Of all this nothing is there without a keeper.
 *
 * A session that had anything under way logs in again: its slot does not fit what the kernel has
 * counted on its sockets. quiet.c writes, carry_back.c goes on.
 */
#ifndef TGTD_ISCSI_QUIET_H
#define TGTD_ISCSI_QUIET_H

#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/quiet_form.h"

#define QUIET_KEY "quiet"

/* ---- main ---- */
/* Slots for @sessions. 0 or -errno: no session goes on then. */
int iscsi_quiet_start(unsigned sessions) must_check;
void iscsi_quiet_stop(void);
/* The memfd, -1: there is none. */
int iscsi_quiet_fd(void);
/* A slot for @s, which no loop has yet, and which is not for discovery. None: it does not go on. */
void iscsi_quiet_session(struct iscsi_session *s);
/* No loop has it any more. */
void iscsi_quiet_forget(struct iscsi_session *s);
/* The keeper gets the socket of @conn, whose login is over and which no loop has yet; or has it
 * already. */
void iscsi_quiet_keep(struct iscsi_conn *conn, bool has_it);
/* It has ended: the keeper lets go of its socket. */
void iscsi_quiet_drop(struct iscsi_conn *conn);
/* The slots of the process before, @fd, as a record of carry_form.h, which the caller frees; *@len,
 * *@n sessions, *@not others that were there. NULL: there are none. */
void *iscsi_quiet_read(int fd, size_t *len, unsigned *n, unsigned *not_quiet) must_check;

/* ---- the session's loop ---- */
/* In full feature phase from now on, or no more. */
void iscsi_quiet_enter(struct iscsi_conn *conn);
void iscsi_quiet_leave(struct iscsi_conn *conn);
/* iscsi_quiet_point(): transport.h. */
/* It goes on from the process before, has nothing under way, and reads nothing yet: @received and
 * @sent went through its socket. */
void iscsi_quiet_arrives(struct iscsi_conn *conn, uint64_t received, uint64_t sent);
/* What the record has of it has changed. */
static inline void iscsi_quiet_changes(struct iscsi_session *s)
{
	if (s->quiet)
		__atomic_fetch_add(&s->quiet->changes, 1, __ATOMIC_RELAXED);
}

#endif
