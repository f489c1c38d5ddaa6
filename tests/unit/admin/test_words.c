/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What conf/words.c says of a value is what the daemon takes; and what a
 * mistyped word may have been. */
#include <stdio.h>

#include "conf/model.h"
#include "tests/support/unit.h"
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/scsi/target.h"

static bool takes(const char *key, const char *value)
{
	return !(conf_kind(key) == CONF_KEY ? iscsi_target_check(key, value) :
					      scsi_lu_check(key, value));
}

/* "0 to 15", "1 to 8 characters", "Yes or No" */
START_TEST(values)
{
	static const char *const keys[] = {
		"scsi_id",
		"scsi_sn",
		"vendor_id",
		"product_id",
		"product_rev",
		"sense_format",
		"removable",
		"online",
		"readonly",
		"lbppbe",
		"la_lba",
		"optimal_xfer_gran",
		"optimal_xfer_len",
		"thin_provisioning",
		"sanitize_rate",
		"atomic_unit",
		"HeaderDigest",
		"DataDigest",
		"InitialR2T",
		"ImmediateData",
		"DataPDUInOrder",
		"DataSequenceInOrder",
		"MaxRecvDataSegmentLength",
		"FirstBurstLength",
		"MaxBurstLength",
		"MaxOutstandingR2T",
		"MaxConnections",
		"ErrorRecoveryLevel",
		"DefaultTime2Wait",
		"DefaultTime2Retain",
		"RedirectPort",
		"RedirectReason",
		"nop_interval",
		"nop_count",
		"data_out_timeout",
		"MaxQueueCmd",
		"allow_target_reset",
		"allow_explicit_alua",
		"alua_preferred",
		"alua_transition_time",
	};

	for (unsigned i = 0; i < ARRAY_SIZE(keys); i++) {
		const char *key = keys[i], *says = conf_says(key);
		unsigned long long min, max;
		char text[64], a[16], b[16];
		int end = 0;

		ck_assert_msg(says != NULL, "%s", key);
		if (sscanf(says, "%llu to %llu characters%n", &min, &max, &end) == 2 && end) {
			ck_assert_uint_lt(max, sizeof(text) - 1);
			memset(text, 'x', sizeof(text));
			text[max + 1] = 0;
			ck_assert_msg(!takes(key, text), "%s: %llu characters", key, max + 1);
			text[max] = 0;
			ck_assert_msg(takes(key, text), "%s: %llu characters", key, max);
		} else if (sscanf(says, "%llu to %llu", &min, &max) == 2) {
			snprintf(text, sizeof(text), "%llu", min);
			ck_assert_msg(takes(key, text), "%s %s", key, text);
			snprintf(text, sizeof(text), "%llu", max);
			ck_assert_msg(takes(key, text), "%s %s", key, text);
			snprintf(text, sizeof(text), "%llu", max + 1);
			ck_assert_msg(!takes(key, text), "%s %s", key, text);
			snprintf(text, sizeof(text), "%llu", min - 1);
			ck_assert_msg(!min || !takes(key, text), "%s %s", key, text);
		} else if (sscanf(says, "%15s or %15s", a, b) == 2) {
			ck_assert_msg(takes(key, a) && takes(key, b), "%s %s %s", key, a, b);
		} else {
			ck_assert_msg(takes(key, "None") && takes(key, "CRC32C,None"), "%s", key);
		}
		ck_assert_msg(!takes(key, "neither of these, nor anything that is too long"), "%s",
			      key);
	}
}
END_TEST

START_TEST(hints)
{
	static const struct {
		const char *word;
		enum conf_place place;
		const char *hint;
	} cases[] = {
		{ "bakcing-store", CONF_IN_TARGET, ": did you mean 'backing-store'?" },
		{ "Backing_Store", CONF_IN_TARGET, ": did you mean 'backing-store'?" },
		{ "initiator-adress", CONF_IN_TARGET, ": did you mean 'initiator-address'?" },
		{ "maxconections", CONF_IN_TARGET, ": did you mean 'MaxConnections'?" },
		{ "defualt-driver", CONF_IN_FILE, ": did you mean 'default-driver'?" },
		{ "write_cache", CONF_IN_STORE, ": did you mean 'write-cache'?" },
		{ "lin", CONF_IN_STORE, ": did you mean 'lun'?" },
		{ "incominguser", CONF_IN_STORE, ": it belongs in a <target>" },
		{ "incominguser", CONF_IN_FILE, ": it belongs in a <target>" },
		{ "iSNS", CONF_IN_TARGET, ": it belongs outside of targets" },
		{ "incomminguser", CONF_IN_STORE,
		  ": did you mean 'incominguser'? It belongs in a <target>" },
		{ "taget", CONF_IS_BLOCK, ": did you mean <target>?" },
		{ "backing_store", CONF_IS_BLOCK, ": did you mean <backing-store>?" },
		{ "something-else", CONF_IN_TARGET, "" },
		{ "x", CONF_IN_TARGET, "" },
		{ "a-word-that-is-longer-than-any-word-of-the-file-could-ever-be", CONF_IN_FILE,
		  "" },
	};
	char hint[160], small[8];

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		conf_hint(cases[i].word, cases[i].place, hint, sizeof(hint));
		ck_assert_msg(!strcmp(hint, cases[i].hint), "%s: '%s'", cases[i].word, hint);
	}
	conf_hint("lin", CONF_IN_STORE, small, sizeof(small));
	ck_assert_str_eq(small, ": did y");
}
END_TEST

UNIT_MAIN("words", 10, values, hints)
