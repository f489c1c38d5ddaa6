/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Private memory of a node: pieces, zeros, alignment; and where the kernel says that pages are. */
#include <stdlib.h>
#include <sys/mman.h>

#include "cache/memory/node_heap.h"
#include "tests/support/blktest.h"
#include "tests/support/unit.h"

START_TEST(pieces_are_apart_and_zero)
{
	static const size_t sizes[] = { 1, 64, 65, 4096, 100000, 3 << 20, 5 };
	uint8_t *piece[200];
	struct node_heap *h = node_heap_create(NULL, -1, KiB(8), NULL);

	ck_assert_ptr_nonnull(h);
	for (unsigned i = 0; i < ARRAY_SIZE(piece); i++) {
		size_t size = sizes[i % ARRAY_SIZE(sizes)];

		piece[i] = node_heap_take(h, size);
		ck_assert_ptr_nonnull(piece[i]);
		ck_assert_uint_eq((uintptr_t)piece[i] % CACHE_LINE, 0);
		ck_assert(bt_all(piece[i], size, 0));
		memset(piece[i], (int)i + 1, size);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(piece); i++)
		ck_assert(bt_all(piece[i], sizes[i % ARRAY_SIZE(sizes)], (uint8_t)(i + 1)));
	node_heap_give(h, piece[0]); /* goes with the heap */
	node_heap_destroy(h);
}
END_TEST

/* Without a heap it is the C library's: nothing is left behind (ASan). */
START_TEST(without_a_heap)
{
	uint8_t *p = node_heap_take(NULL, 1000);

	ck_assert_ptr_nonnull(p);
	ck_assert(bt_all(p, 1000, 0));
	ck_assert_uint_eq((uintptr_t)p % CACHE_LINE, 0);
	node_heap_give(NULL, p);
	node_heap_give(NULL, NULL);
	node_heap_destroy(NULL);
}
END_TEST

/* It has its pages before it is handed out, and they are found. */
START_TEST(its_pages_are_told)
{
	static struct topology topo;
	struct mem_where w = { 0 };
	struct node_heap *h;

	ck_assert_int_eq(topology_detect(&topo, ""), 0);
	h = node_heap_create(&topo, (int)topo.nnodes - 1, MiB(4), NULL);
	ck_assert_ptr_nonnull(h);
	node_heap_where(h, &w);
	ck_assert_uint_ge(w.bytes, MiB(4));
	ck_assert_uint_eq(w.pages, w.bytes / 4096);
	ck_assert_uint_le(w.huge, w.bytes);
	if (!w.err) {
		ck_assert_uint_eq(w.on_node, w.pages);
		ck_assert_uint_eq(w.elsewhere, 0);
	}
	node_heap_destroy(h);
}
END_TEST

/* Only what has memory counts, and what is elsewhere is not taken for what is there. */
START_TEST(where_it_is)
{
	uint8_t *p = mmap(NULL, MiB(1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct mem_where w = { 0 }, other = { 0 };
	static struct topology topo;
	char text[160];

	ck_assert_ptr_ne(p, MAP_FAILED);
	madvise(p, MiB(1), MADV_NOHUGEPAGE);
	for (unsigned i = 0; i < 10; i++)
		p[i * 8192] = 1;
	ck_assert_int_eq(topology_detect(&topo, ""), 0);
	const int here = mem_where_node(&topo, 0);

	mem_where_add(&w, p, MiB(1), here);
	if (w.err) /* a kernel that does not tell */
		return;
	ck_assert_uint_eq(w.pages, 10);
	ck_assert_uint_eq(w.on_node + w.elsewhere, here < 0 ? 0 : 10);
	mem_where_add(&other, p, MiB(1), 1000);
	ck_assert_uint_eq(other.elsewhere, 10);
	mem_where_text(&other, text, sizeof(text));
	ck_assert_str_eq(text, "0 of 10 pages on the node, 0 of 1 MiB in huge pages");
	mem_where_join(&w, &other);
	ck_assert_uint_eq(w.pages, 20);
	munmap(p, MiB(1));
	/* Nobody can tell where a simulated node's memory is. */
	ck_assert_int_eq(topology_simulate(&topo, 4), 0);
	ck_assert_int_eq(mem_where_node(&topo, 2), -1);
	ck_assert_int_eq(mem_where_node(NULL, 0), -1);
	w = (struct mem_where){ .pages = 3, .bytes = MiB(1) };
	mem_where_text(&w, text, sizeof(text));
	ck_assert_str_eq(text, "3 pages, where is not known, 0 of 1 MiB in huge pages");
}
END_TEST

UNIT_MAIN("node_heap", 20, pieces_are_apart_and_zero, without_a_heap, its_pages_are_told,
	  where_it_is)
