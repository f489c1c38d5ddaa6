/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Task objects, cached by thread, last freed first used: a busy session works on warm ones, a
 * thousand idle sessions keep none. A cache only grows to the most that were ever in use on its
 * thread.
 */
#include <pthread.h>
#include <stdlib.h>

#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/fast.h"

static __thread bool cache_registered;
static pthread_key_t cache_key;
static pthread_once_t cache_once = PTHREAD_ONCE_INIT;

static void task_cache_free(void *unused)
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
	BUG_ON(pthread_key_create(&cache_key, task_cache_free));
}

static struct iscsi_task *task_cache_make(void)
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
		t = task_cache_make();
	if (unlikely(!t))
		return NULL;
	ASSERT(t->state == TASK_FREE);
	t->conn = conn;
	t->state_word = ISCSI_TASK_WORD(.state = TASK_FREE);
	t->data_sn = 0;
	t->residual = 0;
	t->residual_flags = 0;
	t->ack_ttt = ISCSI_TAG_NONE;
	t->acked_sn = 0;
	t->snack_tag = 0;
	list_add_tail(&conn->tasks, &t->link);
	return t;
}
