/* SPDX-License-Identifier: GPL-2.0-or-later */
/* CHAP arithmetic and encodings. See chap.h. */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "tgtd/iscsi/chap.h"

static const struct {
	unsigned number;
	size_t len;
	const EVP_MD *(*md)(void);
} algorithms[] = {
	{ CHAP_MD5, 16, EVP_md5 },
	{ CHAP_SHA1, 20, EVP_sha1 },
	{ CHAP_SHA256, 32, EVP_sha256 },
	{ CHAP_SHA3_256, 32, EVP_sha3_256 },
};

size_t chap_digest_len(unsigned algorithm)
{
	for (size_t i = 0; i < ARRAY_SIZE(algorithms); i++)
		if (algorithms[i].number == algorithm)
			return algorithms[i].len;
	return 0;
}

unsigned chap_choose(const char *offer)
{
	while (*offer) {
		char *end;
		unsigned long n = strtoul(offer, &end, 10);

		if (end == offer || (*end && *end != ','))
			return 0;
		if (n < 256 && chap_digest_len((unsigned)n))
			return (unsigned)n;
		offer = *end ? end + 1 : end;
	}
	return 0;
}

int chap_response(unsigned algorithm, uint8_t id, const char *secret, const uint8_t *challenge,
		  size_t challenge_len, uint8_t *out)
{
	const EVP_MD *md = NULL;
	EVP_MD_CTX *ctx;
	bool good;

	for (size_t i = 0; i < ARRAY_SIZE(algorithms); i++)
		if (algorithms[i].number == algorithm)
			md = algorithms[i].md();
	if (!md)
		return -EINVAL;
	ctx = EVP_MD_CTX_new();
	good = ctx && EVP_DigestInit_ex(ctx, md, NULL) && EVP_DigestUpdate(ctx, &id, 1) &&
	       EVP_DigestUpdate(ctx, secret, strlen(secret)) &&
	       EVP_DigestUpdate(ctx, challenge, challenge_len) &&
	       EVP_DigestFinal_ex(ctx, out, NULL);
	EVP_MD_CTX_free(ctx);
	return good ? 0 : -EIO;
}

int chap_random(void *out, size_t len)
{
	uint8_t *p = out;

	while (len) {
		ssize_t n = getrandom(p, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EIO;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

bool chap_equal(const uint8_t *a, const uint8_t *b, size_t len)
{
	return CRYPTO_memcmp(a, b, len) == 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static int decode_hex(const char *s, uint8_t *out, size_t max)
{
	size_t digits = strlen(s), n = DIV_ROUND_UP(digits, 2), at = 0;

	if (!digits || n > max)
		return -EINVAL;
	/* An odd number of digits has an implied leading zero (RFC 7143 6.1). */
	for (size_t i = 0; i < n; i++) {
		int hi = i == 0 && digits % 2 ? 0 : hex_digit(s[at++]);
		int lo = hex_digit(s[at++]);

		if (hi < 0 || lo < 0)
			return -EINVAL;
		out[i] = (uint8_t)(hi << 4 | lo);
	}
	return (int)n;
}

static int base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static int decode_base64(const char *s, uint8_t *out, size_t max)
{
	size_t len = strlen(s), n = 0;
	uint32_t acc = 0;
	unsigned bits = 0;

	if (!len || len % 4)
		return -EINVAL;
	for (int pad = 0; pad < 2 && len && s[len - 1] == '='; pad++)
		len--;
	for (size_t i = 0; i < len; i++) {
		int d = base64_digit(s[i]);

		if (d < 0)
			return -EINVAL;
		acc = acc << 6 | (uint32_t)d;
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			if (n == max)
				return -EINVAL;
			out[n++] = (uint8_t)(acc >> bits);
		}
	}
	return n ? (int)n : -EINVAL;
}

int chap_decode(const char *text, uint8_t *out, size_t max)
{
	if (text[0] != '0')
		return -EINVAL;
	if (text[1] == 'x' || text[1] == 'X')
		return decode_hex(text + 2, out, max);
	if (text[1] == 'b' || text[1] == 'B')
		return decode_base64(text + 2, out, max);
	return -EINVAL;
}

void chap_encode(const uint8_t *in, size_t len, char *out)
{
	*out++ = '0';
	*out++ = 'x';
	for (size_t i = 0; i < len; i++, out += 2)
		snprintf(out, 3, "%02x", in[i]);
}
