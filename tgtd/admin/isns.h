/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The daemon as an iSNS client (RFC 4171): its targets and portals are registered with a server while
 * `tgtadm --mode system --op update --name iSNS` says On. All on the main loop, which never waits for the server.
 *
 * One exchange at a time, each on a connection of its own: connect, send, read the status, close. A change of
 * targets or portals registers everything anew, replacing what the server knows, a moment later; without
 * changes it is refreshed before the registration period is over. A server that cannot be reached, or answers
 * nonsense, is tried again every few seconds; nothing else depends on it.
 */
#ifndef ADMIN_ISNS_H
#define ADMIN_ISNS_H

#include "events/base.h"

/* With the server and port of struct adm_state. 0; -EINVAL: the server is no address; -ENOMEM. On twice: begins anew. */
int isns_on(void) must_check;
/* Takes back what is registered, then rests. */
void isns_off(void);
bool isns_is_on(void);
/* Targets or portals may have changed. */
void isns_changed(void);
/* The daemon's end: takes back what is registered, for a second at most; then done(arg), at once when there is
 * nothing to do. */
void isns_leave(void (*done)(void *arg), void *arg);
/* Drops everything where it stands. */
void isns_stop(void);

#endif
