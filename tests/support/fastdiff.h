/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The fast path against the general one. An initiator whose every choice is a byte of the input
 * talks to a fresh logical unit twice: to a target as it is, and to one that is made to take the
 * general path for everything. What comes out, step by step, the figures and the state afterwards
 * must be the same. Real TCP parser and batcher over a socket pair, core, device server and store,
 * on one stepped loop, by a clock that stands still.
 */
#ifndef TESTS_SUPPORT_FASTDIFF_H
#define TESTS_SUPPORT_FASTDIFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How often what came, over all runs on the target as it is: a test of this test looks at it. */
struct fastdiff_seen {
	uint64_t commands, data_in, responses, check_conditions, r2ts, rejects, others;
	uint64_t closed; /* runs that the target ended */
	uint64_t fast;	 /* runs of some of whose commands the general path did not hear */
};
extern struct fastdiff_seen fastdiff_seen;

/* One conversation, both ways. False: they differ, and how was printed to stderr. */
bool fastdiff_run(const uint8_t *data, size_t size);

#endif
