/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * UNMAP (SBC-4 5.35). What its block descriptors name may be unmapped in any order. So they are put
 * in order and joined where they adjoin or overlap, and several ranges are at the store at once.
 * One range, as Linux sends it, is one request of the command's own.
 */
#include <stdlib.h>
#include "tgtd/scsi/commands/commands.h"

#define DESCRIPTOR 16u
#define UNMAP_FLYING 16u    /* ranges of a command at the store; a cache has 1024 in all */
#define UNMAP_JOINED GiB(1) /* joining makes no longer ranges: nobody else may read or write in one
			     * while it is unmapped */

/* Several ranges: cmd->priv. All on the loop of the nexus. */
struct unmap {
	struct scsi_cmd *cmd;
	uint32_t at, left; /* the next descriptor; how many there are from it on */
	uint32_t n, flying; /* elements of @range; those at the store */
	uint64_t err_lba;
	int err;    /* of the first that failed: no more begin */
	bool later; /* cmd->msg will go on */
	struct unmap_range {
		struct blk_req io;
		struct unmap *u;
		bool busy;
	} range[];
};

/* ---- the list -------------------------------------------------------------------------------- */

static int by_lba(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(uint64_t)); /* big-endian */
}

/* Puts the @n descriptors at @list in order and joins them in place, those of no blocks left out.
 * No two overlap then. How many there are. */
static uint32_t unmap_join(uint8_t *list, uint32_t n, unsigned block_shift)
{
	uint64_t first = 0, end = 0;
	uint32_t k = 0;

	qsort(list, n, DESCRIPTOR, by_lba);
	for (const uint8_t *d = list; n--; d += DESCRIPTOR) {
		const uint64_t from = MAX(get_be64(d), end), to = get_be64(d) + get_be32(d + 8);

		if (to <= from)
			continue;
		if (!k || from > end || (to - first) << block_shift > UNMAP_JOINED) {
			first = from;
			put_be64(list + k++ * DESCRIPTOR, first);
		}
		end = to;
		put_be32(list + (k - 1) * DESCRIPTOR + 8, (uint32_t)(end - first));
	}
	return k;
}

static void unmap_request(const struct scsi_cmd *cmd, struct blk_req *io, const uint8_t *d)
{
	/* ANCHOR: the space stays, the blocks read as zeros. */
	io->op = cmd->cdb[1] & 0x01 ? BLK_ZERO : BLK_DISCARD;
	io->flags = 0;
	io->offset = get_be64(d) << cmd->lu->block_shift;
	io->len = (uint64_t)get_be32(d + 8) << cmd->lu->block_shift;
}

/* ---- one range ------------------------------------------------------------------------------- */

static void unmapped(struct scsi_cmd *cmd)
{
	if (cmd->seg[1].io.status < 0)
		cmd->state |= CMD_WRITE;
	if (!scsi_io_failed(cmd))
		scsi_done(cmd);
}

static void unmap_one(struct scsi_cmd *cmd, const uint8_t *d)
{
	struct blk_req *io = scsi_io(cmd);

	cmd->lba = get_be64(d);
	cmd->xfer_next = 0;
	unmap_request(cmd, io, d);
	scsi_io_submit(cmd, unmapped);
}

/* ---- several --------------------------------------------------------------------------------- */

static void unmap_go_on(struct unmap *u);

static void unmap_fini(struct scsi_cmd *cmd)
{
	struct unmap *u = cmd->priv;

	for (uint32_t i = 0; i < u->n; i++)
		blk_req_fini(&u->range[i].io);
	free(u);
	cmd->priv = NULL;
}

/* The requests are told to end, and the command ends with the last of them. */
static bool unmap_cancel(struct scsi_cmd *cmd)
{
	struct unmap *u = cmd->priv;

	for (uint32_t i = 0; i < u->n; i++)
		if (u->range[i].busy)
			blk_abort(u->range[i].io.blk, &u->range[i].io);
	return false;
}

static void unmapped_all(struct scsi_cmd *cmd)
{
	const struct unmap *u = cmd->priv;

	if (u->err) {
		cmd->state |= CMD_WRITE;
		scsi_sense_errno(cmd, u->err, u->err_lba);
	}
	scsi_done(cmd);
}

static void range_over(struct unmap_range *r)
{
	struct unmap *u = r->u;

	if (r->io.status < 0 && !u->err) {
		u->err = r->io.status;
		u->err_lba = r->io.offset >> u->cmd->lu->block_shift;
	}
	r->busy = false;
	u->flying--;
}

static void range_done(struct blk_req *req)
{
	struct unmap_range *r = container_of(req, struct unmap_range, io);

	range_over(r);
	if (!r->u->later)
		unmap_go_on(r->u);
}

static void unmap_later(struct loop_msg *m)
{
	struct unmap *u = container_of(m, struct scsi_cmd, msg)->priv;

	u->later = false;
	unmap_go_on(u);
}

/* Has everything begun that will? */
static bool unmap_begun(const struct unmap *u)
{
	return !u->left || u->err || scsi_aborted(u->cmd);
}

/* What ends on the spot counts as begun here: others on the loop get their turn, too. */
static void unmap_go_on(struct unmap *u)
{
	struct scsi_cmd *cmd = u->cmd;

	for (uint32_t i = 0; i < u->n && !unmap_begun(u); i++) {
		struct unmap_range *r = &u->range[i];

		if (r->busy)
			continue;
		unmap_request(cmd, &r->io, cmd->heap + u->at);
		u->at += DESCRIPTOR;
		u->left--;
		r->busy = true;
		u->flying++;
		if (blk_submit(cmd->lu->blk, &r->io))
			range_over(r);
	}
	if (u->flying == u->n || (u->flying && unmap_begun(u)))
		return;
	if (unmap_begun(u)) {
		scsi_job_done(cmd);
		return;
	}
	u->later = true;
	cmd->msg.handle = unmap_later;
	loop_post(cmd->nexus->loop, &cmd->msg);
}

static void unmap_several(struct scsi_cmd *cmd, uint32_t at, uint32_t ranges)
{
	const uint32_t n = MIN(ranges, UNMAP_FLYING);
	struct unmap *u = calloc(1, sizeof(*u) + n * sizeof(u->range[0]));

	if (!u) {
		cmd->status = SAM_BUSY;
		scsi_done(cmd);
		return;
	}
	u->cmd = cmd;
	u->at = at;
	u->left = ranges;
	u->n = n;
	for (uint32_t i = 0; i < n; i++) {
		struct unmap_range *r = &u->range[i];

		blk_req_init(&r->io);
		r->u = u;
		r->io.stream = cmd->nexus->id;
		r->io.done = range_done;
	}
	cmd->priv = u;
	cmd->fini = unmap_fini;
	cmd->cancel = unmap_cancel;
	scsi_job_begin(cmd, unmapped_all);
	unmap_go_on(u);
}

/* ---- the command ----------------------------------------------------------------------------- */

static void sbc_unmap(struct scsi_cmd *cmd)
{
	const struct scsi_lu *lu = cmd->lu;
	uint32_t got = cmd->heap_got, len, ranges;
	uint64_t blocks = scsi_lu_blocks(lu);

	if (got < 8 || get_be16(cmd->heap + 2) > got - 8u) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
		return;
	}
	len = get_be16(cmd->heap + 2);
	if (len / DESCRIPTOR > SCSI_UNMAP_DESCRIPTORS) {
		scsi_bad_param(cmd, 2, -1);
		return;
	}
	/* All are looked at before anything happens. */
	for (uint32_t at = 8; at + DESCRIPTOR <= 8 + len; at += DESCRIPTOR) {
		uint64_t lba = get_be64(cmd->heap + at), n = get_be32(cmd->heap + at + 8);

		if (lba > blocks || n > blocks - lba) {
			scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_LBA_OUT_OF_RANGE);
			return;
		}
	}
	ranges = unmap_join(cmd->heap + 8, len / DESCRIPTOR, lu->block_shift);
	if (!ranges)
		scsi_done(cmd);
	else if (ranges == 1)
		unmap_one(cmd, cmd->heap + 8);
	else
		unmap_several(cmd, 8, ranges);
}

void op_unmap(struct scsi_cmd *cmd)
{
	uint32_t len = get_be16(cmd->cdb + 7);

	if (!scsi_lu_thin(cmd->lu))
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_INVALID_COMMAND_OPERATION_CODE);
	else if (len == 0)
		scsi_done(cmd);
	else
		scsi_data_out(cmd, len, sbc_unmap);
}
