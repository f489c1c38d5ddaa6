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
#include "tests/support/blktest.h"
#include "tests/support/memdisk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHANGES 64

static const uint8_t *good;
static uint64_t length;

static struct change {
	uint64_t at;
	uint8_t byte;
} change[CHANGES];
static unsigned nchanges;

/* Some of it dirty, of two stores; one process goes on with it. */
static void make_good(void)
{
	static struct topology topo;
	static struct loop *workers[1];
	static uint8_t bytes[KiB(64)];
	static struct bt t;
	struct cache_conf conf = {
		.topo = &topo, .workers = workers, .stepped = true, .size = MiB(1)
	};
	struct cache *c;

	log_threshold = -1; /* refusals are what is looked for */
	BUG_ON(topology_simulate(&topo, 1));
	bt_init(&t, NULL, 1);
	workers[0] = t.loop;
	c = cache_create(&conf);
	BUG_ON(!c);
	for (unsigned i = 0; i < 2; i++) {
		struct memdisk *d = memdisk_create(MiB(4), 512, i ? "one" : "two");

		d->now_percent = 100;
		t.blk = cache_open(c, &d->blk, false);
		BUG_ON(!t.blk);
		for (uint64_t at = 0; at < MiB(1); at += KiB(128))
			BUG_ON(bt_write(&t, at + i * 512, KiB(8), bytes, 0));
		BUG_ON(bt_read(&t, MiB(2), KiB(64), bytes, 0));
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
