/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Caches of another version of tgtd, which this one cannot read. An earlier process has died and
 * left one, and the program that knew it does not run any more. What is dirty in it is of stores
 * whose records say so (cache/blk/dirty_record.h): these stores are apart, and nobody uses them.
 * All others are served, with a cache of our own.
 *
 *     arena/N    unknown                      apart_set() ->       apart/K/N
 *     apart/K/N  a process that knows it, and has none of its own: apart_take() -> arena/N
 *                no record names it any more: apart_look() ->      gone
 *
 * The keeper holds the memory by these keys (events/kept.h), N being the node. It is never given up
 * while a record names it. A process that has been given it forgets what it has of stores that
 * others have served meanwhile (cache_conf.outdated).
 *
 * All on the main thread, but for what is said otherwise.
 */
#ifndef CACHE_ENGINE_APART_H
#define CACHE_ENGINE_APART_H

#include "events/kept_msg.h"
#include "events/topology.h"

#define APART_MAX KEPT_APART /* caches */
/* Why a store is not opened. */
#define APART_WHY                                                                                  \
	"what is dirty of it is in memory of another version of tgtd, which is kept for that"

struct apart_info {
	uint32_t layout; /* its version */
	uint64_t cookie; /* as the records name it */
	uint64_t bytes;	 /* of memory that it takes */
};

/* Of all descriptors of arenas, by node, -1: none: is any of another version? Any thread. */
bool apart_unknown(const struct topology *topo, const int fd[]) must_check;
/* Finds what is kept already. Before any store is opened, and before the others below. */
void apart_find(const struct topology *topo);
/* Keeps @fd as well, closes them, and makes them -1. 0, or -errno: nothing has changed (-ENOSPC:
 * there are APART_MAX). */
int apart_set(int fd[]) must_check;
/* What is kept and known to this program, for cache_conf.arena_fd: the caller's from now on. False:
 * there is none. */
bool apart_take(int fd[]) must_check;
/* Our own cache has this arena, and the keeper has that as ours: it is not apart any more. */
void apart_is_ours(int fd);
/* Lets go of what no record names any more. Reads the state directory. */
void apart_look(void);
/* The daemon ends, and what is kept with it, unless a service manager has it. True: that is
 * said. */
bool apart_ends(void) must_check;
/* What is kept now: how many. */
unsigned apart_get(struct apart_info info[APART_MAX]);

#endif
