/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The table of backing stores and what they share. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "cache/backend/backend.h"

static const struct backend {
	const char *name;
	struct blk *(*open)(const struct blk_open_args *args);
	bool bounce; /* no memory of its own */
} backends[] = {
	{ "aio", aio_open, true },
	{ "ram", ram_open, false },
	{ "null", null_open, false },
};

const char *const blk_bstypes[] = { "aio", "rdwr", "ram", "null", NULL };

void *backend_fail(const struct blk_open_args *args, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (args->err && args->err_len)
		vsnprintf(args->err, args->err_len, fmt, ap);
	va_end(ap);
	errno = err;
	return NULL;
}

struct blk *blk_open(const char *bstype, const struct blk_open_args *args)
{
	if (args->err && args->err_len)
		args->err[0] = '\0';
	if (args->block_size && args->block_size != 512 && args->block_size != 4096)
		return backend_fail(args, EINVAL, "block size %u: only 512 and 4096 are possible",
				    args->block_size);
	if (strcmp(bstype, "rdwr") == 0)
		bstype = "aio";
	for (size_t i = 0; i < ARRAY_SIZE(backends); i++) {
		int err;

		if (strcmp(bstype, backends[i].name) != 0)
			continue;
		err = backends[i].bounce ? blk_bounce_init(args->topo, args->node) : 0;
		if (err)
			return backend_fail(args, -err, "no memory for bounce blocks: %s",
					    strerror(-err));
		return backends[i].open(args);
	}
	return backend_fail(args, EINVAL, "unknown backing store type '%s'", bstype);
}

int backend_size(const char *text, uint64_t *bytes, const char **end)
{
	static const char units[] = "kmgtp";
	unsigned long long v;
	const char *unit;
	char *p;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &p, 10);
	if (errno)
		return -ERANGE;
	unit = *p ? strchr(units, *p | 0x20) : NULL;
	if (unit) {
		unsigned shift = 10 * (unsigned)(unit - units + 1);

		if (v > UINT64_MAX >> shift)
			return -ERANGE;
		v <<= shift;
		p++;
		if (*p == 'i')
			p++;
		if (*p == 'B' || *p == 'b')
			p++;
	}
	if (end)
		*end = p;
	else if (*p)
		return -EINVAL;
	*bytes = v;
	return 0;
}
