/* SPDX-License-Identifier: GPL-2.0-or-later */
/* --iser KEY=VALUE,...: tgt's keys, and ours. One row a key. */
#include <stdio.h>
#include <stdlib.h>

#include "events/log.h"
#include "iser/options.h"

struct iser_options iser_opt;

struct row {
	const char *key;
	const char *words; /* "a|b|c": their positions are the values; NULL: a number */
	unsigned long min, max;
	void (*set)(struct iser_options *o, unsigned long v);
};

static void set_port(struct iser_options *o, unsigned long v)
{
	o->port = (uint16_t)v;
}
static void set_nop(struct iser_options *o, unsigned long v)
{
	o->nop = v;
}
static void set_pool(struct iser_options *o, unsigned long v)
{
	o->pool_bytes_mb = (uint32_t)v;
}
static void set_slot(struct iser_options *o, unsigned long v)
{
	o->slot_len = (uint32_t)v << 10;
}
static void set_immediate(struct iser_options *o, unsigned long v)
{
	o->immediate = v;
}
static void set_unsolicited(struct iser_options *o, unsigned long v)
{
	o->unsolicited = (uint32_t)v << 10;
}
static void set_vector(struct iser_options *o, unsigned long v)
{
	o->cq_vector = (int)v;
}
static void set_completion(struct iser_options *o, unsigned long v)
{
	o->completion = (uint8_t)v;
}
static void set_gather(struct iser_options *o, unsigned long v)
{
	o->gather = (uint8_t)v;
}
static void set_path(struct iser_options *o, unsigned long v)
{
	o->path = (uint8_t)v;
}

static const struct row rows[] = {
	{ "port", NULL, 1, 65535, set_port },
	{ "nop", "off|on", 0, 0, set_nop },
	{ "pool_sz_mb", NULL, 1, 1 << 20, set_pool },
	{ "buf_sz_kb", NULL, 64, 4096, set_slot },
	{ "immediate", "off|on", 0, 0, set_immediate },
	/* At least the default of FirstBurstLength, which an initiator may leave unsaid. */
	{ "unsolicited_kb", NULL, 64, 1024, set_unsolicited },
	{ "cq_vector", NULL, 0, 4095, set_vector },
	{ "completion", "adaptive|event|poll", 0, 0, set_completion },
	{ "gather", "auto|gather|multi|pack", 0, 0, set_gather },
	{ "path", "zerocopy|copy", 0, 0, set_path },
};

/* Position of @v among "a|b|c", or -1. */
static int word(const char *words, const char *v)
{
	size_t len = strlen(v);

	for (int i = 0; words; i++) {
		const char *bar = strchr(words, '|');
		size_t n = bar ? (size_t)(bar - words) : strlen(words);

		if (n == len && !memcmp(words, v, n))
			return i;
		words = bar ? bar + 1 : NULL;
	}
	return -1;
}

static int set(struct iser_options *o, const char *key, const char *value)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *r = &rows[i];
		unsigned long v;
		char *end;

		if (strcmp(r->key, key))
			continue;
		if (r->words) {
			int w = word(r->words, value);

			if (w < 0) {
				log_error("--iser %s: one of %s, not '%s'", key, r->words, value);
				return -EINVAL;
			}
			r->set(o, (unsigned long)w);
			return 0;
		}
		errno = 0;
		v = strtoul(value, &end, 10);
		if (*value < '0' || *value > '9' || *end || errno || v < r->min || v > r->max) {
			log_error("--iser %s: a number from %lu to %lu, not '%s'", key, r->min,
				  r->max, value);
			return -EINVAL;
		}
		r->set(o, v);
		return 0;
	}
	log_error("--iser: no option '%s'", key);
	return -EINVAL;
}

int iser_options_parse(struct iser_options *o, const char *text)
{
	struct iser_options x = { .nop = true,
				  .immediate = true,
				  .pool_bytes_mb = 1024,
				  .slot_len = 64 << 10,
				  .cq_vector = -1 };
	char buf[512], *save = NULL;

	*o = x;
	if (!text || !*text)
		return 0;
	if (strlen(text) >= sizeof(buf)) {
		log_error("--iser: too long");
		return -EINVAL;
	}
	strcpy(buf, text);
	for (char *item = strtok_r(buf, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		char *eq = strchr(item, '=');

		if (!eq) {
			log_error("--iser: KEY=VALUE, not '%s'", item);
			return -EINVAL;
		}
		*eq = '\0';
		if (set(&x, item, eq + 1))
			return -EINVAL;
	}
	*o = x;
	return 0;
}
