/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgtadm --mode cluster: the group of gateways that this daemon is one of. */
#include "events/clock.h"
#include "tgtd/admin/json.h"
#include "tgtd/cluster/live/group.h"

static enum adm_status no_group(struct adm_call *call)
{
	return admin_refuse(call, ADM_UNSUPPORTED,
			    "the daemon is of no group of gateways (tgtd --group)");
}

/* ---- text ------------------------------------------------------------------------------------ */

static void pair_lines(struct adm_out *out, unsigned i)
{
	struct mirror_pair_show p;

	if (!group_get_pair(i, &p))
		return;
	out_printf(out, "        Link: %s%s%s%s, %s%s%s%s\n", p.up ? "up" : "down",
		   *p.up_by ? " (" : "", p.up_by, *p.up_by ? ")" : "",
		   p.taken ? "taken" : "not taken", *p.taken_by ? " (" : "", p.taken_by,
		   *p.taken_by ? ")" : "");
	out_printf(
		out,
		"        Frames: %llu sent (%llu KiB), %llu received (%llu KiB); %llu bytes wait\n",
		(unsigned long long)p.sum.frames_out, (unsigned long long)(p.sum.bytes_out >> 10),
		(unsigned long long)p.sum.frames_in, (unsigned long long)(p.sum.bytes_in >> 10),
		(unsigned long long)p.waits);
	if (p.ended_at)
		out_printf(out, "        Link ended: %llu times, the last %llu ms ago: %s\n",
			   (unsigned long long)p.sum.ended,
			   (unsigned long long)((clock_now_ns() - p.ended_at) / NSEC_PER_MSEC),
			   p.why);
}

static void gateway_lines(struct adm_out *out, const struct group_conf *c, unsigned i)
{
	struct group_gateway_view v;

	group_get_gateway(i, &v);
	out_printf(out, "    Gateway: %s%s\n        Port group: %u\n        State: %s\n",
		   c->gateway[i].name, i == c->self ? " (this one)" : "", c->gateway[i].id,
		   v.state);
	if (*c->gateway[i].address_text)
		out_printf(out, "        Mirrors at: %s\n", c->gateway[i].address_text);
	pair_lines(out, i);
	if (!v.incarnation)
		return;
	out_printf(out, "        Incarnation: %llu\n        Client: %s\n",
		   (unsigned long long)v.incarnation, v.address);
	out_printf(out, "        Seen: %llu ms ago\n",
		   (unsigned long long)(v.seen_ns_ago / NSEC_PER_MSEC));
}

static void mirrors_lines(struct adm_out *out)
{
	struct group_mirrors_view m;

	if (!group_get_mirrors(&m))
		return;
	out_printf(out, "    Memory for others: %llu KiB of %llu, %u units\n",
		   (unsigned long long)(m.used >> 10), (unsigned long long)(m.memory >> 10),
		   m.peer.mirrors);
	if (m.links.refused)
		out_printf(out, "    Refused connections: %llu, the last: %s\n",
			   (unsigned long long)m.links.refused, m.refused);
}

static void mirror_lines(struct adm_out *out, const struct scsi_lu *lu)
{
	struct group_mirror_view m;

	if (!group_get_lu_mirror(lu, &m))
		return;
	out_printf(out, "        Mirror: %s, epoch %llu\n        Peer: %s\n", m.state,
		   (unsigned long long)m.epoch, m.peer);
	if (m.owned)
		out_printf(out,
			   "        Mirrored: %llu KiB, %llu not confirmed; lag %llu us\n"
			   "        Mirrored so far: %llu writes, %llu batches, %llu releases, "
			   "%llu sessions, %llu dismissals\n",
			   (unsigned long long)(m.there >> 10), (unsigned long long)(m.waits >> 10),
			   (unsigned long long)(m.owner.lag_ns / NSEC_PER_USEC),
			   (unsigned long long)m.owner.writes, (unsigned long long)m.owner.batches,
			   (unsigned long long)m.owner.releases,
			   (unsigned long long)m.owner.sessions,
			   (unsigned long long)m.owner.dismissals);
	if (m.kept)
		out_printf(out, "        Kept for its owner: %llu KiB%s\n",
			   (unsigned long long)(m.kept >> 10), m.sealed ? ", sealed" : "");
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
	mirror_lines(out, lu->scsi);
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
	mirrors_lines(&call->out);
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

static json_t *pair_row(unsigned i)
{
	struct mirror_pair_show p;
	json_t *row;

	if (!group_get_pair(i, &p))
		return json_null();
	row = json_object();
	doc_set_bool(row, "up", p.up);
	doc_set_bool(row, "taken", p.taken);
	doc_set_text(row, "up_by", *p.up_by ? p.up_by : NULL);
	doc_set_text(row, "taken_by", *p.taken_by ? p.taken_by : NULL);
	doc_set_int(row, "made", p.sum.made);
	doc_set_int(row, "ended", p.sum.ended);
	doc_set_int(row, "frames_sent", p.sum.frames_out);
	doc_set_int(row, "frames_received", p.sum.frames_in);
	doc_set_int(row, "bytes_sent", p.sum.bytes_out);
	doc_set_int(row, "bytes_received", p.sum.bytes_in);
	doc_set_int(row, "bytes_waiting", p.waits);
	doc_set_text(row, "error", p.ended_at ? p.why : NULL);
	doc_set(row, "error_ns_ago",
		p.ended_at ? json_integer((json_int_t)(clock_now_ns() - p.ended_at)) : json_null());
	return row;
}

static json_t *mirrors_row(void)
{
	struct group_mirrors_view m;
	json_t *row;

	if (!group_get_mirrors(&m))
		return json_null();
	row = json_object();
	doc_set_int(row, "memory_bytes", m.memory);
	doc_set_int(row, "kept_bytes", m.used);
	doc_set_int(row, "units", m.peer.mirrors);
	doc_set_int(row, "frames", m.peer.frames);
	doc_set_int(row, "writes", m.peer.writes);
	doc_set_int(row, "releases", m.peer.releases);
	doc_set_int(row, "refused_frames", m.peer.refused);
	doc_set_int(row, "refused_connections", m.links.refused);
	doc_set_text(row, "error", m.links.refused ? m.refused : NULL);
	return row;
}

static json_t *mirror_row(const struct scsi_lu *lu)
{
	struct group_mirror_view m;
	json_t *row;

	if (!group_get_lu_mirror(lu, &m))
		return json_null();
	row = json_object();
	doc_set_text(row, "state", m.state);
	doc_set_text(row, "object", m.object);
	doc_set_text(row, "peer", strcmp(m.peer, "-") ? m.peer : NULL);
	doc_set_int(row, "epoch", m.epoch);
	doc_set_bool(row, "owned", m.owned);
	doc_set_int(row, "mirrored_bytes", m.there);
	doc_set_int(row, "unconfirmed_bytes", m.waits);
	doc_set_int(row, "lag_ns", m.owner.lag_ns);
	doc_set_int(row, "writes", m.owner.writes);
	doc_set_int(row, "batches", m.owner.batches);
	doc_set_int(row, "releases", m.owner.releases);
	doc_set_int(row, "sessions", m.owner.sessions);
	doc_set_int(row, "dismissals", m.owner.dismissals);
	doc_set_int(row, "kept_bytes", m.kept);
	doc_set_bool(row, "sealed", m.sealed);
	return row;
}

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
	doc_set_text(row, "mirrors_at",
		     *c->gateway[i].address_text ? c->gateway[i].address_text : NULL);
	doc_set(row, "link", pair_row(i));
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
	doc_set(row, "mirror", mirror_row(lu));
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
		doc_add(d, "mirrors", mirrors_row());
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
