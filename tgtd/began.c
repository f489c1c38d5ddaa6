/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See began.h. */
#include <stdio.h>
#include <time.h>

#include "events/base.h"
#include "events/log.h"
#include "tgtd/began.h"

#define STEPS 16u

static struct {
	uint64_t wall, cpu; /* at the end of the last step */
	unsigned n;
	struct began_of {
		const char *name;
		uint64_t wall, cpu;
	} step[STEPS];
} began;

static uint64_t began_read(clockid_t clock)
{
	struct timespec t = { 0 };

	(void)clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static unsigned began_tenths(uint64_t ns)
{
	return (unsigned)((ns + NSEC_PER_MSEC / 20) / (NSEC_PER_MSEC / 10));
}

void began_main(void)
{
	began.wall = began_read(CLOCK_MONOTONIC);
	began_step("program"); /* how long that took nobody has seen */
}

void began_anew(void)
{
	began.n = 0;
	began.wall = began_read(CLOCK_MONOTONIC);
	began.cpu = began_read(CLOCK_PROCESS_CPUTIME_ID);
}

void began_step(const char *name)
{
	const uint64_t wall = began_read(CLOCK_MONOTONIC),
		       cpu = began_read(CLOCK_PROCESS_CPUTIME_ID);

	if (began.n < STEPS)
		began.step[began.n++] =
			(struct began_of){ name, wall - began.wall, cpu - began.cpu };
	began.wall = wall;
	began.cpu = cpu;
}

void began_serves(void)
{
	uint64_t wall = 0, cpu = 0;
	char text[512] = "";
	size_t len = 0;

	for (unsigned i = 0; i < began.n && len < sizeof(text); i++) {
		const struct began_of *s = &began.step[i];
		const unsigned w = began_tenths(s->wall), c = began_tenths(s->cpu);

		wall += s->wall;
		cpu += s->cpu;
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s %s %u.%u (%u.%u)",
					i ? "," : "", s->name, w / 10, w % 10, c / 10, c % 10);
	}
	log_info("the start took %u.%u ms (%u.%u of a processor):%s", began_tenths(wall) / 10,
		 began_tenths(wall) % 10, began_tenths(cpu) / 10, began_tenths(cpu) % 10, text);
}
