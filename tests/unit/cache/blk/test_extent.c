/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The reader/writer queue per extent: who waits for whom, in which order, against a plain model. */
#include <check.h>
#include <stdlib.h>
#include "cache/blk/extent.h"
#include "tests/support/blktest.h"

static struct extent_queue q;
static struct loop *loop;

struct user {
	struct extent_hold h;
	bool asked, held, left;
};

static void granted(struct extent_hold *h)
{
	struct user *u = container_of(h, struct user, h);

	ck_assert(!u->held && !u->left);
	u->held = true;
}

static void setup(void)
{
	struct loop_conf conf = { .name = "test", .node = 0, .cpu = -1 };

	loop = loop_create(&conf);
	extent_queue_init(&q);
}

static void teardown(void)
{
	extent_queue_fini(&q);
	loop_destroy(loop);
}

static bool ask(struct user *u, uint64_t start, uint64_t len, bool exclusive)
{
	memset(u, 0, sizeof(*u));
	u->asked = true;
	loop_self_ = loop;
	u->held = extent_acquire(&q, &u->h, start, len, exclusive, granted);
	loop_self_ = NULL;
	return u->held;
}

static void leave(struct user *u)
{
	ck_assert(u->held);
	u->held = false;
	u->left = true;
	extent_release(&q, &u->h);
	loop_step(loop, 0);
}

START_TEST(writers_exclude_readers_share)
{
	struct user r1, r2, w1, w2, far;

	ck_assert(ask(&r1, 0, 100, false));
	ck_assert(ask(&r2, 50, 100, false));
	ck_assert(!ask(&w1, 99, 1, true));
	ck_assert(ask(&w2, 150, 10, true)); /* touches nobody */
	ck_assert(ask(&far, 1000, UINT64_MAX - 1000, true));
	leave(&r1);
	ck_assert(!w1.held);
	leave(&r2);
	ck_assert(w1.held);
	leave(&w1);
	leave(&w2);
	leave(&far);
}
END_TEST

START_TEST(waiting_writer_holds_back_later_readers)
{
	struct user r1, w, r2, r3;

	ck_assert(ask(&r1, 0, 10, false));
	ck_assert(!ask(&w, 5, 10, true));
	ck_assert(!ask(&r2, 0, 10, false)); /* would do with r1, but the writer is first */
	ck_assert(ask(&r3, 0, 5, false));   /* does not meet the writer */
	leave(&r1);
	ck_assert(w.held && !r2.held);
	leave(&w);
	ck_assert(r2.held);
	leave(&r2);
	leave(&r3);
}
END_TEST

START_TEST(cancel_lets_others_go)
{
	struct user r1, w, r2;

	ck_assert(ask(&r1, 0, 10, false));
	ck_assert(!ask(&w, 0, 10, true));
	ck_assert(!ask(&r2, 0, 10, false));
	ck_assert(extent_cancel(&q, &w.h));
	w.left = true;
	loop_step(loop, 0);
	ck_assert(r2.held && !w.held);
	ck_assert(!extent_cancel(&q, &r2.h)); /* held: must be released */
	leave(&r1);
	leave(&r2);
}
END_TEST

static bool clash(const struct user *a, const struct user *b)
{
	return a->h.start < b->h.end && b->h.start < a->h.end && (a->h.exclusive || b->h.exclusive);
}

/* Random asks, releases and cancels: after each step everyone must be held exactly when no earlier
 * one that is still there clashes. */
START_TEST(model)
{
	enum { N = 64 };
	static struct user u[N];
	unsigned order[N], n = 0; /* indexes by arrival */
	uint64_t rng = (uint64_t)_i;

	for (int step = 0; step < 4000; step++) {
		unsigned pick = (unsigned)(bt_random(&rng) % N);
		bool bad = false;

		if (!u[pick].asked || u[pick].left) {
			uint64_t start = bt_random(&rng) % 1000, len = 1 + bt_random(&rng) % 60;

			if (bt_random(&rng) % 50 == 0)
				len = 1000;
			ask(&u[pick], start, len, bt_random(&rng) % 3 == 0);
			order[n++] = pick;
		} else if (u[pick].held || extent_cancel(&q, &u[pick].h)) {
			unsigned k = 0;

			if (u[pick].held)
				leave(&u[pick]);
			u[pick].left = true;
			loop_step(loop, 0);
			for (unsigned i = 0; i < n; i++)
				if (order[i] != pick)
					order[k++] = order[i];
			n = k;
		}
		for (unsigned i = 0; i < n; i++) {
			bool blocked = false;

			for (unsigned j = 0; j < i; j++)
				blocked |= clash(&u[order[i]], &u[order[j]]);
			bad |= u[order[i]].held == blocked;
		}
		ck_assert(!bad);
	}
	for (unsigned i = 0; i < n; i++) { /* in order of arrival each is held by its turn */
		ck_assert(u[order[i]].held);
		leave(&u[order[i]]);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("extent");
	TCase *tc = tcase_create("extent");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, writers_exclude_readers_share);
	tcase_add_test(tc, waiting_writer_holds_back_later_readers);
	tcase_add_test(tc, cancel_lets_others_go);
	tcase_add_loop_test(tc, model, 0, 10);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
