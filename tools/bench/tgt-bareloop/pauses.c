/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgt-bareloop --pauses: not even a socket. It looks at the clock and nothing else, and says for
 * how long at a time it could not: timer ticks, other processes, the hypervisor. That is the limit
 * of what any program on this core can promise about latency.
 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "tools/bench/tgt-bareloop/bare.h"

enum { GAPS_MAX = 1 << 20, GAP_NS = 3000 };

static uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

int pauses(double seconds)
{
	static uint64_t gap[GAPS_MAX];
	uint64_t begin = clock_ns(), last = begin, now = begin;
	unsigned n = 0;

	while (!stopping && (double)(now - begin) < seconds * 1e9) {
		now = clock_ns();
		if (now - last > GAP_NS && n < GAPS_MAX)
			gap[n++] = now - last;
		last = now;
	}
	printf("{\"seconds\": %.6f, \"gaps_ns\": [", (double)(now - begin) / 1e9);
	for (unsigned i = 0; i < n; i++)
		printf("%s%" PRIu64, i ? ", " : "", gap[i]);
	puts("]}");
	return 0;
}
