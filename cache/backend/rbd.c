/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A store that is an image of a Ceph cluster. The path is [POOL/[NAMESPACE/]]IMAGE[@SNAPSHOT];
 * bsopts have conf=, id= and cluster=, as tgt's.
 *
 *  - rbd_image.c has the image: its requests, its size, how it is opened. rbd_cluster.c has the
 *    clients, which images share. rbd_lib.c loads librbd when the first image is opened.
 *  - A write is stable when it is done, so FUA is nothing; unless the image's own configuration
 *    gives librbd a cache, then it is a flush that follows.
 *  - DISCARD deallocates, and gives zeros.
 *  - COMPARE AND WRITE of one sector is one operation of the cluster; a longer one is emulated
 *    (blk.caw_within).
 *  - The identity is the cluster's, the pool's, the image's and the snapshot's number.
 *  - What cannot be opened, or closed, in a certain time goes on by itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "cache/backend/backend.h"
#include "cache/backend/library_call.h"
#include "cache/backend/rbd_image.h"
#include "cache/backend/store_flush.h"
#include "cache/backend/store_id.h"
#include "cache/blk/dirty_record.h"
#include "events/log.h"

#define RBD_MAX_LEN MiB(1)
#define RBD_LOOK_MS 300u

struct rbd {
	struct blk blk;
	struct rbd_image image;
	struct store_opener opener;
	struct store_flush flush;
	/* Opening and closing it. */
	struct library_call call;
	int err;
	char why[200];
};

static struct rbd *rbd_of(struct blk *blk)
{
	return container_of(blk, struct rbd, blk);
}

static bool rbd_submit(struct blk *blk, struct blk_req *req)
{
	return rbd_image_submit(&rbd_of(blk)->image, req);
}

static bool rbd_store_write(struct blk *blk, struct blk_req *req)
{
	struct rbd *r = rbd_of(blk);

	if (!(req->flags & BLK_F_FUA))
		return rbd_submit(blk, req);
	if (unlikely(store_in_doubt(blk, req)))
		return true;
	return r->image.volatile_cache ? store_flush_after(&r->flush, req) : rbd_submit(blk, req);
}

static bool rbd_store_sync(struct blk *blk, struct blk_req *req)
{
	struct rbd *r = rbd_of(blk);

	if (unlikely(store_in_doubt(blk, req)))
		return true;
	if (r->image.volatile_cache && !(blk->caps & BLK_CAP_READONLY))
		return store_flush_sync(&r->flush, req);
	req->status = store_sync_status(blk, &r->flush.doubt, 0);
	return true;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void rbd_resized(struct rbd_image *i)
{
	blk_resized(&container_of(i, struct rbd, image)->blk);
}

static uint64_t rbd_whole_blocks(const struct rbd *r)
{
	return ALIGN_DOWN(atomic_load(&r->image.size), (uint64_t)r->blk.block_size);
}

/* Waits for a short while, unless the size is known to be another. */
static void rbd_ask_size(struct rbd *r)
{
	const uint32_t looks = atomic_load(&r->image.looks);

	if (rbd_whole_blocks(r) != r->blk.size)
		return;
	rbd_image_look(&r->image);
	for (unsigned i = 0; i < RBD_LOOK_MS / 2 && atomic_load(&r->image.looks) == looks; i++)
		usleep(2000);
}

static int rbd_resize_store(struct blk *blk)
{
	uint64_t bytes;

	rbd_ask_size(rbd_of(blk));
	bytes = rbd_whole_blocks(rbd_of(blk));
	if (!bytes)
		return -EINVAL;
	blk->size = bytes;
	return 0;
}

static int rbd_refresh(struct blk *blk)
{
	int err = rbd_resize_store(blk);

	if (!err)
		store_looked_at(blk, &rbd_of(blk)->flush.doubt);
	return err;
}

/* ---- opening, closing ------------------------------------------------------------------------ */

static void rbd_free(struct rbd *r)
{
	store_flush_fini(&r->flush);
	free(r->blk.path);
	free(r);
}

static void rbd_close_run(struct library_call *call)
{
	rbd_image_close(&container_of(call, struct rbd, call)->image);
}

/* Nobody waits for it any more: what was opened is closed. */
static void rbd_late(struct library_call *call)
{
	struct rbd *r = container_of(call, struct rbd, call);

	if (r->image.cluster)
		rbd_image_close(&r->image);
	rbd_free(r);
}

static void rbd_close_image(struct rbd *r)
{
	char path[128];

	snprintf(path, sizeof(path), "%s", r->blk.path);
	r->call.run = rbd_close_run;
	if (library_call(&r->call, RBD_CLOSE_MS))
		rbd_free(r);
	else
		log_warn("%s: the cluster does not answer: closing it goes on by itself", path);
}

static void rbd_store_close(struct blk *blk)
{
	struct rbd *r = rbd_of(blk);

	dirty_record_put(blk->record);
	store_opener_del(&r->opener);
	rbd_close_image(r);
}

static const struct blk_ops rbd_ops = {
	.name = "rbd",
	.read = rbd_submit,
	.write = rbd_store_write,
	.sync = rbd_store_sync,
	.discard = rbd_store_write,
	.zero = rbd_store_write,
	.compare_and_write = rbd_store_write,
	.refresh = rbd_refresh,
	.resize = rbd_resize_store,
	.trust = store_trust,
	.close = rbd_store_close,
};

static void rbd_open_run(struct library_call *call)
{
	struct rbd *r = container_of(call, struct rbd, call);

	r->err = rbd_image_open(&r->image, r->why, sizeof(r->why));
}

static int rbd_take_in(struct rbd *r, const struct blk_open_args *args, char *why, size_t len)
{
	struct store_opener *o = &r->opener;
	int unlocked;

	snprintf(r->blk.store_id, sizeof(r->blk.store_id), "%s", r->image.id);
	r->blk.identity = blk_identity(r->blk.store_id);
	o->blk = &r->blk;
	o->fd = -1;
	o->readonly = r->blk.caps & BLK_CAP_READONLY;
	o->shared = args->shared;
	o->uncached = args->uncached;
	snprintf(o->path, sizeof(o->path), "%s", args->path);
	snprintf(o->who, sizeof(o->who), "%s", args->who ? args->who : "");
	return store_opener_add(o, &unlocked, why, len);
}

static int rbd_properties(struct rbd *r, const struct blk_open_args *args, char *why, size_t len)
{
	struct blk *b = &r->blk;
	const bool readonly = r->image.readonly;

	b->block_size = args->block_size ? args->block_size : 512;
	b->size = rbd_whole_blocks(r);
	if (!b->size || b->size > 1ull << 62) {
		snprintf(why, len, b->size ? "larger than any unit" : "smaller than one block");
		return -EINVAL;
	}
	b->physical_size = 4096;
	b->max_len = RBD_MAX_LEN;
	b->caw_within = r->image.caw_within;
	b->caps = readonly ? BLK_CAP_READONLY :
			     BLK_CAP_DISCARD | BLK_CAP_DISCARD_ZEROES | BLK_CAP_ZERO |
				     (r->image.volatile_cache ? BLK_CAP_VOLATILE : 0u);
	return 0;
}

static struct rbd *rbd_new(const struct blk_open_args *args)
{
	struct rbd *r = calloc(1, sizeof(*r));

	if (!r || !(r->blk.path = strdup(args->path ? args->path : ""))) {
		free(r);
		return NULL;
	}
	r->blk.ops = &rbd_ops;
	r->blk.node = args->node;
	r->image.path = r->blk.path;
	r->image.resized = rbd_resized;
	r->call.run = rbd_open_run;
	r->call.late = rbd_late;
	store_flush_init(&r->flush, &r->blk, rbd_submit);
	return r;
}

/* EACCES and EROFS would have the administrator's tool open a file of that name. */
static struct blk *rbd_refuse(const struct blk_open_args *args, int err, const char *why)
{
	err = err == -EACCES || err == -EPERM || err == -EROFS ? -ECONNREFUSED : err;
	return backend_fail(args, -err, "%s: %s", args->path ? args->path : "", why);
}

struct blk *rbd_open_store(const struct blk_open_args *args)
{
	struct rbd *r = rbd_new(args);
	char why[200];
	int err;

	if (!r)
		return rbd_refuse(args, -ENOMEM, "no memory");
	err = rbd_name_parse(&r->image.name, r->blk.path, args->opts, why, sizeof(why));
	r->image.readonly = args->readonly || *r->image.name.snap;
	if (!err && !library_call(&r->call, RBD_OPEN_MS))
		return rbd_refuse(args, -ETIMEDOUT, "the cluster does not answer");
	if (!err && r->err) {
		err = r->err;
		snprintf(why, sizeof(why), "%s", r->why);
	}
	if (err) {
		rbd_free(r);
		return rbd_refuse(args, err, why);
	}
	err = rbd_properties(r, args, why, sizeof(why));
	if (!err)
		err = rbd_take_in(r, args, why, sizeof(why));
	if (err) {
		rbd_close_image(r);
		return rbd_refuse(args, err, why);
	}
	if (!(r->blk.caps & BLK_CAP_READONLY))
		r->blk.record = dirty_record_get(-1, r->blk.store_id, "", r->blk.path);
	return &r->blk;
}
