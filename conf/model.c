/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A configuration as plain data: building, numbering, printing. */
#include "conf/model.h"

#include <stdlib.h>
#include <strings.h>

#include "events/bug.h"
#include "events/secret.h"

/* ---- memory ---------------------------------------------------------------------------------- */

#define CHUNK 65536

struct conf_chunk {
	struct conf_chunk *next;
	size_t used, size;
	_Alignas(16) char bytes[];
};

void conf_init(struct conf *c)
{
	*c = (struct conf){ .control_port = -1 };
	list_init(&c->targets);
	list_init(&c->system);
	list_init(&c->portals);
	list_init(&c->cluster_lines);
	list_init(&c->users);
	list_init(&c->loose);
	list_init(&c->accounts);
	list_init(&c->remarks);
}

void conf_free(struct conf *c)
{
	struct conf_chunk *chunk, *next;

	for (chunk = c->memory; chunk; chunk = next) {
		next = chunk->next;
		secret_free(chunk, sizeof(*chunk) + chunk->size);
	}
	conf_init(c);
}

void *conf_alloc(struct conf *c, size_t size)
{
	struct conf_chunk *chunk = c->memory;

	ASSERT(size && size <= SIZE_MAX / 2);
	size = ALIGN_UP(size, (size_t)16);
	if (!chunk || chunk->size - chunk->used < size) {
		size_t room = MAX(size, (size_t)CHUNK);

		chunk = secret_alloc(sizeof(*chunk) + room); /* passwords are in it */
		BUG_ON(!chunk);
		chunk->size = room;
		chunk->next = c->memory;
		c->memory = chunk;
	}
	void *p = chunk->bytes + chunk->used;

	chunk->used += size;
	return p;
}

const char *conf_strdup(struct conf *c, const char *text)
{
	ASSERT(text);
	size_t n = strlen(text) + 1;

	return memcpy(conf_alloc(c, n), text, n);
}

/* ---- building -------------------------------------------------------------------------------- */

struct conf_target *conf_add_target(struct conf *c, const char *name)
{
	struct conf_target *t = conf_alloc(c, sizeof(*t));

	t->name = conf_strdup(c, name);
	list_init(&t->link);
	list_init(&t->lus);
	list_init(&t->options);
	list_init(&t->keys);
	list_init(&t->users);
	list_init(&t->rules);
	list_init(&t->limits);
	list_add_tail(&c->targets, &t->link);
	c->ntargets++;
	return t;
}

struct conf_target *conf_find_target(const struct conf *c, const char *name)
{
	struct conf_target *t;

	ASSERT(name);
	list_for_each(t, &c->targets, link)
		if (!strcmp(t->name, name))
			return t;
	return NULL;
}

struct conf_target *conf_find_tid(const struct conf *c, uint32_t tid)
{
	struct conf_target *t;

	ASSERT(tid);
	list_for_each(t, &c->targets, link)
		if (t->tid == tid)
			return t;
	return NULL;
}

struct conf_lu *conf_add_lu(struct conf *c, struct conf_target *t, const char *path)
{
	struct conf_lu *lu = conf_alloc(c, sizeof(*lu));

	lu->path = conf_strdup(c, path);
	list_init(&lu->link);
	list_init(&lu->options);
	list_add_tail(&t->lus, &lu->link);
	c->nlus++;
	return lu;
}

struct conf_lu *conf_find_lun(const struct conf_target *t, uint32_t lun)
{
	struct conf_lu *lu;

	list_for_each(lu, &t->lus, link)
		if (lu->has_lun && lu->lun == lun)
			return lu;
	return NULL;
}

struct conf_kv *conf_add_kv(struct conf *c, struct list *to, const char *key, const char *value)
{
	struct conf_kv *kv = conf_alloc(c, sizeof(*kv));

	ASSERT(to && key && value);
	kv->key = conf_strdup(c, key);
	kv->value = conf_strdup(c, value);
	list_init(&kv->link);
	list_add_tail(to, &kv->link);
	return kv;
}

struct conf_user *conf_add_user(struct conf *c, struct list *to, const char *user,
				const char *password, bool outgoing)
{
	struct conf_user *u = conf_alloc(c, sizeof(*u));

	u->user = conf_strdup(c, user);
	u->password = password ? conf_strdup(c, password) : NULL;
	u->outgoing = outgoing;
	list_init(&u->names);
	list_init(&u->link);
	list_add_tail(to, &u->link);
	return u;
}

struct conf_rule *conf_add_rule(struct conf *c, struct conf_target *t, const char *text,
				bool is_name)
{
	struct conf_rule *r = conf_alloc(c, sizeof(*r));

	r->text = conf_strdup(c, text);
	r->is_name = is_name;
	list_init(&r->link);
	list_add_tail(&t->rules, &r->link);
	return r;
}

const char *conf_get(const struct list *options, const char *key)
{
	struct conf_kv *kv;

	ASSERT(options && key);
	list_for_each(kv, options, link)
		if (!strcmp(kv->key, key))
			return kv->value;
	return NULL;
}

const char *conf_get_name(const struct list *options, const char *iqn)
{
	struct conf_kv *kv;

	ASSERT(options && iqn);
	list_for_each(kv, options, link)
		if (!strcasecmp(kv->key, iqn))
			return kv->value;
	return NULL;
}

/* ---- resolving ------------------------------------------------------------------------------- */

static bool has_value(const struct list *options, const char *key, const char *value)
{
	struct conf_kv *kv;

	list_for_each(kv, options, link)
		if (!strcmp(kv->key, key) && !strcmp(kv->value, value))
			return true;
	return false;
}

static void inherit(struct conf *c, const struct conf_target *t, struct conf_lu *lu)
{
	struct conf_kv *kv;

	list_for_each(kv, &t->options, link) {
		/* a target's lun is a number for its one LU */
		if (!strcmp(kv->key, "lun")) {
			if (!lu->has_lun) {
				lu->lun = (uint32_t)strtoul(kv->value, NULL, 0); /* as checked */
				lu->has_lun = true;
			}
		} else if (conf_kind(kv->key) == CONF_MULTI ?
				   !has_value(&lu->options, kv->key, kv->value) :
				   !conf_get(&lu->options, kv->key)) {
			conf_add_kv(c, &lu->options, kv->key, kv->value)->pos = kv->pos;
		}
	}
}

static int by_kind_and_path(const void *a, const void *b)
{
	const struct conf_lu *x = *(struct conf_lu *const *)a, *y = *(struct conf_lu *const *)b;

	return x->direct != y->direct ? x->direct - y->direct : strcmp(x->path, y->path);
}

static void model_number(struct conf *c, struct conf_target *t)
{
	uint8_t used[CONF_MAX_LUN / 8 + 1] = { 0 };
	struct conf_lu *lu, **order;
	size_t n = 0;
	uint32_t next = 1;

	list_for_each(lu, &t->lus, link) {
		if (lu->has_lun && lu->lun <= CONF_MAX_LUN)
			used[lu->lun / 8] |= (uint8_t)(1 << lu->lun % 8);
		n += !lu->has_lun;
	}
	if (!n)
		return;
	order = conf_alloc(c, n * sizeof(struct conf_lu *));
	n = 0;
	list_for_each(lu, &t->lus, link)
		if (!lu->has_lun)
			order[n++] = lu;
	qsort(order, n, sizeof(struct conf_lu *), by_kind_and_path);
	for (size_t i = 0; i < n; i++) {
		while (next <= CONF_MAX_LUN && (used[next / 8] >> next % 8 & 1))
			next++;
		/* beyond the last number: verify will say so */
		order[i]->lun = next++;
		order[i]->has_lun = true;
	}
}

bool conf_is_resolved(const struct conf *c)
{
	struct conf_target *t;
	struct conf_lu *lu;

	list_for_each(t, &c->targets, link) {
		if (!t->driver || (list_empty(&t->rules) && !t->nobody))
			return false;
		list_for_each(lu, &t->lus, link)
			if (!lu->has_lun)
				return false;
	}
	return true;
}

void conf_resolve(struct conf *c)
{
	struct conf_target *t;
	struct conf_lu *lu;

	if (!c->default_driver)
		c->default_driver = "iscsi";
	list_for_each(t, &c->targets, link) {
		if (!t->driver)
			t->driver = c->default_driver;
		if (list_empty(&t->rules) && !t->nobody)
			conf_add_rule(c, t, "ALL", false);
		list_for_each(lu, &t->lus, link)
			inherit(c, t, lu);
		model_number(c, t);
	}
	ASSERT(conf_is_resolved(c));
}

/* ---- printing -------------------------------------------------------------------------------- */

struct printer {
	void (*put)(void *arg, const char *text);
	void *arg;
};

/* Joins up to four strings, NULL ends. */
static void line(const struct printer *p, const char *a, const char *b, const char *c,
		 const char *d)
{
	const char *part[] = { a, b, c, d };

	for (unsigned i = 0; i < ARRAY_SIZE(part) && part[i]; i++)
		p->put(p->arg, part[i]);
	p->put(p->arg, "\n");
}

/* Text as the parser takes it back: '#' starts a comment, '\' at the end continues the line. */
static void escaped(const struct printer *p, const char *text)
{
	char one[2] = "", two[3] = "\\";

	for (; *text; text++) {
		if (*text == '#' || *text == '\\') {
			two[1] = *text;
			p->put(p->arg, two);
		} else {
			one[0] = *text;
			p->put(p->arg, one);
		}
	}
}

static bool model_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Would the parser take something off a value that begins with @first and ends with @last? It takes
 * one '=', blanks, a pair of quotes, and a comment at the end, and refuses half a pair; of a quoted
 * value it takes only the quotes. */
static const char *model_quote(const char *first, const char *last)
{
	size_t n = strlen(last);
	char a = *first, z = n ? last[n - 1] : 0;

	return a == '=' || model_blank(a) || model_blank(z) || a == '"' || (a == '\'' && a == z) ||
			       (n > 1 && !strcmp(last + n - 2, "*/")) ?
		       "\"" :
		       "";
}

/* @second: NULL, or a second word; @inner: quotes of its own. */
static void words_line(const struct printer *p, const char *indent, const char *key,
		       const char *value, const char *second, const char *inner)
{
	const char *q = model_quote(value, second ? second : value);

	p->put(p->arg, indent);
	p->put(p->arg, key);
	p->put(p->arg, " ");
	p->put(p->arg, q);
	escaped(p, value);
	if (second) {
		p->put(p->arg, " ");
		p->put(p->arg, inner);
		escaped(p, second);
		p->put(p->arg, inner);
	}
	p->put(p->arg, q);
	p->put(p->arg, "\n");
}

static void value_line(const struct printer *p, const char *indent, const char *key,
		       const char *value)
{
	words_line(p, indent, key, value, NULL, "");
}

/* In a line of a file a name ends at a blank, and a password that nobody chose begins. */
static bool cannot_be_said(const struct printer *p, const struct conf_user *u)
{
	if (!strpbrk(u->user, " \t"))
		return false;
	line(p, "# left out, for the blanks in its name: user ", u->user, NULL, NULL);
	return true;
}

static void print_user(const struct printer *p, const struct conf_user *u, const char *indent,
		       const char *kind)
{
	const char *password = u->password ? u->password : CONF_NO_PASSWORD;
	const char *second = u->file ? u->file : password;
	char key[40];

	snprintf(key, sizeof(key), "%s%s%s", u->outgoing ? "outgoing" : "incoming", kind,
		 u->file ? "-file" : "");
	words_line(p, indent, key, u->user, second,
		   strpbrk(second, " \t") ? "\"" : model_quote(second, second));
}

/* Accounts that are bound to nothing. One whose password nobody tells is only named: so a file that
 * was a dump leaves it alone. */
static void print_loose(const struct printer *p, const struct conf_user *u)
{
	const char *second = u->file ? u->file : u->password;

	if (second)
		words_line(p, "", u->file ? "account-file" : "account", u->user, second,
			   strpbrk(second, " \t") ? "\"" : model_quote(second, second));
	else
		value_line(p, "", "account", u->user);
}

/* @kind: "user", or "discoveryuser". */
static void print_users(const struct printer *p, const struct list *users, const char *indent,
			const char *kind)
{
	struct conf_user *u;
	struct conf_kv *name;

	list_for_each(u, users, link) {
		if (cannot_be_said(p, u))
			continue;
		print_user(p, u, indent, kind);
		list_for_each(name, &u->names, link)
			words_line(p, indent, "bind-user", u->user, name->key, "");
	}
}

/* @before: the path of the last one that was written without its number. Those are numbered in the
 * order of their paths when they are read, see model_number(). */
static void model_print_lu(const struct printer *p, const struct conf_lu *lu, uint32_t expected,
			   const char **before)
{
	const char *store = lu->direct ? "direct-store" : "backing-store";
	struct conf_kv *kv;
	char number_text[16];

	ASSERT(lu->has_lun);
	if (list_empty(&lu->options) && lu->lun == expected && !lu->direct &&
	    strcmp(lu->path, *before) > 0) {
		*before = lu->path;
		value_line(p, "\t", store, lu->path);
		return;
	}
	p->put(p->arg, "\t<");
	p->put(p->arg, store);
	p->put(p->arg, " ");
	p->put(p->arg, model_quote(lu->path, lu->path));
	escaped(p, lu->path);
	p->put(p->arg, model_quote(lu->path, lu->path));
	p->put(p->arg, ">\n");
	snprintf(number_text, sizeof(number_text), "%u", lu->lun);
	value_line(p, "\t\t", "lun", number_text);
	list_for_each(kv, &lu->options, link)
		value_line(p, "\t\t", kv->key, kv->value);
	line(p, "\t</", store, ">", NULL);
}

static void print_target(const struct printer *p, const struct conf *c, const struct conf_target *t)
{
	struct conf_rule *r;
	struct conf_kv *kv;
	struct conf_lu *lu;
	uint32_t expected = 1;
	const char *before = "";
	char tid[16];
	bool only_all;

	line(p, "<target ", t->name, ">", NULL);
	if (t->tid) {
		snprintf(tid, sizeof(tid), "%u", t->tid);
		value_line(p, "\t", "controller_tid", tid);
	}
	if (t->driver && strcmp(t->driver, c->default_driver ? c->default_driver : "iscsi"))
		value_line(p, "\t", "driver", t->driver);
	list_for_each(lu, &t->lus, link)
		model_print_lu(p, lu, expected++, &before);
	print_users(p, &t->users, "\t", "user");
	r = list_first_or_null(&t->rules, struct conf_rule, link);
	only_all = r && r->link.next == &t->rules && !r->is_name && !strcmp(r->text, "ALL");
	if (list_empty(&t->rules))
		value_line(p, "\t", "initiator-address", CONF_NOBODY);
	list_for_each(r, &t->rules, link) {
		if (only_all)
			break;
		value_line(p, "\t", r->is_name ? "initiator-name" : "initiator-address", r->text);
		if (r->luns)
			words_line(p, "\t", "expose", r->text, r->luns, "");
	}
	list_for_each(kv, &t->limits, link)
		words_line(p, "\t", "initiator-limit", kv->key, kv->value, "");
	list_for_each(kv, &t->keys, link)
		value_line(p, "\t", kv->key, kv->value);
	p->put(p->arg, "</target>\n\n");
}

void conf_print(const struct conf *c, void (*put)(void *arg, const char *text), void *arg)
{
	struct printer p = { put, arg };
	struct conf_target *t;
	struct conf_user *u;
	struct conf_kv *kv;

	ASSERT(put);
	line(&p, "default-driver ", c->default_driver ? c->default_driver : "iscsi", "\n", NULL);
	list_for_each(kv, &c->system, link)
		value_line(&p, "", kv->key, kv->value);
	list_for_each(kv, &c->portals, link)
		value_line(&p, "", "portal", kv->key);
	if (c->no_portal)
		value_line(&p, "", "portal", CONF_NONE);
	if (c->cluster) {
		line(&p, "<cluster ", c->cluster, ">", NULL);
		list_for_each(kv, &c->cluster_lines, link)
			value_line(&p, "\t", kv->key, kv->value);
		line(&p, "</cluster>\n", NULL, NULL, NULL);
	}
	list_for_each(u, &c->loose, link)
		if (!cannot_be_said(&p, u))
			print_loose(&p, u);
	print_users(&p, &c->users, "", "discoveryuser");
	list_for_each(t, &c->targets, link)
		print_target(&p, c, t);
}
