/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A worker's loop: receive and parse, refill what ended, send everything in one call.
 *
 * Closed loop: every slot that ends is issued again at once. Open loop (--rate): arrivals fall due
 * at their own times whatever the target does, and latency counts from the due time, so that a
 * stall shows in full (no coordinated omission).
 *
 * By default the worker spins: it has its core for itself, and a sleeping initiator would charge
 * its wake-ups to the target.
 */
#include "tools/bench/tgt-load/work.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tools/bench/tgt-load/stamp.h"

enum {
	FILL_BS = 256 << 10,
	EVENTS = 64,
	SHOW_ERRORS = 10,
};

/* How long the open loop lags before arrivals are dropped, how long a drain may last, and how long
 * nothing may come where all that was begun has to end. */
#define LATE_NS 1000000000ull
#define DRAIN_NS 10000000000ull
#define SILENCE_NS 60000000000ull
/* How long a worker that may sleep (--wait block) sleeps at most. Less than a second. */
#define WAIT_NS 10000000ull

/* A connection's sequential stream. */
struct seq {
	unsigned lu;
	unsigned step; /* walks every step-th unit, so that several connections share one LU */
	uint64_t at;   /* bytes */
	bool over;
};

struct io {
	struct lu *lu;
	uint64_t offset;
	uint32_t len;
	bool write;
};

static void show(struct worker *w, const struct conn *c, const char *what)
{
	if (atomic_fetch_add(&w->run->errors_shown, 1) < SHOW_ERRORS)
		fprintf(stderr, "tgt-load: connection %u: %s\n", c->index, what);
}

/* ---- verification
 * -------------------------------------------------------------------------------- */

static bool range_busy(const struct io *io)
{
	uint64_t at = io->offset / STAMP_BYTES, n = io->len / STAMP_BYTES;

	return memchr(io->lu->busy + at, 1, n) != NULL;
}

static void range_mark(const struct lu *lu, uint64_t offset, uint32_t len, uint8_t v)
{
	memset(lu->busy + offset / STAMP_BYTES, v, len / STAMP_BYTES);
}

static void stamp_range(struct lu *lu, uint64_t offset, uint32_t len, uint8_t *data)
{
	uint64_t at = offset / STAMP_BYTES;

	for (uint32_t i = 0; i < len / STAMP_BYTES; i++) {
		uint32_t gen =
			lu->gen[at + i] > lu->owed[at + i] ? lu->gen[at + i] : lu->owed[at + i];

		lu->owed[at + i] = gen + 1;
		stamp_write(data + (size_t)i * STAMP_BYTES, lu->index, at + i, gen + 1);
	}
}

static void check_range(struct worker *w, struct conn *c, const struct slot *s)
{
	uint64_t at = s->offset / STAMP_BYTES;

	for (uint32_t i = 0; i < s->len / STAMP_BYTES; i++) {
		uint32_t gen = s->lu->gen[at + i];
		enum stamp_verdict v;

		if (gen == 0)
			continue; /* never written by us */
		v = stamp_check(s->data + (size_t)i * STAMP_BYTES, s->lu->index, at + i, gen);
		if (v == STAMP_GOOD) {
			w->tally.checked++;
		} else {
			char text[120];

			snprintf(text, sizeof(text), "LU %u, bytes %llu+512: %s", s->lu->index,
				 (unsigned long long)(at + i) * STAMP_BYTES, stamp_name(v));
			show(w, c, text);
			w->tally.miscompared++;
		}
	}
}

/* The buffer of a connection's slot; the slots of a worker's connections lie one after the other.
 */
static uint8_t *slot_buffer(struct worker *w, unsigned conn, unsigned slot)
{
	return w->bufs + ((size_t)conn * w->run->opts->depth + slot) * BS_MAX;
}

/* ---- choosing
 * ------------------------------------------------------------------------------------ */

/* Fill and read-back go through this connection's share of the LU once, in order. */
static bool next_in_order(struct run *r, struct seq *q, struct io *io)
{
	uint64_t left;

	io->lu = &r->lu[q->lu];
	if (q->at >= io->lu->range) {
		q->over = true;
		return false;
	}
	left = io->lu->range - q->at;
	io->len = left < FILL_BS ? (uint32_t)left : FILL_BS;
	io->offset = q->at;
	q->at += (uint64_t)FILL_BS * q->step;
	return true;
}

static unsigned choose_size(struct worker *w)
{
	const struct opts *o = w->run->opts;
	uint64_t x;
	unsigned i = 0;

	if (o->nsizes == 1)
		return 0;
	x = rnd_below(&w->rnd, o->weights);
	while (x >= o->weight[i])
		x -= o->weight[i++];
	return i;
}

/* What connection i of this worker does next. False: nothing (now). */
static bool choose(struct worker *w, unsigned i, struct io *io)
{
	struct run *r = w->run;
	const struct opts *o = r->opts;
	struct seq *q = &w->seq[i];
	unsigned si;
	uint64_t units;

	if (w->phase != PHASE_RUN) {
		io->write = w->phase == PHASE_FILL;
		return !q->over && next_in_order(r, q, io);
	}
	si = choose_size(w);
	io->len = o->size[si];
	io->write = o->read_percent < 100 &&
		    (o->read_percent == 0 || rnd_below(&w->rnd, 100) >= o->read_percent);
	io->lu = &r->lu[q->lu];
	if (o->lun_per_io) {
		unsigned targets = o->ntargets, target = w->conn[i]->index % targets;

		io->lu = &r->lu[target + targets * (unsigned)rnd_below(&w->rnd, o->nluns)];
	}
	units = io->lu->range / io->len;
	switch (o->pattern) {
	case PAT_RANDOM:
		io->offset = rnd_below(&w->rnd, units) * io->len;
		break;
	case PAT_ZIPF:
		io->offset = zipf_scatter(zipf_next(&w->zipf[si], &w->rnd), units) * io->len;
		break;
	case PAT_SEQUENTIAL:
		if (q->at + io->len > io->lu->range)
			q->at = 0;
		io->offset = q->at;
		q->at += io->len;
		break;
	}
	return true;
}

/* ---- issuing and ending
 * -------------------------------------------------------------------------- */

/* Start one I/O of connection i, due at `start`. False when there is nothing to start. */
static bool start_one(struct worker *w, unsigned i, uint64_t start)
{
	struct conn *c = w->conn[i];
	struct run *r = w->run;
	const struct opts *o = r->opts;
	uint8_t *data = NULL;
	struct io io;

	if (w->phase == PHASE_RUN && o->count != 0) {
		if (atomic_fetch_add_explicit(&r->issued, 1, memory_order_relaxed) >= o->count)
			return false;
	}
	if (!choose(w, i, &io))
		return false;
	if (o->verify) {
		/* Only one I/O at a time touches a place, else what a read must see is not known.
		 */
		for (int tries = 0; range_busy(&io); tries++) {
			if (tries < 64 && choose(w, i, &io))
				continue;
			if (w->phase == PHASE_RUN && o->count != 0)
				atomic_fetch_sub_explicit(&r->issued, 1, memory_order_relaxed);
			return false;
		}
		range_mark(io.lu, io.offset, io.len, 1);
		data = slot_buffer(w, i, c->free[c->nfree - 1]);
		if (io.write)
			stamp_range(io.lu, io.offset, io.len, data);
	}
	conn_issue(c, io.lu, io.write, io.offset, io.len, data, start);
	w->inflight++;
	return true;
}

static void show_status(struct worker *w, struct conn *c, const struct slot *s, uint8_t status)
{
	char text[160];

	snprintf(text, sizeof(text), "%s of %u bytes at %llu: SCSI status %#x",
		 s->write ? "write" : "read", s->len, (unsigned long long)s->offset, status);
	if (status == 2 && c->text_len >= 16)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
			 ", sense key %#x, additional %02x/%02x", c->text[4] & 15u, c->text[14],
			 c->text[15]);
	show(w, c, text);
}

/* Its write may have been done or not, or be done yet: nothing is known about the place. */
static void forget_range(const struct slot *s)
{
	memset(s->lu->gen + s->offset / STAMP_BYTES, 0,
	       s->len / STAMP_BYTES * sizeof(s->lu->gen[0]));
}

static void on_done(struct conn *c, struct slot *s, uint8_t status)
{
	struct worker *w = c->owner;
	struct tally *t = &w->tally;
	unsigned kind = s->write ? WRITES : READS;

	w->inflight--;
	w->ended++;
	if (w->run->opts->verify) {
		range_mark(s->lu, s->offset, s->len, 0);
		if (s->write && status == 0) {
			uint64_t at = s->offset / STAMP_BYTES;

			for (uint32_t i = 0; i < s->len / STAMP_BYTES; i++)
				s->lu->gen[at + i] = s->lu->owed[at + i];
		} else if (s->write) {
			forget_range(s);
		} else if (status == 0) {
			check_range(w, c, s);
		}
	}
	if (status != 0) {
		t->failed++;
		show_status(w, c, s, status);
		return;
	}
	if (w->measuring) {
		t->ios[kind]++;
		t->bytes[kind] += s->len;
		hist_add(&t->lat[kind], w->now > s->start ? w->now - s->start : 0);
	}
}

static void bury(struct worker *w, struct conn *c)
{
	epoll_ctl(w->epfd, EPOLL_CTL_DEL, c->fd, NULL);
	if (c->dead && c->why[0]) {
		show(w, c, c->why);
		c->why[0] = '\0';
	}
	if (c->local < w->nconn)
		w->alive--;
	for (unsigned i = 0; i < c->depth; i++) {
		struct slot *s = &c->slot[i];

		if (!s->active)
			continue;
		s->active = false;
		w->tally.failed++;
		w->inflight--;
		if (w->run->opts->verify && s->write)
			forget_range(s); /* and it stays busy until read back */
	}
}

static bool issuing(const struct worker *w)
{
	return w->phase != PHASE_RUN || w->now < w->run->end;
}

/* Filling and reading back have no rate: they go as fast as they can. */
static bool open_loop(const struct worker *w)
{
	return w->gap != 0.0 && w->phase == PHASE_RUN;
}

static void flush(struct worker *w, struct conn *c)
{
	bool was = c->tx_blocked;

	if (c->dead)
		return;
	if (conn_flush(c) != 0) {
		bury(w, c);
		return;
	}
	if (c->tx_blocked != was) {
		struct epoll_event e = {.events =
						EPOLLIN | (c->tx_blocked ? (uint32_t)EPOLLOUT : 0),
					.data.ptr = c};

		epoll_ctl(w->epfd, EPOLL_CTL_MOD, c->fd, &e);
	}
}

/* Closed loop: fill every free slot of connection i, then send. */
static void refill(struct worker *w, unsigned i)
{
	struct conn *c = w->conn[i];

	if (!open_loop(w) && i < w->nconn)
		while (c->nfree > 0 && conn_window(c) && issuing(w) && start_one(w, i, w->now))
			;
	flush(w, c);
}

/* Open loop: start what has fallen due. */
static void arrivals(struct worker *w)
{
	bool touched = false;

	while (w->due <= w->now && issuing(w)) {
		unsigned tries;

		for (tries = 0; tries < w->nconn; tries++) {
			struct conn *c = w->conn[w->turn];

			if (c->nfree > 0 && conn_window(c))
				break;
			w->turn = (w->turn + 1) % w->nconn;
		}
		if (tries == w->nconn) {
			/* No slot: it waits, and its latency grows. Far behind, drop and count. */
			if (w->now - w->due > LATE_NS) {
				w->tally.late++;
				w->due += (uint64_t)w->gap;
				continue;
			}
			break;
		}
		if (!start_one(w, w->turn, w->due))
			break;
		touched = w->moved = true;
		w->turn = (w->turn + 1) % w->nconn;
		w->due += w->run->opts->poisson ? (uint64_t)(-w->gap * log(1.0 - rnd_unit(&w->rnd)))
						: (uint64_t)w->gap;
	}
	if (touched)
		for (unsigned i = 0; i < w->nconn; i++)
			flush(w, w->conn[i]);
}

/*
 * Receive until half of the connection's commands have ended, or nothing more is there: then the
 * next batch of commands leaves in one piece. Answering the first completions at once would only
 * split what is in flight into more and smaller batches, at both ends.
 */
static void receive(struct worker *w, struct conn *c)
{
	uint64_t before = w->ended;
	uint32_t total = 0;
	int n;

	do {
		n = conn_rx(c, &w->now);
		total += n > 0 ? (uint32_t)n : 0;
	} while (n > 0 && w->ended - before < c->depth / 2 && total < c->rsize);
	if (n < 0) {
		bury(w, c);
		return;
	}
	if (w->ended != before && w->measuring)
		w->tally.batches++;
	atomic_store_explicit(&w->done, w->ended, memory_order_relaxed);
	if (total > 0) {
		w->moved = true;
		w->heard = w->now;
		refill(w, c->local);
	}
}

/* ---- the loop
 * ------------------------------------------------------------------------------------ */

/* Start and stop measuring when its time has come. */
static void clock_tick(struct worker *w)
{
	struct run *r = w->run;

	w->now = now_ns();
	if (w->phase != PHASE_RUN)
		return;
	if (!w->measuring && w->last == 0 && w->now >= r->begin) {
		uint64_t failed = w->tally.failed, wrong = w->tally.miscompared,
			 ok = w->tally.checked;

		memset(&w->tally, 0, sizeof(w->tally));
		w->tally.failed = failed;
		w->tally.miscompared = wrong;
		w->tally.checked = ok;
		for (unsigned k = 0; k < KINDS; k++)
			hist_reset(&w->tally.lat[k]);
		w->measuring = true;
		w->first = w->now;
	} else if (w->measuring && w->now >= r->end) {
		w->measuring = false;
		w->last = w->now;
	}
}

/* How long the next wait may last, ns: 0 to spin. */
static uint64_t patience(const struct worker *w)
{
	if (!w->run->opts->block)
		return 0;
	/* The next arrival ends a wait. One that is due already has no slot: an answer frees it. */
	if (open_loop(w) && issuing(w) && w->due > w->now && w->due - w->now < WAIT_NS)
		return w->due - w->now;
	return WAIT_NS;
}

/* What is under way takes so long that nobody waits for it. */
static bool overdue(const struct worker *w)
{
	if (w->phase == PHASE_RUN && !w->run->opts->count)
		return w->now > w->run->end + DRAIN_NS;
	return w->now > w->heard + SILENCE_NS;
}

/* Connections that owe an answer are lost. */
static void lose_silent(struct worker *w)
{
	for (unsigned i = 0; i < w->nconn; i++) {
		struct conn *c = w->conn[i];
		bool owes = false;

		for (unsigned k = 0; k < c->depth; k++)
			owes |= c->slot[k].active;
		if (c->dead || !owes)
			continue;
		conn_fail(c, "commands are not answered");
		bury(w, c);
	}
}

/* What a lost connection would have gone through is left out. */
static bool streams_over(const struct worker *w)
{
	for (unsigned i = 0; i < w->nconn; i++)
		if (!w->seq[i].over && !w->conn[i]->dead && !w->conn[i]->draining)
			return false;
	return true;
}

static bool finished(struct worker *w)
{
	if (w->alive == 0 || atomic_load_explicit(&w->run->stop, memory_order_relaxed))
		return true;
	if (w->inflight > 0) {
		if (!overdue(w))
			return false;
		if (w->phase == PHASE_RUN && !w->run->opts->verify && !w->run->opts->count)
			return true;
		lose_silent(w);
	}
	if (w->phase != PHASE_RUN)
		return streams_over(w);
	if (w->run->opts->count != 0)
		return atomic_load_explicit(&w->run->issued, memory_order_relaxed) >=
		       w->run->opts->count;
	return w->now >= w->run->end;
}

static void loop_events(struct worker *w)
{
	struct epoll_event e[EVENTS];
	uint64_t ns = patience(w);
	struct timespec wait = {.tv_nsec = (long)ns};
	int n = ns == 0 ? epoll_wait(w->epfd, e, EVENTS, 0)
			: epoll_pwait2(w->epfd, e, EVENTS, &wait, NULL);

	if (n > 0)
		clock_tick(w);
	for (int k = 0; k < n; k++) {
		struct conn *c = e[k].data.ptr;

		if (c->dead)
			continue;
		if (e[k].events & (EPOLLIN | EPOLLERR | EPOLLHUP))
			receive(w, c);
		if (e[k].events & EPOLLOUT)
			flush(w, c);
	}
}

void *work_thread(void *arg)
{
	struct worker *w = arg;
	unsigned spins = 0;

	if (w->cpu >= 0) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(w->cpu, &set);
		if (sched_setaffinity(0, sizeof(set), &set) != 0)
			fprintf(stderr, "tgt-load: cannot pin to CPU %d: %s\n", w->cpu,
				strerror(errno));
	}
	prctl(PR_SET_TIMERSLACK, 1); /* arrivals need better than the usual 50 us */
	clock_tick(w);
	w->due = w->heard = w->now;
	for (unsigned i = 0; i < w->nconn; i++)
		refill(w, i);
	while (!finished(w)) {
		uint64_t turn = w->now;

		clock_tick(w);
		if (!w->moved && w->measuring)
			w->tally.waited += w->now - turn;
		w->moved = false;
		if (open_loop(w))
			arrivals(w);
		/* One connection: the receive itself tells whether there is something. */
		if (w->nconn == 1 && w->nidle == 0 && !w->run->opts->block && !w->conn[0]->dead &&
		    !w->conn[0]->tx_blocked && ++spins % 16 != 0)
			receive(w, w->conn[0]);
		else
			loop_events(w);
		/* Slots that could not be used then (window, busy places) may be usable now. */
		if (!open_loop(w))
			for (unsigned i = 0; i < w->nconn; i++)
				if (w->conn[i]->nfree > 0 && conn_window(w->conn[i]) && issuing(w))
					refill(w, i);
	}
	if (w->measuring) {
		w->last = now_ns();
		w->measuring = false;
	}
	return NULL;
}

/* ---- set-up
 * -------------------------------------------------------------------------------------- */

/* Where each connection's stream starts: the connections of one LU share it. */
static void place_streams(struct worker *w)
{
	const struct opts *o = w->run->opts;
	unsigned nlu = w->run->nlu;

	for (unsigned i = 0; i < w->nconn; i++) {
		unsigned index = w->conn[i]->index, lu = index % nlu, rank = index / nlu;
		unsigned sharers = (o->connections - lu + nlu - 1) / nlu;
		struct seq *q = &w->seq[i];

		*q = (struct seq){.lu = lu, .step = 1};
		if (w->phase == PHASE_RUN) {
			q->at = w->run->lu[lu].range / sharers / BS_MAX * BS_MAX * rank;
		} else {
			q->step = sharers;
			q->at = (uint64_t)rank * FILL_BS;
		}
	}
}

int work_init(struct worker *w)
{
	const struct opts *o = w->run->opts;

	w->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (w->epfd < 0)
		return -errno;
	w->alive = w->nconn;
	w->rnd.state = rnd_mix(o->seed * 0x9e3779b97f4a7c15ull + w->index);
	w->seq = calloc(w->nconn + 1, sizeof(*w->seq));
	w->zipf = calloc(o->nsizes, sizeof(*w->zipf));
	if (!w->seq || !w->zipf)
		return -ENOMEM;
	for (unsigned i = 0; i < o->nsizes; i++)
		zipf_init(&w->zipf[i], w->run->lu[0].range / o->size[i], o->theta);
	if (o->verify) {
		w->bufs = malloc((size_t)w->nconn * o->depth * BS_MAX);
		if (!w->bufs)
			return -ENOMEM;
	}
	if (o->rate > 0.0)
		w->gap = 1e9 / o->rate * o->connections / w->nconn;
	for (unsigned k = 0; k < KINDS; k++)
		hist_reset(&w->tally.lat[k]);
	for (unsigned i = 0; i < w->nconn + w->nidle; i++) {
		struct conn *c = w->conn[i];
		struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};

		c->local = i;
		c->owner = w;
		c->done = on_done;
		c->pattern = w->run->pattern;
		if (epoll_ctl(w->epfd, EPOLL_CTL_ADD, c->fd, &e) != 0)
			return -errno;
	}
	return 0;
}

void work_phase(struct worker *w, enum phase phase)
{
	const struct run *r = w->run;

	w->phase = phase;
	if (phase == PHASE_READ_BACK) /* (of lost connections: there is one worker) */
		for (unsigned i = 0; i < r->nlu; i++)
			memset(r->lu[i].busy, 0, r->lu[i].range / STAMP_BYTES);
	place_streams(w);
}

void work_free(struct worker *w)
{
	if (w->epfd >= 0)
		close(w->epfd);
	free(w->seq);
	free(w->zipf);
	free(w->bufs);
}
