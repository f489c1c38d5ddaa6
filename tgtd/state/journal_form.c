/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The journal's form in memory. See journal_form.h. */
#include <isa-l/crc.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "events/bug.h"
#include "events/log.h"
#include "events/secret.h"
#include "tgtd/state/journal_form.h"

#define PAGE KiB(4)
#define MAGIC 0x6c6e6a2d64746774ull /* "tgtd-jnl" */
#define VERSION 1

struct head {
	uint64_t magic;
	uint32_t version, sum; /* of all but itself, with 0 in its place */
	uint64_t size, half;
	_Alignas(CACHE_LINE) _Atomic uint64_t current;
};

struct half {
	_Atomic uint64_t end;
	_Alignas(CACHE_LINE) uint8_t recs[];
};

enum { REC_DROP = 1, REC_SECRET = 2 };
struct rec {
	uint32_t sum;	    /* of the rest of this, and the key */
	uint32_t value_sum; /* only what is live is held to it: secrets are overwritten */
	uint32_t len;	    /* of all, with padding to eight bytes */
	uint32_t value_len;
	uint32_t epoch; /* of the half, so that what is left of an earlier one is no record */
	uint16_t key_len;
	uint16_t flags;
};

/* An end of a process does not tear what its stores have done, in the order that the program
 * says: the compiler alone has to keep it. */
static void in_order(void)
{
	atomic_signal_fence(memory_order_seq_cst);
}

static uint32_t crc(uint32_t init, const void *p, size_t len)
{
	return len ? crc32_iscsi((unsigned char *)(uintptr_t)p, (int)len, ~init) : 0;
}

/* ---- words ----------------------------------------------------------------------------------- */

static uint64_t word_of(uint32_t of, uint32_t number)
{
	const uint32_t both[2] = { of, number };

	return (uint64_t)crc(0, both, sizeof(both)) << 32 | number;
}

static bool word_ok(uint64_t w, uint32_t of)
{
	return w == word_of(of, (uint32_t)w);
}

#define OF_CURRENT 0x43555252u
/* That of a half belongs to one rewrite. */
static uint32_t of_end(uint32_t current)
{
	return 0x454e4400u ^ current * 2654435761u;
}

static struct head *head_of(const struct jf_map *m)
{
	return (struct head *)(void *)m->base;
}

static struct half *half_of(const struct jf_map *m, uint32_t current)
{
	return (struct half *)(void *)(m->base + PAGE +
				       (current & 1) * (m->half + sizeof(struct half)));
}

static uint32_t head_sum(const struct head *h)
{
	const uint64_t v[] = { h->magic, h->version, h->size, h->half };

	return crc(0, v, sizeof(v));
}

/* ---- mapping --------------------------------------------------------------------------------- */

static uint64_t half_bytes(size_t size)
{
	return ALIGN_DOWN((size - PAGE) / 2, (size_t)PAGE) - sizeof(struct half);
}

static int damaged(const char *what)
{
	log_error("state journal: %s: it is not taken over", what);
	return -EBADMSG;
}

static int head_check(const struct jf_map *m)
{
	const struct head *h = head_of(m);

	if (h->magic != MAGIC)
		return damaged("this is none");
	if (h->sum != head_sum(h))
		return damaged("its head is damaged");
	if (h->version != VERSION) {
		log_error("state journal: version %u wrote it, this is version %u", h->version,
			  VERSION);
		return -ENOTSUP;
	}
	if (h->size != m->size || h->half != half_bytes(m->size))
		return damaged("it has another size than its head says");
	return 0;
}

static void head_make(struct jf_map *m)
{
	struct head *h = head_of(m);

	h->version = VERSION;
	h->size = m->size;
	h->half = m->half;
	atomic_store_explicit(&half_of(m, 0)->end, word_of(of_end(0), 0), memory_order_relaxed);
	atomic_store_explicit(&h->current, word_of(OF_CURRENT, 0), memory_order_relaxed);
	in_order();
	h->magic = MAGIC;
	h->sum = head_sum(h);
}

int jf_map(struct jf_map *m, int fd, bool made)
{
	struct stat st;
	int err;

	if (fstat(fd, &st))
		return -errno;
	if (st.st_size < (off_t)JOURNAL_SIZE_MIN || (uint64_t)st.st_size > GiB(2) ||
	    st.st_size % (off_t)PAGE)
		return damaged("its size is none that one has");
	*m = (struct jf_map){ .size = (size_t)st.st_size, .half = half_bytes((size_t)st.st_size) };
	m->base = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m->base == MAP_FAILED)
		return -errno;
	/* Passwords are in it: not in core files, nor in swap where the limits allow it. */
	if (madvise(m->base, m->size, MADV_DONTDUMP)) {
		err = -errno;
		jf_unmap(m);
		return err;
	}
	(void)mlock2(m->base, m->size, MLOCK_ONFAULT);
	if (made)
		head_make(m);
	err = head_check(m);
	if (err)
		jf_unmap(m);
	return err;
}

void jf_unmap(struct jf_map *m)
{
	munmap(m->base, m->size);
	m->base = NULL;
}

/* ---- the index ------------------------------------------------------------------------------- */

int jf_index_init(struct jf_index *x)
{
	x->live = x->n = 0;
	list_init(&x->order);
	x->bucket = malloc(JF_BUCKETS * sizeof(*x->bucket));
	if (!x->bucket)
		return -ENOMEM;
	for (unsigned i = 0; i < JF_BUCKETS; i++)
		list_init(&x->bucket[i]);
	return 0;
}

static struct list *bucket_of(const struct jf_index *x, const char *key, size_t len)
{
	return &x->bucket[crc(0, key, len) % JF_BUCKETS];
}

static void entry_drop(struct jf_index *x, struct jf_entry *e)
{
	x->live -= jf_size(e->key_len, e->value_len);
	x->n--;
	list_del(&e->order);
	list_del(&e->hash);
	free(e);
}

void jf_index_fini(struct jf_index *x)
{
	if (!x->bucket)
		return;
	while (!list_empty(&x->order))
		entry_drop(x, list_first(&x->order, struct jf_entry, order));
	free(x->bucket);
	x->bucket = NULL;
}

struct jf_entry *jf_entry_new(const char *key, size_t len)
{
	struct jf_entry *e = calloc(1, sizeof(*e) + len + 1);

	if (!e)
		return NULL;
	list_init(&e->order);
	list_init(&e->hash);
	memcpy(e->key, key, len);
	e->key_len = (uint16_t)len;
	return e;
}

struct jf_entry *jf_find(const struct jf_index *x, const char *key, size_t len)
{
	struct jf_entry *e;

	list_for_each(e, bucket_of(x, key, len), hash)
		if (e->key_len == len && !memcmp(e->key, key, len))
			return e;
	return NULL;
}

const void *jf_value(const struct jf_entry *e)
{
	return e->rec + sizeof(struct rec) + e->key_len;
}

/* ---- records --------------------------------------------------------------------------------- */

size_t jf_size(size_t key_len, size_t value_len)
{
	return ALIGN_UP(sizeof(struct rec) + key_len + value_len, (size_t)8);
}

static uint32_t rec_sum(const struct rec *r)
{
	return crc(0, &r->value_sum,
		   offsetof(struct rec, flags) + sizeof(r->flags) -
			   offsetof(struct rec, value_sum) + r->key_len);
}
_Static_assert(sizeof(struct rec) == offsetof(struct rec, flags) + sizeof(uint16_t),
	       "the key follows at once");

static void put_rec(struct rec *r, uint32_t epoch, const char *key, size_t key_len,
		    const void *value, size_t value_len, uint16_t flags)
{
	uint8_t *p = (uint8_t *)(r + 1);

	*r = (struct rec){ .len = (uint32_t)jf_size(key_len, value_len),
			   .value_len = (uint32_t)value_len,
			   .epoch = epoch,
			   .key_len = (uint16_t)key_len,
			   .flags = flags };
	memcpy(p, key, key_len);
	if (value_len)
		memcpy(p + key_len, value, value_len);
	r->value_sum = crc(0, p + key_len, value_len);
	r->sum = rec_sum(r);
}

size_t jf_write(struct jf_map *m, size_t at, const struct journal_rec *rec)
{
	struct half *h = half_of(m, m->current);
	struct rec *r = (struct rec *)(void *)(h->recs + at);
	const uint16_t flags =
		(uint16_t)((rec->value ? 0 : REC_DROP) | (rec->secret ? REC_SECRET : 0));

	put_rec(r, m->current, rec->key, strlen(rec->key), rec->value, rec->value ? rec->len : 0,
		flags);
	ASSERT(at + r->len <= m->half);
	return at + r->len;
}

void jf_commit(struct jf_map *m, size_t end)
{
	in_order();
	atomic_store_explicit(&half_of(m, m->current)->end,
			      word_of(of_end(m->current), (uint32_t)end), memory_order_release);
	in_order();
}

static void overwrite(const struct jf_entry *e)
{
	const struct rec *r = (const struct rec *)(const void *)e->rec;

	if (r->flags & REC_SECRET)
		secret_cleanse((void *)(uintptr_t)jf_value(e), e->value_len);
}

size_t jf_take(struct jf_map *m, struct jf_index *x, size_t at, struct jf_entry *e)
{
	const struct rec *r = (const struct rec *)(void *)(half_of(m, m->current)->recs + at);
	const char *key = (const char *)(r + 1);
	struct jf_entry *old = jf_find(x, key, r->key_len);

	if (old)
		overwrite(old);
	if (r->flags & REC_DROP) {
		if (old)
			entry_drop(x, old);
		free(e);
		return r->len;
	}
	if (old) { /* in its place */
		x->live -= jf_size(old->key_len, old->value_len);
		free(e);
		e = old;
	} else {
		list_add_tail(&x->order, &e->order);
		list_add_tail(bucket_of(x, key, r->key_len), &e->hash);
		x->n++;
	}
	e->rec = (const uint8_t *)r;
	e->value_len = r->value_len;
	x->live += r->len;
	return r->len;
}

/* What lies there counts no more, nor may anybody find secrets in it. Whole pages are given back:
 * those that are locked cannot be. */
static void pages_clear(uint8_t *at, size_t len)
{
	(void)munlock(at, len);
	if (madvise(at, len, MADV_REMOVE))
		secret_cleanse(at, len);
	(void)mlock2(at, len, MLOCK_ONFAULT);
}

static void half_clear(const struct jf_map *m, uint32_t current)
{
	struct half *h = half_of(m, current);

	pages_clear((uint8_t *)h, m->half + sizeof(*h));
}

/* What was written and not committed. */
static void tail_clear(const struct jf_map *m)
{
	struct half *h = half_of(m, m->current);
	uint8_t *at = h->recs + m->used, *end = h->recs + m->half,
		*page = m->base + ALIGN_UP((size_t)(at - m->base), (size_t)PAGE);

	if (page > at)
		secret_cleanse(at, (size_t)(MIN(page, end) - at));
	if (page < end)
		pages_clear(page, (size_t)(end - page));
}

void jf_rewrite(struct jf_map *m, struct jf_index *x)
{
	const uint32_t from = m->current, to = from + 1;
	struct half *h = half_of(m, to);
	struct jf_entry *e;
	size_t at = 0;

	half_clear(m, to);
	list_for_each(e, &x->order, order) {
		const struct rec *was = (const struct rec *)(const void *)e->rec;
		struct rec *r = (struct rec *)(void *)(h->recs + at);

		put_rec(r, to, e->key, e->key_len, jf_value(e), e->value_len, was->flags);
		at += r->len;
	}
	ASSERT(at == x->live && at <= m->half);
	atomic_store_explicit(&h->end, word_of(of_end(to), (uint32_t)at), memory_order_relaxed);
	in_order();
	atomic_store_explicit(&head_of(m)->current, word_of(OF_CURRENT, to), memory_order_release);
	in_order();
	at = 0;
	list_for_each(e, &x->order, order) {
		overwrite(e);
		e->rec = h->recs + at;
		at += ((const struct rec *)(const void *)e->rec)->len;
	}
	m->current = to;
	m->used = at;
	half_clear(m, from);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool rec_ok(const struct jf_map *m, const struct rec *r, size_t left)
{
	return left >= sizeof(*r) && r->len <= left && r->key_len &&
	       r->key_len <= JOURNAL_KEY_MAX && r->value_len <= r->len &&
	       r->len == jf_size(r->key_len, r->value_len) && r->epoch == m->current &&
	       r->sum == rec_sum(r) && !memchr(r + 1, 0, r->key_len);
}

/* (A secret that was replaced just before the end may be whole still: it is overwritten now.) */
static int read_records(struct jf_map *m, struct jf_index *x)
{
	struct half *h = half_of(m, m->current);

	for (size_t at = 0; at < m->used;) {
		const struct rec *r = (const struct rec *)(void *)(h->recs + at);
		struct jf_entry *e;

		if (!rec_ok(m, r, m->used - at))
			return damaged("a record is damaged");
		e = jf_entry_new((const char *)(r + 1), r->key_len);
		if (!e)
			return -ENOMEM;
		at += jf_take(m, x, at, e);
	}
	return 0;
}

int jf_read(struct jf_map *m, struct jf_index *x)
{
	const uint64_t current = atomic_load_explicit(&head_of(m)->current, memory_order_relaxed);
	const struct jf_entry *e;
	uint64_t end;
	int err;

	if (!word_ok(current, OF_CURRENT))
		return damaged("the word that says what holds is damaged");
	m->current = (uint32_t)current;
	end = atomic_load_explicit(&half_of(m, m->current)->end, memory_order_relaxed);
	if (!word_ok(end, of_end(m->current)) || (uint32_t)end > m->half)
		return damaged("the word that says where it ends is damaged");
	m->used = (uint32_t)end;
	err = read_records(m, x);
	if (err)
		return err;
	list_for_each(e, &x->order, order) {
		const struct rec *r = (const struct rec *)(const void *)e->rec;

		if (crc(0, jf_value(e), e->value_len) != r->value_sum)
			return damaged("a value is damaged");
	}
	half_clear(m, m->current + 1);
	tail_clear(m);
	return 0;
}
