/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What has become of copies: kept per LU for the nexus that began them, and asked for by RECEIVE
 * COPY RESULTS and its descendants (SPC-4 6.18-6.24).
 */
#include <stdlib.h>
#include <strings.h>
#include "tgtd/scsi/commands/xcopy.h"

/* ---- results --------------------------------------------------------------------------------- */

#define RECORDS_MAX 1024	 /* of a unit; */
#define RECORDS_INITIATOR_MAX 64 /* of them, of one initiator: its own push out its own */

struct copy_record *scsi_copy_find_record_locked(struct scsi_lu *lu, uint64_t nexus,
						 uint32_t list_id)
{
	struct copy_record *r;

	list_for_each(r, &lu->copies, link)
		if (r->nexus == nexus && r->list_id == list_id)
			return r;
	return NULL;
}

/* The oldest that have ended, while there are more than @max of that initiator (NULL: of all). */
static void forget_old_locked(struct scsi_lu *lu, const char *iqn, unsigned max)
{
	struct copy_record *r, *tmp;
	unsigned n = 0;

	list_for_each(r, &lu->copies, link)
		n += !iqn || !strcasecmp(r->iqn, iqn);
	list_for_each_safe(r, tmp, &lu->copies, link)
		if (n > max && !copy_runs(r) && (!iqn || !strcasecmp(r->iqn, iqn))) {
			list_del(&r->link);
			free(r);
			n--;
		}
}

struct copy_record *scsi_copy_begin(struct scsi_cmd *cmd, uint32_t list_id)
{
	struct scsi_lu *lu = cmd->lu;
	struct copy_record *r;

	pthread_mutex_lock(&lu->lock);
	r = scsi_copy_find_record_locked(lu, cmd->nexus->id, list_id);
	if (r && copy_runs(r)) {
		r = NULL;
	} else {
		if (r)
			list_del(&r->link);
		else
			r = malloc(sizeof(*r));
		if (r) {
			memset(r, 0, sizeof(*r));
			r->nexus = cmd->nexus->id;
			memcpy(r->iqn, cmd->nexus->iqn, sizeof(r->iqn));
			r->list_id = list_id;
			r->sa = cmd->cdb[1] & 0x1f;
			r->status = COPY_RUNNING;
			list_add_tail(&lu->copies, &r->link);
		}
		forget_old_locked(lu, cmd->nexus->iqn, RECORDS_INITIATOR_MAX);
		forget_old_locked(lu, NULL, RECORDS_MAX);
	}
	pthread_mutex_unlock(&lu->lock);
	return r;
}

void scsi_copy_progress(struct scsi_cmd *cmd, uint32_t list_id, uint16_t segments, uint64_t bytes)
{
	struct scsi_lu *lu = cmd->lu;
	struct copy_record *r;

	pthread_mutex_lock(&lu->lock);
	r = scsi_copy_find_record_locked(lu, cmd->nexus->id, list_id);
	if (r) {
		r->segments = segments;
		r->bytes = bytes;
	}
	pthread_mutex_unlock(&lu->lock);
}

void scsi_copy_end(struct scsi_cmd *cmd, uint32_t list_id, uint16_t segments, uint64_t bytes,
		   const uint8_t *token, bool aborted)
{
	struct scsi_lu *lu = cmd->lu;
	struct copy_record *r;

	pthread_mutex_lock(&lu->lock);
	r = scsi_copy_find_record_locked(lu, cmd->nexus->id, list_id);
	if (r) {
		r->status = aborted		    ? COPY_ABORTED :
			    cmd->status == SAM_GOOD ? COPY_GOOD :
						      COPY_FAILED;
		r->running = NULL;
		r->segments = segments;
		r->bytes = bytes;
		r->sense_len = MIN(cmd->sense_len, (uint8_t)sizeof(r->sense));
		memcpy(r->sense, cmd->sense_buf, r->sense_len);
		if (token) {
			r->has_token = true;
			memcpy(r->token, token, sizeof(r->token));
		}
	}
	pthread_mutex_unlock(&lu->lock);
}

void scsi_copies_free(struct scsi_lu *lu)
{
	while (!list_empty(&lu->copies)) {
		struct copy_record *r = list_first(&lu->copies, struct copy_record, link);

		list_del(&r->link);
		free(r);
	}
}

/* ---- RECEIVE COPY RESULTS (SPC-4 6.18-6.24) -------------------------------------------------- */

static bool copy_record(struct scsi_cmd *cmd, uint32_t list_id, uint16_t field,
			struct copy_record *out)
{
	struct scsi_lu *lu = cmd->lu;
	struct copy_record *r;

	pthread_mutex_lock(&lu->lock);
	r = scsi_copy_find_record_locked(lu, cmd->nexus->id, list_id);
	if (r)
		*out = *r;
	pthread_mutex_unlock(&lu->lock);
	if (!r)
		scsi_bad_cdb(cmd, field, -1);
	return r != NULL;
}

/* A count of bytes in the smallest unit that lets it fit into four bytes (SPC-4 table 331). */
static uint8_t count_units(uint64_t *n)
{
	uint8_t unit = 0;

	while (*n > UINT32_MAX) {
		*n >>= 10;
		unit++;
	}
	return unit;
}

void op_copy_status_lid1(struct scsi_cmd *cmd)
{
	struct copy_record r;
	uint64_t n;
	uint8_t *b;

	if (!copy_record(cmd, cmd->cdb[2], 2, &r) || !(b = scsi_heap(cmd, 12)))
		return;
	n = r.bytes;
	put_be32(b, 8);
	b[4] = copy_runs(&r) ? 0 : r.status == COPY_GOOD ? 1 : 2;
	put_be16(b + 5, r.segments);
	b[7] = count_units(&n);
	put_be32(b + 8, (uint32_t)n);
	scsi_data_in(cmd, 12, get_be32(cmd->cdb + 10));
}

void op_copy_failed_details(struct scsi_cmd *cmd)
{
	struct copy_record r;
	size_t n = 4;
	uint8_t *b;

	if (!copy_record(cmd, cmd->cdb[2], 2, &r) || !(b = scsi_heap(cmd, 60 + sizeof(r.sense))))
		return;
	if (r.status == COPY_FAILED) {
		b[56] = SAM_CHECK_CONDITION;
		put_be16(b + 58, r.sense_len);
		memcpy(b + 60, r.sense, r.sense_len);
		n = 60u + r.sense_len;
	}
	put_be32(b, (uint32_t)(n - 4));
	scsi_data_in(cmd, n, get_be32(cmd->cdb + 10));
}

/* The LID4 status, with the ROD token behind it when @token. */
static void status_lid4(struct scsi_cmd *cmd, bool with_token)
{
	struct copy_record r;
	size_t n = 32;
	uint8_t *b;

	if (!copy_record(cmd, get_be32(cmd->cdb + 2), 2, &r) ||
	    !(b = scsi_heap(cmd, 32 + 64 + 4 + 2 + 512)))
		return;
	b[4] = r.sa;
	b[5] = r.status;
	put_be16(b + 6, 1);
	put_be32(b + 8, copy_runs(&r) ? 1000 : UINT32_MAX); /* when to ask again */
	b[12] = r.status == COPY_FAILED ? SAM_CHECK_CONDITION : SAM_GOOD;
	b[13] = sizeof(r.sense);
	b[14] = r.sense_len;
	b[15] = with_token ? 0xf1 : 0; /* the count is in logical blocks, or in bytes */
	put_be64(b + 16, with_token ? r.bytes >> cmd->lu->block_shift : r.bytes);
	put_be16(b + 24, r.segments);
	if (with_token) {
		n = 32 + sizeof(r.sense);
		memcpy(b + 32, r.sense, r.sense_len);
		put_be32(b + n, r.has_token ? 2 + 512 : 0);
		n += 4;
		if (r.has_token) {
			memcpy(b + n + 2, r.token, 512);
			n += 2 + 512;
		}
	} else {
		memcpy(b + 32, r.sense, r.sense_len);
		n += sizeof(r.sense);
	}
	put_be32(b, (uint32_t)(n - 4));
	scsi_data_in(cmd, n, get_be32(cmd->cdb + 10));
}

void op_copy_status_lid4(struct scsi_cmd *cmd)
{
	status_lid4(cmd, false);
}

void op_rod_token_information(struct scsi_cmd *cmd)
{
	status_lid4(cmd, true);
}

void op_copy_parameters(struct scsi_cmd *cmd)
{
	uint8_t *b = scsi_heap(cmd, 46);

	if (!b)
		return;
	put_be32(b, 42);
	put_be16(b + 8, CSCD_MAX);
	put_be16(b + 10, SEGMENT_MAX);
	put_be32(b + 12, COPY_LIST_MAX);
	put_be32(b + 16, (uint32_t)SEGMENT_BYTES_MAX);
	put_be16(b + 34, UINT16_MAX); /* concurrent copies: as many as there are commands */
	b[36] = UINT8_MAX;
	b[37] = cmd->lu->blk ? cmd->lu->block_shift : 9;
	b[43] = 2;
	b[44] = SEGMENT_BLOCK_TO_BLOCK;
	b[45] = CSCD_IDENTIFICATION;
	scsi_data_in(cmd, 46, get_be32(cmd->cdb + 10));
}
