/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See store_counter.h. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cache/backend/store_under_way_impl.h"
#include "events/kept.h"
#include "events/log.h"

#define PREFIX "counter/"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of who has which of ours */
static struct {
	struct loop *main;
	struct counted *counted; /* [COUNTERS]; NULL: there is no keeper */
	bool *taken;
	int *left; /* [COUNTERS] of the process before; -1: none */
} counters;

/* ---- ours ------------------------------------------------------------------------------------ */

static void counter_key(const struct store_counter *c, char key[KEPT_KEY_MAX + 1])
{
	snprintf(key, KEPT_KEY_MAX + 1, PREFIX "%u", (unsigned)(c->counted - counters.counted));
}

/* From here on it counts, so it is the keeper's before it counts anything. Nobody waits for the
 * keeper's answer: what it does not keep, and says so in the log, the next process takes for
 * something that is under way. */
static void counter_offer(struct store_counter *c)
{
	char key[KEPT_KEY_MAX + 1];
	int rc;

	counter_key(c, key);
	rc = kept_put_soon(key, c->fd);
	if (rc)
		log_debug("the keeper does not get %s: %s", key, strerror(-rc));
	c->kept = !rc;
}

/* On the main thread. */
static void counter_goes(struct loop_msg *m)
{
	struct store_counter *c = container_of(m, struct store_counter, drop);
	char key[KEPT_KEY_MAX + 1];

	counter_key(c, key);
	atomic_store(&c->counted->store, 0);
	atomic_store(&c->counted->asked, 0);
	if (c->kept) /* (one that stays counts for nobody) */
		(void)kept_drop_soon(key);
	close(c->fd);
	pthread_mutex_lock(&lock);
	counters.taken[c->counted - counters.counted] = false;
	pthread_mutex_unlock(&lock);
	free(c);
}

static struct counted *counter_take(void)
{
	uint32_t i = 0;

	pthread_mutex_lock(&lock);
	while (i < COUNTERS && counters.taken[i])
		i++;
	if (i < COUNTERS)
		counters.taken[i] = true;
	pthread_mutex_unlock(&lock);
	return i < COUNTERS ? &counters.counted[i] : NULL;
}

struct store_counter *store_counter_new(void)
{
	struct store_counter *c;

	if (!counters.counted)
		return NULL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->counted = c->fd < 0 ? NULL : counter_take();
	if (!c->counted) {
		if (c->fd >= 0)
			close(c->fd);
		free(c);
		return NULL;
	}
	c->drop.handle = counter_goes;
	return c;
}

void store_counter_free(struct store_counter *c, const struct loop *loop)
{
	if (loop == counters.main) /* which is ending */
		counter_goes(&c->drop);
	else
		loop_post(counters.main, &c->drop);
}

void store_counter_for(struct store_counter *c, uint32_t mark)
{
	if (atomic_load_explicit(&c->counted->store, memory_order_relaxed) != mark)
		atomic_store(&c->counted->store, mark);
	if (!c->kept)
		counter_offer(c);
}

/* ---- another one's --------------------------------------------------------------------------- */

/* What an eventfd has counted, without taking it. False: it is none. */
static bool eventfd_count(int fd, uint64_t *count)
{
	static const char name[] = "eventfd-count:";
	char path[48], text[512], *at;
	ssize_t n;
	int info;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	info = open(path, O_RDONLY | O_CLOEXEC);
	if (info < 0)
		return false;
	n = read(info, text, sizeof(text) - 1);
	close(info);
	text[n < 0 ? 0 : n] = '\0';
	at = strstr(text, name);
	if (!at)
		return false;
	*count = strtoull(at + strlen(name), NULL, 16);
	return true;
}

/* 0 to COUNTERS - 1; COUNTERS: it is none of our keys. */
static uint32_t counter_number(const char *key)
{
	const char *text = key + strlen(PREFIX);
	char *end;
	unsigned long i;

	if (*text < '0' || *text > '9')
		return COUNTERS;
	i = strtoul(text, &end, 10);
	return *end || i >= COUNTERS ? COUNTERS : (uint32_t)i;
}

static void take_left(bool wanted)
{
	const char *key;
	unsigned at = 0;
	bool any = false;

	while ((key = kept_next(PREFIX, &at))) {
		const uint32_t i = counter_number(key);
		const int fd = kept_take(key);

		any = true;
		if (wanted && counters.left && i < COUNTERS && counters.left[i] < 0)
			counters.left[i] = fd;
		else
			kept_close(fd);
	}
	if (any) /* ours have these names, too */
		(void)kept_drop_all(PREFIX);
}

void counters_start(struct loop *main, struct book *ours, const struct book *before)
{
	if (before)
		counters.left = malloc(COUNTERS * sizeof(*counters.left));
	for (uint32_t i = 0; counters.left && i < COUNTERS; i++)
		counters.left[i] = -1;
	take_left(before);
	counters.taken = calloc(COUNTERS, sizeof(*counters.taken));
	counters.main = main;
	counters.counted = counters.taken ? ours->counted : NULL;
}

void counters_look(const struct book *before, bool busy[STORES])
{
	for (uint32_t i = 0; i < COUNTERS; i++) {
		const uint64_t asked = atomic_load(&before->counted[i].asked);
		const uint32_t store = atomic_load(&before->counted[i].store);
		uint64_t answered;

		if (!asked || !store || store > STORES || busy[store - 1])
			continue;
		/* (Of what it is not, or counts more, nobody knows what it has counted.) */
		busy[store - 1] = !counters.left || counters.left[i] < 0 ||
				  !eventfd_count(counters.left[i], &answered) || answered != asked;
	}
}

void counters_over(void)
{
	for (uint32_t i = 0; counters.left && i < COUNTERS; i++)
		if (counters.left[i] >= 0)
			kept_close(counters.left[i]);
	free(counters.left);
	counters.left = NULL;
}
