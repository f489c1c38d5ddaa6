/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Records of dirty data: what the next process makes of those that it finds (defect C11). */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cache/blk/dirty_record.h"
#include "events/base.h"
#include "tests/support/unit.h"

static char dir[64], away[80], name[400], text[8192];

static void begin(void)
{
	snprintf(dir, sizeof(dir), "/var/tmp/tgt-test-record.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(dirty_record_start(dir, false), 0);
	ck_assert_ptr_null(dirty_record_none());
}

static void end(void)
{
	ck_assert_int_eq(dirty_record_start(NULL, false), 0);
	ck_assert_ptr_nonnull(dirty_record_none());
	ck_assert_ptr_null(dirty_record_get(-1, "disk:1:2", "", "/x"));
	ck_assert_int_eq(rmdir(dir), 0); /* empty again */
}

/* How many files there are; name gets the whole name of one. */
static int files(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int n = 0;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d)))
		if (e->d_name[0] != '.') {
			snprintf(name, sizeof(name), "%s/%s", dir, e->d_name);
			n++;
		}
	closedir(d);
	return n;
}

/* The only file's content, without its checksum. */
static void load(void)
{
	ck_assert_int_eq(files(), 1);
	FILE *f = fopen(name, "r");
	ck_assert_ptr_nonnull(f);
	size_t n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	ck_assert_uint_gt(n, 21);
	text[n - 21] = 0;
}

/* What load() has read, changed or not, with the right checksum. */
static void store(void)
{
	unsigned long long h = 0xcbf29ce484222325ull;
	FILE *f = fopen(name, "w");

	ck_assert_ptr_nonnull(f);
	for (const char *s = text; *s; s++)
		h = (h ^ (uint8_t)*s) * 0x100000001b3ull;
	fprintf(f, "%ssum %016llx\n", text, h);
	fclose(f);
}

static void replace(const char *what, const char *with)
{
	char *at = strstr(text, what), rest[8192];

	ck_assert_msg(at != NULL, "no '%s' in %s", what, text);
	snprintf(rest, sizeof(rest), "%s", at + strlen(what));
	sprintf(at, "%s%s", with, rest);
}

/* Another boot's. */
static void reboot(void)
{
	char line[128];

	load();
	char *at = strstr(text, "\nboot ");
	ck_assert_ptr_nonnull(at);
	snprintf(line, sizeof(line), "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
	replace(line, "boot 00000000-1111-2222-3333-444444444444");
	store();
}

static bool doubt(const char *id, const char *mark, const char *path)
{
	struct dirty_record *r = dirty_record_get(-1, id, mark, path);

	ck_assert_ptr_nonnull(r);
	bool d = dirty_record_doubt(r);
	dirty_record_put(r);
	return d;
}

/* A process is gone and has left its record. */
static void leave(const char *id, const char *mark, const char *path)
{
	struct dirty_record *r = dirty_record_get(-1, id, mark, path);

	ck_assert(!dirty_record_doubt(r));
	ck_assert_int_eq(dirty_record_write(r), 0);
	dirty_record_put(r);
	ck_assert_int_eq(files(), 1);
}

static void trust(const char *id, const char *mark, const char *path)
{
	struct dirty_record *r = dirty_record_get(-1, id, mark, path);

	ck_assert(dirty_record_doubt(r));
	ck_assert_uint_gt(strlen(r->why), 20);
	ck_assert_int_eq(dirty_record_trust(r, false), 0);
	ck_assert(!dirty_record_doubt(r));
	dirty_record_put(r);
	ck_assert_int_eq(files(), 0);
}

/* What an earlier process had of a store that other machines serve is known elsewhere. */
START_TEST(told_elsewhere)
{
	struct dirty_record *r;

	begin();
	leave("rbd:1/2/3", "", "rbd/u");
	r = dirty_record_get_shared("rbd:1/2/3", "rbd/u");
	ck_assert_ptr_nonnull(r);
	ck_assert(!dirty_record_doubt(r));
	ck_assert_int_eq(files(), 0);
	ck_assert_int_eq(dirty_record_write(r), 0);
	ck_assert_int_eq(files(), 1);
	dirty_record_put(r);
	ck_assert(doubt("rbd:1/2/3", "", "rbd/u"));
	trust("rbd:1/2/3", "", "rbd/u");
	end();
}
END_TEST

START_TEST(made_removed_and_found)
{
	begin();
	struct dirty_record *r = dirty_record_get(-1, "file:8:1:12", "born 12 1.5", "/a.img");
	struct dirty_record *again = dirty_record_get(-1, "file:8:1:12", "born 12 1.5", "/link");

	ck_assert_ptr_eq(r, again); /* one store, one record */
	dirty_record_put(again);
	ck_assert(!dirty_record_doubt(r));
	ck_assert_int_eq(files(), 0);
	ck_assert_int_eq(dirty_record_write(r), 0);
	ck_assert_int_eq(dirty_record_write(r), 0);
	ck_assert_int_eq(files(), 1);
	ck_assert_int_eq(dirty_record_remove(r), 0);
	ck_assert_int_eq(dirty_record_remove(r), 0);
	ck_assert_int_eq(files(), 0);
	ck_assert_int_eq(dirty_record_write(r), 0);
	/* Another store that is open beside it has nothing to do with that. */
	ck_assert(!doubt("file:8:1:13", "", "/a.img"));
	dirty_record_put(r);
	ck_assert(doubt("file:8:1:12", "born 12 1.5", "/a.img"));
	ck_assert(doubt("file:8:1:12", "born 12 1.5", "/a.img")); /* it stays */
	ck_assert_int_eq(files(), 1);
	trust("file:8:1:12", "born 12 1.5", "/a.img");
	ck_assert(!doubt("file:8:1:12", "born 12 1.5", "/a.img"));
	end();
}
END_TEST

/* Trusted while there is dirty data: our own record takes the old one's place. */
START_TEST(trusted_while_dirty)
{
	begin();
	leave("file:8:1:12", "", "/old/name");
	struct dirty_record *r = dirty_record_get(-1, "file:8:1:12", "", "/new/name");

	ck_assert(dirty_record_doubt(r));
	ck_assert_int_eq(dirty_record_trust(r, true), 0);
	ck_assert(!dirty_record_doubt(r));
	load();
	ck_assert_ptr_nonnull(strstr(text, "path /new/name\n"));
	ck_assert_int_eq(dirty_record_remove(r), 0);
	dirty_record_put(r);
	end();
}
END_TEST

/* Which store a record is of. */
START_TEST(whose_it_is)
{
	static const struct {
		const char *left[3], *opened[3];
		bool reboot, doubt;
	} cases[] = {
		/* one boot */
		{ { "file:8:1:12", "", "/a" }, { "file:8:1:12", "", "/b" }, false, true },
		{ { "file:8:1:12", "", "/a" }, { "file:8:1:13", "", "/a" }, false, false },
		{ { "disk:8:0", "", "/dev/v" }, { "disk:8:16", "", "/dev/v" }, false, true },
		{ { "disk:8:0", "", "/dev/v" }, { "disk:8:16", "", "/dev/w" }, false, false },
		/* an inode number that was used again */
		{ { "file:8:1:12", "born 12 1.0", "/a" },
		  { "file:8:1:12", "born 12 2.0", "/a" },
		  false,
		  false },
		{ { "file:8:1:12", "born 12 1.0", "/a" },
		  { "file:8:1:12", "", "/b" },
		  false,
		  true },
		/* the machine was restarted: numbers may be others' */
		{ { "file:8:1:12", "", "/a" }, { "file:8:17:12", "", "/a" }, true, true },
		{ { "file:8:1:12", "", "/a" }, { "file:8:1:12", "", "/b" }, true, false },
		{ { "disk:8:0", "", "/dev/x" }, { "disk:8:0", "", "/dev/y" }, true, false },
		{ { "disk:8:0", "", "/dev/x" }, { "disk:8:16", "", "/dev/x" }, true, true },
		{ { "disk:naa.5000c500", "", "/dev/x" },
		  { "disk:naa.5000c500", "", "/dev/y" },
		  true,
		  true },
		{ { "file:8:1:12", "born 12 1.0", "/a" },
		  { "file:9:0:12", "born 12 1.0", "/b" },
		  true,
		  true },
		{ { "file:8:1:12", "born 12 1.0", "/a" },
		  { "file:8:1:12", "born 12 2.0", "/a" },
		  true,
		  false },
		{ { "disk:8:0", "wwid naa.5000", "/dev/x" },
		  { "disk:8:16", "wwid naa.5000", "/dev/y" },
		  true,
		  true },
		{ { "disk:8:0", "wwid naa.5000", "/dev/x" },
		  { "disk:8:0", "wwid naa.6000", "/dev/x" },
		  true,
		  false },
		/* another kernel names it by other means: who knows */
		{ { "disk:8:0", "wwid naa.5000", "/dev/x" },
		  { "disk:8:0", "wwid t10.ABC", "/dev/x" },
		  true,
		  true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *const *l = cases[i].left, *const *o = cases[i].opened;

		begin();
		leave(l[0], l[1], l[2]);
		if (cases[i].reboot)
			reboot();
		ck_assert_msg(doubt(o[0], o[1], o[2]) == cases[i].doubt, "case %zu", i);
		ck_assert(doubt(l[0], l[1], l[2]) || cases[i].reboot);
		ck_assert_int_eq(files(), 1);
		ck_assert_int_eq(unlink(name), 0);
		end();
	}
}
END_TEST

/* Cut at any length, any byte altered, another version: a doubt, never more than that. */
START_TEST(damaged)
{
	static const char *const id[] = { "file:8:1:12", "born 12 1.0", "/a.img" };

	begin();
	leave(id[0], id[1], id[2]);
	load();
	FILE *f = fopen(name, "r");
	size_t n = fread(text, 1, sizeof(text), f);
	fclose(f);
	for (size_t i = 0; i < n; i++) {
		ck_assert_int_eq(truncate(name, 0), 0);
		f = fopen(name, "w");
		fwrite(text, 1, i, f);
		fclose(f);
		ck_assert_msg(doubt(id[0], id[1], id[2]), "cut at %zu", i);
		text[i] ^= 1;
		f = fopen(name, "w");
		fwrite(text, 1, n, f);
		fclose(f);
		text[i] ^= 1;
		ck_assert_msg(doubt(id[0], id[1], id[2]), "byte %zu", i);
	}
	f = fopen(name, "w");
	fwrite(text, 1, n, f);
	fclose(f);
	load();
	replace("tgtd-dirty 2", "tgtd-dirty 3");
	store();
	ck_assert(doubt(id[0], id[1], id[2]));
	/* Not a file at all. */
	ck_assert_int_eq(unlink(name), 0);
	ck_assert_int_eq(mkdir(name, 0700), 0);
	ck_assert(doubt(id[0], id[1], id[2]));
	struct dirty_record *r = dirty_record_get(-1, id[0], id[1], id[2]);
	ck_assert_int_lt(dirty_record_trust(r, false), 0); /* it cannot be removed */
	ck_assert(dirty_record_doubt(r));
	dirty_record_put(r);
	ck_assert_int_eq(rmdir(name), 0);
	ck_assert(!doubt(id[0], id[1], id[2]));
	end();
}
END_TEST

/* A path may have anything in it, and be of any length. */
START_TEST(odd_names)
{
	char path[4096];

	memset(path, 'x', sizeof(path));
	memcpy(path, "/a\nstore b\n\x7f", 12);
	path[sizeof(path) - 1] = 0;
	begin();
	leave("disk:8:0", "", path);
	reboot();
	trust("disk:8:16", "", path);
	end();
}
END_TEST

/* A store that cannot be locked, and a daemon that is alive: it has not lost anything. */
START_TEST(of_a_live_process)
{
	int to[2], fro[2];
	char c = 0;

	begin();
	ck_assert_int_eq(pipe(to), 0);
	ck_assert_int_eq(pipe(fro), 0);
	pid_t child = fork();
	if (!child) {
		struct dirty_record *r = dirty_record_get(-1, "file:8:1:12", "", "/a");

		c = r && !dirty_record_write(r) ? 'y' : 'n';
		(void)!write(fro[1], &c, 1);
		(void)!read(to[0], &c, 1);
		_exit(0);
	}
	ck_assert_int_eq(read(fro[0], &c, 1), 1);
	ck_assert_int_eq(c, 'y');
	ck_assert(!doubt("file:8:1:12", "", "/a"));
	ck_assert_int_eq(files(), 1);
	ck_assert_int_eq(write(to[1], &c, 1), 1);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert(doubt("file:8:1:12", "", "/a"));
	trust("file:8:1:12", "", "/a");
	end();
}
END_TEST

/* It had written all, and could not wait for the store to say that it is stable. */
START_TEST(written)
{
	begin();
	snprintf(away, sizeof(away), "%s.img", dir);
	int fd = open(away, O_CREAT | O_RDWR, 0600);
	ck_assert_int_ge(fd, 0);
	for (int machine = 0; machine < 2; machine++) {
		struct dirty_record *r = dirty_record_get(fd, "file:8:1:12", "", "/a");

		dirty_record_written(r); /* nothing is there */
		ck_assert_int_eq(files(), 0);
		ck_assert_int_eq(dirty_record_write(r), 0);
		dirty_record_written(r);
		ck_assert_int_eq(files(), 1);
		dirty_record_put(r);
		if (machine)
			reboot();
		else
			ck_assert(doubt("file:8:1:12", "", "/a")); /* no store, no SYNC */
		r = dirty_record_get(fd, "file:8:1:12", "", "/a");
		ck_assert(dirty_record_doubt(r) == machine);
		ck_assert_int_eq(files(), machine);
		dirty_record_put(r);
	}
	trust("file:8:1:12", "", "/a");
	close(fd);
	ck_assert_int_eq(unlink(away), 0);
	end();
}
END_TEST

START_TEST(accepted)
{
	begin();
	leave("file:8:1:12", "", "/a");
	ck_assert_int_eq(dirty_record_start(dir, true), 0);
	ck_assert(dirty_record_accepts());
	ck_assert(!doubt("file:8:1:12", "", "/a"));
	ck_assert_int_eq(files(), 0);
	end();
}
END_TEST

START_TEST(no_directory)
{
	char where[128];

	begin();
	snprintf(where, sizeof(where), "%s/file", dir);
	int fd = open(where, O_CREAT | O_WRONLY, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
	snprintf(where, sizeof(where), "%s/file/below", dir);
	ck_assert_int_lt(dirty_record_start(where, false), 0);
	ck_assert_ptr_nonnull(dirty_record_none());
	ck_assert_ptr_null(dirty_record_get(-1, "disk:1:2", "", "/x"));
	snprintf(where, sizeof(where), "%s/file", dir);
	ck_assert_int_eq(unlink(where), 0);
	/* It goes while we run. */
	ck_assert_int_eq(dirty_record_start(where, false), 0); /* made */
	struct dirty_record *r = dirty_record_get(-1, "disk:1:2", "", "/x");
	ck_assert_int_eq(rmdir(where), 0);
	ck_assert_int_lt(dirty_record_write(r), 0);
	dirty_record_put(r);
	ck_assert(!doubt("disk:1:2", "", "/x"));
	end();
}
END_TEST

/* What files and disks are called for good. */
START_TEST(marks)
{
	char a[DIRTY_MARK_MAX], b[DIRTY_MARK_MAX];

	begin();
	snprintf(name, sizeof(name), "%s/one", dir);
	int fd = open(name, O_CREAT | O_RDWR, 0600);
	dirty_mark(fd, a);
	ck_assert_int_eq(write(fd, "x", 1), 1);
	char moved[128];
	snprintf(moved, sizeof(moved), "%s/two", dir);
	ck_assert_int_eq(rename(name, moved), 0);
	dirty_mark(fd, b);
	ck_assert_str_eq(a, b);
	close(fd);
	fd = open(name, O_CREAT | O_RDWR, 0600);
	dirty_mark(fd, b);
	ck_assert(!a[0] || strcmp(a, b) != 0);
	close(fd);
	ck_assert_int_eq(unlink(name), 0);
	ck_assert_int_eq(unlink(moved), 0);
	dirty_mark(-1, a);
	ck_assert_str_eq(a, "");
	end();
}
END_TEST

static const char *held;

static bool holds(void *arg, const char *store_id)
{
	ck_assert_ptr_eq(arg, &held);
	return held && strcmp(held, store_id) == 0;
}

static bool kept(const char *id, const char *mark, const char *path)
{
	struct dirty_record *r = dirty_record_get(-1, id, mark, path);
	const bool k = dirty_record_kept(r);

	ck_assert(!k || !dirty_record_doubt(r));
	dirty_record_put(r);
	return k;
}

/* What the record is about is in the cache still, which was found (restart.md I6; issue 17): no
 * doubt. Without that cache, or without that store in it, there is. */
START_TEST(found_with_its_cache)
{
	struct dirty_record *r;

	begin();
	dirty_record_arena(0x1234, NULL, NULL);
	leave("disk:8:0", "wwid a", "/a");
	held = "disk:8:0";
	ck_assert(doubt("disk:8:0", "wwid a", "/a")); /* a new cache that happens to be called so */
	dirty_record_arena(0x1235, holds, &held);
	ck_assert(doubt("disk:8:0", "wwid a", "/a"));
	dirty_record_arena(0x1234, holds, &held);
	ck_assert(kept("disk:8:0", "wwid a", "/a"));
	ck_assert_int_eq(files(), 1);
	held = "disk:8:1";
	ck_assert(doubt("disk:8:0", "wwid a", "/a"));
	/* By another path: its record has another name from then on. */
	held = "disk:8:0";
	ck_assert(kept("disk:8:0", "wwid a", "/b"));
	load();
	ck_assert_ptr_nonnull(strstr(text, "path /b\n"));
	ck_assert_ptr_nonnull(strstr(text, "arena 0000000000001234\n"));
	/* It is ours: it goes when the store is clean. */
	r = dirty_record_get(-1, "disk:8:0", "wwid a", "/b");
	ck_assert(dirty_record_kept(r));
	ck_assert_int_eq(dirty_record_remove(r), 0);
	dirty_record_put(r);
	ck_assert_int_eq(files(), 0);
	/* A machine that was restarted has no arenas. */
	leave("disk:8:0", "wwid a", "/a");
	reboot();
	ck_assert(doubt("disk:8:0", "wwid a", "/a"));
	trust("disk:8:0", "wwid a", "/a");
	/* The version before says nothing of arenas. */
	leave("disk:8:0", "wwid a", "/a");
	load();
	replace("tgtd-dirty 2", "tgtd-dirty 1");
	replace("arena 0000000000001234\n", "");
	store();
	ck_assert(doubt("disk:8:0", "wwid a", "/a"));
	trust("disk:8:0", "wwid a", "/a");
	dirty_record_arena(0, NULL, NULL);
	end();
}
END_TEST

static bool is_apart(const char *id, const char *mark, const char *path)
{
	struct dirty_record *r = dirty_record_get(-1, id, mark, path);
	const bool is = atomic_load(&r->apart);

	ck_assert(!is || !dirty_record_doubt(r));
	dirty_record_put(r);
	return is;
}

/* Its data is in memory of another version, which is kept. */
START_TEST(in_a_cache_that_is_apart)
{
	const uint64_t cookies[] = { 0x5678, 0x1234 };
	struct dirty_record *r;

	begin();
	held = NULL;
	dirty_record_arena(0x1234, holds, &held);
	ck_assert(!dirty_record_names(0x1234, NULL));
	leave("disk:8:0", "wwid a", "/a");
	ck_assert(dirty_record_names(0x1234, NULL));
	ck_assert(dirty_record_names(0x1234, "disk:8:0"));
	ck_assert(!dirty_record_names(0x1234, "disk:8:1"));
	ck_assert(!dirty_record_names(0x5678, NULL));
	dirty_record_arena(0x9abc, holds, &held);
	ck_assert(doubt("disk:8:0", "wwid a", "/a"));
	dirty_record_set_apart(cookies, 1);
	ck_assert(!is_apart("disk:8:0", "wwid a", "/a"));
	dirty_record_set_apart(cookies, 2);
	ck_assert(is_apart("disk:8:0", "wwid a", "/a"));
	ck_assert(is_apart("disk:8:0", "wwid a", "/b"));
	ck_assert(!is_apart("disk:8:1", "wwid b", "/b"));
	/* The process that knows it goes on with it. */
	held = "disk:8:0";
	dirty_record_arena(0x1234, holds, &held);
	ck_assert(kept("disk:8:0", "wwid a", "/a"));
	ck_assert(!is_apart("disk:8:0", "wwid a", "/a"));
	/* An administrator gives it up. */
	held = NULL;
	dirty_record_arena(0x9abc, holds, &held);
	r = dirty_record_get(-1, "disk:8:0", "wwid a", "/a");
	ck_assert(atomic_load(&r->apart));
	ck_assert_int_eq(dirty_record_give_up(r), 0);
	ck_assert(!atomic_load(&r->apart) && !dirty_record_doubt(r));
	dirty_record_put(r);
	ck_assert_int_eq(files(), 0);
	ck_assert(!is_apart("disk:8:0", "wwid a", "/a"));
	/* Nothing of it is left by another boot. */
	dirty_record_arena(0x1234, holds, &held);
	leave("disk:8:0", "wwid a", "/a");
	dirty_record_arena(0x9abc, holds, &held);
	reboot();
	ck_assert(!dirty_record_names(0x1234, NULL));
	ck_assert(!is_apart("disk:8:0", "wwid a", "/a"));
	trust("disk:8:0", "wwid a", "/a");
	/* Who accepts losses does not wait either. */
	dirty_record_arena(0x1234, holds, &held);
	leave("disk:8:0", "wwid a", "/a");
	dirty_record_arena(0x9abc, holds, &held);
	ck_assert_int_eq(dirty_record_start(dir, true), 0);
	ck_assert(!is_apart("disk:8:0", "wwid a", "/a"));
	ck_assert_int_eq(files(), 0);
	dirty_record_set_apart(NULL, 0);
	dirty_record_arena(0, NULL, NULL);
	end();
	ck_assert(dirty_record_names(0x1234, NULL)); /* nobody can tell */
}
END_TEST

UNIT_MAIN("dirty_record", 30, told_elsewhere, made_removed_and_found, trusted_while_dirty,
	  whose_it_is, damaged, odd_names, of_a_live_process, written, accepted, no_directory,
	  marks, found_with_its_cache, in_a_cache_that_is_apart)
