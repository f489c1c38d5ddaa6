/* SPDX-License-Identifier: GPL-2.0-or-later */
/* params.c: the negotiation table, against RFC 7143 clause 13 written out by hand. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/unit.h"
#include "tgtd/iscsi/params.h"

struct fixture {
	struct iscsi_offer offer;
	struct iscsi_params p;
	struct iscsi_nego n;
	struct text_out out;
};

static void begin(struct fixture *f, bool iser, bool discovery, bool leading, bool ffp)
{
	iscsi_offer_init(&f->offer);
	iscsi_params_init(&f->p);
	iscsi_nego_init(&f->n, &f->offer, &f->p, iser, discovery, leading, ffp);
	text_out_init(&f->out);
}

/* Offers key=value; returns what was answered ("" when nothing). Static buffer. */
static const char *offer(struct fixture *f, const char *key, const char *value)
{
	static char answer[512];

	text_out_reset(&f->out);
	ck_assert_int_eq(iscsi_nego_key(&f->n, key, value, &f->out), 0);
	snprintf(answer, sizeof(answer), "%.*s", (int)f->out.len, f->out.buf ? f->out.buf : "");
	return answer;
}

START_TEST(every_rule)
{
	/* What a new target accepts: digests both, InitialR2T No, bursts 1 MiB / 256 KiB ... */
	static const struct { const char *key, *theirs, *answer;
	} rows[] = {
		{ "HeaderDigest", "CRC32C", "HeaderDigest=CRC32C" },
		{ "HeaderDigest", "CRC32C,None", "HeaderDigest=CRC32C" },
		{ "HeaderDigest", "None,CRC32C", "HeaderDigest=None" },
		{ "DataDigest", "Foo,None", "DataDigest=None" },
		{ "DataDigest", "Foo", "DataDigest=Reject" },
		{ "InitialR2T", "Yes", "InitialR2T=Yes" },
		{ "InitialR2T", "No", "InitialR2T=No" },
		{ "InitialR2T", "Maybe", "InitialR2T=Reject" },
		{ "ImmediateData", "Yes", "ImmediateData=Yes" },
		{ "ImmediateData", "No", "ImmediateData=No" },
		{ "MaxBurstLength", "262144", "MaxBurstLength=262144" },
		{ "MaxBurstLength", "16777215", "MaxBurstLength=1048576" },
		{ "MaxBurstLength", "0x10000", "MaxBurstLength=65536" },
		{ "MaxBurstLength", "16777216", "MaxBurstLength=Reject" },
		{ "MaxBurstLength", "511", "MaxBurstLength=Reject" },
		{ "MaxBurstLength", "-1", "MaxBurstLength=Reject" },
		{ "MaxBurstLength", "", "MaxBurstLength=Reject" },
		{ "MaxBurstLength", "99999999999999999999", "MaxBurstLength=Reject" },
		{ "DefaultTime2Wait", "5", "DefaultTime2Wait=5" },
		{ "DefaultTime2Wait", "0", "DefaultTime2Wait=2" },
		{ "DefaultTime2Retain", "0", "DefaultTime2Retain=0" },
		{ "DefaultTime2Retain", "20", "DefaultTime2Retain=0" }, /* nothing is kept */
		{ "MaxOutstandingR2T", "1", "MaxOutstandingR2T=1" },
		{ "ErrorRecoveryLevel", "2", "ErrorRecoveryLevel=1" },
		{ "ErrorRecoveryLevel", "3", "ErrorRecoveryLevel=Reject" },
		{ "MaxConnections", "1", "MaxConnections=1" },
		{ "DataPDUInOrder", "No", "DataPDUInOrder=No" },
		{ "DataSequenceInOrder", "Yes", "DataSequenceInOrder=Yes" },
		{ "IFMarker", "Yes", "IFMarker=No" },
		{ "OFMarkInt", "1~2048", "OFMarkInt=Reject" },
		{ "RDMAExtensions", "Yes", "RDMAExtensions=No" },
		{ "InitiatorRecvDataSegmentLength", "8192",
		  "InitiatorRecvDataSegmentLength=Irrelevant" },
		{ "MaxRecvDataSegmentLength", "65536", "" },
		{ "TaskReporting", "FastAbort,RFC3720", "TaskReporting=RFC3720" },
		{ "X-com.example.key", "1", "X-com.example.key=NotUnderstood" },
		{ "TargetAlias", "x", "TargetAlias=Reject" },
	};
	struct fixture f;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		begin(&f, false, false, true, false);
		ck_assert_str_eq(offer(&f, rows[i].key, rows[i].theirs), rows[i].answer);
		text_out_fini(&f.out);
	}
}
END_TEST

START_TEST(active_values)
{
	struct fixture f;

	begin(&f, false, false, true, false);
	ck_assert_uint_eq(f.p.max_burst, 262144); /* RFC 7143 13.13 default */
	ck_assert_uint_eq(f.p.first_burst, 65536);
	ck_assert(f.p.initial_r2t && f.p.immediate_data);
	offer(&f, "HeaderDigest", "CRC32C");
	offer(&f, "InitialR2T", "No");
	offer(&f, "MaxBurstLength", "32768");
	offer(&f, "FirstBurstLength", "65536");
	offer(&f, "MaxRecvDataSegmentLength", "131072");
	ck_assert(f.p.header_digest && !f.p.data_digest && !f.p.initial_r2t);
	ck_assert_uint_eq(f.p.max_burst, 32768);
	ck_assert_uint_eq(f.p.first_burst, 32768); /* 13.14: never more than MaxBurstLength */
	ck_assert_uint_eq(f.p.max_xmit_dsl, 131072);
	ck_assert_int_eq(iscsi_nego_declare(&f.n, &f.out), 0);
	ck_assert_uint_eq(f.p.max_recv_dsl, 262144);
	text_out_fini(&f.out);
}
END_TEST

START_TEST(twice_is_an_error)
{
	struct fixture f;

	begin(&f, false, false, true, false);
	offer(&f, "ImmediateData", "No");
	ck_assert_int_eq(iscsi_nego_key(&f.n, "ImmediateData", "Yes", &f.out), -EPROTO);
	text_out_fini(&f.out);
}
END_TEST

START_TEST(where_a_key_counts)
{
	struct fixture f;

	begin(&f, false, true, true, false); /* discovery */
	ck_assert_str_eq(offer(&f, "MaxBurstLength", "512"), "MaxBurstLength=Irrelevant");
	/* 7.4.1, 13.23, 13.24 */
	ck_assert_str_eq(offer(&f, "ErrorRecoveryLevel", "2"), "ErrorRecoveryLevel=0");
	ck_assert_str_eq(offer(&f, "TaskReporting", "RFC3720"), "TaskReporting=Irrelevant");
	ck_assert_str_eq(offer(&f, "iSCSIProtocolLevel", "1"), "iSCSIProtocolLevel=Irrelevant");
	text_out_fini(&f.out);
	begin(&f, false, false, false, false); /* second connection of a session */
	ck_assert_str_eq(offer(&f, "ImmediateData", "No"), "ImmediateData=Irrelevant");
	ck_assert(f.p.immediate_data);
	text_out_fini(&f.out);
	begin(&f, false, false, true, true); /* full feature phase */
	ck_assert_str_eq(offer(&f, "ImmediateData", "No"), "ImmediateData=Reject");
	ck_assert_str_eq(offer(&f, "MaxRecvDataSegmentLength", "4096"), "");
	ck_assert_uint_eq(f.p.max_xmit_dsl, 4096);
	text_out_fini(&f.out);
}
END_TEST

START_TEST(iser_rows)
{
	struct fixture f;

	begin(&f, true, false, true, false);
	ck_assert_str_eq(offer(&f, "RDMAExtensions", "Yes"), "RDMAExtensions=Yes");
	ck_assert_str_eq(offer(&f, "HeaderDigest", "None"), "HeaderDigest=None");
	ck_assert_str_eq(offer(&f, "DataDigest", "CRC32C"), "DataDigest=Reject");
	ck_assert_str_eq(offer(&f, "InitiatorRecvDataSegmentLength", "262144"),
			 "InitiatorRecvDataSegmentLength=262144");
	ck_assert_str_eq(offer(&f, "TargetRecvDataSegmentLength", "8192"),
			 "TargetRecvDataSegmentLength=8192");
	ck_assert_str_eq(offer(&f, "MaxRecvDataSegmentLength", "65536"), "");
	ck_assert_int_eq(iscsi_nego_declare(&f.n, &f.out), 0);
	ck_assert_uint_eq(f.p.max_xmit_dsl, 262144);
	ck_assert_uint_eq(f.p.max_recv_dsl, 8192);
	text_out_fini(&f.out);
}
END_TEST

/* Unsolicited Data-Out over iSER: as far as the transport has receives for it. */
START_TEST(iser_unsolicited)
{
	struct fixture f;

	begin(&f, true, false, true, false);
	ck_assert_str_eq(offer(&f, "InitialR2T", "No"), "InitialR2T=Yes");
	ck_assert_str_eq(offer(&f, "FirstBurstLength", "262144"), "FirstBurstLength=262144");
	text_out_fini(&f.out);
	begin(&f, true, false, true, false);
	f.n.limits.unsolicited = 65536;
	ck_assert_str_eq(offer(&f, "InitialR2T", "No"), "InitialR2T=No");
	ck_assert_str_eq(offer(&f, "FirstBurstLength", "262144"), "FirstBurstLength=65536");
	ck_assert(!f.p.initial_r2t);
	ck_assert_uint_eq(f.p.first_burst, 65536);
	text_out_fini(&f.out);
	begin(&f, true, false, true, false);
	f.n.limits.unsolicited = 65536;
	ck_assert_str_eq(offer(&f, "InitialR2T", "Yes"), "InitialR2T=Yes");
	ck_assert_str_eq(offer(&f, "FirstBurstLength", "8192"), "FirstBurstLength=8192");
	text_out_fini(&f.out);
	begin(&f, true, false, true, false);
	f.n.limits = (struct iscsi_limits){ .recv_dsl = 512, .no_immediate = true };
	ck_assert_str_eq(offer(&f, "TargetRecvDataSegmentLength", "8192"),
			 "TargetRecvDataSegmentLength=512");
	ck_assert_str_eq(offer(&f, "ImmediateData", "Yes"), "ImmediateData=No");
	ck_assert_str_eq(offer(&f, "InitialR2T", "No"), "InitialR2T=Yes");
	ck_assert(!f.p.immediate_data);
	text_out_fini(&f.out);
	begin(&f, false, false, true, false); /* TCP: as the target is set */
	ck_assert_str_eq(offer(&f, "InitialR2T", "No"), "InitialR2T=No");
	ck_assert_str_eq(offer(&f, "FirstBurstLength", "262144"), "FirstBurstLength=262144");
	text_out_fini(&f.out);
}
END_TEST

START_TEST(admin_settings)
{
	struct fixture f;
	const char *key;
	char value[64];

	begin(&f, false, false, true, false);
	ck_assert_int_eq(iscsi_offer_set(&f.offer, "HeaderDigest", "None"), 0);
	ck_assert_int_eq(iscsi_offer_set(&f.offer, "ImmediateData", "No"), 0);
	ck_assert_int_eq(iscsi_offer_set(&f.offer, "MaxBurstLength", "16777215"), 0);
	ck_assert_int_eq(iscsi_offer_set(&f.offer, "MaxBurstLength", "16777216"), -EINVAL);
	ck_assert_int_eq(iscsi_offer_set(&f.offer, "HeaderDigest", "SHA1"), -EINVAL);
	ck_assert_int_eq(iscsi_offer_set(&f.offer, "TargetName", "x"), -ENOENT);
	ck_assert_int_eq(iscsi_offer_set(&f.offer, "Nonsense", "1"), -ENOENT);
	ck_assert_str_eq(offer(&f, "HeaderDigest", "CRC32C"), "HeaderDigest=Reject");
	ck_assert_str_eq(offer(&f, "ImmediateData", "Yes"), "ImmediateData=No");
	ck_assert_str_eq(offer(&f, "MaxBurstLength", "16777215"), "MaxBurstLength=16777215");
	ck_assert(iscsi_offer_get(&f.offer, 0, &key, value, sizeof(value)));
	ck_assert_str_eq(key, "MaxRecvDataSegmentLength");
	ck_assert(!iscsi_offer_get(&f.offer, 1000, &key, value, sizeof(value)));
	text_out_fini(&f.out);
}
END_TEST

START_TEST(unknown_keys_are_limited)
{
	struct fixture f;
	int rc = 0;

	begin(&f, false, false, true, false);
	for (int i = 0; i < 10000 && !rc; i++) {
		char key[16];

		snprintf(key, sizeof(key), "K%d", i);
		rc = iscsi_nego_key(&f.n, key, "v", &f.out);
	}
	ck_assert_int_eq(rc, -EPROTO);
	text_out_fini(&f.out);
}
END_TEST

/* W8. RFC 7143 13.14: never more than MaxBurstLength, in whatever order they come. */
START_TEST(first_burst_is_never_above_max_burst)
{
	struct fixture f;

	begin(&f, false, false, true, false);
	ck_assert_int_eq(iscsi_offer_set(&f.offer, "MaxBurstLength", "8192"), 0);
	ck_assert_str_eq(offer(&f, "FirstBurstLength", "65536"), "FirstBurstLength=8192");
	ck_assert_str_eq(offer(&f, "MaxBurstLength", "262144"), "MaxBurstLength=8192");
	ck_assert_uint_eq(f.p.first_burst, 8192);
	text_out_fini(&f.out);
	/* where MaxBurstLength does not come at all, its default holds */
	begin(&f, false, false, true, false);
	ck_assert_int_eq(iscsi_offer_set(&f.offer, "FirstBurstLength", "1048576"), 0);
	ck_assert_str_eq(offer(&f, "FirstBurstLength", "524288"), "FirstBurstLength=262144");
	text_out_fini(&f.out);
	/* what is agreed on stays agreed on: less than that is not admissible any more */
	begin(&f, false, false, true, false);
	ck_assert_str_eq(offer(&f, "FirstBurstLength", "65536"), "FirstBurstLength=65536");
	ck_assert_str_eq(offer(&f, "MaxBurstLength", "4096"), "MaxBurstLength=Reject");
	ck_assert_uint_eq(f.p.first_burst, 65536);
	ck_assert_uint_eq(f.p.max_burst, 262144);
	text_out_fini(&f.out);
	begin(&f, false, false, true, false);
	ck_assert_str_eq(offer(&f, "MaxBurstLength", "4096"), "MaxBurstLength=4096");
	ck_assert_str_eq(offer(&f, "FirstBurstLength", "65536"), "FirstBurstLength=4096");
	text_out_fini(&f.out);
}
END_TEST

static const char *offered(struct fixture *f, int n)
{
	static char out[512];

	text_out_reset(&f->out);
	ck_assert_int_eq(iscsi_nego_offer(&f->n, &f->out), n);
	for (uint32_t i = 0; i < f->out.len; i++)
		out[i] = f->out.buf[i] ? f->out.buf[i] : ' ';
	out[f->out.len] = '\0';
	return out;
}

/* W11. What the target demands it asks for, once; and nothing else will do. */
START_TEST(digests_that_are_demanded)
{
	static const char *const answers[] = { "None", "Reject", "NotUnderstood", "Irrelevant" };
	struct fixture f;

	begin(&f, false, false, true, false);
	ck_assert_str_eq(offered(&f, 0), "");
	ck_assert_ptr_null(iscsi_nego_unmet(&f.n));
	text_out_fini(&f.out);
	begin(&f, false, false, true, false);
	ck_assert_int_eq(iscsi_offer_set(&f.offer, "HeaderDigest", "CRC32C"), 0);
	ck_assert_int_eq(iscsi_offer_set(&f.offer, "DataDigest", "CRC32C"), 0);
	ck_assert_str_eq(offer(&f, "DataDigest", "None,CRC32C"), "DataDigest=CRC32C");
	ck_assert_str_eq(iscsi_nego_unmet(&f.n), "HeaderDigest");
	ck_assert_str_eq(offered(&f, 1), "HeaderDigest=CRC32C ");
	ck_assert_str_eq(offered(&f, 0), "");
	ck_assert_str_eq(offer(&f, "HeaderDigest", "CRC32C"), ""); /* an answer gets none */
	ck_assert(f.p.header_digest && f.p.data_digest);
	ck_assert_ptr_null(iscsi_nego_unmet(&f.n));
	text_out_fini(&f.out);
	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		begin(&f, false, false, false, false);
		ck_assert_int_eq(iscsi_offer_set(&f.offer, "HeaderDigest", "CRC32C"), 0);
		ck_assert_str_eq(offered(&f, 1), "HeaderDigest=CRC32C ");
		ck_assert_int_eq(iscsi_nego_key(&f.n, "HeaderDigest", answers[i], &f.out),
				 i ? 0 : -EPROTO);
		ck_assert_str_eq(iscsi_nego_unmet(&f.n), "HeaderDigest");
		text_out_fini(&f.out);
	}
	/* iSER has no digests, discovery is not the target's */
	for (int discovery = 0; discovery <= 1; discovery++) {
		begin(&f, !discovery, discovery, true, false);
		ck_assert_int_eq(iscsi_offer_set(&f.offer, "HeaderDigest", "CRC32C"), 0);
		ck_assert_str_eq(offered(&f, 0), "");
		ck_assert_ptr_null(iscsi_nego_unmet(&f.n));
		text_out_fini(&f.out);
	}
}
END_TEST

UNIT_MAIN("params", 60, every_rule, active_values, twice_is_an_error, where_a_key_counts, iser_rows,
	  iser_unsolicited, admin_settings, unknown_keys_are_limited,
	  first_burst_is_never_above_max_burst, digests_that_are_demanded)
