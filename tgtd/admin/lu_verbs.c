/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgtadm --mode logicalunit: disks come, change and go. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#include "events/bug.h"
#include "events/log.h"
#include "tgtd/admin/json.h"
#include "tgtd/cluster/live/group.h"

static void lu_update_go_on(void *arg, enum adm_status status);

/* It stands: its parameters follow, and when one of them fails it goes again. */
static void lu_made(void *arg, enum adm_status status)
{
	struct adm_call *call = arg;

	ASSERT(!call->made);
	call->made = status == ADM_OK;
	call->params_left = call->req.text[ADM_T_PARAMS];
	if (call->made)
		lu_update_go_on(call, ADM_OK);
	else
		adm_call_done(call, status);
}

static void lu_unmade(void *arg, enum adm_status status)
{
	struct adm_call *call = arg;

	adm_call_done(call, call->failed);
}

static void lu_take_back(struct adm_call *call, enum adm_status why)
{
	struct adm_lu *lu = call_lu(call, call_target(call));

	ASSERT(call->made && why != ADM_OK && why != ADM_PENDING);
	call->failed = why;
	/* without the call: what is said is why it failed, not whether an
	 * initiator has already found it */
	if (!lu || apply_lu_delete(NULL, lu, lu_unmade, call) != ADM_OK)
		adm_call_done(call, why);
}

/* Descriptors that are left when a unit comes: for the administrator, sessions, the next worker;
 * and of each unit those that it makes when somebody uses it. */
#define FILES_LEFT 24u
#define FILES_LATER 2u

static unsigned units_there(void)
{
	unsigned n = 0;

	for (struct scsi_target *s = scsi_target_next(NULL); s; s = scsi_target_next(s)) {
		const struct adm_target *t = registry_target(scsi_target_tid(s));
		const struct adm_lu *lu;

		if (t)
			list_for_each(lu, &t->luns, link)
				n++;
	}
	return n;
}

/* Else units could be made until nobody is served, not even who would take one away. */
static bool has_files_left(void)
{
	const int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
	struct rlimit files;

	if (fd >= 0)
		close(fd);
	if (fd < 0 || getrlimit(RLIMIT_NOFILE, &files))
		return false;
	return (rlim_t)fd + FILES_LEFT + FILES_LATER * units_there() < files.rlim_cur;
}

enum adm_status verb_lu_new(struct adm_call *call)
{
	struct adm_target *t = call_target(call);
	struct apply_lu want = {
		.device_type = call->req.device_type,
		.path = call->req.text[ADM_T_PATH],
		.bstype = call->req.text[ADM_T_BSTYPE],
		.bsopts = call->req.text[ADM_T_BSOPTS],
		.bsoflags = call->req.text[ADM_T_BSOFLAGS],
		.blocksize = call->req.text[ADM_T_BLOCKSIZE],
	};

	if (!t)
		return ADM_NO_TARGET;
	if (call_waits(call, t))
		return ADM_PENDING;
	if (!call->req.has_lun || call->req.lun > SCSI_MAX_LUN)
		return admin_refuse(call, ADM_INVALID_REQUEST, "LUNs go from 1 to %d",
				    SCSI_MAX_LUN);
	want.lun = (uint32_t)call->req.lun;
	if (!want.lun || registry_lu(t, want.lun))
		return ADM_LUN_EXIST;
	if (!adm.restoring && !has_files_left())
		return admin_refuse(call, ADM_NOMEM,
				    "another unit needs more open files than there may be "
				    "(RLIMIT_NOFILE)");
	enum adm_status s = check_lu_params(call);

	if (s == ADM_OK)
		s = apply_lu_new(call, t, &want, lu_made, call);
	return s == ADM_OK ? ADM_PENDING : s;
}

enum adm_status verb_lu_delete(struct adm_call *call)
{
	struct adm_target *t = call_target(call);
	struct adm_lu *lu;

	if (call->req.has_lun && !call->req.lun)
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "LUN 0 is the controller; it goes with its target");
	if (call_waits(call, t))
		return ADM_PENDING;
	lu = call_lu(call, t);
	if (!lu)
		return ADM_NO_LUN;
	enum adm_status s = apply_lu_delete(call, lu, call_finish, call);

	return s == ADM_OK ? ADM_PENDING : s;
}

/* The value that @key had when the LU was made. */
static const char *initial_value(const struct adm_lu *lu, const char *key, char *buf, size_t len)
{
	const struct scsi_lu_conf *c = &lu->initial;
	const struct {
		const char *key, *text;
		unsigned long number;
	} table[] = {
		{ "scsi_id", c->scsi_id, 0 },
		{ "naa", c->naa, 0 },
		{ "scsi_sn", c->scsi_sn, 0 },
		{ "vendor_id", c->vendor_id, 0 },
		{ "product_id", c->product_id, 0 },
		{ "product_rev", c->product_rev, 0 },
		{ "sense_format", NULL, c->sense_format },
		{ "removable", NULL, c->removable },
		{ "online", NULL, c->online },
		{ "readonly", NULL, c->readonly },
		{ "write_cache", NULL, c->write_cache },
		{ "swp", NULL, c->swp },
		{ "thin_provisioning", NULL, c->thin_provisioning },
		{ "lbppbe", NULL, c->lbppbe },
		{ "la_lba", NULL, c->la_lba },
		{ "optimal_xfer_gran", NULL, c->optimal_xfer_gran },
		{ "optimal_xfer_len", NULL, c->optimal_xfer_len },
		{ "sanitize_rate", NULL, c->sanitize_rate },
		{ "atomic_unit", NULL, c->atomic_unit },
		{ "rotation_rate", NULL, c->rotation_rate },
		{ "threads", NULL, 1 },
		{ "iops_limit", NULL, 0 },
		{ "read_iops_limit", NULL, 0 },
		{ "write_iops_limit", NULL, 0 },
		{ "iops_burst", NULL, 0 },
		{ "bandwidth_limit", NULL, 0 },
		{ "read_bandwidth_limit", NULL, 0 },
		{ "write_bandwidth_limit", NULL, 0 },
		{ "bandwidth_burst", NULL, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (strcmp(table[i].key, key))
			continue;
		if (table[i].text)
			return table[i].text;
		snprintf(buf, len, "%lu", table[i].number);
		return buf;
	}
	return NULL;
}

static enum adm_status look_again(struct adm_call *call, struct adm_lu *lu,
				  int (*look)(struct scsi_lu *lu), const char *what)
{
	struct scsi_lu_info before;
	int err;

	scsi_lu_get_info(lu->scsi, &before);
	err = look(lu->scsi);
	if (err)
		return refuse_errno(call, err, what);
	warn_shrunk(call, lu, before.size);
	return ADM_OK;
}

/* Is it the same disk by another path, as two LUs with one NAA have to be? */
static bool is_same_store(const struct adm_lu *a, const struct adm_lu *b)
{
	struct scsi_lu_info x, y;

	scsi_lu_get_info(a->scsi, &x);
	scsi_lu_get_info(b->scsi, &y);
	return x.conf.blk && y.conf.blk && !strcmp(a->bstype, b->bstype) &&
	       strcmp(a->bstype, "ram") && strcmp(a->bstype, "null") &&
	       !strcmp(x.conf.blk->store_id, y.conf.blk->store_id);
}

static void warn_same_naa(struct adm_call *call, const struct adm_lu *lu, const char *naa)
{
	const struct adm_set *set;
	struct adm_lu *other;

	for (struct scsi_target *s = scsi_target_next(NULL); s && *naa; s = scsi_target_next(s)) {
		list_for_each(other, &registry_target(scsi_target_tid(s))->luns, link) {
			set = other == lu ? NULL : set_find(&other->params, "naa");
			if (!set || strcasecmp(set->value, naa) || is_same_store(lu, other))
				continue;
			warn(call,
			     "target %u LUN %u has the naa of target %u LUN %u, and another store: "
			     "initiators take them for one disk and mix up what they write",
			     lu->target->tid, lu->lun, other->target->tid, other->lun);
			return;
		}
	}
}

/* One parameter; @value NULL takes back what was set before. @lu is NULL for the controller. */
static enum adm_status lu_set(struct adm_call *call, struct adm_lu *lu, struct scsi_lu *scsi,
			      const char *key, const char *value)
{
	char number[24], page[64];
	const char *v = value, *name = key;
	int err;

	ASSERT(scsi && (!lu || lu->scsi == scsi));
	/* not properties: look at the store's size again */
	if (lu && !strcmp(key, "refresh"))
		return look_again(call, lu, scsi_lu_refresh, key);
	if (lu && !strcmp(key, "resize"))
		return look_again(call, lu, scsi_lu_resize, key);
	if (lu && v && !strcmp(key, "owner")) {
		err = group_lu_move(scsi, v);
		return !err	       ? ADM_OK :
		       err == -ENOENT ? admin_refuse(call, ADM_INVALID_REQUEST,
						     "the group has no gateway '%s'", v) :
					admin_refuse(call, ADM_INVALID_REQUEST,
						     "it is no unit of a group of gateways");
	}
	if (lu && v && !strcmp(key, "mirror")) {
		err = strcmp(v, "lost") != 0 ? -ENOENT : group_lu_give_up(scsi);
		return !err	       ? ADM_OK :
		       err == -ENOENT ? admin_refuse(call, ADM_INVALID_REQUEST,
						     "mirror is 'lost', not '%s'", v) :
		       err == -EBUSY ? admin_refuse(call, ADM_INVALID_REQUEST,
						    "a gateway that has all of it is there, or "
						    "was so 20 s ago") :
				       admin_refuse(call, ADM_INVALID_REQUEST,
						    "it is no unit of a group of gateways");
	}
	if (lu && write_cache_mirrors(key, value)) {
		const char *why = write_cache_no_mirror(lu);

		if (why && !call->restored)
			return write_cache_refuse(call, why);
		if (why) /* it was possible for the daemon before */
			log_warn("target %u LUN %u is not mirrored: %s", lu->target->tid, lu->lun,
				 why);
	}
	if (!v && lu)
		v = initial_value(lu, key, number, sizeof(number));
	if (!v)
		return admin_refuse(call, ADM_INVALID_REQUEST, "'%s' is not name=value", key);
	if (lu && !strcmp(key, "threads")) {
		enum adm_status s = apply_lu_threads(call, lu, v);

		if (s != ADM_OK)
			return s;
		err = 0;
	} else {
		err = scsi_lu_update(scsi, key, lu ? write_cache_value(key, v) : v);
	}
	if (err > 0) {
		warn_cut(call, key, v, err);
		err = 0;
	}
	if (err == -EBUSY)
		return admin_refuse(call, ADM_PREVENT_REMOVAL,
				    "an initiator prevents medium removal");
	if (err == -ENOENT)
		return refuse_key(call, "logical unit", key);
	if (err == -EINVAL)
		return refuse_value(call, key, v);
	if (err)
		return admin_refuse(call, err == -ENOMEM ? ADM_NOMEM : ADM_INVALID_REQUEST,
				    "%s cannot be '%s': %s", key, v, strerror(-err));
	if (lu && !strcmp(key, "naa"))
		warn_same_naa(call, lu, v);
	/* mode pages are told apart by page and subpage */
	if (!strcmp(key, "mode_page")) {
		const char *colon = strchr(v, ':');

		colon = colon ? strchr(colon + 1, ':') : NULL;
		snprintf(page, sizeof(page), "mode_page %.*s", colon ? (int)(colon - v) : 0, v);
		name = page;
	}
	struct list *sets = lu ? &lu->params : &call_target(call)->controller;

	if (!value)
		set_drop(set_find(sets, name));
	else if (set_put(sets, name, v, NULL))
		return ADM_NOMEM;
	return ADM_OK;
}

static bool write_cache(const struct adm_lu *lu)
{
	struct scsi_lu_info info;

	scsi_lu_get_info(lu->scsi, &info);
	return info.conf.write_cache;
}

static bool lu_verbs_in_doubt(const struct adm_lu *lu)
{
	struct scsi_lu_info info;

	scsi_lu_get_info(lu->scsi, &info);
	return info.conf.blk && blk_doubt(info.conf.blk);
}

static bool is_refresh(const char *key, const char *value)
{
	return value && !strcmp(key, "refresh") && strcmp(value, "0") != 0;
}

/* Somebody says that what was lost is there again, or may be gone. ADM_OK: it is ready. */
static enum adm_status find_again(struct adm_call *call, struct adm_lu *lu)
{
	enum adm_status s;

	if (!lu->stand_in) {
		apply_lu_found(lu);
		return ADM_OK;
	}
	s = apply_lu_again(call, lu, lu_update_go_on, call);
	return s == ADM_OK ? ADM_PENDING : s;
}

/* Applies key=value pairs up to the end (ADM_OK), an error, or one that has to wait. */
static enum adm_status lu_update_some(struct adm_call *call, struct adm_target *t)
{
	struct adm_lu *lu = call_lu(call, t);

	ASSERT(!t->busy);
	while (call->params_left && *call->params_left) {
		const char *p = call->params_left, *end = strchrnul(p, ',');
		char pair[4096];
		size_t len = (size_t)(end - p);
		char *value;

		call->params_left = *end ? end + 1 : end;
		if (!len)
			continue;
		if (len >= sizeof(pair))
			return admin_refuse(call, ADM_INVALID_REQUEST,
					    "a parameter is longer than %zu bytes",
					    sizeof(pair) - 1);
		memcpy(pair, p, len);
		pair[len] = 0;
		value = strchr(pair, '=');
		if (value)
			*value++ = 0;
		if (value && !strcmp(pair, "path")) {
			if (!lu)
				return admin_refuse(call, ADM_INVALID_REQUEST,
						    "the controller has no backing store");
			/* the store that it has: it may have grown */
			if (lu->path && !lu->stand_in && !strcmp(value, lu->path)) {
				enum adm_status looked =
					look_again(call, lu, scsi_lu_refresh, value);

				if (looked != ADM_OK)
					return looked;
				continue;
			}
			enum adm_status s = apply_lu_path(call, lu, value, lu_update_go_on, call);

			return s == ADM_OK ? ADM_PENDING : s;
		}
		if (lu && lu->lost && is_refresh(pair, value)) {
			enum adm_status found = find_again(call, lu);

			if (found != ADM_OK)
				return found;
		}
		bool cached = lu && write_cache(lu);
		enum adm_status s =
			lu_set(call, lu, lu ? lu->scsi : scsi_lu_find(t->scsi, 0), pair, value);

		if (s != ADM_OK)
			return s;
		if (lu && is_refresh(pair, value) && lu_verbs_in_doubt(lu)) {
			s = apply_lu_trust(call, lu, lu_update_go_on, call);
			return s == ADM_OK ? ADM_PENDING : s;
		}
		if (cached && !write_cache(lu) && lu->stand_in) {
			if (call->restored)
				continue; /* nobody is told that it is written */
			return admin_refuse(call, ADM_INVALID_REQUEST,
					    "the write cache is off, but what was in it could not "
					    "be written: its store is not open");
		}
		if (cached && !write_cache(lu)) {
			s = apply_lu_flush(call, lu, lu_update_go_on, call);
			return s == ADM_OK ? ADM_PENDING : s;
		}
	}
	return ADM_OK;
}

/* It is done, and its answer says whose name is another's. */
static enum adm_status lu_updated(struct adm_call *call, enum adm_status status)
{
	const struct adm_lu *lu;

	if (status != ADM_OK) /* ADM_PENDING: it may have been answered by now, and gone */
		return status;
	lu = call_lu(call, call_target(call));
	if (lu)
		names_warn(call, lu);
	return status;
}

static void lu_update_go_on(void *arg, enum adm_status status)
{
	struct adm_call *call = arg;
	struct adm_target *t = call_target(call);

	if (status == ADM_OK)
		status = t ? lu_update_some(call, t) : ADM_NO_TARGET;
	if (status != ADM_OK && status != ADM_PENDING && call->made)
		lu_take_back(call, status);
	else if (status != ADM_PENDING)
		adm_call_done(call, lu_updated(call, status));
}

static enum adm_status lu_update_begin(struct adm_call *call)
{
	struct adm_target *t = call_target(call);

	if (!t)
		return ADM_NO_TARGET;
	if (call_waits(call, t)) /* meanwhile somebody else has changed it */
		return ADM_PENDING;
	if (call->req.lun && !call_lu(call, t))
		return ADM_NO_LUN;
	call->params_left = call->req.text[ADM_T_PARAMS];
	return lu_updated(call, lu_update_some(call, t));
}

enum adm_status verb_lu_update(struct adm_call *call)
{
	struct adm_target *t = call_target(call);
	struct adm_lu *lu;

	if (!t)
		return ADM_NO_TARGET;
	if (call_waits(call, t))
		return ADM_PENDING;
	lu = call_lu(call, t);
	if (call->req.lun && !lu)
		return ADM_NO_LUN;
	if (call->req.text[ADM_T_BSOFLAGS] || call->req.text[ADM_T_BLOCKSIZE])
		return admin_refuse(
			call, ADM_UNSUPPORTED,
			"flags and block size of a store are fixed when the LU is made");
	/* Its name is looked at first: when it has been changed the answer is not to wait. */
	return lu && !call->restored ? names_look(call, lu, lu_update_begin) :
				       lu_update_begin(call);
}

enum adm_status verb_lu_stat(struct adm_call *call)
{
	struct adm_target *t = call_target(call);
	struct adm_lu *lu = call_lu(call, t);

	if (!t)
		return ADM_NO_TARGET;
	if (!lu && call->req.lun)
		return ADM_NO_LUN;
	if (call->req.json)
		return json_stat(call, t);
	stat_header(call);
	if (lu)
		stat_lu(call, lu);
	return ADM_OK;
}
