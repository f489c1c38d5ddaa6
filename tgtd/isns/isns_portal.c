/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which portals are registered, and by which of them each target can be reached (RFC 4171 3.4,
 * 5.6.5.1). A portal at which there is no target is left out. A target that is not at a portal
 * that others are at gets a portal group without a tag: "not to be reached there".
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "tgtd/isns/isns_int.h"
#include "tgtd/iscsi/iscsi.h"

static void mapped(struct in6_addr *out, const struct in_addr *in)
{
	memset(out, 0, sizeof(*out));
	out->s6_addr[10] = out->s6_addr[11] = 0xff;
	memcpy(out->s6_addr + 12, in, 4);
}

/* As the iSCSI side writes it. */
static struct sockaddr_storage portal_address(const struct isns_portal *p)
{
	struct sockaddr_storage to = { 0 };
	struct sockaddr_in *v4 = (struct sockaddr_in *)&to;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&to;

	if (IN6_IS_ADDR_V4MAPPED(&p->addr)) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(p->port);
		memcpy(&v4->sin_addr, p->addr.s6_addr + 12, 4);
	} else {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(p->port);
		v6->sin6_addr = p->addr;
	}
	return to;
}

static void add_portal(struct isns_portals *ps, const struct isns_portal *p)
{
	for (unsigned i = 0; i < ps->n; i++)
		if (ps->p[i].port == p->port && IN6_ARE_ADDR_EQUAL(&ps->p[i].addr, &p->addr))
			return;
	if (ps->n < ISNS_PORTALS_MAX)
		ps->p[ps->n++] = *p;
}

/* "ip:port,tpgt" into @p. False: it is of no family that the protocol has. */
static bool read_portal(const char *text, struct isns_portal *p, int *family, bool *any)
{
	char ip[INET6_ADDRSTRLEN];
	struct in_addr v4;
	unsigned port, tpgt;

	if (sscanf(text, "[%45[^]]]:%u,%u", ip, &port, &tpgt) == 3) {
		if (inet_pton(AF_INET6, ip, &p->addr) != 1)
			return false;
		*family = AF_INET6;
		*any = IN6_IS_ADDR_UNSPECIFIED(&p->addr);
	} else if (sscanf(text, "%45[0-9.]:%u,%u", ip, &port, &tpgt) == 3) {
		if (inet_pton(AF_INET, ip, &v4) != 1)
			return false;
		*family = AF_INET;
		*any = v4.s_addr == INADDR_ANY;
		mapped(&p->addr, &v4);
	} else {
		return false;
	}
	p->port = (uint16_t)port;
	p->tpgt = (uint16_t)tpgt;
	return true;
}

/* One that listens at all addresses. */
struct open_portal {
	struct isns_portals *to;
	struct isns_portal p;
	int family;
};

/* A target is bound to one of its addresses. */
static void take_bound(const struct sockaddr *addr, void *arg)
{
	const struct open_portal *open = arg;
	struct isns_portal p = open->p;

	if (addr->sa_family != open->family)
		return;
	if (open->family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)addr;

		p.addr = v6->sin6_addr;
		if (ntohs(v6->sin6_port) != p.port || IN6_IS_ADDR_UNSPECIFIED(&p.addr))
			return;
	} else {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)addr;

		mapped(&p.addr, &v4->sin_addr);
		if (ntohs(v4->sin_port) != p.port || v4->sin_addr.s_addr == INADDR_ANY)
			return;
	}
	add_portal(open->to, &p);
}

/* One that listens at all addresses is registered with the one that the server sees, and with
 * those that targets are bound to. */
static void isns_take_portal(const char *text, void *arg)
{
	struct isns_portals *ps = arg;
	struct open_portal open = { .to = ps };
	struct isns_portal *p = &open.p, seen;
	bool any;

	if (!read_portal(text, p, &open.family, &any))
		return;
	if (!any) {
		add_portal(ps, p);
		return;
	}
	seen = *p;
	if (ps->local.ss_family == AF_INET6)
		seen.addr = ((const struct sockaddr_in6 *)&ps->local)->sin6_addr;
	else
		mapped(&seen.addr, &((const struct sockaddr_in *)&ps->local)->sin_addr);
	if (ps->local.ss_family == open.family)
		add_portal(ps, &seen);
	if (!iscsi_target_any_bound())
		return;
	for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t))
		iscsi_target_each_bound(t, take_bound, &open);
}

static bool serves(const struct isns_portal *p)
{
	const struct sockaddr_storage at = portal_address(p);

	for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t))
		if (iscsi_target_is_at(t, (const struct sockaddr *)&at))
			return true;
	return false;
}

void isns_portals_take(struct isns_portals *ps)
{
	unsigned n = 0;

	ps->n = 0;
	iscsi_portal_each(isns_take_portal, ps);
	if (!iscsi_target_any_bound())
		return;
	for (unsigned i = 0; i < ps->n; i++)
		if (serves(&ps->p[i]))
			ps->p[n++] = ps->p[i];
	ps->n = n;
}

uint64_t isns_portals_of(const struct isns_portals *ps, const char *name)
{
	const struct scsi_target *t = iscsi_target_any_bound() ? scsi_target_find_name(name) : NULL;
	uint64_t at = 0;

	for (unsigned i = 0; i < ps->n; i++) {
		const struct sockaddr_storage addr = portal_address(&ps->p[i]);

		if (!t || iscsi_target_is_at(t, (const struct sockaddr *)&addr))
			at |= 1ull << i;
	}
	return at;
}
