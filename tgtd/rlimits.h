/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The process's limits, and what follows from them for connections. Main thread. */
#ifndef TGTD_RLIMITS_H
#define TGTD_RLIMITS_H

#include "events/base.h"

/* A connection is a descriptor, and a logical unit a handful; memory is locked for RDMA. What is
 * not permitted stays as it is. Before any thread exists. */
void rlimits_raise(void);
/* How many of the connections that are @wanted there are descriptors for, with those in login and
 * some for the rest of the daemon: beyond that initiators are told so, instead of being left
 * waiting, the administrator too. At least 1; a warning where it is less than @wanted. */
unsigned rlimits_connections(unsigned wanted);
/* How many more may be in login, where there may be @connections. */
unsigned rlimits_half_open(unsigned connections);

#endif
