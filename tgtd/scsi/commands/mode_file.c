/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Mode pages that MODE SELECT with SP = 1 saved (SPC-4 6.13, 7.5): one text file a logical unit
 * (state_file.h), a line a page, as MODE SENSE shows it.
 *
 *     tgtd-mode 1
 *     unit iqn.2026-11.org.example:disk 1
 *     page 08 08121000ffff0000ffffffff800000000000000000
 *     sum 91b0c2...
 */
#include <stdlib.h>
#include "tgtd/scsi/commands/commands.h"
#include "tgtd/scsi/state_file.h"

#define KIND "mode"

static const uint8_t saved_pages[] = { 0x08, 0x0a, 0x1c };

int scsi_mode_write(const struct scsi_lu *lu, const struct scsi_mode *m)
{
	char *text;
	uint8_t p[64];
	size_t len, n;
	int ret;
	FILE *f = state_file_begin(lu, KIND, &text, &len);

	if (!f)
		return -ENOMEM;
	for (unsigned i = 0; i < ARRAY_SIZE(saved_pages); i++) {
		n = scsi_mode_page(lu, m, saved_pages[i], p);
		if (!n)
			continue;
		fprintf(f, "page %02x ", saved_pages[i]);
		for (size_t b = 0; b < n; b++)
			fprintf(f, "%02x", p[b]);
		fputc('\n', f);
	}
	if (!state_file_seal(f, &text, &len))
		return -ENOMEM;
	ret = state_file_write(lu, KIND, text, len);
	free(text);
	return ret;
}

/* "page 08 0812..." into @m; only what can be changed is believed. */
static bool mode_file_take_line(const struct scsi_lu *lu, struct scsi_mode *m, const char *line)
{
	unsigned code, byte;
	uint8_t p[64], now[64];
	size_t n = 0, want;
	int at = 0;

	if (sscanf(line, "page %2x %n", &code, &at) != 1 || !at)
		return false;
	for (line += at; line[0] && line[1] && n < sizeof(p); line += 2) {
		if (sscanf(line, "%2x", &byte) != 1)
			return false;
		p[n++] = (uint8_t)byte;
	}
	want = scsi_mode_page(lu, m, (uint8_t)code, now);
	if (*line || !want || want != n || p[0] != now[0] || p[1] != now[1])
		return false;
	scsi_mode_apply(m, (uint8_t)code, 0, p);
	return true;
}

void scsi_mode_load(struct scsi_lu *lu)
{
	struct scsi_mode m = lu->mode_saved;
	char path[4096], *text, *line, *save = NULL, *lines;
	bool damaged;
	int err;

	lines = state_file_read(lu, KIND, &text, &err);
	damaged = err == -EBADMSG;
	for (line = lines ? strtok_r(lines, "\n", &save) : NULL; line && !damaged;
	     line = strtok_r(NULL, "\n", &save))
		damaged = !mode_file_take_line(lu, &m, line);
	if (err && !damaged) {
		state_file_path(lu, KIND, "", path, sizeof(path));
		log_error("scsi: %s: %s; target %u LUN %u starts with its configured mode pages",
			  path, strerror(-err), lu->target->tid, lu->lun);
	} else if (damaged) {
		state_file_path(lu, KIND, "", path, sizeof(path));
		log_error(
			"scsi: %s is damaged; target %u LUN %u starts with its configured mode pages",
			path, lu->target->tid, lu->lun);
	} else if (lines) {
		lu->mode_saved = m;
	}
	free(text);
}
