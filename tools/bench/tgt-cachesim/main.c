/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgt-cachesim: runs the cache's own replacement code over reference
 * traces, beside the literature's. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include "tools/bench/tgt-cachesim/sim.h"

static const double percent[] = { 1, 2, 5, 10, 20, 35, 50 };
#define SIZES ARRAY_SIZE(percent)

static double per_cent(uint64_t of, uint64_t all)
{
	return 100.0 * (double)of / (double)all;
}

static void usage(FILE *f)
{
	fprintf(f,
		"usage: tgt-cachesim [-t zipf|loop|scan|postmark | -f FILE] [-s SEED] [-o SVG_DIRECTORY] [-c]\n"
		"  Hit ratios of tgtd's replacement policy (the daemon's code), of LRU, 2Q, ARC, LIRS and S3-FIFO,\n"
		"  and of the offline optimum, for caches of 1 to 50 %% of the trace's footprint.\n"
		"  -t   one built-in trace (default: all);  -f   block numbers, one a line\n"
		"  -o   draws DIRECTORY/hit-ratio-TRACE.svg\n"
		"  -c   checks: exits 1 when tgtd is over half a point below LRU, or over two below the best\n");
}

static int run(struct trace *t, const char *dir, bool check)
{
	uint64_t hits[16 * SIZES];
	int bad = 0;
	printf("%s: %s; %u references, footprint %u\n%10s", t->name, t->what, t->n, t->footprint,
	       "size %");
	for (unsigned m = 0; m < nmodels; m++)
		printf(" %8s", models[m].name);
	printf("   behind best\n");
	for (unsigned s = 0; s < SIZES; s++) {
		uint32_t capacity = (uint32_t)MAX(t->footprint * percent[s] / 100, 8.0);
		double best = 0;
		printf("%10g", percent[s]);
		for (unsigned m = 0; m < nmodels; m++) {
			hits[m * SIZES + s] = models[m].run(t, capacity);
			double r = per_cent(hits[m * SIZES + s], t->n);
			printf(" %8.2f", r);
			if (m > 1)
				best = MAX(best, r);
		}
		double ours = per_cent(hits[s], t->n), lru = per_cent(hits[2 * SIZES + s], t->n);
		printf("   %6.2f%s\n", best - ours,
		       best - ours > 2	? "  FAR" :
		       ours < lru - 0.5 ? "  BELOW LRU" :
					  "");
		if (best - ours > 2 || ours < lru - 0.5)
			bad = 1;
	}
	if (dir) {
		char path[4096];
		snprintf(path, sizeof(path), "%s/hit-ratio-%s.svg", dir, t->name);
		int err = draw(path, t, percent, SIZES, hits);
		if (err) {
			fprintf(stderr, "%s: %s\n", path, strerror(-err));
			bad = 1;
			check = true;
		}
	}
	trace_free(t);
	return check ? bad : 0;
}

int main(int argc, char **argv)
{
	const char *name = NULL, *file = NULL, *dir = NULL;
	uint64_t seed = 1;
	bool check = false;
	int opt, bad = 0;
	while ((opt = getopt(argc, argv, "t:f:s:o:ch")) != -1) {
		switch (opt) {
		case 't':
			name = optarg;
			break;
		case 'f':
			file = optarg;
			break;
		case 's':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 'o':
			dir = optarg;
			break;
		case 'c':
			check = true;
			break;
		case 'h':
			usage(stdout);
			return 0;
		default:
			usage(stderr);
			return 2;
		}
	}
	if (optind < argc || (name && file)) {
		usage(stderr);
		return 2;
	}
	if (name || file) {
		struct trace *t = file ? trace_load(file) : trace_make(name, seed);
		if (!t) {
			if (name)
				usage(stderr);
			return 2;
		}
		return run(t, dir, check);
	}
	for (int i = 0; trace_names[i]; i++)
		bad |= run(trace_make(trace_names[i], seed), dir, check);
	return bad;
}
