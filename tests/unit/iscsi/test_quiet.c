/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sessions that do nothing: what is recorded of them, when it holds, and what is not believed. */
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/unit.h"
#include "tests/support/wire.h"
#include "tgtd/iscsi/quiet.h"
#include "tgtd/scsi/lu.h"
#include "tgtd/tcp/conn.h"

static struct wire w, w2;
static uint8_t data[1 << 20];

static void quiet_up(const char *keys)
{
	wire_target_start();
	ck_assert_int_eq(iscsi_quiet_start(8), 0);
	wire_open(&w);
	ck_assert_uint_eq(wire_login(&w, 1, 0, 0, keys), 0);
	wire_ready(&w);
}

static void quiet_down(void)
{
	wire_down(&w);
	iscsi_quiet_stop();
}

struct verdict {
	unsigned n, not_quiet;
	struct carry_session s; /* the first */
	struct carry_lun lun[4];
	struct carry_conn conn[CARRY_CONNS_MAX];
};

/* What the next process would read. */
static struct verdict read_back(void)
{
	struct verdict v = { 0 };
	struct carry_reader r;
	const uint8_t *bytes;
	size_t len;
	void *record = iscsi_quiet_read(iscsi_quiet_fd(), &len, &v.n, &v.not_quiet);

	ck_assert_ptr_nonnull(record);
	ck_assert_int_eq(carry_read(&r, record, len), 0);
	if (v.n) {
		ck_assert(carry_read_session(&r, &v.s));
		ck_assert_ptr_null(carry_session_wrong(&v.s));
		ck_assert_uint_le(v.s.nluns, 4);
		for (unsigned i = 0; i < v.s.nluns; i++)
			ck_assert(carry_read_lun(&r, &v.lun[i]));
		for (unsigned i = 0; i < v.s.nconns; i++) {
			ck_assert(carry_read_conn(&r, &v.conn[i], &bytes));
			ck_assert_ptr_null(carry_conn_wrong(&v.conn[i], &v.s));
		}
	}
	free(record);
	return v;
}

static bool sums_are(const struct carry_conn *c, const struct wire *x)
{
	return c->counted && c->received == x->written && c->sent == x->got &&
	       c->stat_sn == x->exp_stat_sn;
}

/* Would the session go on, by what is recorded and what went through its sockets? */
static bool goes_on(void)
{
	struct verdict v;

	wire_steps(20);
	v = read_back();
	if (!v.n)
		return false;
	ck_assert_uint_eq(v.n, 1);
	for (unsigned i = 0; i < v.s.nconns; i++)
		if (!sums_are(&v.conn[i], v.conn[i].cid ? &w2 : &w))
			return false;
	ck_assert_uint_eq(v.s.exp_cmd_sn, MAX(w.cmd_sn, w2.cmd_sn));
	ck_assert_uint_eq(v.s.max_cmd_sn, v.s.exp_cmd_sn + v.s.window - 1);
	return true;
}

static void ping(struct wire *x, uint32_t itt)
{
	uint8_t bhs[48] = { ISCSI_NOP_OUT | 0x40, BHS_FINAL };

	put_be32(bhs + BHS_ITT, itt);
	put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
	put_be32(bhs + BHS_CMD_SN, x->cmd_sn);
	put_be32(bhs + BHS_EXP_STAT_SN, x->exp_stat_sn);
	wire_send(x, bhs, NULL, 0);
}

static const char *const kinds[] = {
	NULL,
	"HeaderDigest=CRC32C\n",
	"HeaderDigest=CRC32C\nDataDigest=CRC32C\n",
	"ImmediateData=No\n",
};

START_TEST(each_kind)
{
	quiet_up(kinds[_i]);
	ck_assert(goes_on());
	ck_assert_uint_eq(wire_read(&w, 0, 16, data), 0);
	ck_assert(goes_on());
	ck_assert_uint_eq(wire_write_blocks(&w, 0, 64, data), 0);
	ck_assert(goes_on());
	ping(&w, ISCSI_TAG_NONE); /* nothing is answered */
	ck_assert(goes_on());
	wire_close(&w);
	wire_steps(20);
	ck_assert_uint_eq(read_back().n + read_back().not_quiet, 0);
	quiet_down();
}
END_TEST

START_TEST(half_of_a_header)
{
	uint8_t bhs[48];

	quiet_up(NULL);
	wire_rw10(&w, bhs, false, 0, 8);
	wire_write(&w, bhs, 20);
	ck_assert(!goes_on());
	wire_write(&w, bhs + 20, 28);
	ck_assert(!goes_on()); /* its answer is not taken into account yet */
	w.got += 48 + 4096;
	w.exp_stat_sn++;
	ck_assert(goes_on());
	quiet_down();
}
END_TEST

/* A ping whose data comes later, and one whose border is that of what was received. */
START_TEST(half_of_a_ping)
{
	uint8_t bhs[48] = { ISCSI_NOP_OUT | 0x40, BHS_FINAL }, out[256];
	struct wire_pdu p;
	size_t len;

	quiet_up(NULL);
	put_be32(bhs + BHS_ITT, 77);
	put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
	put_be32(bhs + BHS_CMD_SN, w.cmd_sn);
	len = wire_build(&w, out, bhs, "0123456789abcdef", 16);
	wire_write(&w, out, 48);
	ck_assert(!goes_on());
	wire_write(&w, out + 48, len - 48);
	wire_expect(&w, &p, ISCSI_NOP_IN);
	ck_assert(goes_on());
	quiet_down();
}
END_TEST

START_TEST(data_that_is_owed)
{
	uint8_t bhs[48], out[48] = { ISCSI_DATA_OUT, BHS_FINAL };
	struct wire_pdu p;

	quiet_up(NULL);
	wire_rw10(&w, bhs, true, 0, 16);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_R2T);
	ck_assert(!goes_on());
	memcpy(out + BHS_ITT, p.bhs + BHS_ITT, 8);
	wire_send(&w, out, data, 8192);
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	ck_assert(goes_on());
	quiet_down();
}
END_TEST

START_TEST(a_number_too_early)
{
	uint8_t first[48], second[48];
	struct wire_pdu p;

	quiet_up(NULL);
	wire_rw10(&w, first, false, 0, 8);
	wire_rw10(&w, second, false, 8, 8);
	wire_send(&w, second, NULL, 0);
	ck_assert(!goes_on());
	wire_send(&w, first, NULL, 0);
	wire_expect(&w, &p, ISCSI_DATA_IN);
	wire_expect(&w, &p, ISCSI_DATA_IN);
	ck_assert(goes_on());
	quiet_down();
}
END_TEST

START_TEST(an_answer_that_is_not_taken)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	quiet_up("MaxRecvDataSegmentLength=65536\n");
	for (unsigned i = 0; i < 30; i++) {
		wire_rw10(&w, bhs, false, 0, 2048);
		wire_send(&w, bhs, NULL, 0);
	}
	ck_assert(!goes_on());
	for (unsigned i = 0; i < 30 * 16; i++)
		wire_expect(&w, &p, ISCSI_DATA_IN);
	ck_assert(goes_on());
	quiet_down();
}
END_TEST

START_TEST(two_connections)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	quiet_up("MaxConnections=2\n");
	wire_open(&w2);
	w2.cmd_sn = w.cmd_sn;
	ck_assert_uint_eq(wire_login(&w2, 1, w.tsih, 1, NULL), 0);
	w2.cmd_sn = w.cmd_sn;
	ck_assert(goes_on());
	ck_assert_uint_eq(wire_read(&w2, 0, 8, data), 0);
	ck_assert(goes_on());
	ck_assert_uint_eq(read_back().s.nconns, 2);
	/* one of them busy */
	w.cmd_sn = w2.cmd_sn;
	wire_rw10(&w, bhs, false, 0, 8);
	wire_write(&w, bhs, 47);
	ck_assert(!goes_on());
	/* the other one does something meanwhile, and is quiet again before it */
	ping(&w2, 99);
	wire_expect(&w2, &p, ISCSI_NOP_IN);
	ck_assert(!goes_on());
	wire_write(&w, bhs + 47, 1);
	wire_expect(&w, &p, ISCSI_DATA_IN);
	ck_assert(goes_on());
	/* one of them ends */
	wire_close(&w2);
	ping(&w, 98);
	wire_expect(&w, &p, ISCSI_NOP_IN);
	ck_assert(goes_on());
	ck_assert_uint_eq(read_back().s.nconns, 1);
	quiet_down();
}
END_TEST

/* What somebody else does to it: the record does not hold, before anybody hears of it. */
START_TEST(an_attention)
{
	struct scsi_lu *lu;
	struct verdict v;

	quiet_up(NULL);
	ck_assert(goes_on());
	v = read_back();
	ck_assert_uint_eq(v.s.nluns, 1);
	ck_assert_uint_eq(v.lun[0].nua, 0);
	lu = wire_target.target->lu[1];
	scsi_ua_raise(lu, NULL, 0x3f03);
	ck_assert_uint_eq(read_back().n, 0);
	ck_assert_uint_eq(read_back().not_quiet, 1);
	ping(&w, ISCSI_TAG_NONE);
	ck_assert(goes_on());
	v = read_back();
	ck_assert_uint_eq(v.lun[0].nua, 1);
	ck_assert_uint_eq(v.lun[0].ua[0], 0x3f03);
	wire_ready(&w);
	ck_assert(goes_on());
	ck_assert_uint_eq(read_back().lun[0].nua, 0);
	scsi_luns_changed(wire_target.target);
	ck_assert_uint_eq(read_back().n, 0);
	ping(&w, ISCSI_TAG_NONE);
	ck_assert(goes_on());
	ck_assert_uint_eq(read_back().s.luns_changed, 1);
	quiet_down();
}
END_TEST

/* Its size is what the next process may find otherwise. */
START_TEST(a_size)
{
	struct scsi_lu *lu;
	struct verdict v;

	quiet_up(NULL);
	ck_assert(goes_on());
	lu = wire_target.target->lu[1];
	v = read_back();
	ck_assert_uint_eq(v.lun[0].block_size, 512);
	ck_assert_uint_eq(v.lun[0].blocks, scsi_lu_blocks(lu));
	ck_assert_uint_eq(v.lun[0].inquiry, 0); /* not known */
	/* nobody has looked: the initiator knows the old one */
	atomic_fetch_add(&lu->blk->size, 1 << 20);
	wire_steps(20);
	ck_assert_uint_eq(read_back().lun[0].blocks, v.lun[0].blocks);
	/* it is told: now it knows */
	scsi_ua_raise(lu, NULL, UA_CAPACITY);
	ping(&w, ISCSI_TAG_NONE);
	ck_assert(goes_on());
	ck_assert_uint_eq(read_back().lun[0].blocks, scsi_lu_blocks(lu));
	ck_assert_uint_eq(read_back().lun[0].nua, 1);
	quiet_down();
}
END_TEST

/* Any size that a unit can have, and no other. */
START_TEST(sizes)
{
	static const struct {
		uint64_t blocks;
		uint32_t size;
		bool fits;
	} row[] = {
		{ 0, 512, true },
		{ 1, 512, true },
		{ (1ull << 56) - 1, 512, true },
		{ 1ull << 44, 4096, true },
		{ 77, 1u << 20, true },
		{ 1ull << 56, 512, false },
		{ 1, 0, false },
		{ 1, 520, false },
	};
	static uint8_t slot[QUIET_SLOT] __attribute__((aligned(8))), out[QUIET_OUT_MAX];
	struct quiet_slot *q = (struct quiet_slot *)(void *)slot;
	struct carry_lun l;
	uint32_t tsih;
	size_t n;

	quiet_up(NULL);
	wire_steps(20);
	ck_assert_int_eq(pread(iscsi_quiet_fd(), slot, sizeof(slot), 0), sizeof(slot));
	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		const struct scsi_carried_lun in = { .lun = 1,
						     .blocks = row[i].blocks,
						     .block_size = row[i].size };
		uint8_t lun[64], *at = slot + sizeof(*q) + q->len;
		const size_t len = quiet_put_lun(lun, sizeof(lun), &in);

		at -= len; /* its only one */
		memcpy(at, lun, len);
		q->crc = quiet_crc(q->record, q->len, q->recorded);
		ck_assert_ptr_null(quiet_slot_read(slot, sizeof(slot), NULL, out, &n, &tsih));
		memcpy(&l, out + sizeof(struct carry_session), sizeof(l));
		ck_assert_uint_eq(l.blocks, row[i].fits ? row[i].blocks : 0);
		ck_assert_uint_eq(l.block_size, row[i].fits ? row[i].size : 0);
		at[4] = 32; /* 4 GiB */
		q->crc = quiet_crc(q->record, q->len, q->recorded);
		ck_assert_ptr_nonnull(quiet_slot_read(slot, sizeof(slot), NULL, out, &n, &tsih));
	}
	quiet_down();
}
END_TEST

START_TEST(reserved)
{
	uint8_t bhs[48], reserve[6] = { 0x16 }, release[6] = { 0x17 };
	struct wire_pdu p;

	quiet_up(NULL);
	wire_command(&w, bhs, BHS_FINAL | 1, 0, reserve, 6);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	ck_assert(goes_on());
	ck_assert_uint_eq(read_back().lun[0].holds, SCSI_CARRIED_RESERVE);
	wire_command(&w, bhs, BHS_FINAL | 1, 0, release, 6);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	ck_assert(goes_on());
	ck_assert_uint_eq(read_back().lun[0].holds, 0);
	quiet_down();
}
END_TEST

/* ErrorRecoveryLevel 1: what is not acknowledged may be asked for again. */
START_TEST(retained)
{
	quiet_up("ErrorRecoveryLevel=1\nDataDigest=CRC32C\n");
	ck_assert(!goes_on());
	ping(&w, ISCSI_TAG_NONE);
	ck_assert(goes_on());
	quiet_down();
}
END_TEST

START_TEST(logged_out)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	quiet_up(NULL);
	ck_assert(goes_on());
	wire_request(&w, bhs, ISCSI_LOGOUT_REQ | 0x40, BHS_FINAL);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_LOGOUT_RSP);
	ck_assert(!goes_on());
	quiet_down();
}
END_TEST

/* No room for one more: it does not go on, and nothing else comes of it. */
START_TEST(more_than_there_are_slots)
{
	wire_target_start();
	ck_assert_int_eq(iscsi_quiet_start(1), 0);
	for (unsigned i = 0; i < 3; i++) {
		wire_open(&w);
		ck_assert_uint_eq(wire_login(&w, 1, 0, 0, NULL), 0);
		wire_ready(&w);
		wire_open(&w2);
		ck_assert_uint_eq(wire_login(&w2, 2, 0, 0, NULL), 0);
		wire_ready(&w2);
		wire_steps(20);
		ck_assert_uint_eq(read_back().n, 1);
		wire_close(&w2);
		wire_close(&w);
		wire_steps(20);
		ck_assert_uint_eq(read_back().n + read_back().not_quiet, 0);
	}
	wire_open(&w);
	quiet_down();
}
END_TEST

/* A bit that has changed ends the session, or is one that says nothing. */
START_TEST(damage)
{
	static uint8_t slot[QUIET_SLOT] __attribute__((aligned(8)));
	static uint8_t out[QUIET_OUT_MAX], want[QUIET_OUT_MAX];
	size_t n, len, used;
	uint32_t tsih;

	quiet_up(NULL);
	wire_steps(20);
	ck_assert_int_eq(pread(iscsi_quiet_fd(), slot, sizeof(slot), 0), sizeof(slot));
	ck_assert_ptr_null(quiet_slot_read(slot, sizeof(slot), NULL, want, &len, &tsih));
	used = sizeof(struct quiet_slot) + ((struct quiet_slot *)(void *)slot)->len;
	for (size_t i = 0; i < used * 8; i++) {
		slot[i / 8] ^= (uint8_t)(1u << i % 8);
		if (!quiet_slot_read(slot, sizeof(slot), NULL, out, &n, &tsih)) {
			ck_assert_uint_eq(n, len);
			ck_assert_mem_eq(out, want, len);
			ck_assert_uint_ge(i / 8, 20); /* a place that nobody uses */
			ck_assert_uint_lt(i / 8, sizeof(struct quiet_slot));
		}
		slot[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	for (size_t i = 0; i < used; i++)
		ck_assert(quiet_slot_read(slot, i, NULL, out, &n, &tsih));
	ck_assert_ptr_null(quiet_slot_read(slot, used, NULL, out, &n, &tsih));
	quiet_down();
}
END_TEST

/* What is no table of slots, or one that was cut. */
START_TEST(other_files)
{
	int fds[2], fd = memfd_create("other", MFD_CLOEXEC);
	unsigned n, not_quiet;
	size_t len;
	void *r;

	quiet_up(NULL);
	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_ptr_null(iscsi_quiet_read(fds[0], &len, &n, &not_quiet));
	ck_assert_ptr_null(iscsi_quiet_read(-1, &len, &n, &not_quiet));
	r = iscsi_quiet_read(fd, &len, &n, &not_quiet);
	ck_assert_uint_eq(n + not_quiet, 0);
	free(r);
	ck_assert_int_eq(pwrite(fd, "garbage", 7, 100000), 7);
	ck_assert_int_eq(pwrite(fd, "garbage", 7, (off_t)1 << 45), 7);
	r = iscsi_quiet_read(fd, &len, &n, &not_quiet);
	ck_assert_uint_eq(n, 0);
	ck_assert_uint_eq(len, CARRY_HEAD_LEN);
	free(r);
	close(fd);
	close(fds[0]);
	close(fds[1]);
	quiet_down();
}
END_TEST

/* ---- what the kernel says of a socket -------------------------------------------------------- */

static void pair_of_tcp(int *here, int *there)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_eq(bind(l, (struct sockaddr *)&a, len), 0);
	ck_assert_int_eq(listen(l, 1), 0);
	ck_assert_int_eq(getsockname(l, (struct sockaddr *)&a, &len), 0);
	*there = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(connect(*there, (struct sockaddr *)&a, len), 0);
	*here = accept(l, NULL, NULL);
	ck_assert_int_ge(*here, 0);
	close(l);
}

static bool fits(int fd)
{
	struct sockaddr_storage peer = { 0 }, local = { 0 };
	socklen_t len = sizeof(peer);

	if (getpeername(fd, (struct sockaddr *)&peer, &len))
		return false;
	len = sizeof(local);
	return !getsockname(fd, (struct sockaddr *)&local, &len) && tcp_fits(fd, &peer, &local);
}

START_TEST(sockets)
{
	uint64_t received, sent;
	int here, there;

	pair_of_tcp(&here, &there);
	ck_assert(tcp_count(here, &received, &sent));
	ck_assert_uint_eq(received, 0);
	ck_assert_uint_eq(sent, 0);
	ck_assert_int_eq(write(there, data, 1000), 1000);
	ck_assert_int_eq(read(here, data, 300), 300);
	ck_assert_int_eq(write(here, data, 77), 77);
	ck_assert(tcp_count(here, &received, &sent));
	ck_assert_uint_eq(received, 300);
	ck_assert_uint_eq(sent, 77);
	ck_assert(fits(here));
	/* the peer has closed its side */
	ck_assert_int_eq(shutdown(there, SHUT_WR), 0);
	while (fits(here))
		usleep(1000);
	close(here);
	close(there);
	/* ... and so have we */
	pair_of_tcp(&here, &there);
	ck_assert_int_eq(shutdown(here, SHUT_WR), 0);
	ck_assert(!fits(here));
	close(here);
	close(there);
}
END_TEST

/* The other end hears of it although somebody else has the socket open. */
START_TEST(reset)
{
	int here, there, copy;
	char byte;

	pair_of_tcp(&here, &there);
	copy = dup(here);
	tcp_reset(here);
	ck_assert_int_eq(read(there, &byte, 1), -1);
	ck_assert_int_eq(errno, ECONNRESET);
	close(here);
	close(copy);
	close(there);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM, 0, (int[2]){ 0 }), 0);
	tcp_reset(-1);
	tcp_reset(memfd_create("other", MFD_CLOEXEC));
}
END_TEST

UNIT_TABLE("iscsi-quiet", 60, { each_kind, 4 }, { half_of_a_header }, { half_of_a_ping },
	   { data_that_is_owed }, { a_number_too_early }, { an_answer_that_is_not_taken },
	   { two_connections }, { an_attention }, { a_size }, { sizes }, { reserved }, { retained },
	   { logged_out }, { more_than_there_are_slots }, { damage }, { other_files }, { sockets },
	   { reset })
