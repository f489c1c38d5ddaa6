/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An arena that something has written into, as `tgtimg --arena` looks at it. The input: changes of
 * a well-formed one, of four bytes each: which part of it, where in it (two), and what is put
 * there. The superblock gets its right checksum afterwards, so that what it says is believed. What
 * must hold: it is refused, or what is read lies in it, and what is said of it adds up.
 */
#include <isa-l/crc.h>
#include <stdlib.h>
#include <string.h>

#include "cache/engine/arena_look.h"
#include "cache/engine/io_impl.h"
#include "events/log.h"
#include "tests/support/memdisk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The cache stays: memory of it is held by memory that nobody looks through for leaks. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

#define CHANGES 64

static const uint8_t *good;
static uint64_t length;

static struct change {
	uint64_t at;
	uint8_t byte;
} change[CHANGES];
static unsigned nchanges;

static bool request_over;
static void end_request(struct blk_req *req)
{
	(void)req;
	request_over = true;
}

static void ask_store(struct loop *loop, struct blk *blk, enum blk_op op, uint64_t at, uint64_t len)
{
	static uint8_t bytes[KiB(64)] __attribute__((aligned(4096)));
	struct blk_req req;

	blk_req_init(&req);
	req.op = op;
	req.offset = at;
	req.len = len;
	req.done = end_request;
	if (op == BLK_WRITE) {
		req.flags = BLK_F_FROM;
		BUG_ON(frags_append(&req.data, bytes, (uint32_t)len, NULL));
	}
	loop_self_ = loop;
	request_over = blk_submit(blk, &req);
	loop_self_ = NULL;
	while (!request_over)
		loop_step(loop, 1);
	BUG_ON(req.status);
	blk_req_release(&req);
	blk_req_fini(&req);
}

/* Two stores have dirty and clean blocks in it. */
static void make_good(void)
{
	const struct loop_conf loop_conf = { .name = "fuzz", .node = 0, .cpu = -1 };
	static struct loop *loop;
	static struct topology topo;
	struct cache_conf conf = {
		.topo = &topo, .workers = &loop, .stepped = true, .size = MiB(1)
	};
	struct cache *c;

	log_threshold = -1; /* refusals are what is looked for */
	BUG_ON(topology_simulate(&topo, 1));
	loop = loop_create(&loop_conf);
	BUG_ON(!loop);
	c = cache_create(&conf);
	BUG_ON(!c);
	for (unsigned i = 0; i < 2; i++) {
		struct memdisk *d = memdisk_create(MiB(4), 512, i ? "one" : "two");
		struct blk *blk;

		d->now_percent = 100;
		blk = cache_open(c, &d->blk, false);
		BUG_ON(!blk);
		for (uint64_t at = 0; at < MiB(1); at += KiB(128))
			ask_store(loop, blk, BLK_WRITE, at + i * 512, KiB(8));
		ask_store(loop, blk, BLK_READ, MiB(2), KiB(64));
	}
	good = c->node[0].arena->map;
	length = c->node[0].arena->map_len;
}

static int read_changed(const struct arena_source *s, uint64_t at, void *to, size_t len)
{
	BUG_ON(at > s->length || len > s->length - at);
	memcpy(to, good + at, len);
	for (unsigned i = 0; i < nchanges; i++)
		if (change[i].at >= at && change[i].at < at + len)
			((uint8_t *)to)[change[i].at - at] = change[i].byte;
	if (!at) {
		struct arena_super *h = to;
		static uint8_t page[ARENA_SUPER_SIZE];

		memcpy(page, to, sizeof(page));
		((struct arena_super *)(void *)page)->checksum = 0;
		memset(((struct arena_super *)(void *)page)->live, 0, sizeof(h->live));
		h->checksum = crc32_iscsi(page, sizeof(page), ~0u);
	}
	return 0;
}

static uint64_t place(uint8_t part, uint64_t at)
{
	const struct arena_super *h = (const void *)good;
	const struct cache_super *says = (const void *)h->owner;

	switch (part % 6) {
	case 0:
		return at % sizeof(*h);
	case 1:
		return offsetof(struct arena_super, live) + at % sizeof(h->live);
	case 2:
		return h->header_off + at % (256 * sizeof(struct block));
	case 3:
		return h->extra_off + at % (256 * h->extra);
	case 4:
		return h->tail_off + at % (3 * sizeof(struct cache_slot));
	default:
		return h->tail_off + says->redo_off + at % says->redo_size;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct arena_source s = { .read = read_changed };
	static struct arena_look l;
	char why[100];
	int err;

	if (!good)
		make_good();
	s.length = length;
	nchanges = 0;
	for (size_t i = 0; i + 4 <= size && nchanges < CHANGES; i += 4) {
		const uint64_t at = place(data[i], (uint64_t)data[i + 1] << 8 | data[i + 2]);

		change[nchanges++] = (struct change){ at, data[i + 3] };
	}
	err = look_into_arena(&l, &s, why, sizeof(why));
	BUG_ON(err && (err != -EBADMSG || !*why));
	BUG_ON(!size && err);
	if (err)
		return 0;
	BUG_ON(l.clean + l.dirty + l.filling > l.blocks || l.in_io > l.dirty);
	for (uint32_t i = 0; i < l.nstores; i++) {
		const struct look_store *of = &l.store[i];
		uint64_t sum = 0;

		for (size_t e = 0; e < of->nextents; e++) {
			BUG_ON(!of->extent[e].n ||
			       (e && of->extent[e].first <=
					     of->extent[e - 1].first + of->extent[e - 1].n));
			sum += of->extent[e].n;
		}
		BUG_ON(sum != of->dirty_sectors ||
		       strnlen(of->store_id, BLK_STORE_ID_MAX) == BLK_STORE_ID_MAX);
	}
	look_arena_free(&l);
	return 0;
}
