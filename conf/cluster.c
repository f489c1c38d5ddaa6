/* SPDX-License-Identifier: GPL-2.0-or-later */
/* <cluster NAME> of targets.conf: the gateways of a group. The daemon reads it when it starts. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "conf/parse_int.h"
#include "conf/portal.h"

static bool cluster_name_ok(const char *name)
{
	const size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789._-");

	return n && n <= CONF_CLUSTER_NAME && !name[n];
}

int parse_cluster_begin(struct parser *p, const char *name)
{
	if (p->target)
		return parse_fail(p, "<cluster> inside of a target");
	if (p->c->cluster)
		return parse_fail(p, "a second <cluster>: a daemon is of one at most");
	if (!cluster_name_ok(name))
		return parse_fail(p,
				  "a cluster's name is of letters, digits, '.', '_' and '-', "
				  "%u at most",
				  CONF_CLUSTER_NAME);
	p->c->cluster = conf_strdup(p->c, name);
	p->c->cluster_pos = p->pos;
	p->cluster = true;
	return 0;
}

/* The address in a line of a gateway, "NAME TAG ADDRESS"; NULL: it has none. */
static const char *cluster_gateway_address(const struct conf_kv *gateway)
{
	const char *blank = strchr(strchr(gateway->value, ' ') + 1, ' ');

	return blank ? blank + 1 : NULL;
}

/* Up to the first blank. What follows is returned, without blanks at its ends. */
static char *cluster_word(char *text)
{
	char *end = text + strcspn(text, " \t");

	if (*end)
		*end++ = 0;
	return parse_trim(end);
}

/* gateway NAME TAG [ADDRESS] */
static int cluster_gateway(struct parser *p, char *value)
{
	char *tag = cluster_word(value), *address = cluster_word(tag);
	char name[CONF_PORTAL_LEN] = "", text[CONF_CLUSTER_NAME + 8 + CONF_PORTAL_LEN];
	struct conf_kv *kv;
	unsigned gateways = 0;
	uint32_t id;

	if (!cluster_name_ok(value) || !parse_number(tag, UINT16_MAX, &id) || !id)
		return parse_fail(p, "gateway is %s", conf_says("gateway"));
	if (*address && !conf_address_name(address, CONF_CLUSTER_PORT, name))
		return parse_fail(p, "gateway %s: '%s' is no address that others can connect to",
				  value, address);
	list_for_each(kv, &p->c->cluster_lines, link) {
		const size_t n = strlen(value);
		const char *other;

		if (strcmp(kv->key, "gateway"))
			continue;
		gateways++;
		if (!strncmp(kv->value, value, n) && kv->value[n] == ' ')
			return parse_fail(p, "gateway %s is given twice", value);
		if (strtoul(strchr(kv->value, ' '), NULL, 10) == id)
			return parse_fail(p, "two gateways of the tag %u", id);
		other = cluster_gateway_address(kv);
		if (other && !strcmp(other, name))
			return parse_fail(p, "two gateways at the address %s", name);
	}
	if (gateways == CONF_CLUSTER_GATEWAYS)
		return parse_fail(p, "more than %u gateways", CONF_CLUSTER_GATEWAYS);
	snprintf(text, sizeof(text), "%s %u%s%s", value, id, *name ? " " : "", name);
	conf_add_kv(p->c, &p->c->cluster_lines, "gateway", text)->pos = p->pos;
	return 0;
}

/* Bytes, with k, m, g or t behind the number; 0: it is no such text, or too large. */
static uint64_t cluster_bytes(const char *text)
{
	static const char units[] = "kmgt";
	const size_t n = strspn(text, "0123456789");
	const char *unit = text[n] ? strchr(units, tolower((unsigned char)text[n])) : NULL;
	uint64_t v = n && n <= 15 ? strtoull(text, NULL, 10) : 0;

	if (text[n] && (!unit || text[n + 1]))
		return 0;
	for (long i = unit ? unit - units : -1; i >= 0; i--)
		v = v >> 53 ? 0 : v << 10;
	return v;
}

/* Lines beside those of gateways: each at most once, and what holds without it. */
static const struct cluster_line {
	const char *key, *dflt;
	size_t max; /* characters, as struct group_conf has room for */
} cluster_keys[] = {
	{ "pool", "rbd", 127 },
	{ "ceph-conf", "", 255 },
	{ "ceph-id", "admin", 64 },
	{ "ceph-cluster", "ceph", 63 },
	{ "mirror-secret-file", "", 255 },
	{ "mirror-memory", "256m", 19 },
	{ "mirror-transport", "auto", 4 },
};

static const struct cluster_line *cluster_line_of(const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(cluster_keys); i++)
		if (!strcmp(cluster_keys[i].key, key))
			return &cluster_keys[i];
	return NULL;
}

/* May it be the value of @key? */
static bool cluster_value_ok(const char *key, const char *value)
{
	const uint64_t bytes = cluster_bytes(value);

	if (!strcmp(key, "mirror-memory"))
		return bytes >= MiB(16) && bytes <= GiB(256);
	if (!strcmp(key, "mirror-transport"))
		return !strcmp(value, "auto") || !strcmp(value, "tcp") || !strcmp(value, "rdma");
	return strcmp(key, "mirror-secret-file") != 0 || *value == '/';
}

int parse_cluster_line(struct parser *p, const char *key, char *value)
{
	const struct cluster_line *line = cluster_line_of(key);

	if (!strcmp(key, "gateway"))
		return cluster_gateway(p, value);
	if (!line)
		return parse_unknown(p, key, CONF_IN_CLUSTER);
	if (conf_get(&p->c->cluster_lines, key))
		return parse_fail(p, "%s is given twice", key);
	if (strpbrk(value, ",;"))
		return parse_fail(p, "%s has a comma or a semicolon in it", key);
	if (!*value || strlen(value) > line->max)
		return parse_fail(p, "%s is 1 to %zu characters", key, line->max);
	if (!cluster_value_ok(key, value))
		return parse_fail(p, "%s is %s, not '%s'", key, conf_says(key), value);
	conf_add_kv(p->c, &p->c->cluster_lines, key, value)->pos = p->pos;
	return 0;
}

/* Mirrors need a secret and two addresses; neither makes sense alone. NULL, or what is missing. */
static const char *cluster_lacks(const struct conf *c)
{
	const bool secret = conf_get(&c->cluster_lines, "mirror-secret-file");
	unsigned gateways = 0, addresses = 0;
	const struct conf_kv *kv;

	list_for_each(kv, &c->cluster_lines, link) {
		if (strcmp(kv->key, "gateway"))
			continue;
		gateways++;
		addresses += cluster_gateway_address(kv) != NULL;
	}
	return !gateways	    ? "has no gateway" :
	       addresses && !secret ? "has addresses of gateways, and no mirror-secret-file" :
	       conf_get(&c->cluster_lines, "mirror-memory") && !secret ?
				      "has mirror-memory, and no mirror-secret-file" :
	       conf_get(&c->cluster_lines, "mirror-transport") && !secret ?
				      "has mirror-transport, and no mirror-secret-file" :
	       secret && addresses < 2 ? "has mirror-secret-file, and fewer than two gateways have "
					 "an address" :
					 NULL;
}

int parse_cluster_end(struct parser *p)
{
	const char *lacks = cluster_lacks(p->c);

	p->cluster = false;
	return lacks ? parse_fail(p, "<cluster %s> %s", p->c->cluster, lacks) : 0;
}

size_t conf_cluster_text(const struct conf *c, char *text, size_t len)
{
	const struct conf_kv *kv;
	size_t n = (size_t)snprintf(text, len, "name=%s,gateways=", c->cluster);
	const char *plus = "";

	list_for_each(kv, &c->cluster_lines, link) {
		const char *address, *tag = strchr(kv->value, ' ');

		if (strcmp(kv->key, "gateway"))
			continue;
		address = cluster_gateway_address(kv);
		n += (size_t)snprintf(text + MIN(n, len), len - MIN(n, len), "%s%.*s:%.*s%s%s",
				      plus, (int)(tag - kv->value), kv->value,
				      (int)strcspn(tag + 1, " "), tag + 1, address ? "@" : "",
				      address ? address : "");
		plus = "+";
	}
	list_for_each(kv, &c->cluster_lines, link) {
		const size_t prefix = !strncmp(kv->key, "ceph-", 5)   ? 5 :
				      !strncmp(kv->key, "mirror-", 7) ? 7 :
									0;

		if (strcmp(kv->key, "gateway"))
			n += (size_t)snprintf(text + MIN(n, len), len - MIN(n, len), ",%s=%s",
					      kv->key + prefix, kv->value);
	}
	return n;
}

/* The next gateway behind @kv (NULL: the first); NULL: none. */
static const struct conf_kv *cluster_next(const struct conf *c, const struct conf_kv *kv)
{
	const struct list *at = kv ? kv->link.next : c->cluster_lines.next;

	for (; at != &c->cluster_lines; at = at->next) {
		kv = list_entry((struct list *)(uintptr_t)at, struct conf_kv, link);
		if (!strcmp(kv->key, "gateway"))
			return kv;
	}
	return NULL;
}

static const char *cluster_get(const struct conf *c, const char *key, const char *dflt)
{
	const char *value = conf_get(&c->cluster_lines, key);

	return value ? value : dflt;
}

static bool cluster_same_value(const struct conf *a, const struct conf *b,
			       const struct cluster_line *l)
{
	const char *x = cluster_get(a, l->key, l->dflt), *y = cluster_get(b, l->key, l->dflt);

	return !strcmp(x, y) ||
	       (!strcmp(l->key, "mirror-memory") && cluster_bytes(x) == cluster_bytes(y));
}

bool conf_cluster_same(const struct conf *a, const struct conf *b)
{
	const struct conf_kv *i, *k;

	if (!a->cluster || !b->cluster || strcmp(a->cluster, b->cluster))
		return !a->cluster && !b->cluster;
	for (unsigned n = 0; n < ARRAY_SIZE(cluster_keys); n++)
		if (!cluster_same_value(a, b, &cluster_keys[n]))
			return false;
	i = cluster_next(a, NULL);
	k = cluster_next(b, NULL);
	while (i && k && !strcmp(i->value, k->value)) {
		i = cluster_next(a, i);
		k = cluster_next(b, k);
	}
	return !i && !k;
}
