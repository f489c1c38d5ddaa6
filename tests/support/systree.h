/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Recorded sysfs trees (tests/unit/events/sysfs/NAME.tree: "path: content" a line, \n for newlines,
 * "path/" an empty directory), written out below a temporary root.
 */
#ifndef TESTS_SUPPORT_SYSTREE_H
#define TESTS_SUPPORT_SYSTREE_H

#include "events/topology.h"

extern char systree_root[];
void systree_new(void);
void systree_write(const char *name, const char *content);
void systree_remove(void);
/* topology_detect() of the tree NAME. Stops the test when there is none. */
int systree_detect(struct topology *t, const char *name);

#endif
