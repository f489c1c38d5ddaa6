/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Logical units that go, or are no longer what they were, under those who use them: deletion,
 * another store, a store that grows, masking, a target that goes. */
#include <stdlib.h>
#include <unistd.h>
#include "events/bytes.h"
#include "tests/support/blk_pass.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"

static struct host h;

static bool force;
static void do_lu_delete(void *arg)
{
	scsi_lu_delete(h.lu, force, host_outcome, arg);
}

START_TEST(deletion)
{
	struct host_nexus *a, *b;
	struct host_outcome r = { false, 0 };
	struct host_cmd *c;
	uint8_t data[512] = { 0 };

	host_open(&h, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
	b->hold_fetch = true;
	c = host_start(b, 1ull << 48, (uint8_t[]){ 0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0 }, 10, false,
		       data, 512);
	host_do(&h, do_lu_delete, &r);
	ck_assert(r.done);
	ck_assert_int_eq(r.status, -EBUSY);
	r.done = false;
	force = true;
	host_do(&h, do_lu_delete, &r);
	ck_assert(host_wait(&h, &r.done));
	ck_assert_int_eq(r.status, 0);
	ck_assert(c->ended);
	host_finish(c);
	h.lu = NULL;
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "05/25/00");
	host_tur(a, 0);
	ck_assert_str_eq(host_result(a), "06/29/00");
	host_tur(a, 0);
	ck_assert_str_eq(host_result(a), "06/3f/0e");
	ck_assert_ptr_null(scsi_lu_find(h.target, 1));
	/* again under the same number */
	h.lu = host_add_lu(&h, 1, "4m", 4096);
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "06/29/00");
	host_close(&h);
}
END_TEST

static struct blk *other;
static void do_swap(void *arg)
{
	scsi_lu_set_blk(h.lu, other, host_outcome, arg);
}

START_TEST(another_store)
{
	struct blk_open_args args = { .path = "16m", .block_size = 512, .node = -1 };
	struct host_nexus *a, *b;
	struct host_outcome r = { false, 0 };
	struct host_cmd *c, *held;
	uint8_t data[512];

	memset(data, 'd', sizeof(data));
	host_open(&h, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
	b->hold_fetch = true;
	c = host_start(b, 1ull << 48, (uint8_t[]){ 0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0 }, 10, false,
		       data, 512);
	other = blk_open("ram", &args);
	host_do(&h, do_swap, &r);
	host_steps(&h, 5);
	ck_assert(!r.done); /* b's write is in flight */
	held = host_start(a, 1ull << 48, (uint8_t[6]){ 0 }, 6, false, NULL, 0);
	host_steps(&h, 5);
	ck_assert(!held->completed);
	host_release(b);
	ck_assert(host_wait(&h, &r.done));
	ck_assert_int_eq(r.status, 0);
	host_finish(c);
	ck_assert_str_eq(host_result(b), "good");
	host_finish(held); /* ran after the swap */
	ck_assert_str_eq(host_result(a), "06/28/00");
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "06/2a/09");
	host_in(a, 1, (uint8_t[10]){ 0x25 }, 10, 8);
	ck_assert_uint_eq(get_be32(a->in), 32767);
	host_read10(a, 0, 1);
	ck_assert_uint_eq(a->in[0], 0); /* the new store */
	host_close(&h);
}
END_TEST

/* ---- a store that is late -------------------------------------------------------------------- */

static void do_lose(void *arg)
{
	(void)arg;
	scsi_lu_set_lost(h.lu, true);
	scsi_lu_set_late(h.lu, true);
	ck_assert_int_eq(scsi_lu_await_store(h.lu), 0);
}

static void do_found_late(void *arg)
{
	(void)arg;
	scsi_lu_set_late(h.lu, false);
	scsi_lu_set_lost(h.lu, false);
}

static void do_find(void *arg)
{
	(void)arg;
	do_found_late(NULL);
	ck_assert(scsi_lu_release(h.lu));
}

static bool released;
static void do_release_late(void *arg)
{
	(void)arg;
	released = scsi_lu_release(h.lu);
}

static struct host_cmd *start_tur(struct host_nexus *n)
{
	return host_start(n, 1ull << 48, (uint8_t[6]){ 0 }, 6, false, NULL, 0);
}

static void takes_its_place(void)
{
	struct blk_open_args args = { .path = "8m", .block_size = 512, .node = -1 };
	struct host_outcome r = { false, 0 };

	other = blk_open("ram", &args);
	host_do(&h, do_swap, &r);
	ck_assert(host_wait(&h, &r.done));
	ck_assert_int_eq(r.status, 0);
}

/* It comes in time: those that waited begin in their order, and nobody is told of anything. */
START_TEST(late_store_is_awaited)
{
	struct host_nexus *a, *b, *c;
	struct host_cmd *cmd[4], *aborted, *first;

	host_open(&h, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
	host_do(&h, do_lose, NULL);
	cmd[0] = start_tur(a);
	cmd[1] = host_start_write(a, 2);
	b->attr = SCSI_ATTR_ORDERED;
	cmd[2] = start_tur(b);
	b->attr = 0;
	cmd[3] = start_tur(b);
	aborted = start_tur(b);
	c = host_login(&h, "iqn.c");
	first = start_tur(c);
	host_steps(&h, 5);
	for (unsigned i = 0; i < ARRAY_SIZE(cmd); i++)
		ck_assert(!cmd[i]->completed);
	ck_assert(!first->completed);
	host_in(a, 1, (uint8_t[6]){ 0x12, [4] = 36 }, 6, 36); /* INQUIRY */
	ck_assert_str_eq(host_result(a), "good");
	host_abort(aborted);
	ck_assert(host_wait(&h, &aborted->ended));
	ck_assert(aborted->was_aborted);
	host_finish(aborted);
	takes_its_place();
	host_steps(&h, 5);
	ck_assert(!cmd[0]->completed); /* it is lost still */
	host_do(&h, do_find, NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(cmd); i++) {
		struct host_nexus *n = cmd[i]->n;

		host_finish(cmd[i]);
		ck_assert_str_eq(host_result(n), "good");
	}
	host_finish(first);
	ck_assert_str_eq(host_result(c), "06/29/00");
	for (unsigned i = 0; i < 2; i++) {
		host_tur(i ? a : b, 1);
		ck_assert_str_eq(host_result(i ? a : b), "good");
	}
	host_do(&h, do_release_late, NULL);
	ck_assert(!released);
	host_close(&h);
}
END_TEST

/* It does not: NOT READY, and when it comes its medium may have changed. */
START_TEST(late_store_comes_too_late)
{
	struct host_nexus *a, *b;
	struct host_cmd *cmd;

	host_open(&h, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
	host_do(&h, do_lose, NULL);
	cmd = start_tur(a);
	host_steps(&h, 5);
	ck_assert(!cmd->completed);
	host_do(&h, do_release_late, NULL);
	ck_assert(released);
	host_finish(cmd);
	ck_assert_str_eq(host_result(a), "02/04/01");
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "02/04/01");
	takes_its_place();
	host_do(&h, do_found_late, NULL);
	for (unsigned i = 0; i < 2; i++) {
		struct host_nexus *n = i ? a : b;

		host_tur(n, 1);
		ck_assert_str_eq(host_result(n), "06/28/00");
		host_tur(n, 1);
		ck_assert_str_eq(host_result(n), "06/2a/09");
		host_tur(n, 1);
		ck_assert_str_eq(host_result(n), "good");
	}
	host_close(&h);
}
END_TEST

/* What INQUIRY says of a store waits for it, too: what stands in for it is something else. Who has
 * asked when the unit was NOT READY is told. */
static void rotating_takes_its_place(void)
{
	struct blk_open_args args = { .path = "8m", .block_size = 512, .node = -1 };
	struct host_outcome r = { false, 0 };

	other = blk_open("ram", &args);
	other->caps |= BLK_CAP_ROTATIONAL;
	host_do(&h, do_swap, &r);
	ck_assert(host_wait(&h, &r.done));
	ck_assert_int_eq(r.status, 0);
}

static const uint8_t page_b1[6] = { 0x12, 1, 0xb1, 0, 64 }, page_80[6] = { 0x12, 1, 0x80, 0, 64 };

START_TEST(late_store_and_its_vpd_pages)
{
	struct host_nexus *a, *b;
	struct host_cmd *asked, *aborted;

	host_open(&h, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
	host_do(&h, do_lose, NULL);
	host_in(a, 1, page_80, 6, 64);
	ck_assert_str_eq(host_result(a), "good");
	asked = host_start(a, 1ull << 48, page_b1, 6, true, NULL, 64);
	aborted = host_start(b, 1ull << 48, page_b1, 6, true, NULL, 64);
	host_steps(&h, 5);
	ck_assert(!asked->completed && !aborted->completed);
	host_abort(aborted);
	ck_assert(host_wait(&h, &aborted->ended));
	ck_assert(aborted->was_aborted);
	host_finish(aborted);
	rotating_takes_its_place();
	host_do(&h, do_find, NULL);
	host_finish(asked);
	ck_assert_str_eq(host_result(a), "good");
	ck_assert_uint_eq(get_be16(a->in + 4), 0); /* it is not said that it does not rotate */
	for (unsigned i = 0; i < 2; i++) {
		host_tur(i ? a : b, 1);
		ck_assert_str_eq(host_result(i ? a : b), "good");
	}
	host_close(&h);
}
END_TEST

START_TEST(vpd_pages_of_a_store_that_comes_too_late)
{
	static const char *const told[] = { "06/28/00", "06/2a/09", "06/3f/03", "good" };
	struct host_nexus *a;
	struct host_cmd *asked;

	host_open(&h, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
	host_do(&h, do_lose, NULL);
	asked = host_start(a, 1ull << 48, page_b1, 6, true, NULL, 64);
	host_steps(&h, 5);
	ck_assert(!asked->completed);
	host_do(&h, do_release_late, NULL);
	host_finish(asked);
	ck_assert_str_eq(host_result(a), "good"); /* of what stands in */
	rotating_takes_its_place();
	host_do(&h, do_found_late, NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(told); i++) {
		host_tur(a, 1);
		ck_assert_str_eq(host_result(a), told[i]);
	}
	host_in(a, 1, page_b1, 6, 64);
	ck_assert_uint_eq(get_be16(a->in + 4), 0);
	host_close(&h);
}
END_TEST

/* The unit is deleted while commands wait for its store. */
START_TEST(late_store_and_deletion)
{
	struct host_outcome r = { false, 0 };
	struct host_nexus *a;
	struct host_cmd *cmd;

	host_open(&h, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
	host_do(&h, do_lose, NULL);
	cmd = start_tur(a);
	host_steps(&h, 5);
	force = true;
	host_do(&h, do_lu_delete, &r);
	host_do(&h, do_release_late, NULL);
	ck_assert(!released);
	ck_assert(host_wait(&h, &r.done));
	ck_assert_int_eq(r.status, 0);
	ck_assert(cmd->ended && cmd->was_aborted);
	host_finish(cmd);
	h.lu = NULL;
	host_close(&h);
}
END_TEST

/* ---- while what is cached is written --------------------------------------------------------- */

static struct blk_ops slow_ops;
static void (*real_close)(struct blk *blk);
static struct blk_req *slow_sync;
static _Atomic bool slow_closed;

static bool keep_sync(struct blk *blk, struct blk_req *req)
{
	(void)blk;
	slow_sync = req;
	return false;
}

static void note_close(struct blk *blk)
{
	slow_closed = true;
	real_close(blk);
}

static void do_flush(void *arg)
{
	scsi_lu_flush(h.lu, host_outcome, arg);
}

/* A SYNC of h.blk is under way, until slow_answer(). */
static void slow_flush(struct host_outcome *flushed)
{
	slow_ops = *h.blk->ops;
	real_close = slow_ops.close;
	slow_ops.sync = keep_sync;
	slow_ops.close = note_close;
	h.blk->ops = &slow_ops;
	slow_closed = false;
	host_do(&h, do_flush, flushed);
	ck_assert(slow_sync && !flushed->done);
}

/* Another thread would have closed it by now, if it might. */
static void stays_open(const struct host_outcome *over)
{
	for (unsigned i = 0; i < 20; i++) {
		host_steps(&h, 2);
		usleep(5000);
	}
	ck_assert(!slow_closed);
	ck_assert(!over->done);
}

static void slow_answer(struct host_outcome *flushed, struct host_outcome *over)
{
	blk_complete(slow_sync, 0);
	ck_assert(host_wait(&h, &flushed->done));
	ck_assert_int_eq(flushed->status, 0);
	ck_assert(host_wait(&h, &over->done));
	ck_assert_int_eq(over->status, 0);
	ck_assert(slow_closed);
}

START_TEST(flush_and_deletion)
{
	struct host_outcome flushed = { false, 0 }, late = { false, 0 }, r = { false, 0 };
	struct scsi_lu_info info;

	host_open(&h, "8m", 512);
	slow_flush(&flushed);
	force = true;
	host_do(&h, do_lu_delete, &r);
	stays_open(&r);
	host_do(&h, do_flush, &late);
	ck_assert(late.done);
	ck_assert_int_eq(late.status, -EBUSY);
	scsi_lu_get_info(h.lu, &info);
	ck_assert_ptr_eq(info.conf.blk, h.blk);
	slow_answer(&flushed, &r);
	h.lu = NULL;
	host_close(&h);
}
END_TEST

START_TEST(flush_and_another_store)
{
	struct blk_open_args args = { .path = "16m", .block_size = 512, .node = -1 };
	struct host_outcome flushed = { false, 0 }, r = { false, 0 };

	host_open(&h, "8m", 512);
	slow_flush(&flushed);
	other = blk_open("ram", &args);
	host_do(&h, do_swap, &r);
	stays_open(&r);
	slow_answer(&flushed, &r);
	host_close(&h);
}
END_TEST

/* Who asks about a unit while its store is being closed does not find that. */
static struct blk *found;
static void find_store(struct blk *blk)
{
	struct scsi_lu_info info;

	scsi_lu_get_info(h.lu, &info);
	found = info.conf.blk;
	real_close(blk);
}

START_TEST(closed_unseen)
{
	struct host_outcome r = { false, 0 };

	host_open(&h, "8m", 512);
	slow_ops = *h.blk->ops;
	real_close = slow_ops.close;
	slow_ops.close = find_store;
	h.blk->ops = &slow_ops;
	found = h.blk;
	force = true;
	host_do(&h, do_lu_delete, &r);
	ck_assert(host_wait(&h, &r.done));
	ck_assert_ptr_null(found);
	h.lu = NULL;
	host_close(&h);
}
END_TEST

/* What would go on with the old store after its command was answered does not begin. */
START_TEST(another_store_and_sanitize)
{
	struct blk_open_args args = { .path = "16m", .block_size = 512, .node = -1 };
	uint8_t p[5] = { 0x01, 0, 0, 1, 0x33 };
	struct host_outcome r = { false, 0 };
	struct host_nexus *a, *b;
	struct host_cmd *c;

	host_open(&h, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
	host_fill(a, 1, 0, 1, 'x');
	b->hold_fetch = true;
	/* OVERWRITE, IMMED */
	c = host_start(b, 1ull << 48, (uint8_t[10]){ 0x48, 0x81, [8] = 5 }, 10, false, p, 5);
	other = blk_open("ram", &args);
	host_do(&h, do_swap, &r);
	host_steps(&h, 5);
	ck_assert(!r.done);
	host_release(b);
	ck_assert(host_wait(&h, &r.done));
	ck_assert_int_eq(r.status, 0);
	host_finish(c);
	ck_assert_uint_eq(b->status, SAM_BUSY);
	host_tur(a, 1);
	host_tur(a, 1);
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "good");
	ck_assert_int_eq(host_holds(a, 1, 0, 1), 0);
	host_close(&h);
}
END_TEST

static int refreshed;
static void do_refresh(void *arg)
{
	refreshed = scsi_lu_refresh(h.lu);
	(void)arg;
}

/* The file grows, tgtadm says so, initiators learn of it. */
START_TEST(grow)
{
	char path[] = "/tmp/test_lu.XXXXXX";
	struct blk_open_args args = { .path = path, .block_size = 512, .node = -1 };
	struct host_nexus *n;
	struct host_outcome r = { false, 0 };
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, 1 << 20), 0);
	host_open(&h, "8m", 512);
	n = host_login_ready(&h, "iqn.a");
	other = blk_open("aio", &args);
	ck_assert_ptr_nonnull(other);
	host_do(&h, do_swap, &r);
	ck_assert(host_wait(&h, &r.done));
	while (host_tur(n, 1) != SAM_GOOD)
		ck_assert_uint_eq(n->key, SENSE_UNIT_ATTENTION);
	host_do(&h, do_refresh, NULL); /* nothing has changed */
	ck_assert_int_eq(refreshed, 0);
	host_tur(n, 1);
	ck_assert_str_eq(host_result(n), "good");
	ck_assert_int_eq(ftruncate(fd, 3 << 20), 0);
	host_read10(n, 2048, 1);
	ck_assert_str_eq(host_result(n), "05/21/00");
	host_do(&h, do_refresh, NULL);
	ck_assert_int_eq(refreshed, 0);
	host_tur(n, 1);
	ck_assert_str_eq(host_result(n), "06/2a/09");
	host_in(n, 1, (uint8_t[10]){ 0x25 }, 10, 8);
	ck_assert_uint_eq(get_be32(n->in), 6143);
	host_read10(n, 6143, 1);
	ck_assert_str_eq(host_result(n), "good");
	host_close(&h);
	close(fd);
	unlink(path);
}
END_TEST

static bool only_a(struct scsi_target *t, uint32_t lun, const char *iqn, const char *address,
		   void *arg)
{
	return lun == 0 || strcmp(iqn, "iqn.a") == 0;
}

static const char *mask_of;
static void do_mask(void *arg)
{
	scsi_target_set_mask(h.target, mask_of, only_a, NULL);
}

START_TEST(masking)
{
	struct host_nexus *a, *b;

	host_open(&h, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
	host_do(&h, do_mask, NULL);
	host_steps(&h, 5);
	host_tur(b, 1);
	ck_assert_str_eq(host_result(b), "05/25/00");
	host_in(b, 0, (uint8_t[]){ 0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0 }, 12, 256);
	ck_assert_uint_eq(get_be32(b->in), 8);
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "06/3f/0e");
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "good");
	/* only one initiator's answers have changed: nobody else hears of it */
	mask_of = "iqn.b";
	host_do(&h, do_mask, NULL);
	host_steps(&h, 5);
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "good");
	host_tur(b, 0);
	ck_assert_str_eq(host_result(b), "06/29/00");
	host_tur(b, 0);
	ck_assert_str_eq(host_result(b), "06/3f/0e");
	host_close(&h);
}
END_TEST

/* Somebody may no longer see it, and his commands take their time to end: neither deletion nor
 * another store goes before them. */
static void masked(int order)
{
	struct blk_open_args args = { .path = "16m", .block_size = 512, .node = -1 };
	struct host_outcome r = { false, 0 };
	struct host_nexus *b;
	struct host_cmd *c;
	struct blk *slow;

	host_open(&h, "8m", 512);
	/* a store whose requests take a while, and cannot be aborted meanwhile */
	slow = other = blk_delay_create(blk_open("ram", &args), 0);
	container_of(slow, struct pass, blk)->abort = NULL;
	host_do(&h, do_swap, &r);
	ck_assert(host_wait(&h, &r.done));
	r.done = false;
	b = host_login_ready(&h, "iqn.b");
	blk_delay_set(slow, 300, 0);
	c = host_start(b, 1ull << 48, (uint8_t[]){ 0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0 }, 10, true,
		       NULL, 512);
	mask_of = NULL;
	if (order == 2) { /* it was waited for already */
		other = blk_open("ram", &args);
		host_do(&h, do_swap, &r);
		host_steps(&h, 5);
	}
	host_do(&h, do_mask, NULL);
	host_steps(&h, 5);
	ck_assert(!c->completed && !r.done);
	force = true;
	if (order == 0) {
		host_do(&h, do_lu_delete, &r);
	} else if (order == 1) {
		other = blk_open("ram", &args);
		host_do(&h, do_swap, &r);
	}
	host_steps(&h, 20);
	ck_assert(!c->completed && !r.done);
	ck_assert(host_wait(&h, &r.done));
	ck_assert_int_eq(r.status, 0);
	ck_assert(c->ended);
	host_finish(c);
	if (order == 0)
		h.lu = NULL;
	host_close(&h);
}

START_TEST(masked_and_deleted)
{
	masked(0);
}
END_TEST

START_TEST(masked_and_another_store)
{
	masked(1);
}
END_TEST

START_TEST(another_store_and_masked)
{
	masked(2);
}
END_TEST

static void do_target_delete(void *arg)
{
	scsi_target_delete(h.target, force, host_outcome, arg);
}

static int close_error;
static void do_target_close(void *arg)
{
	(void)arg;
	close_error = scsi_target_close(h.target, force);
}

static void do_late_attach(void *arg)
{
	struct host_nexus *n = arg;

	close_error = scsi_nexus_attach(&n->n);
}

/* What else there is of a target is taken down when it is decided that it goes: a session is there
 * before that, or not at all. */
START_TEST(target_closed)
{
	struct host_nexus *a, late = { 0 };
	struct host_outcome r = { false, 0 };

	host_open(&h, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
	force = false;
	host_do(&h, do_target_close, NULL);
	ck_assert_int_eq(close_error, -EBUSY);
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "good");
	late.n = a->n;
	host_logout(a);
	host_do(&h, do_target_close, NULL);
	ck_assert_int_eq(close_error, 0);
	host_do(&h, do_late_attach, &late);
	ck_assert_int_eq(close_error, -ENOENT);
	host_do(&h, do_target_delete, &r);
	ck_assert(host_wait(&h, &r.done));
	ck_assert_int_eq(r.status, 0);
	ck_assert_ptr_null(scsi_target_next(NULL));
	scsi_shutdown();
	loop_destroy(h.loop);
}
END_TEST

START_TEST(target_busy)
{
	struct host_nexus *a;
	struct host_outcome r = { false, 0 };

	host_open(&h, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
	force = false;
	host_do(&h, do_target_delete, &r);
	ck_assert(r.done);
	ck_assert_int_eq(r.status, -EBUSY);
	ck_assert(!a->dropped);
	r.done = false;
	force = true;
	host_do(&h, do_target_delete, &r);
	ck_assert(host_wait(&h, &r.done));
	ck_assert(a->dropped && a->gone);
	host_logout(a);
	ck_assert_ptr_null(scsi_target_next(NULL));
	scsi_shutdown();
	loop_destroy(h.loop);
}
END_TEST

UNIT_MAIN("lu-goes", 30, deletion, another_store, late_store_is_awaited,
	  late_store_comes_too_late, late_store_and_its_vpd_pages,
	  vpd_pages_of_a_store_that_comes_too_late, late_store_and_deletion, flush_and_deletion,
	  flush_and_another_store, closed_unseen, another_store_and_sanitize, grow, masking,
	  masked_and_deleted, masked_and_another_store, another_store_and_masked, target_closed,
	  target_busy)
