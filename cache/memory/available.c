/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How much memory the machine, or our cgroup, would still give. */
#include <stdio.h>
#include <string.h>
#include "cache/memory/arena.h"

/* One number from a file; UINT64_MAX when there is none ("max", no file). */
static uint64_t read_number(const char *path)
{
	unsigned long long v;
	FILE *f = fopen(path, "re");
	int n;

	if (!f)
		return UINT64_MAX;
	n = fscanf(f, "%llu", &v);
	fclose(f);
	return n == 1 ? v : UINT64_MAX;
}

/* Room left below the limits of our cgroup and its ancestors (v2; none in other setups). */
static uint64_t cgroup_room(void)
{
	char line[512], path[768], *slash;
	uint64_t room = UINT64_MAX;
	FILE *f = fopen("/proc/self/cgroup", "re");

	if (!f)
		return room;
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, "0::", 3) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		for (;;) {
			uint64_t max, now;

			snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", line + 3);
			max = read_number(path);
			snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.current", line + 3);
			now = read_number(path);
			if (max != UINT64_MAX && now != UINT64_MAX)
				room = MIN(room, max > now ? max - now : 0);
			slash = strrchr(line + 3, '/');
			if (!slash || slash == line + 3)
				break;
			*slash = '\0';
		}
		break;
	}
	fclose(f);
	return room;
}

uint64_t arena_memory_available(void)
{
	char line[128];
	unsigned long long kib, avail = ~0ull, reserve;
	FILE *f = fopen("/proc/meminfo", "re");

	if (f) {
		while (fgets(line, sizeof(line), f))
			if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
				avail = kib << 10;
		fclose(f);
	}
	avail = MIN(avail, cgroup_room());
	/* The rest of the daemon and of the machine want to live too. */
	reserve = MIN(avail / 32, MiB(256));
	return avail - reserve;
}
