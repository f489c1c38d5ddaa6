/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A process that may die behind any instruction (restart.md, "Proof"; issue 17, show 1). A child
 * works on a cache of 64 blocks, and is traced step by step. Behind each instruction that has
 * changed the arena or the store, both are copied, and a cache goes on with the copy. All sectors
 * must show what was acknowledged, or what was begun; none is torn, nor a COMPARE AND WRITE; what
 * was unmapped stays away. Then all is written back, and the store must have the same: also one
 * that loses meanwhile what no SYNC has made stable, unless the cache says that it is in doubt.
 *
 * A string instruction is a step for each byte; of such states one in 61 is looked at. The same
 * state is looked at once. Where the same instructions run again, on blocks in another state, they
 * run without steps. TGT_STEPS=long has steps there, too, and TGT_STEPS=all looks at each state.
 * (Changes of size take millions of steps: test_attach.c looks between their parts.)
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cache/engine/io_impl.h"
#include "cache/engine/layout.h"
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "events/log.h"
#include "tests/support/blktest.h"
#include "tests/support/memdisk.h"
#include "tests/support/stamped.h"
#include "tests/support/unit.h"

#define BLOCKS 64u
#define SECTORS 1024u /* twice the cache */
#define SIZE (SECTORS * 512u)

static bool thorough; /* all instructions of all that is done, TGT_STEPS */

static struct shared {
	struct stamped stamped;
	_Atomic bool stepping, over;
	_Atomic int fd;
	char what[64], fail[300];
	uint8_t store[SIZE], stable[SIZE]; /* stable: what is left when a SYNC fails */
} * s;

static struct topology topo;
static struct loop *workers[1];
static struct bt t;
static struct cache *cache;
static struct memdisk *disk;

/* ---- the child ------------------------------------------------------------------------------- */

/* @what begins with a '+': only when we are thorough. */
static void begin_steps(const char *what)
{
	snprintf(s->what, sizeof(s->what), "%s", what);
	if (*what == '+' && !thorough)
		return;
	s->stepping = true;
	raise(SIGSTOP);
}

static void end_steps(void)
{
	s->stepping = false;
}

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	snprintf(s->fail, sizeof(s->fail), "%s: %s", s->what, what);
	_exit(1);
}

static uint8_t data[2 * SIZE];

static void stamp(uint8_t *to, uint32_t first, uint32_t n, uint64_t gen)
{
	for (uint32_t i = 0; i < n; i++)
		stamped_fill((uint64_t *)(void *)(to + (size_t)i * 512), first + i, gen);
}

static void write_some(const char *what, uint32_t first, uint32_t n, bool fast)
{
	const uint64_t gen = ++s->stamped.gen;
	struct blk_req req;
	int err = 0;

	stamp(data, first, n, gen);
	stamped_begin(&s->stamped, gen, first, n, false, false);
	if (!fast) {
		begin_steps(what);
		err = bt_write(&t, (uint64_t)first * 512, (uint64_t)n * 512, data, BLK_F_FROM);
	} else {
		blk_req_init(&req);
		req.op = BLK_WRITE;
		req.offset = (uint64_t)first * 512;
		req.len = (uint64_t)n * 512;
		begin_steps(what);
		loop_self_ = t.loop;
		must(blk_write_fast(t.blk, &req, data), "is not written in place");
		loop_self_ = NULL;
	}
	stamped_end(&s->stamped, gen, first, n);
	end_steps();
	must(!err, "fails");
}

static void compare_and_write(const char *what, uint32_t first, uint32_t n)
{
	static uint8_t with[SIZE];
	const uint64_t gen = ++s->stamped.gen;
	uint64_t differs;
	int err;

	for (uint32_t i = 0; i < n; i++)
		stamp(data + (size_t)i * 512, first + i, 1, stamped_known(&s->stamped, first + i));
	stamp(with, first, n, gen);
	stamped_begin(&s->stamped, gen, first, n, false, true);
	begin_steps(what);
	err = bt_caw(&t, (uint64_t)first * 512, (uint64_t)n * 512, data, with, &differs,
		     BLK_F_FROM);
	stamped_end(&s->stamped, gen, first, n);
	end_steps();
	must(!err, "fails");
}

static void zero_some(const char *what, enum blk_op op, uint32_t first, uint32_t n)
{
	const uint64_t gen = ++s->stamped.gen;
	int err;

	stamped_begin(&s->stamped, gen, first, n, true, false);
	begin_steps(what);
	err = bt_op(&t, op, (uint64_t)first * 512, (uint64_t)n * 512, 0);
	stamped_end(&s->stamped, gen, first, n);
	end_steps();
	must(!err, "fails");
}

static void read_some(const char *what, uint32_t first, uint32_t n)
{
	begin_steps(what);
	must(!bt_read(&t, (uint64_t)first * 512, (uint64_t)n * 512, data, 0), "fails");
	end_steps();
}

static void sync_all(const char *what)
{
	begin_steps(what);
	must(!bt_op(&t, BLK_SYNC, 0, 0, 0), "fails");
	end_steps();
}

/* What the store has not made stable is lost, and it says so once (I7). */
static void sync_fails(const char *what)
{
	atomic_store(&disk->fail_syncs, 1);
	begin_steps(what);
	must(bt_op(&t, BLK_SYNC, 0, 0, 0) != 0, "does not fail");
	end_steps();
}

static bool over;
static void is_over(struct blk_req *req)
{
	over = true;
}

/* Somebody has the block on a wire: what is written to it goes into another one. */
static void while_referenced(const char *what, uint32_t first, uint32_t n)
{
	struct blk_req req;

	blk_req_init(&req);
	req.op = BLK_READ;
	req.offset = (uint64_t)first / 8 * 4096;
	req.len = 4096;
	must(!bt_run_plain(&t, &req), "no read");
	write_some(what, first, n, false);
	blk_req_release(&req);
	blk_req_fini(&req);
}

/* A write-back is out, and part of it, or all, is overwritten; then it ends. */
static void while_flushing(uint32_t first, uint32_t n, bool fails)
{
	const bool whole = n == 16;
	struct blk_req req;

	write_some("+dirty", 64, 16, false);
	blk_req_init(&req);
	req.op = BLK_SYNC;
	req.done = is_over;
	over = false;
	disk->delay_ns = 60 * NSEC_PER_SEC;
	disk->now_percent = 0;
	if (fails)
		atomic_store(&disk->fail_writes, 1);
	must(!bt_submit(&t, &req), "ends at once");
	for (unsigned i = 0; !disk->inflight; i++) {
		must(i < 1000, "nothing is written back");
		loop_step(t.loop, 0);
	}
	write_some(whole == fails ? "+overwrite while it is flushed" :
				    "overwrite while it is flushed",
		   first, n, false);
	disk->delay_ns = 0;
	disk->now_percent = 100;
	begin_steps(!fails ? "a flush ends, replaced" :
		    whole  ? "+a flush fails, replaced" :
			     "a flush fails, replaced");
	clock_fake_advance(120 * NSEC_PER_SEC);
	for (unsigned i = 0; !over && i < 10000; i++)
		loop_step(t.loop, 0);
	end_steps();
	must(over, "a SYNC does not end");
	blk_req_fini(&req);
}

static void work(void)
{
	write_some("commit", 0, 8, false);
	write_some("commit over two blocks", 12, 8, false);
	write_some("+overwrite", 0, 8, false);
	write_some("merge in place", 2, 1, false);
	write_some("fast, in place", 3, 1, true);
	write_some("fast, in place, all of it", 0, 8, true);
	while_referenced("merge into a fresh block", 1, 2);
	sync_all("flush");
	write_some("+dirty", 32, 24, false);
	sync_fails("a SYNC that fails");
	write_some("+overwrite of what is dirty again", 40, 8, false);
	sync_all("the SYNC after it");
	write_some("+merge in place, clean", 1, 1, false);
	while_referenced("+merge into a fresh block", 14, 1);
	compare_and_write("COMPARE AND WRITE of one block", 1, 4);
	compare_and_write("COMPARE AND WRITE of three blocks", 6, 12);
	sync_all("+flush of what was swapped");
	compare_and_write("+COMPARE AND WRITE of clean blocks", 5, 14);
	while_flushing(66, 2, false);
	while_flushing(64, 16, false);
	while_flushing(66, 2, true);
	while_flushing(64, 16, true);
	zero_some("ZERO of dirty and clean", BLK_ZERO, 4, 20);
	write_some("+dirty", 24, 24, false);
	zero_some("DISCARD of what is dirty", BLK_DISCARD, 28, 16);
	sync_all("+flush of the edges");
	zero_some("DISCARD of what is clean", BLK_DISCARD, 26, 8);
	for (uint32_t at = 128; at < SECTORS - 128; at += 128)
		must(!bt_read(&t, (uint64_t)at * 512, KiB(64), data, 0), "no read");
	read_some("fill and evict", SECTORS - 128, 24);
	write_some("+dirty", 96, 12, false);
	read_some("fill beside what is dirty", 92, 20);
	sync_all("flush at the end");
}

static const struct blk_ops *disk_ops;

/* Copying a store takes many steps, and nothing can be seen between them. */
static bool child_sync(struct blk *blk, struct blk_req *req)
{
	const bool stepping = s->stepping;
	bool rc;

	s->stepping = false;
	rc = disk_ops->sync(blk, req);
	if (stepping) {
		s->stepping = true;
		raise(SIGSTOP);
	}
	return rc;
}

static void child(void)
{
	static struct blk_ops ops;
	struct cache_conf conf = {
		.topo = &topo, .workers = workers, .stepped = true, .size = BLOCKS * 4096
	};

	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(77);
	clock_fake_set(1000 * NSEC_PER_SEC);
	bt_init(&t, NULL, 1);
	workers[0] = t.loop;
	cache = cache_create(&conf);
	must(cache != NULL, "no cache");
	arena_settle(cache->node[0].arena);
	disk = memdisk_create(SIZE, 512, "steps");
	must(disk != NULL, "no store");
	disk->data = s->store; /* the process does not get as far as to free it */
	disk->stable = s->stable;
	disk->now_percent = 100;
	disk->blk.caps |= BLK_CAP_VOLATILE;
	disk_ops = disk->blk.ops;
	ops = *disk_ops;
	ops.sync = child_sync;
	disk->blk.ops = &ops;
	t.blk = cache_open(cache, &disk->blk, false);
	must(t.blk != NULL, "not opened");
	s->fd = cache_arena_fd(cache, 0);
	raise(SIGSTOP);
	work();
	s->over = true;
	_exit(0);
}

/* ---- who traces it --------------------------------------------------------------------------- */

/* What of the arena is compared behind each step: all that anybody uses. */
enum { OF_SUPER, OF_SLOT, OF_REDO, OF_HEADERS, OF_MAPS, OF_DATA, OF_ALL };

static struct {
	int fd;
	uint8_t *map, *last;
	struct {
		size_t at, len;
	} range[OF_ALL];
	uint8_t last_store[SIZE];
	uint64_t steps, changes, looked, same, reps, doubts;
	uint64_t *known; /* hashes of states: a table */
} w;

#define KNOWN (1u << 20)

static bool arena_changed(void)
{
	bool changed = false;

	for (unsigned i = 0; i < OF_ALL; i++)
		if (memcmp(w.map + w.range[i].at, w.last + w.range[i].at, w.range[i].len)) {
			memcpy(w.last + w.range[i].at, w.map + w.range[i].at, w.range[i].len);
			changed = true;
		}
	return changed;
}

/* The store is large, and changes seldom. */
static bool store_changed(void)
{
	if (w.steps % 16 || !memcmp(s->store, w.last_store, SIZE))
		return false;
	memcpy(w.last_store, s->store, SIZE);
	return true;
}

static uint64_t hash_words(uint64_t h, const void *p, size_t len)
{
	const uint8_t *at = p;
	uint64_t v;

	for (size_t i = 0; i < len / 8; i++) {
		memcpy(&v, at + i * 8, sizeof(v)); /* (bytes need not be aligned) */
		h = (h ^ v) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 29;
	}
	return h;
}

static bool seen_before(void)
{
	uint64_t h = hash_words(hash_words(1, s->store, SIZE), s->stable, SIZE);

	for (unsigned i = 0; i < OF_ALL; i++)
		h = hash_words(h, w.map + w.range[i].at, w.range[i].len);
	h = hash_words(h, &s->stamped, sizeof(s->stamped)) | 1;
	for (uint32_t i = (uint32_t)(h >> 20);; i++) {
		uint64_t *k = &w.known[i % KNOWN];

		if (*k == h)
			return true;
		if (!*k) {
			*k = h;
			return false;
		}
	}
}

static int copy_of_arena(void)
{
	int fd = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct stat st;

	ck_assert_int_eq(fstat(w.fd, &st), 0);
	ck_assert_int_eq(ftruncate(fd, st.st_size), 0);
	for (off_t at = 0, end; (at = lseek(w.fd, at, SEEK_DATA)) >= 0; at = end) {
		end = lseek(w.fd, at, SEEK_HOLE);
		ck_assert_int_eq(pwrite(fd, w.map + at, (size_t)(end - at), at), end - at);
	}
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return fd;
}

/* The child is dead, if this is how it was found. @loses: and then the store loses what is not
 * stable, and says so to the first SYNC. What the cache does not have any more is in doubt. */
static void recover(bool loses)
{
	static uint64_t shows[SECTORS], again[SECTORS];
	static uint8_t all[SIZE];
	struct bt u = { .loop = t.loop, .rng = 1 };
	const uint64_t doubts = w.doubts;
	const int fd = copy_of_arena();
	struct cache_found found;
	struct cache_conf conf = {
		.topo = &topo, .workers = workers, .stepped = true, .arena_fd = &fd, .found = &found
	};
	struct cache *c = cache_create(&conf);
	struct memdisk *d = memdisk_create(SIZE, 512, "steps");
	char why[200];

	ck_assert_msg(c != NULL, "%s: %s", s->what, found.why);
	ck_assert_msg(!found.damaged, "%s: %lu things are damaged", s->what,
		      (unsigned long)found.damaged);
	memcpy(d->data, s->store, SIZE);
	d->now_percent = 100;
	d->blk.caps |= BLK_CAP_VOLATILE;
	u.blk = cache_open(c, &d->blk, false);
	ck_assert_ptr_nonnull(u.blk);
	for (uint64_t at = 0; at < SIZE; at += KiB(64))
		ck_assert_int_eq(bt_read(&u, at, KiB(64), all + at, 0), 0);
	ck_assert_msg(stamped_check(&s->stamped, all, shows, why, sizeof(why)), "%s, step %lu: %s",
		      s->what, (unsigned long)w.steps, why);
	if (loses) {
		d->stable = malloc(SIZE);
		ck_assert_ptr_nonnull(d->stable);
		memcpy(d->stable, s->stable, SIZE);
		atomic_store(&d->fail_syncs, 1);
		ck_assert_int_ne(bt_op(&u, BLK_SYNC, 0, 0, 0), 0);
		w.doubts += dev_doubt(cache_dev_of(u.blk), false);
	}
	const bool in_doubt = loses && w.doubts != doubts;

	ck_assert_int_eq(bt_op(&u, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_msg(in_doubt || stamped_check(&s->stamped, d->data, again, why, sizeof(why)),
		      "%s, step %lu: in the store: %s", s->what, (unsigned long)w.steps, why);
	for (uint32_t i = 0; i < SECTORS; i++)
		/* (What a loss takes back was not acknowledged.) */
		ck_assert_msg(loses || shows[i] == again[i], "%s: sector %u changes by itself",
			      s->what, i);
	blk_close(u.blk);
	for (int i = 0; i < 3; i++)
		loop_step(t.loop, 0);
	cache_destroy(c);
	w.looked++;
}

/* One step is over. */
static void look(pid_t pid, bool every)
{
	struct user_regs_struct regs;
	uint16_t code;

	const bool arena = arena_changed(), store = store_changed();

	w.steps++;
	if (!arena && !store)
		return;
	w.changes++;
	ck_assert_int_eq(ptrace(PTRACE_GETREGS, pid, NULL, &regs), 0);
	code = (uint16_t)ptrace(PTRACE_PEEKTEXT, pid, (void *)regs.rip, NULL);
	if ((code & 0xff) == 0xf3 && ++w.reps % 61 && !every)
		return; /* in the midst of a string instruction */
	if (seen_before()) {
		w.same++;
		return;
	}
	recover(false);
	recover(true);
}

/* Until the child stops by itself. False: it has ended. */
static bool run(pid_t pid, int *status)
{
	ck_assert_int_eq(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
	ck_assert_int_eq(waitpid(pid, status, 0), pid);
	return WIFSTOPPED(*status);
}

static void map_arena(pid_t pid)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, s->fd);
	w.fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(w.fd, 0);
	ck_assert_int_eq(fstat(w.fd, &st), 0);
	w.map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, w.fd, 0);
	ck_assert(w.map != MAP_FAILED);
	const struct arena_super *h = (const void *)w.map;
	const struct cache_super *says = (const void *)h->owner;

	w.range[OF_HEADERS].at = h->header_off;
	w.range[OF_HEADERS].len = BLOCKS * sizeof(struct block);
	w.range[OF_MAPS].at = h->extra_off;
	w.range[OF_MAPS].len = (size_t)BLOCKS * h->extra;
	w.range[OF_DATA].at = h->data_off;
	w.range[OF_DATA].len = (size_t)BLOCKS << h->block_shift;
	w.range[OF_SUPER].len = 4096;
	w.range[OF_SLOT].at = h->tail_off;
	w.range[OF_SLOT].len = sizeof(struct cache_slot);
	w.range[OF_REDO].at = h->tail_off + says->redo_off;
	w.range[OF_REDO].len = says->redo_size;
	w.last = calloc(1, (size_t)st.st_size);
	w.known = calloc(KNOWN, sizeof(*w.known));
	ck_assert(w.last && w.known);
	(void)arena_changed();
}

START_TEST(behind_any_instruction)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	/* Its locks assert for how long they are held, which single steps multiply. */
	fprintf(stderr, "# SKIP single steps of a sanitized build\n");
	return;
#endif
	const char *how = getenv("TGT_STEPS");
	const bool every = how && !strcmp(how, "all");
	cpu_set_t one;
	int status;
	pid_t pid;

	thorough = how != NULL;
	/* Tracer and traced take turns: on one processor a step costs half. */
	CPU_ZERO(&one);
	CPU_SET((unsigned)MAX(sched_getcpu(), 0), &one);
	(void)sched_setaffinity(0, sizeof(one), &one);

	log_set_level(LOG_LVL_ERROR - 1);
	ck_assert_int_eq(topology_simulate(&topo, 1), 0);
	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert(s != MAP_FAILED);
	s->stamped.sectors = SECTORS;
	pid = fork();
	if (!pid)
		child();
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		printf("# SKIP: this machine does not let a process be traced\n");
		return;
	}
	ck_assert_msg(WIFSTOPPED(status), "%s", s->fail);
	map_arena(pid);
	clock_fake_set(1000 * NSEC_PER_SEC);
	bt_init(&t, NULL, 1);
	workers[0] = t.loop;
	while (run(pid, &status)) {
		while (s->stepping) {
			if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL))
				break;
			ck_assert_int_eq(waitpid(pid, &status, 0), pid);
			if (!WIFSTOPPED(status))
				break;
			look(pid, every);
		}
		if (!WIFSTOPPED(status))
			break;
	}
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status) && s->over, "%s (status %x)",
		      s->fail, status);
	printf("# %lu steps, %lu changed something, %lu states looked at, %lu known, %lu in doubt "
	       "after a loss\n",
	       (unsigned long)w.steps, (unsigned long)w.changes, (unsigned long)w.looked / 2,
	       (unsigned long)w.same, (unsigned long)w.doubts);
	ck_assert_uint_lt(w.doubts, w.looked / 4);
	ck_assert_uint_gt(w.looked, 500);
}
END_TEST

/* (Each state of all of them takes hours.) */
UNIT_MAIN("attach_steps", getenv("TGT_STEPS") ? 24 * 3600 : 600, behind_any_instruction)
