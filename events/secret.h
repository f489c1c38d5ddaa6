/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory for secrets, such as those of CHAP (RFC 7143 12.1.3), and for what carries them. It is
 * left out of core files (MADV_DONTDUMP), kept out of swap where the limits allow it (mlock), and
 * overwritten before it is given back.
 *
 * Any thread; nothing here may be called in a signal handler. What is allocated belongs to the
 * caller, who gives it back by the function of the same pair.
 */
#ifndef EVENTS_SECRET_H
#define EVENTS_SECRET_H

#include "events/base.h"

/* @size bytes, 1 or more, zeroed; NULL: out of memory. Larger ones than 4 KiB have pages of their
 * own. */
void *secret_alloc(size_t size);
/* @size as it was asked for; @p NULL is fine. */
void secret_free(void *p, size_t size);
/* A copy of a text, and its end; the length is the text's own. */
char *secret_strdup(const char *text);
void secret_strfree(char *text); /* NULL is fine */
/* Overwrites memory that is not from here, whatever the compiler thinks of it. */
void secret_cleanse(void *p, size_t size);

#endif
