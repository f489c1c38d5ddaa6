/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The SCSI side of a gateway and the initiators, with what they must see: no read older than what
 * anybody was told before it began, no write by whom a reservation keeps out, shared state no older
 * than the last GOOD. Included by test_gateway.c.
 */
#include "tests/sim/gateway_world.h"

#define PATIENCE (2500 * MS) /* of an initiator */
#define AS_IT_IS (1ull << 63)  /* with a generation: nothing was to be changed */

/* Initiators that may not write by @gate, a bit each. */
static uint8_t shared_denies(const struct gw_shared *s, unsigned gate)
{
	struct pr_shared pr;
	uint8_t denied = 0;
	char name[8];

	if (!s->len)
		return 0;
	if (pr_decode(&pr, s->blob + 8, s->len - 8)) {
		world_fails("reservations cannot be read back");
		return 0;
	}
	for (unsigned i = 0; i < INITIATORS; i++) {
		snprintf(name, sizeof(name), "i%u", i);
		if (pr_denied(&pr.pr, pr_find(&pr.pr, name, (uint16_t)(gate + 1))) &
		    GATE_DENY_WRITE)
			denied |= (uint8_t)(1u << i);
	}
	pr_fini(&pr.pr);
	return denied;
}

static struct lun *lun_of(const struct command *c)
{
	return &W.gate[c->gate].lun[c->unit];
}

static bool lease_holds(unsigned gate)
{
	return local_time(gate) < *gw_served_until(W.gate[gate].gw);
}

/* One owner at a time may answer, and it has the lock. A process that is stopped may, when it goes
 * on. One whose lease is over may not (rule 1), and the next owner breaks its lock. It stays
 * ACTIVE, or even becomes so by a late answer of RADOS, until it hears of that. */
static void owners_check(unsigned unit)
{
	unsigned owners = 0;

	for (unsigned g = 0; g < GATES; g++) {
		if (!W.gate[g].gw || W.gate[g].lun[unit].state != GW_ACTIVE || !lease_holds(g))
			continue;
		owners++;
		if (W.unit[unit].lock != W.gate[g].client)
			world_fails("unit %u is served by gate %u, which has no lock", unit, g);
	}
	if (owners > 1)
		world_fails("unit %u has %u owners", unit, owners);
}

/* After each event of a gateway. */
static void gate_check(unsigned gate)
{
	if (!W.gate[gate].gw)
		return;
	for (unsigned u = 0; u < UNITS; u++)
		if (W.gate[gate].lun[u].state == GW_ACTIVE)
			owners_check(u);
}

/* ---- answers to initiators ------------------------------------------------------------------- */
static void response_comes(struct event *e);

static void command_ends(struct command *c, int result, uint64_t a)
{
	const unsigned gate = c->gate, unit = c->unit;

	if (c->initiator < INITIATORS) {
		struct event *e = event_new(GATES, response_comes, 50000 + world_random(MS));

		e->id = c->serial;
		e->a = a;
		e->b = c->initiator;
		e->d = (uint64_t)(int64_t)result;
	}
	c->op = OP_NONE;
	lun_quiet_check(gate, unit);
}

/* ---- pages ----------------------------------------------------------------------------------- */
static void page_forget(struct page *p)
{
	p->valid = p->dirty = false;
	p->changes++;
}

static struct command *command_new(void)
{
	for (unsigned i = 0; i < COMMANDS; i++)
		if (W.command[i].op == OP_NONE) {
			memset(&W.command[i], 0, sizeof(W.command[i]));
			return &W.command[i];
		}
	world_fails("too many commands");
	return &W.command[0];
}

static void page_write_back(unsigned gate, unsigned unit, unsigned block)
{
	struct lun *l = &W.gate[gate].lun[unit];
	struct command *c;

	if (!l->page[block].dirty || l->page[block].writing)
		return;
	c = command_new();
	*c = (struct command){ .op = OP_WRITE,
			       .gate = (uint8_t)gate,
			       .unit = (uint8_t)unit,
			       .block = (uint8_t)block,
			       .initiator = INITIATORS,
			       .serial = ++W.serials,
			       .tenure = l->tenure };
	l->page[block].writing = true;
	rados_io(c, l->page[block].value);
}

static void io_done(struct command *c, int result, struct value value)
{
	struct page *p = &lun_of(c)->page[c->block];

	c->io = false;
	if (c->op == OP_READ) {
		p->reading--;
		/* What was read before a write, or before the pages were dropped, is not kept. */
		if (!result && p->changes == c->changes && !p->writing) {
			p->value = value;
			p->valid = true;
		}
		command_ends(c, result, value.order);
		return;
	}
	p->writing = false;
	if (c->initiator == INITIATORS) {
		if (!result && p->value.stamp == value.stamp)
			p->dirty = false;
		command_ends(c, result, 0);
		return;
	}
	p->changes++;
	p->valid = !result;
	p->value = value;
	if (!result)
		W.unit[c->unit].acked_at = W.now;
	command_ends(c, result, value.order);
}

/* ---- what gw waits for ----------------------------------------------------------------------- */
static void lun_answer(unsigned gate, uint64_t *id)
{
	reply(gate, *id, 0, 100000);
	*id = 0;
}

static void lun_quiet_check(unsigned gate, unsigned unit)
{
	struct lun *l = &W.gate[gate].lun[unit];
	bool busy = false, writes = false, stranger = false, dirty = false;

	for (unsigned i = 0; i < COMMANDS; i++) {
		const struct command *c = &W.command[i];

		if ((c->op != OP_READ && c->op != OP_WRITE) || c->gate != gate || c->unit != unit ||
		    c->life != W.gate[gate].life || c->initiator == INITIATORS)
			continue;
		busy = true;
		writes |= c->op == OP_WRITE;
		stranger |= c->op == OP_WRITE && (l->denied & 1u << c->initiator);
	}
	for (unsigned b = 0; b < BLOCKS; b++) {
		dirty |= l->page[b].dirty;
		if (l->flush || l->hold)
			page_write_back(gate, unit, b);
	}
	if (l->drain && !busy)
		lun_answer(gate, &l->drain);
	if (l->apply && !stranger)
		lun_answer(gate, &l->apply);
	if (l->flush && !dirty)
		lun_answer(gate, &l->flush);
	if (l->hold && !writes && !dirty)
		lun_answer(gate, &l->hold);
}

/* ---- struct gw_ops: a LU --------------------------------------------------------------------- */
static struct lun *ops_lun(void *arg, unsigned lu)
{
	return &((struct gate *)arg)->lun[lu];
}

static void ops_state(void *arg, unsigned lu, enum gw_state state)
{
	static const char *const names[] = { "standby", "transitioning", "active", "unavailable" };
	struct unit *u = &W.unit[lu];

	ops_lun(arg, lu)->state = state;
	world_says("gate %u, unit %u: %s", gate_of(arg), lu, names[state]);
	if (state == GW_ACTIVE)
		u->served = MAX(u->served, ops_lun(arg, lu)->tenure);
}

static void ops_open(void *arg, uint64_t id, unsigned lu, uint64_t epoch, uint64_t keep)
{
	struct lun *l = ops_lun(arg, lu);

	if (!keep || (keep != l->stamp && keep != UINT64_MAX))
		for (unsigned b = 0; b < BLOCKS; b++)
			page_forget(&l->page[b]);
	else
		W.kept++;
	l->stamp = epoch;
	l->tenure = ++W.tenures;
	l->open = true;
	l->held = false;
	l->drain = l->apply = l->hold = l->flush = 0;
	image_send(arg, id, lu, LOCK_OPEN, "");
}

static void ops_drain(void *arg, uint64_t id, unsigned lu)
{
	if (ops_lun(arg, lu)->state == GW_ACTIVE)
		world_fails("unit %u is drained while it is active", lu);
	ops_lun(arg, lu)->drain = id;
	lun_quiet_check(gate_of(arg), lu);
}

static void ops_flush(void *arg, uint64_t id, unsigned lu)
{
	if (!W.may.alone && world_chance(10)) { /* the store is full, say */
		reply(gate_of(arg), id, -ENOSPC, MS);
		return;
	}
	ops_lun(arg, lu)->flush = id;
	lun_quiet_check(gate_of(arg), lu);
}

static void ops_drop(void *arg, uint64_t id, unsigned lu)
{
	for (unsigned b = 0; b < BLOCKS; b++)
		page_forget(&ops_lun(arg, lu)->page[b]);
	reply(gate_of(arg), id, 0, 100000);
}

static void ops_close(void *arg, uint64_t id, unsigned lu, bool lost)
{
	const unsigned gate = gate_of(arg);
	struct lun *l = ops_lun(arg, lu);

	for (unsigned i = 0; lost && i < COMMANDS; i++) {
		struct command *c = &W.command[i];

		if (c->op == OP_NONE || c->op > OP_WRITE || c->gate != gate || c->unit != lu)
			continue;
		if (c->io)
			io_done(c, -ESHUTDOWN, (struct value){ 0 });
		else
			command_ends(c, -ESHUTDOWN, 0);
	}
	for (unsigned b = 0; b < BLOCKS; b++)
		page_forget(&l->page[b]);
	l->stamp = 0;
	l->open = false;
	l->drain = l->apply = l->hold = l->flush = 0;
	reply(gate, id, 0, 100000);
}

static void ops_shared(void *arg, uint64_t id, unsigned lu, const struct gw_shared *s)
{
	struct lun *l = ops_lun(arg, lu);

	if (!W.may.alone && world_chance(5)) { /* no memory, say */
		reply(gate_of(arg), id, -ENOMEM, MS);
		return;
	}
	l->gen = s->gen;
	l->denied = shared_denies(s, gate_of(arg));
	l->apply = id;
	lun_quiet_check(gate_of(arg), lu);
}

static void ops_heard(void *arg, unsigned lu, const struct gw_shared *s)
{
	struct lun *l = ops_lun(arg, lu);

	if (l->state == GW_ACTIVE)
		world_fails("unit %u is served, and hears as who does not", lu);
	l->gen = s->gen;
	l->denied = shared_denies(s, gate_of(arg));
}

static void ops_size(void *arg, unsigned lu)
{
	struct lun *l = ops_lun(arg, lu);

	if (l->state == GW_ACTIVE)
		world_fails("unit %u is served, and is told of its size by another one", lu);
	l->sizes++;
}

static void ops_reset(void *arg, uint64_t id, unsigned lu)
{
	ops_lun(arg, lu)->resets++;
	reply(gate_of(arg), id, 0, 100000);
}

static void ops_hold(void *arg, uint64_t id, unsigned lu)
{
	ops_lun(arg, lu)->held = true;
	ops_lun(arg, lu)->hold = id;
	lun_quiet_check(gate_of(arg), lu);
}

static void ops_release(void *arg, unsigned lu)
{
	ops_lun(arg, lu)->held = false;
	ops_lun(arg, lu)->hold = 0;
}

/* ---- struct gw_ops: what was asked for ------------------------------------------------------- */
static struct command *command_by(uint64_t serial)
{
	for (unsigned i = 0; i < COMMANDS; i++)
		if (W.command[i].op != OP_NONE && W.command[i].serial == serial)
			return &W.command[i];
	return NULL;
}

static int ops_change(void *arg, unsigned lu, uint64_t cookie, const struct gw_shared *from,
		      struct gw_shared *to)
{
	struct command *c = command_by(cookie);
	struct pr_request q;
	struct pr_outcome r;
	uint8_t data[24] = { 0 };
	char name[8];
	size_t len = 0;

	if (!c)
		return -ECANCELED;
	snprintf(name, sizeof(name), "i%u", c->initiator);
	q = (struct pr_request){ .action = c->action,
				 .type = c->type,
				 .rtpi = (uint16_t)(gate_of(arg) + 1),
				 .initiator = name,
				 .iqn = name,
				 .data = data,
				 .len = sizeof(data) };
	put_be64(data, c->initiator + 1u);
	put_be64(data + 8, c->stamp);
	memcpy(to->blob, &cookie, 8);
	if (pr_shared_do(from->len ? from->blob + 8 : NULL, from->len ? from->len - 8 : 0, q,
			 to->blob + 8, &len, &r))
		world_fails("reservations cannot be read back");
	c->as_it_is = r.status == SAM_GOOD && !r.changed;
	c->changes = from->gen + r.changed;
	if (r.status != SAM_GOOD)
		return BUSY;
	to->len = (uint32_t)len + 8;
	return r.changed ? 0 : GW_AS_IT_IS;
}

static void ops_changed(void *arg, unsigned lu, uint64_t cookie, int result,
			const struct gw_shared *s)
{
	struct command *c = command_by(cookie);

	if (c)
		command_ends(c, result, c->changes | (c->as_it_is ? AS_IT_IS : 0));
}

static void ops_looked(void *arg, unsigned lu, uint64_t cookie, int result,
		       const struct gw_shared *s)
{
	struct command *c = command_by(cookie);

	if (c)
		command_ends(c, result, s ? s->gen : 0);
}

static void ops_reset_done(void *arg, unsigned lu, uint64_t cookie, int result)
{
	W.resets += !result;
}

static void snapshot_ends(struct event *e)
{
	struct unit *u = &W.unit[e->b];

	u->quiet = 0;
	if (e->life == W.gate[e->gate].life && W.gate[e->gate].lun[e->b].configured)
		gw_unquiesce(W.gate[e->gate].gw, (unsigned)e->b, e->a, local_time(e->gate));
}

static void ops_quiesced(void *arg, unsigned lu, uint64_t cookie, int result)
{
	const struct lun *l = ops_lun(arg, lu);
	struct event *e;

	if (result)
		return;
	W.snapshots++;
	for (unsigned b = 0; b < BLOCKS; b++)
		if (l->page[b].dirty)
			world_fails("a snapshot is made of unit %u without what is dirty", lu);
	W.unit[lu].quiet = l->tenure;
	e = event_new(gate_of(arg), snapshot_ends, 5 * MS + world_random(80 * MS));
	e->a = cookie;
	e->b = lu;
}

static const struct gw_ops world_ops = {
	.read = ops_read,
	.write = ops_write,
	.fence = ops_fence,
	.lift = ops_lift,
	.gone = ops_gone,
	.wait_map = ops_wait_map,
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
	.lu_heard = ops_heard,
	.lu_size = ops_size,
	.lu_reset = ops_reset,
	.lu_hold = ops_hold,
	.lu_release = ops_release,
	.change = ops_change,
	.changed = ops_changed,
	.looked = ops_looked,
	.reset_done = ops_reset_done,
	.quiesced = ops_quiesced,
	.send = ops_send,
	.timer = ops_timer,
	.say = ops_say,
};

/* ---- a command at a gateway ------------------------------------------------------------------ */
/* The look-up. A process may be stopped between this and the question before it. */
static void command_goes(struct event *e)
{
	struct command *c = &W.command[e->a];
	struct page *p;

	if (c->op == OP_NONE || c->serial != e->b)
		return;
	p = &lun_of(c)->page[c->block];
	if (c->op == OP_READ && p->valid) {
		W.hits++;
		command_ends(c, 0, p->value.order);
	} else if (W.gate[c->gate].client < 0) {
		command_ends(c, -ESHUTDOWN, 0);
	} else if (p->writing || (c->op == OP_WRITE && (lun_of(c)->held || p->reading))) {
		command_ends(c, BUSY, 0);
	} else if (c->op == OP_READ) {
		p->reading++;
		c->changes = p->changes;
		rados_io(c, (struct value){ 0 });
	} else if (W.may.back) {
		p->value = (struct value){ c->stamp, ++W.unit[c->unit].order[c->block] };
		p->valid = p->dirty = true;
		p->changes++;
		W.unit[c->unit].acked_at = W.now;
		command_ends(c, 0, p->value.order);
	} else {
		p->writing = true;
		p->changes++;
		rados_io(c, (struct value){ .stamp = c->stamp });
	}
}

/* Is a standby told though the owner has not renewed for long? */
static void standby_check(unsigned gate, unsigned unit)
{
	const struct object *o = &W.unit[unit].object;
	struct gw_lu_object says;

	/* Who has just begun to look, or could not, is given as long. */
	if (local_time(gate) - W.gate[gate].gw->ok_since < 4 * SEC ||
	    W.now < W.stall_until + 2 * SEC)
		return;
	if (o->len && !gw_decode_lu(&says, o->data, o->len) && says.claim == GW_OWNED &&
	    W.now - W.object[says.owner].written_at > 3500 * MS)
		world_fails("gate %u says standby of unit %u, whose owner is gone", gate, unit);
}

static void command_comes(struct event *e)
{
	struct command *c, asked;
	struct lun *l;
	struct event *next;

	memcpy(&asked, e->data, sizeof(asked));
	l = &W.gate[e->gate].lun[asked.unit];
	c = command_new();
	*c = asked;
	c->life = W.gate[e->gate].life;
	c->tenure = l->tenure;
	if (!l->configured || (!lease_holds(e->gate) && !W.no_lease)) {
		command_ends(c, REFUSED, 0);
	} else if (c->op == OP_RESERVE) {
		gw_change(W.gate[e->gate].gw, c->unit, c->serial, local_time(e->gate));
	} else if (c->op == OP_LOOK) {
		gw_look(W.gate[e->gate].gw, c->unit, c->serial, local_time(e->gate));
	} else if (l->state != GW_ACTIVE) {
		if (l->state == GW_STANDBY)
			standby_check(e->gate, c->unit);
		W.refused++;
		command_ends(c, REFUSED, 0);
	} else if (c->op == OP_WRITE && (l->denied & 1u << c->initiator)) {
		W.unit[c->unit].acked_at = W.now; /* who may write need not want to */
		command_ends(c, BUSY, 0);	  /* RESERVATION CONFLICT */
	} else {
		next = event_new(e->gate, command_goes,
				 world_chance(15) ? world_random(2 * MS) : 0);
		next->a = (uint64_t)(c - W.command);
		next->b = c->serial;
	}
}

/* ---- initiators ------------------------------------------------------------------------------ */
static void initiator_next(struct event *e);

static void initiator_later(unsigned i, uint64_t delay)
{
	event_new(GATES, initiator_next, delay)->b = i;
}

/* What is GOOD must be so, and is what all that begins from now on must see. */
static void response_judged(const struct command *c, uint64_t a)
{
	struct unit *u = &W.unit[c->unit];

	world_says("initiator %u: op %u of unit %u, block %u at gate %u is GOOD: %llu",
		   c->initiator, c->op, c->unit, c->block, c->gate, (unsigned long long)a);
	if (c->op == OP_READ || c->op == OP_WRITE) {
		if (c->op == OP_READ && a < c->floor)
			world_fails("unit %u, block %u: gate %u reads %llu, %llu was known before",
				    c->unit, c->block, c->gate, (unsigned long long)a,
				    (unsigned long long)c->floor);
		u->floor[c->block] = MAX(u->floor[c->block], a);
		counter_add(c->op == OP_READ ? &W.reads : &W.writes, 1);
		return;
	}
	if (c->op == OP_LOOK) {
		if (a < c->floor)
			world_fails("unit %u: gate %u shows shared state %llu, %llu was GOOD",
				    c->unit, c->gate, (unsigned long long)a,
				    (unsigned long long)c->floor);
		u->good = MAX(u->good, a);
		return;
	}
	if (!(a & AS_IT_IS) && (a > u->gens || u->change[a].op != c->serial))
		world_fails("unit %u: a reservation is GOOD and was not made", c->unit);
	u->good = MAX(u->good, a & ~AS_IT_IS);
	W.reserves++;
}

static void response_comes(struct event *e)
{
	struct initiator *i = &W.initiator[e->b];
	struct command *c = &i->cmd;
	const int result = (int)(int64_t)e->d;

	if (c->op == OP_NONE || c->serial != e->id)
		return;
	if (!result) {
		response_judged(c, e->a);
		i->answered = W.now;
		i->path[c->unit] = c->gate;
	} else if (result != BUSY) {
		i->path[c->unit] = (uint8_t)((c->gate + 1) % GATES);
	}
	c->op = OP_NONE;
	initiator_later((unsigned)e->b, 5 * MS + world_random(result ? 60 * MS : 160 * MS));
}

static void initiator_gives_up(struct event *e)
{
	struct initiator *i = &W.initiator[e->b];
	struct command *c = &i->cmd;

	if (c->op == OP_NONE || c->serial != e->a)
		return;
	W.given_up++;
	i->path[c->unit] = (uint8_t)((c->gate + 1) % GATES);
	c->op = OP_NONE;
	initiator_later((unsigned)e->b, MS);
}

/* By nexuses: who is registered by one gateway is not by the others. */
static void reservation_choose(struct command *c)
{
	static const uint8_t actions[] = { PR_REGISTER_AND_IGNORE, PR_REGISTER_AND_IGNORE,
					   PR_REGISTER_AND_IGNORE, PR_RESERVE, PR_RESERVE,
					   PR_PREEMPT, PR_PREEMPT, PR_RELEASE, PR_CLEAR };
	static const uint8_t types[] = { PR_WRITE_EXCLUSIVE, PR_WRITE_EXCLUSIVE_RO,
					 PR_EXCLUSIVE_ACCESS_AR };

	c->action = actions[world_random(ARRAY_SIZE(actions))];
	c->type = types[world_random(ARRAY_SIZE(types))];
	c->stamp = c->action == PR_PREEMPT ? 1 + world_random(INITIATORS) :
		   world_chance(10)	   ? 0 : /* unregisters */
					     c->initiator + 1u;
	if (!W.healing)
		return;
	/* Nobody stays kept out. */
	c->action = world_chance(50) ? PR_REGISTER_AND_IGNORE : PR_CLEAR;
	c->stamp = c->initiator + 1u;
	c->gate = c->initiator % GATES;
}

static void initiator_next(struct event *e)
{
	const unsigned who = (unsigned)e->b, dice = (unsigned)world_random(100);
	struct initiator *i = &W.initiator[who];
	struct command *c = &i->cmd;
	struct event *sent;

	memset(c, 0, sizeof(*c));
	c->op = dice < 45 || !W.may.reserves ? (dice & 1 ? OP_READ : OP_WRITE) :
		dice < 85		     ? (dice & 1 ? OP_READ : OP_WRITE) :
		dice < (W.healing ? 97 : 94) ? OP_RESERVE :
					       OP_LOOK;
	c->initiator = (uint8_t)who;
	c->unit = (uint8_t)world_random(UNITS);
	c->block = (uint8_t)world_random(BLOCKS);
	c->serial = ++W.serials;
	/* The last one stays with a gateway, whoever owns the unit. */
	c->gate = who == INITIATORS - 1 && !W.healing ? (uint8_t)(W.seed % GATES) :
		  world_chance(15)		      ? (uint8_t)world_random(GATES) :
							i->path[c->unit];
	c->stamp = c->serial;
	if (c->op == OP_RESERVE)
		reservation_choose(c);
	c->floor = c->op == OP_LOOK ? W.unit[c->unit].good : W.unit[c->unit].floor[c->block];
	sent = event_new(GATES, initiator_gives_up, c->op == OP_RESERVE ? 9 * SEC : PATIENCE);
	sent->a = c->serial;
	sent->b = who;
	/* Nobody is there to take it. */
	if (!W.gate[c->gate].gw)
		return;
	sent = event_new(c->gate, command_comes, 50000 + world_random(2 * MS));
	memcpy(sent->data, c, sizeof(*c));
}
