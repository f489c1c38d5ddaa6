/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Object pools: fixed-size objects, allocated in slabs on a node, reused and never given back until
 * the pool is destroyed. A pool has one owner thread (a loop, a connection) and takes no lock.
 *
 * Rude modes, for tests (TGT_POOL=poison,guard,fail=N in the environment or pool_set_modes()):
 *   poison  freed objects are filled with 0xa5 and checked at the next allocation;
 *   guard   a canary behind each object, checked at every free; a freed object rests until
 *           POOL_GUARD_DELAY others were freed; freeing twice, or into the wrong pool, is found;
 *   fail=N  every Nth pool_alloc() of a growable pool returns NULL.
 * What they find is a bug() with the pool's name. Built with AddressSanitizer, free objects are
 * closed to all access as well, with or without modes.
 */
#ifndef EVENTS_POOL_H
#define EVENTS_POOL_H

#include "events/base.h"

struct pool;

enum { POOL_POISON = 1, POOL_GUARD = 2 };
#define POOL_GUARD_DELAY 64
/* For the pools created from now on; overrides the environment. @fail_every 0: never. */
void pool_set_modes(unsigned modes, unsigned fail_every);

/* @max = 0: grows without limit, otherwise up to @max objects. @prealloc are allocated at once;
 * what is grown later costs an mmap in pool_alloc(), so data paths preallocate. Objects are aligned
 * to 16 bytes, or to a cache line when they are as large as one. @node < 0: anywhere. NULL + errno.
 * @name is kept, not copied. Any thread: ownership begins with the first pool_alloc(). */
struct pool *pool_create(const char *name, size_t size, size_t prealloc, size_t max,
			 int node) must_check;
void pool_destroy(struct pool *pool); /* all objects must be back (checked) */
void *pool_alloc(struct pool *pool);  /* NULL: at its limit, or fail mode. Contents undefined. */
void pool_free(struct pool *pool, void *obj);
size_t pool_in_use(const struct pool *pool);

/*
 * For pools whose owner is who holds a lock, under which no memory may be mapped:
 * pool_alloc_ready() never grows the pool. When it gives NULL and pool_growth() is not 0, the owner
 * lets the lock go, maps a slab of so many objects, and adds it under the lock. False: it is beyond
 * the limit by now, and to be unmapped.
 */
struct slab;
size_t pool_ready(const struct pool *pool); /* objects that are free now */
void *pool_alloc_ready(struct pool *pool);
size_t pool_growth(const struct pool *pool);
struct slab *pool_map(const struct pool *pool, size_t count) must_check; /* any thread, no lock */
bool pool_add(struct pool *pool, struct slab *slab) must_check;
void pool_unmap(struct slab *slab);

#endif
