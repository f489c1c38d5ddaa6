/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The peer of a mirror for tests of its owner: the rules (tgtd/cluster/mirror.h) over plain memory,
 * which lives as long as the test says; and what tests do with frames in place of links. Where the
 * pages of a peer belong to an arena, see tgtd/cluster/live/mirror_peer_live.h.
 */
#ifndef TESTS_SUPPORT_MIRRORPEER_H
#define TESTS_SUPPORT_MIRRORPEER_H

#include "tgtd/cluster/mirror.h"

#define MIRRORPEER_PAGE 4096u
#define MIRRORPEER_SHIFT 9 /* sectors */

struct mirrorpeer {
	struct mirror_peer *rules;
	uint8_t (*page)[MIRRORPEER_PAGE];
	uint32_t pages;
	uint64_t incarnation;
	void (*send)(struct mirrorpeer *p, unsigned to, unsigned channel,
		     const struct mirror_frame *f);
};

/* A peer with all of that new and empty, and another incarnation than before. @p is zeros at first.
 * Fails the test when memory is short. */
void mirrorpeer_begin(struct mirrorpeer *p, const struct mirror_peer_config *config,
		      void (*send)(struct mirrorpeer *p, unsigned to, unsigned channel,
				   const struct mirror_frame *f));
/* Frees it; harmless when there is none. */
void mirrorpeer_end(struct mirrorpeer *p);
/* What a takeover has of @lu's blocks 0 to @blocks instead of what the store has: lays it over
 * @view. */
void mirrorpeer_lay_over(const struct mirrorpeer *p, uint64_t lu, uint8_t *view, uint64_t blocks);

/* Data of records follow the head in the frame; their length, which *@f has as well. */
size_t mirrorpeer_inline(struct mirror_frame *f);
/* Where the data of record @i begin, of those at @data. */
const uint8_t *mirrorpeer_data(const struct mirror_frame *f, unsigned i, const uint8_t *data);
/* Writes the sums of the data at @data into their records. */
void mirrorpeer_sum(struct mirror_frame *f, const uint8_t *data);
/* Are they those of the data that came with it? */
bool mirrorpeer_is_sound(const struct mirror_frame *f);

#endif
