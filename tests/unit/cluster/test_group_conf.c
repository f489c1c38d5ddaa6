/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgtd --group: what says which gateways there are. */
#include <errno.h>
#include <stdio.h>
#include "tests/support/unit.h"
#include "tgtd/cluster/live/group.h"

static struct group_conf c;
static char why[200];

static int parse(const char *text)
{
	*why = 0;
	return group_parse(&c, text, why, sizeof(why));
}

START_TEST(all_words)
{
	ck_assert_int_eq(parse("name=g,gateways=a:11+b.c:65535,self=b.c,pool=p,conf=/x/y.conf,id=u,"
			       "cluster=k"),
			 0);
	ck_assert_str_eq(c.name, "g");
	ck_assert_uint_eq(c.n, 2);
	ck_assert_uint_eq(c.self, 1);
	ck_assert_str_eq(c.gateway[0].name, "a");
	ck_assert_uint_eq(c.gateway[0].id, 11);
	ck_assert_str_eq(c.gateway[1].name, "b.c");
	ck_assert_uint_eq(c.gateway[1].id, 65535);
	ck_assert_str_eq(c.pool, "p");
	ck_assert_str_eq(c.conf, "/x/y.conf");
	ck_assert_str_eq(c.user, "client.u");
	ck_assert_str_eq(c.cluster, "k");
}
END_TEST

START_TEST(what_is_not_said)
{
	ck_assert_int_eq(parse("self=a,gateways=a:1,name=g,"), 0);
	ck_assert_str_eq(c.pool, "rbd");
	ck_assert_str_eq(c.conf, "");
	ck_assert_str_eq(c.user, "client.admin");
	ck_assert_str_eq(c.cluster, "ceph");
}
END_TEST

START_TEST(what_is_refused)
{
	static const char *const texts[] = {
		"",
		"name",
		"name=",
		"name=g",
		"name=g,gateways=a:1",	      /* who is this one? */
		"name=g,gateways=a:1,self=b", /* none of them */
		"gateways=a:1,self=a",	      /* of which group? */
		"name=g,self=a",	      /* no gateways */
		"name=g,gateways=,self=a",
		"name=g,gateways=a,self=a", /* no number */
		"name=g,gateways=a:,self=a",
		"name=g,gateways=a:0,self=a",
		"name=g,gateways=a:65536,self=a",
		"name=g,gateways=a:-1,self=a",
		"name=g,gateways=a:+1,self=a",
		"name=g,gateways=a: 1,self=a",
		"name=g,gateways=a:1x,self=a",
		"name=g,gateways=a:18446744073709551617,self=a",
		"name=g,gateways=:1,self=a",
		"name=g,gateways=a:1+a:2,self=a", /* two of a name, of a number */
		"name=g,gateways=a:1+b:1,self=a",
		"name=g,gateways=a:1,gateways=b:2,self=a",
		"name=g/h,gateways=a:1,self=a", /* names of objects are made of these */
		"name=g,gateways=a b:1,self=a b",
		"name=g,gateways=a:1,self=a,colour=red",
		"name=g,gateways=a:1,self=a,pool=",
	};

	for (unsigned i = 0; i < ARRAY_SIZE(texts); i++) {
		ck_assert_msg(parse(texts[i]) == -EINVAL, "'%s'", texts[i]);
		ck_assert_msg(*why, "'%s'", texts[i]);
	}
}
END_TEST

START_TEST(limits)
{
	char text[1024], name[GROUP_NAME_MAX + 1];
	size_t n = (size_t)snprintf(text, sizeof(text), "name=g,self=g1,gateways=");

	for (unsigned i = 1; i <= SCSI_GATEWAYS_MAX; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%sg%u:%u", i > 1 ? "+" : "", i,
				      i);
	ck_assert_int_eq(parse(text), 0);
	ck_assert_uint_eq(c.n, SCSI_GATEWAYS_MAX);
	snprintf(text + n, sizeof(text) - n, "+g17:17");
	ck_assert_int_eq(parse(text), -EINVAL);
	memset(name, 'n', sizeof(name));
	name[GROUP_NAME_MAX - 1] = 0;
	snprintf(text, sizeof(text), "name=%s,gateways=a:1,self=a", name);
	ck_assert_int_eq(parse(text), 0);
	name[GROUP_NAME_MAX - 1] = 'n';
	name[GROUP_NAME_MAX] = 0;
	snprintf(text, sizeof(text), "name=%s,gateways=a:1,self=a", name);
	ck_assert_int_eq(parse(text), -EINVAL);
}
END_TEST

UNIT_MAIN("group_conf", 20, all_words, what_is_not_said, what_is_refused, limits)
