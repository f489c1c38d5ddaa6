/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A mirrored LU on several threads: three read and write through the cache, one of them is the
 * LU's own, a fourth is the peer. Their links end now and then. What each has been told must be in
 * the store or with the peer in the end. For ThreadSanitizer above all. And who sends for others
 * does so for a while only.
 */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "events/clock.h"
#include "events/log.h"
#include "tests/support/blktest.h"
#include "tests/support/memdisk.h"
#include "tests/support/mirrorpeer.h"
#include "tests/support/unit.h"
#include "cache/engine/io_impl.h"
#include "tgtd/cluster/live/mirror_lu.h"

#define BLOCK KiB(4)
#define THREADS 3
#define ANSWERED 1 /* answers come on that thread, which is not the LU's */
#define EACH 48u   /* blocks */
#define SLOTS 8
#define FED_SLOTS EACH /* each has its block */
#define PAGES 512
#define LU 7
#define COMMANDS 5000u /* of a thread */
#define FED 3000u	/* of each, where there is always more to be sent */
#define AT_ONCE 96u	/* frames, and the loop is to go on */

struct agent;
struct slot {
	struct blk_req req;
	struct loop_msg next;
	struct agent *agent;
	uint64_t block, n, serial;
	bool write, granted;
};
struct agent {
	struct loop *loop;
	struct loop_msg msg;
	uint64_t rng, serial, floor[EACH];
	unsigned left, running;
	bool taken[EACH];
	struct slot slot[FED_SLOTS];
};

struct packet {
	struct loop_msg msg;
	uint32_t conn;
	unsigned channel;
	size_t len;
	uint8_t bytes[];
};
struct down {
	struct loop_msg msg;
	uint32_t conn;
};

static struct {
	struct topology topo;
	struct cache *cache;
	struct memdisk *disk;
	struct blk *blk;
	struct mirror_lu *lu;
	struct agent agent[THREADS];
	struct loop *peers;
	struct mirrorpeer peer;
	_Atomic uint32_t conn;
	struct gw_mirror object; /* who has the LU's turn */
	struct loop_msg set_msg;
	struct timer set; /* the LU's loop */
	sem_t over;
	_Atomic uint64_t acks, batches, cuts;
	_Atomic uint64_t direct; /* batches that a thread has sent which is not the LU's */
	/* Who sends waits until another thread has written. */
	bool feeds;
	_Atomic uint64_t written[THREADS];
	_Atomic unsigned most; /* frames of an iteration of a loop */
} g;

/* ---- the wire -------------------------------------------------------------------------------- */
static void to_peer(struct loop_msg *msg)
{
	struct packet *p = container_of(msg, struct packet, msg);
	struct mirror_frame f;

	if (p->conn == atomic_load(&g.conn)) {
		BUG_ON(mirror_decode(&f, p->bytes, p->len) != NULL);
		mirror_peer_frame(g.peer.rules, 0, p->channel, &f, clock_now_ns());
	}
	free(p);
}

static void to_owner(struct loop_msg *msg)
{
	struct packet *p = container_of(msg, struct packet, msg);
	struct mirror_frame f;

	if (p->conn == atomic_load(&g.conn)) {
		BUG_ON(mirror_decode(&f, p->bytes, p->len) != NULL);
		atomic_fetch_add(&g.acks, 1);
		mirror_lu_frame(g.lu, 1, &f);
	}
	free(p);
}

static void *ops_begin(void *arg, unsigned peer, unsigned channel, struct mirror_frame *f,
		       uint8_t **data)
{
	struct packet *p;

	if (f->kind == MIRROR_OPEN)
		atomic_fetch_add(&g.conn, 1);
	p = malloc(sizeof(*p) + MIRROR_HEAD_MAX + mirrorpeer_inline(f));
	p->channel = channel;
	p->conn = atomic_load(&g.conn);
	*data = p->bytes + MIRROR_HEAD_MAX;
	return p;
}

static uint64_t written_by_others(void)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < THREADS; i++)
		if (g.agent[i].loop != loop_current())
			n += atomic_load(&g.written[i]);
	return n;
}

static void another_writes(void)
{
	const uint64_t till = clock_now_ns() + 5 * NSEC_PER_MSEC, n = written_by_others();

	while (written_by_others() == n && clock_now_ns() < till)
		usleep(50);
}

static void counts_frame(void)
{
	static __thread uint64_t iteration;
	static __thread unsigned n;
	struct loop_stats is;

	loop_get_stats(loop_current(), &is);
	n = is.iterations == iteration ? n + 1 : 1;
	iteration = is.iterations;
	for (unsigned most = atomic_load(&g.most);
	     n > most && !atomic_compare_exchange_weak(&g.most, &most, n);)
		;
}

static void ops_send(void *arg, void *out, struct mirror_frame *f)
{
	struct packet *p = out;
	size_t head;

	mirrorpeer_sum(f, p->bytes + MIRROR_HEAD_MAX);
	head = mirror_encode(f, p->bytes);
	memmove(p->bytes + head, p->bytes + MIRROR_HEAD_MAX, f->data_len);
	p->len = head + f->data_len;
	p->msg.handle = to_peer;
	atomic_fetch_add(&g.batches, 1);
	atomic_fetch_add(&g.direct, loop_current() != g.agent[0].loop);
	loop_post(g.peers, &p->msg);
	counts_frame();
	if (g.feeds && loop_current() != g.agent[ANSWERED].loop)
		another_writes();
}

static void peer_sends(struct mirrorpeer *peer, unsigned to, unsigned channel,
		       const struct mirror_frame *f)
{
	struct packet *p = malloc(sizeof(*p) + MIRROR_HEAD_MAX);

	p->conn = atomic_load(&g.conn);
	p->channel = channel;
	p->len = mirror_encode(f, p->bytes);
	p->msg.handle = to_owner;
	loop_post(g.agent[ANSWERED].loop, &p->msg);
}

static void object_is_set(struct timer *t)
{
	mirror_lu_set_done(g.lu);
}

static void object_changes(struct loop_msg *msg)
{
	loop_timer_arm(g.agent[0].loop, &g.set, 3 * NSEC_PER_MSEC);
}

static void ops_set(void *arg, const struct gw_mirror *m)
{
	g.object = *m;
	g.set_msg.handle = object_changes;
	loop_post(g.agent[0].loop, &g.set_msg);
}

static void ops_say(void *arg, int level, const char *text)
{
}

static const struct mirror_lu_ops lu_ops = {
	.begin = ops_begin,
	.send = ops_send,
	.set = ops_set,
	.say = ops_say,
};

static void link_down(struct loop_msg *msg)
{
	struct down *d = container_of(msg, struct down, msg);

	if (d->conn == atomic_load(&g.conn))
		mirror_lu_down(g.lu, 1);
	free(d);
}

static void link_cuts(void)
{
	struct down *d = malloc(sizeof(*d));

	d->conn = atomic_fetch_add(&g.conn, 1) + 1;
	d->msg.handle = link_down;
	atomic_fetch_add(&g.cuts, 1);
	loop_post(g.agent[2].loop, &d->msg);
}

/* ---- commands -------------------------------------------------------------------------------- */
static uint64_t block_says(const uint8_t *at)
{
	uint64_t first, more;

	memcpy(&first, at, 8);
	for (unsigned i = 512; i < BLOCK; i += 512) {
		memcpy(&more, at + i, 8);
		BUG_ON(more != first); /* blocks are written whole */
	}
	return first;
}

static void ends(struct slot *s)
{
	struct agent *a = s->agent;
	const uint64_t mine = (uint64_t)(a - g.agent) * EACH;
	static __thread uint8_t bytes[4 * BLOCK];

	BUG_ON(s->req.status);
	if (!s->write)
		frags_copy_out(&s->req.data, 0, bytes, s->req.len);
	for (uint64_t i = 0; i < s->n; i++) {
		const uint64_t b = s->block + i - mine;

		if (s->write) {
			a->floor[b] = s->serial;
			a->taken[b] = false;
			continue;
		}
		const uint64_t says = block_says(bytes + i * BLOCK);

		if (b < EACH && !a->taken[b])
			BUG_ON(says < a->floor[b]);
	}
	blk_req_release(&s->req);
	blk_req_fini(&s->req);
	loop_post(a->loop, &s->next);
}

static void granted(struct slot *s)
{
	static __thread uint8_t bytes[4 * BLOCK];

	s->granted = true;
	for (size_t i = 0; i < s->req.len; i += 8)
		memcpy(bytes + i, &s->serial, 8);
	frags_copy_in(&s->req.data, 0, bytes, s->req.len);
	if (blk_submit(g.blk, &s->req))
		ends(s);
	atomic_fetch_add(&g.written[s->agent - g.agent], 1);
}

static void done(struct blk_req *req)
{
	struct slot *s = container_of(req, struct slot, req);

	if (s->write && !s->granted)
		granted(s);
	else
		ends(s);
}

static void slot_begins(struct slot *s)
{
	struct agent *a = s->agent;
	const uint64_t mine = (uint64_t)(a - g.agent) * EACH;
	/* (Fed: a write, no FUA, no cut.) */
	const unsigned dice = g.feeds ? 10 : (unsigned)(bt_random(&a->rng) % 100);
	bool all_free = true;

	s->n = 1 + bt_random(&a->rng) % 4;
	s->write = dice < 50;
	s->block = s->write ? mine + bt_random(&a->rng) % (EACH - s->n) :
			      bt_random(&a->rng) % (THREADS * EACH - s->n);
	if (g.feeds) {
		s->n = 1;
		s->block = mine + (uint64_t)(s - a->slot);
	}
	for (uint64_t i = 0; s->write && i < s->n; i++)
		all_free &= !a->taken[s->block + i - mine];
	s->write &= all_free;
	for (uint64_t i = 0; s->write && i < s->n; i++)
		a->taken[s->block + i - mine] = true;
	a->left--;
	s->serial = ++a->serial;
	s->granted = false;
	blk_req_init(&s->req);
	s->req.op = s->write ? BLK_WRITE : BLK_READ;
	s->req.flags = s->write && dice < 5 ? BLK_F_FUA : 0;
	s->req.offset = s->block * BLOCK;
	s->req.len = s->n * BLOCK;
	s->req.stream = (uint64_t)(a - g.agent) + 1;
	s->req.done = done;
	if (a == &g.agent[2] && dice == 99)
		link_cuts();
	if (!s->write) {
		if (blk_submit(g.blk, &s->req))
			ends(s);
	} else if (blk_write_prepare(g.blk, &s->req)) {
		granted(s);
	}
}

static void slot_next(struct loop_msg *msg)
{
	struct slot *s = container_of(msg, struct slot, next);
	struct agent *a = s->agent;

	if (a->left)
		slot_begins(s);
	else if (!--a->running)
		sem_post(&g.over);
}

static void agent_begins(struct loop_msg *msg)
{
	struct agent *a = container_of(msg, struct agent, msg);

	a->running = g.feeds ? FED_SLOTS : SLOTS;
	for (unsigned i = 0; i < a->running; i++) {
		a->slot[i].agent = a;
		a->slot[i].next.handle = slot_next;
		loop_post(a->loop, &a->slot[i].next);
	}
}

/* ---- begin, end ------------------------------------------------------------------------------ */
static struct loop *thread_new(const char *name)
{
	struct loop *l = loop_create(&(struct loop_conf){ .name = name, .node = -1, .cpu = -1 });

	ck_assert_ptr_nonnull(l);
	ck_assert_int_eq(loop_start(l), 0);
	return l;
}

static void stopped(void *arg)
{
	sem_post(&g.over);
}

static void wait_over(unsigned n)
{
	while (n)
		if (!sem_wait(&g.over))
			n--;
}

/* The owner dies now. */
static void takeover_is_judged(void)
{
	static uint8_t view[THREADS * EACH * BLOCK];
	const bool valid = g.object.state == GW_MIRROR_VALID;

	ck_assert(!valid || mirror_peer_has(g.peer.rules, LU, &g.object));
	memcpy(view, g.disk->data, sizeof(view));
	if (valid)
		mirrorpeer_lay_over(&g.peer, LU, view, THREADS * EACH);
	for (uint64_t b = 0; b < THREADS * EACH; b++)
		ck_assert_uint_ge(block_says(view + b * BLOCK), g.agent[b / EACH].floor[b % EACH]);
}

static void world_runs(unsigned commands, uint32_t blocks)
{
	const struct mirror_peer_config config = { .self = 1, .lus = 4, .pages = PAGES };
	struct cache_conf conf = { .topo = &g.topo };
	struct gw_mirror none = { .state = GW_MIRROR_NONE, .peer = GW_NOBODY };
	char err[200];

	log_set_level(LOG_LVL_ERROR);
	ck_assert_int_eq(topology_simulate(&g.topo, 1), 0);
	ck_assert_int_eq(cache_parse(&conf, "size=2m", err, sizeof(err)), 0);
	g.cache = cache_create(&conf);
	g.disk = memdisk_create(MiB(16), 512, "mt-mirror");
	ck_assert(g.cache && g.disk);
	g.disk->delay_ns = NSEC_PER_MSEC / 2;
	g.blk = cache_open(g.cache, &g.disk->blk, false);
	sem_init(&g.over, 0, 0);
	timer_init(&g.set, object_is_set);
	g.object = none;
	g.peers = thread_new("peer");
	mirrorpeer_begin(&g.peer, &config, peer_sends);
	for (unsigned i = 0; i < THREADS; i++) {
		g.agent[i].loop = thread_new("agent");
		g.agent[i].rng = 88172645463325252ull * (i + 1) + 1;
		g.agent[i].left = commands;
		g.agent[i].msg.handle = agent_begins;
	}
	ck_assert_int_eq(mirror_lu_begin(
				 &(struct mirror_lu_conf){
					 .owner = { .gateways = 2,
						    .lu = LU,
						    .blocks = blocks,
						    .mirrored = true,
						    .dismiss_ns = 20 * NSEC_PER_SEC },
					 .blk = g.blk,
					 .most = 8,
					 .loop = g.agent[0].loop },
				 &lu_ops, NULL, &g.lu),
			 0);
	mirror_lu_start(g.lu, 3, 4, &none, false);
	mirror_lu_peers(g.lu, 3);
	for (unsigned i = 0; i < THREADS; i++)
		loop_post(g.agent[i].loop, &g.agent[i].msg);
	wait_over(THREADS);
	mirror_lu_stop(g.lu, stopped);
	wait_over(1);
	/* What is under way still is of no account; but whoever has a SYNC at the store for others
	 * hears of its end. */
	while (sync_group_busy(&cache_dev_of(g.blk)->syncs))
		usleep(1000);
	loop_end(g.peers);
	for (unsigned i = 0; i < THREADS; i++)
		loop_end(g.agent[i].loop);
	takeover_is_judged();
	mirror_lu_end(g.lu);
	blk_close(g.blk);
	cache_destroy(g.cache);
	mirrorpeer_end(&g.peer);
}

START_TEST(test_threads)
{
	world_runs(COMMANDS, 64);
	printf("# %llu batches, %llu by who has written, %llu answers, %llu cuts\n",
	       (unsigned long long)atomic_load(&g.batches),
	       (unsigned long long)atomic_load(&g.direct),
	       (unsigned long long)atomic_load(&g.acks), (unsigned long long)atomic_load(&g.cuts));
	ck_assert_uint_gt(atomic_load(&g.acks), 100);
	ck_assert_uint_gt(atomic_load(&g.direct), 100);
	ck_assert_uint_gt(atomic_load(&g.cuts), 1);
}
END_TEST

/* There is always more to be sent, and no loop is held by that. */
START_TEST(test_turn_is_given)
{
	g.feeds = true;
	world_runs(FED, 1024);
	printf("# %llu batches, at most %u at once\n",
	       (unsigned long long)atomic_load(&g.batches), atomic_load(&g.most));
	ck_assert_uint_gt(atomic_load(&g.batches), 2 * AT_ONCE);
	ck_assert_uint_le(atomic_load(&g.most), AT_ONCE);
}
END_TEST

UNIT_MAIN("mirror with threads", 240, test_threads, test_turn_is_given)
