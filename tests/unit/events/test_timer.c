/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The timer wheel against the simplest model there is: an array of expiry times. */
#include <stdlib.h>
#include "events/bug.h"
#include "events/timer.h"
#include "tests/support/unit.h"

#define MS NSEC_PER_MSEC

struct probe {
	struct timer t;
	uint64_t due_ns; /* 0: must not fire */
	unsigned fired;
};

static struct timer_wheel wheel;
static uint64_t now;
static unsigned early, unexpected;

static void probe_fire(struct timer *t)
{
	struct probe *p = container_of(t, struct probe, t);

	if (!p->due_ns)
		unexpected++;
	else if (p->due_ns > now)
		early++;
	p->due_ns = 0;
	p->fired++;
}

static void probe_init(struct probe *p)
{
	memset(p, 0, sizeof(*p));
	timer_init(&p->t, probe_fire);
}

static void arm(struct probe *p, uint64_t at)
{
	p->due_ns = at;
	timer_wheel_arm(&wheel, &p->t, at);
}

START_TEST(fires_on_its_tick_not_before)
{
	struct probe p;

	now = 5 * MS + 1;
	timer_wheel_init(&wheel, now);
	probe_init(&p);
	arm(&p, 7 * MS + 500);
	ck_assert(timer_armed(&p.t));
	now = 7 * MS + 999999;
	ck_assert_uint_eq(timer_wheel_run(&wheel, now), 0);
	now = 8 * MS;
	ck_assert_uint_eq(timer_wheel_run(&wheel, now), 1);
	ck_assert(!timer_armed(&p.t));
	ck_assert_uint_eq(timer_wheel_next(&wheel, now), UINT64_MAX);
}
END_TEST

START_TEST(past_expiry_fires_on_the_next_tick)
{
	struct probe p;

	now = 1000 * MS;
	timer_wheel_init(&wheel, now);
	probe_init(&p);
	arm(&p, 3 * MS);
	now += MS;
	ck_assert_uint_eq(timer_wheel_run(&wheel, now), 1);
}
END_TEST

START_TEST(rearming_moves_cancelling_removes)
{
	struct probe p;

	now = 0;
	timer_wheel_init(&wheel, now);
	probe_init(&p);
	timer_wheel_cancel(&wheel, &p.t);
	arm(&p, 10 * MS);
	arm(&p, 20 * MS);
	now = 15 * MS;
	ck_assert_uint_eq(timer_wheel_run(&wheel, now), 0);
	timer_wheel_cancel(&wheel, &p.t);
	timer_wheel_cancel(&wheel, &p.t);
	ck_assert_uint_eq(wheel.armed, 0);
	p.due_ns = 0;
	now = 100 * MS;
	ck_assert_uint_eq(timer_wheel_run(&wheel, now), 0);
	ck_assert_uint_eq(p.fired, 0);
}
END_TEST

/* Each level's edges, and beyond the last one (12.4 days). */
START_TEST(every_level_and_beyond)
{
	static const uint64_t ticks[] = {
		1,	63,	  64,	    65,		4095,	    4096,	4097,	   262143,
		262144, 16777215, 16777216, 1073741823, 1073741824, 1073741825, 5000000000
	};

	for (unsigned start = 0; start < 200; start += 63) {
		for (unsigned i = 0; i < ARRAY_SIZE(ticks); i++) {
			uint64_t begin = start * MS, next;
			struct probe p;

			now = begin;
			timer_wheel_init(&wheel, now);
			probe_init(&p);
			arm(&p, begin + ticks[i] * MS);
			/* Sleep as a loop would: only as long as the wheel says. */
			for (unsigned steps = 0; !p.fired; steps++) {
				ck_assert_uint_lt(steps, 16);
				next = timer_wheel_next(&wheel, now);
				ck_assert_uint_ne(next, UINT64_MAX);
				ck_assert_uint_gt(next, 0);
				now += next;
				timer_wheel_run(&wheel, now);
			}
			ck_assert_uint_eq(now, begin + ticks[i] * MS);
		}
	}
	ck_assert_uint_eq(early + unexpected, 0);
}
END_TEST

/* ---- callbacks that change the wheel --------------------------------------------------------- */

static struct probe victim, other;

static void cancel_and_rearm(struct timer *t)
{
	timer_wheel_cancel(&wheel, &victim.t);
	timer_wheel_arm(&wheel, t, now + 5 * MS);
	timer_wheel_arm(&wheel, &other.t, 0);
}

START_TEST(callback_may_cancel_and_arm)
{
	struct timer t;

	now = 0;
	timer_wheel_init(&wheel, now);
	timer_init(&t, cancel_and_rearm);
	probe_init(&victim);
	probe_init(&other);
	/* Same tick, and the victim comes later in the list that is being fired. */
	timer_wheel_arm(&wheel, &t, 10 * MS);
	arm(&victim, 10 * MS);
	now = 10 * MS;
	ck_assert_uint_eq(timer_wheel_run(&wheel, now), 1);
	ck_assert_uint_eq(victim.fired, 0);
	other.due_ns = 1;
	now = 11 * MS;
	ck_assert_uint_eq(timer_wheel_run(&wheel, now), 1);
	ck_assert_uint_eq(other.fired, 1);
	timer_wheel_cancel(&wheel, &t);
	ck_assert_uint_eq(wheel.armed, 0);
	ck_assert_uint_eq(early + unexpected, 0);
}
END_TEST

/* ---- random walk ----------------------------------------------------------------------------- */

#define PROBES 300

static uint64_t seed;

static uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static uint64_t some_distance(void)
{
	/* Every magnitude from nothing to a month as likely as any other. */
	return rnd() % (1ull << rnd() % 52);
}

static void random_walk(uint64_t with_seed)
{
	static struct probe p[PROBES];

	seed = with_seed;
	now = rnd() % (1ull << 50);
	timer_wheel_init(&wheel, now);
	early = unexpected = 0;
	for (int i = 0; i < PROBES; i++)
		probe_init(&p[i]);
	for (int step = 0; step < 2000; step++) {
		uint64_t next = UINT64_MAX, ran_to;
		unsigned armed = 0;

		for (int k = 0; k < 5; k++) {
			struct probe *q = &p[rnd() % PROBES];

			if (rnd() % 4) {
				arm(q, now + some_distance());
			} else {
				timer_wheel_cancel(&wheel, &q->t);
				q->due_ns = 0;
			}
		}
		/* A passed ck_assert writes to a pipe: too slow for what
		 * is asked millions of times. */
		for (int i = 0; i < PROBES; i++) {
			if (timer_armed(&p[i].t) != (p[i].due_ns != 0))
				ck_abort_msg("timer %d armed: %d", i, timer_armed(&p[i].t));
			if (p[i].due_ns) {
				armed++;
				next = MIN(next, p[i].due_ns);
			}
		}
		if (wheel.armed != armed)
			ck_abort_msg("%u armed instead of %u", wheel.armed, armed);
		for (unsigned l = 0; l < TIMER_LEVELS; l++)
			for (unsigned k = 0; k < TIMER_SLOTS; k++)
				if ((wheel.occupied[l] >> k & 1) == list_empty(&wheel.slot[l][k]))
					ck_abort_msg("level %u slot %u: wrong bit", l, k);
		/* Never later than the tick after the expiry, or the
		 * next tick when that is past. */
		if (armed && timer_wheel_next(&wheel, now) > MAX(next, now) - now + MS)
			ck_abort_msg("sleeps for %lu ns, %lu due", timer_wheel_next(&wheel, now),
				     next - now);
		now += rnd() % 3 ? some_distance() : timer_wheel_next(&wheel, now) % (1ull << 52);
		timer_wheel_run(&wheel, now);
		ran_to = now / MS;
		/* Nothing that was due a whole tick ago is left. */
		for (int i = 0; i < PROBES; i++)
			if (p[i].due_ns && p[i].due_ns + MS <= ran_to * MS)
				ck_abort_msg("timer %d was due at %lu, now %lu", i, p[i].due_ns,
					     now);
		if (early || unexpected)
			ck_abort_msg("%u fired early, %u unexpectedly", early, unexpected);
	}
}

START_TEST(random_walks_match_the_model)
{
	for (uint64_t s = 1; s <= 25; s++)
		random_walk(s * 0x9e3779b97f4a7c15);
}
END_TEST

/* An hour's sleep with an armed timer must not step through each of its ticks. */
START_TEST(long_sleeps_are_cheap)
{
	struct probe p;

	now = 0;
	timer_wheel_init(&wheel, now);
	probe_init(&p);
	for (int i = 0; i < 20000; i++) {
		arm(&p, now + 3600000 * MS);
		now += 3500000 * MS;
		if (timer_wheel_run(&wheel, now) != 0)
			ck_abort_msg("fired early, round %d", i);
	}
	timer_wheel_cancel(&wheel, &p.t);
}
END_TEST

UNIT_MAIN("timer", 10, fires_on_its_tick_not_before, past_expiry_fires_on_the_next_tick,
	  rearming_moves_cancelling_removes, every_level_and_beyond, callback_may_cancel_and_arm,
	  random_walks_match_the_model, long_sleeps_are_cheap)
