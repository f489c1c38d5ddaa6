/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * EXTENDED COPY into other targets. A descriptor names a logical unit by what VPD page 83h says of
 * it, wherever it is (SPC-4 6.4.5.3). It is found when the initiator could log in there at this
 * moment, with the name, address and CHAP account it came with, and sees the unit then; otherwise
 * it is as if there were none.
 *
 * Who may log in is known to the main loop, so that is where the search runs. It joins the target
 * for the copy (struct copy_far); the loop of the command does everything else.
 */
#include <stdlib.h>
#include "tgtd/scsi/commands/xcopy.h"

/* ---- its nexus: no commands of its own ------------------------------------------------------- */

static void never_seg(struct scsi_cmd *cmd, struct scsi_seg *seg)
{
	(void)cmd;
	(void)seg;
	BUG("a nexus without commands");
}

static void never_cmd(struct scsi_cmd *cmd)
{
	(void)cmd;
	BUG("a nexus without commands");
}

static void far_copy_abort_all(struct scsi_nexus *nexus, struct scsi_lu *lu, bool tas,
			       void (*done)(void *arg), void *arg)
{
	(void)nexus;
	(void)lu;
	(void)tas;
	done(arg); /* who pins the unit sees that it is gone */
}

static void far_copy_drop(struct scsi_nexus *nexus)
{
	atomic_store(&container_of(nexus, struct copy_far, nexus)->dropped, true);
	/* none any more when the copy has ended by that */
	for (uint32_t i = 0; i < nexus->nitl; i++)
		if (nexus->itl[i])
			scsi_uses_abort(nexus->itl[i]);
}

static const struct scsi_transport_ops far_ops = {
	.name = "copy",
	.fetch = never_seg,
	.send = never_seg,
	.complete = never_cmd,
	.abort_all = far_copy_abort_all,
	.drop = far_copy_drop,
};

static void far_copy_left(void *arg)
{
	free(arg);
}

void scsi_copy_leave_far(struct xcopy *x)
{
	while (!list_empty(&x->far)) {
		struct copy_far *far = list_first(&x->far, struct copy_far, link);

		list_del(&far->link);
		scsi_nexus_detach(&far->nexus, far_copy_left, far);
	}
}

/* ---- the search ------------------------------------------------------------------------------ */

/* Main loop. */
static struct scsi_nexus *far_copy_join(struct xcopy *x, struct scsi_target *t)
{
	const struct scsi_nexus *n = x->cmd->nexus;
	struct copy_far *far;

	list_for_each(far, &x->far, link)
		if (far->nexus.target == t)
			return &far->nexus;
	far = calloc(1, sizeof(*far));
	if (!far)
		return NULL;
	list_init(&far->link);
	far->nexus.target = t;
	far->nexus.loop = n->loop;
	far->nexus.ops = &far_ops;
	far->nexus.rtpi = n->rtpi;
	memcpy(far->nexus.initiator, n->initiator, sizeof(n->initiator));
	memcpy(far->nexus.iqn, n->iqn, sizeof(n->iqn));
	memcpy(far->nexus.address, n->address, sizeof(n->address));
	if (scsi_nexus_attach(&far->nexus) < 0) {
		free(far);
		return NULL;
	}
	list_add_tail(&x->far, &far->link);
	return &far->nexus;
}

static void search(struct loop_msg *m)
{
	struct xcopy *x = container_of(m, struct xcopy, msg);
	const struct scsi_nexus *n = x->cmd->nexus;
	struct scsi_target *t;

	/* Targets come and go on this loop only, so the list stands still. */
	for (t = scsi_target_next(NULL); t; t = scsi_target_next(t)) {
		if (t == n->target || scsi_target_offline(t) || !scsi_may_log_in(t, n))
			continue;
		for (unsigned i = 0; i < x->ncscd; i++) {
			uint32_t lun;

			if (x->use[i].itl || x->far_nexus[i])
				continue;
			pthread_mutex_lock(&t->lock);
			lun = t->dying ? UINT32_MAX :
					 scsi_copy_find_lun_locked(t, n, x->cscd + i * CSCD_LEN);
			pthread_mutex_unlock(&t->lock);
			if (lun == UINT32_MAX)
				continue;
			x->far_nexus[i] = far_copy_join(x, t);
			x->far_lun[i] = lun;
		}
	}
	scsi_job_done(x->cmd);
}

void scsi_copy_find_far(struct xcopy *x, void (*found)(struct scsi_cmd *cmd))
{
	bool missing = false;

	for (unsigned i = 0; i < x->ncscd; i++)
		missing |= !x->use[i].itl;
	if (!missing || !scsi_access_loop()) {
		found(x->cmd);
		return;
	}
	scsi_job_begin(x->cmd, found);
	x->msg.handle = search;
	loop_post(scsi_access_loop(), &x->msg);
}
