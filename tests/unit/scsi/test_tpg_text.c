/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Target port groups as text: what is taken, what is not, and the way back. */
#include <stdio.h>
#include <string.h>
#include "tests/support/unit.h"
#include "tgtd/scsi/target.h"

static void round_trip(const char *key, const char *value, const char *want)
{
	char text[SCSI_TPGS_TEXT];
	struct scsi_tpgs g;

	scsi_tpgs_init(&g);
	ck_assert_msg(scsi_tpgs_parse(&g, key, value) == 0, "%s %s", key, value);
	scsi_tpgs_print(&g, key, text, sizeof(text));
	ck_assert_str_eq(text, want);
}

START_TEST(what_is_said_is_shown)
{
	round_trip("alua_groups", "", "");
	round_trip("alua_groups", "2=3", "2=3");
	round_trip("alua_groups", "2=3,65535;65535=9,8,1", "2=3,65535;65535=9,8,1");
	round_trip("alua_groups", "1=7;2=3", "1=7;2=3");
	round_trip("alua_groups", "3=1;3=2", "3=1,2");
	round_trip("alua_state", "", "active-optimized");
	round_trip("alua_state", "transitioning", "transitioning");
	round_trip("alua_state", "transitioning-to-standby", "transitioning-to-standby");
	round_trip("alua_state", "2=transitioning-to-active-optimized;1=transitioning",
		   "2=transitioning-to-active-optimized;1=transitioning");
	round_trip("alua_state", "2=standby;1=unavailable", "2=standby;1=unavailable");
	round_trip("alua_preferred", "65535", "65535");
	round_trip("alua_transition_time", "255", "255");
}
END_TEST

START_TEST(what_makes_no_sense)
{
	static const struct {
		const char *key, *value;
	} bad[] = {
		{ "alua_groups", "2" },		{ "alua_groups", "2=" },
		{ "alua_groups", "0=1" },	{ "alua_groups", "2=0" },
		{ "alua_groups", "2=65536" },	{ "alua_groups", "99999999999999999999=1" },
		{ "alua_groups", "2=1," },	{ "alua_groups", "2=1;" },
		{ "alua_groups", "2=1;3=1" },	{ "alua_groups", "2=1 " },
		{ "alua_groups", "=" },		{ "alua_groups", "-2=1" },
		{ "alua_state", "offline" },	{ "alua_state", "standby;" },
		{ "alua_state", "2=" },		{ "alua_state", "2=standby;" },
		{ "alua_state", "2=x" },	{ "alua_state", "2=standby;2=standby" },
		{ "alua_state", "Standby" },	{ "alua_preferred", "" },
		{ "alua_preferred", "65536" },	{ "alua_transition_time", "256" },
		{ "alua_transition_time", "1s" }, { "alua_state", "transitioning-to-" },
		{ "alua_state", "transitioning-to-transitioning" },
	};
	char many[SCSI_TPGS_TEXT] = "";
	struct scsi_tpgs g;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		scsi_tpgs_init(&g);
		ck_assert_msg(scsi_tpgs_parse(&g, bad[i].key, bad[i].value) == -EINVAL, "%s %s",
			      bad[i].key, bad[i].value);
	}
	ck_assert_int_eq(scsi_tpgs_parse(&g, "alua_other", "1"), -ENOENT);
	/* as many groups as there is room for, and one more */
	for (unsigned i = 2; i <= SCSI_TPG_MAX + 1; i++)
		snprintf(many + strlen(many), sizeof(many) - strlen(many), "%s%u=%u",
			 i > 2 ? ";" : "", i, i);
	ck_assert_int_eq(scsi_tpgs_parse(&g, "alua_groups", many), -EINVAL);
	*strrchr(many, ';') = 0;
	scsi_tpgs_init(&g);
	ck_assert_int_eq(scsi_tpgs_parse(&g, "alua_groups", many), 0);
	ck_assert_uint_eq(g.n, SCSI_TPG_MAX);
}
END_TEST

UNIT_MAIN("tpg_text", 10, what_is_said_is_shown, what_makes_no_sense)
