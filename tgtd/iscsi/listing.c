/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Listings of targets and portals: see listing.h.
 *
 * A listing has names and portals of its moment; who may see a target is asked when its turn comes,
 * so that nobody is told of what was closed to it meanwhile. Listings share their targets' text.
 * One that is not the newest lives as long as it has readers.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/itarget.h"
#include "tgtd/iscsi/listing.h"

#define ADDRESS_MAX (INET6_ADDRSTRLEN + 2)
#define NODE_COST 64 /* asking for a target's node, in looks at a rule */

struct listing_entry {
	struct list link; /* those that there are, by target number */
	unsigned refs;
	struct scsi_target *target; /* NULL: gone */
	uint32_t len;		    /* of text, with its NUL */
	char text[];		    /* "TargetName=..." */
};

enum portal_kind { PORTAL_ONE, PORTAL_ANY4, PORTAL_ANY6 };

struct listing_portal {
	uint8_t kind;  /* enum portal_kind */
	int node;      /* of its adapter, -1 unknown */
	uint32_t len;  /* of text, with its NUL */
	struct iscsi_portal p;
	char text[96]; /* "ip:port,tpgt"; of all addresses only ":port,tpgt" */
};

struct listing {
	struct list link; /* all, the oldest first */
	struct list readers;
	uint32_t n, nportals;
	unsigned portals_changed; /* iscsi_core's, at that moment */
	bool nodes; /* portals are on different ones: it matters which comes first */
	struct listing_portal *portal;
	struct listing_entry *entry[];
};

static struct list entries = LIST_INIT(entries);
static uint32_t nentries;
static struct list listings = LIST_INIT(listings);
static unsigned nlistings;
static struct listing *newest; /* NULL: something has changed since */

void listing_address(const struct sockaddr *addr, char *out, size_t len)
{
	const struct in6_addr *a6 = &((const struct sockaddr_in6 *)addr)->sin6_addr;
	char ip[INET6_ADDRSTRLEN] = "";

	if (addr->sa_family == AF_INET) {
		inet_ntop(AF_INET, &((const struct sockaddr_in *)addr)->sin_addr, ip, sizeof(ip));
	} else if (addr->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(a6)) {
		inet_ntop(AF_INET, a6->s6_addr + 12, ip, sizeof(ip));
	} else {
		if (addr->sa_family == AF_INET6)
			inet_ntop(AF_INET6, a6, ip, sizeof(ip));
		snprintf(out, len, "[%s]", ip);
		return;
	}
	snprintf(out, len, "%s", ip);
}

static void entry_put(struct listing_entry *e)
{
	if (!--e->refs)
		free(e);
}

static void listing_free(struct listing *l)
{
	ASSERT(list_empty(&l->readers));
	list_del(&l->link);
	nlistings--;
	for (uint32_t i = 0; i < l->n; i++)
		entry_put(l->entry[i]);
	free(l->portal);
	free(l);
}

void listing_changed(void)
{
	struct listing *l = newest;

	ASSERT_ON_MAIN();
	newest = NULL;
	if (l && list_empty(&l->readers))
		listing_free(l);
}

/* ---- targets --------------------------------------------------------------------------------- */

struct listing_entry *listing_entry_new(struct scsi_target *t)
{
	static const char key[] = "TargetName=";
	size_t len = sizeof(key) + strlen(scsi_target_name(t));
	struct listing_entry *e = malloc(sizeof(*e) + len);
	struct list *at = entries.prev;

	ASSERT_ON_MAIN();
	if (!e)
		return NULL;
	*e = (struct listing_entry){ .refs = 1, .target = t, .len = (uint32_t)len };
	snprintf(e->text, len, "%s%s", key, scsi_target_name(t));
	while (at != &entries &&
	       scsi_target_tid(list_entry(at, struct listing_entry, link)->target) >
		       scsi_target_tid(t))
		at = at->prev;
	list_init(&e->link);
	list_insert_after(at, &e->link);
	nentries++;
	listing_changed();
	return e;
}

void listing_entry_gone(struct listing_entry *e)
{
	e->target = NULL;
	list_del(&e->link);
	nentries--;
	entry_put(e);
	listing_changed();
}

/* ---- listings -------------------------------------------------------------------------------- */

static void count_portal(const char *text, int node, void *arg)
{
	(void)text;
	(void)node;
	++*(uint32_t *)arg;
}

static void listing_take_portal(const char *text, int node, void *arg)
{
	struct listing *l = arg;
	struct listing_portal *p = &l->portal[l->nportals++];

	p->kind = PORTAL_ONE;
	if (iscsi_portal_parse(text, &p->p))
		BUG("a portal's own text");
	if (!strncmp(text, "0.0.0.0:", 8)) {
		p->kind = PORTAL_ANY4;
		text += 7;
	} else if (!strncmp(text, "[::]:", 5)) {
		p->kind = PORTAL_ANY6;
		text += 4;
	}
	p->node = node;
	p->len = (uint32_t)snprintf(p->text, sizeof(p->text), "%s", text) + 1;
	l->nodes |= node != l->portal[0].node;
}

static struct listing *listing_new(void)
{
	struct listing_entry *e;
	uint32_t nportals = 0;
	struct listing *l;

	iscsi_portal_each_node(count_portal, &nportals);
	l = calloc(1, sizeof(*l) + nentries * sizeof(struct listing_entry *));
	if (!l)
		return NULL;
	list_init(&l->readers);
	l->portals_changed = iscsi_core.portals_changed;
	l->portal = calloc(nportals + 1, sizeof(*l->portal));
	if (!l->portal) {
		free(l);
		return NULL;
	}
	iscsi_portal_each_node(listing_take_portal, l);
	list_for_each(e, &entries, link) {
		e->refs++;
		l->entry[l->n++] = e;
	}
	ASSERT(l->n == nentries);
	list_add_tail(&listings, &l->link);
	nlistings++;
	return l;
}

/* Readers may take their time, but not hold any number of moments. */
static void drop_oldest(void)
{
	struct listing *l = list_first(&listings, struct listing, link);

	while (!list_empty(&l->readers)) {
		struct listing_cursor *c = list_first(&l->readers, struct listing_cursor, link);

		list_del(&c->link);
		c->of = NULL;
		c->lost = true;
	}
	listing_free(l);
}

/* ---- reading --------------------------------------------------------------------------------- */

void listing_cursor_init(struct listing_cursor *c)
{
	memset(c, 0, sizeof(*c));
	list_init(&c->link);
}

void listing_close(struct listing_cursor *c)
{
	struct listing *l = c->of;

	c->of = NULL;
	c->lost = false;
	if (!l)
		return;
	list_del(&c->link);
	if (l != newest && list_empty(&l->readers))
		listing_free(l);
}

int listing_open(struct listing_cursor *c, const char *name)
{
	struct listing *l;

	ASSERT_ON_MAIN();
	listing_close(c);
	if (newest && newest->portals_changed != iscsi_core.portals_changed)
		listing_changed();
	if (!newest) {
		newest = listing_new();
		if (!newest)
			return -ENOMEM;
		if (nlistings > LISTINGS_MAX)
			drop_oldest();
	}
	l = newest;
	listing_cursor_init(c);
	c->end = l->n;
	if (name) {
		const struct scsi_target *t = scsi_target_find_name(name);

		while (c->at < c->end && (!t || l->entry[c->at]->target != t))
			c->at++;
		c->end = MIN(c->at + 1, c->end);
	}
	if (c->at == c->end)
		return 0;
	c->of = l;
	list_add_tail(&l->readers, &c->link);
	return 0;
}

/* Where a peer of ours at @local finds @p. */
static struct sockaddr_storage seen_at(const struct listing_portal *p, const struct sockaddr *local)
{
	struct sockaddr_storage at = p->p.addr;

	if (p->kind == PORTAL_ANY4 && local->sa_family == AF_INET)
		((struct sockaddr_in *)&at)->sin_addr =
			((const struct sockaddr_in *)local)->sin_addr;
	else if (p->kind == PORTAL_ANY6 && local->sa_family == AF_INET6)
		((struct sockaddr_in6 *)&at)->sin6_addr =
			((const struct sockaddr_in6 *)local)->sin6_addr;
	return at;
}

/* Is @t at that portal? */
static bool is_there(const struct scsi_target *t, const struct listing_portal *p,
		     const struct listing_view *view)
{
	struct sockaddr_storage at;

	if (!iscsi_target_any_bound() || !t)
		return true;
	at = seen_at(p, view->local);
	return iscsi_target_is_at(t, (const struct sockaddr *)&at);
}

/* Without an address to name, a target would be taken for one at the portal in use. */
static bool is_anywhere(const struct scsi_target *t, const struct listing *l,
			const struct listing_view *view, int *budget)
{
	bool found = false;

	if (!iscsi_target_any_bound())
		return true;
	*budget -= (int)l->nportals;
	for (uint32_t i = 0; i < l->nportals && !found; i++)
		found = is_there(t, &l->portal[i], view);
	return found;
}

/* The target whose turn it is: may the initiator see it? */
static bool listing_admit(struct listing_cursor *c, const struct listing_view *view, int *budget)
{
	const struct listing *l = c->of;
	struct scsi_target *t = l->entry[c->at]->target;

	*budget -= 1 + (t ? (int)itarget_rules(t) : 0);
	if (!t || !iscsi_acl_allows(t, view->initiator, view->peer) ||
	    !is_anywhere(t, l, view, budget))
		return false;
	c->node = -1;
	if (l->nodes) {
		*budget -= NODE_COST;
		c->node = scsi_target_node(t);
	}
	return true;
}

/* The pair at the cursor, as up to three pieces that follow each other; 0: none, not for it. */
static uint32_t pair_at(const struct listing_cursor *c, const struct listing_view *view,
			const char *ip, const char *piece[3], uint32_t len[3])
{
	const struct listing *l = c->of;
	const struct listing_entry *e = l->entry[c->at];
	const struct listing_portal *p;

	len[1] = len[2] = 0;
	if (!c->pair) {
		piece[0] = e->text;
		return len[0] = e->len;
	}
	/* Initiators that use one portal take the first: it is to be on the target's node (Ren
	 * 2015, chapter 6). */
	p = &l->portal[(c->pair - 1) % l->nportals];
	if (l->nodes && (c->pair <= l->nportals) != (p->node == c->node))
		return 0;
	/* An IPv6 initiator cannot have come through a portal of all IPv4 addresses, nor the other
	 * way round. */
	if (p->kind != PORTAL_ONE && (p->kind == PORTAL_ANY6) != (ip[0] == '['))
		return 0;
	if (!is_there(e->target, p, view))
		return 0;
	piece[0] = "TargetAddress=";
	len[0] = 14;
	if (p->kind != PORTAL_ONE) {
		/* Announced under the address that this initiator reached us by. */
		piece[1] = ip;
		len[1] = (uint32_t)strlen(ip);
	}
	piece[2] = p->text;
	len[2] = p->len;
	return len[0] + len[1] + len[2];
}

/* False: it does not fit, or only in part. */
static bool put_pair(struct listing_cursor *c, const char *const piece[3], const uint32_t len[3],
		     uint32_t total, struct text_out *out, uint32_t max)
{
	uint32_t have = out->len - out->sent, room = max - have, skip = c->off, n;

	n = total - c->off;
	if (n > room) {
		if (have)
			return false;
		n = room;
	}
	c->off += n;
	for (unsigned i = 0; i < 3 && n; i++) {
		uint32_t from = MIN(skip, len[i]), part = MIN(len[i] - from, n);

		skip -= from;
		n -= part;
		if (part && text_out_append(out, piece[i] + from, part))
			return false;
	}
	return c->off == total;
}

static void next_pair(struct listing_cursor *c)
{
	uint32_t pairs = 1 + c->of->nportals * (c->of->nodes ? 2 : 1);

	c->off = 0;
	if (++c->pair < pairs)
		return;
	c->pair = 0;
	c->shown = false;
	c->at++;
}

enum listing_state listing_fill(struct listing_cursor *c, const struct listing_view *view,
				struct text_out *out, uint32_t max, int *budget)
{
	int plenty = INT32_MAX, *left = budget ? budget : &plenty;
	const char *piece[3];
	char ip[ADDRESS_MAX];
	uint32_t len[3], total;

	ASSERT_ON_MAIN();
	if (!c->of)
		return LISTING_OVER;
	listing_address(view->local, ip, sizeof(ip));
	while (c->at < c->end) {
		if (!budget)
			plenty = INT32_MAX;
		if (*left <= 0)
			return LISTING_STEP;
		if (!c->shown && !listing_admit(c, view, left)) {
			c->at++;
			continue;
		}
		c->shown = true;
		--*left;
		total = pair_at(c, view, ip, piece, len);
		if (total && !put_pair(c, piece, len, total, out, max))
			return out->error ? LISTING_NOMEM : LISTING_FULL;
		next_pair(c);
	}
	listing_close(c);
	return LISTING_OVER;
}
