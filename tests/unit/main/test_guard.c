/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What threads may not do (defect W10): each kind of thread is guarded as the daemon's are, and
 * then tries. What is refused fails with EPERM and is counted; the process goes on. Without
 * libseccomp, and where the sanitizers need calls of their own, there is less to try.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/unit.h"
#include "tgtd/guard.h"

static int call_open(void)
{
	return open("/etc/passwd", O_RDONLY | O_CLOEXEC);
}

static int call_unlink(void)
{
	return unlink("/nowhere/at/all");
}

static int call_socket(void)
{
	return socket(AF_INET, SOCK_STREAM, 0);
}

static int call_exec(void)
{
	char *const none[] = { NULL };

	return execve("/bin/true", none, none);
}

static int call_ptrace(void)
{
	return (int)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static int call_fork(void)
{
	pid_t pid = (pid_t)syscall(SYS_clone, 17 /* SIGCHLD */, 0, 0, 0, 0);

	if (pid == 0)
		_exit(0);
	return pid;
}

static int call_exec_memory(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? -1 : 0;
}

static int call_setuid(void)
{
	return (int)syscall(SYS_setuid, getuid());
}

static int call_mount(void)
{
	return (int)syscall(SYS_mount, "none", "/nowhere", "tmpfs", 0, NULL);
}

static int call_seccomp(void)
{
	return (int)syscall(SYS_seccomp, 99, 0, NULL) < 0 && errno == EPERM ? -1 : 0;
}

static void *no_thread(void *arg)
{
	return arg;
}

static int call_thread(void)
{
	pthread_t t;
	int err = pthread_create(&t, NULL, no_thread, NULL);

	if (!err)
		pthread_join(t, NULL);
	errno = err == EAGAIN ? EPERM : err; /* what the C library makes of it */
	return err ? -1 : 0;
}

/* A filter that refuses everything would pass the rest. */
static int call_write(void)
{
	return write(2, "", 0) < 0 ? -1 : 0;
}

#define MAY_LOOP 1
#define MAY_BLOCK 2
#define MAY_MAIN 4
#define MAY_LIBRARY 8 /* what it may not is an error, and no more */
#ifdef HAVE_LIBNBD /* stores on other machines */
#define MAY_SOCKET MAY_BLOCK
#else
#define MAY_SOCKET 0
#endif
static const struct {
	const char *name;
	int (*call)(void);
	unsigned may;
	bool silent; /* an error, and no more */
} calls[] = {
	{ "open", call_open, MAY_BLOCK | MAY_MAIN | MAY_LIBRARY },
	{ "unlink", call_unlink, MAY_BLOCK | MAY_MAIN | MAY_LIBRARY },
	{ "socket", call_socket, MAY_SOCKET | MAY_MAIN | MAY_LIBRARY },
	{ "execve", call_exec, 0 },
	{ "ptrace", call_ptrace, 0 },
	{ "fork", call_fork, 0, true },
	{ "executable memory", call_exec_memory, MAY_MAIN | MAY_LIBRARY },
	{ "setuid", call_setuid, 0 },
	{ "mount", call_mount, 0 },
	{ "another filter", call_seccomp, MAY_BLOCK | MAY_MAIN | MAY_LIBRARY },
	{ "a thread", call_thread, MAY_BLOCK | MAY_MAIN | MAY_LIBRARY, true },
	{ "write", call_write, MAY_LOOP | MAY_BLOCK | MAY_MAIN | MAY_LIBRARY },
};

/* 0, or a number for the first fault. */
static long try_all(unsigned who)
{
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		unsigned before = guard_refused();
		int rc;

		errno = 0;
		rc = calls[i].call();
		if (calls[i].may & who ? errno == EPERM && rc < 0 : rc >= 0 || errno != EPERM) {
			fprintf(stderr, "%s: rc %d, %s\n", calls[i].name, rc, strerror(errno));
			return (long)i + 1;
		}
		if ((guard_refused() != before) !=
		    (!(calls[i].may & who) && !calls[i].silent && who != MAY_LIBRARY)) {
			fprintf(stderr, "%s: is not counted as it should be\n", calls[i].name);
			return (long)i + 101;
		}
	}
	return 0;
}

static void *as_thread(void *arg)
{
	enum thread_kind kind = (enum thread_kind)(uintptr_t)arg;

	guard_thread(kind);
	return (void *)try_all(kind == THREAD_LOOP    ? MAY_LOOP :
			       kind == THREAD_LIBRARY ? MAY_LIBRARY :
							MAY_BLOCK);
}

static long in_thread(enum thread_kind kind)
{
	pthread_t t;
	void *result;

	ck_assert_int_eq(pthread_create(&t, NULL, as_thread, (void *)(uintptr_t)kind), 0);
	pthread_join(t, &result);
	return (long)result;
}

static bool have_filters(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return false; /* their runtimes make calls of their own in between */
#elif defined(HAVE_SECCOMP)
	return true;
#else
	return false;
#endif
}

START_TEST(threads_of_loops)
{
	guard_begin(false);
	ck_assert_int_eq(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
	if (!have_filters())
		return;
	ck_assert_int_eq(guard_threads(true, false), 0);
	ck_assert_int_eq(in_thread(THREAD_LOOP), 0);
	ck_assert_int_ge(guard_refused(), 9);
}
END_TEST

START_TEST(threads_that_block)
{
	guard_begin(false);
	if (!have_filters())
		return;
	ck_assert_int_eq(guard_threads(true, false), 0);
	ck_assert_int_eq(in_thread(THREAD_BLOCKING), 0);
}
END_TEST

/* Where there is RDMA, a loop's thread has verbs' ioctl() and no other: not that of a terminal, or
 * of a store. 0, or a number for the first fault. */
static void *asks_devices(void *arg)
{
	const int *pipe = arg;
	int n;

	guard_thread(THREAD_LOOP);
	if (ioctl(pipe[0], FIONREAD, &n) >= 0 || errno != EPERM)
		return (void *)1;
	if (ioctl(pipe[0], _IOWR(RDMA_IOCTL_MAGIC, 1, int), &n) >= 0 || errno != ENOTTY)
		return (void *)2;
	return NULL;
}

START_TEST(devices_of_loops)
{
	int fds[2];
	pthread_t t;
	void *result;

	guard_begin(false);
	if (!have_filters())
		return;
	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_eq(guard_threads(true, true), 0);
	ck_assert_int_eq(pthread_create(&t, NULL, asks_devices, fds), 0);
	pthread_join(t, &result);
	ck_assert_ptr_null(result);
	ck_assert_uint_eq(guard_refused(), 1);
}
END_TEST

/* A thread that such a one makes with all signals blocked lives on. */
static void *with_signals_blocked(void *arg)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	(void)arg;
	return (void *)try_all(MAY_LIBRARY);
}

static void *makes_blocked_one(void *arg)
{
	pthread_t t;
	void *result;

	(void)arg;
	guard_thread(THREAD_LIBRARY);
	ck_assert_int_eq(pthread_create(&t, NULL, with_signals_blocked, NULL), 0);
	pthread_join(t, &result);
	return result;
}

START_TEST(threads_of_libraries)
{
	pthread_t t;
	void *result;

	guard_begin(false);
	if (!have_filters())
		return;
	ck_assert_int_eq(guard_threads(true, false), 0);
	ck_assert_int_eq(in_thread(THREAD_LIBRARY), 0);
	ck_assert_int_eq(pthread_create(&t, NULL, makes_blocked_one, NULL), 0);
	pthread_join(t, &result);
	ck_assert_ptr_null(result);
	ck_assert_uint_eq(guard_refused(), 0);
}
END_TEST

/* A thread of a loop is made by one that blocks: what that may not do it may not, either. */
static void *makes_another(void *arg)
{
	(void)arg;
	guard_thread(THREAD_BLOCKING);
	return (void *)in_thread(THREAD_LOOP);
}

START_TEST(filters_add_up)
{
	pthread_t t;
	void *result;

	guard_begin(false);
	if (!have_filters())
		return;
	ck_assert_int_eq(guard_threads(true, false), 0);
	ck_assert_int_eq(pthread_create(&t, NULL, makes_another, NULL), 0);
	pthread_join(t, &result);
	ck_assert_ptr_null(result);
}
END_TEST

/* Memory that a thread gives back makes the C library look into /proc, once. */
static void *allocates(void *arg)
{
	enum { N = 256 };
	static void *kept[N];

	(void)arg;
	guard_thread(THREAD_LOOP);
	for (unsigned i = 0; i < N; i++) {
		kept[i] = malloc(KiB(64));
		memset(kept[i], 1, KiB(64));
	}
	for (unsigned i = N; i-- > 0;)
		free(kept[i]);
	return (void *)(uintptr_t)guard_refused();
}

START_TEST(memory_goes_back)
{
	pthread_t t;
	void *refused;

	guard_begin(false);
	if (!have_filters())
		return;
	ck_assert_int_eq(guard_threads(true, false), 0);
	ck_assert_int_eq(pthread_create(&t, NULL, allocates, NULL), 0);
	pthread_join(t, &refused);
	ck_assert_ptr_null(refused);
}
END_TEST

START_TEST(the_main_thread)
{
	guard_begin(false);
	if (!have_filters())
		return;
	ck_assert_int_eq(guard_threads(true, false), 0);
	guard_main();
	ck_assert_int_eq(try_all(MAY_MAIN), 0);
}
END_TEST

static uint64_t caps_in(const char *name)
{
	unsigned long long caps = ~0ull;
	char line[256];
	FILE *f = fopen("/proc/thread-self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)))
			caps = strtoull(line + strlen(name), NULL, 16);
	if (f)
		fclose(f);
	return caps;
}

static uint64_t capabilities(void)
{
	return caps_in("CapPrm:");
}

static uint64_t inherited(void)
{
	return caps_in("CapInh:");
}

static int inherit(uint64_t caps)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &head, data))
		return -1;
	data[0].inheritable = (uint32_t)caps;
	data[1].inheritable = (uint32_t)(caps >> 32);
	return (int)syscall(SYS_capset, &head, data);
}

static void *caps_of(void *arg)
{
	guard_thread((enum thread_kind)(uintptr_t)arg);
	return (void *)(uintptr_t)capabilities();
}

START_TEST(capabilities_go)
{
	uint64_t before = capabilities(), open_all = 1ull << CAP_DAC_OVERRIDE;
	pthread_t t;
	void *caps;

	guard_begin(false);
	ck_assert_int_eq(guard_threads(false, false), 0);
	ck_assert_uint_eq(capabilities() & 1ull << CAP_SYS_ADMIN, 0);
	ck_assert_int_eq(pthread_create(&t, NULL, caps_of, (void *)THREAD_LOOP), 0);
	pthread_join(t, &caps);
	ck_assert_ptr_null(caps);
	ck_assert_int_eq(pthread_create(&t, NULL, caps_of, (void *)THREAD_BLOCKING), 0);
	pthread_join(t, &caps);
	ck_assert_uint_eq((uintptr_t)caps & open_all, before & open_all);
	ck_assert_uint_eq((uintptr_t)caps & 1ull << CAP_SYS_ADMIN, 0);
	guard_capabilities(false);
	ck_assert_uint_eq(capabilities() & 1ull << CAP_SETUID, 0);
	ck_assert_int_eq(pthread_create(&t, NULL, caps_of, (void *)THREAD_LOOP), 0);
	pthread_join(t, &caps);
	ck_assert_ptr_null(caps);
	/* Verbs: who has no more than the main thread has the very same, and may write to a file
	 * that the main thread has opened. */
	guard_capabilities(true);
	ck_assert_int_eq(pthread_create(&t, NULL, caps_of, (void *)THREAD_LOOP), 0);
	pthread_join(t, &caps);
	ck_assert_uint_eq((uintptr_t)caps, capabilities());
}
END_TEST

/* The keeper runs programs, and they may change the user; neither looks into others. */
START_TEST(the_keeper)
{
	const uint64_t no = 1ull << CAP_SYS_ADMIN | 1ull << CAP_SYS_PTRACE | 1ull << CAP_NET_ADMIN;
	int status;
	pid_t pid;

	guard_keeper(true, have_filters());
	ck_assert_int_eq(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
	ck_assert_uint_eq(capabilities() & no, 0);
	pid = fork();
	if (!pid) {
		char *const argv[] = { (char *)(uintptr_t)"sh", (char *)(uintptr_t)"-c",
				       (char *)(uintptr_t)"! mount -t tmpfs none /mnt 2>/dev/null",
				       NULL };

		execv("/bin/sh", argv);
		_exit(99);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert(!getuid() ? !call_setuid() : true);
	if (!have_filters())
		return;
	ck_assert_int_lt(call_ptrace(), 0);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_lt(call_mount(), 0);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_uint_eq(guard_refused(), 0);
	/* A worker's own filters come on top: what both refuse is counted by these. */
	ck_assert_int_eq(guard_threads(true, false), 0);
	ck_assert_int_eq(in_thread(THREAD_LOOP), 0);
}
END_TEST

/* Its file's inheritable capabilities are handed on, but not beyond what workers begin with. */
START_TEST(what_the_keeper_hands_on)
{
	const uint64_t open_all = 1ull << CAP_DAC_OVERRIDE, raw = 1ull << CAP_NET_RAW;

	if (!(capabilities() & open_all) || !(capabilities() & raw))
		return; /* there is nothing to hand on */
	ck_assert_int_eq(inherit(open_all | raw), 0);
	guard_keeper(false, false);
	ck_assert_uint_eq(inherited(), open_all);
	guard_begin(false);
	ck_assert_uint_eq(inherited(), 0);
}
END_TEST

static char dir[] = "/var/tmp/test_guard-XXXXXX";

static void put_file(const char *name)
{
	char path[300];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

static unsigned owner(const char *name)
{
	char path[300];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	ck_assert_int_eq(lstat(path, &st), 0);
	return st.st_uid;
}

START_TEST(what_is_handed_over)
{
	char path[300];

	if (getuid())
		return; /* nothing could be given to anybody */
	ck_assert_ptr_nonnull(mkdtemp(dir));
	put_file("mode-0123456789abcdef");
	put_file("mode-0123456789abcdef.new");
	put_file("dirty-0123456789abcdef-0123456789abcdef-0123456789abcdef");
	ck_assert_int_eq(guard_hand_over(dir, 65534, 65534), 0);
	ck_assert_uint_eq(owner("."), 65534);
	ck_assert_uint_eq(owner("mode-0123456789abcdef"), 65534);
	ck_assert_int_eq(guard_hand_over(dir, 65534, 65534), 0);
	/* somebody else's files are nobody's to give: all stays as it is */
	ck_assert_int_eq(chown(dir, 0, 0), 0);
	put_file("passwd");
	snprintf(path, sizeof(path), "%s/mode-0123456789abcdef", dir);
	ck_assert_int_eq(chown(path, 0, 0), 0);
	ck_assert_int_eq(guard_hand_over(dir, 65534, 65534), -ENOTEMPTY);
	ck_assert_uint_eq(owner("."), 0);
	ck_assert_uint_eq(owner("mode-0123456789abcdef"), 0);
	snprintf(path, sizeof(path), "%s/passwd", dir);
	ck_assert_int_eq(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/pr-0123456789abcdef", dir);
	ck_assert_int_eq(symlink("/etc/passwd", path), 0);
	ck_assert_int_eq(guard_hand_over(dir, 65534, 65534), -ENOTEMPTY);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(chmod(dir, 01777), 0);
	ck_assert_int_eq(guard_hand_over(dir, 65534, 65534), -EPERM);
	ck_assert_int_eq(guard_hand_over("/var/tmp", 65534, 65534), -EPERM);
	snprintf(path, sizeof(path), "rm -r %s", dir);
	ck_assert_int_eq(system(path), 0);
}
END_TEST

UNIT_MAIN("guard", 60, threads_of_loops, threads_that_block, devices_of_loops,
	  threads_of_libraries, filters_add_up, memory_goes_back, the_main_thread,
	  capabilities_go, the_keeper, what_the_keeper_hands_on, what_is_handed_over)
