/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * YCSB's core workloads A to F (Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC
 * 2010) over WiredTiger, MongoDB's storage engine, embedded: a loader and a driver with the
 * published mixes and key distributions. Records are ten fields of 100 bytes under a hashed key.
 *
 *   A 50 % read, 50 % update      zipfian        D 95 % read, 5 % insert  latest
 *   B 95 % read, 5 % update       zipfian        E 95 % scan, 5 % insert  zipfian, 1 to 100 records
 *   C 100 % read                  zipfian        F 50 % read, 50 % read-modify-write  zipfian
 *
 * The engine's checkpoints would come every so many seconds and fall into one workload or the other
 * by chance: instead each workload begins on a fresh one, runs a quarter of its time before it is
 * measured, and has one checkpoint from a third of its measured time on.
 *
 * usage: ycsb DIR RECORDS SECONDS THREADS CACHE_MB [WORKLOADS]
 * Prints two lines for the load and for each workload: when it begins, then its name, operations a
 * second, p50, p95, p99 in us and errors. tests/bench/run-real builds and runs it; it is no part of
 * the build, which needs no WiredTiger.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wiredtiger.h>

#include "tools/bench/tgt-load/hist.h"
#include "tools/bench/tgt-load/rand.h"

enum {
	VALUE_BYTES = 1000,
	FIELD_BYTES = 100,
	SCAN_MAX = 100,
	THREADS_MAX = 64,
};

#define THETA 0.99

enum op { OP_READ, OP_UPDATE, OP_INSERT, OP_SCAN, OP_RMW };

struct workload {
	char name;
	unsigned read, update, insert, scan, rmw; /* percent */
	bool latest;
};

static const struct workload workloads[] = {
	{'A', 50, 50, 0, 0, 0, false}, {'B', 95, 5, 0, 0, 0, false}, {'C', 100, 0, 0, 0, 0, false},
	{'D', 95, 0, 5, 0, 0, true},   {'E', 0, 0, 5, 95, 0, false}, {'F', 50, 0, 0, 0, 50, false},
};

static WT_CONNECTION *db;
static _Atomic uint64_t records;  /* keys 0 .. records-1 exist (those being inserted may lag) */
static _Atomic uint64_t next_new; /* the next key to insert */
static uint64_t measured_from, deadline;
static uint64_t load_records;
static unsigned nthreads;

struct client {
	pthread_t thread;
	unsigned index;
	const struct workload *w; /* NULL: load */
	struct zipf zipf;
	struct rnd rnd;
	uint64_t ops;
	uint64_t errors;
	struct hist lat;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static void check(int rc, const char *what)
{
	if (rc != 0) {
		fprintf(stderr, "ycsb: %s: %s\n", what, wiredtiger_strerror(rc));
		exit(1);
	}
}

/* Records lie in hashed order, as in YCSB (insertorder=hashed). */
static void make_key(char *key, size_t n, uint64_t i)
{
	snprintf(key, n, "user%020llu", (unsigned long long)rnd_mix(i + 0x9e3779b97f4a7c15ull));
}

static void make_value(char *value, struct rnd *r)
{
	for (unsigned i = 0; i < VALUE_BYTES; i += 8) {
		uint64_t v = rnd_next(r) & 0x3f3f3f3f3f3f3f3full;

		v += 0x2020202020202020ull; /* printable, and no zero byte */
		memcpy(value + i, &v, 8);
	}
	value[VALUE_BYTES] = '\0';
}

static uint64_t choose(struct client *c)
{
	uint64_t n = atomic_load_explicit(&records, memory_order_relaxed);
	uint64_t rank = zipf_next(&c->zipf, &c->rnd);

	if (c->w->latest)
		return rank < n ? n - 1 - rank : 0;
	return rnd_mix(rank) % n; /* scrambled: popular records are not neighbours */
}

static enum op choose_op(struct client *c)
{
	unsigned x = (unsigned)rnd_below(&c->rnd, 100);
	const struct workload *w = c->w;

	if (x < w->read)
		return OP_READ;
	if ((x -= w->read) < w->update)
		return OP_UPDATE;
	if ((x -= w->update) < w->insert)
		return OP_INSERT;
	if ((x -= w->insert) < w->scan)
		return OP_SCAN;
	return OP_RMW;
}

static int put(WT_CURSOR *cur, const char *key, const char *value)
{
	cur->set_key(cur, key);
	cur->set_value(cur, value);
	return cur->insert(cur);
}

/* Read a record; with `value`, a copy of it. */
static int get(WT_CURSOR *cur, const char *key, char *value)
{
	const char *v;
	int rc;

	cur->set_key(cur, key);
	rc = cur->search(cur);
	if (rc == 0)
		rc = cur->get_value(cur, &v);
	if (rc == 0 && strlen(v) != VALUE_BYTES)
		rc = WT_ERROR;
	if (rc == 0 && value)
		memcpy(value, v, VALUE_BYTES + 1);
	return rc;
}

static int scan(WT_CURSOR *cur, const char *key, unsigned n)
{
	int exact, rc;

	cur->set_key(cur, key);
	rc = cur->search_near(cur, &exact);
	while (rc == 0 && n-- > 0) {
		const char *v;

		rc = cur->get_value(cur, &v);
		if (rc == 0 && n > 0)
			rc = cur->next(cur);
	}
	return rc == WT_NOTFOUND ? 0 : rc;
}

static int one(struct client *c, WT_CURSOR *cur, enum op op)
{
	char key[32], value[VALUE_BYTES + 1];
	uint64_t i;
	int rc;

	switch (op) {
	case OP_READ:
		make_key(key, sizeof(key), choose(c));
		return get(cur, key, NULL);
	case OP_INSERT:
		i = atomic_fetch_add(&next_new, 1);
		make_key(key, sizeof(key), i);
		make_value(value, &c->rnd);
		rc = put(cur, key, value);
		atomic_fetch_add(&records, 1);
		return rc;
	case OP_SCAN:
		make_key(key, sizeof(key), choose(c));
		return scan(cur, key, 1 + (unsigned)rnd_below(&c->rnd, SCAN_MAX));
	case OP_UPDATE:
	case OP_RMW:
		/* One field is written; the engine stores whole records, so it is read in both. */
		make_key(key, sizeof(key), choose(c));
		rc = get(cur, key, value);
		if (rc != 0)
			return rc;
		i = rnd_below(&c->rnd, VALUE_BYTES / FIELD_BYTES) * FIELD_BYTES;
		memset(value + i, 'a' + (int)rnd_below(&c->rnd, 26), FIELD_BYTES);
		return put(cur, key, value);
	}
	return WT_ERROR;
}

static void *client_run(void *arg)
{
	struct client *c = arg;
	WT_SESSION *s;
	WT_CURSOR *cur;

	check(db->open_session(db, NULL, NULL, &s), "session");
	check(s->open_cursor(s, "table:ycsb", NULL, "overwrite=true", &cur), "cursor");
	for (;;) {
		uint64_t t0 = now_ns(), t1;
		int rc;

		if (!c->w) {
			char key[32], value[VALUE_BYTES + 1];
			uint64_t i = atomic_fetch_add(&next_new, 1);

			if (i >= load_records)
				break;
			make_key(key, sizeof(key), i);
			make_value(value, &c->rnd);
			rc = put(cur, key, value);
		} else {
			if (t0 >= deadline)
				break;
			rc = one(c, cur, choose_op(c));
			/* A record whose insertion is under way, or a conflict, is not an error of
			 * storage. */
			if (rc == WT_ROLLBACK || (rc == WT_NOTFOUND && c->w->latest))
				rc = 0;
		}
		check(cur->reset(cur), "reset");
		t1 = now_ns();
		if (rc != 0) {
			c->errors++;
			if (c->errors == 1)
				fprintf(stderr, "ycsb: %s\n", wiredtiger_strerror(rc));
		}
		if (c->w && t0 < measured_from)
			continue;
		c->ops++;
		hist_add(&c->lat, t1 - t0);
	}
	check(s->close(s, NULL), "close");
	return NULL;
}

static void checkpoint(void)
{
	WT_SESSION *s;

	check(db->open_session(db, NULL, NULL, &s), "session");
	check(s->checkpoint(s, NULL), "checkpoint");
	check(s->close(s, NULL), "close");
}

static void sleep_until(uint64_t ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000),
			      .tv_nsec = (long)(ns % 1000000000) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0)
		;
}

/* Run all clients (@ns: for how long; the load until all is there); prints the
 * line and returns the errors. */
static uint64_t phase(struct client *c, const struct workload *w, const char *name, uint64_t ns)
{
	static struct hist all;
	uint64_t t0, ops = 0, errors = 0;
	double seconds;

	if (w)
		checkpoint();
	printf("%s begins\n", name);
	fflush(stdout);
	t0 = now_ns();
	measured_from = t0 + ns / 4;
	deadline = measured_from + ns;
	hist_reset(&all);
	for (unsigned i = 0; i < nthreads; i++) {
		c[i].w = w;
		c[i].ops = c[i].errors = 0;
		hist_reset(&c[i].lat);
		zipf_init(&c[i].zipf, atomic_load(&records) ? atomic_load(&records) : 1, THETA);
		check(pthread_create(&c[i].thread, NULL, client_run, &c[i]), "thread");
	}
	if (w) {
		sleep_until(measured_from + ns / 3);
		checkpoint();
	}
	for (unsigned i = 0; i < nthreads; i++) {
		pthread_join(c[i].thread, NULL);
		ops += c[i].ops;
		errors += c[i].errors;
		hist_merge(&all, &c[i].lat);
	}
	if (!w)
		checkpoint();
	seconds = (double)(w ? ns : now_ns() - t0) / 1e9;
	printf("%s %.1f %.1f %.1f %.1f %llu\n", name, (double)ops / seconds,
	       (double)hist_percentile(&all, 50) / 1e3, (double)hist_percentile(&all, 95) / 1e3,
	       (double)hist_percentile(&all, 99) / 1e3, (unsigned long long)errors);
	fflush(stdout);
	return errors;
}

int main(int argc, char **argv)
{
	static struct client c[THREADS_MAX];
	const char *chosen = argc > 6 ? argv[6] : "ABCDEF";
	char config[256];
	uint64_t errors;
	double seconds;
	WT_SESSION *s;

	if (argc < 6 || (nthreads = (unsigned)atoi(argv[4])) < 1 || nthreads > THREADS_MAX) {
		fprintf(stderr, "usage: ycsb DIR RECORDS SECONDS THREADS CACHE_MB [WORKLOADS]\n");
		return 2;
	}
	load_records = strtoull(argv[2], NULL, 10);
	seconds = strtod(argv[3], NULL);
	snprintf(config, sizeof(config),
		 "create,cache_size=%dMB,log=(enabled=true),session_max=100",
		 atoi(argv[5]));
	check(wiredtiger_open(argv[1], NULL, config, &db), argv[1]);
	check(db->open_session(db, NULL, NULL, &s), "session");
	check(s->create(s, "table:ycsb", "key_format=S,value_format=S"), "table");
	check(s->close(s, NULL), "close");
	for (unsigned i = 0; i < nthreads; i++) {
		c[i].index = i;
		c[i].rnd.state = 1000 + i;
	}
	errors = phase(c, NULL, "load", 0);
	atomic_store(&records, load_records);
	atomic_store(&next_new, load_records);
	for (unsigned i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++) {
		char name[2] = {workloads[i].name, '\0'};

		if (!strchr(chosen, workloads[i].name))
			continue;
		errors += phase(c, &workloads[i], name, (uint64_t)(seconds * 1e9));
	}
	check(db->close(db, NULL), "close");
	return errors ? 1 : 0;
}
