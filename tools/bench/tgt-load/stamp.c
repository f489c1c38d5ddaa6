/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A stamped piece: magic, place, generation, then a body computed from these, so that every byte
 * is known and any byte out of place is seen.
 */
#include "tools/bench/tgt-load/stamp.h"

#include <string.h>
#include "tools/bench/tgt-load/rand.h"

#define STAMP_MAGIC 0x746774642d6c6f61ull

struct stamp {
	uint64_t magic;
	uint64_t at;
	uint32_t lu;
	uint32_t gen;
	uint64_t body[(STAMP_BYTES - 24) / 8];
};

_Static_assert(sizeof(struct stamp) == STAMP_BYTES, "a stamp fills its piece");

static uint64_t body_seed(uint32_t lu, uint64_t at, uint32_t gen)
{
	return rnd_mix(at * 0x9e3779b97f4a7c15ull ^ ((uint64_t)lu << 32 | gen));
}

static uint64_t body_word(uint64_t seed, unsigned i)
{
	return (seed + i) * 0xd1342543de82ef95ull;
}

void stamp_write(void *p, uint32_t lu, uint64_t at, uint32_t gen)
{
	struct stamp s = {.magic = STAMP_MAGIC, .at = at, .lu = lu, .gen = gen};
	uint64_t seed = body_seed(lu, at, gen);

	for (unsigned i = 0; i < sizeof(s.body) / sizeof(s.body[0]); i++)
		s.body[i] = body_word(seed, i);
	memcpy(p, &s, sizeof(s));
}

enum stamp_verdict stamp_check(const void *p, uint32_t lu, uint64_t at, uint32_t gen)
{
	struct stamp s;
	uint64_t seed, diff = 0;

	memcpy(&s, p, sizeof(s));
	if (s.magic != STAMP_MAGIC)
		return STAMP_FOREIGN;
	if (s.at != at || s.lu != lu)
		return STAMP_MISPLACED;
	if (s.gen != gen)
		return STAMP_STALE;
	seed = body_seed(lu, at, gen);
	for (unsigned i = 0; i < sizeof(s.body) / sizeof(s.body[0]); i++)
		diff |= s.body[i] ^ body_word(seed, i);
	return diff ? STAMP_TORN : STAMP_GOOD;
}

const char *stamp_name(enum stamp_verdict v)
{
	switch (v) {
	case STAMP_GOOD:
		return "good";
	case STAMP_FOREIGN:
		return "not ours";
	case STAMP_MISPLACED:
		return "misplaced";
	case STAMP_STALE:
		return "stale";
	case STAMP_TORN:
		return "torn";
	}
	return "?";
}
