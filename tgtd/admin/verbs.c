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
#include <unistd.h>

#include "events/bug.h"
#include "events/log.h"
#include "tgtd/admin/json.h"
#include "tgtd/isns/isns.h"
#include "tgtd/iscsi/iscsi.h"

typedef enum adm_status (*verb_fn)(struct adm_call *call);

static bool driver_ready(unsigned driver)
{
	return !adm.lld_stopped[driver] && (driver != ADM_DRIVER_ISER || adm_iser_runs());
}

/* ---- system ---------------------------------------------------------------------------------- */

/* What `system show` shows by name: as text, and as JSON. */
static const struct {
	const char *name;
	void (*text)(struct adm_call *call);
	enum adm_status (*json)(struct adm_call *call);
} shown[] = {
	{ "config", export_config, json_config }, /* that tgt-admin takes back */
	{ "counters", show_counters, json_counters },
	{ "stores", show_stores, json_stores },
	{ "failed-logins", show_failed_logins, json_failed_logins },
	{ "work", show_work, json_work },
	{ "threads", show_threads, json_threads },
	{ "nodes", show_nodes, json_nodes },
};

static enum adm_status nothing_to_show(struct adm_call *call, const char *name)
{
	char names[80] = "";
	size_t n = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(shown) && n < sizeof(names); i++)
		n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", i ? ", " : "",
				      shown[i].name);
	return admin_refuse(call, ADM_INVALID_REQUEST,
			    "the system has no '%.60s' to show: it has %s", name, names);
}

static enum adm_status system_stores(struct adm_call *call)
{
	if (call->req.json)
		return json_stores(call);
	show_stores(call);
	return ADM_OK;
}

static enum adm_status system_show(struct adm_call *call)
{
	const char *name = call->req.text[ADM_T_NAME];

	/* tgt-admin asks for these, whatever it finds to do. */
	if (name && !strcmp(name, "stores"))
		return names_look(call, NULL, system_stores);
	for (unsigned i = 0; name && i < ARRAY_SIZE(shown); i++) {
		if (strcmp(name, shown[i].name))
			continue;
		if (call->req.json)
			return shown[i].json(call);
		shown[i].text(call);
		return ADM_OK;
	}
	if (name && *name)
		return nothing_to_show(call, name);
	if (call->req.json)
		return json_system(call);
	show_system(call);
	return ADM_OK;
}

/* With a name: counters of the daemon itself, or all that a picture of the machine needs. */
static enum adm_status system_stat(struct adm_call *call)
{
	const char *name = call->req.text[ADM_T_NAME];

	if (name && !strcmp(name, "machine"))
		return json_machine(call);
	if (name && *name && call->req.json)
		return json_metrics(call, name);
	if (name && *name)
		return show_metrics(call, name) ?
			       ADM_OK :
			       admin_refuse(call, ADM_INVALID_REQUEST,
					    "no counter's name begins with '%s'", name);
	if (call->req.json)
		return json_stat(call, NULL);
	stat_header(call);
	for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t))
		stat_target(call, registry_target(scsi_target_tid(t)));
	return ADM_OK;
}

static enum adm_status verbs_set_state(struct adm_call *call, const char *value)
{
	bool offline = !strcmp(value, "offline");

	if (!offline && strcmp(value, "ready"))
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "State is ready or offline, not '%s'", value);
	adm.offline = offline;
	for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t))
		apply_offline(registry_target(scsi_target_tid(t)));
	return ADM_OK;
}

static int on_off(const char *value)
{
	return !strcasecmp(value, "on") ? 1 : !strcasecmp(value, "off") ? 0 : -1;
}

static enum adm_status set_isns(struct adm_call *call, bool on)
{
	if (!on) {
		isns_off();
		return ADM_OK;
	}
	if (isns_on())
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "iSNSServerIP is '%s', which is no address", adm.isns_server);
	return ADM_OK;
}

static void warn_weak(const char *user, void *arg)
{
	warn(arg, "the password of %s has fewer than %d characters", user, ISCSI_SECRET_MIN);
}

/* Accounts that are there stay, so that nobody is locked out by it; they are told. */
static enum adm_status set_weak_secrets(struct adm_call *call, const char *value)
{
	bool refuses = !strcmp(value, "refuse");

	if (!refuses && strcmp(value, "warn"))
		return refuse_value(call, "weak_secrets", value);
	adm.refuse_weak = refuses;
	if (refuses)
		iscsi_account_each_weak(warn_weak, call);
	return ADM_OK;
}

/* A unit of bstype ram. NULL: there is none. */
static const struct adm_lu *first_in_memory(void)
{
	for (struct scsi_target *s = scsi_target_next(NULL); s; s = scsi_target_next(s)) {
		const struct adm_target *t = registry_target(scsi_target_tid(s));
		const struct adm_lu *lu;

		if (t)
			list_for_each(lu, &t->luns, link)
				if (lu->path && !strcmp(lu->bstype, "ram"))
					return lu;
	}
	return NULL;
}

/* What another worker would not have. */
static enum adm_status lost_by_restart(struct adm_call *call)
{
	const struct adm_lu *lu;

	if (!adm.conf.request_restart)
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "there is no keeper that would start another worker");
	lu = first_in_memory();
	if (lu)
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "target %u, LUN %u is memory, whose contents the next worker "
				    "would not have",
				    lu->target->tid, lu->lun);
	return ADM_OK;
}

/* The keeper alone, which says in the log and in show what came of it. */
static enum adm_status replace_keeper(struct adm_call *call)
{
	if (!adm.conf.request_replace)
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "there is no keeper that could be replaced");
	if (!call->req.check)
		adm.conf.request_replace();
	return ADM_OK;
}

static enum adm_status system_restart(struct adm_call *call, const char *value)
{
	const bool if_new = value && !strcmp(value, "if-new");
	enum adm_status status;

	ASSERT(!adm.leaving);
	if (value && !strcmp(value, "keeper"))
		return replace_keeper(call);
	if (value && !if_new && strcmp(value, "now"))
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "restart is now, if-new or keeper, not '%s'", value);
	if (if_new && adm.conf.program_is_new && !adm.conf.program_is_new())
		return ADM_OK;
	status = lost_by_restart(call);
	if (status != ADM_OK || call->req.check)
		return status;
	adm.leaving = adm.restarting = true;
	out_printf(&call->out, "worker %d is replaced\n", getpid());
	return ADM_OK;
}

static enum adm_status system_update(struct adm_call *call)
{
	const char *name = call->req.text[ADM_T_NAME], *value = call->req.text[ADM_T_VALUE];

	if (name && !strcmp(name, "restart"))
		return system_restart(call, value);
	if (!name || !value)
		return admin_refuse(call, ADM_INVALID_REQUEST, "a name and a value are needed");
	int flag = on_off(value);

	if (!strcmp(name, "State"))
		return verbs_set_state(call, value);
	if (!strcmp(name, "debug") && flag >= 0) {
		log_set_level(flag ? LOG_LVL_DEBUG : LOG_LVL_NOTICE);
		adm.debug = flag ? "on" : "off";
		return ADM_OK;
	}
	if (!strcmp(name, "iSNS") && flag >= 0)
		return set_isns(call, flag);
	if (!strcmp(name, "iSNSServerIP") && strlen(value) < sizeof(adm.isns_server)) {
		strcpy(adm.isns_server, value);
		return ADM_OK;
	}
	if (!strcmp(name, "iSNSServerPort")) {
		char *end;
		unsigned long port = strtoul(value, &end, 10);

		if (!isdigit((unsigned char)*value) || *end || !port || port > UINT16_MAX)
			return admin_refuse(call, ADM_INVALID_REQUEST, "'%s' is not a port", value);
		adm.isns_port = (unsigned)port;
		return ADM_OK;
	}
	if (!strcmp(name, "iSNSAccessControl") && flag >= 0) {
		adm.isns_access_control = flag;
		isns_access_changed();
		return ADM_OK;
	}
	if (!strcmp(name, "latency_initiators") && flag >= 0) {
		lat_initiators_set(flag);
		return ADM_OK;
	}
	if (!strcmp(name, "weak_secrets"))
		return set_weak_secrets(call, value);
	if (!strcmp(name, "default-mask")) {
		bool all = !strcmp(value, "all");

		if (!all && strcmp(value, "none"))
			return refuse_value(call, name, value);
		iscsi_set_default_mask(all);
		return ADM_OK;
	}
	return admin_refuse(call, ADM_INVALID_REQUEST, "%s=%s is not known to mode system", name,
			    value);
}

static enum adm_status system_delete(struct adm_call *call)
{
	ASSERT(!adm.leaving);
	if (adm.ntargets)
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "%u targets exist; delete them first", adm.ntargets);
	adm.leaving = true;
	return ADM_OK;
}

/* ---- portal ---------------------------------------------------------------------------------- */

static enum adm_status portal_new(struct adm_call *call)
{
	const char *text = portal_text(call);
	int err;

	if (!text)
		return admin_refuse(call, ADM_INVALID_REQUEST, "expected portal=<ip>[:<port>]");
	err = iscsi_portal_add(text);
	adm.portals_set |= !err;
	return err ? refuse_portal(call, err, text) : ADM_OK;
}

static enum adm_status portal_delete(struct adm_call *call)
{
	const char *text = portal_text(call);
	int err;

	if (!text)
		return admin_refuse(call, ADM_INVALID_REQUEST, "expected portal=<ip>[:<port>]");
	err = iscsi_portal_delete(text);
	adm.portals_set |= !err;
	return err ? refuse_portal(call, err, text) : ADM_OK;
}

static enum adm_status portal_show(struct adm_call *call)
{
	if (call->req.json)
		return json_portals(call);
	show_portals(call);
	return ADM_OK;
}

/* ---- sessions and connections ---------------------------------------------------------------- */

static enum adm_status session_show(struct adm_call *call)
{
	struct adm_target *t = call_target(call);

	if (call->req.has_tid && !t)
		return ADM_NO_TARGET;
	if (!call->req.json)
		return show_sessions(call, &call->out, t);
	if (!call->req.has_sid)
		return json_sessions(call, t);
	struct adm_out keys = { 0 };
	enum adm_status status = show_sessions(call, &keys, t);

	if (status == ADM_OK)
		return json_session_keys(call, &keys);
	out_free(&keys);
	return status;
}

static enum adm_status session_stat(struct adm_call *call)
{
	struct adm_target *t = call_target(call);

	if (call->req.has_tid && !t)
		return ADM_NO_TARGET;
	return call->req.json ? json_stat_sessions(call, t) : stat_sessions(call, t);
}

static enum adm_status conn_show(struct adm_call *call)
{
	struct adm_target *t = call_target(call);

	if (!t)
		return ADM_NO_TARGET;
	if (call->req.json)
		return json_sessions(call, t);
	show_connections(call, t);
	return ADM_OK;
}

static enum adm_status conn_stat(struct adm_call *call)
{
	struct adm_target *t = call_target(call);

	if (call->req.has_tid && !t)
		return ADM_NO_TARGET;
	return call->req.json ? json_stat_connections(call, t) : stat_connections(call, t);
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
	struct adm_target *t = call_target(call);
	struct sid_search search = { .sid = call->req.sid };

	if (!t)
		return ADM_NO_TARGET;
	if (call->req.sid <= UINT32_MAX && call->req.cid <= UINT16_MAX &&
	    !iscsi_conn_close(t->tid, (uint32_t)call->req.sid, (uint16_t)call->req.cid))
		return ADM_OK;
	iscsi_conn_each(t->scsi, look_for_sid, &search);
	return search.found ? ADM_NO_CONNECTION : ADM_NO_SESSION;
}

/* ---- drivers --------------------------------------------------------------------------------- */

static enum adm_status lld_show(struct adm_call *call)
{
	if (call->req.json)
		return json_llds(call);
	show_llds(call);
	return ADM_OK;
}

static unsigned driver_named(const struct adm_call *call)
{
	return call->req.text[ADM_T_LLD] ? call_driver(call) : ADM_DRIVER_ISCSI;
}

static enum adm_status lld_start(struct adm_call *call)
{
	unsigned driver = driver_named(call);

	if (driver == ADM_DRIVER_ISER && !adm_iser_runs() && !adm.lld_stopped[driver])
		return admin_refuse(call, ADM_UNKNOWN_ERR,
				    "iSER is not running: start the daemon with --iser");
	adm.lld_stopped[driver] = false;
	return ADM_OK;
}

/* A stopped driver takes no new targets; its portals stay, they may be the other driver's too. */
static enum adm_status lld_stop(struct adm_call *call)
{
	unsigned driver = driver_named(call), n = apply_targets_of(driver);

	if (n)
		return admin_refuse(call, ADM_DRIVER_ACTIVE, "%u targets use it", n);
	adm.lld_stopped[driver] = true;
	return ADM_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const verb_fn verbs[ADM_MODES][ADM_OPS] = {
	[ADM_SYSTEM] = {
		[ADM_SHOW] = system_show, [ADM_STAT] = system_stat,
		[ADM_UPDATE] = system_update, [ADM_DELETE] = system_delete,
		[ADM_WATCH] = watch_begin,
		[ADM_LATENCY] = verb_system_latency,
	},
	[ADM_TARGET] = {
		[ADM_NEW] = verb_target_new, [ADM_DELETE] = verb_target_delete,
		[ADM_SHOW] = verb_target_show, [ADM_STAT] = verb_target_stat,
		[ADM_BIND] = verb_target_bind, [ADM_UNBIND] = verb_target_unbind,
		[ADM_UPDATE] = verb_target_update, [ADM_LATENCY] = verb_target_latency,
	},
	[ADM_LU] = {
		[ADM_NEW] = verb_lu_new, [ADM_DELETE] = verb_lu_delete,
		[ADM_UPDATE] = verb_lu_update, [ADM_STAT] = verb_lu_stat,
		[ADM_LATENCY] = verb_lu_latency, [ADM_SLOW] = verb_lu_slow,
		[ADM_EXPLAIN] = verb_lu_explain,
	},
	[ADM_ACCOUNT] = {
		[ADM_NEW] = verb_account_new, [ADM_DELETE] = verb_account_delete,
		[ADM_BIND] = verb_account_bind, [ADM_UNBIND] = verb_account_unbind,
		[ADM_UPDATE] = verb_account_update, [ADM_SHOW] = verb_account_show,
	},
	[ADM_PORTAL] = { [ADM_NEW] = portal_new, [ADM_DELETE] = portal_delete,
			 [ADM_SHOW] = portal_show },
	[ADM_SESSION] = { [ADM_SHOW] = session_show, [ADM_STAT] = session_stat },
	[ADM_CONN] = { [ADM_SHOW] = conn_show, [ADM_STAT] = conn_stat, [ADM_DELETE] = conn_delete },
	[ADM_CACHE] = { [ADM_SHOW] = cache_verb_show, [ADM_STAT] = cache_verb_stat,
			[ADM_UPDATE] = cache_verb_update },
	[ADM_CLUSTER] = { [ADM_SHOW] = cluster_verb_show },
	[ADM_LLD] = { [ADM_START] = lld_start, [ADM_STOP] = lld_stop, [ADM_SHOW] = lld_show },
};

/* Every text ends up in a line of its own in what is shown, logged or dumped. */
static bool one_line(const struct adm_call *call)
{
	for (unsigned i = 0; i < ADM_TEXTS; i++)
		for (const char *p = call->req.text[i]; p && *p; p++)
			if ((unsigned char)*p < ' ' || *p == 0x7f)
				return false;
	return true;
}

/* Is a password right? is a question for the administrator alone. */
static bool only_looks(const struct adm_call *call)
{
	return adm_op_looks(call->req.op) && !call->req.text[ADM_T_PASSWORD];
}

void verbs_execute(struct adm_call *call)
{
	ASSERT(call->req.mode < ADM_MODES && call->req.op < ADM_OPS);
	verb_fn fn = verbs[call->req.mode][call->req.op];
	unsigned driver = call_driver(call);
	enum adm_status status;

	if (adm.restoring && !call->restored) {
		list_add_tail(&adm.parked, &call->wait);
		return;
	}
	if (call->req.text[ADM_T_LLD] && *call->req.text[ADM_T_LLD] &&
	    (driver == ADM_DRIVERS ||
	     (call->req.mode != ADM_LLD && !call->restored && !driver_ready(driver))))
		status = admin_refuse(call, ADM_NO_DRIVER, "driver '%s' is not there",
				      call->req.text[ADM_T_LLD]);
	else if (call->onlooker && !only_looks(call))
		status = admin_refuse(call, ADM_INVALID_REQUEST,
				      "members of the read-only group may show and stat, no more");
	else if (call->req.json && !only_looks(call))
		status = admin_refuse(call, ADM_INVALID_REQUEST,
				      "JSON is for what is shown, not for what changes");
	else if (!one_line(call))
		status = admin_refuse(call, ADM_INVALID_REQUEST, "control characters in a text");
	else if (adm.draining || adm.leaving)
		status = admin_refuse(call, ADM_INVALID_REQUEST, "the daemon is shutting down");
	else if ((status = record_room(call)) == ADM_OK)
		status =
			fn ? (call->req.check ? check_execute(call) : fn(call)) :
			     admin_refuse(call, ADM_INVALID_REQUEST, "mode %s has no operation %s",
					  adm_mode_name(call->req.mode), adm_op_name(call->req.op));
	if (status != ADM_PENDING)
		adm_call_done(call, status);
}
