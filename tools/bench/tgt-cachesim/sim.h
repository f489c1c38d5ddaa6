/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The cache simulator: traces, policies, curves. Blocks are dense numbers 0..footprint-1. */
#ifndef TOOLS_BENCH_TGT_CACHESIM_SIM_H
#define TOOLS_BENCH_TGT_CACHESIM_SIM_H

#include "events/base.h"

struct trace {
	const char *name, *what;
	uint32_t *ref;		/* blocks in order of their use */
	uint32_t n, footprint;	/* how many; of how many different ones */
};

/* Built-in families; each seed gives another instance. */
extern const char *const trace_names[];
struct trace *trace_make(const char *name, uint64_t seed);
/* A file of block numbers, one a line, any 64-bit values. NULL after a message. */
struct trace *trace_load(const char *path);
void trace_free(struct trace *t);

struct model {
	const char *name;
	const char *colour;
	/* Hits over the whole trace with @capacity blocks. */
	uint64_t (*run)(const struct trace *t, uint32_t capacity);
};
extern const struct model models[];
extern const unsigned nmodels;

/* Curves of one trace: hits[m * nsizes + s] of refs. 0 or -errno. */
int draw(const char *path, const struct trace *t, const double *percent, unsigned nsizes,
	 const uint64_t *hits);

#endif
