/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Registrations of persistent reservations, and the names they are made by (SPC-4 5.12, 7.6.4). */
#include <stdlib.h>
#include <strings.h>
#include "tgtd/scsi/commands/pr.h"

/* ---- registrations --------------------------------------------------------------------------- */

bool pr_matches(const struct pr_reg *reg, const char *initiator, uint16_t rtpi)
{
	size_t n = strlen(reg->initiator);

	if (!reg->all_ports && reg->rtpi != rtpi)
		return false;
	if (reg->device) /* "iqn" against "iqn,i,0x..." */
		return strncasecmp(reg->initiator, initiator, n) == 0 &&
		       (initiator[n] == ',' || initiator[n] == 0);
	return strcasecmp(reg->initiator, initiator) == 0;
}

struct pr_reg *pr_find(const struct scsi_pr *pr, const char *initiator, uint16_t rtpi)
{
	struct pr_reg *reg;

	list_for_each(reg, &pr->regs, link)
		if (pr_matches(reg, initiator, rtpi))
			return reg;
	return NULL;
}

struct pr_reg *pr_reg_of(const struct scsi_itl *itl)
{
	return itl->reg;
}

struct pr_reg *pr_add(struct scsi_pr *pr, const char *initiator, uint16_t rtpi, uint64_t key)
{
	struct pr_reg *reg = pr->nregs < PR_REGISTRATIONS_MAX ? calloc(1, sizeof(*reg)) : NULL;

	if (!reg)
		return NULL;
	memcpy(reg->initiator, initiator, MIN(strlen(initiator), sizeof(reg->initiator) - 1));
	reg->rtpi = rtpi;
	reg->key = key;
	list_add_tail(&pr->regs, &reg->link);
	pr->nregs++;
	return reg;
}

/* Connects I_T_L nexuses that are here with their registrations. */
void pr_bind_all(struct scsi_lu *lu)
{
	struct scsi_itl *itl;

	list_for_each(itl, &lu->itls, link)
		if (!itl->reg)
			itl->reg = pr_find(lu->pr, itl->nexus->initiator, itl->nexus->rtpi);
}

void pr_ua_registrants(struct scsi_lu *lu, const struct pr_reg *except, uint16_t asc)
{
	struct scsi_itl *itl;

	list_for_each(itl, &lu->itls, link)
		if (itl->reg && itl->reg != except)
			scsi_ua_add_locked(itl, asc);
}

/* Takes a registration away. @ua: told to its nexuses (0: nothing). */
void pr_remove(struct scsi_lu *lu, struct pr_reg *reg, uint16_t ua, bool abort)
{
	struct scsi_pr *pr = lu->pr;
	struct scsi_itl *itl;

	list_for_each(itl, &lu->itls, link) {
		if (itl->reg != reg)
			continue;
		itl->reg = NULL;
		itl->preempted |= abort;
		if (ua)
			scsi_ua_add_locked(itl, ua);
	}
	if (pr->holder == reg)
		pr->holder = NULL;
	list_del(&reg->link);
	pr->nregs--;
	free(reg);
}

/* ---- TransportID ----------------------------------------------------------------------------- */

size_t pr_transport_id_parse(const uint8_t *p, size_t len, char *initiator, bool *device)
{
	size_t n;

	if (len < 24 || (p[0] & 0x0f) != 0x05 || (p[0] & 0x30) || (p[0] >> 6) > 1)
		return 0;
	n = get_be16(p + 2);
	if (n < 20 || n % 4 || n > len - 4 || n > SCSI_PORT_NAME_MAX - 4)
		return 0;
	if (!memchr(p + 4, 0, n) || p[4] == 0)
		return 0;
	memset(initiator, 0, SCSI_PORT_NAME_MAX);
	memcpy(initiator, p + 4, strlen((const char *)p + 4));
	for (const char *c = initiator; *c; c++) /* one word of one line of the state file */
		if ((unsigned char)*c <= ' ' || *c == 0x7f)
			return 0;
	*device = p[0] >> 6 == 0;
	if (*device ? strstr(initiator, ",i,") != NULL : strstr(initiator, ",i,0x") == NULL)
		return 0;
	return 4 + n;
}

size_t pr_transport_id_put(uint8_t *p, const struct pr_reg *reg)
{
	size_t n = strlen(reg->initiator) + 1;

	n = MAX(ALIGN_UP(n, (size_t)4), (size_t)20);
	memset(p, 0, 4 + n);
	p[0] = reg->device ? 0x05 : 0x45;
	put_be16(p + 2, (uint16_t)n);
	memcpy(p + 4, reg->initiator, strlen(reg->initiator));
	return 4 + n;
}
