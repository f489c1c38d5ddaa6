/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What `stat` says, as JSON: what sessions did on LUs, connections, the daemon's counters. */
#include "events/bug.h"
#include "events/metrics.h"
#include "tgtd/admin/json.h"
#include "tgtd/iscsi/iscsi.h"

void json_lu_stats(json_t *row, const struct scsi_lu_stats *s)
{
	doc_set_int(row, "rd_subm_bytes", s->rd_subm_bytes);
	doc_set_int(row, "rd_subm_cmds", s->rd_subm_cmds);
	doc_set_int(row, "rd_done_bytes", s->rd_done_bytes);
	doc_set_int(row, "rd_done_cmds", s->rd_done_cmds);
	doc_set_int(row, "wr_subm_bytes", s->wr_subm_bytes);
	doc_set_int(row, "wr_subm_cmds", s->wr_subm_cmds);
	doc_set_int(row, "wr_done_bytes", s->wr_done_bytes);
	doc_set_int(row, "wr_done_cmds", s->wr_done_cmds);
	doc_set_int(row, "errs", s->errs);
}

static void stat_row(struct doc *d, const struct adm_target *t, const struct scsi_lu_info *info,
		     const struct scsi_lu *lu, struct scsi_nexus *nexus)
{
	struct scsi_lu_stats stats;
	json_t *row = json_object();

	scsi_lu_get_stats(lu, nexus, &stats);
	doc_set_int(row, "tid", t->tid);
	doc_set_int(row, "lun", info->conf.lun);
	if (nexus)
		doc_set_int(row, "sid", d->tsih);
	json_lu_stats(row, &stats);
	doc_add(d, NULL, row);
}

/* The LU of @t that is next, as far as the request wants it. */
static struct scsi_lu *wanted_lu(struct doc *d, struct adm_target *t, struct scsi_lu_info *info)
{
	const struct adm_req *req = &d->call->req;
	const bool one = req->mode == ADM_LU;
	struct scsi_lu *lu = doc_lu(t, one && !d->lun ? (uint32_t)req->lun : d->lun, info);

	if (!lu || (one && info->conf.lun != req->lun))
		return NULL;
	d->lun = info->conf.lun + 1;
	return lu;
}

static void no_row(const struct iscsi_conn_info *info, void *arg)
{
}

/* The session of @t after d->tsih, as far as the request wants it; 0: there is none. */
static uint32_t wanted_session(struct doc *d, struct adm_target *t)
{
	const struct adm_req *req = &d->call->req;

	if (!req->has_sid)
		return iscsi_conn_some(t->scsi, d->tsih, 1, no_row, NULL);
	return !d->tsih && req->sid <= UINT16_MAX && iscsi_session_nexus(t->tid, req->sid) ?
		       (uint32_t)req->sid :
		       0;
}

/* One row, or on to the next session or target; false: that was all. */
static bool some_of_sessions(struct doc *d)
{
	struct adm_target *t = doc_target(d, false);
	struct scsi_lu_info info;

	if (t && d->tsih) {
		struct scsi_nexus *nexus = iscsi_session_nexus(t->tid, d->tsih);
		struct scsi_lu *lu = nexus ? wanted_lu(d, t, &info) : NULL;

		if (lu) {
			stat_row(d, t, &info, lu, nexus);
			return true;
		}
	}
	d->lun = 0;
	if (t) {
		d->tsih = wanted_session(d, t);
		if (d->tsih)
			return true;
	}
	d->tsih = 0;
	return doc_target(d, true);
}

/* Sums of all sessions, also of those that have gone. */
static bool some_totals(struct doc *d)
{
	struct adm_target *t = doc_target(d, false);
	struct scsi_lu_info info;
	struct scsi_lu *lu = t ? wanted_lu(d, t, &info) : NULL;

	if (lu) {
		stat_row(d, t, &info, lu, NULL);
		return true;
	}
	d->lun = 0;
	return doc_target(d, true);
}

static void conn_row(const struct iscsi_conn_info *info, void *arg)
{
	struct doc *d = arg;
	const struct adm_req *req = &d->call->req;
	json_t *row;

	if ((req->has_sid && req->sid != info->tsih) ||
	    (req->mode == ADM_CONN && req->has_cid && req->cid != info->cid))
		return;
	row = json_object();
	doc_set_int(row, "tid", info->tid);
	doc_set_int(row, "sid", info->tsih);
	doc_set_int(row, "cid", info->cid);
	doc_set_int(row, "rxdata_octets", info->stats.rxdata_octets);
	doc_set_int(row, "txdata_octets", info->stats.txdata_octets);
	doc_set_int(row, "dataout_pdus", info->stats.dataout_pdus);
	doc_set_int(row, "datain_pdus", info->stats.datain_pdus);
	doc_set_int(row, "cmd_pdus", info->stats.cmd_pdus);
	doc_set_int(row, "rsp_pdus", info->stats.rsp_pdus);
	doc_add(d, NULL, row);
}

static bool some_connections(struct doc *d)
{
	struct adm_target *t = d->only_tid ? registry_target(d->only_tid) : NULL;

	if (d->only_tid && !t)
		return false;
	d->tsih = iscsi_conn_some(t ? t->scsi : NULL, d->tsih, DOC_BATCH, conn_row, d);
	return d->tsih;
}

/* Parts of an answer; each is an array, and begins with all cursors at 0. */
static const struct part {
	const char *name;
	bool (*some)(struct doc *d);
} parts_of_lus[] = { { "statistics", some_of_sessions },
		     { "totals", some_totals },
		     { NULL, NULL } },
  parts_of_sessions[] = { { "statistics", some_of_sessions },
			  { "connections", some_connections },
			  { NULL, NULL } },
  parts_of_connections[] = { { "connections", some_connections }, { NULL, NULL } };

static bool parts_step(struct doc *d)
{
	const struct part *parts = d->call->req.mode == ADM_SESSION ? parts_of_sessions :
				   d->call->req.mode == ADM_CONN    ? parts_of_connections :
								      parts_of_lus;
	const struct part *part = &parts[d->stage];

	if (!d->at) {
		doc_open(d, part->name, '[');
		d->at = 1;
	}
	if (part->some(d))
		return true;
	doc_close(d);
	d->at = d->tid = d->lun = d->tsih = 0;
	return parts[++d->stage].name;
}

enum adm_status json_stat(struct adm_call *call, struct adm_target *t)
{
	return doc_begin(call, parts_step, t ? t->tid : 0);
}

struct conn_search {
	const struct adm_req *req;
	bool session, connection;
};

static void look_for_conn(const struct iscsi_conn_info *info, void *arg)
{
	struct conn_search *s = arg;

	if (s->req->has_sid && s->req->sid != info->tsih)
		return;
	s->session = true;
	s->connection |= !s->req->has_cid || s->req->cid == info->cid;
}

/* Statuses as stat_sessions() and stat_connections() give them. */
static struct conn_search find_conn(const struct adm_req *req, struct adm_target *t)
{
	struct conn_search s = { .req = req };

	if (req->has_sid && req->sid && req->sid <= UINT16_MAX)
		iscsi_conn_some(t ? t->scsi : NULL, (uint32_t)req->sid - 1, 1, look_for_conn, &s);
	else if (!req->has_sid)
		iscsi_conn_some(t ? t->scsi : NULL, 0, 1, look_for_conn, &s);
	return s;
}

enum adm_status json_stat_sessions(struct adm_call *call, struct adm_target *t)
{
	if (!find_conn(&call->req, t).session)
		return ADM_NO_SESSION;
	return json_stat(call, t);
}

enum adm_status json_stat_connections(struct adm_call *call, struct adm_target *t)
{
	struct conn_search s = find_conn(&call->req, t);

	if (call->req.has_sid && !s.session)
		return ADM_NO_SESSION;
	if (call->req.has_sid && call->req.has_cid && !s.connection)
		return ADM_NO_CONNECTION;
	return json_stat(call, t);
}

/* ---- the daemon's own counters --------------------------------------------------------------- */

static bool metrics_step(struct doc *d)
{
	const char *prefix = d->call->req.text[ADM_T_NAME], *name;
	size_t len = strcmp(prefix, "all") ? strlen(prefix) : 0;

	if (!d->stage++)
		doc_open(d, "counters", '{');
	name = metric_name((enum metric)d->at);
	/* a sum over threads, of which there may be thousands: one at a time */
	if (!strncmp(name, prefix, len))
		doc_add(d, name, json_integer((json_int_t)metric_read((enum metric)d->at)));
	if (++d->at < METRIC_COUNT)
		return true;
	doc_close(d);
	return false;
}

enum adm_status json_metrics(struct adm_call *call, const char *prefix)
{
	const size_t len = strcmp(prefix, "all") ? strlen(prefix) : 0;

	for (enum metric m = 0; m < METRIC_COUNT; m++)
		if (!strncmp(metric_name(m), prefix, len))
			return doc_begin(call, metrics_step, 0);
	return admin_refuse(call, ADM_INVALID_REQUEST, "no counter's name begins with '%s'",
			    prefix);
}

static bool counters_step(struct doc *d)
{
	const enum metric m = (enum metric)d->at;
	json_t *row = json_object();

	if (!d->stage++)
		doc_open(d, "counters", '[');
	doc_set_text(row, "name", metric_name(m));
	doc_set_text(row, "kind", metric_kind(m) == METRIC_KIND_GAUGE ? "gauge" : "counter");
	doc_set_text(row, "unit", strcmp(metric_unit(m), "By") ? "1" : "bytes");
	doc_set_text(row, "help", metric_help(m));
	doc_add(d, NULL, row);
	if (++d->at < METRIC_COUNT)
		return true;
	doc_close(d);
	return false;
}

enum adm_status json_counters(struct adm_call *call)
{
	return doc_begin(call, counters_step, 0);
}
