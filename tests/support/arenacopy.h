/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The arenas' bytes at some moment, as a later process would find them after a kill; and what
 * cache_create() is told to go on with them.
 */
#ifndef TESTS_SUPPORT_ARENACOPY_H
#define TESTS_SUPPORT_ARENACOPY_H

#include "cache/engine/cache_impl.h"

struct copies {
	int fd[TOPO_MAX_NODES]; /* < 0: none */
};

/* What of the file @from is data comes into @fd; holes stay holes. */
void copy_into(int fd, int from);
/* As the file is now: another one, sealed, of @len bytes. */
int copy_file(int from, uint64_t len);
/* Of the first @nodes nodes of @c. They fail the test when they cannot. */
struct copies copy_arenas(const struct cache *c, unsigned nodes);
void close_copies(struct copies *k);

/* For a cache of what is in @k, which takes the descriptors, and works on @loop, stepped. *@found
 * is told what came of it. The next call's takes the place of this one's. */
struct cache_conf copies_conf(const struct copies *k, unsigned nodes, struct loop *loop,
			      struct cache_found *found);

#endif
