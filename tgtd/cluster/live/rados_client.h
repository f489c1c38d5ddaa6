/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Objects of a gateway group in RADOS, fences of clients, and messages between gateways.
 *
 * A client of its own serves them, which has no image open: it outlives the fence of the client
 * that has (cache/backend/rbd_cluster.h). Its requests fail after RADOS_TIMEOUT_S.
 *
 * All requests are asynchronous. They end on the loop that the client belongs to, by ->done(). What
 * librados does by calls that block is done by threads of offload_submit_library().
 */
#ifndef TGTD_CLUSTER_LIVE_RADOS_CLIENT_H
#define TGTD_CLUSTER_LIVE_RADOS_CLIENT_H

#include "cache/backend/rbd_cluster.h"
#include "events/loop.h"
#include "events/offload.h"

#define RADOS_TIMEOUT_S 2	/* of a request to an object */
#define RADOS_OID_MAX 160	/* bytes of an object's name, with its end */
#define RADOS_OBJECT_MAX KiB(72) /* of an object */
#define RADOS_NOTE_MAX 4096u	/* bytes of a message */
#define RADOS_FENCES_MAX 32u	/* addresses of one request */

struct rclient_fence;
struct rclient {
	/* Set by who makes it, the rest is 0; unchanged until it is closed. */
	struct loop *home;
	struct rbd_name name;	     /* conf, user, cluster, pool, space, group */
	char watched[RADOS_OID_MAX]; /* object whose messages are heard, once it is there; "" */
	/* A message to @r->watched. It may come twice or not at all, and late. On home. */
	void (*heard)(struct rclient *r, const void *data, size_t len);
	/* rclient_open() has ended: 0, or -errno with the reason; then only rclient_close()
	 * follows. On home. */
	void (*opened)(struct rclient *r, int err, const char *why);
	void (*closed)(struct rclient *r); /* rclient_close() has ended; may free @r. On home */

	/* Its own. */
	const struct rbd_lib *lib;
	struct rbd_cluster *client;
	rados_ioctx_t io;
	struct offload_lane lane, watch_lane;
	struct offload_job job, watch_job;
	struct timer watch_timer;
	uint64_t cookie;
	bool watching; /* the watch's job's */
	bool watch_busy, watch_again, open, closing;
	struct loop_msg lost_msg;
	_Atomic bool lost_posted;
	_Atomic unsigned under_way; /* requests, messages on their way to home, and being open */
	void (*let_go)(struct rclient *r); /* one of under_way less. On home */
	int err;
	char why[200];
};

/* One request; the caller's again when done() runs, which may free it. */
struct rclient_req {
	void (*done)(struct rclient_req *req);
	/*
	 * 0 or -errno. Of a write: -ERANGE: the object has another version. -ETIMEDOUT: it may have
	 * been carried out, or yet be. Of any: -ENOENT, -ESHUTDOWN (this client is fenced).
	 */
	int status;
	char oid[RADOS_OID_MAX];
	void *data;	  /* the caller's: of a read the room for it */
	size_t len;	  /* bytes at data; a read says how many there were */
	uint64_t version; /* of a write: the one that it replaces, 0: there is no object yet. After
			   * success: the one that the object has now */
	/* rclient_fence() */
	const char *address[RADOS_FENCES_MAX]; /* the caller's */
	unsigned addresses;
	unsigned expire_s;
	bool lift;     /* takes the fences back instead (tests) */
	rados_t waits; /* rclient_newest_map(): the client that gets it; NULL: this one */
	/* Its own. */
	struct rclient *rados;
	struct loop_msg msg;
	struct offload_job job;
	struct rclient_fence *fences; /* one an address */
	unsigned left;		      /* that are not answered */
};

/* Connects; opened() follows. Main thread, which is that of home. */
void rclient_open(struct rclient *r);
/* No request is made any more. closed() follows when those under way have ended. On home. */
void rclient_close(struct rclient *r);

/* All on home. The object that is called req->oid is read, from its beginning. */
void rclient_get(struct rclient *r, struct rclient_req *req);
/* It is replaced by req->data, if its version is req->version. */
void rclient_put(struct rclient *r, struct rclient_req *req);
/* Clients at these addresses get nothing done any more for expire_s seconds; Ceph leaves those that
 * are fenced already the time that they have. It is true of OSDs when they know the map that
 * follows. All at once: the monitors take a second for one, or for all. */
void rclient_fence(struct rclient *r, struct rclient_req *req);
/* Ends when a client (req->waits) has the newest map: what it is answered afterwards was done by
 * OSDs that know of all fences before. */
void rclient_newest_map(struct rclient *r, struct rclient_req *req);
/* req->data goes to those who watch req->oid. 0: all have it. Others may have it too. */
void rclient_notify(struct rclient *r, struct rclient_req *req);

#endif
