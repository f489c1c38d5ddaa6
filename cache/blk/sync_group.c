/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * See sync_group.h.
 *
 * Each member has the number of the call that it waits for, so who leaves is not looked for: he is
 * a member until that call has ended. Those who are told are too many to be marked under the lock,
 * but all of them have ended calls. Numbers wrap. So one does not outlive its member's being told,
 * and it is odd, since 0 is no member's.
 */
#include "cache/blk/sync_group.h"

/* Of the next call but @later; or, with -1, of the last that has ended. Lock held. */
static uint16_t round_of(const struct sync_group *g, int later)
{
	return (uint16_t)((g->ended + 1 + later) << 1 | 1);
}

/* Does @req wait for a call that has not ended? Lock held. */
static bool is_member(const struct sync_group *g, const struct blk_req *req)
{
	const uint16_t round = __atomic_load_n(&req->round, __ATOMIC_RELAXED);

	return round && (int16_t)(uint16_t)(round - round_of(g, -1)) > 0;
}

void sync_group_init(struct sync_group *g)
{
	leaf_lock_init(&g->lock);
	list_init(&g->now);
	list_init(&g->next);
	blk_req_init(&g->call);
}

void sync_group_fini(struct sync_group *g)
{
	ASSERT(!g->busy && list_empty(&g->now) && list_empty(&g->next));
	blk_req_fini(&g->call);
}

typedef void tell_fn(struct blk_req *member, int status);

static void tell_all(tell_fn *tell, struct list *members, int status)
{
	while (!list_empty(members)) {
		struct blk_req *req = list_first(members, struct blk_req, link);

		list_del(&req->link);
		__atomic_store_n(&req->round, 0, __ATOMIC_RELAXED);
		tell(req, status); /* the last of them may take the group with it */
	}
}

/* The call is over, and what had to be done. True: the next one is to be made. Else the group may
 * go from here on. */
static bool group_over(struct sync_group *g, struct list *told)
{
	const int status = g->call.status;

	list_init(told);
	leaf_lock(&g->lock);
	g->ended++;
	list_splice_tail(told, &g->now);
	if (status) {
		g->ended++;
		list_splice_tail(told, &g->next);
		__atomic_store_n(&g->failures, g->failures + 1, __ATOMIC_RELEASE);
	}
	list_splice_tail(&g->now, &g->next);
	g->busy = !list_empty(&g->now);
	bool more = g->busy;
	leaf_unlock(&g->lock);
	if (!more)
		atomic_fetch_sub(&g->rounds, 1);
	return more;
}

static void call_done(struct blk_req *call);

static void run(struct sync_group *g)
{
	tell_fn *const tell = g->tell;
	struct list told;
	bool more = true;

	while (more) {
		g->begins(g);
		g->call.op = BLK_SYNC;
		g->call.flags = 0;
		g->call.offset = g->call.len = 0;
		g->call.done = call_done;
		if (!g->start(g))
			return;
		int status = g->call.status;

		if (!g->over(g, status))
			return;
		more = group_over(g, &told);
		tell_all(tell, &told, status);
	}
}

static void call_done(struct blk_req *call)
{
	struct sync_group *g = container_of(call, struct sync_group, call);

	if (g->over(g, call->status))
		sync_group_go_on(g);
}

void sync_group_go_on(struct sync_group *g)
{
	int status = g->call.status;
	tell_fn *const tell = g->tell;
	struct list told;
	bool more = group_over(g, &told);

	/* Those of the next call keep the group, which otherwise may go with the last of these. */
	tell_all(tell, &told, status);
	if (more)
		run(g);
}

bool sync_group_join(struct sync_group *g, struct blk_req *req, uint32_t *failures)
{
	bool first = false;

	leaf_lock(&g->lock);
	bool joined = *failures == g->failures;

	*failures = g->failures;
	if (joined) {
		first = !g->busy;
		__atomic_store_n(&req->round, round_of(g, first ? 0 : 1), __ATOMIC_RELAXED);
		list_add_tail(first ? &g->now : &g->next, &req->link);
		g->busy = true;
		if (first)
			atomic_fetch_add(&g->rounds, 1);
	}
	leaf_unlock(&g->lock);
	if (first)
		run(g);
	return joined;
}

bool sync_group_leave(struct sync_group *g, struct blk_req *req)
{
	leaf_lock(&g->lock);
	const bool left = is_member(g, req);

	if (left) {
		list_del(&req->link);
		__atomic_store_n(&req->round, 0, __ATOMIC_RELAXED);
	}
	leaf_unlock(&g->lock);
	return left;
}
