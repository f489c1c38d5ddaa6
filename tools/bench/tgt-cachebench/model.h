/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgt-cachebench --model: from what size on which way of serving another node's data is the
 * cheapest, see model.c. */
#ifndef TOOLS_BENCH_TGT_CACHEBENCH_MODEL_H
#define TOOLS_BENCH_TGT_CACHEBENCH_MODEL_H

#include <stdbool.h>
#include "events/topology.h"

/* Exit status. */
int model_run(const struct topology *topo, bool json);

#endif
