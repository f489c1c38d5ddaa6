/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Preloaded into the tools of sg3-utils: the LUNs of an iSCSI target stand in for SCSI disks of
 * this machine, without a kernel initiator. /dev/tgtN is LUN N of $SG_TARGET at $SG_PORTAL, and
 * looks like block device 8:16N; SG_IO on it goes through libiscsi. Each process logs in by itself,
 * as the same initiator port, and takes the unit attentions of its login.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <scsi/sg.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FDS 256
#define LUNS 16
#define PREFIX "/dev/tgt"
#define BY_NUMBER "/dev/block/8:"
#define MINORS 16 /* of one disk */

static int lun_of_fd[FDS]; /* 0: not ours; else 1 + LUN */
static struct iscsi_context *session;

static struct iscsi_context *log_in(void)
{
	if (session)
		return session;
	session = iscsi_create_context("iqn.2026-11.org.tgtd.test:sg");
	iscsi_set_targetname(session, getenv("SG_TARGET"));
	iscsi_set_session_type(session, ISCSI_SESSION_NORMAL);
	iscsi_set_isid_random(session, 1, 0);
	iscsi_set_noautoreconnect(session, 1);
	if (iscsi_full_connect_sync(session, getenv("SG_PORTAL"), -1)) {
		fprintf(stderr, "sg_over_iscsi: %s\n", iscsi_get_error(session));
		exit(97);
	}
	for (int lun = 0; lun < LUNS; lun++) {
		int status = SCSI_STATUS_CHECK_CONDITION, sense = SCSI_SENSE_UNIT_ATTENTION;

		while (status == SCSI_STATUS_CHECK_CONDITION &&
		       sense == SCSI_SENSE_UNIT_ATTENTION) {
			struct scsi_task *task = iscsi_testunitready_sync(session, lun);

			if (!task)
				break;
			status = task->status;
			sense = task->sense.key;
			scsi_free_scsi_task(task);
		}
	}
	return session;
}

/* The LUN that @path names, or -1. */
static int lun_of_path(const char *path)
{
	if (!strncmp(path, PREFIX, strlen(PREFIX)))
		return atoi(path + strlen(PREFIX));
	if (!strncmp(path, BY_NUMBER, strlen(BY_NUMBER)))
		return atoi(path + strlen(BY_NUMBER)) / MINORS;
	return -1;
}

static int lun_of(int fd)
{
	return fd >= 0 && fd < FDS ? lun_of_fd[fd] - 1 : -1;
}

static void look_like_a_disk(struct stat *st, int lun)
{
	st->st_mode = S_IFBLK | 0600;
	st->st_rdev = makedev(8, (unsigned)(lun * MINORS));
}

static int open_any(const char *path, int flags, mode_t mode)
{
	int (*libc_open)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
	int lun = lun_of_path(path), fd;

	if (lun < 0)
		return libc_open(path, flags, mode);
	fd = libc_open("/dev/null", O_RDWR);
	if (fd >= 0 && fd < FDS)
		lun_of_fd[fd] = 1 + lun;
	return fd;
}

#define OPEN(name)                                                                                 \
	int name(const char *path, int flags, ...)                                                 \
	{                                                                                          \
		va_list ap;                                                                        \
		mode_t mode;                                                                       \
                                                                                                   \
		va_start(ap, flags);                                                               \
		mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;                                   \
		va_end(ap);                                                                        \
		return open_any(path, flags, mode);                                                \
	}
OPEN(open)
OPEN(open64)

/* What fortified programs call. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __open_2(const char *path, int flags)
{
	return open_any(path, flags, 0);
}
int __open64_2(const char *path, int flags)
{
	return open_any(path, flags, 0);
}

int close(int fd)
{
	int (*libc_close)(int) = dlsym(RTLD_NEXT, "close");

	if (lun_of(fd) >= 0)
		lun_of_fd[fd] = 0;
	return libc_close(fd);
}

int fstat(int fd, struct stat *st)
{
	int (*libc_fstat)(int, struct stat *) = dlsym(RTLD_NEXT, "fstat");
	int rc = libc_fstat(fd, st);

	if (rc == 0 && lun_of(fd) >= 0)
		look_like_a_disk(st, lun_of(fd));
	return rc;
}

int stat(const char *path, struct stat *st)
{
	int (*libc_stat)(const char *, struct stat *) = dlsym(RTLD_NEXT, "stat");
	int lun = lun_of_path(path);

	if (lun < 0)
		return libc_stat(path, st);
	memset(st, 0, sizeof(*st));
	look_like_a_disk(st, lun);
	return 0;
}

/* The same structure on this architecture. */
int fstat64(int fd, struct stat64 *st)
{
	return fstat(fd, (struct stat *)st);
}
int stat64(const char *path, struct stat64 *st)
{
	return stat(path, (struct stat *)st);
}

/* As the kernel's SG_IO: what it gets into the header and the buffers that this names. */
static int pass_through(int lun, struct sg_io_hdr *h)
{
	struct iscsi_context *i = log_in();
	bool out = h->dxfer_direction == SG_DXFER_TO_DEV,
	     none = h->dxfer_direction == SG_DXFER_NONE || h->dxfer_len == 0;
	struct iscsi_data data = {.size = h->dxfer_len, .data = h->dxferp};
	struct scsi_task *task = scsi_create_task(h->cmd_len, h->cmdp,
						  none  ? SCSI_XFER_NONE
						  : out ? SCSI_XFER_WRITE
							: SCSI_XFER_READ,
						  none ? 0 : (int)h->dxfer_len);

	if (!iscsi_scsi_command_sync(i, lun, task, out && !none ? &data : NULL)) {
		fprintf(stderr, "sg_over_iscsi: %s\n", iscsi_get_error(i));
		errno = EIO;
		return -1;
	}
	h->status = (unsigned char)task->status;
	h->masked_status = (unsigned char)(task->status >> 1 & 0x1f);
	h->host_status = h->driver_status = 0;
	h->info = task->status ? SG_INFO_CHECK : SG_INFO_OK;
	h->sb_len_wr = 0;
	h->resid = none || out ? 0 : (int)h->dxfer_len;
	if (task->status == SCSI_STATUS_CHECK_CONDITION &&
	    task->datain.size > 2) { /* two bytes of length, then the sense data */
		int n = task->datain.size - 2;

		h->sb_len_wr = (unsigned char)(n < h->mx_sb_len ? n : h->mx_sb_len);
		memcpy(h->sbp, task->datain.data + 2, h->sb_len_wr);
	} else if (!none && !out && task->datain.size > 0) {
		unsigned n = (unsigned)task->datain.size;

		n = n < h->dxfer_len ? n : h->dxfer_len;
		memcpy(h->dxferp, task->datain.data, n);
		h->resid -= (int)n;
	}
	scsi_free_scsi_task(task);
	return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
	int (*libc_ioctl)(int, unsigned long, ...) = dlsym(RTLD_NEXT, "ioctl");
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (lun_of(fd) < 0)
		return libc_ioctl(fd, request, arg);
	if (request == SG_IO)
		return pass_through(lun_of(fd), arg);
	errno = ENOTTY;
	return -1;
}
