/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The peer's side: mirrors begin and go on by OPEN; batches are done whole or not at all, and
 * acknowledged when they are; nothing is, from the seal on.
 *
 * A session orders what one owner has sent. Only the newest counts: bytes of an earlier one may
 * still lie in a socket when the owner has long sent them again. A mirror that the object names, as
 * far as is known here, gives way to no other one: the object must be read first.
 *
 * A mirror may have begun, and its peer been killed before the object named it. The object as read
 * then is short of it, and may come to name it by a change under way. But an owner that begins a
 * mirror anew has no such change under way. Nor has one before it: its claim has ended that.
 */
#include <stdio.h>
#include <stdlib.h>
#include "events/log.h"
#include "tgtd/cluster/mirror_impl.h"

#define SLOT_IDLE_NS (600 * NSEC_PER_SEC)

struct mirror_peer *mirror_peer_new(const struct mirror_peer_config *config,
				    const struct mirror_peer_ops *ops, void *arg)
{
	struct mirror_peer *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->cfg = *config;
	p->ops = ops;
	p->arg = arg;
	p->slot = calloc(config->lus, sizeof(*p->slot));
	if (p->slot && mirror_pages_make(p))
		return p;
	mirror_peer_free(p);
	return NULL;
}

void mirror_peer_free(struct mirror_peer *p)
{
	if (!p)
		return;
	free(p->slot);
	free(p->page);
	free(p->bucket);
	free(p);
}

void mirror_peer_incarnation(struct mirror_peer *p, uint64_t incarnation)
{
	p->incarnation = incarnation;
}

void mirror_peer_show(const struct mirror_peer *p, struct mirror_peer_show *show)
{
	*show = p->counts;
	show->pages = p->cfg.pages;
	show->used = p->used;
}

uint32_t mirror_peer_used(const struct mirror_peer *p)
{
	return p->used;
}

bool mirror_peer_held(const struct mirror_peer *p, uint64_t lu, struct mirror_held *held)
{
	const uint32_t slot = mirror_slot_of(p, lu);
	const struct mirror_slot *s = slot == MIRROR_NONE ? NULL : &p->slot[slot];

	*held = (struct mirror_held){ 0 };
	if (!s)
		return false;
	held->stamp = s->stamp;
	held->pages = s->pages;
	held->sealed = s->sealed;
	held->named = s->valid;
	for (unsigned i = 0; i < MIRROR_TOMBS; i++)
		held->tombs += s->tomb[i].count != 0;
	return true;
}

/* ---- what a process before this one has left ------------------------------------------------- */
int mirror_peer_found(struct mirror_peer *p, uint32_t slot, const struct mirror_stamp *s)
{
	if (slot >= p->cfg.lus || p->slot[slot].used || mirror_slot_of(p, s->lu) != MIRROR_NONE ||
	    !s->mirror || !s->epoch)
		return -EINVAL;
	p->slot[slot].used = true;
	p->slot[slot].valid = true; /* for all that is known */
	p->slot[slot].stamp = *s;
	p->slot[slot].session.epoch = s->epoch; /* an owner before that one begins nothing here */
	counter_add32(&p->counts.mirrors, 1);
	return 0;
}

int mirror_peer_found_tomb(struct mirror_peer *p, uint32_t slot, unsigned tomb, uint64_t first,
			   uint64_t count, uint64_t gen)
{
	if (slot >= p->cfg.lus || !p->slot[slot].used || tomb >= MIRROR_TOMBS || !count ||
	    first + count < first || !gen || p->slot[slot].tomb[tomb].count)
		return -EINVAL;
	p->slot[slot].tomb[tomb] = (struct peer_tomb){ first, count, gen };
	return 0;
}

int mirror_peer_found_page(struct mirror_peer *p, uint32_t slot, uint32_t page, uint64_t block,
			   uint64_t gen, uint64_t map)
{
	if (slot >= p->cfg.lus || !p->slot[slot].used || page >= p->cfg.pages || !gen || !map ||
	    p->page[page].slot != MIRROR_NONE || mirror_page_find(p, slot, block) != MIRROR_NONE)
		return -EINVAL;
	mirror_page_set(p, page, slot, block);
	p->page[page].gen = gen;
	p->page[page].map = map;
	return 0;
}

void mirror_peer_found_all(struct mirror_peer *p)
{
	p->free = MIRROR_NONE;
	for (uint32_t i = p->cfg.pages; i-- > 0;) {
		if (p->page[i].slot != MIRROR_NONE)
			continue;
		p->page[i].next = p->free;
		p->free = i;
	}
}

/* ---- frames ---------------------------------------------------------------------------------- */
static void peer_answer(struct mirror_peer *p, unsigned to, unsigned channel,
			const struct mirror_frame *f, enum mirror_result result)
{
	const uint32_t slot = mirror_slot_of(p, f->lu);
	struct mirror_frame a = { .kind = f->kind == MIRROR_OPEN ? MIRROR_WELCOME : MIRROR_ACK,
				  .from = (uint8_t)p->cfg.self,
				  .result = (uint8_t)result,
				  .shift = f->shift,
				  .lu = f->lu,
				  .session = f->session,
				  .mirror = f->mirror,
				  .serial = f->serial,
				  .room = p->cfg.pages - p->used };

	if (slot != MIRROR_NONE)
		a.peer = p->slot[slot].stamp.incarnation;
	if (result != MIRROR_OK)
		counter_add(&p->counts.refused, 1);
	p->ops->send(p->arg, to, channel, &a);
}

static void slot_end(struct mirror_peer *p, uint32_t slot)
{
	mirror_pages_drop(p, slot);
	p->ops->stamp(p->arg, slot, NULL);
	memset(&p->slot[slot], 0, sizeof(p->slot[slot]));
	counter_add32(&p->counts.mirrors, (uint32_t)-1);
}

/* One that holds nothing, and of which nothing was heard for long. Units that are deleted here
 * before their owner has given up the mirror leave such ones: their object is read no more. */
static uint32_t slot_idle(struct mirror_peer *p, uint64_t now)
{
	uint64_t longest = SLOT_IDLE_NS;
	uint32_t idle = MIRROR_NONE;

	for (uint32_t i = 0; i < p->cfg.lus; i++) {
		struct mirror_slot *s = &p->slot[i];
		bool holds = s->pages || s->sealed;

		if (!s->heard) /* it was found, and nobody came: from now on */
			s->heard = now;
		for (unsigned t = 0; t < MIRROR_TOMBS; t++)
			holds |= s->tomb[t].count != 0;
		if (holds || now - s->heard < longest)
			continue;
		longest = now - s->heard;
		idle = i;
	}
	return idle;
}

/* A new mirror, empty. */
static enum mirror_result slot_begin(struct mirror_peer *p, uint32_t slot,
				     const struct mirror_frame *f, uint64_t now)
{
	const struct mirror_stamp stamp = { .lu = f->lu,
					    .mirror = f->mirror,
					    .epoch = f->session.epoch,
					    .incarnation = p->incarnation };

	if (slot != MIRROR_NONE)
		slot_end(p, slot);
	for (slot = 0; slot < p->cfg.lus && p->slot[slot].used; slot++)
		;
	if (slot == p->cfg.lus) {
		slot = slot_idle(p, now);
		if (slot == MIRROR_NONE)
			return MIRROR_NOROOM;
		slot_end(p, slot);
	}
	p->slot[slot].used = true;
	p->slot[slot].stamp = stamp;
	p->slot[slot].session = f->session;
	p->slot[slot].heard = now;
	counter_add32(&p->counts.mirrors, 1);
	p->ops->stamp(p->arg, slot, &stamp);
	return MIRROR_OK;
}

static enum mirror_result peer_open(struct mirror_peer *p, uint32_t slot,
				    const struct mirror_frame *f, uint64_t now)
{
	struct mirror_slot *s = slot == MIRROR_NONE ? NULL : &p->slot[slot];

	if (s && s->sealed)
		return MIRROR_SEALED;
	if (s && mirror_session_compare(&f->session, &s->session) < 0)
		return MIRROR_LACKS;
	if (f->result) {
		if (s && (s->stamp.mirror > f->mirror || (s->valid && !mirror_breaks(BREAK_FRESH))))
			return MIRROR_BUSY;
		/* The stamp must differ from that of a mirror that was lost with a process. */
		return p->incarnation ? slot_begin(p, slot, f, now) : MIRROR_BUSY;
	}
	if (mirror_breaks(BREAK_RESUME) && !s)
		return slot_begin(p, slot, f, now);
	if (!s || s->stamp.mirror != f->mirror || s->stamp.epoch != f->session.epoch)
		return MIRROR_LACKS;
	s->session = f->session;
	s->heard = now;
	return MIRROR_OK;
}

static enum mirror_result peer_batch(struct mirror_peer *p, uint32_t slot,
				     const struct mirror_frame *f, uint64_t now)
{
	struct mirror_slot *s = slot == MIRROR_NONE ? NULL : &p->slot[slot];

	if (!s || s->stamp.mirror != f->mirror ||
	    (mirror_session_compare(&f->session, &s->session) && !mirror_breaks(BREAK_SESSION)))
		return MIRROR_LACKS;
	s->heard = now;
	if (s->sealed)
		return mirror_breaks(BREAK_SEAL) ? MIRROR_OK : MIRROR_SEALED;
	if (!mirror_pages_fit(p, slot, f))
		return MIRROR_NOROOM;
	mirror_pages_apply(p, slot, f);
	return MIRROR_OK;
}

void mirror_peer_frame(struct mirror_peer *p, unsigned from, unsigned channel,
		       const struct mirror_frame *f, uint64_t now)
{
	const uint32_t slot = mirror_slot_of(p, f->lu);

	counter_add(&p->counts.frames, 1);
	if (f->kind == MIRROR_OPEN) {
		peer_answer(p, from, channel, f, peer_open(p, slot, f, now));
	} else if (f->kind == MIRROR_BATCHED) {
		peer_answer(p, from, channel, f, peer_batch(p, slot, f, now));
	}
}

/* ---- the object ------------------------------------------------------------------------------ */
static bool slot_is(const struct mirror_peer *p, const struct mirror_slot *s,
		    const struct gw_mirror *m)
{
	return m->state == GW_MIRROR_VALID && m->peer == p->cfg.self &&
	       (mirror_breaks(BREAK_STAMP) ||
		(m->epoch == s->stamp.mirror && m->incarnation == s->stamp.incarnation));
}

void mirror_peer_object(struct mirror_peer *p, uint64_t lu, const struct gw_mirror *m)
{
	const uint32_t slot = mirror_slot_of(p, lu);
	struct mirror_slot *s;

	if (slot == MIRROR_NONE)
		return;
	s = &p->slot[slot];
	s->valid = slot_is(p, s, m);
	if (!s->valid && s->stamp.mirror <= m->epoch)
		slot_end(p, slot);
}

bool mirror_peer_has(const struct mirror_peer *p, uint64_t lu, const struct gw_mirror *m)
{
	const uint32_t slot = mirror_slot_of(p, lu);

	return slot != MIRROR_NONE && slot_is(p, &p->slot[slot], m);
}

bool mirror_peer_seal(struct mirror_peer *p, uint64_t lu, const struct gw_mirror *m)
{
	if (!mirror_peer_has(p, lu, m))
		return false;
	p->slot[mirror_slot_of(p, lu)].sealed = true;
	counter_add(&p->counts.seals, 1);
	return true;
}
