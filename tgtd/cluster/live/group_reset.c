/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Resets of units (rule 9). One that an initiator sends to a standby gateway goes to the owner, and
 * is answered when it is done there. Nobody waits for longer than RESET_NS: then it is refused, and
 * the initiator may send it again.
 */
#include "events/log.h"
#include "tgtd/cluster/live/group_impl.h"

#define RESET_NS (10 * NSEC_PER_SEC) /* initiators give up after 15 s or more */

static struct group *resets_of; /* set before the first unit is there */

/* ---- of an initiator here -------------------------------------------------------------------- */

static void reset_end(struct scsi_gateway_reset *r, int status)
{
	loop_timer_cancel(resets_of->main, &r->late);
	list_del(&r->link);
	r->status = status;
	r->msg.handle = r->over;
	loop_post(r->home, &r->msg);
}

static void reset_late(struct timer *t)
{
	struct scsi_gateway_reset *r = container_of(t, struct scsi_gateway_reset, late);
	const struct group_lu *lu = group_find_lu(resets_of, r->lu);

	if (lu)
		gw_cancel(resets_of->gw, (unsigned)lu->at, r->cookie);
	reset_end(r, -ETIMEDOUT);
}

static void reset_asked(struct loop_msg *msg)
{
	struct scsi_gateway_reset *r = container_of(msg, struct scsi_gateway_reset, msg);
	struct group *g = resets_of;
	const struct group_lu *lu = group_find_lu(g, r->lu);

	list_init(&r->link);
	timer_init(&r->late, reset_late);
	if (!g->ready || !lu) {
		reset_end(r, lu ? -ENOTCONN : -ENODEV);
		return;
	}
	r->cookie = ++g->cookies;
	list_add_tail(&r->link, &g->resets);
	loop_timer_arm(g->main, &r->late, RESET_NS);
	gw_reset(g->gw, (unsigned)lu->at, r->cookie, group_now());
	group_looks(g);
}

static void group_reset_elsewhere(struct scsi_gateway_reset *r)
{
	r->msg.handle = reset_asked;
	loop_post(resets_of->main, &r->msg);
}

/* -EBUSY: this gateway serves it, and has done it already; or there are too many at once. */
static void group_reset_done(void *arg, unsigned at, uint64_t cookie, int result)
{
	struct group *g = arg;
	struct scsi_gateway_reset *r;
	struct gw_show_lu show;

	gw_show_lu(g->gw, at, &show);
	if (result == -EBUSY && show.owner == g->conf.self)
		result = 0;
	list_for_each(r, &g->resets, link)
		if (r->cookie == cookie) {
			reset_end(r, result);
			return;
		}
}

void group_resets_begin(struct group *g)
{
	resets_of = g;
	list_init(&g->resets);
	g->gateways.reset = group_reset_elsewhere;
}

void group_resets_end(struct group *g)
{
	while (!list_empty(&g->resets))
		reset_end(list_first(&g->resets, struct scsi_gateway_reset, link), -ESHUTDOWN);
}

/* ---- of another gateway ---------------------------------------------------------------------- */

static void reset_is_done(void *arg, int status)
{
	struct group_ask *a = arg;

	a->lu->resets--;
	group_answer(a, status);
}

static void group_lu_reset(void *arg, uint64_t id, unsigned at)
{
	struct group *g = arg;
	struct group_lu *lu = at < GROUP_LUS && g->lu[at].scsi ? &g->lu[at] : NULL;
	struct group_ask *a = lu ? group_ask_new(g, id, lu) : NULL;

	if (!a)
		return;
	log_notice("cluster: %s: reset by an initiator of another gateway", lu->blk->path);
	lu->resets++;
	scsi_lu_reset(lu->scsi, reset_is_done, a);
}

void group_reset_ops(struct gw_ops *ops)
{
	ops->lu_reset = group_lu_reset;
	ops->reset_done = group_reset_done;
}
