/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Arenas: one shared-memory file each, laid out as
 *
 *     | file header | block headers ... | zeros | data ... |
 *     0             4 KiB               |       a multiple of 2 MiB (of 4 KiB in a sparse one)
 *
 * Everything in the file is position-independent: a later process may map it elsewhere.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cache/arena.h"
#include "events/clock.h"
#include "events/log.h"

#define ARENA_MAGIC "tgtarena"
#define ARENA_VERSION 1
#define HUGE_PAGE MiB(2)
#define ZERO_MIN KiB(64)

/* First page of the file. All offsets from the file's start. */
struct arena_file {
	char magic[8];
	uint32_t version, node, block_shift, nblocks;
	uint64_t header_off, zero_off, zero_len, data_off, length;
};

struct arena_impl {
	struct arena pub;
	int fd;
	bool huge;
	char *file; /* to unlink */
	char name[64];
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

/* ---- what the machine bears -------------------------------------------------------------------- */

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

/* ---- creation ---------------------------------------------------------------------------------- */

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

static void unmap(struct arena_impl *im)
{
	if (im->pub.map)
		munmap(im->pub.map, im->pub.map_len);
	im->pub.map = NULL;
	if (im->fd >= 0)
		close(im->fd);
	im->fd = -1;
	if (im->file) {
		unlink(im->file);
		free(im->file);
		im->file = NULL;
	}
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
	p = mmap(NULL, im->pub.map_len, PROT_READ | PROT_WRITE, flags, im->fd, 0);
	if (p == MAP_FAILED)
		goto fail;
	im->pub.map = p;
	im->huge = huge;
	return 0;
fail:
	err = -errno;
	unmap(im);
	return err;
}

/* Touches all pages, on the node they are bound to. 0 or -errno. */
static int prefault(struct arena_impl *im)
{
	const size_t piece = MiB(64);
	uint64_t told = clock_now_ns();
	uint8_t *map = im->pub.map;

	for (size_t at = 0; at < im->pub.map_len; at += piece) {
		size_t n = MIN(piece, im->pub.map_len - at);

		/* Unlike touching, this fails with an error where memory has run out. */
		if (madvise(map + at, n, MADV_POPULATE_WRITE) != 0) {
			if (errno != EINVAL)
				return -errno;
			for (size_t i = 0; i < n; i += 4096) /* kernels before 5.14 */
				__atomic_fetch_or(map + at + i, 0, __ATOMIC_RELAXED);
		}
		if (clock_now_ns() - told > 2 * NSEC_PER_SEC) {
			told = clock_now_ns();
			log_notice("%s: %zu of %zu MiB of memory prepared", im->name,
				   (at + n) >> 20, im->pub.map_len >> 20);
		}
	}
	return 0;
}

/* Registry locked. */
static int take_id(void)
{
	for (int i = 0; i < ARENA_MAX; i++)
		if (!arena_by_id[i])
			return i;
	return -1;
}

static struct arena *refuse(struct arena_impl *im, int err)
{
	unmap(im);
	free(im);
	errno = err;
	return NULL;
}

struct arena *arena_create(const struct arena_conf *conf)
{
	struct arena_impl *im = calloc(1, sizeof(*im));
	struct arena_file *head;
	struct arena *a;
	uint64_t header_off = 4096, zero_off, zero_len, data_off, data_len, avail, align;
	struct arena_watcher *w;
	int err = -EINVAL, id;

	if (!im)
		return NULL;
	BUG_ON(!conf->nblocks || conf->nblocks == BUF_NONE || conf->block_size < 4096 ||
	       conf->block_size > MiB(1) || (conf->block_size & (conf->block_size - 1)));
	im->fd = -1;
	snprintf(im->name, sizeof(im->name), "%s", conf->name ? conf->name : "arena");
	list_init(&im->link);
	a = &im->pub;
	a->node = conf->node;
	a->nblocks = conf->nblocks;
	a->block_shift = (uint32_t)__builtin_ctz(conf->block_size);
	a->release = conf->release;
	a->owner = conf->owner;

	/* Data begins on a huge page's boundary; a small sparse arena need not care. */
	align = conf->sparse && (uint64_t)conf->nblocks << a->block_shift < HUGE_PAGE ? 4096 : HUGE_PAGE;
	zero_len = MAX(ZERO_MIN, (uint64_t)conf->block_size);
	zero_off = ALIGN_UP(header_off + (uint64_t)conf->nblocks * sizeof(struct buf), 4096ull);
	data_off = ALIGN_UP(zero_off + zero_len, align);
	data_len = (uint64_t)conf->nblocks << a->block_shift;
	a->map_len = ALIGN_UP(data_off + data_len, align);

	avail = arena_memory_available();
	if (!conf->sparse && a->map_len > avail) {
		log_error("%s: %zu MiB of memory wanted, but only %llu MiB are to be had "
			  "(free memory and cgroup limit); a smaller size would fit",
			  im->name, a->map_len >> 20, (unsigned long long)(avail >> 20));
		return refuse(im, ENOMEM);
	}
	if (!conf->sparse && !conf->file && data_len >= HUGE_PAGE)
		err = map_file(im, conf, true);
	if (err)
		err = map_file(im, conf, false);
	if (err) {
		log_error("%s: cannot get %zu MiB of %smemory%s%s: %s%s", im->name, a->map_len >> 20,
			  conf->sparse ? "virtual " : "", conf->file ? " in " : "",
			  conf->file ? conf->file : "", strerror(-err),
			  err == -ENOMEM ? " (see RLIMIT_AS, vm.max_map_count)" :
			  err == -EFBIG	 ? " (see RLIMIT_FSIZE)" :
			  err == -EMFILE ? " (see RLIMIT_NOFILE)" :
					   "");
		return refuse(im, -err);
	}
	if (!im->huge && data_len >= HUGE_PAGE)
		madvise(a->map, a->map_len, MADV_HUGEPAGE); /* a wish; plain pages serve too */
	madvise(a->map, a->map_len, MADV_DONTFORK);
	madvise(a->map, a->map_len, MADV_DONTDUMP); /* users' data: not for core files */
	if (conf->topo && conf->node >= 0) {
		err = topology_bind_memory(conf->topo, a->map, a->map_len, conf->node);
		if (err)
			log_warn("%s: cannot bind memory to node %d: %s", im->name, conf->node,
				 strerror(-err));
	}
	if (conf->prefault && !conf->sparse) {
		err = prefault(im);
		if (err) {
			log_error("%s: memory ran out while preparing %zu MiB: %s", im->name,
				  a->map_len >> 20, strerror(-err));
			return refuse(im, -err);
		}
	}

	a->hdr = (struct buf *)((uint8_t *)a->map + header_off);
	a->zero = (uint8_t *)a->map + zero_off;
	a->zero_len = (uint32_t)zero_len;
	a->data = (uint8_t *)a->map + data_off;
	head = a->map;
	*head = (struct arena_file){ .magic = ARENA_MAGIC,
				     .version = ARENA_VERSION,
				     .node = (uint32_t)conf->node,
				     .block_shift = a->block_shift,
				     .nblocks = a->nblocks,
				     .header_off = header_off,
				     .zero_off = zero_off,
				     .zero_len = zero_len,
				     .data_off = data_off,
				     .length = a->map_len };

	pthread_mutex_lock(&registry);
	id = take_id();
	if (id < 0) {
		pthread_mutex_unlock(&registry);
		log_error("%s: all %d memory arenas are in use", im->name, ARENA_MAX);
		return refuse(im, ENOSPC);
	}
	a->id = (uint16_t)id;
	if (!conf->sparse)
		for (uint32_t i = 0; i < a->nblocks; i++)
			arena_buf_init(a, i);
	arena_by_id[id] = a;
	list_add_tail(&arenas, &im->link);
	log_debug("%s: %zu MiB, %u blocks of %u B, node %d%s", im->name, a->map_len >> 20, a->nblocks,
		  conf->block_size, a->node, im->huge ? ", huge pages" : "");
	list_for_each(w, &watchers, link)
		w->created(w, a);
	pthread_mutex_unlock(&registry);
	return a;
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
	unmap(im);
	free(im);
}

void arena_punch(struct arena *a, uint32_t first, uint32_t n)
{
	uint8_t *p = a->data + ((size_t)first << a->block_shift);
	size_t len = (size_t)n << a->block_shift;
	off_t off = p - (uint8_t *)a->map;

	BUG_ON(first > a->nblocks || n > a->nblocks - first);
	if (!n)
		return;
	if (!a->pinned && fallocate(impl(a)->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off,
				    (off_t)len) == 0 && !impl(a)->huge)
		return;
	/* Pinned, or a part of a huge page that the kernel keeps whole: zeros by hand. */
	memset(p, 0, len);
}

/* ---- watchers ---------------------------------------------------------------------------------- */

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
