/* SPDX-License-Identifier: GPL-2.0-or-later */
/* --cache size=…,block=…: parsing, and defaults from the machine. */
#include "cache/engine/cache_impl.h"
#include "cache/engine/readahead.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int complain(char *err, size_t len, const char *fmt, ...) printf_like(3, 4);
static int complain(char *err, size_t len, const char *fmt, ...)
{
	va_list ap;
	if (err && len) {
		va_start(ap, fmt);
		vsnprintf(err, len, fmt, ap);
		va_end(ap);
	}
	return -EINVAL;
}

/* A number with an optional k, m, g or t (powers of 1024). */
static bool parse_size(const char *s, uint64_t *out)
{
	char *end;
	if (*s < '0' || *s > '9')
		return false;
	errno = 0;
	uint64_t v = strtoull(s, &end, 10);
	unsigned shift = 0;
	switch (*end | 0x20) {
	case 'k':
		shift = 10;
		break;
	case 'm':
		shift = 20;
		break;
	case 'g':
		shift = 30;
		break;
	case 't':
		shift = 40;
		break;
	}
	if (shift)
		end++;
	if (errno || *end || (shift && v >> (64 - shift)))
		return false;
	*out = v << shift;
	return true;
}

/* Node numbers and ranges joined by '+': 0+2-3. */
static bool parse_nodes(const char *s, uint64_t *mask)
{
	*mask = 0;
	while (*s) {
		char *end;
		if (*s < '0' || *s > '9')
			return false;
		unsigned long a = strtoul(s, &end, 10), b = a;
		if (*end == '-' && end[1] >= '0' && end[1] <= '9')
			b = strtoul(end + 1, &end, 10);
		if (a > b || b >= TOPO_MAX_NODES)
			return false;
		for (unsigned long i = a; i <= b; i++)
			*mask |= 1ull << i;
		if (*end && *end != '+')
			return false;
		s = *end ? end + 1 : end;
	}
	return *mask != 0;
}

static const char *const affinity_names[] = {
	[CACHE_AFFINITY_OFF] = "off",
	[CACHE_AFFINITY_INLINE] = "inline",
	[CACHE_AFFINITY_FORWARD] = "forward",
	[CACHE_AFFINITY_SEND] = "send",
	[CACHE_AFFINITY_AUTO] = "auto",
};

const char *cache_affinity_name(enum cache_affinity affinity)
{
	return (unsigned)affinity < ARRAY_SIZE(affinity_names) ? affinity_names[affinity] : "?";
}

static bool parse_affinity(const char *s, enum cache_affinity *out)
{
	for (unsigned i = 0; i < ARRAY_SIZE(affinity_names); i++)
		if (strcmp(s, affinity_names[i]) == 0) {
			*out = (enum cache_affinity)i;
			return true;
		}
	return false;
}

static bool is_pow2(uint64_t v)
{
	return v && !(v & (v - 1));
}

int cache_parse(struct cache_conf *conf, const char *text, char *err, size_t err_len)
{
	char *copy = strdup(text), *save = NULL;
	int rc = 0;
	if (!copy)
		return complain(err, err_len, "out of memory");
	for (char *word = strtok_r(copy, ",", &save); word && !rc;
	     word = strtok_r(NULL, ",", &save)) {
		char *value = strchr(word, '=');
		uint64_t n = 0;
		if (!value) {
			rc = complain(err, err_len, "'%s': expected key=value", word);
			break;
		}
		*value++ = '\0';
		if (strcmp(word, "nodes") == 0) {
			if (!parse_nodes(value, &conf->node_mask))
				rc = complain(
					err, err_len,
					"nodes=%s: expected numbers or ranges joined by '+', like 0+2-3",
					value);
		} else if (strcmp(word, "affinity") == 0) {
			if (!parse_affinity(value, &conf->affinity))
				rc = complain(err, err_len,
					      "affinity=%s: expected off, inline, forward, send or auto",
					      value);
		} else if (strcmp(word, "readahead") == 0 && strcmp(value, "off") == 0) {
			conf->readahead = 1;
		} else if (!parse_size(value, &n)) {
			rc = complain(err, err_len, "%s=%s: not a size", word, value);
		} else if (strcmp(word, "size") == 0) {
			if (n < MiB(1))
				rc = complain(err, err_len, "size=%s: at least 1m", value);
			conf->size = n;
		} else if (strcmp(word, "block") == 0) {
			if (!is_pow2(n) || n < KiB(4) || n > MiB(1))
				rc = complain(err, err_len,
					      "block=%s: a power of two from 4k to 1m", value);
			conf->block = (uint32_t)n;
		} else if (strcmp(word, "group") == 0) {
			if (!is_pow2(n) || n > CACHE_IO_BLOCKS)
				rc = complain(err, err_len, "group=%s: a power of two from 1 to %u",
					      value, CACHE_IO_BLOCKS);
			conf->group = (uint32_t)n;
		} else if (strcmp(word, "partitions") == 0) {
			if (!is_pow2(n) || n > CACHE_NODE_PARTS_MAX)
				rc = complain(err, err_len,
					      "partitions=%s: a power of two from 1 to %u", value,
					      CACHE_NODE_PARTS_MAX);
			conf->partitions = (uint32_t)n;
		} else if (strcmp(word, "workers") == 0) {
			if (n < 1 || n > CACHE_WORKERS)
				rc = complain(err, err_len, "workers=%s: from 1 to %u a node",
					      value, CACHE_WORKERS);
			conf->node_workers = (uint32_t)n;
		} else if (strcmp(word, "threshold") == 0) {
			if (n > UINT32_MAX)
				rc = complain(err, err_len, "threshold=%s: too large", value);
			conf->forward_threshold = (uint32_t)n;
		} else if (strcmp(word, "readahead") == 0) {
			if (n < KiB(64) || n > MiB(64))
				rc = complain(err, err_len, "readahead=%s: off, or from 64k to 64m",
					      value);
			conf->readahead = (uint32_t)n;
		} else {
			rc = complain(
				err, err_len,
				"'%s': expected size, block, group, partitions, nodes, affinity, threshold, readahead or workers",
				word);
		}
	}
	free(copy);
	return rc;
}

/* Blocks that one request of @len bytes at any alignment touches. */
static uint64_t blocks_of(uint64_t len, uint64_t block)
{
	return (len - 1) / block + 2;
}

uint64_t cache_part_least(uint64_t max_len, uint64_t block)
{
	return blocks_of(max_len, block) * PART_KEPT;
}

bool cache_len_fits(uint64_t len, uint64_t block, uint32_t group)
{
	return blocks_of(len, block) <= CACHE_IO_BLOCKS + 1 &&
	       len / block / group + 2 <= CACHE_REQ_GROUPS;
}

void cache_conf_rest(struct cache_conf *conf)
{
	if (!conf->node_workers)
		conf->node_workers = 1;
	if (!conf->readahead)
		conf->readahead = READAHEAD_MAX;
	if (conf->readahead == 1)
		conf->readahead = 0;
}

/* ---- what each node gets --------------------------------------------------------------------- */

#define RUN_WISH 64u   /* groups of a run over nodes of different sizes: parts of that many */
#define DEFAULT_SHARE 8u /* the cache takes this part of what is free */
#define NODE_KEEPS 8u  /* a node keeps this part of its memory for others */
#define OVER_DATA 32u  /* headers, blocks, buckets: at most this part of the data */

/* What of the cache a node can hold. */
static uint64_t node_holds(const struct topo_node *n)
{
	return n->mem_avail - n->mem_avail / NODE_KEEPS;
}

static bool holds_even(const struct cache_conf *conf, uint64_t part)
{
	for (unsigned t = 0; t < conf->topo->nnodes; t++)
		if ((conf->node_mask >> t & 1) &&
		    node_holds(&conf->topo->node[t]) < part + part / OVER_DATA)
			return false;
	return true;
}

/*
 * Even, if each node holds that: then all serve alike. Else who lacks memory gets what it has, and
 * the others share the rest evenly. Where nobody can tell, or there is too little in all, even,
 * too: then some blocks will be where they should not, and the log says so.
 */
static void plan_shares(const struct cache_conf *conf, struct cache_plan *plan)
{
	const unsigned nnodes = (unsigned)__builtin_popcountll(conf->node_mask);
	uint64_t want[TOPO_MAX_NODES], left = conf->size, even = conf->size / nnodes;
	unsigned n = 0, open = nnodes;
	bool more = true;

	plan->run = nnodes;
	memset(plan->share, 1, sizeof(plan->share));
	if (nnodes == 1 || conf->topo->simulated || holds_even(conf, even))
		return;
	for (unsigned t = 0; t < conf->topo->nnodes; t++)
		if (conf->node_mask >> t & 1)
			want[n++] = node_holds(&conf->topo->node[t]) / (OVER_DATA + 1) * OVER_DATA;
	/* Whoever has less than an even part of what is left gets all that it has. */
	uint64_t taken = 0;
	while (more && open) {
		more = false;
		even = left / open;
		for (unsigned i = 0; i < n; i++)
			if (!(taken >> i & 1) && want[i] < even) {
				taken |= 1ull << i;
				left -= want[i];
				open--;
				more = true;
			}
	}
	if (!open)
		return;
	plan->run = 0;
	for (unsigned i = 0; i < n; i++) {
		const uint64_t part = taken >> i & 1 ? want[i] : even;

		plan->share[i] =
			(uint8_t)MAX(part / (conf->size / RUN_WISH + 1), (uint64_t)1);
		plan->run += plan->share[i];
	}
}

#define ROOM_TIMES 64u /* so much larger it can become, at most */

/* How much larger the machine's memory would let it become. Room costs address space alone. */
static uint32_t room_times(const struct cache_conf *conf)
{
	const uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE),
		       blocks = conf->size / conf->block;
	uint64_t times = DIV_ROUND_UP(memory, conf->size);

	times = MIN(times, (uint64_t)ROOM_TIMES);
	times = MIN(times, (uint64_t)UINT32_MAX / 4 / blocks); /* arena indexes */
	return (uint32_t)MAX(times, 1ull);
}

int cache_conf_resolve(struct cache_conf *conf, struct cache_plan *plan, char *err,
		       size_t err_len)
{
	uint64_t all = conf->topo->nnodes >= 64 ? UINT64_MAX : (1ull << conf->topo->nnodes) - 1;
	if (!conf->node_mask)
		conf->node_mask = all;
	if (conf->node_mask & ~all)
		return complain(err, err_len, "nodes: this machine has nodes 0 to %u",
				conf->topo->nnodes - 1);
	cache_conf_rest(conf);

	/* An eighth of what the machine (or our cgroup) can give: others live here. */
	if (!conf->size) {
		conf->size = MIN(MAX(arena_memory_available() / DEFAULT_SHARE, MiB(16)), GiB(64));
		log_notice("cache: %llu MiB, an eighth of the memory that is free; --cache size= "
			   "says otherwise",
			   (unsigned long long)(conf->size >> 20));
	}
	plan_shares(conf, plan);
	unsigned smallest = UINT8_MAX;
	for (int i = 0; i < __builtin_popcountll(conf->node_mask); i++)
		smallest = MIN(smallest, (unsigned)plan->share[i]);
	if (!conf->block)
		conf->block = KiB(4);
	if (!conf->group) /* neighbours of 512 KiB */
		conf->group =
			(uint32_t)MIN(MAX(KiB(512) / conf->block, 1u), (uint64_t)CACHE_IO_BLOCKS);

	/* As many partitions as leave each the room for several of the largest requests, up to
	 * enough that threads seldom meet. */
	uint64_t node_blocks = conf->size / plan->run * smallest / conf->block,
		 need = blocks_of(KiB(64), conf->block);
	if (node_blocks < need * PART_KEPT)
		return complain(err, err_len,
				"a cache of %llu bytes in blocks of %u over %u nodes is too small: at least %llu",
				(unsigned long long)conf->size, conf->block,
				(unsigned)__builtin_popcountll(conf->node_mask),
				(unsigned long long)need * PART_KEPT * conf->block * plan->run /
					smallest);
	if (!conf->partitions) {
		uint64_t want = blocks_of(CACHE_REQ_LEN, conf->block) * 8;
		for (conf->partitions = 1;
		     conf->partitions < 64 && node_blocks / (conf->partitions * 2) >= want;)
			conf->partitions *= 2;
	}
	uint64_t part_blocks = node_blocks / conf->partitions;
	if (part_blocks < need * PART_KEPT)
		return complain(err, err_len,
				"%u partitions are too many: each must hold at least %llu blocks",
				conf->partitions, (unsigned long long)need * PART_KEPT);
	if (conf->size / conf->block > UINT32_MAX / 2)
		return complain(err, err_len, "too many blocks: choose larger ones");

	/* One request fits into what is kept of the smallest place it may have to go to. */
	uint64_t len = CACHE_REQ_LEN;
	while (len > KiB(64) && (blocks_of(len, conf->block) > part_blocks / PART_KEPT ||
				 !cache_len_fits(len, conf->block, conf->group)))
		len /= 2;
	if (len / conf->block / conf->group + 2 > CACHE_REQ_GROUPS)
		return complain(err, err_len, "group=%u is too small for blocks of %u", conf->group,
				conf->block);
	plan->max_len = (uint32_t)len;
	plan->room = room_times(conf);
	return 0;
}
