/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A connection whose two ends prove who they are (mirror_auth.h): dialled, or accepted from
 * anybody. On the main loop, which may make sockets; who has proved it goes to an event thread.
 */
#ifndef TGTD_CLUSTER_LIVE_MIRROR_SHAKE_H
#define TGTD_CLUSTER_LIVE_MIRROR_SHAKE_H

#include "tgtd/cluster/live/mirror_auth.h"

struct mirror_shake;
struct mirror_shake_conf {
	struct loop *main;
	uint64_t limit_ns;  /* for all of it */
	uint64_t silent_ns; /* TCP_USER_TIMEOUT of the connection */
	/* NULL @why: it is proved, @fd is the callee's, and so are the coders. Else @fd is closed,
	 * and @why says what was wrong. Once; @s is freed after it, and what is said of it lies in
	 * @a. Main loop. */
	void (*done)(struct mirror_shake *s, void *arg, int fd, struct mirror_coder *out,
		     struct mirror_coder *in, const struct mirror_auth *a, const char *why);
};

/* Connects from @from (any port of it; AF_UNSPEC: any address) to @to, and says *@h. @auth:
 * secret, group, self and gateways. NULL: done() is not called, errno says why. Main loop. */
struct mirror_shake *mirror_shake_dial(const struct mirror_shake_conf *conf, void *arg,
				       const struct mirror_auth *auth, const struct mirror_hello *h,
				       const struct sockaddr_storage *from,
				       const struct sockaddr_storage *to) must_check;
/* Hears who @fd is, which is its own from now on. NULL: no memory, and @fd is closed. The same. */
struct mirror_shake *mirror_shake_accept(const struct mirror_shake_conf *conf, void *arg,
					 const struct mirror_auth *auth, int fd) must_check;
/* Ends it, without done(). */
void mirror_shake_cancel(struct mirror_shake *s);

#endif
