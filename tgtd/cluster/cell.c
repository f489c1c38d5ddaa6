/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An object in RADOS, as this gateway knows it: one read or one write at a time.
 *
 * A write that was not answered may have landed, may land later, or may be lost. So it is never
 * forgotten: the object is read, and then
 *
 *     our nonce is in it          it has landed
 *     the version is as before    still in doubt: the same write again, by the same nonce.
 *                                 Whichever of the two lands first makes the other one fail
 *     anything else               it can never land: the version that it expects is gone
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "events/bug.h"
#include "events/log.h"
#include "tgtd/cluster/cluster_impl.h"

#define CELL_PAUSE_NS (100 * NSEC_PER_MSEC) /* between two attempts */

uint64_t gw_request(struct gateway *gw, enum gw_slot slot, unsigned index)
{
	return ++gw->serial << 24 | (uint64_t)index << 4 | slot;
}

void gw_say(struct gateway *gw, int level, int lu, const char *format, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	gw->ops->say(gw->arg, level, lu, text);
}

void gw_cell_init(struct gw_cell *c, unsigned gateway, int lu)
{
	memset(c, 0, sizeof(*c));
	c->gateway = (uint8_t)gateway;
	c->lu = lu;
}

static uint64_t cell_request(struct gateway *gw, const struct gw_cell *c)
{
	return c->lu < 0 ? gw_request(gw, SLOT_CELL_GATEWAY, c->gateway) :
			   gw_request(gw, SLOT_CELL_LU, (unsigned)c->lu);
}

static void cell_send_read(struct gateway *gw, struct gw_cell *c, uint64_t now)
{
	c->step = c->settle ? CELL_SETTLING : CELL_READING;
	c->id = cell_request(gw, c);
	c->read_sent = now;
	gw->ops->read(gw->arg, c->id, c->gateway, c->lu);
}

static void cell_send_write(struct gateway *gw, struct gw_cell *c)
{
	size_t len;

	if (c->lu < 0)
		len = gw_encode_gateway(&gw->peer[c->gateway].want, gw->scratch);
	else
		len = gw_encode_lu(&gw->lu[c->lu].want, gw->scratch);
	c->step = CELL_WRITING;
	c->id = cell_request(gw, c);
	gw->ops->write(gw->arg, c->id, c->gateway, c->lu, c->expects, gw->scratch, len);
}

void gw_cell_read(struct gateway *gw, struct gw_cell *c, uint64_t now)
{
	BUG_ON(!gw_cell_idle(c));
	cell_send_read(gw, c, now);
}

void gw_cell_write(struct gateway *gw, struct gw_cell *c, uint64_t now)
{
	BUG_ON(!gw_cell_idle(c) || !c->known);
	c->nonce = ++gw->serial;
	c->expects = c->version;
	c->sent = now;
	if (c->lu < 0) {
		gw->peer[c->gateway].want.nonce = c->nonce;
	} else {
		gw->lu[c->lu].want.nonce[gw->cfg.self] = c->nonce;
		gw->lu[c->lu].want.unit = gw->lu[c->lu].hash;
	}
	cell_send_write(gw, c);
}

bool gw_shared_set(struct gw_buf *buf, struct gw_shared *to, const struct gw_shared *from)
{
	if (from->len > buf->room) {
		uint8_t *p = realloc(buf->p, from->len);

		if (!p)
			return false;
		buf->p = p;
		buf->room = from->len;
	}
	*to = *from;
	to->blob = buf->p;
	if (from->len && from->blob != buf->p)
		memmove(buf->p, from->blob, from->len);
	return true;
}

bool gw_lu_want(struct gw_lu *lu)
{
	struct gw_shared shared;

	if (!gw_shared_set(&lu->want_buf, &shared, &lu->obj.shared))
		return false;
	lu->want = lu->obj;
	lu->want.shared = shared;
	return true;
}

/* What was written is what is there. */
static bool cell_took(struct gateway *gw, struct gw_cell *c, uint64_t version)
{
	if (c->lu < 0) {
		gw->peer[c->gateway].obj = gw->peer[c->gateway].want;
	} else {
		struct gw_lu *lu = &gw->lu[c->lu];
		struct gw_shared shared;

		if (!gw_shared_set(&lu->obj_buf, &shared, &lu->want.shared))
			return false;
		lu->obj = lu->want;
		lu->obj.shared = shared;
	}
	c->version = version;
	return true;
}

/* The bytes that were read become what is known. */
static const char *cell_decode(struct gateway *gw, struct gw_cell *c, const void *bytes, size_t len)
{
	struct gw_lu_object o;
	struct gw_shared shared;
	const char *why;
	struct gw_lu *lu;

	if (c->lu < 0)
		return gw_decode_gateway(&gw->peer[c->gateway].obj, bytes, len);
	lu = &gw->lu[c->lu];
	why = gw_decode_lu(&o, bytes, len);
	if (why)
		return why;
	/* What it says is not true of this one, nor may it be written over it. */
	if (o.unit && o.unit != lu->hash)
		return "it is another unit's";
	if (!gw_shared_set(&lu->obj_buf, &shared, &o.shared))
		return "there is no memory";
	lu->obj = o;
	lu->obj.shared = shared;
	return NULL;
}

static void cell_absent(struct gateway *gw, struct gw_cell *c)
{
	if (c->lu < 0) {
		memset(&gw->peer[c->gateway].obj, 0, sizeof(struct gw_gateway_object));
		gw->peer[c->gateway].obj.life = GW_OVER;
	} else {
		struct gw_lu *lu = &gw->lu[c->lu];

		memset(&lu->obj, 0, sizeof(lu->obj));
		lu->obj.owner = lu->obj.wanted = lu->obj.mirror.peer = GW_NOBODY;
		lu->obj.home = lu->home;
	}
	c->version = 0;
}

static enum cell_event cell_pause(struct gw_cell *c, uint64_t now)
{
	c->step = CELL_PAUSING;
	c->id = 0;
	c->retry_at = now + CELL_PAUSE_NS;
	return CELL_NOTHING;
}

/* The object has been read because a write is in doubt. */
static enum cell_event cell_settle(struct gateway *gw, struct gw_cell *c)
{
	const uint64_t nonce =
		c->lu < 0 ? gw->peer[c->gateway].obj.nonce : gw->lu[c->lu].obj.nonce[gw->cfg.self];
	const bool landed = nonce == c->nonce && c->version &&
			    (!gw_breaks(BREAK_ONE_NONCE) || c->version == c->expects + 1);

	if (!landed && c->version == c->expects && !gw_breaks(BREAK_DOUBT_UNSETTLED)) {
		cell_send_write(gw, c);
		return CELL_NOTHING;
	}
	c->settle = false;
	c->step = CELL_IDLE;
	counter_add(landed ? &gw->counts.landed_late : &gw->counts.not_landed, 1);
	return landed ? CELL_WRITTEN : CELL_DIFFERS;
}

static void cell_is_bad(struct gateway *gw, const struct gw_cell *c)
{
	if (c->lu < 0)
		gw_say(gw, LOG_LVL_ERROR, -1, "the object of gateway %u cannot be read: %s",
		       c->gateway, c->bad);
	else
		gw_say(gw, LOG_LVL_ERROR, c->lu, "its object cannot be read: %s", c->bad);
}

enum cell_event gw_cell_read_done(struct gateway *gw, struct gw_cell *c, int result,
				  uint64_t version, const void *bytes, size_t len, uint64_t now)
{
	const bool settling = c->step == CELL_SETTLING;
	const char *was = c->bad;

	c->id = 0;
	c->bad = NULL;
	if (result == -ENOENT)
		cell_absent(gw, c);
	else if (!result)
		c->bad = cell_decode(gw, c, bytes, len);
	if (c->bad && c->bad != was)
		cell_is_bad(gw, c);
	if (c->bad || (result && result != -ENOENT)) {
		/* What is in doubt stays so; what could not be read is not known. */
		if (settling)
			return cell_pause(c, now);
		c->known = c->known && !c->bad;
		c->step = CELL_IDLE;
		return CELL_FAILED;
	}
	if (!result)
		c->version = version;
	c->known = true;
	c->fresh = c->read_sent;
	if (settling)
		return cell_settle(gw, c);
	c->step = CELL_IDLE;
	return CELL_READ;
}

enum cell_event gw_cell_write_done(struct gateway *gw, struct gw_cell *c, int result,
				   uint64_t version, uint64_t now)
{
	c->id = 0;
	if (!result && cell_took(gw, c, version)) {
		/* What was sent first may have landed last: the answer is as old as that. */
		c->known = true;
		c->fresh = MAX(c->fresh, c->sent);
		c->settle = false;
		c->step = CELL_IDLE;
		return CELL_WRITTEN;
	}
	c->settle = true;
	/* A version that differs says that somebody has written: what, must be read now. Any other
	 * answer says nothing, and may come from a RADOS that is not well. */
	if (result && result != -ERANGE && result != -ETIMEDOUT)
		return cell_pause(c, now);
	cell_send_read(gw, c, now);
	return CELL_NOTHING;
}

void gw_cell_tick(struct gateway *gw, struct gw_cell *c, uint64_t now)
{
	if (c->step == CELL_PAUSING && now >= c->retry_at)
		cell_send_read(gw, c, now);
}
