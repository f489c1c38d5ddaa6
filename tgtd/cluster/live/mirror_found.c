/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A peer's memory that another process has left: see mirror_memory.h. Its length is sealed, so
 * nothing that is looked at lies beyond its end. Everything else may be wrong: that process may
 * have gone wrong before it ended. Numbers are proved before they are used. Nobody else changes the
 * file meanwhile, as the keeper reaps a process before the next one begins.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "events/bug.h"
#include "events/log.h"
#include "tgtd/cluster/live/mirror_memory_impl.h"

/* ---- the file -------------------------------------------------------------------------------- */
static const char *super_wrong(const struct memory_super *s, uint64_t length)
{
	const struct mirror_memory_conf conf = { s->lus, s->pages, s->page_shift, s->lent };
	struct memory_super is;

	if (memcmp(s->magic, MEMORY_MAGIC, sizeof(s->magic)))
		return "not a mirror's memory";
	if (s->layout != MEMORY_LAYOUT)
		return "a mirror's memory of another version";
	if (s->checksum != memory_super_sum(s))
		return "wrong checksum";
	if (!s->lus || s->lus > MIRROR_MEMORY_LUS || !s->pages || s->pages > MIRROR_MEMORY_PAGES ||
	    s->page_shift < MIRROR_SHIFT_MIN || s->page_shift > MIRROR_SHIFT_MAX + 6 ||
	    s->lent > MIRROR_MEMORY_LENT)
		return "sizes out of range";
	is = memory_lay_out(&conf);
	if (memcmp(&is, s, sizeof(is)) || is.length != length)
		return "parts that are not where they should be";
	return NULL;
}

static bool entry_is_true(const struct mirror_memory *m, const struct memory_entry *e)
{
	return e->slot <= m->super.lus && e->frame < m->frames && e->gen && e->map &&
	       e->shift >= MIRROR_SHIFT_MIN && e->shift <= MIRROR_SHIFT_MAX &&
	       e->shift <= m->super.page_shift &&
	       64u - (unsigned)__builtin_clzll(e->map) <= 1u << (m->super.page_shift - e->shift);
}

/* A group that was complete is done; one that was not has changed nothing. */
static bool redo_is_done(struct mirror_memory *m)
{
	if (m->redo->n > MIRROR_BATCH)
		return false;
	for (uint32_t i = 0; i < m->redo->n; i++)
		if (m->redo->item[i].page >= m->super.pages || !m->redo->item[i].entry.slot ||
		    !entry_is_true(m, &m->redo->item[i].entry))
			return false;
	memory_redo_run(m);
	return true;
}

struct mirror_memory *mirror_memory_found(int fd, char *why, size_t len)
{
	struct mirror_memory *m = NULL;
	const char *wrong = NULL;
	struct memory_super s;
	struct stat st;
	int seals;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || pread(fd, &s, sizeof(s), 0) != sizeof(s))
		wrong = "not a mirror's memory";
	if (!wrong)
		wrong = super_wrong(&s, (uint64_t)st.st_size);
	seals = fcntl(fd, F_GET_SEALS);
	if (!wrong && (seals < 0 || !(seals & F_SEAL_SHRINK) || seals & F_SEAL_WRITE))
		wrong = "its length is not sealed, or its content is";
	if (!wrong) {
		m = memory_map(fd, &s);
		wrong = m ? NULL : strerror(errno);
	}
	if (m && !redo_is_done(m)) {
		wrong = "its redo place cannot be true";
		m->fd = -1; /* the caller's still */
		mirror_memory_free(m);
	}
	if (!wrong)
		return m;
	snprintf(why, len, "%s", wrong);
	return NULL;
}

/* ---- what is in it --------------------------------------------------------------------------- */
/* Which frames are taken: a bit each. */
static bool frame_take(uint8_t *taken, uint32_t frame)
{
	const uint8_t bit = (uint8_t)(1u << frame % 8);

	if (taken[frame / 8] & bit)
		return false;
	taken[frame / 8] |= bit;
	return true;
}

static bool slot_is_true(const struct mirror_memory *m, struct mirror_peer *p, uint32_t i,
			 struct mirror_memory_left *left)
{
	const struct memory_slot *s = &m->slot[i];

	if (s->used != 1 || s->sealed > 1 || mirror_peer_found(p, i, &s->stamp))
		return false;
	for (unsigned k = 0; k < MIRROR_TOMBS; k++) {
		const struct memory_tomb *t = &s->tomb[k];

		if (!t->count)
			continue;
		if (mirror_peer_found_tomb(p, i, k, t->first, t->count, t->gen))
			return false;
		left->tombs++;
	}
	return true;
}

/* ZERO was begun: the tombstone was there, and not all pages below it had gone. */
static bool entry_is_buried(const struct memory_slot *s, const struct memory_entry *e)
{
	for (unsigned k = 0; k < MIRROR_TOMBS; k++)
		if (e->block - s->tomb[k].first < s->tomb[k].count && e->gen < s->tomb[k].gen)
			return true;
	return false;
}

/* False: its mirror cannot be true. */
static bool page_is_true(struct mirror_memory *m, struct mirror_peer *p, uint32_t i, uint8_t *taken,
			 struct mirror_memory_left *left)
{
	struct memory_entry *e = &m->entry[i];

	if (!entry_is_true(m, e) || memory_sum(m, e) != e->crc)
		return false;
	if (entry_is_buried(&m->slot[e->slot - 1], e)) {
		e->slot = 0;
		return true;
	}
	if (!frame_take(taken, e->frame) ||
	    mirror_peer_found_page(p, e->slot - 1, i, e->block, e->gen, e->map))
		return false;
	left->pages++;
	return true;
}

/* What is said of a slot that is no more. */
static void pages_drop(struct mirror_memory *m, uint32_t slot)
{
	for (uint32_t i = 0; i < m->super.pages; i++)
		if (m->entry[i].slot == slot + 1)
			m->entry[i].slot = 0;
}

/* Which mirrors can be true? One that the real peer hears of must be true as a whole, so @p is
 * another one, for this question alone. */
static void slots_judge(struct mirror_memory *m, struct mirror_peer *p, uint8_t *taken, bool *bad,
			struct mirror_memory_left *left)
{
	for (uint32_t i = 0; i < m->super.lus; i++)
		bad[i] = m->slot[i].used && !slot_is_true(m, p, i, left);
	for (uint32_t i = 0; i < m->super.pages; i++) {
		struct memory_entry *e = &m->entry[i];

		if (e->slot > m->super.lus || (e->slot && !m->slot[e->slot - 1].used))
			e->slot = 0; /* of a mirror that had ended */
		else if (e->slot && !bad[e->slot - 1] && !page_is_true(m, p, i, taken, left))
			bad[e->slot - 1] = true;
	}
}

/* What is there has been judged. */
static void slots_tell(struct mirror_memory *m, struct mirror_peer *p, uint8_t *taken,
		       struct mirror_memory_left *left)
{
	bool good = true;

	for (uint32_t i = 0; i < m->super.lus; i++)
		if (m->slot[i].used)
			good &= slot_is_true(m, p, i, left);
	for (uint32_t i = 0; i < m->super.pages; i++) {
		const struct memory_entry *e = &m->entry[i];

		if (!e->slot)
			continue;
		good &= frame_take(taken, e->frame) &&
			!mirror_peer_found_page(p, e->slot - 1, i, e->block, e->gen, e->map);
		left->pages++;
	}
	BUG_ON(!good);
}

static struct mirror_peer *judge_new(const struct mirror_memory *m, unsigned self)
{
	static const struct mirror_peer_ops none; /* (it is asked nothing that calls one) */
	const struct mirror_peer_config config = { .self = self,
						   .lus = m->super.lus,
						   .pages = m->super.pages };

	return mirror_peer_new(&config, &none, NULL);
}

static void slots_end(struct mirror_memory *m, const bool *bad, struct mirror_memory_left *left)
{
	for (uint32_t i = 0; i < m->super.lus; i++) {
		if (!bad[i])
			continue;
		log_error("mirror: what an earlier process has left of a mirror of unit %016llx "
			  "cannot be true: it is lost",
			  (unsigned long long)m->slot[i].stamp.lu);
		m->slot[i].used = 0;
		pages_drop(m, i);
		left->damaged++;
	}
}

static void slots_seal(struct mirror_memory *m, struct mirror_peer *p, unsigned self,
		       struct mirror_memory_left *left)
{
	for (uint32_t i = 0; i < m->super.lus; i++) {
		const struct memory_slot *s = &m->slot[i];
		const struct gw_mirror is = { .state = GW_MIRROR_VALID,
					      .peer = (uint8_t)self,
					      .incarnation = s->stamp.incarnation,
					      .epoch = s->stamp.mirror };

		left->mirrors += s->used;
		if (s->used && s->sealed)
			left->sealed += mirror_peer_seal(p, s->stamp.lu, &is);
	}
}

int mirror_memory_load(struct mirror_memory *m, struct mirror_peer *p, unsigned self,
		       struct mirror_memory_left *left)
{
	uint8_t *taken = calloc(2, m->frames / 8 + 1), *again;
	bool *bad = calloc(m->super.lus, sizeof(*bad));
	struct mirror_peer *judge = judge_new(m, self);
	const int err = taken && bad && judge ? 0 : -ENOMEM;

	memset(left, 0, sizeof(*left));
	if (!err) {
		slots_judge(m, judge, taken, bad, left);
		slots_end(m, bad, left);
		memset(left, 0, offsetof(struct mirror_memory_left, damaged));
		again = taken + m->frames / 8 + 1;
		slots_tell(m, p, again, left);
		mirror_peer_found_all(p);
		slots_seal(m, p, self, left);
		m->nfree = 0;
		for (uint32_t i = m->frames; i-- > 0;)
			if (frame_take(again, i))
				m->free[m->nfree++] = i;
	}
	mirror_peer_free(judge);
	free(taken);
	free(bad);
	return err;
}
