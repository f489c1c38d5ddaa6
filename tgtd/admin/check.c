/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Requests that are only to be checked: tgt-admin asks so for every step of its plan before it
 * takes the first. What is looked at is what a request says (names, numbers, options, whether a
 * store can be opened); what it is about may be made by an earlier step, and is taken to be there.
 */
#include <stdio.h>
#include <stdlib.h>

#include "events/bug.h"
#include "tgtd/admin/admin_int.h"
#include "tgtd/iscsi/iscsi.h"

static enum adm_status check_target_new(struct adm_call *call)
{
	const char *name = call->req.text[ADM_T_TARGETNAME];

	if (!call->req.has_tid || !call->req.tid || !name)
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "a target needs a tid above 0 and a name");
	return apply_target_check(call, name);
}

static enum adm_status check_target_update(struct adm_call *call)
{
	const char *name = call->req.text[ADM_T_NAME], *value = call->req.text[ADM_T_VALUE];
	const char *why;
	int err;

	if (call->req.text[ADM_T_INITIATOR] && call->req.text[ADM_T_PARAMS])
		return limit_check(call);
	if (!name || !value || !strcmp(name, "state") || !*value)
		return ADM_OK; /* "" takes back what was set */
	err = target_idle_key(name, value, &why);
	if (!err)
		warn(call, "%s has no effect: %s", name, why);
	if (err == -ENOENT)
		err = iscsi_target_check(name, value);
	if (err == -ENOENT)
		return refuse_key(call, "target", name);
	return err ? refuse_value(call, name, value) : ADM_OK;
}

static enum adm_status check_target_bind(struct adm_call *call)
{
	warn_odd_name(call);
	return ADM_OK;
}

/* ---- stores ---------------------------------------------------------------------------------- */

struct trial {
	struct store_trial store;
	struct adm_call *call;
};

static void tried(struct store_trial *st)
{
	struct trial *t = container_of(st, struct trial, store);
	struct adm_call *call = t->call;
	enum adm_status status = st->needs_file ? ADM_NEEDS_FILE : ADM_INVALID_REQUEST;

	/* (Only tried: how it is open makes no difference.) */
	status = st->err ? admin_refuse(call, status, "%s", st->reason) : ADM_OK;

	free(t);
	adm_call_done(call, status);
}

/* @bstype: NULL, or a type whose path is no file's name. */
static enum adm_status try_store(struct adm_call *call, const char *path, const char *bstype,
				 const char *bsopts, uint32_t block_size)
{
	struct trial *t = calloc(1, sizeof(*t));

	ASSERT(path);
	if (!t)
		return ADM_NOMEM;
	t->call = call;
	t->store.path = path;
	t->store.bstype = bstype;
	t->store.bsopts = bsopts;
	t->store.block_size = block_size || bstype ? block_size : 512;
	t->store.file = call->file;
	t->store.done = tried;
	store_try(&t->store);
	return ADM_PENDING;
}

static enum adm_status check_lu_store(struct adm_call *call)
{
	const struct apply_lu want = {
		.device_type = call->req.device_type,
		.path = call->req.text[ADM_T_PATH],
		.bstype = call->req.text[ADM_T_BSTYPE],
		.bsopts = call->req.text[ADM_T_BSOPTS],
		.bsoflags = call->req.text[ADM_T_BSOFLAGS],
		.blocksize = call->req.text[ADM_T_BLOCKSIZE],
	};
	uint32_t block_size;
	enum adm_status status;

	if (!call->req.has_lun || !call->req.lun || call->req.lun > SCSI_MAX_LUN)
		return admin_refuse(call, ADM_INVALID_REQUEST, "LUNs go from 1 to %d",
				    SCSI_MAX_LUN);
	status = apply_lu_check(call, &want, &block_size);
	if (status != ADM_OK || !want.path)
		return status;
	bool file = !want.bstype || !strcmp(want.bstype, "rdwr") || !strcmp(want.bstype, "aio");

	return try_store(call, want.path, file ? NULL : want.bstype, want.bsopts, block_size);
}

void warn_cut(struct adm_call *call, const char *key, const char *value, int left)
{
	ASSERT(left > 0 && (size_t)left < strlen(value));
	warn(call, "target %u LUN %u: %s is cut to %d characters, '%.*s'", call->req.tid,
	     (unsigned)call->req.lun, key, left, left, value);
}

enum adm_status check_lu_params(struct adm_call *call)
{
	const char *p = call->req.text[ADM_T_PARAMS];

	while (p && *p) {
		const char *end = strchrnul(p, ',');
		char pair[4096], *value;
		size_t len = (size_t)(end - p);
		int err;

		p = *end ? end + 1 : end;
		if (len >= sizeof(pair))
			return admin_refuse(call, ADM_INVALID_REQUEST,
					    "a parameter is longer than %zu bytes",
					    sizeof(pair) - 1);
		memcpy(pair, end - len, len);
		pair[len] = 0;
		value = strchr(pair, '=');
		if (!value)
			continue; /* back to what it was */
		*value++ = 0;
		if (!strcmp(pair, "refresh") || !strcmp(pair, "resize") || !strcmp(pair, "path") ||
		    !strcmp(pair, "owner") || !strcmp(pair, "mirror"))
			continue; /* `path` may be of a store of any type */
		if (write_cache_mirrors(pair, value)) {
			const char *why = write_cache_no_mirror(NULL);

			if (why)
				return write_cache_refuse(call, why);
		}
		err = strcmp(pair, "threads") ?
			      scsi_lu_check(pair, write_cache_value(pair, value)) :
		      apply_lu_threads_ok(value) ? 0 :
						   -EINVAL;
		if (err > 0)
			warn_cut(call, pair, value, err);
		else if (err == -ENOENT)
			return refuse_key(call, "logical unit", pair);
		else if (err)
			return refuse_value(call, pair, value);
	}
	return ADM_OK;
}

static enum adm_status check_portal_new(struct adm_call *call)
{
	const char *text = portal_text(call);
	int err;

	if (!text)
		return refuse_portal(call, -EINVAL, "");
	err = iscsi_portal_check(text);
	return err ? refuse_portal(call, err, text) : ADM_OK;
}

static enum adm_status check_lu_new(struct adm_call *call)
{
	enum adm_status status = check_lu_params(call);

	return status == ADM_OK ? check_lu_store(call) : status;
}

enum adm_status check_execute(struct adm_call *call)
{
	static enum adm_status (*const checks[ADM_MODES][ADM_OPS])(struct adm_call *call) = {
		[ADM_TARGET] = { [ADM_NEW] = check_target_new, [ADM_UPDATE] = check_target_update,
				 [ADM_BIND] = check_target_bind },
		[ADM_PORTAL] = { [ADM_NEW] = check_portal_new },
		[ADM_CACHE] = { [ADM_UPDATE] = cache_update_verb_check },
		[ADM_LU] = { [ADM_NEW] = check_lu_new, [ADM_UPDATE] = check_lu_params },
		[ADM_ACCOUNT] = { [ADM_NEW] = account_check, [ADM_UPDATE] = account_check,
				  [ADM_BIND] = account_tie_check },
	};

	ASSERT(call->req.check);
	return checks[call->req.mode][call->req.op] ? checks[call->req.mode][call->req.op](call) :
						      ADM_OK;
}
