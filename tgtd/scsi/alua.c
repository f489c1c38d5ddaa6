/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Asymmetric logical unit access (SPC-4 5.15): one target port group with all the target's ports in
 * it; its state is kept per logical unit, set by SET TARGET PORT GROUPS.
 */
#include "tgtd/scsi/lu.h"

enum { ALUA_ACTIVE_OPTIMIZED, ALUA_ACTIVE_NON_OPTIMIZED, ALUA_STANDBY, ALUA_UNAVAILABLE };
#define STATUS_BY_SET 0x01

bool scsi_alua_pass(struct scsi_cmd *cmd)
{
	switch (cmd->lu->alua_state) {
	case ALUA_STANDBY: /* TARGET PORT IN STANDBY STATE */
		scsi_done_sense(cmd, SENSE_NOT_READY, 0x040b);
		return false;
	case ALUA_UNAVAILABLE: /* TARGET PORT IN UNAVAILABLE STATE */
		scsi_done_sense(cmd, SENSE_NOT_READY, 0x040c);
		return false;
	}
	return true;
}

#define PORTS_MAX 64

/* The ports that sessions have come by, this one first. */
static unsigned known_ports(struct scsi_cmd *cmd, uint16_t *port)
{
	struct scsi_target *t = cmd->nexus->target;
	struct scsi_nexus *n;
	unsigned count = 1, i;

	port[0] = cmd->nexus->rtpi;
	pthread_mutex_lock(&t->lock);
	list_for_each(n, &t->nexuses, link) {
		for (i = 0; i < count && port[i] != n->rtpi; i++)
			;
		if (i == count && count < PORTS_MAX)
			port[count++] = n->rtpi;
	}
	pthread_mutex_unlock(&t->lock);
	return count;
}

/* SPC-4 6.37 */
void op_report_tpgs(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	uint8_t format = cmd->cdb[1] >> 5, *b, *d;
	uint16_t port[PORTS_MAX];
	unsigned n = known_ports(cmd, port);
	size_t head = format == 1 ? 8 : 4, len = head + 8 + 4 * (size_t)n;

	if (format > 1) {
		scsi_bad_cdb(cmd, 1, 7);
		return;
	}
	b = scsi_heap(cmd, len);
	if (!b)
		return;
	put_be32(b, (uint32_t)len - 4);
	if (format == 1)
		b[4] = 0x10; /* extended header; no implicit transition takes any time */
	d = b + head;
	pthread_mutex_lock(&lu->lock);
	d[0] = (uint8_t)lu->alua_state; /* PREF = 0: one group has nothing to be preferred to */
	d[5] = lu->alua_set ? STATUS_BY_SET : 0;
	pthread_mutex_unlock(&lu->lock);
	d[1] = 0x0f; /* unavailable, standby, active/non-optimized, active/optimized */
	put_be16(d + 2, SCSI_TPG);
	d[7] = (uint8_t)n;
	for (unsigned i = 0; i < n; i++)
		put_be16(d + 8 + 4 * i + 2, port[i]);
	scsi_data_in(cmd, len, get_be32(cmd->cdb + 6));
}

static void set_tpgs(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	const uint8_t *p = cmd->heap;
	int state = -1;

	if (cmd->heap_got < 4 || cmd->heap_got % 4) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, 0x1a00);
		return;
	}
	for (uint32_t at = 4; at < cmd->heap_got; at += 4) {
		if (get_be16(p + at + 2) != SCSI_TPG) {
			scsi_bad_param(cmd, (uint16_t)(at + 2), -1);
			return;
		}
		state = p[at] & 0x0f;
		if (state > ALUA_UNAVAILABLE) {
			scsi_bad_param(cmd, (uint16_t)at, 3);
			return;
		}
	}
	if (state >= 0) {
		pthread_mutex_lock(&lu->lock);
		if (lu->alua_state != state)
			scsi_ua_raise_locked(lu, cmd->itl, UA_ALUA_CHANGED);
		lu->alua_state = (uint8_t)state;
		lu->alua_set = true;
		scsi_lu_gate_locked(lu, GATE_ALUA, state >= ALUA_STANDBY);
		pthread_mutex_unlock(&lu->lock);
	}
	scsi_done(cmd);
}

/* SPC-4 6.45 */
void op_set_tpgs(struct scsi_cmd *cmd)
{
	uint32_t len = get_be32(cmd->cdb + 6);

	if (len == 0)
		scsi_done(cmd);
	else if (len > 4096)
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, 0x1a00);
	else
		scsi_data_out(cmd, len, set_tpgs);
}
