/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of group.h share. Calls go down this list:
 *
 *     group_show.c    what is shown of mirrors
 *     group.c         the group: begins, ends, is shown; the table of what gateway.h asks for
 *     group_rados.c   objects, fences, clients, messages
 *     group_lu.c      units: states, stores
 *     group_mirrored.c  a unit's mirror: begins, takes over, ends
 *     group_mirror.c  all mirrors: links, what is held for others
 *     group_reset.c   resets that concern another gateway's unit, or come from there
 *     group_shared.c  what all gateways answer alike: changes of it, looks, those who obey
 *     group_ask.c     a request of gateway.h, and its answer
 *     process.c       is a process of before gone?
 */
#ifndef TGTD_CLUSTER_LIVE_GROUP_IMPL_H
#define TGTD_CLUSTER_LIVE_GROUP_IMPL_H

#include <pthread.h>
#include <semaphore.h>
#include "cache/backend/rbd_cluster.h"
#include "events/offload.h"
#include "tgtd/cluster/gateway.h"
#include "tgtd/cluster/live/arena_stamps.h"
#include "tgtd/cluster/live/group.h"
#include "tgtd/cluster/live/mirror_link.h"
#include "tgtd/cluster/live/mirror_lu.h"
#include "tgtd/cluster/live/mirror_peer_live.h"
#include "tgtd/cluster/live/process.h"
#include "tgtd/cluster/live/rados_client.h"

#define GROUP_LUS 1024u
#define FENCE_S (10u * 365 * 86400) /* an entry of the blocklist keeps its first time */
/* After so long an object is not waited for any more: several attempts fit into a lease. What is
 * sent may be carried out all the same (gateway.h). */
#define GROUP_OBJECT_NS (500 * NSEC_PER_MSEC)

struct group_lu {
	struct group *group;
	struct scsi_lu *scsi; /* NULL: the index is free */
	struct blk *blk;
	uint64_t hash;			  /* gw_lu_hash() */
	int at;				  /* gateway.h's index */
	struct list asks;		  /* group_ask.link: what waits for the one at work */
	void (*left)(void *arg, int err); /* group_lu_leave(); NULL: it stays */
	void *left_arg;
	uint64_t leave_by;
	bool busy, going;
	bool fresh;	 /* its image is open as it was looked at, and has never been asked for */
	unsigned resets; /* of other gateways, at work: it may not go */
	struct offload_lane lane;
	uint64_t told; /* the size that other gateways may know; 0: this one does not */

	/* Its mirror, from lu_open() to lu_close(). Changed by the one request at work. */
	struct mirror_lu *_Atomic mirror; /* group.mirror.lock, where it may go meanwhile */
	struct gw_mirror object;	  /* as lu_open() found it */
	uint64_t epoch;
	bool wanted;	      /* write_cache=mirror; else all goes through */
	bool keeps;	      /* what is in the arena is of this epoch */
	bool replays;	      /* what is held here is to be in the store first */
	bool settled;	      /* what a process before has left in the arena has been looked at */
	bool runs;	      /* the rules have begun */
	struct gw_mirror set; /* what they want the object to say; one at a time */
	struct loop_msg set_msg;
	sem_t *halted; /* group_mirrored_end_run() waits */
};

struct group {
	struct group_conf conf;
	struct scsi_gateways gateways;
	struct loop *main;
	struct gateway *gw;
	struct rclient control;
	bool ready, reaped, stopped; /* the control client is open, and gw begun */
	const struct rbd_lib *lib;
	struct rbd_cluster *data; /* the data client */
	bool fenced_told;
	uint64_t unfenced; /* a fence() that there was no memory for, or 0: it fails */
	struct loop_msg unfenced_msg;
	struct group_lu lu[GROUP_LUS];
	struct timer tick, retry, leaving, ending;
	bool abandoned;	    /* the control client is not waited for any more */
	struct list resets; /* scsi_gateway_reset.link: of initiators here, at work elsewhere */
	uint64_t cookies;
	struct {
		struct mirror_links *links; /* these three: NULL, or there for good */
		struct mirror_live *live;
		struct arena_stamps *stamps;
		struct group_cache cache;
		uint64_t incarnation; /* as mirror_live has been told */
		uint32_t well;
		unsigned ends;	       /* of units whose mirror ends with the group */
		pthread_rwlock_t lock; /* what follows: it changes on threads of offload.h */
		struct group_lu *lu[GROUP_LUS]; /* those with a mirror */
		unsigned n;
	} mirror;
	struct loop_deferred look; /* access states may have changed */
	unsigned parts;		   /* of it that have not ended yet */
	void (*ended)(void *arg);
	void *ended_arg;
	void (*left)(void *arg);
	void *left_arg;
};

/* ---- group_ask.c ----------------------------------------------------------------------------- */
/* What gateway.h wants an answer to. Freed when that is given, and nothing of it is under way. */
struct group_ask {
	struct group *group;
	uint64_t id;
	struct group_lu *lu;
	struct list link;
	int result;
	char text[GW_ADDR_MAX + 1]; /* an address: asked about, or the answer */
	bool told;		    /* it has been answered: too late */
	struct timer late;
	struct rbd_cluster *client;	     /* a data client, made or to be ended */
	void (*run)(struct group_ask *a);    /* on a thread of offload_submit_library() */
	void (*answer)(struct group_ask *a); /* main loop; NULL: gw_done() */
	void (*over)(struct group_ask *a);   /* the same, also when the group ends; or NULL */
	struct offload_job job;
	struct loop_msg msg;
	struct rclient_req req;
	uint8_t *bytes; /* an object or a message */
};
/* NULL: no memory; then it is not answered, which gateway.h can live with. */
struct group_ask *group_ask_new(struct group *g, uint64_t id, struct group_lu *lu);
/* Answers with @result, later. Main loop. */
void group_answer(struct group_ask *a, int result);
/* The same now, and frees it. */
void group_answer_now(struct group_ask *a, int result);
/* Answers -ETIMEDOUT if nothing has come after GROUP_OBJECT_NS. Main loop. */
void group_waits(struct group_ask *a);
/* Does a->run, after what is at work for its unit, then answers a->result. */
void group_run(struct group_ask *a);
uint64_t group_now(void);
/* Something of gateway.h has been called: what follows is looked at soon. */
void group_looks(struct group *g);

/* ---- group_mirror.c: all on the main loop ---------------------------------------------------- */
/* Before gw_new(); it may block. 0 also where nothing is mirrored. */
int group_mirror_begin(struct group *g, const struct group_cache *cache) must_check;
void group_mirror_ops(const struct group *g, struct gw_ops *ops);
/* About every 100 ms. */
void group_mirror_look(struct group *g);
/* Another process goes on with what is held for others. */
void group_mirror_rest(struct group *g);
/* Links end. No unit has a mirror any more. */
void group_mirror_stop(struct group *g, void (*ended)(void *arg), void *arg);

/* ---- group_mirrored.c: main loop, but for ..._run() ------------------------------------------ */
void group_mirrored_init(struct group_lu *lu);
/* lu_open() is asked for: what is to be kept, and what is to be taken over. */
void group_mirrored_opens(struct group_lu *lu, uint64_t epoch, uint64_t keep);
/* On the thread of lu_open(): what is cached goes, unless it is to be kept ... */
int group_mirrored_open_run(struct group_lu *lu) must_check;
/* (It goes in any case; what comes is of @epoch, 0: there is none.) */
int group_mirrored_drop_run(struct group_lu *lu, uint64_t epoch) must_check;
/* On that of lu_lock(), when the lock is ours: what is held here for the owner before goes to the
 * store; then requests are taken, and the mirror begins, if the unit is to have one. */
int group_mirrored_begin_run(struct group_lu *lu) must_check;
/* It is ACTIVE from here on. */
void group_mirrored_serves(struct group_lu *lu);
/* What its commands wait for fails. */
void group_mirrored_fails(struct group_lu *lu);
/* No request is in flight any more: the mirror ends. What is cached stays. On a thread of the
 * unit's requests. */
void group_mirrored_end_run(struct group_lu *lu);
/* Is everything that was answered in the store? */
bool group_mirrored_is_clean(struct group_lu *lu);
void group_mirrored_look(struct group_lu *lu);
void group_mirrored_set(void *arg, unsigned at); /* gw_ops.mirror_set */

/* ---- struct gw_ops, but for what group.c says ------------------------------------------------ */
void group_rados_ops(struct gw_ops *ops);
void group_lu_ops(struct gw_ops *ops);
void group_reset_ops(struct gw_ops *ops);
/* Once; and when the group ends. */
void group_resets_begin(struct group *g);
void group_resets_end(struct group *g);
/* NULL: there is none. Main loop. */
struct group *group_current(void);
/* NULL: it is not the group's. Main loop. */
static inline struct group_lu *group_find_lu(struct group *g, const struct scsi_lu *lu)
{
	for (unsigned i = 0; g && i < GROUP_LUS; i++)
		if (g->lu[i].scsi == lu)
			return &g->lu[i];
	return NULL;
}
/* That of gateway.h's index, or NULL. */
static inline struct group_lu *group_lu_at(struct group *g, unsigned at)
{
	return at < GROUP_LUS && g->lu[at].scsi ? &g->lu[at] : NULL;
}
void group_shared_ops(struct gw_ops *ops);
/* What commands ask: scsi_gateways. */
void group_shared_asks(struct scsi_gateways *g, struct group *group);
/* Has the data client been fenced? Then gateway.h is told, once. */
void group_look_fenced(struct group *g);
/* Commands of the unit are refused from here on, as those of one that changes hands. */
void group_lu_refuses(struct group *g, struct group_lu *lu);
/* Access states are what gateway.h says. */
void group_look_states(struct group *g);
/* As gateway.h means it: of @gateway where @lu is -1, else of that LU. It is looked at while it is
 * added, when g->lu[] does not know it yet. */
void group_object_name(const struct group *g, unsigned gateway, int lu, char oid[RADOS_OID_MAX]);
/* A message has come. */
void group_heard(struct rclient *r, const void *data, size_t len);
/* The data client, as a store's name says it. */
void group_data_name(const struct group *g, struct rbd_name *n);

#endif
