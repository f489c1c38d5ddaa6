/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of group.h share. Calls go down this list:
 *
 *     group.c         the group: begins, ends, is shown; the table of what gateway.h asks for
 *     group_rados.c   objects, fences, clients, messages
 *     group_lu.c      units: states, stores
 *     group_reset.c   resets that concern another gateway's unit, or come from there
 *     group_shared.c  what all gateways answer alike: changes of it, looks, those who obey
 *     group_ask.c     a request of gateway.h, and its answer
 *     process.c       is a process of before gone?
 */
#ifndef TGTD_CLUSTER_LIVE_GROUP_IMPL_H
#define TGTD_CLUSTER_LIVE_GROUP_IMPL_H

#include "cache/backend/rbd_cluster.h"
#include "events/offload.h"
#include "tgtd/cluster/gateway.h"
#include "tgtd/cluster/live/group.h"
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
	int at;		  /* gateway.h's index */
	struct list asks; /* group_ask.link: what waits for the one at work */
	bool busy, going;
	unsigned resets; /* of other gateways, at work: it may not go */
	struct offload_lane lane;
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
	struct group_lu lu[GROUP_LUS];
	struct timer tick, retry, leaving, ending;
	bool abandoned; /* the control client is not waited for any more */
	struct list resets; /* scsi_gateway_reset.link: of initiators here, at work elsewhere */
	uint64_t cookies;
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

/* ---- struct gw_ops, but for what group.c says ------------------------------------------------ */
void group_rados_ops(struct gw_ops *ops);
void group_lu_ops(struct gw_ops *ops);
void group_reset_ops(struct gw_ops *ops);
/* Once; and when the group ends. */
void group_resets_begin(struct group *g);
void group_resets_end(struct group *g);
/* NULL: it is not the group's. Main loop. */
static inline struct group_lu *group_find_lu(struct group *g, const struct scsi_lu *lu)
{
	for (unsigned i = 0; g && i < GROUP_LUS; i++)
		if (g->lu[i].scsi == lu)
			return &g->lu[i];
	return NULL;
}
void group_shared_ops(struct gw_ops *ops);
/* What commands ask: scsi_gateways. */
void group_shared_asks(struct scsi_gateways *g, struct group *group);
/* The unit, or NULL. */
struct group_lu *group_lu_at(struct group *g, unsigned at);
/* Has the data client been fenced? Then gateway.h is told, once. */
void group_look_fenced(struct group *g);
/* Access states are what gateway.h says. */
void group_look_states(struct group *g);
void group_object_name(const struct group *g, unsigned gateway, const struct group_lu *lu,
		       char oid[RADOS_OID_MAX]);
/* A message has come. */
void group_heard(struct rclient *r, const void *data, size_t len);
/* The data client, as a store's name says it. */
void group_data_name(const struct group *g, struct rbd_name *n);

#endif
