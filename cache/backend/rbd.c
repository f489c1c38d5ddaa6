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
 *  - An atomic write is one operation on one object, so it is whole in any case.
 *  - The identity is the cluster's, the pool's, the image's and the snapshot's number.
 *  - What cannot be opened, or closed, in a certain time goes on by itself.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "cache/backend/backend.h"
#include "cache/backend/library_call.h"
#include "cache/backend/rbd_cluster.h"
#include "cache/backend/rbd_image.h"
#include "cache/backend/rbd_store.h"
#include "cache/backend/store_flush.h"
#include "cache/backend/store_id.h"
#include "cache/blk/dirty_record.h"
#include "events/log.h"

#define RBD_MAX_LEN MiB(1)
#define RBD_LOOK_MS 300u

/* The image of a store. Who opens or closes one may leave it to itself. */
struct rbd_open {
	struct rbd_image image;
	struct rbd *store; /* NULL: none any more; opens_lock */
	char *path;
	/* Opening and closing it. */
	struct library_call call;
	struct offload_lane lane;
	struct offload_job job;
	int err;
	char why[200];
};

struct rbd {
	struct blk blk;
	struct rbd_open *_Atomic open; /* NULL: it is detached (rbd_store.h) */
	_Atomic bool stopped;
	_Atomic uint64_t seen; /* bytes: what rbd_store_look() has found; 0: nothing */
	bool volatile_cache;   /* as the image's */
	struct rbd_name name;
	struct store_opener opener;
	struct store_flush flush;
};

static pthread_mutex_t opens_lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf, but for posting */

static struct rbd *rbd_of(struct blk *blk)
{
	return container_of(blk, struct rbd, blk);
}

static bool rbd_submit(struct blk *blk, struct blk_req *req)
{
	struct rbd *r = rbd_of(blk);
	struct rbd_open *o = atomic_load_explicit(&r->open, memory_order_acquire);

	if (likely(o) && likely(!atomic_load_explicit(&r->stopped, memory_order_relaxed)))
		return rbd_image_submit(&o->image, req);
	req->status = -ENODEV;
	return true;
}

static bool rbd_store_write(struct blk *blk, struct blk_req *req)
{
	struct rbd *r = rbd_of(blk);

	if (!(req->flags & BLK_F_FUA))
		return rbd_submit(blk, req);
	if (unlikely(store_in_doubt(blk, req)))
		return true;
	return r->volatile_cache ? store_flush_after(&r->flush, req) : rbd_submit(blk, req);
}

static bool rbd_store_sync(struct blk *blk, struct blk_req *req)
{
	struct rbd *r = rbd_of(blk);

	if (unlikely(store_in_doubt(blk, req)))
		return true;
	if (r->volatile_cache && !(blk->caps & BLK_CAP_READONLY))
		return store_flush_sync(&r->flush, req);
	req->status = store_sync_status(blk, &r->flush.doubt, 0);
	return true;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void rbd_resized(struct rbd_image *i)
{
	struct rbd_open *o = container_of(i, struct rbd_open, image);

	pthread_mutex_lock(&opens_lock);
	if (o->store)
		blk_resized(&o->store->blk);
	pthread_mutex_unlock(&opens_lock);
}

static void rbd_quiesce(struct rbd_image *i)
{
	struct rbd_open *o = container_of(i, struct rbd_open, image);
	bool heard = false;

	pthread_mutex_lock(&opens_lock);
	if (o->store)
		heard = blk_quiesce(&o->store->blk);
	pthread_mutex_unlock(&opens_lock);
	if (!heard)
		rbd_image_quiesced(i, 0);
}

static void rbd_quiesced(struct blk *blk, int status)
{
	struct rbd_open *o;

	pthread_mutex_lock(&opens_lock); /* who detaches it waits in open_leave() */
	o = atomic_load(&rbd_of(blk)->open);
	if (o)
		rbd_image_quiesced(&o->image, status);
	pthread_mutex_unlock(&opens_lock);
}

static uint64_t rbd_whole_blocks(const struct rbd *r, uint64_t bytes)
{
	return ALIGN_DOWN(bytes, (uint64_t)r->blk.block_size);
}

static uint64_t rbd_size(const struct rbd *r, const struct rbd_open *o)
{
	return rbd_whole_blocks(r, atomic_load(&o->image.size));
}

/* Waits for a short while, unless the size is known to be another. */
static void rbd_ask_size(struct rbd *r, struct rbd_open *o)
{
	const uint32_t looks = atomic_load(&o->image.looks);

	if (rbd_size(r, o) != r->blk.size)
		return;
	rbd_image_look(&o->image);
	for (unsigned i = 0; i < RBD_LOOK_MS / 2 && atomic_load(&o->image.looks) == looks; i++)
		usleep(2000);
}

/* Who closes the image waits for who looks. NULL: it is detached. */
static struct rbd_open *open_hold(struct rbd *r)
{
	struct rbd_open *o;

	pthread_mutex_lock(&opens_lock); /* who detaches it waits in open_leave() */
	o = atomic_load(&r->open);
	if (o)
		rbd_extent_hold(&o->image);
	pthread_mutex_unlock(&opens_lock);
	return o;
}

static int rbd_extent(struct blk *blk, uint64_t offset, uint64_t len, enum blk_extent *what,
		      uint64_t *run)
{
	struct rbd_open *o = open_hold(rbd_of(blk));

	return o ? rbd_image_extent(&o->image, blk->block_size, offset, len, what, run) : -ENODEV;
}

/* ---- opening, closing ------------------------------------------------------------------------ */

static void rbd_free(struct rbd *r)
{
	store_flush_fini(&r->flush);
	free(r->blk.path);
	free(r);
}

static void open_free(struct rbd_open *o)
{
	free(o->path);
	free(o);
}

static void rbd_close_run(struct library_call *call)
{
	rbd_image_close(&container_of(call, struct rbd_open, call)->image);
}

/* Nobody waits for it any more: what was opened is closed. */
static void rbd_late(struct library_call *call)
{
	struct rbd_open *o = container_of(call, struct rbd_open, call);

	if (o->image.cluster)
		rbd_image_close(&o->image);
	open_free(o);
}

/* @o is its store's no more. */
static void open_leave(struct rbd_open *o)
{
	pthread_mutex_lock(&opens_lock);
	o->store = NULL;
	pthread_mutex_unlock(&opens_lock);
}

static void rbd_close_image(struct rbd_open *o, const char *path)
{
	open_leave(o);
	o->call.run = rbd_close_run;
	if (library_call(&o->call, RBD_CLOSE_MS))
		open_free(o);
	else
		log_warn("%s: the cluster does not answer: closing it goes on by itself", path);
}

static void rbd_store_close(struct blk *blk)
{
	struct rbd *r = rbd_of(blk);
	struct rbd_open *o = atomic_load(&r->open);

	dirty_record_put(blk->record);
	store_opener_del(&r->opener);
	if (o)
		rbd_close_image(o, blk->path);
	rbd_free(r);
}

static void rbd_open_run(struct library_call *call)
{
	struct rbd_open *o = container_of(call, struct rbd_open, call);

	o->err = rbd_image_open(&o->image, o->why, sizeof(o->why));
}

/* An image of @r, to be opened. NULL: no memory. */
static struct rbd_open *open_new(struct rbd *r, bool readonly)
{
	struct rbd_open *o = calloc(1, sizeof(*o));

	if (!o || !(o->path = strdup(r->blk.path))) {
		free(o);
		return NULL;
	}
	o->store = r;
	o->image.name = r->name;
	o->image.path = o->path;
	o->image.readonly = readonly;
	o->image.resized = rbd_resized;
	o->image.quiesce = rbd_quiesce;
	o->call.run = rbd_open_run;
	o->call.late = rbd_late;
	return o;
}

/* ---- the size of one that is not attached ---------------------------------------------------- */

static void rbd_apart_run(struct library_call *call)
{
	struct rbd_open *o = container_of(call, struct rbd_open, call);

	rbd_open_run(call);
	if (!o->err)
		rbd_image_close(&o->image);
}

static void rbd_apart_late(struct library_call *call)
{
	open_free(container_of(call, struct rbd_open, call));
}

/* As open_new(), for a look: nothing of it is told to @r, which may go before. */
static struct rbd_open *open_for_look(struct rbd *r)
{
	struct rbd_open *o = open_new(r, true);

	if (!o)
		return NULL;
	o->store = NULL;
	o->call.run = rbd_apart_run;
	o->call.late = rbd_apart_late;
	return o;
}

/* Waits for a short while, unless rbd_store_look() has found another; what it was if nothing is
 * answered. */
static uint64_t rbd_size_apart(struct rbd *r)
{
	uint64_t bytes = rbd_whole_blocks(r, atomic_exchange(&r->seen, 0));
	struct rbd_open *o = bytes ? NULL : open_for_look(r);

	if (o && library_call(&o->call, RBD_LOOK_MS)) {
		bytes = o->err ? 0 : rbd_size(r, o);
		open_free(o);
	}
	return bytes ? bytes : atomic_load(&r->blk.size);
}

static int rbd_resize_store(struct blk *blk)
{
	struct rbd *r = rbd_of(blk);
	struct rbd_open *o = open_hold(r);
	uint64_t bytes;

	if (o) {
		rbd_ask_size(r, o);
		bytes = rbd_size(r, o);
		rbd_extent_drop(&o->image);
	} else {
		bytes = rbd_size_apart(r);
	}
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

static const struct blk_ops rbd_ops = {
	.name = "rbd",
	.read = rbd_submit,
	.write = rbd_store_write,
	.sync = rbd_store_sync,
	.discard = rbd_store_write,
	.zero = rbd_store_write,
	.compare_and_write = rbd_store_write,
	.extent = rbd_extent,
	.refresh = rbd_refresh,
	.resize = rbd_resize_store,
	.quiesced = rbd_quiesced,
	.trust = store_trust,
	.close = rbd_store_close,
};

static int rbd_take_in(struct rbd *r, const struct blk_open_args *args, char *why, size_t len)
{
	struct store_opener *o = &r->opener;
	int unlocked;

	snprintf(r->blk.store_id, sizeof(r->blk.store_id), "%s", atomic_load(&r->open)->image.id);
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
	struct rbd_open *o = atomic_load(&r->open);
	const bool readonly = o->image.readonly;

	b->block_size = args->block_size ? args->block_size : 512;
	b->size = rbd_size(r, o);
	r->volatile_cache = o->image.volatile_cache;
	if (!b->size || b->size > 1ull << 62) {
		snprintf(why, len, b->size ? "larger than any unit" : "smaller than one block");
		return -EINVAL;
	}
	b->physical_size = 4096;
	b->max_len = RBD_MAX_LEN;
	b->caw_within = o->image.caw_within;
	b->caps = readonly ? BLK_CAP_READONLY :
			     BLK_CAP_DISCARD | BLK_CAP_DISCARD_ZEROES | BLK_CAP_ZERO |
				     (r->volatile_cache ? BLK_CAP_VOLATILE : 0u);
	if (!readonly && o->image.atomic_max >= b->block_size) {
		b->caps |= BLK_CAP_ATOMIC;
		b->atomic_min = b->block_size;
		b->atomic_max = MIN(o->image.atomic_max, (uint32_t)RBD_MAX_LEN);
	}
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
	struct rbd_open *o = NULL;
	char why[200];
	int err;

	if (!r)
		return rbd_refuse(args, -ENOMEM, "no memory");
	err = rbd_name_parse(&r->name, r->blk.path, args->opts, why, sizeof(why));
	if (!err && *r->name.group)
		err = rbd_cluster_of_group(&r->name, why, sizeof(why));
	if (!err && !(o = open_new(r, args->readonly || *r->name.snap))) {
		err = -ENOMEM;
		snprintf(why, sizeof(why), "no memory");
	}
	if (!err && !library_call(&o->call, RBD_OPEN_MS)) {
		open_leave(o);
		rbd_free(r);
		return rbd_refuse(args, -ETIMEDOUT, "the cluster does not answer");
	}
	if (!err && o->err) {
		err = o->err;
		snprintf(why, sizeof(why), "%s", o->why);
		open_free(o);
	}
	if (err) {
		rbd_free(r);
		return rbd_refuse(args, err, why);
	}
	atomic_store(&r->open, o);
	atomic_store(&r->stopped, *r->name.group != '\0'); /* until it is owned */
	err = rbd_properties(r, args, why, sizeof(why));
	if (!err)
		err = rbd_take_in(r, args, why, sizeof(why));
	if (err) {
		rbd_close_image(o, r->blk.path);
		rbd_free(r);
		return rbd_refuse(args, err, why);
	}
	if (!(r->blk.caps & BLK_CAP_READONLY))
		r->blk.record = *r->name.group ?
					dirty_record_get_shared(r->blk.store_id, r->blk.path) :
					dirty_record_get(-1, r->blk.store_id, "", r->blk.path);
	return &r->blk;
}

/* ---- of a gateway group ---------------------------------------------------------------------- */

static struct rbd *group_store(const struct blk *blk)
{
	while (blk->lower)
		blk = blk->lower;
	return blk->ops == &rbd_ops ? rbd_of((struct blk *)(uintptr_t)blk) : NULL;
}

bool rbd_store_of_group(const struct blk *blk)
{
	const struct rbd *r = group_store(blk);

	return r && *r->name.group;
}

static void detach_run(struct offload_job *job)
{
	rbd_image_close(&container_of(job, struct rbd_open, job)->image);
}

static void detach_done(struct offload_job *job)
{
	open_free(container_of(job, struct rbd_open, job));
}

void rbd_store_detach(struct blk *blk)
{
	struct rbd *r = group_store(blk);
	struct rbd_open *o = atomic_exchange(&r->open, NULL);

	if (!o)
		return;
	open_leave(o);
	offload_submit_library(&o->lane, &o->job, NULL, detach_run, detach_done);
}

void rbd_store_stop(struct blk *blk)
{
	atomic_store(&group_store(blk)->stopped, true);
}

void rbd_store_go(struct blk *blk)
{
	atomic_store(&group_store(blk)->stopped, false);
}

int rbd_store_attach(struct blk *blk, char *why, size_t len)
{
	struct rbd *r = group_store(blk);
	struct rbd_open *o = atomic_load(&r->open);
	int err;

	if (o && atomic_load(&o->image.cluster->fenced)) {
		rbd_store_detach(blk);
		o = NULL;
	}
	if (!o) {
		o = open_new(r, r->blk.caps & BLK_CAP_READONLY);
		if (!o) {
			snprintf(why, len, "no memory");
			return -ENOMEM;
		}
		err = rbd_image_open(&o->image, why, len);
		if (!err && strcmp(o->image.id, r->blk.store_id)) {
			snprintf(why, len, "it is another image than it was");
			rbd_image_close(&o->image);
			err = -ESTALE;
		}
		if (err) {
			open_free(o);
			return err;
		}
		atomic_store_explicit(&r->open, o, memory_order_release);
	}
	store_looked_at(&r->blk, &r->flush.doubt); /* what was in doubt is another owner's */
	atomic_store(&r->seen, 0);
	if (rbd_size(r, o) != atomic_load(&r->blk.size))
		blk_resized(&r->blk);
	return 0;
}

int rbd_store_look(struct blk *blk)
{
	struct rbd *r = group_store(blk);
	struct rbd_open *o;

	if (atomic_load(&r->open))
		return 0;
	o = open_for_look(r);
	if (!o)
		return -ENOMEM;
	rbd_apart_run(&o->call);
	const int err = o->err;
	const uint64_t bytes = atomic_load(&o->image.size);

	open_free(o);
	if (!err && rbd_whole_blocks(r, bytes) != atomic_load(&r->blk.size)) {
		atomic_store(&r->seen, bytes);
		blk_resized(&r->blk);
	}
	return err;
}

/* "client.4567" is what the lock says, beside the address; 0: @address has it, -ENOENT: nobody. */
static int lock_holder(const struct rbd_image *i, char *address, size_t len)
{
	char *owner[4];
	size_t n = ARRAY_SIZE(owner);
	rbd_lock_mode_t mode;
	int err = i->lib->rbd_lock_get_owners(i->image, &mode, owner, &n);

	if (err)
		return err;
	if (n)
		snprintf(address, len, "%s", owner[0]);
	i->lib->rbd_lock_get_owners_cleanup(owner, n);
	return n ? 0 : -ENOENT;
}

struct rbd_image *rbd_store_image(struct blk *blk)
{
	struct rbd_open *o = atomic_load(&group_store(blk)->open);

	return o ? &o->image : NULL;
}

int rbd_store_lock(struct blk *blk, char *holder, size_t len)
{
	struct rbd_image *i = rbd_store_image(blk);
	int is = 0, err;

	*holder = '\0';
	if (!i)
		return -ENODEV;
	err = i->lib->rbd_is_exclusive_lock_owner(i->image, &is);
	if (err || is)
		return err;
	err = lock_holder(i, holder, len);
	if (err != -ENOENT)
		return err ? err : -EBUSY;
	err = i->lib->rbd_lock_acquire(i->image, RBD_LOCK_MODE_EXCLUSIVE);
	/* Somebody else was faster. */
	return err && err != -ESHUTDOWN && !lock_holder(i, holder, len) ? -EBUSY : err;
}

int rbd_store_break(struct blk *blk, const char *holder)
{
	struct rbd_image *i = rbd_store_image(blk);
	char is[192];
	int err = i ? lock_holder(i, is, sizeof(is)) : -ENODEV;

	if (!err && !strcmp(is, holder))
		err = i->lib->rbd_lock_break(i->image, RBD_LOCK_MODE_EXCLUSIVE, holder);
	return err == -ENOENT ? 0 : err;
}

int rbd_store_unlock(struct blk *blk)
{
	struct rbd_image *i = rbd_store_image(blk);
	int is = 0, err = i ? i->lib->rbd_is_exclusive_lock_owner(i->image, &is) : 0;

	return err || !is ? err : i->lib->rbd_lock_release(i->image);
}
