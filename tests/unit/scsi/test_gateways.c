/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Units of a gateway group (target.h): what is refused in which state, the lease, the gateways as
 * target port groups, and the wait for commands that were admitted. */
#include <stdlib.h>
#include "events/bytes.h"
#include "events/clock.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"
#include "tgtd/scsi/commands/pr_shared.h"
#include "tgtd/scsi/gate.h"

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
static const uint8_t read_capacity16[16] = { 0x9e, 0x10, [13] = 32 };
static const uint8_t read10[10] = { 0x28, [8] = 1 };

START_TEST(each_state_refuses_its_commands)
{
	setup();
	ck_assert_str_eq(tur_then(), TRANSITION);
	ck_assert_str_eq(in(read10, 10), TRANSITION);
	ck_assert_str_eq(in(read_capacity, 10), TRANSITION);
	ck_assert_str_eq(in(read_capacity16, 16), TRANSITION);
	ck_assert_str_eq(in(mode_sense, 6), TRANSITION);
	ck_assert_str_eq(in(inquiry, 6), "good");
	ck_assert_str_eq(in(report_luns, 12), "good");
	ck_assert_str_eq(in(rtpg, 12), "good");
	set_states(AO, SB, SB);
	ck_assert_str_eq(tur_then(), STANDBY);
	ck_assert_str_eq(in(read10, 10), STANDBY);
	/* An initiator would have a disk of size 0 there. */
	ck_assert_str_eq(in(read_capacity, 10), "good");
	ck_assert_uint_eq(get_be32(a->in), 16383);
	ck_assert_str_eq(in(read_capacity16, 16), "good");
	ck_assert_uint_eq(get_be64(a->in), 16383);
	ck_assert_str_eq(in(mode_sense, 6), "good");
	ck_assert_str_eq(in(log_sense, 10), "good");
	set_states(TR, UN, TR);
	(void)tur_then();
	ck_assert_str_eq(tur(), UNAVAILABLE);
	ck_assert_str_eq(in(log_sense, 10), UNAVAILABLE);
	ck_assert_str_eq(in(read_capacity, 10), UNAVAILABLE);
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
		ck_assert_uint_eq(p[0] >> 7, 0); /* the home stands by: not preferred */
		ck_assert_uint_eq(get_be16(p + 2), id[i]);
		ck_assert_uint_eq(p[5], 2); /* implicit */
		ck_assert_uint_eq(p[7], 1);
		ck_assert_uint_eq(get_be16(p + 10), i == 1 ? a->n.rtpi : id[i]);
	}
	ck_assert_ptr_eq(p, a->in + a->in_len);
	set_states(SB, SB, AO);
	ck_assert_str_eq(tur_then(), STANDBY);
	ck_assert_str_eq(in(rtpg, 12), "good");
	ck_assert_uint_eq(a->in[8] >> 7, 0);
	ck_assert_uint_eq(a->in[32], 0x80); /* the home serves: preferred */
	set_states(SB, AO, SB);
	ck_assert_str_eq(tur_then(), "good");
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

/* Whoever takes over amid it finds all of a logical block or nothing, and of two perhaps one. */
START_TEST(compare_and_write_of_one_block)
{
	static const uint8_t vpdb0[6] = { 0x12, 1, 0xb0, 0, 64 };
	uint8_t cdb[16] = { 0x89, [13] = 1 }, data[2048] = { 0 };

	setup();
	set_states(SB, AO, SB);
	ck_assert_str_eq(tur_then(), "good");
	ck_assert_str_eq(in(vpdb0, 6), "good");
	ck_assert_uint_eq(a->in[5], 1);
	memset(data + 512, 0x66, 512);
	host_out(a, 1, cdb, sizeof(cdb), data, 1024);
	ck_assert_str_eq(host_result(a), "good");
	ck_assert_int_eq(host_holds(a, 1, 0, 1), 0x66);
	memset(data, 0, sizeof(data));
	cdb[9] = 8;
	cdb[13] = 2;
	host_out(a, 1, cdb, sizeof(cdb), data, 2048);
	ck_assert_str_eq(host_result(a), "05/24/00");
	host_close(&h);
}
END_TEST

/* What one daemon alone would know of is not offered, and no other unit's copy reaches it. */
START_TEST(what_one_daemon_knows_is_not_offered)
{
	static const uint8_t opcodes[12] = { 0xa3, 0x0c, [8] = 2 };
	static const uint8_t one[12] = { 0xa3, 0x0c, 1, 0x16, [9] = 64 };
	static const uint8_t reserve[6] = { 0x16 };

	setup();
	set_states(SB, AO, SB);
	ck_assert_str_eq(tur_then(), "good");
	host_none(a, 1, reserve, sizeof(reserve));
	ck_assert_str_eq(host_result(a), "05/20/00");
	host_in(a, 1, opcodes, sizeof(opcodes), 512);
	for (size_t at = 4; at < a->in_len; at += 8)
		ck_assert(a->in[at] != 0x16 && a->in[at] != 0x48);
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

/* ---- what the gateways share: a group of one object, in memory ------------------------------- */

static struct {
	uint8_t bytes[SCSI_SHARED_MAX];
	size_t len;
	bool slow; /* nothing is answered */
	struct scsi_ask *ask;
	unsigned changes, looks, cancels;
} group;

static void group_obeyed(void *arg, int status)
{
	ck_assert_int_eq(status, 0);
	scsi_ask_over(arg, 0);
}

static void group_change(void *arg, struct scsi_lu *lu, struct scsi_ask *ask)
{
	static uint8_t to[SCSI_SHARED_MAX];
	size_t len = 0;

	(void)arg;
	group.changes++;
	group.ask = ask;
	if (group.slow)
		return;
	group.ask = NULL;
	switch (scsi_ask_change(ask, group.bytes, group.len, to, &len)) {
	case SCSI_CHANGED:
		memcpy(group.bytes, to, len);
		group.len = len;
		scsi_lu_obey(lu, group.bytes, group.len, group_obeyed, ask);
		break;
	case SCSI_UNCHANGED:
	case SCSI_REFUSED:
		scsi_ask_over(ask, 0);
	}
}

static void group_look(void *arg, struct scsi_lu *lu, struct scsi_ask *ask)
{
	(void)arg;
	(void)lu;
	group.looks++;
	scsi_ask_seen(ask, group.bytes, group.len);
}

static void group_cancel(void *arg, struct scsi_lu *lu, struct scsi_ask *ask)
{
	(void)arg;
	(void)lu;
	ck_assert_ptr_eq(ask, group.ask);
	group.ask = NULL;
	group.cancels++;
}

static struct host_nexus *b;

static void setup_group(void)
{
	memset(&group, 0, sizeof(group));
	setup();
	gateways.main = h.loop;
	gateways.change = group_change;
	gateways.look = group_look;
	gateways.cancel = group_cancel;
	set_states(SB, AO, SB);
	b = host_login(&h, "iqn.b");
	ck_assert_str_eq(tur_then(), "good");
	while (host_tur(b, 1) != SAM_GOOD)
		;
}

/* What "iqn.c" does by another gateway. */
static bool elsewhere(uint8_t action, uint8_t type, uint64_t key, uint64_t sa_key)
{
	static uint8_t to[SCSI_SHARED_MAX];
	uint8_t list[24] = { 0 };
	const struct pr_request q = { .action = action,
				      .type = type,
				      .rtpi = 13,
				      .initiator = "iqn.c,i,0x1",
				      .iqn = "iqn.c",
				      .data = list,
				      .len = sizeof(list) };
	struct pr_outcome r;
	size_t len = 0;

	put_be64(list, key);
	put_be64(list + 8, sa_key);
	ck_assert_int_eq(pr_shared_do(group.bytes, group.len, q, to, &len, &r), 0);
	if (r.changed)
		memcpy(group.bytes, to, group.len = len);
	return r.status == SAM_GOOD;
}

static struct host_outcome obeyed;

static void do_obey(void *arg)
{
	(void)arg;
	obeyed.done = false;
	scsi_lu_obey(h.lu, group.bytes, group.len, host_outcome, &obeyed);
}

static void do_hear(void *arg)
{
	(void)arg;
	ck_assert_int_eq(scsi_lu_set_shared(h.lu, group.bytes, group.len), 0);
}

static const char *wr(struct host_nexus *n)
{
	host_finish(host_start_write(n, 1));
	return host_result(n);
}

START_TEST(reservations_are_asked_of_the_group)
{
	setup_group();
	ck_assert_str_eq(host_prout(a, PR_REGISTER, 0, 0, 1), "good");
	ck_assert_str_eq(host_prout(a, PR_RESERVE, PR_WRITE_EXCLUSIVE, 1, 0), "good");
	ck_assert_str_eq(host_prout(a, PR_RESERVE, PR_WRITE_EXCLUSIVE, 1, 0), "good");
	ck_assert_str_eq(host_prout(b, PR_RESERVE, PR_WRITE_EXCLUSIVE, 1, 0), "conflict");
	ck_assert_uint_eq(group.changes, 4);
	ck_assert_str_eq(wr(b), "conflict");
	ck_assert_str_eq(wr(a), "good");
	ck_assert_str_eq(in(pr_keys, 10), "good");
	ck_assert_uint_eq(get_be64(a->in + 8), 1);
	/* A standby port answers, too, and by what others have done meanwhile. */
	set_states(AO, SB, SB);
	ck_assert_str_eq(tur_then(), STANDBY);
	ck_assert(elsewhere(PR_REGISTER, 0, 0, 3));
	ck_assert_str_eq(in(pr_keys, 10), "good");
	ck_assert_uint_eq(get_be32(a->in + 4), 16);
	ck_assert_uint_eq(group.looks, 2);
	ck_assert_str_eq(host_prout(a, PR_RELEASE, PR_WRITE_EXCLUSIVE, 1, 0), "good");
	/* Not when nobody knows who serves. */
	set_states(TR, TR, SB);
	(void)tur_then();
	ck_assert_str_eq(host_prout(a, PR_RESERVE, PR_WRITE_EXCLUSIVE, 1, 0), TRANSITION);
	host_close(&h);
}
END_TEST

START_TEST(attentions_of_what_others_do)
{
	setup_group();
	ck_assert_str_eq(host_prout(a, PR_REGISTER, 0, 0, 1), "good");
	ck_assert_str_eq(host_prout(b, PR_REGISTER, 0, 0, 2), "good");
	ck_assert(elsewhere(PR_REGISTER, 0, 0, 3));
	ck_assert(elsewhere(PR_RESERVE, PR_EXCLUSIVE_ACCESS_RO, 3, 0));
	ck_assert(elsewhere(PR_RELEASE, PR_EXCLUSIVE_ACCESS_RO, 3, 0));
	host_do(&h, do_hear, NULL);
	ck_assert_str_eq(tur(), "06/2a/04");
	ck_assert_str_eq(tur(), "good");
	ck_assert(elsewhere(PR_PREEMPT, PR_EXCLUSIVE_ACCESS_RO, 3, 1));
	host_do(&h, do_hear, NULL);
	host_do(&h, do_hear, NULL); /* once */
	ck_assert_str_eq(tur(), "06/2a/05");
	ck_assert_str_eq(tur(), "good");
	ck_assert_str_eq(host_prout(b, PR_REGISTER, 0, 2, 4), "06/2a/04");
	ck_assert(elsewhere(PR_CLEAR, 0, 3, 0));
	host_do(&h, do_hear, NULL);
	ck_assert_str_eq(host_prout(b, PR_REGISTER, 0, 0, 4), "06/2a/03");
	ck_assert_str_eq(host_prout(b, PR_REGISTER, 0, 0, 4), "good");
	ck_assert_str_eq(host_prout(b, PR_REGISTER, 0, 4, 0), "good"); /* its own wish */
	host_tur(b, 1);
	ck_assert_str_eq(host_result(b), "good");
	/* What is not understood changes nothing. */
	group.bytes[0] = 9;
	ck_assert_int_eq(scsi_lu_set_shared(h.lu, group.bytes, group.len), -EBADMSG);
	ck_assert_str_eq(tur(), "good");
	host_close(&h);
}
END_TEST

/* Rule 7: PREEMPT is answered when nothing is at work that was admitted before. */
START_TEST(what_was_admitted_ends_before_rights_are_lost)
{
	struct host_cmd *w, *late;

	setup_group();
	ck_assert_str_eq(host_prout(b, PR_REGISTER, 0, 0, 2), "good");
	ck_assert(elsewhere(PR_REGISTER, 0, 0, 3));
	ck_assert(elsewhere(PR_RESERVE, PR_EXCLUSIVE_ACCESS_RO, 3, 0));
	host_do(&h, do_obey, NULL);
	ck_assert(host_wait(&h, &obeyed.done));
	ck_assert_str_eq(wr(b), "good");
	b->hold_fetch = true;
	w = host_start_write(b, 8);
	host_steps(&h, 8);
	ck_assert(elsewhere(PR_PREEMPT, PR_EXCLUSIVE_ACCESS_RO, 3, 2));
	host_do(&h, do_obey, NULL);
	host_steps(&h, 20);
	ck_assert(!obeyed.done);
	late = host_start_write(b, 8); /* waits, and is refused then */
	host_steps(&h, 20);
	ck_assert(!late->completed && !obeyed.done);
	host_release(b);
	ck_assert_uint_eq(host_finish(w), SAM_GOOD);
	ck_assert(host_wait(&h, &obeyed.done));
	ck_assert_int_eq(obeyed.status, 0);
	host_finish(late);
	ck_assert_str_eq(host_result(b), "06/2a/05");
	ck_assert_str_eq(wr(b), "conflict");
	/* Nobody else has waited. */
	ck_assert_str_eq(tur(), "good");
	host_close(&h);
}
END_TEST

START_TEST(preempt_and_abort_by_another_gateway)
{
	struct host_cmd *w;

	setup_group();
	ck_assert_str_eq(host_prout(b, PR_REGISTER, 0, 0, 2), "good");
	ck_assert(elsewhere(PR_REGISTER, 0, 0, 3));
	host_do(&h, do_obey, NULL);
	b->hold_fetch = true;
	w = host_start_write(b, 8);
	host_steps(&h, 8);
	ck_assert(elsewhere(PR_PREEMPT_AND_ABORT, PR_WRITE_EXCLUSIVE, 3, 2));
	host_do(&h, do_obey, NULL);
	ck_assert(host_wait(&h, &obeyed.done));
	ck_assert_int_eq(obeyed.status, 0);
	ck_assert_uint_eq(host_finish(w), SAM_TASK_ABORTED);
	b->hold_fetch = false;
	host_close(&h);
}
END_TEST

/* Whatever waits for the group keeps nobody waiting, and ends when it is aborted. */
START_TEST(who_asks_may_be_aborted)
{
	static const uint8_t out[10] = { 0x5f, PR_REGISTER_AND_IGNORE, [8] = 24 };
	static const uint8_t list[24] = { [15] = 1 };
	struct host_cmd *c;

	setup_group();
	memset(drained, 0, sizeof(drained));
	group.slow = true;
	c = host_start(a, 1ull << 48, out, sizeof(out), false, list, sizeof(list));
	host_steps(&h, 20);
	ck_assert(group.ask && !c->completed);
	set_states(SB, TR, SB);
	drain_at = 0;
	host_do(&h, do_drain, NULL);
	ck_assert(host_wait(&h, &drained[0].done));
	host_abort(c);
	host_steps(&h, 20);
	ck_assert_uint_eq(group.cancels, 1);
	host_finish(c);
	/* The same with a session that ends. */
	set_states(SB, AO, SB);
	(void)tur_then();
	c = host_start(a, 1ull << 48, out, sizeof(out), false, list, sizeof(list));
	host_steps(&h, 20);
	ck_assert_ptr_nonnull(group.ask);
	host_abort(c);
	host_finish(c);
	host_logout(a);
	host_steps(&h, 20);
	ck_assert_uint_eq(group.cancels, 2);
	host_close(&h);
}
END_TEST

UNIT_MAIN("gateways", 20, each_state_refuses_its_commands, a_lease_that_has_lapsed,
	  gateways_are_port_groups, what_one_daemon_knows_is_not_offered,
	  compare_and_write_of_one_block, drain_waits_for_what_was_admitted,
	  reservations_are_asked_of_the_group,
	  attentions_of_what_others_do, what_was_admitted_ends_before_rights_are_lost,
	  preempt_and_abort_by_another_gateway, who_asks_may_be_aborted)
