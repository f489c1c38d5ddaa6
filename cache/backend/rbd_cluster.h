/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Clients of Ceph clusters. All images of one cluster, user and configuration share one; those of a
 * gateway group have another. A client has a dozen threads, its connections, and the address that a
 * fence (a blocklist) is about.
 */
#ifndef CACHE_BACKEND_RBD_CLUSTER_H
#define CACHE_BACKEND_RBD_CLUSTER_H

#include <stdatomic.h>
#include "cache/backend/rbd_lib.h"
#include "cache/backend/rbd_name.h"
#include "events/list.h"

#define RBD_TIMEOUT_S 30 /* of a request, unless the configuration says otherwise */

struct rbd_cluster {
	rados_t rados;
	char fsid[40];
	char address[96];    /* that a fence of this client names */
	_Atomic bool fenced; /* the cluster takes nothing more from this client, or it has been
			      * given up: nothing is asked of it, and no image is opened */
	/* Its own. */
	struct list link;
	struct rbd_name name; /* conf, user, cluster, group, op_timeout_s */
	unsigned users;
	bool connecting;
	int err;
	char why[200];
};

/* The client for @name, connected. NULL with errno and the reason. Returns within some 15 s. A
 * thread of offload_submit_library(). */
struct rbd_cluster *rbd_cluster_get(const struct rbd_lib *lib, const struct rbd_name *name,
				    char *why, size_t len) must_check;
/*
 * This process is a gateway of the group @name->group, whose cluster, user and configuration are
 * these. Once, before the first of its images is opened; main thread.
 */
void rbd_cluster_set_group(const struct rbd_name *name);
/* @n says group=: its client is the group's. An image that another client had open would not be
 * fenced with it. 0, or -EINVAL with the reason: another group, or it asks for another cluster or
 * user. Any thread. */
int rbd_cluster_of_group(struct rbd_name *n, char *why, size_t len) must_check;
/* The last user ends it. No image of his is open. The same threads. */
void rbd_cluster_put(const struct rbd_lib *lib, struct rbd_cluster *c);

#endif
