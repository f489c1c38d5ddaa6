/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a run found, as text and as JSON.
 */
#ifndef TOOLS_BENCH_TGT_LOAD_REPORT_H
#define TOOLS_BENCH_TGT_LOAD_REPORT_H

#include <stdio.h>

#include "tools/bench/tgt-load/cpu.h"
#include "tools/bench/tgt-load/work.h"

#define REPORT_RATES 40 /* parts of the measured interval */

struct report {
	const struct opts *opts;
	const struct agreed *agreed;
	const struct tally *tally; /* of all workers */
	double seconds;            /* the measured interval */
	uint64_t sends, recvs, pings, dead;
	bool has_cpu;          /* of the target */
	/* IOPS of each part of the measured interval, in their order; none with --count. */
	unsigned nrates;
	double rate[REPORT_RATES];
	double rate_seconds; /* a part's */
	double cpu_seconds;    /* between the two CPU samples */
	uint64_t own_cpu;      /* ns of this process between them */
	uint64_t cpu_total;    /* ns */
	struct cpu_sample cpu; /* per thread name */
};

/* Errors of any kind: the run is not to be trusted. */
uint64_t report_errors(const struct report *r);

/* The table for people. */
void report_text(const struct report *r, FILE *f);

/* One JSON object. */
void report_json(const struct report *r, FILE *f);

#endif
