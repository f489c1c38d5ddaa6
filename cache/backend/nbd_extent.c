/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What an nbd server has of a range: "base:allocation". See nbd_link.h. */
#include <libnbd.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include "cache/backend/nbd_link.h"

#define EXTENT_S 10 /* that somebody waits for the answer */

/* Who asks may give up: the last of the two frees it. */
struct nbd_ask {
	struct loop_msg msg;
	struct nbd_link *l;
	pthread_mutex_t lock;
	pthread_cond_t told;
	unsigned users;
	bool over;
	int err;
	uint64_t offset, len, run;
	bool hole;
};

static void nbd_ask_put(struct nbd_ask *a, bool over)
{
	pthread_mutex_lock(&a->lock);
	bool last = --a->users == 0;

	if (over) {
		a->over = true;
		pthread_cond_signal(&a->told);
	}
	pthread_mutex_unlock(&a->lock);
	if (!last)
		return;
	pthread_cond_destroy(&a->told);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

/* What a server says twice of one range it contradicts: the first word counts. */
static int nbd_extents(void *arg, const char *context, uint64_t offset, uint32_t *entries, size_t n,
		       int *error)
{
	struct nbd_ask *a = arg;

	(void)offset;
	if (*error || a->run || n < 2 || strcmp(context, NBD_CONTEXT) != 0)
		return 0;
	a->hole = entries[1] & LIBNBD_STATE_HOLE;
	for (size_t i = 0; i + 1 < n && !(entries[i + 1] & LIBNBD_STATE_HOLE) == !a->hole; i += 2)
		a->run += entries[i];
	return 0;
}

static int nbd_extents_said(void *arg, int *error)
{
	struct nbd_ask *a = arg;

	a->err = *error ? -EIO : 0;
	return 1;
}

static void nbd_extents_over(void *arg)
{
	nbd_ask_put(arg, true);
}

static void nbd_ask_server(struct loop_msg *msg)
{
	struct nbd_ask *a = container_of(msg, struct nbd_ask, msg);
	struct nbd_link *l = a->l;

	if (!l->h) {
		nbd_ask_put(a, true);
		return;
	}
	(void)nbd_aio_block_status(l->h, a->len, a->offset,
				   (nbd_extent_callback){ .callback = nbd_extents, .user_data = a },
				   (nbd_completion_callback){ .callback = nbd_extents_said,
							      .user_data = a,
							      .free = nbd_extents_over },
				   0);
	nbd_link_settle(l);
}

/* What the answer says of @len bytes: of nothing, that there may be data everywhere. */
static void nbd_ask_says(const struct nbd_ask *a, uint64_t len, enum blk_extent *what,
			 uint64_t *run)
{
	*what = a->run && a->hole ? BLK_EXTENT_DEALLOCATED : BLK_EXTENT_MAPPED;
	*run = a->run ? MIN(len, a->run) : len;
}

int nbd_link_extent(struct nbd_link *l, uint64_t offset, uint64_t len, enum blk_extent *what,
		    uint64_t *run)
{
	struct timespec until;
	struct nbd_ask *a;
	int err = 0;

	*what = BLK_EXTENT_MAPPED;
	*run = len;
	a = l->export.extents ? calloc(1, sizeof(*a)) : NULL;
	if (!a)
		return l->export.extents ? -ENOMEM : 0;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->told, NULL);
	a->msg.handle = nbd_ask_server;
	a->users = 2;
	a->l = l;
	a->err = -EIO;
	a->offset = offset;
	a->len = MIN(len, NBD_PIECE_MAX);
	loop_post(l->loop, &a->msg);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += EXTENT_S;
	pthread_mutex_lock(&a->lock);
	while (!a->over && !err)
		err = -pthread_cond_timedwait(&a->told, &a->lock, &until);
	if (a->over)
		err = a->err;
	if (!err)
		nbd_ask_says(a, len, what, run);
	pthread_mutex_unlock(&a->lock);
	nbd_ask_put(a, false);
	return err;
}
