/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ROD tokens (SPC-4 5.17.6, SBC-4 4.28): POPULATE TOKEN, WRITE USING TOKEN.
 *
 * A token stands for block ranges of one logical unit as they were when it was made ("point in time
 * copy, change vulnerable"): nothing is copied when it is made, and a write to one of its blocks
 * revokes it. So that writes need not look for tokens, a unit without any has no GATE_TOKENS.
 * The 512 bytes hold 256 random ones: a token cannot be guessed, and who has it may read what it
 * stands for, within the target that made it.
 */
#include <stdlib.h>
#include <strings.h>
#include <sys/random.h>
#include "tgtd/scsi/commands/xcopy.h"

#define TOKEN_LEN 512
#define RANGES_MAX 256
#define TOKENS_MAX 1024		 /* a logical unit; */
#define TOKENS_INITIATOR_MAX 256 /* of them, one initiator: it leaves some to others */
#define TIMEOUT_DEFAULT_S 60
#define TIMEOUT_MAX_S 3600
#define TOKEN_BYTES_MAX GiB(16)

enum {
	ROD_COPY_CHANGE_VULNERABLE = 0x00800001u,
	ROD_COPY_ANY = 0x0080ffffu,
	ROD_ZERO = 0xffff0001u,
};

struct range {
	uint64_t offset, len; /* bytes */
};

struct token {
	struct list link;
	uint8_t bytes[TOKEN_LEN];
	char iqn[SCSI_PORT_NAME_MAX]; /* who made it */
	uint64_t total;
	uint64_t idle_ns, used_ns;
	unsigned nranges;
	struct range range[];
};

struct scsi_tokens {
	struct list all; /* lu->lock */
	unsigned n;
};

/* ---- the store of tokens: lu->lock ----------------------------------------------------------- */

static void token_drop(struct scsi_lu *lu, struct token *t)
{
	list_del(&t->link);
	free(t);
	if (--lu->tokens->n == 0)
		scsi_lu_gate_locked(lu, GATE_TOKENS, false);
}

static void expire(struct scsi_lu *lu)
{
	struct token *t, *tmp;
	uint64_t now = clock_now_ns();

	list_for_each_safe(t, tmp, &lu->tokens->all, link)
		if (now - t->used_ns > t->idle_ns)
			token_drop(lu, t);
}

static bool room_for(const struct scsi_tokens *tokens, const char *iqn)
{
	const struct token *t;
	unsigned own = 0;

	list_for_each(t, &tokens->all, link)
		own += !strcasecmp(t->iqn, iqn);
	return tokens->n < TOKENS_MAX && own < TOKENS_INITIATOR_MAX;
}

void scsi_tokens_written(struct scsi_lu *lu, uint64_t offset, uint64_t len)
{
	struct token *t, *tmp;

	pthread_mutex_lock(&lu->lock);
	if (lu->tokens)
		list_for_each_safe(t, tmp, &lu->tokens->all, link)
			for (unsigned i = 0; i < t->nranges; i++)
				if (offset < t->range[i].offset + t->range[i].len &&
				    t->range[i].offset < offset + len) {
					token_drop(lu, t);
					break;
				}
	pthread_mutex_unlock(&lu->lock);
}

void scsi_tokens_drop_locked(struct scsi_lu *lu)
{
	while (lu->tokens && !list_empty(&lu->tokens->all))
		token_drop(lu, list_first(&lu->tokens->all, struct token, link));
}

void scsi_tokens_free(struct scsi_lu *lu)
{
	scsi_tokens_drop_locked(lu); /* nobody else knows the unit by now */
	free(lu->tokens);
	lu->tokens = NULL;
}

/* A command that changes the medium comes by: what it may touch. */
void scsi_tokens_invalidate(struct scsi_cmd *cmd)
{
	const uint8_t *cdb = cmd->cdb;
	uint64_t lba, n;

	switch (cdb[0]) {
	case 0x0a:
		lba = get_be24(cdb + 1) & 0x1fffff;
		n = cdb[4] ? cdb[4] : 256;
		break;
	case 0x89: /* COMPARE AND WRITE */
		lba = get_be64(cdb + 2);
		n = cdb[13];
		break;
	case 0x9c: /* WRITE ATOMIC(16) */
		lba = get_be64(cdb + 2);
		n = get_be16(cdb + 12);
		break;
	case 0x2a:
	case 0x2e:
	case 0x41:
	case 0x8a:
	case 0x8b:
	case 0x8e:
	case 0x93:
	case 0xaa:
	case 0xae:
		scsi_cdb_range(cdb, &lba, &n);
		break;
	default: /* its ranges are in its parameters */
		scsi_tokens_written(cmd->lu, 0, UINT64_MAX);
		return;
	}
	if (lba >= scsi_lu_blocks(cmd->lu))
		return; /* will be refused */
	scsi_tokens_written(cmd->lu, lba << cmd->lu->block_shift, n << cmd->lu->block_shift);
}

/* ---- parameter lists ------------------------------------------------------------------------- */

/* Block device range descriptors (SBC-4 5.9.3) at @p; answers and
 * returns NULL when they are wrong. */
static struct token *take_ranges(struct scsi_cmd *cmd, const uint8_t *p, size_t len)
{
	const struct scsi_lu *lu = cmd->lu;
	uint64_t blocks = scsi_lu_blocks(lu);
	unsigned n = (unsigned)(len / 16);
	struct token *t;

	if (len < 16 || n > RANGES_MAX) {
		scsi_bad_param(cmd, (uint16_t)(p - 2 - cmd->heap), -1);
		return NULL;
	}
	t = calloc(1, sizeof(*t) + n * sizeof(struct range));
	if (!t) {
		cmd->status = SAM_BUSY;
		scsi_done(cmd);
		return NULL;
	}
	list_init(&t->link);
	for (unsigned i = 0; i < n; i++) {
		uint64_t lba = get_be64(p + 16 * i), count = get_be32(p + 16 * i + 8);

		if (lba > blocks || count > blocks - lba) {
			free(t);
			scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_LBA_OUT_OF_RANGE);
			return NULL;
		}
		for (unsigned j = 0; j < t->nranges; j++)
			if (lba < (t->range[j].offset + t->range[j].len) >> lu->block_shift &&
			    t->range[j].offset >> lu->block_shift < lba + count) {
				/* Ranges must not overlap. */
				free(t);
				scsi_bad_param(cmd, (uint16_t)(p + 16 * i - cmd->heap), -1);
				return NULL;
			}
		if (count == 0)
			continue;
		t->range[t->nranges].offset = lba << lu->block_shift;
		t->range[t->nranges++].len = count << lu->block_shift;
		t->total += count << lu->block_shift;
	}
	if (t->total > TOKEN_BYTES_MAX) { /* MAXIMUM TOKEN TRANSFER SIZE (SBC-4 6.6.6.3) */
		free(t);
		scsi_bad_param(cmd, (uint16_t)(p - cmd->heap), -1);
		return NULL;
	}
	return t;
}

static bool check_lengths(struct scsi_cmd *cmd, size_t head)
{
	if (cmd->heap_got >= head && get_be16(cmd->heap) + 2u <= cmd->heap_got &&
	    get_be16(cmd->heap) + 2u >= head &&
	    get_be16(cmd->heap + head - 2) + head <= cmd->heap_got)
		return true;
	scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
	return false;
}

/* ---- POPULATE TOKEN -------------------------------------------------------------------------- */

static bool make_bytes(const struct scsi_cmd *cmd, struct token *t)
{
	static _Atomic uint64_t ids = 1;
	const struct scsi_lu *lu = cmd->lu;
	uint8_t *b = t->bytes, naa[SCSI_NAA_MAX];
	size_t len = scsi_lu_naa(lu, naa);

	put_be32(b, ROD_COPY_CHANGE_VULNERABLE);
	put_be16(b + 6, TOKEN_LEN - 8);
	put_be64(b + 8, ids++);
	b[16] = 0xe4; /* creator logical unit: identification descriptor with its NAA */
	b[16 + 4] = 1;
	b[16 + 5] = 3;
	b[16 + 7] = (uint8_t)len;
	memcpy(b + 16 + 8, naa, len);
	put_be24(b + 16 + 29, lu->block_size);
	put_be64(b + 56, t->total);
	put_be32(b + 96, lu->block_size); /* block device specific */
	return getrandom(b + 128, 32, GRND_NONBLOCK) == 32;
}

static void populate(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	const uint8_t *p = cmd->heap;
	uint32_t list_id = get_be32(cmd->cdb + 6), idle, type;
	uint8_t bytes[TOKEN_LEN];
	uint64_t total;
	struct token *t;

	if (!check_lengths(cmd, 16))
		return;
	idle = get_be32(p + 4);
	type = get_be32(p + 8);
	if ((p[2] & 0x02) && type != ROD_COPY_CHANGE_VULNERABLE && type != ROD_COPY_ANY) { /* RTV */
		scsi_bad_param(cmd, 8, -1);
		return;
	}
	if (idle > TIMEOUT_MAX_S) {
		scsi_bad_param(cmd, 4, -1);
		return;
	}
	t = take_ranges(cmd, p + 16, get_be16(p + 14));
	if (!t)
		return;
	if (!scsi_copy_begin(cmd, list_id)) {
		free(t);
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_OPERATION_IN_PROGRESS);
		return;
	}
	t->idle_ns = (idle ? idle : TIMEOUT_DEFAULT_S) * NSEC_PER_SEC;
	t->used_ns = clock_now_ns();
	memcpy(t->iqn, cmd->nexus->iqn, sizeof(t->iqn));
	total = t->total;
	pthread_mutex_lock(&lu->lock);
	if (!lu->tokens) {
		lu->tokens = calloc(1, sizeof(*lu->tokens));
		if (lu->tokens)
			list_init(&lu->tokens->all);
	}
	if (lu->tokens)
		expire(lu);
	if (!lu->tokens || !room_for(lu->tokens, t->iqn) || !make_bytes(cmd, t)) {
		pthread_mutex_unlock(&lu->lock);
		free(t);
		cmd->status = SAM_BUSY;
		scsi_copy_end(cmd, list_id, 0, 0, NULL, scsi_aborted(cmd));
		scsi_done(cmd);
		return;
	}
	memcpy(bytes, t->bytes, sizeof(bytes));
	list_add_tail(&lu->tokens->all, &t->link);
	if (lu->tokens->n++ == 0)
		scsi_lu_gate_locked(lu, GATE_TOKENS, true);
	pthread_mutex_unlock(&lu->lock);
	scsi_copy_end(cmd, list_id, 0, total, bytes, scsi_aborted(cmd));
	scsi_done(cmd);
}

#define LIST_MAX (536 + 16 * RANGES_MAX)

static void token_list(struct scsi_cmd *cmd, void (*then)(struct scsi_cmd *))
{
	uint32_t len = get_be32(cmd->cdb + 10);

	if (len == 0)
		scsi_done(cmd);
	else if (len > LIST_MAX)
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
	else
		scsi_data_out(cmd, len, then);
}

void op_populate_token(struct scsi_cmd *cmd)
{
	token_list(cmd, populate);
}

/* ---- WRITE USING TOKEN ----------------------------------------------------------------------- */

struct using {
	uint32_t list_id;
	bool zero, drop_after;
	struct scsi_use src;  /* itl NULL: zeros */
	struct token *from;   /* own copy of the ranges */
	struct token *to;
	unsigned fi, ti;      /* ranges at work */
	uint64_t fo, tofs;    /* bytes done of them */
	uint64_t left, done;
};

static void using_fini(struct scsi_cmd *cmd)
{
	struct using *u = cmd->priv;

	cmd->priv = NULL;
	scsi_copy_end(cmd, u->list_id, (uint16_t)u->ti, u->done, NULL, scsi_aborted(cmd));
	if (u->src.itl)
		scsi_use_end(&u->src);
	free(u->from);
	free(u->to);
	free(u);
}

static struct token *find_token(struct scsi_lu *lu, const uint8_t *bytes)
{
	struct token *t, *found = NULL;

	if (lu->tokens)
		list_for_each(t, &lu->tokens->all, link) {
			uint8_t differ = 0;

			/* As long for a wrong one as for a right one. */
			for (unsigned i = 0; i < TOKEN_LEN; i++)
				differ |= t->bytes[i] ^ bytes[i];
			if (!differ)
				found = t;
		}
	return found;
}

static void using_next(struct scsi_cmd *cmd);

/* What may not be read (any more) is not copied: a reservation, offline, SANITIZE, another store.
 * Asked for every piece, so that nobody waits for a long copy. An additional sense code, or 0. */
static uint16_t source_lost(const struct using *u)
{
	const struct scsi_itl *itl = u->src.itl;

	if (itl->gone)
		return ASC_TOKEN_REVOKED; /* the unit goes, or is masked */
	if (atomic_load(&itl->gate) & GATE_MEDIUM & ~GATE_COPY_NEVER)
		return ASC_INVALID_TOKEN_OPERATION;
	return 0;
}

static void using_advance(struct using *u, uint64_t len)
{
	u->tofs += len;
	if (u->tofs == u->to->range[u->ti].len) {
		u->ti++;
		u->tofs = 0;
	}
	if (!u->zero) {
		u->fo += len;
		if (u->fo == u->from->range[u->fi].len) {
			u->fi++;
			u->fo = 0;
		}
	}
	u->done += len;
	u->left -= len;
}

static void using_written(struct scsi_cmd *cmd)
{
	struct using *u = cmd->priv;
	struct blk_req *io = &cmd->seg[1].io;

	blk_req_release(io);
	if (io->status < 0) {
		cmd->state |= CMD_WRITE;
		scsi_sense_errno(cmd, io->status, io->offset >> cmd->lu->block_shift);
		scsi_done(cmd);
		return;
	}
	using_advance(u, io->len);
	using_next(cmd);
}

static void using_read(struct scsi_cmd *cmd)
{
	struct using *u = cmd->priv;
	struct blk_req *io = &cmd->seg[1].io;
	struct scsi_lu *src = u->src.itl->lu;
	uint16_t asc = source_lost(u);
	bool valid;

	if (asc) {
		blk_req_release(io);
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, asc);
		return;
	}
	if (io->status < 0) {
		blk_req_release(io);
		scsi_sense_errno(cmd, io->status, io->offset >> src->block_shift);
		scsi_done(cmd);
		return;
	}
	/* Only now is it known that what was read is what the token stands for. */
	pthread_mutex_lock(&src->lock);
	valid = find_token(src, u->from->bytes) != NULL;
	pthread_mutex_unlock(&src->lock);
	if (!valid) {
		blk_req_release(io);
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_TOKEN_REVOKED);
		return;
	}
	io->op = BLK_WRITE;
	io->flags = (uint16_t)(BLK_F_FROM | (scsi_lu_is(cmd->lu, LU_FUA_ALL) ? BLK_F_FUA : 0));
	io->offset = u->to->range[u->ti].offset + u->tofs;
	cmd->io_blk = cmd->lu->blk;
	scsi_io_submit(cmd, using_written);
}

static void using_next(struct scsi_cmd *cmd)
{
	struct using *u = cmd->priv;
	struct blk_req *io;
	uint64_t len;
	uint16_t asc;

	if (u->left == 0) {
		if (u->drop_after && u->src.itl) {
			struct scsi_lu *src = u->src.itl->lu;
			struct token *t;

			pthread_mutex_lock(&src->lock);
			t = find_token(src, u->from->bytes);
			if (t)
				token_drop(src, t);
			pthread_mutex_unlock(&src->lock);
		}
		scsi_done(cmd);
		return;
	}
	len = MIN(u->left, u->to->range[u->ti].len - u->tofs);
	io = scsi_io(cmd);
	if (u->zero) {
		io->op = BLK_ZERO;
		io->flags = scsi_lu_thin(cmd->lu) ? BLK_F_MAY_ALLOC : 0;
		io->offset = u->to->range[u->ti].offset + u->tofs;
		io->len = MIN(len, GiB(1));
		scsi_io_submit(cmd, using_written);
		return;
	}
	asc = source_lost(u);
	if (asc) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, asc);
		return;
	}
	len = MIN(len, u->from->range[u->fi].len - u->fo);
	io->op = BLK_READ;
	io->offset = u->from->range[u->fi].offset + u->fo;
	io->len = MIN(len, (uint64_t)MIN(cmd->lu->seg_max, u->src.itl->lu->seg_max));
	io->stream = cmd->nexus->id;
	cmd->io_blk = u->src.itl->lu->blk;
	scsi_io_submit(cmd, using_read);
}

static struct scsi_itl *creator(struct scsi_nexus *n, const uint8_t *token)
{
	return scsi_copy_find_lu(n, token + 16);
}

/* Finds the token and copies what it says. An additional sense code, or 0. */
static uint16_t resolve(struct scsi_cmd *cmd, struct using *u, const uint8_t *bytes, uint64_t skip)
{
	struct scsi_itl *itl;
	struct scsi_lu *src;
	struct token *t;
	size_t size;

	if (get_be16(bytes + 6) != TOKEN_LEN - 8)
		return ASC_INVALID_TOKEN_LENGTH;
	if (get_be32(bytes) != ROD_COPY_CHANGE_VULNERABLE)
		return ASC_UNSUPPORTED_TOKEN_TYPE;
	itl = creator(cmd->nexus, bytes);
	if (!itl)
		return ASC_TOKEN_UNKNOWN;
	scsi_use_begin(&u->src, itl, cmd);
	src = itl->lu;
	pthread_mutex_lock(&src->lock);
	if (src->tokens)
		expire(src);
	t = find_token(src, bytes);
	if (t) {
		size = sizeof(*t) + t->nranges * sizeof(struct range);
		t->used_ns = clock_now_ns();
		u->from = malloc(size);
		if (u->from) {
			memcpy(u->from, t, size);
			list_init(&u->from->link);
		}
	}
	pthread_mutex_unlock(&src->lock);
	if (!t)
		return ASC_TOKEN_UNKNOWN;
	if (!u->from)
		return ASC_INVALID_TOKEN_OPERATION;
	for (; u->fi < u->from->nranges && skip >= u->from->range[u->fi].len; u->fi++)
		skip -= u->from->range[u->fi].len;
	u->fo = skip;
	return 0;
}

static void write_using(struct scsi_cmd *cmd)
{
	const uint8_t *p = cmd->heap;
	struct scsi_lu *lu = cmd->lu;
	struct using *u;
	struct token *to;
	uint64_t skip, room;
	uint16_t asc;

	if (!check_lengths(cmd, 536))
		return;
	to = take_ranges(cmd, p + 536, get_be16(p + 534));
	if (!to)
		return;
	u = calloc(1, sizeof(*u));
	if (!u) {
		free(to);
		cmd->status = SAM_BUSY;
		scsi_done(cmd);
		return;
	}
	u->to = to;
	u->list_id = get_be32(cmd->cdb + 6);
	u->drop_after = p[2] & 0x02; /* DEL_TKN */
	u->zero = get_be32(p + 16) == ROD_ZERO;
	u->left = to->total;
	if (!scsi_copy_begin(cmd, u->list_id)) {
		free(to);
		free(u);
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_OPERATION_IN_PROGRESS);
		return;
	}
	cmd->priv = u;
	cmd->fini = using_fini;
	if (!u->zero) {
		skip = get_be64(p + 8);
		if (skip > TOKEN_BYTES_MAX >> lu->block_shift) {
			scsi_bad_param(cmd, 8, -1);
			return;
		}
		skip <<= lu->block_shift;
		asc = resolve(cmd, u, p + 16, skip);
		if (asc) {
			scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, asc);
			return;
		}
		room = u->from->total - MIN(skip, u->from->total);
		if (skip >= u->from->total || u->src.itl->lu->block_size != lu->block_size) {
			scsi_bad_param(cmd, 8, -1);
			return;
		}
		/* SBC-4 5.45: more asked for than there is: what there
		 * is, and the count says so. */
		u->left = MIN(u->left, room);
		asc = source_lost(u);
		if (asc) {
			scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, asc);
			return;
		}
	}
	/* Also when that revokes the very token: its data would change under the copy. */
	for (unsigned i = 0; i < to->nranges; i++)
		scsi_tokens_written(lu, to->range[i].offset, to->range[i].len);
	using_next(cmd);
}

void op_write_using_token(struct scsi_cmd *cmd)
{
	token_list(cmd, write_using);
}

/* ---- VPD page 8Fh, third-party copy (SPC-4 7.8.17) ------------------------------------------- */

static uint8_t *descriptor(uint8_t **p, uint16_t type, uint16_t len)
{
	uint8_t *d = *p;

	put_be16(d, type);
	put_be16(d + 2, len);
	*p = d + 4 + len;
	return d;
}

size_t scsi_vpd_8f(const struct scsi_cmd *cmd, uint8_t *b)
{
	static const uint8_t commands[] = { 0x83, 5, 0x00, 0x01, 0x10, 0x11, 0x1c,
					    0x84, 5, 0x00, 0x03, 0x04, 0x05, 0x07 };
	uint8_t *p = b, *d;

	d = descriptor(&p, 0x0000, 0x20); /* block device ROD token limits */
	put_be16(d + 10, RANGES_MAX);
	put_be32(d + 12, TIMEOUT_MAX_S);
	put_be32(d + 16, TIMEOUT_DEFAULT_S);
	put_be64(d + 20, TOKEN_BYTES_MAX >> cmd->lu->block_shift);
	put_be64(d + 28, cmd->lu->seg_max >> cmd->lu->block_shift);
	d = descriptor(&p, 0x0001, 16); /* supported commands */
	d[4] = sizeof(commands);
	memcpy(d + 5, commands, sizeof(commands));
	d = descriptor(&p, 0x0004, 0x1c); /* parameter data */
	put_be16(d + 8, 16);
	put_be16(d + 10, 256);
	put_be32(d + 12, 16 * 32 + 256 * 28);
	d = descriptor(&p, 0x0008, 4); /* supported descriptors */
	d[4] = 2;
	d[5] = 0x02;
	d[6] = 0xe4;
	d = descriptor(&p, 0x0106, 0x2c); /* ROD token features: no remote tokens */
	put_be32(d + 16, 0);
	put_be32(d + 20, TIMEOUT_MAX_S);
	put_be32(d + 24, TIMEOUT_MAX_S);
	d = descriptor(&p, 0x0108, 4 + 2 * 64); /* supported ROD types */
	put_be16(d + 6, 2 * 64);
	put_be32(d + 8, ROD_COPY_CHANGE_VULNERABLE);
	d[8 + 4] = 0x03; /* TOKEN_IN, TOKEN_OUT */
	put_be16(d + 8 + 6, 0x8000);
	put_be32(d + 72, ROD_ZERO);
	d[72 + 4] = 0x02;
	d = descriptor(&p, 0x8001, 0x20); /* general copy operations */
	put_be32(d + 4, UINT16_MAX);
	put_be32(d + 8, 64);
	put_be32(d + 12, (uint32_t)MiB(256));
	d[16] = cmd->lu->block_shift;
	return (size_t)(p - b);
}
