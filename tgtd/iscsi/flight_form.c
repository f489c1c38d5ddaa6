/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See flight_form.h. */
#include <stdlib.h>

#include "tgtd/iscsi/flight_form.h"

const uint8_t flight_kinds[256] = {
	[0x00] = FLIGHT_READ, /* TEST UNIT READY */
	[0x08] = FLIGHT_READ, /* READ (6), (10), (12), (16) */
	[0x28] = FLIGHT_READ,
	[0xa8] = FLIGHT_READ,
	[0x88] = FLIGHT_READ,
	[0x12] = FLIGHT_READ, /* INQUIRY */
	[0x1a] = FLIGHT_READ, /* MODE SENSE (6), (10) */
	[0x5a] = FLIGHT_READ,
	[0x25] = FLIGHT_READ, /* READ CAPACITY (10) */
	[0xa0] = FLIGHT_READ, /* REPORT LUNS */
	[0x5e] = FLIGHT_READ, /* PERSISTENT RESERVE IN */
	[0xa3] = FLIGHT_READ, /* MAINTENANCE IN */
	[0x9e] = FLIGHT_READ, /* SERVICE ACTION IN (16): READ CAPACITY, GET LBA STATUS */
	/* What was written before it is stable after it, whoever has begun it. */
	[0x35] = FLIGHT_READ, /* SYNCHRONIZE CACHE (10), (16) */
	[0x91] = FLIGHT_READ,
	[0x0a] = FLIGHT_APPLYING, /* WRITE (6), (10), (12), (16) */
	[0x2a] = FLIGHT_APPLYING,
	[0xaa] = FLIGHT_APPLYING,
	[0x8a] = FLIGHT_APPLYING,
};

/* ---- the file -------------------------------------------------------------------------------- */

#define ROOMS_MAX 65536u

const char *flight_head_wrong(const struct flight_head *h, uint64_t size)
{
	if (h->version != FLIGHT_VERSION)
		return "another version has recorded it";
	if (h->size != size || !h->slots || h->slots > ROOMS_MAX || !h->rooms ||
	    h->rooms > ROOMS_MAX || h->base > UINT64_MAX - size ||
	    h->rx_off != FLIGHT_HEAD + h->slots * (uint64_t)FLIGHT_SLOT ||
	    h->tx_off != h->rx_off + h->rooms * (uint64_t)FLIGHT_RX_ROOM ||
	    size != h->tx_off + h->rooms * (uint64_t)FLIGHT_TX_ROOM)
		return "it is damaged";
	for (unsigned i = 0; i < FLIGHT_ARENAS; i++)
		if (h->arena[i].base > UINT64_MAX - h->arena[i].len)
			return "it is damaged";
	return NULL;
}

static bool room_at(uint64_t off, uint64_t from, uint64_t each, uint32_t n)
{
	return off >= from && off < from + n * each && (off - from) % each == 0;
}

bool flight_log_at(const struct flight_head *h, uint64_t off)
{
	return room_at(off, h->tx_off, FLIGHT_TX_ROOM, h->rooms);
}

/* ---- what is to be sent ---------------------------------------------------------------------- */

static bool place(const struct flight_head *h, uint64_t addr, uint32_t len,
		  struct flight_piece *out)
{
	*out = (struct flight_piece){ .arena = FLIGHT_ARENAS, .len = len, .off = addr - h->base };
	if (addr >= h->base && addr - h->base <= h->size && len <= h->size - (addr - h->base))
		return true;
	for (unsigned i = 0; i < FLIGHT_ARENAS; i++) {
		const struct flight_arena *a = &h->arena[i];

		if (a->len && addr >= a->base && addr - a->base <= a->len &&
		    len <= a->len - (addr - a->base)) {
			*out = (struct flight_piece){ .arena = i, .len = len,
						      .off = addr - a->base };
			return true;
		}
	}
	return false;
}

/* The last @owed bytes of the log, from behind: of what the socket has taken the lengths are not
 * what they were. */
static const char *owed_pieces(const struct flight_head *h, const struct flight_log *log,
			       uint32_t owed, struct flight_found *out)
{
	uint32_t left = owed, i = log->n;

	while (left) {
		const struct iovec *v;
		uint64_t addr, len;

		if (!i)
			return "what it was sending is damaged";
		v = &log->iov[--i];
		len = MIN(v->iov_len, left);
		if (v->iov_len > UINT32_MAX)
			return "what it was sending is damaged";
		addr = (uint64_t)(uintptr_t)v->iov_base + v->iov_len - len;
		if (len && !place(h, addr, (uint32_t)len, &out->piece[out->npieces++]))
			return "it was sending what is gone";
		left -= (uint32_t)len;
	}
	for (uint32_t a = 0, b = out->npieces; a + 1 < b; a++) {
		struct flight_piece p = out->piece[a];

		out->piece[a] = out->piece[--b];
		out->piece[b] = p;
	}
	out->owed = owed;
	return NULL;
}

/* ---- what is to be carried out --------------------------------------------------------------- */

struct judging {
	const struct flight_slot *slot;
	struct flight_cmd cmd[FLIGHT_CMDS]; /* as far as the log has got */
	bool answered[FLIGHT_CMDS];
	uint32_t at, exp_cmd_sn, rooms;
	bool into; /* it was in the middle of a Data-Out PDU, which ends at ->at */
};

static bool log_can_be(const struct flight_log *log)
{
	return log->n <= FLIGHT_IOVS && log->nheaders <= FLIGHT_HEADERS;
}

/* What the log says of commands. */
static bool follow_log(struct judging *j, const struct flight_log *log)
{
	for (uint32_t i = 0; i < log->nheaders; i++) {
		const uint8_t *bhs = log->header[i].bhs;
		const uint32_t k = log->cmd[i];

		if (!k)
			continue;
		/* (One that was freed: the log was over, and its memory is used again.) */
		if (k > FLIGHT_CMDS)
			return false;
		if (flight_answers(bhs))
			j->answered[k - 1] = true;
		else if (bhs_opcode(bhs) == ISCSI_DATA_IN || bhs_opcode(bhs) == ISCSI_R2T)
			flight_progress(&j->cmd[k - 1], bhs);
	}
	return true;
}

/* PDUs are taken in order, so the newest command says how far that is. Which is the newest, its
 * CmdSN says: of one that has been under way while gigabytes came, ->at may be any number. */
static void follow_commands(struct judging *j)
{
	for (unsigned i = 0; i < FLIGHT_CMDS; i++) {
		const struct flight_cmd *c = &j->cmd[i];
		const uint32_t cmd_sn = get_be32(c->bhs + BHS_CMD_SN);

		if (c->state == FLIGHT_FREE || sn_lt(cmd_sn, j->exp_cmd_sn))
			continue;
		j->at = c->at;
		j->exp_cmd_sn = cmd_sn + 1;
	}
}

/* What has come of Data-Out: sequences that are over, and a PDU that has begun. */
static void follow_data_out(struct judging *j)
{
	const uint64_t into = j->slot->into;
	const uint32_t end = (uint32_t)(into >> 32);
	const unsigned cmd = into >> 8 & 0xffff, seq = into >> 1 & 0x7f;

	for (unsigned i = 0; i < FLIGHT_CMDS; i++) {
		struct flight_cmd *c = &j->cmd[i];

		for (unsigned k = 0; c->state != FLIGHT_FREE && c->owed && k < FLIGHT_SEQS; k++) {
			const uint32_t over = (uint32_t)(c->seq[k] >> 32);

			if ((uint32_t)c->seq[k] == FLIGHT_SEQ_OVER && sn_lt(j->at, over))
				j->at = over;
		}
	}
	if (!into || !sn_lt(j->at, end))
		return;
	j->at = end;
	j->into = true;
	if (into & 1 && cmd && cmd <= FLIGHT_CMDS && seq < FLIGHT_SEQS)
		j->cmd[cmd - 1].seq[seq] = 0;
}

/* What of its sequences the initiator sends still. */
static void open_sequences(struct flight_cmd *c)
{
	for (unsigned k = 0; k < FLIGHT_SEQS; k++)
		if (!c->owed || c->state != FLIGHT_OWED ||
		    (c->seq[k] & (FLIGHT_SEQ_ASKED | FLIGHT_SEQ_SENT)) !=
			    (FLIGHT_SEQ_ASKED | FLIGHT_SEQ_SENT))
			c->seq[k] = 0;
}

/* NULL: it can be gone on with. */
static const char *command_wrong(const struct judging *j, const struct flight_cmd *c)
{
	const uint8_t *bhs = c->bhs;
	const bool write = bhs[BHS_FLAGS] & BHS_CMD_WRITE;

	if (c->state == FLIGHT_APPLYING)
		return write ? "a write may have been carried out, or not" :
			       "it was to be told of a unit attention";
	if (write ? c->state != FLIGHT_DONE && c->state != FLIGHT_WRITE && c->state != FLIGHT_OWED :
		    c->state != FLIGHT_READ)
		return "a command is damaged";
	if (c->state == FLIGHT_WRITE &&
	    (c->data >= j->rooms || bhs_data_len(bhs) > FLIGHT_RX_BYTES ||
	     bhs_data_len(bhs) != get_be32(bhs + BHS_EDTL)))
		return "a command is damaged";
	if (flight_kind(bhs[BHS_CDB]) != (write ? FLIGHT_APPLYING : FLIGHT_READ) ||
	    bhs[BHS_OPCODE] != ISCSI_SCSI_CMD || (!(bhs[BHS_FLAGS] & BHS_FINAL) && !c->owed) ||
	    bhs_ahs_len(bhs) || get_be32(bhs + BHS_ITT) == ISCSI_TAG_NONE ||
	    !sn_lt(get_be32(bhs + BHS_CMD_SN), j->exp_cmd_sn))
		return "a command is damaged";
	if (!write && (bhs_data_len(bhs) || c->off > get_be32(bhs + BHS_EDTL)))
		return "a command is damaged";
	if (c->state == FLIGHT_OWED && (!c->owed || c->off >= get_be32(bhs + BHS_EDTL)))
		return "a command is damaged";
	/* Others may write to the sector meanwhile, of which the initiator has the first part. */
	if (c->off % 4096)
		return "it was sending in the middle of a sector";
	return NULL;
}

static int by_cmd_sn(const void *a, const void *b)
{
	const struct flight_cmd *x = a, *y = b;

	return sn_lt(get_be32(x->bhs + BHS_CMD_SN), get_be32(y->bhs + BHS_CMD_SN)) ? -1 : 1;
}

static const char *open_commands(const struct judging *j, struct flight_found *out)
{
	for (unsigned i = 0; i < FLIGHT_CMDS; i++) {
		const struct flight_cmd *c = &j->cmd[i];
		const char *wrong;

		if (c->state == FLIGHT_FREE || j->answered[i])
			continue;
		wrong = command_wrong(j, c);
		if (wrong)
			return wrong;
		for (uint32_t k = 0; k < out->ncmds; k++)
			if (!memcmp(c->bhs + BHS_ITT, out->cmd[k].bhs + BHS_ITT, 4) ||
			    !memcmp(c->bhs + BHS_CMD_SN, out->cmd[k].bhs + BHS_CMD_SN, 4))
				return "two commands are one";
		out->cmd[out->ncmds] = *c;
		open_sequences(&out->cmd[out->ncmds++]);
	}
	if (out->ncmds)
		qsort(out->cmd, out->ncmds, sizeof(out->cmd[0]), by_cmd_sn);
	return NULL;
}

/* ---- what was received ----------------------------------------------------------------------- */

static const char *unparsed(const struct flight_head *h, const struct judging *j,
			    struct flight_found *out)
{
	const struct flight_slot *slot = j->slot;
	const uint32_t n = (uint32_t)out->received - j->at;
	const uint64_t from = out->received - n;

	if (j->into && sn_lt((uint32_t)out->received, j->at)) {
		out->skip = j->at - (uint32_t)out->received;
		return out->skip > FLIGHT_SKIP_MAX ? "it was reading what is gone" : NULL;
	}
	out->unparsed = n;
	if (!n)
		return NULL;
	if (n > FLIGHT_RX_BYTES || n > out->received)
		return "it was reading what is gone";
	if (!room_at(slot->rx_buf, h->rx_off, FLIGHT_RX_ROOM, h->rooms) || from < slot->rx_base ||
	    out->received - slot->rx_base > FLIGHT_RX_BYTES)
		return "it was reading what is gone";
	out->unparsed_off = slot->rx_buf + (from - slot->rx_base);
	return NULL;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static const char *judge_slot(struct judging *j, const struct flight_head *h,
			 const struct flight_log *log, struct flight_found *out)
{
	const struct flight_slot *slot = j->slot;
	const char *wrong = NULL;

	if (log && log->total) {
		const uint64_t end = log->base + log->total;

		if (log->moving)
			return "it was just sending";
		if (!log_can_be(log) || !follow_log(j, log))
			return "what it was sending is damaged";
		if (out->sent < log->base || out->sent > end ||
		    (slot->sent != log->base && slot->sent != end))
			return "it has sent what it has not recorded";
		out->stat_sn = log->stat_sn;
		out->max_cmd_sn = log->max_cmd_sn;
		wrong = owed_pieces(h, log, (uint32_t)(end - out->sent), out);
	} else if (out->sent != slot->sent) {
		return "it has sent what it has not recorded";
	}
	if (!wrong)
		follow_commands(j);
	if (!wrong)
		follow_data_out(j);
	out->exp_cmd_sn = j->exp_cmd_sn;
	if (!wrong)
		wrong = open_commands(j, out);
	return wrong ?: unparsed(h, j, out);
}

const char *flight_judge(const struct flight_head *h, const struct flight_slot *slot,
			 const struct flight_log *log, uint64_t received, uint64_t sent,
			 struct flight_found *out)
{
	struct judging *j = calloc(1, sizeof(*j));
	const char *wrong;

	memset(out, 0, sizeof(*out));
	out->tsih = slot->tsih;
	out->cid = slot->cid;
	out->received = received;
	out->sent = sent;
	out->stat_sn = slot->stat_sn;
	out->max_cmd_sn = slot->max_cmd_sn;
	if (!j)
		return "there is no memory for it";
	j->slot = slot;
	j->rooms = h->rooms;
	memcpy(j->cmd, slot->cmd, sizeof(j->cmd));
	j->at = (uint32_t)(slot->taken >> 32);
	j->exp_cmd_sn = (uint32_t)slot->taken;
	wrong = slot->version != FLIGHT_VERSION ? "another version has recorded it" :
		slot->doubts ? "it was doing what nobody can go on with" :
			       judge_slot(j, h, log, out);
	free(j);
	return wrong;
}
