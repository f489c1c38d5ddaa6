/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A name for a process that the next one on its machine can ask the kernel about: is it gone? So a
 * gateway whose keeper was killed, too, can prove that nothing of its predecessor is left
 * (gateway.h, gone()).
 *
 *     machine id / boot id / namespace of process ids / process id / when it started
 *
 * Rests upon /etc/machine-id: no two machines that run have the same (machine-id(5)). Any thread.
 */
#ifndef TGTD_CLUSTER_LIVE_PROCESS_H
#define TGTD_CLUSTER_LIVE_PROCESS_H

#include <sys/types.h>
#include "tgtd/cluster/object.h"

/* @pid's name. False, and "": something of it cannot be found out, so nobody will ever know. */
bool process_name(pid_t pid, char name[GW_PROCESS_MAX + 1]);
/* True: it is certain. All its descriptors are closed then. False for a text that is none, for
 * another machine's, and for one of another container of this machine. */
bool process_is_gone(const char *name);

#endif
