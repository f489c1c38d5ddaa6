/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the backing stores share. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "cache/backend/backend.h"

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

int backend_status(int err)
{
	switch (err) {
	case -ENOSPC:
	case -EDQUOT:
	case -EFBIG:
		return -ENOSPC;
	case -ENODEV:
	case -ENXIO:
		return -ENODEV;
	case -EOPNOTSUPP:
	case -ENOMEM:
	case -EROFS:
		return err;
	default:
		return -EIO;
	}
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
