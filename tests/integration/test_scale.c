/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * 1,000 sessions and 1,000 logical units in one target, in either order: what each costs in memory,
 * what all of them cost an administrator, and that all of it is given back. Every session knows of
 * every unit, so this is a million pairs.
 */
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "conf/adm_client.h"
#include "tests/support/daemon.h"
#include "tests/support/unit.h"

#define MANY 1000
#define ROUNDS 21 /* of an operation */
#define ROUNDS_OF_ALL 3
#define SPARE 5000 /* LUN of the unit that comes and goes */

static struct tgt t;
static struct iscsi_context *session[MANY];
static unsigned many, luns, sessions;
static bool slow;

static double now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

/* Memory of the cache that is still being prepared is not that of sessions or units. */
static uint64_t steady_rss(void)
{
	uint64_t was = 0, is;

	for (unsigned k = 0; (is = tgt_rss(&t)) != was && k < 20; k++) {
		was = is;
		usleep(200000);
	}
	return is;
}

static unsigned entries(const char *dir)
{
	char path[64];
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/%s", t.worker, dir);
	d = opendir(path);
	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

/* ---- administration -------------------------------------------------------------------------- */

static double ask(struct adm_client *c, const struct adm_req *r, size_t *length)
{
	double at = now_ms();
	struct adm_reply reply;

	ck_assert_int_eq(adm_call(c, r, &reply), 0);
	ck_assert_msg(reply.status == ADM_OK, "mode %d, op %d: %s", r->mode, r->op, reply.detail);
	if (length)
		*length = strlen(reply.text);
	adm_reply_free(&reply);
	return now_ms() - at;
}

static double lun(struct adm_client *c, enum adm_op op, uint64_t n, const char *type,
		  const char *path, const char *params)
{
	struct adm_req r;

	adm_req_init(&r, ADM_LU, op);
	r.has_tid = r.has_lun = true;
	r.tid = 1;
	r.lun = n;
	r.text[ADM_T_BSTYPE] = type;
	r.text[ADM_T_PATH] = path;
	r.text[ADM_T_PARAMS] = params;
	return ask(c, &r, NULL);
}

static double target(struct adm_client *c, enum adm_mode mode, enum adm_op op, uint32_t tid,
		     size_t *length)
{
	struct adm_req r;

	adm_req_init(&r, mode, op);
	r.has_tid = tid != 0;
	r.tid = tid;
	if (op == ADM_NEW)
		r.text[ADM_T_TARGETNAME] = "iqn.2026-11.org.tgtd.test:another";
	if (op == ADM_BIND || op == ADM_UNBIND)
		r.text[ADM_T_ADDRESS] = "10.9.8.7";
	return ask(c, &r, length);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* What operations take with what is there: median and worst, in ms. None costs more for units that
 * it is not about. The deletion of a unit asks every session to let go of it, on as many threads as
 * they are on. */
static void administer(const char *when)
{
	static const char *const what[] = { "lu new",	  "lu update", "lu stat", "lu delete",
					    "target new", "bind",      "unbind",  "target delete" };
	double took[8][ROUNDS], at;
	struct adm_client c = { .fd = -1 };
	double bound = getenv("TGT_STRICT") ? 10 : 200; /* on a busy machine anything waits */
	size_t targets, conns;

	printf("# %s: %u LUNs, %u sessions, %u threads, %u descriptors\n", when, luns, sessions,
	       entries("task"), entries("fd"));
	for (int k = 0; k < ROUNDS; k++) {
		took[0][k] = lun(&c, ADM_NEW, SPARE, "null", "1g", NULL);
		took[1][k] = lun(&c, ADM_UPDATE, SPARE, NULL, NULL, "readonly=1,vendor_id=X");
		took[2][k] = lun(&c, ADM_STAT, SPARE, NULL, NULL, NULL);
		took[3][k] = lun(&c, ADM_DELETE, SPARE, NULL, NULL, NULL);
		took[4][k] = target(&c, ADM_TARGET, ADM_NEW, 2, NULL);
		took[5][k] = target(&c, ADM_TARGET, ADM_BIND, 1, NULL);
		took[6][k] = target(&c, ADM_TARGET, ADM_UNBIND, 1, NULL);
		took[7][k] = target(&c, ADM_TARGET, ADM_DELETE, 2, NULL);
	}
	for (unsigned op = 0; op < 8; op++) {
		qsort(took[op], ROUNDS, sizeof(double), by_value);
		printf("# %s: %s takes %.2f ms, %.2f at worst\n", when, what[op],
		       took[op][ROUNDS / 2], took[op][ROUNDS - 1]);
		if (!slow)
			ck_assert_msg(took[op][ROUNDS / 2] <
					      bound + (op == 3 ? 0.05 * sessions : 0),
				      "%s: %s takes %.2f ms", when, what[op], took[op][ROUNDS / 2]);
	}
	at = target(&c, ADM_TARGET, ADM_SHOW, 0, &targets);
	printf("# %s: showing all targets takes %.2f ms, %zu bytes", when, at, targets);
	at = target(&c, ADM_CONN, ADM_SHOW, 1, &conns);
	printf("; all connections %.2f ms, %zu bytes\n", at, conns);
	if (!slow) {
		ck_assert_uint_ge(targets, luns * 400 + sessions * 100);
		ck_assert_uint_ge(conns, sessions * 100);
	}
	adm_disconnect(&c);
	at = now_ms();
	tgt_adm_ok(&t, "-m account -o show");
	printf("# %s: tgtadm, the process with its start, takes %.1f ms\n", when, now_ms() - at);
}

/* ---- more of both ---------------------------------------------------------------------------- */

static const struct kind {
	const char *type;
	unsigned limit_kib;
} kinds[] = { { "null", 96 }, { "ram", 96 }, { "aio", 192 } };

static void add_luns(void)
{
	struct adm_client c = { .fd = -1 };
	int64_t before = (int64_t)steady_rss();
	unsigned each = many / 3;

	for (unsigned kind = 0; kind < 3; kind++) {
		int64_t after;
		double took = 0;

		if (kind == 2)
			each = many - luns;
		for (unsigned k = 0; k < each; k++) {
			char path[96] = "16m";

			luns++;
			if (kind == 2) {
				int fd;

				snprintf(path, sizeof(path), "%s/lun-%u", t.dir, luns);
				fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
				ck_assert_int_ge(fd, 0);
				ck_assert_int_eq(ftruncate(fd, 16 << 20), 0);
				close(fd);
			}
			took += lun(&c, ADM_NEW, luns, kinds[kind].type, path, NULL);
		}
		after = (int64_t)steady_rss();
		printf("# %u %s LUNs: %.1f KiB each, made in %.2f ms each\n", each,
		       kinds[kind].type, (double)(after - before) / 1024 / each, took / each);
		if (!slow)
			ck_assert_int_lt((after - before) / 1024 / (int)each,
					 kinds[kind].limit_kib);
		before = after;
	}
	ck_assert_uint_eq(luns, many);
	adm_disconnect(&c);
}

/* There are as few unit attentions as there are kinds of them, whatever has come and gone. */
static void ready(struct iscsi_context *i, int n)
{
	char seen[256] = "";
	size_t at = 0;

	for (unsigned k = 0; k < 8; k++) {
		struct scsi_task *task = iscsi_testunitready_sync(i, n);
		int status;

		ck_assert_msg(task != NULL, "%s", iscsi_get_error(i));
		status = task->status;
		at += (size_t)snprintf(seen + at, sizeof(seen) - at, " %04x",
				       (unsigned)task->sense.ascq);
		scsi_free_scsi_task(task);
		if (status == SCSI_STATUS_GOOD)
			return;
	}
	ck_abort_msg("LUN %d is not ready: sense%s", n, seen);
}

static void add_sessions(void)
{
	int64_t before = (int64_t)steady_rss(), after; /* (what was freed before may leave now) */
	double at = now_ms();
	const int had = (int)sessions;

	for (; sessions < many; sessions++) {
		char name[64];

		snprintf(name, sizeof(name), "iqn.2026-11.org.tgtd.test:scale-%u", sessions);
		session[sessions] = tgt_login(&t, 1, 1, name);
	}
	at = now_ms() - at;
	after = (int64_t)steady_rss();
	const int more = (int)sessions - had;
	printf("# %d sessions with %u LUNs: %.1f KiB each, logged in in %.2f ms each\n", more, luns,
	       (double)(after - before) / 1024 / more, at / more);
	if (!slow)
		/* (4 KiB of it are what outlives the process: tgtd/iscsi/quiet_form.h) */
		ck_assert_int_lt((after - before) / more, 12288 + 24 * luns);
}

/* Each writes to a unit of its own and reads it back. */
static void use_all(void)
{
	uint64_t before = steady_rss(), after;
	uint8_t data[16384];

	for (unsigned k = 0; k < sessions; k++) {
		unsigned number = k % luns + 1;
		/* libiscsi takes the first two bytes of the LUN: flat space addressing
		 * beyond 255 (SAM-5 4.7.7.4) */
		int n = (int)(number < 256 ? number : 0x4000 | number);
		struct scsi_task *task;

		memset(data, (int)k & 0xff, sizeof(data));
		ready(session[k], n);
		task = iscsi_write10_sync(session[k], n, 8, data, sizeof(data), 512, 0, 0, 0, 0, 0);
		ck_assert_msg(task && task->status == SCSI_STATUS_GOOD, "%s",
			      iscsi_get_error(session[k]));
		scsi_free_scsi_task(task);
		task = iscsi_read10_sync(session[k], n, 8, sizeof(data), 512, 0, 0, 0, 0, 0);
		ck_assert_msg(task && task->status == SCSI_STATUS_GOOD, "%s",
			      iscsi_get_error(session[k]));
		if (number > 1 + many / 3) /* null keeps nothing */
			ck_assert_mem_eq(task->datain.data, data, sizeof(data));
		scsi_free_scsi_task(task);
	}
	after = steady_rss();
	printf("# each session has written and read 16 KiB: %.1f KiB more each, a third of them in "
	       "ram LUNs\n",
	       ((double)after - (double)before) / 1024 / sessions);
}

static void take_away(void)
{
	struct adm_client c = { .fd = -1 };
	double at = now_ms();

	while (sessions > 1)
		tgt_logout(session[--sessions]);
	printf("# sessions logged out in %.2f ms each\n", (now_ms() - at) / (many - 1));
	at = now_ms();
	for (; luns > 1; luns--)
		lun(&c, ADM_DELETE, luns, NULL, NULL, NULL);
	printf("# LUNs deleted in %.2f ms each\n", (now_ms() - at) / (many - 1));
	adm_disconnect(&c);
	/* A thread ends some seconds after its unit, when the last session has left it. */
	for (unsigned k = 0; entries("task") > 30 && k < 600; k++)
		usleep(100000);
	ck_assert_uint_le(entries("task"), 30);
	ck_assert_uint_le(entries("fd"), 100);
}

START_TEST(a_thousand_of_both)
{
	struct rlimit rl = { 8192, 8192 };
	const char *bin = getenv("TGT_BIN");
	struct adm_client c = { .fd = -1 };
	uint64_t start, top = 0, end[ROUNDS_OF_ALL];

	setvbuf(stdout, NULL, _IOLBF, 0);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &rl), 0);
	slow = getenv("TGT_SLOW") || (bin && (strstr(bin, "/asan/") || strstr(bin, "/tsan/")));
	many = slow ? 90 : MANY;
	tgt_start(&t, "--cache size=4m"); /* soon used whole: it does not count */
	tgt_target(&t, 1);
	lun(&c, ADM_NEW, 1, "null", "1g", NULL);
	adm_disconnect(&c);
	luns = 1;
	/* The first few pay for what is made once. */
	for (unsigned k = 0; k < 20; k++)
		tgt_logout(tgt_login(&t, 1, 1, NULL));
	session[0] = tgt_login(&t, 1, 1, "iqn.2026-11.org.tgtd.test:scale-0");
	sessions = 1;
	administer("one of each");
	start = steady_rss();
	for (unsigned round = 0; round < ROUNDS_OF_ALL; round++) {
		bool luns_first = round == 0;

		for (unsigned step = 0; step < 2; step++) {
			if ((step == 0) == luns_first)
				add_luns();
			else
				add_sessions();
			administer(step ? "both" : luns_first ? "many LUNs" : "many sessions");
		}
		use_all();
		administer("all in use");
		top = MAX(top, tgt_rss(&t));
		take_away();
		end[round] = steady_rss();
		administer("one of each again");
	}
	/*
	 * What the heap keeps of one time serves the next, but for some fragments. Two more times
	 * must not leave a quarter of what one takes.
	 */
	printf("# %.1f MiB before, %.1f with all of it; after all of it is gone %.1f, %.1f, %.1f\n",
	       (double)start / 1048576, (double)top / 1048576, (double)end[0] / 1048576,
	       (double)end[1] / 1048576, (double)end[2] / 1048576);
	if (!slow)
		ck_assert_uint_lt(end[2], end[0] + (top - start) / 4);
	ready(session[0], 1);
	tgt_logout(session[0]);
	tgt_stop(&t, true);
}
END_TEST

UNIT_MAIN("scale", 90, a_thousand_of_both)
