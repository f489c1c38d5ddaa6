/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See node_heap.h. */
#include <stdlib.h>
#include <sys/mman.h>
#include "cache/memory/arena_prepare.h"
#include "cache/memory/node_heap.h"
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
	struct list maps; /* heap_map.link; taken from is the last one */
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
	err = arena_populate(p, 0, len);
	if (err) {
		munmap(p, len);
		errno = -err;
		return NULL;
	}
	struct heap_map *m = (struct heap_map *)(void *)p;

	m->len = len;
	m->used = sizeof(*m);
	list_add_tail(&h->maps, &m->link);
	return m;
}

struct node_heap *node_heap_create(const struct topology *topo, int node, size_t expect)
{
	struct node_heap *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->topo = topo;
	h->node = node;
	list_init(&h->maps);
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

		list_del(&m->link);
		munmap(m, m->len);
	}
	free(h);
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

void node_heap_where(const struct node_heap *h, struct mem_where *w)
{
	const int os_node = mem_where_node(h->topo, h->node);
	struct heap_map *m;

	list_for_each(m, &h->maps, link)
		mem_where_add(w, m, m->len, os_node);
}
