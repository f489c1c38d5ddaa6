/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Has the kernel killed a worker because memory had run out? SIGKILL says who did it to nobody, but
 * the kernel counts, for the control group of the keeper, where its workers are, too, or for the
 * machine. One thread, the keeper's.
 */
#ifndef TGTD_KEEPER_OOM_H
#define TGTD_KEEPER_OOM_H

#include "events/base.h"

/* For tests: a file that counts in place of the kernel's, as memory.events of cgroups(7) does. */
#define OOM_ENV "TGTD_TEST_OOM_EVENTS"

/* A worker starts: remembers the count. */
void oom_begin(void);
/* It was killed: has the count grown? Another process of the group may have been killed, and it by
 * somebody else: then memory had run out all the same. */
bool oom_killed(void) must_check;

#endif
