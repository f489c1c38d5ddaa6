/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sessions at work: what is recorded of them, when it holds, and what is not believed. */
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/unit.h"
#include "tests/support/wire.h"
#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/flight.h"
#include "tgtd/iscsi/quiet.h"

static struct wire w;
static uint8_t data[1 << 20];
static struct flight_found found;

static void flight_up(const char *keys)
{
	wire_target_start();
	ck_assert_int_eq(iscsi_quiet_start(8), 0);
	ck_assert_int_eq(iscsi_flight_start(8), 0);
	wire_open(&w);
	ck_assert_uint_eq(wire_login(&w, 1, 0, 0, keys), 0);
	wire_ready(&w);
}

/* (Threads keep buffers: the file stays.) */
static void flight_down(void)
{
	wire_down(&w);
	iscsi_quiet_stop();
}

/* What the next process would find, if the kernel had counted these. */
static const char *look(uint64_t received, uint64_t sent)
{
	static struct flight_head head;
	static struct flight_slot slot;
	static struct flight_log log;
	const int fd = iscsi_flight_fd();

	wire_steps(20);
	ck_assert_int_eq(pread(fd, &head, sizeof(head), 0), sizeof(head));
	ck_assert_ptr_null(flight_head_wrong(&head, (uint64_t)lseek(fd, 0, SEEK_END)));
	ck_assert_int_eq(pread(fd, &slot, sizeof(slot), FLIGHT_HEAD), sizeof(slot));
	if (slot.log) {
		ck_assert(flight_log_at(&head, slot.log));
		ck_assert_int_eq(pread(fd, &log, sizeof(log), (off_t)slot.log), sizeof(log));
	}
	return flight_judge(&head, &slot, slot.log ? &log : NULL, received, sent, &found);
}

static void rests(void)
{
	const char *why = look(w.written, w.got);

	ck_assert_msg(!why, "%s", why);
	ck_assert_uint_eq(found.ncmds + found.owed + found.unparsed, 0);
	ck_assert_uint_eq(found.exp_cmd_sn, w.cmd_sn);
	ck_assert_uint_eq(found.stat_sn, w.exp_stat_sn);
	ck_assert_uint_eq(found.max_cmd_sn, w.max_cmd_sn);
}

static const char *const kinds[] = {
	NULL,
	"HeaderDigest=CRC32C\n",
	"HeaderDigest=CRC32C\nDataDigest=CRC32C\n",
};

START_TEST(each_kind)
{
	flight_up(kinds[_i]);
	rests();
	ck_assert_uint_eq(wire_read(&w, 0, 16, data), 0);
	rests();
	ck_assert_uint_eq(wire_read(&w, 0, 2000, data), 0);
	rests();
	ck_assert_uint_eq(wire_write_blocks(&w, 0, 64, data), 0);
	rests();
	wire_ready(&w);
	rests();
	flight_down();
}
END_TEST

/* Of a write nothing is done before it has come. */
START_TEST(half_of_a_write)
{
	uint8_t bhs[48], out[4096 + 64];
	struct wire_pdu p;
	size_t len;

	flight_up(kinds[_i]);
	wire_rw10(&w, bhs, true, 8, 8);
	len = wire_build(&w, out, bhs, data, 4096);
	for (size_t at = 0; at < len; at += MIN(700u, len - at)) {
		ck_assert_ptr_null(look(w.written, w.got));
		ck_assert_uint_eq(found.unparsed, at);
		ck_assert_uint_eq(found.exp_cmd_sn, w.cmd_sn - 1);
		ck_assert_uint_eq(found.ncmds, 0);
		wire_write(&w, out + at, MIN(700u, len - at));
	}
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	rests();
	flight_down();
}
END_TEST

/* What the record does not know of, the kernel has counted. */
START_TEST(other_counts)
{
	flight_up(NULL);
	rests();
	ck_assert_ptr_nonnull(look(w.written, w.got + 1));
	ck_assert_ptr_nonnull(look(w.written, w.got - 1));
	ck_assert_ptr_nonnull(look(w.written + 1, w.got));
	ck_assert_ptr_nonnull(look(w.written - 1, w.got));
	flight_down();
}
END_TEST

static void ping(uint32_t len, uint32_t upto)
{
	uint8_t bhs[48] = { ISCSI_NOP_OUT | 0x40, BHS_FINAL }, out[256];

	put_be32(bhs + BHS_ITT, 77);
	put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
	put_be32(bhs + BHS_CMD_SN, w.cmd_sn);
	(void)wire_build(&w, out, bhs, "0123456789abcdef", len);
	wire_write(&w, out, upto);
}

static void put_data_out(uint8_t *bhs, const struct wire_pdu *r2t, uint32_t sn, uint32_t off,
			 bool final)
{
	memset(bhs, 0, 48);
	bhs[BHS_OPCODE] = ISCSI_DATA_OUT;
	bhs[BHS_FLAGS] = final ? BHS_FINAL : 0;
	memcpy(bhs + BHS_ITT, r2t->bhs + BHS_ITT, 8);
	put_be32(bhs + BHS_DATA_SN, sn);
	put_be32(bhs + BHS_BUFFER_OFFSET, off);
}

/* A write of which nothing was carried out: what has come is thrown away, up to a PDU's border. */
static void goes_on_from(uint32_t off, uint32_t unparsed, uint32_t skip, unsigned outstanding)
{
	unsigned n = 0;

	ck_assert_uint_eq(found.ncmds, 1);
	ck_assert_uint_eq(found.cmd[0].state, FLIGHT_OWED);
	ck_assert_uint_eq(found.cmd[0].off, off);
	ck_assert_uint_eq(found.unparsed, unparsed);
	ck_assert_uint_eq(found.skip, skip);
	ck_assert_uint_eq(found.exp_cmd_sn, w.cmd_sn);
	for (unsigned i = 0; i < FLIGHT_SEQS; i++)
		n += found.cmd[0].seq[i] != 0;
	ck_assert_uint_eq(n, outstanding);
}

/* Wherever data that is owed has stopped. */
START_TEST(owed_data)
{
	const uint32_t head = _i ? 52 : 48;
	static uint8_t out[33000];
	uint8_t bhs[48];
	struct wire_pdu p, ignored;
	const char *why;

	flight_up(kinds[_i]);
	wire_rw10(&w, bhs, true, 0, 128);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_R2T);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_R2T_LEN), 65536);
	for (uint32_t k = 0; k < 2; k++) {
		size_t len;

		put_data_out(bhs, &p, k, k * 32768, k);
		len = wire_build(&w, out, bhs, data, 32768);
		for (uint32_t at = 0; at < len; at += MIN(1000u, (uint32_t)len - at)) {
			why = look(w.written, w.got);
			ck_assert_msg(!why, "%s", why);
			ck_assert_uint_eq(found.cmd[0].data_sn, 1);
			goes_on_from(0, at < head ? at : 0, at < head ? 0 : (uint32_t)len - at,
				     !k || at < head);
			wire_write(&w, out + at, MIN(1000u, (uint32_t)len - at));
		}
	}
	wire_expect(&w, &ignored, ISCSI_SCSI_RSP);
	rests();
	flight_down();
}
END_TEST

/* ... unsolicited. */
START_TEST(owed_unsolicited)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	flight_up("InitialR2T=No\nFirstBurstLength=8192\n");
	wire_rw10(&w, bhs, true, 0, 32);
	bhs[BHS_FLAGS] &= (uint8_t)~BHS_FINAL;
	wire_send(&w, bhs, data, 4096);
	ck_assert_pstr_eq(look(w.written, w.got), NULL);
	goes_on_from(0, 0, 0, 1);
	memcpy(p.bhs + BHS_ITT, bhs + BHS_ITT, 4);
	put_be32(p.bhs + BHS_TTT, ISCSI_TAG_NONE);
	put_data_out(bhs, &p, 0, 4096, true);
	wire_send(&w, bhs, data, 4096);
	wire_expect(&w, &p, ISCSI_R2T);
	ck_assert_pstr_eq(look(w.written, w.got), NULL);
	goes_on_from(0, 0, 0, 1);
	put_data_out(bhs, &p, 0, 8192, true);
	wire_send(&w, bhs, data, 8192);
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	rests();
	flight_down();
}
END_TEST

/* What has been carried out is not asked for again. */
START_TEST(owed_in_parts)
{
	uint32_t got = 0, off = 0;
	uint8_t bhs[48];
	struct wire_pdu p;

	flight_up("MaxBurstLength=65536\n");
	wire_rw10(&w, bhs, true, 0, 4096);
	wire_send(&w, bhs, NULL, 0);
	while (got < 2 << 20) {
		wire_expect(&w, &p, ISCSI_R2T);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_R2T_LEN), 65536);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_BUFFER_OFFSET), got);
		ck_assert_pstr_eq(look(w.written, w.got), NULL);
		goes_on_from(found.cmd[0].off, 0, 0, 1);
		ck_assert_uint_ge(found.cmd[0].off, off);
		ck_assert_uint_le(found.cmd[0].off, got);
		ck_assert_uint_eq(found.cmd[0].off % 4096, 0);
		off = found.cmd[0].off;
		put_data_out(bhs, &p, 0, got, true);
		wire_send(&w, bhs, data, 65536);
		got += 65536;
	}
	ck_assert_uint_gt(off, 0);
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	rests();
	flight_down();
}
END_TEST

/* Nobody can go on with these, as long as they are under way. */
START_TEST(doubts)
{
	uint8_t bhs[48], early[48];
	struct wire_pdu p;

	flight_up(NULL);
	ping(16, 52);
	ck_assert_ptr_nonnull(look(w.written, w.got));
	wire_write(&w, "456789abcdef", 12);
	wire_expect(&w, &p, ISCSI_NOP_IN);
	rests();
	wire_rw10(&w, bhs, false, 0, 8);
	wire_rw10(&w, early, false, 8, 8);
	wire_send(&w, early, NULL, 0); /* its turn has not come */
	ck_assert_ptr_nonnull(look(w.written, w.got));
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_DATA_IN);
	wire_expect(&w, &p, ISCSI_DATA_IN);
	rests();
	wire_request(&w, bhs, ISCSI_TMF_REQ, BHS_FINAL | ISCSI_TMF_LU_RESET);
	put_be64(bhs + BHS_LUN, 1ull << 48);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_TMF_RSP);
	rests();
	wire_close(&w);
	wire_steps(20);
	ck_assert_ptr_nonnull(look(w.written, w.got)); /* nobody's */
	flight_down();
}
END_TEST

static struct {
	struct loop_msg msg;
	struct iscsi_conn *conn;
	struct flight_going *g;
} going;

static void goes_on(struct loop_msg *msg)
{
	(void)msg;
	going.conn->sess->exp_cmd_sn = w.cmd_sn; /* iscsi_flight_patch() */
	iscsi_flight_goes_on(going.conn, going.g);
}

static void go_on(struct flight_going *g)
{
	going.g = g;
	going.conn = list_first(
		&list_first(&iscsi_core.sessions, struct iscsi_session, link)->conns,
		struct iscsi_conn, sess_link);
	going.msg.handle = goes_on;
	loop_post(going.conn->loop, &going.msg);
}

/* A write that had been carried out, three R2Ts of which the initiator has. */
START_TEST(answered_again)
{
	struct flight_going *g = calloc(1, sizeof(*g));
	uint8_t bhs[48];
	struct wire_pdu p;

	flight_up(NULL);
	wire_rw10(&w, bhs, true, 0, 64);
	memcpy(g->cmd[0].bhs, bhs, sizeof(bhs));
	g->cmd[0].state = FLIGHT_DONE;
	g->cmd[0].data_sn = 3;
	g->ncmds = 1;
	go_on(g);
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	iscsi_flight_going_free(g);
	ck_assert_uint_eq(p.bhs[BHS_STATUS], SAM_GOOD);
	ck_assert_mem_eq(p.bhs + BHS_ITT, bhs + BHS_ITT, 4);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_DATA_SN), 3); /* ExpDataSN */
	flight_down();
}
END_TEST

/* An R2T has a tag that no other one has, which a later command may owe data for. */
START_TEST(other_tags)
{
	struct flight_going *g = calloc(1, sizeof(*g));
	struct wire_pdu p;

	flight_up(NULL);
	g->ncmds = 2;
	for (unsigned i = 0; i < 2; i++) {
		wire_rw10(&w, g->cmd[i].bhs, true, i * 64, 64);
		g->cmd[i].state = FLIGHT_OWED;
		g->cmd[i].owed = 1;
	}
	g->cmd[1].seq[1] = FLIGHT_SEQ_ASKED | FLIGHT_SEQ_SENT | 50 << 3 | 1;
	go_on(g);
	wire_expect(&w, &p, ISCSI_R2T);
	iscsi_flight_going_free(g);
	ck_assert_uint_gt(get_be32(p.bhs + BHS_TTT) >> 3, 50);
	flight_down();
}
END_TEST

static unsigned has_record(const char *keys)
{
	struct iscsi_session *s;
	unsigned n = 0;

	wire_open(&w);
	ck_assert_uint_eq(wire_login(&w, 3, 0, 0, keys), 0);
	wire_ready(&w);
	list_for_each(s, &iscsi_core.sessions, link)
		n += s->flight != NULL;
	wire_close(&w);
	wire_steps(20);
	return n;
}

/* Only sessions of one connection that recover nothing. */
START_TEST(whose)
{
	flight_up(NULL);
	wire_close(&w);
	wire_steps(20);
	ck_assert_uint_eq(has_record(NULL), 1);
	ck_assert_uint_eq(has_record("ErrorRecoveryLevel=1\n"), 0);
	flight_down();
}
END_TEST

/* ---- the judge ------------------------------------------------------------------------------- */

static struct flight_head head;
static struct flight_slot slot;
static struct flight_log log_;

static struct flight_cmd *command(unsigned i, uint32_t sn, bool write, enum flight_state state,
				  uint32_t at)
{
	struct flight_cmd *c = &slot.cmd[i];

	memset(c, 0, sizeof(*c));
	c->bhs[BHS_OPCODE] = ISCSI_SCSI_CMD;
	c->bhs[BHS_FLAGS] = BHS_FINAL | (write ? BHS_CMD_WRITE : BHS_CMD_READ);
	c->bhs[BHS_CDB] = write ? 0x2a : 0x28;
	put_be24(c->bhs + BHS_DATA_LEN, write ? 512 : 0);
	put_be32(c->bhs + BHS_EDTL, write ? 512 : 16384);
	put_be32(c->bhs + BHS_ITT, 100 + sn);
	put_be32(c->bhs + BHS_CMD_SN, sn);
	c->state = state;
	c->at = at;
	return c;
}

static void record(void)
{
	uint8_t *bhs = log_.header[0].bhs;

	memset(&slot, 0, sizeof(slot));
	memset(&log_, 0, sizeof(log_));
	head = (struct flight_head){ .version = FLIGHT_VERSION, .slots = 2, .rooms = 4,
				     .base = 1ull << 32 };
	head.rx_off = FLIGHT_HEAD + 2 * FLIGHT_SLOT;
	head.tx_off = head.rx_off + 4 * FLIGHT_RX_ROOM;
	head.size = head.tx_off + 4 * FLIGHT_TX_ROOM;
	head.arena[1] = (struct flight_arena){ 1ull << 40, MiB(1) };
	ck_assert_ptr_null(flight_head_wrong(&head, head.size));
	slot.version = FLIGHT_VERSION;
	slot.taken = flight_taken(2000, 7);
	slot.rx_base = 2000;
	slot.rx_buf = head.rx_off;
	slot.sent = 1000;
	slot.stat_sn = 50;
	(void)command(3, 6, false, FLIGHT_READ, 1900);
	log_.base = 1000;
	log_.total = 48 + 4096;
	log_.n = 2;
	log_.nheaders = 1;
	log_.stat_sn = 51;
	log_.cmd[0] = 4;
	bhs[BHS_OPCODE] = ISCSI_DATA_IN;
	put_be24(bhs + BHS_DATA_LEN, 4096);
	log_.iov[0] = (struct iovec){ (void *)(uintptr_t)(head.base + head.tx_off), 48 };
	log_.iov[1] = (struct iovec){ (void *)(uintptr_t)((1ull << 40) + 8192), 4096 };
}

static const char *judged(uint64_t received, uint64_t sent)
{
	return flight_judge(&head, &slot, &log_, received, sent, &found);
}

/* Wherever the socket has stopped, what is owed is the rest of the batch. */
START_TEST(owed)
{
	for (uint32_t sent = 0; sent <= 48 + 4096; sent++) {
		record();
		/* what the socket has taken, the batch has not */
		if (sent > 48)
			log_.iov[1] = (struct iovec){ (uint8_t *)log_.iov[1].iov_base + (sent - 48),
						      4096 - (sent - 48) };
		ck_assert_ptr_null(judged(2000, 1000 + sent));
		ck_assert_uint_eq(found.owed, 48 + 4096 - sent);
		ck_assert_uint_eq(found.npieces, sent < 48 ? 2 : sent < 48 + 4096);
		if (sent < 48 + 4096) {
			const struct flight_piece *last = &found.piece[found.npieces - 1];

			ck_assert_uint_eq(last->arena, 1);
			ck_assert_uint_eq(last->off + last->len, 8192 + 4096);
		}
		if (sent < 48)
			ck_assert_uint_eq(found.piece[0].off, head.tx_off + sent);
		ck_assert_uint_eq(found.stat_sn, 51);
		ck_assert_uint_eq(found.ncmds, 1);
		ck_assert_uint_eq(found.cmd[0].off, 4096);
		ck_assert_uint_eq(found.cmd[0].data_sn, 1);
	}
	ck_assert_ptr_nonnull(judged(2000, 999));
	ck_assert_ptr_nonnull(judged(2000, 1000 + 48 + 4096 + 1));
}
END_TEST

START_TEST(answered)
{
	record();
	log_.header[0].bhs[BHS_FLAGS] = BHS_FINAL | BHS_DATAIN_STATUS;
	ck_assert_ptr_null(judged(2000, 1000));
	ck_assert_uint_eq(found.ncmds, 0);
	/* A write whose response is there is not in doubt any more. */
	(void)command(3, 6, true, FLIGHT_APPLYING, 1900);
	ck_assert_ptr_null(judged(2000, 1000));
	log_.header[0].bhs[BHS_OPCODE] = ISCSI_SCSI_RSP;
	ck_assert_ptr_null(judged(2000, 1000));
	log_.cmd[0] = 0;
	ck_assert_ptr_nonnull(judged(2000, 1000));
	(void)command(3, 6, true, FLIGHT_DONE, 1900);
	ck_assert_ptr_null(judged(2000, 1000));
	ck_assert_uint_eq(found.ncmds, 1);
	ck_assert_uint_eq(found.cmd[0].state, FLIGHT_DONE);
}
END_TEST

/* Commands that were taken since ->taken say how far it is. */
START_TEST(taken)
{
	record();
	(void)command(9, 8, true, FLIGHT_WRITE, 2660);
	(void)command(7, 7, false, FLIGHT_READ, 2100);
	ck_assert_ptr_null(judged(3000, 1000));
	ck_assert_uint_eq(found.exp_cmd_sn, 9);
	ck_assert_uint_eq(found.unparsed, 340);
	ck_assert_uint_eq(found.unparsed_off, head.rx_off + 660);
	ck_assert_uint_eq(found.ncmds, 3);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(get_be32(found.cmd[i].bhs + BHS_CMD_SN), 6 + i);
	slot.cmd[9].state = FLIGHT_FREE; /* its PDU is looked at again */
	ck_assert_ptr_null(judged(3000, 1000));
	ck_assert_uint_eq(found.exp_cmd_sn, 8);
	ck_assert_uint_eq(found.unparsed, 900);
	ck_assert_ptr_nonnull(judged(2050, 1000)); /* the kernel has not given so much */
	/* One that has been under way for long says nothing: the low bits are those of any time. */
	record();
	for (uint64_t received = 2000; received < 3ull << 32; received += 1u << 30) {
		slot.taken = flight_taken((uint32_t)received, 7);
		ck_assert_pstr_eq(judged(received, 1000), NULL);
		ck_assert_uint_eq(found.exp_cmd_sn, 7);
		ck_assert_uint_eq(found.unparsed + found.skip, 0);
	}
}
END_TEST

/* A write that is owed data, of which an R2T with tag 0x12 is outstanding. */
static struct flight_cmd *record_owed(void)
{
	struct flight_cmd *c;

	record();
	log_.total = 0;
	c = command(3, 6, true, FLIGHT_OWED, 1900);
	put_be24(c->bhs + BHS_DATA_LEN, 0);
	put_be32(c->bhs + BHS_EDTL, 65536);
	c->owed = 1;
	c->seq[2] = FLIGHT_SEQ_ASKED | FLIGHT_SEQ_SENT | 0x12;
	return c;
}

static void log_r2t(uint32_t ttt, uint32_t sn)
{
	uint8_t *bhs = log_.header[0].bhs;

	log_.total = 48 + 4096;
	memset(bhs, 0, ISCSI_BHS_LEN);
	bhs[BHS_OPCODE] = ISCSI_R2T;
	put_be32(bhs + BHS_TTT, ttt);
	put_be32(bhs + BHS_DATA_SN, sn);
}

START_TEST(sequences)
{
	struct flight_cmd *c = record_owed();

	ck_assert_ptr_null(judged(2000, 1000));
	ck_assert_uint_eq(found.ncmds, 1);
	ck_assert_uint_eq(found.cmd[0].seq[2] & FLIGHT_SEQ_TAG, 0x12);
	/* Not sent, as far as anybody knows: it never will be. */
	c->seq[2] = FLIGHT_SEQ_ASKED | 0x12;
	ck_assert_ptr_null(judged(2000, 1000));
	ck_assert_uint_eq(found.cmd[0].seq[2], 0);
	log_r2t(0x12, 5);
	ck_assert_ptr_null(judged(2000, 1000));
	ck_assert_uint_eq(found.cmd[0].seq[2] & FLIGHT_SEQ_TAG, 0x12);
	ck_assert_uint_eq(found.cmd[0].data_sn, 6);
	log_r2t(0x22, 5); /* another one, of that slot: it is over */
	ck_assert_ptr_null(judged(2000, 1000));
	ck_assert_uint_eq(found.cmd[0].seq[2], 0);
	ck_assert_uint_eq(found.cmd[0].data_sn, 6);
	/* Its last PDU has come, and says how far that is. */
	c = record_owed();
	c->seq[2] = 2600ull << 32 | FLIGHT_SEQ_OVER;
	ck_assert_ptr_null(judged(3000, 1000));
	ck_assert_uint_eq(found.cmd[0].seq[2], 0);
	ck_assert_uint_eq(found.unparsed, 400);
	ck_assert_uint_eq(found.exp_cmd_sn, 7);
	/* ... or is coming. */
	for (unsigned final = 0; final < 2; final++) {
		c = record_owed();
		slot.into = flight_into(5000, 4, 2, final);
		ck_assert_ptr_null(judged(2100, 1000));
		ck_assert_uint_eq(found.skip, 2900);
		ck_assert_uint_eq(found.unparsed, 0);
		ck_assert_uint_eq(found.cmd[0].seq[2] == 0, final);
		ck_assert_ptr_null(judged(5200, 1000));
		ck_assert_uint_eq(found.skip, 0);
		ck_assert_uint_eq(found.unparsed, 200);
	}
	slot.into = flight_into(1900, 4, 2, true); /* that was before */
	ck_assert_ptr_null(judged(2000, 1000));
	ck_assert_uint_eq(found.cmd[0].seq[2] & FLIGHT_SEQ_TAG, 0x12);
	slot.into = flight_into(2000 + MiB(17), 4, 2, true);
	ck_assert_ptr_nonnull(judged(2000, 1000));
	slot.into = flight_into(5000, FLIGHT_CMDS + 1, FLIGHT_SEQS, true); /* nobody's */
	ck_assert_ptr_null(judged(2000, 1000));
	/* What was carried out is whole sectors, and not all. */
	c = record_owed();
	c->off = 65536;
	ck_assert_ptr_nonnull(judged(2000, 1000));
	c->off = 512;
	ck_assert_ptr_nonnull(judged(2000, 1000));
	c->off = 61440;
	ck_assert_ptr_null(judged(2000, 1000));
	c->owed = 0;
	ck_assert_ptr_nonnull(judged(2000, 1000));
	c = record_owed();
	c->state = FLIGHT_APPLYING;
	ck_assert_ptr_nonnull(judged(2000, 1000));
}
END_TEST

START_TEST(refused)
{
	record();
	slot.doubts = 1;
	ck_assert_ptr_nonnull(judged(2000, 1000));
	record();
	slot.version++;
	ck_assert_ptr_nonnull(judged(2000, 1000));
	record();
	log_.moving = 1;
	ck_assert_ptr_nonnull(judged(2000, 1000));
	record();
	log_.iov[1].iov_base = data; /* nowhere */
	ck_assert_ptr_nonnull(judged(2000, 1000));
	ck_assert_ptr_null(judged(2000, 1000 + 48 + 4096)); /* but it has been sent */
	record();
	log_.cmd[0] = FLIGHT_CMDS + 1;
	ck_assert_ptr_nonnull(judged(2000, 1000));
	record();
	log_.nheaders = FLIGHT_HEADERS + 1;
	ck_assert_ptr_nonnull(judged(2000, 1000));
	record();
	slot.rx_buf = 0;
	ck_assert_ptr_null(judged(2000, 1000));
	ck_assert_ptr_nonnull(judged(2001, 1000));
	record();
	slot.rx_buf += 8;
	ck_assert_ptr_nonnull(judged(2001, 1000));
	record();
	put_be24(log_.header[0].bhs + BHS_DATA_LEN, 512); /* the middle of a sector */
	ck_assert_ptr_nonnull(judged(2000, 1000));
	record();
	(void)command(5, 5, false, FLIGHT_READ, 1800);
	put_be32(slot.cmd[5].bhs + BHS_ITT, 106); /* another one's */
	ck_assert_ptr_nonnull(judged(2000, 1000));
	record();
	command(5, 5, true, FLIGHT_WRITE, 1800)->data = 4; /* there are four */
	ck_assert_ptr_nonnull(judged(2000, 1000));
	record();
	command(5, 5, false, FLIGHT_READ, 1800)->bhs[BHS_CDB] = 0x42; /* UNMAP */
	ck_assert_ptr_nonnull(judged(2000, 1000));
	record();
	(void)command(5, 5, false, FLIGHT_DONE, 1800);
	ck_assert_ptr_nonnull(judged(2000, 1000));
	record();
	(void)command(5, 5, false, FLIGHT_STATES, 1800);
	ck_assert_ptr_nonnull(judged(2000, 1000));
	record();
	head.rooms++;
	ck_assert_ptr_nonnull(flight_head_wrong(&head, head.size));
}
END_TEST

UNIT_TABLE("iscsi-flight", 60, { each_kind, 3 }, { half_of_a_write, 3 }, { other_counts },
	   { owed_data, 3 }, { owed_unsolicited }, { owed_in_parts }, { doubts },
	   { answered_again }, { other_tags }, { whose }, { owed }, { answered }, { taken },
	   { sequences }, { refused })
