/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Makes a store's volatile cache stable: one such call at a time, for all requests that came before
 * it began.
 *
 * A store reports lost data to one call only (Linux: once a file descriptor). Of two calls at the
 * same time, over the same data, one could fail and the other succeed. So calls do not overlap
 * here. A request that comes meanwhile waits for the next call. When a call fails, all waiting
 * requests fail as well, as their data may have been with the store before. Many requests at once
 * also cost one call.
 */
#ifndef CACHE_BLK_SYNC_GROUP_H
#define CACHE_BLK_SYNC_GROUP_H

#include "cache/blk/blk.h"
#include "cache/memory/lock.h"

struct sync_group {
	struct leaf_lock lock;
	bool busy;
	_Atomic uint32_t rounds; /* 1 as long as there are calls to be made; it is the last that
				  * is touched, unless a member is told */
	uint32_t failures; /* atomic; of calls, so far */
	uint16_t ended;	   /* of calls, those told after a failure included: blk_req.round */
	struct list now;  /* blk_req.link: for whom the call is under way */
	struct list next; /* who waits for the next */
	struct blk_req call;
	/* Makes the call with group->call, whose done is set; as blk_submit(). On the loop of the
	 * member who happens to be first, or where the call before it ended. */
	bool (*start)(struct sync_group *g);
	/* It began (before start()), and it is over: before anybody is told. Same loop. False:
	 * there is something to be done first, and then it says sync_group_go_on(). */
	void (*begins)(struct sync_group *g);
	bool (*over)(struct sync_group *g, int status);
	/* Tells a member, on that loop; the group may go with its last member. */
	void (*tell)(struct blk_req *member, int status);
};

void sync_group_init(struct sync_group *g);
/* What over() had to do is done: members are told, and the next call is made. On that loop; the
 * group may go with its last member. */
void sync_group_go_on(struct sync_group *g);
/* No call is under way. */
void sync_group_fini(struct sync_group *g);
/*
 * @req, whose link is free, will be told, maybe before this returns. False: a call has failed since
 * *@failures was read; then *@failures is what it is now, and nothing has happened. On any loop.
 */
bool sync_group_join(struct sync_group *g, struct blk_req *req, uint32_t *failures) must_check;

/* @req, a member or not, waits no more if it has not been told yet: true. The call goes on. Takes
 * the same time however many members there are. Any thread; the group does not go before this
 * returns. */
bool sync_group_leave(struct sync_group *g, struct blk_req *req) must_check;
/* Is a call under way, perhaps for nobody? Any thread. False, and nobody joins: it may go. */
static inline bool sync_group_busy(const struct sync_group *g)
{
	return atomic_load(&g->rounds);
}

#endif
