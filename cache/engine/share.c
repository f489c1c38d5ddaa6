/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See share.h. */
#include "cache/engine/op_impl.h"

/* Flows looked at per election. What is left out is looked at next time: the ring has moved on.
 * Most of those who are passed over take nothing off their wires. */
#define ELECT_TRIES 64

void share_init(struct share *s, struct flow *flow, uint32_t limit, uint32_t quantum)
{
	*s = (struct share){ .limit = limit, .quantum = quantum, .flow = flow };
	list_init(&s->ring);
	for (uint32_t i = 0; i < FLOWS; i++) {
		flow[i] = (struct flow){ .used = 0 };
		list_init(&flow[i].waiting);
		list_init(&flow[i].link);
	}
}

static struct flow *flow_of(const struct share *s, const struct blk_req *req)
{
	return &s->flow[flow_of_stream(req->stream)];
}

bool share_may_take(const struct share *s, const struct blk_req *req, uint32_t n, bool elected,
		    bool ahead)
{
	const struct flow *f = flow_of(s, req);

	if (!share_fits(s, s->used + (elected ? 0 : s->promised), f->used, n))
		return false;
	if (elected || ahead || list_empty(&s->ring))
		return true;
	/* Who waits because it has plenty is not in the way of one who has less. */
	return !s->head_blocked && list_empty(&f->waiting) &&
	       f->used + n <= list_first(&s->ring, struct flow, link)->used;
}

void share_take(struct share *s, const struct blk_req *req, uint32_t n, bool waited)
{
	struct flow *f = flow_of(s, req);

	f->used += n;
	s->used += n;
	if (!waited)
		return;
	ASSERT(list_linked(&f->link));
	f->turn -= (int32_t)n;
	if (f->turn <= 0) {
		f->turn = (int32_t)s->quantum;
		list_del(&f->link);
		list_add_tail(&s->ring, &f->link);
	}
}

bool share_may_pass(const struct share *s, const struct blk_req *req, uint32_t n)
{
	const uint16_t charge = charge_of_reserve(req->stream);

	return s->reserved + n <= s->reserve &&
	       flow_of(s, req)->used + n <= MAX(s->reserve / 8, 1u) &&
	       s->host[charge >> 8 & 127u] + n <= MAX(s->reserve / 4, 1u);
}

void share_take_reserve(struct share *s, const struct blk_req *req, uint32_t n)
{
	flow_of(s, req)->used += n;
	s->reserved += n;
	s->host[charge_of_reserve(req->stream) >> 8 & 127u] += n;
}

void share_wait(struct share *s, struct blk_req *req)
{
	struct flow *f = flow_of(s, req);
	struct list *pos = f->waiting.prev;

	/* By age: behind all but those who came later; one that had been
	 * elected in vain goes first. */
	while (pos != &f->waiting &&
	       op_of(list_entry(pos, struct blk_req, link))->since_ns > op_of(req)->since_ns)
		pos = pos->prev;
	list_insert_after(pos, &req->link);
	if (!list_linked(&f->link)) {
		f->turn = (int32_t)s->quantum;
		list_add_tail(&s->ring, &f->link);
	}
}

void share_leave(struct share *s, struct blk_req *req)
{
	struct flow *f = flow_of(s, req);

	list_del(&req->link);
	if (op_of(req)->flags & OP_F_WOKEN)
		s->promised = 0;
	if (list_empty(&f->waiting))
		list_del(&f->link);
}

static struct blk_req *elected(struct share *s, struct blk_req *req)
{
	struct cache_op *op = op_of(req);

	op->flags |= OP_F_WOKEN;
	s->promised = op->need;
	return req;
}

/* Behind the one that is stuck, the first who may have what it needs from the reserve. */
static struct blk_req *elect_little(struct share *s)
{
	struct flow *f;

	if (s->reserved >= s->reserve)
		return NULL;
	list_for_each(f, &s->ring, link) {
		struct blk_req *req = list_first(&f->waiting, struct blk_req, link);

		if ((op_of(req)->flags & OP_F_ONE_PART) &&
		    share_may_pass(s, req, op_of(req)->need))
			return elected(s, req);
	}
	return NULL;
}

struct blk_req *share_elect(struct share *s)
{
	if (s->promised)
		return NULL;
	s->head_blocked = false;
	for (unsigned k = 0; k < ELECT_TRIES && !list_empty(&s->ring); k++) {
		struct flow *f = list_first(&s->ring, struct flow, link);
		struct blk_req *req = list_first(&f->waiting, struct blk_req, link);
		bool may = op_may_lend(req);

		if (may && share_fits(s, s->used, f->used, op_of(req)->need))
			return elected(s, req);
		if (may && !f->used) {
			/* It has nothing, and there is no room: it comes before all newcomers
			 * but those who have the reserve. */
			s->head_blocked = true;
			break;
		}
		list_del(&f->link);
		list_add_tail(&s->ring, &f->link);
	}
	return elect_little(s);
}
