/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Constructors of the backing stores, for blk_open() only; and what they share. */
#ifndef CACHE_BACKEND_BACKEND_H
#define CACHE_BACKEND_BACKEND_H

#include "cache/blk/blk.h"

/* NULL with errno and args->err. Any thread that may block. */
struct blk *aio_open(const struct blk_open_args *args) must_check;
struct blk *ram_open(const struct blk_open_args *args) must_check;
struct blk *null_open(const struct blk_open_args *args) must_check;
struct blk *nbd_open(const struct blk_open_args *args) must_check; /* HAVE_LIBNBD */
struct blk *rbd_open_store(const struct blk_open_args *args) must_check;

/* Reads a size: digits with an optional k, m, g, t, p (powers of 1024, any case, an optional
 * B or iB behind). 0, or -EINVAL, -ERANGE. *end (may be NULL: then all must be used) gets
 * what follows. */
int backend_size(const char *text, uint64_t *bytes, const char **end);
/* What the caller of a store sees of an error that a system call returned (both negative). */
int backend_status(int err);
/* Writes args->err, sets errno to @err (positive) and returns NULL. */
void *backend_fail(const struct blk_open_args *args, int err, const char *fmt, ...)
	printf_like(3, 4);

#endif
