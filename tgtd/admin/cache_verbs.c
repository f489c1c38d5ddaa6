/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgtadm --mode cache: what the cache is (show), what it does (stat: a line a node; with a target
 * and a LUN, what of that LU is in it), and its knobs (update).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/blk/dirty_record.h"
#include "cache/engine/apart.h"
#include "cache/engine/stat.h"
#include "events/bug.h"
#include "events/kept.h"
#include "events/metrics.h"
#include "tgtd/admin/json.h"

static enum adm_status no_cache(struct adm_call *call)
{
	return admin_refuse(call, ADM_UNSUPPORTED, "the daemon runs without a cache");
}

/* From how many bytes on what is done for a request goes to the node of its data. */
static void threshold_line(struct adm_out *out, const char *what, uint32_t bytes)
{
	if (bytes == UINT32_MAX)
		out_printf(out, "    %s: never\n", what);
	else
		out_printf(out, "    %s: %u bytes\n", what, bytes);
}

/* What auto has chosen, and why. */
static void choice_line(struct adm_out *out, const struct cache_info *i)
{
	static const char *const why[] = {
		[CACHE_MEASURED_NOT] = "inline: there is one node",
		[CACHE_MEASURING] = "inline: what a hop and remote memory cost is being measured",
		[CACHE_MEASURED_SIMULATED] = "forward: 64 KiB and more: nodes are simulated, "
					     "there is nothing to measure",
	};
	const bool never = (i->miss_threshold & i->threshold & i->prepare_threshold &
			    i->commit_threshold & i->send_threshold) == UINT32_MAX;

	if (i->affinity != CACHE_AFFINITY_AUTO)
		return;
	if (i->measured != CACHE_MEASURED)
		out_printf(out, "    Choice: %s\n", why[i->measured]);
	else
		out_printf(out, "    Choice: %s\n",
			   i->send_threshold != UINT32_MAX ?
				   "send: copying remote bytes costs more than a hop: a worker of "
				   "their node does it" :
			   never ? "inline: a hop costs more than remote memory does, for any "
				   "request" :
				   "forward: what is as large as the thresholds say; there a hop "
				   "costs less than remote memory");
}

/* Where the memory is that a look-up touches, node by node. */
static void where_lines(struct adm_out *out, uint32_t nodes)
{
	for (uint32_t n = 0; n < nodes; n++) {
		struct mem_where arena, index;
		char text[160];
		const int node = cache_where(adm.conf.cache, n, &arena, &index);

		if (arena.bytes)
			mem_where_text(&arena, text, sizeof(text));
		out_printf(out, "    Node %d: data: %s\n", node,
			   arena.bytes ? text : "is being prepared");
		mem_where_text(&index, text, sizeof(text));
		out_printf(out, "    Node %d: index: %s\n", node, text);
	}
}

/* @figure / @per with a digit if @per is not 1. Of one node nothing far can be measured (U9). */
static void measured_line(struct adm_out *out, const char *what, uint32_t figure, uint32_t per,
			  const char *unit)
{
	if (!figure)
		out_printf(out, "    %s: not measured\n", what);
	else if (per == 1)
		out_printf(out, "    %s: %u %s\n", what, figure, unit);
	else
		out_printf(out, "    %s: %u.%u %s\n", what, figure / per, figure * 10 / per % 10,
			   unit);
}

/* Does its memory stay where it is? The system may swap out what is not locked. */
static void lock_line(struct adm_out *out, const struct cache_info *i)
{
	const char *why = cache_lock_why(i);

	if (i->preparing)
		out_puts(out, "    Memory: is being prepared\n");
	else if (i->locked == i->lockable)
		out_puts(out, "    Memory: locked\n");
	else if (!why)
		out_printf(out, "    Memory: is being locked: %" PRIu64 " of %" PRIu64 " MiB\n",
			   i->locked >> 20, DIV_ROUND_UP(i->lockable, MiB(1)));
	else if (i->locked)
		out_printf(out,
			   "    Memory: locked in part: %" PRIu64 " of %" PRIu64
			   " MiB, because %s\n",
			   i->locked >> 20, DIV_ROUND_UP(i->lockable, MiB(1)), why);
	else
		out_printf(out, "    Memory: not locked: %s\n", why);
}

/* Its size, when that has changed or does, and whether its memory stays where it is. */
static void size_lines(struct adm_out *out, const struct cache_info *i)
{
	const uint64_t size = i->size >> 20, target = i->target >> 20;

	out_printf(out, "    Largest size: %" PRIu64 " MiB\n", i->size_max >> 20);
	switch (i->resizing) {
	case CACHE_RESIZE_NONE:
		break;
	case CACHE_RESIZE_DONE:
		out_printf(out, "    Resize: done, %" PRIu64 ".%" PRIu64 " s\n",
			   i->resize_ms / 1000, i->resize_ms / 100 % 10);
		break;
	case CACHE_RESIZE_FAILED:
		out_printf(out, "    Resize: failed at %" PRIu64 " of %" PRIu64 " MiB: %s\n", size,
			   target, i->resize_why);
		break;
	case CACHE_GROWING:
		out_printf(out, "    Resize: grows, %" PRIu64 " of %" PRIu64 " MiB\n", size,
			   target);
		break;
	case CACHE_SHRINKING:
		out_printf(out, "    Resize: shrinks, %" PRIu64 " MiB, to %" PRIu64 " MiB", size,
			   target);
		if (i->waits_for)
			out_printf(out, ", waits for %" PRIu64 " blocks that are in use or dirty",
				   i->waits_for);
		out_puts(out, "\n");
		break;
	}
	lock_line(out, i);
}

/* What an earlier process had left. */
static void found_lines(struct adm_out *out)
{
	struct cache_found f;

	if (kept_origin()->oom)
		out_printf(out,
			   "    Out of memory: %u worker%s killed, a quarter less after each\n",
			   kept_origin()->oom, kept_origin()->oom == 1 ? "" : "s");
	cache_get_found(adm.conf.cache, &f);
	if (!f.given)
		return;
	out_printf(out,
		   "    Found: %" PRIu64 " blocks of %u stores, %" PRIu64
		   " KiB dirty, taken over in %" PRIu64 " ms\n",
		   f.blocks, f.stores, DIV_ROUND_UP(f.dirty_bytes, KiB(1)),
		   (uint64_t)(f.took_ns / NSEC_PER_MSEC));
	if (f.given_back)
		out_printf(out, "    Given back: %" PRIu64 " KiB that were clean\n",
			   f.given_back >> 10);
	if (f.damaged)
		out_printf(out, "    Found damaged: %" PRIu64 "\n", f.damaged);
	if (f.waiting_stores)
		out_printf(out,
			   "    Waiting: %" PRIu64 " KiB of %u stores that are not open yet\n",
			   DIV_ROUND_UP(f.waiting_bytes, KiB(1)), f.waiting_stores);
}

static void apart_lines(struct adm_out *out)
{
	struct apart_info info[APART_MAX];
	const unsigned n = apart_get(info);

	for (unsigned i = 0; i < n; i++)
		out_printf(out, "    Apart: %" PRIu64 " MiB, of version %u\n",
			   DIV_ROUND_UP(info[i].bytes, MiB(1)), info[i].layout);
}

enum adm_status cache_verb_show(struct adm_call *call)
{
	struct adm_out *out = &call->out;
	struct cache_info i;

	if (!adm.conf.cache)
		return no_cache(call);
	if (call->req.json)
		return json_cache(call);
	cache_get_info(adm.conf.cache, &i);
	out_printf(out,
		   "Cache:\n"
		   "    Size: %" PRIu64 " MiB\n"
		   "    Block size: %u\n"
		   "    Group: %u blocks\n"
		   "    Nodes: %u\n"
		   "    Partitions: %u per node\n"
		   "    Workers: %u per node\n"
		   "    Largest request: %u KiB\n"
		   "    Affinity: %s\n",
		   i.size >> 20, i.block, i.group, i.nodes, i.partitions, i.workers,
		   i.max_len >> 10,
		   cache_affinity_name(i.affinity));
	size_lines(out, &i);
	found_lines(out);
	apart_lines(out);
	choice_line(out, &i);
	threshold_line(out, "Threshold", i.threshold);
	threshold_line(out, "Threshold of misses", i.miss_threshold);
	threshold_line(out, "Threshold of writes' blocks", i.prepare_threshold);
	threshold_line(out, "Threshold of writes' ends", i.commit_threshold);
	threshold_line(out, "Threshold of sending", i.send_threshold);
	const char *unseen = dirty_record_none();

	out_printf(out, "    After loss: %s%s\n",
		   unseen		  ? "not noticed: " :
		   dirty_record_accepts() ? "accepted" :
					    "in doubt",
		   unseen ? unseen : "");
	measured_line(out, "Hop", i.hop_ns, 1, "ns");
	measured_line(out, "Local memory", i.local_mbps, 1, "MB/s");
	measured_line(out, "Remote memory", i.remote_mbps, 1, "MB/s");
	measured_line(out, "Local header", i.local_line_ps, 1000, "ns");
	measured_line(out, "Remote header", i.remote_line_ps, 1000, "ns");
	if (i.nodes > 1)
		out_printf(out,
			   "    Sent near: %" PRIu64 " bytes of large reads\n"
			   "    Sent far: %" PRIu64 " bytes\n",
			   metric_read(M_tcp_tx_near_bytes), metric_read(M_tcp_tx_far_bytes));
	where_lines(out, i.nodes);
	return ADM_OK;
}

static void cache_verbs_stat_line(struct adm_out *out, const struct cache_stat *s)
{
	if (s->topo_node >= 0)
		out_printf(out, "%4d", s->topo_node);
	else
		out_puts(out, " all");
	out_printf(out,
		   " %9" PRIu64 " %9" PRIu64 " %9" PRIu64 " %9" PRIu64 " %8" PRIu64 " %7" PRIu64
		   " %7" PRIu64 " %12" PRIu64 " %12" PRIu64 " %14" PRIu64 " %14" PRIu64 " %9" PRIu64
		   " %9" PRIu64 " %9" PRIu64 " %9" PRIu64 " %7" PRIu64 " %9" PRIu64 "\n",
		   s->blocks, s->free, s->clean, s->dirty, s->flushing, s->filling, s->waiting,
		   s->hits, s->misses, s->local_bytes, s->remote_bytes, s->fills,
		   s->readahead_fills, s->flushes, s->evictions, s->waits, s->forwards);
}

static enum adm_status stat_all(struct adm_call *call)
{
	struct cache_info info;
	struct cache_stat s;

	cache_get_info(adm.conf.cache, &info);
	out_puts(&call->out, "node    blocks      free     clean     dirty flushing filling waiting"
			     "         hits       misses    local_bytes   remote_bytes     fills readahead   flushes"
			     " evictions   waits  forwards\n");
	for (uint32_t n = 0; n < info.nodes; n++) {
		cache_stat_init(&s);
		cache_stat_add_node(adm.conf.cache, n, false, &s);
		cache_verbs_stat_line(&call->out, &s);
	}
	if (info.nodes > 1) {
		cache_stat_init(&s);
		cache_stat_add_all(adm.conf.cache, false, &s);
		s.topo_node = -1;
		cache_verbs_stat_line(&call->out, &s);
	}
	return ADM_OK;
}

/* ---- what of an LU is in the cache ----------------------------------------------------------- */

/* Looks at every page of the LU: where its store would be closed, so it cannot vanish. */
struct residency {
	struct scsi_work work;
	struct adm_call *call;
	struct adm_target *target;
	struct blk *blk;
	struct cache_residency found;
	int err;
};

static void residency_work(struct scsi_work *w)
{
	struct residency *r = container_of(w, struct residency, work);

	ASSERT(!loop_current());
	r->err = cache_residency(r->blk, 0, 0, &r->found);
}

/* How its store takes what is written back. */
static const char *residency_state(const struct residency *r, const char *doubt)
{
	return doubt || r->found.doubt ? "data may be lost, SYNCs fail until refresh=1" :
	       r->found.failing	       ? "fails, and is tried again" :
	       r->found.stalled	       ? "the store has not taken any for a second or more" :
	       r->found.unrecorded ?
		       "off while the state directory takes no record of what is dirty" :
		       "ok";
}

static void residency_text(struct adm_out *out, const struct residency *r, uint32_t nodes)
{
	const char *doubt = blk_doubt(r->blk);

	out_printf(out,
		   "Size: %" PRIu64 "\nCached: %" PRIu64 "\nDirty: %" PRIu64 "\nPinned: %" PRIu64
		   "\n",
		   (uint64_t)r->blk->size, r->found.valid, r->found.dirty, r->found.pinned);
	for (uint32_t n = 0; n < nodes; n++)
		out_printf(out, "Node %u: %" PRIu64 "\n", n, r->found.node_valid[n]);
	out_printf(out, "Write-back: %s\n", residency_state(r, doubt));
	if (r->found.silent)
		out_printf(out, "Reads: the store has not answered any for a second or more\n");
	if (doubt)
		out_printf(out, "In doubt: %s\n", doubt);
}

static enum adm_status residency_json(struct adm_call *call, const struct residency *r,
				      uint32_t nodes)
{
	json_t *doc = json_object(), *cached = json_array();
	const char *doubt = blk_doubt(r->blk);

	doc_set_int(doc, "size", r->blk->size);
	doc_set_int(doc, "cached", r->found.valid);
	doc_set_int(doc, "dirty", r->found.dirty);
	doc_set_int(doc, "pinned", r->found.pinned);
	for (uint32_t n = 0; n < nodes; n++)
		doc_append(cached, json_integer((json_int_t)r->found.node_valid[n]));
	doc_set(doc, "cached_by_node", cached);
	doc_set_text(doc, "write_back", residency_state(r, doubt));
	doc_set_bool(doc, "reads_unanswered", r->found.silent);
	doc_set_text(doc, "in_doubt", doubt);
	return doc_answer(call, doc);
}

static void residency_done(struct scsi_work *w)
{
	struct residency *r = container_of(w, struct residency, work);
	struct adm_target *t = r->target;
	enum adm_status status = ADM_OK;
	struct cache_info info;

	ASSERT(t->busy);
	if (r->err) {
		status = admin_refuse(r->call, ADM_UNSUPPORTED,
				      "the store of this LU is not cached");
	} else {
		cache_get_info(adm.conf.cache, &info);
		const uint32_t nodes = MIN(info.nodes, (uint32_t)TOPO_MAX_NODES);

		if (r->call->req.json)
			status = residency_json(r->call, r, nodes);
		else
			residency_text(&r->call->out, r, nodes);
	}
	t->busy = false;
	adm_call_done(r->call, status);
	free(r);
	if (!t->busy)
		call_waiters_run(t);
}

static enum adm_status stat_one(struct adm_call *call)
{
	struct adm_target *t = call_target(call);
	struct adm_lu *lu;
	struct residency *r;
	struct scsi_lu_info info;

	if (!t)
		return ADM_NO_TARGET;
	if (call_waits(call, t))
		return ADM_PENDING;
	lu = call_lu(call, t);
	if (!lu)
		return ADM_NO_LUN;
	r = calloc(1, sizeof(*r));
	if (!r)
		return ADM_NOMEM;
	scsi_lu_get_info(lu->scsi, &info);
	r->call = call;
	r->target = t;
	r->blk = info.conf.blk;
	r->work.home = adm.conf.main;
	r->work.key = scsi_work_key(r->blk->path);
	r->work.work = residency_work;
	r->work.done = residency_done;
	t->busy = true;
	scsi_helper_run(&r->work);
	return ADM_PENDING;
}

enum adm_status cache_verb_stat(struct adm_call *call)
{
	if (!adm.conf.cache)
		return no_cache(call);
	if (call->req.has_tid != call->req.has_lun)
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "give both a target and a LUN, or neither");
	if (call->req.has_tid)
		return stat_one(call);
	return call->req.json ? json_cache_stat(call) : stat_all(call);
}

static enum adm_status update_checks(struct adm_call *call, const char *name, const char *value)
{
	char err[300] = "";

	/* "" takes back what was set */
	if (*value && cache_update_check(adm.conf.cache, name, value, err, sizeof(err)))
		return admin_refuse(call, ADM_INVALID_REQUEST, "%s", err);
	return ADM_OK;
}

/* The value of @name now, to go back to. */
static void cache_value_now(const char *name, char *value, size_t len)
{
	struct cache_info info;

	cache_get_info(adm.conf.cache, &info);
	if (!strcmp(name, "affinity"))
		snprintf(value, len, "%s", cache_affinity_name(info.affinity));
	else if (!strcmp(name, "size"))
		snprintf(value, len, "%" PRIu64, info.target);
	else
		snprintf(value, len, "%u", info.threshold_set);
}

static enum adm_status update_one(struct adm_call *call, const char *name, const char *value)
{
	enum adm_status status = update_checks(call, name, value);
	char err[300] = "", before[32];
	struct adm_set *set;

	if (status != ADM_OK)
		return status;
	set = set_find(&adm.cache_keys, name);
	if (!*value && !set)
		return ADM_OK; /* nobody has set it */
	cache_value_now(name, before, sizeof(before));
	/* What was found has its size, and since memory had run out not the one that was set. */
	if (adm.restoring && kept_origin()->oom && !strcmp(name, "size"))
		return set_put(&adm.cache_keys, name, value, before) ? ADM_NOMEM : ADM_OK;
	if (cache_update(adm.conf.cache, name, *value ? value : set->original, err, sizeof(err)))
		return admin_refuse(call, ADM_INVALID_REQUEST, "%s", err);
	if (!*value)
		set_drop(set);
	else if (set_put(&adm.cache_keys, name, value, before))
		return ADM_NOMEM;
	return ADM_OK;
}

/* --params NAME=VALUE,...: one after the other, up to the first that is refused. */
static enum adm_status for_each_param(struct adm_call *call, const char *params,
				      enum adm_status (*one)(struct adm_call *call,
							     const char *name, const char *value))
{
	enum adm_status status = ADM_OK;
	char *copy = strdup(params), *save = NULL;

	if (!copy)
		return ADM_NOMEM;
	for (char *word = strtok_r(copy, ",", &save); word && status == ADM_OK;
	     word = strtok_r(NULL, ",", &save)) {
		char *value = strchr(word, '=');

		if (!value) {
			status = admin_refuse(call, ADM_INVALID_REQUEST,
					      "'%s': expected name=value", word);
			break;
		}
		*value++ = '\0';
		status = one(call, word, value);
	}
	free(copy);
	return status;
}

/* What is asked for: --name and --value, or --params. */
typedef enum adm_status cache_change_fn(struct adm_call *call, const char *name, const char *value);

static enum adm_status each_asked_for(struct adm_call *call, cache_change_fn *one)
{
	const char *name = call->req.text[ADM_T_NAME], *value = call->req.text[ADM_T_VALUE],
		   *params = call->req.text[ADM_T_PARAMS];

	if (!adm.conf.cache)
		return no_cache(call);
	if (params && !name && !value)
		return for_each_param(call, params, one);
	if (!name || !value || params)
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "a name and a value are needed, or --params name=value");
	return one(call, name, value);
}

enum adm_status cache_update_verb_check(struct adm_call *call)
{
	return each_asked_for(call, update_checks);
}

enum adm_status cache_verb_update(struct adm_call *call)
{
	const enum adm_status status = each_asked_for(call, update_checks);

	return status == ADM_OK ? each_asked_for(call, update_one) : status;
}
