/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * All that a keeper knows and holds, as a table in a memfd: what it hands on to the program that
 * takes its place by execve(2). Both may be of different versions: fields are added at the end of
 * struct table_state, and who does not find one there has zeros.
 *
 *     header | struct table_state | n of struct table_fd
 *
 * Who reads it trusts none of it. One thread.
 */
#ifndef TGTD_KEEPER_TABLE_H
#define TGTD_KEEPER_TABLE_H

#include "events/kept_msg.h"

#define TABLE_VERSION 1u
#define TABLE_PATH 4096
#define TABLE_ENDS 16

struct table_state {
	int32_t worker_pid;
	int32_t worker_fd; /* the socket to it */
	int32_t tombstone, lock_fd, exe, before; /* -1: none. lock_fd: of the pid file */
	int32_t oom;
	uint32_t oom_lowered;
	uint64_t signal_mask; /* workers' */
	uint64_t since;	      /* when it began to serve, clock_now_ns() */
	uint64_t restarted_s;
	uint32_t restarts, quick, how, paused, replaced, records;
	uint32_t ends[TABLE_ENDS];
	char why[KEPT_MSG_TEXT];
	char path[TABLE_PATH]; /* of the program */
};

/* What is kept. */
struct table_fd {
	char key[KEPT_KEY_MAX + 4]; /* padded with zeros */
	int32_t fd;
};

struct table {
	struct table_state state;
	uint32_t n;
	struct table_fd *fd; /* malloc()ed */
};

/* @t as it is written. @len bytes, malloc()ed; NULL: no memory. */
void *table_bytes(const struct table *t, size_t *len) must_check;
/* What @bytes say. 0, and table_free() is the caller's; or -EBADMSG with a reason in *@why, or
 * -ENOMEM. Each descriptor is a number above 2 that is there once; none has been looked at. */
int table_parse(const void *bytes, size_t len, struct table *t, const char **why) must_check;
/* The same of a file, from its beginning. Or -errno. */
int table_read(int fd, struct table *t, const char **why) must_check;
/* A memfd with @t; or -errno. */
int table_write(const struct table *t) must_check;
void table_free(struct table *t);

#endif
