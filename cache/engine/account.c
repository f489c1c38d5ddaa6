/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See account.h. */
#include <stdlib.h>
#include "cache/engine/op_impl.h"

/* Stores, and accounts of each, looked at per election. What is left out is looked at next time:
 * the rings have moved on. */
#define ELECT_STORES 16
#define ELECT_ACCOUNTS 16
/* Blocks of one turn: requests are seldom larger in one partition (a group). */
#define TURN_BLOCKS 128u

/* What follows from the size of the partition. The limits are read without the lock, too. */
static void set_limits(struct acct_book *b, uint32_t nblocks)
{
	struct acct_side *w = &b->side[ACCT_WRITE], *l = &b->side[ACCT_LOAD];

	for (unsigned k = 0; k < ACCT_KINDS; k++)
		b->side[k].quantum = MIN(TURN_BLOCKS, MAX(nblocks / 3, 1u));
	/* Half for what is dirty, so that reads always find something to evict; a quarter of that
	 * more for those who need it most. What is being loaded may have the rest. */
	__atomic_store_n(&w->limit, nblocks / 2, __ATOMIC_RELAXED);
	w->spare = w->limit / 8;
	w->little = MAX(w->limit / 8, 1u);
	w->small = MIN(MAX(w->little / 16, 1u), 32u);
	w->floor = MAX(w->limit / 16, MIN(TURN_BLOCKS, w->limit / 4));
	l->little = MAX(nblocks / 16, 1u);
	l->small = MIN(MAX(l->little / 16, 1u), 32u);
	l->floor = w->floor;
	__atomic_store_n(&l->limit, nblocks / 4, __ATOMIC_RELAXED);
}

void acct_book_resize(struct acct_book *b, uint32_t nblocks)
{
	set_limits(b, nblocks);
}

uint32_t acct_recount(struct acct_book *b, uint32_t from)
{
	const uint32_t end = MIN(from + ACCT_RECOUNT, (uint32_t)b->fresh);

	for (uint32_t i = from; i < end; i++) {
		struct account *a = &b->account[i];

		if (!a->store || a->who == ACCT_AGAIN)
			continue;
		for (unsigned k = 0; k < ACCT_KINDS; k++)
			acct_weigh(b, a, (enum acct_kind)k, acct_heavy(a, (enum acct_kind)k));
	}
	return end < b->fresh ? end : 0;
}

void acct_book_init(struct acct_book *b, uint32_t nblocks, void *mem)
{
	memset(b, 0, sizeof(*b));
	for (unsigned k = 0; k < ACCT_KINDS; k++)
		list_init(&b->side[k].ring);
	set_limits(b, nblocks);
	b->free = ACCT_NONE;
	static_assert(ACCT_BUCKETS * sizeof(*b->bucket) % CACHE_LINE == 0, "accounts are aligned");
	b->bucket = mem;
	b->account = (void *)(b->bucket + ACCT_BUCKETS);
	memset(b->bucket, 0xff, ACCT_BUCKETS * sizeof(*b->bucket));
}

void acct_store_init(struct acct_store *s, struct budget *budget, uint32_t number)
{
	*s = (struct acct_store){ .budget = budget, .number = number };
	for (unsigned k = 0; k < ACCT_KINDS; k++) {
		list_init(&s->side[k].ring);
		list_init(&s->side[k].link);
	}
}

/* ---- accounts come and go -------------------------------------------------------------------- */

static struct account *make(struct acct_book *b, struct acct_store *s, uint32_t who)
{
	uint16_t *head = &b->bucket[acct_bucket(s, who)];
	struct account *a;

	if (b->free != ACCT_NONE) {
		a = &b->account[b->free];
		b->free = a->next;
	} else if (b->fresh < ACCT_MAX) {
		a = &b->account[b->fresh++];
		for (unsigned k = 0; k < ACCT_KINDS; k++) {
			list_init(&a->side[k].waiting);
			list_init(&a->side[k].link);
		}
	} else {
		return NULL;
	}
	a->store = s;
	a->who = who;
	a->next = *head;
	*head = acct_index(b, a);
	s->accounts++;
	return a;
}

struct account *acct_get_slow(struct acct_book *b, struct acct_store *s, uint64_t stream)
{
	return make(b, s, acct_who(stream));
}

void acct_put_slow(struct acct_book *b, struct account *a)
{
	uint16_t *link = &b->bucket[acct_bucket(a->store, a->who)];
	const uint16_t index = acct_index(b, a);

	if (!list_empty(&a->side[ACCT_WRITE].waiting) || !list_empty(&a->side[ACCT_LOAD].waiting))
		return;
	while (*link != index) {
		BUG_ON(*link == ACCT_NONE);
		link = &b->account[*link].next;
	}
	*link = a->next;
	a->store->accounts--;
	a->store = NULL;
	a->next = b->free;
	b->free = index;
}

struct account *acct_charge_again(struct acct_book *b, struct acct_store *s)
{
	struct acct_side *t = &b->side[ACCT_WRITE];
	struct acct_store_side *side = &s->side[ACCT_WRITE];
	uint16_t i = b->bucket[acct_bucket(s, ACCT_AGAIN)];
	struct account *a;

	while (i != ACCT_NONE && (b->account[i].store != s || b->account[i].who != ACCT_AGAIN))
		i = b->account[i].next;
	a = i != ACCT_NONE ? &b->account[i] : make(b, s, ACCT_AGAIN);
	if (!a)
		return NULL;
	a->side[ACCT_WRITE].used++;
	side->used++;
	side->heavy++;
	t->used++;
	t->again++;
	return a;
}

void acct_uncharge_again(struct acct_book *b, struct account *a, uint32_t n)
{
	struct acct_side *t = &b->side[ACCT_WRITE];
	struct acct_store_side *side = &a->store->side[ACCT_WRITE];

	ASSERT(t->again >= n && side->heavy >= n);
	a->side[ACCT_WRITE].used -= n;
	side->used -= n;
	side->heavy -= n;
	t->used -= n;
	t->again -= n;
	acct_put(b, a);
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* Does it take what is written back, or give what is loaded, no more? */
static bool is_stalled(const struct acct_store *s, enum acct_kind kind)
{
	return kind == ACCT_WRITE ? budget_stalled(s->budget) : budget_silent(s->budget);
}

/* What all sessions of the host of @a, or of its initiator, are to send, with what of @promised is
 * one of theirs'. */
static uint32_t owed(const struct acct_book *b, const struct account *a, uint32_t promised)
{
	const uint32_t to = b->side[ACCT_WRITE].promised_to;
	uint32_t most = 0;

	for (unsigned by = 0; by < ACCT_OWNED_BY; by++) {
		const uint8_t owner = acct_owner(a, (enum acct_owner)by);
		const bool theirs = acct_owner_of(to, (enum acct_owner)by) == owner;

		if (owner)
			most = MAX(most, b->owes[by][owner] + (theirs ? promised : 0));
	}
	return most;
}

/* Which limit holds for what is heavy? A store that is new has what those have that are known to
 * take what is written back, for its first request. */
static uint32_t top_of(const struct acct_side *t, const struct acct_store *store,
		       const struct acct_store_side *s)
{
	const bool better = budget_drains(store->budget) ||
			    (!s->heavy && !budget_stalled(store->budget));

	uint32_t top = t->limit + (better ? t->spare : 0);

	/* What is dirty again is nobody's fault but that store's; all of it together leaves an
	 * eighth of the partition to those who read. */
	if (unlikely(t->again))
		top = MIN(top, MAX(t->limit / 4 * 7 - MIN(t->again, t->limit / 4 * 6),
				   t->limit / 4));
	return top;
}

/*
 * Those who have nothing, and want a little. Of stores that take write-back all of them together
 * have what there is beyond what anybody else gets, and of one store twice what is left of it.
 * Where it is not known how fast a store is, they have half of what is left of what is for little.
 * So those of stores that die leave some for those of others. The sessions of one host, or of one
 * initiator, owe no more than an eighth of a little beside their limit.
 */
bool acct_newcomer_fits(const struct acct_book *b, const struct account *a, enum acct_kind kind,
			uint32_t n)
{
	const struct acct_side *t = &b->side[kind];
	const struct acct_store_side *s = &a->store->side[kind];
	const bool drains = kind == ACCT_LOAD || budget_drains(a->store->budget);
	const uint32_t of_store = s->used - s->heavy + n;
	uint32_t all, most;

	if (is_stalled(a->store, kind))
		return false;
	if (kind == ACCT_WRITE &&
	    (atomic_load_explicit(&a->store->budget->late, memory_order_relaxed) ||
	     owed(b, a, t->promised) + n > t->limit / 2 + t->little / 8))
		return false;
	if (drains) {
		all = t->used - t->again + t->promised + n;
		most = top_of(t, a->store, s) + t->little +
		       (kind == ACCT_WRITE ? t->little / 2 : 0);
		return all <= most && of_store <= 2 * (most - all);
	}
	all = t->used - t->heavy - t->again + n;
	return all <= t->little && of_store <= (t->little - all) / 2;
}

/* Would the host of @a, or its initiator, owe too much with @n more? As much as is left is not. */
static bool owes_much(const struct acct_book *b, const struct account *a, uint32_t n,
		      uint32_t promised)
{
	const uint32_t limit = b->side[ACCT_WRITE].limit, own = owed(b, a, promised);

	return own && (uint64_t)own + b->receiving + promised + 2ull * n > limit;
}

/* What a store may hold that is heavy: part of what the others leave. A stalled one has its floor.
 * When half is in use, any other has, too, beyond that twice what it has drained since it began to
 * be dirty, and not more than its weight of the whole. */
static uint32_t store_limit(const struct acct_side *t, enum acct_kind kind,
			    const struct acct_store *store, uint32_t top, uint32_t heavy,
			    uint32_t need)
{
	const uint32_t receiving = MIN(store->receiving, store->side[kind].heavy);
	const uint32_t part = kind == ACCT_WRITE && budget_quick(store->budget, top) ?
				      ACCT_QUICK_PART :
				      ACCT_STORE_PART;
	uint64_t limit = heavy + need < top ? (uint64_t)part * (top - heavy - need) : 0, own;

	limit = MIN(limit, (uint64_t)top);
	if (is_stalled(store, kind))
		return (uint32_t)MIN(limit, (uint64_t)t->floor);
	if (kind == ACCT_LOAD || heavy + need <= top / 2)
		return (uint32_t)limit;
	if (!budget_drains(store->budget))
		return (uint32_t)MIN(limit, (uint64_t)t->floor);
	own = (uint64_t)top * atomic_load_explicit(&store->budget->weight, memory_order_relaxed) /
	      BUDGET_ALL;
	own = MIN(own, t->floor + 2 * budget_drained(store->budget));
	/* What is to be received still is not for it to drain: its initiators have bounds. */
	return (uint32_t)MIN(limit, MAX(own, (uint64_t)t->floor) + receiving);
}

/* Who asks: one that has just come, one that waits in its account, one that has done so for
 * SLOWED_MAX_NS and is not slowed any more, or the elected one. */
enum acct_asks { ASKS_FIRST, ASKS_AGAIN, ASKS_LATE, ASKS_ELECTED };
#define SLOWED_MAX_NS (200 * NSEC_PER_MSEC)

/* Its limits, apart from who waits: FITS; LATER: its own doing; STORE_FULL, FULL: it has nothing,
 * but its store, or the whole, lacks room. */
enum acct_verdict { ACCT_FITS, ACCT_LATER, ACCT_STORE_FULL, ACCT_FULL };

static enum acct_verdict acct_verdict(const struct acct_book *b, const struct account *a,
				      enum acct_kind kind, uint32_t n, enum acct_asks who)
{
	const struct acct_side *t = &b->side[kind];
	const struct acct_store_side *s = &a->store->side[kind];
	const struct acct_hold *h = &a->side[kind];
	const bool little = h->used <= t->small, stalled = is_stalled(a->store, kind);
	const uint32_t promised = who == ASKS_ELECTED ? 0 : t->promised,
		       heavy = t->heavy + promised, need = n + (little ? h->used : 0),
		       top = top_of(t, a->store, s);
	uint32_t limit;

	if (acct_fits_little(b, a, kind, n))
		return ACCT_FITS;
	if (kind == ACCT_WRITE && owes_much(b, a, n, promised))
		return ACCT_LATER;
	/* A request larger than the limit gets the whole. What is little may be more than it
	 * should: who gives back becomes little. */
	if (heavy && (heavy + need > top ||
		      t->used - t->again + promised + n > top + t->little))
		return stalled || (s->heavy && !little) ? ACCT_LATER :
		       s->heavy			       ? ACCT_STORE_FULL :
							 ACCT_FULL;
	if (!s->heavy)
		return ACCT_FITS;
	limit = store_limit(t, kind, a->store, top, heavy, need);
	if (s->heavy + need > limit)
		return little && !stalled ? ACCT_STORE_FULL : ACCT_LATER;
	if (little)
		return ACCT_FITS;
	if (h->used + n > (uint64_t)ACCT_SESSION_PART * (limit - s->heavy - n))
		return ACCT_LATER;
	/* Who holds less than others do is not slowed. */
	if (kind == ACCT_WRITE && who < ASKS_LATE &&
	    (uint64_t)h->used * a->store->accounts >= s->heavy &&
	    !budget_due(a->store->budget, s->heavy, limit, who == ASKS_AGAIN))
		return ACCT_LATER;
	return ACCT_FITS;
}

bool acct_may_take(const struct acct_book *b, const struct account *a, enum acct_kind kind,
		   uint32_t n, bool elected, bool ahead)
{
	const struct acct_side *t = &b->side[kind];
	const struct acct_store_side *s = &a->store->side[kind];
	const struct acct_hold *h = &a->side[kind];

	/* What has come in between has left it that. */
	if (elected && n <= t->promised)
		return true;
	if (acct_verdict(b, a, kind, n, elected ? ASKS_ELECTED : ahead ? ASKS_AGAIN : ASKS_FIRST) !=
	    ACCT_FITS)
		return false;
	if (elected || ahead || list_empty(&t->ring))
		return true;
	if (!list_empty(&h->waiting))
		return false;
	if (acct_fits_little(b, a, kind, n))
		return true;
	if (t->stuck)
		return false;
	/* Who waits because it has plenty is not in the way of one who has less. */
	if (!list_empty(&s->ring))
		return h->used + n <= list_first(&s->ring, struct account, side[kind].link)
					      ->side[kind].used;
	return s->heavy + n <= list_first(&t->ring, struct acct_store, side[kind].link)
				       ->side[kind].heavy;
}

/* @a gets @n blocks, now or when it comes for them: its store's pace goes on by that. */
static void paces(const struct acct_book *b, const struct account *a, enum acct_kind kind,
		  uint32_t n)
{
	const struct acct_side *t = &b->side[kind];
	const struct acct_store_side *s = &a->store->side[kind];

	if (kind == ACCT_WRITE && a->side[kind].used > t->small)
		budget_pace(a->store->budget, s->heavy,
			    store_limit(t, kind, a->store, top_of(t, a->store, s), t->heavy, n), n);
}

void acct_take(struct acct_book *b, struct account *a, enum acct_kind kind, uint32_t n,
	       bool waited)
{
	struct acct_side *t = &b->side[kind];
	struct acct_store_side *s = &a->store->side[kind];
	struct acct_hold *h = &a->side[kind];

	if (!waited)
		paces(b, a, kind, n);
	acct_charge(b, a, kind, n);
	if (!waited)
		return;
	ASSERT(list_linked(&h->link) && list_linked(&s->link));
	h->turn -= (int32_t)n;
	if (h->turn <= 0) {
		h->turn = (int32_t)t->quantum;
		list_del(&h->link);
		list_add_tail(&s->ring, &h->link);
	}
	s->turn -= (int32_t)n;
	if (s->turn <= 0) {
		s->turn = (int32_t)t->quantum;
		list_del(&s->link);
		list_add_tail(&t->ring, &s->link);
	}
}

/* ---- waiting --------------------------------------------------------------------------------- */

void acct_wait(struct acct_book *b, struct account *a, enum acct_kind kind, struct blk_req *req)
{
	struct acct_side *t = &b->side[kind];
	struct acct_store_side *s = &a->store->side[kind];
	struct acct_hold *h = &a->side[kind];
	struct list *pos = h->waiting.prev;

	/* By age: behind all but those who came later; one that had been
	 * elected in vain goes first. */
	while (pos != &h->waiting &&
	       op_of(list_entry(pos, struct blk_req, link))->since_ns > op_of(req)->since_ns)
		pos = pos->prev;
	list_insert_after(pos, &req->link);
	if (!list_linked(&h->link)) {
		h->turn = (int32_t)t->quantum;
		list_add_tail(&s->ring, &h->link);
	}
	if (!list_linked(&s->link)) {
		s->turn = (int32_t)t->quantum;
		list_add_tail(&t->ring, &s->link);
	}
}

void acct_leave(struct acct_book *b, struct account *a, enum acct_kind kind, struct blk_req *req)
{
	struct acct_store_side *s = &a->store->side[kind];
	struct acct_hold *h = &a->side[kind];

	list_del(&req->link);
	if (op_of(req)->flags & OP_F_WOKEN)
		b->side[kind].promised = 0;
	if (!list_empty(&h->waiting))
		return;
	list_del(&h->link);
	if (list_empty(&s->ring))
		list_del(&s->link);
	acct_put(b, a);
}

uint64_t acct_oldest(const struct acct_book *b, enum acct_kind kind)
{
	const struct acct_store *store;
	const struct account *a;
	uint64_t since = UINT64_MAX;
	unsigned seen = 0;

	list_for_each(store, &b->side[kind].ring, side[kind].link)
		list_for_each(a, &store->side[kind].ring, side[kind].link) {
			struct blk_req *req =
				list_first(&a->side[kind].waiting, struct blk_req, link);

			since = MIN(since, op_of(req)->since_ns);
			if (++seen == ACCT_OLDEST)
				return since;
		}
	return since;
}

/* ---- whose turn it is ------------------------------------------------------------------------ */

/* The first of @a's is elected. It pays now, before it has been there: else all partitions would
 * elect one at the same time, and the next ones would wait until all of these are paid for. */
static struct blk_req *elected(struct acct_book *b, const struct account *a, enum acct_kind kind)
{
	struct blk_req *req = list_first(&a->side[kind].waiting, struct blk_req, link);
	struct cache_op *op = op_of(req);

	op->flags |= OP_F_WOKEN;
	b->side[kind].promised = op->need;
	b->side[kind].promised_to = a->who;
	paces(b, a, kind, op->need);
	return req;
}

/* May one more be asked, when @most have been? All limits of one cost as much as a header. */
static bool may_look(struct acct_side *t, uint32_t most)
{
	return t->looked < most && ++t->looked;
}

/* The first of @store's that may. @why: none may, and the first in the ring for this reason. */
static struct account *elect_of_store(struct acct_book *b, struct acct_store *store,
				      enum acct_kind kind, bool in_turn,
				      enum acct_verdict *why)
{
	const uint64_t late = in_turn ? clock_now_ns() - SLOWED_MAX_NS : 0;
	struct list *ring = &store->side[kind].ring, *const begin = ring->next;

	*why = ACCT_LATER;
	for (unsigned k = 0; k < ELECT_ACCOUNTS && may_look(&b->side[kind], ELECT_LOOKS); k++) {
		struct account *a = list_first(ring, struct account, side[kind].link);
		struct acct_hold *h = &a->side[kind];
		struct blk_req *req = list_first(&h->waiting, struct blk_req, link);

		if (op_may_lend(req)) {
			*why = acct_verdict(b, a, kind, op_of(req)->need,
					    op_of(req)->since_ns <= late ? ASKS_LATE :
					    in_turn			 ? ASKS_AGAIN :
									   ASKS_FIRST);
			/* Who has nothing, and finds no room, comes before all who have some. */
			if (*why == ACCT_FULL || *why == ACCT_STORE_FULL)
				return NULL;
			if (*why == ACCT_FITS)
				return a;
		}
		list_del(&h->link);
		list_add_tail(ring, &h->link);
		if (ring->next == begin) /* all have been asked */
			break;
	}
	return NULL;
}

/* Behind those who lack room, the first who holds a little and wants no more than that. */
static struct account *elect_little(struct acct_book *b, enum acct_kind kind)
{
	struct acct_store *store;
	struct account *a;
	const uint32_t most = b->side[kind].looked + ELECT_LOOKS / 2;
	unsigned stores = 0;

	list_for_each(store, &b->side[kind].ring, side[kind].link) {
		unsigned accounts = 0;

		if (stores++ == ELECT_STORES)
			break;
		list_for_each(a, &store->side[kind].ring, side[kind].link) {
			struct blk_req *req =
				list_first(&a->side[kind].waiting, struct blk_req, link);

			if (accounts++ == ELECT_ACCOUNTS || !may_look(&b->side[kind], most))
				break;
			if (op_may_lend(req) && acct_fits_little(b, a, kind, op_of(req)->need))
				return a;
		}
	}
	return NULL;
}

struct blk_req *acct_elect(struct acct_book *b, enum acct_kind kind, bool in_turn)
{
	struct acct_side *t = &b->side[kind];
	struct list *const begin = t->ring.next;
	struct account *a;

	if (t->promised || list_empty(&t->ring))
		return NULL;
	t->stuck = false;
	t->looked = 0;
	for (unsigned k = 0; k < ELECT_STORES && t->looked < ELECT_LOOKS; k++) {
		struct acct_store *store =
			list_first(&t->ring, struct acct_store, side[kind].link);
		enum acct_verdict why;

		a = elect_of_store(b, store, kind, in_turn, &why);
		if (a)
			return elected(b, a, kind);
		if (why == ACCT_FULL) {
			t->stuck = true;
			break;
		}
		list_del(&store->side[kind].link);
		list_add_tail(&t->ring, &store->side[kind].link);
		if (t->ring.next == begin)
			break;
	}
	a = elect_little(b, kind);
	return a ? elected(b, a, kind) : NULL;
}
