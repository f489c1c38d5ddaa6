/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Where other gateways connect for their mirrors. All on the main loop. */
#ifndef TGTD_CLUSTER_LIVE_MIRROR_LISTEN_H
#define TGTD_CLUSTER_LIVE_MIRROR_LISTEN_H

#include <sys/socket.h>
#include "events/loop.h"

struct mirror_listener {
	struct loop *main;
	struct sockaddr_storage address;
	/* Somebody has connected: @fd is the callee's. */
	void (*accepted)(struct mirror_listener *l, int fd);

	struct loop_fd lfd; /* loop NULL: it does not listen now */
	struct timer again; /* the port is taken, or there are no descriptors */
	bool said;
};

/* main, address and accepted are set, the rest is zero. A port that is taken is tried again. */
void mirror_listen(struct mirror_listener *l);
void mirror_unlisten(struct mirror_listener *l);
/* 0: it does not listen. */
unsigned mirror_listen_port(const struct mirror_listener *l);

#endif
