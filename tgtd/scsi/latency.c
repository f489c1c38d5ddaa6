/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Histograms of latency, and reading them: see latency.h. */
#include <stdlib.h>

#include "tgtd/scsi/latency_impl.h"
#include "tgtd/scsi/lu.h"

const char *const lat_class_names[LAT_CLASSES] = { "read", "write", "sync", "unmap", "other" };
const char *const lat_figure_names[LAT_FIGURES] = { "total", "waiting", "cache", "store", "wire" };
const char *const lat_wait_names[LAT_WAITS] = { "thread", "order", "blocks", "share", "limit" };

/* ---- buckets --------------------------------------------------------------------------------- */

uint64_t lat_bucket_first(unsigned i)
{
	if (i < 8)
		return (uint64_t)i << (LAT_LINEAR_BITS - 3);
	return (uint64_t)(8 + i % 8) << (i / 8 - 1 + LAT_LINEAR_BITS - 3);
}

uint64_t lat_bucket_last(unsigned i)
{
	return i >= LAT_BUCKETS - 1 ? UINT64_MAX : lat_bucket_first(i + 1) - 1;
}

/* The value from which both ends of a bucket are equally far in proportion. */
static uint64_t bucket_value(unsigned i, uint64_t max_ns)
{
	const double first = (double)lat_bucket_first(i);
	const double end = (double)lat_bucket_first(i + 1);
	uint64_t v;

	if (i < 8)
		return MIN((lat_bucket_first(i) + lat_bucket_last(i)) / 2, max_ns);
	v = i >= LAT_BUCKETS - 1 ? max_ns : (uint64_t)(2 * first * end / (first + end));
	return MIN(v, max_ns);
}

uint64_t lat_percentile(const struct lat_hist *h, unsigned permyriad)
{
	uint64_t n = 0, seen = 0, rank;

	for (unsigned i = 0; i < LAT_BUCKETS; i++)
		n += h->bucket[i];
	if (!n)
		return 0;
	if (permyriad >= 10000)
		return h->max_ns;
	/* The rank-th smallest, from 1 on: as many as that do not exceed it. */
	rank = (uint64_t)(((__uint128_t)n * permyriad + 9999) / 10000);
	rank = MAX(rank, 1u);
	for (unsigned i = 0; i < LAT_BUCKETS; i++) {
		seen += h->bucket[i];
		if (seen >= rank)
			return bucket_value(i, h->max_ns);
	}
	return h->max_ns;
}

void lat_hist_add(struct lat_hist *to, const struct lat_hist *from)
{
	to->count += from->count;
	to->sum_ns += from->sum_ns;
	to->max_ns = MAX(to->max_ns, from->max_ns);
	for (unsigned i = 0; i < LAT_BUCKETS; i++)
		to->bucket[i] += from->bucket[i];
}

void lat_hist_since(struct lat_hist *to, const struct lat_hist *before)
{
	to->count -= before->count;
	to->sum_ns -= before->sum_ns;
	for (unsigned i = 0; i < LAT_BUCKETS; i++)
		to->bucket[i] -= before->bucket[i];
}

/* ---- counting -------------------------------------------------------------------------------- */

static uint64_t look(const uint64_t *figure)
{
	return __atomic_load_n(figure, __ATOMIC_RELAXED);
}

bool lat_series_piece(struct lat_series *s, unsigned bucket, uint32_t n)
{
	uint64_t *piece = calloc(LAT_PIECE, sizeof(*piece));

	if (!piece)
		return false;
	piece[bucket % LAT_PIECE] = n;
	__atomic_store_n(&s->piece[bucket / LAT_PIECE], piece, __ATOMIC_RELEASE);
	return true;
}

struct lat_shard *lat_shard_new(void)
{
	return calloc(1, sizeof(struct lat_shard));
}

void lat_series_free(struct lat_series *s)
{
	for (unsigned i = 0; i < ARRAY_SIZE(s->piece); i++)
		free(s->piece[i]);
}

void lat_own_free(struct lat_own *o)
{
	for (unsigned c = 0; o && c < LAT_CLASSES; c++)
		lat_series_free(&o->total[c]);
	free(o);
}

void lat_shard_free(struct lat_shard *s)
{
	if (!s)
		return;
	for (unsigned c = 0; c < LAT_CLASSES; c++)
		for (unsigned f = 0; f < LAT_FIGURES; f++)
			lat_series_free(&s->class[c].figure[f]);
	lat_slow_free(s);
	free(s);
}

static void series_fold(struct lat_series *to, struct lat_series *from)
{
	to->n += from->n;
	to->sum_ns += from->sum_ns;
	to->max_ns = MAX(to->max_ns, from->max_ns);
	for (unsigned i = 0; i < ARRAY_SIZE(to->piece); i++) {
		if (!to->piece[i]) {
			to->piece[i] = from->piece[i];
			from->piece[i] = NULL;
			continue;
		}
		for (unsigned b = 0; from->piece[i] && b < LAT_PIECE; b++)
			to->piece[i][b] += from->piece[i][b];
	}
}

void lat_shard_fold(struct lat_shard *to, struct lat_shard *from)
{
	for (unsigned c = 0; c < LAT_CLASSES; c++) {
		for (unsigned f = 0; f < LAT_FIGURES; f++)
			series_fold(&to->class[c].figure[f], &from->class[c].figure[f]);
		for (unsigned w = 0; w < LAT_WAITS; w++)
			to->class[c].wait_ns[w] += from->class[c].wait_ns[w];
	}
	to->lost += from->lost;
	lat_slow_fold(to, from);
	lat_shard_free(from);
}

/* ---- reading --------------------------------------------------------------------------------- */

void lat_series_read(const struct lat_series *s, struct lat_hist *to)
{
	to->count += look(&s->n);
	to->sum_ns += look(&s->sum_ns);
	to->max_ns = MAX(to->max_ns, look(&s->max_ns));
	for (unsigned i = 0; i < ARRAY_SIZE(s->piece); i++) {
		const uint64_t *piece = __atomic_load_n(&s->piece[i], __ATOMIC_ACQUIRE);

		for (unsigned b = 0; piece && b < LAT_PIECE; b++)
			to->bucket[i * LAT_PIECE + b] += look(&piece[b]);
	}
}

static void sums_add(const struct lat_shard *s, struct lat_sums *to)
{
	for (unsigned c = 0; s && c < LAT_CLASSES; c++) {
		const struct lat_kind *k = &s->class[c];

		to->count[c] += look(&k->figure[LAT_TOTAL].n);
		to->max_ns[c] = MAX(to->max_ns[c], look(&k->figure[LAT_TOTAL].max_ns));
		for (unsigned f = 0; f < LAT_FIGURES; f++)
			to->sum_ns[c][f] += look(&k->figure[f].sum_ns);
		for (unsigned w = 0; w < LAT_WAITS; w++)
			to->wait_ns[c][w] += look(&k->wait_ns[w]);
	}
	to->lost += s ? look(&s->lost) : 0;
}

void scsi_lu_get_latency(struct scsi_lu *lu, struct lat_sums *out)
{
	const struct lu_perf *l;

	memset(out, 0, sizeof(*out));
	pthread_mutex_lock(&lu->lock);
	sums_add(lu->gone_lat, out);
	list_for_each(l, &lu->loads, link)
		sums_add(l->lat, out);
	pthread_mutex_unlock(&lu->lock);
}

/* Commands that had no such part are those for which it was 0. */
static void figure_add(const struct lat_shard *s, enum lat_class class, enum lat_figure figure,
		       struct lat_hist *to)
{
	const struct lat_series *v;
	uint64_t all, before = to->count;

	if (!s)
		return;
	v = &s->class[class].figure[figure];
	all = look(&s->class[class].figure[LAT_TOTAL].n);
	lat_series_read(v, to);
	if (figure == LAT_TOTAL || to->count - before >= all)
		return;
	to->bucket[0] += all - (to->count - before);
	to->count = before + all;
}

bool scsi_lu_get_histogram(struct scsi_lu *lu, enum lat_class class, enum lat_figure figure,
			   struct lat_hist *out)
{
	const struct lu_perf *l;

	memset(out, 0, sizeof(*out));
	pthread_mutex_lock(&lu->lock);
	figure_add(lu->gone_lat, class, figure, out);
	list_for_each(l, &lu->loads, link)
		figure_add(l->lat, class, figure, out);
	pthread_mutex_unlock(&lu->lock);
	return out->count > 0;
}

unsigned scsi_lu_get_slow(struct scsi_lu *lu, struct lat_slow out[LAT_SLOW_KEPT])
{
	struct lu_perf *l;
	unsigned n = 0;

	pthread_mutex_lock(&lu->lock);
	if (lu->gone_lat)
		n = lat_slow_merge(lu->gone_lat, out, n);
	list_for_each(l, &lu->loads, link)
		n = lat_slow_merge(l->lat, out, n);
	pthread_mutex_unlock(&lu->lock);
	return n;
}

bool scsi_lu_get_initiator(struct scsi_lu *lu, const struct scsi_nexus *nexus,
			   enum lat_class class, struct lat_hist *out)
{
	struct scsi_itl *itl;

	memset(out, 0, sizeof(*out));
	pthread_mutex_lock(&lu->lock);
	list_for_each(itl, &lu->itls, link) {
		const struct lat_own *own = __atomic_load_n(&itl->own, __ATOMIC_ACQUIRE);

		if (itl->nexus == nexus && own)
			lat_series_read(&own->total[class], out);
	}
	pthread_mutex_unlock(&lu->lock);
	return out->count > 0;
}
