/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The mailbox alone: nothing lost, nothing doubled, order per
 * producer, "was empty" told exactly. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "events/mailbox.h"
#include "tests/support/unit.h"

struct note {
	struct loop_msg msg;
	unsigned producer, number;
};

static void unused(struct loop_msg *msg)
{
}

START_TEST(takes_all_oldest_first)
{
	struct note n[5];
	struct loop_msg *m;
	struct mailbox box;

	mailbox_init(&box);
	ck_assert(!mailbox_pending(&box));
	ck_assert_ptr_null(mailbox_take(&box));
	for (unsigned i = 0; i < 5; i++) {
		n[i] = (struct note){ .msg.handle = unused, .number = i };
		ck_assert_int_eq(mailbox_push(&box, &n[i].msg), i == 0);
	}
	ck_assert(mailbox_pending(&box));
	m = mailbox_take(&box);
	for (unsigned i = 0; i < 5; i++, m = m->next)
		ck_assert_ptr_eq(m, &n[i].msg);
	ck_assert_ptr_null(m);
	ck_assert(!mailbox_pending(&box));
	ck_assert(mailbox_push(&box, &n[0].msg));
}
END_TEST

#define PRODUCERS 8
#define EACH 30000

static struct mailbox shared;
static _Atomic unsigned found_empty;
static _Atomic bool go;

static void *produce(void *arg)
{
	unsigned producer = (unsigned)(uintptr_t)arg;

	while (!go)
		sched_yield();
	for (unsigned i = 0; i < EACH; i++) {
		struct note *n = malloc(sizeof(*n));

		*n = (struct note){ .msg.handle = unused, .producer = producer, .number = i };
		if (mailbox_push(&shared, &n->msg))
			found_empty++;
	}
	return NULL;
}

START_TEST(storm)
{
	unsigned next[PRODUCERS] = { 0 }, seen = 0, batches = 0;
	struct loop_msg *m, *after;
	pthread_t t[PRODUCERS];

	mailbox_init(&shared);
	for (unsigned i = 0; i < PRODUCERS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, produce, (void *)(uintptr_t)i), 0);
	go = true;
	while (seen < PRODUCERS * EACH) {
		m = mailbox_take(&shared);
		if (!m) {
			sched_yield();
			continue;
		}
		batches++;
		for (; m; m = after) {
			struct note *n = container_of(m, struct note, msg);

			after = m->next;
			if (n->number != next[n->producer])
				ck_abort_msg("producer %u: %u instead of %u", n->producer,
					     n->number, next[n->producer]);
			next[n->producer]++;
			seen++;
			free(n);
		}
	}
	for (unsigned i = 0; i < PRODUCERS; i++)
		pthread_join(t[i], NULL);
	/* A wake-up is owed once a batch: exactly as often as the box
	 * was filled, it was emptied. */
	ck_assert_uint_eq(found_empty, batches);
	ck_assert(!mailbox_pending(&shared));
}
END_TEST

UNIT_MAIN("mt_mailbox", 30, takes_all_oldest_first, storm)
