/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Event threads of LUs: made, named, placed, given up. With conf.central_events one serves all, and
 * what the LUs shall have is only remembered.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "events/bug.h"
#include "tgtd/admin/admin_int.h"

/* Of all threads but the first @keep. */
void places_release(struct adm_lu *lu, unsigned keep)
{
	ASSERT(lu->threads <= SCSI_LU_MAX_LOOPS);
	while (lu->threads > keep)
		placement_release(adm.conf.placement, PLACE_LU, lu->place[--lu->threads]);
}

/* A thread's name has 15 characters: of a long "<tid>:<lun>" the end goes, not what
 * tells one thread from another. */
static void loop_name_of(const struct adm_lu *lu, unsigned nr, char name[16])
{
	char which[12] = "";

	if (nr)
		snprintf(which, sizeof(which), ".%u", nr);
	snprintf(name, 16 - strlen(which), "lu-%u:%u", lu->target->tid, lu->lun);
	strcat(name, which);
}

/* The event thread "lu-<tid>:<lun>", or "lu-<tid>:<lun>.<nr>" for a further one. */
struct loop *lu_loop(const struct adm_lu *lu, unsigned nr, int *err)
{
	ASSERT_ON_LOOP(adm.conf.main);
	ASSERT(nr < SCSI_LU_MAX_LOOPS && err);
	char name[16];
	struct loop_conf conf = {
		.name = name,
		.node = lu->place[nr].node,
		.cpu = lu->place[nr].cpu,
		.spin_ns = adm.conf.lu_spin_ns,
	};
	struct loop *loop;

	if (adm.conf.central_events && adm.central)
		return adm.central;
	if (adm.conf.central_events)
		snprintf(name, sizeof(name), "events");
	else
		loop_name_of(lu, nr, name);
	loop = loop_create(&conf);
	if (!loop) {
		*err = -errno;
		return NULL;
	}
	*err = loop_start(loop);
	if (*err) {
		loop_destroy(loop);
		return NULL;
	}
	if (adm.conf.central_events)
		adm.central = loop;
	return loop;
}

void lu_loop_end(struct loop *loop)
{
	ASSERT(loop);
	if (loop != adm.central)
		loop_end(loop);
}

/* ---- the parameter `threads` ----------------------------------------------------------------- */

static unsigned threads_of(const char *value)
{
	char *end;
	unsigned long n = strtoul(value, &end, 10);

	return isdigit((unsigned char)*value) && !*end && n <= SCSI_LU_MAX_LOOPS ? (unsigned)n : 0;
}

bool apply_lu_threads_ok(const char *value)
{
	return threads_of(value) > 0;
}

/* With conf.central_events the number is only remembered: one thread serves all. */
static int thread_add(struct adm_lu *lu)
{
	unsigned nr = lu->threads;
	struct loop *loop = NULL;
	int err = 0;

	ASSERT(nr && nr < SCSI_LU_MAX_LOOPS);
	lu->place[nr] =
		placement_assign_beside(adm.conf.placement, PLACE_LU, lu->node_wish, lu->place, nr);
	if (!adm.conf.central_events && (loop = lu_loop(lu, nr, &err)))
		err = scsi_lu_add_loop(lu->scsi, loop, false);
	if (!err) {
		lu->threads++;
		return 0;
	}
	if (loop)
		lu_loop_end(loop);
	placement_release(adm.conf.placement, PLACE_LU, lu->place[nr]);
	return err;
}

enum adm_status apply_lu_threads(struct adm_call *call, struct adm_lu *lu, const char *value)
{
	unsigned want = threads_of(value), had = lu->threads;
	int err = 0;

	ASSERT_ON_LOOP(adm.conf.main);
	ASSERT(lu->scsi && had);
	if (!want)
		return admin_refuse(call, ADM_INVALID_REQUEST, "threads are 1 to %d, not '%s'",
				    SCSI_LU_MAX_LOOPS, value);
	while (!err && lu->threads < want)
		err = thread_add(lu);
	if (err)
		want = had;
	scsi_lu_keep_loops(lu->scsi, want);
	places_release(lu, want);
	return err ? refuse_errno(call, err, "event thread") : ADM_OK;
}

/* The event thread of conf.central_events, when no LU is left. */
void apply_stop_central(void)
{
	struct loop *loop = adm.central;

	adm.central = NULL;
	if (loop)
		loop_end(loop);
}
