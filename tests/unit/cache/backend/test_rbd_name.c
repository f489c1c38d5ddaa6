/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What names an image of a Ceph cluster: the path, and tgt's words of its bsopts. */
#include <stdio.h>
#include <stdlib.h>
#include "cache/backend/rbd_name.h"
#include "tests/support/unit.h"

static const char *named(const char *path, const char *opts)
{
	static char text[1200];
	struct rbd_name n;
	char why[200] = "";
	int err = rbd_name_parse(&n, path, opts, why, sizeof(why));

	if (err) {
		ck_assert_int_eq(err, -EINVAL);
		ck_assert_int_ne(*why, 0);
		return "refused";
	}
	snprintf(text, sizeof(text), "%s|%s|%s %s|%s|%s|%s", n.conf, n.user, n.cluster, n.pool,
		 n.space, n.image, n.snap);
	return text;
}

START_TEST(paths)
{
	ck_assert_str_eq(named("pool/image", NULL), "|client.admin|ceph pool||image|");
	ck_assert_str_eq(named("image", NULL), "|client.admin|ceph rbd||image|");
	ck_assert_str_eq(named("p/i@s", ""), "|client.admin|ceph p||i|s");
	ck_assert_str_eq(named("i@s/t", ""), "|client.admin|ceph rbd||i|s/t");
	ck_assert_str_eq(named("p/n/i@s", ""), "|client.admin|ceph p|n|i|s");
	ck_assert_str_eq(named("", NULL), "refused");
	ck_assert_str_eq(named("/i", NULL), "refused");
	ck_assert_str_eq(named("p/", NULL), "refused");
	ck_assert_str_eq(named("p//i", NULL), "refused");
	ck_assert_str_eq(named("p/n/i/x", NULL), "refused");
	ck_assert_str_eq(named("p/i@", NULL), "refused");
	ck_assert_str_eq(named("p/i@s@t", NULL), "refused");
	ck_assert_str_eq(named("p/@s", NULL), "refused");
}
END_TEST

START_TEST(options)
{
	ck_assert_str_eq(named("i", "conf=/etc/ceph/ceph.conf;id=admin;cluster=ceph"),
			 "/etc/ceph/ceph.conf|client.admin|ceph rbd||i|");
	ck_assert_str_eq(named("i", "cache=none,id=client.tgt,share=no;cluster=east"),
			 "|client.tgt|east rbd||i|");
	ck_assert_str_eq(named("i", "id=client."), "|client.client.|ceph rbd||i|");
	ck_assert_str_eq(named("i", ";;,cache=none;"), "|client.admin|ceph rbd||i|");
	ck_assert_str_eq(named("i", "conf="), "refused");
	ck_assert_str_eq(named("i", "id=;conf=/x"), "refused");
	ck_assert_str_eq(named("i", "cluster=,id=a"), "refused");
}
END_TEST

/* Each part up to its limit, and not a byte more: ASan sees the rest. */
START_TEST(long_names)
{
	struct rbd_name n;
	char path[700], part[160], why[64];

	for (unsigned len = 120; len < 136; len++) {
		const char *const how[] = { "%s/i", "p/%s/i", "p/%s", "p/i@%s" };

		memset(part, 'x', len);
		part[len] = '\0';
		for (unsigned k = 0; k < ARRAY_SIZE(how); k++) {
			snprintf(path, sizeof(path), how[k], part);
			ck_assert_int_eq(rbd_name_parse(&n, path, NULL, why, sizeof(why)),
					 len < 128 ? 0 : -EINVAL);
		}
	}
	memset(path, 'x', sizeof(path));
	memcpy(path, "conf=", 5);
	path[sizeof(path) - 1] = '\0';
	ck_assert_int_eq(rbd_name_parse(&n, "i", path, why, sizeof(why)), -EINVAL);
	path[5 + sizeof(n.conf) - 1] = '\0';
	ck_assert_int_eq(rbd_name_parse(&n, "i", path, why, sizeof(why)), 0);
	path[5 + sizeof(n.conf) - 1] = 'x';
	memcpy(path + 3, "id=", 3);
	for (unsigned len = 60; len < 70; len++) {
		path[6 + len] = '\0';
		ck_assert_int_eq(rbd_name_parse(&n, "i", path + 3, why, sizeof(why)),
				 len < sizeof(n.user) - 7 ? 0 : -EINVAL);
		path[6 + len] = 'x';
	}
}
END_TEST

UNIT_MAIN("rbd_name", 60, paths, options, long_names)
