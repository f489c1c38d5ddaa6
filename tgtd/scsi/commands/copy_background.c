/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A copy that runs on after its command was answered (SPC-4 5.17.3, background). It is a command
 * like any other to the device server, on an I_T nexus of its own that speaks for the same
 * initiator port; this is its transport, with nobody at the other end. It outlives the session that
 * asked for it; deleting the logical unit or the target, and resets, end it.
 */
#include <stdlib.h>
#include <strings.h>
#include "tgtd/scsi/commands/xcopy.h"

struct waiter { /* task management waits for its end */
	struct list link;
	void (*done)(void *arg);
	void *arg;
};

struct background {
	struct scsi_cmd cmd;
	struct scsi_nexus nexus;
	uint8_t cdb[16];
	struct list waiters;
	uint64_t id; /* the nexus' own, whose place it gives back */
	struct list link; /* all of them */
};

/* They may take hours, over a store that is slow or hangs. So one initiator cannot have all, nor
 * can those of one target. */
#define BACKGROUND_MAX 64 /* in all */
#define BACKGROUND_TARGET_MAX 32
#define BACKGROUND_INITIATOR_MAX 16
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf */
static struct list all = LIST_INIT(all);

/* Is there room for another one of @n's initiator? Then @bg is in. */
static bool take_place(struct background *bg, const struct scsi_nexus *n)
{
	unsigned count = 0, same_target = 0, same_initiator = 0;
	const struct background *other;
	bool room;

	list_init(&bg->link);
	pthread_mutex_lock(&all_lock);
	list_for_each(other, &all, link) {
		count++;
		same_target += other->nexus.target == n->target;
		same_initiator += !strcasecmp(other->nexus.iqn, n->iqn);
	}
	room = count < BACKGROUND_MAX && same_target < BACKGROUND_TARGET_MAX &&
	       same_initiator < BACKGROUND_INITIATOR_MAX;
	if (room)
		list_add_tail(&all, &bg->link);
	pthread_mutex_unlock(&all_lock);
	return room;
}

static void never(struct scsi_cmd *cmd, struct scsi_seg *seg)
{
	(void)cmd;
	(void)seg;
	BUG("a background copy has its parameter list, and returns nothing");
}

static void gone(void *arg)
{
	struct background *bg = arg;

	pthread_mutex_lock(&all_lock);
	list_del(&bg->link);
	pthread_mutex_unlock(&all_lock);
	free(bg);
}

static void complete(struct scsi_cmd *cmd)
{
	struct background *bg = container_of(cmd, struct background, cmd);

	scsi_cmd_end(cmd);
	scsi_cmd_fini(cmd);
	while (!list_empty(&bg->waiters)) {
		struct waiter *w = list_first(&bg->waiters, struct waiter, link);

		list_del(&w->link);
		w->done(w->arg);
		free(w);
	}
	bg->nexus.id = bg->id;
	scsi_nexus_detach(&bg->nexus, gone, bg);
}

static void background_copy_abort_all(struct scsi_nexus *nexus, struct scsi_lu *lu, bool tas,
				      void (*done)(void *arg), void *arg)
{
	struct background *bg = container_of(nexus, struct background, nexus);
	struct waiter *w = scsi_cmd_on(&bg->cmd, lu) ? malloc(sizeof(*w)) : NULL;

	if (scsi_cmd_on(&bg->cmd, lu))
		scsi_cmd_abort(&bg->cmd, tas);
	if (!w) { /* not concerned; or no memory, and then it ends a little later */
		done(arg);
		return;
	}
	w->done = done;
	w->arg = arg;
	list_init(&w->link);
	list_add_tail(&bg->waiters, &w->link);
}

static void background_copy_drop(struct scsi_nexus *nexus)
{
	scsi_cmd_abort(&container_of(nexus, struct background, nexus)->cmd, false);
}

static const struct scsi_transport_ops background_ops = {
	.name = "copy",
	.fetch = never,
	.send = never,
	.complete = complete,
	.abort_all = background_copy_abort_all,
	.drop = background_copy_drop,
};

struct scsi_cmd *scsi_copy_background(struct scsi_cmd *from)
{
	struct background *bg = calloc(1, sizeof(*bg));
	const struct scsi_nexus *n = from->nexus;
	struct scsi_cmd *cmd;

	if (!bg)
		return NULL;
	bg->nexus.target = n->target;
	memcpy(bg->nexus.iqn, n->iqn, sizeof(n->iqn));
	if (!take_place(bg, n)) {
		free(bg);
		return NULL;
	}
	list_init(&bg->waiters);
	bg->nexus.loop = n->loop;
	bg->nexus.ops = &background_ops;
	bg->nexus.rtpi = n->rtpi;
	memcpy(bg->nexus.initiator, n->initiator, sizeof(n->initiator));
	memcpy(bg->nexus.address, n->address, sizeof(n->address));
	if (scsi_nexus_attach(&bg->nexus) < 0) {
		gone(bg);
		return NULL;
	}
	bg->id = bg->nexus.id;
	bg->nexus.id = n->id; /* results are kept for who asked */
	cmd = &bg->cmd;
	scsi_cmd_init(cmd);
	cmd->itl = scsi_itl_get(&bg->nexus, from->lu->lun);
	if (!cmd->itl || cmd->itl->lu != from->lu) {
		cmd->itl = NULL;
		scsi_cmd_fini(cmd);
		bg->nexus.id = bg->id;
		scsi_nexus_detach(&bg->nexus, gone, bg);
		return NULL;
	}
	scsi_itl_count(cmd->itl, 1);
	cmd->nexus = &bg->nexus;
	cmd->lu = from->lu;
	cmd->op = from->op;
	cmd->lun = from->lun;
	memcpy(bg->cdb, from->cdb, sizeof(bg->cdb));
	cmd->cdb = bg->cdb;
	cmd->cdb_len = 16;
	cmd->attr = SCSI_ATTR_SIMPLE;
	cmd->state = CMD_ACTIVE;
	cmd->heap = from->heap;
	cmd->heap_len = from->heap_len;
	cmd->heap_got = from->heap_got;
	from->heap = NULL;
	from->heap_len = from->heap_got = 0;
	return cmd;
}
