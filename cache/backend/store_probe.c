/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See store_probe.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cache/backend/store_kept.h"
#include "cache/backend/store_probe.h"
#include "cache/backend/store_under_way.h"
#include "events/kept.h"
#include "events/loop.h"

void store_probe_init(struct store_probe *p)
{
	p->fd = -1;
}

void store_probe_open(struct store_probe *p, int fd, const char *id, struct offload_lane *lane,
		      void (*asked)(struct store_probe *p, int err))
{
	char path[32];

	if (kept_fd() < 0)
		return;
	p->lane = lane;
	p->asked = asked;
	p->fd = store_kept_find(KEPT_PROBE, id);
	p->ask = p->fd >= 0;
	if (!p->ask) { /* (what is open has another name by now, maybe) */
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		p->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	}
	if (p->fd >= 0)
		store_kept_use(KEPT_PROBE, id, p->fd, p->ask);
}

void store_probe_fini(struct store_probe *p, const char *id)
{
	if (p->fd < 0)
		return;
	store_kept_drop(KEPT_PROBE, id);
	close(p->fd);
	p->fd = -1;
}

static void probe_run(struct offload_job *job)
{
	struct store_probe *p = container_of(job, struct store_probe, job);

	p->err = fdatasync(p->fd) < 0 ? -errno : 0;
}

static void probe_done(struct offload_job *job)
{
	struct store_probe *p = container_of(job, struct store_probe, job);

	/* (What cannot be asked says nothing.) */
	p->asked(p, p->err == -EINVAL || p->err == -EROFS ? 0 : p->err);
}

bool store_probe_first(struct store_probe *p)
{
	if (likely(!p->ask))
		return false;
	p->ask = false;
	offload_submit(p->lane, &p->job, loop_current(), probe_run, probe_done);
	return true;
}

/* ---- what is over ---------------------------------------------------------------------------- */

/* The store may be closed before it is done. */
struct over {
	struct offload_job job;
	struct offload_lane lane;
	int fd;
};

static void over_run(struct offload_job *job)
{
	(void)fdatasync(container_of(job, struct over, job)->fd);
}

static void over_done(struct offload_job *job)
{
	struct over *o = container_of(job, struct over, job);

	close(o->fd);
	free(o);
}

void store_probe_synced(struct store_probe *p, int status)
{
	struct over *o;

	if (status)
		p->failed = true;
	if (likely(status || !p->failed) || p->fd < 0)
		return;
	o = calloc(1, sizeof(*o));
	if (!o)
		return;
	p->failed = false;
	o->lane.mark = UNDER_WAY_NOTHING;
	o->fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
	if (o->fd < 0)
		free(o);
	else
		offload_submit(&o->lane, &o->job, NULL, over_run, over_done);
}
