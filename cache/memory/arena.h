/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Arenas: per-node memory in shared-memory files (memfd or a named file), allocated and bound once.
 * Huge pages when there are any, plain pages otherwise. See block.h for what lives in them.
 */
#ifndef CACHE_MEMORY_ARENA_H
#define CACHE_MEMORY_ARENA_H

#include "cache/memory/block.h"
#include "cache/memory/locked.h"
#include "cache/memory/where.h"
#include "events/list.h"
#include "events/topology.h"

struct arena_conf {
	const char *name;	/* shown in /proc/PID/maps (memfd:NAME) and in errors */
	const char *file;	/* a named file (say below /dev/shm) instead of a memfd; created,
				 * and removed by arena_destroy(). NULL: memfd */
	const struct topology *topo; /* NULL: no binding */
	int node;
	uint32_t block_size;	/* power of two, 4 KiB..1 MiB */
	uint32_t nblocks;
	uint32_t extra;		/* bytes that the owner keeps of every block beside its header, in
				 * the same file; a multiple of 8; zeros at first */
	uint32_t tail;		/* bytes behind the data for the owner; zeros, and without memory
				 * until they are touched */
	const void *says;	/* copied to the superblock: what the owner says of itself */
	uint32_t says_len;	/* up to ARENA_OWNER_MAX (layout.h) */
	/* More than @nblocks: so many can come into use later, by arena_grow(). When the room is
	 * not to be had, or pages come from hugetlbfs, there is none: arena.room says. */
	uint32_t room;
	uint32_t piece;		/* see struct arena; not 0: blocks may go, too */
	struct mem_locks *locks; /* kept from being swapped out, as far as the limits allow; it
				  * stays longer than the arena. NULL: not */
	bool prefault;		/* headers and the first data get memory now, the rest soon, by a
				   thread in the background that also makes huge pages of it */
	uint32_t parts;		/* arena_create(): of the data, of one size, which get their memory
				 * side by side (arena_there()). 0: one */
	uint32_t first;		/* ... so many blocks of each at least have it from the start */
	bool at_once;		/* ... and so has all the rest */
	bool sparse;		/* pages come when touched (MAP_NORESERVE); for `ram` stores.
				 * Headers are zero until arena_block_init() */
	bool lazy;	/* arena_attach(): data that has no memory gets it when it is touched */
	bool ahead;	/* arena_attach(): another process uses the file still; nothing of it is
			 * changed before arena_begin_use() */
	void (*release)(struct arena *a, struct block *b);
	void *owner;
};

/* NULL with errno; logs why in words an admin understands (limits, what would fit). Any thread that
 * may block (start-up, or the helper that opens stores). */
struct arena *arena_create(const struct arena_conf *conf) must_check;

/* The first page of the file of an arena that an earlier process has left (layout.h). */
struct arena_found {
	uint8_t page[4096] __attribute__((aligned(8)));
};
/* Is @fd such a file, all of which may be trusted to be there? Maps nothing. 0, or -EBADMSG and in
 * @why a reason. Any thread that may block. */
int arena_found(int fd, struct arena_found *f, char *why, size_t len) must_check;
/* Is @fd an arena of another version, of which this program knows no more than that? Any thread
 * that may block. */
bool arena_other_layout(int fd) must_check;
/* Which one; 0: it is none. Any thread. */
uint32_t arena_layout(int fd);
/* Blocks [first, first + n). */
struct arena_extent {
	uint32_t first, n;
};
/*
 * The same as arena_create() from the file @fd of such an arena, whose superblock is @f: headers,
 * maps and data are as they were left. It is for the owner to make of the headers what holds in
 * this process: arena_block_init(), references, links. Blocks of @there (@nthere extents, ascending
 * and apart from each other) are there; what memory others have is given back. Of @conf, file,
 * tail, says and room say nothing. The arena has @fd from now on. NULL with errno and a line in the
 * log: @fd is the caller's, and the blocks that are there have not changed.
 */
struct arena *arena_attach(const struct arena_conf *conf, int fd, const struct arena_found *f,
			   const struct arena_extent *there, uint32_t nthere) must_check;
/* With conf->ahead: nobody else uses it any more. What arena_attach() has left out of what it would
 * change; of the same @conf and @there. A thread that may block. */
void arena_begin_use(struct arena *a, const struct arena_conf *conf,
		     const struct arena_extent *there, uint32_t nthere);
/* The arena's file, to be handed to a later process; it stays the arena's. -1: it cannot be found
 * again (a named file, hugetlbfs). Any thread. */
int arena_fd(const struct arena *a);
/* All blocks must be without references. Any thread that may block. */
void arena_destroy(struct arena *a);
/* Gives header @index of a sparse arena its identity, before its first
 * use. One thread per header. */
static inline struct block *arena_block_init(struct arena *a, uint32_t index)
{
	struct block *b = &a->hdr[index];

	b->index = index;
	b->arena = a->id;
	b->next = BLOCK_NONE;
	return b;
}
/* Gives the memory of [first, first+n) blocks back to the system; they read as zeros. Any thread; a
 * system call, so not on a fast path. Pinned memory is filled with zeros instead. */
void arena_punch(struct arena *a, uint32_t first, uint32_t n);

/* The same of blocks whose content is of no use any more: what is pinned, or a part of what the
 * kernel keeps whole, stays as it is. Any thread that may block. */
void arena_let_go(struct arena *a, uint32_t first, uint32_t n);

/* Before pages of it are pinned: from here on nothing is punched. Waits for a punch under way. Any
 * thread that may wait a system call long. */
void arena_pin(struct arena *a);

/*
 * Blocks [from, from + n) of an arena with room, none of which is there, come: with memory, locked,
 * known to watchers, headers as new. 0; or -errno, and they have not. After arena_settle(); one
 * thread at a time for each arena, which may block.
 */
int arena_grow(struct arena *a, uint32_t from, uint32_t n) must_check;
/* They go. Nobody has a reference to any, or will have: adapters give them back, and so does the
 * arena. What is left of a piece (struct arena) keeps its memory while an adapter has it. The same
 * thread as arena_grow(). */
void arena_shrink(struct arena *a, uint32_t from, uint32_t n);
/* No thread gives the arena memory in the background any more: waits until what is there has it,
 * ends what would only be better (huge pages). A thread that may block. */
void arena_settle(struct arena *a);
/* Blocks [@first, @first + @n), which have memory, are locked, and what all blocks need: for what
 * was not tried when memory had run out. The same thread as arena_grow(). */
void arena_lock(struct arena *a, uint32_t first, uint32_t n);
/* Looks again where all of it is, for arena_where(). The same thread as arena_grow(). */
void arena_look(struct arena *a);
/* Makes huge pages of the whole 2 MiB pieces of blocks [first, first+n), which should all have
 * memory; what is in them stays, and stays in use. A worker thread: half a millisecond a
 * piece, or much more where other memory has to be moved. *@stop ends it between two pieces. False:
 * the kernel would not most of the time, or an adapter has the pages: asking again is of no use. */
bool arena_join(struct arena *a, uint32_t first, uint32_t n, const _Atomic bool *stop);

/* All of it has its memory, as far as that is got in the background, unless arena_failed(). Any
 * thread. */
bool arena_ready(const struct arena *a);
/* 0; or -errno: memory has run out in the background, and what has none gets none. Any thread. */
int arena_failed(const struct arena *a);
/* So many of the first blocks of part @part (arena_conf.parts) have their memory, and keep it. Any
 * thread. */
uint32_t arena_there(const struct arena *a, uint32_t part);
/* The same of blocks [@first, @first + n) of any arena, asked of the kernel: a system call. Where
 * it cannot tell: all. A thread that may block. */
uint32_t arena_backed(const struct arena *a, uint32_t first, uint32_t n);
/* Where its pages were when that was last looked at: after they got their memory, and after they
 * were joined to huge pages. No bytes: not yet. Any thread. */
void arena_where(struct arena *a, struct mem_where *w);

/* Largest whole arena that the machine would bear now: MemAvailable and the cgroup's limit, less a
 * reserve. Bytes. Any thread; reads /proc and /sys. */
uint64_t arena_memory_available(void);

/* Watchers learn of every arena, also those created before: this is where an RDMA device registers
 * memory, once. They are called on the thread that creates or destroys the arena (created() also in
 * arena_watch()), one call at a time; they must not make or destroy arenas. */
struct arena_watcher {
	struct list link;
	void (*created)(struct arena_watcher *w, struct arena *a);
	void (*destroying)(struct arena_watcher *w, struct arena *a);
	/* Piece @piece of an arena with room has got memory, and nobody uses it yet; or loses it,
	 * and nobody will. By arena_grow() and arena_shrink(); may be NULL. */
	void (*piece_comes)(struct arena_watcher *w, struct arena *a, uint32_t piece);
	void (*piece_goes)(struct arena_watcher *w, struct arena *a, uint32_t piece);
};
/* Any thread. @w must stay until arena_unwatch(), after which it is not called any more. */
void arena_watch(struct arena_watcher *w);
void arena_unwatch(struct arena_watcher *w);

#endif
