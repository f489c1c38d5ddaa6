/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a daemon does between the rules and its cache: frames made, sent by connections and taken
 * apart; pages DIRTY and MIRROR in an arena; a LU opened, taken over, closed. Included by
 * test_mirror.c.
 */
#include "tests/sim/mirror_world.h"
#include "tests/support/mirrorpeer.h"

/* ---- events of a gateway's own --------------------------------------------------------------- */
/* What an operation asks for is done a moment later: operations do not call back. */
static struct event *soon(unsigned gate, void (*fn)(struct event *e))
{
	struct event *e = event_new(gate, fn, 0);

	e->c = W.gate[gate].tenure;
	return e;
}

static bool is_of_now(const struct event *e)
{
	return W.gate[e->gate].mo && e->c == W.gate[e->gate].tenure;
}

static void wake_fn(struct event *e)
{
	W.gate[e->gate].wake = false;
	commands_run(e->gate);
}

static void gate_wakes(unsigned gate)
{
	if (W.gate[gate].wake)
		return;
	W.gate[gate].wake = true;
	event_new(gate, wake_fn, 0);
}

/* The end of a loop's iteration. */
static void push_fn(struct event *e)
{
	if (W.gate[e->gate].mo)
		for (unsigned c = 0; c < CHANS; c++)
			mirror_owner_push(W.gate[e->gate].mo, c, W.now);
}

static void page_forget(struct page *p)
{
	p->valid = p->dirty = 0;
	p->changes++;
}

/* ---- frames ---------------------------------------------------------------------------------- */
static void frame_comes(struct event *e)
{
	struct link *l = &W.link[MIN(e->a, e->gate)][MAX(e->a, e->gate)];
	struct mirror_frame f;
	struct gate *g = &W.gate[e->gate];
	const char *why;

	/* Of a connection that is no more, what had come before its end may still be looked at. */
	if ((uint32_t)e->b != l->conn && W.now >= l->old_until)
		return;
	why = mirror_decode(&f, e->data, e->len);
	if (why) {
		world_fails("a frame is refused: %s", why);
		return;
	}
	if (f.kind == MIRROR_OPEN || f.kind == MIRROR_BATCHED) {
		g->conn[e->a] = (uint32_t)e->b; /* the answer goes where it came from */
		mirror_peer_frame(g->mp, (unsigned)e->a, (unsigned)e->d, &f, W.now);
	} else if (g->mo) {
		mirror_owner_frame(g->mo, (unsigned)e->a, &f, W.now);
	}
}

static void frame_goes(unsigned from, unsigned to, unsigned channel, const uint8_t *bytes,
		       size_t len)
{
	struct link *l = &W.link[MIN(from, to)][MAX(from, to)];
	const uint32_t conn = W.gate[from].conn[to];
	const unsigned dice = (unsigned)world_random(100);
	uint64_t at = W.now + 50000 +
		      world_random(dice < 2 && !W.healing ? 80 * MS :
				   dice < 12		  ? 8 * MS :
							    MS);
	uint64_t *last = &l->last[channel % CHANS];
	struct event *e;

	if (W.gate[from].mute[to] || !W.gate[to].gw) {
		if (conn == l->conn) { /* nothing comes after what is lost */
			l->conn++;
			l->old_until = 0;
		}
		return;
	}
	if (conn == l->conn) /* in the order of its channel, each way */
		*last = at = MAX(at, *last + 1);
	e = event_new(to, frame_comes, at - W.now);
	e->a = from;
	e->b = conn;
	e->d = channel;
	event_data(e, bytes, len);
}

static void link_fails(struct event *e)
{
	struct gate *g = &W.gate[e->gate];

	g->conn[e->a] = W.link[MIN(e->a, e->gate)][MAX(e->a, e->gate)].conn;
	if (g->mo)
		mirror_owner_down(g->mo, (unsigned)e->a, W.now);
}

/* All channels between two gateways end; each hears of it when it does. */
static void link_breaks(unsigned a, unsigned b)
{
	struct link *l = &W.link[MIN(a, b)][MAX(a, b)];

	l->conn++;
	l->old_until = W.now + world_random(100 * MS);
	memset(l->last, 0, sizeof(l->last));
	event_new(a, link_fails, world_random(30 * MS))->a = b;
	event_new(b, link_fails, world_random(30 * MS))->a = a;
}

/* The data of a record: those of the page, or of the command that changes it when it is held. */
static void record_data(struct gate *g, const struct mirror_record *r, uint8_t *to)
{
	const struct command *c = r->cookie ? command_by(gate_of(g), r->cookie) : NULL;

	for (unsigned s = 0; s < SECTORS; s++) {
		const struct page *p = &g->page[r->block];

		if (!(r->map >> s & 1))
			continue;
		if (!c && !(p->valid >> s & 1))
			world_fails("gate %u sends what it has not, of block %u", gate_of(g),
				    (unsigned)r->block);
		memset(to, 0, 1u << SHIFT);
		memcpy(to, c ? &c->order : &p->v[s], 8);
		to += 1u << SHIFT;
	}
}

static void owner_sends(void *arg, unsigned peer, unsigned channel, struct mirror_frame *f)
{
	static uint8_t bytes[MIRROR_HEAD_MAX + MIRROR_BATCH * (SECTORS << SHIFT)];
	static uint8_t data[MIRROR_BATCH * (SECTORS << SHIFT)];
	struct gate *g = arg;
	struct link *l = &W.link[MIN(gate_of(g), peer)][MAX(gate_of(g), peer)];
	size_t head;

	if (f->kind == MIRROR_OPEN) { /* new connections */
		l->conn++;
		l->old_until = W.now + world_random(60 * MS);
		memset(l->last, 0, sizeof(l->last));
		g->conn[peer] = l->conn;
	}
	f->data_len = 0;
	for (unsigned i = 0; i < f->n; i++) {
		struct mirror_record *r = &f->record[i];
		const size_t n = mirror_data_len(r, SHIFT);

		if (r->op == MIRROR_WRITE)
			record_data(g, r, data + f->data_len);
		r->ref = MIRROR_INLINE;
		r->crc = r->op == MIRROR_WRITE ? mirror_sum(data + f->data_len, n) : 0;
		f->data_len += n;
		world_says("gate %u to %u, %u: op %u block %u gen %llu map %llx", gate_of(g), peer,
			   channel, r->op, (unsigned)r->block, (unsigned long long)r->gen,
			   (unsigned long long)r->map);
	}
	if (f->kind == MIRROR_OPEN)
		world_says("gate %u opens mirror %llu at %u%s", gate_of(g),
			   (unsigned long long)f->mirror, peer, f->result ? ", fresh" : "");
	tombs_note(gate_of(g));
	crash_point(gate_of(g), f->kind == MIRROR_OPEN ? 40 : 2);
	head = mirror_encode(f, bytes);
	memcpy(bytes + head, data, f->data_len);
	frame_goes(gate_of(g), peer, channel, bytes, head + f->data_len);
}

/* ---- struct mirror_owner_ops ----------------------------------------------------------------- */
static void set_fn(struct event *e)
{
	struct gw_mirror m;

	memcpy(&m, e->data, sizeof(m));
	if (is_of_now(e))
		gw_mirror_set(W.gate[e->gate].gw, 0, &m, W.now);
}

static void owner_sets(void *arg, const struct gw_mirror *m)
{
	world_says("gate %u sets mirror %llu: state %u, peer %u", gate_of(arg),
		   (unsigned long long)m->epoch, m->state, m->peer);
	crash_point(gate_of(arg), 80);
	event_data(soon(gate_of(arg), set_fn), m, sizeof(*m));
}

static void write_all_fn(struct event *e)
{
	if (is_of_now(e))
		for (unsigned b = 0; b < BLOCKS; b++)
			store_write(e->gate, b);
}

static void owner_writes_all(void *arg)
{
	crash_point(gate_of(arg), 40);
	soon(gate_of(arg), write_all_fn);
}

static void owner_advanced(void *arg, uint64_t block, uint64_t gen)
{
	gate_wakes(gate_of(arg));
}

static void owner_room(void *arg)
{
	gate_wakes(gate_of(arg));
}

static void zero_fn(struct event *e)
{
	struct gate *g = &W.gate[e->gate];
	struct command *c;

	if (!is_of_now(e))
		return;
	c = command_by(e->gate, e->id);
	if ((int64_t)e->d)
		c->failed = true;
	for (unsigned b = c->block; b < c->block + c->count && !c->failed; b++)
		page_forget(&g->page[b]);
	/* It has failed: all is as before. A lost mirror is over when what is dirty here, too, is
	 * written out, and the order waits for that. */
	c->held = false;
	mirror_owner_zeroed(g->mo, c->serial, c->failed ? -EIO : 0, W.now);
}

static void zero_stored(struct event *e)
{
	struct io io;

	memcpy(&io, e->data, sizeof(io));
	io_was_refused(e);
	e->c = io.tenure;
	if ((int64_t)e->d != -ESHUTDOWN)
		zero_fn(e);
}

/* From here on nothing of the range is written back; what is under way ends first. */
static void held_fn(struct event *e)
{
	struct command *c = is_of_now(e) ? command_by(e->gate, e->id) : NULL;
	struct event *again;

	if (!c)
		return;
	c->held = true;
	for (unsigned b = c->block; b < c->block + c->count; b++)
		if (W.gate[e->gate].page[b].writing) {
			again = event_new(e->gate, held_fn, 100000);
			again->id = e->id;
			again->c = e->c;
			return;
		}
	store_zero(e->gate, c->block, c->count, c->order, 0, zero_stored, c->serial);
}

static void owner_zero_held(void *arg, uint64_t cookie)
{
	soon(gate_of(arg), held_fn)->id = cookie;
}

static void owner_group_held(void *arg, uint64_t cookie, uint64_t gen)
{
	struct gate *g = arg;
	struct command *c = command_by(gate_of(arg), cookie);
	const unsigned blocks[2] = { c->block, c->other };

	c->gen = gen;
	for (unsigned i = 0; i < 2; i++) {
		struct page *p = &g->page[blocks[i]];

		for (unsigned s = 0; s < SECTORS; s++)
			p->v[s] = c->order;
		p->valid = p->dirty = (1u << SECTORS) - 1;
		p->changes++;
		g->busy[blocks[i]] = 0;
	}
	gate_wakes(gate_of(arg));
}

static void owner_zero_done(void *arg, uint64_t cookie)
{
	struct command *c = command_by(gate_of(arg), cookie);

	for (unsigned b = c->block; b < c->block + c->count && b < BLOCKS; b++)
		((struct gate *)arg)->busy[b] = 0;
	c->waits = false;
	gate_wakes(gate_of(arg));
}

static void owner_says(void *arg, int level, const char *text)
{
	world_says("gate %u: %s", gate_of(arg), text);
}

static const struct mirror_owner_ops owner_ops = {
	.send = owner_sends,
	.set = owner_sets,
	.write_all = owner_writes_all,
	.advanced = owner_advanced,
	.room = owner_room,
	.zero_held = owner_zero_held,
	.group_held = owner_group_held,
	.zero_done = owner_zero_done,
	.say = owner_says,
};

/* ---- struct mirror_peer_ops ------------------------------------------------------------------ */
static void peer_sends(void *arg, unsigned to, unsigned channel, const struct mirror_frame *f)
{
	uint8_t bytes[MIRROR_HEAD_MAX];

	if (f->result)
		world_says("gate %u refuses gate %u: %u", gate_of(arg), to, f->result);
	crash_point(gate_of(arg), f->kind == MIRROR_WELCOME ? 40 : 2);
	frame_goes(gate_of(arg), to, channel, bytes, mirror_encode(f, bytes));
}

static void peer_writes(void *arg, uint32_t page, const struct mirror_frame *f, unsigned i)
{
	struct gate *g = arg;
	struct mpage *m = &g->mpage[page];
	const struct mirror_page *is = &g->mp->page[page];
	const uint8_t *data = mirrorpeer_data(f, i, f->data);

	m->used = true;
	m->slot = is->slot;
	m->block = is->block;
	m->gen = is->gen;
	m->map = is->map;
	for (unsigned s = 0; s < SECTORS; s++)
		if (f->record[i].map >> s & 1) {
			memcpy(&m->v[s], data, 8);
			data += 1u << SHIFT;
		}
}

static void peer_drops(void *arg, uint32_t page)
{
	((struct gate *)arg)->mpage[page].used = false;
}

static bool peer_adopts(void *arg, uint32_t page, uint64_t lu, uint64_t block, uint64_t gen,
			uint64_t map)
{
	struct gate *g = arg;
	struct mpage *m = &g->mpage[page];
	struct page *p = &g->page[block];

	for (unsigned s = 0; s < SECTORS; s++)
		if (map >> s & 1)
			p->v[s] = m->v[s];
	p->valid |= map;
	p->dirty |= map;
	p->changes++;
	m->used = false;
	world_says("gate %u takes block %u, generation %llu", gate_of(arg), (unsigned)block,
		   (unsigned long long)gen);
	return true;
}

static void peer_stamps(void *arg, uint32_t slot, const struct mirror_stamp *s)
{
	struct gate *g = arg;

	if (s)
		g->mstamp[slot] = *s;
	else
		memset(&g->mstamp[slot], 0, sizeof(g->mstamp[slot]));
}

static void peer_tombs(void *arg, uint32_t slot, unsigned tomb, uint64_t first, uint64_t count,
		       uint64_t gen)
{
	((struct gate *)arg)->mtomb[slot][tomb] = (struct peer_tomb){ first, count, gen };
}

static const struct mirror_peer_ops peer_ops = {
	.send = peer_sends,
	.write = peer_writes,
	.drop = peer_drops,
	.adopt = peer_adopts,
	.stamp = peer_stamps,
	.tomb = peer_tombs,
	.say = owner_says,
};

/* ---- struct gw_ops: a LU --------------------------------------------------------------------- */
static void owner_ends(struct gate *g)
{
	mirror_owner_free(g->mo);
	g->mo = NULL;
	g->tenure = ++W.nonce;
	memset(g->busy, 0, sizeof(g->busy));
	for (unsigned b = 0; b < BLOCKS; b++)
		g->page[b].writing = g->page[b].loading = false;
}

static void owner_begins(unsigned gate)
{
	struct gate *g = &W.gate[gate];
	const struct mirror_owner_config config = { .self = gate,
						    .gateways = GATES,
						    .lu = gw_lu_hash("unit"),
						    .shift = SHIFT,
						    .blocks = W.may.small ? 3 : BLOCKS,
						    .mirrored = true,
						    .dismiss_ns = 200 * MS,
						    .retry_ns = 100 * MS,
						    .ping_ns = 50 * MS };
	struct mirror_owner_config big = config;
	const struct gw_lu *lu = &g->gw->lu[0];

	big.blocks = BLOCKS; /* what is found must fit */
	for (unsigned b = W.size; b < BLOCKS; b++)
		page_forget(&g->page[b]);
	g->mo = mirror_owner_new(g->resumed || lu->obj.mirror.state == GW_MIRROR_VALID ? &big :
											 &config,
				 &owner_ops, g);
	for (unsigned b = 0; b < BLOCKS; b++)
		if (g->page[b].dirty && mirror_owner_found(g->mo, b, g->page[b].dirty))
			world_fails("there is no room for what is dirty");
	if (lu->obj.mirror.state == GW_MIRROR_VALID)
		counter_add(g->resumed ? &W.resumed : &W.takeovers, 1);
	crash_point(gate, 150);
	mirror_owner_start(g->mo, lu->obj.epoch, g->gw->incarnation, &lu->obj.mirror, g->resumed,
			   W.now);
}

static void ops_state(void *arg, unsigned lu, enum gw_state state)
{
	static const char *const names[] = { "standby", "transitioning", "active", "unavailable" };
	struct gate *g = arg;

	world_says("gate %u: %s", gate_of(arg), names[state]);
	g->state = state;
	if (state != GW_ACTIVE)
		return;
	if (g->gw->lu[0].obj.mirror.state == GW_MIRROR_DOUBT && W.doubt % 2) {
		W.doubt++; /* what was lost is known to be: from here on nothing may get lost */
		memcpy(W.floor, W.store, sizeof(W.floor));
		memset(W.group, 0, sizeof(W.group));
	}
	if (!g->mo)
		owner_begins(gate_of(arg));
}

static void open_goes_on(struct event *e);

static void open_zeroed(struct event *e)
{
	struct gate *g = &W.gate[e->gate];

	io_was_refused(e);
	if (e->id != g->opens)
		return;
	if (!(int64_t)e->d) {
		struct io io;

		memcpy(&io, e->data, sizeof(io));
		mirror_peer_zeroed(g->mp, gw_lu_hash("unit"), io.changes[0]);
	}
	event_new(e->gate, open_goes_on, world_random(MS))->id = e->id;
}

static uint64_t tomb_order(uint64_t epoch, uint64_t gen)
{
	const uint64_t key = epoch << 32 | gen;

	for (unsigned i = 0; i < ARRAY_SIZE(W.tomb_key); i++)
		if (W.tomb_key[i] == key)
			return W.tomb_order[i];
	world_fails("a tombstone is nobody's");
	return 0;
}

/* Tombstones one by one, then pages, some at a time. @e->id: of this opening. */
static void open_goes_on(struct event *e)
{
	struct gate *g = &W.gate[e->gate];
	const uint64_t lu = gw_lu_hash("unit");
	uint64_t first, count, gen;

	if (e->id != g->opens)
		return;
	if (mirror_peer_has(g->mp, lu, &g->mirror)) {
		if (mirror_broken != BREAK_UNSEALED && !mirror_peer_seal(g->mp, lu, &g->mirror))
			world_fails("a mirror cannot be sealed");
		if (mirror_peer_zero(g->mp, lu, &first, &count, &gen)) {
			W.tombs_taken++;
			world_says("gate %u takes tombstone %u + %u, generation %llu", e->gate,
				   (unsigned)first, (unsigned)count, (unsigned long long)gen);
			store_zero(
				e->gate, first, MIN(count, W.size > first ? W.size - first : 0),
				tomb_order(g->mp->slot[mirror_slot_of(g->mp, lu)].stamp.epoch, gen),
				gen, open_zeroed, e->id);
			return;
		}
		if (!mirror_peer_take(g->mp, lu, W.size, 3)) {
			event_new(e->gate, open_goes_on, world_random(MS))->id = e->id;
			return;
		}
	}
	reply(e->gate, e->id, 0, 100000);
}

static void ops_open(void *arg, uint64_t id, unsigned lu, uint64_t epoch, uint64_t keep)
{
	struct gate *g = arg;
	struct event *e;

	owner_ends(g);
	g->resumed = keep && keep == g->stamp;
	for (unsigned b = 0; b < BLOCKS && !g->resumed; b++)
		page_forget(&g->page[b]);
	g->stamp = epoch;
	g->opens = id;
	e = event_new(gate_of(arg), open_goes_on, rados_latency());
	e->id = id;
}

static void ops_close(void *arg, uint64_t id, unsigned lu, bool lost)
{
	struct gate *g = arg;

	for (unsigned i = 0; i < COMMANDS; i++)
		if (W.command[i].op != OP_NONE && W.command[i].gate == gate_of(arg))
			command_ends(&W.command[i], -ESHUTDOWN);
	for (unsigned b = 0; b < BLOCKS; b++) {
		if (!lost && g->page[b].dirty)
			world_fails("gate %u gives away what is dirty", gate_of(arg));
		page_forget(&g->page[b]);
	}
	owner_ends(g);
	g->stamp = g->opens = g->drain = g->flush = 0;
	reply(gate_of(arg), id, 0, 100000);
}

static void ops_shared(void *arg, uint64_t id, unsigned lu, const struct gw_shared *s)
{
	reply(gate_of(arg), id, 0, 100000);
}

static void ops_drain(void *arg, uint64_t id, unsigned lu)
{
	((struct gate *)arg)->drain = id;
	gate_wakes(gate_of(arg));
}

static void ops_flush(void *arg, uint64_t id, unsigned lu)
{
	((struct gate *)arg)->flush = id;
	gate_wakes(gate_of(arg));
}

static void ops_drop(void *arg, uint64_t id, unsigned lu)
{
	reply(gate_of(arg), id, 0, 100000);
}

static bool ops_arena_has(void *arg, unsigned lu, uint64_t epoch)
{
	return ((struct gate *)arg)->stamp == epoch;
}

static bool ops_mirror_has(void *arg, unsigned lu, const struct gw_mirror *m)
{
	return mirror_peer_has(((struct gate *)arg)->mp, gw_lu_hash("unit"), m);
}

static void ops_seal(void *arg, uint64_t id, unsigned lu, const struct gw_mirror *m)
{
	const bool is = mirror_peer_seal(((struct gate *)arg)->mp, gw_lu_hash("unit"), m);

	world_says("gate %u seals mirror %llu", gate_of(arg), (unsigned long long)m->epoch);
	crash_point(gate_of(arg), 40);
	reply(gate_of(arg), id, is ? 0 : -ENOENT, world_random(MS));
}

static void ops_mirror(void *arg, unsigned lu, const struct gw_mirror *m)
{
	struct gate *g = arg;

	g->mirror = *m;
	mirror_peer_object(g->mp, gw_lu_hash("unit"), m);
}

static void set_done_fn(struct event *e)
{
	if (is_of_now(e))
		mirror_owner_set_done(W.gate[e->gate].mo, W.now);
}

static void ops_mirror_set(void *arg, unsigned lu)
{
	soon(gate_of(arg), set_done_fn);
}

static void message_comes(struct event *e)
{
	gw_message(W.gate[e->gate].gw, (unsigned)e->a, e->data, e->len, W.now);
}

static void ops_send(void *arg, unsigned to, const void *bytes, size_t len)
{
	const unsigned from = gate_of(arg);
	struct event *e;

	if (W.gate[from].mute[to] || !W.gate[to].gw || (!W.healing && world_chance(5)))
		return;
	e = event_new(to, message_comes, 50000 + world_random(MS));
	e->a = from;
	event_data(e, bytes, len);
}

static void timer_fires(struct event *e)
{
	if (e->id == W.gate[e->gate].timer)
		gw_tick(W.gate[e->gate].gw, W.now);
}

static void ops_timer(void *arg, uint64_t at)
{
	struct event *e = event_new(gate_of(arg), timer_fires, at > W.now ? at - W.now : 1);

	e->id = ++((struct gate *)arg)->timer;
}

static void ops_say(void *arg, int level, int lu, const char *text)
{
	world_says("gate %u%s: %s", gate_of(arg), lu < 0 ? "" : ", unit", text);
}

static const struct gw_ops world_ops = {
	.read = ops_read,
	.write = ops_write,
	.fence = ops_fence,
	.gone = ops_gone,
	.wait_map = ops_later,
	.client_new = ops_client_new,
	.client_end = ops_client_end,
	.lu_state = ops_state,
	.lu_open = ops_open,
	.lu_lock = ops_lock,
	.lu_break = ops_break,
	.lu_unlock = ops_unlock,
	.lu_drain = ops_drain,
	.lu_flush = ops_flush,
	.lu_drop = ops_drop,
	.lu_close = ops_close,
	.lu_shared = ops_shared,
	.send = ops_send,
	.timer = ops_timer,
	.say = ops_say,
	.arena_has = ops_arena_has,
	.mirror_has = ops_mirror_has,
	.mirror_seal = ops_seal,
	.lu_mirror = ops_mirror,
	.mirror_set = ops_mirror_set,
};
