/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The record of a connection at work that a process has left which is dead, and may have gone
 * wrong. It begins as a right one: of a read whose answer was sent in part, a write that waits, and
 * one that is owed data. The input is patches to it: which part, where, how many bytes, and these.
 * What must hold: what is to be sent, looked at and carried out lies where it can lie, and is as
 * much as it says.
 */
#include <stdlib.h>

#include "events/bug.h"
#include "tgtd/iscsi/flight_form.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BASE 0x100000000ull
#define ARENA 0x200000000ull

struct record {
	struct flight_head head;
	struct flight_slot slot;
	struct flight_log log;
	uint64_t received, sent;
};

static void put_command(struct flight_cmd *c, uint32_t sn, bool write, uint32_t at)
{
	c->bhs[BHS_OPCODE] = ISCSI_SCSI_CMD;
	c->bhs[BHS_FLAGS] = BHS_FINAL | (write ? BHS_CMD_WRITE : BHS_CMD_READ);
	c->bhs[BHS_CDB] = write ? 0x2a : 0x28;
	put_be24(c->bhs + BHS_DATA_LEN, write ? 512 : 0);
	put_be32(c->bhs + BHS_EDTL, write ? 512 : 8192);
	put_be32(c->bhs + BHS_ITT, sn);
	put_be32(c->bhs + BHS_CMD_SN, sn);
	c->state = write ? FLIGHT_WRITE : FLIGHT_READ;
	c->at = at;
}

static void put_right(struct record *r)
{
	struct flight_head *h = &r->head;
	uint8_t *bhs = r->log.header[0].bhs;

	*h = (struct flight_head){ .version = FLIGHT_VERSION, .slots = 2, .rooms = 4,
				   .base = BASE };
	h->rx_off = FLIGHT_HEAD + 2 * FLIGHT_SLOT;
	h->tx_off = h->rx_off + 4 * FLIGHT_RX_ROOM;
	h->size = h->tx_off + 4 * FLIGHT_TX_ROOM;
	h->arena[0] = (struct flight_arena){ ARENA, MiB(1) };
	r->received = 4000;
	r->sent = 1500;
	r->slot.version = FLIGHT_VERSION;
	r->slot.taken = flight_taken(2000, 7);
	r->slot.rx_base = 1000;
	r->slot.rx_buf = h->rx_off;
	r->slot.log = h->tx_off;
	r->slot.sent = 1000;
	put_command(&r->slot.cmd[3], 6, false, 1900);
	put_command(&r->slot.cmd[4], 7, true, 2560);
	put_command(&r->slot.cmd[5], 5, true, 1800);
	r->slot.cmd[5].state = FLIGHT_OWED;
	put_be32(r->slot.cmd[5].bhs + BHS_EDTL, 65536);
	r->slot.cmd[5].owed = 1;
	r->slot.cmd[5].off = 4096;
	r->slot.cmd[5].seq[1] = FLIGHT_SEQ_ASKED | FLIGHT_SEQ_SENT | 9;
	r->slot.cmd[5].seq[2] = 2600ull << 32 | FLIGHT_SEQ_OVER;
	r->slot.into = flight_into(9000, 6, 1, false);
	r->log.base = 1000;
	r->log.total = 48 + 4096;
	r->log.n = 2;
	r->log.nheaders = 1;
	r->log.cmd[0] = 4;
	bhs[BHS_OPCODE] = ISCSI_DATA_IN;
	put_be24(bhs + BHS_DATA_LEN, 4096);
	r->log.iov[0] = (struct iovec){ (void *)(uintptr_t)(BASE + h->tx_off), 48 };
	r->log.iov[1] = (struct iovec){ (void *)(uintptr_t)(ARENA + 4096), 4096 };
}

static void patch(struct record *r, const uint8_t *data, size_t size)
{
	while (size >= 4) {
		const size_t len = MIN(data[3] & 63u, size - 4);
		uint8_t *part[4] = { (uint8_t *)&r->head, (uint8_t *)&r->slot, (uint8_t *)&r->log,
				     (uint8_t *)&r->received };
		const size_t room[4] = { sizeof(r->head), sizeof(r->slot), sizeof(r->log), 16 };
		const unsigned k = data[0] & 3;
		const size_t at = ((size_t)data[1] << 8 | data[2]) % room[k];

		memcpy(part[k] + at, data + 4, MIN(len, room[k] - at));
		data += 4 + len;
		size -= 4 + len;
	}
}

static void must_hold(const struct record *r, const struct flight_found *f)
{
	uint64_t owed = 0;

	BUG_ON(f->npieces > FLIGHT_IOVS || f->ncmds > FLIGHT_CMDS);
	for (uint32_t i = 0; i < f->npieces; i++) {
		const struct flight_piece *p = &f->piece[i];
		const uint64_t size = p->arena == FLIGHT_ARENAS ? r->head.size :
								  r->head.arena[p->arena].len;

		BUG_ON(p->arena > FLIGHT_ARENAS || p->off > size || p->len > size - p->off);
		owed += p->len;
	}
	BUG_ON(owed != f->owed);
	BUG_ON(f->unparsed && (f->unparsed_off < r->head.rx_off ||
			       f->unparsed_off + f->unparsed > r->head.tx_off));
	BUG_ON(f->skip && (f->unparsed || f->skip > FLIGHT_SKIP_MAX));
	for (uint32_t i = 0; i < f->ncmds; i++) {
		const struct flight_cmd *c = &f->cmd[i];

		BUG_ON(c->state != FLIGHT_READ && c->state != FLIGHT_DONE &&
		       c->state != FLIGHT_WRITE && c->state != FLIGHT_OWED);
		BUG_ON(c->state == FLIGHT_OWED && c->off >= get_be32(c->bhs + BHS_EDTL));
		for (unsigned k = 0; k < FLIGHT_SEQS; k++)
			BUG_ON(c->seq[k] && (c->state != FLIGHT_OWED ||
					     !(c->seq[k] & FLIGHT_SEQ_SENT)));
		BUG_ON(!sn_lt(get_be32(c->bhs + BHS_CMD_SN), f->exp_cmd_sn));
		BUG_ON(c->state == FLIGHT_READ && c->off > get_be32(c->bhs + BHS_EDTL));
		BUG_ON(c->state == FLIGHT_WRITE && c->data >= r->head.rooms);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct record *r = calloc(1, sizeof(*r));
	struct flight_found *f = malloc(sizeof(*f));

	BUG_ON(!r || !f);
	put_right(r);
	patch(r, data, size);
	if (!flight_head_wrong(&r->head, r->head.size) &&
	    !flight_judge(&r->head, &r->slot, r->slot.log ? &r->log : NULL, r->received, r->sent,
			  f))
		must_hold(r, f);
	else
		BUG_ON(!size);
	free(f);
	free(r);
	return 0;
}
