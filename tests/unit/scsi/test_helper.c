/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Work that may block: what is about one store is done in order, and holds up nobody else. */
#include <stdatomic.h>
#include <unistd.h>
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"

#define MANY 512 /* more than there are lanes: some of them hold up any lane that hashes to */

static _Atomic bool wakes;
static bool done;
static unsigned left;

static void hang(struct scsi_work *w)
{
	(void)w;
	while (!atomic_load(&wakes))
		usleep(1000);
}

static void pass(struct scsi_work *w)
{
	(void)w;
}

static void hung_over(struct scsi_work *w)
{
	(void)w;
	left--;
}

static void passed(struct scsi_work *w)
{
	(void)w;
	done = true;
}

/* Whatever stores hang: what stands in for one of them is there. */
START_TEST(no_store_waits_for_none)
{
	static struct scsi_work hangs[MANY];
	struct scsi_work w = { .key = scsi_work_key(NULL), .work = pass, .done = passed };
	struct host h;

	host_open(&h, "8m", 512);
	for (unsigned i = 0; i < MANY; i++) {
		hangs[i] = (struct scsi_work){
			.key = i + 1, .home = h.loop, .work = hang, .done = hung_over
		};
		left++;
		scsi_helper_run(&hangs[i]);
	}
	w.home = h.loop;
	scsi_helper_run(&w);
	ck_assert(host_wait(&h, &done));
	ck_assert_uint_eq(left, MANY);
	atomic_store(&wakes, true);
	while (left)
		host_steps(&h, 1);
	host_close(&h);
}
END_TEST

UNIT_MAIN("helper", 30, no_store_waits_for_none)
