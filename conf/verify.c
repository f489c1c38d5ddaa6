/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Finds in a configuration what the daemon would refuse, before anything is changed. */
#include <arpa/inet.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <strings.h>

#include "conf/limit.h"
#include "conf/model.h"
#include "events/bug.h"

struct verifier {
	void (*complain)(void *arg, const char *text);
	void *arg;
	unsigned faults;
};

static void fault(struct verifier *v, const struct conf_pos *pos, const char *fmt, ...)
	printf_like(3, 4);
static void fault(struct verifier *v, const struct conf_pos *pos, const char *fmt, ...)
{
	char text[1024];
	va_list ap;
	int n = 0;

	if (pos && pos->file)
		n = snprintf(text, sizeof(text) / 2, "%s:%u: ", pos->file, pos->line);
	if (n < 0 || (size_t)n >= sizeof(text) / 2)
		n = 0;
	va_start(ap, fmt);
	vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
	va_end(ap);
	for (char *s = text; *s; s++)
		if (iscntrl((unsigned char)*s))
			*s = '?'; /* as parse_fail() */
	v->faults++;
	v->complain(v->arg, text);
}

static bool verify_is_one_of(const char *value, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(*list, value))
			return true;
	return false;
}

static bool number_in(const char *text, unsigned long long min, unsigned long long max)
{
	char *end;
	unsigned long long v;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	v = strtoull(text, &end, 0);
	return !*end && !errno && v >= min && v <= max;
}

/* ---- LU options ------------------------------------------------------------------------------ */

static const char *const on_off[] = { "on", "off", NULL };
static const char *const write_caches[] = { "on", "off", "mirror", "through", NULL };
static const char *const yes_no[] = { "yes", "no", NULL };
static const char *const flags01[] = { "0", "1", NULL };
static const char *const bsoflags[] = { "sync", "direct", "sync:direct", "direct:sync", NULL };
static const char *const block_sizes[] = { "512", "4096", NULL };
static const char *const disk_only[] = { "disk", NULL };
static const char *const bs_types[] = { "rdwr", "aio", "ram", "null", "nbd", "rbd", NULL };

/* What an option's value must look like; conf_says() says it. */
static const struct option_rule {
	const char *key;
	const char *const *choice;   /* or */
	unsigned long long min, max; /* a number */
} option_rules[] = {
	{ "write-cache", write_caches, 0, 0 },
	{ "allow-in-use", yes_no, 0, 0 },
	{ "bsoflags", bsoflags, 0, 0 },
	{ "block-size", block_sizes, 0, 0 },
	{ "device-type", disk_only, 0, 0 },
	{ "bs-type", bs_types, 0, 0 },
	{ "sense_format", flags01, 0, 0 },
	{ "removable", flags01, 0, 0 },
	{ "online", flags01, 0, 0 },
	{ "readonly", flags01, 0, 0 },
	{ "thin_provisioning", flags01, 0, 0 },
	{ "lbppbe", NULL, 0, 15 },
	{ "la_lba", NULL, 0, 16383 },
	{ "optimal_xfer_gran", NULL, 0, 65535 },
	{ "optimal_xfer_len", NULL, 0, UINT32_MAX },
	{ "sanitize_rate", NULL, 0, 1 << 20 },
	{ "atomic_unit", NULL, 0, 1 << 20 },
	{ "rotation_rate", NULL, 0, 65534 },
	{ "threads", NULL, 1, 64 },
};

static void verify_option(struct verifier *v, const struct conf_kv *kv)
{
	for (size_t i = 0; i < ARRAY_SIZE(option_rules); i++) {
		const struct option_rule *r = &option_rules[i];

		if (strcmp(r->key, kv->key))
			continue;
		if (r->choice ? !verify_is_one_of(kv->value, r->choice) :
				!number_in(kv->value, r->min, r->max))
			fault(v, &kv->pos, "%s is %s, not '%s'", kv->key, conf_says(kv->key),
			      kv->value);
		return;
	}
	if (conf_limit_known(kv->key) && !conf_limit_ok(kv->key, kv->value)) {
		fault(v, &kv->pos, "%s is %s, not '%s'", kv->key, conf_says(kv->key), kv->value);
		return;
	}
	/* tgtadm separates parameters by commas: one inside a value cannot be said */
	if (conf_kind(kv->key) == CONF_PARAM && strchr(kv->value, ','))
		fault(v, &kv->pos, "%s must not contain a comma", kv->key);
	if (!strcmp(kv->key, "params") && !strchr(kv->value, '='))
		fault(v, &kv->pos, "params is name=value[,name=value...], not '%s'", kv->value);
	/* said twice, it would be told from the daemon's by one and changed by the other */
	for (const char *pair = strcmp(kv->key, "params") ? NULL : kv->value; pair;
	     pair = strchr(pair, ',')) {
		pair += *pair == ',';
		if (!strncmp(pair, "write_cache", 11) &&
		    (pair[11] == '=' || pair[11] == ',' || !pair[11]))
			fault(v, &kv->pos,
			      "params: the write cache is set by write-cache on, off, mirror or "
			      "through");
	}
}

/* Mirrors are of units of a group, whose blocks are cached. */
static void verify_mirror(struct verifier *v, const struct conf_lu *lu)
{
	const char *word = conf_get(&lu->options, "write-cache");
	const char *type = conf_get(&lu->options, "bs-type");
	const char *opts = conf_get(&lu->options, "bsopts");
	const char *flags = conf_get(&lu->options, "bsoflags");

	if (!word || strcmp(word, "mirror") != 0)
		return;
	if (!type || strcmp(type, "rbd") != 0 || !opts || !strstr(opts, "group="))
		fault(v, &lu->pos,
		      "write-cache mirror: %s is no unit of a group of gateways (bs-type rbd, bsopts "
		      "group=)",
		      lu->path);
	else if (strstr(opts, "cache=none") || strstr(opts, "cache=write-through") ||
		 (flags && strstr(flags, "sync")))
		fault(v, &lu->pos,
		      "write-cache mirror: %s has no write-back cache (bsopts, bsoflags)",
		      lu->path);
}

static void verify_lu(struct verifier *v, const struct conf_target *t, const struct conf_lu *lu)
{
	struct conf_lu *other;
	struct conf_kv *kv;

	if (!lu->lun || lu->lun > CONF_MAX_LUN)
		fault(v, &lu->pos, "target %s: LUN %u is not 1 to %u", t->name, lu->lun,
		      CONF_MAX_LUN);
	for (other = list_entry(lu->link.next, struct conf_lu, link); &other->link != &t->lus;
	     other = list_entry(other->link.next, struct conf_lu, link))
		if (other->lun == lu->lun)
			fault(v, &other->pos, "target %s: LUN %u is given to %s and to %s", t->name,
			      lu->lun, lu->path, other->path);
	list_for_each(kv, &lu->options, link)
		verify_option(v, kv);
	verify_mirror(v, lu);
}

/* ---- targets --------------------------------------------------------------------------------- */

/* ALL, an address, or address/prefix, IPv4 or IPv6; the address of IPv6 may be in brackets. */
static bool address_ok(const char *text)
{
	char host[INET6_ADDRSTRLEN + 2];
	unsigned char addr[16];
	size_t n = strcspn(text, "/");
	bool v6 = strchr(text, ':'), brackets = n > 1 && text[0] == '[' && text[n - 1] == ']';

	if (!strcmp(text, "ALL"))
		return true;
	if (n >= sizeof(host))
		return false;
	memcpy(host, text + brackets, n - 2 * brackets);
	host[n - 2 * brackets] = 0;
	if (inet_pton(v6 ? AF_INET6 : AF_INET, host, addr) != 1)
		return false;
	return !text[n] || number_in(text + n + 1, 0, v6 ? 128 : 32);
}

static bool verify_name_ok(const char *name)
{
	size_t n = 0;

	for (; name[n]; n++)
		if (!isalnum((unsigned char)name[n]) && !strchr(":.-", name[n]))
			return false;
	return n && n <= CONF_NAME_MAX;
}

static bool luns_ok(const char *text)
{
	do {
		char *end;
		unsigned long a, b;

		if (!isdigit((unsigned char)*text))
			return false;
		a = b = strtoul(text, &end, 10);
		if (*end == '-') {
			if (!isdigit((unsigned char)end[1]))
				return false;
			b = strtoul(end + 1, &end, 10);
		}
		if ((*end && *end != ',') || a > b || b > CONF_MAX_LUN)
			return false;
		text = *end ? end + 1 : NULL;
	} while (text);
	return true;
}

/* What would not survive being written down and read again. */
static bool plain(const char *text)
{
	size_t n = strlen(text);

	for (size_t i = 0; i < n; i++)
		if (iscntrl((unsigned char)text[i]) || text[i] == '"')
			return false;
	return !n || (text[0] != ' ' && text[n - 1] != ' ');
}

/* The names that a user is tied to, as the daemon takes them; and no more than it takes. */
static void verify_ties(struct verifier *v, const struct conf_user *u, const char *of,
			unsigned *ties)
{
	struct conf_kv *name;

	list_for_each(name, &u->names, link) {
		if (strpbrk(name->key, " \t,\"") || !plain(name->key) ||
		    strlen(name->key) > CONF_NAME_MAX)
			fault(v, &name->pos, "bind-user: '%s' is no initiator name", name->key);
		if (++*ties == CONF_MAX_TIES + 1)
			fault(v, &name->pos, "%s: more than %u lines of bind-user", of,
			      CONF_MAX_TIES);
	}
}

static void verify_users(struct verifier *v, const struct list *users, const char *of)
{
	struct conf_user *u;
	unsigned outgoing = 0, ties = 0;

	list_for_each(u, users, link) {
		verify_ties(v, u, of, &ties);
		if (*u->user && plain(u->user) && !u->password && !u->file &&
		    !strcmp(of, "account"))
			continue; /* it is left alone */
		if (!*u->user || !u->password || !*u->password)
			fault(v, &u->pos, "%s: a user needs a name and a password", of);
		else if (u->file && !plain(u->file))
			fault(v, &u->pos, "%s: the name of user %s's file has quotes or blanks", of,
			      u->user);
		else if (!plain(u->user) || !plain(u->password))
			fault(v, &u->pos,
			      "%s: a user's name and password have no control characters, no quotes and no blanks at their ends",
			      of);
		else if (!strcmp(u->password, CONF_NO_PASSWORD))
			fault(v, &u->pos, "%s: the password of user %s is still to be filled in",
			      of, u->user);
		outgoing += u->outgoing;
		if (u->outgoing && outgoing == 2)
			fault(v, &u->pos, "%s: only one outgoing user is possible", of);
	}
}

static void verify_limits(struct verifier *v, const struct conf_target *t)
{
	struct conf_kv *kv;
	unsigned n = 0;
	char why[200];

	list_for_each(kv, &t->limits, link) {
		if (strpbrk(kv->key, " \t,\"") || !plain(kv->key) ||
		    strlen(kv->key) > CONF_NAME_MAX)
			fault(v, &kv->pos, "initiator-limit: '%s' is no initiator name", kv->key);
		if (conf_limits_wrong(kv->value, why, sizeof(why)))
			fault(v, &kv->pos, "initiator-limit: %s", why);
		if (++n == CONF_MAX_LIMITS + 1)
			fault(v, &kv->pos, "%s: more than %u lines of initiator-limit", t->name,
			      CONF_MAX_LIMITS);
	}
}

static void verify_target(struct verifier *v, const struct conf *c, const struct conf_target *t)
{
	struct conf_target *other;
	struct conf_rule *r;
	struct conf_kv *kv;
	struct conf_lu *lu;

	if (!verify_name_ok(t->name))
		fault(v, &t->pos, "target '%s': a name is 1 to %d letters, digits, ':', '.', '-'",
		      t->name, CONF_NAME_MAX);
	if (strcmp(t->driver, "iscsi") && strcmp(t->driver, "iser"))
		fault(v, &t->driver_pos, "target %s: driver is iscsi or iser, not '%s'", t->name,
		      t->driver);
	for (other = list_entry(t->link.next, struct conf_target, link);
	     t->tid && &other->link != &c->targets;
	     other = list_entry(other->link.next, struct conf_target, link))
		if (other->tid == t->tid)
			fault(v, &other->pos, "targets %s and %s have the same controller_tid %u",
			      t->name, other->name, t->tid);
	list_for_each(lu, &t->lus, link)
		verify_lu(v, t, lu);
	if (t->nobody && !list_empty(&t->rules))
		fault(v, &t->pos, "target %s: initiator-address " CONF_NOBODY " beside others",
		      t->name);
	list_for_each(r, &t->rules, link) {
		if (!r->is_name && !address_ok(r->text))
			fault(v, &r->pos,
			      "initiator-address is ALL, an address or a network, not '%s'",
			      r->text);
		if (r->luns && !luns_ok(r->luns))
			fault(v, &r->pos, "expose takes LUNs such as 1,3-5, not '%s'", r->luns);
	}
	list_for_each(kv, &t->keys, link)
		if (!strcmp(kv->key, "state") && strcmp(kv->value, "ready") &&
		    strcmp(kv->value, "offline"))
			fault(v, &kv->pos, "state is ready or offline, not '%s'", kv->value);
	verify_users(v, &t->users, t->name);
	verify_limits(v, t);
}

/* One user, one password: accounts belong to the daemon, not to a target. */
static void verify_accounts(struct verifier *v, const struct conf *c)
{
	const struct conf_target *t;
	const struct conf_user **all, *u;
	size_t n = 0, i;

	list_for_each(u, &c->users, link)
		n++;
	list_for_each(u, &c->loose, link)
		n++;
	list_for_each(t, &c->targets, link)
		list_for_each(u, &t->users, link)
			n++;
	all = calloc(n + 1, sizeof(*all));
	if (!all)
		return;
	n = 0;
	list_for_each(t, &c->targets, link)
		list_for_each(u, &t->users, link)
			all[n++] = u;
	list_for_each(u, &c->users, link)
		all[n++] = u;
	list_for_each(u, &c->loose, link)
		all[n++] = u;
	for (i = 0; i < n; i++)
		for (size_t j = i + 1; j < n && n <= 4096; j++)
			if (all[i]->password && all[j]->password &&
			    !strcmp(all[i]->user, all[j]->user) &&
			    strcmp(all[i]->password, all[j]->password)) {
				fault(v, &all[j]->pos, "user %s has two passwords", all[j]->user);
				break;
			}
	free(all);
}

/* ---- the daemon ------------------------------------------------------------------------------ */

/* A number of bytes, with k or m (the cache takes larger ones, that no request has). */
static bool bytes_ok(const char *value)
{
	size_t n = strspn(value, "0123456789");

	return n && n <= 10 &&
	       (!value[n] || (strchr("kKmM", value[n]) && !value[n + 1]));
}

/* The same, of what may be larger. */
static bool cache_size_ok(const char *value)
{
	size_t n = strspn(value, "0123456789");

	return n && n <= 15 && (!value[n] || (strchr("kKmMgGtT", value[n]) && !value[n + 1]));
}

/* Those that are one of some words. */
static const struct setting_rule {
	const char *key;
	bool any_case;
	const char *const *choice;
} setting_rules[] = {
	{ "iSNS", true, on_off },
	{ "iSNSAccessControl", true, on_off },
	{ "debug", true, on_off },
	{ "latency_initiators", true, on_off },
	{ "weak_secrets", false, (const char *const[]){ "warn", "refuse", NULL } },
	{ "default-mask", false, (const char *const[]){ "all", "none", NULL } },
	{ "state", false, (const char *const[]){ "ready", "offline", NULL } },
	{ "stopped-driver", false, (const char *const[]){ "iscsi", "iser", NULL } },
	{ "cache-affinity", false,
	  (const char *const[]){ "auto", "forward", "send", "inline", "off", NULL } },
};

static bool setting_ok(const struct conf_kv *kv)
{
	for (size_t i = 0; i < ARRAY_SIZE(setting_rules); i++) {
		const struct setting_rule *r = &setting_rules[i];

		if (strcmp(r->key, kv->key))
			continue;
		for (const char *const *word = r->choice; *word; word++)
			if (!(r->any_case ? strcasecmp : strcmp)(*word, kv->value))
				return true;
		return false;
	}
	if (!strcmp(kv->key, "iSNSServerPort"))
		return number_in(kv->value, 1, 65535);
	if (!strcmp(kv->key, "cache-size"))
		return cache_size_ok(kv->value);
	return strcmp(kv->key, "cache-threshold") || bytes_ok(kv->value);
}

static void verify_setting(struct verifier *v, const struct conf *c, const struct conf_kv *kv)
{
	struct conf_target *t;

	/* On, Off, an address or a port: what else there is would not survive being written
	 * down. */
	if (kv->value[strspn(
		    kv->value,
		    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.:[]-_")])
		fault(v, &kv->pos, "%s has characters in it that no such value has: '%s'", kv->key,
		      kv->value);
	if (!setting_ok(kv))
		fault(v, &kv->pos, "%s is %s, not '%s'", kv->key, conf_says(kv->key), kv->value);
	if (!strcmp(kv->key, "stopped-driver"))
		list_for_each(t, &c->targets, link)
			if (!strcmp(t->driver, kv->value))
				fault(v, &kv->pos, "stopped-driver %s: target %s uses it",
				      kv->value, t->name);
}

unsigned conf_verify(const struct conf *c, void (*complain)(void *arg, const char *text), void *arg)
{
	struct verifier v = { complain, arg, 0 };
	const struct conf_target *t;
	struct conf_kv *kv;

	ASSERT(complain && conf_is_resolved(c));
	if (strcmp(c->default_driver, "iscsi") && strcmp(c->default_driver, "iser"))
		fault(&v, &c->default_driver_pos, "default-driver is iscsi or iser, not '%s'",
		      c->default_driver);
	list_for_each(kv, &c->system, link)
		verify_setting(&v, c, kv);
	if (c->no_portal)
		list_for_each(kv, &c->portals, link)
			fault(&v, &kv->pos, "portal " CONF_NONE " beside others");
	verify_users(&v, &c->users, "discovery");
	verify_users(&v, &c->loose, "account");
	list_for_each(t, &c->targets, link)
		verify_target(&v, c, t);
	verify_accounts(&v, c);
	return v.faults;
}
