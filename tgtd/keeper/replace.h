/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The keeper is replaced by another program, in the same process, by execve(2). The worker goes on
 * meanwhile, and sees nothing of it. One thread, the keeper's.
 *
 *     replace_want()
 *     ... when nothing else is under way: replace_turn()
 *          a child runs the program with --keeper-check, which reads the table (table.h) and says
 *          by its status whether it could go on from there
 *     ... execve(), with the table as it is then, and all descriptors
 *
 * Whatever fails, the keeper goes on as it was, and says why.
 */
#ifndef TGTD_KEEPER_REPLACE_H
#define TGTD_KEEPER_REPLACE_H

#include "tgtd/keeper/table.h"

/* Where the program that takes over finds the number of the table's descriptor. */
#define REPLACE_ENV "TGTD_KEEPER_TABLE"

/* What is at the program's path takes over as soon as it may. */
void replace_want(void);
/* In how many ms to look, -1: not at all. */
int replace_wait_ms(void);
/* A child has ended, maybe ours. */
void replace_reap(void);
/* Is @pid who looks whether the new program takes over? */
bool replace_is(pid_t pid);
/* To be called often. @quiet: nothing is under way that the table could not say. @save fills in
 * what replace.c does not know: all of the state but what launch.c has. @argv: the keeper's own.
 * Does not return when the other program takes over. True: it will not, and replace_why() says
 * why, once. */
bool replace_turn(bool quiet, void (*save)(struct table_state *s), char *const *argv) must_check;
const char *replace_why(void);
/* The keeper ends: what is under way ends with it. */
void replace_end(void);

/* In the program that takes over, once: the table's descriptor; -1: it was started otherwise. */
int replace_link(void);
/* Of the table: the lock_fd of its state; -1: there was none, or it cannot be read. */
int replace_lock_fd(int table);
/* Takes all of it over: what is kept, and what launch.c has; the rest is in *@s. 0 or -errno
 * (logged). */
int replace_take(int table, struct table_state *s) must_check;
/* --keeper-check: could this program go on from there? The exit status, 0 if so. */
int replace_check(int table);

#endif
