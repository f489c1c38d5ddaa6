/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See nbd_link.h. What is not said otherwise runs on the link's thread. */
#include <fcntl.h>
#include <libnbd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include "cache/backend/nbd_link.h"
#include "cache/backend/nbd_tls.h"
#include "events/clock.h"
#include "events/log.h"
#include "events/probe.h"

#define CONNECT_S 10u
#define TRIES_MAX 3u /* of one request, each on a connection of its own */
#define RETRY_MAX_S 8u

/* blk_req.drv_word: what the link keeps of a request. */
enum {
	W_LINK,	  /* struct nbd_link */
	W_STATE,  /* S_*, tries in the second byte, the server's errno above */
	W_AT,	  /* bytes that are done, of a DISCARD or ZERO in pieces; of a READ, have come */
	W_NUMBER, /* of the request, for nbd_link_abort() */
};
#define S_ANSWERED 1u
#define S_REFUSED 2u /* by libnbd, before the server had it */

static _Atomic uint64_t numbers;

static struct nbd_link *nbd_link_of(const struct blk_req *req)
{
	return (struct nbd_link *)(uintptr_t)req->drv_word[W_LINK];
}

static unsigned nbd_tries(const struct blk_req *req)
{
	return (uint8_t)(req->drv_word[W_STATE] >> 8);
}

/* ---- connecting: a helper thread ------------------------------------------------------------- */

static int nbd_describe(struct nbd_handle *h, struct nbd_export *x)
{
	int64_t size = nbd_get_size(h), min = nbd_get_block_size(h, LIBNBD_SIZE_MINIMUM),
		max = nbd_get_block_size(h, LIBNBD_SIZE_MAXIMUM);

	if (size < 0 || min < 0 || max < 0)
		return -EIO;
	*x = (struct nbd_export){
		.size = (uint64_t)size,
		.block_min = (uint32_t)MIN(min, (int64_t)MiB(64)),
		.block_max = max ? (uint32_t)MIN(max, (int64_t)MiB(64)) : (uint32_t)MiB(32),
		.readonly = nbd_is_read_only(h) > 0,
		.rotational = nbd_is_rotational(h) > 0,
		.flush = nbd_can_flush(h) > 0,
		.fua = nbd_can_fua(h) > 0,
		.trim = nbd_can_trim(h) > 0,
		.zero = nbd_can_zero(h) > 0,
		.cache = nbd_can_cache(h) > 0,
		.extents = nbd_can_meta_context(h, NBD_CONTEXT) > 0,
	};
	return 0;
}

/* A peer that has gone without a word is to be noticed by the kernel, too. */
static void nbd_watch_peer(int fd)
{
	int on = 1, idle = 10, ms = NBD_STALL_S * 1000;

	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

struct nbd_steps {
	unsigned n;
	int fd; /* the connection's, ours */
};

/* Within a call of the library, which reads as long as something comes. Only the end of that ends
 * it. */
static int nbd_step(void *arg, const char *context, const char *text)
{
	struct nbd_steps *steps = arg;

	(void)context, (void)text;
	if (++steps->n > NBD_STEPS_MAX && steps->fd >= 0)
		(void)shutdown(steps->fd, SHUT_RDWR);
	return 0;
}

static int nbd_go_on(struct nbd_handle *h, struct nbd_steps *steps)
{
	int fd = nbd_aio_get_fd(h), ret;

	steps->fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
	ret = nbd_poll(h, 200);
	if (steps->fd >= 0)
		close(steps->fd);
	steps->fd = -1;
	return ret;
}

static int nbd_connect(struct nbd_link *l)
{
	uint64_t until = clock_now_ns() + CONNECT_S * NSEC_PER_SEC;
	struct nbd_steps steps = { .fd = -1 };
	struct nbd_handle *h;
	int err;

	l->fresh = NULL;
	*l->why = '\0';
	err = nbd_tls_check(l->uri, l->why, sizeof(l->why));
	if (err)
		return err;
	h = nbd_create();
	if (!h || nbd_set_uri_allow_local_file(h, true) < 0 ||
	    nbd_set_uri_allow_transports(h, LIBNBD_ALLOW_TRANSPORT_TCP |
						    LIBNBD_ALLOW_TRANSPORT_UNIX) < 0 ||
	    nbd_add_meta_context(h, NBD_CONTEXT) < 0 || nbd_set_debug(h, true) < 0 ||
	    nbd_set_debug_callback(h, (nbd_debug_callback){ .callback = nbd_step,
							    .user_data = &steps }) < 0 ||
	    nbd_aio_connect_uri(h, l->uri) < 0)
		err = !h ? -ENOMEM : nbd_get_errno() ? -nbd_get_errno() : -ECONNREFUSED;
	while (!err && nbd_aio_is_connecting(h) > 0) {
		if (atomic_load(&l->give_up) || clock_now_ns() > until) {
			err = -ETIMEDOUT;
			snprintf(l->why, sizeof(l->why), "the server does not answer");
		} else if (nbd_go_on(h, &steps) < 0) {
			err = nbd_get_errno() ? -nbd_get_errno() : -EIO;
		}
	}
	if (h)
		(void)(nbd_set_debug(h, false) + nbd_clear_debug_callback(h));
	if (steps.n > NBD_STEPS_MAX) {
		err = -EPROTO;
		snprintf(l->why, sizeof(l->why), "the server talks, and does not serve");
	}
	if (!err && nbd_aio_is_ready(h) <= 0)
		err = -ECONNREFUSED;
	if (!err)
		err = nbd_describe(h, &l->fresh_export);
	if (err) {
		const char *said = nbd_get_error();

		if (!*l->why)
			snprintf(l->why, sizeof(l->why), "%s%s", nbd_tls_hint(l->uri, said),
				 said ? said : strerror(-err));
		nbd_close(h);
		return err;
	}
	nbd_watch_peer(nbd_aio_get_fd(h));
	l->fresh = h;
	return 0;
}

static void nbd_connect_run(struct offload_job *job)
{
	struct nbd_link *l = container_of(job, struct nbd_link, job);

	l->err = nbd_connect(l);
}

static void nbd_connected(struct offload_job *job);
static void nbd_ready(struct loop_fd *fd, uint32_t events);

static void nbd_connect_again(struct nbd_link *l)
{
	if (l->connecting || l->closing)
		return;
	l->connecting = true;
	offload_submit(&l->lane, &l->job, l->loop, nbd_connect_run, nbd_connected);
}

/* ---- with the server ------------------------------------------------------------------------- */

static int nbd_answered(void *arg, int *error)
{
	struct blk_req *req = arg;

	if (!*error && req->op == BLK_READ && req->drv_word[W_AT] != req->len)
		*error = EIO; /* the library says so of no bytes that have not come */
	req->drv_word[W_STATE] |= S_ANSWERED | (uint64_t)(unsigned)*error << 32;
	return 1; /* libnbd is to forget it */
}

static int nbd_piece(void *arg, const void *piece, size_t n, uint64_t offset, unsigned status,
		     int *error)
{
	struct blk_req *req = arg;

	(void)piece, (void)offset, (void)error;
	if (status != LIBNBD_READ_ERROR)
		req->drv_word[W_AT] += n;
	return 0;
}

/* Comes for every request once, answered or not. No call of libnbd is allowed here. */
static void nbd_retired(void *arg)
{
	struct blk_req *req = arg;
	struct nbd_link *l = nbd_link_of(req);

	list_del(&req->link);
	list_add_tail(&l->over, &req->link);
	l->nflying--;
}

/* One piece of memory, for a library that takes no more. */
static bool nbd_bounce(struct blk_req *req)
{
	if ((req->op != BLK_READ && req->op != BLK_WRITE) || req->data.n == 1 || req->drv)
		return true;
	req->drv = malloc(req->len);
	if (req->drv && req->op == BLK_WRITE)
		frags_copy_out(&req->data, 0, req->drv, req->len);
	return req->drv;
}

static int64_t nbd_send(struct nbd_link *l, struct blk_req *req)
{
	const nbd_completion_callback done = { .callback = nbd_answered,
					       .user_data = req,
					       .free = nbd_retired };
	const uint32_t fua = (req->flags & BLK_F_FUA) && l->export.fua ? LIBNBD_CMD_FLAG_FUA : 0;
	void *data = req->drv ? req->drv : req->data.n ? req->data.v[0].base : NULL;
	const uint64_t at = req->offset + req->drv_word[W_AT],
		       len = MIN(req->len - req->drv_word[W_AT], NBD_PIECE_MAX);

	switch (req->op) {
	case BLK_READ:
		return nbd_aio_pread_structured(
			l->h, data, req->len, req->offset,
			(nbd_chunk_callback){ .callback = nbd_piece, .user_data = req }, done, 0);
	case BLK_WRITE:
		return nbd_aio_pwrite(l->h, data, req->len, at, done, fua);
	case BLK_DISCARD:
		return nbd_aio_trim(l->h, len, at, done, fua);
	case BLK_ZERO:
		return nbd_aio_zero(
			l->h, len, at, done,
			fua | (req->flags & BLK_F_MAY_ALLOC ? 0 : LIBNBD_CMD_FLAG_NO_HOLE));
	case BLK_PREFETCH:
		return nbd_aio_cache(l->h, len, at, done, 0);
	default:
		ASSERT(req->op == BLK_SYNC);
		l->in_flush |= l->unsynced;
		l->unsynced = false;
		return nbd_aio_flush(l->h, done, 0);
	}
}

static void nbd_start(struct nbd_link *l, struct blk_req *req)
{
	list_add_tail(&l->flying, &req->link);
	l->nflying++;
	req->drv_word[W_STATE] = (uint64_t)(nbd_tries(req) + 1) << 8;
	if (req->op == BLK_READ)
		req->drv_word[W_AT] = 0;
	if (!nbd_bounce(req)) {
		req->drv_word[W_STATE] |= S_ANSWERED | (uint64_t)ENOMEM << 32;
		nbd_retired(req);
	} else if (nbd_send(l, req) < 0) {
		req->drv_word[W_STATE] |= S_REFUSED;
	}
}

static int nbd_status(unsigned error)
{
	switch (error) {
	case 0:
		return 0;
	case ENOSPC:
	case EDQUOT:
		return -ENOSPC;
	case EPERM:
		return -EROFS;
	case EOPNOTSUPP:
	case ENOMEM:
		return -(int)error;
	default:
		return -EIO;
	}
}

static void nbd_finish(struct nbd_link *l, struct blk_req *req, int status)
{
	const bool writes = req->op == BLK_WRITE || req->op == BLK_DISCARD || req->op == BLK_ZERO;

	if (!status && req->op == BLK_READ && req->drv)
		frags_copy_in(&req->data, 0, req->drv, req->len);
	free(req->drv);
	req->drv = NULL;
	if (!status && writes && !((req->flags & BLK_F_FUA) && l->export.fua))
		l->unsynced = true;
	if (req->op == BLK_SYNC) {
		l->unsynced |= status && l->in_flush;
		l->in_flush = false;
	}
	if (status && status != -ECANCELED)
		log_ratelimited(LOG_LVL_ERROR, "%s: %s of %llu bytes at %llu: %s", l->uri,
				req->op == BLK_READ ? "read" :
				req->op == BLK_SYNC ? "flush" :
						      "write",
				(unsigned long long)req->len, (unsigned long long)req->offset,
				strerror(-status));
	PROBE3(store_done, req, req->op, status);
	blk_complete(req, status);
}

/* The server has answered, or never will by this connection. */
static void nbd_over(struct nbd_link *l, struct blk_req *req)
{
	const uint64_t state = req->drv_word[W_STATE];
	const unsigned error = (unsigned)(state >> 32);
	const bool gone = !(state & S_ANSWERED) || error == ENOTCONN || error == ESHUTDOWN;

	list_del(&req->link);
	if (!gone)
		l->lost_ns = 0;
	if ((state & S_REFUSED) && l->h && nbd_aio_is_ready(l->h) > 0) {
		nbd_finish(l, req, -EIO); /* it is wrong in itself */
	} else if (gone && nbd_tries(req) < TRIES_MAX) {
		list_add_tail(&l->waiting, &req->link);
	} else if (gone || error) {
		nbd_finish(l, req, gone ? -EIO : nbd_status(error));
	} else if ((req->op == BLK_DISCARD || req->op == BLK_ZERO) &&
		   req->len - req->drv_word[W_AT] > NBD_PIECE_MAX) {
		req->drv_word[W_AT] += NBD_PIECE_MAX;
		req->drv_word[W_STATE] = 0;
		list_add_head(&l->waiting, &req->link);
	} else {
		nbd_finish(l, req, 0);
	}
}

/* libnbd closes its descriptor when it likes: the loop has one of its own. */
static int nbd_watch(struct nbd_link *l)
{
	l->fd.fd = fcntl(nbd_aio_get_fd(l->h), F_DUPFD_CLOEXEC, 0);
	l->fd.events = EPOLLIN;
	l->fd.ready = nbd_ready;
	return l->fd.fd < 0 ? -errno : loop_fd_add(l->loop, &l->fd);
}

static void nbd_hang_up(struct nbd_link *l)
{
	loop_fd_del(&l->fd);
	if (l->fd.fd >= 0)
		close(l->fd.fd);
	l->fd.fd = -1;
	nbd_close(l->h); /* retires what flies */
	l->h = NULL;
}

static uint64_t nbd_pause_ns(const struct nbd_link *l)
{
	return MIN(1u << MIN(l->attempts, 8u), RETRY_MAX_S) * NSEC_PER_SEC;
}

/* @why NULL: the library knows. */
static void nbd_lost(struct nbd_link *l, const char *why)
{
	const uint64_t now = clock_now_ns();
	struct list later;
	const char *said = why ? why : nbd_get_error();

	log_warn("%s: the connection is lost (%s)", l->uri,
		 said ? said : "the server has ended it");
	list_init(&later);
	list_splice_tail(&later, &l->waiting);
	nbd_hang_up(l);
	while (!list_empty(&l->over))
		nbd_over(l, list_first(&l->over, struct blk_req, link));
	list_splice_tail(&l->waiting, &later); /* who was with the server is first */
	if (now - l->made_ns > RETRY_MAX_S * NSEC_PER_SEC) {
		l->lost_ns = now;
		l->attempts = 0;
		l->next_ns = 0;
	} else { /* it would be made and lost for ever, as often as the server likes */
		l->lost_ns = l->lost_ns ? l->lost_ns : now;
		l->attempts++;
		l->next_ns = now + nbd_pause_ns(l);
	}
	if (l->unsynced || l->in_flush)
		l->lost(l);
	l->unsynced = l->in_flush = false;
	if (!l->next_ns)
		nbd_connect_again(l);
	loop_timer_arm(l->loop, &l->tick, NSEC_PER_SEC);
}

/* After every call of libnbd that may have got further: answers, room, and what to wait for. */
void nbd_link_settle(struct nbd_link *l)
{
	for (;;) {
		while (!list_empty(&l->over)) {
			l->heard_ns = clock_now_ns();
			l->reads = 0;
			nbd_over(l, list_first(&l->over, struct blk_req, link));
		}
		if (!l->h)
			return;
		if (nbd_aio_is_dead(l->h) > 0 || nbd_aio_is_closed(l->h) > 0) {
			nbd_lost(l, NULL);
			return;
		}
		if (l->reads > NBD_READS_MAX) {
			nbd_lost(l, "the server talks, and answers nothing");
			return;
		}
		if (l->renew && !l->nflying) {
			nbd_connect_again(l); /* nothing is sent until it is there, or has failed */
			break;
		}
		if (l->renew || list_empty(&l->waiting) || l->nflying >= NBD_FLYING)
			break;
		struct blk_req *req = list_first(&l->waiting, struct blk_req, link);

		if (!l->nflying)
			l->heard_ns = clock_now_ns();
		list_del(&req->link);
		nbd_start(l, req);
	}
	const unsigned wants = nbd_aio_get_direction(l->h);

	(void)loop_fd_modify(&l->fd, (wants & LIBNBD_AIO_DIRECTION_READ ? EPOLLIN : 0u) |
					     (wants & LIBNBD_AIO_DIRECTION_WRITE ? EPOLLOUT : 0u));
	if ((l->nflying || l->renew) && !timer_armed(&l->tick))
		loop_timer_arm(l->loop, &l->tick, NSEC_PER_SEC);
}

static void nbd_ready(struct loop_fd *fd, uint32_t events)
{
	struct nbd_link *l = container_of(fd, struct nbd_link, fd);
	const unsigned wants = nbd_aio_get_direction(l->h);

	/* An error is found by reading, or else by writing. */
	if ((wants & LIBNBD_AIO_DIRECTION_READ) && (events & ~(uint32_t)EPOLLOUT)) {
		l->reads++;
		(void)nbd_aio_notify_read(l->h);
	} else if ((wants & LIBNBD_AIO_DIRECTION_WRITE) && (events & ~(uint32_t)EPOLLIN)) {
		(void)nbd_aio_notify_write(l->h);
	}
	nbd_link_settle(l);
}

/* ---- requests -------------------------------------------------------------------------------- */

static bool nbd_hopeless(const struct nbd_link *l)
{
	return !l->h && clock_now_ns() - l->lost_ns > NBD_WAIT_S * NSEC_PER_SEC;
}

static void nbd_arrived(struct loop_msg *msg)
{
	struct blk_req *req = container_of(msg, struct blk_req, msg);
	struct nbd_link *l = nbd_link_of(req);

	if (nbd_hopeless(l)) {
		nbd_finish(l, req, -EIO);
		return;
	}
	list_add_tail(&l->waiting, &req->link);
	nbd_link_settle(l);
}

void nbd_link_submit(struct nbd_link *l, struct blk_req *req)
{
	req->drv = NULL;
	req->drv_word[W_LINK] = (uintptr_t)l;
	req->drv_word[W_STATE] = req->drv_word[W_AT] = 0;
	req->drv_word[W_NUMBER] = ++numbers;
	req->msg.handle = nbd_arrived;
	PROBE4(store_start, req, req->op, req->offset, req->len);
	loop_post(l->loop, &req->msg);
}

/* By its number: the memory may be another request's by now. */
struct nbd_abort {
	struct loop_msg msg;
	struct nbd_link *l;
	uint64_t number;
};

static void nbd_abort_waiting(struct loop_msg *msg)
{
	struct nbd_abort *a = container_of(msg, struct nbd_abort, msg);
	struct blk_req *req, *next;

	list_for_each_safe(req, next, &a->l->waiting, link)
		if (req->drv_word[W_NUMBER] == a->number) {
			list_del(&req->link);
			nbd_finish(a->l, req, -ECANCELED);
			break;
		}
	free(a);
}

void nbd_link_abort(struct nbd_link *l, struct blk_req *req)
{
	struct nbd_abort *a = malloc(sizeof(*a));

	if (!a)
		return;
	a->msg.handle = nbd_abort_waiting;
	a->l = l;
	a->number = req->drv_word[W_NUMBER];
	loop_post(l->loop, &a->msg);
}

/* ---- a connection comes, and goes ------------------------------------------------------------ */

static void nbd_end(struct nbd_link *l)
{
	loop_timer_cancel(l->loop, &l->tick);
	if (l->h) {
		(void)nbd_aio_disconnect(l->h, 0);
		nbd_hang_up(l);
	}
	loop_stop(l->loop);
}

/* False: what is served now is not what was opened. */
static bool nbd_same_export(struct nbd_link *l)
{
	const struct nbd_export *is = &l->export, *now = &l->fresh_export;

	return is->readonly == now->readonly && is->block_min >= now->block_min &&
	       is->block_max <= now->block_max && is->flush == now->flush && is->fua == now->fua &&
	       (!is->trim || now->trim) && (!is->zero || now->zero) && (!is->cache || now->cache) &&
	       (!is->extents || now->extents);
}

static void nbd_adopt(struct nbd_link *l)
{
	int err;

	if (l->h) { /* a renewal: nothing flies; what the old server has is stable, or is not */
		(void)nbd_aio_disconnect(l->h, 0);
		nbd_hang_up(l);
		if (l->unsynced)
			l->lost(l);
		l->unsynced = false;
	}
	l->h = l->fresh;
	l->fresh = NULL;
	l->renew = false;
	l->made_ns = l->heard_ns = clock_now_ns();
	l->reads = 0;
	err = nbd_watch(l);
	if (err) {
		nbd_lost(l, strerror(-err));
		return;
	}
	atomic_store(&l->size, l->fresh_export.size);
	atomic_fetch_add(&l->made, 1);
	nbd_link_settle(l);
}

static void nbd_connected(struct offload_job *job)
{
	struct nbd_link *l = container_of(job, struct nbd_link, job);

	l->connecting = false;
	if (!l->err && !nbd_same_export(l)) {
		snprintf(l->why, sizeof(l->why), "the export is not what it was");
		l->err = -EIO;
	}
	if ((l->err || l->closing) && l->fresh) {
		nbd_close(l->fresh);
		l->fresh = NULL;
	}
	if (l->closing) {
		nbd_end(l);
		return;
	}
	if (!l->err) {
		if (!l->h)
			log_notice("%s: connected again", l->uri);
		nbd_adopt(l);
		return;
	}
	if (!l->attempts++)
		log_warn("%s: cannot be connected to: %s", l->uri, l->why);
	l->next_ns = clock_now_ns() + nbd_pause_ns(l);
	if (l->renew) {
		l->renew = false; /* the old connection goes on */
		nbd_link_settle(l);
	}
}

static void nbd_tick(struct timer *t)
{
	struct nbd_link *l = container_of(t, struct nbd_link, tick);
	const uint64_t now = clock_now_ns();

	if (l->h && l->nflying && now - l->heard_ns > NBD_STALL_S * NSEC_PER_SEC) {
		nbd_lost(l, "no answer for 30 s");
		return;
	}
	if (nbd_hopeless(l))
		while (!list_empty(&l->waiting)) {
			struct blk_req *req = list_first(&l->waiting, struct blk_req, link);

			list_del(&req->link);
			nbd_finish(l, req, -EIO);
		}
	if (!l->h && now >= l->next_ns)
		nbd_connect_again(l);
	if (!l->h || l->nflying)
		loop_timer_arm(l->loop, &l->tick, NSEC_PER_SEC);
}

struct nbd_order {
	struct loop_msg msg;
	struct nbd_link *l;
};

static void nbd_take_over(struct loop_msg *msg)
{
	struct nbd_order *o = container_of(msg, struct nbd_order, msg);

	nbd_adopt(o->l);
	free(o);
}

static void nbd_close_link(struct loop_msg *msg)
{
	struct nbd_order *o = container_of(msg, struct nbd_order, msg);
	struct nbd_link *l = o->l;

	free(o);
	ASSERT(list_empty(&l->waiting) && list_empty(&l->flying) && list_empty(&l->over));
	l->closing = true;
	if (!l->connecting)
		nbd_end(l);
}

static void nbd_renew(struct loop_msg *msg)
{
	struct nbd_order *o = container_of(msg, struct nbd_order, msg);
	struct nbd_link *l = o->l;

	free(o);
	l->renew = l->h != NULL;
	l->next_ns = 0;
	nbd_link_settle(l);
}

static int nbd_order(struct nbd_link *l, void (*handle)(struct loop_msg *msg))
{
	struct nbd_order *o = malloc(sizeof(*o));

	if (!o)
		return -ENOMEM;
	o->msg.handle = handle;
	o->l = l;
	loop_post(l->loop, &o->msg);
	return 0;
}

int nbd_link_open(struct nbd_link *l, int node, char *why, size_t len)
{
	static _Atomic unsigned number;
	char name[16];
	struct loop_conf conf = { .name = name, .node = node, .cpu = -1 };
	int err = nbd_connect(l);

	if (err) {
		snprintf(why, len, "%s", l->why);
		return err;
	}
	l->export = l->fresh_export;
	l->name = nbd_get_export_name(l->fresh);
	list_init(&l->waiting);
	list_init(&l->flying);
	list_init(&l->over);
	timer_init(&l->tick, nbd_tick);
	snprintf(name, sizeof(name), "nbd-%u", ++number % 1000000);
	l->loop = loop_create(&conf);
	err = l->loop ? loop_start(l->loop) : -errno;
	if (!err)
		err = nbd_order(l, nbd_take_over);
	if (!err)
		return 0;
	if (l->loop)
		loop_end(l->loop);
	nbd_close(l->fresh);
	free(l->name);
	snprintf(why, len, "%s", strerror(-err));
	return err;
}

void nbd_link_close(struct nbd_link *l)
{
	atomic_store(&l->give_up, true);
	while (nbd_order(l, nbd_close_link))
		usleep(1000);
	loop_join(l->loop);
	loop_destroy(l->loop);
	free(l->name);
}

bool nbd_link_renew(struct nbd_link *l, unsigned ms)
{
	const uint32_t made = atomic_load(&l->made);

	if (nbd_order(l, nbd_renew))
		return false;
	for (unsigned i = 0; i < ms / 2 && atomic_load(&l->made) == made; i++)
		usleep(2000);
	return atomic_load(&l->made) != made;
}
