/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Initiators that the administrator knows by name, at each target: by an access rule, or by an
 * account that is tied to the name. Room for one connection is kept for each of them that has no
 * session there, however many strangers come (room.c). Main loop only.
 */
#include <stdlib.h>

#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/itarget.h"

struct known {
	struct list link; /* itarget.known */
	unsigned reasons; /* rules and ties that name it */
	unsigned sessions;
	char name[];
};

static struct known *find_known(struct itarget *it, const char *name)
{
	struct known *k;

	list_for_each(k, &it->known, link)
		if (iscsi_same_name(k->name, name))
			return k;
	return NULL;
}

static unsigned sessions_of(const struct scsi_target *t, const char *name)
{
	const struct iscsi_session *s;
	unsigned n = 0;

	if (!iscsi_core.started)
		return 0; /* unit tests of access rules alone */
	list_for_each(s, &iscsi_core.sessions, link)
		n += s->target == t && iscsi_same_name(s->initiator, name);
	return n;
}

void known_add(struct itarget *it, const char *name)
{
	size_t len = strlen(name);
	struct known *k = find_known(it, name);

	if (k) {
		k->reasons++;
		return;
	}
	k = malloc(sizeof(*k) + len + 1);
	if (!k)
		return; /* no room is kept for it */
	k->reasons = 1;
	k->sessions = sessions_of(it->target, name);
	memcpy(k->name, name, len + 1);
	list_init(&k->link);
	list_add_tail(&it->known, &k->link);
	iscsi_core.nabsent += !k->sessions;
}

static void forget_known(struct known *k)
{
	iscsi_core.nabsent -= !k->sessions;
	list_del(&k->link);
	free(k);
}

void known_drop(struct itarget *it, const char *name)
{
	struct known *k = find_known(it, name);

	if (k && --k->reasons == 0)
		forget_known(k);
}

void known_init(struct itarget *it)
{
	list_init(&it->known);
}

void known_fini(struct itarget *it)
{
	while (!list_empty(&it->known))
		forget_known(list_first(&it->known, struct known, link));
}

void iscsi_known_session(const struct scsi_target *t, const char *name, bool begins)
{
	struct itarget *it = t ? itarget_find(t) : NULL;
	struct known *k = it ? find_known(it, name) : NULL;

	if (!k)
		return;
	ASSERT(begins || k->sessions);
	iscsi_core.nabsent -= !k->sessions;
	if (begins)
		k->sessions++;
	else
		k->sessions--;
	iscsi_core.nabsent += !k->sessions;
}

bool iscsi_known_absent(const struct scsi_target *t, const char *name)
{
	struct itarget *it = t ? itarget_find(t) : NULL;
	const struct known *k = it ? find_known(it, name) : NULL;

	return k && !k->sessions;
}
