/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Arenas: layout, limits, files, sparseness, punching, watchers, ids. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "cache/memory/arena.h"
#include "cache/memory/layout.h"
#include "events/thread.h"
#include "tests/support/blktest.h"
#include "tests/support/unit.h"

static void release(struct arena *a, struct block *b)
{
}

static struct arena_conf conf(uint32_t block_size, uint32_t nblocks)
{
	return (struct arena_conf){ .name = "test", .node = 0, .block_size = block_size,
				    .nblocks = nblocks, .release = release };
}

static uint64_t resident(const struct arena *a)
{
	size_t pages = a->map_len / 4096;
	unsigned char *vec = malloc(pages);
	uint64_t n = 0;

	ck_assert_int_eq(mincore(a->map, a->map_len, vec), 0);
	for (size_t i = 0; i < pages; i++)
		n += vec[i] & 1;
	free(vec);
	return n * 4096;
}

/* A later process is told what it finds, and takes nothing that was changed. */
START_TEST(superblock)
{
	static const char said[] = "what the owner says";
	static uint8_t page[ARENA_SUPER_SIZE];
	struct arena_conf c = conf(65536, 50);
	struct arena_super *h = (void *)page;
	struct arena *a;

	c.extra = 24;
	c.tail = 10000;
	c.says = said;
	c.says_len = sizeof(said);
	a = arena_create(&c);
	ck_assert_ptr_nonnull(a);
	ck_assert_ptr_null(arena_super_wrong(a->map, a->map_len));
	memcpy(page, a->map, sizeof(page));
	ck_assert_uint_eq(h->nblocks, 50);
	ck_assert_uint_eq(h->block_shift, 16);
	ck_assert_ptr_eq((uint8_t *)a->map + h->header_off, a->hdr);
	ck_assert_ptr_eq((uint8_t *)a->map + h->extra_off, a->extra);
	ck_assert_ptr_eq((uint8_t *)a->map + h->data_off, a->data);
	ck_assert_ptr_eq((uint8_t *)a->map + h->tail_off, a->tail);
	ck_assert_str_eq((const char *)h->owner, said);
	ck_assert_ptr_eq(arena_super(a), a->map);
	ck_assert(a->tail >= a->data + 50 * 65536);
	ck_assert(bt_all(a->tail, 10000, 0));
	memset(a->tail, 0xff, 10000);
	ck_assert_uint_eq(a->hdr[49].index, 49);
	/* Any bit that changes is noticed, and so is another length. */
	for (unsigned bit = 0; bit < sizeof(page) * 8; bit += bit < 2048 ? 1 : 97) {
		/* What the owner changes as it goes. */
		if (bit / 8 - offsetof(struct arena_super, live) < sizeof(h->live))
			continue;
		page[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ck_assert_msg(arena_super_wrong(page, a->map_len) != NULL, "bit %u", bit);
		page[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	ck_assert_ptr_null(arena_super_wrong(page, a->map_len));
	ck_assert_ptr_nonnull(arena_super_wrong(page, a->map_len - 4096));
	ck_assert_ptr_nonnull(arena_super_wrong(page, 100));
	arena_destroy(a);
}
END_TEST

static unsigned comes[64], goes[64];

static void piece_comes(struct arena_watcher *w, struct arena *a, uint32_t piece)
{
	ck_assert_uint_eq(a->present[piece], 0); /* before anybody can use it */
	comes[piece]++;
}

static void piece_goes(struct arena_watcher *w, struct arena *a, uint32_t piece)
{
	ck_assert_uint_eq(a->present[piece], 0);
	goes[piece]++;
}

static void nothing(struct arena_watcher *w, struct arena *a)
{
}

/* Watchers are told of each piece once it is there, and when nothing of it is in use any more. The
 * memory is the system's again then; without adapters at once. */
START_TEST(it_grows_and_shrinks)
{
	struct arena_watcher w = { .created = nothing,
				   .piece_comes = piece_comes,
				   .piece_goes = piece_goes };
	struct arena_conf c = conf(4096, 1000);
	struct arena *a;

	c.room = 8192;
	c.piece = 2 << 20;
	c.extra = 8;
	c.prefault = true;
	a = arena_create(&c);
	ck_assert_ptr_nonnull(a);
	arena_settle(a);
	arena_watch(&w);
	ck_assert_uint_eq(a->room, 8192);
	ck_assert_uint_eq(a->npieces, 16);
	ck_assert_uint_eq(a->present[0], 512);
	ck_assert_uint_eq(a->present[1], 488);
	for (unsigned round = 0; round < 2; round++) {
		const uint64_t before = bt_shared_resident();

		ck_assert_int_eq(arena_grow(a, 1536, 1000), 0);
		ck_assert_uint_ge(bt_shared_resident(), before + 1000 * 4096);
		ck_assert_uint_eq(a->hdr[1536].index, 1536);
		ck_assert_uint_eq(a->hdr[2535].arena, a->id);
		ck_assert_uint_eq(a->hdr[2535].block, BLOCK_NO_NUMBER);
		ck_assert_uint_eq(comes[3], round + 1);
		ck_assert_uint_eq(comes[4], round + 1);
		ck_assert_uint_eq(comes[0] + comes[1] + comes[2] + comes[5], 0);
		memset(a->data + 1536 * 4096, 0x5a, 1000 * 4096);
		/* A half goes: no piece does, but its memory. */
		arena_shrink(a, 1536 + 256, 256);
		ck_assert_uint_eq(goes[3], round);
		ck_assert(bt_all(a->data + (1536 + 256) * 4096, 256 * 4096, round ? 0x5a : 0));
		ck_assert(bt_all(a->data + 1536 * 4096, 256 * 4096, 0x5a));
		arena_shrink(a, 1536, 256);
		ck_assert_uint_eq(goes[3], round + 1);
		arena_shrink(a, 2048, 488);
		ck_assert_uint_eq(goes[4], round + 1);
		ck_assert_uint_le(bt_shared_resident(), before + 64 * 1024);
		/* An adapter has the pages of a piece until it goes as a whole. */
		if (!round)
			arena_pin(a);
	}
	ck_assert_int_eq(arena_grow(a, 1536, 512), 0);
	memset(a->data + 1536 * 4096, 0x5a, 512 * 4096);
	arena_shrink(a, 1536 + 256, 256);
	ck_assert(bt_all(a->data + 1536 * 4096, 512 * 4096, 0x5a));
	arena_shrink(a, 1536, 256);
	arena_unwatch(&w);
	arena_destroy(a);
}
END_TEST

/* Where its pages are is known when it is ready: at once, when it is small. */
/* The C library's, for all of this program: counts. */
static unsigned collapses;
static _Atomic unsigned in_background, calls;

static void count_call(void)
{
	calls++;
	in_background += sched_getscheduler(0) == SCHED_IDLE;
}

int madvise(void *at, size_t len, int advice)
{
	collapses += advice == 25; /* MADV_COLLAPSE */
	count_call();
	return (int)syscall(SYS_madvise, at, len, advice);
}

int mlock(const void *at, size_t len)
{
	count_call();
	return (int)syscall(SYS_mlock, at, len);
}

static void *may_return(void *may)
{
	thread_background(true);
	thread_background(false);
	*(bool *)may = !thread_in_background();
	return NULL;
}

/* While the kernel works on the memory of an arena it holds what whoever touches that waits for. A
 * thread that gets what others leave of the processors would hold it for as long as they leave
 * nothing: so it is none during such a call. */
START_TEST(memory_is_prepared_with_a_share_of_the_processors)
{
	struct arena_conf c = conf(4096, 40960);
	struct mem_locks locks;
	pthread_t thread;
	struct arena *a;
	bool may = false;

	ck_assert_int_eq(pthread_create(&thread, NULL, may_return, &may), 0);
	pthread_join(thread, NULL);
	if (!may) {
		printf("# SKIP a thread may not come back from SCHED_IDLE here\n");
		return;
	}
	c.prefault = true;
	mem_locks_init(&locks, "test");
	c.locks = &locks;
	calls = in_background = 0;
	a = arena_create(&c);
	ck_assert_ptr_nonnull(a);
	arena_settle(a);
	printf("# %u calls, %u of them in the background\n", calls, in_background);
	ck_assert_uint_gt(calls, 4);
	ck_assert_uint_eq(in_background, 0);
	arena_destroy(a);
	mem_locks_fini(&locks);
}
END_TEST

/* Each call for huge pages keeps all other threads from mapping anything, up to 100 ms where all
 * processors are busy: 32 MiB take a few calls, not sixteen. */
START_TEST(few_calls_for_huge_pages)
{
	struct arena_conf c = conf(4096, 20480);
	struct arena *a;

	c.room = 65536;
	c.piece = 2 << 20;
	c.prefault = true;
	a = arena_create(&c);
	ck_assert_ptr_nonnull(a);
	arena_settle(a);
	collapses = 0;
	ck_assert_int_eq(arena_grow(a, 20480, 8192), 0);
	printf("# %u calls\n", collapses);
	ck_assert_uint_le(collapses, 6);
	arena_shrink(a, 20480, 8192);
	arena_destroy(a);
}
END_TEST

START_TEST(where_its_pages_are)
{
	static struct topology topo;
	struct arena_conf c = conf(4096, MiB(8) / 4096);
	struct mem_where w;
	struct arena *a;

	ck_assert_int_eq(topology_detect(&topo, ""), 0);
	c.topo = &topo;
	c.prefault = true;
	c.tail = MiB(1); /* without memory until it is touched */
	a = arena_create(&c);
	ck_assert_ptr_nonnull(a);
	ck_assert(arena_ready(a));
	arena_where(a, &w);
	ck_assert_uint_ge(w.bytes, MiB(8));
	ck_assert_uint_eq(w.pages, w.bytes / 4096);
	ck_assert_uint_lt(w.bytes, a->map_len);
	if (!w.err)
		ck_assert_uint_eq(w.on_node, w.pages);
	arena_destroy(a);
}
END_TEST

/* What the owner keeps beside the headers: in the same file, zeros at first,
 * apart from everything else. */
START_TEST(extra_bytes)
{
	struct arena_conf c = conf(65536, 50);
	struct arena *a;

	c.extra = 32;
	a = arena_create(&c);
	ck_assert_ptr_nonnull(a);
	ck_assert_ptr_eq(a->extra, (uint8_t *)(a->hdr + 50));
	ck_assert(a->extra + 50 * 32 <= a->zero);
	ck_assert(bt_all(a->extra, 50 * 32, 0));
	memset(a->extra, 0xff, 50 * 32);
	ck_assert(bt_all(a->zero, a->zero_len, 0));
	ck_assert_uint_eq(a->hdr[49].index, 49);
	arena_destroy(a);
	c.extra = 0;
	a = arena_create(&c);
	ck_assert_ptr_null(a->extra);
	arena_destroy(a);
}
END_TEST

START_TEST(layout)
{
	for (uint32_t block = 4096; block <= MiB(1); block *= 4) {
		struct arena_conf c = conf(block, 100);
		struct arena *a;

		c.prefault = true;
		a = arena_create(&c);
		ck_assert_ptr_nonnull(a);
		ck_assert_ptr_eq(arena_by_id[a->id], a);
		ck_assert(((uintptr_t)a->data & 4095) == 0 && ((uintptr_t)a->hdr & 63) == 0);
		ck_assert_uint_ge(a->zero_len, block);
		ck_assert(bt_all(a->zero, a->zero_len, 0));
		ck_assert((uint8_t *)(a->hdr + 100) <= a->zero && a->zero + a->zero_len <= a->data);
		ck_assert(a->data + 100ull * block <= (uint8_t *)a->map + a->map_len);
		for (uint32_t i = 0; i < 100; i++) {
			ck_assert_ptr_eq(block_data(&a->hdr[i]), a->data + (size_t)i * block);
			memset(block_data(&a->hdr[i]), (int)i, block);
		}
		ck_assert(bt_all(a->zero, a->zero_len, 0));
		ck_assert_uint_eq(resident(a), a->map_len); /* all touched */
		arena_destroy(a);
	}
}
END_TEST

/* What is behind the first part gets its memory in the background, while it is in use; what was
 * written meanwhile stays. Ending it in the middle is allowed. */
START_TEST(prepared_behind)
{
	struct arena_conf c = conf(4096, (uint32_t)(MiB(160) / 4096));
	struct arena *a;

	c.prefault = true;
	for (int whole = 0; whole < 2; whole++) {
		a = arena_create(&c);
		ck_assert_ptr_nonnull(a);
		ck_assert_uint_eq((uintptr_t)a->map & (MiB(2) - 1), 0);
		for (uint32_t i = 0; i < a->nblocks; i += 100)
			memset(block_data(&a->hdr[i]), (int)(i / 100) | 1, 4096);
		for (int ms = 0; whole && resident(a) < a->map_len; ms += 10) {
			ck_assert_int_lt(ms, 60000);
			usleep(10000);
		}
		for (uint32_t i = 0; i < a->nblocks; i += 50) {
			ck_assert_uint_eq(a->hdr[i].index, i);
			ck_assert(bt_all(block_data(&a->hdr[i]), 4096,
					 i % 100 ? 0 : (uint8_t)(i / 100 | 1)));
		}
		arena_destroy(a);
	}
}
END_TEST

START_TEST(ids_are_reused)
{
	struct arena_conf c = conf(4096, 4);
	struct arena *a = arena_create(&c), *b = arena_create(&c), *d;
	uint16_t id = a->id;

	ck_assert_uint_ne(a->id, b->id);
	arena_destroy(a);
	ck_assert_ptr_null(arena_by_id[id]);
	d = arena_create(&c);
	ck_assert_uint_eq(d->id, id);
	arena_destroy(b);
	arena_destroy(d);
}
END_TEST

/* Far more than the machine has, and costs only what is touched. Punched blocks read as zeros. */
START_TEST(sparse_and_punched)
{
	struct arena_conf c = conf(4096, 1u << 28); /* 1 TiB */
	struct arena *a;

	c.sparse = true;
	a = arena_create(&c);
	ck_assert_ptr_nonnull(a);
	memset(a->data, 1, 256 * 4096);
	memset(a->data + (1ull << 39), 2, 64 * 4096);
	ck_assert_uint_ge(bt_shared_resident(), 320 * 4096);
	arena_punch(a, 0, 128);
	ck_assert_uint_lt(bt_shared_resident(), 256 * 4096);
	ck_assert(bt_all(a->data, 128 * 4096, 0));
	ck_assert(bt_all(a->data + 128 * 4096, 128 * 4096, 1));
	arena_punch(a, 1u << 27, 64);
	ck_assert(bt_all(a->data + (1ull << 39), 64 * 4096, 0));
	/* Pinned: the pages must stay the same ones, so zeros are written. */
	a->pinned = true;
	arena_punch(a, 200, 1);
	ck_assert(bt_all(a->data + 200 * 4096, 4096, 0));
	ck_assert(bt_all(a->data + 201 * 4096, 4096, 1));
	arena_destroy(a);
}
END_TEST

/* Who closes a store does not wait for huge pages: joining them touches each piece, which can be
 * seen where nothing has memory yet. */
START_TEST(joining_stops_when_told)
{
	struct arena_conf c = conf(4096, 1u << 14); /* 64 MiB */
	_Atomic bool stop = true;
	uint64_t before;
	struct arena *a;

	c.sparse = true;
	a = arena_create(&c);
	ck_assert_ptr_nonnull(a);
	before = bt_shared_resident();
	(void)arena_join(a, 0, 1u << 14, &stop);
	ck_assert_uint_eq(bt_shared_resident(), before);
	/* Where the kernel makes none it is asked a few times, not once for each piece. */
	stop = false;
	if (!arena_join(a, 0, 1u << 14, &stop))
		ck_assert_uint_lt(bt_shared_resident(), MiB(33));
	arena_destroy(a);
}
END_TEST

START_TEST(named_file)
{
	struct arena_conf c = conf(4096, 8);
	char file[64];
	struct arena *a;
	struct stat st;

	snprintf(file, sizeof(file), "/dev/shm/tgt-test-arena.%d", (int)getpid());
	c.file = file;
	a = arena_create(&c);
	ck_assert_ptr_nonnull(a);
	ck_assert_int_eq(stat(file, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, a->map_len);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
	ck_assert_ptr_null(arena_create(&c)); /* never somebody else's file */
	ck_assert_int_eq(errno, EEXIST);
	arena_destroy(a);
	ck_assert_int_ne(stat(file, &st), 0);
}
END_TEST

/* More than there is: refused at once, with errno, nothing left behind. */
START_TEST(too_large)
{
	uint64_t avail = arena_memory_available();
	struct arena_conf c = conf(MiB(1), (uint32_t)(avail / MiB(1)) + 1000);
	struct rlimit as, low;

	ck_assert_uint_gt(avail, MiB(16));
	ck_assert_ptr_null(arena_create(&c));
	ck_assert_int_eq(errno, ENOMEM);
	getrlimit(RLIMIT_FSIZE, &as);
	low = as;
	low.rlim_cur = MiB(8);
	setrlimit(RLIMIT_FSIZE, &low);
	signal(SIGXFSZ, SIG_IGN);
	c = conf(4096, 16384);
	ck_assert_ptr_null(arena_create(&c));
	ck_assert_int_eq(errno, EFBIG);
	setrlimit(RLIMIT_FSIZE, &as);
}
END_TEST

static unsigned made, gone;
static void on_created(struct arena_watcher *w, struct arena *a)
{
	ck_assert_ptr_nonnull(a->map);
	ck_assert_ptr_eq(arena_by_id[a->id], a);
	made++;
}
static void on_destroying(struct arena_watcher *w, struct arena *a)
{
	a->data[0] = 1; /* still mapped */
	gone++;
}

START_TEST(watchers)
{
	struct arena_watcher w = { .created = on_created, .destroying = on_destroying };
	struct arena_conf c = conf(4096, 4);
	struct arena *a = arena_create(&c), *b;

	arena_watch(&w);
	ck_assert_uint_eq(made, 1); /* the one from before */
	b = arena_create(&c);
	ck_assert_uint_eq(made, 2);
	arena_destroy(a);
	ck_assert_uint_eq(gone, 1);
	arena_unwatch(&w);
	arena_destroy(b);
	ck_assert_uint_eq(gone, 1);
}
END_TEST

UNIT_MAIN("arena", 15, layout, superblock, where_its_pages_are, extra_bytes,
	  few_calls_for_huge_pages, memory_is_prepared_with_a_share_of_the_processors,
	  prepared_behind, ids_are_reused, sparse_and_punched, joining_stops_when_told,
	  named_file, too_large, watchers, it_grows_and_shrinks)
