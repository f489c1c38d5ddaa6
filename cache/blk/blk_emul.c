/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the choke point does for devices that cannot: see the table in blk.c. */
#include <stdlib.h>
#include "cache/blk/blk_emul.h"
#include "cache/blk/blk_order.h"
#include "cache/blk/bounce.h"
#include "cache/blk/extent.h"
#include "events/log.h"

/* ---- bounce blocks --------------------------------------------------------------------------- */

static uint64_t bounce_len(const struct blk_req *req)
{
	return req->op == BLK_COMPARE_AND_WRITE ? 2 * req->len : req->len;
}

static uint32_t bounce_blocks(const struct blk_req *req)
{
	return (uint32_t)DIV_ROUND_UP(bounce_len(req), BOUNCE_BLOCK);
}

/* The chain becomes the request's fragments. */
static int emul_attach(struct blk_req *req, uint32_t chain)
{
	return bounce_attach(req, bounce_blocks(req), bounce_len(req), chain);
}

static bool emul_take(struct blk *blk, struct blk_req *req, uint32_t *chain,
		      void (*granted)(struct loop_msg *))
{
	bool now;

	req->flags = (req->flags & ~BLK_F_CANCELLED) | BLK_F_WAITING;
	now = bounce_take(blk, req, bounce_blocks(req), chain, granted);
	if (now)
		req->flags &= ~BLK_F_WAITING;
	return now;
}

/* A grant arrived: true when the request goes on (with *err). */
static bool emul_taken(struct blk_req *req, int *err)
{
	uint32_t chain;

	req->flags &= ~BLK_F_WAITING;
	if (!bounce_granted(req, bounce_blocks(req), &chain))
		return false;
	*err = emul_attach(req, chain);
	return true;
}

static void read_granted(struct loop_msg *msg)
{
	struct blk_req *req = container_of(msg, struct blk_req, msg);
	int err;

	if (!emul_taken(req, &err))
		return;
	if (err) {
		blk_complete_here(req, err);
		return;
	}
	req->flags |= BLK_F_INTO;
	if (req->blk->ops->read(req->blk, req))
		blk_complete_here(req, req->status);
}

bool blk_bounce_read(struct blk *blk, struct blk_req *req)
{
	uint32_t chain;

	if (!emul_take(blk, req, &chain, read_granted))
		return false;
	req->status = emul_attach(req, chain);
	if (req->status)
		return true;
	req->flags |= BLK_F_INTO;
	return blk->ops->read(blk, req);
}

static void emul_prepare_granted(struct loop_msg *msg)
{
	struct blk_req *req = container_of(msg, struct blk_req, msg);
	int err;

	if (emul_taken(req, &err))
		blk_complete_here(req, err);
}

bool blk_bounce_prepare(struct blk *blk, struct blk_req *req)
{
	uint32_t chain;

	if (!emul_take(blk, req, &chain, emul_prepare_granted))
		return false;
	req->status = emul_attach(req, chain);
	return true;
}

/* ---- ZERO ------------------------------------------------------------------------------------ */

#define ZERO_PIECE KiB(256)

struct zeroing {
	struct blk_req io;
	struct blk_req *parent;
	uint64_t at;
};

/* Aligned for direct I/O; never written. */
static uint8_t zeros[KiB(64)] __attribute__((aligned(4096)));

/* Writes pieces until one takes its time (false) or all is done (true; z->parent->status). */
static bool zero_go(struct zeroing *z)
{
	struct blk_req *parent = z->parent;
	struct blk *blk = parent->blk;

	while (parent->status == 0 && z->at < parent->offset + parent->len) {
		uint64_t len = MIN(parent->offset + parent->len - z->at,
				   MIN(ZERO_PIECE, (uint64_t)blk->max_len));

		z->io.op = BLK_WRITE;
		z->io.flags =
			BLK_F_FROM | (parent->flags & (BLK_F_FUA | BLK_F_DPO | BLK_F_BACKGROUND));
		z->io.blk = blk;
		z->io.home = parent->home;
		z->io.offset = z->at;
		z->io.len = len;
		frags_forget(&z->io.data);
		for (uint64_t left = len; left; left -= MIN(left, sizeof(zeros)))
			BUG_ON(frags_append(&z->io.data, zeros, (uint32_t)MIN(left, sizeof(zeros)),
					    NULL));
		z->at += len;
		if (!blk->ops->write(blk, &z->io))
			return false;
		parent->status = z->io.status;
	}
	frags_forget(&z->io.data);
	blk_req_fini(&z->io);
	free(z);
	return true;
}
static_assert(ZERO_PIECE / sizeof(zeros) <= FRAGS_INLINE, "a piece needs no allocation");

static void zero_wrote(struct blk_req *io)
{
	struct zeroing *z = container_of(io, struct zeroing, io);
	struct blk_req *parent = z->parent;

	parent->status = io->status;
	if (zero_go(z))
		blk_complete_here(parent, parent->status);
}

bool blk_zero_by_writing(struct blk *blk, struct blk_req *req)
{
	struct zeroing *z = malloc(sizeof(*z));

	req->status = z ? 0 : -ENOMEM;
	if (!z)
		return true;
	blk_req_init(&z->io);
	z->io.done = zero_wrote;
	z->parent = req;
	z->at = req->offset;
	return zero_go(z);
}

/* ---- COMPARE AND WRITE ----------------------------------------------------------------------- */

struct caw {
	struct extent_hold hold;
	struct blk_req io;
	struct blk_req *parent;
	struct blk_order *order;
	struct blk_order_wait drain;
	enum { CAW_DRAINING, CAW_QUEUED, CAW_HELD } stage;
	uint8_t *was;
};

/* Ends it; true for the convenience of callers that complete on the spot. */
static bool caw_end(struct caw *c, int status)
{
	c->parent->status = status;
	c->parent->drv = NULL;
	if (c->stage == CAW_HELD)
		extent_release(&c->order->extents, &c->hold);
	frags_forget(&c->io.data); /* borrowed */
	blk_req_fini(&c->io);
	free(c->was);
	free(c);
	return true;
}

static void caw_io(struct caw *c, enum blk_op op, unsigned flags)
{
	c->io.op = op;
	c->io.flags = (uint16_t)flags;
	c->io.blk = c->parent->blk;
	c->io.home = c->parent->home;
	c->io.offset = c->parent->offset;
	c->io.len = c->parent->len;
	frags_forget(&c->io.data);
}

static void caw_wrote(struct blk_req *io)
{
	struct caw *c = container_of(io, struct caw, io);
	struct blk_req *parent = c->parent;

	caw_end(c, io->status);
	blk_complete_here(parent, parent->status);
}

static bool caw_compare(struct caw *c)
{
	struct blk_req *parent = c->parent;
	uint64_t skip = parent->len;
	int err = c->io.status;

	if (err)
		return caw_end(c, err);
	parent->miscompare = frags_compare(&parent->data, 0, c->was, parent->len);
	if (parent->miscompare < parent->len)
		return caw_end(c, -EILSEQ);
	caw_io(c, BLK_WRITE, BLK_F_FROM | (parent->flags & (BLK_F_FUA | BLK_F_DPO)));
	for (uint32_t i = 0; i < parent->data.n && !err; i++) {
		const struct frag *f = &parent->data.v[i];
		uint32_t off = (uint32_t)MIN(skip, (uint64_t)f->len);

		skip -= off;
		if (off < f->len)
			err = frags_append(&c->io.data, f->base + off, f->len - off, NULL);
	}
	if (err)
		return caw_end(c, err);
	c->io.done = caw_wrote;
	return parent->blk->ops->write(parent->blk, &c->io) ? caw_end(c, c->io.status) : false;
}

static void caw_read(struct blk_req *io)
{
	struct caw *c = container_of(io, struct caw, io);
	struct blk_req *parent = c->parent;

	if (caw_compare(c))
		blk_complete_here(parent, parent->status);
}

static bool caw_held(struct caw *c)
{
	struct blk_req *parent = c->parent;

	c->stage = CAW_HELD;
	parent->flags &= ~BLK_F_WAITING;
	if (parent->flags & BLK_F_CANCELLED)
		return caw_end(c, -ECANCELED);
	caw_io(c, BLK_READ, BLK_F_INTO | (parent->flags & BLK_F_DPO));
	BUG_ON(frags_append(&c->io.data, c->was, (uint32_t)parent->len, NULL));
	c->io.done = caw_read;
	return parent->blk->ops->read(parent->blk, &c->io) ? caw_compare(c) : false;
}

static void caw_granted(struct extent_hold *hold)
{
	struct caw *c = container_of(hold, struct caw, hold);
	struct blk_req *parent = c->parent;

	if (caw_held(c))
		blk_complete_here(parent, parent->status);
}

static bool caw_acquire(struct caw *c)
{
	c->stage = CAW_QUEUED;
	return extent_acquire(&c->order->extents, &c->hold, c->parent->offset, c->parent->len, true,
			      caw_granted) &&
	       caw_held(c);
}

static void caw_drained(struct loop_msg *msg)
{
	struct caw *c = container_of(msg, struct caw, drain.msg);
	struct blk_req *parent = c->parent;

	if (caw_acquire(c))
		blk_complete_here(parent, parent->status);
}

bool blk_emulate_caw(struct blk *blk, struct blk_req *req)
{
	struct blk_order *o = blk_order_get(blk);
	struct caw *c = o ? malloc(sizeof(*c)) : NULL;

	req->status = -ENOMEM;
	if (!c)
		return true;
	c->was = aligned_alloc(4096, ALIGN_UP(req->len, 4096ull));
	if (!c->was) {
		free(c);
		return true;
	}
	blk_req_init(&c->io);
	c->parent = req;
	c->order = o;
	c->stage = CAW_DRAINING;
	list_init(&c->drain.link);
	c->drain.msg.handle = caw_drained;
	c->drain.home = req->home;
	req->drv = c;
	req->flags = (req->flags & ~BLK_F_CANCELLED) | BLK_F_WAITING;

	return blk_order_drain(blk, o, &c->drain) ? false : caw_acquire(c);
}

/* ---- abort ----------------------------------------------------------------------------------- */

/* True: @c left the queue it was in. */
static bool caw_leave(struct caw *c)
{
	return c->stage == CAW_QUEUED ? extent_cancel(&c->order->extents, &c->hold) :
					blk_order_leave(c->order, &c->drain);
}

bool blk_emul_abort(struct blk *blk, struct blk_req *req)
{
	bool left;

	if (!(req->flags & BLK_F_WAITING))
		return false;
	if (req->choke) {
		left = blk_order_cancel(blk, req);
	} else if (req->op == BLK_COMPARE_AND_WRITE && !(req->flags & BLK_F_PREPARING)) {
		left = caw_leave(req->drv);
		if (left)
			caw_end(req->drv, -ECANCELED);
	} else {
		left = bounce_cancel(blk, req, bounce_blocks(req));
	}
	if (left) {
		req->flags &= ~BLK_F_WAITING;
		blk_complete(req, -ECANCELED);
	} else {
		req->flags |= BLK_F_CANCELLED; /* its grant is on its way */
	}
	return true;
}
