/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the start of this process has taken, step by step: for who wants to know why initiators have
 * waited when a worker had died. Main thread.
 */
#ifndef TGTD_BEGAN_H
#define TGTD_BEGAN_H

/* main() begins. What the process has had of processors by now was for running the program. */
void began_main(void);
/* Nobody had waited for what was done before: the other one served still. */
void began_anew(void);
/* What was done since the last step was @name. Sixteen at most. */
void began_step(const char *name);
/* It serves: says all that in the log. */
void began_serves(void);

#endif
