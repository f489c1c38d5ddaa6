/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Printing what a run found. Latencies are in µs, bandwidth in MB/s of 10^6 bytes.
 */
#include "tools/bench/tgt-load/report.h"

#include <stdlib.h>
#include <string.h>

struct sums {
	uint64_t ios;
	uint64_t bytes;
	double iops;
	double mbps;
};

static struct sums sum(const struct report *r)
{
	const struct tally *t = r->tally;
	struct sums s = {.ios = t->ios[READS] + t->ios[WRITES],
			 .bytes = t->bytes[READS] + t->bytes[WRITES]};

	if (r->seconds > 0.0) {
		s.iops = (double)s.ios / r->seconds;
		s.mbps = (double)s.bytes / r->seconds / 1e6;
	}
	return s;
}

uint64_t report_errors(const struct report *r)
{
	return r->tally->failed + r->tally->miscompared + r->dead;
}

/* CPU of `ns` spent in the sampled interval, as µs for each I/O at the measured rate. */
static double us_per_io(const struct report *r, uint64_t ns, double iops)
{
	if (iops <= 0.0 || r->cpu_seconds <= 0.0)
		return 0.0;
	return (double)ns / 1e3 / r->cpu_seconds / iops;
}

static double busy(const struct report *r, uint64_t ns)
{
	return r->cpu_seconds > 0.0 ? (double)ns / 1e9 / r->cpu_seconds : 0.0;
}

/* The share of its time that the load had nothing to do: near 0, the load is the bottleneck. */
static double waits(const struct report *r)
{
	double all = r->seconds * r->opts->threads;
	double waited = (double)r->tally->waited / 1e9;

	return all <= 0.0 ? 0.0 : waited < all ? waited / all : 1.0;
}

static void text_latency(FILE *f, const char *what, const struct hist *h)
{
	if (h->count == 0)
		return;
	fprintf(f, "  %-6s p50 %.1f  p99 %.1f  p99.9 %.1f  max %.1f  mean %.1f us\n", what,
		(double)hist_percentile(h, 50.0) / 1e3, (double)hist_percentile(h, 99.0) / 1e3,
		(double)hist_percentile(h, 99.9) / 1e3, (double)h->max / 1e3, hist_mean(h) / 1e3);
}

void report_text(const struct report *r, FILE *f)
{
	const struct tally *t = r->tally;
	struct sums s = sum(r);

	fprintf(f, "%.0f IOPS  %.1f MB/s  (%llu I/Os in %.2f s, %.1f a receive)\n", s.iops, s.mbps,
		(unsigned long long)s.ios, r->seconds,
		t->batches ? (double)s.ios / (double)t->batches : 0.0);
	text_latency(f, "read", &t->lat[READS]);
	text_latency(f, "write", &t->lat[WRITES]);
	fprintf(f, "  load waits %.0f %% of its time, %.3f us CPU an I/O\n", waits(r) * 100.0,
		us_per_io(r, r->own_cpu, s.iops));
	if (r->has_cpu) {
		fprintf(f, "  target %.3f us CPU an I/O, %.3f cores\n",
			us_per_io(r, r->cpu_total, s.iops), busy(r, r->cpu_total));
		for (unsigned i = 0; i < r->cpu.n && r->cpu.thread[i].ns > 0; i++)
			fprintf(f, "    %-16s %.3f us, %.3f cores\n", r->cpu.thread[i].name,
				us_per_io(r, r->cpu.thread[i].ns, s.iops),
				busy(r, r->cpu.thread[i].ns));
	}
	if (r->opts->verify)
		fprintf(f, "  verified %llu pieces, %llu wrong\n", (unsigned long long)t->checked,
			(unsigned long long)t->miscompared);
	if (t->late)
		fprintf(f, "  %llu arrivals dropped: the target is more than a second behind\n",
			(unsigned long long)t->late);
	if (report_errors(r))
		fprintf(f,
			"  ERRORS: %llu commands failed, %llu wrong pieces, %llu connections "
			"lost\n",
			(unsigned long long)t->failed, (unsigned long long)t->miscompared,
			(unsigned long long)r->dead);
}

static void json_string(FILE *f, const char *s)
{
	putc('"', f);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			fprintf(f, "\\%c", *s);
		else if ((unsigned char)*s < 0x20)
			fprintf(f, "\\u%04x", (unsigned)*s);
		else
			putc(*s, f);
	}
	putc('"', f);
}

static void json_latency(FILE *f, const char *what, const struct hist *h)
{
	fprintf(f,
		"\"%s\": {\"count\": %llu, \"min\": %.3f, \"mean\": %.3f, \"p50\": %.3f, \"p90\": "
		"%.3f, "
		"\"p99\": %.3f, \"p999\": %.3f, \"max\": %.3f}",
		what, (unsigned long long)h->count, h->count ? (double)h->min / 1e3 : 0.0,
		hist_mean(h) / 1e3, (double)hist_percentile(h, 50.0) / 1e3,
		(double)hist_percentile(h, 90.0) / 1e3, (double)hist_percentile(h, 99.0) / 1e3,
		(double)hist_percentile(h, 99.9) / 1e3, (double)h->max / 1e3);
}

/* The distribution function: what so many per cent of the commands did not exceed. */
static void json_distribution(FILE *f, const struct hist *h)
{
	static const double percent[] = { 1,  5,  10, 20, 30, 40,   50,	  60,	70,    80,
					  90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99 };

	fprintf(f, " \"distribution_us\": [");
	for (unsigned i = 0; h->count && i < sizeof(percent) / sizeof(percent[0]); i++)
		fprintf(f, "%s[%g, %.3f]", i ? ", " : "", percent[i],
			(double)hist_percentile(h, percent[i]) / 1e3);
	fprintf(f, "],\n");
}

static void json_rates(FILE *f, const struct report *r)
{
	fprintf(f, " \"rates\": {\"seconds\": %.6f, \"iops\": [", r->rate_seconds);
	for (unsigned i = 0; i < r->nrates; i++)
		fprintf(f, "%s%.0f", i ? ", " : "", r->rate[i]);
	fprintf(f, "]},\n");
}

static const char *boolean(bool b)
{
	return b ? "true" : "false";
}

void report_json(const struct report *r, FILE *f)
{
	const struct opts *o = r->opts;
	const struct keys *k = &r->agreed->keys;
	const struct tally *t = r->tally;
	struct sums s = sum(r);
	struct hist *all = malloc(sizeof(*all));

	fprintf(f,
		"{\"tool\": \"tgt-load\", \"version\": \"%s\",\n \"connections\": %u, \"depth\": "
		"%u, "
		"\"threads\": %u, \"idle\": %u, \"read_percent\": %u, \"rate\": %.0f, \"sizes\": [",
		TGT_VERSION, o->connections, o->depth, o->threads, o->idle, o->read_percent,
		o->rate);
	for (unsigned i = 0; i < o->nsizes; i++)
		fprintf(f, "%s%u", i ? ", " : "", o->size[i]);
	fprintf(f,
		"],\n \"agreed\": {\"header_digest\": %s, \"data_digest\": %s, \"immediate_data\": "
		"%s, "
		"\"initial_r2t\": %s, \"first_burst\": %u, \"max_burst\": %u, "
		"\"max_recv_segment\": %u, "
		"\"max_send_segment\": %u},\n",
		boolean(k->header_digest), boolean(k->data_digest), boolean(k->immediate_data),
		boolean(k->initial_r2t), k->first_burst, k->max_burst, k->max_recv_segment,
		r->agreed->max_send_segment);
	fprintf(f,
		" \"seconds\": %.6f, \"ios\": %llu, \"bytes\": %llu, \"iops\": %.1f, \"mbps\": "
		"%.3f,\n",
		r->seconds, (unsigned long long)s.ios, (unsigned long long)s.bytes, s.iops, s.mbps);
	fprintf(f, " \"latency_us\": {");
	if (all) {
		hist_reset(all);
		hist_merge(all, &t->lat[READS]);
		hist_merge(all, &t->lat[WRITES]);
		json_latency(f, "all", all);
		fprintf(f, ",\n  ");
	}
	json_latency(f, "read", &t->lat[READS]);
	fprintf(f, ",\n  ");
	json_latency(f, "write", &t->lat[WRITES]);
	fprintf(f, "},\n");
	if (all)
		json_distribution(f, all);
	json_rates(f, r);
	if (r->has_cpu) {
		fprintf(f, " \"target_cpu\": {\"us_per_io\": %.4f, \"cores\": %.5f, \"threads\": [",
			us_per_io(r, r->cpu_total, s.iops), busy(r, r->cpu_total));
		for (unsigned i = 0; i < r->cpu.n; i++) {
			fprintf(f, "%s{\"name\": ", i ? ", " : "");
			json_string(f, r->cpu.thread[i].name);
			fprintf(f, ", \"us_per_io\": %.4f, \"cores\": %.5f}",
				us_per_io(r, r->cpu.thread[i].ns, s.iops),
				busy(r, r->cpu.thread[i].ns));
		}
		fprintf(f, "]},\n");
	}
	fprintf(f,
		" \"load\": {\"waits\": %.4f, \"ios_per_receive\": %.3f, \"sends\": %llu, "
		"\"recvs\": %llu, \"pings\": %llu, \"cpu_us_per_io\": %.4f},\n",
		waits(r), t->batches ? (double)s.ios / (double)t->batches : 0.0,
		(unsigned long long)r->sends, (unsigned long long)r->recvs,
		(unsigned long long)r->pings, us_per_io(r, r->own_cpu, s.iops));
	fprintf(f,
		" \"verified\": %llu,\n \"errors\": {\"failed\": %llu, \"miscompared\": %llu, "
		"\"lost_connections\": %llu, \"late\": %llu}}\n",
		(unsigned long long)t->checked, (unsigned long long)t->failed,
		(unsigned long long)t->miscompared, (unsigned long long)r->dead,
		(unsigned long long)t->late);
	free(all);
}
