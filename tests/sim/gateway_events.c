/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The queue of events, clocks, chance. Included by test_gateway.c. */
#include <stdarg.h>
#include "tests/sim/gateway_world.h"

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

static void step_note(unsigned unit, char step)
{
	const size_t n = strlen(W.steps);

	if (!unit && n + 1 < sizeof(W.steps))
		W.steps[n] = step;
}

static uint64_t local_time(unsigned gate)
{
	return W.gate[gate].offset + (uint64_t)((double)W.now * W.gate[gate].rate);
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
	memset(e, 0, offsetof(struct event, data));
	e->fn = fn;
	e->gate = (uint8_t)gate;
	e->life = gate < GATES ? W.gate[gate].life : 0;
	e->at = W.now + delay;
	event_push(e);
	return e;
}

static void event_free(struct event *e)
{
	e->next = W.spare;
	W.spare = e;
}

static void event_again(struct event *e, uint64_t delay)
{
	e->at = W.now + delay;
	e->again = true;
	event_push(e);
}

static void event_run(struct event *e)
{
	e->again = false;
	e->fn(e);
	if (!e->again)
		event_free(e);
}

static bool event_step(void)
{
	struct event *e;
	struct gate *g;

	if (!W.heaped)
		return false;
	e = event_pop();
	W.now = e->at;
	if (e->gate >= GATES) {
		event_run(e);
		return true;
	}
	g = &W.gate[e->gate];
	if (e->life != g->life) {
		event_free(e);
	} else if (g->stopped) { /* it comes when the process goes on */
		e->next = NULL;
		*g->late_end = e;
		g->late_end = &e->next;
	} else {
		const unsigned gate = e->gate;

		event_run(e);
		gate_check(gate);
	}
	return true;
}

static void gate_wakes(unsigned gate)
{
	struct gate *g = &W.gate[gate];
	struct event *e = g->late, *next;

	g->stopped = false;
	g->late = NULL;
	g->late_end = &g->late;
	for (; e; e = next) {
		next = e->next;
		e->at = W.now + world_random(MS); /* all threads go on at once */
		event_push(e);
	}
}

static void events_free(void)
{
	struct event *e;

	for (unsigned g = 0; g < GATES; g++)
		if (W.gate[g].stopped)
			gate_wakes(g);
	while (W.heaped)
		event_free(W.heap[--W.heaped]);
	while ((e = W.spare)) {
		W.spare = e->next;
		free(e);
	}
}
