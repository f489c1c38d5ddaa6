/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The arena of a cache whose process was killed, into which something has written. The input: a
 * byte of flags, then changes of four bytes and more: where, and what is put there. What must hold:
 * it is refused with a reason, or what is found can be read, written and written back, and all of
 * it can be taken down.
 *
 *   flags   bit 0  checksums fit what is there
 *           bit 1  the file is not sealed; bit 2: it is shorter, or longer
 *   change  [region and length][offset 3, in units of four bytes][bytes]
 *           region: superblock, its words, headers, maps, slots, redo records, data
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <fcntl.h>
#include <isa-l/crc.h>

#include "cache/engine/layout.h"
#include "events/log.h"
#include "tests/support/cachetest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DISK MiB(1)

static struct topology topo;
static struct loop *workers[TOPO_MAX_NODES];
static struct bt t;
static uint8_t *good, *bytes;
static uint64_t length, used; /* of the file; of it, what is not a hole at its end */

/* Dirty blocks, clean ones, some twice; as a kill would find them. */
static void make_good(void)
{
	static const struct ct_shape shape = { "size=1m", 1, DISK, 512, false, 100, 0 };
	static uint8_t buf[KiB(64)], seen[KiB(64)];
	struct memdisk *disk;
	struct cache *c;
	int fd;

	log_threshold = -1; /* refusals are what is looked for */
	ct_open(&t, &shape, &c, &disk);
	for (unsigned i = 0; i < 8; i++) {
		memset(buf, (int)i + 1, sizeof(buf));
		BUG_ON(bt_write(&t, i * KiB(96), KiB(16) + i * 512, buf, 0));
		BUG_ON(bt_read(&t, i * KiB(64), KiB(32), seen, 0));
		if (i == 3)
			BUG_ON(bt_op(&t, BLK_SYNC, 0, 0, 0));
	}
	fd = cache_arena_fd(c, 0);
	length = c->node[0].arena->map_len;
	good = calloc(1, length);
	bytes = malloc(length);
	BUG_ON(fd < 0 || !good || !bytes);
	for (off_t at = 0, end; (at = lseek(fd, at, SEEK_DATA)) >= 0; at = end) {
		end = lseek(fd, at, SEEK_HOLE);
		BUG_ON(pread(fd, good + at, (size_t)(end - at), at) != end - at);
		used = (uint64_t)end;
	}
	/* The loop stays: it is that of all caches to come. */
	blk_close(t.blk);
	for (int i = 0; i < 3; i++)
		loop_step(t.loop, 0);
	cache_destroy(c);
	BUG_ON(topology_simulate(&topo, 1));
	workers[0] = t.loop;
}

static struct arena_super *super(void)
{
	return (struct arena_super *)(void *)bytes;
}

static void change(unsigned region, uint64_t at, const uint8_t *with, size_t n)
{
	const struct arena_super *h = (const void *)good;
	const struct cache_super *s = (const void *)h->owner;
	const uint64_t live = offsetof(struct arena_super, live);
	const struct {
		uint64_t from, len;
	} where[] = {
		{ 0, sizeof(*h) },
		{ live, sizeof(h->live) },
		{ h->header_off, h->nblocks * sizeof(struct block) },
		{ h->extra_off, (uint64_t)h->nblocks * h->extra },
		{ h->tail_off, 8 * sizeof(struct cache_slot) },
		{ h->tail_off + s->redo_off, (uint64_t)s->parts * s->redo_size },
		{ h->data_off, KiB(64) },
	};
	const unsigned r = region % ARRAY_SIZE(where);

	at = where[r].from + at % MAX(where[r].len, 1ul);
	if (at + n <= length)
		memcpy(bytes + at, with, n);
}

static void fix_sums(void)
{
	struct cache_slot *slot = (void *)(bytes + ((struct arena_super *)(void *)good)->tail_off);
	uint8_t page[ARENA_SUPER_SIZE];

	for (unsigned i = 0; i < 8; i++)
		slot[i].checksum = cache_slot_sum(&slot[i]);
	memcpy(page, bytes, sizeof(page));
	((struct arena_super *)(void *)page)->checksum = 0;
	memset(((struct arena_super *)(void *)page)->live, 0, sizeof(super()->live));
	super()->checksum = crc32_iscsi(page, (int)sizeof(page), ~0u);
}

static int file_of(uint8_t flags)
{
	const off_t len = (off_t)length + (flags & 4 ? (int8_t)(flags & 0xf8) * 512 : 0);
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	BUG_ON(fd < 0 || ftruncate(fd, len));
	BUG_ON(pwrite(fd, bytes, (size_t)MIN((off_t)used, len), 0) < 0);
	BUG_ON(!(flags & 2) && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
	return fd;
}

/* All of the store by way of the cache, in both directions. */
static void use(struct cache *c)
{
	struct memdisk *disk = memdisk_create(DISK, 512, "memdisk-1");
	static uint8_t buf[KiB(64)];
	struct cache_found found;
	struct bt u = { .loop = t.loop, .rng = 1 };

	BUG_ON(!disk);
	disk->now_percent = 100;
	u.blk = cache_open(c, &disk->blk, false);
	if (u.blk) {
		for (uint64_t at = 0; at < DISK; at += sizeof(buf))
			BUG_ON(bt_read(&u, at, sizeof(buf), buf, 0));
		for (uint64_t at = KiB(32); at < DISK - sizeof(buf); at += KiB(192))
			BUG_ON(bt_write(&u, at, sizeof(buf), buf, 0));
		/* A store in doubt says so. */
		(void)!bt_op(&u, BLK_SYNC, 0, 0, 0);
		cache_get_found(c, &found);
		blk_close(u.blk);
	} else {
		blk_close(&disk->blk);
	}
	for (int i = 0; i < 3; i++)
		loop_step(t.loop, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cache_found found = { 0 };
	int fd[TOPO_MAX_NODES];
	struct cache_conf conf = {
		.topo = &topo, .workers = workers, .stepped = true, .arena_fd = fd, .found = &found
	};
	const uint8_t flags = size ? data[0] : 0;
	struct cache *c;

	if (!good)
		make_good();
	memcpy(bytes, good, used);
	for (size_t at = 1, n; at + 4 < size; at += 4 + n) {
		n = MIN((size_t)(data[at] >> 4) + 1, size - at - 4);
		change(data[at] & 15,
		       ((uint64_t)data[at + 1] | data[at + 2] << 8 | data[at + 3] << 16) * 4,
		       data + at + 4, n);
	}
	if (flags & 1)
		fix_sums();
	memset(fd, 0xff, sizeof(fd));
	fd[0] = file_of(flags);
	c = cache_create(&conf);
	if (c) {
		use(c);
		cache_destroy(c);
	} else {
		BUG_ON(errno == EBADMSG && !*found.why);
		close(fd[0]);
	}
	for (int i = 0; i < 3; i++)
		loop_step(t.loop, 0);
	return 0;
}
