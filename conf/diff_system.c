/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What differs in the daemon itself: its settings, its portals, its drivers.
 *
 * What a file does not speak of is left alone where tgt's own tools set it without a file: portals,
 * the state, iSNS, debugging. Resource agents do so. What is only ours goes back to how the daemon
 * began.
 */
#include <stdlib.h>
#include <strings.h>

#include "conf/diff_int.h"
#include "conf/portal.h"
#include "events/bug.h"

/* @back: what a file does not say any more, goes back. */
static const struct setting {
	const char *key, *begins; /* the daemon begins so, and does not tell it */
	bool back;
	enum adm_mode mode;
	const char *name; /* of the request */
} settings[] = {
	{ "iSNSServerIP", NULL, false, ADM_SYSTEM, "iSNSServerIP" },
	{ "iSNSServerPort", "3205", false, ADM_SYSTEM, "iSNSServerPort" },
	{ "iSNSAccessControl", "Off", false, ADM_SYSTEM, "iSNSAccessControl" },
	{ "weak_secrets", "warn", true, ADM_SYSTEM, "weak_secrets" },
	{ "default-mask", "all", true, ADM_SYSTEM, "default-mask" },
	{ "debug", NULL, false, ADM_SYSTEM, "debug" },
	{ "latency_initiators", "off", true, ADM_SYSTEM, "latency_initiators" },
	{ "cache-affinity", "", true, ADM_CACHE, "affinity" },
	{ "cache-threshold", "", true, ADM_CACHE, "threshold" },
	{ "cache-size", "", true, ADM_CACHE, "size" },
	/* switched once everything about it is said, in whatever order the file says it */
	{ "iSNS", "Off", false, ADM_SYSTEM, "iSNS" },
	{ "state", "ready", false, ADM_SYSTEM, "State" },
};

/* A word of conf/words.c that nobody here knows would be taken and do nothing. */
static void check_settings(const struct conf *want)
{
	struct conf_kv *kv;

	list_for_each(kv, &want->system, link) {
		bool known = !strcmp(kv->key, "stopped-driver");

		for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
			known |= !strcmp(settings[i].key, kv->key);
		BUG_ON(!known);
	}
}

static const char *setting_now(const struct planner *p, const struct setting *s)
{
	const char *now = conf_get(&p->have->system, s->key);

	return now ? now : s->begins;
}

static bool setting_is(const struct planner *p, const struct setting *s, const char *value)
{
	const char *now = setting_now(p, s);

	if (!strcmp(s->key, "iSNSServerPort"))
		return strtoul(now, NULL, 10) == strtoul(value, NULL, 10);
	return now && !strcasecmp(now, value);
}

static struct adm_req *system_request(struct planner *p, enum adm_mode mode, enum adm_op op)
{
	struct adm_req *req = &diff_add(p)->req;

	ASSERT(!p->target && !p->tid);
	adm_req_init(req, mode, op);
	return req;
}

static void setting_step(struct planner *p, const struct setting *s, const struct conf *want)
{
	const char *value = conf_get(&want->system, s->key);
	struct adm_req *req;
	struct conf_kv *kv;

	if (!value && (!s->back || !p->scope->update))
		return;
	if (!value)
		value = s->begins;
	if (setting_is(p, s, value))
		return;
	list_for_each(kv, &want->system, link)
		if (!strcmp(kv->key, s->key))
			p->pos = kv->pos;
	req = system_request(p, s->mode, ADM_UPDATE);
	p->pos = (struct conf_pos){ 0 };
	req->text[ADM_T_NAME] = s->name;
	req->text[ADM_T_VALUE] = value;
}

/* Offline comes first of all, ready last of all. */
static bool is_late(const struct setting *s, const struct conf *want)
{
	const char *value = conf_get(&want->system, s->key);

	return !strcmp(s->key, "state") && value && !strcmp(value, "ready");
}

/* ---- portals --------------------------------------------------------------------------------- */

static bool has_portal(const struct conf *c, const char *name)
{
	return conf_get(&c->portals, name) != NULL;
}

static void portal_step(struct planner *p, const struct conf_kv *portal, enum adm_op op)
{
	p->pos = portal->pos;
	system_request(p, ADM_PORTAL, op)->text[ADM_T_PARAMS] =
		diff_format(p->c, "portal=%s", portal->key);
	p->pos = (struct conf_pos){ 0 };
}

/* By a portal that goes. */
static bool port_is_taken(const struct planner *p, const struct conf *want, const char *name)
{
	struct conf_kv *kv;

	list_for_each(kv, &p->have->portals, link)
		if (!has_portal(want, kv->key) && conf_portal_clash(kv->key, name))
			return true;
	return false;
}

/* New ones come before others go, unless they need their ports. */
static void diff_portals(struct planner *p, const struct conf *want)
{
	struct conf_kv *kv;

	if (list_empty(&want->portals) && !want->no_portal)
		return;
	p->part = diff_part(p, CONF_PART_CHANGE, 0);
	p->part->what = "portals";
	list_for_each(kv, &want->portals, link)
		if (!has_portal(p->have, kv->key) && !port_is_taken(p, want, kv->key))
			portal_step(p, kv, ADM_NEW);
	list_for_each(kv, &p->have->portals, link)
		if (!has_portal(want, kv->key))
			portal_step(p, kv, ADM_DELETE);
	list_for_each(kv, &want->portals, link)
		if (!has_portal(p->have, kv->key) && port_is_taken(p, want, kv->key))
			portal_step(p, kv, ADM_NEW);
	p->part = NULL;
}

/* ---- drivers --------------------------------------------------------------------------------- */

/* A driver that targets use cannot be stopped, and one that is stopped takes none: it starts before
 * they come, and stops when all is done. */
static void diff_driver(struct planner *p, const struct conf *want, enum adm_op op)
{
	const char *now = conf_get(&p->have->system, "stopped-driver");
	const char *then = conf_get(&want->system, "stopped-driver");

	if (diff_same(now, then) || (!then && !p->scope->update))
		return;
	if (op == ADM_START ? !now : !then)
		return;
	system_request(p, ADM_LLD, op)->text[ADM_T_LLD] = op == ADM_START ? now : then;
}

void diff_system_first(struct planner *p, const struct conf *want)
{
	check_settings(want);
	p->target = p->driver = NULL;
	p->tid = 0;
	diff_driver(p, want, ADM_START);
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		if (!strcmp(settings[i].key, "state") && !is_late(&settings[i], want))
			setting_step(p, &settings[i], want);
	diff_portals(p, want);
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		if (strcmp(settings[i].key, "state"))
			setting_step(p, &settings[i], want);
}

void diff_system_last(struct planner *p, const struct conf *want)
{
	p->target = p->driver = NULL;
	p->tid = 0;
	diff_driver(p, want, ADM_STOP);
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		if (is_late(&settings[i], want))
			setting_step(p, &settings[i], want);
}
