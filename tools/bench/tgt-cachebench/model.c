/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What forwarding is worth, by the model that the cache itself decides with
 * (cache/engine/affinity.h): a hop against the lines and the bytes that it brings near. The counts
 * of lines are our own (they are compiled in; tgt-bench-cache --model counts them anew). The costs
 * are those of machines that others have measured and published, named as such, with hops of
 * several lengths; and, where the machine at hand has several nodes, its own, as the cache measures
 * them at its start.
 *
 *   inline   the connection's thread does it all
 *   back     the node's worker does it, the connection's thread sends (affinity=forward)
 *   send     the connection's thread does it, the node's worker sends (affinity=send)
 *
 * Beside what the model says of the machine at hand is what reads take there (send.c): one at a
 * time, so that nothing overlaps. The model tells differences. So it begins with what inline takes,
 * and says what the others should.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cache/engine/affinity.h"
#include "cache/engine/stat.h"
#include "tools/bench/tgt-cachebench/model.h"
#include "tools/bench/tgt-cachebench/send.h"

#define BLOCK KiB(4)
#define MEASURE_TRIES 600 /* of 100 ms */
#define SPAN MiB(512)	  /* that reads are spread over: more than processors' caches have */

static const struct {
	const char *name;
	struct affinity_costs costs; /* without the hop */
} published[] = {
	/* Idle latencies of a two-way Xeon SP of 2017, 89 and 139 ns: qdpma.com, "The Case for
	 * Single Processor". A socket of a Xeon Platinum 8160 reads 112 and 34 GB/s (J. McCalpin on
	 * stackoverflow.com); what one thread has of that is assumed to be a tenth. */
	{ "two sockets, Xeon SP (published)", { 0, { 89000, 139000 }, { 11200, 3400 } } },
	/* Four-node Dell R820, E5-4620: 18.9 GB/s near, 3.2 far (Ren 2015, 5.1). Latencies are not
	 * told; a line of 64 bytes at that speed is the least it can be. */
	{ "four sockets, E5-4620 (published)", { 0, { 3386, 20000 }, { 18900, 3200 } } },
};

static const uint32_t hops_ns[] = { 1000, 3000, 10000 };

static const char *const job_name[AFFINITY_JOBS] = {
	[AFFINITY_HIT] = "hit", [AFFINITY_MISS] = "miss",
	[AFFINITY_PREPARE] = "write: blocks", [AFFINITY_COMMIT] = "write: end",
};

static const char *size_text(uint32_t bytes, char *buf, size_t len)
{
	if (bytes == UINT32_MAX)
		snprintf(buf, len, "never");
	else
		snprintf(buf, len, "%u KiB", bytes >> 10);
	return buf;
}

/* How much dearer a remote line has to be for a hop to pay, at 256 KiB: ns. */
static double least_line_ns(uint32_t hop_ns, enum affinity_job job)
{
	const struct affinity_lines *l = &affinity_lines[job];

	return hop_ns * 10.0 / (KiB(256) / BLOCK * l->block + l->request);
}

/* What reads of several sizes took, by each way. */
static struct took {
	uint32_t bytes;
	double ns[WAYS];
} took[16];
static unsigned ntook;

static void has_taken(uint32_t bytes, const double ns[WAYS])
{
	if (ntook == ARRAY_SIZE(took))
		return;
	took[ntook].bytes = bytes;
	memcpy(took[ntook++].ns, ns, sizeof(took[0].ns));
}

/* What the model makes of it: who is asked looks the blocks up, and the worker sends as well. */
static double modelled(const struct took *t, const struct affinity_costs *c, enum send_way way)
{
	if (way == WAY_INLINE)
		return t->ns[WAY_INLINE];
	return t->ns[WAY_INLINE] -
	       (double)affinity_gain(c, AFFINITY_HIT, t->bytes, BLOCK, way == WAY_WORKER);
}

static void show_took(const struct affinity_costs *c, bool json)
{
	if (json)
		printf(", \"ways\": [");
	else
		printf("  reads that hit, one at a time: measured, beside what the model makes of "
		       "inline\n");
	for (const struct took *t = took; t < took + ntook; t++) {
		const double back = modelled(t, c, WAY_BACK), send = modelled(t, c, WAY_WORKER);

		if (json)
			printf("%s{\"bytes\": %u, \"inline_ns\": %.0f, \"back_ns\": %.0f, "
			       "\"back_model_ns\": %.0f, \"send_ns\": %.0f, "
			       "\"send_model_ns\": %.0f}",
			       t == took ? "" : ", ", t->bytes, t->ns[WAY_INLINE], t->ns[WAY_BACK],
			       back, t->ns[WAY_WORKER], send);
		else
			printf("  %5u KiB  inline %.0f ns; back %.0f, modelled %.0f: %.2f; "
			       "send %.0f, modelled %.0f: %.2f\n",
			       t->bytes >> 10, t->ns[WAY_INLINE], t->ns[WAY_BACK], back,
			       t->ns[WAY_BACK] / back, t->ns[WAY_WORKER], send,
			       t->ns[WAY_WORKER] / send);
	}
	if (json)
		printf("]");
}

/* @measured: beside what it took. */
static void show_machine(const char *name, const struct affinity_costs *c, bool json, bool first,
			 bool measured)
{
	char back[24], send[24];

	if (json)
		printf("%s{\"machine\": \"%s\", \"hop_ns\": %u, \"line_ns\": [%.1f, %.1f], "
		       "\"mbps\": [%u, %u]",
		       first ? "[" : ",\n", name, c->hop_ns, c->line_ps[0] / 1e3,
		       c->line_ps[1] / 1e3, c->mbps[0], c->mbps[1]);
	else
		printf("%s, a hop of %u ns; a line %.1f ns near, %.1f far; %u MB/s near, %u far\n",
		       name, c->hop_ns, c->line_ps[0] / 1e3, c->line_ps[1] / 1e3, c->mbps[0],
		       c->mbps[1]);
	for (unsigned job = 0; job < AFFINITY_SEND; job++) {
		const enum affinity_job j = (enum affinity_job)job;
		const uint32_t from = affinity_threshold(c, j, BLOCK, false),
			       sent = affinity_threshold(c, AFFINITY_SEND, BLOCK, true);
		const int64_t at256 = affinity_gain(c, j, KiB(256), BLOCK, false),
			      sent256 = affinity_gain(c, AFFINITY_SEND, KiB(256), BLOCK, true);

		if (json) {
			printf(", \"%s\": {\"back_from\": %lld, \"back_256k_ns\": %lld, "
			       "\"lines_block\": %.1f, \"lines_request\": %.1f, "
			       "\"least_line_ns\": %.1f",
			       job_name[job], from == UINT32_MAX ? -1ll : (long long)from,
			       (long long)at256, affinity_lines[job].block / 10.0,
			       affinity_lines[job].request / 10.0, least_line_ns(c->hop_ns, j));
			if (j == AFFINITY_HIT)
				printf(", \"send_from\": %lld, \"send_256k_ns\": %lld",
				       sent == UINT32_MAX ? -1ll : (long long)sent,
				       (long long)sent256);
			printf("}");
			continue;
		}
		printf("  %-13s back from %s, %+.1f us at 256 KiB (it takes %.1f ns more a line)",
		       job_name[job], size_text(from, back, sizeof(back)), (double)at256 / 1e3,
		       least_line_ns(c->hop_ns, j));
		if (j == AFFINITY_HIT)
			printf("; send from %s, %+.1f us", size_text(sent, send, sizeof(send)),
			       (double)sent256 / 1e3);
		printf("\n");
	}
	if (measured)
		show_took(c, json);
	if (json)
		printf("}");
}

/* As the cache of this machine measures them; false: not in time. */
static bool measure_costs(const struct topology *topo, struct affinity_costs *c)
{
	struct cache_conf conf = { .topo = topo, .affinity = CACHE_AFFINITY_AUTO };
	struct cache *cache = cache_create(&conf);
	struct cache_info info = { .hop_ns = 0 };

	if (!cache)
		return false;
	/* (Nodes that are simulated are known to be so before a hop has been measured.) */
	for (unsigned i = 0; i < MEASURE_TRIES && !info.hop_ns; i++) {
		usleep(100000);
		cache_get_info(cache, &info);
	}
	*c = (struct affinity_costs){ info.hop_ns,
				      { info.local_line_ps, info.remote_line_ps },
				      { info.local_mbps, info.remote_mbps } };
	cache_destroy(cache);
	return info.hop_ns != 0;
}

/* This machine, measured beside modelled. False: it could not be measured. */
static bool show_own(const struct topology *topo, bool json)
{
	const struct send_conf send = { .told = has_taken,
					.topo = topo,
					.depth = 1,
					.rounds = 9,
					.span = topo->simulated ? MiB(64) : SPAN };
	struct affinity_costs c;

	topology_use(topo); /* as in tgtd: threads and memory are where they belong */
	if (!measure_costs(topo, &c) || send_run(&send))
		return false;
	show_machine(topo->simulated ? "this machine, nodes that are simulated (measured)" :
				       "this machine (measured)",
		     &c, json, false, true);
	return true;
}

int model_run(const struct topology *topo, bool json)
{
	struct affinity_costs c;
	bool first = true, failed = false;

	for (unsigned i = 0; i < ARRAY_SIZE(published); i++)
		for (unsigned h = 0; h < ARRAY_SIZE(hops_ns); h++, first = false) {
			c = published[i].costs;
			c.hop_ns = hops_ns[h];
			show_machine(published[i].name, &c, json, first, false);
		}
	fflush(stdout);
	if (topo->nnodes > 1)
		failed = !show_own(topo, json);
	else if (!json)
		printf("this machine has one node: nothing to measure\n");
	if (json)
		printf("]\n");
	if (failed)
		fprintf(stderr, "tgt-cachebench: this machine has %u nodes, but they could not be "
				"measured\n", topo->nnodes);
	return failed;
}
