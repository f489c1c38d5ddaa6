/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a mirrored 4 KiB write takes from its client to the peer and back, without Ceph and iSCSI:
 * time, and how often a thread is woken, for one write at a time and for 32. Beside it the same
 * write to a cache that is written behind and mirrored nowhere.
 *
 *     client -- message --> unit's thread -- channel over loopback --> peer's thread, and back
 *
 * Client, unit, cache's worker and peer have a thread each, as gateways have. With two units each
 * has a client and a thread of its own; first each has a channel of its own, then one is for both.
 *
 *   make all
 *   cc -O2 -D_GNU_SOURCE -I. -o mirror_write tests/bench/mirror_write.c tests/support/memdisk.c \
 *       -Wl,--start-group build/lib*.a -Wl,--end-group -laio -lnuma -lisal -lcrypto -ljansson \
 *       -lsystemd -lrt -lm -lseccomp -lrdmacm -libverbs
 *   ./mirror_write [SECONDS]
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "cache/engine/cache.h"
#include "events/clock.h"
#include "events/log.h"
#include "events/topology.h"
#include "tests/support/memdisk.h"
#include "tgtd/cluster/live/mirror_lu.h"
#include "tgtd/cluster/live/mirror_peer_live.h"

#define BLOCK 4096u
#define RANGE 256u /* blocks */
#define DEPTH 32u
#define UNITS 2u
#define SAMPLES 4000000u

struct unit;
struct command {
	struct unit *unit;
	struct loop_msg msg;
	struct blk_req req;
	uint64_t began;
	bool granted;
};
struct unit {
	struct loop *client, *loop;
	struct memdisk *disk;
	struct blk *blk;
	struct mirror_lu *mirror;
	struct loop_msg begins, set;
	struct command command[DEPTH];
	unsigned under_way;
	uint64_t next, *sample, nsamples;
	_Atomic bool over;
};

static struct unit unit[UNITS];
static struct loop *main_loop, *worker, *peer_loop;
static struct mirror_links *owner, *peer;
static struct mirror_live *live;
static unsigned depth, channels = UNITS;
static uint64_t until;
static uint8_t bytes[BLOCK];

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "mirror_write: %s: %m\n", what);
	exit(1);
}

static struct loop *new_loop(const char *name)
{
	const struct loop_conf conf = { .name = name, .node = -1, .cpu = -1, .spin_ns = 20000 };
	struct loop *loop = loop_create(&conf);

	must(loop && !loop_start(loop), "loop");
	return loop;
}

/* ---- a write --------------------------------------------------------------------------------- */
static void command_sent(struct loop_msg *msg);

static void command_begins(struct command *c)
{
	c->began = clock_now_ns();
	c->msg.handle = command_sent;
	c->unit->under_way++;
	loop_post(c->unit->loop, &c->msg);
}

static void command_answered(struct loop_msg *msg)
{
	struct command *c = container_of(msg, struct command, msg);
	struct unit *u = c->unit;
	const uint64_t now = clock_now_ns();

	must(!c->req.status, "a write has failed");
	if (u->nsamples < SAMPLES)
		u->sample[u->nsamples++] = now - c->began;
	u->under_way--;
	if (now < until)
		command_begins(c);
	else if (!u->under_way)
		u->over = true;
}

static void command_ends(struct command *c)
{
	blk_req_release(&c->req);
	blk_req_fini(&c->req);
	c->msg.handle = command_answered;
	loop_post(c->unit->client, &c->msg);
}

static void command_granted(struct command *c)
{
	c->granted = true;
	frags_copy_in(&c->req.data, 0, bytes, BLOCK);
	if (blk_submit(c->unit->blk, &c->req))
		command_ends(c);
}

static void command_done(struct blk_req *req)
{
	struct command *c = container_of(req, struct command, req);

	if (c->granted)
		command_ends(c);
	else
		command_granted(c);
}

static void command_sent(struct loop_msg *msg)
{
	struct command *c = container_of(msg, struct command, msg);
	struct unit *u = c->unit;

	blk_req_init(&c->req);
	c->req.op = BLK_WRITE;
	c->req.offset = u->next++ % RANGE * BLOCK;
	c->req.len = BLOCK;
	c->req.stream = 1;
	c->req.done = command_done;
	c->granted = false;
	if (blk_write_prepare(u->blk, &c->req))
		command_granted(c);
}

static void client_begins(struct loop_msg *msg)
{
	struct unit *u = container_of(msg, struct unit, begins);

	for (unsigned i = 0; i < depth; i++) {
		u->command[i].unit = u;
		command_begins(&u->command[i]);
	}
}

/* ---- the mirror ------------------------------------------------------------------------------ */
static void to_owner(void *arg, unsigned from, unsigned channel, const struct mirror_frame *f)
{
	mirror_lu_frame(unit[f->lu].mirror, from, f);
}

static void to_peer(void *arg, unsigned from, unsigned channel, const struct mirror_frame *f)
{
	mirror_live_frame(live, from, channel, f, clock_now_ns());
}

static void link_down(void *arg, unsigned gateway)
{
	fprintf(stderr, "mirror_write: the link has ended\n");
	exit(1);
}

static const struct mirror_link_ops link_ops = { .to_owner = to_owner,
						 .to_peer = to_peer,
						 .down = link_down };

static void peer_sends(void *arg, unsigned to, unsigned channel, const struct mirror_frame *f)
{
	mirror_links_answer(peer, to, channel, f);
}

static void *lu_begin(void *arg, unsigned to, unsigned channel, struct mirror_frame *f,
		      uint8_t **data)
{
	struct mirror_out *out = mirror_links_begin(owner, to, channel % channels, f);

	if (out)
		*data = out->data;
	return out;
}

static void lu_send(void *arg, void *out, struct mirror_frame *f)
{
	mirror_links_send(out, f);
}

static void object_set(struct loop_msg *msg)
{
	mirror_lu_set_done(container_of(msg, struct unit, set)->mirror);
}

static void lu_set(void *arg, const struct gw_mirror *m)
{
	struct unit *u = arg;

	u->set.handle = object_set;
	loop_post(main_loop, &u->set);
}

static void lu_say(void *arg, int level, const char *text)
{
}

static const struct mirror_lu_ops lu_ops = {
	.begin = lu_begin, .send = lu_send, .set = lu_set, .say = lu_say
};

static void links_begin(void *arg)
{
	const char secret[] = "more than sixteen bytes";
	struct loop *home[UNITS] = { worker, worker };
	struct mirror_links_conf conf = { .self = 1,
					  .gateways = 2,
					  .group = "bench",
					  .secret = secret,
					  .secret_len = sizeof(secret),
					  .main = main_loop,
					  .loop = &peer_loop,
					  .loops = 1,
					  .transport = MIRROR_TCP };
	struct sockaddr_in *at = (struct sockaddr_in *)&conf.address[1];

	at->sin_family = AF_INET;
	at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	peer = mirror_links_start(&conf, &link_ops, NULL);
	must(peer != NULL, "links");
	at->sin_port = htons((uint16_t)mirror_links_port(peer));
	memcpy(&conf.address[0], at, sizeof(*at));
	((struct sockaddr_in *)&conf.address[0])->sin_port = 0;
	conf.self = 0;
	conf.loop = home;
	conf.loops = UNITS;
	owner = mirror_links_start(&conf, &link_ops, NULL);
	must(owner != NULL, "links");
}

static void nap(unsigned ms)
{
	const struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}

static void mirrors_begin(void)
{
	static const struct mirror_live_ops live_ops = { .send = peer_sends };
	const struct mirror_live_conf conf = {
		.self = 1, .memory = { .lus = 4, .pages = 4 * RANGE, .page_shift = 12 }, .fd = -1
	};
	const struct gw_mirror none = { .state = GW_MIRROR_NONE, .peer = GW_NOBODY };
	struct mirror_memory_left left;
	struct mirror_show show;

	live = mirror_live_new(&conf, &live_ops, NULL, &left);
	must(live != NULL, "memory");
	mirror_live_incarnation(live, 1);
	loop_call(main_loop, links_begin, NULL);
	for (unsigned i = 0; i < UNITS; i++) {
		struct mirror_lu_conf lu = { .owner = { .gateways = 2,
							.lu = i,
							.blocks = 2 * RANGE,
							.mirrored = true },
					     .blk = unit[i].blk,
					     .most = 8,
					     .loop = worker,
					     .channel = i };

		must(!mirror_lu_begin(&lu, &lu_ops, &unit[i], &unit[i].mirror), "mirror");
		mirror_lu_start(unit[i].mirror, 3, 4, &none, false);
		mirror_lu_peers(unit[i].mirror, 3);
		do {
			nap(10);
			mirror_lu_show(unit[i].mirror, &show);
		} while (show.mode != MIRROR_VALID);
	}
}

/* ---- rows ------------------------------------------------------------------------------------ */
struct sums {
	uint64_t woken, sleeps, cpu_ns, switches;
};

static void sum_one(struct loop *loop, void *arg)
{
	struct sums *s = arg;
	struct loop_stats is;

	loop_get_stats(loop, &is);
	s->woken += is.wakeups_sent;
	s->sleeps += is.sleeps;
	s->cpu_ns += is.cpu_ns;
}

static struct sums sums_now(void)
{
	struct sums s = { 0 };
	struct rusage all;

	getrusage(RUSAGE_SELF, &all);
	s.switches = (uint64_t)all.ru_nvcsw;
	loop_for_each(sum_one, &s);
	return s;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void row(const char *name, unsigned units, unsigned at_once, double seconds)
{
	struct sums before = { 0 }, after = { 0 };
	struct unit *u = unit;
	double n = 0;

	depth = at_once;
	nap(4000); /* what is dirty goes out */
	until = clock_now_ns() + (uint64_t)(seconds * 1e9);
	before = sums_now();
	for (unsigned i = 0; i < units; i++) {
		unit[i].nsamples = 0;
		unit[i].over = false;
		unit[i].begins.handle = client_begins;
		loop_post(unit[i].client, &unit[i].begins);
	}
	for (unsigned i = 0; i < units; i++)
		while (!unit[i].over)
			nap(10);
	after = sums_now();
	for (unsigned i = 0; i < units; i++)
		n += (double)unit[i].nsamples;
	qsort(u->sample, u->nsamples, sizeof(*u->sample), by_value);
	printf("%-10s %u x %2u: p50 %6.1f us, p99 %7.1f us, %7.0f a second; "
	       "a write: %.2f wake-ups, %.2f sleeps, %.2f switches, %.1f us of CPU\n",
	       name, units, at_once, (double)u->sample[u->nsamples / 2] / 1e3,
	       (double)u->sample[u->nsamples * 99 / 100] / 1e3, n / seconds,
	       (double)(after.woken - before.woken) / n, (double)(after.sleeps - before.sleeps) / n,
	       (double)(after.switches - before.switches) / n,
	       (double)(after.cpu_ns - before.cpu_ns) / n / 1e3);
	fflush(stdout);
}

static void rows(const char *name, double seconds)
{
	row(name, 1, 1, seconds);
	row(name, 1, 32, seconds);
	row(name, UNITS, 1, seconds);
}

int main(int argc, char **argv)
{
	const double seconds = argc > 1 ? atof(argv[1]) : 2;
	static struct topology topo;
	struct cache_conf conf = { .topo = &topo, .workers = &worker };
	struct cache *cache;
	char err[200];

	log_set_level(LOG_LVL_WARN);
	must(!topology_simulate(&topo, 1), "topology");
	main_loop = new_loop("main");
	worker = new_loop("worker");
	peer_loop = new_loop("peer");
	must(!cache_parse(&conf, "size=16m", err, sizeof(err)), err);
	cache = cache_create(&conf);
	must(cache != NULL, "cache");
	for (unsigned i = 0; i < UNITS; i++) {
		struct unit *u = &unit[i];

		u->sample = calloc(SAMPLES, sizeof(*u->sample));
		u->disk = memdisk_create(MiB(16), 512, i ? "one" : "zero");
		must(u->sample && u->disk, "memory");
		u->blk = cache_open(cache, &u->disk->blk, false);
		must(u->blk != NULL, "cache_open");
		u->client = new_loop("client");
		u->loop = new_loop("unit");
	}
	rows("local", seconds);
	mirrors_begin();
	rows("mirrored", seconds);
	channels = 1;
	row("on one", UNITS, 1, seconds);
	return 0;
}
