/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Who joins a group of SYNCs, leaves it, and is told of which call: against a model, by seed, over
 * more calls than there are numbers for them. */
#include "cache/blk/sync_group.h"
#include "tests/support/unit.h"

enum { MEMBERS = 24, STEPS = 400000 };

static struct sync_group group;
static struct member {
	struct blk_req req;
	enum { OUT, NOW, NEXT } is;
} member[MEMBERS];
static unsigned calls, told;
static bool at_once; /* the store answers before start() returns */

static struct member *member_of(struct blk_req *req)
{
	return container_of(req, struct member, req);
}

static bool start(struct sync_group *g)
{
	calls++;
	g->call.status = 0;
	return at_once;
}

static void begins(struct sync_group *g)
{
	ck_assert(sync_group_busy(g));
}

static bool over(struct sync_group *g, int status)
{
	(void)g;
	(void)status;
	return true;
}

static void tell(struct blk_req *req, int status)
{
	struct member *m = member_of(req);

	ck_assert(m->is == NOW || (status && m->is == NEXT));
	/* Whose call is over is no member, whatever others do. */
	ck_assert(!sync_group_leave(&group, req));
	m->is = OUT;
	told++;
}

static unsigned count(int is)
{
	unsigned n = 0;

	for (unsigned i = 0; i < MEMBERS; i++)
		n += (int)member[i].is == is;
	return n;
}

static void end_call(int status)
{
	const unsigned expect = told + count(NOW) + (status ? count(NEXT) : 0);
	const bool more = !status && count(NEXT);

	group.call.status = status;
	sync_group_go_on(&group);
	ck_assert_uint_eq(told, expect);
	ck_assert_uint_eq(count(NOW), 0);
	for (unsigned i = 0; i < MEMBERS; i++)
		if (member[i].is == NEXT)
			member[i].is = NOW;
	ck_assert_int_eq(sync_group_busy(&group), more);
}

START_TEST(against_a_model)
{
	uint64_t rng = 11 + (uint64_t)_i;

	sync_group_init(&group);
	group.start = start;
	group.begins = begins;
	group.over = over;
	group.tell = tell;
	calls = told = 0;
	for (unsigned i = 0; i < MEMBERS; i++) {
		blk_req_init(&member[i].req);
		member[i].is = OUT;
	}
	for (unsigned k = 0; k < STEPS; k++) {
		struct member *m = &member[(rng >> 40) % MEMBERS];
		uint32_t failures = group.failures;
		const bool busy = sync_group_busy(&group);

		rng = rng * 6364136223846793005u + 1442695040888963407u;
		switch (rng >> 60) {
		case 0 ... 4:
			if (m->is != OUT)
				break;
			m->is = busy ? NEXT : NOW;
			at_once = !busy && rng >> 59 & 1;
			ck_assert(sync_group_join(&group, &m->req, &failures));
			ck_assert(at_once ? m->is == OUT : m->is == (busy ? NEXT : NOW));
			at_once = false;
			break;
		case 5 ... 8:
			ck_assert_int_eq(sync_group_leave(&group, &m->req), m->is != OUT);
			m->is = OUT;
			break;
		default:
			if (busy)
				end_call(rng >> 50 & 7 ? 0 : -EIO);
		}
	}
	while (sync_group_busy(&group))
		end_call(0);
	ck_assert_uint_gt(calls, 1u << 16);
	ck_assert_uint_eq(count(OUT), MEMBERS);
	for (unsigned i = 0; i < MEMBERS; i++)
		blk_req_fini(&member[i].req);
	sync_group_fini(&group);
}
END_TEST

UNIT_TABLE("sync_group", 60, { against_a_model, 4 })
