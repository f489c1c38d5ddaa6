/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * See mirror_auth.h. The messages, of 64 bytes each:
 *
 *     0   "tgMC", version (1), which message (1)
 *     6   HELLO: from (1), to (1), channel (1), channels (1), RDMA is asked for (1), 0 (1), CRC32C
 *         of the group's name (4), link (8), 0 (8). CHALLENGE: RDMA can be (1), 0 (25). Others:
 *         0 (26)
 *     32  HELLO, CHALLENGE: a nonce; ANSWER, READY: a proof
 *
 * What must be 0 is checked: a later version may use it.
 */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include "events/bug.h"
#include "events/bytes.h"
#include "events/secret.h"
#include "tgtd/cluster/live/mirror_auth.h"

#define AUTH_VERSION 1
#define NONCE_AT 32
#define LABEL 24
#define GROUP_MAX 64

enum { MSG_HELLO, MSG_CHALLENGE, MSG_ANSWER, MSG_READY };

static const char auth_magic[4] = { 't', 'g', 'M', 'C' };

static bool auth_random(uint8_t nonce[32])
{
	size_t at = 0;

	while (at < 32) {
		const ssize_t n = getrandom(nonce + at, 32 - at, 0);

		if (n < 0 && errno != EINTR)
			return false;
		at += n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* HMAC-SHA256 by the secret, of @label, the group's name, HELLO and CHALLENGE. */
static bool auth_mac(const struct mirror_auth *a, const char *label, uint8_t out[32])
{
	uint8_t text[LABEL + 1 + GROUP_MAX + 2 * MIRROR_HANDSHAKE] = { 0 };
	const size_t name = strlen(a->group);
	size_t n = LABEL;
	unsigned len = 0;

	BUG_ON(name > GROUP_MAX || strlen(label) > LABEL);
	memcpy(text, label, strlen(label));
	text[n++] = (uint8_t)name;
	memcpy(text + n, a->group, name);
	n += name;
	memcpy(text + n, a->hello_bytes, MIRROR_HANDSHAKE);
	n += MIRROR_HANDSHAKE;
	memcpy(text + n, a->challenge_bytes, MIRROR_HANDSHAKE);
	n += MIRROR_HANDSHAKE;
	return HMAC(EVP_sha256(), a->secret, (int)a->secret_len, text, n, out, &len) && len == 32;
}

static void auth_begin(uint8_t *b, unsigned type)
{
	memset(b, 0, MIRROR_HANDSHAKE);
	memcpy(b, auth_magic, sizeof(auth_magic));
	b[4] = AUTH_VERSION;
	b[5] = (uint8_t)type;
}

static const char *auth_wrong(const uint8_t *b, unsigned type)
{
	static const uint8_t zeros[26];

	if (memcmp(b, auth_magic, sizeof(auth_magic)))
		return "it is no gateway";
	if (b[4] != AUTH_VERSION)
		return "another version of tgtd speaks there";
	if (b[5] != type)
		return "it says something else than its turn is";
	if (type == MSG_HELLO	  ? b[10] > 1 || b[11] || memcmp(b + 24, zeros, 8) :
	    type == MSG_CHALLENGE ? b[6] > 1 || memcmp(b + 7, zeros, 25) :
				    memcmp(b + 6, zeros, 26))
		return "it says what this version does not know";
	return NULL;
}

static uint32_t group_sum(const struct mirror_auth *a)
{
	return mirror_sum(a->group, strlen(a->group));
}

bool mirror_auth_dial(struct mirror_auth *a, const struct mirror_hello *h,
		      uint8_t out[MIRROR_HANDSHAKE])
{
	a->hello = *h;
	a->hello.group = group_sum(a);
	if (!auth_random(a->hello.nonce))
		return false;
	auth_begin(out, MSG_HELLO);
	out[6] = h->from;
	out[7] = h->to;
	out[8] = h->channel;
	out[9] = h->channels;
	out[10] = h->rdma;
	put_be32(out + 12, a->hello.group);
	put_be64(out + 16, h->link);
	memcpy(out + NONCE_AT, a->hello.nonce, 32);
	memcpy(a->hello_bytes, out, MIRROR_HANDSHAKE);
	a->step = AUTH_CHALLENGE;
	return true;
}

static const char *auth_next_hello(struct mirror_auth *a, const uint8_t *in, uint8_t *out)
{
	struct mirror_hello *h = &a->hello;

	*h = (struct mirror_hello){ .from = in[6],
				    .to = in[7],
				    .channel = in[8],
				    .channels = in[9],
				    .rdma = in[10],
				    .group = get_be32(in + 12),
				    .link = get_be64(in + 16) };
	memcpy(h->nonce, in + NONCE_AT, 32);
	if (h->group != group_sum(a))
		return "it is of another group";
	if (h->to != a->self || h->from == a->self || h->from >= a->gateways)
		return "it is no gateway of this group, or means another one";
	if (!h->channels || h->channels > MIRROR_CHANNELS || h->channel >= h->channels)
		return "there are no such channels";
	memcpy(a->hello_bytes, in, MIRROR_HANDSHAKE);
	auth_begin(out, MSG_CHALLENGE);
	out[6] = a->rdma = h->rdma && a->offers;
	if (!auth_random(out + NONCE_AT))
		return "there is no randomness";
	memcpy(a->challenge_bytes, out, MIRROR_HANDSHAKE);
	return NULL;
}

static const char *auth_next_challenge(struct mirror_auth *a, const uint8_t *in, uint8_t *out)
{
	if (in[6] && !a->hello.rdma)
		return "it answers what it was not asked";
	a->rdma = in[6];
	memcpy(a->challenge_bytes, in, MIRROR_HANDSHAKE);
	auth_begin(out, MSG_ANSWER);
	return auth_mac(a, "tgtd dialer", out + NONCE_AT) ? NULL : "libcrypto fails";
}

static const char *proof_wrong(const struct mirror_auth *a, const char *label, const uint8_t *in)
{
	uint8_t proof[32];
	bool same;

	if (!auth_mac(a, label, proof))
		return "libcrypto fails";
	same = !CRYPTO_memcmp(proof, in + NONCE_AT, sizeof(proof));
	secret_cleanse(proof, sizeof(proof));
	return same ? NULL : "it does not know the group's secret";
}

static const char *auth_next_answer(struct mirror_auth *a, const uint8_t *in, uint8_t *out)
{
	const char *why = proof_wrong(a, "tgtd dialer", in);

	if (why)
		return why;
	auth_begin(out, MSG_READY);
	return auth_mac(a, "tgtd listener", out + NONCE_AT) ? NULL : "libcrypto fails";
}

const char *mirror_auth_next(struct mirror_auth *a, const uint8_t in[MIRROR_HANDSHAKE],
			     uint8_t out[MIRROR_HANDSHAKE], size_t *len)
{
	static const struct {
		unsigned type;
		const char *(*take)(struct mirror_auth *a, const uint8_t *in, uint8_t *out);
		enum mirror_auth_step next;
	} steps[AUTH_DONE] = {
		[AUTH_HELLO] = { MSG_HELLO, auth_next_hello, AUTH_ANSWER },
		[AUTH_CHALLENGE] = { MSG_CHALLENGE, auth_next_challenge, AUTH_READY },
		[AUTH_ANSWER] = { MSG_ANSWER, auth_next_answer, AUTH_DONE },
		[AUTH_READY] = { MSG_READY, NULL, AUTH_DONE },
	};
	const enum mirror_auth_step step = a->step;
	const char *why;

	BUG_ON(step >= AUTH_DONE);
	why = auth_wrong(in, steps[step].type);
	if (!why)
		why = steps[step].take ? steps[step].take(a, in, out) :
					 proof_wrong(a, "tgtd listener", in);
	*len = !why && steps[step].take ? MIRROR_HANDSHAKE : 0;
	if (!why)
		a->step = steps[step].next;
	return why;
}

bool mirror_auth_key(const struct mirror_auth *a, bool dialers, uint8_t key[MIRROR_KEY])
{
	BUG_ON(a->step != AUTH_DONE);
	return auth_mac(a, dialers ? "dialer's frames" : "listener's frames", key);
}

/* ---- codes of frames ------------------------------------------------------------------------- */
bool mirror_coder_init(struct mirror_coder *c, const uint8_t key[MIRROR_KEY])
{
	EVP_CIPHER_CTX *x = EVP_CIPHER_CTX_new();

	c->n = 0;
	c->cipher = x;
	if (x && EVP_EncryptInit_ex(x, EVP_aes_256_gcm(), NULL, key, NULL))
		return true;
	mirror_coder_free(c);
	return false;
}

void mirror_coder_free(struct mirror_coder *c)
{
	EVP_CIPHER_CTX_free(c->cipher);
	c->cipher = NULL;
}

bool mirror_coder_begin(struct mirror_coder *c)
{
	EVP_CIPHER_CTX *x = c->cipher;
	uint8_t nonce[12] = { 0 };

	put_be64(nonce + 4, ++c->n);
	return x && EVP_EncryptInit_ex(x, NULL, NULL, NULL, nonce);
}

bool mirror_coder_add(struct mirror_coder *c, const void *piece, size_t len)
{
	int n;

	return EVP_EncryptUpdate(c->cipher, NULL, &n, piece, (int)len);
}

bool mirror_coder_end(struct mirror_coder *c, uint8_t code[MIRROR_CODE])
{
	int n;

	return EVP_EncryptFinal_ex(c->cipher, code, &n) &&
	       EVP_CIPHER_CTX_ctrl(c->cipher, EVP_CTRL_GCM_GET_TAG, MIRROR_CODE, code);
}

bool mirror_coder_is(struct mirror_coder *c, const uint8_t code[MIRROR_CODE])
{
	uint8_t is[MIRROR_CODE];

	return mirror_coder_end(c, is) && !CRYPTO_memcmp(is, code, MIRROR_CODE);
}

bool mirror_coder_make(struct mirror_coder *c, const void *frame, size_t len,
		       uint8_t code[MIRROR_CODE])
{
	return mirror_coder_begin(c) && mirror_coder_add(c, frame, len) &&
	       mirror_coder_end(c, code);
}

bool mirror_coder_check(struct mirror_coder *c, const void *frame, size_t len,
			const uint8_t code[MIRROR_CODE])
{
	return mirror_coder_begin(c) && mirror_coder_add(c, frame, len) && mirror_coder_is(c, code);
}
