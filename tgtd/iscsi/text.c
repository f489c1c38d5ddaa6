/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Assembling, parsing and producing the text of login and text PDUs. See text.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "events/bug.h"
#include "tgtd/iscsi/text.h"

void text_in_init(struct text_in *in)
{
	memset(in, 0, sizeof(*in));
}

void text_in_fini(struct text_in *in)
{
	free(in->buf);
	memset(in, 0, sizeof(*in));
}

void text_in_reset(struct text_in *in)
{
	in->len = 0;
	/* One huge request must not keep its memory for the life of a connection. */
	if (in->cap > 16384)
		text_in_fini(in);
}

/* Grows *buf to hold @need bytes, doubling. */
static int text_grow(char **buf, uint32_t *cap, uint32_t need)
{
	uint32_t want = *cap ? *cap : 1024;
	char *bigger;

	if (need <= *cap)
		return 0;
	while (want < need)
		want *= 2;
	bigger = realloc(*buf, want);
	if (!bigger)
		return -ENOMEM;
	*buf = bigger;
	*cap = want;
	return 0;
}

int text_in_append(struct text_in *in, const void *data, uint32_t len)
{
	int rc;

	if (len > TEXT_IN_MAX - in->len)
		return -E2BIG;
	rc = text_grow(&in->buf, &in->cap, in->len + len);
	if (rc)
		return rc;
	if (len)
		memcpy(in->buf + in->len, data, len);
	in->len += len;
	return 0;
}

/* RFC 7143 6.1: letters, digits and a few others, starting with a capital letter. Names that fit no
 * key of ours are answered NotUnderstood, so only the characters are checked here. */
static bool key_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '-' || c == '+' || c == '@' || c == '_' || c == '#';
}

static bool key_valid(const char *key, size_t len)
{
	if (!len || len > TEXT_KEY_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if (!key_char(key[i]))
			return false;
	return true;
}

int text_in_parse(struct text_in *in, int (*fn)(void *arg, const char *key, const char *value),
		  void *arg)
{
	const char *seen[TEXT_KEYS_MAX];
	unsigned n = 0;
	char *p = in->buf, *end;

	if (!in->len)
		return 0;
	end = p + in->len;
	if (end[-1] != '\0')
		return -EPROTO;
	while (p < end) {
		char *key = p, *eq, *value;
		size_t len = strlen(p);

		p += len + 1;
		/* Initiators pad with NULs inside the segment; an empty string is no pair. */
		if (!len)
			continue;
		eq = memchr(key, '=', len);
		if (!eq || !key_valid(key, (size_t)(eq - key)))
			return -EPROTO;
		*eq = '\0';
		value = eq + 1;
		if (strlen(value) > TEXT_LONG_VALUE_MAX || n == TEXT_KEYS_MAX)
			return -EPROTO;
		/* 6.1: a key may be offered once in a negotiation; twice
		 * in one request is certain. */
		for (unsigned i = 0; i < n; i++)
			if (!strcmp(seen[i], key))
				return -EPROTO;
		seen[n++] = key;
	}
	/* Second pass, so that a malformed request has no effect at all. */
	for (unsigned i = 0; i < n; i++) {
		int rc = fn(arg, seen[i], seen[i] + strlen(seen[i]) + 1);

		if (rc)
			return rc;
	}
	return 0;
}

void text_out_init(struct text_out *out)
{
	memset(out, 0, sizeof(*out));
}

void text_out_fini(struct text_out *out)
{
	free(out->buf);
	memset(out, 0, sizeof(*out));
}

void text_out_reset(struct text_out *out)
{
	out->len = out->sent = 0;
	out->error = 0;
	if (out->cap > 16384)
		text_out_fini(out);
}

int text_out_add(struct text_out *out, const char *key, const char *value)
{
	size_t klen = strlen(key), vlen = strlen(value);
	size_t need = klen + 1 + vlen + 1;

	if (out->error)
		return out->error;
	if (need > TEXT_OUT_MAX - out->len)
		return out->error = -E2BIG;
	if (text_grow(&out->buf, &out->cap, out->len + (uint32_t)need))
		return out->error = -ENOMEM;
	memcpy(out->buf + out->len, key, klen);
	out->buf[out->len + klen] = '=';
	memcpy(out->buf + out->len + klen + 1, value, vlen + 1);
	out->len += (uint32_t)need;
	return 0;
}

int text_out_append(struct text_out *out, const void *data, uint32_t len)
{
	if (out->error)
		return out->error;
	if (len > TEXT_OUT_MAX - out->len)
		return out->error = -E2BIG;
	if (text_grow(&out->buf, &out->cap, out->len + len))
		return out->error = -ENOMEM;
	memcpy(out->buf + out->len, data, len);
	out->len += len;
	return 0;
}

int text_out_addf(struct text_out *out, const char *key, const char *fmt, ...)
{
	char value[TEXT_LONG_VALUE_MAX + 1];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(value, sizeof(value), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(value))
		return out->error = -E2BIG;
	return text_out_add(out, key, value);
}

const char *text_out_take(struct text_out *out, uint32_t max, uint32_t *len, bool *more)
{
	const char *p = out->buf ? out->buf + out->sent : "";

	ASSERT(out->sent <= out->len);
	*len = MIN(out->len - out->sent, max);
	/* A pair may span PDUs (RFC 7143 11.10.5), but not every reader copes: only one that is
	 * longer than a PDU does. */
	if (*len < out->len - out->sent) {
		uint32_t whole = *len;

		while (whole && p[whole - 1])
			whole--;
		if (whole)
			*len = whole;
	}
	out->sent += *len;
	*more = out->sent < out->len;
	return p;
}
