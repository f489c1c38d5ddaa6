/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * RADOS: objects, the blocklist, and a store of blocks. Answers get lost though the request is
 * done; what a dead process had sent may land later, unless its address is fenced. Included by
 * test_mirror.c.
 */
#include "tests/sim/mirror_world.h"

#define OP_TIMEOUT (80 * MS)

static uint64_t rados_latency(void)
{
	if (!W.healing && W.now < W.slow_until)
		return MS + world_random(120 * MS);
	return 100000 + world_random(MS);
}

/* ---- objects --------------------------------------------------------------------------------- */
static void reply_fn(struct event *e)
{
	gw_done(W.gate[e->gate].gw, e->id, (int)(int64_t)e->d, W.now);
}

static void reply(unsigned gate, uint64_t id, int result, uint64_t delay)
{
	struct event *e = event_new(gate, reply_fn, delay);

	e->id = id;
	e->d = (uint64_t)(int64_t)result;
}

static void read_reply(struct event *e)
{
	gw_read_done(W.gate[e->gate].gw, e->id, (int)(int64_t)e->d, e->a, e->data, e->len, W.now);
}

static void write_reply(struct event *e)
{
	gw_write_done(W.gate[e->gate].gw, e->id, (int)(int64_t)e->d, e->a, W.now);
}

/* c: gate and life of who asked; d: until when it waits. */
static void control_sent(struct event *e, unsigned gate, uint64_t id)
{
	e->id = id;
	e->c = (uint64_t)W.gate[gate].life << 8 | gate;
	e->d = W.now + OP_TIMEOUT;
}

static bool is_lost(unsigned gate)
{
	return !W.healing && (W.gate[gate].cut || world_random(400) == 0);
}

static struct event *control_answer(const struct event *e, void (*fn)(struct event *e), int result)
{
	const unsigned gate = e->c & 255;
	uint64_t back = rados_latency();
	struct event *r;

	if (W.gate[gate].life != (uint32_t)(e->c >> 8) || !W.gate[gate].gw)
		return NULL;
	if (is_lost(gate) || W.now + back > e->d) {
		back = e->d > W.now ? e->d - W.now : 0;
		result = -ETIMEDOUT;
	}
	r = event_new(gate, fn, back);
	r->id = e->id;
	r->d = (uint64_t)(int64_t)result;
	return r;
}

static void read_lands(struct event *e)
{
	const struct object *o = &W.object[e->b];
	struct event *r = control_answer(e, read_reply, o->version ? 0 : -ENOENT);

	if (!r || (int64_t)r->d)
		return;
	r->a = o->version;
	event_data(r, o->data, o->len);
}

/* What a LU's object says of its mirror: one change at a time, and none of what nobody owns. */
static void unit_changed(const struct object *o, const void *bytes, size_t len)
{
	struct gw_lu_object before = { .owner = 0 }, after;

	if ((o->len && gw_decode_lu(&before, o->data, o->len)) || gw_decode_lu(&after, bytes, len))
		world_fails("an object cannot be read back");
	if (after.mirror.epoch < before.mirror.epoch ||
	    after.mirror.epoch > before.mirror.epoch + 1)
		world_fails("the mirror goes from %llu to %llu",
			    (unsigned long long)before.mirror.epoch,
			    (unsigned long long)after.mirror.epoch);
	if (after.claim == GW_CLAIMED && after.owner != before.owner &&
	    after.mirror.state == GW_MIRROR_VALID && after.mirror.peer == after.owner) {
		const struct mirror_peer *p = W.gate[after.owner].mp;
		const uint32_t slot = p ? mirror_slot_of(p, gw_lu_hash("unit")) : MIRROR_NONE;

		/* What a process before this one had asked for may land now: it had sealed. */
		if (slot != MIRROR_NONE && !p->slot[slot].sealed &&
		    after.incarnation == W.gate[after.owner].gw->incarnation)
			world_fails("gate %u claims before its seal", after.owner);
	}
	if (after.claim == GW_FREE && after.mirror.state == GW_MIRROR_VALID)
		world_fails("a unit that is nobody's has a mirror");
}

static void write_lands(struct event *e)
{
	struct object *o = &W.object[e->b];
	struct event *r;
	int result = -ERANGE;

	if (o->version == e->a) {
		if (e->b == GATES)
			unit_changed(o, e->data, e->len);
		o->version = ++W.nonce;
		o->len = e->len;
		memcpy(o->data, e->data, e->len);
		result = 0;
	}
	r = control_answer(e, write_reply, result);
	if (r)
		r->a = o->version;
}

/* Cut off: it is lost, or lands when nobody expects it. */
static uint64_t way_there(unsigned gate)
{
	return W.gate[gate].cut && !W.healing ? MS + world_random(SEC) : rados_latency();
}

static void ops_read(void *arg, uint64_t id, unsigned gateway, int lu)
{
	struct event *e = event_new(GATES, read_lands, way_there(gate_of(arg)));

	e->b = lu < 0 ? gateway : GATES;
	control_sent(e, gate_of(arg), id);
}

static void ops_write(void *arg, uint64_t id, unsigned gateway, int lu, uint64_t version,
		      const void *bytes, size_t len)
{
	struct event *e = event_new(GATES, write_lands, way_there(gate_of(arg)));

	e->b = lu < 0 ? gateway : GATES;
	e->a = version;
	control_sent(e, gate_of(arg), id);
	event_data(e, bytes, len);
}

/* ---- fences, clients, locks ------------------------------------------------------------------ */
static void fence_lands(struct event *e)
{
	for (const char *addr = (char *)e->data; *addr; addr += strlen(addr) + 1)
		W.fenced[strtoull(addr, NULL, 10)] = true;
	control_answer(e, reply_fn, 0);
}

static void ops_fence(void *arg, uint64_t id, const char *const *addr, unsigned n, uint64_t seconds)
{
	struct event *e = event_new(GATES, fence_lands, rados_latency());
	char list[GW_FENCES * (GW_ADDR_MAX + 1) + 1];
	size_t len = 0;

	(void)seconds;
	for (unsigned i = 0; i < n; i++) {
		world_says("gate %u fences client %s", gate_of(arg), addr[i]);
		memcpy(list + len, addr[i], strlen(addr[i]) + 1);
		len += strlen(addr[i]) + 1;
	}
	list[len] = 0;
	event_data(e, list, len + 1);
	control_sent(e, gate_of(arg), id);
}

static bool ops_gone(void *arg, const char *process)
{
	return false;
}

static void ops_later(void *arg, uint64_t id)
{
	reply(gate_of(arg), id, 0, rados_latency());
}

static void client_made(struct event *e)
{
	struct gate *g = &W.gate[e->gate];
	char addr[16];

	if (W.clients == CLIENTS) {
		gw_client_done(g->gw, e->id, -EIO, NULL, W.now);
		return;
	}
	g->client = W.clients++;
	snprintf(addr, sizeof(addr), "%d", g->client);
	gw_client_done(g->gw, e->id, 0, addr, W.now);
}

static void ops_client_new(void *arg, uint64_t id)
{
	event_new(gate_of(arg), client_made, MS)->id = id;
}

static void ops_client_end(void *arg, uint64_t id)
{
	struct gate *g = arg;

	if (g->client >= 0)
		W.ended[g->client] = true;
	g->client = -1;
	reply(gate_of(arg), id, 0, MS);
}

static void lock_answered(struct event *e)
{
	gw_lock_done(W.gate[e->gate].gw, e->id, 0, NULL, W.now);
}

static void ops_lock(void *arg, uint64_t id, unsigned lu)
{
	event_new(gate_of(arg), lock_answered, rados_latency())->id = id;
}

static void ops_break(void *arg, uint64_t id, unsigned lu, const char *addr)
{
	ops_later(arg, id);
}

static void ops_unlock(void *arg, uint64_t id, unsigned lu)
{
	ops_later(arg, id);
}

/* ---- the store ------------------------------------------------------------------------------- */
struct io {
	uint8_t n, block[BLOCKS];
	uint64_t map[BLOCKS], changes[BLOCKS], gen[BLOCKS], first, count, order;
	int client;
	uint64_t tenure;
	content v;
};

static struct event *io_new(unsigned gate, void (*fn)(struct event *e), const struct io *io)
{
	struct event *e = event_new(GATES, fn, rados_latency());

	event_data(e, io, sizeof(*io));
	e->c = (uint64_t)W.gate[gate].life << 8 | gate;
	return e;
}

/* False: it is answered already, or nobody waits for it. */
static bool io_begins(const struct io *io)
{
	return io->client >= 0 && !W.fenced[io->client] &&
	       !(W.ended[io->client] && world_chance(50));
}

static void io_answer(struct event *e, void (*fn)(struct event *e), const struct io *io, int result)
{
	const unsigned gate = e->c & 255;
	struct event *r;

	if (W.gate[gate].life != (uint32_t)(e->c >> 8))
		return;
	r = event_new(gate, fn, rados_latency());
	event_data(r, io, sizeof(*io));
	r->id = e->id;
	r->d = (uint64_t)(int64_t)result;
}

static void io_was_refused(const struct event *e)
{
	if ((int64_t)e->d == -ESHUTDOWN && W.gate[e->gate].gw)
		gw_fenced(W.gate[e->gate].gw, W.now);
}

static void write_is_done(struct event *e)
{
	struct gate *g = &W.gate[e->gate];
	struct io io;

	memcpy(&io, e->data, sizeof(io));
	if (io.tenure != g->tenure)
		return;
	for (unsigned i = 0; i < io.n; i++) {
		struct page *p = &g->page[io.block[i]];

		p->writing = false;
		if ((int64_t)e->d)
			continue;
		if (p->changes == io.changes[i])
			p->dirty = 0;
		if (g->mo)
			mirror_owner_stored(g->mo, io.block[i], io.gen[i], W.now);
	}
	io_was_refused(e);
	gate_wakes(e->gate);
}

static void write_is_there(struct event *e)
{
	struct io io;
	int result = 0;

	memcpy(&io, e->data, sizeof(io));
	if (!io_begins(&io))
		result = -ESHUTDOWN;
	for (unsigned i = 0; i < io.n && !result; i++)
		for (unsigned s = 0; s < SECTORS; s++)
			if (io.map[i] >> s & 1)
				W.store[io.block[i]][s] = io.v[io.block[i]][s];
	io_answer(e, write_is_done, &io, result);
}

static void io_add(struct io *io, unsigned gate, unsigned block)
{
	struct gate *g = &W.gate[gate];
	struct page *p = &g->page[block];

	io->block[io->n] = (uint8_t)block;
	io->map[io->n] = p->dirty;
	io->changes[io->n] = p->changes;
	io->gen[io->n++] = mirror_owner_gen(g->mo, block);
	memcpy(io->v[block], p->v, sizeof(p->v));
}

/* What is dirty of @block; of a group, all of it by one request. */
static void store_write(unsigned gate, unsigned block)
{
	struct gate *g = &W.gate[gate];
	struct io io = { .client = g->client, .tenure = g->tenure };
	const uint64_t group = mirror_owner_together(g->mo, block);

	for (unsigned b = 0; b < BLOCKS; b++) {
		const struct command *c = g->busy[b] ? command_by(gate, g->busy[b]) : NULL;

		if (b != block && !(group && mirror_owner_together(g->mo, b) == group))
			continue;
		if (!g->page[b].dirty || g->page[b].writing || (c && c->held))
			return;
		io_add(&io, gate, b);
	}
	for (unsigned i = 0; i < io.n; i++)
		g->page[io.block[i]].writing = true;
	world_says("gate %u writes back block %u, generation %llu", gate, block,
		   (unsigned long long)io.gen[0]);
	io_new(gate, write_is_there, &io);
}

static void load_is_done(struct event *e)
{
	struct gate *g = &W.gate[e->gate];
	struct io io;
	struct page *p;

	memcpy(&io, e->data, sizeof(io));
	if (io.tenure != g->tenure)
		return;
	p = &g->page[io.block[0]];
	p->loading = false;
	for (unsigned s = 0; s < SECTORS && !(int64_t)e->d && p->changes == io.changes[0]; s++)
		if (!(p->valid >> s & 1)) {
			p->v[s] = io.v[io.block[0]][s];
			p->valid |= 1u << s;
		}
	io_was_refused(e);
	gate_wakes(e->gate);
}

static void load_is_there(struct event *e)
{
	struct io io;

	memcpy(&io, e->data, sizeof(io));
	memcpy(io.v, W.store, sizeof(io.v));
	io_answer(e, load_is_done, &io, io_begins(&io) ? 0 : -ESHUTDOWN);
}

static void store_load(unsigned gate, unsigned block)
{
	struct gate *g = &W.gate[gate];
	struct io io = { .client = g->client, .tenure = g->tenure };

	io_add(&io, gate, block);
	g->page[block].loading = true;
	io_new(gate, load_is_there, &io);
}

static void zero_is_there(struct event *e)
{
	struct io io;
	int result = 0;

	memcpy(&io, e->data, sizeof(io));
	if (!io_begins(&io))
		result = -ESHUTDOWN;
	else if (!W.healing && e->a && world_chance(10))
		result = -EIO;
	for (uint64_t b = io.first; b < MIN(io.first + io.count, BLOCKS) && !result; b++)
		for (unsigned s = 0; s < SECTORS; s++)
			W.store[b][s] = io.order;
	io_answer(e, (void (*)(struct event *))(uintptr_t)e->b, &io, result);
}

/* @id: of the command, or of the opening. */
static void store_zero(unsigned gate, uint64_t first, uint64_t count, uint64_t order, uint64_t gen,
		       void (*done)(struct event *e), uint64_t id)
{
	struct io io = { .first = first,
			 .count = count,
			 .order = order,
			 .changes = { gen },
			 .client = W.gate[gate].client,
			 .tenure = W.gate[gate].tenure };
	struct event *e = io_new(gate, zero_is_there, &io);

	e->a = !gen; /* a takeover's does not fail */
	e->b = (uint64_t)(uintptr_t)done;
	e->id = id;
}
