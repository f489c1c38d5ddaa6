/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Adapter locality (Ren 2015, chapter 6) on a recorded machine of four nodes and two
 * adapters: connections are placed by the adapter they come by, portals told in an
 * order that suits the target. */
#include "tests/support/unit.h"
#ifndef HAVE_RDMA
START_TEST(not_built)
{
}
END_TEST
UNIT_MAIN("iser nodes (built without rdma-core)", 5, not_built)
#else
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "events/topology.h"
#include "iser/conn.h"
#include "iser/iser.h"
#include "tests/support/iser_wire.h"
#include "tests/support/systree.h"
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/iscsi/login.h"

static struct topology machine;
static uint8_t out[65536], in[65536];

static bool interface(const struct sockaddr *addr, char name[TOPO_NAME_MAX])
{
	uint32_t ip = ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr);

	if (ip != 0x7f000002 && ip != 0x7f000004)
		return false;
	strcpy(name, ip == 0x7f000002 ? "ens2np0" : "ens6np0");
	return true;
}

/* @lu_node: where the event thread of LUN 1 is. */
static void start(int lu_node)
{
	ck_assert_int_eq(systree_detect(&machine, "xeon-4n-2hca"), 0);
	machine.simulated = true; /* nothing is bound to nodes that this machine lacks */
	topology_use(&machine);
	topology_interface = interface;
	ini_topology = &machine;
	wire_node = lu_node;
	fake.devices = 2;
	fake.name[0] = "mlx5_0"; /* node 1 */
	fake.name[1] = "mlx5_1"; /* node 3 */
	ini_target_start("");
}

/* Where a session that wishes for @node would live. */
static struct loop *home(int node)
{
	struct scsi_home *h = scsi_home_get(wire_target.target, node);
	struct loop *loop = scsi_home_loop(h);

	scsi_home_put(h);
	return loop;
}

static void up(struct ini *i, unsigned dev, uint8_t isid)
{
	fake.dev = dev;
	ini_up(i, isid, 0x80);
}

/* Each connection on its adapter, with memory registered there; it wishes for that node, and is
 * homed on the LU's thread there when the target has LUs on both. */
START_TEST(placed_by_adapter)
{
	struct loop_conf lc = { .name = "other", .node = 3, .cpu = -1 };
	struct blk_open_args args = { .path = "1m", .block_size = 512, .node = -1 };
	static struct loop *other;
	struct scsi_lu_conf lu;
	struct ini a, b;

	start(1);
	up(&a, 0, 1);
	up(&b, 1, 2);
	ck_assert_str_eq(ini_conn(&a)->dev->name, "mlx5_0");
	ck_assert_str_eq(ini_conn(&b)->dev->name, "mlx5_1");
	ck_assert_int_eq(ini_conn(&a)->conn.node_wish, 1);
	ck_assert_int_eq(ini_conn(&b)->conn.node_wish, 3);
	wire_pattern(out, sizeof(out), 1);
	ck_assert_uint_eq(ini_rw(&a, true, 0, sizeof(out) / 512, out, 0), 0);
	ck_assert_uint_eq(ini_rw(&b, false, 0, sizeof(in) / 512, in, 0), 0);
	ck_assert_mem_eq(in, out, sizeof(in));
	ini_hang_up(&a);
	ini_hang_up(&b);
	/* One LU: its thread serves whatever the adapter. */
	ck_assert_ptr_eq(home(3), wire_target.loop);
	ck_assert_int_eq(scsi_target_node(wire_target.target), 1);
	other = loop_create(&lc);
	scsi_lu_conf_init(&lu);
	lu.lun = 2;
	lu.loop = other;
	lu.blk = blk_open("ram", &args);
	ck_assert(other && lu.blk && scsi_lu_create(wire_target.target, &lu));
	ck_assert_ptr_eq(home(3), other);
	ck_assert_ptr_eq(home(1), wire_target.loop);
	ck_assert_ptr_nonnull(home(0));
}
END_TEST

/* One of two adapters goes: its connections end, those of the other do not notice. */
START_TEST(one_adapter_removed)
{
	struct ini a, b, c;

	start(1);
	up(&a, 0, 1);
	up(&b, 1, 2);
	fake.hold = true;
	(void)ini_rw_start(&b, false, 0, 64, in, 0);
	wire_steps(1);
	fake.stays_gone = true;
	rdmafake_remove_device(); /* mlx5_1 */
	ck_assert(ini_closed(&b));
	fake.hold = false;
	rdmafake_peer_gone(&b.peer);
	ck_assert(iser_running());
	ck_assert_uint_eq(ini_rw(&a, true, 0, 64, out, 0), 0);
	/* Who still comes by it is told so. */
	memset(&c, 0, sizeof(c));
	ck_assert(!ini_connect(&c, 0x80));
	ck_assert_uint_eq(c.peer.private_data[3], 2);
	fake.dev = 0;
	up(&c, 0, 3);
	ini_hang_up(&c);
	ini_hang_up(&a);
	ini_target_stop();
}
END_TEST

/* SendTargets as initiator text, from a discovery session. */
static char *discover(char *text)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_TEXT_REQ, BHS_FINAL }, reply[ISCSI_BHS_LEN];
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000009) };
	struct iscsi_text_ctx ctx = { .discovery = true,
				      .initiator = "iqn.x:i",
				      .peer = (struct sockaddr *)&any,
				      .local = (struct sockaddr *)&any,
				      .max_data = 8192 };
	struct iscsi_params params;
	struct iscsi_offer offer;
	struct iscsi_text t;
	const char *data;
	uint32_t len;

	iscsi_params_init(&params);
	iscsi_offer_init(&offer);
	ctx.params = &params;
	ctx.offer = &offer;
	put_be32(bhs + BHS_ITT, 5);
	put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
	iscsi_text_init(&t);
	ck_assert_int_eq(iscsi_text_rx(&t, &ctx, bhs, (const uint8_t *)"SendTargets=All", 16, reply,
				       &data, &len),
			 TEXT_REPLY);
	ck_assert_uint_lt(len, 1000);
	for (uint32_t i = 0; i < len; i++)
		text[i] = data[i] ? data[i] : '\n';
	text[len] = '\0';
	iscsi_text_fini(&t);
	return text;
}

static void portal_order(int lu_node, const char *expect)
{
	char text[1024];

	start(lu_node);
	ck_assert_int_eq(iscsi_portal_add("127.0.0.3:46801"), 0); /* no adapter has it */
	ck_assert_int_eq(iscsi_portal_add("127.0.0.2:46801"), 0); /* node 1 */
	ck_assert_int_eq(iscsi_portal_add("127.0.0.4:46801"), 0); /* node 3 */
	ck_assert_str_eq(discover(text), expect);
	ini_target_stop();
}

#define PORTAL(n) "TargetAddress=127.0.0." n ":46801,1\n"
START_TEST(portals_of_node_1)
{
	portal_order(1, "TargetName=" WIRE_IQN "\n" PORTAL("2") PORTAL("3") PORTAL("4"));
}
END_TEST
START_TEST(portals_of_node_3)
{
	portal_order(3, "TargetName=" WIRE_IQN "\n" PORTAL("4") PORTAL("3") PORTAL("2"));
}
END_TEST
/* No adapter there, or no thread: in the order in which they were made. */
START_TEST(portals_of_node_0)
{
	portal_order(0, "TargetName=" WIRE_IQN "\n" PORTAL("3") PORTAL("2") PORTAL("4"));
}
END_TEST
START_TEST(portals_of_no_node)
{
	portal_order(-1, "TargetName=" WIRE_IQN "\n" PORTAL("3") PORTAL("2") PORTAL("4"));
}
END_TEST

UNIT_MAIN("iser nodes", 30, placed_by_adapter, one_adapter_removed, portals_of_node_1,
	  portals_of_node_3, portals_of_node_0, portals_of_no_node)
#endif
