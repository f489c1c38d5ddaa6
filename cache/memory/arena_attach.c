/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An arena of the file that an earlier process has left. Its superblock has been proved by then
 * (arena_found()), and a seal keeps the file as long as it is, so nothing that is looked at lies
 * beyond its end.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "cache/memory/arena_impl.h"
#include "events/log.h"

/* What is to have memory, and be locked: most of it has, so this is about the page tables. */
static int find_present(struct arena_impl *im, const struct arena_super *h,
			const struct arena_extent *there, uint32_t n, bool lazy)
{
	const struct arena *a = &im->pub;
	const uint64_t last = there[n - 1].first + there[n - 1].n;
	struct arena_prepare *p = &im->prepare;

	im->range = calloc(n + 2, sizeof(*im->range));
	im->fill = p->fill = calloc(n + 2, sizeof(*im->fill));
	if (!im->range || !im->fill)
		return -ENOMEM;
	p->range = im->range;
	p->range[0] = arena_pages(a, 0, h->header_off + last * sizeof(struct block));
	p->range[1] = arena_pages(a, h->extra_off, h->extra_off + last * h->extra);
	p->n = 2;
	for (uint32_t k = 0; k < n; k++) {
		const uint64_t from = h->data_off + ((uint64_t)there[k].first << h->block_shift);
		const uint64_t to = from + ((uint64_t)there[k].n << h->block_shift);
		const struct arena_range r = arena_pages(a, k ? from : h->zero_off, to);

		if (lazy) /* nor is it locked, which would give it memory */
			mem_locks_want(p->locks, r.at, r.len);
		else
			p->range[p->n++] = r;
	}
	for (unsigned i = 0; i < p->n; i++) {
		p->len += p->range[i].len;
		p->fill[i].at = p->range[i].at;
		p->fill[i].len = p->range[i].len;
	}
	p->nfill = p->n;
	arena_touched_later(im, h, (uint32_t)last);
	return 0;
}

/* The process has died while some were about to come, or to go. */
static void give_back_others(struct arena_impl *im, const struct arena_extent *there, uint32_t n)
{
	uint32_t at = 0;

	for (uint32_t k = 0; k <= n; k++) {
		const uint32_t next = k < n ? there[k].first : im->pub.room;

		if (next > at)
			arena_give_back(im, at, next - at);
		at = k < n ? next + there[k].n : next;
	}
}

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#define LATER_MS 2000
#define TABLES_STEP MiB(64) /* at a time: others of the process may want to map something, too */

/* Page tables for what has memory already, ahead of its use: nothing is written to. */
static void find_pages(const struct arena_prepare *p)
{
	size_t n;

	for (unsigned i = 0; i < p->n; i++)
		for (size_t at = 0; at < p->range[i].len; at += n) {
			n = MIN(p->range[i].len - at, (size_t)TABLES_STEP);
			if (madvise(p->range[i].at + at, n, MADV_POPULATE_READ))
				return; /* (later, then, one by one) */
		}
}

void arena_begin_use(struct arena *a, const struct arena_conf *conf,
		     const struct arena_extent *there, uint32_t nthere)
{
	struct arena_impl *im = container_of(a, struct arena_impl, pub);

	give_back_others(im, there, nthere);
	/* Whoever joins pages keeps others from mapping anything meanwhile, for long where all
	 * processors are busy: not right after a restart. */
	im->prepare.later_ms = conf->lazy ? 0 : LATER_MS;
	arena_prepare_rest(im, conf);
}

struct arena *arena_attach(const struct arena_conf *conf, int fd, const struct arena_found *f,
			   const struct arena_extent *there, uint32_t nthere)
{
	const struct arena_super *h = (const void *)f->page;
	struct arena_impl *im;
	int err;

	BUG_ON(conf->block_size != 1u << h->block_shift || !nthere || !conf->piece ||
	       (uint64_t)there[nthere - 1].first + there[nthere - 1].n > h->nblocks);
	im = arena_begin(conf);
	if (!im)
		return NULL;
	im->found = im->sealed = true;
	im->fd = fd;
	im->pub.room = h->nblocks;
	im->pub.map_len = h->length;
	err = arena_map(im, false);
	if (!err) {
		arena_place(im, conf, h);
		err = arena_count_pieces(&im->pub, conf->piece, there, nthere);
	}
	if (!err)
		err = find_present(im, h, there, nthere, conf->lazy);
	if (!err && conf->ahead)
		find_pages(&im->prepare);
	else if (!err)
		err = mem_populate((uint8_t *)im->range[0].at, 0, im->range[0].len);
	if (!err)
		err = arena_publish(im);
	if (err) {
		log_error("%s: %zu MiB that an earlier process left cannot be mapped: %s", im->name,
			  im->pub.map_len >> 20, strerror(-err));
		im->fd = -1;
		return arena_refuse(im, -err);
	}
	if (!conf->ahead)
		arena_begin_use(&im->pub, conf, there, nthere);
	return &im->pub;
}
