/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What of a range an image has (rbd_image.h). librbd asks each object, so a look is at some
 * thousand of them at most. Whoever wants to know of more has LOOK_BUDGET_MS in LOOK_EVERY_MS for
 * it: the rest is said to be there, which is always true enough. Other units may wait for the
 * thread that asks.
 */
#include <stdlib.h>
#include <unistd.h>
#include "cache/backend/library_call.h"
#include "cache/backend/rbd_image.h"
#include "events/clock.h"

#define LOOK_BYTES GiB(4)
#define LOOK_MS 5000u
#define LOOK_BUDGET_MS 2000u
#define LOOK_EVERY_MS 10000u

/* Who asks may give up: then it is freed when the cluster has answered. */
struct rbd_look {
	struct library_call call;
	struct rbd_image *i;
	uint64_t offset, len;
	uint64_t from, to; /* the first run that is there; none: the same */
	int err;
};

/* Upwards. An error ends it: the first run is known, or what is before it. */
static int rbd_look_found(uint64_t at, size_t n, int exists, void *arg)
{
	struct rbd_look *k = arg;

	if (!exists)
		return 0;
	if (k->from == k->to) {
		k->from = at;
		k->to = at + n;
	} else if (at > k->to) {
		return -ECANCELED;
	} else {
		k->to = MAX(k->to, at + n);
	}
	return k->from > k->offset ? -ECANCELED : 0;
}

static void rbd_look_run(struct library_call *call)
{
	struct rbd_look *k = container_of(call, struct rbd_look, call);
	const int err = k->i->lib->rbd_diff_iterate2(k->i->image, NULL, k->offset, k->len, 1, 0,
						     rbd_look_found, k);

	k->err = err == -ECANCELED ? 0 : err;
}

static void rbd_look_end(struct rbd_look *k)
{
	atomic_fetch_sub(&k->i->extents, 1);
	free(k);
}

static void rbd_look_late(struct library_call *call)
{
	rbd_look_end(container_of(call, struct rbd_look, call));
}

/* False: the others have waited long enough. */
static bool rbd_look_affords(struct rbd_image *i, uint64_t now)
{
	const uint64_t since = atomic_load(&i->extents_since);

	if (now - since > LOOK_EVERY_MS * NSEC_PER_MSEC) {
		atomic_store(&i->extents_since, now);
		atomic_store(&i->extents_ns, 0);
	}
	return atomic_load(&i->extents_ns) < LOOK_BUDGET_MS * NSEC_PER_MSEC;
}

/* What ends within a block is all there. */
static void rbd_look_says(const struct rbd_look *k, uint32_t block, enum blk_extent *what,
		      uint64_t *run)
{
	const uint64_t end = k->offset + k->len;
	const uint64_t from = k->from == k->to ? end : ALIGN_DOWN(k->from, (uint64_t)block);

	*what = from > k->offset ? BLK_EXTENT_DEALLOCATED : BLK_EXTENT_MAPPED;
	*run = MIN(from > k->offset ? from : ALIGN_UP(k->to, (uint64_t)block), end) - k->offset;
}

void rbd_extent_hold(struct rbd_image *i)
{
	atomic_fetch_add(&i->extents, 1);
}

void rbd_extent_drop(struct rbd_image *i)
{
	atomic_fetch_sub(&i->extents, 1);
}

void rbd_extents_end(struct rbd_image *i)
{
	while (atomic_load(&i->extents))
		usleep(2000);
}

int rbd_image_extent(struct rbd_image *i, uint32_t block, uint64_t offset, uint64_t len,
		     enum blk_extent *what, uint64_t *run)
{
	const uint64_t began = clock_now_ns();
	struct rbd_look *k;
	int err;

	*what = BLK_EXTENT_MAPPED;
	*run = len;
	k = rbd_look_affords(i, began) ? calloc(1, sizeof(*k)) : NULL;
	if (!k) {
		rbd_extent_drop(i);
		return 0;
	}
	k->call.run = rbd_look_run;
	k->call.late = rbd_look_late;
	k->i = i;
	k->offset = offset;
	k->len = MIN(len, LOOK_BYTES);
	if (!library_call(&k->call, LOOK_MS)) {
		atomic_store(&i->extents_ns, LOOK_BUDGET_MS * NSEC_PER_MSEC);
		return 0;
	}
	atomic_fetch_add(&i->extents_ns, clock_now_ns() - began);
	err = k->err;
	if (!err)
		rbd_look_says(k, block, what, run);
	rbd_look_end(k);
	return err;
}
