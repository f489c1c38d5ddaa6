/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See dirty_record.h. */
#include "cache/blk/dirty_record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>
#include "events/bug.h"
#include "events/hash.h"
#include "events/list.h"
#include "events/log.h"
#include "events/metrics.h"

#define PREFIX "dirty-"
#define NAME_LEN (sizeof(PREFIX) - 1 + 3 * 17 - 1)
#define FILE_MAX 16384
#define PATH_LEN 4096
#define ID_LEN 192

/* What a record says. */
struct told {
	char store[ID_LEN], mark[DIRTY_MARK_MAX], path[PATH_LEN], boot[64];
	char state[16];
	long pid;
	unsigned long long start, when, arena;
};

struct dirty_own {
	struct dirty_record r;
	struct list link; /* registry */
	unsigned refs;	  /* registry */
	bool looked;	  /* registry: what earlier processes have left is known */
	/* @lock: one at a time changes files. */
	pthread_mutex_t lock;
	struct told us;
	char name[NAME_LEN + 1];
	bool there;		     /* our own file may be */
	bool kept;		     /* what an earlier process had is in our cache */
	char (*found)[NAME_LEN + 1]; /* of earlier processes */
	unsigned nfound;
};

/* Guards the list and the counts of references. Nobody waits for a disk with it: a store that does
 * not answer would keep all others from being opened and closed. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t registry_looked = PTHREAD_COND_INITIALIZER;
static struct list registry = LIST_INIT(registry);
static char *dir;
static bool accept_loss;
static const char *none = "not asked for";
/* Of this process's cache: set before any store is opened, and after all are closed. */
static struct {
	unsigned long long cookie;
	bool (*holds)(void *arg, const char *store_id);
	void *arg;
} ours;

/* Kept for another version. */
#define APART_COOKIES 4u
static struct {
	uint64_t cookie[APART_COOKIES];
	unsigned n;
} apart;

/* One line of text, whatever was in it; cut where it is too long. */
static void put_line(char *to, size_t size, const char *from)
{
	size_t n = 0;

	for (; *from && n + 1 < size; from++)
		to[n++] = (unsigned char)*from < 0x20 || *from == 0x7f ? '?' : *from;
	to[n] = 0;
}

/* The first line of a small file, without its newline; empty when there is none. */
static void first_line(const char *path, char *text, size_t size)
{
	FILE *f = fopen(path, "re");

	text[0] = 0;
	if (!f)
		return;
	if (!fgets(text, (int)size, f))
		text[0] = 0;
	text[strcspn(text, "\n")] = 0;
	fclose(f);
}

/* When that process began, in ticks since boot: field 22 of /proc/PID/stat. 0: there is none, or it
 * has ended and only waits for its parent to look (where nobody reaps, for good). */
static unsigned long long started(long pid)
{
	unsigned long long start = 0;
	char path[64], text[1024];
	const char *p;

	snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
	first_line(path, text, sizeof(text));
	p = strrchr(text, ')'); /* the name may have spaces and parentheses */
	if (p && p[1] && (p[2] == 'Z' || p[2] == 'X'))
		return 0;
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	if (p)
		start = strtoull(p, NULL, 10);
	return start;
}

/* ---- what names a store ---------------------------------------------------------------------- */

static bool disk_mark(dev_t dev, const char *kind, const char *file, char mark[DIRTY_MARK_MAX])
{
	char path[128], text[128];

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", major(dev), minor(dev), file);
	first_line(path, text, sizeof(text));
	if (!text[0])
		return false;
	char whole[DIRTY_MARK_MAX];
	snprintf(whole, sizeof(whole), "%s %s", kind, text);
	put_line(mark, DIRTY_MARK_MAX, whole);
	return true;
}

void dirty_mark(int fd, char mark[DIRTY_MARK_MAX])
{
	struct statx stx;
	struct stat st;

	mark[0] = 0;
	if (fstat(fd, &st) < 0)
		return;
	if (S_ISBLK(st.st_mode)) {
		/* A partition has none of these: it is known by its path. */
		if (!disk_mark(st.st_rdev, "dm", "dm/uuid", mark) &&
		    !disk_mark(st.st_rdev, "loop", "loop/backing_file", mark) &&
		    !disk_mark(st.st_rdev, "wwid", "wwid", mark))
			(void)disk_mark(st.st_rdev, "wwid", "device/wwid", mark);
		return;
	}
	if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &stx) == 0 &&
	    (stx.stx_mask & STATX_BTIME))
		snprintf(mark, DIRTY_MARK_MAX, "born %llu %lld.%09u",
			 (unsigned long long)stx.stx_ino, (long long)stx.stx_btime.tv_sec,
			 stx.stx_btime.tv_nsec);
}

static void file_name(const struct told *t, char name[NAME_LEN + 1])
{
	snprintf(name, NAME_LEN + 1, PREFIX "%016llx-%016llx-%016llx",
		 (unsigned long long)fnv1a(FNV1A_INIT, t->store, strlen(t->store)),
		 (unsigned long long)fnv1a(FNV1A_INIT, t->mark, strlen(t->mark)),
		 (unsigned long long)fnv1a(FNV1A_INIT, t->path, strlen(t->path)));
}

/* May the file of that name be of @us? By any of the three; an empty mark says nothing. */
static bool name_fits(const char *name, const struct dirty_own *o)
{
	const size_t at = sizeof(PREFIX) - 1;

	if (strlen(name) != NAME_LEN || strncmp(name, PREFIX, at) != 0)
		return false;
	return strncmp(name + at, o->name + at, 16) == 0 ||
	       (o->us.mark[0] && strncmp(name + at + 17, o->name + at + 17, 16) == 0) ||
	       strncmp(name + at + 34, o->name + at + 34, 16) == 0;
}

/* "disk:8:16", "file:8:1:12": numbers that the next boot may give to others. */
static bool only_numbers(const char *store)
{
	const char *rest = store + strspn(store, "abcdefghijklmnopqrstuvwxyz");

	return *rest == ':' && rest[strspn(rest, ":0123456789")] == 0;
}

static bool same_kind(const char *a, const char *b)
{
	size_t n = strcspn(a, " ");

	n += strncmp(a, "wwid ", 5) == 0 ? strcspn(a + n, ".") : 0; /* naa., t10., eui. */
	return strncmp(a, b, n) == 0;
}

/*
 * Is it @us of whom @t tells? What names a store for good decides, where both have it. Within one
 * boot a file's numbers do; a disk's may have changed hands (a volume that was deactivated), so its
 * path is enough, too. Over a boot only the path is left, or an identity that is more than numbers.
 */
static bool same_store(const struct told *t, const struct told *us)
{
	const bool path = strcmp(t->path, us->path) == 0, id = strcmp(t->store, us->store) == 0;

	if (t->mark[0] && us->mark[0] && same_kind(t->mark, us->mark))
		return strcmp(t->mark, us->mark) == 0;
	if (strcmp(t->boot, us->boot) == 0)
		return id || (path && strncmp(us->store, "file:", 5) != 0);
	return path || (id && !only_numbers(us->store));
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The value of the line "@key value" at *@p, of at most @size bytes with its end. */
static bool dirty_record_take_line(char **p, const char *key, char *value, size_t size)
{
	size_t n = strlen(key), len = strcspn(*p, "\n");

	if (strncmp(*p, key, n) != 0 || (*p)[n] != ' ' || (*p)[len] != '\n' || len - n - 1 >= size)
		return false;
	memcpy(value, *p + n + 1, len - n - 1);
	value[len - n - 1] = 0;
	*p += len + 1;
	return true;
}

static bool dirty_record_parse(char *text, size_t len, struct told *t)
{
	char number[64], *p = text, *sum = len > 21 ? text + len - 21 : NULL;
	unsigned long long want;

	/* The checksum first: it covers all that is believed. "sum " 16 digits newline */
	if (!sum || strlen(text) != len || sscanf(sum, "sum %16llx\n", &want) != 1 ||
	    want != fnv1a(FNV1A_INIT, text, (size_t)(sum - text)))
		return false;
	*sum = 0;
	if (!dirty_record_take_line(&p, "tgtd-dirty", number, sizeof(number)))
		return false;
	const bool first = strcmp(number, "1") == 0;
	if (!first && strcmp(number, "2") != 0)
		return false;
	if (!dirty_record_take_line(&p, "store", t->store, sizeof(t->store)) ||
	    !dirty_record_take_line(&p, "mark", t->mark, sizeof(t->mark)) ||
	    !dirty_record_take_line(&p, "path", t->path, sizeof(t->path)) ||
	    !dirty_record_take_line(&p, "boot", t->boot, sizeof(t->boot)) ||
	    !dirty_record_take_line(&p, "process", number, sizeof(number)) ||
	    sscanf(number, "%ld %llu", &t->pid, &t->start) != 2 ||
	    (!first && (!dirty_record_take_line(&p, "arena", number, sizeof(number)) ||
			sscanf(number, "%16llx", &t->arena) != 1)) ||
	    !dirty_record_take_line(&p, "state", t->state, sizeof(t->state)) ||
	    !dirty_record_take_line(&p, "time", number, sizeof(number)) ||
	    sscanf(number, "%llu", &t->when) != 1)
		return false;
	return *p == 0;
}

/* 0, -ENOENT, -EBADMSG: not to be believed, or another -errno: not to be read. */
static int read_record(int dirfd, const char *name, struct told *t)
{
	char text[FILE_MAX + 1];
	int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	ssize_t n;
	int err;

	if (fd < 0)
		return -errno;
	n = read(fd, text, FILE_MAX);
	err = -errno;
	close(fd);
	if (n < 0)
		return err;
	text[n] = 0;
	return dirty_record_parse(text, (size_t)n, t) ? 0 : -EBADMSG;
}

/* Of another store that is open here: no earlier process's. */
static bool open_here(const struct dirty_own *than, const char *name)
{
	struct dirty_own *o;
	bool found = false;

	pthread_mutex_lock(&registry_lock);
	list_for_each(o, &registry, link)
		found |= o != than && strcmp(o->name, name) == 0;
	pthread_mutex_unlock(&registry_lock);
	return found;
}

static void describe(struct dirty_own *o, const struct told *t, int err)
{
	char when[64] = "?";
	time_t at = (time_t)t->when;
	struct tm tm;

	if (err) {
		snprintf(o->r.why, sizeof(o->r.why),
			 "there is a record of data that was not written back, but it is %s",
			 err == -EBADMSG ? "damaged" : strerror(-err));
		return;
	}
	if (gmtime_r(&at, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S UTC", &tm);
	snprintf(o->r.why, sizeof(o->r.why),
		 "%s with data that may not have been written back, acknowledged since %s",
		 strcmp(t->boot, o->us.boot) == 0 ? "an earlier tgtd ended" :
						    "the machine was restarted",
		 when);
}

static int dirty_record_drop(const char *name)
{
	char path[PATH_LEN];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

static int found_add(struct dirty_own *o, const char *name)
{
	char(*more)[NAME_LEN + 1] = realloc(o->found, (o->nfound + 1) * sizeof(*more));

	if (!more)
		return -ENOMEM;
	o->found = more;
	memcpy(more[o->nfound++], name, NAME_LEN + 1);
	return 0;
}

/* Our cache goes on with the arenas that the record's process had, and with that store's blocks. */
static bool in_our_arena(const struct dirty_own *o, const struct told *t)
{
	return ours.holds && t->arena && t->arena == ours.cookie &&
	       strcmp(t->boot, o->us.boot) == 0 && ours.holds(ours.arg, o->us.store);
}

/* Its data is in memory that is kept for another version. Who accepts losses does not wait. */
static bool in_apart_arena(const struct dirty_own *o, const struct told *t)
{
	bool is = false;

	for (unsigned i = 0; i < apart.n && t->arena && !accept_loss; i++)
		is |= apart.cookie[i] == t->arena;
	return is && strcmp(t->state, "dirty") == 0 && strcmp(t->boot, o->us.boot) == 0;
}

/* One file whose name fits. */
static void dirty_record_look_at(struct dirty_own *o, int fd, int dirfd, const char *name)
{
	struct told t = { .pid = 0 };
	int err = read_record(dirfd, name, &t);

	if (err == -ENOENT || (!err && !same_store(&t, &o->us)))
		return;
	if (!err && in_our_arena(o, &t)) {
		o->kept = true;
		if (strcmp(name, o->name) == 0)
			o->there = true;
		else
			err = found_add(o, name);
		if (!err)
			return;
	}
	if (!err && in_apart_arena(o, &t) && !found_add(o, name)) {
		atomic_store_explicit(&o->r.apart, true, memory_order_release);
		return;
	}
	/* (One that has left its arenas to us may not have gone yet.) */
	if (!err && strcmp(t.boot, o->us.boot) == 0 && t.pid != getpid() && t.start &&
	    started(t.pid) == t.start) {
		/* Only where a store cannot be locked, or is shared. */
		log_warn("%s: process %ld has it open, too: what that one may lose is not noticed",
			 o->us.path, t.pid);
		return;
	}
	/* The kernel has all of it; what it could not keep, this call says. */
	if (!err && strcmp(t.state, "written") == 0 && strcmp(t.boot, o->us.boot) == 0 &&
	    fdatasync(fd) == 0) {
		(void)dirty_record_drop(name); /* and when not, then the next one does the same */
		return;
	}
	err = found_add(o, name) ? -ENOMEM : err;
	if (!o->r.doubt)
		describe(o, &t, err);
	atomic_store_explicit(&o->r.doubt, true, memory_order_release);
}

static void look_for(struct dirty_own *o, int fd)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int err;

	if (!d) {
		err = -errno;
		describe(o, &(struct told){ .pid = 0 }, err);
		atomic_store_explicit(&o->r.doubt, err != -ENOENT, memory_order_release);
		return;
	}
	while ((e = readdir(d)))
		if (name_fits(e->d_name, o) && !open_here(o, e->d_name))
			dirty_record_look_at(o, fd, dirfd(d), e->d_name);
	closedir(d);
}

/* ---- writing --------------------------------------------------------------------------------- */

static int sync_dir(void)
{
	int err = 0, fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fsync(fd) < 0)
		err = -errno;
	close(fd);
	return err;
}

/* Written beside, fsync, rename, fsync of the directory. */
static int put_file(const char *name, const char *text, size_t len)
{
	char path[PATH_LEN], tmp[PATH_LEN];
	int fd, err = 0;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	snprintf(tmp, sizeof(tmp), "%s/%s.new", dir, name);
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	for (size_t done = 0; !err && done < len;) {
		ssize_t n = write(fd, text + done, len - done);

		if (n > 0)
			done += (size_t)n;
		else if (n == 0 || errno != EINTR)
			err = n < 0 ? -errno : -EIO;
	}
	if (!err && fsync(fd) < 0)
		err = -errno;
	if (close(fd) < 0 && !err)
		err = -errno;
	if (!err && rename(tmp, path) < 0)
		err = -errno;
	if (err) {
		(void)unlink(tmp);
		return err;
	}
	return sync_dir();
}

/* With the lock. */
static int write_own(struct dirty_own *o, const char *state)
{
	struct told *us = &o->us;
	char text[FILE_MAX];
	int n, err;

	us->when = (unsigned long long)time(NULL);
	n = snprintf(
		text, sizeof(text) - 32,
		"tgtd-dirty 2\nstore %s\nmark %s\npath %s\nboot %s\nprocess %ld %llu\narena %016llx\nstate %s\ntime %llu\n",
		us->store, us->mark, us->path, us->boot, us->pid, us->start, ours.cookie, state,
		us->when);
	n += snprintf(text + n, 32, "sum %016llx\n",
		      (unsigned long long)fnv1a(FNV1A_INIT, text, (size_t)n));
	o->there = true;
	err = put_file(o->name, text, (size_t)n);
	metric_inc(err ? M_cache_record_errors : M_cache_records);
	return err;
}

int dirty_record_write(struct dirty_record *r)
{
	struct dirty_own *o = r->own;

	pthread_mutex_lock(&o->lock);
	int err = write_own(o, "dirty");
	pthread_mutex_unlock(&o->lock);
	return err;
}

void dirty_record_written(struct dirty_record *r)
{
	struct dirty_own *o = r->own;

	if (pthread_mutex_trylock(&o->lock))
		return; /* its disk hangs: the end is not to */
	if (o->there && !o->r.doubt)
		(void)write_own(o, "written");
	pthread_mutex_unlock(&o->lock);
}

void dirty_record_lost(struct dirty_record *r)
{
	struct dirty_own *o = r->own;
	char(*more)[NAME_LEN + 1];

	pthread_mutex_lock(&o->lock);
	if (o->there && !o->r.doubt) {
		more = realloc(o->found, (o->nfound + 1) * sizeof(*more));
		if (more) {
			o->found = more;
			memcpy(more[o->nfound++], o->name, NAME_LEN + 1);
		}
		snprintf(o->r.why, sizeof(o->r.why),
			 "it was closed with data that could not be written back");
		atomic_store_explicit(&o->r.doubt, !accept_loss, memory_order_release);
	}
	pthread_mutex_unlock(&o->lock);
}

void dirty_record_lost_elsewhere(struct dirty_record *r, const char *why)
{
	struct dirty_own *o = r->own;

	pthread_mutex_lock(&o->lock);
	if (!o->r.doubt) {
		snprintf(o->r.why, sizeof(o->r.why), "%s", why);
		atomic_store_explicit(&o->r.doubt, !accept_loss, memory_order_release);
		log_error("%s: %s: %s: it may be LOST%s", o->us.path,
			  accept_loss ? "a loss is accepted" : "IN DOUBT", why,
			  accept_loss ? "" :
					". All SYNCs and writes with FUA fail until the store is "
					"looked after (tgtadm, update with --params refresh=1)");
	}
	pthread_mutex_unlock(&o->lock);
}

int dirty_record_remove(struct dirty_record *r)
{
	struct dirty_own *o = r->own;
	int err = 0;

	pthread_mutex_lock(&o->lock);
	ASSERT(!o->r.doubt);
	if (o->there) {
		err = dirty_record_drop(o->name);
		if (!err)
			err = sync_dir();
		o->there = err != 0;
	}
	pthread_mutex_unlock(&o->lock);
	return err;
}

/* What was found goes, but for what our own has replaced. With the lock. */
static int drop_found(struct dirty_own *o, bool own)
{
	int err = 0;

	for (unsigned i = 0; i < o->nfound && !err; i++)
		if (!own || strcmp(o->found[i], o->name) != 0)
			err = dirty_record_drop(o->found[i]);
	if (!err && o->nfound)
		err = sync_dir();
	if (!err)
		o->nfound = 0;
	return err;
}

int dirty_record_trust(struct dirty_record *r, bool dirty)
{
	struct dirty_own *o = r->own;
	int err = 0;

	pthread_mutex_lock(&o->lock);
	if (o->r.doubt) {
		if (dirty)
			err = write_own(o, "dirty");
		if (!err)
			err = drop_found(o, dirty);
		if (!err)
			atomic_store_explicit(&o->r.doubt, false, memory_order_release);
	}
	pthread_mutex_unlock(&o->lock);
	return err;
}

int dirty_record_give_up(struct dirty_record *r)
{
	struct dirty_own *o = r->own;
	int err;

	pthread_mutex_lock(&o->lock);
	err = drop_found(o, false);
	if (!err)
		atomic_store_explicit(&o->r.apart, false, memory_order_release);
	pthread_mutex_unlock(&o->lock);
	return err;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static void dirty_record_say(struct dirty_own *o, bool told_elsewhere)
{
	int err;

	if (!o->r.doubt && !(told_elsewhere && o->r.apart))
		return;
	if (told_elsewhere) {
		err = drop_found(o, false);
		if (err)
			log_warn("%s: the record of an earlier process cannot be removed: %s",
				 o->us.path, strerror(-err));
		o->r.doubt = o->r.apart = false;
		return;
	}
	metric_inc(M_cache_losses);
	if (accept_loss) {
		err = drop_found(o, false);
		log_warn("%s: %s: it may be LOST, which --after-loss=accept takes for known",
			 o->us.path, o->r.why);
		if (err)
			log_warn("%s: the record of that cannot be removed: %s", o->us.path,
				 strerror(-err));
		o->r.doubt = false;
		return;
	}
	log_error(
		"%s: IN DOUBT: %s: it may be LOST. All SYNCs and writes with FUA fail until the store is looked after (tgtadm, update with --params refresh=1)",
		o->us.path, o->r.why);
}

/* What was kept is known by a name that is not ours: it gets ours. */
static void take_over(struct dirty_own *o)
{
	int err;

	if (!o->kept || o->there)
		return;
	err = write_own(o, "dirty");
	if (!err && !o->r.doubt)
		err = drop_found(o, true);
	if (err)
		log_warn("%s: the record of what is dirty cannot be made anew: %s", o->us.path,
			 strerror(-err));
}

bool dirty_record_kept(const struct dirty_record *r)
{
	return r && r->own->kept;
}

static struct dirty_own *dirty_record_make(const char *store_id, const char *mark, const char *path)
{
	struct dirty_own *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->r.own = o;
	o->refs = 1;
	pthread_mutex_init(&o->lock, NULL);
	put_line(o->us.store, sizeof(o->us.store), store_id);
	put_line(o->us.mark, sizeof(o->us.mark), mark);
	put_line(o->us.path, sizeof(o->us.path), path);
	first_line("/proc/sys/kernel/random/boot_id", o->us.boot, sizeof(o->us.boot));
	o->us.pid = getpid();
	o->us.start = started(o->us.pid);
	file_name(&o->us, o->name);
	list_add_tail(&registry, &o->link);
	return o;
}

static struct dirty_record *record_get(int fd, const char *store_id, const char *mark,
				       const char *path, bool told_elsewhere)
{
	struct dirty_own *o;

	if (!dir)
		return NULL;
	pthread_mutex_lock(&registry_lock);
	list_for_each(o, &registry, link)
		if (strcmp(o->us.store, store_id) == 0) {
			o->refs++;
			while (!o->looked)
				pthread_cond_wait(&registry_looked, &registry_lock);
			pthread_mutex_unlock(&registry_lock);
			return &o->r;
		}
	o = dirty_record_make(store_id, mark, path);
	pthread_mutex_unlock(&registry_lock);
	if (!o)
		return NULL;
	look_for(o, fd);
	take_over(o);
	dirty_record_say(o, told_elsewhere);
	pthread_mutex_lock(&registry_lock);
	o->looked = true;
	pthread_cond_broadcast(&registry_looked);
	pthread_mutex_unlock(&registry_lock);
	return &o->r;
}

struct dirty_record *dirty_record_get(int fd, const char *store_id, const char *mark,
				      const char *path)
{
	return record_get(fd, store_id, mark, path, false);
}

struct dirty_record *dirty_record_get_shared(const char *store_id, const char *path)
{
	return record_get(-1, store_id, "", path, true);
}

void dirty_record_put(struct dirty_record *r)
{
	struct dirty_own *o = r ? r->own : NULL;

	if (!o)
		return;
	pthread_mutex_lock(&registry_lock);
	if (--o->refs == 0) {
		list_del(&o->link);
		pthread_mutex_destroy(&o->lock);
		free(o->found);
		free(o);
	}
	pthread_mutex_unlock(&registry_lock);
}

void dirty_record_set_apart(const uint64_t *cookie, unsigned n)
{
	ASSERT(n <= APART_COOKIES);
	for (unsigned i = 0; i < n; i++)
		apart.cookie[i] = cookie[i];
	apart.n = n;
}

bool dirty_record_names(uint64_t cookie, const char *store_id)
{
	char boot[64], line[ID_LEN];
	DIR *d = dir ? opendir(dir) : NULL;
	bool names = false;
	struct dirent *e;

	if (!d)
		return true;
	first_line("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
	put_line(line, sizeof(line), store_id ? store_id : "");
	while (!names && (e = readdir(d))) {
		struct told t = { .pid = 0 };

		if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0 ||
		    strlen(e->d_name) != NAME_LEN || read_record(dirfd(d), e->d_name, &t))
			continue;
		names = t.arena == cookie && strcmp(t.state, "dirty") == 0 &&
			strcmp(t.boot, boot) == 0 && (!store_id || strcmp(t.store, line) == 0);
	}
	closedir(d);
	return names;
}

/* What an earlier daemon has left there counts, even where this one can write none. */
static bool can_be_read(const char *where)
{
	int fd = open(where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return false;
	close(fd);
	return faccessat(AT_FDCWD, where, X_OK, AT_EACCESS) == 0;
}

int dirty_record_start(const char *where, bool accept)
{
	int err = 0;

	ASSERT(list_empty(&registry));
	free(dir);
	dir = NULL;
	none = "there is no state directory";
	accept_loss = accept;
	if (!where)
		return 0;
	if (mkdir(where, 0700) < 0 && errno != EEXIST)
		err = -errno;
	if (!err && faccessat(AT_FDCWD, where, R_OK | W_OK | X_OK, AT_EACCESS) < 0)
		err = -errno;
	if (err) {
		none = "the state directory cannot be written to";
		if (can_be_read(where))
			dir = strdup(where);
		return err;
	}
	dir = strdup(where);
	if (!dir)
		return -ENOMEM;
	none = NULL;
	return 0;
}

void dirty_record_arena(uint64_t cookie, bool (*holds)(void *arg, const char *store_id), void *arg)
{
	ours.cookie = cookie;
	ours.holds = holds;
	ours.arg = arg;
}

const char *dirty_record_none(void)
{
	return none;
}

bool dirty_record_accepts(void)
{
	return accept_loss;
}
