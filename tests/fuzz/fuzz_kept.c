/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a worker says to its keeper, and a keeper to its worker (events/kept_msg.h). The input:
 * messages, each of [how][descriptors][length 2][bytes]. What must hold: a message is refused or
 * has a text of one line, or a key, keys that are keys, and descriptors that are open; what is
 * kept comes out again once; and no descriptor is left behind, whoever heard what.
 *
 *   how: bit 0  the bytes are the whole message; else they are what follows magic and word
 *        bit 1  n is what there are of descriptors; else as in the bytes
 *        bits 2-5  word
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "events/bug.h"
#include "events/bytes.h"
#include "events/kept.h"
#include "events/log.h"
#include "tgtd/keeper/holdings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MESSAGES 24u /* what a socket holds without a reader */

static struct kept_mail mail;

/* The lowest descriptor that is free. */
static int lowest(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	BUG_ON(fd < 0);
	close(fd);
	return fd;
}

static void send_raw(int fd, const void *bytes, size_t len, unsigned nfds)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(3 * sizeof(int))];
	} control = { .room = { 0 } };
	struct iovec iov = { (void *)(uintptr_t)bytes, len };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	BUG_ON(null < 0);
	if (nfds) {
		int fds[3] = { null, null, null };

		mh.msg_control = &control;
		mh.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(&control.head), fds, nfds * sizeof(int));
	}
	BUG_ON(sendmsg(fd, &mh, MSG_DONTWAIT) < 0 && errno != EAGAIN);
	close(null);
}

/* All messages of the input, to @fd. */
static void say_all(int fd, const uint8_t *data, size_t size)
{
	static uint8_t buf[sizeof(struct kept_msg) + 4096];

	for (unsigned i = 0; i < MESSAGES && size >= 4; i++) {
		const uint8_t how = data[0], nfds = data[1] & 3;
		const size_t len = MIN((size_t)(get_be16(data + 2) & 0xfff), size - 4);
		struct kept_msg m = { .magic = KEPT_MSG_MAGIC, .word = how >> 2 & 15, .n = nfds };

		memset(buf, 0, sizeof(buf));
		if (how & 1) {
			memcpy(buf, data + 4, len);
			send_raw(fd, buf, len, nfds);
		} else {
			memcpy(buf, &m, sizeof(m));
			memcpy(buf + offsetof(struct kept_msg, seq), data + 4, len);
			if (how & 2)
				memcpy(buf + offsetof(struct kept_msg, n), &m.n, sizeof(m.n));
			send_raw(fd, buf, MAX(sizeof(m), offsetof(struct kept_msg, seq) + len),
				 nfds);
		}
		data += 4 + len;
		size -= 4 + len;
	}
}

static void judge(void)
{
	const struct kept_msg *m = &mail.msg;

	BUG_ON(m->magic != KEPT_MSG_MAGIC || m->n > 3 || !memchr(m->text, 0, sizeof(m->text)));
	for (const char *p = m->text; *p && m->word != KEPT_PUT && m->word != KEPT_DROP; p++)
		BUG_ON((unsigned char)*p < ' ' || *p == 0x7f);
	for (unsigned i = 0; i < m->n; i++) {
		BUG_ON(fcntl(mail.fd[i], F_GETFD) != FD_CLOEXEC);
		BUG_ON(m->word == KEPT_LEFT && !kept_key_ok(mail.key[i]));
	}
}

/* As the keeper hears it. */
static void as_keeper(int fd)
{
	int rc;

	while ((rc = kept_msg_receive(fd, &mail)) != 0) {
		BUG_ON(rc != 1 && rc != -EBADMSG);
		if (rc != 1)
			continue;
		judge();
		if (mail.msg.word == KEPT_PUT && mail.msg.n == 1) {
			rc = holdings_put(mail.msg.text, mail.fd[0]);
			BUG_ON(rc != 0 && rc != -EINVAL);
			mail.msg.n = 0;
		} else if (mail.msg.word == KEPT_DROP) {
			holdings_drop(mail.msg.text);
		}
		kept_mail_close(&mail);
	}
}

/* All that is held comes out, by keys that differ. */
static void comes_out(void)
{
	unsigned at = 0, n = 0;
	int pair[2];

	BUG_ON(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
	BUG_ON(holdings_send(pair[0], "", &at));
	close(pair[0]);
	while (kept_msg_receive(pair[1], &mail) == 1) {
		judge();
		for (unsigned i = 0; i < mail.msg.n; i++, n++)
			for (unsigned k = 0; k < i; k++)
				BUG_ON(!strcmp(mail.key[i], mail.key[k]));
		kept_mail_close(&mail);
	}
	close(pair[1]);
	BUG_ON(n != holdings_count());
}

/* As a worker begins with it: takes every other one. */
static void as_worker(int fd)
{
	const char *key;
	unsigned at = 0, n = 0;

	kept_start(fd);
	while ((key = kept_next("", &at))) {
		BUG_ON(!kept_key_ok(key));
		if (n++ & 1)
			close(kept_take(key));
	}
	kept_end();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const int before = lowest();
	int keeper[2], worker[2];

	log_threshold = -1;
	BUG_ON(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, keeper) ||
	       socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, worker));
	say_all(keeper[0], data, size);
	close(keeper[0]);
	as_keeper(keeper[1]);
	close(keeper[1]);
	comes_out();
	holdings_end();
	say_all(worker[0], data, size);
	close(worker[0]);
	as_worker(worker[1]); /* closes it */
	BUG_ON(lowest() != before);
	return 0;
}
