/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Of which epoch what is cached of a LU is: a word for each, in a memfd for the keeper to hold
 * together with the arenas. So the next process knows whether what is dirty there may be used
 * (README.md, rule 6). A LU without one has nothing in the arenas that is worth anything.
 *
 * Any thread; one at a time for a LU.
 */
#ifndef TGTD_CLUSTER_LIVE_ARENA_STAMPS_H
#define TGTD_CLUSTER_LIVE_ARENA_STAMPS_H

#include <stdint.h>
#include "events/base.h"

#define ARENA_STAMPS 1024u

struct arena_stamps;
/* @fd: what an earlier process has left, or -1; it is the callee's. @arenas: the cache goes on with
 * all that was in that process's arenas, else what is left says nothing. NULL with errno. */
struct arena_stamps *arena_stamps_new(int fd, bool arenas) must_check;
void arena_stamps_free(struct arena_stamps *s); /* NULL is fine */
int arena_stamps_fd(const struct arena_stamps *s);
/* 0: none. */
uint64_t arena_stamps_get(struct arena_stamps *s, uint64_t lu);
/* @epoch 0: none any more. 0 or -ENOSPC, -EIO: then there is none. */
int arena_stamps_set(struct arena_stamps *s, uint64_t lu, uint64_t epoch);

#endif
