/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Placement: counts of what was placed where, and a table that says what each kind of thread wants.
 * Every choice is "the one with the least of this kind on it, then with the least of all kinds, then
 * the lowest number", first among nodes (weighed by their number of CPUs), then among the CPUs of
 * the node. Simulated nodes may share CPUs; the counts per CPU are the machine's, not the node's.
 */
#include <stdlib.h>
#include "events/bug.h"
#include "events/placement.h"

/*
 * kind     pinned to a CPU   why
 * MAIN     no                nearly idle: the scheduler fits it in wherever there is room
 * LU       yes               the data path: stays with its caches, and equal load stays equal
 * WORKER   no                any CPU of its node will do; must not wait for a busy LU thread that
 *                            happens to be pinned to the same one
 */
static const struct {
	bool pin;
} policy[PLACE_KINDS] = {
	[PLACE_MAIN] = { .pin = false },
	[PLACE_LU] = { .pin = true },
	[PLACE_WORKER] = { .pin = false },
};

struct load {
	unsigned kind[PLACE_KINDS];
	unsigned all;
};

struct placement {
	const struct topology *topo;
	struct load node[TOPO_MAX_NODES];
	struct load cpu[CPU_SETSIZE];
};

struct placement *placement_create(const struct topology *topo)
{
	struct placement *p = calloc(1, sizeof(*p));

	ASSERT(topo->nnodes > 0);
	if (p)
		p->topo = topo;
	return p;
}

void placement_destroy(struct placement *p)
{
	free(p);
}

/* Is a/wa lighter than b/wb? First what this kind put there, then what all did. */
static bool lighter(const struct load *a, unsigned wa, const struct load *b, unsigned wb,
		    enum place_kind kind)
{
	uint64_t la = (uint64_t)a->kind[kind] * wb, lb = (uint64_t)b->kind[kind] * wa;

	if (la != lb)
		return la < lb;
	return (uint64_t)a->all * wb < (uint64_t)b->all * wa;
}

static int pick_node(const struct placement *p, enum place_kind kind)
{
	const struct topo_node *n = p->topo->node;
	unsigned best = 0;

	for (unsigned i = 1; i < p->topo->nnodes; i++)
		if (lighter(&p->node[i], n[i].ncpus, &p->node[best], n[best].ncpus, kind))
			best = i;
	return (int)best;
}

static int pick_cpu(const struct placement *p, enum place_kind kind, int node)
{
	const cpu_set_t *set = &p->topo->node[node].cpus;
	int best = -1;

	for (int c = 0; c < CPU_SETSIZE; c++)
		if (CPU_ISSET(c, set) &&
		    (best < 0 || lighter(&p->cpu[c], 1, &p->cpu[best], 1, kind)))
			best = c;
	return best;
}

static void add(struct load *l, enum place_kind kind)
{
	l->kind[kind]++;
	l->all++;
}

static void sub(struct load *l, enum place_kind kind)
{
	ASSERT(l->kind[kind] > 0);
	l->kind[kind]--;
	l->all--;
}

struct place placement_assign(struct placement *p, enum place_kind kind, int node_wish)
{
	struct place where = { .node = node_wish, .cpu = -1 };

	ASSERT((unsigned)kind < PLACE_KINDS);
	if (node_wish < 0 || (unsigned)node_wish >= p->topo->nnodes)
		where.node = pick_node(p, kind);
	if (policy[kind].pin)
		where.cpu = pick_cpu(p, kind, where.node);
	add(&p->node[where.node], kind);
	if (where.cpu >= 0)
		add(&p->cpu[where.cpu], kind);
	return where;
}

void placement_release(struct placement *p, enum place_kind kind, struct place where)
{
	sub(&p->node[where.node], kind);
	if (where.cpu >= 0)
		sub(&p->cpu[where.cpu], kind);
}
