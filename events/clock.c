/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The two clocks, and the fake one that simulations step by hand. */
#include <stdatomic.h>
#include <time.h>
#include "events/bug.h"
#include "events/clock.h"

/* Atomic only so that a thread left over from another test reads something defined. */
static _Atomic bool fake;
static _Atomic uint64_t fake_ns;
/* What the fake clock was ahead of the machine's when it went: added from then on, and @fake is
 * still set. So who has read a time never reads an earlier one, on a young machine either. */
static _Atomic bool fake_over;
static _Atomic uint64_t ahead_ns;

static uint64_t clock_read_system(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static uint64_t clock_read_fake(clockid_t id)
{
	if (!atomic_load_explicit(&fake_over, memory_order_relaxed))
		return atomic_load_explicit(&fake_ns, memory_order_relaxed);
	return clock_read_system(id) + atomic_load_explicit(&ahead_ns, memory_order_relaxed);
}

uint64_t clock_now_ns(void)
{
	if (unlikely(atomic_load_explicit(&fake, memory_order_relaxed)))
		return clock_read_fake(CLOCK_MONOTONIC);
	return clock_read_system(CLOCK_MONOTONIC);
}

uint64_t clock_boot_ns(void)
{
	if (unlikely(atomic_load_explicit(&fake, memory_order_relaxed)))
		return clock_read_fake(CLOCK_BOOTTIME);
	return clock_read_system(CLOCK_BOOTTIME);
}

uint64_t clock_realtime_ns(void)
{
	return clock_read_system(CLOCK_REALTIME);
}

void clock_fake_set(uint64_t ns)
{
	/* The monotonic clock never steps back, so its stand-in may not either. */
	ASSERT(!fake || fake_over || ns >= fake_ns);
	atomic_store_explicit(&fake_ns, ns, memory_order_relaxed);
	atomic_store_explicit(&fake_over, false, memory_order_relaxed);
	atomic_store_explicit(&fake, true, memory_order_relaxed);
}

void clock_fake_advance(uint64_t ns)
{
	ASSERT(fake && !fake_over);
	atomic_fetch_add_explicit(&fake_ns, ns, memory_order_relaxed);
}

void clock_fake_off(void)
{
	const uint64_t now = clock_read_system(CLOCK_MONOTONIC);
	const uint64_t ahead = fake && !fake_over && fake_ns > now ? fake_ns - now : 0;

	if (fake_over)
		return;
	atomic_store_explicit(&ahead_ns, ahead, memory_order_relaxed);
	atomic_store_explicit(&fake_over, ahead > 0, memory_order_relaxed);
	atomic_store_explicit(&fake, ahead > 0, memory_order_relaxed);
}
