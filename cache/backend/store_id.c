/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a store is. See store_id.h. */
#include <ctype.h>
#include <dirent.h>
#include <linux/loop.h>
#include <linux/major.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include "cache/backend/store_id.h"

/* The first line of @sys/dev/block/MAJ:MIN/@name, without blanks at its end; or empty. */
static void attribute(const char *sys, dev_t dev, const char *name, char *text, size_t len)
{
	char path[512], *at;
	FILE *f;

	*text = '\0';
	snprintf(path, sizeof(path), "%s/dev/block/%u:%u/%s", sys, major(dev), minor(dev), name);
	f = fopen(path, "re");
	if (!f)
		return;
	if (!fgets(text, (int)len, f))
		*text = '\0';
	fclose(f);
	for (at = text + strlen(text); at > text && isspace((unsigned char)at[-1]);)
		*--at = '\0';
}

static bool device_number(const char *sys, dev_t dev, const char *name, dev_t *number)
{
	unsigned maj, min;
	char text[32];

	attribute(sys, dev, name, text, sizeof(text));
	if (sscanf(text, "%u:%u", &maj, &min) != 2)
		return false;
	*number = makedev(maj, min);
	return true;
}

/* Registered names only: what vendors make up (t10) is not always one disk's. */
static bool worldwide(const char *name)
{
	const char *digits = strchr(name, '.');
	bool some = false;

	if (strncmp(name, "naa.", 4) && strncmp(name, "eui.", 4) && strncmp(name, "uuid.", 5))
		return false;
	if (strlen(digits + 1) < 16 || strlen(name) > 80)
		return false;
	for (const char *c = digits + 1; *c; c++) {
		if (!isxdigit((unsigned char)*c) && *c != '-')
			return false;
		some |= !strchr("0-fF", *c);
	}
	return some;
}

static void disk_id(const char *sys, dev_t dev, char id[BLK_STORE_ID_MAX])
{
	char name[100], part[16], start[24];
	bool is_part;

	attribute(sys, dev, "partition", part, sizeof(part));
	is_part = *part;
	attribute(sys, dev, is_part ? "../device/wwid" : "device/wwid", name, sizeof(name));
	if (!*name)
		attribute(sys, dev, is_part ? "../wwid" : "wwid", name, sizeof(name));
	if (worldwide(name)) {
		attribute(sys, dev, "start", start, sizeof(start));
		if (is_part)
			snprintf(id, BLK_STORE_ID_MAX, "wwn:%.80s:p%s@%s", name, part, start);
		else
			snprintf(id, BLK_STORE_ID_MAX, "wwn:%s", name);
		return;
	}
	attribute(sys, dev, "dm/uuid", name, sizeof(name));
	if (*name && strlen(name) < sizeof(name) - 1)
		snprintf(id, BLK_STORE_ID_MAX, "dm:%s", name);
	else
		snprintf(id, BLK_STORE_ID_MAX, "disk:%u:%u", major(dev), minor(dev));
}

void store_id_of(const char *sys, const struct stat *st, char id[BLK_STORE_ID_MAX])
{
	if (S_ISBLK(st->st_mode))
		disk_id(sys, st->st_rdev, id);
	else
		snprintf(id, BLK_STORE_ID_MAX, "file:%u:%u:%llu", major(st->st_dev),
			 minor(st->st_dev), (unsigned long long)st->st_ino);
}

bool store_id_by_stat(const char *id)
{
	static const char *const kinds[] = { "file:", "wwn:", "dm:", "disk:" };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (!strncmp(id, kinds[i], strlen(kinds[i])))
			return true;
	return false;
}

struct descent {
	const char *sys;
	char (*id)[BLK_STORE_ID_MAX];
	unsigned n;
};

static void descend(struct descent *d, dev_t dev, unsigned depth);

static void lies_on(struct descent *d, dev_t dev, unsigned depth)
{
	if (d->n < STORE_BELOW_MAX && depth < 8) {
		disk_id(d->sys, dev, d->id[d->n++]);
		descend(d, dev, depth + 1);
	}
}

static void descend(struct descent *d, dev_t dev, unsigned depth)
{
	char text[512], name[300];
	struct dirent *e;
	struct stat st;
	dev_t below;
	DIR *dir;

	attribute(d->sys, dev, "partition", text, sizeof(text));
	if (*text && device_number(d->sys, dev, "../dev", &below))
		lies_on(d, below, depth);
	attribute(d->sys, dev, "loop/backing_file", text, sizeof(text));
	if (*text && d->n < STORE_BELOW_MAX && stat(text, &st) == 0) {
		if (S_ISBLK(st.st_mode))
			lies_on(d, st.st_rdev, depth);
		else
			store_id_of(d->sys, &st, d->id[d->n++]);
	}
	snprintf(text, sizeof(text), "%s/dev/block/%u:%u/slaves", d->sys, major(dev), minor(dev));
	dir = opendir(text);
	while (dir && (e = readdir(dir)) != NULL) {
		snprintf(name, sizeof(name), "slaves/%s/dev", e->d_name);
		if (e->d_name[0] != '.' && device_number(d->sys, dev, name, &below))
			lies_on(d, below, depth);
	}
	if (dir)
		closedir(dir);
}

unsigned store_below(const char *sys, dev_t dev, char (*id)[BLK_STORE_ID_MAX])
{
	struct descent d = { .sys = sys, .id = id };

	descend(&d, dev, 0);
	return d.n;
}

bool store_loop(const char *sys, int fd, char base[BLK_STORE_ID_MAX], uint64_t *from, uint64_t *to)
{
	struct loop_info64 info;
	struct stat st;

	if (fstat(fd, &st) < 0 || major(st.st_rdev) != LOOP_MAJOR ||
	    ioctl(fd, LOOP_GET_STATUS64, &info) < 0)
		return false;
	*from = info.lo_offset;
	*to = info.lo_sizelimit ? info.lo_offset + info.lo_sizelimit : UINT64_MAX;
	st.st_mode = info.lo_rdevice ? S_IFBLK : S_IFREG;
	st.st_rdev = info.lo_rdevice;
	st.st_dev = info.lo_device;
	st.st_ino = info.lo_inode;
	store_id_of(sys, &st, base);
	return true;
}
