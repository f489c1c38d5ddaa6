/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An I_T_L nexus has a command less: who waited for that? And commands that have to wait: while the
 * store is being replaced (GATE_STOP), and for ORDERED ones (SAM-5 8.6.3). An ORDERED command
 * runs when all older ones of its I_T_L nexus have ended, and no younger one begins before it has
 * ended. HEAD OF QUEUE commands pass them all. Everything here is on the nexus' loop.
 *
 *   held:  simple simple ORDERED simple ORDERED    one turn: the run of simple ones, or one ORDERED
 */
#include "tgtd/scsi/lu.h"
#include "tgtd/scsi/timing.h"

/* What scsi_itl_quiet() does when somebody looks at how commands end. */
void scsi_itl_quiet_watched(struct scsi_itl *itl)
{
	uint32_t gate;

	scsi_itl_changes(itl);
	scsi_itl_count(itl, -1);
	gate = atomic_load_explicit(&itl->gate, memory_order_relaxed);
	if ((gate & GATE_ORDER) && itl->inflight == itl->pins)
		scsi_order_next(itl);
	scsi_features_ended(itl, gate);
	if (itl->still && scsi_itl_is_still(itl))
		itl->still(itl);
}

void scsi_itl_unpin(struct scsi_itl *itl)
{
	ASSERT(itl->pins > 0);
	itl->pins--;
	scsi_itl_quiet(itl);
}

void scsi_hold(struct scsi_cmd *cmd)
{
	list_del(&cmd->link);
	list_add_tail(&cmd->itl->held, &cmd->link);
	cmd->state |= CMD_HELD;
	scsi_cmd_waits(cmd, LAT_WAIT_ORDER);
	scsi_itl_count(cmd->itl, -1); /* it does not keep the store busy */
}

static uint32_t gate(const struct scsi_itl *itl)
{
	return atomic_load_explicit(&itl->gate, memory_order_relaxed);
}

bool scsi_order_hold(struct scsi_cmd *cmd)
{
	struct scsi_itl *itl = cmd->itl;

	if (cmd->state & CMD_IN_TURN)
		return false;
	atomic_fetch_or_explicit(&itl->gate, GATE_ORDER, memory_order_relaxed);
	if (itl->inflight - itl->pins == 1 && list_empty(&itl->held)) {
		cmd->state |= CMD_IN_TURN; /* alone: only the younger ones wait */
		return false;
	}
	scsi_hold(cmd);
	return true;
}

/* @state: CMD_IN_TURN or 0. */
static void order_go_on(struct scsi_cmd *cmd, uint32_t state)
{
	list_del(&cmd->link);
	cmd->state = state;
	scsi_cmd_part_on(cmd, LAT_CACHE);
	cmd->resume(cmd);
}

static void turn(struct loop_msg *m)
{
	struct scsi_itl *itl = container_of(m, struct scsi_itl, order_msg);
	struct list run = LIST_INIT(run);

	itl->order_posted = false;
	if (!(gate(itl) & GATE_STOP) && itl->inflight == itl->pins) {
		while (!list_empty(&itl->held)) {
			struct scsi_cmd *cmd = list_first(&itl->held, struct scsi_cmd, link);
			bool ordered = cmd->attr == SCSI_ATTR_ORDERED;

			if (ordered && !list_empty(&run))
				break;
			list_del(&cmd->link);
			list_add_tail(&run, &cmd->link);
			if (ordered)
				break;
		}
		while (!list_empty(&run))
			order_go_on(list_first(&run, struct scsi_cmd, link), CMD_IN_TURN);
	}
	scsi_itl_unpin(itl); /* looks again whether somebody waits */
}

void scsi_order_next(struct scsi_itl *itl)
{
	if (itl->order_posted || (gate(itl) & GATE_STOP))
		return;
	if (list_empty(&itl->held)) {
		atomic_fetch_and_explicit(&itl->gate, ~(uint32_t)GATE_ORDER, memory_order_relaxed);
		return;
	}
	itl->order_posted = true;
	scsi_itl_pin(itl);
	itl->order_msg.handle = turn;
	loop_post(itl->nexus->loop, &itl->order_msg);
}

void scsi_itl_run_held(struct scsi_itl *itl)
{
	struct list run = LIST_INIT(run);

	if (gate(itl) & GATE_ORDER) {
		if (itl->inflight == itl->pins)
			scsi_order_next(itl);
		return;
	}
	list_splice_tail(&run, &itl->held);
	while (!list_empty(&run))
		order_go_on(list_first(&run, struct scsi_cmd, link), 0);
}
