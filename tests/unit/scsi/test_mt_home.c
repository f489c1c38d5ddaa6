/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Homes of sessions: an LU's threads get them in turn, from the moment they are sent there, the
 * adapter's node first; a thread that is given up gets no more, stays while somebody lives there,
 * or something that was begun there is not over, and is then stopped.
 */
#include <stdatomic.h>
#include <unistd.h>
#include "events/clock.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"

#define THREADS 3

static struct host h;
static struct loop *loops[THREADS];

static struct loop *new_loop(int node, const char *name)
{
	struct loop_conf conf = { .name = name, .node = node, .cpu = -1 };
	struct loop *l = loop_create(&conf);

	ck_assert_ptr_nonnull(l);
	ck_assert_int_eq(loop_start(l), 0);
	return l;
}

static bool lives(const char *name);

static void first_loop(struct scsi_lu_conf *c)
{
	c->loop = loops[0];
}

/* LUN 1 with threads on the nodes 0, 0 and 1. */
static void setup(void)
{
	static const char *const names[THREADS] = { "home-0", "home-1", "home-2" };

	for (int i = 0; i < THREADS; i++)
		loops[i] = new_loop(i == 2, names[i]);
	host_open_conf(&h, "8m", 512, first_loop);
	ck_assert_uint_eq(scsi_lu_loops(h.lu), 1);
	for (int i = 1; i < THREADS; i++)
		ck_assert_int_eq(scsi_lu_add_loop(h.lu, loops[i], false), 0);
	ck_assert_uint_eq(scsi_lu_loops(h.lu), THREADS);
}

/* Sends a session to its home, which must be loops[@nr]. */
static struct scsi_home *sent(int wish, int nr)
{
	struct scsi_home *home = scsi_home_get(h.target, wish);

	ck_assert_ptr_nonnull(home);
	ck_assert_str_eq(loop_name(scsi_home_loop(home)), loop_name(loops[nr]));
	return home;
}

START_TEST(spread)
{
	struct scsi_home *s[8];

	setup();
	/* Three at once: one each, though none has arrived. */
	s[0] = sent(-1, 0);
	s[1] = sent(-1, 1);
	s[2] = sent(-1, 2);
	/* The node of the adapter decides among the equal ones, and only there. */
	s[3] = sent(1, 2);
	s[4] = sent(1, 0);
	s[5] = sent(1, 1);
	/* Who leaves makes room. */
	scsi_home_put(s[1]);
	s[1] = sent(1, 1);
	for (int i = 0; i < 6; i++)
		scsi_home_put(s[i]);
	s[0] = sent(1, 2);
	scsi_home_put(s[0]);
	ck_assert_int_eq(scsi_target_node(h.target), 0);
	host_close(&h);
}
END_TEST

static struct scsi_home *taken[16];
static void do_keep(void *arg)
{
	scsi_lu_keep_loops(h.lu, (unsigned)(uintptr_t)arg);
}

START_TEST(fewer)
{
	setup();
	for (int i = 0; i < 6; i++)
		taken[i] = sent(-1, i % THREADS);
	host_do(&h, do_keep, (void *)(uintptr_t)1);
	ck_assert_uint_eq(scsi_lu_loops(h.lu), 1);
	for (int i = 6; i < 12; i++)
		taken[i] = sent(1, 0);
	/* And more again: a thread, and it is the emptiest. */
	loops[1] = new_loop(0, "home-3");
	ck_assert_int_eq(scsi_lu_add_loop(h.lu, loops[1], false), 0);
	taken[12] = sent(-1, 1);
	for (int i = 0; i < 13; i++)
		scsi_home_put(taken[i]);
	host_close(&h);
	for (int i = 0; i < THREADS; i++)
		ck_assert(!lives((const char *[]){ "home-0", "home-1", "home-2" }[i]));
}
END_TEST

START_TEST(limit)
{
	static struct loop *many[SCSI_LU_MAX_LOOPS];
	unsigned n = 1;

	loops[0] = new_loop(0, "home-0");
	host_open_conf(&h, "8m", 512, first_loop);
	for (; n < SCSI_LU_MAX_LOOPS; n++) {
		many[n] = new_loop(0, "many");
		ck_assert_int_eq(scsi_lu_add_loop(h.lu, many[n], false), 0);
	}
	ck_assert_int_eq(scsi_lu_add_loop(h.lu, h.loop, true), -ENOSPC);
	host_do(&h, do_keep, (void *)(uintptr_t)1);
	host_close(&h);
	ck_assert(!lives("many"));
}
END_TEST

/* One loop for all LUs is not theirs: it outlives them, and the LU's end does not
 * pull away a session's home. */
START_TEST(shared)
{
	struct scsi_home *s;

	loops[0] = new_loop(0, "home-0");
	host_open(&h, "8m", 512);
	/* No thread of its own: the main loop serves it. */
	ck_assert_ptr_null(scsi_home_get(h.target, -1));
	ck_assert_int_eq(scsi_lu_add_loop(h.lu, loops[0], true), 0);
	s = sent(-1, 0);
	host_close(&h);
	ck_assert_ptr_eq(scsi_home_loop(s), loops[0]);
	scsi_home_put(s);
	ck_assert(lives("home-0"));
	loop_end(loops[0]);
}
END_TEST

/* ---- the end of a thread --------------------------------------------------------------------- */

static void find_loop(struct loop *l, void *arg)
{
	const char **name = arg;

	if (*name && strcmp(loop_name(l), *name) == 0)
		*name = NULL;
}

static bool lives(const char *name)
{
	const char *found = name;

	loop_for_each(find_loop, &found);
	return !found;
}

static atomic_bool under_way;
static bool attachment_busy(struct loop_attachment *a)
{
	(void)a;
	return atomic_load(&under_way);
}

static void attachment_detach(struct loop_attachment *a)
{
	(void)a;
	ck_assert(!atomic_load(&under_way));
}

static void do_attach(void *arg)
{
	loop_attach(loop_current(), arg);
}

/* Steps the main loop for @s seconds, or until the loop @name is gone. */
static void main_runs(const char *name, unsigned s)
{
	uint64_t end = clock_now_ns() + s * NSEC_PER_SEC;

	while (clock_now_ns() < end && lives(name)) {
		host_steps(&h, 1);
		usleep(20000);
	}
}

/* It waits for its session, then for what the session has left behind there. */
START_TEST(stopped_when_nobody_is_left)
{
	static struct loop_attachment a = { .detach = attachment_detach, .busy = attachment_busy };
	struct scsi_home *s[THREADS];

	setup();
	for (int i = 0; i < THREADS; i++)
		s[i] = sent(-1, i);
	atomic_store(&under_way, true);
	loop_call(loops[2], do_attach, &a);
	scsi_home_put(s[2]);
	host_do(&h, do_keep, (void *)(uintptr_t)1);
	main_runs("home-2", 3);
	ck_assert(lives("home-1"));
	ck_assert(lives("home-2"));
	atomic_store(&under_way, false);
	scsi_home_put(s[1]);
	main_runs("home-2", 10);
	main_runs("home-1", 5);
	ck_assert(!lives("home-1"));
	ck_assert(!lives("home-2"));
	ck_assert(lives("home-0"));
	scsi_home_put(s[0]);
	host_close(&h);
}
END_TEST

UNIT_MAIN("homes", 60, spread, fewer, limit, shared, stopped_when_nobody_is_left)
