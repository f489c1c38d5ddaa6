/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What concerns several blocks at once, and must be ordered against the writes of each:
 *
 *     ZERO     WAITS -> SENT -> STORE -> ENDS -> LAST      UNMAP, WRITE SAME of zeros
 *     CUT      WAITS -> SENT                               the LU has become smaller
 *     group    WAITS -> SENT                               with a mirror: COMPARE AND WRITE
 *              WAITS -> STORE                              without one
 *
 * The caller has the blocks alone. None of them is sent or released meanwhile, and an order waits
 * until nothing of them is under way. So no frame of a write can pass one of an order.
 *
 * A tombstone stays at the peer until the store has done it, and the range stays the caller's until
 * the peer has forgotten it. Else a takeover would zero what was written after it.
 *
 * A group's blocks change when the peer has all of them, not before: what is written out when the
 * peer is lost is then never a part of a group.
 */
#include "tgtd/cluster/mirror_impl.h"

/* The next of the order's blocks that has something to be done, from *@i on; NULL: none. */
static struct mirror_block *order_next(const struct mirror_owner *o, const struct mirror_order *r,
				       uint64_t *i)
{
	const bool scan = r->op != MIRROR_WRITE && r->count > o->cfg.blocks;
	const uint64_t n = scan ? o->cfg.blocks : r->op == MIRROR_WRITE ? r->n : r->count;

	while (*i < n) {
		const uint64_t k = (*i)++;
		struct mirror_block *b =
			scan ? &o->block[k] :
			       mirror_block_find(o, r->op == MIRROR_WRITE ? r->block[k] :
									    r->first + k);

		if (b && (!scan || (b->used && b->block - r->first < r->count)))
			return b;
	}
	return NULL;
}

static bool order_is_quiet(const struct mirror_owner *o, const struct mirror_order *r)
{
	struct mirror_block *b;

	for (uint64_t i = 0; (b = order_next(o, r, &i));)
		if (b->sent || (o->link == LINK_UP && b->unsent) || b->safe < b->gen)
			return false;
	return true;
}

/* Its blocks are its own, or given back. */
static void order_holds(struct mirror_owner *o, const struct mirror_order *r, uint64_t group)
{
	struct mirror_block *b;

	for (uint64_t i = 0; (b = order_next(o, r, &i));) {
		b->group = group;
		if (!group)
			mirror_block_look(o, b);
	}
}

static void order_is_over(struct mirror_owner *o, struct mirror_order *r)
{
	const struct mirror_order was = *r;

	r->step = ORDER_FREE;
	order_holds(o, &was, 0);
	if (was.op != MIRROR_WRITE)
		o->ops->zero_done(o->arg, was.cookie);
	if (o->full) {
		o->full = false;
		o->ops->room(o->arg);
	}
}

/* The blocks of a group change now. */
static void group_is_held(struct mirror_owner *o, struct mirror_order *r, bool peer)
{
	for (unsigned i = 0; i < r->n; i++) {
		struct mirror_block *b = mirror_block_find(o, r->block[i]);

		b->gen = r->gen;
		b->dirty |= r->map[i];
		if (peer) {
			b->at = true;
			b->there = r->gen;
		} else {
			b->unsent |= r->map[i];
		}
	}
	o->ops->group_held(o->arg, r->cookie, r->gen);
	if (peer)
		order_is_over(o, r);
	else
		r->step = ORDER_STORE;
}

/* ---- sending --------------------------------------------------------------------------------- */
static void order_frame(struct mirror_owner *o, struct mirror_order *r, uint64_t now)
{
	struct mirror_frame *f = &o->frame;

	r->sent = true;
	f->n = 0;
	if (r->op != MIRROR_WRITE) {
		f->record[f->n++] =
			(struct mirror_record){ .op = r->step == ORDER_LAST ? MIRROR_UNZERO : r->op,
						.block = r->first,
						.gen = r->gen,
						.map = r->op == MIRROR_ZERO ? r->count : 0 };
		mirror_send_frame(o, r->channel, now);
		return;
	}
	for (unsigned i = 0; i < r->n; i++) {
		f->record[f->n++] = (struct mirror_record){ .op = MIRROR_WRITE,
							    .more = i + 1u < r->n,
							    .block = r->block[i],
							    .gen = r->gen,
							    .map = r->map[i],
							    .cookie = r->cookie };
		if (mirror_breaks(BREAK_GROUP) && i + 1u < r->n) {
			f->record[f->n - 1].more = false;
			mirror_send_frame(o, (r->channel + 1) % 2, now);
			if (!mirror_send_has_room(o))
				return;
		}
	}
	counter_add(&o->counts.writes, r->n);
	mirror_send_frame(o, r->channel, now);
}

/* A group's blocks are there from here on, also those that nobody had changed. */
static bool group_has_room(struct mirror_owner *o, const struct mirror_order *r)
{
	uint32_t more = 0;

	for (unsigned i = 0; i < r->n; i++)
		more += !mirror_block_find(o, r->block[i]);
	if (more && o->used + more > mirror_blocks_limit(o))
		return false;
	for (unsigned i = 0; i < r->n; i++) {
		struct mirror_block *b = mirror_block_get(o, r->block[i]);

		if (!b->queued)
			b->channel = r->channel;
	}
	return true;
}

static void order_begins(struct mirror_owner *o, struct mirror_order *r, uint64_t now)
{
	/* A mirror that begins must find all of a group, or nothing. */
	const bool through =
		o->mode == MIRROR_THROUGH && (o->link == LINK_NONE || r->op != MIRROR_WRITE);

	if ((!through && o->mode != MIRROR_VALID) || o->setting || !order_is_quiet(o, r))
		return;
	if ((!through && !mirror_send_has_room(o)) || !group_has_room(o, r))
		return;
	if (!r->gen)
		r->gen = ++o->gen;
	if (through && r->op == MIRROR_WRITE) {
		order_holds(o, r, r->gen);
		group_is_held(o, r, false);
	} else if (through && r->op == MIRROR_CUT) {
		order_is_over(o, r);
	} else if (through || (mirror_breaks(BREAK_TOMB_FIRST) && r->op == MIRROR_ZERO)) {
		order_holds(o, r, r->gen);
		r->step = ORDER_STORE;
		o->ops->zero_held(o->arg, r->cookie);
	} else {
		order_holds(o, r, r->gen);
		r->step = ORDER_SENT;
		order_frame(o, r, now);
	}
}

/* Without a mirror: the store has all of a group. */
static bool group_is_stored(const struct mirror_owner *o, const struct mirror_order *r)
{
	struct mirror_block *b;

	for (uint64_t i = 0; (b = order_next(o, r, &i));)
		if (b->store < r->gen)
			return false;
	return true;
}

static void order_run(struct mirror_owner *o, struct mirror_order *r, uint64_t now)
{
	if (r->step == ORDER_WAITS)
		order_begins(o, r, now);
	if (r->step == ORDER_STORE && r->op == MIRROR_WRITE && group_is_stored(o, r))
		order_is_over(o, r);
	if (r->step == ORDER_ENDS && (o->mode == MIRROR_THROUGH || mirror_breaks(BREAK_UNZERO))) {
		order_is_over(o, r);
	} else if (r->step == ORDER_ENDS && o->mode == MIRROR_VALID && order_is_quiet(o, r) &&
		   mirror_send_has_room(o)) {
		r->step = ORDER_LAST;
		order_frame(o, r, now);
	}
	if ((r->step == ORDER_SENT || r->step == ORDER_LAST) && !r->sent && mirror_send_has_room(o))
		order_frame(o, r, now);
}

void mirror_orders_run(struct mirror_owner *o, uint64_t now)
{
	for (unsigned i = 0; i < MIRROR_ORDERS; i++)
		if (o->order[i].step != ORDER_FREE)
			order_run(o, &o->order[i], now);
}

/* ---- what comes back ------------------------------------------------------------------------- */
bool mirror_order_acked(struct mirror_owner *o, uint8_t op, uint64_t gen)
{
	for (unsigned i = 0; i < MIRROR_ORDERS; i++) {
		struct mirror_order *r = &o->order[i];

		if (r->step == ORDER_FREE || r->gen != gen || !r->sent)
			continue;
		r->sent = false;
		if (op == MIRROR_UNZERO || op == MIRROR_CUT) {
			order_is_over(o, r);
		} else if (op == MIRROR_WRITE) {
			group_is_held(o, r, true);
		} else {
			r->step = ORDER_STORE;
			o->ops->zero_held(o->arg, r->cookie);
		}
		return true;
	}
	return false;
}

void mirror_orders_again(struct mirror_owner *o)
{
	for (unsigned i = 0; i < MIRROR_ORDERS; i++)
		o->order[i].sent = false;
}

void mirror_orders_restart(struct mirror_owner *o, bool settled)
{
	for (unsigned i = 0; i < MIRROR_ORDERS; i++) {
		struct mirror_order *r = &o->order[i];

		r->sent = false;
		if (r->step == ORDER_SENT) {
			r->step = ORDER_WAITS;
			r->gen = 0;
			order_holds(o, r, 0);
		} else if (r->step == ORDER_LAST) {
			r->step = ORDER_ENDS;
		}
		if (r->step == ORDER_ENDS && settled)
			order_is_over(o, r); /* no mirror that counts has its tombstone */
	}
}

bool mirror_orders_at_store(const struct mirror_owner *o, uint8_t op)
{
	for (unsigned i = 0; i < MIRROR_ORDERS; i++)
		if (o->order[i].step == ORDER_STORE && o->order[i].op == op)
			return true;
	return false;
}

/* ---- for callers ----------------------------------------------------------------------------- */
static struct mirror_order *order_new(struct mirror_owner *o, uint8_t op, uint64_t cookie)
{
	for (unsigned i = 0; i < MIRROR_ORDERS; i++) {
		struct mirror_order *r = &o->order[i];

		if (r->step != ORDER_FREE)
			continue;
		memset(r, 0, sizeof(*r));
		r->op = op;
		r->cookie = cookie;
		r->step = ORDER_WAITS;
		return r;
	}
	o->full = true;
	return NULL;
}

int mirror_owner_zero(struct mirror_owner *o, uint64_t first, uint64_t count, uint64_t cookie,
		      uint64_t now)
{
	struct mirror_order *r = order_new(o, MIRROR_ZERO, cookie);

	if (!r)
		return -EAGAIN;
	r->first = first;
	r->count = count;
	counter_add(&o->counts.zeros, 1);
	order_run(o, r, now);
	return 0;
}

int mirror_owner_cut(struct mirror_owner *o, uint64_t end, uint64_t cookie, uint64_t now)
{
	struct mirror_order *r = order_new(o, MIRROR_CUT, cookie);
	struct mirror_block *b;

	if (!r)
		return -EAGAIN;
	r->first = end;
	r->count = UINT64_MAX - end;
	/* What was there is gone: a frame under way is waited for, nothing else is sent. */
	for (uint64_t i = 0; (b = order_next(o, r, &i));) {
		b->unsent = b->sending = b->dirty = 0;
		b->safe = b->store = b->gen;
		o->ops->advanced(o->arg, b->block, b->gen);
	}
	order_run(o, r, now);
	return 0;
}

int mirror_owner_group(struct mirror_owner *o, unsigned channel, unsigned n, const uint64_t *block,
		       const uint64_t *map, uint64_t cookie, uint64_t now)
{
	struct mirror_order *r;

	if (!n || n > MIRROR_GROUP_MAX)
		return -EINVAL;
	r = order_new(o, MIRROR_WRITE, cookie);
	if (!r)
		return -EAGAIN;
	r->channel = (uint8_t)channel;
	r->n = (uint16_t)n;
	memcpy(r->block, block, n * sizeof(*block));
	memcpy(r->map, map, n * sizeof(*map));
	order_run(o, r, now);
	return 0;
}

void mirror_owner_zeroed(struct mirror_owner *o, uint64_t cookie, int result, uint64_t now)
{
	for (unsigned i = 0; i < MIRROR_ORDERS; i++) {
		struct mirror_order *r = &o->order[i];
		struct mirror_block *b;

		if (r->step != ORDER_STORE || r->op != MIRROR_ZERO || r->cookie != cookie)
			continue;
		r->step = ORDER_ENDS;
		for (uint64_t k = 0; (b = order_next(o, r, &k));) {
			b->group = 0;
			b->at = false; /* by the tombstone */
			b->there = 0;
			b->unsent = result ? b->dirty : 0;
			if (!result)
				b->store = b->safe = b->gen;
			else if (b->dirty) /* above the tombstone, as long as that is there */
				b->gen = ++o->gen;
			mirror_block_look(o, b);
		}
		order_run(o, r, now);
		return;
	}
}
