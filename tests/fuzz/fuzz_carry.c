/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What another process has written of sessions. The input is what follows the head. The head, with
 * its checksum, is made here, but for the lengths of structs, which are the input's first byte.
 * What must hold: all that is read lies in the input, and what is found right is in its ranges.
 */
#include <stdlib.h>

#include "events/bug.h"
#include "tgtd/iscsi/carry_form.h"
#include "tgtd/iscsi/digest.h"
#include "tgtd/iscsi/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum(const void *p, size_t len)
{
	uint64_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += ((const uint8_t *)p)[i];
	return n;
}

static void judge(const struct carry_session *s)
{
	struct iscsi_params p;

	BUG_ON(strlen(s->target) > ISCSI_NAME_MAX || strlen(s->initiator) > ISCSI_NAME_MAX);
	BUG_ON(strlen(s->alias) > 255 || strlen(s->user) > 255 || !s->tsih || s->tsih > 0xffff);
	BUG_ON(!s->window || s->window > ISCSI_CMD_WINDOW);
	BUG_ON(sn_lt(s->max_cmd_sn, s->exp_cmd_sn - 1));
	carry_get_params(&p, &s->params);
	BUG_ON(p.first_burst > p.max_burst || p.max_recv_dsl < 512 || p.max_xmit_dsl < 512);
}

/* False: no end of it can be found. */
static bool read_one(struct carry_reader *r, volatile uint64_t *seen)
{
	struct carry_session s;
	struct carry_conn c;
	struct carry_lun l;
	const uint8_t *bytes;

	if (!carry_read_session(r, &s))
		return false;
	BUG_ON(s.nconns > CARRY_CONNS_MAX || s.nluns > SCSI_MAX_LUN + 1);
	if (!carry_session_wrong(&s))
		judge(&s);
	for (uint32_t i = 0; i < s.nluns; i++) {
		if (!carry_read_lun(r, &l))
			return false;
		BUG_ON(!carry_lun_wrong(&l) && (l.nua > SCSI_CARRIED_UAS || l.lun > SCSI_MAX_LUN));
	}
	for (uint32_t i = 0; i < s.nconns; i++) {
		if (!carry_read_conn(r, &c, &bytes))
			return false;
		*seen += sum(bytes, c.unparsed);
		BUG_ON(!carry_conn_wrong(&c, &s) && sn_lt(c.stat_sn, c.exp_stat_sn));
	}
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	volatile uint64_t seen = 0;
	struct carry_reader r;
	uint8_t *all;
	uint32_t crc;

	if (!size)
		return 0;
	const uint32_t longer = (*data & 7) * 8u; /* structs of a later version */
	const uint32_t lens[3] = { (uint32_t)sizeof(struct carry_session) + longer,
				   (uint32_t)sizeof(struct carry_lun) + longer,
				   (uint32_t)sizeof(struct carry_conn) + longer };

	data++;
	size--;
	all = malloc(CARRY_HEAD_LEN + size);
	BUG_ON(!all);
	memcpy(all + CARRY_HEAD_LEN, data, size);
	carry_put_head(all, 1000, 7, size, 0);
	memcpy(all + 32, lens, sizeof(lens));
	crc = carry_crc(DIGEST_INIT, all + CARRY_HEAD_LEN, size);
	crc = carry_crc(crc, all + 16, CARRY_HEAD_LEN - 16);
	memcpy(all + 12, &crc, sizeof(crc));
	if (!carry_read(&r, all, CARRY_HEAD_LEN + size))
		while (read_one(&r, &seen))
			;
	/* and with a head that says what it likes */
	memcpy(all, data, MIN(size, (size_t)CARRY_HEAD_LEN));
	if (!carry_read(&r, all, CARRY_HEAD_LEN + size))
		while (read_one(&r, &seen))
			;
	free(all);
	return 0;
}
