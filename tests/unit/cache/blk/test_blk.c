/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the choke point makes up for: bounce blocks with flow control, ZERO in pieces, COMPARE AND
 * WRITE ordered against other changes, aborts of what waits. Below: a store without memory of its
 * own that answers when it is told to. And the null store, and stores opened by name. */
#include <check.h>
#include <stdlib.h>
#include "events/offload.h"
#include "events/metrics.h"
#include "tests/support/blktest.h"

/* ---- a store on a string --------------------------------------------------------------------- */

#define SIZE MiB(8)

static struct puppet {
	struct blk blk;
	uint8_t *data;
	bool hold; /* keep requests until let_go() */
	struct blk_req *kept[256];
	unsigned n, largest;
} pup;

static void perform(struct blk_req *req)
{
	if (req->op == BLK_READ)
		frags_copy_in(&req->data, 0, pup.data + req->offset, req->len);
	else
		frags_copy_out(&req->data, 0, pup.data + req->offset, req->len);
}

static bool pup_op(struct blk *blk, struct blk_req *req)
{
	pup.largest = MAX(pup.largest, (unsigned)req->len);
	if (pup.hold) {
		ck_assert_uint_lt(pup.n, ARRAY_SIZE(pup.kept));
		pup.kept[pup.n++] = req;
		return false;
	}
	perform(req);
	req->status = 0;
	return true;
}

static void pup_close(struct blk *blk)
{
	free(pup.data);
}

static const struct blk_ops pup_ops = {
	.name = "puppet",
	.read = pup_op,
	.write = pup_op,
	.close = pup_close,
};

static struct bt t;

static void setup(void)
{
	memset(&pup, 0, sizeof(pup));
	pup.data = calloc(1, SIZE);
	pup.blk.ops = &pup_ops;
	pup.blk.size = SIZE;
	pup.blk.block_size = 512;
	pup.blk.physical_size = 4096;
	pup.blk.max_len = MiB(1);
	ck_assert_int_eq(blk_bounce_init(NULL, 0), 0);
	bt_init(&t, &pup.blk, 3);
}

static void teardown(void)
{
	bt_fini(&t);
	blk_bounce_fini();
}

static unsigned let_go(void)
{
	unsigned n = pup.n;

	pup.n = 0;
	for (unsigned i = 0; i < n; i++) {
		perform(pup.kept[i]);
		blk_complete(pup.kept[i], 0);
	}
	for (int i = 0; i < 6; i++)
		loop_step(t.loop, 0);
	return n;
}

static void noted(struct blk_req *req)
{
	*(unsigned *)(uintptr_t)req->stream += 1;
}

static void fill_req(struct blk_req *req, enum blk_op op, uint64_t off, uint64_t len,
		     unsigned flags, unsigned *count)
{
	blk_req_init(req);
	req->op = op;
	req->offset = off;
	req->len = len;
	req->flags = (uint16_t)flags;
	req->done = noted;
	req->stream = (uintptr_t)count;
}

static void abort_req(struct blk_req *req)
{
	loop_self_ = t.loop;
	blk_abort(t.blk, req);
	loop_self_ = NULL;
	for (int i = 0; i < 4; i++)
		loop_step(t.loop, 0);
}

/* ---- tests ----------------------------------------------------------------------------------- */

START_TEST(model)
{
	bt_model(&t, 2000);
}
END_TEST

START_TEST(zero_in_pieces)
{
	memset(pup.data, 1, SIZE);
	ck_assert_int_eq(bt_op(&t, BLK_ZERO, 512, SIZE - 1024, 0), 0);
	ck_assert(bt_all(pup.data + 512, SIZE - 1024, 0));
	ck_assert_uint_eq(pup.data[511] + pup.data[SIZE - 512], 2);
	ck_assert_uint_le(pup.largest, KiB(256));
}
END_TEST

START_TEST(what_there_is_nothing_for)
{
	ck_assert_int_eq(bt_op(&t, BLK_DISCARD, 0, 4096, 0), -EOPNOTSUPP);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_int_eq(bt_op(&t, BLK_PREFETCH, 0, 4096, 0), 0);
	ck_assert_int_eq(blk_refresh(t.blk), 0);
}
END_TEST

/* Readers hold all bounce blocks (64 MiB): further requests wait, in order, one is aborted. */
START_TEST(bounce_blocks_run_out)
{
	enum { FIT = 64, N = 70 };
	static struct blk_req req[N];
	unsigned done = 0;

	for (unsigned i = 0; i < N; i++) {
		fill_req(&req[i], BLK_READ, 0, MiB(1), 0, &done);
		ck_assert_int_eq(bt_submit(&t, &req[i]), i < FIT);
	}
	abort_req(&req[FIT + 1]);
	ck_assert_uint_eq(done, 1);
	ck_assert_int_eq(req[FIT + 1].status, -ECANCELED);
	for (unsigned i = 0; i < N; i++) {
		if (i == FIT + 1)
			continue;
		ck_assert_uint_eq(req[i].data.len, MiB(1));
		blk_req_release(&req[i]);
		blk_req_fini(&req[i]);
		for (int k = 0; k < 3; k++)
			loop_step(t.loop, 0);
	}
	ck_assert_uint_eq(done, N - FIT);
}
END_TEST

/* Of four stores three have readers that take nothing: each has a share of the blocks, and the last
 * one as many as it asks for. Who waits goes on when blocks of its store come back, or is aborted.
 */
START_TEST(bounce_blocks_by_store)
{
	enum { STORES = 4, N = 70, LITTLE = 40 };
	static struct puppet other[STORES];
	static struct blk_req req[STORES][N];
	unsigned done[STORES] = { 0 }, had[STORES] = { 0 };

	for (unsigned s = 0; s < STORES; s++) {
		other[s].blk = pup.blk;
		other[s].blk.bounce = NULL;
		ck_assert_int_eq(blk_bounce_open(&other[s].blk), 0);
		t.blk = &other[s].blk;
		for (unsigned i = 0; s < STORES - 1 && i < N; i++) {
			fill_req(&req[s][i], BLK_READ, 0, MiB(1), 0, &done[s]);
			had[s] += bt_submit(&t, &req[s][i]);
		}
	}
	ck_assert_uint_ge(had[0], 32);
	ck_assert_uint_ge(had[1], 8);
	ck_assert_uint_ge(had[2], 1);
	ck_assert_uint_le(had[0] + had[1] + had[2], 64 - 64 / 8);
	/* The last one: large and small. */
	for (unsigned i = 0; i < LITTLE; i++) {
		fill_req(&req[3][i], BLK_READ, 0, i ? 4096 : MiB(1), 0, &done[3]);
		ck_assert(bt_submit(&t, &req[3][i]));
		blk_req_release(&req[3][i]);
	}
	/* Of the first one some leave their queue, and others are served as blocks come back. */
	t.blk = &other[0].blk;
	for (unsigned i = had[0]; i < had[0] + 4; i++) {
		abort_req(&req[0][i]);
		ck_assert_int_eq(req[0][i].status, -ECANCELED);
	}
	ck_assert_uint_eq(done[0], 4);
	for (unsigned s = 0; s < STORES - 1; s++)
		for (unsigned i = 0; i < N; i++) {
			if (!s && i >= had[0] && i < had[0] + 4)
				continue;
			for (int k = 0; k < 9 && req[s][i].data.len != MiB(1); k++)
				loop_step(t.loop, 0);
			ck_assert_uint_eq(req[s][i].data.len, MiB(1));
			blk_req_release(&req[s][i]);
		}
	for (unsigned s = 0; s < STORES - 1; s++)
		ck_assert_uint_eq(done[s], N - had[s]);
	/* Nothing is left with any of them. */
	for (unsigned s = 0; s < STORES; s++) {
		unsigned now = 0, had_now = 0;

		t.blk = &other[s].blk;
		for (unsigned i = 0; i < N; i++) {
			fill_req(&req[s][i], BLK_READ, 0, MiB(1), 0, &now);
			had_now += bt_submit(&t, &req[s][i]);
		}
		ck_assert_uint_eq(had_now, had[0]);
		for (unsigned i = had_now; i < N; i++)
			abort_req(&req[s][i]);
		/* It is closed while its data is on wires. */
		blk_bounce_close(&other[s].blk);
		for (unsigned i = 0; i < had_now; i++)
			blk_req_release(&req[s][i]);
	}
	t.blk = &pup.blk;
}
END_TEST

/* A write that is on its way when the first compare-and-write comes is waited for. */
START_TEST(caw_waits_for_writes_before_it)
{
	static uint8_t one[512], two[1024];
	struct blk_req wr, caw;
	unsigned done = 0;

	memset(one, 1, sizeof(one));
	memset(two, 1, 512);
	memset(two + 512, 2, 512);
	pup.hold = true;
	fill_req(&wr, BLK_WRITE, 4096, 512, BLK_F_FROM, &done);
	frags_append(&wr.data, one, 512, NULL);
	ck_assert(!bt_submit(&t, &wr));
	fill_req(&caw, BLK_COMPARE_AND_WRITE, 4096, 512, BLK_F_FROM, &done);
	frags_append(&caw.data, two, 1024, NULL);
	ck_assert(!bt_submit(&t, &caw));
	ck_assert_uint_eq(pup.n, 1); /* its read has not begun */
	ck_assert_uint_eq(let_go(), 1);
	ck_assert_uint_eq(done, 1);
	ck_assert_uint_eq(let_go(), 1); /* read */
	ck_assert_uint_eq(let_go(), 1); /* write */
	ck_assert_uint_eq(done, 2);
	ck_assert_int_eq(caw.status, 0); /* it saw the write */
	ck_assert(bt_all(pup.data + 4096, 512, 2));
	frags_forget(&wr.data);
	frags_forget(&caw.data);
}
END_TEST

/* Writes that overlap a compare-and-write under way wait for it; others do not. */
START_TEST(writes_wait_for_caw)
{
	static uint8_t both[1024], three[1024];
	struct blk_req caw, over, beside, zero, rd;
	unsigned done = 0;

	memset(both + 512, 2, 512);
	memset(three, 3, sizeof(three));
	pup.hold = true;
	fill_req(&caw, BLK_COMPARE_AND_WRITE, 4096, 512, BLK_F_FROM, &done);
	frags_append(&caw.data, both, 1024, NULL);
	ck_assert(!bt_submit(&t, &caw));
	fill_req(&over, BLK_WRITE, 4096, 1024, BLK_F_FROM, &done);
	frags_append(&over.data, three, 1024, NULL);
	ck_assert(!bt_submit(&t, &over));
	fill_req(&zero, BLK_ZERO, 0, 8192, 0, &done);
	ck_assert(!bt_submit(&t, &zero));
	ck_assert_uint_eq(pup.n, 1);
	fill_req(&beside, BLK_WRITE, 4608, 512, BLK_F_FROM, &done);
	frags_append(&beside.data, three, 512, NULL);
	ck_assert(!bt_submit(&t, &beside));
	fill_req(&rd, BLK_READ, 4096, 512, 0, &done);
	ck_assert(!bt_submit(&t, &rd)); /* readers are not held up */
	ck_assert_uint_eq(pup.n, 3);
	abort_req(&zero);
	ck_assert_int_eq(zero.status, -ECANCELED);
	ck_assert_uint_eq(let_go(), 3);
	ck_assert_uint_eq(done, 3);	/* zero (cancelled), beside, rd */
	ck_assert_uint_eq(let_go(), 1); /* the write of the compare-and-write */
	ck_assert_int_eq(caw.status, 0);
	ck_assert_uint_eq(let_go(), 1);
	ck_assert_uint_eq(done, 5);
	ck_assert(bt_all(pup.data + 4096, 1024, 3));
	blk_req_release(&rd);
	frags_forget(&caw.data);
	frags_forget(&over.data);
	frags_forget(&beside.data);
}
END_TEST

/* A compare-and-write that waits can be aborted, whatever it waits for. */
START_TEST(abort_of_waiting_caw)
{
	static uint8_t both[1024], one[512];
	struct blk_req wr, caw[3];
	unsigned done = 0;

	pup.hold = true;
	fill_req(&wr, BLK_WRITE, 0, 512, BLK_F_FROM, &done);
	frags_append(&wr.data, one, 512, NULL);
	ck_assert(!bt_submit(&t, &wr));
	for (int i = 0; i < 3; i++) {
		fill_req(&caw[i], BLK_COMPARE_AND_WRITE, 8192, 512, BLK_F_FROM, &done);
		frags_append(&caw[i].data, both, 1024, NULL);
		ck_assert(!bt_submit(&t, &caw[i]));
	}
	abort_req(&caw[0]); /* for the write before it */
	ck_assert_int_eq(caw[0].status, -ECANCELED);
	ck_assert_uint_eq(done, 1);
	ck_assert_uint_eq(let_go(), 1);
	ck_assert_uint_eq(pup.n, 1); /* the next one reads */
	abort_req(&caw[2]);	     /* for its extent */
	ck_assert_int_eq(caw[2].status, -ECANCELED);
	let_go();
	let_go();
	ck_assert_int_eq(caw[1].status, 0);
	ck_assert_uint_eq(done, 4);
	frags_forget(&wr.data);
	for (int i = 0; i < 3; i++)
		frags_forget(&caw[i].data);
}
END_TEST

/* A store that compares and writes itself, but only within pieces: there it is asked, elsewhere
 * that is emulated, and the two wait for each other. */
static unsigned own;

static bool pup_caw(struct blk *blk, struct blk_req *req)
{
	uint64_t differs;

	(void)blk;
	own++;
	differs = frags_compare(&req->data, 0, pup.data + req->offset, req->len);
	req->miscompare = differs;
	req->status = differs < req->len ? -EILSEQ : 0;
	if (!req->status)
		frags_copy_out(&req->data, req->len, pup.data + req->offset, req->len);
	return true;
}

START_TEST(caw_within_pieces)
{
	static const struct blk_ops ops = { .name = "puppet",
					    .read = pup_op,
					    .write = pup_op,
					    .compare_and_write = pup_caw,
					    .close = pup_close };
	static uint8_t both[4096], seconds[2048];
	struct blk_req across, within, wr;
	unsigned done = 0;

	pup.blk.ops = &ops;
	pup.blk.caw_within = 4096;
	own = 0;
	memset(both + 1024, 2, 1024);
	fill_req(&within, BLK_COMPARE_AND_WRITE, 3072, 1024, BLK_F_FROM, &done);
	frags_append(&within.data, both, 2048, NULL);
	ck_assert(bt_submit(&t, &within));
	ck_assert_int_eq(within.status, 0);
	ck_assert_uint_eq(own, 1);
	ck_assert(bt_all(pup.data + 3072, 1024, 2));
	/* across a border: read and written, and who overlaps waits */
	pup.hold = true;
	memset(both, 2, 1024);
	memset(both + 1024, 0, 1024);
	memset(both + 2048, 3, 2048);
	fill_req(&across, BLK_COMPARE_AND_WRITE, 3072, 2048, BLK_F_FROM, &done);
	frags_append(&across.data, both, 4096, NULL);
	ck_assert(!bt_submit(&t, &across));
	ck_assert_uint_eq(own, 1);
	memset(seconds, 3, 1024);
	memset(seconds + 1024, 4, 1024);
	frags_forget(&within.data);
	fill_req(&within, BLK_COMPARE_AND_WRITE, 3072, 1024, BLK_F_FROM, &done);
	frags_append(&within.data, seconds, 2048, NULL);
	ck_assert(!bt_submit(&t, &within));
	fill_req(&wr, BLK_WRITE, 4096, 512, BLK_F_FROM, &done);
	frags_append(&wr.data, seconds, 512, NULL);
	ck_assert(!bt_submit(&t, &wr));
	ck_assert_uint_eq(own, 1);
	ck_assert_uint_eq(let_go(), 1); /* its read */
	ck_assert_uint_eq(let_go(), 1); /* its write; then the others */
	ck_assert_int_eq(across.status, 0);
	while (let_go())
		;
	ck_assert_uint_eq(own, 2);
	ck_assert_int_eq(within.status, 0);
	ck_assert_uint_eq(done, 3);
	ck_assert(bt_all(pup.data + 3072, 1024, 4));
	ck_assert(bt_all(pup.data + 4096, 1024, 3));
	frags_forget(&across.data);
	frags_forget(&within.data);
	frags_forget(&wr.data);
}
END_TEST

START_TEST(counted)
{
	uint64_t reads = metric_read(M_store_reads), bytes = metric_read(M_store_read_bytes);
	uint64_t refused = metric_read(M_store_refused);
	uint8_t b[4096];

	metrics_register_thread();
	bt_read(&t, 0, 4096, b, 0);
	bt_read(&t, 0, 512, b, BLK_F_INTO);
	bt_read(&t, SIZE, 512, b, 0);
	ck_assert_uint_eq(metric_read(M_store_reads) - reads, 2);
	ck_assert_uint_eq(metric_read(M_store_read_bytes) - bytes, 4608);
	ck_assert_uint_eq(metric_read(M_store_refused) - refused, 1);
}
END_TEST

/* ---- by name --------------------------------------------------------------------------------- */

START_TEST(null_store)
{
	uint8_t b[70000], z[1024] = { 0 };
	enum blk_extent what;
	uint64_t run, differs;
	struct bt n;

	bt_init(&n, bt_open("null", "1t", 512), 1);
	memset(b, 1, sizeof(b));
	ck_assert_int_eq(bt_read(&n, GiB(500), 69632, b, 0), 0);
	ck_assert(bt_all(b, 69632, 0));
	memset(b, 1, sizeof(b));
	ck_assert_int_eq(bt_write(&n, 0, 69632, b, 0), 0);
	ck_assert_int_eq(bt_write(&n, 0, 69632, b, BLK_F_FROM), 0);
	ck_assert_int_eq(bt_read(&n, 0, 69632, b, BLK_F_INTO), 0);
	ck_assert(bt_all(b, 69632, 0));
	ck_assert_int_eq(bt_caw(&n, 0, 512, z, b, &differs, 0), 0);
	z[77] = 1;
	ck_assert_int_eq(bt_caw(&n, 0, 512, z, b, &differs, BLK_F_FROM), -EILSEQ);
	ck_assert_uint_eq(differs, 77);
	ck_assert_int_eq(bt_op(&n, BLK_DISCARD, 0, 0, 0), 0);
	ck_assert_int_eq(bt_op(&n, BLK_ZERO, 0, GiB(1024), 0), 0);
	ck_assert_int_eq(blk_extent(n.blk, 0, MiB(1), &what, &run), 0);
	ck_assert_int_eq(what, BLK_EXTENT_DEALLOCATED);
	bt_fini(&n);
}
END_TEST

START_TEST(types)
{
	char err[100];
	struct blk_open_args args = { .path = "1m", .node = 0, .err = err, .err_len = sizeof(err) };
	bool aio = false;

	ck_assert_ptr_null(blk_open("floppy", &args));
	ck_assert_ptr_nonnull(strstr(err, "floppy"));
	args.block_size = 520;
	ck_assert_ptr_null(blk_open("ram", &args));
	ck_assert_ptr_nonnull(strstr(err, "520"));
	for (const char *const *n = blk_bstypes; *n; n++)
		aio |= strcmp(*n, "aio") == 0;
	ck_assert(aio);
}
END_TEST

START_TEST(flags_that_go_together)
{
	static const struct {
		enum blk_op op;
		unsigned flags;
		bool legal;
	} row[] = {
		{ BLK_READ, BLK_F_INTO | BLK_F_FUA | BLK_F_DPO | BLK_F_BOUNCED, true },
		{ BLK_READ, BLK_F_BOUNCED, false },
		{ BLK_READ, BLK_F_FROM, false },
		{ BLK_WRITE, BLK_F_INTO, false },
		{ BLK_WRITE, BLK_F_FROM | BLK_F_FUA | BLK_F_BACKGROUND, true },
		{ BLK_WRITE, BLK_F_PREPARED | BLK_F_BOUNCED, true },
		{ BLK_WRITE, BLK_F_PREPARED | BLK_F_FROM, false },
		{ BLK_WRITE, BLK_F_PREPARED | BLK_F_PREPARING, false },
		{ BLK_COMPARE_AND_WRITE, BLK_F_PREPARED | BLK_F_FUA, true },
		{ BLK_ZERO, BLK_F_MAY_ALLOC | BLK_F_FUA, true },
		{ BLK_DISCARD, BLK_F_MAY_ALLOC, false },
		{ BLK_ZERO, BLK_F_PREPARED, false },
		{ BLK_SYNC, BLK_F_WHAT_CAN, true },
		{ BLK_SYNC, BLK_F_FUA, false },
		{ BLK_WRITE, BLK_F_FROM | BLK_F_WHAT_CAN, false },
		{ BLK_WRITE, BLK_F_FROM | BLK_F_LENT, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		struct blk_req req;

		blk_req_init(&req);
		req.op = (uint8_t)row[i].op;
		req.flags = (uint16_t)row[i].flags;
		ck_assert_msg(blk_flags_legal(&req) == row[i].legal, "row %zu", i);
		blk_req_fini(&req);
	}
}
END_TEST

/* ---- snapshots of others --------------------------------------------------------------------- */

static unsigned heard, answers;
static void snapshot_heard(void)
{
	heard++;
}

static void snapshot_answer(struct blk *blk, int status)
{
	(void)blk;
	ck_assert_int_eq(status, 0);
	answers++;
}

/* Each is taken up once; one that nobody can take up any more is answered. */
START_TEST(snapshots)
{
	static const struct blk_ops ops = { .name = "snap", .quiesced = snapshot_answer };
	struct blk blk = { .ops = &ops };

	ck_assert(!blk_quiesce(&blk)); /* nobody is there */
	ck_assert(!blk_quiesce_take(&blk));
	blk_on_quiesce(snapshot_heard);
	ck_assert(blk_quiesce(&blk));
	ck_assert_uint_eq(heard, 1);
	ck_assert(blk_quiesce_take(&blk));
	ck_assert(!blk_quiesce_take(&blk));
	ck_assert(blk_quiesce(&blk));
	ck_assert_uint_eq(answers, 0);
	blk_leave(&blk);
	ck_assert_uint_eq(answers, 1);
	ck_assert(!blk_quiesce_take(&blk));
	ck_assert(!blk_quiesce(&blk));
	ck_assert_uint_eq(heard, 2);
	ck_assert_uint_eq(answers, 1);
	blk_on_quiesce(NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("blk");
	TCase *tc = tcase_create("emulations"), *named = tcase_create("stores");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, model);
	tcase_add_test(tc, zero_in_pieces);
	tcase_add_test(tc, what_there_is_nothing_for);
	tcase_add_test(tc, bounce_blocks_run_out);
	tcase_add_test(tc, bounce_blocks_by_store);
	tcase_add_test(tc, caw_waits_for_writes_before_it);
	tcase_add_test(tc, writes_wait_for_caw);
	tcase_add_test(tc, abort_of_waiting_caw);
	tcase_add_test(tc, caw_within_pieces);
	tcase_add_test(tc, counted);
	tcase_add_test(tc, flags_that_go_together);
	suite_add_tcase(s, tc);
	tcase_add_test(named, null_store);
	tcase_add_test(named, types);
	tcase_add_test(named, snapshots);
	suite_add_tcase(s, named);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
