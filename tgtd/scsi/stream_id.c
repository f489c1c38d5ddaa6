/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See stream_id.h. */
#include "tgtd/scsi/stream_id.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include "cache/engine/account.h"

#define PLACES 4096u
static_assert(PLACES == 1u << STREAM_HOST_SHIFT && ACCT_OWNERS == 256 &&
		      STREAM_NAME_SHIFT == STREAM_HOST_SHIFT + 8 &&
		      STREAM_SERIAL_SHIFT == STREAM_NAME_SHIFT + 8,
	      "where the bits are");

static struct {
	pthread_mutex_t lock;
	uint64_t serial;
	uint64_t taken[PLACES / 64]; /* bits; the first is nobody's */
	/* By number. Nobody has number 0. */
	struct host_number {
		uint64_t key;
		uint32_t nexuses;
	} host[ACCT_OWNERS];
	struct name_number {
		char *name;
		uint32_t nexuses;
	} name[ACCT_OWNERS];
} streams = { .lock = PTHREAD_MUTEX_INITIALIZER, .taken = { 1 } };

/* What tells hosts apart: an IPv4 address, or half of an IPv6 one. */
static uint64_t host_key(const char *address)
{
	const char *v4 = strchr(address, '.') ? strrchr(address, ':') : NULL; /* mapped */
	uint8_t a[16] = { 0 };
	uint64_t key = 0;

	if (v4)
		address = v4 + 1;
	if (inet_pton(AF_INET, address, a + 4) == 1)
		a[3] = 1; /* no IPv6 address begins so */
	else if (inet_pton(AF_INET6, address, a) != 1)
		return UINT64_MAX;
	for (unsigned i = 0; i < 8; i++)
		key = key << 8 | a[i];
	return key;
}

static uint32_t number_host(uint64_t key)
{
	uint32_t n = 0;

	for (uint32_t i = 1; i < ACCT_OWNERS; i++) {
		const struct host_number *h = &streams.host[i];

		if (h->nexuses && h->key == key) {
			n = i;
			break;
		}
		if (!n && !h->nexuses)
			n = i;
	}
	if (!n)
		n = (uint32_t)(1 + key % (ACCT_OWNERS - 1));
	else
		streams.host[n].key = key;
	streams.host[n].nexuses++;
	return n;
}

/* The number that @name shares, always the same. Nobody can tell which: else a host that logs in
 * under names of its choice could spend what another initiator may owe. */
static uint32_t shared_number(const char *name)
{
	static uint64_t seed;
	uint64_t h;

	if (!seed && getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
		seed = 1;
	h = seed;
	for (const char *c = name; *c; c++) {
		h = (h ^ (uint8_t)tolower((unsigned char)*c)) * 0x9e3779b97f4a7c15;
		h ^= h >> 32;
	}
	return (uint32_t)(1 + h % (ACCT_OWNERS - 1));
}

/* Names have no case (RFC 7143 4.2.7.2): another spelling is the same initiator. */
static uint32_t number_name(const char *name)
{
	uint32_t n = 0;

	for (uint32_t i = 1; i < ACCT_OWNERS; i++) {
		const struct name_number *h = &streams.name[i];

		if (h->name && !strcasecmp(h->name, name)) {
			n = i;
			break;
		}
		if (!n && !h->nexuses)
			n = i;
	}
	if (!n)
		n = shared_number(name);
	else if (!streams.name[n].nexuses)
		streams.name[n].name = strdup(name); /* NULL: nobody finds it, and it has one */
	streams.name[n].nexuses++;
	return n;
}

uint64_t scsi_stream_take(const char *address, const char *name)
{
	const uint64_t key = host_key(address);
	uint32_t place = 0;
	uint64_t id;

	pthread_mutex_lock(&streams.lock);
	for (uint32_t i = 0; i < PLACES / 64; i++)
		if (~streams.taken[i]) {
			place = i * 64 + (uint32_t)__builtin_ctzll(~streams.taken[i]);
			streams.taken[i] |= 1ull << place % 64;
			break;
		}
	/* With more than PLACES of them, the others share place 0 and do not give it back. */
	id = ++streams.serial << STREAM_SERIAL_SHIFT |
	     (uint64_t)number_name(name) << STREAM_NAME_SHIFT |
	     (uint64_t)number_host(key) << STREAM_HOST_SHIFT | place;
	pthread_mutex_unlock(&streams.lock);
	return id;
}

void scsi_stream_give_back(uint64_t id)
{
	const uint32_t place = id % PLACES, host = id >> STREAM_HOST_SHIFT & (ACCT_OWNERS - 1),
		       name = id >> STREAM_NAME_SHIFT & (ACCT_OWNERS - 1);

	pthread_mutex_lock(&streams.lock);
	if (place)
		streams.taken[place / 64] &= ~(1ull << place % 64);
	ASSERT(streams.host[host].nexuses);
	streams.host[host].nexuses--;
	ASSERT(streams.name[name].nexuses);
	if (!--streams.name[name].nexuses) {
		free(streams.name[name].name);
		streams.name[name].name = NULL;
	}
	pthread_mutex_unlock(&streams.lock);
}
