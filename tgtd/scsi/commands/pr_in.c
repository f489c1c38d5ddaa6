/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * PERSISTENT RESERVE IN (SPC-4 6.15). Of a gateway group's unit it is a look at what the gateways
 * share, by each of them: standby ports answer, too (SPC-4 5.15.2.4.5), and nobody shows what the
 * one that serves does not obey yet.
 */
#include <stdlib.h>
#include "tgtd/scsi/commands/pr.h"
#include "tgtd/scsi/commands/pr_shared.h"
#include "tgtd/scsi/shared.h"

struct pr_look {
	struct scsi_ask ask;
	struct pr_shared s;
	void (*answer)(struct scsi_cmd *cmd);
};

static struct pr_look *look_of(struct scsi_ask *a)
{
	return container_of(a, struct pr_look, ask);
}

static void look_free(struct scsi_ask *a)
{
	pr_fini(&look_of(a)->s.pr);
	free(look_of(a));
}

static int look_seen(struct scsi_ask *a, const uint8_t *bytes, size_t len)
{
	struct pr_shared *s = &look_of(a)->s;
	const char *why = pr_decode(s, bytes, len);

	if (why)
		pr_shared_init(s);
	return why ? -EBADMSG : 0;
}

static void pr_looked(struct scsi_cmd *cmd)
{
	struct scsi_ask *a = cmd->priv;

	if (a->result)
		scsi_ask_failed(cmd, a->result);
	else
		look_of(a)->answer(cmd);
}

static void look_then(struct scsi_cmd *cmd, void (*answer)(struct scsi_cmd *cmd))
{
	struct pr_look *l;

	if (!cmd->lu->gateways) {
		answer(cmd);
		return;
	}
	l = calloc(1, sizeof(*l));
	if (!l) {
		scsi_ask_failed(cmd, -ENOMEM);
		return;
	}
	pr_shared_init(&l->s);
	l->ask.looks = true;
	l->ask.seen = look_seen;
	l->ask.free = look_free;
	l->answer = answer;
	scsi_ask_begin(cmd, &l->ask, pr_looked);
}

/* The state that is shown: what the look has found, or the unit's own. Until pr_shown(). */
static const struct scsi_pr *pr_show(struct scsi_cmd *cmd)
{
	pthread_mutex_lock(&cmd->lu->lock);
	return cmd->lu->gateways ? &look_of(cmd->priv)->s.pr : cmd->lu->pr;
}

static void pr_shown(struct scsi_cmd *cmd)
{
	pthread_mutex_unlock(&cmd->lu->lock);
}

static uint8_t *head(struct scsi_cmd *cmd, size_t len, uint32_t generation)
{
	uint8_t *b = scsi_heap(cmd, 8 + len);

	if (b) {
		put_be32(b, generation);
		put_be32(b + 4, (uint32_t)len);
	}
	return b;
}

static void send_in(struct scsi_cmd *cmd, size_t len)
{
	scsi_data_in(cmd, len, get_be16(cmd->cdb + 7));
}

static void put_keys(struct scsi_cmd *cmd)
{
	const struct scsi_pr *pr;
	const struct pr_reg *reg;
	uint8_t *b = scsi_heap(cmd, 8 + 8 * PR_REGISTRATIONS_MAX);
	size_t n = 8;

	if (!b)
		return;
	pr = pr_show(cmd);
	put_be32(b, pr->generation);
	list_for_each(reg, &pr->regs, link) {
		put_be64(b + n, reg->key);
		n += 8;
	}
	pr_shown(cmd);
	put_be32(b + 4, (uint32_t)(n - 8));
	send_in(cmd, n);
}

static void put_reservation(struct scsi_cmd *cmd)
{
	const struct scsi_pr *pr;
	uint32_t generation;
	uint64_t key;
	uint8_t type, *b;

	pr = pr_show(cmd);
	generation = pr->generation;
	type = pr->type;
	key = pr->holder ? pr->holder->key : 0; /* zero when all registrants hold it */
	pr_shown(cmd);
	b = head(cmd, type ? 16 : 0, generation);
	if (!b)
		return;
	if (type) {
		put_be64(b + 8, key);
		b[21] = type; /* scope: logical unit */
	}
	send_in(cmd, type ? 24 : 8);
}

static void put_capabilities(struct scsi_cmd *cmd)
{
	const struct scsi_pr *pr;
	uint8_t *b = scsi_heap(cmd, 8);

	if (!b)
		return;
	put_be16(b, 8);
	/* CRH, SIP_C, ATP_C, PTPL_C */
	b[2] = (uint8_t)(0x10 | 0x08 | 0x04 | (cmd->lu->gateways || pr_file_possible() ? 0x01 : 0));
	b[3] = 0x80; /* TMV */
	pr = pr_show(cmd);
	if (pr->aptpl)
		b[3] |= 0x01; /* PTPL_A */
	pr_shown(cmd);
	b[4] = 0xea; /* WR_EX_AR, EX_AC_RO, WR_EX_RO, EX_AC, WR_EX */
	b[5] = 0x01; /* EX_AC_AR */
	send_in(cmd, 8);
}

static void put_full_status(struct scsi_cmd *cmd)
{
	const struct scsi_pr *pr;
	const struct pr_reg *reg;
	size_t n = 8, room = 8;
	uint8_t *b;

	pr = pr_show(cmd);
	room += pr->nregs * (24 + 4 + (size_t)SCSI_PORT_NAME_MAX + 4);
	pr_shown(cmd);
	b = scsi_heap(cmd, room);
	if (!b)
		return;
	pr = pr_show(cmd);
	put_be32(b, pr->generation);
	list_for_each(reg, &pr->regs, link) {
		size_t id;

		if (n + 24 + 4 + SCSI_PORT_NAME_MAX + 4 > room)
			break; /* registered between the two looks */
		put_be64(b + n, reg->key);
		b[n + 12] =
			(uint8_t)((reg->all_ports ? 0x02 : 0) | (pr_holds(pr, reg) ? 0x01 : 0));
		b[n + 13] = pr_holds(pr, reg) ? pr->type : 0;
		put_be16(b + n + 18, reg->all_ports ? 0 : reg->rtpi);
		id = pr_transport_id_put(b + n + 24, reg);
		put_be32(b + n + 20, (uint32_t)id);
		n += 24 + id;
	}
	pr_shown(cmd);
	put_be32(b + 4, (uint32_t)(n - 8));
	send_in(cmd, n);
}

void op_pr_read_keys(struct scsi_cmd *cmd)
{
	look_then(cmd, put_keys);
}

void op_pr_read_reservation(struct scsi_cmd *cmd)
{
	look_then(cmd, put_reservation);
}

void op_pr_report_capabilities(struct scsi_cmd *cmd)
{
	look_then(cmd, put_capabilities);
}

void op_pr_read_full_status(struct scsi_cmd *cmd)
{
	look_then(cmd, put_full_status);
}
