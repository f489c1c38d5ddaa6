/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Spill memory, and who may have how much of it: see dataout.h. */
#include <stdlib.h>

#include "tgtd/iscsi/core.h"

/* Targets whose numbers are so far apart are taken for one. That makes their shares smaller, and
 * nothing has to live as long as a target. */
#define SPILL_SHARES 1024

/* Bytes of the pool; all threads. */
static uint64_t spilled, spilled_of[SPILL_SHARES];

static uint64_t *spill_of_target(const struct iscsi_session *s)
{
	return &spilled_of[scsi_target_tid(s->nexus.target) % SPILL_SHARES];
}

/* What of @bytes of a session's is of the pool. */
static uint64_t pooled(uint64_t bytes)
{
	return bytes - MIN(bytes, ISCSI_SPILL_LEAST);
}

static void pool_put(struct iscsi_session *s, uint64_t bytes)
{
	__atomic_fetch_sub(spill_of_target(s), bytes, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&spilled, bytes, __ATOMIC_RELAXED);
}

/* Takes what @s needs for @len bytes more. */
static bool pool_get(struct iscsi_session *s, uint32_t len)
{
	const uint64_t mine = pooled(s->spilled), want = pooled(s->spilled + len) - mine;
	uint64_t all, of_target;

	if (s->spilled + len > ISCSI_SPILL_SHARE)
		return false;
	if (!want)
		return true;
	/* Taken first: of two threads that take the last bytes at a time neither may have them. */
	all = __atomic_add_fetch(&spilled, want, __ATOMIC_RELAXED);
	of_target = __atomic_fetch_add(spill_of_target(s), want, __ATOMIC_RELAXED);
	if (mine + of_target + all <= ISCSI_SPILL_MAX)
		return true;
	pool_put(s, want);
	return false;
}

struct iscsi_spill *iscsi_spill_get(struct iscsi_session *s, uint64_t off, uint32_t len)
{
	struct iscsi_spill *sp;

	ASSERT_ON_LOOP(s->loop);
	if (!pool_get(s, len))
		return NULL;
	sp = malloc(sizeof(*sp) + len);
	if (!sp) {
		pool_put(s, pooled(s->spilled + len) - pooled(s->spilled));
		return NULL;
	}
	s->spilled += len;
	metric_add(M_iscsi_spill_bytes, len);
	*sp = (struct iscsi_spill){ .off = off, .len = len };
	return sp;
}

void iscsi_spill_put(struct iscsi_session *s, struct iscsi_spill *sp)
{
	pool_put(s, pooled(s->spilled) - pooled(s->spilled - sp->len));
	s->spilled -= sp->len;
	metric_sub(M_iscsi_spill_bytes, sp->len);
	free(sp);
}
