/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the choke point does for devices that cannot: see the table in blk.c. */
#include <stdlib.h>
#include "cache/blk/blk_emul.h"
#include "cache/blk/blk_order.h"
#include "cache/blk/blkpool.h"
#include "cache/blk/extent.h"
#include "events/log.h"

/* ---- bounce blocks --------------------------------------------------------------------------- */

#define BOUNCE_BLOCK KiB(32)
#define BOUNCE_BYTES MiB(64) /* a node; address space until used */

/* One pool a node, made before the first device that needs it; the lock holds makers apart. */
static pthread_mutex_t bounce_lock = PTHREAD_MUTEX_INITIALIZER;
static struct blkpool *bounce[TOPO_MAX_NODES];

static struct blkpool *bounce_of(const struct blk *blk)
{
	struct blkpool *p = bounce[blk->node < 0 ? 0 : blk->node];

	BUG_ON(!p);
	return p;
}

int blk_bounce_init(const struct topology *topo, int node)
{
	struct arena_conf conf = { .name = "bounce",
				   .topo = topo,
				   .node = node < 0 ? 0 : node,
				   .block_size = BOUNCE_BLOCK,
				   .nblocks = BOUNCE_BYTES / BOUNCE_BLOCK,
				   .sparse = true };
	struct blkpool *p;
	int err = 0;

	BUG_ON(conf.node >= TOPO_MAX_NODES);
	pthread_mutex_lock(&bounce_lock);
	if (!bounce[conf.node]) {
		p = aligned_alloc(CACHE_LINE, ALIGN_UP(sizeof(*p), (size_t)CACHE_LINE));
		err = p ? blkpool_init(p, &conf) : -ENOMEM;
		if (err)
			free(p);
		else
			bounce[conf.node] = p;
	}
	pthread_mutex_unlock(&bounce_lock);
	return err;
}

void blk_bounce_fini(void)
{
	for (int i = 0; i < TOPO_MAX_NODES; i++) {
		if (bounce[i] && blkpool_fini(bounce[i]))
			free(bounce[i]);
		bounce[i] = NULL;
	}
}

static uint64_t bounce_len(const struct blk_req *req)
{
	return req->op == BLK_COMPARE_AND_WRITE ? 2 * req->len : req->len;
}

/* The chain becomes the request's fragments. */
static int emul_attach(struct blkpool *p, struct blk_req *req, uint32_t chain)
{
	for (uint64_t left = bounce_len(req); left;) {
		uint32_t n = (uint32_t)MIN(left, BOUNCE_BLOCK);
		struct block *b = blkpool_next(p, &chain);

		if (frags_append(&req->data, block_data(b), n, b)) {
			block_put(b);
			frags_put(&req->data);
			blkpool_put_chain(p, chain);
			return -ENOMEM;
		}
		left -= n;
	}
	req->flags |= BLK_F_BOUNCED;
	return 0;
}

static bool emul_take(struct blkpool *p, struct blk_req *req, uint32_t *chain,
		      void (*granted)(struct loop_msg *))
{
	bool now;

	req->flags = (req->flags & ~BLK_F_CANCELLED) | BLK_F_WAITING;
	now = blkpool_take(p, (uint32_t)DIV_ROUND_UP(bounce_len(req), BOUNCE_BLOCK), chain, req,
			   granted);
	if (now)
		req->flags &= ~BLK_F_WAITING;
	return now;
}

/* A grant arrived: true when the request goes on (with *err). */
static bool emul_taken(struct blkpool *p, struct blk_req *req, int *err)
{
	uint32_t chain;

	req->flags &= ~BLK_F_WAITING;
	if (!blkpool_granted(p, &req->msg, &chain))
		return false;
	*err = emul_attach(p, req, chain);
	return true;
}

static void read_granted(struct loop_msg *msg)
{
	struct blk_req *req = container_of(msg, struct blk_req, msg);
	int err;

	if (!emul_taken(bounce_of(req->blk), req, &err))
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
	struct blkpool *p = bounce_of(blk);
	uint32_t chain;

	if (!emul_take(p, req, &chain, read_granted))
		return false;
	req->status = emul_attach(p, req, chain);
	if (req->status)
		return true;
	req->flags |= BLK_F_INTO;
	return blk->ops->read(blk, req);
}

static void emul_prepare_granted(struct loop_msg *msg)
{
	struct blk_req *req = container_of(msg, struct blk_req, msg);
	int err;

	if (emul_taken(bounce_of(req->blk), req, &err))
		blk_complete_here(req, err);
}

bool blk_bounce_prepare(struct blk *blk, struct blk_req *req)
{
	struct blkpool *p = bounce_of(blk);
	uint32_t chain;

	if (!emul_take(p, req, &chain, emul_prepare_granted))
		return false;
	req->status = emul_attach(p, req, chain);
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
		left = blkpool_cancel(bounce_of(blk), req);
	}
	if (left) {
		req->flags &= ~BLK_F_WAITING;
		blk_complete(req, -ECANCELED);
	} else {
		req->flags |= BLK_F_CANCELLED; /* its grant is on its way */
	}
	return true;
}
