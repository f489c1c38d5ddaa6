/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Mirrored write-back, stepped: three gateways of one unit, with the rules of ownership and of the
 * mirror as a daemon has them. Gateways are killed at any step, with their memory and without, the
 * owner, the peer, one after the other; links break, fall silent, and pass frames of one channel
 * before those of another; RADOS is slow, its answers get lost, what the dead have sent lands late.
 *
 * What must hold, of what initiators were told: nothing that was answered or shown is lost, stale,
 * or back after an UNMAP; COMPARE AND WRITE is whole; one owner at a time. When both have lost
 * what is dirty, that is known: nobody serves the unit until an administrator says so. When trouble
 * ends, it is served, and mirrored.
 *
 * Each rule is broken once, to see that this is noticed (enum mirror_rule).
 *
 * TGT_MIRROR_SEED=N runs that seed alone and prints its steps; TGT_MIRROR_SEEDS=N sets how many
 * (10,000), TGT_MIRROR_FROM=N where they begin. TGT_MIRROR_BROKEN=N breaks a rule in these.
 */
#define MIRROR_SIMULATION
static unsigned mirror_broken;
#define mirror_breaks(rule) (mirror_broken == (rule))

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "tgtd/cluster/mirror_frame.c"
#include "tgtd/cluster/mirror_page.c"
#include "tgtd/cluster/mirror_peer.c"
#include "tgtd/cluster/mirror_block.c"
#include "tgtd/cluster/mirror_send.c"
#include "tgtd/cluster/mirror_order.c"
#include "tgtd/cluster/mirror_owner.c"
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
#include "tests/sim/mirror_world.h"
#include "tests/sim/mirror_events.c"
#include "tests/sim/mirror_rados.c"
#include "tests/sim/mirror_glue.c"
#include "tests/sim/mirror_commands.c"

#define TROUBLE_UNTIL (4 * SEC)
#define HEALED_UNTIL (9 * SEC)

static struct { /* over all seeds */
	struct mirror_show owner;
	struct mirror_peer_show peer;
	uint64_t of[13], events;
} sum;

/* ---- processes ------------------------------------------------------------------------------- */
static void gate_tick(struct event *e)
{
	struct gate *g = &W.gate[e->gate];
	uint32_t well = 0;

	event_new(e->gate, gate_tick, 20 * MS);
	mirror_peer_incarnation(g->mp, g->gw->incarnation);
	for (unsigned i = 0; i < GATES; i++)
		well |= (uint32_t)gw_is_well(g->gw, i, W.now) << i;
	if (!g->mo)
		return;
	mirror_owner_peers(g->mo, well, W.now);
	if (W.now >= TROUBLE_UNTIL || world_chance(1)) /* write_cache= */
		mirror_owner_mirrored(g->mo, W.now >= TROUBLE_UNTIL || world_chance(80), W.now);
	for (unsigned b = 0; b < BLOCKS; b++) {
		if (g->mo->mode != MIRROR_VALID || world_chance(W.may.small ? 50 : 15))
			store_write(e->gate, b);
		if (!g->page[b].dirty && !mirror_owner_gen(g->mo, b) && !g->busy[b] &&
		    world_chance(20))
			page_forget(&g->page[b]); /* evicted */
	}
	commands_run(e->gate);
	push_fn(e);
}

static void arena_is_found(struct gate *g)
{
	for (uint32_t i = 0; i < MSLOTS; i++) {
		if (!g->mstamp[i].mirror)
			continue;
		ck_assert_int_eq(mirror_peer_found(g->mp, i, &g->mstamp[i]), 0);
		for (unsigned t = 0; t < MIRROR_TOMBS; t++)
			if (g->mtomb[i][t].count)
				ck_assert_int_eq(mirror_peer_found_tomb(
							 g->mp, i, t, g->mtomb[i][t].first,
							 g->mtomb[i][t].count, g->mtomb[i][t].gen),
						 0);
	}
	for (uint32_t i = 0; i < MPAGES; i++)
		if (g->mpage[i].used)
			ck_assert_int_eq(mirror_peer_found_page(g->mp, g->mpage[i].slot, i,
								g->mpage[i].block, g->mpage[i].gen,
								g->mpage[i].map),
					 0);
	mirror_peer_found_all(g->mp);
}

static void process_starts(unsigned gate, bool reaped)
{
	struct gate *g = &W.gate[gate];
	const struct gw_config config = {
		.self = gate,
		.gateways = GATES,
		.max_lus = 1,
		.seed = world_random(1ull << 38),
		.renew_ns = 100 * MS,
		.lease_ns = 400 * MS,
		.margin_ns = 20 * MS,
		.doubt_ns = 350 * MS,
		.suspect_ns = 450 * MS,
		.poll_ns = 500 * MS,
		.give_up_ns = 2 * SEC,
	};
	const struct mirror_peer_config peer = { .self = gate, .lus = MSLOTS, .pages = MPAGES };
	const char *why;

	world_says("gate %u starts", gate);
	g->gw = gw_new(&config, &world_ops, g, &why);
	ck_assert_msg(g->gw != NULL, "%s", why);
	g->mp = mirror_peer_new(&peer, &peer_ops, g);
	arena_is_found(g);
	g->state = GW_TRANSITIONING;
	g->client = -1;
	g->tenure = ++W.nonce;
	g->wake = false;
	memset(&g->mirror, 0, sizeof(g->mirror));
	ck_assert_int_eq(gw_lu_add(g->gw, "unit", 0, W.now), 0);
	gw_start(g->gw, reaped, W.now);
	event_new(gate, gate_tick, world_random(20 * MS));
}

static void gate_counts(struct gate *g)
{
	struct mirror_peer_show p;
	struct mirror_show o;

	mirror_peer_show(g->mp, &p);
	for (unsigned i = 0; i < 9; i++)
		(&sum.peer.frames)[i] += (&p.frames)[i];
	if (!g->mo)
		return;
	mirror_owner_show(g->mo, &o, W.now);
	for (unsigned i = 0; i < 8; i++)
		(&sum.owner.writes)[i] += (&o.writes)[i];
}

static void process_ends(unsigned gate)
{
	struct gate *g = &W.gate[gate];

	gate_counts(g);
	mirror_owner_free(g->mo);
	mirror_peer_free(g->mp);
	gw_free(g->gw);
	g->gw = NULL;
	g->mo = NULL;
	g->mp = NULL;
}

static bool unit_says(struct gw_lu_object *o)
{
	return W.object[GATES].len && !gw_decode_lu(o, W.object[GATES].data, W.object[GATES].len);
}

static void process_dies(unsigned gate, bool keep)
{
	struct gate *g = &W.gate[gate];

	for (unsigned i = 0; i < MSLOTS && !keep; i++)
		W.peer_lost[g->mstamp[i].mirror % ARRAY_SIZE(W.peer_lost)] = true;

	world_says("gate %u is killed%s", gate, keep ? "" : ", and its memory is gone");
	counter_add(keep ? &W.kills : &W.machines, 1);
	process_ends(gate);
	g->life++;
	g->drain = g->flush = g->opens = 0;
	memset(g->busy, 0, sizeof(g->busy));
	for (unsigned i = 0; i < COMMANDS; i++)
		if (W.command[i].gate == gate)
			W.command[i].op = OP_NONE;
	for (unsigned b = 0; b < BLOCKS; b++) {
		g->page[b].writing = g->page[b].loading = false;
		if (!keep)
			page_forget(&g->page[b]);
	}
	if (!keep) {
		g->stamp = 0;
		memset(g->mpage, 0, sizeof(g->mpage));
		memset(g->mstamp, 0, sizeof(g->mstamp));
		memset(g->mtomb, 0, sizeof(g->mtomb));
	}
	for (unsigned i = 0; i < GATES; i++)
		if (i != gate)
			link_breaks(gate, i);
}

static void restart(struct event *e)
{
	if (!W.gate[e->b].gw)
		process_starts((unsigned)e->b, e->a);
}

static void reaped_comes(struct event *e)
{
	gw_reaped(W.gate[e->gate].gw, (unsigned)e->a, e->b, W.now);
}

static void kill_one(unsigned gate)
{
	const uint64_t incarnation = W.gate[gate].gw->incarnation;
	const bool keep = !W.may.machines || world_chance(60);
	struct event *e;

	process_dies(gate, keep);
	for (unsigned g = 0; g < GATES && incarnation; g++)
		if (g != gate && W.gate[g].gw && world_chance(50)) {
			e = event_new(g, reaped_comes, world_random(50 * MS));
			e->a = gate;
			e->b = incarnation;
		}
	e = event_new(GATES, restart,
		      world_random(world_chance(40) ? 100 * MS :
				   keep		    ? 500 * MS :
						      1500 * MS));
	e->b = gate;
	e->a = !world_chance(10);
}

static void crash(struct event *e)
{
	if (W.gate[e->gate].gw && !W.healing)
		kill_one(e->gate);
}

static void crash_point(unsigned gate, unsigned permille)
{
	if (W.may.kills && !W.may.single && !W.healing && W.now > SEC + SEC / 2 &&
	    world_random(1000) < permille)
		event_new(gate, crash, world_random(world_chance(50) ? MS : 20 * MS));
}

/* ---- trouble --------------------------------------------------------------------------------- */
static int owner_of(void)
{
	for (unsigned g = 0; g < GATES; g++)
		if (W.gate[g].gw && W.gate[g].state == GW_ACTIVE && lease_holds(g))
			return (int)g;
	return -1;
}

static bool all_is_well(void)
{
	struct gw_lu_object o;
	const int owner = owner_of();

	for (unsigned g = 0; g < GATES; g++)
		if (!W.gate[g].gw)
			return false;
	return owner >= 0 && unit_says(&o) && o.mirror.state == GW_MIRROR_VALID &&
	       o.owner == owner && o.claim == GW_OWNED && o.mirror.peer != owner &&
	       W.gate[owner].mo && W.gate[owner].mo->mode == MIRROR_VALID;
}

static void uncut(struct event *e)
{
	W.gate[e->b].cut = false;
}

static void unmute(struct event *e)
{
	W.gate[e->b].mute[e->a] = W.gate[e->a].mute[e->b] = false;
}

static void mute(unsigned a, unsigned b, uint64_t time)
{
	struct event *e = event_new(GATES, unmute, time);

	world_says("gates %u and %u cannot hear each other", a, b);
	W.gate[a].mute[b] = W.gate[b].mute[a] = true;
	e->b = a;
	e->a = b;
}

/* The owner or its peer more often than the third. */
static unsigned someone(void)
{
	struct gw_lu_object o;

	if (!unit_says(&o) || world_chance(20))
		return (unsigned)world_random(GATES);
	if (o.mirror.state == GW_MIRROR_VALID && world_chance(50))
		return o.mirror.peer;
	return o.owner < GATES ? o.owner : 0;
}

static void trouble(struct event *e)
{
	const unsigned g = someone(), other = (g + 1 + (unsigned)world_random(2)) % GATES;

	if (W.now < TROUBLE_UNTIL)
		event_new(GATES, trouble,
			  world_chance(30) ? world_random(20 * MS) :
					     20 * MS + world_random(600 * MS));
	/* What has failed is known, and made good. */
	if (W.may.single && (!all_is_well() || W.now - W.trouble_at < 800 * MS))
		return;
	W.trouble_at = W.now;
	switch (world_random(8)) {
	case 0:
	case 1:
		if (W.may.kills && W.gate[g].gw)
			kill_one(g);
		break;
	case 2:
	case 3:
		if (W.may.breaks) {
			world_says("the links of gates %u and %u break", g, other);
			W.breaks++;
			link_breaks(g, other);
		}
		break;
	case 4:
		if (W.may.mutes && !W.gate[g].mute[other])
			mute(g, other, world_random(600 * MS));
		break;
	case 5:
		if (W.may.cuts && !W.gate[g].cut) {
			world_says("gate %u is cut off from RADOS", g);
			W.gate[g].cut = true;
			event_new(GATES, uncut, world_random(900 * MS))->b = g;
		}
		break;
	case 6:
		if (W.may.slow)
			W.slow_until = W.now + world_random(400 * MS);
		break;
	default:
		if (W.may.moves && W.gate[g].gw) {
			W.moves++;
			gw_move(W.gate[g].gw, 0, other, W.now);
		}
	}
}

static void heal(struct event *e)
{
	world_says("all is well again");
	W.healing = true;
	for (unsigned g = 0; g < GATES; g++) {
		W.gate[g].cut = false;
		memset(W.gate[g].mute, 0, sizeof(W.gate[g].mute));
		if (!W.gate[g].gw)
			process_starts(g, true);
	}
}

/* Does anybody have what the object says that only two have? */
static bool is_somewhere(const struct gw_lu_object *o)
{
	const struct gw_mirror *m = &o->mirror;
	const struct gate *peer = &W.gate[m->peer % GATES];

	if (m->state != GW_MIRROR_VALID || W.gate[o->owner % GATES].stamp == o->epoch)
		return true;
	for (unsigned i = 0; i < MSLOTS; i++)
		if (peer->mstamp[i].mirror == m->epoch &&
		    peer->mstamp[i].incarnation == m->incarnation)
			return true;
	return false;
}

/* An administrator gives up what is lost, and later looks at it. */
static void administrator(struct event *e)
{
	struct gw_lu_object o;
	const int owner = owner_of();

	event_new(GATES, administrator, 100 * MS);
	if (!unit_says(&o))
		return;
	if (owner >= 0 && o.mirror.state == GW_MIRROR_DOUBT && W.gate[owner].mo) {
		mirror_owner_refresh(W.gate[owner].mo, W.now);
		return;
	}
	for (unsigned g = 0; g < GATES && !is_somewhere(&o); g++)
		if (W.gate[g].gw && !gw_mirror_force(W.gate[g].gw, 0, W.now)) {
			if (o.mirror.peer != o.owner &&
			    !W.peer_lost[o.mirror.epoch % ARRAY_SIZE(W.peer_lost)])
				world_fails("mirror %llu is gone, and its peer is not to blame",
					    (unsigned long long)o.mirror.epoch);
			if (W.doubt % 2 == 0) { /* reads sent from now on are judged later */
				W.doubt++;
				W.doubts++;
				memset(W.floor, 0, sizeof(W.floor));
			}
			return;
		}
}

/* ---- a seed ---------------------------------------------------------------------------------- */
static void world_begin(uint64_t seed, const struct profile *may)
{
	const bool trace = W.trace;

	memset(&W, 0, offsetof(struct world, group));
	memset(W.group, 0, sizeof(W.group));
	memset(W.command, 0, sizeof(struct world) - offsetof(struct world, command));
	W.trace = trace;
	W.rng = seed * 0x2545f4914f6cdd1dull + 1;
	W.seed = seed;
	W.now = SEC;
	W.size = BLOCKS;
	W.may = *may;
	for (unsigned g = 0; g < GATES; g++) {
		W.gate[g].life = 1;
		process_starts(g, true);
	}
	for (unsigned i = 0; i < INITIATORS && !may->calm; i++)
		initiator_later(i, 200 * MS + world_random(100 * MS));
	event_new(GATES, administrator, 100 * MS);
}

static void owners_check(void)
{
	unsigned owners = 0;

	for (unsigned g = 0; g < GATES; g++)
		owners += W.gate[g].gw && W.gate[g].state == GW_ACTIVE && lease_holds(g);
	if (owners > 1)
		world_fails("there are %u owners", owners);
}

static void world_run(uint64_t until)
{
	while (!*W.failed && W.heaped && W.heap[0]->at <= until) {
		event_step();
		owners_check();
		sum.events++;
	}
	W.now = MAX(W.now, until);
}

static void world_end(void)
{
	const uint64_t *from = &W.reads;

	for (unsigned g = 0; g < GATES; g++)
		if (W.gate[g].gw)
			process_ends(g);
	events_free();
	for (unsigned i = 0; i < ARRAY_SIZE(sum.of); i++)
		sum.of[i] += from[i];
}

static struct profile profile_of(uint64_t seed)
{
	struct profile p = { .resizes = seed & 8, .small = seed & 16, .breaks = true };

	switch (seed % 8) {
	case 0:
		p.single = p.kills = p.machines = p.mutes = true;
		return p;
	case 1:
		p.kills = true;
		return p;
	case 2:
		p.mutes = p.slow = true;
		return p;
	case 3:
		p.moves = p.mutes = true;
		return p;
	case 4:
		p.kills = p.machines = p.slow = true;
		return p;
	case 5:
		p.cuts = p.mutes = p.moves = true;
		return p;
	default:
		p.kills = p.machines = p.mutes = p.cuts = p.slow = p.moves = true;
		return p;
	}
}

/* False: W.failed says what went wrong. */
static bool seed_run(uint64_t seed)
{
	const struct profile may = profile_of(seed);

	world_begin(seed, &may);
	event_new(GATES, trouble, SEC);
	event_new(GATES, heal, TROUBLE_UNTIL - W.now);
	world_run(HEALED_UNTIL);
	if (!*W.failed && owner_of() < 0)
		world_fails("nobody serves when all is well");
	if (!*W.failed && W.acked_at + 2 * SEC < W.now)
		world_fails("nothing is written when all is well");
	if (!*W.failed && !all_is_well())
		world_fails("there is no mirror when all is well");
	if (may.single && W.doubts)
		world_fails("one failure alone leaves the unit in doubt");
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

static void figures(uint64_t n, double seconds)
{
	static const char *const names[] = { "reads",		"writes",    "groups",
					     "unmaps",		"cuts",	     "kills",
					     "memory lost",	"breaks",    "moves",
					     "in doubt",	"takeovers", "resumed",
					     "tombstones taken" };
	const struct mirror_show *o = &sum.owner;
	const struct mirror_peer_show *p = &sum.peer;

	printf("# %llu seeds, %llu events, %.1f s\n#", (unsigned long long)n,
	       (unsigned long long)sum.events, seconds);
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
		printf(" %s %llu%s", names[i], (unsigned long long)sum.of[i],
		       i + 1 < ARRAY_SIZE(names) ? "," : "\n");
	printf("# owners: writes %llu, batches %llu, releases %llu, zeros %llu, sessions %llu, "
	       "dismissals %llu, fills %llu, written out %llu\n",
	       (unsigned long long)o->writes, (unsigned long long)o->batches,
	       (unsigned long long)o->releases, (unsigned long long)o->zeros,
	       (unsigned long long)o->sessions, (unsigned long long)o->dismissals,
	       (unsigned long long)o->fills, (unsigned long long)o->out);
	printf("# peers: frames %llu, writes %llu, groups %llu, releases %llu, tombs %llu, refused "
	       "%llu, seals %llu, taken %llu, dropped %llu\n",
	       (unsigned long long)p->frames, (unsigned long long)p->writes,
	       (unsigned long long)p->groups, (unsigned long long)p->releases,
	       (unsigned long long)p->tombs, (unsigned long long)p->refused,
	       (unsigned long long)p->seals, (unsigned long long)p->taken,
	       (unsigned long long)p->dropped);
	if (n < 2000)
		return;
	/* What the seeds are about has happened. */
	for (unsigned i = 0; i < ARRAY_SIZE(sum.of); i++)
		ck_assert_msg(sum.of[i] > 0, "%s: none", names[i]);
	for (unsigned i = 0; i < 8; i++)
		ck_assert_msg((&o->writes)[i] > 0, "figure %u of the owners is 0", i);
	for (unsigned i = 0; i < 9; i++)
		ck_assert_msg((&p->frames)[i] > 0, "figure %u of the peers is 0", i);
}

START_TEST(seeds)
{
	const uint64_t one = env("TGT_MIRROR_SEED", 0), n = env("TGT_MIRROR_SEEDS", SEEDS);
	const uint64_t from = env("TGT_MIRROR_FROM", 1);
	struct timespec a, b;

	mirror_broken = (unsigned)env("TGT_MIRROR_BROKEN", 0);
	if (one) {
		W.trace = true;
		ck_assert_msg(seed_run(one), "seed %llu: %s", (unsigned long long)one, W.failed);
		return;
	}
	memset(&sum, 0, sizeof(sum));
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (uint64_t seed = from; seed < from + n; seed++)
		if (!seed_run(seed)) {
			W.trace = true;
			seed_run(seed);
			W.trace = false;
			ck_abort_msg("seed %llu: %s", (unsigned long long)seed, W.failed);
		}
	clock_gettime(CLOCK_MONOTONIC, &b);
	figures(n, (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9);
}
END_TEST

#include "tests/sim/mirror_rules.c"

/* ---- the rules, broken ----------------------------------------------------------------------- */
#define BROKEN_SEEDS 4000

static const char *const rules[MIRROR_RULES] = {
	[BREAK_ACK] = "answered when the peer has it",
	[BREAK_SHOW] = "no read of the unacknowledged",
	[BREAK_ONE_FRAME] = "one frame of a block at a time",
	[BREAK_NEWEST] = "the newest generation wins",
	[BREAK_RELEASE] = "released when the store has it",
	[BREAK_RELEASE_GEN] = "a release names its generation",
	[BREAK_TOMB_FIRST] = "the tombstone first, then the store",
	[BREAK_TOMB_KEPT] = "tombstones stay until the store has done it",
	[BREAK_TOMB_DROPS] = "pages below a tombstone go",
	[BREAK_UNZERO] = "a range is free when the peer has forgotten the tombstone",
	[BREAK_GROUP] = "a group is one frame",
	[BREAK_LOSING] = "what the lost peer lacks is not answered",
	[BREAK_OUT] = "INVALID when all is written out",
	[BREAK_COPY] = "VALID (T) when all is copied",
	[BREAK_SETTING] = "a new peer counts when the object names it",
	[BREAK_RESUME] = "a peer that has lost its pages is lost",
	[BREAK_SESSION] = "frames of the newest session alone",
	[BREAK_FRESH] = "a valid mirror is not begun anew",
	[BREAK_SEAL] = "nothing is acknowledged behind the seal",
	[BREAK_CLIP] = "clipped to the size",
	[BREAK_STAMP] = "the stamp that the object names",
	[BREAK_DISMISS] = "a silent peer is dismissed",
	[BREAK_FOUND] = "what a restarted owner finds is not shown at once",
	[BREAK_CLAIM] = "only the owner or its peer may claim",
	[BREAK_UNSEALED] = "seal, then claim",
	[BREAK_ARENA] = "an owner claims by its arena",
	[BREAK_HANDED] = "a hand-over ends the mirror",
};

START_TEST(broken_rule_is_noticed)
{
	const unsigned rule = (unsigned)_i;
	uint64_t seed = 1;
	bool well = true;

	mirror_broken = rule;
	for (unsigned i = 0; i < ARRAY_SIZE(histories) && well; i++)
		well = histories[i]();
	if (!well)
		snprintf(W.failed, sizeof(W.failed), "a history");
	for (; seed <= BROKEN_SEEDS && well; seed++)
		well = seed_run(seed);
	mirror_broken = 0;
	printf("# %-58s %s%llu: %s\n", rules[rule], well ? "NOT in " : "seed ",
	       (unsigned long long)seed - 1, W.failed);
	ck_assert_msg(!well, "%s: broken, and not noticed", rules[rule]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mirror");
	TCase *t = tcase_create("mirror");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 0);
	suite_add_tcase(s, t);
	tcase_add_loop_test(t, histories_go_by_the_rules, 0, ARRAY_SIZE(histories));
	tcase_add_test(t, seeds);
	if (BREAKS && !getenv("TGT_MIRROR_SEED") && !env("TGT_MIRROR_SEEDS", 0))
		tcase_add_loop_test(t, broken_rule_is_noticed, 1, MIRROR_RULES);
	r = srunner_create(s);
	srunner_set_fork_status(r, CK_NOFORK);
	srunner_set_tap(r, "-");
	srunner_run_all(r, CK_SILENT);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
