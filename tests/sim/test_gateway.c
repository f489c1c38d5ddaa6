/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Three gateways of a group, two units, stepped: tgtd/cluster as the daemon has it, in a world
 * where processes are killed, stopped and woken at any step, clocks drift, messages are late, lost
 * and doubled, writes time out and land later, links are cut, RADOS is slow or stands still. An
 * administrator adds units to a gateway that is up, and removes them, and gateways' objects, too.
 *
 * What must hold: one owner at a time may answer; no read is older than what anybody was told
 * before it began; no I/O of an owner is done after one of the next, at one OSD; nobody whom a
 * reservation keeps out writes after it was GOOD; each change of shared state is made once; nobody
 * is fenced who is not deposed; who may answer has the lock. And when trouble ends, each unit is
 * served again.
 *
 * Each rule is broken once, to see that this is noticed (the list is enum gw_rule).
 *
 * TGT_GATEWAY_SEED=N runs that seed alone and prints its steps; TGT_GATEWAY_SEEDS=N sets how many
 * (10,000), TGT_GATEWAY_FROM=N where they begin. TGT_GATEWAY_BROKEN=N breaks a rule in these.
 */
#define GW_SIMULATION
static unsigned gw_broken;
#define gw_breaks(rule) (gw_broken == (rule))

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "tgtd/cluster/object.c"
#include "tgtd/cluster/cell.c"
#include "tgtd/cluster/fences.c"
#include "tgtd/cluster/choose.c"
#include "tgtd/cluster/peers.c"
#include "tgtd/cluster/lease.c"
#include "tgtd/cluster/owner.c"
#include "tgtd/cluster/claim.c"
#include "tgtd/cluster/take.c"
#include "tgtd/cluster/handover.c"
#include "tgtd/cluster/quiesce.c"
#include "tgtd/cluster/reserve.c"
#include "tgtd/cluster/show.c"
#include "tgtd/cluster/gateway.c"
#define PR_SHARED_GONE 6 /* so that the list is full */
#include "tgtd/scsi/commands/pr_reg.c"
#include "tgtd/scsi/commands/pr_rules.c"
#include "tgtd/scsi/commands/pr_shared.c"
#include "tests/sim/gateway_world.h"
#include "tests/sim/gateway_events.c"
#include "tests/sim/gateway_rados.c"
#include "tests/sim/gateway_scsi.c"

#define TROUBLE_UNTIL (11 * SEC)
#define HEALED_UNTIL (23 * SEC)

/* ---- units of a process ---------------------------------------------------------------------- */
/* Each has its number as index: the first one is never added after the other. */
static void unit_added(unsigned gate, unsigned unit)
{
	struct lun *l = &W.gate[gate].lun[unit];
	char id[16];

	if (unit && !W.gate[gate].lun[unit - 1].configured)
		unit_added(gate, unit - 1);
	if (l->configured)
		return;
	l->configured = true;
	l->state = GW_TRANSITIONING;
	snprintf(id, sizeof(id), "unit%u", unit);
	ck_assert_int_eq(gw_lu_add(W.gate[gate].gw, id, unit % GATES, local_time(gate)), (int)unit);
}

static void unit_comes(struct event *e)
{
	if (W.gate[e->gate].lun[e->a].configured)
		return;
	world_says("gate %u, unit %u: is added", e->gate, (unsigned)e->a);
	W.added++;
	unit_added(e->gate, (unsigned)e->a);
}

static bool unit_removed(unsigned gate, unsigned unit)
{
	struct gate *g = &W.gate[gate];
	struct lun *l = &g->lun[unit];

	if (gw_lu_remove(g->gw, unit, local_time(gate)))
		return false;
	world_says("gate %u, unit %u: is removed", gate, unit);
	W.removed++;
	if (l->open || l->state == GW_ACTIVE)
		world_fails("gate %u, unit %u: is removed while it is open", gate, unit);
	l->configured = l->quits = false;
	l->state = GW_TRANSITIONING;
	l->gen = l->denied = 0;
	event_new(gate, unit_comes, world_random(3 * SEC))->a = unit;
	return true;
}

/* It is handed over, or stays. */
static void unit_leaves(struct event *e)
{
	struct lun *l = &W.gate[e->gate].lun[e->a];

	if (!l->quits || unit_removed(e->gate, (unsigned)e->a))
		return;
	if (W.now < e->b && !W.healing) {
		event_again(e, 50 * MS);
		return;
	}
	l->quits = false;
	gw_lu_quit(W.gate[e->gate].gw, (unsigned)e->a, false, local_time(e->gate));
}

static void unit_goes(unsigned gate, unsigned unit)
{
	struct lun *l = &W.gate[gate].lun[unit];
	struct event *e;

	if (!l->configured || l->quits || unit_removed(gate, unit))
		return;
	l->quits = true;
	gw_lu_quit(W.gate[gate].gw, unit, true, local_time(gate));
	e = event_new(gate, unit_leaves, 50 * MS);
	e->a = unit;
	e->b = W.now + 4 * SEC;
}

/* By somebody who knows no better: its version counts anew. */
static void object_removed(unsigned gate)
{
	if (!W.object[gate].version)
		return;
	world_says("the object of gate %u is removed", gate);
	W.rm++;
	W.object[gate] = (struct object){ .written_at = W.now };
}

/* ---- processes ------------------------------------------------------------------------------- */
static void process_starts(unsigned gate, bool reaped)
{
	struct gate *g = &W.gate[gate];
	const bool elsewhere = W.may.elsewhere || (!W.may.even && world_chance(20));
	char name[32];
	const struct gw_config config = {
		.self = gate,
		.gateways = GATES,
		.max_lus = UNITS,
		.seed = world_random(1ull << 38),
		.process = name,
		.first = W.may.admin ? W.now / MS : 0,
		.lift_ns = LIFT_NS,
		.give_up_ns = 4 * SEC,
		.poll_ns = 5 * SEC, /* seldom, so that it does not hide what messages have to do */
	};
	const char *why;

	/* Some come up elsewhere, where nobody can tell. */
	snprintf(name, sizeof(name), "%sgate%u.%u", elsewhere ? "?" : "", gate, g->life);
	g->gw = gw_new(&config, &world_ops, g, &why);
	ck_assert_msg(g->gw != NULL, "%s", why);
	g->began = W.now;
	world_says("gate %u starts", gate);
	for (unsigned u = 0; u < UNITS; u++) {
		g->lun[u].state = GW_TRANSITIONING;
		g->lun[u].configured = g->lun[u].quits = false;
	}
	for (unsigned u = 0; u < UNITS; u++)
		if (W.may.admin && !W.healing && world_chance(40))
			event_new(gate, unit_comes, world_random(2 * SEC))->a = u;
		else
			unit_added(gate, u);
	gw_start(g->gw, reaped, local_time(gate));
}

static void counts_add(const struct gateway *gw)
{
	const uint64_t *from = (const uint64_t *)&gw->counts;
	uint64_t *to = (uint64_t *)&W.counts;

	for (unsigned i = 0; i < sizeof(W.counts) / sizeof(*to); i++)
		to[i] += from[i];
}

static void restart(struct event *e)
{
	if (!W.gate[e->b].gw)
		process_starts((unsigned)e->b, e->a);
}

static void wake(struct event *e)
{
	if (e->c == W.gate[e->b].life && W.gate[e->b].stopped) {
		world_says("gate %u goes on", (unsigned)e->b);
		gate_wakes((unsigned)e->b);
	}
}

static void process_dies(unsigned gate, bool keep)
{
	struct gate *g = &W.gate[gate];

	world_says("gate %u is killed", gate);
	W.kills++;
	if (g->stopped)
		gate_wakes(gate);
	counts_add(g->gw);
	gw_free(g->gw);
	g->gw = NULL;
	g->life++;
	g->client = -1;
	for (unsigned i = 0; i < COMMANDS; i++)
		if (W.command[i].gate == gate)
			W.command[i].op = OP_NONE;
	for (unsigned u = 0; u < UNITS; u++) {
		struct lun *l = &g->lun[u];

		if (W.unit[u].quiet == l->tenure)
			W.unit[u].quiet = 0;
		l->state = GW_TRANSITIONING;
		l->drain = l->apply = l->hold = l->flush = 0;
		l->held = l->open = false;
		for (unsigned b = 0; b < BLOCKS; b++) {
			l->page[b].writing = false;
			l->page[b].reading = 0;
			if (!keep)
				page_forget(&l->page[b]);
		}
		if (!keep)
			l->stamp = 0;
	}
}

static void reaped_comes(struct event *e)
{
	gw_reaped(W.gate[e->gate].gw, (unsigned)e->a, e->b, local_time(e->gate));
}

static void kill_one(unsigned gate)
{
	const uint64_t incarnation = W.gate[gate].gw->incarnation;
	const bool machine = world_chance(30);
	struct event *e;

	process_dies(gate, !machine && world_chance(80));
	for (unsigned g = 0; g < GATES && !machine && incarnation; g++)
		if (g != gate && W.gate[g].gw && world_chance(40)) {
			e = event_new(g, reaped_comes, world_random(100 * MS));
			e->a = gate;
			e->b = incarnation;
		}
	e = event_new(GATES, restart, machine ? world_random(8 * SEC) : world_random(600 * MS));
	e->b = gate;
	e->a = !world_chance(15);
}

/* ---- trouble --------------------------------------------------------------------------------- */
static void uncut(struct event *e)
{
	W.gate[e->b].cut = false;
}

static void unmute(struct event *e)
{
	W.gate[e->b].mute[e->a] = W.gate[e->a].mute[e->b] = false;
}

static void unbad(struct event *e)
{
	W.bad_image[e->b][e->a] = false;
}

static void stranger_goes(struct event *e)
{
	if (W.unit[e->b].lock == W.stranger)
		W.unit[e->b].lock = -1;
}

static void process_stops(unsigned g, uint64_t time)
{
	struct event *e = event_new(GATES, wake, time);

	world_says("gate %u is stopped", g);
	W.stops++;
	W.gate[g].stopped = true;
	e->b = g;
	e->c = W.gate[g].life;
}

static void stop_until_healed(struct event *e)
{
	process_stops((unsigned)e->b, TROUBLE_UNTIL);
}

static void link_cut(unsigned g, uint64_t time)
{
	world_says("gate %u is cut off", g);
	W.cuts++;
	W.gate[g].cut = true;
	event_new(GATES, uncut, time)->b = g;
}

static void moves_or_asks(unsigned g, unsigned u, unsigned dice)
{
	struct gateway *gw = W.gate[g].gw;

	if (!gw || W.gate[g].stopped || !W.gate[g].lun[u].configured)
		return;
	if (W.may.admin && world_chance(40))
		unit_goes(g, u);
	else if (W.may.admin && !W.may.back && world_chance(30))
		object_removed(g);
	else if (dice < 60 && W.may.moves)
		gw_move(gw, u, (unsigned)world_random(GATES + 1), local_time(g));
	else if (dice < 80 && W.may.quiets)
		gw_quiesce(gw, u, ++W.serials, local_time(g));
	else if (W.may.reserves)
		gw_reset(gw, u, ++W.serials, local_time(g));
}

static void trouble(struct event *e)
{
	const unsigned g = (unsigned)world_random(GATES), other = (unsigned)world_random(GATES),
		       u = (unsigned)world_random(UNITS);
	struct gate *gate = &W.gate[g];

	if (W.now < TROUBLE_UNTIL)
		event_new(GATES, trouble, 50 * MS + world_random(900 * MS));
	switch (world_random(11)) {
	case 0:
		if (W.may.kills && gate->gw)
			kill_one(g);
		break;
	case 1:
	case 2:
		if (W.may.stops && gate->gw && !gate->stopped)
			process_stops(g, world_chance(30) ? world_random(300 * MS) :
					 world_chance(30) ? TROUBLE_UNTIL :
							    world_random(6 * SEC));
		break;
	case 3:
		if (W.may.cuts && !gate->cut)
			link_cut(g, world_random(6 * SEC));
		break;
	case 4:
		if (!W.may.mutes || g == other)
			break;
		W.mutes++;
		gate->mute[other] = W.gate[other].mute[g] = true;
		e = event_new(GATES, unmute, world_random(6 * SEC));
		e->b = g;
		e->a = other;
		break;
	case 5:
		if (W.may.slow) {
			W.slows++;
			W.slow_until = W.now + world_random(2 * SEC);
		}
		break;
	case 6:
		/* Perhaps beyond an earlier one. */
		if (W.may.stalls) {
			W.stalls++;
			W.stall_until = W.now + world_random(3 * SEC);
			world_says("RADOS stands still");
		}
		break;
	case 7:
		if (W.may.bad_images && !W.bad_image[g][u]) {
			W.bad_image[g][u] = true;
			e = event_new(GATES, unbad, world_random(9 * SEC));
			e->b = g;
			e->a = u;
		}
		break;
	case 8:
		if (W.may.strangers && W.unit[u].lock < 0) {
			W.unit[u].lock = W.stranger;
			event_new(GATES, stranger_goes, world_random(4 * SEC))->b = u;
		}
		break;
	default:
		moves_or_asks(g, u, (unsigned)world_random(100));
		break;
	}
}

static void heal(struct event *e)
{
	world_says("all is well again");
	W.healing = true;
	memset(W.bad_image, 0, sizeof(W.bad_image));
	for (unsigned u = 0; u < UNITS; u++)
		if (W.unit[u].lock == W.stranger)
			W.unit[u].lock = -1;
	for (unsigned g = 0; g < GATES; g++) {
		W.gate[g].cut = false;
		memset(W.gate[g].mute, 0, sizeof(W.gate[g].mute));
		if (W.gate[g].stopped)
			gate_wakes(g);
		if (!W.gate[g].gw)
			process_starts(g, true);
		for (unsigned u = 0; u < UNITS; u++)
			unit_added(g, u);
	}
}

/* ---- a seed ---------------------------------------------------------------------------------- */
#define FIGURES 20 /* from W.reads on */
static struct {	   /* over all seeds */
	struct gw_counts counts;
	uint64_t of[24];
	uint64_t events;
} sum;

static void world_begin(uint64_t seed, const struct profile *may)
{
	const bool trace = W.trace, no_lease = W.no_lease;

	memset(&W, 0, sizeof(W));
	W.trace = trace;
	W.no_lease = no_lease;
	W.rng = seed * 0x2545f4914f6cdd1dull + 1;
	W.seed = seed;
	W.now = SEC;
	W.may = *may;
	for (unsigned u = 0; u < UNITS; u++)
		W.unit[u].lock = -1;
	/* Whom no group knows. */
	W.client[W.clients] = (struct client){ .gate = GATES, .addr = "10.9.9.9:0/1" };
	W.stranger = W.clients++;
	for (unsigned g = 0; g < GATES; g++) {
		struct gate *gate = &W.gate[g];

		gate->late_end = &gate->late;
		gate->rate = 0.97 + (double)world_random(1000) * 0.00006;
		gate->offset = world_random(1000 * SEC);
		gate->client = -1;
		gate->life = 1;
		process_starts(g, true);
	}
	for (unsigned i = 0; i < INITIATORS && !may->alone; i++)
		initiator_later(i, SEC + world_random(SEC));
}

static void world_run(uint64_t until)
{
	while (!*W.failed && W.heaped && W.heap[0]->at <= until) {
		event_step();
		sum.events++;
	}
	W.now = MAX(W.now, until);
}

static void world_end(void)
{
	const uint64_t *from = &W.reads;

	for (unsigned g = 0; g < GATES; g++)
		if (W.gate[g].gw)
			counts_add(W.gate[g].gw);
	events_free();
	for (unsigned g = 0; g < GATES; g++)
		gw_free(W.gate[g].gw);
	for (unsigned i = 0; i < sizeof(sum.counts) / 8; i++)
		((uint64_t *)&sum.counts)[i] += ((uint64_t *)&W.counts)[i];
	for (unsigned i = 0; i < FIGURES; i++)
		sum.of[i] += from[i];
}

/* Each unit has an owner, is written, and nobody waits for anything. */
static void world_is_well(void)
{
	for (unsigned u = 0; u < UNITS; u++) {
		unsigned owners = 0;

		for (unsigned g = 0; g < GATES; g++)
			owners += W.gate[g].lun[u].state == GW_ACTIVE && lease_holds(g);
		if (owners != 1)
			world_fails("unit %u has %u owners when all is well", u, owners);
		else if (W.unit[u].acked_at + 3 * SEC < W.now)
			world_fails("unit %u is not written when all is well", u);
		for (unsigned g = 0; g < GATES; g++)
			if (W.gate[g].lun[u].gen != W.unit[u].gens &&
			    W.unit[u].changed_at + 3 * SEC < W.now)
				world_fails("gate %u has not heard what unit %u shares", g, u);
	}
	for (unsigned g = 0; g < GATES; g++)
		for (unsigned i = 0; i < GW_ASKS; i++)
			if (W.gate[g].gw->ask[i].kind != ASK_FREE &&
			    W.gate[g].gw->ask[i].begun + 3 * SEC < local_time(g))
				world_fails("gate %u waits for an answer of unit %u", g,
					    W.gate[g].gw->ask[i].lu);
}

static struct profile profile_of(uint64_t seed)
{
	struct profile p = {
		.moves = seed & 8, .reserves = seed & 16, .quiets = true, .admin = seed % 64 >= 48
	};

	if (seed % 16 == 10) {
		p.kills = p.moves = p.prompt = true;
		return p;
	}
	switch (seed % 8) {
	case 7:
		p.stalls = p.even = true;
		p.moves = p.reserves = p.admin = false;
		return p;
	case 0:
		p.back = true;
		return p;
	case 1:
		p.stops = p.long_stop = true;
		return p;
	case 2:
		p.kills = p.strangers = true;
		return p;
	case 3:
		p.stops = p.slow = p.mutes = true;
		return p;
	case 4:
		p.cuts = p.mutes = p.stalls = p.bad_images = true;
		return p;
	default:
		p.kills = p.stops = p.cuts = p.mutes = p.slow = p.stalls = p.bad_images = true;
		return p;
	}
}

/* False: W.failed says what went wrong. */
static bool seed_run(uint64_t seed)
{
	const struct profile may = profile_of(seed);

	world_begin(seed, &may);
	event_new(GATES, trouble, 2 * SEC);
	if (may.long_stop) /* fences expire meanwhile */
		event_new(GATES, stop_until_healed, 1500 * MS + world_random(SEC))->b =
			world_random(GATES);
	event_new(GATES, heal, TROUBLE_UNTIL);
	world_run(HEALED_UNTIL);
	if (!*W.failed)
		world_is_well();
	for (unsigned g = 0; g < GATES && may.even; g++)
		if (W.gate[g].gw && W.gate[g].gw->counts.depositions)
			world_fails("gate %u deposes because RADOS stands still", g);
	world_end();
	return !*W.failed;
}

static uint64_t env(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SEEDS 500
#define BREAKS 0 /* that a broken rule is noticed is said by the usual build */
#else
#define SEEDS 10000
#define BREAKS 1
#endif

static void seed_trace(uint64_t seed)
{
	W.trace = true;
	seed_run(seed);
	W.trace = false;
}

START_TEST(seeds)
{
	const uint64_t one = env("TGT_GATEWAY_SEED", 0), n = env("TGT_GATEWAY_SEEDS", SEEDS);
	const uint64_t from = env("TGT_GATEWAY_FROM", 1);
	const struct gw_counts *c = &sum.counts;
	struct timespec a, b;

	gw_broken = (unsigned)env("TGT_GATEWAY_BROKEN", 0);
	if (one) {
		W.trace = true;
		ck_assert_msg(seed_run(one), "seed %llu: %s", (unsigned long long)one, W.failed);
		return;
	}
	memset(&sum, 0, sizeof(sum));
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (uint64_t seed = from; seed < from + n; seed++)
		if (!seed_run(seed)) {
			seed_trace(seed);
			ck_abort_msg("seed %llu: %s", (unsigned long long)seed, W.failed);
		}
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("# %llu seeds, %llu events, %.1f s\n", (unsigned long long)n,
	       (unsigned long long)sum.events,
	       (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9);
	printf("# renewals %llu, lapses %llu, depositions %llu, deposed %llu, takes %llu, resumes "
	       "%llu\n",
	       (unsigned long long)c->renewals, (unsigned long long)c->lapses,
	       (unsigned long long)c->depositions, (unsigned long long)c->deposed,
	       (unsigned long long)c->takes, (unsigned long long)c->resumes);
	printf("# hand-overs %llu (failed %llu), given up %llu, asks %llu (deposed %llu), fences "
	       "%llu, late %llu, never %llu, quiesces %llu\n",
	       (unsigned long long)c->handovers, (unsigned long long)c->handovers_failed,
	       (unsigned long long)c->gave_up, (unsigned long long)c->asks,
	       (unsigned long long)c->asks_deposed, (unsigned long long)c->fences,
	       (unsigned long long)c->landed_late, (unsigned long long)c->not_landed,
	       (unsigned long long)c->quiesces);
	printf("# reads %llu, writes %llu, hits %llu, refused %llu, given up %llu, "
	       "reservations %llu, snapshots %llu, resets %llu, arenas kept %llu, shut %llu\n",
	       (unsigned long long)sum.of[0], (unsigned long long)sum.of[1],
	       (unsigned long long)sum.of[2], (unsigned long long)sum.of[3],
	       (unsigned long long)sum.of[4], (unsigned long long)sum.of[5],
	       (unsigned long long)sum.of[6], (unsigned long long)sum.of[7],
	       (unsigned long long)sum.of[8], (unsigned long long)sum.of[9]);
	printf("# kills %llu, stops %llu, cuts %llu, mutes %llu, stalls %llu, slow %llu, fences "
	       "lifted %llu of %llu, proofs %llu, units added %llu, removed %llu, objects "
	       "%llu\n",
	       (unsigned long long)sum.of[10], (unsigned long long)sum.of[11],
	       (unsigned long long)sum.of[12], (unsigned long long)sum.of[13],
	       (unsigned long long)sum.of[14], (unsigned long long)sum.of[15],
	       (unsigned long long)sum.of[16], (unsigned long long)c->lifts,
	       (unsigned long long)c->proofs, (unsigned long long)sum.of[17],
	       (unsigned long long)sum.of[18], (unsigned long long)sum.of[19]);
	/* What the seeds are about has happened. */
	if (n < 2000)
		return;
	for (unsigned i = 0; i < sizeof(*c) / 8; i++)
		ck_assert_msg(((const uint64_t *)c)[i] > 0, "count %u is 0", i);
	for (unsigned i = 0; i < FIGURES; i++)
		ck_assert_msg(sum.of[i] > 0, "figure %u is 0", i);
}
END_TEST

/* ---- the rules, broken ----------------------------------------------------------------------- */
#define BROKEN_SEEDS 10000

static const char *const rules[GW_RULES + 1] = {
	[BREAK_LEASE_FROM_ANSWER] = "1: the lease runs from the sending",
	[BREAK_DOUBT_UNSETTLED] = "a write that timed out is settled",
	[BREAK_ONE_NONCE] = "a nonce for each gateway",
	[BREAK_WAIT] = "2: a lease is waited for",
	[BREAK_DEPOSE] = "2: the owner's object is written at the sequence seen",
	[BREAK_SICK_SUSPECTS] = "2: who cannot renew suspects nobody",
	[BREAK_FENCE] = "3: fencing",
	[BREAK_MAP] = "3: waiting for the map",
	[BREAK_ANY_LOCK] = "3: only a fenced holder loses the lock",
	[BREAK_DROP_FENCES] = "3: a taker that dies is fenced, and whom it fenced",
	[BREAK_FENCE_SHORT] = "4: fences do not expire",
	[BREAK_LIFT] = "4: they are lifted by a proof",
	[BREAK_GONE] = "4: ... when what was sent has ended",
	[BREAK_END_LATE] = "4, 5: the data client ends first",
	[BREAK_CLOSE] = "5: pages and commands go",
	[BREAK_KEEP] = "6: an arena of the same epoch alone",
	[BREAK_PREDECESSOR] = "6: a restarted worker fences the one before",
	[BREAK_ASK] = "7: the owner is asked",
	[BREAK_ANSWER_EARLY] = "7: it answers when it has drained",
	[BREAK_SILENCE] = "7: it is deposed when it does not",
	[BREAK_AS_IT_IS] = "7: also of what is made already",
	[BREAK_LOOK] = "7: what is shown is obeyed",
	[BREAK_HEARD] = "7: who does not serve it hears of changes",
	[BREAK_DRAIN] = "8: drained",
	[BREAK_FLUSH] = "8: flushed",
	[BREAK_WISH] = "8: it goes where it was to go",
	[BREAK_STANDBY] = "9: standby while the owner is well",
	[BREAK_HOLD] = "10: held for a snapshot",
	[GW_RULES] = "1: the SCSI side looks at the lease",
};

START_TEST(broken_rule_is_noticed)
{
	const unsigned rule = (unsigned)_i;
	uint64_t seed = 1;
	bool well = true;

	gw_broken = rule < GW_RULES ? rule : 0;
	W.no_lease = rule == GW_RULES;
	for (; seed <= BROKEN_SEEDS && well; seed++)
		well = seed_run(seed);
	gw_broken = 0;
	W.no_lease = false;
	printf("# %-55s %s%llu: %s\n", rules[rule], well ? "NOT in " : "seed ",
	       (unsigned long long)seed - 1, W.failed);
	ck_assert_msg(!well, "%s: broken, and not noticed", rules[rule]);
}
END_TEST

#include "tests/sim/gateway_rules.c"

int main(void)
{
	Suite *s = suite_create("gateway");
	TCase *t = tcase_create("gateway");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 0);
	suite_add_tcase(s, t);
	if (!getenv("TGT_GATEWAY_SEED"))
		add_rules(t);
	tcase_add_test(t, seeds);
	if (BREAKS && !getenv("TGT_GATEWAY_SEED") && !getenv("TGT_GATEWAY_SEEDS"))
		tcase_add_loop_test(t, broken_rule_is_noticed, 1, GW_RULES + 1);
	r = srunner_create(s);
	srunner_set_fork_status(r, CK_NOFORK);
	srunner_set_tap(r, "-");
	srunner_run_all(r, CK_SILENT);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
