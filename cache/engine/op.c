/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Requests in progress: a request that cannot be answered on the spot keeps its state in its own
 * drv_word (struct cache_op) and goes through stages. A stage's function returns true when the
 * request is over (req->status says how) and false when it waits. Whatever it waits for brings it
 * back to op_run() on its loop, which looks the function up in the cache's table of stages. Nothing
 * is allocated for waiting.
 */
#include "cache/engine/io_impl.h"

#include <stdlib.h>

/* ---- sets of partition locks ----------------------------------------------------------------- */

static_assert(CACHE_REQ_GROUPS <= 64, "a word has a bit for each");

void lockset_build(struct lockset *ls, const struct cache_dev *dev, const struct cache_range *r)
{
	const struct cache_map *m = &dev->cache->map;
	uint64_t g0 = r->first >> m->group_shift, g1 = (r->first + r->n - 1) >> m->group_shift;
	ASSERT(g1 - g0 < CACHE_REQ_GROUPS);
	ls->cache = dev->cache;
	ls->n = 0;
	for (uint64_t g = g0; g <= g1; g++) {
		uint32_t id = cache_map_part(m, dev->map_offset, g << m->group_shift), i = ls->n;
		while (i > 0 && ls->id[i - 1] > id)
			i--;
		if (i > 0 && ls->id[i - 1] == id)
			continue;
		memmove(&ls->id[i + 1], &ls->id[i], (ls->n - i) * sizeof(ls->id[0]));
		ls->id[i] = id;
		ls->n++;
	}
}

void lockset_lock(const struct lockset *ls)
{
	for (uint32_t i = 0; i < ls->n; i++) {
		struct partition *p = ls->cache->part[ls->id[i]];
		if (!leaf_lock(&p->lock))
			p->stats.lock_waits++;
	}
}

void lockset_unlock(const struct lockset *ls)
{
	uint64_t asleep = 0;

#ifdef TGT_DEBUG
	leaf_gives_back(__builtin_return_address(0));
#endif
	/* Nobody is woken, which is a system call, before all of them are free. */
	for (uint32_t i = ls->n; i-- > 0;)
		asleep |= (uint64_t)leaf_give_back(&ls->cache->part[ls->id[i]]->lock) << i;
	for (; unlikely(asleep); asleep &= asleep - 1)
		leaf_unlock_wake(&ls->cache->part[ls->id[__builtin_ctzll(asleep)]]->lock);
	leaf_given_back();
}

/* ---- stages ---------------------------------------------------------------------------------- */

bool op_step(struct blk_req *req)
{
	op_stage_fn *go_on = cache_dev_of(req->blk)->cache->stages[op_of(req)->stage];

	BUG_ON(!go_on);
	return go_on(req);
}

static void op_run(struct blk_req *req)
{
	ASSERT_ON_LOOP(op_of(req)->loop);
	ASSERT(op_flags_legal(req));
	if (!op_step(req))
		return;
	if (req->home == loop_current())
		blk_complete_here(req, req->status);
	else
		blk_complete(req, req->status);
}

static void op_message(struct loop_msg *msg)
{
	op_run(container_of(msg, struct blk_req, msg));
}

void op_post(struct blk_req *req)
{
	req->msg.handle = op_message;
	loop_post(op_of(req)->loop, &req->msg);
}

/* Messages and waits are for what is large; a line that nodes share is nothing beside them. */
bool op_forward_slow(struct cache_dev *dev, struct blk_req *req, enum op_stage stage)
{
	struct cache *c = dev->cache;
	const struct cache_range r = cache_range_of(c, req->offset, req->len);
	const uint32_t self = c->node_of_topo[loop_node(loop_current()) & (TOPO_MAX_NODES - 1)];
	const uint32_t node = affinity_node(&c->map, dev->map_offset, r.first, r.n,
					    r.head << SECTOR_SHIFT,
					    (1u << c->geo.block_shift) - (r.tail << SECTOR_SHIFT),
					    self);
	struct cache_node *n = &c->node[node];

	if (node == self)
		return false;
	op_begin(req, stage);
	op_of(req)->loop = n->worker[node_worker(n, dev->number)];
	req->flags |= BLK_F_FORWARDED;
	__atomic_fetch_add(&n->forwards, 1, __ATOMIC_RELAXED);
	metric_inc(M_cache_forwards);
	op_post(req);
	return true;
}

bool op_pass_end(struct blk_req *req)
{
	return __atomic_sub_fetch(&op_of(req)->pending, 1, __ATOMIC_ACQ_REL) == 0;
}

/* One thing that @req has waited for is over: was it the last? */
static bool waits_no_more(struct blk_req *req, int status)
{
	struct cache_op *op = op_of(req);
	if (status) {
		int32_t none = 0;
		__atomic_compare_exchange_n(&op->error, &none, status, false, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED);
	}
	return __atomic_sub_fetch(&op->pending, 1, __ATOMIC_ACQ_REL) == 0;
}

void op_done_one(struct blk_req *req, int status)
{
	if (waits_no_more(req, status))
		op_post(req);
}

void op_done_here(struct blk_req *req, int status)
{
	if (waits_no_more(req, status))
		op_run(req);
}

void op_join(struct blk_req *req, struct cache_io *io)
{
	if (op_of(req)->flags & OP_F_JOINED)
		return;
	op_of(req)->flags |= OP_F_JOINED;
	op_wait_more(req);
	list_add_tail(&io->waiters, &req->link);
	op_set_list(req, io->kind == IO_EXCL ? OP_LIST_EXCL : OP_LIST_PARTS + io->part->id);
}

void op_wake_all(struct list *woken)
{
	while (!list_empty(woken)) {
		struct blk_req *req = list_first(woken, struct blk_req, link);

		list_del(&req->link);
		op_done_one(req, 0);
	}
}

struct cache_aux *aux_alloc(void)
{
	struct cache_aux *aux = malloc(sizeof(*aux));
	if (aux)
		frags_init(&aux->frags);
	return aux;
}

void aux_free(struct cache_aux *aux)
{
	frags_fini(&aux->frags);
	free(aux);
}
