/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An owner, by its rules, and a live peer in a process of its own, over TCP; or by RDMA, if there
 * is a device with the address TGT_MIRROR_ADDRESS (tests/vm/test_mirror_rdma.sh). That process is
 * killed again and again while writes, groups and tombstones are under way, and goes on with its
 * memory.
 * Then the owner is gone with all that it had, and a process takes over what the peer held: each
 * sector shows what was answered last, or something newer; groups are whole; nothing that was
 * unmapped is back. TGT_MIRROR_KILLS=N kills as often (10).
 *
 * This process is owner and keeper; it has no threads, and steps its loop by hand.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "events/clock.h"
#include "events/log.h"
#include "tests/support/unit.h"
#include "tgtd/cluster/live/mirror_link.h"
#include "tgtd/cluster/live/mirror_peer_live.h"

#define LU 77ull
#define SHIFT 9
#define SECTORS 8u
#define BLOCKS 64u
#define PAIRS 40u /* blocks from here on change in pairs, together */
#define ZEROS 24u /* blocks from here to PAIRS are unmapped, too */
#define BUSY 48u  /* at the owner at a time */
#define PATIENCE_NS (120 * NSEC_PER_SEC)

static const struct mirror_memory_conf sizes = {
	.lus = 2, .pages = BLOCKS, .page_shift = 12, .lent = 2 * MIRROR_BATCH
};

static struct shared {
	_Atomic unsigned port, seals, sealed, object_seq, object_seen;
	struct gw_mirror object; /* changed by the owner, between two steps of object_seq */
	uint64_t incarnation;
} * shared;

/* ---- the peer's process ---------------------------------------------------------------------- */
struct peer {
	struct mirror_links *links;
	struct mirror_live *live;
	unsigned seals; /* of them, those of before it began are not its own */
};

static void peer_sends(void *arg, unsigned to, unsigned channel, const struct mirror_frame *f)
{
	mirror_links_answer(((struct peer *)arg)->links, to, channel, f);
}

static void peer_hears(void *arg, unsigned from, unsigned channel, const struct mirror_frame *f)
{
	mirror_live_frame(((struct peer *)arg)->live, from, channel, f, clock_now_ns());
}

static void peer_no_owner(void *arg, unsigned from, unsigned channel, const struct mirror_frame *f)
{
	abort();
}

static void peer_no_down(void *arg, unsigned peer)
{
	abort();
}

static struct in_addr own_address(void)
{
	const char *text = getenv("TGT_MIRROR_ADDRESS");
	struct in_addr a = { htonl(INADDR_LOOPBACK) };

	if (text && !inet_aton(text, &a))
		abort();
	return a;
}

static struct mirror_links *links_start(struct loop *loop, unsigned self,
					const struct mirror_link_ops *ops, void *arg,
					const struct mirror_slots *slots)
{
	const char secret[] = "more than sixteen bytes";
	struct loop *loops[2] = { loop, loop };
	struct mirror_links_conf conf = { .self = self,
					  .gateways = 2,
					  .group = "g",
					  .secret = secret,
					  .secret_len = sizeof(secret),
					  .main = loop,
					  .loop = loops,
					  .loops = 2,
					  .slots = slots };

	if (getenv("TGT_MIRROR_ADDRESS")) /* (a machine that is emulated) */
		conf.connect_ns = 20 * NSEC_PER_SEC;

	for (unsigned i = 0; i < 2; i++) {
		struct sockaddr_in *at = (struct sockaddr_in *)&conf.address[i];

		at->sin_family = AF_INET;
		at->sin_addr = own_address();
		at->sin_port = htons(i == self ? 0 : 9); /* (told later) */
	}
	return mirror_links_start(&conf, ops, arg);
}

static void peer_looks(struct peer *p)
{
	static unsigned seen;
	struct gw_mirror m;
	unsigned seq = shared->object_seq;

	if (seq != seen && !(seq % 2)) {
		m = shared->object;
		if (shared->object_seq == seq) {
			mirror_live_object(p->live, LU, &m);
			shared->object_seen = seen = seq;
		}
	}
	if (shared->seals != p->seals) {
		p->seals = shared->seals;
		m = shared->object;
		(void)mirror_live_seal(p->live, LU, &m);
		shared->sealed = p->seals;
	}
}

static struct loop *new_loop(const char *name)
{
	const struct loop_conf conf = { .name = name, .node = -1, .cpu = -1 };
	struct loop *loop = loop_create(&conf);

	if (!loop)
		abort();
	return loop;
}

/* Never returns. */
static void peer_runs(int fd)
{
	static const struct mirror_link_ops link_ops = { .to_owner = peer_no_owner,
							 .to_peer = peer_hears,
							 .down = peer_no_down };
	static const struct mirror_live_ops live_ops = { .send = peer_sends };
	const struct mirror_live_conf conf = { .self = 1, .memory = sizes, .fd = fd };
	struct mirror_memory_left left;
	struct loop *loop = new_loop("peer");
	struct mirror_slots slots;
	struct peer p;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	p.live = mirror_live_new(&conf, &live_ops, &p, &left);
	if (!p.live || left.damaged || mirror_live_fd(p.live) != fd)
		abort();
	mirror_live_incarnation(p.live, shared->incarnation);
	if (!mirror_live_slots(p.live, &slots))
		abort();
	p.links = links_start(loop, 1, &link_ops, &p, &slots);
	if (!p.links)
		abort();
	p.seals = shared->seals;
	shared->port = mirror_links_port(p.links);
	while (true) {
		loop_step(loop, 2);
		peer_looks(&p);
	}
}

/* ---- the owner ------------------------------------------------------------------------------- */
static struct owner {
	struct mirror_owner *o;
	struct mirror_links *links;
	uint64_t block[BLOCKS][SECTORS], store[BLOCKS][SECTORS]; /* a sector's content */
	uint64_t answered[BLOCKS][SECTORS], zeroed[BLOCKS][SECTORS];
	uint64_t dirty[BLOCKS]; /* sectors */
	struct {
		uint64_t gen, stamp, map; /* gen 0: none */
		uint64_t block;
	} waits[4096];
	unsigned nwaits;
	bool busy[BLOCKS]; /* an order has it */
	struct {
		uint64_t cookie, stamp, gen; /* cookie 0: none */
		uint64_t first, count;
		bool held, group, over;
	} order[4];
	uint64_t stamp, cookies, epoch;
	bool setting, write_all;
	struct gw_mirror object, want;
	uint64_t downs;
	unsigned by_rdma; /* rounds that ended so */
	struct mirror_show sum;
} w;

static struct loop *loop;
static int memory_fd;
static pid_t child;
static uint64_t rng = 88172645463325252ull;

static uint64_t rnd(uint64_t n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng % n;
}

static uint64_t now(void)
{
	return clock_now_ns();
}

static void owner_sends(void *arg, unsigned peer, unsigned channel, struct mirror_frame *f)
{
	struct mirror_out *out = mirror_links_begin(w.links, peer, channel, f);
	uint8_t *to = out ? out->data : NULL;

	for (unsigned i = 0; out && i < f->n; i++) {
		const struct mirror_record *r = &f->record[i];

		for (unsigned s = 0; r->op == MIRROR_WRITE && s < SECTORS; s++) {
			uint64_t v = w.block[r->block][s];

			if (!(r->map >> s & 1))
				continue;
			for (unsigned k = 0; r->cookie && k < 4; k++)
				if (w.order[k].cookie == r->cookie)
					v = w.order[k].stamp;
			for (unsigned k = 0; k < (1u << SHIFT) / 8; k++, to += 8)
				memcpy(to, &v, 8);
		}
	}
	if (out)
		mirror_links_send(out, f);
}

static void owner_sets(void *arg, const struct gw_mirror *m)
{
	ck_assert(!w.setting);
	w.want = *m;
	w.setting = true;
}

static void owner_writes_all(void *arg)
{
	w.write_all = true;
}

static void owner_advanced(void *arg, uint64_t block, uint64_t gen)
{
}

static void owner_room(void *arg)
{
}

static void order_held(uint64_t cookie, uint64_t gen)
{
	for (unsigned k = 0; k < 4; k++)
		if (w.order[k].cookie == cookie) {
			w.order[k].held = true;
			w.order[k].gen = gen;
			/* A group changes at once. */
			for (uint64_t b = 0; w.order[k].group && b < 2; b++)
				for (unsigned s = 0; s < SECTORS; s++)
					w.block[w.order[k].first + b][s] = w.order[k].stamp;
			for (uint64_t b = 0; w.order[k].group && b < 2; b++)
				w.dirty[w.order[k].first + b] = (1u << SECTORS) - 1;
		}
}

static void owner_zero_held(void *arg, uint64_t cookie)
{
	order_held(cookie, 0);
}

static void owner_group_held(void *arg, uint64_t cookie, uint64_t gen)
{
	order_held(cookie, gen);
}

static void owner_zero_done(void *arg, uint64_t cookie)
{
	for (unsigned k = 0; k < 4; k++)
		if (w.order[k].cookie == cookie)
			w.order[k].over = true;
}

static void owner_says(void *arg, int level, const char *text)
{
	log_info("owner: %s", text);
}

static const struct mirror_owner_ops owner_ops = { .send = owner_sends,
						   .set = owner_sets,
						   .write_all = owner_writes_all,
						   .advanced = owner_advanced,
						   .room = owner_room,
						   .zero_held = owner_zero_held,
						   .group_held = owner_group_held,
						   .zero_done = owner_zero_done,
						   .say = owner_says };

static void owner_hears(void *arg, unsigned from, unsigned channel, const struct mirror_frame *f)
{
	mirror_owner_frame(w.o, from, f, now());
}

static void owner_no_peer(void *arg, unsigned from, unsigned channel, const struct mirror_frame *f)
{
	ck_abort_msg("the peer has sent what only an owner may");
}

static void owner_down(void *arg, unsigned peer)
{
	w.downs++;
	mirror_owner_down(w.o, peer, now());
}

static const struct mirror_link_ops owner_link_ops = { .to_owner = owner_hears,
						       .to_peer = owner_no_peer,
						       .down = owner_down };

/* ---- what it does ---------------------------------------------------------------------------- */
static void answers(uint64_t block, uint64_t map, uint64_t stamp)
{
	for (unsigned s = 0; s < SECTORS; s++)
		if (map >> s & 1)
			w.answered[block][s] = MAX(w.answered[block][s], stamp);
}

static void write_some(void)
{
	const uint64_t block = rnd(PAIRS);
	const unsigned first = (unsigned)rnd(SECTORS), n = (unsigned)rnd(SECTORS - first) + 1;
	const uint64_t map = ((1ull << n) - 1) << first;
	uint64_t gen;

	if (w.busy[block] || w.nwaits == ARRAY_SIZE(w.waits) ||
	    mirror_owner_write(w.o, (unsigned)rnd(2), block, map, &gen, now()))
		return;
	w.stamp++;
	for (unsigned s = first; s < first + n; s++)
		w.block[block][s] = w.stamp;
	w.dirty[block] |= map;
	w.waits[w.nwaits].gen = gen;
	w.waits[w.nwaits].stamp = w.stamp;
	w.waits[w.nwaits].map = map;
	w.waits[w.nwaits++].block = block;
}

static void order_some(void)
{
	const bool group = rnd(2);
	uint64_t first = group ? PAIRS + 2 * rnd((BLOCKS - PAIRS) / 2) : ZEROS + rnd(PAIRS - ZEROS);
	uint64_t count = group ? 2 : 1 + rnd(MIN(4, PAIRS - first));
	const uint64_t map[2] = { (1u << SECTORS) - 1, (1u << SECTORS) - 1 };
	const uint64_t blocks[2] = { first, first + 1 };
	unsigned k = 0;
	int err;

	while (k < 4 && w.order[k].cookie)
		k++;
	for (uint64_t b = first; b < first + count; b++)
		if (w.busy[b])
			return;
	if (k == 4)
		return;
	memset(&w.order[k], 0, sizeof(w.order[k]));
	w.order[k].cookie = ++w.cookies;
	w.order[k].stamp = ++w.stamp;
	w.order[k].first = first;
	w.order[k].count = count;
	w.order[k].group = group;
	for (uint64_t b = first; b < first + count; b++) {
		w.busy[b] = true;
		for (unsigned s = 0; !group && s < SECTORS; s++)
			w.zeroed[b][s] = w.stamp;
	}
	err = group ? mirror_owner_group(w.o, 1, 2, blocks, map, w.order[k].cookie, now()) :
		      mirror_owner_zero(w.o, first, count, w.order[k].cookie, now());
	if (!err)
		return;
	for (uint64_t b = first; b < first + count; b++)
		w.busy[b] = false;
	w.order[k].cookie = 0;
}

static void order_ends(unsigned k)
{
	for (uint64_t b = w.order[k].first; b < w.order[k].first + w.order[k].count; b++) {
		w.busy[b] = false;
		answers(b, (1u << SECTORS) - 1, w.order[k].stamp);
	}
	w.order[k].cookie = 0;
}

static void orders_look(void)
{
	for (unsigned k = 0; k < 4; k++) {
		const uint64_t first = w.order[k].first, count = w.order[k].count;

		if (!w.order[k].cookie || !w.order[k].held)
			continue;
		if (w.order[k].group) {
			if (mirror_owner_safe(w.o, first) >= w.order[k].gen &&
			    mirror_owner_safe(w.o, first + 1) >= w.order[k].gen)
				order_ends(k);
		} else if (w.order[k].over) {
			order_ends(k);
		} else if (!w.order[k].gen && !rnd(30)) {
			w.order[k].gen = 1; /* once: the store does it, later than others have
					     * written around it */
			for (uint64_t b = first; b < first + count; b++) {
				memset(w.store[b], 0, sizeof(w.store[b]));
				memset(w.block[b], 0, sizeof(w.block[b]));
				w.dirty[b] = 0;
			}
			mirror_owner_zeroed(w.o, w.order[k].cookie, 0, now());
		}
	}
}

static void stored(uint64_t b)
{
	const uint64_t gen = mirror_owner_gen(w.o, b);

	memcpy(w.store[b], w.block[b], sizeof(w.store[b]));
	w.dirty[b] = 0;
	if (gen)
		mirror_owner_stored(w.o, b, gen, now());
}

/* A block, and those that the store gets together with it. */
static void write_back(uint64_t block)
{
	const uint64_t together = mirror_owner_together(w.o, block);

	if (!w.dirty[block])
		return;
	for (uint64_t b = 0; together && b < BLOCKS; b++)
		if (b != block && mirror_owner_together(w.o, b) == together)
			stored(b);
	stored(block);
}

static void waits_look(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < w.nwaits; i++) {
		if (mirror_owner_safe(w.o, w.waits[i].block) >= w.waits[i].gen)
			answers(w.waits[i].block, w.waits[i].map, w.waits[i].stamp);
		else
			w.waits[n++] = w.waits[i];
	}
	w.nwaits = n;
}

static void object_says(const struct gw_mirror *m)
{
	w.object = *m;
	shared->object_seq++;
	shared->object = *m;
	shared->object_seq++;
}

static void owner_steps(void)
{
	loop_step(loop, 0);
	for (unsigned c = 0; c < 2; c++)
		mirror_owner_push(w.o, c, now());
	orders_look();
	waits_look();
	for (unsigned b = 0; w.write_all && b < BLOCKS; b++)
		write_back(b);
	w.write_all = false;
	if (w.setting && !rnd(4)) {
		w.setting = false;
		object_says(&w.want);
		mirror_owner_set_done(w.o, now());
	}
	mirror_owner_tick(w.o, now());
}

static void works(unsigned steps)
{
	while (steps--) {
		for (unsigned i = 0; i < 6; i++)
			write_some();
		if (!rnd(3))
			order_some();
		if (!rnd(2))
			write_back(rnd(BLOCKS));
		owner_steps();
	}
}

/* ---- kills ----------------------------------------------------------------------------------- */
static void peer_starts(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = own_address() };
	const uint64_t end = now() + PATIENCE_NS;

	shared->port = 0;
	shared->incarnation++;
	child = fork();
	if (!child)
		peer_runs(dup(memory_fd));
	while (!shared->port) {
		ck_assert_uint_lt(now(), end);
		ck_assert_int_eq(waitpid(child, NULL, WNOHANG), 0);
		usleep(500);
	}
	at.sin_port = htons((uint16_t)shared->port);
	mirror_links_address(w.links, 1, (struct sockaddr *)&at, sizeof(at));
}

static void peer_dies(void)
{
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
}

static void until_valid(void)
{
	const uint64_t end = now() + PATIENCE_NS;

	while (w.object.state != GW_MIRROR_VALID || w.setting) {
		ck_assert_uint_lt(now(), end);
		works(1);
		usleep(200);
	}
}

/* Writes are answered by the mirror, not by the store alone. */
static void until_answered(void)
{
	const uint64_t end = now() + PATIENCE_NS;
	struct mirror_show show;

	do {
		ck_assert_uint_lt(now(), end);
		owner_steps();
		mirror_owner_show(w.o, &show, now());
		usleep(200);
	} while (show.unacknowledged);
}

static void owner_starts(bool fast)
{
	const struct mirror_owner_config config = {
		.gateways = 2,
		.lu = LU,
		.shift = SHIFT,
		.blocks = BUSY,
		.mirrored = true,
		.dismiss_ns = fast ? 300 * NSEC_PER_MSEC : 4 * NSEC_PER_SEC, /* OPEN each second */
		.retry_ns = 20 * NSEC_PER_MSEC,
	};

	w.o = mirror_owner_new(&config, &owner_ops, NULL);
	ck_assert_ptr_nonnull(w.o);
	w.links = links_start(loop, 0, &owner_link_ops, NULL, NULL);
	ck_assert_ptr_nonnull(w.links);
}

static void links_ended(void *arg)
{
	*(bool *)arg = true;
}

static void owner_ends(void)
{
	const uint64_t end = now() + PATIENCE_NS;
	struct mirror_show show;
	bool ended = false;

	mirror_owner_show(w.o, &show, now());
	w.sum.sessions += show.sessions;
	w.sum.batches += show.batches;
	w.sum.dismissals += show.dismissals;
	mirror_links_stop(w.links, links_ended, &ended);
	while (!ended) {
		ck_assert_uint_lt(now(), end);
		loop_step(loop, 1);
	}
	mirror_owner_free(w.o);
}

/* ---- a takeover ------------------------------------------------------------------------------ */
static uint64_t seen[BLOCKS][SECTORS];

static int adopts(void *arg, uint64_t lu, const struct mirror_adopted *a)
{
	ck_assert_uint_lt(a->block, BLOCKS);
	ck_assert_uint_eq(a->shift, SHIFT);
	for (unsigned s = 0; s < SECTORS; s++)
		if (a->map >> s & 1)
			for (unsigned k = 0; k < (1u << SHIFT) / 8; k++) {
				uint64_t v;

				memcpy(&v, a->data + (s << SHIFT) + k * 8, 8);
				ck_assert(!k || v == seen[a->block][s]);
				seen[a->block][s] = v;
			}
	return 0;
}

/* The owner has gone, and all that it had; this process goes on with the peer's memory. */
static unsigned takeover(void)
{
	static const struct mirror_live_ops live_ops = { .send = peer_sends };
	const struct mirror_live_conf conf = { .self = 1, .memory = sizes, .fd = dup(memory_fd) };
	const struct gw_mirror none = { .state = GW_MIRROR_INVALID,
					.peer = GW_NOBODY,
					.epoch = w.object.epoch + 1 };
	struct mirror_memory_left left;
	struct mirror_live *l = mirror_live_new(&conf, &live_ops, NULL, &left);
	uint64_t first, count, gen;

	ck_assert_ptr_nonnull(l);
	ck_assert_uint_eq(left.damaged, 0);
	memcpy(seen, w.store, sizeof(seen));
	if (w.object.state == GW_MIRROR_VALID) {
		ck_assert(mirror_live_seal(l, LU, &w.object));
		while (mirror_live_zero(l, LU, &first, &count, &gen)) {
			for (uint64_t b = first; b < first + count; b++)
				memset(seen[b], 0, sizeof(seen[b]));
			mirror_live_zeroed(l, LU, gen);
		}
		ck_assert_int_eq(mirror_live_take(l, LU, BLOCKS, UINT32_MAX, adopts, NULL),
				 MIRROR_TAKEN);
	}
	mirror_live_object(l, LU, &none);
	mirror_live_free(l);
	for (unsigned b = 0; b < BLOCKS; b++)
		for (unsigned s = 0; s < SECTORS; s++) {
			const uint64_t v = seen[b][s] ? seen[b][s] : w.zeroed[b][s];

			ck_assert_msg(v >= w.answered[b][s],
				      "block %u sector %u: %llu was answered, %llu is there", b, s,
				      (unsigned long long)w.answered[b][s], (unsigned long long)v);
			ck_assert_msg(v <= w.stamp, "block %u sector %u is nobody's", b, s);
			/* A group whole: all sectors of both blocks. */
			ck_assert_msg(b < PAIRS || seen[b][s] == seen[b & ~1u][0],
				      "blocks %u and %u: half of a group", b & ~1u, b | 1);
		}
	/* It is in the store now, and nothing is dirty. */
	object_says(&none);
	memcpy(w.store, seen, sizeof(seen));
	memcpy(w.block, seen, sizeof(seen));
	memset(w.dirty, 0, sizeof(w.dirty));
	memset(w.order, 0, sizeof(w.order));
	memset(w.busy, 0, sizeof(w.busy));
	w.nwaits = 0;
	w.setting = w.write_all = false;
	return left.pages;
}

static void begin(void)
{
	struct mirror_memory *m = mirror_memory_new(&sizes);

	ck_assert_ptr_nonnull(m);
	memory_fd = dup(mirror_memory_fd(m));
	mirror_memory_free(m);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	loop = new_loop("owner");
	w.object.peer = GW_NOBODY;
	object_says(&w.object);
}

/* @fast: the peer is dismissed while it is away, and a new mirror begins. */
static void round_runs(unsigned kills, bool fast, bool seals, unsigned *taken)
{
	struct mirror_pair_show pair;

	owner_starts(fast);
	peer_starts();
	mirror_owner_start(w.o, ++w.epoch, 1, &w.object, false, now());
	mirror_owner_peers(w.o, 3, now());
	until_valid();
	works(200);
	for (unsigned i = 0; i < kills; i++) {
		const uint64_t away = now() + (fast ? 400 * NSEC_PER_MSEC : 0);

		peer_dies();
		do
			works(20);
		while (now() < away);
		peer_starts();
		if (!fast || i + 1 < kills)
			until_valid();
		works((unsigned)rnd(400));
		if (!fast)
			until_answered();
	}
	works(50);
	mirror_links_show_pair(w.links, 1, &pair);
	w.by_rdma += !strcmp(pair.up_by, "rdma");
	if (seals && w.object.state == GW_MIRROR_VALID) {
		const uint64_t end = now() + PATIENCE_NS;

		/* What is answered after this was so before, or is not by the mirror alone. */
		shared->seals++;
		while (shared->sealed != shared->seals) {
			ck_assert_uint_lt(now(), end);
			works(1);
		}
	}
	peer_dies();
	owner_ends();
	*taken += takeover();
}

START_TEST(killed_and_taken_over)
{
	const char *text = getenv("TGT_MIRROR_KILLS");
	const unsigned kills = text ? (unsigned)atoi(text) : 10;
	unsigned taken = 0;

	begin();
	log_set_level(LOG_LVL_ERROR);
	for (unsigned k = 0; k < kills; k += 2)
		round_runs(2, false, k % 4, &taken);
	round_runs(2, true, false, &taken);
	printf("# %u rounds by RDMA, %llu batches, %llu sessions, %llu dismissals, %llu links "
	       "ended, %u blocks taken over\n",
	       w.by_rdma, (unsigned long long)w.sum.batches, (unsigned long long)w.sum.sessions,
	       (unsigned long long)w.sum.dismissals, (unsigned long long)w.downs, taken);
	ck_assert_uint_gt(taken, 0);
	ck_assert_uint_gt(w.sum.sessions, kills);
	loop_destroy(loop);
}
END_TEST

UNIT_MAIN("mirror_pair", 240, killed_and_taken_over)
