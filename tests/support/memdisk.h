/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A lower device for tests of what is stacked on one: plain memory behind the block seam, without
 * blocks of its own. Completes on the spot, by message, or after a while, as asked. It copies on
 * the submitting thread, so ThreadSanitizer sees any two overlapping transfers that nobody ordered.
 */
#ifndef TESTS_SUPPORT_MEMDISK_H
#define TESTS_SUPPORT_MEMDISK_H

#include "cache/blk/blk.h"

struct memdisk {
	struct blk blk;
	uint8_t *data;
	uint8_t *stable;	     /* what a SYNC has made stable, of a disk with a volatile cache
				      * that a failed SYNC loses; NULL: nothing is ever lost. The
				      * test allocates it, zeros */
	uint64_t delay_ns;	     /* of a request that does not complete at once */
	uint64_t bytes_per_s;	     /* of reads and writes, one after the other in the order they
				      * come; 0: no such limit. Then none completes on the spot */
	uint64_t busy_until_ns;	     /* ... with what it has */
	unsigned now_percent;	     /* completes on the spot */
	_Atomic int fail_reads, fail_writes; /* the next so many fail with -EIO; < 0: all */
	uint64_t bad_reads[2], bad_writes[2]; /* those that touch bytes [0], up to [1], fail */
	unsigned bad_one_in;	     /* writes fail that touch one in so many blocks of 4 KiB, which
				      * look random; 0: none */
	uint64_t bad_salt;	     /* ... which */
	_Atomic unsigned fail_permille;	     /* of all reads, writes and discards, at random */
	_Atomic int fail_syncs;		     /* as fail_reads */
	_Atomic unsigned fail_syncs_permille;
	_Atomic uint64_t reads, read_bytes, writes, write_bytes, syncs, fua, failed_writes;
	_Atomic uint32_t inflight, inflight_max;
	_Atomic uint64_t write_end, backward; /* where the last write ended;
					       * writes that began before */
};

/* @size bytes of zeros; NULL when memory is short. Closing the blk frees it. */
struct memdisk *memdisk_create(uint64_t size, uint32_t block_size, const char *name);

/* Is this block of 4 KiB one of those, see bad_one_in? */
bool memdisk_bad(const struct memdisk *d, uint64_t block);

/* What the calling thread draws at random from here on: the same for the same seed. */
void memdisk_seed(uint64_t seed);

#endif
