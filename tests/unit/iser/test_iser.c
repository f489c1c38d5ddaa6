/* SPDX-License-Identifier: GPL-2.0-or-later */
/* iSER end to end on a stand-in adapter: login and data. */
#include "tests/support/unit.h"
#ifndef HAVE_RDMA
START_TEST(not_built)
{
}
END_TEST
UNIT_MAIN("iser (built without rdma-core)", 5, not_built)
#else
#include <stdio.h>
#include <stdlib.h>

#include "events/bug.h"
#include "events/clock.h"
#include "events/metrics.h"
#include "events/topology.h"
#include "iser/conn.h"
#include "iser/iser.h"
#include "tests/support/iser_wire.h"
#include "tests/support/wire.h"
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/iscsi/session.h"

#define BIG (1u << 20)
static uint8_t out[BIG], in[BIG];

/* ---- pure functions -------------------------------------------------------------------------- */

START_TEST(private_data)
{
	static const struct {
		uint8_t data[6];
		size_t len;
		bool header, si;
	} t[] = {
		{ { 0x80, 0, 0, 0 }, 4, true, true },	 /* Linux, remote invalidation */
		{ { 0xc0, 0, 0, 0 }, 4, true, false },	 /* libiscsi */
		{ { 0x40, 0, 0, 0 }, 4, true, false },
		{ { 0x80, 0, 0, 0, 0, 0 }, 6, true, true }, /* padded */
		{ { 0, 0, 0, 0 }, 4, false, false },	 /* none: the field is padded with zeros */
		{ { 0x80, 0, 0 }, 3, false, false },
		{ { 0x80, 1, 0, 0 }, 4, false, false },	 /* something else */
		{ { 0x81, 0, 0, 0 }, 4, false, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct iser_cm_caps c;
		uint8_t answer[4];

		iser_cm_parse(t[i].data, t[i].len, &c);
		ck_assert_int_eq(c.header, t[i].header);
		ck_assert_int_eq(c.send_invalidate, t[i].si);
		ck_assert_uint_eq(iser_cm_build(&c, c.send_invalidate, answer),
				  t[i].header ? 4 : 0);
		if (t[i].header)
			ck_assert_uint_eq(answer[0], t[i].si ? 0x80 : 0xc0);
	}
	{
		struct iser_cm_caps c;

		iser_cm_parse(NULL, 0, &c);
		ck_assert(!c.header);
	}
}
END_TEST

START_TEST(messages)
{
	uint8_t m[ISER_HEADERS_LEN + 16] = { ISER_OP_CONTROL | ISER_WSV | ISER_RSV };
	uint8_t *bhs = m + ISER_HDR_LEN;
	struct iser_msg p;

	put_be32(m + 4, 0x11223344);
	put_be64(m + 8, 0x0102030405060708);
	put_be32(m + 16, 0x55667788);
	put_be64(m + 20, 0x1112131415161718);
	bhs[0] = ISCSI_SCSI_CMD;
	ck_assert_ptr_null(iser_msg_parse(m, ISER_HEADERS_LEN, &p));
	ck_assert(p.wsv && p.rsv && !p.data_len && !p.headers_only);
	ck_assert_uint_eq(p.write_stag, 0x11223344);
	ck_assert_uint_eq(p.read_stag, 0x55667788);
	ck_assert(p.write_va == 0x0102030405060708 && p.read_va == 0x1112131415161718);
	ck_assert_ptr_nonnull(iser_msg_parse(m, ISER_HEADERS_LEN - 1, &p));
	ck_assert_ptr_nonnull(iser_msg_parse(m, 0, &p));
	/* additional headers, then data */
	bhs[BHS_AHS_LEN] = 2;
	put_be24(bhs + BHS_DATA_LEN, 8);
	ck_assert_ptr_null(iser_msg_parse(m, ISER_HEADERS_LEN + 16, &p));
	ck_assert_uint_eq(p.ahs_len, 8);
	ck_assert_ptr_eq(p.data, m + ISER_HEADERS_LEN + 8);
	ck_assert_ptr_nonnull(iser_msg_parse(m, ISER_HEADERS_LEN + 15, &p));
	ck_assert_ptr_nonnull(iser_msg_parse(m, ISER_HEADERS_LEN + 4, &p));
	/* data announced, none there */
	ck_assert_ptr_null(iser_msg_parse(m, ISER_HEADERS_LEN + 8, &p));
	ck_assert(p.headers_only && !p.data_len);
	m[0] = ISER_OP_CONTROL;
	ck_assert_ptr_nonnull(iser_msg_parse(m, ISER_HEADERS_LEN + 8, &p));
	m[0] = ISER_OP_HELLO;
	ck_assert_ptr_nonnull(iser_msg_parse(m, ISER_HEADERS_LEN + 16, &p));
	m[0] = 0;
	ck_assert_ptr_nonnull(iser_msg_parse(m, ISER_HEADERS_LEN + 16, &p));
}
END_TEST

START_TEST(options)
{
	struct iser_options o;

	ck_assert_int_eq(iser_options_parse(&o, NULL), 0);
	ck_assert_int_eq(iser_options_parse(&o, ""), 0);
	ck_assert(o.nop && o.cq_vector == -1 && !o.port && o.completion == COMPLETION_ADAPTIVE);
	ck_assert_int_eq(
		iser_options_parse(
			&o,
			"port=3270,nop=off,pool_sz_mb=8,buf_sz_kb=128,cq_vector=3,completion=poll,"
			"gather=pack,path=copy"),
		0);
	ck_assert(o.port == 3270 && !o.nop && o.pool_bytes_mb == 8 && o.slot_len == 128 << 10 &&
		  o.cq_vector == 3 && o.completion == COMPLETION_POLL && o.gather == GATHER_PACK &&
		  o.path == PATH_COPY);
	ck_assert(o.immediate);
	ck_assert_uint_eq(o.unsolicited, 0);
	ck_assert_int_eq(iser_options_parse(&o, "immediate=off"), 0);
	ck_assert(!o.immediate);
	ck_assert_int_eq(iser_options_parse(&o, "unsolicited_kb=64"), 0);
	ck_assert_uint_eq(o.unsolicited, 65536);
	ck_assert_int_eq(iser_options_parse(&o, "unsolicited_kb=63"), -EINVAL);
	ck_assert_int_eq(iser_options_parse(&o, "port=0"), -EINVAL);
	ck_assert_int_eq(iser_options_parse(&o, "port=65536"), -EINVAL);
	ck_assert_int_eq(iser_options_parse(&o, "port=32x"), -EINVAL);
	ck_assert_int_eq(iser_options_parse(&o, "buf_sz_kb=4"), -EINVAL);
	ck_assert_int_eq(iser_options_parse(&o, "nop=maybe"), -EINVAL);
	ck_assert_int_eq(iser_options_parse(&o, "colour=red"), -EINVAL);
	ck_assert_int_eq(iser_options_parse(&o, "port"), -EINVAL);
}
END_TEST

/* ---- data ------------------------------------------------------------------------------------ */

START_TEST(login_read_write)
{
	uint64_t copied, params;
	unsigned regs, wrs, signalled, receives,
		n = getenv("ISER_READS") ? (unsigned)atoi(getenv("ISER_READS")) : 2000;
	struct ini i;

	ini_target_start("");
	ck_assert(iser_running());
	ini_up(&i, 1, 0x80);
	ck_assert_uint_eq(i.peer.private_len, 4);
	ck_assert_uint_eq(i.peer.private_data[0], 0x80);
	ck_assert_uint_eq(i.peer.answer.initiator_depth, 4);
	/* A receive for everything the window allows, and nothing found empty. */
	receives = rdmafake_receives(&i.peer);
	ck_assert_uint_ge(receives, 128 + 32);
	wire_pattern(out, BIG, 1);
	ini_prime(&i);
	regs = fake.registrations;
	copied = metric_read(M_iser_copied_bytes);
	params = metric_read(M_iser_param_bytes);
	ck_assert_uint_eq(ini_rw(&i, true, 0, BIG / 512 / 2, out, 0), 0);
	ck_assert_uint_eq(ini_rw(&i, true, BIG / 512 / 2, BIG / 512 / 2, out + BIG / 2, 8192), 0);
	ck_assert_uint_eq(ini_rw(&i, true, 5, 3, out + 5 * 512, 3 * 512), 0); /* all immediate */
	ck_assert_uint_eq(ini_rw(&i, true, 9, 3, out + 9 * 512, 512), 0);
	ck_assert_uint_eq(ini_rw(&i, false, 0, BIG / 512, in, 0), 0);
	ck_assert_mem_eq(in, out, BIG);
	/* Never written: the arena's zeros, in registered memory too. */
	memset(in, 0xff, sizeof(in));
	ck_assert_uint_eq(ini_rw(&i, false, 20000, 64, in, 0), 0);
	for (unsigned k = 0; k < 64 * 512; k++)
		ck_assert_uint_eq(in[k], 0);
	wrs = fake.wrs;
	signalled = fake.signalled;
	for (unsigned k = 0; k < n; k++) {
		ck_assert_uint_eq(ini_rw(&i, false, k % 2000, 8, in, 0), 0);
		ck_assert_mem_eq(in, out + k % 2000 * 512, 4096);
	}
	/* A read hit: one RDMA write and one send; one completion for
	 * both; no copy, no registration. */
	ck_assert_uint_eq(fake.wrs - wrs, 2 * n);
	ck_assert_uint_le(fake.signalled - signalled, n);
	ck_assert_uint_eq(fake.registrations, regs);
	ck_assert_uint_eq(metric_read(M_iser_copied_bytes), copied);
	ck_assert_uint_eq(metric_read(M_iser_param_bytes), params);
	ck_assert_uint_eq(metric_read(M_iser_rnr), 0);
	wire_steps(2);
	ck_assert_uint_eq(rdmafake_receives(&i.peer), receives);
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST

static struct iscsi_conn_stats figures(struct ini *i)
{
	wire_steps(2);
	return ini_conn(i)->conn.stats;
}

/* What tgtadm --mode conn --op stat shows: what RDMA moves counts as
 * the PDUs that TCP would have. */
START_TEST(figures_of_a_connection)
{
	static const unsigned imm[] = { 0, 512, 4096 };
	struct iscsi_conn_stats a, b;
	struct ini i;

	ini_target_start("");
	ini_up(&i, 1, 0x80);
	wire_pattern(out, BIG, 3);
	for (unsigned k = 0; k < ARRAY_SIZE(imm); k++) {
		a = figures(&i);
		ck_assert_uint_eq(ini_rw(&i, true, 0, 8, out, imm[k]), 0);
		b = figures(&i);
		ck_assert_uint_eq(b.cmd_pdus - a.cmd_pdus, 1);
		ck_assert_uint_eq(b.rsp_pdus - a.rsp_pdus, 1);
		/* Unasked, and by RDMA read. */
		ck_assert_uint_eq(b.rxdata_octets - a.rxdata_octets, 4096);
		ck_assert_uint_eq(b.dataout_pdus - a.dataout_pdus, imm[k] < 4096);
		ck_assert_uint_eq(b.txdata_octets, a.txdata_octets);
		ck_assert_uint_eq(b.datain_pdus, a.datain_pdus);
	}
	a = figures(&i);
	ck_assert_uint_eq(ini_rw(&i, false, 0, 8, in, 0), 0);
	ck_assert_mem_eq(in, out, 4096);
	b = figures(&i);
	ck_assert_uint_eq(b.cmd_pdus - a.cmd_pdus, 1);
	ck_assert_uint_eq(b.rsp_pdus - a.rsp_pdus, 1);
	ck_assert_uint_eq(b.txdata_octets - a.txdata_octets, 4096);
	ck_assert_uint_eq(b.datain_pdus - a.datain_pdus, 1);
	ck_assert_uint_eq(b.rxdata_octets, a.rxdata_octets);
	ck_assert_uint_eq(b.dataout_pdus, a.dataout_pdus);
	/* In several pieces. */
	ck_assert_uint_eq(ini_rw(&i, true, 0, BIG / 512, out, 0), 0);
	ck_assert_uint_eq(ini_rw(&i, false, 0, BIG / 512, in, 0), 0);
	a = b;
	b = figures(&i);
	ck_assert_uint_eq(b.rxdata_octets - a.rxdata_octets, BIG);
	ck_assert_uint_eq(b.txdata_octets - a.txdata_octets, BIG);
	ck_assert_uint_ge(b.dataout_pdus - a.dataout_pdus, 1);
	ck_assert_uint_ge(b.datain_pdus - a.datain_pdus, 1);
	ck_assert_uint_eq(b.cmd_pdus - a.cmd_pdus, 2);
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST

/* What a write of one block takes: with its data in the command, one send and one copy; without,
 * an RDMA read and none. */
static void writes(uint32_t imm)
{
	unsigned n = getenv("ISER_WRITES") ? (unsigned)atoi(getenv("ISER_WRITES")) : 500, wrs,
		 reads;
	uint64_t immediate, copied;
	struct ini i;

	ini_target_start("");
	ini_up(&i, 1, 0x80);
	ini_prime(&i);
	wire_pattern(out, BIG, 8);
	wrs = fake.wrs;
	reads = fake.rdma_reads;
	immediate = metric_read(M_iser_immediate_bytes);
	copied = metric_read(M_iser_copied_bytes);
	for (unsigned k = 0; k < n; k++)
		ck_assert_uint_eq(ini_rw(&i, true, k * 8 % 2048, 8, out + k * 4096 % BIG, imm), 0);
	ck_assert_uint_eq(fake.wrs - wrs, (imm ? 1 : 2) * n);
	ck_assert_uint_eq(fake.rdma_reads - reads, (imm ? 0 : 1) * n);
	ck_assert_uint_eq(metric_read(M_iser_immediate_bytes) - immediate, (uint64_t)imm * n);
	ck_assert_uint_eq(metric_read(M_iser_copied_bytes), copied);
	ini_hang_up(&i);
	ini_target_stop();
}
/* immediate=off: the initiator is told so. */
START_TEST(writes_without_immediate)
{
	struct ini i;

	ini_target_start("immediate=off");
	ini_up_keys(&i, 1, 0x80, "ImmediateData=Yes");
	ck_assert(!ini_conn(&i)->conn.params.immediate_data);
	ini_prime(&i);
	wire_pattern(out, 65536, 8);
	ck_assert_uint_eq(ini_rw(&i, true, 0, 128, out, 0), 0);
	ck_assert_uint_eq(ini_rw(&i, false, 0, 128, in, 0), 0);
	ck_assert_mem_eq(in, out, 65536);
	ck_assert_uint_eq(metric_read(M_iser_immediate_bytes), 0);
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST
START_TEST(writes_immediate)
{
	writes(4096);
}
END_TEST
START_TEST(writes_read)
{
	writes(0);
}
END_TEST

/* INQUIRY comes from the heap: through a bounce slot, correct, and counted as parameter data. */
START_TEST(parameter_data)
{
	uint8_t bhs[48] = { ISCSI_SCSI_CMD, BHS_FINAL | BHS_CMD_READ }, data[255];
	struct ini_tag tag = { 0, (uintptr_t)data };
	uint64_t before;
	struct ini_pdu p;
	struct ini i;

	ini_target_start("");
	ini_up(&i, 1, 0x80);
	before = metric_read(M_iser_param_bytes);
	tag.rkey = rdmafake_reg(data, sizeof(data));
	bhs[9] = 1;
	put_be32(bhs + BHS_ITT, ++i.itt);
	put_be32(bhs + BHS_EDTL, sizeof(data));
	put_be32(bhs + BHS_CMD_SN, i.cmd_sn++);
	put_be32(bhs + BHS_EXP_STAT_SN, i.exp_stat_sn);
	bhs[32] = 0x12;
	bhs[36] = sizeof(data);
	ini_send(&i, bhs, NULL, &tag, NULL, 0);
	ck_assert(ini_recv(&i, &p));
	ck_assert_uint_eq(p.bhs[3], 0);
	ck_assert_uint_eq(p.msg->invalidated, tag.rkey);
	free(p.msg);
	ck_assert_uint_eq(data[0], 0);
	ck_assert_uint_ge(data[4], 31);
	ck_assert_uint_gt(metric_read(M_iser_param_bytes), before);
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST

START_TEST(no_invalidation_without_header)
{
	struct ini i;
	struct ini_pdu p;
	uint32_t key;

	ini_target_start("");
	ini_up(&i, 1, -1);
	ck_assert_uint_eq(i.peer.private_len, 0);
	key = ini_rw_start(&i, false, 0, 8, in, 0);
	ck_assert(ini_recv(&i, &p));
	ck_assert_uint_eq(p.msg->invalidated, 0);
	free(p.msg);
	rdmafake_unreg(key);
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST

/* Immediate data announced, headers only sent, everything behind the Write STag (libiscsi 1.19). */
START_TEST(headers_only)
{
	uint8_t m[ISER_HEADERS_LEN] = { ISER_OP_CONTROL | ISER_WSV }, *bhs = m + ISER_HDR_LEN;
	struct ini_pdu p;
	struct ini i;
	uint32_t key;

	ini_target_start("");
	ini_up(&i, 1, 0xc0);
	wire_pattern(out, 8192, 7);
	key = rdmafake_reg(out, 8192);
	put_be32(m + 4, key);
	put_be64(m + 8, (uintptr_t)out);
	bhs[0] = ISCSI_SCSI_CMD;
	bhs[1] = BHS_FINAL | BHS_CMD_WRITE;
	bhs[9] = 1;
	put_be24(bhs + BHS_DATA_LEN, 8192);
	put_be32(bhs + BHS_ITT, ++i.itt);
	put_be32(bhs + BHS_EDTL, 8192);
	put_be32(bhs + BHS_CMD_SN, i.cmd_sn++);
	put_be32(bhs + BHS_EXP_STAT_SN, i.exp_stat_sn);
	bhs[32] = 0x2a;
	bhs[40] = 16;
	ck_assert(rdmafake_send(&i.peer, m, sizeof(m)));
	ck_assert(ini_recv(&i, &p));
	ck_assert_uint_eq(p.bhs[3], 0);
	free(p.msg);
	rdmafake_unreg(key);
	ck_assert_uint_eq(ini_rw(&i, false, 0, 16, in, 0), 0);
	ck_assert_mem_eq(in, out, 8192);
	ck_assert_uint_eq(metric_read(M_iser_headers_only), 1);
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST

/* Unsolicited Data-Out, as far as it was agreed on: into the blocks of the
 * command, the rest by RDMA read. */
START_TEST(unsolicited_data)
{
	static const struct {
		uint16_t blocks;
		uint32_t imm, unsol, dsl;
	} t[] = {
		{ 128, 8192, 65536 - 8192, 8192 },	/* nothing left to fetch */
		{ 512, 8192, 65536 - 8192, 8192 },	/* ... and three quarters left */
		{ 512, 0, 65536, 8192 },		/* no immediate data */
		{ 512, 4096, 512, 512 },		/* less than it may */
		{ 17, 512, 16 * 512, 1536 },		/* odd sizes */
		{ 2047, 8192, 65536 - 8192, 7168 },	/* two segments and more */
	};
	struct ini i;

	ini_target_start("unsolicited_kb=64");
	ini_up_keys(&i, 1, 0x80, INI_UNSOL_KEYS);
	ck_assert(!ini_conn(&i)->conn.params.initial_r2t);
	ck_assert_uint_eq(ini_conn(&i)->conn.params.first_burst, 65536);
	for (size_t k = 0; k < ARRAY_SIZE(t); k++) {
		uint64_t imm = metric_read(M_iser_immediate_bytes),
			 fetched = metric_read(M_iser_read_bytes);
		uint64_t len = t[k].blocks * 512u;
		uint32_t key;

		wire_pattern(out, BIG, 20 + (uint32_t)k);
		key = ini_unsol_start(&i, (uint32_t)k * 2048 + (k & 1), t[k].blocks, out, t[k].imm,
				      t[k].unsol, t[k].dsl);
		ck_assert_uint_eq(ini_status(&i), 0);
		rdmafake_unreg(key);
		ck_assert_uint_eq(metric_read(M_iser_immediate_bytes) - imm, t[k].imm + t[k].unsol);
		ck_assert_uint_eq(metric_read(M_iser_read_bytes) - fetched,
				  len - t[k].imm - t[k].unsol);
		memset(in, 0, sizeof(in));
		ck_assert_uint_eq(
			ini_rw(&i, false, (uint32_t)k * 2048 + (k & 1), t[k].blocks, in, 0), 0);
		ck_assert_mem_eq(in, out, len);
	}
	/* More than FirstBurstLength: the command fails, the connection stays. */
	rdmafake_unreg(ini_unsol_start(&i, 0, 512, out, 8192, 65536, 8192));
	ck_assert_uint_eq(ini_status(&i), SAM_CHECK_CONDITION);
	ck_assert_uint_eq(ini_simple(&i, 0), 0);
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST

struct limit_call {
	struct loop_msg msg;
	const char *key, *value;
	bool done;
};

static void set_limit(struct loop_msg *m)
{
	struct limit_call *c = container_of(m, struct limit_call, msg);

	ck_assert_int_eq(
		scsi_lu_update(scsi_lu_find(wire_target.target, 1), c->key, c->value), 0);
	c->done = true;
}

static void limit(const char *key, const char *value)
{
	struct limit_call c = { .msg.handle = set_limit, .key = key, .value = value };

	loop_post(wire_target.loop, &c.msg);
	while (!c.done)
		wire_steps(1);
}

/* A write that waits for a limit has fetched nothing. What came unasked is still there when it goes
 * on. */
START_TEST(a_limit)
{
	uint64_t fetched, waits = metric_read(M_scsi_limit_waits);
	struct ini i;
	uint32_t key;

	ini_target_start("unsolicited_kb=64");
	ini_up_keys(&i, 1, 0x80, INI_UNSOL_KEYS);
	wire_pattern(out, BIG, 30);
	limit("bandwidth_burst", "1M");
	limit("bandwidth_limit", "1K"); /* minutes */
	fetched = metric_read(M_iser_read_bytes);
	key = ini_unsol_start(&i, 0, 512, out, 8192, 65536 - 8192, 8192);
	while (!metric_read(M_scsi_limit_waiting))
		wire_steps(1);
	wire_steps(20);
	ck_assert_uint_eq(metric_read(M_scsi_limit_waiting), 1);
	ck_assert_uint_eq(metric_read(M_iser_read_bytes), fetched);
	limit("bandwidth_limit", "0");
	ck_assert_uint_eq(ini_status(&i), 0);
	rdmafake_unreg(key);
	ck_assert_uint_eq(metric_read(M_iser_read_bytes) - fetched, 512 * 512 - 65536);
	ck_assert_uint_ge(metric_read(M_scsi_limit_waits) - waits, 1);
	ck_assert_uint_eq(ini_rw(&i, false, 0, 512, in, 0), 0);
	ck_assert_mem_eq(in, out, 512 * 512);
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST

/* Everything that the window and FirstBurstLength allow at once: there
 * is a receive for each PDU. */
START_TEST(unsolicited_ring)
{
	uint32_t keys[128];
	unsigned receives;
	struct ini i;

	ini_target_start("unsolicited_kb=64,completion=event");
	ini_up_keys(&i, 1, 0x80, INI_UNSOL_KEYS);
	receives = rdmafake_receives(&i.peer);
	ck_assert_uint_ge(receives, (128 + 32) * 9);
	wire_pattern(out, BIG, 31);
	for (unsigned k = 0; k < 128; k++)
		keys[k] = ini_unsol_start(&i, k * 256, 256, out + k * 512, 0, 65536, 8192);
	ck_assert_uint_eq(i.peer.rnr, 0);
	for (unsigned k = 0; k < 128; k++) {
		ck_assert_uint_eq(ini_status(&i), 0);
	}
	for (unsigned k = 0; k < 128; k++) {
		rdmafake_unreg(keys[k]);
		ck_assert_uint_eq(ini_rw(&i, false, k * 256, 256, in, 0), 0);
		ck_assert_mem_eq(in, out + k * 512, 256 * 512);
	}
	wire_steps(2);
	ck_assert_uint_eq(rdmafake_receives(&i.peer), receives);
	ck_assert_uint_eq(metric_read(M_iser_rnr), 0);
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST

/* Not agreed on: by default, when the device's queues are too short for such a ring, or when the
 * initiator's PDUs would be too many (then the login is refused). */
START_TEST(unsolicited_refused)
{
	struct ini i;

	fake.attr.max_qp_wr = 1024;
	ini_target_start("unsolicited_kb=64");
	ini_up_keys(&i, 1, 0x80, INI_UNSOL_KEYS);
	ck_assert(ini_conn(&i)->conn.params.initial_r2t);
	ck_assert_uint_lt(rdmafake_receives(&i.peer), 200);
	(void)ini_unsol_start(&i, 0, 128, out, 8192, 0, 8192);
	{
		struct ini_pdu p;

		ck_assert(ini_recv(&i, &p));
		ck_assert_uint_eq(bhs_opcode(p.bhs), ISCSI_REJECT);
		free(p.msg);
	}
	i.cmd_sn--; /* RFC 7143 7.3: not taken as received */
	ck_assert_uint_eq(ini_rw(&i, true, 0, 128, out, 8192), 0);
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST

START_TEST(unsolicited_too_small)
{
	struct ini i;

	ini_target_start("unsolicited_kb=64");
	ck_assert(ini_connect(&i, 0x80));
	i.dsl = 512;
	ck_assert_uint_eq(ini_login(&i, 1, INI_UNSOL_KEYS), 0x0302);
	rdmafake_disconnect(&i.peer);
	ck_assert(ini_closed(&i));
	rdmafake_peer_gone(&i.peer);
	ini_target_stop();
}
END_TEST

/* The command is aborted while its unsolicited data is still to come; what comes is sunk. */
START_TEST(unsolicited_abort)
{
	uint8_t cmd[ISCSI_BHS_LEN] = { ISCSI_SCSI_CMD, BHS_CMD_WRITE },
		tmf[ISCSI_BHS_LEN] = { ISCSI_TMF_REQ | BHS_IMMEDIATE,
				       BHS_FINAL | ISCSI_TMF_ABORT_TASK };
	uint8_t data[ISCSI_BHS_LEN] = { ISCSI_DATA_OUT, BHS_FINAL };
	struct ini_pdu p;
	struct ini i;

	ini_target_start("unsolicited_kb=64");
	ini_up_keys(&i, 1, 0x80, INI_UNSOL_KEYS);
	memset(out, 0x5a, 16384);
	cmd[9] = tmf[9] = data[9] = 1;
	put_be32(cmd + BHS_ITT, ++i.itt);
	put_be32(cmd + BHS_EDTL, 16384);
	put_be32(cmd + BHS_CMD_SN, i.cmd_sn++);
	put_be32(cmd + BHS_EXP_STAT_SN, i.exp_stat_sn);
	cmd[32] = 0x2a;
	cmd[40] = 32;
	ini_send(&i, cmd, NULL, NULL, out, 8192);
	wire_steps(2);
	put_be32(tmf + BHS_ITT, i.itt + 1);
	put_be32(tmf + 20, i.itt);
	put_be32(tmf + BHS_CMD_SN, i.cmd_sn);
	put_be32(tmf + BHS_EXP_STAT_SN, i.exp_stat_sn);
	put_be32(tmf + 32, i.cmd_sn - 1);
	ini_send(&i, tmf, NULL, NULL, NULL, 0);
	wire_steps(3);
	put_be32(data + BHS_ITT, i.itt);
	put_be32(data + BHS_TTT, ISCSI_TAG_NONE);
	put_be32(data + BHS_BUFFER_OFFSET, 8192);
	ini_send(&i, data, NULL, NULL, out, 8192);
	i.itt++;
	ck_assert(ini_recv(&i, &p));
	ck_assert_uint_eq(bhs_opcode(p.bhs), ISCSI_TMF_RSP);
	ck_assert_uint_eq(p.bhs[2], 0);
	free(p.msg);
	ck_assert_uint_eq(ini_rw(&i, false, 0, 32, in, 0), 0);
	for (unsigned k = 0; k < 16384; k++)
		ck_assert_uint_eq(in[k], 0);
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST

/* ErrorRecoveryLevel 1 is about what is lost on the way; nothing is here. Long reads
 * wait for no acknowledgement. */
START_TEST(level_1_is_not_for_rdma)
{
	uint8_t *big = malloc(6 * BIG);
	struct ini i;

	ini_target_start("");
	ini_up_keys(&i, 1, 0x80, "ErrorRecoveryLevel=1");
	ck_assert_uint_eq(ini_conn(&i)->conn.params.error_recovery_level, 0);
	ck_assert_uint_eq(ini_rw(&i, false, 0, 6 * BIG / 512, big, 0), 0);
	ini_hang_up(&i);
	ini_target_stop();
	free(big);
}
END_TEST

/* RDMAExtensions holds for a session (RFC 7145 6.3), and so do the keys that only mean something
 * with it, or without. */
START_TEST(a_session_is_all_rdma_or_not)
{
	char text[256];
	int n = snprintf(text, sizeof(text),
			 "InitiatorName=iqn.2026-11.org.tgtd.test:iser%cTargetName=%s%c", 0,
			 ini_iqn, 0);
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_LOGIN_REQ | BHS_IMMEDIATE,
				       0x87, [8] = 0x80, [13] = 1 };
	struct wire_pdu p;
	struct wire w;
	struct ini i;

	ini_target_start("");
	ini_up_keys(&i, 1, 0x80, "MaxConnections=4");
	wire_open(&w);
	put_be16(bhs + 14, ini_conn(&i)->conn.joined->tsih);
	put_be32(bhs + BHS_ITT, 1);
	put_be16(bhs + 20, 1);
	put_be32(bhs + BHS_CMD_SN, i.cmd_sn);
	wire_send(&w, bhs, text, (uint32_t)n);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(get_be16(p.bhs + 36), 0x0208);
	wire_close(&w);
	ck_assert_uint_eq(ini_simple(&i, 0), 0);
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST

/* More than fits: many commands at once with the send queue standing still. */
START_TEST(a_full_window)
{
	static uint8_t bufs[128][4096];
	uint32_t keys[128];
	struct ini i;

	ini_target_start("");
	ini_up(&i, 1, 0x80);
	wire_pattern(out, sizeof(bufs), 9);
	ck_assert_uint_eq(ini_rw(&i, true, 0, sizeof(bufs) / 512, out, 0), 0);
	fake.hold = true;
	for (unsigned k = 0; k < 128; k++) {
		keys[k] = ini_rw_start(&i, false, k * 8, 8, bufs[k], 0);
		wire_steps(1);
	}
	ck_assert_uint_eq(i.peer.rnr, 0);
	while (rdmafake_run(&i.peer, 7))
		wire_steps(1);
	fake.hold = false;
	for (unsigned k = 0; k < 128; k++) {
		struct ini_pdu p;

		ck_assert(ini_recv(&i, &p));
		ck_assert_uint_eq(p.bhs[3], 0);
		free(p.msg);
		rdmafake_unreg(keys[k]);
		ck_assert_mem_eq(bufs[k], out + k * 4096, 4096);
	}
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST

UNIT_MAIN("iser", 30, private_data, messages, options, login_read_write, figures_of_a_connection,
	  writes_without_immediate, writes_immediate, writes_read, parameter_data,
	  no_invalidation_without_header, headers_only, unsolicited_data, a_limit, unsolicited_ring,
	  unsolicited_refused, unsolicited_too_small, unsolicited_abort, level_1_is_not_for_rdma,
	  a_session_is_all_rdma_or_not, a_full_window)
#endif
