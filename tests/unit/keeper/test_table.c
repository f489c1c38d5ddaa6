/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a keeper hands on to who takes its place: as it was, or refused with a reason. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "events/bytes.h"
#include "events/hash.h"
#include "tests/support/unit.h"
#include "tgtd/keeper/table.h"

#define HEAD 32u /* bytes before the state */

static struct table_fd fds[3];

static struct table good(void)
{
	struct table t = { .n = ARRAY_SIZE(fds), .fd = fds };

	t.state = (struct table_state){ .worker_pid = 77,
					.worker_fd = 5,
					.exe = 6,
					.tombstone = -1,
					.before = -1,
					.lock_fd = 7,
					.since = 99,
					.restarts = 3,
					.how = KEPT_END_OOM };
	strcpy(t.state.path, "/usr/sbin/tgtd");
	strcpy(t.state.why, "why");
	memset(fds, 0, sizeof(fds));
	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++) {
		snprintf(fds[i].key, sizeof(fds[i].key), "k/%u", i);
		fds[i].fd = (int32_t)(10 + i);
	}
	return t;
}

START_TEST(as_it_was)
{
	struct table t = good(), u;
	const char *why;
	int fd = table_write(&t);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(table_read(fd, &u, &why), 0);
	ck_assert_mem_eq(&u.state, &t.state, sizeof(t.state));
	ck_assert_uint_eq(u.n, t.n);
	ck_assert_mem_eq(u.fd, t.fd, sizeof(fds));
	table_free(&u);
	close(fd);
}
END_TEST

static void refused(struct table *t, const char *because)
{
	const char *why;
	struct table u;
	size_t len;
	void *bytes = table_bytes(t, &len);

	ck_assert_int_eq(table_parse(bytes, len, &u, &why), -EBADMSG);
	ck_assert_str_eq(why, because);
	free(bytes);
}

START_TEST(what_cannot_be)
{
	struct table t = good();

	t.state.worker_pid = 1;
	refused(&t, "it names no worker");
	t = good();
	t.state.how = KEPT_END_KINDS;
	refused(&t, "it has an end of a worker that does not exist");
	t = good();
	t.state.path[0] = 'x';
	refused(&t, "its texts are none");
	t = good();
	memset(t.state.why, 'x', sizeof(t.state.why));
	refused(&t, "its texts are none");
	t = good();
	t.state.exe = t.state.worker_fd;
	refused(&t, "its descriptors are none");
	t = good();
	t.state.worker_fd = 2;
	refused(&t, "its descriptors are none");
	t = good();
	t.fd[1].fd = t.state.exe;
	refused(&t, "the descriptor of something that is kept is none");
	t = good();
	t.fd[1].fd = 1 << 20;
	refused(&t, "the descriptor of something that is kept is none");
	t = good();
	strcpy(t.fd[2].key, "a blank");
	refused(&t, "something that is kept has no key");
	t = good();
	memset(t.fd[2].key, 'x', sizeof(t.fd[2].key));
	refused(&t, "something that is kept has no key");
}
END_TEST

/* Any bit of it, and any length. */
START_TEST(damaged)
{
	struct table t = good(), u;
	const char *why;
	size_t len;
	uint8_t *bytes = table_bytes(&t, &len);

	for (size_t i = 0; i < len; i++) {
		bytes[i] ^= (uint8_t)(1u << i % 8);
		/* (What the header leaves free is in the sum, too.) */
		ck_assert_int_eq(table_parse(bytes, len, &u, &why), -EBADMSG);
		bytes[i] ^= (uint8_t)(1u << i % 8);
		ck_assert_int_eq(table_parse(bytes, i, &u, &why), -EBADMSG);
	}
	ck_assert_int_eq(table_parse(bytes, len, &u, &why), 0);
	table_free(&u);
	free(bytes);
}
END_TEST

/* A later version has more fields at the end of the state, an earlier one fewer. */
START_TEST(of_another_length)
{
	struct table t = good(), u;
	const char *why;
	size_t len;
	uint8_t *bytes = table_bytes(&t, &len), *other;
	const uint32_t more = sizeof(t.state) + 64;
	uint64_t sum;

	other = calloc(1, len + 64);
	memcpy(other, bytes, HEAD + sizeof(t.state));
	memcpy(other + 20, &more, sizeof(more)); /* state_len */
	memcpy(other + HEAD + more, bytes + HEAD + sizeof(t.state), sizeof(fds));
	sum = fnv1a(FNV1A_INIT, (const char *)other + 16, len + 64 - 16);
	memcpy(other + 8, &sum, sizeof(sum));
	ck_assert_int_eq(table_parse(other, len + 64, &u, &why), 0);
	ck_assert_mem_eq(&u.state, &t.state, sizeof(t.state));
	ck_assert_mem_eq(u.fd, fds, sizeof(fds));
	table_free(&u);
	free(other);
	free(bytes);
}
END_TEST

UNIT_TABLE("table", 60, { as_it_was }, { what_cannot_be }, { damaged }, { of_another_length })
