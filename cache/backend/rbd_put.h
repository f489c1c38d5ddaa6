/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writes to an image of a gateway group that no loop waits for: what a takeover brings. The image
 * is attached and locked here (rbd_store.h), and not yet for anybody else to use.
 *
 *     rbd_put_begin(&p, blk);
 *     rbd_put(&p, ...);  rbd_put_zeroes(&p, ...);      some at a time are under way
 *     err = rbd_put_end(&p);                           all of them are stable, or not
 *
 * A thread of offload_submit_library(), one for each struct. It waits for the cluster, which
 * answers each request within a time (cache/backend/README.md).
 */
#ifndef CACHE_BACKEND_RBD_PUT_H
#define CACHE_BACKEND_RBD_PUT_H

#include <semaphore.h>
#include "cache/blk/blk.h"

struct rbd_image;
struct rbd_put {
	struct rbd_image *image;
	sem_t room;
	_Atomic int err; /* the first one */
};

/* 0, or -ENODEV: it is not attached; then there is nothing to be ended. */
int rbd_put_begin(struct rbd_put *p, struct blk *blk) must_check;
/* The size of the image in bytes. */
uint64_t rbd_put_size(const struct rbd_put *p);
/* @data is copied. Within the size. What fails is told by rbd_put_end(). */
void rbd_put(struct rbd_put *p, uint64_t offset, const void *data, size_t len);
/* Zeros there; any length. */
void rbd_put_zeroes(struct rbd_put *p, uint64_t offset, uint64_t len);
/* 0: the image has all of it, stable. -errno: of any of it that is not known. */
int rbd_put_end(struct rbd_put *p) must_check;

#endif
