/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What comes to a gateway's port for mirrors. The first byte says how far the stranger has got:
 *
 *     0     he has connected: 64 bytes each are his next message
 *     1     the same, after a HELLO that is right, with the changes that follow (where, what), up
 *           to 0xff; then his messages
 *     2     he knows the secret: pieces of a length (2), and what of it is made good (1): 1 its
 *           code, 2 its checksums and its code
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
		BUG_ON(!why && (a.hello.from >= 3 || a.hello.from == 1 || a.hello.to != 1 ||
				a.hello.channel >= a.hello.channels ||
				a.hello.channels > MIRROR_CHANNELS));
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
			const ssize_t n = send(fd, piece + at, len - at,
					       MSG_DONTWAIT | MSG_NOSIGNAL);

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
	c.loop = loop;
	mirror_channel_init(&c);
	mirror_channel_open(&c, fds[0], &out, &in);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	log_set_level(LOG_LVL_ERROR);
	if (!size)
		return 0;
	if (data[0] % 3 == 2)
		fuzz_channel(data + 1, size - 1);
	else
		fuzz_handshake(data + 1, size - 1, data[0] % 3);
	return 0;
}
