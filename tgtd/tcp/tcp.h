/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * iSCSI over TCP: the transport of stream sockets. One receive call brings many PDUs, which are
 * parsed where they lie; one send call takes many, gathered from where they lie.
 */
#ifndef TGTD_TCP_TCP_H
#define TGTD_TCP_TCP_H

#include <sys/socket.h>
#include "events/loop.h"

/* Registers the transport with the iSCSI core. Main, before iscsi_start(). */
void tcp_transport_init(void);
/* Machines of several nodes: what is large is copied to the socket by a worker of the node where it
 * lies. Large is @from (atomic) bytes of one node, or more. Each node has @per_node of @workers,
 * which lie node by node, outlive all connections, and stay. Main, before iscsi_start(). */
void tcp_send_by_workers(struct loop *const *workers, unsigned nnodes, unsigned per_node,
			 const uint32_t *from);
/* Makes a connection of an accepted socket, as the listener does (tests and fuzzers hand in one end
 * of a socket pair). Takes over @fd, also on failure. Main loop. 0 or -errno. */
int tcp_conn_start(struct loop *main, int fd, const struct sockaddr_storage *peer,
		   const struct sockaddr_storage *local, unsigned short tpgt);

/* As iscsi_transport.count: of any descriptor. Any thread. */
bool tcp_count(int fd, uint64_t *received, uint64_t *sent);

#endif
