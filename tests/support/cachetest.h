/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A cache above a store in memory, all on one stepped loop: what the
 * single-threaded cache tests stand on. */
#ifndef TESTS_SUPPORT_CACHETEST_H
#define TESTS_SUPPORT_CACHETEST_H

#include "cache/engine/io_impl.h"
#include "tests/support/blktest.h"
#include "tests/support/memdisk.h"

struct ct_shape {
	const char *conf; /* as in --cache */
	unsigned nodes;	  /* simulated; their workers are the test's loop */
	uint64_t disk;	  /* bytes; block_size 0: 512 */
	uint32_t block_size;
	bool write_through;
	unsigned now_percent;
	uint64_t delay_us;
};

/* Makes loop, cache and store, opens t->blk; one at a time. Fails the test when it cannot. */
void ct_open(struct bt *t, const struct ct_shape *s, struct cache **cache, struct memdisk **disk);
/* Closes all of it: the cache writes back what is dirty. */
void ct_close(struct bt *t, struct cache *cache);

#endif
