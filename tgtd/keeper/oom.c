/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See oom.h. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tgtd/keeper/oom.h"

#define FILE_MAX_BYTES 16384u /* of /proc/vmstat, too */

static uint64_t oom_count;

static bool oom_file_read(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n = 1;

	if (fd < 0)
		return false;
	while (n > 0 && len < size - 1) {
		n = read(fd, text + len, size - 1 - len);
		len += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	text[len] = '\0';
	return n >= 0 && len;
}

/* The line "oom_kill NUMBER", which all of these files have. */
static bool oom_count_in(const char *path, uint64_t *count)
{
	static const char word[] = "oom_kill ";
	static char text[FILE_MAX_BYTES];

	if (!oom_file_read(path, text, sizeof(text)))
		return false;
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, word, strlen(word))) {
			*count = strtoull(line + strlen(word), NULL, 10);
			return true;
		}
	}
	return false;
}

/* The count of the group of one hierarchy: @line is its line in /proc/self/cgroup, which ends
 * where @end is. */
static bool oom_count_of(const char *line, const char *end, uint64_t *count)
{
	/* Where it is mounted, by convention. */
	static const struct {
		const char *controller, *root, *file;
	} at[] = {
		{ ":memory:", "/sys/fs/cgroup/memory", "memory.oom_control" },
		{ "::", "/sys/fs/cgroup", "memory.events" },
		{ "::", "/sys/fs/cgroup/unified", "memory.events" },
	};
	const char *group = strchr(line, ':');
	char path[PATH_MAX];

	for (size_t i = 0; group && i < ARRAY_SIZE(at); i++) {
		const size_t skip = strlen(at[i].controller);
		int n;

		if (strncmp(group, at[i].controller, skip))
			continue;
		n = snprintf(path, sizeof(path), "%s%.*s/%s", at[i].root,
			     (int)(end - group - (ptrdiff_t)skip), group + skip, at[i].file);
		if ((size_t)n < sizeof(path) && oom_count_in(path, count))
			return true;
	}
	return false;
}

static uint64_t oom_count_now(void)
{
	static char groups[4096];
	const char *test = getenv(OOM_ENV);
	uint64_t count = 0;

	if (test)
		return oom_count_in(test, &count) ? count : 0;
	if (!oom_file_read("/proc/self/cgroup", groups, sizeof(groups)))
		*groups = '\0';
	for (const char *line = groups, *end; (end = strchr(line, '\n')); line = end + 1)
		if (oom_count_of(line, end, &count))
			return count;
	return oom_count_in("/proc/vmstat", &count) ? count : 0;
}

void oom_begin(void)
{
	oom_count = oom_count_now();
}

bool oom_killed(void)
{
	return oom_count_now() > oom_count;
}
