/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A store with a volatile write cache whose power can be cut. See blk_pass.h. */
#include <stdlib.h>
#include <string.h>
#include "tests/support/blk_pass.h"
#include "tests/support/blktest.h"

/* One unsynced write. */
struct unsynced {
	struct list link;
	uint64_t serial, offset, len;
	bool whole; /* BLK_F_ATOMIC: not to be torn */
	uint8_t data[];
};

struct crash {
	struct blk blk;
	pthread_mutex_t lock; /* guards all of this */
	uint8_t *image;	      /* what reads see */
	struct list log;      /* struct unsynced, oldest first */
	uint64_t serial, unsynced, seed;
	unsigned writes_left, syncs_left;
	bool off;
};

static struct crash *crash_of(struct blk *blk)
{
	return container_of(blk, struct crash, blk);
}

/* ---- the medium ------------------------------------------------------------------------------ */

static void medium(struct crash *c, enum blk_op op, uint64_t offset, uint64_t len, uint8_t *data)
{
	struct blk *lower = c->blk.lower;
	struct blk_req io;

	blk_req_init(&io);
	for (uint64_t at = 0; at < len; at += io.len) {
		io.op = op;
		io.flags = op == BLK_READ ? BLK_F_INTO : BLK_F_FROM;
		io.offset = offset + at;
		io.len = MIN(len - at, (uint64_t)lower->max_len);
		frags_forget(&io.data);
		BUG_ON(frags_append(&io.data, data + at, (uint32_t)io.len, NULL));
		BUG_ON(!blk_submit(lower, &io) || io.status);
	}
	frags_forget(&io.data);
	blk_req_fini(&io);
}

static void forget(struct crash *c, struct unsynced *u)
{
	list_del(&u->link);
	c->unsynced -= u->len;
	free(u);
}

/* Everything up to @serial that touches [offset, offset+len) goes to the medium. A drive may write
 * more than it is asked to; it never has to, so it does not. */
static void bring_down(struct crash *c, uint64_t serial, uint64_t offset, uint64_t len)
{
	struct unsynced *u, *tmp;

	list_for_each_safe(u, tmp, &c->log, link) {
		if (u->serial > serial || u->offset >= offset + len || offset >= u->offset + u->len)
			continue;
		/* It goes whole; what it overwrote elsewhere must not land after it. (What is
		 * earlier lies before it on the list, so @tmp stays.) */
		bring_down(c, u->serial - 1, u->offset, u->len);
		medium(c, BLK_WRITE, u->offset, u->len, u->data);
		forget(c, u);
	}
}

static void cut(struct crash *c)
{
	struct unsynced *u, *tmp;

	c->off = true;
	c->writes_left = c->syncs_left = 0;
	list_for_each_safe(u, tmp, &c->log, link) {
		switch (bt_random(&c->seed) % (u->whole ? 2 : 3)) {
		case 0: /* lands */
			medium(c, BLK_WRITE, u->offset, u->len, u->data);
			break;
		case 1:
			break; /* vanishes */
		default: /* is torn */
			for (uint64_t at = 0; at < u->len; at += c->blk.block_size)
				if (bt_random(&c->seed) & 1)
					medium(c, BLK_WRITE, u->offset + at, c->blk.block_size,
					       u->data + at);
			break;
		}
		forget(c, u);
	}
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Counts down; true when the power goes now. */
static bool expired(unsigned *left)
{
	return *left && --*left == 0;
}

/* @data NULL: zeros. */
static int store(struct crash *c, const struct blk_req *req, const struct frags *data,
		 uint64_t skip)
{
	struct unsynced *u = malloc(sizeof(*u) + req->len);

	BUG_ON(!u);
	u->offset = req->offset;
	u->len = req->len;
	u->serial = ++c->serial;
	u->whole = req->flags & BLK_F_ATOMIC;
	if (data)
		frags_copy_out(data, skip, u->data, req->len);
	else
		memset(u->data, 0, req->len);
	memcpy(c->image + req->offset, u->data, req->len);
	list_add_tail(&c->log, &u->link);
	c->unsynced += u->len;
	if (expired(&c->writes_left)) {
		cut(c);
		return -ENODEV;
	}
	if (req->flags & BLK_F_FUA)
		bring_down(c, u->serial, req->offset, req->len);
	return 0;
}

static int perform(struct crash *c, struct blk_req *req)
{
	if (c->off)
		return -ENODEV;
	switch ((enum blk_op)req->op) {
	case BLK_READ:
		if (req->flags & BLK_F_FUA)
			bring_down(c, c->serial, req->offset, req->len);
		frags_copy_in(&req->data, 0, c->image + req->offset, req->len);
		return 0;
	case BLK_WRITE:
		return store(c, req, &req->data, 0);
	case BLK_ZERO:
	case BLK_DISCARD:
		return store(c, req, NULL, 0);
	case BLK_COMPARE_AND_WRITE:
		req->miscompare = frags_compare(&req->data, 0, c->image + req->offset, req->len);
		return req->miscompare < req->len ? -EILSEQ : store(c, req, &req->data, req->len);
	case BLK_SYNC:
		if (expired(&c->syncs_left)) {
			cut(c);
			return -ENODEV;
		}
		bring_down(c, c->serial, req->offset,
			   req->len ? req->len : c->blk.size - req->offset);
		return 0;
	case BLK_PREFETCH:
		return 0;
	case BLK_OPS:
		break;
	}
	BUG("unknown operation");
}

static bool crash_op(struct blk *blk, struct blk_req *req)
{
	struct crash *c = crash_of(blk);
	int status;

	pthread_mutex_lock(&c->lock);
	status = perform(c, req);
	pthread_mutex_unlock(&c->lock);
	blk_complete(req, status);
	return false;
}

static void crash_close(struct blk *blk)
{
	struct crash *c = crash_of(blk);

	while (!list_empty(&c->log))
		forget(c, list_first(&c->log, struct unsynced, link));
	blk_close(blk->lower);
	free(blk->path);
	free(c->image);
	free(c);
}

static const struct blk_ops crash_ops = {
	.name = "crash",
	.read = crash_op,
	.write = crash_op,
	.sync = crash_op,
	.discard = crash_op,
	.zero = crash_op,
	.compare_and_write = crash_op,
	.prefetch = crash_op,
	.close = crash_close,
};

struct blk *blk_crash_create(struct blk *lower, uint64_t seed)
{
	struct crash *c = calloc(1, sizeof(*c));

	BUG_ON(!c || blk_bounce_init(NULL, lower->node));
	pthread_mutex_init(&c->lock, NULL);
	list_init(&c->log);
	c->seed = seed;
	c->image = malloc(lower->size);
	BUG_ON(!c->image);
	c->blk.ops = &crash_ops;
	c->blk.size = lower->size;
	c->blk.block_size = lower->block_size;
	c->blk.physical_size = lower->physical_size;
	c->blk.max_len = lower->max_len;
	c->blk.caps = BLK_CAP_DISCARD | BLK_CAP_DISCARD_ZEROES | BLK_CAP_VOLATILE;
	c->blk.node = lower->node;
	c->blk.identity = lower->identity;
	memcpy(c->blk.store_id, lower->store_id, sizeof(c->blk.store_id));
	c->blk.path = strdup(lower->path);
	c->blk.lower = lower;
	medium(c, BLK_READ, 0, lower->size, c->image);
	return &c->blk;
}

void blk_crash_cut(struct blk *blk)
{
	struct crash *c = crash_of(blk);

	pthread_mutex_lock(&c->lock);
	cut(c);
	pthread_mutex_unlock(&c->lock);
}

void blk_crash_cut_at(struct blk *blk, unsigned writes, unsigned syncs)
{
	struct crash *c = crash_of(blk);

	pthread_mutex_lock(&c->lock);
	c->writes_left = writes;
	c->syncs_left = syncs;
	pthread_mutex_unlock(&c->lock);
}

bool blk_crash_is_off(struct blk *blk)
{
	struct crash *c = crash_of(blk);
	bool off;

	pthread_mutex_lock(&c->lock);
	off = c->off;
	pthread_mutex_unlock(&c->lock);
	return off;
}

void blk_crash_power_on(struct blk *blk)
{
	struct crash *c = crash_of(blk);

	pthread_mutex_lock(&c->lock);
	BUG_ON(!list_empty(&c->log));
	medium(c, BLK_READ, 0, c->blk.size, c->image);
	c->off = false;
	pthread_mutex_unlock(&c->lock);
}

uint64_t blk_crash_unsynced(struct blk *blk)
{
	struct crash *c = crash_of(blk);
	uint64_t n;

	pthread_mutex_lock(&c->lock);
	n = c->unsynced;
	pthread_mutex_unlock(&c->lock);
	return n;
}
