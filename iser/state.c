/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The connection state machine (RFC 7145 clause 5; README.md): a table, and who goes by it. */
#include "iser/conn.h"

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
