/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tells the next daemon that this one had acknowledged data that was not written back. It is one
 * small text file for each store, in the state directory. It is there before the first such
 * acknowledgement, and removed when the store is clean. If a process opens a store and finds the
 * record of an earlier process, that one has ended, and its data is lost. The store is in doubt
 * then.
 *
 *   tgtd-dirty 2
 *   store <blk.store_id>
 *   mark <what names the store for good, see dirty_mark(); may be empty>
 *   path <as configured>
 *   boot <id of the boot>
 *   process <pid> <start, in ticks since boot>
 *   arena <of the cache that has the data: its cookie, 16 digits; 0: none. Since version 2>
 *   state dirty | written
 *   time <seconds since 1970>
 *   sum <FNV-1a of all before, 16 digits>
 *
 * The arena may be of another version of tgtd, which alone can write back what is in it. It is kept
 * for that then (cache/engine/apart.h), and the store is *apart*: nobody may use it meanwhile.
 *
 * A file that is cut or altered, or of another version, says that data may be lost, and nothing
 * else. Version 1 is believed, too. Its name has the hashes of store, mark and path, so that it is
 * found by any of them.
 *
 * All but the inline functions may block (they wait for the disk): helper threads, or the main
 * thread before it serves.
 */
#ifndef CACHE_BLK_DIRTY_RECORD_H
#define CACHE_BLK_DIRTY_RECORD_H

#include <stdatomic.h>
#include "events/base.h"

#define DIRTY_MARK_MAX 192
#define DIRTY_WHY_MAX 256

struct dirty_record {
	_Atomic bool doubt;	 /* data was lost, and nobody has looked after the store yet */
	_Atomic bool apart;	 /* its data is in memory of another version, see above */
	char why[DIRTY_WHY_MAX]; /* of the doubt: set before it, does not change */
	/* The rest is dirty_record.c's. */
	struct dirty_own *own;
};

/* @dir: where records are, made when it is not there. @accept: what an earlier process has lost is
 * said in the log, and that is all. NULL: no records are made from here on, nothing is in doubt.
 * No record is open. 0, or -errno: then none are made, but what can be read there counts. */
int dirty_record_start(const char *dir, bool accept) must_check;
/* NULL: records are made. Else why not. Any thread. */
const char *dirty_record_none(void);
bool dirty_record_accepts(void);

/* The cache of this process, which its records name. @holds: its arenas are an earlier process's,
 * and it still has what that one had of the store, or had written: a record that names the same
 * cookie is no doubt then, and goes on as ours. NULL: it is a new one. 0: there is no cache (any
 * more). Main thread; @holds is called on any thread that opens a store. */
void dirty_record_arena(uint64_t cookie, bool (*holds)(void *arg, const char *store_id), void *arg);

/* Caches of this boot whose memory is kept for another version: @n of them, 4 at most. Main thread,
 * while no record is being got. */
void dirty_record_set_apart(const uint64_t *cookie, unsigned n);
/* Does any record say that something of @store_id (NULL: of any store) is dirty in the cache
 * @cookie of this boot? True also where nobody can tell. Any thread that may block. */
bool dirty_record_names(uint64_t cookie, const char *store_id) must_check;

/* What stays the same of the open file @fd when device numbers change. It is a file's inode number
 * and birth time, a disk's WWID, a device mapper's UUID, or the file behind a loop device. Or
 * empty. */
void dirty_mark(int fd, char mark[DIRTY_MARK_MAX]);

/* A reference to the record of a store that is open now as @fd, to be given back before it is
 * closed. All openers in this process share one, and wait for the first of them. In doubt when an
 * earlier process has left one (unless that had written all, within this boot: then the store is
 * synced, and it goes). NULL: there are no records. Waits for no other store. */
struct dirty_record *dirty_record_get(int fd, const char *store_id, const char *mark,
				      const char *path);
/* The same of a store that other machines serve, too. What becomes of data that an earlier process
 * here had acknowledged is known elsewhere: its record is no doubt, and goes. */
struct dirty_record *dirty_record_get_shared(const char *store_id, const char *path);
void dirty_record_put(struct dirty_record *r);

/* What an earlier process had acknowledged is in this one's cache, and its record is ours: it is
 * there, as after dirty_record_write(). */
bool dirty_record_kept(const struct dirty_record *r);
/* Makes it durable; from then on an end without dirty_record_remove() is seen. 0 or -errno. */
int dirty_record_write(struct dirty_record *r) must_check;
/* The process is about to end, and will acknowledge nothing more; the store has been given
 * everything, but has not said that it is stable. Only a restart of the machine could lose it. */
void dirty_record_written(struct dirty_record *r);
/* Its data is gone, and the process goes on. The store is in doubt for all who have it open, and
 * for all who open it before the last of them has closed it. */
void dirty_record_lost(struct dirty_record *r);
/* The same of data that others had acknowledged, for the reason @why. Nothing, where losses are
 * accepted. */
void dirty_record_lost_elsewhere(struct dirty_record *r, const char *why);
/* The store is clean, and in doubt no more. 0 or -errno: it may be there still. */
int dirty_record_remove(struct dirty_record *r) must_check;
/* What is apart is given up: its records go, and so does @r->apart. 0, or -errno: it stays. Any
 * thread that may block. */
int dirty_record_give_up(struct dirty_record *r) must_check;
/* An administrator has looked after the store: what was found when it was opened goes for good, and
 * then the doubt. @dirty: there may be data by now that a record of our own has to stand for, which
 * comes first. 0, or -errno: the doubt stays. */
int dirty_record_trust(struct dirty_record *r, bool dirty) must_check;

static inline bool dirty_record_doubt(const struct dirty_record *r)
{
	return r && atomic_load_explicit(&r->doubt, memory_order_acquire);
}

#endif
