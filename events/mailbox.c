/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The mailbox is a Treiber stack that is only ever emptied as a whole, which is why it has no ABA
 * problem: no one pops a single element, so a head that changed away and
 * back is still a right head.
 *
 *     push:   head -> C -> B -> A          (newest first)
 *     take:   head := NULL, then A, B, C   (reversed: oldest first)
 *
 * Memory order: see README.md, "Going to sleep". The exchange in push must be sequentially
 * consistent, because its caller goes on to read the loop's sleeping flag, and that read may not
 * be seen before the push is. On x86 it is the locked instruction that push needs anyway.
 */
#include <stdatomic.h>
#include "events/bug.h"
#include "events/mailbox.h"

bool mailbox_push(struct mailbox *m, struct loop_msg *msg)
{
	struct loop_msg *old = atomic_load_explicit(&m->head, memory_order_relaxed);

	ASSERT(msg->handle != NULL);
	do {
		msg->next = old;
	} while (!atomic_compare_exchange_weak_explicit(&m->head, &old, msg, memory_order_seq_cst,
							memory_order_relaxed));
	return old == NULL;
}

struct loop_msg *mailbox_take(struct mailbox *m)
{
	struct loop_msg *msg, *next, *oldest = NULL;

	/* A plain look first: an exchange would take the cache line
	 * from the producers each time. */
	if (atomic_load_explicit(&m->head, memory_order_relaxed) == NULL)
		return NULL;
	for (msg = atomic_exchange_explicit(&m->head, NULL, memory_order_acquire); msg;
	     msg = next) {
		next = msg->next;
		msg->next = oldest;
		oldest = msg;
	}
	return oldest;
}
