/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See memdisk.h. */
#include "tests/support/memdisk.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "events/clock.h"

static struct memdisk *disk_of(struct blk *blk)
{
	return container_of(blk, struct memdisk, blk);
}

struct later {
	struct timer timer;
	struct blk_req *req;
	int status;
};

static void fire(struct timer *t)
{
	struct later *l = container_of(t, struct later, timer);
	struct blk_req *req = l->req;
	int status = l->status;
	free(l);
	disk_of(req->blk)->inflight--;
	blk_complete_here(req, status);
}

static __thread uint64_t rng = 88172645463325252ull;

void memdisk_seed(uint64_t seed)
{
	rng = (seed + 1) * 88172645463325253ull | 1;
}

static uint64_t draw(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

static bool failing(struct memdisk *d, _Atomic int *n)
{
	int was = *n;
	if (d->fail_permille && draw() % 1000 < d->fail_permille)
		return true;
	if (was > 0)
		*n = was - 1;
	return was != 0;
}

bool memdisk_bad(const struct memdisk *d, uint64_t block)
{
	uint64_t x = (block + d->bad_salt + 1) * 0x9e3779b97f4a7c15ull;

	return d->bad_one_in && (x >> 32) % d->bad_one_in == 0;
}

static bool bad_block_within(const struct memdisk *d, const struct blk_req *req)
{
	for (uint64_t b = req->offset >> 12;
	     d->bad_one_in && b <= (req->offset + req->len - 1) >> 12; b++)
		if (memdisk_bad(d, b))
			return true;
	return false;
}

static bool touches(const uint64_t bad[2], const struct blk_req *req)
{
	return req->offset < bad[1] && bad[0] < req->offset + req->len;
}

/* The work is done; when does the submitter learn of it? */
static bool finish(struct memdisk *d, struct blk_req *req, int status)
{
	if (!d->bytes_per_s && draw() % 100 < d->now_percent) {
		req->status = status;
		return true;
	}
	if (!d->delay_ns && !d->bytes_per_s) {
		blk_complete(req, status);
		return false;
	}
	struct later *l = malloc(sizeof(*l));
	uint32_t now = ++d->inflight;
	if (now > d->inflight_max)
		d->inflight_max = now;
	timer_init(&l->timer, fire);
	l->req = req;
	l->status = status;
	uint64_t wait = d->delay_ns / 2 + draw() % (d->delay_ns + 1);
	if (d->bytes_per_s) {
		const uint64_t at = clock_now_ns();

		d->busy_until_ns =
			MAX(d->busy_until_ns, at) + req->len * NSEC_PER_SEC / d->bytes_per_s;
		wait += d->busy_until_ns - at;
	}
	loop_timer_arm(loop_current(), &l->timer, wait);
	return false;
}

static bool md_read(struct blk *blk, struct blk_req *req)
{
	struct memdisk *d = disk_of(blk);
	if (failing(d, &d->fail_reads) || touches(d->bad_reads, req))
		return finish(d, req, -EIO);
	BUG_ON(!(req->flags & BLK_F_INTO) || req->data.len != req->len);
	frags_copy_in(&req->data, 0, d->data + req->offset, req->len);
	d->reads++;
	d->read_bytes += req->len;
	return finish(d, req, 0);
}

/* One at a time: who was held up amid it must not overwrite what another one has copied since. */
static void make_stable(struct memdisk *d, uint64_t at, uint64_t len)
{
	static pthread_mutex_t copying = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&copying);
	memcpy(d->stable + at, d->data + at, len);
	pthread_mutex_unlock(&copying);
}

static bool md_write(struct blk *blk, struct blk_req *req)
{
	struct memdisk *d = disk_of(blk);
	if (failing(d, &d->fail_writes) || touches(d->bad_writes, req) ||
	    bad_block_within(d, req)) {
		d->failed_writes++;
		return finish(d, req, -EIO);
	}
	BUG_ON(!(req->flags & BLK_F_FROM) || req->data.len != req->len);
	frags_copy_out(&req->data, 0, d->data + req->offset, req->len);
	d->writes++;
	d->backward += req->offset < d->write_end;
	d->write_end = req->offset + req->len;
	d->write_bytes += req->len;
	d->fua += !!(req->flags & BLK_F_FUA);
	if (d->stable && (req->flags & BLK_F_FUA))
		make_stable(d, req->offset, req->len);
	return finish(d, req, 0);
}

static bool md_sync(struct blk *blk, struct blk_req *req)
{
	struct memdisk *d = disk_of(blk);
	int was = d->fail_syncs;

	d->syncs++;
	if (was > 0)
		d->fail_syncs = was - 1;
	if (was || (d->fail_syncs_permille && draw() % 1000 < d->fail_syncs_permille)) {
		/* Told once, and what was in the volatile cache is gone. */
		if (d->stable)
			memcpy(d->data, d->stable, d->blk.size);
		return finish(d, req, -EIO);
	}
	if (d->stable)
		make_stable(d, 0, d->blk.size);
	return finish(d, req, 0);
}

static bool md_zero(struct blk *blk, struct blk_req *req)
{
	struct memdisk *d = disk_of(blk);
	if (failing(d, &d->fail_writes))
		return finish(d, req, -EIO);
	memset(d->data + req->offset, 0, req->len);
	if (d->stable && (req->flags & BLK_F_FUA))
		memset(d->stable + req->offset, 0, req->len);
	return finish(d, req, 0);
}

static bool md_caw(struct blk *blk, struct blk_req *req)
{
	/* Only there so that the choke point does not order for us: a cache never sends it. */
	BUG("a cache compares for itself");
}

static void md_close(struct blk *blk)
{
	struct memdisk *d = disk_of(blk);
	munmap(d->data, d->blk.size);
	free(d->stable);
	free(d->blk.path);
	free(d);
}

static const struct blk_ops ops = {
	.name = "memdisk",
	.read = md_read,
	.write = md_write,
	.sync = md_sync,
	.discard = md_zero,
	.zero = md_zero,
	.compare_and_write = md_caw,
	.close = md_close,
};

struct memdisk *memdisk_create(uint64_t size, uint32_t block_size, const char *name)
{
	struct memdisk *d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->data = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (d->data == MAP_FAILED) {
		free(d);
		return NULL;
	}
	d->blk.ops = &ops;
	d->blk.size = size;
	d->blk.block_size = block_size;
	d->blk.physical_size = block_size;
	d->blk.max_len = MiB(1);
	d->blk.caps = BLK_CAP_DISCARD | BLK_CAP_DISCARD_ZEROES | BLK_CAP_ZERO | BLK_CAP_VOLATILE;
	d->blk.node = -1;
	snprintf(d->blk.store_id, sizeof(d->blk.store_id), "mem:%s", name);
	d->blk.identity = blk_identity(d->blk.store_id);
	d->blk.path = strdup(name);
	return d;
}
