/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Intrusive doubly linked list with a sentinel head. An unlinked node points at itself, so that
 * list_del() twice is harmless and list_linked() answers "is it on any list". Not thread-safe. */
#ifndef EVENTS_LIST_H
#define EVENTS_LIST_H

#include "events/base.h"

struct list {
	struct list *next, *prev;
};

#define LIST_INIT(name) { &(name), &(name) }

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *head)
{
	return head->next == head;
}

/* Is this node on a list? (The node must have been list_init()ed once.) */
static inline bool list_linked(const struct list *node)
{
	return node->next != node;
}

static inline void list_insert_after(struct list *pos, struct list *node)
{
	node->next = pos->next;
	node->prev = pos;
	pos->next->prev = node;
	pos->next = node;
}

static inline void list_add_head(struct list *head, struct list *node)
{
	list_insert_after(head, node);
}

static inline void list_add_tail(struct list *head, struct list *node)
{
	list_insert_after(head->prev, node);
}

static inline void list_del(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

/* Moves everything on @from to the end of @to; @from is empty afterwards. */
static inline void list_splice_tail(struct list *to, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

#define list_entry(node, type, member) container_of(node, type, member)
#define list_first(head, type, member) list_entry((head)->next, type, member)
#define list_first_or_null(head, type, member) \
	(list_empty(head) ? NULL : list_first(head, type, member))
/* The node of @pos, without touching *@pos. At the end of a walk @pos is not a real entry, and the
 * head need not be aligned as an entry is. */
#define list_node_(pos, member) \
	((struct list *)(void *)((char *)(pos) + offsetof(__typeof__(*(pos)), member)))
#define list_for_each(pos, head, member)                                                \
	for (pos = list_first(head, __typeof__(*pos), member); list_node_(pos, member) != (head); \
	     pos = list_entry(list_node_(pos, member)->next, __typeof__(*pos), member))
/* Safe against removal of @pos (not of @tmp). */
#define list_for_each_safe(pos, tmp, head, member)                                       \
	for (pos = list_first(head, __typeof__(*pos), member),                           \
	    tmp = list_entry(list_node_(pos, member)->next, __typeof__(*pos), member);   \
	     list_node_(pos, member) != (head);                                          \
	     pos = tmp,                                                                  \
	    tmp = list_entry(list_node_(tmp, member)->next, __typeof__(*tmp), member))

#endif
