/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * iSER as the rest of the daemon sees it: registration, the transport's table, and the connection
 * state machine, which every file of this folder goes through.
 */
#include <unistd.h>

#include "events/topology.h"
#include "iser/conn.h"
#include "iser/iser.h"

struct iser_options iser_opt;
static bool registered;

/* ---- the connection state machine (RFC 7145 clause 5; README.md) ----------------------------- */

static const char *const state_names[IS_STATES] = { "IDLE",	 "LOGIN",    "ALLOCATED",
						    "DATAMOVER", "FLUSHING", "DRAINING",
						    "CLOSED" };
static const char *const event_names[IE_EVENTS] = {
	"established", "Allocate_Connection_Resources", "Enable_Datamover",
	"Connection_Terminate after flush", "Connection_Terminate", "drained",
};

#define NO IS_STATES
static const uint8_t table[IS_STATES][IE_EVENTS] = {
	/* established, allocate, enable, flush, terminate, drained */
	[IS_IDLE] = { IS_LOGIN, NO, NO, NO, IS_DRAINING, NO },
	[IS_LOGIN] = { IS_LOGIN, IS_ALLOCATED, NO, IS_FLUSHING, IS_DRAINING, NO },
	[IS_ALLOCATED] = { NO, NO, IS_DATAMOVER, IS_FLUSHING, IS_DRAINING, NO },
	[IS_DATAMOVER] = { NO, NO, NO, IS_FLUSHING, IS_DRAINING, NO },
	[IS_FLUSHING] = { NO, NO, NO, NO, IS_DRAINING, NO },
	[IS_DRAINING] = { NO, NO, NO, NO, NO, IS_CLOSED },
	[IS_CLOSED] = { NO, NO, NO, NO, NO, NO },
};

const char *iser_state_name(enum iser_state s)
{
	return s < IS_STATES ? state_names[s] : "?";
}

bool iser_event(struct iser_conn *ic, enum iser_event ev)
{
	uint8_t from = ic->state, to = table[from][ev];

	if (to == NO) {
		log_ratelimited(LOG_LVL_WARN, "iser: %s: %s is out of place in state %s",
				ic->conn.peer_text, event_names[ev], state_names[from]);
		iscsi_conn_fail(&ic->conn, "iSER event out of place");
		return false;
	}
	if (to != from)
		log_debug("iser: %s: %s -> %s (%s)", ic->conn.peer_text, state_names[from],
			  state_names[to], event_names[ev]);
	ic->state = to;
	return true;
}

/* ---- the transport --------------------------------------------------------------------------- */

struct iscsi_transport iser_transport = {
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
	rc = iser_cm_open(main);
	if (rc) {
		log_notice("iser: no RDMA connection manager (%s): serving TCP only",
			   strerror(-rc));
		return 0;
	}
	iser_dev_init(main, topo);
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
