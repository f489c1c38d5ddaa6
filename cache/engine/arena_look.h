/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What an arena's file holds, for who looks at it from outside: at a copy, or at the file of a
 * cache that runs, which changes meanwhile. Nothing in it is trusted, and nothing is changed. It is
 * what attach.c would make of it, without the merging: two headers of one key count twice.
 */
#ifndef CACHE_ENGINE_ARENA_LOOK_H
#define CACHE_ENGINE_ARENA_LOOK_H

#include "cache/blk/blk.h"
#include "cache/engine/layout.h"

struct arena_source {
	/* Copies bytes [@at, @at + @len), all below ->length, to @to. 0 or -errno. */
	int (*read)(const struct arena_source *s, uint64_t at, void *to, size_t len);
	uint64_t length;
};

struct look_extent {
	uint64_t first, n; /* sectors of 512 bytes */
};

struct look_store {
	uint64_t identity;
	char store_id
		[BLK_STORE_ID_MAX]; /* "": this file does not say; the first of the cache's does */
	uint64_t map_offset;
	bool doubt;
	uint64_t blocks, dirty,
		in_io; /* in_io: of the dirty ones, those that are being written back */
	uint64_t dirty_sectors;
	struct look_extent *extent; /* dirty, ascending, apart from each other */
	size_t nextents, room;
};

struct arena_look {
	uint8_t page[ARENA_SUPER_SIZE] __attribute__((aligned(8))); /* struct arena_super */
	struct cache_runs runs;
	uint64_t blocks, clean, dirty, in_io, filling; /* the rest of @blocks is free */
	uint64_t in_place, swaps; /* changes that had begun, and that the next process finishes */
	uint64_t damaged;	  /* headers, slots and redo places that cannot be true */
	struct look_store *store;
	uint32_t nstores, *known; /* known: a table by identity */
};

static inline const struct arena_super *look_super(const struct arena_look *l)
{
	return (const void *)l->page;
}
static inline const struct cache_super *look_says(const struct arena_look *l)
{
	return (const void *)look_super(l)->owner;
}

/* 0, to be given to look_arena_free(); or -EBADMSG with a sentence in @why: that is no arena of a
 * cache's, or of another version; or what read() says; or -ENOMEM. Any thread that may block. */
int look_into_arena(struct arena_look *l, const struct arena_source *s, char *why,
		    size_t len) must_check;
void look_arena_free(struct arena_look *l);

#endif
