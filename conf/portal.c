/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Names of portals. The daemon reads them by tgtd/iscsi/portal.c; tests/unit/admin/test_portals.c
 * compares the two. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include "conf/portal.h"
#include "events/bug.h"

#define DEFAULT_PORT 3260

/* @text is a number in [1, 65535] and nothing else. */
static bool portal_u16(const char *text, unsigned *out)
{
	char *end;
	unsigned long v;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	v = strtoul(text, &end, 10);
	*out = (unsigned)v;
	return !*end && !errno && v && v <= UINT16_MAX;
}

/* Cuts @host behind the address. *port: the text of the port, NULL: there is none. */
static bool cut_port(char **host, char **port, bool *v6)
{
	char *end;

	*port = NULL;
	*v6 = **host == '[';
	if (*v6) {
		end = strchr(++*host, ']');
		if (!end || (end[1] && end[1] != ':'))
			return false;
		*port = end[1] ? end + 2 : NULL;
		*end = 0;
		return true;
	}
	end = strchr(*host, ':');
	*v6 = end && strchr(end + 1, ':'); /* IPv6 without brackets has no port */
	if (end && !*v6) {
		*end = 0;
		*port = end + 1;
	}
	return true;
}

unsigned conf_portal_names(const char *text, char names[2][CONF_PORTAL_LEN])
{
	char buf[CONF_PORTAL_LEN], ip[INET6_ADDRSTRLEN], *host = buf, *port, *tag;
	unsigned port_number = DEFAULT_PORT, tag_number = 1;
	unsigned char addr[16];
	bool v6;

	ASSERT(text);
	if (strlen(text) >= sizeof(buf))
		return 0;
	strcpy(buf, text);
	tag = strchr(buf, ',');
	if (tag)
		*tag++ = 0;
	if ((tag && !portal_u16(tag, &tag_number)) || !cut_port(&host, &port, &v6) ||
	    (port && !portal_u16(port, &port_number)))
		return 0;
	if (!*host && !v6) {
		snprintf(names[0], CONF_PORTAL_LEN, "[::]:%u,%u", port_number, tag_number);
		snprintf(names[1], CONF_PORTAL_LEN, "0.0.0.0:%u,%u", port_number, tag_number);
		return 2;
	}
	if (v6 && !*host)
		strcpy(host, "::"); /* "[]": the bracket leaves room */
	if (inet_pton(v6 ? AF_INET6 : AF_INET, host, addr) != 1)
		return 0;
	inet_ntop(v6 ? AF_INET6 : AF_INET, addr, ip, sizeof(ip));
	snprintf(names[0], CONF_PORTAL_LEN, v6 ? "[%s]:%u,%u" : "%s:%u,%u", ip, port_number,
		 tag_number);
	return 1;
}

bool conf_address_name(const char *text, unsigned port, char name[CONF_PORTAL_LEN])
{
	char buf[CONF_PORTAL_LEN], ip[INET6_ADDRSTRLEN], *host = buf, *port_text;
	struct in6_addr six;
	struct in_addr four;
	bool v6;

	ASSERT(text && port && port <= UINT16_MAX);
	if (strlen(text) >= sizeof(buf))
		return false;
	strcpy(buf, text);
	if (!cut_port(&host, &port_text, &v6) || (port_text && !portal_u16(port_text, &port)))
		return false;
	if (v6) {
		if (inet_pton(AF_INET6, host, &six) != 1 || IN6_IS_ADDR_UNSPECIFIED(&six) ||
		    IN6_IS_ADDR_MULTICAST(&six))
			return false;
		inet_ntop(AF_INET6, &six, ip, sizeof(ip));
	} else {
		if (inet_pton(AF_INET, host, &four) != 1 || !four.s_addr ||
		    IN_MULTICAST(ntohl(four.s_addr)) || four.s_addr == INADDR_BROADCAST)
			return false;
		inet_ntop(AF_INET, &four, ip, sizeof(ip));
	}
	snprintf(name, CONF_PORTAL_LEN, v6 ? "[%s]:%u" : "%s:%u", ip, port);
	return true;
}

bool conf_portal_same_address(const char *a, const char *b)
{
	size_t n = strcspn(a, ",");

	return n == strcspn(b, ",") && !memcmp(a, b, n);
}

static bool is_any(const char *name)
{
	return !strncmp(name, "0.0.0.0:", 8) || !strncmp(name, "[::]:", 5);
}

bool conf_portal_clash(const char *a, const char *b)
{
	const char *port = strrchr(a, ':'), *other = strrchr(b, ':');

	ASSERT(port && other);
	if ((*a == '[') != (*b == '[') || !conf_portal_same_address(port, other))
		return false;
	return is_any(a) || is_any(b) || conf_portal_same_address(a, b);
}
