/* SPDX-License-Identifier: GPL-2.0-or-later */
/* carry_form.c: what is written of sessions for another process, and what is not believed of it. */
#include <stdlib.h>

#include "tests/support/unit.h"
#include "tgtd/iscsi/carry_form.h"
#include "tgtd/iscsi/digest.h"

#define LUNS 2u
#define CONNS 2u
static const uint8_t bytes[] = "thirteen byte";

struct written {
	uint8_t data[16384];
	size_t len;
};

static void put(struct written *w, const void *p, size_t len)
{
	memcpy(w->data + w->len, p, len);
	w->len += len;
}

static struct carry_session session(unsigned tsih)
{
	struct carry_session s = { .tid = 7,
				   .tsih = tsih,
				   .tpgt = 1,
				   .exp_cmd_sn = 0xfffffff0u,
				   .max_cmd_sn = 0xfffffff0u + 99,
				   .window = 128,
				   .next_ttt = 5,
				   .nluns = LUNS,
				   .nconns = CONNS };
	struct iscsi_params p;

	iscsi_params_init(&p);
	p.max_connections = 8;
	carry_put_params(&s.params, &p);
	s.peer.ss_family = AF_INET;
	strcpy(s.target, "iqn.2026-11.org.tgtd.test:a");
	strcpy(s.initiator, "iqn.2026-11.org.tgtd.test:b");
	return s;
}

static void write_session(struct written *w, unsigned tsih)
{
	struct carry_session s = session(tsih);
	struct carry_lun l = { .lun = 3, .nua = 2, .ua = { 0x2a01, 0x3f0e } };
	struct carry_conn c = { .cid = 1,
				.tpgt = 1,
				.stat_sn = 10,
				.exp_stat_sn = 9,
				.unparsed = sizeof(bytes),
				.params = s.params };
	const uint8_t zeroes[8] = { 0 };

	put(w, &s, sizeof(s));
	for (unsigned i = 0; i < LUNS; i++)
		put(w, &l, sizeof(l));
	for (unsigned i = 0; i < CONNS; i++) {
		c.cid = i;
		put(w, &c, sizeof(c));
		put(w, bytes, sizeof(bytes));
		put(w, zeroes, -sizeof(bytes) & 7);
	}
}

static void write_two(struct written *w)
{
	w->len = CARRY_HEAD_LEN;
	write_session(w, 11);
	write_session(w, 12);
	carry_put_head(w->data, 2, 13, w->len - CARRY_HEAD_LEN,
		       carry_crc(DIGEST_INIT, w->data + CARRY_HEAD_LEN, w->len - CARRY_HEAD_LEN));
}

/* How many sessions are found whole, with nothing wrong. */
static unsigned read_all(const struct written *w, int *err)
{
	struct carry_reader r;
	struct carry_session s;
	struct carry_conn c;
	struct carry_lun l;
	const uint8_t *p;
	unsigned found = 0;

	*err = carry_read(&r, w->data, w->len);
	if (*err)
		return 0;
	while (carry_read_session(&r, &s)) {
		const char *wrong = carry_session_wrong(&s);

		for (unsigned i = 0; i < s.nluns; i++) {
			if (!carry_read_lun(&r, &l))
				return found;
			wrong = wrong ?: carry_lun_wrong(&l);
		}
		for (unsigned i = 0; i < s.nconns; i++) {
			if (!carry_read_conn(&r, &c, &p))
				return found;
			wrong = wrong ?: carry_conn_wrong(&c, &s);
			if (!wrong)
				ck_assert_mem_eq(p, bytes, sizeof(bytes));
		}
		found += !wrong;
	}
	return found;
}

START_TEST(as_it_was_written)
{
	struct written w;
	struct carry_reader r;
	struct carry_session s, want = session(11);
	int err;

	write_two(&w);
	ck_assert_uint_eq(read_all(&w, &err), 2);
	ck_assert_int_eq(err, 0);
	ck_assert_int_eq(carry_read(&r, w.data, w.len), 0);
	ck_assert_uint_eq(r.next_tsih, 13);
	ck_assert(carry_read_session(&r, &s));
	ck_assert_mem_eq(&s, &want, sizeof(s));
}
END_TEST

/* A bit that has changed anywhere, or a length, is noticed. */
START_TEST(damage)
{
	struct written good, w;
	int err;

	write_two(&good);
	for (size_t i = 0; i < good.len * 8; i += 3) {
		w = good;
		w.data[i / 8] ^= (uint8_t)(1u << i % 8);
		ck_assert_uint_eq(read_all(&w, &err), 0);
		ck_assert_int_ne(err, 0);
	}
	for (size_t len = 0; len < good.len; len += 7) {
		w = good;
		w.len = len;
		ck_assert_uint_eq(read_all(&w, &err), 0);
		ck_assert_int_eq(err, -EBADMSG);
	}
	w = good;
	w.data[8]++; /* the version */
	ck_assert_uint_eq(read_all(&w, &err), 0);
	ck_assert_int_eq(err, -ENOTSUP);
}
END_TEST

/* A later version has more in each struct: what we know of it is read. */
START_TEST(longer_structs)
{
	struct written w = { .len = CARRY_HEAD_LEN };
	struct carry_session s = session(11);
	struct carry_conn c = { .cid = 1, .stat_sn = 2, .exp_stat_sn = 2, .params = s.params };
	const uint8_t more[16] = { 1, 2, 3 };
	const uint32_t lens[3] = { sizeof(s) + 16, sizeof(struct carry_lun) + 8, sizeof(c) + 16 };
	uint32_t crc;
	int err;

	s.nluns = 0;
	s.nconns = 1;
	put(&w, &s, sizeof(s));
	put(&w, more, 16);
	put(&w, &c, sizeof(c));
	put(&w, more, 16);
	carry_put_head(w.data, 1, 1, w.len - CARRY_HEAD_LEN, 0);
	memcpy(w.data + 32, lens, sizeof(lens));
	crc = carry_crc(DIGEST_INIT, w.data + CARRY_HEAD_LEN, w.len - CARRY_HEAD_LEN);
	crc = carry_crc(crc, w.data + 16, CARRY_HEAD_LEN - 16);
	memcpy(w.data + 12, &crc, 4);
	w.data[w.len] = 0;
	{
		struct carry_reader r;
		const uint8_t *p;

		err = carry_read(&r, w.data, w.len);
		ck_assert_int_eq(err, 0);
		ck_assert(carry_read_session(&r, &s));
		ck_assert(!carry_session_wrong(&s));
		ck_assert(carry_read_conn(&r, &c, &p));
		ck_assert(!carry_conn_wrong(&c, &s));
		ck_assert(!carry_read_session(&r, &s));
	}
}
END_TEST

/* Each value out of its range, by itself. */
START_TEST(ranges)
{
	const struct carry_session good = session(11);
	struct carry_session s;
	struct carry_conn c = { .cid = 1,
				.tpgt = 1,
				.stat_sn = 10,
				.exp_stat_sn = 9,
				.params = good.params },
			  bad;
	struct carry_lun l = { .lun = 16383, .nua = 8 };

	ck_assert(!carry_session_wrong(&good));
#define WRONG_SESSION(change)                                                                      \
	do {                                                                                       \
		s = good;                                                                          \
		change;                                                                            \
		ck_assert(carry_session_wrong(&s));                                                \
	} while (0)
	WRONG_SESSION(s.tid = 0);
	WRONG_SESSION(s.tsih = 0);
	WRONG_SESSION(s.tsih = 65536);
	WRONG_SESSION(s.tpgt = 65536);
	WRONG_SESSION(s.window = 0);
	WRONG_SESSION(s.window = 129);
	WRONG_SESSION(s.max_cmd_sn = s.exp_cmd_sn + 128);
	WRONG_SESSION(s.max_cmd_sn = s.exp_cmd_sn - 2);
	WRONG_SESSION(s.luns_changed = 2);
	WRONG_SESSION(memset(s.target, 'x', sizeof(s.target)));
	WRONG_SESSION(*s.target = 0);
	WRONG_SESSION(memset(s.initiator, 'x', sizeof(s.initiator)));
	WRONG_SESSION(memset(s.alias, 'x', sizeof(s.alias)));
	WRONG_SESSION(memset(s.user, 'x', sizeof(s.user)));
	WRONG_SESSION(s.peer.ss_family = 77);
	WRONG_SESSION(s.params.header_digest = 2);
	WRONG_SESSION(s.params.error_recovery_level = 2);
	WRONG_SESSION(s.params.max_connections = 1);
	WRONG_SESSION(s.params.max_outstanding_r2t = 0);
	WRONG_SESSION(s.params.first_burst = s.params.max_burst + 1);
	WRONG_SESSION(s.params.max_burst = 1 << 24);
	WRONG_SESSION(s.params.max_recv_dsl = 511);
	WRONG_SESSION(s.params.max_xmit_dsl = 0);
	ck_assert(!carry_conn_wrong(&c, &good));
#define WRONG_CONN(change)                                                                         \
	do {                                                                                       \
		bad = c;                                                                           \
		change;                                                                            \
		ck_assert(carry_conn_wrong(&bad, &good));                                          \
	} while (0)
	WRONG_CONN(bad.cid = 65536);
	WRONG_CONN(bad.tpgt = 65536);
	WRONG_CONN(bad.counted = 2);
	WRONG_CONN(bad.exp_stat_sn = 11);
	WRONG_CONN(bad.params.data_digest = 7);
	WRONG_CONN(bad.params.error_recovery_level = 1);
	WRONG_CONN(bad.local.ss_family = 99);
	for (unsigned i = 0; i < 8; i++)
		l.ua[i] = 0x2900;
	ck_assert(!carry_lun_wrong(&l));
	l.ua[7] = 0;
	ck_assert(carry_lun_wrong(&l));
	l.nua = 9;
	ck_assert(carry_lun_wrong(&l));
	l = (struct carry_lun){ .lun = 16384 };
	ck_assert(carry_lun_wrong(&l));
	l = (struct carry_lun){ .holds = 4 };
	ck_assert(carry_lun_wrong(&l));
}
END_TEST

/* Who takes much takes it from nobody else, wherever it stands. */
START_TEST(room_for_all)
{
	uint64_t size[40];
	bool fits[40];

	for (unsigned i = 0; i < 40; i++)
		size[i] = i % 4 ? KiB(256) : 1000 + i;
	ck_assert_uint_eq(carry_choose(size, fits, 40, MiB(1)), 10 * 1000 + 180 + 3 * KiB(256));
	for (unsigned i = 0; i < 40; i++)
		ck_assert_int_eq(fits[i], i % 4 == 0 || i < 4);
	ck_assert_uint_eq(carry_choose(size, fits, 40, 5000), 1000 + 1004 + 1008 + 1012);
	ck_assert(fits[0] && fits[12] && !fits[16] && !fits[1]);
	ck_assert_uint_gt(carry_choose(size, fits, 40, UINT64_MAX), 30 * KiB(256));
	for (unsigned i = 0; i < 40; i++)
		ck_assert(fits[i]);
	size[0] = UINT64_MAX / 2;
	size[1] = 0;
	ck_assert_uint_eq(carry_choose(size, fits, 2, 0), 0);
	ck_assert(!fits[0] && fits[1]);
	ck_assert_uint_eq(carry_choose(size, fits, 0, 1), 0);
}
END_TEST

UNIT_MAIN("carry", 20, as_it_was_written, damage, longer_structs, ranges, room_for_all)
