/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Object pools: fixed-size objects, allocated in slabs on a node, reused and never given back until
 * the pool is destroyed. A pool has one owner thread (a loop, a connection) and takes no lock.
 *
 * Rude modes, for tests (TGT_POOL=poison,guard,fail=N in the environment or pool_set_modes()):
 *   poison  freed objects are filled with 0xa5 and checked at the next allocation;
 *   guard   a canary behind each object, checked at every free; no reuse before `delay` frees;
 *   fail=N  every Nth pool_alloc() of a growable pool returns NULL.
 */
#ifndef EVENTS_POOL_H
#define EVENTS_POOL_H

#include "events/base.h"

struct pool;

enum { POOL_POISON = 1, POOL_GUARD = 2 };
void pool_set_modes(unsigned modes, unsigned fail_every);

/* @max = 0: grows without limit. @node < 0: anywhere. NULL + errno. @name is kept, not copied. */
struct pool *pool_create(const char *name, size_t size, size_t prealloc, size_t max, int node) must_check;
void pool_destroy(struct pool *pool); /* all objects must be back (checked) */
void *pool_alloc(struct pool *pool);  /* NULL: at its limit, or fail mode. Contents undefined. */
void pool_free(struct pool *pool, void *obj);
size_t pool_in_use(const struct pool *pool);

#endif
