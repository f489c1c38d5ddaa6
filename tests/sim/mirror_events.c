/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The queue of events, and chance. Included by test_mirror.c. */
#include <stdarg.h>
#include "tests/sim/mirror_world.h"

static uint64_t world_random(uint64_t n)
{
	uint64_t z = (W.rng += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (z ^ (z >> 31)) % n;
}

static bool world_chance(unsigned percent)
{
	return world_random(100) < percent;
}

static void world_says(const char *format, ...)
{
	va_list ap;

	if (!W.trace)
		return;
	printf("# %9.4f ", (double)W.now / 1e9);
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	printf("\n");
}

/* The first thing that is wrong ends the seed. */
static void world_fails(const char *format, ...)
{
	va_list ap;

	if (*W.failed)
		return;
	va_start(ap, format);
	vsnprintf(W.failed, sizeof(W.failed), format, ap);
	va_end(ap);
	world_says("WRONG: %s", W.failed);
}

static bool event_before(const struct event *a, const struct event *b)
{
	return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static void event_push(struct event *e)
{
	unsigned i = W.heaped++;

	if (W.heaped >= ARRAY_SIZE(W.heap)) {
		fprintf(stderr, "too many events\n");
		abort();
	}
	e->order = ++W.order;
	for (; i && event_before(e, W.heap[(i - 1) / 2]); i = (i - 1) / 2)
		W.heap[i] = W.heap[(i - 1) / 2];
	W.heap[i] = e;
}

static struct event *event_pop(void)
{
	struct event *top = W.heap[0], *last = W.heap[--W.heaped];
	unsigned i = 0, k;

	for (; (k = 2 * i + 1) < W.heaped; i = k) {
		if (k + 1 < W.heaped && event_before(W.heap[k + 1], W.heap[k]))
			k++;
		if (!event_before(W.heap[k], last))
			break;
		W.heap[i] = W.heap[k];
	}
	W.heap[i] = last;
	return top;
}

static struct event *event_new(unsigned gate, void (*fn)(struct event *e), uint64_t delay)
{
	struct event *e = W.spare;

	if (e)
		W.spare = e->next;
	else
		e = malloc(sizeof(*e));
	memset(e, 0, sizeof(*e));
	e->fn = fn;
	e->gate = (uint8_t)gate;
	e->life = gate < GATES ? W.gate[gate].life : 0;
	e->at = W.now + delay;
	event_push(e);
	return e;
}

static void event_data(struct event *e, const void *data, size_t len)
{
	e->data = malloc(len);
	e->len = (uint32_t)len;
	memcpy(e->data, data, len);
}

static void event_free(struct event *e)
{
	free(e->data);
	e->data = NULL;
	e->next = W.spare;
	W.spare = e;
}

static void event_step(void)
{
	struct event *e = event_pop();

	W.now = e->at;
	if (e->gate >= GATES || e->life == W.gate[e->gate].life)
		e->fn(e);
	event_free(e);
}

static void events_free(void)
{
	struct event *e;

	while (W.heaped)
		event_free(W.heap[--W.heaped]);
	while ((e = W.spare)) {
		W.spare = e->next;
		free(e);
	}
}
