/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Placement: counts of what was placed where, and a table that says what each kind of thread wants.
 * Every choice is "the one with the least of this kind on it, then with the least of all kinds,
 * then the lowest number", first among nodes (weighed by their number of CPUs), then among the CPUs
 * of the node. Fellows (threads of one LU) come before all that: two of them on one CPU are as good
 * as one. Simulated nodes may share CPUs; the counts per CPU are the machine's, not the node's.
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

/* What is being placed: its kind, and where its fellows are. */
struct wish {
	enum place_kind kind;
	const struct place *others;
	unsigned n;
};

static unsigned fellows_on_node(const struct wish *w, int node)
{
	unsigned count = 0;

	for (unsigned i = 0; i < w->n; i++)
		count += w->others[i].node == node;
	return count;
}

static unsigned fellows_on_cpu(const struct wish *w, int cpu)
{
	unsigned count = 0;

	for (unsigned i = 0; i < w->n; i++)
		count += w->others[i].cpu == cpu;
	return count;
}

/* Is a/wa lighter than b/wb? First its fellows (@fa, @fb), then what this kind
 * put there, then what all did. */
static bool lighter(const struct load *a, unsigned fa, unsigned wa, const struct load *b,
		    unsigned fb, unsigned wb, enum place_kind kind)
{
	uint64_t la = (uint64_t)fa * wb, lb = (uint64_t)fb * wa;

	if (la == lb) {
		la = (uint64_t)a->kind[kind] * wb;
		lb = (uint64_t)b->kind[kind] * wa;
	}
	if (la != lb)
		return la < lb;
	return (uint64_t)a->all * wb < (uint64_t)b->all * wa;
}

static int pick_node(const struct placement *p, const struct wish *w)
{
	const struct topo_node *n = p->topo->node;
	int best = 0;

	for (int i = 1; i < (int)p->topo->nnodes; i++)
		if (lighter(&p->node[i], fellows_on_node(w, i), n[i].ncpus, &p->node[best],
			    fellows_on_node(w, best), n[best].ncpus, w->kind))
			best = i;
	return best;
}

static int pick_cpu(const struct placement *p, const struct wish *w, int node)
{
	const cpu_set_t *set = &p->topo->node[node].cpus;
	int best = -1;

	for (int c = 0; c < CPU_SETSIZE; c++)
		if (CPU_ISSET(c, set) &&
		    (best < 0 || lighter(&p->cpu[c], fellows_on_cpu(w, c), 1, &p->cpu[best],
					 fellows_on_cpu(w, best), 1, w->kind)))
			best = c;
	return best;
}

static void placement_add(struct load *l, enum place_kind kind)
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

struct place placement_assign_beside(struct placement *p, enum place_kind kind, int node_wish,
				     const struct place *others, unsigned n)
{
	const struct wish w = { kind, others, n };
	struct place where = { .node = node_wish, .cpu = -1 };

	ASSERT((unsigned)kind < PLACE_KINDS);
	if (node_wish < 0 || (unsigned)node_wish >= p->topo->nnodes)
		where.node = pick_node(p, &w);
	if (policy[kind].pin)
		where.cpu = pick_cpu(p, &w, where.node);
	placement_add(&p->node[where.node], kind);
	if (where.cpu >= 0)
		placement_add(&p->cpu[where.cpu], kind);
	return where;
}

struct place placement_assign(struct placement *p, enum place_kind kind, int node_wish)
{
	return placement_assign_beside(p, kind, node_wish, NULL, 0);
}

void placement_release(struct placement *p, enum place_kind kind, struct place where)
{
	sub(&p->node[where.node], kind);
	if (where.cpu >= 0)
		sub(&p->cpu[where.cpu], kind);
}
