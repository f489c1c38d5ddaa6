/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The superblock of an arena's file: see layout.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <isa-l/crc.h>
#include "cache/memory/arena_impl.h"

#define ZERO_MIN KiB(64)

struct arena_super arena_lay_out(const struct arena_conf *conf, uint32_t room)
{
	struct arena_super h = { .magic = ARENA_MAGIC,
				 .layout = ARENA_LAYOUT,
				 .node = (uint32_t)conf->node,
				 .block_shift = (uint32_t)__builtin_ctz(conf->block_size),
				 .nblocks = room,
				 .header_off = ARENA_SUPER_SIZE,
				 .extra = conf->extra,
				 .zero_len = MAX(ZERO_MIN, (uint64_t)conf->block_size) };
	uint64_t data_len = (uint64_t)room << h.block_shift;
	/* Data begins on a huge page's boundary; a small sparse arena need not care. */
	uint64_t align = conf->sparse && data_len < HUGE_PAGE ? 4096 : HUGE_PAGE;

	h.extra_off = h.header_off + (uint64_t)room * sizeof(struct block);
	h.zero_off = ALIGN_UP(h.extra_off + (uint64_t)room * conf->extra, 4096ull);
	h.data_off = ALIGN_UP(h.zero_off + h.zero_len, align);
	h.tail_off = ALIGN_UP(h.data_off + data_len, align);
	h.tail_len = ALIGN_UP((uint64_t)conf->tail, align);
	h.length = h.tail_off + h.tail_len;
	if (conf->says_len)
		memcpy(h.owner, conf->says, conf->says_len);
	return h;
}

/* @page is a whole page; its own field counts as 0. */
static uint32_t super_sum(const void *page)
{
	const struct arena_super *h = page;
	uint8_t copy[ARENA_SUPER_SIZE];

	memcpy(copy, page, sizeof(copy));
	((struct arena_super *)(void *)copy)->checksum = 0;
	memset(((struct arena_super *)(void *)copy)->live, 0, sizeof(h->live));
	return crc32_iscsi(copy, (int)sizeof(copy), ~0u);
}

void arena_write_super(struct arena *a, const struct arena_super *h)
{
	struct arena_super *to = a->map;

	*to = *h;
	to->checksum = super_sum(to);
}

const struct arena_super *arena_super(const struct arena *a)
{
	return a->map;
}

_Atomic uint32_t *arena_live(const struct arena *a)
{
	return ((struct arena_super *)a->map)->live;
}

const char *arena_super_wrong(const void *page, uint64_t length)
{
	const struct arena_super *h = page;
	uint64_t n, data;

	if (length < ARENA_SUPER_SIZE || memcmp(h->magic, ARENA_MAGIC, sizeof(h->magic)))
		return "not an arena";
	if (h->layout != ARENA_LAYOUT)
		return "an arena of another version";
	if (h->checksum != super_sum(page))
		return "wrong checksum";
	n = h->nblocks;
	if (!n || n == BLOCK_NONE || h->block_shift < 12 || h->block_shift > 20 || h->extra % 8 ||
	    h->extra > KiB(4) || h->zero_len > length || h->length != length || length >> 56 ||
	    h->header_off != ARENA_SUPER_SIZE)
		return "parts that overlap or are not there";
	data = n << h->block_shift;
	if (h->extra_off != h->header_off + n * sizeof(struct block) || h->extra_off > length ||
	    h->zero_off > length || h->zero_off < h->extra_off + n * h->extra ||
	    h->zero_off % 4096 || h->data_off % 4096 || h->data_off < h->zero_off + h->zero_len ||
	    h->data_off > length || h->tail_off < h->data_off + data || h->tail_off > length ||
	    h->tail_len != length - h->tail_off)
		return "parts that overlap or are not there";
	return NULL;
}

uint32_t arena_layout(int fd)
{
	struct arena_super h;

	return pread(fd, &h, sizeof(h), 0) == sizeof(h) &&
			       !memcmp(h.magic, ARENA_MAGIC, sizeof(h.magic)) ?
		       h.layout :
		       0;
}

bool arena_other_layout(int fd)
{
	const uint32_t layout = arena_layout(fd);

	return layout && layout != ARENA_LAYOUT;
}

int arena_found(int fd, struct arena_found *f, char *why, size_t len)
{
	const char *wrong;
	struct stat st;
	int seals;

	if (fstat(fd, &st)) {
		snprintf(why, len, "%s", strerror(errno));
		return -EBADMSG;
	}
	if (!S_ISREG(st.st_mode) || st.st_size < ARENA_SUPER_SIZE ||
	    pread(fd, f->page, sizeof(f->page), 0) != sizeof(f->page)) {
		snprintf(why, len, "not an arena: %lld bytes", (long long)st.st_size);
		return -EBADMSG;
	}
	wrong = arena_super_wrong(f->page, (uint64_t)st.st_size);
	if (wrong) {
		snprintf(why, len, "%s", wrong);
		return -EBADMSG;
	}
	/* Else whoever has it could make it shorter, and the first look beyond would be the end. */
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_SHRINK)) {
		snprintf(why, len, "its length is not sealed");
		return -EBADMSG;
	}
	if (seals & F_SEAL_WRITE) {
		snprintf(why, len, "it is sealed against writing");
		return -EBADMSG;
	}
	return 0;
}
