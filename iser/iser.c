/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * iSER as the rest of the daemon sees it: registration and the transport's table.
 */
#include <unistd.h>

#include "events/topology.h"
#include "iser/conn.h"
#include "iser/iser.h"

static bool registered;

/* ---- the transport --------------------------------------------------------------------------- */

static struct iscsi_transport iser_transport = {
	.name = "iser",
	.iser = true,
	.listen = iser_listen,
	.unlisten = iser_unlisten,
	.limits = iser_limits,
	.ffp_prepare = iser_ffp_prepare,
	.detach = iser_detach,
	.free = iser_free,
	.describe = iser_describe,
	.attach = iser_attach,
	.send_pdu = iser_send_pdu,
	.send_data = iser_send_data,
	.fetch = iser_fetch,
	.rx_resume = iser_rx_resume,
	.close = iser_close,
};

int iser_register(struct loop *main, const struct topology *topo, const char *options)
{
	int rc = iser_options_parse(&iser_opt, options);

	if (rc)
		return rc;
	iscsi_transport_register(&iser_transport);
	registered = true;
	rc = iser_cm_open(main, &iser_transport);
	if (rc) {
		log_notice("iser: no RDMA connection manager (%s): serving TCP only",
			   strerror(-rc));
		return 0;
	}
	iser_dev_init(main, topo, &iser_cm_dev_hooks);
	if (!iser_dev_count())
		log_notice("iser: no RDMA device: serving TCP only");
	return 0;
}

bool iser_running(void)
{
	return registered && iser_dev_count() > 0;
}

/* What a run was like, for whoever looks at the log afterwards. */
static void log_figures(void)
{
	for (unsigned m = 0; m < METRIC_COUNT; m++)
		if (!strncmp(metric_name((enum metric)m), "iser_", 5))
			log_info("iser: %s %llu", metric_name((enum metric)m) + 5,
				 (unsigned long long)metric_read((enum metric)m));
}

void iser_stop(void)
{
	if (metric_read(M_iser_accepts))
		log_figures();
	iser_cm_close();
	iser_dev_fini();
	registered = false;
}
