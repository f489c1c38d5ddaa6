/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See launch.h. */
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "events/clock.h"
#include "events/log.h"
#include "tgtd/keeper/launch.h"

#define OOM_FILE "/proc/self/oom_score_adj"
#define OOM_NEVER (-1000)
/* A worker dies last, but it does; one that only prepares dies before anybody else. */
#define OOM_WORKER (-900)
#define OOM_FIRST 1000

/* What workers have held has higher numbers (launch_reserve()), and no worker that starts has a
 * copy of it. The kernel copies a table of files in units of this many. */
#define LOW_FDS 64
/* Who may open fewer than this needs the low ones himself. */
#define MANY_FDS 1024
enum { LOW_LINK, LOW_EXE, LOW_EMPTY, LOWS };
/* A child has its own table of files after its first instructions, unless it is stopped there, or
 * gets no processor. Workers wait half a second for an answer. */
#define OWN_TABLE_NS (NSEC_PER_SEC)
#define OWN_TABLE_LOOK_US 50

static struct launch_program program = { .exe = -1, .before = -1 };
static struct {
	bool ours; /* all of them */
	int fd[LOWS];
	uint64_t taken; /* a bit for each number */
} low;

struct launch_program *launch_program(void)
{
	return &program;
}

/* ---- what the kernel does when memory runs out ----------------------------------------------- */

static bool oom_write(int adj)
{
	int fd = open(OOM_FILE, O_WRONLY | O_CLOEXEC), n;
	char text[16];
	bool ok;

	if (fd < 0)
		return false;
	n = snprintf(text, sizeof(text), "%d", adj);
	ok = write(fd, text, (size_t)n) == n;
	close(fd);
	return ok;
}

static int oom_read(void)
{
	char text[16] = "";
	int fd = open(OOM_FILE, O_RDONLY | O_CLOEXEC);

	if (fd >= 0) {
		if (read(fd, text, sizeof(text) - 1) < 0)
			*text = '\0';
		close(fd);
	}
	return atoi(text);
}

void launch_protect_keeper(void)
{
	program.oom_lowered = program.oom <= OOM_NEVER || oom_write(OOM_NEVER);
	if (!program.oom_lowered)
		log_debug("keeper: " OOM_FILE " stays %d", program.oom);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	/* (Sanitizers look into us when we end.) */
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
}

/* ---- which program --------------------------------------------------------------------------- */

int launch_init(void)
{
	static const char gone[] = " (deleted)";
	ssize_t n = readlink("/proc/self/exe", program.path, sizeof(program.path) - 1);

	if (n < 0)
		return -errno;
	program.path[n] = '\0';
	if ((size_t)n > strlen(gone) && !strcmp(program.path + n - strlen(gone), gone))
		program.path[(size_t)n - strlen(gone)] = '\0';
	program.exe = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	if (program.exe < 0)
		return -errno;
	program.oom = oom_read();
	return sigprocmask(SIG_SETMASK, NULL, &program.mask) ? -errno : 0;
}

static bool same_file(int a, int b)
{
	struct stat x, y;

	return !fstat(a, &x) && !fstat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool launch_other(void)
{
	int fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	const bool other = fd >= 0 && !same_file(fd, program.exe);

	if (fd >= 0)
		close(fd);
	return other;
}

bool launch_renew(void)
{
	int fd = open(program.path, O_PATH | O_CLOEXEC);

	if (fd < 0) {
		log_warn("keeper: %s: %m; going on with the program that runs", program.path);
		return false;
	}
	if (same_file(fd, program.exe)) {
		close(fd);
		return false;
	}
	if (program.before >= 0)
		close(program.before);
	program.before = program.exe;
	program.exe = fd;
	return true;
}

bool launch_fall_back(void)
{
	if (program.before < 0)
		return false;
	close(program.exe);
	program.exe = program.before;
	program.before = -1;
	return true;
}

/* ---- a worker -------------------------------------------------------------------------------- */

/* Of a parent that has left many descriptors open: three of them get other numbers. */
static unsigned reserve_inherited(int null, unsigned n)
{
	for (int fd = STDERR_FILENO + 1; fd < LOW_FDS && n < LOWS; fd++) {
		const int flags = fcntl(fd, F_GETFD);
		int other = -1;

		if (flags >= 0 && !(flags & FD_CLOEXEC))
			other = fcntl(fd, F_DUPFD, LOW_FDS);
		if (other < 0)
			continue;
		if (dup3(null, fd, O_CLOEXEC) < 0) {
			close(other);
			continue;
		}
		low.taken |= UINT64_C(1) << fd;
		low.fd[n++] = fd;
	}
	return n;
}

void launch_reserve(void)
{
	struct rlimit files;
	unsigned n = 0;
	int fd;

	if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur < MANY_FDS)
		return;
	while ((fd = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0 && fd < LOW_FDS) {
		low.taken |= UINT64_C(1) << fd;
		if (n < LOWS)
			low.fd[n++] = fd;
	}
	if (fd >= 0) {
		n = reserve_inherited(fd, n);
		close(fd);
	}
	low.ours = n == LOWS;
	if (!low.ours)
		log_debug("keeper: no low numbers of files are left");
}

void launch_release(void)
{
	for (int fd = 0; fd < LOW_FDS; fd++)
		if (low.taken >> fd & 1)
			close(fd);
	low.taken = 0;
	low.ours = false;
}

/* The number of the fork() whose child has a table of files of its own, in memory that it has with
 * us. NULL: there is no memory. */
static _Atomic uint32_t *own_table(void)
{
	static _Atomic uint32_t *word;
	void *p = word ? word :
			 mmap(NULL, sizeof(*word), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	word = p == MAP_FAILED ? NULL : p;
	return word;
}

/* Or it has ended. */
static bool has_own_table(pid_t pid, const _Atomic uint32_t *word, uint32_t number)
{
	const uint64_t until = clock_now_ns() + OWN_TABLE_NS;

	while (atomic_load(word) != number) {
		siginfo_t ended = { 0 };

		if (!waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) && ended.si_pid)
			break;
		if (clock_now_ns() >= until)
			return false;
		usleep(OWN_TABLE_LOOK_US);
	}
	return true;
}

/*
 * A file whose server has gone is closed when that answers, and execve() closes what a fork() has
 * copied. So the child has the keeper's table of files until it has one of its own, of the low
 * numbers alone, and closes nothing of the others. The keeper waits for that, and not for execve()
 * (CLONE_VFORK): the child may be stopped, and the file of the program may not answer. A child that
 * is stopped before is killed: it runs no instruction any more, and its table matters to nobody.
 */
static pid_t fork_low(void)
{
	static uint32_t forks;
	_Atomic uint32_t *word = own_table();
	const uint32_t number = ++forks;
	pid_t pid;

	if (!word)
		return -1;
	pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0) {
		if (syscall(SYS_close_range, LOW_FDS, UINT_MAX, CLOSE_RANGE_UNSHARE) &&
		    unshare(CLONE_FILES))
			_exit(1);
		atomic_store(word, number);
		return 0;
	}
	if (pid > 0 && !has_own_table(pid, word, number)) {
		(void)kill(pid, SIGKILL); /* (strangers.h) */
		errno = ETIME;
		return -1;
	}
	return pid;
}

static bool low_is(unsigned which, int fd)
{
	return dup3(fd, low.fd[which], O_CLOEXEC) >= 0;
}

pid_t launch_fork(int fd[2])
{
	const bool few = low.ours && low_is(LOW_LINK, fd[0]) && low_is(LOW_EXE, fd[1]);
	const pid_t pid = few ? fork_low() : fork();

	if (pid == 0 && few) {
		fd[0] = low.fd[LOW_LINK];
		fd[1] = low.fd[LOW_EXE];
	} else if (low.ours) {
		const int err = errno;

		for (unsigned i = 0; i < LOW_EMPTY; i++)
			(void)low_is(i, low.fd[LOW_EMPTY]);
		errno = err;
	}
	return pid;
}

/* 0 or -errno: nobody could see whether a worker without one has gone. */
static int make_tombstone(struct worker *w)
{
	int err = 0;

	w->tombstone = memfd_create("tgtd-tombstone", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (w->tombstone < 0 || ftruncate(w->tombstone, 4096))
		err = -errno;
	return err;
}

/* The child, from fork() on. Signals to the keeper's group, from a terminal, are the keeper's. */
__attribute__((noreturn)) static void become_worker(int link, int exe, char *const *argv)
{
	char number[16];

	(void)setpgid(0, 0);
	signal(SIGINT, SIG_IGN);
	if (program.oom_lowered)
		(void)oom_write(MAX(program.oom, OOM_WORKER));
	snprintf(number, sizeof(number), "%d", link);
	if (fcntl(link, F_SETFD, 0) || setenv(LAUNCH_ENV, number, 1) || unsetenv("NOTIFY_SOCKET") ||
	    sigprocmask(SIG_SETMASK, &program.mask, NULL))
		_exit(1);
	execveat(exe, "", argv, environ, AT_EMPTY_PATH);
	log_error("keeper: cannot run %s: %m", program.path);
	_exit(1);
}

int launch_worker(struct worker *w, char *const *argv)
{
	int pair[2], fd[2] = { -1, program.exe }, err;

	*w = (struct worker){ .fd = -1, .tombstone = -1 };
	err = make_tombstone(w);
	if (!err && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		err = -errno;
	if (err) {
		launch_forget(w);
		return err;
	}
	w->fd = pair[0];
	fd[0] = pair[1];
	w->pid = launch_fork(fd);
	if (w->pid == 0)
		become_worker(fd[0], fd[1], argv);
	err = -errno;
	close(pair[1]);
	if (w->pid > 0)
		return 0;
	w->pid = 0;
	launch_forget(w);
	return err;
}

bool launch_is_gone(const struct worker *w)
{
	/* EBUSY: somebody has it mapped for writing still: the memory of a process goes when the
	 * last of its threads and its aio have, and when nobody looks into it any more. */
	return w->tombstone < 0 || !fcntl(w->tombstone, F_ADD_SEALS, F_SEAL_WRITE) ||
	       errno != EBUSY;
}

char launch_does(const struct worker *w)
{
	char path[32], text[256] = "";
	const char *end;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", w->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (read(fd, text, sizeof(text) - 1) < 0)
		*text = '\0';
	close(fd);
	end = strrchr(text, ')');
	return end && end[1] == ' ' ? end[2] : 0;
}

void launch_forget(struct worker *w)
{
	if (w->fd >= 0)
		close(w->fd);
	if (w->tombstone >= 0)
		close(w->tombstone);
	*w = (struct worker){ .fd = -1, .tombstone = -1 };
}

int launch_link(void)
{
	const char *text = getenv(LAUNCH_ENV);
	int fd = text ? atoi(text) : -1, type;
	socklen_t len = sizeof(type);

	unsetenv(LAUNCH_ENV);
	/* Its number is ours alone from here on. Whoever else sets it has his own way. */
	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) || type != SOCK_SEQPACKET ||
	    fcntl(fd, F_SETFD, FD_CLOEXEC))
		return -1;
	(void)prctl(PR_SET_NAME, "tgtd", 0, 0, 0); /* it was run by a number */
	return fd;
}

void launch_expendable(bool on)
{
	static int before;

	if (on)
		before = oom_read();
	(void)oom_write(on ? OOM_FIRST : before);
}
