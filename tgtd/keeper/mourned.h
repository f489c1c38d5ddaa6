/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Workers that have died and have not gone: the kernel is not done with what they had asked for, or
 * somebody looks into their memory. Others serve meanwhile. The keeper's one thread.
 */
#ifndef TGTD_KEEPER_MOURNED_H
#define TGTD_KEEPER_MOURNED_H

#include "tgtd/keeper/launch.h"

/* More wait until the first has gone. (Each holds what was its own memory.) */
#define MOURNED_MAX 4u

/* Is there room for one more? */
bool mourned_may(void);
/* Nobody waits for @w any more, which is empty afterwards. @reaped: waitpid() has had it. */
void mourned_add(struct worker *w, bool reaped);
unsigned mourned_count(void);
/* Is @pid one of them? */
bool mourned_is(pid_t pid);
/* Looks which of them have gone, and reaps them. */
void mourned_look(void);
/* When to look again; -1: there is none. */
int mourned_wait_ms(void);

#endif
