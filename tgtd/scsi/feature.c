/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The walks over the features' rows (feature.h). */
#include <string.h>
#include "tgtd/scsi/feature.h"

static const struct scsi_feature *rows;
static unsigned nrows;

void scsi_features_register(const struct scsi_feature *of, unsigned n)
{
	rows = of;
	nrows = n;
}

#define for_each_feature(f) for (const struct scsi_feature *f = rows; f < rows + nrows; f++)

int scsi_features_init(struct scsi_lu *lu)
{
	int err;

	for_each_feature(f)
		if (f->init && (err = f->init(lu)) < 0)
			return err;
	return 0;
}

void scsi_features_free(struct scsi_lu *lu)
{
	for_each_feature(f)
		if (f->free)
			f->free(lu);
}

bool scsi_features_wait(struct scsi_lu *lu, struct loop_msg *msg, struct loop *home)
{
	for_each_feature(f)
		if (f->wait && f->wait(lu, msg, home))
			return true; /* the others are asked when that is over */
	return false;
}

bool scsi_features_busy_locked(const struct scsi_lu *lu)
{
	for_each_feature(f)
		if (f->busy_locked && f->busy_locked(lu))
			return true;
	return false;
}

void scsi_features_new_store_locked(struct scsi_lu *lu)
{
	for_each_feature(f)
		if (f->new_store_locked)
			f->new_store_locked(lu);
}

void scsi_features_attach_locked(struct scsi_itl *itl)
{
	for_each_feature(f)
		if (f->attach_locked)
			f->attach_locked(itl);
}

void scsi_features_lost_locked(struct scsi_itl *itl)
{
	for_each_feature(f)
		if (f->lost_locked)
			f->lost_locked(itl);
}

bool scsi_features_reset_locked(struct scsi_lu *lu)
{
	bool flush = false;

	for_each_feature(f)
		if (f->reset_locked)
			flush |= f->reset_locked(lu);
	return flush;
}

void scsi_features_record_locked(const struct scsi_lu *lu, FILE *out)
{
	for_each_feature(f) {
		if (!f->record_locked)
			continue;
		fprintf(out, "feature %s\n", f->name);
		f->record_locked(lu, out);
	}
}

bool scsi_features_restore_locked(struct scsi_lu *lu, const char *name, char *lines)
{
	for_each_feature(f)
		if (f->restore_locked && strcmp(f->name, name) == 0)
			return f->restore_locked(lu, lines);
	return false;
}

int scsi_features_set_shared(struct scsi_lu *lu, const uint8_t *bytes, size_t len)
{
	for_each_feature(f)
		if (f->set_shared)
			return f->set_shared(lu, bytes, len);
	return len ? -EBADMSG : 0;
}

bool scsi_features_pass(struct scsi_cmd *cmd, uint32_t bits)
{
	for_each_feature(f)
		if ((bits & f->gate) && f->pass && !f->pass(cmd))
			return false;
	return true;
}

void scsi_features_passed(struct scsi_cmd *cmd, uint32_t bits)
{
	for_each_feature(f)
		if ((bits & f->gate) && f->passed)
			f->passed(cmd);
}

void scsi_features_ended(struct scsi_itl *itl, uint32_t bits)
{
	for_each_feature(f)
		if ((bits & f->gate) && f->ended)
			f->ended(itl);
}

uint32_t scsi_features_holds_locked(const struct scsi_itl *itl)
{
	uint32_t bits = 0;

	for_each_feature(f)
		if (f->holds_locked && f->holds_locked(itl))
			bits |= f->carried;
	return bits;
}

void scsi_features_hold_locked(struct scsi_itl *itl, uint32_t bits)
{
	for_each_feature(f)
		if (f->hold_locked && (bits & f->carried))
			f->hold_locked(itl);
}

uint32_t scsi_features_facts_locked(const struct scsi_lu *lu)
{
	uint32_t facts = 0;

	for_each_feature(f)
		if (f->facts_locked)
			facts ^= f->facts_locked(lu);
	return facts;
}

const struct scsi_feature *scsi_feature_of(const char *key)
{
	for_each_feature(f)
		if (f->key && strcmp(f->key, key) == 0)
			return f;
	return NULL;
}
