/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where memory is: asked of the kernel by move_pages(2), page by page. Binding is a wish
 * (topology_bind_memory()); this says whether it came true. The size of pages is asked by
 * PAGEMAP_SCAN, in bounded steps. Kernels before 6.7 tell it by /proc/self/smaps alone, which is
 * one step for all that the process has mapped.
 */
#ifndef CACHE_MEMORY_WHERE_H
#define CACHE_MEMORY_WHERE_H

#include "events/topology.h"

struct mem_where {
	uint64_t pages;	    /* of the system's page size that have memory */
	uint64_t on_node;   /* of these on the node that was asked for */
	uint64_t elsewhere; /* on others; neither: the kernel does not tell */
	uint64_t bytes;	    /* looked at */
	uint64_t huge;	    /* bytes that lie in huge pages */
	int err;	    /* 0, or -errno of the last question without an answer */
};

/* The kernel's number of @node; -1 when @topo is NULL or simulated, or @node < 0: then nobody can
 * tell whether a page is there. */
int mem_where_node(const struct topology *topo, int node);
/* Adds what [@addr, @addr + @len), page-aligned, is to *@w. @os_node: as mem_where_node() has it.
 * Any thread that may block: 50 ns a page. */
void mem_where_add(struct mem_where *w, const void *addr, size_t len, int os_node);
/* Its halves: of pages on nodes, and of bytes in huge pages, of which the second is better asked
 * once for all. */
void mem_where_nodes(struct mem_where *w, const void *addr, size_t len, int os_node);
void mem_where_huge(struct mem_where *w, const void *addr, size_t len);
/* The sum of both in *@to. */
void mem_where_join(struct mem_where *to, const struct mem_where *from);
/* "N of M pages on the node, K of L MiB in huge pages", as the log and tgtadm have it. */
void mem_where_text(const struct mem_where *w, char *buf, size_t size);

#endif
