/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Wrappers for tests: blk devices stacked on blk devices.
 *
 *   blk_fault   fails chosen requests with a chosen error, before or after they took effect
 *   blk_delay   holds requests for some milliseconds
 *   blk_crash   a store with a volatile write cache, whose power can be cut
 *
 * All of them close the lower device with themselves, and work on any number of loops.
 */
#ifndef TESTS_SUPPORT_BLK_PASS_H
#define TESTS_SUPPORT_BLK_PASS_H

#include <pthread.h>
#include "cache/blk/blk.h"
#include "events/timer.h"

/* ---- the common part: passes everything through ---------------------------------------------- */
struct pass {
	struct blk blk;
	/* Asked before a request goes down (not for prepare). 0: go on. -errno: fail it. 1: it is
	 * kept; pass_go() or blk_complete_here() later, on its home loop. */
	int (*gate)(struct pass *p, struct blk_req *req);
	/* Asked with the outcome on its way up; the result replaces it. */
	int (*upward)(struct pass *p, struct blk_req *req, int status);
	/* A request that gate() keeps is aborted: true when it was let
	 * go (and is to be cancelled). */
	bool (*abort)(struct pass *p, struct blk_req *req);
	void (*close)(struct pass *p);
	_Atomic uint64_t requests, in_flight;
};

/* Fills p->blk from @lower. */
void pass_init(struct pass *p, struct blk *lower, const char *name);
/* Sends a kept request down. Result as blk_submit(), but req->status is set
 * by the caller's completion. */
bool pass_go(struct pass *p, struct blk_req *req);

/* ---- faults ---------------------------------------------------------------------------------- */
struct fault_rule {
	unsigned ops;	       /* bits 1 << BLK_READ ... ; 0: all */
	uint64_t offset, len;  /* only requests that touch this range; len 0: anywhere */
	unsigned skip;	       /* so many matches pass first */
	unsigned times;	       /* then so many fail; 0: all from then on */
	int error;	       /* -errno */
	bool after;	       /* it took effect below all the same: the answer got lost */
};
struct blk *blk_fault_create(struct blk *lower);
void blk_fault_set(struct blk *blk, const struct fault_rule *rule); /* NULL: no more faults */
unsigned blk_fault_hits(struct blk *blk);

/* ---- delay ----------------------------------------------------------------------------------- */
struct blk *blk_delay_create(struct blk *lower, unsigned ms);
/* @ops: bits 1 << BLK_READ ...; 0: all. Applies to requests from now on. */
void blk_delay_set(struct blk *blk, unsigned ms, unsigned ops);
/* The largest number of requests that it held at once. */
unsigned blk_delay_peak(struct blk *blk);

/* ---- crash ----------------------------------------------------------------------------------- */
/*
 * @lower (whose requests must complete on the spot: a ram store) is the medium. Writes stay in a
 * volatile cache until SYNC, or FUA, brings them down. At a power cut each unsynced write lands,
 * vanishes or is torn by sectors, in the order of writing, as @seed decides; then every request
 * fails with -ENODEV until the power is back. Requests complete by message, never at once.
 */
struct blk *blk_crash_create(struct blk *lower, uint64_t seed);
void blk_crash_cut(struct blk *blk);
/* Cuts by itself when so many (>= 1) writes (or syncs) have arrived from now on; 0: does not. */
void blk_crash_cut_at(struct blk *blk, unsigned writes, unsigned syncs);
bool blk_crash_is_off(struct blk *blk);
void blk_crash_power_on(struct blk *blk);
/* Bytes in the volatile cache. */
uint64_t blk_crash_unsynced(struct blk *blk);

#endif
