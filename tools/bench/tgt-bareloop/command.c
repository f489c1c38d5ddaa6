/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgt-bareloop: answers to commands: reads from fixed memory, writes by
 * R2T, a few of SPC and SBC. */
#include <string.h>

#include "tools/bench/tgt-bareloop/tx.h"

static void tx_status(struct bconn *c, uint32_t itt, uint8_t flags, uint32_t residual)
{
	uint8_t *r = tx_header(c, OP_SCSI_RSP, FL_FINAL | flags);

	put32(r + 16, itt);
	put32(r + 24, c->stat_sn++);
	tx_sn(c, r);
	put32(r + 44, residual);
	tx_pdu(c, r, NULL, 0);
}

static inline void tx_data_in(struct bconn *c, const uint8_t *h, const uint8_t *data, uint32_t n)
{
	uint32_t want = get32(h + 20), at = 0, sn = 0;

	if (n > want)
		n = want;
	do {
		uint32_t k = n - at < c->their_segment ? n - at : c->their_segment;
		bool last = at + k == n;
		uint8_t *r = tx_header(c, OP_DATA_IN, last ? FL_FINAL | DIN_STATUS : 0);

		memcpy(r + 16, h + 16, 4);
		put32(r + 20, TAG_NONE);
		if (last) {
			put32(r + 24, c->stat_sn++);
			if (n < want) {
				r[1] |= RSP_UNDERFLOW;
				put32(r + 44, want - n);
			}
		}
		tx_sn(c, r);
		put32(r + 36, sn++);
		put32(r + 40, at);
		tx_pdu(c, r, data + at, k);
		at += k;
	} while (at < n);
}

static void tx_r2t(struct bconn *c, struct wtask *t)
{
	uint32_t n = t->len - t->got < c->max_burst ? t->len - t->got : c->max_burst;
	uint8_t *r = tx_header(c, OP_R2T, FL_FINAL);

	memcpy(r + 8, t->lun, 8);
	put32(r + 16, t->itt);
	put32(r + 20, t->itt);
	put32(r + 24, c->stat_sn);
	tx_sn(c, r);
	put32(r + 36, t->r2t_sn++);
	put32(r + 40, t->got);
	put32(r + 44, n);
	tx_pdu(c, r, NULL, 0);
	t->due = t->got + n;
}

void command_write_step(struct bconn *c, struct wtask *t)
{
	if (t->got < t->due)
		return;
	if (t->got < t->len) {
		tx_r2t(c, t);
		return;
	}
	t->active = false;
	tx_status(c, t->itt, 0, 0);
}

static bool on_write(struct bconn *c, const uint8_t *h, uint32_t n)
{
	uint32_t itt = get32(h + 16), len = get32(h + 20), first;
	struct wtask *t = &c->task[itt & (TAGS - 1)];

	if (t->active || len > IO_MAX || n > len)
		return false;
	first = len < c->first_burst ? len : c->first_burst;
	*t = (struct wtask){.itt = itt, .len = len, .got = n, .active = true};
	memcpy(t->lun, h + 8, 8);
	t->due = h[1] & FL_FINAL ? n : first;
	c->on_skip_end = t;
	return true;
}

static const uint8_t *read_place(uint64_t offset, uint32_t n)
{
	/* With memory as large as the LU every block has its own bytes, as in a real target. */
	if (offset + n <= opt.memory)
		return memory + offset;
	return memory + (opt.memory > n ? offset % (opt.memory - n + 1) & ~511ull : 0);
}

bool command_answer(struct bconn *c, const uint8_t *h, uint32_t n)
{
	uint32_t want = get32(h + 20);
	const uint8_t *cdb = h + 32;
	uint8_t small[36] = {0};
	uint32_t small_n;
	uint8_t *keep;

	if (!(h[0] & OP_IMMEDIATE))
		c->exp_cmd_sn++;
	switch (cdb[0]) {
	case CDB_READ_10:
	case CDB_READ_16:
		if (want > IO_MAX || want / c->their_segment > PDUS_MAX)
			return false;
		tx_data_in(c, h,
			   read_place((cdb[0] == CDB_READ_10 ? get32(cdb + 2) : get64(cdb + 2)) *
					      512ull,
				      want),
			   want);
		return true;
	case CDB_WRITE_10:
	case CDB_WRITE_16:
		return on_write(c, h, n);
	case 0x12: /* INQUIRY */
		memcpy(small, "\0\0\5\2\37\0\0\2TGT     BARE LOOP       0001", 36);
		small_n = 36;
		break;
	case 0x25: /* READ CAPACITY(10) */
		put32(small, (uint32_t)(opt.lu_bytes / 512 - 1));
		put32(small + 4, 512);
		small_n = 8;
		break;
	case 0x9e: /* READ CAPACITY(16) */
		put64(small, opt.lu_bytes / 512 - 1);
		put32(small + 8, 512);
		small_n = 32;
		break;
	default:
		tx_status(c, get32(h + 16), want ? RSP_UNDERFLOW : 0, want);
		return true;
	}
	keep = tx_keep(c, small_n);
	memcpy(keep, small, small_n);
	tx_data_in(c, h, keep, small_n);
	return true;
}

void nop_answer(struct bconn *c, const uint8_t *h)
{
	uint8_t *r;

	if (!(h[0] & OP_IMMEDIATE))
		c->exp_cmd_sn++;
	if (get32(h + 16) == TAG_NONE)
		return;
	r = tx_header(c, OP_NOP_IN, FL_FINAL);
	memcpy(r + 16, h + 16, 4);
	put32(r + 20, TAG_NONE);
	put32(r + 24, c->stat_sn++);
	tx_sn(c, r);
	tx_pdu(c, r, NULL, 0);
}
