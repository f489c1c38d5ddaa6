/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Arenas: one shared-memory file each; what lies where in it is in layout.h. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "cache/memory/arena_impl.h"
#include "events/log.h"

#define HUGE_MIN MiB(64) /* smaller ones gain little from huge pages */
#define PREPARE_FIRST MiB(128) /* of data before anybody uses it; the
			        * rest comes in the background */

/* Guards arena_by_id[] against other writers, both lists, and holds watchers' calls apart. */
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static struct list arenas = LIST_INIT(arenas);
static struct list watchers = LIST_INIT(watchers);

static struct arena_impl *impl(struct arena *a)
{
	return container_of(a, struct arena_impl, pub);
}

/* ---- creation -------------------------------------------------------------------------------- */

static int open_file(struct arena_impl *im, const struct arena_conf *conf, bool huge)
{
	int fd;

	if (!conf->file)
		return memfd_create(im->name, MFD_CLOEXEC | MFD_ALLOW_SEALING |
							      (huge ? MFD_HUGETLB : 0));
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

/* A mapping of its own goes. */
static void unmap(struct arena_impl *im, void *at, size_t len)
{
	if (!at)
		return;
	munmap(at, len);
	mem_locks_forget(im->prepare.locks, at, ALIGN_UP(len, (size_t)4096));
}

static void arena_unmap(struct arena_impl *im)
{
	unmap(im, im->pub.map, im->pub.map_len);
	im->pub.map = NULL;
	unmap(im, im->pub.memo, im->pub.room * sizeof(*im->pub.memo));
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

int arena_map(struct arena_impl *im, bool sparse)
{
	const int flags = MAP_SHARED | (sparse ? MAP_NORESERVE : 0);
	void *p = map_aligned(im->pub.map_len, flags, im->fd, !im->huge);

	if (p == MAP_FAILED)
		return -errno;
	im->pub.map = p;
	p = mmap(NULL, im->pub.room * sizeof(*im->pub.memo), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	im->pub.memo = p;
	return 0;
}

/* 0 or -errno; nothing is left behind on failure. */
static int map_file(struct arena_impl *im, const struct arena_conf *conf, bool huge)
{
	int err = 0;

	im->huge = huge;
	im->fd = open_file(im, conf, huge);
	if (im->fd < 0)
		return -errno;
	if (ftruncate(im->fd, (off_t)im->pub.map_len) != 0)
		err = -errno;
	/* Who finds it later may trust its length. A named file has no seals. */
	im->sealed = !err && !conf->file &&
		     fcntl(im->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
	if (!err)
		err = arena_map(im, conf->sparse);
	if (err)
		arena_unmap(im);
	return err;
}

/* The pages of bytes [from, to) of the file. */
struct arena_range arena_pages(const struct arena *a, uint64_t from, uint64_t to)
{
	const uint64_t start = ALIGN_DOWN(from, 4096ull), end = ALIGN_UP(to, 4096ull);

	return (struct arena_range){ (uint8_t *)a->map + start, (size_t)(end - start) };
}

/* Of a private mapping. */
static struct arena_range pages_of(const void *at, size_t len)
{
	return (struct arena_range){ (uint8_t *)(uintptr_t)at, ALIGN_UP(len, (size_t)4096) };
}

void arena_touched_later(struct arena_impl *im, const struct arena_super *h, uint32_t blocks)
{
	const struct arena *a = &im->pub;

	im->prepare.touched[0] = pages_of(a->memo, blocks * sizeof(*a->memo));
	im->prepare.touched[1] = arena_pages(a, h->tail_off, h->tail_off + h->tail_len);
}

/* All but the data, and the data, which comes in parts: what of each has memory from the start. */
static int find_fills(struct arena_impl *im, const struct arena_conf *conf,
		      const struct arena_super *h)
{
	struct arena_prepare *p = &im->prepare;
	const uint32_t n = im->pub.nblocks, parts = im->huge ? 1 : MAX(conf->parts, 1u),
		       each = n / parts;
	const uint64_t first = MAX((uint64_t)PREPARE_FIRST / parts,
				   (uint64_t)conf->first << h->block_shift);
	struct arena_fill *f = calloc(p->n + parts, sizeof(*f));

	if (!f)
		return -ENOMEM;
	BUG_ON(n % parts);
	im->fill = p->fill = f;
	im->parts = im->huge ? 0 : parts;
	im->data_fill = p->n;
	for (unsigned i = 0; i < p->n; i++, f++) {
		*f = (struct arena_fill){ .at = p->range[i].at, .len = p->range[i].len };
		if (i == p->n - 1) /* up to where data begins */
			f->len = (size_t)(im->pub.data - f->at);
		f->done = f->len;
	}
	for (uint32_t i = 0; i < parts; i++, f++) {
		f->at = im->pub.data + ((size_t)i * each << h->block_shift);
		f->len = (size_t)each << h->block_shift;
		if (i == parts - 1) /* and what is behind it, in what is to have memory */
			f->len = (size_t)(p->range[p->n - 1].at + p->range[p->n - 1].len - f->at);
		f->done = conf->at_once ? f->len : MIN(f->len, (size_t)ALIGN_DOWN(first, 4096ull));
	}
	p->nfill = p->n + parts;
	return 0;
}

/* What of the file is to have memory: all but the tail, and the room. */
static int find_ranges(struct arena_impl *im, const struct arena_conf *conf,
		       const struct arena_super *h)
{
	const struct arena *a = &im->pub;
	const uint64_t n = a->nblocks;
	struct arena_prepare *p = &im->prepare;

	im->range = calloc(3, sizeof(*im->range));
	if (!im->range)
		return -ENOMEM;
	p->range = im->range;
	if (a->room == a->nblocks) {
		p->n = 1;
		p->range[0] = arena_pages(a, 0, h->tail_off);
	} else {
		p->n = 3;
		p->range[0] = arena_pages(a, 0, h->header_off + n * sizeof(struct block));
		p->range[1] = arena_pages(a, h->extra_off, h->extra_off + n * h->extra);
		p->range[2] = arena_pages(a, h->zero_off, h->data_off + (n << h->block_shift));
	}
	for (unsigned i = 0; i < p->n; i++)
		p->len += p->range[i].len;
	arena_touched_later(im, h, a->nblocks);
	return find_fills(im, conf, h);
}

/* Memory for the headers and the first data now, for the rest (and huge pages for all, unless they
 * are huge anyway) in the background. 0 or -errno. */
static int prefault(struct arena_impl *im)
{
	int err = 0;

	for (unsigned i = 0; i < im->prepare.nfill && !err; i++)
		err = mem_populate(im->fill[i].at, 0, im->fill[i].done);
	return err;
}

/* Registry locked. */
static int arena_take_id(void)
{
	for (int i = 0; i < ARENA_MAX; i++)
		if (!arena_by_id[i])
			return i;
	return -1;
}

struct arena *arena_refuse(struct arena_impl *im, int err)
{
	arena_prepare_stop(&im->prepare);
	arena_unmap(im);
	free(im->pub.present);
	free(im->range);
	free(im->fill);
	free(im);
	errno = err;
	return NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Maps the file, with room for @room blocks. 0 or -errno. */
static int map_room(struct arena_impl *im, const struct arena_conf *conf, uint32_t room,
		    bool huge, struct arena_super *h)
{
	*h = arena_lay_out(conf, room);
	im->pub.room = room;
	im->pub.map_len = h->length;
	return map_file(im, conf, huge);
}

void arena_place(struct arena_impl *im, const struct arena_conf *conf, const struct arena_super *h)
{
	struct arena *a = &im->pub;
	uint8_t *map = a->map;
	int err;

	a->hdr = (struct block *)(map + h->header_off);
	a->extra = h->extra ? map + h->extra_off : NULL;
	a->zero = map + h->zero_off;
	a->zero_len = (uint32_t)h->zero_len;
	a->data = map + h->data_off;
	a->tail = h->tail_len ? map + h->tail_off : NULL;
	if (!im->huge && (uint64_t)a->nblocks << a->block_shift >= HUGE_PAGE)
		madvise(map, a->map_len, MADV_HUGEPAGE); /* a wish; plain pages serve too */
	madvise(map, a->map_len, MADV_DONTFORK);
	/* Users' data is not for core files; the headers are (tools/gdb/tgtd.py reads them). */
	madvise(map + h->data_off, h->tail_off - h->data_off, MADV_DONTDUMP);
	if (conf->topo && conf->node >= 0) {
		err = topology_bind_memory(conf->topo, map, a->map_len, conf->node);
		if (!err)
			err = topology_bind_memory(conf->topo, a->memo,
						   a->room * sizeof(*a->memo), conf->node);
		if (err)
			log_warn("%s: cannot bind memory to node %d: %s", im->name, conf->node,
				 strerror(-err));
	}
	im->prepare.os_node = mem_where_node(conf->topo, conf->node);
	im->prepare.locks = conf->locks;
}

/* The memory of the arena, bound to its node. 0, or -errno after a line in the log. */
static int get_memory(struct arena_impl *im, const struct arena_conf *conf, struct arena_super *h)
{
	uint64_t data_len = (uint64_t)conf->nblocks * conf->block_size;
	uint64_t avail = arena_memory_available();
	struct arena *a = &im->pub;
	int err = -EINVAL;

	*h = arena_lay_out(conf, conf->nblocks);
	a->map_len = h->length;
	if (!conf->sparse && a->map_len > avail) {
		log_error("%s: %zu MiB of memory wanted, but only %llu MiB are to be had "
			  "(free memory and cgroup limit); a smaller size would fit",
			  im->name, a->map_len >> 20, (unsigned long long)(avail >> 20));
		return -ENOMEM;
	}
	if (!conf->sparse && !conf->file && data_len >= HUGE_PAGE)
		err = map_room(im, conf, conf->nblocks, true, h);
	if (err && conf->room > conf->nblocks)
		err = map_room(im, conf, conf->room, false, h);
	if (err)
		err = map_room(im, conf, conf->nblocks, false, h);
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
	arena_place(im, conf, h);
	if (conf->prefault && !conf->sparse) {
		err = find_ranges(im, conf, h);
		err = err ? err : prefault(im);
	}
	if (err)
		log_error("%s: memory ran out while preparing %zu MiB: %s", im->name,
			  a->map_len >> 20, strerror(-err));
	return err;
}

int arena_publish(struct arena_impl *im)
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
	if (!a->sparse && !im->found)
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

/* The part of [from, end) that lies in one piece: its number; *n: how many blocks. */
static uint32_t next_piece(const struct arena *a, uint32_t from, uint32_t end, uint32_t *n)
{
	const uint32_t each = (uint32_t)(a->piece >> a->block_shift), piece = from / each;

	*n = MIN(end, (piece + 1) * each) - from;
	return piece;
}

int arena_count_pieces(struct arena *a, uint32_t piece, const struct arena_extent *there,
		       uint32_t n)
{
	const uint32_t each = piece >> a->block_shift;

	ASSERT(each && !(piece & (piece - 1)));
	a->piece = piece;
	a->npieces = (uint32_t)DIV_ROUND_UP(a->room, each);
	a->present = calloc(a->npieces, sizeof(*a->present));
	if (!a->present)
		return -ENOMEM;
	for (uint32_t k = 0; k < n; k++)
		for (uint32_t i = there[k].first, end = i + there[k].n, len; i < end; i += len)
			a->present[next_piece(a, i, end, &len)] += len;
	return 0;
}

struct arena_impl *arena_begin(const struct arena_conf *conf)
{
	struct arena_impl *im = calloc(1, sizeof(*im));
	struct arena *a;

	if (!im)
		return NULL;
	BUG_ON(!conf->nblocks || conf->nblocks == BLOCK_NONE || conf->block_size < 4096 ||
	       conf->block_size > MiB(1) || (conf->block_size & (conf->block_size - 1)) ||
	       conf->says_len > ARENA_OWNER_MAX);
	im->fd = -1;
	pthread_mutex_init(&im->prepare.lock, NULL);
	snprintf(im->name, sizeof(im->name), "%s", conf->name ? conf->name : "arena");
	im->prepare.name = im->name;
	list_init(&im->link);
	a = &im->pub;
	a->node = conf->node;
	a->nblocks = conf->nblocks;
	a->block_shift = (uint32_t)__builtin_ctz(conf->block_size);
	a->sparse = conf->sparse;
	a->release = conf->release;
	a->owner = conf->owner;
	return im;
}

/* After the watchers: what they have pinned has its memory, in the pages it has to stay in. */
void arena_prepare_rest(struct arena_impl *im, const struct arena_conf *conf)
{
	struct arena_prepare *p = &im->prepare;
	bool more = false;

	if (!conf->prefault || conf->sparse)
		return;
	for (unsigned i = 0; i < p->n; i++)
		mem_locks_want(p->locks, p->range[i].at, p->range[i].len);
	for (unsigned i = 0; i < p->nfill; i++)
		more |= p->fill[i].done < p->fill[i].len;
	p->waited = more && conf->parts;
	p->huge = !conf->lazy && !im->huge && p->len >= HUGE_MIN &&
		  ((uintptr_t)im->pub.map & (HUGE_PAGE - 1)) == 0;
	if (p->huge || p->locks || more)
		arena_prepare_start(p);
	else
		arena_prepare_look(p);
}

struct arena *arena_create(const struct arena_conf *conf)
{
	const struct arena_extent all = { 0, conf->nblocks };
	struct arena_impl *im = arena_begin(conf);
	struct arena_super h;
	struct arena *a;
	int err;

	if (!im)
		return NULL;
	a = &im->pub;
	err = get_memory(im, conf, &h);
	if (err)
		return arena_refuse(im, -err);
	arena_write_super(a, &h);
	err = conf->piece ? arena_count_pieces(a, conf->piece, &all, 1) : 0;
	err = err ? err : arena_publish(im);
	if (err)
		return arena_refuse(im, -err);
	arena_prepare_rest(im, conf);
	return a;
}

int arena_fd(const struct arena *a)
{
	const struct arena_impl *im = container_of(a, struct arena_impl, pub);

	return im->sealed && !im->huge ? im->fd : -1;
}

bool arena_ready(const struct arena *a)
{
	const struct arena_prepare *p = &container_of(a, struct arena_impl, pub)->prepare;

	return !p->running || atomic_load(&p->ready);
}

int arena_failed(const struct arena *a)
{
	return atomic_load(&container_of(a, struct arena_impl, pub)->prepare.failed);
}

uint32_t arena_there(const struct arena *a, uint32_t part)
{
	const struct arena_impl *im = container_of(a, struct arena_impl, pub);
	const uint32_t each = a->nblocks / MAX(im->parts, 1u);

	if (!im->parts)
		return a->nblocks;
	ASSERT(part < im->parts);
	return MIN(each, (uint32_t)(atomic_load(&im->fill[im->data_fill + part].done) >>
				    a->block_shift));
}

uint32_t arena_backed(const struct arena *a, uint32_t first, uint32_t n)
{
	const struct arena_impl *im = container_of(a, struct arena_impl, pub);
	const off_t from = (a->data - (uint8_t *)a->map) + ((off_t)first << a->block_shift);
	const off_t hole = n ? lseek(im->fd, from, SEEK_HOLE) : -1;

	if (hole < from)
		return n;
	return (uint32_t)MIN((uint64_t)(hole - from) >> a->block_shift, (uint64_t)n);
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
	free(a->present);
	free(im->range);
	free(im->fill);
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

void arena_let_go(struct arena *a, uint32_t first, uint32_t n)
{
	BUG_ON(first > a->room || n > a->room - first);
	if (n)
		(void)punch(a, (a->data - (uint8_t *)a->map) + ((off_t)first << a->block_shift),
			    (size_t)n << a->block_shift);
}

/* ---- another size ---------------------------------------------------------------------------- */

void arena_settle(struct arena *a)
{
	struct arena_prepare *p = &impl(a)->prepare;
	const bool was = p->running;

	while (p->running && !atomic_load(&p->ready))
		nanosleep(&(struct timespec){ .tv_nsec = 5 * (long)NSEC_PER_MSEC }, NULL);
	arena_prepare_stop(p);
	/* What it had not come to: again from the beginning, which costs little. */
	if (was && !p->locked)
		arena_prepare_lock_all(p, true);
}

void arena_look(struct arena *a)
{
	struct arena_prepare *p = &impl(a)->prepare;
	struct mem_where w = { 0 };

	if (p->n > 1) {
		mem_where_nodes(&w, p->range[0].at, p->range[0].len, p->os_node);
		mem_where_nodes(&w, p->range[1].at, p->range[1].len, p->os_node);
	}
	for (uint32_t i = 0, end; i < a->npieces; i = end + 1) {
		for (end = i; end < a->npieces && a->present[end]; end++)
			;
		if (end > i)
			mem_where_nodes(&w, a->data + i * a->piece, (end - i) * a->piece,
					p->os_node);
	}
	mem_where_huge(&w, a->map, a->map_len);
	pthread_mutex_lock(&p->lock);
	p->where = w;
	pthread_mutex_unlock(&p->lock);
}

/* What belongs to blocks [from, from + n): headers, maps, data, memos. Whole pages, with (@out) or
 * without those that others have a part in. */
#define OF_BLOCKS 4
static void parts_of(const struct arena *a, uint32_t from, uint32_t n, bool out,
		     struct arena_range r[OF_BLOCKS])
{
	const struct arena_super *h = a->map;
	const struct {
		const void *at;
		size_t each;
	} part[OF_BLOCKS] = { { a->hdr, sizeof(*a->hdr) },
			      { (const uint8_t *)a->map + h->extra_off, h->extra },
			      { a->data, (size_t)1 << a->block_shift },
			      { a->memo, sizeof(*a->memo) } };

	for (unsigned i = 0; i < OF_BLOCKS; i++) {
		uintptr_t start = (uintptr_t)part[i].at + from * part[i].each;
		uintptr_t end = start + n * part[i].each;

		start = out ? ALIGN_DOWN(start, (uintptr_t)4096) :
			      ALIGN_UP(start, (uintptr_t)4096);
		end = out ? ALIGN_UP(end, (uintptr_t)4096) : ALIGN_DOWN(end, (uintptr_t)4096);
		r[i] = (struct arena_range){ (uint8_t *)start, end > start ? end - start : 0 };
	}
}

void arena_lock(struct arena *a, uint32_t first, uint32_t n)
{
	struct arena_prepare *p = &impl(a)->prepare;
	struct arena_range r[OF_BLOCKS];

	BUG_ON(first > a->room || n > a->room - first || p->running);
	parts_of(a, first, n, true, r);
	for (unsigned i = 0; i < OF_BLOCKS - 1; i++) /* memos are, as they are touched */
		arena_prepare_lock(p, r[i].at, r[i].len);
	arena_prepare_lock(p, a->map, (size_t)((uint8_t *)a->hdr - (uint8_t *)a->map));
	arena_prepare_lock(p, a->zero, (size_t)(a->data - a->zero));
}

/* Their memory is the system's again. */
static void return_memory(struct arena_impl *im, const struct arena_range *r)
{
	for (size_t done = 0, n; done < r->len; done += n) {
		uint8_t *at = r->at + done;

		n = mem_step(at, r->len - done);
		mem_locks_drop(im->prepare.locks, at, n);
		if (fallocate(im->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			      at - (uint8_t *)im->pub.map, (off_t)n))
			log_ratelimited(LOG_LVL_WARN,
					"%s: %zu KiB of memory cannot be given back: %s", im->name,
					n >> 10, strerror(errno));
	}
}

/* The next of @r that has memory, from *@at on; false: nothing more. All of it, where the file
 * system cannot say. */
static bool next_with_memory(const struct arena_impl *im, const struct arena_range *r, size_t *at,
			     struct arena_range *out)
{
	const off_t base = r->at - (const uint8_t *)im->pub.map, end = base + (off_t)r->len;
	off_t from = base + (off_t)*at, to;

	if (*at >= r->len)
		return false;
	from = lseek(im->fd, from, SEEK_DATA);
	if (from < 0 && errno != ENXIO)
		from = base + (off_t)*at;
	if (from < 0 || from >= end)
		return false;
	to = lseek(im->fd, from, SEEK_HOLE);
	to = to > from ? MIN(to, end) : end;
	*at = (size_t)(to - base);
	*out = (struct arena_range){ r->at + (from - base), (size_t)(to - from) };
	return true;
}

/* A cache may grow to many times what it has: of what has no memory there is nothing to return. */
void arena_give_back(struct arena_impl *im, uint32_t from, uint32_t n)
{
	struct arena_range r[OF_BLOCKS], some;

	parts_of(&im->pub, from, n, false, r);
	for (unsigned i = 0; i < 3; i++) /* not the memos */
		for (size_t at = 0; next_with_memory(im, &r[i], &at, &some);)
			return_memory(im, &some);
}

int arena_grow(struct arena *a, uint32_t from, uint32_t n)
{
	struct arena_impl *im = impl(a);
	struct arena_range r[OF_BLOCKS];
	struct arena_watcher *w;
	int err = 0;

	BUG_ON(!a->piece || from > a->room || n > a->room - from || im->prepare.running);
	parts_of(a, from, n, true, r);
	for (unsigned i = 0; i < OF_BLOCKS && !err; i++)
		err = arena_populate_some(&im->prepare, r[i].at, 0, r[i].len);
	if (err) {
		parts_of(a, from, n, false, r);
		for (unsigned i = 0; i < OF_BLOCKS - 1; i++)
			return_memory(im, &r[i]);
		return err;
	}
	for (unsigned i = 0; i < OF_BLOCKS; i++)
		arena_prepare_lock(&im->prepare, r[i].at, r[i].len);
	for (uint32_t i = from; i < from + n; i++) {
		memset(&a->hdr[i], 0, sizeof(a->hdr[i]));
		a->hdr[i].block = BLOCK_NO_NUMBER;
		arena_block_init(a, i);
		atomic_store(&a->memo[i], 0);
	}
	pthread_mutex_lock(&registry);
	for (uint32_t i = from, len; i < from + n; i += len) {
		const uint32_t piece = next_piece(a, i, from + n, &len);

		if (!a->present[piece])
			list_for_each(w, &watchers, link)
				if (w->piece_comes)
					w->piece_comes(w, a, piece);
		a->present[piece] += len;
	}
	pthread_mutex_unlock(&registry);
	return 0;
}

void arena_shrink(struct arena *a, uint32_t from, uint32_t n)
{
	struct arena_impl *im = impl(a);
	const uint32_t each = (uint32_t)(a->piece >> a->block_shift);
	struct arena_range r[OF_BLOCKS];
	struct arena_watcher *w;

	BUG_ON(!a->piece || from > a->room || n > a->room - from || im->prepare.running);
	pthread_mutex_lock(&registry);
	for (uint32_t i = from, len; i < from + n; i += len) {
		const uint32_t piece = next_piece(a, i, from + n, &len);

		BUG_ON(a->present[piece] < len);
		a->present[piece] -= len;
		if (!a->present[piece]) {
			list_for_each(w, &watchers, link)
				if (w->piece_goes)
					w->piece_goes(w, a, piece);
			parts_of(a, piece * each, MIN(each, a->room - piece * each), false, r);
			return_memory(im, &r[2]);
		} else if (!a->pinned) {
			parts_of(a, i, len, false, r);
			return_memory(im, &r[2]);
		}
	}
	pthread_mutex_unlock(&registry);
	parts_of(a, from, n, false, r);
	return_memory(im, &r[0]);
	return_memory(im, &r[1]);
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
