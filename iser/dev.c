/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * RDMA devices, and what is registered with them: every arena once, when it or the device
 * appears, and the private memory of connections, which is kept and reused. All access is
 * local: nobody is ever given a key to our memory (it is we who read and write theirs), so an
 * initiator cannot reach the cache.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "events/topology.h"
#include "iser/conn.h"

static struct list devs = LIST_INIT(devs);
static struct ibv_context **contexts; /* holding the list keeps them open */
static struct loop *main_loop;
static const struct topology *topo;
static const struct iser_dev_hooks *hooks;

/* ---- arenas ---------------------------------------------------------------------------------- */

/*
 * A cache's arena has its memory anyway, and is registered when it appears, by pieces: with them it
 * changes its size, on the thread that does so. A sparse one (the
 * `ram' store: as large as the LU and some more, with memory only where something was written) is
 * registered by pieces, each when a fragment in it first comes to be sent or received: registering
 * means pinning, which would give all of it memory. The fragment in question is copied, and main
 * told to register the piece: a few milliseconds at most.
 */
#define PIECE_ALIGN ((size_t)2 << 20)
#define SPARSE_PIECE_MAX ((size_t)16 << 20)
#define SPARSE_PIECES 512 /* as far as the sizes above allow */

/* Main registers pieces, whoever destroys an arena forgets them. Never taken on a fast path. */
static pthread_mutex_t grow_lock = PTHREAD_MUTEX_INITIALIZER;
/* The tables of arenas, for who looks for memory of no block by its address (parameter
 * data, a store's zeros): the arena that it meets on the way may be going just then.
 * Written for one store at a time. */
static pthread_rwlock_t by_address = PTHREAD_RWLOCK_INITIALIZER;
static _Atomic bool grow_posted;
static void iser_dev_grow(struct loop_msg *msg);
static struct loop_msg grow_msg = { .handle = iser_dev_grow };

static void forget_arena(struct iser_arena_mr *m)
{
	for (unsigned i = 0; i < m->n; i++)
		if (m->piece[i].mr)
			rdma_v->dereg_mr(m->piece[i].mr);
	if (m->zero)
		rdma_v->dereg_mr(m->zero);
	free(m);
}

static int register_piece(struct iser_dev *dev, struct iser_arena_mr *m, unsigned i)
{
	size_t at = i * m->piece_len, len = MIN(m->piece_len, m->map_len - at);
	struct ibv_mr *mr = rdma_v->reg_mr(dev->pd, (uint8_t *)(uintptr_t)m->map + at, len,
					   IBV_ACCESS_LOCAL_WRITE);

	if (!mr)
		return errno ? -errno : -ENOMEM;
	m->piece[i].mr = mr;
	return 0;
}

/* Of an arena that changes its size, those of our pieces that lie in its piece @piece. */
static void own_pieces(const struct iser_arena_mr *m, const struct arena *a, unsigned piece,
		       unsigned *from, unsigned *end)
{
	const unsigned each = (unsigned)(a->piece >> m->shift);

	*from = piece * each;
	*end = MIN(*from + each, m->n);
}

static int register_pieces(struct iser_dev *dev, struct iser_arena_mr *m, const struct arena *a,
			   unsigned piece)
{
	unsigned i, end;
	int rc = 0;

	for (own_pieces(m, a, piece, &i, &end); i < end && !rc; i++) {
		rc = register_piece(dev, m, i);
		if (!rc)
			metric_inc(M_iser_registrations);
	}
	return rc;
}

/* All that is there of an arena that changes its size. 0 or -errno: the caller forgets @m. */
static int register_changing(struct iser_dev *dev, struct iser_arena_mr *m, struct arena *a)
{
	int rc = 0;

	m->zero = rdma_v->reg_mr(dev->pd, a->zero, a->zero_len, IBV_ACCESS_LOCAL_WRITE);
	if (!m->zero)
		return errno ? -errno : -ENOMEM;
	for (unsigned i = 0; i < a->npieces && !rc; i++)
		if (a->present[i])
			rc = register_pieces(dev, m, a, i);
	return rc;
}

/* In as few pieces as max_mr_size allows; one that is sparse in more. A piece starts at a block. */
static int register_arena(struct iser_dev *dev, struct arena *a)
{
	size_t limit = dev->attr.max_mr_size ?
			       (size_t)MIN(dev->attr.max_mr_size, (uint64_t)SIZE_MAX / 2) :
			       SIZE_MAX / 2;
	const size_t len = a->piece ? (size_t)a->room << a->block_shift : a->map_len;
	size_t piece = a->piece ? a->piece : len;
	struct iser_arena_mr *m;
	unsigned n;
	int rc;

	if (a->sparse)
		piece = ALIGN_UP(MIN(MAX(piece / SPARSE_PIECES, PIECE_ALIGN), SPARSE_PIECE_MAX),
				 PIECE_ALIGN);
	while (a->piece && piece > MAX(limit, PIECE_ALIGN))
		piece /= 2;
	if (piece > limit)
		piece = ALIGN_DOWN(limit, PIECE_ALIGN);
	if (!piece)
		return -EMSGSIZE;
	n = (unsigned)DIV_ROUND_UP(len, piece);
	m = calloc(1, sizeof(*m) + n * sizeof(m->piece[0]));
	if (!m)
		return -ENOMEM;
	m->map = a->piece ? a->data : a->map;
	m->map_len = len;
	m->piece_len = piece;
	m->n = n;
	m->shift = a->piece ? (unsigned)__builtin_ctzll(piece) : 0;
	if (a->sparse) {
		m->growing = a;
	} else if (a->piece) {
		arena_pin(a);
		rc = register_changing(dev, m, a);
		if (rc) {
			forget_arena(m);
			return rc;
		}
	} else {
		arena_pin(a);
		for (unsigned i = 0; i < n; i++) {
			rc = register_piece(dev, m, i);
			if (rc) {
				forget_arena(m);
				return rc;
			}
			metric_inc(M_iser_registrations);
		}
	}
	ASSERT(!dev->arena[a->id]);
	pthread_rwlock_wrlock(&by_address);
	dev->arena[a->id] = m;
	if (a->id >= dev->arena_top)
		dev->arena_top = a->id + 1u;
	pthread_rwlock_unlock(&by_address);
	return 0;
}

static void cannot_register(const struct iser_dev *dev, size_t len, int err)
{
	log_warn(
		"iser: %s: %zu MiB cannot be registered (%s): data there will be copied. Look at the limit of locked "
		"memory (ulimit -l)",
		dev->name, len >> 20, strerror(err));
}

static void add_arena(struct iser_dev *dev, struct arena *a)
{
	int rc;

	if (dev->removed)
		return;
	rc = register_arena(dev, a);
	if (rc) {
		cannot_register(dev, a->map_len, -rc);
		return;
	}
	log_debug("iser: %s: %s %zu MiB of node %d in %u piece%s", dev->name,
		  a->sparse ? "will register" : "registered",
		  (a->piece ? (size_t)a->nblocks << a->block_shift : a->map_len) >> 20, a->node,
		  dev->arena[a->id]->n, dev->arena[a->id]->n == 1 ? "" : "s");
}

static void drop_arena(struct iser_dev *dev, unsigned id)
{
	struct iser_arena_mr *m = dev->arena[id];

	if (!m)
		return;
	pthread_mutex_lock(&grow_lock);
	pthread_rwlock_wrlock(&by_address);
	dev->arena[id] = NULL;
	pthread_rwlock_unlock(&by_address);
	pthread_mutex_unlock(&grow_lock);
	forget_arena(m);
}

/* On the thread that makes or destroys the arena, one at a time: arena.h. */
static void arena_created(struct arena_watcher *w, struct arena *a)
{
	add_arena(container_of(w, struct iser_dev, watcher), a);
}

static void arena_destroying(struct arena_watcher *w, struct arena *a)
{
	drop_arena(container_of(w, struct iser_dev, watcher), a->id);
}

/* On the thread that changes the arena's size, before anybody uses the piece. */
static void piece_comes(struct arena_watcher *w, struct arena *a, uint32_t piece)
{
	struct iser_dev *dev = container_of(w, struct iser_dev, watcher);
	struct iser_arena_mr *m = dev->arena[a->id];
	int rc;

	if (dev->removed || !m)
		return;
	rc = register_pieces(dev, m, a, piece);
	if (rc)
		cannot_register(dev, a->piece, -rc);
}

/* The same: the last reference to a block of the piece has ended. */
static void piece_goes(struct arena_watcher *w, struct arena *a, uint32_t piece)
{
	struct iser_dev *dev = container_of(w, struct iser_dev, watcher);
	struct iser_arena_mr *m = dev->arena[a->id];
	unsigned i, end;

	if (!m)
		return;
	for (own_pieces(m, a, piece, &i, &end); i < end; i++) {
		struct ibv_mr *mr = atomic_exchange(&m->piece[i].mr, NULL);

		if (mr)
			rdma_v->dereg_mr(mr);
	}
}

/* The pieces that somebody has asked for. */
static void grow_arena(struct iser_dev *dev, struct iser_arena_mr *m)
{
	for (unsigned i = 0; i < m->n && m->growing; i++) {
		size_t len = MIN(m->piece_len, m->map_len - i * m->piece_len);
		int rc;

		if (!m->piece[i].want || m->piece[i].mr)
			continue;
		arena_pin(m->growing);
		rc = register_piece(dev, m, i);
		if (rc) {
			m->growing = NULL; /* the limit has been met: say so once */
			cannot_register(dev, len, -rc);
			return;
		}
		metric_inc(M_iser_grown);
		metric_add(M_iser_grown_bytes, len);
	}
}

static void iser_dev_grow(struct loop_msg *msg)
{
	struct iser_dev *dev;

	(void)msg;
	grow_posted = false;
	pthread_mutex_lock(&grow_lock);
	list_for_each(dev, &devs, link)
		for (unsigned i = 0; i < dev->arena_top && !dev->removed; i++)
			if (dev->arena[i] && atomic_exchange(&dev->arena[i]->want, false))
				grow_arena(dev, dev->arena[i]);
	pthread_mutex_unlock(&grow_lock);
}

static __attribute__((noinline)) void want_piece(struct iser_arena_mr *m, size_t i)
{
	/* The second test only spares others the write. */
	if (m->piece[i].want || atomic_exchange(&m->piece[i].want, true))
		return;
	m->want = true;
	if (!atomic_exchange(&grow_posted, true))
		loop_post(main_loop, &grow_msg);
}

static bool key_in(struct iser_arena_mr *m, const uint8_t *p, uint32_t *lkey, size_t *run)
{
	const struct ibv_mr *mr;
	size_t at, piece;

	if (!m)
		return false;
	if (p < m->map || p >= m->map + m->map_len) {
		mr = m->zero;
		at = mr ? (size_t)(p - (const uint8_t *)mr->addr) : 0;
		if (!mr || p < (const uint8_t *)mr->addr || at >= mr->length)
			return false;
		*lkey = mr->lkey;
		*run = mr->length - at;
		return true;
	}
	at = (size_t)(p - m->map);
	piece = m->shift ? at >> m->shift : m->n == 1 ? 0 : at / m->piece_len;
	mr = atomic_load_explicit(&m->piece[piece].mr, memory_order_acquire);
	if (unlikely(!mr)) {
		if (!m->shift) /* else it is not for us to register it */
			want_piece(m, piece);
		return false;
	}
	*lkey = mr->lkey;
	*run = MIN((piece + 1) * m->piece_len, m->map_len) - at;
	return true;
}

bool iser_lkey(const struct iser_dev *dev, const struct block *block, const uint8_t *p,
	       uint32_t *lkey, size_t *run)
{
	bool found = false;

	if (likely(block)) /* its arena stays while there is a block of it */
		return key_in(dev->arena[block->arena], p, lkey, run);
	pthread_rwlock_rdlock(&by_address);
	for (unsigned i = 0, top = dev->arena_top; i < top && !found; i++)
		found = key_in(dev->arena[i], p, lkey, run);
	pthread_rwlock_unlock(&by_address);
	return found;
}

/* ---- private memory of connections ----------------------------------------------------------- */

static void free_mem(struct iser_mem *m)
{
	if (m->mr)
		rdma_v->dereg_mr(m->mr);
	munmap(m->addr, m->len);
	free(m);
}

struct iser_mem *iser_mem_get(struct iser_dev *dev, size_t len, int node)
{
	struct iser_mem *m;

	len = ALIGN_UP(len, (size_t)4096);
	list_for_each(m, &dev->free_mem, link)
		if (m->len == len && m->node == node) {
			list_del(&m->link);
			dev->free_bytes -= len;
			metric_add(M_iser_held_bytes, len);
			return m;
		}
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	list_init(&m->link);
	m->len = len;
	m->node = node;
	m->addr = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m->addr == MAP_FAILED) {
		free(m);
		return NULL;
	}
	/* What is kept for others is not to be on top of what is in use. */
	while (dev->ffp_bytes + dev->free_bytes + len > (uint64_t)iser_opt.pool_bytes_mb << 20 &&
	       !list_empty(&dev->free_mem)) {
		struct iser_mem *old = list_entry(dev->free_mem.prev, struct iser_mem, link);

		list_del(&old->link);
		dev->free_bytes -= old->len;
		free_mem(old);
	}
	if (topo && node >= 0)
		(void)topology_bind_memory(topo, m->addr, len, node);
	m->mr = rdma_v->reg_mr(dev->pd, m->addr, len, IBV_ACCESS_LOCAL_WRITE);
	if (!m->mr) {
		log_ratelimited(LOG_LVL_WARN,
				"iser: %s: %zu KiB of buffers cannot be registered: %s", dev->name,
				len >> 10, strerror(errno));
		free_mem(m);
		return NULL;
	}
	metric_inc(M_iser_registrations);
	metric_add(M_iser_held_bytes, len);
	return m;
}

void iser_mem_put(struct iser_dev *dev, struct iser_mem *m)
{
	metric_sub(M_iser_held_bytes, m->len);
	if (dev->removed ||
	    dev->ffp_bytes + dev->free_bytes + m->len > (uint64_t)iser_opt.pool_bytes_mb << 20) {
		free_mem(m);
		return;
	}
	list_add_head(&dev->free_mem, &m->link);
	dev->free_bytes += m->len;
}

/* ---- devices --------------------------------------------------------------------------------- */

static void close_dev(struct iser_dev *dev)
{
	list_del(&dev->link);
	arena_unwatch(&dev->watcher);
	if (dev->async.loop)
		loop_fd_del(&dev->async);
	while (!list_empty(&dev->free_mem)) {
		struct iser_mem *m = list_first(&dev->free_mem, struct iser_mem, link);

		list_del(&m->link);
		free_mem(m);
	}
	for (unsigned i = 0; i < dev->arena_top; i++)
		drop_arena(dev, i);
	if (dev->pd)
		rdma_v->dealloc_pd(dev->pd);
	free(dev);
}

void iser_dev_unref(struct iser_dev *dev)
{
	ASSERT(dev->conns > 0);
	if (!--dev->conns && dev->removed)
		close_dev(dev);
}

void iser_dev_removed(struct iser_dev *dev)
{
	if (dev->removed)
		return;
	dev->removed = true;
	log_warn("iser: %s is gone", dev->name);
	/* Until its last connection is gone it keeps its memory. */
	if (dev->async.loop)
		loop_fd_del(&dev->async);
	if (!dev->conns)
		close_dev(dev);
}

static void async_ready(struct loop_fd *lfd, uint32_t revents)
{
	struct iser_dev *dev = container_of(lfd, struct iser_dev, async);
	struct ibv_async_event ev;

	(void)revents;
	for (unsigned i = 0; i < 16 && !rdma_v->get_async_event(dev->ctx, &ev); i++) {
		enum ibv_event_type type = ev.event_type;

		switch (type) {
		case IBV_EVENT_QP_FATAL:
		case IBV_EVENT_QP_REQ_ERR:
		case IBV_EVENT_QP_ACCESS_ERR:
			hooks->broken(ev.element.qp->qp_context);
			break;
		case IBV_EVENT_CQ_ERR:
			hooks->broken(ev.element.cq->cq_context);
			break;
		default:
			break;
		}
		rdma_v->ack_async_event(&ev);
		if (type == IBV_EVENT_DEVICE_FATAL) {
			log_error("iser: %s: fatal error of the device", dev->name);
			hooks->gone(dev);
			return;
		}
		if (type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_PORT_ACTIVE)
			log_notice("iser: %s: port %d %s", dev->name, ev.element.port_num,
				   type == IBV_EVENT_PORT_ACTIVE ? "is up" : "is down");
	}
}

static struct iser_dev *open_dev(struct ibv_context *ctx)
{
	const char *name = ctx->device->name;
	struct iser_dev *dev = calloc(1, sizeof(*dev));
	struct ibv_port_attr port;
	int flags;

	if (!dev)
		return NULL;
	list_init(&dev->link);
	list_init(&dev->free_mem);
	dev->ctx = ctx;
	dev->name = name;
	dev->node = topo ? topology_adapter_node(topo, name) : -1;
	if (rdma_v->query_device(ctx, &dev->attr)) {
		log_warn("iser: %s: cannot be queried: %s", name, strerror(errno));
		free(dev);
		return NULL;
	}
	if (ctx->device->transport_type == IBV_TRANSPORT_IWARP) {
		/* Its RDMA reads need a remotely writable sink: the cache is never that. */
		log_notice("iser: %s is an iWARP device: not used", name);
		free(dev);
		return NULL;
	}
	if (dev->attr.max_sge < 2) { /* headers and data of one PDU */
		log_notice("iser: %s takes %d element a work request: not used", name,
			   dev->attr.max_sge);
		free(dev);
		return NULL;
	}
	dev->max_msg = 1u << 30;
	for (unsigned p = 1; p <= MAX(dev->attr.phys_port_cnt, 1u); p++)
		if (!rdma_v->query_port(ctx, (uint8_t)p, &port) && port.max_msg_sz)
			dev->max_msg = MIN(dev->max_msg, port.max_msg_sz);
	dev->pd = rdma_v->alloc_pd(ctx);
	if (!dev->pd) {
		log_warn("iser: %s: no protection domain: %s", name, strerror(errno));
		free(dev);
		return NULL;
	}
	dev->async =
		(struct loop_fd){ .fd = ctx->async_fd, .events = EPOLLIN, .ready = async_ready };
	flags = fcntl(ctx->async_fd, F_GETFL);
	if (flags < 0 || fcntl(ctx->async_fd, F_SETFL, flags | O_NONBLOCK) ||
	    loop_fd_add(main_loop, &dev->async))
		log_warn("iser: %s: its asynchronous events will not be seen", name);
	list_add_tail(&devs, &dev->link);
	dev->watcher =
		(struct arena_watcher){ .created = arena_created, .destroying = arena_destroying,
					.piece_comes = piece_comes, .piece_goes = piece_goes };
	list_init(&dev->watcher.link);
	arena_watch(&dev->watcher); /* tells of those that are there already, too */
	log_notice(
		"iser: %s on node %d: %d elements a work request (%d for RDMA read), %d RDMA reads in flight",
		name, dev->node, dev->attr.max_sge,
		dev->attr.max_sge_rd ? dev->attr.max_sge_rd : dev->attr.max_sge,
		dev->attr.max_qp_init_rd_atom);
	return dev;
}

struct iser_dev *iser_dev_get(struct ibv_context *ctx)
{
	struct iser_dev *dev;

	list_for_each(dev, &devs, link)
		if (dev->ctx == ctx)
			return dev->removed ? NULL : dev;
	return open_dev(ctx);
}

unsigned iser_dev_count(void)
{
	struct iser_dev *dev;
	unsigned n = 0;

	list_for_each(dev, &devs, link)
		n += !dev->removed;
	return n;
}

int iser_dev_init(struct loop *main, const struct topology *t, const struct iser_dev_hooks *h)
{
	struct ibv_context **list;
	int n = 0;

	main_loop = main;
	topo = t;
	hooks = h;
	list = rdma_v->get_devices(&n);
	for (int i = 0; list && i < n; i++)
		iser_dev_get(list[i]);
	if (contexts)
		rdma_v->free_devices(contexts);
	contexts = list;
	return n;
}

void iser_dev_fini(void)
{
	struct iser_dev *dev, *tmp;

	list_for_each_safe(dev, tmp, &devs, link)
		if (!dev->conns)
			close_dev(dev);
	if (contexts && list_empty(&devs)) {
		rdma_v->free_devices(contexts);
		contexts = NULL;
	}
}
