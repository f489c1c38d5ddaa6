/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How two gateways prove to each other that they know the group's secret, and how each frame shows
 * that it is theirs. Values and their form in bytes; no I/O. Any thread, one at a time for each
 * struct.
 *
 *     dialer                                    listener
 *       | HELLO: who, to whom, which channel ------> |
 *       |        of which link, a nonce              |
 *       | <------------------------ CHALLENGE: a nonce
 *       | ANSWER: HMAC("dialer", all of it) -------> |   it is one of the group, and fresh
 *       | <-------- READY: HMAC("listener", all of it)   so is this one
 *
 * HELLO asks whether the listener can do RDMA, and CHALLENGE answers; then the first message behind
 * READY in each direction is about that (mirror_rdma.h). Who asks for nothing is as those who do
 * not know the question, which refuse it.
 *
 * "All of it" is the group's name, HELLO and CHALLENGE. Each message has MIRROR_HANDSHAKE bytes.
 * The dialer proves itself first, so a stranger gets nothing that depends on the secret. Labels
 * differ, so no proof can be sent back as another one.
 *
 * Frames: each direction has a key, HMAC-SHA256 of the secret over a label and all of it. A frame
 * is followed by its code, AES-256-GMAC (NIST SP 800-38D) with the frame's number as nonce. So a
 * frame that is changed, repeated, left out or from another connection has a wrong code. Frames are
 * not encrypted, as iSCSI is not. GMAC costs a fraction of what HMAC-SHA256 would.
 */
#ifndef TGTD_CLUSTER_LIVE_MIRROR_AUTH_H
#define TGTD_CLUSTER_LIVE_MIRROR_AUTH_H

#include "tgtd/cluster/live/mirror_link.h"

#define MIRROR_HANDSHAKE 64
#define MIRROR_CODE 16 /* bytes behind a frame */
#define MIRROR_KEY 32

struct mirror_hello {
	uint8_t from, to, channel, channels;
	bool rdma;	/* it can do RDMA, and asks whether the other one can */
	uint32_t group; /* CRC32C of its name: a hint, for a clear error */
	uint64_t link;	/* the same for all its channels, and not of another link */
	uint8_t nonce[32];
};

enum mirror_auth_step {
	AUTH_HELLO,	/* listener: waits for HELLO */
	AUTH_CHALLENGE, /* dialer: has said HELLO */
	AUTH_ANSWER,	/* listener: has said CHALLENGE */
	AUTH_READY,	/* dialer: has said ANSWER */
	AUTH_DONE
};
struct mirror_auth {
	enum mirror_auth_step step;
	const void *secret; /* the caller's, as long as this is used */
	size_t secret_len;
	const char *group;
	unsigned self, gateways;
	bool offers;  /* listener: it can do RDMA */
	bool rdma;    /* both can: CHALLENGE says so */
	bool hung_up; /* the caller's: the other end has ended it */
	struct mirror_hello hello;
	uint8_t hello_bytes[MIRROR_HANDSHAKE], challenge_bytes[MIRROR_HANDSHAKE];
};

/* A dialer's first message into @out. False: there is no randomness, or the library fails. */
bool mirror_auth_dial(struct mirror_auth *a, const struct mirror_hello *h,
		      uint8_t out[MIRROR_HANDSHAKE]) must_check;
/* What a listener does: a->step is AUTH_HELLO. */
/* The next message of the other side. NULL: it is right, and *@len bytes (0 or MIRROR_HANDSHAKE)
 * in @out are the answer. Else a text for the log, and the connection is to end. At AUTH_DONE
 * a->hello is proved. */
const char *mirror_auth_next(struct mirror_auth *a, const uint8_t in[MIRROR_HANDSHAKE],
			     uint8_t out[MIRROR_HANDSHAKE], size_t *len) must_check;
/* At AUTH_DONE: the key of frames that the dialer (or the listener) sends. False: the library
 * fails. */
bool mirror_auth_key(const struct mirror_auth *a, bool dialers, uint8_t key[MIRROR_KEY]) must_check;

/* ---- codes of frames ------------------------------------------------------------------------- */
struct mirror_coder {
	void *cipher; /* EVP_CIPHER_CTX */
	uint64_t n;   /* frames so far */
};
bool mirror_coder_init(struct mirror_coder *c, const uint8_t key[MIRROR_KEY]) must_check;
void mirror_coder_free(struct mirror_coder *c); /* zeroed: fine */
/* The code of the next frame, which has @len bytes. False: the library fails. */
bool mirror_coder_make(struct mirror_coder *c, const void *frame, size_t len,
		       uint8_t code[MIRROR_CODE]) must_check;
/* The same of a frame in pieces: begin, add each, then end, or check. */
bool mirror_coder_begin(struct mirror_coder *c) must_check;
bool mirror_coder_add(struct mirror_coder *c, const void *piece, size_t len) must_check;
bool mirror_coder_end(struct mirror_coder *c, uint8_t code[MIRROR_CODE]) must_check;
bool mirror_coder_is(struct mirror_coder *c, const uint8_t code[MIRROR_CODE]) must_check;
/* Is @code that of the next frame? */
bool mirror_coder_check(struct mirror_coder *c, const void *frame, size_t len,
			const uint8_t code[MIRROR_CODE]) must_check;

#endif
