/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where latency is counted (latency.c), for those who count (timing.c) and those who keep it
 * (lu_perf.c). A shard is what one event thread has counted for one logical unit: only that thread
 * writes, so no write is locked. Its buckets come in pieces, each when it is needed first.
 */
#ifndef TGTD_SCSI_LATENCY_IMPL_H
#define TGTD_SCSI_LATENCY_IMPL_H

#include "tgtd/scsi/latency.h"

#define LAT_PIECE 32u /* buckets */

struct lat_series {
	uint64_t n, sum_ns, max_ns; /* n: of values other than 0; of totals, of all */
	uint64_t *piece[LAT_BUCKETS / LAT_PIECE];
};

struct lat_kind {
	struct lat_series figure[LAT_FIGURES];
	uint64_t wait_ns[LAT_WAITS];
};

struct lat_slow_ring;
struct lat_shard {
	struct lat_kind class[LAT_CLASSES];
	uint64_t lost;
	uint64_t slow_floor; /* what is faster is not among the slowest, */
	uint64_t slow_until; /* until then (clock_now_ns()): one of them will be too old */
	struct lat_slow_ring *_Atomic slow;
};

/* Of one session on a logical unit: totals. */
struct lat_own {
	struct lat_series total[LAT_CLASSES];
};

/* One command, or @n that took as long. parts[LAT_TOTAL] is the sum of the others. */
struct lat_times {
	uint64_t part_ns[LAT_FIGURES];
	uint64_t wait_ns[LAT_WAITS]; /* add up to part_ns[LAT_WAITING] */
};

void lat_own_free(struct lat_own *o); /* NULL is fine */
struct lat_shard *lat_shard_new(void) must_check;
void lat_shard_free(struct lat_shard *s); /* NULL is fine */
/* Adds what @from has to @to, and frees @from. Allocates nothing. Nobody writes to either. */
void lat_shard_fold(struct lat_shard *to, struct lat_shard *from);
/* The first piece of @s that has this bucket, which holds @n. False: out of memory. */
bool lat_series_piece(struct lat_series *s, unsigned bucket, uint32_t n) must_check;
/* @n values of @ns. False: out of memory, they are in no bucket. On the thread that it belongs to.
 * Inline: this is for each batch. */
static inline_always bool lat_series_count(struct lat_series *s, uint64_t ns, uint32_t n)
{
	const unsigned b = lat_bucket(ns);
	uint64_t *piece = s->piece[b / LAT_PIECE];

	counter_add(&s->n, n);
	counter_add(&s->sum_ns, ns * n);
	if (unlikely(ns > s->max_ns))
		__atomic_store_n(&s->max_ns, ns, __ATOMIC_RELAXED);
	if (unlikely(!piece))
		return lat_series_piece(s, b, n);
	counter_add(&piece[b % LAT_PIECE], n);
	return true;
}
/* @n commands, on the thread that it belongs to. */
static inline void lat_shard_count(struct lat_shard *s, enum lat_class class, uint32_t n,
					  const struct lat_times *t)
{
	struct lat_kind *k = &s->class[class];
	bool counted = lat_series_count(&k->figure[LAT_TOTAL], t->part_ns[LAT_TOTAL], n);

	for (unsigned f = LAT_WAITING; f < LAT_FIGURES; f++)
		if (t->part_ns[f])
			counted &= lat_series_count(&k->figure[f], t->part_ns[f], n);
	for (unsigned w = 0; unlikely(t->part_ns[LAT_WAITING]) && w < LAT_WAITS; w++)
		counter_add(&k->wait_ns[w], t->wait_ns[w] * n);
	if (unlikely(!counted))
		counter_add(&s->lost, n);
}
void lat_series_free(struct lat_series *s);
/* Adds a copy to *@to. Any thread, while @s stays. */
void lat_series_read(const struct lat_series *s, struct lat_hist *to);

/* The slowest (latency_slow.c). @slow is complete but for its times and ended_ns. On the thread of
 * the shard, if lat_slow_wanted(). */
void lat_slow_note(struct lat_shard *s, const struct lat_times *t, struct lat_slow *slow);
static inline bool lat_slow_wanted(const struct lat_shard *s, uint64_t ns, uint64_t now)
{
	return unlikely(ns > s->slow_floor) || unlikely(now > s->slow_until);
}
/* Those of @s join the @n in @best, which stays sorted. Returns how many there are then. */
unsigned lat_slow_merge(struct lat_shard *s, struct lat_slow best[LAT_SLOW_KEPT], unsigned n);
/* Those of @from that are slow enough go to @to; nobody writes to either. */
void lat_slow_fold(struct lat_shard *to, struct lat_shard *from);
void lat_slow_free(struct lat_shard *s);

#endif
