/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What differs between logical units, and in which order stores go from one to another: whoever is
 * to have a store comes after whoever leaves it. In a circle of LUNs that take each other's stores
 * one is taken down first and made again last.
 */
#include <stdlib.h>

#include "conf/diff_int.h"
#include "events/bug.h"
#include "events/hash.h"

/* conf_lu.how; of the daemon's: OTHER_STORE while it is yet to leave its store */
enum { AS_IT_IS, LEFT_ALONE, OTHER_STORE, MADE_ANEW };

static struct adm_req *lu_request(struct planner *p, enum adm_op op, uint32_t lun)
{
	struct adm_req *req = &diff_add(p)->req;

	ASSERT(p->tid);
	adm_req_init(req, ADM_LU, op);
	req->tid = p->tid;
	req->has_tid = true;
	req->text[ADM_T_LLD] = p->driver;
	req->lun = lun;
	req->has_lun = true;
	return req;
}

static void diff_lu_param(struct planner *p, uint32_t lun, const char *text)
{
	lu_request(p, ADM_UPDATE, lun)->text[ADM_T_PARAMS] = text;
}

/* ---- parameters ------------------------------------------------------------------------------ */

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

	ASSERT(strcmp(key, "params"));
	if (kv)
		kv->value = conf_strdup(c, value);
	else
		kv = conf_add_kv(c, params, key, value);
	kv->pos = pos;
}

/* A value of `params`, as tgt's: ${tid} and ${lun} in it are the numbers of @lu. */
static const char *with_numbers(struct conf *c, uint32_t tid, const struct conf_lu *lu,
				const char *value)
{
	const char *at;

	ASSERT(tid);
	for (size_t from = 0; (at = strstr(value + from, "${"));) {
		bool target = !strncmp(at, "${tid}", 6);

		from = (size_t)(at - value) + 2;
		if (target || !strncmp(at, "${lun}", 6))
			value = diff_format(c, "%.*s%u%s", (int)(at - value), value,
					    target ? tid : lu->lun, at + 6);
	}
	return value;
}

/* Parameters of @lu, of the target @tid, with `params` taken apart into its pairs. */
static void flatten(struct conf *c, uint32_t tid, const struct conf_lu *lu, struct list *out)
{
	const char *word = conf_get(&lu->options, "write-cache");
	struct conf_kv *kv;

	list_init(out);
	list_for_each(kv, &lu->options, link) {
		enum conf_kind kind = conf_kind(kv->key);

		if (kind == CONF_PARAM || (kind == CONF_MULTI && strcmp(kv->key, "params")))
			put_param(c, out, kv->key, kv->value, kv->pos);
		if (strcmp(kv->key, "params"))
			continue;
		for (const char *pair = with_numbers(c, tid, lu, kv->value); *pair;) {
			size_t n = strcspn(pair, ","), eq = strcspn(pair, "=,");

			if (n && eq < n)
				put_param(c, out, diff_format(c, "%.*s", (int)eq, pair),
					  diff_format(c, "%.*s", (int)(n - eq - 1), pair + eq + 1),
					  kv->pos);
			pair += n + (pair[n] != 0);
		}
	}
	/* (The caching page says the rest.) */
	if (word && !strcmp(word, "mirror"))
		put_param(c, out, "write_cache", word, lu->pos);
}


static const char *store_option(const struct conf_lu *lu, const char *key, const char *otherwise)
{
	const char *v = conf_get(&lu->options, key);

	return v ? v : otherwise;
}

const char *conf_lu_path(const struct conf_lu *lu)
{
	return store_option(lu, "path", lu->path);
}

bool conf_has_no_medium(const struct conf_lu *lu)
{
	return !strcmp(conf_lu_path(lu), CONF_NONE);
}

/* Is it the caching page's? Then *wce is where the byte with the bit WCE begins. */
static bool caching(const char *value, const char **wce)
{
	char *end;

	if (strtoul(value, &end, 0) != 8 || *end != ':' || strtoul(end + 1, &end, 0) ||
	    *end != ':')
		return false;
	(void)!strtoul(end + 1, &end, 0);
	*wce = *end == ':' ? end + 1 : end;
	return true;
}

/* What write-cache says is off: WCE is zero. `through` is another word for it. */
static bool is_off(const char *word)
{
	return !strcmp(word, "off") || !strcmp(word, "through");
}

/*
 * The caching page that @lu is to have, taken out of its @params; NULL: as it is made.
 * `write-cache` and a mode_page may both speak of it: the first says WCE, the other the rest.
 */
static const char *diff_lu_caching_page(struct conf *c, const struct conf_lu *lu,
					struct list *params)
{
	const char *word = conf_get(&lu->options, "write-cache"), *page = NULL, *wce;
	struct conf_kv *kv, *tmp;
	unsigned long byte;
	char *end;

	list_for_each_safe(kv, tmp, params, link) {
		if (strcmp(kv->key, "mode_page") || !caching(kv->value, &wce))
			continue;
		page = kv->value;
		list_del(&kv->link);
	}
	if (!page)
		return word && is_off(word) ? CONF_WRITE_CACHE_OFF : NULL;
	caching(page, &wce);
	byte = strtoul(wce, &end, 0);
	if (!word || is_off(word) == ((byte & 4) == 0))
		return page;
	return diff_format(c, "%.*s%#lx%s", (int)(wce - page), page, byte ^ 4, end);
}

/* Are writes acknowledged from the store only, whatever the caching page says? */
static bool write_through(const struct conf_lu *lu)
{
	return strstr(store_option(lu, "bsopts", ""), "cache=write-through") ||
	       strstr(store_option(lu, "bsoflags", ""), "sync");
}

static bool same_caching(const struct conf_lu *lu, const char *a, const char *b)
{
	a = diff_same(a, CONF_WRITE_CACHE_ON) ? NULL : a;
	b = diff_same(b, CONF_WRITE_CACHE_ON) ? NULL : b;
	if (write_through(lu)) {
		a = diff_same(a, CONF_WRITE_CACHE_OFF) ? NULL : a;
		b = diff_same(b, CONF_WRITE_CACHE_OFF) ? NULL : b;
	}
	return diff_same(a, b);
}

/* Of a caching page: is WCE set? */
static bool has_wce(const char *page)
{
	const char *wce;

	return caching(page, &wce) && strtoul(wce, NULL, 0) & 4;
}

/* As much of a text as INQUIRY data have room for: the daemon cuts what is longer. */
static size_t held(const char *key, const char *value)
{
	static const struct {
		const char *key;
		size_t room;
	} table[] = {
		{ "scsi_id", 24 },    { "scsi_sn", 36 },    { "vendor_id", 8 },
		{ "product_id", 16 }, { "product_rev", 4 },
	};
	size_t n = strlen(value);

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (strcmp(table[i].key, key))
			continue;
		n = MIN(n, table[i].room);
		while (n && value[n - 1] == ' ')
			n--;
	}
	return n;
}

static bool same_value(const char *key, const char *a, const char *b)
{
	size_t n = held(key, a);

	return n == held(key, b) && !memcmp(a, b, n);
}

/* Mode pages come first: some of the others depend on them. */
static void diff_params(struct planner *p, const struct conf_lu *have, const struct conf_lu *want)
{
	const char *page, *page_now = NULL;
	struct list old, new;
	struct conf_kv *kv, *was;

	flatten(p->c, p->tid, want, &new);
	page = diff_lu_caching_page(p->c, want, &new);
	list_init(&old);
	if (have) {
		flatten(p->c, p->tid, have, &old);
		page_now = diff_lu_caching_page(p->c, have, &old);
	}
	for (int pages = 1; pages >= 0; pages--) {
		list_for_each(kv, &new, link) {
			bool is_page = !strcmp(kv->key, "mode_page");

			if (is_page != pages || !strcmp(kv->key, "path"))
				continue;
			was = find_param(&old, kv);
			p->pos = kv->pos;
			if (!was || !same_value(kv->key, was->value, kv->value))
				diff_lu_param(p, want->lun,
					      diff_format(p->c, "%s=%s", kv->key, kv->value));
		}
		p->pos = want->pos;
		if (!pages)
			break;
		if (have ? !same_caching(want, page_now, page) : page != NULL)
			diff_lu_param(p, want->lun,
				      diff_format(p->c, "mode_page=%s",
						  page ? page : CONF_WRITE_CACHE_ON));
		else if (!have)
			diff_note(p, diff_format(p->c,
						 "Write cache is enabled (default) for lun %u.",
						 want->lun));
	}
	list_for_each(kv, &old, link)
		if (!find_param(&new, kv)) /* back to the default */
			diff_lu_param(p, want->lun,
				      !strcmp(kv->key, "write_cache") && page && !has_wce(page) ?
					      "write_cache=off" :
					      kv->key);
}

/* A mode page that is no longer asked for has no value to go back to, but the caching page. */
static bool lost_page(struct planner *p, uint32_t tid, const struct conf_lu *have,
		      const struct conf_lu *want)
{
	struct list old, new;
	struct conf_kv *kv;
	const char *wce;

	flatten(p->c, tid, have, &old);
	flatten(p->c, tid, want, &new);
	list_for_each(kv, &old, link)
		if (!strcmp(kv->key, "mode_page") && !find_param(&new, kv) &&
		    !caching(kv->value, &wce))
			return true;
	return false;
}

/* ---- stores ---------------------------------------------------------------------------------- */

struct holder {
	struct list link;
	const struct conf_lu *lu;
};

/* What several LUs may have by turns. */
struct conf_store {
	struct conf_store *next;
	const char *key;
	struct list holders;	       /* LUs of the daemon */
	const struct conf_lu *claimed; /* by this one of the file */
};

/* Their "path" is a size. */
static bool is_memory(const struct conf_lu *lu)
{
	const char *type = store_option(lu, "bs-type", "rdwr");

	return !strcmp(type, "ram") || !strcmp(type, "null");
}

static struct conf_store *store_of(struct planner *p, const struct conf_lu *lu)
{
	const char *path = conf_lu_path(lu);
	struct conf_store *s, **bucket;
	uint64_t hash;
	char key[4200];

	ASSERT(p->nstores && !(p->nstores & (p->nstores - 1)));
	if (is_memory(lu) || conf_has_no_medium(lu))
		return NULL;
	if (p->scope->identify)
		p->scope->identify(p->scope->arg, path, key, sizeof(key));
	else
		snprintf(key, sizeof(key), "%s", path);
	hash = fnv1a(FNV1A_INIT, key, strlen(key));
	bucket = &p->stores[hash & (p->nstores - 1)];
	for (s = *bucket; s; s = s->next)
		if (!strcmp(s->key, key))
			return s;
	s = conf_alloc(p->c, sizeof(*s));
	s->key = conf_strdup(p->c, key);
	list_init(&s->holders);
	s->next = *bucket;
	*bucket = s;
	return s;
}

void diff_stores(struct planner *p, struct conf *want)
{
	struct conf_target *t;
	struct conf_lu *lu;

	p->nstores = 64;
	while (p->nstores < p->have->nlus + want->nlus)
		p->nstores *= 2;
	p->stores = conf_alloc(p->c, p->nstores * sizeof(struct conf_store *));
	list_for_each(t, &p->have->targets, link) {
		t->frees = t->changes = NULL;
		list_for_each(lu, &t->lus, link) {
			lu->frees = NULL;
			lu->how = AS_IT_IS;
			lu->store = store_of(p, lu);
			if (!lu->store)
				continue;
			struct holder *h = conf_alloc(p->c, sizeof(*h));

			list_init(&h->link);
			h->lu = lu;
			list_add_tail(&lu->store->holders, &h->link);
		}
	}
	list_for_each(t, &want->targets, link) {
		list_for_each(lu, &t->lus, link) {
			lu->how = AS_IT_IS;
			lu->store = store_of(p, lu);
		}
	}
}

/* Does somebody stay on the store that @lu is to have, or come before it? */
static bool diff_lu_taken(const struct conf_lu *lu)
{
	const struct holder *h;

	if (!lu->store)
		return false;
	if (lu->store->claimed && lu->store->claimed != lu)
		return true;
	list_for_each(h, &lu->store->holders, link)
		if (!h->lu->frees)
			return true;
	return false;
}

static bool usable(struct planner *p, const struct conf_lu *lu, bool is_taken)
{
	return p->scope->usable ? p->scope->usable(p->scope->arg, lu, is_taken, diff_warn, p) :
				  !is_taken;
}

/* Whoever leaves the store that @lu gets has left before. */
static void need_store(struct planner *p, struct conf_part *part, const struct conf_lu *lu)
{
	const struct holder *h;

	if (lu->store)
		list_for_each(h, &lu->store->holders, link)
			diff_need(p, part, h->lu->frees);
}

static void claim(const struct conf_lu *lu)
{
	if (lu->store && !lu->store->claimed)
		lu->store->claimed = lu;
}

/* ---- what changes its store, or is made anew ------------------------------------------------- */

static unsigned flags_of(const struct conf_lu *lu)
{
	const char *flags = store_option(lu, "bsoflags", "");

	return (strstr(flags, "sync") ? 1u : 0) | (strstr(flags, "direct") ? 2u : 0);
}

static bool same_option(const struct conf_lu *a, const struct conf_lu *b, const char *key,
			const char *otherwise)
{
	return !strcmp(store_option(a, key, otherwise), store_option(b, key, otherwise));
}

static bool same_store_kind(const struct conf_lu *a, const struct conf_lu *b)
{
	return flags_of(a) == flags_of(b) && same_option(a, b, "bs-type", "rdwr") &&
	       same_option(a, b, "bsopts", "") && same_option(a, b, "block-size", "") &&
	       same_option(a, b, "device-type", "disk");
}

struct change {
	struct list link;
	struct conf_lu *have, *want;
	const struct conf_target *target;
	const char *driver;
	bool was_taken;
};

/* What is done next is done to this LU. */
static void turn_to(struct planner *p, const struct conf_target *have, const char *driver,
		    const struct conf_lu *lu)
{
	ASSERT(have->tid && driver);
	p->target = have->name;
	p->tid = have->tid;
	p->driver = driver;
	p->pos = lu->pos;
}

static void remove_lu(struct planner *p, const struct change *ch)
{
	turn_to(p, ch->target, ch->driver, ch->have);
	if (ch->want)
		p->pos = ch->want->pos;
	p->part = diff_part(p, CONF_PART_REMOVE, ch->have->lun);
	ch->have->frees = p->part;
	ch->have->how = AS_IT_IS;
	lu_request(p, ADM_DELETE, ch->have->lun);
	p->part = NULL;
}

static void diff_lu_collect(struct planner *p, struct conf_target *have, struct conf_target *want,
			    struct list *changes)
{
	struct conf_lu *lu, *as;

	list_for_each(lu, &have->lus, link) {
		struct change *ch = conf_alloc(p->c, sizeof(*ch));

		as = conf_find_lun(want, lu->lun);
		*ch = (struct change){ .have = lu, .want = as, .target = have,
				       .driver = want->driver };
		list_init(&ch->link);
		if (!as) {
			remove_lu(p, ch);
			continue;
		}
		if (!same_store_kind(lu, as) || lost_page(p, have->tid, lu, as) ||
		    (conf_has_no_medium(as) && !conf_has_no_medium(lu)))
			as->how = MADE_ANEW;
		else if (strcmp(conf_lu_path(lu), conf_lu_path(as)))
			as->how = OTHER_STORE;
		else
			continue;
		turn_to(p, have, want->driver, as);
		/* so that it does not count as staying; remove_lu() makes the true one */
		lu->frees = diff_part(p, CONF_PART_CHANGE, lu->lun);
		lu->how = OTHER_STORE;
		list_add_tail(changes, &ch->link);
	}
}

/* Without those whose store is not to be had: then they stay where they are, and others that were
 * to follow them cannot. */
static void drop_impossible(struct planner *p, struct list *changes)
{
	struct change *ch, *tmp;
	bool first = true, dropped = true;

	for (; dropped; first = false) {
		dropped = false;
		list_for_each(ch, changes, link)
			if (ch->want->store)
				ch->want->store->claimed = NULL;
		list_for_each_safe(ch, tmp, changes, link) {
			bool is_taken = diff_lu_taken(ch->want);

			claim(ch->want);
			if (!first && is_taken == ch->was_taken)
				continue;
			ch->was_taken = is_taken;
			turn_to(p, ch->target, ch->driver, ch->want);
			if (usable(p, ch->want, is_taken))
				continue;
			if (ch->want->store && ch->want->store->claimed == ch->want)
				ch->want->store->claimed = NULL;
			ch->want->how = LEFT_ALONE;
			ch->have->frees = NULL;
			ch->have->how = AS_IT_IS;
			list_del(&ch->link);
			dropped = true;
		}
	}
}

/* Who else is on its store, and yet to leave it? */
static const struct conf_lu *waits_for(const struct change *ch)
{
	const struct holder *h;

	if (ch->want->store)
		list_for_each(h, &ch->want->store->holders, link)
			if (h->lu != ch->have && h->lu->how == OTHER_STORE)
				return h->lu;
	return NULL;
}

static void move_lu(struct planner *p, struct change *ch)
{
	ASSERT(ch->want->how == OTHER_STORE && ch->have->frees);
	turn_to(p, ch->target, ch->driver, ch->want);
	p->part = ch->have->frees;
	need_store(p, p->part, ch->want);
	diff_lu_param(p, ch->want->lun, diff_format(p->c, "path=%s", conf_lu_path(ch->want)));
	p->part = NULL;
	ch->have->how = AS_IT_IS;
	list_del(&ch->link);
}

static struct change *next_in_line(const struct change *ch, const struct list *changes)
{
	const struct conf_lu *lu = waits_for(ch);
	struct change *other;

	ASSERT(lu);
	list_for_each(other, changes, link)
		if (other->have == lu)
			return other;
	BUG("who waits, waits for one that is yet to move");
}

/* All wait for each other. Of a circle the first whose target nobody uses is made anew, or just the
 * first. */
static void break_circle(struct planner *p, struct list *changes)
{
	struct change *ch, *victim, *begin = list_first(changes, struct change, link);

	/* after as many steps as there are changes one is in a circle */
	list_for_each(ch, changes, link)
		begin = next_in_line(begin, changes);
	victim = begin;
	do {
		if (!p->scope->in_use || !p->scope->in_use(p->scope->arg, victim->target->tid))
			break;
		victim = next_in_line(victim, changes);
	} while (victim != begin);
	victim->want->how = MADE_ANEW;
	remove_lu(p, victim);
	list_del(&victim->link);
}

void diff_changes(struct planner *p, struct conf_target *const *targets, size_t n)
{
	struct list changes = LIST_INIT(changes);
	struct change *ch, *tmp;

	ASSERT(p->stores);
	for (size_t i = 0; i < n; i++) {
		struct conf_target *have = conf_find_target(p->have, targets[i]->name);

		if (have && !have->frees)
			diff_lu_collect(p, have, targets[i], &changes);
	}
	drop_impossible(p, &changes);
	list_for_each_safe(ch, tmp, &changes, link) {
		if (ch->want->how != MADE_ANEW)
			continue;
		remove_lu(p, ch);
		list_del(&ch->link);
	}
	while (!list_empty(&changes)) {
		bool any = false;

		list_for_each_safe(ch, tmp, &changes, link) {
			if (waits_for(ch))
				continue;
			move_lu(p, ch);
			any = true;
		}
		if (!any)
			break_circle(p, &changes);
	}
}

/* ---- the LUs of a target --------------------------------------------------------------------- */

/* @old: it is made anew. The part at work is that of a new target, or of the target. */
static void new_lu(struct planner *p, const struct conf_lu *old, const struct conf_lu *lu)
{
	struct conf_part *of_target = p->part;
	struct adm_req *req;
	bool is_taken;

	ASSERT(of_target && (!old || old->frees));
	p->pos = lu->pos;
	if (!old) {
		is_taken = diff_lu_taken(lu);
		if (!usable(p, lu, is_taken))
			return;
		claim(lu);
	}
	if (p->part->kind != CONF_PART_NEW_TARGET)
		p->part = diff_part(p, CONF_PART_NEW_LU, lu->lun);
	need_store(p, p->part, lu);
	if (old) {
		diff_need(p, p->part, old->frees);
		diff_need_too(p, old->frees, p->part);
	}
	req = lu_request(p, ADM_NEW, lu->lun);
	req->text[ADM_T_PATH] = strcmp(lu->path, CONF_NONE) ? lu->path : NULL;
	req->text[ADM_T_BSTYPE] = store_option(lu, "bs-type", NULL);
	req->text[ADM_T_BSOPTS] = store_option(lu, "bsopts", NULL);
	req->text[ADM_T_BSOFLAGS] = store_option(lu, "bsoflags", NULL);
	req->text[ADM_T_BLOCKSIZE] = store_option(lu, "block-size", NULL);
	diff_params(p, NULL, lu);
	if (conf_get(&lu->options, "path"))
		diff_lu_param(p, lu->lun, diff_format(p->c, "path=%s", conf_lu_path(lu)));
	p->part = of_target;
}

/* A store that grew hurts nobody; of one that shrank, initiators lose what they may use. */
static void diff_size(struct planner *p, const struct conf_lu *have, const struct conf_lu *want)
{
	bool shrank = want->size < have->size;

	if (!have->size || !want->size || want->size == have->size)
		return;
	p->pos = want->pos;
	p->part = diff_part(p, shrank ? CONF_PART_REMOVE : CONF_PART_CHANGE, want->lun);
	p->part->what = diff_format(p->c, "the size of LUN %u", want->lun);
	diff_lu_param(p, want->lun, "refresh=1");
}

static void diff_lu(struct planner *p, const struct conf_lu *have, const struct conf_lu *want)
{
	struct conf_part *of_target = p->part;

	ASSERT(have->lun == want->lun && p->part);
	if (want->how == MADE_ANEW) {
		new_lu(p, have, want);
		return;
	}
	if (want->how == LEFT_ALONE)
		return;
	p->part = diff_part(p, CONF_PART_CHANGE, want->lun);
	diff_params(p, have, want);
	if (want->how == AS_IT_IS)
		diff_size(p, have, want);
	p->part = of_target;
}

static int by_lun(const void *a, const void *b)
{
	const struct conf_lu *x = *(struct conf_lu *const *)a, *y = *(struct conf_lu *const *)b;

	return x->lun < y->lun ? -1 : x->lun > y->lun;
}

void diff_lus(struct planner *p, const struct conf_target *have, struct conf_target *want)
{
	const struct conf_lu *lu, **order;
	size_t n = 0;

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
			new_lu(p, NULL, order[i]);
	}
	p->pos = (struct conf_pos){ 0 };
}
