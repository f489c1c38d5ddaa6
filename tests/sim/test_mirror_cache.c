/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A cache, the glue of its LU's mirror (tgtd/cluster/live/mirror_lu.c) and the rules of both sides,
 * under random commands: links that are cut, peers that are silent or lose their memory, a slow
 * store, which becomes smaller and larger. Whatever happens, at any moment the owner may die with
 * all that it has in memory. Then a takeover, by whom the LU's object names, must have what was
 * answered, and what was shown; of a COMPARE AND WRITE and of an atomic write all or nothing, as a
 * read must; and nothing of what was behind the end before the device was larger again.
 *
 * All on one stepped loop and a fake clock. TGT_MIRROR_SEEDS=N: how many runs; TGT_MIRROR_SEED=S:
 * from that one on; TGT_MIRROR_TRACE=1: what happens. Thousands want CK_FORK=no: no limit of time.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "events/clock.h"
#include "events/log.h"
#include "tests/support/cachetest.h"
#include "tests/support/mirrorpeer.h"
#include "tests/support/unit.h"
#include "tgtd/cluster/live/mirror_lu.h"

#define BLOCK KiB(4)
#define BLOCKS 96u /* that are written; beyond them reads go, which push blocks out */
#define SECTORS (BLOCKS * 8)
#define SLOTS 20
#define GATES 3
#define PAGES 256
#define EVENTS 4096
#define LU 77
#define MS NSEC_PER_MSEC
#define SEC NSEC_PER_SEC

struct peer {
	struct mirrorpeer p;
	bool silent;   /* what comes and goes is lost */
	uint32_t conn; /* the link's, as both know it */
};

struct event {
	uint64_t at;
	void (*fn)(struct event *e);
	unsigned peer, channel;
	uint32_t conn;
	uint64_t value;
	size_t len;
	uint8_t *bytes;
};

struct slot {
	struct blk_req req;
	struct timer retry;
	uint8_t what; /* enum what */
	bool busy, granted;
	bool beyond;	   /* the store has been smaller than that meanwhile */
	uint32_t first, n; /* sectors */
	uint64_t serial, began;
	uint64_t lo[64 * 8];
	uint64_t expect[8];
};
/* Sectors that a COMPARE AND WRITE, or an atomic write, has changed. */
struct together {
	uint64_t serial;
	uint32_t first, n;
};
enum what { READ, WRITE, WRITE_FUA, CAW, ATOMIC, DISCARD, SYNC };

static struct {
	struct bt t;
	struct cache *cache;
	struct memdisk *disk;
	struct mirror_lu *lu;
	struct peer peer[GATES];
	struct event event[EVENTS];
	unsigned events;
	struct gw_mirror object, next;
	struct slot slot[SLOTS];
	uint64_t rng, seed, serial;
	uint64_t floor[SECTORS], zeroed[SECTORS], known[SECTORS];
	struct together together[SECTORS]; /* the last one of each sector */
	bool owned[SECTORS], unknown[SECTORS];
	uint32_t unit; /* sectors of a logical block */
	uint32_t size; /* sectors of the device, SECTORS at most */
	bool told;     /* by blk_resized() */
	uint64_t resize_at;
	bool healing, stopped;
	uint64_t trouble_at;
	/* Over all seeds. */
	uint64_t reads, writes, discards, caws, atomics, checks, frames, cuts, silences, forgets,
		sets, shrinks;
} W;

static uint64_t draw(uint64_t n)
{
	return bt_random(&W.rng) % n;
}

/* TGT_MIRROR_TRACE=1 */
static void printf_like(1, 2) trace(const char *format, ...)
{
	va_list args;

	if (!getenv("TGT_MIRROR_TRACE"))
		return;
	printf("# %llu us: ", (unsigned long long)(clock_now_ns() % (100 * SEC) / 1000));
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

/* ---- events ---------------------------------------------------------------------------------- */
static struct event *event_new(void (*fn)(struct event *e), uint64_t delay)
{
	struct event *e = &W.event[W.events++];

	BUG_ON(W.events > EVENTS);
	memset(e, 0, sizeof(*e));
	e->fn = fn;
	e->at = clock_now_ns() + delay;
	return e;
}

/* What is due, the oldest first. */
static void events_run(void)
{
	for (;;) {
		unsigned best = EVENTS;
		struct event e;

		for (unsigned i = 0; i < W.events; i++)
			if (W.event[i].at <= clock_now_ns() &&
			    (best == EVENTS || W.event[i].at < W.event[best].at))
				best = i;
		if (best == EVENTS)
			return;
		e = W.event[best];
		memmove(&W.event[best], &W.event[best + 1],
			(--W.events - best) * sizeof(W.event[0]));
		e.fn(&e);
		free(e.bytes);
	}
}

/* ---- the wire -------------------------------------------------------------------------------- */
static void link_down(struct event *e)
{
	if (!W.stopped && W.peer[e->peer].conn == e->conn)
		mirror_lu_down(W.lu, e->peer);
}

/* What is under way is lost. */
static void link_cuts(unsigned peer)
{
	struct event *e;

	W.peer[peer].conn++;
	e = event_new(link_down, draw(10 * MS));
	e->peer = peer;
	e->conn = W.peer[peer].conn;
}

static void to_owner(struct event *e)
{
	struct mirror_frame f;

	if (W.stopped || e->conn != W.peer[e->peer].conn || W.peer[e->peer].silent)
		return;
	ck_assert_ptr_null(mirror_decode(&f, e->bytes, e->len));
	mirror_lu_frame(W.lu, e->peer, &f);
}

static void to_peer(struct event *e)
{
	struct mirror_frame f;

	if (e->conn != W.peer[e->peer].conn || W.peer[e->peer].silent)
		return;
	ck_assert_ptr_null(mirror_decode(&f, e->bytes, e->len));
	ck_assert(mirrorpeer_is_sound(&f));
	mirror_peer_frame(W.peer[e->peer].p.rules, 0, e->channel, &f, clock_now_ns());
}

/* In the order of one channel: a frame is as late as the one before, at least. */
static void frame_goes(void (*fn)(struct event *e), unsigned peer, unsigned channel,
		       const uint8_t *head, size_t head_len, const uint8_t *data, size_t len)
{
	uint64_t at = draw(100) < 4 && !W.healing ? draw(60 * MS) : draw(MS / 2);
	struct event *e;

	for (unsigned i = 0; i < W.events; i++)
		if (W.event[i].fn == fn && W.event[i].peer == peer &&
		    W.event[i].conn == W.peer[peer].conn && W.event[i].at >= clock_now_ns() + at)
			at = W.event[i].at - clock_now_ns() + 1;
	e = event_new(fn, at);
	e->peer = peer;
	e->channel = channel;
	e->conn = W.peer[peer].conn;
	e->len = head_len + len;
	e->bytes = malloc(e->len);
	memcpy(e->bytes, head, head_len);
	if (len)
		memcpy(e->bytes + head_len, data, len);
	W.frames++;
}

struct out {
	unsigned peer, channel;
	uint8_t data[];
};

static void *ops_begin(void *arg, unsigned peer, unsigned channel, struct mirror_frame *f,
		       uint8_t **data)
{
	struct out *out;

	if (f->kind == MIRROR_OPEN) /* new connections */
		W.peer[peer].conn++;
	out = malloc(sizeof(*out) + mirrorpeer_inline(f));
	out->peer = peer;
	out->channel = channel;
	*data = out->data;
	return out;
}

static void ops_send(void *arg, void *to, struct mirror_frame *f)
{
	uint8_t head[MIRROR_HEAD_MAX];
	struct out *out = to;

	mirrorpeer_sum(f, out->data);
	for (unsigned i = 0; i < f->n; i++)
		trace("frame %u: op %u, block %u, generation %u, map %x", (unsigned)f->serial,
		      f->record[i].op, (unsigned)f->record[i].block, (unsigned)f->record[i].gen,
		      (unsigned)f->record[i].map);
	frame_goes(to_peer, out->peer, out->channel, head, mirror_encode(f, head), out->data,
		   f->data_len);
	free(out);
}

static void peer_sends(struct mirrorpeer *p, unsigned to, unsigned channel,
		       const struct mirror_frame *f)
{
	uint8_t head[MIRROR_HEAD_MAX];

	frame_goes(to_owner, (unsigned)(container_of(p, struct peer, p) - W.peer), channel, head,
		   mirror_encode(f, head), NULL, 0);
}

/* ---- the object ------------------------------------------------------------------------------ */
static void object_is_set(struct event *e)
{
	W.object = W.next;
	W.sets++;
	for (unsigned g = 1; g < GATES; g++)
		mirror_peer_object(W.peer[g].p.rules, LU, &W.object);
	if (!W.stopped)
		mirror_lu_set_done(W.lu);
}

static void ops_set(void *arg, const struct gw_mirror *m)
{
	W.next = *m;
	event_new(object_is_set, draw(W.healing ? 2 * MS : 40 * MS));
}

static void ops_say(void *arg, int level, const char *text)
{
	trace("%s", text);
}

static const struct mirror_lu_ops lu_ops = {
	.begin = ops_begin,
	.send = ops_send,
	.set = ops_set,
	.say = ops_say,
};

/* ---- the peers ------------------------------------------------------------------------------- */
static void peer_begins(unsigned g)
{
	const struct mirror_peer_config config = { .self = g, .lus = 4, .pages = PAGES };

	mirrorpeer_begin(&W.peer[g].p, &config, peer_sends);
	mirror_peer_object(W.peer[g].p.rules, LU, &W.object);
}

/* ---- what a takeover would have -------------------------------------------------------------- */
static void sector_is(uint8_t *at, uint64_t serial)
{
	for (unsigned i = 0; i < 512; i += 8)
		memcpy(at + i, &serial, 8);
}

static uint64_t sector_says(const uint8_t *at, unsigned sector)
{
	uint64_t serial, more;

	memcpy(&serial, at, 8);
	for (unsigned i = 8; i < 512; i += 8) {
		memcpy(&more, at + i, 8);
		if (more != serial) /* (check(3) writes a line for each assertion) */
			ck_abort_msg("seed %llu: sector %u is torn", (unsigned long long)W.seed,
				     sector);
	}
	return serial ? serial : W.zeroed[sector];
}

/* @view is of sectors @first to @end. Sector @s of it says @says: then the others of that one say
 * so, or something newer. */
static void is_whole(const uint8_t *view, uint32_t first, uint32_t end, uint32_t s, uint64_t says,
		     const char *who)
{
	const struct together *c = &W.together[s];

	if (!says || says != c->serial)
		return;
	for (uint32_t i = MAX(c->first, first); i < MIN(c->first + c->n, end); i++)
		if (sector_says(view + (size_t)(i - first) * 512, i) < says)
			ck_abort_msg("seed %llu: %s a part of what is whole or not at all, %llu of "
				     "%u+%u: not sector %u",
				     (unsigned long long)W.seed, who, (unsigned long long)says,
				     c->first, c->n, i);
}

/* The owner dies now. */
static void takeover_is_judged(void)
{
	static uint8_t view[SECTORS * 512];
	const struct peer *p = &W.peer[W.object.peer < GATES ? W.object.peer : 0];

	memcpy(view, W.disk->data, sizeof(view));
	if (W.object.state == GW_MIRROR_VALID) {
		if (!mirror_peer_has(p->p.rules, LU, &W.object))
			return; /* both are lost: nobody is promised anything */
		mirrorpeer_lay_over(&p->p, LU, view, BLOCKS);
	}
	W.checks++;
	for (unsigned s = 0; s < MIN((uint64_t)SECTORS, W.disk->blk.size / 512); s++) {
		const uint64_t says = sector_says(view + (size_t)s * 512, s);

		is_whole(view, 0, SECTORS, s, says, "a takeover has");
		if (says < W.floor[s])
			ck_abort_msg("seed %llu: a takeover has %llu in sector %u, %llu is known "
				     "(object: state %u, peer %u)",
				     (unsigned long long)W.seed, (unsigned long long)says, s,
				     (unsigned long long)W.floor[s], W.object.state, W.object.peer);
	}
}

/* ---- commands -------------------------------------------------------------------------------- */
static bool owned(uint32_t first, uint32_t n)
{
	for (uint32_t s = first; s < first + n; s++)
		if (W.owned[s])
			return true;
	return false;
}

static void own(const struct slot *s, bool on)
{
	for (uint32_t i = s->first; i < s->first + s->n; i++)
		W.owned[i] = on;
}

static void read_ends(struct slot *s)
{
	static uint8_t bytes[64 * BLOCK];

	frags_copy_out(&s->req.data, 0, bytes, s->req.len);
	W.reads++;
	for (uint32_t i = 0; i < s->n; i++) {
		const unsigned sector = s->first + i;
		const uint64_t says = sector_says(bytes + (size_t)i * 512, sector);

		if (sector >= W.size) /* it has been smaller since */
			continue;
		if (says < s->lo[i])
			ck_abort_msg("seed %llu: a read shows %llu in sector %u, %llu was known",
				     (unsigned long long)W.seed, (unsigned long long)says, sector,
				     (unsigned long long)s->lo[i]);
		is_whole(bytes, s->first, MIN(s->first + s->n, W.size), sector, says,
			 "a read shows");
		W.floor[sector] = MAX(W.floor[sector], says);
	}
}

static void write_ends(struct slot *s)
{
	const bool good = !s->req.status;

	own(s, false);
	counter_add(s->what == DISCARD ? &W.discards :
		    s->what == CAW     ? &W.caws :
		    s->what == ATOMIC  ? &W.atomics :
					 &W.writes,
		    good);
	for (uint32_t i = s->first; i < s->first + s->n; i++) {
		if (s->serial < W.zeroed[i]) /* it is gone since: the end was before */
			continue;
		W.unknown[i] = !good;
		if (!good)
			continue;
		W.floor[i] = MAX(W.floor[i], s->serial);
		W.known[i] = s->what == DISCARD ? 0 : s->serial;
	}
}

static void ends(struct slot *s)
{
	trace("ends: %u of %u+%u, %u: %d", s->what, s->first, s->n, (unsigned)s->serial,
	      s->req.status);
	if (s->req.status && !(s->beyond && s->req.status == -ERANGE))
		ck_assert_msg(W.stopped, "seed %llu: command %u: %d", (unsigned long long)W.seed,
			      s->what, s->req.status);
	if (s->what == READ && s->n && !s->req.status)
		read_ends(s);
	else if (s->what != READ && s->what != SYNC)
		write_ends(s);
	blk_req_release(&s->req);
	blk_req_fini(&s->req);
	s->busy = false;
}

static void submit(struct slot *s);

static void granted(struct slot *s)
{
	static uint8_t bytes[64 * BLOCK];
	const size_t len = (size_t)s->n * 512;

	s->granted = true;
	for (uint32_t i = 0; i < s->n; i++)
		sector_is(bytes + (size_t)i * 512, s->what == CAW ? s->expect[i] : s->serial);
	frags_copy_in(&s->req.data, 0, bytes, len);
	if (s->what == CAW) {
		for (uint32_t i = 0; i < s->n; i++)
			sector_is(bytes + (size_t)i * 512, s->serial);
		frags_copy_in(&s->req.data, len, bytes, len);
	}
	for (uint32_t i = 0; (s->what == CAW || s->what == ATOMIC) && i < s->n; i++)
		W.together[s->first + i] = (struct together){ s->serial, s->first, s->n };
	submit(s);
}

static void done(struct blk_req *req)
{
	struct slot *s = container_of(req, struct slot, req);

	if (req->flags & BLK_F_PREPARED && !s->granted && !req->status)
		granted(s);
	else
		ends(s);
}

static void submit(struct slot *s)
{
	if (blk_submit(W.t.blk, &s->req))
		ends(s);
}

static void command_begins(struct slot *s)
{
	const unsigned dice = (unsigned)draw(100);
	struct blk_req *req = &s->req;

	s->what = dice < 40 ? READ :
		  dice < 82 ? WRITE :
		  dice < 86 ? WRITE_FUA :
		  dice < 90 ? CAW :
		  dice < 94 ? ATOMIC :
		  dice < 98 ? DISCARD :
			      SYNC;
	/* COMPARE AND WRITE: of one logical block, which a unit of a group has as a limit. A frame
	 * has what a sector has when it is sent, also one of an earlier write to that alone. */
	s->n = s->what == CAW ? 1 : 1 + (uint32_t)draw(draw(3) ? 12 : 100);
	s->n = ALIGN_UP(s->n, W.unit);
	s->first = (uint32_t)draw(SECTORS - s->n) & ~(W.unit - 1);
	if (draw(3) == 0 && s->what != CAW) {
		s->first &= ~7u;
		s->n = MIN(ALIGN_UP(s->n, 8u), SECTORS - s->first);
	}
	if (s->what == ATOMIC) { /* a power of two, at a multiple of it */
		s->n = 8u << draw(4);
		s->first = (uint32_t)draw(SECTORS / s->n) * s->n;
	}
	if (s->what != READ && s->what != SYNC && owned(s->first, s->n))
		return;
	for (uint32_t i = 0; s->what == CAW && i < s->n; i++) {
		if (W.unknown[s->first + i])
			return;
		s->expect[i] = W.known[s->first + i];
	}
	if (s->what != SYNC && s->first + s->n > W.size)
		return;
	blk_req_init(req);
	s->busy = true;
	s->granted = s->beyond = false;
	s->began = clock_now_ns();
	s->serial = ++W.serial;
	req->done = done;
	req->stream = (uint64_t)(s - W.slot) + 1;
	req->offset = (uint64_t)s->first * 512;
	req->len = (uint64_t)s->n * 512;
	req->flags = s->what == WRITE_FUA ? BLK_F_FUA : s->what == ATOMIC ? BLK_F_ATOMIC : 0;
	req->op = s->what == READ    ? BLK_READ :
		  s->what == CAW     ? BLK_COMPARE_AND_WRITE :
		  s->what == DISCARD ? BLK_DISCARD :
		  s->what == SYNC    ? BLK_SYNC :
				       BLK_WRITE;
	if (s->what == SYNC) {
		req->offset = req->len = 0;
	} else if (s->what == READ && W.size == SECTORS && draw(3) == 0) {
		s->n = 0; /* of no interest, but it takes blocks */
		req->offset = MiB(1) + draw(MiB(14) / BLOCK) * BLOCK;
		req->len = 16 * BLOCK;
	} else if (s->what == READ) {
		memcpy(s->lo, &W.floor[s->first], s->n * sizeof(s->lo[0]));
	} else {
		own(s, true);
		for (uint32_t i = 0; s->what == DISCARD && i < s->n; i++)
			W.zeroed[s->first + i] = s->serial;
	}
	trace("begins: %u of %u+%u, %u", s->what, s->first, s->n, (unsigned)s->serial);
	if (req->op != BLK_WRITE && req->op != BLK_COMPARE_AND_WRITE) {
		submit(s);
		return;
	}
	if (blk_write_prepare(W.t.blk, req))
		granted(s);
}

/* ---- a run ----------------------------------------------------------------------------------- */
static void peer_speaks(struct event *e)
{
	W.peer[e->peer].silent = false;
}

static void store_is_fast(struct event *e)
{
	W.disk->delay_ns = MS / 2;
}

static void gates_well(void)
{
	uint32_t well = 1;

	for (unsigned g = 1; g < GATES; g++)
		well |= (uint32_t)!W.peer[g].silent << g;
	mirror_lu_peers(W.lu, well);
}

static void trouble(void)
{
	const unsigned g = 1 + (unsigned)draw(GATES - 1), dice = (unsigned)draw(10);

	W.trouble_at = clock_now_ns() + 5 * MS + draw(250 * MS);
	if (dice < 4) {
		link_cuts(g);
		W.cuts++;
	} else if (dice < 6) {
		W.peer[g].silent = true;
		event_new(peer_speaks, draw(500 * MS))->peer = g;
		W.silences++;
	} else if (dice < 8) {
		/* One failure at a time: not the only place where something is. */
		if (W.object.state == GW_MIRROR_VALID && draw(3))
			return;
		link_cuts(g);
		peer_begins(g);
		W.forgets++;
	} else {
		W.disk->delay_ns = draw(30 * MS);
		event_new(store_is_fast, draw(300 * MS));
	}
}

/* ---- another size ---------------------------------------------------------------------------- */
static void hears(void)
{
	W.told = true;
}

static void size_is_looked_at(void)
{
	ck_assert_int_eq(blk_resize(W.t.blk), 0);
	/* What was behind the end is zeros: as if they had been written now. */
	for (const uint64_t now = atomic_load(&W.t.blk->size) / 512;
	     W.size < MIN(now, (uint64_t)SECTORS); W.size++)
		W.floor[W.size] = W.zeroed[W.size];
}

static void store_is(uint64_t sectors)
{
	const uint64_t serial = ++W.serial;

	trace("the store has %u sectors", (unsigned)sectors);
	for (unsigned s = (unsigned)sectors; s < W.size; s++) {
		W.floor[s] = W.known[s] = 0;
		W.zeroed[s] = serial;
		W.unknown[s] = false;
	}
	W.size = MIN(W.size, (uint32_t)MIN(sectors, (uint64_t)SECTORS));
	if (sectors * 512 < W.disk->blk.size)
		memset(W.disk->data + sectors * 512, 0, MiB(16) - sectors * 512);
	for (unsigned i = 0; i < SLOTS; i++)
		if (W.slot[i].busy && (W.slot[i].what == SYNC ||
				       W.slot[i].req.offset + W.slot[i].req.len > sectors * 512))
			W.slot[i].beyond = true;
	atomic_store(&W.disk->blk.size, sectors * 512);
	size_is_looked_at();
}

/* It becomes smaller; then, when nobody is left who was let in behind its end, larger: maybe before
 * the cache is done with that. */
static void another_size(void)
{
	W.resize_at = clock_now_ns() + draw(60 * MS);
	if (W.disk->blk.size == MiB(16)) {
		if (!W.healing && W.size == SECTORS) {
			store_is((draw(2) ? draw(SECTORS) : draw(BLOCKS) * 8) &
				 ~(uint64_t)(W.unit - 1));
			W.shrinks++;
		}
		return;
	}
	for (unsigned i = 0; i < SLOTS; i++)
		if (W.slot[i].busy && W.slot[i].beyond)
			return;
	store_is(draw(3) || W.healing ? MiB(16) / 512 : draw(SECTORS) & ~(uint64_t)(W.unit - 1));
}

static void step(void)
{
	loop_self_ = W.t.loop;
	events_run();
	for (unsigned i = 0; i < SLOTS; i++)
		if (!W.slot[i].busy && !W.healing && draw(4) == 0)
			command_begins(&W.slot[i]);
	if (!W.healing && clock_now_ns() >= W.trouble_at)
		trouble();
	if (clock_now_ns() >= W.resize_at && !W.stopped)
		another_size();
	if (W.told) {
		W.told = false;
		size_is_looked_at();
	}
	if (draw(50) == 0 && !W.stopped)
		gates_well();
	loop_self_ = NULL;
	for (int i = 0; i < 4; i++)
		loop_step(W.t.loop, 0);
	clock_fake_advance(20000 + draw(300000));
}

static bool anybody(void)
{
	for (unsigned i = 0; i < SLOTS; i++)
		if (W.slot[i].busy)
			return true;
	return false;
}

static bool lu_stopped;

static void stopped(void *arg)
{
	lu_stopped = true;
}

static void run_begins(uint64_t seed)
{
	const struct mirror_lu_conf conf = {
		.owner = { .self = 0,
			   .gateways = GATES,
			   .lu = LU,
			   .blocks = 64,
			   .mirrored = true,
			   .dismiss_ns = 200 * MS,
			   .retry_ns = 50 * MS,
			   .ping_ns = 50 * MS },
		.most = 20,
		.channel = (unsigned)seed % 3,
	};
	struct mirror_lu_conf mine = conf;

	W.seed = seed;
	W.rng = (seed + 1) * 0x9e3779b97f4a7c15ull | 1;
	memdisk_seed(seed);
	clock_fake_set((seed + 1) << 40);
	W.healing = W.stopped = false;
	W.events = 0;
	W.serial = 0;
	memset(W.floor, 0, sizeof(W.floor));
	memset(W.zeroed, 0, sizeof(W.zeroed));
	memset(W.known, 0, sizeof(W.known));
	memset(W.owned, 0, sizeof(W.owned));
	memset(W.unknown, 0, sizeof(W.unknown));
	memset(W.slot, 0, sizeof(W.slot));
	memset(W.together, 0, sizeof(W.together));
	W.unit = seed % 3 == 2 ? 8 : 1;
	W.size = SECTORS;
	W.told = false;
	W.resize_at = clock_now_ns() + draw(300 * MS);
	W.object = (struct gw_mirror){ .state = GW_MIRROR_NONE, .peer = GW_NOBODY };
	ct_open(&W.t, &(struct ct_shape){ .conf = "size=1m", .nodes = 1, .disk = MiB(16) },
		&W.cache, &W.disk);
	W.disk->blk.caps |= BLK_CAP_DISCARD | BLK_CAP_DISCARD_ZEROES | BLK_CAP_VOLATILE;
	W.disk->blk.caps |= BLK_CAP_ATOMIC;
	W.t.blk->caps |= BLK_CAP_DISCARD | BLK_CAP_DISCARD_ZEROES | BLK_CAP_ATOMIC;
	W.disk->delay_ns = MS / 2;
	for (unsigned g = 1; g < GATES; g++) {
		W.peer[g].silent = false;
		peer_begins(g);
	}
	mine.blk = W.t.blk;
	mine.loop = W.t.loop;
	ck_assert_int_eq(mirror_lu_begin(&mine, &lu_ops, NULL, &W.lu), 0);
	mirror_lu_start(W.lu, 5, 1000 + seed, &W.object, false);
	gates_well();
	W.trouble_at = clock_now_ns() + draw(300 * MS);
	blk_on_resized(hears);
}

static void run_ends(void)
{
	for (unsigned g = 1; g < GATES; g++)
		mirrorpeer_end(&W.peer[g].p);
	W.stopped = true;
	blk_on_resized(NULL);
	lu_stopped = false;
	mirror_lu_stop(W.lu, stopped);
	for (unsigned i = 0; i < 1000 && !lu_stopped; i++)
		loop_step(W.t.loop, 0);
	ck_assert(lu_stopped);
	clock_fake_off();
	mirror_lu_end(W.lu);
	for (unsigned i = 0; i < W.events; i++)
		free(W.event[i].bytes);
	ct_close(&W.t, W.cache);
}

static void run(uint64_t seed)
{
	const uint64_t steps = 4000 + seed % 5 * 1000;
	struct mirror_show show;

	run_begins(seed);
	for (uint64_t i = 0; i < steps; i++) {
		step();
		if (i % 5 == 0)
			takeover_is_judged();
	}
	/* All ends well: whoever waits is answered, and the mirror is a valid one. */
	W.healing = true;
	for (unsigned g = 1; g < GATES; g++)
		W.peer[g].silent = false;
	W.disk->delay_ns = MS / 2;
	for (unsigned i = 0; i < 60000 && anybody(); i++)
		step();
	for (unsigned i = 0; i < SLOTS; i++)
		ck_assert_msg(!W.slot[i].busy, "seed %llu: command %u of %u+%u waits for %llu ms",
			      (unsigned long long)seed, W.slot[i].what, W.slot[i].first,
			      W.slot[i].n,
			      (unsigned long long)((clock_now_ns() - W.slot[i].began) / MS));
	takeover_is_judged();
	for (unsigned i = 0; i < 60000 && (W.object.state != GW_MIRROR_VALID || W.size < SECTORS);
	     i++)
		step();
	ck_assert_msg(W.size == SECTORS, "seed %llu: %u sectors", (unsigned long long)seed, W.size);
	mirror_lu_show(W.lu, &show);
	ck_assert_msg(show.mode == MIRROR_VALID, "seed %llu: mode %u", (unsigned long long)seed,
		      show.mode);
	takeover_is_judged();
	run_ends();
}

START_TEST(test_random)
{
	const unsigned seeds = (unsigned)(40 * unit_longer("TGT_MIRROR_SEEDS", 40));
	const char *first = getenv("TGT_MIRROR_SEED");

	for (uint64_t s = first ? strtoull(first, NULL, 0) : 0, n = 0; n < seeds; n++)
		run(s + n);
	printf("# %u seeds: %llu reads, %llu writes, %llu unmaps, %llu compare and write, "
	       "%llu atomic; %llu takeovers looked at; %llu frames; cut %llu, silent %llu, forgot "
	       "%llu, objects %llu, smaller %llu\n",
	       seeds, (unsigned long long)W.reads, (unsigned long long)W.writes,
	       (unsigned long long)W.discards, (unsigned long long)W.caws,
	       (unsigned long long)W.atomics, (unsigned long long)W.checks,
	       (unsigned long long)W.frames, (unsigned long long)W.cuts,
	       (unsigned long long)W.silences, (unsigned long long)W.forgets,
	       (unsigned long long)W.sets, (unsigned long long)W.shrinks);
	/* It has done what it is for. */
	ck_assert_uint_gt(W.reads, 50 * seeds);
	ck_assert_uint_gt(W.writes, 50 * seeds);
	ck_assert_uint_gt(W.discards, seeds);
	ck_assert_uint_gt(W.caws, seeds);
	ck_assert_uint_gt(W.atomics, seeds);
	ck_assert_uint_gt(W.sets, seeds);
	ck_assert_uint_gt(W.shrinks, 2 * seeds);
}
END_TEST

UNIT_MAIN("mirror cache", 280, test_random)
