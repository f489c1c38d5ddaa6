/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Mirrored write-back, for all of a gateway: its links to others, what it holds for them, and which
 * of its own units' pages in the arenas are worth anything. group_mirrored.c has a unit's own.
 *
 * All of it outlives the worker with the keeper, beside the arenas: "mirror" is the memory of
 * others' blocks, "stamps" the epochs of our own.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>
#include "events/clock.h"
#include "events/kept.h"
#include "events/log.h"
#include "tgtd/cluster/live/group_impl.h"
#include "tgtd/cluster/live/mirror_rdma.h"

/* ---- frames ---------------------------------------------------------------------------------- */
static void to_owner(void *arg, unsigned from, unsigned channel, const struct mirror_frame *f)
{
	struct group *g = arg;

	(void)channel;
	pthread_rwlock_rdlock(&g->mirror.lock);
	for (unsigned i = 0; i < g->mirror.n; i++)
		if (g->mirror.lu[i]->hash == f->lu) {
			mirror_lu_frame(g->mirror.lu[i]->mirror, from, f);
			break;
		}
	pthread_rwlock_unlock(&g->mirror.lock);
}

static void to_peer(void *arg, unsigned from, unsigned channel, const struct mirror_frame *f)
{
	struct group *g = arg;

	mirror_live_frame(g->mirror.live, from, channel, f, clock_now_ns());
}

static void link_down(void *arg, unsigned peer)
{
	struct group *g = arg;

	pthread_rwlock_rdlock(&g->mirror.lock);
	for (unsigned i = 0; i < g->mirror.n; i++)
		mirror_lu_down(g->mirror.lu[i]->mirror, peer);
	pthread_rwlock_unlock(&g->mirror.lock);
}

static const struct mirror_link_ops link_ops = { .to_owner = to_owner,
						 .to_peer = to_peer,
						 .down = link_down };

static void peer_answers(void *arg, unsigned to, unsigned channel, const struct mirror_frame *f)
{
	struct group *g = arg;

	/* Nothing comes before the links are there. */
	mirror_links_answer(g->mirror.links, to, channel, f);
}

static const struct mirror_live_ops live_ops = { .send = peer_answers };

/* ---- struct gw_ops --------------------------------------------------------------------------- */
static bool arena_has(void *arg, unsigned at, uint64_t epoch)
{
	struct group *g = arg;
	const struct group_lu *lu = group_lu_at(g, at);

	return lu && arena_stamps_get(g->mirror.stamps, lu->hash) == epoch;
}

static bool mirror_has(void *arg, unsigned at, const struct gw_mirror *m)
{
	struct group *g = arg;
	const struct group_lu *lu = group_lu_at(g, at);

	return lu && mirror_live_has(g->mirror.live, lu->hash, m);
}

static void mirror_seal(void *arg, uint64_t id, unsigned at, const struct gw_mirror *m)
{
	struct group *g = arg;
	struct group_lu *lu = group_lu_at(g, at);
	struct group_ask *a = lu ? group_ask_new(g, id, lu) : NULL;
	struct gw_show_lu show;

	if (!a)
		return;
	/* First nothing of its owner can come here by RDMA any more; of nobody, where the object
	 * does not say whose it is. */
	gw_show_lu(g->gw, at, &show);
	if (g->mirror.links)
		mirror_links_cut(g->mirror.links,
				 show.owner == g->conf.self ? GW_GATEWAYS : show.owner);
	group_answer(a, mirror_live_seal(g->mirror.live, lu->hash, m) ? 0 : -ENOENT);
}

static void lu_mirror(void *arg, unsigned at, const struct gw_mirror *m)
{
	struct group *g = arg;
	const struct group_lu *lu = group_lu_at(g, at);

	if (lu)
		mirror_live_object(g->mirror.live, lu->hash, m);
}

void group_mirror_ops(const struct group *g, struct gw_ops *ops)
{
	if (!g->mirror.live)
		return;
	ops->arena_has = arena_has;
	ops->mirror_has = mirror_has;
	ops->mirror_seal = mirror_seal;
	ops->lu_mirror = lu_mirror;
	ops->mirror_set = group_mirrored_set;
}

/* ---- it begins, and ends --------------------------------------------------------------------- */
static void keep_for_next(const char *key, int fd)
{
	struct kept_pair pair = { .fd = fd };

	snprintf(pair.key, sizeof(pair.key), "%s", key);
	kept_put_all(&pair, 1);
	if (pair.err)
		log_error("cluster: the keeper does not keep '%s': %s", key, strerror(-pair.err));
}

/* Frames more for owners that write by RDMA: for each channel of each of them, within a quarter of
 * what there is. None where there is no device, or it is not to be used. */
static uint32_t memory_lent(const struct group *g, const struct group_cache *cache, uint32_t pages)
{
	const struct sockaddr_storage *self = &g->conf.gateway[g->conf.self].address;
	const uint32_t channels = MIN(cache->loops, (unsigned)MIRROR_CHANNELS);

	if (g->conf.transport == MIRROR_TCP || self->ss_family == AF_UNSPEC ||
	    !mirror_rdma_dev_is_there(self))
		return 0;
	return MIN(MIRROR_RDMA_SLOTS * channels * (g->conf.n - 1), pages / 4);
}

static int memory_begin(struct group *g, const struct group_cache *cache)
{
	const uint32_t block = cache->block;
	struct mirror_live_conf conf = { .self = g->conf.self,
					 .memory = { .lus = MIRROR_MEMORY_LUS,
						     .pages = (uint32_t)MIN(
							     g->conf.memory / block,
							     (uint64_t)MIRROR_MEMORY_PAGES),
						     .page_shift = (unsigned)__builtin_ctz(block) },
					 .fd = kept_take("mirror") };
	struct mirror_memory_left left;
	int err;

	conf.memory.lent = memory_lent(g, cache, conf.memory.pages);
	conf.memory.pages -= conf.memory.lent;
	g->mirror.live = mirror_live_new(&conf, &live_ops, g, &left);
	err = g->mirror.live ? 0 : -errno;
	/* (Refused: its memory would stay as long as this process.) */
	if (conf.fd >= 0 && (err || mirror_live_fd(g->mirror.live) != conf.fd))
		close(conf.fd);
	if (err)
		return err;
	if (mirror_live_block(g->mirror.live) != block)
		log_error("cluster: what is held for other gateways has blocks of another size");
	keep_for_next("mirror", mirror_live_fd(g->mirror.live));
	g->mirror.stamps = arena_stamps_new(kept_take("stamps"), cache->kept);
	if (!g->mirror.stamps)
		return -errno;
	keep_for_next("stamps", arena_stamps_fd(g->mirror.stamps));
	return 0;
}

/* A unit that is busy has a channel of its own with it, as far as there are as many (which costs a
 * socket). Over RDMA it stays with its worker, and each costs memory. */
#define CHANNELS_LEAST 4u

/* Channels by their homes. How many. */
static unsigned channels_of(const struct group_cache *cache, bool rdma, struct loop **home)
{
	const unsigned least = rdma ? 1 : CHANNELS_LEAST;
	const unsigned n = MIN(MAX(cache->loops, least), (unsigned)MIRROR_CHANNELS);

	for (unsigned i = 0; i < n; i++)
		home[i] = cache->loop[i % cache->loops];
	return n;
}

/* Blocks must be of one size: it is a part of what both ends have to agree in. */
static int links_begin(struct group *g, const struct group_cache *cache)
{
	char name[GROUP_NAME_MAX + 16];
	struct loop *home[MIRROR_CHANNELS];
	struct mirror_links_conf conf = { .self = g->conf.self,
					  .gateways = g->conf.n,
					  .group = name,
					  .secret = g->conf.secret,
					  .secret_len = g->conf.secret ? strlen(g->conf.secret) : 0,
					  .main = g->main,
					  .loop = home,
					  .transport = g->conf.transport };
	struct mirror_slots slots;

	if (mirror_live_slots(g->mirror.live, &slots))
		conf.slots = &slots;
	conf.loops = channels_of(cache, conf.slots != NULL, home);
	snprintf(name, sizeof(name), "%s/%u", g->conf.name, cache->block);
	for (unsigned i = 0; i < g->conf.n; i++)
		conf.address[i] = g->conf.gateway[i].address;
	g->mirror.links = mirror_links_start(&conf, &link_ops, g);
	return g->mirror.links ? 0 : -errno;
}

int group_mirror_begin(struct group *g, const struct group_cache *cache)
{
	int err;

	pthread_rwlock_init(&g->mirror.lock, NULL);
	if (!g->conf.mirrors)
		return 0;
	if (!cache->cache) {
		log_warn("cluster: without a cache nothing is mirrored");
		return 0;
	}
	g->mirror.cache = *cache;
	err = memory_begin(g, cache);
	if (!err)
		err = links_begin(g, cache);
	if (err)
		log_error("cluster: mirrored write-back: %s", strerror(-err));
	return err;
}

/* Gateways that could mirror for us: a bit each. */
static uint32_t gateways_well(const struct group *g)
{
	struct gw_show_gateway show;
	uint32_t well = 0;

	for (unsigned i = 0; i < g->conf.n; i++) {
		gw_show_gateway(g->gw, i, &show, group_now());
		if (i != g->conf.self && show.known && show.object.life == GW_UP &&
		    !show.suspected && g->conf.gateway[i].address.ss_family != AF_UNSPEC)
			well |= 1u << i;
	}
	return well;
}

void group_mirror_look(struct group *g)
{
	const uint64_t incarnation = gw_incarnation(g->gw);
	const uint32_t well = gateways_well(g);

	if (!g->mirror.live)
		return;
	if (incarnation != g->mirror.incarnation) {
		g->mirror.incarnation = incarnation;
		mirror_live_incarnation(g->mirror.live, incarnation);
	}
	if (well != g->mirror.well) {
		g->mirror.well = well;
		pthread_rwlock_rdlock(&g->mirror.lock);
		for (unsigned i = 0; i < g->mirror.n; i++)
			mirror_lu_peers(g->mirror.lu[i]->mirror, well);
		pthread_rwlock_unlock(&g->mirror.lock);
	}
	for (unsigned i = 0; i < GROUP_LUS; i++)
		if (g->lu[i].scsi)
			group_mirrored_look(&g->lu[i]);
}

void group_mirror_rest(struct group *g)
{
	if (g->mirror.live)
		mirror_live_rest(g->mirror.live);
	if (g->mirror.links) /* after it: nothing is lent from now on */
		mirror_links_cut(g->mirror.links, GW_GATEWAYS);
}

void group_mirror_stop(struct group *g, void (*ended)(void *arg), void *arg)
{
	/* (What is being answered uses them until they have ended.) */
	if (g->mirror.links)
		mirror_links_stop(g->mirror.links, ended, arg);
	else
		ended(arg);
}
