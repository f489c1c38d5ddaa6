/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Portals: addresses at which transports listen, and their portal groups
 * (RFC 7143 4.3.1.5). Main loop.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/portal.h"

#define LISTENERS_MAX 4

struct portal {
	struct list link;
	struct iscsi_portal p;
	char text[96]; /* "ip:port,tpgt" */
	int node;      /* of the adapter with that address, -1 unknown */
	unsigned n;
	struct {
		const struct iscsi_transport *tp;
		void *handle;
	} at[LISTENERS_MAX];
};

static struct list portals = LIST_INIT(portals);

static bool portal_number(const char *s, unsigned long max, unsigned long *out)
{
	char *end;

	if (*s < '0' || *s > '9')
		return false;
	errno = 0;
	*out = strtoul(s, &end, 10);
	return !errno && !*end && *out <= max;
}

int iscsi_portal_parse(const char *text, struct iscsi_portal *p)
{
	char buf[128], *host = buf, *port = NULL, *comma, *end;
	unsigned long n, tpgt = 1;
	bool v6 = false;

	if (strlen(text) >= sizeof(buf))
		return -EINVAL;
	strcpy(buf, text);
	comma = strchr(buf, ',');
	if (comma) {
		*comma = '\0';
		if (!portal_number(comma + 1, 65535, &tpgt) || !tpgt)
			return -EINVAL;
	}
	if (*host == '[') {
		host++;
		end = strchr(host, ']');
		if (!end)
			return -EINVAL;
		*end++ = '\0';
		if (*end == ':')
			port = end + 1;
		else if (*end)
			return -EINVAL;
		v6 = true;
	} else {
		end = strchr(host, ':');
		if (end && strchr(end + 1, ':')) {
			v6 = true; /* a bare IPv6 address, no port */
		} else if (end) {
			*end = '\0';
			port = end + 1;
		}
	}
	n = ISCSI_LISTEN_PORT;
	if (port && (!portal_number(port, 65535, &n) || !n))
		return -EINVAL;
	memset(p, 0, sizeof(*p));
	p->tpgt = (uint16_t)tpgt;
	if (v6) {
		struct sockaddr_in6 *a = (struct sockaddr_in6 *)&p->addr;

		a->sin6_family = AF_INET6;
		a->sin6_port = htons((uint16_t)n);
		if (inet_pton(AF_INET6, *host ? host : "::", &a->sin6_addr) != 1)
			return -EINVAL;
		p->len = sizeof(*a);
	} else {
		struct sockaddr_in *a = (struct sockaddr_in *)&p->addr;

		a->sin_family = AF_INET;
		a->sin_port = htons((uint16_t)n);
		if (inet_pton(AF_INET, *host ? host : "0.0.0.0", &a->sin_addr) != 1)
			return -EINVAL;
		p->len = sizeof(*a);
	}
	return 0;
}

void iscsi_portal_format(const struct iscsi_portal *p, char *out, size_t len)
{
	char ip[INET6_ADDRSTRLEN];

	if (p->addr.ss_family == AF_INET6) {
		const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)&p->addr;

		inet_ntop(AF_INET6, &a->sin6_addr, ip, sizeof(ip));
		snprintf(out, len, "[%s]:%u,%u", ip, ntohs(a->sin6_port), p->tpgt);
	} else {
		const struct sockaddr_in *a = (const struct sockaddr_in *)&p->addr;

		inet_ntop(AF_INET, &a->sin_addr, ip, sizeof(ip));
		snprintf(out, len, "%s:%u,%u", ip, ntohs(a->sin_port), p->tpgt);
	}
}

static bool portal_same_address(const struct iscsi_portal *a, const struct iscsi_portal *b)
{
	return a->len == b->len && !memcmp(&a->addr, &b->addr, a->len);
}

static struct portal *portal_find(const struct iscsi_portal *p)
{
	struct portal *q;

	list_for_each(q, &portals, link)
		if (portal_same_address(&q->p, p))
			return q;
	return NULL;
}

static void close_listeners(struct portal *q)
{
	while (q->n) {
		q->n--;
		q->at[q->n].tp->unlisten(q->at[q->n].handle);
	}
}

/* Every transport listens at every portal. TCP must be able to; iSER can only where the
 * address is an RDMA device's. */
static int open_listeners(struct portal *q)
{
	struct iscsi_transport_link *l;
	int rc = -EOPNOTSUPP;

	list_for_each(l, &iscsi_core.transports, link) {
		const struct iscsi_transport *tp = l->tp;

		if (!tp->listen)
			continue;
		ASSERT(q->n < LISTENERS_MAX);
		rc = tp->listen(iscsi_core.main, (const struct sockaddr *)&q->p.addr, q->p.len,
				q->p.tpgt, &q->at[q->n].handle);
		if (!rc) {
			q->at[q->n++].tp = tp;
		} else if (!tp->iser) {
			close_listeners(q);
			return rc;
		}
	}
	return q->n ? 0 : rc;
}

/* ---- what a target is bound to --------------------------------------------------------------- */

static void (*changed)(void);

int iscsi_bind_parse(const char *text, struct iscsi_bind *b)
{
	char one[128];

	b->n = 0;
	while (*text) {
		size_t len = strcspn(text, ";");

		if (b->n == ISCSI_BIND_MAX || !len || len >= sizeof(one) ||
		    memchr(text, ',', len) || (text[len] && !text[len + 1]))
			return -EINVAL;
		memcpy(one, text, len);
		one[len] = 0;
		if (*one == ':' || iscsi_portal_parse(one, &b->at[b->n]))
			return -EINVAL;
		for (unsigned i = 0; i < b->n; i++)
			if (portal_same_address(&b->at[i], &b->at[b->n]))
				return -EINVAL;
		b->n++;
		text += len + (text[len] == ';');
	}
	return 0;
}

/* Without its tag. */
static void format_bound(const struct iscsi_portal *p, char *out, size_t len)
{
	iscsi_portal_format(p, out, len);
	*strchrnul(out, ',') = 0;
}

int iscsi_bind_edit(const char *list, const char *one, bool add, char *out, size_t len)
{
	struct iscsi_bind b, extra;
	size_t at = 0;
	char text[96];
	unsigned i;

	if (iscsi_bind_parse(list, &b) || iscsi_bind_parse(one, &extra) || extra.n != 1)
		return -EINVAL;
	for (i = 0; i < b.n && !portal_same_address(&b.at[i], &extra.at[0]); i++)
		;
	if (add != (i == b.n))
		return add ? -EEXIST : -ENOENT;
	if (add && b.n == ISCSI_BIND_MAX)
		return -ENOSPC;
	if (add)
		b.at[b.n++] = extra.at[0];
	else
		memmove(&b.at[i], &b.at[i + 1], (--b.n - i) * sizeof(b.at[0]));
	*out = 0;
	for (i = 0; i < b.n; i++) {
		format_bound(&b.at[i], text, sizeof(text));
		at += (size_t)snprintf(out + at, len - at, "%s%s", i ? ";" : "", text);
		if (at >= len)
			return -ENOSPC;
	}
	return 0;
}

/* Is @addr, of one of our sockets, what @p names? IPv4 mapped into IPv6 is IPv4. */
static bool names(const struct iscsi_portal *p, const struct sockaddr *addr)
{
	const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)addr;
	const struct sockaddr_in *b4 = (const struct sockaddr_in *)&p->addr;
	const struct sockaddr_in6 *b6 = (const struct sockaddr_in6 *)&p->addr;
	struct sockaddr_in a4;

	if (addr->sa_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(&a6->sin6_addr))
		return p->addr.ss_family == AF_INET6 && a6->sin6_port == b6->sin6_port &&
		       (IN6_IS_ADDR_UNSPECIFIED(&b6->sin6_addr) ||
			IN6_ARE_ADDR_EQUAL(&a6->sin6_addr, &b6->sin6_addr));
	if (addr->sa_family == AF_INET6) {
		a4.sin_port = a6->sin6_port;
		memcpy(&a4.sin_addr, a6->sin6_addr.s6_addr + 12, 4);
	} else {
		a4 = *(const struct sockaddr_in *)addr;
	}
	return p->addr.ss_family == AF_INET && a4.sin_port == b4->sin_port &&
	       (b4->sin_addr.s_addr == INADDR_ANY || b4->sin_addr.s_addr == a4.sin_addr.s_addr);
}

bool iscsi_bind_allows(const struct iscsi_bind *b, const struct sockaddr *local)
{
	for (unsigned i = 0; i < b->n; i++)
		if (names(&b->at[i], local))
			return true;
	return !b->n;
}

/* Is something that @b names at @p? One that listens at all addresses is at the bound one, too. */
static bool binds(const struct iscsi_bind *b, const struct iscsi_portal *p)
{
	for (unsigned i = 0; i < b->n; i++)
		if (names(&b->at[i], (const struct sockaddr *)&p->addr) ||
		    names(p, (const struct sockaddr *)&b->at[i].addr))
			return true;
	return !b->n;
}

bool iscsi_bind_anywhere(const struct iscsi_bind *b)
{
	struct portal *q;

	list_for_each(q, &portals, link)
		if (binds(b, &q->p))
			return true;
	return false;
}

void iscsi_bind_apply(struct scsi_target *t, const struct iscsi_bind *b)
{
	uint16_t tag[SCSI_PORTS_MAX];
	struct portal *q;
	unsigned n = 0;

	list_for_each(q, &portals, link)
		if (n < SCSI_PORTS_MAX && b->n && binds(b, &q->p))
			tag[n++] = q->p.tpgt;
	scsi_target_bind_ports(t, tag, n, b->n);
}

void iscsi_portals_watch(void (*fn)(void))
{
	changed = fn;
}

/* A portal group tag is the relative identifier of a target port. */
static void tell_ports(void)
{
	uint16_t *tpgt;
	struct portal *q;
	unsigned n = 0;

	list_for_each(q, &portals, link)
		n++;
	tpgt = calloc(n + 1, sizeof(*tpgt));
	if (!tpgt)
		return;
	n = 0;
	list_for_each(q, &portals, link)
		tpgt[n++] = q->p.tpgt;
	scsi_set_ports(tpgt, n);
	free(tpgt);
	if (changed)
		changed();
}

/* What @text means, and our portal of that address, if there is one. */
static int parse_and_find(const char *text, struct iscsi_portal *p, struct portal **q)
{
	int rc = iscsi_portal_parse(text, p);

	ASSERT_ON_MAIN();
	*q = rc ? NULL : portal_find(p);
	return rc;
}

static int add_one(const char *text)
{
	struct iscsi_portal p;
	struct portal *q;
	int rc = parse_and_find(text, &p, &q);

	if (rc)
		return rc;
	if (q)
		return -EEXIST;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->p = p;
	iscsi_portal_format(&p, q->text, sizeof(q->text));
	q->node = iscsi_address_node((const struct sockaddr *)&p.addr);
	rc = open_listeners(q);
	if (rc) {
		free(q);
		return rc;
	}
	list_add_tail(&portals, &q->link);
	iscsi_core.portals_changed++;
	tell_ports();
	log_notice("iscsi: portal %s", q->text);
	return 0;
}

static void close_portal(struct portal *q)
{
	close_listeners(q);
	list_del(&q->link);
	iscsi_core.portals_changed++;
	free(q);
}

static int delete_one(const char *text)
{
	struct iscsi_portal p;
	struct portal *q;
	int rc = parse_and_find(text, &p, &q);

	if (rc)
		return rc;
	if (!q)
		return -ENOENT;
	log_notice("iscsi: portal %s closed", q->text);
	close_portal(q);
	tell_ports();
	return 0;
}

/* Without an address it is all addresses: those of IPv6 and of IPv4, a portal each. False: there is
 * one. */
static bool of_both(const char *text, char six[128], char four[128])
{
	if (*text && *text != ':' && *text != ',')
		return false;
	snprintf(six, 128, "[::]%.100s", text);
	snprintf(four, 128, "0.0.0.0%.100s", text);
	return true;
}

/* Not every machine has both. */
static bool no_family(int rc)
{
	return rc == -EAFNOSUPPORT || rc == -EADDRNOTAVAIL;
}

int iscsi_portal_add(const char *text)
{
	char six[128], four[128];
	int rc6, rc4;

	if (!of_both(text, six, four))
		return add_one(text);
	rc6 = add_one(six);
	if (rc6 && rc6 != -EEXIST && !no_family(rc6))
		return rc6;
	rc4 = add_one(four);
	if (no_family(rc6))
		return rc4;
	if (no_family(rc4) || (rc4 == -EEXIST && !rc6))
		return rc6;
	if (rc4 && !rc6)
		(void)!delete_one(six);
	return rc4;
}

int iscsi_portal_delete(const char *text)
{
	char six[128], four[128];
	int rc6, rc4;

	if (!of_both(text, six, four))
		return delete_one(text);
	rc6 = delete_one(six);
	rc4 = delete_one(four);
	return rc6 ? rc4 : 0;
}

/* Is the address one of this machine's? With whatever port: its own may be another portal's still,
 * which goes before this one comes. */
static int try_address(const char *text)
{
	struct iscsi_portal p;
	struct portal *q;
	int rc = parse_and_find(text, &p, &q), fd;

	if (rc || q)
		return rc;
	if (p.addr.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&p.addr)->sin6_port = 0;
	else
		((struct sockaddr_in *)&p.addr)->sin_port = 0;
	fd = socket(p.addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	rc = bind(fd, (const struct sockaddr *)&p.addr, p.len) ? -errno : 0;
	close(fd);
	return rc;
}

int iscsi_portal_check(const char *text)
{
	char six[128], four[128];
	int rc6, rc4;

	if (!of_both(text, six, four))
		return try_address(text);
	rc6 = try_address(six);
	rc4 = try_address(four);
	return rc6 && rc4 ? rc4 : 0;
}

void iscsi_portal_each(void (*fn)(const char *text, void *arg), void *arg)
{
	struct portal *q;

	ASSERT_ON_MAIN();
	list_for_each(q, &portals, link)
		fn(q->text, arg);
}

void iscsi_portal_each_node(void (*fn)(const char *text, int node, void *arg), void *arg)
{
	struct portal *q;

	ASSERT_ON_MAIN();
	list_for_each(q, &portals, link)
		fn(q->text, q->node, arg);
}

/* Initiators come by the same few addresses again and again; an address that moves to another
 * adapter meanwhile costs a hop, no more. */
int iscsi_address_node(const struct sockaddr *addr)
{
	static struct {
		struct sockaddr_storage addr;
		int node;
	} known[16];
	static unsigned next;
	const struct topology *topo = topology_current();
	struct sockaddr_storage key;

	if (!topo || topo->nnodes < 2 ||
	    (addr->sa_family != AF_INET && addr->sa_family != AF_INET6))
		return -1;
	memset(&key, 0, sizeof(key));
	key.ss_family = addr->sa_family;
	if (addr->sa_family == AF_INET6)
		((struct sockaddr_in6 *)&key)->sin6_addr =
			((const struct sockaddr_in6 *)addr)->sin6_addr;
	else
		((struct sockaddr_in *)&key)->sin_addr =
			((const struct sockaddr_in *)addr)->sin_addr;
	for (unsigned i = 0; i < ARRAY_SIZE(known); i++)
		if (!memcmp(&known[i].addr, &key, sizeof(key)))
			return known[i].node;
	next = (next + 1) % ARRAY_SIZE(known);
	known[next].addr = key;
	known[next].node = topology_address_node(topo, (const struct sockaddr *)&key);
	return known[next].node;
}

/* At the end of everything: no reason to disturb those who are about to leave. */
void iscsi_portals_close(void)
{
	while (!list_empty(&portals))
		close_portal(list_first(&portals, struct portal, link));
}
