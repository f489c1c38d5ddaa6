/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What only the admin side knows about targets and LUs, found by number in constant time: with a
 * thousand LUs as with one.
 */
#include <stdlib.h>

#include "events/bug.h"
#include "tgtd/admin/admin_int.h"

#define BUCKETS 4096

struct adm_state adm;

const char *const driver_names[ADM_DRIVERS] = {
	[ADM_DRIVER_ISCSI] = "iscsi", [ADM_DRIVER_ISER] = "iser"
};

static struct {
	struct list target[BUCKETS], lu[BUCKETS];
} registry;

static uint32_t mix(uint64_t key)
{
	key *= 0x9e3779b97f4a7c15ull;
	return (uint32_t)(key >> 52);
}
_Static_assert(BUCKETS == 1 << 12, "mix() keeps 12 bits");

void registry_init(void)
{
	for (unsigned i = 0; i < BUCKETS; i++) {
		list_init(&registry.target[i]);
		list_init(&registry.lu[i]);
	}
}

struct adm_target *registry_target(uint32_t tid)
{
	struct adm_target *t;

	list_for_each(t, &registry.target[mix(tid)], hash)
		if (t->tid == tid)
			return t;
	return NULL;
}

struct adm_target *registry_target_name(const char *name)
{
	struct scsi_target *t = scsi_target_find_name(name);

	return t ? registry_target(scsi_target_tid(t)) : NULL;
}

static uint64_t lu_key(uint32_t tid, uint32_t lun)
{
	return (uint64_t)tid << 32 | lun;
}

struct adm_lu *registry_lu(const struct adm_target *t, uint32_t lun)
{
	struct adm_lu *lu;

	ASSERT(t && lun <= SCSI_MAX_LUN);
	list_for_each(lu, &registry.lu[mix(lu_key(t->tid, lun))], hash)
		if (lu->target == t && lu->lun == lun)
			return lu;
	return NULL;
}

void registry_add_target(struct adm_target *t)
{
	ASSERT_ON_LOOP(adm.conf.main);
	ASSERT(t->tid && !registry_target(t->tid));
	list_add_tail(&registry.target[mix(t->tid)], &t->hash);
}

void registry_add_lu(struct adm_lu *lu)
{
	ASSERT_ON_LOOP(adm.conf.main);
	ASSERT(lu->target && lu->lun && !registry_lu(lu->target, lu->lun));
	list_add_tail(&registry.lu[mix(lu_key(lu->target->tid, lu->lun))], &lu->hash);
	list_add_tail(&lu->target->luns, &lu->link);
}

/* ---- what was set by hand -------------------------------------------------------------------- */

struct adm_set *set_find(const struct list *sets, const char *key)
{
	struct adm_set *s;

	list_for_each(s, sets, link)
		if (!strcmp(s->key, key))
			return s;
	return NULL;
}

int set_put(struct list *sets, const char *key, const char *value, const char *original)
{
	struct adm_set *s = set_find(sets, key);
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	if (s) {
		free(s->value);
		s->value = copy;
		return 0;
	}
	s = calloc(1, sizeof(*s));
	if (s) {
		list_init(&s->link);
		s->value = copy;
		s->key = strdup(key);
		s->original = original ? strdup(original) : NULL;
	}
	if (!s || !s->key || (original && !s->original)) {
		if (s)
			set_drop(s);
		else
			free(copy);
		return -ENOMEM;
	}
	list_add_tail(sets, &s->link);
	return 0;
}

void set_drop(struct adm_set *s)
{
	if (!s)
		return;
	list_del(&s->link);
	free(s->key);
	free(s->value);
	free(s->original);
	free(s);
}

void set_drop_all(struct list *sets)
{
	while (!list_empty(sets))
		set_drop(list_first(sets, struct adm_set, link));
}
