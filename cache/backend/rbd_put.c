/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See rbd_put.h. */
#include <stdlib.h>
#include <string.h>
#include "cache/backend/rbd_image.h"
#include "cache/backend/rbd_put.h"
#include "cache/backend/rbd_store.h"

#define PUTS 32 /* under way at a time */

struct put {
	struct rbd_put *all;
	uint8_t data[];
};

static void put_fails(struct rbd_put *p, int err)
{
	int none = 0;

	atomic_compare_exchange_strong(&p->err, &none, err);
}

/* On a thread of librbd's. */
static void put_answered(rbd_completion_t c, void *arg)
{
	struct put *put = arg;
	struct rbd_put *p = put->all;
	const struct rbd_lib *lib = p->image->lib;
	const ssize_t ret = lib->rbd_aio_get_return_value(c);

	lib->rbd_aio_release(c);
	if (ret < 0)
		put_fails(p, (int)ret);
	free(put);
	sem_post(&p->room);
}

static void room_take(struct rbd_put *p)
{
	while (sem_wait(&p->room))
		; /* EINTR */
}

/* A place for one more, and its completion. NULL: it has failed. */
static struct put *put_new(struct rbd_put *p, const void *data, size_t len, rbd_completion_t *c)
{
	struct put *put = malloc(sizeof(*put) + len);
	int err = put ? p->image->lib->rbd_aio_create_completion(put, put_answered, c) : -ENOMEM;

	if (err) {
		put_fails(p, err);
		free(put);
		return NULL;
	}
	put->all = p;
	if (len)
		memcpy(put->data, data, len);
	room_take(p);
	return put;
}

/* What librbd has said of taking it. */
static void put_given(struct rbd_put *p, struct put *put, rbd_completion_t c, int err)
{
	if (!err)
		return;
	p->image->lib->rbd_aio_release(c);
	put_fails(p, err);
	free(put);
	sem_post(&p->room);
}

int rbd_put_begin(struct rbd_put *p, struct blk *blk)
{
	p->image = rbd_store_image(blk);
	if (!p->image)
		return -ENODEV;
	atomic_init(&p->err, 0);
	sem_init(&p->room, 0, PUTS);
	return 0;
}

uint64_t rbd_put_size(const struct rbd_put *p)
{
	return atomic_load(&p->image->size);
}

void rbd_put(struct rbd_put *p, uint64_t offset, const void *data, size_t len)
{
	rbd_completion_t c;
	struct put *put = put_new(p, data, len, &c);

	if (put)
		put_given(p, put, c,
			  p->image->lib->rbd_aio_write(p->image->image, offset, len,
						       (const char *)put->data, c));
}

void rbd_put_zeroes(struct rbd_put *p, uint64_t offset, uint64_t len)
{
	while (len && !atomic_load(&p->err)) {
		const uint64_t n = MIN(len, RBD_PIECE_MAX);
		rbd_completion_t c;
		struct put *put = put_new(p, NULL, 0, &c);

		if (put)
			put_given(p, put, c,
				  p->image->lib->rbd_aio_write_zeroes(p->image->image, offset, n, c,
								      0, 0));
		offset += n;
		len -= n;
	}
}

static void puts_answered(struct rbd_put *p)
{
	for (unsigned i = 0; i < PUTS; i++)
		room_take(p);
	for (unsigned i = 0; i < PUTS; i++)
		sem_post(&p->room);
}

int rbd_put_end(struct rbd_put *p)
{
	rbd_completion_t c;
	struct put *put;

	puts_answered(p);
	put = put_new(p, NULL, 0, &c);
	if (put)
		put_given(p, put, c, p->image->lib->rbd_aio_flush(p->image->image, c));
	puts_answered(p);
	sem_destroy(&p->room);
	return atomic_load(&p->err);
}
