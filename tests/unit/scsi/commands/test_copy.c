/* SPDX-License-Identifier: GPL-2.0-or-later */
/* EXTENDED COPY, ROD tokens, SANITIZE, target port groups, log pages. */
#include <stdio.h>
#include <stdlib.h>
#include "events/bytes.h"
#include "events/clock.h"
#include "tests/support/blk_pass.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"

static struct host h;
static struct host_nexus *n;

static const char *xcopy(bool lid4, uint32_t from_lun, uint32_t to_lun, uint64_t from, uint64_t to,
			 uint16_t blocks, uint32_t id)
{
	uint8_t p[48 + 64 + 28] = { 0 }, cdb[16] = { 0x83, lid4 };
	size_t head = lid4 ? 48 : 16;
	uint8_t *s = p + head + 64;

	if (lid4) {
		p[0] = 1;
		put_be16(p + 2, 0x20);
		p[16] = 0xff;
		put_be32(p + 20, id);
		put_be16(p + 42, 64);
		put_be16(p + 44, 28);
	} else {
		p[0] = (uint8_t)id;
		put_be16(p + 2, 64);
		put_be32(p + 8, 28);
	}
	host_identification(n, from_lun, p + head);
	host_identification(n, to_lun, p + head + 32);
	s[0] = 0x02;
	put_be16(s + 2, 24);
	put_be16(s + 6, 1);
	put_be16(s + 10, blocks);
	put_be64(s + 12, from);
	put_be64(s + 20, to);
	put_be32(cdb + 10, (uint32_t)head + 64 + 28);
	host_out(n, 1, cdb, 16, p, head + 64 + 28);
	return host_result(n);
}

static void open2(void)
{
	host_open(&h, "16m", 512);
	host_add_lu(&h, 2, "8m", 512);
	n = host_login_ready(&h, "iqn.a");
	host_tur(n, 2);
}

START_TEST(extended_copy)
{
	open2();
	host_fill(n, 1, 0, 4000, 'a');
	ck_assert_str_eq(xcopy(false, 1, 1, 0, 20000, 4000, 7), "good");
	ck_assert_int_eq(host_holds(n, 1, 20000, 4000), 'a');
	ck_assert_int_eq(host_holds(n, 1, 24000, 1), 0);
	ck_assert_str_eq(xcopy(true, 1, 2, 100, 50, 3000, 0x12345), "good");
	ck_assert_int_eq(host_holds(n, 2, 50, 3000), 'a');
	ck_assert_int_eq(host_holds(n, 2, 3050, 1), 0);
	/* results, by list identifier */
	host_in(n, 1, (uint8_t[16]){ 0x84, 0, 7, [13] = 64 }, 16, 64);
	ck_assert_str_eq(host_result(n), "good");
	ck_assert_uint_eq(n->in[4], 1);
	ck_assert_uint_eq(get_be32(n->in + 8), 4000 * 512);
	host_in(n, 1, (uint8_t[16]){ 0x84, 0, 8, [13] = 64 }, 16, 64);
	ck_assert_str_eq(host_result(n), "05/24/00");
	host_in(n, 1, (uint8_t[16]){ 0x84, 5, 0, 1, 0x23, 0x45, [13] = 128 }, 16, 128);
	ck_assert_str_eq(host_result(n), "good");
	ck_assert_uint_eq(n->in[5], 1);
	ck_assert_uint_eq(get_be64(n->in + 16), 3000 * 512);
	/* beyond either end, to nowhere */
	ck_assert_str_eq(xcopy(false, 1, 2, 0, 8 * 2048 - 1, 2, 1), "0a/00/00");
	ck_assert_str_eq(xcopy(false, 1, 2, UINT64_MAX, 0, 2, 1), "0a/00/00");
	/* another nexus has reserved what would be written */
	struct host_nexus *b = host_login_ready(&h, "iqn.b"), *me = n;
	host_tur(b, 2);
	host_none(b, 2, (uint8_t[6]){ 0x16 }, 6);
	ck_assert_str_eq(host_result(b), "good");
	n = me;
	host_in(n, 2, (uint8_t[]){ 0x12, 0, 0, 0, 36, 0 }, 6, 36);
	ck_assert_str_eq(xcopy(false, 1, 2, 0, 0, 2, 1), "0a/0d/02");
	host_close(&h);
}
END_TEST

static bool hide_2(struct scsi_target *t, uint32_t lun, const char *iqn, const char *address,
		   void *arg)
{
	return lun != 2 || strcmp(iqn, "iqn.b") == 0;
}
static void do_mask(void *arg)
{
	scsi_target_set_mask(h.target, NULL, hide_2, NULL);
}

/* What an initiator may not see it cannot have copied, even when it knows the name. */
START_TEST(copy_keeps_to_the_mask)
{
	uint8_t p[16 + 64 + 28] = { 0 }, cdb[16] = { 0x83 };

	open2();
	host_identification(n, 2, p + 16);
	host_identification(n, 1, p + 48);
	host_do(&h, do_mask, NULL);
	host_steps(&h, 5);
	put_be16(p + 2, 64);
	put_be32(p + 8, 28);
	p[80] = 2;
	put_be16(p + 82, 24);
	put_be16(p + 86, 1);
	put_be16(p + 90, 1);
	cdb[13] = sizeof(p);
	host_tur(n, 1);
	host_out(n, 1, cdb, 16, p, sizeof(p));
	ck_assert_str_eq(host_result(n), "0a/08/04");
	host_close(&h);
}
END_TEST

static void ranges(uint8_t *p, uint64_t lba, uint32_t blocks)
{
	put_be64(p, lba);
	put_be32(p + 8, blocks);
}

static const char *populate(uint8_t *token, uint64_t lba, uint32_t blocks, uint32_t id)
{
	uint8_t p[32] = { 0 }, cdb[16] = { 0x83, 0x10, [13] = 32 };

	put_be16(p, 30);
	put_be16(p + 14, 16);
	ranges(p + 16, lba, blocks);
	put_be32(cdb + 6, id);
	host_out(n, 1, cdb, 16, p, 32);
	if (n->status != SAM_GOOD)
		return host_result(n);
	uint8_t rrti[16] = { 0x84, 0x07, [12] = 4 };
	put_be32(rrti + 2, id);
	host_in(n, 1, rrti, 16, 1024);
	ck_assert_str_eq(host_result(n), "good");
	ck_assert_uint_eq(get_be32(n->in), n->in_len - 4);
	ck_assert_uint_eq(get_be64(n->in + 16), blocks);
	size_t at = 32u + n->in[13];
	ck_assert_uint_eq(get_be32(n->in + at), 514);
	memcpy(token, n->in + at + 4 + 2, 512);
	return "good";
}

static const char *use(const uint8_t *token, uint32_t lun, uint64_t skip, uint64_t lba,
		       uint32_t blocks)
{
	uint8_t p[536 + 16] = { 0 }, cdb[16] = { 0x83, 0x11 };

	put_be16(p, sizeof(p) - 2);
	put_be64(p + 8, skip);
	memcpy(p + 16, token, 512);
	put_be16(p + 534, 16);
	ranges(p + 536, lba, blocks);
	put_be32(cdb + 6, 99);
	put_be32(cdb + 10, sizeof(p));
	host_out(n, lun, cdb, 16, p, sizeof(p));
	return host_result(n);
}

START_TEST(tokens)
{
	uint8_t token[512], forged[512], zero[512] = { 0xff, 0xff, 0x00, 0x01 };

	open2();
	host_fill(n, 1, 100, 3000, 't');
	ck_assert_str_eq(populate(token, 100, 3000, 5), "good");
	ck_assert_str_eq(use(token, 2, 0, 10, 3000), "good");
	ck_assert_int_eq(host_holds(n, 2, 10, 3000), 't');
	ck_assert_str_eq(use(token, 2, 2990, 5000, 100), "good"); /* ten are left from there */
	ck_assert_int_eq(host_holds(n, 2, 5000, 10), 't');
	ck_assert_int_eq(host_holds(n, 2, 5010, 1), 0);
	/* a write beside it does nothing, one into it revokes it */
	host_fill(n, 1, 99, 1, 'w');
	host_fill(n, 1, 3100, 1, 'w');
	ck_assert_str_eq(use(token, 2, 0, 10, 1), "good");
	host_fill(n, 1, 3099, 1, 'w');
	ck_assert_str_eq(use(token, 2, 0, 10, 1), "05/23/04");
	/* forged, cut, for nothing */
	ck_assert_str_eq(populate(token, 0, 8, 6), "good");
	memcpy(forged, token, 512);
	forged[140] ^= 1;
	ck_assert_str_eq(use(forged, 2, 0, 10, 1), "05/23/04");
	put_be16(forged + 6, 3);
	ck_assert_str_eq(use(forged, 2, 0, 10, 1), "05/23/0a");
	ck_assert_str_eq(populate(forged, 1 << 20, 8, 6), "05/21/00");
	/* onto itself */
	ck_assert_str_eq(use(token, 1, 0, 4, 8), "05/23/06");
	/* zeros */
	zero[6] = 0x01;
	zero[7] = 0xf8;
	ck_assert_str_eq(use(zero, 2, 0, 10, 20), "good");
	ck_assert_int_eq(host_holds(n, 2, 10, 20), 0);
	ck_assert_int_eq(host_holds(n, 2, 30, 20), 't');
	host_close(&h);
}
END_TEST

static const char *result_of(uint32_t id)
{
	uint8_t cdb[16] = { 0x84, 0x07, [12] = 4 };

	put_be32(cdb + 2, id);
	host_in(n, 1, cdb, 16, 1024);
	return host_result(n);
}

/* One initiator's tokens leave room for others'; its results push out its own alone. */
START_TEST(one_initiator_leaves_room)
{
	struct host_nexus *one, *hog;
	uint8_t token[512];
	uint32_t id;

	open2();
	one = n;
	hog = n = host_login_ready(&h, "iqn.hog");
	for (id = 1; id <= 256; id++)
		ck_assert_str_eq(populate(token, 0, 8, id), "good");
	ck_assert_str_eq(populate(token, 0, 8, id), "busy");
	n = one;
	ck_assert_str_eq(populate(token, 0, 8, 1), "good");
	ck_assert_str_eq(use(token, 2, 0, 10, 8), "good");
	n = hog;
	for (id = 1000; id < 2100; id++)
		ck_assert_str_eq(populate(token, 0, 8, id), "busy");
	ck_assert_str_eq(result_of(2099), "good");
	ck_assert_str_eq(result_of(2099 - 63), "good");
	ck_assert_str_eq(result_of(2099 - 64), "05/24/00");
	n = one;
	ck_assert_str_eq(result_of(1), "good");
	host_close(&h);
}
END_TEST

/* A store under a LUN whose reads wait while there is no way on; all on one loop. */
static struct pass *gate;
static struct blk_req *kept;
static bool holding;

static int keep(struct pass *p, struct blk_req *req)
{
	if (!holding || req->op != BLK_READ)
		return 0;
	ck_assert_ptr_null(kept);
	kept = req;
	return 1;
}

static bool let_go(struct pass *p, struct blk_req *req)
{
	bool mine = req == kept;

	if (mine)
		kept = NULL;
	return mine;
}

static void behind_gate(struct scsi_lu_conf *c)
{
	gate = calloc(1, sizeof(*gate));
	pass_init(gate, c->blk, "gate");
	gate->gate = keep;
	gate->abort = let_go;
	c->blk = &gate->blk;
}

static struct host_cmd *start_use(const uint8_t *token, uint32_t lun, uint32_t blocks)
{
	static uint8_t p[536 + 16];
	uint8_t cdb[16] = { 0x83, 0x11 };

	memset(p, 0, sizeof(p));
	put_be16(p, sizeof(p) - 2);
	memcpy(p + 16, token, 512);
	put_be16(p + 534, 16);
	ranges(p + 536, 0, blocks);
	put_be32(cdb + 6, 99);
	put_be32(cdb + 10, sizeof(p));
	return host_start(n, (uint64_t)lun << 48, cdb, 16, false, p, sizeof(p));
}

static void do_delete_source(void *arg)
{
	scsi_lu_delete(h.lu, true, host_outcome, arg);
}

static void do_another_store(void *arg)
{
	struct blk_open_args args = { .path = "16m", .block_size = 512, .node = -1 };

	scsi_lu_set_blk(h.lu, blk_open("ram", &args), host_outcome, arg);
}

static void do_let_go(void *arg)
{
	struct blk_req *req = kept;

	(void)arg;
	holding = false;
	kept = NULL;
	if (pass_go(gate, req))
		blk_complete_here(req, req->status);
}

/* Deleting the source (even if its store is stuck), or giving it another store, does not wait until
 * WRITE USING TOKEN is through: the copy ends with the piece at work. */
START_TEST(tokens_whose_source_goes)
{
	struct host_outcome over = { false, 1 };
	bool goes = _i;
	uint8_t token[512];
	struct host_cmd *c;

	holding = false;
	kept = NULL;
	host_open_conf(&h, "16m", 512, behind_gate);
	host_add_lu(&h, 2, "16m", 512);
	n = host_login_ready(&h, "iqn.a");
	host_tur(n, 2);
	ck_assert_str_eq(populate(token, 0, 30000, 5), "good");
	holding = true;
	c = start_use(token, 2, 30000);
	host_steps(&h, 3);
	ck_assert_ptr_nonnull(kept);
	host_do(&h, goes ? do_delete_source : do_another_store, &over);
	host_steps(&h, 3);
	if (!goes)
		host_do(&h, do_let_go, NULL);
	ck_assert(host_wait(&h, &over.done));
	ck_assert_int_eq(over.status, 0);
	host_finish(c);
	ck_assert_str_eq(host_result(n), goes ? "05/23/06" : "05/23/00");
	/* what the token stood for is nowhere any more */
	host_tur(n, 1);
	host_tur(n, 1);
	while (host_tur(n, 2) != SAM_GOOD)
		ck_assert_uint_eq(n->key, SENSE_UNIT_ATTENTION);
	ck_assert_str_eq(use(token, 2, 0, 0, 1), "05/23/04");
	host_close(&h);
}
END_TEST

START_TEST(sanitize)
{
	uint8_t p[4 + 512] = { 0x83, 0, 2, 0 }; /* three passes, inverted in between */
	struct host_nexus *b;
	struct host_cmd *c;

	open2();
	b = host_login_ready(&h, "iqn.b");
	host_fill(n, 1, 0, 100, 'x');
	memset(p + 4, 0x55, 512);
	c = host_start(n, 1ull << 48, (uint8_t[10]){ 0x48, 0x01, [7] = 2, [8] = 4 }, 10, false, p,
		       sizeof(p));
	ck_assert(!c->completed);
	host_tur(b, 1);
	ck_assert_str_eq(host_result(b), "02/04/1b");
	ck_assert_uint_eq(b->sense[15] & 0x80, 0x80); /* progress */
	host_in(b, 1, (uint8_t[]){ 0x03, 0, 0, 0, 18, 0 }, 6, 18);
	ck_assert_uint_eq(get_be16(b->in + 12), 0x041b);
	ck_assert_int_eq(host_tmf(b, TMF_LU_RESET, 1), TMF_COMPLETE); /* does not end it */
	ck_assert(c->ended);
	host_finish(c);
	ck_assert_str_eq(host_result(n), "aborted");
	do
		host_tur(b, 1);
	while (b->key == SENSE_UNIT_ATTENTION || b->asc == 0x041b);
	ck_assert_str_eq(host_result(b), "good");
	host_tur(n, 1);
	ck_assert_int_eq(host_holds(n, 1, 0, 1000), 0x55);
	ck_assert_int_eq(host_holds(n, 1, 31000, 1000), 0x55);
	host_none(n, 1, (uint8_t[10]){ 0x48, 0x82 }, 10); /* BLOCK ERASE, IMMED */
	ck_assert_str_eq(host_result(n), "good");
	do
		host_tur(n, 1);
	while (n->status != SAM_GOOD);
	ck_assert_int_eq(host_holds(n, 1, 0, 1000), 0);
	/* the unit goes in the middle of it */
	host_none(n, 1, (uint8_t[10]){ 0x48, 0x82 }, 10);
	host_close(&h);
}
END_TEST

static int rate_set;
static void do_rate(void *arg)
{
	rate_set = scsi_lu_update(h.lu, "sanitize_rate", arg);
}

/* More than the MAXIMUM TOKEN TRANSFER SIZE of VPD page 8Fh, by one range or by two. */
START_TEST(token_too_large)
{
	uint8_t p[536 + 32] = { 0 }, cdb[16] = { 0x83, 0x11 }, ids[32] = { 0 };
	uint32_t half = 1u << 24 | 8; /* blocks; twice that is more than 16 GiB */

	host_open(&h, "20g", 512);
	n = host_login_ready(&h, "iqn.a");
	put_be16(p, sizeof(p) - 2);
	put_be32(p + 16, 0xffff0001u); /* zeros */
	put_be16(p + 16 + 6, 0x1f8);
	put_be16(p + 534, 32);
	ranges(p + 536, 0, half);
	ranges(p + 552, half, half);
	put_be32(cdb + 10, sizeof(p));
	host_out(n, 1, cdb, 16, p, sizeof(p));
	ck_assert_str_eq(host_result(n), "05/26/00");
	put_be16(p + 534, 16);
	host_out(n, 1, cdb, 16, p, sizeof(p));
	ck_assert_str_eq(host_result(n), "good");
	ck_assert_str_eq(populate(ids, 0, 2 * half, 1), "05/26/00");
	host_close(&h);
}
END_TEST

static struct host_cmd *start_sanitize(struct host_nexus *by, bool immed)
{
	return host_start(
		by, 1ull << 48,
		(uint8_t[]){ 0x48, (uint8_t)(immed ? 0x82 : 0x02), 0, 0, 0, 0, 0, 0, 0, 0 }, 10,
		false, NULL, 0);
}

static void wait_sanitized(struct host_nexus *by)
{
	for (unsigned i = 0; i < 1000; i++) {
		host_tur(by, 1);
		if (strcmp(host_result(by), "02/04/1b") != 0)
			break;
		host_steps(&h, 1);
	}
	ck_assert_str_eq(host_result(by), "good");
}

/* A write that passed before SANITIZE came does not land in what has been sanitized: the operation
 * waits for it, while everybody else is told that it is in progress. By another I_T nexus or the
 * own one, with IMMED or without. */
START_TEST(sanitize_waits_for_older_writes)
{
	bool own = _i & 1, immed = _i & 2;
	struct host_nexus *other, *writer;
	struct host_cmd *write, *erase;
	uint8_t data[4096];

	memset(data, 's', sizeof(data));
	host_open(&h, "8m", 512);
	n = host_login_ready(&h, "iqn.a");
	other = host_login_ready(&h, "iqn.b");
	writer = own ? n : other;
	writer->hold_fetch = true;
	write = host_start(writer, 1ull << 48, (uint8_t[]){ 0x2a, 0, 0, 0, 0, 8, 0, 0, 8, 0 }, 10,
			   false, data, 4096);
	host_steps(&h, 3);
	ck_assert(!write->completed);
	erase = start_sanitize(n, immed);
	host_steps(&h, 50);
	ck_assert(erase->completed == immed);
	ck_assert(!write->completed);
	/* Who tries again and again is refused, and not waited for. */
	for (unsigned i = 0; i < 3; i++) {
		host_tur(other, 1);
		ck_assert_str_eq(host_result(other), "02/04/1b");
		host_tur(n, 1);
		ck_assert_str_eq(host_result(n), "02/04/1b");
	}
	/* REQUEST SENSE tells the progress in either format, whatever D_SENSE says. */
	host_in(n, 1, (uint8_t[]){ 0x03, 0, 0, 0, 64, 0 }, 6, 64);
	ck_assert_uint_eq(n->in_len, 18);
	ck_assert_uint_eq(get_be16(n->in + 12), 0x041b);
	ck_assert_uint_eq(n->in[15], 0x80);
	host_in(n, 1, (uint8_t[]){ 0x03, 1, 0, 0, 64, 0 }, 6, 64);
	ck_assert_uint_eq(n->in_len, 16);
	ck_assert_uint_eq(get_be16(n->in + 2), 0x041b);
	ck_assert_uint_eq(get_be16(n->in + 8), 0x0206);
	ck_assert_uint_eq(n->in[12], 0x80);
	host_release(writer);
	writer->hold_fetch = false;
	host_finish(write);
	ck_assert_str_eq(host_result(writer), "good");
	host_finish(erase);
	ck_assert_str_eq(host_result(n), "good");
	wait_sanitized(n);
	ck_assert_int_eq(host_holds(n, 1, 0, 100), 0);
	host_close(&h);
}
END_TEST

static void do_delete_h_lu(void *arg)
{
	scsi_lu_delete(h.lu, true, host_outcome, arg);
}

/* What SANITIZE waits for may be aborted, and its own command, and its unit deleted. */
START_TEST(sanitize_that_waits)
{
	struct host_outcome over = { false, 1 };
	struct host_nexus *writer;
	struct host_cmd *write, *erase;
	uint8_t data[512] = { 1 };

	host_open(&h, "8m", 512);
	n = host_login_ready(&h, "iqn.a");
	writer = host_login_ready(&h, "iqn.b");
	writer->hold_fetch = true;
	write = host_start(writer, 1ull << 48, (uint8_t[]){ 0x2a, 0, 0, 0, 0, 8, 0, 0, 1, 0 }, 10,
			   false, data, 512);
	erase = start_sanitize(n, false);
	host_steps(&h, 10);
	ck_assert(!erase->completed);
	switch (_i) {
	case 0: /* it goes on without its command */
		host_abort(erase);
		host_finish(erase);
		host_tur(n, 1);
		ck_assert_str_eq(host_result(n), "02/04/1b");
		host_abort(write);
		host_finish(write);
		writer->hold_fetch = false;
		wait_sanitized(n);
		break;
	case 1:
		host_abort(write);
		host_finish(write);
		host_finish(erase);
		ck_assert_str_eq(host_result(n), "good");
		break;
	case 2: /* the session of the write goes */
		host_abort(write);
		host_finish(write);
		host_logout(writer);
		host_finish(erase);
		ck_assert_str_eq(host_result(n), "good");
		break;
	default:
		host_do(&h, do_delete_h_lu, &over);
		ck_assert(host_wait(&h, &over.done));
		ck_assert_int_eq(over.status, 0);
		host_finish(write);
		host_finish(erase);
	}
	host_close(&h);
}
END_TEST

/* 16 MiB at 16 MiB/s: a second, or a little less; and the limit goes away on the way. */
START_TEST(sanitize_rate)
{
	uint8_t p[4 + 1] = { 0x01, 0, 0, 1, 0x33 };
	uint64_t began, took;

	open2();
	for (int lifted = 0; lifted < 2; lifted++) {
		host_do(&h, do_rate, (void *)(uintptr_t)(lifted ? "1" : "16"));
		ck_assert_int_eq(rate_set, 0);
		began = clock_now_ns();
		host_out(n, 1, (uint8_t[10]){ 0x48, 0x81, [8] = 5 }, 10, p, 5); /* IMMED */
		ck_assert_str_eq(host_result(n), "good");
		host_tur(n, 1);
		ck_assert_str_eq(host_result(n), "02/04/1b");
		if (lifted)
			host_do(&h, do_rate, (void *)(uintptr_t)"0");
		do
			host_tur(n, 1);
		while (n->asc == 0x041b);
		ck_assert_str_eq(host_result(n), "good");
		took = clock_now_ns() - began;
		if (lifted)
			ck_assert_uint_lt(took, 8 * NSEC_PER_SEC); /* it would be 16 s */
		else
			ck_assert_uint_gt(took, 9 * NSEC_PER_SEC / 10);
		ck_assert_int_eq(host_holds(n, 1, 0, 1000), 0x33);
	}
	/* deleted on the way */
	host_do(&h, do_rate, (void *)(uintptr_t)"1");
	host_none(n, 1, (uint8_t[10]){ 0x48, 0x82 }, 10);
	ck_assert_str_eq(host_result(n), "good");
	began = clock_now_ns();
	host_close(&h);
	ck_assert_uint_lt(clock_now_ns() - began, 4 * NSEC_PER_SEC);
}
END_TEST

START_TEST(sanitize_parameters)
{
	uint8_t p[4 + 513] = { 0x01, 0, 0, 0 };

	open2();
	for (unsigned len = 0; len < 5; len++) {
		host_out(n, 1, (uint8_t[10]){ 0x48, 0x01, [8] = (uint8_t)len }, 10, p, len);
		ck_assert_str_eq(host_result(n), "05/24/00");
	}
	host_out(n, 1, (uint8_t[10]){ 0x48, 0x01, [7] = 2, [8] = 5 }, 10, p, 517);
	ck_assert_str_eq(host_result(n), "05/24/00");
	host_out(n, 1, (uint8_t[10]){ 0x48, 0x01, [8] = 8 }, 10, p, 8); /* pattern of no length */
	ck_assert_str_eq(host_result(n), "05/26/00");
	p[3] = 4;
	p[0] = 0; /* no passes */
	host_out(n, 1, (uint8_t[10]){ 0x48, 0x01, [8] = 8 }, 10, p, 8);
	ck_assert_str_eq(host_result(n), "05/26/00");
	host_none(n, 1, (uint8_t[10]){ 0x48, 0x03 }, 10); /* CRYPTOGRAPHIC ERASE */
	ck_assert_str_eq(host_result(n), "05/24/00");
	host_none(n, 1, (uint8_t[10]){ 0x48, 0x1f }, 10);
	ck_assert_str_eq(host_result(n), "good");
	host_close(&h);
}
END_TEST

START_TEST(port_groups)
{
	struct host_nexus *b;
	uint8_t set[8] = { 0, 0, 0, 0, 0x02, 0, 0, 1 };

	open2();
	scsi_target_allow(h.target, SCSI_ALLOW_ALUA, true);
	b = host_login_ready(&h, "iqn.b");
	host_tur(n, 1); /* TPGS has changed */
	ck_assert_str_eq(host_result(n), "06/3f/03");
	host_in(n, 1, (uint8_t[12]){ 0xa3, 0x0a, [9] = 64 }, 12, 64);
	ck_assert_str_eq(host_result(n), "good");
	ck_assert_uint_eq(get_be32(n->in), 12);
	ck_assert_uint_eq(n->in[4] & 0x0f, 0);
	host_out(n, 1, (uint8_t[12]){ 0xa4, 0x0a, [9] = 8 }, 12, set, 8); /* standby */
	ck_assert_str_eq(host_result(n), "good");
	host_tur(n, 1);
	ck_assert_str_eq(host_result(n), "02/04/0b");
	host_tur(b, 1);
	ck_assert_str_eq(host_result(b), "06/2a/06");
	host_in(b, 1, (uint8_t[]){ 0x12, 0, 0, 0, 36, 0 }, 6, 36);
	ck_assert_str_eq(host_result(b), "good");
	ck_assert_uint_eq(b->in[5] & 0x30, 0x30);
	host_in(n, 1, (uint8_t[12]){ 0xa3, 0x2a, [9] = 64 }, 12, 64);
	ck_assert_uint_eq(n->in[8] & 0x0f, 2);
	set[4] = 0;
	host_out(b, 1, (uint8_t[12]){ 0xa4, 0x0a, [9] = 8 }, 12, set, 8);
	ck_assert_str_eq(host_result(b), "good");
	host_tur(n, 1);
	ck_assert_str_eq(host_result(n), "06/2a/06");
	host_tur(n, 1);
	ck_assert_str_eq(host_result(n), "good");
	set[7] = 9;
	host_out(b, 1, (uint8_t[12]){ 0xa4, 0x0a, [9] = 8 }, 12, set, 8);
	ck_assert_str_eq(host_result(b), "05/26/00");
	host_close(&h);
}
END_TEST

static void tur_is(struct host_nexus *who, const char *want)
{
	host_tur(who, 1);
	ck_assert_str_eq(host_result(who), want);
}

/* Who would be told another list of ports than before hears of it, once, and nobody else. */
START_TEST(ports_change)
{
	static const uint16_t one[] = { 1 }, two[] = { 1, 2 }, other[] = { 2 };
	struct host_nexus *b;

	open2();
	scsi_set_ports(one, 1); /* it was in use: nothing new */
	tur_is(n, "good");
	scsi_set_ports(two, 2);
	tur_is(n, "06/3f/03");
	tur_is(n, "good");
	scsi_set_ports(two, 2);
	tur_is(n, "good");
	b = host_login_ready(&h, "iqn.b"); /* by port 1 as well */
	scsi_set_ports(other, 1);	   /* which is closed, and there as long as they use it */
	tur_is(n, "good");
	tur_is(b, "good");
	b->n.rtpi = 2; /* as if it had come by port 2 */
	host_logout(b);
	tur_is(n, "good");
	b = host_login_ready(&h, "iqn.b");
	host_logout(b); /* the last but one by port 1 */
	tur_is(n, "good");
	b = host_login_ready(&h, "iqn.b");
	b->n.rtpi = 2;
	host_logout(n); /* the last */
	tur_is(b, "06/3f/03");
	tur_is(b, "good");
	scsi_set_ports(NULL, 0);
	host_close(&h);
}
END_TEST

/* A nexus that works for a copy (xcopy.c) came in by no port: no relative target port 0, which is
 * reserved, and nobody is told of a port that leaves when it does. */
START_TEST(no_port_0)
{
	struct host_nexus *b;

	open2();
	b = host_login_ready(&h, "iqn.b");
	b->n.rtpi = 0;
	host_in(n, 1, (uint8_t[12]){ 0xa3, 0x0a, [9] = 64 }, 12, 64);
	ck_assert_str_eq(host_result(n), "good");
	ck_assert_uint_eq(n->in_len, 4 + 8 + 4);
	ck_assert_uint_eq(get_be32(n->in), 12);
	ck_assert_uint_eq(n->in[11], 1);
	ck_assert_uint_eq(get_be16(n->in + 14), 1);
	host_in(n, 1, (uint8_t[6]){ 0x12, 1, 0x88, 4, 0 }, 6, 1024);
	ck_assert_str_eq(host_result(n), "good");
	ck_assert_uint_eq(get_be16(n->in + 6), 1);
	ck_assert_uint_eq(n->in_len, 4 + 12u + get_be16(n->in + 4 + 10)); /* one descriptor */
	host_logout(b);
	tur_is(n, "good");
	host_close(&h);
}
END_TEST

/* All ports that are configured are told, in the group and in VPD page 88h alike, also those nobody
 * came by; one that is no longer configured as long as a session uses it. */
START_TEST(ports)
{
	static const uint16_t some[] = { 7, 2, 7, 40000 }, want[] = { 1, 2, 7, 40000 };
	uint16_t many[100];
	size_t at;

	open2();
	scsi_set_ports(some, ARRAY_SIZE(some));
	host_tur(n, 1);
	ck_assert_str_eq(host_result(n), "06/3f/03");
	host_in(n, 1, (uint8_t[12]){ 0xa3, 0x0a, [9] = 64 }, 12, 64);
	ck_assert_str_eq(host_result(n), "good");
	ck_assert_uint_eq(n->in[4], 0); /* active/optimized, not preferred */
	ck_assert_uint_eq(n->in[11], 4);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_uint_eq(get_be16(n->in + 12 + 4 * i + 2), want[i]);
	host_in(n, 1, (uint8_t[6]){ 0x12, 1, 0x88, 4, 0 }, 6, 1024);
	ck_assert_str_eq(host_result(n), "good");
	at = 4;
	for (unsigned i = 0; i < 4; i++) {
		char name[32];

		ck_assert_uint_eq(get_be16(n->in + at + 2), want[i]);
		snprintf(name, sizeof(name), ",t,0x%04x", want[i]);
		ck_assert_ptr_nonnull(strstr((char *)n->in + at + 12 + 4, name));
		at += 12u + get_be16(n->in + at + 10);
	}
	ck_assert_uint_eq(at, n->in_len);
	ck_assert_uint_eq(get_be16(n->in + 2), n->in_len - 4);
	/* more than there is room for */
	for (unsigned i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = (uint16_t)(1000 + i);
	scsi_set_ports(many, ARRAY_SIZE(many));
	host_tur(n, 1);
	host_in(n, 1, (uint8_t[12]){ 0xa3, 0x0a, [8] = 4 }, 12, 1024);
	ck_assert_uint_eq(n->in[11], 64);
	host_in(n, 1, (uint8_t[6]){ 0x12, 1, 0x88, 0x40, 0 }, 6, 0x4000);
	ck_assert_str_eq(host_result(n), "good");
	scsi_set_ports(NULL, 0);
	host_tur(n, 1);
	host_in(n, 1, (uint8_t[12]){ 0xa3, 0x0a, [9] = 64 }, 12, 64);
	ck_assert_uint_eq(n->in[11], 1);
	host_close(&h);
}
END_TEST

START_TEST(log_pages)
{
	open2();
	host_fill(n, 1, 0, 2048, 'x'); /* one MiB of sixteen */
	host_in(n, 1, (uint8_t[10]){ 0x4d, 0, 0x40 | 0x0c, [8] = 64 }, 10, 64);
	ck_assert_str_eq(host_result(n), "good");
	ck_assert_uint_eq(get_be32(n->in + 8), 15);
	ck_assert_uint_eq(get_be32(n->in + 20), 1);
	host_in(n, 1, (uint8_t[10]){ 0x4d, 0, 0x40 | 0x19, [8] = 128 }, 10, 128);
	ck_assert_str_eq(host_result(n), "good");
	ck_assert_uint_eq(get_be64(n->in + 8 + 8), 1);     /* writes */
	ck_assert_uint_eq(get_be64(n->in + 8 + 16), 2048); /* blocks received */
	/* its mandatory parameters, without which sg_logs shows nothing at all */
	ck_assert_uint_eq(n->in_len, 4 + 68 + 12 + 12);
	ck_assert_uint_eq(get_be16(n->in + 4), 1);
	ck_assert_uint_eq(get_be16(n->in + 4 + 68), 2);	     /* idle time */
	ck_assert_uint_eq(get_be16(n->in + 4 + 68 + 12), 3); /* time interval */
	/* From parameter 2 on. */
	host_in(n, 1, (uint8_t[10]){ 0x4d, 0, 0x40 | 0x0c, [6] = 2, [8] = 64 }, 10, 64);
	ck_assert_uint_eq(n->in_len, 4 + 12);
	host_in(n, 1, (uint8_t[10]){ 0x4d, 0, 0x40 | 0x0c, [6] = 3, [8] = 64 }, 10, 64);
	ck_assert_str_eq(host_result(n), "05/24/00");
	host_in(n, 1, (uint8_t[10]){ 0x4d, 0, 0x40 | 0x33, [8] = 64 }, 10, 64);
	ck_assert_str_eq(host_result(n), "05/24/00");
	host_close(&h);
}
END_TEST

UNIT_TABLE("copy", 60, { extended_copy }, { copy_keeps_to_the_mask }, { tokens },
	   { one_initiator_leaves_room },
	   { tokens_whose_source_goes, 2 }, { token_too_large }, { sanitize },
	   { sanitize_waits_for_older_writes, 4 }, { sanitize_that_waits, 4 }, { sanitize_rate },
	   { sanitize_parameters }, { port_groups }, { ports }, { no_port_0 }, { ports_change },
	   { log_pages })
