/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A second open file of a store, which no SYNC uses. The kernel tells each open file once of a loss
 * (errseq), and may have told the worker that died, by its own, before anybody could be told. The
 * keeper holds this one, too (store_kept.h); the next worker asks it before its first SYNC.
 *
 * What a SYNC here has told is over when a later one is good. Then the probe is asked as well, and
 * not listened to: else the next worker would tell of it once more.
 */
#ifndef CACHE_BACKEND_STORE_PROBE_H
#define CACHE_BACKEND_STORE_PROBE_H

#include "cache/blk/blk.h"
#include "events/offload.h"

struct store_probe {
	int fd;	     /* -1: there is none */
	bool ask;    /* an earlier worker's, and not asked yet */
	bool failed; /* a SYNC has, and none was good since */
	struct offload_lane *lane;
	struct offload_job job;
	int err;
	void (*asked)(struct store_probe *p, int err);
};

void store_probe_init(struct store_probe *p);
/* The one that an earlier worker has left of the store @id; else one of what @fd is, if we may open
 * that. @asked is called on the loop of store_probe_first(), with 0 or what was lost (negative
 * errno). A thread that may block. */
void store_probe_open(struct store_probe *p, int fd, const char *id, struct offload_lane *lane,
		      void (*asked)(struct store_probe *p, int err));
/* No SYNC is under way. */
void store_probe_fini(struct store_probe *p, const char *id);
/* A SYNC is about to begin. True: asked() is called first. One at a time, on any loop. */
bool store_probe_first(struct store_probe *p) must_check;
/* A SYNC is over. The same. */
void store_probe_synced(struct store_probe *p, int status);

#endif
