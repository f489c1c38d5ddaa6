/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stores that do not answer are looked for once a second, while any store is open that could hang
 * (cache/blk/blk_overdue.h says it). Without one the main loop sleeps.
 */
#include "cache/blk/blk_overdue.h"
#include "events/clock.h"
#include "tgtd/admin/admin_int.h"

static struct {
	struct timer timer;
	bool ticks;
} look;

static void overdue_tick(struct timer *t)
{
	look.ticks = blk_overdue_look(clock_now_ns()) > 0;
	if (look.ticks)
		loop_timer_arm(adm.conf.main, t, BLK_OVERDUE_LOOK_NS);
}

void overdue_go_on(void)
{
	ASSERT_ON_LOOP(adm.conf.main);
	if (look.ticks)
		return;
	look.ticks = true;
	timer_init(&look.timer, overdue_tick);
	loop_timer_arm(adm.conf.main, &look.timer, BLK_OVERDUE_LOOK_NS);
}

void overdue_stop(void)
{
	if (look.ticks)
		loop_timer_cancel(adm.conf.main, &look.timer);
	look.ticks = false;
}
