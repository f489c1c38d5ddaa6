/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A frame that is to be sent: mirror_link_send.c makes it, a channel sends and frees it. */
#ifndef TGTD_CLUSTER_LIVE_MIRROR_BUF_H
#define TGTD_CLUSTER_LIVE_MIRROR_BUF_H

#include "tgtd/cluster/live/mirror_rdma.h"

/* With room for its code. */
struct mirror_buf {
	struct list link;
	size_t len, sent; /* with the code */
	bool coded;
	struct mirror_rdma_mem *mem; /* where all of it lies; NULL: malloc() */
	uint64_t end;		     /* RDMA: sent when so many work requests are done */
	/* Of mirror_link.c: */
	struct mirror_out out;
	void *slot;
	uint64_t to; /* a link's id, 0: none was there */
	unsigned channel;
	uint8_t bytes[];
};
/* For a frame of @frame bytes; in memory that @dev can send, unless that is NULL, or has none.
 * NULL: no memory. Any thread. */
struct mirror_buf *mirror_buf_new(size_t frame, struct mirror_rdma_dev *dev) must_check;
void mirror_buf_free(struct mirror_buf *b); /* NULL is fine */
/* All of a list. */
void mirror_bufs_free(struct list *bufs);

#endif
