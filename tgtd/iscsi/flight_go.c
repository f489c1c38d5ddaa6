/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Commands that the process before had taken and not answered are carried out, or answered. See
 * flight.h; how they were found is flight_back.c. On the session's loop. */
#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/flight.h"

/* It was carried out, and the initiator has not heard. */
static void answer_again(struct iscsi_conn *conn, const uint8_t *bhs)
{
	struct iscsi_ctl *ctl = iscsi_ctl_new(conn, 0);

	if (!ctl)
		return;
	memcpy(ctl->bhs, bhs, ISCSI_BHS_LEN);
	(void)iscsi_ctl_answer(ctl, ISCSI_SCSI_RSP); /* status GOOD is 0, as all the rest */
	iscsi_ctl_send(ctl, PDU_F_STAT_SN, 0);
}

void iscsi_flight_goes_on(struct iscsi_conn *conn, struct flight_going *g)
{
	ASSERT_ON_LOOP(conn->loop);
	for (uint32_t i = 0; i < g->ncmds && !conn->failed; i++) {
		const struct flight_cmd *c = &g->cmd[i];

		if (c->state == FLIGHT_DONE)
			answer_again(conn, c->bhs);
		else
			iscsi_rx_again(conn, c, c->state == FLIGHT_WRITE ? g->data[i] : NULL);
	}
}
