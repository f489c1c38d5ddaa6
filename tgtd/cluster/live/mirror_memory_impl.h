/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What lies in a peer's memory (mirror_memory.h), for mirror_memory.c, mirror_found.c and tests. */
#ifndef TGTD_CLUSTER_LIVE_MIRROR_MEMORY_IMPL_H
#define TGTD_CLUSTER_LIVE_MIRROR_MEMORY_IMPL_H

#include <stdatomic.h>
#include "tgtd/cluster/live/mirror_memory.h"

#define MEMORY_MAGIC "tgtmirro"
#define MEMORY_LAYOUT 1 /* raised by whoever changes anything below */

struct memory_super {
	char magic[8];
	uint32_t layout, checksum;	       /* CRC-32C of this, with it as 0 */
	uint32_t lus, pages, page_shift, lent; /* lent: at most */
	uint64_t slot_off, entry_off, redo_off, data_off, length;
};

struct memory_tomb {
	uint64_t first, gen, count; /* count 0: free */
};
struct memory_slot {
	uint32_t used, sealed;
	struct mirror_stamp stamp;
	struct memory_tomb tomb[MIRROR_TOMBS];
};

#define FRAME_NONE UINT32_MAX
struct memory_entry {
	uint32_t slot;	/* + 1; 0: the page is free */
	uint32_t frame; /* where its data are */
	uint32_t crc;	/* of the sectors of map, in their order */
	uint32_t shift; /* log2 of a sector's bytes */
	uint64_t block, gen, map;
};

struct memory_redo {
	uint32_t n, zero;
	struct {
		uint32_t page, zero;
		struct memory_entry entry;
	} item[MIRROR_BATCH];
};

struct mirror_memory {
	int fd;
	uint8_t *map;
	struct memory_super super; /* a copy: what the file says may change */
	struct memory_slot *slot;
	struct memory_entry *entry;
	struct memory_redo *redo;
	uint8_t *data;
	uint32_t frames;
	/* Private: frames that no entry names, and those that are free when the redo place is. */
	uint32_t *free, nfree;
	uint32_t pending, old[MIRROR_BATCH], nold;
	uint64_t *lent; /* of each frame, its loan; 0: none */
	uint64_t loans;
	uint32_t nlent;
	uint64_t copied;
};

static inline uint8_t *memory_frame(const struct mirror_memory *m, uint32_t frame)
{
	return m->data + ((size_t)frame << m->super.page_shift);
}
/* As arena_order(). */
static inline void memory_order_kept(void)
{
	atomic_signal_fence(memory_order_seq_cst);
}

/* mirror_memory.c, for mirror_found.c: where everything lies, in @m->super's file, mapped. */
struct memory_super memory_lay_out(const struct mirror_memory_conf *conf);
uint32_t memory_super_sum(const struct memory_super *s);
/* Maps @fd as @s says. NULL with errno. */
struct mirror_memory *memory_map(int fd, const struct memory_super *s);
/* The redo place's entries are stored in place. */
void memory_redo_run(struct mirror_memory *m);
/* The CRC of the sectors that @e has. Its frame and sectors must be within their ranges. */
uint32_t memory_sum(const struct mirror_memory *m, const struct memory_entry *e);

#endif
