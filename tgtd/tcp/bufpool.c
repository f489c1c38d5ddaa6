/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Receive buffers and send batches of a thread. A connection has its own while bytes are in flight
 * and gives them back when it is idle, so a thousand idle connections hold none and the one at work
 * finds memory that is warm and near. They are freed when the thread ends.
 */
#include <pthread.h>
#include <stdlib.h>

#include "tgtd/tcp/conn.h"

#define KEEP 32 /* more of them than that are given back to the system */

static __thread struct {
	struct tcp_rx_buf *rx;
	struct tcp_tx_batch *tx;
	unsigned nrx, ntx;
	bool registered;
} cache;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void thread_end(void *unused)
{
	(void)unused;
	while (cache.rx) {
		struct tcp_rx_buf *b = cache.rx;

		cache.rx = b->next;
		free(b);
	}
	while (cache.tx) {
		struct tcp_tx_batch *b = cache.tx;

		cache.tx = b->next;
		free(b);
	}
	cache.nrx = cache.ntx = 0;
	cache.registered = false;
}

static void make_key(void)
{
	BUG_ON(pthread_key_create(&key, thread_end));
}

static void *fresh(size_t size)
{
	void *p;

	if (!cache.registered) {
		pthread_once(&once, make_key);
		pthread_setspecific(key, &cache);
		cache.registered = true;
	}
	return posix_memalign(&p, 4096, size) ? NULL : p;
}

struct tcp_rx_buf *tcp_rx_buf_get(void)
{
	struct tcp_rx_buf *b = cache.rx;

	if (!b)
		return fresh(sizeof(*b));
	cache.rx = b->next;
	cache.nrx--;
	return b;
}

void tcp_rx_buf_put(struct tcp_rx_buf *b)
{
	if (cache.nrx >= KEEP || !cache.registered) {
		free(b);
		return;
	}
	b->next = cache.rx;
	cache.rx = b;
	cache.nrx++;
}

struct tcp_tx_batch *tcp_tx_batch_get(void)
{
	struct tcp_tx_batch *b = cache.tx;

	if (b) {
		cache.tx = b->next;
		cache.ntx--;
	} else {
		b = fresh(sizeof(*b));
		if (!b)
			return NULL;
	}
	list_init(&b->pdus);
	b->n = b->pos = b->nheaders = 0;
	b->bytes = 0;
	return b;
}

void tcp_tx_batch_put(struct tcp_tx_batch *b)
{
	if (cache.ntx >= KEEP || !cache.registered) {
		free(b);
		return;
	}
	b->next = cache.tx;
	cache.tx = b;
	cache.ntx++;
}
