/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The machine at one time, for programs that draw or count it (tgt-exporter, tgt-top): the daemon's
 * counters, nodes of the cache and their partitions, threads, targets, LUs, sessions. Counters
 * count from the daemon's start; what is read at two times becomes a rate with "monotonic_ns".
 *
 * A thousand LUs are read in many steps, so figures of different rows are of slightly different
 * times. Nothing here is read under a lock for longer than its own layer takes it.
 */
#include <unistd.h>

#include "cache/engine/stat.h"
#include "events/bug.h"
#include "events/clock.h"
#include "events/metrics.h"
#include "tgtd/admin/json.h"
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/scsi/lu_perf.h"

/* ---- each part writes some of itself; false: that was all ------------------------------------ */

static bool some_head(struct doc *d)
{
	doc_add(d, "version", doc_text(TGT_VERSION));
	doc_add(d, "pid", json_integer(getpid()));
	doc_add(d, "state", doc_text(adm.offline ? "offline" : "ready"));
	doc_add(d, "realtime_ns", json_integer((json_int_t)clock_realtime_ns()));
	doc_add(d, "monotonic_ns", json_integer((json_int_t)clock_now_ns()));
	if (adm.conf.cache) {
		struct cache_info info;

		cache_get_info(adm.conf.cache, &info);
		doc_add(d, "cache_bytes", json_integer((json_int_t)info.size));
		doc_add(d, "block_size", json_integer(info.block));
		doc_add(d, "affinity", doc_text(cache_affinity_name(info.affinity)));
	}
	return false;
}

static bool some_counters(struct doc *d)
{
	const enum metric m = (enum metric)d->at;

	/* a sum over threads, of which there may be thousands: one at a time */
	doc_add(d, metric_name(m), json_integer((json_int_t)metric_read(m)));
	return ++d->at < METRIC_COUNT;
}

static bool some_nodes(struct doc *d)
{
	json_t *row, *resident = json_array(), *dirty = json_array(), *blocks = json_array();
	struct cache_info info = { 0 };

	if (adm.conf.cache)
		cache_get_info(adm.conf.cache, &info);
	if (d->at >= info.nodes) {
		json_decref(resident);
		json_decref(dirty);
		json_decref(blocks);
		return false;
	}
	row = json_cache_node(d->at);
	for (uint32_t i = 0; i < info.partitions; i++) {
		struct cache_stat s;

		cache_stat_init(&s);
		cache_stat_add_partition(adm.conf.cache, d->at, i, &s);
		doc_append(blocks, json_integer((json_int_t)s.blocks));
		doc_append(resident, json_integer((json_int_t)(s.blocks - s.free)));
		doc_append(dirty, json_integer((json_int_t)(s.dirty + s.flushing)));
	}
	doc_set(row, "partition_blocks", blocks);
	doc_set(row, "partition_resident", resident);
	doc_set(row, "partition_dirty", dirty);
	doc_add(d, NULL, row);
	return ++d->at < info.nodes;
}

static void thread_row(struct loop *loop, void *arg)
{
	struct doc *d = arg;
	struct loop_stats s;
	json_t *row;

	if (!doc_take(d))
		return;
	loop_get_stats(loop, &s);
	row = json_object();
	doc_set_text(row, "name", loop_name(loop));
	doc_set(row, "node", json_integer(loop_node(loop)));
	doc_set(row, "cpu", json_integer(loop_cpu(loop)));
	doc_set_int(row, "cpu_ns", s.cpu_ns);
	doc_set_int(row, "iterations", s.iterations);
	doc_set_int(row, "sleeps", s.sleeps);
	doc_set_int(row, "wakeups_sent", s.wakeups_sent);
	doc_set_int(row, "messages", s.messages);
	doc_set_int(row, "fd_events", s.fd_events);
	doc_add(d, NULL, row);
}

static bool some_threads(struct doc *d)
{
	loop_for_each(thread_row, d);
	return !doc_walked(d);
}

static bool some_targets(struct doc *d)
{
	struct adm_target *t = doc_target(d, true);
	json_t *row;

	if (!t)
		return false;
	row = json_object();
	doc_set_int(row, "tid", t->tid);
	doc_set_text(row, "name", scsi_target_name(t->scsi));
	doc_set_text(row, "driver", driver_names[t->driver]);
	doc_set_text(row, "state", t->offline ? "offline" : "ready");
	doc_set_int(row, "sessions", scsi_target_nexus_count(t->scsi));
	doc_add(d, NULL, row);
	return true;
}

static json_t *machine_lu(const struct adm_target *t, const struct scsi_lu *lu,
			  const struct scsi_lu_info *info)
{
	const struct adm_lu *known = registry_lu(t, info->conf.lun);
	struct lu_perf_times times;
	struct scsi_lu_stats stats;
	json_t *row = json_object();
	uint64_t idle;

	scsi_lu_get_stats(lu, NULL, &stats);
	scsi_lu_get_perf((struct scsi_lu *)(uintptr_t)lu, clock_now_ns(), &times, &idle);
	doc_set_int(row, "tid", t->tid);
	doc_set_int(row, "lun", info->conf.lun);
	doc_set_text(row, "path", known ? known->path : NULL);
	doc_set_text(row, "backing_store_type", known ? known->bstype : "null");
	doc_set_int(row, "size", info->size);
	doc_set_bool(row, "online", info->conf.online);
	doc_set_int(row, "threads", known ? known->threads : 0);
	doc_set_int(row, "dirty_bytes",
		    adm.conf.cache && info->conf.blk ? cache_dirty_of(info->conf.blk) : 0);
	doc_set_bool(row, "in_doubt", info->conf.blk && blk_doubt(info->conf.blk));
	json_lu_stats(row, &stats);
	doc_set_int(row, "rd_ns", times.rd);
	doc_set_int(row, "wr_ns", times.wr);
	doc_set_int(row, "busy_ns", times.busy);
	return row;
}

static bool some_lus(struct doc *d)
{
	struct adm_target *t = doc_target(d, false);
	struct scsi_lu_info info;
	struct scsi_lu *lu = t ? doc_lu(t, d->lun, &info) : NULL;

	if (!lu) {
		d->lun = 1; /* LUN 0 is the controller */
		return doc_target(d, true);
	}
	d->lun = info.conf.lun + 1;
	if (info.conf.lun)
		doc_add(d, NULL, machine_lu(t, lu, &info));
	return true;
}

struct machine_sessions {
	struct doc *d;
	struct iscsi_conn_info sum;
	unsigned conns;
};

static void machine_session_end(struct machine_sessions *s)
{
	const struct iscsi_conn_info *i = &s->sum;
	json_t *row;

	if (!s->conns)
		return;
	s->conns = 0;
	row = json_object();
	doc_set_int(row, "tid", i->tid);
	doc_set_int(row, "sid", i->tsih);
	doc_set_text(row, "initiator", i->initiator);
	doc_set_text(row, "address", i->address);
	doc_set_text(row, "transport", i->iser ? "iser" : "tcp");
	doc_set_text(row, "thread", i->thread);
	doc_set_int(row, "rx_bytes", i->stats.rxdata_octets);
	doc_set_int(row, "tx_bytes", i->stats.txdata_octets);
	doc_set_int(row, "commands", i->stats.cmd_pdus);
	doc_add(s->d, NULL, row);
}

static void machine_session(const struct iscsi_conn_info *info, void *arg)
{
	struct machine_sessions *s = arg;

	if (s->conns && s->sum.tsih == info->tsih) {
		s->sum.stats.rxdata_octets += info->stats.rxdata_octets;
		s->sum.stats.txdata_octets += info->stats.txdata_octets;
		s->sum.stats.cmd_pdus += info->stats.cmd_pdus;
		s->conns++;
		return;
	}
	machine_session_end(s);
	s->sum = *info;
	s->conns = 1;
}

static bool some_machine_sessions(struct doc *d)
{
	struct machine_sessions s = { .d = d };

	d->tsih = iscsi_conn_some(NULL, d->tsih, DOC_BATCH, machine_session, &s);
	machine_session_end(&s);
	return d->tsih;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static const struct {
	const char *name; /* NULL: members of the document itself */
	char bracket;
	bool (*some)(struct doc *d);
} parts[] = {
	{ NULL, 0, some_head },		 { "counters", '{', some_counters },
	{ "nodes", '[', some_nodes },	 { "threads", '[', some_threads },
	{ "targets", '[', some_targets }, { "lus", '[', some_lus },
	{ "sessions", '[', some_machine_sessions },
};

/* An even stage opens a part, an odd one writes it. */
static bool machine_step(struct doc *d)
{
	const unsigned part = d->stage / 2;

	if (!(d->stage & 1)) {
		if (parts[part].name)
			doc_open(d, parts[part].name, parts[part].bracket);
		d->at = d->seen = d->tid = d->lun = d->tsih = 0;
		d->stage++;
	}
	if (parts[part].some(d))
		return true;
	if (parts[part].name)
		doc_close(d);
	d->stage++;
	return part + 1 < ARRAY_SIZE(parts);
}

enum adm_status json_machine(struct adm_call *call)
{
	if (!call->req.json)
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "the machine is shown as JSON only: --json");
	return doc_begin(call, machine_step, 0);
}
