/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a gateway holds for others: pages, found by mirror and block, and tombstones. A frame's
 * records are done in their order.
 *
 *     WRITE    the sectors become those of the page. An older generation than the page's is done
 *              already: it is sent again after a session was lost
 *     ZERO     pages below go; the tombstone stays until the store has done it, since a takeover
 *              meanwhile must not show what lies in the store
 *     RELEASE  the page goes, unless it has a newer generation: another channel was faster
 */
#include <stdlib.h>
#include "tgtd/cluster/mirror_impl.h"

bool mirror_pages_make(struct mirror_peer *p)
{
	const uint32_t n = p->cfg.pages;

	for (p->buckets = 64; p->buckets < n; p->buckets *= 2)
		;
	p->page = calloc(n, sizeof(*p->page));
	p->bucket = malloc(p->buckets * sizeof(*p->bucket));
	if (!p->page || !p->bucket)
		return false;
	for (uint32_t i = 0; i < p->buckets; i++)
		p->bucket[i] = MIRROR_NONE;
	for (uint32_t i = 0; i < n; i++) {
		p->page[i].slot = MIRROR_NONE;
		p->page[i].next = i + 1 < n ? i + 1 : MIRROR_NONE;
	}
	p->free = n ? 0 : MIRROR_NONE;
	return true;
}

uint32_t mirror_slot_of(const struct mirror_peer *p, uint64_t lu)
{
	for (uint32_t i = 0; i < p->cfg.lus; i++)
		if (p->slot[i].used && p->slot[i].stamp.lu == lu)
			return i;
	return MIRROR_NONE;
}

static uint32_t *page_bucket(const struct mirror_peer *p, uint32_t slot, uint64_t block)
{
	const uint64_t h = (block ^ (uint64_t)slot << 56) * 0x9e3779b97f4a7c15ull;

	return &p->bucket[(h >> 32) & (p->buckets - 1)];
}

uint32_t mirror_page_find(const struct mirror_peer *p, uint32_t slot, uint64_t block)
{
	uint32_t i = *page_bucket(p, slot, block);

	while (i != MIRROR_NONE && (p->page[i].slot != slot || p->page[i].block != block))
		i = p->page[i].next;
	return i;
}

/* A page that is free and on no list. */
void mirror_page_set(struct mirror_peer *p, uint32_t page, uint32_t slot, uint64_t block)
{
	uint32_t *at = page_bucket(p, slot, block);

	p->page[page] = (struct mirror_page){ .block = block, .slot = slot, .next = *at };
	*at = page;
	p->slot[slot].pages++;
	p->used++;
}

/* Out of its bucket, and free. */
void mirror_page_free(struct mirror_peer *p, uint32_t page)
{
	struct mirror_page *g = &p->page[page];
	uint32_t *at = page_bucket(p, g->slot, g->block);

	while (*at != page)
		at = &p->page[*at].next;
	*at = g->next;
	p->slot[g->slot].pages--;
	p->used--;
	g->slot = MIRROR_NONE;
	g->next = p->free;
	p->free = page;
}

static void page_drop(struct mirror_peer *p, uint32_t page)
{
	mirror_page_free(p, page);
	p->ops->drop(p->arg, page);
	counter_add(&p->counts.dropped, 1);
}

static struct peer_tomb *tomb_by(struct mirror_slot *s, uint64_t gen)
{
	for (unsigned i = 0; i < MIRROR_TOMBS; i++)
		if (s->tomb[i].count && s->tomb[i].gen == gen)
			return &s->tomb[i];
	return NULL;
}

static struct peer_tomb *tomb_free(struct mirror_slot *s)
{
	for (unsigned i = 0; i < MIRROR_TOMBS; i++)
		if (!s->tomb[i].count)
			return &s->tomb[i];
	return NULL;
}

bool mirror_pages_fit(const struct mirror_peer *p, uint32_t slot, const struct mirror_frame *f)
{
	uint32_t pages = 0, tombs = 0, room = 0;

	for (unsigned i = 0; i < f->n; i++) {
		const struct mirror_record *r = &f->record[i];

		pages +=
			r->op == MIRROR_WRITE && mirror_page_find(p, slot, r->block) == MIRROR_NONE;
		tombs += r->op == MIRROR_ZERO;
	}
	for (unsigned i = 0; i < MIRROR_TOMBS; i++)
		room += !p->slot[slot].tomb[i].count;
	return pages <= p->cfg.pages - p->used && tombs <= room;
}

/* Is the block below a tombstone that is newer? */
static bool page_is_buried(const struct mirror_slot *s, const struct mirror_record *r)
{
	for (unsigned i = 0; i < MIRROR_TOMBS; i++)
		if (r->block - s->tomb[i].first < s->tomb[i].count && r->gen < s->tomb[i].gen)
			return true;
	return false;
}

static void apply_write(struct mirror_peer *p, uint32_t slot, const struct mirror_frame *f,
			unsigned i)
{
	const struct mirror_record *r = &f->record[i];
	uint32_t page = mirror_page_find(p, slot, r->block);

	if (page != MIRROR_NONE && r->gen <= p->page[page].gen && !mirror_breaks(BREAK_NEWEST))
		return;
	if (page_is_buried(&p->slot[slot], r))
		return;
	if (page == MIRROR_NONE) {
		page = p->free;
		p->free = p->page[page].next;
		mirror_page_set(p, page, slot, r->block);
	}
	p->page[page].gen = r->gen;
	p->page[page].map |= r->map;
	p->ops->write(p->arg, page, f, i);
	counter_add(&p->counts.writes, 1);
	counter_add(&p->counts.groups, r->more);
}

/* Pages of blocks @first to @first + @count - 1 that are older than @gen. */
static void drop_range(struct mirror_peer *p, uint32_t slot, uint64_t first, uint64_t count,
		       uint64_t gen)
{
	if (count <= p->cfg.pages) {
		for (uint64_t b = first; b - first < count; b++) {
			const uint32_t page = mirror_page_find(p, slot, b);

			if (page != MIRROR_NONE && p->page[page].gen < gen)
				page_drop(p, page);
		}
		return;
	}
	for (uint32_t i = 0; i < p->cfg.pages; i++)
		if (p->page[i].slot == slot && p->page[i].block - first < count &&
		    p->page[i].gen < gen)
			page_drop(p, i);
}

static void apply_zero(struct mirror_peer *p, uint32_t slot, const struct mirror_record *r)
{
	struct mirror_slot *s = &p->slot[slot];
	struct peer_tomb *t = tomb_by(s, r->gen);

	if (t)
		return;
	counter_add(&p->counts.tombs, 1);
	if (!mirror_breaks(BREAK_TOMB_KEPT)) {
		t = tomb_free(s);
		*t = (struct peer_tomb){ .first = r->block, .count = r->map, .gen = r->gen };
		p->ops->tomb(p->arg, slot, (unsigned)(t - s->tomb), t->first, t->count, t->gen);
	}
	if (!mirror_breaks(BREAK_TOMB_DROPS))
		drop_range(p, slot, r->block, r->map, r->gen);
}

static void tomb_end(struct mirror_peer *p, uint32_t slot, struct peer_tomb *t)
{
	t->count = 0;
	p->ops->tomb(p->arg, slot, (unsigned)(t - p->slot[slot].tomb), 0, 0, 0);
}

static void apply_release(struct mirror_peer *p, uint32_t slot, const struct mirror_record *r)
{
	const uint32_t page = mirror_page_find(p, slot, r->block);

	if (page == MIRROR_NONE ||
	    (p->page[page].gen > r->gen && !mirror_breaks(BREAK_RELEASE_GEN)))
		return;
	counter_add(&p->counts.releases, 1);
	page_drop(p, page);
}

void mirror_pages_apply(struct mirror_peer *p, uint32_t slot, const struct mirror_frame *f)
{
	struct mirror_slot *s = &p->slot[slot];

	for (unsigned i = 0; i < f->n; i++) {
		const struct mirror_record *r = &f->record[i];

		if (r->op == MIRROR_WRITE)
			apply_write(p, slot, f, i);
		else if (r->op == MIRROR_ZERO)
			apply_zero(p, slot, r);
		else if (r->op == MIRROR_CUT)
			drop_range(p, slot, r->block, UINT64_MAX - r->block, r->gen);
		else if (r->op == MIRROR_RELEASE)
			apply_release(p, slot, r);
		else if (tomb_by(s, r->gen))
			tomb_end(p, slot, tomb_by(s, r->gen));
	}
}

void mirror_pages_drop(struct mirror_peer *p, uint32_t slot)
{
	struct mirror_slot *s = &p->slot[slot];

	for (uint32_t i = 0; s->pages && i < p->cfg.pages; i++)
		if (p->page[i].slot == slot)
			page_drop(p, i);
	for (unsigned i = 0; i < MIRROR_TOMBS; i++)
		if (s->tomb[i].count)
			tomb_end(p, slot, &s->tomb[i]);
}

/* ---- takeover -------------------------------------------------------------------------------- */
bool mirror_peer_zero(const struct mirror_peer *p, uint64_t lu, uint64_t *first, uint64_t *count,
		      uint64_t *gen)
{
	const uint32_t slot = mirror_slot_of(p, lu);
	const struct peer_tomb *oldest = NULL;

	for (unsigned i = 0; slot != MIRROR_NONE && i < MIRROR_TOMBS; i++) {
		const struct peer_tomb *t = &p->slot[slot].tomb[i];

		if (t->count && (!oldest || t->gen < oldest->gen))
			oldest = t;
	}
	if (!oldest)
		return false;
	*first = oldest->first;
	*count = oldest->count;
	*gen = oldest->gen;
	return true;
}

void mirror_peer_zeroed(struct mirror_peer *p, uint64_t lu, uint64_t gen)
{
	const uint32_t slot = mirror_slot_of(p, lu);
	struct peer_tomb *t = slot == MIRROR_NONE ? NULL : tomb_by(&p->slot[slot], gen);

	if (t)
		tomb_end(p, slot, t);
}

bool mirror_peer_look(const struct mirror_peer *p, uint64_t lu, uint32_t *at, uint32_t *page,
		      uint64_t *block, uint64_t *gen, uint64_t *map)
{
	const uint32_t slot = mirror_slot_of(p, lu);
	uint32_t i = *at;

	while (slot != MIRROR_NONE && i < p->cfg.pages && p->page[i].slot != slot)
		i++;
	*at = i + 1;
	if (slot == MIRROR_NONE || i >= p->cfg.pages)
		return false;
	*page = i;
	*block = p->page[i].block;
	*gen = p->page[i].gen;
	*map = p->page[i].map;
	return true;
}

/* False: it could not be. */
static bool page_take(struct mirror_peer *p, uint32_t page, uint64_t lu, uint64_t end)
{
	const struct mirror_page g = p->page[page];

	if (g.block >= end && !mirror_breaks(BREAK_CLIP)) {
		page_drop(p, page);
		return true;
	}
	if (!p->ops->adopt(p->arg, page, lu, g.block, g.gen, g.map))
		return false;
	mirror_page_free(p, page);
	counter_add(&p->counts.taken, 1);
	return true;
}

bool mirror_peer_take(struct mirror_peer *p, uint64_t lu, uint64_t end, uint32_t max)
{
	const uint32_t slot = mirror_slot_of(p, lu);
	struct mirror_slot *s;

	if (slot == MIRROR_NONE)
		return true;
	s = &p->slot[slot];
	for (; s->pages && s->walk < p->cfg.pages && max; s->walk++, max--)
		if (p->page[s->walk].slot == slot && !page_take(p, s->walk, lu, end))
			return false;
	if (s->pages)
		return false;
	p->ops->stamp(p->arg, slot, NULL);
	memset(s, 0, sizeof(*s));
	counter_add32(&p->counts.mirrors, (uint32_t)-1);
	return true;
}
