/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What tests of the links between two gateways (tgtd/cluster/live/mirror_link.h) stand on: the
 * loops of both, which are theirs together, and how they find each other. From the test's thread,
 * which is none of these loops.
 */
#ifndef TESTS_SUPPORT_MIRRORLINKS_H
#define TESTS_SUPPORT_MIRRORLINKS_H

#include <check.h>
#include <netinet/in.h>

#include "events/clock.h"
#include "tgtd/cluster/live/mirror_link.h"

#define LOOPS 3
#define PATIENCE_S 60

extern struct loop *main_loop, *event[LOOPS];

void nap(unsigned ms);

/* Until @condition holds; fails the test after PATIENCE_S. */
#define await(condition)                                                                           \
	do {                                                                                       \
		for (uint64_t end_ = clock_now_ns() + PATIENCE_S * NSEC_PER_SEC; !(condition);) {  \
			ck_assert_msg(clock_now_ns() < end_, "not: " #condition);                  \
			nap(1);                                                                    \
		}                                                                                  \
	} while (0)

void mirrorlinks_loops_start(void);
/* All links have ended. */
void mirrorlinks_loops_end(void);

struct sockaddr_in mirrorlinks_loopback(unsigned port);
/* Of a group of two: gateway @self, which listens at a free port, with all loops. @secret is the
 * caller's for as long as the links live. */
struct mirror_links_conf mirrorlinks_conf(unsigned self, const char *secret);
/* Gateways 0 and 1 learn where the other one listens. On the main loop. */
void mirrorlinks_meet(struct mirror_links *zero, struct mirror_links *one);
/* Until @links have ended, which are stopped on the main loop. */
void mirrorlinks_stop(struct mirror_links *links);

#endif
