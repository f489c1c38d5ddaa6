/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgtadm --mode cluster: the group of gateways that this daemon is one of. */
#include "tgtd/admin/json.h"
#include "tgtd/cluster/live/group.h"

static enum adm_status no_group(struct adm_call *call)
{
	return admin_refuse(call, ADM_UNSUPPORTED,
			    "the daemon is of no group of gateways (tgtd --group)");
}

/* ---- text ------------------------------------------------------------------------------------ */

static void gateway_lines(struct adm_out *out, const struct group_conf *c, unsigned i)
{
	struct group_gateway_view v;

	group_get_gateway(i, &v);
	out_printf(out, "    Gateway: %s%s\n        Port group: %u\n        State: %s\n",
		   c->gateway[i].name, i == c->self ? " (this one)" : "", c->gateway[i].id,
		   v.state);
	if (!v.incarnation)
		return;
	out_printf(out, "        Incarnation: %llu\n        Client: %s\n",
		   (unsigned long long)v.incarnation, v.address);
	out_printf(out, "        Seen: %llu ms ago\n",
		   (unsigned long long)(v.seen_ns_ago / NSEC_PER_MSEC));
}

static void unit_lines(struct adm_out *out, const struct adm_target *t, const struct adm_lu *lu)
{
	struct group_lu_view v;

	if (!group_get_lu(lu->scsi, &v))
		return;
	out_printf(out, "    Unit: target %u LUN %u, %s\n", t->tid, lu->lun, v.id);
	out_printf(out, "        Owner: %s\n        Home: %s\n        Epoch: %llu\n", v.owner,
		   v.home, (unsigned long long)v.epoch);
	out_printf(out, "        Here: %s, %s%s%s\n", v.state, v.step, v.why ? ": " : "",
		   v.why ? v.why : "");
}

static enum adm_status cluster_text(struct adm_call *call)
{
	const struct adm_target *t;
	struct group_view v;
	struct adm_lu *lu;

	if (!group_get(&v))
		return no_group(call);
	out_printf(&call->out, "Group: %s\n    Lease: %llu ms\n", v.conf->name,
		   (unsigned long long)(v.lease_left_ns / NSEC_PER_MSEC));
	for (unsigned i = 0; i < v.conf->n; i++)
		gateway_lines(&call->out, v.conf, i);
	for (struct scsi_target *s = scsi_target_next(NULL); s; s = scsi_target_next(s)) {
		t = registry_target(scsi_target_tid(s));
		list_for_each(lu, &t->luns, link)
			unit_lines(&call->out, t, lu);
	}
	return ADM_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *gateway_row(const struct group_conf *c, unsigned i)
{
	json_t *row = json_object();
	struct group_gateway_view v;

	group_get_gateway(i, &v);
	doc_set_text(row, "name", c->gateway[i].name);
	doc_set_bool(row, "self", i == c->self);
	doc_set_int(row, "port_group", c->gateway[i].id);
	doc_set_text(row, "state", v.state);
	doc_set_int(row, "incarnation", v.incarnation);
	doc_set_text(row, "client", v.incarnation ? v.address : NULL);
	doc_set(row, "seen_ns_ago",
		v.incarnation ? json_integer((json_int_t)v.seen_ns_ago) : json_null());
	return row;
}

static void unit_row(struct doc *d, const struct adm_target *t, const struct scsi_lu *lu,
		     uint32_t lun)
{
	struct group_lu_view v;
	json_t *row;

	if (!group_get_lu(lu, &v))
		return;
	row = json_object();
	doc_set_int(row, "tid", t->tid);
	doc_set_int(row, "lun", lun);
	doc_set_text(row, "id", v.id);
	doc_set_text(row, "owner", strcmp(v.owner, "-") ? v.owner : NULL);
	doc_set_text(row, "home", v.home);
	doc_set_int(row, "epoch", v.epoch);
	doc_set_text(row, "state", v.state);
	doc_set_text(row, "step", v.step);
	doc_set_text(row, "error", v.why);
	doc_add(d, NULL, row);
}

/* A target a step, or a batch of its units. */
static bool cluster_step(struct doc *d)
{
	struct adm_target *t = d->tid ? doc_target(d, false) : NULL;
	struct scsi_lu_info info;
	struct scsi_lu *lu = NULL;
	struct group_view v;

	if (!group_get(&v))
		return false;
	if (!d->stage++) {
		doc_add(d, "name", doc_text(v.conf->name));
		doc_add(d, "lease_ns", json_integer((json_int_t)v.lease_left_ns));
		doc_open(d, "gateways", '[');
		for (unsigned i = 0; i < v.conf->n; i++)
			doc_add(d, NULL, gateway_row(v.conf, i));
		doc_close(d);
		doc_open(d, "units", '[');
	}
	for (unsigned n = 0; t && n < DOC_BATCH && (lu = doc_lu(t, d->lun, &info)); n++) {
		unit_row(d, t, lu, info.conf.lun);
		d->lun = info.conf.lun + 1;
	}
	if (lu)
		return true;
	d->lun = 0;
	if (doc_target(d, true))
		return true;
	doc_close(d);
	return false;
}

static enum adm_status cluster_json(struct adm_call *call)
{
	struct group_view v;

	return group_get(&v) ? doc_begin(call, cluster_step, 0) : no_group(call);
}

enum adm_status cluster_verb_show(struct adm_call *call)
{
	return call->req.json ? cluster_json(call) : cluster_text(call);
}
