/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stands in for a kernel and a disk that write atomically (Linux 6.11), on any machine. Preloaded
 * into tgtd: statx() says 4 KiB to 64 KiB. An RWF_ATOMIC write that such a kernel would refuse is
 * refused, and all are while $ATOMIC_LOG.refuse is there. Others are noted in $ATOMIC_LOG, "OFFSET
 * LENGTH DSYNC" a line, and go on without the flag, which the disk below may not know.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define WRITE_ATOMIC 0x00010000u /* STATX_WRITE_ATOMIC */
#define ATOMIC_AT 0xa8		 /* stx_atomic_write_unit_min, _max, _segments_max */
#define F_DSYNC 0x02
#define F_ATOMIC 0x40

int statx(int dir, const char *path, int flags, unsigned mask, struct statx *out)
{
	static int (*next)(int, const char *, int, unsigned, struct statx *);
	const uint32_t unit[3] = { 4096, 65536, 1 };
	int rc;

	if (!next)
		next = (int (*)(int, const char *, int, unsigned, struct statx *))dlsym(RTLD_NEXT,
											"statx");
	rc = next(dir, path, flags, mask, out);
	if (!rc && (mask & WRITE_ATOMIC)) {
		out->stx_mask |= WRITE_ATOMIC;
		memcpy((uint8_t *)out + ATOMIC_AT, unit, sizeof(unit));
	}
	return rc;
}

static void note(const struct iocb *cb, uint64_t len)
{
	const char *path = getenv("ATOMIC_LOG");
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;

	if (fd < 0)
		return;
	dprintf(fd, "%lld %llu %d\n", (long long)cb->u.c.offset, (unsigned long long)len,
		!!(cb->aio_rw_flags & F_DSYNC));
	close(fd);
}

/* A file system that cannot write this range atomically after all. */
static int unwilling(void)
{
	const char *path = getenv("ATOMIC_LOG");
	char refuse[256];

	snprintf(refuse, sizeof(refuse), "%s.refuse", path ? path : "");
	return access(refuse, F_OK) == 0;
}

/* As generic_atomic_write_valid() does, and within what statx() says. */
static int valid(const struct iocb *cb, uint64_t *len)
{
	const struct iovec *v = cb->u.c.buf;

	if (cb->aio_lio_opcode != IO_CMD_PWRITEV || cb->u.c.nbytes != 1)
		return 0;
	*len = v->iov_len;
	return *len >= 4096 && *len <= 65536 && !(*len & (*len - 1)) &&
	       !((uint64_t)cb->u.c.offset % *len);
}

int io_submit(io_context_t ctx, long n, struct iocb **v)
{
	static int (*next)(io_context_t, long, struct iocb **);
	uint64_t len = 0;

	if (!next)
		next = (int (*)(io_context_t, long, struct iocb **))dlsym(RTLD_NEXT, "io_submit");
	for (long i = 0; i < n; i++) {
		if (!(v[i]->aio_rw_flags & F_ATOMIC))
			continue;
		if (!valid(v[i], &len) || unwilling())
			return i ? next(ctx, i, v) : -EINVAL;
		note(v[i], len);
		v[i]->aio_rw_flags &= ~F_ATOMIC;
	}
	return next(ctx, n, v);
}
