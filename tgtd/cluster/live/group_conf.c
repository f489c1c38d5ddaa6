/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The text that says what a group is (group.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tgtd/cluster/live/group.h"

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

/* a:1+b:2 */
static bool group_gateways(struct group_conf *c, const char *text, size_t len)
{
	const char *end = text + len;

	while (text < end) {
		const char *plus = memchr(text, '+', (size_t)(end - text)), *colon;
		const char *stop = plus ? plus : end;
		unsigned long id;
		char *rest;

		colon = memchr(text, ':', (size_t)(stop - text));
		if (!colon || c->n == SCSI_GATEWAYS_MAX ||
		    !group_name(c->gateway[c->n].name, text, (size_t)(colon - text)))
			return false;
		id = strtoul(colon + 1, &rest, 10);
		if (rest != stop || colon[1] < '0' || colon[1] > '9' || !id || id > UINT16_MAX)
			return false;
		for (unsigned i = 0; i < c->n; i++)
			if (c->gateway[i].id == id ||
			    !strcmp(c->gateway[i].name, c->gateway[c->n].name))
				return false;
		c->gateway[c->n++].id = (uint16_t)id;
		text = plus ? plus + 1 : end;
	}
	return c->n > 0;
}

int group_parse(struct group_conf *c, const char *text, char *why, size_t len)
{
	char self[GROUP_NAME_MAX] = "";

	*c = (struct group_conf){ .user = "client.admin", .cluster = "ceph", .pool = "rbd" };
	while (*text) {
		const size_t n = strcspn(text, ",");
		const char *value = memchr(text, '=', n);
		const size_t key = value ? (size_t)(value - text) : 0, vlen = n - key - 1;
		bool ok = false;

		if (!value) {
			snprintf(why, len, "'%.*s' is not KEY=VALUE", (int)n, text);
			return -EINVAL;
		}
		value++;
		if (!strncmp(text, "name=", key + 1))
			ok = group_name(c->name, value, vlen);
		else if (!strncmp(text, "self=", key + 1))
			ok = group_name(self, value, vlen);
		else if (!strncmp(text, "pool=", key + 1))
			ok = group_text(c->pool, sizeof(c->pool), value, vlen);
		else if (!strncmp(text, "conf=", key + 1))
			ok = group_text(c->conf, sizeof(c->conf), value, vlen);
		else if (!strncmp(text, "cluster=", key + 1))
			ok = group_text(c->cluster, sizeof(c->cluster), value, vlen);
		else if (!strncmp(text, "id=", key + 1))
			ok = group_text(c->user + 7, sizeof(c->user) - 7, value, vlen);
		else if (!strncmp(text, "gateways=", key + 1))
			ok = !c->n && group_gateways(c, value, vlen);
		if (!ok) {
			snprintf(
				why, len,
				"'%.*s': name=, gateways=NAME:TAG+NAME:TAG..., self=, pool=, conf=, "
				"id= and cluster= are known",
				(int)n, text);
			return -EINVAL;
		}
		text += n + (text[n] == ',');
	}
	for (c->self = 0; c->self < c->n && strcmp(c->gateway[c->self].name, self); c->self++)
		;
	if (*c->name && c->n && c->self < c->n)
		return 0;
	snprintf(why, len, "%s",
		 !*c->name ? "name= is missing" :
		 !c->n	   ? "gateways= is missing" :
			     "self= names none of the gateways");
	return -EINVAL;
}
