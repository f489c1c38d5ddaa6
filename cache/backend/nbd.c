/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A store that a server exports by the network block device protocol: qcow2, VMDK, compressed
 * images and whatever else qemu-nbd and nbdkit serve. The path is a URI: nbd://HOST[:PORT]/EXPORT,
 * nbds:// with TLS, nbd+unix:///EXPORT?socket=PATH, nbds+unix://.
 *
 *  - nbd_link.c has the connection: a thread of the store's own, and how it is made anew.
 *  - FUA is the protocol's, or else a flush after the write. SYNCs are one flush at a time.
 *  - The identity is the server's address and the export's name, for a local socket the socket's
 *    path: a server that is started again makes another inode, and its export is the same. Two
 *    names of one server are taken for two stores: nobody can tell.
 *  - The size is asked for anew by refresh=1 alone, by another connection: the protocol does not
 *    tell of it.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include "cache/backend/backend.h"
#include "cache/backend/nbd_link.h"
#include "cache/backend/nbd_tls.h"
#include "cache/backend/store_flush.h"
#include "cache/backend/store_id.h"
#include "cache/blk/dirty_record.h"
#include "events/hash.h"
#include "events/log.h"

#define NBD_MAX_LEN MiB(1)
#define RENEW_MS 300u

struct nbd {
	struct blk blk;
	struct nbd_link link;
	struct store_opener opener;
	struct store_flush flush;
};

static struct nbd *nbd_of(struct blk *blk)
{
	return container_of(blk, struct nbd, blk);
}

static bool nbd_submit(struct blk *blk, struct blk_req *req)
{
	nbd_link_submit(&nbd_of(blk)->link, req);
	return false;
}

/* ---- SYNC, FUA ------------------------------------------------------------------------------- */

/* The connection is gone, and with it maybe a server's memory: the next SYNC fails. */
static void nbd_link_lost(struct nbd_link *l)
{
	store_may_have_lost(&container_of(l, struct nbd, link)->flush.doubt);
}

static bool nbd_store_sync(struct blk *blk, struct blk_req *req)
{
	struct nbd *n = nbd_of(blk);

	if (unlikely(store_in_doubt(blk, req)))
		return true;
	if (n->link.export.flush && !(blk->caps & BLK_CAP_READONLY))
		return store_flush_sync(&n->flush, req);
	req->status = store_sync_status(blk, &n->flush.doubt, 0);
	return true;
}

static bool nbd_store_write(struct blk *blk, struct blk_req *req)
{
	struct nbd *n = nbd_of(blk);

	if (!(req->flags & BLK_F_FUA))
		return nbd_submit(blk, req);
	if (unlikely(store_in_doubt(blk, req)))
		return true;
	return n->link.export.fua || !n->link.export.flush ? nbd_submit(blk, req) :
							     store_flush_after(&n->flush, req);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static bool nbd_store_discard(struct blk *blk, struct blk_req *req)
{
	if (nbd_of(blk)->link.export.trim)
		return nbd_store_write(blk, req);
	req->status = -EOPNOTSUPP;
	return true;
}

static bool nbd_store_zero(struct blk *blk, struct blk_req *req)
{
	if (!nbd_of(blk)->link.export.zero)
		return blk_zero_by_writing(blk, req);
	return nbd_store_write(blk, req);
}

static bool nbd_store_prefetch(struct blk *blk, struct blk_req *req)
{
	if (nbd_of(blk)->link.export.cache && req->len <= NBD_MAX_LEN)
		return nbd_submit(blk, req);
	req->status = 0;
	return true;
}

static void nbd_store_abort(struct blk *blk, struct blk_req *req)
{
	if (req->op == BLK_READ || (req->op == BLK_WRITE && !(req->flags & BLK_F_FUA)))
		nbd_link_abort(&nbd_of(blk)->link, req);
}

/* What ends within a block of ours is all mapped there. */
static void nbd_whole_blocks(uint32_t block, uint64_t len, enum blk_extent *what, uint64_t *run)
{
	if (*run % block == 0)
		return;
	*run = *what == BLK_EXTENT_MAPPED ? ALIGN_UP(*run, (uint64_t)block) :
					    ALIGN_DOWN(*run, (uint64_t)block);
	if (!*run) {
		*what = BLK_EXTENT_MAPPED;
		*run = block;
	}
	*run = MIN(*run, len);
}

static int nbd_store_extent(struct blk *blk, uint64_t offset, uint64_t len, enum blk_extent *what,
			    uint64_t *run)
{
	int err = nbd_link_extent(&nbd_of(blk)->link, offset, len, what, run);

	if (!err)
		nbd_whole_blocks(blk->block_size, len, what, run);
	return err;
}

static int nbd_resize(struct blk *blk)
{
	struct nbd *n = nbd_of(blk);
	uint64_t bytes;

	if (!nbd_link_renew(&n->link, RENEW_MS))
		log_notice("%s: is asked for its size anew: refresh once more", blk->path);
	bytes = ALIGN_DOWN(atomic_load(&n->link.size), (uint64_t)blk->block_size);
	if (!bytes)
		return -EINVAL;
	if (bytes != blk->size)
		log_notice("%s: size was %llu, is now %llu bytes", blk->path,
			   (unsigned long long)blk->size, (unsigned long long)bytes);
	blk->size = bytes;
	return 0;
}

static int nbd_refresh(struct blk *blk)
{
	int err = nbd_resize(blk);

	if (!err)
		store_looked_at(blk, &nbd_of(blk)->flush.doubt);
	return err;
}

static void nbd_free(struct nbd *n)
{
	store_opener_del(&n->opener);
	store_flush_fini(&n->flush);
	free(n->blk.path);
	free(n);
}

static void nbd_store_close(struct blk *blk)
{
	struct nbd *n = nbd_of(blk);

	nbd_link_close(&n->link);
	dirty_record_put(blk->record);
	nbd_free(n);
}

static const struct blk_ops nbd_ops = {
	.name = "nbd",
	.read = nbd_submit,
	.write = nbd_store_write,
	.sync = nbd_store_sync,
	.discard = nbd_store_discard,
	.zero = nbd_store_zero,
	.prefetch = nbd_store_prefetch,
	.abort = nbd_store_abort,
	.extent = nbd_store_extent,
	.refresh = nbd_refresh,
	.resize = nbd_resize,
	.trust = store_trust,
	.close = nbd_store_close,
};

/* ---- opening --------------------------------------------------------------------------------- */

/* The socket of a local server. False: it is no such URI. */
static bool nbd_socket(const char *uri, char path[PATH_MAX])
{
	const size_t scheme = strcspn(uri, ":");
	char *real;

	if (scheme < 5 || strncasecmp(uri + scheme - 5, "+unix", 5) != 0 ||
	    !nbd_uri_parameter(uri, "socket", path))
		return false;
	real = realpath(path, NULL);
	if (real)
		snprintf(path, PATH_MAX, "%s", real);
	free(real);
	return true;
}

static void nbd_identity(struct nbd *n)
{
	char *const id = n->blk.store_id;
	const char *export = n->link.name ? n->link.name : "";
	const char *uri = n->link.uri, *host = strstr(uri, "://");
	char path[PATH_MAX];

	host = host ? host + 3 : uri;
	if (nbd_socket(uri, path))
		snprintf(id, BLK_STORE_ID_MAX, "nbd:unix:%016llx/%016llx",
			 (unsigned long long)fnv1a(FNV1A_INIT, path, strlen(path)),
			 (unsigned long long)fnv1a(FNV1A_INIT, export, strlen(export)));
	else
		snprintf(id, BLK_STORE_ID_MAX, "nbd:%.*s/%016llx",
			 (int)MIN(strcspn(host, "/?#"), 80), host,
			 (unsigned long long)fnv1a(FNV1A_INIT, export, strlen(export)));
	n->blk.identity = blk_identity(id);
}

/* 0, or -errno with the reason: nobody else of this daemon may have it open otherwise. */
static int nbd_take_in(struct nbd *n, const struct blk_open_args *args, char *why, size_t len)
{
	struct store_opener *o = &n->opener;
	int unlocked;

	o->blk = &n->blk;
	o->fd = -1;
	o->readonly = n->blk.caps & BLK_CAP_READONLY;
	o->shared = args->shared;
	o->uncached = args->uncached;
	snprintf(o->path, sizeof(o->path), "%s", args->path);
	snprintf(o->who, sizeof(o->who), "%s", args->who ? args->who : "");
	return store_opener_add(o, &unlocked, why, len);
}

static int nbd_properties(struct nbd *n, const struct blk_open_args *args, char *why, size_t len)
{
	const struct nbd_export *x = &n->link.export;
	struct blk *b = &n->blk;

	b->block_size = args->block_size ? args->block_size : MAX(512u, x->block_min);
	if (b->block_size < x->block_min || b->block_size > 4096 || x->block_max < KiB(64)) {
		snprintf(why, len,
			 "its requests have %u to %u bytes: blocks of %u cannot be served",
			 x->block_min, x->block_max, b->block_size);
		return -EINVAL;
	}
	b->size = ALIGN_DOWN(x->size, (uint64_t)b->block_size);
	if (!b->size || b->size > 1ull << 62) {
		snprintf(why, len, b->size ? "larger than any unit" : "smaller than one block");
		return -EINVAL;
	}
	b->physical_size = 4096;
	b->max_len = MIN((uint32_t)NBD_MAX_LEN, x->block_max);
	b->caps = (args->readonly || x->readonly ? BLK_CAP_READONLY :
		   x->flush			 ? BLK_CAP_VOLATILE :
						   0u) |
		  (x->trim && !x->readonly ? BLK_CAP_DISCARD : 0u) |
		  (x->zero && !x->readonly ? BLK_CAP_ZERO : 0u) |
		  (x->rotational ? BLK_CAP_ROTATIONAL : 0u);
	return 0;
}

struct blk *nbd_open(const struct blk_open_args *args)
{
	struct nbd *n = calloc(1, sizeof(*n));
	const char *path = args->path ? args->path : "";
	char why[600] = "no memory";
	int err;

	if (!n || !(n->blk.path = strdup(path))) {
		free(n);
		return backend_fail(args, ENOMEM, "%s: no memory", path);
	}
	store_flush_init(&n->flush, &n->blk, nbd_submit);
	n->blk.ops = &nbd_ops;
	n->blk.node = args->node;
	n->link.uri = n->blk.path;
	n->link.lost = nbd_link_lost;
	if (strncmp(path, "nbd", 3) != 0 || !strstr(path, "://")) {
		nbd_free(n);
		return backend_fail(
			args, EINVAL,
			"%s: a URI is wanted, such as nbd://server/export or nbd+unix:///export?socket=/path",
			path);
	}
	err = nbd_link_open(&n->link, args->node, why, sizeof(why));
	if (err) {
		/* Who has asked is told the beginning of it. */
		log_warn("%s: cannot be connected to: %s", path, why);
		nbd_free(n);
		/* EACCES and EROFS would have the administrator's tool open a file of that name */
		err = err == -EACCES || err == -EPERM || err == -EROFS ? -ECONNREFUSED : err;
		return backend_fail(args, -err, "%s: %s", path, why);
	}
	nbd_identity(n);
	err = nbd_properties(n, args, why, sizeof(why));
	if (!err)
		err = nbd_take_in(n, args, why, sizeof(why));
	if (err) {
		nbd_link_close(&n->link);
		nbd_free(n);
		return backend_fail(args, -err, "%s: %s", path, why);
	}
	if (!(n->blk.caps & BLK_CAP_READONLY))
		n->blk.record = dirty_record_get(-1, n->blk.store_id, "", path);
	return &n->blk;
}
