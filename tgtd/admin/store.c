/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Opening the store of an LU, and the cache on it. open(2) of a file on a dead server hangs, so
 * none of this runs on the main loop: it goes to a helper thread, in order
 * for each path, as closing does.
 */
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/backend/store_kept.h"
#include "cache/blk/dirty_record.h"
#include "cache/engine/apart.h"
#include "events/bug.h"
#include "events/log.h"
#include "tgtd/admin/admin_int.h"

bool store_parse_flags(const char *text, uint8_t *flags)
{
	*flags = 0;
	while (text && *text) {
		size_t n = strcspn(text, ":");

		if (n == 4 && !strncmp(text, "sync", n))
			*flags |= ADM_BS_SYNC;
		else if (n == 6 && !strncmp(text, "direct", n))
			*flags |= ADM_BS_DIRECT;
		else
			return false;
		text += n + (text[n] == ':');
	}
	return true;
}

bool store_known(const char *bstype)
{
	for (unsigned i = 0; blk_bstypes[i]; i++)
		if (!strcmp(blk_bstypes[i], bstype))
			return true;
	return false;
}

/* tgt's words, which name a cluster. */
static bool is_of_rbd(const char *text)
{
	return !strncmp(text, "conf=", 5) || !strncmp(text, "id=", 3) ||
	       !strncmp(text, "cluster=", 8) || !strncmp(text, "group=", 6);
}

bool store_parse_opts(const char *text, const char *bstype, struct store_opts *o)
{
	const bool rbd = !strcmp(bstype, "rbd");

	*o = (struct store_opts){ .node = -1 };
	while (text && *text) {
		size_t n = strcspn(text, ";,");
		char word[64];

		if (rbd && is_of_rbd(text)) {
			text += n + (text[n] != 0);
			continue;
		}
		if (n >= sizeof(word))
			return false;
		memcpy(word, text, n);
		word[n] = 0;
		text += n + (text[n] != 0);
		if (!strcmp(word, "cache=none")) {
			o->uncached = true;
		} else if (!strcmp(word, "cache=write-through")) {
			o->write_through = true;
		} else if (!strcmp(word, "cache=write-back")) {
			o->write_through = false;
		} else if (!strcmp(word, "share=yes") || !strcmp(word, "share=no")) {
			o->shared = word[6] == 'y';
		} else if (!strncmp(word, "node=", 5) && isdigit((unsigned char)word[5])) {
			char *end;
			unsigned long node = strtoul(word + 5, &end, 10);

			if (*end || node >= adm.conf.topo->nnodes)
				return false;
			o->node = (int)node;
		} else if (*word) {
			return false;
		}
	}
	/* two views of one store agree through the cache that they share */
	return !(o->shared && o->uncached);
}

/* Did that fail since we have given up the right to open it (tgtd --user)? */
static bool needs_file(int err, int file)
{
	return (err == EACCES || err == EPERM) && file < 0 && geteuid();
}

/* What the worker before had open by that name. NULL: nothing, or that will not do. */
static struct blk *open_kept(const char *bstype, const struct store_open *so,
			     struct blk_open_args args)
{
	char name[STORE_KEPT_NAME];
	struct blk *blk;

	store_kept_name(name, args.path, args.who, args.sync);
	args.file = store_kept_find(KEPT_OPEN, name);
	if (args.file < 0 || !so->path || so->file >= 0)
		return NULL;
	args.is_open = args.is_kept = true;
	args.readonly = (fcntl(args.file, F_GETFL) & O_ACCMODE) == O_RDONLY;
	blk = blk_open(bstype, &args);
	if (!blk)
		log_warn("%s; what the worker before had open of it is not used", so->reason);
	close(args.file);
	return blk;
}

/* What is dirty of it is in memory of another version, which may write it back yet: nobody uses it
 * before, unless somebody says that this is given up. 0, or -errno. */
static int open_apart(struct store_open *so, const struct blk *blk)
{
	struct dirty_record *r = blk->record;
	int err;

	if (!r || !atomic_load(&r->apart))
		return 0;
	so->apart = !so->give_up;
	err = so->apart ? -EBUSY : dirty_record_give_up(r);
	so->given_up = !err;
	if (so->apart)
		snprintf(so->reason, sizeof(so->reason), "%.60s: " APART_WHY, so->path);
	else if (err)
		snprintf(so->reason, sizeof(so->reason), "%.60s: the record of it stays: %s",
			 so->path, strerror(-err));
	else
		log_warn("%s: what another version of tgtd had not written back is given up, by "
			 "tgtadm: LOST",
			 so->path);
	return err;
}

/* On a helper thread. */
static void open_work(struct scsi_work *w)
{
	struct store_open *so = container_of(w, struct store_open, work);
	struct blk_open_args args = {
		/* No medium: a sink that nobody reaches until it is replaced. */
		.path = so->path ? so->path : "4096",
		.opts = so->bsopts,
		.block_size = so->block_size,
		.shared = so->shared,
		.uncached = !adm.conf.cache || so->uncached,
		.who = so->who,
		.sync = so->flags & ADM_BS_SYNC,
		.direct = so->flags & ADM_BS_DIRECT,
		.topo = adm.conf.topo,
		.node = so->node,
		.err = so->reason,
		.err_len = sizeof(so->reason),
		.is_open = so->file >= 0,
		.file = so->file,
		.readonly = so->file >= 0 && (fcntl(so->file, F_GETFL) & O_ACCMODE) == O_RDONLY,
	};
	const char *bstype = so->path ? so->bstype : "null";
	/* it may take as long as a dead server takes to answer */
	ASSERT(!loop_current());
	struct blk *cached, *blk = open_kept(bstype, so, args);

	if (!blk)
		blk = blk_open(bstype, &args);
	if (!blk && needs_file(errno, so->file)) {
		so->needs_file = true;
		so->err = -EACCES;
		return;
	}
	if (!blk && so->file < 0 && (errno == EROFS || errno == EACCES || errno == EPERM)) {
		/* a store that can only be read makes a read-only LU */
		args.readonly = true;
		blk = blk_open(bstype, &args);
	}
	if (!blk) {
		so->err = errno ? -errno : -EIO;
		return;
	}
	so->err = so->path ? open_apart(so, blk) : 0;
	if (so->err) {
		blk_close(blk);
		return;
	}
	if (!adm.conf.cache || so->uncached || (blk->caps & BLK_CAP_OWN_MEMORY) || !so->path) {
		so->blk = blk;
		return;
	}
	cached = cache_open(adm.conf.cache, blk, so->write_through);
	if (!cached) {
		so->err = errno ? -errno : -ENOMEM;
		blk_close(blk);
	}
	so->blk = cached;
}

static void open_done(struct scsi_work *w)
{
	struct store_open *so = container_of(w, struct store_open, work);

	ASSERT(!so->blk == (so->err != 0));
	store_kept_tell();
	if (so->err && !*so->reason)
		snprintf(so->reason, sizeof(so->reason), "%.120s: %s",
			 so->path ? so->path : "no medium", strerror(-so->err));
	if (so->blk)
		overdue_go_on();
	if (so->given_up)
		apart_look();
	so->done(so);
}

void store_open(struct store_open *so)
{
	ASSERT_ON_LOOP(adm.conf.main);
	ASSERT(so->done && !so->blk && !so->err && (!so->path || so->bstype));
	so->work.home = adm.conf.main;
	so->work.key = scsi_work_key(so->path);
	so->work.work = open_work;
	so->work.done = open_done;
	scsi_helper_run(&so->work);
}

static void try_no_file(struct store_trial *st)
{
	const struct blk_open_args args = {
		.path = st->path,
		.opts = st->bsopts,
		.block_size = st->block_size,
		.topo = adm.conf.topo,
		.node = -1,
		.err = st->reason,
		.err_len = sizeof(st->reason),
	};
	struct blk *blk = blk_open(st->bstype, &args);

	if (blk)
		blk_close(blk);
	else if (errno != EBUSY) /* it might be free by then */
		st->err = errno ? -errno : -EIO;
}

/* On a helper thread. The size of a block device is where its end is. */
static void try_work(struct scsi_work *w)
{
	struct store_trial *st = container_of(w, struct store_trial, work);
	struct stat s;
	off_t size;
	int fd;

	ASSERT(!loop_current());
	if (st->bstype) {
		try_no_file(st);
		return;
	}
	fd = st->file >= 0 ? fcntl(st->file, F_DUPFD_CLOEXEC, 0) :
			     open(st->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) {
		st->err = -errno;
		st->needs_file = needs_file(errno, st->file);
		return;
	}
	if (fstat(fd, &s) || (!S_ISREG(s.st_mode) && !S_ISBLK(s.st_mode))) {
		st->err = -EINVAL;
		snprintf(st->reason, sizeof(st->reason),
			 "%.120s: neither a file nor a block device", st->path);
	} else {
		size = lseek(fd, 0, SEEK_END);
		if (size < (off_t)st->block_size) {
			st->err = -EINVAL;
			snprintf(st->reason, sizeof(st->reason),
				 "%.120s: smaller than one block of %u bytes", st->path,
				 st->block_size);
		}
	}
	close(fd);
}

static void try_done(struct scsi_work *w)
{
	struct store_trial *st = container_of(w, struct store_trial, work);

	if (st->err && !*st->reason)
		snprintf(st->reason, sizeof(st->reason), "%.120s: %s", st->path,
			 strerror(-st->err));
	st->done(st);
}

void store_try(struct store_trial *st)
{
	ASSERT_ON_LOOP(adm.conf.main);
	ASSERT(st->path && st->done && !st->err);
	st->work.home = adm.conf.main;
	st->work.key = scsi_work_key(st->path);
	st->work.work = try_work;
	st->work.done = try_done;
	scsi_helper_run(&st->work);
}

struct store_close {
	struct scsi_work work;
	struct blk *blk;
};

static void close_work(struct scsi_work *w)
{
	ASSERT(!loop_current());
	blk_close(container_of(w, struct store_close, work)->blk);
}

static void close_done(struct scsi_work *w)
{
	store_kept_tell();
	free(container_of(w, struct store_close, work));
}

void store_close(struct blk *blk)
{
	struct store_close *sc = calloc(1, sizeof(*sc));

	ASSERT_ON_LOOP(adm.conf.main);
	ASSERT(blk);
	if (!sc) {
		log_error("admin: no memory to close %s; it stays open",
			  blk->path ? blk->path : "a store");
		return;
	}
	sc->blk = blk;
	sc->work.home = adm.conf.main;
	sc->work.key = scsi_work_key(blk->path);
	sc->work.work = close_work;
	sc->work.done = close_done;
	scsi_helper_run(&sc->work);
}
