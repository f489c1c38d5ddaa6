/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An arena inside, for the files that make one: new (arena.c), or of the file that an earlier
 * process has left (arena_attach.c).
 */
#ifndef CACHE_MEMORY_ARENA_IMPL_H
#define CACHE_MEMORY_ARENA_IMPL_H

#include "cache/memory/arena.h"
#include "cache/memory/arena_prepare.h"
#include "cache/memory/layout.h"

struct arena_impl {
	struct arena pub;
	int fd;
	bool huge;
	bool found;  /* headers are an earlier process's */
	bool sealed; /* the file keeps its length, whoever has it */
	char *file;  /* to unlink */
	char name[64];
	struct arena_prepare prepare;
	struct arena_range *range; /* prepare.n of them */
	struct arena_fill *fill;   /* prepare.nfill */
	unsigned data_fill;	   /* the first one of data; the next ones are the other parts' */
	uint32_t parts;		   /* that data gets its memory in; 0: that is not known by part */
	struct list link;	   /* arenas */
};

/* ---- arena_super.c --------------------------------------------------------------------------- */
/* Where everything lies in the file, with room for so many blocks. */
struct arena_super arena_lay_out(const struct arena_conf *conf, uint32_t room);
/* The file's first page. */
void arena_write_super(struct arena *a, const struct arena_super *h);

/* ---- arena.c, for arena_attach.c ------------------------------------------------------------- */
/* All that needs no memory yet. NULL: no memory. */
struct arena_impl *arena_begin(const struct arena_conf *conf);
/* Maps im->fd, of pub.map_len bytes with pub.room blocks. 0 or -errno. */
int arena_map(struct arena_impl *im, bool sparse);
/* It is mapped as @h says: which parts of it are for what, and on which node. */
void arena_place(struct arena_impl *im, const struct arena_conf *conf, const struct arena_super *h);
/* The pages of bytes [from, to) of the file. */
struct arena_range arena_pages(const struct arena *a, uint64_t from, uint64_t to);
/* What is locked as it is touched: the memos of the first @blocks blocks, and the tail. */
void arena_touched_later(struct arena_impl *im, const struct arena_super *h, uint32_t blocks);
/* How many blocks of each piece are there: those of @there, @n extents. 0 or -ENOMEM. */
int arena_count_pieces(struct arena *a, uint32_t piece, const struct arena_extent *there,
		       uint32_t n);
/* It is there for others from here on. 0, or -ENOSPC after a line in the log. */
int arena_publish(struct arena_impl *im);
/* Then: its memory, in the background. */
void arena_prepare_rest(struct arena_impl *im, const struct arena_conf *conf);
/* Not published: it goes. NULL, with errno. */
struct arena *arena_refuse(struct arena_impl *im, int err);
/* The whole pages of what belongs to blocks [from, from + n) alone are the system's again. */
void arena_give_back(struct arena_impl *im, uint32_t from, uint32_t n);

#endif
