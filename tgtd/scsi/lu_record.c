/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a logical unit tells the process that comes after this one, by the state journal: what
 * initiators have brought about, and what follows from the order in which it was configured. What
 * it is configured as, the admin side records beside it. One text a unit:
 *
 *     online 1
 *     ejected 0
 *     timestamp 1234                 only if SET TIMESTAMP has set it: milliseconds to add
 *     group 2 3                      port groups whose state an initiator has set
 *     feature persistent reservations
 *     ...                            lines of that feature (feature.h, ->record_locked)
 *
 * It is written under lu->lock, so the journal has states in the order in which the unit had them.
 */
#include <stdlib.h>
#include "tgtd/scsi/carried.h"
#include "tgtd/scsi/tpg.h"
#include "tgtd/state/journal.h"

#define FEATURE "feature "

static void unit_key(const struct scsi_lu *lu, char key[SCSI_LU_KEY])
{
	snprintf(key, SCSI_LU_KEY, "s/%u/%u", lu->target->tid, lu->lun);
}

static void put_groups_locked(const struct scsi_lu *lu, FILE *f)
{
	struct scsi_target *t = lu->target;

	pthread_mutex_lock(&t->tpg_lock);
	for (unsigned i = 0; i < t->tpgs.n; i++)
		if (lu->alua[i].status == ALUA_STATUS_EXPLICIT)
			fprintf(f, "group %u %u\n", t->tpgs.id[i], lu->alua[i].state);
	pthread_mutex_unlock(&t->tpg_lock);
}

/* The caller's; NULL: no memory. */
static char *record_text_locked(const struct scsi_lu *lu, size_t *len)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, len);

	if (!f)
		return NULL;
	fprintf(f, "online %d\nejected %d\n", lu->conf.online, lu->ejected);
	if (lu->timestamp_set)
		fprintf(f, "timestamp %lld\n", (long long)lu->timestamp_offset_ms);
	put_groups_locked(lu, f);
	scsi_features_record_locked(lu, f);
	if (fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}

int scsi_lu_commit(struct scsi_lu *lu, const struct journal_rec *recs, unsigned n)
{
	struct journal_rec *all;
	char key[SCSI_LU_KEY], *text;
	size_t len = 0;
	int err;

	if (!journal_is_on())
		return 0;
	all = calloc((size_t)n + 1, sizeof(*all));
	if (!all)
		return -ENOMEM;
	if (n)
		memcpy(all, recs, n * sizeof(*all));
	unit_key(lu, key);
	pthread_mutex_lock(&lu->lock);
	text = record_text_locked(lu, &len);
	all[n] = (struct journal_rec){ .key = key, .value = text, .len = len };
	err = text ? journal_commit(all, n + 1) : -ENOMEM;
	pthread_mutex_unlock(&lu->lock);
	free(text);
	free(all);
	return err;
}

void scsi_lu_record_locked(struct scsi_lu *lu)
{
	struct journal_rec rec = { 0 };
	char key[SCSI_LU_KEY], *text;
	int err;

	if (!journal_is_on())
		return;
	unit_key(lu, key);
	text = record_text_locked(lu, &rec.len);
	rec.key = key;
	rec.value = text;
	err = text ? journal_commit(&rec, 1) : -ENOMEM;
	free(text);
	if (err)
		log_ratelimited(LOG_LVL_ERROR,
				"scsi: target %u LUN %u: what has changed would not survive an end "
				"of this process: %s",
				lu->target->tid, lu->lun, strerror(-err));
}

bool scsi_lu_recorded(const struct scsi_lu *lu)
{
	char key[SCSI_LU_KEY], *text;
	size_t len;

	unit_key(lu, key);
	text = journal_get(key, &len);
	free(text);
	return text != NULL;
}

/* ---- the way back ---------------------------------------------------------------------------- */

/* A line of the unit's own. */
static bool take_line_locked(struct scsi_lu *lu, const char *line)
{
	unsigned id, state;
	long long ms;
	int v;

	if (sscanf(line, "online %d", &v) == 1) {
		lu->conf.online = v;
	} else if (sscanf(line, "ejected %d", &v) == 1) {
		lu->ejected = v;
	} else if (sscanf(line, "timestamp %lld", &ms) == 1) {
		lu->timestamp_offset_ms = ms;
		lu->timestamp_set = true;
	} else if (sscanf(line, "group %u %u", &id, &state) == 2) {
		return id <= UINT16_MAX && state < SCSI_ALUA_STATES &&
		       scsi_alua_set_locked(lu, (uint16_t)id, (uint8_t)state, NULL);
	} else {
		return false;
	}
	return true;
}

static bool take_lines_locked(struct scsi_lu *lu, char *text)
{
	char *line, *save = NULL;
	bool ok = true;

	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		ok &= take_line_locked(lu, line);
	return ok;
}

/* The feature whose lines @text begins with; they go on to the next one's, or the end. */
static bool take_feature_locked(struct scsi_lu *lu, char *text)
{
	char *lines = strchr(text, '\n');

	if (!lines)
		return false;
	*lines++ = 0;
	return scsi_features_restore_locked(lu, text, lines);
}

int scsi_lu_restore(struct scsi_lu *lu)
{
	char key[SCSI_LU_KEY], *text, *at, *next;
	size_t len;
	bool ok;

	unit_key(lu, key);
	text = journal_get(key, &len);
	if (!text)
		return 0;
	next = strstr(text, FEATURE);
	if (next)
		*next = 0;
	pthread_mutex_lock(&lu->lock);
	ok = take_lines_locked(lu, text);
	while (next) {
		at = next + sizeof(FEATURE) - 1;
		next = strstr(at, "\n" FEATURE);
		if (next)
			*++next = 0;
		ok &= take_feature_locked(lu, at);
	}
	scsi_lu_update_gate_locked(lu);
	pthread_mutex_unlock(&lu->lock);
	free(text);
	return ok ? 0 : -EBADMSG;
}

/* ---- a medium that is lost ------------------------------------------------------------------- */

static void found_locked(struct scsi_lu *lu)
{
	struct scsi_itl *itl;

	/* Who was told NOT READY hears that this is over. */
	if (!(lu->gate & GATE_LATE))
		scsi_ua_raise_locked(lu, NULL, UA_MEDIUM);
	list_for_each(itl, &lu->itls, link)
		scsi_carried_found_locked(itl);
}

void scsi_lu_set_lost(struct scsi_lu *lu, bool lost)
{
	const bool before = lu->lost;

	pthread_mutex_lock(&lu->lock);
	lu->lost = lost;
	if (before && !lost)
		found_locked(lu);
	scsi_lu_update_gate_locked(lu);
	pthread_mutex_unlock(&lu->lock);
}

void scsi_lu_set_late(struct scsi_lu *lu, bool late)
{
	pthread_mutex_lock(&lu->lock);
	lu->late = late;
	pthread_mutex_unlock(&lu->lock);
}

static bool release_held(struct scsi_nexus_visit *v, struct scsi_nexus *n, struct scsi_itl *itl)
{
	(void)v;
	(void)n;
	scsi_itl_run_held(itl);
	return true;
}

static void released(struct scsi_nexus_walk *all)
{
	free(all);
}

int scsi_lu_await_store(struct scsi_lu *lu)
{
	if (lu->release)
		return 0;
	lu->release = calloc(1, sizeof(*lu->release));
	if (!lu->release)
		return -ENOMEM;
	lu->release->target = lu->target;
	lu->release->lu = lu;
	lu->release->fn = release_held;
	lu->release->done = released;
	pthread_mutex_lock(&lu->lock);
	scsi_lu_gate_locked(lu, GATE_LATE, true);
	pthread_mutex_unlock(&lu->lock);
	return 0;
}

bool scsi_lu_release(struct scsi_lu *lu)
{
	/* A deletion aborts who waits, and might be over before the last visit. */
	if (!lu->release || lu->deleting)
		return false;
	pthread_mutex_lock(&lu->lock);
	scsi_lu_gate_locked(lu, GATE_LATE, false);
	pthread_mutex_unlock(&lu->lock);
	if (scsi_for_each_nexus(lu->release) < 0)
		log_error("scsi: target %u LUN %u: out of memory, some commands wait until they "
			  "are aborted",
			  lu->target->tid, lu->lun);
	lu->release = NULL;
	return true;
}
