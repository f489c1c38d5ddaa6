/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a data digest costs, and what handing it to another thread would (A9): CRC32C of data
 * that is not in the core's cache by isa-l, by the processor's crc32 instruction in a plain
 * loop and by a table; then the way to a thread on another core and back, for a thread that
 * spins and for one that sleeps.
 *
 *   cc -O2 -march=native -I. -o digest tests/bench/digest.c -lisal -pthread
 *   ./digest [THIS-CPU [OTHER-CPU]]
 */
#define _GNU_SOURCE
#include <isa-l/crc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MEMORY = 256 << 20, ROUNDS = 9, HOPS = 20000 };

static uint32_t table[256];
static uint8_t *data;
static volatile uint32_t sink;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0) {
		perror("digest: pin");
		exit(1);
	}
}

static uint32_t by_isal(uint32_t crc, const uint8_t *p, size_t n)
{
	return crc32_iscsi((unsigned char *)(uintptr_t)p, (int)n, crc);
}

static uint32_t by_instruction(uint32_t crc, const uint8_t *p, size_t n)
{
	uint64_t c = crc, word;

	for (; n >= 8; n -= 8, p += 8) {
		memcpy(&word, p, 8);
		c = __builtin_ia32_crc32di(c, word);
	}
	return (uint32_t)c;
}

static uint32_t by_table(uint32_t crc, const uint8_t *p, size_t n)
{
	while (n--)
		crc = table[(crc ^ *p++) & 0xff] ^ crc >> 8;
	return crc;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), by_value);
	return v[n / 2];
}

/* ns for one digest of n bytes; each is of other bytes than the last, as in a target. */
static double cost(uint32_t (*crc)(uint32_t, const uint8_t *, size_t), size_t n, size_t total)
{
	double v[ROUNDS];
	size_t at = 0;

	for (unsigned r = 0; r < ROUNDS; r++) {
		size_t times = total / n ? total / n : 1;
		uint64_t t0 = now_ns();

		for (size_t i = 0; i < times; i++) {
			sink = crc(~0u, data + at, n);
			at = at + 2 * n <= MEMORY ? at + n : 0;
		}
		v[r] = (double)(now_ns() - t0) / (double)times;
	}
	return median(v, ROUNDS);
}

/* ---- the way there and back ------------------------------------------------------------------ */

static struct {
	int cpu;
	bool sleeps;
	int there, back;
	_Alignas(64) _Atomic uint64_t asked;
	_Alignas(64) _Atomic uint64_t done;
} hop;

static void *helper(void *arg)
{
	uint64_t v;

	pin(hop.cpu);
	for (uint64_t i = 1; i <= HOPS; i++) {
		if (hop.sleeps) {
			if (read(hop.there, &v, 8) != 8 || write(hop.back, &(uint64_t){1}, 8) != 8)
				exit(1);
		} else {
			while (atomic_load_explicit(&hop.asked, memory_order_acquire) < i)
				__builtin_ia32_pause();
			atomic_store_explicit(&hop.done, i, memory_order_release);
		}
	}
	return arg;
}

/* ns from handing over until the answer is here; *own: what the thread that
 * hands over spends on it itself. */
static double hops(bool sleeps, double *own)
{
	static double v[HOPS], o[HOPS];
	pthread_t t;
	uint64_t got;

	hop.sleeps = sleeps;
	atomic_store(&hop.asked, 0);
	atomic_store(&hop.done, 0);
	hop.there = eventfd(0, EFD_CLOEXEC);
	hop.back = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (hop.there < 0 || hop.back < 0 || pthread_create(&t, NULL, helper, NULL) != 0)
		exit(1);
	for (uint64_t i = 1; i <= HOPS; i++) {
		uint64_t t0 = now_ns(), t1, last;

		if (sleeps) {
			if (write(hop.there, &(uint64_t){1}, 8) != 8)
				exit(1);
			t1 = now_ns();
			do
				last = now_ns();
			while (read(hop.back, &got, 8) != 8);
			o[i - 1] = (double)(t1 - t0 + now_ns() - last);
		} else {
			atomic_store_explicit(&hop.asked, i, memory_order_release);
			while (atomic_load_explicit(&hop.done, memory_order_acquire) < i)
				__builtin_ia32_pause();
			o[i - 1] = 0;
		}
		v[i - 1] = (double)(now_ns() - t0);
		/* Long enough apart that a helper that sleeps does. */
		for (uint64_t end = now_ns() + 20000; sleeps && now_ns() < end;)
			;
	}
	pthread_join(t, NULL);
	close(hop.there);
	close(hop.back);
	*own = median(o, HOPS);
	return median(v, HOPS);
}

int main(int argc, char **argv)
{
	static const size_t size[] = {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20};
	int here = argc > 1 ? atoi(argv[1]) : 1;
	double spin, sleep_, own;

	hop.cpu = argc > 2 ? atoi(argv[2]) : 0;
	pin(here);
	for (unsigned i = 0; i < 256; i++) {
		table[i] = i;
		for (unsigned b = 0; b < 8; b++)
			table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0x82f63b78u : 0);
	}
	data = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED)
		return 1;
	madvise(data, MEMORY, MADV_HUGEPAGE);
	for (size_t i = 0; i < MEMORY; i++)
		data[i] = (uint8_t)(i * 131 + (i >> 12));
	if (by_isal(~0u, data, 65536) != by_table(~0u, data, 65536) ||
	    by_isal(~0u, data, 65536) != by_instruction(~0u, data, 65536)) {
		fputs("digest: the three do not agree\n", stderr);
		return 1;
	}
	printf("%-8s %10s %10s %10s   us a digest, medians of %d\n", "bytes", "isa-l", "crc32 op",
	       "table", ROUNDS);
	for (unsigned i = 0; i < sizeof(size) / sizeof(size[0]); i++)
		printf("%-8zu %10.2f %10.2f %10.2f\n", size[i],
		       cost(by_isal, size[i], MEMORY) / 1e3,
		       cost(by_instruction, size[i], MEMORY) / 1e3,
		       cost(by_table, size[i], MEMORY / 16) / 1e3);
	spin = hops(false, &own);
	printf("to CPU %d and back: %.2f us to a thread that spins;", hop.cpu, spin / 1e3);
	sleep_ = hops(true, &own);
	printf(" %.2f us to one that sleeps, of which %.2f us are the asking thread's own calls\n",
	       sleep_ / 1e3, own / 1e3);
	return 0;
}
