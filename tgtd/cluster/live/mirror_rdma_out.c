/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Messages that leave (mirror_rdma_impl.h), and before one with a BATCH the writes of its data. A
 * frame whose turn it is waits for as many slots as it has WRITE records, and for the other end to
 * have room for a message.
 */
#ifdef HAVE_RDMA
#include "events/bytes.h"
#include "events/metrics.h"
#include "tgtd/cluster/live/mirror_rdma_impl.h"

/* Messages of frames leave room for reports, of which there is one for REPORT_AFTER at most. */
static bool message_may(const struct mirror_rdma *r, unsigned kept)
{
	return r->connected && (!r->conf.listens || r->proved) &&
	       r->sent - r->seen < MESSAGES - kept && r->sent - r->sends_done < MESSAGES;
}

/* The message's code: of itself, then of @data. */
static bool message_code(struct mirror_rdma *r, uint8_t *m, size_t len, const uint8_t *data,
			 size_t data_len)
{
	return mirror_coder_begin(r->conf.out) && mirror_coder_add(r->conf.out, m, len) &&
	       (!data_len || mirror_coder_add(r->conf.out, data, data_len)) &&
	       mirror_coder_end(r->conf.out, m + len);
}

/* @frame of @len bytes, whose data are in slots. *@sent false: there is no room. With the lock. */
static const char *message_send(struct mirror_rdma *r, const uint8_t *frame, size_t len,
				const uint8_t *data, size_t data_len, bool *sent)
{
	uint8_t *m = rdma_message_out(r, r->sent);
	struct ibv_sge sge = { .addr = (uintptr_t)m, .lkey = r->mem->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	const uint64_t room = rdma_left(r);
	struct ibv_send_wr *bad;
	size_t at = MESSAGE_HEAD;
	int grants;

	*sent = room > 0;
	if (!*sent)
		return NULL;
	grants = rdma_slots_grant(r, m + at, (unsigned)MIN(room - 1, (uint64_t)SLOTS));
	if (grants < 0)
		return "a window cannot be bound";
	at += (size_t)grants * MESSAGE_GRANT;
	memset(m, 0, MESSAGE_HEAD);
	memcpy(m, "tgRM\1", 5);
	put_be16(m + 6, (uint16_t)grants);
	put_be32(m + 8, r->taken);
	put_be32(m + 12, (uint32_t)len);
	r->reported = r->taken;
	if (len)
		memcpy(m + at, frame, len);
	at += len;
	if (!message_code(r, m, at, data, data_len))
		return "libcrypto fails";
	sge.length = (uint32_t)(at + MIRROR_CODE);
	wr.wr_id = ++r->posted | SEND_BIT;
	r->sent++;
	return rdma_v->post_send(r->qp, &wr, &bad) ? "a message cannot be posted" : NULL;
}

/* ---- a frame --------------------------------------------------------------------------------- */
/* From memory that cannot be sent from to memory that can: it was made before the channel knew. */
static struct mirror_buf *frame_moves(struct mirror_rdma *r, struct mirror_buf *b)
{
	struct mirror_buf *to = mirror_buf_new(b->len - MIRROR_CODE, r->conf.dev);

	if (!to || !to->mem) {
		mirror_buf_free(to);
		return NULL;
	}
	memcpy(to->bytes, b->bytes, b->len);
	list_del(&b->link);
	list_add_head(r->conf.sending, &to->link);
	mirror_buf_free(b);
	return to;
}

/* Do its sectors fit into slots? */
static bool frame_fits(const struct mirror_rdma *r, const struct mirror_buf *b)
{
	const unsigned n = get_be16(b->bytes + 12), shift = b->bytes[14];

	for (unsigned i = 0; i < n; i++) {
		const uint64_t map = mirror_encoded_map(b->bytes, i);

		if (map && (size_t)(64u - (unsigned)__builtin_clzll(map)) << shift >
				   (size_t)1 << r->slot_shift)
			return false;
	}
	return true;
}

/* The first frame gets its slots. *@may false: they, or room for its message, are not there yet. */
static const char *frame_begins(struct mirror_rdma *r, bool *may)
{
	struct mirror_buf *b = list_first(r->conf.sending, struct mirror_buf, link);
	uint32_t slot[SLOTS];
	size_t head;
	const unsigned writes = mirror_encoded_writes(b->bytes, &head);

	*may = writes <= r->ngrants && message_may(r, 2);
	if (!*may)
		return NULL;
	if (writes && !b->mem)
		b = frame_moves(r, b);
	if (!b)
		return "there is no registered memory";
	if (!frame_fits(r, b))
		return "its slots are smaller than blocks here";
	for (unsigned k = 0; k < writes; k++) {
		r->to[k] = r->grant[--r->ngrants];
		slot[k] = r->to[k].slot;
	}
	if (writes)
		(void)mirror_encoded_slots(b->bytes, slot);
	r->now = b;
	r->record = r->nth = 0;
	r->map = 0;
	r->data = head;
	return NULL;
}

/* The next run of sectors of the frame. False: that was all. */
static bool frame_run(struct mirror_rdma *r, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	const struct mirror_buf *b = r->now;
	const unsigned records = get_be16(b->bytes + 12), shift = b->bytes[14];
	unsigned first, n;

	while (!r->map && r->record < records)
		r->map = mirror_encoded_map(b->bytes, r->record++);
	if (!r->map)
		return false;
	first = mirror_run(&r->map, &n);
	*sge = (struct ibv_sge){ .addr = (uintptr_t)(b->bytes + r->data),
				 .length = n << shift,
				 .lkey = b->mem->lkey };
	*wr = (struct ibv_send_wr){ .wr_id = ++r->posted,
				    .sg_list = sge,
				    .num_sge = 1,
				    .opcode = IBV_WR_RDMA_WRITE,
				    .wr.rdma = { .remote_addr = r->to[r->nth].addr +
								((uint64_t)first << shift),
						 .rkey = r->to[r->nth].key } };
	r->data += sge->length;
	r->nth += !r->map;
	return true;
}

/* Some of the frame's writes, one work request left for its message. *@all: that were the last
 * ones, and the message follows; *@some: there was room for any. */
static const char *frame_writes(struct mirror_rdma *r, bool *all, bool *some)
{
	struct ibv_send_wr wr[CHAIN], *bad;
	struct ibv_sge sge[CHAIN];
	const uint64_t left = rdma_left(r), room = left ? MIN(left - 1, (uint64_t)CHAIN) : 0;
	uint64_t bytes = 0;
	unsigned n = 0;

	*all = false;
	while (n < room && !*all) {
		*all = !frame_run(r, &wr[n], &sge[n]);
		if (*all)
			break;
		bytes += sge[n].length;
		if (n)
			wr[n - 1].next = &wr[n];
		n++;
	}
	*some = n || *all;
	if (!n)
		return NULL;
	if (!*all) /* else the message's completion says so */
		wr[n - 1].send_flags = IBV_SEND_SIGNALED;
	metric_add(M_mirror_rdma_writes, n);
	metric_add(M_mirror_rdma_bytes, bytes);
	return rdma_v->post_send(r->qp, wr, &bad) ? "a write cannot be posted" : NULL;
}

/* With the lock, as far as there is room. *@whole: it is on its way. */
static const char *frame_goes(struct mirror_rdma *r, bool *whole)
{
	struct mirror_buf *b = r->now;
	const char *why = NULL;
	bool all = false, some = true;
	size_t head;

	*whole = false;
	while (!all && some && !why)
		why = frame_writes(r, &all, &some);
	if (why || !all)
		return why;
	(void)mirror_encoded_writes(b->bytes, &head);
	why = message_send(r, b->bytes, head, b->bytes + head, b->len - MIRROR_CODE - head, whole);
	if (why || !*whole)
		return why;
	for (unsigned k = 0; k < r->nth; k++)
		r->granted[r->to[k].slot] = false;
	b->end = r->posted;
	list_del(&b->link);
	list_add_tail(&r->unconfirmed, &b->link);
	r->now = NULL;
	return NULL;
}

const char *rdma_out(struct mirror_rdma *r)
{
	bool goes = true, due;
	const char *why = NULL;

	while (!why && goes && !list_empty(r->conf.sending)) {
		if (!r->now)
			why = frame_begins(r, &goes);
		if (why || !goes)
			break;
		pthread_mutex_lock(&r->lock);
		why = frame_goes(r, &goes);
		pthread_mutex_unlock(&r->lock);
	}
	due = r->taken - r->reported >= REPORT_AFTER || rdma_slots_idle(r) ||
	      (!r->conf.listens && !r->sent);
	if (!why && due && !r->now && message_may(r, 0)) {
		pthread_mutex_lock(&r->lock);
		why = message_send(r, NULL, 0, NULL, 0, &goes);
		pthread_mutex_unlock(&r->lock);
	}
	return why;
}

void rdma_out_done(struct mirror_rdma *r)
{
	struct mirror_buf *b, *tmp;
	unsigned frames = 0;
	size_t bytes = 0;

	list_for_each_safe(b, tmp, &r->unconfirmed, link) {
		if (b->end > r->done)
			break;
		list_del(&b->link);
		bytes += b->len;
		frames++;
		mirror_buf_free(b);
	}
	if (frames)
		r->conf.sent(r->conf.arg, frames, bytes);
}
#endif
