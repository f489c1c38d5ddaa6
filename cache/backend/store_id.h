/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a store is, whatever it is called; and who of this process has which store open. */
#ifndef CACHE_BACKEND_STORE_ID_H
#define CACHE_BACKEND_STORE_ID_H

#include <sys/stat.h>

#include "cache/blk/blk.h"
#include "events/list.h"

#define STORE_BELOW_MAX 16

/*
 * "file:MAJOR:MINOR:INODE" of a regular file. A block device is named by what the kernel says below
 * @sys ("/sys"). A disk with a world-wide name of a registered kind (naa, eui, uuid) is "wwn:NAME",
 * its partition N "wwn:NAME:pN@START". A mapped device is "dm:UUID". Any other is
 * "disk:MAJOR:MINOR". Any thread that may block.
 */
void store_id_of(const char *sys, const struct stat *st, char id[BLK_STORE_ID_MAX]);
/* Is @id one of these? (Other kinds of store have identities that no name in the file system leads
 * to.) Any thread. */
bool store_id_by_stat(const char *id);
/* What a block device lies on, all the way down: a partition's disk, a mapped device's devices, a
 * loop device's file. At most STORE_BELOW_MAX. Returns how many. Any thread that may block. */
unsigned store_below(const char *sys, dev_t dev, char (*id)[BLK_STORE_ID_MAX]);

/* Is @fd a loop device? Then @base is the store of which it shows the bytes [*from, *to). That is
 * asked of the device, as its file's name may be gone, or another's by now. Any thread that may
 * block. */
bool store_loop(const char *sys, int fd, char base[BLK_STORE_ID_MAX], uint64_t *from, uint64_t *to);

/* The file lock that all writers of a store in this process have together. */
struct store_lock {
	unsigned users;
	int fd;
};

/* An open store. Its own until store_opener_del(). */
struct store_opener {
	struct list link;
	const struct blk *blk; /* store_id and left are looked at */
	int fd;
	bool readonly, shared, uncached, device;
	bool locking;	       /* store_open.c: asks for the file's lock, or gives it back */
	dev_t dev;	       /* of the device, if it is one */
	char path[256];
	char who[48];
	unsigned nbelow;
	char below[STORE_BELOW_MAX][BLK_STORE_ID_MAX];
	char base[BLK_STORE_ID_MAX]; /* of a loop device, or empty */
	uint64_t from, to;
	struct store_lock *lock;
};

/*
 * Adds @o, whose fields but link and lock are set, if all openers of its data then have one view:
 * the same cache, or none. Then locks the file for a writer against other processes. 0, or -errno
 * with the reason in @why. *@unlocked: the file system cannot lock (negative errno), or 0. Any
 * thread that may block.
 */
int store_opener_add(struct store_opener *o, int *unlocked, char *why, size_t len) must_check;
/* This process ends, and another one goes on: the file locks of all stores go that the keeper does
 * not hold for that one. False: of a store
 * that has none, since it is another machine's, nobody could tell when it is free; then all stay.
 * Any thread. */
bool store_openers_let_go(void);
/* Before its descriptor is closed. Any thread. Not taken in: nothing happens. */
void store_opener_del(struct store_opener *o);

#endif
