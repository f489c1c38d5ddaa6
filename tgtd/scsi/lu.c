/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Logical units as the admin side sees them: made, shown, given another store,
 * deleted (changed: lu_update.c). */
#include <stdlib.h>
#include <stdio.h>
#include "events/hash.h"
#include "tgtd/scsi/latency_impl.h"
#include "tgtd/scsi/tpg.h"

void scsi_lu_conf_init(struct scsi_lu_conf *c)
{
	memset(c, 0, sizeof(*c));
	c->online = true;
	c->write_cache = true;
	c->lbppbe = 0xff;
	c->atomic_unit = KiB(16); /* a page of a database */
}

size_t scsi_lu_naa(const struct scsi_lu *lu, uint8_t naa[SCSI_NAA_MAX])
{
	uint64_t h = FNV1A_INIT;
	size_t len = strlen(lu->conf.naa) / 2;
	char dflt[25];

	ASSERT(len <= SCSI_NAA_MAX);
	for (size_t i = 0; i < len; i++)
		sscanf(lu->conf.naa + 2 * i, "%2hhx", &naa[i]);
	if (len)
		return len;
	/* A scsi_id that somebody chose names the same unit wherever it is served (two targets on
	 * one store, for multipath); the default one is only unique with the target's name. */
	snprintf(dflt, sizeof(dflt), "IET     %04x%04x", lu->target->tid, lu->lun);
	if (strcmp(lu->conf.scsi_id, dflt) != 0) {
		h = fnv1a(h, lu->conf.scsi_id, strlen(lu->conf.scsi_id));
		if (lu->conf.scsi_id_rest)
			h = fnv1a(h, &lu->conf.scsi_id_rest, sizeof(lu->conf.scsi_id_rest));
	} else {
		h = fnv1a(h, lu->target->name, strlen(lu->target->name) + 1);
		h = fnv1a(h, &lu->lun, sizeof(lu->lun));
	}
	h ^= h >> 29;
	h *= 0xbf58476d1ce4e5b9ull;
	h ^= h >> 32;
	put_be64(naa, 3ull << 60 | h >> 4); /* NAA 3h: locally assigned */
	return sizeof(h);
}


/*
 * The kernel takes an atomic write of a power of two bytes, at a multiple of its length. SBC-4 has
 * one alignment for all lengths, and initiators join neighbouring atomic writes. So one size is
 * offered, the configured one or what of the store is nearest: all that VPD B0h promises holds.
 */
static uint32_t atomic_max(const struct scsi_lu *lu)
{
	const struct blk *blk = lu->blk;
	const uint32_t need = BLK_CAP_ATOMIC | BLK_CAP_OWN_MEMORY, unit = lu->conf.atomic_unit;

	if (!blk || (blk->caps & need) != need || !unit)
		return 0;
	if (!blk->atomic_max)
		return lu->seg_max;
	return MIN(MAX(unit, blk->atomic_min), MIN(blk->atomic_max, lu->seg_max));
}

void scsi_lu_update_gate_locked(struct scsi_lu *lu)
{
	uint32_t caps = lu->blk ? lu->blk->caps : 0, flags = 0;
	const bool through = !lu->mode.wce || (lu->gateways && !lu->mirrored);

	if (lu->blk && lu->blk->ops->set_write_through)
		lu->blk->ops->set_write_through(lu->blk, through);
	else
		flags |= through ? LU_FUA_ALL : 0;
	flags |= lu->conf.readonly || (caps & BLK_CAP_READONLY) ? LU_READONLY : 0;
	flags |= lu->conf.removable ? LU_REMOVABLE : 0;
	flags |= lu->conf.thin_provisioning && (caps & BLK_CAP_DISCARD) ? LU_THIN : 0;
	flags |= lu->mode.d_sense ? LU_D_SENSE : 0;
	flags |= lu->mode.tas ? LU_TAS : 0;
	scsi_lu_gate_locked(lu, GATE_OFFLINE, !lu->conf.online || lu->lost);
	scsi_lu_gate_locked(lu, GATE_NO_MEDIUM, lu->ejected);
	scsi_lu_gate_locked(lu, GATE_READONLY, (flags & LU_READONLY) || lu->mode.swp);
	scsi_lu_gate_locked(lu, GATE_RCD, lu->mode.rcd);
	scsi_lu_gate_locked(lu, GATE_LIMIT, scsi_limit_any(&lu->conf.limit));
	atomic_store(&lu->flags, flags);
	atomic_store(&lu->atomic_max, atomic_max(lu));
}

static void lu_set_text(char *dst, size_t size, const char *given, const char *dflt)
{
	const char *text = given[0] ? given : dflt;
	size_t n = MIN(strlen(text), size - 1);
	char copy[64];

	memcpy(copy, text, n); /* @given may be @dst */
	memset(dst, 0, size);
	memcpy(dst, copy, n);
}

#define SEG_MAX MiB(1)

static void no_hint(struct blk *blk, const uint64_t *offset, unsigned n, enum blk_hint what)
{
	(void)blk;
	(void)offset;
	(void)n;
	(void)what;
}

static void adopt_blk(struct scsi_lu *lu, struct blk *blk)
{
	lu->blk = blk;
	lu->hint = blk->ops->hint ? blk->ops->hint : no_hint;
	lu->block_size = blk->block_size;
	lu->block_shift = (uint8_t)__builtin_ctz(blk->block_size);
	lu->seg_max = (uint32_t)ALIGN_DOWN(MIN((uint64_t)blk->max_len, SEG_MAX),
					   (uint64_t)blk->block_size);
	lu->fast_max = lu->seg_max;
	/* Not taken from the store unless asked for: what a larger physical block would
	 * tell initiators, the optimal unmap granularity tells them, and lbppbe=N is there
	 * for the rest. */
	if (lu->conf.lbppbe == 0xff)
		lu->conf.lbppbe = 0;
}

/* As configured, or as tgt would call it. */
static void set_names(struct scsi_lu *lu, const struct scsi_lu_conf *conf)
{
	const uint32_t tid = lu->target->tid;
	char text[64];

	snprintf(text, sizeof(text), "IET     %04x%04x", tid, conf->lun);
	lu_set_text(lu->conf.scsi_id, sizeof(lu->conf.scsi_id), conf->scsi_id, text);
	snprintf(text, sizeof(text), "beaf%d%d", (int)tid, (int)conf->lun);
	lu_set_text(lu->conf.scsi_sn, sizeof(lu->conf.scsi_sn), conf->scsi_sn, text);
	lu_set_text(lu->conf.vendor_id, sizeof(lu->conf.vendor_id), conf->vendor_id, "IET");
	lu_set_text(lu->conf.product_id, sizeof(lu->conf.product_id), conf->product_id,
		    lu->type == 0x0c ? "Controller" : "VIRTUAL-DISK");
	lu_set_text(lu->conf.product_rev, sizeof(lu->conf.product_rev), conf->product_rev, "0001");
}

/* Nobody serves it, until somebody says so (gateways.c). */
static void join_gateways(struct scsi_lu *lu, const struct scsi_lu_conf *conf)
{
	const struct scsi_gateways *g = conf->gateways;

	if (!g)
		return;
	ASSERT(lu->blk && g->n && g->n <= SCSI_GATEWAYS_MAX && g->self < g->n &&
	       conf->gateway_home < g->n);
	lu->gateways = g;
	lu->gateway_home = (uint8_t)conf->gateway_home;
	memset(lu->gateway_state, SCSI_ALUA_TRANSITIONING, sizeof(lu->gateway_state));
}

/* @lu takes its place in the target's table, if there is one. 0, or an errno. target->lock held. */
static int enter_locked(struct scsi_target *t, struct scsi_lu *lu)
{
	if (t->dying)
		return ENOENT;
	if (lu->lun < t->nlu && t->lu[lu->lun])
		return EEXIST;
	if (lu->lun >= t->nlu) {
		uint32_t want = ALIGN_UP(lu->lun + 1, 16u);
		struct scsi_lu **v = realloc(t->lu, want * sizeof(*v));

		if (!v)
			return ENOMEM;
		memset(v + t->nlu, 0, (want - t->nlu) * sizeof(*v));
		t->lu = v;
		t->nlu = want;
	}
	t->lu[lu->lun] = lu;
	return 0;
}

struct scsi_lu *scsi_lu_create(struct scsi_target *t, const struct scsi_lu_conf *conf)
{
	bool controller = conf->device_type == 0x0c;
	struct scsi_lu *lu;
	int err;

	if (conf->lun > SCSI_MAX_LUN || (!controller && !conf->blk)) {
		errno = EINVAL;
		return NULL;
	}
	lu = aligned_alloc(CACHE_LINE, ALIGN_UP(sizeof(*lu), (size_t)CACHE_LINE));
	if (!lu) {
		errno = ENOMEM;
		return NULL;
	}
	memset(lu, 0, sizeof(*lu));
	pthread_mutex_init(&lu->lock, NULL);
	list_init(&lu->itls);
	list_init(&lu->loads);
	list_init(&lu->gone_waits);
	lu->made_ns = clock_now_ns();
	list_init(&lu->copies);
	lu->conf = *conf;
	lu->lun = conf->lun;
	lu->type = conf->device_type;
	lu->ops = scsi_ops_of(lu->type);
	lu->target = t;
	lu->loop = conf->loop;
	set_names(lu, conf);
	scsi_limit_set(&lu->limit, &lu->conf.limit);
	if (controller) {
		lu->hint = no_hint;
		lu->conf.online = true;
		lu->conf.lbppbe = 0;
	} else {
		adopt_blk(lu, conf->blk);
	}
	err = scsi_features_init(lu);
	if (!err && conf->loop && scsi_lu_add_loop(lu, conf->loop, conf->loop_shared) < 0)
		err = -ENOMEM;
	if (err) {
		scsi_features_free(lu);
		free(lu);
		errno = -err;
		return NULL;
	}
	join_gateways(lu, conf);
	pthread_mutex_lock(&lu->lock);
	scsi_lu_update_gate_locked(lu);
	scsi_lu_gate_locked(lu, GATE_LEASE, lu->gateways != NULL);
	scsi_alua_init_locked(lu);
	pthread_mutex_unlock(&lu->lock);

	pthread_mutex_lock(&t->lock);
	err = enter_locked(t, lu);
	pthread_mutex_unlock(&t->lock);
	if (err) {
		scsi_lu_forget_loops(lu);
		scsi_features_free(lu);
		pthread_mutex_destroy(&lu->lock);
		free(lu);
		errno = err;
		return NULL;
	}
	scsi_luns_changed(t);
	return lu;
}

struct scsi_lu *scsi_lu_find(struct scsi_target *t, uint32_t lun)
{
	struct scsi_lu *lu;

	pthread_mutex_lock(&t->lock);
	lu = lun < t->nlu ? t->lu[lun] : NULL;
	pthread_mutex_unlock(&t->lock);
	return lu;
}

struct scsi_lu *scsi_lu_next(struct scsi_target *t, struct scsi_lu *lu)
{
	struct scsi_lu *next = NULL;

	pthread_mutex_lock(&t->lock);
	for (uint32_t i = lu ? lu->lun + 1 : 0; i < t->nlu && !next; i++)
		next = t->lu[i];
	pthread_mutex_unlock(&t->lock);
	return next;
}

/* ---- delete ---------------------------------------------------------------------------------- */

struct lu_delete {
	struct scsi_nexus_walk visits;
	struct scsi_gone_wait gone;
	struct loop_msg later;
	struct scsi_work close;
	struct scsi_lu *lu;
	struct blk *blk; /* to be closed */
	void (*done)(void *arg, int status);
	void *arg;
};

static void aborted_all(void *arg)
{
	(void)arg; /* the I_T_L nexus reports through ->quiet */
}

static void lu_left(struct scsi_itl *itl)
{
	struct scsi_nexus_visit *v = itl->quiet_arg;

	scsi_itl_free(itl);
	scsi_nexus_visited(v);
}

static bool lu_leave(struct scsi_nexus_visit *v, struct scsi_nexus *n, struct scsi_itl *itl)
{
	scsi_itl_forget(itl);
	if (itl->inflight == 0 && list_empty(&itl->held)) {
		scsi_itl_free(itl);
		return true;
	}
	itl->quiet = lu_left;
	itl->quiet_arg = v;
	n->ops->abort_all(n, itl->lu, false, aborted_all, NULL);
	return false;
}

static void close_store(struct scsi_work *w)
{
	struct lu_delete *d = container_of(w, struct lu_delete, close);

	if (d->blk)
		blk_close(d->blk);
}

static void store_closed(struct scsi_work *w)
{
	struct lu_delete *d = container_of(w, struct lu_delete, close);
	struct scsi_lu *lu = d->lu;

	scsi_lu_keep_loops(lu, 0);
	pthread_mutex_destroy(&lu->lock);
	free(lu->homes);
	free(lu->release);
	lat_shard_free(lu->gone_lat);
	free(lu);
	if (d->done)
		d->done(d->arg, 0);
	free(d);
}

static void nobody_left(struct lu_delete *d)
{
	if (scsi_lu_gone_wait(d->lu, &d->gone))
		return;
	ASSERT(list_empty(&d->lu->itls));
	if (scsi_features_wait(d->lu, &d->later, loop_current()))
		return;
	scsi_features_free(d->lu);
	pthread_mutex_lock(&d->lu->lock);
	d->blk = d->lu->blk;
	d->lu->blk = NULL; /* who asks about the unit finds none */
	pthread_mutex_unlock(&d->lu->lock);
	d->close.home = loop_current();
	d->close.key = scsi_work_key(d->blk ? d->blk->path : NULL);
	d->close.work = close_store;
	d->close.done = store_closed;
	scsi_helper_run(&d->close);
}

static void lu_look_again(struct loop_msg *m)
{
	nobody_left(container_of(m, struct lu_delete, later));
}

static void look_again_gone(struct loop_msg *m)
{
	nobody_left(container_of(m, struct lu_delete, gone.msg));
}

static void all_left(struct scsi_nexus_walk *all)
{
	struct lu_delete *d = container_of(all, struct lu_delete, visits);

	d->later.handle = lu_look_again;
	d->gone.msg.handle = look_again_gone;
	nobody_left(d);
}

static bool lu_busy(struct scsi_lu *lu)
{
	struct scsi_itl *itl;
	bool busy;

	pthread_mutex_lock(&lu->lock);
	busy = lu->prevents > 0;
	list_for_each(itl, &lu->itls, link)
		busy |= __atomic_load_n(&itl->inflight, __ATOMIC_RELAXED) > 0;
	pthread_mutex_unlock(&lu->lock);
	return busy;
}

void scsi_lu_delete(struct scsi_lu *lu, bool force, void (*done)(void *arg, int status), void *arg)
{
	struct scsi_target *t = lu->target;
	struct lu_delete *d;

	if (lu->deleting || lu->drains || (!force && lu_busy(lu))) {
		done(arg, -EBUSY);
		return;
	}
	d = calloc(1, sizeof(*d));
	if (!d) {
		done(arg, -ENOMEM);
		return;
	}
	lu->deleting = true;
	pthread_mutex_lock(&t->lock);
	t->lu[lu->lun] = NULL;
	pthread_mutex_unlock(&t->lock);
	d->lu = lu;
	d->done = done;
	d->arg = arg;
	d->visits.target = t;
	d->visits.lu = lu;
	d->visits.fn = lu_leave;
	d->visits.done = all_left;
	if (scsi_for_each_nexus(&d->visits) < 0)
		log_error("scsi: out of memory while deleting target %u LUN %u", t->tid, lu->lun);
	scsi_luns_changed(t);
}

/* ---- another store --------------------------------------------------------------------------- */

struct lu_swap {
	struct scsi_nexus_walk visits;
	struct scsi_gone_wait gone;
	struct scsi_work close;
	struct scsi_lu *lu;
	struct blk *blk, *old;
	void (*done)(void *arg, int status);
	void *arg;
};

static void quiet_now(struct scsi_itl *itl)
{
	scsi_nexus_visited(itl->quiet_arg);
}

static bool wait_quiet(struct scsi_nexus_visit *v, struct scsi_nexus *n, struct scsi_itl *itl)
{
	(void)n;
	scsi_limit_park(itl);
	if (itl->inflight == 0)
		return true;
	itl->quiet = quiet_now;
	itl->quiet_arg = v;
	return false;
}

static bool run_held(struct scsi_nexus_visit *v, struct scsi_nexus *n, struct scsi_itl *itl)
{
	(void)v;
	(void)n;
	scsi_itl_run_held(itl);
	return true;
}

static void swap_close(struct scsi_work *w)
{
	blk_close(container_of(w, struct lu_swap, close)->old);
}

static void swap_closed(struct scsi_work *w)
{
	struct lu_swap *s = container_of(w, struct lu_swap, close);

	if (s->done)
		s->done(s->arg, 0);
	free(s);
}

static void swap_thawed(struct scsi_nexus_walk *all)
{
	struct lu_swap *s = container_of(all, struct lu_swap, visits);

	s->close.home = loop_current();
	s->close.key = scsi_work_key(s->old->path);
	s->close.work = swap_close;
	s->close.done = swap_closed;
	scsi_helper_run(&s->close);
}

static void swap_now(struct lu_swap *s)
{
	struct scsi_lu *lu = s->lu;
	uint32_t facts;
	bool known;

	if (scsi_lu_gone_wait(lu, &s->gone))
		return;
	pthread_mutex_lock(&lu->lock);
	known = lu->gate & GATE_LATE; /* it is the one that initiators know */
	facts = scsi_features_facts_locked(lu);
	scsi_features_new_store_locked(lu);
	s->old = lu->blk;
	adopt_blk(lu, s->blk);
	if (!known) {
		lu->ejected = false;
		scsi_ua_raise_locked(lu, NULL, UA_MEDIUM);
		scsi_ua_raise_locked(lu, NULL, UA_CAPACITY);
	}
	scsi_lu_update_gate_locked(lu);
	if (!known && facts != scsi_features_facts_locked(lu))
		scsi_ua_raise_locked(lu, NULL, UA_INQUIRY);
	scsi_lu_gate_locked(lu, GATE_FROZEN, false);
	pthread_mutex_unlock(&lu->lock);
	s->visits.fn = run_held;
	s->visits.done = swap_thawed;
	(void)!scsi_for_each_nexus(&s->visits);
}

static void swap_again(struct loop_msg *m)
{
	swap_now(container_of(m, struct lu_swap, gone.msg));
}

static void swap_quiet(struct scsi_nexus_walk *all)
{
	struct lu_swap *s = container_of(all, struct lu_swap, visits);

	s->gone.msg.handle = swap_again;
	swap_now(s);
}

void scsi_lu_set_blk(struct scsi_lu *lu, struct blk *blk, void (*done)(void *arg, int status),
		     void *arg)
{
	struct lu_swap *s;
	bool busy;

	s = calloc(1, sizeof(*s));
	if (!s) {
		done(arg, -ENOMEM);
		return;
	}
	pthread_mutex_lock(&lu->lock);
	busy = lu->deleting || lu->drains || !lu->blk || (lu->gate & GATE_FROZEN) ||
	       scsi_features_busy_locked(lu);
	if (!busy)
		scsi_lu_gate_locked(lu, GATE_FROZEN, true);
	pthread_mutex_unlock(&lu->lock);
	if (busy) {
		free(s);
		done(arg, -EBUSY);
		return;
	}
	s->lu = lu;
	s->blk = blk;
	s->done = done;
	s->arg = arg;
	s->visits.target = lu->target;
	s->visits.lu = lu;
	s->visits.fn = wait_quiet;
	s->visits.done = swap_quiet;
	if (scsi_for_each_nexus(&s->visits) < 0)
		log_error("scsi: out of memory while replacing the store of target %u LUN %u",
			  lu->target->tid, lu->lun);
}

static int size_again(struct scsi_lu *lu, int (*look)(struct blk *blk))
{
	uint64_t before, after;
	int ret;

	if (!lu->blk)
		return -EINVAL;
	before = scsi_lu_blocks(lu);
	ret = look(lu->blk);
	after = scsi_lu_blocks(lu);
	if (after != before) {
		log_notice("scsi: target %u LUN %u has %llu blocks now (%llu before)",
			   lu->target->tid, lu->lun, (unsigned long long)after,
			   (unsigned long long)before);
		scsi_ua_raise(lu, NULL, UA_CAPACITY);
	}
	return ret;
}

int scsi_lu_refresh(struct scsi_lu *lu)
{
	return size_again(lu, blk_refresh);
}

int scsi_lu_resize(struct scsi_lu *lu)
{
	return size_again(lu, blk_resize);
}

/* ---- figures --------------------------------------------------------------------------------- */

void scsi_lu_get_info(const struct scsi_lu *clu, struct scsi_lu_info *info)
{
	struct scsi_lu *lu = (struct scsi_lu *)(uintptr_t)clu;

	pthread_mutex_lock(&lu->lock);
	info->conf = lu->conf;
	info->conf.swp = lu->mode.swp;
	info->conf.write_cache = lu->mode.wce;
	info->conf.readonly = scsi_lu_is(lu, LU_READONLY);
	info->conf.online = lu->conf.online && !lu->ejected && !lu->lost;
	info->conf.blk = lu->blk;
	info->size = lu->blk ? atomic_load(&lu->blk->size) : 0;
	info->block_size = lu->blk ? lu->block_size : 1;
	info->prevent_removal = lu->prevents > 0;
	info->bstype = lu->blk ? lu->blk->ops->name : "null";
	info->path = lu->blk ? lu->blk->path : NULL;
	if (lu->blk && lu->blk->lower) { /* show the store, not the cache on it */
		info->bstype = lu->blk->lower->ops->name;
		info->path = lu->blk->lower->path;
	}
	pthread_mutex_unlock(&lu->lock);
}

static void add_stats(struct scsi_lu_stats *to, const struct scsi_lu_stats *from)
{
	uint64_t *t = (uint64_t *)to;
	const uint64_t *f = (const uint64_t *)from;

	for (size_t i = 0; i < sizeof(*to) / sizeof(uint64_t); i++)
		t[i] += __atomic_load_n(&f[i], __ATOMIC_RELAXED);
}

void scsi_lu_get_stats(const struct scsi_lu *clu, const struct scsi_nexus *nexus,
		       struct scsi_lu_stats *out)
{
	struct scsi_lu *lu = (struct scsi_lu *)(uintptr_t)clu;
	struct scsi_itl *itl;

	memset(out, 0, sizeof(*out));
	pthread_mutex_lock(&lu->lock);
	if (!nexus)
		add_stats(out, &lu->gone_stats);
	list_for_each(itl, &lu->itls, link)
		if (!nexus || itl->nexus == nexus)
			add_stats(out, &itl->st);
	pthread_mutex_unlock(&lu->lock);
}

void scsi_lu_each_session(struct scsi_lu *lu,
			  void (*fn)(const struct scsi_session_figures *f, void *arg), void *arg)
{
	struct scsi_itl *itl;

	pthread_mutex_lock(&lu->lock);
	list_for_each(itl, &lu->itls, link) {
		struct scsi_lu_stats st = { 0 };
		const struct scsi_nexus *n = itl->nexus;

		add_stats(&st, &itl->st);
		const struct scsi_session_figures f = {
			.id = n->id,
			.initiator = n->iqn,
			.cmds = st.rd_done_cmds + st.wr_done_cmds,
			.bytes = st.rd_done_bytes + st.wr_done_bytes,
			.under_way = __atomic_load_n(&itl->inflight, __ATOMIC_RELAXED),
			.rounds = __atomic_load_n(&n->rounds, __ATOMIC_RELAXED),
			.full_rounds = __atomic_load_n(&n->full_rounds, __ATOMIC_RELAXED),
			.loop = n->loop,
		};

		fn(&f, arg);
	}
	pthread_mutex_unlock(&lu->lock);
}
