/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The journal's form in memory, and the index that is made of it. Private to tgtd/state.
 *
 *     page 0     head: magic, version, size, half, their checksum; and the word `current`
 *     half 0, 1  the word `end`, then records one after the other
 *
 * A word is 64 bits: a number, and above it the checksum of the number and of what it is the word
 * of. It is stored as one. `current` counts rewrites; its lowest bit says which half holds. The
 * number of `end` is how many bytes of the half's records are committed.
 */
#ifndef TGTD_STATE_JOURNAL_FORM_H
#define TGTD_STATE_JOURNAL_FORM_H

#include <stdatomic.h>
#include "events/list.h"
#include "tgtd/state/journal.h"

struct jf_map {
	uint8_t *base;
	size_t size;
	uint64_t half; /* bytes of records in each */
	uint32_t current;
	uint64_t used; /* committed, of the half that holds */
};

struct jf_entry {
	struct list order, hash;
	const uint8_t *rec; /* in the half that holds */
	uint32_t value_len;
	uint16_t key_len;
	char key[];
};

#define JF_BUCKETS 16384u
struct jf_index {
	struct list order, *bucket;
	uint64_t live, n;
};

/* Maps @fd, @made: zeroed, and then it gets its head. 0 or -errno; -EBADMSG, -ENOTSUP. */
int jf_map(struct jf_map *m, int fd, bool made) must_check;
void jf_unmap(struct jf_map *m);
int jf_index_init(struct jf_index *x) must_check;
void jf_index_fini(struct jf_index *x); /* also of one that was never made */
/* All committed records into @x. 0, -EBADMSG, -ENOMEM. */
int jf_read(struct jf_map *m, struct jf_index *x) must_check;

size_t jf_size(size_t key_len, size_t value_len);
struct jf_entry *jf_entry_new(const char *key, size_t len);
struct jf_entry *jf_find(const struct jf_index *x, const char *key, size_t len);
const void *jf_value(const struct jf_entry *e);

/* Writes @rec behind @at; the new end. Nobody sees it before jf_commit(). */
size_t jf_write(struct jf_map *m, size_t at, const struct journal_rec *rec);
void jf_commit(struct jf_map *m, size_t end);
/* The committed record at @at goes into @x, by way of @e (which is @x's then, or freed); a secret
 * that it replaces is overwritten. Its bytes. */
size_t jf_take(struct jf_map *m, struct jf_index *x, size_t at, struct jf_entry *e);
/* What is live goes to the other half, which holds from then on. */
void jf_rewrite(struct jf_map *m, struct jf_index *x);

#endif
