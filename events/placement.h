/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where things go: a policy table from (kind of thread, wish) to (node, CPU) over a topology. Keeps
 * count of what it placed, so that equal wishes spread. Main thread only.
 */
#ifndef EVENTS_PLACEMENT_H
#define EVENTS_PLACEMENT_H

#include "events/topology.h"

enum place_kind { PLACE_MAIN, PLACE_LU, PLACE_WORKER, PLACE_KINDS };

struct placement;

struct place {
	int node;
	int cpu; /* -1: the node's whole set */
};

/* @topo must outlive it. NULL + errno. */
struct placement *placement_create(const struct topology *topo) must_check;
void placement_destroy(struct placement *p);
/* @node_wish: the node it shall be on, -1 for none (spread evenly over nodes, then over their
 * CPUs). A node that is not there counts as no wish. Never fails. */
struct place placement_assign(struct placement *p, enum place_kind kind, int node_wish);
/* The same for one of several threads of one object (an LU). @others are the places that the other
 * @n threads have now. It gets a node and a CPU with the fewest of them, whatever else is there. */
struct place placement_assign_beside(struct placement *p, enum place_kind kind, int node_wish,
				     const struct place *others, unsigned n);
/* Gives back what either of them answered. */
void placement_release(struct placement *p, enum place_kind kind, struct place where);

#endif
