/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See guard.h. Capabilities belong to threads, so each sees to its own. */
#include <linux/capability.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "events/bug.h"
#include "events/log.h"
#include "events/metrics.h"
#include "tgtd/guard.h"
#include "tgtd/guard_filter.h"

/* ---- capabilities ---------------------------------------------------------------------------- */

#define CAP(name) (1ull << CAP_##name)
/* Stores belong to whomever they belong to; portals may have ports below 1024; memory is locked for
 * RDMA; threads go back from SCHED_IDLE, and the main thread brings those back that it waits for,
 * which the kernel allows to nobody who has fewer capabilities than they. */
#define CAPS_OPEN (CAP(DAC_OVERRIDE) | CAP(DAC_READ_SEARCH))
#define CAPS_MAIN (CAPS_OPEN | CAP(NET_BIND_SERVICE) | CAP(IPC_LOCK) | CAP(SYS_NICE))
#define CAPS_BLOCKING (CAPS_OPEN | CAP(IPC_LOCK) | CAP(SYS_NICE))
#define CAPS_LOOP 0
#define CAPS_START                                                                           \
	(CAPS_MAIN | CAPS_BLOCKING | CAP(SETUID) | CAP(SETGID) | CAP(SETPCAP) | CAP(CHOWN) |       \
	 CAP(FOWNER))

/* Workers raise limits, and are spared when memory runs out. */
#define CAPS_KEEPER (CAPS_START | CAP(SYS_RESOURCE))

static bool capabilities_get(struct __user_cap_data_struct data[2])
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return syscall(SYS_capget, &head, data) == 0;
}

/* The calling thread keeps what it has of @keep, and a program that it runs what it would have got
 * of @hand_on, where it is no root's (ambient ones go with those that may be inherited). */
static void capabilities_limit(uint64_t keep, uint64_t hand_on)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	if (!capabilities_get(data))
		return;
	for (unsigned i = 0; i < 2; i++) {
		data[i].permitted &= (uint32_t)(keep >> 32 * i);
		data[i].effective = data[i].permitted;
		data[i].inheritable &= (uint32_t)(hand_on >> 32 * i);
	}
	if (syscall(SYS_capset, &head, data))
		log_warn("capabilities stay: %s", strerror(errno));
}

static void capabilities_keep(uint64_t keep)
{
	capabilities_limit(keep, 0);
}

static bool other_user;

void guard_became(void)
{
	other_user = true;
	/* They were kept, but do not count until they are raised. */
	capabilities_keep(CAPS_START & ~(CAP(SETUID) | CAP(SETGID)));
}

/* From here on nothing is gained by running a program. */
static void guard_bound(uint64_t keep)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		log_warn("no_new_privs: %m");
	/* Without CAP_SETPCAP there is nothing that could be dropped. */
	for (int cap = 0; cap < 64; cap++)
		if (!(keep >> cap & 1) && prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1)
			(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
}

void guard_begin(bool change_user)
{
	uint64_t keep = change_user ? CAPS_START :
				      CAPS_START & ~(CAP(SETUID) | CAP(SETGID));

	guard_bound(keep);
	capabilities_keep(keep);
}

void guard_keeper(bool change_user, bool filter)
{
	uint64_t keep = change_user ? CAPS_KEEPER | CAP(KILL) :
				      CAPS_KEEPER & ~(CAP(SETUID) | CAP(SETGID));
	int err = 0;

	guard_bound(keep);
	capabilities_limit(keep, keep);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	/* (Sanitizers in workers look for leaks by ptrace().) */
	err = filter ? guard_filter_keeper() : 0;
#endif
	if (err && err != -ENOSYS)
		log_error("keeper: no filter for system calls: %s", strerror(-err));
}

/* ---- what is refused ------------------------------------------------------------------------- */

#define REFUSED_MAX 16

/* Filled by a signal handler, so it is memory and atomics alone. */
static struct {
	unsigned count, told;
	struct {
		int nr;
		char thread[16];
	} call[REFUSED_MAX];
	struct loop_fd wake;
	bool reports;
} refused = { .wake.fd = -1 };

unsigned guard_refused(void)
{
	return __atomic_load_n(&refused.count, __ATOMIC_RELAXED);
}

/* SIGSYS: the filter has stopped a call of this thread, for which that has failed with EPERM. */
static void on_refusal(int sig, siginfo_t *info, void *context)
{
	unsigned at = __atomic_fetch_add(&refused.count, 1, __ATOMIC_RELAXED) % REFUSED_MAX;
	const uint64_t one = 1;
	ucontext_t *uc = context;
	int saved = errno;

	(void)sig;
	refused.call[at].nr = info->si_syscall;
	(void)prctl(PR_GET_NAME, refused.call[at].thread, 0, 0, 0);
#if defined(__x86_64__)
	uc->uc_mcontext.gregs[REG_RAX] = -EPERM;
#elif defined(__aarch64__)
	uc->uc_mcontext.regs[0] = (uint64_t)-EPERM;
#else
#error "where does a system call leave its result?"
#endif
	if (refused.wake.fd >= 0 && write(refused.wake.fd, &one, sizeof(one)) < 0)
		errno = saved; /* it is full of news already */
	errno = saved;
}

static void guard_tell(struct loop_fd *lfd, uint32_t revents)
{
	unsigned count = guard_refused();
	uint64_t n;

	(void)revents;
	if (read(lfd->fd, &n, sizeof(n)) != sizeof(n))
		return;
	for (; refused.told != count; refused.told++) {
		unsigned at = refused.told % REFUSED_MAX;

		metric_inc(M_guard_refused);
		if (count - refused.told > REFUSED_MAX)
			continue;
		log_ratelimited(LOG_LVL_ERROR,
				"thread %.16s: system call %d (%s) is not one for it: refused",
				refused.call[at].thread, refused.call[at].nr,
				guard_filter_name(refused.call[at].nr));
	}
}

int guard_report(struct loop *main)
{
	int err;

	refused.wake.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (refused.wake.fd < 0)
		return -errno;
	refused.wake.events = EPOLLIN;
	refused.wake.ready = guard_tell;
	err = loop_fd_add(main, &refused.wake);
	refused.reports = !err;
	return err;
}

void guard_report_end(void)
{
	int fd = refused.wake.fd;

	if (refused.reports)
		loop_fd_del(&refused.wake);
	refused.reports = false;
	refused.wake.fd = -1;
	if (fd >= 0)
		close(fd);
}

/* ---- threads --------------------------------------------------------------------------------- */

static bool filters;
static bool shared; /* atomic: threads keep the main thread's credentials */

static uint64_t main_capabilities(void)
{
	return other_user ? CAP(NET_BIND_SERVICE) : CAPS_MAIN;
}

/* It has no more than the main thread: it keeps these credentials. See guard_capabilities(). */
static bool shares_credentials(void)
{
	struct __user_cap_data_struct data[2];
	const uint64_t keep = main_capabilities();

	return __atomic_load_n(&shared, __ATOMIC_ACQUIRE) && capabilities_get(data) &&
	       !(data[0].permitted & ~(uint32_t)keep) &&
	       !(data[1].permitted & ~(uint32_t)(keep >> 32));
}

#define HEAP_PIECE (MiB(4) - KiB(64)) /* below M_MMAP_THRESHOLD, see keep_heaps() */

/*
 * A thread's heap grows by what is lacking, so a system call an allocation, until it has what it
 * needs. It has much of that before it serves. Nothing of it is touched: it costs addresses.
 */
static void grow_own_heap(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	void *piece[4];

	for (size_t i = 0; i < ARRAY_SIZE(piece); i++) {
		piece[i] = malloc(HEAP_PIECE);
		__asm__ volatile("" : : "r"(piece[i]) : "memory"); /* it is not left out */
	}
	for (size_t i = ARRAY_SIZE(piece); i-- > 0;)
		free(piece[i]);
#endif
}

void guard_thread(enum thread_kind kind)
{
	if (kind == THREAD_LOOP)
		grow_own_heap();
	if (!shares_credentials())
		capabilities_keep(kind == THREAD_LOOP || other_user ? CAPS_LOOP : CAPS_BLOCKING);
	if (filters && guard_filter_install(kind == THREAD_LOOP	   ? FILTER_LOOP :
					    kind == THREAD_LIBRARY ? FILTER_LIBRARY :
								     FILTER_BLOCKING))
		log_error("no filter for the system calls of this thread: %m");
}

void guard_capabilities(bool share)
{
	capabilities_keep(main_capabilities());
	__atomic_store_n(&shared, share, __ATOMIC_RELEASE);
}

void guard_main(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	/* (Sanitizers stop our threads by ptrace() to look for leaks.) */
	if (filters && guard_filter_install(FILTER_MAIN))
		log_error("no filter for the system calls of this thread: %m");
#endif
}

/*
 * The C library looks into /proc when a thread's heap first shrinks, and remembers what it saw for
 * all threads: so one without a filter does that.
 */
static void *shrink_heap(void *arg)
{
	void *kept[64];

	(void)arg;
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		kept[i] = malloc(KiB(64));
	for (size_t i = ARRAY_SIZE(kept); i-- > 0;)
		free(kept[i]);
	return NULL;
}

static void shrink_a_heap(void)
{
	pthread_t t;

	if (!pthread_create(&t, NULL, shrink_heap, NULL))
		pthread_join(t, NULL);
}

/*
 * The C library gives a heap's end back when 128 KiB of it are free, and asks for it again with the
 * next allocation. Both change what is mapped, and so wait for whoever else does: that is the
 * cache's memory while its size changes, for longer than a command may take. What is within these
 * bounds comes from a heap that has grown once.
 */
static void keep_heaps(void)
{
	(void)mallopt(M_TRIM_THRESHOLD, (int)MiB(64)); /* no thread's heap is larger */
	(void)mallopt(M_MMAP_THRESHOLD, (int)MiB(4));
}

int guard_threads(bool filter, bool rdma)
{
	struct sigaction sa = { .sa_sigaction = on_refusal, .sa_flags = SA_SIGINFO | SA_NODEFER };
	int err;

	thread_set_guard(guard_thread);
	if (filter)
		shrink_a_heap();
	keep_heaps();
	if (!filter)
		return 0;
	/* As many as the C library would have, which looks into /sys for that, in any thread. */
	(void)mallopt(M_ARENA_MAX, (int)(8 * MAX(sysconf(_SC_NPROCESSORS_ONLN), 1L)));
	err = guard_filter_make(rdma);
	if (err)
		return err;
	if (sigaction(SIGSYS, &sa, NULL))
		return -errno;
	filters = true;
	return 0;
}
