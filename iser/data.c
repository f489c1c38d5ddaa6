/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sending and RDMA. What the iteration produced leaves at its end: one chain of work requests, one
 * post.
 *
 *   READ    [RDMA write]... [send: SCSI Response]   ordered by the queue pair, one completion at
 *                                                   most
 *   WRITE   [RDMA read]...  then, from the core, [send: SCSI Response]
 *
 * Fragments that lie in registered memory are gathered (or scattered) where they are, adjacent ones
 * as one element; others (parameter data; everything with path=copy) go through bounce slots. What
 * does not fit into the send queue, or finds no slot, waits in its queue; completions bring it on.
 * The last request of a chain is always signalled, so there is always a completion to wait for.
 *
 * Return of memory: an iscsi_pdu or scsi_seg goes back when its last work request has completed, in
 * the order of the queue, or when the queue pair has been drained.
 */
#include "iser/conn.h"

#define CHAIN_WRS 64
#define CHAIN_SGES 512
#define SIGNAL_EVERY_BYTES (256u << 10) /* give cache blocks back at least so often */
#define PACK_BELOW 16384u		/* GATHER_AUTO: a copy is cheaper
					 * than further work requests */

struct chain {
	unsigned n, nsge;
	struct ibv_send_wr wr[CHAIN_WRS];
	struct ibv_sge sge[CHAIN_SGES];
};
static_assert(CHAIN_SGES >= 2 * ISER_SGE_MAX, "a chain holds any work request");
static __thread struct chain chain_;

/* What remains to be fetched of a segment; host_word[0] is the core's. */
enum { RD_RANGE = 1, RD_POSTED = 2, RD_TASK = 3 };

static void rdma_flush(struct loop_deferred *d);

void iser_data_init(struct iser_conn *ic)
{
	list_init(&ic->txq);
	list_init(&ic->rdq);
	loop_deferred_init(&ic->flush, rdma_flush);
}

/* ---- from the core --------------------------------------------------------------------------- */

void iser_send_pdu(struct iscsi_conn *conn, struct iscsi_pdu *pdu)
{
	struct iser_conn *ic = iser_of(conn);

	ASSERT_ON_LOOP(conn->loop);
	if (unlikely(!ic->ffp))
		iser_login_recv(ic); /* before the response can bring the next request */
	list_add_tail(&ic->txq, &pdu->link);
	loop_defer(conn->loop, &ic->flush);
}

void iser_send_data(struct iscsi_conn *conn, struct iscsi_pdu *pdu)
{
	struct iser_conn *ic = iser_of(conn);

	ASSERT_ON_LOOP(conn->loop);
	ASSERT(!(pdu->flags & PDU_F_STATUS));
	if (unlikely(!(pdu->task->tp_word[TAG_FLAGS] & ISER_RSV)))
		iscsi_conn_fail(conn, "a command that reads has no Read STag");
	list_add_tail(&ic->txq, &pdu->link);
	loop_defer(conn->loop, &ic->flush);
}

void iser_fetch(struct iscsi_task *task, struct scsi_seg *seg, uint64_t off, uint32_t len)
{
	struct iser_conn *ic = iser_of(task->conn);

	ASSERT_ON_LOOP(ic->conn.loop);
	ASSERT(off >= seg->off && off + len <= seg->off + seg->len);
	if (unlikely(!(task->tp_word[TAG_FLAGS] & ISER_WSV)))
		iscsi_conn_fail(&ic->conn, "a command that writes has no Write STag");
	seg->host_word[RD_RANGE] = off << 32 | len;
	seg->host_word[RD_POSTED] = 0;
	seg->host_word[RD_TASK] = (uintptr_t)task;
	list_add_tail(&ic->rdq, &seg->link);
	loop_defer(ic->conn.loop, &ic->flush);
}

/* ---- completions ----------------------------------------------------------------------------- */

static void object_done(struct iser_conn *ic, void *obj, enum iser_wr_kind kind, bool ok)
{
	if (kind == WR_READ) {
		struct scsi_seg *seg = obj;
		uint64_t range = seg->host_word[RD_RANGE];

		iscsi_fetched((struct iscsi_task *)(uintptr_t)seg->host_word[RD_TASK], seg,
			      range >> 32, (uint32_t)range,
			      ok && !ic->conn.failed ? 0 :
			      ic->conn.failed	     ? -ECANCELED :
						       -EIO);
	} else {
		struct iscsi_pdu *pdu = obj;

		pdu->done(pdu);
	}
}

void iser_sq_done(struct iser_conn *ic, uint64_t number, bool ok)
{
	BUG_ON(number >= ic->sq_head);
	while (ic->sq_tail <= number) {
		struct iser_wr w = ic->sq[ic->sq_tail & (ic->sq_depth - 1)];
		/* Errors stop the queue: what came before went well. */
		bool good = ok || ic->sq_tail < number;

		ic->sq_tail++;
		if (w.kind == WR_READ)
			ic->rd_out--;
		if (unlikely(w.slot != NO_SLOT)) {
			if (w.kind == WR_READ && good) {
				struct scsi_seg *seg = w.obj;

				frags_copy_in(&seg->io.data, w.off,
					      ic->slots + (size_t)w.slot * iser_opt.slot_len,
					      w.len);
			}
			ic->free_slot[ic->nfree_slots++] = w.slot;
		}
		if (w.last)
			object_done(ic, w.obj, w.kind, good);
	}
	if (unlikely(!list_empty(&ic->txq) || !list_empty(&ic->rdq)))
		loop_defer(ic->conn.loop, &ic->flush);
}

void iser_data_drop(struct iser_conn *ic)
{
	ASSERT(ic->sq_head == ic->sq_tail);
	for (;;) {
		if (!list_empty(&ic->rdq)) {
			struct scsi_seg *seg = list_first(&ic->rdq, struct scsi_seg, link);

			list_del(&seg->link);
			object_done(ic, seg, WR_READ, false);
		} else if (!list_empty(&ic->txq)) {
			struct iscsi_pdu *pdu = list_first(&ic->txq, struct iscsi_pdu, link);

			list_del(&pdu->link);
			object_done(ic, pdu, WR_SEND, false);
		} else {
			break;
		}
	}
}

/* ---- building: room -------------------------------------------------------------------------- */

static bool rdma_room(struct iser_conn *ic, const struct chain *c)
{
	if (unlikely(ic->sq_head - ic->sq_tail >= ic->sq_depth)) {
		metric_inc(M_iser_sq_waits);
		return false;
	}
	return c->n < CHAIN_WRS && c->nsge + ISER_SGE_MAX <= CHAIN_SGES;
}

/* The next work request of the chain, with its record. There is room. */
static struct ibv_send_wr *next_wr(struct iser_conn *ic, struct chain *c, void *obj,
				   enum iser_wr_kind kind)
{
	struct ibv_send_wr *wr = &c->wr[c->n];

	ic->sq[ic->sq_head & (ic->sq_depth - 1)] =
		(struct iser_wr){ .obj = obj, .slot = NO_SLOT, .kind = (uint8_t)kind };
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = ic->sq_head << 1;
	wr->sg_list = &c->sge[c->nsge];
	if (c->n)
		c->wr[c->n - 1].next = wr;
	c->n++;
	ic->sq_head++;
	return wr;
}

static struct iser_wr *record(struct iser_conn *ic)
{
	return &ic->sq[(ic->sq_head - 1) & (ic->sq_depth - 1)];
}

static void signal_it(struct iser_conn *ic, struct ibv_send_wr *wr)
{
	if (wr->send_flags & IBV_SEND_SIGNALED)
		return;
	wr->send_flags |= IBV_SEND_SIGNALED;
	ic->unsignalled_bytes = 0;
	metric_inc(M_iser_signalled);
}

static bool rdma_take_slot(struct iser_conn *ic, uint16_t *slot)
{
	if (!ic->nfree_slots) {
		metric_inc(M_iser_slot_waits);
		return false;
	}
	*slot = ic->free_slot[--ic->nfree_slots];
	return true;
}

/* ---- building: fragments to elements --------------------------------------------------------- */

struct cursor {
	const struct frags *f;
	uint32_t i;
	uint32_t off; /* in fragment i */
};

static struct cursor seek_to(const struct frags *f, uint64_t off)
{
	struct cursor cur = { .f = f };

	while (cur.i < f->n && off >= f->v[cur.i].len)
		off -= f->v[cur.i++].len;
	cur.off = (uint32_t)off;
	return cur;
}

static void rdma_step(struct cursor *cur, uint32_t n)
{
	cur->off += n;
	if (cur->off == cur->f->v[cur->i].len) {
		cur->i++;
		cur->off = 0;
	}
}

/* Registered memory from the cursor on, at most @left bytes in @max elements. Returns its bytes; 0:
 * the memory at the cursor is not registered. */
static uint32_t rdma_gather(struct iser_conn *ic, struct cursor *cur, uint32_t left, unsigned max,
			    struct ibv_sge *sge, unsigned *nsge)
{
	uint32_t got = 0;
	unsigned n = 0;

	while (left && cur->i < cur->f->n) {
		const struct frag *g = &cur->f->v[cur->i];
		uint8_t *p = g->base + cur->off;
		uint32_t len = MIN(g->len - cur->off, left), lkey;
		size_t run;

		if (!iser_lkey(ic->dev, g->block, p, &lkey, &run))
			break;
		len = (uint32_t)MIN((size_t)len, run);
		if (n && sge[n - 1].lkey == lkey &&
		    sge[n - 1].addr + sge[n - 1].length == (uintptr_t)p) {
			sge[n - 1].length += len;
		} else {
			if (n == max)
				break;
			sge[n++] = (struct ibv_sge){ .addr = (uintptr_t)p,
						     .length = len,
						     .lkey = lkey };
		}
		got += len;
		left -= len;
		rdma_step(cur, len);
	}
	*nsge = n;
	return got;
}

/* How far memory that is not registered goes from the cursor on. */
static uint32_t unregistered(struct iser_conn *ic, struct cursor cur, uint32_t max)
{
	uint32_t n = 0;

	while (n < max && cur.i < cur.f->n) {
		const struct frag *g = &cur.f->v[cur.i];
		uint32_t len = MIN(g->len - cur.off, max - n), lkey;
		size_t run;

		if (n && iser_lkey(ic->dev, g->block, g->base + cur.off, &lkey, &run))
			break;
		n += len;
		rdma_step(&cur, len);
	}
	return n;
}

/* Is it better, or wanted, to copy the next @left bytes into one piece? */
static bool pack(const struct cursor *cur, uint32_t left, unsigned max_sge)
{
	uint32_t nfrags = cur->f->n - cur->i;

	if (iser_opt.path == PATH_COPY)
		return true;
	switch ((enum iser_gather)iser_opt.gather) {
	case GATHER_PACK:
		return nfrags > 1 && left <= iser_opt.slot_len;
	case GATHER_AUTO:
		return nfrags > max_sge && left <= PACK_BELOW;
	case GATHER_GATHER:
	case GATHER_MULTI:
		break;
	}
	return false;
}

/*
 * The elements of one work request for the next bytes of @f at the cursor: directly or by a
 * bounce slot. Returns their number of bytes; 0: no slot is free. @write: data leaves, so it
 * is copied into the slot now.
 */
static uint32_t elements(struct iser_conn *ic, struct chain *c, struct cursor *cur, uint32_t left,
			 unsigned max_sge, bool write, uint16_t *slot, unsigned *nsge)
{
	struct ibv_sge *sge = &c->sge[c->nsge];
	uint32_t len = 0;
	uint8_t *at;

	*slot = NO_SLOT;
	left = MIN(left, ic->dev->max_msg);
	if (iser_opt.gather == GATHER_MULTI)
		max_sge = 1;
	if (likely(!pack(cur, left, max_sge)))
		len = rdma_gather(ic, cur, left, max_sge, sge, nsge);
	if (likely(len))
		return len;
	if (!rdma_take_slot(ic, slot))
		return 0;
	left = MIN(left, iser_opt.slot_len);
	len = pack(cur, left, max_sge) ? left : unregistered(ic, *cur, left);
	at = ic->slots + (size_t)*slot * iser_opt.slot_len;
	*sge = (struct ibv_sge){ .addr = (uintptr_t)at, .length = len,
				 .lkey = ic->ffp_mem->mr->lkey };
	*nsge = 1;
	metric_add(cur->f->v[cur->i].block ? M_iser_copied_bytes : M_iser_param_bytes, len);
	for (uint32_t n = 0; n < len;) {
		const struct frag *g = &cur->f->v[cur->i];
		uint32_t part = MIN(g->len - cur->off, len - n);

		if (write)
			memcpy(at + n, g->base + cur->off, part);
		n += part;
		rdma_step(cur, part);
	}
	return len;
}

/* ---- building: the three kinds --------------------------------------------------------------- */

/* True: all of it is in the chain. */
static bool build_write(struct iser_conn *ic, struct chain *c, struct iscsi_pdu *pdu)
{
	const uint64_t *tag = pdu->task->tp_word;
	struct cursor cur = seek_to(&pdu->seg->io.data, pdu->seg_off);

	while (pdu->seg_off < pdu->seg_end) {
		struct ibv_send_wr *wr;
		unsigned nsge;
		uint16_t slot;
		uint32_t len;

		if (!rdma_room(ic, c))
			return false;
		len = elements(ic, c, &cur, pdu->seg_end - pdu->seg_off, ic->max_sge, true, &slot,
			       &nsge);
		if (!len)
			return false;
		wr = next_wr(ic, c, pdu, WR_WRITE);
		wr->opcode = IBV_WR_RDMA_WRITE;
		wr->num_sge = (int)nsge;
		wr->wr.rdma.remote_addr = tag[TAG_READ_VA] + pdu->seg->off + pdu->seg_off;
		wr->wr.rdma.rkey = tag_read_stag(tag);
		c->nsge += nsge;
		record(ic)->slot = slot;
		pdu->seg_off += len;
		ic->unsignalled_bytes += len;
		metric_inc(M_iser_wr_write);
		metric_add(M_iser_sges, nsge);
		metric_add(M_iser_write_bytes, len);
	}
	record(ic)->last = true;
	return true;
}

/* Bytes [posted, len) of the range that the core asked for. */
static bool build_read(struct iser_conn *ic, struct chain *c, struct scsi_seg *seg)
{
	const struct iscsi_task *t = (const struct iscsi_task *)(uintptr_t)seg->host_word[RD_TASK];
	const uint64_t *tag = t->tp_word;
	uint64_t off = seg->host_word[RD_RANGE] >> 32;
	uint32_t len = (uint32_t)seg->host_word[RD_RANGE];
	struct cursor cur = seek_to(&seg->io.data, off - seg->off + seg->host_word[RD_POSTED]);

	while (seg->host_word[RD_POSTED] < len) {
		uint32_t at = (uint32_t)seg->host_word[RD_POSTED], n;
		struct ibv_send_wr *wr;
		unsigned nsge;
		uint16_t slot;

		if (ic->rd_out >= ic->rd_max) {
			metric_inc(M_iser_read_waits);
			return false;
		}
		if (!rdma_room(ic, c))
			return false;
		n = elements(ic, c, &cur, len - at, ic->max_sge_rd, false, &slot, &nsge);
		if (!n)
			return false;
		wr = next_wr(ic, c, seg, WR_READ);
		wr->opcode = IBV_WR_RDMA_READ;
		wr->num_sge = (int)nsge;
		/* The Base Offset is that of the solicited data: see params.c. */
		wr->wr.rdma.remote_addr =
			tag[TAG_WRITE_VA] + off + at -
			(t->conn->params.tagged_solicited_only ? t->out.unsol_len : 0);
		wr->wr.rdma.rkey = tag_write_stag(tag);
		c->nsge += nsge;
		record(ic)->slot = slot;
		record(ic)->off = (uint32_t)(off - seg->off + at);
		record(ic)->len = n;
		ic->rd_out++;
		seg->host_word[RD_POSTED] += n;
		metric_inc(M_iser_wr_read);
		metric_add(M_iser_sges, nsge);
		metric_add(M_iser_read_bytes, n);
	}
	record(ic)->last = true;
	signal_it(ic, &c->wr[c->n - 1]); /* its command waits for it */
	return true;
}

/* Sense data must fit the initiator's receives (RFC 7145 6.5: InitiatorRecvDataSegmentLength). */
static void cut_sense(struct iser_conn *ic, struct iscsi_pdu *pdu)
{
	uint32_t max = ic->conn.params.initiator_recv_dsl;

	if (likely(pdu->kind != PDU_RESPONSE || pdu->data_len <= max))
		return;
	pdu->data_len = max;
	put_be16((uint8_t *)(uintptr_t)pdu->data, (uint16_t)(max - 2));
	put_be24(pdu->bhs + BHS_DATA_LEN, max);
}

static bool build_send(struct iser_conn *ic, struct chain *c, struct iscsi_pdu *pdu)
{
	uint8_t *hdr =
		ic->ffp ? ic->tx_hdr + (ic->sq_head % ic->sq_depth) * ISER_TX_HDR : ic->tx_hdr;
	uint32_t lkey = ic->ffp ? ic->ffp_mem->mr->lkey : ic->login_mem->mr->lkey;
	uint32_t len = ISER_HEADERS_LEN;
	struct ibv_send_wr *wr;
	struct ibv_sge *sge;
	uint16_t slot = NO_SLOT;
	const uint64_t *tag;

	if (!rdma_room(ic, c))
		return false;
	if (ic->ffp)
		cut_sense(ic, pdu);
	BUG_ON(pdu->data_len > (ic->ffp ? iser_opt.slot_len : ISCSI_LOGIN_DSL));
	if (unlikely(ic->ffp && pdu->data_len > ISER_TX_DATA) && !rdma_take_slot(ic, &slot))
		return false;
	iscsi_pdu_stamp(&ic->conn, pdu, pdu->bhs);
	iser_hdr_build(hdr);
	memcpy(hdr + ISER_HDR_LEN, pdu->bhs, ISCSI_BHS_LEN);
	wr = next_wr(ic, c, pdu, WR_SEND);
	sge = wr->sg_list;
	wr->opcode = IBV_WR_SEND;
	wr->num_sge = 1;
	/* Commands and responses are solicited events; so is all that we send. */
	wr->send_flags = IBV_SEND_SOLICITED;
	if (slot != NO_SLOT) {
		uint8_t *at = ic->slots + (size_t)slot * iser_opt.slot_len;

		memcpy(at, pdu->data, pdu->data_len);
		sge[1] = (struct ibv_sge){ .addr = (uintptr_t)at,
					   .length = pdu->data_len,
					   .lkey = lkey };
		wr->num_sge = 2;
	} else if (pdu->data_len) {
		memcpy(hdr + len, pdu->data, pdu->data_len);
		len += pdu->data_len;
	}
	sge[0] = (struct ibv_sge){ .addr = (uintptr_t)hdr, .length = len, .lkey = lkey };
	if (slot == NO_SLOT && len <= ic->max_inline)
		wr->send_flags |= IBV_SEND_INLINE;
	c->nsge += (unsigned)wr->num_sge;
	record(ic)->slot = slot;
	record(ic)->last = true;
	metric_inc(M_iser_wr_send);
	if (likely(pdu->kind == PDU_RESPONSE)) {
		tag = pdu->task->tp_word;
		if (ic->use_inv && (tag[TAG_FLAGS] & (ISER_RSV | ISER_WSV))) {
			wr->opcode = IBV_WR_SEND_WITH_INV;
			wr->invalidate_rkey = tag[TAG_FLAGS] & ISER_RSV ? tag_read_stag(tag) :
									  tag_write_stag(tag);
			metric_inc(M_iser_invalidates);
		}
		if (ic->unsignalled_bytes >= SIGNAL_EVERY_BYTES)
			signal_it(ic, wr);
	}
	return true;
}

/* ---- the post -------------------------------------------------------------------------------- */

/*
 * Is there room for a command's last data and the response behind it? A post that ended between
 * them would make it two completions. What not even an empty chain or queue holds takes what room
 * there is. What waits here goes on: the chain before it is posted, or a completion comes, since
 * all that was posted ends with a signalled request.
 */
static bool room_for_both(struct iser_conn *ic, const struct chain *c, const struct iscsi_pdu *pdu)
{
	const struct frags *f = &pdu->seg->io.data;
	unsigned per = iser_opt.gather == GATHER_MULTI ? 1 : ic->max_sge;
	/* As rdma_room() wants it. */
	unsigned wrs = (f->n + per - 1) / per + 1, sges = f->n + ISER_SGE_MAX;

	if (likely(c->n + wrs <= CHAIN_WRS && c->nsge + sges <= CHAIN_SGES &&
		   ic->sq_head - ic->sq_tail + wrs <= ic->sq_depth))
		return true;
	if (wrs > MIN(ic->sq_depth, (uint32_t)CHAIN_WRS) || sges > CHAIN_SGES || pdu->seg_off)
		return true;
	if (ic->sq_head - ic->sq_tail + wrs > ic->sq_depth)
		metric_inc(M_iser_sq_waits);
	return false;
}

/* RDMA reads first: somebody waits for them; then what is to be sent, in order. */
static void rdma_build(struct iser_conn *ic, struct chain *c)
{
	while (!list_empty(&ic->rdq)) {
		struct scsi_seg *seg = list_first(&ic->rdq, struct scsi_seg, link);

		if (!build_read(ic, c, seg))
			break;
		list_del(&seg->link);
	}
	while (!list_empty(&ic->txq)) {
		struct iscsi_pdu *pdu = list_first(&ic->txq, struct iscsi_pdu, link);
		struct list *next = pdu->link.next;

		if (pdu->kind != PDU_DATA_IN) {
			if (!build_send(ic, c, pdu))
				break;
		} else {
			bool more = next != &ic->txq &&
				    list_entry(next, struct iscsi_pdu, link)->task == pdu->task;

			if ((more && !room_for_both(ic, c, pdu)) || !build_write(ic, c, pdu))
				break;
			/* With its response right behind it, that one's completion serves for both;
			 * else the command goes on with this one's. */
			if (!more)
				signal_it(ic, &c->wr[c->n - 1]);
		}
		list_del(&pdu->link);
	}
}

/* The chain from @bad on was not posted: its objects go back with all others,
 * when the queue is drained. */
static void unpost(struct iser_conn *ic, struct ibv_send_wr *bad)
{
	uint64_t from = bad->wr_id >> 1;

	while (ic->sq_head > from) {
		struct iser_wr *w = record(ic);

		ic->sq_head--;
		if (w->kind == WR_READ)
			ic->rd_out--;
		if (w->slot != NO_SLOT)
			ic->free_slot[ic->nfree_slots++] = w->slot;
		if (w->last && w->kind == WR_READ)
			list_add_head(&ic->rdq, &((struct scsi_seg *)w->obj)->link);
		else if (w->last)
			list_add_head(&ic->txq, &((struct iscsi_pdu *)w->obj)->link);
	}
	ic->post_failed = true;
}

static void rdma_flush(struct loop_deferred *d)
{
	struct iser_conn *ic = container_of(d, struct iser_conn, flush);
	struct chain *c = &chain_;

	if (ic->state >= IS_DRAINING || (ic->conn.failed && ic->state != IS_FLUSHING))
		return;
	iser_rx_post(ic);
	while (!ic->post_failed) {
		struct ibv_send_wr *bad = NULL;

		c->n = c->nsge = 0;
		rdma_build(ic, c);
		if (!c->n)
			break;
		signal_it(ic, &c->wr[c->n - 1]);
		metric_inc(M_iser_posts);
		if (unlikely(rdma_v->post_send(ic->qp, c->wr, &bad))) {
			unpost(ic, bad ? bad : c->wr);
			iscsi_conn_fail(&ic->conn, "work cannot be posted");
			break;
		}
	}
	if (unlikely(ic->conn.failed))
		ic->progress(ic);
}
