/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See kept.h: the side of the process that does the work. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "events/bug.h"
#include "events/clock.h"
#include "events/hash.h"
#include "events/kept.h"
#include "events/log.h"

#define ANSWER_NS (500 * NSEC_PER_MSEC) /* the keeper has nothing else to do */
/* ... but may get no processor; nobody is served by who puts many at once. */
#define ANSWERS_NS (5 * NSEC_PER_SEC)

struct left {
	kept_key key;
	int fd; /* -1: taken */
};

static struct {
	int fd;
	bool gone; /* the keeper */
	bool held;
	bool lost; /* some of what was left has not come */
	bool prepares, go;
	uint64_t wants; /* with go: KEPT_WANTS_* of the next process */
	uint64_t can;	/* KEPT_CAN_* */
	char *tombstone;
	char took[KEPT_MSG_TEXT];
	unsigned replaced, mourned;
	char not_replaced[KEPT_MSG_TEXT];
	uint32_t seq;
	struct left *left;
	unsigned nleft, room;
	uint32_t *slot; /* hash table of indices + 1 into left[]; 0: free */
	unsigned slots; /* a power of two, more than twice nleft */
	struct kept_origin origin;
	struct kept_mail mail; /* what is being received: too large for a stack */
} kept = { .fd = -1 };

/* ---- what was left --------------------------------------------------------------------------- */

static bool left_add(const char *key, int fd)
{
	if (kept.nleft == kept.room) {
		unsigned room = kept.room ? 2 * kept.room : 64;
		struct left *more = realloc(kept.left, room * sizeof(*more));

		if (!more)
			return false;
		kept.left = more;
		kept.room = room;
	}
	memcpy(kept.left[kept.nleft].key, key, sizeof(kept_key));
	kept.left[kept.nleft++].fd = fd;
	return true;
}

static unsigned slot_of(const char *key)
{
	return (unsigned)fnv1a(FNV1A_INIT, key, strlen(key)) & (kept.slots - 1);
}

static void index_left(void)
{
	kept.slots = 64;
	while (kept.slots <= 2 * kept.nleft)
		kept.slots *= 2;
	kept.slot = calloc(kept.slots, sizeof(*kept.slot));
	BUG_ON(!kept.slot);
	for (unsigned i = 0; i < kept.nleft; i++) {
		unsigned s = slot_of(kept.left[i].key);

		while (kept.slot[s])
			s = (s + 1) & (kept.slots - 1);
		kept.slot[s] = i + 1;
	}
}

static struct left *left_find(const char *key)
{
	if (!kept.slot)
		return NULL;
	for (unsigned s = slot_of(key); kept.slot[s]; s = (s + 1) & (kept.slots - 1))
		if (!strcmp(kept.left[kept.slot[s] - 1].key, key))
			return &kept.left[kept.slot[s] - 1];
	return NULL;
}

int kept_take(const char *key)
{
	struct left *l = kept.prepares ? NULL : left_find(key);
	int fd = l ? l->fd : -1;

	if (l)
		l->fd = -1;
	return fd;
}

int kept_peek(const char *key)
{
	const struct left *l = left_find(key);

	return l ? l->fd : -1;
}

static void left_forget(void)
{
	for (unsigned i = 0; i < kept.nleft; i++)
		if (kept.left[i].fd >= 0)
			kept_close(kept.left[i].fd);
	free(kept.left);
	free(kept.slot);
	kept.left = NULL;
	kept.slot = NULL;
	kept.nleft = kept.room = kept.slots = 0;
}

const char *kept_next(const char *prefix, unsigned *at)
{
	while (*at < kept.nleft) {
		struct left *l = &kept.left[(*at)++];

		if (l->fd >= 0 && !strncmp(l->key, prefix, strlen(prefix)))
			return l->key;
	}
	return NULL;
}

/* ---- the start ------------------------------------------------------------------------------- */

static void wait_for_keeper(short events, uint64_t ns)
{
	struct pollfd p = { .fd = kept.fd, .events = events };

	(void)poll(&p, 1, (int)DIV_ROUND_UP(ns, NSEC_PER_MSEC));
}

/* The keeper sees by it when our memory has gone, that is when no I/O of ours can be under way any
 * more: as long as it is mapped, it cannot be sealed against writing. It is never unmapped. */
static void map_tombstone(int fd)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p != MAP_FAILED)
		kept.tombstone = p;
	else
		log_warn("keeper: it cannot see when this process has gone: %m");
}

static void take_origin(const struct kept_mail *mail)
{
	kept.origin.restarts = (unsigned)mail->msg.value;
	kept.origin.restarted_s = mail->msg.when;
	kept.origin.died_soon = mail->msg.seq;
	memcpy(kept.origin.why, mail->msg.text, sizeof(kept.origin.why));
	if (mail->msg.n)
		map_tombstone(mail->fd[0]);
}

static void take_ends(const struct kept_msg *m)
{
	kept.origin.planned = (unsigned)m->value;
	kept.origin.stalled = (unsigned)m->when;
	kept.origin.how = m->seq < KEPT_END_KINDS ? (enum kept_end)m->seq : KEPT_END_NONE;
}

/* What is no answer; or one that came too late. */
static void hear_news(struct kept_mail *mail)
{
	if (mail->msg.word == KEPT_GO) {
		kept.go = true;
		kept.wants = mail->msg.value;
	}
	if (mail->msg.word == KEPT_ALL_GONE)
		kept.mourned = 0;
	if (mail->msg.word == KEPT_TOOK)
		memcpy(kept.took, mail->msg.text, sizeof(kept.took));
	if (mail->msg.word == KEPT_REPLACED) {
		kept.replaced = (unsigned)mail->msg.value;
		memcpy(kept.not_replaced, mail->msg.text, sizeof(kept.not_replaced));
	}
	kept_mail_close(mail);
}

/* False: that was all. */
static bool take_mail(struct kept_mail *mail)
{
	switch (mail->msg.word) {
	case KEPT_LEFT:
		for (unsigned i = 0; i < mail->msg.n; i++)
			if (!left_add(mail->key[i], mail->fd[i])) {
				log_error("keeper: no memory for what was kept");
				close(mail->fd[i]);
			}
		mail->msg.n = 0;
		return true;
	case KEPT_SAVE:
		kept.origin.save = true;
		kept_mail_close(mail);
		return true;
	case KEPT_ENDS:
		take_ends(&mail->msg);
		kept_mail_close(mail);
		return true;
	case KEPT_OOM:
		kept.origin.oom = (unsigned)mail->msg.value;
		kept_mail_close(mail);
		return true;
	case KEPT_MOURNS:
		kept.mourned = (unsigned)MIN(mail->msg.value, (uint64_t)UINT32_MAX);
		kept_mail_close(mail);
		return true;
	case KEPT_CAN:
		kept.can = mail->msg.value;
		kept_mail_close(mail);
		return true;
	case KEPT_BEGIN:
	case KEPT_PREPARE:
		kept.prepares = mail->msg.word == KEPT_PREPARE;
		take_origin(mail);
		kept_mail_close(mail);
		return false;
	default:
		hear_news(mail);
		return true;
	}
}

/* What was left, up to BEGIN or PREPARE. */
static void receive_left(void)
{
	int rc;

	kept.lost = false;
	do {
		rc = kept_msg_receive(kept.fd, &kept.mail);
		if (rc == -EAGAIN)
			wait_for_keeper(POLLIN, NSEC_PER_SEC);
		else if (rc == -EMFILE || rc == -EBADMSG)
			log_error("keeper: something that was kept is lost: %s", strerror(-rc));
		if (rc == -EMFILE) { /* it has come but for that, and may be the last word */
			kept.lost = true;
			rc = 1;
		}
	} while (rc < 0 || (rc == 1 && take_mail(&kept.mail)));
	kept.gone = rc == 0;
	index_left();
}

/*
 * The kernel's table of our files grows by doubling. In a process of several threads that waits for
 * an RCU grace period: some 30 ms, in the middle of a planned restart. It is done while there is
 * one thread. The table stays as it is, and takes eight bytes a file.
 */
#define FILES_AHEAD 16384u
static void grow_table_of_files(int fd)
{
	struct rlimit limit;
	int high;

	if (getrlimit(RLIMIT_NOFILE, &limit) || !limit.rlim_cur)
		return;
	high = fcntl(fd, F_DUPFD_CLOEXEC, (int)MIN(limit.rlim_cur, (rlim_t)FILES_AHEAD) - 1);
	if (high >= 0)
		close(high);
}

void kept_start(int fd)
{
	ASSERT(kept.fd < 0);
	kept.fd = fd;
	if (fd < 0)
		return;
	grow_table_of_files(fd);
	receive_left();
}

bool kept_lost(void)
{
	return kept.lost;
}

bool kept_prepares(void)
{
	return kept.prepares;
}

bool kept_begin(uint64_t wants)
{
	ASSERT(kept.prepares);
	left_forget();
	/* (Not heard: it has gone, or waits no more.) */
	(void)kept_tell(KEPT_PREPARED, wants, NULL);
	do
		receive_left();
	while (kept.prepares && !kept.gone);
	kept.prepares = false;
	return !kept.gone;
}

void kept_end(void)
{
	left_forget();
	if (kept.fd >= 0)
		close(kept.fd);
	memset(&kept, 0, sizeof(kept));
	kept.fd = -1;
}

const char *const kept_end_names[KEPT_END_KINDS] = {
	[KEPT_END_NONE] = "none",	[KEPT_END_DIED] = "died", [KEPT_END_STALLED] = "stalled",
	[KEPT_END_PLANNED] = "planned", [KEPT_END_OOM] = "oom",
};

const struct kept_origin *kept_origin(void)
{
	return &kept.origin;
}

/* ---- the keeper's answers -------------------------------------------------------------------- */

int kept_fd(void)
{
	return kept.fd;
}

bool kept_waits_for_next(void)
{
	return kept.can & KEPT_CAN_PREPARE && !kept.gone;
}

bool kept_can_replace(void)
{
	return kept.can & KEPT_CAN_REPLACE && !kept.gone;
}

unsigned kept_replaced(const char **why)
{
	*why = kept.not_replaced;
	return kept.replaced;
}

bool kept_may_go(void)
{
	return kept.go;
}

uint64_t kept_next_wants(void)
{
	return kept.go ? kept.wants : 0;
}

unsigned kept_mourned(void)
{
	return kept.mourned;
}

const char *kept_took(void)
{
	return kept.took;
}

bool kept_alive(void)
{
	int rc;

	do {
		rc = kept_msg_receive(kept.fd, &kept.mail);
		if (rc == 1)
			hear_news(&kept.mail);
	} while (rc == 1 || rc == -EBADMSG || rc == -EMFILE);
	kept.gone |= rc == 0;
	return !kept.gone;
}

/* The next answer, to whatever it is, within @patience. 1, 0: the keeper has gone; -ETIMEDOUT. */
static int next_answer(struct kept_msg *answer, uint64_t patience)
{
	const uint64_t until = clock_now_ns() + patience;

	for (uint64_t now = 0; now < until;) {
		int rc = kept_msg_receive(kept.fd, &kept.mail);

		now = clock_now_ns();
		if (rc == -EAGAIN && now < until)
			wait_for_keeper(POLLIN, until - now);
		if (rc == 0) {
			kept.gone = true;
			return 0;
		}
		if (rc != 1)
			continue;
		*answer = kept.mail.msg;
		hear_news(&kept.mail);
		if (answer->word == KEPT_DONE)
			return 1;
	}
	return -ETIMEDOUT;
}

static int await_answer(uint32_t seq, uint64_t patience)
{
	struct kept_msg answer;
	int rc;

	do
		rc = next_answer(&answer, patience);
	while (rc == 1 && answer.seq != seq);
	return rc == 1 ? -(int)answer.value : rc ? rc : -EPIPE;
}

/*
 * -EAGAIN: there is no room within @patience. The kernel also counts the descriptors that are on
 * their way in sockets, of all processes of a user, where he may have few open: what others have
 * sent is taken soon, and nothing says when.
 */
static int send_to_keeper(struct kept_msg *msg, const int *fd, uint64_t patience)
{
	const uint64_t until = patience ? clock_now_ns() + patience : 0;

	for (;;) {
		const int rc = kept_msg_send(kept.fd, msg, NULL, fd, fd ? 1 : 0);
		const uint64_t now = clock_now_ns();

		if (rc != -EAGAIN && rc != -ETOOMANYREFS)
			return rc;
		if (now >= until)
			return -EAGAIN;
		if (rc == -EAGAIN)
			wait_for_keeper(POLLOUT, until - now);
		else
			(void)poll(NULL, 0, 1);
	}
}

/* Its answer has the number kept.seq. */
static int tell_keeper(enum kept_word word, const char *key, const int *fd, uint64_t patience)
{
	struct kept_msg msg = { .word = word, .seq = ++kept.seq };

	if (kept.gone)
		return -EPIPE;
	snprintf(msg.text, sizeof(msg.text), "%s", key);
	return send_to_keeper(&msg, fd, patience);
}

static int ask_keeper(enum kept_word word, const char *key, const int *fd)
{
	int rc = tell_keeper(word, key, fd, ANSWER_NS);

	return rc ?: await_answer(kept.seq, ANSWER_NS);
}

int kept_put(const char *key, int fd)
{
	if (kept.fd < 0)
		return 0;
	return kept_key_ok(key) ? ask_keeper(KEPT_PUT, key, &fd) : -EINVAL;
}

int kept_put_soon(const char *key, int fd)
{
	struct kept_msg msg = { .word = KEPT_PUT }; /* nobody waits for an answer to 0 */

	if (kept.fd < 0)
		return 0;
	if (!kept_key_ok(key))
		return -EINVAL;
	snprintf(msg.text, sizeof(msg.text), "%s", key);
	return send_to_keeper(&msg, &fd, 0);
}

/* Both sockets hold as many messages. */
#define AT_ONCE 64u

/* Those of @pair[0..n), whose numbers begin with @first, are answered. */
static void await_all(struct kept_pair *pair, unsigned n, uint32_t first)
{
	unsigned left = 0;

	for (unsigned i = 0; i < n; i++)
		left += pair[i].err == -EINPROGRESS;
	while (left) {
		struct kept_msg answer;
		const int rc = next_answer(&answer, ANSWERS_NS);

		for (unsigned i = 0; i < n && rc != 1; i++)
			if (pair[i].err == -EINPROGRESS)
				pair[i].err = rc ? rc : -EPIPE;
		if (rc != 1)
			return;
		const uint32_t i = answer.seq - first;

		if (i >= n || pair[i].err != -EINPROGRESS)
			continue;
		pair[i].err = -(int)answer.value;
		left--;
	}
}

void kept_put_all(struct kept_pair *pair, unsigned n)
{
	for (unsigned done = 0; done < n; done += AT_ONCE) {
		const unsigned some = MIN(n - done, AT_ONCE);
		const uint32_t first = kept.seq + 1;

		for (unsigned i = 0; i < some; i++) {
			struct kept_pair *p = &pair[done + i];

			if (kept.fd < 0) {
				p->err = 0;
				continue;
			}
			/* (A key that is none takes a number all the same.) */
			if (kept_key_ok(p->key))
				p->err = tell_keeper(KEPT_PUT, p->key, &p->fd, ANSWER_NS);
			else
				p->err = (kept.seq++, -EINVAL);
			if (!p->err)
				p->err = -EINPROGRESS;
		}
		await_all(pair + done, some, first);
	}
}

int kept_give_up(const char *key)
{
	if (kept.fd < 0)
		return 0;
	return kept_key_ok(key) ? ask_keeper(KEPT_DROP, key, NULL) : -EINVAL;
}

int kept_drop(const char *key)
{
	return kept.held ? 0 : kept_give_up(key);
}

int kept_drop_soon(const char *key)
{
	if (kept.fd < 0 || kept.held)
		return 0;
	return kept_key_ok(key) ? tell_keeper(KEPT_DROP, key, NULL, 0) : -EINVAL;
}

int kept_drop_all(const char *prefix)
{
	unsigned asked = 0;
	int err = 0;

	if (kept.fd < 0 || kept.held)
		return 0;
	for (unsigned i = 0; i < kept.nleft && !err; i++) {
		if (strncmp(kept.left[i].key, prefix, strlen(prefix)))
			continue;
		err = tell_keeper(KEPT_DROP, kept.left[i].key, NULL, ANSWER_NS);
		if (!err && ++asked % AT_ONCE == 0)
			err = await_answer(kept.seq, ANSWERS_NS);
	}
	return err || asked % AT_ONCE == 0 ? err : await_answer(kept.seq, ANSWERS_NS);
}

void kept_ended(void)
{
	if (kept.tombstone)
		*kept.tombstone = 1;
}

void kept_hold(void)
{
	kept.held = true;
}

bool kept_tell(enum kept_word word, uint64_t value, const char *text)
{
	struct kept_msg msg = { .word = word, .value = value };

	if (kept.fd < 0)
		return false;
	snprintf(msg.text, sizeof(msg.text), "%s", text ? text : "");
	return kept_msg_send(kept.fd, &msg, NULL, NULL, 0) == 0;
}
