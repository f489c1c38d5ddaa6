/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What all gateways answer alike: persistent reservations. gateway.h makes changes and brings news,
 * the device server computes the one and obeys the other (tgtd/scsi/target.h). */
#include "tgtd/cluster/live/group_impl.h"

/* ---- what gateway.h asks --------------------------------------------------------------------- */

static void shared_obeyed(void *arg, int status)
{
	group_answer(arg, status);
}

static void group_lu_shared(void *arg, uint64_t id, unsigned at, const struct gw_shared *s)
{
	struct group_lu *lu = group_lu_at(arg, at);
	struct group_ask *a = lu ? group_ask_new(arg, id, lu) : NULL;

	if (a)
		scsi_lu_obey(lu->scsi, s->blob, s->len, shared_obeyed, a);
}

/* What cannot be read, or has no room, is heard of with the next change. */
static void group_lu_heard(void *arg, unsigned at, const struct gw_shared *s)
{
	struct group_lu *lu = group_lu_at(arg, at);
	int err = lu ? scsi_lu_set_shared(lu->scsi, s->blob, s->len) : 0;

	(void)err;
}

static int group_change(void *arg, unsigned at, uint64_t cookie, const struct gw_shared *from,
			struct gw_shared *to)
{
	static_assert(SCSI_SHARED_MAX <= GW_SHARED_MAX, "it fits into the object");
	size_t len = to->len;

	(void)arg;
	(void)at;
	switch (scsi_ask_change((struct scsi_ask *)(uintptr_t)cookie, from->blob, from->len,
				to->blob, &len)) {
	case SCSI_CHANGED:
		to->len = (uint32_t)len;
		return 0;
	case SCSI_UNCHANGED:
		return GW_AS_IT_IS;
	default:
		return -ENOTSUP; /* the question has its answer */
	}
}

static void group_looked(void *arg, unsigned at, uint64_t cookie, int result,
			 const struct gw_shared *s)
{
	struct scsi_ask *ask = (struct scsi_ask *)(uintptr_t)cookie;

	(void)arg;
	(void)at;
	if (result)
		scsi_ask_over(ask, result);
	else
		scsi_ask_seen(ask, s->blob, s->len);
}

/* It is made, and obeyed: whether this gateway can read it is not the question. */
static void group_changed(void *arg, unsigned at, uint64_t cookie, int result,
			  const struct gw_shared *s)
{
	if (!result)
		group_lu_heard(arg, at, s);
	scsi_ask_over((struct scsi_ask *)(uintptr_t)cookie, result == -ENOTSUP ? 0 : result);
}

void group_shared_ops(struct gw_ops *ops)
{
	ops->lu_shared = group_lu_shared;
	ops->lu_heard = group_lu_heard;
	ops->change = group_change;
	ops->changed = group_changed;
	ops->looked = group_looked;
}

/* ---- what commands ask ----------------------------------------------------------------------- */

static void shared_begin(struct group *g, struct scsi_lu *scsi, struct scsi_ask *ask,
			 void (*begin)(struct gateway *gw, unsigned lu, uint64_t cookie,
				       uint64_t now))
{
	const struct group_lu *lu = group_find_lu(g, scsi);

	if (!lu || g->stopped) {
		scsi_ask_over(ask, -ECANCELED);
		return;
	}
	begin(g->gw, (unsigned)lu->at, (uintptr_t)ask, group_now());
	group_looks(g);
}

static void shared_change(void *arg, struct scsi_lu *lu, struct scsi_ask *ask)
{
	shared_begin(arg, lu, ask, gw_change);
}

static void shared_look(void *arg, struct scsi_lu *lu, struct scsi_ask *ask)
{
	shared_begin(arg, lu, ask, gw_look);
}

static void shared_cancel(void *arg, struct scsi_lu *scsi, struct scsi_ask *ask)
{
	struct group *g = arg;
	const struct group_lu *lu = group_find_lu(g, scsi);

	if (lu)
		gw_cancel(g->gw, (unsigned)lu->at, (uintptr_t)ask);
}

void group_shared_asks(struct scsi_gateways *to, struct group *g)
{
	to->main = g->main;
	to->arg = g;
	to->change = shared_change;
	to->look = shared_look;
	to->cancel = shared_cancel;
}
