/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The table of backing stores. */
#include "cache/backend/backend.h"
#include "cache/blk/blk_overdue.h"

static const struct backend {
	const char *name;
	struct blk *(*open)(const struct blk_open_args *args);
	bool bounce; /* no memory of its own */
} backends[] = {
	{ "aio", aio_open, true },	 { "ram", ram_open, false }, { "null", null_open, false },
#ifdef HAVE_LIBNBD
	{ "nbd", nbd_open, true },
#endif
	{ "rbd", rbd_open_store, true },
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
		return blk;
	}
	return backend_fail(args, EINVAL, "unknown backing store type '%s'", bstype);
}
