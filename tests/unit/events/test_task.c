/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the kernel says of other processes' threads: of those that run, sleep, end, have ended (and
 * how), and of one that SIGKILL does not get out of a system call. That one is in a file system of
 * this test, which does not answer (fuse(4)); where nobody may mount one it is left out, and that
 * is said.
 *
 * (Not under TSan: a process has a thread of its there, and vfork(2) is fork(2). task.c has no
 * state, and its callers one thread.)
 */
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "events/clock.h"
#include "events/task.h"
#include "tests/support/unit.h"

#define PATIENCE_NS (100 * NSEC_PER_SEC)

static int said[2]; /* children say their threads' numbers there */

static pid_t tid_of_this(void)
{
	return (pid_t)syscall(SYS_gettid);
}

static void say_tid(void)
{
	const pid_t tid = tid_of_this();

	if (write(said[1], &tid, sizeof(tid)) != sizeof(tid))
		_exit(1);
}

static pid_t hear_tid(void)
{
	pid_t tid = 0;

	ck_assert_int_eq(read(said[0], &tid, sizeof(tid)), sizeof(tid));
	return tid;
}

/* A process that does @fn, and dies with this one. */
static pid_t child_does(void (*fn)(void))
{
	pid_t pid;

	ck_assert_int_eq(pipe2(said, O_CLOEXEC), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fn();
	_exit(0);
}

/* The end of it is seen, and of who came after it. */
static void bury(pid_t pid)
{
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	close(said[0]);
	close(said[1]);
}

static bool becomes(pid_t pid, pid_t tid, enum task_state state)
{
	const uint64_t until = clock_now_ns() + PATIENCE_NS;

	while (task_look(pid, tid) != state) {
		if (clock_now_ns() > until)
			return false;
		usleep(1000);
	}
	return true;
}

static bool count(pid_t tid, void *arg)
{
	pid_t *left = arg;

	ck_assert_int_gt(tid, 0);
	return --*left > 0;
}

/* How many threads the kernel names, up to @most. */
static int threads_of(pid_t pid, int most)
{
	pid_t left = most;

	ck_assert_int_eq(task_each(pid, count, &left), left > 0);
	return most - left;
}

static void sleeps(void)
{
	for (;;)
		pause();
}

static void says_and_sleeps(void)
{
	say_tid();
	sleeps();
}

static void runs(void)
{
	volatile unsigned long turns = 0;

	say_tid();
	for (;;)
		turns++;
}

/* Sleeps so that most signals do not wake it, but the one that ends it does. */
static void waits_for_its_child(void)
{
	pid_t pid;

	say_tid();
	pid = vfork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
}

/* Its name looks as what comes behind the name. */
static void is_called_otherwise(void)
{
	prctl(PR_SET_NAME, "a) Z 1 (b) X 4");
	says_and_sleeps();
}

START_TEST(one_thread)
{
	void (*const all[])(void) = { says_and_sleeps, runs, is_called_otherwise };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		const pid_t pid = child_does(all[i]);

		ck_assert_int_eq(hear_tid(), pid);
		ck_assert_int_eq(task_look(pid, pid), TASK_UNKNOWN);
		ck_assert(!task_all_over_or_stuck(pid));
		ck_assert_int_eq(task_exit_code(pid), 0);
		kill(pid, SIGSTOP); /* which is not the end */
		ck_assert_int_eq(waitpid(pid, NULL, WUNTRACED), pid);
		ck_assert_int_eq(task_look(pid, pid), TASK_UNKNOWN);
		/* Nobody has looked after it yet. */
		kill(pid, SIGKILL);
		ck_assert(becomes(pid, pid, TASK_OVER));
		ck_assert(task_all_over_or_stuck(pid));
		ck_assert_int_eq(threads_of(pid, 9), 1);
		bury(pid);
		/* It is not there. */
		ck_assert_int_eq(task_look(pid, pid), TASK_OVER);
		ck_assert(task_all_over_or_stuck(pid));
		ck_assert_int_eq(threads_of(pid, 9), 0);
	}
}
END_TEST

START_TEST(sleeps_and_is_not_killed)
{
	const pid_t pid = child_does(waits_for_its_child);
	char path[40], text[400];

	ck_assert_int_eq(hear_tid(), pid);
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	do {
		FILE *f = fopen(path, "r");

		ck_assert_ptr_nonnull(f);
		ck_assert_ptr_nonnull(fgets(text, sizeof(text), f));
		fclose(f);
	} while (!strstr(text, ") D "));
	ck_assert_int_eq(task_look(pid, pid), TASK_UNKNOWN);
	ck_assert(!task_all_over_or_stuck(pid));
	kill(pid, SIGKILL);
	ck_assert(becomes(pid, pid, TASK_OVER));
	bury(pid);
}
END_TEST

/* ---- several --------------------------------------------------------------------------------- */
static void *thread_sleeps(void *arg)
{
	(void)arg;
	says_and_sleeps();
	return NULL;
}

static void *thread_ends(void *arg)
{
	(void)arg;
	say_tid();
	return NULL;
}

static void start(void *(*fn)(void *arg))
{
	pthread_t t;

	if (pthread_create(&t, NULL, fn, NULL))
		_exit(1);
}

/* Its first thread ends before another one. */
static void leader_ends(void)
{
	start(thread_sleeps);
	pthread_exit(NULL);
}

START_TEST(first_thread_has_ended)
{
	const pid_t pid = child_does(leader_ends), tid = hear_tid();

	ck_assert_int_ne(pid, tid);
	ck_assert(becomes(pid, pid, TASK_OVER));
	ck_assert_int_eq(task_look(pid, tid), TASK_UNKNOWN);
	ck_assert(!task_all_over_or_stuck(pid));
	ck_assert_int_ge(threads_of(pid, 99), 2);
	ck_assert_int_eq(threads_of(pid, 1), 1); /* told to stop there */
	kill(pid, SIGKILL);
	ck_assert(becomes(pid, tid, TASK_OVER));
	ck_assert(task_all_over_or_stuck(pid));
	bury(pid);
}
END_TEST

static void other_ends(void)
{
	start(thread_ends);
	sleeps();
}

START_TEST(another_thread_has_ended)
{
	const pid_t pid = child_does(other_ends), tid = hear_tid();

	ck_assert(becomes(pid, tid, TASK_OVER));
	ck_assert_int_eq(task_look(pid, pid), TASK_UNKNOWN);
	ck_assert(!task_all_over_or_stuck(pid));
	kill(pid, SIGKILL);
	bury(pid);
}
END_TEST

/* ---- how it has ended ----------------------------------------------------------------------- */
/* A child that ends as @how says, and is a zombie when this returns. */
static pid_t zombie(void (*how)(void))
{
	pid_t pid = fork();
	siginfo_t info;

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		const struct rlimit none = { 0, 0 };

		setrlimit(RLIMIT_CORE, &none);
		how();
		_exit(9);
	}
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	return pid;
}

static void ends(void)
{
	_exit(3);
}

static void ends_well(void)
{
	_exit(0);
}

static void is_killed(void)
{
	raise(SIGKILL);
}

static void has_a_fault(void)
{
	signal(SIGSEGV, SIG_DFL);
	raise(SIGSEGV);
}

/* Known before waitpid(), and the same. */
static void same_status(void (*how)(void))
{
	const pid_t pid = zombie(how);
	const int before = task_exit_code(pid);
	int status;

	ck_assert_int_eq(task_look(pid, pid), TASK_OVER);
	ck_assert(task_all_over_or_stuck(pid));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(before, status);
	ck_assert_int_eq(task_look(pid, pid), TASK_OVER);
	ck_assert_int_lt(task_exit_code(pid), 0);
}

START_TEST(how_it_has_ended)
{
	same_status(ends);
	same_status(ends_well);
	same_status(is_killed);
	same_status(has_a_fault);
}
END_TEST

/* ---- one that hangs -------------------------------------------------------------------------- */
static char dir[] = "/var/tmp/tgtd-task-XXXXXX";
static int fuse = -1;

/* In a mount namespace of this process. False: that is not permitted here. */
static bool mount_hanging(void)
{
	char text[100];
	const uid_t uid = getuid();

	fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fuse < 0 || (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS)))
		return false;
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(text, sizeof(text), "fd=%d,rootmode=40000,user_id=%u,group_id=%u", fuse, uid,
		 getgid());
	return !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mount("tgtd-task", dir, "fuse", MS_NOSUID | MS_NODEV, text);
}

/* The next request of the kernel's. */
static struct fuse_in_header asked(void)
{
	static _Alignas(struct fuse_in_header) char request[FUSE_MIN_READ_BUFFER * 20];
	struct pollfd p = { .fd = fuse, .events = POLLIN };

	ck_assert_int_eq(poll(&p, 1, (int)(PATIENCE_NS / NSEC_PER_MSEC)), 1);
	ck_assert_int_ge(read(fuse, request, sizeof(request)), sizeof(struct fuse_in_header));
	return *(struct fuse_in_header *)request;
}

/* The first one is answered, so that others come. */
static void begin_to_serve(void)
{
	const struct fuse_in_header in = asked();
	struct {
		struct fuse_out_header head;
		struct fuse_init_out init;
	} out = { { .len = sizeof(out), .unique = in.unique },
		  { .major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096 } };

	ck_assert_uint_eq(in.opcode, FUSE_INIT);
	ck_assert_int_eq(write(fuse, &out, sizeof(out)), sizeof(out));
}

static void *thread_hangs(void *arg)
{
	char path[64];
	struct stat st;

	(void)arg;
	say_tid();
	snprintf(path, sizeof(path), "%s/file", dir);
	(void)!stat(path, &st);
	sleeps();
	return NULL;
}

static void hangs(void)
{
	close(fuse); /* the test alone has it */
	start(thread_hangs);
	sleeps();
}

START_TEST(one_hangs)
{
	pid_t pid, tid;

	if (!mount_hanging()) {
		printf("# nobody may mount a file system here: what hangs is left out\n");
		rmdir(dir);
		return;
	}
	pid = child_does(hangs);
	tid = hear_tid();
	begin_to_serve();
	(void)asked();
	/* It waits for an answer, as any that sleeps. */
	ck_assert_int_eq(task_look(pid, tid), TASK_UNKNOWN);
	ck_assert(!task_all_over_or_stuck(pid));
	kill(pid, SIGKILL);
	ck_assert(becomes(pid, tid, TASK_STUCK));
	ck_assert(becomes(pid, pid, TASK_OVER));
	ck_assert(task_all_over_or_stuck(pid));
	/* It stays so, and is no child that has ended. */
	usleep(100000);
	ck_assert_int_eq(task_look(pid, tid), TASK_STUCK);
	ck_assert_int_eq(waitpid(pid, NULL, WNOHANG), 0);
	close(fuse); /* the call fails, and with it the thread ends */
	ck_assert(becomes(pid, tid, TASK_OVER));
	bury(pid);
	ck_assert_int_eq(umount2(dir, MNT_DETACH), 0);
	rmdir(dir);
}
END_TEST

UNIT_MAIN("task", 120, one_thread, sleeps_and_is_not_killed, first_thread_has_ended,
	  another_thread_has_ended, how_it_has_ended, one_hangs)
