/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Registrations of persistent reservations, and the names they are made by (SPC-4 5.12, 7.6.4). */
#include <ctype.h>
#include <stdlib.h>
#include <strings.h>
#include "events/hash.h"
#include "events/bytes.h"
#include "tgtd/scsi/commands/pr_rules.h"

/* ---- registrations --------------------------------------------------------------------------- */

void pr_init(struct scsi_pr *pr)
{
	memset(pr, 0, sizeof(*pr));
	list_init(&pr->regs);
	list_init(&pr->gone);
	for (unsigned i = 0; i < PR_BUCKETS; i++)
		list_init(&pr->by_device[i]);
}

/* Of the device's name, with which that of each of its ports begins. It has no comma (login). */
static uint64_t device_hash(const char *name)
{
	uint64_t h = FNV1A_INIT;

	for (; *name && *name != ','; name++) {
		const uint8_t c = (uint8_t)tolower((unsigned char)*name);

		h = fnv1a(h, &c, 1);
	}
	return h;
}

/* One TransportID list names hundreds: they are not each looked for among all that there are. */
static unsigned pr_bucket_of(const char *name)
{
	return (unsigned)(device_hash(name) % PR_BUCKETS);
}

/* "iqn" against "iqn" or "iqn,i,0x..." */
static bool of_device(const char *iqn, const char *initiator)
{
	const size_t n = strlen(iqn);

	return strncasecmp(iqn, initiator, n) == 0 && (initiator[n] == ',' || initiator[n] == 0);
}

bool pr_matches(const struct pr_reg *reg, const char *initiator, uint16_t rtpi)
{
	if (!reg->all_ports && reg->rtpi != rtpi)
		return false;
	if (reg->device)
		return of_device(reg->initiator, initiator);
	return strcasecmp(reg->initiator, initiator) == 0;
}

struct pr_reg *pr_find(const struct scsi_pr *pr, const char *initiator, uint16_t rtpi)
{
	struct pr_reg *reg;

	list_for_each(reg, &pr->by_device[pr_bucket_of(initiator)], bucket)
		if (pr_matches(reg, initiator, rtpi))
			return reg;
	return NULL;
}

bool pr_made_by(const struct pr_reg *reg, const char *iqn)
{
	return reg->maker_hash == device_hash(iqn) && of_device(iqn, reg->maker ?: reg->initiator);
}

struct pr_reg *pr_add(struct scsi_pr *pr, const char *initiator, uint16_t rtpi, uint64_t key,
		      const char *maker)
{
	const bool room = pr->nregs < PR_REGISTRATIONS_MAX && pr->last_id < PR_ID_MAX;
	struct pr_reg *reg = room ? calloc(1, sizeof(*reg)) : NULL;

	if (!reg)
		return NULL;
	reg->maker_hash = device_hash(maker ?: initiator);
	reg->maker = maker ? strdup(maker) : NULL;
	if (maker && !reg->maker) {
		free(reg);
		return NULL;
	}
	memcpy(reg->initiator, initiator, MIN(strlen(initiator), sizeof(reg->initiator) - 1));
	reg->rtpi = rtpi;
	reg->key = key;
	reg->id = ++pr->last_id;
	list_add_tail(&pr->regs, &reg->link);
	list_add_tail(&pr->by_device[pr_bucket_of(initiator)], &reg->bucket);
	pr->nregs++;
	return reg;
}

void pr_remove(struct scsi_pr *pr, struct pr_reg *reg, uint16_t ua, bool abort)
{
	if (pr->holder == reg)
		pr->holder = NULL;
	list_del(&reg->link);
	list_del(&reg->bucket);
	pr->nregs--;
	reg->is_gone = true;
	reg->ua = ua;
	reg->abort = abort;
	list_add_tail(&pr->gone, &reg->link);
}

void pr_forget_gone(struct scsi_pr *pr)
{
	while (!list_empty(&pr->gone)) {
		struct pr_reg *reg = list_first(&pr->gone, struct pr_reg, link);

		list_del(&reg->link);
		free(reg->maker);
		free(reg);
	}
}

void pr_fini(struct scsi_pr *pr)
{
	while (!list_empty(&pr->regs))
		pr_remove(pr, list_first(&pr->regs, struct pr_reg, link), 0, false);
	pr_forget_gone(pr);
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
