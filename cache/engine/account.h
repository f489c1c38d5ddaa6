/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Accounts (flow control, Ren 2015): how many blocks of a partition that nobody can evict a store
 * holds, and of these each of its sessions; and who comes next when it is too many. README.md,
 * "Accounts", says which limits there are and why.
 *
 * An account is what one session holds of one store in one partition. It has two sides:
 *
 *   ACCT_WRITE  blocks that are being received into, dirty, or being written back
 *   ACCT_LOAD   blocks that a miss has taken and that are being loaded
 *
 * An account comes with its first block or its first waiting request, and goes with its last. So
 * one may outlive its session, and whoever has that one's place by then has an account of its own,
 * unless host and name are the same. Who has to wait waits in its account, by age. Accounts that
 * wait stand in the ring of their store, stores that wait in the ring of the book, and take turns,
 * a quantum of blocks each (deficit round robin, Shreedhar and Varghese 1995). The one elected
 * keeps its promise until it has been there.
 *
 * All of it under the partition's lock; requests find their account by blk_req.stream.
 */
#ifndef CACHE_ENGINE_ACCOUNT_H
#define CACHE_ENGINE_ACCOUNT_H

#include <stdint.h>
#include "cache/engine/budget.h"
#include "events/bug.h"
#include "events/list.h"

#define ACCT_MAX 4096u /* in one partition */
#define ACCT_BUCKETS 512u
#define ACCT_NONE UINT16_MAX /* a block charged to nobody */
#define ACCT_LOADING 0x8000u /* in block.account: charged on ACCT_LOAD */
#define ACCT_OWNERS 256u     /* numbers of hosts, and of initiators; 0: nobody's */
#define ACCT_AGAIN UINT32_MAX /* account.who: what a failed SYNC has made dirty again */
/* In blk_req.stream: the session's place, the numbers of its host and of its initiator's name. */
#define STREAM_HOST_SHIFT 12u
#define STREAM_NAME_SHIFT 20u
#define STREAM_SERIAL_SHIFT 28u

#define ACCT_STORE_PART 2u   /* dynamic threshold: times what is free */
#define ACCT_QUICK_PART 4u   /* ... of a store that drains its limit in a few writes' time */
#define ACCT_SESSION_PART 4u

enum acct_kind { ACCT_WRITE, ACCT_LOAD, ACCT_KINDS };
/* Whose sessions together have a bound of what they are to send. */
enum acct_owner { ACCT_HOST, ACCT_NAME, ACCT_OWNED_BY };

struct account {
	struct acct_store *store; /* NULL: free, and then next is the next free one */
	uint32_t who;		  /* acct_who() of its session (0: nobody's), or ACCT_AGAIN */
	uint16_t next;		  /* in its bucket */
	bool heavy[ACCT_KINDS]; /* it counts in acct_store_side.heavy, with all that it holds */
	struct acct_hold {
		uint32_t used;	     /* blocks charged */
		int32_t turn;	     /* blocks it may still take before the next one's turn */
		struct list waiting; /* blk_req.link, oldest first */
		struct list link;    /* acct_store.side.ring while anyone waits */
	} side[ACCT_KINDS];
};

/* A store in one partition. Zeros, and ->budget, to begin with; see acct_store_init(). */
struct acct_store {
	struct budget *budget;
	uint32_t number;   /* different for all that are open */
	uint32_t accounts; /* that it has */
	uint32_t receiving; /* of ACCT_WRITE: what is to be received still */
	struct acct_store_side {
		uint32_t used;	  /* the sum of its accounts' */
		uint32_t heavy;	  /* of that, by accounts that hold more than a little */
		int32_t turn;
		struct list ring; /* account.side.link */
		struct list link; /* acct_side.ring while any of them waits */
	} side[ACCT_KINDS];
};

/* A partition's book. */
struct acct_book {
	struct acct_side {
		uint32_t limit;	  /* of what is heavy; of ACCT_LOAD it changes with what is dirty */
		uint32_t spare;	  /* beyond, for stores that are known to take write-back */
		uint32_t little;  /* beyond both, for accounts that hold a little */
		uint32_t small;	  /* so much is a little */
		uint32_t floor;	  /* of a stalled store */
		uint32_t used, heavy; /* the sums of all stores'; heavy without again */
		uint32_t again;	  /* what a failed SYNC has made dirty again */
		uint32_t promised; /* to the elected request, which is on its way ... */
		uint32_t promised_to; /* ... and its account.who */
		uint32_t quantum;
		bool stuck;	   /* who is next lacks room as such: it comes before newcomers */
		uint32_t looked;   /* how often an account was asked in the last election */
		struct list ring;  /* acct_store.side.link */
	} side[ACCT_KINDS];
	uint32_t receiving;	   /* the sum of all stores' */
	uint32_t owes[ACCT_OWNED_BY][ACCT_OWNERS]; /* of these: the sessions of one */
	struct account *account;   /* [ACCT_MAX] */
	uint16_t *bucket;	   /* [ACCT_BUCKETS] */
	uint16_t free, fresh;	   /* accounts: the first free one; those from here on never used */
};

/* What a book has its memory in: its buckets, and behind them its accounts, of which only those
 * that are used are ever touched. The first bytes are touched always. */
#define ACCT_BOOK_BYTES                                                                            \
	ALIGN_UP(ACCT_BUCKETS * sizeof(uint16_t) + ACCT_MAX * sizeof(struct account), (size_t)4096)
#define ACCT_BOOK_FIRST ((size_t)8192)
/* Of a partition of @nblocks. @mem: ACCT_BOOK_BYTES of zeros, at a multiple of a cache line; they
 * stay the caller's. */
void acct_book_init(struct acct_book *b, uint32_t nblocks, void *mem);
/* The partition has @nblocks from now on; lock held. Who has more than that allows keeps it. What a
 * little is may be another number then, and which accounts are heavy: each follows when something
 * is charged or uncharged, or by acct_recount(). */
void acct_book_resize(struct acct_book *b, uint32_t nblocks);
/* Accounts from place @from on follow the book's size, as many as one hold of the lock may visit;
 * lock held. Where to go on, or 0: that was the last. */
#define ACCT_RECOUNT 64u
uint32_t acct_recount(struct acct_book *b, uint32_t from);
void acct_store_init(struct acct_store *s, struct budget *budget, uint32_t number);

/* ---- blocks ---------------------------------------------------------------------------------- */

struct account *acct_get_slow(struct acct_book *b, struct acct_store *s, uint64_t stream);
void acct_put_slow(struct acct_book *b, struct account *a);
/* One block of the store's has become dirty again, which nobody asked for. The account that has it
 * now, or NULL: there are too many. */
struct account *acct_charge_again(struct acct_book *b, struct acct_store *s);
void acct_uncharge_again(struct acct_book *b, struct account *a, uint32_t n);

/* Of blk_req.stream what an account is known by. */
static inline uint32_t acct_who(uint64_t stream)
{
	return (uint32_t)stream & ((1u << STREAM_SERIAL_SHIFT) - 1);
}

/* The number of the host of who has account.who @who, or of its initiator's name. */
static inline uint8_t acct_owner_of(uint32_t who, enum acct_owner by)
{
	return (uint8_t)(who >> (by == ACCT_HOST ? STREAM_HOST_SHIFT : STREAM_NAME_SHIFT));
}
static inline uint8_t acct_owner(const struct account *a, enum acct_owner by)
{
	return acct_owner_of(a->who, by);
}

/* (The lowest bits are the session's place.) */
static inline uint32_t acct_bucket(const struct acct_store *s, uint32_t who)
{
	return (s->number * 0x9e37u + who) % ACCT_BUCKETS;
}

/* The account of @stream and store @s, or NULL. */
static inline struct account *acct_find(const struct acct_book *b, const struct acct_store *s,
					uint64_t stream)
{
	const uint32_t who = acct_who(stream);

	for (uint16_t i = b->bucket[acct_bucket(s, who)]; i != ACCT_NONE;) {
		struct account *a = &b->account[i];

		if (likely(a->store == s && a->who == who))
			return a;
		i = a->next;
	}
	return NULL;
}

/* The same; makes one when there is none. NULL: there are too many. Whoever neither charges it nor
 * waits in it puts it afterwards. */
static inline struct account *acct_get(struct acct_book *b, struct acct_store *s, uint64_t stream)
{
	struct account *a = acct_find(b, s, stream);

	return likely(a) ? a : acct_get_slow(b, s, stream);
}

/* It goes when nothing is in it any more. */
static inline void acct_put(struct acct_book *b, struct account *a)
{
	if (unlikely(!(a->side[ACCT_WRITE].used | a->side[ACCT_LOAD].used)))
		acct_put_slow(b, a);
}

static inline uint16_t acct_index(const struct acct_book *b, const struct account *a)
{
	return (uint16_t)(a - b->account);
}

/* What @a holds on a side has changed, or what a little is: @was counted as heavy before. */
static inline void acct_weigh(struct acct_book *b, struct account *a, enum acct_kind kind,
			      uint32_t was)
{
	struct acct_side *t = &b->side[kind];
	const uint32_t used = a->side[kind].used, is = used > t->small ? used : 0;

	a->heavy[kind] = is > 0;
	a->store->side[kind].heavy += is - was;
	t->heavy += is - was;
}

/* What of @a counts as heavy. */
static inline uint32_t acct_heavy(const struct account *a, enum acct_kind kind)
{
	return a->heavy[kind] ? a->side[kind].used : 0;
}

static inline void acct_charge(struct acct_book *b, struct account *a, enum acct_kind kind,
			       uint32_t n)
{
	const uint32_t was = acct_heavy(a, kind);

	a->side[kind].used += n;
	a->store->side[kind].used += n;
	b->side[kind].used += n;
	acct_weigh(b, a, kind, was);
}

static inline void acct_uncharge(struct acct_book *b, struct account *a, enum acct_kind kind,
				 uint32_t n)
{
	struct acct_side *t = &b->side[kind];
	struct acct_store_side *s = &a->store->side[kind];
	const uint32_t was = acct_heavy(a, kind);

	ASSERT(a->side[kind].used >= n && s->used >= n && t->used >= n);
	if (unlikely(a->who == ACCT_AGAIN)) {
		acct_uncharge_again(b, a, n);
		return;
	}
	ASSERT(s->heavy >= was && t->heavy >= was);
	a->side[kind].used -= n;
	s->used -= n;
	t->used -= n;
	acct_weigh(b, a, kind, was);
	acct_put(b, a);
}

/* @n of an account's blocks of ACCT_WRITE are to be received, and then are so no longer. */
static inline void acct_receives(struct acct_book *b, const struct account *a, uint32_t n)
{
	b->receiving += n;
	a->store->receiving += n;
	b->owes[ACCT_HOST][acct_owner(a, ACCT_HOST)] += n;
	b->owes[ACCT_NAME][acct_owner(a, ACCT_NAME)] += n;
}
static inline void acct_received(struct acct_book *b, const struct account *a, uint32_t n)
{
	uint32_t *host = &b->owes[ACCT_HOST][acct_owner(a, ACCT_HOST)],
		 *name = &b->owes[ACCT_NAME][acct_owner(a, ACCT_NAME)];

	ASSERT(a->store->receiving >= n && *host >= n && *name >= n);
	b->receiving -= n;
	a->store->receiving -= n;
	*host -= n;
	*name -= n;
}

/* ---- who may, and who is next ---------------------------------------------------------------- */

bool acct_newcomer_fits(const struct acct_book *b, const struct account *a, enum acct_kind kind,
			uint32_t n);

/* May @a surely have @n blocks, whoever waits for what? It holds a little, and its store, too: half
 * of what there is for that is dealt out to the stores, the other half is for who has nothing. */
static inline bool acct_fits_little(const struct acct_book *b, const struct account *a,
				    enum acct_kind kind, uint32_t n)
{
	const struct acct_side *t = &b->side[kind];
	const struct acct_store_side *s = &a->store->side[kind];
	const uint32_t stores =
		atomic_load_explicit(&a->store->budget->sum->stores, memory_order_relaxed);

	if (a->side[kind].used + n > t->small)
		return false;
	return s->used - s->heavy + n <= MAX(t->little / 2 / MAX(stores, 1u), 1u) ||
	       (!a->side[kind].used && acct_newcomer_fits(b, a, kind, n));
}

struct blk_req;
/* May @a, for a request for @n blocks, take them now? It may when it fits and does not overtake
 * whoever was promised room. @elected: it is the one. @ahead: it has been elected before, and comes
 * back from waiting for more. */
bool acct_may_take(const struct acct_book *b, const struct account *a, enum acct_kind kind,
		   uint32_t n, bool elected, bool ahead);
/* It does. @waited: it had to, and leaves next. */
void acct_take(struct acct_book *b, struct account *a, enum acct_kind kind, uint32_t n,
	       bool waited);
/* @req (its cache_op filled in) waits in @a for its turn. */
void acct_wait(struct acct_book *b, struct account *a, enum acct_kind kind, struct blk_req *req);
/* It does so no longer. */
void acct_leave(struct acct_book *b, struct account *a, enum acct_kind kind, struct blk_req *req);
/* Since when who waits longest does so (cache_op.since_ns), of the first ACCT_OLDEST accounts;
 * UINT64_MAX: nobody waits. */
#define ACCT_OLDEST 64u
uint64_t acct_oldest(const struct acct_book *b, enum acct_kind kind);
/* The next whose turn it is and who can have it, marked as woken; or NULL. @in_turn: partitions are
 * asked one after the other, the one where somebody waits longest first. Else who is slowed does
 * not get ahead of those in others. Nobody is asked twice, and ELECT_LOOKS at most are asked; for
 * something little half as many again. The next election begins with those who were left out. */
#define ELECT_LOOKS 64u
struct blk_req *acct_elect(struct acct_book *b, enum acct_kind kind, bool in_turn);

#endif
