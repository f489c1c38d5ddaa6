/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The aio store on block devices: loop devices, where this process may make them. */
#include <check.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "events/offload.h"
#include "tests/support/blktest.h"
#include "tests/support/unit.h"

static struct bt t;
static char path[64];

static bool make_file(uint64_t size)
{
	bool made;
	int fd;

	snprintf(path, sizeof(path), "/var/tmp/tgt-test-aio.XXXXXX");
	fd = mkstemp(path);
	if (fd < 0)
		return false;
	made = ftruncate(fd, (off_t)size) == 0;
	close(fd);
	if (!made)
		unlink(path);
	return made;
}

static struct blk *try_open(struct blk_open_args *args, char *err, size_t len)
{
	args->path = path;
	args->err = err;
	args->err_len = len;
	args->node = 0;
	return blk_open("aio", args);
}

static int loop_dev = -1;

static int try_device(uint32_t sector)
{
	struct loop_config config = { .block_size = sector, .info.lo_flags = LO_FLAGS_AUTOCLEAR };
	int ctl = open("/dev/loop-control", O_RDWR | O_CLOEXEC), fd, n, err = 0;
	char name[32];

	if (ctl < 0)
		return -errno;
	n = ioctl(ctl, LOOP_CTL_GET_FREE);
	close(ctl);
	if (n < 0)
		return -errno;
	snprintf(name, sizeof(name), "/dev/loop%d", n);
	fd = open(path, O_RDWR | O_CLOEXEC);
	loop_dev = open(name, O_RDWR | O_CLOEXEC);
	config.fd = (unsigned)fd;
	if (fd < 0 || loop_dev < 0 || ioctl(loop_dev, LOOP_CONFIGURE, &config) < 0)
		err = -errno;
	if (fd >= 0)
		close(fd);
	if (err && loop_dev >= 0) {
		close(loop_dev);
		loop_dev = -1;
	}
	if (!err) {
		unlink(path);
		snprintf(path, sizeof(path), "%s", name);
	}
	return err;
}

/* Turns the file at @path into a block device whose name replaces it; 0 or -errno. Somebody else
 * may take the same free one. */
static int make_device(uint32_t sector)
{
	int err = -EBUSY;

	for (int i = 0; i < 20 && err == -EBUSY; i++)
		err = try_device(sector);
	if (err)
		unlink(path);
	return err;
}

/* The device goes when its last user closes it. The node of a loop device must not be unlinked. */
static void drop_device(void)
{
	if (loop_dev >= 0)
		close(loop_dev);
	loop_dev = -1;
	path[0] = '\0';
}

static bool devices_possible(void)
{
	int err;

	if (!make_file(MiB(1)))
		return false;
	err = make_device(512);
	drop_device();
	return err == 0;
}

START_TEST(block_device)
{
	const uint32_t sector = _i ? 4096 : 512;
	struct blk_open_args args = { 0 };
	char err[200];

	ck_assert(make_file(MiB(2)));
	ck_assert_int_eq(make_device(sector), 0);
	bt_init(&t, bt_open("aio", path, 0), 7);
	ck_assert_uint_eq(t.blk->block_size, sector);
	ck_assert_uint_eq(t.blk->size, MiB(2));
	ck_assert_ptr_null(try_open(&args, err, sizeof(err)));
	ck_assert_int_eq(errno, EBUSY);
	bt_model(&t, 800);
	bt_fini(&t);
	if (sector == 4096) {
		args.block_size = 512;
		ck_assert_ptr_null(try_open(&args, err, sizeof(err)));
		ck_assert_int_eq(errno, EINVAL);
		ck_assert_ptr_nonnull(strstr(err, "4096"));
	}
	drop_device();
	blk_bounce_fini();
	offload_fini();
}
END_TEST

int main(void)
{
	const struct unit_test tests[] = { { block_device, 2 } };

	if (devices_possible())
		return unit_run("aio-device", 60, tests, 1);
	printf("ok block_device # SKIP no loop devices can be made here\n");
	return 0;
}
