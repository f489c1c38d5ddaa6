/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Lists and big-endian fields: the small headers everything stands on. */
#include "events/bytes.h"
#include "events/list.h"
#include "tests/support/unit.h"

struct item {
	int n;
	struct list link;
};

static struct list head;
static struct item item[8];

static void setup_items(void)
{
	list_init(&head);
	for (int i = 0; i < 8; i++) {
		item[i].n = i;
		list_init(&item[i].link);
	}
}

/* The list's numbers as a decimal, read forwards; checks the way back too. */
static long digits(struct list *l)
{
	struct item *it;
	struct list *p;
	long fwd = 0, back = 0, scale = 1;

	list_for_each(it, l, link)
		fwd = fwd * 10 + it->n;
	for (p = l->prev; p != l; p = p->prev, scale *= 10)
		back += list_entry(p, struct item, link)->n * scale;
	ck_assert_int_eq(fwd, back);
	return fwd;
}

START_TEST(both_ends)
{
	setup_items();
	ck_assert(list_empty(&head));
	ck_assert_ptr_null(list_first_or_null(&head, struct item, link));
	list_add_tail(&head, &item[1].link);
	list_add_tail(&head, &item[2].link);
	list_add_head(&head, &item[3].link);
	ck_assert_int_eq(digits(&head), 312);
	ck_assert_int_eq(list_first(&head, struct item, link)->n, 3);
	list_insert_after(&item[1].link, &item[4].link);
	ck_assert_int_eq(digits(&head), 3142);
}
END_TEST

START_TEST(unlinked_nodes_know_it)
{
	setup_items();
	list_add_tail(&head, &item[1].link);
	ck_assert(list_linked(&item[1].link));
	list_del(&item[1].link);
	ck_assert(!list_linked(&item[1].link));
	list_del(&item[1].link);
	ck_assert(list_empty(&head));
}
END_TEST

START_TEST(splice)
{
	struct list more = LIST_INIT(more);

	setup_items();
	list_splice_tail(&head, &more);
	ck_assert(list_empty(&head));
	list_add_tail(&more, &item[1].link);
	list_add_tail(&more, &item[2].link);
	list_splice_tail(&head, &more);
	ck_assert(list_empty(&more));
	ck_assert_int_eq(digits(&head), 12);
	list_add_tail(&more, &item[3].link);
	list_splice_tail(&head, &more);
	ck_assert_int_eq(digits(&head), 123);
}
END_TEST

START_TEST(walk_survives_removal)
{
	struct item *it, *tmp;

	setup_items();
	for (int i = 1; i < 8; i++)
		list_add_tail(&head, &item[i].link);
	list_for_each_safe(it, tmp, &head, link)
		if (it->n % 2)
			list_del(&it->link);
	ck_assert_int_eq(digits(&head), 246);
}
END_TEST

/* Entries aligned more strictly than the head: found by UBSan once. */
START_TEST(walk_of_aligned_entries)
{
	struct big {
		char c;
		struct list link;
	} cacheline_aligned big[2], *b, *tmp;
	struct list heads[4];
	int n = 0;

	for (int i = 0; i < 4; i++) {
		list_init(&heads[i]);
		list_for_each(b, &heads[i], link)
			n++;
		list_for_each_safe(b, tmp, &heads[i], link)
			n++;
		list_add_tail(&heads[i], &big[0].link);
		list_add_tail(&heads[i], &big[1].link);
		list_for_each(b, &heads[i], link)
			n += 10;
		list_for_each_safe(b, tmp, &heads[i], link)
			list_del(&b->link);
	}
	ck_assert_int_eq(n, 80);
}
END_TEST

START_TEST(big_endian_at_any_alignment)
{
	uint8_t b[16];

	for (unsigned off = 0; off < 8; off++) {
		memset(b, 0xee, sizeof(b));
		put_be16(b + off, 0x0123);
		ck_assert_mem_eq(b + off, "\x01\x23\xee", 3);
		ck_assert_uint_eq(get_be16(b + off), 0x0123);
		put_be24(b + off, 0xfedcba);
		ck_assert_mem_eq(b + off, "\xfe\xdc\xba\xee", 4);
		ck_assert_uint_eq(get_be24(b + off), 0xfedcba);
		put_be32(b + off, 0x89abcdef);
		ck_assert_mem_eq(b + off, "\x89\xab\xcd\xef\xee", 5);
		ck_assert_uint_eq(get_be32(b + off), 0x89abcdef);
		put_be48(b + off, 0xf123456789abull);
		ck_assert_mem_eq(b + off, "\xf1\x23\x45\x67\x89\xab\xee", 7);
		ck_assert_uint_eq(get_be48(b + off), 0xf123456789abull);
		put_be64(b + off, 0xfedcba9876543210ull);
		ck_assert_mem_eq(b + off, "\xfe\xdc\xba\x98\x76\x54\x32\x10", 8);
		ck_assert_uint_eq(get_be64(b + off), 0xfedcba9876543210ull);
	}
}
END_TEST

START_TEST(rounding)
{
	ck_assert_uint_eq(ALIGN_UP(4097u, 4096), 8192);
	ck_assert_uint_eq(ALIGN_UP(4096u, 4096), 4096);
	/* The mask must be as wide as the value. */
	ck_assert_uint_eq(ALIGN_DOWN(0x123456789abcull, 4096), 0x123456789000ull);
	ck_assert(IS_ALIGNED(0x100000000ull, 512));
	ck_assert(!IS_ALIGNED(0x100000001ull, 512));
	ck_assert_uint_eq(DIV_ROUND_UP(9u, 4u), 3);
	ck_assert_uint_eq(GiB(8), 8589934592ull);
}
END_TEST

UNIT_MAIN("list", 5, both_ends, unlinked_nodes_know_it, splice, walk_survives_removal,
	  walk_of_aligned_entries, big_endian_at_any_alignment, rounding)
