/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * COMPARE AND WRITE as clusters use it: counters that many initiators increment at once, each by
 * reading a counter and replacing what it read. Eight sessions over two portals, homed on the
 * threads of four LUs, or on the two threads of the one LU, all at the same few blocks of LUN 1:
 * not one increment may be lost (SBC-4 5.3: nothing comes between the compare and the write), and
 * no read may see half a write.
 *
 *   TGT_CAW_INCREMENTS   a session (default 5,000; the whole is 100,000)
 */
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/support/daemon.h"
#include "tests/support/unit.h"

#define SESSIONS 8
#define LUS 4
#define THREADS 2 /* of an LU, at most */
#define COUNTERS 4
#define BLOCK 512
#define COUNTER_LBA(i) (1000 + 7 * (i))

/* Every word of a block says the same. */
static void counter_block(uint64_t *b, uint64_t value)
{
	for (unsigned i = 0; i < BLOCK / 8; i++)
		b[i] = value * 0x9e3779b97f4a7c15u + i;
	b[0] = value;
}

static bool counter_whole(const uint64_t *b)
{
	uint64_t want[BLOCK / 8];

	counter_block(want, b[0]);
	return !memcmp(b, want, BLOCK);
}

struct worker {
	pthread_t thread;
	struct iscsi_context *iscsi;
	unsigned seed, increments;
	uint64_t misses;
	char error[256];
};

static bool failed(struct worker *w, const char *what)
{
	snprintf(w->error, sizeof(w->error), "%s: %s", what, iscsi_get_error(w->iscsi));
	return false;
}

/* One attempt; *done: it was us. */
static bool attempt(struct worker *w, uint32_t lba, bool *done)
{
	uint64_t data[2 * BLOCK / 8];
	struct scsi_task *task = iscsi_read10_sync(w->iscsi, 1, lba, BLOCK, BLOCK, 0, 0, 0, 0, 0);

	if (!task || task->status != SCSI_STATUS_GOOD || task->datain.size != BLOCK)
		return failed(w, "read");
	memcpy(data, task->datain.data, BLOCK);
	scsi_free_scsi_task(task);
	if (!counter_whole(data))
		return failed(w, "half a block");
	counter_block(data + BLOCK / 8, data[0] + 1);
	task = iscsi_compareandwrite_sync(w->iscsi, 1, lba, (unsigned char *)data, sizeof(data),
					  BLOCK, 0, 0, 0, 0, 0);
	if (!task)
		return failed(w, "compare and write");
	*done = task->status == SCSI_STATUS_GOOD;
	if (!*done && (task->status != SCSI_STATUS_CHECK_CONDITION ||
		       task->sense.key != SCSI_SENSE_MISCOMPARE))
		return failed(w, "neither done nor miscompare");
	scsi_free_scsi_task(task);
	return true;
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < w->increments; i++) {
		uint32_t lba = COUNTER_LBA((unsigned)rand_r(&w->seed) % COUNTERS);
		bool done = false;

		while (!done) {
			if (!attempt(w, lba, &done))
				return NULL;
			w->misses += !done;
		}
	}
	return NULL;
}

static void zero_counters(struct tgt *t)
{
	struct iscsi_context *i = tgt_login(t, 1, 1, "iqn.2026-11.org.tgtd.test:zero");
	uint64_t b[BLOCK / 8];

	counter_block(b, 0);
	for (unsigned c = 0; c < COUNTERS; c++) {
		struct scsi_task *task = iscsi_write10_sync(
			i, 1, COUNTER_LBA(c), (unsigned char *)b, BLOCK, BLOCK, 0, 0, 0, 0, 0);

		ck_assert_msg(task && task->status == SCSI_STATUS_GOOD, "%s", iscsi_get_error(i));
		scsi_free_scsi_task(task);
	}
	tgt_logout(i);
}

static uint64_t sum_counters(struct tgt *t)
{
	struct iscsi_context *i = tgt_login(t, 1, 1, "iqn.2026-11.org.tgtd.test:sum");
	uint64_t sum = 0;

	for (unsigned c = 0; c < COUNTERS; c++) {
		struct scsi_task *task =
			iscsi_read10_sync(i, 1, COUNTER_LBA(c), BLOCK, BLOCK, 0, 0, 0, 0, 0);
		uint64_t b[BLOCK / 8];

		ck_assert_msg(task && task->status == SCSI_STATUS_GOOD, "%s", iscsi_get_error(i));
		memcpy(b, task->datain.data, BLOCK);
		ck_assert(counter_whole(b));
		sum += b[0];
		scsi_free_scsi_task(task);
	}
	tgt_logout(i);
	return sum;
}

/* The next free port after the first portal's. */
static void second_portal(struct tgt *t, char *portal, size_t len)
{
	for (int port = t->port + 1; port < t->port + 50 && port < 65536; port++) {
		snprintf(portal, len, "127.0.0.1:%d", port);
		if (!tgt_adm(t, "--lld iscsi --op new --mode portal --param portal=%s", portal))
			return;
	}
	ck_abort_msg("no second portal: %s", t->output);
}

/* CPU time of the LUN's thread number @k. */
static uint64_t used(struct tgt *t, int lun, int k)
{
	char thread[32], further[32];

	snprintf(thread, sizeof(thread), "lu-1:%d", lun);
	snprintf(further, sizeof(further), "lu-1:%d.%d", lun, k);
	/* what begins with the first one's name are all of them */
	return k ? tgt_thread_cpu(t, further) :
		   tgt_thread_cpu(t, thread) - tgt_thread_cpu(t, strcat(thread, "."));
}

static void count(bool ram, int lus, int threads)
{
	const char *env = getenv("TGT_CAW_INCREMENTS"), *bin = getenv("TGT_BIN");
	bool sanitized = bin && (strstr(bin, "/asan/") || strstr(bin, "/tsan/"));
	unsigned increments = env ? (unsigned)atoi(env) : sanitized ? 300 : 5000, busy = 0;
	struct worker w[SESSIONS] = { 0 };
	char first[64], second[64];
	uint64_t misses = 0, cpu[LUS][THREADS];
	struct timespec a, b;
	struct tgt t;

	tgt_start(&t, "--cache size=4m");
	tgt_target(&t, 1);
	for (int lun = 1; lun <= lus; lun++) {
		if (ram)
			tgt_lun_ram(&t, 1, lun, "16m");
		else
			tgt_lun_aio(&t, 1, lun, 16 << 20);
		tgt_adm_ok(&t, "-m lu -o update -t 1 -l %d -P threads=%d", lun, threads);
	}
	zero_counters(&t);
	snprintf(first, sizeof(first), "%s", t.portal);
	second_portal(&t, second, sizeof(second));
	for (unsigned k = 0; k < SESSIONS; k++) {
		char name[64];

		snprintf(name, sizeof(name), "iqn.2026-11.org.tgtd.test:caw-%u", k);
		snprintf(t.portal, sizeof(t.portal), "%s", k % 2 ? second : first);
		w[k] = (struct worker){ .iscsi = tgt_login(&t, 1, 1, name),
					.seed = k + 1,
					.increments = increments };
	}
	snprintf(t.portal, sizeof(t.portal), "%s", first);
	for (int lun = 1; lun <= lus; lun++) {
		for (int k = 0; k < threads; k++)
			cpu[lun - 1][k] = used(&t, lun, k);
	}
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (unsigned k = 0; k < SESSIONS; k++)
		ck_assert_int_eq(pthread_create(&w[k].thread, NULL, work, &w[k]), 0);
	for (unsigned k = 0; k < SESSIONS; k++)
		pthread_join(w[k].thread, NULL);
	clock_gettime(CLOCK_MONOTONIC, &b);
	for (unsigned k = 0; k < SESSIONS; k++) {
		ck_assert_msg(!w[k].error[0], "session %u: %s", k, w[k].error);
		misses += w[k].misses;
	}
	for (int lun = 1; lun <= lus; lun++) {
		for (int k = 0; k < threads; k++)
			busy += used(&t, lun, k) - cpu[lun - 1][k] > 1000000;
	}
	printf("# %s: %u x %u increments in %.1f s, %llu miscompares, on %u threads\n",
	       ram ? "ram" : "cached file", SESSIONS, increments,
	       (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec),
	       (unsigned long long)misses, busy);
	ck_assert_uint_eq(sum_counters(&t), (uint64_t)SESSIONS * increments);
	/* They did meet, and on threads of their own. */
	ck_assert_uint_gt(misses, 0);
	ck_assert_uint_ge(busy, 2);
	for (unsigned k = 0; k < SESSIONS; k++)
		tgt_logout(w[k].iscsi);
	tgt_stop(&t, true);
}

START_TEST(no_increment_is_lost_in_memory)
{
	count(true, LUS, 1);
}
END_TEST

START_TEST(no_increment_is_lost_behind_the_cache)
{
	count(false, LUS, 1);
}
END_TEST

START_TEST(no_increment_is_lost_on_two_threads_of_one_lu)
{
	count(false, 1, THREADS);
}
END_TEST

UNIT_MAIN("compare and write", 900, no_increment_is_lost_in_memory,
	  no_increment_is_lost_behind_the_cache, no_increment_is_lost_on_two_threads_of_one_lu)
