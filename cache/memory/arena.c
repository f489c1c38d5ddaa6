/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Arenas: one shared-memory file each; what lies where in it is in layout.h. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <isa-l/crc.h>
#include "cache/memory/arena.h"
#include "cache/memory/arena_prepare.h"
#include "cache/memory/layout.h"
#include "events/log.h"

#define ZERO_MIN KiB(64)
#define HUGE_MIN MiB(64) /* smaller ones gain little from huge pages */
#define PREPARE_FIRST MiB(128) /* of data before anybody uses it; the
			        * rest comes in the background */

struct arena_impl {
	struct arena pub;
	int fd;
	bool huge;
	char *file; /* to unlink */
	char name[64];
	struct arena_prepare prepare;
	struct list link; /* arenas */
};

/* Guards arena_by_id[] against other writers, both lists, and holds watchers' calls apart. */
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static struct list arenas = LIST_INIT(arenas);
static struct list watchers = LIST_INIT(watchers);

static struct arena_impl *impl(struct arena *a)
{
	return container_of(a, struct arena_impl, pub);
}

/* ---- what the machine bears ------------------------------------------------------------------ */

/* One number from a file; UINT64_MAX when there is none ("max", no file). */
static uint64_t read_number(const char *path)
{
	unsigned long long v;
	FILE *f = fopen(path, "re");
	int n;

	if (!f)
		return UINT64_MAX;
	n = fscanf(f, "%llu", &v);
	fclose(f);
	return n == 1 ? v : UINT64_MAX;
}

/* Room left below the limits of our cgroup and its ancestors (v2; none in other setups). */
static uint64_t cgroup_room(void)
{
	char line[512], path[768], *slash;
	uint64_t room = UINT64_MAX;
	FILE *f = fopen("/proc/self/cgroup", "re");

	if (!f)
		return room;
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, "0::", 3) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		for (;;) {
			uint64_t max, now;

			snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", line + 3);
			max = read_number(path);
			snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.current", line + 3);
			now = read_number(path);
			if (max != UINT64_MAX && now != UINT64_MAX)
				room = MIN(room, max > now ? max - now : 0);
			slash = strrchr(line + 3, '/');
			if (!slash || slash == line + 3)
				break;
			*slash = '\0';
		}
		break;
	}
	fclose(f);
	return room;
}

uint64_t arena_memory_available(void)
{
	char line[128];
	unsigned long long kib, avail = ~0ull, reserve;
	FILE *f = fopen("/proc/meminfo", "re");

	if (f) {
		while (fgets(line, sizeof(line), f))
			if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
				avail = kib << 10;
		fclose(f);
	}
	avail = MIN(avail, cgroup_room());
	/* The rest of the daemon and of the machine want to live too. */
	reserve = MIN(avail / 32, MiB(256));
	return avail - reserve;
}

/* ---- creation -------------------------------------------------------------------------------- */

static int open_file(struct arena_impl *im, const struct arena_conf *conf, bool huge)
{
	int fd;

	if (!conf->file)
		return memfd_create(im->name, MFD_CLOEXEC | (huge ? MFD_HUGETLB : 0));
	im->file = strdup(conf->file);
	if (!im->file)
		return -1;
	fd = open(conf->file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0) {
		free(im->file);
		im->file = NULL;
	}
	return fd;
}

static void arena_unmap(struct arena_impl *im)
{
	if (im->pub.map)
		munmap(im->pub.map, im->pub.map_len);
	im->pub.map = NULL;
	if (im->pub.memo)
		munmap(im->pub.memo, im->pub.nblocks * sizeof(*im->pub.memo));
	im->pub.memo = NULL;
	if (im->fd >= 0)
		close(im->fd);
	im->fd = -1;
	if (im->file) {
		unlink(im->file);
		free(im->file);
		im->file = NULL;
	}
}

/* Maps the file, on a huge page's boundary when @align: only there plain
 * pages can become huge ones. */
static void *map_aligned(size_t len, int flags, int fd, bool align)
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

/* 0 or -errno; nothing is left behind on failure. */
static int map_file(struct arena_impl *im, const struct arena_conf *conf, bool huge)
{
	int flags = MAP_SHARED | (conf->sparse ? MAP_NORESERVE : 0), err;
	void *p;

	im->fd = open_file(im, conf, huge);
	if (im->fd < 0)
		return -errno;
	if (ftruncate(im->fd, (off_t)im->pub.map_len) != 0)
		goto fail;
	p = map_aligned(im->pub.map_len, flags, im->fd, !huge);
	if (p == MAP_FAILED)
		goto fail;
	im->pub.map = p;
	im->huge = huge;
	p = mmap(NULL, im->pub.nblocks * sizeof(*im->pub.memo), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		goto fail;
	im->pub.memo = p;
	return 0;
fail:
	err = -errno;
	arena_unmap(im);
	return err;
}

/* Memory for the headers and the first data now, for the rest (and huge pages for all, unless they
 * are huge anyway) in the background. 0 or -errno. */
static int prefault(struct arena_impl *im, uint64_t data_off, uint64_t tail)
{
	struct arena_prepare *p = &im->prepare;

	p->name = im->name;
	p->map = im->pub.map;
	p->len = im->pub.map_len - tail;
	p->done = MIN((size_t)data_off + PREPARE_FIRST, p->len);
	p->huge = !im->huge && p->len >= HUGE_MIN && ((uintptr_t)p->map & (HUGE_PAGE - 1)) == 0;
	return arena_populate(p->map, 0, p->done);
}

/* Registry locked. */
static int arena_take_id(void)
{
	for (int i = 0; i < ARENA_MAX; i++)
		if (!arena_by_id[i])
			return i;
	return -1;
}

static struct arena *arena_refuse(struct arena_impl *im, int err)
{
	arena_prepare_stop(&im->prepare);
	arena_unmap(im);
	free(im);
	errno = err;
	return NULL;
}

/* ---- the superblock -------------------------------------------------------------------------- */

/* Where everything lies in the mapping. */
static struct arena_super lay_out(const struct arena_conf *conf)
{
	struct arena_super h = { .magic = ARENA_MAGIC,
				 .layout = ARENA_LAYOUT,
				 .node = (uint32_t)conf->node,
				 .block_shift = (uint32_t)__builtin_ctz(conf->block_size),
				 .nblocks = conf->nblocks,
				 .header_off = ARENA_SUPER_SIZE,
				 .extra = conf->extra,
				 .zero_len = MAX(ZERO_MIN, (uint64_t)conf->block_size) };
	uint64_t data_len = (uint64_t)conf->nblocks << h.block_shift;
	/* Data begins on a huge page's boundary; a small sparse arena need not care. */
	uint64_t align = conf->sparse && data_len < HUGE_PAGE ? 4096 : HUGE_PAGE;

	h.extra_off = h.header_off + (uint64_t)conf->nblocks * sizeof(struct block);
	h.zero_off = ALIGN_UP(h.extra_off + (uint64_t)conf->nblocks * conf->extra, 4096ull);
	h.data_off = ALIGN_UP(h.zero_off + h.zero_len, align);
	h.tail_off = ALIGN_UP(h.data_off + data_len, align);
	h.tail_len = ALIGN_UP((uint64_t)conf->tail, align);
	h.length = h.tail_off + h.tail_len;
	if (conf->says_len)
		memcpy(h.owner, conf->says, conf->says_len);
	return h;
}

/* @page is a whole page; its own field counts as 0. */
static uint32_t super_sum(const void *page)
{
	uint8_t copy[ARENA_SUPER_SIZE];

	memcpy(copy, page, sizeof(copy));
	((struct arena_super *)(void *)copy)->checksum = 0;
	return crc32_iscsi(copy, (int)sizeof(copy), ~0u);
}

static void write_super(struct arena *a, const struct arena_super *h)
{
	struct arena_super *to = a->map;

	*to = *h;
	to->checksum = super_sum(to);
}

const struct arena_super *arena_super(const struct arena *a)
{
	return a->map;
}

const char *arena_super_wrong(const void *page, uint64_t length)
{
	const struct arena_super *h = page;
	uint64_t n, data;

	if (length < ARENA_SUPER_SIZE || memcmp(h->magic, ARENA_MAGIC, sizeof(h->magic)))
		return "not an arena";
	if (h->layout != ARENA_LAYOUT)
		return "an arena of another version";
	if (h->checksum != super_sum(page))
		return "wrong checksum";
	n = h->nblocks;
	data = n << (h->block_shift & 31);
	if (!n || n == BLOCK_NONE || h->block_shift < 12 || h->block_shift > 20 || h->extra % 8 ||
	    h->length != length || h->header_off != ARENA_SUPER_SIZE ||
	    h->extra_off != h->header_off + n * sizeof(struct block) ||
	    h->zero_off < h->extra_off + n * h->extra || h->data_off < h->zero_off + h->zero_len ||
	    h->data_off > length || h->tail_off < h->data_off + data || h->tail_off > length ||
	    h->tail_len != length - h->tail_off)
		return "parts that overlap or are not there";
	return NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The memory of the arena, bound to its node. 0, or -errno after a line in the log. */
static int get_memory(struct arena_impl *im, const struct arena_conf *conf,
		      const struct arena_super *h)
{
	uint64_t data_len = (uint64_t)conf->nblocks << h->block_shift;
	uint64_t avail = arena_memory_available();
	struct arena *a = &im->pub;
	int err = -EINVAL;

	a->map_len = h->length;
	if (!conf->sparse && a->map_len > avail) {
		log_error("%s: %zu MiB of memory wanted, but only %llu MiB are to be had "
			  "(free memory and cgroup limit); a smaller size would fit",
			  im->name, a->map_len >> 20, (unsigned long long)(avail >> 20));
		return -ENOMEM;
	}
	if (!conf->sparse && !conf->file && data_len >= HUGE_PAGE)
		err = map_file(im, conf, true);
	if (err)
		err = map_file(im, conf, false);
	if (err) {
		log_error("%s: cannot get %zu MiB of %smemory%s%s: %s%s", im->name,
			  a->map_len >> 20, conf->sparse ? "virtual " : "",
			  conf->file ? " in " : "", conf->file ? conf->file : "", strerror(-err),
			  err == -ENOMEM ? " (see RLIMIT_AS, vm.max_map_count)" :
			  err == -EFBIG	 ? " (see RLIMIT_FSIZE)" :
			  err == -EMFILE ? " (see RLIMIT_NOFILE)" :
					   "");
		return err;
	}
	if (!im->huge && data_len >= HUGE_PAGE)
		madvise(a->map, a->map_len, MADV_HUGEPAGE); /* a wish; plain pages serve too */
	madvise(a->map, a->map_len, MADV_DONTFORK);
	/* Users' data is not for core files; the headers are (tools/gdb/tgtd.py reads them). */
	madvise((uint8_t *)a->map + h->data_off, h->tail_off - h->data_off, MADV_DONTDUMP);
	if (conf->topo && conf->node >= 0) {
		err = topology_bind_memory(conf->topo, a->map, a->map_len, conf->node);
		if (!err)
			err = topology_bind_memory(conf->topo, a->memo,
						   a->nblocks * sizeof(*a->memo), conf->node);
		if (err)
			log_warn("%s: cannot bind memory to node %d: %s", im->name, conf->node,
				 strerror(-err));
	}
	im->prepare.os_node = mem_where_node(conf->topo, conf->node);
	err = conf->prefault && !conf->sparse ? prefault(im, h->data_off, h->tail_len) : 0;
	if (err)
		log_error("%s: memory ran out while preparing %zu MiB: %s", im->name,
			  a->map_len >> 20, strerror(-err));
	return err;
}

/* It is there for others from here on. 0, or -ENOSPC after a line in the log. */
static int publish(struct arena_impl *im)
{
	struct arena *a = &im->pub;
	struct arena_watcher *w;
	int id;

	pthread_mutex_lock(&registry);
	id = arena_take_id();
	if (id < 0) {
		pthread_mutex_unlock(&registry);
		log_error("%s: all %d memory arenas are in use", im->name, ARENA_MAX);
		return -ENOSPC;
	}
	a->id = (uint16_t)id;
	if (!a->sparse)
		for (uint32_t i = 0; i < a->nblocks; i++)
			arena_block_init(a, i);
	arena_by_id[id] = a;
	list_add_tail(&arenas, &im->link);
	log_debug("%s: %zu MiB, %u blocks of %u B, node %d%s", im->name, a->map_len >> 20,
		  a->nblocks, 1u << a->block_shift, a->node, im->huge ? ", huge pages" : "");
	list_for_each(w, &watchers, link)
		w->created(w, a);
	pthread_mutex_unlock(&registry);
	return 0;
}

struct arena *arena_create(const struct arena_conf *conf)
{
	struct arena_impl *im = calloc(1, sizeof(*im));
	struct arena_super h;
	struct arena *a;
	int err;

	if (!im)
		return NULL;
	BUG_ON(!conf->nblocks || conf->nblocks == BLOCK_NONE || conf->block_size < 4096 ||
	       conf->block_size > MiB(1) || (conf->block_size & (conf->block_size - 1)) ||
	       conf->says_len > ARENA_OWNER_MAX);
	h = lay_out(conf);
	im->fd = -1;
	pthread_mutex_init(&im->prepare.lock, NULL);
	snprintf(im->name, sizeof(im->name), "%s", conf->name ? conf->name : "arena");
	list_init(&im->link);
	a = &im->pub;
	a->node = conf->node;
	a->nblocks = conf->nblocks;
	a->block_shift = h.block_shift;
	a->sparse = conf->sparse;
	a->release = conf->release;
	a->owner = conf->owner;

	err = get_memory(im, conf, &h);
	if (err)
		return arena_refuse(im, -err);
	a->hdr = (struct block *)((uint8_t *)a->map + h.header_off);
	a->extra = conf->extra ? (uint8_t *)a->map + h.extra_off : NULL;
	a->zero = (uint8_t *)a->map + h.zero_off;
	a->zero_len = (uint32_t)h.zero_len;
	a->data = (uint8_t *)a->map + h.data_off;
	a->tail = h.tail_len ? (uint8_t *)a->map + h.tail_off : NULL;
	write_super(a, &h);
	err = publish(im);
	if (err)
		return arena_refuse(im, -err);
	/* After the watchers: what they have pinned has its memory, in
	 * the pages it has to stay in. */
	if (conf->prefault && !conf->sparse &&
	    (im->prepare.huge || im->prepare.done < im->prepare.len))
		arena_prepare_start(&im->prepare);
	else if (conf->prefault && !conf->sparse)
		arena_prepare_look(&im->prepare);
	return a;
}

bool arena_ready(const struct arena *a)
{
	const struct arena_prepare *p = &container_of(a, struct arena_impl, pub)->prepare;

	return !p->running || atomic_load(&p->ready);
}

void arena_where(struct arena *a, struct mem_where *w)
{
	arena_prepare_where(&impl(a)->prepare, w);
}

void arena_destroy(struct arena *a)
{
	struct arena_impl *im = impl(a);
	struct arena_watcher *w;

	pthread_mutex_lock(&registry);
	BUG_ON(arena_by_id[a->id] != a);
	list_for_each(w, &watchers, link)
		if (w->destroying)
			w->destroying(w, a);
	arena_by_id[a->id] = NULL;
	list_del(&im->link);
	pthread_mutex_unlock(&registry);
	arena_prepare_stop(&im->prepare);
	arena_unmap(im);
	free(im);
}

/* Between looking at ->pinned and having punched nobody pins. */
static pthread_rwlock_t pinning = PTHREAD_RWLOCK_INITIALIZER;

void arena_pin(struct arena *a)
{
	if (a->pinned)
		return;
	pthread_rwlock_wrlock(&pinning);
	atomic_store(&a->pinned, true);
	pthread_rwlock_unlock(&pinning);
}

static bool punch(struct arena *a, off_t off, size_t len)
{
	bool done;

	pthread_rwlock_rdlock(&pinning);
	done = !a->pinned &&
	       fallocate(impl(a)->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off,
			 (off_t)len) == 0 &&
	       !impl(a)->huge;
	pthread_rwlock_unlock(&pinning);
	return done;
}

bool arena_join(struct arena *a, uint32_t first, uint32_t n, const _Atomic bool *stop)
{
	uint8_t *from = (uint8_t *)ALIGN_UP((uintptr_t)a->data + ((size_t)first << a->block_shift),
					    (uintptr_t)HUGE_PAGE);
	uint8_t *end = a->data + ((size_t)(first + n) << a->block_shift);
	unsigned joined = 0, failed = 0, row = 0;

	if (impl(a)->huge || a->pinned)
		return false;
	for (; from + HUGE_PAGE <= end && !atomic_load(stop); from += HUGE_PAGE) {
		if (arena_join_one(from)) {
			joined++;
			row = 0;
		} else { /* a page in use elsewhere just now, or no huge page to be had */
			failed++;
			if (++row == COLLAPSE_TRIES)
				return false;
		}
	}
	return joined >= failed;
}

void arena_punch(struct arena *a, uint32_t first, uint32_t n)
{
	uint8_t *p = a->data + ((size_t)first << a->block_shift);
	size_t len = (size_t)n << a->block_shift;
	off_t off = p - (uint8_t *)a->map;

	BUG_ON(first > a->nblocks || n > a->nblocks - first);
	if (!n)
		return;
	if (punch(a, off, len))
		return;
	/* Pinned, or a part of a huge page that the kernel keeps whole: zeros by hand. */
	memset(p, 0, len);
}

/* ---- watchers -------------------------------------------------------------------------------- */

void arena_watch(struct arena_watcher *w)
{
	struct arena_impl *im;

	pthread_mutex_lock(&registry);
	list_add_tail(&watchers, &w->link);
	list_for_each(im, &arenas, link)
		w->created(w, &im->pub);
	pthread_mutex_unlock(&registry);
}

void arena_unwatch(struct arena_watcher *w)
{
	pthread_mutex_lock(&registry);
	list_del(&w->link);
	pthread_mutex_unlock(&registry);
}
