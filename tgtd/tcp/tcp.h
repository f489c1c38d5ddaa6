/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * iSCSI over TCP: the transport of stream sockets. One receive call brings many PDUs, which are
 * parsed where they lie; one send call takes many, gathered from where they lie.
 */
#ifndef TCP_TCP_H
#define TCP_TCP_H

#include <sys/socket.h>
#include "events/loop.h"

/* Registers the transport with the iSCSI core. Main, before iscsi_start(). */
void tcp_transport_init(void);
/* Makes a connection of an accepted socket, as the listener does (tests and fuzzers hand in one end
 * of a socket pair). Takes over @fd, also on failure. Main loop. 0 or -errno. */
int tcp_conn_start(struct loop *main, int fd, const struct sockaddr_storage *peer,
		   const struct sockaddr_storage *local, unsigned short tpgt);

#endif
