/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Selective negative acknowledgement (RFC 7143 11.16): sending again what got lost, at ErrorRecoveryLevel 1. */
#include "tgtd/iscsi/core.h"

void iscsi_snack_request(struct iscsi_ctl *ctl)
{
	/* 11.16: "SNACK ... MUST NOT be used in ErrorRecoveryLevel 0". */
	iscsi_reject(ctl->conn, REJECT_PROTOCOL_ERROR, ctl->bhs);
	iscsi_ctl_free(ctl);
}

void iscsi_acked(struct iscsi_conn *conn)
{
	ASSERT(list_empty(&conn->unacked));
}
