/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The table that a keeper hands on (tgtd/keeper/table.h), as another program may have written it.
 * The input: changes of a good one, of three bytes each: where, and what is put there; where is
 * 0xffff: its length, in 64ths. An odd number of changes leaves the checksum wrong. What must hold:
 * it is refused with a reason, or has texts that end, keys that are keys, and each descriptor once,
 * and is written as it was read.
 */
#include <stdlib.h>
#include <string.h>

#include "events/bug.h"
#include "events/hash.h"
#include "tgtd/keeper/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define KEPT 5u
#define SUM_FROM 16u /* the checksum is of what follows it, and its own 8 bytes end there */

static void *make_good(size_t *len)
{
	struct table_fd fd[KEPT] = { 0 };
	struct table t = { .n = KEPT, .fd = fd };
	void *bytes;

	t.state = (struct table_state){ .worker_pid = 77,
					.worker_fd = 5,
					.exe = 6,
					.tombstone = -1,
					.before = -1,
					.lock_fd = 7 };
	strcpy(t.state.path, "/usr/sbin/tgtd");
	for (unsigned i = 0; i < KEPT; i++) {
		fd[i].key[0] = (char)('a' + i);
		fd[i].fd = (int32_t)(10 + i);
	}
	bytes = table_bytes(&t, len);
	BUG_ON(!bytes);
	return bytes;
}

static void check_taken(struct table *t, const uint8_t *bytes, size_t len)
{
	size_t again;
	void *p = table_bytes(t, &again);

	BUG_ON(!p || t->n > KEPT_MAX || strlen(t->state.why) >= sizeof(t->state.why) ||
	       strlen(t->state.path) >= sizeof(t->state.path) || t->state.worker_pid < 2);
	for (uint32_t i = 0; i < t->n; i++) {
		BUG_ON(!kept_key_ok(t->fd[i].key) || t->fd[i].fd < 3);
		for (uint32_t k = 0; k < i; k++)
			BUG_ON(t->fd[k].fd == t->fd[i].fd);
	}
	/* A newer one's state may be longer: what follows it is the same. */
	BUG_ON(memcmp((uint8_t *)p + again - t->n * sizeof(*t->fd),
		      bytes + len - t->n * sizeof(*t->fd), t->n * sizeof(*t->fd)));
	free(p);
	table_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t *good;
	static size_t good_len;
	size_t len, changes = 0;
	const char *why;
	struct table t;
	uint8_t *bytes;

	if (!good)
		good = make_good(&good_len);
	len = good_len;
	bytes = malloc(good_len);
	BUG_ON(!bytes);
	memcpy(bytes, good, good_len);
	for (size_t i = 0; i + 3 <= size; i += 3, changes++) {
		const size_t at = (size_t)data[i] << 8 | data[i + 1];

		if (at == 0xffff)
			len = good_len * (data[i + 2] % 65) / 64;
		else
			bytes[at % good_len] = data[i + 2];
	}
	if (changes % 2 == 0 && len > SUM_FROM) {
		const uint64_t sum = fnv1a(FNV1A_INIT, (const char *)bytes + SUM_FROM,
					   len - SUM_FROM);

		memcpy(bytes + 8, &sum, sizeof(sum));
	}
	if (table_parse(bytes, len, &t, &why))
		BUG_ON(!why && len);
	else
		check_taken(&t, bytes, len);
	free(bytes);
	return 0;
}
