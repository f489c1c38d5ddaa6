/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * From BEGIN to READY nobody is served: how long is a worker waited for that begins? It gives a
 * sign (KEPT_PULSE) every second: its main loop goes on, whatever store it waits for. One of an
 * older program may wait for one without a word. One thread, the keeper's.
 */
#ifndef TGTD_KEEPER_BEGINNING_H
#define TGTD_KEEPER_BEGINNING_H

#include <sys/types.h>

#include "events/base.h"

/* From now on, worker @pid. */
void beginning_of(pid_t pid);
/* It has said something; @sign: that it goes on. */
void beginning_heard(bool sign);
/* Why it is not waited for any more, else NULL. *@stopped: it hears no other signal than SIGKILL.
 * @excused: it waits for others. To be called every PATIENCE_LOOK_MS (patience.h), or oftener. */
const char *beginning_stays(bool excused, bool *stopped);

#endif
