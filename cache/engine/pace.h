/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How much of a device's write-back may be out at a time, so that it neither delays the reads of
 * its store nor leaves the store idle; and how fast write-back goes on that fails. Counts only: it
 * knows no block and no request, and is told the time. One thread, the device's worker.
 *
 * Which rule holds depends on who waits:
 *
 *   PACE_WRITERS  somebody waits for blocks that this device has to give back: 64 writes out, and
 *                 as many bytes as make a write wait at the store for 10 ms at most
 *   PACE_READS    else reads of the store are out, or were PACE_READS_NS ago: 4 writes, of 256 KiB
 *                 at most each, and 2 ms
 *   PACE_QUIET    else: 16 writes, and 20 ms
 *
 * The bytes are a window that adapts as a delay-based congestion control's does (Brakmo and
 * Peterson, "TCP Vegas", 1995). Writes that are started while no other is out tell how long one
 * takes by itself. Do writes take longer than twice that and the rule's time, the window shrinks by
 * a quarter, once for what was out then; both are means of the last few, since stores take longer
 * now and then for reasons of their own. Else it grows by PACE_STEP for each window that was
 * written, and doubles until it shrinks first. Each rule has a window of its own, of PACE_MIN to
 * PACE_MAX bytes. One write may always be out, whatever its size.
 *
 * When writes fail:
 *
 *  - After PACE_STREAK failures with nothing written in between the store is sick as a whole: no
 *    write is started beside another, and there is a pause after each, 10 ms at first, doubled with
 *    every 16 more, up to 1 s.
 *  - What failed alone is tried again rarely (writeback.c). When that succeeds the store may have
 *    been healed: each block that was written so earns two others a try before their time, and the
 *    tries go out with twice as many blocks in one write. A try that fails ends the latter.
 */
#ifndef CACHE_ENGINE_PACE_H
#define CACHE_ENGINE_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_MIN (128u << 10)
#define PACE_MAX (16u << 20)
#define PACE_STEP (256u << 10)
#define PACE_READS_NS 50000000ull
#define PACE_STREAK 64u
#define PACE_RUNS 256u	  /* descriptors of one device's write-back out: of IO_MAX */
#define PACE_TRIES 8u	  /* writes out of what failed alone */
#define PACE_TRUST_MAX 8u
#define PACE_CREDITS 4096u

enum pace_rule { PACE_QUIET, PACE_READS, PACE_WRITERS, PACE_RULES };

struct pace {
	uint8_t rule;	      /* enum pace_rule in force */
	uint8_t trust;	      /* log2 of how many blocks that failed may go out in one write */
	uint32_t out;	      /* writes */
	uint32_t runs;	      /* descriptors that they have */
	uint32_t tries;	      /* of the writes: of what failed alone */
	uint32_t streak;      /* failures since something was written */
	uint32_t credits;     /* so many blocks that failed may be tried before their time */
	uint64_t bytes;	      /* out */
	uint64_t window[PACE_RULES];
	uint64_t cut_ns[PACE_RULES]; /* when it shrank last; 0: never */
	uint64_t mean_ns[PACE_RULES]; /* what writes have taken lately */
	uint64_t alone_ns[PACE_RULES]; /* ... by themselves; 0: not known yet */
	uint64_t read_ns;     /* when reads were out last */
	uint64_t hold_ns;     /* nothing is to be started before */
};

/* What may be started now. */
struct flush_room {
	uint32_t writes;
	uint32_t runs;
	uint32_t most;	/* bytes of one write, that several runs are merged to */
	unsigned flags; /* BLK_F_* of each */
	uint64_t bytes;
};

void pace_init(struct pace *p);
/* Who waits now: @reads of the store are out, @writers wait for blocks. */
void pace_look(struct pace *p, uint64_t now_ns, bool reads, bool writers);
/* All 0 when nothing may be started; hold_ns is not looked at. Flags are not its business. */
struct flush_room pace_room(const struct pace *p);
/* A write of @runs runs is started; @tried: of what failed alone. Its tag for pace_end(). */
uint8_t pace_start(struct pace *p, uint64_t bytes, uint32_t runs, bool tried);

struct pace_write {
	uint8_t tag; /* what pace_start() has said */
	bool tried;
	uint32_t runs, blocks;
	uint64_t bytes, started_ns;
};
/* It is over. */
void pace_end(struct pace *p, const struct pace_write *w, uint64_t now_ns, int status);

#endif
