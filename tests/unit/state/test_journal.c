/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The state journal: what it says after a death at any instruction, after a flipped bit, when it is
 * full; that its size follows what it says; that no password outlives its record.
 */
#include <check.h>
#include <isa-l/crc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "events/log.h"
#include "tests/support/unit.h"
#include "tgtd/state/journal.h"

#define SIZE JOURNAL_SIZE_MIN

/* ---- what it says, as one text --------------------------------------------------------------- */

static char said[1 << 20];

static void say(const char *key, const void *value, size_t len, void *arg)
{
	size_t *n = arg;

	*n += (size_t)snprintf(said + *n, sizeof(said) - *n, "%s=%.*s;", key, (int)len,
			       (const char *)value);
}

static const char *all_of_it(void)
{
	size_t n = 0;

	*said = 0;
	journal_each("", say, &n);
	return said;
}

static int put(const char *key, const char *value)
{
	const struct journal_rec rec = { .key = key, .value = value, .len = strlen(value) };

	return journal_commit(&rec, 1);
}

static int put_secret(const char *key, const char *value)
{
	const struct journal_rec rec = {
		.key = key, .value = value, .len = strlen(value), .secret = true
	};

	return journal_commit(&rec, 1);
}

static int drop(const char *key)
{
	const struct journal_rec rec = { .key = key };

	return journal_commit(&rec, 1);
}

static int new_journal(void)
{
	int fd = journal_open(-1, SIZE);

	ck_assert_int_ge(fd, 0);
	ck_assert(!journal_found());
	return fd;
}

/* As the next process does. */
static void again(int fd)
{
	journal_close();
	ck_assert_int_eq(journal_open(fd, SIZE), fd);
}

static uint8_t *look_at(int fd)
{
	uint8_t *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	ck_assert(p != MAP_FAILED);
	return p;
}

static int copy_of(const uint8_t *bytes, size_t size)
{
	int fd = memfd_create("copy", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, bytes, size, 0), (ssize_t)size);
	return fd;
}

START_TEST(says_what_was_said_last)
{
	struct journal_rec two[] = { { .key = "b", .value = "4", .len = 1 }, { .key = "c" } };
	int fd = new_journal();
	char *value;
	size_t len;

	ck_assert_int_eq(put("a", "1"), 0);
	ck_assert_int_eq(put("c", "2"), 0);
	ck_assert_int_eq(put("b", "3"), 0);
	ck_assert_int_eq(put("a", "one"), 0); /* in its place */
	again(fd);
	ck_assert(journal_found());
	ck_assert_str_eq(all_of_it(), "a=one;c=2;b=3;");
	ck_assert_int_eq(journal_commit(two, 2), 0);
	again(fd);
	ck_assert_str_eq(all_of_it(), "a=one;b=4;");
	ck_assert_int_eq(put("c", ""), 0); /* at the end; empty is not gone */
	ck_assert_int_eq(drop("nobody"), 0);
	again(fd);
	ck_assert_str_eq(all_of_it(), "a=one;b=4;c=;");
	value = journal_get("a", &len);
	ck_assert_str_eq(value, "one");
	ck_assert_uint_eq(len, 3);
	free(value);
	ck_assert_ptr_null(journal_get("nobody", &len));
	journal_freeze(true);
	ck_assert(!journal_is_on());
	ck_assert_int_eq(put("a", "two"), 0);
	journal_freeze(false);
	ck_assert_str_eq(all_of_it(), "a=one;b=4;c=;");
	journal_close();
	close(fd);
}
END_TEST

/* Sealed: nobody can make it shorter while it is mapped. */
START_TEST(cannot_be_cut)
{
	int fd = new_journal();

	ck_assert_int_ne(ftruncate(fd, SIZE / 2), 0);
	ck_assert_int_ne(ftruncate(fd, SIZE * 2), 0);
	journal_close();
	close(fd);
}
END_TEST

START_TEST(nothing_without_one)
{
	size_t len;

	ck_assert(!journal_is_on() && !journal_found());
	ck_assert_int_eq(put("a", "1"), 0);
	ck_assert_ptr_null(journal_get("a", &len));
	ck_assert(journal_has_room(JOURNAL_ROOM_CONFIG, GiB(1)));
	ck_assert_str_eq(all_of_it(), "");
}
END_TEST

/* Its size follows what it says, not how often that changed. */
START_TEST(is_rewritten)
{
	struct journal_info info;
	int fd = new_journal();
	char key[32], value[64];
	uint64_t live;

	for (unsigned i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "key %u", i);
		ck_assert_int_eq(put(key, "00000"), 0);
	}
	journal_get_info(&info);
	live = info.live;
	for (unsigned i = 0; i < 20000; i++) {
		snprintf(key, sizeof(key), "key %u", i % 100);
		snprintf(value, sizeof(value), "%05u", i);
		ck_assert_int_eq(put(key, value), 0);
	}
	journal_get_info(&info);
	ck_assert_uint_eq(info.live, live);
	ck_assert_uint_eq(info.records, 100);
	ck_assert_uint_gt(info.rewrites, 10);
	again(fd);
	ck_assert_int_eq(strncmp(all_of_it(), "key 0=19900;key 1=19901;", 24), 0);
	journal_close();
	close(fd);
}
END_TEST

/* Full: refused as a whole, what was there stays, and what goes makes room. */
START_TEST(full)
{
	int fd = new_journal(), err = 0;
	char key[32], value[512];
	unsigned n = 0;
	bool bulk = true, config = true, reservation = true;

	memset(value, 'x', sizeof(value) - 1);
	value[sizeof(value) - 1] = 0;
	for (; !err; n++) {
		const struct journal_rec two[] = {
			{ .key = key, .value = value, .len = strlen(value) },
			{ .key = "count", .value = &n, .len = sizeof(n) },
		};

		snprintf(key, sizeof(key), "%u", n);
		if (bulk && !journal_has_room(JOURNAL_ROOM_BULK, sizeof(value)))
			bulk = false; /* the first who is told */
		if (config && !journal_has_room(JOURNAL_ROOM_CONFIG, sizeof(value))) {
			ck_assert(!bulk);
			config = false;
		}
		if (reservation && !journal_has_room(JOURNAL_ROOM_RESERVATION, sizeof(value))) {
			ck_assert(!config);
			reservation = false;
		}
		err = journal_commit(two, 2);
	}
	ck_assert_int_eq(err, -ENOSPC);
	ck_assert(!reservation);
	ck_assert_uint_gt(n, 30);
	again(fd);
	size_t len;
	unsigned *count = journal_get("count", &len);

	ck_assert_uint_eq(*count, n - 2); /* neither of both */
	free(count);
	ck_assert_ptr_null(journal_get(key, &len));
	ck_assert_int_eq(drop("7"), 0);
	ck_assert_int_eq(put(key, value), 0);
	journal_close();
	close(fd);
}
END_TEST

START_TEST(too_long)
{
	char key[JOURNAL_KEY_MAX + 2];
	int fd = new_journal();

	memset(key, 'k', sizeof(key) - 1);
	key[sizeof(key) - 1] = 0;
	ck_assert_int_eq(put(key, "1"), -EINVAL);
	ck_assert_int_eq(put("", "1"), -EINVAL);
	key[JOURNAL_KEY_MAX] = 0;
	ck_assert_int_eq(put(key, "1"), 0);
	again(fd);
	ck_assert_str_ne(all_of_it(), "");
	journal_close();
	close(fd);
}
END_TEST

static bool has(const uint8_t *p, const char *text)
{
	return memmem(p, SIZE, text, strlen(text));
}

START_TEST(secrets_go)
{
	int fd = new_journal();
	uint8_t *p = look_at(fd);

	ck_assert_int_eq(put_secret("a/x", "opensesame"), 0);
	ck_assert(has(p, "opensesame"));
	ck_assert_int_eq(put_secret("a/x", "lethimin"), 0);
	ck_assert(!has(p, "opensesame"));
	again(fd);
	ck_assert_str_eq(all_of_it(), "a/x=lethimin;");
	ck_assert_int_eq(drop("a/x"), 0);
	ck_assert(!has(p, "lethimin"));
	ck_assert_int_eq(put_secret("a/y", "opensesame"), 0);
	for (unsigned i = 0; i < 20000; i++)
		ck_assert_int_eq(put("n", i % 2 ? "odd" : "even"), 0);
	ck_assert_int_eq(drop("a/y"), 0);
	ck_assert(!has(p, "opensesame")); /* nor in the other half */
	again(fd);
	ck_assert_str_eq(all_of_it(), "n=odd;");
	munmap(p, SIZE);
	journal_close();
	close(fd);
}
END_TEST

/* ---- a death at each instruction ------------------------------------------------------------- */

/* What the child does: one commit of each kind, and in the end so many that it is rewritten. */
static void child_commits(unsigned which)
{
	const struct journal_rec both[] = {
		{ .key = "a", .value = "new", .len = 3 },
		{ .key = "b" },
		{ .key = "d", .value = "3", .len = 1, .secret = true },
	};

	switch (which) {
	case 0:
		_exit(journal_commit(both, 3) != 0);
	case 1:
		_exit(put_secret("s", "another") != 0);
	default:
		_exit(put("a", "new") != 0); /* has been made to be rewritten for this */
	}
}

static const char *const after[] = { "a=new;s=secret;d=3;", "a=old;b=2;s=another;" };

START_TEST(death_at_each_instruction)
{
	int fd = new_journal(), status;
	unsigned states = 0, old = 0;
	uint64_t steps = 0;
	struct journal_info info;
	char *before, *want;
	uint8_t *p = look_at(fd), *seen = malloc(SIZE);
	pid_t pid;

	log_set_level(LOG_LVL_ERROR);
	ck_assert_int_eq(put("a", "old"), 0);
	ck_assert_int_eq(put("b", "2"), 0);
	ck_assert_int_eq(put_secret("s", "secret"), 0);
	/* the last commit that fits: the next one has to rewrite it */
	for (bool one = true; _i == 2; one = !one) {
		journal_get_info(&info);
		if (info.used + 32 > info.half)
			break;
		ck_assert_int_eq(put("b", one ? "1" : "2"), 0);
	}
	before = strdup(all_of_it());
	want = strdup(_i < 2 ? after[_i] : before);
	if (_i == 2)
		memcpy(want, "a=new", 5);
	pid = fork();
	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		child_commits((unsigned)_i);
	}
	journal_close();
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSTOPPED(status));
	memset(seen, 0xff, SIZE);
	for (;; steps++) {
		if (memcmp(seen, p, SIZE) != 0) {
			memcpy(seen, p, SIZE);
			int copy = copy_of(seen, SIZE);

			ck_assert_int_eq(journal_open(copy, SIZE), copy);
			const char *says = all_of_it();

			if (!strcmp(says, before))
				old++;
			else
				ck_assert_str_eq(says, want);
			/* and it can go on from there */
			ck_assert_int_eq(put("z", "z"), 0);
			journal_close();
			close(copy);
			states++;
		}
		ck_assert_int_eq(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status))
			break;
		ck_assert(WIFSTOPPED(status));
	}
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	printf("# %llu instructions, %u states, %u of them the old one\n",
	       (unsigned long long)steps, states, old);
	ck_assert_uint_gt(old, 1);
	ck_assert_uint_gt(states, old);
	free(before);
	free(want);
	free(seen);
	munmap(p, SIZE);
	close(fd);
}
END_TEST

/* ---- flipped bits ---------------------------------------------------------------------------- */

#define SEEDS 10000

static void make_some(void)
{
	char key[32], value[64];

	for (unsigned i = 0; i < 60; i++) {
		snprintf(key, sizeof(key), "k/%u", i % 25);
		snprintf(value, sizeof(value), "value %u", i);
		ck_assert_int_eq(i % 3 ? put(key, value) : put_secret(key, value), 0);
	}
	ck_assert_int_eq(drop("k/3"), 0);
}

START_TEST(flipped_bits)
{
	int fd = new_journal();
	uint8_t *p = look_at(fd), *bytes = malloc(SIZE);
	unsigned refused = 0;
	struct journal_info info;
	char *right;

	make_some();
	journal_get_info(&info);
	right = strdup(all_of_it());
	journal_close();
	log_threshold = -1; /* what is refused is said 10,000 times */
	srandom(17);
	for (unsigned seed = 0; seed < SEEDS; seed++) {
		/* the head, the words, the records; now and then anywhere */
		const size_t in[] = { 0, KiB(4), KiB(4) + 64, 0 },
			     len[] = { 128, 64, info.used, SIZE };
		const unsigned where = seed % 4;
		const size_t at = in[where] + (size_t)random() % len[where];

		memcpy(bytes, p, SIZE);
		bytes[at] ^= (uint8_t)(1u << (random() & 7));
		int copy = copy_of(bytes, SIZE);
		int rc = journal_open(copy, SIZE);

		if (rc == copy) {
			ck_assert_str_eq(all_of_it(), right);
			journal_close();
		} else {
			ck_assert(rc == -EBADMSG || rc == -ENOTSUP);
			refused++;
		}
		close(copy);
	}
	printf("# of %u flipped bits %u were seen, the others were in what says nothing\n", SEEDS,
	       refused);
	ck_assert_uint_gt(refused, SEEDS / 4);
	free(right);
	free(bytes);
	munmap(p, SIZE);
	close(fd);
}
END_TEST

/* Cut, longer, empty, all zeros, of another version. */
START_TEST(not_ours)
{
	const size_t sizes[] = { 0, 1, KiB(4), SIZE / 2, SIZE - KiB(4), SIZE + KiB(4), 2 * SIZE };
	int fd = new_journal(), copy;
	uint8_t *p = look_at(fd), *bytes = calloc(2, SIZE);

	make_some();
	journal_close();
	log_threshold = -1; /* what is refused is said 10,000 times */
	memcpy(bytes, p, SIZE);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		copy = copy_of(bytes, sizes[i]);
		ck_assert_int_eq(journal_open(copy, SIZE), -EBADMSG);
		close(copy);
	}
	/* magic, version and checksum, size, half */
	struct {
		uint64_t magic;
		uint32_t version, sum;
		uint64_t size, half;
	} *head = (void *)bytes;

	head->version++;
	uint64_t v[] = { head->magic, head->version, head->size, head->half };

	head->sum = crc32_iscsi((unsigned char *)v, sizeof(v), ~0u);
	copy = copy_of(bytes, SIZE);
	ck_assert_int_eq(journal_open(copy, SIZE), -ENOTSUP);
	close(copy);
	memset(bytes, 0, SIZE);
	copy = copy_of(bytes, SIZE);
	ck_assert_int_eq(journal_open(copy, SIZE), -EBADMSG);
	close(copy);
	free(bytes);
	munmap(p, SIZE);
	close(fd);
}
END_TEST

UNIT_TABLE("journal", 60, { says_what_was_said_last }, { cannot_be_cut }, { nothing_without_one },
	   { is_rewritten }, { full }, { too_long }, { secrets_go },
	   { death_at_each_instruction, 3 }, { flipped_bits }, { not_ours })
