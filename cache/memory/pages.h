/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory comes and goes in steps. While the kernel gives memory to a range, takes it back or locks
 * it, it holds the table of the process's mappings, and threads that serve wait for that: whoever
 * touches a page for the first time, makes a queue, or grows a heap. So no such call is for more
 * than MEM_STEP, and between two of them the table is free.
 */
#ifndef CACHE_MEMORY_PAGES_H
#define CACHE_MEMORY_PAGES_H

#include <stddef.h>
#include <stdint.h>
#include "events/base.h"

#define HUGE_PAGE MiB(2)
#define MEM_STEP MiB(8)

/* How much of [@at, @at + @len) the next step is for: up to MEM_STEP, to a huge page's boundary. */
size_t mem_step(const void *at, size_t len);
/* Touches bytes [@from, @to) at @map, on the node they are bound to. 0 or -errno: memory has run
 * out. Any thread; blocks. */
int mem_populate(uint8_t *map, size_t from, size_t to);
/* Private memory at @at is the system's again, and reads as zeros. The same. */
void mem_empty(uint8_t *at, size_t len);

#endif
