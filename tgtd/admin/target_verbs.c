/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgtadm --mode target: targets, who may log in and what they see, what is negotiated. */
#include <stdio.h>
#include <stdlib.h>

#include "events/bug.h"
#include "tgtd/admin/json.h"
#include "tgtd/isns/isns.h"
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/iscsi/portal.h"

enum adm_status verb_target_new(struct adm_call *call)
{
	const char *name = call->req.text[ADM_T_TARGETNAME];
	unsigned driver = call->req.text[ADM_T_LLD] ? call_driver(call) : ADM_DRIVER_ISCSI;

	if (!call->req.has_tid || !call->req.tid)
		return admin_refuse(call, ADM_INVALID_REQUEST, "a target needs a tid above 0");
	if (!name || !*name)
		return admin_refuse(call, ADM_INVALID_REQUEST, "a target needs a name");
	if (call_waits(call, registry_target(call->req.tid)) ||
	    call_waits(call, registry_target_name(name)))
		return ADM_PENDING;
	return apply_target_new(call, call->req.tid, name, driver);
}

enum adm_status verb_target_delete(struct adm_call *call)
{
	struct adm_target *t = call_target(call);

	if (!t)
		return ADM_NO_TARGET;
	if (call_waits(call, t))
		return ADM_PENDING;
	enum adm_status s = apply_target_delete(call, t, call->req.force, call_finish, call);

	return s == ADM_OK ? ADM_PENDING : s;
}

static enum adm_status show_all(struct adm_call *call)
{
	if (call->req.json)
		return json_targets(call);
	show_targets(call);
	return ADM_OK;
}

enum adm_status verb_target_show(struct adm_call *call)
{
	struct adm_target *t = call_target(call);

	if (!call->req.has_tid)
		return names_look(call, NULL, show_all);
	if (!t)
		return ADM_NO_TARGET;
	if (call->req.json)
		return json_target_keys(call, t);
	show_target_keys(&call->out, t);
	return ADM_OK;
}

enum adm_status verb_target_stat(struct adm_call *call)
{
	struct adm_target *t = call_target(call);

	if (!t)
		return ADM_NO_TARGET;
	if (call->req.json)
		return json_stat(call, t);
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
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "'%s' is not an address, a network, ALL or an initiator name",
				    rule);
	default:
		return refuse_errno(call, err, rule);
	}
}

#define OUTLIVED "mask of sessions whose rule is gone"

/* @luns NULL or "all": no mask. 0 or -errno. */
static int set_mask(struct adm_target *t, const char *iqn, const char *luns)
{
	bool all = !luns || !strcmp(luns, "all");
	ASSERT(iqn && !t->busy);
	int err = iscsi_acl_set_luns(t->scsi, iqn, all ? NULL : luns);

	if (err)
		return err;
	set_drop(set_find(&t->masks, iqn));
	return all ? 0 : set_put(&t->masks, iqn, luns, NULL);
}

struct by_name {
	const char *iqn;
	bool found;
};

static void look_for_name(struct scsi_nexus *n, void *arg)
{
	struct by_name *s = arg;

	s->found |= !strcmp(n->iqn, s->iqn);
}

static bool has_session(struct adm_target *t, const char *iqn)
{
	struct by_name s = { .iqn = iqn };

	scsi_target_each_nexus(t->scsi, look_for_name, &s);
	return s.found;
}

/* A name is no longer bound. Its sessions stay, and must not see more than before: then its mask
 * stays, too, until the name is bound again. */
static int unmask(struct adm_target *t, const char *iqn)
{
	struct adm_set *set = set_find(&t->masks, iqn);

	if (!set || !has_session(t, iqn))
		return set_mask(t, iqn, NULL);
	if (!set->original)
		set->original = strdup(OUTLIVED);
	return set->original ? 0 : -ENOMEM;
}

struct key_search {
	const char *name;
	char value[ISCSI_BIND_TEXT];
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
	else if (!strcmp(name, "data_out_timeout"))
		snprintf(s->value, sizeof(s->value), "%u",
			 iscsi_target_data_out_timeout(t->scsi));
	else if (!strcmp(name, "MaxQueueCmd"))
		snprintf(s->value, sizeof(s->value), "%u", iscsi_target_max_queue_cmd(t->scsi));
	else if (!strcmp(name, "nop_count"))
		snprintf(s->value, sizeof(s->value), "%u", iscsi_target_nop_count(t->scsi));
	else if (!strcmp(name, "RedirectPort"))
		strcpy(s->value, "3260");
	else if (!strcmp(name, "RedirectReason"))
		strcpy(s->value, "Temporary");
	else if (!strcmp(name, "allow_target_reset") || !strcmp(name, "allow_explicit_alua"))
		strcpy(s->value, "No");
	else if (!strcmp(name, "alua_state"))
		strcpy(s->value, scsi_alua_names[SCSI_ALUA_ACTIVE_OPTIMIZED]);
	else if (!strcmp(name, "alua_preferred") || !strcmp(name, "alua_transition_time"))
		strcpy(s->value, "0");
}

int target_idle_key(const char *key, const char *value, const char **why)
{
	static const char markers[] = "markers are obsolete (RFC 7143 13.25), No is answered",
			  of_iser[] = "iSER negotiates it by what its messages can hold";
	enum { YES_NO, LENGTH, MARKER, COUNT };
	static const struct {
		const char *key;
		int kind;
		const char *why;
	} keys[] = {
		{ "MaxXmitDataSegmentLength", LENGTH,
		  "the initiator's MaxRecvDataSegmentLength is what bounds data sent to it" },
		{ "IFMarker", YES_NO, markers },
		{ "OFMarker", YES_NO, markers },
		{ "IFMarkInt", MARKER, markers },
		{ "OFMarkInt", MARKER, markers },
		{ "RDMAExtensions", YES_NO, "it follows from the transport" },
		{ "TargetRecvDataSegmentLength", LENGTH, of_iser },
		{ "InitiatorRecvDataSegmentLength", LENGTH, of_iser },
		{ "MaxOutstandingUnexpectedPDUs", COUNT, of_iser },
	};
	static const unsigned long min[] = { 0, 512, 1, 0 },
				   max[] = { 0, 16777215, 65535, UINT32_MAX };

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		int kind = keys[i].kind;
		unsigned long v;
		char *end;

		if (strcmp(keys[i].key, key))
			continue;
		*why = keys[i].why;
		if (kind == YES_NO)
			return !strcmp(value, "Yes") || !strcmp(value, "No") ? 0 : -EINVAL;
		if (kind == MARKER && (!strcmp(value, "Reject") || !strcmp(value, "Irrelevant")))
			return 0;
		errno = 0;
		v = strtoul(value, &end, 0);
		return *value >= '0' && *value <= '9' && !*end && !errno && v >= min[kind] &&
				       v <= max[kind] ?
			       0 :
			       -EINVAL;
	}
	return -ENOENT;
}

/* Kept, so that it is written out again and a file that says it differs in nothing. */
static enum adm_status set_idle(struct adm_call *call, struct adm_target *t, const char *name,
				const char *value, const char *why)
{
	warn(call, "target %u: %s has no effect: %s", t->tid, name, why);
	return set_put(&t->keys, name, value, "") ? ADM_NOMEM : ADM_OK;
}

static enum adm_status target_set(struct adm_call *call, struct adm_target *t, const char *name,
				  const char *value)
{
	if (!strcmp(name, "state")) {
		bool offline = !strcmp(value, "offline");

		if (!offline && *value && strcmp(value, "ready"))
			return admin_refuse(call, ADM_INVALID_REQUEST,
					    "state is ready or offline, not '%s'", value);
		t->offline = offline;
		apply_offline(t);
		return ADM_OK;
	}
	struct adm_set *set = set_find(&t->keys, name);
	struct key_search before;
	const char *why;
	int err = target_idle_key(name, value, &why);

	if (!err)
		return set_idle(call, t, name, value, why);
	if (err == -EINVAL && set && !*value) {
		set_drop(set);
		return ADM_OK;
	}
	if (err == -EINVAL)
		return refuse_value(call, name, value);
	if (!*value && set)
		value = set->original; /* "" takes back what was set */
	current_value(t, name, &before);
	err = iscsi_target_set(t->scsi, name, value);
	if (err == -ENOENT)
		return refuse_key(call, "target", name);
	if (err)
		return err == -ENOMEM ? ADM_NOMEM : refuse_value(call, name, value);
	if (set && value == set->original)
		set_drop(set);
	else if (set_put(&t->keys, name, value, before.value))
		return ADM_NOMEM;
	if (!strcmp(name, "portals"))
		isns_changed();
	return ADM_OK;
}

/* --portal: one more, or one less, of those that the key `portals` lists. */
static enum adm_status bind_portal(struct adm_call *call, struct adm_target *t, bool add)
{
	const char *name = call->req.text[ADM_T_NAME], *portal = call->req.text[ADM_T_VALUE];
	const struct adm_set *set = set_find(&t->keys, "portals");
	char list[ISCSI_BIND_TEXT];
	int err;

	if (strcmp(name, "portal") || !portal)
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "a target is bound to a portal, not to %s", name);
	if (call->req.text[ADM_T_ADDRESS] || call->req.text[ADM_T_INITIATOR])
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "one at a time: a portal, or an initiator");
	err = iscsi_bind_edit(set ? set->value : "", portal, add, list, sizeof(list));
	switch (err) {
	case 0:
		return target_set(call, t, "portals", list);
	case -EEXIST:
		return ADM_BINDING_EXIST;
	case -ENOENT:
		return ADM_NO_BINDING;
	case -ENOSPC:
		return admin_refuse(call, ADM_INVALID_REQUEST, "at most %d portals",
				    ISCSI_BIND_MAX);
	default:
		return admin_refuse(call, ADM_INVALID_REQUEST, "'%s' is not an address with a port",
				    portal);
	}
}

enum adm_status verb_target_bind(struct adm_call *call)
{
	struct adm_target *t = call_target(call);
	const char *address = call->req.text[ADM_T_ADDRESS],
		   *name = call->req.text[ADM_T_INITIATOR];
	const char *luns = call->req.text[ADM_T_EXPOSE];
	int err = 0;

	if (!t)
		return ADM_NO_TARGET;
	if (call_waits(call, t))
		return ADM_PENDING;
	if (call->req.text[ADM_T_NAME])
		return bind_portal(call, t, true);
	if (!address && !name)
		return admin_refuse(call, ADM_UNSUPPORTED,
				    "SCSI hosts are bound to Fibre Channel targets only");
	if (luns && !name)
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "LUNs are exposed to an initiator by its name");
	warn_odd_name(call);
	if (address)
		err = iscsi_acl_add(t->scsi, ISCSI_ACL_ADDRESS, address);
	/* all or nothing; the mask before the name, so that it never sees more */
	if (!err && luns) {
		err = set_mask(t, name, luns);
		if (err && address)
			(void)!iscsi_acl_delete(t->scsi, ISCSI_ACL_ADDRESS, address);
		if (err)
			return admin_refuse(call, err == -ENOMEM ? ADM_NOMEM : ADM_INVALID_REQUEST,
					    "'%s' is not a list of LUNs such as 1,3-5", luns);
	}
	if (!err && name) {
		const struct adm_set *mask = set_find(&t->masks, name);

		err = iscsi_acl_add(t->scsi, ISCSI_ACL_NAME, name);
		if (err && address)
			(void)!iscsi_acl_delete(t->scsi, ISCSI_ACL_ADDRESS, address);
		if (!err && mask && mask->original)
			err = set_mask(t, name, NULL);
	}
	return acl_status(call, err, name ? name : address);
}

enum adm_status verb_target_unbind(struct adm_call *call)
{
	struct adm_target *t = call_target(call);
	const char *address = call->req.text[ADM_T_ADDRESS];
	const char *name = call->req.text[ADM_T_INITIATOR];
	int err = 0;

	if (!t)
		return ADM_NO_TARGET;
	if (call_waits(call, t))
		return ADM_PENDING;
	if (call->req.text[ADM_T_NAME])
		return bind_portal(call, t, false);
	if (!address && !name)
		return ADM_NO_BINDING;
	if (address)
		err = iscsi_acl_delete(t->scsi, ISCSI_ACL_ADDRESS, address);
	if (!err && name) {
		err = iscsi_acl_delete(t->scsi, ISCSI_ACL_NAME, name);
		if (!err)
			err = unmask(t, name);
	}
	return acl_status(call, err, name ? name : address);
}

enum adm_status verb_target_update(struct adm_call *call)
{
	struct adm_target *t = call_target(call);
	const char *name = call->req.text[ADM_T_NAME], *value = call->req.text[ADM_T_VALUE];
	const char *iqn = call->req.text[ADM_T_INITIATOR], *luns = call->req.text[ADM_T_EXPOSE];

	if (!t)
		return ADM_NO_TARGET;
	if (call_waits(call, t))
		return ADM_PENDING;
	if (iqn && luns && call->req.text[ADM_T_PARAMS])
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "one at a time: what an initiator sees, or its limits");
	if (iqn && luns) {
		int err = set_mask(t, iqn, luns);

		if (err)
			return admin_refuse(call, err == -ENOMEM ? ADM_NOMEM : ADM_INVALID_REQUEST,
					    "'%s' is not a list of LUNs such as 1,3-5, nor all",
					    luns);
		return ADM_OK;
	}
	if (iqn && call->req.text[ADM_T_PARAMS])
		return limit_update(call, t);
	if (!name || !value)
		return admin_refuse(call, ADM_INVALID_REQUEST, "a name and a value are needed");
	return target_set(call, t, name, value);
}
