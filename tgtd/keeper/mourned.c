/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See mourned.h. */
#include <sys/wait.h>
#include <unistd.h>

#include "events/bug.h"
#include "events/clock.h"
#include "events/log.h"
#include "tgtd/keeper/fdstore.h"
#include "tgtd/keeper/mourned.h"

#define LOOK_MS 20

static struct {
	unsigned n;
	struct mourned {
		struct worker worker;
		bool reaped;
		uint64_t since;
	} of[MOURNED_MAX];
} m;

bool mourned_may(void)
{
	return m.n < MOURNED_MAX;
}

void mourned_add(struct worker *w, bool reaped)
{
	ASSERT(mourned_may());
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
	fdstore_worker(-1);
	fdstore_mourn(m.n, w->tombstone);
	m.of[m.n++] = (struct mourned){ *w, reaped, clock_now_ns() };
	*w = (struct worker){ .fd = -1, .tombstone = -1 };
}

unsigned mourned_count(void)
{
	return m.n;
}

bool mourned_is(pid_t pid)
{
	for (unsigned i = 0; i < m.n; i++)
		if (m.of[i].worker.pid == pid)
			return true;
	return false;
}

static bool mourned_gone(struct mourned *one)
{
	if (!one->reaped)
		one->reaped = waitpid(one->worker.pid, NULL, WNOHANG) != 0;
	return one->reaped && launch_is_gone(&one->worker);
}

void mourned_look(void)
{
	for (unsigned i = 0; i < m.n;) {
		struct mourned *one = &m.of[i];

		if (!mourned_gone(one)) {
			i++;
			continue;
		}
		log_notice("keeper: worker %d has gone, %llu ms after another one has begun",
			   one->worker.pid,
			   (unsigned long long)((clock_now_ns() - one->since) / NSEC_PER_MSEC));
		launch_forget(&one->worker);
		*one = m.of[--m.n];
		fdstore_mourn(m.n, -1);
		if (i < m.n)
			fdstore_mourn(i, one->worker.tombstone);
	}
}

int mourned_wait_ms(void)
{
	return m.n ? LOOK_MS : -1;
}
