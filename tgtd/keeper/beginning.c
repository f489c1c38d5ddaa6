/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See beginning.h. */
#include "events/log.h"
#include "tgtd/keeper/beginning.h"
#include "tgtd/keeper/patience.h"

#define CALL_SAID_NS (20 * NSEC_PER_SEC)

static const struct patience_limits with_signs = { .stopped_ns = 20 * NSEC_PER_SEC,
						   .still_ns = 20 * NSEC_PER_SEC,
						   .all_ns = 120 * NSEC_PER_SEC,
						   .waits_for_calls = true };
static const struct patience_limits without = { .stopped_ns = 20 * NSEC_PER_SEC,
						.still_ns = 120 * NSEC_PER_SEC,
						.all_ns = 600 * NSEC_PER_SEC,
						.waits_for_calls = true };

static struct {
	struct patience patience;
	bool signs;
	bool said_call; /* it is in one system call, which the log says once */
} b;

void beginning_of(pid_t pid)
{
	patience_begin(&b.patience, pid);
	b.signs = b.said_call = false;
}

void beginning_heard(bool sign)
{
	patience_sign(&b.patience);
	b.signs |= sign;
}

const char *beginning_stays(bool excused, bool *stopped)
{
	const enum patience_says says =
		patience_look(&b.patience, b.signs ? &with_signs : &without, excused);

	if (b.patience.called_ns >= CALL_SAID_NS && !b.said_call) {
		b.said_call = true;
		log_error("keeper: worker %d waits in the kernel as it begins: a store, or a file "
			  "system, hangs",
			  b.patience.pid);
	}
	*stopped = says == PATIENCE_STOPPED;
	return says ? patience_why(says) : NULL;
}
