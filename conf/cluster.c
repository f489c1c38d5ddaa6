/* SPDX-License-Identifier: GPL-2.0-or-later */
/* <cluster NAME> of targets.conf: the gateways of a group. The daemon reads it when it starts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "conf/parse_int.h"

#define CLUSTER_GATEWAYS 16

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

/* gateway NAME TAG */
static int cluster_gateway(struct parser *p, char *value)
{
	const size_t n = strcspn(value, " \t");
	char *tag = value + n;
	struct conf_kv *kv;
	unsigned gateways = 0;
	char text[CONF_CLUSTER_NAME + 8];
	uint32_t id;

	if (*tag)
		*tag++ = 0;
	tag = parse_trim(tag);
	if (!cluster_name_ok(value) || !parse_number(tag, UINT16_MAX, &id) || !id)
		return parse_fail(p, "gateway is %s", conf_says("gateway"));
	list_for_each(kv, &p->c->cluster_lines, link) {
		if (strcmp(kv->key, "gateway"))
			continue;
		gateways++;
		if (!strncmp(kv->value, value, n) && kv->value[n] == ' ')
			return parse_fail(p, "gateway %s is given twice", value);
		if (strtoul(strchr(kv->value, ' '), NULL, 10) == id)
			return parse_fail(p, "two gateways of the tag %u", id);
	}
	if (gateways == CLUSTER_GATEWAYS)
		return parse_fail(p, "more than %u gateways", CLUSTER_GATEWAYS);
	snprintf(text, sizeof(text), "%s %u", value, id);
	conf_add_kv(p->c, &p->c->cluster_lines, "gateway", text)->pos = p->pos;
	return 0;
}

int parse_cluster_line(struct parser *p, const char *key, char *value)
{
	if (!strcmp(key, "gateway"))
		return cluster_gateway(p, value);
	if (strcmp(key, "pool") && strcmp(key, "ceph-conf") && strcmp(key, "ceph-id") &&
	    strcmp(key, "ceph-cluster"))
		return parse_unknown(p, key, CONF_IN_CLUSTER);
	if (conf_get(&p->c->cluster_lines, key))
		return parse_fail(p, "%s is given twice", key);
	if (strpbrk(value, ",;"))
		return parse_fail(p, "%s has a comma or a semicolon in it", key);
	conf_add_kv(p->c, &p->c->cluster_lines, key, value)->pos = p->pos;
	return 0;
}

int parse_cluster_end(struct parser *p)
{
	p->cluster = false;
	return conf_get(&p->c->cluster_lines, "gateway") ?
		       0 :
		       parse_fail(p, "<cluster %s> has no gateway", p->c->cluster);
}

size_t conf_cluster_text(const struct conf *c, char *text, size_t len)
{
	const struct conf_kv *kv;
	size_t n = (size_t)snprintf(text, len, "name=%s,gateways=", c->cluster);
	const char *plus = "";

	list_for_each(kv, &c->cluster_lines, link) {
		if (strcmp(kv->key, "gateway"))
			continue;
		n += (size_t)snprintf(text + MIN(n, len), len - MIN(n, len), "%s%.*s:%s", plus,
				      (int)strcspn(kv->value, " "), kv->value,
				      strchr(kv->value, ' ') + 1);
		plus = "+";
	}
	list_for_each(kv, &c->cluster_lines, link)
		if (strcmp(kv->key, "gateway"))
			n += (size_t)snprintf(text + MIN(n, len), len - MIN(n, len), ",%s=%s",
					      kv->key + (strncmp(kv->key, "ceph-", 5) ? 0 : 5),
					      kv->value);
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

bool conf_cluster_same(const struct conf *a, const struct conf *b)
{
	static const char *const keys[][2] = { { "pool", "rbd" },
					       { "ceph-conf", "" },
					       { "ceph-id", "admin" },
					       { "ceph-cluster", "ceph" } };
	const struct conf_kv *i, *k;

	if (!a->cluster || !b->cluster || strcmp(a->cluster, b->cluster))
		return !a->cluster && !b->cluster;
	for (unsigned n = 0; n < ARRAY_SIZE(keys); n++)
		if (strcmp(cluster_get(a, keys[n][0], keys[n][1]),
			   cluster_get(b, keys[n][0], keys[n][1])))
			return false;
	i = cluster_next(a, NULL);
	k = cluster_next(b, NULL);
	while (i && k && !strcmp(i->value, k->value)) {
		i = cluster_next(a, i);
		k = cluster_next(b, k);
	}
	return !i && !k;
}
