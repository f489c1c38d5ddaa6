/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A planned restart: the next worker prepares while the one before serves, and begins when that one
 * has testified that nothing of it is under way. One thread, the keeper's.
 *
 *     serving            keeper                      next
 *     RESTART ---------> planned_begin() --- LEFT, PREPARE ---> maps, makes threads
 *     <----------- GO    planned_hear() <--- PREPARED
 *     QUIESCENT -------> planned_testified(): it is killed
 *                        planned_take(), planned_bury() --- LEFT, BEGIN --->
 *
 * GO is said in any case: when the next one has ended, cannot be run, or stands still. Then
 * planned_drop() ends it, and another one is run when the one before has gone. What is testified
 * counts only of who was asked to go, beside one that is prepared. Without it the next one waits
 * until the memory of the one before has gone, as after a crash.
 */
#ifndef TGTD_KEEPER_PLANNED_H
#define TGTD_KEEPER_PLANNED_H

#include <poll.h>

#include "events/kept_msg.h"
#include "tgtd/keeper/launch.h"

/* Runs the next worker, with @argv, in the place of @now, which serves. @begin: what it is told
 * with PREPARE, as of KEPT_BEGIN. What is under way already goes on. */
void planned_begin(const struct worker *now, char *const *argv, const struct kept_msg *begin);
/* For poll(2): the socket to the next worker, or -1; and in how many ms to look, -1: not at all. */
struct pollfd planned_poll(int *timeout_ms);
/* What came of that: hears, sends, and says GO to @now when it is time. */
void planned_turn(const struct worker *now, short revents);
/* Nobody waits for the next one any more: GO. */
void planned_go(const struct worker *now);

/* Who was asked to go serves nobody from now on. */
void planned_rests(void);
/* Does who has said RESTART serve still, with a watchdog that looks after it? */
bool planned_serves(void);
/* Who was told to go has not gone in time: why nobody waits for it any more, else NULL. *@stopped:
 * it hears no other signal than SIGKILL. */
const char *planned_stays(bool *stopped);
/* @now has said QUIESCENT. True: that counts, and it has been killed; it runs no instruction of its
 * own any more, and may be buried. False: it means nothing. */
bool planned_testified(const struct worker *now) must_check;
/* Is there a next one? */
bool planned_waits(void);
/* Is there one that has been buried, and not reaped? */
bool planned_mourns(void);
/* Is @pid either of them? */
bool planned_is(pid_t pid);
/* The next one is let go of if it has ended, or is not what it should be by now. True: it was not
 * prepared in time. Before planned_take(). */
bool planned_drop(void) must_check;
/* The next one becomes @w, if there is one. It may have ended already. */
bool planned_take(struct worker *w) must_check;
/* @w is not the keeper's worker any more, but still has to be reaped: by planned_reap(), when a
 * child has ended. */
void planned_bury(struct worker *w);
void planned_reap(void);
/* The next one serves: the one before it need not leave it the processors any more. What the steps
 * took, in words: NULL, there was no planned restart. */
const char *planned_over(void);
/* The next one, if there is one, is killed. */
void planned_end(void);

#endif
