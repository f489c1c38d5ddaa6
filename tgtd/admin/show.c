/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What `show` and `stat` print: tgt's formats, to the space, because scripts cut them with sed. The
 * golden files in tests/integration/golden hold them.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cache/blk/blk_overdue.h"
#include "cache/engine/apart.h"
#include "events/bug.h"
#include "events/log.h"
#include "events/longwork.h"
#include "events/metrics.h"
#include "tgtd/admin/admin_int.h"
#include "tgtd/isns/isns.h"
#include "tgtd/iscsi/iscsi.h"

#define IN1 "    "
#define IN2 IN1 IN1
#define IN3 IN2 IN1

const char *show_driver_state(unsigned driver)
{
	ASSERT(driver < ADM_DRIVERS);
	if (adm.lld_stopped[driver])
		return "stopped";
	return driver == ADM_DRIVER_ISER && !adm_iser_runs() ? "uninitialized" : "ready";
}

static const char *yes(bool b)
{
	return b ? "Yes" : "No";
}

/* ---- targets --------------------------------------------------------------------------------- */

struct nexus_walk {
	struct adm_out *out;
	uint32_t last;
	bool any;
};

static void show_nexus(const struct iscsi_conn_info *info, void *arg)
{
	struct nexus_walk *w = arg;

	if (!w->any || info->tsih != w->last)
		out_printf(w->out, IN2 "I_T nexus: %u\n" IN3 "Initiator: %s alias: %s\n",
			   info->tsih, info->initiator, *info->alias ? info->alias : "none");
	w->any = true;
	w->last = info->tsih;
	out_printf(w->out, IN3 "Connection: %u\n" IN3 IN1 "%sIP Address: %s\n", info->cid,
		   info->iser ? "RDMA " : "", info->address);
}

const char *show_type_name(uint8_t type)
{
	switch (type) {
	case ADM_TYPE_DISK:
		return "disk";
	case ADM_TYPE_CD:
		return "cd/dvd";
	case ADM_TYPE_CONTROLLER:
		return "controller";
	default:
		return "unknown";
	}
}

/* Decimal megabytes, rounded, as disks are sold. */
static uint64_t megabytes(uint64_t bytes)
{
	return bytes / 1000000 + (bytes % 1000000 >= 500000);
}

const char *show_flags_text(uint8_t flags)
{
	static const char *const text[] = {
		[0] = "", [ADM_BS_SYNC] = "sync", [ADM_BS_DIRECT] = "direct",
		[ADM_BS_SYNC | ADM_BS_DIRECT] = "sync:direct",
	};

	return text[flags & (ADM_BS_SYNC | ADM_BS_DIRECT)];
}

static void show_lu(struct adm_out *out, const struct adm_target *t, struct scsi_lu *scsi)
{
	struct scsi_lu_info info;

	scsi_lu_get_info(scsi, &info);
	const struct adm_lu *lu = registry_lu(t, info.conf.lun);
	bool controller = info.conf.device_type == ADM_TYPE_CONTROLLER;
	bool medium = lu && lu->path;

	out_printf(out,
		   IN2 "LUN: %u\n" IN3 "Type: %s\n" IN3 "SCSI ID: %s\n" IN3 "SCSI SN: %s\n" IN3
		       "Size: %" PRIu64 " MB, Block size: %u\n" IN3 "Online: %s\n" IN3
		       "Removable media: %s\n" IN3 "Prevent removal: %s\n" IN3 "Readonly: %s\n" IN3
		       "SWP: %s\n" IN3 "Thin-provisioning: %s\n" IN3 "Backing store type: %s\n" IN3
		       "Backing store path: %s\n" IN3 "Backing store flags: %s\n",
		   info.conf.lun, show_type_name(info.conf.device_type), info.conf.scsi_id,
		   info.conf.scsi_sn, medium ? megabytes(info.size) : 0,
		   controller ? 1 : info.block_size, yes(info.conf.online),
		   yes(info.conf.removable), yes(info.prevent_removal), yes(info.conf.readonly),
		   yes(info.conf.swp), yes(info.conf.thin_provisioning), lu ? lu->bstype : "null",
		   medium ? lu->path : "None", show_flags_text(lu ? lu->flags : 0));
	/* Nothing that tools know: only where it is so, or where somebody has to look. */
	char limits[SCSI_LIMIT_TEXT];

	scsi_limit_print(&info.conf.limit, limits, sizeof(limits));
	if (*limits)
		out_printf(out, IN3 "Limits: %s\n", limits);
	const char *doubt = info.conf.blk ? blk_doubt(info.conf.blk) : NULL;

	if (doubt)
		out_printf(out, IN3 "In doubt: %s\n", doubt);
	if (lu && lu->late)
		out_printf(out, IN3 "Late: its store is being opened, and does not answer\n");
	char name[NAMES_TEXT];

	if (lu && names_say(lu, name))
		out_printf(out, IN3 "Replaced: its path %s\n", name);
	if (lu && lu->apart)
		out_printf(out, IN3 "Apart: " APART_WHY "\n");
	if (info.conf.blk && blk_overdue_ns(info.conf.blk))
		out_printf(out, IN3 "Hangs: a request has not been answered for %" PRIu64 " s\n",
			   (uint64_t)(blk_overdue_ns(info.conf.blk) / NSEC_PER_SEC));
}

struct tie_walk {
	struct adm_out *out;
	struct scsi_target *target;
	const char *before; /* the next name */
};

static void show_tie(const char *iqn, void *arg)
{
	struct tie_walk *w = arg;

	out_printf(w->out, "%s%s", w->before, iqn);
	w->before = ",";
}

/* An account that logs in under some names only is marked; tgt has no such thing. */
static void show_incoming(const char *user, bool outgoing, void *arg)
{
	struct tie_walk *w = arg;

	if (outgoing)
		return;
	out_printf(w->out, IN2 "%s", user);
	w->before = " (names ";
	iscsi_account_each_tie(w->target, user, show_tie, w);
	out_puts(w->out, *w->before == ',' ? ")\n" : "\n");
}

static void show_outgoing(const char *user, bool outgoing, void *arg)
{
	if (outgoing)
		out_printf(arg, IN2 "%s (outgoing)\n", user);
}

struct acl_walk {
	struct adm_out *out;
	const struct adm_target *target;
};

static void show_address(const char *rule, void *arg)
{
	struct acl_walk *w = arg;

	out_printf(w->out, IN2 "%s\n", rule);
}

/* An initiator that sees some LUNs only is marked; tgt has no such thing. */
static void show_initiator(const char *rule, void *arg)
{
	struct acl_walk *w = arg;
	const struct adm_set *mask = set_find(&w->target->masks, rule);

	out_printf(w->out, mask ? IN2 "%s (LUNs %s)\n" : IN2 "%s\n", rule, mask ? mask->value : "");
}

static void show_target(struct adm_out *out, struct adm_target *t)
{
	struct nexus_walk nexuses = { .out = out };
	struct acl_walk acl = { .out = out, .target = t };
	struct tie_walk ties = { .out = out, .target = t->scsi };
	unsigned n;

	out_printf(out,
		   "Target %u: %s\n" IN1 "System information:\n" IN2 "Driver: %s\n" IN2
		   "State: %s\n",
		   t->tid, scsi_target_name(t->scsi), driver_names[t->driver],
		   t->offline ? "offline" : "ready");
	n = iscsi_target_nop_interval(t->scsi);
	if (n)
		out_printf(out, IN2 "Nop interval: %u\n", n);
	n = iscsi_target_nop_count(t->scsi);
	if (n)
		out_printf(out, IN2 "Nop count: %u\n", n);
	out_puts(out, IN1 "I_T nexus information:\n");
	iscsi_conn_each(t->scsi, show_nexus, &nexuses);
	out_puts(out, IN1 "LUN information:\n");
	for (struct scsi_lu *lu = scsi_lu_next(t->scsi, NULL); lu; lu = scsi_lu_next(t->scsi, lu))
		show_lu(out, t, lu);
	out_puts(out, IN1 "Account information:\n");
	iscsi_account_each_bound(t->scsi, show_incoming, &ties);
	iscsi_account_each_bound(t->scsi, show_outgoing, out);
	out_puts(out, IN1 "ACL information:\n");
	iscsi_acl_each(t->scsi, ISCSI_ACL_ADDRESS, show_address, &acl);
	iscsi_acl_each(t->scsi, ISCSI_ACL_NAME, show_initiator, &acl);
}

void show_targets(struct adm_call *call)
{
	for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t))
		show_target(&call->out, registry_target(scsi_target_tid(t)));
}

static void show_key(const char *key, const char *value, void *arg)
{
	out_printf(arg, "%s=%s\n", key, value);
}

static const char *key_set(const struct adm_target *t, const char *key)
{
	const struct adm_set *set = set_find(&t->keys, key);

	return set ? set->value : "";
}

/* The target port groups, and the LUs for which an initiator has set other states. */
static void show_alua(struct adm_out *out, struct scsi_target *t)
{
	static const char *const keys[] = { "alua_groups", "alua_preferred",
					    "alua_transition_time" };
	char text[SCSI_TPGS_TEXT];
	uint8_t state[SCSI_TPG_MAX];
	struct scsi_tpgs g;

	scsi_target_tpgs(t, &g);
	scsi_tpgs_print(&g, "alua_state", text, sizeof(text));
	out_printf(out, "alua_state=%s\n", text);
	for (struct scsi_lu *lu = scsi_lu_next(t, NULL); lu; lu = scsi_lu_next(t, lu)) {
		struct scsi_lu_info info;

		if (!scsi_lu_alua(lu, state))
			continue;
		scsi_lu_get_info(lu, &info);
		scsi_alua_print(&g, state, text, sizeof(text));
		out_printf(out, "alua_state of LUN %u=%s\n", info.conf.lun, text);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(keys); i++) {
		scsi_tpgs_print(&g, keys[i], text, sizeof(text));
		if (strcmp(text, "0") && *text)
			out_printf(out, "%s=%s\n", keys[i], text);
	}
}

/* A target that sends initiators elsewhere shows only that. */
void show_target_keys(struct adm_out *out, struct adm_target *t)
{
	const char *address = key_set(t, "RedirectAddress"), *reason = key_set(t, "RedirectReason");

	if (*address) {
		out_printf(out, "RedirectAddress=%s\nRedirectPort=%s\nRedirectReason=%s\n", address,
			   key_set(t, "RedirectPort"), *reason ? reason : "Unknown");
		return;
	}
	out_printf(out, "nop_interval=%u\nnop_count=%u\n", iscsi_target_nop_interval(t->scsi),
		   iscsi_target_nop_count(t->scsi));
	out_printf(out, "data_out_timeout=%u\n", iscsi_target_data_out_timeout(t->scsi));
	iscsi_target_each_key(t->scsi, show_key, out);
	out_printf(out, "MaxQueueCmd=%u\n", iscsi_target_max_queue_cmd(t->scsi));
	if (*key_set(t, "default-mask"))
		out_printf(out, "default-mask=%s\n", key_set(t, "default-mask"));
	out_printf(out, "allow_target_reset=%s\nallow_explicit_alua=%s\n",
		   yes(scsi_target_allows(t->scsi, SCSI_ALLOW_RESET)),
		   yes(scsi_target_allows(t->scsi, SCSI_ALLOW_ALUA)));
	show_alua(out, t->scsi);
	if (*key_set(t, "portals"))
		out_printf(out, "portals=%s\n", key_set(t, "portals"));
	struct adm_set *set;

	list_for_each(set, &t->limits, link)
		out_printf(out, "limits of %s=%s\n", set->key, set->value);
}

/* ---- system ---------------------------------------------------------------------------------- */

struct discovery_walk {
	struct adm_out *out;
	bool any, outgoing;
};

static void show_discovery_user(const char *user, bool outgoing, void *arg)
{
	struct discovery_walk *w = arg;

	if (outgoing != w->outgoing)
		return;
	if (!w->any)
		out_puts(w->out, IN1 "Account information:\n\n");
	w->any = true;
	out_printf(w->out, outgoing ? IN1 "%s (outgoing)\n" : IN1 "%s\n", user);
}

void show_system(struct adm_call *call)
{
	struct adm_out *out = &call->out;
	struct discovery_walk users = { .out = out };

	out_printf(out,
		   "System:\n" IN1 "State: %s\n" IN1 "debug: %s\n"
		   "LLDs:\n",
		   adm.offline ? "offline" : "ready", log_level() >= LOG_LVL_DEBUG ? "on" : "off");
	for (unsigned d = 0; d < ADM_DRIVERS; d++)
		out_printf(out, IN1 "%s: %s\n", driver_names[d], show_driver_state(d));
	out_puts(out, "Backing stores:\n");
	for (unsigned i = 0; blk_bstypes[i]; i++) {
		bool file = !strcmp(blk_bstypes[i], "rdwr") || !strcmp(blk_bstypes[i], "aio");

		out_printf(out, file ? IN1 "%s (bsoflags sync:direct)\n" : IN1 "%s\n",
			   blk_bstypes[i]);
	}
	out_puts(out, "Device types:\n" IN1 "disk\n" IN1 "controller\n");
	iscsi_account_each_bound(NULL, show_discovery_user, &users);
	users.outgoing = true;
	iscsi_account_each_bound(NULL, show_discovery_user, &users);
	out_printf(out,
		   "iSNS:\n" IN1 "iSNS=%s\n" IN1 "iSNSServerIP=%s\n" IN1 "iSNSServerPort=%u\n" IN1
		   "iSNSAccessControl=%s\n",
		   isns_is_on() ? "On" : "Off", adm.isns_server, adm.isns_port,
		   adm.isns_access_control ? "On" : "Off");
	show_processes(out);
	/* Nothing that tools know: only where somebody has set it. */
	if (adm.refuse_weak)
		out_puts(out, "Secrets:\n" IN1 "weak_secrets=refuse\n");
	if (!iscsi_default_mask())
		out_puts(out, "Masks:\n" IN1 "default-mask=none\n");
}

static void show_failed(const struct iscsi_failed_logins *f, void *arg)
{
	out_printf(arg, "%s %s: %" PRIu64 " failed, the last %" PRIu64 " s ago, %u wait\n",
		   f->address, *f->user ? f->user : "?", f->failures, f->seconds, f->waiting);
}

void show_failed_logins(struct adm_call *call)
{
	iscsi_failed_logins_each(show_failed, &call->out);
}

void show_stores(struct adm_call *call)
{
	const unsigned most = 2; /* lines, which the answer has room for */
	const struct adm_lu *more = NULL;
	unsigned replaced = 0;
	char text[NAMES_TEXT];

	for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t)) {
		const struct adm_target *from = registry_target(scsi_target_tid(t));

		for (struct scsi_lu *lu = scsi_lu_next(t, NULL); lu; lu = scsi_lu_next(t, lu)) {
			struct scsi_lu_info info;

			scsi_lu_get_info(lu, &info);
			const struct adm_lu *known = registry_lu(from, info.conf.lun);

			if (known && known->path)
				out_printf(&call->out, "%u %u %" PRIu64 " %u\n", from->tid,
					   info.conf.lun, info.size, info.block_size);
			if (!known || !names_say(known, text))
				continue;
			if (replaced++ < most)
				names_warn(call, known);
			else
				more = known;
		}
	}
	if (more)
		warn_unlogged(call,
			      "so it is of %u units more, target %u LUN %u among them: see tgtadm "
			      "--mode target --op show",
			      replaced - most, more->target->tid, more->lun);
}

void show_work(struct adm_call *call)
{
	struct longwork_info work[WORK_SHOWN];
	const unsigned n = longwork_get(work, WORK_SHOWN);

	for (unsigned i = 0; i < MIN(n, WORK_SHOWN); i++) {
		char text[LONGWORK_NAME + 120];

		longwork_text(&work[i], text, sizeof(text));
		out_printf(&call->out, "%s\n", text);
	}
	if (n > WORK_SHOWN)
		out_printf(&call->out, "and %u more\n", n - WORK_SHOWN);
}

void show_llds(struct adm_call *call)
{
	struct adm_out *out = &call->out;

	out_puts(out, "LLDs:\n");
	for (unsigned d = 0; d < ADM_DRIVERS; d++) {
		out_printf(out, IN1 "%s: %s\n", driver_names[d], show_driver_state(d));
		for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t))
			if (registry_target(scsi_target_tid(t))->driver == d)
				out_printf(out, IN2 "Target %u: %s\n", scsi_target_tid(t),
					   scsi_target_name(t));
	}
}

static void show_account(const char *user, void *arg)
{
	struct adm_out *out = arg;

	out_printf(out, out->len ? IN1 "%s\n" : "Account list:\n" IN1 "%s\n", user);
}

/* Below its account, for each name that this is tied to. */
static void show_account_tie(uint32_t tid, const char *iqn, void *arg)
{
	out_printf(arg, IN2 "tid %u: %s\n", tid, iqn);
}

void show_accounts(struct adm_call *call)
{
	iscsi_account_each(show_account, show_account_tie, &call->out);
}

static void show_portal(const char *text, void *arg)
{
	out_printf(arg, "Portal: %s\n", text);
}

/* Newest first, as tgt has them: the lines in reverse. */
void show_portals(struct adm_call *call)
{
	struct adm_out lines = { 0 };
	size_t end;

	iscsi_portal_each(show_portal, &lines);
	end = lines.len;
	while (end) {
		size_t from = end - 1;

		while (from && lines.buf[from - 1] != '\n')
			from--;
		out_printf(&call->out, "%.*s", (int)(end - from), lines.buf + from);
		end = from;
	}
	call->out.failed |= lines.failed;
	out_free(&lines);
}

/* ---- sessions and connections ---------------------------------------------------------------- */

static void show_connection(const struct iscsi_conn_info *info, void *arg)
{
	out_printf(arg,
		   "Session: %u\n" IN1 "Connection: %u\n" IN2 "Initiator: %s\n" IN2
		   "%sIP Address: %s\n",
		   info->tsih, info->cid, info->initiator, info->iser ? "RDMA " : "",
		   info->address);
}

void show_connections(struct adm_call *call, struct adm_target *t)
{
	iscsi_conn_each(t->scsi, show_connection, &call->out);
}

struct conn_walk {
	struct adm_call *call;
	uint32_t tid, tsih; /* of the session last seen */
	bool any, session, connection;
};

static bool wanted(const struct adm_call *call, const struct iscsi_conn_info *info)
{
	return !call->req.has_sid || call->req.sid == info->tsih;
}

static void show_session(const struct iscsi_conn_info *info, void *arg)
{
	struct conn_walk *w = arg;
	struct adm_out *out = &w->call->out;

	if (!w->any || w->tid != info->tid || w->tsih != info->tsih)
		out_printf(out,
			   "Session: %u\n" IN1 "Target: %u\n" IN1 "Initiator: %s alias: %s\n" IN1
			   "Thread: %s\n",
			   info->tsih, info->tid, info->initiator,
			   *info->alias ? info->alias : "none",
			   info->thread ? info->thread : "none");
	w->any = true;
	w->tid = info->tid;
	w->tsih = info->tsih;
	out_printf(out, IN1 "Connection: %u\n" IN2 "%sIP Address: %s\n", info->cid,
		   info->iser ? "RDMA " : "", info->address);
	if (*info->channel)
		out_printf(out, IN2 "Completion channel: %s\n", info->channel);
}

static void find_session(const struct iscsi_conn_info *info, void *arg)
{
	struct conn_walk *w = arg;

	if (w->session || !wanted(w->call, info))
		return;
	w->session = true;
	w->tid = info->tid;
}

/* With a session id: the keys in force. Without: the sessions, of all targets or one. */
enum adm_status show_sessions(struct adm_call *call, struct adm_out *out, struct adm_target *t)
{
	struct scsi_target *scsi = t ? t->scsi : NULL;
	struct conn_walk w = { .call = call };

	if (!call->req.has_sid) {
		iscsi_conn_each(scsi, show_session, &w);
		return ADM_OK;
	}
	iscsi_conn_each(scsi, find_session, &w);
	if (!w.session ||
	    iscsi_session_each_key(w.tid, (uint32_t)call->req.sid, show_key, out))
		return ADM_NO_SESSION;
	return ADM_OK;
}

/* ---- the daemon's own counters --------------------------------------------------------------- */

bool show_metrics(struct adm_call *call, const char *prefix)
{
	size_t len = strcmp(prefix, "all") ? strlen(prefix) : 0;
	bool any = false;

	for (unsigned m = 0; m < METRIC_COUNT; m++) {
		const char *name = metric_name((enum metric)m);

		if (strncmp(name, prefix, len))
			continue;
		any = true;
		out_printf(&call->out, "%s %" PRIu64 "\n", name, metric_read((enum metric)m));
	}
	return any;
}

void show_counters(struct adm_call *call)
{
	for (enum metric m = 0; m < METRIC_COUNT; m++)
		out_printf(&call->out, "%s %s%s: %s\n", metric_name(m),
			   metric_kind(m) == METRIC_KIND_GAUGE ? "gauge" : "counter",
			   strcmp(metric_unit(m), "By") ? "" : " of bytes", metric_help(m));
}

/* ---- statistics ------------------------------------------------------------------------------ */

void stat_header(struct adm_call *call)
{
	out_puts(&call->out, "tgt lun sid rd_subm(bytes,cmds) rd_done(bytes,cmds) "
			     "wr_subm(bytes,cmds) wr_done(bytes,cmds) errs\n");
}

static void show_stat_line(struct adm_out *out, uint32_t tid, uint32_t lun, uint32_t tsih,
			   const struct scsi_lu_stats *s)
{
	out_printf(out,
		   "%3u %3u %3u %12" PRIu64 " %6" PRIu64 " %12" PRIu64 " %6" PRIu64 " %12" PRIu64
		   " %6" PRIu64 " %12" PRIu64 " %6" PRIu64 " %4" PRIu64 "\n",
		   tid, lun, tsih, s->rd_subm_bytes, s->rd_subm_cmds, s->rd_done_bytes,
		   s->rd_done_cmds, s->wr_subm_bytes, s->wr_subm_cmds, s->wr_done_bytes,
		   s->wr_done_cmds, s->errs);
}

/* The sessions of a target, collected once. */
struct tsih_list {
	uint32_t *tsih;
	size_t n, cap;
	bool failed;
};

static void collect_tsih(const struct iscsi_conn_info *info, void *arg)
{
	struct tsih_list *l = arg;

	if (l->failed || (l->n && l->tsih[l->n - 1] == info->tsih))
		return;
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 64;
		uint32_t *p = realloc(l->tsih, cap * sizeof(*p));

		if (!p) {
			l->failed = true;
			return;
		}
		l->tsih = p;
		l->cap = cap;
	}
	l->tsih[l->n++] = info->tsih;
}

static void stat_lu_sessions(struct adm_out *out, uint32_t tid, struct scsi_lu *lu, uint32_t lun,
			     const struct tsih_list *l)
{
	struct scsi_lu_stats stats;

	for (size_t i = 0; i < l->n; i++) {
		struct scsi_nexus *nexus = iscsi_session_nexus(tid, l->tsih[i]);

		if (!nexus)
			continue;
		scsi_lu_get_stats(lu, nexus, &stats);
		show_stat_line(out, tid, lun, l->tsih[i], &stats);
	}
}

void stat_lu(struct adm_call *call, struct adm_lu *lu)
{
	struct tsih_list l = { 0 };

	iscsi_conn_each(lu->target->scsi, collect_tsih, &l);
	stat_lu_sessions(&call->out, lu->target->tid, lu->scsi, lu->lun, &l);
	call->out.failed |= l.failed;
	free(l.tsih);
}

static void stat_target_sessions(struct adm_call *call, struct adm_target *t,
				 const struct tsih_list *l)
{
	struct scsi_lu_info info;

	for (struct scsi_lu *lu = l->n ? scsi_lu_next(t->scsi, NULL) : NULL; lu;
	     lu = scsi_lu_next(t->scsi, lu)) {
		scsi_lu_get_info(lu, &info);
		stat_lu_sessions(&call->out, t->tid, lu, info.conf.lun, l);
	}
}

void stat_target(struct adm_call *call, struct adm_target *t)
{
	struct tsih_list l = { 0 };

	iscsi_conn_each(t->scsi, collect_tsih, &l);
	stat_target_sessions(call, t, &l);
	call->out.failed |= l.failed;
	free(l.tsih);
}

static void stat_conn_line(struct adm_out *out, const struct iscsi_conn_info *info)
{
	out_printf(out,
		   "%3u %3u %13" PRIu64 " %13" PRIu64 " %12" PRIu64 " %11" PRIu64 " %8" PRIu64
		   " %8" PRIu64 "\n",
		   info->tsih, info->cid, info->stats.rxdata_octets, info->stats.txdata_octets,
		   info->stats.dataout_pdus, info->stats.datain_pdus, info->stats.cmd_pdus,
		   info->stats.rsp_pdus);
}

static const char conn_header[] =
	"sid cid rxdata_octets txdata_octets dataout_pdus datain_pdus cmd_pdus rsp_pdus\n";

static void stat_conn(const struct iscsi_conn_info *info, void *arg)
{
	struct conn_walk *w = arg;
	const struct adm_req *req = &w->call->req;

	if (!wanted(w->call, info))
		return;
	w->session = true;
	if (req->mode == ADM_CONN && req->has_cid && req->cid != info->cid)
		return;
	if (!w->connection)
		out_printf(&w->call->out, w->call->out.len ? "\n%s" : "%s", conn_header);
	w->connection = true;
	stat_conn_line(&w->call->out, info);
}

enum adm_status stat_connections(struct adm_call *call, struct adm_target *t)
{
	struct conn_walk w = { .call = call };

	iscsi_conn_each(t ? t->scsi : NULL, stat_conn, &w);
	if (call->req.has_sid && !w.session)
		return ADM_NO_SESSION;
	return call->req.has_cid && !w.connection ? ADM_NO_CONNECTION : ADM_OK;
}

/* What a session does on each LU, then on its connections. Without a session id: all of them. */
enum adm_status stat_sessions(struct adm_call *call, struct adm_target *t)
{
	struct conn_walk w = { .call = call };
	uint32_t tsih = (uint32_t)call->req.sid;
	struct tsih_list one = { .tsih = &tsih, .n = 1 };

	iscsi_conn_each(t ? t->scsi : NULL, find_session, &w);
	if (!w.session)
		return ADM_NO_SESSION;
	stat_header(call);
	if (call->req.has_sid) {
		stat_target_sessions(call, registry_target(w.tid), &one);
	} else if (t) {
		stat_target(call, t);
	} else {
		for (struct scsi_target *s = scsi_target_next(NULL); s; s = scsi_target_next(s))
			stat_target(call, registry_target(scsi_target_tid(s)));
	}
	return stat_connections(call, t);
}
