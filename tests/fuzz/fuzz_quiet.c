/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A slot that a process has left which is dead, and may have gone wrong. The first byte says how
 * much of the rest is made right here, so that what is behind the checksums is reached. What must
 * hold: what is read lies in the input, and can be read again as carry_form.h has it.
 */
#include <stdlib.h>

#include "events/bug.h"
#include "tgtd/iscsi/digest.h"
#include "tgtd/iscsi/quiet_form.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RIGHT_CRC = 1, RIGHT_SN = 2, RIGHT_CHECKS = 4, RIGHT_LEN = 8, RIGHT_CONNS = 16 };

static void make_right(struct quiet_slot *s, size_t record, unsigned what)
{
	s->version = QUIET_VERSION;
	s->changes = s->recorded;
	if (what & RIGHT_LEN)
		s->len = (uint32_t)record;
	if (what & RIGHT_SN)
		s->not_sn = ~s->sn;
	for (unsigned i = 0; i < CARRY_CONNS_MAX; i++) {
		struct quiet_conn *c = &s->conn[i];

		if (what & RIGHT_CONNS)
			c->cid = i;
		if (what & RIGHT_CHECKS)
			c->check = quiet_conn_check(c->received, c->sent, c->stat_sn, c->cid);
	}
	if (what & RIGHT_CRC && s->len <= record)
		s->crc = quiet_crc(s->record, s->len, s->recorded);
}

/* One session that is all there is, and has what its sockets must have. */
static void can_be_read(const uint8_t *record, size_t len)
{
	uint8_t *all = malloc(CARRY_HEAD_LEN + len);
	struct carry_reader r;
	struct carry_session s;
	struct carry_conn c;
	struct carry_lun l;
	const uint8_t *bytes;

	BUG_ON(!all);
	memcpy(all + CARRY_HEAD_LEN, record, len);
	carry_put_head(all, 1, 1, len, carry_crc(DIGEST_INIT, record, len));
	BUG_ON(carry_read(&r, all, CARRY_HEAD_LEN + len));
	BUG_ON(!carry_read_session(&r, &s));
	for (uint32_t i = 0; i < s.nluns; i++)
		BUG_ON(!carry_read_lun(&r, &l));
	for (uint32_t i = 0; i < s.nconns; i++) {
		BUG_ON(!carry_read_conn(&r, &c, &bytes));
		BUG_ON(!c.counted || c.unparsed);
	}
	BUG_ON(r.p != r.end);
	free(all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t out[QUIET_OUT_MAX];
	uint32_t tsih;
	uint8_t *slot;
	size_t n;

	if (!size || size > QUIET_SLOT)
		return 0;
	const unsigned what = *data++;

	size--;
	slot = malloc(size + 1); /* as long as it is, for who looks behind it */
	BUG_ON(!slot);
	memcpy(slot, data, size);
	if (size >= sizeof(struct quiet_slot))
		make_right((struct quiet_slot *)(void *)slot, size - sizeof(struct quiet_slot),
			   what);
	if (!quiet_slot_read(slot, size, NULL, out, &n, &tsih))
		can_be_read(out, n);
	free(slot);
	return 0;
}
