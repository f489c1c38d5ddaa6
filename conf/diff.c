/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What to ask of the daemon so that it becomes what the configuration says. */
#include "conf/diff.h"

#include <stdarg.h>
#include <stdlib.h>

#include "events/bug.h"

/* The caching mode page (SBC-4 6.5.5) with WCE off and on, in the form of --params mode_page. */
#define WRITE_CACHE_OFF "8:0:18:0x10:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0"
#define WRITE_CACHE_ON "8:0:18:0x14:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0"

struct planner {
	struct conf *c; /* memory */
	struct list *steps;
	const struct conf_scope *scope;
	const struct conf *have;
	struct list accounts; /* conf_kv: those that exist when the next step is made */
	struct conf_pos pos; /* of the line at work */
	/* of the target at work */
	const char *target, *driver;
	uint32_t tid, next_tid;
	unsigned group, groups; /* disruptive steps */
	const char *what;
};

/* ---- steps ----------------------------------------------------------------------------------- */

static const char *format(struct conf *c, const char *fmt, ...) printf_like(2, 3);
static const char *format(struct conf *c, const char *fmt, ...)
{
	va_list ap;
	int n;
	char *s;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	BUG_ON(n < 0);
	s = conf_alloc(c, (size_t)n + 1);
	va_start(ap, fmt);
	vsnprintf(s, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return s;
}

static struct conf_step *add(struct planner *p)
{
	struct conf_step *s = conf_alloc(p->c, sizeof(*s));

	list_init(&s->link);
	s->pos = p->pos;
	s->target = p->target;
	s->tid = p->tid;
	s->disruptive = p->group;
	s->what = p->what;
	list_add_tail(p->steps, &s->link);
	return s;
}

static void note(void *arg, const char *text)
{
	struct planner *p = arg;

	add(p)->note = conf_strdup(p->c, text);
}

static void warn(void *arg, const char *text)
{
	note(arg, text);
	list_entry(((struct planner *)arg)->steps->prev, struct conf_step, link)->warning = true;
}

/* A request about the target at work. */
static struct adm_req *request(struct planner *p, enum adm_mode mode, enum adm_op op)
{
	struct adm_req *req = &add(p)->req;

	adm_req_init(req, mode, op);
	req->tid = p->tid;
	req->has_tid = p->tid;
	req->text[ADM_T_LLD] = p->driver;
	return req;
}

static struct adm_req *lu_request(struct planner *p, enum adm_op op, uint32_t lun)
{
	struct adm_req *req = request(p, ADM_LU, op);

	req->lun = lun;
	req->has_lun = true;
	return req;
}

/* ---- accounts -------------------------------------------------------------------------------- */

static const struct conf_user *find_user(const struct list *users, const struct conf_user *like)
{
	struct conf_user *u;

	list_for_each(u, users, link)
		if (u->outgoing == like->outgoing && !strcmp(u->user, like->user))
			return u;
	return NULL;
}

static void account_exists(struct planner *p, const struct conf_user *u)
{
	const char *known = conf_get(&p->accounts, u->user);
	uint32_t tid = p->tid;
	struct adm_req *req;
	struct conf_kv *kv;

	if (known && strcmp(known, CONF_STALE))
		return;
	p->tid = 0; /* an account is the daemon's, not a target's */
	req = request(p, ADM_ACCOUNT, known ? ADM_UPDATE : ADM_NEW);
	p->tid = tid;
	req->text[ADM_T_USER] = u->user;
	req->text[ADM_T_PASSWORD] = u->password;
	list_for_each(kv, &p->accounts, link)
		if (!strcmp(kv->key, u->user))
			kv->value = "";
	if (!known)
		conf_add_kv(p->c, &p->accounts, u->user, "");
}

static struct adm_req *user_request(struct planner *p, const struct conf_user *u, enum adm_op op)
{
	struct adm_req *req = request(p, ADM_ACCOUNT, op);

	req->text[ADM_T_USER] = u->user;
	req->outgoing = u->outgoing;
	return req;
}

/* All of the names of @u that @but lacks. Returns how many. */
static unsigned tie_user(struct planner *p, const struct conf_user *u, const struct conf_user *but,
			 enum adm_op op)
{
	struct conf_kv *name;
	unsigned n = 0;

	list_for_each(name, &u->names, link) {
		if (but && conf_get(&but->names, name->key))
			continue;
		if (op == ADM_BIND)
			p->pos = name->pos;
		user_request(p, u, op)->text[ADM_T_INITIATOR] = name->key;
		n++;
	}
	return n;
}

static void bind_user(struct planner *p, const struct conf_user *u, enum adm_op op)
{
	/* A tied user is bound with its first name, in one step: it is never there without. */
	if (op == ADM_BIND && tie_user(p, u, NULL, op))
		return;
	user_request(p, u, op);
}

static void diff_users(struct planner *p, const struct list *have, const struct list *want)
{
	const struct conf_user *u;

	list_for_each(u, want, link) {
		p->pos = u->pos;
		account_exists(p, u);
		if (have && find_user(have, u)) {
			tie_user(p, u, find_user(have, u), ADM_BIND);
			continue;
		}
		/* there is room for one outgoing user only: the old one leaves first */
		const struct conf_user *old = NULL;

		if (u->outgoing && have)
			list_for_each(old, have, link)
				if (old->outgoing)
					bind_user(p, old, ADM_UNBIND);
		bind_user(p, u, ADM_BIND);
	}
	p->pos = (struct conf_pos){ 0 };
	if (!have)
		return;
	bool new_outgoing = false;

	list_for_each(u, want, link)
		new_outgoing |= u->outgoing && !find_user(have, u);
	list_for_each(u, have, link) {
		if (find_user(want, u))
			tie_user(p, u, find_user(want, u), ADM_UNBIND);
		else if (!(u->outgoing && new_outgoing))
			bind_user(p, u, ADM_UNBIND);
	}
}

/* ---- access ---------------------------------------------------------------------------------- */

static const struct conf_rule *find_rule(const struct list *rules, const struct conf_rule *like)
{
	struct conf_rule *r;

	list_for_each(r, rules, link)
		if (r->is_name == like->is_name && !strcmp(r->text, like->text))
			return r;
	return NULL;
}

static void bind_rule(struct planner *p, const struct conf_rule *r, enum adm_op op)
{
	struct adm_req *req = request(p, ADM_TARGET, op);

	req->text[r->is_name ? ADM_T_INITIATOR : ADM_T_ADDRESS] = r->text;
	if (op == ADM_BIND && r->luns)
		req->text[ADM_T_EXPOSE] = r->luns;
}

static bool same(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static void diff_rules(struct planner *p, const struct conf_target *have,
		       const struct conf_target *want)
{
	const struct conf_rule *r, *old;

	list_for_each(r, &want->rules, link) {
		p->pos = r->pos;
		old = have ? find_rule(&have->rules, r) : NULL;
		if (!old) {
			bind_rule(p, r, ADM_BIND);
		} else if (!same(old->luns, r->luns)) {
			struct adm_req *req = request(p, ADM_TARGET, ADM_UPDATE);

			req->text[ADM_T_INITIATOR] = r->text;
			req->text[ADM_T_EXPOSE] = r->luns ? r->luns : "all";
		}
	}
	p->pos = (struct conf_pos){ 0 };
	if (have)
		list_for_each(r, &have->rules, link)
			if (!find_rule(&want->rules, r))
				bind_rule(p, r, ADM_UNBIND);
}

/* ---- session keys ---------------------------------------------------------------------------- */

static void diff_keys(struct planner *p, const struct list *have, const struct list *want)
{
	struct conf_kv *kv;
	struct adm_req *req;

	list_for_each(kv, want, link) {
		if (have && same(conf_get(have, kv->key), kv->value))
			continue;
		p->pos = kv->pos;
		req = request(p, ADM_TARGET, ADM_UPDATE);
		req->text[ADM_T_NAME] = kv->key;
		req->text[ADM_T_VALUE] = kv->value;
	}
	p->pos = (struct conf_pos){ 0 };
	if (!have)
		return;
	list_for_each(kv, have, link) {
		if (conf_get(want, kv->key))
			continue;
		req = request(p, ADM_TARGET, ADM_UPDATE);
		req->text[ADM_T_NAME] = kv->key;
		req->text[ADM_T_VALUE] = ""; /* back to the default */
	}
}

/* ---- logical units --------------------------------------------------------------------------- */

static void param(struct planner *p, uint32_t lun, const char *text)
{
	lu_request(p, ADM_UPDATE, lun)->text[ADM_T_PARAMS] = text;
}

/* Page and subpage of a mode_page value, which tell pages apart. */
static size_t page_len(const char *value)
{
	const char *colon = strchr(value, ':');

	colon = colon ? strchr(colon + 1, ':') : NULL;
	return colon ? (size_t)(colon - value) : strlen(value);
}

static struct conf_kv *find_param(const struct list *params, const struct conf_kv *like)
{
	struct conf_kv *kv;

	list_for_each(kv, params, link) {
		if (strcmp(kv->key, like->key))
			continue;
		if (strcmp(kv->key, "mode_page") ||
		    (page_len(kv->value) == page_len(like->value) &&
		     !strncmp(kv->value, like->value, page_len(kv->value))))
			return kv;
	}
	return NULL;
}

/* Of two values for one thing the later holds, as it would if both were asked for. */
static void put_param(struct conf *c, struct list *params, const char *key, const char *value,
		      struct conf_pos pos)
{
	struct conf_kv like = { .key = key, .value = value }, *kv = find_param(params, &like);

	if (kv)
		kv->value = conf_strdup(c, value);
	else
		kv = conf_add_kv(c, params, key, value);
	kv->pos = pos;
}

/* Parameters of @lu with `params` taken apart into its pairs. */
static void flatten(struct conf *c, const struct conf_lu *lu, struct list *out)
{
	struct conf_kv *kv;

	list_init(out);
	list_for_each(kv, &lu->options, link) {
		enum conf_kind kind = conf_kind(kv->key);

		if (kind == CONF_PARAM || (kind == CONF_MULTI && strcmp(kv->key, "params")))
			put_param(c, out, kv->key, kv->value, kv->pos);
		if (strcmp(kv->key, "params"))
			continue;
		for (const char *pair = kv->value; *pair;) {
			size_t n = strcspn(pair, ","), eq = strcspn(pair, "=,");

			if (n && eq < n)
				put_param(c, out, format(c, "%.*s", (int)eq, pair),
					  format(c, "%.*s", (int)(n - eq - 1), pair + eq + 1),
					  kv->pos);
			pair += n + (pair[n] != 0);
		}
	}
}

static bool write_cache_off(const struct conf_lu *lu)
{
	return same(conf_get(&lu->options, "write-cache"), "off");
}

/* Mode pages come first: some of the others depend on them. */
static void diff_params(struct planner *p, const struct conf_lu *have, const struct conf_lu *want)
{
	struct list old, new;
	struct conf_kv *kv, *was;

	flatten(p->c, want, &new);
	list_init(&old);
	if (have)
		flatten(p->c, have, &old);
	for (int pages = 1; pages >= 0; pages--) {
		list_for_each(kv, &new, link) {
			bool page = !strcmp(kv->key, "mode_page");

			if (page != pages || !strcmp(kv->key, "path"))
				continue;
			was = find_param(&old, kv);
			p->pos = kv->pos;
			if (!was || strcmp(was->value, kv->value))
				param(p, want->lun, format(p->c, "%s=%s", kv->key, kv->value));
		}
		p->pos = want->pos;
		if (!pages)
			break;
		if (write_cache_off(want) && !(have && write_cache_off(have)))
			param(p, want->lun, "mode_page=" WRITE_CACHE_OFF);
		else if (have && write_cache_off(have) && !write_cache_off(want))
			param(p, want->lun, "mode_page=" WRITE_CACHE_ON);
		else if (!have)
			note(p, format(p->c, "Write cache is enabled (default) for lun %u.",
				       want->lun));
	}
	list_for_each(kv, &old, link)
		if (!find_param(&new, kv))
			param(p, want->lun, kv->key); /* back to the default */
}

static const char *store_option(const struct conf_lu *lu, const char *key, const char *otherwise)
{
	const char *v = conf_get(&lu->options, key);

	return v ? v : otherwise;
}

static const char *store_path(const struct conf_lu *lu)
{
	return store_option(lu, "path", lu->path);
}

static bool same_store_kind(const struct conf_lu *a, const struct conf_lu *b)
{
	return same(store_option(a, "bs-type", "rdwr"), store_option(b, "bs-type", "rdwr")) &&
	       same(store_option(a, "bsopts", ""), store_option(b, "bsopts", "")) &&
	       same(store_option(a, "bsoflags", ""), store_option(b, "bsoflags", "")) &&
	       same(store_option(a, "block-size", ""), store_option(b, "block-size", "")) &&
	       same(store_option(a, "device-type", "disk"), store_option(b, "device-type", "disk"));
}

static void new_lu(struct planner *p, const struct conf_lu *lu)
{
	struct adm_req *req;

	p->pos = lu->pos;
	if (p->scope->usable && !p->scope->usable(p->scope->arg, lu, warn, p))
		return;
	req = lu_request(p, ADM_NEW, lu->lun);
	req->text[ADM_T_PATH] = lu->path;
	req->text[ADM_T_BSTYPE] = store_option(lu, "bs-type", NULL);
	req->text[ADM_T_BSOPTS] = store_option(lu, "bsopts", NULL);
	req->text[ADM_T_BSOFLAGS] = store_option(lu, "bsoflags", NULL);
	req->text[ADM_T_BLOCKSIZE] = store_option(lu, "block-size", NULL);
	diff_params(p, NULL, lu);
	if (conf_get(&lu->options, "path"))
		param(p, lu->lun, format(p->c, "path=%s", store_path(lu)));
}

static void begin_disruptive(struct planner *p, const char *what)
{
	p->group = ++p->groups;
	p->what = what;
}

static void end_disruptive(struct planner *p)
{
	p->group = 0;
	p->what = NULL;
}

/* A mode page that is no longer asked for has no value to go back to. */
static bool lost_page(struct planner *p, const struct conf_lu *have, const struct conf_lu *want)
{
	struct list old, new;
	struct conf_kv *kv;

	flatten(p->c, have, &old);
	flatten(p->c, want, &new);
	list_for_each(kv, &old, link)
		if (!strcmp(kv->key, "mode_page") && !find_param(&new, kv))
			return true;
	return false;
}

/* A store that grew hurts nobody; of one that shrank, initiators lose what they may use. */
static void diff_size(struct planner *p, const struct conf_lu *have, const struct conf_lu *want)
{
	bool shrank = want->size < have->size;

	if (!have->size || !want->size || want->size == have->size)
		return;
	p->pos = want->pos;
	if (shrank)
		begin_disruptive(p, format(p->c, "the size of LUN %u", want->lun));
	param(p, want->lun, "resize=1");
	if (shrank)
		end_disruptive(p);
}

static void diff_lu(struct planner *p, const struct conf_lu *have, const struct conf_lu *want)
{
	bool moved = strcmp(store_path(have), store_path(want));

	p->pos = want->pos;

	if (!same_store_kind(have, want) || lost_page(p, have, want)) {
		begin_disruptive(p, format(p->c, "LUN %u", want->lun));
		lu_request(p, ADM_DELETE, want->lun);
		new_lu(p, want);
		end_disruptive(p);
		return;
	}
	if (moved) {
		if (p->scope->usable && !p->scope->usable(p->scope->arg, want, warn, p))
			return;
		param(p, want->lun, format(p->c, "path=%s", store_path(want)));
	}
	diff_params(p, have, want);
	if (!moved)
		diff_size(p, have, want);
}

static int by_lun(const void *a, const void *b)
{
	const struct conf_lu *x = *(struct conf_lu *const *)a, *y = *(struct conf_lu *const *)b;

	return x->lun < y->lun ? -1 : x->lun > y->lun;
}

static void diff_lus(struct planner *p, const struct conf_target *have,
		     const struct conf_target *want)
{
	const struct conf_lu *lu, **order;
	size_t n = 0;

	if (have) {
		list_for_each(lu, &have->lus, link) {
			if (conf_find_lun(want, lu->lun))
				continue;
			begin_disruptive(p, format(p->c, "LUN %u", lu->lun));
			lu_request(p, ADM_DELETE, lu->lun);
			end_disruptive(p);
		}
	}
	list_for_each(lu, &want->lus, link)
		n++;
	order = conf_alloc(p->c, (n + 1) * sizeof(*order));
	n = 0;
	list_for_each(lu, &want->lus, link)
		order[n++] = lu;
	qsort(order, n, sizeof(*order), by_lun);
	for (size_t i = 0; i < n; i++) {
		const struct conf_lu *old = have ? conf_find_lun(have, order[i]->lun) : NULL;

		if (old)
			diff_lu(p, old, order[i]);
		else
			new_lu(p, order[i]);
	}
	p->pos = (struct conf_pos){ 0 };
}

/* ---- targets --------------------------------------------------------------------------------- */

static void diff_target(struct planner *p, const struct conf_target *have, struct conf_target *want)
{
	p->driver = want->driver;
	p->pos = want->pos;
	if (!have) {
		note(p, format(p->c, "Adding target: %s", want->name));
		request(p, ADM_TARGET, ADM_NEW)->text[ADM_T_TARGETNAME] = want->name;
	}
	p->pos = (struct conf_pos){ 0 };
	diff_keys(p, have ? &have->keys : NULL, &want->keys);
	diff_lus(p, have, want);
	diff_users(p, have ? &have->users : NULL, &want->users);
	/* last: nobody comes in before everything stands */
	diff_rules(p, have, want);
}

static void delete_steps(struct planner *p, const struct conf_target *t, bool force)
{
	struct adm_req *req;

	p->driver = NULL;
	note(p, format(p->c, "Removing target: %s", t->name));
	req = request(p, ADM_TARGET, ADM_DELETE);
	req->force = force;
}

void conf_plan_delete(struct conf *memory, const struct conf_target *t, bool force,
		      struct list *steps)
{
	struct planner p = { .c = memory, .steps = steps, .target = t->name, .tid = t->tid };

	delete_steps(&p, t, force);
}

static uint32_t free_tid(struct planner *p, const struct conf *want)
{
	do
		p->next_tid++;
	while (conf_find_tid(p->have, p->next_tid) || conf_find_tid(want, p->next_tid));
	return p->next_tid;
}

static void plan_target(struct planner *p, struct conf_target *want)
{
	const struct conf_target *have = conf_find_target(p->have, want->name);

	p->target = want->name;
	if (have && !p->scope->update) {
		note(p, format(p->c, "Target %s already exists!", want->name));
		return;
	}
	if (have && (strcmp(have->driver, want->driver) || (want->tid && want->tid != have->tid))) {
		p->tid = have->tid;
		begin_disruptive(p, "its driver or tid");
		delete_steps(p, have, p->scope->force);
		p->tid = want->tid ? want->tid : have->tid;
		diff_target(p, NULL, want);
		end_disruptive(p);
		return;
	}
	p->tid = have ? have->tid : want->tid ? want->tid : free_tid(p, p->c);
	if (!have)
		/* Numbers go on from the last new one, as they did with tgt-admin. */
		p->next_tid = p->tid;
	diff_target(p, have, want);
}

static void system_step(struct planner *p, const struct conf_kv *kv)
{
	struct adm_req *req;

	if (same(conf_get(&p->have->system, kv->key), kv->value))
		return;
	p->pos = kv->pos;
	req = request(p, ADM_SYSTEM, ADM_UPDATE);
	p->pos = (struct conf_pos){ 0 };
	req->text[ADM_T_NAME] = kv->key;
	req->text[ADM_T_VALUE] = kv->value;
}

static void plan_system(struct planner *p, const struct conf *want)
{
	struct conf_kv *kv;

	/* iSNS itself is switched once everything about it is said, in
	 * whatever order the file says it. */
	list_for_each(kv, &want->system, link)
		if (strcmp(kv->key, "iSNS"))
			system_step(p, kv);
	list_for_each(kv, &want->system, link)
		if (!strcmp(kv->key, "iSNS"))
			system_step(p, kv);
	diff_users(p, &p->have->users, &want->users);
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(struct conf_target *const *)a)->name,
		      (*(struct conf_target *const *)b)->name);
}

void conf_diff(const struct conf *have, struct conf *want, const struct conf_scope *scope,
	       struct list *steps)
{
	struct planner p = { .c = want, .steps = steps, .scope = scope, .have = have };
	struct conf_target *t, **order;
	struct conf_kv *account;
	size_t n = 0;

	list_init(&p.accounts);
	list_for_each(account, &have->accounts, link)
		conf_add_kv(want, &p.accounts, account->key, account->value);
	list_for_each(t, &have->targets, link)
		p.next_tid = MAX(p.next_tid, t->tid);
	/* what goes makes room (devices, tids) for what comes */
	list_for_each(t, &have->targets, link) {
		if (!scope->remove || conf_find_target(want, t->name) ||
		    (scope->target && strcmp(scope->target, t->name)))
			continue;
		p.target = t->name;
		p.tid = t->tid;
		delete_steps(&p, t, scope->force);
	}
	p.target = NULL;
	p.tid = 0;
	p.driver = NULL;
	if (!scope->target)
		plan_system(&p, want);
	order = conf_alloc(want, (want->ntargets + 1) * sizeof(*order));
	list_for_each(t, &want->targets, link)
		if (!scope->target || !strcmp(scope->target, t->name))
			order[n++] = t;
	/* by name: numbers of new targets do not depend on the order in the file */
	qsort(order, n, sizeof(*order), by_name);
	for (size_t i = 0; i < n; i++)
		plan_target(&p, order[i]);
}
