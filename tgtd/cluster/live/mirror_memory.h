/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The memory of a mirror_peer (mirror.h): pages and what they are, in a memfd for the keeper to
 * hold. So it outlives the process, killed at any instruction: what was acknowledged is there, and
 * each group of records whole or not at all. It is a budget of its own.
 *
 *     | superblock | slots | entries of pages | redo place | pages ... |
 *     0            4 KiB                                   multiple of 4 KiB
 *
 * All of it is position-independent, of this machine's byte order. A killed process loses none of
 * its stores, nor their order; so it is enough that the compiler keeps it (cache/memory/layout.h).
 *
 *   slot    a mirror's stamp; `used` is stored last, and goes first. `sealed` outlives the process:
 *           who has sealed may have claimed
 *   tomb    `count` is stored last, and goes first
 *   entry   of page i of mirror_peer: which mirror, block, generation, sectors, and the frame where
 *           its data lie. Changed by way of the redo place only
 *   redo    entries as they become, then `n`; then they are stored in place; then `n` = 0. Who
 *           finds `n` stores them again
 *
 * Data are never changed in place: a record's data go to a free frame, together with the sectors
 * that the page had and the record has not. There are MIRROR_BATCH frames more than pages, so a
 * group always finds some. Beyond those, conf.lent frames may be lent to channels of owners that
 * write into them by RDMA: a record that names such a frame makes it the page's, and nothing is
 * copied. A killed process leaves them free. An entry has the CRC32C of its sectors, which is
 * compared when a process finds them and when they are adopted.
 *
 * One thread at a time. What is found is foreign: it is believed when it can be true.
 */
#ifndef TGTD_CLUSTER_LIVE_MIRROR_MEMORY_H
#define TGTD_CLUSTER_LIVE_MIRROR_MEMORY_H

#include "tgtd/cluster/mirror.h"

#define MIRROR_MEMORY_LUS 1024u
#define MIRROR_MEMORY_PAGES (1u << 26) /* at most */
#define MIRROR_MEMORY_LENT (1u << 20)  /* the same */

struct mirror_memory;
struct mirror_memory_conf {
	uint32_t lus;	/* 1 to MIRROR_MEMORY_LUS */
	uint32_t pages; /* 1 to MIRROR_MEMORY_PAGES */
	/* log2 of a page's bytes, 9 to 18: blocks of mirrors are at most so large. */
	unsigned page_shift;
	uint32_t lent; /* frames more, for mirror_memory_lend(): 0 to MIRROR_MEMORY_LENT */
};

/* New, with all of its memory. NULL with errno. A thread that may block. */
struct mirror_memory *mirror_memory_new(const struct mirror_memory_conf *conf) must_check;
/* What another process has left in @fd, which is the memory's from now on: what was half done is
 * whole. NULL, and in @why a reason: it is no such thing, or cannot be true, and @fd is the
 * caller's still. The same. */
struct mirror_memory *mirror_memory_found(int fd, char *why, size_t len) must_check;
/* Unmaps it; the file goes with its last descriptor. NULL is fine. */
void mirror_memory_free(struct mirror_memory *m);
/* For the keeper; it stays the memory's. */
int mirror_memory_fd(const struct mirror_memory *m);
void mirror_memory_conf(const struct mirror_memory *m, struct mirror_memory_conf *conf);
/* Is any mirror there? */
bool mirror_memory_used(const struct mirror_memory *m);

/* ---- for mirror_peer_ops --------------------------------------------------------------------- */
/* Do the WRITE records of @f fit into pages, and are their data in the frame, or in frames that are
 * lent? */
bool mirror_memory_fits(const struct mirror_memory *m, const struct mirror_frame *f);
/* ops->write(): of a group nothing is there before its last record. Where that one is not to be
 * written (the page has it already), the rest is there with the next call, or this one: before an
 * answer. */
void mirror_memory_settle(struct mirror_memory *m);
void mirror_memory_write(struct mirror_memory *m, uint32_t page, const struct mirror_frame *f,
			 unsigned i);
void mirror_memory_drop(struct mirror_memory *m, uint32_t page);
void mirror_memory_stamp(struct mirror_memory *m, uint32_t slot, const struct mirror_stamp *s);
void mirror_memory_tomb(struct mirror_memory *m, uint32_t slot, unsigned tomb, uint64_t first,
			uint64_t count, uint64_t gen);
/* The mirror of @lu is sealed, for good. */
void mirror_memory_seal(struct mirror_memory *m, uint64_t lu);
/* The data of a page: sectors *map, of 2^*shift bytes, lie where they lie in the block. (The rules
 * know of others, too, if a peer has changed the size of its sectors.) NULL: their CRC is wrong.
 * Valid until the next change. */
const uint8_t *mirror_memory_data(const struct mirror_memory *m, uint32_t page, unsigned *shift,
				  uint64_t *map);

/* ---- frames that are lent, by their numbers -------------------------------------------------- */
#define MIRROR_FRAME_NONE UINT32_MAX
/* A frame that nobody uses; MIRROR_FRAME_NONE: all conf.lent are lent. Whoever has it writes into
 * it, and nobody else looks at it, until it is returned or a record with it as ref is written.
 * *@ticket is that loan's alone: the frame may have become a page, have been dropped, and be lent
 * to others. */
uint32_t mirror_memory_lend(struct mirror_memory *m, uint64_t *ticket) must_check;
/* The loan of @frame that there is; 0: none. */
uint64_t mirror_memory_ticket(const struct mirror_memory *m, uint32_t frame);
/* It is lent, and nobody can write into it any more. */
void mirror_memory_return(struct mirror_memory *m, uint32_t frame);
/* Where all frames are, one behind the other: *@len bytes. Any thread. */
void *mirror_memory_frames(const struct mirror_memory *m, size_t *len);
/* Data of frames and pages that were copied, since this process began: from what came in, and of
 * sectors that a page had and its next record has not. */
uint64_t mirror_memory_copied(const struct mirror_memory *m);

/* ---- after mirror_memory_found() ------------------------------------------------------------- */
struct mirror_memory_left {
	uint32_t mirrors, pages, tombs, sealed;
	uint32_t damaged; /* mirrors that cannot be true: they are no more, and the log says so */
};
/* Tells @p, which has conf's lus and pages, is new, and is gateway @self, all that is there. What a
 * kill has left below a tombstone goes. Sealed mirrors are sealed again. Once, before anything
 * changes. 0; -ENOMEM: nothing has changed. */
int mirror_memory_load(struct mirror_memory *m, struct mirror_peer *p, unsigned self,
		       struct mirror_memory_left *left) must_check;

#endif
