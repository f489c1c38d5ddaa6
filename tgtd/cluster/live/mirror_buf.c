/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See mirror_buf.h. */
#include <stdlib.h>

#include "tgtd/cluster/live/mirror_buf.h"

struct mirror_buf *mirror_buf_new(size_t frame, struct mirror_rdma_dev *dev)
{
	const size_t size = sizeof(struct mirror_buf) + frame + MIRROR_CODE;
	struct mirror_rdma_mem *mem = dev ? mirror_rdma_mem_get(dev, size) : NULL;
	struct mirror_buf *b = mem ? (void *)mem->addr : malloc(size);

	if (!b)
		return NULL;
	list_init(&b->link);
	b->len = frame + MIRROR_CODE;
	b->sent = 0;
	b->coded = false;
	b->mem = mem;
	return b;
}

void mirror_buf_free(struct mirror_buf *b)
{
	if (b && b->mem)
		mirror_rdma_mem_put(b->mem);
	else
		free(b);
}

void mirror_bufs_free(struct list *bufs)
{
	struct mirror_buf *b, *tmp;

	list_for_each_safe(b, tmp, bufs, link) {
		list_del(&b->link);
		mirror_buf_free(b);
	}
}
