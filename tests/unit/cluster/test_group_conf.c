/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgtd --group: what says which gateways there are, and the secret of their mirrors. */
#include <errno.h>
#include <stdio.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>
#include "events/secret.h"
#include "tests/support/unit.h"
#include "tgtd/cluster/live/mirror_link.h"
#include "tgtd/group_file.h"

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

START_TEST(mirrors)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&c.gateway[1].address;
	const struct sockaddr_in *four = (const struct sockaddr_in *)&c.gateway[0].address;

	ck_assert_int_eq(parse("name=g,gateways=a:1@192.0.2.1+b:2@[2001:db8::1]:7000+c:3,self=c,"
			       "secret-file=/etc/tgt/s,memory=1g"),
			 0);
	ck_assert(c.mirrors);
	ck_assert_str_eq(c.secret_file, "/etc/tgt/s");
	ck_assert_ptr_null(c.secret);
	ck_assert_uint_eq(c.memory, GiB(1));
	ck_assert_uint_eq(four->sin_family, AF_INET);
	ck_assert_uint_eq(ntohs(four->sin_port), MIRROR_PORT);
	ck_assert_uint_eq(ntohl(four->sin_addr.s_addr), 0xc0000201);
	ck_assert_str_eq(c.gateway[0].address_text, "192.0.2.1:7260");
	ck_assert_uint_eq(six->sin6_family, AF_INET6);
	ck_assert_uint_eq(ntohs(six->sin6_port), 7000);
	ck_assert_str_eq(c.gateway[1].address_text, "[2001:db8::1]:7000");
	ck_assert_uint_eq(c.gateway[2].address.ss_family, AF_UNSPEC);
	ck_assert_str_eq(c.gateway[2].address_text, "");
	/* Without them. */
	ck_assert_int_eq(parse("name=g,gateways=a:1+b:2,self=a"), 0);
	ck_assert(!c.mirrors);
	ck_assert_uint_eq(c.memory, 0);
	ck_assert_int_eq(parse("name=g,gateways=a:1@::1+b:2@127.0.0.1:9,self=a,secret-file=/s"), 0);
	ck_assert_uint_eq(c.memory, GROUP_MEMORY);
	ck_assert_str_eq(c.gateway[0].address_text, "[::1]:7260");
	ck_assert_int_eq(parse("name=g,gateways=a:1@::1+b:2@::2,self=a,secret-file=/s,memory=16M"),
			 0);
	ck_assert_uint_eq(c.memory, MiB(16));
	ck_assert_int_eq(parse("name=g,gateways=a:1@::1+b:2@::2,self=a,secret-file=/s,"
			       "memory=274877906944"),
			 0);
	ck_assert_uint_eq(c.memory, GROUP_MEMORY_MAX);
	ck_assert_int_eq(c.transport, MIRROR_AUTO);
	ck_assert_int_eq(parse("name=g,gateways=a:1@::1+b:2@::2,self=a,secret-file=/s,"
			       "transport=rdma"),
			 0);
	ck_assert_int_eq(c.transport, MIRROR_RDMA);
	ck_assert_int_eq(parse("name=g,gateways=a:1@::1+b:2@::2,self=a,secret-file=/s,"
			       "transport=tcp"),
			 0);
	ck_assert_int_eq(c.transport, MIRROR_TCP);
}
END_TEST

#define TWO "name=g,self=a,gateways=a:1@192.0.2.1+b:2@192.0.2.2"

START_TEST(mirrors_that_are_refused)
{
	static const char *const texts[][2] = {
		{ "name=g,self=a,gateways=a:1@", "no address" },
		{ "name=g,self=a,gateways=a:1@x", "no address" },
		{ "name=g,self=a,gateways=a:1@192.0.2.1:", "no address" },
		{ "name=g,self=a,gateways=a:1@192.0.2.1:0", "no address" },
		{ "name=g,self=a,gateways=a:1@192.0.2.1:65536", "no address" },
		{ "name=g,self=a,gateways=a:1@192.0.2.1:18446744073709551617", "no address" },
		{ "name=g,self=a,gateways=a:1@192.0.2.1:1x", "no address" },
		{ "name=g,self=a,gateways=a:1@[::1", "no address" },
		{ "name=g,self=a,gateways=a:1@[::1]1", "no address" },
		{ "name=g,self=a,gateways=a:1@[127.0.0.1]:1", "no address" },
		{ "name=g,self=a,gateways=a:1@0.0.0.0", "no address" },
		{ "name=g,self=a,gateways=a:1@[::]:1", "no address" },
		{ "name=g,self=a,gateways=a:1@224.0.0.1", "no address" },
		{ "name=g,self=a,gateways=a:1@ff02::1", "no address" },
		{ "name=g,self=a,gateways=a:1@255.255.255.255", "no address" },
		{ "name=g,self=a,gateways=a@1:192.0.2.1", "NAME:TAG" },
		{ "name=g,self=a,gateways=a:1@::1+b:2@[0::1]:7260", "two gateways have one" },
		{ TWO, "secret-file= is missing" },
		{ "name=g,self=a,gateways=a:1+b:2,memory=1g", "secret-file= is missing" },
		{ "name=g,self=a,gateways=a:1+b:2,secret-file=/s", "fewer than two" },
		{ "name=g,self=a,gateways=a:1@::1+b:2,secret-file=/s", "fewer than two" },
		{ "name=g,self=a,gateways=a:1+b:2,transport=tcp", "secret-file= is missing" },
		{ TWO ",secret-file=/s,transport=", "auto, tcp or rdma" },
		{ TWO ",secret-file=/s,transport=rdm", "auto, tcp or rdma" },
		{ TWO ",secret-file=s", "named from the root" },
		{ TWO ",secret-file=", "named from the root" },
		{ TWO ",secret-file=/s,memory=", "16m to 256g" },
		{ TWO ",secret-file=/s,memory=0", "16m to 256g" },
		{ TWO ",secret-file=/s,memory=16777215", "16m to 256g" },
		{ TWO ",secret-file=/s,memory=257g", "16m to 256g" },
		{ TWO ",secret-file=/s,memory=18014398509481985k", "16m to 256g" },
		{ TWO ",secret-file=/s,memory=1gb", "16m to 256g" },
		{ TWO ",secret-file=/s,memory=1p", "16m to 256g" },
		{ TWO ",secret-file=/s,memory=-1g", "16m to 256g" },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(texts); i++) {
		ck_assert_msg(parse(texts[i][0]) == -EINVAL, "'%s'", texts[i][0]);
		ck_assert_msg(strstr(why, texts[i][1]) != NULL, "'%s': %s", texts[i][0], why);
	}
}
END_TEST

/* @text in a file of @mode is c.secret; or not, and @fault is in the reason. */
static void secret(const char *text, mode_t mode, const char *fault)
{
	char path[] = "/tmp/group-secret-XXXXXX", conf[200];
	const int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
	snprintf(conf, sizeof(conf), TWO ",secret-file=%s", path);
	ck_assert_int_eq(parse(conf), 0);
	if (fault) {
		ck_assert_int_lt(group_read_secret(&c, why, sizeof(why)), 0);
		ck_assert_ptr_null(c.secret);
		ck_assert_msg(strstr(why, fault) && strstr(why, path), "%s", why);
	} else {
		ck_assert_msg(!group_read_secret(&c, why, sizeof(why)), "%s", why);
		ck_assert_uint_eq(strlen(c.secret), strcspn(text, "\r\n"));
		ck_assert(!strncmp(c.secret, text, strlen(c.secret)));
		secret_strfree(c.secret);
	}
	unlink(path);
}

START_TEST(secrets)
{
	char text[MIRROR_SECRET_MAX + 2];

	secret("sixteen letters!", 0600, NULL);
	secret("sixteen letters!\nand what is below", 0400, NULL);
	secret("sixteen letters!\r\n", 0600, NULL);
	secret("sixteen letters!", 0640, "others than its owner");
	secret("sixteen letters!", 0604, "others than its owner");
	secret("sixteen letters!", 0620, "others than its owner");
	secret("fifteen letters", 0600, "less than 16");
	secret("", 0600, "no password on the first line");
	secret("\nsixteen letters!", 0600, "no password on the first line");
	secret("sixteen\tletters!", 0600, "control characters");
	memset(text, 'x', sizeof(text));
	text[MIRROR_SECRET_MAX] = '\0';
	secret(text, 0600, NULL);
	text[MIRROR_SECRET_MAX] = 'x';
	text[MIRROR_SECRET_MAX + 1] = '\0';
	secret(text, 0600, "longer than 255");
	/* None, or no file. */
	ck_assert_int_eq(parse("name=g,gateways=a:1,self=a"), 0);
	ck_assert_int_eq(group_read_secret(&c, why, sizeof(why)), 0);
	ck_assert_ptr_null(c.secret);
	ck_assert_int_eq(parse(TWO ",secret-file=/nowhere/secret"), 0);
	ck_assert_int_eq(group_read_secret(&c, why, sizeof(why)), -ENOENT);
	ck_assert_ptr_nonnull(strstr(why, "/nowhere/secret"));
	ck_assert_int_eq(parse(TWO ",secret-file=/tmp"), 0);
	ck_assert_int_eq(group_read_secret(&c, why, sizeof(why)), -EISDIR);
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

UNIT_MAIN("group_conf", 20, all_words, what_is_not_said, what_is_refused, mirrors,
	  mirrors_that_are_refused, secrets, limits)
