/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See systree.h. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "events/bug.h"
#include "tests/support/systree.h"

char systree_root[] = "/tmp/tgt-topo-XXXXXX";

static void make_dirs(char *path)
{
	for (char *s = path + 1; (s = strchr(s, '/')); *s++ = '/') {
		*s = '\0';
		BUG_ON(!(mkdir(path, 0755) == 0 || errno == EEXIST));
	}
}

void systree_write(const char *name, const char *content)
{
	char path[PATH_MAX];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", systree_root, name);
	make_dirs(path);
	if (path[strlen(path) - 1] == '/')
		return;
	f = fopen(path, "w");
	BUG_ON(!f);
	for (; *content; content++) {
		if (content[0] == '\\' && content[1] == 'n') {
			fputc('\n', f);
			content++;
		} else {
			fputc(*content, f);
		}
	}
	fputc('\n', f);
	fclose(f);
}

void systree_new(void)
{
	strcpy(systree_root + strlen(systree_root) - 6, "XXXXXX");
	BUG_ON(!mkdtemp(systree_root));
}

void systree_remove(void)
{
	char cmd[128];

	BUG_ON(strncmp(systree_root, "/tmp/tgt-topo-", 14) != 0);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", systree_root);
	BUG_ON(system(cmd) != 0);
}

int systree_detect(struct topology *t, const char *tree)
{
	static const char *const places[] = { "tests/unit/events/sysfs", "sysfs" };
	char path[256], line[2048], *content;
	FILE *f = NULL;
	int rc;

	for (unsigned i = 0; i < ARRAY_SIZE(places) && !f; i++) {
		snprintf(path, sizeof(path), "%s/%s.tree", places[i], tree);
		f = fopen(path, "r");
	}
	BUG_ON(!f); /* run from the top of the source */
	systree_new();
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		if (line[0] == '#' || line[0] == '\0')
			continue;
		content = strstr(line, ": ");
		if (content) {
			*content = '\0';
			content += 2;
		}
		systree_write(line, content ? content : "");
	}
	fclose(f);
	rc = topology_detect(t, systree_root);
	systree_remove();
	return rc;
}
