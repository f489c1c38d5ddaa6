/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What is locked, and what is said of it: sets of addresses against a model; limits; what goes. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "cache/memory/arena.h"
#include "cache/memory/node_heap.h"
#include "tests/support/blktest.h"
#include "tests/support/unit.h"

/* ---- the kernel: which pages are locked, and how many more may be --------------------------- */

#define PAGES (1u << 20)
static uint8_t is_locked[PAGES]; /* by page number, modulo */
static long may_lock;		 /* pages */

static int lock_pages(const void *at, size_t len)
{
	const uintptr_t first = (uintptr_t)at / 4096, n = len / 4096;
	long more = 0;

	ck_assert_uint_eq(((uintptr_t)at | len) % 4096, 0);
	for (uintptr_t i = first; i < first + n; i++)
		more += !is_locked[i % PAGES];
	if (more > may_lock) {
		errno = ENOMEM;
		return -1;
	}
	may_lock -= more;
	for (uintptr_t i = first; i < first + n; i++)
		is_locked[i % PAGES] = 1;
	return 0;
}

static void unlock_pages(const void *at, size_t len)
{
	const uintptr_t first = (uintptr_t)at / 4096;

	for (uintptr_t i = first; i < first + len / 4096; i++) {
		may_lock += is_locked[i % PAGES];
		is_locked[i % PAGES] = 0;
	}
}

/* The C library's, for all of this program. */
int mlock(const void *at, size_t len)
{
	return lock_pages(at, len);
}

int mlock2(const void *at, size_t len, unsigned flags)
{
	ck_assert_uint_eq(flags, MLOCK_ONFAULT);
	return lock_pages(at, len);
}

int munlock(const void *at, size_t len)
{
	unlock_pages(at, len);
	return 0;
}

static uint64_t locked_now(const void *at, size_t len)
{
	const uintptr_t first = (uintptr_t)at / 4096;
	uint64_t n = 0;

	for (uintptr_t i = first; i < first + len / 4096; i++)
		n += is_locked[i % PAGES];
	return n * 4096;
}

static void kernel_reset(long pages)
{
	memset(is_locked, 0, sizeof(is_locked));
	may_lock = pages;
}

/* ---- sets ------------------------------------------------------------------------------------ */

START_TEST(sets_against_a_model)
{
	enum { N = 300 };
	struct mem_spans s = { 0 };
	bool in[N] = { 0 };
	uint64_t rng = 5;

	for (unsigned k = 0; k < 20000; k++) {
		const unsigned at = (unsigned)(bt_random(&rng) % N),
			       len = (unsigned)(bt_random(&rng) % MIN(N - at + 1, 40u));
		const bool add = bt_random(&rng) % 100 < (k / 1000 % 2 ? 40 : 60);
		unsigned count = 0, spans = 0;

		if (add)
			ck_assert(mem_spans_add(&s, (void *)(uintptr_t)(at + 1), len));
		else
			mem_spans_remove(&s, (void *)(uintptr_t)(at + 1), len);
		for (unsigned i = at; i < at + len; i++)
			in[i] = add;
		for (unsigned i = 0; i < N; i++) {
			count += in[i];
			spans += in[i] && (!i || !in[i - 1]);
		}
		ck_assert_uint_eq(s.bytes, count);
		ck_assert_uint_eq(s.n, spans);
		for (unsigned i = 0; i < s.n; i++)
			for (uintptr_t a = s.v[i].from; a < s.v[i].to; a++)
				ck_assert(in[a - 1]);
	}
	mem_spans_fini(&s);
}
END_TEST

static uint64_t wanted, locked;
static int why;

static void look(struct mem_locks *l)
{
	mem_locks_get(l, &wanted, &locked, &why);
}

/* ---- what is said ---------------------------------------------------------------------------- */

START_TEST(as_much_as_the_limit_allows)
{
	uint8_t *p = mmap(NULL, MiB(64), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct mem_locks l;

	ck_assert_ptr_ne(p, MAP_FAILED);
	kernel_reset(MiB(20) / 4096);
	mem_locks_init(&l, "test");
	look(&l);
	ck_assert_uint_eq(wanted + locked, 0);
	mem_locks_want(&l, p, MiB(12));
	look(&l);
	ck_assert_uint_eq(wanted, MiB(12));
	ck_assert_uint_eq(locked, 0);
	ck_assert_int_eq(why, 0); /* nobody has tried */
	mem_locks_lock(&l, p, MiB(12));
	mem_locks_lock(&l, p, MiB(12)); /* twice is once */
	look(&l);
	ck_assert_uint_eq(wanted, MiB(12));
	ck_assert_uint_eq(locked, MiB(12));
	mem_locks_lock(&l, p + MiB(16), MiB(16));
	look(&l);
	ck_assert_uint_eq(wanted, MiB(28));
	ck_assert_uint_eq(locked, locked_now(p, MiB(64)));
	ck_assert_uint_ge(locked, MiB(12));
	ck_assert_uint_lt(locked, MiB(28));
	ck_assert_int_eq(why, -ENOMEM);
	/* What could not be locked goes: that changes nothing of the rest. */
	mem_locks_drop(&l, p + MiB(24), MiB(8));
	mem_locks_drop(&l, p + MiB(20), MiB(4));
	mem_locks_drop(&l, p + MiB(4), MiB(4));
	look(&l);
	ck_assert_uint_eq(wanted, MiB(12));
	ck_assert_uint_eq(locked, locked_now(p, MiB(64)));
	/* All that is left is locked, by who tries again: nothing is wrong any more. */
	mem_locks_lock(&l, p + MiB(16), MiB(4));
	look(&l);
	ck_assert_uint_eq(wanted, locked);
	ck_assert_int_eq(why, 0);
	munmap(p, MiB(64));
	mem_locks_forget(&l, p, MiB(64));
	look(&l);
	ck_assert_uint_eq(wanted + locked, 0);
	mem_locks_fini(&l);
	/* Nobody's. */
	mem_locks_lock(NULL, p, 4096);
	mem_locks_drop(NULL, p, 4096);
}
END_TEST

/* All of a heap is, and what loses its memory is not: it reads as zeros then. */
START_TEST(a_heap_is_locked)
{
	struct mem_locks l;
	struct node_heap *h;
	uint8_t *p, *room, *late;

	kernel_reset(PAGES);
	mem_locks_init(&l, "test");
	h = node_heap_create(NULL, -1, MiB(3), &l);
	ck_assert_ptr_nonnull(h);
	p = node_heap_take(h, MiB(3));
	room = node_heap_reserve(h, MiB(32), false);
	late = node_heap_reserve(h, MiB(4), true);
	ck_assert(p && room && late);
	look(&l);
	ck_assert_uint_ge(wanted, MiB(3));
	ck_assert_uint_eq(wanted, locked);
	ck_assert_uint_eq(locked_now(p, MiB(2)), MiB(2));

	const uint64_t before = wanted;

	ck_assert_int_eq(node_heap_populate(h, room + MiB(8), 100, MiB(1) + 100), 0);
	node_heap_touched(h, late, MiB(1));
	look(&l);
	ck_assert_uint_eq(wanted, before + MiB(2) + 4096);
	ck_assert_uint_eq(locked, wanted);
	memset(room + MiB(8), 0x5a, MiB(1));
	node_heap_drop(h, room + MiB(8), 0, MiB(1));
	ck_assert(bt_all(room + MiB(8), MiB(1), 0));
	ck_assert_uint_eq(locked_now(room + MiB(8), MiB(1)), 0);
	look(&l);
	ck_assert_uint_eq(wanted, before + MiB(1) + 4096);
	memset(p, 0x5a, MiB(3));
	node_heap_empty(h);
	ck_assert(bt_all(p + 4096, MiB(3) - 4096, 0));
	ck_assert_uint_eq(locked_now(p + 4096, MiB(2)), 0);
	node_heap_destroy(h);
	look(&l);
	ck_assert_uint_eq(wanted + locked, 0);
	mem_locks_fini(&l);
}
END_TEST

/* Of an arena nothing is said to be locked before it is, and then all of it is, what belongs to it
 * outside of the file as well. */
START_TEST(an_arena_is_locked)
{
	struct arena_conf c = { .name = "test", .node = -1, .block_size = 4096,
				.nblocks = MiB(136) / 4096, .tail = MiB(1), .prefault = true };
	struct mem_locks l;
	struct arena *a;

	kernel_reset(PAGES);
	mem_locks_init(&l, "test");
	c.locks = &l;
	a = arena_create(&c);
	ck_assert_ptr_nonnull(a);
	/* (However fast that thread is.) */
	look(&l);
	ck_assert_uint_ge(wanted, MiB(136));
	ck_assert_uint_le(locked, locked_now(a->map, a->map_len) +
					  locked_now(a->memo, a->room * sizeof(*a->memo)));
	arena_settle(a);
	look(&l);
	ck_assert_uint_eq(locked, wanted);
	ck_assert_uint_eq(locked_now(a->map, a->map_len), a->map_len);
	ck_assert_uint_ge(locked_now(a->memo, a->room * sizeof(*a->memo)),
			  a->nblocks * sizeof(*a->memo));
	arena_destroy(a);
	look(&l);
	ck_assert_uint_eq(wanted + locked, 0);
	mem_locks_fini(&l);
}
END_TEST

UNIT_MAIN("locked", 300, sets_against_a_model, as_much_as_the_limit_allows, a_heap_is_locked,
	  an_arena_is_locked)
