/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Batches to the peer: what has gathered for a channel, one frame for several blocks, one
 * acknowledgement for a frame. At most MIRROR_WINDOW are under way; more waits, and so do answers.
 */
#include "events/bug.h"
#include "tgtd/cluster/mirror_impl.h"

static struct mirror_batch *window_free(const struct mirror_owner *o)
{
	for (unsigned i = 0; i < MIRROR_WINDOW; i++)
		if (!o->batch[i].serial)
			return (struct mirror_batch *)&o->batch[i];
	return NULL;
}

bool mirror_send_has_room(const struct mirror_owner *o)
{
	return o->link == LINK_UP && window_free(o);
}

uint64_t mirror_send_oldest(const struct mirror_owner *o)
{
	uint64_t oldest = 0;

	for (unsigned i = 0; i < MIRROR_WINDOW; i++)
		if (o->batch[i].serial && (!oldest || o->batch[i].sent_at < oldest))
			oldest = o->batch[i].sent_at;
	return oldest;
}

static void frame_head(struct mirror_owner *o, enum mirror_kind kind)
{
	struct mirror_frame *f = &o->frame;

	f->kind = (uint8_t)kind;
	f->from = (uint8_t)o->cfg.self;
	f->result = kind == MIRROR_OPEN && o->fresh;
	f->shift = (uint8_t)o->cfg.shift;
	f->lu = o->cfg.lu;
	f->session.epoch = o->epoch;
	f->session.incarnation = o->incarnation;
	f->session.number = o->session;
	f->mirror = o->mirror;
	f->room = 0;
	f->peer = 0;
	f->data = NULL;
	f->data_len = 0;
}

void mirror_send_frame(struct mirror_owner *o, unsigned channel, uint64_t now)
{
	struct mirror_batch *b = window_free(o);
	struct mirror_frame *f = &o->frame;

	BUG_ON(!b);
	frame_head(o, MIRROR_BATCHED);
	f->serial = b->serial = ++o->serial;
	b->sent_at = now;
	b->n = f->n;
	for (unsigned i = 0; i < f->n; i++) {
		b->record[i].op = f->record[i].op;
		b->record[i].block = f->record[i].block;
		b->record[i].gen = f->record[i].gen;
	}
	o->said_at = now;
	counter_add(&o->counts.batches, 1);
	o->ops->send(o->arg, o->peer, channel, f);
	f->n = 0;
}

void mirror_send_hello(struct mirror_owner *o, enum mirror_kind kind, uint64_t now)
{
	frame_head(o, kind);
	o->frame.n = 0;
	o->frame.serial = 0;
	o->said_at = now;
	o->ops->send(o->arg, o->peer, 0, &o->frame);
}

/* One block's record, if there is anything to be sent of it. */
static void send_block(struct mirror_owner *o, struct mirror_block *b)
{
	struct mirror_record *r = &o->frame.record[o->frame.n];
	const bool release = mirror_block_may_release(o, b);

	if ((b->sent && !mirror_breaks(BREAK_ONE_FRAME)) || b->group || (!b->unsent && !release))
		return;
	*r = (struct mirror_record){ .op = release ? MIRROR_RELEASE : MIRROR_WRITE,
				     .block = b->block,
				     .gen = b->gen,
				     .map = b->unsent };
	o->frame.n++;
	b->sent = b->gen;
	b->releasing = release;
	b->sending = b->unsent;
	b->unsent = 0;
	if (!release)
		b->at = true;
	counter_add(release ? &o->counts.releases : &o->counts.writes, 1);
}

void mirror_send_channel(struct mirror_owner *o, unsigned channel, uint64_t now)
{
	struct mirror_block *b;

	while (mirror_send_has_room(o)) {
		o->frame.n = 0;
		while (o->frame.n < MIRROR_BATCH && (b = mirror_block_dequeue(o, channel)))
			send_block(o, b);
		if (!o->frame.n)
			return;
		mirror_send_frame(o, channel, now);
	}
}

void mirror_send_all(struct mirror_owner *o, uint64_t now)
{
	for (unsigned c = 0; c < MIRROR_CHANNELS; c++)
		mirror_send_channel(o, c, now);
}
