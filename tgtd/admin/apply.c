/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Makes and takes down targets and LUs. An LU is a stack that is built from below and handed to the
 * device server as one:
 *
 *     placement -> store (aio, ram, null, nbd, rbd) -> cache, unless the store is
 *     memory -> event thread -> LU
 *
 * Whatever fails takes down what stood before it. The registry remembers what only the admin side
 * knows: names as they were asked for, drivers, places.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/backend/rbd_name.h"
#include "cache/backend/rbd_store.h"
#include "events/bug.h"
#include "events/log.h"
#include "tgtd/admin/admin_int.h"
#include "tgtd/cluster/live/group.h"
#include "tgtd/isns/isns.h"
#include "tgtd/iscsi/iscsi.h"

/* ---- targets --------------------------------------------------------------------------------- */

/* The characters that tgt takes; RFC 7143 4.2.7.1 would allow more after stringprep. */
static bool apply_name_ok(const char *name)
{
	size_t len = 0;

	for (; name[len]; len++)
		if (!isalnum((unsigned char)name[len]) && !strchr(":.-", name[len]))
			return false;
	return len && len <= ISCSI_NAME_MAX;
}

void apply_offline(struct adm_target *t)
{
	scsi_target_set_offline(t->scsi, adm.offline || t->offline);
}

unsigned apply_targets_of(unsigned driver)
{
	unsigned n = 0;

	ASSERT(driver < ADM_DRIVERS);
	for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t))
		n += registry_target(scsi_target_tid(t))->driver == driver;
	return n;
}

static void no_answer(void *arg, int status)
{
}

enum adm_status apply_target_check(struct adm_call *call, const char *name)
{
	return apply_name_ok(name) ?
		       ADM_OK :
		       admin_refuse(call, ADM_INVALID_REQUEST,
				    "a target's name is 1 to %d letters, digits, ':', '.', '-'",
				    ISCSI_NAME_MAX);
}

/* Why the device server did not make a target or a logical unit. */
static enum adm_status refuse_unit(struct adm_call *call, int err, const char *what)
{
	if (err == -EBADMSG)
		return admin_refuse(call, ADM_UNKNOWN_ERR,
				    "%s: its file of reservations is damaged, see the log", what);
	return refuse_errno(call, err, what);
}

enum adm_status apply_target_new(struct adm_call *call, uint32_t tid, const char *name,
				 unsigned driver)
{
	struct adm_target *t;
	int err;

	ASSERT_ON_LOOP(adm.conf.main);
	ASSERT(tid && !adm.draining);
	if (apply_target_check(call, name) != ADM_OK)
		return ADM_INVALID_REQUEST;
	if (driver >= ADM_DRIVERS)
		return ADM_NO_DRIVER;
	if (registry_target(tid) || registry_target_name(name))
		return ADM_TARGET_EXIST;
	if (adm.ntargets >= SCSI_MAX_TARGETS)
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "there are %d targets, no more are allowed", SCSI_MAX_TARGETS);
	t = calloc(1, sizeof(*t));
	if (!t)
		return ADM_NOMEM;
	t->scsi = scsi_target_create(tid, name);
	if (!t->scsi) {
		err = errno;
		free(t);
		return err == EEXIST ? ADM_TARGET_EXIST : refuse_unit(call, -err, "target");
	}
	err = iscsi_target_add(t->scsi);
	if (err) {
		scsi_target_delete(t->scsi, true, no_answer, NULL);
		free(t);
		return refuse_errno(call, err, "target");
	}
	t->tid = tid;
	t->driver = (uint8_t)driver;
	list_init(&t->hash);
	list_init(&t->luns);
	list_init(&t->waiters);
	list_init(&t->masks);
	list_init(&t->limits);
	list_init(&t->keys);
	list_init(&t->controller);
	registry_add_target(t);
	adm.ntargets++;
	apply_offline(t);
	return ADM_OK;
}

static void lu_free(struct adm_lu *lu)
{
	loop_timer_cancel(adm.conf.main, &lu->await);
	set_drop_all(&lu->params);
	ASSERT(!list_linked(&lu->link) && !lu->threads);
	free(lu->bstype);
	free(lu->bsopts);
	free(lu->blocksize);
	free(lu->path);
	free(lu);
}

static void lu_forget(struct adm_lu *lu)
{
	places_release(lu, 0);
	list_del(&lu->hash);
	list_del(&lu->link);
	lu_free(lu);
}

static void target_forget(struct adm_target *t)
{
	struct adm_lu *lu, *tmp;

	ASSERT(adm.ntargets && registry_target(t->tid) == t);
	list_for_each_safe(lu, tmp, &t->luns, link)
		lu_forget(lu);
	list_del(&t->hash);
	set_drop_all(&t->masks);
	set_drop_all(&t->limits);
	set_drop_all(&t->keys);
	set_drop_all(&t->controller);
	isns_access_forget(t);
	adm.ntargets--;
}

struct pending {
	void (*done)(void *arg, enum adm_status status);
	void *arg;
	struct adm_target *target;
	struct adm_lu *lu;
	struct adm_call *call; /* for the reason; NULL when nobody asked */
	char *path;
	uint64_t size;	 /* of the store that it has had */
	struct blk *blk; /* a new store that the LU may yet refuse */
	bool late;	 /* ... which is late.c's then */
	bool force;	 /* with its sessions */
};

static struct pending *pending_new(struct adm_call *call, struct adm_target *t, struct adm_lu *lu,
				   void (*done)(void *arg, enum adm_status status), void *arg)
{
	struct pending *p = calloc(1, sizeof(*p));

	ASSERT_ON_LOOP(adm.conf.main);
	ASSERT(done && !t->busy && (!lu || lu->target == t));
	if (p)
		*p = (struct pending){ .done = done, .arg = arg, .target = t, .lu = lu,
				       .call = call };
	return p;
}

/* Answers, then lets go whoever waited for the target. */
static void pending_end(struct pending *p, enum adm_status status)
{
	struct adm_target *t = p->target;

	ASSERT_ON_LOOP(adm.conf.main);
	ASSERT(t->busy && status < ADM_STATUSES);
	t->busy = false;
	free(p->path);
	/* may begin the next step of the same request */
	p->done(p->arg, status);
	free(p);
	if (!t->busy)
		call_waiters_run(t);
}

static void target_deleted(void *arg, int status)
{
	struct pending *p = arg;
	struct adm_target *t = p->target;

	if (status)
		log_error("admin: target %u: its last data did not reach a store: %s", t->tid,
			  strerror(-status));
	target_forget(t);
	pending_end(p, status ? admin_refuse(p->call, ADM_UNKNOWN_ERR,
					     "deleted, but a store failed: %s", strerror(-status)) :
				ADM_OK);
	free(t);
}

static const char not_left[] = "this gateway serves it for its group, and cannot hand it over";
static void join_group(const struct adm_lu *lu, const struct blk *blk);

/* It stays: its units are the group's as before. */
static void target_stays(const struct adm_target *t)
{
	struct group_lu_view view;
	struct scsi_lu_info info;
	const struct adm_lu *lu;

	list_for_each(lu, &t->luns, link) {
		scsi_lu_get_info(lu->scsi, &info);
		if (group_runs() && info.conf.blk && !group_get_lu(lu->scsi, &view))
			join_group(lu, info.conf.blk);
	}
}

static enum adm_status target_goes(struct pending *p)
{
	struct adm_target *t = p->target;
	/* Rules and masks go when it is decided that the target goes, and not before. */
	int err = scsi_target_close(t->scsi, p->force);

	if (err) {
		target_stays(t);
		return err == -ENOMEM ? ADM_NOMEM :
					admin_refuse(p->call, ADM_TARGET_ACTIVE,
						     "%u sessions are logged in",
						     scsi_target_nexus_count(t->scsi));
	}
	t->busy = true;
	iscsi_target_remove(t->scsi);
	scsi_target_delete(t->scsi, p->force, target_deleted, p);
	return ADM_OK;
}

static void target_unit_left(void *arg, int err);

/* Units of a group leave it first, one after the other. True: one is on its way. */
static bool target_leaves(struct pending *p)
{
	const struct adm_lu *lu;

	list_for_each(lu, &p->target->luns, link)
		if (group_lu_remove(lu->scsi)) {
			p->target->busy = true;
			group_lu_leave(lu->scsi, target_unit_left, p);
			return true;
		}
	return false;
}

static void target_unit_left(void *arg, int err)
{
	struct pending *p = arg;
	enum adm_status s;

	if (!err && target_leaves(p))
		return;
	if (err) {
		target_stays(p->target);
		s = admin_refuse(p->call, ADM_LUN_ACTIVE, not_left);
	} else {
		s = target_goes(p);
	}
	if (s != ADM_OK)
		pending_end(p, s);
}

enum adm_status apply_target_delete(struct adm_call *call, struct adm_target *t, bool force,
				    void (*done)(void *arg, enum adm_status status), void *arg)
{
	struct pending *p = pending_new(call, t, NULL, done, arg);
	const unsigned sessions = scsi_target_nexus_count(t->scsi);
	enum adm_status s;

	if (!p)
		return ADM_NOMEM;
	p->force = force;
	if (sessions && !force) {
		free(p);
		return admin_refuse(call, ADM_TARGET_ACTIVE, "%u sessions are logged in", sessions);
	}
	/* (Where the daemon ends, the group ends by itself.) */
	if (call && target_leaves(p))
		return ADM_OK;
	s = target_goes(p);
	if (s != ADM_OK)
		free(p);
	return s;
}

/* ---- logical units --------------------------------------------------------------------------- */

/* NULL stays NULL; false: no memory. */
static bool copy(char **to, const char *from)
{
	*to = from ? strdup(from) : NULL;
	return *to || !from;
}

static struct adm_lu *lu_alloc(struct adm_target *t, const struct apply_lu *want)
{
	struct adm_lu *lu = calloc(1, sizeof(*lu));

	if (!lu)
		return NULL;
	lu->target = t;
	lu->lun = want->lun;
	list_init(&lu->hash);
	list_init(&lu->link);
	list_init(&lu->params);
	late_init(lu);
	if (!copy(&lu->bstype, want->bstype ? want->bstype : "rdwr") ||
	    !copy(&lu->path, want->path) || !copy(&lu->bsopts, want->bsopts) ||
	    !copy(&lu->blocksize, want->blocksize)) {
		lu_free(lu);
		return NULL;
	}
	return lu;
}

/* Which group bsopts group= names, into @n; false: none. */
static bool names_group(const char *bstype, const char *bsopts, struct rbd_name *n)
{
	char why[200];

	return !strcmp(bstype, "rbd") && bsopts &&
	       !rbd_name_parse(n, "image", bsopts, why, sizeof(why)) && *n->group;
}

static bool of_other_group(const struct apply_lu *want, const char *bstype)
{
	struct rbd_name n;

	return names_group(bstype, want->bsopts, &n) && !group_is(n.group);
}

bool apply_lu_of_group(const struct adm_lu *lu)
{
	struct rbd_name n;

	return names_group(lu->bstype, lu->bsopts, &n) && group_is(n.group);
}

static enum adm_status lu_parse(struct adm_call *call, const struct apply_lu *want,
				struct adm_lu *lu, struct store_opts *o, uint32_t *block_size)
{
	char *end;

	if (want->device_type != ADM_TYPE_DISK)
		return admin_refuse(call, ADM_INVALID_REQUEST, "only disks are emulated");
	if (blk_bstype_lacks(lu->bstype))
		return admin_refuse(call, ADM_INVALID_REQUEST, "this tgtd was built without %s",
				    blk_bstype_lacks(lu->bstype));
	if (!store_known(lu->bstype))
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "no backing store type is called '%s'", lu->bstype);
	if (!store_parse_flags(want->bsoflags, &lu->flags))
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "bsoflags are sync, direct or sync:direct, not '%s'",
				    want->bsoflags);
	if (lu->flags && strcmp(lu->bstype, "rdwr") && strcmp(lu->bstype, "aio"))
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "bsoflags mean nothing to a store of type %s", lu->bstype);
	if (!store_parse_opts(want->bsopts, lu->bstype, o))
		return admin_refuse(
			call, ADM_INVALID_REQUEST,
			"bsopts are cache=none|write-back|write-through, share=yes (cached only), node=<0..%u>%s; not '%s'",
			adm.conf.topo->nnodes - 1,
			strcmp(lu->bstype, "rbd") ? "" : ", conf=, id=, cluster=, group=",
			want->bsopts);
	if (of_other_group(want, lu->bstype))
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "this tgtd is not of that group of gateways (tgtd --group): %s",
				    want->bsopts);
	lu->uncached = o->uncached;
	lu->shared = o->shared;
	lu->write_through = o->write_through || (lu->flags & ADM_BS_SYNC);
	*block_size = 0;
	if (want->blocksize) {
		unsigned long n = strtoul(want->blocksize, &end, 0);

		if (end == want->blocksize || *end || (n != 512 && n != 4096))
			return admin_refuse(call, ADM_INVALID_REQUEST,
					    "a block has 512 or 4096 bytes, not '%s'",
					    want->blocksize);
		*block_size = (uint32_t)n;
	}
	return ADM_OK;
}

enum adm_status apply_lu_check(struct adm_call *call, const struct apply_lu *want,
			       uint32_t *block_size)
{
	struct adm_lu *lu = lu_alloc(NULL, want);
	struct store_opts options;
	enum adm_status status;

	if (!lu)
		return ADM_NOMEM;
	status = lu_parse(call, want, lu, &options, block_size);
	lu_free(lu);
	return status;
}

/* @blk is its store now. Until it is an image nobody serves a unit of a group. */
static void join_group(const struct adm_lu *lu, const struct blk *blk)
{
	int err = rbd_store_of_group(blk) ? group_lu_add(lu->scsi) : 0;

	if (err)
		log_error("admin: target %u LUN %u is no unit of the group: %s: nobody serves it",
			  lu->target->tid, lu->lun, strerror(-err));
}

/* Everything above the store. ADM_OK: @blk belongs to the LU. */
static enum adm_status lu_raise(struct adm_call *call, struct adm_lu *lu, struct blk *blk)
{
	struct scsi_lu_conf conf;
	struct scsi_lu_info info;
	int err;

	ASSERT(blk && !lu->scsi && lu->target->busy);
	scsi_lu_conf_init(&conf);
	conf.lun = lu->lun;
	conf.device_type = ADM_TYPE_DISK;
	conf.blk = blk;
	conf.write_cache = !lu->write_through;
	conf.readonly = blk->caps & BLK_CAP_READONLY;
	if (!lu->path) {
		conf.removable = true;
		conf.online = false;
	}
	if (rbd_store_of_group(blk) || apply_lu_of_group(lu))
		group_lu_conf(&conf);
	conf.loop_shared = adm.conf.central_events;
	conf.loop = lu_loop(lu, 0, &err);
	if (!conf.loop)
		return refuse_errno(call, err, "event thread");
	lu->scsi = scsi_lu_create(lu->target->scsi, &conf);
	if (!lu->scsi) {
		err = -errno;
		lu_loop_end(conf.loop);
		return err == -EEXIST ? ADM_LUN_EXIST : refuse_unit(call, err, "logical unit");
	}
	scsi_lu_get_info(lu->scsi, &info);
	lu->initial = info.conf;
	join_group(lu, blk);
	return ADM_OK;
}

/* What was opened, and for whom. */
struct opening {
	struct store_open store;
	struct pending *pending;
};

static struct opening *opening_new(struct pending *p, const char *path, uint32_t block_size,
				   void (*done)(struct store_open *so))
{
	struct opening *o = p ? calloc(1, sizeof(*o)) : NULL;

	if (!o)
		return NULL;
	o->pending = p;
	o->store = (struct store_open){
		.path = path,
		.bstype = p->lu->bstype,
		.bsopts = p->lu->bsopts,
		.block_size = block_size,
		.flags = p->lu->flags,
		.uncached = p->lu->uncached,
		.write_through = p->lu->write_through,
		.shared = p->lu->shared,
		.node = p->lu->place[0].node,
		.file = p->call ? p->call->file : -1,
		.done = done,
	};
	snprintf(o->store.who, sizeof(o->store.who), "target %u, LUN %u", p->target->tid,
		 p->lu->lun);
	return o;
}

static enum adm_status not_opened(struct adm_call *call, const struct store_open *so)
{
	if (so->needs_file)
		return admin_refuse(call, ADM_NEEDS_FILE, "%s%s",
				    so->flags & ADM_BS_SYNC ? ADM_NEEDS_SYNC : "", so->reason);
	return admin_refuse(call, so->err == -ENOMEM ? ADM_NOMEM : ADM_INVALID_REQUEST, "%s",
			    so->reason);
}

static void lu_unmake(struct adm_lu *lu)
{
	ASSERT(!lu->scsi);
	places_release(lu, 0);
	lu_free(lu);
}

/* A unit that was there before comes back without its store: what initiators know of it stays, and
 * nobody takes its number. */
static void open_stand_in(struct opening *o)
{
	struct adm_lu *lu = o->pending->lu;
	struct store_open *so = &o->store;

	lu->late = so->err == -EINPROGRESS;
	lu->apart = so->apart;
	if (lu->apart)
		log_error("target %u LUN %u is NOT READY: %s. That version writes it back; or "
			  "`tgtadm --mode logicalunit --op update --tid %u --lun %u --params "
			  "refresh=1` gives it up",
			  lu->target->tid, lu->lun, so->reason, lu->target->tid, lu->lun);
	else if (!lu->late)
		log_error("target %u LUN %u is NOT READY: %s. After `tgtadm --mode logicalunit "
			  "--op update --tid %u --lun %u --params path=...`, or refresh=1, it is "
			  "tried again",
			  lu->target->tid, lu->lun, so->reason, lu->target->tid, lu->lun);
	lu->lost = lu->stand_in = true;
	so->path = NULL;
	so->err = 0;
	so->needs_file = so->apart = false;
	*so->reason = 0;
	store_open(so);
}

/* What comes back from the journal without what was written there is not ready. Memory ends with
 * its process, and must not read as zeros as if nothing had been there. */
static void lu_lose(const struct pending *p)
{
	struct adm_lu *lu = p->lu;

	if (!lu->lost && (!p->call || !p->call->restored))
		return;
	if (!lu->lost && lu->path && !strcmp(lu->bstype, "ram")) {
		log_warn("target %u LUN %u is NOT READY: it was memory of a process that has "
			 "ended; with refresh=1 it begins empty",
			 lu->target->tid, lu->lun);
		lu->lost = true;
	}
	if (lu->lost)
		scsi_lu_set_lost(lu->scsi, true);
	scsi_lu_set_late(lu->scsi, lu->late);
	if (lu->late)
		late_await(lu);
}

static void lu_replaced(void *arg, int status);

/* Its own, in the place of the stand-in. */
static void lu_arrived(struct adm_lu *lu, struct blk *blk,
		       void (*done)(void *arg, enum adm_status status), void *arg)
{
	struct pending *p = pending_new(NULL, lu->target, lu, done, arg);

	ASSERT(lu->stand_in);
	if (p)
		p->path = strdup(lu->path);
	if (!p || !p->path) {
		free(p);
		done(arg, ADM_NOMEM);
		return;
	}
	p->blk = blk;
	p->late = true;
	lu->target->busy = true;
	scsi_lu_set_blk(lu->scsi, blk, lu_replaced, p);
}

/* ADM_OK, or why not: somebody asks for a store that hangs, and is being opened already. */
static enum adm_status not_twice(struct adm_call *call, const char *path)
{
	const char *why = path && call && !call->restored ? late_opens(path) : NULL;

	return why ? admin_refuse(call, ADM_INVALID_REQUEST, "%.100s: %s", path, why) : ADM_OK;
}

/* Of what comes back from the journal nothing waits for one store. */
static void open_for(struct opening *o)
{
	const struct pending *p = o->pending;

	if (p->call && p->call->restored)
		late_open(&o->store, p->target->tid, p->lu->lun, lu_arrived);
	else
		store_open(&o->store);
}

/* A unit that comes back, and any whose store is apart: there has to be one to say refresh=1 of. */
static bool may_stand_in(const struct store_open *so, const struct pending *p)
{
	return so->err && so->path && ((p->call && p->call->restored) || so->apart);
}

static void lu_opened(struct store_open *so)
{
	struct opening *o = container_of(so, struct opening, store);
	struct pending *p = o->pending;
	struct adm_lu *lu = p->lu;
	enum adm_status status;

	ASSERT(p->target->busy && !so->blk == (so->err != 0));
	if (may_stand_in(so, p)) {
		open_stand_in(o);
		return;
	}
	if (so->err) {
		status = not_opened(p->call, so);
	} else {
		status = lu_raise(p->call, lu, so->blk);
		if (status != ADM_OK)
			store_close(so->blk);
	}
	free(o);
	if (status == ADM_OK) {
		registry_add_lu(lu);
		lu_lose(p);
	} else
		lu_unmake(lu);
	pending_end(p, status);
}

void apply_lu_found(struct adm_lu *lu)
{
	ASSERT(lu->lost);
	log_notice("target %u LUN %u is ready again%s", lu->target->tid, lu->lun,
		   lu->late ? "" : ", by tgtadm");
	lu->lost = lu->stand_in = lu->apart = false;
	late_over(lu);
	scsi_lu_set_lost(lu->scsi, false);
	(void)scsi_lu_release(lu->scsi);
}

enum adm_status apply_lu_new(struct adm_call *call, struct adm_target *t,
			     const struct apply_lu *want,
			     void (*done)(void *arg, enum adm_status status), void *arg)
{
	struct adm_lu *lu = lu_alloc(t, want);
	struct store_opts options;
	struct pending *p;
	struct opening *o;
	uint32_t block_size;
	enum adm_status status;

	ASSERT(want->lun && !registry_lu(t, want->lun));
	if (!lu)
		return ADM_NOMEM;
	status = lu_parse(call, want, lu, &options, &block_size);
	if (status == ADM_OK)
		status = not_twice(call, lu->path);
	if (status != ADM_OK) {
		lu_free(lu);
		return status;
	}
	if (call && call->block_size)
		block_size = call->block_size;
	lu->node_wish = options.node;
	lu->place[lu->threads++] = placement_assign(adm.conf.placement, PLACE_LU, options.node);
	p = pending_new(call, t, lu, done, arg);
	o = opening_new(p, lu->path, block_size, lu_opened);
	if (!o) {
		free(p);
		lu_unmake(lu);
		return ADM_NOMEM;
	}
	t->busy = true;
	open_for(o);
	return ADM_OK;
}

static void lu_deleted(void *arg, int status)
{
	struct pending *p = arg;
	struct scsi_lu_info info;

	if (status == -EBUSY || status == -ENOMEM) {
		scsi_lu_get_info(p->lu->scsi, &info);
		join_group(p->lu, info.conf.blk); /* it has left it */
		pending_end(p, status == -ENOMEM ? ADM_NOMEM :
						   admin_refuse(p->call, ADM_LUN_ACTIVE,
								"commands are under way"));
		return;
	}
	if (status)
		log_error("admin: LU %u:%u: its last data did not reach the store: %s",
			  p->target->tid, p->lu->lun, strerror(-status));
	lu_forget(p->lu);
	pending_end(p,
		    status ? admin_refuse(p->call, ADM_UNKNOWN_ERR,
					  "deleted, but its store failed: %s", strerror(-status)) :
			     ADM_OK);
}

static void lu_left_group(void *arg, int err)
{
	struct pending *p = arg;

	if (err)
		pending_end(p, admin_refuse(p->call, ADM_LUN_ACTIVE, not_left));
	else
		scsi_lu_delete(p->lu->scsi, false, lu_deleted, p);
}

enum adm_status apply_lu_delete(struct adm_call *call, struct adm_lu *lu,
				void (*done)(void *arg, enum adm_status status), void *arg)
{
	struct scsi_lu_info info;
	struct pending *p = pending_new(call, lu->target, lu, done, arg);

	if (!p)
		return ADM_NOMEM;
	scsi_lu_get_info(lu->scsi, &info);
	if (info.prevent_removal) {
		free(p);
		return admin_refuse(call, ADM_PREVENT_REMOVAL,
				    "an initiator prevents medium removal");
	}
	lu->target->busy = true;
	if (group_lu_remove(lu->scsi))
		group_lu_leave(lu->scsi, lu_left_group, p);
	else
		scsi_lu_delete(lu->scsi, false, lu_deleted, p);
	return ADM_OK;
}

static void lu_replaced(void *arg, int status)
{
	struct pending *p = arg;
	struct adm_lu *lu = p->lu;

	if (status) {
		if (!p->late)
			store_close(p->blk);
		pending_end(p, refuse_errno(p->call, status, "path"));
		return;
	}
	bool first = !lu->path;

	join_group(lu, p->blk);
	lu->size_news = 0; /* the new store's */
	names_forget(lu);
	free(lu->path);
	lu->path = p->path;
	p->path = NULL;
	if (p->call && p->call->restored)
		lu_lose(p);
	else if (lu->lost)
		apply_lu_found(lu);
	/* a medium arrived where there was none: it is online, as after tgt's */
	if (first)
		status = scsi_lu_update(lu->scsi, "online", "1");
	else if (p->call)
		warn_shrunk(p->call, lu, p->size);
	pending_end(p, status ? refuse_errno(p->call, status, "online") : ADM_OK);
}

static void path_opened(struct store_open *so)
{
	struct opening *o = container_of(so, struct opening, store);
	struct pending *p = o->pending;

	ASSERT(p->target->busy && !so->blk == (so->err != 0));
	if (so->err && so->path && p->call && p->call->restored) {
		open_stand_in(o);
		return;
	}
	p->blk = so->blk;
	if (so->err) {
		enum adm_status status = not_opened(p->call, so);

		free(o);
		pending_end(p, status);
		return;
	}
	free(o);
	scsi_lu_set_blk(p->lu->scsi, p->blk, lu_replaced, p);
}

static enum adm_status open_path(struct adm_call *call, struct adm_lu *lu, const char *path,
				 bool give_up, void (*done)(void *arg, enum adm_status status),
				 void *arg)
{
	struct scsi_lu_info info;
	struct pending *p;
	struct opening *o = NULL;
	struct group_lu_view group;
	enum adm_status twice;

	if (!*path)
		return admin_refuse(call, ADM_INVALID_REQUEST, "path is empty");
	twice = not_twice(call, path);
	if (twice != ADM_OK)
		return twice;
	if (group_get_lu(lu->scsi, &group))
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "a unit of a group of gateways keeps its image: delete it, and "
				    "make another");
	scsi_lu_get_info(lu->scsi, &info);
	if (info.prevent_removal)
		return admin_refuse(call, ADM_PREVENT_REMOVAL,
				    "an initiator prevents medium removal");
	p = pending_new(call, lu->target, lu, done, arg);
	if (p) {
		p->path = strdup(path);
		p->size = info.size;
	}
	if (p && p->path)
		o = opening_new(p, p->path,
				lu->path	       ? info.block_size :
				call && call->restored ? call->block_size :
							 0,
				path_opened);
	if (!o) {
		if (p)
			free(p->path);
		free(p);
		return ADM_NOMEM;
	}
	if (lu->late) /* whatever comes is not what initiators know */
		late_release(lu);
	o->store.write_through = !info.conf.write_cache;
	o->store.give_up = give_up;
	lu->target->busy = true;
	open_for(o);
	return ADM_OK;
}

enum adm_status apply_lu_path(struct adm_call *call, struct adm_lu *lu, const char *path,
			      void (*done)(void *arg, enum adm_status status), void *arg)
{
	return open_path(call, lu, path, false, done, arg);
}

enum adm_status apply_lu_again(struct adm_call *call, struct adm_lu *lu,
			       void (*done)(void *arg, enum adm_status status), void *arg)
{
	return open_path(call, lu, lu->path, lu->apart, done, arg);
}

static void lu_flushed(void *arg, int status)
{
	struct pending *p = arg;

	pending_end(p, !status ? ADM_OK :
				 refuse_errno(p->call, status,
					      "the write cache is off, but what was in it could "
					      "not be written"));
}

enum adm_status apply_lu_flush(struct adm_call *call, struct adm_lu *lu,
			       void (*done)(void *arg, enum adm_status status), void *arg)
{
	struct pending *p = pending_new(call, lu->target, lu, done, arg);

	if (!p)
		return ADM_NOMEM;
	lu->target->busy = true;
	scsi_lu_flush(lu->scsi, lu_flushed, p);
	return ADM_OK;
}

/* ---- a store in doubt ------------------------------------------------------------------------ */

struct trust {
	struct scsi_work work;
	struct pending *pending;
	struct blk *blk;
	int err;
};

static void trust_work(struct scsi_work *w)
{
	struct trust *tr = container_of(w, struct trust, work);

	tr->err = blk_trust(tr->blk);
}

static void trust_done(struct scsi_work *w)
{
	struct trust *tr = container_of(w, struct trust, work);
	struct pending *p = tr->pending;
	int err = tr->err;

	if (!err)
		log_notice("%s: trusted again, by tgtadm (target %d, LUN %u, refresh=1)",
			   tr->blk->path, p->target->tid, p->lu->lun);
	free(tr);
	pending_end(p, !err ? ADM_OK : refuse_errno(p->call, err, "the record of the loss stays"));
}

enum adm_status apply_lu_trust(struct adm_call *call, struct adm_lu *lu,
			       void (*done)(void *arg, enum adm_status status), void *arg)
{
	struct pending *p = pending_new(call, lu->target, lu, done, arg);
	struct trust *tr = calloc(1, sizeof(*tr));
	struct scsi_lu_info info;

	if (!p || !tr) {
		free(p);
		free(tr);
		return ADM_NOMEM;
	}
	scsi_lu_get_info(lu->scsi, &info);
	tr->pending = p;
	ASSERT(info.conf.blk);
	tr->blk = info.conf.blk;
	tr->work.home = adm.conf.main;
	tr->work.key = scsi_work_key(tr->blk->path);
	tr->work.work = trust_work;
	tr->work.done = trust_done;
	lu->target->busy = true; /* it cannot be deleted, nor get another store, meanwhile */
	scsi_helper_run(&tr->work);
	return ADM_OK;
}
