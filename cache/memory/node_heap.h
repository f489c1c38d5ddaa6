/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Private memory of one NUMA node, for what a look-up or a write touches and no later process
 * needs: locks, buckets, replacement, ghosts, dirty words, accounts. It is taken in pieces and
 * given back as a whole. It comes from a few mappings that are bound to the node, in huge pages
 * where the kernel gives them, and has its pages before it is handed out: who touches it first
 * moves nothing. It is kept from being swapped out, where that is asked for.
 *
 * Everything of one heap is for one thread at a time.
 */
#ifndef CACHE_MEMORY_NODE_HEAP_H
#define CACHE_MEMORY_NODE_HEAP_H

#include "cache/memory/locked.h"
#include "cache/memory/where.h"
#include "events/topology.h"

struct node_heap;

/* @topo NULL or @node < 0: bound to nothing. @expect: bytes that will be taken in all, about.
 * @locks: of what is locked, all of it is; it stays longer than the heap. NULL: nothing is. NULL
 * with errno. A thread that may block. */
struct node_heap *node_heap_create(const struct topology *topo, int node, size_t expect,
				   struct mem_locks *locks) must_check;
/* What was taken is gone. NULL is nothing. */
void node_heap_destroy(struct node_heap *h);
/* @bytes of zeros at a multiple of a cache line; NULL with errno. @h NULL: from the C library, for
 * node_heap_give(). A thread that may block. */
void *node_heap_take(struct node_heap *h, size_t bytes) must_check;
/* Of what was taken without a heap; what is a heap's goes with it. NULL is nothing. */
void node_heap_give(struct node_heap *h, void *p);
/*
 * Address space for @bytes, at a multiple of a page; it becomes zeros by node_heap_populate(), or
 * as somebody touches it. @sparse: little of it, here and there, so not in huge pages. NULL with
 * errno. It goes with the heap.
 */
void *node_heap_reserve(struct node_heap *h, size_t bytes, bool sparse) must_check;
/* Bytes [from, to) behind @p, which lies in what node_heap_reserve() gave at a multiple of a page,
 * get their memory now, and are locked. 0 or -errno. A thread that may block. */
int node_heap_populate(struct node_heap *h, void *p, size_t from, size_t to) must_check;
/* @bytes at @p, which lies there, too, get theirs as they are touched, and are locked then. */
void node_heap_touched(struct node_heap *h, void *p, size_t bytes);
/* They lose it, as far as they are whole pages: they read as zeros. */
void node_heap_drop(struct node_heap *h, void *p, size_t from, size_t to);
/* All that was taken loses its memory and reads as zeros from now on, by who still looks at it
 * without a lock. The address space stays until the heap is destroyed. */
void node_heap_empty(struct node_heap *h);
/* Adds where its pages are to *@w. Any thread that may block. */
void node_heap_where(const struct node_heap *h, struct mem_where *w);

#endif
