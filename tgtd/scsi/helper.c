/* SPDX-License-Identifier: GPL-2.0-or-later */
/* One helper thread for what may block: closing stores, extent maps, reservation files.
 * Started when first needed. */
#include "tgtd/scsi/lu.h"

static pthread_mutex_t helper_lock = PTHREAD_MUTEX_INITIALIZER;
static struct loop *helper;

static void work_back(struct loop_msg *m)
{
	struct scsi_work *w = container_of(m, struct scsi_work, msg);
	w->done(w);
}

static void work_run(struct loop_msg *m)
{
	struct scsi_work *w = container_of(m, struct scsi_work, msg);

	w->work(w);
	w->msg.handle = work_back;
	loop_post(w->home, &w->msg);
}

void scsi_helper_run(struct scsi_work *w)
{
	ASSERT(w->home);
	pthread_mutex_lock(&helper_lock);
	if (!helper) {
		struct loop_conf conf = {
			.name = "scsi-helper", .node = 0, .cpu = -1, .may_block = true
		};

		helper = loop_create(&conf);
		if (helper && loop_start(helper) < 0) {
			loop_destroy(helper);
			helper = NULL;
		}
	}
	pthread_mutex_unlock(&helper_lock);
	if (helper) {
		w->msg.handle = work_run;
		loop_post(helper, &w->msg);
		return;
	}
	log_ratelimited(LOG_LVL_ERROR,
			"scsi: no helper thread, blocking work runs on an event thread");
	w->work(w);
	w->msg.handle = work_back;
	loop_post(w->home, &w->msg);
}

void scsi_shutdown(void)
{
	scsi_loops_stop();
	pthread_mutex_lock(&helper_lock);
	if (helper)
		loop_end(helper);
	helper = NULL;
	pthread_mutex_unlock(&helper_lock);
}
