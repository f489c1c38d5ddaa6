/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Connections: what comes first, bytes in any portions, pings and silence, what no one may
 * send, peers that stall.
 */
#include "events/bug.h"
#include "events/clock.h"
#include "tests/support/unit.h"
#include "tests/support/wire.h"
#include "tgtd/iscsi/iscsi.h"

static struct wire w;

START_TEST(the_first_pdu_must_be_a_login)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	wire_target_start();
	wire_open(&w);
	wire_request(&w, bhs, ISCSI_NOP_OUT, BHS_FINAL);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	wire_down(&w);
}
END_TEST

START_TEST(a_login_that_takes_too_long_is_closed)
{
	struct wire_pdu p;

	clock_fake_set(1000 * NSEC_PER_SEC);
	wire_target_start();
	wire_open(&w);
	wire_write(&w, "C\x87", 2);
	ck_assert(wire_silent(&w));
	clock_fake_advance(20 * NSEC_PER_SEC);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	wire_down(&w);
}
END_TEST

START_TEST(silent_connections_do_not_keep_others_out)
{
	static struct wire c[600];
	struct wire_pdu p;
	unsigned gone = 0;

	wire_target_start();
	for (unsigned i = 0; i < ARRAY_SIZE(c); i++) {
		wire_open(&c[i]);
		if (i % 100 == 99)
			wire_steps(3);
	}
	wire_open(&w);
	ck_assert_uint_eq(wire_login(&w, 1, 0, 0, NULL), 0);
	wire_ready(&w);
	for (unsigned i = 0; i < ARRAY_SIZE(c); i++)
		gone += !wire_silent(&c[i]);
	ck_assert_uint_ge(gone, 600 - 2 * 256);
	ck_assert(!wire_recv(&c[0], &p) && c[0].closed);
	for (unsigned i = 0; i < ARRAY_SIZE(c); i++)
		wire_close(&c[i]);
	wire_down(&w);
}
END_TEST

START_TEST(one_byte_at_a_time)
{
	uint8_t bhs[48], out[48 + 8192 + 16], data[4096], back[4096];
	struct wire_pdu p;
	size_t n;

	wire_up(&w, "HeaderDigest=CRC32C\nDataDigest=CRC32C");
	wire_pattern(data, sizeof(data), 5);
	wire_rw10(&w, bhs, true, 3, 8);
	n = wire_build(&w, out, bhs, data, 4096);
	for (size_t i = 0; i < n; i++) {
		wire_write(&w, out + i, 1);
		if (i % 7 == 0)
			wire_steps(1);
	}
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	ck_assert_uint_eq(p.bhs[3], 0);
	ck_assert(p.digests_ok);
	ck_assert_uint_eq(wire_read(&w, 3, 8, back), 0);
	ck_assert_mem_eq(back, data, 4096);
	wire_down(&w);
}
END_TEST

START_TEST(many_commands_in_one_write)
{
	static uint8_t out[100 * 48], back[512 * 100];
	uint8_t bhs[48];
	struct wire_pdu p;
	size_t n = 0;

	wire_up(&w, NULL);
	for (unsigned i = 0; i < 100; i++) {
		wire_rw10(&w, bhs, false, i, 1);
		n += wire_build(&w, out + n, bhs, NULL, 0);
	}
	wire_write(&w, out, n);
	for (unsigned i = 0; i < 100; i++) {
		wire_expect(&w, &p, ISCSI_DATA_IN);
		ck_assert_uint_eq(p.len, 512);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), w.itt - 99 + i);
	}
	ck_assert_uint_eq(wire_read(&w, 0, 100, back), 0);
	wire_down(&w);
}
END_TEST

START_TEST(a_pdu_beyond_the_declared_length_ends_the_connection)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	wire_up(&w, NULL);
	wire_request(&w, bhs, ISCSI_NOP_OUT, BHS_FINAL);
	put_be24(bhs + BHS_DATA_LEN, 0xffffff);
	wire_write(&w, bhs, 48);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	wire_down(&w);
}
END_TEST

/* W13: a NOP-Out with the reserved tag shall be immediate (RFC 7143 11.18.1). One that is not is
 * rejected, and takes no number: the command that has it runs. */
START_TEST(the_reserved_tag_takes_no_number)
{
	uint8_t bhs[48], back[512];
	struct wire_pdu p;

	wire_up(&w, NULL);
	for (unsigned i = 0; i < 3; i++) {
		wire_request(&w, bhs, ISCSI_NOP_OUT, BHS_FINAL);
		bhs[0] = ISCSI_NOP_OUT;
		put_be32(bhs + BHS_ITT, ISCSI_TAG_NONE);
		put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
		wire_send(&w, bhs, NULL, 0);
		wire_expect(&w, &p, ISCSI_REJECT);
		ck_assert_uint_eq(p.bhs[2], REJECT_PROTOCOL_ERROR);
		ck_assert_uint_eq(get_be32(p.bhs + 28), w.cmd_sn); /* ExpCmdSN */
		ck_assert_uint_eq(wire_read(&w, 0, 1, back), 0);
	}
	wire_down(&w);
}
END_TEST

START_TEST(an_unknown_opcode_is_rejected)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	wire_up(&w, NULL);
	wire_request(&w, bhs, 0x1d, BHS_FINAL);
	wire_send(&w, bhs, "abc", 3);
	wire_expect(&w, &p, ISCSI_REJECT);
	ck_assert_uint_eq(p.bhs[2], REJECT_NOT_SUPPORTED);
	wire_ready(&w);
	wire_down(&w);
}
END_TEST

/* Found by fuzz_pdu: arithmetic on the buffer that is not there yet. */
START_TEST(an_empty_text_request_is_answered)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	wire_up(&w, NULL);
	wire_request(&w, bhs, ISCSI_TEXT_REQ, BHS_FINAL);
	put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_TEXT_RSP);
	ck_assert_uint_eq(p.len, 0);
	ck_assert(p.bhs[1] & BHS_FINAL);
	wire_down(&w);
}
END_TEST

START_TEST(pings_are_echoed)
{
	uint8_t bhs[48], data[3000];
	struct wire_pdu p;

	wire_up(&w, NULL);
	wire_pattern(data, sizeof(data), 9);
	wire_request(&w, bhs, ISCSI_NOP_OUT, BHS_FINAL);
	put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
	wire_send(&w, bhs, data, sizeof(data));
	wire_expect(&w, &p, ISCSI_NOP_IN);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), w.itt);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_TTT), ISCSI_TAG_NONE);
	ck_assert_uint_eq(p.len, sizeof(data));
	ck_assert_mem_eq(p.data, data, sizeof(data));
	/* No answer is wanted to one without a tag. */
	put_be32(bhs + BHS_ITT, ISCSI_TAG_NONE);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_silent(&w));
	wire_down(&w);
}
END_TEST

START_TEST(silence_is_probed_and_ends)
{
	struct wire_pdu p;
	uint8_t bhs[48];

	clock_fake_set(1000 * NSEC_PER_SEC);
	wire_target_start();
	ck_assert_int_eq(iscsi_target_set(wire_target.target, "nop_interval", "10"), 0);
	ck_assert_int_eq(iscsi_target_set(wire_target.target, "nop_count", "2"), 0);
	wire_open(&w);
	ck_assert_uint_eq(wire_login(&w, 1, 0, 0, NULL), 0);
	wire_ready(&w);
	clock_fake_advance(11 * NSEC_PER_SEC);
	wire_expect(&w, &p, ISCSI_NOP_IN);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), ISCSI_TAG_NONE);
	ck_assert_uint_ne(get_be32(p.bhs + BHS_TTT), ISCSI_TAG_NONE);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_STAT_SN), w.exp_stat_sn); /* not taken */
	wire_request(&w, bhs, ISCSI_NOP_OUT, BHS_FINAL);
	put_be32(bhs + BHS_ITT, ISCSI_TAG_NONE);
	memcpy(bhs + BHS_TTT, p.bhs + BHS_TTT, 4);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_silent(&w));
	/* Answered once; then never again. There is one ping: more of them would keep an initiator
	 * that hears us, but is not heard, from finding that out by its own. Then the end. */
	clock_fake_advance(11 * NSEC_PER_SEC);
	wire_expect(&w, &p, ISCSI_NOP_IN);
	clock_fake_advance(11 * NSEC_PER_SEC);
	ck_assert(wire_silent(&w));
	clock_fake_advance(11 * NSEC_PER_SEC);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	wire_steps(5);
	ck_assert_uint_eq(wire_sessions(), 0);
	wire_down(&w);
}
END_TEST

START_TEST(a_peer_that_does_not_read_is_left)
{
	uint8_t bhs[48];

	clock_fake_set(1000 * NSEC_PER_SEC);
	wire_up(&w, "MaxRecvDataSegmentLength=262144");
	for (unsigned i = 0; i < 100; i++) {
		wire_rw10(&w, bhs, false, 0, 2048);
		wire_send(&w, bhs, NULL, 0);
	}
	wire_steps(20);
	ck_assert_uint_eq(wire_sessions(), 1);
	clock_fake_advance(61 * NSEC_PER_SEC);
	wire_steps(5);
	clock_fake_advance(61 * NSEC_PER_SEC);
	wire_steps(20);
	ck_assert_uint_eq(wire_sessions(), 0);
	wire_down(&w);
}
END_TEST

UNIT_MAIN("iscsi-conn", 30, the_first_pdu_must_be_a_login, a_login_that_takes_too_long_is_closed,
	  silent_connections_do_not_keep_others_out, one_byte_at_a_time, many_commands_in_one_write,
	  a_pdu_beyond_the_declared_length_ends_the_connection, an_unknown_opcode_is_rejected,
	  the_reserved_tag_takes_no_number,
	  an_empty_text_request_is_answered, pings_are_echoed, silence_is_probed_and_ends,
	  a_peer_that_does_not_read_is_left)
