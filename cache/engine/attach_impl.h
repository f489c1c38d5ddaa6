/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Arenas that an earlier process has left (layout.h), wherever it died.
 *
 *   attach_plan()     looks at the superblocks: are they one cache's, can that be true? Then the
 *                     cache is made as they say
 *   attach_rebuild()  finishes what was half done, then goes through the headers, partition by
 *                     partition, some at a time, each on a thread: blocks are indexed, free, or
 *                     dirty and on their device's list
 *
 * A device is made for each store that has a slot. It has no lower device until somebody opens that
 * store, and its dirty blocks stay until then. Headers that cannot be true are free: of no device
 * that has a slot, in a partition where their key does not belong, or beyond all numbers.
 *
 *   attach_let_go()   what was in quarantine goes
 *
 * Quarantine (cache_conf.quarantine): that process has died, and the kernel is not done with what
 * it had asked for. Whatever that may be about has a reference in its header, beside the index's.
 * Such a block gets one here that nobody puts before attach_let_go(). So it is not reused, and its
 * bytes do not change (memory/block.h). What no index has is CONDEMNED until then. Since a
 * reference says so, a process that dies meanwhile leaves the same to the next one.
 *
 * A process that dies here leaves what a later one can take as well: each step is done again.
 */
#ifndef CACHE_ENGINE_ATTACH_IMPL_H
#define CACHE_ENGINE_ATTACH_IMPL_H

#include "cache/engine/dev_impl.h"
#include "cache/engine/layout.h"

struct attach {
	uint32_t nnodes;
	uint64_t cookie;
	struct attach_node {
		int fd;		   /* the caller's */
		uint64_t dev, ino; /* of that file */
		int topo_node;
		struct arena_found super;
		struct cache_runs runs;
		struct arena_extent *there; /* blocks of all partitions, ascending */
		uint32_t nthere;
	} node[TOPO_MAX_NODES];
};

/* ---- attach.c -------------------------------------------------------------------------------- */
/* Of conf->arena_fd, which names one at least: what of @conf and @plan follows from them. 0; or
 * -EBADMSG with a sentence in @why, or -ENOMEM. plan->attach is to be given to attach_free(). */
int attach_plan(struct cache_conf *conf, struct cache_plan *plan, char *why, size_t len) must_check;
void attach_free(const struct attach *a);
/* What its runs begin at multiples of, in blocks. */
uint32_t attach_run_align(const struct attach_node *n);
/* Are they the same files, which say the same of themselves? */
bool attach_same(const struct attach *a, const struct attach *b);
/* All nodes are there, nobody uses them yet. Fills in c->found. 0 or -errno. */
int attach_rebuild(struct cache *c, const struct attach *a) must_check;
/* All that the process before had asked for is over; or the cache ends. One thread, once. */
void attach_let_go(struct cache *c);

/* ---- attach_part.c --------------------------------------------------------------------------- */
/* Which device has that identity? A table by its hash. */
struct attach_devs {
	uint32_t mask;
	struct attach_dev {
		uint64_t identity; /* 0: none */
		struct cache_dev *dev;
	} * of;
};
struct attach_count {
	uint64_t blocks, dirty_sectors, redone, damaged;
	uint64_t given_back; /* blocks */
	struct block **held; /* in quarantine; malloc()ed */
	uint32_t nheld, room;
};

struct cache_dev *attach_dev_of(const struct attach_devs *t, uint64_t identity);
/* Is the key one that can be in @p? Its device; or NULL. */
struct cache_dev *attach_owner(const struct attach_devs *t, const struct partition *p,
			       uint64_t identity, uint64_t block);
/* The highest generation of all that is in @p. */
uint64_t attach_newest(const struct attach_devs *t, const struct partition *p);
/* All of @p's headers; nobody else uses it. Adds to *@n. */
void attach_part(struct partition *p, const struct attach_devs *t, struct attach_count *n);

#endif
