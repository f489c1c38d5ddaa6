/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Epochs of what is cached outlive the process, together with the arenas and not without them. */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/unit.h"
#include "tgtd/cluster/live/arena_stamps.h"

static struct arena_stamps *next(struct arena_stamps *s, bool arenas)
{
	const int fd = dup(arena_stamps_fd(s));

	arena_stamps_free(s);
	s = arena_stamps_new(fd, arenas);
	ck_assert_ptr_nonnull(s);
	return s;
}

START_TEST(found_again_with_the_arenas)
{
	struct arena_stamps *s = arena_stamps_new(-1, true);

	ck_assert_ptr_nonnull(s);
	ck_assert_uint_eq(arena_stamps_get(s, 7), 0);
	ck_assert_int_eq(arena_stamps_set(s, 7, 3), 0);
	ck_assert_int_eq(arena_stamps_set(s, 8, 1), 0);
	ck_assert_int_eq(arena_stamps_set(s, 7, 4), 0);
	ck_assert_int_eq(arena_stamps_set(s, 9, 0), 0); /* none there */
	s = next(s, true);
	ck_assert_uint_eq(arena_stamps_get(s, 7), 4);
	ck_assert_uint_eq(arena_stamps_get(s, 8), 1);
	ck_assert_int_eq(arena_stamps_set(s, 7, 0), 0);
	s = next(s, true);
	ck_assert_uint_eq(arena_stamps_get(s, 7), 0);
	ck_assert_uint_eq(arena_stamps_get(s, 8), 1);
	/* The next process has other arenas: all that was in those of before is lost. */
	s = next(s, false);
	ck_assert_uint_eq(arena_stamps_get(s, 8), 0);
	arena_stamps_free(s);
}
END_TEST

START_TEST(full_and_room_again)
{
	struct arena_stamps *s = arena_stamps_new(-1, false);

	for (uint64_t i = 0; i < ARENA_STAMPS; i++)
		ck_assert_int_eq(arena_stamps_set(s, 100 + i, 1 + i), 0);
	ck_assert_int_eq(arena_stamps_set(s, 1, 1), -ENOSPC);
	ck_assert_uint_eq(arena_stamps_get(s, 1), 0);
	ck_assert_int_eq(arena_stamps_set(s, 150, 0), 0);
	ck_assert_int_eq(arena_stamps_set(s, 1, 9), 0);
	s = next(s, true);
	ck_assert_uint_eq(arena_stamps_get(s, 1), 9);
	ck_assert_uint_eq(arena_stamps_get(s, 100 + ARENA_STAMPS - 1), ARENA_STAMPS);
	arena_stamps_free(s);
}
END_TEST

/* Any byte of a word that is another one makes it none; the others stay. */
START_TEST(foreign_bytes)
{
	struct arena_stamps *s = arena_stamps_new(-1, true);
	int fd;

	ck_assert_int_eq(arena_stamps_set(s, 7, 3), 0);
	ck_assert_int_eq(arena_stamps_set(s, 8, 5), 0);
	for (off_t at = 0; at < 24; at++) {
		uint8_t was, is;

		ck_assert_int_eq(pread(arena_stamps_fd(s), &was, 1, at), 1);
		is = was ^ 0x40;
		ck_assert_int_eq(pwrite(arena_stamps_fd(s), &is, 1, at), 1);
		s = next(s, true);
		ck_assert_uint_eq(arena_stamps_get(s, 7), 0);
		ck_assert_uint_eq(arena_stamps_get(s, 8), 5);
		ck_assert_int_eq(pwrite(arena_stamps_fd(s), &was, 1, at), 1);
	}
	arena_stamps_free(s);
	/* Another file, and no file. */
	fd = memfd_create("other", 0);
	ck_assert_int_eq(ftruncate(fd, 100), 0);
	s = arena_stamps_new(fd, true);
	ck_assert_ptr_nonnull(s);
	ck_assert_int_eq(arena_stamps_set(s, 7, 3), 0);
	s = next(s, true);
	ck_assert_uint_eq(arena_stamps_get(s, 7), 3);
	arena_stamps_free(s);
	fd = eventfd(0, 0);
	s = arena_stamps_new(fd, true);
	ck_assert_ptr_nonnull(s);
	arena_stamps_free(s);
}
END_TEST

UNIT_MAIN("arena_stamps", 60, found_again_with_the_arenas, full_and_room_again, foreign_bytes)
