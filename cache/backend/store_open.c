/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who of this process has which store open: two views of one store agree only through one cache, or
 * without any. A file's lock goes by its inode, which two nodes of one device do not share, and
 * whoever shares a store would lock himself out: within the process this decides, by what the store
 * is; the lock keeps other processes out.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "cache/backend/store_id.h"
#include "cache/backend/store_kept.h"
#include "events/log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t locked = PTHREAD_COND_INITIALIZER;
static struct list openers = LIST_INIT(openers);

static bool below(const struct store_opener *upper, const char *id)
{
	for (unsigned i = 0; i < upper->nbelow; i++)
		if (!strcmp(upper->below[i], id))
			return true;
	return false;
}

static const char *name_of(const struct store_opener *o)
{
	return atomic_load(&o->blk->left) || !*o->who ? "another logical unit" : o->who;
}

static bool other_size(const struct store_opener *a, const struct store_opener *b)
{
	uint64_t x = 0, y = 0;

	return a->device && b->device && a->dev != b->dev &&
	       (ioctl(a->fd, BLKGETSIZE64, &x) < 0 || ioctl(b->fd, BLKGETSIZE64, &y) < 0 ||
		x != y);
}

/* NULL: @o may be opened beside @is. */
static const char *store_conflict(const struct store_opener *is, const struct store_opener *o)
{
	const bool writes = !is->readonly || !o->readonly;
	const bool both = !is->readonly && !o->readonly;

	if (strcmp(is->blk->store_id, o->blk->store_id)) {
		if (writes &&
		    (below(is, o->blk->store_id) || below(o, is->blk->store_id)))
			return "has a store open that lies on it, or that it lies on";
		if (writes && *is->base && !strcmp(is->base, o->base) && is->from < o->to &&
		    o->from < is->to)
			return "has another loop device of the same file open";
		return NULL;
	}
	if (other_size(is, o))
		return "has one of the same world-wide name and another size";
	if (writes && is->uncached != o->uncached)
		return is->uncached ? "has it open without the cache" :
				      "has it open, with the cache";
	if (both && (is->uncached || !o->shared))
		return "has it open for writing";
	return NULL;
}

static bool conflicts(const struct store_opener *o, char *why, size_t len)
{
	const struct store_opener *is, *bad = NULL;
	const char *what = NULL;

	list_for_each(is, &openers, link) {
		const char *w = store_conflict(is, o);

		/* rather one who is there still */
		if (w && (!bad || atomic_load(&bad->blk->left))) {
			bad = is;
			what = w;
		}
		if (!w && !strcmp(is->path, o->path) && !atomic_load(&is->blk->left) &&
		    strcmp(is->blk->store_id, o->blk->store_id))
			log_warn("%s: is not the store any more that %s has open by this name",
				 o->path, name_of(is));
	}
	if (bad)
		snprintf(why, len, "in use: %s %s", name_of(bad), what);
	return bad;
}

/* Another writer of @o's store that has the lock, or waits for the answer. */
static const struct store_opener *other_writer(const struct store_opener *o)
{
	const struct store_opener *is;

	list_for_each(is, &openers, link)
		if (is != o && (is->lock || is->locking) &&
		    !strcmp(is->blk->store_id, o->blk->store_id))
			return is;
	return NULL;
}

/* The keeper's duplicate, which goes later, has it no more than @fd, which is closed. */
static void unlock_file(const struct store_opener *o, int fd)
{
	struct flock none = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	(void)fcntl(fd, F_OFD_SETLK, &none);
	store_kept_drop(KEPT_LOCK, o->blk->store_id);
	close(fd);
}

static bool is_same_file(int a, int b)
{
	struct stat x, y;

	return !fstat(a, &x) && !fstat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Of @o's store, by the descriptor that had the lock when the process before died, and has it
 * still: nobody else could get it meanwhile. Else by its own. That descriptor, the caller's; or
 * -errno. May hang, as the store may. */
static int lock_one(const struct store_opener *o)
{
	struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = store_kept_find(KEPT_LOCK, o->blk->store_id);

	if (fd >= 0 && is_same_file(fd, o->fd) && !fcntl(fd, F_OFD_SETLK, &all)) {
		store_kept_use(KEPT_LOCK, o->blk->store_id, fd, true);
		return fd;
	}
	if (fd >= 0)
		close(fd);
	if (fcntl(o->fd, F_OFD_SETLK, &all) < 0)
		return -errno;
	fd = fcntl(o->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	store_kept_use(KEPT_LOCK, o->blk->store_id, fd, false);
	return fd;
}

/* With the lock that writers have together; @o is in the list. 0 or -errno. The file's server may
 * be dead: only who wants the same store waits for it. */
static int lock_file(struct store_opener *o)
{
	const struct store_opener *is;
	int fd;

	if (o->fd < 0)
		return -EOPNOTSUPP; /* no file: another machine's */
	while ((is = other_writer(o))) {
		if (is->lock) {
			o->lock = is->lock;
			o->lock->users++;
			return 0;
		}
		pthread_cond_wait(&locked, &lock);
	}
	o->locking = true;
	pthread_mutex_unlock(&lock);
	fd = lock_one(o);
	pthread_mutex_lock(&lock);
	o->locking = false;
	pthread_cond_broadcast(&locked);
	if (fd < 0)
		return fd;
	o->lock = calloc(1, sizeof(*o->lock));
	if (!o->lock) {
		unlock_file(o, fd);
		return -ENOMEM;
	}
	o->lock->users = 1;
	o->lock->fd = fd;
	return 0;
}

int store_opener_add(struct store_opener *o, int *unlocked, char *why, size_t len)
{
	int err = 0;

	list_init(&o->link);
	*unlocked = 0;
	pthread_mutex_lock(&lock);
	if (conflicts(o, why, len))
		err = -EBUSY;
	else
		list_add_tail(&openers, &o->link);
	if (!err && !o->readonly)
		err = lock_file(o);
	if (err == -EAGAIN || err == -EACCES) {
		snprintf(why, len, "in use: another daemon or program has it open for writing");
		err = -EBUSY;
	} else if (err == -EINVAL || err == -ENOLCK || err == -EOPNOTSUPP) {
		*unlocked = err;
		err = 0;
	} else if (err && err != -EBUSY) {
		snprintf(why, len, "%s", strerror(-err));
	}
	if (err && list_linked(&o->link))
		list_del(&o->link);
	pthread_mutex_unlock(&lock);
	return err;
}

void store_opener_del(struct store_opener *o)
{
	struct store_lock *last = NULL;

	pthread_mutex_lock(&lock);
	if (o->lock && --o->lock->users == 0)
		last = o->lock;
	o->lock = NULL;
	if (last) {
		/* The file's server may be dead, here too. */
		o->locking = true;
		pthread_mutex_unlock(&lock);
		unlock_file(o, last->fd);
		free(last);
		pthread_mutex_lock(&lock);
		o->locking = false;
		pthread_cond_broadcast(&locked);
	}
	if (o->link.next && list_linked(&o->link))
		list_del(&o->link);
	pthread_mutex_unlock(&lock);
}

bool store_openers_let_go(void)
{
	struct flock none = { .l_type = F_UNLCK, .l_whence = SEEK_SET };
	const struct store_opener *o;
	bool all = true;

	pthread_mutex_lock(&lock);
	list_for_each(o, &openers, link)
		all &= o->fd >= 0 && !o->locking;
	if (all)
		list_for_each(o, &openers, link)
			if (o->lock && !store_kept_has(KEPT_LOCK, o->blk->store_id))
				(void)fcntl(o->lock->fd, F_OFD_SETLK, &none);
	pthread_mutex_unlock(&lock);
	return all;
}
