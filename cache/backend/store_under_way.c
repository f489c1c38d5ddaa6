/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See store_under_way.h. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/backend/store_under_way_impl.h"
#include "events/hash.h"
#include "events/kept.h"
#include "events/log.h"
#include "events/task.h"

#define KEY "under-way"
#define MAGIC "tgtunder"
#define VERSION 2u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of who comes and goes in ours */
static struct book *ours;
static struct under_way nobody;		/* without a keeper */
static const struct book *before;	/* NULL: nothing is known */
static bool left;			/* there is what @before was asked for */
static _Atomic bool *busy;		/* [STORES] of it */
static _Atomic bool waits;		/* ... and it is not over */

static uint64_t hash_of(const char *text)
{
	return fnv1a(FNV1A_INIT, text, strlen(text)) | 1;
}

/* ---- ours ------------------------------------------------------------------------------------ */

static void *book_map(int fd, int prot)
{
	void *p = mmap(NULL, sizeof(struct book), prot, MAP_SHARED, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int book_make(void)
{
	int fd = memfd_create("under-way", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	if (!ftruncate(fd, sizeof(struct book)) &&
	    !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		ours = book_map(fd, PROT_READ | PROT_WRITE);
	if (ours)
		return fd;
	close(fd);
	return -1;
}

/* Nobody can make it shorter while we look. */
static const struct book *book_found(int fd)
{
	const struct book *b;
	struct stat st;

	if (fstat(fd, &st) || st.st_size != sizeof(*b) ||
	    (fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW)) !=
		    (F_SEAL_SHRINK | F_SEAL_GROW))
		return NULL;
	b = book_map(fd, PROT_READ);
	if (b && (memcmp(b->magic, MAGIC, sizeof(b->magic)) || b->version != VERSION)) {
		munmap((void *)(uintptr_t)b, sizeof(*b));
		return NULL;
	}
	return b;
}

bool under_way_start(struct loop *main)
{
	int fd, rc;

	if (kept_fd() < 0)
		return false;
	fd = kept_take(KEY);
	if (fd >= 0) {
		before = book_found(fd);
		kept_close(fd);
	}
	fd = book_make();
	if (fd < 0) {
		log_warn("what is under way at stores is not recorded: %m");
		return false;
	}
	memcpy(ours->magic, MAGIC, sizeof(ours->magic));
	ours->version = VERSION;
	ours->pid = getpid();
	offload_show(ours->at, THREADS, &ours->more_calls);
	counters_start(main, ours, before);
	rc = kept_put(KEY, fd);
	close(fd);
	if (rc)
		log_warn("what is under way at stores is not kept: %s", strerror(-rc));
	return !rc;
}

/* lock held. */
static struct under_way *slot_for(uint64_t id, uint64_t path)
{
	struct under_way *u, *room = NULL;

	for (u = ours->store; u < ours->store + STORES; u++) {
		if (atomic_load(&u->id) == id)
			return u;
		if (!room && !atomic_load(&u->id))
			room = u;
	}
	if (!room)
		return &ours->others;
	atomic_store(&room->path, path);
	atomic_store(&room->id, id);
	return room;
}

struct under_way *under_way_add(const char *store_id, const char *path)
{
	struct under_way *u = &nobody;

	pthread_mutex_lock(&lock);
	if (ours)
		u = slot_for(hash_of(store_id), hash_of(path));
	atomic_fetch_add(&u->users, 1);
	pthread_mutex_unlock(&lock);
	return u;
}

void under_way_del(struct under_way *u)
{
	pthread_mutex_lock(&lock);
	if (atomic_fetch_sub(&u->users, 1) == 1 && u != &nobody && u != &ours->others &&
	    !atomic_load(&u->out) && !atomic_load(&u->inherited))
		atomic_store(&u->id, 0);
	pthread_mutex_unlock(&lock);
}

void under_way_always(const char *path)
{
	struct under_way *u = under_way_add(path, path);

	/* (Once is enough; and one that is always is never free again.) */
	if (u != &nobody)
		atomic_store(&u->inherited, 1);
}

uint32_t under_way_mark(const struct under_way *u)
{
	if (!ours || u < ours->store || u >= ours->store + STORES)
		return 0;
	return (uint32_t)(u - ours->store) + 1;
}

void under_way_thread(void)
{
	const uint32_t at = ours ? atomic_fetch_add(&ours->nloops, 1) : LOOPS;

	if (at < LOOPS) /* (else we wait for it, should it be stuck) */
		atomic_store(&ours->loop[at], (uint32_t)gettid());
}

/* ---- another one's --------------------------------------------------------------------------- */

/* Store @i of @before's. The next process is to know it, too, if we die before it is over. */
static void under_way_inherit(uint32_t i)
{
	const struct under_way *was = &before->store[i];
	struct under_way *u;

	atomic_store(&busy[i], true);
	pthread_mutex_lock(&lock);
	u = slot_for(atomic_load(&was->id), atomic_load(&was->path));
	atomic_store(&u->inherited, 1);
	pthread_mutex_unlock(&lock);
}

/* The reverse: nothing is under way there any more. */
static void under_way_disown(uint32_t i)
{
	struct under_way *u;

	pthread_mutex_lock(&lock);
	u = slot_for(atomic_load(&before->store[i].id), 0);
	atomic_store(&u->inherited, 0);
	if (u != &ours->others && !atomic_load(&u->users) && !atomic_load(&u->out))
		atomic_store(&u->id, 0);
	pthread_mutex_unlock(&lock);
	atomic_store(&busy[i], false);
}

/* A thread that has not ended: what is it in? False: nobody knows what that may change. */
static bool look_at_thread(pid_t tid, void *arg)
{
	bool *now = arg;

	if (task_look(before->pid, tid) == TASK_OVER)
		return true;
	for (uint32_t i = 0; i < LOOPS; i++)
		if (atomic_load(&before->loop[i]) == (uint32_t)tid)
			return true;
	for (uint32_t i = 0; i < THREADS; i++) {
		const uint32_t mark = atomic_load(&before->at[i].mark);

		if (atomic_load(&before->at[i].tid) != (uint32_t)tid)
			continue;
		if (mark && mark <= STORES)
			now[mark - 1] = true;
		return (mark && mark <= STORES) || mark == UNDER_WAY_NOTHING;
	}
	return false;
}

/* Which stores has @before something under way at? To be freed; NULL: nobody can say, or may
 * later. */
static bool *stores_busy(void)
{
	bool *now = calloc(STORES, sizeof(*now));

	if (!now || !task_each(before->pid, look_at_thread, now)) {
		free(now);
		return NULL;
	}
	counters_look(before, now);
	for (uint32_t i = 0; i < STORES; i++) {
		const struct under_way *was = &before->store[i];

		now[i] = atomic_load(&was->id) &&
			 (now[i] || atomic_load(&was->out) || atomic_load(&was->inherited));
	}
	return now;
}

bool under_way_look(void)
{
	bool *now;

	if (!ours || !before)
		return false;
	if (atomic_load(&before->others.out) || atomic_load(&before->others.inherited) ||
	    atomic_load(&before->more_calls))
		return false;
	if (!busy)
		busy = calloc(STORES, sizeof(*busy));
	now = busy ? stores_busy() : NULL;
	if (!now)
		return false;
	for (uint32_t i = 0; i < STORES; i++)
		if (now[i])
			under_way_inherit(i);
	free(now);
	left = true;
	atomic_store(&waits, true);
	return true;
}

bool under_way_look_again(void)
{
	bool *now = left ? stores_busy() : NULL, fewer = false;

	for (uint32_t i = 0; now && i < STORES; i++) {
		if (now[i] || !atomic_load(&busy[i]))
			continue;
		under_way_disown(i);
		fewer = true;
	}
	free(now);
	return fewer;
}

void under_way_over(void)
{
	atomic_store(&waits, false);
	counters_over();
	for (uint32_t i = 0; left && i < STORES; i++)
		if (atomic_load(&busy[i]))
			under_way_disown(i);
	left = false;
}

static bool under_way_at(const char *text, bool by_path)
{
	const uint64_t want = hash_of(text);

	for (uint32_t i = 0; atomic_load(&waits) && i < STORES; i++)
		if (atomic_load(&busy[i]) && atomic_load(by_path ? &before->store[i].path :
						     &before->store[i].id) == want)
			return true;
	return false;
}

bool under_way_at_id(const char *store_id)
{
	return under_way_at(store_id, false);
}

bool under_way_at_path(const char *path)
{
	return under_way_at(path, true);
}
