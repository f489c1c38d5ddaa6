/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Two answers of the daemon become rows of rates. */
#include "tools/tgt-top/top.h"

#include <stdlib.h>
#include <strings.h>

#define T(key, title, width, at) { key, title, width, FORM_TEXT, at }

static const struct column lu_columns[] = {
	T("lu", "LU", 9, 0),
	{ "iops", "IOPS", 8, FORM_COUNT, 0 },
	{ "read_bytes", "read/s", 10, FORM_BYTES, 1 },
	{ "write_bytes", "write/s", 10, FORM_BYTES, 2 },
	{ "read_ns", "r mean", 8, FORM_TIME, 3 },
	{ "write_ns", "w mean", 8, FORM_TIME, 4 },
	{ "read_p50_ns", "r p50", 8, FORM_TIME, 5 },
	{ "read_p99_ns", "r p99", 8, FORM_TIME, 6 },
	{ "write_p50_ns", "w p50", 8, FORM_TIME, 7 },
	{ "write_p99_ns", "w p99", 8, FORM_TIME, 8 },
	{ "busy", "busy", 6, FORM_SHARE, 9 },
	{ "dirty_bytes", "dirty", 10, FORM_BYTES, 10 },
	{ "errors", "errors", 7, FORM_NUMBER, 11 },
	T("state", "state", 8, 3),
	T("target", "target", 34, 1),
	T("path", "store", 30, 2),
};

static const struct column initiator_columns[] = {
	T("initiator", "initiator", 40, 0),
	T("address", "address", 22, 1),
	{ "tid", "target", 6, FORM_NUMBER, 0 },
	{ "commands", "cmds/s", 8, FORM_COUNT, 1 },
	{ "receive_bytes", "from it", 10, FORM_BYTES, 2 },
	{ "transmit_bytes", "to it", 10, FORM_BYTES, 3 },
	T("thread", "thread", 15, 2),
};

static const struct column thread_columns[] = {
	T("thread", "thread", 16, 0),
	{ "node", "node", 5, FORM_NUMBER, 0 },
	{ "cpu", "cpu", 5, FORM_NUMBER, 1 },
	{ "busy", "busy", 7, FORM_SHARE, 2 },
	{ "iterations", "turns/s", 9, FORM_COUNT, 3 },
	{ "sleeps", "sleeps/s", 9, FORM_COUNT, 4 },
	{ "wakeups", "wakes/s", 9, FORM_COUNT, 5 },
	{ "messages", "msgs/s", 9, FORM_COUNT, 6 },
	{ "events", "events/s", 9, FORM_COUNT, 7 },
	{ "starved", "starved", 8, FORM_SHARE, 8 },
};

static const struct column node_columns[] = {
	T("node", "node", 5, 0),
	{ "size_bytes", "size", 10, FORM_BYTES, 0 },
	{ "resident_bytes", "resident", 10, FORM_BYTES, 1 },
	{ "dirty_bytes", "dirty", 10, FORM_BYTES, 2 },
	{ "hit_ratio", "hits", 7, FORM_SHARE, 3 },
	{ "local_ratio", "local", 7, FORM_SHARE, 4 },
	{ "fill_bytes", "fill/s", 10, FORM_BYTES, 5 },
	{ "flush_bytes", "flush/s", 10, FORM_BYTES, 6 },
	{ "evictions", "evict/s", 8, FORM_COUNT, 7 },
	{ "waiting", "waiting", 8, FORM_NUMBER, 8 },
};

const struct table tables[VIEWS] = {
	[VIEW_LUS] = { "lus", lu_columns, ARRAY_SIZE(lu_columns), 1 },
	[VIEW_INITIATORS] = { "initiators", initiator_columns, ARRAY_SIZE(initiator_columns), 3 },
	[VIEW_THREADS] = { "threads", thread_columns, ARRAY_SIZE(thread_columns), 3 },
	[VIEW_NODES] = { "nodes", node_columns, ARRAY_SIZE(node_columns), 0 },
};

/* What came since; 0 for what began anew. */
static double since(uint64_t now, uint64_t was)
{
	return now > was ? (double)(now - was) : 0;
}

static double part_of(double part, double all)
{
	return all > 0 ? part / all : 0;
}

/* Of nothing there is no part. */
static double share_of(double part, double all)
{
	return all > 0 ? part / all : SHARE_UNKNOWN;
}

static double seconds_between(const struct machine *now, const struct machine *was)
{
	return MAX(since(now->monotonic_ns, was->monotonic_ns) / 1e9, 1e-9);
}

/* In one word: what somebody should look after. */
static const char *lu_state(const struct machine_lu *l)
{
	return l->hanging_ns ? "hangs" : l->in_doubt ? "doubt" : l->online ? "online" : "offline";
}

static void lu_rate(const struct machine *m, struct row *row, const struct machine_lu *l,
		    const struct machine_lu *o, double s)
{
	static const struct machine_lu none;
	const struct machine_latency *r = &l->latency[MACHINE_READ];
	const struct machine_latency *w = &l->latency[MACHINE_WRITE];
	const struct machine_lu *was = o ? o : l; /* a new one has no rates yet */
	const struct machine_lu *had = o ? o : &none;
	const double reads = since(l->rd_cmds, was->rd_cmds);
	const double writes = since(l->wr_cmds, was->wr_cmds);

	snprintf(row->id, sizeof(row->id), "%u:%u", (unsigned)l->tid, (unsigned)l->lun);
	row->text[1] = l->target->name;
	row->text[2] = l->path;
	row->text[3] = lu_state(l);
	row->v[0] = (reads + writes) / s;
	row->v[1] = since(l->rd_bytes, was->rd_bytes) / s;
	row->v[2] = since(l->wr_bytes, was->wr_bytes) / s;
	row->v[3] = part_of(since(l->rd_ns, was->rd_ns), reads);
	row->v[4] = part_of(since(l->wr_ns, was->wr_ns), writes);
	row->v[5] = (double)machine_percentile(m, r, &had->latency[MACHINE_READ], 5000);
	row->v[6] = (double)machine_percentile(m, r, &had->latency[MACHINE_READ], 9900);
	row->v[7] = (double)machine_percentile(m, w, &had->latency[MACHINE_WRITE], 5000);
	row->v[8] = (double)machine_percentile(m, w, &had->latency[MACHINE_WRITE], 9900);
	row->v[9] = MIN(since(l->busy_ns, was->busy_ns) / 1e9 / s, 1.0);
	row->v[10] = (double)l->dirty_bytes;
	row->v[11] = (double)l->errs;
}

/* Both are in the order of their numbers. */
static void lu_rates(const struct machine *now, const struct machine *was, struct row *rows)
{
	const double s = seconds_between(now, was);
	uint32_t at = 0;

	for (uint32_t i = 0; i < now->nlus; i++) {
		const struct machine_lu *l = &now->lus[i], *o;

		while (at < was->nlus &&
		       (was->lus[at].tid < l->tid ||
			(was->lus[at].tid == l->tid && was->lus[at].lun < l->lun)))
			at++;
		o = at < was->nlus ? &was->lus[at] : NULL;
		if (o && (o->tid != l->tid || o->lun != l->lun))
			o = NULL;
		lu_rate(now, &rows[i], l, o, s);
	}
}

static void initiator_rates(const struct machine *now, const struct machine *was, struct row *rows)
{
	const double s = seconds_between(now, was);
	uint32_t at = 0;

	for (uint32_t i = 0; i < now->nsessions; i++) {
		const struct machine_session *n = &now->sessions[i], *o = n;

		while (at < was->nsessions && was->sessions[at].sid < n->sid)
			at++;
		if (at < was->nsessions && was->sessions[at].sid == n->sid &&
		    !strcmp(was->sessions[at].initiator, n->initiator))
			o = &was->sessions[at];
		rows[i].text[0] = n->initiator;
		rows[i].text[1] = n->address;
		rows[i].text[2] = n->thread;
		rows[i].v[0] = (double)n->tid;
		rows[i].v[1] = since(n->commands, o->commands) / s;
		rows[i].v[2] = since(n->rx_bytes, o->rx_bytes) / s;
		rows[i].v[3] = since(n->tx_bytes, o->tx_bytes) / s;
	}
}

/* In the order of their creation; those before one may have gone. */
static const struct machine_thread *same_thread(const struct machine *was,
						const struct machine_thread *t, uint32_t *at)
{
	for (uint32_t i = 0; i < was->nthreads; i++) {
		const uint32_t k = (*at + i) % was->nthreads;

		if (!strcmp(was->threads[k].name, t->name)) {
			*at = k + 1;
			return &was->threads[k];
		}
	}
	return t;
}

static void thread_rates(const struct machine *now, const struct machine *was, struct row *rows)
{
	const double s = seconds_between(now, was);
	uint32_t at = 0;

	for (uint32_t i = 0; i < now->nthreads; i++) {
		const struct machine_thread *t = &now->threads[i];
		const struct machine_thread *o = same_thread(was, t, &at);

		rows[i].text[0] = t->name;
		rows[i].v[0] = (double)t->node;
		rows[i].v[1] = (double)t->cpu;
		rows[i].v[2] = MIN(since(t->cpu_ns, o->cpu_ns) / 1e9 / s, 1.0);
		rows[i].v[3] = since(t->iterations, o->iterations) / s;
		rows[i].v[4] = since(t->sleeps, o->sleeps) / s;
		rows[i].v[5] = since(t->wakeups_sent, o->wakeups_sent) / s;
		rows[i].v[6] = since(t->messages, o->messages) / s;
		rows[i].v[7] = since(t->fd_events, o->fd_events) / s;
		rows[i].v[8] = MIN(since(t->starved_ns, o->starved_ns) / 1e9 / s, 1.0);
	}
}

static void node_rates(const struct machine *now, const struct machine *was, struct row *rows)
{
	const double s = seconds_between(now, was), block = (double)now->block_size;

	for (uint32_t i = 0; i < now->nnodes; i++) {
		const struct machine_node *n = &now->nodes[i];
		const struct machine_node *o = i < was->nnodes ? &was->nodes[i] : n;
		const double hits = since(n->hits, o->hits);
		const double local = since(n->local_bytes, o->local_bytes);

		snprintf(rows[i].id, sizeof(rows[i].id), "%d", (int)n->node);
		rows[i].v[0] = (double)n->blocks * block;
		rows[i].v[1] = since(n->blocks, n->free) * block;
		rows[i].v[2] = (double)(n->dirty + n->flushing) * block;
		rows[i].v[3] = share_of(hits, hits + since(n->misses, o->misses));
		rows[i].v[4] =
			share_of(local, local + since(n->remote_bytes, o->remote_bytes));
		rows[i].v[5] = since(n->fill_bytes, o->fill_bytes) / s;
		rows[i].v[6] = since(n->flush_bytes, o->flush_bytes) / s;
		rows[i].v[7] = since(n->evictions, o->evictions) / s;
		rows[i].v[8] = (double)n->waiting;
	}
}

struct row *rates_rows(enum view view, const struct machine *now, const struct machine *was,
		       unsigned *n)
{
	static void (*const make[VIEWS])(const struct machine *, const struct machine *,
					 struct row *) = {
		[VIEW_LUS] = lu_rates,
		[VIEW_INITIATORS] = initiator_rates,
		[VIEW_THREADS] = thread_rates,
		[VIEW_NODES] = node_rates,
	};
	const uint32_t sizes[VIEWS] = { [VIEW_LUS] = now->nlus,
					[VIEW_INITIATORS] = now->nsessions,
					[VIEW_THREADS] = now->nthreads,
					[VIEW_NODES] = now->nnodes };
	struct row *rows = calloc(sizes[view] + 1, sizeof(*rows));

	*n = sizes[view];
	if (rows)
		make[view](now, was, rows);
	return rows;
}

void rates_totals(const struct machine *now, const struct machine *was, struct totals *t)
{
	double hits = 0, misses = 0;
	unsigned n;
	struct row *rows;

	*t = (struct totals){ .seconds = seconds_between(now, was),
			      .cache = (double)now->cache_bytes };
	rows = rates_rows(VIEW_LUS, now, was, &n);
	for (unsigned i = 0; rows && i < n; i++) {
		t->iops += rows[i].v[0];
		t->read_bytes += rows[i].v[1];
		t->write_bytes += rows[i].v[2];
	}
	free(rows);
	rows = rates_rows(VIEW_THREADS, now, was, &n);
	for (unsigned i = 0; rows && i < n; i++)
		t->processors += rows[i].v[2];
	free(rows);
	for (uint32_t i = 0; i < now->nnodes; i++) {
		const struct machine_node *o = i < was->nnodes ? &was->nodes[i] : &now->nodes[i];

		hits += since(now->nodes[i].hits, o->hits);
		misses += since(now->nodes[i].misses, o->misses);
		t->dirty += (double)((now->nodes[i].dirty + now->nodes[i].flushing) *
				     now->block_size);
	}
	t->hit_ratio = share_of(hits, hits + misses);
}

const char *row_text(const struct row *row, unsigned at)
{
	return row->text[at] ? row->text[at] : at ? "" : row->id;
}

static struct {
	const struct column *by;
	bool reverse;
} order;

static int compare(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	const unsigned at = order.by->at;
	int c;

	if (order.by->form == FORM_TEXT)
		c = strverscmp(row_text(x, at), row_text(y, at));
	else
		c = x->v[at] > y->v[at] ? -1 : x->v[at] < y->v[at];
	if (!c) /* what is equal does not change places */
		return strverscmp(row_text(x, 0), row_text(y, 0));
	return order.reverse ? -c : c;
}

static bool has_word(const struct row *row, const char *word)
{
	for (unsigned i = 0; i < TEXTS; i++)
		if (strcasestr(row_text(row, i), word))
			return true;
	return false;
}

unsigned rates_order(struct row *rows, unsigned n, const struct column *by, bool reverse,
		     const char *word)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < n; i++)
		if (!*word || has_word(&rows[i], word))
			rows[kept++] = rows[i];
	order.by = by;
	order.reverse = reverse;
	qsort(rows, kept, sizeof(*rows), compare);
	return kept;
}

const struct column *rates_sorted_by(enum view view, const struct wish *w)
{
	const struct table *t = &tables[view];

	return &t->columns[view == w->view && w->sort >= 0 ? (unsigned)w->sort : t->sort];
}

struct row *rates_wanted(enum view view, const struct wish *w, const struct machine *now,
			 const struct machine *was, unsigned *n)
{
	struct row *rows = rates_rows(view, now, was, n);

	if (rows)
		*n = rates_order(rows, *n, rates_sorted_by(view, w), view == w->view && w->reverse,
				 w->word);
	return rows;
}
