/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One function for each (mode, operation). It either answers at once, by returning a status, or
 * returns ADM_PENDING and calls adm_call_done() when the event threads are through.
 *
 * A request that changes a target waits while an earlier one about it is still under way, so that
 * callers see operations as if each ran alone; `show` never waits.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "events/log.h"
#include "tgtd/admin/admin_int.h"
#include "tgtd/iscsi/iscsi.h"

typedef enum adm_status (*verb_fn)(struct adm_call *call);

/* ---- helpers ---------------------------------------------------------------------------------------------- */

static struct adm_target *target_of(struct adm_call *call)
{
	return call->req.has_tid ? registry_target(call->req.tid) : NULL;
}

/* Waits for a busy target: true, and the call runs again later. */
static bool waits(struct adm_call *call, struct adm_target *t)
{
	if (!t || !t->busy)
		return false;
	list_add_tail(&t->waiters, &call->wait);
	return true;
}

static struct adm_lu *lu_of(struct adm_call *call, struct adm_target *t)
{
	return t && call->req.has_lun && call->req.lun <= SCSI_MAX_LUN ? registry_lu(t, (uint32_t)call->req.lun) : NULL;
}

static void finish(void *arg, enum adm_status status)
{
	adm_call_done(arg, status);
}

/* The driver that --lld names; ADM_DRIVERS when it is unknown or stopped. */
static unsigned driver_of(const struct adm_call *call)
{
	const char *name = call->req.text[ADM_T_LLD];
	unsigned d;

	for (d = 0; name && *name && d < ADM_DRIVERS; d++)
		if (!strcmp(driver_names[d], name))
			break;
	return d;
}

static bool driver_ready(unsigned driver)
{
	return !adm.lld_stopped[driver] && (driver != ADM_DRIVER_ISER || adm.conf.iser);
}

/* ---- system ----------------------------------------------------------------------------------------------- */

/* `--name config`: everything, as text that tgt-admin takes back. */
static enum adm_status system_show(struct adm_call *call)
{
	const char *name = call->req.text[ADM_T_NAME];

	if (name && !strcmp(name, "config"))
		return export_config(call);
	show_system(call);
	return ADM_OK;
}

static enum adm_status system_stat(struct adm_call *call)
{
	stat_header(call);
	for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t))
		stat_target(call, registry_target(scsi_target_tid(t)));
	return ADM_OK;
}

static enum adm_status set_state(struct adm_call *call, const char *value)
{
	bool offline = !strcmp(value, "offline");

	if (!offline && strcmp(value, "ready"))
		return refuse(call, ADM_INVALID_REQUEST, "State is ready or offline, not '%s'", value);
	adm.offline = offline;
	for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t))
		apply_offline(registry_target(scsi_target_tid(t)));
	return ADM_OK;
}

static int on_off(const char *value)
{
	return !strcasecmp(value, "on") ? 1 : !strcasecmp(value, "off") ? 0 : -1;
}

static enum adm_status system_update(struct adm_call *call)
{
	const char *name = call->req.text[ADM_T_NAME], *value = call->req.text[ADM_T_VALUE];

	if (!name || !value)
		return refuse(call, ADM_INVALID_REQUEST, "a name and a value are needed");
	int flag = on_off(value);

	if (!strcmp(name, "State"))
		return set_state(call, value);
	if (!strcmp(name, "debug") && flag >= 0) {
		log_set_level(flag ? LOG_LVL_DEBUG : LOG_LVL_NOTICE);
		return ADM_OK;
	}
	if (!strcmp(name, "iSNS") && flag == 0)
		return ADM_OK;
	if (!strcmp(name, "iSNS") && flag == 1)
		return refuse(call, ADM_UNSUPPORTED, "this daemon does not register with iSNS servers");
	if (!strcmp(name, "iSNSServerIP") && strlen(value) < sizeof(adm.isns_server)) {
		strcpy(adm.isns_server, value);
		return ADM_OK;
	}
	if (!strcmp(name, "iSNSServerPort")) {
		char *end;
		unsigned long port = strtoul(value, &end, 10);

		if (!isdigit((unsigned char)*value) || *end || !port || port > UINT16_MAX)
			return refuse(call, ADM_INVALID_REQUEST, "'%s' is not a port", value);
		adm.isns_port = (unsigned)port;
		return ADM_OK;
	}
	if (!strcmp(name, "iSNSAccessControl") && flag >= 0) {
		adm.isns_access_control = flag;
		return ADM_OK;
	}
	return refuse(call, ADM_INVALID_REQUEST, "%s=%s is not known to mode system", name, value);
}

static enum adm_status system_delete(struct adm_call *call)
{
	if (adm.ntargets)
		return refuse(call, ADM_INVALID_REQUEST, "%u targets exist; delete them first", adm.ntargets);
	adm.leaving = true;
	return ADM_OK;
}

/* ---- target ----------------------------------------------------------------------------------------------- */

static enum adm_status target_new(struct adm_call *call)
{
	const char *name = call->req.text[ADM_T_TARGETNAME];
	unsigned driver = call->req.text[ADM_T_LLD] ? driver_of(call) : ADM_DRIVER_ISCSI;

	if (!call->req.has_tid || !call->req.tid)
		return refuse(call, ADM_INVALID_REQUEST, "a target needs a tid above 0");
	if (!name || !*name)
		return refuse(call, ADM_INVALID_REQUEST, "a target needs a name");
	if (waits(call, registry_target(call->req.tid)) || waits(call, registry_target_name(name)))
		return ADM_PENDING;
	return apply_target_new(call, call->req.tid, name, driver);
}

static enum adm_status target_delete(struct adm_call *call)
{
	struct adm_target *t = target_of(call);

	if (!t)
		return ADM_NO_TARGET;
	if (waits(call, t))
		return ADM_PENDING;
	enum adm_status s = apply_target_delete(call, t, call->req.force, finish, call);

	return s == ADM_OK ? ADM_PENDING : s;
}

static enum adm_status target_show(struct adm_call *call)
{
	struct adm_target *t = target_of(call);

	if (!call->req.has_tid) {
		show_targets(call);
		return ADM_OK;
	}
	if (!t)
		return ADM_NO_TARGET;
	show_target_keys(call, t);
	return ADM_OK;
}

static enum adm_status target_stat(struct adm_call *call)
{
	struct adm_target *t = target_of(call);

	if (!t)
		return ADM_NO_TARGET;
	stat_header(call);
	stat_target(call, t);
	return ADM_OK;
}

static enum adm_status acl_status(struct adm_call *call, int err, const char *rule)
{
	switch (err) {
	case 0:
		return ADM_OK;
	case -EEXIST:
		return ADM_ACL_EXIST;
	case -ENOENT:
		return ADM_ACL_NOEXIST;
	case -EINVAL:
		return refuse(call, ADM_INVALID_REQUEST, "'%s' is not an address, a network, ALL or an initiator name",
			      rule);
	default:
		return refuse_errno(call, err, rule);
	}
}

/* @luns NULL or "all": no mask. 0 or -errno. */
static int set_mask(struct adm_target *t, const char *iqn, const char *luns)
{
	bool all = !luns || !strcmp(luns, "all");
	int err = iscsi_acl_set_luns(t->scsi, iqn, all ? NULL : luns);

	if (err)
		return err;
	if (!all)
		return set_put(&t->masks, iqn, luns, NULL);
	set_drop(set_find(&t->masks, iqn));
	return 0;
}

static enum adm_status target_bind(struct adm_call *call)
{
	struct adm_target *t = target_of(call);
	const char *address = call->req.text[ADM_T_ADDRESS], *name = call->req.text[ADM_T_INITIATOR];
	const char *luns = call->req.text[ADM_T_EXPOSE];
	int err = 0;

	if (!t)
		return ADM_NO_TARGET;
	if (waits(call, t))
		return ADM_PENDING;
	if (!address && !name)
		return refuse(call, ADM_UNSUPPORTED, "SCSI hosts are bound to Fibre Channel targets only");
	if (luns && !name)
		return refuse(call, ADM_INVALID_REQUEST, "LUNs are exposed to an initiator by its name");
	if (address)
		err = iscsi_acl_add(t->scsi, ISCSI_ACL_ADDRESS, address);
	/* all or nothing; the mask before the name, so that it never sees more */
	if (!err && luns) {
		err = set_mask(t, name, luns);
		if (err && address)
			(void)!iscsi_acl_delete(t->scsi, ISCSI_ACL_ADDRESS, address);
		if (err)
			return refuse(call, err == -ENOMEM ? ADM_NOMEM : ADM_INVALID_REQUEST,
				      "'%s' is not a list of LUNs such as 1,3-5", luns);
	}
	if (!err && name) {
		err = iscsi_acl_add(t->scsi, ISCSI_ACL_NAME, name);
		if (err && address)
			(void)!iscsi_acl_delete(t->scsi, ISCSI_ACL_ADDRESS, address);
	}
	return acl_status(call, err, name ? name : address);
}

static enum adm_status target_unbind(struct adm_call *call)
{
	struct adm_target *t = target_of(call);
	const char *address = call->req.text[ADM_T_ADDRESS], *name = call->req.text[ADM_T_INITIATOR];
	int err = 0;

	if (!t)
		return ADM_NO_TARGET;
	if (waits(call, t))
		return ADM_PENDING;
	if (!address && !name)
		return ADM_NO_BINDING;
	if (address)
		err = iscsi_acl_delete(t->scsi, ISCSI_ACL_ADDRESS, address);
	if (!err && name) {
		err = iscsi_acl_delete(t->scsi, ISCSI_ACL_NAME, name);
		if (!err)
			err = set_mask(t, name, NULL);
	}
	return acl_status(call, err, name ? name : address);
}

struct key_search {
	const char *name;
	char value[256];
};

static void look_for_key(const char *key, const char *value, void *arg)
{
	struct key_search *s = arg;

	if (!strcmp(key, s->name) && strlen(value) < sizeof(s->value))
		strcpy(s->value, value);
}

/* The value of @name now, to go back to. */
static void current_value(struct adm_target *t, const char *name, struct key_search *s)
{
	*s = (struct key_search){ .name = name };
	iscsi_target_each_key(t->scsi, look_for_key, s);
	/* what is set like a key but is none */
	if (!strcmp(name, "nop_interval"))
		snprintf(s->value, sizeof(s->value), "%u", iscsi_target_nop_interval(t->scsi));
	else if (!strcmp(name, "nop_count"))
		snprintf(s->value, sizeof(s->value), "%u", iscsi_target_nop_count(t->scsi));
	else if (!strcmp(name, "RedirectPort"))
		strcpy(s->value, "3260");
	else if (!strcmp(name, "RedirectReason"))
		strcpy(s->value, "Temporary");
}

static enum adm_status target_set(struct adm_call *call, struct adm_target *t, const char *name, const char *value)
{
	if (!strcmp(name, "state")) {
		bool offline = !strcmp(value, "offline");

		if (!offline && *value && strcmp(value, "ready"))
			return refuse(call, ADM_INVALID_REQUEST, "state is ready or offline, not '%s'", value);
		t->offline = offline;
		apply_offline(t);
		return ADM_OK;
	}
	struct adm_set *set = set_find(&t->keys, name);
	struct key_search before;
	int err;

	if (!*value && set)
		value = set->original; /* "" takes back what was set */
	current_value(t, name, &before);
	err = iscsi_target_set(t->scsi, name, value);
	if (err == -ENOENT)
		return refuse(call, ADM_INVALID_REQUEST, "no target parameter is called '%s'", name);
	if (err)
		return refuse(call, err == -ENOMEM ? ADM_NOMEM : ADM_INVALID_REQUEST, "%s cannot be '%s'", name, value);
	if (set && value == set->original)
		set_drop(set);
	else if (set_put(&t->keys, name, value, before.value))
		return ADM_NOMEM;
	return ADM_OK;
}

static enum adm_status target_update(struct adm_call *call)
{
	struct adm_target *t = target_of(call);
	const char *name = call->req.text[ADM_T_NAME], *value = call->req.text[ADM_T_VALUE];
	const char *iqn = call->req.text[ADM_T_INITIATOR], *luns = call->req.text[ADM_T_EXPOSE];

	if (!t)
		return ADM_NO_TARGET;
	if (waits(call, t))
		return ADM_PENDING;
	if (iqn && luns) {
		int err = set_mask(t, iqn, luns);

		if (err)
			return refuse(call, err == -ENOMEM ? ADM_NOMEM : ADM_INVALID_REQUEST,
				      "'%s' is not a list of LUNs such as 1,3-5, nor all", luns);
		return ADM_OK;
	}
	if (!name || !value)
		return refuse(call, ADM_INVALID_REQUEST, "a name and a value are needed");
	return target_set(call, t, name, value);
}

/* ---- logical unit ------------------------------------------------------------------------------------------ */

static enum adm_status lu_new(struct adm_call *call)
{
	struct adm_target *t = target_of(call);
	struct apply_lu want = {
		.device_type = call->req.device_type,
		.path = call->req.text[ADM_T_PATH],
		.bstype = call->req.text[ADM_T_BSTYPE],
		.bsopts = call->req.text[ADM_T_BSOPTS],
		.bsoflags = call->req.text[ADM_T_BSOFLAGS],
		.blocksize = call->req.text[ADM_T_BLOCKSIZE],
	};

	if (!t)
		return ADM_NO_TARGET;
	if (waits(call, t))
		return ADM_PENDING;
	if (!call->req.has_lun || call->req.lun > SCSI_MAX_LUN)
		return refuse(call, ADM_INVALID_REQUEST, "LUNs go from 1 to %d", SCSI_MAX_LUN);
	want.lun = (uint32_t)call->req.lun;
	if (!want.lun || registry_lu(t, want.lun))
		return ADM_LUN_EXIST;
	enum adm_status s = apply_lu_new(call, t, &want, finish, call);

	return s == ADM_OK ? ADM_PENDING : s;
}

static enum adm_status lu_delete(struct adm_call *call)
{
	struct adm_target *t = target_of(call);
	struct adm_lu *lu;

	if (call->req.has_lun && !call->req.lun)
		return refuse(call, ADM_INVALID_REQUEST, "LUN 0 is the controller; it goes with its target");
	if (waits(call, t))
		return ADM_PENDING;
	lu = lu_of(call, t);
	if (!lu)
		return ADM_NO_LUN;
	enum adm_status s = apply_lu_delete(call, lu, finish, call);

	return s == ADM_OK ? ADM_PENDING : s;
}

static void lu_update_go_on(void *arg, enum adm_status status);

/* The value that @key had when the LU was made. */
static const char *initial_value(const struct adm_lu *lu, const char *key, char *buf, size_t len)
{
	const struct scsi_lu_conf *c = &lu->initial;
	const struct {
		const char *key, *text;
		unsigned long number;
	} table[] = {
		{ "scsi_id", c->scsi_id, 0 },
		{ "scsi_sn", c->scsi_sn, 0 },
		{ "vendor_id", c->vendor_id, 0 },
		{ "product_id", c->product_id, 0 },
		{ "product_rev", c->product_rev, 0 },
		{ "sense_format", NULL, c->sense_format },
		{ "removable", NULL, c->removable },
		{ "online", NULL, c->online },
		{ "readonly", NULL, c->readonly },
		{ "thin_provisioning", NULL, c->thin_provisioning },
		{ "lbppbe", NULL, c->lbppbe },
		{ "la_lba", NULL, c->la_lba },
		{ "optimal_xfer_gran", NULL, c->optimal_xfer_gran },
		{ "optimal_xfer_len", NULL, c->optimal_xfer_len },
		{ "rotation_rate", NULL, c->rotation_rate },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (strcmp(table[i].key, key))
			continue;
		if (table[i].text)
			return table[i].text;
		snprintf(buf, len, "%lu", table[i].number);
		return buf;
	}
	return NULL;
}

/* One parameter; @value NULL takes back what was set before. @lu is NULL for the controller. */
static enum adm_status lu_set(struct adm_call *call, struct adm_lu *lu, struct scsi_lu *scsi, const char *key,
			      const char *value)
{
	char number[24], page[64];
	const char *v = value, *name = key;
	int err;

	if (lu && !strcmp(key, "refresh")) {
		/* not a property: look at the store's size again */
		err = scsi_lu_refresh(scsi);
		return err ? refuse_errno(call, err, "refresh") : ADM_OK;
	}
	if (!v && lu)
		v = initial_value(lu, key, number, sizeof(number));
	if (!v)
		return refuse(call, ADM_INVALID_REQUEST, "'%s' is not name=value", key);
	err = scsi_lu_update(scsi, key, v);
	if (err == -EBUSY)
		return refuse(call, ADM_PREVENT_REMOVAL, "an initiator prevents medium removal");
	if (err)
		return refuse(call, err == -ENOMEM ? ADM_NOMEM : ADM_INVALID_REQUEST, "%s cannot be '%s'%s%s", key, v,
			      err == -EINVAL ? "" : ": ", err == -EINVAL ? "" : strerror(-err));
	if (!lu)
		return ADM_OK;
	/* mode pages are told apart by page and subpage */
	if (!strcmp(key, "mode_page")) {
		const char *colon = strchr(v, ':');

		colon = colon ? strchr(colon + 1, ':') : NULL;
		snprintf(page, sizeof(page), "mode_page %.*s", colon ? (int)(colon - v) : 0, v);
		name = page;
	}
	if (!value)
		set_drop(set_find(&lu->params, name));
	else if (set_put(&lu->params, name, v, NULL))
		return ADM_NOMEM;
	return ADM_OK;
}

/* Applies key=value pairs up to the end (ADM_OK), an error, or one that has to wait. */
static enum adm_status lu_update_some(struct adm_call *call, struct adm_target *t)
{
	struct adm_lu *lu = lu_of(call, t);

	while (call->params_left && *call->params_left) {
		const char *p = call->params_left, *end = strchrnul(p, ',');
		char pair[4096];
		size_t len = (size_t)(end - p);
		char *value;

		call->params_left = *end ? end + 1 : end;
		if (!len)
			continue;
		if (len >= sizeof(pair))
			return refuse(call, ADM_INVALID_REQUEST, "a parameter is longer than %zu bytes", sizeof(pair) - 1);
		memcpy(pair, p, len);
		pair[len] = 0;
		value = strchr(pair, '=');
		if (value)
			*value++ = 0;
		if (value && !strcmp(pair, "path")) {
			if (!lu)
				return refuse(call, ADM_INVALID_REQUEST, "the controller has no backing store");
			/* the store that it has: it may have grown */
			if (lu->path && !strcmp(value, lu->path)) {
				int err = scsi_lu_refresh(lu->scsi);

				if (err)
					return refuse_errno(call, err, value);
				continue;
			}
			enum adm_status s = apply_lu_path(call, lu, value, lu_update_go_on, call);

			return s == ADM_OK ? ADM_PENDING : s;
		}
		enum adm_status s = lu_set(call, lu, lu ? lu->scsi : scsi_lu_find(t->scsi, 0), pair, value);

		if (s != ADM_OK)
			return s;
	}
	return ADM_OK;
}

static void lu_update_go_on(void *arg, enum adm_status status)
{
	struct adm_call *call = arg;
	struct adm_target *t = target_of(call);

	if (status == ADM_OK)
		status = t ? lu_update_some(call, t) : ADM_NO_TARGET;
	if (status != ADM_PENDING)
		adm_call_done(call, status);
}

static enum adm_status lu_update(struct adm_call *call)
{
	struct adm_target *t = target_of(call);

	if (!t)
		return ADM_NO_TARGET;
	if (waits(call, t))
		return ADM_PENDING;
	if (call->req.lun && !lu_of(call, t))
		return ADM_NO_LUN;
	if (call->req.text[ADM_T_BSOFLAGS] || call->req.text[ADM_T_BLOCKSIZE])
		return refuse(call, ADM_UNSUPPORTED, "flags and block size of a store are fixed when the LU is made");
	call->params_left = call->req.text[ADM_T_PARAMS];
	return lu_update_some(call, t);
}

static enum adm_status lu_stat(struct adm_call *call)
{
	struct adm_target *t = target_of(call);
	struct adm_lu *lu = lu_of(call, t);

	if (!t)
		return ADM_NO_TARGET;
	if (!lu && call->req.lun)
		return ADM_NO_LUN;
	stat_header(call);
	if (lu)
		stat_lu(call, lu);
	return ADM_OK;
}

/* ---- account ------------------------------------------------------------------------------------------------ */

static enum adm_status account_status(struct adm_call *call, int err)
{
	switch (err) {
	case 0:
		return ADM_OK;
	case -EEXIST:
		return ADM_USER_EXIST;
	case -ENOENT:
		return ADM_NO_USER;
	case -EBUSY:
		return ADM_OUTACCOUNT_EXIST;
	case -ENOSPC:
		return ADM_TOO_MANY_USER;
	default:
		return refuse_errno(call, err, "account");
	}
}

static enum adm_status account_new(struct adm_call *call)
{
	const char *user = call->req.text[ADM_T_USER], *password = call->req.text[ADM_T_PASSWORD];

	if (!user || !*user || !password || !*password)
		return refuse(call, ADM_INVALID_REQUEST, "an account needs a user and a password");
	return account_status(call, iscsi_account_new(user, password));
}

static enum adm_status account_update(struct adm_call *call)
{
	const char *user = call->req.text[ADM_T_USER], *password = call->req.text[ADM_T_PASSWORD];

	if (!user || !password)
		return refuse(call, ADM_INVALID_REQUEST, "a user and a password are needed");
	return account_status(call, iscsi_account_set_password(user, password));
}

static enum adm_status account_delete(struct adm_call *call)
{
	if (!call->req.text[ADM_T_USER])
		return refuse(call, ADM_INVALID_REQUEST, "which user?");
	return account_status(call, iscsi_account_delete(call->req.text[ADM_T_USER]));
}

static enum adm_status account_bind_or_not(struct adm_call *call, bool bind)
{
	struct adm_target *t = target_of(call);
	const char *user = call->req.text[ADM_T_USER];

	if (!user)
		return refuse(call, ADM_INVALID_REQUEST, "which user?");
	if (call->req.has_tid && !t)
		return ADM_NO_TARGET;
	if (waits(call, t))
		return ADM_PENDING;
	struct scsi_target *scsi = t ? t->scsi : NULL;

	return account_status(call, bind ? iscsi_account_bind(scsi, user, call->req.outgoing) :
					   iscsi_account_unbind(scsi, user, call->req.outgoing));
}

static enum adm_status account_bind(struct adm_call *call)
{
	return account_bind_or_not(call, true);
}

static enum adm_status account_unbind(struct adm_call *call)
{
	return account_bind_or_not(call, false);
}

/* With a user and a password: shows the user if that is the password. */
static enum adm_status account_show(struct adm_call *call)
{
	const char *user = call->req.text[ADM_T_USER], *password = call->req.text[ADM_T_PASSWORD];

	if (user && password) {
		if (iscsi_account_check(user, password))
			out_printf(&call->out, "Account list:\n    %s\n", user);
		return ADM_OK;
	}
	show_accounts(call);
	return ADM_OK;
}

/* ---- portal -------------------------------------------------------------------------------------------------- */

/* "portal=<text>" possibly among others, separated by commas as far as a portal does not end in ",<tpgt>". */
static const char *portal_text(const struct adm_call *call)
{
	const char *p = call->req.text[ADM_T_PARAMS];

	p = p ? strstr(p, "portal=") : NULL;
	return p ? p + strlen("portal=") : NULL;
}

static enum adm_status portal_new(struct adm_call *call)
{
	const char *text = portal_text(call);
	int err;

	if (!text)
		return refuse(call, ADM_INVALID_REQUEST, "expected portal=<ip>[:<port>]");
	err = iscsi_portal_add(text);
	return err ? refuse_errno(call, err, text) : ADM_OK;
}

static enum adm_status portal_delete(struct adm_call *call)
{
	const char *text = portal_text(call);
	int err;

	if (!text)
		return refuse(call, ADM_INVALID_REQUEST, "expected portal=<ip>[:<port>]");
	err = iscsi_portal_delete(text);
	return err ? refuse_errno(call, err, text) : ADM_OK;
}

static enum adm_status portal_show(struct adm_call *call)
{
	show_portals(call);
	return ADM_OK;
}

/* ---- sessions and connections ----------------------------------------------------------------------------------- */

static enum adm_status session_show(struct adm_call *call)
{
	struct adm_target *t = target_of(call);

	if (call->req.has_tid && !t)
		return ADM_NO_TARGET;
	return show_sessions(call, t);
}

static enum adm_status session_stat(struct adm_call *call)
{
	struct adm_target *t = target_of(call);

	if (call->req.has_tid && !t)
		return ADM_NO_TARGET;
	return stat_sessions(call, t);
}

static enum adm_status conn_show(struct adm_call *call)
{
	struct adm_target *t = target_of(call);

	if (!t)
		return ADM_NO_TARGET;
	show_connections(call, t);
	return ADM_OK;
}

static enum adm_status conn_stat(struct adm_call *call)
{
	struct adm_target *t = target_of(call);

	if (call->req.has_tid && !t)
		return ADM_NO_TARGET;
	return stat_connections(call, t);
}

struct sid_search {
	uint64_t sid;
	bool found;
};

static void look_for_sid(const struct iscsi_conn_info *info, void *arg)
{
	struct sid_search *search = arg;

	search->found |= info->tsih == search->sid;
}

static enum adm_status conn_delete(struct adm_call *call)
{
	struct adm_target *t = target_of(call);
	struct sid_search search = { .sid = call->req.sid };

	if (!t)
		return ADM_NO_TARGET;
	if (call->req.sid <= UINT32_MAX && call->req.cid <= UINT16_MAX &&
	    !iscsi_conn_close(t->tid, (uint32_t)call->req.sid, (uint16_t)call->req.cid))
		return ADM_OK;
	iscsi_conn_each(t->scsi, look_for_sid, &search);
	return search.found ? ADM_NO_CONNECTION : ADM_NO_SESSION;
}

/* ---- drivers -------------------------------------------------------------------------------------------------------- */

static enum adm_status lld_show(struct adm_call *call)
{
	show_llds(call);
	return ADM_OK;
}

static unsigned driver_named(const struct adm_call *call)
{
	return call->req.text[ADM_T_LLD] ? driver_of(call) : ADM_DRIVER_ISCSI;
}

static enum adm_status lld_start(struct adm_call *call)
{
	unsigned driver = driver_named(call);

	if (driver == ADM_DRIVER_ISER && !adm.conf.iser)
		return refuse(call, ADM_UNKNOWN_ERR, "iSER is not running: start the daemon with --iser");
	adm.lld_stopped[driver] = false;
	return ADM_OK;
}

/* A stopped driver takes no new targets; its portals stay, they may be the other driver's too. */
static enum adm_status lld_stop(struct adm_call *call)
{
	unsigned driver = driver_named(call), n = apply_targets_of(driver);

	if (n)
		return refuse(call, ADM_DRIVER_ACTIVE, "%u targets use it", n);
	adm.lld_stopped[driver] = true;
	return ADM_OK;
}

/* ---- the table ----------------------------------------------------------------------------------------------------------- */

static const verb_fn verbs[ADM_MODES][ADM_OPS] = {
	[ADM_SYSTEM] = {
		[ADM_SHOW] = system_show, [ADM_STAT] = system_stat,
		[ADM_UPDATE] = system_update, [ADM_DELETE] = system_delete,
	},
	[ADM_TARGET] = {
		[ADM_NEW] = target_new, [ADM_DELETE] = target_delete, [ADM_SHOW] = target_show,
		[ADM_STAT] = target_stat, [ADM_BIND] = target_bind, [ADM_UNBIND] = target_unbind,
		[ADM_UPDATE] = target_update,
	},
	[ADM_LU] = {
		[ADM_NEW] = lu_new, [ADM_DELETE] = lu_delete, [ADM_UPDATE] = lu_update, [ADM_STAT] = lu_stat,
	},
	[ADM_ACCOUNT] = {
		[ADM_NEW] = account_new, [ADM_DELETE] = account_delete, [ADM_BIND] = account_bind,
		[ADM_UPDATE] = account_update,
		[ADM_UNBIND] = account_unbind, [ADM_SHOW] = account_show,
	},
	[ADM_PORTAL] = { [ADM_NEW] = portal_new, [ADM_DELETE] = portal_delete, [ADM_SHOW] = portal_show },
	[ADM_SESSION] = { [ADM_SHOW] = session_show, [ADM_STAT] = session_stat },
	[ADM_CONN] = { [ADM_SHOW] = conn_show, [ADM_STAT] = conn_stat, [ADM_DELETE] = conn_delete },
	[ADM_CACHE] = { [ADM_SHOW] = cache_verb_show, [ADM_STAT] = cache_verb_stat, [ADM_UPDATE] = cache_verb_update },
	[ADM_LLD] = { [ADM_START] = lld_start, [ADM_STOP] = lld_stop, [ADM_SHOW] = lld_show },
};

void verbs_execute(struct adm_call *call)
{
	verb_fn fn = verbs[call->req.mode][call->req.op];
	unsigned driver = driver_of(call);
	enum adm_status status;

	if (call->req.text[ADM_T_LLD] && *call->req.text[ADM_T_LLD] &&
	    (driver == ADM_DRIVERS || (call->req.mode != ADM_LLD && !driver_ready(driver))))
		status = refuse(call, ADM_NO_DRIVER, "driver '%s' is not there", call->req.text[ADM_T_LLD]);
	else if (adm.draining || adm.leaving)
		status = refuse(call, ADM_INVALID_REQUEST, "the daemon is shutting down");
	else
		status = fn ? fn(call) :
			      refuse(call, ADM_INVALID_REQUEST, "mode %s has no operation %s",
				     adm_mode_name(call->req.mode), adm_op_name(call->req.op));
	if (status != ADM_PENDING)
		adm_call_done(call, status);
}
