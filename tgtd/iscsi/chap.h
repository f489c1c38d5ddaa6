/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * CHAP (RFC 1994) with the algorithms that IANA registered for iSCSI: 5 MD5, 6 SHA1, 7 SHA-256, 8
 * SHA3-256 (RFC 7143 12.1.3, and its registry). Hashes and random numbers are libcrypto's and the
 * kernel's. Pure functions, any thread.
 */
#ifndef TGTD_ISCSI_CHAP_H
#define TGTD_ISCSI_CHAP_H

#include "events/base.h"

enum chap_algorithm { CHAP_MD5 = 5, CHAP_SHA1 = 6, CHAP_SHA256 = 7, CHAP_SHA3_256 = 8 };

#define CHAP_DIGEST_MAX 32
#define CHAP_CHALLENGE_LEN 32	/* of ours; no longer than the hash is
				 * pointless, shorter is weaker */
#define CHAP_CHALLENGE_MAX 1024 /* RFC 7143 12.1.3: binary values are at most 1024 bytes */

/* Length of the algorithm's digest, 0 when it is none of ours. */
size_t chap_digest_len(unsigned algorithm);
/* The first algorithm of the comma-separated offer that we know, 0 when there is none. */
unsigned chap_choose(const char *offer);
/* H(id | secret | challenge) into @out[chap_digest_len()]. 0 or
 * -EINVAL, -EIO (libcrypto refused). */
int chap_response(unsigned algorithm, uint8_t id, const char *secret, const uint8_t *challenge,
		  size_t challenge_len, uint8_t *out) must_check;
/* Unpredictable bytes from the kernel's generator. 0 or -EIO. */
int chap_random(void *out, size_t len) must_check;
/* Takes the same time wherever the first difference is. */
bool chap_equal(const uint8_t *a, const uint8_t *b, size_t len);
/* "0x…" or "0b…" (RFC 7143 6.1 binary-value). Returns the length or -EINVAL. */
int chap_decode(const char *text, uint8_t *out, size_t max) must_check;
/* Writes "0x…"; @out has room for 2 * len + 3. */
void chap_encode(const uint8_t *in, size_t len, char *out);

#endif
