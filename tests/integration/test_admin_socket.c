/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The admin socket against clients that are wrong, slow, many, foreign or gone; and what operations
 * cost when there are many LUNs.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "conf/adm_client.h"
#include "tests/support/daemon.h"
#include "tests/support/unit.h"

static struct tgt t;

static int raw(void)
{
	struct adm_client c = { .fd = -1 };

	ck_assert_int_eq(adm_connect(&c, 0), 0);
	return c.fd;
}

/* Does the daemon hang up within @ms? */
static bool hangs_up(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char buf[256];

	while (poll(&p, 1, ms) == 1) {
		ssize_t n = recv(fd, buf, sizeof(buf), 0);

		if (n <= 0)
			return true;
	}
	return false;
}

static void still_serves(void)
{
	tgt_adm_ok(&t, "-m sys -o show");
	ck_assert_ptr_nonnull(strstr(t.output, "State: ready"));
}

static enum adm_status ask(struct adm_client *c, struct adm_req *r)
{
	struct adm_reply reply;
	enum adm_status s;

	ck_assert_int_eq(adm_call(c, r, &reply), 0);
	s = reply.status;
	adm_reply_free(&reply);
	return s;
}

static size_t show_request(uint8_t *buf, size_t cap)
{
	struct adm_req r;

	adm_req_init(&r, ADM_TARGET, ADM_SHOW);
	return adm_req_encode(&r, buf, cap);
}

START_TEST(garbage)
{
	uint8_t buf[4096];
	size_t n;
	int fd;

	tgt_start(&t, "");
	fd = raw();
	memset(buf, 'x', sizeof(buf));
	ck_assert_int_eq(write(fd, buf, sizeof(buf)), sizeof(buf));
	ck_assert(hangs_up(fd, 2000));
	close(fd);
	/* a request that says it is huge */
	n = show_request(buf, sizeof(buf));
	memset(buf + 8, 0xff, 4);
	fd = raw();
	ck_assert_int_eq(write(fd, buf, n), n);
	ck_assert(hangs_up(fd, 2000));
	close(fd);
	/* a proper header before fields that are none */
	n = show_request(buf, sizeof(buf));
	buf[ADM_REQ_HEADER] = 99;
	fd = raw();
	ck_assert_int_eq(write(fd, buf, n), n);
	ck_assert(hangs_up(fd, 2000));
	close(fd);
	/* no fields at all */
	memset(buf + 8, 0, 4);
	fd = raw();
	ck_assert_int_eq(write(fd, buf, ADM_REQ_HEADER), ADM_REQ_HEADER);
	ck_assert(hangs_up(fd, 2000));
	close(fd);
	still_serves();
	tgt_stop(&t, true);
}
END_TEST

/* tgtd crashed on requests that its own tool does not make. */
START_TEST(requests_that_the_tool_would_not_make)
{
	struct adm_client c = { .fd = -1 };
	struct adm_req r;

	tgt_start(&t, "");
	/* every mode and operation, with nothing said */
	for (unsigned mode = 0; mode < ADM_MODES; mode++)
		for (unsigned op = 0; op < ADM_OPS; op++) {
			/* the end of the daemon; and what is answered again and again */
			if (mode == ADM_SYSTEM && (op == ADM_DELETE || op == ADM_WATCH))
				continue;
			adm_req_init(&r, (enum adm_mode)mode, (enum adm_op)op);
			ask(&c, &r);
		}
	adm_req_init(&r, ADM_TARGET, ADM_NEW);
	r.has_tid = true;
	r.tid = 1;
	ck_assert_int_eq(ask(&c, &r), ADM_INVALID_REQUEST); /* no name */
	r.text[ADM_T_TARGETNAME] = "iqn.x";
	r.tid = 0;
	ck_assert_int_eq(ask(&c, &r), ADM_INVALID_REQUEST);
	r.tid = 1;
	ck_assert_int_eq(ask(&c, &r), ADM_OK);
	/* LUN 0, absurd LUNs, absurd sessions */
	adm_req_init(&r, ADM_LU, ADM_NEW);
	r.has_tid = r.has_lun = true;
	r.tid = 1;
	r.text[ADM_T_PATH] = "8m";
	r.text[ADM_T_BSTYPE] = "ram";
	ck_assert_int_eq(ask(&c, &r), ADM_LUN_EXIST);
	r.lun = 1ull << 32;
	ck_assert_int_eq(ask(&c, &r), ADM_INVALID_REQUEST);
	r.op = ADM_DELETE;
	ck_assert_int_eq(ask(&c, &r), ADM_NO_LUN);
	adm_req_init(&r, ADM_CONN, ADM_DELETE);
	r.has_tid = r.has_sid = r.has_cid = true;
	r.tid = 1;
	r.sid = UINT64_MAX;
	r.cid = UINT32_MAX;
	ck_assert_int_eq(ask(&c, &r), ADM_NO_SESSION);
	adm_disconnect(&c);
	still_serves();
	tgt_stop(&t, true);
}
END_TEST

static unsigned seed;

static unsigned rnd(unsigned n)
{
	seed = seed * 1103515245 + 12345;
	return (seed >> 16) % n;
}

/* What is one text in a request is one in what `show` prints and in a dump: no
 * second line can be slipped in. */
START_TEST(control_characters)
{
	static const struct { enum adm_mode mode; enum adm_op op; enum adm_text text;
	} rows[] = {
		{ ADM_TARGET, ADM_NEW, ADM_T_TARGETNAME },
		{ ADM_TARGET, ADM_BIND, ADM_T_INITIATOR },
		{ ADM_TARGET, ADM_BIND, ADM_T_ADDRESS },
		{ ADM_ACCOUNT, ADM_NEW, ADM_T_USER },
		{ ADM_ACCOUNT, ADM_NEW, ADM_T_PASSWORD },
		{ ADM_LU, ADM_NEW, ADM_T_PATH },
		{ ADM_LU, ADM_NEW, ADM_T_BSOPTS },
		{ ADM_SYSTEM, ADM_UPDATE, ADM_T_VALUE },
		{ ADM_TARGET, ADM_UPDATE, ADM_T_VALUE },
		{ ADM_LU, ADM_UPDATE, ADM_T_PARAMS },
	};
	static const char *const bad[] = { "x\nTarget 7: iqn.x", "x\ry", "\x1b[2J", "x\ty",
					   "x\x7f" };
	struct adm_client c = { .fd = -1 };
	static char before[sizeof(t.output)];

	tgt_start(&t, "");
	tgt_target(&t, 1);
	tgt_adm_ok(&t, "-m target -o show");
	strcpy(before, t.output);
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
		for (unsigned k = 0; k < ARRAY_SIZE(bad); k++) {
			struct adm_req r;

			adm_req_init(&r, rows[i].mode, rows[i].op);
			r.has_tid = true;
			r.tid = rows[i].text == ADM_T_TARGETNAME ? 2 : 1;
			r.has_lun = true;
			r.lun = 1;
			r.text[ADM_T_NAME] =
				rows[i].mode == ADM_SYSTEM ? "iSNSServerIP" : "RedirectAddress";
			if (rows[i].mode == ADM_ACCOUNT)
				r.text[ADM_T_USER] = r.text[ADM_T_PASSWORD] = "secretsecret1";
			if (rows[i].mode == ADM_LU) {
				r.text[ADM_T_PATH] = "8m";
				r.text[ADM_T_BSTYPE] = "ram";
			}
			r.text[rows[i].text] = bad[k];
			ck_assert_msg(ask(&c, &r) == ADM_INVALID_REQUEST, "row %u, text %u", i, k);
		}
	adm_disconnect(&c);
	tgt_adm_ok(&t, "-m target -o show");
	ck_assert_str_eq(t.output, before);
	tgt_adm_ok(&t, "-m account -o show");
	ck_assert_ptr_null(strstr(t.output, "secret"));
	tgt_stop(&t, true);
}
END_TEST

/* Thousands of requests of all kinds with values of all kinds, in
 * which whole setups come and go. */
START_TEST(random_requests)
{
	static const char *const words[] = {
		"",
		"iqn.x:a",
		"iqn.x:b",
		"u1",
		"u2",
		"secret",
		"ram",
		"null",
		"8m",
		"4096",
		"512",
		"ALL",
		"10.0.0.0/8",
		"127.0.0.1",
		"readonly=1",
		"online=0,online=1",
		"path=16m",
		"vendor_id=A,product_id=B,scsi_sn=C",
		"readonly",
		"vendor_id",
		"mode_page=8:0:18:0x10",
		"mode_page",
		"sync",
		"cache=none",
		"node=0",
		"1,3-5",
		"all",
		"state",
		"offline",
		"ready",
		"MaxBurstLength",
		"65536",
		"nop_interval",
		"5",
		"State",
		"iscsi",
		"RedirectAddress",
		"config",
		",,,",
		"=",
		"a=b,c",
		"scsi_id=\xff\xfe",
		"%s%n%x",
		"../../etc/passwd",
		"name with\nnewline",
	};
	struct adm_client c = { .fd = -1 };
	unsigned good = 0;

	tgt_start(&t, "");
	seed = 1;
	for (unsigned n = 0; n < 6000; n++) {
		struct adm_req r;

		adm_req_init(&r, (enum adm_mode)rnd(ADM_MODES), (enum adm_op)rnd(ADM_OPS));
		if (r.mode == ADM_SYSTEM && (r.op == ADM_DELETE || r.op == ADM_WATCH))
			continue;
		if (r.op == ADM_EXPLAIN && rnd(10))
			continue; /* it takes a second */
		/* portals would collide with other tests' */
		if (r.mode == ADM_PORTAL && r.op != ADM_SHOW)
			continue;
		r.force = rnd(2);
		r.outgoing = !rnd(3);
		r.device_type = rnd(8) ? ADM_TYPE_DISK : (uint8_t)rnd(256);
		r.has_tid = rnd(8);
		r.tid = 1 + rnd(3);
		r.has_lun = rnd(8);
		r.lun = rnd(4);
		r.has_sid = !rnd(3);
		r.sid = rnd(3);
		r.has_cid = !rnd(3);
		for (unsigned k = 0; k < ADM_TEXTS; k++)
			if (k == ADM_T_LLD ? !rnd(20) : rnd(2))
				r.text[k] = words[rnd(sizeof(words) / sizeof(words[0]))];
		/* the likely ones often enough that things are made */
		if (rnd(2)) {
			r.text[ADM_T_BSTYPE] = rnd(2) ? "ram" : "null";
			r.text[ADM_T_PATH] = "8m";
			r.text[ADM_T_BSOPTS] = r.text[ADM_T_BSOFLAGS] = r.text[ADM_T_BLOCKSIZE] =
				NULL;
			r.text[ADM_T_TARGETNAME] = rnd(2) ? "iqn.x:a" : "iqn.x:b";
		}
		good += ask(&c, &r) == ADM_OK;
	}
	ck_assert_uint_gt(good, 300);
	adm_disconnect(&c);
	tgt_adm_ok(&t, "-m sys -o update -n State -v ready");
	still_serves();
	tgt_stop(&t, true);
}
END_TEST

/* Many at once, none of which says anything, or half of something: others are served meanwhile. */
START_TEST(silent_and_slow_clients)
{
	uint8_t buf[256];
	size_t n = show_request(buf, sizeof(buf));
	int fd[40];

	tgt_start(&t, "");
	for (int k = 0; k < 40; k++) {
		fd[k] = raw();
		if (k % 2)
			ck_assert_int_eq(write(fd[k], buf, n / 2), n / 2);
	}
	still_serves();
	/* the other half arrives byte by byte */
	for (size_t k = n / 2; k < n; k++) {
		ck_assert_int_eq(write(fd[1], buf + k, 1), 1);
		usleep(1000);
	}
	ck_assert(!hangs_up(fd[1], 100));
	/* stopped in the middle: closed after 10 s, the silent ones not yet */
	ck_assert(hangs_up(fd[3], 15000));
	ck_assert(!hangs_up(fd[2], 100));
	still_serves();
	for (int k = 0; k < 40; k++)
		close(fd[k]);
	tgt_stop(&t, true);
}
END_TEST

/* More than are served at a time: the rest waits for its turn. */
START_TEST(a_crowd)
{
	uint8_t buf[256];
	size_t n = show_request(buf, sizeof(buf));
	int fd[100];

	tgt_start(&t, "");
	for (int k = 0; k < 100; k++) {
		fd[k] = raw();
		ck_assert_int_eq(write(fd[k], buf, n), n);
	}
	for (int k = 0; k < 100; k++) {
		uint8_t head[ADM_RSP_HEADER];

		ck_assert_int_eq(recv(fd[k], head, sizeof(head), MSG_WAITALL), sizeof(head));
		close(fd[k]);
	}
	still_serves();
	tgt_stop(&t, true);
}
END_TEST

/* Clients that ask and leave: what they asked for is done, and no answer harms the daemon. */
START_TEST(gone_before_the_answer)
{
	uint8_t buf[1024];
	struct adm_req r;
	size_t n;

	tgt_start(&t, "");
	for (int k = 1; k <= 20; k++) {
		char name[32];
		int fd = raw();

		adm_req_init(&r, ADM_TARGET, ADM_NEW);
		r.has_tid = true;
		r.tid = (uint32_t)k;
		snprintf(name, sizeof(name), "iqn.gone:%d", k);
		r.text[ADM_T_TARGETNAME] = name;
		n = adm_req_encode(&r, buf, sizeof(buf));
		ck_assert_int_eq(write(fd, buf, n), n);
		/* and, without waiting, a LUN, which takes a while, on another connection */
		adm_req_init(&r, ADM_LU, ADM_NEW);
		r.has_tid = r.has_lun = true;
		r.tid = (uint32_t)k;
		r.lun = 1;
		r.text[ADM_T_BSTYPE] = "ram";
		r.text[ADM_T_PATH] = "1m";
		n = adm_req_encode(&r, buf, sizeof(buf));
		ck_assert_int_eq(write(fd, buf, n), n);
		close(fd);
	}
	usleep(200000);
	tgt_adm_ok(&t, "-m target -o show");
	for (int k = 1; k <= 20; k++) {
		char line[64];

		snprintf(line, sizeof(line), "Target %d: iqn.gone:%d\n", k, k);
		ck_assert_ptr_nonnull(strstr(t.output, line));
	}
	tgt_stop(&t, true);
}
END_TEST

/* A reader that does not read: it is closed in the end, and nobody else waits. */
START_TEST(answers_nobody_takes)
{
	uint8_t buf[256];
	size_t n = show_request(buf, sizeof(buf));
	struct timespec a, b;
	int fd;

	tgt_start(&t, "");
	for (int k = 1; k <= 300; k++) {
		struct adm_client c = { .fd = -1 };
		char name[32];
		struct adm_req r;

		adm_req_init(&r, ADM_TARGET, ADM_NEW);
		r.has_tid = true;
		r.tid = (uint32_t)k;
		snprintf(name, sizeof(name), "iqn.many:%d", k);
		r.text[ADM_T_TARGETNAME] = name;
		ck_assert_int_eq(ask(&c, &r), ADM_OK);
		adm_disconnect(&c);
	}
	fd = raw();
	/* enough answers to fill any socket buffer */
	for (int k = 0; k < 40; k++)
		if (send(fd, buf, n, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)n)
			break;
	clock_gettime(CLOCK_MONOTONIC, &a);
	still_serves();
	clock_gettime(CLOCK_MONOTONIC, &b);
	ck_assert_int_lt(b.tv_sec - a.tv_sec, 3);
	close(fd);
	tgt_stop(&t, true);
}
END_TEST

START_TEST(other_users)
{
	struct stat st;
	char path[128];
	int status;
	pid_t pid;

	if (getuid())
		return;
	tgt_start(&t, "");
	snprintf(path, sizeof(path), "%s/socket.0", t.dir);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_eq(st.st_mode & 0777, 0600);
	/* even if the file let them: the peer's credentials count */
	ck_assert_int_eq(chmod(path, 0666), 0);
	ck_assert_int_eq(chmod(t.dir, 0755), 0);
	pid = fork();
	if (!pid) {
		struct adm_client c = { .fd = -1 };

		if (setgid(65534) || setuid(65534) || adm_connect(&c, 0))
			_exit(2);
		_exit(hangs_up(c.fd, 3000) ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	/* the right user in another group is another, too */
	pid = fork();
	if (!pid) {
		struct adm_client c = { .fd = -1 };

		if (setgid(65534) || adm_connect(&c, 0))
			_exit(2);
		_exit(hangs_up(c.fd, 3000) ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	still_serves();
	tgt_stop(&t, true);
}
END_TEST

START_TEST(one_daemon_per_control_port)
{
	char command[512];
	const char *bin = getenv("TGT_BIN");

	tgt_start(&t, "");
	snprintf(
		command, sizeof(command),
		"timeout 20 %s/tgtd -f -C 0 --state-dir %s --cache off --iscsi portal=127.0.0.1:1 2>%s/second; test $? = 1",
		bin ? bin : "build/bin", t.dir, t.dir);
	ck_assert_int_eq(system(command), 0);
	snprintf(command, sizeof(command), "grep -q 'another tgtd holds' %s/second", t.dir);
	ck_assert_int_eq(system(command), 0);
	still_serves();
	/* a dead daemon's socket is no obstacle */
	tgt_kill(&t);
	tgt_restart(&t, "");
	still_serves();
	tgt_stop(&t, true);
}
END_TEST

/* SIGTERM in the middle of everything: the end is clean and quick, whatever is under way. */
START_TEST(ends_in_the_middle_of_requests)
{
	for (int round = 0; round < 5; round++) {
		pid_t child[3];

		tgt_start(&t, "");
		for (int k = 0; k < 3; k++) {
			child[k] = fork();
			if (child[k])
				continue;
			/* makes and deletes a target with LUNs until the daemon is gone */
			for (struct adm_client c = { .fd = -1 };;) {
				struct adm_reply reply;
				struct adm_req r;
				char name[32];

				snprintf(name, sizeof(name), "iqn.end:%d", k);
				for (int step = 0; step < 6; step++) {
					adm_req_init(&r, step % 5 ? ADM_LU : ADM_TARGET,
						     step == 5 ? ADM_DELETE : ADM_NEW);
					r.has_tid = true;
					r.tid = (uint32_t)k + 1;
					r.has_lun = step % 5;
					r.lun = (uint64_t)step;
					r.text[ADM_T_TARGETNAME] = name;
					r.text[ADM_T_PATH] = "1m";
					r.text[ADM_T_BSTYPE] = step % 2 ? "ram" : "null";
					if (adm_call(&c, &r, &reply))
						_exit(0);
					adm_reply_free(&reply);
				}
			}
		}
		usleep(20000 + 37000 * (unsigned)round);
		tgt_stop(&t, true);
		for (int k = 0; k < 3; k++) {
			int status;

			ck_assert_int_eq(waitpid(child[k], &status, 0), child[k]);
			ck_assert_int_eq(status, 0);
		}
	}
}
END_TEST

/* ---- cost ------------------------------------------------------------------------------------ */

static double now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static void lun(struct adm_client *c, enum adm_op op, uint32_t tid, uint64_t n, const char *params)
{
	struct adm_req r;
	enum adm_status s;

	adm_req_init(&r, ADM_LU, op);
	r.has_tid = r.has_lun = true;
	r.tid = tid;
	r.lun = n;
	if (op == ADM_NEW) {
		r.text[ADM_T_BSTYPE] = "null";
		r.text[ADM_T_PATH] = "1g";
	}
	r.text[ADM_T_PARAMS] = params;
	s = ask(c, &r);
	ck_assert_msg(s == ADM_OK, "op %d on %u:%u: %s", op, tid, (unsigned)n, adm_status_text(s));
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

#define ROUNDS 15

/* Median of what one operation takes, in ms, with the LUNs that are there. */
static void measure(struct adm_client *c, const char *when, double *worst)
{
	static const char *const what[] = { "new", "update", "stat", "bind", "unbind", "delete" };
	double took[6][ROUNDS], at;
	struct adm_req r;

	for (int k = 0; k < ROUNDS; k++) {
		at = now_ms();
		lun(c, ADM_NEW, 1, 5000, NULL);
		took[0][k] = now_ms() - at;
		at = now_ms();
		lun(c, ADM_UPDATE, 1, 5000, "readonly=1,vendor_id=X");
		took[1][k] = now_ms() - at;
		at = now_ms();
		lun(c, ADM_STAT, 1, 5000, NULL);
		took[2][k] = now_ms() - at;
		for (int bind = 1; bind >= 0; bind--) {
			adm_req_init(&r, ADM_TARGET, bind ? ADM_BIND : ADM_UNBIND);
			r.has_tid = true;
			r.tid = 1;
			r.text[ADM_T_ADDRESS] = "10.9.8.7";
			at = now_ms();
			ck_assert_int_eq(ask(c, &r), ADM_OK);
			took[4 - bind][k] = now_ms() - at;
		}
		at = now_ms();
		lun(c, ADM_DELETE, 1, 5000, NULL);
		took[5][k] = now_ms() - at;
	}
	*worst = 0;
	for (unsigned op = 0; op < 6; op++) {
		qsort(took[op], ROUNDS, sizeof(double), by_value);
		printf("# %s: %s takes %.2f ms\n", when, what[op], took[op][ROUNDS / 2]);
		if (took[op][ROUNDS / 2] > *worst)
			*worst = took[op][ROUNDS / 2];
	}
}

START_TEST(cost_with_many_luns)
{
	struct adm_client c = { .fd = -1 };
	unsigned n = getenv("TGT_SLOW") ? 200 : 1000;
	double few, many, at;

	tgt_start(&t, "");
	tgt_target(&t, 1);
	lun(&c, ADM_NEW, 1, 1, NULL);
	measure(&c, "1 LUN", &few);
	at = now_ms();
	for (unsigned k = 2; k <= n; k++)
		lun(&c, ADM_NEW, 1, k, NULL);
	printf("# %u LUNs made in %.0f ms, %.0f KiB each\n", n - 1, now_ms() - at,
	       (double)tgt_rss(&t) / 1024 / n);
	measure(&c, "many LUNs", &many);
	if (!getenv("TGT_SLOW")) {
		ck_assert_msg(few < 10, "an operation takes %.1f ms with 1 LUN", few);
		ck_assert_msg(many < 10, "an operation takes %.1f ms with %u LUNs", many, n);
	}
	adm_disconnect(&c);
	at = now_ms();
	tgt_adm_ok(&t, "-m target -o delete -t 1");
	printf("# target with %u LUNs deleted in %.0f ms\n", n, now_ms() - at);
	tgt_stop(&t, true);
}
END_TEST

UNIT_MAIN("admin_socket", 60, garbage, requests_that_the_tool_would_not_make, control_characters,
	  random_requests, silent_and_slow_clients, a_crowd, gone_before_the_answer,
	  answers_nobody_takes, other_users, one_daemon_per_control_port,
	  ends_in_the_middle_of_requests, cost_with_many_luns)
