/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See mourning.h. */
#include <time.h>

#include "cache/backend/store_under_way.h"
#include "events/kept.h"
#include "events/log.h"
#include "tgtd/admin/admin.h"
#include "tgtd/mourning.h"

#define LOOK_NS (20 * NSEC_PER_MSEC)

static struct {
	struct loop *main;
	struct cache *cache;
	struct timer timer; /* (that they have gone is heard by whoever waits for the keeper) */
	bool on;
} mourns;

static void look_at_mourned(struct timer *t)
{
	if (kept_mourned()) {
		if (under_way_look_again())
			admin_earlier_gone();
		loop_timer_arm(mourns.main, t, LOOK_NS);
		return;
	}
	mourns.on = false;
	under_way_over();
	if (mourns.cache)
		cache_end_quarantine(mourns.cache);
	admin_earlier_gone();
}

/* False: the keeper has gone. */
static bool mourning_await(bool all)
{
	const struct timespec nap = { .tv_nsec = LOOK_NS / 2 };
	bool said = false;

	while (kept_mourned() && (all || !under_way_look())) {
		if (!said)
			log_error("a worker that has died has not gone, and what it had asked for "
				  "may be about anything: waiting for that");
		said = true;
		nanosleep(&nap, NULL);
		if (!kept_alive())
			return false;
	}
	return true;
}

int mourning_begin(struct loop *main, bool all)
{
	const bool records = under_way_start(main) && !all;

	all = !records || kept_origin()->save || kept_origin()->how == KEPT_END_OOM;
	if (!mourning_await(all))
		return -EPIPE;
	if (records)
		kept_tell(KEPT_RECORDS, 0, NULL);
	mourns.main = main;
	mourns.on = kept_mourned();
	timer_init(&mourns.timer, look_at_mourned);
	if (mourns.on)
		loop_timer_arm(main, &mourns.timer, LOOK_NS);
	return 0;
}

bool mourning(void)
{
	return mourns.on;
}

void mourning_cache(struct cache *cache)
{
	mourns.cache = cache;
}

void mourning_end(void)
{
	if (mourns.on)
		loop_timer_cancel(mourns.main, &mourns.timer);
	mourns.on = false;
}
