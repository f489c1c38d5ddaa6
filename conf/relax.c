/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What tgt's files may say that does not exist here: left out, and said with its line, so that the
 * rest of a file that served tgt still loads. What is mistyped is verify.c's to refuse. */
#include <stdarg.h>

#include "conf/model.h"
#include "events/bug.h"

struct relaxer {
	void (*say)(void *arg, const char *text);
	void *arg;
};

static void relax_say(struct relaxer *r, const struct conf_pos *pos, const char *fmt, ...)
	printf_like(3, 4);
static void relax_say(struct relaxer *r, const struct conf_pos *pos, const char *fmt, ...)
{
	char text[1024];
	va_list ap;
	int n = 0;

	if (pos->file)
		n = snprintf(text, sizeof(text) / 2, "%s:%u: ", pos->file, pos->line);
	if (n < 0 || (size_t)n >= sizeof(text) / 2)
		n = 0;
	n += snprintf(text + n, sizeof(text) - (size_t)n, "warning: ");
	va_start(ap, fmt);
	vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
	va_end(ap);
	r->say(r->arg, text);
}

static bool relax_is_one_of(const char *value, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(*list, value))
			return true;
	return false;
}

/* The option of @lu that asks for what tgt has and we have not; NULL: there is none. */
static const struct conf_kv *foreign(const struct conf_lu *lu)
{
	static const char *const devices[] = { "tape", "cd", "changer", "osd", "pt", NULL };
	static const char *const stores[] = { "ssc",      "sg",   "bsg",
					      "sheepdog", "glfs", NULL };
	struct conf_kv *kv;

	list_for_each(kv, &lu->options, link)
		if ((!strcmp(kv->key, "device-type") && relax_is_one_of(kv->value, devices)) ||
		    (!strcmp(kv->key, "bs-type") && relax_is_one_of(kv->value, stores)))
			return kv;
	return NULL;
}

static void relax_lus(struct relaxer *r, struct conf *c, struct conf_target *t)
{
	const struct conf_kv *kv;
	struct conf_lu *lu, *tmp;

	list_for_each_safe(lu, tmp, &t->lus, link) {
		kv = foreign(lu);
		if (!kv)
			continue;
		relax_say(r, &kv->pos, "target %s: LUN %u (%s) is left out: there is no %s %s here",
			  t->name, lu->lun, lu->path, kv->key, kv->value);
		list_del(&lu->link);
		c->nlus--;
	}
}

/* The number is only the administrator's: with another one the target serves as well. tgt's own
 * example has one number twice. */
static void relax_tid(struct relaxer *r, const struct conf *c, struct conf_target *t)
{
	struct conf_target *first;

	list_for_each(first, &c->targets, link) {
		if (first == t)
			return;
		if (first->tid != t->tid)
			continue;
		relax_say(
			r, &t->pos,
			"target %s: controller_tid %u is %s's already: this one gets a free number",
			t->name, t->tid, first->name);
		t->tid = 0;
		return;
	}
}

static void relax_users(struct relaxer *r, const struct list *users)
{
	struct conf_user *u;

	list_for_each(u, users, link) {
		if (u->exposed)
			relax_say(r, &u->pos, "%s can be read by others than its owner",
				  u->file);
		if (u->many_words)
			relax_say(
				r, &u->pos,
				"user %s: the password is all that follows, with its blanks; tgt took the first word of it. Quotes around it say that it is meant",
				u->user);
	}
}

void conf_relax(struct conf *c, void (*complain)(void *arg, const char *text), void *arg)
{
	struct relaxer r = { complain, arg };
	struct conf_target *t;

	struct conf_kv *remark;

	ASSERT(complain && conf_is_resolved(c));
	list_for_each(remark, &c->remarks, link)
		relax_say(&r, &remark->pos, "%s", remark->key);
	relax_users(&r, &c->loose);
	relax_users(&r, &c->users);
	list_for_each(t, &c->targets, link) {
		relax_users(&r, &t->users);
		relax_lus(&r, c, t);
		if (t->tid)
			relax_tid(&r, c, t);
	}
}
