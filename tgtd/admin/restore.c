/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The way back from the state journal: the requests that record.c wrote are run as if an
 * administrator sent them, by the same verbs. In four steps, each when the one before is over:
 *
 *     system, accounts -> targets with their units -> discovery, late -> portals
 *
 * A target's requests run in order. Targets do not wait for each other: what takes time is the
 * opening of stores. What others ask meanwhile waits until all is back; nobody can log in yet.
 * Nothing is recorded meanwhile, so an end in the middle loses nothing.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cache/backend/store_kept.h"
#include "events/bug.h"
#include "events/clock.h"
#include "events/log.h"
#include "events/secret.h"
#include "tgtd/admin/admin_int.h"
#include "tgtd/state/journal.h"

struct item {
	struct list link;
	uint8_t *value; /* secret.h */
	size_t len, at;
};

/* Requests that run one after the other. */
struct chain {
	struct list link, items;
	struct loop_deferred go_on;
	uint32_t tid; /* 0: of no target */
	bool running; /* one of them, now */
};

enum step { STEP_SYSTEM, STEP_TARGETS, STEP_LATE, STEP_PORTALS, STEPS };

static struct {
	struct list chains[STEPS];
	enum step step;
	unsigned left; /* chains of this step */
	unsigned requests, refused;
	bool failed;  /* no memory */
	bool portals; /* are wanted */
	uint64_t began;
	struct loop_deferred next;
	void (*over)(void *arg);
	void *arg;
} restore;

/* ---- what is to be done ---------------------------------------------------------------------- */

static struct chain *chain_of(enum step step, uint32_t tid)
{
	struct list *chains = &restore.chains[step];
	struct chain *c;

	/* A target's records are found together, mostly. */
	for (struct list *l = chains->prev; l != chains; l = l->prev) {
		c = list_entry(l, struct chain, link);
		if (c->tid == tid)
			return c;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	list_init(&c->link);
	list_init(&c->items);
	c->tid = tid;
	list_add_tail(chains, &c->link);
	return c;
}

/* Of whose step a record is, and whose chain; STEPS: it holds no requests. */
static enum step restore_step_of(const char *key, uint32_t *tid)
{
	*tid = 0;
	if (!strcmp(key, "system") || !strncmp(key, "a/", 2))
		return STEP_SYSTEM;
	if (!strcmp(key, "d") || !strcmp(key, "late"))
		return STEP_LATE;
	if (!strcmp(key, ADM_KEY_PORTALS))
		return STEP_PORTALS;
	if (strncmp(key, "t/", 2) && strncmp(key, "l/", 2))
		return STEPS;
	*tid = (uint32_t)strtoul(key + 2, NULL, 10);
	return STEP_TARGETS;
}

static void collect(const char *key, const void *value, size_t len, void *unused)
{
	uint32_t tid;
	const enum step step = restore_step_of(key, &tid);
	struct chain *c;
	struct item *it;

	if (step == STEPS || !len || (step == STEP_PORTALS && !restore.portals))
		return;
	c = chain_of(step, tid);
	it = c ? calloc(1, sizeof(*it)) : NULL;
	if (it)
		it->value = secret_alloc(len);
	if (!it || !it->value) {
		free(it);
		restore.failed = true;
		return;
	}
	memcpy(it->value, value, len);
	it->len = len;
	list_init(&it->link);
	/* the target before its units, which stand before it when it was recorded anew */
	if (*key == 't' || !strcmp(key, "system"))
		list_add_head(&c->items, &it->link);
	else
		list_add_tail(&c->items, &it->link);
}

static void item_free(struct item *it)
{
	list_del(&it->link);
	secret_free(it->value, it->len);
	free(it);
}

/* ---- doing it -------------------------------------------------------------------------------- */

static void request_over(struct adm_call *call, enum adm_status status)
{
	struct chain *c = call->restored;
	const struct adm_req *req = &call->req;

	ASSERT(c->running);
	restore.requests++;
	if (status != ADM_OK) {
		restore.refused++;
		log_error("restoring: %s %s, target %u, LUN %u: %s%s%s", adm_mode_name(req->mode),
			  adm_op_name(req->op), req->tid, (unsigned)req->lun,
			  adm_status_text(status), *call->detail ? ": " : "", call->detail);
	}
	c->running = false;
	loop_defer(adm.conf.main, &c->go_on);
}

/* The next request of @it; NULL: there is none, or it is none. */
static struct adm_call *call_of(struct chain *c, struct item *it)
{
	struct adm_call *call = NULL;
	int n = it->len - it->at < ADM_REQ_HEADER ? -EPROTO : adm_req_header(it->value + it->at);

	if (n >= 0 && (size_t)n <= it->len - it->at - ADM_REQ_HEADER)
		call = calloc(1, sizeof(*call));
	if (call)
		call->fields = secret_alloc((size_t)n + 1);
	if (!call || !call->fields) {
		free(call);
		return NULL;
	}
	call->fields_size = (size_t)n + 1;
	memcpy(call->fields, it->value + it->at + ADM_REQ_HEADER, (size_t)n);
	it->at += ADM_REQ_HEADER + (size_t)n;
	if (adm_req_decode(&call->req, call->fields, (size_t)n)) {
		secret_free(call->fields, call->fields_size);
		free(call);
		return NULL;
	}
	call->file = -1;
	call->restored = c;
	call->ended = request_over;
	if (call->req.mode == ADM_LU && call->req.has_cid)
		call->block_size = call->req.cid;
	list_init(&call->wait);
	return call;
}

/* All of its requests have been run: now what initiators have done to its units. */
static void units_back(uint32_t tid)
{
	struct adm_target *t = registry_target(tid);

	for (struct scsi_lu *lu = t ? scsi_lu_next(t->scsi, NULL) : NULL; lu;
	     lu = scsi_lu_next(t->scsi, lu)) {
		struct scsi_lu_info info;

		if (!scsi_lu_restore(lu))
			continue;
		scsi_lu_get_info(lu, &info);
		log_error("restoring: target %u LUN %u: not all that initiators have set of it is "
			  "understood",
			  tid, info.conf.lun);
	}
}

static void chain_over(struct chain *c)
{
	if (c->tid)
		units_back(c->tid);
	list_del(&c->link);
	free(c);
	ASSERT(restore.left);
	if (!--restore.left)
		loop_defer(adm.conf.main, &restore.next);
}

static void chain_go_on(struct loop_deferred *d)
{
	struct chain *c = container_of(d, struct chain, go_on);
	struct item *it = list_first_or_null(&c->items, struct item, link);
	struct adm_call *call;

	ASSERT(!c->running);
	while (it && it->at == it->len) {
		item_free(it);
		it = list_first_or_null(&c->items, struct item, link);
	}
	if (!it) {
		chain_over(c);
		return;
	}
	call = call_of(c, it);
	if (!call) {
		log_error("restoring: target %u: a record is not understood", c->tid);
		restore.refused++;
		it->at = it->len;
		loop_defer(adm.conf.main, &c->go_on);
		return;
	}
	c->running = true;
	adm_call_run(call);
}

/* ---- the end --------------------------------------------------------------------------------- */

struct orphans {
	char **key;
	unsigned n, cap;
};

/* "s/TID/LUN" is the unit's, "l/TID/LUN", or the controller's, "t/TID". */
static void look_for_orphan(const char *key, const void *value, size_t len, void *arg)
{
	struct orphans *o = arg;
	char **more;

	if (o->n == o->cap) {
		more = realloc(o->key, (o->cap ? 2 * o->cap : 64) * sizeof(*more));
		if (!more)
			return;
		o->key = more;
		o->cap = o->cap ? 2 * o->cap : 64;
	}
	o->key[o->n] = strdup(key);
	o->n += o->key[o->n] != NULL;
}

static bool is_orphan(const char *key)
{
	char owner[64];
	unsigned tid = 0, lun = 0;
	size_t len;
	void *value;

	if (sscanf(key, "s/%u/%u", &tid, &lun) != 2)
		return true;
	if (lun)
		snprintf(owner, sizeof(owner), "l/%u/%u", tid, lun);
	else
		snprintf(owner, sizeof(owner), "t/%u", tid);
	value = journal_get(owner, &len);
	free(value);
	return !value;
}

/* Of units that were being made when the process ended: the next of their number begins anew. */
static void drop_orphans(void)
{
	struct orphans o = { 0 };

	journal_each("s/", look_for_orphan, &o);
	for (unsigned i = 0; i < o.n; i++) {
		const struct journal_rec rec = { .key = o.key[i] };

		if (is_orphan(o.key[i]) && journal_commit(&rec, 1))
			log_error("restoring: %s stays in the state journal", o.key[i]);
		free(o.key[i]);
	}
	free(o.key);
}

static void restore_end(void)
{
	journal_freeze(adm.draining);
	drop_orphans();
	late_rest();
	log_notice("restored what was configured: %u targets, %u requests in %u ms, %u refused%s",
		   adm.ntargets, restore.requests,
		   (unsigned)((clock_now_ns() - restore.began) / NSEC_PER_MSEC), restore.refused,
		   restore.failed ? "; not all of it, for lack of memory" : "");
	restore.over(restore.arg);
}

void journal_restored(void)
{
	struct adm_call *call;

	ASSERT(adm.restoring);
	adm.restoring = false;
	while ((call = list_first_or_null(&adm.parked, struct adm_call, wait))) {
		list_del(&call->wait);
		adm_call_run(call);
	}
}

static void next_step(struct loop_deferred *d)
{
	struct list *chains;
	struct chain *c;

	ASSERT(!restore.left);
	if (++restore.step == STEPS) {
		restore_end();
		return;
	}
	chains = &restore.chains[restore.step];
	list_for_each(c, chains, link)
		restore.left++;
	if (!restore.left) {
		loop_defer(adm.conf.main, &restore.next);
		return;
	}
	list_for_each(c, chains, link) {
		loop_deferred_init(&c->go_on, chain_go_on);
		loop_defer(adm.conf.main, &c->go_on);
	}
}

void journal_restore(bool portals, void (*over)(void *arg), void *arg)
{
	ASSERT_ON_LOOP(adm.conf.main);
	ASSERT(over && !adm.restoring && !adm.ntargets);
	adm.restoring = true;
	store_kept_start();
	if (!journal_found()) {
		store_kept_rest();
		over(arg);
		return;
	}
	for (unsigned i = 0; i < STEPS; i++)
		list_init(&restore.chains[i]);
	restore.over = over;
	restore.arg = arg;
	restore.began = clock_now_ns();
	restore.step = (enum step) - 1;
	restore.left = restore.requests = restore.refused = 0;
	restore.failed = false;
	restore.portals = portals;
	journal_freeze(true);
	journal_each("", collect, NULL);
	adm.portals_restored = !list_empty(&restore.chains[STEP_PORTALS]);
	loop_deferred_init(&restore.next, next_step);
	loop_defer(adm.conf.main, &restore.next);
}

bool journal_had_portals(void)
{
	return adm.portals_restored;
}
