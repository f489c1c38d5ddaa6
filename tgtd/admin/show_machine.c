/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * `system show`: its processes; with `--name threads` and `--name nodes` what each event loop's
 * thread and each NUMA node has done since the start. As text and as JSON.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cache/engine/stat.h"
#include "events/bug.h"
#include "events/kept.h"
#include "events/thread.h"
#include "tgtd/admin/json.h"

/* ---- processes ------------------------------------------------------------------------------- */

#define IN1 "    "

void show_processes(struct adm_out *out)
{
	const struct kept_origin *o = kept_origin();
	const time_t when = (time_t)o->restarted_s;
	char text[32];
	struct tm tm;

	if (kept_fd() < 0)
		return;
	out_printf(out, "Processes:\n" IN1 "Keeper: %d\n" IN1 "Worker: %d\n" IN1 "Restarts: %u",
		   getppid(), getpid(), o->restarts);
	if (o->planned || o->stalled)
		out_printf(out, " (%u planned, %u stalled)", o->planned, o->stalled);
	if (o->oom)
		out_printf(out, ", %u of them when memory had run out", o->oom);
	out_puts(out, "\n");
	if (o->restarts && localtime_r(&when, &tm) && strftime(text, sizeof(text), "%F %T", &tm))
		out_printf(out, IN1 "Last restart: %s (%s)\n", text, o->why);
	const char *why;
	const unsigned replaced = kept_replaced(&why);

	if (replaced)
		out_printf(out, IN1 "Keeper replaced: %u times\n", replaced);
	if (*why)
		out_printf(out, IN1 "Keeper not replaced: %s\n", why);
	if (*kept_took())
		out_printf(out, IN1 "It took: %s\n", kept_took());
}

/* Times are seconds since 1970. */
json_t *json_processes(void)
{
	const struct kept_origin *o = kept_origin();
	json_t *row = json_object();
	const char *why;

	doc_set_int(row, "keeper_replaced", kept_replaced(&why));
	doc_set_text(row, "keeper_not_replaced", *why ? why : NULL);
	if (kept_fd() >= 0)
		doc_set_int(row, "keeper", (uint64_t)getppid());
	else
		doc_set_text(row, "keeper", NULL);
	doc_set_int(row, "worker", (uint64_t)getpid());
	doc_set_int(row, "restarts", o->restarts);
	doc_set_int(row, "planned_restarts", o->planned);
	doc_set_int(row, "stalled_restarts", o->stalled);
	doc_set_int(row, "oom_restarts", o->oom);
	if (o->restarts)
		doc_set_int(row, "last_restart", o->restarted_s);
	else
		doc_set_text(row, "last_restart", NULL);
	doc_set_text(row, "last_restart_kind", o->restarts ? kept_end_names[o->how] : NULL);
	doc_set_text(row, "last_restart_reason", o->restarts ? o->why : NULL);
	doc_set_text(row, "last_restart_took", *kept_took() ? kept_took() : NULL);
	return row;
}

/* ---- threads --------------------------------------------------------------------------------- */

#define STARVED_KEPT 4096u

uint64_t loop_starved_ns(const struct loop_stats *s)
{
	/* Reading them all takes ms where there are a thousand: of a loop that has not turned since
	 * it is what it was. */
	static struct {
		int tid;
		uint64_t iterations, ns;
	} kept[STARVED_KEPT];
	const unsigned at = (unsigned)s->tid % STARVED_KEPT;

	if (kept[at].tid != s->tid || kept[at].iterations != s->iterations) {
		kept[at].tid = s->tid;
		kept[at].iterations = s->iterations;
		kept[at].ns = thread_starved_ns(s->tid);
	}
	return kept[at].ns;
}

struct thread_seen {
	char name[16];
	int node, cpu;
	struct loop_stats stats;
};

/* Those that a walk over the loops finds. */
struct threads_seen {
	struct doc *d; /* its part of them, or NULL: all */
	struct thread_seen *all;
	size_t n, cap;
	bool failed;
};

static void thread_seen(struct loop *loop, void *arg)
{
	struct threads_seen *t = arg;

	if (t->d && !doc_take(t->d))
		return;
	if (t->n == t->cap) {
		const size_t cap = t->cap ? 2 * t->cap : 64;
		struct thread_seen *all = realloc(t->all, cap * sizeof(*all));

		if (!all) {
			t->failed = true;
			return;
		}
		t->all = all;
		t->cap = cap;
	}
	struct thread_seen *s = &t->all[t->n++];

	loop_get_stats(loop, &s->stats);
	snprintf(s->name, sizeof(s->name), "%s", loop_name(loop));
	s->node = loop_node(loop);
	s->cpu = loop_cpu(loop);
}

/* Nanoseconds as seconds, to the right of @width characters. */
static void put_s(struct adm_out *out, int width, uint64_t ns)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64 ".%03u", (uint64_t)(ns / NSEC_PER_SEC),
		 (unsigned)(ns % NSEC_PER_SEC / NSEC_PER_MSEC));
	out_printf(out, " %*s", width, text);
}

void show_threads(struct adm_call *call)
{
	struct threads_seen t = { 0 };

	loop_for_each(thread_seen, &t);
	call->out.failed |= t.failed;
	out_puts(&call->out, "thread              tid node  cpu      cpu_s     busy_s  starved_s"
			     " iterations     sleeps    wakeups   messages     events\n");
	for (size_t i = 0; i < t.n; i++) {
		const struct thread_seen *s = &t.all[i];

		out_printf(&call->out, "%-15s %7d %4d %4d", s->name, s->stats.tid, s->node, s->cpu);
		put_s(&call->out, 10, s->stats.cpu_ns);
		put_s(&call->out, 10, s->stats.busy_ns);
		put_s(&call->out, 10, loop_starved_ns(&s->stats));
		out_printf(&call->out,
			   " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64
			   "\n",
			   s->stats.iterations, s->stats.sleeps, s->stats.wakeups_sent,
			   s->stats.messages, s->stats.fd_events);
	}
	free(t.all);
}

static void set_place(json_t *row, const char *key, int number)
{
	doc_set(row, key, number < 0 ? json_null() : json_integer(number));
}

#define SHOW_BATCH 48 /* each turn looks at all loops, to find those that it is at */

static bool threads_step(struct doc *d)
{
	struct threads_seen t = { .d = d };
	bool all;

	if (!d->stage++)
		doc_open(d, "threads", '[');
	d->batch = SHOW_BATCH;
	loop_for_each(thread_seen, &t);
	all = doc_walked(d);
	d->call->out.failed |= t.failed;
	for (size_t i = 0; i < t.n; i++) {
		const struct thread_seen *s = &t.all[i];
		json_t *row = json_object();

		doc_set_text(row, "name", s->name);
		doc_set_int(row, "tid", (uint64_t)s->stats.tid);
		set_place(row, "node", s->node);
		set_place(row, "cpu", s->cpu);
		doc_set_int(row, "cpu_ns", s->stats.cpu_ns);
		doc_set_int(row, "busy_ns", s->stats.busy_ns);
		doc_set_int(row, "starved_ns", loop_starved_ns(&s->stats));
		doc_set_int(row, "iterations", s->stats.iterations);
		doc_set_int(row, "sleeps", s->stats.sleeps);
		doc_set_int(row, "wakeups_sent", s->stats.wakeups_sent);
		doc_set_int(row, "messages", s->stats.messages);
		doc_set_int(row, "fd_events", s->stats.fd_events);
		doc_add(d, NULL, row);
	}
	free(t.all);
	if (!all)
		return true;
	doc_close(d);
	return false;
}

enum adm_status json_threads(struct adm_call *call)
{
	return doc_begin(call, threads_step, 0);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

struct node_figures {
	const struct topo_node *topo;
	uint64_t mem_total, mem_free;
	unsigned threads;	 /* of loops there */
	uint64_t cpu_ns;	 /* theirs, of those that are there now */
	struct cache_stat cache; /* in bytes what cache_stat has in blocks; no cache: zeros */
	uint64_t block;
};

static void count_thread(struct loop *loop, void *arg)
{
	struct node_figures *f = arg;
	struct loop_stats s;

	if (loop_node(loop) != f->topo->id)
		return;
	loop_get_stats(loop, &s);
	f->threads++;
	f->cpu_ns += s.cpu_ns;
}

static void node_figures_get(unsigned node, struct node_figures *f)
{
	*f = (struct node_figures){ .topo = &adm.conf.topo->node[node] };
	topology_memory(adm.conf.topo, node, &f->mem_total, &f->mem_free);
	loop_for_each(count_thread, f);
	cache_stat_init(&f->cache);
	if (!adm.conf.cache)
		return;
	struct cache_info info;

	cache_get_info(adm.conf.cache, &info);
	f->block = info.block;
	for (uint32_t n = 0; n < info.nodes; n++) {
		struct cache_stat s;

		cache_stat_init(&s);
		cache_stat_add_node(adm.conf.cache, n, false, &s);
		if (s.topo_node == f->topo->id)
			f->cache = s;
	}
}

void show_nodes(struct adm_call *call)
{
	out_puts(&call->out, "node cpus    mem_total     mem_free        cache     resident"
			     "        dirty         hits       misses   hit%   local_bytes"
			     "  remote_bytes      waits threads      cpu_s\n");
	for (unsigned n = 0; n < adm.conf.topo->nnodes; n++) {
		struct node_figures f;

		node_figures_get(n, &f);
		const struct cache_stat *c = &f.cache;
		const uint64_t asked = c->hits + c->misses;
		const unsigned permille = asked ? (unsigned)(c->hits * 1000 / asked) : 0;

		out_printf(&call->out,
			   "%4u %4u %12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %12" PRIu64
			   " %12" PRIu64 " %12" PRIu64 " %12" PRIu64 "  %3u.%u %13" PRIu64
			   " %13" PRIu64 " %10" PRIu64 " %7u",
			   n, f.topo->ncpus, f.mem_total, f.mem_free, c->blocks * f.block,
			   (c->blocks - c->free) * f.block, (c->dirty + c->flushing) * f.block,
			   c->hits, c->misses, permille / 10, permille % 10, c->local_bytes,
			   c->remote_bytes, c->waits, f.threads);
		put_s(&call->out, 10, f.cpu_ns);
		out_puts(&call->out, "\n");
	}
}

static bool nodes_step(struct doc *d)
{
	json_t *row = json_object(), *cpus = json_array();
	struct node_figures f;

	if (!d->stage++)
		doc_open(d, "nodes", '[');
	node_figures_get(d->at, &f);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &f.topo->cpus))
			doc_append(cpus, json_integer(cpu));
	doc_set_int(row, "node", d->at);
	set_place(row, "system_node", f.topo->os_node);
	doc_set(row, "cpus", cpus);
	doc_set_int(row, "memory_total", f.mem_total);
	doc_set_int(row, "memory_free", f.mem_free);
	doc_set_int(row, "threads", f.threads);
	doc_set_int(row, "cpu_ns", f.cpu_ns);
	doc_set_int(row, "cache_bytes", f.cache.blocks * f.block);
	doc_set_int(row, "resident_bytes", (f.cache.blocks - f.cache.free) * f.block);
	doc_set_int(row, "dirty_bytes", (f.cache.dirty + f.cache.flushing) * f.block);
	doc_set_int(row, "hits", f.cache.hits);
	doc_set_int(row, "misses", f.cache.misses);
	doc_set_int(row, "local_bytes", f.cache.local_bytes);
	doc_set_int(row, "remote_bytes", f.cache.remote_bytes);
	doc_set_int(row, "waits", f.cache.waits);
	doc_set_int(row, "wait_ns", f.cache.wait_ns);
	doc_add(d, NULL, row);
	if (++d->at < adm.conf.topo->nnodes)
		return true;
	doc_close(d);
	return false;
}

enum adm_status json_nodes(struct adm_call *call)
{
	return doc_begin(call, nodes_step, 0);
}
