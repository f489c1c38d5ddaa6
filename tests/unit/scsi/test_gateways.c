/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Units of a gateway group (target.h): what is refused in which state, the lease, the gateways as
 * target port groups, and the wait for commands that were admitted. */
#include "events/bytes.h"
#include "events/clock.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"

#define TRANSITION "02/04/0a"
#define STANDBY "02/04/0b"
#define UNAVAILABLE "02/04/0c"
#define HEARD "06/2a/06"

enum { AO, NO, SB, UN, TR = SCSI_ALUA_TRANSITIONING };

static struct host h;
static struct host_nexus *a;
static _Atomic uint64_t served_until;
static struct scsi_gateways gateways = {
	.n = 3, .self = 1, .id = { 11, 1, 13 }, .transition_s = 7, .served_until = &served_until
};
static uint8_t states[SCSI_GATEWAYS_MAX];

static void of_group(struct scsi_lu_conf *c)
{
	c->gateways = &gateways;
	c->gateway_home = 2;
}

static void do_states(void *arg)
{
	(void)arg;
	scsi_lu_set_gateways(h.lu, states, 2);
}

static void set_states(uint8_t first, uint8_t own, uint8_t third)
{
	states[0] = first;
	states[1] = own;
	states[2] = third;
	host_do(&h, do_states, NULL);
}

static void setup(void)
{
	clock_fake_set(1000 * NSEC_PER_SEC);
	served_until = 2000 * NSEC_PER_SEC;
	host_open_conf(&h, "8m", 512, of_group);
	a = host_login(&h, "iqn.a");
}

static const char *tur(void)
{
	host_tur(a, 1);
	return host_result(a);
}

/* Behind all attentions. */
static const char *tur_then(void)
{
	const char *is;

	do
		is = tur();
	while (!strncmp(is, "06/", 3));
	return is;
}

static const char *in(const uint8_t *cdb, size_t len)
{
	host_in(a, 1, cdb, len, 512);
	return host_result(a);
}

static const uint8_t inquiry[6] = { 0x12, [4] = 96 };
static const uint8_t report_luns[12] = { 0xa0, [9] = 64 };
static const uint8_t request_sense[6] = { 0x03, [4] = 18 };
static const uint8_t rtpg[12] = { 0xa3, 0x2a, [8] = 1 };
static const uint8_t mode_sense[6] = { 0x1a, 0, 0x3f, 0, 64 };
static const uint8_t log_sense[10] = { 0x4d, [8] = 64 };
static const uint8_t pr_keys[10] = { 0x5e, 0, [8] = 64 };
static const uint8_t read_capacity[10] = { 0x25 };
static const uint8_t read10[10] = { 0x28, [8] = 1 };

START_TEST(each_state_refuses_its_commands)
{
	setup();
	ck_assert_str_eq(tur_then(), TRANSITION);
	ck_assert_str_eq(in(read10, 10), TRANSITION);
	ck_assert_str_eq(in(mode_sense, 6), TRANSITION);
	ck_assert_str_eq(in(inquiry, 6), "good");
	ck_assert_str_eq(in(report_luns, 12), "good");
	ck_assert_str_eq(in(rtpg, 12), "good");
	set_states(AO, SB, SB);
	ck_assert_str_eq(tur_then(), STANDBY);
	ck_assert_str_eq(in(read10, 10), STANDBY);
	ck_assert_str_eq(in(read_capacity, 10), STANDBY);
	ck_assert_str_eq(in(mode_sense, 6), "good");
	ck_assert_str_eq(in(log_sense, 10), "good");
	set_states(TR, UN, TR);
	(void)tur_then();
	ck_assert_str_eq(tur(), UNAVAILABLE);
	ck_assert_str_eq(in(log_sense, 10), UNAVAILABLE);
	ck_assert_str_eq(in(inquiry, 6), "good");
	ck_assert_str_eq(in(rtpg, 12), "good");
	set_states(SB, AO, SB);
	ck_assert_str_eq(tur_then(), "good");
	ck_assert_str_eq(in(read10, 10), "good");
	ck_assert_str_eq(in(read_capacity, 10), "good");
	host_close(&h);
}
END_TEST

/* Rule 1: nothing that is known here is told when it may be old. */
START_TEST(a_lease_that_has_lapsed)
{
	setup();
	set_states(SB, AO, SB);
	ck_assert_str_eq(tur_then(), "good");
	host_fill(a, 1, 0, 8, 0x55);
	served_until = clock_boot_ns() + 1;
	ck_assert_int_eq(host_holds(a, 1, 0, 8), 0x55);
	clock_fake_advance(1);
	ck_assert_str_eq(in(read10, 10), TRANSITION);
	ck_assert_str_eq(tur(), TRANSITION);
	ck_assert_str_eq(in(mode_sense, 6), TRANSITION);
	ck_assert_str_eq(in(log_sense, 10), TRANSITION);
	ck_assert_str_eq(in(pr_keys, 10), TRANSITION);
	ck_assert_str_eq(in(inquiry, 6), "good");
	ck_assert_str_eq(in(report_luns, 12), "good");
	/* Polled sense data says the same. */
	ck_assert_str_eq(in(request_sense, 6), "good");
	ck_assert_uint_eq(a->in[2] & 0x0f, 2);
	ck_assert_uint_eq(get_be16(a->in + 12), 0x040a);
	/* Nobody knows who serves it. */
	ck_assert_str_eq(in(rtpg, 12), "good");
	for (unsigned i = 0, at = 8; i < 3; i++, at += 8u + 4 * a->in[at + 7])
		ck_assert_uint_eq(a->in[at] & 0x0f, TR);
	served_until = clock_boot_ns() + NSEC_PER_SEC;
	ck_assert_str_eq(tur(), "good");
	ck_assert_int_eq(host_holds(a, 1, 0, 8), 0x55);
	host_close(&h);
}
END_TEST

START_TEST(gateways_are_port_groups)
{
	static const uint16_t id[] = { 11, 1, 13 };
	static const uint8_t vpd83[6] = { 0x12, 1, 0x83, 2 }, vpd88[6] = { 0x12, 1, 0x88, 2 };
	const uint8_t *p;
	bool group = false;

	setup();
	set_states(SB, AO, SB);
	ck_assert_str_eq(tur_then(), "good");
	set_states(TR, AO, SB);
	ck_assert_str_eq(tur(), HEARD);
	ck_assert_str_eq(tur(), "good");
	set_states(TR, AO, SB);
	ck_assert_str_eq(tur(), "good"); /* nothing has changed */
	ck_assert_str_eq(in(rtpg, 12), "good");
	ck_assert_uint_eq(get_be32(a->in), a->in_len - 4);
	ck_assert_uint_eq(a->in[5], 7);
	p = a->in + 8;
	for (unsigned i = 0; i < 3; i++, p += 12) {
		ck_assert_uint_eq(p[0] & 0x0f, states[i]);
		ck_assert_uint_eq(p[0] >> 7, i == 2); /* preferred */
		ck_assert_uint_eq(get_be16(p + 2), id[i]);
		ck_assert_uint_eq(p[5], 2); /* implicit */
		ck_assert_uint_eq(p[7], 1);
		ck_assert_uint_eq(get_be16(p + 10), i == 1 ? a->n.rtpi : id[i]);
	}
	ck_assert_ptr_eq(p, a->in + a->in_len);
	ck_assert_str_eq(in(vpd83, 6), "good");
	for (p = a->in + 4; p < a->in + a->in_len; p += 4 + p[3])
		if ((p[1] & 0x3f) == 0x15) {
			group = true;
			ck_assert_uint_eq(get_be16(p + 6), 1);
		}
	ck_assert(group);
	ck_assert_str_eq(in(vpd88, 6), "good");
	p = a->in + 4;
	for (unsigned i = 0; i < 3; i++, p += 12 + get_be16(p + 10))
		ck_assert_uint_eq(get_be16(p + 2), ((uint16_t[]){ 1, 11, 13 })[i]);
	host_close(&h);
}
END_TEST

/* What one daemon alone would know of is not offered, and no other unit's copy reaches it. */
START_TEST(what_one_daemon_knows_is_not_offered)
{
	static const uint8_t opcodes[12] = { 0xa3, 0x0c, [8] = 2 };
	static const uint8_t one[12] = { 0xa3, 0x0c, 2, 0x5f, [9] = 64 };
	static const uint8_t reserve[6] = { 0x16 };

	setup();
	set_states(SB, AO, SB);
	ck_assert_str_eq(tur_then(), "good");
	ck_assert_str_eq(host_prout(a, 0, 0, 0, 1), "05/20/00");
	host_none(a, 1, reserve, sizeof(reserve));
	ck_assert_str_eq(host_result(a), "05/20/00");
	host_in(a, 1, opcodes, sizeof(opcodes), 512);
	for (size_t at = 4; at < a->in_len; at += 8)
		ck_assert(a->in[at] != 0x5f && a->in[at] != 0x16 && a->in[at] != 0x48);
	host_in(a, 1, one, sizeof(one), 64);
	ck_assert_uint_eq(a->in[1] & 7, 1);
	ck_assert_str_eq(in(inquiry, 6), "good");
	ck_assert_uint_eq(a->in[5], 0x10); /* implicit; no third party copy */
	host_close(&h);
}
END_TEST

static struct host_outcome drained[2];
static unsigned drain_at;

static void do_drain(void *arg)
{
	(void)arg;
	scsi_lu_drain(h.lu, host_outcome, &drained[drain_at]);
}

START_TEST(drain_waits_for_what_was_admitted)
{
	struct host_cmd *w;
	struct host_outcome gone = { 0 };

	setup();
	set_states(SB, AO, SB);
	ck_assert_str_eq(tur_then(), "good");
	memset(drained, 0, sizeof(drained));
	a->hold_fetch = true;
	w = host_start_write(a, 8);
	host_steps(&h, 8);
	set_states(SB, TR, SB);
	drain_at = 0;
	host_do(&h, do_drain, NULL);
	host_steps(&h, 8);
	ck_assert(!drained[0].done);
	drain_at = 1; /* a second one waits for the same */
	host_do(&h, do_drain, NULL);
	host_steps(&h, 8);
	ck_assert(!drained[1].done);
	/* New ones are refused, and do not keep it waiting. */
	ck_assert_str_eq(tur_then(), TRANSITION);
	scsi_lu_delete(h.lu, true, host_outcome, &gone);
	ck_assert_int_eq(gone.status, -EBUSY);
	host_release(a);
	ck_assert_uint_eq(host_finish(w), 0);
	ck_assert(host_wait(&h, &drained[0].done) && host_wait(&h, &drained[1].done));
	ck_assert_int_eq(drained[0].status, 0);
	ck_assert_int_eq(drained[1].status, 0);
	a->hold_fetch = false;
	set_states(SB, AO, SB);
	ck_assert_str_eq(tur_then(), "good");
	host_close(&h);
}
END_TEST

UNIT_MAIN("gateways", 20, each_state_refuses_its_commands, a_lease_that_has_lapsed,
	  gateways_are_port_groups, what_one_daemon_knows_is_not_offered,
	  drain_waits_for_what_was_admitted)
