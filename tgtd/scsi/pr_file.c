/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reservations that survive power loss (APTPL): one text file a logical unit, replaced as a whole
 * (written beside, fsync, rename, fsync of the directory), with a checksum at its end. A file that
 * is cut or altered is refused and said so; it is never half believed.
 *
 *     tgtd-reservations 1
 *     unit iqn.2026-11.org.example:disk 1
 *     generation 7
 *     reservation 5 0                     (type, index of the holder among the registrations or -1)
 *     registration 00000000deadbeef 1 0 0 iqn.1993-08.org.debian:01:abc,i,0x00023d000001
 *     sum 91b0c2...                       (key, relative port, device, all ports, initiator)
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tgtd/scsi/pr.h"

static char *state_dir;

void scsi_set_state_dir(const char *dir)
{
	free(state_dir);
	state_dir = dir ? strdup(dir) : NULL;
}

bool pr_file_possible(void)
{
	return state_dir != NULL;
}

static uint64_t sum64(const char *s, size_t n)
{
	uint64_t h = 0xcbf29ce484222325ull;

	while (n--)
		h = (h ^ (uint8_t)*s++) * 0x100000001b3ull;
	return h;
}

/* Named for the unit's place, not its contents: the same after a restart. */
static void file_path(const struct scsi_lu *lu, const char *suffix, char *path, size_t size)
{
	char unit[300];
	int n = snprintf(unit, sizeof(unit), "%s %u", lu->target->name, lu->lun);

	snprintf(path, size, "%s/reservations-%016llx%s", state_dir,
		 (unsigned long long)sum64(unit, (size_t)MIN(n, (int)sizeof(unit) - 1)), suffix);
}

char *pr_file_text(const struct scsi_lu *lu, size_t *len)
{
	const struct scsi_pr *pr = lu->pr;
	const struct pr_reg *reg;
	char *text = NULL;
	int index = 0, holder = -1;
	FILE *f = open_memstream(&text, len);

	if (!f)
		return NULL;
	list_for_each(reg, &pr->regs, link) {
		if (reg == pr->holder)
			holder = index;
		index++;
	}
	fprintf(f, "tgtd-reservations 1\nunit %s %u\ngeneration %u\n", lu->target->name, lu->lun, pr->generation);
	/* Without APTPL the file says that nothing is to be brought back. */
	if (pr->aptpl) {
		fprintf(f, "reservation %u %d\n", pr->type, holder);
		list_for_each(reg, &pr->regs, link)
			fprintf(f, "registration %016llx %u %d %d %s\n", (unsigned long long)reg->key, reg->rtpi,
				reg->device, reg->all_ports, reg->initiator);
	}
	fflush(f);
	fprintf(f, "sum %016llx\n", (unsigned long long)sum64(text, *len));
	if (fclose(f) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

static int write_all(int fd, const char *p, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int pr_file_write(const struct scsi_lu *lu, const char *text, size_t len)
{
	char path[4096], tmp[4096];
	int fd, ret, dir;

	(void)mkdir(state_dir, 0700); /* there already, or open() says what is wrong */
	file_path(lu, "", path, sizeof(path));
	file_path(lu, ".new", tmp, sizeof(tmp));
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	ret = write_all(fd, text, len);
	if (ret == 0 && fsync(fd) < 0)
		ret = -errno;
	if (close(fd) < 0 && ret == 0)
		ret = -errno;
	if (ret == 0 && rename(tmp, path) < 0)
		ret = -errno;
	if (ret < 0) {
		unlink(tmp);
		return ret;
	}
	dir = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	if (fsync(dir) < 0)
		ret = -errno;
	close(dir);
	return ret;
}

/* ---- loading ------------------------------------------------------------------------------------------- */

#define FILE_MAX MiB(4)

static char *read_file(const char *path, size_t *len)
{
	struct stat st;
	char *text = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size <= FILE_MAX) {
		*len = (size_t)st.st_size;
		text = malloc(*len + 1);
		if (text && read(fd, text, *len) == (ssize_t)*len) {
			text[*len] = 0;
		} else {
			free(text);
			text = NULL;
		}
	}
	close(fd);
	return text;
}

static void drop_all(struct scsi_pr *pr)
{
	while (!list_empty(&pr->regs)) {
		struct pr_reg *reg = list_first(&pr->regs, struct pr_reg, link);

		list_del(&reg->link);
		free(reg);
	}
	pr->nregs = 0;
	pr->type = PR_NONE;
	pr->holder = NULL;
	pr->generation = 0;
	pr->aptpl = false;
}

static bool parse(struct scsi_lu *lu, char *text, size_t len)
{
	struct scsi_pr *pr = lu->pr;
	char *line, *save = NULL, *sum = len > 21 ? text + len - 21 : NULL, unit[300], seen[300];
	unsigned long long want, key;
	unsigned type = 0, rtpi, device, all, generation;
	int holder = -1, index = 0, at;
	struct pr_reg *reg;

	/* The checksum first: it covers all that is believed. "sum " 16 digits newline */
	if (!sum || sscanf(sum, "sum %16llx\n", &want) != 1 || want != sum64(text, (size_t)(sum - text)))
		return false;
	*sum = 0;
	snprintf(unit, sizeof(unit), "%.255s %u", lu->target->name, lu->lun);
	line = strtok_r(text, "\n", &save);
	if (!line || strcmp(line, "tgtd-reservations 1") != 0)
		return false;
	while ((line = strtok_r(NULL, "\n", &save)) != NULL) {
		at = 0;
		if (sscanf(line, "unit %299[^\n]", seen) == 1) {
			if (strcmp(seen, unit) != 0)
				return false;
		} else if (sscanf(line, "generation %u", &generation) == 1) {
			pr->generation = generation;
		} else if (sscanf(line, "reservation %u %d", &type, &holder) == 2) {
			pr->aptpl = true;
			if (type > PR_EXCLUSIVE_ACCESS_AR)
				return false;
		} else if (sscanf(line, "registration %16llx %u %u %u %n", &key, &rtpi, &device, &all, &at) == 4 && at > 0 &&
			   line[at]) {
			reg = strlen(line + at) < SCSI_PORT_NAME_MAX && rtpi <= UINT16_MAX ?
				pr_add(pr, line + at, (uint16_t)rtpi, key) : NULL;
			if (!reg)
				return false;
			reg->device = device;
			reg->all_ports = all;
			if (index++ == holder)
				pr->holder = reg;
		} else {
			return false;
		}
	}
	pr->type = (uint8_t)type;
	return !type || (pr_all_registrants(pr->type) ? pr->nregs > 0 : pr->holder != NULL);
}

void pr_file_load(struct scsi_lu *lu)
{
	char path[4096], *text;
	size_t len = 0;

	if (!state_dir)
		return;
	file_path(lu, "", path, sizeof(path));
	text = read_file(path, &len);
	if (!text)
		return;
	if (!parse(lu, text, len)) {
		log_error("scsi: %s is damaged; target %u LUN %u starts without its reservations", path,
			  lu->target->tid, lu->lun);
		drop_all(lu->pr);
	} else if (lu->pr->nregs) {
		log_notice("scsi: target %u LUN %u has its %u registrations back", lu->target->tid, lu->lun,
			   lu->pr->nregs);
	}
	free(text);
}
