/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See where.h. */
#include <fcntl.h>
#include <inttypes.h>
#include <numaif.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "cache/memory/where.h"

#define ASK_AT_ONCE 1024 /* pages: the kernel holds the process's mappings as long */

int mem_where_node(const struct topology *topo, int node)
{
	if (!topo || topo->simulated || node < 0 || (unsigned)node >= topo->nnodes)
		return -1;
	return topo->node[node].os_node;
}

/* The nodes of @n pages from @at on. */
static void ask_nodes(struct mem_where *w, const uint8_t *at, size_t n, size_t page, int os_node)
{
	void *pages[ASK_AT_ONCE];
	int status[ASK_AT_ONCE];

	for (size_t i = 0; i < n; i++)
		pages[i] = (void *)(uintptr_t)(at + i * page);
	if (move_pages(0, n, pages, NULL, status, 0) != 0) {
		/* Not allowed, or a kernel without NUMA. */
		w->err = -errno;
		w->pages += n;
		return;
	}
	for (size_t i = 0; i < n; i++) {
		if (status[i] == -ENOENT || status[i] == -EFAULT)
			continue; /* no memory yet; the zero page */
		w->pages++;
		if (status[i] < 0)
			w->err = status[i];
		else if (os_node >= 0 && status[i] == os_node)
			w->on_node++;
		else if (os_node >= 0)
			w->elsewhere++;
	}
}

/* Since Linux 6.7 (Documentation/admin-guide/mm/pagemap.rst); older headers lack it. */
struct scan_region {
	uint64_t start, end, categories;
};
struct scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t inverted, mask, any_of, wanted;
};
#define SCAN _IOWR('f', 16, struct scan)
#define SCAN_HUGE (1ull << 6)
#define SCAN_STEP MiB(64) /* as for ASK_AT_ONCE */

/* Bytes of [from, to) in huge pages; false: the kernel cannot say. */
static bool scan_huge(uintptr_t from, uintptr_t to, uint64_t *bytes)
{
	struct scan_region found[32];
	struct scan s = { .size = sizeof(s),
			  .vec = (uintptr_t)found,
			  .vec_len = ARRAY_SIZE(found),
			  .mask = SCAN_HUGE,
			  .wanted = SCAN_HUGE };
	const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	int n = fd < 0 ? -1 : 0;

	for (*bytes = 0; from < to && n >= 0; from = s.walk_end) {
		s.start = from;
		s.end = MIN(to, from + SCAN_STEP);
		n = ioctl(fd, SCAN, &s);
		if (n >= 0 && s.walk_end <= from)
			n = -1;
		for (int i = 0; i < n; i++)
			*bytes += found[i].end - found[i].start;
	}
	if (fd >= 0)
		close(fd);
	return n >= 0;
}

/* The same as far as the kernel's table of mappings goes. A mapping that lies there in part counts
 * in that part. */
static uint64_t smaps_huge(uintptr_t from, uintptr_t to)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	uint64_t sum = 0, size = 0, kib;
	uintptr_t start, end;
	char line[512];
	bool inside = false;

	while (f && fgets(line, sizeof(line), f)) {
		char field[32];

		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2) {
			inside = start < to && end > from;
			size = inside ? MIN(end, to) - MAX(start, from) : 0;
		} else if (inside && sscanf(line, "%31[^:]: %" SCNu64 " kB", field, &kib) == 2 &&
			   (!strcmp(field, "AnonHugePages") || !strcmp(field, "ShmemPmdMapped") ||
			    !strcmp(field, "FilePmdMapped") || !strcmp(field, "Shared_Hugetlb") ||
			    !strcmp(field, "Private_Hugetlb"))) {
			sum += MIN(KiB(kib), size);
		}
	}
	if (f)
		fclose(f);
	return sum;
}

void mem_where_nodes(struct mem_where *w, const void *addr, size_t len, int os_node)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const uint8_t *at = addr;
	size_t n = len / page;

	w->bytes += len;
	for (size_t i = 0; i < n; i += ASK_AT_ONCE)
		ask_nodes(w, at + i * page, MIN(n - i, (size_t)ASK_AT_ONCE), page, os_node);
}

void mem_where_huge(struct mem_where *w, const void *addr, size_t len)
{
	const uintptr_t at = (uintptr_t)addr;
	uint64_t bytes;

	if (!scan_huge(at, at + len, &bytes))
		bytes = smaps_huge(at, at + len);
	w->huge += bytes;
}

void mem_where_add(struct mem_where *w, const void *addr, size_t len, int os_node)
{
	mem_where_nodes(w, addr, len, os_node);
	if (len >= MiB(2))
		mem_where_huge(w, addr, len);
}

void mem_where_join(struct mem_where *to, const struct mem_where *from)
{
	to->pages += from->pages;
	to->on_node += from->on_node;
	to->elsewhere += from->elsewhere;
	to->bytes += from->bytes;
	to->huge += from->huge;
	to->err = to->err ? to->err : from->err;
}

void mem_where_text(const struct mem_where *w, char *buf, size_t size)
{
	char where[96];

	if (w->on_node || w->elsewhere)
		snprintf(where, sizeof(where), "%" PRIu64 " of %" PRIu64 " pages on the node",
			 w->on_node, w->pages);
	else
		snprintf(where, sizeof(where), "%" PRIu64 " pages, where is not known%s%s",
			 w->pages,
			 w->err ? ": " : "", w->err ? strerror(-w->err) : "");
	snprintf(buf, size, "%s, %" PRIu64 " of %" PRIu64 " MiB in huge pages", where,
		 w->huge >> 20, w->bytes >> 20);
}
