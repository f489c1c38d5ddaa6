/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Does what leads to a store by its name still lead to it? An administrator may have put another
 * file there, and what was opened is served. Nobody tells us, so each unit's name is looked at when
 * somebody asks about it, once a second at most.
 *
 * stat() of a name whose server is dead hangs. So it is a blocking call of a lane of its own, which
 * has copies of all that it is about: the unit may go meanwhile. The pool is that for libraries,
 * since the end of the daemon waits for those for two seconds only. Who asks waits for the answers
 * for NAMES_WAIT_NS; then he has those of the last look. What has not been answered by then is
 * stuck: it costs its thread, and no other name on that file system is looked at until it is over.
 *
 * All on the main loop, but for name_run().
 */
#include <stdlib.h>
#include <stdio.h>
#include <sys/stat.h>

#include "cache/backend/store_id.h"
#include "cache/backend/store_under_way.h"
#include "events/bug.h"
#include "events/clock.h"
#include "events/log.h"
#include "events/offload.h"
#include "tgtd/admin/admin_int.h"

#define NAMES_WAIT_NS (250 * NSEC_PER_MSEC)
#define NAMES_FRESH_NS NSEC_PER_SEC
#define NAMES_AT_ONCE 8 /* that are not stuck */

/* One look at one name. */
struct name_look {
	struct list link; /* names.todo, .running or .stuck */
	struct offload_job job;
	struct offload_lane lane;
	uint64_t number, began_ns;
	uint32_t tid, lun;
	int err; /* 0, ESTALE: another store's; or what stat() said */
	char store_id[BLK_STORE_ID_MAX];
	char path[];
};

/* A request waits for the looks that there were when it came. */
struct names_wait {
	struct list link;
	struct timer timer;
	uint64_t number; /* of the last of these */
	struct adm_call *call;
	enum adm_status (*then)(struct adm_call *call);
};

static struct {
	struct list todo, running, stuck; /* name_look, each in order of their numbers */
	struct list waits;		  /* names_wait */
	unsigned nrunning;
	uint64_t number;
} names = { LIST_INIT(names.todo), LIST_INIT(names.running), LIST_INIT(names.stuck),
	    LIST_INIT(names.waits), 0, 0 };

/* ---- what is known --------------------------------------------------------------------------- */

const char *names_say(const struct adm_lu *lu, char text[NAMES_TEXT])
{
	if (!lu->name_err)
		return NULL;
	if (lu->name_err == ESTALE)
		snprintf(text, NAMES_TEXT, "is another store by now: what was opened is served");
	else
		snprintf(text, NAMES_TEXT,
			 "is not there by this name any more (%s): what was opened is served",
			 strerror(lu->name_err));
	return text;
}

void names_warn(struct adm_call *call, const struct adm_lu *lu)
{
	char text[NAMES_TEXT];

	if (names_say(lu, text))
		warn_unlogged(call, "target %u LUN %u: %.160s: %s", lu->target->tid, lu->lun,
			      lu->path, text);
}

void names_forget(struct adm_lu *lu)
{
	lu->name_look = NULL;
	lu->name_err = 0;
	lu->name_ns = 0;
}

static void name_found(struct adm_lu *lu, int err)
{
	char text[NAMES_TEXT];

	if (err == EACCES || err == EPERM)
		err = 0; /* for the administrator to see (tgtd --user) */
	if (err == lu->name_err)
		return;
	lu->name_err = err;
	if (names_say(lu, text))
		log_warn("%s: %s", lu->path, text);
	else
		log_notice("%s: is the store again that was opened", lu->path);
}

/* ---- looking --------------------------------------------------------------------------------- */

/* On a thread for blocking calls. */
static void name_run(struct offload_job *job)
{
	struct name_look *l = container_of(job, struct name_look, job);
	char id[BLK_STORE_ID_MAX];
	struct stat st;

	ASSERT(!loop_current());
	if (stat(l->path, &st)) {
		l->err = errno;
		return;
	}
	store_id_of("/sys", &st, id);
	l->err = strcmp(id, l->store_id) ? ESTALE : 0;
}

static void names_go_on(void);

static struct adm_lu *lu_of(const struct name_look *l)
{
	struct adm_target *t = registry_target(l->tid);
	struct adm_lu *lu = t ? registry_lu(t, l->lun) : NULL;

	return lu && lu->name_look == l ? lu : NULL;
}

static void name_done(struct offload_job *job)
{
	struct name_look *l = container_of(job, struct name_look, job);
	struct adm_lu *lu = lu_of(l);

	if (lu) {
		lu->name_look = NULL;
		lu->name_ns = clock_now_ns();
		name_found(lu, l->err);
	}
	names.nrunning -= l->began_ns != 0;
	list_del(&l->link);
	free(l);
	names_go_on();
}

/* Are both on one file system, as far as their identities say? Any device is one. */
static bool is_beside(const struct name_look *a, const struct name_look *b)
{
	const char *end = strrchr(a->store_id, ':');
	const size_t n = strncmp(a->store_id, "file:", 5) ? strlen(a->store_id) + 1 :
							   (size_t)(end - a->store_id) + 1;

	return !strncmp(a->store_id, b->store_id, n);
}

static bool name_will_hang(const struct name_look *l)
{
	const struct name_look *s;

	list_for_each(s, &names.stuck, link)
		if (is_beside(s, l))
			return true;
	return false;
}

static void start_some(void)
{
	while (!list_empty(&names.todo) && names.nrunning < NAMES_AT_ONCE) {
		struct name_look *l = list_first(&names.todo, struct name_look, link);
		struct adm_lu *lu = lu_of(l);

		list_del(&l->link);
		if (!lu || name_will_hang(l)) {
			if (lu)
				lu->name_look = NULL; /* who asks next looks again */
			free(l);
			continue;
		}
		list_add_tail(&names.running, &l->link);
		names.nrunning++;
		l->began_ns = clock_now_ns();
		l->lane.mark = UNDER_WAY_NOTHING;
		offload_submit_library(&l->lane, &l->job, adm.conf.main, name_run, name_done);
	}
}

static bool are_over(uint64_t number)
{
	const struct name_look *r = list_first_or_null(&names.running, struct name_look, link),
			       *q = list_first_or_null(&names.todo, struct name_look, link);

	return (!r || r->number > number) && (!q || q->number > number);
}

static void wait_over(struct names_wait *w)
{
	struct adm_call *call = w->call;
	enum adm_status (*const then)(struct adm_call *call) = w->then;
	enum adm_status status;

	loop_timer_cancel(adm.conf.main, &w->timer);
	list_del(&w->link);
	free(w);
	status = then(call);
	if (status != ADM_PENDING)
		adm_call_done(call, status);
}

static void names_go_on(void)
{
	struct list ready = LIST_INIT(ready);
	struct names_wait *w, *next;

	start_some();
	list_for_each_safe(w, next, &names.waits, link)
		if (are_over(w->number)) {
			list_del(&w->link);
			list_add_tail(&ready, &w->link);
		}
	while ((w = list_first_or_null(&ready, struct names_wait, link)))
		wait_over(w);
}

/* He has waited for long enough; whoever hangs does so. */
static void wait_late(struct timer *t)
{
	struct names_wait *w = container_of(t, struct names_wait, timer);
	const uint64_t now = clock_now_ns();
	struct name_look *l, *next;

	list_for_each_safe(l, next, &names.running, link) {
		if (now - l->began_ns < NAMES_WAIT_NS / 2)
			continue;
		list_del(&l->link);
		list_add_tail(&names.stuck, &l->link);
		names.nrunning--;
		l->began_ns = 0;
	}
	wait_over(w);
	names_go_on();
}

/* Has it a name that is worth a look? No memory: then not this time. @scsi is not being deleted:
 * the store of one that is may have gone. */
static void want_look(const struct adm_target *t, struct scsi_lu *scsi, uint64_t now)
{
	struct scsi_lu_info info;
	struct name_look *l;
	struct adm_lu *lu;
	size_t len;

	scsi_lu_get_info(scsi, &info);
	lu = t ? registry_lu(t, info.conf.lun) : NULL;
	if (!lu || !lu->path || lu->stand_in || lu->name_look ||
	    (lu->name_ns && now - lu->name_ns < NAMES_FRESH_NS) || !info.conf.blk ||
	    !store_id_by_stat(info.conf.blk->store_id))
		return;
	len = strlen(lu->path) + 1;
	l = calloc(1, sizeof(*l) + len);
	if (!l)
		return;
	memcpy(l->path, lu->path, len);
	memcpy(l->store_id, info.conf.blk->store_id, sizeof(l->store_id));
	l->tid = t->tid;
	l->lun = lu->lun;
	l->number = ++names.number;
	lu->name_look = l;
	list_add_tail(&names.todo, &l->link);
}

enum adm_status names_look(struct adm_call *call, struct adm_lu *only,
			   enum adm_status (*then)(struct adm_call *call))
{
	const uint64_t now = clock_now_ns();
	struct names_wait *w;

	ASSERT_ON_LOOP(adm.conf.main);
	if (only)
		want_look(only->target, only->scsi, now);
	for (struct scsi_target *t = scsi_target_next(NULL); t && !only; t = scsi_target_next(t))
		for (struct scsi_lu *lu = scsi_lu_next(t, NULL); lu; lu = scsi_lu_next(t, lu))
			want_look(registry_target(scsi_target_tid(t)), lu, now);
	start_some();
	if (are_over(names.number) || !(w = calloc(1, sizeof(*w))))
		return then(call);
	w->number = names.number;
	w->call = call;
	w->then = then;
	timer_init(&w->timer, wait_late);
	list_add_tail(&names.waits, &w->link);
	loop_timer_arm(adm.conf.main, &w->timer, NAMES_WAIT_NS);
	return ADM_PENDING;
}

void names_stop(void)
{
	struct names_wait *w;
	struct name_look *l;

	while ((w = list_first_or_null(&names.waits, struct names_wait, link))) {
		struct adm_call *call = w->call;

		loop_timer_cancel(adm.conf.main, &w->timer);
		list_del(&w->link);
		free(w);
		adm_call_done(call, admin_refuse(call, ADM_INVALID_REQUEST,
						 "the daemon is shutting down"));
	}
	while ((l = list_first_or_null(&names.todo, struct name_look, link))) {
		list_del(&l->link);
		free(l);
	}
}
