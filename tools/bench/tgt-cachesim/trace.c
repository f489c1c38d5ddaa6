/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reference strings: four synthetic families, or a file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "tools/bench/tgt-cachesim/sim.h"

static uint64_t rng;

static uint64_t rnd(void)
{
	uint64_t z = rng += 0x9e3779b97f4a7c15ull; /* splitmix64 */
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static double uniform(void)
{
	return (double)(rnd() >> 11) / 9007199254740992.0;
}

struct builder {
	uint64_t *v;
	size_t n, cap;
};

static void add(struct builder *b, uint64_t block)
{
	if (b->n == b->cap) {
		b->cap = b->cap ? b->cap * 2 : 1 << 16;
		b->v = realloc(b->v, b->cap * sizeof(*b->v));
		if (!b->v)
			abort();
	}
	b->v[b->n++] = block;
}

static int order(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* Gives the blocks dense numbers. */
static struct trace *finish(struct builder *b, const char *name, const char *what)
{
	struct trace *t = calloc(1, sizeof(*t));
	uint64_t *sorted = malloc(b->n * sizeof(*sorted));
	uint32_t unique = 0;
	if (!t || !sorted || !b->n)
		abort();
	memcpy(sorted, b->v, b->n * sizeof(*sorted));
	qsort(sorted, b->n, sizeof(*sorted), order);
	for (size_t i = 0; i < b->n; i++)
		if (!i || sorted[i] != sorted[unique - 1])
			sorted[unique++] = sorted[i];
	t->name = name;
	t->what = what;
	t->n = (uint32_t)b->n;
	t->footprint = unique;
	t->ref = malloc(b->n * sizeof(*t->ref));
	if (!t->ref)
		abort();
	for (size_t i = 0; i < b->n; i++) {
		uint64_t *at = bsearch(&b->v[i], sorted, unique, sizeof(*sorted), order);
		t->ref[i] = (uint32_t)(at - sorted);
	}
	free(sorted);
	free(b->v);
	return t;
}

/* Ranks by Zipf's law with exponent @alpha; which block has which rank
 * is scrambled by the caller. */
struct zipf {
	uint32_t n;
	double *cdf;
};

static struct zipf zipf_make(uint32_t n, double alpha)
{
	struct zipf z = { n, malloc(n * sizeof(double)) };
	double sum = 0;
	if (!z.cdf)
		abort();
	for (uint32_t i = 0; i < n; i++)
		z.cdf[i] = sum += pow(i + 1, -alpha);
	for (uint32_t i = 0; i < n; i++)
		z.cdf[i] /= sum;
	return z;
}

static uint32_t zipf_draw(const struct zipf *z)
{
	double u = uniform();
	uint32_t lo = 0, hi = z->n - 1;
	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;
		if (z->cdf[mid] < u)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct trace *make_zipf(void)
{
	struct builder b = { 0 };
	struct zipf z = zipf_make(60000, 0.9);
	for (int i = 0; i < 700000; i++)
		/* 60000 and the factor share no divisor */
		add(&b, zipf_draw(&z) * 2654435761u % 60000u);
	free(z.cdf);
	return finish(&b, "zipf", "Zipf 0.9 over 60000 blocks");
}

static struct trace *make_loop(void)
{
	struct builder b = { 0 };
	for (int round = 0; round < 14; round++)
		for (uint64_t i = 0; i < 40000; i++)
			add(&b, i);
	return finish(&b, "loop", "14 rounds over 40000 blocks in order");
}

/* Random small reads with a backup running through now and then. */
static struct trace *make_scan(void)
{
	struct builder b = { 0 };
	struct zipf z = zipf_make(30000, 0.9);
	for (int phase = 0; phase < 20; phase++) {
		for (int i = 0; i < 20000; i++)
			add(&b, zipf_draw(&z) * 2654435761u % 30000u);
		/* Each part is scanned four times, far apart. */
		uint64_t from = 30000 + (uint64_t)(phase % 5) * 12000;
		for (uint64_t i = 0; i < 12000; i++) {
			add(&b, from + i);
			if (rnd() % 3 == 0)
				add(&b, zipf_draw(&z) * 2654435761u % 30000u);
		}
	}
	free(z.cdf);
	return finish(&b, "scan", "Zipf 0.9 over 30000 blocks, long scans in between");
}

/* A mail server's day after PostMark: many small files; a transaction reads or appends to one, and
 * creates or deletes one; a file's directory and inode blocks are read on the way. */
static struct trace *make_postmark(void)
{
	enum { FILES = 12000, DIRS = 60, FILE_BLOCKS = 8 };
	struct builder b = { 0 };
	uint64_t *file = malloc(FILES * sizeof(*file)), next_file = FILES;
	uint8_t *len = malloc(FILES);
	uint64_t *freed = malloc(400000 * sizeof(*freed)), nfreed = 0;
	if (!file || !len || !freed)
		abort();
	for (uint32_t i = 0; i < FILES; i++) {
		file[i] = i;
		len[i] = (uint8_t)(1 + rnd() % 4);
	}
	for (int i = 0; i < 130000; i++) {
		/* Half of the traffic goes to the files that were touched last. */
		uint32_t k = rnd() % 2 ? (uint32_t)(rnd() % FILES) :
					 FILES - 1 - (uint32_t)(uniform() * uniform() * 2000);
		uint64_t base = 1u << 20, dir = file[k] % DIRS, inode = 4096 + file[k] / 16;
		add(&b, dir * 4 + file[k] / DIRS % 4);
		add(&b, inode);
		if (rnd() % 2 && len[k] < FILE_BLOCKS) {
			add(&b, base + file[k] * FILE_BLOCKS + len[k] - 1);
			len[k]++;
			add(&b, base + file[k] * FILE_BLOCKS + len[k] - 1);
		} else {
			for (int j = 0; j < len[k]; j++)
				add(&b, base + file[k] * FILE_BLOCKS + (uint64_t)j);
		}
		if (rnd() % 4 == 0) {
			/* Deleted, and another created, often in its place on the disk. */
			uint64_t old = file[k];
			freed[nfreed++] = old;
			file[k] = rnd() % 2 ? next_file++ : freed[rnd() % nfreed];
			len[k] = (uint8_t)(1 + rnd() % 4);
			add(&b, file[k] % DIRS * 4);
			for (int j = 0; j < len[k]; j++)
				add(&b, base + file[k] * FILE_BLOCKS + (uint64_t)j);
		}
		/* It becomes one of the youngest. */
		uint32_t y = FILES - 1 - (uint32_t)(rnd() % 16);
		uint64_t f = file[k];
		uint8_t l = len[k];
		file[k] = file[y], len[k] = len[y];
		file[y] = f, len[y] = l;
	}
	free(file);
	free(len);
	free(freed);
	return finish(&b, "postmark", "small files created, read, appended to, deleted");
}

static const struct {
	const char *name;
	struct trace *(*make)(void);
} families[] = { { "zipf", make_zipf },
		 { "loop", make_loop },
		 { "scan", make_scan },
		 { "postmark", make_postmark } };

const char *const trace_names[] = { "zipf", "loop", "scan", "postmark", NULL };

struct trace *trace_make(const char *name, uint64_t seed)
{
	rng = seed;
	for (size_t i = 0; i < ARRAY_SIZE(families); i++)
		if (strcmp(name, families[i].name) == 0)
			return families[i].make();
	return NULL;
}

struct trace *trace_load(const char *path)
{
	struct builder b = { 0 };
	FILE *f = fopen(path, "r");
	unsigned long long v;
	int got;
	if (!f) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return NULL;
	}
	while ((got = fscanf(f, "%llu", &v)) == 1 && b.n < UINT32_MAX)
		add(&b, v);
	fclose(f);
	if (got == 0 || !b.n) {
		fprintf(stderr, "%s: expected block numbers, one a line\n", path);
		free(b.v);
		return NULL;
	}
	return finish(&b, "file", path);
}

void trace_free(struct trace *t)
{
	free(t->ref);
	free(t);
}
