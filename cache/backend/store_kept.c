/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See store_kept.h. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/backend/store_kept.h"
#include "events/hash.h"
#include "events/kept.h"
#include "events/list.h"
#include "events/log.h"

static const char *const prefixes[KEPT_KINDS] = {
	[KEPT_LOCK] = "store/", [KEPT_OPEN] = "open/", [KEPT_PROBE] = "probe/"
};

struct item {
	struct list link;
	char key[KEPT_KEY_MAX + 1];
	int left;	/* what the process before has left; -1: nothing, or somebody uses it */
	int lent;	/* a duplicate of that: his; -1: nobody has one */
	int to_put;	/* the keeper is to get it; -1: nothing */
	unsigned users; /* 0: it goes, unless it was left and may be asked for */
	bool has;	/* the keeper does */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list items = LIST_INIT(items);
static bool started; /* there is a keeper */
static bool waits;   /* what was left may be asked for */

/* ---- names ----------------------------------------------------------------------------------- */

void store_kept_name(char name[STORE_KEPT_NAME], const char *path, const char *who, bool sync)
{
	snprintf(name, STORE_KEPT_NAME, "%s%s %.400s", sync ? "sync " : "", who ? who : "", path);
}

/* Names are longer than keys: 128 bits of them. */
static void key_of(char key[KEPT_KEY_MAX + 1], enum store_kept kind, const char *name)
{
	const size_t len = strlen(name);
	const uint64_t a = fnv1a(FNV1A_INIT, name, len), b = fnv1a(~a, name, len);

	snprintf(key, KEPT_KEY_MAX + 1, "%s%016llx%016llx", prefixes[kind], (unsigned long long)a,
		 (unsigned long long)b);
}

static struct item *kept_item_find(const char *key)
{
	struct item *it;

	list_for_each(it, &items, link)
		if (!strcmp(it->key, key))
			return it;
	return NULL;
}

static struct item *kept_item_new(const char *key)
{
	struct item *it = calloc(1, sizeof(*it));

	if (!it)
		return NULL;
	snprintf(it->key, sizeof(it->key), "%s", key);
	it->left = it->lent = it->to_put = -1;
	list_init(&it->link);
	list_add_tail(&items, &it->link);
	return it;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		kept_close(*fd);
	*fd = -1;
}

static void kept_item_free(struct item *it)
{
	close_fd(&it->left);
	close_fd(&it->to_put);
	list_del(&it->link);
	free(it);
}

/* ---- the main thread ------------------------------------------------------------------------- */

/* That process may have gone wrong. Whether it is the file that is wanted its user sees. */
static void take(const char *key)
{
	struct item *it = kept_item_new(key);

	if (!it)
		return;
	it->left = kept_take(key);
	it->has = true;
}

void store_kept_start(void)
{
	if (kept_fd() < 0)
		return;
	pthread_mutex_lock(&lock);
	started = waits = true;
	for (unsigned kind = 0; kind < KEPT_KINDS; kind++) {
		unsigned at = 0;

		for (const char *key; (key = kept_next(prefixes[kind], &at));)
			take(key);
	}
	pthread_mutex_unlock(&lock);
}

static bool goes(const struct item *it)
{
	return !it->users && (it->left < 0 || !waits);
}

/* (The keeper answers at once. Who opens a store meanwhile waits for that.) */
void store_kept_tell(void)
{
	struct item *it, *next;

	pthread_mutex_lock(&lock);
	list_for_each_safe(it, next, &items, link) {
		int err = 0;

		if (it->to_put >= 0 && it->users) {
			err = kept_put(it->key, it->to_put);
			it->has = !err;
		}
		close_fd(&it->to_put);
		if (err)
			log_error("%s: the keeper does not keep it: %s; the next worker has to "
				  "open that store by its path",
				  it->key, strerror(-err));
		if (!goes(it))
			continue;
		if (it->has && (err = kept_drop(it->key)))
			log_error("%s: the keeper does not drop it: %s", it->key, strerror(-err));
		kept_item_free(it);
	}
	pthread_mutex_unlock(&lock);
}

void store_kept_rest(void)
{
	pthread_mutex_lock(&lock);
	waits = false;
	pthread_mutex_unlock(&lock);
	store_kept_tell();
}

/* ---- any thread ------------------------------------------------------------------------------ */

int store_kept_find(enum store_kept kind, const char *name)
{
	char key[KEPT_KEY_MAX + 1];
	const struct item *it;
	struct stat st;
	int fd = -1;

	key_of(key, kind, name);
	pthread_mutex_lock(&lock);
	it = kept_item_find(key);
	if (it && (it->left >= 0 || it->lent >= 0))
		fd = fcntl(it->left >= 0 ? it->left : it->lent, F_DUPFD_CLOEXEC, 0);
	pthread_mutex_unlock(&lock);
	/* (It may hang, as the store may.) */
	if (fd >= 0 && (fstat(fd, &st) || (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)) ||
			fcntl(fd, F_GETFL) & O_PATH)) {
		kept_close(fd);
		return -1;
	}
	return fd;
}

void store_kept_use(enum store_kept kind, const char *name, int fd, bool found)
{
	char key[KEPT_KEY_MAX + 1];
	struct item *it;
	int spare = -1;

	key_of(key, kind, name);
	pthread_mutex_lock(&lock);
	it = started ? kept_item_find(key) : NULL;
	if (started && !it)
		it = kept_item_new(key);
	if (it) {
		it->users++;
		if (!found || !it->has) {
			close_fd(&it->to_put);
			it->to_put = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		}
		/* One is enough: a unit would cost twice as many after a restart. */
		if (found && it->left >= 0) {
			spare = it->left;
			it->left = -1;
			it->lent = fd;
		}
	}
	pthread_mutex_unlock(&lock);
	close_fd(&spare); /* (which may hang, as the store may) */
}

void store_kept_drop(enum store_kept kind, const char *name)
{
	char key[KEPT_KEY_MAX + 1];
	struct item *it;

	key_of(key, kind, name);
	pthread_mutex_lock(&lock);
	it = kept_item_find(key);
	if (it) /* he may be who has it */
		it->lent = -1;
	if (it && it->users && !--it->users)
		close_fd(&it->left); /* whoever opens it next is another one */
	pthread_mutex_unlock(&lock);
}

bool store_kept_has(enum store_kept kind, const char *name)
{
	char key[KEPT_KEY_MAX + 1];
	const struct item *it;
	bool has;

	key_of(key, kind, name);
	pthread_mutex_lock(&lock);
	it = kept_item_find(key);
	has = it && it->has && it->users;
	pthread_mutex_unlock(&lock);
	return has;
}
