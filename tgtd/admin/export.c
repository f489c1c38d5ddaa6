/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The daemon's configuration as data and as targets.conf text: what tgt-admin compares a file with,
 * and what `tgt-admin --dump` prints. Only what somebody set is said; defaults are left out.
 */
#include <stdio.h>
#include <stdlib.h>

#include "conf/diff.h"
#include "events/bug.h"
#include "tgtd/admin/json.h"
#include "tgtd/cluster/live/group.h"
#include "tgtd/isns/isns.h"
#include "tgtd/iscsi/iscsi.h"

struct walk {
	struct conf *c;
	struct conf_target *t;
	const struct adm_target *from;
	struct conf_user *user; /* whose ties are added */
};

static void add_tie(const char *iqn, void *arg)
{
	struct walk *w = arg;

	conf_add_kv(w->c, &w->user->names, iqn, "");
}

static void add_user(const char *user, bool outgoing, void *arg)
{
	struct walk *w = arg;
	struct conf_user *u =
		conf_add_user(w->c, w->t ? &w->t->users : &w->c->users, user, NULL, outgoing);
	struct walk names = { .c = w->c, .user = u };
	const char *file = iscsi_account_file(user);

	u->file = file ? conf_strdup(w->c, file) : NULL;

	if (w->t && !outgoing)
		iscsi_account_each_tie(w->from->scsi, user, add_tie, &names);
}

static void add_address(const char *rule, void *arg)
{
	struct walk *w = arg;

	conf_add_rule(w->c, w->t, rule, false);
}

static void add_name(const char *rule, void *arg)
{
	struct walk *w = arg;
	struct conf_rule *r = conf_add_rule(w->c, w->t, rule, true);
	const struct adm_set *mask = set_find(&w->from->masks, rule);

	if (mask)
		r->luns = conf_strdup(w->c, mask->value);
}

static bool is_caching(const struct adm_set *set)
{
	char *end;

	return !strncmp(set->key, "mode_page ", 10) && strtoul(set->key + 10, &end, 0) == 8 &&
	       *end == ':' && !strtoul(end + 1, NULL, 0);
}

/* The last caching page that somebody gave it; NULL: none. */
static struct adm_set *export_caching_page(const struct adm_lu *lu)
{
	struct adm_set *set, *last = NULL;

	list_for_each(set, &lu->params, link)
		if (is_caching(set))
			last = set;
	return last;
}

static void add_lu(struct conf *c, struct conf_target *t, const struct adm_lu *lu)
{
	static const char *const flags[] = { NULL, "sync", "direct", "sync:direct" };
	struct conf_lu *to = conf_add_lu(c, t, lu->path ? lu->path : CONF_NONE);
	struct scsi_lu_info info;
	struct adm_set *set, *mirror;
	bool own_page;

	ASSERT(lu->scsi && lu->lun);
	to->lun = lu->lun;
	to->has_lun = true;
	if (strcmp(lu->bstype, "rdwr"))
		conf_add_kv(c, &to->options, "bs-type", lu->bstype);
	if (lu->bsopts)
		conf_add_kv(c, &to->options, "bsopts", lu->bsopts);
	if (lu->flags)
		conf_add_kv(c, &to->options, "bsoflags", flags[lu->flags & 3]);
	if (lu->blocksize)
		conf_add_kv(c, &to->options, "block-size", lu->blocksize);
	scsi_lu_get_info(lu->scsi, &info);
	mirror = set_find(&lu->params, "write_cache");
	set = export_caching_page(lu);
	own_page = set && strcmp(set->value, CONF_WRITE_CACHE_OFF) &&
		   strcmp(set->value, CONF_WRITE_CACHE_ON);
	/* off from the start is not said, unless somebody said it */
	if (!info.conf.write_cache &&
	    (lu->initial.write_cache || set || set_find(&lu->params, "write_cache")))
		conf_add_kv(c, &to->options, "write-cache", "off");
	else if (info.conf.write_cache && mirror && !strcmp(mirror->value, "mirror"))
		conf_add_kv(c, &to->options, "write-cache", "mirror");
	else if (own_page)
		conf_add_kv(c, &to->options, "write-cache", "on");
	/* made without a medium, which came later */
	if (lu->path && lu->initial.removable && !set_find(&lu->params, "removable"))
		conf_add_kv(c, &to->options, "removable", "1");
	/* mode pages first, as tgt-admin sets them: then the next daemon says the same */
	for (int pages = 1; pages >= 0; pages--) {
		list_for_each(set, &lu->params, link) {
			bool is_page = !strncmp(set->key, "mode_page ", 10);

			/* the parameter, and the caching page as tgt-admin sends it, are what
			 * write-cache says */
			if (is_page != pages || (is_caching(set) && !own_page) ||
			    !strcmp(set->key, "write_cache"))
				continue;
			conf_add_kv(c, &to->options, is_page ? "mode_page" : set->key, set->value);
		}
	}
}

/* All of it but its LUs. */
static struct conf_target *add_target(struct conf *c, struct adm_target *from)
{
	struct conf_target *t = conf_add_target(c, scsi_target_name(from->scsi));
	struct walk w = { .c = c, .t = t, .from = from };
	struct adm_set *set;

	t->tid = from->tid;
	t->driver = driver_names[from->driver];
	iscsi_account_each_bound(from->scsi, add_user, &w);
	iscsi_acl_each(from->scsi, ISCSI_ACL_ADDRESS, add_address, &w);
	iscsi_acl_each(from->scsi, ISCSI_ACL_NAME, add_name, &w);
	list_for_each(set, &from->limits, link)
		conf_add_kv(c, &t->limits, set->key, set->value);
	list_for_each(set, &from->keys, link)
		conf_add_kv(c, &t->keys, set->key, set->value);
	if (from->offline)
		conf_add_kv(c, &t->keys, "state", "offline");
	return t;
}

static const struct adm_lu *exported_lu(const struct adm_target *from, uint32_t lun)
{
	return registry_lu(from, lun);
}

static void add_lus(struct conf *c, struct conf_target *t, const struct adm_target *from)
{
	for (struct scsi_lu *lu = scsi_lu_next(from->scsi, NULL); lu;
	     lu = scsi_lu_next(from->scsi, lu)) {
		struct scsi_lu_info info;

		scsi_lu_get_info(lu, &info);
		const struct adm_lu *known = exported_lu(from, info.conf.lun);

		if (known)
			add_lu(c, t, known);
	}
}

static void add_system(struct conf *c)
{
	char port[16], key[32];
	struct adm_set *set;

	if (*adm.isns_server)
		conf_add_kv(c, &c->system, "iSNSServerIP", adm.isns_server);
	if (adm.isns_port != ISNS_PORT) {
		snprintf(port, sizeof(port), "%u", adm.isns_port);
		conf_add_kv(c, &c->system, "iSNSServerPort", port);
	}
	if (adm.offline)
		conf_add_kv(c, &c->system, "state", "offline");
	if (adm.debug)
		conf_add_kv(c, &c->system, "debug", adm.debug);
	if (lat_initiators())
		conf_add_kv(c, &c->system, "latency_initiators", "on");
	list_for_each(set, &adm.cache_keys, link) {
		snprintf(key, sizeof(key), "cache-%s", set->key);
		conf_add_kv(c, &c->system, key, set->value);
	}
	for (unsigned d = 0; d < ADM_DRIVERS; d++)
		if (adm.lld_stopped[d])
			conf_add_kv(c, &c->system, "stopped-driver", driver_names[d]);
	if (adm.isns_access_control)
		conf_add_kv(c, &c->system, "iSNSAccessControl", "On");
	if (adm.refuse_weak)
		conf_add_kv(c, &c->system, "weak_secrets", "refuse");
	if (!iscsi_default_mask())
		conf_add_kv(c, &c->system, "default-mask", "none");
	if (isns_is_on())
		conf_add_kv(c, &c->system, "iSNS", "On");
}

static void add_cluster(struct conf *c)
{
	struct group_view v;
	char text[GROUP_NAME_MAX + 8 + sizeof(v.conf->gateway[0].address_text)];

	if (!group_get(&v))
		return;
	c->cluster = conf_strdup(c, v.conf->name);
	for (unsigned i = 0; i < v.conf->n; i++) {
		const struct group_gateway *g = &v.conf->gateway[i];

		snprintf(text, sizeof(text), "%s %u%s%s", g->name, g->id,
			 *g->address_text ? " " : "", g->address_text);
		conf_add_kv(c, &c->cluster_lines, "gateway", text);
	}
	if (strcmp(v.conf->pool, "rbd") != 0)
		conf_add_kv(c, &c->cluster_lines, "pool", v.conf->pool);
	if (*v.conf->conf)
		conf_add_kv(c, &c->cluster_lines, "ceph-conf", v.conf->conf);
	if (strcmp(v.conf->user, "client.admin") != 0)
		conf_add_kv(c, &c->cluster_lines, "ceph-id", v.conf->user + 7);
	if (strcmp(v.conf->cluster, "ceph") != 0)
		conf_add_kv(c, &c->cluster_lines, "ceph-cluster", v.conf->cluster);
	if (!v.conf->mirrors)
		return;
	conf_add_kv(c, &c->cluster_lines, "mirror-secret-file", v.conf->secret_file);
	snprintf(text, sizeof(text), "%llum", (unsigned long long)(v.conf->memory >> 20));
	if (v.conf->memory % MiB(1))
		snprintf(text, sizeof(text), "%llu", (unsigned long long)v.conf->memory);
	if (v.conf->memory != GROUP_MEMORY)
		conf_add_kv(c, &c->cluster_lines, "mirror-memory", text);
	if (v.conf->transport != MIRROR_AUTO)
		conf_add_kv(c, &c->cluster_lines, "mirror-transport",
			    v.conf->transport == MIRROR_TCP ? "tcp" : "rdma");
}

static void export_portal(const char *name, void *arg)
{
	struct conf *c = arg;

	conf_add_kv(c, &c->portals, name, "");
}

static void export_loose(const char *user, void *arg)
{
	struct conf *c = arg;
	const char *file = iscsi_account_file(user);
	struct conf_user *u = conf_add_user(c, &c->loose, user, NULL, false);

	u->file = file ? conf_strdup(c, file) : NULL;
}

static void export_put(void *arg, const char *text)
{
	out_puts(arg, text);
}

void export_config(struct adm_call *call)
{
	struct conf c;
	struct walk w = { .c = &c };

	conf_init(&c);
	c.default_driver = driver_names[ADM_DRIVER_ISCSI];
	add_system(&c);
	add_cluster(&c);
	if (adm.portals_set) {
		iscsi_portal_each(export_portal, &c);
		c.no_portal = list_empty(&c.portals);
	}
	iscsi_account_each_loose(export_loose, &c);
	iscsi_account_each_bound(NULL, add_user, &w);
	for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t)) {
		struct adm_target *from = registry_target(scsi_target_tid(t));

		add_lus(&c, add_target(&c, from), from);
	}
	conf_print(&c, export_put, &call->out);
	conf_free(&c);
}

/* ---- as JSON: the same model, a target or an LU at a time ------------------------------------ */

/* What may be given several times is an array. */
static json_t *settings_object(const struct list *settings)
{
	json_t *object = json_object();
	const struct conf_kv *kv;

	list_for_each(kv, settings, link) {
		json_t *before = json_object_get(object, kv->key), *array;

		if (!before && conf_kind(kv->key) != CONF_MULTI) {
			doc_set_text(object, kv->key, kv->value);
			continue;
		}
		if (!before) {
			before = json_array();
			doc_set(object, kv->key, before);
		} else if (!json_is_array(before)) {
			array = json_array();
			doc_append(array, json_incref(before));
			doc_set(object, kv->key, array);
			before = array;
		}
		doc_append(before, doc_text(kv->value));
	}
	return object;
}

static json_t *users_array(const struct list *users)
{
	json_t *array = json_array();
	const struct conf_user *u;

	list_for_each(u, users, link) {
		json_t *row = json_object(), *names = json_array();
		const struct conf_kv *name;

		doc_set_text(row, "user", u->user);
		doc_set_bool(row, "outgoing", u->outgoing);
		doc_set_text(row, "password_file", u->file);
		list_for_each(name, &u->names, link)
			doc_append(names, doc_text(name->key));
		doc_set(row, "initiators", names);
		doc_append(array, row);
	}
	return array;
}

static json_t *rules_array(const struct list *rules, bool names)
{
	json_t *array = json_array();
	const struct conf_rule *r;

	list_for_each(r, rules, link) {
		if (r->is_name != names)
			continue;
		json_t *row = names ? json_object() : doc_text(r->text);

		if (names) {
			doc_set_text(row, "name", r->text);
			doc_set_text(row, "luns", r->luns ? r->luns : "all");
		}
		doc_append(array, row);
	}
	return array;
}

static json_t *limits_array(const struct list *limits)
{
	json_t *array = json_array();
	const struct conf_kv *kv;

	list_for_each(kv, limits, link) {
		json_t *row = json_object();

		doc_set_text(row, "name", kv->key);
		doc_set_text(row, "limits", kv->value);
		doc_append(array, row);
	}
	return array;
}

static void config_system(struct doc *d)
{
	struct conf c;
	struct walk w = { .c = &c };

	conf_init(&c);
	add_system(&c);
	iscsi_account_each_bound(NULL, add_user, &w);
	doc_add(d, "system", settings_object(&c.system));
	if (adm.portals_set) {
		json_t *portals = json_array();
		const struct conf_kv *kv;

		iscsi_portal_each(export_portal, &c);
		list_for_each(kv, &c.portals, link)
			doc_append(portals, doc_text(kv->key));
		doc_add(d, "portals", portals);
	}
	iscsi_account_each_loose(export_loose, &c);
	doc_add(d, "accounts", users_array(&c.loose));
	doc_add(d, "discovery_accounts", users_array(&c.users));
	conf_free(&c);
}

static void config_target(struct doc *d, struct adm_target *from)
{
	const struct conf_target *t;
	struct conf c;

	conf_init(&c);
	t = add_target(&c, from);
	doc_open(d, NULL, '{');
	doc_add(d, "tid", json_integer(t->tid));
	doc_add(d, "name", doc_text(t->name));
	doc_add(d, "driver", doc_text(t->driver));
	doc_add(d, "settings", settings_object(&t->keys));
	doc_add(d, "accounts", users_array(&t->users));
	doc_add(d, "initiator_addresses", rules_array(&t->rules, false));
	doc_add(d, "initiator_names", rules_array(&t->rules, true));
	doc_add(d, "initiator_limits", limits_array(&t->limits));
	doc_open(d, "luns", '[');
	conf_free(&c);
}

static void config_lu(struct doc *d, const struct adm_lu *from)
{
	struct conf c;
	json_t *row = json_object();

	conf_init(&c);
	add_lu(&c, conf_add_target(&c, ""), from);
	const struct conf_target *t = list_first(&c.targets, struct conf_target, link);
	const struct conf_lu *lu = list_first(&t->lus, struct conf_lu, link);

	doc_set_int(row, "lun", lu->lun);
	doc_set_text(row, "path", lu->path);
	doc_set(row, "settings", settings_object(&lu->options));
	doc_add(d, NULL, row);
	conf_free(&c);
}

static bool config_step(struct doc *d)
{
	struct adm_target *t = doc_target(d, false);
	struct scsi_lu_info info;

	if (!d->stage++) {
		config_system(d);
		doc_open(d, "targets", '[');
	} else if (t && doc_lu(t, d->lun, &info)) {
		const struct adm_lu *known = exported_lu(t, info.conf.lun);

		if (known)
			config_lu(d, known);
		d->lun = info.conf.lun + 1;
		return true;
	} else if (d->at) {
		doc_close(d);
		doc_close(d);
	}
	d->lun = 0;
	t = doc_target(d, true);
	d->at = !!t;
	if (t) {
		config_target(d, t);
		return true;
	}
	doc_close(d);
	return false;
}

enum adm_status json_config(struct adm_call *call)
{
	return doc_begin(call, config_step, 0);
}
