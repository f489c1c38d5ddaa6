/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The process is killed, again and again, at any instruction: SIGKILL amid writes, COMPARE AND
 * WRITE, UNMAP, SYNC, write-back and changes of size. Each process goes on with the arenas of the
 * one before, looks at all sectors, and works until it is killed. What is acknowledged, and what is
 * begun, stands in memory that they share; and so does the store.
 *
 * A sector must show what was acknowledged last or something newer that was begun; no sector is
 * torn; a COMPARE AND WRITE shows as a whole or not at all; what was unmapped stays away. At the
 * end all is written back, and the store has it.
 *
 * TGT_KILLS=N sets how many kills; TGT_KILL_SEED the first seed.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cache/engine/io_impl.h"
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "events/log.h"
#include "tests/support/blktest.h"
#include "tests/support/memdisk.h"
#include "tests/support/stamped.h"
#include "tests/support/unit.h"

#define SECTORS STAMPED_MAX /* twice what the cache holds at its smallest */
#define SLOTS 8
#define KILLS 25
#define MOST 64u /* sectors of one request */

/* What outlives the processes. */
static struct shared {
	struct stamped stamped;
	_Atomic uint64_t done, redone, dirty;
	_Atomic bool at_work;
	_Atomic int fd[TOPO_MAX_NODES];
	char fail[300];
	uint8_t store[SECTORS * 512];
} * s;

static struct topology topo;
static struct loop *loop;
static uint64_t rng;
static struct cache *cache;
static struct blk *blk;
static struct memdisk *disk;
static uint8_t *disk_own; /* its own memory, which it frees */

static void fails(const char *fmt, ...) printf_like(1, 2) __attribute__((noreturn));
static void fails(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s->fail, sizeof(s->fail), fmt, ap);
	va_end(ap);
	_exit(1);
}

static uint64_t rnd(uint64_t n)
{
	return bt_random(&rng) % n;
}

/* ---- requests -------------------------------------------------------------------------------- */

struct slot {
	struct blk_req req;
	uint32_t first, n;
	uint64_t gen;
	bool busy, writes;
};
static struct slot slots[SLOTS];
static bool owned[SECTORS];

static void let_go(struct slot *t)
{
	for (uint32_t i = t->first; t->writes && i < t->first + t->n; i++)
		owned[i] = false;
	t->busy = t->writes = false;
}

static void finish(struct slot *t)
{
	struct blk_req *req = &t->req;
	uint8_t buf[512];

	if (req->status && req->status != -EILSEQ)
		fails("a request fails: %s", strerror(-req->status));
	if (req->status == -EILSEQ)
		fails("COMPARE AND WRITE of %u+%u miscompares at %llu", t->first, t->n,
		      (unsigned long long)req->miscompare);
	for (uint32_t i = 0; req->op == BLK_READ && i < t->n; i++) {
		frags_copy_out(&req->data, (uint64_t)i * 512, buf, 512);
		/* Who writes there meanwhile may have been acknowledged since. */
		if (!owned[t->first + i] && stamped_shown(buf, t->first + i) == UINT64_MAX)
			fails("read: sector %u is torn", t->first + i);
	}
	if (t->writes)
		stamped_end(&s->stamped, t->gen, t->first, t->n);
	s->done++;
	blk_req_release(req);
	let_go(t);
}

static void done(struct blk_req *req)
{
	finish(container_of(req, struct slot, req));
}

static bool own(struct slot *t)
{
	for (uint32_t i = t->first; i < t->first + t->n; i++)
		if (owned[i])
			return false;
	for (uint32_t i = t->first; i < t->first + t->n; i++)
		owned[i] = true;
	t->writes = true;
	t->gen = ++s->stamped.gen;
	return true;
}

static void begins(const struct slot *t)
{
	const bool zeros = t->req.op == BLK_ZERO || t->req.op == BLK_DISCARD;

	stamped_begin(&s->stamped, t->gen, t->first, t->n, zeros,
		      t->req.op == BLK_COMPARE_AND_WRITE);
}

static void fill_in(struct slot *t)
{
	const bool caw = t->req.op == BLK_COMPARE_AND_WRITE;
	uint64_t w[64];

	for (uint32_t i = 0; i < t->n; i++) {
		stamped_fill(w, t->first + i, stamped_known(&s->stamped, t->first + i));
		if (caw)
			frags_copy_in(&t->req.data, (uint64_t)i * 512, w, 512);
		stamped_fill(w, t->first + i, t->gen);
		frags_copy_in(&t->req.data, (uint64_t)(i + (caw ? t->n : 0)) * 512, w, 512);
	}
	begins(t);
}

static void prepared(struct blk_req *req)
{
	struct slot *t = container_of(req, struct slot, req);

	if (req->status)
		fails("a request is not prepared: %s", strerror(-req->status));
	fill_in(t);
	req->done = done;
	if (blk_submit(blk, req))
		finish(t);
}

static bool at_once(struct slot *t)
{
	uint64_t w[8][64];

	if (t->n > ARRAY_SIZE(w))
		return false;
	for (uint32_t i = 0; i < t->n; i++)
		stamped_fill(w[i], t->first + i, t->gen);
	begins(t);
	return blk_write_fast(blk, &t->req, (const uint8_t *)w);
}

static void start(struct slot *t)
{
	struct blk_req *req = &t->req;
	const uint64_t what = rnd(100);

	t->busy = true;
	t->n = (uint32_t)(1 + rnd(rnd(4) ? 8 : MOST));
	t->first = (uint32_t)rnd(rnd(2) ? 256 : SECTORS - t->n);
	if (rnd(3) == 0) {
		t->first &= ~7u;
		t->n = MIN(ALIGN_UP(t->n, 8u), SECTORS - t->first);
	}
	req->flags = 0;
	req->op = what < 60 ? BLK_WRITE :
		  what < 75 ? BLK_COMPARE_AND_WRITE :
		  what < 90 ? BLK_READ :
		  what < 95 ? (rnd(2) ? BLK_ZERO : BLK_DISCARD) :
			      BLK_SYNC;
	req->offset = (uint64_t)t->first * 512;
	req->len = (uint64_t)t->n * 512;
	req->done = done;
	if (req->op == BLK_READ || req->op == BLK_SYNC) {
		if (blk_submit(blk, req))
			finish(t);
		return;
	}
	if (!own(t)) {
		t->busy = false;
		return;
	}
	if (req->op == BLK_ZERO || req->op == BLK_DISCARD) {
		begins(t);
		if (blk_submit(blk, req))
			finish(t);
		return;
	}
	if (req->op == BLK_WRITE && rnd(2) && at_once(t)) {
		finish(t);
		return;
	}
	req->done = prepared;
	if (blk_write_prepare(blk, req))
		prepared(req);
}

/* ---- a process ------------------------------------------------------------------------------- */

/* A store in memory was killed while it zeroed a sector (stamped_allowed()). A real one's write
 * would have ended; here it is begun anew, else the mixture would stay, and nobody knows that. */
static void zero_again(uint64_t *shows)
{
	struct bt t = { .loop = loop, .blk = blk, .rng = 1 };

	for (uint64_t i = 0; i < SECTORS; i++) {
		if (shows[i] != UINT64_MAX)
			continue;
		if (bt_op(&t, BLK_ZERO, i * 512, 512, 0))
			fails("a sector cannot be zeroed");
		shows[i] = 0;
	}
}

/* All that is there is what it may be; from now on it is known. */
static void look_at_all(const uint8_t *data, const char *where)
{
	static uint64_t shows[SECTORS];
	char why[200];

	if (!stamped_check(&s->stamped, data, shows, why, sizeof(why)))
		fails("%s: %s", where, why);
	zero_again(shows);
	stamped_settle(&s->stamped, shows);
}

static const char *const confs[] = { "size=1m", "size=1m,block=16k", "size=8m,block=64k",
				     "size=2m" };

static void open_cache(unsigned shape)
{
	const unsigned nodes = shape == 3 ? 2 : 1;
	struct loop_conf lc = { .name = "test", .node = 0, .cpu = -1 };
	struct cache_conf conf = { .topo = &topo };
	struct cache_found found;
	int fd[TOPO_MAX_NODES];
	char err[200] = "";

	if (topology_simulate(&topo, nodes) || cache_parse(&conf, confs[shape], err, sizeof(err)))
		fails("no topology, or %s", err);
	loop = loop_create(&lc);
	for (unsigned i = 0; i < TOPO_MAX_NODES; i++)
		fd[i] = s->fd[i];
	conf.arena_fd = fd;
	conf.found = &found;
	cache = cache_create(&conf);
	if (!cache)
		fails("no cache: %s", found.why);
	if (found.given && found.damaged)
		fails("%llu things are damaged", (unsigned long long)found.damaged);
	s->redone += found.redone;
	s->dirty += found.dirty_bytes;
	for (unsigned i = 0; i < nodes; i++)
		s->fd[i] = cache_arena_fd(cache, i);
	disk = memdisk_create((uint64_t)SECTORS * 512, 512, "killed");
	if (!disk)
		fails("no store");
	disk_own = disk->data;
	disk->data = s->store;
	disk->now_percent = 50;
	disk->delay_ns = 300000;
	memdisk_seed(bt_random(&rng));
	blk = cache_open(cache, &disk->blk, false);
	if (!blk)
		fails("the store cannot be opened");
}

static void read_all(uint8_t *to)
{
	struct bt t = { .loop = loop, .blk = blk, .rng = 1 };

	for (uint64_t at = 0; at < (uint64_t)SECTORS * 512; at += KiB(64))
		if (bt_read(&t, at, KiB(64), to + at, 0))
			fails("reading fails");
}

static void other_size(void)
{
	struct cache_info i;
	char text[32], err[300];

	cache_get_info(cache, &i);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)(MiB(1) + rnd(MiB(6))));
	if (cache_update(cache, "size", text, err, sizeof(err)) && !strstr(err, "too small") &&
	    !strstr(err, "at most"))
		fails("another size: %s", err);
}

/* Until it is killed; with @last until all is in the store. */
static void process(unsigned shape, uint64_t seed, bool last)
{
	static uint8_t all[SECTORS * 512];
	struct bt t;

	rng = seed;
	open_cache(shape);
	read_all(all);
	look_at_all(all, "after a kill");
	if (last) {
		t = (struct bt){ .loop = loop, .blk = blk, .rng = 1 };
		if (bt_op(&t, BLK_SYNC, 0, 0, 0))
			fails("SYNC fails");
		look_at_all(s->store, "in the store");
		disk->data = disk_own;
		blk_close(blk);
		cache_destroy(cache); /* (ThreadSanitizer wants all threads joined) */
		_exit(0);
	}
	for (unsigned i = 0; i < SLOTS; i++)
		blk_req_init(&slots[i].req);
	s->at_work = true;
	for (;;) {
		loop_self_ = loop;
		for (unsigned i = 0; i < SLOTS; i++)
			if (!slots[i].busy)
				start(&slots[i]);
		loop_self_ = NULL;
		loop_step(loop, 0);
		if (rnd(3000) == 0)
			other_size();
	}
}

/* ---- kills ----------------------------------------------------------------------------------- */

/* The arenas of process @pid, which the next one gets. */
static void take_arenas(pid_t pid, int keep[TOPO_MAX_NODES])
{
	char path[64];

	for (unsigned i = 0; i < TOPO_MAX_NODES; i++) {
		if (s->fd[i] < 0)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, s->fd[i]);
		const int fd = open(path, O_RDWR | O_CLOEXEC);

		ck_assert_msg(fd >= 0, "%s: %s; %s", path, strerror(errno), s->fail);
		if (keep[i] >= 0)
			close(keep[i]);
		keep[i] = fd;
	}
}

static pid_t spawn(unsigned shape, uint64_t seed, bool last, const int keep[TOPO_MAX_NODES])
{
	pid_t pid;

	s->at_work = false;
	for (unsigned i = 0; i < TOPO_MAX_NODES; i++)
		s->fd[i] = keep[i];
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		process(shape, seed, last);
		_exit(0);
	}
	return pid;
}

static void wait_at_work(pid_t pid)
{
	const uint64_t end = clock_now_ns() + 100 * NSEC_PER_SEC;
	int status;

	while (!s->at_work) {
		ck_assert_msg(waitpid(pid, &status, WNOHANG) == 0, "%s (status %x)", s->fail,
			      status);
		ck_assert_msg(clock_now_ns() < end, "a process does not begin");
		usleep(200);
	}
}

START_TEST(killed_again_and_again)
{
	const char *many = getenv("TGT_KILLS"), *from = getenv("TGT_KILL_SEED");
	const unsigned kills = many ? (unsigned)atoi(many) : KILLS;
	uint64_t state = (from ? strtoull(from, NULL, 0) : 1) * 1000 + (uint64_t)_i, before;
	int keep[TOPO_MAX_NODES], status;
	pid_t pid;

	log_set_level(LOG_LVL_ERROR);
	memset(keep, 0xff, sizeof(keep));
	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert(s != MAP_FAILED);
	s->stamped.sectors = SECTORS;
	for (unsigned k = 0; k < kills; k++) {
		pid = spawn((unsigned)_i, bt_random(&state), false, keep);
		wait_at_work(pid);
		take_arenas(pid, keep);
		before = s->done;
		/* Soon, or after some work. */
		const uint64_t work = bt_random(&state) % 2000;
		for (unsigned i = 0; i < 2000 && s->done - before < work; i++)
			usleep(50 + bt_random(&state) % 100);
		ck_assert_msg(waitpid(pid, &status, WNOHANG) == 0, "kill %u: %s", k, s->fail);
		kill(pid, SIGKILL);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_msg(WIFSIGNALED(status), "kill %u: %s", k, s->fail);
	}
	pid = spawn((unsigned)_i, 1, true, keep);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "at the end: %s", s->fail);
	printf("# %s: %u kills, %llu requests acknowledged, %llu KiB found dirty, %llu changes "
	       "finished\n",
	       confs[_i], kills, (unsigned long long)s->done, (unsigned long long)(s->dirty >> 10),
	       (unsigned long long)s->redone);
	ck_assert_uint_gt(s->done, kills);
	ck_assert_uint_gt(s->dirty, 0);
}
END_TEST

UNIT_TABLE("mt_attach", 100 * unit_longer("TGT_KILLS", KILLS),
	   { killed_again_and_again, ARRAY_SIZE(confs) })
