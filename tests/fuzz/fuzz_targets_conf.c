/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * targets.conf: any bytes are either refused with a message or make a model that can be resolved,
 * checked, compared and printed; what is printed is read back to the same text. The daemon takes
 * each <cluster> that this takes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "conf/diff.h"
#include "events/bug.h"
#include "tgtd/cluster/live/group.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct text {
	char *p;
	size_t len;
};

static void append(void *arg, const char *s)
{
	struct text *t = arg;
	size_t n = strlen(s);

	t->p = realloc(t->p, t->len + n + 1);
	BUG_ON(!t->p);
	memcpy(t->p + t->len, s, n + 1);
	t->len += n;
}

static void ignore(void *arg, const char *s)
{
}

static void print(const struct conf *c, struct text *t)
{
	*t = (struct text){ 0 };
	conf_print(c, append, t);
}

/* As a daemon has them: each with a number of its own. */
static void give_numbers(struct conf *c)
{
	struct conf_target *t;
	uint32_t tid = 1;

	list_for_each(t, &c->targets, link) {
		while (conf_find_tid(c, tid))
			tid++;
		if (!t->tid)
			t->tid = tid;
	}
}

/* As tgtd --group file= does. */
static void take_cluster(const struct conf *c)
{
	char text[CONF_CLUSTER_TEXT], why[600] = "";
	const struct conf_kv *kv;
	struct group_conf g;
	size_t n;

	if (!c->cluster)
		return;
	n = conf_cluster_text(c, text, sizeof(text));
	BUG_ON(n >= sizeof(text));
	list_for_each(kv, &c->cluster_lines, link)
		if (!strcmp(kv->key, "gateway"))
			break;
	n += (size_t)snprintf(text + n, sizeof(text) - n, ",self=%.*s",
			      (int)strcspn(kv->value, " "), kv->value);
	BUG_ON(n < sizeof(text) && group_parse(&g, text, why, sizeof(why)));
	BUG_ON(n < sizeof(text) &&
	       g.mirrors != !!conf_get(&c->cluster_lines, "mirror-secret-file"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct conf_scope scope = { .update = true, .remove = true };
	struct list steps = LIST_INIT(steps);
	struct text one, two;
	struct conf_error err;
	struct conf c, again;

	conf_init(&c);
	if (conf_parse_text(&c, "fuzz", (const char *)data, size, true, &err)) {
		BUG_ON(!*err.text);
		conf_free(&c);
		return 0;
	}
	conf_resolve(&c);
	take_cluster(&c);
	unsigned faults = conf_verify(&c, ignore, NULL);

	print(&c, &one);
	conf_init(&again);
	int rc = conf_parse_text(&again, "again", one.p, one.len, true, &err);

	/* names that no daemon would take may not survive printing; what it takes must */
	BUG_ON(rc && !faults);
	if (!rc) {
		conf_resolve(&again);
		print(&again, &two);
		BUG_ON(!faults && strcmp(one.p, two.p));
		give_numbers(&again);
		conf_diff(&again, &c, &scope, &steps);
		free(two.p);
	}
	free(one.p);
	conf_free(&again);
	conf_free(&c);
	return 0;
}
