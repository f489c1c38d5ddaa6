/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Counters, declared once in metrics.def and sharded per thread: a thread adds to its own cache
 * lines with a plain store, readers sum the shards. Reset, aggregation and export follow from the
 * declaration.
 *
 *   metrics.def:   METRIC(cache_hits, COUNTER, "1", "blocks found valid in the cache")
 *   a data path:   metric_inc(M_cache_hits);
 */
#ifndef EVENTS_METRICS_H
#define EVENTS_METRICS_H

#include "events/base.h"

enum metric_kind { METRIC_KIND_COUNTER, METRIC_KIND_GAUGE };
#define METRIC(name, kind, unit, help) M_##name,
enum metric {
#include "events/metrics.def"
	METRIC_COUNT
};
#undef METRIC

struct metric_shard {
	uint64_t v[METRIC_COUNT];
	uint32_t slot; /* metric_slot() */
} cacheline_aligned;

/* Of the calling thread; before it registers, one that all such threads
 * share: they count roughly. */
extern __thread struct metric_shard *metric_shard_;

/* The calling thread gets a shard of its own (loops do it themselves), which keeps its figures when
 * the thread ends. Idempotent. */
void metrics_register_thread(void);

/* For callers that shard figures of their own in the same way: a small number that no other thread
 * has at this time. All threads that did not register have 0. */
static inline uint32_t metric_slot(void)
{
	return metric_shard_->slot;
}

static inline void metric_add(enum metric m, uint64_t n)
{
	counter_add(&metric_shard_->v[m], n);
}
static inline void metric_inc(enum metric m)
{
	metric_add(m, 1);
}
static inline void metric_sub(enum metric m, uint64_t n) /* gauges: the shards' sum is the value */
{
	metric_add(m, -n);
}

uint64_t metric_read(enum metric m); /* sum over shards; any thread */
/* As metrics.def has them. Any thread. */
const char *metric_name(enum metric m);
const char *metric_help(enum metric m);
const char *metric_unit(enum metric m);
enum metric_kind metric_kind(enum metric m);

#endif
