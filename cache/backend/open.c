/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The table of backing stores. */
#include "cache/backend/backend.h"
#include "cache/backend/store_under_way.h"
#include "cache/blk/blk_overdue.h"

static const struct backend {
	const char *name;
	struct blk *(*open)(const struct blk_open_args *args);
	bool bounce; /* no memory of its own */
	bool server; /* ... and what it is asked for is not counted (store_under_way.h) */
} backends[] = {
	{ "aio", aio_open, true, false },
	{ "ram", ram_open, false, false },
	{ "null", null_open, false, false },
#ifdef HAVE_LIBNBD
	{ "nbd", nbd_open, true, true },
#endif
	{ "rbd", rbd_open_store, true, true },
};

const char *const blk_bstypes[] = {
	"aio", "rdwr", "ram", "null",
#ifdef HAVE_LIBNBD
	"nbd",
#endif
	"rbd", NULL,
};

const char *blk_bstype_lacks(const char *bstype)
{
#ifndef HAVE_LIBNBD
	if (strcmp(bstype, "nbd") == 0)
		return "libnbd";
#endif
	(void)bstype;
	return NULL;
}

struct blk *blk_open(const char *bstype, const struct blk_open_args *args)
{
	if (args->err && args->err_len)
		args->err[0] = '\0';
	if (args->block_size && args->block_size != 512 && args->block_size != 4096)
		return backend_fail(args, EINVAL, "block size %u: only 512 and 4096 are possible",
				    args->block_size);
	if (strcmp(bstype, "rdwr") == 0)
		bstype = "aio";
	for (size_t i = 0; i < ARRAY_SIZE(backends); i++) {
		struct blk *blk;
		int err;

		if (strcmp(bstype, backends[i].name) != 0)
			continue;
		if (backends[i].bounce && args->path && under_way_at_path(args->path))
			return backend_fail(args, EINPROGRESS, "%s: " UNDER_WAY_WHY, args->path);
		err = backends[i].bounce ? blk_bounce_init(args->topo, args->node) : 0;
		if (err)
			return backend_fail(args, -err, "no memory for bounce blocks: %s",
					    strerror(-err));
		blk = backends[i].open(args);
		if (blk && backends[i].bounce) {
			blk_overdue_open(blk);
			if (blk_bounce_open(blk)) {
				blk_close(blk);
				return backend_fail(args, ENOMEM, "no memory");
			}
		}
		if (blk && backends[i].server)
			under_way_always(args->path);
		return blk;
	}
	return backend_fail(args, EINVAL, "unknown backing store type '%s'", bstype);
}
