/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Task objects and the ways a task ends.
 *
 * Objects are cached by thread, last freed first used: a busy session works on warm ones, a
 * thousand idle sessions keep none. A cache only grows to the most that were ever in use on
 * its thread.
 */
#include <pthread.h>
#include <stdlib.h>

#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/easy.h"

/* ---- the thread's cache ---------------------------------------------------------------------- */

__thread struct iscsi_task *iscsi_task_cache_;
static __thread bool cache_registered;
static pthread_key_t cache_key;
static pthread_once_t cache_once = PTHREAD_ONCE_INIT;

static void cache_free(void *unused)
{
	(void)unused;
	while (iscsi_task_cache_) {
		struct iscsi_task *t = iscsi_task_cache_;

		iscsi_task_cache_ = t->hash_next;
		scsi_cmd_fini(&t->cmd);
		free(t->out.r2t);
		free(t->sent);
		free(t->out.unsol_ranges);
		free(t);
	}
	cache_registered = false;
}

static void cache_make_key(void)
{
	BUG_ON(pthread_key_create(&cache_key, cache_free));
}

static struct iscsi_task *make(void)
{
	struct iscsi_task *t;

	if (!cache_registered) {
		pthread_once(&cache_once, cache_make_key);
		pthread_setspecific(cache_key, &cache_registered);
		cache_registered = true;
	}
	if (posix_memalign((void **)&t, CACHE_LINE, sizeof(*t)))
		return NULL;
	memset(t, 0, sizeof(*t));
	scsi_cmd_init(&t->cmd);
	list_init(&t->pending.link);
	list_init(&t->link);
	for (unsigned i = 0; i < SCSI_CMD_SEGS; i++) {
		list_init(&t->data[i].link);
		t->data[i].task = t;
		t->data[i].kind = PDU_DATA_IN;
		t->data[i].seg = &t->cmd.seg[i];
		t->data[i].done = iscsi_data_done;
	}
	list_init(&t->rsp.link);
	t->rsp.task = t;
	t->rsp.kind = PDU_RESPONSE;
	t->rsp.done = iscsi_rsp_done;
	t->cmd.cdb = t->cdb;
	t->cmd.cdb_len = 16;
	return t;
}

struct iscsi_task *iscsi_task_get(struct iscsi_conn *conn)
{
	struct iscsi_task *t = iscsi_task_cache_;

	if (likely(t))
		iscsi_task_cache_ = t->hash_next;
	else
		t = make();
	if (unlikely(!t))
		return NULL;
	ASSERT(t->state == TASK_FREE);
	t->conn = conn;
	t->standing = ISCSI_STANDING(.state = TASK_FREE);
	t->data_sn = 0;
	t->residual = 0;
	t->residual_flags = 0;
	t->ack_ttt = ISCSI_TAG_NONE;
	t->acked_sn = 0;
	t->snack_tag = 0;
	list_add_tail(&conn->tasks, &t->link);
	return t;
}

/* ---- ending ---------------------------------------------------------------------------------- */

void iscsi_task_end(struct iscsi_task *t)
{
	struct iscsi_conn *conn = t->conn;
	struct iscsi_session *s = conn->sess;

	ASSERT(!t->pdus_out && !t->out.fetching && !t->kept);
	if (unlikely(conn->rx_task == t)) {
		conn->rx_task = NULL;
		conn->sink.kind = SINK_DISCARD;
	}
	iscsi_session_task_del(s, t);
	if (t->cmd.dir_out)
		iscsi_dataout_fini(t);
	if (t->started)
		scsi_cmd_end(&t->cmd);
	if (unlikely(t->has_cdb_long)) {
		free(t->cdb_long);
		t->cmd.cdb = t->cdb;
		t->cmd.cdb_len = 16;
	}
	if (t->in_window)
		s->in_window--;
	if (t->is_immediate)
		s->immediates--;
	if (unlikely(t->sent_cap > ISCSI_SENT_KEPT)) {
		free(t->sent);
		t->sent = NULL;
		t->sent_cap = 0;
	}
	list_del(&t->link);
	iscsi_task_put(t);
	if (unlikely(conn->tp_closed))
		iscsi_conn_check_cleaned(conn);
}

void iscsi_task_finish(struct iscsi_task *t)
{
	if (t->pdus_out || t->out.fetching)
		return;
	if (t->state == TASK_RESPONDING) {
		if (iscsi_recovers(t->conn) && iscsi_keep(t->conn, &t->rsp)) {
			t->state = TASK_UNACKED;
			if (t->is_immediate)
				t->conn->sess->immediates--;
			t->is_immediate = false;
			if (unlikely(t->resegment))
				iscsi_resegment(t);
			return;
		}
		if (unlikely(t->kept))
			iscsi_seg_release_all(t);
		iscsi_task_end(t);
	} else if (t->state == TASK_ENDING) {
		iscsi_task_end(t);
	} else if (unlikely(t->resegment)) {
		iscsi_resegment(t);
	}
}

void iscsi_task_abort(struct iscsi_task *t, bool tas)
{
	switch ((enum iscsi_task_state)t->state) {
	case TASK_ARRIVING:
		iscsi_task_end_silently(t);
		break;
	case TASK_HELD:
		/* Its number must not be missed. */
		list_del(&t->pending.link);
		iscsi_session_skip(t->conn->sess, t->cmd_sn);
		iscsi_task_end_silently(t);
		break;
	case TASK_RUNNING:
		if (t->aborting) {
			scsi_cmd_abort(&t->cmd, tas); /* by whom is what changes */
			break;
		}
		t->aborting = true;
		metric_inc(M_iscsi_tasks_aborted);
		scsi_cmd_abort(&t->cmd, tas);
		/* What comes back from here may end it; segments do not
		 * bring further ones any more. */
		t->pdus_out++;
		if (unlikely(t->kept))
			iscsi_seg_release_all(t);
		if (t->cmd.dir_out)
			iscsi_dataout_close(t);
		t->pdus_out--;
		iscsi_task_finish(t);
		break;
	case TASK_DRAINING:
		if (tas)
			break; /* it will say what it has to */
		t->state = TASK_ENDING;
		iscsi_task_finish(t);
		break;
	case TASK_ENDING:
		iscsi_task_finish(t);
		break;
	case TASK_FENCED: /* its response is on its way; iscsi_fence_conn_left() */
	case TASK_UNACKED: /* iscsi_forget() */
	case TASK_RESPONDING:
	case TASK_FREE:
		break;
	}
}
