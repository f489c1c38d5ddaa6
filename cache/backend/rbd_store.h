/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a group of gateways does with its rbd stores (bsopts group=): the image is opened and closed
 * below a unit that stays, and locked. @blk is such a store, or a cache on one. An image that is
 * not attached answers requests by -ENODEV.
 *
 * Who stands by detaches it: an open image is a watch in the cluster. A client that dies leaves its
 * watch for 30 s. What librbd tells all who watch takes 5 s then, as it waits for that one. Who has
 * taken the lock tells them, and cannot give it back before.
 *
 * By a thread of offload_submit_library(), one call at a time for a store, unless it says
 * otherwise.
 */
#ifndef CACHE_BACKEND_RBD_STORE_H
#define CACHE_BACKEND_RBD_STORE_H

#include "cache/blk/blk.h"

/* Is it the store of a group? Any thread. */
bool rbd_store_of_group(const struct blk *blk);
/*
 * Opens the image with the group's client (rbd_cluster_get()), unless it is open with that. 0, or
 * -errno with the reason; -ESTALE: it is another image than it was. Its size is taken over by
 * blk_resized(). No request is in flight.
 */
int rbd_store_attach(struct blk *blk, char *why, size_t len) must_check;
/* It is not attached: asks for the image's size, which blk_resized() brings if it is another. (One
 * that is attached is told by librbd.) 0 or -errno. */
int rbd_store_look(struct blk *blk) must_check;
/* Requests fail from now on; those that the cluster has end as they end. Any thread. */
void rbd_store_stop(struct blk *blk);
/* The image is closed, which goes on by itself. No request is in flight. Any thread, while no other
 * call is at work. */
void rbd_store_detach(struct blk *blk);
/* The exclusive lock, which is not given to anybody who asks for it. 0: it is ours; -EBUSY: @holder
 * gets the address that has it. */
int rbd_store_lock(struct blk *blk, char *holder, size_t len) must_check;
/* Takes it from @holder, if that has it; fences nobody. 0 also if it is nobody's by now. */
int rbd_store_break(struct blk *blk, const char *holder) must_check;
/* Gives it back. 0 also if it was not ours. */
int rbd_store_unlock(struct blk *blk) must_check;
/* It is attached, locked, and has what others held for it: requests are taken from now on. Before
 * that, and from rbd_store_stop() on, they fail: what a cache has of it is not written by a gateway
 * that does not own it. Any thread. */
void rbd_store_go(struct blk *blk);
/* NULL: it is not attached. */
struct rbd_image;
struct rbd_image *rbd_store_image(struct blk *blk);

#endif
