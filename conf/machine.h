/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The machine as tools see it: what the daemon answers to `system stat --name machine --json`, as
 * structures. Read strictly: a member that is missing, of another type, negative where that means
 * nothing, or there twice, is an error. What a newer daemon says besides is passed over.
 *
 * For single-threaded programs, or with a lock of theirs.
 */
#ifndef CONF_MACHINE_H
#define CONF_MACHINE_H

#include "conf/adm_client.h"

#define MACHINE_TEXT_MAX (64u * 1024 * 1024)
#define MACHINE_ROWS_MAX (1u << 20)	/* of one kind */
#define MACHINE_BOUNDS_MAX 4096u
#define MACHINE_PARTITIONS_MAX 65536u	/* of one node */

struct machine_counter {
	const char *name;
	uint64_t value;
};

struct machine_node {
	int64_t node;
	uint64_t blocks, free, clean, dirty, flushing, filling, waiting;
	uint64_t hits, misses, local_bytes, remote_bytes, fill_bytes, flush_bytes;
	uint64_t readahead_bytes, evictions, waits, wait_ns, lock_waits, forwards;
	uint64_t memory_total, memory_free; /* of the node, bytes; 0: not known */
	/* of each partition, in blocks */
	uint32_t npartitions;
	uint64_t *part_blocks, *part_resident, *part_dirty;
};

struct machine_thread {
	const char *name;
	int64_t node, cpu;
	uint64_t cpu_ns, iterations, sleeps, wakeups_sent, messages, fd_events;
	uint64_t busy_ns;    /* turns of its loop that had work */
	uint64_t starved_ns; /* ready to run, without a processor */
};

struct machine_target {
	uint64_t tid, sessions;
	const char *name, *driver, *state;
};

/* Classes of commands, and parts of the time that one takes, as the daemon names them. */
enum { MACHINE_READ, MACHINE_WRITE, MACHINE_SYNC, MACHINE_UNMAP, MACHINE_OTHER, MACHINE_CLASSES };
enum { MACHINE_WAITING, MACHINE_CACHE, MACHINE_STORE, MACHINE_WIRE, MACHINE_PARTS };
extern const char *const machine_classes[MACHINE_CLASSES];
extern const char *const machine_parts[MACHINE_PARTS];

struct machine_latency {
	uint64_t count, sum_ns, max_ns, part_ns[MACHINE_PARTS];
	uint64_t *bucket; /* [machine.nbounds]; NULL when count is 0 */
};

struct machine_lu {
	uint64_t tid, lun, size, threads, dirty_bytes;
	const char *path, *type; /* path "": no medium */
	bool online, in_doubt;
	uint64_t hanging_ns; /* its store has not answered a request; 0: it does */
	uint64_t rd_bytes, rd_cmds, wr_bytes, wr_cmds, errs; /* done */
	uint64_t rd_ns, wr_ns; /* summed over commands */
	uint64_t busy_ns;      /* with any command */
	struct machine_latency latency[MACHINE_CLASSES]; /* of total time */
	const void *told; /* the latter, as it came */
	const struct machine_target *target;
};

struct machine_session {
	uint64_t tid, sid, rx_bytes, tx_bytes, commands;
	const char *initiator, *address, *transport, *thread;
	const struct machine_target *target; /* NULL: it has just gone */
};

struct machine {
	void *json;	    /* owns the texts */
	const char *version, *state, *affinity;
	uint64_t pid, realtime_ns, monotonic_ns;
	uint64_t cache_bytes, block_size; /* 0: no cache */
	/* The largest value of each bucket, ascending; 0 of them: the daemon has no histograms. */
	uint32_t nbounds;
	uint64_t *bounds_ns;
	uint32_t ncounters, nnodes, nthreads, ntargets, nlus, nsessions;
	struct machine_counter *counters;
	struct machine_node *nodes;
	struct machine_thread *threads;
	struct machine_target *targets; /* ascending tid */
	struct machine_lu *lus;
	struct machine_session *sessions;
};

/* 0: @m is the caller's to give to machine_free(). -EPROTO or -ENOMEM, with a sentence in @err:
 * then there is nothing to free. Texts need not end with NUL. */
int machine_parse(struct machine *m, const char *text, size_t len, char *err,
		  size_t err_len) must_check;
void machine_free(struct machine *m);
/* Asks the daemon behind @c, and parses. *@text (may be NULL) becomes its answer as it came, the
 * caller's to free. As machine_parse(), and what adm_call() fails with. */
int machine_read(struct adm_client *c, struct machine *m, char **text, char *err,
		 size_t err_len) must_check;
/* NULL: there is none of that number. */
const struct machine_target *machine_target(const struct machine *m, uint64_t tid);

/* The value that @permyriad of ten thousand of @l do not exceed, less what @before (NULL: nothing)
 * had: the upper bound of its bucket. 0: there was none. */
uint64_t machine_percentile(const struct machine *m, const struct machine_latency *l,
			    const struct machine_latency *before, unsigned permyriad);

#endif
