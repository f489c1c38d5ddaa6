/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a mirrored 4 KiB write costs beyond a round trip: a frame without records and its answer on
 * a channel (the bare ping-pong), and one of a block, which a live peer keeps; one at a time and
 * 32.
 * Owner and peer on a thread each: over loopback and TCP, or at an address of this machine by what
 * is asked for (tests/vm/test_mirror_rdma.sh: soft-RoCE beside TCP). Then what a frame's code
 * costs, and what others would.
 *
 *   make all
 *   cc -O2 -D_GNU_SOURCE -I. -o mirror tests/bench/mirror.c -Wl,--start-group build/lib*.a \
 *       -Wl,--end-group -laio -lnuma -lisal -lcrypto -ljansson -lsystemd -lrt -lm -lseccomp \
 *       -lrdmacm -libverbs
 *   ./mirror [SECONDS [ADDRESS tcp|rdma]]
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "events/clock.h"
#include "events/log.h"
#include "events/metrics.h"
#include "tgtd/cluster/live/mirror_auth.h"
#include "tgtd/cluster/live/mirror_peer_live.h"

#define SAMPLES 2000000u
#define BLOCKS 1024u

static struct loop *main_loop, *owner_loop, *peer_loop;
static struct mirror_links *owner, *peer;
static struct mirror_live *live;
static uint32_t session;
static uint64_t *sample, nsamples, began[64], serial, until;
static uint64_t blocks;
static unsigned depth, sectors;
static _Atomic bool done;
static uint8_t block[4096];
static struct in_addr address;
static enum mirror_transport transport = MIRROR_TCP;

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "mirror: %s: %m\n", what);
	exit(1);
}

static void head(struct mirror_frame *f, enum mirror_kind kind)
{
	memset(f, 0, offsetof(struct mirror_frame, record));
	f->kind = (uint8_t)kind;
	f->shift = 9;
	f->lu = 7;
	f->session = (struct mirror_session){ 1, 1, 1 };
	f->mirror = 1;
	f->result = kind == MIRROR_OPEN && session == 1; /* then it goes on */
	f->data = NULL;
	f->data_len = 0;
}

/* One frame, of a block or of none. */
static void one(enum mirror_kind kind)
{
	static struct mirror_frame f;
	struct mirror_out *out;

	head(&f, kind);
	f.session.number = session;
	if (kind == MIRROR_BATCHED) {
		f.serial = ++serial;
		began[serial % 64] = clock_now_ns();
		f.n = sectors ? 1 : 0;
		f.record[0] = (struct mirror_record){ .op = MIRROR_WRITE,
						      .block = serial % BLOCKS,
						      .gen = serial,
						      .map = (1ull << sectors) - 1 };
	}
	out = mirror_links_begin(owner, 1, 0, &f);
	must(out != NULL, "no link");
	memcpy(out->data, block, out->len);
	mirror_links_send(out, &f);
}

static void answered(void *arg, unsigned from, unsigned channel, const struct mirror_frame *f)
{
	const uint64_t now = clock_now_ns();

	if (f->kind == MIRROR_WELCOME) {
		for (unsigned i = 0; i < depth; i++)
			one(MIRROR_BATCHED);
		return;
	}
	must(!f->result, "a batch is refused");
	blocks += sectors != 0;
	if (nsamples < SAMPLES)
		sample[nsamples++] = now - began[f->serial % 64];
	if (now < until)
		one(MIRROR_BATCHED);
	else
		done = true;
}

static void asked(void *arg, unsigned from, unsigned channel, const struct mirror_frame *f)
{
	mirror_live_frame(live, from, channel, f, clock_now_ns());
}

static void peer_sends(void *arg, unsigned to, unsigned channel, const struct mirror_frame *f)
{
	mirror_links_answer(peer, to, channel, f);
}

static void is_down(void *arg, unsigned gateway)
{
	struct mirror_pair_show show;

	mirror_links_show_pair(owner, 1, &show);
	fprintf(stderr, "mirror: the link has ended: %s\n", show.why);
	exit(1);
}

static const struct mirror_link_ops ops = { .to_owner = answered,
					    .to_peer = asked,
					    .down = is_down };

static void start_on_main(void *arg)
{
	const char secret[] = "more than sixteen bytes";
	struct mirror_links_conf conf = { .gateways = 2,
					  .group = "bench",
					  .secret = secret,
					  .secret_len = sizeof(secret),
					  .main = main_loop,
					  .loop = &peer_loop,
					  .loops = 1,
					  .self = 1,
					  .transport = transport,
					  .connect_ns = 20 * NSEC_PER_SEC,
					  .silent_ns = 60 * NSEC_PER_SEC };
	struct sockaddr_in *at = (struct sockaddr_in *)&conf.address[1];
	struct sockaddr_in *mine = (struct sockaddr_in *)&conf.address[0];
	struct mirror_slots slots;

	must(mirror_live_slots(live, &slots), "slots");
	conf.slots = &slots;
	at->sin_family = AF_INET;
	at->sin_addr = address;
	peer = mirror_links_start(&conf, &ops, NULL);
	must(peer != NULL, "links");
	at->sin_port = htons((uint16_t)mirror_links_port(peer));
	conf.self = 0;
	conf.slots = NULL;
	mine->sin_family = AF_INET;
	mine->sin_addr = address;
	conf.loop = &owner_loop;
	owner = mirror_links_start(&conf, &ops, NULL);
	must(owner != NULL, "links");
}

static void open_on_owner(void *arg)
{
	one(MIRROR_OPEN);
}

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* One link's life: @n sectors a frame, @at_once of them under way. */
static double run(unsigned n, unsigned at_once, double seconds)
{
	static const struct mirror_live_ops live_ops = { .send = peer_sends };
	const struct mirror_live_conf conf = {
		.self = 1,
		.memory = { .lus = 4, .pages = BLOCKS, .page_shift = 12, .lent = MIRROR_BATCH },
		.fd = -1
	};
	const struct timespec nap = { .tv_nsec = 10000000 };
	struct mirror_memory_left left;
	uint64_t from;

	session++;
	sectors = n;
	depth = at_once;
	nsamples = 0;
	done = false;
	if (!peer) { /* one memory for all of it: slots of it are lent */
		live = mirror_live_new(&conf, &live_ops, NULL, &left);
		must(live != NULL, "memory");
		mirror_live_incarnation(live, 1);
		loop_call(main_loop, start_on_main, NULL);
	}
	from = clock_now_ns();
	until = from + (uint64_t)(seconds * 1e9);
	loop_call(owner_loop, open_on_owner, NULL);
	while (!done)
		nanosleep(&nap, NULL);
	nanosleep(&nap, NULL); /* (the last ones) */
	qsort(sample, nsamples, sizeof(*sample), by_value);
	printf("%-28s %2u at once: p50 %6.1f us, p99 %7.1f us, %8.0f a second\n",
	       n ? "a block of 4 KiB, kept" : "a frame and its answer", at_once,
	       (double)sample[nsamples / 2] / 1e3, (double)sample[nsamples * 99 / 100] / 1e3,
	       (double)nsamples / seconds);
	return (double)sample[nsamples / 2];
}

static uint64_t thread_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* ns of this thread's time for 4 KiB. */
static double cost(unsigned what)
{
	static uint8_t bytes[4096 + MIRROR_HEAD + MIRROR_RECORD], to[sizeof(bytes)];
	const uint8_t key[MIRROR_KEY] = { 1 };
	const unsigned times = 20000;
	struct mirror_coder coder;
	uint8_t code[32];
	unsigned len;
	uint64_t t;

	must(mirror_coder_init(&coder, key), "libcrypto");
	t = thread_ns();
	for (unsigned i = 0; i < times; i++) {
		if (what == 0)
			must(mirror_coder_make(&coder, bytes, sizeof(bytes), code), "GMAC");
		else if (what == 1)
			must(HMAC(EVP_sha256(), key, sizeof(key), bytes, sizeof(bytes), code, &len),
			     "HMAC");
		else if (what == 2)
			code[0] = (uint8_t)mirror_sum(bytes, sizeof(bytes));
		else
			memcpy(to, bytes, sizeof(bytes));
		__asm__ volatile("" : : "r"(to), "r"(code) : "memory");
	}
	t = thread_ns() - t;
	mirror_coder_free(&coder);
	return (double)t / times;
}

static struct loop *new_loop(const char *name)
{
	const struct loop_conf conf = { .name = name, .node = -1, .cpu = -1, .spin_ns = 20000 };
	struct loop *loop = loop_create(&conf);

	must(loop && !loop_start(loop), "loop");
	return loop;
}

int main(int argc, char **argv)
{
	static const char *const costs[] = { "AES-256-GMAC", "HMAC-SHA256", "CRC32C", "a copy" };
	const double seconds = argc > 1 ? atof(argv[1]) : 2;
	struct mirror_pair_show show;
	double bare, kept;

	address.s_addr = htonl(INADDR_LOOPBACK);
	if (argc > 3) {
		must(inet_aton(argv[2], &address), "address");
		transport = !strcmp(argv[3], "rdma") ? MIRROR_RDMA : MIRROR_TCP;
	}

	log_set_level(LOG_LVL_WARN);
	sample = calloc(SAMPLES, sizeof(*sample));
	must(sample != NULL, "memory");
	main_loop = new_loop("main");
	owner_loop = new_loop("owner");
	peer_loop = new_loop("peer");
	bare = run(0, 1, seconds);
	kept = run(8, 1, seconds);
	(void)run(0, 32, seconds);
	(void)run(8, 32, seconds);
	mirror_links_show_pair(owner, 1, &show);
	printf("by %s: a block takes %.2f x the bare round trip\n", show.up_by, kept / bare);
	printf("%llu blocks, %llu RDMA writes, %llu bytes copied where they are kept\n",
	       (unsigned long long)blocks, (unsigned long long)metric_read(M_mirror_rdma_writes),
	       (unsigned long long)metric_read(M_mirror_copied_bytes));
	if (argc > 3)
		return 0;
	for (unsigned i = 0; i < 4; i++)
		printf("%-14s of a frame of 4 KiB: %6.0f ns\n", costs[i], cost(i));
	return 0;
}
