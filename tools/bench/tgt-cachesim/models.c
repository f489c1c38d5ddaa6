/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Policies to compare: the daemon's own (cache/engine/policy.c, linked in, not copied), and models
 * written from the papers: LRU, OPT (Belady 1966), 2Q (Johnson and Shasha 1994), LIRS (Jiang and
 * Zhang 2002), ARC (Megiddo and Modha 2003), S3-FIFO (Yang et al. 2023).
 */
#include <stdlib.h>
#include "cache/engine/policy.h"
#include "tools/bench/tgt-cachesim/sim.h"

#define NONE UINT32_MAX

/* ---- queues over block numbers: a block is on at most one queue of a set --------------------- */

struct set {
	uint32_t *prev, *next;
	uint8_t *on; /* which queue, 0 none */
	struct {
		uint32_t head, tail, n; /* oldest, newest */
	} q[8];
};

static struct set set_make(uint32_t blocks)
{
	struct set s = {
		malloc(blocks * 4ull), malloc(blocks * 4ull), calloc(blocks, 1), { { 0, 0, 0 } }
	};
	if (!s.prev || !s.next || !s.on)
		abort();
	for (int i = 0; i < 8; i++)
		s.q[i].head = s.q[i].tail = NONE;
	return s;
}

static void set_free(struct set *s)
{
	free(s->prev);
	free(s->next);
	free(s->on);
}

static void push(struct set *s, unsigned q, uint32_t b)
{
	s->prev[b] = s->q[q].tail;
	s->next[b] = NONE;
	if (s->q[q].tail != NONE)
		s->next[s->q[q].tail] = b;
	else
		s->q[q].head = b;
	s->q[q].tail = b;
	s->q[q].n++;
	s->on[b] = (uint8_t)q;
}

static void del(struct set *s, uint32_t b)
{
	unsigned q = s->on[b];
	if (s->prev[b] != NONE)
		s->next[s->prev[b]] = s->next[b];
	else
		s->q[q].head = s->next[b];
	if (s->next[b] != NONE)
		s->prev[s->next[b]] = s->prev[b];
	else
		s->q[q].tail = s->prev[b];
	s->q[q].n--;
	s->on[b] = 0;
}

static uint32_t pop(struct set *s, unsigned q)
{
	uint32_t b = s->q[q].head;
	del(s, b);
	return b;
}

static void move(struct set *s, unsigned q, uint32_t b)
{
	del(s, b);
	push(s, q, b);
}

/* ---- ours ------------------------------------------------------------------------------------ */

static bool always(void *arg, struct block *b)
{
	return true;
}

static uint64_t run_ours(const struct trace *t, uint32_t capacity)
{
	struct policy p;
	struct block *hdr = aligned_alloc(CACHE_LINE, capacity * sizeof(*hdr));
	uint32_t *at = malloc(t->footprint * 4ull), used = 0;
	uint64_t hits = 0;
	if (!hdr || !at || policy_init(&p, hdr, capacity, NULL) < 0)
		abort();
	memset(hdr, 0, capacity * sizeof(*hdr));
	memset(at, 0xff, t->footprint * 4ull);
	for (uint32_t i = 0; i < t->n; i++) {
		uint32_t block = t->ref[i];
		struct block *b;
		if (at[block] != NONE) {
			policy_hit(&p, policy_hash(1, block), &hdr[at[block]]);
			hits++;
			continue;
		}
		policy_use(&p, 1, block);
		if (used < capacity) {
			b = &hdr[used];
			b->index = used++;
		} else {
			uint32_t visits = 64; /* as the cache has them: LEAF_VISITS */

			b = policy_evict(&p, always, NULL, &visits);
			at[b->block] = NONE;
		}
		b->device = 1;
		b->block = block;
		b->flags = 0;
		at[block] = b->index;
		policy_admit(&p, b);
	}
	policy_fini(&p);
	free(hdr);
	free(at);
	return hits;
}

/* ---- LRU ------------------------------------------------------------------------------------- */

static uint64_t run_lru(const struct trace *t, uint32_t capacity)
{
	struct set s = set_make(t->footprint);
	uint64_t hits = 0;
	for (uint32_t i = 0; i < t->n; i++) {
		uint32_t b = t->ref[i];
		if (s.on[b]) {
			hits++;
			move(&s, 1, b);
			continue;
		}
		if (s.q[1].n == capacity)
			pop(&s, 1);
		push(&s, 1, b);
	}
	set_free(&s);
	return hits;
}

/* ---- OPT: evict what is used again last, of which a heap keeps track ------------------------- */

struct far {
	uint32_t when, block;
};

static uint64_t run_opt(const struct trace *t, uint32_t capacity)
{
	uint32_t *next = malloc(t->n * 4ull), *last = malloc(t->footprint * 4ull), n = 0,
		 resident = 0;
	/* Next use of a resident block; 0: not resident. */
	uint32_t *due = malloc(t->footprint * 4ull);
	struct far *heap = malloc((t->n + 1ull) * sizeof(*heap));
	uint64_t hits = 0;
	if (!next || !last || !due || !heap)
		abort();
	memset(last, 0xff, t->footprint * 4ull);
	memset(due, 0, t->footprint * 4ull);
	for (uint32_t i = t->n; i-- > 0;) {
		next[i] = last[t->ref[i]];
		last[t->ref[i]] = i;
	}
	for (uint32_t i = 0; i < t->n; i++) {
		uint32_t b = t->ref[i];
		if (due[b]) {
			hits++;
		} else if (next[i] == NONE) {
			continue; /* never again: OPT does not even let it in */
		} else if (resident == capacity) {
			struct far top;
			do { /* the farthest; entries of the past are stale */
				top = heap[1];
				struct far x = heap[n--];
				uint32_t k = 1;
				for (; k * 2 <= n;) {
					uint32_t c = k * 2;
					if (c < n && heap[c + 1].when > heap[c].when)
						c++;
					if (heap[c].when <= x.when)
						break;
					heap[k] = heap[c];
					k = c;
				}
				heap[k] = x;
			} while (due[top.block] != top.when);
			due[top.block] = 0;
		} else {
			resident++;
		}
		due[b] = next[i];
		struct far x = { next[i], b };
		uint32_t k = ++n;
		for (; k > 1 && heap[k / 2].when < x.when; k /= 2)
			heap[k] = heap[k / 2];
		heap[k] = x;
	}
	free(next);
	free(last);
	free(due);
	free(heap);
	return hits;
}

/* ---- 2Q -------------------------------------------------------------------------------------- */

static uint64_t run_2q(const struct trace *t, uint32_t capacity)
{
	enum { IN = 1, MAIN, OUT };
	struct set s = set_make(t->footprint);
	uint32_t kin = MAX(capacity / 4, 1u), kout = MAX(capacity / 2, 1u);
	uint64_t hits = 0;
	for (uint32_t i = 0; i < t->n; i++) {
		uint32_t b = t->ref[i];
		unsigned was = s.on[b];
		if (was == IN || was == MAIN) {
			hits++;
			if (was == MAIN)
				move(&s, MAIN, b);
			continue;
		}
		if (was == OUT)
			del(&s, b);
		if (s.q[IN].n + s.q[MAIN].n == capacity) {
			if (s.q[IN].n > kin || !s.q[MAIN].n) {
				push(&s, OUT, pop(&s, IN));
				if (s.q[OUT].n > kout)
					pop(&s, OUT);
			} else {
				pop(&s, MAIN);
			}
		}
		push(&s, was == OUT ? MAIN : IN, b);
	}
	set_free(&s);
	return hits;
}

/* ---- ARC ------------------------------------------------------------------------------------- */

static uint64_t run_arc(const struct trace *t, uint32_t c)
{
	enum { T1 = 1, T2, B1, B2 };
	struct set s = set_make(t->footprint);
	double p = 0;
	uint64_t hits = 0;
	for (uint32_t i = 0; i < t->n; i++) {
		uint32_t b = t->ref[i];
		unsigned was = s.on[b];
		if (was == T1 || was == T2) {
			hits++;
			move(&s, T2, b);
			continue;
		}
		if (was == B1)
			p = MIN((double)c, p + MAX(1.0, (double)s.q[B2].n / s.q[B1].n));
		else if (was == B2)
			p = MAX(0.0, p - MAX(1.0, (double)s.q[B1].n / s.q[B2].n));
		bool replace = was == B1 || was == B2;
		if (!was) {
			if (s.q[T1].n + s.q[B1].n == c) {
				if (s.q[T1].n < c) {
					pop(&s, B1);
					replace = true;
				} else {
					pop(&s, T1);
				}
			} else if (s.q[T1].n + s.q[T2].n + s.q[B1].n + s.q[B2].n >= c) {
				if (s.q[T1].n + s.q[T2].n + s.q[B1].n + s.q[B2].n == 2 * c)
					pop(&s, B2);
				replace = true;
			}
		}
		if (replace && s.q[T1].n + s.q[T2].n >= c) {
			if (s.q[T1].n && (s.q[T1].n > p ||
					  (was == B2 && s.q[T1].n == (uint32_t)p) || !s.q[T2].n))
				push(&s, B1, pop(&s, T1));
			else
				push(&s, B2, pop(&s, T2));
		}
		if (was)
			move(&s, T2, b);
		else
			push(&s, T1, b);
	}
	set_free(&s);
	return hits;
}

/* ---- S3-FIFO --------------------------------------------------------------------------------- */

static uint64_t run_s3fifo(const struct trace *t, uint32_t capacity)
{
	enum { S = 1, M, G };
	struct set s = set_make(t->footprint);
	uint8_t *freq = calloc(t->footprint, 1);
	uint32_t small = MAX(capacity / 10, 1u), main_ = capacity - small;
	uint64_t hits = 0;
	if (!freq)
		abort();
	for (uint32_t i = 0; i < t->n; i++) {
		uint32_t b = t->ref[i];
		unsigned was = s.on[b];
		if (was == S || was == M) {
			hits++;
			if (freq[b] < 3)
				freq[b]++;
			continue;
		}
		if (was == G)
			del(&s, b);
		while (s.q[S].n + s.q[M].n >= capacity) {
			bool from_small = s.q[S].n >= small || !s.q[M].n;
			uint32_t v = pop(&s, from_small ? S : M);
			if (from_small && freq[v] > 1) {
				freq[v] = 0;
				push(&s, M, v);
				while (s.q[M].n > main_) {
					v = pop(&s, M);
					if (freq[v]) {
						freq[v]--;
						push(&s, M, v);
					}
				}
			} else if (from_small) {
				push(&s, G, v);
				if (s.q[G].n > main_)
					pop(&s, G);
			} else if (freq[v]) {
				freq[v]--;
				push(&s, M, v);
			}
		}
		freq[b] = 0;
		push(&s, was == G ? M : S, b);
	}
	free(freq);
	set_free(&s);
	return hits;
}

/* ---- LIRS: stack S of recency (low and high inter-reference), queue Q of resident high ones -- */

static uint64_t run_lirs(const struct trace *t, uint32_t capacity)
{
	enum { LIR = 1, HIR_RESIDENT, HIR_GONE };
	struct set stack = set_make(t->footprint), queue = set_make(t->footprint);
	uint8_t *kind = calloc(t->footprint, 1);
	uint32_t hirs = MAX(capacity / 100, 2u), lirs = capacity - hirs, nlir = 0, resident = 0;
	uint64_t hits = 0;
	if (!kind)
		abort();
	for (uint32_t i = 0; i < t->n; i++) {
		uint32_t b = t->ref[i];
		bool hit = kind[b] == LIR || kind[b] == HIR_RESIDENT, in_stack = stack.on[b],
		     to_lir;
		hits += hit;
		if (!hit) {
			if (resident == capacity) {
				uint32_t v = pop(&queue, 1);
				kind[v] = stack.on[v] ? HIR_GONE : 0;
				resident--;
			}
			resident++;
		}
		if (kind[b] == LIR) {
			move(&stack, 1, b);
		} else {
			to_lir = nlir < lirs || in_stack;
			if (queue.on[b])
				del(&queue, b);
			if (in_stack)
				del(&stack, b);
			push(&stack, 1, b);
			if (to_lir) {
				kind[b] = LIR;
				if (++nlir > lirs) { /* the oldest low one steps down */
					uint32_t v = stack.q[1].head;
					while (kind[v] != LIR) {
						del(&stack, v);
						if (kind[v] == HIR_GONE)
							kind[v] = 0;
						v = stack.q[1].head;
					}
					del(&stack, v);
					kind[v] = HIR_RESIDENT;
					push(&queue, 1, v);
					nlir--;
				}
			} else {
				kind[b] = HIR_RESIDENT;
				push(&queue, 1, b);
			}
		}
		while (stack.q[1].n && kind[stack.q[1].head] != LIR) { /* prune */
			uint32_t v = pop(&stack, 1);
			if (kind[v] == HIR_GONE)
				kind[v] = 0;
		}
	}
	free(kind);
	set_free(&stack);
	set_free(&queue);
	return hits;
}

const struct model models[] = {
	{ "tgtd", "#d62728", run_ours },      { "OPT", "#999999", run_opt },
	{ "LRU", "#1f77b4", run_lru },	      { "2Q", "#2ca02c", run_2q },
	{ "ARC", "#9467bd", run_arc },	      { "LIRS", "#ff7f0e", run_lirs },
	{ "S3-FIFO", "#17becf", run_s3fifo },
};
const unsigned nmodels = ARRAY_SIZE(models);
