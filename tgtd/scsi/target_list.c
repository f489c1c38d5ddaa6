/* SPDX-License-Identifier: GPL-2.0-or-later */
/* All targets, by ascending tid. They come and go on the main loop (target.c). */
#include "tgtd/scsi/lu.h"

pthread_mutex_t targets_lock = PTHREAD_MUTEX_INITIALIZER;
struct list targets = LIST_INIT(targets);

struct scsi_target *scsi_target_find_name(const char *name)
{
	struct scsi_target *t, *found = NULL;

	pthread_mutex_lock(&targets_lock);
	list_for_each(t, &targets, link)
		if (strcmp(t->name, name) == 0)
			found = t;
	pthread_mutex_unlock(&targets_lock);
	return found;
}

struct scsi_target *scsi_target_next(struct scsi_target *t)
{
	struct list *next;

	pthread_mutex_lock(&targets_lock);
	next = t ? t->link.next : targets.next;
	pthread_mutex_unlock(&targets_lock);
	return next == &targets ? NULL : list_entry(next, struct scsi_target, link);
}
