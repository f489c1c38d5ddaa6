/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Whom an iSNS server lets log in to each target: the initiators that share
 * a discovery domain with it. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "events/log.h"
#include "tgtd/admin/admin_int.h"
#include "tgtd/isns/isns.h"
#include "tgtd/isns/isns_int.h"
#include "tgtd/iscsi/iscsi.h"

#define NAMES_MAX 65536

struct isns_access {
	unsigned n, room;
	bool failed;
	char **names; /* sorted */
};

static void access_free(struct isns_access *a)
{
	if (!a)
		return;
	for (unsigned i = 0; i < a->n; i++)
		free(a->names[i]);
	free(a->names);
	free(a);
}

/* iSCSI names are kept in lower case (RFC 3722), by servers whatever they were told. */
static int isns_by_name(const void *a, const void *b)
{
	return strcasecmp(*(char *const *)a, *(char *const *)b);
}

static void take_name(const struct isns_attr *attr, void *arg)
{
	const char *name = attr->tag == ISNS_TAG_ISCSI_NAME ? isns_attr_text(attr) : NULL;
	struct isns_access *a = arg;

	if (!name || !*name)
		return;
	if (a->n == a->room) {
		unsigned room = a->room ? a->room * 2 : 16;
		char **more = room <= NAMES_MAX ? realloc(a->names, room * sizeof(*more)) : NULL;

		if (!more) {
			a->failed = true;
			return;
		}
		a->names = more;
		a->room = room;
	}
	a->names[a->n] = strdup(name);
	if (a->names[a->n])
		a->n++;
	else
		a->failed = true;
}

void isns_access_take(struct adm_target *t, const struct isns_in *answer)
{
	struct isns_access *a = calloc(1, sizeof(*a));

	/* whoever is missing is refused: what was there before is no safer guess */
	if (!a || (answer && isns_answer_each(answer, take_name, a)) || a->failed)
		log_ratelimited(LOG_LVL_WARN,
				"isns: the list of who may log in to %s is not complete",
				scsi_target_name(t->scsi));
	if (a && a->n)
		qsort(a->names, a->n, sizeof(*a->names), isns_by_name);
	access_free(t->isns);
	t->isns = a;
}

void isns_access_forget(struct adm_target *t)
{
	access_free(t->isns);
	t->isns = NULL;
}

static bool allows(struct scsi_target *scsi, const char *iqn)
{
	const struct adm_target *t = registry_target(scsi_target_tid(scsi));
	const struct isns_access *a = t ? t->isns : NULL;

	return a && a->n && bsearch(&iqn, a->names, a->n, sizeof(*a->names), isns_by_name);
}

void isns_access_on(bool on)
{
	iscsi_acl_also(on ? allows : NULL);
}
