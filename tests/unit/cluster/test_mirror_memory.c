/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a peer holds outlives its process. All is asked by frames, as an owner sends them; then
 * another process finds the file.
 *
 * A child that may die behind any instruction is traced step by step. Behind each one that has
 * changed the file it is copied and found: what is there is what was there before the frame, or
 * after it; no group is half done, and nothing below a tombstone is left. Where sizes allow all
 * that a frame does is one record or group, so nothing else may be seen.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "events/hash.h"
#include "tests/support/unit.h"
#include "tgtd/cluster/live/mirror_memory_impl.h"
#include "tgtd/cluster/live/mirror_peer_live.h"

#define LU 77ull
#define SHIFT 9
#define SECTOR (1u << SHIFT)

static const struct mirror_memory_conf sizes = {
	.lus = 3, .pages = 12, .page_shift = 12, .lent = 8
};
static struct mirror_live *live;
static uint8_t answered; /* the last answer's result */
static unsigned answers;

static void sends(void *arg, unsigned to, unsigned channel, const struct mirror_frame *f)
{
	answered = f->result;
	answers++;
}
static const struct mirror_live_ops ops = { .send = sends };

static struct mirror_live *start(int fd, struct mirror_memory_left *left)
{
	const struct mirror_live_conf conf = { .self = 1, .memory = sizes, .fd = fd };
	struct mirror_live *l = mirror_live_new(&conf, &ops, NULL, left);

	if (l)
		mirror_live_incarnation(l, 9);
	return l;
}

static int copy_of(int fd)
{
	static uint8_t bytes[1 << 20];
	const int to = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_le((uint64_t)st.st_size, sizeof(bytes));
	ck_assert_int_eq(pread(fd, bytes, (size_t)st.st_size, 0), st.st_size);
	ck_assert_int_eq(pwrite(to, bytes, (size_t)st.st_size, 0), st.st_size);
	ck_assert_int_eq(fcntl(to, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return to;
}

/* ---- frames ---------------------------------------------------------------------------------- */
static struct mirror_frame f;
static uint8_t data[MIRROR_BATCH * 4096];
static uint64_t serial;
static bool by_slot; /* data are put into frames that are lent, as by RDMA */

static void frame(uint64_t lu, enum mirror_kind kind)
{
	memset(&f, 0, sizeof(f));
	f.kind = (uint8_t)kind;
	f.result = kind == MIRROR_OPEN;
	f.shift = SHIFT;
	f.lu = lu;
	f.session = (struct mirror_session){ 1, 1, 1 };
	f.mirror = 3;
	f.serial = ++serial;
	f.data = data;
}

/* The data at @from become those of a frame that is lent. */
static uint32_t slot_of(uint64_t map, const uint8_t *from)
{
	struct mirror_slots slots;
	uint64_t ticket;
	unsigned first, n;
	uint32_t frame;

	ck_assert(mirror_live_slots(live, &slots));
	frame = slots.lend(slots.arg, &ticket);
	ck_assert_uint_ne(frame, UINT32_MAX);
	while (map) {
		first = mirror_run(&map, &n);
		memcpy((uint8_t *)slots.base + frame * 4096u + first * SECTOR, from,
		       (size_t)n * SECTOR);
		from += (size_t)n * SECTOR;
	}
	return frame;
}

static void add(enum mirror_op op, uint64_t block, uint64_t gen, uint64_t map, bool more)
{
	struct mirror_record *r = &f.record[f.n++];
	size_t len;

	*r = (struct mirror_record){
		.op = (uint8_t)op, .more = more, .block = block, .gen = gen, .map = map
	};
	if (op != MIRROR_WRITE)
		return;
	r->ref = MIRROR_INLINE;
	len = mirror_data_len(r, SHIFT);
	for (size_t i = 0; i < len; i++)
		data[f.data_len + i] = (uint8_t)(gen * 31 + i / SECTOR);
	r->crc = mirror_sum(data + f.data_len, len);
	if (by_slot)
		r->ref = slot_of(map, data + f.data_len);
	else
		f.data_len += len;
}

static void goes(uint8_t result)
{
	answers = 0;
	mirror_live_frame(live, 0, 0, &f, 1);
	ck_assert_uint_eq(answers, 1);
	ck_assert_uint_eq(answered, result);
}

static void opens(uint64_t lu)
{
	frame(lu, MIRROR_OPEN);
	goes(MIRROR_OK);
}

/* After a process has ended: its owner goes on with the same mirror. */
static void goes_on(uint8_t result)
{
	frame(LU, MIRROR_OPEN);
	f.result = 0;
	goes(result);
}

static void one(enum mirror_op op, uint64_t block, uint64_t gen, uint64_t map)
{
	frame(LU, MIRROR_BATCHED);
	add(op, block, gen, map, false);
	goes(MIRROR_OK);
}

/* ---- what is there, whatever lies where ------------------------------------------------------ */
static uint64_t says(uint64_t h, const void *p, size_t n)
{
	return fnv1a(h, p, n);
}

/* Of the file @fd, as the next process finds it: *@damaged, and a sum of all. */
static uint64_t found_state(int fd, uint32_t *damaged)
{
	struct mirror_memory_left left;
	struct mirror_live *l = start(copy_of(fd), &left);
	struct mirror_memory *m;
	uint64_t sum = 0;
	char why[100];

	ck_assert_ptr_nonnull(l);
	*damaged = left.damaged;
	m = mirror_memory_found(mirror_live_fd(l), why, sizeof(why));
	ck_assert_msg(m != NULL, "%s", why);
	for (uint32_t i = 0; i < m->super.pages; i++) {
		const struct memory_entry *e = &m->entry[i];
		uint64_t h = says(FNV1A_INIT, &e->block, 3 * sizeof(e->block));

		h = says(h, &e->slot, sizeof(e->slot));
		h = says(h, &e->crc, sizeof(e->crc));
		if (e->slot)
			ck_assert_uint_eq(memory_sum(m, e), e->crc);
		sum += e->slot ? h : 0;
	}
	for (uint32_t i = 0; i < m->super.lus; i++)
		for (unsigned k = 0; m->slot[i].used && k < MIRROR_TOMBS; k++) {
			const struct memory_tomb *t = &m->slot[i].tomb[k];

			sum += t->count ? says(i, t, sizeof(*t)) : 0;
		}
	for (uint32_t i = 0; i < m->super.lus; i++)
		if (m->slot[i].used)
			sum += says(i + m->slot[i].sealed * 100, &m->slot[i].stamp,
				    sizeof(m->slot[i].stamp));
	m->fd = dup(m->fd); /* two have it */
	mirror_memory_free(m);
	mirror_live_free(l);
	return sum;
}

/* ---- by one process -------------------------------------------------------------------------- */
static uint8_t taken[64][4096];
static uint64_t taken_map[64];
static unsigned ntaken, refuse;

static int adopt(void *arg, uint64_t lu, const struct mirror_adopted *a)
{
	if (refuse) {
		refuse--;
		return -EAGAIN;
	}
	ck_assert_uint_lt(a->block, 64);
	ck_assert_uint_eq(a->shift, SHIFT);
	memcpy(taken[a->block], a->data, 4096);
	taken_map[a->block] = a->map;
	ntaken++;
	return 0;
}

static const struct gw_mirror is = {
	.state = GW_MIRROR_VALID, .peer = 1, .incarnation = 9, .epoch = 3
};

/* The next process. */
static void again(struct mirror_memory_left *left)
{
	const int fd = dup(mirror_live_fd(live));

	mirror_live_free(live);
	live = start(fd, left);
	ck_assert_ptr_nonnull(live);
}

static void begin(void)
{
	struct mirror_memory_left left;

	live = start(-1, &left);
	ck_assert_ptr_nonnull(live);
	opens(LU);
}

START_TEST(all_is_found)
{
	struct mirror_memory_left left;
	struct mirror_peer_show show;
	struct mirror_held held;
	uint64_t first, count, gen;

	begin();
	one(MIRROR_WRITE, 4, 1, 0xff);
	one(MIRROR_WRITE, 4, 2, 0x0c); /* two sectors of it */
	one(MIRROR_WRITE, 5, 3, 0x01);
	one(MIRROR_WRITE, 6, 4, 0xff);
	one(MIRROR_RELEASE, 6, 4, 0);
	one(MIRROR_ZERO, 20, 5, 7);
	again(&left);
	ck_assert_uint_eq(left.mirrors, 1);
	ck_assert_uint_eq(left.pages, 2);
	ck_assert_uint_eq(left.tombs, 1);
	ck_assert_uint_eq(left.damaged + left.sealed, 0);
	ck_assert(mirror_live_held(live, LU, &held));
	ck_assert_uint_eq(held.pages, 2);
	ck_assert_uint_eq(held.tombs, 1);
	ck_assert(held.named && !held.sealed); /* for all that is known */
	ck_assert_uint_eq(held.stamp.lu, LU);
	ck_assert(!mirror_live_held(live, LU + 1, &held));
	/* It goes on: free pages are free, and no frame is used twice. */
	goes_on(MIRROR_OK);
	for (unsigned i = 0; i < 10; i++)
		one(MIRROR_WRITE, 30 + i, 10 + i, 0xff);
	frame(LU, MIRROR_BATCHED);
	add(MIRROR_WRITE, 50, 30, 1, false);
	goes(MIRROR_NOROOM);
	ck_assert(mirror_live_seal(live, LU, &is));
	frame(LU, MIRROR_BATCHED);
	add(MIRROR_WRITE, 4, 31, 1, false);
	goes(MIRROR_SEALED);
	ck_assert(mirror_live_held(live, LU, &held) && held.sealed);
	again(&left);
	ck_assert_uint_eq(left.sealed, 1);
	goes_on(MIRROR_SEALED); /* by the next process, too */
	ck_assert(mirror_live_zero(live, LU, &first, &count, &gen));
	ck_assert(first == 20 && count == 7 && gen == 5);
	mirror_live_zeroed(live, LU, gen);
	ck_assert(!mirror_live_zero(live, LU, &first, &count, &gen));
	refuse = 1;
	ck_assert_int_eq(mirror_live_take(live, LU, 39, 100, adopt, NULL), MIRROR_TAKE_LATER);
	ck_assert_int_eq(mirror_live_take(live, LU, 39, 3, adopt, NULL), MIRROR_TAKE_MORE);
	again(&left); /* in the middle: what was taken is not here any more */
	ck_assert_uint_eq(left.pages + ntaken, 12);
	ck_assert(mirror_live_seal(live, LU, &is));
	ck_assert_int_eq(mirror_live_take(live, LU, 39, 100, adopt, NULL), MIRROR_TAKEN);
	ck_assert_uint_eq(ntaken, 11); /* block 39 is behind the end */
	ck_assert_uint_eq(taken_map[4], 0xff);
	ck_assert_uint_eq(taken[4][0], 31);
	ck_assert_uint_eq(taken[4][2 * SECTOR], 62);
	ck_assert_uint_eq(taken[4][3 * SECTOR], 63);
	ck_assert_uint_eq(taken[4][4 * SECTOR], 35);
	again(&left);
	ck_assert_uint_eq(left.mirrors + left.pages, 0);
	mirror_live_show(live, &show);
	ck_assert_uint_eq(show.used, 0);
	mirror_live_free(live);
}
END_TEST

/* A peer names sectors of another size. What is given out is what is there, and no more. */
START_TEST(sectors_of_another_size)
{
	struct mirror_adopted page;
	static uint8_t block[4096];
	uint32_t at = 0;

	begin();
	one(MIRROR_WRITE, 4, 1, 0xff);
	frame(LU, MIRROR_BATCHED);
	f.shift = 12;
	f.n = 1;
	f.record[0] = (struct mirror_record){
		.op = MIRROR_WRITE, .block = 4, .gen = 2, .map = 1, .ref = MIRROR_INLINE
	};
	f.record[0].crc = mirror_sum(data, f.data_len = sizeof(block));
	goes(MIRROR_OK);
	ck_assert_int_eq(mirror_live_look(live, LU, &at, &page, block), MIRROR_TAKE_MORE);
	ck_assert_uint_eq(page.map, 1);
	ck_assert_uint_eq(page.shift, 12);
	mirror_live_free(live);
}
END_TEST

/* A takeover that the store gets itself: pages stay until the object says that they are over. So
 * who is killed meanwhile finds them all. */
START_TEST(looked_at)
{
	const struct gw_mirror gone = { .state = GW_MIRROR_INVALID, .peer = GW_NOBODY, .epoch = 4 };
	struct mirror_memory_left left;
	struct mirror_adopted page;
	static uint8_t block[4096];
	uint32_t at = 0;

	begin();
	ck_assert_uint_eq(mirror_live_block(live), sizeof(block));
	ck_assert_int_eq(mirror_live_look(live, LU, &at, &page, block), MIRROR_TAKEN);
	one(MIRROR_WRITE, 4, 1, 0xff);
	one(MIRROR_WRITE, 9, 2, 0x0c);
	ck_assert(mirror_live_seal(live, LU, &is));
	for (unsigned i = 0; i < 2; i++) {
		uint64_t seen = 0;

		at = 0;
		while (mirror_live_look(live, LU, &at, &page, block) == MIRROR_TAKE_MORE) {
			seen |= 1ull << page.block;
			ck_assert_ptr_eq(page.data, block);
			ck_assert_uint_eq(page.map, page.block == 4 ? 0xff : 0x0c);
			ck_assert_uint_eq(block[2 * SECTOR],
					  (uint8_t)(page.gen * 31 + (page.block == 4 ? 2 : 0)));
		}
		ck_assert_uint_eq(seen, 1u << 4 | 1u << 9);
		again(&left);
		ck_assert_uint_eq(left.pages, 2);
	}
	/* The object says that it is over. */
	mirror_live_free(live);
	live = NULL;
	begin();
	one(MIRROR_WRITE, 4, 1, 0xff);
	mirror_live_object(live, LU, &gone);
	at = 0;
	ck_assert_int_eq(mirror_live_look(live, LU, &at, &page, block), MIRROR_TAKEN);
	mirror_live_free(live);
}
END_TEST

/* Another process goes on with what is held: nothing of it changes, and nothing is answered. */
/* Frames that are lent: whose they are, what becomes of them, and that no other may be named. */
START_TEST(lent)
{
	struct mirror_memory_left left;
	uint64_t ticket[8], again_ticket;
	struct mirror_slots slots;
	uint32_t frame_no[8], other;

	begin();
	ck_assert(mirror_live_slots(live, &slots));
	ck_assert_uint_eq(slots.shift, 12);
	for (unsigned i = 0; i < 8; i++) {
		frame_no[i] = slots.lend(slots.arg, &ticket[i]);
		ck_assert(slots.is_lent(slots.arg, frame_no[i], ticket[i]));
		for (unsigned k = 0; k < i; k++)
			ck_assert(frame_no[k] != frame_no[i] && ticket[k] != ticket[i]);
	}
	ck_assert_uint_eq(slots.lend(slots.arg, &again_ticket), UINT32_MAX);
	/* A record makes it a page; a frame that nobody was lent is refused. */
	memset((uint8_t *)slots.base + frame_no[3] * 4096u, 7, 4096);
	frame(LU, MIRROR_BATCHED);
	add(MIRROR_WRITE, 4, 1, 0x7, false);
	memcpy((uint8_t *)slots.base + frame_no[3] * 4096u, data, 3 * SECTOR);
	f.record[0].ref = frame_no[3];
	f.data_len = 0;
	goes(MIRROR_OK);
	ck_assert(!slots.is_lent(slots.arg, frame_no[3], ticket[3]));
	f.record[0].gen = 2;
	f.serial++;
	goes(MIRROR_NOROOM); /* it is a page now */
	f.record[0].ref = 4000000;
	goes(MIRROR_NOROOM);
	/* Its page is dropped, and it is lent to another: the first loan is over all the same. */
	one(MIRROR_RELEASE, 4, 1, 0);
	other = slots.lend(slots.arg, &again_ticket);
	ck_assert_uint_ne(other, UINT32_MAX);
	ck_assert(other != frame_no[3] || !slots.is_lent(slots.arg, other, ticket[3]));
	ck_assert(slots.is_lent(slots.arg, other, again_ticket));
	/* All pages find frames while all are lent. */
	for (uint64_t b = 0; b < 12; b++)
		one(MIRROR_WRITE, b, 10 + b, 0x7);
	for (uint64_t b = 0; b < 12; b++)
		one(MIRROR_WRITE, b, 30 + b, 0x7);
	slots.give_back(slots.arg, other);
	ck_assert(!slots.is_lent(slots.arg, other, again_ticket));
	/* The next process has lent none; who rests lends no more. */
	again(&left);
	ck_assert_uint_eq(left.pages, 12);
	ck_assert(mirror_live_slots(live, &slots));
	for (unsigned i = 0; i < 4; i++)
		ck_assert_uint_ne(slots.lend(slots.arg, &ticket[i]), UINT32_MAX);
	mirror_live_rest(live);
	ck_assert_uint_eq(slots.lend(slots.arg, &ticket[4]), UINT32_MAX);
	mirror_live_free(live);
}
END_TEST

START_TEST(rests)
{
	struct mirror_memory_left left;
	struct mirror_peer_show show;

	begin();
	one(MIRROR_WRITE, 4, 1, 0xff);
	mirror_live_rest(live);
	frame(LU, MIRROR_BATCHED);
	add(MIRROR_WRITE, 5, 2, 0xff, false);
	answers = 0;
	mirror_live_frame(live, 0, 0, &f, 1);
	ck_assert_uint_eq(answers, 0);
	mirror_live_show(live, &show);
	ck_assert_uint_eq(show.used, 1);
	again(&left);
	ck_assert_uint_eq(left.pages, 1);
	goes_on(MIRROR_OK);
	one(MIRROR_WRITE, 5, 2, 0xff);
	mirror_live_free(live);
}
END_TEST

/* A fresh mirror, before any object was read, takes nothing's place. */
START_TEST(found_may_be_named)
{
	const struct gw_mirror gone = { .state = GW_MIRROR_INVALID, .peer = GW_NOBODY, .epoch = 4 };
	struct mirror_memory_left left;

	begin();
	one(MIRROR_WRITE, 4, 1, 0xff);
	again(&left);
	frame(LU, MIRROR_OPEN);
	f.mirror = 5;
	f.session.number = 2;
	goes(MIRROR_BUSY);
	ck_assert(mirror_live_has(live, LU, &is));
	mirror_live_object(live, LU, &is);
	goes(MIRROR_BUSY);
	mirror_live_object(live, LU, &gone);
	goes(MIRROR_OK);
	ck_assert(!mirror_live_has(live, LU, &is));
	again(&left);
	ck_assert_uint_eq(left.mirrors, 1);
	ck_assert_uint_eq(left.pages, 0);
	mirror_live_free(live);
}
END_TEST

START_TEST(larger_blocks)
{
	begin();
	frame(LU, MIRROR_BATCHED);
	add(MIRROR_WRITE, 4, 1, 0x1ff, false);
	goes(MIRROR_NOROOM);
	mirror_live_free(live);
}
END_TEST

/* A group of which the last record is done already. */
START_TEST(group_without_its_end)
{
	struct mirror_memory_left left;

	begin();
	one(MIRROR_WRITE, 5, 9, 0xff);
	frame(LU, MIRROR_BATCHED);
	add(MIRROR_WRITE, 4, 8, 0xff, true);
	add(MIRROR_WRITE, 5, 8, 0xff, false);
	add(MIRROR_RELEASE, 5, 9, 0, false);
	goes(MIRROR_OK);
	frame(LU, MIRROR_BATCHED);
	add(MIRROR_WRITE, 6, 10, 0xff, true);
	add(MIRROR_WRITE, 4, 8, 0xff, false);
	goes(MIRROR_OK);
	again(&left);
	ck_assert_uint_eq(left.pages, 2);
	mirror_live_free(live);
}
END_TEST

START_TEST(another_size)
{
	const struct mirror_memory_conf larger = { .lus = 3, .pages = 40, .page_shift = 12 };
	struct mirror_live_conf conf = { .self = 1, .memory = larger };
	struct mirror_memory_left left;
	struct mirror_peer_show show;

	begin();
	one(MIRROR_WRITE, 4, 1, 0xff);
	conf.fd = dup(mirror_live_fd(live));
	mirror_live_free(live);
	/* Mirrors are there: it stays as it is. */
	live = mirror_live_new(&conf, &ops, NULL, &left);
	ck_assert_uint_eq(left.pages, 1);
	mirror_live_show(live, &show);
	ck_assert_uint_eq(show.pages, sizes.pages);
	ck_assert(mirror_live_seal(live, LU, &is));
	ck_assert_int_eq(mirror_live_take(live, LU, 39, 100, adopt, NULL), MIRROR_TAKEN);
	conf.fd = dup(mirror_live_fd(live));
	mirror_live_free(live);
	live = mirror_live_new(&conf, &ops, NULL, &left);
	mirror_live_show(live, &show);
	ck_assert_uint_eq(show.pages, larger.pages);
	mirror_live_free(live);
}
END_TEST

/* What cannot be true costs the mirror that it is of, and no other. */
START_TEST(foreign_parts)
{
	struct mirror_memory_left left;
	struct mirror_memory *m;
	char why[100];
	int fd;

	begin();
	opens(LU + 1);
	one(MIRROR_WRITE, 4, 1, 0xff);
	frame(LU + 1, MIRROR_BATCHED);
	add(MIRROR_WRITE, 4, 1, 0xff, false);
	goes(MIRROR_OK);
	fd = copy_of(mirror_live_fd(live));
	mirror_live_free(live);
	ck_assert_ptr_nonnull(m = mirror_memory_found(dup(fd), why, sizeof(why)));
	if (_i == 0)
		memory_frame(m, m->entry[0].frame)[700] ^= 1;
	else if (_i == 1)
		m->entry[1].frame = m->entry[0].frame;
	else if (_i == 2)
		m->entry[0].frame = 1u << 30;
	else if (_i == 3)
		m->entry[0].map = 1ull << 60;
	else if (_i == 4)
		m->entry[0].shift = 40;
	else if (_i == 5)
		m->entry[0].gen = 0;
	else if (_i == 6)
		m->slot[0].used = 2;
	else if (_i == 7)
		m->slot[0].stamp.epoch = 0;
	else if (_i == 8)
		m->slot[0].tomb[3] = (struct memory_tomb){ UINT64_MAX, 1, 2 };
	else
		m->slot[1].stamp.lu = LU;
	mirror_memory_free(m);
	live = start(fd, &left);
	ck_assert_ptr_nonnull(live);
	ck_assert_uint_eq(left.damaged, 1);
	ck_assert_uint_eq(left.mirrors, 1);
	ck_assert_uint_eq(left.pages, 1);
	/* What it had is free. */
	opens(LU + 2);
	frame(LU + 2, MIRROR_BATCHED);
	for (unsigned i = 0; i < 11; i++)
		add(MIRROR_WRITE, i, 2, 0xff, i < 10);
	goes(MIRROR_OK);
	mirror_live_free(live);
}
END_TEST

START_TEST(foreign_files)
{
	struct mirror_memory *m;
	struct memory_super s;
	char why[100] = "";
	int fd, fds[2];

	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_ptr_null(mirror_memory_found(fds[0], why, sizeof(why)));
	begin();
	for (unsigned i = 0; i < sizeof(s) / 4; i++) {
		fd = copy_of(mirror_live_fd(live));
		ck_assert_int_eq(pread(fd, &s, sizeof(s), 0), sizeof(s));
		((uint32_t *)(void *)&s)[i] ^= 1u << i % 32;
		if (i % 2 && i != offsetof(struct memory_super, checksum) / 4)
			s.checksum = memory_super_sum(&s);
		ck_assert_int_eq(pwrite(fd, &s, sizeof(s), 0), sizeof(s));
		m = mirror_memory_found(fd, why, sizeof(why));
		ck_assert_msg(!m, "word %u", i);
		close(fd);
	}
	/* A redo place that cannot be true. */
	fd = copy_of(mirror_live_fd(live));
	ck_assert_int_eq(pread(fd, &s, sizeof(s), 0), sizeof(s));
	ck_assert_int_eq(pwrite(fd, &(uint32_t){ MIRROR_BATCH + 1 }, 4, (off_t)s.redo_off), 4);
	ck_assert_ptr_null(mirror_memory_found(fd, why, sizeof(why)));
	ck_assert_int_eq(pwrite(fd, &(uint32_t){ 1 }, 4, (off_t)s.redo_off), 4);
	ck_assert_ptr_null(mirror_memory_found(fd, why, sizeof(why)));
	close(fd);
	/* Its length could change. */
	fd = memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_eq(ftruncate(fd, (off_t)s.length), 0);
	ck_assert_int_eq(pwrite(fd, &s, sizeof(s), 0), sizeof(s));
	ck_assert_ptr_null(mirror_memory_found(fd, why, sizeof(why)));
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	ck_assert_ptr_nonnull(m = mirror_memory_found(fd, why, sizeof(why)));
	mirror_memory_free(m);
	mirror_live_free(live);
}
END_TEST

/* ---- step by step ---------------------------------------------------------------------------- */
static struct shared {
	_Atomic bool stepping;
	_Atomic int step; /* of the script */
	char what[40];
} * shared;

/* The child stops at each of its ends, and is stepped from its beginning on. */
static void steps(const char *what, bool begins)
{
	if (begins)
		snprintf(shared->what, sizeof(shared->what), "%s", what);
	shared->stepping = begins;
	raise(SIGSTOP);
}

static void script(void)
{
#define STEPPED(what, ...)                                                                         \
	do {                                                                                       \
		steps(what, true);                                                                 \
		__VA_ARGS__;                                                                       \
		steps(what, false);                                                                \
	} while (0)
	STEPPED("a mirror begins", opens(LU));
	STEPPED("a write", one(MIRROR_WRITE, 4, 1, 0x3));
	STEPPED("of some sectors", one(MIRROR_WRITE, 4, 2, 0x6));
	STEPPED("a whole page", one(MIRROR_WRITE, 5, 3, 0x7));
	frame(LU, MIRROR_BATCHED);
	add(MIRROR_WRITE, 4, 4, 0x1, true);
	add(MIRROR_WRITE, 5, 4, 0x2, true);
	add(MIRROR_WRITE, 6, 4, 0x4, false);
	STEPPED("a group", goes(MIRROR_OK));
	STEPPED("a release", one(MIRROR_RELEASE, 5, 4, 0));
	STEPPED("its page again", one(MIRROR_WRITE, 7, 5, 0x1));
	STEPPED("a tombstone", one(MIRROR_ZERO, 4, 6, 3));
	STEPPED("after it", one(MIRROR_WRITE, 4, 7, 0x1));
	STEPPED("its end", one(MIRROR_UNZERO, 0, 6, 0));
	STEPPED("the seal", (void)mirror_live_seal(live, LU, &is));
#undef STEPPED
}

static unsigned looked;

/* The child runs from one stop to the next: by steps, if @from is not NULL. */
static bool child_goes(pid_t pid, int fd, uint64_t before, uint8_t *last, size_t len,
		       uint64_t *seen, unsigned *nseen)
{
	const uint8_t *map = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	int status;

	ck_assert_ptr_ne(map, MAP_FAILED);
	while (true) {
		uint32_t damaged;
		uint64_t now;
		bool known = false;

		ck_assert_int_eq(ptrace(seen ? PTRACE_SINGLESTEP : PTRACE_CONT, pid, NULL, NULL),
				 0);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status)) {
			ck_assert_int_eq(WEXITSTATUS(status), 0);
			munmap((void *)(uintptr_t)map, len);
			return false;
		}
		ck_assert_msg(WIFSTOPPED(status), "%s: status %x", shared->what, status);
		if (WSTOPSIG(status) == SIGSTOP)
			break;
		ck_assert_msg(WSTOPSIG(status) == SIGTRAP, "%s: signal %d", shared->what,
			      WSTOPSIG(status));
		if (!seen || !memcmp(map, last, len))
			continue;
		memcpy(last, map, len);
		now = found_state(fd, &damaged);
		looked++;
		ck_assert_msg(!damaged, "%s: damaged", shared->what);
		for (unsigned i = 0; i < *nseen; i++)
			known |= seen[i] == now;
		if (!known && *nseen < 3)
			seen[(*nseen)++] = now;
		ck_assert_msg(*nseen < 3, "%s: half done", shared->what);
	}
	(void)before;
	munmap((void *)(uintptr_t)map, len);
	return true;
}

START_TEST(killed_anywhere)
{
	static uint8_t last[1 << 20];
	struct mirror_memory_left left;
	struct stat st;
	uint32_t damaged;
	int fd, status;
	pid_t pid;

	by_slot = _i;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	live = start(-1, &left);
	fd = mirror_live_fd(live);
	ck_assert_int_eq(fstat(fd, &st), 0);
	pid = fork();
	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(77);
		raise(SIGSTOP);
		script();
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSTOPPED(status));
	/* It stops where steps are to begin. */
	while (child_goes(pid, fd, 0, last, (size_t)st.st_size, NULL, NULL)) {
		uint64_t seen[3] = { found_state(fd, &damaged) };
		unsigned n = 1;

		ck_assert_int_eq(pread(fd, last, (size_t)st.st_size, 0), st.st_size);
		if (!child_goes(pid, fd, seen[0], last, (size_t)st.st_size, seen, &n))
			ck_abort_msg("it has ended within steps");
		ck_assert_uint_eq(n, 2); /* before, and after */
		ck_assert_uint_eq(found_state(fd, &damaged), seen[1]);
	}
	ck_assert_uint_ge(looked, by_slot ? 150 : 200); /* (data are there before) */
	printf("# %u states looked at\n", looked);
	mirror_live_free(live);
}
END_TEST

UNIT_TABLE("mirror_memory", 60, { all_is_found }, { looked_at }, { sectors_of_another_size },
	   { rests }, { found_may_be_named }, { larger_blocks }, { group_without_its_end },
	   { another_size }, { foreign_parts, 10 }, { foreign_files }, { killed_anywhere, 2 },
	   { lent })
