/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See daemon.h. */
#include <arpa/inet.h>
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <iscsi/iscsi.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/daemon.h"

static const char *bin_dir(void)
{
	const char *dir = getenv("TGT_BIN");

	return dir ? dir : "build/bin";
}

static void nap_ms(unsigned ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}

/* Of those that the kernel gives to nobody. One that it had chosen may be the own end of another
 * test's connection by the time the daemon listens. */
static int free_port(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
	unsigned first = 10000, end, random;
	bool bound = false;

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%u", &end), 1);
	fclose(f);
	if (end < 12000)
		end = 12000;
	while (!bound) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(getrandom(&random, sizeof(random), 0), sizeof(random));
		a.sin_port = htons((uint16_t)(first + random % (end - first)));
		bound = bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
		close(fd);
	}
	return ntohs(a.sin_port);
}

static bool can_connect(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	bool ok = connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0;

	close(fd);
	return ok;
}

/* The keeper's child; the process itself without a keeper. */
static pid_t worker_of(pid_t pid)
{
	pid_t worker = pid;
	struct dirent *e;
	DIR *d = opendir("/proc");

	ck_assert_ptr_nonnull(d);
	while (worker == pid && (e = readdir(d))) {
		char path[300];
		int parent;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
		f = e->d_name[0] > '0' && e->d_name[0] <= '9' ? fopen(path, "r") : NULL;
		if (!f)
			continue;
		if (fscanf(f, "%*d (%*[^)]) %*c %d", &parent) == 1 && parent == pid)
			worker = atoi(e->d_name);
		fclose(f);
	}
	closedir(d);
	return worker;
}

/* Gone, or a process that nobody has looked after; with all its threads, since the first one may
 * end before others, who have its files still. */
static void await_end(pid_t pid)
{
	char path[64], state = 'R';
	int threads = 2;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	while ((state != 'Z' && state != 'X') || threads > 1) {
		FILE *f = fopen(path, "r");

		if (!f ||
		    fscanf(f,
			   "%*d (%*[^)]) %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
			   "%*s %*s %*s %d",
			   &state, &threads) != 2) {
			state = 'X';
			threads = 0;
		}
		if (f)
			fclose(f);
		nap_ms(2);
	}
}

static void print_log(struct tgt *t)
{
	char command[256];

	snprintf(command, sizeof(command), "tail -n 60 %s/tgtd.log", t->dir);
	fflush(stdout);
	if (system(command))
		printf("(no daemon log)\n");
}

static void launch(struct tgt *t, const char *args)
{
	const char *env = getenv("TGT_TEST_CACHE"), *cache = env ? env : "size=32m";
	bool own = strstr(args, "--cache"); /* what the test asks for is what it tests */
	char command[2048], log[128];
	int status;

	snprintf(command, sizeof(command),
		 "exec %s/tgtd -f -C 0 --state-dir %s --iscsi portal=%s %s%s %s", bin_dir(), t->dir,
		 t->portal, own ? "" : "--cache ", own ? "" : cache, args);
	snprintf(log, sizeof(log), "%s/tgtd.log", t->dir);
	t->pid = fork();
	ck_assert_int_ge(t->pid, 0);
	if (t->pid == 0) {
		int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);

		/* A test that is killed must not leave its daemon behind. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(fd, 1);
		dup2(fd, 2);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	for (int i = 0; i < 1500; i++) {
		if (can_connect(t->port)) {
			t->worker = worker_of(t->pid);
			return;
		}
		if (waitpid(t->pid, &status, WNOHANG) == t->pid) {
			print_log(t);
			ck_abort_msg("tgtd ended with status %d; see %s", status, log);
		}
		nap_ms(20);
	}
	print_log(t);
	ck_abort_msg("tgtd does not serve after 30 s; see %s", log);
}

void tgt_start(struct tgt *t, const char *args)
{
	memset(t, 0, sizeof(*t));
	snprintf(t->dir, sizeof(t->dir), "/var/tmp/tgtd-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(t->dir));
	t->port = free_port();
	snprintf(t->portal, sizeof(t->portal), "127.0.0.1:%d", t->port);
	tgt_restart(t, args);
}

void tgt_restart(struct tgt *t, const char *args)
{
	char prefix[128];

	snprintf(prefix, sizeof(prefix), "%s/socket", t->dir);
	setenv("TGT_IPC_SOCKET", prefix, 1);
	launch(t, args);
}

void tgt_stop(struct tgt *t, bool clean)
{
	int status = 0;
	char command[256];
	/* Sanitizers slow the end down; the bound proper is checked on the release build. */
	int wait_ms = getenv("TGT_SLOW") ? 60000 : 5000;

	if (worker_of(t->pid) != t->worker) {
		print_log(t);
		ck_abort_msg("the worker has died");
	}
	ck_assert_int_eq(kill(t->pid, SIGTERM), 0);
	for (int waited = 0;; waited += 10) {
		pid_t got = waitpid(t->pid, &status, WNOHANG);

		if (got == t->pid)
			break;
		if (waited > wait_ms) {
			print_log(t);
			ck_abort_msg("tgtd did not end within %d ms of SIGTERM", wait_ms);
		}
		nap_ms(10);
	}
	if (status) {
		print_log(t);
		ck_abort_msg("tgtd ended with status 0x%x", status);
	}
	t->pid = 0;
	if (!clean)
		return;
	snprintf(command, sizeof(command), "rm -rf %s", t->dir);
	ck_assert_int_eq(system(command), 0);
}

void tgt_kill(struct tgt *t)
{
	pid_t worker;

	kill(t->pid, SIGSTOP); /* it starts no other one */
	worker = worker_of(t->pid);
	kill(worker, SIGKILL);
	kill(t->pid, SIGKILL);
	waitpid(t->pid, NULL, 0);
	await_end(worker);
	t->pid = 0;
}

static int run_adm(struct tgt *t, const char *args)
{
	char command[2048];
	size_t n;
	FILE *f;
	int status;

	snprintf(command, sizeof(command), "%s/tgtadm %s 2>&1", bin_dir(), args);
	f = popen(command, "r");
	ck_assert_ptr_nonnull(f);
	n = fread(t->output, 1, sizeof(t->output) - 1, f);
	t->output[n] = '\0';
	status = pclose(f);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int tgt_adm(struct tgt *t, const char *fmt, ...)
{
	char args[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(args, sizeof(args), fmt, ap);
	va_end(ap);
	return run_adm(t, args);
}

void tgt_adm_ok(struct tgt *t, const char *fmt, ...)
{
	char args[1024];
	va_list ap;
	int rc;

	va_start(ap, fmt);
	vsnprintf(args, sizeof(args), fmt, ap);
	va_end(ap);
	rc = run_adm(t, args);
	if (rc) {
		print_log(t);
		ck_abort_msg("tgtadm %s: exit %d: %s", args, rc, t->output);
	}
}

void tgt_target(struct tgt *t, int tid)
{
	tgt_adm_ok(t, "--lld iscsi --op new --mode target --tid %d -T " TGT_IQN, tid, tid);
	tgt_adm_ok(t, "--lld iscsi --op bind --mode target --tid %d -I ALL", tid);
}

void tgt_lun_ram(struct tgt *t, int tid, int lun, const char *size)
{
	/* With a cache to be tested, it should be in the way. */
	if (getenv("TGT_TEST_CACHE")) {
		char *end;
		uint64_t bytes = strtoull(size, &end, 10);

		tgt_lun_aio(t, tid, lun,
			    bytes << (*end == 'g' ? 30 :
				      *end == 'm' ? 20 :
				      *end == 'k' ? 10 :
						    0));
		return;
	}
	tgt_adm_ok(t,
		   "--op new --mode logicalunit --tid %d --lun %d --bstype ram --backing-store %s",
		   tid, lun, size);
}

void tgt_lun_aio(struct tgt *t, int tid, int lun, uint64_t bytes)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/lun-%d-%d", t->dir, tid, lun);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	close(fd);
	tgt_adm_ok(t,
		   "--op new --mode logicalunit --tid %d --lun %d --bstype aio --backing-store %s",
		   tid, lun, path);
}

struct iscsi_context *tgt_login(struct tgt *t, int tid, int lun, const char *initiator)
{
	struct iscsi_context *iscsi =
		iscsi_create_context(initiator ? initiator : "iqn.2026-11.org.tgtd.test:initiator");
	char name[128];

	ck_assert_ptr_nonnull(iscsi);
	snprintf(name, sizeof(name), TGT_IQN, tid);
	iscsi_set_targetname(iscsi, name);
	iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
	iscsi_set_header_digest(iscsi, ISCSI_HEADER_DIGEST_NONE_CRC32C);
	if (iscsi_full_connect_sync(iscsi, t->portal, lun)) {
		print_log(t);
		ck_abort_msg("login to %s lun %d: %s", name, lun, iscsi_get_error(iscsi));
	}
	return iscsi;
}

void tgt_logout(struct iscsi_context *iscsi)
{
	iscsi_logout_sync(iscsi);
	iscsi_destroy_context(iscsi);
}

uint64_t tgt_thread_cpu(struct tgt *t, const char *prefix)
{
	char path[64];
	uint64_t sum = 0;
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", t->worker);
	d = opendir(path);
	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		char file[512], comm[64] = "";
		unsigned long long ns = 0;
		FILE *f;

		if (e->d_name[0] == '.')
			continue;
		snprintf(file, sizeof(file), "%s/%s/comm", path, e->d_name);
		f = fopen(file, "r");
		if (!f)
			continue;
		if (!fgets(comm, sizeof(comm), f))
			comm[0] = '\0';
		fclose(f);
		if (strncmp(comm, prefix, strlen(prefix)))
			continue;
		snprintf(file, sizeof(file), "%s/%s/schedstat", path, e->d_name);
		f = fopen(file, "r");
		if (!f)
			continue;
		if (fscanf(f, "%llu", &ns) == 1)
			sum += ns;
		fclose(f);
	}
	closedir(d);
	return sum;
}

uint64_t tgt_rss(struct tgt *t)
{
	char path[64];
	unsigned long long size, pages = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", t->worker);
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	if (fscanf(f, "%llu %llu", &size, &pages) != 2)
		pages = 0;
	fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}
