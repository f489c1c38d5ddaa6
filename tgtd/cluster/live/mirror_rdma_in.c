/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Messages that come (mirror_rdma_impl.h). Until a message's code has been compared it is foreign:
 * nothing of it is believed, but that the slots that it names are over. Their windows are
 * invalidated first; then data and code cannot change any more.
 */
#ifdef HAVE_RDMA
#include "events/bug.h"
#include "events/bytes.h"
#include "tgtd/cluster/live/mirror_rdma_impl.h"

const char *rdma_in_post(struct mirror_rdma *r, unsigned at)
{
	struct ibv_sge sge = { .addr = (uintptr_t)rdma_message_in(r, at),
			       .length = MESSAGE_MAX,
			       .lkey = r->mem->lkey };
	struct ibv_recv_wr wr = { .wr_id = RECV_BIT | at, .sg_list = &sge, .num_sge = 1 }, *bad;
	bool posted;

	pthread_mutex_lock(&r->lock);
	posted = r->dead || !rdma_v->post_recv(r->qp, &wr, &bad);
	pthread_mutex_unlock(&r->lock);
	return posted ? NULL : "a receive cannot be posted";
}

/* Where the frame of a message is, and how long; grants are before it. False: it is none. */
static bool message_parts(const uint8_t *m, uint32_t len, unsigned *grants, size_t *at,
			  size_t *frame)
{
	if (len < MESSAGE_HEAD + MIRROR_CODE || memcmp(m, "tgRM\1", 6))
		return false;
	*grants = get_be16(m + 6);
	*frame = get_be32(m + 12);
	*at = MESSAGE_HEAD + (size_t)*grants * MESSAGE_GRANT;
	return *grants <= SLOTS && *frame <= MIRROR_HEAD_MAX && *at + *frame + MIRROR_CODE == len;
}

const char *rdma_in_came(struct mirror_rdma *r, unsigned at, uint32_t len)
{
	struct rdma_message *g = &r->message[(r->first + r->messages) % MESSAGES];
	const uint8_t *m = rdma_message_in(r, at % MESSAGES);
	const char *why = NULL;
	size_t frame_at, frame;
	unsigned grants;

	if (len > MESSAGE_MAX || !message_parts(m, len, &grants, &frame_at, &frame))
		return "what it sends is no message";
	BUG_ON(r->messages == MESSAGES);
	*g = (struct rdma_message){ .at = at % MESSAGES, .len = len };
	if (frame)
		why = mirror_decode(&r->frame, m + frame_at, frame);
	if (frame && !why)
		why = rdma_slots_end(r, &g->ready);
	r->messages++;
	return why;
}

/* What @m says of messages and grants. */
static const char *message_grants(struct mirror_rdma *r, const uint8_t *m, unsigned n)
{
	const uint32_t seen = get_be32(m + 8);

	if (seen - r->seen > r->sent - r->seen)
		return "it has taken more messages than there were";
	r->seen = seen;
	for (unsigned i = 0; i < n; i++) {
		const uint8_t *p = m + MESSAGE_HEAD + i * MESSAGE_GRANT;
		const struct rdma_grant g = { .slot = get_be32(p),
					      .key = get_be32(p + 4),
					      .addr = get_be64(p + 8) };

		if (r->conf.listens || g.slot >= SLOTS || r->granted[g.slot])
			return "it grants a slot that cannot be";
		r->granted[g.slot] = true;
		r->grant[r->ngrants++] = g;
	}
	return NULL;
}

/* The frame is the channel's. */
static const char *message_frame(struct mirror_rdma *r)
{
	uint32_t window[SLOTS];
	const unsigned n = rdma_slots_name(r, window);
	const char *why = r->conf.frame(r->conf.arg, &r->frame);

	rdma_slots_again(r, window, n);
	return why;
}

static const char *message_taken(struct mirror_rdma *r, const struct rdma_message *g)
{
	const uint8_t *m = rdma_message_in(r, g->at);
	const char *why = NULL;
	size_t at, frame;
	unsigned grants;

	if (!message_parts(m, g->len, &grants, &at, &frame))
		return "what it sends is no message";
	if (!mirror_coder_begin(r->conf.in) || !mirror_coder_add(r->conf.in, m, at + frame))
		return "libcrypto fails";
	if (frame)
		why = mirror_decode(&r->frame, m + at, frame);
	if (frame && !why)
		why = rdma_slots_add(r);
	if (why)
		return why;
	if (!mirror_coder_is(r->conf.in, m + at + frame))
		return "the code of a message is wrong";
	r->proved = true;
	r->taken++;
	why = message_grants(r, m, grants);
	if (frame && !why)
		why = message_frame(r);
	return why ? why : rdma_in_post(r, g->at);
}

const char *rdma_in_take(struct mirror_rdma *r)
{
	const char *why = NULL;

	while (!why && r->messages && r->message[r->first].ready <= r->done) {
		const struct rdma_message g = r->message[r->first];

		r->first = (r->first + 1) % MESSAGES;
		r->messages--;
		why = message_taken(r, &g);
	}
	return why;
}
#endif
