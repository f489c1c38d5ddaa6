/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgt-load: an iSCSI load generator that speaks the protocol straight over its sockets, so that its
 * own cost stays well below that of a good target. This file opens the connections, runs the phases
 * and collects what the workers found; see tgt-load(8).
 *
 *   main ── opens connections, asks capacities, samples the target's CPU ── report.c
 *     └─ worker threads (work.c): choose, issue, end ── connections (conn.c, login.c): bytes
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "tools/bench/tgt-load/cpu.h"
#include "tools/bench/tgt-load/report.h"
#include "tools/bench/tgt-load/work.h"

enum { EXIT_ERRORS = 1, EXIT_USAGE = 2, EXIT_CONNECT = 3 };

static struct run the_run;

static void on_signal(int sig)
{
	atomic_store(&the_run.stop, true);
}

static int fail(const char *what, int err)
{
	fprintf(stderr, "tgt-load: %s%s%s\n", what, err ? ": " : "", err ? strerror(err) : "");
	return -1;
}

/* Until then, or until a signal has asked for the end. One may come just before we sleep: so a
 * second at a time. */
static void sleep_until(uint64_t ns)
{
	while (!atomic_load(&the_run.stop)) {
		uint64_t now = now_ns(), at = ns < now + 1000000000ull ? ns : now + 1000000000ull;
		struct timespec ts = {.tv_sec = (time_t)(at / 1000000000ull),
				      .tv_nsec = (long)(at % 1000000000ull)};

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
		if (at == ns)
			return;
	}
}

/* Ask one LU how large it is (READ CAPACITY(16), SBC-3 5.16) and set up what is used of it. */
static int lu_setup(struct run *r, struct conn *c, struct lu *lu)
{
	const struct opts *o = r->opts;
	uint8_t cdb[16] = {0x9e, 0x10}, data[32] = {0};
	uint32_t got = 0, largest = 0;
	int status;

	put32(cdb + 10, sizeof(data));
	status = conn_exec(c, lu->lun, cdb, sizeof(cdb), data, sizeof(data), &got);
	if (status != 0 || got < 12)
		return fail(c->dead ? c->why : "READ CAPACITY(16) failed", 0);
	lu->blocks = get64(data) + 1;
	lu->block_size = get32(data + 8);
	if (lu->block_size < 512 || lu->block_size > 4096 || lu->block_size % 512 != 0)
		return fail("a block size of the LU that is not 512 to 4096", 0);
	for (unsigned i = 0; i < o->nsizes; i++) {
		if (o->size[i] % lu->block_size != 0)
			return fail("an I/O size that is not a multiple of the LU's blocks", 0);
		largest = o->size[i] > largest ? o->size[i] : largest;
	}
	lu->range = lu->blocks * lu->block_size;
	if (o->range != 0 && o->range < lu->range)
		lu->range = o->range;
	lu->range = lu->range / largest * largest;
	if (lu->range == 0)
		return fail("the LU (or --range) is smaller than one I/O", 0);
	if (o->verify) {
		size_t pieces = lu->range / 512;

		lu->gen = calloc(pieces, sizeof(*lu->gen));
		lu->owed = calloc(pieces, sizeof(*lu->owed));
		lu->busy = calloc(pieces, 1);
		if (!lu->gen || !lu->owed || !lu->busy)
			return fail("out of memory for the stamps", 0);
	}
	return 0;
}

static int open_all(struct run *r, struct conn *conn)
{
	const struct opts *o = r->opts;
	unsigned total = o->connections + o->idle;

	for (unsigned i = 0; i < total; i++)
		conn[i].fd = -1;
	for (unsigned i = 0; i < total; i++) {
		unsigned depth = i < o->connections ? o->depth : 1;

		if (conn_open(&conn[i], o, o->target[i % o->ntargets], i, depth) != 0)
			return fail(conn[i].why, 0);
	}
	for (unsigned i = 0; i < r->nlu; i++) {
		r->lu[i].index = i;
		r->lu[i].lun = o->lun[i / o->ntargets];
		if (lu_setup(r, &conn[i % o->ntargets], &r->lu[i]) != 0)
			return -1;
	}
	return 0;
}

/* 4 MiB of bytes that do not compress, on pages of their own. */
static uint8_t *make_pattern(uint64_t seed)
{
	struct rnd rnd = {.state = seed};
	uint8_t *p = mmap(NULL, BS_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	for (size_t i = 0; i < BS_MAX; i += 8)
		put64(p + i, rnd_next(&rnd));
	return p;
}

/* Deal the connections out to the workers. */
static int workers_setup(struct run *r, struct worker *w, struct conn *conn)
{
	const struct opts *o = r->opts;

	for (unsigned t = 0; t < o->threads; t++) {
		w[t].run = r;
		w[t].index = t;
		w[t].epfd = -1;
		w[t].cpu = o->ncpus ? o->cpu[t % o->ncpus] : -1;
		w[t].conn = calloc((o->connections + o->idle) / o->threads + 2, sizeof(*w[t].conn));
		if (!w[t].conn)
			return fail("out of memory", 0);
		for (unsigned i = t; i < o->connections; i += o->threads)
			w[t].conn[w[t].nconn++] = &conn[i];
		for (unsigned i = t; i < o->idle; i += o->threads)
			w[t].conn[w[t].nconn + w[t].nidle++] = &conn[o->connections + i];
	}
	for (unsigned t = 0; t < o->threads; t++) {
		int rc = work_init(&w[t]);

		if (rc != 0)
			return fail("setting up a worker", -rc);
	}
	return 0;
}

static int start_phase(struct worker *w, unsigned n, enum phase phase)
{
	for (unsigned t = 0; t < n; t++)
		work_phase(&w[t], phase);
	for (unsigned t = 0; t < n; t++) {
		int rc = pthread_create(&w[t].thread, NULL, work_thread, &w[t]);

		if (rc != 0) {
			atomic_store(&the_run.stop, true);
			while (t-- > 0)
				pthread_join(w[t].thread, NULL);
			return fail("starting a thread", rc);
		}
	}
	return 0;
}

static void join_phase(struct worker *w, unsigned n)
{
	for (unsigned t = 0; t < n; t++)
		pthread_join(w[t].thread, NULL);
}

#define PART_NS 25000000ull /* at least: shorter ones say little */

static uint64_t all_done(const struct opts *o, struct worker *w)
{
	uint64_t done = 0;

	for (unsigned t = 0; t < o->threads; t++)
		done += atomic_load_explicit(&w[t].done, memory_order_relaxed);
	return done;
}

/* Watches the measured interval, which begins now: the rate of each part of it, and what --progress
 * prints each second. */
static void watch(struct run *r, struct worker *w, struct report *rep)
{
	const struct opts *o = r->opts;
	uint64_t begin = now_ns(), at = begin, told = begin;
	uint64_t last = all_done(o, w), told_done = last;
	uint64_t part = (r->end - begin) / REPORT_RATES, now, done;

	if (part < PART_NS)
		part = PART_NS;
	rep->rate_seconds = (double)part / 1e9;
	while (begin + (rep->nrates + 1) * part <= r->end && rep->nrates < REPORT_RATES &&
	       !atomic_load(&r->stop)) {
		sleep_until(begin + (rep->nrates + 1) * part);
		now = now_ns();
		done = all_done(o, w);
		rep->rate[rep->nrates++] = (double)(done - last) * 1e9 / (double)(now - at);
		last = done;
		at = now;
		if (!o->progress || now - told < 1000000000ull)
			continue;
		fprintf(stderr, "%.0f IOPS\n",
			(double)(done - told_done) * 1e9 / (double)(now - told));
		told = now;
		told_done = done;
	}
}

/* CPU time of this process so far. */
static uint64_t own_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/* Sample CPU time, the target's and our own, at the edges of the measured interval. */
static int run_measured(struct run *r, struct worker *w, struct report *rep)
{
	const struct opts *o = r->opts;
	struct cpu_sample *before = calloc(2, sizeof(*before)), *after = before + 1;
	uint64_t t0 = now_ns(), own = own_ns(), t1;
	int rc = 0;

	if (!before)
		return fail("out of memory", 0);
	r->begin = o->count ? t0 : t0 + (uint64_t)(o->warmup * 1e9);
	r->end = o->count ? UINT64_MAX / 2 : r->begin + (uint64_t)(o->seconds * 1e9);
	if (o->count && o->target_pid)
		rc = cpu_read(o->target_pid, before);
	if (rc == 0 && start_phase(w, o->threads, PHASE_RUN) != 0) {
		free(before);
		return -1;
	}
	if (!o->count) {
		sleep_until(r->begin);
		t0 = now_ns();
		own = own_ns();
		if (o->target_pid)
			rc = cpu_read(o->target_pid, before);
		watch(r, w, rep);
		sleep_until(r->end);
	} else {
		join_phase(w, o->threads);
	}
	t1 = now_ns();
	rep->own_cpu = own_ns() - own;
	rep->cpu_seconds = (double)(t1 - t0) / 1e9;
	if (o->target_pid && rc == 0)
		rc = cpu_read(o->target_pid, after);
	if (!o->count)
		join_phase(w, o->threads);
	if (rc != 0)
		fail("reading the target's CPU time", -rc);
	if (o->target_pid && rc == 0) {
		rep->has_cpu = true;
		rep->cpu_total = cpu_spent(before, after, &rep->cpu);
	}
	free(before);
	return rc;
}

static void collect(const struct opts *o, struct worker *w, struct conn *conn, struct tally *t,
		    struct report *rep)
{
	uint64_t first = UINT64_MAX, last = 0;

	for (unsigned k = 0; k < KINDS; k++)
		hist_reset(&t->lat[k]);
	for (unsigned i = 0; i < o->threads; i++) {
		const struct tally *x = &w[i].tally;

		for (unsigned k = 0; k < KINDS; k++) {
			t->ios[k] += x->ios[k];
			t->bytes[k] += x->bytes[k];
			hist_merge(&t->lat[k], &x->lat[k]);
		}
		t->failed += x->failed;
		t->miscompared += x->miscompared;
		t->checked += x->checked;
		t->late += x->late;
		t->batches += x->batches;
		t->waited += x->waited;
		first = w[i].first && w[i].first < first ? w[i].first : first;
		last = w[i].last > last ? w[i].last : last;
	}
	rep->seconds = last > first ? (double)(last - first) / 1e9 : 0.0;
	for (unsigned i = 0; i < o->connections + o->idle; i++) {
		rep->sends += conn[i].counts.sends;
		rep->recvs += conn[i].counts.recvs - conn[i].counts.empty_recvs;
		rep->pings += conn[i].counts.pings;
		rep->dead += conn[i].dead || conn[i].draining;
	}
	rep->opts = o;
	rep->agreed = &conn[0].agreed;
	rep->tally = t;
}

static int print(const struct report *rep)
{
	const struct opts *o = rep->opts;
	FILE *f = stdout;

	if (!o->quiet && strcmp(o->json, "-") != 0)
		report_text(rep, stdout);
	if (!o->json[0])
		return 0;
	if (strcmp(o->json, "-") != 0) {
		f = fopen(o->json, "we");
		if (!f)
			return fail(o->json, errno);
	}
	report_json(rep, f);
	if (f != stdout && fclose(f) != 0)
		return fail(o->json, errno);
	return 0;
}

/* Run every phase; 0, or -1 when it could not be done (found errors are in the report). */
static int run_phases(struct run *r, struct worker *w, struct report *rep)
{
	const struct opts *o = r->opts;

	if (o->fill) {
		if (start_phase(w, o->threads, PHASE_FILL) != 0)
			return -1;
		join_phase(w, o->threads);
	}
	if (run_measured(r, w, rep) != 0)
		return -1;
	if (o->verify && !atomic_load(&r->stop)) {
		if (start_phase(w, o->threads, PHASE_READ_BACK) != 0)
			return -1;
		join_phase(w, o->threads);
	}
	return 0;
}

static int run_all(const struct opts *o)
{
	struct run *r = &the_run;
	unsigned total = o->connections + o->idle;
	struct conn *conn = calloc(total, sizeof(*conn));
	struct worker *w = calloc(o->threads, sizeof(*w));
	struct tally *t = calloc(1, sizeof(*t));
	struct report *rep = calloc(1, sizeof(*rep));
	int status = EXIT_CONNECT;

	r->opts = o;
	r->nlu = o->ntargets * o->nluns;
	r->lu = calloc(r->nlu, sizeof(*r->lu));
	r->pattern = make_pattern(o->seed);
	if (!conn || !w || !t || !rep || !r->lu || !r->pattern) {
		fail("out of memory", 0);
		return EXIT_ERRORS;
	}
	if (open_all(r, conn) == 0 && workers_setup(r, w, conn) == 0) {
		status = EXIT_ERRORS;
		if (run_phases(r, w, rep) == 0) {
			collect(o, w, conn, t, rep);
			if (print(rep) == 0 && report_errors(rep) == 0 && !atomic_load(&r->stop))
				status = 0;
		}
	}
	for (unsigned i = 0; i < total; i++)
		conn_close(&conn[i]);
	for (unsigned i = 0; i < o->threads; i++) {
		work_free(&w[i]);
		free(w[i].conn);
	}
	for (unsigned i = 0; i < r->nlu; i++) {
		free(r->lu[i].gen);
		free(r->lu[i].owed);
		free(r->lu[i].busy);
	}
	munmap(r->pattern, BS_MAX);
	free(r->lu);
	free(rep);
	free(t);
	free(w);
	free(conn);
	return status;
}

int main(int argc, char **argv)
{
	static struct opts o;
	struct sigaction sa = {.sa_handler = on_signal};
	struct rlimit files;
	char why[256];
	int rc;

	opts_default(&o);
	rc = opts_parse(&o, argc, argv, why, sizeof(why));
	if (rc > 0)
		return 0;
	if (rc < 0) {
		fprintf(stderr, "tgt-load: %s\nTry 'tgt-load --help'.\n", why);
		return EXIT_USAGE;
	}
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (o.ncpus) {
		/* The sampling thread must not disturb the target's core either. */
		cpu_set_t set;

		CPU_ZERO(&set);
		for (unsigned i = 0; i < o.ncpus; i++)
			CPU_SET(o.cpu[i], &set);
		if (sched_setaffinity(0, sizeof(set), &set) != 0) {
			fail("--cpu", errno);
			return EXIT_USAGE;
		}
	}
	return run_all(&o);
}
