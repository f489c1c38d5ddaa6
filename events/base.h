/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What every file includes: fixed-width types and a dozen macros.
 * Nothing here allocates or calls. */
#ifndef EVENTS_BASE_H
#define EVENTS_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <errno.h>
#include <assert.h>

#define CACHE_LINE 64
#define cacheline_aligned __attribute__((aligned(CACHE_LINE)))

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define inline_always inline __attribute__((always_inline)) /* not left to the compiler */
#define printf_like(f, a) __attribute__((format(printf, f, a)))
#define must_check __attribute__((warn_unused_result))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
/* @a must be a power of two. */
#define ALIGN_DOWN(x, a) ((x) & ~((__typeof__(x))(a) - 1))
#define ALIGN_UP(x, a) ALIGN_DOWN((x) + ((__typeof__(x))(a) - 1), a)
#define IS_ALIGNED(x, a) (((x) & ((__typeof__(x))(a) - 1)) == 0)
#define DIV_ROUND_UP(n, d) (((n) + (d) - 1) / (d))

#define KiB(n) ((uint64_t)(n) << 10)
#define MiB(n) ((uint64_t)(n) << 20)
#define GiB(n) ((uint64_t)(n) << 30)

/*
 * Adds to a figure that one thread writes and any may read: never torn, not ordered. On x86 that is
 * one instruction, which compilers do not make of a relaxed load and store.
 */
static inline void counter_add(uint64_t *figure, uint64_t n)
{
#if defined(__x86_64__) && !defined(TGT_DEBUG)
	__asm__("addq %1, %0" : "+m"(*figure) : "er"(n) : "cc");
#else
	__atomic_store_n(figure, __atomic_load_n(figure, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
#endif
}
static inline void counter_add32(uint32_t *figure, uint32_t n)
{
#if defined(__x86_64__) && !defined(TGT_DEBUG)
	__asm__("addl %1, %0" : "+m"(*figure) : "ir"(n) : "cc");
#else
	__atomic_store_n(figure, __atomic_load_n(figure, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
#endif
}

/* In a loop that waits for another processor. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

#define NSEC_PER_SEC 1000000000ull
#define NSEC_PER_MSEC 1000000ull
#define NSEC_PER_USEC 1000ull

#endif
