/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Commands that the process before had taken and not answered are carried out, or answered. See
 * flight.h; how they were found is flight_back.c. On the session's loop. */
#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/flight.h"

/* It was carried out, and the initiator has not heard. */
static void answer_again(struct iscsi_conn *conn, const struct flight_cmd *c)
{
	struct iscsi_ctl *ctl = iscsi_ctl_new(conn, 0);

	if (!ctl)
		return;
	memcpy(ctl->bhs, c->bhs, ISCSI_BHS_LEN);
	/* Status GOOD is 0, as all the rest but ExpDataSN: so many R2Ts were sent. */
	put_be32(iscsi_ctl_answer(ctl, ISCSI_SCSI_RSP) + BHS_DATA_SN, c->data_sn);
	iscsi_ctl_send(ctl, PDU_F_STAT_SN, 0);
}

/* No R2T from now on has the tag of one that is outstanding. */
static void tags_go_on(struct iscsi_session *s, const struct flight_going *g)
{
	for (uint32_t i = 0; i < g->ncmds; i++)
		for (unsigned k = 0; k < FLIGHT_UNSOLICITED; k++) {
			const uint32_t n = (g->cmd[i].seq[k] & FLIGHT_SEQ_TAG) >> 3;

			if (g->cmd[i].seq[k] && sn_le(s->next_ttt, n))
				s->next_ttt = n + 1;
		}
}

void iscsi_flight_goes_on(struct iscsi_conn *conn, struct flight_going *g)
{
	ASSERT_ON_LOOP(conn->loop);
	tags_go_on(conn->sess, g);
	for (uint32_t i = 0; i < g->ncmds && !conn->failed; i++) {
		const struct flight_cmd *c = &g->cmd[i];

		if (c->state == FLIGHT_DONE)
			answer_again(conn, c);
		else
			iscsi_rx_again(conn, c, c->state == FLIGHT_WRITE ? g->data[i] : NULL);
	}
}
