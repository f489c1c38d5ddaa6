/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See kept_msg.h. Whoever receives trusts nothing: the other side may have gone wrong. */
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "events/bug.h"
#include "events/kept_msg.h"

bool kept_key_ok(const char *key)
{
	size_t len = strnlen(key, KEPT_KEY_MAX + 1);

	if (!len || len > KEPT_KEY_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if (key[i] <= ' ' || key[i] >= 0x7f)
			return false;
	return true;
}

union kept_control {
	struct cmsghdr head;
	char room[CMSG_SPACE(KEPT_MSG_FDS * sizeof(int))];
};

int kept_msg_send(int fd, struct kept_msg *msg, const kept_key *keys, const int *fds, unsigned n)
{
	union kept_control control;
	struct iovec iov[2] = { { msg, sizeof(*msg) },
				{ (void *)(uintptr_t)keys, keys ? n * sizeof(*keys) : 0 } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = keys ? 2 : 1 };
	ssize_t sent;

	ASSERT(n <= KEPT_MSG_FDS);
	msg->magic = KEPT_MSG_MAGIC;
	msg->n = n;
	if (n) {
		struct cmsghdr *cm = &control.head;

		memset(&control, 0, sizeof(control));
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(cm), fds, n * sizeof(int));
		mh.msg_control = &control;
		mh.msg_controllen = CMSG_SPACE(n * sizeof(int));
	}
	do
		sent = sendmsg(fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

/* Takes what descriptors there are. */
static unsigned take_fds(struct msghdr *mh, int *fds)
{
	unsigned n = 0;

	for (struct cmsghdr *cm = CMSG_FIRSTHDR(mh); cm; cm = CMSG_NXTHDR(mh, cm)) {
		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		n = (unsigned)((cm->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		n = MIN(n, KEPT_MSG_FDS);
		memcpy(fds, CMSG_DATA(cm), n * sizeof(int));
	}
	return n;
}

void kept_close(int fd)
{
	const struct linger none = { 0 };

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	close(fd);
}

void kept_mail_close(struct kept_mail *mail)
{
	for (unsigned i = 0; i < mail->msg.n; i++)
		kept_close(mail->fd[i]);
	mail->msg.n = 0;
}

/* It goes to systemd, where a line is a word of its own, and to who asks for the state. */
static void make_one_line(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
}

/* Is it as long as it says, with the descriptors and keys that it says? */
static int kept_judge(struct kept_mail *mail, size_t len, unsigned fds, bool cut, bool lost)
{
	struct kept_msg *m = &mail->msg;
	unsigned said = len >= sizeof(*m) ? m->n : 0;
	size_t keys = m->word == KEPT_LEFT ? said : 0;

	m->n = fds; /* for kept_mail_close() */
	if (len < sizeof(*m) || m->magic != KEPT_MSG_MAGIC || cut || said > KEPT_MSG_FDS ||
	    len != sizeof(*m) + keys * sizeof(kept_key))
		return -EBADMSG;
	m->text[sizeof(m->text) - 1] = '\0';
	if (m->word != KEPT_PUT && m->word != KEPT_DROP)
		make_one_line(m->text);
	for (unsigned i = 0; i < keys; i++)
		if (!kept_key_ok(mail->key[i]))
			return -EBADMSG;
	if (lost || said != fds)
		return lost ? -EMFILE : -EBADMSG;
	return 1;
}

int kept_msg_receive(int fd, struct kept_mail *mail)
{
	union kept_control control;
	struct iovec iov[2] = { { &mail->msg, sizeof(mail->msg) },
				{ mail->key, sizeof(mail->key) } };
	struct msghdr mh = { .msg_iov = iov,
			     .msg_iovlen = 2,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control) };
	ssize_t got;
	int rc;

	mail->msg.n = 0;
	/* Who has ended with something unread: that is said once, before what he said. */
	do
		got = recvmsg(fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (got < 0 && (errno == EINTR || errno == ECONNRESET));
	if (got < 0)
		return -errno;
	unsigned fds = take_fds(&mh, mail->fd);

	if (!got && !fds) /* nobody sends empty ones */
		return 0;
	rc = kept_judge(mail, (size_t)got, fds, mh.msg_flags & MSG_TRUNC,
			mh.msg_flags & MSG_CTRUNC);
	if (rc != 1)
		kept_mail_close(mail);
	return rc;
}
