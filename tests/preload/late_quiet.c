/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A main thread that gets no processor: before it gives the keeper what sessions at rest are
 * (events/kept_msg.h: PUT, "quiet") it waits, as long as there is $LATE_QUIET. Or, as long as there
 * is $LATE_LOOP, when it has given what is under way ("flight") and has woken one loop after that.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "events/kept_msg.h"

static __thread int gave_flight;

static int is_put(const struct kept_msg *k, const char *key)
{
	return k->magic == KEPT_MSG_MAGIC && k->word == KEPT_PUT && !strcmp(k->text, key);
}

static void wait_for(const char *file)
{
	const struct timespec look = { 0, 5000000 };

	while (file && !access(file, F_OK))
		nanosleep(&look, NULL);
}

ssize_t write(int fd, const void *p, size_t len)
{
	const ssize_t n = syscall(SYS_write, fd, p, len);

	if (gave_flight && len == 8) {
		gave_flight = 0;
		wait_for(getenv("LATE_LOOP"));
	}
	return n;
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	struct kept_msg k = { 0 };

	if (m->msg_iovlen && m->msg_iov[0].iov_len == sizeof(k))
		memcpy(&k, m->msg_iov[0].iov_base, sizeof(k));
	if (is_put(&k, "quiet"))
		wait_for(getenv("LATE_QUIET"));
	gave_flight |= is_put(&k, "flight");
	return syscall(SYS_sendmsg, fd, m, flags);
}
