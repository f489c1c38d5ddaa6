/* SPDX-License-Identifier: GPL-2.0-or-later */
/* By which numbers the cache knows who asks: a host and an initiator have one each while any of
 * their sessions is there. */
#include <stdio.h>
#include <string.h>
#include "cache/engine/account.h"
#include "tests/support/unit.h"
#include "tgtd/scsi/stream_id.h"

#define OWNERS (ACCT_OWNERS - 1)

static unsigned place_of(uint64_t id)
{
	return id & ((1u << STREAM_HOST_SHIFT) - 1);
}

static unsigned host_of(uint64_t id)
{
	return id >> STREAM_HOST_SHIFT & (ACCT_OWNERS - 1);
}

static unsigned name_of(uint64_t id)
{
	return id >> STREAM_NAME_SHIFT & (ACCT_OWNERS - 1);
}

START_TEST(hosts_and_names)
{
	const uint64_t a = scsi_stream_take("192.0.2.1", "iqn.a"),
		       b = scsi_stream_take("::ffff:192.0.2.1", "iqn.b"),
		       c = scsi_stream_take("192.0.2.2", "iqn.a"),
		       d = scsi_stream_take("2001:db8:1:2::3", "iqn.c"),
		       e = scsi_stream_take("2001:db8:1:2:4::5", "iqn.d"),
		       f = scsi_stream_take("2001:db8:1:3::3", "iqn.d"),
		       g = scsi_stream_take("::1", "iqn.e"), h = scsi_stream_take("?", "iqn.f");
	const uint64_t all[] = { a, b, c, d, e, f, g, h };

	for (unsigned i = 0; i < 8; i++) {
		ck_assert_uint_ne(host_of(all[i]), 0);
		ck_assert_uint_ne(name_of(all[i]), 0);
		for (unsigned k = 0; k < i; k++)
			ck_assert_uint_ne(place_of(all[i]), place_of(all[k]));
	}
	ck_assert_uint_eq(host_of(a), host_of(b));
	ck_assert_uint_ne(host_of(a), host_of(c));
	ck_assert_uint_eq(host_of(d), host_of(e));
	ck_assert_uint_ne(host_of(d), host_of(f));
	ck_assert_uint_ne(host_of(g), host_of(h));
	ck_assert_uint_ne(host_of(g), host_of(a));
	ck_assert_uint_eq(name_of(a), name_of(c));
	ck_assert_uint_ne(name_of(a), name_of(b));
	ck_assert_uint_eq(name_of(e), name_of(f));
	/* Spellings are one name: else each would have what a name may have. */
	const uint64_t spelled = scsi_stream_take("192.0.2.3", "IQN.A");

	ck_assert_uint_eq(name_of(spelled), name_of(a));
	scsi_stream_give_back(spelled);
	scsi_stream_give_back(a);
	/* One of its sessions is there still. */
	const uint64_t again = scsi_stream_take("192.0.2.9", "iqn.a");

	ck_assert_uint_eq(name_of(again), name_of(c));
	ck_assert_uint_eq(place_of(again), place_of(a));
	ck_assert_uint_ne(again, a);
	scsi_stream_give_back(again);
	for (unsigned i = 1; i < 8; i++)
		scsi_stream_give_back(all[i]);
}
END_TEST

/* Many names and hosts share numbers, and all that share one have one bound: nobody is without. As
 * long as there are 255 of them each has its own. */
START_TEST(very_many)
{
	static uint64_t id[2 * OWNERS];
	bool seen[2][ACCT_OWNERS];
	char address[64], name[64];

	for (unsigned pass = 0; pass < 3; pass++) { /* nothing is lost */
		const uint64_t mine = scsi_stream_take("198.51.100.1", "iqn.mine");

		memset(seen, 0, sizeof(seen));
		seen[0][host_of(mine)] = seen[1][name_of(mine)] = true;
		for (unsigned i = 0; i < 2 * OWNERS; i++) {
			snprintf(address, sizeof(address), "10.0.%u.%u", i >> 8, i & 255);
			snprintf(name, sizeof(name), "iqn.%u", i);
			id[i] = scsi_stream_take(address, name);
			ck_assert_uint_ne(host_of(id[i]), 0);
			ck_assert_uint_ne(name_of(id[i]), 0);
			if (i < OWNERS - 1) {
				ck_assert(!seen[0][host_of(id[i])]);
				ck_assert(!seen[1][name_of(id[i])]);
			}
			seen[0][host_of(id[i])] = seen[1][name_of(id[i])] = true;
		}
		scsi_stream_give_back(mine);
		for (unsigned i = 0; i < 2 * OWNERS; i++)
			scsi_stream_give_back(id[(i + pass * 100) % (2 * OWNERS)]);
	}
}
END_TEST

/* A name that came when all numbers were taken has one bound all the same, wherever its sessions
 * come from and however it is spelled; and such names lie on many numbers, not on one. */
START_TEST(names_beyond)
{
	enum { BEYOND = 1000 };
	static uint64_t id[OWNERS], more[BEYOND], again[BEYOND];
	unsigned of[ACCT_OWNERS] = { 0 };
	char address[64], name[64];

	for (unsigned i = 0; i < OWNERS; i++) {
		snprintf(name, sizeof(name), "iqn.flood-%u", i);
		id[i] = scsi_stream_take("10.0.0.1", name);
	}
	for (unsigned i = 0; i < BEYOND; i++) {
		snprintf(address, sizeof(address), "10.1.%u.%u", i >> 8, i & 255);
		snprintf(name, sizeof(name), "iqn.late-%u", i);
		more[i] = scsi_stream_take(address, name);
		snprintf(name, sizeof(name), "IQN.Late-%u", i);
		again[i] = scsi_stream_take("10.0.0.1", name);
		ck_assert_uint_ne(name_of(more[i]), 0);
		ck_assert_uint_eq(name_of(again[i]), name_of(more[i]));
		of[name_of(more[i])]++;
	}
	for (unsigned i = 1; i < ACCT_OWNERS; i++)
		ck_assert_uint_le(of[i], 30); /* 4 on average */
	/* Who had the numbers leaves; those who share them are still there. */
	for (unsigned i = 0; i < OWNERS; i++)
		scsi_stream_give_back(id[i]);
	for (unsigned i = 0; i < BEYOND; i++) {
		scsi_stream_give_back(more[i]);
		scsi_stream_give_back(again[i]);
	}
	const uint64_t last = scsi_stream_take("10.0.0.1", "iqn.last");

	ck_assert_uint_eq(name_of(last), 1); /* all are free again */
	scsi_stream_give_back(last);
}
END_TEST

/* Who comes when all places are taken has none, and gives none back. */
START_TEST(more_than_places)
{
	static uint64_t id[5000];
	unsigned without = 0;

	for (unsigned i = 0; i < 5000; i++) {
		id[i] = scsi_stream_take("192.0.2.1", "iqn.a");
		without += !place_of(id[i]);
	}
	ck_assert_uint_eq(without, 5000 - ((1u << STREAM_HOST_SHIFT) - 1));
	for (unsigned i = 0; i < 5000; i++)
		scsi_stream_give_back(id[i]);
	const uint64_t last = scsi_stream_take("192.0.2.1", "iqn.a");

	ck_assert_uint_eq(place_of(last), 1);
	scsi_stream_give_back(last);
}
END_TEST

UNIT_MAIN("stream_id", 30, hosts_and_names, very_many, names_beyond, more_than_places)
