/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Transitions of target port groups: they end by themselves when initiators need not wait longer
 * (SPC-4 5.15.2, 6.37), on a clock that stands still. */
#include "events/clock.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"

static struct host h;
static struct host_nexus *a;
static const char *alua_key;

static void do_set(void *arg)
{
	struct scsi_tpgs g;

	scsi_target_tpgs(h.target, &g);
	ck_assert_int_eq(scsi_tpgs_parse(&g, alua_key, arg), 0);
	scsi_target_set_tpgs(h.target, &g, !strcmp(alua_key, "alua_state"));
}

static void set(const char *key, const char *value)
{
	alua_key = key;
	host_do(&h, do_set, (void *)(uintptr_t)value);
}

static void after_ms(uint64_t ms)
{
	clock_fake_advance(ms * NSEC_PER_MSEC);
	host_steps(&h, 4);
}

/* The next TEST UNIT READY is answered with it. */
static void answer_is(const char *want)
{
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), want);
}

/* The same behind all attentions. */
static void becomes(uint32_t lun, const char *want)
{
	do
		host_tur(a, lun);
	while (!strncmp(host_result(a), "06/", 3));
	ck_assert_str_eq(host_result(a), want);
}

static void group_is(uint8_t state)
{
	static const uint8_t cdb[12] = { 0xa3, 0x0a, [9] = 64 };

	ck_assert_uint_eq(host_in(a, 1, cdb, sizeof(cdb), 64), 0);
	ck_assert_uint_eq(a->in[4] & 0x0f, state);
	ck_assert_uint_eq(a->in[9], 2); /* implicit */
}

static void setup(void)
{
	clock_fake_set(1000 * NSEC_PER_SEC);
	host_open(&h, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
}

#define HEARD "06/2a/06"
#define TRANSITION "02/04/0a"
#define STANDBY "02/04/0b"
#define UNAVAILABLE "02/04/0c"

START_TEST(a_transition_ends_in_time)
{
	setup();
	set("alua_transition_time", "30");
	set("alua_state", "transitioning-to-active-non-optimized");
	answer_is(HEARD);
	answer_is(TRANSITION);
	group_is(15);
	after_ms(29000);
	answer_is(TRANSITION);
	after_ms(2000);
	answer_is(HEARD);
	answer_is("good");
	group_is(1);
	after_ms(100000);
	answer_is("good");
	host_close(&h);
}
END_TEST

/* Nobody has said what follows: not a state in which the medium can be reached. */
START_TEST(where_to_is_not_said)
{
	setup();
	set("alua_transition_time", "1");
	set("alua_state", "transitioning");
	after_ms(1100);
	answer_is(HEARD);
	answer_is(STANDBY);
	host_close(&h);
}
END_TEST

START_TEST(no_time_no_end)
{
	setup();
	set("alua_state", "transitioning-to-standby");
	answer_is(HEARD);
	after_ms(300000);
	answer_is(TRANSITION);
	/* a time that is said later counts from the beginning */
	set("alua_transition_time", "255");
	after_ms(1);
	answer_is(HEARD);
	answer_is(STANDBY);
	host_close(&h);
}
END_TEST

START_TEST(other_words_do_not_prolong_it)
{
	setup();
	set("alua_transition_time", "10");
	set("alua_state", "transitioning-to-unavailable");
	answer_is(HEARD);
	after_ms(6000);
	set("alua_preferred", "1");
	answer_is(HEARD);
	answer_is(TRANSITION);
	after_ms(5000);
	answer_is(HEARD);
	answer_is(UNAVAILABLE);
	/* another one begins anew; a state that is set ends it at once */
	set("alua_state", "transitioning-to-unavailable");
	after_ms(6000);
	set("alua_state", "transitioning-to-standby");
	answer_is(HEARD);
	after_ms(6000);
	answer_is(TRANSITION);
	set("alua_state", "active-optimized");
	answer_is(HEARD);
	answer_is("good");
	after_ms(20000);
	answer_is("good");
	host_close(&h);
}
END_TEST

/* A target may go, and get LUs, on the way. */
START_TEST(on_the_way)
{
	struct scsi_lu *lu;

	setup();
	set("alua_transition_time", "10");
	set("alua_state", "transitioning-to-unavailable");
	lu = host_add_lu(&h, 2, "4m", 512);
	ck_assert_ptr_nonnull(lu);
	becomes(2, TRANSITION);
	after_ms(11000);
	becomes(2, UNAVAILABLE);
	set("alua_state", "transitioning");
	host_close(&h);
}
END_TEST

UNIT_MAIN("tpg", 20, a_transition_ends_in_time, where_to_is_not_said, no_time_no_end,
	  other_words_do_not_prolong_it, on_the_way)
