/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The text format of login and text PDUs (RFC 7143 6.1): key=value pairs, each ended by a NUL. The
 * C bit may spread a request over several PDUs. Input is assembled into one bounded buffer and only
 * then parsed; output is collected in one bounded buffer and cut into PDUs.
 */
#ifndef TGTD_ISCSI_TEXT_H
#define TGTD_ISCSI_TEXT_H

#include "events/base.h"

#define TEXT_KEY_MAX 63
#define TEXT_VALUE_MAX 255	     /* of ordinary values */
#define TEXT_LONG_VALUE_MAX 8191     /* CHAP binary values */
#define TEXT_IN_MAX 65536	     /* one request, all its PDUs */
#define TEXT_OUT_MAX (256 * 1024)    /* collected at a time; SendTargets' answer is made a PDU
				      * at a time, so it may be longer (listing.h) */
#define TEXT_KEYS_MAX 256	     /* pairs in one request */

/* A request being assembled. Heap, grown as needed up to TEXT_IN_MAX. */
struct text_in {
	char *buf;
	uint32_t len, cap;
};

/* One thread at a time; nothing is allocated by init, fini may be followed by init. */
void text_in_init(struct text_in *in);
void text_in_fini(struct text_in *in);
/* -E2BIG past the limit, -ENOMEM. */
int text_in_append(struct text_in *in, const void *data, uint32_t len) must_check;
/* Calls fn for each pair, in order; strings are NUL-terminated and stay valid until the next append
 * or reset. Returns 0, the first non-zero that fn returns, or -EPROTO for malformed text: no '=',
 * no NUL at the end, a key that is empty or too long, a value that is too long, a duplicate key,
 * too many keys. Empties @in for the next request only through text_in_reset(). */
int text_in_parse(struct text_in *in, int (*fn)(void *arg, const char *key, const char *value),
		  void *arg) must_check;
void text_in_reset(struct text_in *in);

/* An answer being collected and then sent in PDU-sized pieces. */
struct text_out {
	char *buf;
	uint32_t len, cap;
	uint32_t sent; /* bytes already taken by text_out_take() */
	int error;     /* sticky: -ENOMEM, -E2BIG */
};

/* Reset: empty, error gone, memory kept. Add: 0 or out->error, which stays, so that
 * the last result tells all. */
void text_out_init(struct text_out *out);
void text_out_fini(struct text_out *out);
void text_out_reset(struct text_out *out);
int text_out_add(struct text_out *out, const char *key, const char *value);
int text_out_addf(struct text_out *out, const char *key, const char *fmt, ...) printf_like(3, 4);
/* A part of a pair, as it is. */
int text_out_append(struct text_out *out, const void *data, uint32_t len);
/* The next at most @max bytes; *more says whether any are left (then the PDU carries C = 1). */
const char *text_out_take(struct text_out *out, uint32_t max, uint32_t *len, bool *more);

#endif
