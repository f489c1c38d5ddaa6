/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The rules of accounts alone: a book, its stores, and requests that no cache has seen. */
#include <stdio.h>
#include <stdlib.h>
#include "cache/engine/op_impl.h"
#include "events/clock.h"
#include "tests/support/blktest.h"
#include "tests/support/unit.h"

#define STORES 8
#define SESSIONS 12
#define REQS 48
#define BLOCKS 4096u

enum health { WELL, SLOW, DEAD, FAILING, HEALTHS };

struct one {
	struct budget budget;
	struct acct_store store;
	enum health health;
	uint32_t dirty;	 /* what is dirty, of all its sessions */
	uint32_t out;	 /* being written */
	uint64_t due_ns; /* when that ends */
	uint32_t held_at_death, most_since;
};

struct asked {
	struct blk_req req;
	unsigned store, session;
	uint32_t n;
	uint64_t comes_ns; /* its data: then it is dirty */
	enum { IDLE, WAITS, RECEIVES } state;
};

static struct budget_sum sum;
static struct acct_book book;
static uint8_t book_memory[ACCT_BOOK_BYTES] cacheline_aligned;
static struct one stores[STORES];
static struct asked asked[REQS];
static uint32_t dirty_of[STORES][SESSIONS]; /* what blocks would say */
static uint64_t rng, now;

static void init(unsigned nstores)
{
	memset(&sum, 0, sizeof(sum));
	sum.dirty_limit = BLOCKS / 2 * 4096ull;
	sum.block_shift = 12;
	sum.parts = 1;
	memset(dirty_of, 0, sizeof(dirty_of));
	memset(book_memory, 0, sizeof(book_memory));
	acct_book_init(&book, BLOCKS, book_memory);
	for (unsigned i = 0; i < nstores; i++) {
		memset(&stores[i], 0, sizeof(stores[i]));
		budget_init(&stores[i].budget, &sum);
		acct_store_init(&stores[i].store, &stores[i].budget, i + 1);
	}
	book.side[ACCT_LOAD].limit = BLOCKS / 4;
	now = 1000 * NSEC_PER_SEC;
	clock_fake_set(now);
}

static void fini(unsigned nstores)
{
	for (unsigned i = 0; i < nstores; i++) {
		ck_assert_uint_eq(stores[i].store.accounts, 0);
		budget_fini(&stores[i].budget);
	}
	clock_fake_off();
}

/* A session, of a host of its own unless @host. */
static uint64_t stream_of(unsigned session, unsigned host)
{
	return (uint64_t)(host ? host : session + 1) << STREAM_HOST_SHIFT | (session + 1);
}

static uint64_t named(uint64_t stream, unsigned name)
{
	return stream | (uint64_t)name << STREAM_NAME_SHIFT;
}

static bool try_take(struct one *s, uint64_t stream, uint32_t n)
{
	struct account *a = acct_get(&book, &s->store, stream);

	ck_assert_ptr_nonnull(a);
	if (!acct_may_take(&book, a, ACCT_WRITE, n, false, false)) {
		acct_put(&book, a);
		return false;
	}
	acct_take(&book, a, ACCT_WRITE, n, false);
	acct_receives(&book, a, n);
	return true;
}

static void comes(struct one *s, uint64_t stream, uint32_t n)
{
	acct_received(&book, acct_find(&book, &s->store, stream), n);
}

static void goes(struct one *s, uint64_t stream, uint32_t n)
{
	acct_uncharge(&book, acct_find(&book, &s->store, stream), ACCT_WRITE, n);
}

/* The store takes 8 MiB well, at so many bytes a second, of which so many in one write. */
static void drains_at_by(struct one *s, uint64_t rate, uint64_t len)
{
	for (uint64_t bytes = 0; bytes < MiB(8); bytes += len) {
		budget_write_begin(&s->budget);
		clock_fake_advance(len * NSEC_PER_SEC / rate);
		budget_write_end(&s->budget, len, 0);
	}
	budget_tick(&s->budget, clock_now_ns(), true);
}

static void drains_at(struct one *s, uint64_t rate)
{
	drains_at_by(s, rate, KiB(64));
}

/* All that is held has been received, and goes. */
static void give_all_back(unsigned nstores)
{
	for (uint16_t i = 0; i < book.fresh; i++) {
		struct account *a = &book.account[i];
		const uint32_t n = a->store ? a->side[ACCT_WRITE].used : 0;

		if (!n)
			continue;
		acct_received(&book, a, n);
		acct_uncharge(&book, a, ACCT_WRITE, n);
	}
	for (unsigned i = 0; i < nstores; i++)
		ck_assert_uint_eq(stores[i].store.side[ACCT_WRITE].used, 0);
}

/* ---- one rule each --------------------------------------------------------------------------- */

/* Stores that burst and take nothing leave room for requests of others, and die one by one. */
START_TEST(each_store_leaves_some)
{
	for (unsigned k = 1; k < STORES; k++) {
		init(STORES);
		for (unsigned i = 0; i < k; i++)
			for (unsigned h = 1; h <= 20; h++)
				for (unsigned j = 0; j < 100; j++)
					if (try_take(&stores[i], stream_of(h, h), 64))
						comes(&stores[i], stream_of(h, h), 64);
		for (unsigned i = 0; i < k; i++)
			ck_assert_uint_ge(stores[i].store.side[ACCT_WRITE].used,
					  book.side[ACCT_WRITE].floor);
		ck_assert(try_take(&stores[k], stream_of(3, 3), 128));
		comes(&stores[k], stream_of(3, 3), 128);
		goes(&stores[k], stream_of(3, 3), 128);
		/* Those who have room left in the little that is theirs have it at once. */
		for (unsigned i = 0; i < STORES; i++)
			ck_assert(i < k || try_take(&stores[i], stream_of(40, 40), 1));
		for (unsigned i = 0; i < STORES; i++)
			for (unsigned h = 0; h <= 40; h++) {
				struct account *a =
					acct_find(&book, &stores[i].store, stream_of(h, h));

				if (!a)
					continue;
				if (h == 40)
					comes(&stores[i], stream_of(h, h), 1);
				goes(&stores[i], stream_of(h, h), a->side[ACCT_WRITE].used);
			}
		ck_assert_uint_eq(book.side[ACCT_WRITE].used, 0);
		ck_assert_uint_eq(book.side[ACCT_WRITE].heavy, 0);
		ck_assert_uint_eq(book.receiving, 0);
		fini(STORES);
	}
}
END_TEST

/* W1: all sessions of one host owe no more than half; but each that wants a little has it. */
START_TEST(a_host_owes_half_at_most)
{
	uint32_t owed = 0;

	init(2);
	drains_at(&stores[0], MiB(100));
	drains_at(&stores[1], MiB(100));
	for (unsigned s = 0; s < 60; s++)
		while (try_take(&stores[0], stream_of(s, 9), 128))
			owed += 128;
	ck_assert_uint_eq(book.owes[ACCT_HOST][9], owed);
	ck_assert_uint_le(owed, book.side[ACCT_WRITE].limit / 2);
	ck_assert_uint_ge(owed, book.side[ACCT_WRITE].limit / 4);
	for (unsigned s = 0; s < 4; s++)
		ck_assert(try_take(&stores[0], stream_of(70 + s, 9), 4));
	/* Another host, at either store, for much. */
	ck_assert(try_take(&stores[0], stream_of(80, 10), 256));
	ck_assert(try_take(&stores[1], stream_of(81, 11), 256));
	ck_assert(!try_take(&stores[1], stream_of(82, 9), 128));
	give_all_back(2);
	fini(2);
}
END_TEST

/* So do all of one initiator, wherever they come from; and many names of one host buy nothing. */
START_TEST(an_initiator_owes_half_at_most)
{
	uint32_t owed = 0;

	init(2);
	drains_at(&stores[0], MiB(100));
	drains_at(&stores[1], MiB(100));
	for (unsigned round = 0; round < 20; round++)
		for (unsigned s = 0; s < 60; s++)
			if (try_take(&stores[0], named(stream_of(s, 1 + s), 7), 128))
				owed += 128;
	ck_assert_uint_eq(book.owes[ACCT_NAME][7], owed);
	ck_assert_uint_le(owed, book.side[ACCT_WRITE].limit / 2);
	ck_assert_uint_ge(owed, book.side[ACCT_WRITE].limit / 4);
	/* Others, for much. */
	ck_assert(try_take(&stores[0], named(stream_of(80, 69), 8), 256));
	ck_assert(try_take(&stores[1], named(stream_of(81, 70), 9), 256));
	ck_assert(!try_take(&stores[1], named(stream_of(82, 71), 7), 128));
	give_all_back(2);
	/* One host, a name for each session. */
	owed = 0;
	for (unsigned s = 0; s < 60; s++)
		while (try_take(&stores[0], named(stream_of(s, 9), 100 + s), 128))
			owed += 128;
	ck_assert_uint_le(owed, book.side[ACCT_WRITE].limit / 2);
	ck_assert(try_take(&stores[0], named(stream_of(80, 1), 8), 256));
	give_all_back(2);
	fini(2);
}
END_TEST

/* What one of a host has been promised, and has not come for, counts for the others of that host:
 * also at another store, where nobody waits. */
START_TEST(what_is_promised_is_owed)
{
	const uint64_t waits = stream_of(50, 9), comes_now = stream_of(51, 9);
	struct blk_req *req = &asked[0].req;
	struct account *a;
	uint32_t owed = 0;

	init(2);
	drains_at(&stores[0], MiB(100));
	drains_at(&stores[1], MiB(100));
	for (unsigned s = 0; s < 8; s++)
		while (try_take(&stores[0], stream_of(s, 9), 128))
			owed += 128;
	memset(&asked[0], 0, sizeof(asked[0]));
	list_init(&req->link);
	req->op = BLK_WRITE;
	op_of(req)->need = 128;
	op_of(req)->since_ns = clock_now_ns();
	acct_wait(&book, acct_get(&book, &stores[0].store, waits), ACCT_WRITE, req);
	ck_assert_ptr_null(acct_elect(&book, ACCT_WRITE, false));
	comes(&stores[0], stream_of(0, 9), 128);
	ck_assert_ptr_eq(acct_elect(&book, ACCT_WRITE, false), req);
	ck_assert(!try_take(&stores[1], comes_now, 128));
	ck_assert(try_take(&stores[1], stream_of(52, 10), 128)); /* of others it does not */
	a = acct_find(&book, &stores[0].store, waits);
	ck_assert(acct_may_take(&book, a, ACCT_WRITE, 128, true, false));
	acct_take(&book, a, ACCT_WRITE, 128, true);
	acct_receives(&book, a, 128);
	acct_leave(&book, a, ACCT_WRITE, req);
	ck_assert_uint_eq(book.owes[ACCT_HOST][9], owed);
	ck_assert_uint_le(owed, book.side[ACCT_WRITE].limit / 2);
	acct_receives(&book, acct_find(&book, &stores[0].store, stream_of(0, 9)), 128);
	give_all_back(2);
	fini(2);
}
END_TEST

/* A place that was another session's, some of whose blocks are dirty still: who has it now is asked
 * by its own name and host. */
START_TEST(who_had_the_place_before)
{
	uint32_t owed = 0;

	init(1);
	drains_at(&stores[0], MiB(100));
	for (unsigned s = 0; s < 6; s++) {
		ck_assert(try_take(&stores[0], named(stream_of(s, 100 + s), 100 + s), 1));
		comes(&stores[0], named(stream_of(s, 100 + s), 100 + s), 1);
	}
	for (unsigned s = 0; s < 6; s++)
		while (try_take(&stores[0], named(stream_of(s, 1 + s), 7), 128))
			owed += 128;
	ck_assert_uint_eq(book.owes[ACCT_NAME][7], owed);
	ck_assert_uint_le(owed, book.side[ACCT_WRITE].limit / 2);
	ck_assert_uint_eq(stores[0].store.accounts, 7);
	for (unsigned s = 0; s < 6; s++) {
		const uint64_t id = named(stream_of(s, 1 + s), 7);
		const struct account *a = acct_find(&book, &stores[0].store, id);
		const uint32_t n = a ? a->side[ACCT_WRITE].used : 0;

		goes(&stores[0], named(stream_of(s, 100 + s), 100 + s), 1);
		if (!n)
			continue;
		comes(&stores[0], id, n);
		goes(&stores[0], id, n);
	}
	fini(1);
}
END_TEST

/* The nearer a store comes to its limit, the slower its writers; before that not at all. */
START_TEST(writers_are_slowed_early)
{
	struct budget *b = &stores[0].budget;
	uint64_t due[5];

	init(1);
	drains_at(&stores[0], MiB(100));
	clock_fake_advance(NSEC_PER_SEC);
	for (unsigned i = 0; i < 5; i++) {
		const uint32_t held = 700 + i * 75;

		clock_fake_advance(NSEC_PER_SEC);
		ck_assert(budget_due(b, held, 1000, false));
		for (unsigned k = 0; k < 100; k++)
			budget_pace(b, held, 1000, 256);
		due[i] = MAX(b->next_ns, clock_now_ns()) - clock_now_ns();
		ck_assert(budget_due(b, held, 1000, false) == (i == 0));
		clock_fake_advance(10 * NSEC_PER_SEC);
	}
	/* 100 MiB at twice the rate just beyond three quarters, at its rate at seven eighths. */
	ck_assert_uint_eq(due[0], 0);
	ck_assert_uint_ge(due[1], NSEC_PER_SEC / 2);
	ck_assert_uint_le(due[1], NSEC_PER_SEC);
	ck_assert_uint_ge(due[2], due[1]);
	ck_assert_uint_ge(due[3], 2 * due[1]);
	ck_assert_uint_ge(due[4], 2 * due[3]);
	/* Not where a write takes as long as the last quarter of the limit. */
	for (unsigned i = 0; i < 8; i++)
		drains_at_by(&stores[0], MiB(100), MiB(1));
	budget_pace(b, 950, 1000, 100000);
	ck_assert(budget_due(b, 950, 1000, false));
	fini(1);
}
END_TEST

static bool try_load(struct one *s, uint64_t stream, uint32_t n)
{
	struct account *a = acct_get(&book, &s->store, stream);

	if (!acct_may_take(&book, a, ACCT_LOAD, n, false, false)) {
		acct_put(&book, a);
		return false;
	}
	acct_take(&book, a, ACCT_LOAD, n, false);
	return true;
}

static void loaded(struct one *s, uint64_t stream, uint32_t n)
{
	acct_uncharge(&book, acct_find(&book, &s->store, stream), ACCT_LOAD, n);
}

/* A store that swallows reads has what it had when that was noticed, or its floor; one that only
 * takes no writes goes on reading. */
START_TEST(a_store_that_swallows_reads)
{
	struct budget *b = &stores[0].budget;

	init(2);
	book.side[ACCT_LOAD].limit = BLOCKS / 2;
	ck_assert(!budget_silent(b));
	ck_assert_uint_ne(budget_read_begin(b), 0);
	ck_assert_uint_eq(budget_read_begin(b), 0);
	ck_assert(try_load(&stores[0], stream_of(1, 1), 64));
	clock_fake_advance(NSEC_PER_SEC / 2);
	ck_assert(!budget_silent(b));
	budget_read_end(b);
	clock_fake_advance(NSEC_PER_SEC / 2);
	ck_assert(!budget_silent(b));
	clock_fake_advance(NSEC_PER_SEC / 2);
	ck_assert(budget_silent(b));
	for (unsigned s = 1; s < 40; s++)
		while (try_load(&stores[0], stream_of(s, s), 64))
			;
	ck_assert_uint_le(stores[0].store.side[ACCT_LOAD].used, book.side[ACCT_LOAD].floor);
	/* All the rest is there for others. */
	ck_assert(try_load(&stores[1], stream_of(50, 50), BLOCKS / 4));
	loaded(&stores[1], stream_of(50, 50), BLOCKS / 4);
	budget_read_end(b);
	ck_assert(!budget_silent(b));
	ck_assert(try_load(&stores[0], stream_of(45, 45), 512));
	for (unsigned s = 1; s < 46; s++) {
		struct account *a = acct_find(&book, &stores[0].store, stream_of(s, s));

		if (a)
			loaded(&stores[0], stream_of(s, s), a->side[ACCT_LOAD].used);
	}
	clock_fake_advance(10 * NSEC_PER_SEC);
	ck_assert(!budget_silent(b)); /* nobody reads */
	budget_write_begin(b);
	clock_fake_advance(2 * NSEC_PER_SEC);
	budget_tick(b, clock_now_ns(), true);
	ck_assert(budget_stalled(b) && budget_silent(b));
	budget_read_begin(b);
	budget_read_end(b);
	ck_assert(budget_stalled(b) && !budget_silent(b));
	budget_write_end(b, MiB(1), 0);
	fini(2);
}
END_TEST

/* Rates, and what becomes of a store that takes nothing any more. */
START_TEST(weights)
{
	init(2);
	struct budget *fast = &stores[0].budget, *slow = &stores[1].budget;

	ck_assert_uint_eq(fast->weight, BUDGET_ALL);
	ck_assert(!budget_drains(fast));
	drains_at(&stores[0], MiB(100));
	ck_assert(budget_drains(fast));
	ck_assert_uint_eq(fast->weight, BUDGET_ALL); /* alone */
	for (unsigned i = 0; i < 40; i++)
		drains_at(&stores[1], KiB(100));
	drains_at(&stores[0], MiB(100));
	budget_tick(slow, clock_now_ns(), true);
	ck_assert_uint_ge(fast->rate, MiB(90));
	ck_assert_uint_le(slow->rate, KiB(120));
	ck_assert_uint_ge(fast->weight, BUDGET_ALL / 100 * 95);
	/* 4 seconds of 100 KiB/s, of 8 MiB. */
	ck_assert_uint_le(slow->weight, BUDGET_ALL / 15);
	ck_assert_uint_ge(slow->weight, BUDGET_ALL / 30);
	budget_write_begin(fast);
	clock_fake_advance(200 * NSEC_PER_MSEC);
	budget_tick(fast, clock_now_ns(), true);
	ck_assert(!budget_drains(fast) && !budget_stalled(fast));
	clock_fake_advance(NSEC_PER_SEC);
	budget_tick(fast, clock_now_ns(), true);
	ck_assert(budget_stalled(fast));
	ck_assert_uint_eq(fast->weight, 0);
	budget_tick(slow, clock_now_ns(), true);
	ck_assert_uint_eq(slow->weight, BUDGET_ALL);
	budget_write_end(fast, MiB(1), 0);
	ck_assert(budget_drains(fast) && !budget_stalled(fast));
	/* One that fails counts the time until it is tried again. */
	const uint64_t before = fast->rate;

	for (unsigned i = 0; i < 10; i++) {
		budget_write_begin(fast);
		budget_write_end(fast, MiB(1), -EIO);
		clock_fake_advance(NSEC_PER_SEC);
		budget_write_begin(fast);
		budget_write_end(fast, MiB(1), 0);
	}
	ck_assert_uint_lt(fast->rate, before / 10);
	fini(2);
}
END_TEST

/* Which accounts are heavy follows the size, some accounts at a time; the sums are right all the
 * while. */
static uint32_t sum_of_heavy(void)
{
	uint32_t heavy = 0;

	for (uint16_t i = 0; i < book.fresh; i++) {
		const struct account *a = &book.account[i];

		if (!a->store)
			continue;
		ck_assert_uint_le(acct_heavy(a, ACCT_WRITE), a->side[ACCT_WRITE].used);
		heavy += acct_heavy(a, ACCT_WRITE);
	}
	ck_assert_uint_eq(book.side[ACCT_WRITE].heavy, heavy);
	ck_assert_uint_eq(stores[0].store.side[ACCT_WRITE].heavy, heavy);
	return heavy;
}

START_TEST(another_size)
{
	enum { MANY = 300 };
	uint32_t small[2], calls[2] = { 0 }, heavy[2];

	init(1);
	for (unsigned i = 0; i < MANY; i++) {
		const uint32_t n = 1 + i % 24;
		struct account *a = acct_get(&book, &stores[0].store, stream_of(i, 9));

		acct_charge(&book, a, ACCT_WRITE, n);
	}
	sum_of_heavy();
	for (unsigned k = 0; k < 2; k++) {
		uint32_t at = 0, want = 0;

		acct_book_resize(&book, k ? BLOCKS : BLOCKS / 8);
		small[k] = book.side[ACCT_WRITE].small;
		sum_of_heavy();
		/* Some come and go in between. */
		for (unsigned i = 0; i < MANY; i += 7) {
			struct account *a = acct_find(&book, &stores[0].store, stream_of(i, 9));

			acct_charge(&book, a, ACCT_WRITE, 3);
			sum_of_heavy();
			acct_uncharge(&book, a, ACCT_WRITE, 3);
			sum_of_heavy();
		}
		do {
			at = acct_recount(&book, at);
			calls[k]++;
			heavy[k] = sum_of_heavy();
		} while (at);
		for (unsigned i = 0; i < MANY; i++)
			want += 1 + i % 24 > small[k] ? 1 + i % 24 : 0;
		ck_assert_uint_eq(heavy[k], want);
		ck_assert_uint_eq(calls[k], DIV_ROUND_UP(MANY, LEAF_VISITS));
	}
	ck_assert_uint_lt(small[0], small[1]);
	ck_assert_uint_gt(heavy[0], heavy[1]);
	for (unsigned i = 0; i < MANY; i++)
		goes(&stores[0], stream_of(i, 9), 1 + i % 24);
	ck_assert_uint_eq(book.side[ACCT_WRITE].used, 0);
	ck_assert_uint_eq(book.side[ACCT_WRITE].heavy, 0);
	fini(1);
}
END_TEST

/* ---- all of them at random ------------------------------------------------------------------- */

static void check_sums(void)
{
	const struct acct_side *t = &book.side[ACCT_WRITE];
	uint32_t used = 0, heavy = 0, receiving = 0, promised = 0, host[ACCT_OWNERS] = { 0 };
	uint32_t of[STORES] = { 0 }, pages[STORES] = { 0 };

	for (unsigned i = 0; i < STORES; i++) {
		used += stores[i].store.side[ACCT_WRITE].used;
		heavy += stores[i].store.side[ACCT_WRITE].heavy;
		receiving += stores[i].store.receiving;
		for (unsigned s = 0; s < SESSIONS; s++)
			pages[i] += dirty_of[i][s];
	}
	for (unsigned i = 0; i < REQS; i++) {
		if (asked[i].state == RECEIVES) {
			pages[asked[i].store] += asked[i].n;
			host[asked[i].session + 1] += asked[i].n;
		}
		if (asked[i].state == WAITS && (op_of(&asked[i].req)->flags & OP_F_WOKEN))
			promised += asked[i].n;
	}
	for (uint16_t i = 0; i < book.fresh; i++)
		if (book.account[i].store)
			of[book.account[i].store->number - 1] +=
				book.account[i].side[ACCT_WRITE].used;
	ck_assert_uint_eq(t->used, used);
	ck_assert_uint_eq(t->heavy, heavy);
	ck_assert_uint_eq(book.receiving, receiving);
	ck_assert_uint_eq(t->promised, promised);
	for (unsigned i = 0; i < STORES; i++) {
		ck_assert_uint_eq(of[i], stores[i].store.side[ACCT_WRITE].used);
		ck_assert_uint_eq(of[i], pages[i]);
	}
	for (unsigned h = 1; h <= SESSIONS; h++)
		ck_assert_uint_eq(host[h], book.owes[ACCT_HOST][h]);
	/* Half of what is for little is the stores', whatever the sum; and half as much is for
	 * newcomers alone. */
	ck_assert_uint_le(used, t->limit + t->spare + 2 * t->little);
}

static void got_it(struct asked *q)
{
	q->state = RECEIVES;
	q->comes_ns = now + bt_random(&rng) % (20 * NSEC_PER_MSEC);
}

static void ask(struct asked *q)
{
	struct one *s = &stores[q->store];
	struct account *a;

	if (try_take(s, q->req.stream, q->n)) {
		got_it(q);
		return;
	}
	a = acct_get(&book, &s->store, q->req.stream);
	op_of(&q->req)->since_ns = now;
	op_of(&q->req)->need = (uint16_t)q->n;
	op_of(&q->req)->flags = OP_F_QUEUED | OP_F_WAIT_WRITE;
	acct_wait(&book, a, ACCT_WRITE, &q->req);
	q->state = WAITS;
}

/* As a partition does when anything has come back: the one elected takes what it was promised. */
static void kick(void)
{
	struct blk_req *req;

	while ((req = acct_elect(&book, ACCT_WRITE, true))) {
		struct asked *q = container_of(req, struct asked, req);
		struct one *s = &stores[q->store];
		struct account *a = acct_find(&book, &s->store, req->stream);

		check_sums();
		/* Nobody's promise is lost: nothing that comes in between takes it away. */
		for (unsigned i = 0; i < REQS / 4; i++) {
			struct asked *other = &asked[bt_random(&rng) % REQS];

			if (other->state == IDLE && other->n)
				ask(other);
		}
		ck_assert(acct_may_take(&book, a, ACCT_WRITE, q->n, true, false));
		acct_take(&book, a, ACCT_WRITE, q->n, true);
		acct_receives(&book, a, q->n);
		acct_leave(&book, a, ACCT_WRITE, req);
		op_of(req)->flags = 0;
		got_it(q);
	}
}

/* Its initiator aborts it. */
static void give_up(struct asked *q)
{
	struct acct_store *s = &stores[q->store].store;

	acct_leave(&book, acct_find(&book, s, q->req.stream), ACCT_WRITE, &q->req);
	op_of(&q->req)->flags = 0;
	q->state = IDLE;
}

static void write_back(unsigned i)
{
	struct one *s = &stores[i];

	if (s->out && now >= s->due_ns && s->health != DEAD) {
		const bool fails = s->health == FAILING && bt_random(&rng) % 3 == 0;

		budget_write_end(&s->budget, (uint64_t)s->out << 12, fails ? -EIO : 0);
		for (unsigned k = 0; k < SESSIONS && !fails; k++) {
			const uint32_t n = MIN(dirty_of[i][k], s->out);

			if (!n)
				continue;
			dirty_of[i][k] -= n;
			s->dirty -= n;
			s->out -= n;
			goes(s, stream_of(k, 0), n);
		}
		s->out = 0;
		s->due_ns = fails ? now + NSEC_PER_SEC / 4 : now;
	}
	if (!s->out && s->dirty && now >= s->due_ns) {
		s->out = MIN(s->dirty, 256u);
		budget_write_begin(&s->budget);
		s->due_ns = now + (s->health == SLOW ? 50 : 2) * NSEC_PER_MSEC;
	}
	budget_tick(&s->budget, now, s->dirty > 0);
}

#define HAS 20u /* more than a little */

/* Session @k of store @i has some, and waits for more than there is. */
static void waits_for_much(unsigned i, unsigned k, struct asked *q)
{
	const uint64_t stream = stream_of(k, 0);
	struct account *a = acct_get(&book, &stores[i].store, stream);

	blk_req_init(&q->req);
	q->req.op = BLK_WRITE;
	q->req.stream = stream;
	acct_charge(&book, a, ACCT_WRITE, HAS);
	op_of(&q->req)->flags = OP_F_QUEUED | OP_F_WAIT_WRITE;
	op_of(&q->req)->need = BLOCKS;
	op_of(&q->req)->since_ns = ++now;
	acct_wait(&book, a, ACCT_WRITE, &q->req);
}

static void waits_no_more(unsigned i, unsigned k, struct asked *q)
{
	struct account *a = acct_find(&book, &stores[i].store, stream_of(k, 0));

	acct_leave(&book, a, ACCT_WRITE, &q->req);
	acct_uncharge(&book, a, ACCT_WRITE, HAS);
}

/* Who cannot have what it waits for is asked once an election, and no election goes on for long.
 * One who can is found by the next ones, wherever it stands. */
START_TEST(nobody_is_asked_twice)
{
	static struct asked one[8], many[STORES][SESSIONS];
	const struct acct_side *t = &book.side[ACCT_WRITE];
	struct blk_req *req = NULL;

	init(STORES);
	drains_at(&stores[STORES - 1], MiB(100));
	for (unsigned k = 0; k < ARRAY_SIZE(one); k++)
		waits_for_much(0, k, &one[k]);
	ck_assert_ptr_null(acct_elect(&book, ACCT_WRITE, true));
	ck_assert_uint_le(t->looked, 2 * ARRAY_SIZE(one)); /* for all of it, and for a little */
	for (unsigned k = 0; k < ARRAY_SIZE(one); k++)
		waits_no_more(0, k, &one[k]);
	for (unsigned i = 0; i < STORES; i++)
		for (unsigned k = 0; k < SESSIONS; k++)
			waits_for_much(i, k, &many[i][k]);
	for (unsigned n = 0; n < 10; n++) {
		ck_assert_ptr_null(acct_elect(&book, ACCT_WRITE, true));
		ck_assert_uint_le(t->looked, ELECT_LOOKS + ELECT_LOOKS / 2);
	}
	op_of(&many[STORES - 1][SESSIONS - 1].req)->need = 1;
	for (unsigned n = 0; n < 4 && !req; n++)
		req = acct_elect(&book, ACCT_WRITE, true);
	ck_assert_ptr_eq(req, &many[STORES - 1][SESSIONS - 1].req);
	for (unsigned i = 0; i < STORES; i++)
		for (unsigned k = 0; k < SESSIONS; k++)
			waits_no_more(i, k, &many[i][k]);
	fini(STORES);
}
END_TEST

#define SEEDS 12

/* Random stores and sessions, and what never happens. */
START_TEST(whoever_does_what)
{
	const char *env = getenv("TGT_ACCOUNT_SEEDS");
	const unsigned seeds = env ? (unsigned)atoi(env) : SEEDS;

	for (unsigned seed = 1; seed <= seeds; seed++) {
		uint64_t longest = 0, served[HEALTHS] = { 0 };
		unsigned newcomers = 0, refused = 0;

		rng = seed;
		init(STORES);
		for (unsigned i = 0; i < STORES; i++)
			stores[i].health = i < 2 ? WELL : bt_random(&rng) % HEALTHS;
		for (unsigned i = 0; i < REQS; i++) {
			struct asked *q = &asked[i];

			blk_req_init(&q->req);
			q->req.op = BLK_WRITE;
			q->state = IDLE;
			q->n = 0;
		}
		for (unsigned step = 0; step < 6000; step++) {
			clock_fake_advance(NSEC_PER_MSEC);
			now = clock_now_ns();
			for (unsigned i = 0; i < REQS; i++) {
				struct asked *q = &asked[i];

				if (q->state == RECEIVES && now >= q->comes_ns) {
					comes(&stores[q->store], q->req.stream, q->n);
					dirty_of[q->store][q->session] += q->n;
					stores[q->store].dirty += q->n;
					q->state = IDLE;
					served[stores[q->store].health]++;
				}
				if (q->state == WAITS && stores[q->store].health == WELL)
					longest = MAX(longest, now - op_of(&q->req)->since_ns);
				if (q->state == WAITS && stores[q->store].health != WELL &&
				    now - op_of(&q->req)->since_ns > NSEC_PER_SEC / 10)
					give_up(q);
				if (q->state != IDLE || bt_random(&rng) % 4)
					continue;
				q->store = (unsigned)(bt_random(&rng) % STORES);
				q->session = (unsigned)(bt_random(&rng) % SESSIONS);
				q->req.stream = stream_of(q->session, 0);
				q->n = 1u << bt_random(&rng) % 8;
				ask(q);
			}
			for (unsigned i = 0; i < STORES; i++)
				write_back(i);
			kick();
			check_sums();
			for (unsigned i = 0; i < STORES; i++) {
				struct one *s = &stores[i];
				const uint32_t used = s->store.side[ACCT_WRITE].used;

				/* What it had when it was known to be dead, or its floor and
				 * the little of its sessions. */
				if (!budget_stalled(&s->budget))
					s->held_at_death = used;
				else
					ck_assert_uint_le(used,
							  MAX(s->held_at_death,
							      book.side[ACCT_WRITE].floor) +
								  book.side[ACCT_WRITE].little);
			}
			if (step % 100 == 0) {
				/* A newcomer that asks for little has it at once. */
				struct one *s = &stores[step / 100 % 2];

				newcomers++;
				if (try_take(s, stream_of(100, 120), 1)) {
					comes(s, stream_of(100, 120), 1);
					goes(s, stream_of(100, 120), 1);
				} else {
					refused++;
				}
			}
		}
		fprintf(stderr,
			"# seed %u: served well %llu, slow %llu, dead %llu, failing %llu; "
			"longest wait at a healthy store %llu ms; %u of %u newcomers waited\n",
			seed, (unsigned long long)served[WELL], (unsigned long long)served[SLOW],
			(unsigned long long)served[DEAD], (unsigned long long)served[FAILING],
			(unsigned long long)longest / 1000000, refused, newcomers);
		ck_assert_uint_eq(refused, 0);
		ck_assert_uint_le(longest, NSEC_PER_SEC);
		ck_assert_uint_gt(served[WELL], 500);
		for (unsigned i = 0; i < REQS; i++) {
			struct asked *q = &asked[i];
			struct one *s = &stores[q->store];

			if (q->state == WAITS)
				give_up(q);
			if (q->state == RECEIVES) {
				comes(s, q->req.stream, q->n);
				goes(s, q->req.stream, q->n);
			}
		}
		for (unsigned i = 0; i < STORES; i++) {
			for (unsigned k = 0; k < SESSIONS; k++)
				if (dirty_of[i][k])
					goes(&stores[i], stream_of(k, 0), dirty_of[i][k]);
			if (stores[i].out)
				budget_write_end(&stores[i].budget, 0, -EIO);
		}
		ck_assert_uint_eq(book.side[ACCT_WRITE].used, 0);
		fini(STORES);
	}
}
END_TEST

UNIT_MAIN("account_book", 60 * unit_longer("TGT_ACCOUNT_SEEDS", SEEDS), each_store_leaves_some,
	  a_host_owes_half_at_most, an_initiator_owes_half_at_most, what_is_promised_is_owed,
	  who_had_the_place_before,
	  writers_are_slowed_early, a_store_that_swallows_reads, weights, another_size,
	  nobody_is_asked_twice, whoever_does_what)
