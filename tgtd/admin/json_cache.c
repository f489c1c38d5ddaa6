/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the cache is and does, as JSON. */
#include <stdio.h>

#include "cache/blk/dirty_record.h"
#include "cache/engine/apart.h"
#include "cache/engine/stat.h"
#include "events/bug.h"
#include "tgtd/admin/json.h"

/* UINT32_MAX is never. */
static void set_threshold(json_t *object, const char *key, uint32_t bytes)
{
	doc_set(object, key, bytes == UINT32_MAX ? json_null() : json_integer(bytes));
}

/* Of one node nothing far can be measured: null. */
static void set_measured(json_t *object, const char *key, uint32_t figure, uint32_t unit)
{
	doc_set(object, key, figure ? json_integer((json_int_t)figure * unit) : json_null());
}

static json_t *where_object(const struct mem_where *w)
{
	json_t *o = json_object();

	doc_set_int(o, "pages", w->pages);
	doc_set_int(o, "pages_on_node", w->on_node);
	doc_set_int(o, "pages_elsewhere", w->elsewhere);
	doc_set_int(o, "bytes", w->bytes);
	doc_set_int(o, "huge_bytes", w->huge);
	return o;
}

/* Where a change of its size stands, and whether its memory stays where it is. */
static void set_size(json_t *doc, const struct cache_info *i)
{
	static const char *const states[] = {
		[CACHE_RESIZE_NONE] = "none",	  [CACHE_GROWING] = "grows",
		[CACHE_SHRINKING] = "shrinks",	  [CACHE_RESIZE_DONE] = "done",
		[CACHE_RESIZE_FAILED] = "failed",
	};
	json_t *resize = json_object(), *memory = json_object();
	const bool any = i->resizing != CACHE_RESIZE_NONE;

	ASSERT(i->resizing < ARRAY_SIZE(states));
	doc_set_int(doc, "size", i->size);
	doc_set_int(doc, "largest_size", i->size_max);
	doc_set_text(resize, "state", states[i->resizing]);
	doc_set(resize, "target", any ? json_integer((json_int_t)i->target) : json_null());
	doc_set(resize, "elapsed_ns",
		any ? json_integer((json_int_t)(i->resize_ms * NSEC_PER_MSEC)) : json_null());
	doc_set_int(resize, "blocks_waited_for", i->waits_for);
	doc_set_text(resize, "error", *i->resize_why ? i->resize_why : NULL);
	doc_set(doc, "resize", resize);
	doc_set_bool(memory, "preparing", i->preparing);
	doc_set_int(memory, "locked", i->locked);
	doc_set_int(memory, "to_be_locked", i->lockable);
	doc_set_text(memory, "error", cache_lock_why(i));
	doc_set(doc, "memory", memory);
}

/* What an earlier process had left; null: nothing. */
static json_t *found_object(void)
{
	struct cache_found f;
	json_t *o;

	cache_get_found(adm.conf.cache, &f);
	if (!f.given)
		return json_null();
	o = json_object();
	doc_set_int(o, "blocks", f.blocks);
	doc_set_int(o, "stores", f.stores);
	doc_set_int(o, "dirty_bytes", f.dirty_bytes);
	doc_set_int(o, "finished", f.redone);
	doc_set_int(o, "given_back_bytes", f.given_back);
	doc_set_int(o, "damaged", f.damaged);
	doc_set_int(o, "took_ns", f.took_ns);
	doc_set_int(o, "waiting_stores", f.waiting_stores);
	doc_set_int(o, "waiting_bytes", f.waiting_bytes);
	return o;
}

/* Caches of other versions, which are kept for these. */
static json_t *apart_array(void)
{
	struct apart_info info[APART_MAX];
	const unsigned n = apart_get(info);
	json_t *rows = json_array();

	for (unsigned i = 0; i < n; i++) {
		json_t *row = json_object();

		doc_set_int(row, "version", info[i].layout);
		doc_set_int(row, "bytes", info[i].bytes);
		doc_append(rows, row);
	}
	return rows;
}

enum adm_status json_cache(struct adm_call *call)
{
	json_t *doc = json_object(), *thresholds = json_object(), *nodes = json_array();
	const char *unseen = dirty_record_none();
	struct cache_info i;

	cache_get_info(adm.conf.cache, &i);
	set_size(doc, &i);
	doc_set_int(doc, "block_size", i.block);
	doc_set_int(doc, "group_blocks", i.group);
	doc_set_int(doc, "partitions_per_node", i.partitions);
	doc_set_int(doc, "workers_per_node", i.workers);
	doc_set_int(doc, "largest_request", i.max_len);
	doc_set_text(doc, "affinity", cache_affinity_name(i.affinity));
	set_threshold(thresholds, "hit", i.threshold);
	set_threshold(thresholds, "miss", i.miss_threshold);
	set_threshold(thresholds, "prepare", i.prepare_threshold);
	set_threshold(thresholds, "commit", i.commit_threshold);
	set_threshold(thresholds, "send", i.send_threshold);
	doc_set(doc, "thresholds", thresholds);
	doc_set_text(doc, "after_loss",
		     unseen ? "not noticed" : dirty_record_accepts() ? "accepted" : "in doubt");
	set_measured(doc, "hop_ns", i.hop_ns, 1);
	set_measured(doc, "local_bytes_per_second", i.local_mbps, 1000000);
	set_measured(doc, "remote_bytes_per_second", i.remote_mbps, 1000000);
	set_measured(doc, "local_header_ps", i.local_line_ps, 1);
	set_measured(doc, "remote_header_ps", i.remote_line_ps, 1);
	doc_set(doc, "found", found_object());
	doc_set(doc, "apart", apart_array());
	for (uint32_t n = 0; n < i.nodes; n++) {
		struct mem_where arena, index;
		json_t *row = json_object();

		doc_set_int(row, "node", (uint64_t)cache_where(adm.conf.cache, n, &arena, &index));
		doc_set(row, "data", arena.bytes ? where_object(&arena) : json_null());
		doc_set(row, "index", where_object(&index));
		doc_append(nodes, row);
	}
	doc_set(doc, "nodes", nodes);
	return doc_answer(call, doc);
}

json_t *json_cache_node(uint32_t node)
{
	json_t *row = json_object();
	struct cache_stat s;

	cache_stat_init(&s);
	cache_stat_add_node(adm.conf.cache, node, false, &s);
	doc_set(row, "node", json_integer(s.topo_node));
	doc_set_int(row, "blocks", s.blocks);
	doc_set_int(row, "free", s.free);
	doc_set_int(row, "clean", s.clean);
	doc_set_int(row, "dirty", s.dirty);
	doc_set_int(row, "flushing", s.flushing);
	doc_set_int(row, "filling", s.filling);
	doc_set_int(row, "receiving", s.receiving);
	doc_set_int(row, "condemned", s.condemned);
	doc_set_int(row, "waiting", s.waiting);
	doc_set_int(row, "hits", s.hits);
	doc_set_int(row, "misses", s.misses);
	doc_set_int(row, "local_bytes", s.local_bytes);
	doc_set_int(row, "remote_bytes", s.remote_bytes);
	doc_set_int(row, "fills", s.fills);
	doc_set_int(row, "fill_bytes", s.fill_bytes);
	doc_set_int(row, "readahead_fills", s.readahead_fills);
	doc_set_int(row, "readahead_bytes", s.readahead_bytes);
	doc_set_int(row, "readahead_used", s.readahead_used);
	doc_set_int(row, "flushes", s.flushes);
	doc_set_int(row, "flush_bytes", s.flush_bytes);
	doc_set_int(row, "evictions", s.evictions);
	doc_set_int(row, "waits", s.waits);
	doc_set_int(row, "wait_ns", s.wait_ns);
	doc_set_int(row, "lock_waits", s.lock_waits);
	doc_set_int(row, "forwards", s.forwards);
	return row;
}

static bool cache_nodes_step(struct doc *d)
{
	struct cache_info info;

	cache_get_info(adm.conf.cache, &info);
	if (!d->stage++) {
		doc_add(d, "block_size", json_integer(info.block));
		doc_open(d, "nodes", '[');
	}
	doc_add(d, NULL, json_cache_node(d->at));
	if (++d->at < info.nodes)
		return true;
	doc_close(d);
	return false;
}

enum adm_status json_cache_stat(struct adm_call *call)
{
	return doc_begin(call, cache_nodes_step, 0);
}
