/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The text that says what a group is (group.h). */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tgtd/cluster/live/group.h"
#include "tgtd/cluster/live/mirror_link.h"

static bool group_text(char *to, size_t room, const char *from, size_t n)
{
	if (!n || n >= room)
		return false;
	memcpy(to, from, n);
	to[n] = '\0';
	return true;
}

static bool group_name(char *to, const char *from, size_t n)
{
	return group_text(to, GROUP_NAME_MAX, from, n) &&
	       !to[strspn(to, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")];
}

/* A decimal number from 1 to 65535, all of the text. */
static bool group_u16(const char *text, uint16_t *out)
{
	char *end;
	unsigned long v;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	v = strtoul(text, &end, 10);
	*out = (uint16_t)v;
	return !*end && !errno && v && v <= UINT16_MAX;
}

/* "192.0.2.1", "192.0.2.1:7000", "2001:db8::1", "[2001:db8::1]:7000", taken apart; *port NULL:
 * there is none. */
static bool group_host(char *text, char **host, char **port, bool *v6)
{
	char *end = *text == '[' ? strchr(text, ']') : strchr(text, ':');

	*host = text;
	*port = NULL;
	*v6 = *text == '[' || (end && strchr(end + 1, ':'));
	if (*text != '[') {
		if (end && !*v6) {
			*end = '\0';
			*port = end + 1;
		}
		return true;
	}
	if (!end || (end[1] && end[1] != ':'))
		return false;
	*host = text + 1;
	*port = end[1] ? end + 2 : NULL;
	*end = '\0';
	return true;
}

/* The address of @g. False: it is none, or none that another machine could connect to. */
static bool group_address(struct group_gateway *g, const char *text, size_t n)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&g->address;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&g->address;
	char copy[sizeof(g->address_text)], ip[INET6_ADDRSTRLEN], *host, *port_text;
	uint16_t port = MIRROR_PORT;
	bool v6;

	if (!group_text(copy, sizeof(copy), text, n) || !group_host(copy, &host, &port_text, &v6) ||
	    (port_text && !group_u16(port_text, &port)))
		return false;
	if (v6) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
		if (inet_pton(AF_INET6, host, &in6->sin6_addr) != 1 ||
		    IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr) ||
		    IN6_IS_ADDR_MULTICAST(&in6->sin6_addr))
			return false;
	} else {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		if (inet_pton(AF_INET, host, &in->sin_addr) != 1 || !in->sin_addr.s_addr ||
		    IN_MULTICAST(ntohl(in->sin_addr.s_addr)) ||
		    in->sin_addr.s_addr == INADDR_BROADCAST)
			return false;
	}
	inet_ntop(v6 ? AF_INET6 : AF_INET,
		  v6 ? (const void *)&in6->sin6_addr : (const void *)&in->sin_addr, ip, sizeof(ip));
	snprintf(g->address_text, sizeof(g->address_text), v6 ? "[%s]:%u" : "%s:%u", ip, port);
	return true;
}

/* a:1, or a:1@192.0.2.1. NULL, or what is wrong with it. */
static const char *group_gateway(struct group_conf *c, const char *text, size_t n)
{
	const char *colon = memchr(text, ':', n), *at = memchr(text, '@', n);
	struct group_gateway *g = &c->gateway[c->n];
	const char *end = at ? at : text + n;
	char tag[8];

	if (c->n == SCSI_GATEWAYS_MAX)
		return "there are too many gateways";
	*g = (struct group_gateway){ 0 };
	if (!colon || colon > end || !group_name(g->name, text, (size_t)(colon - text)) ||
	    !group_text(tag, sizeof(tag), colon + 1, (size_t)(end - colon - 1)) ||
	    !group_u16(tag, &g->id))
		return "a gateway is NAME:TAG or NAME:TAG@ADDRESS";
	if (at && !group_address(g, at + 1, (size_t)(text + n - at - 1)))
		return "behind @ there is no address that others can connect to";
	for (unsigned i = 0; i < c->n; i++) {
		if (c->gateway[i].id == g->id || !strcmp(c->gateway[i].name, g->name))
			return "two gateways have a name or a tag in common";
		if (at && !strcmp(c->gateway[i].address_text, g->address_text))
			return "two gateways have one address";
	}
	c->n++;
	return NULL;
}

/* a:1+b:2 */
static const char *group_gateways(struct group_conf *c, const char *text, size_t len)
{
	const char *end = text + len, *why = NULL;

	while (text < end && !why) {
		const char *plus = memchr(text, '+', (size_t)(end - text));
		const char *stop = plus ? plus : end;

		why = group_gateway(c, text, (size_t)(stop - text));
		text = plus ? plus + 1 : end;
	}
	return why;
}

/* Bytes, with k, m, g or t behind the number. */
static bool group_memory(struct group_conf *c, const char *text, size_t n)
{
	static const char units[] = "kmgt";
	const char *unit;
	char copy[20], *end;

	if (!group_text(copy, sizeof(copy), text, n) || !isdigit((unsigned char)*copy))
		return false;
	errno = 0;
	c->memory = strtoull(copy, &end, 10);
	unit = *end ? strchr(units, tolower((unsigned char)*end)) : NULL;
	if (errno || c->memory > GROUP_MEMORY_MAX || (*end && (!unit || end[1])))
		return false;
	if (unit)
		for (long i = unit - units; i >= 0 && c->memory <= GROUP_MEMORY_MAX; i--)
			c->memory <<= 10;
	return c->memory >= GROUP_MEMORY_MIN && c->memory <= GROUP_MEMORY_MAX;
}

static bool group_transport(struct group_conf *c, const char *text, size_t n)
{
	static const char *const words[] = {
		[MIRROR_AUTO] = "auto", [MIRROR_TCP] = "tcp", [MIRROR_RDMA] = "rdma"
	};

	for (unsigned i = 0; i < ARRAY_SIZE(words); i++)
		if (strlen(words[i]) == n && !memcmp(words[i], text, n)) {
			c->transport = (enum mirror_transport)i;
			return true;
		}
	return false;
}

/* What must be said of mirrors, or nothing. NULL, or what is missing. */
static const char *group_mirrors_lack(struct group_conf *c)
{
	unsigned addresses = 0;

	for (unsigned i = 0; i < c->n; i++)
		addresses += c->gateway[i].address.ss_family != AF_UNSPEC;
	if (!*c->secret_file)
		return addresses    ? "gateways have addresses, and secret-file= is missing" :
		       c->memory    ? "memory= is for mirrors, and secret-file= is missing" :
		       c->transport ? "transport= is for mirrors, and secret-file= is missing" :
				      NULL;
	if (addresses < 2)
		return "secret-file= is for mirrors, and fewer than two gateways have an address";
	c->mirrors = true;
	if (!c->memory)
		c->memory = GROUP_MEMORY;
	return NULL;
}

/* One KEY=VALUE. NULL, or what is wrong. */
static const char *group_word(struct group_conf *c, char *self, const char *text, size_t n)
{
	const char *value = memchr(text, '=', n);
	const size_t key = value ? (size_t)(value - text) + 1 : 0, vlen = n - key;
	bool ok = false;

	if (!value)
		return "it is not KEY=VALUE";
	value++;
	if (!strncmp(text, "gateways=", key))
		return c->n ? "gateways= is there twice" : group_gateways(c, value, vlen);
	if (!strncmp(text, "secret-file=", key))
		return *value == '/' && group_text(c->secret_file, sizeof(c->secret_file), value,
						   vlen) ?
			       NULL :
			       "a file is named from the root";
	if (!strncmp(text, "memory=", key))
		return group_memory(c, value, vlen) ?
			       NULL :
			       "it is 16m to 256g bytes, with k, m, g or t behind the number";
	if (!strncmp(text, "transport=", key))
		return group_transport(c, value, vlen) ? NULL : "it is auto, tcp or rdma";
	if (!strncmp(text, "name=", key))
		ok = group_name(c->name, value, vlen);
	else if (!strncmp(text, "self=", key))
		ok = group_name(self, value, vlen);
	else if (!strncmp(text, "pool=", key))
		ok = group_text(c->pool, sizeof(c->pool), value, vlen);
	else if (!strncmp(text, "conf=", key))
		ok = group_text(c->conf, sizeof(c->conf), value, vlen);
	else if (!strncmp(text, "cluster=", key))
		ok = group_text(c->cluster, sizeof(c->cluster), value, vlen);
	else if (!strncmp(text, "id=", key))
		ok = group_text(c->user + 7, sizeof(c->user) - 7, value, vlen);
	return ok ? NULL :
		    "name=, gateways=NAME:TAG[@ADDRESS]+..., self=, pool=, conf=, id=, cluster=, "
		    "secret-file=, memory= and transport= are known";
}

int group_parse(struct group_conf *c, const char *text, char *why, size_t len)
{
	char self[GROUP_NAME_MAX] = "";
	const char *fault;

	*c = (struct group_conf){ .user = "client.admin", .cluster = "ceph", .pool = "rbd" };
	while (*text) {
		const size_t n = strcspn(text, ",");

		fault = group_word(c, self, text, n);
		if (fault) {
			snprintf(why, len, "'%.*s': %s", (int)n, text, fault);
			return -EINVAL;
		}
		text += n + (text[n] == ',');
	}
	for (c->self = 0; c->self < c->n && strcmp(c->gateway[c->self].name, self); c->self++)
		;
	fault = !*c->name	? "name= is missing" :
		!c->n		? "gateways= is missing" :
		c->self == c->n ? "self= names none of the gateways" :
				  group_mirrors_lack(c);
	if (!fault)
		return 0;
	snprintf(why, len, "%s", fault);
	return -EINVAL;
}
