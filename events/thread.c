/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See thread.h. */
#include <sched.h>
#include "events/thread.h"

void thread_background(bool on)
{
	const struct sched_param none = { 0 };

	/* Of this thread; a wish only. */
	sched_setscheduler(0, on ? SCHED_IDLE : SCHED_OTHER, &none);
}
