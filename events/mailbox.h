/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Lock-free mailbox of many producers and one consumer: how threads send each other messages. A
 * message is embedded in the thing it is about; whoever posts it gives that thing away until the
 * handler runs. Order is kept per producer.
 */
#ifndef EVENTS_MAILBOX_H
#define EVENTS_MAILBOX_H

#include "events/base.h"

struct loop_msg {
	struct loop_msg *next;
	void (*handle)(struct loop_msg *msg); /* runs on the receiving loop;
					       * may free what embeds @msg */
};

struct mailbox {
	_Atomic(struct loop_msg *) head; /* newest first; consumer takes all and reverses */
} cacheline_aligned;

static inline void mailbox_init(struct mailbox *m)
{
	m->head = NULL;
}

/* Any thread. Returns true when the box was empty before: only then
 * may the consumer need waking. */
bool mailbox_push(struct mailbox *m, struct loop_msg *msg);
/* Consumer only. Everything pushed so far, oldest first, linked by ->next; NULL when empty. */
struct loop_msg *mailbox_take(struct mailbox *m);

/* Any thread. Sequentially consistent, because a consumer asks it after saying that it sleeps: see
 * loop_impl.h, "Going to sleep". (On x86 that costs no more than a plain load.) */
static inline bool mailbox_pending(struct mailbox *m)
{
	return __atomic_load_n((void **)&m->head, __ATOMIC_SEQ_CST) != NULL;
}

#endif
