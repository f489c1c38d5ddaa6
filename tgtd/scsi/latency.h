/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How long the commands of a logical unit take, and what they wait for: what administrators read.
 * How it is measured is in timing.h.
 *
 * A command takes from when it was received (the iteration of its event thread began that found its
 * header) until the last byte of its answer was handed to the wire. That time is cut into parts,
 * one after the other, so the parts of a command add up to its total exactly:
 *
 *   waiting   for its event thread, its turn (CmdSN, ORDERED), blocks, its share of the cache, or a
 *             limit that the administrator has set
 *   cache     the daemon works on it
 *   store     a backing store does
 *   wire      data from the initiator is awaited, or the socket has to take the answer
 *
 * Every command counts that has ended, failed and aborted ones too: a store that hangs for a minute
 * must be seen. Figures are of the logical unit: they outlive sessions.
 *
 * Histograms are log-linear: each power of two has eight buckets of one width. What stands for a
 * bucket is wrong by at most 1/17 of the truth (5.9 %). Below 64 ns a bucket is 8 ns.
 */
#ifndef TGTD_SCSI_LATENCY_H
#define TGTD_SCSI_LATENCY_H

#include "events/base.h"

struct scsi_lu;
struct scsi_nexus;

/* What is told apart. COMPARE AND WRITE is a write; WRITE SAME with UNMAP = 1 is an unmap. */
enum lat_class { LAT_READ, LAT_WRITE, LAT_SYNC, LAT_UNMAP, LAT_OTHER, LAT_CLASSES };
enum lat_figure { LAT_TOTAL, LAT_WAITING, LAT_CACHE, LAT_STORE, LAT_WIRE, LAT_FIGURES };
/* What a command waited for, while it was "waiting". */
enum lat_wait {
	LAT_WAIT_THREAD, /* its event thread served others */
	LAT_WAIT_ORDER,	 /* an earlier command: CmdSN, ORDERED; or the store is being replaced */
	LAT_WAIT_BLOCKS, /* free blocks: of the cache, of the dirty limit, of what is pinned */
	LAT_WAIT_SHARE,	 /* its session has more than its share of them */
	LAT_WAIT_LIMIT,	 /* a limit of IOPS or bandwidth */
	LAT_WAITS
};
/* "read" ..., "total" ..., "thread" ...: as they are shown, and as labels. */
extern const char *const lat_class_names[LAT_CLASSES];
extern const char *const lat_figure_names[LAT_FIGURES];
extern const char *const lat_wait_names[LAT_WAITS];

/* ---- histograms ------------------------------------------------------------------------------ */
#define LAT_BUCKETS 256u /* up to 2^37 ns (137 s); what is longer counts in the last */

/* A copy, which belongs to the caller. Nanoseconds. */
struct lat_hist {
	uint64_t count, sum_ns, max_ns;
	uint64_t bucket[LAT_BUCKETS];
};

#define LAT_LINEAR_BITS 6u /* below 2^6 ns eight buckets of one width */

/* The bucket of @ns, and the first and the last value of bucket @i. Pure. */
static inline unsigned lat_bucket(uint64_t ns)
{
	unsigned e;

	if (unlikely(ns < 1u << LAT_LINEAR_BITS))
		return (unsigned)ns >> (LAT_LINEAR_BITS - 3);
	e = 63 ^ (unsigned)__builtin_clzll(ns);
	e = 8 * e + (unsigned)(ns >> (e - 3)) - 8 * LAT_LINEAR_BITS;
	return likely(e < LAT_BUCKETS) ? e : LAT_BUCKETS - 1;
}
uint64_t lat_bucket_first(unsigned i);
uint64_t lat_bucket_last(unsigned i);
/* The value that @permyriad of ten thousand do not exceed (5000: the median; 9990: p99.9; 10000:
 * the largest, exactly). 0 without values. Pure. */
uint64_t lat_percentile(const struct lat_hist *h, unsigned permyriad);
/* *@to += *@from, or *@to -= *@from for what came since an earlier copy (max_ns stays). Pure. */
void lat_hist_add(struct lat_hist *to, const struct lat_hist *from);
void lat_hist_since(struct lat_hist *to, const struct lat_hist *before);

/* ---- reading; any thread, lu->lock for some microseconds ------------------------------------- */
/* Sums are cheap: a few cache lines for each event thread. */
struct lat_sums {
	uint64_t count[LAT_CLASSES];
	uint64_t sum_ns[LAT_CLASSES][LAT_FIGURES]; /* parts of a class add up to its total */
	uint64_t max_ns[LAT_CLASSES];
	uint64_t wait_ns[LAT_CLASSES][LAT_WAITS];  /* add up to LAT_WAITING */
	uint64_t lost; /* commands that were not counted: out of memory */
};
void scsi_lu_get_latency(struct scsi_lu *lu, struct lat_sums *out);
/* One histogram, of all its event threads. False: empty, and *@out is zero. count and sum_ns are
 * those of its own class and figure. */
bool scsi_lu_get_histogram(struct scsi_lu *lu, enum lat_class class, enum lat_figure figure,
			   struct lat_hist *out);

/* ---- of one initiator: only while lat_initiators_set(true) ----------------------------------- */
/* Totals by class, of a session on a logical unit, for commands since it was switched on. Costs
 * memory for each session and unit, so it is off at first. */
void lat_initiators_set(bool on); /* main thread */
bool lat_initiators(void);	  /* any thread */
/* False: there is nothing. Main thread. */
bool scsi_lu_get_initiator(struct scsi_lu *lu, const struct scsi_nexus *nexus,
			   enum lat_class class, struct lat_hist *out);

/* ---- the slowest commands -------------------------------------------------------------------- */
#define LAT_SLOW_KEPT 16u	/* of a logical unit */
#define LAT_SLOW_SECONDS 3600u	/* an older one makes room for any new one */

struct lat_slow {
	uint64_t ended_ns; /* clock_realtime_ns() */
	uint64_t total_ns;
	uint64_t part_ns[LAT_FIGURES]; /* [LAT_TOTAL] is total_ns */
	uint64_t wait_ns[LAT_WAITS];
	uint64_t lba, bytes;	       /* of a READ or WRITE; else 0 */
	uint8_t opcode, class, status; /* enum scsi_status */
	bool aborted;
	uint32_t alike;		       /* commands of a batch, which took as long and of which
					* no LBA is known; 0: it is a single one */
	char initiator[224];	       /* its name */
};
/* The slowest, slowest first; up to LAT_SLOW_KEPT. Returns how many. Any thread. */
unsigned scsi_lu_get_slow(struct scsi_lu *lu, struct lat_slow out[LAT_SLOW_KEPT]);

#endif
