/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reservations that survive power loss (APTPL): one text file a logical unit (state_file.h).
 *
 *     tgtd-reservations 1
 *     unit iqn.2026-11.org.example:disk 1
 *     generation 7
 *     reservation 5 0                     (type, index of the holder among the registrations or -1)
 *     registration 00000000deadbeef 1 0 0 iqn.1993-08.org.debian:01:abc,i,0x00023d000001
 *     sum 91b0c2...                       (key, relative port, device, all ports, initiator)
 */
#include <stdlib.h>
#include "tgtd/scsi/commands/pr.h"
#include "tgtd/scsi/state_file.h"

#define KIND "reservations"

bool pr_file_possible(void)
{
	return state_file_possible();
}

static void put_lines(const struct scsi_pr *pr, FILE *f)
{
	const struct pr_reg *reg;
	int index = 0, holder = -1;

	list_for_each(reg, &pr->regs, link) {
		if (reg == pr->holder)
			holder = index;
		index++;
	}
	fprintf(f, "reservation %u %d\n", pr->type, holder);
	list_for_each(reg, &pr->regs, link)
		fprintf(f, "registration %016llx %u %d %d %s\n", (unsigned long long)reg->key,
			reg->rtpi, reg->device, reg->all_ports, reg->initiator);
}

char *pr_file_text(const struct scsi_lu *lu, size_t *len)
{
	char *text = NULL;
	FILE *f = state_file_begin(lu, KIND, &text, len);

	if (!f)
		return NULL;
	fprintf(f, "generation %u\n", lu->pr->generation);
	/* Without APTPL the file says that nothing is to be brought back. */
	if (lu->pr->aptpl)
		put_lines(lu->pr, f);
	return state_file_seal(f, &text, len);
}

void scsi_pr_record_locked(const struct scsi_lu *lu, FILE *f)
{
	if (!lu->pr || lu->gateways) /* it goes; the group keeps them */
		return;
	fprintf(f, "generation %u\n", lu->pr->generation);
	put_lines(lu->pr, f);
	fprintf(f, "aptpl %d\n", lu->pr->aptpl);
}

int pr_file_write(const struct scsi_lu *lu, const char *text, size_t len)
{
	return state_file_write(lu, KIND, text, len);
}

/* ---- loading --------------------------------------------------------------------------------- */

static bool pr_file_parse(struct scsi_lu *lu, char *text)
{
	struct scsi_pr *pr = lu->pr;
	char *line, *save = NULL;
	unsigned long long key;
	unsigned type = 0, rtpi, device, all, generation, aptpl;
	int holder = -1, index = 0, at;
	struct pr_reg *reg;

	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		at = 0;
		if (sscanf(line, "generation %u", &generation) == 1) {
			pr->generation = generation;
		} else if (sscanf(line, "reservation %u %d", &type, &holder) == 2) {
			pr->aptpl = true;
			if (!pr_type_known(type))
				return false;
		} else if (sscanf(line, "aptpl %u", &aptpl) == 1) {
			pr->aptpl = aptpl;
		} else if (sscanf(line, "registration %16llx %u %u %u %n", &key, &rtpi, &device,
				  &all, &at) == 4 &&
			   at > 0 && line[at]) {
			reg = strlen(line + at) < SCSI_PORT_NAME_MAX && rtpi <= UINT16_MAX ?
				pr_add(pr, line + at, (uint16_t)rtpi, key, NULL) : NULL;
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
	if (type && (pr_all_registrants((uint8_t)type) ? !pr->nregs : !pr->holder))
		return false; /* a reservation that nobody has */
	pr->type = (uint8_t)type;
	return true;
}

bool scsi_pr_restore_locked(struct scsi_lu *lu, char *lines)
{
	const bool ok = lu->gateways || (lu->pr && pr_file_parse(lu, lines));

	if (!ok) {
		lu->conf.online = false;
		log_error("scsi: target %u LUN %u: its reservations are not understood, which may "
			  "have kept others out: it is offline until online=1 is set",
			  lu->target->tid, lu->lun);
		return false;
	}
	if (!lu->gateways && lu->pr->nregs)
		log_notice("scsi: target %u LUN %u has its %u registrations back", lu->target->tid,
			   lu->lun, lu->pr->nregs);
	return true;
}

int pr_file_load(struct scsi_lu *lu)
{
	char path[4096], *text, *lines;
	int err;

	/* The journal has what the file has, or what came after it. */
	if (scsi_lu_recorded(lu))
		return 0;

	lines = state_file_read(lu, KIND, &text, &err);
	if (lines && !pr_file_parse(lu, lines))
		err = -EBADMSG; /* whole, but not what this program writes */
	free(text);
	if (err) {
		state_file_path(lu, KIND, "", path, sizeof(path));
		log_error(
			"scsi: %s: %s; target %u LUN %u is refused: others may hold reservations. "
			"It is served again when the file is put right, or without reservations "
			"when it is removed",
			path, err == -EBADMSG ? "damaged" : strerror(-err), lu->target->tid,
			lu->lun);
	} else if (lu->pr->nregs) {
		log_notice("scsi: target %u LUN %u has its %u registrations back", lu->target->tid,
			   lu->lun, lu->pr->nregs);
	}
	return err;
}
