/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stamps: what verification mode writes into every 512-byte piece. So a read can tell a lost,
 * misplaced, stale or torn write from a good one.
 */
#ifndef TOOLS_BENCH_TGT_LOAD_STAMP_H
#define TOOLS_BENCH_TGT_LOAD_STAMP_H

#include <stdint.h>

#define STAMP_BYTES 512

enum stamp_verdict {
	STAMP_GOOD,
	STAMP_FOREIGN,   /* not written by us at all */
	STAMP_MISPLACED, /* our stamp, of another place */
	STAMP_STALE,     /* our stamp of this place, but not the last acknowledged write */
	STAMP_TORN,      /* head says good, body differs */
};

/* Fill one piece at `p` (STAMP_BYTES) for piece number `at` of logical unit `lu`, generation gen >
 * 0. */
void stamp_write(void *p, uint32_t lu, uint64_t at, uint32_t gen);

/* Judge one piece read from there. */
enum stamp_verdict stamp_check(const void *p, uint32_t lu, uint64_t at, uint32_t gen);

/* A word for a verdict, for messages. */
const char *stamp_name(enum stamp_verdict v);

#endif
