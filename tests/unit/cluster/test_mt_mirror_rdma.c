/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Links between gateways over RDMA, on threads and the stand-in adapter, with a live peer behind
 * them: its pages are the slots that were written to, and nothing is copied. Where one end has no
 * device, or it fails, links go over TCP; or not at all, where that is what was asked for. A seal
 * cuts the link off. All is given back.
 */
#include "tests/support/unit.h"
#ifndef HAVE_RDMA
START_TEST(not_built)
{
}
END_TEST
UNIT_MAIN("mt_mirror_rdma (built without rdma-core)", 5, not_built)
#else
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "events/clock.h"
#include "events/log.h"
#include "events/metrics.h"
#include "tests/support/mirrorlinks.h"
#include "tests/support/rdmafake.h"
#include "tgtd/cluster/live/mirror_link_impl.h"
#include "tgtd/cluster/live/mirror_peer_live.h"
#include "tgtd/cluster/live/mirror_rdma_impl.h"

#define BLOCKS 512u
#define BLOCK 4096u
#define LU 5

static struct mirror_live *live;
static struct gateway {
	unsigned self;
	struct mirror_links *links;
	enum mirror_transport transport;
	bool no_device;
	uint32_t lent;
	_Atomic unsigned welcomes, acks, refused, downs;
} a = { .self = 0 }, b = { .self = 1, .lent = MIRROR_BATCH * LOOPS };

/* ---- two gateways ---------------------------------------------------------------------------- */
static void to_owner(void *arg, unsigned from, unsigned channel, const struct mirror_frame *f)
{
	struct gateway *g = arg;

	if (f->kind == MIRROR_WELCOME)
		g->welcomes++;
	else if (!f->result)
		g->acks++;
	else
		g->refused++;
}

static void to_peer(void *arg, unsigned from, unsigned channel, const struct mirror_frame *f)
{
	mirror_live_frame(live, from, channel, f, clock_now_ns());
}

static void down(void *arg, unsigned peer)
{
	((struct gateway *)arg)->downs++;
}

static const struct mirror_link_ops ops = { .to_owner = to_owner,
					    .to_peer = to_peer,
					    .down = down };

static void peer_answers(void *arg, unsigned to, unsigned channel, const struct mirror_frame *f)
{
	mirror_links_answer(b.links, to, channel, f);
}

static const struct mirror_live_ops live_ops = { .send = peer_answers };

static void start_on_main(void *arg)
{
	struct gateway *g = arg;
	struct mirror_links_conf conf = mirrorlinks_conf(g->self, "sixteen bytes or more");
	struct mirror_slots slots;

	conf.transport = g->transport;
	if (g == &b && mirror_live_slots(live, &slots))
		conf.slots = &slots;
	fake.no_device = g->no_device;
	g->links = mirror_links_start(&conf, &ops, g);
	if (g == &a)
		mirrorlinks_meet(a.links, b.links);
}

static void begin(void)
{
	struct mirror_live_conf conf = { .self = 1,
					 .memory = { .lus = 4, .pages = BLOCKS, .page_shift = 12 },
					 .fd = -1 };
	struct mirror_memory_left left;

	log_set_level(LOG_LVL_ERROR);
	rdmafake_install();
	conf.memory.lent = b.lent;
	ck_assert_ptr_nonnull(live = mirror_live_new(&conf, &live_ops, NULL, &left));
	mirror_live_incarnation(live, 3);
	mirrorlinks_loops_start();
	loop_call(main_loop, start_on_main, &b);
	loop_call(main_loop, start_on_main, &a);
	ck_assert(a.links && b.links);
}

/* All frames are back: as many can be lent as at first. */
static void none_is_lent(void)
{
	struct mirror_slots s;
	uint64_t ticket;
	uint32_t n = 0;

	ck_assert_int_eq(mirror_live_slots(live, &s), b.lent != 0);
	while (s.lend(s.arg, &ticket) != UINT32_MAX)
		n++;
	ck_assert_uint_eq(n, b.lent);
}

static void finish(void)
{
	mirrorlinks_stop(a.links);
	mirrorlinks_stop(b.links);
	none_is_lent();
	mirrorlinks_loops_end();
	mirror_live_free(live);
	ck_assert(rdmafake_clean());
}

/* ---- frames ---------------------------------------------------------------------------------- */
static void frame_of(struct mirror_frame *f, enum mirror_kind kind, uint64_t serial)
{
	memset(f, 0, sizeof(*f));
	f->kind = (uint8_t)kind;
	f->result = kind == MIRROR_OPEN;
	f->shift = 9;
	f->lu = LU;
	f->session = (struct mirror_session){ 1, 1, 1 };
	f->mirror = 1;
	f->serial = serial;
}

static uint8_t byte_of(uint64_t block, uint64_t gen, size_t at)
{
	return (uint8_t)(block * 7 + gen * 3 + at);
}

/* Block @block as of @gen, sectors @map. False: there is no link. */
static bool say(unsigned channel, uint64_t block, uint64_t gen, uint64_t map)
{
	struct mirror_frame f;
	struct mirror_out *out;
	size_t at = 0;

	frame_of(&f, map ? MIRROR_BATCHED : MIRROR_OPEN, gen);
	f.n = map != 0;
	f.record[0] = (struct mirror_record){
		.op = MIRROR_WRITE, .block = block, .gen = gen, .map = map
	};
	out = mirror_links_begin(a.links, 1, channel, &f);
	if (!out)
		return false;
	for (unsigned s = 0; s < 8; s++)
		for (unsigned k = 0; map >> s & 1 && k < 512; k++)
			out->data[at++] = byte_of(block, gen, s * 512 + k);
	mirror_links_send(out, &f);
	return true;
}

static void meet(void)
{
	const unsigned welcomes = a.welcomes;

	ck_assert(say(0, 0, 0, 0));
	await(a.welcomes == welcomes + 1);
}

static const char *by(void)
{
	struct mirror_pair_show show;

	mirror_links_show_pair(a.links, 1, &show);
	return show.up_by;
}

/* Pages are what was sent last. */
static void pages_are(uint64_t gen)
{
	static uint8_t data[BLOCK];
	struct mirror_adopted p;
	unsigned n = 0, wrong = 0;
	uint32_t at = 0;

	while (mirror_live_look(live, LU, &at, &p, data) == MIRROR_TAKE_MORE) {
		for (unsigned i = 0; i < BLOCK; i++)
			wrong += data[i] != byte_of(p.block, p.gen, i);
		wrong += p.gen != gen * 1000 + p.block || p.map != 0xff;
		n++;
	}
	ck_assert_uint_eq(wrong, 0);
	ck_assert_uint_eq(n, BLOCKS / 2);
}

/* Half of the blocks that there is room for, by channels in turn. */
static void says_all(uint64_t gen)
{
	const unsigned acks = a.acks;

	for (uint64_t i = 0; i < BLOCKS / 2; i++)
		ck_assert(say((unsigned)(i % LOOPS), i, gen * 1000 + i, 0xff));
	await(a.acks == acks + BLOCKS / 2);
}

START_TEST(nothing_is_copied)
{
	begin();
	meet();
	await(!strcmp(by(), "rdma"));
	for (uint64_t gen = 1; gen <= 20; gen++)
		says_all(gen);
	pages_are(20);
	ck_assert_uint_eq(metric_read(M_mirror_copied_bytes), 0);
	ck_assert_uint_eq(metric_read(M_mirror_rdma_writes), 20 * BLOCKS / 2);
	ck_assert_uint_eq(metric_read(M_mirror_rdma_bytes), 20 * BLOCKS / 2 * BLOCK);
	ck_assert_uint_eq(fake.rdma_writes, 20 * BLOCKS / 2);
	/* Of a part of a block the rest is. */
	ck_assert(say(0, 3, 30000, 0x0f));
	await(a.acks == 20 * BLOCKS / 2 + 1);
	ck_assert_uint_eq(metric_read(M_mirror_copied_bytes), 4 * 512);
	ck_assert_uint_eq(a.downs + a.refused, 0);
	finish();
}
END_TEST

static void *sends(void *arg)
{
	const unsigned channel = (unsigned)(uintptr_t)arg;

	for (uint64_t i = 0; i < 2000; i++) {
		while (mirror_links_backlog(a.links, 1, channel) > MiB(1))
			nap(1);
		if (!say(channel, channel * 100 + i % 100, i + 1, 0xff))
			return "refused";
	}
	return NULL;
}

START_TEST(threads_send)
{
	pthread_t t[LOOPS];
	void *why;

	begin();
	meet();
	await(!strcmp(by(), "rdma"));
	for (uintptr_t i = 0; i < LOOPS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, sends, (void *)i), 0);
	for (unsigned i = 0; i < LOOPS; i++) {
		pthread_join(t[i], &why);
		ck_assert_ptr_null(why);
	}
	await(a.acks == LOOPS * 2000);
	ck_assert_uint_eq(metric_read(M_mirror_copied_bytes), 0);
	finish();
}
END_TEST

/* ---- TCP instead ----------------------------------------------------------------------------- */
/* Who has no device, or is told to use TCP; nothing is lent, or not enough for all channels. */
START_TEST(by_tcp)
{
	a.no_device = _i == 0;
	b.no_device = _i == 1;
	a.transport = _i == 2 ? MIRROR_TCP : MIRROR_AUTO;
	b.transport = _i == 3 ? MIRROR_TCP : MIRROR_AUTO;
	b.lent = _i == 4 ? 0 : _i == 5 ? MIRROR_BATCH * (LOOPS - 1) : MIRROR_BATCH * LOOPS;
	begin();
	meet();
	await(!strcmp(by(), _i == 5 ? "both" : "tcp"));
	says_all(1);
	pages_are(1);
	ck_assert_uint_gt(metric_read(M_mirror_copied_bytes), 0);
	ck_assert_uint_eq(a.downs, 0);
	finish();
}
END_TEST

/* RDMA is there, and nothing gets through: the next link does without. */
START_TEST(rdma_does_not_get_through)
{
	begin();
	fake.cut_off = true;
	ck_assert(say(0, 0, 0, 0));
	await(a.downs == 1);
	meet();
	await(!strcmp(by(), "tcp"));
	says_all(1);
	finish();
}
END_TEST

static int old_fd;

static void meet_old_one(void *arg)
{
	struct sockaddr_in at = mirrorlinks_loopback(0);
	socklen_t len = sizeof(at);

	old_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert(!bind(old_fd, (struct sockaddr *)&at, sizeof(at)) && !listen(old_fd, 16));
	ck_assert_int_eq(getsockname(old_fd, (struct sockaddr *)&at, &len), 0);
	mirror_links_address(a.links, 1, (struct sockaddr *)&at, sizeof(at));
}

/* The next HELLO that comes there asks for RDMA? It gets no answer. */
static bool old_one_is_asked(void)
{
	uint8_t hello[MIRROR_HANDSHAKE];
	const int fd = accept(old_fd, NULL, NULL);

	ck_assert_int_eq(recv(fd, hello, sizeof(hello), MSG_WAITALL), sizeof(hello));
	close(fd);
	return hello[10];
}

/* A version before this one refuses what it does not know, and is then not asked. */
START_TEST(an_older_one)
{
	begin();
	loop_call(main_loop, meet_old_one, NULL);
	ck_assert(say(0, 0, 0, 0));
	for (unsigned i = 0; i < LOOPS; i++)
		ck_assert(old_one_is_asked());
	await(a.downs == 1);
	ck_assert(say(0, 0, 0, 0));
	for (unsigned i = 0; i < LOOPS; i++)
		ck_assert(!old_one_is_asked());
	await(a.downs == 2);
	close(old_fd);
	finish();
}
END_TEST

/* There is to be RDMA or nothing. */
START_TEST(strict)
{
	struct mirror_pair_show show;

	a.transport = _i % 2 ? MIRROR_RDMA : MIRROR_AUTO;
	b.transport = _i % 2 ? MIRROR_AUTO : MIRROR_RDMA;
	a.no_device = _i == 2;
	b.no_device = _i == 3;
	b.lent = _i < 2 || _i == 4 ? MIRROR_BATCH * LOOPS : 0;
	begin();
	if (_i < 2) {
		meet();
		await(!strcmp(by(), "rdma"));
	} else if (_i == 4) {
		fake.fail_alloc_mw = 3; /* (the channel is refused, not moved to TCP) */
		ck_assert(say(0, 0, 0, 0));
		await(a.downs >= 1);
	} else {
		ck_assert(say(0, 0, 0, 0));
		await(a.downs >= 1);
		ck_assert_uint_eq(a.welcomes, 0);
		mirror_links_show_pair(a.links, 1, &show);
		ck_assert_str_ne(show.why, "");
	}
	finish();
}
END_TEST

/* ---- it ends --------------------------------------------------------------------------------- */
static struct gw_mirror object = {
	.state = GW_MIRROR_VALID, .peer = 1, .incarnation = 3, .epoch = 1
};
static int mws_after_cut;

static void seal_on_main(void *arg)
{
	mirror_links_cut(b.links, 0);
	mws_after_cut = fake.mws;
	ck_assert(mirror_live_seal(live, LU, &object));
}

/* The seal: no window is left when it returns, the link ends, and the next one is told. */
START_TEST(sealed)
{
	begin();
	meet();
	await(!strcmp(by(), "rdma"));
	says_all(1);
	loop_call(main_loop, seal_on_main, NULL);
	ck_assert_int_eq(mws_after_cut, 0);
	await(a.downs == 1);
	meet();
	await(!strcmp(by(), "rdma"));
	ck_assert(say(0, 1, 5000, 0xff));
	await(a.refused == 1);
	pages_are(1);
	finish();
}
END_TEST

static _Atomic bool stops;

static void *sends_on(void *arg)
{
	for (uint64_t i = 1; !stops; i++) {
		if (mirror_links_backlog(a.links, 1, 0) < MiB(1))
			(void)say((unsigned)(i % LOOPS), i % 100, i, 0xff);
		if (!(i % 16))
			nap(1);
	}
	return NULL;
}

/* Under load, again and again. */
START_TEST(cut_under_load)
{
	pthread_t t;

	begin();
	meet();
	ck_assert_int_eq(pthread_create(&t, NULL, sends_on, NULL), 0);
	for (unsigned i = 0; i < 10; i++) {
		await(!strcmp(by(), "rdma"));
		nap(20);
		loop_call(main_loop, seal_on_main, NULL);
		ck_assert_int_eq(mws_after_cut, 0);
		await(a.downs == i + 1);
		meet();
	}
	stops = true;
	pthread_join(t, NULL);
	finish();
}
END_TEST

static void rest_on_main(void *arg)
{
	mirror_live_rest(live);
	mirror_links_cut(b.links, GW_GATEWAYS);
}

/* Another process goes on with the memory: no RDMA comes here any more. */
START_TEST(rested)
{
	begin();
	meet();
	await(!strcmp(by(), "rdma"));
	says_all(1);
	loop_call(main_loop, rest_on_main, NULL);
	ck_assert_int_eq(fake.mws, 0);
	await(a.downs == 1);
	ck_assert(say(0, 0, 0, 0)); /* (it is not answered) */
	await(!strcmp(by(), "tcp"));
	b.lent = 0; /* (nothing is lent by who rests) */
	pages_are(1);
	mirrorlinks_stop(a.links);
	mirrorlinks_stop(b.links);
	mirrorlinks_loops_end();
	mirror_live_free(live);
	ck_assert(rdmafake_clean());
}
END_TEST

/* A work request fails: the link ends, and the next one is by RDMA again. */
START_TEST(an_error_ends_it)
{
	begin();
	meet();
	await(!strcmp(by(), "rdma"));
	says_all(1);
	fake.error_status = IBV_WC_LOC_PROT_ERR;
	fake.error_wr = 1;
	(void)say(1, 1, 5000, 0xff);
	await(a.downs == 1);
	meet();
	await(!strcmp(by(), "rdma"));
	says_all(9);
	pages_are(9);
	finish();
}
END_TEST

/* The device of one of them breaks: links go on over TCP. */
START_TEST(device_is_gone)
{
	begin();
	meet();
	await(!strcmp(by(), "rdma"));
	says_all(1);
	rdmafake_fatal((_i ? b.links : a.links)->dev->is.ctx);
	await(a.downs == 1);
	meet();
	await(!strcmp(by(), "tcp"));
	says_all(2);
	pages_are(2);
	ck_assert_uint_eq(a.downs, 1);
	finish();
}
END_TEST

/* Either end is stopped while frames are on their way. */
START_TEST(stopped_meanwhile)
{
	begin();
	meet();
	await(!strcmp(by(), "rdma"));
	for (uint64_t i = 1; i <= 500; i++)
		(void)say((unsigned)(i % LOOPS), i % 100, i, 0xff);
	if (_i) {
		mirrorlinks_stop(b.links);
		await(a.downs == 1);
		mirrorlinks_stop(a.links);
	} else {
		mirrorlinks_stop(a.links);
		mirrorlinks_stop(b.links);
	}
	none_is_lent();
	mirrorlinks_loops_end();
	mirror_live_free(live);
	ck_assert(rdmafake_clean());
}
END_TEST

UNIT_TABLE("mt_mirror_rdma", 60, { nothing_is_copied }, { threads_send }, { by_tcp, 6 },
	   { rdma_does_not_get_through }, { an_older_one }, { strict, 5 }, { sealed },
	   { cut_under_load }, { rested }, { an_error_ends_it }, { device_is_gone, 2 },
	   { stopped_meanwhile, 2 })
#endif
