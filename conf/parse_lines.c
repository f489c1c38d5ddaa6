/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A line of targets.conf, `key value`, and what it becomes of the model. */
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>

#include "conf/parse_int.h"
#include "conf/portal.h"
#include "conf/secret_file.h"
#include "events/bug.h"
#include "events/secret.h"

int parse_fail(struct parser *p, const char *fmt, ...)
{
	va_list ap;
	int n = 0;

	if (p->pos.file && p->pos.line)
		n = snprintf(p->err->text, sizeof(p->err->text), "%s:%u: ", p->pos.file,
			     p->pos.line);
	else if (p->pos.file) /* of the file as a whole */
		n = snprintf(p->err->text, sizeof(p->err->text), "%s: ", p->pos.file);
	if (n < 0 || (size_t)n >= sizeof(p->err->text))
		n = 0;
	va_start(ap, fmt);
	vsnprintf(p->err->text + n, sizeof(p->err->text) - (size_t)n, fmt, ap);
	va_end(ap);
	/* a file that is no text must not command the terminal */
	for (char *s = p->err->text; *s; s++)
		if (iscntrl((unsigned char)*s))
			*s = '?';
	return -EINVAL;
}

int parse_unknown(struct parser *p, const char *word, enum conf_place place)
{
	char hint[160];

	conf_hint(word, place, hint, sizeof(hint));
	return parse_fail(p, "unknown option '%s' %s%s", word,
			  place == CONF_IN_FILE	  ? "outside of targets" :
			  place == CONF_IN_TARGET ? "in a target" :
			  place == CONF_IN_CLUSTER ? "in a cluster" :
						     "in a store",
			  hint);
}

char *parse_trim(char *s)
{
	while (parse_blank(*s))
		s++;
	size_t n = strlen(s);

	/* an escaped blank would be odd; none is kept */
	while (n && parse_blank(s[n - 1]))
		s[--n] = 0;
	return s;
}

bool parse_number(const char *text, uint32_t max, uint32_t *out)
{
	char *end;
	unsigned long v;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	v = strtoul(text, &end, 0);
	if (*end || errno || v > max)
		return false;
	*out = (uint32_t)v;
	return true;
}

/* ---- directives ------------------------------------------------------------------------------ */

bool parse_unquote(char **value)
{
	size_t n = strlen(*value);

	if (n < 2 || (**value != '"' && **value != '\'') || (*value)[n - 1] != **value)
		return false;
	(*value)[n - 1] = 0;
	++*value;
	return true;
}

/* Neither there already, nor too many. What the daemon has is taken, however much it is. */
static int user_is_new(struct parser *p, const struct list *to, const char *user, bool outgoing)
{
	const struct conf_user *u;
	unsigned n = 0;

	list_for_each(u, to, link) {
		if (u->outgoing == outgoing && !strcmp(u->user, user))
			return parse_fail(p, "user %s is given twice", user);
		n++;
	}
	return n < CONF_MAX_USERS || p->closed ?
		       0 :
		       parse_fail(p, "more than %u users", CONF_MAX_USERS);
}

/* "user file": the password is in the file. What the daemon says of its own is not looked at. */
static int user_file_line(struct parser *p, struct list *to, char *value, bool outgoing)
{
	size_t n = strcspn(value, " \t");
	char *file = value + n, *password = NULL, err[400];
	struct conf_user *u;
	bool exposed = false;

	if (*file) {
		*file = 0;
		file = parse_trim(file + 1);
		parse_unquote(&file);
	}
	if (*file != '/')
		return parse_fail(p,
				  "expected: a user, and the file of the password from the root");
	if (user_is_new(p, to, value, outgoing))
		return -EINVAL;
	if (!p->closed && conf_read_password(file, false, &password, &exposed, err, sizeof(err)))
		return parse_fail(p, "%s", err);
	u = conf_add_user(p->c, to, value, password, outgoing);
	secret_strfree(password);
	u->file = conf_strdup(p->c, file);
	u->exposed = exposed;
	u->pos = p->pos;
	return 0;
}

/* "user password". tgt's password went through a shell, which took quotes off. */
static int user_line(struct parser *p, struct list *to, char *value, bool outgoing)
{
	size_t n = strcspn(value, " \t");
	struct conf_user *u;
	char *password;
	bool quoted;

	if (!value[n])
		return parse_fail(p, "a user needs a name and a password: '%s' has no second word",
				  value);
	value[n] = 0;
	if (user_is_new(p, to, value, outgoing))
		return -EINVAL;
	password = parse_trim(value + n + 1);
	quoted = parse_unquote(&password);
	u = conf_add_user(p->c, to, value, password, outgoing);
	u->many_words = !quoted && strpbrk(password, " \t");
	u->pos = p->pos;
	return 0;
}

int parse_lu_add(struct parser *p, char *path, bool direct, struct conf_lu **out)
{
	if (!*path)
		return parse_fail(p, "a store needs a path");
	if (p->c->nlus >= CONF_MAX_LUS)
		return parse_fail(p, "more than %u logical units", CONF_MAX_LUS);
	struct conf_lu *lu = conf_add_lu(p->c, p->target, path);

	lu->direct = direct;
	lu->pos = p->pos;
	if (out)
		*out = lu;
	return 0;
}

int parse_lu_option(struct parser *p, struct list *to, const char *key, char *value)
{
	uint32_t lun;

	if (!strcmp(key, "lun")) {
		if (!parse_number(value, CONF_MAX_LUN, &lun) || !lun)
			return parse_fail(p, "lun is 1 to %u, not '%s'", CONF_MAX_LUN, value);
		if (p->lu) {
			if (p->lu->has_lun)
				return parse_fail(p, "lun is given twice");
			p->lu->lun = lun;
			p->lu->has_lun = true;
			return 0;
		}
	}
	if (conf_kind(key) != CONF_MULTI && conf_get(to, key))
		return parse_fail(p, "%s is given twice", key);
	conf_add_kv(p->c, to, key, value)->pos = p->pos;
	return 0;
}

/* An account that the daemon may have: its password is not said, and it is left alone. */
static int known_account_line(struct parser *p, char *value)
{
	parse_unquote(&value);
	if (user_is_new(p, &p->c->loose, value, false))
		return -EINVAL;
	conf_add_user(p->c, &p->c->loose, value, NULL, false)->pos = p->pos;
	return 0;
}

/* expose <initiator name> <luns> */
static int expose_line(struct parser *p, char *value)
{
	size_t n = strcspn(value, " \t");
	struct conf_rule *r;

	if (!value[n])
		return parse_fail(p, "expected: expose <initiator name> <luns>");
	value[n] = 0;
	list_for_each(r, &p->target->rules, link) {
		if (!r->is_name || strcmp(r->text, value))
			continue;
		if (r->luns)
			return parse_fail(p, "what %s sees is given twice", value);
		r->luns = conf_strdup(p->c, parse_trim(value + n + 1));
		return 0;
	}
	return parse_fail(p, "expose needs an initiator-name %s before it", value);
}

/* initiator-limit <initiator name> <limits> */
static int limit_line(struct parser *p, char *value)
{
	size_t n = strcspn(value, " \t");

	if (!value[n])
		return parse_fail(p, "expected: initiator-limit <initiator name> <name=value,...>");
	value[n] = 0;
	if (conf_get_name(&p->target->limits, value))
		return parse_fail(p, "the limits of %s are given twice", value);
	conf_add_kv(p->c, &p->target->limits, value, parse_trim(value + n + 1))->pos = p->pos;
	return 0;
}

/* bind-user <user> <initiator name> */
static int tie_line(struct parser *p, char *value)
{
	size_t n = strcspn(value, " \t");
	const char *name;
	struct conf_user *u;

	if (!value[n])
		return parse_fail(p, "expected: bind-user <user> <initiator name>");
	value[n] = 0;
	name = parse_trim(value + n + 1);
	list_for_each(u, &p->target->users, link) {
		if (u->outgoing || strcmp(u->user, value))
			continue;
		if (conf_get_name(&u->names, name))
			return parse_fail(p, "bind-user %s %s is given twice", value, name);
		conf_add_kv(p->c, &u->names, name, "")->pos = p->pos;
		return 0;
	}
	return parse_fail(p, "bind-user needs an incominguser %s before it", value);
}

static int rule_line(struct parser *p, const char *value, bool is_name)
{
	struct conf_rule *r;
	unsigned n = 0;

	if (!is_name && !strcmp(value, CONF_NOBODY)) {
		p->target->nobody = true;
		return 0;
	}
	list_for_each(r, &p->target->rules, link) {
		if (r->is_name == is_name && !strcmp(r->text, value))
			return parse_fail(p, "%s is given twice", value);
		n++;
	}
	if (n >= CONF_MAX_RULES && !p->closed)
		return parse_fail(p, "target %s: more than %u addresses and names", p->target->name,
				  CONF_MAX_RULES);
	conf_add_rule(p->c, p->target, value, is_name)->pos = p->pos;
	return 0;
}

int parse_target_line(struct parser *p, const char *key, char *value)
{
	struct conf_target *t = p->target;
	bool outgoing = !strcmp(key, "outgoinguser");

	if (!strcmp(key, "backing-store"))
		return parse_lu_add(p, value, false, NULL);
	if (!strcmp(key, "direct-store"))
		return parse_lu_add(p, value, true, NULL);
	if (!strcmp(key, "initiator-address") || !strcmp(key, "initiator-name"))
		return rule_line(p, value, !strcmp(key, "initiator-name"));
	if (!strcmp(key, "expose"))
		return expose_line(p, value);
	if (!strcmp(key, "initiator-limit"))
		return limit_line(p, value);
	if (!strcmp(key, "bind-user"))
		return tie_line(p, value);
	if (outgoing || !strcmp(key, "incominguser"))
		return user_line(p, &t->users, value, outgoing);
	if (!strcmp(key, "incominguser-file") || !strcmp(key, "outgoinguser-file"))
		return user_file_line(p, &t->users, value, *key == 'o');
	if (!strcmp(key, "driver")) {
		if (t->driver)
			return parse_fail(p, "driver is given twice");
		t->driver = conf_strdup(p->c, value);
		t->driver_pos = p->pos;
		return 0;
	}
	if (!strcmp(key, "controller_tid")) {
		if (t->tid)
			return parse_fail(p, "controller_tid is given twice");
		if (!parse_number(value, INT32_MAX, &t->tid) || !t->tid)
			return parse_fail(p, "controller_tid is a number above 0, not '%s'", value);
		return 0;
	}
	switch (conf_kind(key)) {
	case CONF_UNKNOWN:
	case CONF_SYSTEM:
		return parse_unknown(p, key, CONF_IN_TARGET);
	case CONF_KEY:
		if (conf_get(&t->keys, key))
			return parse_fail(p, "%s is given twice", key);
		conf_add_kv(p->c, &t->keys, key, value)->pos = p->pos;
		return 0;
	default:
		return parse_lu_option(p, &t->options, key, value);
	}
}

/* portal <address>[:<port>][,<tag>], or NONE */
static int portal_line(struct parser *p, const char *value)
{
	char names[2][CONF_PORTAL_LEN];
	struct conf_kv *kv;
	unsigned n;

	if (!strcmp(value, CONF_NONE)) {
		p->c->no_portal = true;
		return 0;
	}
	n = conf_portal_names(value, names);
	if (!n)
		return parse_fail(p, "portal is %s, not '%s'", conf_says("portal"), value);
	list_for_each(kv, &p->c->portals, link)
		for (unsigned i = 0; i < n; i++)
			if (conf_portal_same_address(kv->key, names[i]))
				return parse_fail(p, "the portal at %.*s is given twice",
						  (int)strcspn(names[i], ","), names[i]);
	for (unsigned i = 0; i < n; i++)
		conf_add_kv(p->c, &p->c->portals, names[i], value)->pos = p->pos;
	return 0;
}

int parse_global_line(struct parser *p, const char *key, char *value)
{
	struct conf *c = p->c;
	uint32_t port;

	if (!strcmp(key, "default-driver")) {
		if (c->default_driver)
			return parse_fail(p, "default-driver is given twice");
		c->default_driver = conf_strdup(c, value);
		c->default_driver_pos = p->pos;
		return 0;
	}
	if (!strcmp(key, "ignore-errors")) {
		if (strcmp(value, "yes") && strcmp(value, "no"))
			return parse_fail(p, "ignore-errors is yes or no, not '%s'", value);
		c->ignore_errors = !strcmp(value, "yes");
		return 0;
	}
	if (!strcmp(key, "control-port")) {
		if (c->control_port >= 0)
			return parse_fail(p, "control-port is given twice");
		if (!parse_number(value, INT16_MAX, &port))
			return parse_fail(p, "control-port is %s, not '%s'", conf_says(key), value);
		c->control_port = (int)port;
		return 0;
	}
	if (conf_is_global(key)) {
		if (conf_get(&c->system, key))
			return parse_fail(p, "%s is given twice", key);
		conf_add_kv(c, &c->system, key, value)->pos = p->pos;
		return 0;
	}
	if (!strcmp(key, "portal"))
		return portal_line(p, value);
	if (!strcmp(key, "account"))
		return value[strcspn(value, " \t")] ? user_line(p, &c->loose, value, false) :
						      known_account_line(p, value);
	if (!strcmp(key, "account-file"))
		return user_file_line(p, &c->loose, value, false);
	if (!strcmp(key, "incomingdiscoveryuser") || !strcmp(key, "outgoingdiscoveryuser"))
		return user_line(p, &c->users, value, *key == 'o');
	if (!strcmp(key, "incomingdiscoveryuser-file") ||
	    !strcmp(key, "outgoingdiscoveryuser-file"))
		return user_file_line(p, &c->users, value, *key == 'o');
	return parse_unknown(p, key, CONF_IN_FILE);
}
