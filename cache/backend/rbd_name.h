/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What names an image: the path of a unit, and tgt's words of its bsopts. */
#ifndef CACHE_BACKEND_RBD_NAME_H
#define CACHE_BACKEND_RBD_NAME_H

#include <stddef.h>

#include "events/base.h"

struct rbd_name {
	char conf[256];	  /* of the cluster, a file; empty: where Ceph looks for one */
	char user[72];	  /* "client.admin" */
	char cluster[64]; /* "ceph" */
	char pool[128], space[128], image[128], snap[128]; /* space, snap: empty, or which */
	char group[72];		/* of the gateways: its stores share a client of their own; empty */
	unsigned op_timeout_s;	/* of a request; 0: as usual. Not of the text */
};

/*
 * @path: [POOL/[NAMESPACE/]]IMAGE[@SNAPSHOT]; the pool is "rbd" where none is named. @opts (may be
 * NULL): conf=, id=, cluster= and group= among other words, separated by ';' or ','. 0, or -EINVAL
 * with the reason. Any thread.
 */
int rbd_name_parse(struct rbd_name *n, const char *path, const char *opts, char *why,
		   size_t len) must_check;

#endif
