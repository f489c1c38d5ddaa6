/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The mirror of a unit of the group (mirror_lu.h), from lu_open() to lu_close():
 *
 *     lu_open    what is cached goes, or is kept: then the stamp has this epoch
 *     lu_lock    what this gateway holds of the owner before is written to the store. It stays
 *                here, too, until the object says that it is over: who is killed meanwhile does it
 *                again. Then the mirror begins
 *     ACTIVE     the rules begin, by what the object says
 *     lu_close   who waits fails; the rules stop; what is cached goes, and first the stamp
 *
 * Before lu_lock() nothing is written to the image: it is not ours (rbd_store_go()).
 */
#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include "cache/backend/rbd_put.h"
#include "cache/backend/rbd_store.h"
#include "cache/engine/cache.h"
#include "events/log.h"
#include "tgtd/cluster/live/group_impl.h"

#define DIRT MiB(32) /* what may be dirty of a unit, about what a store drains in a second */
#define DIRT_MOST (1u << 20) /* blocks, where an earlier process had more */

/* ---- struct mirror_lu_ops: its loop ---------------------------------------------------------- */
static void *out_begin(void *arg, unsigned peer, unsigned channel, struct mirror_frame *f,
		       uint8_t **data)
{
	const struct group_lu *lu = arg;
	struct mirror_out *out = mirror_links_begin(lu->group->mirror.links, peer, channel, f);

	if (out)
		*data = out->data;
	return out;
}

static void out_send(void *arg, void *out, struct mirror_frame *f)
{
	(void)arg;
	mirror_links_send(out, f);
}

static void set_posted(struct loop_msg *msg)
{
	struct group_lu *lu = container_of(msg, struct group_lu, set_msg);

	if (lu->group->stopped || !lu->mirror)
		return;
	gw_mirror_set(lu->group->gw, (unsigned)lu->at, &lu->set, group_now());
	group_looks(lu->group);
}

static void out_set(void *arg, const struct gw_mirror *m)
{
	struct group_lu *lu = arg;

	lu->set = *m;
	loop_post(lu->group->main, &lu->set_msg);
}

static void out_say(void *arg, int level, const char *text)
{
	const struct group_lu *lu = arg;

	log_at((enum log_level)level, "cluster: %s: %s", lu->blk->path, text);
}

static const struct mirror_lu_ops lu_ops = {
	.begin = out_begin, .send = out_send, .set = out_set, .say = out_say
};

void group_mirrored_set(void *arg, unsigned at)
{
	struct group_lu *lu = group_lu_at(arg, at);

	if (!lu)
		return;
	pthread_rwlock_rdlock(&lu->group->mirror.lock); /* its end is another thread's */
	if (lu->mirror)
		mirror_lu_set_done(lu->mirror);
	pthread_rwlock_unlock(&lu->group->mirror.lock);
}

/* ---- lu_open --------------------------------------------------------------------------------- */
static bool is_mirrored(const struct group_lu *lu)
{
	return lu->group->mirror.live && cache_is_cached(lu->blk);
}

void group_mirrored_opens(struct group_lu *lu, uint64_t epoch, uint64_t keep)
{
	struct group *g = lu->group;
	struct scsi_lu_info info;
	struct gw_show_lu show;

	gw_show_lu(g->gw, (unsigned)lu->at, &show);
	scsi_lu_get_info(lu->scsi, &info);
	lu->wanted = info.conf.write_cache;
	lu->object = show.mirror;
	lu->epoch = epoch;
	lu->settled = true;
	lu->replays = g->mirror.live && mirror_live_has(g->mirror.live, lu->hash, &show.mirror);
	/* (What is held here is all that counts: what is newer in the arena was not answered.) */
	lu->keeps = is_mirrored(lu) && keep && !lu->replays &&
		    arena_stamps_get(g->mirror.stamps, lu->hash) == keep;
}

static void stamp_arena(struct group_lu *lu, uint64_t epoch)
{
	int err = lu->group->mirror.stamps ?
			  arena_stamps_set(lu->group->mirror.stamps, lu->hash, epoch) :
			  0;

	if (err)
		log_error("cluster: %s: its epoch is not noted: %s", lu->blk->path, strerror(-err));
}

int group_mirrored_drop_run(struct group_lu *lu, uint64_t epoch)
{
	int err;

	stamp_arena(lu, 0);
	err = blk_forget(lu->blk, true);
	/* What a process before had lost is the object's to say. */
	if (!err && blk_doubt(lu->blk))
		err = blk_trust(lu->blk);
	if (!err && epoch)
		stamp_arena(lu, epoch);
	return err;
}

int group_mirrored_open_run(struct group_lu *lu)
{
	/* (A second attempt has it already.) */
	if (lu->keeps || lu->mirror)
		return 0;
	return group_mirrored_drop_run(lu, is_mirrored(lu) ? lu->epoch : 0);
}

/* ---- lu_lock --------------------------------------------------------------------------------- */
/* The sectors of a page, as far as the image goes. */
static void page_put(struct rbd_put *p, const struct mirror_adopted *page, size_t block)
{
	const uint64_t at = page->block * block, size = rbd_put_size(p);
	unsigned first, n;

	for (uint64_t map = page->map; map; map &= ~(((n == 64 ? 0 : 1ull << n) - 1) << first)) {
		const uint64_t rest = map >> (first = (unsigned)__builtin_ctzll(map));
		uint64_t from, to;

		n = ~rest ? (unsigned)__builtin_ctzll(~rest) : 64;
		from = at + ((uint64_t)first << page->shift);
		to = MIN(from + ((uint64_t)n << page->shift), size);
		if (from < to)
			rbd_put(p, from, page->data + (from - at), to - from);
	}
}

/* Tombstones first: pages below them are gone already. */
static int zeroes_put(struct group_lu *lu, size_t block)
{
	struct mirror_live *live = lu->group->mirror.live;
	uint64_t first, count, gen;
	struct rbd_put p;
	int err = 0;

	while (!err && mirror_live_zero(live, lu->hash, &first, &count, &gen)) {
		uint64_t size, from, to;

		err = rbd_put_begin(&p, lu->blk);
		if (err)
			break;
		size = rbd_put_size(&p);
		from = MIN(first, size / block + 1) * block;
		to = MIN(MIN(first + count, size / block + 1) * block, size);
		if (from < to)
			rbd_put_zeroes(&p, from, to - from);
		err = rbd_put_end(&p);
		if (!err)
			mirror_live_zeroed(live, lu->hash, gen);
	}
	return err;
}

static int pages_put(struct group_lu *lu, size_t block, uint8_t *data, uint64_t *pages)
{
	enum mirror_taken found;
	struct mirror_adopted page;
	struct rbd_put p;
	uint32_t at = 0;
	int err = rbd_put_begin(&p, lu->blk);

	if (err)
		return err;
	while ((found = mirror_live_look(lu->group->mirror.live, lu->hash, &at, &page, data)) ==
	       MIRROR_TAKE_MORE) {
		page_put(&p, &page, block);
		++*pages;
	}
	err = rbd_put_end(&p);
	return err ? err : found == MIRROR_TAKEN ? 0 : -EBADMSG;
}

static int mirror_replay(struct group_lu *lu)
{
	const uint64_t begun = group_now();
	const size_t block = mirror_live_block(lu->group->mirror.live);
	uint8_t *data = malloc(block);
	uint64_t pages = 0;
	int err = data ? zeroes_put(lu, block) : -ENOMEM;

	if (!err)
		err = pages_put(lu, block, data, &pages);
	free(data);
	if (err)
		return err;
	log_notice("cluster: %s: %llu blocks that were mirrored here are in the store, after %llu "
		   "ms",
		   lu->blk->path, (unsigned long long)pages,
		   (unsigned long long)((group_now() - begun) / NSEC_PER_MSEC));
	lu->replays = false;
	return 0;
}

/* ---- the mirror begins ---- */
static void publish(struct group_lu *lu, struct mirror_lu *m)
{
	struct group *g = lu->group;
	unsigned i;

	pthread_rwlock_wrlock(&g->mirror.lock);
	if (m) {
		g->mirror.lu[g->mirror.n++] = lu;
	} else {
		for (i = 0; g->mirror.lu[i] != lu; i++)
			;
		g->mirror.lu[i] = g->mirror.lu[--g->mirror.n];
	}
	lu->mirror = m;
	pthread_rwlock_unlock(&g->mirror.lock);
}

static int mirror_begin(struct group_lu *lu)
{
	const struct group *g = lu->group;
	const struct group_cache *cache = &g->mirror.cache;
	struct mirror_lu_conf conf = { .blk = lu->blk };
	struct mirror_lu *m = NULL;
	unsigned at;
	int err;

	if (!is_mirrored(lu) || lu->mirror)
		return 0;
	at = (unsigned)(lu->hash % MAX(cache->loops, mirror_links_channels(g->mirror.links)));
	conf.loop = cache->loop[at % cache->loops];
	conf.channel = at % mirror_links_channels(g->mirror.links);
	conf.most = lu->blk->max_len / cache->block + 1;
	conf.owner = (struct mirror_owner_config){ .self = g->conf.self,
						   .gateways = g->conf.n,
						   .lu = lu->hash,
						   .blocks = MAX(2 * conf.most,
								 (uint32_t)(DIRT / cache->block)),
						   .mirrored = lu->wanted };
	/* An earlier process may have had room for more. */
	while ((err = mirror_lu_begin(&conf, &lu_ops, lu, &m)) == -ENOSPC &&
	       conf.owner.blocks < DIRT_MOST)
		conf.owner.blocks *= 2;
	if (err) {
		log_error("cluster: %s: its mirror cannot begin: %s", lu->blk->path,
			  strerror(-err));
		return err;
	}
	scsi_lu_set_mirrored(lu->scsi, true);
	publish(lu, m);
	return 0;
}

int group_mirrored_begin_run(struct group_lu *lu)
{
	int err = lu->replays ? mirror_replay(lu) : 0;

	if (!err && lu->object.state == GW_MIRROR_DOUBT && cache_is_cached(lu->blk))
		err = cache_lost(lu->blk, "both gateways that had what is not written are lost");
	if (err) {
		log_ratelimited(LOG_LVL_ERROR,
				"cluster: %s: what was mirrored does not reach the store: %s",
				lu->blk->path, strerror(-err));
	} else {
		rbd_store_go(lu->blk);
		err = mirror_begin(lu);
	}
	return err == -EBUSY ? -EIO : err; /* that would be the lock's */
}

/* ---- it serves, and does no more ------------------------------------------------------------- */
void group_mirrored_serves(struct group_lu *lu)
{
	const struct group *g = lu->group;
	struct gw_show_lu show;

	if (!lu->mirror || lu->runs)
		return;
	gw_show_lu(g->gw, (unsigned)lu->at, &show);
	lu->runs = true;
	mirror_lu_start(lu->mirror, show.epoch, gw_incarnation(g->gw), &show.mirror, lu->keeps);
	mirror_lu_peers(lu->mirror, g->mirror.well);
}

bool group_mirrored_is_clean(struct group_lu *lu)
{
	struct mirror_show show;

	mirror_lu_show(lu->mirror, &show);
	return !show.dirty && !show.unacknowledged;
}

void group_mirrored_fails(struct group_lu *lu)
{
	if (lu->mirror)
		mirror_lu_fail(lu->mirror, -ENODEV);
}

/* On its loop. */
static void lu_stopped(void *arg)
{
	struct group_lu *lu = arg;

	sem_post(lu->halted);
}

void group_mirrored_end_run(struct group_lu *lu)
{
	struct mirror_lu *m = lu->mirror;
	sem_t halted;

	if (!m)
		return;
	sem_init(&halted, 0, 0);
	lu->halted = &halted;
	mirror_lu_stop(m, lu_stopped);
	while (sem_wait(&halted))
		; /* EINTR */
	sem_destroy(&halted);
	publish(lu, NULL);
	mirror_lu_end(m);
	scsi_lu_set_mirrored(lu->scsi, false);
	lu->runs = lu->keeps = false;
}

/* ---- now and then ---------------------------------------------------------------------------- */
static void settle_run(struct group_ask *a)
{
	struct group_lu *lu = a->lu;

	stamp_arena(lu, 0);
	a->result = blk_forget(lu->blk, true);
}

static void settle_answer(struct group_ask *a)
{
	(void)a; /* what stays is dropped when the unit is opened */
}

/* What a process before has left in the arena, and may not be used any more, goes: it is never
 * written. */
static void settle_found(struct group_lu *lu, const struct gw_show_lu *show)
{
	struct group *g = lu->group;
	const uint64_t epoch = arena_stamps_get(g->mirror.stamps, lu->hash);
	struct group_ask *a;

	lu->settled = true;
	if (!epoch || (show->owner == g->conf.self && show->epoch == epoch))
		return;
	a = group_ask_new(g, 0, lu);
	if (!a)
		return;
	a->run = settle_run;
	a->answer = settle_answer;
	group_run(a);
}

/* The unit is served. write_cache=: its mirror is to begin, or to end. refresh=1: somebody has
 * looked at it. */
static void look_served(struct group_lu *lu, const struct gw_show_lu *show)
{
	struct scsi_lu_info info;

	scsi_lu_get_info(lu->scsi, &info);
	if (lu->wanted != info.conf.write_cache) {
		lu->wanted = info.conf.write_cache;
		mirror_lu_mirrored(lu->mirror, lu->wanted);
	}
	if (show->mirror.state == GW_MIRROR_DOUBT && !blk_doubt(lu->blk))
		mirror_lu_refresh(lu->mirror);
}

void group_mirrored_look(struct group_lu *lu)
{
	struct gw_show_lu show;

	gw_show_lu(lu->group->gw, (unsigned)lu->at, &show);
	if (show.known && !lu->settled)
		settle_found(lu, &show);
	pthread_rwlock_rdlock(&lu->group->mirror.lock); /* its end is another thread's */
	if (lu->mirror && lu->runs)
		look_served(lu, &show);
	pthread_rwlock_unlock(&lu->group->mirror.lock);
}

void group_mirrored_init(struct group_lu *lu)
{
	lu->set_msg.handle = set_posted;
	lu->settled = lu->runs = lu->keeps = lu->replays = false;
}
