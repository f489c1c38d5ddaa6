/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The rules of ownership, one history each, in a world where nothing else goes wrong. Included by
 * test_gateway.c.
 */
#include "tests/sim/gateway_world.h"

static const struct profile calm = { .even = true, .alone = true, .quiets = true };

static int owner_of(unsigned unit)
{
	int owner = -1;

	for (unsigned g = 0; g < GATES; g++)
		if (W.gate[g].gw && W.gate[g].lun[unit].state == GW_ACTIVE && lease_holds(g) &&
		    !W.gate[g].stopped)
			owner = (int)g;
	return owner;
}

/* Three gateways, each unit at its home. */
static void calm_world(void)
{
	world_begin(7, &calm);
	world_run(W.now + 5 * SEC);
	ck_assert_str_eq(W.failed, "");
	ck_assert_int_eq(owner_of(0), 0);
	ck_assert_int_eq(owner_of(1), 1);
}

static void calm_end(void)
{
	ck_assert_msg(!*W.failed, "%s", W.failed);
	world_end();
}

/* Until @unit is owned by another than @before: how long that took. */
static uint64_t until_taken(unsigned unit, int before)
{
	const uint64_t from = W.now;

	while (W.now < from + 20 * SEC && (owner_of(unit) < 0 || owner_of(unit) == before))
		world_run(W.now + MS);
	ck_assert_msg(owner_of(unit) >= 0, "unit %u: nobody took it", unit);
	return W.now - from;
}

/* What was done to RADOS about unit 0 since the last call. */
static const char *steps(void)
{
	static char text[sizeof(W.steps)];

	memcpy(text, W.steps, sizeof(text));
	memset(W.steps, 0, sizeof(W.steps));
	return text;
}

static struct gw_lu_object unit_says(unsigned unit)
{
	struct gw_lu_object o;
	const struct object *b = &W.unit[unit].object;

	ck_assert_ptr_null(gw_decode_lu(&o, b->data, b->len));
	return o;
}

START_TEST(rule_1_a_lease_ends_by_itself)
{
	calm_world();
	process_stops(0, 6 * SEC);
	world_run(W.now + 1490 * MS - 400 * MS - 60 * MS);
	ck_assert(lease_holds(0)); /* slowest clock: it was renewed 0.4 s ago at most */
	world_run(W.now + 700 * MS);
	ck_assert(!lease_holds(0));
	until_taken(0, 0);
	gate_wakes(0); /* nothing has run there yet */
	ck_assert_int_eq(W.gate[0].lun[0].state, GW_ACTIVE);
	ck_assert(!lease_holds(0));
	calm_end();
}
END_TEST

/* Until the state of @unit at @gate is @state. */
static void until_state(unsigned gate, unsigned unit, enum gw_state state)
{
	const uint64_t from = W.now;

	while (W.gate[gate].lun[unit].state != state && W.now < from + 5 * SEC)
		world_run(W.now + MS / 10);
	ck_assert_int_eq(W.gate[gate].lun[unit].state, state);
}

/* The object has said OWNED, and who wrote that learns it when the next owner serves. */
START_TEST(rule_1_a_late_answer_lets_nobody_serve)
{
	uint64_t from;

	calm_world();
	gw_move(W.gate[1].gw, 0, 2, local_time(1));
	steps();
	for (from = W.now; !strchr(W.steps, 'O') && W.now < from + SEC;)
		world_run(W.now + MS / 10);
	link_cut(2, 1200 * MS); /* its renewal stays in doubt for longer */
	for (from = W.now; unit_says(0).claim != GW_OWNED && W.now < from + 2 * SEC;)
		world_run(W.now + MS / 10);
	process_stops(2, SEC); /* shorter than a lease: it cannot know that it was */
	until_taken(0, 2);
	ck_assert(W.gate[2].stopped);
	until_state(2, 0, GW_ACTIVE);
	ck_assert(!lease_holds(2));
	ck_assert_int_ne(owner_of(0), 2);
	ck_assert_int_ne(W.unit[0].lock, W.gate[2].client);
	until_state(2, 0, GW_STANDBY);
	world_run(W.now + SEC);
	ck_assert_uint_eq(W.gate[2].gw->incarnation, 2);
	calm_end();
}
END_TEST

START_TEST(rule_2_taking_waits_for_the_lease)
{
	uint64_t time;

	calm_world();
	process_stops(0, 6 * SEC);
	time = until_taken(0, 0);
	ck_assert_msg(time > 1500 * MS && time < 3000 * MS, "%llu ms",
		      (unsigned long long)(time / MS));
	calm_end();
}
END_TEST

/* It died, and an administrator removed its object: nobody can depose it. */
START_TEST(rule_2_who_has_no_object_any_more_is_over)
{
	calm_world();
	process_dies(0, false);
	object_removed(0);
	ck_assert_uint_lt(until_taken(0, 0), 5 * SEC);
	process_starts(0, true);
	world_run(W.now + 3 * SEC);
	ck_assert_int_eq(W.gate[0].lun[0].state, GW_STANDBY);
	calm_end();
}
END_TEST

START_TEST(rule_2_the_keepers_word_skips_the_wait)
{
	struct event *e;
	uint64_t time;

	calm_world();
	process_dies(0, false);
	for (unsigned g = 1; g < GATES; g++) {
		e = event_new(g, reaped_comes, 10 * MS);
		e->a = 0;
		e->b = 1;
	}
	time = until_taken(0, 0);
	ck_assert_msg(time < 800 * MS, "%llu ms", (unsigned long long)(time / MS));
	calm_end();
}
END_TEST

START_TEST(rule_2_a_slow_rados_deposes_nobody)
{
	calm_world();
	W.stall_until = W.now + 6 * SEC;
	world_run(W.now + 10 * SEC);
	for (unsigned g = 0; g < GATES; g++)
		ck_assert_uint_eq(W.gate[g].gw->counts.depositions, 0);
	ck_assert_int_ge(owner_of(0), 0);
	ck_assert_int_ge(owner_of(1), 0);
	calm_end();
}
END_TEST

/* C claimed, F fenced, M map, O opened, L lock, B broken, A owned, U unlocked, R free. */
START_TEST(rule_3_the_order_of_a_takeover)
{
	calm_world();
	steps();
	process_stops(0, 20 * SEC);
	until_taken(0, 0);
	/* The third gateway keeps up the same fence, at any point behind the claim. */
	ck_assert_msg(strspn(W.steps, "CFMOLBA") == strlen(W.steps) && W.steps[0] == 'C' &&
			      strstr(W.steps, "LBL"),
		      "%s", W.steps);
	ck_assert(strchr(W.steps, 'F') < strchr(W.steps, 'M'));
	ck_assert(strchr(W.steps, 'M') < strchr(W.steps, 'O'));
	ck_assert(strchr(W.steps, 'O') < strchr(W.steps, 'L'));
	ck_assert(strchr(W.steps, 'A') > strrchr(W.steps, 'L'));
	calm_end();
}
END_TEST

START_TEST(rule_3_a_taker_that_dies_is_fenced_too)
{
	struct gw_lu_object o;

	calm_world();
	steps();
	process_stops(0, 30 * SEC);
	while (!strchr(W.steps, 'C'))
		world_run(W.now + MS / 10);
	o = unit_says(0);
	ck_assert_uint_eq(o.claim, GW_CLAIMED);
	process_stops(o.owner, 30 * SEC);
	until_taken(0, 0);
	ck_assert(W.client[0 + 1].fenced_at && W.client[o.owner + 1].fenced_at);
	o = unit_says(0);
	ck_assert_uint_eq(o.nfences, 0);
	ck_assert_uint_eq(o.epoch, 3);
	calm_end();
}
END_TEST

START_TEST(rule_4_fences_hold_until_the_old_one_is_proved_dead)
{
	int old;

	calm_world();
	old = W.gate[0].client;
	process_stops(0, 25 * SEC);
	until_taken(0, 0);
	ck_assert_uint_eq(unit_says(0).nfences, 0); /* nobody has to remember it */
	ck_assert_msg(W.client[old].expires > W.now + 300000000 * SEC, "the fence expires");
	world_run(W.now + 15 * SEC);
	ck_assert(W.client[old].fenced_at);
	world_run(W.now + 15 * SEC); /* it went on, and registered anew */
	ck_assert(W.client[old].ended);
	ck_assert(!W.client[old].fenced_at);
	ck_assert_uint_eq(W.gate[0].gw->peer[0].obj.npast, 0);
	calm_end();
}
END_TEST

/* Keeper and worker die, again and again: the kernel knows that they are gone. */
START_TEST(rule_4_no_takeover_takes_longer_than_the_one_before)
{
	calm_world();
	for (unsigned i = 0; i < 20; i++) {
		const int owner = owner_of(0);
		uint64_t time;

		process_dies((unsigned)owner, false);
		time = until_taken(0, owner);
		ck_assert_msg(time < 3000 * MS, "kill %u: %llu ms", i,
			      (unsigned long long)(time / MS));
		ck_assert_uint_eq(unit_says(0).nfences, 0);
		process_starts((unsigned)owner, false);
		world_run(W.now + 3 * SEC);
		ck_assert_uint_eq(W.gate[owner].lun[0].state, GW_STANDBY);
		ck_assert_uint_eq(W.gate[owner].gw->counts.proofs, 1);
	}
	world_run(W.now + 20 * SEC);
	ck_assert_uint_eq(W.lifted, 20);
	ck_assert_uint_eq(W.most_fences, 1);
	calm_end();
}
END_TEST

/* More than an object has room for, and nobody can tell whether they are gone. */
START_TEST(rule_4_without_a_proof_fences_stay)
{
	int old, fenced = 0;

	calm_world();
	for (unsigned i = 0; i < 20; i++) {
		const int owner = owner_of(0);

		W.may.elsewhere = true;
		process_dies((unsigned)owner, false);
		until_taken(0, owner);
		process_starts((unsigned)owner, false);
		world_run(W.now + 6 * SEC);
		ck_assert_uint_eq(W.gate[owner].lun[0].state, GW_STANDBY);
		ck_assert_uint_eq(unit_says(0).nfences, 0);
	}
	world_run(W.now + 20 * SEC);
	for (old = 0; old < W.clients; old++)
		fenced += W.client[old].fenced_at != 0;
	ck_assert_int_eq(fenced + (int)W.lifted, 20);
	ck_assert_uint_le(W.lifted, GATES); /* the first ones' names are known */
	calm_end();
}
END_TEST

START_TEST(rule_5_coming_back)
{
	int old;

	calm_world();
	old = W.gate[0].client;
	process_stops(0, 5 * SEC);
	world_run(W.now + 8 * SEC);
	ck_assert_int_ne(owner_of(0), 0);
	ck_assert(W.client[old].ended && W.gate[0].client != old);
	ck_assert(!W.gate[0].lun[0].open);
	ck_assert_uint_eq(W.gate[0].gw->incarnation, 2);
	ck_assert_uint_eq(W.gate[0].lun[0].state, GW_STANDBY);
	gw_move(W.gate[1].gw, 0, GW_NOBODY, local_time(1)); /* usable again: it goes home */
	world_run(W.now + 3 * SEC);
	ck_assert_int_eq(owner_of(0), 0);
	calm_end();
}
END_TEST

START_TEST(rule_6_which_arena_wins)
{
	struct event *e;

	calm_world();
	steps();
	process_dies(0, true);
	e = event_new(GATES, restart, 100 * MS);
	e->a = true; /* the keeper's word */
	world_run(W.now + 2 * SEC);
	ck_assert_int_eq(owner_of(0), 0);
	ck_assert_uint_eq(W.kept, 1);
	ck_assert_uint_eq(unit_says(0).epoch, 1);
	ck_assert_msg(!strncmp(W.steps, "CF", 2), "its predecessor is fenced first: %s", W.steps);
	/* Once more, and another owner is between: nothing of the arena counts. */
	process_dies(0, true);
	until_taken(0, 0);
	process_starts(0, true);
	world_run(W.now + SEC);
	gw_move(W.gate[0].gw, 0, 0, local_time(0));
	world_run(W.now + 8 * SEC);
	ck_assert_int_eq(owner_of(0), 0);
	ck_assert_uint_eq(W.kept, 1);
	ck_assert_uint_eq(unit_says(0).epoch, 3);
	calm_end();
}
END_TEST

/* Whoever asks, its key is the same. */
static struct command *change_begins(unsigned gate, enum pr_action action)
{
	struct command *c = command_new();

	*c = (struct command){ .op = OP_RESERVE,
			       .gate = (uint8_t)gate,
			       .initiator = INITIATORS,
			       .serial = ++W.serials,
			       .action = (uint8_t)action,
			       .type = PR_WRITE_EXCLUSIVE,
			       .stamp = INITIATORS + 1 };
	gw_change(W.gate[gate].gw, 0, c->serial, local_time(gate));
	return c;
}

/* A change at @gate: how long until it is answered. */
static uint64_t reserve_at(unsigned gate)
{
	const uint64_t from = W.now;
	struct command *c = change_begins(gate, PR_REGISTER_AND_IGNORE);

	while (c->op != OP_NONE && W.now < from + 20 * SEC)
		world_run(W.now + MS);
	ck_assert_uint_eq(c->op, OP_NONE);
	return W.now - from;
}

START_TEST(rule_7_the_owner_obeys_before_good)
{
	uint64_t time;

	calm_world();
	time = reserve_at(2);
	ck_assert_msg(time < SEC, "%llu ms", (unsigned long long)(time / MS));
	ck_assert_uint_eq(W.gate[0].lun[0].gen, 1);
	reserve_at(0); /* at the owner itself */
	ck_assert_uint_eq(W.gate[0].lun[0].gen, 2);
	/* The owner cannot be asked: it is deposed, and who comes after it obeys. */
	for (unsigned g = 1; g < GATES; g++)
		W.gate[0].mute[g] = W.gate[g].mute[0] = true;
	W.gate[0].gw->poll_ns = W.gate[0].gw->lu[0].next_poll = UINT64_MAX / 2;
	reserve_at(2);
	ck_assert_int_ge(owner_of(0), 0);
	ck_assert_uint_eq(unit_says(0).epoch, 2);
	ck_assert_uint_eq(W.gate[2].gw->counts.asks_deposed, 1);
	ck_assert_uint_eq(W.gate[owner_of(0)].lun[0].gen, 3);
	calm_end();
}
END_TEST

/* Another change comes while a look is under way, and the question of before comes late. */
START_TEST(rule_7_a_look_is_answered_for_what_it_shows)
{
	const struct gateway *second;
	struct gw_msg late = { .kind = GW_MSG_ASK, .epoch = 1, .gen = 1 };
	struct command *written, *reserved, *looked;
	uint8_t bytes[GW_MESSAGE_MAX];

	calm_world();
	second = W.gate[1].gw;
	reserve_at(2);
	written = command_new();
	*written = (struct command){ .op = OP_WRITE, .initiator = 1, .life = W.gate[0].life };
	W.gate[1].mute[0] = true;
	looked = command_new();
	*looked = (struct command){ .op = OP_LOOK, .gate = 1, .initiator = INITIATORS };
	looked->serial = ++W.serials;
	gw_look(W.gate[1].gw, 0, looked->serial, local_time(1));
	world_run(W.now + 100 * MS);
	ck_assert_uint_eq(second->ask[0].gen, 1);
	late.lu = second->lu[0].hash;
	late.cookie = second->ask[0].serial;
	reserved = change_begins(2, PR_RESERVE);
	world_run(W.now + 100 * MS);
	ck_assert_uint_eq(W.gate[0].lun[0].denied, 7); /* it waits for the write */
	W.gate[1].mute[0] = false;
	world_run(W.now + 500 * MS);
	ck_assert_uint_eq(second->ask[0].gen, 2);
	gw_message(W.gate[0].gw, 1, bytes, gw_encode_msg(&late, bytes), local_time(0));
	world_run(W.now + 100 * MS);
	ck_assert_uint_eq(reserved->op, OP_RESERVE);
	ck_assert_uint_eq(looked->op, OP_LOOK);
	command_ends(written, 0, 0);
	world_run(W.now + 500 * MS);
	ck_assert_uint_eq(reserved->op, OP_NONE);
	ck_assert_uint_eq(looked->op, OP_NONE);
	calm_end();
}
END_TEST

START_TEST(rule_8_a_hand_over_fences_nobody)
{
	const char *did;

	calm_world();
	steps();
	gw_move(W.gate[1].gw, 0, 2, local_time(1));
	world_run(W.now + 3 * SEC);
	ck_assert_int_eq(owner_of(0), 2);
	did = steps();
	ck_assert_str_eq(did, "URCMOLA");
	ck_assert_int_eq(owner_of(1), 1);
	/* And when it leaves, others have its units before it says so. */
	gw_leave(W.gate[2].gw, local_time(2));
	world_run(W.now + 5 * SEC);
	ck_assert(gw_left(W.gate[2].gw));
	ck_assert_int_ge(owner_of(0), 0);
	ck_assert_ptr_null(strchr(steps(), 'F'));
	calm_end();
}
END_TEST

/* One that has just come up has not seen yet that the wanted one is well. */
START_TEST(rule_8_who_has_just_come_up_leaves_it_to_the_wanted_one)
{
	calm_world();
	process_dies(2, false);
	world_run(W.now + 3 * SEC);
	W.gate[0].mute[1] = true; /* the hint is lost: the wanted one is late */
	process_starts(2, true);
	while (W.gate[2].gw->self_step != SELF_UP)
		world_run(W.now + MS / 10);
	gw_move(W.gate[0].gw, 0, 1, local_time(0));
	while (unit_says(0).claim != GW_FREE)
		world_run(W.now + MS / 10);
	gw_hint(W.gate[2].gw, 0, local_time(2));
	world_run(W.now + 4 * SEC);
	ck_assert_int_eq(owner_of(0), 1);
	ck_assert_uint_eq(unit_says(0).epoch, 2);
	ck_assert_uint_eq(unit_says(0).wanted, GW_NOBODY);
	calm_end();
}
END_TEST

/* It hears of nothing, and claims nothing, so gate 2 is the one that takes what others leave. */
static void gate_1_is_late(void)
{
	struct gw_lu *lu = &W.gate[1].gw->lu[0];

	W.gate[2].mute[1] = W.gate[0].mute[1] = true;
	lu->next_poll = lu->avoid_until = W.gate[1].gw->last + 5 * SEC;
}

/* The owner dies before it has handed it over: who takes it does what was asked for. */
START_TEST(rule_8_a_wish_outlives_the_owner)
{
	calm_world();
	gw_move(W.gate[2].gw, 0, 1, local_time(2));
	while (unit_says(0).wanted != 1)
		world_run(W.now + MS / 10);
	gate_1_is_late();
	process_dies(0, false);
	until_taken(0, 0);
	world_run(W.now + 6 * SEC);
	ck_assert_int_eq(owner_of(0), 1);
	ck_assert_uint_eq(unit_says(0).wanted, GW_NOBODY);
	ck_assert_uint_gt(unit_says(0).epoch, 2); /* another one had it in between */
	calm_end();
}
END_TEST

/* The unit was removed where it is to go. It is not handed over again and again. */
START_TEST(rule_8_a_wish_that_nobody_fulfils_is_forgotten)
{
	calm_world();
	ck_assert_int_eq(gw_lu_remove(W.gate[2].gw, 0, local_time(2)), 0);
	W.gate[2].lun[0].configured = false;
	gw_move(W.gate[0].gw, 0, 2, local_time(0));
	world_run(W.now + 12 * SEC);
	ck_assert_int_ge(owner_of(0), 0);
	ck_assert_uint_eq(unit_says(0).wanted, GW_NOBODY);
	ck_assert_uint_le(W.gate[0].gw->counts.handovers + W.gate[1].gw->counts.handovers, 2);
	calm_end();
}
END_TEST

/* Who is on the way to ownership is told that the unit goes elsewhere: no claim forgets that. */
START_TEST(rule_8_an_order_amid_a_claim_replaces_the_wish)
{
	uint64_t from;

	calm_world();
	W.may.prompt = true; /* claims are looked at */
	gw_move(W.gate[2].gw, 0, 1, local_time(2));
	while (unit_says(0).wanted != 1)
		world_run(W.now + MS / 10);
	gate_1_is_late();
	process_dies(0, false);
	for (from = W.now; unit_says(0).claim != GW_CLAIMED && W.now < from + 5 * SEC;)
		world_run(W.now + MS / 10);
	ck_assert_uint_eq(unit_says(0).owner, 2);
	ck_assert_uint_eq(unit_says(0).wanted, 1);
	gw_move(W.gate[2].gw, 0, 2, local_time(2));
	world_run(W.now + 3 * SEC);
	ck_assert_int_eq(owner_of(0), 2);
	ck_assert_uint_eq(unit_says(0).wanted, 2);
	world_run(W.now + 6 * SEC); /* the one before hears of it, and does not want it back */
	ck_assert_int_eq(owner_of(0), 2);
	calm_end();
}
END_TEST

/* A look brings what another unit's object says, by a mistake below: nothing of it is believed, and
 * no order writes it over what this one says, though both have one version. */
START_TEST(rule_8_an_object_of_another_unit_says_nothing)
{
	const struct object *own = &W.unit[0].object, *other = &W.unit[1].object;
	struct gw_lu *lu;

	calm_world();
	lu = &W.gate[2].gw->lu[0];
	ck_assert_uint_eq(unit_says(0).unit, lu->hash);
	gw_hint(W.gate[2].gw, 0, local_time(2));
	ck_assert_int_eq(lu->cell.step, CELL_READING);
	gw_read_done(W.gate[2].gw, lu->cell.id, 0, own->version, other->data, other->len,
		     local_time(2));
	ck_assert(!lu->cell.known && lu->cell.bad);
	ck_assert_int_eq(W.gate[2].lun[0].state, GW_UNAVAILABLE);
	gw_move(W.gate[2].gw, 0, 2, local_time(2));
	world_run(W.now + 3 * SEC);
	ck_assert_uint_eq(unit_says(0).epoch, 2);
	ck_assert_int_eq(owner_of(0), 2);
	ck_assert_int_eq(owner_of(1), 1);
	calm_end();
}
END_TEST

START_TEST(rule_9_transitioning_until_it_is_settled)
{
	struct gate *third = &W.gate[2];

	calm_world();
	ck_assert_int_eq(third->lun[0].state, GW_STANDBY);
	ck_assert_int_eq(gw_port_state(third->gw, 0, 0), GW_ACTIVE);
	process_stops(0, 20 * SEC);
	world_run(W.now + 1900 * MS);
	ck_assert_int_eq(third->lun[0].state, GW_TRANSITIONING);
	ck_assert_int_eq(gw_port_state(third->gw, 0, 0), GW_TRANSITIONING);
	ck_assert_int_eq(third->lun[1].state, GW_STANDBY);
	world_run(W.now + 3 * SEC);
	ck_assert_int_ne(third->lun[0].state, GW_TRANSITIONING);
	ck_assert_int_eq(gw_port_state(third->gw, 0, 0), GW_UNAVAILABLE);
	calm_end();
}
END_TEST

/* Its last renewal is seen late, since RADOS could not be reached: it says nothing of now. */
START_TEST(rule_9_an_old_renewal_ends_no_doubt)
{
	const struct gate *third = &W.gate[2];
	uint64_t renewed;

	calm_world();
	renewed = W.object[0].written_at;
	while (W.object[0].written_at == renewed)
		world_run(W.now + MS / 10);
	process_stops(0, 20 * SEC);
	link_cut(2, 1400 * MS);
	world_run(W.now + 1390 * MS);
	ck_assert_int_eq(third->lun[0].state, GW_TRANSITIONING);
	for (; unit_says(0).owner == 0; world_run(W.now + MS))
		ck_assert_int_eq(third->lun[0].state, GW_TRANSITIONING);
	until_taken(0, 0);
	calm_end();
}
END_TEST

START_TEST(rule_9_a_reset_goes_to_the_owner)
{
	calm_world();
	gw_reset(W.gate[2].gw, 0, 1, local_time(2));
	world_run(W.now + SEC);
	ck_assert_uint_eq(W.gate[0].lun[0].resets, 1);
	ck_assert_uint_eq(W.resets, 1);
	gw_reset(W.gate[0].gw, 0, 2, local_time(0)); /* it is that itself */
	world_run(W.now + SEC);
	ck_assert_uint_eq(W.gate[0].lun[0].resets, 1);
	ck_assert_uint_eq(W.resets, 1);
	/* The question comes once more: what has begun since it was answered is spared. */
	for (unsigned i = 0; i < 8; i++) {
		const struct gw_asked *q = &W.gate[0].gw->asked[0];
		struct gw_msg m = { .kind = GW_MSG_RESET,
				    .lu = W.gate[0].gw->lu[0].hash,
				    .epoch = 1,
				    .cookie = q->cookie };
		uint8_t bytes[GW_MESSAGE_MAX];

		gw_message(W.gate[0].gw, 2, bytes, gw_encode_msg(&m, bytes), local_time(0));
		world_run(W.now + 10 * MS);
	}
	ck_assert_uint_eq(W.gate[0].lun[0].resets, 1);
	/* Whoever comes after an owner that is gone has nothing left of before. */
	gw_reset(W.gate[2].gw, 0, 3, local_time(2));
	process_dies(0, false);
	world_run(W.now + 6 * SEC);
	ck_assert_uint_eq(W.resets, 2);
	calm_end();
}
END_TEST

START_TEST(rule_9_who_stands_by_hears_of_a_size)
{
	calm_world();
	gw_resized(W.gate[0].gw, 0);
	world_run(W.now + SEC);
	ck_assert_uint_eq(W.gate[0].lun[0].sizes, 0);
	ck_assert_uint_eq(W.gate[1].lun[0].sizes, 1);
	ck_assert_uint_eq(W.gate[2].lun[0].sizes, 1);
	ck_assert_uint_eq(W.gate[2].lun[1].sizes, 0);
	gw_resized(W.gate[2].gw, 0); /* it does not serve it */
	world_run(W.now + SEC);
	ck_assert_uint_eq(W.gate[0].lun[0].sizes, 0);
	ck_assert_uint_eq(W.gate[1].lun[0].sizes, 1);
	calm_end();
}
END_TEST

START_TEST(rule_10_writes_are_held_for_a_snapshot)
{
	calm_world();
	gw_quiesce(W.gate[0].gw, 0, 5, local_time(0));
	ck_assert(W.gate[0].lun[0].held);
	world_run(W.now + 4 * MS);
	ck_assert_uint_eq(W.snapshots, 1);
	ck_assert_uint_gt(W.unit[0].quiet, 0);
	world_run(W.now + SEC);
	ck_assert(!W.gate[0].lun[0].held);
	gw_quiesce(W.gate[1].gw, 0, 6, local_time(1)); /* no owner: -EAGAIN */
	ck_assert_uint_eq(W.snapshots, 1);
	calm_end();
}
END_TEST

/* It takes nearly all of the time to hold writes back: the snapshot has as much once more. */
START_TEST(rule_10_a_snapshot_has_time_of_its_own)
{
	struct command *c;

	calm_world();
	c = command_new();
	*c = (struct command){ .op = OP_WRITE, .gate = 0, .unit = 0, .life = W.gate[0].life };
	gw_quiesce(W.gate[0].gw, 0, 5, local_time(0));
	while (local_time(0) + MS < W.gate[0].gw->lu[0].quiet_until)
		world_run(W.now + MS / 10);
	ck_assert_uint_eq(W.snapshots, 0);
	c->op = OP_NONE;
	lun_quiet_check(0, 0);
	world_run(W.now + MS);
	ck_assert_uint_eq(W.snapshots, 1);
	world_run(W.now + MS);
	gw_tick(W.gate[0].gw, local_time(0));
	ck_assert(W.unit[0].quiet && W.gate[0].lun[0].held);
	world_run(W.now + SEC);
	ck_assert(!W.gate[0].lun[0].held);
	calm_end();
}
END_TEST

static void add_rules(TCase *t)
{
	tcase_add_test(t, rule_1_a_lease_ends_by_itself);
	tcase_add_test(t, rule_1_a_late_answer_lets_nobody_serve);
	tcase_add_test(t, rule_2_taking_waits_for_the_lease);
	tcase_add_test(t, rule_2_who_has_no_object_any_more_is_over);
	tcase_add_test(t, rule_2_the_keepers_word_skips_the_wait);
	tcase_add_test(t, rule_2_a_slow_rados_deposes_nobody);
	tcase_add_test(t, rule_3_the_order_of_a_takeover);
	tcase_add_test(t, rule_3_a_taker_that_dies_is_fenced_too);
	tcase_add_test(t, rule_4_fences_hold_until_the_old_one_is_proved_dead);
	tcase_add_test(t, rule_4_no_takeover_takes_longer_than_the_one_before);
	tcase_add_test(t, rule_4_without_a_proof_fences_stay);
	tcase_add_test(t, rule_5_coming_back);
	tcase_add_test(t, rule_6_which_arena_wins);
	tcase_add_test(t, rule_7_the_owner_obeys_before_good);
	tcase_add_test(t, rule_7_a_look_is_answered_for_what_it_shows);
	tcase_add_test(t, rule_8_a_hand_over_fences_nobody);
	tcase_add_test(t, rule_8_who_has_just_come_up_leaves_it_to_the_wanted_one);
	tcase_add_test(t, rule_8_a_wish_outlives_the_owner);
	tcase_add_test(t, rule_8_a_wish_that_nobody_fulfils_is_forgotten);
	tcase_add_test(t, rule_8_an_order_amid_a_claim_replaces_the_wish);
	tcase_add_test(t, rule_8_an_object_of_another_unit_says_nothing);
	tcase_add_test(t, rule_9_transitioning_until_it_is_settled);
	tcase_add_test(t, rule_9_an_old_renewal_ends_no_doubt);
	tcase_add_test(t, rule_9_a_reset_goes_to_the_owner);
	tcase_add_test(t, rule_9_who_stands_by_hears_of_a_size);
	tcase_add_test(t, rule_10_writes_are_held_for_a_snapshot);
	tcase_add_test(t, rule_10_a_snapshot_has_time_of_its_own);
}
