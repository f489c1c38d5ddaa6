/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The parts of the iSNS client to each other. All on the main loop. */
#ifndef TGTD_ISNS_ISNS_INT_H
#define TGTD_ISNS_ISNS_INT_H

#include "tgtd/isns/isns_msg.h"

#include <sys/socket.h>

struct adm_target;

/* ---- isns_listen.c: ESI and SCN come in ------------------------------------------------------ */
/* On a free TCP port of all addresses. @self is copied, its texts must stay; changed() after an SCN
 * to one of its nodes. 0, also when it listens already, or -errno. */
int isns_listen_start(const struct isns_self *self, void (*changed)(void)) must_check;
void isns_listen_stop(void);
uint16_t isns_listen_port(void); /* 0: it does not listen */

/* ---- isns_portal.c: which portals are registered --------------------------------------------- */
#define ISNS_PORTALS_MAX 64
struct isns_portals {
	struct sockaddr_storage local; /* our address on the way to the server; the caller's */
	unsigned n;
	struct isns_portal p[ISNS_PORTALS_MAX];
};
/* Those that there are now, and that a target is at. */
void isns_portals_take(struct isns_portals *ps);
/* By which of them the target called @name can be reached: a bit each. */
uint64_t isns_portals_of(const struct isns_portals *ps, const char *name);

/* ---- isns_access.c: who may log in ----------------------------------------------------------- */
/* Is the server's word asked for at logins? */
void isns_access_on(bool on);
/* What a query for initiators was answered for @t; NULL: nobody. */
void isns_access_take(struct adm_target *t, const struct isns_in *answer);

#endif
