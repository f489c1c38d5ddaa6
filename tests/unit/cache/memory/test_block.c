/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Fragment lists: merging, growing, moving, copying, comparing; references counted right. */
#include <check.h>
#include <malloc.h>
#include <stdlib.h>
#include "cache/memory/arena.h"
#include "tests/support/blktest.h"

static struct arena *a;
static unsigned released;

static void release(struct arena *arena, struct block *b)
{
	ck_assert_ptr_eq(arena, a);
	ck_assert_uint_eq(b->refs, 0);
	released++;
}

static void setup(void)
{
	struct arena_conf conf = { .name = "test", .node = 0, .block_size = 4096, .nblocks = 64,
				   .release = release };

	a = arena_create(&conf);
	ck_assert_ptr_nonnull(a);
	released = 0;
}

static void teardown(void)
{
	arena_destroy(a);
}

static struct block *fresh(unsigned i)
{
	a->hdr[i].refs = 1;
	return &a->hdr[i];
}

static int add(struct frags *f, unsigned block, uint32_t off, uint32_t len)
{
	return frags_append(f, block_data(&a->hdr[block]) + off, len, fresh(block));
}

START_TEST(neighbours_merge)
{
	struct frags f;

	frags_init(&f);
	add(&f, 3, 512, 3584);
	add(&f, 4, 0, 4096);
	add(&f, 5, 0, 1024);
	ck_assert_uint_eq(f.n, 1);
	ck_assert_uint_eq(f.v[0].nblocks, 3);
	ck_assert_uint_eq(f.len, 3584 + 4096 + 1024);
	add(&f, 7, 0, 4096); /* a gap */
	add(&f, 6, 0, 4096); /* backwards */
	ck_assert_uint_eq(f.n, 3);
	frags_put(&f);
	ck_assert_uint_eq(released, 5);
	ck_assert_uint_eq(f.n + f.len, 0);
	frags_fini(&f);
}
END_TEST

/* Two pieces of one block need one reference. */
START_TEST(same_block_merges)
{
	struct frags f;
	struct block *b = fresh(9);

	frags_init(&f);
	ck_assert_int_eq(frags_append(&f, block_data(b), 512, b), 0);
	block_get(b);
	ck_assert_int_eq(frags_append(&f, block_data(b) + 512, 512, b), 0);
	ck_assert_uint_eq(f.n, 1);
	ck_assert_uint_eq(f.v[0].nblocks, 1);
	ck_assert_uint_eq(b->refs, 1);
	block_get(b);
	ck_assert_int_eq(frags_append(&f, block_data(b) + 2048, 512, b), 0); /* not adjacent */
	ck_assert_uint_eq(f.n, 2);
	ck_assert_uint_eq(b->refs, 2);
	frags_put(&f);
	ck_assert_uint_eq(released, 1);
	frags_fini(&f);
}
END_TEST

/* Bytes without a reference never merge with bytes that have one, even side by side. */
START_TEST(references_do_not_mix)
{
	struct frags f;
	uint8_t heap[64];

	frags_init(&f);
	add(&f, 1, 0, 4096);
	frags_append(&f, block_data(&a->hdr[2]), 4096, NULL);
	add(&f, 3, 0, 4096);
	ck_assert_uint_eq(f.n, 3);
	frags_put(&f);
	ck_assert_uint_eq(released, 2);
	frags_append(&f, heap, 32, NULL);
	frags_append(&f, heap + 32, 32, NULL);
	ck_assert_uint_eq(f.n, 1);
	frags_append(&f, a->zero, UINT32_MAX, NULL);
	frags_append(&f, a->zero + UINT32_MAX, 1, NULL); /* would overflow the length */
	ck_assert_uint_eq(f.n, 3);
	frags_put(&f);
	frags_fini(&f);
}
END_TEST

START_TEST(four_need_no_memory_more_are_kept)
{
	struct frags f, g;
	struct frag *grown;

	frags_init(&f);
	frags_init(&g);
	for (unsigned i = 0; i < 8; i += 2)
		add(&f, i, 0, 4096);
	ck_assert_ptr_eq(f.v, f.inline_);
	frags_move(&g, &f);
	ck_assert_ptr_eq(g.v, g.inline_);
	ck_assert_uint_eq(f.n, 0);
	for (unsigned i = 8; i < 20; i += 2)
		add(&g, i, 0, 4096);
	ck_assert_uint_eq(g.n, 10);
	grown = g.v;
	frags_move(&f, &g);
	ck_assert_ptr_eq(f.v, grown);
	ck_assert_ptr_eq(g.v, g.inline_);
	ck_assert_uint_eq(f.v[9].base - a->data, 18 * 4096);
	frags_put(&f);
	ck_assert_uint_eq(released, 10);
	ck_assert_ptr_eq(f.v, grown); /* for the next request */
	frags_fini(&f);
	frags_fini(&g);
}
END_TEST

/* Random lists against a flat copy. */
START_TEST(copies)
{
	uint64_t rng = (uint64_t)_i;

	for (int round = 0; round < 50; round++) {
		uint8_t *flat = malloc(64 * 4096), *other = malloc(64 * 4096);
		struct frags f, g;
		size_t len = 0;

		frags_init(&f);
		frags_init(&g);
		for (int i = 0; i < 12; i++) {
			unsigned block = (unsigned)i * 5 + (unsigned)(bt_random(&rng) % 5);
			uint32_t off = (uint32_t)(bt_random(&rng) % 4000);

			add(&f, block, off, 1 + (uint32_t)(bt_random(&rng) % (4096 - off)));
		}
		len = f.len;
		for (size_t i = 0; i < len; i++)
			flat[i] = (uint8_t)bt_random(&rng);
		frags_copy_in(&f, 0, flat, len);
		for (int i = 0; i < 40; i++) {
			size_t off = bt_random(&rng) % len, n = bt_random(&rng) % (len - off + 1),
			       at;
			bool same;

			switch (bt_random(&rng) % 4) {
			case 0:
				memset(other, (int)i, n);
				memcpy(flat + off, other, n);
				frags_copy_in(&f, off, other, n);
				break;
			case 1:
				frags_zero(&f, off, n);
				memset(flat + off, 0, n);
				break;
			case 2:
				memcpy(other, flat + off, n);
				at = n ? bt_random(&rng) % n : 0;
				if (n && (i & 1))
					other[at] ^= 1;
				ck_assert_uint_eq(frags_compare(&f, off, other, n),
						  n && (i & 1) ? at : n);
				break;
			default:
				for (size_t k = 0; k < n; k += MIN((size_t)777, n - k))
					frags_append(&g, other + k,
						     (uint32_t)MIN((size_t)777, n - k), NULL);
				frags_copy(&g, 0, &f, off, n);
				ck_assert(memcmp(other, flat + off, n) == 0);
				frags_put(&g);
				break;
			}
			frags_copy_out(&f, off, other, n);
			same = memcmp(other, flat + off, n) == 0;
			ck_assert(same);
		}
		frags_put(&f);
		frags_fini(&f);
		frags_fini(&g);
		free(flat);
		free(other);
	}
	ck_assert_uint_eq(released, 50 * 12);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("buf");
	TCase *tc = tcase_create("frags");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, neighbours_merge);
	tcase_add_test(tc, same_block_merges);
	tcase_add_test(tc, references_do_not_mix);
	tcase_add_test(tc, four_need_no_memory_more_are_kept);
	tcase_add_loop_test(tc, copies, 0, 4);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
