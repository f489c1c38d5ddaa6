/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The process that was started is the keeper: its identity, its log, its rights, and then the loop
 * of tgtd/keeper/, which runs this program again as a worker. Before there are threads.
 */
#ifndef TGTD_KEEP_H
#define TGTD_KEEP_H

struct options;

/* A copy of the command line for workers, with room for what keep() adds. Before options_parse(),
 * which takes the arguments apart. NULL: out of memory. Never freed. */
char **keep_args(int argc, char **argv);
/* Is the keeper until the end; returns the exit status. @args: of keep_args(), or NULL, which ends
 * the process. */
int keep(struct options *opt, char **args, int argc);
/* In the place of the keeper's program that ran before, which has left @table (replace.h). Rights,
 * limits and the filter of system calls are those of the process, and stay. */
int keep_again(struct options *opt, char **args, int table);

#endif
