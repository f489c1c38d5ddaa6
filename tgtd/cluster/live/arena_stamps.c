/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See arena_stamps.h. Each word has a check, so one that was half written says nothing. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tgtd/cluster/live/arena_stamps.h"

#define STAMP_MAGIC 0x7467747374616d70ull
#define STAMPS_LEN ((off_t)(ARENA_STAMPS * sizeof(struct stamp)))

struct stamp {
	uint64_t lu, epoch, check;
};
struct arena_stamps {
	int fd;
	pthread_mutex_t lock;
	struct stamp at[ARENA_STAMPS]; /* as in the file */
};

static uint64_t stamp_check(const struct stamp *t)
{
	return t->lu * 0x9e3779b97f4a7c15ull ^ t->epoch ^ STAMP_MAGIC;
}

static bool stamp_store(struct arena_stamps *s, unsigned i, const struct stamp *t)
{
	s->at[i] = *t;
	return pwrite(s->fd, t, sizeof(*t), (off_t)(i * sizeof(*t))) == (ssize_t)sizeof(*t);
}

/* Whether @fd is such a file, and what it says. */
static bool stamps_read(struct arena_stamps *s, int fd)
{
	struct stat st;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size != STAMPS_LEN ||
	    pread(fd, s->at, sizeof(s->at), 0) != STAMPS_LEN)
		return false;
	for (unsigned i = 0; i < ARENA_STAMPS; i++)
		if (s->at[i].check != stamp_check(&s->at[i]))
			memset(&s->at[i], 0, sizeof(s->at[i]));
	return true;
}

struct arena_stamps *arena_stamps_new(int fd, bool arenas)
{
	struct arena_stamps *s = calloc(1, sizeof(*s));
	int err = 0;

	if (!s) {
		if (fd >= 0)
			close(fd);
		errno = ENOMEM;
		return NULL;
	}
	pthread_mutex_init(&s->lock, NULL);
	s->fd = fd;
	if (fd >= 0 && arenas && stamps_read(s, fd))
		return s;
	if (fd >= 0)
		close(fd);
	memset(s->at, 0, sizeof(s->at));
	s->fd = memfd_create("tgtd-stamps", MFD_CLOEXEC);
	if (s->fd < 0 || ftruncate(s->fd, STAMPS_LEN))
		err = errno;
	if (!err)
		return s;
	arena_stamps_free(s);
	errno = err;
	return NULL;
}

void arena_stamps_free(struct arena_stamps *s)
{
	if (!s)
		return;
	if (s->fd >= 0)
		close(s->fd);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

int arena_stamps_fd(const struct arena_stamps *s)
{
	return s->fd;
}

/* Its place; or @free one, ARENA_STAMPS: none. With the lock. */
static unsigned stamp_of(const struct arena_stamps *s, uint64_t lu, bool free)
{
	unsigned i, empty = ARENA_STAMPS;

	for (i = 0; i < ARENA_STAMPS; i++) {
		if (s->at[i].epoch && s->at[i].lu == lu)
			return i;
		if (!s->at[i].epoch && empty == ARENA_STAMPS)
			empty = i;
	}
	return free ? empty : ARENA_STAMPS;
}

uint64_t arena_stamps_get(struct arena_stamps *s, uint64_t lu)
{
	uint64_t epoch = 0;
	unsigned i;

	pthread_mutex_lock(&s->lock);
	i = stamp_of(s, lu, false);
	if (i < ARENA_STAMPS)
		epoch = s->at[i].epoch;
	pthread_mutex_unlock(&s->lock);
	return epoch;
}

int arena_stamps_set(struct arena_stamps *s, uint64_t lu, uint64_t epoch)
{
	struct stamp t = { .lu = lu, .epoch = epoch };
	unsigned i;
	int err = 0;

	t.check = stamp_check(&t);
	pthread_mutex_lock(&s->lock);
	i = stamp_of(s, lu, epoch != 0);
	if (i < ARENA_STAMPS)
		err = stamp_store(s, i, &t) ? 0 : -EIO;
	else if (epoch)
		err = -ENOSPC;
	pthread_mutex_unlock(&s->lock);
	return err;
}
