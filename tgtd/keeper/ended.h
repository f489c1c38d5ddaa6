/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How a worker has ended, in words: of the status of waitpid(2), and whether memory had run out. */
#ifndef TGTD_KEEPER_ENDED_H
#define TGTD_KEEPER_ENDED_H

#include "events/base.h"

void ended_how(int status, bool oom, char *text, size_t size);
/* Where to look for more; "". */
const char *ended_hint(int status, bool oom);
/* As a shell has it. */
int ended_status(int status);

#endif
