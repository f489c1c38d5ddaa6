/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who may log in to a target, and which of its LUs an initiator sees.
 *
 * Login rules are read and changed on the main loop. LUN masks are also read by event threads when
 * a session attaches, so they are guarded by mask_lock, a leaf: nothing is called while it is held.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "events/bug.h"
#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/itarget.h"
#include "tgtd/iscsi/session.h"

static pthread_mutex_t mask_lock = PTHREAD_MUTEX_INITIALIZER;
static bool daemon_none; /* default-mask=none; atomic */

/* Do initiators without a mask see nothing? Any thread. */
static bool default_none(const struct itarget *it)
{
	uint8_t own = __atomic_load_n(&it->default_mask, __ATOMIC_RELAXED);

	return own == MASK_NONE ||
	       (own == MASK_AS_DAEMON && __atomic_load_n(&daemon_none, __ATOMIC_RELAXED));
}

/* What @iqn sees of it may have changed; NULL: what anybody sees. */
static void tell_scsi(struct itarget *it, const char *iqn);
static void masks_changed(struct itarget *it, const char *iqn);

/* "ALL", "10.0.0.1", "10.0.0.0/8", "fe80::/10", "[::1]" */
static int prefix_parse(const char *text, struct acl_prefix *p)
{
	char buf[64];
	char *slash, *at = buf;
	size_t len = strlen(text);

	memset(p, 0, sizeof(*p));
	if (!strcmp(text, "ALL"))
		return 0;
	if (!len || len >= sizeof(buf))
		return -EINVAL;
	memcpy(buf, text, len + 1);
	slash = strchr(buf, '/');
	if (slash)
		*slash++ = '\0';
	len = strlen(buf);
	if (buf[0] == '[' && buf[len - 1] == ']') {
		buf[len - 1] = '\0';
		at++;
	}
	if (inet_pton(AF_INET, at, p->addr) == 1) {
		p->family = AF_INET;
		p->bits = 32;
	} else if (inet_pton(AF_INET6, at, p->addr) == 1) {
		p->family = AF_INET6;
		p->bits = 128;
	} else {
		return -EINVAL;
	}
	if (slash) {
		char *end;
		unsigned long bits = strtoul(slash, &end, 10);

		if (end == slash || *end || *slash == '-' || *slash == '+' || bits > p->bits)
			return -EINVAL;
		p->bits = (unsigned)bits;
	}
	return 0;
}

static bool prefix_matches(const struct acl_prefix *p, const struct sockaddr *peer)
{
	const uint8_t *addr;
	int family = peer->sa_family;

	if (p->family == AF_UNSPEC)
		return true;
	if (family == AF_INET) {
		addr = (const uint8_t *)&((const struct sockaddr_in *)peer)->sin_addr;
	} else if (family == AF_INET6) {
		const struct in6_addr *a6 = &((const struct sockaddr_in6 *)peer)->sin6_addr;

		addr = a6->s6_addr;
		/* A v4 initiator on a dual-stack portal is still that v4 initiator. */
		if (IN6_IS_ADDR_V4MAPPED(a6)) {
			addr += 12;
			family = AF_INET;
		}
	} else {
		return false;
	}
	if (family != p->family)
		return false;
	for (unsigned bit = 0; bit < p->bits; bit += 8) {
		unsigned n = MIN(p->bits - bit, 8u);
		uint8_t mask = (uint8_t)(0xff << (8 - n));

		if ((addr[bit / 8] ^ p->addr[bit / 8]) & mask)
			return false;
	}
	return true;
}

void acl_init(struct itarget *it)
{
	list_init(&it->acl[ISCSI_ACL_ADDRESS]);
	list_init(&it->acl[ISCSI_ACL_NAME]);
	list_init(&it->masks);
	if (default_none(it))
		tell_scsi(it, NULL);
}

/* scsi_target_set_mask() callback of a target that is being taken down: sessions that are still
 * there are not to see more than before because their rules have gone first. */
static bool nothing_visible(struct scsi_target *t, uint32_t lun, const char *iqn,
			    const char *address, void *arg)
{
	return lun == 0;
}

void acl_fini(struct itarget *it)
{
	struct acl_rule *r, *tmp;
	struct lun_mask *m, *mtmp;

	/* nobody looks at the masks any more */
	scsi_target_set_mask(it->target, NULL, nothing_visible, NULL);
	pthread_mutex_lock(&mask_lock);
	for (int kind = 0; kind < 2; kind++)
		list_for_each_safe(r, tmp, &it->acl[kind], link) {
			list_del(&r->link);
			free(r);
		}
	list_for_each_safe(m, mtmp, &it->masks, link) {
		list_del(&m->link);
		free(m);
	}
	pthread_mutex_unlock(&mask_lock);
}

static struct acl_rule *rule_find(struct itarget *it, enum iscsi_acl_kind kind, const char *text)
{
	struct acl_rule *r;

	list_for_each(r, &it->acl[kind], link)
		if (!strcmp(r->text, text))
			return r;
	return NULL;
}

int iscsi_acl_add(struct scsi_target *t, enum iscsi_acl_kind kind, const char *rule)
{
	struct itarget *it = itarget_find(t);
	struct acl_rule *r;
	struct acl_prefix p = { .family = AF_UNSPEC };
	size_t len = strlen(rule);

	if (!it)
		return -ENOENT;
	if (kind == ISCSI_ACL_ADDRESS ? prefix_parse(rule, &p) : !len || len > ISCSI_NAME_MAX)
		return -EINVAL;
	if (rule_find(it, kind, rule))
		return -EEXIST;
	r = malloc(sizeof(*r) + len + 1);
	if (!r)
		return -ENOMEM;
	r->prefix = p;
	memcpy(r->text, rule, len + 1);
	pthread_mutex_lock(&mask_lock);
	list_add_tail(&it->acl[kind], &r->link);
	pthread_mutex_unlock(&mask_lock);
	it->nrules++;
	if (kind == ISCSI_ACL_NAME) {
		known_add(it, rule);
		masks_changed(it, rule);
	}
	return 0;
}

int iscsi_acl_delete(struct scsi_target *t, enum iscsi_acl_kind kind, const char *rule)
{
	struct itarget *it = itarget_find(t);
	struct acl_rule *r = it ? rule_find(it, kind, rule) : NULL;

	if (!r)
		return -ENOENT;
	pthread_mutex_lock(&mask_lock);
	list_del(&r->link);
	pthread_mutex_unlock(&mask_lock);
	it->nrules--;
	if (kind == ISCSI_ACL_NAME) {
		known_drop(it, r->text);
		masks_changed(it, r->text);
	}
	free(r);
	return 0;
}

unsigned itarget_rules(const struct scsi_target *t)
{
	const struct itarget *it = itarget_find(t);

	return it ? it->nrules : 0;
}

void iscsi_acl_each(struct scsi_target *t, enum iscsi_acl_kind kind,
		    void (*fn)(const char *rule, void *arg), void *arg)
{
	struct itarget *it = itarget_find(t);
	struct acl_rule *r;

	if (!it)
		return;
	list_for_each(r, &it->acl[kind], link)
		fn(r->text, arg);
}

static bool (*also)(struct scsi_target *t, const char *iqn);

void iscsi_acl_also(bool (*allows)(struct scsi_target *t, const char *iqn))
{
	also = allows;
}

bool iscsi_acl_allows(struct scsi_target *t, const char *iqn, const struct sockaddr *peer)
{
	struct itarget *it = itarget_find(t);
	struct list *addresses, *names;
	bool address_ok = false, name_ok = false;
	struct acl_rule *r;

	if (!it)
		return false;
	addresses = &it->acl[ISCSI_ACL_ADDRESS];
	names = &it->acl[ISCSI_ACL_NAME];
	list_for_each(r, addresses, link)
		if (prefix_matches(&r->prefix, peer))
			address_ok = true;
	list_for_each(r, names, link)
		if (!strcmp(r->text, iqn))
			name_ok = true;
	if (list_empty(addresses) && list_empty(names))
		return false;
	if (also && !also(t, iqn))
		return false;
	return (list_empty(addresses) || address_ok) && (list_empty(names) || name_ok);
}

/* scsi_set_access() callback, for third-party copy: could this session's initiator log in to @t
 * now, as it is? The rules of login.c, with what the session has proven instead of a new proof. */
static bool may_log_in(struct scsi_target *t, const struct scsi_nexus *n)
{
	const struct iscsi_session *s = n->host;
	struct itarget *it = itarget_find(t);
	const struct account_set *set;
	const char *user;

	ASSERT_ON_MAIN();
	if (!it || it->redirect_address[0] ||
	    !iscsi_acl_allows(t, s->initiator, (const struct sockaddr *)&s->peer))
		return false;
	set = &it->accounts;
	/* where nobody is asked for an account, nobody proves one */
	user = set->nincoming ? s->user : "";
	if (!iscsi_account_may_use(t, user, s->initiator) ||
	    iscsi_owner_other(t, s->initiator, user))
		return false;
	if (!set->nincoming)
		return true;
	for (unsigned i = 0; i < set->nincoming; i++)
		if (s->user[0] && !strcmp(set->incoming[i]->user, s->user))
			return true;
	return false;
}

void iscsi_access_start(void)
{
	scsi_set_access(iscsi_core.main, may_log_in);
}

/* ---- LUN masks ------------------------------------------------------------------------------- */

static struct lun_mask *mask_find(struct itarget *it, const char *iqn)
{
	struct lun_mask *m;

	list_for_each(m, &it->masks, link)
		if (iscsi_same_name(m->iqn, iqn))
			return m;
	return NULL;
}

/* Is it bound by its name? mask_lock is held, or main asks. */
static bool is_bound_name(struct itarget *it, const char *iqn)
{
	struct acl_rule *r;

	list_for_each(r, &it->acl[ISCSI_ACL_NAME], link)
		if (iscsi_same_name(r->text, iqn))
			return true;
	return false;
}

/* scsi_target_set_mask() callback; any event thread. The controller (LUN 0) is always visible, so
 * that an initiator can ask REPORT LUNS. */
static bool visible(struct scsi_target *t, uint32_t lun, const char *iqn, const char *address,
		    void *arg)
{
	struct itarget *it = arg;
	struct lun_mask *m;
	bool ok;

	if (lun == 0)
		return true;
	pthread_mutex_lock(&mask_lock);
	m = mask_find(it, iqn);
	ok = m || !default_none(it) || is_bound_name(it, iqn);
	if (m) {
		ok = false;
		for (unsigned i = 0; i < m->nranges; i++)
			if (lun >= m->range[i].from && lun <= m->range[i].to)
				ok = true;
	}
	pthread_mutex_unlock(&mask_lock);
	return ok;
}

static void tell_scsi(struct itarget *it, const char *iqn)
{
	bool open = list_empty(&it->masks) && !default_none(it);

	scsi_target_set_mask(it->target, iqn, open ? NULL : visible, it);
}

static void masks_changed(struct itarget *it, const char *iqn)
{
	if (default_none(it))
		tell_scsi(it, iqn);
}

int acl_set_default(struct scsi_target *t, const char *value)
{
	struct itarget *it = t ? itarget_find(t) : NULL;
	enum default_mask to;

	if (!strcmp(value, "all"))
		to = MASK_ALL;
	else if (!strcmp(value, "none"))
		to = MASK_NONE;
	else if (!*value)
		to = MASK_AS_DAEMON;
	else
		return -EINVAL;
	if (!it)
		return t ? -ENOENT : 0;
	__atomic_store_n(&it->default_mask, (uint8_t)to, __ATOMIC_RELAXED);
	tell_scsi(it, NULL);
	return 0;
}

void iscsi_set_default_mask(bool all)
{
	struct itarget *it;

	__atomic_store_n(&daemon_none, !all, __ATOMIC_RELAXED);
	for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t)) {
		it = itarget_find(t);
		if (it && it->default_mask == MASK_AS_DAEMON)
			tell_scsi(it, NULL);
	}
}

bool iscsi_default_mask(void)
{
	return !daemon_none;
}

/* "1,3-5" into @m (NULL: only count). Returns the number of ranges or -EINVAL. */
static int ranges_parse(const char *text, struct lun_mask *m)
{
	int n = 0;

	while (*text) {
		char *end;
		unsigned long from = strtoul(text, &end, 10), to = from;

		if (end == text || text[0] == '-' || text[0] == '+')
			return -EINVAL;
		if (*end == '-') {
			text = end + 1;
			to = strtoul(text, &end, 10);
			if (end == text || text[0] == '-' || text[0] == '+')
				return -EINVAL;
		}
		if ((*end && *end != ',') || from > to || to > SCSI_MAX_LUN || n == 1024)
			return -EINVAL;
		if (m) {
			m->range[n].from = (uint32_t)from;
			m->range[n].to = (uint32_t)to;
		}
		n++;
		text = *end ? end + 1 : end;
	}
	return n;
}

int iscsi_acl_set_luns(struct scsi_target *t, const char *iqn, const char *luns)
{
	struct itarget *it = itarget_find(t);
	struct lun_mask *old, *m = NULL;

	if (!it)
		return -ENOENT;
	if (!*iqn || strlen(iqn) > ISCSI_NAME_MAX)
		return -EINVAL;
	if (luns) {
		int n = ranges_parse(luns, NULL);

		if (n < 0)
			return n;
		m = calloc(1, sizeof(*m) + (size_t)n * sizeof(m->range[0]));
		if (!m)
			return -ENOMEM;
		strcpy(m->iqn, iqn);
		m->nranges = (unsigned)n;
		n = ranges_parse(luns, m);
		ASSERT(n == (int)m->nranges);
	}
	pthread_mutex_lock(&mask_lock);
	old = mask_find(it, iqn);
	if (old)
		list_del(&old->link);
	if (m)
		list_add_tail(&it->masks, &m->link);
	pthread_mutex_unlock(&mask_lock);
	free(old);
	tell_scsi(it, iqn);
	return 0;
}
