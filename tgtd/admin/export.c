/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The daemon's configuration as data and as targets.conf text: what tgt-admin compares a file with,
 * and what `tgt-admin --dump` prints. Only what somebody set is said; defaults are left out.
 */
#include <stdio.h>
#include <stdlib.h>

#include "conf/diff.h"
#include "events/bug.h"
#include "tgtd/admin/admin_int.h"
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
	struct adm_set *set;
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
	set = export_caching_page(lu);
	own_page = set && strcmp(set->value, CONF_WRITE_CACHE_OFF) &&
		   strcmp(set->value, CONF_WRITE_CACHE_ON);
	/* off from the start is not said, unless somebody said it */
	if (!info.conf.write_cache &&
	    (lu->initial.write_cache || set || set_find(&lu->params, "write_cache")))
		conf_add_kv(c, &to->options, "write-cache", "off");
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

static void add_target(struct conf *c, struct adm_target *from)
{
	struct conf_target *t = conf_add_target(c, scsi_target_name(from->scsi));
	struct walk w = { .c = c, .t = t, .from = from };
	struct adm_set *set;

	t->tid = from->tid;
	t->driver = driver_names[from->driver];
	for (struct scsi_lu *lu = scsi_lu_next(from->scsi, NULL); lu;
	     lu = scsi_lu_next(from->scsi, lu)) {
		struct scsi_lu_info info;

		scsi_lu_get_info(lu, &info);
		const struct adm_lu *known = registry_lu(from, info.conf.lun);

		if (known)
			add_lu(c, t, known);
	}
	iscsi_account_each_bound(from->scsi, add_user, &w);
	iscsi_acl_each(from->scsi, ISCSI_ACL_ADDRESS, add_address, &w);
	iscsi_acl_each(from->scsi, ISCSI_ACL_NAME, add_name, &w);
	list_for_each(set, &from->keys, link)
		conf_add_kv(c, &t->keys, set->key, set->value);
	if (from->offline)
		conf_add_kv(c, &t->keys, "state", "offline");
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

enum adm_status export_config(struct adm_call *call)
{
	struct conf c;
	struct walk w = { .c = &c };

	conf_init(&c);
	c.default_driver = driver_names[ADM_DRIVER_ISCSI];
	add_system(&c);
	if (adm.portals_set) {
		iscsi_portal_each(export_portal, &c);
		c.no_portal = list_empty(&c.portals);
	}
	iscsi_account_each_loose(export_loose, &c);
	iscsi_account_each_bound(NULL, add_user, &w);
	for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t))
		add_target(&c, registry_target(scsi_target_tid(t)));
	conf_print(&c, export_put, &call->out);
	conf_free(&c);
	return ADM_OK;
}
