/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The state journal: commits, and what is kept to find records by. Its form in memory is
 * journal_form.c's. See journal.h. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "events/bug.h"
#include "events/log.h"
#include "tgtd/state/journal.h"
#include "tgtd/state/journal_form.h"

/* Rewritten when so much has been written, and this many times what is live. */
#define REWRITE_AT MiB(1)
#define REWRITE_TIMES 4

static struct {
	pthread_mutex_t lock;
	struct jf_map map;
	struct jf_index index;
	_Atomic bool open, frozen;
	bool found; /* main thread */
	uint64_t commits, rewrites;
} journal = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- opening --------------------------------------------------------------------------------- */

static int make_memory(size_t size)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int err, fd = memfd_create("tgtd-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)size) || fcntl(fd, F_ADD_SEALS, seals)) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

int journal_open(int fd, size_t size)
{
	const bool made = fd < 0;
	int err;

	ASSERT(!journal.open && size >= JOURNAL_SIZE_MIN && size % KiB(4) == 0);
	if (made)
		fd = make_memory(size);
	if (fd < 0)
		return fd;
	err = jf_map(&journal.map, fd, made);
	if (!err) {
		err = jf_index_init(&journal.index);
		if (!err)
			err = jf_read(&journal.map, &journal.index);
		if (err)
			jf_unmap(&journal.map);
	}
	if (err) {
		jf_index_fini(&journal.index);
		if (made)
			close(fd);
		return err;
	}
	journal.found = journal.index.n > 0;
	journal.frozen = false;
	journal.commits = journal.rewrites = 0;
	journal.open = true;
	return fd;
}

void journal_close(void)
{
	if (!journal.open)
		return;
	journal.open = journal.found = false;
	jf_index_fini(&journal.index);
	jf_unmap(&journal.map);
}

bool journal_is_on(void)
{
	return journal.open && !journal.frozen;
}

bool journal_found(void)
{
	return journal.open && journal.found;
}

void journal_freeze(bool on)
{
	pthread_mutex_lock(&journal.lock);
	journal.frozen = on;
	pthread_mutex_unlock(&journal.lock);
}

/* ---- committing ------------------------------------------------------------------------------ */

static size_t rec_size(const struct journal_rec *r)
{
	return jf_size(strlen(r->key), r->value ? r->len : 0);
}

static bool says_nothing_new(const struct journal_rec *r)
{
	const struct jf_entry *e = jf_find(&journal.index, r->key, strlen(r->key));

	if (!r->value)
		return !e;
	return e && e->value_len == r->len && !memcmp(jf_value(e), r->value, r->len);
}

static void journal_rewrite(void)
{
	jf_rewrite(&journal.map, &journal.index);
	journal.rewrites++;
}

/* Is there room for @need bytes, now or after rewriting? Lock held. */
static bool make_room(size_t need)
{
	struct jf_map *m = &journal.map;
	const uint64_t live = journal.index.live;

	if (m->used + need > m->half || (m->used > REWRITE_AT && m->used > REWRITE_TIMES * live)) {
		if (live + need > m->half)
			return false;
		journal_rewrite();
	}
	return true;
}

/* A record on its way. What the index needs for it is made before anything is written, so that
 * nothing can fail after the commit. */
struct on_its_way {
	struct jf_entry *entry;
	bool left_out;
};

static bool entries_make(const struct journal_rec *recs, unsigned n, struct on_its_way *way)
{
	for (unsigned i = 0; i < n; i++) {
		way[i].left_out = says_nothing_new(&recs[i]);
		if (way[i].left_out || !recs[i].value)
			continue;
		way[i].entry = jf_entry_new(recs[i].key, strlen(recs[i].key));
		if (!way[i].entry)
			return false;
	}
	return true;
}

static void entries_free(struct on_its_way *way, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		free(way[i].entry);
	free(way);
}

static int commit_locked(const struct journal_rec *recs, unsigned n)
{
	struct on_its_way *way = calloc(n, sizeof(*way));
	size_t need = 0, at;

	if (!way)
		return -ENOMEM;
	if (!entries_make(recs, n, way)) {
		entries_free(way, n);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < n; i++)
		need += way[i].left_out ? 0 : rec_size(&recs[i]);
	if (!need || !make_room(need)) {
		entries_free(way, n);
		return need ? -ENOSPC : 0;
	}
	at = journal.map.used;
	for (unsigned i = 0; i < n; i++)
		if (!way[i].left_out)
			at = jf_write(&journal.map, at, &recs[i]);
	jf_commit(&journal.map, at);
	at = journal.map.used;
	for (unsigned i = 0; i < n; i++)
		if (!way[i].left_out)
			at += jf_take(&journal.map, &journal.index, at, way[i].entry);
	journal.map.used = at;
	free(way);
	journal.commits++;
	return 0;
}

int journal_commit(const struct journal_rec *recs, unsigned n)
{
	int err = 0;

	if (!n || !journal_is_on())
		return 0;
	for (unsigned i = 0; i < n; i++) {
		const size_t key = strlen(recs[i].key);

		if (!key || key > JOURNAL_KEY_MAX || recs[i].len > UINT32_MAX / 2)
			return -EINVAL;
	}
	pthread_mutex_lock(&journal.lock);
	if (journal.open && !journal.frozen)
		err = commit_locked(recs, n);
	pthread_mutex_unlock(&journal.lock);
	return err;
}

bool journal_has_room(enum journal_room who, size_t bytes)
{
	static const unsigned left[] = {
		[JOURNAL_ROOM_BULK] = 2, [JOURNAL_ROOM_CONFIG] = 4, [JOURNAL_ROOM_RESERVATION] = 16
	};
	bool has = true;

	pthread_mutex_lock(&journal.lock);
	if (journal.open && !journal.frozen)
		has = journal.index.live + bytes <= journal.map.half - journal.map.half / left[who];
	pthread_mutex_unlock(&journal.lock);
	return has;
}

/* ---- looking --------------------------------------------------------------------------------- */

void *journal_get(const char *key, size_t *len)
{
	const struct jf_entry *e;
	char *copy = NULL;

	pthread_mutex_lock(&journal.lock);
	e = journal.open ? jf_find(&journal.index, key, strlen(key)) : NULL;
	if (e)
		copy = malloc((size_t)e->value_len + 1);
	if (copy) {
		memcpy(copy, jf_value(e), e->value_len);
		copy[e->value_len] = 0;
		*len = e->value_len;
	}
	pthread_mutex_unlock(&journal.lock);
	return copy;
}

void journal_each(const char *prefix,
		  void (*fn)(const char *key, const void *value, size_t len, void *arg), void *arg)
{
	const size_t n = strlen(prefix);
	const struct jf_entry *e;

	pthread_mutex_lock(&journal.lock);
	if (journal.open)
		list_for_each(e, &journal.index.order, order)
			if (!strncmp(e->key, prefix, n))
				fn(e->key, jf_value(e), e->value_len, arg);
	pthread_mutex_unlock(&journal.lock);
}

void journal_get_info(struct journal_info *info)
{
	memset(info, 0, sizeof(*info));
	pthread_mutex_lock(&journal.lock);
	if (journal.open)
		*info = (struct journal_info){ journal.map.half,   journal.map.used,
					       journal.index.live, journal.index.n,
					       journal.commits,	   journal.rewrites };
	pthread_mutex_unlock(&journal.lock);
}
