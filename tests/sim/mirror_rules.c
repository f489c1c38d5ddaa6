/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Rules that chance seldom puts to the test, one short history each: of the owner, of the peer.
 * Each says whether its rule was kept. Included by test_mirror.c.
 */
#include "tests/sim/mirror_world.h"

static struct { /* what the side under test has done */
	struct mirror_frame last;
	unsigned frames, sets, wrote, taken;
	struct gw_mirror set;
} H;

static void h_sends(void *arg, unsigned peer, unsigned channel, struct mirror_frame *f)
{
	H.frames += f->kind == MIRROR_BATCHED;
	H.last = *f;
}

static void h_sets(void *arg, const struct gw_mirror *m)
{
	H.sets++;
	H.set = *m;
}

static void h_nothing(void *arg)
{
}

static void h_advanced(void *arg, uint64_t block, uint64_t gen)
{
}

static void h_says(void *arg, int level, const char *text)
{
}

static void h_held(void *arg, uint64_t cookie, uint64_t gen)
{
	H.taken++;
}

static const struct mirror_owner_ops h_owner_ops = { .send = h_sends,
						     .set = h_sets,
						     .write_all = h_nothing,
						     .advanced = h_advanced,
						     .room = h_nothing,
						     .group_held = h_held,
						     .say = h_says };

/* The answer to the last frame. */
static void h_answer(struct mirror_owner *o, unsigned from, uint64_t now)
{
	struct mirror_frame f = H.last;

	f.kind = f.kind == MIRROR_OPEN ? MIRROR_WELCOME : MIRROR_ACK;
	f.result = MIRROR_OK;
	f.room = 100;
	f.peer = 9;
	f.n = 0;
	mirror_owner_frame(o, from, &f, now);
}

static struct mirror_owner *h_owner(void)
{
	const struct mirror_owner_config config = {
		.gateways = 3, .lu = 77, .shift = SHIFT, .blocks = 8, .mirrored = true
	};

	memset(&H, 0, sizeof(H));
	return mirror_owner_new(&config, &h_owner_ops, NULL);
}

/* Mirrored by gateway 1; block 3 is dirty, and has generation 1. */
static struct mirror_owner *h_mirrored(void)
{
	const struct gw_mirror none = { .peer = GW_NOBODY };
	struct mirror_owner *o = h_owner();
	uint64_t gen;

	mirror_owner_start(o, 1, 1, &none, false, SEC);
	mirror_owner_peers(o, 2, SEC);
	h_answer(o, 1, SEC);
	mirror_owner_set_done(o, SEC);
	ck_assert_int_eq(mirror_owner_write(o, 0, 3, 1, &gen, SEC), 0);
	mirror_owner_push(o, 0, SEC);
	return o;
}

static bool h_setting(void)
{
	const struct gw_mirror none = { .peer = GW_NOBODY };
	struct mirror_owner *o = h_owner();
	uint64_t gen;
	bool well;

	mirror_owner_start(o, 1, 1, &none, false, SEC);
	mirror_owner_peers(o, 2, SEC);
	h_answer(o, 1, SEC);
	ck_assert_int_eq(mirror_owner_write(o, 0, 3, 1, &gen, SEC), 0);
	mirror_owner_push(o, 0, SEC);
	h_answer(o, 1, SEC);
	well = H.sets == 1 && mirror_owner_safe(o, 3) < gen && !mirror_owner_shown(o, 3);
	mirror_owner_stored(o, 3, gen, SEC);
	well = well && mirror_owner_shown(o, 3);
	mirror_owner_free(o);
	return well;
}

static bool h_one_frame(void)
{
	struct mirror_owner *o = h_mirrored();
	uint64_t gen;
	bool well;

	ck_assert_int_eq(mirror_owner_write(o, 1, 3, 2, &gen, SEC), 0);
	mirror_owner_push(o, 0, SEC);
	mirror_owner_push(o, 1, SEC);
	well = H.frames == 1;
	h_answer(o, 1, SEC);
	well = well && H.frames == 2 && !mirror_owner_shown(o, 3);
	h_answer(o, 1, SEC);
	well = well && mirror_owner_shown(o, 3);
	mirror_owner_free(o);
	return well;
}

/* The peer is silent: 2 s later it is lost. */
static bool h_out(void)
{
	struct mirror_owner *o = h_mirrored();
	uint64_t gen;
	bool well;

	h_answer(o, 1, SEC);
	ck_assert_int_eq(mirror_owner_write(o, 0, 4, 1, &gen, SEC), 0);
	mirror_owner_push(o, 0, SEC);
	mirror_owner_tick(o, SEC + 1999 * MS);
	well = o->mode == MIRROR_VALID;
	mirror_owner_tick(o, SEC + 2001 * MS);
	well = well && o->mode == MIRROR_LOSING && H.sets == 1 && !mirror_owner_shown(o, 4) &&
	       mirror_owner_shown(o, 3);
	mirror_owner_stored(o, 4, gen, 4 * SEC);
	well = well && H.sets == 1 && !mirror_owner_shown(o, 4);
	mirror_owner_stored(o, 3, 1, 4 * SEC);
	well = well && H.sets == 2 && H.set.state == GW_MIRROR_INVALID && H.set.epoch == 2 &&
	       !mirror_owner_shown(o, 4);
	mirror_owner_set_done(o, 4 * SEC);
	well = well && mirror_owner_shown(o, 4);
	mirror_owner_free(o);
	return well;
}

/* write_cache=through, and =mirror again. */
static bool h_unmirrored(void)
{
	struct mirror_owner *o = h_mirrored();
	bool well;

	h_answer(o, 1, SEC);
	mirror_owner_mirrored(o, false, SEC);
	well = o->mode == MIRROR_LOSING && H.sets == 1 && mirror_owner_shown(o, 3);
	mirror_owner_stored(o, 3, 1, SEC);
	well = well && H.sets == 2 && H.set.state == GW_MIRROR_INVALID;
	mirror_owner_set_done(o, SEC);
	mirror_owner_tick(o, 4 * SEC);
	well = well && o->mode == MIRROR_THROUGH && H.last.kind != MIRROR_OPEN;
	mirror_owner_mirrored(o, true, 4 * SEC);
	well = well && H.last.kind == MIRROR_OPEN && H.last.result && H.last.mirror == 3;
	mirror_owner_free(o);
	return well;
}

/* A peer that takes an OPEN and no more is not asked again at once. */
static bool h_lost_again(void)
{
	struct mirror_owner *o = h_mirrored();
	const uint64_t lost = SEC + 2001 * MS;
	bool well;

	mirror_owner_tick(o, lost);
	mirror_owner_stored(o, 3, 1, lost);
	mirror_owner_set_done(o, lost);
	mirror_owner_tick(o, lost + 1999 * MS);
	well = o->mode == MIRROR_THROUGH && o->link == LINK_NONE;
	mirror_owner_tick(o, lost + 2000 * MS);
	well = well && o->link == LINK_OPENING;
	h_answer(o, 1, lost + 2000 * MS);
	mirror_owner_set_done(o, lost + 2000 * MS);
	well = well && o->mode == MIRROR_VALID;
	mirror_owner_peers(o, 0, 2 * lost);
	mirror_owner_peers(o, 2, 2 * lost); /* it has been away */
	well = well && !o->lost[1];
	mirror_owner_free(o);
	return well;
}

static bool h_copy(void)
{
	struct mirror_owner *o = h_mirrored();
	bool well;

	h_answer(o, 1, SEC);
	mirror_owner_peers(o, 6, SEC);
	mirror_owner_down(o, 1, SEC);
	mirror_owner_tick(o, 4 * SEC); /* a third gateway is opened */
	well = H.last.kind == MIRROR_OPEN && H.last.result && H.last.mirror == 2;
	h_answer(o, 2, 4 * SEC);
	well = well && H.sets == 1 && H.last.n == 1 && H.last.record[0].block == 3;
	h_answer(o, 2, 4 * SEC);
	well = well && H.sets == 2 && H.set.state == GW_MIRROR_VALID && H.set.peer == 2;
	mirror_owner_free(o);
	return well;
}

/* One frame; nothing changes before the peer has it. */
static bool h_group(void)
{
	const uint64_t blocks[2] = { 3, 5 }, maps[2] = { 3, 3 };
	struct mirror_owner *o = h_mirrored();
	bool well;

	ck_assert_int_eq(mirror_owner_group(o, 1, 2, blocks, maps, 42, SEC), 0);
	well = H.frames == 1; /* block 3 is under way */
	h_answer(o, 1, SEC);
	well = well && H.frames == 2 && H.last.n == 2 && H.last.record[0].more &&
	       H.last.record[1].cookie == 42 && !H.taken;
	h_answer(o, 1, SEC);
	well = well && H.taken == 1 && mirror_owner_shown(o, 3) && mirror_owner_shown(o, 5);
	mirror_owner_free(o);
	return well;
}

static bool h_found(void)
{
	const struct gw_mirror valid = { GW_MIRROR_VALID, 1, 9, 5 };
	struct mirror_owner *o = h_owner();
	bool well;

	ck_assert_int_eq(mirror_owner_found(o, 3, 1), 0);
	mirror_owner_start(o, 1, 2, &valid, true, SEC);
	well = !mirror_owner_shown(o, 3) && !mirror_owner_shown(o, 4);
	mirror_owner_stored(o, 3, 1, SEC);
	well = well && H.set.state == GW_MIRROR_INVALID && !mirror_owner_shown(o, 3);
	mirror_owner_set_done(o, SEC);
	well = well && mirror_owner_shown(o, 3) && mirror_owner_shown(o, 4);
	mirror_owner_free(o);
	return well;
}

/* ---- the peer -------------------------------------------------------------------------------- */
static void h_replies(void *arg, unsigned to, unsigned channel, const struct mirror_frame *f)
{
	H.last = *f;
}

static void h_writes(void *arg, uint32_t page, const struct mirror_frame *f, unsigned i)
{
	H.wrote++;
}

static void h_drops(void *arg, uint32_t page)
{
}

static bool h_adopts(void *arg, uint32_t page, uint64_t lu, uint64_t block, uint64_t gen,
		     uint64_t map)
{
	H.taken++;
	return true;
}

static void h_stamps(void *arg, uint32_t slot, const struct mirror_stamp *s)
{
}

static void h_tombs(void *arg, uint32_t slot, unsigned tomb, uint64_t first, uint64_t count,
		    uint64_t gen)
{
}

static const struct mirror_peer_ops h_peer_ops = { .send = h_replies,
						   .write = h_writes,
						   .drop = h_drops,
						   .adopt = h_adopts,
						   .stamp = h_stamps,
						   .tomb = h_tombs,
						   .say = h_says };

static unsigned h_frame(struct mirror_peer *p, enum mirror_kind kind, unsigned session,
			enum mirror_op op, uint64_t block, uint64_t gen)
{
	struct mirror_frame f = { .kind = (uint8_t)kind,
				  .result = kind == MIRROR_OPEN && op,
				  .shift = SHIFT,
				  .n = kind == MIRROR_BATCHED,
				  .lu = 77,
				  .session = { 1, 1, session },
				  .mirror = 5,
				  .serial = 1 };

	f.record[0] =
		(struct mirror_record){ .op = (uint8_t)op, .block = block, .gen = gen, .map = 1 };
	mirror_peer_frame(p, 2, 0, &f, SEC);
	return H.last.result;
}

static bool h_peer(void)
{
	const struct mirror_peer_config config = { .self = 1, .lus = 2, .pages = 4 };
	const struct gw_mirror valid = { GW_MIRROR_VALID, 1, 3, 5 },
			       other = { GW_MIRROR_VALID, 1, 4, 5 };
	struct mirror_peer *p = mirror_peer_new(&config, &h_peer_ops, NULL);
	uint64_t first, count, gen;
	bool well;

	memset(&H, 0, sizeof(H));
	mirror_peer_incarnation(p, 3);
	well = h_frame(p, MIRROR_OPEN, 1, 0, 0, 0) == MIRROR_LACKS; /* nothing to go on with */
	well = well && h_frame(p, MIRROR_OPEN, 1, 1, 0, 0) == MIRROR_OK;
	h_frame(p, MIRROR_BATCHED, 1, MIRROR_WRITE, 2, 15);
	h_frame(p, MIRROR_BATCHED, 1, MIRROR_WRITE, 2, 14);
	h_frame(p, MIRROR_BATCHED, 1, MIRROR_WRITE, 7, 16);
	h_frame(p, MIRROR_BATCHED, 1, MIRROR_RELEASE, 2, 14);
	well = well && H.wrote == 2 && p->used == 2 && H.last.result == MIRROR_OK;
	well = well && h_frame(p, MIRROR_OPEN, 2, 0, 0, 0) == MIRROR_OK &&
	       h_frame(p, MIRROR_BATCHED, 1, MIRROR_WRITE, 3, 17) == MIRROR_LACKS;
	mirror_peer_object(p, 77, &valid);
	well = well && h_frame(p, MIRROR_OPEN, 3, 1, 0, 0) == MIRROR_BUSY && p->used == 2;
	well = well && mirror_peer_has(p, 77, &valid) && !mirror_peer_has(p, 77, &other);
	h_frame(p, MIRROR_BATCHED, 2, MIRROR_ZERO, 9, 20);
	well = well && mirror_peer_seal(p, 77, &valid) &&
	       h_frame(p, MIRROR_BATCHED, 2, MIRROR_WRITE, 3, 18) == MIRROR_SEALED;
	well = well && mirror_peer_zero(p, 77, &first, &count, &gen) && first == 9 && gen == 20;
	mirror_peer_zeroed(p, 77, 20);
	well = well && !mirror_peer_zero(p, 77, &first, &count, &gen);
	well = well && mirror_peer_take(p, 77, 5, 100) && H.taken == 1 && !p->used;
	mirror_peer_free(p);
	return well;
}

/* Of units that were deleted here: what holds nothing goes when there is no other place. */
static bool h_idle(void)
{
	const struct mirror_peer_config config = { .self = 1, .lus = 2, .pages = 4 };
	const struct mirror_stamp found = { .lu = 1, .mirror = 5, .epoch = 1, .incarnation = 3 };
	struct mirror_peer *p = mirror_peer_new(&config, &h_peer_ops, NULL);
	struct mirror_frame f = { .kind = MIRROR_OPEN,
				  .result = 1,
				  .shift = SHIFT,
				  .lu = 2,
				  .session = { 1, 1, 1 },
				  .mirror = 5 };
	struct mirror_held held;
	bool well;

	memset(&H, 0, sizeof(H));
	ck_assert_int_eq(mirror_peer_found(p, 0, &found), 0);
	mirror_peer_found_all(p);
	mirror_peer_incarnation(p, 4);
	mirror_peer_frame(p, 2, 0, &f, SEC);
	well = H.last.result == MIRROR_OK;
	f.lu = 3;
	mirror_peer_frame(p, 2, 0, &f, SEC);
	mirror_peer_frame(p, 2, 0, &f, 600 * SEC);
	well = well && H.last.result == MIRROR_NOROOM;
	f.kind = MIRROR_BATCHED;
	f.lu = 2; /* a sign of life */
	mirror_peer_frame(p, 2, 0, &f, 600 * SEC);
	f.kind = MIRROR_OPEN;
	f.lu = 3;
	mirror_peer_frame(p, 2, 0, &f, 601 * SEC);
	well = well && H.last.result == MIRROR_OK && !mirror_peer_held(p, 1, &held) &&
	       mirror_peer_held(p, 2, &held);
	/* One that holds something stays. */
	f.kind = MIRROR_BATCHED;
	f.n = 1;
	f.record[0] = (struct mirror_record){
		.op = MIRROR_WRITE, .block = 1, .gen = 9, .map = 1
	};
	mirror_peer_frame(p, 2, 0, &f, 601 * SEC);
	f.lu = 2;
	mirror_peer_frame(p, 2, 0, &f, 601 * SEC);
	f.kind = MIRROR_OPEN;
	f.n = 0;
	f.lu = 4;
	mirror_peer_frame(p, 2, 0, &f, 9999 * SEC);
	well = well && H.last.result == MIRROR_NOROOM && p->used == 2;
	mirror_peer_free(p);
	return well;
}

/* Killed between OPEN and the object: what is found gives way when that is read, not before. */
static bool h_peer_found(uint64_t epoch, const struct gw_mirror *m)
{
	const struct mirror_peer_config config = { .self = 1, .lus = 2, .pages = 4 };
	const struct mirror_stamp stamp = {
		.lu = 77, .mirror = 5, .epoch = epoch, .incarnation = 3
	};
	struct mirror_peer *p = mirror_peer_new(&config, &h_peer_ops, NULL);
	bool begins;

	ck_assert_int_eq(mirror_peer_found(p, 0, &stamp), 0);
	mirror_peer_found_all(p);
	mirror_peer_incarnation(p, 4);
	if (m)
		mirror_peer_object(p, 77, m);
	h_frame(p, MIRROR_OPEN, 1, 1, 0, 0);
	begins = H.last.result == MIRROR_OK;
	mirror_peer_free(p);
	return begins;
}

static bool h_killed(void)
{
	const struct gw_mirror short_of = { GW_MIRROR_INVALID, GW_NOBODY, 0, 4 },
			       names = { GW_MIRROR_VALID, 1, 3, 5 };

	return h_peer_found(1, &short_of) && !h_peer_found(1, NULL) && !h_peer_found(1, &names) &&
	       !h_peer_found(2, &short_of);
}

/* ---- an administrator ------------------------------------------------------------------------ */
static void h_object(struct gw_lu_object *o)
{
	struct object *at = &W.object[GATES];

	ck_assert(!gw_decode_lu(o, at->data, at->len));
}

/* Owner and peer are killed, and an order to give up what they have comes amid a read. Until that
 * is answered there is another mirror: what was said of the first is not said of this one. */
static bool h_forced(void)
{
	const struct profile calm = { .calm = true };
	const struct gw_cell *cell;
	struct gw_lu_object o;
	struct gateway *gw;
	bool well;

	world_begin(7, &calm);
	world_run(2 * SEC);
	well = all_is_well();
	h_object(&o);
	gw = W.gate[GATES - o.owner - o.mirror.peer].gw;
	cell = &gw->lu[0].cell;
	for (unsigned i = 0; i < 2; i++)
		process_dies(i ? o.mirror.peer : o.owner, true);
	for (unsigned i = 0;
	     i < 20000 && !(gw_mirror_is_away(gw, &gw->lu[0], W.now) && !gw_cell_idle(cell)); i++)
		world_run(W.now + MS / 10);
	well = well && gw_mirror_force(gw, 0, W.now) == -EBUSY; /* they may be coming */
	world_run(W.now + gw->cfg.give_up_ns);
	for (unsigned i = 0; i < 20000 && gw_cell_idle(cell); i++)
		world_run(W.now + MS / 10);
	well = well && !gw_mirror_force(gw, 0, W.now) && !gw_cell_idle(cell);
	o.mirror.epoch += 2;
	W.object[GATES].version = ++W.nonce;
	W.object[GATES].len = (uint32_t)gw_encode_lu(&o, W.object[GATES].data);
	world_run(W.now + SEC);
	h_object(&o);
	well = well && o.mirror.state == GW_MIRROR_VALID;
	well = well && !gw_mirror_force(gw, 0, W.now);
	world_run(W.now + SEC);
	h_object(&o);
	well = well && o.mirror.state != GW_MIRROR_VALID && !*W.failed;
	world_end();
	return well;
}

static bool (*const histories[])(void) = { h_setting,	 h_one_frame,  h_out,	h_copy,
					   h_group,	 h_found,      h_peer,	h_killed,
					   h_unmirrored, h_lost_again, h_forced, h_idle };

START_TEST(histories_go_by_the_rules)
{
	ck_assert_msg(histories[_i](), "history %d", _i);
}
END_TEST
