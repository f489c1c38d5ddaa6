/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The aio store on real files: content against a model, batching, full queues, partial transfers,
 * fallbacks, aborts, locking, growth. open() and io_submit() are replaced so that kernels that lack
 * something can be played. */
#include <check.h>
#include <fcntl.h>
#include <libaio.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include "cache/backend/aio_ring.h"
#include "events/offload.h"
#include "events/bytes.h"
#include "tests/support/blktest.h"

static struct bt t;
static char path[64];

/* ---- a kernel to order ----------------------------------------------------------------------- */

#ifndef RWF_ATOMIC
#define RWF_ATOMIC 0x00000040
#endif
#define F_PLAYED (RWF_NOWAIT | RWF_ATOMIC)

static struct {
	bool no_direct, no_rwf, no_fdsync;
	bool no_contexts;   /* others have them all */
	unsigned shrink;    /* takes at most this many iocbs at once; 0: all */
	unsigned eagain;    /* so many refusals first */
	unsigned bad_fdsyncs; /* so many fail */
	unsigned cut;	    /* every so manyth transfer does its first half only; 0: never */
	unsigned submits, iocbs, rwf, fdsyncs, seen;
	bool hold_rwf;	    /* keeps an RWF_DSYNC write, and says that it has it */
	struct iocb *held;
	io_context_t held_ctx;
	bool slow;	    /* keeps all, and says that it has them, until disk_goes_on() */
	bool hangs;	    /* some stores do: */
	bool dies;	    /* the stores of what it is given now hang from now on */
	bool dead[1024];    /* these, by descriptor: it keeps what is theirs */
	struct iocb *kept[1024];
	unsigned nkept;
	io_context_t ctx;
	int waits;	    /* with this descriptor it has to wait first: it refuses RWF_NOWAIT, and
			     * who does without waits until that changes */
	_Atomic unsigned waiting; /* so many do */
	pthread_t loop;	    /* must not be among them */
	int no_flags;	    /* RWF_* that it does not know, of those that F_PLAYED has: refused */
	_Atomic unsigned nowaits, atomics; /* so many that it knew came */
	_Atomic unsigned lost; /* so many fdatasync() fail, and are slow to come back */
	_Atomic unsigned syncs, out;
} kernel;

/* What is lost is told to one only, who hears of it after all who come meanwhile. */
int fdatasync(int fd)
{
	bool bad = false;
	unsigned n = kernel.lost;

	while (n && !(bad = atomic_compare_exchange_weak(&kernel.lost, &n, n - 1)))
		;
	n = ++kernel.syncs;
	for (int i = 0; bad && i < 300 && kernel.syncs == n; i++)
		usleep(1000);
	for (int i = 0; bad && i < 100 && kernel.out + 1 < kernel.syncs; i++)
		usleep(1000);
	kernel.out++;
	if (bad) {
		usleep(50000);
		errno = EIO;
		return -1;
	}
	return 0;
}

int open(const char *name, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;

	va_start(ap, flags);
	if (flags & O_CREAT)
		mode = va_arg(ap, mode_t);
	va_end(ap);
	if (kernel.no_direct && (flags & O_DIRECT)) {
		errno = EINVAL;
		return -1;
	}
	return (int)syscall(SYS_openat, AT_FDCWD, name, flags, mode);
}

int io_setup(int n, io_context_t *ctx)
{
	if (kernel.no_contexts)
		return -EAGAIN;
	return syscall(SYS_io_setup, n, ctx) ? -errno : 0;
}

/* Without what is of stores that hang, which the kernel has from now on. */
static long submit_living(io_context_t ctx, long nr, struct iocb **ios)
{
	struct iocb *living[1024];
	long n = 0;

	for (long i = 0; i < nr; i++) {
		bool *dead = &kernel.dead[ios[i]->aio_fildes];

		*dead |= kernel.dies;
		if (*dead)
			kernel.kept[kernel.nkept++] = ios[i];
		else
			living[n++] = ios[i];
	}
	ck_assert(!n || syscall(SYS_io_submit, ctx, n, living) == n);
	return nr;
}

/* What the kernel has to wait for. With RWF_NOWAIT it is over at once, with EAGAIN, as a read of an
 * empty pipe is. */
static void wait_for_it(io_context_t ctx, struct iocb *cb)
{
	static int empty[2] = { -1, -1 };
	const struct iocb was = *cb;

	if (!(cb->aio_rw_flags & RWF_NOWAIT)) {
		ck_assert(!pthread_equal(kernel.loop, pthread_self()));
		kernel.waiting++;
		while (__atomic_load_n(&kernel.waits, __ATOMIC_ACQUIRE) == cb->aio_fildes)
			usleep(1000);
		kernel.waiting--;
		ck_assert_int_eq((int)syscall(SYS_io_submit, ctx, 1L, &cb), 1);
		return;
	}
	if (empty[0] < 0)
		ck_assert_int_eq(pipe2(empty, O_NONBLOCK | O_CLOEXEC), 0);
	cb->aio_fildes = empty[0];
	cb->aio_lio_opcode = IO_CMD_PREADV;
	cb->aio_rw_flags = 0;
	cb->u.c.offset = 0;
	ck_assert_int_eq((int)syscall(SYS_io_submit, ctx, 1L, &cb), 1);
	cb->aio_fildes = was.aio_fildes;
	cb->aio_lio_opcode = was.aio_lio_opcode;
	cb->aio_rw_flags = was.aio_rw_flags;
	cb->u.c.offset = was.u.c.offset;
}

/* A kernel and a disk that know some of F_PLAYED, whatever is below. */
static int submit_known(io_context_t ctx, long nr, struct iocb **ios)
{
	long n = 0;

	for (; n < nr && !(ios[n]->aio_rw_flags & kernel.no_flags); n++) {
		kernel.nowaits += (ios[n]->aio_rw_flags & RWF_NOWAIT) != 0;
		kernel.atomics += (ios[n]->aio_rw_flags & RWF_ATOMIC) != 0;
		ios[n]->aio_rw_flags &= ~F_PLAYED;
	}
	ck_assert(!n || syscall(SYS_io_submit, ctx, n, ios) == n);
	return n ? (int)n : -EOPNOTSUPP;
}

int io_submit(io_context_t ctx, long nr, struct iocb **ios)
{
	static struct iovec short_iov[64]; /* the kernel copies it */
	long n = kernel.shrink ? MIN(nr, (long)kernel.shrink) : nr, rc;

	kernel.submits++;
	kernel.ctx = ctx;
	if (kernel.eagain) {
		kernel.eagain--;
		return -EAGAIN;
	}
	if (kernel.hangs)
		return (int)submit_living(ctx, nr, ios);
	if (kernel.no_flags)
		return submit_known(ctx, nr, ios);
	if (kernel.waits) {
		for (long i = 0; i < nr; i++)
			if ((int)ios[i]->aio_fildes == kernel.waits)
				wait_for_it(ctx, ios[i]);
			else
				ck_assert_int_eq((int)syscall(SYS_io_submit, ctx, 1L, &ios[i]), 1);
		return (int)nr;
	}
	for (long i = 0; kernel.slow && i < nr; i++)
		kernel.kept[kernel.nkept++] = ios[i];
	if (kernel.slow)
		return (int)nr;
	for (long i = 0; i < n; i++) {
		struct iocb *cb = ios[i];
		bool bad = (kernel.no_rwf && cb->aio_rw_flags) ||
			   (kernel.no_fdsync && cb->aio_lio_opcode == IO_CMD_FDSYNC);

		if (bad && i == 0)
			return -EINVAL;
		if (bad) {
			n = i;
			break;
		}
		kernel.rwf += (cb->aio_rw_flags & RWF_DSYNC) != 0;
		if (kernel.hold_rwf && (cb->aio_rw_flags & RWF_DSYNC)) {
			if (i)
				return (int)syscall(SYS_io_submit, ctx, i, ios);
			kernel.hold_rwf = false;
			kernel.held = cb;
			kernel.held_ctx = ctx;
			return 1;
		}
		if (cb->aio_lio_opcode == IO_CMD_FDSYNC) {
			kernel.fdsyncs++;
			if (kernel.bad_fdsyncs) {
				if (i)
					return (int)syscall(SYS_io_submit, ctx, i, ios);
				kernel.bad_fdsyncs--;
				return -EIO;
			}
		} else if (kernel.cut && ++kernel.seen % kernel.cut == 0) {
			struct iovec *v = cb->u.c.buf;

			if (cb->u.c.nbytes > 1)
				cb->u.c.nbytes = 1;
			else if (v->iov_len >= 8192) {
				short_iov[i % 64] = (struct iovec){ v->iov_base, 4096 };
				cb->u.c.buf = &short_iov[i % 64];
			}
		}
	}
	rc = syscall(SYS_io_submit, ctx, n, ios);
	if (rc > 0)
		kernel.iocbs += (unsigned)rc;
	return rc < 0 ? -errno : (int)rc;
}

/* ---- files ----------------------------------------------------------------------------------- */

static void make_file(uint64_t size)
{
	int fd;

	snprintf(path, sizeof(path), "/var/tmp/tgt-test-aio.XXXXXX");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	close(fd);
}

static void setup(void)
{
	memset(&kernel, 0, sizeof(kernel));
}

static void teardown(void)
{
	if (*path)
		unlink(path);
}

static void open_aio(uint64_t size, uint32_t block_size)
{
	make_file(size);
	bt_init(&t, bt_open("aio", path, block_size), 1);
}

static void close_aio(void)
{
	bt_fini(&t);
	blk_bounce_fini();
	offload_fini();
}

static struct blk *try_open(struct blk_open_args *args, char *err, size_t len)
{
	args->path = path;
	args->err = err;
	args->err_len = len;
	args->node = 0;
	return blk_open("aio", args);
}

/* ---- content --------------------------------------------------------------------------------- */

/* Plain; partial transfers and refusals; without RWF_DSYNC and FDSYNC; without O_DIRECT; 4 KiB;
 * while others have all I/O contexts. */
START_TEST(model)
{
	if (_i == 1) {
		kernel.cut = 3;
		kernel.shrink = 1;
		kernel.eagain = 5;
	} else if (_i == 2) {
		kernel.no_rwf = kernel.no_fdsync = true;
	} else if (_i == 3) {
		kernel.no_direct = true;
	} else if (_i == 5) {
		kernel.no_contexts = true;
	}
	open_aio(MiB(2) + 100, _i == 4 ? 4096 : 512);
	ck_assert_uint_eq(t.blk->size, MiB(2));
	t.rng = (uint64_t)_i;
	bt_model(&t, 1500);
	if (_i == 3 || _i == 5)
		ck_assert_uint_eq(kernel.submits, 0);
	else if (_i == 2)
		ck_assert_uint_eq(kernel.rwf + kernel.fdsyncs, 0);
	else
		ck_assert(kernel.rwf > 0 && kernel.fdsyncs > 0);
	close_aio();
}
END_TEST

/* Others have all I/O contexts: nothing fails, and as soon as there is one it is taken. */
START_TEST(contexts_come_late)
{
	uint8_t b[4096];

	kernel.no_contexts = true;
	open_aio(MiB(1), 512);
	memset(b, 0x55, sizeof(b));
	ck_assert_int_eq(bt_write(&t, 0, sizeof(b), b, BLK_F_FUA), 0);
	ck_assert_uint_eq(kernel.submits, 0);
	kernel.no_contexts = false;
	for (int i = 0; i < 500 && !kernel.submits; i++) {
		usleep(10000);
		ck_assert_int_eq(bt_write(&t, 4096, sizeof(b), b, 0), 0);
	}
	ck_assert_uint_gt(kernel.submits, 0);
	t.rng = 1;
	bt_model(&t, 200);
	close_aio();
}
END_TEST

START_TEST(data_is_in_the_file)
{
	uint8_t b[4096], c[4096];
	int fd;

	open_aio(MiB(1), 512);
	memset(b, 0x77, sizeof(b));
	ck_assert_int_eq(bt_write(&t, 8192, sizeof(b), b, BLK_F_FUA), 0);
	fd = open(path, O_RDONLY);
	ck_assert_int_eq((int)pread(fd, c, sizeof(c), 8192), (int)sizeof(c));
	close(fd);
	ck_assert(memcmp(b, c, sizeof(b)) == 0);
	close_aio();
}
END_TEST

/* Memory that direct I/O would refuse. */
START_TEST(misaligned_memory)
{
	uint8_t *mem = malloc(16384 + 8), *want = malloc(16384);
	struct blk_req req;

	open_aio(MiB(1), 512);
	for (int i = 0; i < 16384; i++)
		want[i] = (uint8_t)(i * 7 + i / 256);
	for (int pass = 0; pass < 2; pass++) {
		blk_req_init(&req);
		req.op = pass ? BLK_READ : BLK_WRITE;
		req.flags = pass ? BLK_F_INTO : BLK_F_FROM;
		req.offset = 1024;
		req.len = 16384;
		req.done = NULL;
		memcpy(mem + 3, want, 16384);
		if (pass)
			memset(mem, 0, 16384 + 8);
		ck_assert_int_eq(frags_append(&req.data, mem + 3, 5000, NULL), 0);
		ck_assert_int_eq(frags_append(&req.data, mem + 5003, 11384, NULL), 0);
		ck_assert_int_eq(bt_run_plain(&t, &req), 0);
		frags_forget(&req.data);
		blk_req_fini(&req);
	}
	ck_assert(memcmp(mem + 3, want, 16384) == 0);
	free(mem);
	free(want);
	close_aio();
}
END_TEST

/* ---- queues ---------------------------------------------------------------------------------- */

static unsigned completed;
static int last_status;

static void note(struct blk_req *req)
{
	completed++;
	last_status = req->status;
	if (req->op == BLK_READ)
		blk_req_release(req);
}

static void start_reads(struct blk_req *req, unsigned n)
{
	completed = 0;
	for (unsigned i = 0; i < n; i++) {
		blk_req_init(&req[i]);
		req[i].op = BLK_READ;
		req[i].offset = i * 512 % MiB(1);
		req[i].len = 512;
		req[i].done = note;
		ck_assert(!bt_submit(&t, &req[i]));
	}
}

/* All that the kernel has kept, and will keep, is done; returns when it is. */
static void disk_goes_on(void)
{
	const unsigned n = kernel.nkept;

	kernel.slow = false;
	kernel.nkept = 0;
	ck_assert_int_eq((int)syscall(SYS_io_submit, kernel.ctx, n, kernel.kept), (int)n);
	for (int i = 0; i < 20000 && aio_ring_count(aio_ring_of(kernel.ctx)) < n; i++)
		usleep(1000);
	ck_assert_uint_eq(aio_ring_count(aio_ring_of(kernel.ctx)), n);
}

/* What a disk that is at work is to do next leaves at the end of the iteration, together. */
START_TEST(one_system_call_per_iteration)
{
	static struct blk_req first[16], req[12];

	open_aio(MiB(1), 512);
	kernel.slow = true;
	start_reads(first, 16);
	loop_step(t.loop, 0);
	ck_assert_uint_eq(kernel.nkept, 16);
	kernel.submits = 0;
	start_reads(req, 12);
	ck_assert_uint_eq(kernel.submits, 0);
	loop_step(t.loop, 0);
	ck_assert_uint_eq(kernel.submits, 1);
	ck_assert_uint_eq(kernel.nkept, 28);
	disk_goes_on();
	while (completed < 28)
		loop_step(t.loop, 10);
	close_aio();
}
END_TEST

/* A disk that has nothing to do begins with the first of a batch. It is not kept waiting for the
 * last ones, nor asked more often than the logarithm of their number. */
START_TEST(an_idle_disk_begins_at_once)
{
	static const unsigned calls[] = { 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2 };
	static struct blk_req req[28];

	open_aio(MiB(1), 512);
	kernel.slow = true;
	for (unsigned i = 0; i < 16; i++) {
		start_reads(&req[i], 1);
		ck_assert_uint_eq(kernel.submits, calls[i]);
		ck_assert(i < 3 || 2 * kernel.nkept > i);
	}
	start_reads(&req[16], 12);
	ck_assert_uint_eq(kernel.submits, 3);
	loop_step(t.loop, 0);
	ck_assert_uint_eq(kernel.submits, 4);
	ck_assert_uint_eq(kernel.nkept, 28);
	completed = 0;
	disk_goes_on();
	while (completed < 28)
		loop_step(t.loop, 10);
	close_aio();
}
END_TEST

/* It has done all that it had at one blow: a few are answered first, so that who asked asks for
 * more meanwhile. The loop does not sleep while there are others. */
START_TEST(completions_in_small_portions)
{
	static struct blk_req req[32];
	struct loop_stats before, after;

	open_aio(MiB(1), 512);
	kernel.slow = true;
	start_reads(req, 32);
	loop_step(t.loop, 0);
	disk_goes_on();
	loop_get_stats(t.loop, &before);
	for (unsigned i = 1; i <= 8; i++) {
		loop_step(t.loop, 10000);
		ck_assert_uint_eq(completed, 4 * i);
	}
	loop_get_stats(t.loop, &after);
	ck_assert_uint_eq(after.sleeps, before.sleeps);
	close_aio();
}
END_TEST

/* A disk that goes on working leaves time to take all that it has done. */
START_TEST(completions_of_a_busy_disk_at_once)
{
	static struct blk_req req[32], more[32];

	open_aio(MiB(1), 512);
	kernel.slow = true;
	start_reads(req, 16);
	loop_step(t.loop, 0);
	disk_goes_on();
	kernel.slow = true;
	start_reads(more, 32);
	loop_step(t.loop, 0);
	ck_assert_uint_eq(completed, 16);
	disk_goes_on();
	while (completed < 48)
		loop_step(t.loop, 10);
	close_aio();
}
END_TEST

START_TEST(more_than_the_kernel_takes)
{
	static struct blk_req req[2000];

	open_aio(MiB(1), 512);
	kernel.eagain = 3;
	start_reads(req, 2000);
	for (int i = 0; i < 2000 && completed < 2000; i++)
		loop_step(t.loop, 10);
	ck_assert_uint_eq(completed, 2000);
	ck_assert_uint_eq(kernel.iocbs, 2000);
	close_aio();
}
END_TEST

/* ---- stores that hang, beside one that is well ----------------------------------------------- */

#define HUNG 8u

static struct blk *hung[HUNG];
static char hung_path[HUNG][64];
static struct blk_req hung_req[HUNG][200];

/* @n reads of each; the loop has given the kernel what it gives. */
static void stores_hang(unsigned n)
{
	struct blk *well;

	open_aio(MiB(1), 512);
	well = t.blk;
	kernel.hangs = kernel.dies = true;
	for (unsigned i = 0; i < HUNG; i++) {
		char was[sizeof(path)];

		memcpy(was, path, sizeof(path));
		make_file(MiB(1));
		memcpy(hung_path[i], path, sizeof(path));
		memcpy(path, was, sizeof(path));
		t.blk = hung[i] = bt_open("aio", hung_path[i], 512);
		start_reads(hung_req[i], n);
	}
	t.blk = well;
	for (int i = 0; i < 4; i++)
		loop_step(t.loop, 0);
	kernel.dies = false;
	completed = 0;
}

static void close_all(void)
{
	for (unsigned i = 0; i < HUNG; i++) {
		blk_close(hung[i]);
		unlink(hung_path[i]);
	}
	close_aio();
}

static void stores_wake_up(unsigned n)
{
	completed = 0;
	kernel.hangs = false;
	ck_assert_int_eq((int)syscall(SYS_io_submit, kernel.ctx, kernel.nkept, kernel.kept),
			 (int)kernel.nkept);
	for (int i = 0; i < 20000 && completed < HUNG * n; i++)
		loop_step(t.loop, 10);
	ck_assert_uint_eq(completed, HUNG * n);
	close_all();
}

/* What eight stores have with the kernel, for good, leaves the ninth as much as it needs. */
START_TEST(stores_that_hang_leave_room)
{
	static struct blk_req req[1000];

	stores_hang(200);
	start_reads(req, 1000);
	for (int i = 0; i < 2000 && completed < 1000; i++)
		loop_step(t.loop, 10);
	ck_assert_uint_eq(completed, 1000);
	ck_assert_uint_ge(kernel.nkept, 256); /* who hangs is not starved, as far as one knows */
	stores_wake_up(200);
}
END_TEST

/* The kernel does not take what a store asks for while others hang: no completion will come that
 * it could be tried again at. */
START_TEST(refused_while_others_hang)
{
	static struct blk_req req[4];

	stores_hang(2);
	kernel.eagain = 3;
	start_reads(req, 4);
	for (int i = 0; i < 2000 && completed < 4; i++)
		loop_step(t.loop, 10);
	ck_assert_uint_eq(completed, 4);
	stores_wake_up(2);
}
END_TEST

static bool was_busy;
static void ask(struct loop_msg *m)
{
	(void)m;
	was_busy = loop_busy(t.loop);
}

static bool is_busy(void)
{
	static struct loop_msg msg = { .handle = ask };

	loop_post(t.loop, &msg);
	loop_step(t.loop, 0);
	return was_busy;
}

/* The descriptor by which this process has that file open for the aio store. */
static int descriptor_of(const char *file)
{
	char link[64], to[128];

	for (int fd = 3; fd < 1024; fd++) {
		ssize_t n;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, to, sizeof(to) - 1);
		if (n > 0 && (size_t)n == strlen(file) && !strncmp(to, file, (size_t)n))
			return fd;
	}
	ck_abort_msg("%s is not open", file);
}

static void start_writes(struct blk_req *req, unsigned n)
{
	static uint8_t data[4096] __attribute__((aligned(4096)));

	for (unsigned i = 0; i < n; i++) {
		blk_req_init(&req[i]);
		req[i].op = BLK_WRITE;
		req[i].flags = BLK_F_FROM | (i & 1 ? BLK_F_FUA : 0);
		req[i].offset = i * 4096;
		req[i].len = sizeof(data);
		req[i].done = note;
		ck_assert_int_eq(frags_append(&req[i].data, data, sizeof(data), NULL), 0);
		ck_assert(!bt_submit(&t, &req[i]));
	}
}

/* The kernel would wait before it takes what is asked of a store: its inode is locked, its disk has
 * no tags left, its file system is frozen. Nobody else waits, and when that is over all of it is
 * done. Loop: whether a cache is stacked on it. */
START_TEST(the_kernel_waits_for_one_store)
{
	static struct blk_req rd[40], wr[40], others[40], others_wr[40];
	struct blk *well;

	stores_hang(0);
	kernel.hangs = false;
	well = t.blk;
	kernel.loop = pthread_self();
	kernel.waits = descriptor_of(hung_path[0]);
	t.blk = hung[0];
	t.blk->rewrites = well->rewrites = _i;
	start_reads(rd, 40);
	start_writes(wr, 40);
	for (int i = 0; i < 2000 && !kernel.waiting; i++)
		loop_step(t.loop, 1);
	ck_assert_uint_gt(kernel.waiting, 0);
	ck_assert_uint_eq(completed, 0);
	t.blk = well;
	start_reads(others, 40);
	start_writes(others_wr, 40);
	for (int i = 0; i < 2000 && completed < 80; i++)
		loop_step(t.loop, 10);
	ck_assert_uint_eq(completed, 80);
	ck_assert_uint_gt(kernel.waiting, 0);
	ck_assert(is_busy());
	__atomic_store_n(&kernel.waits, -1, __ATOMIC_RELEASE);
	for (int i = 0; i < 2000 && completed < 160; i++)
		loop_step(t.loop, 10);
	ck_assert_uint_eq(completed, 160);
	for (unsigned i = 0; i < 40; i++) {
		ck_assert_int_eq(rd[i].status | wr[i].status, 0);
		ck_assert_int_eq(others[i].status | others_wr[i].status, 0);
		frags_forget(&wr[i].data);
		frags_forget(&others_wr[i].data);
	}
	ck_assert(!is_busy());
	close_all();
}
END_TEST

/* One that the kernel refuses fails alone, whichever store's is before it in the next batch. */
START_TEST(a_refusal_hits_whom_it_is_about)
{
	static struct blk_req req[8], sync;
	struct blk *well;

	stores_hang(0);
	well = t.blk;
	kernel.hangs = false;
	kernel.bad_fdsyncs = 1;
	blk_req_init(&sync);
	sync.op = BLK_SYNC;
	sync.done = note;
	ck_assert(!bt_submit(&t, &sync));
	t.blk = hung[0];
	start_reads(req, 3);
	for (int i = 0; i < 2000 && completed < 4; i++)
		loop_step(t.loop, 10);
	ck_assert_uint_eq(completed, 4);
	ck_assert_int_eq(sync.status, -EIO);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(req[i].status, 0);
	t.blk = well;
	close_all();
}
END_TEST

/* Which of its flags the kernel does not know is found out: an atomic write that is refused makes
 * no thread of what may go without one. */
START_TEST(atomic_or_nowait)
{
	uint8_t data[4096], back[4096];

	open_aio(MiB(1), 512);
	t.blk->caps |= BLK_CAP_ATOMIC;
	t.blk->atomic_min = t.blk->atomic_max = sizeof(data);
	memset(data, 0x5a, sizeof(data));
	kernel.no_flags = RWF_ATOMIC;
	ck_assert_int_eq(bt_write(&t, 0, sizeof(data), data, BLK_F_FROM | BLK_F_ATOMIC), -EIO);
	ck_assert_uint_eq(kernel.atomics, 0);
	ck_assert_int_eq(bt_read(&t, 0, sizeof(back), back, 0), 0);
	ck_assert(bt_all(back, sizeof(back), 0));
	ck_assert_uint_eq(kernel.nowaits, 1);

	kernel.no_flags = RWF_NOWAIT;
	ck_assert_int_eq(bt_write(&t, 0, sizeof(data), data, BLK_F_FROM | BLK_F_ATOMIC), 0);
	ck_assert_uint_eq(kernel.atomics, 1);
	ck_assert_int_eq(bt_read(&t, 0, sizeof(back), back, 0), 0);
	ck_assert_mem_eq(back, data, sizeof(data));
	ck_assert_uint_eq(kernel.nowaits, 1);
	kernel.no_flags = 0;
	close_aio();
}
END_TEST

/* A loop whose I/O is not over, or not even with the kernel, must not be
 * destroyed: whoever wants to can ask. */
START_TEST(a_loop_with_io_is_busy)
{
	static struct blk_req req[4];

	kernel.no_direct = _i == 1; /* then threads do it: it comes back when the loop next runs */
	open_aio(MiB(1), 512);
	ck_assert(!is_busy());
	kernel.eagain = UINT_MAX;
	start_reads(req, 4);
	ask(NULL);
	ck_assert(was_busy);
	ck_assert(_i == 1 || is_busy());
	ck_assert(_i == 1 || is_busy());
	kernel.eagain = 0;
	for (int i = 0; i < 2000 && completed < 4; i++)
		loop_step(t.loop, 10);
	ck_assert_uint_eq(completed, 4);
	ck_assert(!is_busy());
	close_aio();
}
END_TEST

START_TEST(abort_before_the_kernel_has_it)
{
	static struct blk_req req[2];

	open_aio(MiB(1), 512);
	start_reads(req, 2);
	loop_self_ = t.loop;
	blk_abort(t.blk, &req[1]);
	blk_abort(t.blk, &req[1]); /* twice is harmless */
	loop_self_ = NULL;
	while (completed < 2)
		loop_step(t.loop, 10);
	ck_assert_int_eq(req[0].status, 0);
	ck_assert_int_eq(req[1].status, -ECANCELED);
	ck_assert_uint_eq(kernel.iocbs, 1);
	close_aio();
}
END_TEST

/* A kernel that knows no FDSYNC says so of each of several that it was given at
 * once: none of them failed. */
START_TEST(several_syncs_that_the_kernel_does_not_know)
{
	static struct blk_req req[4];

	kernel.no_fdsync = kernel.no_rwf = true;
	open_aio(MiB(1), 512);
	completed = 0;
	for (unsigned i = 0; i < ARRAY_SIZE(req); i++) {
		blk_req_init(&req[i]);
		req[i].op = BLK_SYNC;
		req[i].done = note;
		ck_assert(!bt_submit(&t, &req[i]));
	}
	while (completed < ARRAY_SIZE(req))
		loop_step(t.loop, 10);
	for (unsigned i = 0; i < ARRAY_SIZE(req); i++)
		ck_assert_int_eq(req[i].status, 0);
	close_aio();
}
END_TEST

/*
 * Without a cache nobody can write again what was written before a failed SYNC: all who asked
 * meanwhile are told, and all who ask later, though the kernel tells one only; until somebody has
 * looked after the store. One call for many.
 */
START_TEST(a_failed_sync_is_told_to_all)
{
	static struct blk_req req[6];
	uint8_t b[512] = { 0 };

	open_aio(MiB(1), 512);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	for (unsigned k = 0; k < 2; k++) {
		completed = 0;
		kernel.fdsyncs = 0;
		kernel.bad_fdsyncs = k;
		for (unsigned i = 0; i < ARRAY_SIZE(req); i++) {
			blk_req_init(&req[i]);
			req[i].op = BLK_SYNC;
			req[i].done = note;
			ck_assert(!bt_submit(&t, &req[i]));
		}
		while (completed < ARRAY_SIZE(req))
			loop_step(t.loop, 10);
		ck_assert_uint_eq(kernel.fdsyncs, k ? 1 : 2);
		for (unsigned i = 0; i < ARRAY_SIZE(req); i++)
			ck_assert_int_eq(req[i].status, k ? -EIO : 0);
	}
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), -EIO);
	ck_assert_int_eq(bt_write(&t, 0, 512, b, BLK_F_FUA), 0);
	ck_assert_int_eq(blk_refresh(t.blk), 0);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	close_aio();
}
END_TEST

/*
 * C6: the kernel tells a FUA write, or a ZERO with FUA, that data is lost, which nobody knows yet
 * when a SYNC comes: that must not end well. Loop: whether a cache is stacked on it.
 */
START_TEST(what_fua_hears_of_fails_the_sync)
{
	static struct blk_req fua, sync;
	const bool rewrites = _i & 1, zero = _i & 2;
	uint8_t b[512] = { 1 };

	kernel.no_direct = true;
	open_aio(MiB(1), 512);
	t.blk->rewrites = rewrites;
	ck_assert_int_eq(bt_write(&t, 4096, 512, b, 0), 0);
	kernel.lost = 1;
	completed = 0;
	blk_req_init(&fua);
	fua.op = zero ? BLK_ZERO : BLK_WRITE;
	fua.flags = BLK_F_FUA | (zero ? 0 : BLK_F_FROM);
	fua.len = zero ? 4096 : 512;
	fua.done = note;
	if (!zero)
		ck_assert_int_eq(frags_append(&fua.data, b, 512, NULL), 0);
	ck_assert(!bt_submit(&t, &fua));
	while (!kernel.syncs) /* it has been told */
		loop_step(t.loop, 1);
	blk_req_init(&sync);
	sync.op = BLK_SYNC;
	sync.done = note;
	ck_assert(!bt_submit(&t, &sync));
	while (completed < 2)
		loop_step(t.loop, 10);
	ck_assert_int_eq(fua.status, -EIO);
	ck_assert_int_eq(sync.status, -EIO);
	/* who writes it again may be told that it is there; else nobody */
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), rewrites ? 0 : -EIO);
	ck_assert_int_eq(blk_refresh(t.blk), 0);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	frags_forget(&fua.data);
	close_aio();
}
END_TEST

/* C6: a SYNC whose own fdatasync() ended well waits for an RWF_DSYNC write that may have been
 * told of a failure before; that it fails is told to the SYNC, too. A pipe without a reader
 * fails. */
START_TEST(what_rwf_dsync_hears_of_fails_the_sync)
{
	static struct blk_req fua, sync;
	static uint8_t b[4096] __attribute__((aligned(4096)));
	int p[2];

	signal(SIGPIPE, SIG_IGN);
	open_aio(MiB(1), 512);
	t.blk->rewrites = true;
	kernel.hold_rwf = true;
	completed = 0;
	blk_req_init(&fua);
	fua.op = BLK_WRITE;
	fua.flags = BLK_F_FUA | BLK_F_FROM;
	fua.len = sizeof(b);
	fua.done = note;
	ck_assert_int_eq(frags_append(&fua.data, b, sizeof(b), NULL), 0);
	ck_assert(!bt_submit(&t, &fua));
	while (!kernel.held)
		loop_step(t.loop, 1);
	blk_req_init(&sync);
	sync.op = BLK_SYNC;
	sync.done = note;
	ck_assert(!bt_submit(&t, &sync));
	for (int i = 0; i < 100 && completed == 0; i++)
		loop_step(t.loop, 2);
	ck_assert_uint_eq(kernel.fdsyncs, 1);
	ck_assert_uint_eq(completed, 0);
	ck_assert_int_eq(pipe(p), 0);
	close(p[0]);
	kernel.held->aio_fildes = (unsigned)p[1];
	ck_assert_int_eq((int)syscall(SYS_io_submit, kernel.held_ctx, 1L, &kernel.held), 1);
	while (completed < 2)
		loop_step(t.loop, 10);
	close(p[1]);
	ck_assert_int_eq(fua.status, -EIO);
	ck_assert_int_eq(sync.status, -EIO);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	frags_forget(&fua.data);
	close_aio();
}
END_TEST

/* The longest file that there can be: nothing can be punched behind its end. */
START_TEST(discard_at_the_largest_size)
{
	uint64_t from = MiB(1), to = (1ull << 63) - 4096;
	uint8_t b[4096], z[4096] = { 0 };
	int fd;

	make_file(from);
	fd = open(path, O_RDWR);
	ck_assert_int_ge(fd, 0);
	while (to - from > 4096) {
		uint64_t middle = (from + (to - from) / 2) & ~4095ull;

		*(ftruncate(fd, (off_t)middle) ? &to : &from) = middle;
	}
	ck_assert_int_eq(ftruncate(fd, (off_t)from), 0);
	close(fd);
	bt_init(&t, bt_open("aio", path, 512), 1);
	ck_assert(t.blk->caps & BLK_CAP_DISCARD);
	memset(b, 0x55, sizeof(b));
	ck_assert_int_eq(bt_write(&t, from - 4096, 4096, b, 0), 0);
	ck_assert_int_eq(bt_op(&t, BLK_DISCARD, from - 4096, 4096, 0), 0);
	ck_assert_int_eq(bt_read(&t, from - 4096, 4096, b, 0), 0);
	ck_assert_mem_eq(b, z, 4096);
	close_aio();
}
END_TEST

/* A loop that goes takes its context with it; the next one gets its own. */
START_TEST(loops_come_and_go)
{
	uint8_t b[512];

	open_aio(MiB(1), 512);
	for (int i = 0; i < 20; i++) {
		struct loop_conf conf = { .name = "next", .node = 0, .cpu = -1 };

		ck_assert_int_eq(bt_read(&t, 0, 512, b, 0), 0);
		loop_destroy(t.loop);
		t.loop = loop_create(&conf);
	}
	close_aio();
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

START_TEST(truncated_behind_our_back)
{
	uint8_t b[4096];

	open_aio(MiB(1), 512);
	ck_assert_int_eq(truncate(path, 4096), 0);
	ck_assert_int_eq(bt_read(&t, 0, 4096, b, 0), 0);
	ck_assert_int_eq(bt_read(&t, 65536, 4096, b, 0), -EIO);
	close_aio();
}
END_TEST

START_TEST(refused)
{
	struct blk_open_args args = { 0 };
	char err[200];

	make_file(511);
	ck_assert_ptr_null(try_open(&args, err, sizeof(err)));
	ck_assert_ptr_nonnull(strstr(err, "smaller than one block"));
	unlink(path);
	ck_assert_ptr_null(try_open(&args, err, sizeof(err)));
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_ptr_nonnull(strstr(err, path));
	snprintf(path, sizeof(path), "/tmp");
	args.readonly = true;
	ck_assert_ptr_null(try_open(&args, err, sizeof(err)));
	snprintf(path, sizeof(path), "/dev/zero");
	ck_assert_ptr_null(try_open(&args, err, sizeof(err)));
	ck_assert_ptr_nonnull(strstr(err, "neither"));
	path[0] = '\0';
	ck_assert_ptr_null(try_open(&args, err, sizeof(err)));
	blk_bounce_fini();
}
END_TEST

START_TEST(one_writer)
{
	struct blk_open_args args = { 0 };
	struct blk *other;
	char err[200];

	open_aio(MiB(1), 512);
	ck_assert_ptr_null(try_open(&args, err, sizeof(err)));
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_ptr_nonnull(strstr(err, "in use"));
	args.readonly = true;
	other = try_open(&args, err, sizeof(err));
	ck_assert_ptr_nonnull(other);
	ck_assert(other->caps & BLK_CAP_READONLY);
	blk_close(other);
	blk_close(t.blk);
	args.readonly = false;
	t.blk = try_open(&args, err, sizeof(err));
	ck_assert_msg(t.blk != NULL, "%s", err);
	close_aio();
}
END_TEST

/* ---- the rest -------------------------------------------------------------------------------- */

START_TEST(grows)
{
	uint8_t b[512];

	open_aio(MiB(1), 512);
	ck_assert_int_eq(bt_read(&t, MiB(1), 512, b, 0), -ERANGE);
	ck_assert_int_eq(truncate(path, MiB(3) + 1), 0);
	ck_assert_int_eq(blk_refresh(t.blk), 0);
	ck_assert_uint_eq(t.blk->size, MiB(3));
	ck_assert_int_eq(bt_read(&t, MiB(1), 512, b, 0), 0);
	close_aio();
}
END_TEST

START_TEST(extents)
{
	enum blk_extent what;
	uint8_t b[65536];
	uint64_t run;

	open_aio(MiB(4), 512);
	memset(b, 1, sizeof(b));
	ck_assert_int_eq(bt_write(&t, MiB(1), sizeof(b), b, BLK_F_FUA), 0);
	ck_assert_int_eq(blk_extent(t.blk, 0, MiB(4), &what, &run), 0);
	ck_assert_int_eq(what, BLK_EXTENT_DEALLOCATED);
	ck_assert_uint_eq(run, MiB(1));
	ck_assert_int_eq(blk_extent(t.blk, MiB(1), MiB(3), &what, &run), 0);
	ck_assert_int_eq(what, BLK_EXTENT_MAPPED);
	ck_assert_uint_eq(run, 65536);
	ck_assert_int_eq(blk_extent(t.blk, MiB(2), MiB(2), &what, &run), 0);
	ck_assert_int_eq(what, BLK_EXTENT_DEALLOCATED);
	ck_assert_uint_eq(run, MiB(2));
	ck_assert_int_eq(bt_op(&t, BLK_DISCARD, MiB(1), 65536, 0), 0);
	ck_assert_int_eq(blk_extent(t.blk, 0, MiB(4), &what, &run), 0);
	ck_assert_int_eq(what, BLK_EXTENT_DEALLOCATED);
	ck_assert_uint_eq(run, MiB(4));
	close_aio();
}
END_TEST

START_TEST(sync_flag)
{
	struct blk_open_args args = { .sync = true };
	uint8_t b[512] = { 3 };
	char err[200];
	struct blk *blk;

	make_file(MiB(1));
	blk = try_open(&args, err, sizeof(err));
	ck_assert_msg(blk != NULL, "%s", err);
	ck_assert(!(blk->caps & BLK_CAP_VOLATILE));
	bt_init(&t, blk, 1);
	ck_assert_int_eq(bt_write(&t, 0, 512, b, BLK_F_FUA), 0);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_uint_eq(kernel.rwf + kernel.fdsyncs, 0); /* every write is on the medium */
	close_aio();
}
END_TEST

START_TEST(identity_is_the_file)
{
	struct blk_open_args args = { .readonly = true };
	char err[200], link[80];
	struct blk *a, *b;

	make_file(MiB(1));
	a = try_open(&args, err, sizeof(err));
	snprintf(link, sizeof(link), "%s.link", path);
	ck_assert_int_eq(symlink(path, link), 0);
	args.path = link;
	args.err = err;
	b = blk_open("rdwr", &args);
	ck_assert(a && b);
	ck_assert_uint_eq(a->identity, b->identity);
	ck_assert_str_eq(b->path, link);
	blk_close(a);
	blk_close(b);
	unlink(link);
	blk_bounce_fini();
}
END_TEST

/* ---- compare-and-write, made up by the choke point ------------------------------------------- */

#define COUNTERS 3
#define CAWS 24

struct adder {
	struct blk_req req;
	uint64_t seen;
	unsigned todo, slot;
	enum { ADD_READ, ADD_PREPARE, ADD_CAW } at;
};
static struct adder adder[CAWS];
static unsigned adders_left, lost_races;

static void add_go(struct adder *a);

static void add_next(struct blk_req *req)
{
	struct adder *a = container_of(req, struct adder, req);
	uint8_t sector[512];

	switch (a->at) {
	case ADD_READ:
		ck_assert_int_eq(req->status, 0);
		frags_copy_out(&req->data, 0, sector, 512);
		a->seen = get_be64(sector);
		blk_req_release(req);
		a->at = ADD_PREPARE;
		break;
	case ADD_PREPARE:
		ck_assert_int_eq(req->status, 0);
		memset(sector, 0, sizeof(sector));
		put_be64(sector, a->seen);
		frags_copy_in(&req->data, 0, sector, 512);
		put_be64(sector, a->seen + 1);
		frags_copy_in(&req->data, 512, sector, 512);
		a->at = ADD_CAW;
		break;
	case ADD_CAW:
		if (req->status == 0) {
			a->todo--;
		} else {
			ck_assert_int_eq(req->status, -EILSEQ);
			lost_races++;
		}
		ck_assert_uint_eq(req->data.n, 0);
		a->at = ADD_READ;
		if (a->todo == 0) {
			adders_left--;
			return;
		}
		break;
	}
	add_go(a);
}

static void add_go(struct adder *a)
{
	struct loop *before;
	bool now;

	a->req.op = a->at == ADD_READ ? BLK_READ : BLK_COMPARE_AND_WRITE;
	a->req.offset = 4096 * a->slot;
	a->req.len = 512;
	a->req.done = add_next;
	if (a->at != ADD_CAW)
		a->req.flags = 0;
	before = loop_self_; /* also called from the loop itself */
	loop_self_ = t.loop;
	now = a->at == ADD_PREPARE ? blk_write_prepare(t.blk, &a->req) : blk_submit(t.blk, &a->req);
	loop_self_ = before;
	if (now)
		add_next(&a->req);
}

/* Many increments by compare-and-write race: none may be lost. */
START_TEST(compare_and_write_is_atomic)
{
	uint64_t sum = 0, want = 0;
	uint8_t sector[512];

	kernel.no_direct = _i;
	open_aio(MiB(1), 512);
	lost_races = 0;
	adders_left = CAWS;
	for (unsigned i = 0; i < CAWS; i++) {
		adder[i] = (struct adder){ .todo = 20, .slot = i % COUNTERS };
		blk_req_init(&adder[i].req);
		want += adder[i].todo;
		add_go(&adder[i]);
	}
	while (adders_left)
		loop_step(t.loop, 100);
	for (unsigned i = 0; i < COUNTERS; i++) {
		ck_assert_int_eq(bt_read(&t, 4096 * i, 512, sector, 0), 0);
		sum += get_be64(sector);
	}
	ck_assert_uint_eq(sum, want);
	ck_assert_uint_gt(lost_races, 0);
	for (unsigned i = 0; i < CAWS; i++)
		blk_req_fini(&adder[i].req);
	close_aio();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("aio");
	TCase *tc = tcase_create("aio");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, model, 0, 6);
	tcase_add_test(tc, contexts_come_late);
	tcase_add_test(tc, data_is_in_the_file);
	tcase_add_test(tc, misaligned_memory);
	tcase_add_test(tc, one_system_call_per_iteration);
	tcase_add_test(tc, an_idle_disk_begins_at_once);
	tcase_add_test(tc, completions_in_small_portions);
	tcase_add_test(tc, completions_of_a_busy_disk_at_once);
	tcase_add_test(tc, more_than_the_kernel_takes);
	tcase_add_test(tc, stores_that_hang_leave_room);
	tcase_add_test(tc, refused_while_others_hang);
	tcase_add_loop_test(tc, the_kernel_waits_for_one_store, 0, 2);
	tcase_add_test(tc, a_refusal_hits_whom_it_is_about);
	tcase_add_test(tc, atomic_or_nowait);
	tcase_add_loop_test(tc, a_loop_with_io_is_busy, 0, 2);
	tcase_add_test(tc, abort_before_the_kernel_has_it);
	tcase_add_test(tc, several_syncs_that_the_kernel_does_not_know);
	tcase_add_test(tc, a_failed_sync_is_told_to_all);
	tcase_add_loop_test(tc, what_fua_hears_of_fails_the_sync, 0, 4);
	tcase_add_test(tc, what_rwf_dsync_hears_of_fails_the_sync);
	tcase_add_test(tc, discard_at_the_largest_size);
	tcase_add_test(tc, loops_come_and_go);
	tcase_add_test(tc, truncated_behind_our_back);
	tcase_add_test(tc, refused);
	tcase_add_test(tc, one_writer);
	tcase_add_test(tc, grows);
	tcase_add_test(tc, extents);
	tcase_add_test(tc, sync_flag);
	tcase_add_test(tc, identity_is_the_file);
	tcase_add_loop_test(tc, compare_and_write_is_atomic, 0, 2);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
