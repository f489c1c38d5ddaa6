/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A pool is a list of slabs and a list of free objects.
 *
 *     slab:    | struct slab | cell | cell | cell | ...
 *     cell:    | object ... |                        plain: a free object holds the link itself
 *     cell:    | head | object ... | canary |        rude, or built with AddressSanitizer
 *
 * Plain pools reuse the object freed last: it is the one still in the CPU's cache. Guarded ones
 * reuse the one freed first, and only when enough others were freed after it, so that whoever still
 * writes to it is found out.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "events/bug.h"
#include "events/log.h"
#include "events/pool.h"
#include "events/topology.h"

#if defined(__SANITIZE_ADDRESS__)
#define HAVE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#endif
#ifdef HAVE_ASAN
#include <sanitizer/asan_interface.h>
#define asan_close(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define asan_open(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define HAVE_ASAN 0
#define asan_close(p, n) ((void)(p), (void)(n))
#define asan_open(p, n) ((void)(p), (void)(n))
#endif

#define SLAB_BYTES KiB(64) /* as a rule: at least one object, at most what is asked for */
#define PAGE_BYTES KiB(4)
#define POISON_BYTE 0xa5

struct slab {
	struct slab *next;
	size_t bytes, count;
} cacheline_aligned;

struct free_obj {
	struct free_obj *next;
};

/* Before each object of a pool that has heads. */
struct cell_head {
	struct free_obj link;
	const struct pool *pool;
	uint64_t state;
} cacheline_aligned;
enum { CELL_FREE = 0x66726565, CELL_USED = 0x75736564 };

static const uint8_t canary[16] = { 0xc0, 0xde, 0x5a, 0xfe, 0x11, 0x22, 0x33, 0x44,
				    0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc };

struct pool {
	struct free_obj *free; /* plain: a stack. Guarded: a queue, oldest first */
	struct free_obj *free_tail;
	size_t in_use, total, nfree;
	size_t size;	/* of an object, as asked for */
	size_t stride;	/* of a cell */
	size_t head;	/* bytes before the object in its cell */
	size_t max;	/* 0: no limit */
	size_t growth;	/* objects a further slab gets */
	unsigned modes, fail_every, fail_count;
	int node;
	bool growable;
	struct slab *slabs;
	const char *name;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic unsigned new_modes, new_fail_every;

static void modes_from_environment(void)
{
	const char *env = getenv("TGT_POOL");
	char *copy, *word, *save = NULL, *end;

	if (!env || !*env || !(copy = strdup(env)))
		return;
	for (word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		if (strcmp(word, "poison") == 0) {
			new_modes |= POOL_POISON;
		} else if (strcmp(word, "guard") == 0) {
			new_modes |= POOL_GUARD;
		} else if (strncmp(word, "fail=", 5) == 0) {
			new_fail_every = (unsigned)strtoul(word + 5, &end, 10);
			if (*end || end == word + 5)
				log_error("TGT_POOL: fail= wants a number, not '%s'", word + 5);
		} else {
			log_error("TGT_POOL: no such mode: '%s'", word);
		}
	}
	free(copy);
}

void pool_set_modes(unsigned modes, unsigned fail_every)
{
	pthread_once(&once, modes_from_environment);
	new_modes = modes;
	new_fail_every = fail_every;
}

__attribute__((noreturn, cold)) static void pool_bug(const struct pool *p, const void *obj,
						     const char *what)
{
	log_error("pool %s: object %p of %zu bytes: %s", p->name, obj, p->size, what);
	BUG("object pool misused");
}

static struct cell_head *cell_head(const struct pool *p, const void *obj)
{
	return (struct cell_head *)((char *)(uintptr_t)obj - p->head);
}

static struct free_obj *link_of(const struct pool *p, void *obj)
{
	return p->head ? &cell_head(p, obj)->link : obj;
}

static void *object_of(const struct pool *p, struct free_obj *link)
{
	return (char *)link + p->head; /* the link is the first thing of a head, and of a cell */
}

static void push_free(struct pool *p, void *obj)
{
	struct free_obj *link = link_of(p, obj);

	if (p->head) {
		if (p->modes & POOL_POISON)
			memset(obj, POISON_BYTE, p->size);
		asan_close(obj, p->stride - p->head);
	}
	if (p->modes & POOL_GUARD) {
		link->next = NULL;
		if (p->free)
			p->free_tail->next = link;
		else
			p->free = link;
		p->free_tail = link;
	} else {
		link->next = p->free;
		p->free = link;
	}
	p->nfree++;
}

struct slab *pool_map(const struct pool *p, size_t count)
{
	const struct topology *topo = topology_current();
	struct slab *s;
	size_t bytes;

	if (__builtin_mul_overflow(count, p->stride, &bytes) || bytes > SIZE_MAX / 2)
		return NULL;
	bytes = ALIGN_UP(bytes + sizeof(*s), PAGE_BYTES);
	s = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
		 -1, 0);
	if (s == MAP_FAILED)
		return NULL;
	if (topo && p->node >= 0)
		(void)topology_bind_memory(topo, s, bytes, p->node); /* slower when it fails */
	s->bytes = bytes;
	s->count = count;
	return s;
}

void pool_unmap(struct slab *s)
{
	asan_open(s, s->bytes);
	munmap(s, s->bytes);
}

bool pool_add(struct pool *p, struct slab *s)
{
	char *cell;

	if (p->max && s->count > p->max - p->total)
		return false;
	s->next = p->slabs;
	p->slabs = s;
	/* Downwards, so that the stack hands them out upwards. */
	for (cell = (char *)(s + 1) + (s->count - 1) * p->stride; cell >= (char *)(s + 1);
	     cell -= p->stride) {
		char *obj = cell + p->head;

		if (p->head) {
			struct cell_head *h = cell_head(p, obj);

			h->pool = p;
			h->state = CELL_FREE;
			if (p->modes & POOL_GUARD)
				memcpy(obj + p->size, canary, sizeof(canary));
		}
		push_free(p, obj);
	}
	p->total += s->count;
	return true;
}

size_t pool_growth(const struct pool *p)
{
	return p->max ? MIN(p->growth, p->max - p->total) : p->growth;
}

static int pool_grow(struct pool *p, size_t count)
{
	struct slab *s;

	if (p->max)
		count = MIN(count, p->max - p->total);
	if (count == 0)
		return -ENOSPC;
	s = pool_map(p, count);
	if (!s)
		return -ENOMEM;
	BUG_ON(!pool_add(p, s));
	return 0;
}

struct pool *pool_create(const char *name, size_t size, size_t prealloc, size_t max, int node)
{
	struct pool *p;
	size_t align, body;
	int rc;

	pthread_once(&once, modes_from_environment);
	if (size == 0 || size > SIZE_MAX / 4 || (max && prealloc > max)) {
		errno = EINVAL;
		return NULL;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	align = size >= CACHE_LINE ? CACHE_LINE : 16;
	p->name = name;
	p->node = node;
	p->size = size;
	p->max = max;
	p->growable = max == 0 || prealloc < max;
	p->modes = new_modes;
	p->fail_every = new_fail_every;
	if (p->modes || HAVE_ASAN)
		p->head = sizeof(struct cell_head);
	body = size + (p->modes & POOL_GUARD ? sizeof(canary) : 0);
	p->stride = p->head + ALIGN_UP(body, p->head ? CACHE_LINE : align);
	p->growth = MAX((SLAB_BYTES - sizeof(struct slab)) / p->stride, 1u);
	if (prealloc && (rc = pool_grow(p, prealloc)) < 0) {
		free(p);
		errno = -rc;
		return NULL;
	}
	return p;
}

static void check_before_use(const struct pool *p, const uint8_t *obj)
{
	if (cell_head(p, obj)->state != CELL_FREE || cell_head(p, obj)->pool != p)
		pool_bug(p, obj, "its head was overwritten while it was free");
	if (p->modes & POOL_POISON)
		for (size_t i = 0; i < p->size; i++)
			if (obj[i] != POISON_BYTE)
				pool_bug(p, obj, "was written to after it was freed");
	if (p->modes & POOL_GUARD && memcmp(obj + p->size, canary, sizeof(canary)) != 0)
		pool_bug(p, obj, "was written past its end after it was freed");
}

static inline_always void *alloc(struct pool *p, bool may_grow)
{
	struct free_obj *link;
	void *obj;

	if (unlikely(p->fail_every) && p->growable && ++p->fail_count >= p->fail_every) {
		p->fail_count = 0;
		return NULL;
	}
	/* Guarded objects rest, unless that would make the pool fail. */
	if (unlikely(!p->free || (p->modes & POOL_GUARD && p->nfree <= POOL_GUARD_DELAY)) &&
	    (!may_grow || pool_grow(p, p->growth) < 0) && !p->free)
		return NULL;
	link = p->free;
	p->free = link->next;
	p->nfree--;
	p->in_use++;
	obj = object_of(p, link);
	if (p->head) {
		asan_open(obj, p->size + (p->modes & POOL_GUARD ? sizeof(canary) : 0));
		check_before_use(p, obj);
		cell_head(p, obj)->state = CELL_USED;
		asan_close((char *)obj + p->size, p->stride - p->head - p->size);
	}
	return obj;
}

void *pool_alloc(struct pool *p)
{
	return alloc(p, true);
}

void *pool_alloc_ready(struct pool *p)
{
	return alloc(p, false);
}

void pool_free(struct pool *p, void *obj)
{
	ASSERT(obj != NULL);
	if (p->head) {
		struct cell_head *h = cell_head(p, obj);

		if (h->pool != p)
			pool_bug(p, obj, "is none of this pool's, or what is before it overflowed");
		if (h->state != CELL_USED)
			pool_bug(p, obj, "was freed twice");
		asan_open((char *)obj + p->size, p->stride - p->head - p->size);
		if (p->modes & POOL_GUARD &&
		    memcmp((char *)obj + p->size, canary, sizeof(canary)) != 0)
			pool_bug(p, obj, "was written past its end");
		h->state = CELL_FREE;
	}
	ASSERT(p->in_use > 0);
	p->in_use--;
	push_free(p, obj);
}

size_t pool_in_use(const struct pool *p)
{
	return p->in_use;
}

size_t pool_ready(const struct pool *p)
{
	return p->nfree;
}

void pool_destroy(struct pool *p)
{
	struct slab *s, *next;

	if (!p)
		return;
	if (p->in_use) {
		log_error("pool %s: %zu of %zu objects were not freed", p->name, p->in_use,
			  p->total);
		BUG("pool destroyed while objects are in use");
	}
	for (s = p->slabs; s; s = next) {
		next = s->next;
		pool_unmap(s);
	}
	free(p);
}
