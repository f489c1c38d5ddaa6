/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the keeper holds for the process that works: duplicates of its descriptors, by key
 * (events/kept.h). One thread.
 */
#ifndef TGTD_KEEPER_HOLDINGS_H
#define TGTD_KEEPER_HOLDINGS_H

#include "events/kept_msg.h"

/* Takes @fd, which replaces what has that key. 0; or -EINVAL, -ENOSPC, -ENOMEM, and @fd is
 * closed. */
int holdings_put(const char *key, int fd) must_check;
/* Closes what has that key, if anything has. */
void holdings_drop(const char *key);
unsigned holdings_count(void);
/* Is there a key that begins with @prefix? */
bool holdings_any(const char *prefix);
bool holdings_has(const char *key);
/* Sends the next KEPT_MSG_FDS of those whose key begins with @prefix to a new process. *@at is 0 at
 * first. 1: there is more; 0: that was all; -errno (-EAGAIN: later). */
int holdings_send(int fd, const char *prefix, unsigned *at) must_check;
/* Walks them: the next key, and its descriptor, which stays theirs. *@at is 0 at first. NULL: that
 * was all. */
const char *holdings_next(uint32_t *at, int *fd);
/* Closes all. */
void holdings_end(void);

#endif
