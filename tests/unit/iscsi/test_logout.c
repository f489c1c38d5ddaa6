/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ends that are spoken of: logout (RFC 7143 11.14), asynchronous messages before connections
 * are dropped (11.9).
 */
#include "events/bug.h"
#include "events/clock.h"
#include "tests/support/blk_pass.h"
#include "tests/support/unit.h"
#include "tests/support/wire.h"
#include "tgtd/iscsi/iscsi.h"

static struct wire w;

static void announced(struct wire *c, unsigned event, unsigned cid)
{
	struct wire_pdu p;

	wire_expect(c, &p, ISCSI_ASYNC);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), ISCSI_TAG_NONE);
	ck_assert_uint_eq(p.bhs[36], event);
	ck_assert_uint_eq(get_be16(p.bhs + 38), cid);
	ck_assert_uint_eq(get_be16(p.bhs + 40), 3); /* Time2Wait */
	ck_assert_uint_eq(get_be16(p.bhs + 42), 0); /* nothing is kept */
	ck_assert(!wire_recv(c, &p) && c->closed);
}

/* Two connections of a session, 0 and 7. */
static void up_two(struct wire *c)
{
	wire_up(&w, "MaxConnections=4\nDefaultTime2Wait=3\nDefaultTime2Retain=20");
	wire_open(c);
	c->cmd_sn = w.cmd_sn;
	ck_assert_uint_eq(wire_login(c, 1, w.tsih, 7, NULL), 0);
}

struct close_msg {
	struct loop_msg msg;
	uint16_t cid;
	int rc;
};

static void close_on_loop(struct loop_msg *msg)
{
	struct close_msg *m = container_of(msg, struct close_msg, msg);

	m->rc = iscsi_conn_close(1, w.tsih, m->cid);
}

/* As the administrator does, on the main loop. */
static int admin_close(uint16_t cid)
{
	struct close_msg m = { .msg.handle = close_on_loop, .cid = cid, .rc = 1 };

	loop_post(wire_target.loop, &m.msg);
	wire_steps(1);
	return m.rc;
}

START_TEST(logout)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	wire_up(&w, NULL);
	wire_request(&w, bhs, ISCSI_LOGOUT_REQ, BHS_FINAL | LOGOUT_RECOVERY);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_LOGOUT_RSP);
	ck_assert_uint_eq(p.bhs[2], LOGOUT_NO_RECOVERY);
	wire_request(&w, bhs, ISCSI_LOGOUT_REQ, BHS_FINAL | LOGOUT_CONNECTION);
	put_be16(bhs + 20, 9);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(p.bhs[2], LOGOUT_NO_CID);
	wire_request(&w, bhs, ISCSI_LOGOUT_REQ, BHS_FINAL | LOGOUT_SESSION);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_LOGOUT_RSP);
	ck_assert_uint_eq(p.bhs[2], LOGOUT_OK);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	wire_down(&w);
	ck_assert_uint_eq(wire_sessions(), 0);
}
END_TEST

static struct blk *slow_store;

/* Requests take a while, and cannot be aborted meanwhile. */
static struct blk *slow(struct blk *lower)
{
	slow_store = blk_delay_create(lower, 0);
	container_of(slow_store, struct pass, blk)->abort = NULL;
	return slow_store;
}

/* The response says that the clean-up is over (11.15): what was under way on the connections that
 * are logged out, which has no answer, does not reach the medium later than that. */
static void under_way(uint8_t reason, bool other, uint16_t cid)
{
	uint8_t bhs[48], data[512] = { 1 };
	struct wire_pdu p;
	struct wire c;

	wire_store = slow;
	up_two(&c);
	blk_delay_set(slow_store, 300, 0);
	if (other) {
		c.cmd_sn = w.cmd_sn++;
		wire_rw10(&c, bhs, true, 0, 1);
		wire_send(&c, bhs, data, 512);
	} else {
		wire_rw10(&w, bhs, true, 0, 1);
		wire_send(&w, bhs, data, 512);
	}
	wire_steps(4);
	wire_request(&w, bhs, ISCSI_LOGOUT_REQ, (uint8_t)(BHS_FINAL | reason));
	put_be16(bhs + 20, cid);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_silent(&w));
	while (wire_silent(&w) && !w.closed)
		loop_step(wire_target.loop, 1);
	wire_expect(&w, &p, ISCSI_LOGOUT_RSP);
	ck_assert_uint_eq(p.bhs[2], LOGOUT_OK);
	blk_delay_set(slow_store, 0, 0);
	if (reason == LOGOUT_CONNECTION && cid) {
		wire_ready(&w);
		ck_assert(!wire_recv(&c, &p) && c.closed);
	} else {
		ck_assert(!wire_recv(&w, &p) && w.closed);
	}
	wire_close(&c);
	wire_down(&w);
	ck_assert_uint_eq(wire_sessions(), 0);
	wire_store = NULL;
}

START_TEST(logout_of_a_session_under_load)
{
	under_way(LOGOUT_SESSION, false, 0);
}
END_TEST

START_TEST(logout_of_a_session_with_load_elsewhere)
{
	under_way(LOGOUT_SESSION, true, 0);
}
END_TEST

START_TEST(logout_of_a_connection_under_load)
{
	under_way(LOGOUT_CONNECTION, false, 0);
}
END_TEST

START_TEST(logout_of_another_connection_under_load)
{
	under_way(LOGOUT_CONNECTION, true, 7);
}
END_TEST

START_TEST(stopping_asks_for_logout)
{
	uint8_t bhs[48];
	struct wire_pdu p;
	bool done;

	wire_up(&w, NULL);
	wire_stop(1000, &done);
	wire_expect(&w, &p, ISCSI_ASYNC);
	ck_assert_uint_eq(p.bhs[36], ASYNC_LOGOUT_REQUEST);
	ck_assert(!done);
	wire_request(&w, bhs, ISCSI_LOGOUT_REQ, BHS_FINAL | LOGOUT_SESSION);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_LOGOUT_RSP);
	wire_close(&w);
	wire_steps(5);
	ck_assert(done);
}
END_TEST

START_TEST(a_connection_that_the_administrator_closes_is_told)
{
	struct wire c;

	up_two(&c);
	ck_assert_int_eq(admin_close(8), -ENOENT);
	ck_assert_int_eq(admin_close(7), 0);
	announced(&c, ASYNC_DROP_CONNECTION, 7);
	wire_close(&c);
	/* the other one knows nothing of it */
	wire_ready(&w);
	ck_assert(wire_silent(&w));
	wire_down(&w);
}
END_TEST

START_TEST(a_dropped_session_is_told_on_each_connection)
{
	struct wire c;
	bool done;

	up_two(&c);
	wire_stop(0, &done);
	announced(&w, ASYNC_DROP_ALL, 0);
	announced(&c, ASYNC_DROP_ALL, 0);
	wire_close(&c);
	wire_close(&w);
	wire_steps(5);
	ck_assert(done);
}
END_TEST

START_TEST(who_does_not_log_out_in_time_is_dropped)
{
	struct wire_pdu p;
	bool done;

	clock_fake_set(1000 * NSEC_PER_SEC);
	wire_up(&w, "DefaultTime2Wait=3");
	wire_stop(2000, &done);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(p.bhs[36], ASYNC_LOGOUT_REQUEST);
	ck_assert_uint_eq(get_be16(p.bhs + 42), 2); /* seconds that it has */
	clock_fake_advance(1900 * NSEC_PER_MSEC);
	ck_assert(wire_silent(&w));
	clock_fake_advance(200 * NSEC_PER_MSEC);
	announced(&w, ASYNC_DROP_ALL, 0);
	wire_close(&w);
	wire_steps(5);
	ck_assert(done);
	clock_fake_off();
}
END_TEST

UNIT_MAIN("iscsi-logout", 30, logout, logout_of_a_session_under_load,
	  logout_of_a_session_with_load_elsewhere, logout_of_a_connection_under_load,
	  logout_of_another_connection_under_load, stopping_asks_for_logout,
	  a_connection_that_the_administrator_closes_is_told,
	  a_dropped_session_is_told_on_each_connection, who_does_not_log_out_in_time_is_dropped)
