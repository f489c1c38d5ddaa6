/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Guessing CHAP secrets is slow. What counts is who tries what: an address (of IPv6 its /64) and an
 * account name. Up to FREE_TRIES wrong answers cost nothing; after them the next answer of the same
 * address and name is verified only after a delay that doubles up to DELAY_MAX. Failures are
 * forgotten by half in each FORGET_NS without another one.
 *
 * Nobody else waits: other addresses do not, nor do other accounts from the same one, which may be
 * many hosts behind one NAT. Answers that have to wait do so in a queue of their own, a few for
 * each pair and a quarter of all logins in sum; who finds it full is told to come back (status
 * 0302). Names are told apart by a keyed hash of a few bits, so that a table of fixed size
 * suffices, and that waiting does not tell which accounts there are. Main loop only.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>

#include "tgtd/iscsi/chap.h"
#include "tgtd/iscsi/core.h"

#define ENTRIES 1024
#define BUCKETS 256
#define NAMES 64
#define FREE_TRIES 3
#define WAITERS_MAX 6
#define DELAY_MIN (100 * NSEC_PER_MSEC)
#define DELAY_MAX (2 * NSEC_PER_SEC)
#define FORGET_NS (60 * NSEC_PER_SEC)

struct who {
	uint8_t address[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint8_t name;
};

struct tries {
	struct list bucket, age; /* the oldest first */
	struct who who;
	char user[48]; /* the last that was tried, for people to read */
	unsigned failures;
	uint64_t total, last_ns, next_ns;
	struct list waiters; /* iscsi_conn.wait_link */
	unsigned nwaiters;
	struct timer timer;
};

static struct {
	struct tries entry[ENTRIES];
	unsigned used;
	struct list bucket[BUCKETS], age;
	unsigned nwaiters;
	uint32_t key;
} table;

void iscsi_tries_start(void)
{
	table.used = 0;
	for (unsigned i = 0; i < BUCKETS; i++)
		list_init(&table.bucket[i]);
	list_init(&table.age);
	if (chap_random(&table.key, sizeof(table.key)))
		table.key = 0;
}

static uint32_t tries_hash(uint32_t h, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len--)
		h = (h ^ *p++) * 0x01000193u; /* FNV-1a, from a random start */
	return h ^ h >> 15;
}

static struct who who_is(const struct sockaddr_storage *peer, const char *user)
{
	const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)peer;
	const struct sockaddr_in *a4 = (const struct sockaddr_in *)peer;
	struct who w = { .name = tries_hash(table.key, user, strlen(user)) % NAMES };

	if (peer->ss_family == AF_INET6) {
		bool v4 = IN6_IS_ADDR_V4MAPPED(&a6->sin6_addr);

		memcpy(w.address, &a6->sin6_addr, v4 ? 16 : 8);
	} else if (peer->ss_family == AF_INET) {
		w.address[10] = w.address[11] = 0xff;
		memcpy(w.address + 12, &a4->sin_addr, 4);
	}
	return w;
}

static struct list *bucket_for(const struct who *w)
{
	return &table.bucket[tries_hash(table.key, w, sizeof(*w)) % BUCKETS];
}

static struct tries *find_tries(const struct iscsi_conn *conn, const char *user)
{
	struct who w = who_is(&conn->peer, user);
	struct tries *t;

	list_for_each(t, bucket_for(&w), bucket)
		if (!memcmp(&t->who, &w, sizeof(w)))
			return t;
	return NULL;
}

/* Whose turn it is; also when nobody waits any more. */
static void tries_turn(struct timer *timer)
{
	struct tries *t = container_of(timer, struct tries, timer);
	uint64_t now = loop_now(iscsi_core.main);

	while (t->nwaiters && now >= t->next_ns) {
		struct iscsi_conn *conn = list_first(&t->waiters, struct iscsi_conn, wait_link);

		iscsi_tries_leave(conn);
		conn->try_granted = true;
		conn->login_wake(conn); /* a wrong answer puts the next one off */
	}
	if (t->nwaiters && !timer_armed(&t->timer))
		loop_timer_arm(iscsi_core.main, &t->timer, t->next_ns - now);
}

/* NULL: all of them are in use by those who wait. */
static struct tries *new_tries(const struct iscsi_conn *conn, const char *user)
{
	struct tries *t = NULL, *old;

	if (table.used < ENTRIES) {
		t = &table.entry[table.used++];
	} else {
		list_for_each(old, &table.age, age)
			if (!old->nwaiters) {
				t = old;
				break;
			}
		if (!t)
			return NULL;
		list_del(&t->bucket);
		list_del(&t->age);
		loop_timer_cancel(iscsi_core.main, &t->timer);
	}
	*t = (struct tries){ .who = who_is(&conn->peer, user) };
	list_init(&t->waiters);
	timer_init(&t->timer, tries_turn);
	list_init(&t->bucket);
	list_init(&t->age);
	list_add_tail(bucket_for(&t->who), &t->bucket);
	list_add_tail(&table.age, &t->age);
	return t;
}

static void forget_some(struct tries *t, uint64_t now)
{
	uint64_t halves = (now - t->last_ns) / FORGET_NS;

	t->failures = halves < 32 ? t->failures >> halves : 0;
}

uint16_t iscsi_tries_may(struct iscsi_conn *conn, const char *user)
{
	uint64_t now = loop_now(iscsi_core.main);
	struct tries *t;

	ASSERT_ON_MAIN();
	if (conn->try_granted) {
		conn->try_granted = false;
		return LOGIN_OK;
	}
	t = find_tries(conn, user);
	if (!t || (now >= t->next_ns && !t->nwaiters))
		return LOGIN_OK;
	if (t->nwaiters >= WAITERS_MAX || table.nwaiters >= iscsi_core.conf.max_half_open / 4) {
		metric_inc(M_iscsi_auth_refused);
		return LOGIN_OUT_OF_RESOURCES;
	}
	metric_inc(M_iscsi_auth_delayed);
	list_add_tail(&t->waiters, &conn->wait_link);
	conn->try_waits = t;
	t->nwaiters++;
	table.nwaiters++;
	if (!timer_armed(&t->timer))
		loop_timer_arm(iscsi_core.main, &t->timer, t->next_ns > now ? t->next_ns - now : 0);
	return LOGIN_PENDING;
}

void iscsi_tries_leave(struct iscsi_conn *conn)
{
	struct tries *t = conn->try_waits;

	if (!t)
		return;
	ASSERT(t->nwaiters && table.nwaiters);
	list_del(&conn->wait_link);
	conn->try_waits = NULL;
	t->nwaiters--;
	table.nwaiters--;
	if (!t->nwaiters)
		loop_timer_cancel(iscsi_core.main, &t->timer);
}

void iscsi_tries_failed(struct iscsi_conn *conn, const char *user)
{
	uint64_t now = loop_now(iscsi_core.main);
	struct tries *t = find_tries(conn, user);

	ASSERT_ON_MAIN();
	metric_inc(M_iscsi_auth_failures);
	t = t ?: new_tries(conn, user);
	if (!t)
		return;
	forget_some(t, now);
	t->failures++;
	t->total++;
	t->last_ns = now;
	snprintf(t->user, sizeof(t->user), "%s", user);
	for (char *p = t->user; *p; p++)
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			*p = '?';
	list_del(&t->age);
	list_add_tail(&table.age, &t->age);
	if (t->failures > FREE_TRIES) {
		unsigned doubled = MIN(t->failures - FREE_TRIES - 1, 16u);

		t->next_ns = now + MIN(DELAY_MIN << doubled, DELAY_MAX);
	}
}

void iscsi_failed_logins_each(void (*fn)(const struct iscsi_failed_logins *f, void *arg),
			      void *arg)
{
	uint64_t now = loop_now(iscsi_core.main);
	struct tries *t;

	ASSERT_ON_MAIN();
	list_for_each(t, &table.age, age) {
		struct iscsi_failed_logins f = { .failures = t->total,
						 .waiting = t->nwaiters,
						 .seconds = (now - t->last_ns) / NSEC_PER_SEC,
						 .user = t->user };
		bool v4 = IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)t->who.address);

		if (v4)
			inet_ntop(AF_INET, t->who.address + 12, f.address, sizeof(f.address));
		else
			inet_ntop(AF_INET6, t->who.address, f.address, sizeof(f.address));
		if (!v4)
			strcat(f.address, "/64");
		fn(&f, arg);
	}
}
