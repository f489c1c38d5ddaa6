/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What administrators have set, in the state journal. A record is an object (a target, a logical
 * unit, an account ...), and its value the requests that make it what it is, one after the other as
 * tgtadm would send them. They are made from what the daemon has, not from what was asked: so what
 * was set twice, or refused half-way, is right, too. restore.c runs them.
 *
 *     system             what mode system sets, but for what has to come last; mode cache
 *     a/USER             an account, with its password
 *     t/TID              a target, all but its units
 *     l/TID/LUN          a unit; LUN 0: what was set of the controller
 *     d                  accounts of discovery
 *     late               what others must come before: stopped drivers, weak_secrets, iSNS
 *     portals            where it listens, when somebody has changed that
 *
 * It is written when a request has ended, before it is answered, whether it was refused or not: a
 * refused one may have changed something. What has not changed is not written again.
 */
#include <stdio.h>
#include <stdlib.h>

#include "events/bug.h"
#include "events/log.h"
#include "events/secret.h"
#include "tgtd/admin/admin_int.h"
#include "tgtd/isns/isns.h"
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/iscsi/portal.h"
#include "tgtd/scsi/latency.h"
#include "tgtd/state/journal.h"

/* ---- requests as bytes ----------------------------------------------------------------------- */

static void say(struct adm_out *out, const struct adm_req *req)
{
	static uint8_t buf[ADM_REQ_HEADER + ADM_REQ_MAX];
	const size_t n = adm_req_encode(req, buf, sizeof(buf));

	if (n)
		out_put(out, (const char *)buf, n);
	else
		out->failed = true;
}

static struct adm_req of_target(enum adm_mode mode, enum adm_op op, const struct adm_target *t)
{
	struct adm_req req;

	adm_req_init(&req, mode, op);
	if (t) {
		req.has_tid = true;
		req.tid = t->tid;
	}
	return req;
}

static void say_value(struct adm_out *out, enum adm_mode mode, const struct adm_target *t,
		      const char *name, const char *value)
{
	struct adm_req req = of_target(mode, ADM_UPDATE, t);

	req.text[ADM_T_NAME] = name;
	req.text[ADM_T_VALUE] = value;
	say(out, &req);
}

/* ---- the daemon ------------------------------------------------------------------------------ */

static void say_system(struct adm_out *out)
{
	struct adm_set *set;
	char port[16];

	if (*adm.isns_server)
		say_value(out, ADM_SYSTEM, NULL, "iSNSServerIP", adm.isns_server);
	snprintf(port, sizeof(port), "%u", adm.isns_port);
	if (adm.isns_port != ISNS_PORT)
		say_value(out, ADM_SYSTEM, NULL, "iSNSServerPort", port);
	if (adm.isns_access_control)
		say_value(out, ADM_SYSTEM, NULL, "iSNSAccessControl", "On");
	if (adm.offline)
		say_value(out, ADM_SYSTEM, NULL, "State", "offline");
	if (adm.debug)
		say_value(out, ADM_SYSTEM, NULL, "debug", adm.debug);
	if (lat_initiators())
		say_value(out, ADM_SYSTEM, NULL, "latency_initiators", "on");
	if (!iscsi_default_mask())
		say_value(out, ADM_SYSTEM, NULL, "default-mask", "none");
	list_for_each(set, &adm.cache_keys, link)
		say_value(out, ADM_CACHE, NULL, set->key, set->value);
}

static void say_late(struct adm_out *out)
{
	struct adm_req req;

	for (unsigned d = 0; d < ADM_DRIVERS; d++) {
		if (!adm.lld_stopped[d])
			continue;
		adm_req_init(&req, ADM_LLD, ADM_STOP);
		req.text[ADM_T_LLD] = driver_names[d];
		say(out, &req);
	}
	/* weak ones that are there stay */
	if (adm.refuse_weak)
		say_value(out, ADM_SYSTEM, NULL, "weak_secrets", "refuse");
	if (isns_is_on())
		say_value(out, ADM_SYSTEM, NULL, "iSNS", "On");
}

static void say_portal(const char *name, void *arg)
{
	char text[ISCSI_BIND_TEXT];
	struct adm_req req;

	adm_req_init(&req, ADM_PORTAL, ADM_NEW);
	snprintf(text, sizeof(text), "portal=%s", name);
	req.text[ADM_T_PARAMS] = text;
	say(arg, &req);
}

/* ---- accounts -------------------------------------------------------------------------------- */

struct whose {
	struct adm_out *out;
	const struct adm_target *target; /* NULL: of discovery */
	const char *user;
};

static void say_tie(const char *iqn, void *arg)
{
	const struct whose *w = arg;
	struct adm_req req = of_target(ADM_ACCOUNT, ADM_BIND, w->target);

	req.text[ADM_T_USER] = w->user;
	req.text[ADM_T_INITIATOR] = iqn;
	say(w->out, &req);
}

static void say_user(const char *user, bool outgoing, void *arg)
{
	struct whose *w = arg;
	struct adm_req req = of_target(ADM_ACCOUNT, ADM_BIND, w->target);

	req.text[ADM_T_USER] = w->user = user;
	req.outgoing = outgoing;
	say(w->out, &req);
	if (w->target && !outgoing)
		iscsi_account_each_tie(w->target->scsi, user, say_tie, w);
}

/* ---- targets --------------------------------------------------------------------------------- */

static void say_address(const char *rule, void *arg)
{
	struct whose *w = arg;
	struct adm_req req = of_target(ADM_TARGET, ADM_BIND, w->target);

	req.text[ADM_T_ADDRESS] = rule;
	say(w->out, &req);
}

static void say_name(const char *rule, void *arg)
{
	struct whose *w = arg;
	struct adm_req req = of_target(ADM_TARGET, ADM_BIND, w->target);

	req.text[ADM_T_INITIATOR] = rule;
	say(w->out, &req);
}

static void say_target(struct adm_out *out, struct adm_target *t)
{
	struct adm_req req = of_target(ADM_TARGET, ADM_NEW, t);
	struct whose w = { .out = out, .target = t };
	struct adm_set *set;

	req.text[ADM_T_TARGETNAME] = scsi_target_name(t->scsi);
	req.text[ADM_T_LLD] = driver_names[t->driver];
	say(out, &req);
	list_for_each(set, &t->keys, link)
		say_value(out, ADM_TARGET, t, set->key, set->value);
	if (t->offline)
		say_value(out, ADM_TARGET, t, "state", "offline");
	iscsi_account_each_bound(t->scsi, say_user, &w);
	list_for_each(set, &t->limits, link) {
		req = of_target(ADM_TARGET, ADM_UPDATE, t);
		req.text[ADM_T_INITIATOR] = set->key;
		req.text[ADM_T_PARAMS] = set->value;
		say(out, &req);
	}
	/* Masks that outlived their rule end with the sessions that they are for. */
	list_for_each(set, &t->masks, link) {
		if (set->original)
			continue;
		req = of_target(ADM_TARGET, ADM_UPDATE, t);
		req.text[ADM_T_INITIATOR] = set->key;
		req.text[ADM_T_EXPOSE] = set->value;
		say(out, &req);
	}
	iscsi_acl_each(t->scsi, ISCSI_ACL_ADDRESS, say_address, &w);
	iscsi_acl_each(t->scsi, ISCSI_ACL_NAME, say_name, &w);
}

/* ---- logical units --------------------------------------------------------------------------- */

static struct adm_req of_lu(enum adm_op op, const struct adm_target *t, uint32_t lun)
{
	struct adm_req req = of_target(ADM_LU, op, t);

	req.has_lun = true;
	req.lun = lun;
	return req;
}

/* Mode pages are kept by page; a comma in a value would begin another parameter. */
static void say_param(struct adm_out *out, const struct adm_target *t, uint32_t lun,
		      const char *key, const char *value)
{
	struct adm_req req = of_lu(ADM_UPDATE, t, lun);
	struct adm_out text = { 0 };

	out_printf(&text, "%s=%s", strncmp(key, "mode_page ", 10) ? key : "mode_page", value);
	req.text[ADM_T_PARAMS] = text.buf;
	if (text.failed)
		out->failed = true;
	else
		say(out, &req);
	out_free(&text);
}

static void say_lu(struct adm_out *out, const struct adm_lu *lu)
{
	static const char *const flags[] = { NULL, "sync", "direct", "sync:direct" };
	struct adm_req req = of_lu(ADM_NEW, lu->target, lu->lun);
	/* made without a medium, which came later */
	const bool later = lu->path && lu->initial.removable;
	struct adm_out text = { 0 };
	struct scsi_lu_info info;
	struct adm_set *set;

	scsi_lu_get_info(lu->scsi, &info);
	req.device_type = ADM_TYPE_DISK;
	req.text[ADM_T_PATH] = later ? NULL : lu->path;
	req.text[ADM_T_BSTYPE] = lu->bstype;
	req.text[ADM_T_BSOPTS] = lu->bsopts;
	req.text[ADM_T_BSOFLAGS] = flags[lu->flags & 3];
	req.text[ADM_T_BLOCKSIZE] = lu->blocksize;
	/* what its blocks are, whatever the store has by itself */
	req.has_cid = true;
	req.cid = info.block_size;
	say(out, &req);
	if (later) {
		req.op = ADM_UPDATE;
		out_printf(&text, "path=%s", lu->path);
		req.text[ADM_T_PARAMS] = text.buf;
		req.text[ADM_T_BSTYPE] = req.text[ADM_T_BSOPTS] = req.text[ADM_T_BSOFLAGS] = NULL;
		req.text[ADM_T_BLOCKSIZE] = NULL;
		out->failed |= text.failed;
		say(out, &req);
		out_free(&text);
	}
	list_for_each(set, &lu->params, link)
		say_param(out, lu->target, lu->lun, set->key, set->value);
}

static void say_controller(struct adm_out *out, const struct adm_target *t)
{
	struct adm_set *set;

	list_for_each(set, &t->controller, link)
		say_param(out, t, 0, set->key, set->value);
}

/* ---- what goes to the journal at once -------------------------------------------------------- */

struct batch {
	struct journal_rec *rec;
	unsigned n, cap;
	bool failed;
};

static struct journal_rec *batch_add(struct batch *b, const char *key)
{
	struct journal_rec *rec = b->rec;

	if (b->n == b->cap) {
		b->cap = b->cap ? 2 * b->cap : 8;
		rec = realloc(b->rec, b->cap * sizeof(*rec));
		if (!rec) {
			b->cap = b->n;
			b->failed = true;
			return NULL;
		}
		b->rec = rec;
	}
	rec += b->n;
	*rec = (struct journal_rec){ .key = strdup(key) };
	if (!rec->key) {
		b->failed = true;
		return NULL;
	}
	b->n++;
	return rec;
}

/* Nothing said: the key goes. */
static void batch_put(struct batch *b, const char *key, struct adm_out *out)
{
	struct journal_rec *rec = out->failed ? NULL : batch_add(b, key);

	if (!rec) {
		b->failed = true;
		out_free(out);
		return;
	}
	rec->value = out->buf; /* the batch's now */
	rec->len = out->len;
	*out = (struct adm_out){ 0 };
}

static void batch_drop(const char *key, const void *value, size_t len, void *arg)
{
	batch_add(arg, key);
}

static void batch_free(struct batch *b)
{
	for (unsigned i = 0; i < b->n; i++) {
		free((void *)(uintptr_t)b->rec[i].key);
		if (b->rec[i].secret)
			secret_free((void *)(uintptr_t)b->rec[i].value, b->rec[i].len);
		else
			free((void *)(uintptr_t)b->rec[i].value);
	}
	free(b->rec);
}

/* ---- what a request was about ---------------------------------------------------------------- */

static void note_system(struct batch *b)
{
	struct adm_out out = { 0 };

	say_system(&out);
	batch_put(b, "system", &out);
	say_late(&out);
	batch_put(b, "late", &out);
}

static void note_portals(struct batch *b)
{
	struct adm_out out = { 0 };
	struct adm_req req;

	if (!adm.portals_set)
		return;
	/* There may be none: a request that changes nothing says so. */
	adm_req_init(&req, ADM_PORTAL, ADM_SHOW);
	say(&out, &req);
	iscsi_portal_each(say_portal, &out);
	batch_put(b, ADM_KEY_PORTALS, &out);
}

static void note_target(struct batch *b, uint32_t tid)
{
	struct adm_target *t = registry_target(tid);
	struct adm_out out = { 0 };
	char key[64];

	snprintf(key, sizeof(key), "t/%u", tid);
	if (t) {
		say_target(&out, t);
		batch_put(b, key, &out);
		return;
	}
	batch_add(b, key);
	snprintf(key, sizeof(key), "l/%u/", tid);
	journal_each(key, batch_drop, b);
	snprintf(key, sizeof(key), "s/%u/", tid);
	journal_each(key, batch_drop, b);
}

static void note_discovery(struct batch *b)
{
	struct adm_out out = { 0 };
	struct whose w = { .out = &out };

	iscsi_account_each_bound(NULL, say_user, &w);
	batch_put(b, "d", &out);
}

/* The password is in the request alone. */
static void note_account(struct batch *b, const struct adm_req *of)
{
	const char *user = of->text[ADM_T_USER];
	char key[JOURNAL_KEY_MAX];
	struct journal_rec *rec;
	struct adm_req req;
	uint8_t *buf;
	size_t n;

	snprintf(key, sizeof(key), "a/%s", user);
	adm_req_init(&req, ADM_ACCOUNT, ADM_NEW);
	req.text[ADM_T_USER] = user;
	req.text[ADM_T_PASSWORD] = of->text[ADM_T_PASSWORD];
	req.text[ADM_T_FILE] = iscsi_account_file(user);
	buf = secret_alloc(ADM_REQ_HEADER + ADM_REQ_MAX);
	n = buf ? adm_req_encode(&req, buf, ADM_REQ_HEADER + ADM_REQ_MAX) : 0;
	rec = n ? batch_add(b, key) : NULL;
	if (rec) {
		rec->secret = true;
		rec->value = secret_alloc(n);
		rec->len = n;
		if (rec->value)
			memcpy((void *)(uintptr_t)rec->value, buf, n);
	}
	if (!rec || !rec->value)
		b->failed = true;
	secret_free(buf, ADM_REQ_HEADER + ADM_REQ_MAX);
}

/* Whatever it was bound to has lost it. */
static void note_account_gone(struct batch *b, const char *user)
{
	char key[JOURNAL_KEY_MAX];

	snprintf(key, sizeof(key), "a/%s", user);
	batch_add(b, key);
	note_discovery(b);
	/* One that is being deleted has nothing to say any more. */
	for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t))
		if (!registry_target(scsi_target_tid(t))->busy)
			note_target(b, scsi_target_tid(t));
}

static void note_lu_gone(struct batch *b, uint32_t tid, uint32_t lun)
{
	char key[64];

	snprintf(key, sizeof(key), "l/%u/%u", tid, lun);
	batch_add(b, key);
	snprintf(key, sizeof(key), "s/%u/%u", tid, lun);
	batch_add(b, key);
}

static int batch_commit(struct batch *b)
{
	return b->failed ? -ENOMEM : journal_commit(b->rec, b->n);
}

static int commit_lu(struct batch *b, const struct adm_req *req)
{
	struct adm_target *t = registry_target(req->tid);
	struct adm_lu *lu;
	struct adm_out out = { 0 };
	char key[64];

	/* (While it is busy with something else, nothing can have changed.) */
	if (!req->has_tid || !req->has_lun || req->lun > SCSI_MAX_LUN || !t || t->busy)
		return 0;
	snprintf(key, sizeof(key), "l/%u/%u", req->tid, (unsigned)req->lun);
	lu = req->lun ? registry_lu(t, (uint32_t)req->lun) : NULL;
	if (!req->lun) {
		say_controller(&out, t);
		batch_put(b, key, &out);
		return b->failed ? -ENOMEM : scsi_lu_commit(scsi_lu_find(t->scsi, 0), b->rec, b->n);
	}
	if (!lu) {
		note_lu_gone(b, req->tid, (uint32_t)req->lun);
		return batch_commit(b);
	}
	say_lu(&out, lu);
	batch_put(b, key, &out);
	return b->failed ? -ENOMEM : scsi_lu_commit(lu->scsi, b->rec, b->n);
}

/* The administrator's access states replace those that initiators have set. */
static int commit_target(struct batch *b, const struct adm_req *req)
{
	const char *name = req->text[ADM_T_NAME];
	struct adm_target *t = registry_target(req->tid);
	int err;

	if (!req->has_tid || (t && t->busy))
		return 0;
	note_target(b, req->tid);
	err = batch_commit(b);
	if (!err && t && req->op == ADM_UPDATE && name && !strncmp(name, "alua_", 5))
		for (struct scsi_lu *lu = scsi_lu_next(t->scsi, NULL); lu && !err;
		     lu = scsi_lu_next(t->scsi, lu))
			err = scsi_lu_commit(lu, NULL, 0);
	return err;
}

static void note_accounts(struct batch *b, const struct adm_req *req, enum adm_status status)
{
	const char *user = req->text[ADM_T_USER], *password = req->text[ADM_T_PASSWORD];

	if (req->op == ADM_NEW || req->op == ADM_UPDATE) {
		/* refused or not: is it what the account has now? */
		if (user && password && iscsi_account_check(user, password))
			note_account(b, req);
	} else if (req->op == ADM_DELETE) {
		if (status == ADM_OK && user)
			note_account_gone(b, user);
	} else if (req->has_tid) {
		note_target(b, req->tid);
	} else {
		note_discovery(b);
	}
}

static int record_change(const struct adm_req *req, enum adm_status status)
{
	struct batch b = { 0 };
	int err = 0;

	switch (req->mode) {
	case ADM_SYSTEM:
	case ADM_CACHE:
	case ADM_LLD:
		note_system(&b);
		break;
	case ADM_PORTAL:
		note_portals(&b);
		break;
	case ADM_ACCOUNT:
		note_accounts(&b, req, status);
		break;
	case ADM_TARGET:
		err = commit_target(&b, req);
		break;
	case ADM_LU:
		err = commit_lu(&b, req);
		break;
	default:
		break;
	}
	if (!err && req->mode != ADM_TARGET && req->mode != ADM_LU)
		err = batch_commit(&b);
	batch_free(&b);
	return err;
}

bool record_changes(const struct adm_req *req)
{
	return !req->check && !adm_op_looks((enum adm_op)req->op);
}

/* What a request may add: all of its texts, a few times, and what surrounds them. */
#define ROOM (4 * (size_t)KiB(4))

enum adm_status record_room(struct adm_call *call)
{
	const struct adm_req *req = &call->req;

	if (req->op == ADM_DELETE || req->op == ADM_UNBIND || !record_changes(req) ||
	    journal_has_room(JOURNAL_ROOM_CONFIG, ROOM + 4 * call->fields_size))
		return ADM_OK;
	return admin_refuse(call, ADM_UNKNOWN_ERR,
			    "the state journal is full: what is set now would be lost if the "
			    "daemon's process ended; delete what is not needed");
}

void record_ended(struct adm_call *call, enum adm_status status)
{
	int err;

	if (call->restored || !journal_is_on() || !record_changes(&call->req))
		return;
	err = record_change(&call->req, status);
	if (err)
		log_error("admin: %s %s is not in the state journal: %s. It would be lost if this "
			  "process ended",
			  adm_mode_name(call->req.mode), adm_op_name(call->req.op), strerror(-err));
}
