/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See store_flush.h. */
#include <stdlib.h>
#include "cache/backend/store_flush.h"

static bool flush_start(struct sync_group *g)
{
	struct store_flush *f = container_of(g, struct store_flush, syncs);

	g->call.blk = f->blk;
	g->call.home = loop_current();
	return f->submit(f->blk, &g->call);
}

static void flush_begins(struct sync_group *g)
{
	(void)g;
}

/* Before anybody is told: a store may say it once. */
static bool flush_ended(struct sync_group *g, int status)
{
	if (status)
		store_may_have_lost(&container_of(g, struct store_flush, syncs)->doubt);
	return true;
}

struct flushed_write {
	struct blk_req write;
	struct blk_req *req;
	struct store_flush *flush;
	uint32_t failures;
};

/* A write with FUA is told of its own data: what else may be lost is the next SYNC's to tell. */
static void flush_tell(struct blk_req *member, int status)
{
	struct store_flush *f = member->drv;

	member->drv = NULL;
	blk_complete(member, member->op == BLK_SYNC ?
				     store_sync_status(member->blk, &f->doubt, status) :
				     status);
}

void store_flush_init(struct store_flush *f, struct blk *blk,
		      bool (*submit)(struct blk *blk, struct blk_req *req))
{
	f->blk = blk;
	f->submit = submit;
	sync_group_init(&f->syncs);
	f->syncs.start = flush_start;
	f->syncs.begins = flush_begins;
	f->syncs.over = flush_ended;
	f->syncs.tell = flush_tell;
}

void store_flush_fini(struct store_flush *f)
{
	sync_group_fini(&f->syncs);
}

bool store_flush_sync(struct store_flush *f, struct blk_req *req)
{
	uint32_t failures = __atomic_load_n(&f->syncs.failures, __ATOMIC_RELAXED);

	req->drv = f;
	while (!sync_group_join(&f->syncs, req, &failures))
		;
	return false;
}

static void flush_written(struct blk_req *write)
{
	struct flushed_write *w = container_of(write, struct flushed_write, write);
	struct blk_req *req = w->req;
	struct store_flush *f = w->flush;
	uint32_t failures = w->failures;
	int status = write->status;

	req->miscompare = write->miscompare;
	frags_forget(&write->data); /* they are @req's */
	blk_req_fini(write);
	free(w);
	req->drv = f;
	if (status)
		blk_complete_here(req, status);
	else if (!sync_group_join(&f->syncs, req, &failures))
		blk_complete_here(req, -EIO);
}

bool store_flush_after(struct store_flush *f, struct blk_req *req)
{
	struct flushed_write *w = calloc(1, sizeof(*w));
	int err = w ? 0 : -ENOMEM;

	if (w) {
		blk_req_init(&w->write);
		for (uint32_t i = 0; i < req->data.n && !err; i++)
			err = frags_append(&w->write.data, req->data.v[i].base, req->data.v[i].len,
					   NULL);
	}
	if (err) {
		if (w)
			blk_req_fini(&w->write);
		free(w);
		req->status = err;
		return true;
	}
	w->req = req;
	w->flush = f;
	w->failures = __atomic_load_n(&f->syncs.failures, __ATOMIC_ACQUIRE);
	w->write.blk = f->blk;
	w->write.op = req->op;
	w->write.flags = (uint16_t)(req->flags & ~(unsigned)BLK_F_FUA);
	w->write.offset = req->offset;
	w->write.len = req->len;
	w->write.home = req->home;
	w->write.done = flush_written;
	if (!f->submit(f->blk, &w->write))
		return false;
	err = w->write.status;
	req->miscompare = w->write.miscompare;
	frags_forget(&w->write.data);
	blk_req_fini(&w->write);
	free(w);
	req->status = err;
	return true;
}
