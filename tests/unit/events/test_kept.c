/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Descriptors that outlive a process: what kept_put() gives away, the next kept_start() finds. The
 * keeper here is a thread of the test, which also sends what no keeper would.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "events/kept.h"
#include "tests/support/unit.h"

#define HELD_MAX 1000

static struct {
	pthread_t thread;
	int fd[2];  /* ours, the process's */
	int answer; /* errno of every answer; -1: none is sent */
	unsigned n, said[KEPT_WORDS];
	char last[KEPT_MSG_TEXT];
	struct {
		kept_key key;
		int fd;
	} held[HELD_MAX];
	int tombstone;
	struct kept_mail mail;
} keeper;

static void forget(const char *key)
{
	for (unsigned i = 0; i < keeper.n; i++)
		if (!strcmp(keeper.held[i].key, key)) {
			close(keeper.held[i].fd);
			keeper.held[i] = keeper.held[--keeper.n];
		}
}

static void answer(const struct kept_msg *to)
{
	struct kept_msg m = { .word = KEPT_DONE, .seq = to->seq - 1 };

	if (keeper.answer < 0)
		return;
	/* An answer to something else first: late, for a request that was given up. */
	ck_assert_int_eq(kept_msg_send(keeper.fd[0], &m, NULL, NULL, 0), 0);
	m.seq = to->seq;
	m.value = (uint64_t)keeper.answer;
	ck_assert_int_eq(kept_msg_send(keeper.fd[0], &m, NULL, NULL, 0), 0);
}

static void heard(struct kept_mail *mail)
{
	const struct kept_msg *m = &mail->msg;

	__atomic_fetch_add(&keeper.said[m->word], 1, __ATOMIC_RELEASE);
	if (m->word == KEPT_PUT) {
		ck_assert_uint_eq(m->n, 1);
		forget(m->text);
		snprintf(keeper.held[keeper.n].key, sizeof(kept_key), "%.64s", m->text);
		keeper.held[keeper.n++].fd = mail->fd[0];
		answer(m);
	} else if (m->word == KEPT_DROP) {
		forget(m->text);
		answer(m);
	} else {
		memcpy(keeper.last, m->text, sizeof(keeper.last));
	}
}

static void *keep(void *arg)
{
	int rc;

	(void)arg;
	while ((rc = kept_msg_receive(keeper.fd[0], &keeper.mail))) {
		if (rc == 1)
			heard(&keeper.mail);
		else if (rc == -EAGAIN)
			usleep(200);
		else
			ck_abort_msg("the keeper heard %s", strerror(-rc));
	}
	return NULL;
}

static void send_begin(void)
{
	struct kept_msg m = { .word = KEPT_BEGIN, .seq = 2, .value = 3, .when = 1700000000 };

	struct kept_msg ends = {
		.word = KEPT_ENDS, .seq = KEPT_END_STALLED, .value = 1, .when = 2
	};

	struct kept_msg oom = { .word = KEPT_OOM, .value = 4 };

	ck_assert_int_eq(kept_msg_send(keeper.fd[0], &oom, NULL, NULL, 0), 0);
	strcpy(m.text, "why");
	ck_assert_int_eq(kept_msg_send(keeper.fd[0], &ends, NULL, NULL, 0), 0);

	keeper.tombstone = memfd_create("tombstone", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_ge(keeper.tombstone, 0);
	ck_assert_int_eq(ftruncate(keeper.tombstone, 4096), 0);
	ck_assert_int_eq(kept_msg_send(keeper.fd[0], &m, NULL, &keeper.tombstone, 1), 0);
}

/* A process begins, with what is held, and a keeper that listens. */
static void process_begins(void)
{
	kept_key keys[100];
	int fds[100];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, keeper.fd), 0);
	for (unsigned from = 0; from < keeper.n; from += 100) {
		struct kept_msg m = { .word = KEPT_LEFT };
		unsigned n = MIN(100, keeper.n - from);

		for (unsigned i = 0; i < n; i++) {
			memcpy(keys[i], keeper.held[from + i].key, sizeof(kept_key));
			fds[i] = keeper.held[from + i].fd;
		}
		ck_assert_int_eq(kept_msg_send(keeper.fd[0], &m, keys, fds, n), 0);
	}
	send_begin();
	kept_start(keeper.fd[1]);
	ck_assert_int_eq(pthread_create(&keeper.thread, NULL, keep, NULL), 0);
}

static void process_ends(void)
{
	kept_end();
	pthread_join(keeper.thread, NULL);
	close(keeper.fd[0]);
	close(keeper.tombstone);
}

static int file_of(unsigned number)
{
	int fd = memfd_create("kept", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, number), 0);
	return fd;
}

static void is_file_of(int fd, unsigned number)
{
	struct stat st;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_eq((unsigned)st.st_size, number);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
}

START_TEST(test_without_keeper)
{
	unsigned at = 0;

	kept_start(-1);
	ck_assert_int_eq(kept_put("a", 0), 0);
	ck_assert_int_eq(kept_drop("a"), 0);
	ck_assert_int_eq(kept_take("a"), -1);
	ck_assert_ptr_null(kept_next("", &at));
	ck_assert(!kept_tell(KEPT_READY, 0, NULL));
	ck_assert_int_eq(kept_fd(), -1);
}
END_TEST

START_TEST(test_put_and_take)
{
	int fd;

	process_begins();
	ck_assert_uint_eq(kept_origin()->restarts, 3);
	ck_assert_uint_eq(kept_origin()->restarted_s, 1700000000);
	ck_assert_str_eq(kept_origin()->why, "why");
	ck_assert_uint_eq(kept_origin()->died_soon, 2);
	ck_assert_int_eq(kept_origin()->how, KEPT_END_STALLED);
	ck_assert_uint_eq(kept_origin()->planned, 1);
	ck_assert_uint_eq(kept_origin()->stalled, 2);
	ck_assert_uint_eq(kept_origin()->oom, 4);
	ck_assert_int_eq(kept_take("portal/1"), -1);
	fd = file_of(1);
	ck_assert_int_eq(kept_put("portal/1", fd), 0);
	is_file_of(fd, 1); /* still ours */
	fd = file_of(2);
	ck_assert_int_eq(kept_put("portal/1", fd), 0); /* replaces */
	ck_assert_int_eq(kept_put("state", fd), 0);
	ck_assert_int_eq(kept_put("gone", fd), 0);
	close(fd);
	ck_assert_int_eq(kept_drop("gone"), 0);
	ck_assert_int_eq(kept_drop("never"), 0);
	process_ends();

	process_begins();
	ck_assert_int_eq(kept_take("gone"), -1);
	is_file_of(kept_take("portal/1"), 2);
	ck_assert_int_eq(kept_take("portal/1"), -1); /* once */
	is_file_of(kept_take("state"), 2);
	/* what is held stays */
	kept_hold();
	ck_assert_int_eq(kept_drop("state"), 0);
	process_ends();
	ck_assert_uint_eq(keeper.said[KEPT_DROP], 2);

	process_begins();
	is_file_of(kept_take("state"), 2);
	process_ends();
}
END_TEST

/* Without waiting: what is asked for afterwards is answered as ever. */
START_TEST(test_put_soon)
{
	char key[KEPT_KEY_MAX + 1];
	int fd;

	process_begins();
	for (unsigned i = 0; i < 30; i++) {
		snprintf(key, sizeof(key), "session/%u", i);
		fd = file_of(i);
		ck_assert_int_eq(kept_put_soon(key, fd), 0);
		close(fd);
	}
	ck_assert_int_eq(kept_drop_soon("session/7"), 0);
	ck_assert_int_eq(kept_drop_soon("never"), 0);
	ck_assert_int_eq(kept_put_soon("no key", 0), -EINVAL);
	ck_assert_int_eq(kept_drop_soon(""), -EINVAL);
	ck_assert_int_eq(kept_drop("session/8"), 0); /* its own answer, not one of theirs */
	ck_assert(kept_alive());
	process_ends();
	ck_assert_uint_eq(keeper.said[KEPT_PUT], 30);
	ck_assert_uint_eq(keeper.said[KEPT_DROP], 3);

	process_begins();
	ck_assert_int_eq(kept_take("session/7"), -1);
	ck_assert_int_eq(kept_take("session/8"), -1);
	is_file_of(kept_take("session/29"), 29);
	kept_hold();
	ck_assert_int_eq(kept_drop_soon("session/29"), 0);
	process_ends();
	ck_assert_uint_eq(keeper.said[KEPT_DROP], 3);
}
END_TEST

/* There is no room for what nobody takes: that is said at once. */
START_TEST(test_put_soon_full)
{
	int fds[2], err = 0, n;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	keeper.fd[0] = fds[0];
	send_begin();
	kept_start(fds[1]);
	for (n = 0; n < 100000 && !err; n++)
		err = kept_put_soon("a", 0);
	ck_assert_int_eq(err, -EAGAIN);
	do
		err = kept_drop_soon("a");
	while (!err && n++ < 100000);
	ck_assert_int_eq(err, -EAGAIN);
	close(fds[0]);
	ck_assert(!kept_alive());
	ck_assert_int_eq(kept_put_soon("a", 0), -EPIPE);
	kept_end();
	close(keeper.tombstone);
}
END_TEST

static void *takes_later(void *arg)
{
	const int *fd = arg;
	static struct kept_mail mail;

	usleep(100000);
	while (kept_msg_receive(*fd, &mail) == 1)
		kept_mail_close(&mail);
	return NULL;
}

/* The kernel counts what is on its way, of all processes of a user: others take theirs soon. */
START_TEST(test_put_while_others_send)
{
	const struct rlimit few = { 40, 40 };
	struct kept_pair pair = { .key = "arena/0" };
	struct kept_msg left = { .word = KEPT_DONE };
	int others[2], fds[20] = { 0 }, err = 0;
	pthread_t thread;

	process_begins();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, others), 0);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	/* (Who may do all is not counted.) */
	ck_assert(getuid() || !setresuid(65534, 65534, 65534));
	while (!(err = kept_msg_send(others[0], &left, NULL, fds, 10)))
		;
	ck_assert_int_eq(err, -ETOOMANYREFS);
	ck_assert_int_eq(kept_put_soon("a", 0), -EAGAIN);
	ck_assert_int_eq(pthread_create(&thread, NULL, takes_later, &others[1]), 0);
	ck_assert_int_eq(kept_put("state", 0), 0);
	pthread_join(thread, NULL);

	while (!(err = kept_msg_send(others[0], &left, NULL, fds, 10)))
		;
	ck_assert_int_eq(pthread_create(&thread, NULL, takes_later, &others[1]), 0);
	kept_put_all(&pair, 1);
	ck_assert_int_eq(pair.err, 0);
	pthread_join(thread, NULL);
	process_ends();
	ck_assert_uint_eq(keeper.said[KEPT_PUT], 2);
}
END_TEST

/* As many as a message holds, and more; walked by prefix. */
START_TEST(test_many)
{
	char key[32];
	const char *k;
	unsigned at = 0, n = 0;

	process_begins();
	for (unsigned i = 0; i < 600; i++) {
		int fd = file_of(i);

		snprintf(key, sizeof(key), i & 1 ? "store/%u" : "arena/%u", i);
		ck_assert_int_eq(kept_put(key, fd), 0);
		close(fd);
	}
	process_ends();
	process_begins();
	is_file_of(kept_take("store/599"), 599);
	while ((k = kept_next("store/", &at)) && ++n)
		is_file_of(kept_take(k), (unsigned)atoi(k + 6));
	ck_assert_uint_eq(n, 299);
	for (unsigned i = 0; i < 600; i += 2) {
		snprintf(key, sizeof(key), "arena/%u", i);
		is_file_of(kept_take(key), i);
	}
	at = 0;
	ck_assert_ptr_null(kept_next("", &at));
	process_ends();
}
END_TEST

START_TEST(test_bad_keys)
{
	char longest[KEPT_KEY_MAX + 2];

	process_begins();
	memset(longest, 'x', sizeof(longest));
	longest[KEPT_KEY_MAX + 1] = 0;
	ck_assert_int_eq(kept_put(longest, 0), -EINVAL);
	ck_assert_int_eq(kept_put("", 0), -EINVAL);
	ck_assert_int_eq(kept_put("a b", 0), -EINVAL);
	ck_assert_int_eq(kept_put("a\n", 0), -EINVAL);
	ck_assert_int_eq(kept_drop(""), -EINVAL);
	longest[KEPT_KEY_MAX] = 0;
	ck_assert_int_eq(kept_put(longest, 0), 0);
	ck_assert_int_eq(kept_put("x", -1), -EBADF);
	process_ends();
	process_begins();
	close(kept_take(longest));
	process_ends();
}
END_TEST

/* Many at once, of which some are none. */
START_TEST(test_put_all)
{
	static struct kept_pair pair[150];
	const unsigned bad = 70, closed = 131;

	process_begins();
	for (unsigned i = 0; i < ARRAY_SIZE(pair); i++) {
		snprintf(pair[i].key, sizeof(pair[i].key), i == bad ? "a b" : "many/%u", i);
		pair[i].fd = i == closed ? -1 : file_of(i);
	}
	kept_put_all(pair, ARRAY_SIZE(pair));
	for (unsigned i = 0; i < ARRAY_SIZE(pair); i++) {
		ck_assert_int_eq(pair[i].err, i == bad ? -EINVAL : i == closed ? -EBADF : 0);
		if (pair[i].fd >= 0)
			close(pair[i].fd);
	}
	keeper.answer = ENOSPC;
	kept_put_all(&(struct kept_pair){ .key = "x", .fd = 0 }, 1);
	pair[0].fd = pair[1].fd = 0;
	kept_put_all(pair, 2);
	ck_assert_int_eq(pair[0].err, -ENOSPC);
	ck_assert_int_eq(pair[1].err, -ENOSPC);
	keeper.answer = 0;
	process_ends();
	process_begins();
	is_file_of(kept_take("many/149"), 149);
	ck_assert_int_eq(kept_take("many/131"), -1);
	process_ends();
}
END_TEST

static void *begins_later(void *arg)
{
	kept_key key = "late";
	struct kept_msg left = { .word = KEPT_LEFT };
	int rc, fd = file_of(7);

	while ((rc = kept_msg_receive(keeper.fd[0], &keeper.mail)) == -EAGAIN)
		usleep(200);
	ck_assert_int_eq(rc, 1);
	ck_assert_uint_eq(keeper.mail.msg.word, KEPT_PREPARED);
	if (arg) { /* the keeper dies */
		shutdown(keeper.fd[0], SHUT_RDWR);
	} else {
		ck_assert_int_eq(kept_msg_send(keeper.fd[0], &left, &key, &fd, 1), 0);
		send_begin();
	}
	close(fd);
	return NULL;
}

static void process_prepares(bool dies)
{
	struct kept_msg left = { .word = KEPT_LEFT },
			prepare = { .word = KEPT_PREPARE, .value = 3 };
	kept_key key = "early";
	int fd = file_of(5);

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, keeper.fd), 0);
	ck_assert_int_eq(kept_msg_send(keeper.fd[0], &left, &key, &fd, 1), 0);
	ck_assert_int_eq(kept_msg_send(keeper.fd[0], &prepare, NULL, NULL, 0), 0);
	close(fd);
	kept_start(keeper.fd[1]);
	ck_assert(kept_prepares());
	ck_assert_uint_eq(kept_origin()->restarts, 3);
	ck_assert_int_eq(kept_take("early"), -1); /* another process's still */
	is_file_of(fcntl(kept_peek("early"), F_DUPFD_CLOEXEC, 0), 5);
	ck_assert_int_eq(kept_peek("late"), -1);
	ck_assert_int_eq(pthread_create(&keeper.thread, NULL, begins_later, dies ? &dies : NULL),
			 0);
	ck_assert(kept_begin(0) == !dies);
	pthread_join(keeper.thread, NULL);
	ck_assert(!kept_prepares());
}

/* Not all that was left fits: that is known, and a process with more room has it. */
START_TEST(test_too_few_files)
{
	struct rlimit before, few;
	char key[16];

	int fd;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	process_begins();
	for (unsigned i = 0; i < 40; i++) {
		snprintf(key, sizeof(key), "store/%u", i);
		ck_assert_int_eq(kept_put(key, 0), 0);
	}
	ck_assert(!kept_lost());
	process_ends();
	fd = file_of(0);
	close(fd);
	few = (struct rlimit){ (rlim_t)fd + 16, before.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	process_begins();
	ck_assert(kept_lost());
	process_ends();
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	process_begins();
	ck_assert(!kept_lost());
	ck_assert_int_ge(kept_peek("store/39"), 0);
	process_ends();
}
END_TEST

/* A process prepares while the one before serves: what that leaves in the end is what counts. */
START_TEST(test_prepare)
{
	process_prepares(false);
	ck_assert_int_eq(kept_take("early"), -1);
	is_file_of(kept_take("late"), 7);
	ck_assert(!kept_waits_for_next());
	ck_assert_int_eq(pthread_create(&keeper.thread, NULL, keep, NULL), 0);
	process_ends();

	process_prepares(true);
	kept_end();
	close(keeper.fd[0]);
}
END_TEST

/* The keeper says that the next one is prepared, and what it took, whenever it likes. */
START_TEST(test_news)
{
	struct kept_msg go = { .word = KEPT_GO }, took = { .word = KEPT_TOOK };

	process_begins();
	ck_assert(!kept_may_go());
	ck_assert_str_eq(kept_took(), "");
	strcpy(took.text, "7 ms");
	ck_assert_int_eq(kept_msg_send(keeper.fd[0], &took, NULL, NULL, 0), 0);
	ck_assert_int_eq(kept_put("a", 0), 0); /* (it comes before the answer) */
	ck_assert_str_eq(kept_took(), "7 ms");
	ck_assert_int_eq(kept_msg_send(keeper.fd[0], &go, NULL, NULL, 0), 0);
	ck_assert(kept_alive());
	ck_assert(kept_may_go());
	process_ends();
}
END_TEST

/* The keeper refuses, does not answer, or goes. */
START_TEST(test_bad_keeper)
{
	process_begins();
	keeper.answer = ENOSPC;
	ck_assert_int_eq(kept_put("a", 0), -ENOSPC);
	keeper.answer = -1;
	ck_assert_int_eq(kept_put("a", 0), -ETIMEDOUT);
	keeper.answer = 0;
	ck_assert_int_eq(kept_put("a", 0), 0);
	ck_assert(kept_tell(KEPT_STALLED, 7, "a thread"));
	while (!__atomic_load_n(&keeper.said[KEPT_STALLED], __ATOMIC_ACQUIRE))
		usleep(200);
	ck_assert_str_eq(keeper.last, "a thread");
	ck_assert(kept_alive());
	shutdown(keeper.fd[0], SHUT_RDWR);
	ck_assert(!kept_alive());
	ck_assert_int_eq(kept_put("a", 0), -EPIPE);
	ck_assert_int_eq(kept_drop("a"), -EPIPE);
	process_ends();
}
END_TEST

/* What is no message, or not what it says, is dropped with its descriptors; the next one counts. */
START_TEST(test_bad_messages)
{
	struct kept_msg m = { .word = KEPT_LEFT, .magic = KEPT_MSG_MAGIC, .n = 2 };
	static struct kept_mail mail;
	kept_key bad[2] = { "fine", "no blanks" };
	int fds[2] = { 0, 1 }, pair[2];
	char small[8] = { 0 }, large[sizeof(mail) + 1] = { 0 };

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	ck_assert_int_eq(kept_msg_receive(pair[1], &mail), -EAGAIN);
	ck_assert_int_eq(send(pair[0], small, sizeof(small), 0), sizeof(small));
	ck_assert_int_eq(kept_msg_receive(pair[1], &mail), -EBADMSG);
	ck_assert_int_eq(send(pair[0], large, sizeof(large), 0), sizeof(large));
	ck_assert_int_eq(kept_msg_receive(pair[1], &mail), -EBADMSG);
	ck_assert_int_eq(send(pair[0], &m, sizeof(m), 0), sizeof(m)); /* no keys, no descriptors */
	ck_assert_int_eq(kept_msg_receive(pair[1], &mail), -EBADMSG);
	m.word = KEPT_PUT;
	ck_assert_int_eq(send(pair[0], &m, sizeof(m), 0), sizeof(m)); /* no descriptors */
	ck_assert_int_eq(kept_msg_receive(pair[1], &mail), -EBADMSG);
	m.word = KEPT_LEFT;
	ck_assert_int_eq(kept_msg_send(pair[0], &m, bad, fds, 2), 0);
	ck_assert_int_eq(kept_msg_receive(pair[1], &mail), -EBADMSG);
	m.word = 4711; /* of a later version: for the receiver to ignore */
	memset(m.text, 'x', sizeof(m.text));
	ck_assert_int_eq(kept_msg_send(pair[0], &m, NULL, fds, 2), 0);
	ck_assert_int_eq(kept_msg_receive(pair[1], &mail), 1);
	ck_assert_uint_eq(mail.msg.word, 4711);
	ck_assert_uint_eq(strlen(mail.msg.text), KEPT_MSG_TEXT - 1);
	ck_assert_uint_eq(mail.msg.n, 2);
	kept_mail_close(&mail);
	close(pair[0]);
	ck_assert_int_eq(kept_msg_receive(pair[1], &mail), 0);
	/* no descriptor was left open by all that */
	ck_assert_int_eq(open("/dev/null", O_RDONLY | O_CLOEXEC), pair[0]);
}
END_TEST

/* Anything may come, with any descriptors: no message is taken for what it is not, and none of them
 * stays open. */
START_TEST(test_random_messages)
{
	static struct kept_mail mail;
	static uint8_t bytes[sizeof(struct kept_msg) + 4 * sizeof(kept_key) + 8];
	struct kept_msg *m = (struct kept_msg *)bytes;
	int pair[2], first;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	first = dup(0);
	close(first);
	srand(1);
	for (int i = 0; i < 30000; i++) {
		union {
			struct cmsghdr head;
			char room[CMSG_SPACE(4 * sizeof(int))];
		} control = { 0 };
		struct iovec iov = { bytes, (size_t)rand() % sizeof(bytes) };
		struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
		unsigned n = (unsigned)rand() % 4;

		for (size_t k = 0; k < sizeof(bytes); k++)
			bytes[k] = (uint8_t)(rand() % 3 ? 'a' + rand() % 26 : rand());
		m->magic = rand() % 8 ? KEPT_MSG_MAGIC : m->magic;
		m->word = rand() % 4 ? (uint32_t)rand() % (KEPT_WORDS + 1) : m->word;
		m->n = rand() % 4 ? (uint32_t)rand() % 5 : m->n;
		if (rand() % 2)
			iov.iov_len = sizeof(*m) +
				      (m->word == KEPT_LEFT ? m->n % 5 : 0) * sizeof(kept_key);
		for (size_t k = sizeof(*m); k < sizeof(bytes); k += sizeof(kept_key))
			bytes[k + KEPT_KEY_MAX > sizeof(bytes) - 1 ? k : k + KEPT_KEY_MAX] = 0;
		if (n) {
			mh.msg_control = &control;
			mh.msg_controllen = CMSG_SPACE(n * sizeof(int));
			control.head = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
							 .cmsg_type = SCM_RIGHTS,
							 .cmsg_len = CMSG_LEN(n * sizeof(int)) };
			memset(CMSG_DATA(&control.head), 0, n * sizeof(int));
		}
		if (!iov.iov_len || sendmsg(pair[0], &mh, 0) < 0)
			continue;
		int rc = kept_msg_receive(pair[1], &mail);

		ck_assert(rc == 1 || rc == -EBADMSG);
		ck_assert(rc != 1 || (mail.msg.magic == KEPT_MSG_MAGIC && mail.msg.n == n &&
				      strlen(mail.msg.text) < KEPT_MSG_TEXT));
		for (unsigned k = 0; rc == 1 && mail.msg.word == KEPT_LEFT && k < n; k++)
			ck_assert(kept_key_ok(mail.key[k]));
		kept_mail_close(&mail);
	}
	ck_assert_int_eq(dup(0), first);
}
END_TEST

/* Who has threads and gets many files later waits for no grace period of the kernel's (kept.c). */
START_TEST(test_room_for_files)
{
	struct rlimit limit;
	char line[256];
	unsigned size = 0;
	FILE *f;

	process_begins();
	f = fopen("/proc/self/status", "r");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		(void)sscanf(line, "FDSize: %u", &size);
	fclose(f);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_uint_ge(size, MIN(limit.rlim_cur, 16384u));
	process_ends();
}
END_TEST

/* The tombstone can be sealed only when what kept_start() mapped has gone. */
START_TEST(test_tombstone)
{
	process_begins();
	ck_assert_int_eq(fcntl(keeper.tombstone, F_ADD_SEALS, F_SEAL_WRITE), -1);
	ck_assert_int_eq(errno, EBUSY);
	process_ends();
}
END_TEST

/* Who ends with something unread is heard to the end all the same. */
START_TEST(test_last_words)
{
	struct kept_msg m = { .word = KEPT_DONE }, last = { .word = KEPT_STOPPING, .value = 7 };
	static struct kept_mail mail;
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	ck_assert_int_eq(kept_msg_send(pair[0], &m, NULL, NULL, 0), 0);
	ck_assert_int_eq(kept_msg_send(pair[1], &last, NULL, NULL, 0), 0);
	close(pair[1]);
	ck_assert_int_eq(kept_msg_receive(pair[0], &mail), 1);
	ck_assert_uint_eq(mail.msg.word, KEPT_STOPPING);
	ck_assert_uint_eq(mail.msg.value, 7);
	ck_assert_int_eq(kept_msg_receive(pair[0], &mail), 0);
	ck_assert_int_eq(kept_msg_receive(pair[0], &mail), 0);
	close(pair[0]);
}
END_TEST

/* A text is one line, whoever sent it; a key is judged as it came. */
START_TEST(test_text_of_lines)
{
	struct kept_msg ready = { .word = KEPT_READY, .text = "a\nb\x7f\xc3\xa4" };
	struct kept_msg put = { .word = KEPT_DROP, .text = "a\nb" };
	static struct kept_mail mail;
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	ck_assert_int_eq(kept_msg_send(pair[0], &ready, NULL, NULL, 0), 0);
	ck_assert_int_eq(kept_msg_send(pair[0], &put, NULL, NULL, 0), 0);
	ck_assert_int_eq(kept_msg_receive(pair[1], &mail), 1);
	ck_assert_str_eq(mail.msg.text, "a?b?\xc3\xa4");
	ck_assert_int_eq(kept_msg_receive(pair[1], &mail), 1);
	ck_assert(!kept_key_ok(mail.msg.text));
	close(pair[0]);
	close(pair[1]);
}
END_TEST

UNIT_MAIN("kept", 20, test_without_keeper, test_put_and_take, test_put_soon,
	  test_put_soon_full, test_put_while_others_send, test_too_few_files, test_many,
	  test_put_all, test_prepare, test_news, test_bad_keys, test_bad_keeper, test_bad_messages,
	  test_random_messages, test_tombstone, test_last_words, test_text_of_lines,
	  test_room_for_files)
