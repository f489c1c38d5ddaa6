/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What tools read of the daemon, and what tgt-exporter makes of it: any bytes are refused with a
 * sentence, or become a machine whose parts hold together and whose OpenMetrics text is whole.
 */
#include <stdlib.h>

#include "events/bug.h"
#include "tools/tgt-exporter/openmetrics.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_at_lus(const struct machine *m)
{
	for (uint32_t i = 0; i < m->nlus; i++) {
		const struct machine_lu *lu = &m->lus[i];

		BUG_ON(!lu->path || !lu->type || !lu->target || lu->target->tid != lu->tid);
		for (unsigned c = 0; c < MACHINE_CLASSES; c++) {
			const struct machine_latency *l = &lu->latency[c];

			BUG_ON(l->bucket && !m->nbounds);
			machine_percentile(m, l, NULL, 9900);
			BUG_ON(machine_percentile(m, l, l, 9900));
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char err[200] = "";
	struct machine m;
	struct text text;

	if (machine_parse(&m, (const char *)data, size, err, sizeof(err))) {
		BUG_ON(!*err || m.json || m.lus);
		return 0;
	}
	BUG_ON(!m.version || !m.state || !m.affinity);
	for (uint32_t i = 0; i < m.nnodes; i++)
		BUG_ON(!m.nodes[i].part_blocks || !m.nodes[i].part_dirty);
	look_at_lus(&m);
	openmetrics(&m, true, &text);
	BUG_ON(!text.failed && (text.len < 6 || memcmp(text.buf + text.len - 6, "# EOF\n", 6)));
	free(text.buf);
	machine_free(&m);
	return 0;
}
