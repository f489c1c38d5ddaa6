/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The watch of an object, by which messages come (rados_client.c alone calls it). */
#ifndef TGTD_CLUSTER_LIVE_RADOS_WATCH_H
#define TGTD_CLUSTER_LIVE_RADOS_WATCH_H

#include "tgtd/cluster/live/rados_client.h"

void rclient_watch_init(struct rclient *r);
/* Watches r->watched from now on, again after a loss. On home. */
void rclient_watch_begin(struct rclient *r);
/* No message is received any more; those that have been are heard, then r->let_go(). r->closing is
 * set. On home. */
void rclient_watch_end(struct rclient *r);

#endif
