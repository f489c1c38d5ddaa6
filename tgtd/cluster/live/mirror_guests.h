/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How many channels (mirror_channel.h) are on a loop that is not theirs: who would end that loop
 * waits until they have left (loop_busy()).
 */
#ifndef TGTD_CLUSTER_LIVE_MIRROR_GUESTS_H
#define TGTD_CLUSTER_LIVE_MIRROR_GUESTS_H

#include "events/loop.h"

struct mirror_guests;

/* One more, which has not come yet, for the calling loop. NULL: no memory. */
struct mirror_guests *mirror_guests_here(void) must_check;
/* It has left, or does not come. Any thread; NULL is fine. */
void mirror_guests_left(struct mirror_guests *g);

#endif
