/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * LUN masking: an initiator with a mask sees LUN 0 (the controller) and the LUNs of its mask, in
 * every target without one all LUNs. The device server asks from its own threads, so a mask is
 * guarded by a lock; it is a leaf, and never taken on the path of a command.
 */
#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <strings.h>

#include "tgtd/admin/admin_int.h"

#define MASK_WORDS ((SCSI_MAX_LUN + 64) / 64)

struct mask {
	struct list link;
	char *iqn, *text;
	uint64_t lun[MASK_WORDS];
};

static pthread_mutex_t masks_lock = PTHREAD_MUTEX_INITIALIZER; /* adm_target.masks of all targets; a leaf */

/* "1,3-5": sets bits in @set (NULL: only checks). */
static int parse(const char *luns, uint64_t *set)
{
	const char *p = luns;

	do {
		char *end;

		if (!isdigit((unsigned char)*p))
			return -EINVAL;
		unsigned long first = strtoul(p, &end, 10), last = first;

		if (*end == '-') {
			p = end + 1;
			if (!isdigit((unsigned char)*p))
				return -EINVAL;
			last = strtoul(p, &end, 10);
		}
		if ((*end && *end != ',') || first > last || last > SCSI_MAX_LUN)
			return -EINVAL;
		for (unsigned long lun = first; set && lun <= last; lun++)
			set[lun / 64] |= 1ull << lun % 64;
		p = *end ? end + 1 : NULL;
	} while (p);
	return 0;
}

int mask_check(const char *luns)
{
	return parse(luns, NULL);
}

static struct mask *find(const struct adm_target *t, const char *iqn)
{
	struct mask *m;

	list_for_each(m, &t->masks, link)
		if (!strcasecmp(m->iqn, iqn))
			return m;
	return NULL;
}

static bool visible(struct scsi_target *scsi, uint32_t lun, const char *iqn, const char *address, void *arg)
{
	struct adm_target *t = arg;

	pthread_mutex_lock(&masks_lock);
	struct mask *m = find(t, iqn);
	bool yes = !m || !lun || (lun <= SCSI_MAX_LUN && (m->lun[lun / 64] >> lun % 64 & 1));

	pthread_mutex_unlock(&masks_lock);
	return yes;
}

static void mask_free(struct mask *m)
{
	free(m->iqn);
	free(m->text);
	free(m);
}

int mask_set(struct adm_target *t, const char *iqn, const char *luns)
{
	struct mask *m = NULL, *old;

	if (luns && strcmp(luns, "all")) {
		m = calloc(1, sizeof(*m));
		if (!m)
			return -ENOMEM;
		m->iqn = strdup(iqn);
		m->text = strdup(luns);
		list_init(&m->link);
		int err = !m->iqn || !m->text ? -ENOMEM : parse(luns, m->lun);

		if (err) {
			mask_free(m);
			return err;
		}
	}
	pthread_mutex_lock(&masks_lock);
	old = find(t, iqn);
	if (old)
		list_del(&old->link);
	if (m)
		list_add_tail(&t->masks, &m->link);
	bool any = !list_empty(&t->masks);

	pthread_mutex_unlock(&masks_lock);
	if (old)
		mask_free(old);
	if (old || m)
		scsi_target_set_mask(t->scsi, any ? visible : NULL, t);
	return 0;
}

const char *mask_get(const struct adm_target *t, const char *iqn)
{
	struct mask *m = find(t, iqn);

	return m ? m->text : NULL;
}

void mask_free_all(struct adm_target *t)
{
	struct mask *m, *tmp;

	list_for_each_safe(m, tmp, &t->masks, link) {
		list_del(&m->link);
		mask_free(m);
	}
}
