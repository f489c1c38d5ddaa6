/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The form of objects and messages in bytes:
 *
 *     0   form_magic "tgtdGW", kind (1 byte), version (1 byte)
 *     8   length of all of it (4 bytes)
 *     12  fields, in the order of the structure; texts and lists with their length before them
 *     -8  FNV-1a of all before
 */
#include "tgtd/cluster/object.h"
#include "events/bug.h"
#include "events/bytes.h"
#include "events/hash.h"

#define FORM_VERSION 3 /* 2 had no reservations: such a gateway would not obey them */
#define HEAD 12
#define TAIL 8
static const char form_magic[6] = { 't', 'g', 't', 'd', 'G', 'W' };

enum form_kind { FORM_GATEWAY = 'G', FORM_LU = 'L', FORM_MSG = 'M' };

/* ---- writing --------------------------------------------------------------------------------- */
struct form_out {
	uint8_t *start, *p;
};

static void form_put(struct form_out *w, uint64_t v, unsigned bytes)
{
	while (bytes--)
		*w->p++ = (uint8_t)(v >> (8 * bytes));
}

static void form_put_text(struct form_out *w, const char *text)
{
	const size_t n = strlen(text);

	form_put(w, n, 1);
	memcpy(w->p, text, n);
	w->p += n;
}

static void form_put_past(struct form_out *w, const struct gw_past *c)
{
	form_put_text(w, c->addr);
	form_put_text(w, c->process);
}

static struct form_out form_begin(uint8_t *buf, enum form_kind kind)
{
	struct form_out w = { buf, buf };

	memcpy(w.p, form_magic, sizeof(form_magic));
	w.p += sizeof(form_magic);
	form_put(&w, kind, 1);
	form_put(&w, FORM_VERSION, 1);
	form_put(&w, 0, 4);
	return w;
}

static size_t form_end(struct form_out *w)
{
	const size_t n = (size_t)(w->p - w->start);

	put_be32(w->start + 8, (uint32_t)(n + TAIL));
	form_put(w, fnv1a(FNV1A_INIT, w->start, n), 8);
	return n + TAIL;
}

size_t gw_encode_gateway(const struct gw_gateway_object *o, uint8_t *buf)
{
	struct form_out w = form_begin(buf, FORM_GATEWAY);

	BUG_ON(o->npast > GW_PAST);
	form_put(&w, o->incarnation, 8);
	form_put(&w, o->sequence, 8);
	form_put(&w, o->nonce, 8);
	form_put(&w, o->life, 1);
	form_put(&w, o->by, 1);
	form_put_past(&w, &o->now);
	form_put(&w, o->npast, 1);
	for (unsigned i = 0; i < o->npast; i++)
		form_put_past(&w, &o->past[i]);
	return form_end(&w);
}

size_t gw_encode_lu(const struct gw_lu_object *o, uint8_t *buf)
{
	struct form_out w = form_begin(buf, FORM_LU);

	BUG_ON(o->nfences > GW_FENCES || o->shared.len > GW_SHARED_MAX);
	form_put(&w, o->epoch, 8);
	form_put(&w, o->incarnation, 8);
	form_put(&w, o->owner, 1);
	form_put(&w, o->claim, 1);
	form_put(&w, o->home, 1);
	form_put(&w, o->wanted, 1);
	form_put_text(&w, o->addr);
	for (unsigned i = 0; i < GW_GATEWAYS; i++)
		form_put(&w, o->nonce[i], 8);
	form_put(&w, o->nfences, 1);
	for (unsigned i = 0; i < o->nfences; i++) {
		form_put(&w, o->fence[i].gateway, 1);
		form_put(&w, o->fence[i].incarnation, 8);
		form_put_text(&w, o->fence[i].addr);
	}
	form_put(&w, o->mirror.state, 1);
	form_put(&w, o->mirror.peer, 1);
	form_put(&w, o->mirror.incarnation, 8);
	form_put(&w, o->mirror.epoch, 8);
	form_put(&w, o->shared.gen, 8);
	form_put(&w, o->unit, 8);
	for (unsigned i = 0; i < GW_ATTENTIONS; i++)
		form_put(&w, o->shared.attention[i], 4);
	form_put(&w, o->shared.len, 4);
	if (o->shared.len)
		memcpy(w.p, o->shared.blob, o->shared.len);
	w.p += o->shared.len;
	return form_end(&w);
}

size_t gw_encode_msg(const struct gw_msg *m, uint8_t *buf)
{
	struct form_out w = form_begin(buf, FORM_MSG);

	form_put(&w, m->kind, 1);
	form_put(&w, m->what, 1);
	form_put(&w, m->gateway, 1);
	form_put(&w, m->lu, 8);
	form_put(&w, m->epoch, 8);
	form_put(&w, m->gen, 8);
	form_put(&w, m->cookie, 8);
	form_put(&w, m->incarnation, 8);
	return form_end(&w);
}

/* ---- reading --------------------------------------------------------------------------------- */
struct form_in {
	const uint8_t *p, *end;
	const char *why; /* the first thing that is wrong */
};

static uint64_t form_get(struct form_in *r, unsigned bytes)
{
	uint64_t v = 0;

	if ((size_t)(r->end - r->p) < bytes) {
		r->why = r->why ? r->why : "it is cut short";
		r->p = r->end;
		return 0;
	}
	while (bytes--)
		v = v << 8 | *r->p++;
	return v;
}

static uint8_t form_get_below(struct form_in *r, unsigned limit, const char *why)
{
	const uint8_t v = (uint8_t)form_get(r, 1);

	if (v >= limit && !r->why)
		r->why = why;
	return v;
}

/* A gateway's index, or nobody. */
static uint8_t form_get_gateway(struct form_in *r)
{
	const uint8_t v = (uint8_t)form_get(r, 1);

	if (v >= GW_GATEWAYS && v != GW_NOBODY && !r->why)
		r->why = "it names a gateway that cannot be";
	return v;
}

static void form_get_text(struct form_in *r, char *text, size_t max)
{
	const size_t n = form_get(r, 1);

	if (n > max || n > (size_t)(r->end - r->p) || memchr(r->p, 0, n)) {
		r->why = r->why ? r->why : "an address or a process does not fit";
		return;
	}
	memcpy(text, r->p, n);
	text[n] = 0;
	r->p += n;
}

static void form_get_past(struct form_in *r, struct gw_past *c)
{
	form_get_text(r, c->addr, GW_ADDR_MAX);
	form_get_text(r, c->process, GW_PROCESS_MAX);
}

static struct form_in form_open(const void *bytes, size_t len, enum form_kind kind)
{
	const uint8_t *b = bytes;
	struct form_in r = { b, b, NULL };

	if (len < HEAD + TAIL || memcmp(b, form_magic, sizeof(form_magic)) || b[6] != kind)
		r.why = "it is none of this kind";
	else if (b[7] != FORM_VERSION)
		r.why = "another version of tgtd wrote it, and a group must have one";
	else if (get_be32(b + 8) != len)
		r.why = "its length is not what it says";
	else if (get_be64(b + len - TAIL) != fnv1a(FNV1A_INIT, b, len - TAIL))
		r.why = "its checksum is wrong";
	if (r.why)
		return r;
	r.p = b + HEAD;
	r.end = b + len - TAIL;
	return r;
}

static const char *form_close(const struct form_in *r)
{
	if (!r->why && r->p != r->end)
		return "it is longer than its fields";
	return r->why;
}

const char *gw_decode_gateway(struct gw_gateway_object *o, const void *bytes, size_t len)
{
	struct form_in r = form_open(bytes, len, FORM_GATEWAY);
	const char *why;

	memset(o, 0, sizeof(*o));
	o->incarnation = form_get(&r, 8);
	o->sequence = form_get(&r, 8);
	o->nonce = form_get(&r, 8);
	o->life = form_get_below(&r, GW_LIVES, "its life is unknown");
	o->by = form_get_gateway(&r);
	form_get_past(&r, &o->now);
	o->npast = form_get_below(&r, GW_PAST + 1, "it names too many clients of before");
	for (unsigned i = 0; !r.why && i < o->npast; i++)
		form_get_past(&r, &o->past[i]);
	why = form_close(&r);
	if (why)
		memset(o, 0, sizeof(*o));
	return why;
}

static void form_get_shared(struct form_in *r, struct gw_lu_object *o)
{
	struct gw_shared *s = &o->shared;

	s->gen = form_get(r, 8);
	o->unit = form_get(r, 8);
	for (unsigned i = 0; i < GW_ATTENTIONS; i++)
		s->attention[i] = (uint32_t)form_get(r, 4);
	s->len = (uint32_t)form_get(r, 4);
	if (!r->why && (s->len > GW_SHARED_MAX || s->len != (size_t)(r->end - r->p)))
		r->why = "the shared state does not fit";
	if (r->why)
		return;
	s->blob = (uint8_t *)(uintptr_t)r->p;
	r->p += s->len;
}

const char *gw_decode_lu(struct gw_lu_object *o, const void *bytes, size_t len)
{
	struct form_in r = form_open(bytes, len, FORM_LU);
	const char *why;

	memset(o, 0, sizeof(*o));
	o->epoch = form_get(&r, 8);
	o->incarnation = form_get(&r, 8);
	o->owner = form_get_gateway(&r);
	o->claim = form_get_below(&r, GW_CLAIMS, "its claim is unknown");
	o->home = form_get_gateway(&r);
	o->wanted = form_get_gateway(&r);
	form_get_text(&r, o->addr, GW_ADDR_MAX);
	for (unsigned i = 0; i < GW_GATEWAYS; i++)
		o->nonce[i] = form_get(&r, 8);
	o->nfences = form_get_below(&r, GW_FENCES + 1, "it names too many fences");
	for (unsigned i = 0; !r.why && i < o->nfences; i++) {
		o->fence[i].gateway = form_get_below(&r, GW_GATEWAYS, "it fences no gateway");
		o->fence[i].incarnation = form_get(&r, 8);
		form_get_text(&r, o->fence[i].addr, GW_ADDR_MAX);
	}
	o->mirror.state = form_get_below(&r, GW_MIRROR_STATES, "its mirror's state is unknown");
	o->mirror.peer = form_get_gateway(&r);
	o->mirror.incarnation = form_get(&r, 8);
	o->mirror.epoch = form_get(&r, 8);
	form_get_shared(&r, o);
	if (!r.why && o->claim != GW_FREE && (o->owner == GW_NOBODY || !*o->addr))
		r.why = "it is owned by nobody";
	if (!r.why && o->mirror.state == GW_MIRROR_VALID && o->mirror.peer == GW_NOBODY)
		r.why = "its mirror is with nobody";
	why = form_close(&r);
	if (why)
		memset(o, 0, sizeof(*o));
	return why;
}

const char *gw_decode_msg(struct gw_msg *m, const void *bytes, size_t len)
{
	struct form_in r = form_open(bytes, len, FORM_MSG);
	const char *why;

	memset(m, 0, sizeof(*m));
	m->kind = form_get_below(&r, GW_MSG_KINDS, "it says nothing that is known");
	m->what = form_get_below(&r, GW_MSG_KINDS, "it answers nothing that is known");
	m->gateway = form_get_gateway(&r);
	m->lu = form_get(&r, 8);
	m->epoch = form_get(&r, 8);
	m->gen = form_get(&r, 8);
	m->cookie = form_get(&r, 8);
	m->incarnation = form_get(&r, 8);
	why = form_close(&r);
	if (why)
		memset(m, 0, sizeof(*m));
	return why;
}

uint64_t gw_lu_hash(const char *id)
{
	return fnv1a(FNV1A_INIT, id, strlen(id));
}
