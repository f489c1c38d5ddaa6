/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What `show` says, as JSON: targets, sessions, the daemon. Members have tgt's words where show.c
 * has them as lines. Secrets are not known here: the layers below tell names of accounts only.
 */
#include <unistd.h>

#include "cache/blk/blk_overdue.h"
#include "events/bug.h"
#include "events/log.h"
#include "events/longwork.h"
#include "tgtd/admin/json.h"
#include "tgtd/isns/isns.h"
#include "tgtd/iscsi/iscsi.h"

/* ---- sessions -------------------------------------------------------------------------------- */

/* Connections come one by one, those of a session together. */
struct session_rows {
	struct doc *d;
	json_t *row, *conns;
	uint32_t tsih;
	bool with_tid;
};

static void session_row_end(struct session_rows *s)
{
	if (s->row)
		doc_add(s->d, NULL, s->row);
	s->row = NULL;
}

static void session_row(const struct iscsi_conn_info *info, void *arg)
{
	struct session_rows *s = arg;
	json_t *conn = json_object();

	if (!s->row || info->tsih != s->tsih) {
		session_row_end(s);
		s->row = json_object();
		s->conns = json_array();
		s->tsih = info->tsih;
		doc_set_int(s->row, "sid", info->tsih);
		if (s->with_tid)
			doc_set_int(s->row, "tid", info->tid);
		doc_set_text(s->row, "initiator", info->initiator);
		doc_set_text(s->row, "alias", *info->alias ? info->alias : NULL);
		doc_set_text(s->row, "thread", info->thread);
		doc_set(s->row, "connections", s->conns);
	}
	doc_set_int(conn, "cid", info->cid);
	doc_set_text(conn, "address", info->address);
	doc_set_text(conn, "transport", info->iser ? "iser" : "tcp");
	if (*info->channel)
		doc_set_text(conn, "completion_channel", info->channel);
	doc_append(s->conns, conn);
}

/* Rows of some sessions of @t, or of all targets; false: there was none left. */
static bool some_sessions(struct doc *d, struct adm_target *t, bool with_tid)
{
	struct session_rows s = { .d = d, .with_tid = with_tid };
	uint32_t last =
		iscsi_conn_some(t ? t->scsi : NULL, d->tsih, DOC_BATCH, session_row, &s);

	session_row_end(&s);
	d->tsih = last;
	return last;
}

static bool sessions_step(struct doc *d)
{
	struct adm_target *t = d->only_tid ? registry_target(d->only_tid) : NULL;

	if (!d->stage) {
		doc_open(d, "sessions", '[');
		d->stage = 1;
	}
	if ((!d->only_tid || t) && some_sessions(d, t, true))
		return true;
	doc_close(d);
	return false;
}

enum adm_status json_sessions(struct adm_call *call, struct adm_target *t)
{
	return doc_begin(call, sessions_step, t ? t->tid : 0);
}

enum adm_status json_session_keys(struct adm_call *call, struct adm_out *lines)
{
	json_t *doc = json_object();

	doc_set_int(doc, "sid", call->req.sid);
	doc_set(doc, "keys", doc_of_lines(lines));
	return doc_answer(call, doc);
}

/* ---- targets --------------------------------------------------------------------------------- */

/* Those of @conf that are set. */
static void json_set_limits(json_t *row, const struct scsi_limit_conf *conf)
{
	for (unsigned k = 0; k < SCSI_LIMIT_KEYS; k++)
		if (scsi_limit_value(conf, k))
			doc_set_int(row, scsi_limit_keys[k], scsi_limit_value(conf, k));
}

static json_t *lu_row(const struct adm_target *t, const struct scsi_lu_info *info)
{
	const struct adm_lu *lu = registry_lu(t, info->conf.lun);
	const bool medium = lu && lu->path;
	const char *doubt = info->conf.blk ? blk_doubt(info->conf.blk) : NULL;
	json_t *row = json_object(), *limits = json_object();
	char says[NAMES_TEXT + 16] = "its path ";

	doc_set_int(row, "lun", info->conf.lun);
	doc_set_text(row, "type", show_type_name(info->conf.device_type));
	doc_set_text(row, "scsi_id", info->conf.scsi_id);
	doc_set_text(row, "scsi_sn", info->conf.scsi_sn);
	doc_set_int(row, "size", medium ? info->size : 0);
	doc_set_int(row, "block_size", info->block_size);
	doc_set_bool(row, "online", info->conf.online);
	doc_set_bool(row, "removable", info->conf.removable);
	doc_set_bool(row, "prevent_removal", info->prevent_removal);
	doc_set_bool(row, "readonly", info->conf.readonly);
	doc_set_bool(row, "swp", info->conf.swp);
	doc_set_bool(row, "thin_provisioning", info->conf.thin_provisioning);
	doc_set_bool(row, "write_cache", info->conf.write_cache);
	doc_set_int(row, "threads", lu ? lu->threads : 0);
	doc_set_text(row, "backing_store_type", lu ? lu->bstype : "null");
	doc_set_text(row, "backing_store_path", medium ? lu->path : NULL);
	doc_set_text(row, "backing_store_flags", show_flags_text(lu ? lu->flags : 0));
	json_set_limits(limits, &info->conf.limit);
	doc_set(row, "limits", limits);
	doc_set_text(row, "in_doubt", doubt);
	doc_set_text(row, "replaced", lu && names_say(lu, says + strlen(says)) ? says : NULL);
	doc_set_bool(row, "late", lu && lu->late);
	doc_set_bool(row, "apart", lu && lu->apart);
	doc_set_int(row, "hanging_ns", info->conf.blk ? blk_overdue_ns(info->conf.blk) : 0);
	return row;
}

struct tie_rows {
	json_t *names;
};

static void tie_row(const char *iqn, void *arg)
{
	struct tie_rows *ties = arg;

	doc_append(ties->names, doc_text(iqn));
}

struct bound_rows {
	struct doc *d;
	struct adm_target *t;
};

static void bound_row(const char *user, bool outgoing, void *arg)
{
	const struct bound_rows *b = arg;
	struct tie_rows ties;
	json_t *row;

	if (!doc_take(b->d))
		return;
	row = json_object();
	doc_set_text(row, "user", user);
	doc_set_bool(row, "outgoing", outgoing);
	if (!outgoing) {
		ties.names = json_array();
		iscsi_account_each_tie(b->t->scsi, user, tie_row, &ties);
		doc_set(row, "initiators", ties.names);
	}
	doc_add(b->d, NULL, row);
}

static void address_row(const char *rule, void *arg)
{
	const struct bound_rows *b = arg;

	if (doc_take(b->d))
		doc_add(b->d, NULL, doc_text(rule));
}

static void initiator_row(const char *rule, void *arg)
{
	const struct bound_rows *b = arg;
	const struct adm_set *mask;
	json_t *row;

	if (!doc_take(b->d))
		return;
	mask = set_find(&b->t->masks, rule);
	row = json_object();
	doc_set_text(row, "name", rule);
	doc_set_text(row, "luns", mask ? mask->value : "all");
	doc_add(b->d, NULL, row);
}

static bool some_limits(struct doc *d, struct adm_target *t)
{
	struct scsi_limit_conf conf;
	const struct adm_set *set;

	list_for_each(set, &t->limits, link) {
		json_t *row;

		if (!doc_take(d) || !scsi_target_get_limit(t->scsi, set->key, &conf))
			continue;
		row = json_object();
		doc_set_text(row, "name", set->key);
		json_set_limits(row, &conf);
		doc_add(d, NULL, row);
	}
	return !doc_walked(d);
}

static void target_head(struct doc *d, const struct adm_target *t)
{
	doc_open(d, NULL, '{');
	doc_add(d, "tid", json_integer(t->tid));
	doc_add(d, "name", doc_text(scsi_target_name(t->scsi)));
	doc_add(d, "driver", doc_text(driver_names[t->driver]));
	doc_add(d, "state", doc_text(t->offline ? "offline" : "ready"));
	doc_add(d, "nop_interval", json_integer(iscsi_target_nop_interval(t->scsi)));
	doc_add(d, "nop_count", json_integer(iscsi_target_nop_count(t->scsi)));
}

enum target_stage {
	T_NEXT,
	T_SESSIONS,
	T_LUS,
	T_ACCOUNTS,
	T_ADDRESSES,
	T_INITIATORS,
	T_LIMITS,
	T_END,
};

static const char *const target_parts[] = {
	[T_SESSIONS] = "sessions", [T_LUS] = "luns", [T_ACCOUNTS] = "accounts",
	[T_ADDRESSES] = "initiator_addresses", [T_INITIATORS] = "initiator_names",
	[T_LIMITS] = "initiator_limits",
};

/* Writes some of the part that d->stage says; false: that was all of it. */
static bool some_of_target(struct doc *d, struct adm_target *t)
{
	struct bound_rows b = { d, t };
	struct scsi_lu_info info;

	switch ((enum target_stage)d->stage) {
	case T_SESSIONS:
		return some_sessions(d, t, false);
	case T_LUS:
		if (!doc_lu(t, d->lun, &info))
			return false;
		doc_add(d, NULL, lu_row(t, &info));
		d->lun = info.conf.lun + 1;
		return true;
	case T_ACCOUNTS:
		iscsi_account_each_bound(t->scsi, bound_row, &b);
		return !doc_walked(d);
	case T_ADDRESSES:
		iscsi_acl_each(t->scsi, ISCSI_ACL_ADDRESS, address_row, &b);
		return !doc_walked(d);
	case T_INITIATORS:
		iscsi_acl_each(t->scsi, ISCSI_ACL_NAME, initiator_row, &b);
		return !doc_walked(d);
	case T_LIMITS:
		return some_limits(d, t);
	default:
		return false;
	}
}

static bool targets_step(struct doc *d)
{
	struct adm_target *t;

	if (d->stage != T_NEXT) {
		t = doc_target(d, false);
		if (t && some_of_target(d, t))
			return true;
		doc_close(d);
		d->lun = d->tsih = d->at = 0;
		if (++d->stage < T_END) {
			doc_open(d, target_parts[d->stage], '[');
			return true;
		}
		doc_close(d);
		d->stage = T_NEXT;
	}
	if (!d->tid)
		doc_open(d, "targets", '[');
	t = doc_target(d, true);
	if (!t) {
		doc_close(d);
		return false;
	}
	target_head(d, t);
	d->stage = T_SESSIONS;
	doc_open(d, target_parts[T_SESSIONS], '[');
	return true;
}

enum adm_status json_targets(struct adm_call *call)
{
	return doc_begin(call, targets_step, 0);
}

enum adm_status json_target_keys(struct adm_call *call, struct adm_target *t)
{
	struct adm_out lines = { 0 };
	json_t *doc = json_object();

	doc_set_int(doc, "tid", t->tid);
	doc_set_text(doc, "name", scsi_target_name(t->scsi));
	show_target_keys(&lines, t);
	doc_set(doc, "keys", doc_of_lines(&lines));
	return doc_answer(call, doc);
}

static bool stores_step(struct doc *d)
{
	struct adm_target *t = doc_target(d, false);
	struct scsi_lu_info info;

	if (!d->stage++)
		doc_open(d, "stores", '[');
	if (!t || !doc_lu(t, d->lun, &info)) {
		d->lun = 0;
		if (doc_target(d, true))
			return true;
		doc_close(d);
		return false;
	}
	d->lun = info.conf.lun + 1;
	const struct adm_lu *known = registry_lu(t, info.conf.lun);

	if (known && known->path) {
		json_t *row = json_object();

		doc_set_int(row, "tid", t->tid);
		doc_set_int(row, "lun", info.conf.lun);
		doc_set_text(row, "path", known->path);
		doc_set_int(row, "size", info.size);
		doc_set_int(row, "block_size", info.block_size);
		doc_add(d, NULL, row);
	}
	return true;
}

enum adm_status json_stores(struct adm_call *call)
{
	return doc_begin(call, stores_step, 0);
}

/* ---- the daemon ------------------------------------------------------------------------------ */

static json_t *driver_rows(void)
{
	json_t *rows = json_array();

	for (unsigned n = 0; n < ADM_DRIVERS; n++) {
		json_t *row = json_object();

		doc_set_text(row, "name", driver_names[n]);
		doc_set_text(row, "state", show_driver_state(n));
		doc_append(rows, row);
	}
	return rows;
}

static json_t *store_types(void)
{
	json_t *rows = json_array();

	for (unsigned i = 0; blk_bstypes[i]; i++)
		doc_append(rows, doc_text(blk_bstypes[i]));
	return rows;
}

static void discovery_row(const char *user, bool outgoing, void *arg)
{
	json_t *row = json_object();

	doc_set_text(row, "user", user);
	doc_set_bool(row, "outgoing", outgoing);
	doc_append(arg, row);
}

enum adm_status json_system(struct adm_call *call)
{
	json_t *doc = json_object(), *isns = json_object(), *accounts = json_array();

	doc_set_text(doc, "version", TGT_VERSION);
	doc_set_text(doc, "state", adm.offline ? "offline" : "ready");
	doc_set_bool(doc, "debug", log_level() >= LOG_LVL_DEBUG);
	doc_set(doc, "processes", json_processes());
	doc_set(doc, "drivers", driver_rows());
	doc_set(doc, "backing_stores", store_types());
	iscsi_account_each_bound(NULL, discovery_row, accounts);
	doc_set(doc, "discovery_accounts", accounts);
	doc_set_bool(isns, "on", isns_is_on());
	doc_set_text(isns, "server", adm.isns_server);
	doc_set_int(isns, "port", adm.isns_port);
	doc_set_bool(isns, "access_control", adm.isns_access_control);
	doc_set(doc, "isns", isns);
	doc_set_text(doc, "weak_secrets", adm.refuse_weak ? "refuse" : "warn");
	doc_set_text(doc, "default_mask", iscsi_default_mask() ? "all" : "none");
	return doc_answer(call, doc);
}

enum adm_status json_work(struct adm_call *call)
{
	struct longwork_info work[WORK_SHOWN];
	const unsigned n = longwork_get(work, WORK_SHOWN);
	json_t *doc = json_object(), *rows = json_array();

	for (unsigned i = 0; i < MIN(n, WORK_SHOWN); i++) {
		const struct longwork_info *w = &work[i];
		json_t *row = json_object();

		doc_set_text(row, "what", w->what);
		doc_set_text(row, "name", w->name);
		doc_set_int(row, "done", w->done);
		doc_set(row, "total", w->total ? json_integer((json_int_t)w->total) : json_null());
		doc_set_int(row, "elapsed_ns", w->elapsed_ns);
		doc_set(row, "remaining_ns",
			w->remaining_ns == UINT64_MAX ? json_null() :
							json_integer((json_int_t)w->remaining_ns));
		doc_append(rows, row);
	}
	doc_set(doc, "work", rows);
	doc_set_int(doc, "not_shown", n - MIN(n, WORK_SHOWN));
	return doc_answer(call, doc);
}

static void failed_row(const struct iscsi_failed_logins *f, void *arg)
{
	struct doc *d = arg;
	json_t *row;

	if (!doc_take(d))
		return;
	row = json_object();
	doc_set_text(row, "address", f->address);
	doc_set_text(row, "user", *f->user ? f->user : NULL);
	doc_set_int(row, "failures", f->failures);
	doc_set_int(row, "seconds_since_last", f->seconds);
	doc_set_int(row, "waiting", f->waiting);
	doc_add(d, NULL, row);
}

static bool failed_step(struct doc *d)
{
	if (!d->stage++)
		doc_open(d, "failed_logins", '[');
	iscsi_failed_logins_each(failed_row, d);
	if (!doc_walked(d))
		return true;
	doc_close(d);
	return false;
}

enum adm_status json_failed_logins(struct adm_call *call)
{
	return doc_begin(call, failed_step, 0);
}

static bool llds_step(struct doc *d)
{
	struct adm_target *t;

	if (!d->stage++) {
		doc_add(d, "drivers", driver_rows());
		doc_open(d, "targets", '[');
	}
	t = doc_target(d, true);
	if (!t) {
		doc_close(d);
		return false;
	}
	json_t *row = json_object();

	doc_set_int(row, "tid", t->tid);
	doc_set_text(row, "name", scsi_target_name(t->scsi));
	doc_set_text(row, "driver", driver_names[t->driver]);
	doc_add(d, NULL, row);
	return true;
}

enum adm_status json_llds(struct adm_call *call)
{
	return doc_begin(call, llds_step, 0);
}

/* Its ties follow each account; both belong to the account's turn. */
struct account_rows {
	struct doc *d;
	json_t *row, *ties;
};

static void account_row_end(struct account_rows *a)
{
	if (a->row)
		doc_add(a->d, NULL, a->row);
	a->row = NULL;
}

static void account_row(const char *user, void *arg)
{
	struct account_rows *a = arg;

	account_row_end(a);
	if (!doc_take(a->d))
		return;
	a->row = json_object();
	a->ties = json_array();
	doc_set_text(a->row, "user", user);
	doc_set(a->row, "ties", a->ties);
}

static void account_tie_row(uint32_t tid, const char *iqn, void *arg)
{
	struct account_rows *a = arg;
	json_t *tie;

	if (!a->row)
		return;
	tie = json_object();
	doc_set_int(tie, "tid", tid);
	doc_set_text(tie, "initiator", iqn);
	doc_append(a->ties, tie);
}

static bool accounts_step(struct doc *d)
{
	struct account_rows a = { .d = d };

	if (!d->stage++)
		doc_open(d, "accounts", '[');
	iscsi_account_each(account_row, account_tie_row, &a);
	account_row_end(&a);
	if (!doc_walked(d))
		return true;
	doc_close(d);
	return false;
}

enum adm_status json_accounts(struct adm_call *call)
{
	return doc_begin(call, accounts_step, 0);
}

static void portal_row(const char *text, void *arg)
{
	doc_append(arg, doc_text(text));
}

enum adm_status json_portals(struct adm_call *call)
{
	json_t *doc = json_object(), *portals = json_array();

	iscsi_portal_each(portal_row, portals);
	doc_set(doc, "portals", portals);
	return doc_answer(call, doc);
}
