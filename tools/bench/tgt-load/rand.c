/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The Zipf generator: rejection-inversion over the hat function's integral
 * H(x) = (x^(1-s) - 1) / (1 - s), which is log(x) at s = 1; written with expm1/log1p so that
 * nothing cancels near there.
 */
#include "tools/bench/tgt-load/rand.h"

#include <math.h>

/* expm1(x)/x and log1p(x)/x, continued through 0. */
static double expm1_over(double x)
{
	return fabs(x) > 1e-8 ? expm1(x) / x : 1.0 + x / 2.0;
}

static double log1p_over(double x)
{
	return fabs(x) > 1e-8 ? log1p(x) / x : 1.0 - x / 2.0;
}

static double hat_integral(const struct zipf *z, double x)
{
	double lx = log(x);

	return expm1_over((1.0 - z->s) * lx) * lx;
}

static double hat_inverse(const struct zipf *z, double y)
{
	double t = y * (1.0 - z->s);

	/* Rounding must not carry the argument of log1p below -1. */
	if (t < -1.0)
		t = -1.0;
	return exp(log1p_over(t) * y);
}

static double hat(const struct zipf *z, double x)
{
	return exp(-z->s * log(x));
}

void zipf_init(struct zipf *z, uint64_t n, double s)
{
	z->n = n;
	z->s = s;
	z->h_x1 = hat_integral(z, 1.5) - 1.0;
	z->h_n = hat_integral(z, (double)n + 0.5);
	z->cut = 2.0 - hat_inverse(z, hat_integral(z, 2.5) - hat(z, 2.0));
}

uint64_t zipf_next(const struct zipf *z, struct rnd *r)
{
	for (;;) {
		double u = z->h_n + rnd_unit(r) * (z->h_x1 - z->h_n);
		double x = hat_inverse(z, u);
		double k = floor(x + 0.5);

		if (k < 1.0)
			k = 1.0;
		else if (k > (double)z->n)
			k = (double)z->n;
		if (k - x <= z->cut || u >= hat_integral(z, k + 0.5) - hat(z, k))
			return (uint64_t)k - 1;
	}
}

uint64_t zipf_scatter(uint64_t rank, uint64_t n)
{
	unsigned bits = n > 1 ? 64 - (unsigned)__builtin_clzll(n - 1) : 1;
	uint64_t mask = bits >= 64 ? UINT64_MAX : (1ull << bits) - 1;
	unsigned shift = (bits + 1) / 2;

	/*
	 * Each step is invertible in `bits` bits (odd multiply, xor-shift), so the whole is a
	 * permutation of the next power of two; walking until the value falls below n makes it one
	 * of [0, n).
	 */
	do {
		rank = (rank * 0x9e3779b97f4a7c15ull + 0x632be59bd9b4e019ull) & mask;
		rank ^= rank >> shift;
		rank = (rank * 0xd1342543de82ef95ull) & mask;
		rank ^= rank >> shift;
	} while (rank >= n);
	return rank;
}
