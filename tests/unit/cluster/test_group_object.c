/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which object is asked for: that of the unit that gateway.h means, from its first look on, which
 * is made while the unit is being added. What is asked of RADOS (rados_client.h) ends here.
 */
#include <stdio.h>
#include <stdlib.h>
#include "tests/support/unit.h"
#include "tgtd/cluster/live/group_impl.h"

static char name[RADOS_OID_MAX]; /* of the last object that was asked for */
static unsigned asks;

/* Nobody answers, and nobody waits for it. */
void rclient_get(struct rclient *r, struct rclient_req *req)
{
	struct group_ask *a = container_of(req, struct group_ask, req);

	asks++;
	snprintf(name, sizeof(name), "%s", req->oid);
	loop_timer_cancel(a->group->main, &a->late);
	free(a->bytes);
	free(a);
}

void rclient_put(struct rclient *r, struct rclient_req *req)
{
	rclient_get(r, req);
}

void rclient_open(struct rclient *r)
{
	ck_abort();
}

void rclient_close(struct rclient *r)
{
	ck_abort();
}

void rclient_fence(struct rclient *r, struct rclient_req *req)
{
	ck_abort();
}

void rclient_newest_map(struct rclient *r, struct rclient_req *req)
{
	ck_abort();
}

void rclient_notify(struct rclient *r, struct rclient_req *req)
{
	ck_abort();
}

static void no_timer(void *arg, uint64_t at)
{
}

START_TEST(each_unit_has_its_own)
{
	const struct loop_conf lc = { .name = "main", .node = 0, .cpu = -1 };
	const struct gw_config config = { .gateways = 2, .max_lus = GROUP_LUS };
	struct gw_ops ops = { .timer = no_timer };
	struct group *g = calloc(1, sizeof(*g));
	const char *why;

	ck_assert_ptr_nonnull(g);
	g->main = loop_create(&lc);
	snprintf(g->conf.name, sizeof(g->conf.name), "g");
	snprintf(g->conf.gateway[0].name, sizeof(g->conf.gateway[0].name), "a");
	snprintf(g->conf.gateway[1].name, sizeof(g->conf.gateway[1].name), "b");
	g->conf.n = 2;
	g->ready = true;
	group_rados_ops(&ops);
	g->gw = gw_new(&config, &ops, g, &why);
	ck_assert_ptr_nonnull(g->gw);
	gw_start(g->gw, true, group_now());
	ck_assert_uint_eq(asks, 2);
	ck_assert_str_eq(name, "tgtd.g.gateway.b");
	for (unsigned i = 0; i < 4; i++) {
		char id[16], its[32];

		snprintf(id, sizeof(id), "image-%u", i);
		snprintf(its, sizeof(its), "tgtd.g.lu.%s", id);
		asks = 0;
		ck_assert_int_eq(gw_lu_add(g->gw, id, 0, group_now()), (int)i);
		ck_assert_uint_eq(asks, 1);
		ck_assert_str_eq(name, its);
	}
	gw_free(g->gw);
	loop_destroy(g->main);
	free(g);
}
END_TEST

UNIT_MAIN("group_object", 10, each_unit_has_its_own)
