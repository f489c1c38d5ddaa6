/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * See mirror_channel.h. What any thread has queued leaves by its loop, at the end of an iteration:
 * there the frames get their codes, in the order of their sending, and one sendmsg() takes them.
 *
 * At most one message is posted to the loop at a time. Who finds `closed` posts none, so the last
 * one says so. It moves by that message, too: while it is under way nobody else posts one.
 */
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "events/log.h"
#include "events/metrics.h"
#include "tgtd/cluster/live/mirror_channel.h"

#define FRAME_MAX (MIRROR_HEAD_MAX + MIRROR_DATA_MAX)
#define BUF_MIN KiB(64)
#define BUF_IDLE KiB(256)  /* more is given back when a frame of that size is done */
#define READ_TURN KiB(512) /* then others of the loop have a turn */
#define IOVS 64
#define MOVE_RUN 64			/* frames of one other loop, and it moves there */
#define MOVE_LOOK_NS (NSEC_PER_SEC / 4) /* then: is it of use there? */
#define MOVE_ALONE 4			/* not if one of so many frames is of another loop */

/* With the lock. */
static bool channel_posts(struct mirror_channel *c)
{
	if (c->posted || c->closed)
		return false;
	c->posted = true;
	return true;
}

/* ---- its end --------------------------------------------------------------------------------- */
static void channel_shut(struct mirror_channel *c)
{
	struct list left = LIST_INIT(left);
	struct mirror_rdma *rdma;
	int fd;

	pthread_mutex_lock(&c->lock);
	c->refuses = true;
	list_splice_tail(&left, &c->queue);
	fd = c->fd;
	c->fd = -1;
	rdma = c->rdma;
	c->rdma = NULL;
	pthread_mutex_unlock(&c->lock);
	if (rdma)
		c->proved = mirror_rdma_is_proved(rdma);
	mirror_rdma_free(rdma);
	if (c->lfd.loop) {
		fd = c->lfd.fd;
		loop_timer_cancel(c->loop, &c->look);
		loop_fd_del(&c->lfd);
	}
	if (fd >= 0)
		close(fd);
	list_splice_tail(&left, &c->sending);
	mirror_bufs_free(&left);
	atomic_store(&c->waiting, 0);
	free(c->buf);
	c->buf = NULL;
	c->size = c->have = 0;
}

static void channel_fails(struct mirror_channel *c, const char *why)
{
	channel_shut(c);
	c->ops->failed(c, why);
}

/* ---- out ------------------------------------------------------------------------------------- */
static void channel_takes(struct mirror_channel *c)
{
	pthread_mutex_lock(&c->lock);
	list_splice_tail(&c->sending, &c->queue);
	pthread_mutex_unlock(&c->lock);
}

static unsigned channel_gathers(struct mirror_channel *c, struct iovec *iov, bool *bad)
{
	struct mirror_buf *b;
	unsigned n = 0;

	list_for_each(b, &c->sending, link) {
		const size_t frame = b->len - MIRROR_CODE;

		if (n == IOVS)
			break;
		if (!b->coded && !mirror_coder_make(&c->out, b->bytes, frame, b->bytes + frame)) {
			*bad = true;
			return 0;
		}
		b->coded = true;
		iov[n++] = (struct iovec){ b->bytes + b->sent, b->len - b->sent };
	}
	return n;
}

/* @n bytes wait no more. */
static void channel_left(struct mirror_channel *c, size_t n)
{
	const size_t left = atomic_fetch_sub(&c->waiting, n) - n;

	counter_add(&c->bytes_out, n);
	metric_add(M_mirror_bytes_sent, n);
	if (c->full && left < MIRROR_BACKLOG / 4) {
		c->full = false;
		c->ops->room(c);
	}
}

static void channel_sent(struct mirror_channel *c, size_t n)
{
	const size_t all = n;

	counter_add(&c->writes, 1);
	while (n) {
		struct mirror_buf *b = list_first(&c->sending, struct mirror_buf, link);
		const size_t part = MIN(n, b->len - b->sent);

		b->sent += part;
		n -= part;
		if (b->sent == b->len) {
			counter_add(&c->frames_out, 1);
			metric_inc(M_mirror_frames_sent);
			list_del(&b->link);
			mirror_buf_free(b);
		}
	}
	channel_left(c, all);
}

static void channel_events(struct mirror_channel *c)
{
	const size_t waiting = atomic_load(&c->waiting);
	const bool reads = c->rdma || !c->read_until || waiting <= c->read_until;
	const bool writes = !c->rdma && !c->offering && !list_empty(&c->sending);

	if (c->lfd.loop)
		(void)loop_fd_modify(&c->lfd, (reads ? EPOLLIN : 0u) | (writes ? EPOLLOUT : 0u));
}

static void channel_flushes(struct mirror_channel *c)
{
	struct iovec iov[IOVS];
	const char *why;
	bool bad = false;

	channel_takes(c);
	if (atomic_load(&c->waiting) > MIRROR_BACKLOG / 2)
		c->full = true;
	if (c->offering)
		return;
	if (c->rdma) {
		why = mirror_rdma_flush(c->rdma);
		if (why)
			channel_fails(c, why);
		return;
	}
	while (c->lfd.loop && !list_empty(&c->sending)) {
		struct msghdr msg = { .msg_iov = iov };
		ssize_t n;

		msg.msg_iovlen = channel_gathers(c, iov, &bad);
		if (bad) {
			channel_fails(c, "libcrypto fails");
			return;
		}
		n = sendmsg(c->lfd.fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN) {
			channel_fails(c, strerror(errno));
			return;
		}
		if (n < 0)
			break;
		channel_sent(c, (size_t)n);
	}
	channel_events(c);
}

static void channel_deferred(struct loop_deferred *d)
{
	struct mirror_channel *c = container_of(d, struct mirror_channel, flush);

	if (c->lfd.loop)
		channel_flushes(c);
}

/* A frame was queued by the calling thread. With the lock; who is elsewhere has posted the message
 * that it moves by, or does so. */
static void channel_used(struct mirror_channel *c)
{
	const struct loop *here = loop_current();

	if (here == c->loop) {
		c->move.used++;
		if (here != c->home)
			c->move.sender = here;
		return;
	}
	if (here == c->home || !here || here == c->never || !c->dials || c->by != MIRROR_BY_TCP)
		return;
	if (c->move.sender != here)
		c->move.run = 0;
	c->move.sender = here;
	c->move.others++;
	if (++c->move.run < MOVE_RUN || c->move.to)
		return;
	c->move.run = 0;
	c->move.there = mirror_guests_here();
	c->move.to = c->move.there ? loop_current() : NULL;
}

bool mirror_channel_queue(struct mirror_channel *c, struct mirror_buf *b)
{
	bool room, post = false, later = false, here;
	struct loop *loop;

	pthread_mutex_lock(&c->lock);
	loop = c->loop;
	here = loop_current() == loop;
	room = atomic_load(&c->waiting) + b->len <= MIRROR_BACKLOG;
	if (room && !c->refuses) {
		atomic_fetch_add(&c->waiting, b->len);
		list_add_tail(&c->queue, &b->link);
		later = here && !c->closed;
		post = !here && channel_posts(c);
		channel_used(c);
		b = NULL;
	}
	room = room || c->refuses;
	pthread_mutex_unlock(&c->lock);
	mirror_buf_free(b);
	if (later)
		loop_defer(loop, &c->flush);
	if (post)
		loop_post(loop, &c->msg);
	return room;
}

/* ---- it moves -------------------------------------------------------------------------------- */
/* On its loop. Until the message has come there it is open nowhere, as one that has not begun. */
static void channel_moves(struct mirror_channel *c)
{
	const int fd = c->lfd.fd;
	struct mirror_guests *left;
	struct loop *to;

	loop_timer_cancel(c->loop, &c->look);
	loop_undefer(&c->flush);
	loop_fd_del(&c->lfd);
	pthread_mutex_lock(&c->lock);
	c->fd = fd;
	c->loop = to = c->move.to;
	left = c->move.here;
	c->move.here = c->move.there;
	c->move.to = NULL;
	c->move.there = NULL;
	c->move.used = c->move.others = c->move.run = 0;
	pthread_mutex_unlock(&c->lock);
	loop_post(to, &c->msg);
	mirror_guests_left(left);
}

static void channel_look_here(struct timer *t)
{
	struct mirror_channel *c = container_of(t, struct mirror_channel, look);
	bool post;

	pthread_mutex_lock(&c->lock);
	post = !c->move.to && c->move.others * MOVE_ALONE >= c->move.used;
	if (post) {
		c->move.to = c->home;
		post = channel_posts(c);
	}
	c->move.used = c->move.others = 0;
	pthread_mutex_unlock(&c->lock);
	loop_timer_arm(c->loop, &c->look, MOVE_LOOK_NS);
	if (post)
		loop_post(c->loop, &c->msg);
}

/* ---- RDMA ------------------------------------------------------------------------------------ */
static const char *channel_takes_frame(struct mirror_channel *c, const struct mirror_frame *f)
{
	counter_add(&c->frames_in, 1);
	metric_inc(M_mirror_frames_received);
	return c->ops->frame(c, f);
}

static const char *rdma_frame(void *arg, const struct mirror_frame *f)
{
	struct mirror_channel *c = arg;
	uint64_t bytes = MIRROR_HEAD + (uint64_t)f->n * MIRROR_RECORD;

	for (unsigned i = 0; i < f->n; i++)
		bytes += mirror_data_len(&f->record[i], f->shift);
	counter_add(&c->bytes_in, bytes);
	metric_add(M_mirror_bytes_received, bytes);
	return channel_takes_frame(c, f);
}

static void rdma_sent(void *arg, unsigned frames, size_t bytes)
{
	struct mirror_channel *c = arg;

	counter_add(&c->frames_out, frames);
	metric_add(M_mirror_frames_sent, frames);
	channel_left(c, bytes);
}

static void rdma_failed(void *arg, const char *why)
{
	channel_fails(arg, why);
}

/* NULL, and the log says why: by TCP then. */
static struct mirror_rdma *channel_rdma(struct mirror_channel *c)
{
	const struct mirror_rdma_conf conf = { .loop = c->loop,
					       .dev = c->dev,
					       .listens = !c->dials,
					       .out = &c->out,
					       .in = &c->in,
					       .sending = &c->sending,
					       .frame = rdma_frame,
					       .failed = rdma_failed,
					       .sent = rdma_sent,
					       .arg = c };
	const char *why;
	struct mirror_rdma *r = mirror_rdma_new(&conf, &why), *unused = NULL;

	if (!r)
		log_ratelimited(LOG_LVL_NOTICE, "mirror: a channel goes over TCP: %s", why);
	pthread_mutex_lock(&c->lock);
	if (c->cut) {
		unused = r;
		r = NULL;
	}
	c->rdma = r;
	pthread_mutex_unlock(&c->lock);
	mirror_rdma_free(unused);
	return r;
}

static void channel_no_rdma(struct mirror_channel *c)
{
	struct mirror_rdma *r = c->rdma;

	pthread_mutex_lock(&c->lock);
	c->rdma = NULL;
	pthread_mutex_unlock(&c->lock);
	mirror_rdma_free(r);
}

/* It is short, and the first thing that is sent. */
static bool channel_offers(struct mirror_channel *c)
{
	uint8_t b[MIRROR_RDMA_OFFER + MIRROR_CODE];

	mirror_rdma_offer(c->rdma, b);
	return mirror_coder_make(&c->out, b, MIRROR_RDMA_OFFER, b + MIRROR_RDMA_OFFER) &&
	       send(c->lfd.fd, b, sizeof(b), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(b);
}

/* The other end's offer is at @b. NULL, or why it fails. */
static const char *channel_offered(struct mirror_channel *c, const uint8_t *b)
{
	const char *why;
	bool can;

	if (!mirror_coder_check(&c->in, b, MIRROR_RDMA_OFFER, b + MIRROR_RDMA_OFFER))
		return "the code of its offer is wrong";
	why = mirror_rdma_offered(b, &can);
	if (why)
		return why;
	if (can && !c->dials)
		(void)channel_rdma(c);
	if (!can)
		channel_no_rdma(c);
	if (c->rdma)
		why = mirror_rdma_connect(c->rdma, b);
	if (!why && !c->dials && !channel_offers(c))
		why = "the connection is broken";
	if (!why && c->strict && !c->rdma)
		why = "there is no RDMA at both ends, and it is to be no other way";
	c->offering = false;
	c->by = c->rdma ? MIRROR_BY_RDMA : MIRROR_BY_TCP;
	loop_defer(c->loop, &c->flush); /* what has waited for this */
	return why;
}

/* ---- in -------------------------------------------------------------------------------------- */
/* Data are in frames by TCP. */
static const char *frame_has_slots(const struct mirror_frame *f)
{
	for (unsigned i = 0; i < f->n; i++)
		if (f->record[i].op == MIRROR_WRITE && f->record[i].ref != MIRROR_INLINE)
			return "a record names a slot that was not granted";
	return NULL;
}

/* The frame at @at, of which @n bytes are there. How long it is with its code, 0: more is needed;
 * *@why: it fails. */
static size_t channel_frame(struct mirror_channel *c, const uint8_t *at, size_t n, const char **why)
{
	size_t len;

	if (n < MIRROR_HEAD)
		return 0;
	len = mirror_frame_length(at, FRAME_MAX);
	if (!len)
		*why = "what it sends is no frame";
	if (!len || n < len + MIRROR_CODE)
		return 0;
	if (!mirror_coder_check(&c->in, at, len, at + len)) {
		*why = "the code of a frame is wrong";
		return 0;
	}
	*why = mirror_decode(&c->frame, at, len);
	if (!*why)
		*why = frame_has_slots(&c->frame);
	if (!*why)
		*why = channel_takes_frame(c, &c->frame);
	return *why ? 0 : len + MIRROR_CODE;
}

/* The whole frames in the buffer. False: it has failed, or was closed. */
static bool channel_frames(struct mirror_channel *c)
{
	const char *why = NULL;
	size_t at = 0, n;

	if (c->offering && c->have >= MIRROR_RDMA_OFFER + MIRROR_CODE) {
		why = channel_offered(c, c->buf);
		at = MIRROR_RDMA_OFFER + MIRROR_CODE;
	}
	if (c->rdma && !c->offering && c->have > at && !why)
		why = "it sends by TCP what goes by RDMA";
	while (!why && !c->offering && !c->rdma && c->lfd.loop &&
	       (n = channel_frame(c, c->buf + at, c->have - at, &why)))
		at += n;
	if (why && c->lfd.loop)
		channel_fails(c, why);
	if (!c->lfd.loop)
		return false;
	c->have -= at;
	if (at && c->have)
		memmove(c->buf, c->buf + at, c->have);
	if (!c->have && c->size > BUF_IDLE) {
		free(c->buf);
		c->buf = NULL;
		c->size = 0;
	}
	return true;
}

/* Room for the rest of what has begun. It grows with what has come: who only says that much will
 * follow costs nothing. */
static bool channel_has_room(struct mirror_channel *c)
{
	size_t size = MAX((size_t)BUF_MIN, c->size);
	uint8_t *to;

	if (c->buf && c->have < c->size)
		return true;
	if (c->buf)
		size = MIN(2 * c->size, FRAME_MAX + MIRROR_CODE);
	to = realloc(c->buf, size);
	if (!to)
		return false;
	c->buf = to;
	c->size = size;
	return true;
}

static void channel_reads(struct mirror_channel *c)
{
	size_t turn = 0;

	while (turn < READ_TURN) {
		size_t asked;
		ssize_t n;

		if (!channel_has_room(c)) {
			channel_fails(c, "no memory");
			return;
		}
		asked = c->size - c->have;
		n = recv(c->lfd.fd, c->buf + c->have, asked, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			channel_fails(c, n ? strerror(errno) : "the other side has ended it");
			return;
		}
		counter_add(&c->bytes_in, (uint64_t)n);
		metric_add(M_mirror_bytes_received, (uint64_t)n);
		c->have += (size_t)n;
		turn += (size_t)n;
		if (!channel_frames(c))
			return;
		if ((size_t)n < asked ||
		    (c->read_until && atomic_load(&c->waiting) > c->read_until))
			break;
	}
	channel_events(c);
}

static void channel_fd_ready(struct loop_fd *lfd, uint32_t revents)
{
	struct mirror_channel *c = container_of(lfd, struct mirror_channel, lfd);

	if (revents & EPOLLOUT)
		channel_flushes(c);
	if (c->lfd.loop && (revents & EPOLLIN))
		channel_reads(c);
	else if (c->lfd.loop && (revents & (EPOLLERR | EPOLLHUP)))
		channel_fails(c, "the connection is broken");
}

/* ---- what others want of it ------------------------------------------------------------------ */
/* It is open, and here. False: it has failed. */
static bool channel_opens(struct mirror_channel *c, int fd)
{
	const bool begins = c->by == MIRROR_BY_NONE;

	c->lfd = (struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = channel_fd_ready };
	if (loop_fd_add(c->loop, &c->lfd)) {
		close(fd);
		channel_fails(c, "epoll refuses it");
		return false;
	}
	if (c->loop != c->home)
		loop_timer_arm(c->loop, &c->look, MOVE_LOOK_NS);
	if (!begins)
		return true;
	c->offering = c->dev;
	c->by = c->dev ? MIRROR_BY_NONE : MIRROR_BY_TCP;
	if (c->dev && c->dials)
		(void)channel_rdma(c);
	if (c->dev && c->dials && !channel_offers(c)) {
		channel_fails(c, "the connection is broken");
		return false;
	}
	return true;
}

static void channel_closes(struct mirror_channel *c)
{
	struct mirror_guests *here = NULL, *there = NULL;
	bool closes;

	channel_shut(c);
	loop_undefer(&c->flush);
	pthread_mutex_lock(&c->lock);
	closes = !c->posted; /* else that message comes */
	c->closed = closes;
	if (closes) {
		here = c->move.here;
		there = c->move.there;
	}
	pthread_mutex_unlock(&c->lock);
	mirror_guests_left(here);
	mirror_guests_left(there);
	if (closes)
		c->ops->closed(c);
}

static void channel_look(struct loop_msg *msg)
{
	struct mirror_channel *c = container_of(msg, struct mirror_channel, msg);
	struct mirror_guests *refused = NULL;
	bool closes, moves;
	int fd;

	pthread_mutex_lock(&c->lock);
	closes = c->want_close;
	moves = !closes && c->move.to && c->lfd.loop;
	c->posted = moves; /* else another message comes here */
	fd = c->fd;
	if (!closes)
		c->fd = -1;
	if (!closes && !moves) {
		refused = c->move.there;
		c->move.there = NULL;
		c->move.to = NULL;
	}
	pthread_mutex_unlock(&c->lock);
	mirror_guests_left(refused);
	if (closes)
		channel_closes(c);
	else if (moves)
		channel_moves(c);
	else if ((fd < 0 || channel_opens(c, fd)) && c->lfd.loop)
		channel_flushes(c);
}

void mirror_channel_init(struct mirror_channel *c)
{
	pthread_mutex_init(&c->lock, NULL);
	list_init(&c->queue);
	list_init(&c->sending);
	c->fd = -1;
	c->loop = c->home;
	c->msg.handle = channel_look;
	timer_init(&c->look, channel_look_here);
	loop_deferred_init(&c->flush, channel_deferred);
}

void mirror_channel_open(struct mirror_channel *c, int fd, struct mirror_rdma_dev *dev,
			 const struct mirror_coder *out, const struct mirror_coder *in)
{
	struct loop *loop;
	bool post;

	c->dev = dev;
	c->out = *out;
	c->in = *in;
	pthread_mutex_lock(&c->lock);
	c->fd = fd;
	post = channel_posts(c);
	loop = c->loop;
	pthread_mutex_unlock(&c->lock);
	if (post)
		loop_post(loop, &c->msg);
}

void mirror_channel_close(struct mirror_channel *c)
{
	struct loop *loop;
	bool post;

	pthread_mutex_lock(&c->lock);
	c->want_close = true;
	post = channel_posts(c);
	loop = c->loop;
	pthread_mutex_unlock(&c->lock);
	if (post)
		loop_post(loop, &c->msg);
}

void mirror_channel_cut(struct mirror_channel *c)
{
	pthread_mutex_lock(&c->lock);
	c->cut = true;
	if (c->rdma)
		mirror_rdma_cut(c->rdma);
	pthread_mutex_unlock(&c->lock);
}

void mirror_channel_fini(struct mirror_channel *c)
{
	pthread_mutex_destroy(&c->lock);
	mirror_coder_free(&c->out);
	mirror_coder_free(&c->in);
}
