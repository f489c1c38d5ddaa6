/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How a worker has ended, in words: of the status of waitpid(2), and whether memory had run out. */
#ifndef TGTD_KEEPER_ENDED_H
#define TGTD_KEEPER_ENDED_H

#include "events/base.h"

void ended_how(int status, bool oom, char *text, size_t size);
/* Where to look for more; "". */
const char *ended_hint(int status, bool oom);
/* What it took until another one serves, since it was seen to be dead: until its memory had gone,
 * or was not waited for any more, and from then on. Times of clock_now_ns(). */
void ended_took(uint64_t dead, uint64_t begun, uint64_t serves, char *text, size_t size);
/* As a shell has it. */
int ended_status(int status);

#endif
