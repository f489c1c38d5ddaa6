/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The state journal: what a process tells the one that comes after it. Records in a memfd that
 * somebody else keeps open; it outlives a process that dies at any instruction, and ends with the
 * machine. README.md has its layout and its rules.
 *
 * A record is a value by a key. A later record of a key replaces the earlier one, and keeps its
 * place in the order. Several records are committed as one, by one word. What is committed is whole
 * after a death; what is not is as if it had never been. The journal is rewritten when it has
 * grown, so its size follows what it says and not how often that changed.
 *
 * Any thread, unless a function says otherwise; one lock, a leaf. Without journal_open() nothing is
 * recorded, and every function here returns at once.
 */
#ifndef TGTD_STATE_JOURNAL_H
#define TGTD_STATE_JOURNAL_H

#include "events/base.h"

#define JOURNAL_SIZE MiB(64)	 /* what the daemon takes; its memory is used as it fills */
#define JOURNAL_SIZE_MIN KiB(64) /* for tests */
#define JOURNAL_KEY_MAX 400	 /* characters; a user's name is up to 255 */

struct journal_rec {
	const char *key;   /* not empty */
	const void *value; /* NULL: the key goes */
	size_t len;
	bool secret; /* overwritten when it is replaced or goes */
};

/* Takes over @fd, what an earlier process left, or makes one of @size bytes, a multiple of 4 KiB,
 * when @fd is -1. The descriptor, to be kept by somebody else, is the journal's own. Or -errno:
 * -EBADMSG it is damaged, -ENOTSUP another version wrote it (then @fd stays open and the caller's).
 * The log says what is wrong. Main thread, before others use it. */
int journal_open(int fd, size_t size) must_check;
/* Forgets it. The memory stays for whoever has its descriptor. Main thread, at the end. */
void journal_close(void);
/* It is open and not frozen: what changes has to be recorded. */
bool journal_is_on(void);
/* There was something in it when it was opened. */
bool journal_found(void);
/* From now on, or no more, nothing is recorded: the process ends in order, or restores what it has
 * found. Commits say 0. */
void journal_freeze(bool on);

/* All @n records, or none: 0, -ENOSPC there is no room, -ENOMEM, -EINVAL a key or a value is too
 * long. Their keys differ. Records that say what is there already are left out. */
int journal_commit(const struct journal_rec *recs, unsigned n) must_check;
/* Who asks for room. Much of one unit is had while half is free, so that it leaves some to what is
 * configured. That leaves some to reservations, these some to what makes room: whatever is full, it
 * can be taken away again. */
enum journal_room { JOURNAL_ROOM_BULK, JOURNAL_ROOM_CONFIG, JOURNAL_ROOM_RESERVATION };
bool journal_has_room(enum journal_room who, size_t bytes);

/* A copy of the value of @key, with a NUL behind it, the caller's (free()); NULL: none, or no
 * memory. */
void *journal_get(const char *key, size_t *len);
/* Each record whose key begins with @prefix, in order. fn() may call nothing here. */
void journal_each(const char *prefix,
		  void (*fn)(const char *key, const void *value, size_t len, void *arg), void *arg);

struct journal_info {
	uint64_t half;		    /* bytes that records may take */
	uint64_t used;		    /* of them, now */
	uint64_t live;		    /* of these, what is not replaced */
	uint64_t records;	    /* live */
	uint64_t commits, rewrites; /* by this process */
};
void journal_get_info(struct journal_info *info);

#endif
