/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Random numbers for choosing offsets: splitmix64 (Steele, Lea and Flood 2014), one
 * multiply-and-shift to a range, and the Zipf distribution by rejection-inversion.
 */
#ifndef TOOLS_BENCH_TGT_LOAD_RAND_H
#define TOOLS_BENCH_TGT_LOAD_RAND_H

#include <stdint.h>

struct rnd {
	uint64_t state;
};

/* A bijective mixing of 64 bits; also used to scatter Zipf ranks over the LU. */
static inline uint64_t rnd_mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static inline uint64_t rnd_next(struct rnd *r)
{
	return rnd_mix(r->state += 0x9e3779b97f4a7c15ull);
}

/* Uniform in [0, n), n > 0; the bias is below n / 2^64. */
static inline uint64_t rnd_below(struct rnd *r, uint64_t n)
{
	return (uint64_t)(((unsigned __int128)rnd_next(r) * n) >> 64);
}

/* Uniform in [0, 1). */
static inline double rnd_unit(struct rnd *r)
{
	return (double)(rnd_next(r) >> 11) * 0x1.0p-53;
}

/*
 * Zipf over ranks 1..n with P(k) proportional to k^-s, s > 0, drawn by rejection-inversion
 * (W. Hormann, G. Derflinger, "Rejection-inversion to generate variates from monotone discrete
 * distributions", ACM TOMACS 6(3), 1996): constant time and no table, for any n.
 */
struct zipf {
	uint64_t n;
	double s;
	double h_x1;
	double h_n;
	double cut;
};

/* Prepare for n >= 1 ranks and exponent s > 0. */
void zipf_init(struct zipf *z, uint64_t n, double s);

/* One rank in [0, n); rank 0 is the most popular. */
uint64_t zipf_next(const struct zipf *z, struct rnd *r);

/*
 * Where a popular rank lies: ranks are scattered by a bijection of [0, n), so that popular blocks
 * are not neighbours.
 */
uint64_t zipf_scatter(uint64_t rank, uint64_t n);

#endif
