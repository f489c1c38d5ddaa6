/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See mirror_memory.h, and mirror_memory_impl.h for what lies in it. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <isa-l/crc.h>

#include "cache/memory/pages.h"
#include "events/bug.h"
#include "tgtd/cluster/live/mirror_memory_impl.h"

static uint32_t sum_go_on(uint32_t crc, const void *data, size_t len)
{
	return crc32_iscsi((unsigned char *)(uintptr_t)data, (int)len, crc);
}

/* ---- where everything lies ------------------------------------------------------------------- */
struct memory_super memory_lay_out(const struct mirror_memory_conf *conf)
{
	struct memory_super s = { .layout = MEMORY_LAYOUT,
				  .lus = conf->lus,
				  .pages = conf->pages,
				  .page_shift = conf->page_shift,
				  .lent = conf->lent,
				  .slot_off = 4096 };

	memcpy(s.magic, MEMORY_MAGIC, sizeof(s.magic));
	s.entry_off = s.slot_off + (uint64_t)s.lus * sizeof(struct memory_slot);
	s.redo_off = s.entry_off + (uint64_t)s.pages * sizeof(struct memory_entry);
	s.data_off = ALIGN_UP(s.redo_off + sizeof(struct memory_redo), 4096ull);
	s.length =
		ALIGN_UP(s.data_off + ((uint64_t)(s.pages + MIRROR_BATCH + s.lent) << s.page_shift),
			 4096ull);
	s.checksum = memory_super_sum(&s);
	return s;
}

uint32_t memory_super_sum(const struct memory_super *s)
{
	struct memory_super copy = *s;

	copy.checksum = 0;
	return sum_go_on(~0u, &copy, sizeof(copy));
}

struct mirror_memory *memory_map(int fd, const struct memory_super *s)
{
	struct mirror_memory *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->super = *s;
	m->frames = s->pages + MIRROR_BATCH + s->lent;
	m->free = calloc(m->frames, sizeof(*m->free));
	m->lent = calloc(m->frames, sizeof(*m->lent));
	m->map = m->free && m->lent ?
			 mmap(NULL, s->length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) :
			 MAP_FAILED;
	if (m->map == MAP_FAILED) {
		const int err = m->free && m->lent ? errno : ENOMEM;

		free(m->lent);
		free(m->free);
		free(m);
		errno = err;
		return NULL;
	}
	m->fd = fd;
	m->slot = (struct memory_slot *)(void *)(m->map + s->slot_off);
	m->entry = (struct memory_entry *)(void *)(m->map + s->entry_off);
	m->redo = (struct memory_redo *)(void *)(m->map + s->redo_off);
	m->data = m->map + s->data_off;
	return m;
}

static bool memory_conf_is_wrong(const struct mirror_memory_conf *c)
{
	return !c->lus || c->lus > MIRROR_MEMORY_LUS || !c->pages ||
	       c->pages > MIRROR_MEMORY_PAGES || c->page_shift < MIRROR_SHIFT_MIN ||
	       c->page_shift > MIRROR_SHIFT_MAX + 6 || c->lent > MIRROR_MEMORY_LENT;
}

struct mirror_memory *mirror_memory_new(const struct mirror_memory_conf *conf)
{
	struct mirror_memory *m = NULL;
	struct memory_super s;
	int fd, err = 0;

	if (memory_conf_is_wrong(conf)) {
		errno = EINVAL;
		return NULL;
	}
	s = memory_lay_out(conf);
	fd = memfd_create("tgtd-mirror", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return NULL;
	/* Who holds it cannot make it shorter than the superblock says. */
	if (ftruncate(fd, (off_t)s.length) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		err = errno;
	if (!err) {
		m = memory_map(fd, &s);
		err = m ? -mem_populate(m->map, 0, s.length) : errno;
	}
	if (err) {
		mirror_memory_free(m);
		if (!m)
			close(fd);
		errno = err;
		return NULL;
	}
	for (uint32_t i = m->frames; i-- > 0;)
		m->free[m->nfree++] = i;
	memcpy(m->map, &s, sizeof(s));
	return m;
}

void mirror_memory_free(struct mirror_memory *m)
{
	if (!m)
		return;
	munmap(m->map, m->super.length);
	close(m->fd);
	free(m->lent);
	free(m->free);
	free(m);
}

int mirror_memory_fd(const struct mirror_memory *m)
{
	return m->fd;
}

void mirror_memory_conf(const struct mirror_memory *m, struct mirror_memory_conf *conf)
{
	*conf = (struct mirror_memory_conf){ .lus = m->super.lus,
					     .pages = m->super.pages,
					     .page_shift = m->super.page_shift,
					     .lent = m->super.lent };
}

bool mirror_memory_used(const struct mirror_memory *m)
{
	for (uint32_t i = 0; i < m->super.lus; i++)
		if (m->slot[i].used)
			return true;
	return false;
}

/* ---- pages ----------------------------------------------------------------------------------- */
uint32_t memory_sum(const struct mirror_memory *m, const struct memory_entry *e)
{
	const uint8_t *at = memory_frame(m, e->frame);
	uint64_t map = e->map;
	uint32_t crc = ~0u;
	unsigned first, n;

	while (map) {
		first = mirror_run(&map, &n);
		crc = sum_go_on(crc, at + ((size_t)first << e->shift), (size_t)n << e->shift);
	}
	return crc;
}

static bool memory_sectors_fit(const struct mirror_memory *m, uint64_t map, unsigned shift)
{
	return map && shift <= m->super.page_shift &&
	       (64u - (unsigned)__builtin_clzll(map)) <= 1u << (m->super.page_shift - shift);
}

bool mirror_memory_fits(const struct mirror_memory *m, const struct mirror_frame *f)
{
	for (unsigned i = 0; i < f->n; i++)
		if (f->record[i].op == MIRROR_WRITE &&
		    (!memory_sectors_fit(m, f->record[i].map, f->shift) ||
		     (f->record[i].ref != MIRROR_INLINE &&
		      !mirror_memory_ticket(m, f->record[i].ref))))
			return false;
	return true;
}

void memory_redo_run(struct mirror_memory *m)
{
	for (uint32_t i = 0; i < m->redo->n; i++)
		m->entry[m->redo->item[i].page] = m->redo->item[i].entry;
	memory_order_kept();
	m->redo->n = 0;
	memory_order_kept();
}

static uint32_t slot_by_lu(const struct mirror_memory *m, uint64_t lu)
{
	uint32_t i = 0;

	while (i < m->super.lus && !(m->slot[i].used && m->slot[i].stamp.lu == lu))
		i++;
	BUG_ON(i == m->super.lus);
	return i;
}

/* The page as the group has it so far, or as it is. */
static struct memory_entry page_now(const struct mirror_memory *m, uint32_t page)
{
	for (uint32_t i = m->pending; i-- > 0;)
		if (m->redo->item[i].page == page)
			return m->redo->item[i].entry;
	return m->entry[page];
}

/* Copies sectors @map of @from, where they lie as in a block, to the same place of @to. */
static void copy_sectors(uint8_t *to, const uint8_t *from, uint64_t map, unsigned shift)
{
	unsigned first, n;

	while (map) {
		first = mirror_run(&map, &n);
		memcpy(to + ((size_t)first << shift), from + ((size_t)first << shift),
		       (size_t)n << shift);
	}
}

/* The same, where they follow each other in @from. */
static void copy_packed(uint8_t *to, const uint8_t *from, uint64_t map, unsigned shift)
{
	unsigned first, n;

	while (map) {
		first = mirror_run(&map, &n);
		memcpy(to + ((size_t)first << shift), from, (size_t)n << shift);
		from += (size_t)n << shift;
	}
}

static const uint8_t *record_data(const struct mirror_frame *f, unsigned i)
{
	const uint8_t *at = f->data;

	while (i-- > 0)
		at += mirror_data_len(&f->record[i], f->shift);
	return at;
}

void mirror_memory_settle(struct mirror_memory *m)
{
	if (!m->pending)
		return;
	memory_order_kept();
	m->redo->n = m->pending;
	memory_order_kept();
	memory_redo_run(m);
	m->pending = 0;
	while (m->nold)
		m->free[m->nfree++] = m->old[--m->nold];
}

void mirror_memory_write(struct mirror_memory *m, uint32_t page, const struct mirror_frame *f,
			 unsigned i)
{
	const struct mirror_record *r = &f->record[i];
	const struct memory_entry was = page_now(m, page);
	struct memory_entry e = { .slot = slot_by_lu(m, f->lu) + 1,
				  .shift = f->shift,
				  .crc = r->crc,
				  .block = r->block,
				  .gen = r->gen,
				  .map = r->map };
	uint64_t kept = 0;

	BUG_ON(page >= m->super.pages || m->pending == MIRROR_BATCH || !m->nfree);
	if (r->ref == MIRROR_INLINE) {
		e.frame = m->free[--m->nfree];
		copy_packed(memory_frame(m, e.frame), record_data(f, i), r->map, f->shift);
		m->copied += mirror_data_len(r, f->shift);
	} else {
		BUG_ON(!mirror_memory_ticket(m, r->ref));
		e.frame = r->ref;
		m->lent[e.frame] = 0;
		m->nlent--;
	}
	if (was.slot) {
		m->old[m->nold++] = was.frame;
		/* (Another size of sectors is another LU's.) */
		kept = was.slot == e.slot && was.shift == e.shift ? was.map & ~r->map : 0;
	}
	if (kept) {
		copy_sectors(memory_frame(m, e.frame), memory_frame(m, was.frame), kept, f->shift);
		m->copied += (uint64_t)__builtin_popcountll(kept) << f->shift;
		e.map |= kept;
		e.crc = memory_sum(m, &e);
	}
	m->redo->item[m->pending].page = page;
	m->redo->item[m->pending].entry = e;
	m->pending++;
	if (!r->more)
		mirror_memory_settle(m);
}

void mirror_memory_drop(struct mirror_memory *m, uint32_t page)
{
	struct memory_entry *e = &m->entry[page];

	mirror_memory_settle(m);
	BUG_ON(page >= m->super.pages || !e->slot);
	e->slot = 0;
	memory_order_kept();
	m->free[m->nfree++] = e->frame;
}

const uint8_t *mirror_memory_data(const struct mirror_memory *m, uint32_t page, unsigned *shift,
				  uint64_t *map)
{
	const struct memory_entry *e = &m->entry[page];

	*shift = e->shift;
	*map = e->map;
	BUG_ON(page >= m->super.pages || !e->slot);
	return memory_sum(m, e) == e->crc ? memory_frame(m, e->frame) : NULL;
}

/* ---- frames that are lent -------------------------------------------------------------------- */
/* (There is always a free one: those beyond pages and MIRROR_BATCH are as many as may be lent, and
 * one that becomes a page's is lent no more.) */
uint32_t mirror_memory_lend(struct mirror_memory *m, uint64_t *ticket)
{
	uint32_t frame;

	if (m->nlent == m->super.lent || m->nfree <= MIRROR_BATCH)
		return MIRROR_FRAME_NONE;
	frame = m->free[--m->nfree];
	m->lent[frame] = *ticket = ++m->loans;
	m->nlent++;
	return frame;
}

uint64_t mirror_memory_ticket(const struct mirror_memory *m, uint32_t frame)
{
	return frame < m->frames ? m->lent[frame] : 0;
}

void mirror_memory_return(struct mirror_memory *m, uint32_t frame)
{
	BUG_ON(!mirror_memory_ticket(m, frame));
	m->lent[frame] = 0;
	m->nlent--;
	m->free[m->nfree++] = frame;
}

void *mirror_memory_frames(const struct mirror_memory *m, size_t *len)
{
	*len = (size_t)m->frames << m->super.page_shift;
	return m->data;
}

uint64_t mirror_memory_copied(const struct mirror_memory *m)
{
	return m->copied;
}

/* ---- slots ----------------------------------------------------------------------------------- */
void mirror_memory_stamp(struct mirror_memory *m, uint32_t slot, const struct mirror_stamp *s)
{
	struct memory_slot *t = &m->slot[slot];

	BUG_ON(slot >= m->super.lus);
	mirror_memory_settle(m);
	t->used = 0;
	memory_order_kept();
	if (!s)
		return;
	t->sealed = 0;
	t->stamp = *s;
	for (unsigned i = 0; i < MIRROR_TOMBS; i++)
		t->tomb[i].count = 0;
	memory_order_kept();
	t->used = 1;
	memory_order_kept();
}

void mirror_memory_tomb(struct mirror_memory *m, uint32_t slot, unsigned tomb, uint64_t first,
			uint64_t count, uint64_t gen)
{
	struct memory_tomb *t = &m->slot[slot].tomb[tomb];

	BUG_ON(slot >= m->super.lus || tomb >= MIRROR_TOMBS);
	mirror_memory_settle(m);
	t->count = 0;
	memory_order_kept();
	if (!count)
		return;
	t->first = first;
	t->gen = gen;
	memory_order_kept();
	t->count = count;
	memory_order_kept();
}

void mirror_memory_seal(struct mirror_memory *m, uint64_t lu)
{
	m->slot[slot_by_lu(m, lu)].sealed = 1;
	memory_order_kept();
}
