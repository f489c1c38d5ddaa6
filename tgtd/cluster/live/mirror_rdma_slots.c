/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Slots that are lent to an owner, and the windows that let it in: see mirror_rdma.h. */
#ifdef HAVE_RDMA
#include "events/bug.h"
#include "events/bytes.h"
#include "tgtd/cluster/live/mirror_rdma_impl.h"

static uint8_t *rdma_slot_at(const struct mirror_rdma *r, uint32_t frame)
{
	const struct mirror_slots *s = &r->conf.dev->slots;

	return (uint8_t *)s->base + ((size_t)frame << s->shift);
}

const char *rdma_slots_make(struct mirror_rdma *r)
{
	struct mirror_rdma_dev *dev = r->conf.dev;

	if (!mirror_rdma_dev_lends(dev))
		return "nobody may write here";
	r->slot_shift = dev->slots.shift;
	for (; r->nwindows < SLOTS; r->nwindows++) {
		struct rdma_window *w = &r->window[r->nwindows];

		w->mw = rdma_v->alloc_mw(dev->pd);
		if (!w->mw)
			return "the device has no more memory windows";
		w->frame = dev->slots.lend(dev->slots.arg, &w->ticket);
		w->state = w->frame == UINT32_MAX ? WINDOW_EMPTY : WINDOW_IDLE;
		if (w->state == WINDOW_EMPTY) {
			r->nwindows++;
			return "there is no memory for its slots";
		}
	}
	return NULL;
}

void rdma_slots_close(struct mirror_rdma *r)
{
	for (unsigned i = 0; i < r->nwindows; i++) {
		if (r->window[i].mw)
			rdma_v->dealloc_mw(r->window[i].mw);
		r->window[i].mw = NULL;
	}
}

void rdma_slots_free(struct mirror_rdma *r)
{
	const struct mirror_slots *s = &r->conf.dev->slots;

	for (unsigned i = 0; i < r->nwindows; i++)
		if (r->window[i].state != WINDOW_EMPTY)
			s->give_back(s->arg, r->window[i].frame);
	r->nwindows = 0;
}

unsigned rdma_slots_idle(struct mirror_rdma *r)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->nwindows; i++)
		n += r->window[i].state == WINDOW_IDLE;
	return n;
}

static void window_bind(struct mirror_rdma *r, unsigned i, struct ibv_send_wr *wr)
{
	const struct rdma_window *w = &r->window[i];

	*wr = (struct ibv_send_wr){
		.wr_id = ++r->posted,
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = { .mw = w->mw,
			     .rkey = ibv_inc_rkey(w->mw->rkey),
			     .bind_info = { .mr = r->conf.dev->slots_mr,
					    .addr = (uintptr_t)rdma_slot_at(r, w->frame),
					    .length = 1ull << r->slot_shift,
					    .mw_access_flags = IBV_ACCESS_REMOTE_WRITE } }
	};
}

int rdma_slots_grant(struct mirror_rdma *r, uint8_t *to, unsigned max)
{
	struct ibv_send_wr wr[SLOTS], *bad;
	unsigned n = 0;

	for (unsigned i = 0; i < r->nwindows && n < max; i++) {
		struct rdma_window *w = &r->window[i];

		if (w->state != WINDOW_IDLE || !w->mw)
			continue;
		window_bind(r, i, &wr[n]);
		if (n)
			wr[n - 1].next = &wr[n];
		put_be32(to, i);
		put_be32(to + 4, wr[n].bind_mw.rkey);
		put_be64(to + 8, (uintptr_t)rdma_slot_at(r, w->frame));
		to += MESSAGE_GRANT;
		w->state = WINDOW_GRANTED;
		n++;
	}
	if (n && rdma_v->post_send(r->qp, wr, &bad))
		return -EIO;
	for (unsigned i = 0; i < n; i++) /* not before: posting looks at the key that it has */
		wr[i].bind_mw.mw->rkey = wr[i].bind_mw.rkey;
	return (int)n;
}

/* Record @i of the frame names a slot that the owner has, and that its sectors fit into. */
static const char *slot_wrong(const struct mirror_rdma *r, const struct mirror_record *rec)
{
	const unsigned last = 64u - (unsigned)__builtin_clzll(rec->map);

	if (rec->ref >= r->nwindows || r->window[rec->ref].state != WINDOW_GRANTED)
		return "a record names a slot that was not granted";
	if ((size_t)last << r->frame.shift > (size_t)1 << r->slot_shift)
		return "a record has more than its slot";
	return NULL;
}

const char *rdma_slots_end(struct mirror_rdma *r, uint64_t *ready)
{
	struct ibv_send_wr wr[SLOTS], *bad;
	const char *why = NULL;
	unsigned n = 0;

	pthread_mutex_lock(&r->lock);
	for (unsigned i = 0; i < r->frame.n && !why; i++) {
		const struct mirror_record *rec = &r->frame.record[i];
		struct rdma_window *w;

		if (rec->op != MIRROR_WRITE)
			continue;
		why = slot_wrong(r, rec);
		if (why)
			break;
		w = &r->window[rec->ref];
		w->state = WINDOW_NAMED; /* so no other record can have it */
		if (!w->mw || n >= rdma_left(r)) {
			why = "it is cut off here";
			break;
		}
		wr[n] = (struct ibv_send_wr){ .wr_id = r->posted + n + 1,
					      .opcode = IBV_WR_LOCAL_INV,
					      .invalidate_rkey = w->mw->rkey };
		if (n)
			wr[n - 1].next = &wr[n];
		n++;
	}
	if (n && !why) {
		wr[n - 1].send_flags = IBV_SEND_SIGNALED;
		r->posted += n;
		*ready = r->posted;
		if (rdma_v->post_send(r->qp, wr, &bad))
			why = "a window cannot be invalidated";
	}
	pthread_mutex_unlock(&r->lock);
	return why;
}

const char *rdma_slots_add(struct mirror_rdma *r)
{
	for (unsigned i = 0; i < r->frame.n; i++) {
		struct mirror_record *rec = &r->frame.record[i];
		uint64_t map = rec->op == MIRROR_WRITE ? rec->map : 0;
		uint32_t sum = MIRROR_SUM;
		unsigned first, n;

		while (map) {
			const uint8_t *at = rdma_slot_at(r, r->window[rec->ref].frame);
			size_t len;

			first = mirror_run(&map, &n);
			len = (size_t)n << r->frame.shift;
			at += (size_t)first << r->frame.shift;
			sum = mirror_sum_more(sum, at, len);
			if (!mirror_coder_add(r->conf.in, at, len))
				return "libcrypto fails";
		}
		/* (Its form has been looked at, and op is the only other thing that has none.) */
		if (rec->op == MIRROR_WRITE && sum != rec->crc)
			return "the checksum of its data is wrong";
	}
	return NULL;
}

unsigned rdma_slots_name(struct mirror_rdma *r, uint32_t window[SLOTS])
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->frame.n; i++)
		if (r->frame.record[i].op == MIRROR_WRITE) {
			window[n] = r->frame.record[i].ref;
			r->frame.record[i].ref = r->window[window[n++]].frame;
		}
	return n;
}

void rdma_slots_again(struct mirror_rdma *r, const uint32_t *window, unsigned n)
{
	const struct mirror_slots *s = &r->conf.dev->slots;

	for (unsigned i = 0; i < n; i++) {
		struct rdma_window *w = &r->window[window[i]];

		if (!s->is_lent(s->arg, w->frame, w->ticket))
			w->frame = s->lend(s->arg, &w->ticket);
		w->state = w->frame == UINT32_MAX ? WINDOW_EMPTY : WINDOW_IDLE;
	}
}
#endif
