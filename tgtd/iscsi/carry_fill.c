/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a session and its connections are, as carry_form.h has it. See carry.h. */
#include <stdio.h>

#include "tgtd/iscsi/carry.h"
#include "tgtd/iscsi/carry_form.h"
#include "tgtd/iscsi/core.h"

void carry_key(char key[CARRY_KEY], unsigned tsih, unsigned cid)
{
	snprintf(key, CARRY_KEY, CARRY_SOCKETS "%u/%u", tsih, cid);
}

void carry_fill_session(struct carry_session *r, const struct iscsi_session *s)
{
	static_assert(sizeof(r->user) == sizeof(s->user) && sizeof(r->alias) == sizeof(s->alias) &&
			      sizeof(r->initiator) == sizeof(s->initiator) &&
			      sizeof(r->target) == ISCSI_NAME_MAX + 1,
		      "names fit");
	const char *name = scsi_target_name(s->target);

	memset(r, 0, sizeof(*r));
	r->tid = scsi_target_tid(s->target);
	r->tsih = s->tsih;
	r->tpgt = s->tpgt;
	r->exp_cmd_sn = s->exp_cmd_sn;
	r->max_cmd_sn = s->max_cmd_sn;
	r->window = s->window;
	r->next_ttt = s->next_ttt;
	r->rounds = s->nexus.rounds;
	r->full_rounds = s->nexus.full_rounds;
	r->peer = s->peer;
	carry_put_params(&r->params, &s->params);
	memcpy(r->isid, s->isid, sizeof(s->isid));
	/* (snprintf() takes a page of the thread's stack that nothing else does.) */
	memcpy(r->target, name, MIN(strlen(name), sizeof(r->target) - 1));
	memcpy(r->initiator, s->initiator, sizeof(r->initiator));
	memcpy(r->alias, s->alias, sizeof(r->alias));
	memcpy(r->user, s->user, sizeof(r->user));
}

void carry_fill_lun(struct carry_lun *r, const struct scsi_carried_lun *l)
{
	static_assert(sizeof(r->stats) == sizeof(l->stats), "the same figures");
	*r = (struct carry_lun){ .lun = l->lun,
				 .nua = l->nua,
				 .holds = l->holds,
				 .blocks = l->blocks,
				 .block_size = l->block_size,
				 .inquiry = l->inquiry };
	memcpy(r->ua, l->ua, sizeof(r->ua));
	memcpy(r->stats, &l->stats, sizeof(r->stats));
}

void carry_fill_conn(struct carry_conn *r, const struct iscsi_conn *c)
{
	static_assert(sizeof(r->stats) == sizeof(c->stats), "the same figures");
	memset(r, 0, sizeof(*r));
	r->cid = c->cid;
	r->tpgt = c->tpgt;
	r->stat_sn = c->stat_sn;
	r->exp_stat_sn = c->exp_stat_sn;
	r->peer = c->peer;
	r->local = c->local;
	/* Ordinary commands do not look at it: it may be old by any number. */
	if (c->stat_sn - c->exp_stat_sn > 1u << 30)
		r->exp_stat_sn = c->stat_sn;
	carry_put_params(&r->params, &c->params);
	memcpy(r->stats, &c->stats, sizeof(r->stats));
}
