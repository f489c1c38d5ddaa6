/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See guard_filter.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "events/base.h"
#include "tgtd/guard_filter.h"

#ifdef HAVE_SECCOMP
#include <linux/seccomp.h>
#include <linux/filter.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#ifdef HAVE_LIBNBD
#define REMOTE_STORES true
#else
#define REMOTE_STORES false
#endif

/* What any thread needs to live: memory, locks, time, signals, its end. */
static const char *const living[] = {
	"brk", "clock_getres", "clock_gettime", "clock_nanosleep", "close", "exit", "exit_group",
	"fcntl", "futex", "get_mempolicy", "getcpu", "getpid", "getrandom", "gettid",
	"gettimeofday", "madvise", "mbind", "membarrier", "mlock", "mlock2",
	"move_pages", "mremap", "munlock", "munmap", "nanosleep", "restart_syscall", "rseq",
	"rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigreturn", "rt_sigtimedwait",
	"sched_getaffinity", "sched_yield", "set_mempolicy", "set_robust_list", "sigaltstack",
	"tgkill", "time", "getrusage", "sysinfo",
};
/* What a loop does: events, descriptors that are open, aio. connect() is for the log's socket. */
static const char *const loops[] = {
	"connect", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd2", "fstat",
	"getpeername", "getsockname", "getsockopt", "io_cancel", "io_destroy", "io_getevents",
	"io_pgetevents", "io_setup", "io_submit", "lseek", "poll", "ppoll",
	"pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readv",
	"recvfrom", "recvmmsg", "recvmsg", "sendmmsg", "sendmsg", "sendto", "setsockopt",
	"shutdown", "timerfd_settime", "write", "writev", "epoll_create1",
};
/* What blocks, besides: files and devices by name, what stores are asked for, threads. */
static const char *const blocking[] = {
	"access", "capget", "capset", "copy_file_range", "dup", "dup2", "dup3", "faccessat",
	"faccessat2", "fadvise64", "fallocate", "fchmod", "fdatasync", "flock", "fstatfs", "fsync",
	"ftruncate", "getcwd", "getdents64", "geteuid", "getegid", "getgid", "getuid", "ioctl",
	"lstat", "memfd_create", "mkdir", "mkdirat", "newfstatat", "open", "openat", "openat2",
	"pipe2", "readahead", "readlink", "readlinkat", "rename", "renameat", "renameat2",
	"sched_getparam", "sched_getscheduler", "sched_setaffinity", "sched_setscheduler",
	"seccomp", "splice", "stat", "statfs", "statx", "sync_file_range", "umask",
	"uname", "unlink", "unlinkat", "utimensat", "prlimit64", "getrlimit",
};
/* What nobody does, from the first moment on. */
static const char *const never[] = {
	"acct", "add_key", "adjtimex", "bpf", "chroot", "clock_adjtime", "clock_settime",
	"delete_module", "finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "init_module",
	"ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load", "keyctl", "mount",
	"mount_setattr", "move_mount", "nfsservctl", "open_by_handle_at", "open_tree",
	"perf_event_open", "personality", "pidfd_getfd", "pivot_root", "process_madvise",
	"process_vm_readv", "process_vm_writev", "ptrace", "quotactl", "reboot", "request_key",
	"setdomainname", "sethostname", "setns", "settimeofday", "swapoff", "swapon", "umount2",
	"unshare", "userfaultfd", "vhangup",
};
/* What only the keeper does, and who becomes another user before it serves (--user). */
static const char *const starting[] = {
	"execve", "execveat", "setfsgid", "setfsuid", "setgid", "setgroups", "setregid",
	"setresgid", "setresuid", "setreuid", "setuid",
};

static struct sock_fprog made[FILTER_KEEPER + 1];

/* Names that this machine or this libseccomp does not know are not there to be called. */
static int rules(scmp_filter_ctx ctx, uint32_t action, const char *const *names, size_t n)
{
	int err = 0;

	for (size_t i = 0; !err && i < n; i++) {
		int nr = seccomp_syscall_resolve_name(names[i]);

		if (nr != __NR_SCMP_ERROR && nr >= 0)
			err = seccomp_rule_add(ctx, action, nr, 0);
	}
	return err;
}

static bool allows_all_but(enum guard_filter f)
{
	return f == FILTER_MAIN || f == FILTER_LIBRARY || f == FILTER_KEEPER;
}

/* A condition on argument @nr of a call. (The library's own macros leave a field out.) */
static struct scmp_arg_cmp argument(unsigned nr, enum scmp_compare op, scmp_datum_t a,
				    scmp_datum_t b)
{
	return (struct scmp_arg_cmp){ .arg = nr, .op = op, .datum_a = a, .datum_b = b };
}

/* Memory may not become code; a thread may have its name. */
static int arguments(scmp_filter_ctx ctx)
{
	static const int prctls[] = { PR_SET_NAME, PR_GET_NAME, PR_SET_VMA };
	int err = 0;

	for (size_t i = 0; !err && i < ARRAY_SIZE(prctls); i++)
		err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 1,
				       argument(0, SCMP_CMP_EQ, (scmp_datum_t)prctls[i], 0));
	if (!err)
		err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
				       argument(2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	if (!err)
		err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
				       argument(2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	return err;
}

/* Stores on other machines are connected to by helper threads, which look up names (by netlink,
 * too). No packets of their own making. */
static int sockets(scmp_filter_ctx ctx)
{
	static const int domains[] = { AF_UNIX, AF_INET, AF_INET6, AF_NETLINK };
	int err = 0;

	for (size_t i = 0; !err && i < ARRAY_SIZE(domains); i++)
		for (int type = SOCK_STREAM; !err && type <= SOCK_DGRAM; type++)
			err = seccomp_rule_add(
				ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 2,
				argument(0, SCMP_CMP_EQ, (scmp_datum_t)domains[i], 0),
				argument(1, SCMP_CMP_MASKED_EQ, 0xf, (scmp_datum_t)type));
	if (!err)
		err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 2,
				       argument(0, SCMP_CMP_EQ, AF_NETLINK, 0),
				       argument(1, SCMP_CMP_MASKED_EQ, 0xf, SOCK_RAW));
	return err ?: seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(bind), 0);
}

/*
 * Threads where they are allowed, but no processes. The C library makes both with all signals
 * blocked, where SIGSYS would end us: there it is an error, and no more. The arguments of clone3()
 * cannot be seen; the library takes clone() when there is none.
 */
static int processes(scmp_filter_ctx ctx, enum guard_filter f)
{
	const uint32_t eperm = SCMP_ACT_ERRNO(EPERM);
	int err = seccomp_rule_add(ctx, f == FILTER_LOOP ? eperm : SCMP_ACT_ERRNO(ENOSYS),
				   SCMP_SYS(clone3), 0);

#ifdef SYS_fork
	if (!err)
		err = seccomp_rule_add(ctx, eperm, SCMP_SYS(fork), 0);
	if (!err)
		err = seccomp_rule_add(ctx, eperm, SCMP_SYS(vfork), 0);
#endif
	if (!err)
		err = f == FILTER_LOOP ?
			      seccomp_rule_add(ctx, eperm, SCMP_SYS(clone), 0) :
			      seccomp_rule_add(ctx, eperm, SCMP_SYS(clone), 1,
					       argument(0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
	if (!err && f == FILTER_BLOCKING)
		err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
				       argument(0, SCMP_CMP_MASKED_EQ, CLONE_THREAD,
						CLONE_THREAD));
	return err;
}

/* Who may do all but what is listed. */
static int fill_never(scmp_filter_ctx ctx, enum guard_filter f)
{
	const uint32_t action = f == FILTER_MAIN ? SCMP_ACT_TRAP : SCMP_ACT_ERRNO(EPERM);
	int err = rules(ctx, action, never, ARRAY_SIZE(never));

	return err || f == FILTER_KEEPER ? err :
					   rules(ctx, action, starting, ARRAY_SIZE(starting));
}

static int fill(scmp_filter_ctx ctx, enum guard_filter f, bool rdma)
{
	int err = f == FILTER_KEEPER ? 0 : processes(ctx, f);

	if (err)
		return err;
	if (allows_all_but(f))
		return fill_never(ctx, f);
	err = rules(ctx, SCMP_ACT_ALLOW, living, ARRAY_SIZE(living));
	if (!err)
		err = rules(ctx, SCMP_ACT_ALLOW, loops, ARRAY_SIZE(loops));
	if (!err)
		err = arguments(ctx);
	if (!err && f == FILTER_LOOP && rdma) /* verbs', by the type in the request's number */
		err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
				       argument(1, SCMP_CMP_MASKED_EQ, 0xff00,
						RDMA_IOCTL_MAGIC << 8));
	if (!err && f == FILTER_BLOCKING)
		err = rules(ctx, SCMP_ACT_ALLOW, blocking, ARRAY_SIZE(blocking));
	if (!err && f == FILTER_BLOCKING && REMOTE_STORES)
		err = sockets(ctx);
	return err;
}

/* The program of @ctx, as the kernel takes it. */
static int export_program(scmp_filter_ctx ctx, struct sock_fprog *prog)
{
	int fd = memfd_create("filter", MFD_CLOEXEC), err;
	off_t len;

	if (fd < 0)
		return -errno;
	err = seccomp_export_bpf(ctx, fd);
	len = err ? 0 : lseek(fd, 0, SEEK_END);
	prog->filter = len > 0 ? malloc((size_t)len) : NULL;
	if (!err && !prog->filter)
		err = -ENOMEM;
	if (!err && pread(fd, prog->filter, (size_t)len, 0) != len)
		err = -EIO;
	prog->len = (unsigned short)((size_t)len / sizeof(*prog->filter));
	close(fd);
	return err;
}

static int make_program(enum guard_filter f, bool rdma)
{
	scmp_filter_ctx ctx = seccomp_init(allows_all_but(f) ? SCMP_ACT_ALLOW : SCMP_ACT_TRAP);
	int err;

	if (!ctx)
		return -ENOMEM;
	err = fill(ctx, f, rdma);
	if (!err)
		err = export_program(ctx, &made[f]);
	seccomp_release(ctx);
	return err;
}

int guard_filter_make(bool rdma)
{
	int err = 0;

	for (enum guard_filter f = 0; !err && f < FILTERS; f++)
		err = make_program(f, rdma);
	return err;
}

int guard_filter_keeper(void)
{
	int err = make_program(FILTER_KEEPER, false);

	if (!err && guard_filter_install(FILTER_KEEPER))
		err = -errno;
	return err;
}

int guard_filter_install(enum guard_filter f)
{
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &made[f]);
}

const char *guard_filter_name(int nr)
{
	static char text[40];
	char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, nr);

	strncpy(text, name ? name : "?", sizeof(text) - 1);
	free(name);
	return text;
}

#else

int guard_filter_make(bool rdma)
{
	(void)rdma;
	return -ENOSYS;
}

int guard_filter_keeper(void)
{
	return -ENOSYS;
}

int guard_filter_install(enum guard_filter f)
{
	(void)f;
	errno = ENOSYS;
	return -1;
}

const char *guard_filter_name(int nr)
{
	(void)nr;
	return "?";
}

#endif
