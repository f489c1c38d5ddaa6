/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Write data that an initiator owes: what an R2T has asked for, and unsolicited Data-Out that was
 * announced by F = 0. It holds blocks meanwhile, which others want. Any Data-Out of the connection
 * counts as progress, since data comes in an order that we do not choose, and so does any byte of a
 * PDU that has begun to come. So that one byte now and then does not hold blocks for ever, each
 * sequence has a bound of its own too, and so has immediate data; and so that many short sequences
 * do not, a command has one.
 *
 * The clock costs nothing per PDU: a timer looks at the connection's tasks, four times a deadline,
 * and only while something is owed. iSER's RDMA reads are not owed: the adapter fetches them, and a
 * peer that does not answer breaks its queue pair.
 */
#include "tgtd/iscsi/core.h"

/* When the oldest of what @t is owed began to be; UINT64_MAX: nothing is. */
static uint64_t owed_oldest(const struct iscsi_task *t)
{
	const struct iscsi_dataout *o = &t->out;
	uint64_t since = UINT64_MAX;

	if (!t->cmd.dir_out || (t->state != TASK_RUNNING && t->state != TASK_DRAINING &&
				t->state != TASK_HELD && t->state != TASK_ENDING &&
				t->state != TASK_ARRIVING))
		return since;
	if (o->unsol_open)
		since = o->owed_ns;
	for (unsigned i = 0; o->r2t_busy && i < ISCSI_R2T_MAX; i++)
		if (o->r2t[i].ttt != ISCSI_TAG_NONE)
			since = MIN(since, o->r2t[i].since_ns);
	return since;
}

/* Looks within one deadline. */
#define OWED_LOOKS 4

/* Does @t take too long as a whole? What counts is the time in which something was owed, not that
 * in which we did not ask for any. */
static bool owed_too_long(const struct iscsi_task *t)
{
	const struct iscsi_dataout *o = &t->out;
	const uint64_t come = o->next - MIN(o->next, o->charged);

	return o->owed_looks > OWED_LOOKS * (ISCSI_OWED_TIMES + come / ISCSI_OWED_LEAST);
}

static struct iscsi_task *next_late(struct iscsi_conn *conn, uint64_t now, uint64_t limit,
				    bool *owed)
{
	uint64_t progress = conn->owed_rx_ns;
	struct iscsi_task *t;

	if (conn->rx_task) /* in the middle of its PDU */
		progress = MAX(progress, conn->last_rx_ns);
	list_for_each(t, &conn->tasks, link) {
		uint64_t since = owed_oldest(t);

		if (since == UINT64_MAX)
			continue;
		*owed = true;
		if (now - MAX(since, progress) >= limit ||
		    now - since >= limit * ISCSI_OWED_TIMES || owed_too_long(t))
			return t;
	}
	return NULL;
}

static void owed_timer(struct timer *timer)
{
	struct iscsi_conn *conn = container_of(timer, struct iscsi_conn, owed_timer);
	const uint64_t now = loop_now(conn->loop), limit = conn->data_out_timeout_s * NSEC_PER_SEC;
	struct iscsi_task *t;
	unsigned late = 0;
	bool owed = false;

	conn->owed_armed = false;
	list_for_each(t, &conn->tasks, link)
		t->out.owed_looks += owed_oldest(t) != UINT64_MAX;
	/* Each look finds one less, as what is late is forgotten. */
	while (!conn->failed && (t = next_late(conn, now, limit, &owed))) {
		late++;
		if (t->state == TASK_ARRIVING)
			iscsi_conn_fail(conn, "a command's immediate data does not come");
		else
			iscsi_dataout_late(t);
	}
	if (conn->failed)
		return;
	if (late) {
		if (now - conn->owed_missed_ns >= 2 * ISCSI_OWED_TIMES * limit)
			conn->owed_misses = 0;
		conn->owed_missed_ns = now;
		log_ratelimited(LOG_LVL_WARN,
				"iscsi: %s: %u writes ended: their data did not come within %u s",
				conn->peer_text, late, conn->data_out_timeout_s);
		if (++conn->owed_misses >= ISCSI_OWED_MISSES) {
			iscsi_conn_fail(conn, "write data did not come, for the third time");
			return;
		}
	}
	if (owed && !conn->owed_armed) {
		conn->owed_armed = true;
		loop_timer_arm(conn->loop, timer, limit / OWED_LOOKS);
	}
}

void iscsi_owed_start(struct iscsi_conn *conn)
{
	timer_init(&conn->owed_timer, owed_timer);
	conn->owed_missed_ns = loop_now(conn->loop);
}

void iscsi_owed_stop(struct iscsi_conn *conn)
{
	if (conn->owed_armed)
		loop_timer_cancel(conn->loop, &conn->owed_timer);
	conn->owed_armed = false;
}
