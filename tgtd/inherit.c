/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the worker before has left with the keeper, and this one leaves to the next: the cache's
 * memory, the state journal, portals. All on the main thread, while nobody is served yet.
 */
#include <stdio.h>
#include <unistd.h>

#include "cache/engine/apart.h"
#include "events/kept.h"
#include "events/log.h"
#include "tgtd/began.h"
#include "tgtd/iscsi/carry.h"
#include "tgtd/iscsi/flight.h"
#include "tgtd/keeper/launch.h"
#include "tgtd/mourning.h"
#include "tgtd/serve_impl.h"
#include "tgtd/state/journal.h"
#include "tgtd/tcp/tcp.h"

/* ---- the cache ------------------------------------------------------------------------------- */

/* What the worker before left of the cache, by node; or has, if it is there still. */
static void find_arenas(const struct daemon *d, int fd[], int (*find)(const char *key))
{
	char key[32];

	for (unsigned n = 0; n < d->topo.nnodes; n++) {
		snprintf(key, sizeof(key), "arena/%u", n);
		fd[n] = find(key);
	}
}

static void configure_cache(struct daemon *d, const int fd[])
{
	d->opt->cache.topo = &d->topo;
	d->opt->cache.workers = d->worker;
	d->opt->cache.node_workers = d->node_workers;
	d->opt->cache.arena_fd = fd;
}

/* Who began without it would take its place with the keeper: it would be lost. Another one, which
 * has prepared nothing, has more room. */
static void inherit_all_or_nothing(void)
{
	if (!kept_lost())
		return;
	log_error("this worker may have too few files open (RLIMIT_NOFILE) for what the one before "
		  "has left: it ends, so that nothing is lost");
	_exit(1);
}

void inherit_prepare(struct daemon *d)
{
	int fd[TOPO_MAX_NODES];
	uint64_t wants = 0;

	if (!kept_prepares()) {
		inherit_all_or_nothing();
		return;
	}
	launch_expendable(true); /* not the one that serves, with as much memory */
	if (d->opt->use_cache) {
		find_arenas(d, fd, kept_peek);
		configure_cache(d, fd);
		if (apart_unknown(&d->topo, fd))
			wants = KEPT_WANTS_CLEAN;
		else
			d->opt->cache.prepared = cache_prepare(&d->opt->cache);
	}
	launch_expendable(false);
	if (kept_begin(wants)) {
		inherit_all_or_nothing();
		began_anew();
		return;
	}
	log_error("the keeper has died, and the worker before has not: it goes on");
	_exit(1);
}

/* Nobody is served yet: the keeper may take its time, where it gets no processor. */
static int keep_patiently(const char *key, int fd)
{
	struct kept_pair pair = { .fd = fd };

	snprintf(pair.key, sizeof(pair.key), "%s", key);
	kept_put_all(&pair, 1);
	return pair.err;
}

/* What is sent from there is looked for there, if this worker dies. */
static void tell_addresses(const struct daemon *d, unsigned n)
{
	uint64_t len;
	const void *base = cache_arena_map(d->cache, n, &len);

	if (base)
		iscsi_flight_arena(n, base, len);
}

/* For the worker after this one. */
static void keep_arenas(struct daemon *d)
{
	bool failed = false;
	char key[32];

	for (unsigned n = 0; n < d->topo.nnodes; n++) {
		const int fd = cache_arena_fd(d->cache, n);
		int rc;

		tell_addresses(d, n);
		snprintf(key, sizeof(key), "arena/%u", n);
		rc = fd < 0 ? kept_drop(key) : keep_patiently(key, fd);
		failed |= rc != 0;
		if (rc)
			log_error("cache: the keeper does not keep the memory of node %u: %s", n,
				  strerror(-rc));
		d->kept &= fd >= 0 && !rc;
	}
	for (unsigned n = 0; n < d->topo.nnodes && !failed; n++)
		apart_is_ours(cache_arena_fd(d->cache, n));
}

static void close_arenas(const struct daemon *d, int fd[])
{
	for (unsigned n = 0; n < d->topo.nnodes; n++) {
		if (fd[n] >= 0)
			close(fd[n]);
		fd[n] = -1;
	}
}

/* Less than before is left for it, or the kernel would do the same again. */
static void shrink_after_oom(const struct daemon *d)
{
	char err[200];
	uint64_t size;

	if (kept_origin()->how != KEPT_END_OOM || kept_origin()->save)
		return;
	if (cache_shrink_scarce(d->cache, &size, err, sizeof(err)))
		log_warn("cache: memory had run out, but its size stays: %s", err);
	else
		log_warn("cache: memory had run out: it becomes %llu MiB",
			 (unsigned long long)(size >> 20));
}

static bool any_arena(const struct daemon *d, const int fd[])
{
	for (unsigned n = 0; n < d->topo.nnodes; n++)
		if (fd[n] >= 0)
			return true;
	return false;
}

/* What is of another version is kept for that, and all serve whose data is not in it: their records
 * say so. Not in a planned restart: there is a program to go back to. */
static void set_apart(const struct daemon *d, int fd[])
{
	const struct kept_origin *o = kept_origin();
	int err;

	if (!apart_unknown(&d->topo, fd) || o->how == KEPT_END_PLANNED || o->save ||
	    !d->opt->state_dir || access(d->opt->state_dir, R_OK | X_OK))
		return;
	err = apart_set(fd);
	if (err)
		log_error("cache: what is of another version of tgtd cannot be set apart: %s",
			  strerror(-err));
	else
		iscsi_carry_lost();
}

/* What the worker before left, or what was kept for this version. */
static void find_cache(struct daemon *d, int fd[])
{
	find_arenas(d, fd, kept_take);
	apart_find(&d->topo);
	set_apart(d, fd);
	d->opt->cache.outdated = !any_arena(d, fd) && !kept_origin()->save && apart_take(fd);
	if (d->opt->cache.outdated)
		iscsi_carry_lost();
	configure_cache(d, fd);
}

static void begin_empty(struct daemon *d, int fd[])
{
	iscsi_carry_lost();
	close_arenas(d, fd);
	d->opt->cache.outdated = false;
	d->cache = cache_create(&d->opt->cache);
}

/* A worker that cannot use what is left ends: one of a new program gives way to the one before. The
 * next begins without it; stores whose data is lost are in doubt then. */
int inherit_cache(struct daemon *d)
{
	struct cache_found found = { 0 };
	int fd[TOPO_MAX_NODES], err;

	if (!d->opt->use_cache)
		return 0;
	find_cache(d, fd);
	iscsi_flight_take_over(fd, d->topo.nnodes, tcp_count);
	d->opt->cache.found = &found;
	d->opt->cache.scarce = kept_origin()->how == KEPT_END_OOM;
	d->opt->cache.distrust = kept_origin()->died_soon >= KEPT_DIED_NO_CLEAN;
	d->opt->cache.quarantine = mourning();
	d->cache = cache_create(&d->opt->cache);
	d->opt->cache.prepared = NULL;
	err = d->cache ? 0 : errno;
	if (err == EBADMSG && apart_unknown(&d->topo, fd)) {
		log_error("cache: what was left is of another version of tgtd, which alone can "
			  "write it back: it is kept, for that to be started again");
	} else if (err == EBADMSG && d->opt->cache.outdated) {
		log_error("cache: what was kept for this version is not: it stays kept");
		begin_empty(d, fd);
		err = d->cache ? 0 : errno;
	} else if (err == EBADMSG && kept_origin()->died_soon && !kept_origin()->save) {
		log_error("cache: it begins empty: what was not written back is lost");
		begin_empty(d, fd);
		err = d->cache ? 0 : errno;
	}
	d->opt->cache.arena_fd = NULL;
	d->opt->cache.found = NULL;
	if (err)
		return -err;
	if (found.damaged)
		iscsi_carry_lost();
	/* What the one before has left dirty can wait for the sessions that it has left. */
	cache_only_urgent(d->cache, true);
	shrink_after_oom(d);
	mourning_cache(d->cache);
	keep_arenas(d);
	return 0;
}

/* ---- the state journal, the portals ---------------------------------------------------------- */

/* Without a keeper nobody comes after us. */
int inherit_journal(struct daemon *d)
{
	int fd, rc;

	if (kept_fd() < 0)
		return 0;
	fd = journal_open(kept_take("state"), JOURNAL_SIZE);
	if (fd == -EBADMSG || fd == -ENOTSUP)
		fd = journal_open(-1, JOURNAL_SIZE);
	if (fd < 0)
		return fd;
	rc = keep_patiently("state", fd);
	if (rc)
		log_error("state journal: the keeper does not keep it: %s", strerror(-rc));
	d->kept &= !rc;
	return 0;
}

void inherit_no_portals(void)
{
	const char *key;
	unsigned at = 0;

	while ((key = kept_next("portal/", &at))) {
		close(kept_take(key));
		(void)kept_drop(key);
	}
}
