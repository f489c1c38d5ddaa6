/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See fastpeer.h. */
#include <stdlib.h>
#include <sys/socket.h>

#include "events/bug.h"
#include "events/clock.h"
#include "tests/support/fastpeer.h"
#include "tgtd/iscsi/session.h"
#include "tgtd/iscsi/digest.h"

#define SEGMENT 65536u	/* the most that it sends in one */
#define COMMAND_MAX 300 /* blocks */

static const char *const keys[] = {
	"ImmediateData=Yes\nInitialR2T=Yes",
	"ImmediateData=Yes\nInitialR2T=Yes",
	"ImmediateData=Yes\nInitialR2T=No\nFirstBurstLength=8192",
	"ImmediateData=No\nInitialR2T=No\nMaxOutstandingR2T=4\nMaxBurstLength=16384",
	"ImmediateData=Yes\nMaxRecvDataSegmentLength=4096\nFirstBurstLength=4096",
	"ImmediateData=Yes\nMaxBurstLength=8192\nFirstBurstLength=8192\nMaxRecvDataSegmentLength=8192",
	"HeaderDigest=CRC32C\nDataDigest=CRC32C",
	"DataDigest=CRC32C\nInitialR2T=No",
	"HeaderDigest=CRC32C",
	"ErrorRecoveryLevel=1\nInitialR2T=No",
	"ImmediateData=Yes\nInitialR2T=No\nDataPDUInOrder=No\nMaxOutstandingR2T=8",
};

/* ---- choices --------------------------------------------------------------------------------- */

static unsigned pick(struct fastpeer *f, unsigned n)
{
	unsigned v = 0;

	if (n <= 1 || !f->left)
		return 0;
	v = *f->in++;
	f->left--;
	if (n > 256 && f->left) {
		v = v << 8 | *f->in++;
		f->left--;
	}
	return v % n;
}

/* What is odd: never, seldom or more often in this conversation. */
static bool once_in(struct fastpeer *f, unsigned n)
{
	n *= f->odd == 1 ? 4 : 1;
	return f->odd && f->left && pick(f, n) == n - 1;
}

/* ---- what comes ------------------------------------------------------------------------------ */

static void due_add(struct fastpeer *f, uint32_t itt, uint32_t ttt, uint32_t off, uint32_t end)
{
	if (f->ndue < FASTPEER_R2TS)
		f->due[f->ndue++] = (struct fastpeer_due){ itt, ttt, off, end, 0 };
}

static void due_drop(struct fastpeer *f, unsigned i)
{
	memmove(&f->due[i], &f->due[i + 1], (--f->ndue - i) * sizeof(f->due[0]));
}

static uint64_t sum(const uint8_t *p, size_t len)
{
	uint64_t h = 1;

	for (size_t i = 0; i < len; i++)
		h = (h ^ p[i]) * 0x100000001b3ull;
	return h;
}

static void heard(struct fastpeer *f, const uint8_t *bhs, uint32_t len, const uint8_t *data)
{
	const uint32_t itt = get_be32(bhs + BHS_ITT);
	bool numbered = true;

	fastpeer_note(f, "%u: %02x %02x %02x %02x len %u lun %016lx itt %x ttt %x sn %u", f->step,
		      bhs[0], bhs[1], bhs[2], bhs[3], len, get_be64(bhs + BHS_LUN), itt,
		      get_be32(bhs + BHS_TTT), get_be32(bhs + BHS_STAT_SN));
	fastpeer_note(f, " cmd %u max %u %08x %08x %08x data %016lx\n",
		      get_be32(bhs + BHS_EXP_CMD_SN), get_be32(bhs + BHS_MAX_CMD_SN),
		      get_be32(bhs + 36), get_be32(bhs + 40), get_be32(bhs + 44), sum(data, len));
	switch (bhs_opcode(bhs)) {
	case ISCSI_DATA_IN:
		f->seen.data_in++;
		numbered = bhs[BHS_FLAGS] & BHS_DATAIN_STATUS;
		break;
	case ISCSI_SCSI_RSP:
		f->seen.responses++;
		f->seen.check_conditions += bhs[BHS_STATUS] == SAM_CHECK_CONDITION;
		break;
	case ISCSI_R2T:
		f->seen.r2ts++;
		numbered = false;
		due_add(f, itt, get_be32(bhs + BHS_TTT), get_be32(bhs + BHS_BUFFER_OFFSET),
			get_be32(bhs + BHS_BUFFER_OFFSET) + get_be32(bhs + BHS_R2T_LEN));
		break;
	case ISCSI_NOP_IN:
		f->seen.others++;
		numbered = itt != ISCSI_TAG_NONE;
		break;
	case ISCSI_REJECT:
		f->seen.rejects++;
		break;
	case ISCSI_TEXT_RSP:
		f->text_ttt = get_be32(bhs + BHS_TTT);
		f->seen.others++;
		break;
	default:
		f->seen.others++;
	}
	if (numbered && get_be32(bhs + BHS_STAT_SN) == f->w.exp_stat_sn)
		f->w.exp_stat_sn++;
	f->w.exp_cmd_sn = get_be32(bhs + BHS_EXP_CMD_SN);
	f->w.max_cmd_sn = get_be32(bhs + BHS_MAX_CMD_SN);
}

/* A whole PDU's length, or 0. */
static size_t whole(const struct fastpeer *f, const uint8_t *p, size_t have)
{
	size_t n = ISCSI_BHS_LEN + (f->w.header_digest ? 4 : 0);
	uint32_t len;

	if (have < n)
		return 0;
	len = bhs_data_len(p);
	n += len + pdu_pad(len) + (len && f->w.data_digest ? 4 : 0);
	return have < n ? 0 : n;
}

static void hear(struct fastpeer *f)
{
	size_t at = 0, n;

	for (;;) {
		ssize_t got = recv(f->w.fd, f->came + f->came_len, sizeof(f->came) - f->came_len,
				   MSG_DONTWAIT);

		if (got == 0 || (got < 0 && errno != EAGAIN)) {
			if (!f->w.closed)
				fastpeer_note(f, "%u: closed\n", f->step);
			f->w.closed = true;
		}
		if (got <= 0)
			break;
		fastpeer_note(f, "%u: %zd bytes %016lx\n", f->step, got,
			      sum(f->came + f->came_len, (size_t)got));
		f->came_len += (size_t)got;
		at = 0;
		while ((n = whole(f, f->came + at, f->came_len - at)) != 0) {
			const uint8_t *p = f->came + at;

			heard(f, p, bhs_data_len(p),
			      p + ISCSI_BHS_LEN + (f->w.header_digest ? 4 : 0));
			at += n;
		}
		memmove(f->came, f->came + at, f->came_len -= at);
	}
}

static void listen_for(struct fastpeer *f, unsigned steps)
{
	while (steps--) {
		const struct iscsi_conn *conn;

		wire_steps(1);
		f->step++;
		hear(f);
		conn = fastpeer_conn();
		f->acked += conn ? conn->exp_stat_sn : 0;
	}
}

/* The first @n bytes of what is to be sent. */
static void say(struct fastpeer *f, size_t n)
{
	size_t at = 0;

	while (at < n && !f->w.closed) {
		ssize_t sent = send(f->w.fd, f->out + at, n - at, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (sent > 0)
			at += (size_t)sent;
		else if (errno == EAGAIN)
			listen_for(f, 1);
		else
			f->w.closed = true;
	}
	memmove(f->out, f->out + n, f->out_len -= n);
}

static void say_all(struct fastpeer *f)
{
	const struct iscsi_conn *conn;

	say(f, f->out_len);
	listen_for(f, 2);
	fastpeer_settle();
	hear(f);
	/* What was rejected or dropped has left a gap. */
	conn = fastpeer_conn();
	if (!f->missing && conn && conn->sess->exp_cmd_sn != f->w.cmd_sn)
		f->missing = conn->sess->exp_cmd_sn;
}

/* ---- what it says ---------------------------------------------------------------------------- */

static const uint8_t *some_bytes(struct fastpeer *f, uint32_t len)
{
	static uint8_t buf[SEGMENT * 2];

	BUG_ON(len > sizeof(buf));
	wire_pattern(buf, len, ++f->seed);
	return buf;
}

/* Adds a PDU to what is to be sent, perhaps with a bit turned over. */
static void add_pdu(struct fastpeer *f, uint8_t *bhs, const void *ahs, uint32_t ahs_len,
		    const uint8_t *data, uint32_t len)
{
	uint8_t *p = f->out + f->out_len, *q;

	if (sizeof(f->out) - f->out_len < ISCSI_BHS_LEN + ahs_len + len + 16)
		say_all(f);
	p = f->out + f->out_len;
	if (once_in(f, 24)) { /* never the opcode of a CDB, nor a length */
		static const uint8_t where[] = { 0,  1,	 1,  1,	 2,  3,	 8,  9,	 10, 15, 16,
						 19, 20, 22, 23, 24, 26, 27, 28, 31, 33, 34,
						 37, 38, 39, 40, 41, 42, 43, 44, 46, 47 };

		bhs[where[pick(f, sizeof(where))]] ^= (uint8_t)(1 << pick(f, 8));
	}
	bhs[BHS_AHS_LEN] = (uint8_t)(ahs_len / 4);
	put_be24(bhs + BHS_DATA_LEN, len);
	memcpy(p, bhs, ISCSI_BHS_LEN);
	memcpy(p + ISCSI_BHS_LEN, ahs, ahs_len);
	q = p + ISCSI_BHS_LEN + ahs_len;
	if (f->w.header_digest) {
		digest_put(q, digest_update(DIGEST_INIT, p, ISCSI_BHS_LEN + ahs_len));
		q += 4;
	}
	if (len) {
		uint32_t padded = len + pdu_pad(len);

		memcpy(q, data, len);
		memset(q + len, 0, padded - len);
		if (f->w.data_digest) {
			digest_put(q + padded, digest_update(DIGEST_INIT, q, padded));
			if (once_in(f, 64))
				q[padded] ^= 1;
			q += 4;
		}
		q += padded;
	}
	f->out_len = (size_t)(q - f->out);
}

static void add(struct fastpeer *f, uint8_t *bhs, const uint8_t *data, uint32_t len)
{
	add_pdu(f, bhs, "", 0, data, len);
}

static uint32_t some_tag(struct fastpeer *f)
{
	return f->itts[pick(f, ARRAY_SIZE(f->itts))];
}

/* The header of any request that has a CmdSN. */
static void request(struct fastpeer *f, uint8_t *bhs, uint8_t opcode, uint8_t flags)
{
	memset(bhs, 0, ISCSI_BHS_LEN);
	bhs[0] = opcode;
	bhs[1] = flags;
	bhs[BHS_LUN + 1] = FASTPEER_LUN;
	put_be32(bhs + BHS_ITT, once_in(f, 48) ? some_tag(f) : ++f->w.itt);
	f->itts[f->w.itt % ARRAY_SIZE(f->itts)] = f->w.itt;
	put_be32(bhs + BHS_EXP_STAT_SN, f->w.exp_stat_sn - (once_in(f, 16) ? 3 : 0));
	if (once_in(f, 40)) {
		bhs[0] |= BHS_IMMEDIATE;
		put_be32(bhs + BHS_CMD_SN, f->w.cmd_sn);
		return;
	}
	if (f->missing && pick(f, 3) == 0) { /* what was left out comes */
		put_be32(bhs + BHS_CMD_SN, f->missing);
		f->missing = 0;
		return;
	}
	if (!f->missing && once_in(f, 40))
		f->missing = f->w.cmd_sn++;
	put_be32(bhs + BHS_CMD_SN, f->w.cmd_sn);
	if (once_in(f, 64)) /* seen already */
		put_be32(bhs + BHS_CMD_SN, f->w.cmd_sn - 1 - pick(f, 4));
	else if (once_in(f, 64)) /* outside */
		put_be32(bhs + BHS_CMD_SN, f->w.max_cmd_sn + 1 + pick(f, 3));
	else
		f->w.cmd_sn++;
}

static void command(struct fastpeer *f, uint8_t *bhs, uint8_t flags, uint32_t edtl,
		    const uint8_t *cdb)
{
	static const uint8_t attrs[] = { 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 2, 3, 1 };

	request(f, bhs, ISCSI_SCSI_CMD, BHS_FINAL | flags | attrs[pick(f, sizeof(attrs))]);
	if (once_in(f, 48)) /* ACA, or none */
		bhs[BHS_FLAGS] = (bhs[BHS_FLAGS] & 0xf8) | (uint8_t)(4 + pick(f, 4));
	if (once_in(f, 48))
		put_be64(bhs + BHS_LUN, (const uint64_t[]){ 0, 5ull << 48, 0x4002ull << 48,
							    0xc101ull << 48 }[pick(f, 4)]);
	put_be32(bhs + BHS_EDTL, edtl);
	memcpy(bhs + BHS_CDB, cdb, 16);
	f->seen.commands++;
}

static void write_command(struct fastpeer *f, const uint8_t *cdb, uint32_t edtl, unsigned how)
{
	uint32_t len = MIN(edtl, f->max_data), itt;
	uint8_t bhs[ISCSI_BHS_LEN];
	bool unsolicited = how == 6 && (!f->initial_r2t || once_in(f, 4));

	command(f, bhs, BHS_CMD_WRITE, edtl, cdb);
	itt = get_be32(bhs + BHS_ITT);
	if (how == 5 || (!f->immediate && !once_in(f, 8)))
		len = 0;
	else if (how >= 6)
		len = MIN(len, 512u * pick(f, 9));
	else if (once_in(f, 16))
		len = MIN(len + 4, f->max_data); /* too much */
	if (unsolicited)
		bhs[BHS_FLAGS] &= (uint8_t)~BHS_FINAL;
	add(f, bhs, some_bytes(f, len), len);
	if (unsolicited)
		due_add(f, itt, ISCSI_TAG_NONE, len, MIN(edtl, 8192u));
}

static unsigned some_blocks(struct fastpeer *f)
{
	static const uint16_t n[] = { 8, 8, 8,	8,  8,	 8,   8,	   8,  1, 1, 2,
				      7, 9, 16, 64, 128, 256, 0,	   3,  8, 8, 8,
				      8, 8, 1,	4,  8,	 8,   COMMAND_MAX, 32, 8, 8 };

	return n[pick(f, ARRAY_SIZE(n))];
}

static uint32_t some_lba(struct fastpeer *f, unsigned blocks)
{
	switch (pick(f, 32)) {
	case 31:
		return FASTPEER_BLOCKS - blocks / 2;
	case 30:
		return 0xffffff00u + pick(f, 256);
	case 29:
		return FASTPEER_BLOCKS - blocks;
	case 28:
	case 27:
	case 26:
		return pick(f, FASTPEER_BLOCKS);
	default:
		return 8 * pick(f, 32);
	}
}

/* A READ or WRITE of any length. */
static void transfer(struct fastpeer *f, bool write)
{
	static const uint8_t reads[] = {
		0x28, 0x28, 0x28, 0x28, 0x28, 0x28, 0x88, 0x88, 0x08, 0xa8
	};
	unsigned blocks = some_blocks(f);
	uint32_t lba = some_lba(f, blocks), edtl;
	uint8_t cdb[16] = { reads[pick(f, sizeof(reads))] };

	switch (cdb[0]) {
	case 0x28:
		put_be32(cdb + 2, lba);
		put_be16(cdb + 7, (uint16_t)blocks);
		break;
	case 0x88:
		put_be32(cdb + 6, lba);
		put_be32(cdb + 10, blocks);
		break;
	case 0xa8:
		put_be32(cdb + 2, lba);
		put_be32(cdb + 6, blocks);
		break;
	default:
		blocks &= 255;
		put_be24(cdb + 1, lba & 0x1fffff);
		cdb[4] = (uint8_t)blocks;
		blocks = blocks ? blocks : 256;
	}
	if (write)
		cdb[0] |= 2;
	if (cdb[0] >= 0x20 && once_in(f, 12))
		cdb[1] |= (const uint8_t[]){ 0x08, 0x10, 0x18, 0x20, 0x02, 0x01 }[pick(f, 6)];
	edtl = blocks * 512;
	switch (f->odd ? pick(f, 24) : 0) {
	case 23:
		edtl += 512;
		break;
	case 22:
		edtl -= MIN(edtl, 512u);
		break;
	case 21:
		edtl -= MIN(edtl, 3u);
		break;
	case 20:
		edtl = 0;
		break;
	default:
		break;
	}
	if (write) {
		static const uint8_t hows[] = { 0, 0, 0, 0, 0, 0, 5, 5, 6, 7, 0, 5, 6, 0, 0, 0 };

		write_command(f, cdb, edtl, hows[pick(f, sizeof(hows))]);
	} else {
		uint8_t bhs[ISCSI_BHS_LEN];

		command(f, bhs, BHS_CMD_READ, edtl, cdb);
		if (once_in(f, 64))
			add(f, bhs, some_bytes(f, 8), 8); /* a read with data */
		else
			add(f, bhs, NULL, 0);
	}
}

/* Commands of other kinds: what they change stays for those that follow. */
static void other_command(struct fastpeer *f)
{
	static const struct {
		uint8_t cdb[16];
		uint32_t in, out;
	} t[] = {
		{ { 0x00 }, 0, 0 },		  /* TEST UNIT READY */
		{ { 0x12, 0, 0, 0, 96 }, 96, 0 }, /* INQUIRY */
		{ { 0x12, 1, 0x83, 0, 250 }, 250, 0 },
		{ { 0x25 }, 8, 0 },		    /* READ CAPACITY */
		{ { 0x35 }, 0, 0 },		    /* SYNCHRONIZE CACHE */
		{ { 0x12, 0, 0, 0, 5 }, 5, 0 },	    /* padded */
		{ { 0x03, 0, 0, 0, 252 }, 252, 0 }, /* REQUEST SENSE */
		{ { 0x03, 0, 0, 0, 18 }, 18, 0 },
		{ { 0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0 }, 256, 0 }, /* REPORT LUNS */
		{ { 0x1a, 0, 0x3f, 0, 252 }, 252, 0 },		 /* MODE SENSE */
		{ { 0x4d, 0, 0x59, 0, 0, 0, 0, 1, 0 }, 256, 0 }, /* LOG SENSE, 19h */
		{ { 0x34, 0, 0, 0, 4, 0, 0, 0, 8 }, 0, 0 },	 /* PRE-FETCH */
		{ { 0x2f, 0, 0, 0, 0, 8, 0, 0, 8 }, 0, 0 },	 /* VERIFY */
		{ { 0x2f, 2, 0, 0, 0, 8, 0, 0, 1 }, 0, 512 },	 /* ... of these bytes */
		{ { 0x16 }, 0, 0 },				 /* RESERVE, RELEASE */
		{ { 0x17 }, 0, 0 },
		{ { 0x41, 0, 0, 0, 0, 16, 0, 0, 32 }, 0, 512 }, /* WRITE SAME */
		{ { 0x41, 8, 0, 0, 0, 64, 0, 0, 32 }, 0, 512 },
		{ { 0x89, 0, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0, 1 }, 0, 1024 }, /* C. AND W. */
		{ { 0x42, 0, 0, 0, 0, 0, 0, 0, 24 }, 0, 24 },		       /* UNMAP */
		{ { 0x1b, 0, 0, 0, 1 }, 0, 0 },				       /* START STOP UNIT */
		{ { 0xff }, 0, 0 }, /* there is no such */
	};
	const unsigned i = pick(f, ARRAY_SIZE(t));
	uint8_t bhs[ISCSI_BHS_LEN], data[1024];

	if (!t[i].out) {
		command(f, bhs, t[i].in ? BHS_CMD_READ : 0, t[i].in, t[i].cdb);
		add(f, bhs, NULL, 0);
		return;
	}
	memcpy(data, some_bytes(f, sizeof(data)), sizeof(data));
	if (t[i].cdb[0] == 0x42) {
		memset(data, 0, 24);
		put_be16(data, 22);
		put_be16(data + 2, 16);
		put_be64(data + 8, 8 * pick(f, 64));
		put_be32(data + 16, 8 * pick(f, 4));
	}
	command(f, bhs, BHS_CMD_WRITE, t[i].out, t[i].cdb);
	add(f, bhs, data, t[i].out);
}

/* WCE, RCD and SWP stand in the way of the fast path. */
static void mode_select(struct fastpeer *f)
{
	uint8_t bhs[ISCSI_BHS_LEN], cdb[16] = { 0x15, 0x10, 0, 0, 24 }, data[24] = { 0 };
	unsigned what = pick(f, 8);

	data[4] = what & 4 ? 0x0a : 0x08;
	if (what & 4) {
		data[5] = 10;
		data[4 + 3] = 0x10;
		data[4 + 4] = what == 7 ? 0x08 : 0; /* SWP */
		data[4 + 5] = 0x40;		    /* TAS */
		put_be16(data + 4 + 8, 0xffff);
		cdb[4] = 16;
	} else {
		data[5] = 18;
		data[4 + 2] =
			(uint8_t)(0x10 | (what & 1 ? 0 : 4) | (what == 2 ? 1 : 0)); /* WCE, RCD */
		put_be16(data + 4 + 4, 0xffff);
		put_be16(data + 4 + 8, 0xffff);
		put_be16(data + 4 + 10, 0xffff);
		data[4 + 12] = 0x80;
	}
	command(f, bhs, BHS_CMD_WRITE, cdb[4], cdb);
	add(f, bhs, data, cdb[4]);
}

/* Data that was asked for, or that follows unasked. */
static void data_out(struct fastpeer *f)
{
	unsigned i = pick(f, f->ndue), odd = f->odd ? pick(f, 48) : 0;
	struct fastpeer_due *d = &f->due[i];
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_DATA_OUT };
	uint32_t len;

	if (!f->ndue)
		return;
	len = MIN(d->end - MIN(d->off, d->end), MIN(f->max_data, SEGMENT));
	if (len > 512 && !pick(f, 4))
		len = MIN(len, 512 * (1 + pick(f, 16)));
	bhs[BHS_LUN + 1] = FASTPEER_LUN;
	put_be32(bhs + BHS_ITT, d->itt);
	put_be32(bhs + BHS_TTT, d->ttt);
	put_be32(bhs + BHS_EXP_STAT_SN, f->w.exp_stat_sn);
	put_be32(bhs + BHS_DATA_SN, d->data_sn++ + (odd == 47));
	put_be32(bhs + BHS_BUFFER_OFFSET, d->off + (odd == 46 ? 512 : 0));
	d->off += len;
	if (d->off >= d->end || odd == 45)
		bhs[BHS_FLAGS] = BHS_FINAL;
	if (d->off >= d->end || odd == 44)
		due_drop(f, i);
	add(f, bhs, some_bytes(f, len), len);
}

static void nop(struct fastpeer *f)
{
	uint8_t bhs[ISCSI_BHS_LEN];
	uint32_t len = pick(f, 3) ? 0 : 4 * pick(f, 20);

	request(f, bhs, ISCSI_NOP_OUT, BHS_FINAL);
	put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
	if (once_in(f, 4)) {
		bhs[0] |= BHS_IMMEDIATE;
		f->w.cmd_sn = get_be32(bhs + BHS_CMD_SN);
		put_be32(bhs + BHS_ITT, ISCSI_TAG_NONE);
		len = 0;
	}
	add(f, bhs, some_bytes(f, len), len);
}

static void text(struct fastpeer *f)
{
	static const char *const says[] = { "SendTargets=", "X-what=1",
					    "MaxRecvDataSegmentLength=8192",
					    "MaxRecvDataSegmentLength=65536", "" };
	const char *s = says[pick(f, ARRAY_SIZE(says))];
	uint8_t bhs[ISCSI_BHS_LEN];

	request(f, bhs, ISCSI_TEXT_REQ, BHS_FINAL);
	memset(bhs + BHS_LUN, 0, 8);
	put_be32(bhs + BHS_TTT, once_in(f, 8) ? f->text_ttt : ISCSI_TAG_NONE);
	add(f, bhs, (const uint8_t *)s, *s ? (uint32_t)strlen(s) + 1 : 0);
}

static void manage(struct fastpeer *f)
{
	static const uint8_t fns[] = { ISCSI_TMF_ABORT_TASK,	 ISCSI_TMF_ABORT_TASK,
				       ISCSI_TMF_ABORT_TASK,	 ISCSI_TMF_QUERY_TASK,
				       ISCSI_TMF_ABORT_TASK_SET, ISCSI_TMF_LU_RESET };
	uint8_t bhs[ISCSI_BHS_LEN];
	uint8_t fn = fns[pick(f, sizeof(fns))];

	request(f, bhs, ISCSI_TMF_REQ, BHS_FINAL | fn);
	if (fn <= ISCSI_TMF_ABORT_TASK) {
		put_be32(bhs + BHS_REF_TASK_TAG, some_tag(f));
		put_be32(bhs + BHS_REF_CMD_SN, f->w.cmd_sn - 1 - pick(f, 8));
	} else {
		put_be32(bhs + BHS_REF_TASK_TAG, ISCSI_TAG_NONE);
	}
	add(f, bhs, NULL, 0);
}

/* What hardly anybody sends. */
static void strange(struct fastpeer *f)
{
	static const uint8_t ahs[8] = { 0, 5, 2, 0, 0, 0, 2, 0 }; /* bidirectional length */
	uint8_t bhs[ISCSI_BHS_LEN], cdb[16] = { 0x28, 0, 0, 0, 0, 8, 0, 0, 1 };

	switch (pick(f, 6)) {
	case 0:
		request(f, bhs, ISCSI_SNACK_REQ, BHS_FINAL | (uint8_t)pick(f, 4));
		put_be32(bhs + BHS_TTT, pick(f, 2) ? ISCSI_TAG_NONE : some_tag(f));
		add(f, bhs, NULL, 0);
		break;
	case 1: /* both directions */
		command(f, bhs, BHS_CMD_READ | BHS_CMD_WRITE, 512, cdb);
		add_pdu(f, bhs, ahs, 8, NULL, 0);
		break;
	case 2: /* an AHS that says nothing */
		command(f, bhs, BHS_CMD_READ, 512, cdb);
		add_pdu(f, bhs, ahs, 8, NULL, 0);
		break;
	case 3: /* no direction, or the wrong one */
		command(f, bhs, pick(f, 2) ? BHS_CMD_WRITE : 0, 512, cdb);
		add(f, bhs, some_bytes(f, 512), pick(f, 2) ? 512 : 0);
		break;
	case 4:
		request(f, bhs, (uint8_t)(pick(f, 2) ? ISCSI_LOGIN_REQ : 0x1c), BHS_FINAL);
		add(f, bhs, NULL, 0);
		break;
	default:
		if (once_in(f, 8)) {
			request(f, bhs, ISCSI_LOGOUT_REQ, BHS_FINAL | (uint8_t)pick(f, 3));
			add(f, bhs, NULL, 0);
		}
	}
}

/* ---- the conversation ------------------------------------------------------------------------ */

void fastpeer_begin(struct fastpeer *f)
{
	f->store = (enum fastpeer_store)pick(f, 3);
	f->keys = pick(f, ARRAY_SIZE(keys));
	f->seed = pick(f, 256);
	f->odd = pick(f, 3);
	f->window = (const uint8_t[]){ 128, 128, 32, 4 }[pick(f, 4)];
}

void fastpeer_login(struct fastpeer *f)
{
	const struct iscsi_conn *conn;
	unsigned status;

	wire_open(&f->w);
	status = wire_login(&f->w, 1, 0, 0, keys[f->keys]);
	BUG_ON(status);
	conn = fastpeer_conn();
	BUG_ON(!conn);
	f->max_data = MIN(iscsi_rx_max_data(conn), SEGMENT);
	f->immediate = conn->params.immediate_data;
	f->initial_r2t = conn->params.initial_r2t;
	if (f->immediate)
		f->max_data = MIN(f->max_data, conn->params.first_burst);
	f->w.max_cmd_sn = f->w.cmd_sn + f->window - 1;
	for (unsigned i = 0; i < 4; i++) { /* the attentions of a new unit */
		uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_SCSI_CMD, BHS_FINAL | 1 };

		bhs[BHS_LUN + 1] = FASTPEER_LUN;
		put_be32(bhs + BHS_ITT, ++f->w.itt);
		put_be32(bhs + BHS_CMD_SN, f->w.cmd_sn++);
		put_be32(bhs + BHS_EXP_STAT_SN, f->w.exp_stat_sn);
		f->out_len = wire_build(&f->w, f->out, bhs, NULL, 0);
		say_all(f);
	}
}

/* Commands that wait for their data fill the window. */
static void catch_up(struct fastpeer *f)
{
	do {
		while (f->ndue)
			data_out(f);
		say_all(f);
	} while (f->ndue && !f->w.closed);
}

static void turn(struct fastpeer *f)
{
	unsigned what = pick(f, 64);

	if ((sn_lt(f->w.max_cmd_sn, f->w.cmd_sn) && !once_in(f, 3)) || pick(f, 64) == 63)
		catch_up(f);
	if (f->ndue && pick(f, 2))
		data_out(f);
	if (what < 24)
		transfer(f, false);
	else if (what < 44)
		transfer(f, true);
	else if (what < 50)
		data_out(f);
	else if (what < 54)
		other_command(f);
	else if (what < 56 && f->odd)
		mode_select(f);
	else if (what < 57)
		nop(f);
	else if (what < 58)
		text(f);
	else if (what < 60 && f->odd)
		manage(f);
	else if (what < 61 && f->odd)
		strange(f);
	else
		clock_fake_advance(pick(f, 50) * NSEC_PER_MSEC);
	switch (pick(f, 8)) {
	case 0: /* at any byte */
		say(f, pick(f, (unsigned)MIN(f->out_len, 65535ul) + 1));
		listen_for(f, 1 + pick(f, 2));
		break;
	case 1:
		say_all(f);
		break;
	default:
		break; /* a batch */
	}
}

void fastpeer_talk(struct fastpeer *f)
{
	uint8_t bhs[ISCSI_BHS_LEN], cdb[16] = { 0 };

	while (f->left && !f->w.closed)
		turn(f);
	if (f->missing) { /* those behind it run at last */
		command(f, bhs, 0, 0, cdb);
		add(f, bhs, NULL, 0);
	}
	say_all(f);
	listen_for(f, 4);
	fastpeer_settle();
	hear(f);
}
