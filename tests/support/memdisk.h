/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A lower device for tests of what is stacked on one: plain memory behind the block seam, without
 * blocks of its own. Completes on the spot, by message, or after a while, as asked. It copies on
 * the submitting thread, so ThreadSanitizer sees any two overlapping transfers that nobody ordered.
 */
#ifndef TESTS_SUPPORT_MEMDISK_H
#define TESTS_SUPPORT_MEMDISK_H

#include "cache/blk.h"

struct memdisk {
	struct blk blk;
	uint8_t *data;
	uint64_t delay_ns;	     /* of a request that does not complete at once */
	unsigned now_percent;	     /* completes on the spot */
	_Atomic int fail_reads, fail_writes; /* the next so many fail with -EIO; < 0: all */
	uint64_t bad_reads[2], bad_writes[2]; /* those that touch bytes [0], up to [1], fail */
	_Atomic unsigned fail_permille;	     /* of all reads, writes and discards, at random */
	_Atomic uint64_t reads, read_bytes, writes, write_bytes, syncs, fua;
	_Atomic uint32_t inflight, inflight_max;
	_Atomic uint64_t write_end, backward; /* where the last write ended;
					       * writes that began before */
};

/* @size bytes of zeros; NULL when memory is short. Closing the blk frees it. */
struct memdisk *memdisk_create(uint64_t size, uint32_t block_size, const char *name);

#endif
