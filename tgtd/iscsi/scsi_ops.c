/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the device server may ask of a command or of its nexus (scsi_transport_ops), whichever the
 * transport. On the session's loop.
 */
#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/flight.h"

static bool on_lu(struct iscsi_task *t, const void *key)
{
	return scsi_cmd_on(&t->cmd, key);
}

static void op_abort_all(struct scsi_nexus *nexus, struct scsi_lu *lu, bool tas,
			 void (*done)(void *arg), void *arg)
{
	struct iscsi_session *s = nexus->host;

	ASSERT_ON_LOOP(s->loop);
	iscsi_session_abort(s, on_lu, lu, tas, done, arg);
}

static void op_drop(struct scsi_nexus *nexus)
{
	iscsi_session_drop(nexus->host, "dropped by the target");
}

static void op_fence(struct scsi_cmd *cmd)
{
	ASSERT(!iscsi_task_of(cmd)->completed);
	iscsi_task_of(cmd)->fenced = true;
}

const struct scsi_transport_ops iscsi_scsi_ops = {
	.name = "iscsi",
	.fetch = iscsi_dataout_fetch,
	.send = iscsi_op_send,
	.complete = iscsi_op_complete,
	.fence = op_fence,
	.abort_all = op_abort_all,
	.drop = op_drop,
};

static void flight_complete(struct scsi_cmd *cmd)
{
	iscsi_flight_completes(iscsi_task_of(cmd));
	iscsi_op_complete(cmd);
}

const struct scsi_transport_ops iscsi_flight_scsi_ops = {
	.name = "iscsi",
	.fetch = iscsi_dataout_fetch,
	.send = iscsi_op_send,
	.complete = flight_complete,
	.fence = op_fence,
	.abort_all = op_abort_all,
	.drop = op_drop,
};
