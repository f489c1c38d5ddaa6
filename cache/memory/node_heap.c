/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See node_heap.h. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cache/memory/node_heap.h"
#include "cache/memory/pages.h"
#include "events/bug.h"
#include "events/list.h"
#include "events/log.h"

#define PIECE_MIN KiB(64)

/* One mapping; the first piece that is taken lies behind this. */
struct heap_map {
	struct list link;
	size_t len, used;
} cacheline_aligned;

struct node_heap {
	const struct topology *topo;
	int node;
	struct mem_locks *locks;
	struct list maps; /* heap_map.link; taken from is the last one */
	struct list rooms; /* heap_room.link */
};

/* Reserved. */
struct heap_room {
	struct list link;
	uint8_t *at;
	size_t len;
	struct mem_spans used; /* has memory ... */
	struct mem_spans touched; /* ... or some of it has */
};

/* At least @bytes, bound and with memory. From 1 MiB on whole huge pages. NULL with errno. */
static struct heap_map *map_new(struct node_heap *h, size_t bytes)
{
	const bool huge = bytes >= MiB(1);
	const size_t unit = huge ? HUGE_PAGE : 4096, len = ALIGN_UP(bytes, unit);
	uint8_t *room, *p;
	int err;

	room = mmap(NULL, len + unit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (room == MAP_FAILED)
		return NULL;
	p = (uint8_t *)ALIGN_UP((uintptr_t)room, (uintptr_t)unit);
	if (p > room)
		munmap(room, (size_t)(p - room));
	munmap(p + len, (size_t)(room + unit - p));
	if (huge)
		madvise(p, len, MADV_HUGEPAGE); /* a wish; plain pages serve too */
	madvise(p, len, MADV_DONTFORK);
	if (h->topo && h->node >= 0) {
		err = topology_bind_memory(h->topo, p, len, h->node);
		if (err)
			log_warn("cannot bind memory to node %d: %s", h->node, strerror(-err));
	}
	err = mem_populate(p, 0, len);
	if (err) {
		munmap(p, len);
		errno = -err;
		return NULL;
	}
	mem_locks_lock(h->locks, p, len);

	struct heap_map *m = (struct heap_map *)(void *)p;

	m->len = len;
	m->used = sizeof(*m);
	list_add_tail(&h->maps, &m->link);
	return m;
}

struct node_heap *node_heap_create(const struct topology *topo, int node, size_t expect,
				   struct mem_locks *locks)
{
	struct node_heap *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->topo = topo;
	h->node = node;
	h->locks = locks;
	list_init(&h->maps);
	list_init(&h->rooms);
	if (!map_new(h, sizeof(struct heap_map) + expect)) {
		int err = errno;

		free(h);
		errno = err;
		return NULL;
	}
	return h;
}

void node_heap_destroy(struct node_heap *h)
{
	while (h && !list_empty(&h->maps)) {
		struct heap_map *m = list_first(&h->maps, struct heap_map, link);

		const size_t len = m->len;

		list_del(&m->link);
		munmap(m, len);
		mem_locks_forget(h->locks, m, len);
	}
	while (h && !list_empty(&h->rooms)) {
		struct heap_room *r = list_first(&h->rooms, struct heap_room, link);

		list_del(&r->link);
		munmap(r->at, r->len);
		mem_locks_forget(h->locks, r->at, r->len);
		mem_spans_fini(&r->used);
		mem_spans_fini(&r->touched);
		free(r);
	}
	free(h);
}

void node_heap_empty(struct node_heap *h)
{
	struct heap_map *m;

	/* The first page has the list. */
	list_for_each(m, &h->maps, link) {
		mem_locks_drop(h->locks, (uint8_t *)m + 4096, m->len - 4096);
		mem_empty((uint8_t *)m + 4096, m->len - 4096);
	}
}

void *node_heap_reserve(struct node_heap *h, size_t bytes, bool sparse)
{
	struct heap_room *r = calloc(1, sizeof(*r));
	uint8_t *p;

	if (!r)
		return NULL;
	r->len = ALIGN_UP(bytes, (size_t)HUGE_PAGE);
	p = mmap(NULL, r->len + HUGE_PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		free(r);
		return NULL;
	}
	r->at = (uint8_t *)ALIGN_UP((uintptr_t)p, (uintptr_t)HUGE_PAGE);
	if (r->at > p)
		munmap(p, (size_t)(r->at - p));
	if (r->at < p + HUGE_PAGE)
		munmap(r->at + r->len, (size_t)(p + HUGE_PAGE - r->at));
	madvise(r->at, r->len, MADV_DONTFORK);
	if (sparse)
		madvise(r->at, r->len, MADV_NOHUGEPAGE);
	if (h->topo && h->node >= 0)
		(void)topology_bind_memory(h->topo, r->at, r->len, h->node);
	list_add_tail(&h->rooms, &r->link);
	return r->at;
}

int node_heap_populate(struct node_heap *h, void *p, size_t from, size_t to)
{
	struct heap_room *r;
	int err;

	list_for_each(r, &h->rooms, link) {
		if ((uint8_t *)p < r->at || (uint8_t *)p >= r->at + r->len)
			continue;
		BUG_ON(to > r->len - (size_t)((uint8_t *)p - r->at));
		from = ALIGN_DOWN(from, (size_t)4096);
		to = ALIGN_UP(to, (size_t)4096);
		if (to - from >= MiB(1)) /* a wish */
			madvise((uint8_t *)p + from, to - from, MADV_HUGEPAGE);
		err = mem_populate(p, from, to);
		if (!err && !mem_spans_add(&r->used, (uint8_t *)p + from, to - from))
			err = -ENOMEM;
		if (!err)
			mem_locks_lock(h->locks, (uint8_t *)p + from, to - from);
		return err;
	}
	return -EINVAL;
}

void node_heap_touched(struct node_heap *h, void *p, size_t bytes)
{
	struct heap_room *r;

	list_for_each(r, &h->rooms, link)
		if ((uint8_t *)p >= r->at && (uint8_t *)p < r->at + r->len &&
		    mem_spans_add(&r->touched, p, bytes))
			mem_locks_lock_touched(h->locks, p, bytes);
}

void node_heap_drop(struct node_heap *h, void *p, size_t from, size_t to)
{
	uint8_t *start = (uint8_t *)p + ALIGN_UP(from, (size_t)4096);
	uint8_t *end = (uint8_t *)p + ALIGN_DOWN(to, (size_t)4096);

	struct heap_room *r;

	if (start >= end)
		return;
	mem_locks_drop(h->locks, start, (size_t)(end - start));
	mem_empty(start, (size_t)(end - start));
	list_for_each(r, &h->rooms, link)
		if (start >= r->at && start < r->at + r->len)
			mem_spans_remove(&r->used, start, (size_t)(end - start));
}

void *node_heap_take(struct node_heap *h, size_t bytes)
{
	struct heap_map *m;
	void *p;

	bytes = ALIGN_UP(bytes, (size_t)CACHE_LINE);
	if (!h) {
		p = aligned_alloc(CACHE_LINE, bytes);
		return p ? memset(p, 0, bytes) : NULL;
	}
	m = list_entry(h->maps.prev, struct heap_map, link); /* the last one */
	if (m->len - m->used < bytes)
		m = map_new(h, MAX(sizeof(*m) + bytes, (size_t)PIECE_MIN));
	if (!m)
		return NULL;
	p = (uint8_t *)m + m->used;
	m->used += bytes;
	return p;
}

void node_heap_give(struct node_heap *h, void *p)
{
	if (!h)
		free(p);
}

/* Of that, only what somebody has touched is there. */
static void add_touched(struct mem_where *w, const struct mem_span *s, int os_node)
{
	struct mem_where some = { 0 };

	mem_where_nodes(&some, (void *)s->from, s->to - s->from, os_node);
	some.bytes = some.pages * (uint64_t)sysconf(_SC_PAGESIZE);
	mem_where_join(w, &some);
}

void node_heap_where(const struct node_heap *h, struct mem_where *w)
{
	const int os_node = mem_where_node(h->topo, h->node);
	struct heap_room *r;
	struct heap_map *m;

	list_for_each(m, &h->maps, link)
		mem_where_add(w, m, m->len, os_node);
	list_for_each(r, &h->rooms, link) {
		for (size_t i = 0; i < r->used.n; i++)
			mem_where_add(w, (void *)r->used.v[i].from,
				      r->used.v[i].to - r->used.v[i].from, os_node);
		for (size_t i = 0; i < r->touched.n; i++)
			add_touched(w, &r->touched.v[i], os_node);
	}
}
