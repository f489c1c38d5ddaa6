/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See store_size.h. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cache/backend/library_call.h"
#include "cache/backend/store_size.h"
#include "cache/backend/store_under_way.h"

#define LOOK_MS 700

/* Under way, or left alone. It has a descriptor of its own, so the store may go before it. */
struct store_look {
	struct library_call call;
	struct store_look **at; /* the store's; NULL when that has gone. looks_lock */
	int fd, err;
	uint64_t bytes;
};

/* For all stores: there are few looks, and nobody keeps it. */
static pthread_mutex_t looks_lock = PTHREAD_MUTEX_INITIALIZER;

static void size_look_free(struct store_look *l)
{
	pthread_mutex_lock(&looks_lock);
	if (l->at)
		*l->at = NULL;
	pthread_mutex_unlock(&looks_lock);
	if (l->fd >= 0)
		close(l->fd);
	free(l);
}

static void size_look_run(struct library_call *call)
{
	struct store_look *l = container_of(call, struct store_look, call);
	struct stat st;

	l->err = fstat(l->fd, &st) < 0 ? -errno : 0;
	l->bytes = l->err ? 0 : (uint64_t)st.st_size;
}

static void size_look_late(struct library_call *call)
{
	size_look_free(container_of(call, struct store_look, call));
}

int store_size_ask(struct store_look **at, int fd, uint64_t *bytes)
{
	struct store_look *l = calloc(1, sizeof(*l));
	bool busy;
	int err;

	if (!l)
		return -ENOMEM;
	pthread_mutex_lock(&looks_lock);
	busy = *at;
	if (!busy) {
		l->at = at;
		*at = l;
	}
	pthread_mutex_unlock(&looks_lock);
	if (busy) {
		free(l);
		return -ETIMEDOUT;
	}
	l->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (l->fd < 0) {
		err = -errno;
		size_look_free(l);
		return err;
	}
	l->call.run = size_look_run;
	l->call.late = size_look_late;
	l->call.lane.mark = UNDER_WAY_NOTHING;
	if (!library_call(&l->call, LOOK_MS))
		return -ETIMEDOUT;
	err = l->err;
	*bytes = l->bytes;
	size_look_free(l);
	return err;
}

void store_size_fini(struct store_look **at)
{
	pthread_mutex_lock(&looks_lock);
	if (*at)
		(*at)->at = NULL;
	*at = NULL;
	pthread_mutex_unlock(&looks_lock);
}
