/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Workers: each thread owns some of the connections and drives them through the phases of a run
 * (fill, run, read back). What is to be read or written next is decided here; moving it is
 * conn.c's.
 */
#ifndef TOOLS_BENCH_TGT_LOAD_WORK_H
#define TOOLS_BENCH_TGT_LOAD_WORK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/bench/tgt-load/conn.h"
#include "tools/bench/tgt-load/hist.h"
#include "tools/bench/tgt-load/opts.h"
#include "tools/bench/tgt-load/rand.h"

enum phase {
	PHASE_FILL,      /* write everything once, in order */
	PHASE_RUN,       /* what was asked for */
	PHASE_READ_BACK, /* verification: read what was ever written and check it */
};

enum { READS, WRITES, KINDS };

/* What a worker counted in the measured interval. */
struct tally {
	uint64_t ios[KINDS];
	uint64_t bytes[KINDS];
	uint64_t failed;      /* commands that ended with another status than GOOD */
	uint64_t miscompared; /* 512-byte pieces with a wrong stamp */
	uint64_t checked;     /* pieces that were right */
	uint64_t late;        /* open loop: arrivals dropped because a second behind */
	uint64_t batches;     /* receives that ended at least one command */
	uint64_t waited;      /* ns in turns of the loop that had nothing to do */
	struct hist lat[KINDS];
};

/* The work of one run, shared by its workers. */
struct run {
	const struct opts *opts;
	struct lu *lu;
	unsigned nlu;
	uint8_t *pattern;
	uint64_t begin; /* ns: measuring starts */
	uint64_t end;   /* ns: and ends */
	_Atomic bool stop;
	_Atomic uint64_t issued; /* with opts.count: I/Os started by all workers */
	_Atomic uint64_t errors_shown;
};

struct worker {
	struct run *run;
	unsigned index;
	int cpu; /* -1: not pinned */
	pthread_t thread;
	enum phase phase;
	struct conn **conn; /* connections under load, then idle ones */
	unsigned nconn;
	unsigned nidle;
	int epfd;
	struct rnd rnd;
	struct zipf *zipf; /* one per size, only with PAT_ZIPF */
	uint64_t now;
	uint64_t heard; /* when something has come last */
	uint64_t due;  /* open loop: next arrival */
	double gap;    /* ns between arrivals of this worker, 0: closed loop */
	unsigned turn; /* open loop: whose turn */
	unsigned inflight;
	unsigned alive;
	bool measuring;
	bool moved; /* something was received or started in this turn of the loop */
	uint64_t ended;
	_Atomic uint64_t done; /* I/Os ended, for progress lines */
	struct seq *seq;       /* per connection: where its sequential stream stands */
	uint8_t *bufs;         /* verification: one buffer per slot */
	struct tally tally;
	uint64_t first, last; /* ns: measured interval as this worker saw it */
};

/*
 * Prepare `w` for its connections (w->conn, nconn, nidle and w->run set by the caller, connections
 * open). Returns 0 or -errno.
 */
int work_init(struct worker *w);

/* Which phase its thread is to run next; the thread is not running. */
void work_phase(struct worker *w, enum phase phase);

/* Body of a worker's thread: runs w->phase to its end. The argument is the worker. */
void *work_thread(void *arg);

/* Free what work_init() took (not the connections). */
void work_free(struct worker *w);

#endif
