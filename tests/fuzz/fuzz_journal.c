/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A state journal that something has written into. The input: changes of a well-formed one, of
 * three bytes each: where, and what is put there; at 0xffff it is the length in KiB. What must
 * hold: it is refused, or what is found has keys and values that lie in it, can be changed, and is
 * found again.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "events/bug.h"
#include "events/log.h"
#include "tgtd/state/journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SIZE JOURNAL_SIZE_MIN

static uint8_t good[SIZE];

static void make_good(void)
{
	int fd = journal_open(-1, SIZE);
	char key[16];

	log_threshold = -1; /* refusals are what is looked for */
	BUG_ON(fd < 0);
	for (unsigned i = 0; i < 40; i++) {
		const struct journal_rec rec = { key, i % 7 ? key : NULL, 8, i & 1 };

		memset(key, 0, sizeof(key));
		key[0] = (char)('a' + i % 11);
		BUG_ON(journal_commit(&rec, 1));
	}
	journal_close();
	BUG_ON(pread(fd, good, SIZE, 0) != SIZE);
	close(fd);
}

static void count(const char *key, const void *value, size_t len, void *arg)
{
	const uint8_t *v = value;
	uint64_t *sum = arg;

	BUG_ON(!*key || strlen(key) > JOURNAL_KEY_MAX || len > SIZE);
	*sum += strlen(key) + 1;
	for (size_t i = 0; i < len; i++)
		*sum += v[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct journal_rec rec = { "fuzz", "zzuf", 4, false };
	static uint8_t bytes[SIZE];
	uint64_t found = 0, again = 0;
	size_t len = SIZE;
	int fd;

	if (!*good)
		make_good();
	memcpy(bytes, good, SIZE);
	for (; size >= 3; data += 3, size -= 3) {
		const unsigned at = data[0] | (unsigned)data[1] << 8;

		if (at == 0xffff)
			len = (size_t)data[2] * 1024;
		else
			bytes[at] = data[2];
	}
	fd = memfd_create("fuzz", 0);
	BUG_ON(fd < 0 || pwrite(fd, bytes, MIN(len, (size_t)SIZE), 0) < 0 ||
	       ftruncate(fd, (off_t)len));
	if (journal_open(fd, SIZE) == fd) {
		journal_each("", count, &found);
		BUG_ON(journal_commit(&rec, 1) && journal_has_room(JOURNAL_ROOM_CONFIG, 64));
		found = 0;
		journal_each("", count, &found);
		journal_close();
		BUG_ON(journal_open(fd, SIZE) != fd);
		journal_each("", count, &again);
		BUG_ON(found != again);
		journal_close();
	}
	close(fd);
	return 0;
}
