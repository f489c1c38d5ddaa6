/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * iSER on a stand-in adapter that stands still between turns: initiators that send whatever a PDU
 * can be, in sessions of one connection or several, with tags that are wrong, gone or too short,
 * while work requests complete one by one, in error, or never, and connections end in every way
 * beside them. The clock is fake: a seed is the same run anywhere. What must hold: who keeps to
 * the rules reads what it wrote, and at the end nothing of the others is left. Posts and
 * registrations fail, too, and the device goes away and comes back.
 *
 *   TGT_ISER_SEEDS   how many runs of each kind (default 6)
 *   TGT_ISER_SEED    the first one (default 1)
 */
#include "tests/support/unit.h"
#ifndef HAVE_RDMA
START_TEST(not_built)
{
}
END_TEST
UNIT_MAIN("iser random (built without rdma-core)", 5, not_built)
#else
#include <stdio.h>
#include <stdlib.h>

#include "events/clock.h"
#include "events/log.h"
#include "iser/conn.h"
#include "tests/support/iser_wire.h"
#include "tgtd/scsi/sense.h"

#define RUDE 6
#define TURNS 400
#define BS 512u
#define MINE 2048u  /* blocks of who keeps to the rules, from the first one on */
#define THEIRS 8192u /* ... of the others: the blocks behind that */
#define KEYS 8

struct rude {
	struct ini i;
	bool up, ffp;
	uint16_t isid, tsih, cid;
	uint32_t key[KEYS];
	unsigned nkeys;
	uint32_t itts[8]; /* of commands, some of which may be under way */
};

static struct rude rude[RUDE];
static struct ini good;
static bool good_up;
static uint8_t image[MINE * BS], buf[MINE * BS];
static bool known[MINE]; /* the image is what was written last */
static uint8_t memory[1u << 20];
static uint64_t rng;
static unsigned logins, verified, commands;

static uint32_t rnd(uint32_t n)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(rng >> 33) % n;
}

static bool chance(unsigned percent)
{
	return rnd(100) < percent;
}

/* ---- the adapter's turn ---------------------------------------------------------------------- */

static void let_go(struct rude *r)
{
	for (unsigned k = 0; k < r->nkeys; k++)
		rdmafake_unreg(r->key[k]);
	r->nkeys = 0;
	rdmafake_peer_gone(&r->i.peer);
	r->up = r->ffp = false;
}

static void turn(void)
{
	struct fake_msg *m;

	/* whoever is next, who keeps to the rules, too */
	if (!rnd(400))
		fake.fail_post_send = 1 + (int)rnd(3);
	if (!rnd(1000))
		fake.fail_post_recv = 1 + (int)rnd(3);
	if (!rnd(1000))
		fake.fail_reg_mr = 1;
	if (!rnd(6000))
		rdmafake_remove_device();

	for (unsigned k = 0; k < RUDE; k++) {
		struct rude *r = &rude[k];

		if (!r->up)
			continue;
		if (r->i.peer.id && chance(60)) {
			if (chance(2)) {
				fake.error_wr = 1 + (int)rnd(3);
				fake.error_status = chance(50) ? IBV_WC_REM_ACCESS_ERR :
								 IBV_WC_RETRY_EXC_ERR;
			}
			rdmafake_run(&r->i.peer, 1 + rnd(6));
			fake.error_wr = 0;
		}
		/* What it hears it heeds in so far as numbers go. */
		while (chance(80) && (m = rdmafake_recv(&r->i.peer))) {
			const uint8_t *bhs = m->data + ISER_HDR_LEN;

			if (m->len >= ISER_HEADERS_LEN && bhs_opcode(bhs) != ISCSI_LOGIN_RSP)
				r->i.exp_stat_sn = get_be32(bhs + BHS_STAT_SN) + 1;
			free(m);
		}
		if (!r->i.peer.id)
			let_go(r);
	}
	if (good.peer.id)
		rdmafake_run(&good.peer, 4);
	clock_fake_advance(rnd(6) * NSEC_PER_MSEC);
	wire_steps(1);
}

/* ---- who keeps to the rules ------------------------------------------------------------------ */

/* Others may have ended its commands by resets, which it is told by a unit attention, or, when all
 * of a session goes, by its end. */
static unsigned mine(bool write, uint32_t lba, uint16_t blocks, uint8_t *data)
{
	unsigned status = 0xff;

	for (unsigned k = 0; k < 8; k++) {
		status = ini_rw(&good, write, lba, blocks, data,
				write && chance(50) ? MIN(blocks * BS, 8192u) : 0);
		if (status != SAM_CHECK_CONDITION && status != SAM_TASK_ABORTED)
			break;
	}
	return status;
}

static void good_login(void)
{
	if (!rdmafake_listener())
		return; /* it comes back */
	ini_connect(&good, 0x80);
	if (good.peer.id && !ini_login(&good, 1, NULL)) {
		good_up = true;
		for (unsigned n = 0; n < 6 && ini_simple(&good, 0); n++)
			;
	} else if (good.peer.id) {
		ini_hang_up(&good);
	} else {
		rdmafake_peer_gone(&good.peer);
	}
}

static void good_turn(void)
{
	uint16_t blocks = (uint16_t)(1 + rnd(chance(20) ? 512 : 32));
	uint32_t lba = rnd(MINE - blocks + 1);
	bool write = chance(50);
	unsigned status;

	if (!good_up) {
		good_login();
		return;
	}
	if (write) {
		memset(known + lba, 0, blocks);
		wire_pattern(image + lba * BS, blocks * BS, rnd(1u << 30));
		status = mine(true, lba, blocks, image + lba * BS);
		if (!status)
			memset(known + lba, 1, blocks);
	} else {
		memset(buf, 0xee, blocks * BS);
		status = mine(false, lba, blocks, buf);
		for (unsigned b = 0; !status && b < blocks; b++)
			if (known[lba + b]) {
				ck_assert_mem_eq(buf + b * BS, image + (lba + b) * BS, BS);
				verified++;
			}
	}
	if (status) {
		/* no answer: its session was reset */
		ini_hang_up(&good);
		good_up = false;
	}
}

/* ---- who does not ---------------------------------------------------------------------------- */

static void login(struct rude *r)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_LOGIN_REQ | BHS_IMMEDIATE, 0x87 };
	char text[1024];
	int n = snprintf(
		text, sizeof(text),
		"InitiatorName=iqn.2026-11.org.tgtd.test:rude\nTargetName=%s\nSessionType=Normal\n"
		"RDMAExtensions=%s\nTargetRecvDataSegmentLength=%u\n"
		"InitiatorRecvDataSegmentLength=%u\n"
		"InitialR2T=%s\nImmediateData=%s\nFirstBurstLength=%u\nMaxBurstLength=%u\n"
		"MaxConnections=4\nErrorRecoveryLevel=%u\nMaxOutstandingUnexpectedPDUs=%u\n",
		chance(97) ? WIRE_IQN : "iqn.nobody", chance(97) ? "Yes" : "No",
		chance(70) ? 8192 : 512 + rnd(16000), chance(70) ? 8192 : 512 + rnd(8000),
		chance(50) ? "Yes" : "No", chance(70) ? "Yes" : "No", 512 + rnd(262144),
		262144 + rnd(1u << 20), rnd(3), rnd(10));
	struct rude *of = &rude[rnd(RUDE)];

	for (int k = 0; k < n; k++)
		if (text[k] == '\n')
			text[k] = '\0';
	r->isid = (uint16_t)(10 + rnd(4));
	r->tsih = 0;
	r->cid = (uint16_t)rnd(3);
	if (of->ffp && chance(50)) {
		r->isid = of->isid;
		r->tsih = of->tsih;
	}
	bhs[8] = 0x80;
	put_be16(bhs + 12, r->isid);
	put_be16(bhs + 14, r->tsih);
	put_be32(bhs + BHS_ITT, 1);
	put_be16(bhs + 20, r->cid);
	put_be32(bhs + BHS_CMD_SN, r->i.cmd_sn);
	ini_send(&r->i, bhs, NULL, NULL, text, (uint32_t)n);
	for (unsigned k = 0; k < 60; k++) {
		struct fake_msg *m = rdmafake_recv(&r->i.peer);

		if (!m) {
			if (chance(1))
				break; /* impatient */
			turn();
			if (!r->up)
				return;
			continue;
		}
		if (m->len >= ISER_HEADERS_LEN &&
		    bhs_opcode(m->data + ISER_HDR_LEN) == ISCSI_LOGIN_RSP &&
		    !m->data[ISER_HDR_LEN + 36]) {
			r->ffp = true;
			r->tsih = get_be16(m->data + ISER_HDR_LEN + 14);
			r->i.exp_stat_sn = get_be32(m->data + ISER_HDR_LEN + BHS_STAT_SN) + 1;
			logins++;
		}
		free(m);
		break;
	}
}

static void connect_anew(struct rude *r)
{
	uint8_t data[4] = { chance(70) ? 0x80 : chance(50) ? 0xc0 : (uint8_t)rnd(256) };

	memset(&r->i, 0, sizeof(r->i));
	if (!rdmafake_listener())
		return;
	rdmafake_connect(&r->i.peer, data, chance(80) ? 4 : (uint8_t)rnd(5), 1 + rnd(4));
	r->up = true;
	r->i.cmd_sn = chance(90) ? 100 : 0xfffffff0;
	wire_steps(1 + rnd(3));
	if (!r->i.peer.id || !r->i.peer.accepted) {
		let_go(r);
		return;
	}
	if (chance(95)) {
		rdmafake_establish(&r->i.peer);
		if (chance(80))
			wire_steps(1);
	}
	if (chance(95))
		login(r);
}

static void cdb_of(uint8_t *cdb, uint8_t *flags, uint32_t *edtl)
{
	uint32_t lba = MINE + rnd(THEIRS), n = chance(30) ? rnd(2048) : rnd(40);

	*edtl = n * BS;
	switch (rnd(12)) {
	case 0 ... 3:
		cdb[0] = 0x28;
		*flags = BHS_CMD_READ;
		break;
	case 4 ... 7:
		cdb[0] = 0x2a;
		*flags = BHS_CMD_WRITE;
		break;
	case 8: /* COMPARE AND WRITE */
		n = rnd(4);
		cdb[0] = 0x89;
		put_be64(cdb + 2, lba);
		cdb[13] = (uint8_t)n;
		*edtl = 2 * n * BS;
		*flags = BHS_CMD_WRITE;
		return;
	case 9:
		cdb[0] = chance(50) ? 0x12 : 0x4d; /* INQUIRY, LOG SENSE */
		cdb[2] = cdb[0] == 0x4d ? 0x40 : 0;
		cdb[cdb[0] == 0x12 ? 4 : 8] = 255;
		*edtl = 255;
		*flags = BHS_CMD_READ;
		return;
	case 10:
		cdb[0] = chance(50) ? 0 : 0x35;
		*edtl = 0;
		*flags = 0;
		return;
	case 11:
		cdb[0] = 0x41; /* WRITE SAME */
		*edtl = BS;
		*flags = BHS_CMD_WRITE;
		break;
	}
	put_be32(cdb + 2, lba);
	put_be16(cdb + 7, (uint16_t)n);
}

static void data_out(struct rude *r, uint32_t itt, uint32_t off, uint32_t len)
{
	uint32_t sn = 0;

	while (len) {
		uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_DATA_OUT };
		uint32_t n = MIN(len, chance(90) ? 8192u : 1 + rnd(9000));

		bhs[1] = n == len && chance(95) ? BHS_FINAL : 0;
		bhs[9] = 1;
		put_be32(bhs + BHS_ITT, chance(98) ? itt : rnd(100));
		put_be32(bhs + BHS_TTT, chance(98) ? ISCSI_TAG_NONE : rnd(100));
		put_be32(bhs + BHS_EXP_STAT_SN, r->i.exp_stat_sn);
		put_be32(bhs + BHS_DATA_SN, chance(98) ? sn : rnd(9));
		put_be32(bhs + BHS_BUFFER_OFFSET, chance(98) ? off : rnd(1u << 20));
		ini_send(&r->i, bhs, NULL, NULL, memory, n);
		off += n;
		len -= n;
		sn++;
	}
}

static struct ini_tag tag_of(struct rude *r, uint32_t edtl)
{
	uint32_t len = chance(97) ? MAX(edtl, 1u) : 1 + rnd(MAX(edtl, 1u));
	struct ini_tag t = { rnd(1000), rnd(1u << 30) };

	if (chance(2))
		return t;
	if (r->nkeys == KEYS)
		rdmafake_unreg(r->key[--r->nkeys]); /* perhaps under a transfer */
	t.rkey = r->key[r->nkeys++] = rdmafake_reg(memory, MIN(len, (uint32_t)sizeof(memory)));
	t.va = (uintptr_t)memory;
	return t;
}

static void command(struct rude *r)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_SCSI_CMD }, flags = 0, cdb[16] = { 0 };
	uint32_t edtl = 0, imm = 0, unsol = 0, itt = ++r->i.itt;
	struct ini_tag w, rd;
	bool wsv, rsv;

	commands++;
	cdb_of(cdb, &flags, &edtl);
	if (chance(3))
		edtl = rnd(1u << 20);
	if (chance(2))
		flags ^= BHS_CMD_READ | BHS_CMD_WRITE;
	if (chance(2))
		bhs[0] |= BHS_IMMEDIATE;
	if (chance(1))
		itt = r->itts[rnd(8)];
	if (flags & BHS_CMD_WRITE && chance(50))
		imm = MIN(edtl, chance(80) ? 8192u : rnd(12000));
	if (flags & BHS_CMD_WRITE && chance(20))
		unsol = MIN(edtl - imm, rnd(80000));
	bhs[1] = (uint8_t)((unsol ? 0 : BHS_FINAL) | flags | rnd(5));
	bhs[9] = chance(95) ? 1 : (uint8_t)rnd(3);
	put_be32(bhs + BHS_ITT, itt);
	put_be32(bhs + BHS_EDTL, edtl);
	put_be32(bhs + BHS_CMD_SN, chance(98) ? r->i.cmd_sn : r->i.cmd_sn + rnd(9) - 4);
	if (!(bhs[0] & BHS_IMMEDIATE))
		r->i.cmd_sn++;
	put_be32(bhs + BHS_EXP_STAT_SN, r->i.exp_stat_sn);
	memcpy(bhs + BHS_CDB, cdb, 16);
	wsv = (flags & BHS_CMD_WRITE && imm + unsol < edtl) != chance(2);
	rsv = (flags & BHS_CMD_READ && edtl) != chance(2);
	w = tag_of(r, edtl);
	rd = rsv && wsv ? tag_of(r, edtl) : w;
	r->itts[itt % 8] = itt;
	ini_send(&r->i, bhs, wsv ? &w : NULL, rsv ? &rd : NULL, memory, imm);
	if (unsol)
		data_out(r, itt, imm, unsol);
}

static void request(struct rude *r)
{
	static const uint8_t opcodes[] = { ISCSI_NOP_OUT, ISCSI_TMF_REQ,   ISCSI_TMF_REQ,
					   ISCSI_TMF_REQ, ISCSI_TEXT_REQ,  ISCSI_LOGOUT_REQ,
					   ISCSI_SNACK_REQ, ISCSI_LOGIN_REQ, ISCSI_DATA_OUT };
	uint8_t bhs[ISCSI_BHS_LEN] = { opcodes[rnd(ARRAY_SIZE(opcodes))] };
	/* what resets sessions of others is rare */
	static const uint8_t tmf[] = { 1, 1, 1, 1, 2, 2, 8, 9, 10, 3, 4, 5, 12, 13, 127 };
	uint32_t len = 0;

	if (bhs[0] == ISCSI_LOGOUT_REQ && chance(80))
		bhs[0] = ISCSI_NOP_OUT;
	if (chance(70))
		bhs[0] |= BHS_IMMEDIATE;
	bhs[1] = BHS_FINAL;
	put_be32(bhs + BHS_ITT, chance(95) ? ++r->i.itt : ISCSI_TAG_NONE);
	put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
	put_be32(bhs + BHS_CMD_SN, r->i.cmd_sn);
	put_be32(bhs + BHS_EXP_STAT_SN, r->i.exp_stat_sn);
	if (!(bhs[0] & BHS_IMMEDIATE))
		r->i.cmd_sn++;
	switch (bhs[0] & 0x3f) {
	case ISCSI_TMF_REQ:
		bhs[1] |= tmf[rnd(ARRAY_SIZE(tmf))];
		bhs[9] = 1;
		put_be32(bhs + 20, r->itts[rnd(8)]);
		put_be32(bhs + 32, r->i.cmd_sn - rnd(4));
		break;
	case ISCSI_LOGOUT_REQ:
		bhs[1] |= rnd(3);
		put_be16(bhs + 20, (uint16_t)rnd(3));
		break;
	case ISCSI_NOP_OUT:
		len = chance(50) ? 0 : rnd(8192);
		break;
	case ISCSI_TEXT_REQ:
		len = (uint32_t)snprintf((char *)memory, 64, "SendTargets=") + 1;
		break;
	default:
		len = rnd(100);
		break;
	}
	ini_send(&r->i, bhs, NULL, NULL, memory, len);
}

static void bytes(struct rude *r)
{
	uint8_t m[400];
	uint32_t len = rnd(sizeof(m));

	for (uint32_t k = 0; k < len; k++)
		m[k] = (uint8_t)rnd(256);
	if (len && chance(80))
		m[0] = ISER_OP_CONTROL | (m[0] & 0x0c);
	/* additional headers, and lengths that lie */
	if (len > ISER_HEADERS_LEN && chance(80)) {
		m[ISER_HDR_LEN] = chance(70) ? ISCSI_SCSI_CMD : m[ISER_HDR_LEN] & 0x7f;
		m[ISER_HDR_LEN + 4] = (uint8_t)rnd(20);
		put_be24(m + ISER_HDR_LEN + 5, rnd(300));
		put_be32(m + ISER_HDR_LEN + BHS_CMD_SN, r->i.cmd_sn);
		/* no CDB that would end the others' peace */
		memset(m + ISER_HDR_LEN + BHS_CDB, 0, 16);
	}
	(void)!rdmafake_send(&r->i.peer, m, len);
}

static void end(struct rude *r)
{
	switch (rnd(4)) {
	case 0:
		rdmafake_disconnect(&r->i.peer);
		break;
	case 1:
		rdmafake_break_qp(&r->i.peer);
		break;
	case 2:
		rdmafake_async(&r->i.peer, IBV_EVENT_QP_FATAL);
		break;
	case 3:
		rdmafake_event(r->i.peer.id, RDMA_CM_EVENT_ADDR_CHANGE);
		break;
	}
}

static void rude_turn(struct rude *r)
{
	unsigned n = 1 + rnd(chance(10) ? 60 : 6);

	if (!r->up) {
		connect_anew(r);
		return;
	}
	while (n-- && r->up && r->i.peer.id) {
		unsigned x = rnd(1000);

		if (x < 800)
			command(r);
		else if (x < 960)
			request(r);
		else if (x < 975)
			bytes(r);
		else if (x < 985)
			end(r);
		else
			turn();
	}
}

/* ---- runs ------------------------------------------------------------------------------------ */

static unsigned number(const char *name, unsigned standard)
{
	const char *text = getenv(name);

	return text ? (unsigned)strtoul(text, NULL, 10) : standard;
}

static void all_end(void)
{
	fake.never_flush = false;
	for (unsigned k = 0; k < RUDE; k++)
		if (rude[k].up && rude[k].i.peer.id)
			rdmafake_disconnect(&rude[k].i.peer);
	/* the drain's time, and whatever waits for an answer */
	for (unsigned n = 0; n < 300; n++) {
		clock_fake_advance(50 * NSEC_PER_MSEC);
		turn();
	}
	for (unsigned k = 0; k < RUDE; k++)
		ck_assert_msg(!rude[k].up, "connection %u is not over", k);
}

static void runs(const char *options, unsigned max_sge)
{
	unsigned first = number("TGT_ISER_SEED", 1), n = number("TGT_ISER_SEEDS", 6);

	clock_fake_set(NSEC_PER_SEC);
	fake.attr.max_sge = (int)max_sge;
	ini_pause = turn;
	ini_patience = 3000;
	ini_target_start(options);
	log_set_level(getenv("WIRE_DEBUG") ? LOG_LVL_DEBUG : LOG_LVL_ERROR);
	fake.hold = true;
	for (unsigned seed = first; seed < first + n; seed++) {
		rng = seed * 0x9e3779b97f4a7c15ull + max_sge;
		if (getenv("WIRE_DEBUG"))
			fprintf(stderr, "seed %u\n", seed);
		for (unsigned t = 0; t < TURNS; t++) {
			if (chance(1))
				fake.never_flush = !fake.never_flush;
			if (chance(25))
				good_turn();
			else
				rude_turn(&rude[rnd(RUDE)]);
			turn();
		}
		all_end();
		ck_assert_uint_le(scsi_target_nexus_count(wire_target.target), good_up);
	}
	ck_assert_uint_gt(logins, n * 4);
	ck_assert_uint_gt(verified, n * 20);
	if (good_up)
		ini_hang_up(&good);
	printf("# %u logins, %u commands, %u blocks verified\n", logins, commands, verified);
	fake.hold = false;
	ini_target_stop();
}

START_TEST(zero_copy)
{
	runs("unsolicited_kb=64", 16);
}
END_TEST

START_TEST(copied)
{
	runs("path=copy,completion=event", 2);
}
END_TEST

START_TEST(polled)
{
	runs("completion=poll,gather=multi,immediate=off", 4);
}
END_TEST

UNIT_MAIN("iser random", 170, zero_copy, copied, polled)
#endif
