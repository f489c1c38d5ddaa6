/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the store `rbd` costs beside a bare loop over librbd's asynchronous calls, in turn in one
 * process, on the same image: requests of one size at random places, so many at a time. Needs
 * librbd-dev, and a build.
 *
 *   cc -O2 -D_GNU_SOURCE -I. -o rbd-cost tests/bench/rbd.c -Wl,--start-group \
 *      build/lib{backend,blk,memory,events}.a -Wl,--end-group -lrbd -lrados -laio -lnuma -lnbd \
 *      -lisal -pthread
 *   ./rbd-cost CEPH.CONF POOL/IMAGE [SECONDS [ROUNDS]]      TGT_BENCH=bare|store: one of them
 */
#include <poll.h>
#include <rbd/librbd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>
#include "cache/blk/blk.h"
#include "events/clock.h"
#include "events/offload.h"

#define DEPTH_MAX 32u

struct shape {
	const char *name;
	uint32_t len, depth;
	bool write;
};
static const struct shape shapes[] = {
	{ "4 KiB read, depth 1", 4096, 1, false },
	{ "4 KiB write, depth 1", 4096, 1, true },
	{ "4 KiB read, depth 32", 4096, 32, false },
	{ "4 KiB write, depth 32", 4096, 32, true },
	{ "256 KiB read, depth 8", KiB(256), 8, false },
	{ "256 KiB write, depth 8", KiB(256), 8, true },
};

static const char *conf, *path;
static uint64_t size, rng = 1, ends_ns, count;
static unsigned flying;
static const struct shape *shape;
static uint8_t *memory[DEPTH_MAX];

static uint64_t next_offset(void)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (rng >> 20) % (size / shape->len) * shape->len;
}

static bool go_on(void)
{
	return clock_now_ns() < ends_ns;
}

static void must(int ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(-ret));
	exit(1);
}

/* ---- the bare loop --------------------------------------------------------------------------- */

static rbd_image_t image;
static int event_fd;

static void bare_start(unsigned slot)
{
	rbd_completion_t c;
	char *data = (char *)memory[slot];

	must(rbd_aio_create_completion((void *)(uintptr_t)slot, NULL, &c), "completion");
	must(shape->write ? rbd_aio_write(image, next_offset(), shape->len, data, c) :
			    rbd_aio_read(image, next_offset(), shape->len, data, c),
	     "request");
	flying++;
}

static void bare_run(void)
{
	rbd_completion_t done[DEPTH_MAX];
	struct pollfd p = { .fd = event_fd, .events = POLLIN };
	uint64_t events;

	for (unsigned i = 0; i < shape->depth; i++)
		bare_start(i);
	while (flying) {
		int n;

		if (poll(&p, 1, -1) > 0 && read(event_fd, &events, sizeof(events)) < 0)
			continue;
		while ((n = rbd_poll_io_events(image, done, DEPTH_MAX)) > 0)
			for (int i = 0; i < n; i++) {
				unsigned slot = (unsigned)(uintptr_t)rbd_aio_get_arg(done[i]);

				must((int)rbd_aio_get_return_value(done[i]), "answer");
				rbd_aio_release(done[i]);
				flying--;
				count++;
				if (go_on())
					bare_start(slot);
			}
	}
}

static rados_t cluster;
static rados_ioctx_t ioctx;

static void bare_open(void)
{
	char pool[128];
	const char *name = strchr(path, '/') + 1;

	snprintf(pool, sizeof(pool), "%.*s", (int)(name - 1 - path), path);
	must(rados_create2(&cluster, "ceph", "client.admin", 0), "client");
	must(rados_conf_read_file(cluster, conf), conf);
	must(rados_conf_set(cluster, "rbd_cache", "false"), "rbd_cache");
	must(rados_connect(cluster), "connect");
	must(rados_ioctx_create(cluster, pool, &ioctx), pool);
	must(rbd_open(ioctx, name, &image, NULL), name);
	must(rbd_get_size(image, &size), "size");
	event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	must(rbd_set_image_notification(image, event_fd, EVENT_TYPE_EVENTFD), "notification");
}

static void bare_close(void)
{
	rbd_close(image);
	close(event_fd);
	rados_ioctx_destroy(ioctx);
	rados_shutdown(cluster);
}

/* ---- the store ------------------------------------------------------------------------------- */

static struct blk *blk;
static struct loop *loop;
static struct blk_req reqs[DEPTH_MAX];

static void store_start(struct blk_req *req)
{
	const unsigned slot = (unsigned)(req - reqs);

	req->op = shape->write ? BLK_WRITE : BLK_READ;
	req->flags = shape->write ? BLK_F_FROM : BLK_F_INTO;
	req->offset = next_offset();
	req->len = shape->len;
	frags_forget(&req->data);
	must(frags_append(&req->data, memory[slot], shape->len, NULL), "fragment");
	flying++;
	if (blk_submit(blk, req))
		must(req->status ? req->status : -EIO, "on the spot");
}

static void store_done(struct blk_req *req)
{
	must(req->status, "answer");
	flying--;
	count++;
	if (go_on())
		store_start(req);
	else if (!flying)
		loop_stop(loop);
}

static void store_begin(struct loop_msg *msg)
{
	(void)msg;
	for (unsigned i = 0; i < shape->depth; i++) {
		reqs[i].done = store_done;
		store_start(&reqs[i]);
	}
}

static void store_run(void)
{
	static struct loop_msg begin = { .handle = store_begin };

	loop_post(loop, &begin);
	loop_run(loop);
}

static void store_open(void)
{
	static struct topology topo;
	char opts[300], why[200];
	struct loop_conf c = { .name = "bench", .node = -1, .cpu = -1 };

	must(topology_detect(&topo, ""), "topology");
	snprintf(opts, sizeof(opts), "conf=%s", conf);
	struct blk_open_args args = { .path = path,
				      .opts = opts,
				      .topo = &topo,
				      .node = 0,
				      .uncached = true,
				      .err = why,
				      .err_len = sizeof(why) };

	blk = blk_open("rbd", &args);
	if (!blk) {
		fprintf(stderr, "%s\n", why);
		exit(1);
	}
	size = blk->size;
	loop = loop_create(&c);
	for (unsigned i = 0; i < DEPTH_MAX; i++)
		blk_req_init(&reqs[i]);
}

static void store_shut(void)
{
	for (unsigned i = 0; i < DEPTH_MAX; i++) {
		frags_forget(&reqs[i].data);
		blk_req_fini(&reqs[i]);
	}
	loop_destroy(loop);
	blk_close(blk);
}

/* ---- both, in turn --------------------------------------------------------------------------- */

static const struct {
	const char *name;
	void (*open)(void), (*run)(void), (*close)(void);
} loops[] = { { "bare", bare_open, bare_run, bare_close },
	      { "store", store_open, store_run, store_shut } };

static double cpu_us(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Before the first write the image's lock has to come: from who had it last, perhaps dead. */
static void warm_up(unsigned which)
{
	ends_ns = 0;
	loops[which].run();
}

static void measure(unsigned which, unsigned seconds)
{
	double cpu = cpu_us();
	uint64_t began = clock_now_ns(), took;

	count = 0;
	ends_ns = began + seconds * NSEC_PER_SEC;
	loops[which].run();
	took = clock_now_ns() - began;
	printf("%-24s %-6s %8.0f a second %8.1f us of CPU each\n", shape->name, loops[which].name,
	       (double)count * 1e9 / (double)took, (cpu_us() - cpu) / (double)count);
}

int main(int argc, char **argv)
{
	const char *only = getenv("TGT_BENCH");
	const unsigned seconds = argc > 3 ? (unsigned)atoi(argv[3]) : 3,
		       rounds = argc > 4 ? (unsigned)atoi(argv[4]) : 3;

	if (argc < 3 || !strchr(argv[2], '/')) {
		fprintf(stderr, "usage: %s CEPH.CONF POOL/IMAGE [SECONDS [ROUNDS]]\n", argv[0]);
		return 1;
	}
	conf = argv[1];
	path = argv[2];
	for (unsigned i = 0; i < DEPTH_MAX; i++) {
		memory[i] = aligned_alloc(4096, KiB(256));
		memset(memory[i], (int)i, KiB(256));
	}
	for (unsigned r = 0; r < rounds; r++)
		for (unsigned k = 0; k < ARRAY_SIZE(loops); k++) {
			if (only && strcmp(only, loops[k].name))
				continue;
			loops[k].open();
			for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
				shape = &shapes[i];
				warm_up(k);
				measure(k, seconds);
			}
			loops[k].close();
		}
	(void)offload_fini();
	return 0;
}
