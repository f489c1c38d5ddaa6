/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The daemon as an iSNS client (RFC 4171). Its targets and portals are registered with a server
 * while `tgtadm --mode system --op update --name iSNS` says On. All of it runs on the main loop,
 * which never waits for the server.
 *
 * One round at a time, each on a connection of its own: questions and answers in turn, then it is
 * closed. A change of targets or portals registers everything anew, replacing what the server
 * knows, a moment later. Without changes the server is asked now and then whether it still knows
 * us. That refreshes the registration (6.2.6). If it does not know us, all is registered again. The
 * server may ask us whether we live (ESI), and say that initiators come, go or change (SCN): for
 * that we listen. With access control (iSNSAccessControl) an initiator may log in to a target only
 * if they share a discovery domain, and the other rules let it in. Until the server has answered,
 * nobody may. When the server cannot be reached, its last answer holds. A server that cannot be
 * reached, or answers nonsense, is tried again every few seconds; nothing else depends on it.
 */
#ifndef TGTD_ISNS_ISNS_H
#define TGTD_ISNS_ISNS_H

#include "events/base.h"

#define ISNS_PORT 3205 /* the well-known one */

/* With the server and port of struct adm_state. 0; -EINVAL: the server is no address;
 * -ENOMEM. On twice: begins anew. */
int isns_on(void) must_check;
/* Takes back what is registered, then rests. */
void isns_off(void);
bool isns_is_on(void);
/* Targets or portals may have changed. */
void isns_changed(void);
/* Something else may have: the server is asked. */
void isns_recheck(void);
/* Access control was switched. */
void isns_access_changed(void);
struct adm_target;
/* The target goes. */
void isns_access_forget(struct adm_target *t);
/* The daemon's end: takes back what is registered, for a second at most; then done(arg), at once
 * when there is nothing to do. */
void isns_leave(void (*done)(void *arg), void *arg);
/* Drops everything where it stands. */
void isns_stop(void);

#endif
