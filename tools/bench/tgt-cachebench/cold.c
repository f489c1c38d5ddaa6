/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgt-cachebench -f: a cold file, once, in order, through the cache and the aio store. */
#include <semaphore.h>
#include <stdio.h>
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "tools/bench/tgt-cachebench/cold.h"

static struct cold {
	struct blk_req req;
	bool busy;
} cold[DEPTH_MAX];
static uint32_t size; /* of a read */
static unsigned depth;
static sem_t over;
static struct loop_msg cold_msg;
static struct blk *cold_blk;
static uint64_t cold_at, cold_bytes;
static unsigned cold_out;
static bool cold_failed, cold_starting;

static void cold_more(void)
{
	if (cold_starting)
		return;
	cold_starting = true;
	for (unsigned i = 0; i < depth && !cold_failed; i++)
		while (!cold[i].busy && cold_at < cold_blk->size) {
			struct blk_req *r = &cold[i].req;
			r->offset = cold_at;
			r->len = MIN((uint64_t)size, cold_blk->size - cold_at);
			r->stream = 1;
			cold_at += r->len;
			cold[i].busy = true;
			cold_out++;
			if (!blk_submit(cold_blk, r))
				break;
			r->done(r);
		}
	cold_starting = false;
	if (!cold_out)
		sem_post(&over);
}

static void cold_done(struct blk_req *req)
{
	struct cold *c = container_of(req, struct cold, req);
	cold_failed |= req->status != 0;
	cold_bytes += req->data.len;
	blk_req_release(req);
	c->busy = false;
	cold_out--;
	cold_more();
}

static void cold_start(struct loop_msg *msg)
{
	cold_more();
}

int cold_file(struct cache *cache, const struct topology *topo, const char *path, uint32_t len,
	      unsigned n)
{
	char err[256] = "";
	struct blk_open_args args = { .path = path,
				      .readonly = true,
				      .direct = true,
				      .topo = topo,
				      .node = 0,
				      .err = err,
				      .err_len = sizeof(err) };
	struct loop_conf lc = { .name = "reader", .node = 0, .cpu = -1 };
	struct blk *lower = blk_open("aio", &args);
	struct loop *loop = loop_create(&lc);
	if (!lower) {
		fprintf(stderr, "tgt-cachebench: %s: %s\n", path, err);
		return 1;
	}
	cold_blk = cache_open(cache, lower, false);
	if (!cold_blk || !loop || loop_start(loop))
		return 1;
	size = len;
	depth = n;
	sem_init(&over, 0, 0);
	for (unsigned i = 0; i < depth; i++) {
		blk_req_init(&cold[i].req);
		cold[i].req.op = BLK_READ;
		cold[i].req.done = cold_done;
	}
	uint64_t start = clock_now_ns();
	cold_msg.handle = cold_start;
	loop_post(loop, &cold_msg);
	while (sem_wait(&over) < 0)
		;
	double s = (double)(clock_now_ns() - start) / 1e9;
	loop_stop(loop);
	loop_join(loop);
	struct cache_stat st;
	cache_stat_init(&st);
	cache_stat_add_all(cache, false, &st);
	printf("cold, in order, reads of %u KiB, %u at a time: %.0f MB/s; %llu backend reads, %llu "
	       "of them ahead\n",
	       size >> 10, depth, (double)cold_bytes / 1e6 / s, (unsigned long long)st.fills,
	       (unsigned long long)st.readahead_fills);
	blk_close(cold_blk);
	loop_destroy(loop);
	cache_destroy(cache);
	return cold_failed;
}
