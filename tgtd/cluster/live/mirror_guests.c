/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See mirror_guests.h. */
#include <stdatomic.h>
#include <stdlib.h>

#include "tgtd/cluster/live/mirror_guests.h"

struct mirror_guests {
	struct loop_attachment a;
	_Atomic unsigned n;
};

static bool guests_busy(struct loop_attachment *a)
{
	return atomic_load(&container_of(a, struct mirror_guests, a)->n) > 0;
}

static void guests_free(struct loop_attachment *a)
{
	struct mirror_guests *g = container_of(a, struct mirror_guests, a);

	BUG_ON(atomic_load(&g->n));
	free(g);
}

struct mirror_guests *mirror_guests_here(void)
{
	struct loop *here = loop_current();
	struct loop_attachment *a = loop_attached(here, guests_free);
	struct mirror_guests *g = a ? container_of(a, struct mirror_guests, a) : NULL;

	if (!g) {
		g = calloc(1, sizeof(*g));
		if (!g)
			return NULL;
		g->a.detach = guests_free;
		g->a.busy = guests_busy;
		loop_attach(here, &g->a);
	}
	atomic_fetch_add(&g->n, 1);
	return g;
}

void mirror_guests_left(struct mirror_guests *g)
{
	if (g)
		atomic_fetch_sub(&g->n, 1);
}
