/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See rbd_image.h. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "cache/backend/rbd_image.h"
#include "events/hash.h"
#include "events/log.h"
#include "events/probe.h"

/* blk_req.drv_word: what the image keeps of a request. */
enum {
	W_IMAGE, /* struct rbd_image */
	W_AT,	 /* bytes that are done: of a DISCARD or ZERO in pieces */
	W_OFFSET /* COMPARE AND WRITE: of the first byte that differs */
};

static struct rbd_image *image_of(const struct blk_req *req)
{
	return (struct rbd_image *)(uintptr_t)req->drv_word[W_IMAGE];
}

/* ---- requests -------------------------------------------------------------------------------- */

static int image_status(struct rbd_image *i, int err)
{
	switch (err) {
	case -ENOSPC:
	case -EDQUOT: /* the pool, or its quota, is full */
		return -ENOSPC;
	case -EROFS:
	case -EPERM:
	case -EACCES: /* another client has locked it, or ours may not write */
		return -EROFS;
	case -ESHUTDOWN: /* this client is fenced */
		if (!atomic_exchange(&i->cluster->fenced, true))
			log_error(
				"%s: the cluster has fenced this client: its units have errors until they are opened anew",
				i->path);
		return -ENODEV;
	case -ENOENT: /* the image, or its pool, is gone */
		return -ENODEV;
	case -ETIMEDOUT:
	case -EILSEQ:
	case -ENOMEM:
	case -EOPNOTSUPP:
		return err;
	default:
		return -EIO;
	}
}

static const char *image_verb(const struct blk_req *req)
{
	static const char *const verbs[BLK_OPS] = {
		[BLK_READ] = "read",	    [BLK_WRITE] = "write",
		[BLK_SYNC] = "flush",	    [BLK_DISCARD] = "discard",
		[BLK_ZERO] = "write zeros", [BLK_COMPARE_AND_WRITE] = "compare and write",
	};

	return verbs[req->op];
}

/* On librbd's thread, or on the request's loop. */
static int image_outcome(struct rbd_image *i, struct blk_req *req, ssize_t ret)
{
	/* An image that has become shorter is clipped, silently. */
	const bool clipped =
		ret >= 0 &&
		((req->op == BLK_READ && (uint64_t)ret != req->len) ||
		 (req->op != BLK_SYNC && req->offset + req->len > atomic_load(&i->size)));
	const int status = ret < 0 ? image_status(i, (int)ret) : clipped ? -EIO : 0;

	if (status == -EILSEQ)
		req->miscompare = MIN(req->drv_word[W_OFFSET], req->len - 1);
	if (status && status != -EILSEQ)
		log_ratelimited(LOG_LVL_ERROR, "%s: %s of %llu bytes at %llu: %s", i->path,
				image_verb(req), (unsigned long long)req->len,
				(unsigned long long)req->offset,
				clipped ? "beyond the end of the image" : strerror((int)-ret));
	free(req->drv);
	req->drv = NULL;
	return status;
}

static int image_piece(struct rbd_image *i, struct blk_req *req);

/* Runs on a thread of librbd's, for one request of an image at a time. */
static void image_answered(rbd_completion_t c, void *arg)
{
	struct blk_req *req = arg;
	struct rbd_image *i = image_of(req);
	ssize_t ret = i->lib->rbd_aio_get_return_value(c);

	i->lib->rbd_aio_release(c);
	if (ret >= 0 && (req->op == BLK_DISCARD || req->op == BLK_ZERO)) {
		req->drv_word[W_AT] += RBD_PIECE_MAX;
		if (req->drv_word[W_AT] < req->len) {
			ret = image_piece(i, req);
			if (!ret)
				return;
		}
	}
	const int status = image_outcome(i, req, ret);

	PROBE3(store_done, req, req->op, status);
	blk_complete(req, status); /* the image may go with it */
}

static int image_transfer(struct rbd_image *i, struct blk_req *req, rbd_completion_t c)
{
	const struct frags *f = &req->data;
	const bool reads = req->op == BLK_READ;
	struct iovec *v;

	if (f->n == 1) {
		char *data = (char *)f->v[0].base;

		return reads ? i->lib->rbd_aio_read(i->image, req->offset, req->len, data, c) :
			       i->lib->rbd_aio_write(i->image, req->offset, req->len, data, c);
	}
	/* librbd looks at it until the end. */
	v = req->drv = malloc(f->n * sizeof(*v));
	if (!v)
		return -ENOMEM;
	for (uint32_t k = 0; k < f->n; k++)
		v[k] = (struct iovec){ .iov_base = f->v[k].base, .iov_len = f->v[k].len };
	return (reads ? i->lib->rbd_aio_readv : i->lib->rbd_aio_writev)(i->image, v, (int)f->n,
									req->offset, c);
}

static int image_compare(struct rbd_image *i, struct blk_req *req, rbd_completion_t c)
{
	uint64_t *const at = &req->drv_word[W_OFFSET];
	char *both = req->drv = malloc(2 * req->len);
	ssize_t ret;

	if (!both)
		return -ENOMEM;
	frags_copy_out(&req->data, 0, both, 2 * req->len);
	ret = i->lib->rbd_aio_compare_and_write(i->image, req->offset, req->len, both,
						both + req->len, c, at, 0);
	return (int)MIN(ret, 0);
}

/* Gives librbd all of @req, or the next piece. 0 or -errno: then it has nothing. */
static int image_piece(struct rbd_image *i, struct blk_req *req)
{
	const struct rbd_lib *lib = i->lib;
	const uint64_t at = req->offset + req->drv_word[W_AT],
		       len = MIN(req->len - req->drv_word[W_AT], RBD_PIECE_MAX);
	rbd_completion_t c;
	int err = lib->rbd_aio_create_completion(req, image_answered, &c);

	if (err)
		return err;
	switch (req->op) {
	case BLK_READ:
	case BLK_WRITE:
		err = image_transfer(i, req, c);
		break;
	case BLK_SYNC:
		err = lib->rbd_aio_flush(i->image, c);
		break;
	case BLK_COMPARE_AND_WRITE:
		err = image_compare(i, req, c);
		break;
	default:
		/* Zeros afterwards in any case: librbd's discard leaves parts of objects be. */
		ASSERT(req->op == BLK_DISCARD || req->op == BLK_ZERO);
		err = lib->rbd_aio_write_zeroes(
			i->image, at, len, c,
			req->op == BLK_ZERO && !(req->flags & BLK_F_MAY_ALLOC) ? RBD_ZEROES_THICK :
										 0,
			0);
	}
	if (err)
		lib->rbd_aio_release(c);
	return err;
}

bool rbd_image_submit(struct rbd_image *i, struct blk_req *req)
{
	int err;

	req->drv = NULL;
	req->drv_word[W_IMAGE] = (uintptr_t)i;
	req->drv_word[W_AT] = req->drv_word[W_OFFSET] = 0;
	PROBE4(store_start, req, req->op, req->offset, req->len);
	if (unlikely(atomic_load_explicit(&i->gone, memory_order_relaxed)))
		err = -ENOENT;
	else if (unlikely(atomic_load_explicit(&i->cluster->fenced, memory_order_relaxed)))
		err = -ESHUTDOWN;
	else
		err = image_piece(i, req);
	if (!err)
		return false;
	req->status = image_outcome(i, req, err);
	PROBE3(store_done, req, req->op, req->status);
	return true;
}

/* ---- the size -------------------------------------------------------------------------------- */

static void image_look_run(struct offload_job *job)
{
	struct rbd_image *i = container_of(job, struct rbd_image, look);
	uint64_t bytes, was = atomic_load(&i->size);
	int err = i->lib->rbd_get_size(i->image, &bytes);

	if (err == -ENOENT && !atomic_exchange(&i->gone, true))
		log_error("%s: the image has been removed", i->path);
	else if (err)
		log_warn("%s: its size cannot be asked for: %s", i->path, strerror(-err));
	if (err)
		return;
	atomic_store(&i->size, bytes);
	if (bytes == was)
		return;
	log_notice("%s: the image has %llu bytes now (%llu before)", i->path,
		   (unsigned long long)bytes, (unsigned long long)was);
	i->resized(i);
}

static void image_looked(struct offload_job *job)
{
	struct rbd_image *i = container_of(job, struct rbd_image, look);

	atomic_fetch_add(&i->looks, 1);
	/* The image may go when this is 0. */
	if (atomic_fetch_sub(&i->looking, 1) == 2)
		offload_submit_library(&i->lane, &i->look, NULL, image_look_run, image_looked);
}

void rbd_image_look(struct rbd_image *i)
{
	int is = atomic_load(&i->looking);

	while (is < 2)
		if (atomic_compare_exchange_weak(&i->looking, &is, is + 1)) {
			if (!is)
				offload_submit_library(&i->lane, &i->look, NULL, image_look_run,
						       image_looked);
			return;
		}
}

/* Something about the image has changed. On librbd's thread. */
static void image_changed(void *arg)
{
	rbd_image_look(arg);
}

/* ---- snapshots of others --------------------------------------------------------------------- */

#define QUIESCE_MS 3000u /* without the lock; librbd's own limit is tens of seconds */

struct image_answer {
	struct rbd_image *image;
	int status;
	struct offload_job job;
};

static void image_answer_run(struct offload_job *job)
{
	const struct image_answer *a = container_of(job, struct image_answer, job);
	struct rbd_image *i = a->image;

	i->lib->rbd_quiesce_complete(i->image, i->quiesce_watch, a->status);
}

static void image_answer_over(struct offload_job *job)
{
	struct image_answer *a = container_of(job, struct image_answer, job);

	atomic_fetch_sub(&a->image->answering, 1); /* the image may go */
	free(a);
}

void rbd_image_quiesced(struct rbd_image *i, int status)
{
	struct image_answer *a;

	if (!atomic_exchange(&i->quiesce_asked, false))
		return;
	a = calloc(1, sizeof(*a));
	if (!a) /* who waits gives up, and there is no snapshot */
		return;
	a->image = i;
	a->status = status;
	atomic_fetch_add(&i->answering, 1);
	offload_submit_library(&i->quiesce_lane, &a->job, NULL, image_answer_run,
			       image_answer_over);
}

/*
 * A snapshot is made by who has the exclusive lock, and it keeps that. If somebody else has it,
 * nothing of ours can be written before the snapshot is over. So if something is dirty there will
 * be no snapshot, which is said before librbd's own limits: units would hang as long.
 */
static void image_quiesce_time(struct offload_job *job)
{
	struct rbd_image *i = container_of(job, struct rbd_image, quiesce_job);
	int ours = 0;

	if (!i->locks || i->lib->rbd_is_exclusive_lock_owner(i->image, &ours) || ours)
		return;
	for (unsigned ms = 0; ms < QUIESCE_MS && atomic_load(&i->quiesce_asked); ms += 20)
		usleep(20000);
	if (!atomic_load(&i->quiesce_asked))
		return;
	log_warn("%s: no snapshot is made: another client has the image's lock, so what is dirty "
		 "here cannot be written before. It will be, then it may be tried again",
		 i->path);
	rbd_image_quiesced(i, -EBUSY);
}

static void image_quiesce_timed(struct offload_job *job)
{
	struct rbd_image *i = container_of(job, struct rbd_image, quiesce_job);

	atomic_store(&i->quiesce_timed, false);
	atomic_fetch_sub(&i->answering, 1); /* the image may go */
}

/* On librbd's thread. */
static void image_quiesce(void *arg)
{
	struct rbd_image *i = arg;

	atomic_store(&i->quiesce_asked, true);
	if (!atomic_exchange(&i->quiesce_timed, true)) {
		atomic_fetch_add(&i->answering, 1);
		offload_submit_library(&i->quiesce_timer_lane, &i->quiesce_job, NULL,
				       image_quiesce_time, image_quiesce_timed);
	}
	i->quiesce(i);
}

static void image_unquiesce(void *arg)
{
	(void)arg; /* writes have not been held back */
}

static void image_quiesce_watch(struct rbd_image *i)
{
	if (i->readonly)
		return;
	if (!i->lib->rbd_quiesce_watch || !i->lib->rbd_quiesce_complete ||
	    !i->lib->rbd_quiesce_unwatch ||
	    i->lib->rbd_quiesce_watch(i->image, image_quiesce, image_unquiesce, i,
				      &i->quiesce_watch))
		log_warn("%s: snapshots by others lack what is only in the cache", i->path);
	else
		i->quiesce_watching = true;
}

/* Who waits for an answer is not kept waiting, else librbd would wait, too. */
static void image_quiesce_unwatch(struct rbd_image *i)
{
	if (!i->quiesce_watching)
		return;
	rbd_image_quiesced(i, -ESHUTDOWN);
	while (atomic_load(&i->answering))
		usleep(1000);
	(void)i->lib->rbd_quiesce_unwatch(i->image, i->quiesce_watch);
	while (atomic_load(&i->answering))
		usleep(1000);
}

/* ---- opening, closing ------------------------------------------------------------------------ */

/* Does the image's own configuration want librbd to cache? Not known: yes. */
static bool image_caches(struct rbd_image *i)
{
	rbd_config_option_t *o;
	int n = 0, err = i->lib->rbd_config_image_list(i->image, NULL, &n);
	bool caches = true, persistent = false;

	if ((err && err != -ERANGE) || n <= 0 || !(o = calloc((size_t)n, sizeof(*o))))
		return true;
	err = i->lib->rbd_config_image_list(i->image, o, &n);
	for (int k = 0; !err && k < n; k++) {
		if (!strcmp(o[k].name, "rbd_cache"))
			caches = strcmp(o[k].value, "false") != 0;
		else if (!strcmp(o[k].name, "rbd_plugins"))
			persistent = *o[k].value;
	}
	if (!err)
		i->lib->rbd_config_image_list_cleanup(o, n);
	free(o);
	return err || caches || persistent;
}

/* One image of one cluster has one, whatever its name and its pool's. */
static int image_identity(struct rbd_image *i)
{
	const struct rbd_name *n = &i->name;
	char id[64] = "";
	uint64_t snap = 0;
	int at, err = *n->snap ? i->lib->rbd_snap_get_id(i->image, n->snap, &snap) : 0;

	if (err)
		return err;
	/* The oldest format has no ids: its names do not change without it being noticed. */
	if (i->lib->rbd_get_id(i->image, id, sizeof(id)))
		snprintf(id, sizeof(id), "n%016llx",
			 (unsigned long long)fnv1a(FNV1A_INIT, n->image, strlen(n->image)));
	at = snprintf(i->id, sizeof(i->id), "rbd:%s/%lld/", i->cluster->fsid,
		      (long long)i->lib->rados_ioctx_get_id(i->ioctx));
	if (*n->space)
		at += snprintf(i->id + at, sizeof(i->id) - (size_t)at, "%016llx/",
			       (unsigned long long)fnv1a(FNV1A_INIT, n->space, strlen(n->space)));
	at += snprintf(i->id + at, sizeof(i->id) - (size_t)at, "%.40s", id);
	if (*n->snap)
		snprintf(i->id + at, sizeof(i->id) - (size_t)at, "@%llu", (unsigned long long)snap);
	return 0;
}

/* librbd 16 compares no more than a sector, and nothing across the border of two objects. */
#define CAW_MAX 512u

static int image_look_over(struct rbd_image *i)
{
	uint64_t bytes = 0, stripe = 0, features = 0;
	int err = i->lib->rbd_get_size(i->image, &bytes);

	if (!err)
		err = i->lib->rbd_get_features(i->image, &features);
	if (!err)
		err = i->lib->rbd_get_stripe_unit(i->image, &stripe);
	if (!err)
		err = image_identity(i);
	if (err)
		return err;
	atomic_store(&i->size, bytes);
	i->locks = features & RBD_LOCKS;
	i->caw_within = (uint32_t)MAX(MIN(stripe, (uint64_t)CAW_MAX), 1u);
	i->volatile_cache = image_caches(i);
	/* Within a stripe unit it is one operation on one object, which RADOS does whole. librbd's
	 * cache would write at other borders. */
	i->atomic_max = i->volatile_cache ? 0 : (uint32_t)MIN(stripe & -stripe, GiB(1));
	if (i->volatile_cache)
		log_notice("%s: librbd has a cache of its own for it (rbd config image list)",
			   i->path);
	if (i->lib->rbd_update_watch(i->image, &i->watch, image_changed, i))
		log_warn("%s: another size of it is seen by resize=1 and refresh=1 only", i->path);
	else
		i->watching = true;
	image_quiesce_watch(i);
	return 0;
}

static int image_open(struct rbd_image *i, char *why, size_t len)
{
	const struct rbd_name *n = &i->name;
	const char *snap = *n->snap ? n->snap : NULL;
	int err = i->lib->rados_ioctx_create(i->cluster->rados, n->pool, &i->ioctx);

	if (err) {
		i->ioctx = NULL;
		snprintf(why, len, "pool %.64s: %s", n->pool, strerror(-err));
		return err;
	}
	i->lib->rados_ioctx_set_namespace(i->ioctx, n->space);
	/* A full pool refuses writes; else librbd would wait until there is room. */
	i->lib->rados_set_pool_full_try(i->ioctx);
	err = i->readonly ? i->lib->rbd_open_read_only(i->ioctx, n->image, &i->image, snap) :
			    i->lib->rbd_open(i->ioctx, n->image, &i->image, NULL);
	if (err)
		i->image = NULL;
	else
		err = image_look_over(i);
	if (err)
		snprintf(why, len, "%s",
			 err == -ETIMEDOUT ? "the cluster does not answer" :
			 err == -ENOENT	   ? "no such image, or snapshot" :
			 err == -EPERM || err == -EACCES ?
					  "the cluster does not let this user do that" :
					  strerror(-err));
	return err;
}

void rbd_image_close(struct rbd_image *i)
{
	image_quiesce_unwatch(i);
	rbd_extents_end(i);
	if (i->watching)
		(void)i->lib->rbd_update_unwatch(i->image, i->watch);
	while (atomic_load(&i->looking))
		usleep(1000);
	if (i->image)
		(void)i->lib->rbd_close(i->image);
	if (i->ioctx)
		i->lib->rados_ioctx_destroy(i->ioctx);
	if (i->cluster)
		rbd_cluster_put(i->lib, i->cluster);
	i->image = NULL;
	i->ioctx = NULL;
	i->cluster = NULL;
}

int rbd_image_open(struct rbd_image *i, char *why, size_t len)
{
	int err;

	i->lib = rbd_lib_load(why, len);
	if (!i->lib)
		return -ENOSYS;
	i->cluster = rbd_cluster_get(i->lib, &i->name, why, len);
	if (!i->cluster)
		return -errno;
	err = image_open(i, why, len);
	if (err)
		rbd_image_close(i);
	return err;
}
