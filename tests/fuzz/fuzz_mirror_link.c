/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What comes to a gateway's port for mirrors. The first byte says how far the stranger has got:
 *
 *     0     he has connected: 64 bytes each are his next message
 *     1     the same, after a HELLO that is right, with the changes that follow (where, what), up
 *           to 0xff; then his messages
 *     2     he knows the secret: pieces of a length (2), and what of it is made good (1): 1 its
 *           code, 2 its checksums and its code
 *     3     the same by RDMA, where there is that: pieces are messages, whose heads (16) are made
 *           as many grants and bytes long as there are. First an offer (64)
 *
 * What must hold: who does not know the secret gets nothing but a challenge; whatever is taken as a
 * frame has its numbers within their ranges; all memory is given back.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "events/bug.h"
#include "events/bytes.h"
#include "events/log.h"
#include "tgtd/cluster/live/mirror_channel.h"
#ifdef HAVE_RDMA
#include "tests/support/rdmafake.h"
#include "tgtd/cluster/live/mirror_rdma_impl.h"
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SECRET "the group's secret"

/* ---- strangers ------------------------------------------------------------------------------- */
static struct mirror_auth auth_of(unsigned self, const char *secret)
{
	return (struct mirror_auth){ .secret = secret,
				     .secret_len = strlen(secret),
				     .group = "g",
				     .self = self,
				     .gateways = 3 };
}

static void fuzz_handshake(const uint8_t *data, size_t size, bool well_formed)
{
	const struct mirror_hello h = { .from = 0, .to = 1, .channels = 2, .link = 5 };
	struct mirror_auth dialer = auth_of(0, "another secret, it is");
	struct mirror_auth a = auth_of(1, SECRET);
	uint8_t in[MIRROR_HANDSHAKE] = { 0 }, out[MIRROR_HANDSHAKE];
	const char *why = NULL;
	size_t len = 0;

	if (well_formed) {
		BUG_ON(!mirror_auth_dial(&dialer, &h, in));
		for (; size >= 2 && data[0] != 0xff; data += 2, size -= 2)
			in[data[0] % MIRROR_HANDSHAKE] = data[1];
		why = mirror_auth_next(&a, in, out, &len);
		BUG_ON(!why && (len != MIRROR_HANDSHAKE || a.step != AUTH_ANSWER));
	}
	for (; !why && size; data += len, size -= len) {
		len = MIN(size, sizeof(in));
		memset(in, 0, sizeof(in));
		memcpy(in, data, len);
		why = mirror_auth_next(&a, in, out, &(size_t){ 0 });
		BUG_ON(a.step == AUTH_DONE);
		BUG_ON(!why &&
		       (a.hello.from >= 3 || a.hello.from == 1 || a.hello.to != 1 ||
			a.hello.channel >= a.hello.channels || a.hello.channels > MIRROR_CHANNELS));
	}
}

/* ---- one of the group ------------------------------------------------------------------------ */
static unsigned failures, closes;

static const char *fuzz_frame(struct mirror_channel *c, const struct mirror_frame *f)
{
	static uint8_t again[MIRROR_HEAD_MAX];

	(void)c;
	BUG_ON(f->n > MIRROR_BATCH || f->kind >= MIRROR_KINDS || f->data_len > MIRROR_DATA_MAX);
	BUG_ON(mirror_encode(f, again) > sizeof(again));
	return f->kind == MIRROR_WELCOME ? "not its turn" : NULL;
}

static void fuzz_failed(struct mirror_channel *c, const char *why)
{
	BUG_ON(!why || !*why || failures++);
	mirror_channel_close(c);
}

static void fuzz_room(struct mirror_channel *c)
{
	(void)c;
}

static void fuzz_closed(struct mirror_channel *c)
{
	(void)c;
	closes++;
}

static const struct mirror_channel_ops ops = {
	.frame = fuzz_frame, .failed = fuzz_failed, .room = fuzz_room, .closed = fuzz_closed
};

/* The checksums of what begins as a frame. */
static void sums_again(uint8_t *b, size_t len)
{
	static uint8_t summed[MIRROR_HEAD_MAX];
	size_t records, at;

	if (len < MIRROR_HEAD)
		return;
	records = (size_t)get_be16(b + 12) * MIRROR_RECORD;
	if (records > len - MIRROR_HEAD || records > sizeof(summed) - MIRROR_HEAD)
		return;
	put_be32(b + 8, (uint32_t)len);
	at = MIRROR_HEAD + records;
	for (size_t i = 0; i < records; i += MIRROR_RECORD) {
		uint8_t *r = b + MIRROR_HEAD + i;
		const size_t n = (size_t)__builtin_popcountll(get_be64(r + 24)) << (b[14] & 15);

		if (r[0] != MIRROR_WRITE || n > len - at)
			continue;
		put_be32(r + 32, mirror_sum(b + at, n));
		at += n;
	}
	memcpy(summed, b, MIRROR_HEAD - 4);
	memcpy(summed + MIRROR_HEAD - 4, b + MIRROR_HEAD, records);
	put_be32(b + MIRROR_HEAD - 4, mirror_sum(summed, MIRROR_HEAD - 4 + records));
}

static void fuzz_pieces(struct mirror_channel *c, int fd, const uint8_t *data, size_t size)
{
	static uint8_t piece[65536 + MIRROR_CODE];
	const uint8_t key[MIRROR_KEY] = { 1 };
	struct mirror_coder coder;

	BUG_ON(!mirror_coder_init(&coder, key));
	while (size > 3 && !failures) {
		size_t len = MIN((size_t)get_be16(data), size - 3);
		const uint8_t good = data[2];

		memcpy(piece, data + 3, len);
		data += 3 + len;
		size -= 3 + len;
		if (good & 2)
			sums_again(piece, len);
		if (good) {
			BUG_ON(!mirror_coder_make(&coder, piece, len, piece + len));
			len += MIRROR_CODE;
		}
		for (size_t at = 0; at < len && !failures;) {
			const ssize_t n =
				send(fd, piece + at, len - at, MSG_DONTWAIT | MSG_NOSIGNAL);

			at += n > 0 ? (size_t)n : 0;
			loop_step(c->loop, 0);
		}
	}
	mirror_coder_free(&coder);
}

static void fuzz_channel(const uint8_t *data, size_t size)
{
	static struct loop *loop;
	const struct loop_conf conf = { .name = "fuzz", .node = -1, .cpu = -1 };
	const uint8_t key[MIRROR_KEY] = { 1 }, other[MIRROR_KEY] = { 2 };
	struct mirror_channel c = { .ops = &ops, .read_until = 1 << 20 };
	struct mirror_coder in, out;
	int fds[2];

	loop = loop ? loop : loop_create(&conf);
	failures = closes = 0;
	BUG_ON(!loop || socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	BUG_ON(!mirror_coder_init(&in, key) || !mirror_coder_init(&out, other));
	c.home = loop;
	mirror_channel_init(&c);
	mirror_channel_open(&c, fds[0], NULL, &out, &in);
	loop_step(loop, 0);
	fuzz_pieces(&c, fds[1], data, size);
	close(fds[1]);
	for (unsigned i = 0; i < 100 && !failures; i++)
		loop_step(loop, 0);
	BUG_ON(!failures); /* its end, at the latest */
	loop_step(loop, 0);
	BUG_ON(closes != 1 || c.buf || !list_empty(&c.queue) || !list_empty(&c.sending));
	mirror_channel_fini(&c);
}

/* ---- the same by RDMA ------------------------------------------------------------------------ */
#ifdef HAVE_RDMA
#define SLOT_SHIFT 12

static uint8_t slot_memory[MIRROR_RDMA_SLOTS << SLOT_SHIFT];
static uint64_t slot_lent[MIRROR_RDMA_SLOTS], slot_loans;

static uint32_t slot_lends(void *arg, uint64_t *ticket)
{
	(void)arg;
	for (uint32_t i = 0; i < MIRROR_RDMA_SLOTS; i++)
		if (!slot_lent[i]) {
			slot_lent[i] = *ticket = ++slot_loans;
			return i;
		}
	return UINT32_MAX;
}

static bool slot_is_lent(void *arg, uint32_t frame, uint64_t ticket)
{
	(void)arg;
	BUG_ON(frame >= MIRROR_RDMA_SLOTS);
	return slot_lent[frame] == ticket;
}

static void slot_comes_back(void *arg, uint32_t frame)
{
	(void)arg;
	BUG_ON(frame >= MIRROR_RDMA_SLOTS || !slot_lent[frame]);
	slot_lent[frame] = 0;
}

static const char *rdma_fuzz_frame(void *arg, const struct mirror_frame *f)
{
	(void)arg;
	BUG_ON(f->n > MIRROR_BATCH || f->kind >= MIRROR_KINDS || f->data_len);
	for (unsigned i = 0; i < f->n; i++) {
		const struct mirror_record *r = &f->record[i];

		if (r->op != MIRROR_WRITE)
			continue;
		BUG_ON(r->ref >= MIRROR_RDMA_SLOTS || !slot_lent[r->ref]);
		BUG_ON((uint64_t)(64 - __builtin_clzll(r->map)) << f->shift > 1 << SLOT_SHIFT);
		if (r->block % 2) /* it is a page, and gone */
			slot_lent[r->ref] = 0;
	}
	return NULL;
}

static void rdma_fuzz_failed(void *arg, const char *why)
{
	(void)arg;
	BUG_ON(!why || !*why);
}

static void rdma_fuzz_sent(void *arg, unsigned frames, size_t bytes)
{
	(void)arg;
	(void)frames;
	(void)bytes;
}

/* One message at receive 0. NULL: it is taken. */
static const char *fuzz_message(struct mirror_rdma *r, struct mirror_coder *coder,
				const uint8_t *data, size_t len, uint8_t good)
{
	uint8_t *m = rdma_message_in(r, 0);
	struct ibv_wc wc[16];
	const char *why;

	len = MIN(len, (size_t)MESSAGE_MAX - MIRROR_CODE);
	memset(m, 0, MESSAGE_MAX);
	memcpy(m, data, len);
	if (good & 2 && len >= MESSAGE_HEAD) {
		const unsigned grants = get_be16(m + 6) % 4;
		const size_t at = MESSAGE_HEAD + (size_t)grants * MESSAGE_GRANT;

		memcpy(m, "tgRM\1", 6);
		len = MAX(len, at);
		put_be16(m + 6, (uint16_t)grants);
		put_be32(m + 12, (uint32_t)(len - at));
		sums_again(m + at, len - at);
	}
	/* (Slots are all zeros, so their code can be made when it is known which they are.) */
	why = rdma_in_came(r, 0, (uint32_t)(len + MIRROR_CODE));
	if (why)
		return why;
	if (good) {
		BUG_ON(!mirror_coder_begin(coder) || !mirror_coder_add(coder, m, len));
		for (unsigned i = 0; i < r->frame.n; i++)
			if (r->frame.record[i].op == MIRROR_WRITE)
				BUG_ON(!mirror_coder_add(
					coder, slot_memory,
					mirror_data_len(&r->frame.record[i], r->frame.shift)));
		BUG_ON(!mirror_coder_end(coder, m + len));
	}
	memset(&r->frame, 0, sizeof(r->frame));
	r->done = r->posted;
	while (rdma_v->poll_cq(r->cq, 16, wc) > 0)
		;
	return rdma_in_take(r);
}

static void fuzz_rdma(const uint8_t *data, size_t size)
{
	static const struct mirror_slots slots = { .base = slot_memory,
						   .len = sizeof(slot_memory),
						   .shift = SLOT_SHIFT,
						   .lend = slot_lends,
						   .is_lent = slot_is_lent,
						   .give_back = slot_comes_back };
	static struct loop *loop;
	static struct mirror_rdma_dev *dev;
	const struct loop_conf conf = { .name = "fuzz", .node = -1, .cpu = -1 };
	const uint8_t key[MIRROR_KEY] = { 1 }, other[MIRROR_KEY] = { 2 };
	struct mirror_coder in, out, coder;
	struct list sending = LIST_INIT(sending);
	struct mirror_rdma_conf rc = { .listens = true,
				       .out = &out,
				       .in = &in,
				       .sending = &sending,
				       .frame = rdma_fuzz_frame,
				       .failed = rdma_fuzz_failed,
				       .sent = rdma_fuzz_sent };
	struct sockaddr_storage addr = { .ss_family = AF_INET };
	struct mirror_rdma *r;
	const char *why = NULL;
	char text[100];
	bool can;

	if (size < MIRROR_RDMA_OFFER)
		return;
	if (!dev) {
		rdmafake_install();
		loop = loop_create(&conf);
		dev = loop ? mirror_rdma_dev_open(loop, &addr, &slots, NULL, NULL, text,
						  sizeof(text)) :
			     NULL;
		BUG_ON(!dev);
	}
	if (mirror_rdma_offered(data, &can) || !can)
		return;
	rc.loop = loop;
	rc.dev = dev;
	BUG_ON(!mirror_coder_init(&in, key) || !mirror_coder_init(&coder, key) ||
	       !mirror_coder_init(&out, other));
	r = mirror_rdma_new(&rc, &why);
	BUG_ON(!r);
	why = mirror_rdma_connect(r, data);
	for (unsigned i = 0; i < r->nwindows; i++) /* what it has granted */
		r->window[i].state = WINDOW_GRANTED;
	(void)rdma_v->modify_qp_error(r->qp); /* nothing comes by it */
	for (data += MIRROR_RDMA_OFFER, size -= MIRROR_RDMA_OFFER; size > 3 && !why;) {
		const size_t len = MIN((size_t)get_be16(data), size - 3);

		why = fuzz_message(r, &coder, data + 3, len, data[2]);
		data += 3 + len;
		size -= 3 + len;
		r->messages = 0;
	}
	mirror_rdma_free(r);
	for (unsigned i = 0; i < MIRROR_RDMA_SLOTS; i++)
		BUG_ON(slot_lent[i]);
	mirror_coder_free(&in);
	mirror_coder_free(&out);
	mirror_coder_free(&coder);
}
#else
static void fuzz_rdma(const uint8_t *data, size_t size)
{
	(void)data;
	(void)size;
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	log_set_level(LOG_LVL_ERROR);
	if (!size)
		return 0;
	if (data[0] % 4 == 3)
		fuzz_rdma(data + 1, size - 1);
	else if (data[0] % 4 == 2)
		fuzz_channel(data + 1, size - 1);
	else
		fuzz_handshake(data + 1, size - 1, data[0] % 4);
	return 0;
}
