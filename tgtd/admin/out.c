/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The text of an answer while it grows, up to what a client takes. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "events/bug.h"
#include "tgtd/admin/admin_int.h"

static bool out_room(struct adm_out *out, size_t more)
{
	ASSERT(more && out->len <= out->cap);
	if (out->failed || out->len + more > ADM_RSP_MAX)
		return false;
	if (out->cap - out->len >= more)
		return true;
	size_t cap = MAX(out->cap * 2, ALIGN_UP(out->len + more, (size_t)4096));
	char *buf = realloc(out->buf, cap);

	if (!buf)
		return false;
	out->buf = buf;
	out->cap = cap;
	return true;
}

void out_printf(struct adm_out *out, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0 || !out_room(out, (size_t)n + 1)) {
		out->failed = true;
		return;
	}
	va_start(ap, fmt);
	vsnprintf(out->buf + out->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	out->len += (size_t)n;
}

void out_put(struct adm_out *out, const char *bytes, size_t n)
{
	if (!n)
		return;
	if (!out_room(out, n)) {
		out->failed = true;
		return;
	}
	memcpy(out->buf + out->len, bytes, n);
	out->len += n;
}

void out_puts(struct adm_out *out, const char *text)
{
	out_put(out, text, strlen(text));
}

void out_free(struct adm_out *out)
{
	free(out->buf);
	*out = (struct adm_out){ 0 };
}
