/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the load generator was asked to do, and the parsing of it.
 */
#ifndef TOOLS_BENCH_TGT_LOAD_OPTS_H
#define TOOLS_BENCH_TGT_LOAD_OPTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	SIZES_MAX = 16,
	LUNS_MAX = 64,
	TARGETS_MAX = 64,
	CPUS_MAX = 64,
	CONNS_MAX = 4096,
	DEPTH_MAX = 1024,
	BS_MIN = 512,
	BS_MAX = 4 << 20,
};

enum pattern { PAT_RANDOM, PAT_SEQUENTIAL, PAT_ZIPF };

/* The keys offered at login (RFC 7143, section 13); every subject of a comparison gets the same. */
struct keys {
	bool header_digest;
	bool data_digest;
	bool immediate_data;
	bool initial_r2t;
	uint32_t first_burst;
	uint32_t max_burst;
	uint32_t max_recv_segment;
	uint32_t max_r2t;
};

struct opts {
	char host[256];
	char port[32];
	unsigned ntargets;
	char target[TARGETS_MAX][224];
	char initiator[224];
	unsigned nluns;
	unsigned lun[LUNS_MAX];
	bool lun_per_io;

	unsigned connections;
	unsigned idle;
	unsigned depth;
	unsigned nsizes;
	uint32_t size[SIZES_MAX];
	unsigned weight[SIZES_MAX];
	unsigned weights;
	unsigned read_percent;
	enum pattern pattern;
	double theta;
	uint64_t range;
	uint64_t seed;

	double rate;
	bool poisson;
	double seconds;
	double warmup;
	uint64_t count;
	bool fill;
	bool verify;

	struct keys keys;
	char congestion[16];
	uint32_t rcvbuf;
	uint32_t sndbuf;
	uint32_t recv_size;
	bool discard;
	bool block;
	unsigned ncpus;
	int cpu[CPUS_MAX];
	unsigned threads;

	pid_t target_pid;
	char json[4096];
	bool quiet;
	bool progress;
};

/* The built-in values. */
void opts_default(struct opts *o);

/*
 * Parse the command line into *o (already defaulted). Returns 0, 1 when help or the version was
 * printed and there is nothing to do, or -1 with a message in `why` (of n bytes).
 */
int opts_parse(struct opts *o, int argc, char **argv, char *why, unsigned n);

/*
 * A size in bytes with an optional k, m, g or t (powers of 1024) after it; 0 <= *out. Returns 0, or
 * -1 when the text is not one or does not fit.
 */
int parse_size(const char *text, uint64_t *out);

/*
 * "4k" or "4k:70,64k:30" into sizes and weights; each size is a multiple of 512 from BS_MIN to
 * BS_MAX, each weight positive. Returns 0 or -1.
 */
int parse_sizes(const char *text, struct opts *o);

/* "0", "0,2", "1-3" into a list of at most `max` numbers up to `top`. Returns how many, or -1. */
int parse_list(const char *text, unsigned top, unsigned *out, unsigned max);

/* "HOST:PORT", "[V6]:PORT" or "HOST" (port 3260). Returns 0 or -1. */
int parse_portal(const char *text, struct opts *o);

#endif
