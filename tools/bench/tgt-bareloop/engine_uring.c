/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgt-bareloop's other engine, io_uring by its raw system calls: the answers of one batch and the
 * receive for the next enter the kernel in one io_uring_enter. Completions are run on this thread
 * only (DEFER_TASKRUN, Linux 6.1), and sockets are registered, which is how it is cheapest.
 *
 * A connection has at most one receive and one send under way. What comes while a send is under way
 * is held until that is over, since its headers and iovec are in use.
 */
#include <errno.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/bench/tgt-bareloop/tx.h"

enum { ENTRIES = 2048, KINDS_MASK = 3 };
enum kind { RECV, SEND, ACCEPT };

static struct {
	int fd;
	unsigned *sq_head, *sq_tail, *sq_array, sq_mask;
	unsigned *cq_head, *cq_tail, cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
	unsigned filled; /* entries that the kernel has not been told of */
} ring;

static int ring_open(void)
{
	static const unsigned how[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
		IORING_SETUP_COOP_TASKRUN,
		0,
	};
	struct io_uring_params p;
	int none[CONNS_MAX];
	uint8_t *m;
	size_t sq, cq;

	ring.fd = -1;
	for (unsigned i = 0; i < sizeof(how) / sizeof(how[0]) && ring.fd < 0; i++) {
		memset(&p, 0, sizeof(p));
		p.flags = how[i];
		ring.fd = (int)syscall(__NR_io_uring_setup, ENTRIES, &p);
	}
	if (ring.fd < 0 || !(p.features & IORING_FEAT_SINGLE_MMAP))
		return -1;
	sq = p.sq_off.array + p.sq_entries * sizeof(unsigned);
	cq = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
	m = mmap(NULL, sq > cq ? sq : cq, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
		 ring.fd, IORING_OFF_SQ_RING);
	ring.sqes = mmap(NULL, p.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQES);
	if (m == MAP_FAILED || ring.sqes == MAP_FAILED)
		return -1;
	ring.sq_head = (unsigned *)(void *)(m + p.sq_off.head);
	ring.sq_tail = (unsigned *)(void *)(m + p.sq_off.tail);
	ring.sq_array = (unsigned *)(void *)(m + p.sq_off.array);
	ring.sq_mask = p.sq_entries - 1;
	ring.cq_head = (unsigned *)(void *)(m + p.cq_off.head);
	ring.cq_tail = (unsigned *)(void *)(m + p.cq_off.tail);
	ring.cqes = (struct io_uring_cqe *)(void *)(m + p.cq_off.cqes);
	ring.cq_mask = p.cq_entries - 1;
	memset(none, -1, sizeof(none));
	return (int)syscall(__NR_io_uring_register, ring.fd, IORING_REGISTER_FILES, none,
			    CONNS_MAX);
}

/* Tell the kernel of what was filled in, and wait for `wait` completions. */
static int enter(unsigned wait)
{
	int n = (int)syscall(__NR_io_uring_enter, ring.fd, ring.filled, wait,
			     IORING_ENTER_GETEVENTS, NULL, 0);

	if (n > 0)
		ring.filled -= (unsigned)n;
	return n < 0 && errno != EINTR && errno != EAGAIN && errno != EBUSY ? -1 : 0;
}

static struct io_uring_sqe *sqe(void *who, enum kind kind, uint8_t op)
{
	unsigned tail = *ring.sq_tail, at = tail & ring.sq_mask;
	struct io_uring_sqe *e = &ring.sqes[at];

	while (tail - __atomic_load_n(ring.sq_head, __ATOMIC_ACQUIRE) > ring.sq_mask)
		enter(0);
	memset(e, 0, sizeof(*e));
	e->opcode = op;
	e->user_data = (uint64_t)(uintptr_t)who | kind;
	ring.sq_array[at] = at;
	__atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
	ring.filled++;
	return e;
}

static void start_accept(int lfd)
{
	struct io_uring_sqe *e = sqe(NULL, ACCEPT, IORING_OP_ACCEPT);

	e->fd = lfd;
	e->accept_flags = SOCK_CLOEXEC;
}

static void start_recv(struct bconn *c)
{
	struct io_uring_sqe *e = sqe(c, RECV, IORING_OP_RECV);
	uint8_t *to;

	rx_place(c, &to, &e->len);
	e->addr = (uint64_t)(uintptr_t)to;
	e->fd = (int)c->slot;
	e->flags = IOSQE_FIXED_FILE;
	c->receiving = true;
	c->ops++;
}

static void start_send(struct bconn *c)
{
	struct io_uring_sqe *e =
		sqe(c, SEND, c->zc_want ? IORING_OP_SENDMSG_ZC : IORING_OP_SENDMSG);

	c->msg = tx_message(c);
	e->addr = (uint64_t)(uintptr_t)&c->msg;
	e->len = 1;
	e->fd = (int)c->slot;
	e->flags = IOSQE_FIXED_FILE;
	e->msg_flags = MSG_NOSIGNAL | MSG_WAITALL;
	c->sending = true;
	c->ops++;
}

static bool set_file(unsigned slot, int fd)
{
	struct io_uring_files_update u = {.offset = slot, .fds = (uint64_t)(uintptr_t)&fd};

	return syscall(__NR_io_uring_register, ring.fd, IORING_REGISTER_FILES_UPDATE, &u, 1) == 1;
}

static void on_accept(int fd)
{
	bool used[CONNS_MAX] = {false};
	struct bconn *c = fd < 0 ? NULL : conn_new(fd);

	if (!c)
		return;
	for (unsigned i = 0; i < nconn; i++)
		if (conns[i] != c)
			used[conns[i]->slot] = true;
	while (used[c->slot])
		c->slot++;
	if (set_file(c->slot, fd))
		start_recv(c);
	else
		conn_drop(c);
}

/* Its memory is the kernel's until the last operation is over. */
static void die(struct bconn *c)
{
	if (!c->dead)
		shutdown(c->fd, SHUT_RDWR);
	c->dead = true;
}

/* Answer what was received, then ask for more. */
static void process(struct bconn *c)
{
	c->held = false;
	if (!rx_parse(c)) {
		die(c);
		return;
	}
	if (tx_queued(c))
		start_send(c);
	if (!c->stalled && !c->closing)
		start_recv(c);
}

static void on_recv(struct bconn *c, int res)
{
	c->receiving = false;
	if (res <= 0) {
		die(c);
		return;
	}
	c->rend += (uint32_t)res;
	if (c->sending)
		c->held = true;
	else
		process(c);
}

static void on_send(struct bconn *c, int res)
{
	c->sending = false;
	if (res <= 0) {
		die(c);
		return;
	}
	tx_sent(c, (size_t)res);
	if (tx_queued(c))
		start_send(c);
	else if (c->closing)
		die(c);
	else if (c->held || (c->stalled && tx_room(c)))
		process(c);
}

/* A send with zerocopy completes twice: sent, then no longer needed. */
static void on_notice(struct bconn *c)
{
	tx_zerocopy_done(c, 1);
	if (!c->dead && c->stalled && !c->sending && !c->receiving && tx_room(c))
		process(c);
}

static void on_cqe(const struct io_uring_cqe *e, int lfd)
{
	struct bconn *c = (void *)(uintptr_t)(e->user_data & ~(uint64_t)KINDS_MASK);
	enum kind kind = e->user_data & KINDS_MASK;

	if (kind == ACCEPT) {
		on_accept(e->res);
		start_accept(lfd);
		return;
	}
	if (e->flags & IORING_CQE_F_NOTIF) {
		on_notice(c);
	} else {
		if (e->flags & IORING_CQE_F_MORE) {
			c->ops++;
			c->zc_sent++;
			zc_calls++;
		}
		if (c->dead)
			c->sending = c->receiving = false;
		else if (kind == RECV)
			on_recv(c, e->res);
		else
			on_send(c, e->res);
	}
	if (--c->ops == 0 && c->dead) {
		set_file(c->slot, -1);
		conn_drop(c);
	}
}

int engine_uring(int lfd)
{
	if (ring_open() != 0) {
		fprintf(stderr, "tgt-bareloop: io_uring: %s\n", strerror(errno));
		return 1;
	}
	start_accept(lfd);
	while (!stopping) {
		unsigned head = *ring.cq_head;

		if (enter(nconn == 0 || opt.block ? 1 : 0) != 0) {
			fprintf(stderr, "tgt-bareloop: io_uring_enter: %s\n", strerror(errno));
			return 1;
		}
		while (head != __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE)) {
			struct io_uring_cqe e = ring.cqes[head & ring.cq_mask];

			/* Given back first: handling it may have to enter for room. */
			__atomic_store_n(ring.cq_head, ++head, __ATOMIC_RELEASE);
			on_cqe(&e, lfd);
		}
	}
	close(ring.fd); /* cancels what is under way, before its memory goes */
	return 0;
}
