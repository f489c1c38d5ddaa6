/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fair shares of a partition (flow control, Ren 2015): how many of its blocks that nobody can evict
 * one session may hold, and who is next when it holds too many.
 *
 * Two things are shared in every partition:
 *
 *   SHARE_WRITE  blocks that are being received into, or dirty: they come
 *                back when they are flushed
 *   SHARE_FILL   blocks that a miss has taken and that are being loaded
 *
 * A *flow* is one session's part of one of them: the blocks charged to it, and its waiting requests
 * in order of age. Which flow a request belongs to is said by the low bits of blk_req.stream.
 *
 * How much a flow may hold is a dynamic threshold (Choudhury and Hahne, "Dynamic queue length
 * thresholds for shared-memory packet switches", 1998): FLOW_ALPHA times what is free. One flow
 * alone gets 4/5 of the whole, k greedy ones 4/(4k+1) each, and 1/(4k+1) is always kept for whoever
 * comes next. Nobody needs to know how many they are, so it costs a few additions. A flow that
 * holds nothing may have one request whatever the threshold says.
 *
 * Who has to wait waits in its flow; flows that wait stand in a ring and take turns, a quantum of
 * blocks each (deficit round robin, Shreedhar and Varghese 1995; a request is never larger than the
 * quantum but for COMPARE AND WRITE, so the deficit needs no carrying over). A newcomer only goes
 * before them when it has, even then, no more than the one whose turn it is. The one elected keeps
 * its promise until it has been there. All of it under the partition's lock.
 *
 * A *reserve* lies beyond the limit of SHARE_WRITE, since what is being received comes back only
 * when its initiator sends it. A request that asks for little, in one partition, of a flow that
 * holds little, may have it from there whoever waits, the stuck one too. All the sessions of
 * one host together have no more than a quarter of it. What was taken from the reserve counts there
 * until it is clean or gone, and is never room for others. So who is stuck is not starved:
 * those who pass hold blocks beyond the limit, and what comes back below it is for who is next.
 */
#ifndef CACHE_SHARE_H
#define CACHE_SHARE_H

#include <stdint.h>
#include "events/bug.h"
#include "events/list.h"

#define FLOWS 256u /* power of two */
#define FLOW_NONE UINT16_MAX /* a block charged to nobody */
#define FLOW_ALPHA 4u
#define SHARE_HOSTS 127u /* hosts, by a hash; 127 would make FLOW_NONE */
#define CHARGE_RESERVE 0x8000u /* in a charge: bits 8 to 14 are the host, 0 to 7 the flow */
/* Where the host's number is in blk_req.stream. */
#define STREAM_HOST_SHIFT 12u
#define STREAM_SERIAL_SHIFT 20u

enum share_kind { SHARE_WRITE, SHARE_FILL, SHARES };

struct flow {
	uint32_t used;	     /* blocks charged */
	int32_t turn;	     /* blocks it may still take before the next one's turn */
	struct list waiting; /* blk_req.link, oldest first */
	struct list link;    /* share.ring while anyone waits */
};

struct share {
	uint32_t limit;	     /* blocks; of SHARE_FILL it changes with what is dirty */
	uint32_t used;	     /* charged to any flow */
	uint32_t promised;   /* to the elected request, which is on its way */
	uint32_t quantum;
	uint32_t reserve;    /* blocks beyond the limit, for who asks for little */
	uint32_t reserved;   /* charged to any flow, but not in used */
	bool head_blocked;   /* who is next lacks room as such: newcomers wait behind it */
	struct list ring;    /* flow.link */
	struct flow *flow;   /* [FLOWS] */
	uint32_t host[SHARE_HOSTS + 1]; /* of the reserve: charged to the sessions of one host */
};

static inline uint16_t flow_of_stream(uint64_t stream)
{
	return (uint16_t)(stream & (FLOWS - 1));
}

/* What a page says that was taken from the reserve: block.flow. */
static inline uint16_t charge_of_reserve(uint64_t stream)
{
	uint32_t host = (uint32_t)(stream >> STREAM_HOST_SHIFT) & 127u;

	return (uint16_t)(CHARGE_RESERVE | (host % SHARE_HOSTS) << 8 | flow_of_stream(stream));
}

/* Is there room for @n more, with @used taken? A request larger than the limit gets the whole. */
static inline bool share_room(const struct share *s, uint32_t used, uint32_t n)
{
	return used == 0 || used + n <= s->limit;
}

/* May a flow that holds @own take @n more, with @used taken? */
static inline bool share_fits(const struct share *s, uint32_t used, uint32_t own, uint32_t n)
{
	if (!share_room(s, used, n))
		return false;
	return used == 0 || own == 0 || own + n <= FLOW_ALPHA * (s->limit - used - n);
}

static inline void share_charge(struct share *s, uint16_t flow, uint32_t n)
{
	s->flow[flow].used += n;
	s->used += n;
}

/* @charge: a flow, or charge_of_reserve(). */
static inline void share_give_back(struct share *s, uint16_t charge, uint32_t n)
{
	struct flow *f = &s->flow[charge & (FLOWS - 1)];

	ASSERT(f->used >= n);
	f->used -= n;
	if (unlikely(charge & CHARGE_RESERVE)) {
		uint32_t *host = &s->host[charge >> 8 & 127u];

		ASSERT(s->reserved >= n && *host >= n);
		s->reserved -= n;
		*host -= n;
		return;
	}
	ASSERT(s->used >= n);
	s->used -= n;
}

/* @flow: [FLOWS], to be used by this share alone. There is no reserve (->reserve). */
void share_init(struct share *s, struct flow *flow, uint32_t limit, uint32_t quantum);

struct blk_req;
/* May @req take @n blocks now? It may when it fits and does not overtake whoever was promised room.
 * @elected: it is the one. @ahead: it has been elected before, and comes
 * back from waiting for more. */
bool share_may_take(const struct share *s, const struct blk_req *req, uint32_t n, bool elected,
		    bool ahead);
/* @req, which may, does. @waited: it had to, and leaves next. */
void share_take(struct share *s, const struct blk_req *req, uint32_t n, bool waited);
/* May @req take @n blocks of the reserve now? */
bool share_may_pass(const struct share *s, const struct blk_req *req, uint32_t n);
/* @req, which may, does. If it waited, it leaves next. */
void share_take_reserve(struct share *s, const struct blk_req *req, uint32_t n);
/* @req (its cache_op filled in) waits for its turn. */
void share_wait(struct share *s, struct blk_req *req);
/* It does so no longer. */
void share_leave(struct share *s, struct blk_req *req);
/* The next whose turn it is and who can have it, marked as woken; or NULL. */
struct blk_req *share_elect(struct share *s);

#endif
