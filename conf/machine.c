/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The daemon's account of the machine, from JSON to structures. */
#include "conf/machine.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "events/bug.h"

struct reader {
	char *err;
	size_t err_len;
	int rc; /* of the first error */
};

static void fail(struct reader *r, int rc, const char *fmt, ...) printf_like(3, 4);
static void fail(struct reader *r, int rc, const char *fmt, ...)
{
	va_list ap;

	if (r->rc)
		return;
	r->rc = rc;
	va_start(ap, fmt);
	vsnprintf(r->err, r->err_len, fmt, ap);
	va_end(ap);
}

/* ---- members of an object -------------------------------------------------------------------- */

enum kind { NUMBER, SIGNED, TEXT, FLAG, ANY };

struct member {
	const char *key;
	enum kind kind;
	size_t offset;
	bool optional; /* it may be null or missing: 0, "" */
};

static void read_value(struct reader *r, const json_t *v, const struct member *m, char *to)
{
	if (m->optional && (!v || json_is_null(v))) {
		if (m->kind == TEXT)
			*(const char **)(void *)(to + m->offset) = "";
		return;
	}
	if (!v) {
		fail(r, -EPROTO, "'%s' is missing", m->key);
		return;
	}
	switch (m->kind) {
	case NUMBER:
	case SIGNED:
		if (!json_is_integer(v) || (m->kind == NUMBER && json_integer_value(v) < 0))
			fail(r, -EPROTO, "'%s' is no number that it can be", m->key);
		*(int64_t *)(void *)(to + m->offset) = json_integer_value(v);
		break;
	case TEXT:
		if (!json_is_string(v))
			fail(r, -EPROTO, "'%s' is no text", m->key);
		*(const char **)(void *)(to + m->offset) = json_string_value(v);
		break;
	case FLAG:
		if (!json_is_boolean(v))
			fail(r, -EPROTO, "'%s' is neither true nor false", m->key);
		*(bool *)(void *)(to + m->offset) = json_is_true(v);
		break;
	case ANY:
		*(const json_t **)(void *)(to + m->offset) = v;
		break;
	}
}

static void read_members(struct reader *r, const json_t *object, const struct member *members,
			 size_t n, void *to)
{
	if (!json_is_object(object)) {
		fail(r, -EPROTO, "what should be an object is none");
		return;
	}
	for (size_t i = 0; i < n && !r->rc; i++)
		read_value(r, json_object_get(object, members[i].key), &members[i], to);
}

#define M(type, key, kind, field) { key, kind, offsetof(struct type, field), false }
#define M_OPT(type, key, kind, field) { key, kind, offsetof(struct type, field), true }
#define N(type, field) M(type, #field, NUMBER, field)

static const struct member head[] = {
	M(machine, "version", TEXT, version),
	M(machine, "state", TEXT, state),
	M_OPT(machine, "affinity", TEXT, affinity),
	N(machine, pid),
	N(machine, realtime_ns),
	N(machine, monotonic_ns),
	M_OPT(machine, "cache_bytes", NUMBER, cache_bytes),
	M_OPT(machine, "block_size", NUMBER, block_size),
};

static const struct member node_members[] = {
	M(machine_node, "node", SIGNED, node),
	N(machine_node, blocks), N(machine_node, free), N(machine_node, clean),
	N(machine_node, dirty), N(machine_node, flushing), N(machine_node, filling),
	N(machine_node, waiting), N(machine_node, hits), N(machine_node, misses),
	N(machine_node, local_bytes), N(machine_node, remote_bytes), N(machine_node, fill_bytes),
	N(machine_node, flush_bytes), N(machine_node, readahead_bytes),
	N(machine_node, evictions), N(machine_node, waits), N(machine_node, wait_ns),
	N(machine_node, lock_waits), N(machine_node, forwards),
	M_OPT(machine_node, "memory_total", NUMBER, memory_total),
	M_OPT(machine_node, "memory_free", NUMBER, memory_free),
};

static const struct member thread_members[] = {
	M(machine_thread, "name", TEXT, name),	  M(machine_thread, "node", SIGNED, node),
	M(machine_thread, "cpu", SIGNED, cpu),	  N(machine_thread, cpu_ns),
	N(machine_thread, iterations),		  N(machine_thread, sleeps),
	N(machine_thread, wakeups_sent),	  N(machine_thread, messages),
	N(machine_thread, fd_events),
	M_OPT(machine_thread, "busy_ns", NUMBER, busy_ns),
	M_OPT(machine_thread, "starved_ns", NUMBER, starved_ns),
};

static const struct member target_members[] = {
	N(machine_target, tid),
	N(machine_target, sessions),
	M(machine_target, "name", TEXT, name),
	M(machine_target, "driver", TEXT, driver),
	M(machine_target, "state", TEXT, state),
};

static const struct member lu_members[] = {
	N(machine_lu, tid), N(machine_lu, lun), N(machine_lu, size), N(machine_lu, threads),
	N(machine_lu, dirty_bytes),
	M_OPT(machine_lu, "path", TEXT, path),
	M(machine_lu, "backing_store_type", TEXT, type),
	M(machine_lu, "online", FLAG, online),
	M(machine_lu, "in_doubt", FLAG, in_doubt),
	M(machine_lu, "rd_done_bytes", NUMBER, rd_bytes),
	M(machine_lu, "rd_done_cmds", NUMBER, rd_cmds),
	M(machine_lu, "wr_done_bytes", NUMBER, wr_bytes),
	M(machine_lu, "wr_done_cmds", NUMBER, wr_cmds),
	N(machine_lu, errs), N(machine_lu, rd_ns), N(machine_lu, wr_ns), N(machine_lu, busy_ns),
	M_OPT(machine_lu, "latency", ANY, told),
	M_OPT(machine_lu, "hanging_ns", NUMBER, hanging_ns),
};

static const struct member session_members[] = {
	N(machine_session, tid), N(machine_session, sid), N(machine_session, rx_bytes),
	N(machine_session, tx_bytes), N(machine_session, commands),
	M(machine_session, "initiator", TEXT, initiator),
	M(machine_session, "address", TEXT, address),
	M(machine_session, "transport", TEXT, transport),
	M_OPT(machine_session, "thread", TEXT, thread),
};

/* ---- arrays ---------------------------------------------------------------------------------- */

/* The array @key of @root, and room for its rows of @size bytes. */
static const json_t *read_array(struct reader *r, const json_t *root, const char *key, size_t size,
				void **rows, uint32_t *n)
{
	const json_t *array = json_object_get(root, key);
	size_t found = json_array_size(array);

	*n = 0;
	*rows = NULL;
	if (!json_is_array(array) || found > MACHINE_ROWS_MAX) {
		fail(r, -EPROTO, "'%s' is no array, or too long", key);
		return NULL;
	}
	*rows = calloc(found ? found : 1, size);
	if (!*rows)
		fail(r, -ENOMEM, "%s", strerror(ENOMEM));
	else
		*n = (uint32_t)found;
	return array;
}

static void read_rows(struct reader *r, const json_t *root, const char *key,
		      const struct member *members, size_t nmembers, size_t size, void **rows,
		      uint32_t *n)
{
	const json_t *array = r->rc ? NULL : read_array(r, root, key, size, rows, n);

	for (uint32_t i = 0; array && i < *n && !r->rc; i++)
		read_members(r, json_array_get(array, i), members, nmembers,
			     (char *)*rows + i * size);
}

/* A table: where each column is, then row by row. Returns the array of rows. */
#define COLUMNS_MAX 64
static const json_t *read_table(struct reader *r, const json_t *root, const char *key,
				const struct member *members, size_t nmembers, size_t size,
				void **rows, uint32_t *n)
{
	const json_t *table = json_object_get(root, key), *array;
	const json_t *columns = json_object_get(table, "columns");
	size_t ncolumns = json_array_size(columns), at[COLUMNS_MAX];

	if (r->rc)
		return NULL;
	if (!json_is_array(columns) || nmembers > COLUMNS_MAX) {
		fail(r, -EPROTO, "'%s' is no table", key);
		return NULL;
	}
	for (size_t i = 0; i < nmembers; i++) {
		for (at[i] = 0; at[i] < ncolumns; at[i]++) {
			const char *name = json_string_value(json_array_get(columns, at[i]));

			if (name && !strcmp(name, members[i].key))
				break;
		}
		/* beyond its end: null, as far as it may be */
	}
	array = read_array(r, table, "rows", size, rows, n);
	for (uint32_t i = 0; i < *n && !r->rc; i++) {
		const json_t *row = json_array_get(array, i);

		if (json_array_size(row) != ncolumns)
			fail(r, -EPROTO, "a row of '%s' has another length", key);
		for (size_t k = 0; k < nmembers && !r->rc; k++)
			read_value(r, json_array_get(row, at[k]), &members[k],
				   (char *)*rows + i * size);
	}
	return array;
}

static uint64_t *read_partitions(struct reader *r, const json_t *row, const char *key, uint32_t *n)
{
	const json_t *array = json_object_get(row, key);
	size_t found = json_array_size(array);
	uint64_t *v;

	if (!json_is_array(array) || found > MACHINE_PARTITIONS_MAX || (*n && found != *n)) {
		fail(r, -EPROTO, "'%s' is no array of the right length", key);
		return NULL;
	}
	v = calloc(found ? found : 1, sizeof(*v));
	if (!v) {
		fail(r, -ENOMEM, "%s", strerror(ENOMEM));
		return NULL;
	}
	*n = (uint32_t)found;
	for (uint32_t i = 0; i < found; i++) {
		const json_t *number = json_array_get(array, i);

		if (!json_is_integer(number) || json_integer_value(number) < 0)
			fail(r, -EPROTO, "'%s' has what is no number", key);
		v[i] = (uint64_t)json_integer_value(number);
	}
	return v;
}

static void read_node_rows(struct reader *r, const json_t *root, struct machine *m)
{
	const json_t *array = json_object_get(root, "nodes");

	read_rows(r, root, "nodes", node_members, ARRAY_SIZE(node_members), sizeof(*m->nodes),
		  (void **)&m->nodes, &m->nnodes);
	for (uint32_t i = 0; i < m->nnodes && !r->rc; i++) {
		const json_t *row = json_array_get(array, i);
		struct machine_node *n = &m->nodes[i];

		n->part_blocks = read_partitions(r, row, "partition_blocks", &n->npartitions);
		n->part_resident = read_partitions(r, row, "partition_resident", &n->npartitions);
		n->part_dirty = read_partitions(r, row, "partition_dirty", &n->npartitions);
	}
}

/* ---- latency --------------------------------------------------------------------------------- */

const char *const machine_classes[MACHINE_CLASSES] = { "read", "write", "sync", "unmap", "other" };
const char *const machine_parts[MACHINE_PARTS] = { "waiting", "cache", "store", "wire" };

static void read_bounds(struct reader *r, const json_t *root, struct machine *m)
{
	const json_t *array = json_object_get(root, "latency_bounds_ns");
	const size_t n = json_array_size(array);

	if (!array || json_is_null(array))
		return;
	if (!json_is_array(array) || !n || n > MACHINE_BOUNDS_MAX) {
		fail(r, -EPROTO, "'latency_bounds_ns' is no array of the right length");
		return;
	}
	m->bounds_ns = calloc(n, sizeof(*m->bounds_ns));
	if (!m->bounds_ns) {
		fail(r, -ENOMEM, "%s", strerror(ENOMEM));
		return;
	}
	m->nbounds = (uint32_t)n;
	for (uint32_t i = 0; i < n; i++) {
		const json_int_t v = json_integer_value(json_array_get(array, i));

		if (v <= 0 || (i && (uint64_t)v <= m->bounds_ns[i - 1]))
			fail(r, -EPROTO, "'latency_bounds_ns' does not ascend");
		m->bounds_ns[i] = (uint64_t)v;
	}
}

/* "index:count index:count ...", ascending, no count of 0. */
static bool read_buckets(const char *p, uint64_t *bucket, uint32_t n)
{
	uint64_t next = 0;

	while (*p) {
		uint64_t number[2];

		for (unsigned i = 0; i < 2; i++) {
			char *end;

			if (*p < '0' || *p > '9')
				return false;
			errno = 0;
			number[i] = strtoull(p, &end, 10);
			if (errno || (!i && *end != ':') || (i && *end && *end != ' '))
				return false;
			p = *end ? end + 1 : end;
			if (i && *end && !*p)
				return false;
		}
		if (number[0] < next || number[0] >= n || !number[1])
			return false;
		bucket[number[0]] = number[1];
		next = number[0] + 1;
	}
	return true;
}

static const struct member latency_members[] = {
	N(machine_latency, count), N(machine_latency, sum_ns), N(machine_latency, max_ns),
	M(machine_latency, "waiting_ns", NUMBER, part_ns[MACHINE_WAITING]),
	M(machine_latency, "cache_ns", NUMBER, part_ns[MACHINE_CACHE]),
	M(machine_latency, "store_ns", NUMBER, part_ns[MACHINE_STORE]),
	M(machine_latency, "wire_ns", NUMBER, part_ns[MACHINE_WIRE]),
};

static void read_latency(struct reader *r, struct machine *m, struct machine_lu *lu)
{
	const json_t *all = lu->told;

	for (unsigned c = 0; c < MACHINE_CLASSES && all && m->nbounds && !r->rc; c++) {
		const json_t *one = json_object_get(all, machine_classes[c]);
		struct machine_latency *l = &lu->latency[c];
		const char *buckets = json_string_value(json_object_get(one, "buckets"));

		if (!one)
			continue;
		read_members(r, one, latency_members, ARRAY_SIZE(latency_members), l);
		l->bucket = calloc(m->nbounds, sizeof(*l->bucket));
		if (!l->bucket)
			fail(r, -ENOMEM, "%s", strerror(ENOMEM));
		else if (!buckets || !read_buckets(buckets, l->bucket, m->nbounds))
			fail(r, -EPROTO, "'buckets' is not what it should be");
	}
}

static void read_lus(struct reader *r, const json_t *root, struct machine *m)
{
	read_table(r, root, "lus", lu_members, ARRAY_SIZE(lu_members), sizeof(*m->lus),
		  (void **)&m->lus, &m->nlus);
	for (uint32_t i = 0; i < m->nlus && !r->rc; i++)
		read_latency(r, m, &m->lus[i]);
}

static void free_latency(struct machine_lu *lu)
{
	for (unsigned c = 0; c < MACHINE_CLASSES; c++)
		free(lu->latency[c].bucket);
}

uint64_t machine_percentile(const struct machine *m, const struct machine_latency *l,
			    const struct machine_latency *before, unsigned permyriad)
{
	const uint64_t *was = before ? before->bucket : NULL;
	uint64_t n = 0, sum = 0;

	for (uint32_t i = 0; l->bucket && i < m->nbounds; i++)
		n += l->bucket[i] - (was ? MIN(was[i], l->bucket[i]) : 0);
	for (uint32_t i = 0; n && i < m->nbounds; i++) {
		sum += l->bucket[i] - (was ? MIN(was[i], l->bucket[i]) : 0);
		if (sum * 10000 >= n * permyriad)
			return MIN(m->bounds_ns[i], MAX(l->max_ns, 1ul));
	}
	return 0;
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void read_counters(struct reader *r, const json_t *root, struct machine *m)
{
	json_t *object = json_object_get(root, "counters"), *v;
	const char *name;

	if (!json_is_object(object) || json_object_size(object) > MACHINE_ROWS_MAX) {
		fail(r, -EPROTO, "'counters' is no object");
		return;
	}
	m->counters = calloc(json_object_size(object) + 1, sizeof(*m->counters));
	if (!m->counters) {
		fail(r, -ENOMEM, "%s", strerror(ENOMEM));
		return;
	}
	json_object_foreach(object, name, v) {
		/* a gauge that several threads change may be below 0 for a moment */
		if (!json_is_integer(v) || !*name || strspn(name, "abcdefghijklmnopqrstuvwxyz"
								  "0123456789_") != strlen(name))
			fail(r, -EPROTO, "a counter has no name or no number");
		m->counters[m->ncounters++] = (struct machine_counter){
			name, (uint64_t)MAX(json_integer_value(v), (json_int_t)0)
		};
	}
}

const struct machine_target *machine_target(const struct machine *m, uint64_t tid)
{
	uint32_t from = 0, to = m->ntargets;

	while (from < to) {
		uint32_t mid = from + (to - from) / 2;

		if (m->targets[mid].tid == tid)
			return &m->targets[mid];
		if (m->targets[mid].tid < tid)
			from = mid + 1;
		else
			to = mid;
	}
	return NULL;
}

/* A LU whose target is not told was deleted while the daemon answered: it goes. */
static void join_targets(struct reader *r, struct machine *m)
{
	uint32_t kept = 0;

	for (uint32_t i = 1; i < m->ntargets; i++)
		if (m->targets[i].tid <= m->targets[i - 1].tid)
			fail(r, -EPROTO, "targets are not in the order of their numbers");
	for (uint32_t i = 0; i < m->nlus; i++) {
		m->lus[i].target = machine_target(m, m->lus[i].tid);
		if (m->lus[i].target)
			m->lus[kept++] = m->lus[i];
		else
			free_latency(&m->lus[i]);
	}
	m->nlus = kept;
	for (uint32_t i = 0; i < m->nsessions; i++)
		m->sessions[i].target = machine_target(m, m->sessions[i].tid);
}

int machine_parse(struct machine *m, const char *text, size_t len, char *err, size_t err_len)
{
	struct reader r = { .err = err, .err_len = err_len };
	json_error_t where;
	json_t *root;

	*m = (struct machine){ 0 };
	if (len > MACHINE_TEXT_MAX) {
		fail(&r, -EPROTO, "an answer of more than %u bytes", MACHINE_TEXT_MAX);
		return r.rc;
	}
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
	if (!root) {
		fail(&r, -EPROTO, "no JSON: %s", where.text);
		return r.rc;
	}
	m->json = root;
	read_members(&r, root, head, ARRAY_SIZE(head), m);
	if (!r.rc)
		read_counters(&r, root, m);
	read_node_rows(&r, root, m);
	read_table(&r, root, "threads", thread_members, ARRAY_SIZE(thread_members),
		  sizeof(*m->threads), (void **)&m->threads, &m->nthreads);
	read_table(&r, root, "targets", target_members, ARRAY_SIZE(target_members),
		  sizeof(*m->targets), (void **)&m->targets, &m->ntargets);
	read_bounds(&r, root, m);
	read_lus(&r, root, m);
	read_table(&r, root, "sessions", session_members, ARRAY_SIZE(session_members),
		  sizeof(*m->sessions), (void **)&m->sessions, &m->nsessions);
	if (!r.rc)
		join_targets(&r, m);
	if (r.rc)
		machine_free(m);
	return r.rc;
}

void machine_free(struct machine *m)
{
	for (uint32_t i = 0; i < m->nnodes; i++) {
		free(m->nodes[i].part_blocks);
		free(m->nodes[i].part_resident);
		free(m->nodes[i].part_dirty);
	}
	for (uint32_t i = 0; i < m->nlus; i++)
		free_latency(&m->lus[i]);
	free(m->bounds_ns);
	free(m->counters);
	free(m->nodes);
	free(m->threads);
	free(m->targets);
	free(m->lus);
	free(m->sessions);
	json_decref(m->json);
	*m = (struct machine){ 0 };
}

int machine_read(struct adm_client *c, struct machine *m, char **text, char *err, size_t err_len)
{
	struct adm_req req;
	struct adm_reply reply;
	int rc;

	*m = (struct machine){ 0 };
	adm_req_init(&req, ADM_SYSTEM, ADM_STAT);
	req.text[ADM_T_NAME] = "machine";
	req.json = true;
	rc = adm_call(c, &req, &reply);
	if (rc) {
		snprintf(err, err_len, "%s",
			 rc == -ENOTCONN  ? "no tgtd answers" :
			 rc == -ETIMEDOUT ? "tgtd does not answer in time" :
					    strerror(-rc));
		return rc;
	}
	if (reply.status == ADM_OK) {
		rc = machine_parse(m, reply.text, strlen(reply.text), err, err_len);
	} else {
		rc = -EPROTO;
		snprintf(err, err_len, "%s%s%s", adm_status_text(reply.status),
			 *reply.detail ? ": " : "", reply.detail);
	}
	if (!rc && text) {
		*text = reply.text;
		reply.text = NULL;
	}
	adm_reply_free(&reply);
	return rc;
}
