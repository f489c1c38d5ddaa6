/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A LU's owner: who mirrors it, and what its object says of that.
 *
 *     THROUGH -> SETTING -> VALID -> LOSING -> THROUGH      all is written out, INVALID is set
 *                             ^         |
 *                             +---------+                   a third gateway has all, VALID (T) is
 *
 * A new mirror begins empty, while all that was answered is in the store. From then on both have
 * what is answered, so the object may name it at any time. When the peer is lost, the object still
 * says that it may take over. So what it lacks is neither answered nor shown before the object says
 * otherwise; and until then nothing is asked of it.
 */
#include <stdio.h>
#include <stdlib.h>
#include "events/hash.h"
#include "events/log.h"
#include "tgtd/cluster/mirror_impl.h"

#define OPENS_PER_DISMISSAL 4
#define LOST_MOST 3

struct mirror_owner *mirror_owner_new(const struct mirror_owner_config *config,
				      const struct mirror_owner_ops *ops, void *arg)
{
	struct mirror_owner *o;

	if (!config->blocks || config->gateways > GW_GATEWAYS || config->shift < MIRROR_SHIFT_MIN ||
	    config->shift > MIRROR_SHIFT_MAX)
		return NULL;
	o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	o->cfg = *config;
	o->cfg.dismiss_ns = config->dismiss_ns ? config->dismiss_ns : 2 * NSEC_PER_SEC;
	o->cfg.retry_ns = config->retry_ns ? config->retry_ns : NSEC_PER_SEC / 2;
	o->cfg.ping_ns = config->ping_ns ? config->ping_ns : NSEC_PER_SEC / 2;
	o->ops = ops;
	o->arg = arg;
	o->peer = GW_NOBODY;
	if (mirror_blocks_make(o))
		return o;
	mirror_owner_free(o);
	return NULL;
}

void mirror_owner_free(struct mirror_owner *o)
{
	if (!o)
		return;
	free(o->block);
	free(o->bucket);
	free(o);
}

unsigned mirror_choose(uint64_t lu, unsigned owner, unsigned gateways, uint32_t well)
{
	unsigned best = GW_NOBODY;
	uint64_t least = UINT64_MAX;

	for (unsigned g = 0; g < gateways && g < GW_GATEWAYS; g++) {
		const uint64_t h = fnv1a(lu, &(uint8_t){ (uint8_t)g }, 1);

		if (g == owner || !(well >> g & 1) || (best != GW_NOBODY && h >= least))
			continue;
		best = g;
		least = h;
	}
	return best;
}

static void owner_say(struct mirror_owner *o, int level, const char *what)
{
	char text[160];

	if (o->link == LINK_NONE && o->mode == MIRROR_THROUGH)
		snprintf(text, sizeof(text), "mirror: %s", what);
	else
		snprintf(text, sizeof(text), "mirror %llu at gateway %u: %s",
			 (unsigned long long)o->mirror, o->peer, what);
	o->ops->say(o->arg, level, text);
}

/* ---- the peer -------------------------------------------------------------------------------- */
static void link_open(struct mirror_owner *o, uint64_t now)
{
	o->session++;
	o->opened_at = now;
	mirror_send_hello(o, MIRROR_OPEN, now);
}

static void link_begin(struct mirror_owner *o, unsigned peer, uint64_t now)
{
	o->link = LINK_OPENING;
	o->peer = (uint8_t)peer;
	o->fresh = true;
	o->mirror = o->object.epoch + 1;
	o->since = now;
	counter_add(&o->counts.fills, 1);
	link_open(o, now);
}

/* The session is over; with the mirror that may go on, another one. */
static void link_again(struct mirror_owner *o, uint64_t now)
{
	const uint64_t oldest = mirror_send_oldest(o);

	o->since = oldest ? oldest : now;
	o->link = LINK_OPENING;
	o->fresh = false;
	mirror_blocks_again(o, false);
	mirror_orders_again(o);
	link_open(o, now);
}

/* A network may carry an OPEN and lose what is long. Each loss makes writes wait, so who is lost
 * soon after it has become the peer is asked again after 2, 8, 32 s. */
static void link_counts_loss(struct mirror_owner *o, uint64_t now)
{
	uint8_t *n = &o->lost[o->peer];

	if (now - o->valid_since >= o->cfg.dismiss_ns << 2 * (LOST_MOST - 1))
		*n = 0;
	else if (*n < LOST_MOST)
		++*n;
}

static void link_gives_up(struct mirror_owner *o, uint64_t now)
{
	const unsigned n = o->lost[o->peer];

	o->avoid[o->peer] = now + (n ? o->cfg.dismiss_ns << 2 * (n - 1) : o->cfg.retry_ns);
	o->link = LINK_NONE;
	if (o->mode == MIRROR_LOSING && !o->setting)
		mirror_blocks_again(o, true);
}

static bool mirror_names(const struct gw_mirror *m, unsigned peer)
{
	return m->state == GW_MIRROR_VALID && m->peer == peer;
}

static void owner_loses(struct mirror_owner *o)
{
	o->mode = MIRROR_LOSING;
	mirror_blocks_freeze(o);
	mirror_orders_restart(o, false);
	mirror_blocks_look(o);
	o->ops->write_all(o->arg);
}

/* It is lost, for the reason @why. What the object says of it decides what follows. */
static void link_lost(struct mirror_owner *o, const char *why, uint64_t now)
{
	owner_say(o, LOG_LVL_WARN, why);
	if (o->mode == MIRROR_VALID)
		link_counts_loss(o, now);
	link_gives_up(o, now);
	if (o->mode != MIRROR_VALID)
		return;
	counter_add(&o->counts.dismissals, 1);
	owner_loses(o);
}

/* The object may already name this mirror: it goes on, or is lost. Else it may begin anew. */
static bool link_is_set(const struct mirror_owner *o)
{
	return o->setting || o->mode == MIRROR_SETTING || o->mode == MIRROR_VALID;
}

static void link_run(struct mirror_owner *o, uint64_t now)
{
	const uint64_t oldest = mirror_send_oldest(o);
	const uint64_t since = o->link == LINK_OPENING ? o->since : oldest;

	if (o->link == LINK_NONE)
		return;
	if (since && now - since >= o->cfg.dismiss_ns && !mirror_breaks(BREAK_DISMISS)) {
		link_lost(o, "does not answer", now);
	} else if (o->link == LINK_OPENING) {
		if (now - o->opened_at >= o->cfg.dismiss_ns / OPENS_PER_DISMISSAL)
			link_open(o, now);
	} else if (!oldest && now - o->said_at >= o->cfg.ping_ns && mirror_send_has_room(o)) {
		o->frame.n = 0;
		mirror_send_frame(o, 0, now);
	}
}

void mirror_owner_down(struct mirror_owner *o, unsigned peer, uint64_t now)
{
	if (o->link == LINK_NONE || o->peer != peer)
		return;
	if (link_is_set(o)) {
		if (o->link == LINK_UP)
			link_again(o, now);
	} else {
		link_lost(o, "the connection has failed", now);
	}
	mirror_owner_tick(o, now);
}

static void link_welcome(struct mirror_owner *o, const struct mirror_frame *f, uint64_t now)
{
	if (f->result != MIRROR_OK) {
		link_lost(o,
			  f->result == MIRROR_SEALED ? "takes nothing any more" :
			  f->result == MIRROR_LACKS  ? "has lost what it held" :
						       "has no room",
			  now);
		return;
	}
	if (o->fresh && f->room < o->cfg.least) {
		link_lost(o, "has too little room", now);
		return;
	}
	o->link = LINK_UP;
	o->room = f->room;
	o->heard = now;
	counter_add(&o->counts.sessions, 1);
	if (o->fresh) {
		o->peer_incarnation = f->peer;
		mirror_blocks_again(o, true);
		if (o->mode == MIRROR_THROUGH)
			o->mode = MIRROR_SETTING;
	} else {
		o->room += o->used;
	}
	mirror_blocks_look(o);
}

static void link_acked(struct mirror_owner *o, const struct mirror_frame *f, uint64_t now)
{
	struct mirror_batch was, *b = NULL;

	for (unsigned i = 0; i < MIRROR_WINDOW; i++)
		if (f->serial && o->batch[i].serial == f->serial)
			b = &o->batch[i];
	if (!b)
		return;
	if (f->result != MIRROR_OK) {
		link_lost(o, f->result == MIRROR_NOROOM ? "has no room" : "takes nothing any more",
			  now);
		return;
	}
	was = *b;
	b->serial = 0;
	o->heard = now;
	for (unsigned i = 0; i < was.n; i++) {
		if (!mirror_order_acked(o, was.record[i].op, was.record[i].gen))
			mirror_block_acked(o, was.record[i].op, was.record[i].block,
					   was.record[i].gen);
	}
}

void mirror_owner_frame(struct mirror_owner *o, unsigned from, const struct mirror_frame *f,
			uint64_t now)
{
	const struct mirror_session s = { o->epoch, o->incarnation, o->session };

	if (!o->started || o->link == LINK_NONE || from != o->peer || f->lu != o->cfg.lu ||
	    f->mirror != o->mirror || mirror_session_compare(&s, &f->session))
		return;
	if (f->kind == MIRROR_WELCOME && o->link == LINK_OPENING)
		link_welcome(o, f, now);
	else if (f->kind == MIRROR_ACK && o->link == LINK_UP)
		link_acked(o, f, now);
	else
		return;
	mirror_owner_tick(o, now);
}

/* ---- what the object says -------------------------------------------------------------------- */
static void object_set(struct mirror_owner *o, enum gw_mirror_state state)
{
	const bool valid = state == GW_MIRROR_VALID;

	o->want = (struct gw_mirror){ .state = (uint8_t)state,
				      .peer = valid ? o->peer : GW_NOBODY,
				      .incarnation = valid ? o->peer_incarnation : 0,
				      .epoch = o->object.epoch + 1 };
	o->setting = true;
	o->ops->set(o->arg, &o->want);
}

/* LOSING: has the store, or with @copy the new peer, all that the object must not lose? */
static bool all_is_safe(struct mirror_owner *o, bool copy)
{
	/* Those before are safe, and stay so. */
	uint32_t *i = copy ? &o->copied : &o->out;

	if (mirror_orders_at_store(o, MIRROR_ZERO))
		return false;
	if (mirror_breaks(copy ? BREAK_COPY : BREAK_OUT))
		return true;
	for (; *i < o->cfg.blocks; ++*i) {
		const struct mirror_block *b = &o->block[*i];

		if (b->used && b->store < b->must && !(copy && b->at && b->there >= b->must))
			return false;
	}
	return true;
}

static void losing_run(struct mirror_owner *o, uint64_t now)
{
	if (o->setting)
		return;
	if (o->link == LINK_UP && all_is_safe(o, true)) {
		object_set(o, GW_MIRROR_VALID);
	} else if (all_is_safe(o, false)) {
		if (o->link != LINK_NONE)
			link_gives_up(o, now);
		counter_add(&o->counts.out, 1);
		object_set(o, GW_MIRROR_INVALID);
	}
}

void mirror_owner_set_done(struct mirror_owner *o, uint64_t now)
{
	if (!o->setting)
		return;
	o->setting = false;
	o->object = o->want;
	o->closed = false;
	if (o->object.state == GW_MIRROR_VALID) {
		o->mode = MIRROR_VALID;
		o->valid_since = now;
		if (o->link == LINK_NONE)
			link_lost(o, "was lost while the object was changed", now);
		else
			mirror_orders_restart(o, true);
		owner_say(o, LOG_LVL_NOTICE, "is valid");
	} else {
		o->mode = MIRROR_THROUGH;
		mirror_orders_restart(o, true);
		owner_say(o, LOG_LVL_NOTICE, "is over, all is in the store");
	}
	mirror_blocks_look(o);
	if (o->full) {
		o->full = false;
		o->ops->room(o->arg);
	}
	o->ops->write_all(o->arg);
	mirror_owner_tick(o, now);
}

void mirror_owner_refresh(struct mirror_owner *o, uint64_t now)
{
	if (o->object.state == GW_MIRROR_DOUBT && !o->setting)
		object_set(o, GW_MIRROR_INVALID);
	mirror_owner_tick(o, now);
}

/* It is to be mirrored no more: as if the peer had been lost, which it has not. */
static void unmirrored_run(struct mirror_owner *o, uint64_t now)
{
	if (o->cfg.mirrored || o->link == LINK_NONE || o->setting || o->mode == MIRROR_SETTING)
		return;
	owner_say(o, LOG_LVL_NOTICE, "is not wanted any more");
	link_gives_up(o, now);
	if (o->mode == MIRROR_VALID)
		owner_loses(o);
}

/* A peer is looked for: a mirror that the object mirror_names is never the next one. */
static void choose_run(struct mirror_owner *o, uint64_t now)
{
	uint32_t well = o->well;
	unsigned peer;

	if (!o->cfg.mirrored || o->link != LINK_NONE || o->setting ||
	    (o->mode != MIRROR_THROUGH && o->mode != MIRROR_LOSING) ||
	    o->object.state == GW_MIRROR_DOUBT || mirror_orders_at_store(o, MIRROR_WRITE))
		return;
	for (unsigned g = 0; g < o->cfg.gateways; g++)
		if (now < o->avoid[g] ||
		    (mirror_names(&o->object, g) && !mirror_breaks(BREAK_FRESH)))
			well &= ~(1u << g);
	peer = mirror_choose(o->cfg.lu, o->cfg.self, o->cfg.gateways, well);
	if (peer != GW_NOBODY)
		link_begin(o, peer, now);
}

void mirror_owner_tick(struct mirror_owner *o, uint64_t now)
{
	if (!o->started)
		return;
	link_run(o, now);
	if (o->mode == MIRROR_SETTING && !o->setting)
		object_set(o, GW_MIRROR_VALID);
	unmirrored_run(o, now);
	if (o->mode == MIRROR_LOSING)
		losing_run(o, now);
	choose_run(o, now);
	mirror_orders_run(o, now);
	if (o->link == LINK_UP)
		mirror_send_all(o, now);
}

/* ---- for callers ----------------------------------------------------------------------------- */
int mirror_owner_found(struct mirror_owner *o, uint64_t block, uint64_t map)
{
	struct mirror_block *b = mirror_block_get(o, block);

	if (!b)
		return -ENOSPC;
	b->gen = ++o->gen;
	b->dirty |= map;
	b->unsent |= map;
	return 0;
}

void mirror_owner_start(struct mirror_owner *o, uint64_t epoch, uint64_t incarnation,
			const struct gw_mirror *m, bool resumed, uint64_t now)
{
	const bool valid = m->state == GW_MIRROR_VALID;
	/* What was taken from MIRROR pages is what a takeover shows. What a process before this one
	 * had not answered is not known. */
	const bool shown = valid && (!resumed || mirror_breaks(BREAK_FOUND));

	o->started = true;
	o->epoch = epoch;
	o->incarnation = incarnation;
	o->object = *m;
	o->mode = valid ? MIRROR_LOSING : MIRROR_THROUGH;
	o->closed = valid && !shown;
	for (uint32_t i = 0; i < o->cfg.blocks; i++) {
		struct mirror_block *b = &o->block[i];

		if (b->used && shown)
			b->safe = b->gen;
		if (b->used)
			b->must = b->gen;
	}
	o->ops->write_all(o->arg);
	mirror_owner_tick(o, now);
}

void mirror_owner_peers(struct mirror_owner *o, uint32_t well, uint64_t now)
{
	for (unsigned g = 0; g < o->cfg.gateways; g++)
		if (well & ~o->well & 1u << g)
			o->lost[g] = 0; /* it has come back */
	o->well = well;
	mirror_owner_tick(o, now);
}

void mirror_owner_mirrored(struct mirror_owner *o, bool mirrored, uint64_t now)
{
	o->cfg.mirrored = mirrored;
	mirror_owner_tick(o, now);
}

int mirror_owner_write(struct mirror_owner *o, unsigned channel, uint64_t block, uint64_t map,
		       uint64_t *gen, uint64_t now)
{
	struct mirror_block *b;

	if (!mirror_owner_has_room(o, block)) {
		o->full = true;
		return -EAGAIN;
	}
	b = mirror_block_get(o, block);
	b->gen = *gen = ++o->gen;
	b->dirty |= map;
	b->unsent |= map;
	if (!b->queued)
		b->channel = (uint8_t)(channel % MIRROR_CHANNELS);
	mirror_block_look(o, b);
	return 0;
}

void mirror_owner_push(struct mirror_owner *o, unsigned channel, uint64_t now)
{
	if (o->link == LINK_UP)
		mirror_send_channel(o, channel, now);
}

void mirror_owner_stored(struct mirror_owner *o, uint64_t block, uint64_t gen, uint64_t now)
{
	struct mirror_block *b = mirror_block_find(o, block);

	if (!b || gen <= b->store || gen > b->gen)
		return;
	b->store = gen;
	if (gen == b->gen)
		b->dirty = 0;
	mirror_block_look(o, b);
	if (o->mode == MIRROR_LOSING)
		losing_run(o, now);
	mirror_orders_run(o, now);
}

enum mirror_mode mirror_owner_mode(const struct mirror_owner *o)
{
	return (enum mirror_mode)o->mode;
}

void mirror_owner_show(const struct mirror_owner *o, struct mirror_show *show, uint64_t now)
{
	const uint64_t oldest = mirror_send_oldest(o);

	*show = o->counts;
	show->mode = (enum mirror_mode)o->mode;
	show->peer = o->link == LINK_NONE ? GW_NOBODY : o->peer;
	show->doubt = o->object.state == GW_MIRROR_DOUBT;
	show->object = o->object;
	show->lag_ns = oldest ? now - oldest : 0;
	for (uint32_t i = 0; i < o->cfg.blocks; i++) {
		show->dirty += o->block[i].used && o->block[i].dirty;
		show->unacknowledged += o->block[i].used && o->block[i].safe < o->block[i].gen;
		show->there += o->block[i].used && o->block[i].at;
	}
}
