/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Commands at a gateway, initiators, and what they must see. Included by test_mirror.c.
 */
#include "tests/sim/mirror_world.h"

#define PATIENCE (700 * MS)

static struct command *command_by(unsigned gate, uint64_t serial)
{
	for (unsigned i = 0; i < COMMANDS; i++)
		if (W.command[i].op != OP_NONE && W.command[i].gate == gate &&
		    W.command[i].serial == serial)
			return &W.command[i];
	return NULL;
}

static void response_comes(struct event *e);

static void command_ends(struct command *c, int result)
{
	struct event *e = event_new(GATES, response_comes, 50000 + world_random(MS));

	e->d = (uint64_t)(int64_t)result;
	event_data(e, c, sizeof(*c));
	c->op = OP_NONE;
	gate_wakes(c->gate);
}

/* ---- at the gateway -------------------------------------------------------------------------- */
static bool touches(const struct command *c, unsigned block)
{
	if (c->op == OP_READ || c->op == OP_CUT || c->op == OP_GROW)
		return true;
	return block - c->block < c->count || (c->op == OP_GROUP && block == c->other);
}

/* Is another command at work on any of its blocks? */
static bool is_alone(const struct command *c, bool writing)
{
	const struct gate *g = &W.gate[c->gate];

	for (unsigned b = 0; b < BLOCKS; b++) {
		if (!touches(c, b))
			continue;
		if (g->busy[b] || (writing && g->page[b].writing))
			return false;
		for (unsigned i = 0; i < COMMANDS; i++) {
			const struct command *k = &W.command[i];

			if (k != c && k->op != OP_NONE && k->gate == c->gate && touches(k, b))
				return false;
		}
	}
	return true;
}

static void command_busies(const struct command *c)
{
	for (unsigned b = 0; b < BLOCKS; b++)
		if (touches(c, b))
			W.gate[c->gate].busy[b] = c->serial;
}

static void read_goes(struct command *c)
{
	struct gate *g = &W.gate[c->gate];
	bool waits = false;

	for (unsigned b = 0; b < W.size; b++) {
		struct page *p = &g->page[b];

		if (g->busy[b]) {
			command_ends(c, BUSY);
			return;
		}
		if (p->valid != (1u << SECTORS) - 1 && !p->loading)
			store_load(c->gate, b);
		waits |= p->valid != (1u << SECTORS) - 1 || !mirror_owner_shown(g->mo, b);
	}
	if (waits)
		return;
	if (!lease_holds(c->gate)) {
		command_ends(c, REFUSED);
		return;
	}
	c->waits = false;
	for (unsigned b = 0; b < W.size; b++)
		memcpy(c->v[b], g->page[b].v, sizeof(c->v[b]));
	c->count = (uint8_t)W.size;
	command_ends(c, 0);
}

static void write_begins(struct command *c)
{
	struct gate *g = &W.gate[c->gate];
	struct page *p = &g->page[c->block];
	const unsigned channel = (unsigned)world_random(CHANS);

	if (g->busy[c->block] || c->block >= W.size ||
	    mirror_owner_write(g->mo, channel, c->block, c->map, &c->gen, W.now)) {
		command_ends(c, BUSY);
		return;
	}
	c->order = ++W.orders;
	for (unsigned s = 0; s < SECTORS; s++)
		if (c->map >> s & 1)
			p->v[s] = c->order;
	p->valid |= c->map;
	p->dirty |= c->map;
	p->changes++;
	world_says("gate %u writes block %u, map %llx, generation %llu: %llu", c->gate, c->block,
		   (unsigned long long)c->map, (unsigned long long)c->gen,
		   (unsigned long long)c->order);
}

static void group_begins(struct command *c)
{
	const uint64_t block[2] = { c->block, c->other }, map[2] = { 3, 3 };

	if (c->block >= W.size || c->other >= W.size || !is_alone(c, false)) {
		command_ends(c, BUSY);
		return;
	}
	c->order = ++W.orders;
	W.group[c->order % ORDERS][0] = (uint8_t)(c->block + 1);
	W.group[c->order % ORDERS][1] = (uint8_t)(c->other + 1);
	command_busies(c);
	world_says("gate %u: group of %u and %u: %llu", c->gate, c->block, c->other,
		   (unsigned long long)c->order);
	if (mirror_owner_group(W.gate[c->gate].mo, (unsigned)world_random(CHANS), 2, block, map,
			       c->serial, W.now)) {
		W.gate[c->gate].busy[c->block] = W.gate[c->gate].busy[c->other] = 0;
		command_ends(c, BUSY);
	}
}

/* The generation that a tombstone has got is looked up when it is taken over. */
static void tombs_note(unsigned gate)
{
	const struct mirror_owner *o = W.gate[gate].mo;

	for (unsigned i = 0; o && i < MIRROR_ORDERS; i++) {
		const struct mirror_order *r = &o->order[i];
		const struct command *c;
		unsigned k = (unsigned)(r->gen % ARRAY_SIZE(W.tomb_key));

		if (r->step == ORDER_FREE || r->op != MIRROR_ZERO || !r->gen)
			continue;
		c = command_by(gate, r->cookie);
		if (!c)
			continue;
		W.tomb_key[k] = o->epoch << 32 | r->gen;
		W.tomb_order[k] = c->order;
	}
}

static void zero_begins(struct command *c)
{
	struct gate *g = &W.gate[c->gate];

	if (c->block + c->count > W.size || !is_alone(c, true)) {
		command_ends(c, BUSY);
		return;
	}
	c->order = ++W.orders;
	c->waits = true;
	command_busies(c);
	world_says("gate %u: unmap %u + %u: %llu", c->gate, c->block, c->count,
		   (unsigned long long)c->order);
	if (mirror_owner_zero(g->mo, c->block, c->count, c->serial, W.now)) {
		memset(g->busy, 0, sizeof(g->busy));
		command_ends(c, BUSY);
	}
	tombs_note(c->gate);
}

/* The store is smaller before the cut begins (README.md of tgtd/cluster, invariant 7). Nothing more
 * is asked of it: an owner that is fenced amid a cut has no way to touch it again. */
static void cut_begins(struct command *c)
{
	struct gate *g = &W.gate[c->gate];

	c->block = BLOCKS - 2;
	c->count = 2;
	if (W.size != BLOCKS || !is_alone(c, true)) {
		command_ends(c, BUSY);
		return;
	}
	W.size = BLOCKS - 2;
	c->order = ++W.orders;
	c->waits = true;
	for (unsigned b = (unsigned)W.size; b < BLOCKS; b++) {
		g->busy[b] = c->serial;
		page_forget(&g->page[b]);
		for (unsigned s = 0; s < SECTORS; s++)
			W.store[b][s] = c->order;
	}
	world_says("gate %u: cut: %llu", c->gate, (unsigned long long)c->order);
	if (mirror_owner_cut(g->mo, W.size, c->serial, W.now))
		world_fails("a cut is refused");
}

static void grow(struct command *c)
{
	struct gate *g = &W.gate[c->gate];
	bool busy = false;

	for (unsigned b = 0; b < BLOCKS; b++)
		busy |= g->busy[b] != 0;
	if (busy || W.size == BLOCKS) {
		command_ends(c, BUSY);
		return;
	}
	for (unsigned b = (unsigned)W.size; b < BLOCKS; b++)
		page_forget(&g->page[b]);
	W.size = BLOCKS;
	command_ends(c, 0);
}

static void command_begins(struct event *e)
{
	struct command *c = command_by(e->gate, e->id);

	if (!c)
		return;
	if (!W.gate[e->gate].mo || W.gate[e->gate].state != GW_ACTIVE) {
		command_ends(c, REFUSED);
	} else if (c->op == OP_READ) {
		c->waits = true;
		read_goes(c);
	} else if (c->op == OP_WRITE) {
		write_begins(c);
	} else if (c->op == OP_GROUP) {
		group_begins(c);
	} else if (c->op == OP_ZERO) {
		zero_begins(c);
	} else if (c->op == OP_CUT) {
		cut_begins(c);
	} else {
		grow(c);
	}
	e = event_new(e->gate, push_fn, world_random(world_chance(20) ? 3 * MS : 200000));
}

/* One that waits looks again. */
static void command_goes(struct command *c)
{
	const struct mirror_owner *o = W.gate[c->gate].mo;

	if (!o)
		return;
	if (c->op == OP_READ && c->waits)
		read_goes(c);
	else if ((c->op == OP_WRITE || c->op == OP_GROUP) && c->gen &&
		 mirror_owner_safe(o, c->block) >= c->gen &&
		 (c->op == OP_WRITE || mirror_owner_safe(o, c->other) >= c->gen))
		command_ends(c, 0);
	else if (c->op == OP_ZERO && c->order && !c->waits)
		command_ends(c, c->failed ? -EIO : 0);
	else if (c->op == OP_CUT && c->order && !c->waits)
		command_ends(c, 0);
}

static void commands_run(unsigned gate)
{
	struct gate *g = &W.gate[gate];
	bool busy = false, dirty = false;

	tombs_note(gate);
	for (unsigned i = 0; i < COMMANDS; i++)
		if (W.command[i].op != OP_NONE && W.command[i].gate == gate)
			command_goes(&W.command[i]);
	for (unsigned i = 0; i < COMMANDS; i++)
		busy |= W.command[i].op != OP_NONE && W.command[i].gate == gate;
	for (unsigned b = 0; b < BLOCKS; b++) {
		dirty |= g->page[b].dirty != 0;
		if (g->flush && g->mo)
			store_write(gate, b);
	}
	if (g->drain && !busy) {
		reply(gate, g->drain, 0, 100000);
		g->drain = 0;
	}
	if (g->flush && !dirty) {
		reply(gate, g->flush, 0, 100000);
		g->flush = 0;
	}
}

static void command_comes(struct event *e)
{
	struct command *c = NULL;

	for (unsigned i = 0; i < COMMANDS && !c; i++)
		if (W.command[i].op == OP_NONE)
			c = &W.command[i];
	if (!c) {
		world_fails("too many commands");
		return;
	}
	memcpy(c, e->data, sizeof(*c));
	c->life = W.gate[e->gate].life;
	if (!lease_holds(e->gate) || W.gate[e->gate].state != GW_ACTIVE)
		command_ends(c, REFUSED);
	else
		event_new(e->gate, command_begins,
			  world_random(c->op != OP_READ && !W.healing && world_chance(2) ?
					       700 * MS :
					       100000))
			->id = c->serial;
}

/* ---- initiators ------------------------------------------------------------------------------ */
static void initiator_next(struct event *e);

static void know(unsigned block, uint64_t map, uint64_t order)
{
	for (unsigned s = 0; s < SECTORS; s++)
		if (map >> s & 1)
			W.floor[block][s] = MAX(W.floor[block][s], order);
}

/* What is read must be no older than what was known, and groups whole. */
static void read_judged(const struct command *c, const struct command *asked)
{
	for (unsigned b = 0; b < c->count; b++)
		for (unsigned s = 0; s < SECTORS; s++) {
			const uint64_t v = c->v[b][s];
			const uint8_t *group = W.group[v % ORDERS];

			if (v < asked->v[b][s])
				world_fails("block %u, sector %u: gate %u shows %llu, %llu was "
					    "known before",
					    b, s, c->gate, (unsigned long long)v,
					    (unsigned long long)asked->v[b][s]);
			for (unsigned i = 0; i < 2 && v && group[0]; i++)
				for (unsigned k = 0; k < SECTORS && group[i] <= c->count; k++)
					if (c->v[group[i] - 1][k] < v)
						world_fails(
							"gate %u shows a part of the group %llu",
							c->gate, (unsigned long long)v);
			know(b, 1u << s, v);
		}
	W.reads++;
}

static void response_judged(const struct command *c, const struct command *asked)
{
	world_says("initiator %u: op %u of block %u at gate %u is GOOD: %llu", c->initiator, c->op,
		   c->block, c->gate, (unsigned long long)c->order);
	if (c->op == OP_READ) {
		read_judged(c, asked);
		return;
	}
	if (c->op == OP_GROW)
		return;
	counter_add(c->op == OP_WRITE ? &W.writes :
		    c->op == OP_GROUP ? &W.groups :
		    c->op == OP_ZERO  ? &W.zeros :
					&W.cuts,
		    1);
	W.acked_at = W.now;
	for (unsigned b = c->block; b < c->block + c->count; b++)
		know(b, c->op == OP_WRITE ? c->map : 3, c->order);
	if (c->op == OP_GROUP)
		know(c->other, 3, c->order);
}

static void initiator_later(unsigned i, uint64_t delay)
{
	event_new(GATES, initiator_next, delay)->b = i;
}

static void response_comes(struct event *e)
{
	struct command c;
	struct initiator *i;
	const int result = (int)(int64_t)e->d;

	memcpy(&c, e->data, sizeof(c));
	i = &W.initiator[c.initiator];
	if (i->cmd.op == OP_NONE || i->cmd.serial != c.serial)
		return;
	if (!result && c.doubt == W.doubt)
		response_judged(&c, &i->cmd);
	if (result && result != BUSY)
		i->path = (uint8_t)((c.gate + 1) % GATES);
	i->cmd.op = OP_NONE;
	initiator_later(c.initiator, MS + world_random(W.healing ? 150 * MS : 25 * MS));
}

static void initiator_gives_up(struct event *e)
{
	struct initiator *i = &W.initiator[e->b];

	if (i->cmd.op == OP_NONE || i->cmd.serial != e->a)
		return;
	i->path = (uint8_t)((i->cmd.gate + 1) % GATES);
	i->cmd.op = OP_NONE;
	initiator_later((unsigned)e->b, MS);
}

static void initiator_next(struct event *e)
{
	const unsigned who = (unsigned)e->b, dice = (unsigned)world_random(100);
	struct initiator *i = &W.initiator[who];
	struct command *c = &i->cmd;
	struct event *sent;

	memset(c, 0, sizeof(*c));
	c->op = dice < 30 ? OP_READ : dice < 78 ? OP_WRITE : dice < 88 ? OP_GROUP : OP_ZERO;
	if (dice >= 95 && W.may.resizes)
		c->op = W.size == BLOCKS ? OP_CUT : OP_GROW;
	c->initiator = (uint8_t)who;
	c->block = (uint8_t)world_random(world_chance(40) ? 2 : BLOCKS);
	c->other = (uint8_t)((c->block + 1 + world_random(BLOCKS - 1)) % BLOCKS);
	c->count = c->op == OP_ZERO ? (uint8_t)(1 + world_random(3)) : 1;
	c->map = 1 + world_random(3);
	c->serial = ++W.serials;
	c->doubt = W.doubt;
	/* The last one stays with a gateway, whoever owns the unit. */
	c->gate = who == INITIATORS - 1 && !W.healing ? (uint8_t)(W.seed % GATES) : i->path;
	memcpy(c->v, W.floor, sizeof(c->v));
	sent = event_new(GATES, initiator_gives_up, PATIENCE);
	sent->a = c->serial;
	sent->b = who;
	if (!W.gate[c->gate].gw)
		return;
	sent = event_new(c->gate, command_comes, 50000 + world_random(MS / 2));
	event_data(sent, c, sizeof(*c));
}
