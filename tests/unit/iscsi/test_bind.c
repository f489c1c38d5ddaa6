/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Portals that a target is bound to, as text; and which of our addresses they are. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include "tests/support/unit.h"
#include "tgtd/iscsi/portal.h"

static bool at(const char *list, int family, const char *ip, unsigned port)
{
	struct sockaddr_storage a;
	struct sockaddr_in6 *a6 = (struct sockaddr_in6 *)&a;
	struct sockaddr_in *a4 = (struct sockaddr_in *)&a;
	struct iscsi_bind b;

	memset(&a, 0, sizeof(a));
	a.ss_family = (sa_family_t)family;
	if (family == AF_INET6)
		a6->sin6_port = htons((uint16_t)port);
	else
		a4->sin_port = htons((uint16_t)port);
	ck_assert_int_eq(inet_pton(family, ip, family == AF_INET6 ? (void *)&a6->sin6_addr :
								    (void *)&a4->sin_addr),
			 1);
	ck_assert_int_eq(iscsi_bind_parse(list, &b), 0);
	return iscsi_bind_allows(&b, (struct sockaddr *)&a);
}

START_TEST(addresses)
{
	ck_assert(at("", AF_INET, "192.0.2.1", 3260));
	ck_assert(at("192.0.2.1", AF_INET, "192.0.2.1", 3260));
	ck_assert(!at("192.0.2.1", AF_INET, "192.0.2.1", 3261));
	ck_assert(!at("192.0.2.1", AF_INET, "192.0.2.2", 3260));
	ck_assert(at("192.0.2.9;192.0.2.1:77", AF_INET, "192.0.2.1", 77));
	/* of a socket for both families */
	ck_assert(at("192.0.2.1", AF_INET6, "::ffff:192.0.2.1", 3260));
	ck_assert(!at("192.0.2.1", AF_INET6, "::ffff:192.0.2.2", 3260));
	ck_assert(at("0.0.0.0:3260", AF_INET, "192.0.2.2", 3260));
	ck_assert(!at("0.0.0.0:3260", AF_INET6, "2001:db8::1", 3260));
	ck_assert(at("[::]:3260", AF_INET6, "2001:db8::1", 3260));
	ck_assert(!at("[::]:3260", AF_INET, "192.0.2.2", 3260));
	ck_assert(at("[2001:db8::1]:5;192.0.2.1", AF_INET6, "2001:db8::1", 5));
}
END_TEST

START_TEST(lists)
{
	static const char *const bad[] = { ";", "192.0.2.1;", ";192.0.2.1", "192.0.2.1,2", ":3260",
					   "192.0.2.1;192.0.2.1:3260", "nowhere", "192.0.2.1:0",
					   "192.0.2.1:65536", "[::1" };
	struct iscsi_bind b;
	char text[ISCSI_BIND_TEXT];

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(iscsi_bind_parse(bad[i], &b) == -EINVAL, "%s", bad[i]);
	ck_assert_int_eq(iscsi_bind_edit("", "192.0.2.1", true, text, sizeof(text)), 0);
	ck_assert_str_eq(text, "192.0.2.1:3260");
	ck_assert_int_eq(iscsi_bind_edit(text, "[2001:db8::1]:5", true, text, sizeof(text)), 0);
	ck_assert_str_eq(text, "192.0.2.1:3260;[2001:db8::1]:5");
	ck_assert_int_eq(iscsi_bind_edit(text, "192.0.2.1:3260", true, text, sizeof(text)),
			 -EEXIST);
	ck_assert_int_eq(iscsi_bind_edit(text, "192.0.2.2", false, text, sizeof(text)), -ENOENT);
	ck_assert_int_eq(iscsi_bind_edit(text, "a;b", true, text, sizeof(text)), -EINVAL);
	ck_assert_int_eq(iscsi_bind_edit("192.0.2.1;192.0.2.2", "192.0.2.1", false, text,
					 sizeof(text)),
			 0);
	ck_assert_str_eq(text, "192.0.2.2:3260");
	*text = 0;
	for (unsigned i = 1; i <= ISCSI_BIND_MAX; i++) {
		char one[32];

		snprintf(one, sizeof(one), "192.0.2.%u", i);
		ck_assert_int_eq(iscsi_bind_edit(text, one, true, text, sizeof(text)), 0);
	}
	ck_assert_int_eq(iscsi_bind_edit(text, "192.0.2.99", true, text, sizeof(text)), -ENOSPC);
}
END_TEST

UNIT_MAIN("bind", 10, addresses, lists)
