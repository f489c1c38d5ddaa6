/* SPDX-License-Identifier: GPL-2.0-or-later */
/* U9: histograms against an exact record; the parts of a command on a clock that stands still but
 * where the test moves it; what outlives sessions; the slowest commands; what is no error. */
#include <stdlib.h>

#include "events/clock.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"
#include "tgtd/scsi/latency_impl.h"

static struct host h;
static struct host_nexus *n, *m;

/* ---- histograms ------------------------------------------------------------------------------ */

START_TEST(buckets)
{
	for (unsigned i = 0; i < LAT_BUCKETS; i++) {
		const uint64_t first = lat_bucket_first(i), last = lat_bucket_last(i);

		ck_assert_uint_eq(lat_bucket(first), i);
		ck_assert_uint_eq(lat_bucket(last), i);
		ck_assert_uint_eq(first, i ? lat_bucket_last(i - 1) + 1 : 0);
	}
	ck_assert_uint_eq(lat_bucket_last(LAT_BUCKETS - 2) + 1, 15ull << 33);
	/* Powers of two begin buckets, so that they can be bounds of coarser ones. */
	for (unsigned e = 6; e < 37; e++)
		ck_assert_uint_eq(lat_bucket((1ull << e) - 1) + 1, lat_bucket(1ull << e));
}
END_TEST

static int by_size(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t next_random(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

/* At every percentile, of every kind of distribution, wrong by at most 6 %. */
START_TEST(against_an_exact_record)
{
	enum { N = 20000 };
	uint64_t *exact = malloc(N * sizeof(*exact)), x = 88172645463325252ull;

	ck_assert_ptr_nonnull(exact);
	for (unsigned kind = 0; kind < 4; kind++) {
		struct lat_series s = { 0 };
		struct lat_hist hist = { 0 };
		uint64_t sum = 0;

		for (unsigned i = 0; i < N; i++) {
			const uint64_t r = next_random(&x);

			switch (kind) {
			case 0: /* all sizes alike */
				exact[i] = 64 + (r >> 8) % (1ull << (6 + r % 30));
				break;
			case 1: /* two humps */
				exact[i] = r & 7 ? 9000 + (r >> 8) % 2000 :
						   4000000 + (r >> 8) % 9000000;
				break;
			case 2: /* the first or the last of a bucket */
				exact[i] = r & 1 ? lat_bucket_first(8 + (r >> 8) % 200) :
						   lat_bucket_last(8 + (r >> 8) % 200);
				break;
			default: /* one value */
				exact[i] = 12345;
			}
			sum += exact[i];
			ck_assert(lat_series_count(&s, exact[i], 1));
		}
		lat_series_read(&s, &hist);
		ck_assert_uint_eq(hist.count, N);
		ck_assert_uint_eq(hist.sum_ns, sum);
		qsort(exact, N, sizeof(*exact), by_size);
		ck_assert_uint_eq(hist.max_ns, exact[N - 1]);
		for (unsigned p = 1; p <= 10000; p++) {
			const double truth = (double)exact[((uint64_t)N * p + 9999) / 10000 - 1];
			const double said = (double)lat_percentile(&hist, p);

			ck_assert_msg(said >= truth * 0.94 && said <= truth * 1.06,
				      "kind %u, %u of 10000: %.0f, not %.0f", kind, p, said, truth);
		}
		lat_series_free(&s);
	}
	free(exact);
}
END_TEST

START_TEST(what_came_since)
{
	struct lat_series s = { 0 };
	struct lat_hist before = { 0 }, now = { 0 }, both = { 0 };

	ck_assert(lat_series_count(&s, 1000, 10));
	lat_series_read(&s, &before);
	ck_assert(lat_series_count(&s, 9000000, 3));
	lat_series_read(&s, &now);
	lat_hist_since(&now, &before);
	ck_assert_uint_eq(now.count, 3);
	ck_assert_uint_eq(now.sum_ns, 27000000);
	ck_assert_uint_eq(now.bucket[lat_bucket(1000)], 0);
	lat_hist_add(&both, &before);
	lat_hist_add(&both, &now);
	ck_assert_uint_eq(both.count, 13);
	ck_assert_uint_eq(lat_percentile(&both, 10000), 9000000);
	lat_series_free(&s);
}
END_TEST

/* ---- parts ----------------------------------------------------------------------------------- */

static void up(void)
{
	clock_fake_set(1000 * NSEC_PER_SEC);
	host_open(&h, "64m", 512);
	n = host_login_ready(&h, "iqn.n");
	m = host_login_ready(&h, "iqn.m");
}

static struct lat_sums sums(void)
{
	struct lat_sums s;

	scsi_lu_get_latency(h.lu, &s);
	for (unsigned c = 0; c < LAT_CLASSES; c++) {
		uint64_t parts = 0, waits = 0;

		for (unsigned f = LAT_WAITING; f < LAT_FIGURES; f++)
			parts += s.sum_ns[c][f];
		for (unsigned w = 0; w < LAT_WAITS; w++)
			waits += s.wait_ns[c][w];
		ck_assert_uint_eq(parts, s.sum_ns[c][LAT_TOTAL]);
		ck_assert_uint_eq(waits, s.sum_ns[c][LAT_WAITING]);
	}
	return s;
}

/* For its data 3 s; then one behind it, ORDERED, for its turn, and for its own data 2 s. */
START_TEST(wire_and_order)
{
	struct host_cmd *a, *b;
	struct lat_hist hist;
	struct lat_sums s;

	up();
	n->hold_fetch = true;
	a = host_start_write(n, 8);
	host_pass(&h, 1000);
	n->attr = SCSI_ATTR_ORDERED;
	b = host_start_write(n, 8);
	host_pass(&h, 2000);
	host_release(n);
	n->hold_fetch = true;
	host_finish(a);
	host_pass(&h, 2000);
	host_release(n);
	host_finish(b);
	s = sums();
	ck_assert_uint_eq(s.count[LAT_WRITE], 2);
	ck_assert_uint_eq(s.sum_ns[LAT_WRITE][LAT_WIRE], 5 * NSEC_PER_SEC);
	ck_assert_uint_eq(s.sum_ns[LAT_WRITE][LAT_WAITING], 2 * NSEC_PER_SEC);
	ck_assert_uint_eq(s.wait_ns[LAT_WRITE][LAT_WAIT_ORDER], 2 * NSEC_PER_SEC);
	ck_assert_uint_eq(s.max_ns[LAT_WRITE], 4 * NSEC_PER_SEC);
	/* One has not waited: its time is 0, and counts. */
	ck_assert(scsi_lu_get_histogram(h.lu, LAT_WRITE, LAT_WAITING, &hist));
	ck_assert_uint_eq(hist.count, 2);
	ck_assert_uint_eq(hist.bucket[0], 1);
	ck_assert_uint_eq(hist.sum_ns, 2 * NSEC_PER_SEC);
	ck_assert(!scsi_lu_get_histogram(h.lu, LAT_SYNC, LAT_TOTAL, &hist));
	host_close(&h);
}
END_TEST

static void do_limit(void *arg)
{
	ck_assert_int_eq(scsi_lu_update(h.lu, "iops_limit", arg), 0);
}

static struct blk *other;
static void do_swap(void *arg)
{
	scsi_lu_set_blk(h.lu, other, host_outcome, arg);
}

/* For a limit; then for its data. One that is aborted while it waits has waited for it, too. */
START_TEST(limit_and_wire)
{
	struct host_cmd *c[3];
	struct lat_sums s;

	up();
	host_do(&h, do_limit, "1");
	n->hold_fetch = true;
	for (unsigned i = 0; i < 3; i++)
		c[i] = host_start_write(n, 8); /* may begin after 1, 2 and 3 s */
	host_pass(&h, 1000);
	host_pass(&h, 500);
	host_abort(c[2]);
	host_finish(c[2]);
	host_pass(&h, 500);
	host_release(n);
	host_finish(c[0]);
	host_finish(c[1]);
	s = sums();
	ck_assert_uint_eq(s.count[LAT_WRITE], 3);
	ck_assert_uint_eq(s.wait_ns[LAT_WRITE][LAT_WAIT_LIMIT], 4500 * NSEC_PER_MSEC);
	ck_assert_uint_eq(s.sum_ns[LAT_WRITE][LAT_WAITING], 4500 * NSEC_PER_MSEC);
	ck_assert_uint_eq(s.sum_ns[LAT_WRITE][LAT_WIRE], NSEC_PER_SEC);
	host_close(&h);
}
END_TEST

/* For a limit, and while the store is replaced for that. */
START_TEST(limit_and_order)
{
	struct blk_open_args args = { .path = "64m", .block_size = 512, .node = -1 };
	struct host_outcome r = { false, 0 };
	struct host_cmd *c, *busy;
	struct lat_sums s;

	up();
	host_do(&h, do_limit, "1");
	m->hold_fetch = true;
	busy = host_start_write(m, 8);
	host_pass(&h, 1000); /* it waits for data now; who replaces the store waits for it */
	c = host_start_write(n, 8);
	host_pass(&h, 400);
	other = blk_open("ram", &args);
	host_do(&h, do_swap, &r);
	host_pass(&h, 3000);
	ck_assert(!r.done && !c->ended);
	host_release(m);
	host_finish(busy);
	ck_assert(host_wait(&h, &r.done));
	host_pass(&h, 2000);
	host_finish(c);
	s = sums();
	ck_assert_uint_eq(s.count[LAT_WRITE], 2);
	ck_assert_uint_eq(s.wait_ns[LAT_WRITE][LAT_WAIT_ORDER], 3 * NSEC_PER_SEC);
	ck_assert_uint_ge(s.wait_ns[LAT_WRITE][LAT_WAIT_LIMIT], 1400 * NSEC_PER_MSEC);
	host_close(&h);
}
END_TEST

START_TEST(outlives_sessions)
{
	struct lat_slow slow[LAT_SLOW_KEPT];
	struct host_cmd *a;
	unsigned found;

	up();
	for (unsigned i = 1; i <= LAT_SLOW_KEPT + 4; i++) {
		n->hold_fetch = true;
		a = host_start_write(n, 8);
		host_pass(&h, 100 * i);
		host_release(n);
		host_finish(a);
		if (i == 10) {
			host_logout(n);
			host_logout(m);
			ck_assert_uint_eq(sums().count[LAT_WRITE], 10);
			n = host_login_ready(&h, "iqn.again");
		}
	}
	ck_assert_uint_eq(sums().count[LAT_WRITE], LAT_SLOW_KEPT + 4);
	found = scsi_lu_get_slow(h.lu, slow);
	ck_assert_uint_eq(found, LAT_SLOW_KEPT);
	for (unsigned i = 0; i < found; i++) {
		const uint64_t took = 100 * (LAT_SLOW_KEPT + 4 - i) * NSEC_PER_MSEC;

		ck_assert_uint_eq(slow[i].total_ns, took);
		ck_assert_uint_eq(slow[i].part_ns[LAT_WIRE], took);
		ck_assert_uint_eq(slow[i].opcode, 0x2a);
		ck_assert_uint_eq(slow[i].bytes, 8 * 512);
		ck_assert_str_eq(slow[i].initiator, took > 1000 * NSEC_PER_MSEC ? "iqn.again" :
										  "iqn.n");
	}
	/* What is an hour old makes room for anything. */
	host_pass(&h, LAT_SLOW_SECONDS * 1000 + 1000);
	host_close(&h);
}
END_TEST

/* Aborted commands count as the others do: what hangs must be seen. */
START_TEST(aborted)
{
	struct host_cmd *a;

	up();
	n->hold_fetch = true;
	a = host_start_write(n, 8);
	host_pass(&h, 60000);
	host_abort(a);
	host_release(n);
	host_finish(a);
	ck_assert_uint_eq(sums().max_ns[LAT_WRITE], 60 * NSEC_PER_SEC);
	host_close(&h);
}
END_TEST

START_TEST(by_initiator)
{
	struct lat_hist hist;
	struct host_cmd *a;

	up();
	host_finish(host_start_write(n, 8));
	ck_assert(!scsi_lu_get_initiator(h.lu, &n->n, LAT_WRITE, &hist));
	lat_initiators_set(true);
	m->hold_fetch = true;
	a = host_start_write(m, 8);
	host_pass(&h, 10);
	host_release(m);
	host_finish(a);
	host_finish(host_start_write(n, 8));
	ck_assert(scsi_lu_get_initiator(h.lu, &m->n, LAT_WRITE, &hist));
	ck_assert_uint_eq(hist.max_ns, 10 * NSEC_PER_MSEC);
	ck_assert(scsi_lu_get_initiator(h.lu, &n->n, LAT_WRITE, &hist));
	ck_assert_uint_eq(hist.count, 1);
	ck_assert(!scsi_lu_get_initiator(h.lu, &n->n, LAT_READ, &hist));
	lat_initiators_set(false);
	host_close(&h);
}
END_TEST

/* ---- what is an error ------------------------------------------------------------------------ */

START_TEST(unit_attentions_are_none)
{
	struct scsi_lu_stats st;

	up();
	host_login(&h, "iqn.fresh");
	n = list_entry(h.nexuses.prev, struct host_nexus, link);
	ck_assert_uint_eq(host_tur(n, 1), 0x02);
	ck_assert_str_eq(host_result(n), "06/29/00");
	scsi_lu_get_stats(h.lu, NULL, &st);
	ck_assert_uint_eq(st.errs, 0);
	/* PRE-FETCH ends with CONDITION MET. */
	ck_assert_uint_eq(host_none(n, 1, (uint8_t[10]){ 0x34, [8] = 1 }, 10), 0x04);
	scsi_lu_get_stats(h.lu, NULL, &st);
	ck_assert_uint_eq(st.errs, 0);
	ck_assert_uint_eq(host_none(n, 1, (uint8_t[6]){ 0xff }, 6), 0x02);
	scsi_lu_get_stats(h.lu, NULL, &st);
	ck_assert_uint_eq(st.errs, 1);
	host_close(&h);
}
END_TEST

UNIT_MAIN("latency", 30, buckets, against_an_exact_record, what_came_since, wire_and_order,
	  limit_and_wire, limit_and_order, outlives_sessions, aborted, by_initiator,
	  unit_attentions_are_none)
