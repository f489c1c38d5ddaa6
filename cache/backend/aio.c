/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A store in a file or block device, by libaio with O_DIRECT: the page cache keeps no second copy
 * of what our own cache holds, and no event thread waits for the disk (aio_submit.c).
 *
 *  - A store that refuses O_DIRECT (some network file systems, old tmpfs) is opened without, with a
 *    warning; its transfers then run on the offload threads and use the page cache. What is
 *    promised stays the same: SYNC and FUA end after fdatasync().
 *  - A logical block smaller than the store's sector is refused: every partial sector would be a
 *    read, a merge and a write that a power cut can tear.
 *  - The file is locked (F_OFD_SETLK) against writers of other processes, unless it is opened
 *    read-only; who of this process may have it open beside whom, store_open.c decides.
 *  - An atomic write is one write with RWF_ATOMIC (Linux 6.11), within what statx() says of the
 *    store; where it says nothing, BLK_CAP_ATOMIC is not there.
 *  - DISCARD punches holes or sends BLKDISCARD, ZERO uses ZERO_RANGE (or punches, when the caller
 *    allows deallocation) or BLKZEROOUT, on the offload threads; where the store cannot, zeros are
 *    written.
 */
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "cache/backend/aio_engine.h"
#include "cache/backend/backend.h"
#include "cache/backend/store_id.h"
#include "cache/backend/store_kept.h"
#include "cache/backend/store_probe.h"
#include "cache/backend/store_size.h"
#include "cache/blk/dirty_record.h"
#include "cache/blk/sync_group.h"
#include "events/log.h"

#define AIO_MAX_LEN MiB(1)

struct aio {
	struct blk blk;
	struct aio_store store;
	struct store_opener opener;
	struct store_probe probe;
	struct store_look *look;
	char kept[STORE_KEPT_NAME]; /* "": nothing of it is kept */
	bool device;
	_Atomic bool no_zero; /* ZERO_RANGE or BLKZEROOUT was refused */
};

static struct aio *aio_of(struct blk *blk)
{
	return container_of(blk, struct aio, blk);
}

/* ---- transfers ------------------------------------------------------------------------------- */

static bool aio_transfer(struct blk *blk, struct blk_req *req)
{
	if ((req->flags & BLK_F_FUA) && req->op == BLK_WRITE && unlikely(store_in_doubt(blk, req)))
		return true;
	return aio_engine_submit(&aio_of(blk)->store, req);
}

static bool aio_sync(struct blk *blk, struct blk_req *req)
{
	struct aio *a = aio_of(blk);
	uint32_t failures;

	if (unlikely(store_in_doubt(blk, req)))
		return true;
	if (a->store.sync || (blk->caps & BLK_CAP_READONLY)) {
		req->status = 0;
		return true;
	}
	failures = __atomic_load_n(&a->store.syncs.failures, __ATOMIC_RELAXED);
	req->drv = NULL;
	while (!sync_group_join(&a->store.syncs, req, &failures))
		;
	return false;
}

static bool sync_start(struct sync_group *g)
{
	struct aio *a = container_of(g, struct aio, store.syncs);

	g->call.blk = &a->blk;
	g->call.home = loop_current();
	if (unlikely(store_probe_first(&a->probe)))
		return false;
	return aio_engine_submit(&a->store, &g->call);
}

/* The first SYNC goes on. */
static void probe_asked(struct store_probe *p, int err)
{
	struct aio *a = container_of(p, struct aio, probe);

	if (err) {
		log_error("%s: has lost something that the worker that died may not have known of: "
			  "%s",
			  a->blk.path, strerror(-err));
		store_may_have_lost(&a->store.doubt);
	}
	if (aio_engine_submit(&a->store, &a->store.syncs.call))
		blk_complete_here(&a->store.syncs.call, a->store.syncs.call.status);
}

static void sync_begins(struct sync_group *g)
{
}

static bool aio_sync_over(struct sync_group *g, int status)
{
	store_probe_synced(&container_of(g, struct aio, store.syncs)->probe, status);
	return true;
}

static void sync_tell(struct blk_req *req, int status)
{
	struct store_doubt *d = &aio_of(req->blk)->store.doubt;

	blk_complete(req, req->op == BLK_SYNC ? store_sync_status(req->blk, d, status) : status);
}

static void aio_abort(struct blk *blk, struct blk_req *req)
{
	if (req->op == BLK_READ || req->op == BLK_WRITE) /* SYNC: with others */
		aio_engine_abort(req);
}

/* ---- DISCARD, ZERO, PREFETCH: calls that may block ------------------------------------------- */

struct aio_job {
	struct offload_job job;
	struct aio *a;
	struct blk_req *req;
	int result;
	uint32_t failures; /* of the group of SYNCs, before it began */
};

static int clear_range(struct aio *a, const struct blk_req *req)
{
	bool punch = req->op == BLK_DISCARD || (req->flags & BLK_F_MAY_ALLOC);
	uint64_t range[2] = { req->offset, req->len };
	int rc;

	if (a->device) {
		rc = ioctl(a->store.fd, req->op == BLK_DISCARD ? BLKDISCARD : BLKZEROOUT, range);
	} else {
		rc = fallocate(a->store.fd,
			       FALLOC_FL_KEEP_SIZE |
				       (punch ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE),
			       (off_t)req->offset, (off_t)req->len);
	}
	return rc < 0 ? -errno : 0;
}

static void aio_job_run(struct offload_job *job)
{
	struct aio_job *j = container_of(job, struct aio_job, job);

	if (j->req->op == BLK_PREFETCH) {
		/* The page cache is not used by direct I/O: only a buffered store gains. */
		j->result = -posix_fadvise(j->a->store.fd, (off_t)j->req->offset,
					   (off_t)j->req->len, POSIX_FADV_WILLNEED);
		return;
	}
	j->result = clear_range(j->a, j->req);
}

static void aio_job_done(struct offload_job *job)
{
	struct aio_job *j = container_of(job, struct aio_job, job);
	struct blk_req *req = j->req;
	struct aio *a = j->a;
	int result = j->result;
	uint32_t failures = j->failures;

	free(j);
	if (req->op == BLK_PREFETCH) {
		blk_complete_here(req, 0); /* a hint */
		return;
	}
	if (req->op == BLK_ZERO &&
	    (result == -EOPNOTSUPP || result == -ENOTTY || result == -EINVAL)) {
		if (!atomic_exchange(&a->no_zero, true))
			log_notice("%s: the store cannot clear ranges (%s); zeros will be written",
				   a->blk.path, strerror(-result));
		if (blk_zero_by_writing(&a->blk, req))
			blk_complete_here(req, req->status);
		return;
	}
	if (result)
		log_ratelimited(LOG_LVL_ERROR, "%s: %s of %llu bytes at %llu: %s", a->blk.path,
				req->op == BLK_ZERO ? "zeroing" : "discard",
				(unsigned long long)req->len, (unsigned long long)req->offset,
				strerror(-result));
	if (!result && (req->flags & BLK_F_FUA) && !a->store.sync)
		aio_engine_fua(&a->store, req, failures);
	else
		blk_complete_here(req, result ? backend_status(result) : 0);
}

static bool aio_blocking(struct blk *blk, struct blk_req *req)
{
	struct aio *a = aio_of(blk);
	struct aio_job *j;

	if (req->op == BLK_ZERO && a->no_zero)
		return blk_zero_by_writing(blk, req);
	if (req->op == BLK_DISCARD && !(blk->caps & BLK_CAP_DISCARD)) {
		req->status = -EOPNOTSUPP;
		return true;
	}
	j = malloc(sizeof(*j));
	if (!j) {
		req->status = -ENOMEM;
		return true;
	}
	j->a = a;
	j->req = req;
	j->failures = __atomic_load_n(&a->store.syncs.failures, __ATOMIC_ACQUIRE);
	offload_submit(&a->store.lane, &j->job, req->home, aio_job_run, aio_job_done);
	return false;
}

static bool aio_prefetch(struct blk *blk, struct blk_req *req)
{
	if (!aio_of(blk)->store.direct)
		return aio_blocking(blk, req);
	req->status = 0;
	return true;
}

/* ---- the rest -------------------------------------------------------------------------------- */

static int aio_extent(struct blk *blk, uint64_t offset, uint64_t len, enum blk_extent *what,
		      uint64_t *run)
{
	struct aio *a = aio_of(blk);
	off_t data, hole;

	*what = BLK_EXTENT_MAPPED;
	*run = len;
	if (a->device)
		return 0;
	data = lseek(a->store.fd, (off_t)offset, SEEK_DATA);
	if (data < 0) {
		if (errno == ENXIO) /* nothing but hole to the end */
			*what = BLK_EXTENT_DEALLOCATED;
		return errno == ENXIO || errno == EINVAL ? 0 : -errno;
	}
	if ((uint64_t)data > offset) {
		uint64_t n = ALIGN_DOWN((uint64_t)data - offset, (uint64_t)blk->block_size);

		if (n) { /* else: data begins inside our first block */
			*what = BLK_EXTENT_DEALLOCATED;
			*run = MIN(len, n);
			return 0;
		}
	}
	hole = lseek(a->store.fd, data, SEEK_HOLE);
	if (hole < 0)
		return -errno;
	if ((uint64_t)hole > offset)
		*run = MIN(len, ALIGN_UP((uint64_t)hole - offset, (uint64_t)blk->block_size));
	return 0;
}

/* Of a file: what its file system has for everybody. */
static int aio_space(struct blk *blk, uint64_t *left)
{
	struct statvfs fs;

	if (fstatvfs(aio_of(blk)->store.fd, &fs) < 0)
		return -errno;
	*left = (uint64_t)fs.f_bavail * fs.f_frsize;
	return 0;
}

/* What a device has stands in memory. */
static int device_size(const struct aio *a, uint64_t *bytes)
{
	return ioctl(a->store.fd, BLKGETSIZE64, bytes) < 0 ? -errno : 0;
}

static int aio_resize(struct blk *blk)
{
	struct aio *a = aio_of(blk);
	uint64_t bytes;
	int err;

	if (a->device)
		err = device_size(a, &bytes);
	else
		err = store_size_ask(&a->look, a->store.fd, &bytes);
	if (err == -ETIMEDOUT)
		log_warn("%s: does not say how large it is: its file system hangs", blk->path);
	if (err)
		return err;
	bytes = ALIGN_DOWN(bytes, (uint64_t)blk->block_size);
	if (!bytes)
		return -EINVAL;
	if (bytes != blk->size)
		log_notice("%s: size was %llu, is now %llu bytes", blk->path,
			   (unsigned long long)blk->size, (unsigned long long)bytes);
	blk->size = bytes;
	return 0;
}

static int aio_refresh(struct blk *blk)
{
	int err = aio_resize(blk);

	if (err)
		return err;
	store_looked_at(blk, &aio_of(blk)->store.doubt);
	return 0;
}

static void aio_close(struct blk *blk)
{
	struct aio *a = aio_of(blk);

	dirty_record_put(blk->record); /* as long as nobody else can open it for writing */
	if (*a->kept)
		store_kept_drop(KEPT_OPEN, a->kept);
	store_size_fini(&a->look);
	store_probe_fini(&a->probe, a->blk.store_id);
	store_opener_del(&a->opener);
	if (a->store.fd >= 0)
		close(a->store.fd);
	sync_group_fini(&a->store.syncs);
	if (a->store.under_way)
		under_way_del(a->store.under_way);
	free(blk->path);
	free(a);
}

static const struct blk_ops aio_ops = {
	.name = "aio",
	.read = aio_transfer,
	.write = aio_transfer,
	.sync = aio_sync,
	.discard = aio_blocking,
	.zero = aio_blocking,
	.prefetch = aio_prefetch,
	.abort = aio_abort,
	.extent = aio_extent,
	.space = aio_space,
	.refresh = aio_refresh,
	.resize = aio_resize,
	.trust = store_trust,
	.close = aio_close,
};

/* ---- opening --------------------------------------------------------------------------------- */

/* A number below /sys/dev/block/MAJ:MIN (for a partition: of its disk), or @none. */
static uint64_t queue_number(dev_t dev, const char *name, uint64_t none)
{
	static const char *const forms[] = { "/sys/dev/block/%u:%u/queue/%s",
					     "/sys/dev/block/%u:%u/../queue/%s" };
	unsigned long long v;
	char path[128];

	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		FILE *f;
		int n;

		snprintf(path, sizeof(path), forms[i], major(dev), minor(dev), name);
		f = fopen(path, "re");
		if (!f)
			continue;
		n = fscanf(f, "%llu", &v);
		fclose(f);
		if (n == 1)
			return v;
	}
	return none;
}

#ifndef STATX_WRITE_ATOMIC
#define STATX_WRITE_ATOMIC 0x00010000U /* Linux 6.11; older headers do not know it */
#endif
/* Where the kernel puts stx_atomic_write_unit_min, _unit_max and _segments_max. */
#define STX_ATOMIC_AT 0xa8
#ifdef STATX_DIOALIGN
static_assert(offsetof(struct statx, stx_dio_offset_align) == STX_ATOMIC_AT - 12, "as the kernel");
#endif
static_assert(sizeof(struct statx) >= STX_ATOMIC_AT + 12, "as the kernel");

/* What the kernel writes whole or not at all, whatever happens. A kernel that does not know the
 * question leaves its bit out of the answer. */
static void atomic_properties(struct aio *a)
{
	uint32_t unit[3]; /* min, max, segments */
	struct statx stx;

	memset(&stx, 0, sizeof(stx));
	if (!a->store.direct ||
	    statx(a->store.fd, "", AT_EMPTY_PATH, STATX_WRITE_ATOMIC, &stx) < 0 ||
	    !(stx.stx_mask & STATX_WRITE_ATOMIC))
		return;
	memcpy(unit, (const uint8_t *)&stx + STX_ATOMIC_AT, sizeof(unit));
	unit[0] = MAX(unit[0], a->blk.block_size);
	unit[1] = MIN(unit[1], (uint32_t)AIO_MAX_LEN);
	if ((unit[0] & (unit[0] - 1)) || (unit[1] & (unit[1] - 1)) || unit[0] > unit[1] || !unit[2])
		return;
	a->blk.atomic_min = unit[0];
	a->blk.atomic_max = unit[1];
	a->blk.caps |= BLK_CAP_ATOMIC;
	log_info("%s: the kernel writes %u to %u bytes atomically", a->blk.path, unit[0], unit[1]);
}

/* What direct I/O on a regular file asks for: the kernel says (since 6.1), or a read finds out. */
static void file_alignment(struct aio *a)
{
	struct aio_store *s = &a->store;
	void *probe;

#ifdef STATX_DIOALIGN
	struct statx stx;

	if (statx(s->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 &&
	    (stx.stx_mask & STATX_DIOALIGN)) {
		s->mem_align = stx.stx_dio_mem_align;
		s->off_align = stx.stx_dio_offset_align;
		if (!s->mem_align || !s->off_align)
			s->direct = false;
		return;
	}
#endif
	probe = aligned_alloc(4096, 4096);
	if (!probe)
		return;
	for (uint32_t n = 512; n <= 4096; n *= 2) {
		if (pread(s->fd, probe, n, 0) >= 0) {
			s->mem_align = s->off_align = n;
			break;
		}
	}
	free(probe);
}

static void device_properties(struct aio *a, dev_t dev)
{
	unsigned sector = 512, physical = 4096;

	if (ioctl(a->store.fd, BLKSSZGET, &sector) == 0)
		a->store.mem_align = a->store.off_align = sector;
	if (ioctl(a->store.fd, BLKPBSZGET, &physical) == 0)
		a->blk.physical_size = physical;
	if (queue_number(dev, "discard_max_bytes", 0))
		a->blk.caps |= BLK_CAP_DISCARD;
	if (queue_number(dev, "write_zeroes_max_bytes", 0))
		a->blk.caps |= BLK_CAP_ZERO;
	if (queue_number(dev, "rotational", 0))
		a->blk.caps |= BLK_CAP_ROTATIONAL;
}

/* Punching a hole where there is nothing changes nothing, and tells whether it could. @alone:
 * nobody else writes there meanwhile. */
static bool can_punch(int fd, uint64_t size, bool alone)
{
	const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	off_t hole, data;

	if (fallocate(fd, mode, (off_t)ALIGN_UP(size, MiB(1)), 4096) == 0)
		return true;
	if (errno != EFBIG || !alone)
		return false;
	/* No file may be longer than this one: then within it, if there is a hole. */
	for (hole = lseek(fd, 0, SEEK_HOLE); hole >= 0 && (uint64_t)hole < size;
	     hole = lseek(fd, data, SEEK_HOLE)) {
		off_t from = (off_t)ALIGN_UP((uint64_t)hole, 4096ull);

		data = lseek(fd, hole, SEEK_DATA);
		if (data < 0)
			data = (off_t)size;
		if (from + 4096 <= data)
			return fallocate(fd, mode, from, 4096) == 0;
	}
	return false;
}

static void file_properties(struct aio *a, const struct stat *st, bool readonly, bool alone)
{
	a->blk.physical_size = MAX(4096u, (uint32_t)MIN((uint64_t)st->st_blksize, KiB(64)));
	if (a->store.direct)
		file_alignment(a);
	if (queue_number(st->st_dev, "rotational", 0))
		a->blk.caps |= BLK_CAP_ROTATIONAL;
	if (!readonly && can_punch(a->store.fd, (uint64_t)st->st_size, alone))
		a->blk.caps |= BLK_CAP_DISCARD | BLK_CAP_DISCARD_ZEROES | BLK_CAP_ZERO |
			       BLK_CAP_SPACE;
}

/* A store is what it is, not what it is called: the file may get another name, and the name another
 * file, while it is open. 0 or -errno with the reason. */
static int take_in(struct aio *a, const struct blk_open_args *args, const struct stat *st,
		   int *unlocked, char *why, size_t len)
{
	struct store_opener *o = &a->opener;

	store_id_of("/sys", st, a->blk.store_id);
	a->blk.identity = blk_identity(a->blk.store_id);
	o->blk = &a->blk;
	o->fd = a->store.fd;
	o->readonly = args->readonly;
	o->shared = args->shared;
	o->uncached = args->uncached;
	o->device = a->device;
	o->dev = st->st_rdev;
	snprintf(o->path, sizeof(o->path), "%s", args->path);
	snprintf(o->who, sizeof(o->who), "%s", args->who ? args->who : "");
	if (a->device)
		o->nbelow = store_below("/sys", st->st_rdev, o->below);
	if (a->device && store_loop("/sys", o->fd, o->base, &o->from, &o->to) &&
	    o->nbelow < STORE_BELOW_MAX)
		memcpy(o->below[o->nbelow++], o->base, sizeof(o->base));
	return store_opener_add(o, unlocked, why, len);
}

/* What somebody else has opened: O_SYNC cannot be switched on any more. 0 or -errno. */
static int take_open(struct aio_store *s, const struct blk_open_args *args)
{
	int flags = fcntl(args->file, F_GETFL);

	if (flags < 0)
		return -errno;
	if ((!args->readonly && (flags & O_ACCMODE) != O_RDWR) || (flags & O_PATH) ||
	    (args->sync && (flags & O_SYNC) != O_SYNC))
		return -EBADF;
	s->fd = fcntl(args->file, F_DUPFD_CLOEXEC, 0);
	if (s->fd < 0)
		return -errno;
	s->direct = fcntl(s->fd, F_SETFL, flags | O_DIRECT | O_NONBLOCK) == 0;
	return 0;
}

/* Opens the file; 0 or -errno. */
static int open_store(struct aio_store *s, const struct blk_open_args *args)
{
	const char *path = args->path;
	int flags = (args->readonly ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK |
		    (args->sync ? O_SYNC : 0);

	if (args->is_open)
		return take_open(s, args);
	s->direct = true;
	s->fd = open(path, flags | O_DIRECT);
	if (s->fd < 0 && errno == EINVAL) {
		s->direct = false;
		s->fd = open(path, flags);
	}
	return s->fd < 0 ? -errno : 0;
}

static struct blk *aio_fail(struct aio *a, const struct blk_open_args *args, int err,
			    const char *why)
{
	backend_fail(args, err, "%s: %s", args->path ? args->path : "", why);
	aio_close(&a->blk);
	errno = err;
	return NULL;
}

/* For the next process. One that only tries it (nobody's) keeps nothing. */
static void keep_open(struct aio *a, const struct blk_open_args *args)
{
	if (!args->who)
		return;
	store_kept_name(a->kept, args->path, args->who, args->sync);
	store_kept_use(KEPT_OPEN, a->kept, a->store.fd, args->is_kept);
	if (a->blk.caps & BLK_CAP_VOLATILE)
		store_probe_open(&a->probe, a->store.fd, a->blk.store_id, &a->store.lane,
				 probe_asked);
}

struct blk *aio_open(const struct blk_open_args *args)
{
	struct aio *a = calloc(1, sizeof(*a));
	char why[128], id[BLK_STORE_ID_MAX];
	struct stat st;
	uint64_t bytes;
	int err, unlocked;

	if (!a)
		return backend_fail(args, ENOMEM, "%s: no memory", args->path ? args->path : "");
	a->store.fd = -1;
	store_probe_init(&a->probe);
	aio_engine_init(&a->store);
	a->store.syncs.start = sync_start;
	a->store.syncs.begins = sync_begins;
	a->store.syncs.over = aio_sync_over;
	a->store.syncs.tell = sync_tell;
	if (!args->path || !*args->path)
		return aio_fail(a, args, EINVAL, "a path to a file or block device is wanted");
	err = open_store(&a->store, args);
	if (err)
		return aio_fail(a, args, -err, strerror(-err));
	if (fstat(a->store.fd, &st) < 0)
		return aio_fail(a, args, errno, strerror(errno));
	a->device = S_ISBLK(st.st_mode);
	if (!a->device && !S_ISREG(st.st_mode))
		return aio_fail(a, args, EINVAL, "neither a regular file nor a block device");
	store_id_of("/sys", &st, id);
	if (under_way_at_id(id))
		return aio_fail(a, args, EINPROGRESS, UNDER_WAY_WHY);
	err = take_in(a, args, &st, &unlocked, why, sizeof(why));
	if (err)
		return aio_fail(a, args, -err, why);
	if (unlocked)
		log_warn("%s: cannot be locked (%s): nothing keeps others from writing to it",
			 args->path, strerror(-unlocked));

	a->store.under_way = under_way_add(a->blk.store_id, args->path);
	a->store.lane.mark = a->store.entry.mark = under_way_mark(a->store.under_way);
	a->store.sync = args->sync;
	a->store.file = !a->device;
	a->store.mem_align = a->store.off_align = 512;
	if (a->device)
		device_properties(a, st.st_rdev);
	else
		file_properties(a, &st, args->readonly, !args->shared && !unlocked);
	if (!a->store.direct) {
		a->store.mem_align = a->store.off_align = 1;
		log_warn(
			"%s: the store refuses direct I/O: using the page cache, by blocking calls",
			args->path);
	}
	a->blk.block_size = args->block_size ? args->block_size : MAX(512u, a->store.off_align);
	if (a->blk.block_size < a->store.off_align || a->blk.block_size > 4096) {
		snprintf(why, sizeof(why),
			 "its sectors have %u bytes: a block size of %u cannot be served%s",
			 a->store.off_align, a->blk.block_size,
			 a->store.off_align == 4096 ? "; use 4096" : "");
		return aio_fail(a, args, EINVAL, why);
	}
	if (!a->device)
		err = fstat(a->store.fd, &st) < 0 ? -errno : 0;
	else
		err = device_size(a, &bytes);
	if (err)
		return aio_fail(a, args, -err, strerror(-err));
	if (!a->device)
		bytes = (uint64_t)st.st_size;
	a->blk.size = ALIGN_DOWN(bytes, (uint64_t)a->blk.block_size);
	if (!a->blk.size)
		return aio_fail(a, args, EINVAL, "smaller than one block");
	if (a->blk.size != bytes)
		log_notice("%s: the last %llu bytes are less than a block and stay unused",
			   args->path, (unsigned long long)(bytes - a->blk.size));

	a->blk.ops = &aio_ops;
	a->blk.max_len = AIO_MAX_LEN;
	a->blk.physical_size = MAX(a->blk.physical_size, a->blk.block_size);
	a->blk.node = args->node;
	a->blk.caps |= args->readonly ? BLK_CAP_READONLY : args->sync ? 0 : BLK_CAP_VOLATILE;
	a->blk.path = strdup(args->path);
	if (!a->blk.path)
		return aio_fail(a, args, ENOMEM, "no memory");
	a->store.path = a->blk.path;
	if (!args->readonly) {
		char mark[DIRTY_MARK_MAX];

		atomic_properties(a);
		dirty_mark(a->store.fd, mark);
		a->blk.record = dirty_record_get(a->store.fd, a->blk.store_id, mark, args->path);
	}
	keep_open(a, args);
	return &a->blk;
}
