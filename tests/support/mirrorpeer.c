/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See mirrorpeer.h. */
#include <stdlib.h>
#include <string.h>

#include "events/bug.h"
#include "tests/support/mirrorpeer.h"
#include "tgtd/cluster/mirror_impl.h"

#define SECTOR (1u << MIRRORPEER_SHIFT)
#define SECTORS (MIRRORPEER_PAGE / SECTOR)

/* ---- frames ---------------------------------------------------------------------------------- */
size_t mirrorpeer_inline(struct mirror_frame *f)
{
	f->data_len = 0;
	for (unsigned i = 0; i < f->n; i++) {
		f->record[i].ref = MIRROR_INLINE;
		f->data_len += mirror_data_len(&f->record[i], f->shift);
	}
	return f->data_len;
}

const uint8_t *mirrorpeer_data(const struct mirror_frame *f, unsigned i, const uint8_t *data)
{
	for (unsigned k = 0; k < i; k++)
		data += mirror_data_len(&f->record[k], f->shift);
	return data;
}

static uint32_t sum_of(const struct mirror_frame *f, unsigned i, const uint8_t *data)
{
	const struct mirror_record *r = &f->record[i];

	return r->op == MIRROR_WRITE ?
		       mirror_sum(mirrorpeer_data(f, i, data), mirror_data_len(r, f->shift)) :
		       0;
}

void mirrorpeer_sum(struct mirror_frame *f, const uint8_t *data)
{
	for (unsigned i = 0; i < f->n; i++)
		f->record[i].crc = sum_of(f, i, data);
}

bool mirrorpeer_is_sound(const struct mirror_frame *f)
{
	for (unsigned i = 0; i < f->n; i++)
		if (f->record[i].op == MIRROR_WRITE && f->record[i].crc != sum_of(f, i, f->data))
			return false;
	return true;
}

/* ---- struct mirror_peer_ops ------------------------------------------------------------------ */
static void peer_sends(void *arg, unsigned to, unsigned channel, const struct mirror_frame *f)
{
	struct mirrorpeer *p = arg;

	p->send(p, to, channel, f);
}

static void peer_writes(void *arg, uint32_t page, const struct mirror_frame *f, unsigned i)
{
	struct mirrorpeer *p = arg;
	const uint8_t *data = mirrorpeer_data(f, i, f->data);

	BUG_ON(page >= p->pages || f->shift != MIRRORPEER_SHIFT);
	for (unsigned s = 0; s < SECTORS; s++)
		if (f->record[i].map >> s & 1) {
			memcpy(p->page[page] + s * SECTOR, data, SECTOR);
			data += SECTOR;
		}
}

static void peer_drops(void *arg, uint32_t page)
{
}

static bool peer_adopts(void *arg, uint32_t page, uint64_t lu, uint64_t block, uint64_t gen,
			uint64_t map)
{
	return true;
}

static void peer_stamps(void *arg, uint32_t slot, const struct mirror_stamp *s)
{
}

static void peer_tombs(void *arg, uint32_t slot, unsigned tomb, uint64_t first, uint64_t count,
		       uint64_t gen)
{
}

static void peer_says(void *arg, int level, const char *text)
{
}

static const struct mirror_peer_ops ops = {
	.send = peer_sends,
	.write = peer_writes,
	.drop = peer_drops,
	.adopt = peer_adopts,
	.stamp = peer_stamps,
	.tomb = peer_tombs,
	.say = peer_says,
};

/* ---- its life -------------------------------------------------------------------------------- */
void mirrorpeer_begin(struct mirrorpeer *p, const struct mirror_peer_config *config,
		      void (*send)(struct mirrorpeer *p, unsigned to, unsigned channel,
				   const struct mirror_frame *f))
{
	mirrorpeer_end(p);
	p->pages = config->pages;
	p->send = send;
	p->page = calloc(p->pages, sizeof(*p->page));
	p->rules = mirror_peer_new(config, &ops, p);
	BUG_ON(!p->page || !p->rules);
	mirror_peer_incarnation(p->rules, ++p->incarnation);
}

void mirrorpeer_end(struct mirrorpeer *p)
{
	if (p->rules)
		mirror_peer_free(p->rules);
	free(p->page);
	p->rules = NULL;
	p->page = NULL;
}

void mirrorpeer_lay_over(const struct mirrorpeer *p, uint64_t lu, uint8_t *view, uint64_t blocks)
{
	const uint32_t slot = mirror_slot_of(p->rules, lu);

	for (uint32_t i = 0; i < p->pages; i++) {
		const struct mirror_page *m = &p->rules->page[i];

		for (unsigned s = 0; m->slot == slot && s < SECTORS && m->block < blocks; s++)
			if (m->map >> s & 1)
				memcpy(view + m->block * MIRRORPEER_PAGE + s * SECTOR,
				       p->page[i] + s * SECTOR, SECTOR);
	}
}
