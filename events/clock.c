/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The two clocks, and the fake one that simulations step by hand. */
#include <stdatomic.h>
#include <time.h>
#include "events/bug.h"
#include "events/clock.h"

/* Atomic only so that a thread left over from another test reads something defined. */
static _Atomic bool fake;
static _Atomic uint64_t fake_ns;

static uint64_t clock_read_system(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

uint64_t clock_now_ns(void)
{
	if (unlikely(atomic_load_explicit(&fake, memory_order_relaxed)))
		return atomic_load_explicit(&fake_ns, memory_order_relaxed);
	return clock_read_system(CLOCK_MONOTONIC);
}

uint64_t clock_boot_ns(void)
{
	if (unlikely(atomic_load_explicit(&fake, memory_order_relaxed)))
		return atomic_load_explicit(&fake_ns, memory_order_relaxed);
	return clock_read_system(CLOCK_BOOTTIME);
}

uint64_t clock_realtime_ns(void)
{
	return clock_read_system(CLOCK_REALTIME);
}

void clock_fake_set(uint64_t ns)
{
	/* The monotonic clock never steps back, so its stand-in may not either. */
	ASSERT(!fake || ns >= fake_ns);
	atomic_store_explicit(&fake_ns, ns, memory_order_relaxed);
	atomic_store_explicit(&fake, true, memory_order_relaxed);
}

void clock_fake_advance(uint64_t ns)
{
	ASSERT(fake);
	atomic_fetch_add_explicit(&fake_ns, ns, memory_order_relaxed);
}

void clock_fake_off(void)
{
	atomic_store_explicit(&fake, false, memory_order_relaxed);
}
