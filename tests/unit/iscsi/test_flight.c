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

/* Nobody can go on with these, as long as they are under way. */
START_TEST(doubts)
{
	uint8_t bhs[48], out[48] = { ISCSI_DATA_OUT, BHS_FINAL }, early[48];
	struct wire_pdu p;

	flight_up(NULL);
	ping(16, 52);
	ck_assert_ptr_nonnull(look(w.written, w.got));
	wire_write(&w, "456789abcdef", 12);
	wire_expect(&w, &p, ISCSI_NOP_IN);
	rests();
	wire_rw10(&w, bhs, true, 0, 16); /* an R2T asks for its data */
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_R2T);
	ck_assert_ptr_nonnull(look(w.written, w.got));
	memcpy(out + BHS_ITT, p.bhs + BHS_ITT, 8);
	wire_send(&w, out, data, 8192);
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
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
	   { doubts }, { whose }, { owed }, { answered }, { taken }, { refused })
