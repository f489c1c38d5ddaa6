/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See holdings.h: an array, and a hash table with chains in it. */
#include <stdlib.h>

#include "events/hash.h"
#include "tgtd/keeper/holdings.h"
#include "tgtd/keeper/let_go.h"

#define CHAINS 4096u

struct holding {
	kept_key key;
	int fd;	       /* -1: free */
	uint32_t next; /* of its chain, or of those that are free: index + 1 */
};

static struct {
	struct holding *at;
	uint32_t n, used, free; /* places, those that hold something, the first that does not */
	uint32_t chain[CHAINS];
} held;

static uint32_t *holding_chain(const char *key)
{
	return &held.chain[fnv1a(FNV1A_INIT, key, strlen(key)) % CHAINS];
}

/* What points to the one with that key: *it is its index + 1, or 0. */
static uint32_t *holding_find(const char *key)
{
	uint32_t *it = holding_chain(key);

	while (*it && strcmp(held.at[*it - 1].key, key))
		it = &held.at[*it - 1].next;
	return it;
}

static bool more_places(void)
{
	const uint32_t n = held.n ? 2 * held.n : 64;
	struct holding *at = realloc(held.at, n * sizeof(*at));

	if (!at)
		return false;
	held.at = at;
	for (uint32_t i = n; i-- > held.n;) {
		at[i].fd = -1;
		at[i].next = held.free;
		held.free = i + 1;
	}
	held.n = n;
	return true;
}

static int holding_new(const char *key, int fd)
{
	uint32_t *chain = holding_chain(key);
	struct holding *h;

	if (held.used == KEPT_MAX)
		return -ENOSPC;
	if (!held.free && !more_places())
		return -ENOMEM;
	h = &held.at[held.free - 1];
	const uint32_t rest = h->next;

	memset(h->key, 0, sizeof(h->key));
	memcpy(h->key, key, strlen(key));
	h->fd = fd;
	h->next = *chain;
	*chain = held.free;
	held.free = rest;
	held.used++;
	return 0;
}

int holdings_put(const char *key, int fd)
{
	int err = 0;

	if (!kept_key_ok(key)) {
		err = -EINVAL;
	} else {
		const uint32_t it = *holding_find(key);

		if (it) {
			hold_no_more(held.at[it - 1].fd);
			held.at[it - 1].fd = fd;
		} else {
			err = holding_new(key, fd);
		}
	}
	if (err)
		hold_no_more(fd);
	return err;
}

void holdings_drop(const char *key)
{
	uint32_t *it = holding_find(key), gone = *it;

	if (!gone)
		return;
	struct holding *h = &held.at[gone - 1];

	hold_no_more(h->fd);
	h->fd = -1;
	*it = h->next;
	h->next = held.free;
	held.free = gone;
	held.used--;
}

unsigned holdings_count(void)
{
	return held.used;
}

bool holdings_has(const char *key)
{
	return *holding_find(key);
}

bool holdings_any(const char *prefix)
{
	for (uint32_t i = 0; i < held.n; i++)
		if (held.at[i].fd >= 0 && !strncmp(held.at[i].key, prefix, strlen(prefix)))
			return true;
	return false;
}

int holdings_send(int fd, const char *prefix, unsigned *at)
{
	static kept_key keys[KEPT_MSG_FDS];
	struct kept_msg m = { .word = KEPT_LEFT };
	int fds[KEPT_MSG_FDS], err;
	unsigned n = 0, i;

	for (i = *at; i < held.n && n < KEPT_MSG_FDS; i++)
		if (held.at[i].fd >= 0 && !strncmp(held.at[i].key, prefix, strlen(prefix))) {
			memcpy(keys[n], held.at[i].key, sizeof(kept_key));
			fds[n++] = held.at[i].fd;
		}
	err = n ? kept_msg_send(fd, &m, (const kept_key *)keys, fds, n) : 0;
	if (err)
		return err;
	*at = i;
	return i < held.n;
}

const char *holdings_next(uint32_t *at, int *fd)
{
	while (*at < held.n) {
		const struct holding *h = &held.at[(*at)++];

		*fd = h->fd;
		if (h->fd >= 0)
			return h->key;
	}
	return NULL;
}

void holdings_end(void)
{
	for (uint32_t i = 0; i < held.n; i++)
		if (held.at[i].fd >= 0)
			hold_for_nobody(held.at[i].key, held.at[i].fd);
	free(held.at);
	memset(&held, 0, sizeof(held));
}
