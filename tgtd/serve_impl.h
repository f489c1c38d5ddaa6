/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files that serve share: serve.c, inherit.c, stop.c. All of it is the main thread's. */
#ifndef TGTD_SERVE_IMPL_H
#define TGTD_SERVE_IMPL_H

#include "events/loop.h"
#include "events/placement.h"
#include "tgtd/options.h"

struct daemon {
	struct options *opt;
	struct topology topo;
	struct placement *placement;
	struct loop *main;
	uint32_t node_workers;
	struct loop *worker[TOPO_MAX_NODES * CACHE_WORKERS]; /* node by node */
	struct place worker_place[TOPO_MAX_NODES * CACHE_WORKERS];
	struct cache *cache;
	bool rdma; /* devices may be served */
	struct loop_fd signals;
	struct loop_fd keeper; /* the socket to it */
	struct loop_msg start;
	struct timer signs; /* beginning: see serve.c */
	struct timer deadline;
	struct timer late; /* stopping: stores that are late */
	bool stopping;
	bool lost;		       /* what a store did not take until the end */
	bool kept;		       /* the next worker has cache and state journal */
	uint64_t told_ns[2];	       /* when the first signal said so: of others, of the keeper */
	uint64_t dirty, dirty_ns;      /* then: what was dirty, and since when that is not less */
	uint64_t dirty_first, said_ns; /* what was dirty at first; when that was said last */
	uid_t admin_uid;	       /* who started it */
	gid_t admin_gid;
};

/* ---- inherit.c ------------------------------------------------------------------------------- */

/* While the worker before serves: what takes time, and looks at nothing that it may change. Where
 * there is one, returns when it has gone, or ends the process. After the nodes' loops have begun.
 */
void inherit_prepare(struct daemon *d);
/* Makes the cache, of what was left of it; the next worker finds it. 0 or -errno. */
int inherit_cache(struct daemon *d) must_check;
/* Opens the state journal, the left one or a new one; the next worker finds it. 0 or -errno. */
int inherit_journal(struct daemon *d) must_check;
/* Closes what the worker before listened at, and this one does not: who is in the queue is turned
 * away. */
void inherit_no_portals(void);

/* ---- stop.c ---------------------------------------------------------------------------------- */

/* From now on signals, and the keeper's death, are events of the main loop. Before any other thread
 * exists. 0 or -errno. */
int stop_catch_signals(struct daemon *d) must_check;
/* Begins the end; harmless when it has begun. @arg: struct daemon. */
void stop_begin(void *arg);
/* As that, but another worker is to go on. @arg: struct daemon. */
void stop_to_restart(void *arg);

#endif
