/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Arenas: per-node memory in shared-memory files (memfd or a named file), allocated and bound once.
 * Huge pages when there are any, plain pages otherwise. See buf.h for what lives in them.
 */
#ifndef CACHE_ARENA_H
#define CACHE_ARENA_H

#include "cache/buf.h"
#include "events/list.h"
#include "events/topology.h"

struct arena_conf {
	const char *name;	/* shown in /proc/PID/maps (memfd:NAME) and in errors */
	const struct topology *topo; /* NULL: no binding */
	int node;
	uint32_t block_size;	/* power of two, 4 KiB..1 MiB */
	uint32_t nblocks;
	bool prefault;		/* touch all pages now (with a progress line when it takes long) */
	bool sparse;		/* pages come when touched (MAP_NORESERVE); for `ram` stores */
	void (*release)(struct arena *a, struct buf *b);
	void *owner;
};

/* NULL with errno; logs why in words an admin understands (limits, what would fit). Main thread. */
struct arena *arena_create(const struct arena_conf *conf) must_check;
/* All blocks must be without references. Main thread. */
void arena_destroy(struct arena *a);
/* Gives the memory of [first, first+n) blocks back to the system; they read as zeros. Any thread. */
void arena_punch(struct arena *a, uint32_t first, uint32_t n);

/* Watchers learn of every arena, also those created before: this is where an RDMA device registers
 * memory, once. Main thread. */
struct arena_watcher {
	struct list link;
	void (*created)(struct arena_watcher *w, struct arena *a);
	void (*destroying)(struct arena_watcher *w, struct arena *a);
};
void arena_watch(struct arena_watcher *w);
void arena_unwatch(struct arena_watcher *w);

#endif
