/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sessions over TCP that go on in the process after this one (a planned restart): no login, no unit
 * attention. carry.c gives them to the keeper, carry_back.c takes them. Main loop.
 */
#ifndef TGTD_ISCSI_CARRY_H
#define TGTD_ISCSI_CARRY_H

#include "events/base.h"

struct iscsi_carried {
	unsigned sessions, conns; /* that go on */
	unsigned ended;		  /* sessions that do not */
	unsigned busy;		  /* of the former, those that had something under way (flight.h) */
	unsigned commands;	  /* that are carried out again, or are answered */
	uint64_t owed;		  /* bytes that are sent as the process before had them */
};

/* In place of iscsi_stop(): stops accepting, brings sessions to rest, gives them to the keeper.
 * Then @done, on main: the process has to end without touching them, and what is not with the
 * keeper ends with it. Who comes to rest does not wait for who does not, but for a moment: it is
 * served until then. Takes 16 s at most, while main runs. */
void iscsi_carry(void (*done)(const struct iscsi_carried *c, void *arg), void *arg);
/* In the next process, when targets and units are there and no portal is: what was left goes on,
 * and what is in doubt is closed. Then @done, once, on main, maybe before this returns: each
 * session that goes on has what it holds of its units. Nobody else may come in before, nor change a
 * unit. */
void iscsi_carry_back(void (*done)(const struct iscsi_carried *c, void *arg), void *arg);
/* Before it, in a process that follows one that has died: something that was acknowledged is lost.
 * Then no session goes on: initiators log in, and are told by attentions. */
void iscsi_carry_lost(void);

/* ---- the session's loop ---- */
/* The window may have closed while it came to rest: an initiator that has nothing under way hears
 * of its opening by this alone. */
struct iscsi_session;
void iscsi_carry_open_window(struct iscsi_session *s);

/* ---- what is written of each (carry_form.h), of the session's loop; nluns, nconns and what is of
 * all LUNs are the caller's ---- */
struct carry_session;
struct carry_lun;
struct carry_conn;
struct iscsi_conn;
struct scsi_carried_lun;
void carry_fill_session(struct carry_session *r, const struct iscsi_session *s);
void carry_fill_lun(struct carry_lun *r, const struct scsi_carried_lun *l);
void carry_fill_conn(struct carry_conn *r, const struct iscsi_conn *c);

/* ---- what both have ---- */
#define CARRY_RECORD "sessions"
#define CARRY_SOCKETS "session/"
#define CARRY_KEY 32
void carry_key(char key[CARRY_KEY], unsigned tsih, unsigned cid);

#endif
