/* SPDX-License-Identifier: GPL-2.0-or-later */
/* UNMAP of several ranges: what reaches the store, how much at once, errors, aborts. */
#include <stdlib.h>
#include "events/bytes.h"
#include "tests/support/blk_pass.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"

#define AT_ONCE 16u

static struct host h;
static struct host_nexus *n;

/* The store: what it was asked to unmap, and what of it is kept. */
static struct pass *gate;
static struct blk_req *kept[64];
static unsigned nkept, asked;
static struct {
	uint64_t lba, blocks;
	uint8_t op;
} seen[5000];
static bool holding;
static uint64_t bad_lba;

static int keep(struct pass *p, struct blk_req *req)
{
	if (req->op != BLK_DISCARD && req->op != BLK_ZERO)
		return 0;
	ck_assert_uint_lt(asked, ARRAY_SIZE(seen));
	seen[asked].op = req->op;
	seen[asked].lba = req->offset / 512;
	seen[asked++].blocks = req->len / 512;
	if (!holding)
		return req->offset / 512 == bad_lba ? -EIO : 0;
	ck_assert_uint_lt(nkept, ARRAY_SIZE(kept));
	kept[nkept++] = req;
	return 1;
}

static bool let_go(struct pass *p, struct blk_req *req)
{
	for (unsigned i = 0; i < nkept; i++)
		if (kept[i] == req) {
			kept[i] = kept[--nkept];
			return true;
		}
	return false;
}

static void behind_gate(struct scsi_lu_conf *c)
{
	gate = calloc(1, sizeof(*gate));
	pass_init(gate, c->blk, "gate");
	gate->gate = keep;
	gate->abort = let_go;
	c->blk = &gate->blk;
	c->thin_provisioning = true;
}

static void setup(const char *size)
{
	nkept = asked = 0;
	holding = false;
	bad_lba = UINT64_MAX;
	host_open_conf(&h, size, 512, behind_gate);
	n = host_login_ready(&h, "iqn.a");
}

/* The newest one that is kept; as the store does it, or with @arg, an int. */
static void do_release(void *arg)
{
	struct blk_req *req = kept[--nkept];
	const int *err = arg;

	if (err)
		blk_complete_here(req, *err);
	else if (pass_go(gate, req))
		blk_complete_here(req, req->status);
}

/* ---- parameter lists ------------------------------------------------------------------------- */

static uint8_t list[8 + 16 * 4096];
static uint32_t len;

static void begin(void)
{
	memset(list, 0, sizeof(list));
	len = 8;
}

static void range(uint64_t lba, uint32_t blocks)
{
	put_be64(list + len, lba);
	put_be32(list + len + 8, blocks);
	len += 16;
}

static const uint8_t *cdb(bool anchor)
{
	static uint8_t cdb[10];

	put_be16(list, (uint16_t)(len - 2));
	put_be16(list + 2, (uint16_t)(len - 8));
	cdb[0] = 0x42;
	cdb[1] = anchor;
	put_be16(cdb + 7, (uint16_t)len);
	return cdb;
}

static const char *unmap(bool anchor)
{
	host_out(n, 1, cdb(anchor), 10, list, len);
	return host_result(n);
}

static struct host_cmd *start(void)
{
	return host_start(n, 1ull << 48, cdb(false), 10, false, list, len);
}

/* @count ranges that do not adjoin, of 4 blocks each. */
static void apart(unsigned count)
{
	begin();
	for (unsigned i = 0; i < count; i++)
		range(8 * i, 4);
}

/* The store keeps all that it has been asked for. */
static struct host_cmd *start_apart(unsigned count)
{
	struct host_cmd *c;

	setup("8m");
	apart(count);
	holding = true;
	c = start();
	host_steps(&h, 3);
	ck_assert_uint_eq(nkept, AT_ONCE);
	return c;
}

/* ---- what reaches the store ------------------------------------------------------------------ */

START_TEST(neighbours_are_joined)
{
	setup("8m");
	host_fill(n, 1, 0, 4100, 0x5a);
	begin();
	for (unsigned i = 0; i < 256; i++) /* 77 is odd: each once, in no order */
		range(1 + 16 * (i * 77 % 256), 16);
	ck_assert_str_eq(unmap(_i), "good");
	ck_assert_uint_eq(asked, 1);
	ck_assert_uint_eq(seen[0].op, _i ? BLK_ZERO : BLK_DISCARD);
	ck_assert_uint_eq(seen[0].lba, 1);
	ck_assert_uint_eq(seen[0].blocks, 4096);
	ck_assert_int_eq(host_holds(n, 1, 0, 1), 0x5a);
	ck_assert_int_eq(host_holds(n, 1, 1, 4096), 0);
	ck_assert_int_eq(host_holds(n, 1, 4097, 3), 0x5a);
	host_close(&h);
}
END_TEST

START_TEST(overlapping_and_empty)
{
	setup("8m");
	host_fill(n, 1, 0, 100, 0x5a);
	begin();
	range(30, 10);
	range(0, 0);
	range(10, 15);
	range(12, 3);  /* within */
	range(20, 8);  /* over the end */
	range(28, 0);
	range(10, 15); /* again */
	range(16384, 0);
	ck_assert_str_eq(unmap(false), "good");
	ck_assert_uint_eq(asked, 2);
	ck_assert_uint_eq(seen[0].lba, 10);
	ck_assert_uint_eq(seen[0].blocks, 18);
	ck_assert_uint_eq(seen[1].lba, 30);
	ck_assert_uint_eq(seen[1].blocks, 10);
	ck_assert_int_eq(host_holds(n, 1, 0, 10), 0x5a);
	ck_assert_int_eq(host_holds(n, 1, 10, 18), 0);
	ck_assert_int_eq(host_holds(n, 1, 28, 2), 0x5a);
	ck_assert_int_eq(host_holds(n, 1, 30, 10), 0);
	ck_assert_int_eq(host_holds(n, 1, 40, 60), 0x5a);

	begin();
	range(5, 0);
	range(0, 0);
	asked = 0;
	ck_assert_str_eq(unmap(false), "good");
	ck_assert_uint_eq(asked, 0);
	host_close(&h);
}
END_TEST

/* Joining does not make what others have to wait for longer than 1 GiB. */
START_TEST(long_ranges_stay)
{
	const uint32_t gib = (uint32_t)(GiB(1) / 512);

	setup("6g");
	begin();
	range(0, 2 * gib);
	range(2 * gib, gib / 2);
	range(2 * gib + gib / 2, gib / 2);
	range(3 * gib, 8);
	range(gib, 2 * gib); /* all of it is named already */
	ck_assert_str_eq(unmap(false), "good");
	ck_assert_uint_eq(asked, 3);
	ck_assert_uint_eq(seen[0].blocks, 2 * gib);
	ck_assert_uint_eq(seen[1].lba, 2 * gib);
	ck_assert_uint_eq(seen[1].blocks, gib);
	ck_assert_uint_eq(seen[2].lba, 3 * gib);
	ck_assert_uint_eq(seen[2].blocks, 8);
	host_close(&h);
}
END_TEST

START_TEST(the_longest_list)
{
	setup("8m");
	host_fill(n, 1, 0, 8192, 0x5a);
	host_fill(n, 1, 8192, 8192, 0x5a);
	begin();
	for (unsigned i = 0; i < 4095; i++) /* the list's length has 16 bits */
		range(4 * i, 1);
	ck_assert_str_eq(unmap(false), "good");
	ck_assert_uint_eq(asked, 4095);
	for (unsigned i = 0; i < 4095; i++)
		ck_assert_uint_eq(seen[i].lba, 4 * i);
	host_read10(n, 0, 8192);
	for (unsigned i = 0; i < 8192; i++)
		ck_assert_uint_eq(n->in[i * 512], i % 4 ? 0x5a : 0);
	host_close(&h);
}
END_TEST

/* ---- how much at once ------------------------------------------------------------------------ */

START_TEST(several_at_once)
{
	struct host_cmd *c = start_apart(256);

	for (unsigned done = 0; done < 256; done++) {
		host_steps(&h, 3);
		ck_assert(!c->completed);
		ck_assert_uint_eq(nkept, MIN(AT_ONCE, 256 - done));
		host_do(&h, do_release, NULL);
	}
	host_finish(c);
	ck_assert_str_eq(host_result(n), "good");
	ck_assert_uint_eq(asked, 256);
	host_close(&h);
}
END_TEST

/* ---- errors and aborts ----------------------------------------------------------------------- */

/* The rest is not begun, and what has begun is waited for. */
START_TEST(one_fails)
{
	int err = -EIO;
	struct host_cmd *c = start_apart(40);

	host_do(&h, do_release, &err);
	for (unsigned i = 0; i < AT_ONCE - 1; i++) {
		host_steps(&h, 3);
		ck_assert(!c->completed);
		ck_assert_uint_eq(nkept, AT_ONCE - 1 - i);
		host_do(&h, do_release, NULL);
	}
	host_finish(c);
	ck_assert_str_eq(host_result(n), "03/0c/00");
	ck_assert_uint_eq(get_be32(n->sense + 3), 8 * 15);
	ck_assert_uint_eq(asked, AT_ONCE);

	/* on the spot, and of one range */
	holding = false;
	bad_lba = 8;
	ck_assert_str_eq(unmap(false), "03/0c/00");
	ck_assert_uint_eq(get_be32(n->sense + 3), 8);
	begin();
	range(8, 2);
	ck_assert_str_eq(unmap(false), "03/0c/00");
	ck_assert_uint_eq(get_be32(n->sense + 3), 8);
	host_close(&h);
}
END_TEST

START_TEST(aborted)
{
	struct host_cmd *c = start_apart(40);

	if (_i) /* the store does not let go: its own time */
		gate->abort = NULL;
	host_abort(c);
	ck_assert(!c->completed);
	while (_i && nkept) {
		host_steps(&h, 3);
		ck_assert(!c->completed);
		host_do(&h, do_release, NULL);
	}
	host_finish(c);
	ck_assert_str_eq(host_result(n), "aborted");
	ck_assert_uint_eq(nkept, 0);
	ck_assert_uint_eq(asked, AT_ONCE);
	host_close(&h);
}
END_TEST

/* Between two turns of a command whose requests all end on the spot. */
START_TEST(aborted_between)
{
	struct host_cmd *c;

	setup("8m");
	apart(1000);
	c = start();
	ck_assert(!c->completed);
	host_abort(c);
	host_finish(c);
	ck_assert_str_eq(host_result(n), "aborted");
	ck_assert_uint_lt(asked, 1000);
	host_close(&h);
}
END_TEST

UNIT_TABLE("unmap", 15, { neighbours_are_joined, 2 }, { overlapping_and_empty },
	   { long_ranges_stay }, { the_longest_list }, { several_at_once }, { one_fails },
	   { aborted, 2 }, { aborted_between })
