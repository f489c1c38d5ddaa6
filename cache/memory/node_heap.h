/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Private memory of one NUMA node, for what a look-up touches and no later process needs: locks,
 * buckets, replacement, ghosts. It is taken in pieces and given back as a whole. It comes from a
 * few mappings that are bound to the node, in huge pages where the kernel gives them, and has its
 * pages before it is handed out: who touches it first moves nothing.
 *
 * Everything of one heap is for one thread at a time.
 */
#ifndef CACHE_MEMORY_NODE_HEAP_H
#define CACHE_MEMORY_NODE_HEAP_H

#include "cache/memory/where.h"
#include "events/topology.h"

struct node_heap;

/* @topo NULL or @node < 0: bound to nothing. @expect: bytes that will be taken in all, about. NULL
 * with errno. A thread that may block. */
struct node_heap *node_heap_create(const struct topology *topo, int node, size_t expect) must_check;
/* What was taken is gone. NULL is nothing. */
void node_heap_destroy(struct node_heap *h);
/* @bytes of zeros at a multiple of a cache line; NULL with errno. @h NULL: from the C library, for
 * node_heap_give(). A thread that may block. */
void *node_heap_take(struct node_heap *h, size_t bytes) must_check;
/* Of what was taken without a heap; what is a heap's goes with it. NULL is nothing. */
void node_heap_give(struct node_heap *h, void *p);
/* Adds where its pages are to *@w. Any thread that may block. */
void node_heap_where(const struct node_heap *h, struct mem_where *w);

#endif
