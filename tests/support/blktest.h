/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Driving a blk device from a single-threaded test: each call submits and steps the loop until the
 * request is complete. And a model test that holds for every device. */
#ifndef TESTS_SUPPORT_BLKTEST_H
#define TESTS_SUPPORT_BLKTEST_H

#include "cache/blk/blk.h"

struct bt {
	struct loop *loop;
	struct blk *blk;
	uint64_t rng;
};

uint64_t bt_random(uint64_t *state);
/* Bytes of shared memory (arenas) that this process has touched. */
uint64_t bt_shared_resident(void);
/* Are all @len (> 0) bytes @v? */
bool bt_all(const void *p, size_t len, uint8_t v);
void bt_init(struct bt *t, struct blk *blk, uint64_t seed);
/* Opens a store with defaults; fails the test with the store's own words. */
struct blk *bt_open(const char *bstype, const char *path, uint32_t block_size);
void bt_fini(struct bt *t); /* closes blk, destroys the loop */

/* Submits as if from the loop, without waiting. */
bool bt_submit(struct bt *t, struct blk_req *req) must_check;
/* Sets req->done, submits and waits. Returns the status. */
int bt_run_plain(struct bt *t, struct blk_req *req);
/* Steps the loop until *flag. Fails the test after 20 s. */
void bt_until(struct bt *t, const bool *flag);

int bt_read(struct bt *t, uint64_t off, uint64_t len, void *to, unsigned flags);
/* Prepared, unless flags have BLK_F_FROM. */
int bt_write(struct bt *t, uint64_t off, uint64_t len, const void *from, unsigned flags);
int bt_caw(struct bt *t, uint64_t off, uint64_t len, const void *expect, const void *with,
	   uint64_t *miscompare, unsigned flags);
int bt_op(struct bt *t, enum blk_op op, uint64_t off, uint64_t len, unsigned flags);

/* @ops random operations against a flat array; fails the test on the first difference. */
void bt_model(struct bt *t, unsigned ops);

#endif
