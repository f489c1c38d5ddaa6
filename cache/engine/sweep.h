/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A device's dirty blocks in the order of their numbers, over all partitions. Each partition tells
 * some words of its index (dirty_index.h) at a time, and these are merged. So a SYNC goes along the
 * store once, in steps of any length, and neither collects nor sorts what there is.
 *
 * One thread at a time. No lock is held: each step takes one partition's for a few words.
 */
#ifndef CACHE_ENGINE_SWEEP_H
#define CACHE_ENGINE_SWEEP_H

#include "cache/engine/dev_impl.h"

#define SWEEP_WORDS 16 /* that a partition tells at a time */

struct sweep_lane {
	uint64_t from;	      /* keys from here on have not been told */
	uint32_t part, n, at; /* [at, n) are still to be had */
	struct dirty_word word[SWEEP_WORDS];
};

struct sweep {
	struct cache_dev *dev;
	uint64_t epoch, from, to; /* keys, both included */
	uint32_t begun;		  /* so many partitions have been looked at */
	uint32_t n;		  /* of heap[]: lanes that have words, the least word's first */
	uint32_t *heap;
	struct sweep_lane lane[];
};

/* 64 blocks, of which partition @part may have those of @bits. */
struct sweep_word {
	uint64_t first, bits;
	uint32_t part;
};

enum sweep_found { SWEEP_LOOKED, SWEEP_WORD, SWEEP_END };

/* Bytes of a sweep over @nparts partitions. */
size_t sweep_bytes(uint32_t nparts);
/* Blocks [first, end) of @dev, end > first; partitions are left out where nothing of @epoch or
 * before is dirty or being written back when they are looked at. */
void sweep_begin(struct sweep *s, struct cache_dev *dev, uint64_t first, uint64_t end,
		 uint64_t epoch);
/* One step. WORD: *@w, ascending; several partitions may have parts of one. LOOKED: there may be
 * more. Adds to *@visits how many words it has looked at. */
enum sweep_found sweep_next(struct sweep *s, struct sweep_word *w, uint32_t *visits);
/* Is there more of the word that begins with block @first? */
bool sweep_within(const struct sweep *s, uint64_t first);

#endif
