/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The load generator's command line.
 */
#include "tools/bench/tgt-load/opts.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	O_LUN_MODE = 256,
	O_BS,
	O_READ,
	O_PATTERN,
	O_RANGE,
	O_SEED,
	O_RATE,
	O_ARRIVAL,
	O_WARMUP,
	O_COUNT,
	O_FILL,
	O_VERIFY,
	O_HDIGEST,
	O_DDIGEST,
	O_IMMEDIATE,
	O_INITIAL_R2T,
	O_FIRST_BURST,
	O_MAX_BURST,
	O_MAX_RECV,
	O_MAX_R2T,
	O_CONGESTION,
	O_RCVBUF,
	O_SNDBUF,
	O_RECV_SIZE,
	O_DISCARD,
	O_WAIT,
	O_CPU,
	O_THREADS,
	O_TARGET_PID,
	O_JSON,
	O_IDLE,
	O_INITIATOR,
	O_PROGRESS,
	O_VERSION,
};

static const struct option long_opts[] = {
	{"portal", required_argument, NULL, 'p'},
	{"target", required_argument, NULL, 'T'},
	{"lun", required_argument, NULL, 'l'},
	{"lun-mode", required_argument, NULL, O_LUN_MODE},
	{"connections", required_argument, NULL, 'c'},
	{"depth", required_argument, NULL, 'd'},
	{"bs", required_argument, NULL, O_BS},
	{"read", required_argument, NULL, O_READ},
	{"pattern", required_argument, NULL, O_PATTERN},
	{"range", required_argument, NULL, O_RANGE},
	{"seed", required_argument, NULL, O_SEED},
	{"rate", required_argument, NULL, O_RATE},
	{"arrival", required_argument, NULL, O_ARRIVAL},
	{"time", required_argument, NULL, 't'},
	{"warmup", required_argument, NULL, O_WARMUP},
	{"count", required_argument, NULL, O_COUNT},
	{"fill", no_argument, NULL, O_FILL},
	{"verify", no_argument, NULL, O_VERIFY},
	{"header-digest", required_argument, NULL, O_HDIGEST},
	{"data-digest", required_argument, NULL, O_DDIGEST},
	{"immediate-data", required_argument, NULL, O_IMMEDIATE},
	{"initial-r2t", required_argument, NULL, O_INITIAL_R2T},
	{"first-burst", required_argument, NULL, O_FIRST_BURST},
	{"max-burst", required_argument, NULL, O_MAX_BURST},
	{"max-recv-segment", required_argument, NULL, O_MAX_RECV},
	{"max-r2t", required_argument, NULL, O_MAX_R2T},
	{"congestion", required_argument, NULL, O_CONGESTION},
	{"rcvbuf", required_argument, NULL, O_RCVBUF},
	{"sndbuf", required_argument, NULL, O_SNDBUF},
	{"recv-size", required_argument, NULL, O_RECV_SIZE},
	{"discard", no_argument, NULL, O_DISCARD},
	{"wait", required_argument, NULL, O_WAIT},
	{"cpu", required_argument, NULL, O_CPU},
	{"threads", required_argument, NULL, O_THREADS},
	{"target-pid", required_argument, NULL, O_TARGET_PID},
	{"json", required_argument, NULL, O_JSON},
	{"idle", required_argument, NULL, O_IDLE},
	{"initiator", required_argument, NULL, O_INITIATOR},
	{"progress", no_argument, NULL, O_PROGRESS},
	{"quiet", no_argument, NULL, 'q'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, O_VERSION},
	{NULL, 0, NULL, 0},
};

static void usage(void)
{
	puts("usage: tgt-load [options] --portal HOST[:PORT] --target IQN[,IQN...]\n"
	     "where:    --lun LIST (1)  --lun-mode conn|io  --initiator IQN\n"
	     "how much: --connections N (1)  --depth N (32)  --idle N (0)  --threads N  --cpu "
	     "LIST\n"
	     "what:     --bs SIZE[:WEIGHT,...] (4k)  --read PERCENT (100)  --range SIZE  --seed N\n"
	     "          --pattern random|sequential|zipf[:S]  --fill  --verify\n"
	     "when:     --time S (5)  --warmup S (1)  --count N  --rate IOPS  --arrival "
	     "poisson|fixed\n"
	     "keys:     --header-digest, --data-digest None|CRC32C  --immediate-data, "
	     "--initial-r2t Yes|No\n"
	     "          --first-burst, --max-burst, --max-recv-segment SIZE  --max-r2t N\n"
	     "socket:   --congestion NAME  --rcvbuf SIZE  --sndbuf SIZE  --recv-size SIZE (256k)\n"
	     "          --discard  --wait spin|block\n"
	     "report:   --target-pid PID  --json FILE|-  --progress  --quiet  --version\n"
	     "See tgt-load(8).");
}

void opts_default(struct opts *o)
{
	memset(o, 0, sizeof(*o));
	snprintf(o->host, sizeof(o->host), "127.0.0.1");
	snprintf(o->port, sizeof(o->port), "3260");
	snprintf(o->initiator, sizeof(o->initiator), "iqn.2026-11.tgt.load:%d", (int)getpid());
	o->nluns = 1;
	o->lun[0] = 1;
	o->connections = 1;
	o->depth = 32;
	o->nsizes = 1;
	o->size[0] = 4096;
	o->weight[0] = o->weights = 1;
	o->read_percent = 100;
	o->pattern = PAT_RANDOM;
	o->theta = 0.99;
	o->seed = 1;
	o->poisson = true;
	o->seconds = 5.0;
	o->warmup = 1.0;
	o->keys = (struct keys){
		.immediate_data = true,
		.initial_r2t = false,
		.first_burst = 256 << 10,
		.max_burst = 1 << 20,
		.max_recv_segment = 256 << 10,
		.max_r2t = 1,
	};
	o->recv_size = 256 << 10;
}

int parse_size(const char *text, uint64_t *out)
{
	static const char units[] = "kmgt";
	char *end;
	unsigned long long v;
	unsigned shift = 0;

	if (*text < '0' || *text > '9')
		return -1;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno != 0)
		return -1;
	if (*end != '\0') {
		const char *u = strchr(units, *end | 0x20);

		if (!u || *u == '\0' || end[1] != '\0')
			return -1;
		shift = 10 * (unsigned)(u - units + 1);
	}
	if (shift != 0 && v >> (64 - shift) != 0)
		return -1;
	*out = (uint64_t)v << shift;
	return 0;
}

/* A whole number from lo to hi; 0 or -1. */
static int parse_number(const char *text, uint64_t lo, uint64_t hi, uint64_t *out)
{
	char *end;
	unsigned long long v;

	if (*text < '0' || *text > '9')
		return -1;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno != 0 || *end != '\0' || v < lo || v > hi)
		return -1;
	*out = v;
	return 0;
}

/* A decimal number from lo to hi; 0 or -1. */
static int parse_real(const char *text, double lo, double hi, double *out)
{
	char *end;
	double v;

	if (*text < '0' || *text > '9')
		return -1;
	v = strtod(text, &end);
	if (*end != '\0' || !(v >= lo && v <= hi))
		return -1;
	*out = v;
	return 0;
}

int parse_sizes(const char *text, struct opts *o)
{
	char copy[512], *save = NULL;
	unsigned n = 0, sum = 0;

	if (strlen(text) >= sizeof(copy))
		return -1;
	strcpy(copy, text);
	for (char *p = strtok_r(copy, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
		char *colon = strchr(p, ':');
		uint64_t size, weight = 1;

		if (n == SIZES_MAX)
			return -1;
		if (colon) {
			*colon = '\0';
			if (parse_number(colon + 1, 1, 1000000, &weight) != 0)
				return -1;
		}
		if (parse_size(p, &size) != 0 || size < BS_MIN || size > BS_MAX || size % 512 != 0)
			return -1;
		o->size[n] = (uint32_t)size;
		o->weight[n++] = (unsigned)weight;
		sum += (unsigned)weight;
	}
	if (n == 0)
		return -1;
	o->nsizes = n;
	o->weights = sum;
	return 0;
}

int parse_list(const char *text, unsigned top, unsigned *out, unsigned max)
{
	char copy[512], *save = NULL;
	unsigned n = 0;

	if (strlen(text) >= sizeof(copy))
		return -1;
	strcpy(copy, text);
	for (char *p = strtok_r(copy, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
		char *dash = strchr(p, '-');
		uint64_t from, to;

		if (dash)
			*dash = '\0';
		if (parse_number(p, 0, top, &from) != 0)
			return -1;
		to = from;
		if (dash && parse_number(dash + 1, from, top, &to) != 0)
			return -1;
		for (; from <= to; from++) {
			if (n == max)
				return -1;
			out[n++] = (unsigned)from;
		}
	}
	return n > 0 ? (int)n : -1;
}

int parse_portal(const char *text, struct opts *o)
{
	const char *host = text, *end, *port = "3260";
	size_t n;

	if (*text == '[') {
		host = text + 1;
		end = strchr(host, ']');
		if (!end || (end[1] != '\0' && end[1] != ':'))
			return -1;
		if (end[1] == ':')
			port = end + 2;
	} else {
		end = strchr(text, ':');
		if (end)
			port = end + 1;
		else
			end = text + strlen(text);
		if (strchr(port, ':'))
			return -1;
	}
	n = (size_t)(end - host);
	if (n == 0 || n >= sizeof(o->host) || *port == '\0' || strlen(port) >= sizeof(o->port))
		return -1;
	memcpy(o->host, host, n);
	o->host[n] = '\0';
	snprintf(o->port, sizeof(o->port), "%s", port);
	return 0;
}

static int parse_targets(const char *text, struct opts *o)
{
	char copy[TARGETS_MAX * 224], *save = NULL;

	if (strlen(text) >= sizeof(copy))
		return -1;
	strcpy(copy, text);
	for (char *p = strtok_r(copy, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
		if (o->ntargets == TARGETS_MAX || strlen(p) > 223)
			return -1;
		snprintf(o->target[o->ntargets], sizeof(o->target[0]), "%s", p);
		o->ntargets++;
	}
	return o->ntargets > 0 ? 0 : -1;
}

static int parse_pattern(const char *text, struct opts *o)
{
	if (strcmp(text, "random") == 0) {
		o->pattern = PAT_RANDOM;
	} else if (strcmp(text, "sequential") == 0) {
		o->pattern = PAT_SEQUENTIAL;
	} else if (strncmp(text, "zipf", 4) == 0) {
		o->pattern = PAT_ZIPF;
		if (text[4] == ':')
			return parse_real(text + 5, 0.01, 10.0, &o->theta);
		return text[4] == '\0' ? 0 : -1;
	} else {
		return -1;
	}
	return 0;
}

/* One of two words, case ignored: *out is whether it was the first. */
static int parse_word(const char *text, const char *yes, const char *no, bool *out)
{
	if (strcasecmp(text, yes) == 0)
		*out = true;
	else if (strcasecmp(text, no) == 0)
		*out = false;
	else
		return -1;
	return 0;
}

static int parse_text(const char *text, char *out, size_t n)
{
	if (*text == '\0' || strlen(text) >= n)
		return -1;
	snprintf(out, n, "%s", text);
	return 0;
}

static int parse_unsigned(const char *text, unsigned lo, unsigned hi, unsigned *out)
{
	uint64_t v;

	if (parse_number(text, lo, hi, &v) != 0)
		return -1;
	*out = (unsigned)v;
	return 0;
}

static int parse_bytes(const char *text, uint64_t lo, uint64_t hi, uint32_t *out)
{
	uint64_t v;

	if (parse_size(text, &v) != 0 || v < lo || v > hi)
		return -1;
	*out = (uint32_t)v;
	return 0;
}

static int parse_one(struct opts *o, int opt, const char *arg)
{
	unsigned cpus[CPUS_MAX];
	uint64_t v;
	int n;

	switch (opt) {
	case 'p':
		return parse_portal(arg, o);
	case 'T':
		return parse_targets(arg, o);
	case 'l':
		n = parse_list(arg, 16383, o->lun, LUNS_MAX);
		o->nluns = n > 0 ? (unsigned)n : 0;
		return n > 0 ? 0 : -1;
	case O_LUN_MODE:
		return parse_word(arg, "io", "conn", &o->lun_per_io);
	case 'c':
		return parse_unsigned(arg, 1, CONNS_MAX, &o->connections);
	case 'd':
		return parse_unsigned(arg, 1, DEPTH_MAX, &o->depth);
	case O_IDLE:
		return parse_unsigned(arg, 0, CONNS_MAX, &o->idle);
	case O_BS:
		return parse_sizes(arg, o);
	case O_READ:
		return parse_unsigned(arg, 0, 100, &o->read_percent);
	case O_PATTERN:
		return parse_pattern(arg, o);
	case O_RANGE:
		return parse_size(arg, &o->range) == 0 && o->range >= BS_MIN ? 0 : -1;
	case O_SEED:
		return parse_number(arg, 0, UINT64_MAX, &o->seed);
	case O_RATE:
		return parse_real(arg, 1.0, 1e9, &o->rate);
	case O_ARRIVAL:
		return parse_word(arg, "poisson", "fixed", &o->poisson);
	case 't':
		return parse_real(arg, 0.01, 1e7, &o->seconds);
	case O_WARMUP:
		return parse_real(arg, 0.0, 1e7, &o->warmup);
	case O_COUNT:
		return parse_number(arg, 1, UINT64_MAX, &o->count);
	case O_FILL:
		o->fill = true;
		return 0;
	case O_VERIFY:
		o->verify = true;
		return 0;
	case O_HDIGEST:
		return parse_word(arg, "CRC32C", "None", &o->keys.header_digest);
	case O_DDIGEST:
		return parse_word(arg, "CRC32C", "None", &o->keys.data_digest);
	case O_IMMEDIATE:
		return parse_word(arg, "Yes", "No", &o->keys.immediate_data);
	case O_INITIAL_R2T:
		return parse_word(arg, "Yes", "No", &o->keys.initial_r2t);
	case O_FIRST_BURST:
		return parse_bytes(arg, 512, (1 << 24) - 1, &o->keys.first_burst);
	case O_MAX_BURST:
		return parse_bytes(arg, 512, (1 << 24) - 1, &o->keys.max_burst);
	case O_MAX_RECV:
		return parse_bytes(arg, 512, (1 << 24) - 1, &o->keys.max_recv_segment);
	case O_MAX_R2T:
		return parse_unsigned(arg, 1, 64, &o->keys.max_r2t);
	case O_CONGESTION:
		return parse_text(arg, o->congestion, sizeof(o->congestion));
	case O_RCVBUF:
		return parse_bytes(arg, 4096, 1 << 30, &o->rcvbuf);
	case O_SNDBUF:
		return parse_bytes(arg, 4096, 1 << 30, &o->sndbuf);
	case O_RECV_SIZE:
		return parse_bytes(arg, 16 << 10, 64 << 20, &o->recv_size);
	case O_DISCARD:
		o->discard = true;
		return 0;
	case O_WAIT:
		return parse_word(arg, "block", "spin", &o->block);
	case O_CPU:
		n = parse_list(arg, 1023, cpus, CPUS_MAX);
		o->ncpus = n > 0 ? (unsigned)n : 0;
		for (int i = 0; i < n; i++)
			o->cpu[i] = (int)cpus[i];
		return n > 0 ? 0 : -1;
	case O_THREADS:
		return parse_unsigned(arg, 1, CPUS_MAX, &o->threads);
	case O_TARGET_PID:
		if (parse_number(arg, 1, INT32_MAX, &v) != 0)
			return -1;
		o->target_pid = (pid_t)v;
		return 0;
	case O_JSON:
		return parse_text(arg, o->json, sizeof(o->json));
	case O_INITIATOR:
		return parse_text(arg, o->initiator, sizeof(o->initiator));
	case O_PROGRESS:
		o->progress = true;
		return 0;
	case 'q':
		o->quiet = true;
		return 0;
	default:
		return -1;
	}
}

/* What only the whole command line can tell. */
static const char *conflicts(const struct opts *o)
{
	if (o->ntargets == 0)
		return "--target is missing";
	if (o->keys.first_burst > o->keys.max_burst)
		return "--first-burst may not exceed --max-burst";
	if (o->connections < o->ntargets)
		return "--connections must be at least one per target";
	if (o->threads > o->connections)
		return "--threads may not exceed --connections";
	if (o->verify && o->threads > 1)
		return "--verify needs one thread: the expected stamps are kept in one place";
	if (o->verify && o->discard)
		return "--verify needs the data that --discard drops";
	if (o->discard && o->keys.data_digest)
		return "--discard drops the data that --data-digest must check";
	if (o->verify) {
		uint32_t unit = o->size[0];

		for (unsigned i = 1; i < o->nsizes; i++)
			unit = o->size[i] < unit ? o->size[i] : unit;
		for (unsigned i = 0; i < o->nsizes; i++)
			if (o->size[i] % unit != 0)
				return "--verify needs every size to be a multiple of the smallest";
	}
	return NULL;
}

int opts_parse(struct opts *o, int argc, char **argv, char *why, unsigned n)
{
	const char *bad;
	int opt, at = 0;

	optind = 1;
	opterr = 0;
	while ((opt = getopt_long(argc, argv, "p:T:l:c:d:t:qh", long_opts, &at)) != -1) {
		if (opt == 'h') {
			usage();
			return 1;
		}
		if (opt == O_VERSION) {
			puts("tgt-load " TGT_VERSION);
			return 1;
		}
		if (opt == '?') {
			snprintf(why, n, "unknown option or missing value: %s", argv[optind - 1]);
			return -1;
		}
		if (parse_one(o, opt, optarg) != 0) {
			snprintf(why, n, "bad value '%s' of %s", optarg ? optarg : "",
				 argv[optind - (optarg && optind > 1 ? 2 : 1)]);
			return -1;
		}
	}
	if (optind < argc) {
		snprintf(why, n, "unexpected argument '%s'", argv[optind]);
		return -1;
	}
	if (o->threads == 0) {
		o->threads = o->ncpus > 0 ? o->ncpus : 1;
		if (o->threads > o->connections)
			o->threads = o->connections;
	}
	bad = conflicts(o);
	if (bad) {
		snprintf(why, n, "%s", bad);
		return -1;
	}
	return 0;
}
