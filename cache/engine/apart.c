/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See apart.h. */
#include "cache/engine/apart.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/blk/dirty_record.h"
#include "cache/engine/layout.h"
#include "cache/memory/arena.h"
#include "events/kept.h"
#include "events/log.h"

#define COOKIE_AT                                                                                  \
	((off_t)(offsetof(struct arena_super, owner) + offsetof(struct cache_super, cookie)))

struct apart {
	bool there;
	struct apart_info info;
	int fd[TOPO_MAX_NODES]; /* -1: none of that node, or taken */
};

static struct apart apart[APART_MAX];
static unsigned nodes;

static void apart_key(char key[KEPT_KEY_MAX + 1], unsigned k, unsigned n)
{
	snprintf(key, KEPT_KEY_MAX + 1, "apart/%u/%u", k, n);
}

static uint64_t cookie_of(int fd)
{
	char magic[sizeof(CACHE_MAGIC) - 1];
	uint64_t cookie;

	if (pread(fd, magic, sizeof(magic), offsetof(struct arena_super, owner)) != sizeof(magic) ||
	    memcmp(magic, CACHE_MAGIC, sizeof(magic)) ||
	    pread(fd, &cookie, sizeof(cookie), COOKIE_AT) != sizeof(cookie))
		return 0;
	return cookie;
}

/* What all its files say: of one that is of another cache nothing is believed. */
static void apart_describe(struct apart *a)
{
	a->info = (struct apart_info){ 0 };
	a->there = false;
	for (unsigned n = 0; n < nodes; n++) {
		uint64_t cookie = a->fd[n] >= 0 ? cookie_of(a->fd[n]) : 0;
		struct stat st;

		if (a->fd[n] < 0)
			continue;
		a->there = true;
		a->info.cookie = cookie;
		a->info.layout = arena_layout(a->fd[n]);
		if (!fstat(a->fd[n], &st))
			a->info.bytes += (uint64_t)st.st_blocks * 512;
	}
}

static void tell_records(void)
{
	uint64_t cookie[APART_MAX];
	unsigned n = 0;

	for (unsigned k = 0; k < APART_MAX; k++)
		if (apart[k].there && apart[k].info.cookie)
			cookie[n++] = apart[k].info.cookie;
	dirty_record_set_apart(cookie, n);
}

bool apart_unknown(const struct topology *topo, const int fd[])
{
	for (unsigned n = 0; n < topo->nnodes; n++)
		if (fd[n] >= 0 && arena_other_layout(fd[n]))
			return true;
	return false;
}

void apart_find(const struct topology *topo)
{
	char key[KEPT_KEY_MAX + 1];

	nodes = topo->nnodes;
	for (unsigned k = 0; k < APART_MAX; k++) {
		for (unsigned n = 0; n < nodes; n++) {
			apart_key(key, k, n);
			apart[k].fd[n] = kept_take(key);
		}
		apart_describe(&apart[k]);
	}
	tell_records();
}

/* The keeper closes its own. */
static void apart_drop(struct apart *a)
{
	char key[KEPT_KEY_MAX + 1];

	for (unsigned n = 0; n < nodes; n++) {
		apart_key(key, (unsigned)(a - apart), n);
		if (kept_drop(key))
			log_error("cache: the keeper keeps '%s'", key);
		if (a->fd[n] >= 0)
			kept_close(a->fd[n]);
		a->fd[n] = -1;
	}
	a->there = false;
	tell_records();
}

/* 0 or -errno of one that the keeper has not taken. */
static int apart_keep(unsigned k, const int fd[])
{
	struct kept_pair pair;
	int err = 0;

	for (unsigned n = 0; n < nodes && !err; n++) {
		if (fd[n] < 0)
			continue;
		pair = (struct kept_pair){ .fd = fd[n] };
		apart_key(pair.key, k, n);
		kept_put_all(&pair, 1); /* (nobody is served yet) */
		err = pair.err;
	}
	return err;
}

/* Which is it, or where is room? APART_MAX: nowhere. A process may have died amid this. */
static unsigned place_for(const int fd[])
{
	uint64_t cookie = 0;

	for (unsigned n = 0; n < nodes && !cookie; n++)
		cookie = fd[n] >= 0 ? cookie_of(fd[n]) : 0;
	for (unsigned k = 0; k < APART_MAX; k++)
		if (apart[k].there && cookie && apart[k].info.cookie == cookie)
			return k;
	for (unsigned k = 0; k < APART_MAX; k++)
		if (!apart[k].there)
			return k;
	return APART_MAX;
}

int apart_set(int fd[])
{
	const unsigned k = place_for(fd);
	struct apart *a = k < APART_MAX ? &apart[k] : NULL;
	int err = a ? apart_keep(k, fd) : -ENOSPC;

	if (err)
		return err;
	for (unsigned n = 0; n < nodes; n++) {
		if (a->fd[n] >= 0)
			kept_close(a->fd[n]);
		a->fd[n] = fd[n];
		fd[n] = -1;
	}
	apart_describe(a);
	tell_records();
	log_error("cache: what was left is of another version of tgtd (%u), which alone can write "
		  "it back: it is kept for that. Units whose data is in it are NOT READY, all "
		  "others are served",
		  a->info.layout);
	return 0;
}

bool apart_take(int fd[])
{
	const struct topology topo = { .nnodes = nodes };

	for (unsigned k = 0; k < APART_MAX; k++) {
		struct apart *a = &apart[k];

		if (!a->there || apart_unknown(&topo, a->fd))
			continue;
		for (unsigned n = 0; n < nodes; n++)
			fd[n] = a->fd[n] >= 0 ? fcntl(a->fd[n], F_DUPFD_CLOEXEC, 0) : -1;
		log_notice("cache: what was kept for this version is taken");
		return true;
	}
	return false;
}

void apart_is_ours(int fd)
{
	const uint64_t cookie = fd >= 0 ? cookie_of(fd) : 0;

	for (unsigned k = 0; k < APART_MAX; k++)
		if (apart[k].there && cookie && apart[k].info.cookie == cookie)
			apart_drop(&apart[k]);
}

void apart_look(void)
{
	for (unsigned k = 0; k < APART_MAX; k++) {
		struct apart *a = &apart[k];

		if (!a->there || dirty_record_names(a->info.cookie, NULL))
			continue;
		log_notice("cache: of what was kept for version %u nothing is needed: it goes",
			   a->info.layout);
		apart_drop(a);
	}
}

bool apart_ends(void)
{
	bool any = false;

	for (unsigned k = 0; k < APART_MAX; k++) {
		any |= apart[k].there;
		if (apart[k].there)
			log_error("cache: what is kept for version %u of tgtd ends with this "
				  "daemon, unless a service manager has it: the stores whose data "
				  "is in it are in doubt then",
				  apart[k].info.layout);
	}
	return any;
}

unsigned apart_get(struct apart_info info[APART_MAX])
{
	unsigned n = 0;

	for (unsigned k = 0; k < APART_MAX; k++)
		if (apart[k].there)
			info[n++] = apart[k].info;
	return n;
}
