/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reservations as the gateways of a group share them: their form in bytes, what is refused, what
 * became of registrations that are gone, and the limits. */
#include <stdio.h>
#include <stdlib.h>
#include "events/bytes.h"
#include "tests/support/unit.h"
#include "tgtd/scsi/commands/pr_shared.h"

static uint8_t now[PR_SHARED_MAX], then[PR_SHARED_MAX];
static size_t len;
static struct pr_outcome r;

/* By initiator "iqn.<who>" at port @rtpi. */
static const char *act_list(const char *who, uint16_t rtpi, uint8_t action, uint8_t type,
			    const uint8_t *list, size_t list_len)
{
	static char text[16];
	char port[64], device[64];
	struct pr_request q = { .action = action,
				.type = type,
				.rtpi = rtpi,
				.initiator = port,
				.iqn = device,
				.data = list,
				.len = list_len };
	size_t to = 0;

	snprintf(device, sizeof(device), "iqn.%s", who);
	snprintf(port, sizeof(port), "iqn.%s,i,0x1", who);
	ck_assert_int_eq(pr_shared_do(now, len, q, then, &to, &r), 0);
	if (r.changed) {
		memcpy(now, then, to);
		len = to;
	}
	if (r.status == SAM_CHECK_CONDITION)
		snprintf(text, sizeof(text), "%04x", r.asc);
	return r.status == SAM_GOOD ? r.changed ? "done" : "same" :
	       r.status == SAM_RESERVATION_CONFLICT ? "conflict" : text;
}

static const char *act(const char *who, uint16_t rtpi, uint8_t action, uint8_t type, uint64_t key,
		       uint64_t sa_key)
{
	uint8_t list[24] = { 0 };

	put_be64(list, key);
	put_be64(list + 8, sa_key);
	return act_list(who, rtpi, action, type, list, sizeof(list));
}

static const char *enroll(const char *who, uint16_t rtpi, uint64_t key)
{
	return act(who, rtpi, PR_REGISTER_AND_IGNORE, 0, 0, key);
}

static uint64_t id_of(const char *who, uint16_t rtpi)
{
	const struct pr_reg *reg;
	struct pr_shared s;
	char port[64];
	uint64_t id;

	snprintf(port, sizeof(port), "iqn.%s,i,0x1", who);
	ck_assert_ptr_null(pr_decode(&s, now, len));
	reg = pr_find(&s.pr, port, rtpi);
	id = reg ? reg->id : 0;
	pr_fini(&s.pr);
	return id;
}

static struct pr_gone gone_of(uint64_t id)
{
	struct pr_shared s;
	struct pr_gone g;

	ck_assert_ptr_null(pr_decode(&s, now, len));
	g = pr_shared_gone(&s, id);
	pr_fini(&s.pr);
	return g;
}

START_TEST(it_is_read_back_as_it_was)
{
	uint8_t list[24 + 4 + 44] = { [15] = 9, [20] = 0x08 | 0x01, [27] = 44 };
	struct pr_shared s;
	struct pr_reg *reg;

	len = 0;
	ck_assert_str_eq(enroll("a", 11, 1), "done");
	ck_assert_str_eq(enroll("a", 12, 1), "done");
	ck_assert_str_eq(enroll("b", 12, 2), "done");
	list[28] = 0x45; /* SPEC_I_PT names iqn.d; APTPL */
	list[31] = 40;
	memcpy(list + 32, "iqn.d,i,0x1", 12);
	ck_assert_str_eq(act_list("c", 13, PR_REGISTER, 0, list, sizeof(list)), "done");
	ck_assert_str_eq(act("b", 12, PR_RESERVE, PR_EXCLUSIVE_ACCESS_RO, 2, 0), "done");
	ck_assert_str_eq(act("b", 12, PR_RESERVE, PR_EXCLUSIVE_ACCESS_RO, 2, 0), "same");
	ck_assert_str_eq(act("a", 11, PR_RESERVE, PR_EXCLUSIVE_ACCESS_RO, 1, 0), "conflict");
	ck_assert_ptr_null(pr_decode(&s, now, len));
	ck_assert_uint_eq(s.pr.nregs, 5);
	ck_assert_uint_eq(s.pr.generation, 4);
	ck_assert(s.pr.aptpl);
	ck_assert_uint_eq(s.pr.type, PR_EXCLUSIVE_ACCESS_RO);
	ck_assert_uint_eq(s.pr.holder->key, 2);
	reg = pr_find(&s.pr, "iqn.d,i,0x1", 13);
	ck_assert_uint_eq(reg->key, 9);
	ck_assert_str_eq(reg->maker, "iqn.c");
	ck_assert_uint_eq(pr_denied(&s.pr, reg), 0);
	ck_assert_uint_eq(pr_denied(&s.pr, NULL), GATE_DENY_READ | GATE_DENY_WRITE);
	ck_assert_uint_eq(pr_encode(&s, then), len);
	ck_assert_mem_eq(now, then, len);
	pr_fini(&s.pr);
}
END_TEST

/* Numbers are never given twice, so they can run out: by what another gateway wrote. What is read
 * was readable before, and is so afterwards. */
START_TEST(numbers_that_run_out)
{
	struct pr_shared s;

	len = 0;
	ck_assert_str_eq(enroll("a", 11, 1), "done");
	put_be64(now + 15, INT64_MAX - 1);
	ck_assert_str_eq(enroll("b", 11, 1), "done");
	ck_assert_uint_eq(id_of("b", 11), INT64_MAX);
	ck_assert_str_eq(enroll("c", 11, 1), "5504");
	ck_assert_str_eq(enroll("a", 11, 2), "done"); /* another key */
	ck_assert_str_eq(act("a", 11, PR_RESERVE, PR_WRITE_EXCLUSIVE, 2, 0), "done");
	ck_assert_ptr_null(pr_decode(&s, now, len));
	pr_fini(&s.pr);
}
END_TEST

/* Every length and every byte: refused, or something that is written the same way. */
START_TEST(what_others_wrote_is_refused_or_understood)
{
	struct pr_shared s;
	uint8_t bad[512];
	unsigned refused = 0;

	len = 0;
	ck_assert_str_eq(enroll("a", 11, 1), "done");
	ck_assert_str_eq(enroll("b", 12, 2), "done");
	ck_assert_str_eq(act("a", 11, PR_PREEMPT, 1, 1, 2), "done");
	ck_assert_str_eq(act("a", 11, PR_RESERVE, 1, 1, 0), "done");
	ck_assert_uint_lt(len, sizeof(bad));
	for (size_t n = 1; n < len; n++)
		ck_assert_ptr_nonnull(pr_decode(&s, now, n));
	for (size_t at = 0; at < len; at++)
		for (unsigned v = 0; v < 256; v++) {
			memcpy(bad, now, len);
			bad[at] = (uint8_t)v;
			if (pr_decode(&s, bad, len)) {
				refused++;
				continue;
			}
			ck_assert_uint_eq(pr_encode(&s, then), len);
			ck_assert_mem_eq(bad, then, len);
			pr_fini(&s.pr);
		}
	ck_assert_uint_gt(refused, 256);
	bad[0] = 2;
	ck_assert_str_eq(pr_decode(&s, bad, len), "another version of tgtd wrote them");
}
END_TEST

START_TEST(what_became_of_a_registration)
{
	uint64_t a, b;

	len = 0;
	enroll("a", 11, 1);
	enroll("b", 12, 2);
	a = id_of("a", 11);
	b = id_of("b", 12);
	ck_assert_str_eq(act("a", 11, PR_PREEMPT_AND_ABORT, 1, 1, 2), "done");
	ck_assert_uint_eq(gone_of(b).ua, UA_REG_PREEMPTED);
	ck_assert(gone_of(b).abort);
	/* Its nexus registers again: another one. */
	enroll("b", 12, 2);
	ck_assert_uint_gt(id_of("b", 12), b);
	ck_assert_uint_eq(gone_of(b).ua, UA_REG_PREEMPTED);
	b = id_of("b", 12);
	ck_assert_str_eq(act("b", 12, PR_CLEAR, 0, 2, 0), "done");
	ck_assert_uint_eq(gone_of(a).ua, UA_RES_PREEMPTED);
	ck_assert(!gone_of(a).abort);
	ck_assert_uint_eq(gone_of(b).ua, 0); /* it has asked for it */
	/* Beyond what is kept: the worst. */
	for (unsigned i = 0; i < PR_SHARED_GONE; i++) {
		enroll("c", 13, 3);
		enroll("c", 13, 0);
	}
	ck_assert_uint_eq(gone_of(b).ua, UA_REG_PREEMPTED);
	ck_assert(!gone_of(b).abort);
}
END_TEST

START_TEST(each_initiator_has_its_share)
{
	char name[64];
	unsigned made = 0;

	len = 0;
	for (uint16_t i = 1; i <= PR_SHARED_INITIATOR; i++)
		ck_assert_str_eq(enroll("hostile", i, 1), "done");
	ck_assert_str_eq(enroll("hostile", PR_SHARED_INITIATOR + 1, 1), "5504");
	ck_assert_str_eq(enroll("other", 1, 1), "done");
	/* All of them together have what there is. */
	for (unsigned i = 0; i < PR_SHARED_REGISTRATIONS; i++) {
		snprintf(name, sizeof(name), "tenant-%u", i);
		if (strcmp(enroll(name, 1, 1), "done"))
			break;
		made++;
	}
	ck_assert_uint_eq(made, PR_SHARED_REGISTRATIONS - PR_SHARED_INITIATOR - 1);
	ck_assert_uint_le(len, PR_SHARED_MAX);
	/* Who is full may change what it has, and go. */
	ck_assert_str_eq(act("hostile", 1, PR_REGISTER, 0, 1, 7), "done");
	ck_assert_str_eq(act("hostile", 1, PR_CLEAR, 0, 7, 0), "done");
	ck_assert_uint_le(len, PR_SHARED_MAX);
	ck_assert_uint_eq(id_of("other", 1), 0);
}
END_TEST

/* Long names: bytes are what is short. */
START_TEST(long_names_have_their_share_as_well)
{
	char port[SCSI_PORT_NAME_MAX], device[224];
	struct pr_request q = { .action = PR_REGISTER_AND_IGNORE,
				.initiator = port,
				.iqn = device,
				.len = 24 };
	uint8_t list[24] = { [15] = 1 };
	unsigned made = 0, all = 0;
	size_t to;

	len = 0;
	q.data = list;
	for (unsigned who = 0; who < 6; who++) {
		memset(device, 'a' + (int)who, 223);
		device[223] = 0;
		snprintf(port, sizeof(port), "%s,i,0x00023d000001", device);
		for (q.rtpi = 1; q.rtpi < 200; q.rtpi++) {
			ck_assert_int_eq(pr_shared_do(now, len, q, then, &to, &r), 0);
			if (r.status != SAM_GOOD)
				break;
			memcpy(now, then, len = to);
		}
		ck_assert_uint_eq(r.asc, ASC_INSUFFICIENT_REGISTRATION_RESOURCES);
		made = who ? made : q.rtpi - 1u;
		all += q.rtpi - 1u;
	}
	ck_assert_uint_eq(made, PR_SHARED_INITIATOR_BYTES / (24 + 223 + 17));
	ck_assert_uint_ge(made, 3 * 16); /* three sessions by each of sixteen gateways */
	ck_assert_uint_eq(all, PR_SHARED_BYTES / (24 + 223 + 17));
	ck_assert_uint_le(len, PR_SHARED_MAX);
}
END_TEST

UNIT_MAIN("pr_shared", 20, it_is_read_back_as_it_was, what_others_wrote_is_refused_or_understood,
	  numbers_that_run_out, what_became_of_a_registration, each_initiator_has_its_share,
	  long_names_have_their_share_as_well)
