/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A peer's memory, left by a process that had gone wrong. The input: changes of a file that is
 * right, three bytes each, where and what; the first byte says whether the superblock and the sums
 * of pages are made good after them.
 *
 * What must hold: it is refused with a reason, or what is found can be gone on with: frames are
 * done, all of it is taken over, and what is found after that is whole.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "events/bug.h"
#include "events/bytes.h"
#include "events/log.h"
#include "tgtd/cluster/live/mirror_memory_impl.h"
#include "tgtd/cluster/live/mirror_peer_live.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LUS 2
#define PAGES 6
static const struct mirror_memory_conf sizes = { .lus = LUS, .pages = PAGES, .page_shift = 9 };
static uint8_t image[65536], bytes[65536];
static size_t length;
static uint8_t answered;

static void fuzz_sends(void *arg, unsigned to, unsigned channel, const struct mirror_frame *f)
{
	BUG_ON(f->result >= MIRROR_RESULTS);
	answered = f->result;
}
static const struct mirror_live_ops ops = { .send = fuzz_sends };

static int fuzz_adopts(void *arg, uint64_t lu, const struct mirror_adopted *a)
{
	uint8_t to[512];

	BUG_ON(!a->map || a->map > 1 || a->shift != 9 || !a->gen);
	memcpy(to, a->data, sizeof(to));
	return 0;
}

static void fuzz_writes(struct mirror_live *l, uint64_t lu, unsigned n, uint64_t gen, bool group)
{
	static uint8_t data[8 * 512];
	struct mirror_frame f = { .kind = MIRROR_OPEN,
				  .shift = 9,
				  .lu = lu,
				  .session = { 1, 1, 1 },
				  .mirror = 3,
				  .data = data };

	f.result = gen == 1;
	mirror_live_frame(l, 0, 0, &f, 1);
	f.kind = MIRROR_BATCHED;
	f.result = 0;
	f.n = (uint16_t)n;
	for (unsigned i = 0; i < n; i++)
		f.record[i] = (struct mirror_record){ .op = MIRROR_WRITE,
						      .more = group && i + 1 < n,
						      .ref = MIRROR_INLINE,
						      .crc = mirror_sum(data, 512),
						      .block = i,
						      .gen = gen,
						      .map = 1 };
	mirror_live_frame(l, 0, 0, &f, 1);
	if (gen != 1)
		return;
	f.n = 1;
	f.record[0] = (struct mirror_record){ .op = MIRROR_ZERO, .block = 9, .gen = 2, .map = 4 };
	mirror_live_frame(l, 0, 0, &f, 1);
	BUG_ON(answered);
}

static struct mirror_live *begin(int fd, struct mirror_memory_left *left)
{
	const struct mirror_live_conf conf = { .self = 1, .memory = sizes, .fd = fd };
	struct mirror_live *l = mirror_live_new(&conf, &ops, NULL, left);

	BUG_ON(!l);
	mirror_live_incarnation(l, 9);
	return l;
}

static void make_image(void)
{
	struct mirror_memory_left left;
	struct mirror_live *l = begin(-1, &left);
	struct stat st;

	fuzz_writes(l, 7, 2, 1, true);
	fuzz_writes(l, 8, 2, 1, false);
	BUG_ON(fstat(mirror_live_fd(l), &st) || (size_t)st.st_size > sizeof(image));
	length = (size_t)st.st_size;
	BUG_ON(pread(mirror_live_fd(l), image, length, 0) != (ssize_t)length);
	mirror_live_free(l);
}

/* The superblock as it was, and entries' sums as their data are. */
static void make_good(void)
{
	const struct memory_super *s = (const void *)bytes;

	memcpy(bytes, image, sizeof(*s));
	for (unsigned i = 0; i < PAGES; i++) {
		struct memory_entry *e = (void *)(bytes + s->entry_off + i * sizeof(*e));

		if (e->frame < PAGES + MIRROR_BATCH)
			e->crc = mirror_sum(bytes + s->data_off + e->frame * 512, 512);
	}
}

static int file_of_bytes(void)
{
	const int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	BUG_ON(fd < 0 || pwrite(fd, bytes, length, 0) != (ssize_t)length ||
	       fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
	return fd;
}

static void take_all(struct mirror_live *l, const struct memory_slot *slots)
{
	for (unsigned i = 0; i < LUS; i++) {
		const struct mirror_stamp s = slots[i].stamp;
		const struct gw_mirror m = { .state = GW_MIRROR_VALID,
					     .peer = 1,
					     .incarnation = s.incarnation,
					     .epoch = s.mirror };
		uint64_t first, count, gen;

		if (!mirror_live_seal(l, s.lu, &m))
			continue;
		for (unsigned k = 0;
		     k < MIRROR_TOMBS && mirror_live_zero(l, s.lu, &first, &count, &gen); k++)
			mirror_live_zeroed(l, s.lu, gen);
		BUG_ON(mirror_live_take(l, s.lu, UINT64_MAX, PAGES, fuzz_adopts, NULL) !=
		       MIRROR_TAKEN);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mirror_memory_left left;
	struct mirror_live *l;
	int fd, kept;

	log_threshold = -1; /* what is wrong with it is said for each */
	if (!length)
		make_image();
	memcpy(bytes, image, length);
	for (size_t i = 1; i + 3 <= size; i += 3)
		bytes[get_be16(data + i) % length] = data[i + 2];
	if (size && data[0] & 1)
		make_good();
	fd = file_of_bytes();
	kept = dup(fd);
	l = begin(fd, &left);
	if (mirror_live_fd(l) != fd)
		close(fd); /* it was refused */
	fuzz_writes(l, 7, 4, 10, true);
	fuzz_writes(l, 8, 4, 11, false);
	BUG_ON(pread(mirror_live_fd(l), bytes, length, 0) != (ssize_t)length);
	take_all(l, (const void *)(bytes + ((const struct memory_super *)(void *)bytes)->slot_off));
	close(kept);
	kept = dup(mirror_live_fd(l));
	mirror_live_free(l);
	l = begin(kept, &left);
	BUG_ON(left.damaged || mirror_live_fd(l) != kept);
	mirror_live_free(l);
	return 0;
}
