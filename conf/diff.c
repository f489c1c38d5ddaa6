/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What to ask of the daemon so that it becomes what the configuration says. */
#include "conf/diff_int.h"
#include "conf/limit.h"
#include "events/bug.h"

#include <stdlib.h>

/* A request about the target at work. */
static struct adm_req *request(struct planner *p, enum adm_mode mode, enum adm_op op)
{
	struct adm_req *req = &diff_add(p)->req;

	adm_req_init(req, mode, op);
	req->tid = p->tid;
	req->has_tid = p->tid;
	req->text[ADM_T_LLD] = p->driver;
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

	if ((known && strcmp(known, CONF_STALE)) || !u->password)
		return;
	p->tid = 0; /* an account is the daemon's, not a target's */
	req = request(p, ADM_ACCOUNT, known ? ADM_UPDATE : ADM_NEW);
	p->tid = tid;
	req->text[ADM_T_USER] = u->user;
	req->text[ADM_T_PASSWORD] = u->password;
	req->text[ADM_T_FILE] = u->file;
	list_for_each(kv, &p->accounts, link)
		if (!strcmp(kv->key, u->user))
			kv->value = "";
	if (!known)
		conf_add_kv(p->c, &p->accounts, u->user, "");
}

static struct adm_req *user_request(struct planner *p, const struct conf_user *u, enum adm_op op)
{
	struct adm_req *req = request(p, ADM_ACCOUNT, op);

	ASSERT(op == ADM_BIND || op == ADM_UNBIND);
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
		if (but && conf_get_name(&but->names, name->key))
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

	ASSERT(p->tid && (op == ADM_BIND || op == ADM_UNBIND));
	req->text[r->is_name ? ADM_T_INITIATOR : ADM_T_ADDRESS] = r->text;
	if (op == ADM_BIND && r->luns)
		req->text[ADM_T_EXPOSE] = r->luns;
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
		} else if (!diff_same(old->luns, r->luns)) {
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

/* ---- limits of initiators -------------------------------------------------------------------- */

static void limit_step(struct planner *p, const char *iqn, const char *was, const char *is)
{
	const char *params = conf_limits_change(p->c, was, is);
	struct adm_req *req;

	if (!params)
		return;
	req = request(p, ADM_TARGET, ADM_UPDATE);
	req->text[ADM_T_INITIATOR] = iqn;
	req->text[ADM_T_PARAMS] = params;
}

static void diff_limits(struct planner *p, const struct list *have, const struct list *want)
{
	struct conf_kv *kv;

	list_for_each(kv, want, link) {
		p->pos = kv->pos;
		limit_step(p, kv->key, have ? conf_get_name(have, kv->key) : NULL, kv->value);
	}
	p->pos = (struct conf_pos){ 0 };
	if (have)
		list_for_each(kv, have, link)
			if (!conf_get_name(want, kv->key))
				limit_step(p, kv->key, kv->value, NULL);
}

/* ---- session keys ---------------------------------------------------------------------------- */

static void diff_keys(struct planner *p, const struct list *have, const struct list *want)
{
	struct conf_kv *kv;
	struct adm_req *req;

	list_for_each(kv, want, link) {
		const char *was = have ? conf_get(have, kv->key) : NULL;

		/* the daemon tells only what is not as it begins */
		if (!was && !strcmp(kv->key, "state"))
			was = "ready";
		if (diff_same(was, kv->value))
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

/* ---- targets --------------------------------------------------------------------------------- */

static void delete_step(struct planner *p, const struct conf_target *t, bool force)
{
	struct adm_req *req;

	p->driver = NULL;
	diff_note(p, diff_format(p->c, "Removing target: %s", t->name));
	req = request(p, ADM_TARGET, ADM_DELETE);
	req->force = force;
}

void conf_plan_delete(struct conf *memory, const struct conf_target *t, bool force,
		      struct list *steps)
{
	struct planner p = { .c = memory, .steps = steps, .target = t->name, .tid = t->tid };

	ASSERT(t->name && t->tid);
	p.part = diff_part(&p, CONF_PART_REMOVE, 0);
	delete_step(&p, t, force);
}

/* @what: of it, when it comes back otherwise; NULL: it is gone. */
static void remove_target(struct planner *p, struct conf_target *t, const char *what)
{
	struct conf_lu *lu;

	ASSERT(t->tid && !t->frees);
	p->target = t->name;
	p->tid = t->tid;
	p->pos = (struct conf_pos){ 0 };
	p->part = t->frees = diff_part(p, CONF_PART_REMOVE, 0);
	p->part->what = what;
	delete_step(p, t, p->scope->force);
	p->part = NULL;
	list_for_each(lu, &t->lus, link)
		lu->frees = t->frees;
}

static bool made_anew(const struct conf_target *have, const struct conf_target *want)
{
	return strcmp(have->driver, want->driver) || (want->tid && want->tid != have->tid);
}

/* Targets that the file does not have, or has with another number or driver. */
static void remove_targets(struct planner *p, const struct conf *want)
{
	const struct conf_target *as;
	struct conf_target *t;

	list_for_each(t, &p->have->targets, link) {
		if (p->scope->target && strcmp(p->scope->target, t->name))
			continue;
		as = conf_find_target(want, t->name);
		if (as ? p->scope->update && made_anew(t, as) : p->scope->remove)
			remove_target(p, t, as ? "its driver or tid" : NULL);
	}
}

static void fill_target(struct planner *p, const struct conf_target *have, struct conf_target *want)
{
	ASSERT(p->tid && p->part);
	diff_keys(p, have ? &have->keys : NULL, &want->keys);
	diff_lus(p, have, want);
	diff_users(p, have ? &have->users : NULL, &want->users);
	diff_limits(p, have ? &have->limits : NULL, &want->limits);
	/* last: nobody comes in before everything stands */
	diff_rules(p, have, want);
}

static uint32_t free_tid(struct planner *p, const struct conf *want)
{
	/* There are far fewer targets than numbers: after the last one, the low ones are free. */
	do
		p->next_tid = p->next_tid < INT32_MAX ? p->next_tid + 1 : 1;
	while (conf_find_tid(p->have, p->next_tid) || conf_find_tid(want, p->next_tid));
	return p->next_tid;
}

static void new_target(struct planner *p, const struct conf_target *old, struct conf_target *want)
{
	struct conf_target *number;

	p->tid = want->tid ? want->tid : old ? old->tid : free_tid(p, p->c);
	if (!old)
		/* Numbers go on from the last new one, as they did with tgt-admin. */
		p->next_tid = p->tid;
	/* Numbers may go on from one below this: it is not free any more. */
	want->tid = p->tid;
	p->part = diff_part(p, CONF_PART_NEW_TARGET, 0);
	number = conf_find_tid(p->have, p->tid);
	if (number)
		diff_need(p, p->part, number->frees);
	if (old)
		diff_need(p, p->part, old->frees);
	p->pos = want->pos;
	diff_note(p, diff_format(p->c, "Adding target: %s", want->name));
	request(p, ADM_TARGET, ADM_NEW)->text[ADM_T_TARGETNAME] = want->name;
	p->pos = (struct conf_pos){ 0 };
	fill_target(p, NULL, want);
	if (old)
		diff_need_too(p, old->frees, p->part);
}

static void plan_target(struct planner *p, struct conf_target *want)
{
	struct conf_target *have = conf_find_target(p->have, want->name);

	p->target = want->name;
	p->driver = want->driver;
	p->pos = (struct conf_pos){ 0 };
	if (have && !p->scope->update) {
		p->part = NULL;
		diff_note(p, diff_format(p->c, "Target %s already exists!", want->name));
	} else if (have && !have->frees) {
		p->tid = have->tid;
		p->part = have->changes = diff_part(p, CONF_PART_CHANGE, 0);
		fill_target(p, have, want);
	} else {
		new_target(p, have, want);
	}
	p->part = NULL;
}

/* ---- accounts of nobody, and of discovery ---------------------------------------------------- */

static bool has_user(const struct list *users, const char *user)
{
	struct conf_user *u;

	list_for_each(u, users, link)
		if (!strcmp(u->user, user))
			return true;
	return false;
}

/* Does any line of the file name this account? */
static bool is_wanted(const struct conf *want, const char *user)
{
	struct conf_target *t;

	if (has_user(&want->loose, user) || has_user(&want->users, user))
		return true;
	list_for_each(t, &want->targets, link)
		if (has_user(&t->users, user))
			return true;
	return false;
}

static void plan_accounts(struct planner *p, const struct conf *want)
{
	struct conf_user *u;

	p->target = p->driver = NULL;
	p->tid = 0;
	list_for_each(u, &want->loose, link) {
		p->pos = u->pos;
		account_exists(p, u);
	}
	p->pos = (struct conf_pos){ 0 };
	p->part = diff_part(p, CONF_PART_CHANGE, 0);
	p->part->what = "users of discovery";
	diff_users(p, &p->have->users, &want->users);
	p->part = NULL;
}

/* An account that is only named is left alone. One that nobody makes is not there, as after a
 * restart: that is said. */
static void warn_unknown_accounts(struct planner *p, const struct conf *want)
{
	struct conf_user *u;

	p->target = p->driver = NULL;
	p->tid = 0;
	list_for_each(u, &want->loose, link) {
		if (u->password || conf_get(&p->accounts, u->user))
			continue;
		p->pos = u->pos;
		diff_warn(p, diff_format(p->c,
					 "account %s is not there, and is not made: "
					 "the line has no password",
					 u->user));
	}
	p->pos = (struct conf_pos){ 0 };
}

/* A file that says which accounts there are beside those of its targets and of discovery says so of
 * all: others go, when those who used them are done with. One that does not leaves them alone. */
static void plan_lost_accounts(struct planner *p, const struct conf *want)
{
	struct conf_kv *account;
	struct conf_target *t;

	if (!p->scope->update || list_empty(&want->loose))
		return;
	p->target = p->driver = NULL;
	p->tid = 0;
	list_for_each(account, &p->have->accounts, link) {
		if (is_wanted(want, account->key))
			continue;
		p->part = diff_part(p, CONF_PART_CHANGE, 0);
		p->part->what = diff_format(p->c, "account %s", account->key);
		list_for_each(t, &p->have->targets, link)
			if (has_user(&t->users, account->key))
				diff_need(p, p->part, t->frees ? t->frees : t->changes);
		request(p, ADM_ACCOUNT, ADM_DELETE)->text[ADM_T_USER] = account->key;
		p->part = NULL;
	}
}

static int diff_by_name(const void *a, const void *b)
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

	ASSERT(have != want && steps);
	ASSERT(conf_is_resolved(have) && conf_is_resolved(want));
	list_init(&p.accounts);
	list_for_each(account, &have->accounts, link)
		conf_add_kv(want, &p.accounts, account->key, account->value);
	list_for_each(t, &have->targets, link)
		p.next_tid = MAX(p.next_tid, t->tid);
	order = conf_alloc(want, (want->ntargets + 1) * sizeof(struct conf_target *));
	list_for_each(t, &want->targets, link)
		if (!scope->target || !strcmp(scope->target, t->name))
			order[n++] = t;
	/* by name: numbers of new targets do not depend on the order in the file */
	qsort(order, n, sizeof(struct conf_target *), diff_by_name);
	diff_stores(&p, want);
	/* what goes makes room (stores, numbers) for what comes */
	remove_targets(&p, want);
	if (scope->update)
		diff_changes(&p, order, n);
	if (!scope->target) {
		diff_system_first(&p, want);
		plan_accounts(&p, want);
	}
	for (size_t i = 0; i < n; i++)
		plan_target(&p, order[i]);
	if (!scope->target) {
		warn_unknown_accounts(&p, want);
		plan_lost_accounts(&p, want);
		diff_system_last(&p, want);
	}
}
