/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a target process costs: CPU time of each of its threads, from /proc/PID/task.
 */
#ifndef TOOLS_BENCH_TGT_LOAD_CPU_H
#define TOOLS_BENCH_TGT_LOAD_CPU_H

#include <stdint.h>
#include <sys/types.h>

#define CPU_THREADS_MAX 512

struct cpu_thread {
	pid_t tid;
	char name[16];
	uint64_t ns;
};

struct cpu_sample {
	unsigned n;
	struct cpu_thread thread[CPU_THREADS_MAX];
};

/*
 * Read every thread's run time in ns (schedstat; where the kernel lacks it, clock ticks of stat).
 * Returns 0 or -errno (no such process). Threads beyond CPU_THREADS_MAX are not counted.
 */
int cpu_read(pid_t pid, struct cpu_sample *s);

/*
 * What each thread spent between two samples, threads of one name added up, most expensive first,
 * into `out` (which may be neither of the two). Returns the total in ns.
 */
uint64_t cpu_spent(const struct cpu_sample *before, const struct cpu_sample *after,
		   struct cpu_sample *out);

#endif
