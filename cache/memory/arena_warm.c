/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Mapping an arena's file, and doing so ahead of time. See arena.h. */
#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cache/memory/arena_impl.h"
#include "events/log.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define STEP MiB(64) /* at a time: others of the process may want to map something, too */

static struct warm {
	void *map; /* NULL: free */
	size_t len;
	dev_t dev;
	ino_t ino;
} warm[ARENA_MAX];

void *arena_map_file(size_t len, int flags, int fd, bool align)
{
	uint8_t *room, *p;

	if (!align || len < HUGE_PAGE)
		return mmap(NULL, len, PROT_READ | PROT_WRITE, flags, fd, 0);
	room = mmap(NULL, len + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		    -1, 0);
	if (room == MAP_FAILED)
		return MAP_FAILED;
	p = (uint8_t *)ALIGN_UP((uintptr_t)room, (uintptr_t)HUGE_PAGE);
	if (p > room)
		munmap(room, (size_t)(p - room));
	if (p < room + HUGE_PAGE)
		munmap(p + len, (size_t)(room + HUGE_PAGE - p));
	room = p;
	p = mmap(room, len, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
	if (p == MAP_FAILED)
		munmap(room, len);
	return p;
}


/* Page tables for what has memory already, which is not written to. */
static void populate(uint8_t *map, uint64_t from, uint64_t to)
{
	size_t n;

	for (from = ALIGN_DOWN(from, 4096ull); from < to; from += n) {
		n = (size_t)MIN(to - from, (uint64_t)STEP);
		if (madvise(map + from, ALIGN_UP(n, (size_t)4096), MADV_POPULATE_READ))
			return; /* (it is as quick as it is) */
	}
}

static struct warm *find_warm(const struct stat *st, bool free)
{
	for (unsigned i = 0; i < ARRAY_SIZE(warm); i++)
		if (free ? !warm[i].map :
			   warm[i].map && warm[i].dev == st->st_dev && warm[i].ino == st->st_ino)
			return &warm[i];
	return NULL;
}

void arena_warm(int fd, const struct arena_found *f, const struct arena_extent *there,
		uint32_t nthere)
{
	const struct arena_super *h = (const void *)f->page;
	struct warm *w;
	struct stat st;
	void *p;

	if (fstat(fd, &st) || find_warm(&st, false) || !(w = find_warm(&st, true)) || !nthere)
		return;
	p = arena_map_file(h->length, MAP_SHARED, fd, true);
	if (p == MAP_FAILED)
		return;
	/* As arena_attach() will have it: what belongs to the mapping, and not to the file. */
	madvise(p, h->length, MADV_DONTFORK);
	if ((uint64_t)h->nblocks << h->block_shift >= HUGE_PAGE)
		madvise(p, h->length, MADV_HUGEPAGE);
	*w = (struct warm){ p, h->length, st.st_dev, st.st_ino };
	const uint64_t last = there[nthere - 1].first + there[nthere - 1].n;

	populate(p, 0, h->header_off + last * sizeof(struct block));
	populate(p, h->extra_off, h->extra_off + last * h->extra);
	for (uint32_t k = 0; k < nthere; k++) {
		const uint64_t from = h->data_off + ((uint64_t)there[k].first << h->block_shift);

		populate(p, k ? from : h->zero_off,
			 from + ((uint64_t)there[k].n << h->block_shift));
	}
}

void *arena_warm_take(int fd, size_t len)
{
	struct stat st;
	struct warm *w = fstat(fd, &st) ? NULL : find_warm(&st, false);
	void *p;

	if (!w || w->len != len)
		return NULL;
	p = w->map;
	w->map = NULL;
	return p;
}

void arena_warm_end(void)
{
	for (unsigned i = 0; i < ARRAY_SIZE(warm); i++) {
		if (warm[i].map)
			munmap(warm[i].map, warm[i].len);
		warm[i].map = NULL;
	}
}
