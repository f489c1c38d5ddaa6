/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * RDMA devices, and what is registered with them: every arena once, when it or the device appears, and the
 * private memory of connections, which is kept and reused. All access is local: nobody is ever given a key
 * to our memory (it is we who read and write theirs), so an initiator cannot reach the cache.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "events/topology.h"
#include "iser/conn.h"

static struct list devs = LIST_INIT(devs);
static struct ibv_context **contexts; /* holding the list keeps them open */
static struct loop *main_loop;
static const struct topology *topo;

/* ---- arenas ------------------------------------------------------------------------------------------------ */

static void forget_arena(struct iser_arena_mr *m)
{
	for (unsigned i = 0; i < m->n; i++)
		if (m->mr[i])
			iser_v->dereg_mr(m->mr[i]);
	free(m);
}

/* One registration, or as few as the device's max_mr_size allows. A piece starts at a block. */
static struct iser_arena_mr *register_arena(struct iser_dev *dev, const struct arena *a)
{
	size_t limit = dev->attr.max_mr_size ? (size_t)MIN(dev->attr.max_mr_size, (uint64_t)SIZE_MAX / 2) : SIZE_MAX / 2;
	size_t piece = a->map_len;
	struct iser_arena_mr *m;
	unsigned n = 1;

	if (piece > limit) {
		piece = ALIGN_DOWN(limit, (size_t)2 << 20);
		if (!piece) {
			errno = EMSGSIZE;
			return NULL;
		}
		n = (unsigned)DIV_ROUND_UP(a->map_len, piece);
	}
	m = calloc(1, sizeof(*m) + n * sizeof(struct ibv_mr *));
	if (!m)
		return NULL;
	m->map = a->map;
	m->map_len = a->map_len;
	m->piece_len = piece;
	m->n = n;
	for (unsigned i = 0; i < n; i++) {
		size_t at = i * piece;

		m->mr[i] = iser_v->reg_mr(dev->pd, (uint8_t *)a->map + at, MIN(piece, a->map_len - at),
					  IBV_ACCESS_LOCAL_WRITE);
		if (!m->mr[i]) {
			int err = errno;

			forget_arena(m);
			errno = err;
			return NULL;
		}
		metric_inc(M_iser_registrations);
	}
	return m;
}

static void add_arena(struct iser_dev *dev, struct arena *a)
{
	struct iser_arena_mr *m;

	if (dev->removed)
		return;
	m = register_arena(dev, a);
	if (!m) {
		log_warn("iser: %s: %zu MiB cannot be registered (%s): data there will be copied. Look at the limit of locked "
			 "memory (ulimit -l)", dev->name, a->map_len >> 20, strerror(errno));
		return;
	}
	atomic_store(&a->pinned, true);
	ASSERT(!dev->arena[a->id]);
	dev->arena[a->id] = m;
	if (a->id >= dev->arena_top)
		dev->arena_top = a->id + 1u;
	log_debug("iser: %s: registered %zu MiB of node %d in %u piece%s", dev->name, a->map_len >> 20, a->node, m->n,
		  m->n == 1 ? "" : "s");
}

static void drop_arena(struct iser_dev *dev, unsigned id)
{
	if (!dev->arena[id])
		return;
	forget_arena(dev->arena[id]);
	dev->arena[id] = NULL;
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

static bool key_in(const struct iser_arena_mr *m, const uint8_t *p, uint32_t *lkey, size_t *run)
{
	size_t at, piece;

	if (!m || p < m->map || p >= m->map + m->map_len)
		return false;
	at = (size_t)(p - m->map);
	piece = m->n == 1 ? 0 : at / m->piece_len;
	*lkey = m->mr[piece]->lkey;
	*run = MIN((piece + 1) * m->piece_len, m->map_len) - at;
	return true;
}

bool iser_lkey(const struct iser_dev *dev, const struct buf *buf, const uint8_t *p, uint32_t *lkey, size_t *run)
{
	if (likely(buf))
		return key_in(dev->arena[buf->arena], p, lkey, run);
	for (unsigned i = 0, top = dev->arena_top; i < top; i++)
		if (key_in(dev->arena[i], p, lkey, run))
			return true;
	return false;
}

/* ---- private memory of connections ----------------------------------------------------------------------------- */

static void free_mem(struct iser_mem *m)
{
	if (m->mr)
		iser_v->dereg_mr(m->mr);
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
	if (topo && node >= 0)
		(void)topology_bind_memory(topo, m->addr, len, node);
	m->mr = iser_v->reg_mr(dev->pd, m->addr, len, IBV_ACCESS_LOCAL_WRITE);
	if (!m->mr) {
		log_ratelimited(LOG_LVL_WARN, "iser: %s: %zu KiB of buffers cannot be registered: %s", dev->name, len >> 10,
				strerror(errno));
		free_mem(m);
		return NULL;
	}
	metric_inc(M_iser_registrations);
	return m;
}

void iser_mem_put(struct iser_dev *dev, struct iser_mem *m)
{
	if (dev->removed || dev->free_bytes + m->len > (uint64_t)iser_opt.pool_bytes_mb << 20) {
		free_mem(m);
		return;
	}
	list_add_head(&dev->free_mem, &m->link);
	dev->free_bytes += m->len;
}

/* ---- devices ------------------------------------------------------------------------------------------------------ */

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
		iser_v->dealloc_pd(dev->pd);
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
	for (unsigned i = 0; i < 16 && !iser_v->get_async_event(dev->ctx, &ev); i++) {
		enum ibv_event_type type = ev.event_type;

		switch (type) {
		case IBV_EVENT_QP_FATAL:
		case IBV_EVENT_QP_REQ_ERR:
		case IBV_EVENT_QP_ACCESS_ERR:
			iser_cm_tell(ev.element.qp->qp_context, CM_QP_FATAL);
			break;
		case IBV_EVENT_CQ_ERR:
			iser_cm_tell(ev.element.cq->cq_context, CM_QP_FATAL);
			break;
		default:
			break;
		}
		iser_v->ack_async_event(&ev);
		if (type == IBV_EVENT_DEVICE_FATAL) {
			log_error("iser: %s: fatal error of the device", dev->name);
			iser_cm_device_gone(dev);
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
	if (iser_v->query_device(ctx, &dev->attr)) {
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
		log_notice("iser: %s takes %d element a work request: not used", name, dev->attr.max_sge);
		free(dev);
		return NULL;
	}
	dev->max_msg = 1u << 30;
	for (unsigned p = 1; p <= MAX(dev->attr.phys_port_cnt, 1u); p++)
		if (!iser_v->query_port(ctx, (uint8_t)p, &port) && port.max_msg_sz)
			dev->max_msg = MIN(dev->max_msg, port.max_msg_sz);
	dev->pd = iser_v->alloc_pd(ctx);
	if (!dev->pd) {
		log_warn("iser: %s: no protection domain: %s", name, strerror(errno));
		free(dev);
		return NULL;
	}
	dev->async = (struct loop_fd){ .fd = ctx->async_fd, .events = EPOLLIN, .ready = async_ready };
	flags = fcntl(ctx->async_fd, F_GETFL);
	if (flags < 0 || fcntl(ctx->async_fd, F_SETFL, flags | O_NONBLOCK) || loop_fd_add(main_loop, &dev->async))
		log_warn("iser: %s: its asynchronous events will not be seen", name);
	list_add_tail(&devs, &dev->link);
	dev->watcher = (struct arena_watcher){ .created = arena_created, .destroying = arena_destroying };
	list_init(&dev->watcher.link);
	arena_watch(&dev->watcher); /* tells of those that are there already, too */
	log_notice("iser: %s on node %d: %d elements a work request (%d for RDMA read), %d RDMA reads in flight", name,
		   dev->node, dev->attr.max_sge, dev->attr.max_sge_rd ? dev->attr.max_sge_rd : dev->attr.max_sge,
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

int iser_dev_init(struct loop *main, const struct topology *t)
{
	struct ibv_context **list;
	int n = 0;

	main_loop = main;
	topo = t;
	list = iser_v->get_devices(&n);
	for (int i = 0; list && i < n; i++)
		iser_dev_get(list[i]);
	if (contexts)
		iser_v->free_devices(contexts);
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
		iser_v->free_devices(contexts);
		contexts = NULL;
	}
}
