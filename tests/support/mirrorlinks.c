/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See mirrorlinks.h. */
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "tests/support/mirrorlinks.h"

struct loop *main_loop, *event[LOOPS];

void nap(unsigned ms)
{
	const struct timespec ts = { .tv_nsec = (long)ms * 1000000 };

	nanosleep(&ts, NULL);
}

void mirrorlinks_loops_start(void)
{
	struct loop_conf conf = { .name = "main", .node = -1, .cpu = -1, .may_block = true };

	ck_assert_ptr_nonnull(main_loop = loop_create(&conf));
	ck_assert_int_eq(loop_start(main_loop), 0);
	conf.name = "event";
	for (unsigned i = 0; i < LOOPS; i++) {
		ck_assert_ptr_nonnull(event[i] = loop_create(&conf));
		ck_assert_int_eq(loop_start(event[i]), 0);
	}
}

void mirrorlinks_loops_end(void)
{
	for (unsigned i = 0; i < LOOPS; i++)
		loop_end(event[i]);
	loop_end(main_loop);
}

struct sockaddr_in mirrorlinks_loopback(unsigned port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons((uint16_t)port),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

struct mirror_links_conf mirrorlinks_conf(unsigned self, const char *secret)
{
	const struct sockaddr_in at = mirrorlinks_loopback(0);
	struct mirror_links_conf conf = { .self = self,
					  .gateways = 2,
					  .group = "g",
					  .secret = secret,
					  .secret_len = strlen(secret),
					  .main = main_loop,
					  .loop = event,
					  .loops = LOOPS };

	memcpy(&conf.address[self], &at, sizeof(at));
	return conf;
}

void mirrorlinks_meet(struct mirror_links *zero, struct mirror_links *one)
{
	struct sockaddr_in at = mirrorlinks_loopback(mirror_links_port(one));

	mirror_links_address(zero, 1, (struct sockaddr *)&at, sizeof(at));
	at = mirrorlinks_loopback(mirror_links_port(zero));
	mirror_links_address(one, 0, (struct sockaddr *)&at, sizeof(at));
}

struct stopping {
	struct mirror_links *links;
	_Atomic bool ended;
};

static void have_ended(void *arg)
{
	((struct stopping *)arg)->ended = true;
}

static void stop_on_main(void *arg)
{
	struct stopping *s = arg;

	mirror_links_stop(s->links, have_ended, s);
}

void mirrorlinks_stop(struct mirror_links *links)
{
	struct stopping s = { .links = links };

	loop_call(main_loop, stop_on_main, &s);
	await(s.ended);
}
