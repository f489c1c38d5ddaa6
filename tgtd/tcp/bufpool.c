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

static void rx_free(struct tcp_rx_buf *b)
{
	if (!iscsi_flight_room_back(FLIGHT_RX, b))
		free(b);
}

static void tx_free(struct tcp_tx_batch *b)
{
	if (!iscsi_flight_room_back(FLIGHT_TX, b))
		free(b);
}

static void thread_end(void *unused)
{
	(void)unused;
	while (cache.rx) {
		struct tcp_rx_buf *b = cache.rx;

		cache.rx = b->next;
		rx_free(b);
	}
	while (cache.tx) {
		struct tcp_tx_batch *b = cache.tx;

		cache.tx = b->next;
		tx_free(b);
	}
	cache.nrx = cache.ntx = 0;
	cache.registered = false;
}

static void make_key(void)
{
	BUG_ON(pthread_key_create(&key, thread_end));
}

/* Where it outlives the process, if there is such memory. */
static void *fresh(enum flight_room kind, size_t size)
{
	void *p;

	if (!cache.registered) {
		pthread_once(&once, make_key);
		pthread_setspecific(key, &cache);
		cache.registered = true;
	}
	p = iscsi_flight_room(kind);
	return p || !posix_memalign(&p, 4096, size) ? p : NULL;
}

struct tcp_rx_buf *tcp_rx_buf_get(void)
{
	struct tcp_rx_buf *b = cache.rx;

	if (!b)
		return fresh(FLIGHT_RX, sizeof(*b));
	cache.rx = b->next;
	cache.nrx--;
	return b;
}

void tcp_rx_buf_put(struct tcp_rx_buf *b)
{
	if (cache.nrx >= KEEP || !cache.registered) {
		rx_free(b);
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
		b = fresh(FLIGHT_TX, sizeof(*b));
		if (!b)
			return NULL;
	}
	list_init(&b->pdus);
	b->log.total = b->log.moving = 0;
	b->log.n = b->pos = b->log.nheaders = 0;
	b->bytes = 0;
	b->own = NULL;
	return b;
}

void tcp_tx_batch_put(struct tcp_tx_batch *b)
{
	if (cache.ntx >= KEEP || !cache.registered) {
		tx_free(b);
		return;
	}
	b->next = cache.tx;
	cache.tx = b;
	cache.ntx++;
}
