/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * RADOS as gateways meet it: answers that come late or not at all though the request is done, OSDs
 * that learn of the blocklist late, fences that expire, I/O that is under way for a second.
 * Included by test_gateway.c.
 */
#include "tests/sim/gateway_world.h"

#define OP_TIMEOUT SEC /* of the control client */
/* What a data client had sent when it, or its process, ended lands by then, or never. The clock of
 * who lifts its fence after LIFT_NS may be 3 % fast. */
#define ENDED_LATEST (LIFT_NS / 10 * 9)

static unsigned gate_of(void *arg)
{
	return (unsigned)((struct gate *)arg - W.gate);
}

static uint64_t latency(void)
{
	const bool well = W.healing || W.may.back || W.may.even || W.may.prompt;

	if (!well && W.now < W.slow_until)
		return 50 * MS + world_random(700 * MS);
	if (!well && world_chance(3))
		return 100 * MS + world_random(800 * MS);
	if (!well && world_chance(1))
		return SEC + world_random(3 * SEC);
	return 200000 + world_random(3 * MS);
}

/* ---- answers --------------------------------------------------------------------------------- */
static void reply_fn(struct event *e)
{
	gw_done(W.gate[e->gate].gw, e->id, (int)(int64_t)e->d, local_time(e->gate));
}

static void reply(unsigned gate, uint64_t id, int result, uint64_t delay)
{
	struct event *e = event_new(gate, reply_fn, delay);

	e->id = id;
	e->d = (uint64_t)(int64_t)result;
}

static void read_reply_fn(struct event *e)
{
	gw_read_done(W.gate[e->gate].gw, e->id, (int)(int64_t)e->d, e->a, e->data, e->len,
		     local_time(e->gate));
}

static void write_reply_fn(struct event *e)
{
	gw_write_done(W.gate[e->gate].gw, e->id, (int)(int64_t)e->d, e->a, local_time(e->gate));
}

static void done_reply_fn(struct event *e)
{
	if (!(int64_t)e->d && e->c) /* a map */
		W.client[e->b].map = MAX(W.client[e->b].map, e->c);
	gw_done(W.gate[e->gate].gw, e->id, (int)(int64_t)e->d, local_time(e->gate));
}

/* A request of the control client: it lands, or not; it is answered, or times out, or both. */
static void ask_timeout(unsigned gate, uint32_t life, uint64_t id, uint64_t sent,
			void (*fn)(struct event *e))
{
	struct event *t;

	if (W.gate[gate].life != life)
		return;
	t = event_new(gate, fn, sent + OP_TIMEOUT > W.now ? sent + OP_TIMEOUT - W.now : 0);
	t->id = id;
	t->d = (uint64_t)(int64_t)-ETIMEDOUT;
}

/* e->gate is nobody's: it lands though its sender dies. a: gate and life; b, c, data: the request's
 * own; d: when it was sent; len; id. */
static struct event *control(unsigned gate, uint64_t id, void (*land)(struct event *e),
			     void (*answered)(struct event *e))
{
	uint64_t there = latency();
	struct event *e;

	if (W.gate[gate].cut || there >= OP_TIMEOUT)
		ask_timeout(gate, W.gate[gate].life, id, W.now, answered);
	/* Cut off, it is lost, or comes out of a buffer when nobody expects it. */
	if (W.gate[gate].cut)
		there += world_chance(70) ? 3600 * SEC : world_random(4 * SEC);
	e = event_new(GATES, land, there);
	e->id = id;
	e->a = (uint64_t)W.gate[gate].life << 8 | gate;
	e->d = W.now;
	if (W.gate[gate].cut || there >= OP_TIMEOUT)
		e->timed = true;
	return e;
}

/* RADOS stands still: it lands later. */
static bool stalled(struct event *e, void (*answered)(struct event *e))
{
	if (W.healing || W.now >= W.stall_until)
		return false;
	if (!e->timed && answered)
		ask_timeout(e->a & 255, (uint32_t)(e->a >> 8), e->id, e->d, answered);
	e->timed = true;
	event_again(e, MIN(W.stall_until - W.now, 50 * MS) + world_random(5 * MS));
	return true;
}

/* Its answer, if the sender lives and still waits. */
static struct event *control_answer(struct event *e, void (*answered)(struct event *e), int result)
{
	const unsigned gate = e->a & 255;
	const uint64_t back = latency();
	struct event *r;

	if (W.gate[gate].life != (uint32_t)(e->a >> 8))
		return NULL;
	if (W.gate[gate].cut || W.now + back >= e->d + OP_TIMEOUT) {
		if (!e->timed)
			ask_timeout(gate, W.gate[gate].life, e->id, e->d, answered);
		return NULL;
	}
	r = event_new(gate, answered, back);
	r->id = e->id;
	r->d = (uint64_t)(int64_t)result;
	return r;
}

/* ---- objects --------------------------------------------------------------------------------- */
static struct object *object_of(uint64_t key)
{
	return key < GATES ? &W.object[key] : &W.unit[key - GATES].object;
}

static void read_land(struct event *e)
{
	const struct object *o = object_of(e->b);
	struct event *r;

	if (stalled(e, read_reply_fn))
		return;
	r = control_answer(e, read_reply_fn, o->version ? 0 : -ENOENT);
	if (!r)
		return;
	r->a = o->version;
	r->len = o->len;
	memcpy(r->data, o->data, o->len);
}

static void ops_read(void *arg, uint64_t id, unsigned gateway, int lu)
{
	struct event *e = control(gate_of(arg), id, read_land, read_reply_fn);

	e->b = lu < 0 ? gateway : (unsigned)(GATES + lu);
}

/* Has a claim forgotten where the LU is to go, though that gateway is there, and can be seen? A
 * write while it is claimed may be an order to go elsewhere, and is none of the claim's. */
static void wish_check(const struct gw_lu_object *before, const struct gw_lu_object *after)
{
	const bool claimed = before->claim == GW_CLAIMED && before->owner == after->owner &&
			     before->incarnation == after->incarnation;
	const uint8_t to = before->wanted;

	/* (One that may not have the unit is forgotten at last.) */
	if (!W.may.prompt || W.may.admin || to >= GATES || after->claim != GW_CLAIMED || claimed ||
	    after->owner == to || after->wanted == to || !W.gate[to].gw || W.gate[to].gw->leaving ||
	    W.now < W.gate[to].began + 3 * SEC || W.object[to].written_at + 600 * MS < W.now)
		return;
	world_fails("gate %u claims what is to go to gate %u, and forgets that", after->owner, to);
}

/* What a LU's object says of shared state: each change once, and none left out. */
static void unit_changed(struct unit *u, const uint8_t *was, uint32_t was_len, const uint8_t *is,
			 uint32_t len)
{
	struct gw_lu_object before = { .owner = 0 }, after;
	const struct gw_shared *s = &after.shared;
	struct change change = { { 0 }, 0 };

	if (was_len && gw_decode_lu(&before, was, was_len))
		world_fails("an object cannot be read back");
	if (gw_decode_lu(&after, is, len))
		world_fails("an object cannot be read back");
	if (after.epoch < before.epoch || after.epoch > before.epoch + 1)
		world_fails("the epoch goes from %llu to %llu", (unsigned long long)before.epoch,
			    (unsigned long long)after.epoch);
	wish_check(&before, &after);
	W.most_fences = MAX(W.most_fences, after.nfences);
	if (after.claim != before.claim || after.incarnation != before.incarnation)
		step_note((unsigned)(u - W.unit), "RCA"[after.claim]);
	if (s->gen == before.shared.gen)
		return;
	if (s->gen != before.shared.gen + 1 || s->len < 8)
		world_fails("shared state goes from %llu to %llu",
			    (unsigned long long)before.shared.gen, (unsigned long long)s->gen);
	if (*W.failed || s->gen >= CHANGES)
		return;
	memcpy(&change.op, s->blob, 8);
	for (unsigned g = 0; g < GATES; g++)
		change.denied[g] = shared_denies(s, g);
	for (uint64_t g = 1; g <= u->gens; g++)
		if (u->change[g].op == change.op)
			world_fails("a change of shared state is made twice");
	u->gens = s->gen;
	u->change[s->gen] = change;
	u->changed_at = W.now;
}

static void write_land(struct event *e)
{
	struct object *o = object_of(e->b);
	struct event *r;
	int result = 0;

	if (stalled(e, write_reply_fn))
		return;
	if (o->version != e->c) {
		result = -ERANGE;
	} else {
		if (e->b >= GATES)
			unit_changed(&W.unit[e->b - GATES], o->data, o->len, e->data, e->len);
		o->version = ++W.serials;
		o->written_at = W.now;
		o->len = e->len;
		memcpy(o->data, e->data, e->len);
	}
	r = control_answer(e, write_reply_fn, result);
	if (r)
		r->a = o->version;
}

static void ops_write(void *arg, uint64_t id, unsigned gateway, int lu, uint64_t version,
		      const void *bytes, size_t len)
{
	struct event *e = control(gate_of(arg), id, write_land, write_reply_fn);

	e->b = lu < 0 ? gateway : (unsigned)(GATES + lu);
	e->c = version;
	if (len > sizeof(e->data)) {
		world_fails("an object of %zu bytes", len);
		len = sizeof(e->data);
	}
	e->len = (uint32_t)len;
	memcpy(e->data, bytes, len);
}

/* ---- fencing --------------------------------------------------------------------------------- */
static struct client *client_by(const char *addr)
{
	for (int i = 0; i < W.clients; i++)
		if (!strcmp(W.client[i].addr, addr))
			return &W.client[i];
	return NULL;
}

static void osd_learns(struct event *e)
{
	W.osd_map[e->b] = MAX(W.osd_map[e->b], e->c);
}

static void fence_land(const char *addr, uint64_t seconds)
{
	struct client *c = client_by(addr);
	struct gw_gateway_object o;

	if (c == &W.client[W.stranger]) {
		world_fails("somebody outside of the group is fenced");
		return;
	}
	if (c && !W.object[c->gate].version) /* that was removed */
		memset(&o, 0, sizeof(o));
	else if (!c || gw_decode_gateway(&o, W.object[c->gate].data, W.object[c->gate].len)) {
		world_fails("an address is fenced that is nobody's: %s", addr);
		return;
	}
	if (o.life == GW_UP && !strcmp(o.now.addr, c->addr))
		world_fails("%s is fenced, and its gateway is up", c->addr);
	step_note(0, 'F');
	W.map++;
	/* As Ceph 16 does it: an entry that there is keeps the time that it has. */
	if (!c->fenced_at || W.now >= c->expires) {
		c->fenced_at = W.map;
		c->expires = W.now + seconds * SEC;
	}
	world_says("fence %s", c->addr);
	for (unsigned i = 0; i < OSDS; i++) {
		struct event *l = event_new(GATES, osd_learns, world_random(3 * SEC));

		l->b = i;
		l->c = W.map;
	}
}

/* One batch: in the order of the monitors, and maps between them. */
static void fences_land(struct event *e)
{
	if (stalled(e, done_reply_fn))
		return;
	for (const char *addr = (char *)e->data; *addr; addr += strlen(addr) + 1)
		fence_land(addr, e->b);
	control_answer(e, done_reply_fn, 0);
}

static void ops_fence(void *arg, uint64_t id, const char *const *addr, unsigned n, uint64_t seconds)
{
	struct event *e = control(gate_of(arg), id, fences_land, done_reply_fn);

	e->b = seconds;
	for (unsigned i = 0; i < n; i++) {
		memcpy(e->data + e->len, addr[i], strlen(addr[i]) + 1);
		e->len += (uint32_t)strlen(addr[i]) + 1;
	}
	e->data[e->len] = 0;
}

static void lift_land(struct event *e)
{
	struct client *c = client_by((char *)e->data);

	if (stalled(e, done_reply_fn))
		return;
	if (!c || (!c->ended && W.gate[c->gate].client == c - W.client))
		world_fails("the fence of %s is lifted, which is at work", (char *)e->data);
	else if (c->fenced_at)
		W.lifted++;
	if (c)
		c->fenced_at = 0;
	control_answer(e, done_reply_fn, 0);
}

static void ops_lift(void *arg, uint64_t id, const char *addr)
{
	struct event *e = control(gate_of(arg), id, lift_land, done_reply_fn);

	snprintf((char *)e->data, GW_ADDR_MAX + 1, "%s", addr);
}

/* A name that begins with '?' is of another machine. */
static bool ops_gone(void *arg, const char *process)
{
	unsigned gate, life;

	return sscanf(process, "gate%u.%u", &gate, &life) == 2 && W.gate[gate].life != life;
}

static void map_land(struct event *e)
{
	struct event *r;

	if (stalled(e, done_reply_fn))
		return;
	step_note(0, 'M');
	r = control_answer(e, done_reply_fn, 0);
	if (r) {
		r->b = e->b;
		r->c = W.map + 1; /* not 0 */
	}
}

static void ops_wait_map(void *arg, uint64_t id)
{
	struct event *e = control(gate_of(arg), id, map_land, done_reply_fn);

	e->b = (uint64_t)((struct gate *)arg)->client;
}

/* Is the client kept out by @osd, which first learns what the client knows? */
static bool osd_refuses(unsigned osd, int client)
{
	const struct client *c = &W.client[client];

	if (c->map > W.osd_map[osd] + 1)
		W.osd_map[osd] = W.map;
	return c->fenced_at && c->fenced_at <= W.osd_map[osd] && W.now < c->expires;
}

/* ---- the data client ------------------------------------------------------------------------- */
static void client_made(struct event *e)
{
	struct gate *g = &W.gate[e->gate];
	struct client *c = &W.client[W.clients];

	if (g->client >= 0)
		world_fails("gate %u gets a data client beside the one it has", e->gate);
	for (unsigned u = 0; u < UNITS; u++)
		if (g->lun[u].open)
			world_fails("gate %u gets a data client, and unit %u is open", e->gate, u);
	if (W.clients == CLIENTS - 1) {
		gw_client_done(g->gw, e->id, -EIO, NULL, local_time(e->gate));
		return;
	}
	*c = (struct client){ .gate = e->gate, .made = true };
	snprintf(c->addr, sizeof(c->addr), "10.0.0.%u:0/%u", e->gate, 1000 + W.clients);
	g->client = W.clients++;
	world_says("gate %u has data client %s", e->gate, c->addr);
	gw_client_done(g->gw, e->id, 0, c->addr, local_time(e->gate));
}

static void ops_client_new(void *arg, uint64_t id)
{
	event_new(gate_of(arg), client_made, 2 * MS)->id = id;
}

static void ops_client_end(void *arg, uint64_t id)
{
	struct gate *g = arg;

	if (g->client >= 0)
		W.client[g->client].ended = true;
	for (unsigned i = 0; i < COMMANDS; i++) {
		struct command *c = &W.command[i];

		if (c->op != OP_NONE && c->gate == gate_of(arg) && c->io && c->client == g->client)
			io_done(c, -ESHUTDOWN, (struct value){ 0 });
	}
	g->client = -1;
	reply(gate_of(arg), id, 0, MS);
}

/* ---- I/O of images --------------------------------------------------------------------------- */
struct io {
	uint8_t op, gate, unit, block, initiator;
	uint32_t life, index;
	uint64_t serial, tenure, sent_at;
	int client;
	struct value value;
};

static void io_reply(struct event *e)
{
	struct io io;
	struct command *c;

	memcpy(&io, e->data, sizeof(io));
	c = &W.command[io.index];
	if (c->op == OP_NONE || c->serial != io.serial || !c->io || c->client != io.client)
		return;
	io_done(c, (int)(int64_t)e->d, io.value);
	if ((int64_t)e->d == -ESHUTDOWN) {
		W.shut++;
		gw_fenced(W.gate[e->gate].gw, local_time(e->gate));
	}
}

/* May a write of @initiator be done, by some shared state that is not void yet? */
static bool write_is_allowed(const struct unit *u, unsigned initiator, unsigned gate)
{
	for (uint64_t g = u->good; g <= u->gens; g++)
		if (!(u->change[g].denied[gate] & 1u << initiator))
			return true;
	return false;
}

static void io_execute(struct io *io)
{
	struct unit *u = &W.unit[io->unit];
	uint64_t *tenure = &u->tenure[io->block % OSDS];

	if (io->tenure < *tenure)
		world_fails("unit %u: a %s of gate %u is done after one of its next owner",
			    io->unit, io->op == OP_WRITE ? "write" : "read", io->gate);
	*tenure = MAX(*tenure, io->tenure);
	if (io->op == OP_READ) {
		io->value = u->block[io->block];
		return;
	}
	if (u->quiet == io->tenure)
		world_fails("unit %u is written while a snapshot is made", io->unit);
	/* An OSD that the new owner has not reached yet may still do a write of the old one. Nobody
	 * can tell it from one that was done before: to see it, the new owner must ask that OSD. */
	if (io->initiator < INITIATORS && io->tenure >= u->served &&
	    !write_is_allowed(u, io->initiator, io->gate))
		world_fails("unit %u is written by initiator %u, whom a reservation keeps out",
			    io->unit, io->initiator);
	if (!io->value.order)
		io->value.order = ++u->order[io->block];
	u->block[io->block] = io->value;
}

static void io_land(struct event *e)
{
	struct io io;
	struct event *r;
	int result = 0;

	if (stalled(e, NULL))
		return;
	memcpy(&io, e->data, sizeof(io));
	/* Before its fence may be lifted, or never (README.md, "Ended is ended"), however long
	 * RADOS stands still. */
	if ((W.gate[io.gate].life != io.life || W.client[io.client].ended) &&
	    W.now - io.sent_at >= ENDED_LATEST)
		return;
	if (osd_refuses(io.block % OSDS, io.client)) {
		result = -ESHUTDOWN;
	} else if (io.op == OP_WRITE || W.gate[io.gate].life == io.life) {
		/* A read that nobody waits for is no matter. */
		if (io.op == OP_READ && W.client[io.client].ended)
			return;
		io_execute(&io);
	}
	if (W.gate[io.gate].life != io.life)
		return;
	r = event_new(io.gate, io_reply, latency());
	r->d = (uint64_t)(int64_t)result;
	memcpy(r->data, &io, sizeof(io));
}

/* Out of the client's queue: never, once it is ended; later, when it cannot reach RADOS. */
static void io_send(struct event *e)
{
	struct event *l;
	struct io io;

	memcpy(&io, e->data, sizeof(io));
	if (W.client[io.client].ended)
		return;
	if (W.gate[io.gate].cut) {
		event_again(e, 200 * MS);
		return;
	}
	io.sent_at = W.now;
	l = event_new(GATES, io_land, latency());
	memcpy(l->data, &io, sizeof(io));
}

static void rados_io(struct command *c, struct value value)
{
	const uint64_t queued = world_chance(25) && !W.may.back ? world_random(300 * MS) : 10000;
	struct gate *g = &W.gate[c->gate];
	struct event *e = event_new(c->gate, io_send, queued);
	struct io io = { .op = c->op,
			 .gate = c->gate,
			 .unit = c->unit,
			 .block = c->block,
			 .initiator = c->initiator,
			 .life = g->life,
			 .index = (uint32_t)(c - W.command),
			 .serial = c->serial,
			 .tenure = c->tenure,
			 .client = g->client,
			 .value = value };

	c->io = true;
	c->client = g->client;
	memcpy(e->data, &io, sizeof(io));
}

/* ---- locks, images --------------------------------------------------------------------------- */
enum { LOCK_TAKE, LOCK_BREAK, LOCK_GIVE, LOCK_OPEN };

static void lock_reply(struct event *e)
{
	if (e->c == LOCK_TAKE)
		gw_lock_done(W.gate[e->gate].gw, e->id, (int)(int64_t)e->d, (char *)e->data,
			     local_time(e->gate));
	else
		gw_done(W.gate[e->gate].gw, e->id, (int)(int64_t)e->d, local_time(e->gate));
}

static int lock_do(const struct event *e, struct unit *u, int client, const char **holder)
{
	if (osd_refuses(0, client))
		return -ESHUTDOWN;
	if (e->c == LOCK_OPEN)
		return W.bad_image[W.client[client].gate][e->b] ? -EIO : 0;
	if (e->c == LOCK_TAKE && u->lock >= 0 && u->lock != client) {
		*holder = W.client[u->lock].addr;
		return -EBUSY;
	}
	if (e->c == LOCK_TAKE)
		u->lock = client;
	else if (u->lock >= 0 && (e->c == LOCK_GIVE ? u->lock == client :
				  !strcmp(W.client[u->lock].addr, (const char *)e->data)))
		u->lock = -1;
	return 0;
}

static void lock_land(struct event *e)
{
	const unsigned gate = e->a & 255;
	const int client = (int)(e->a >> 40);
	const char *holder = "";
	struct event *r;
	int result;

	if (stalled(e, NULL))
		return;
	if (W.gate[gate].cut && W.gate[gate].life == (uint32_t)(e->a >> 8 & 0xffffffff)) {
		event_again(e, 200 * MS);
		return;
	}
	if (e->d != W.image_done[gate][e->b] + 1) {
		event_again(e, MS);
		return;
	}
	W.image_done[gate][e->b]++;
	if (W.client[client].ended)
		return;
	step_note((unsigned)e->b, "LBUO"[e->c]);
	result = lock_do(e, &W.unit[e->b], client, &holder);
	owners_check((unsigned)e->b); /* nobody who may answer loses it */
	if (W.gate[gate].life != (uint32_t)(e->a >> 8 & 0xffffffff))
		return;
	r = event_new(gate, lock_reply, latency());
	r->id = e->id;
	r->c = e->c;
	r->d = (uint64_t)(int64_t)result;
	snprintf((char *)r->data, GW_ADDR_MAX, "%s", holder);
}

static void image_send(void *arg, uint64_t id, unsigned lu, unsigned what, const char *addr)
{
	const struct gate *g = arg;
	struct event *e = event_new(GATES, lock_land, latency());

	e->id = id;
	e->a = (uint64_t)g->client << 40 | (uint64_t)g->life << 8 | gate_of(arg);
	e->b = lu;
	e->c = what;
	e->d = ++W.image_asked[gate_of(arg)][lu];
	snprintf((char *)e->data, GW_ADDR_MAX, "%s", addr);
}

static void ops_lock(void *arg, uint64_t id, unsigned lu)
{
	image_send(arg, id, lu, LOCK_TAKE, "");
}

static void ops_break(void *arg, uint64_t id, unsigned lu, const char *addr)
{
	image_send(arg, id, lu, LOCK_BREAK, addr);
}

static void ops_unlock(void *arg, uint64_t id, unsigned lu)
{
	image_send(arg, id, lu, LOCK_GIVE, "");
}

/* ---- messages -------------------------------------------------------------------------------- */
static void message_comes(struct event *e)
{
	gw_message(W.gate[e->gate].gw, (unsigned)e->a, e->data, e->len, local_time(e->gate));
}

static void ops_send(void *arg, unsigned to, const void *bytes, size_t len)
{
	const unsigned from = gate_of(arg);
	const bool well = W.healing || W.may.alone;
	unsigned copies = well ? 1 : world_chance(8) ? 0 : world_chance(5) ? 2 : 1;

	if (W.gate[from].mute[to] || !W.gate[to].gw)
		return;
	while (copies--) {
		struct event *e = event_new(to, message_comes,
					    world_chance(5) ? world_random(2 * SEC) :
							      100000 + world_random(MS));

		e->a = from;
		e->len = (uint32_t)len;
		memcpy(e->data, bytes, len);
	}
}

static void timer_fires(struct event *e)
{
	if (e->id == W.gate[e->gate].timer)
		gw_tick(W.gate[e->gate].gw, local_time(e->gate));
}

static void ops_timer(void *arg, uint64_t at)
{
	struct gate *g = arg;
	const uint64_t now = local_time(gate_of(arg));
	const double delay = at > now ? (double)(at - now) / g->rate : 0;
	struct event *e = event_new(gate_of(arg), timer_fires, (uint64_t)delay + 1);

	e->id = ++g->timer;
}

static void ops_say(void *arg, int level, int lu, const char *text)
{
	if (lu < 0)
		world_says("gate %u: %s", gate_of(arg), text);
	else
		world_says("gate %u, unit %d: %s", gate_of(arg), lu, text);
}
