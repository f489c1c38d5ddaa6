/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The table of stages, and which flags of an operation go together. */
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

START_TEST(every_stage_has_its_row)
{
	static const struct ct_shape shape = { .conf = "size=16m", .nodes = 1, .disk = MiB(4) };
	struct memdisk *disk;
	struct cache *cache;
	struct bt t;

	ct_open(&t, &shape, &cache, &disk);
	ck_assert_ptr_null((void *)(uintptr_t)cache->stages[0]);
	for (unsigned stage = OP_FORWARDED; stage < OP_STAGES; stage++)
		ck_assert_msg(cache->stages[stage] != NULL, "stage %u", stage);
	ct_close(&t, cache);
}
END_TEST

START_TEST(flags_that_go_together)
{
	static const struct {
		enum blk_op op;
		enum op_stage stage;
		unsigned flags;
		bool legal;
	} row[] = {
		{ BLK_READ, OP_READ_ACQUIRE, 0, true },
		{ BLK_READ, OP_READ_ACQUIRE, OP_F_QUEUED | OP_F_WAIT_FILL | OP_F_WOKEN, true },
		{ BLK_READ, OP_READ_ACQUIRE, OP_F_WOKEN, false },
		{ BLK_READ, OP_READ_ACQUIRE, OP_F_WAIT_FILL, false },
		{ BLK_WRITE, OP_PREPARE, OP_F_QUEUED | OP_F_WAIT_WRITE | OP_F_WAIT_FILL, false },
		{ BLK_READ, OP_READ_FILL, OP_F_PINNED | OP_F_AHEAD | OP_F_JOINED, true },
		{ BLK_READ, OP_READ_FILL, OP_F_PINNED | OP_F_QUEUED, false },
		{ BLK_PREFETCH, OP_READ_FILL, OP_F_AHEAD, false },
		{ BLK_SYNC, OP_STABLE, OP_F_AGAIN | OP_F_JOINED, true },
		{ BLK_SYNC, OP_STABLE, OP_F_AGAIN, false },
		{ BLK_SYNC, OP_FLUSH, OP_F_AGAIN | OP_F_JOINED, false },
		{ BLK_SYNC, OP_FLUSH, OP_F_BATCH | OP_F_LATER | OP_F_OTHERS, true },
		{ BLK_WRITE, OP_FLUSH, OP_F_BATCH, false },
		{ BLK_WRITE, OP_FLUSH, OP_F_WHOLE | OP_F_LATER | OP_F_APART, true },
		{ BLK_WRITE, OP_FLUSH, OP_F_WHOLE, false },
		{ BLK_DISCARD, OP_EXCL_LOWER, OP_F_LOWERED, true },
		{ BLK_DISCARD, OP_EXCL_DRAIN, OP_F_LOWERED, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		struct blk_req req;

		blk_req_init(&req);
		req.op = (uint8_t)row[i].op;
		op_of(&req)->stage = (uint8_t)row[i].stage;
		op_of(&req)->flags = (uint16_t)row[i].flags;
		ck_assert_msg(op_flags_legal(&req) == row[i].legal, "row %zu", i);
		blk_req_fini(&req);
	}
}
END_TEST

UNIT_MAIN("op", 20, every_stage_has_its_row, flags_that_go_together)
