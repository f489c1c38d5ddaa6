/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LOG SENSE (SPC-4 6.8, 7.3; SBC-4 6.4): supported pages, logical block provisioning 0Ch,
 * temperature 0Dh, general statistics 19h, informational exceptions 2Fh. */
#include <stdlib.h>
#include "tgtd/scsi/commands/commands.h"

#define LOG_MAX 512

/* Writes a parameter's header; its @len bytes of value come next. */
static uint8_t *log_page_param(uint8_t **p, uint16_t code, uint8_t control, uint8_t len)
{
	uint8_t *value = *p + 4;

	put_be16(*p, code);
	(*p)[2] = control;
	(*p)[3] = len;
	*p = value + len;
	return value;
}

enum { BINARY_LIST = 0x03, COUNTER = 0x02 }; /* FORMAT AND LINKING */

static void page_provisioning(struct scsi_cmd *cmd, uint8_t **p)
{
	const struct scsi_space *s = cmd->priv;
	uint8_t *v;

	v = log_page_param(p, 0x0001, BINARY_LIST, 8); /* available LBA mapping resources */
	put_be32(v, (uint32_t)MIN(s->left >> SCSI_THRESHOLD_EXPONENT, UINT32_MAX));
	v[4] = s->shared ? 0x02 : 0x01; /* SCOPE: dedicated to this logical unit, or not */
	v = log_page_param(p, 0x0002, BINARY_LIST, 8); /* used */
	put_be32(v, (uint32_t)(DIV_ROUND_UP(s->used, 1ull << SCSI_THRESHOLD_EXPONENT)));
	v[4] = 0x01;
}

static void page_temperature(struct scsi_cmd *cmd, uint8_t **p)
{
	(void)cmd;
	log_page_param(p, 0x0000, BINARY_LIST, 2)[1] =
		0xff; /* memory and files have no sensor: unknown */
	log_page_param(p, 0x0001, BINARY_LIST, 2)[1] = 0xff;
}

/* One time interval is INTERVAL_NS long: 1 x 10^-6 s. That is the unit; what the figures
 * are exact to, load.c says. */
enum { INTERVAL_NS = 1000, INTERVAL_EXPONENT = 6, INTERVAL_INTEGER = 1 };

/*
 * SPC-4 7.3.6. The weighted figures shall be zero, since command priority is not supported. Of the
 * parameters, 1 and 2 are unbounded data counters (7.3.2.2.2.3), 3 is a binary list.
 */
static void page_statistics(struct scsi_cmd *cmd, uint8_t **p)
{
	struct lu_perf_times spent;
	struct scsi_lu_stats st;
	uint64_t idle;
	uint8_t *v = log_page_param(p, 0x0001, COUNTER, 64);

	scsi_lu_get_stats(cmd->lu, NULL, &st);
	scsi_lu_get_perf(cmd->lu, clock_now_ns(), &spent, &idle);
	put_be64(v, st.rd_subm_cmds);
	put_be64(v + 8, st.wr_subm_cmds);
	put_be64(v + 16, st.wr_done_bytes >> cmd->lu->block_shift); /* received */
	put_be64(v + 24, st.rd_done_bytes >> cmd->lu->block_shift); /* transmitted */
	put_be64(v + 32, spent.rd / INTERVAL_NS);
	put_be64(v + 40, spent.wr / INTERVAL_NS);
	put_be64(log_page_param(p, 0x0002, COUNTER, 8), idle / INTERVAL_NS);
	v = log_page_param(p, 0x0003, BINARY_LIST, 8);
	put_be32(v, INTERVAL_EXPONENT);
	put_be32(v + 4, INTERVAL_INTEGER);
}

static void page_exceptions(struct scsi_cmd *cmd, uint8_t **p)
{
	(void)cmd;
	/* No exception; temperature, and its limit, unknown. */
	memset(log_page_param(p, 0x0000, BINARY_LIST, 4) + 2, 0xff, 2);
}

static const struct log_page {
	uint8_t code;
	bool disk, thin;
	void (*fill)(struct scsi_cmd *cmd, uint8_t **p);
} pages[] = {
	{ 0x00, false, false, NULL },		  { 0x0c, true, true, page_provisioning },
	{ 0x0d, true, false, page_temperature },  { 0x19, true, false, page_statistics },
	{ 0x2f, true, false, page_exceptions },
};

static bool log_page_offered(const struct scsi_cmd *cmd, const struct log_page *pg)
{
	return (!pg->disk || cmd->lu->blk) && (!pg->thin || scsi_lu_thresholds(cmd->lu));
}

static void send_page(struct scsi_cmd *cmd)
{
	uint8_t code = cmd->cdb[2] & 0x3f, sub = cmd->cdb[3], *b = cmd->heap, *p = b + 4;
	uint16_t first = get_be16(cmd->cdb + 5);
	size_t n, at;

	b[0] = (uint8_t)(code | (sub ? 0x40 : 0));
	b[1] = sub;
	for (unsigned i = 0; i < ARRAY_SIZE(pages); i++) {
		if (code == 0x00 && log_page_offered(cmd, &pages[i])) {
			*p++ = pages[i].code;
			if (sub)
				*p++ = 0;
			if (sub && i == 0) { /* the list with subpages names itself, too */
				*p++ = 0x00;
				*p++ = 0xff;
			}
		} else if (code && pages[i].code == code) {
			pages[i].fill(cmd, &p);
		}
	}
	n = (size_t)(p - b);
	if (first) { /* PARAMETER POINTER: parameters from that code on */
		for (at = 4; code && at < n && get_be16(b + at) < first; at += 4u + b[at + 3])
			;
		if (!code || at >= n) {
			scsi_bad_cdb(cmd, 5, -1);
			return;
		}
		memmove(b + 4, b + at, n - at);
		n -= at - 4;
	}
	put_be16(b + 2, (uint16_t)(n - 4));
	scsi_data_in(cmd, n, get_be16(cmd->cdb + 7));
}

/* Helper thread. */
static void look_at_space(struct scsi_cmd *cmd)
{
	scsi_thin_look(cmd->lu, cmd->lu->blk, cmd->priv);
}

static void space_free(struct scsi_cmd *cmd)
{
	free(cmd->priv);
	cmd->priv = NULL;
}

void op_log_sense(struct scsi_cmd *cmd)
{
	uint8_t code = cmd->cdb[2] & 0x3f, sub = cmd->cdb[3];

	if (cmd->cdb[1] & 0x01) { /* SP: nothing is saved */
		scsi_bad_cdb(cmd, 1, 0);
		return;
	}
	if (sub && !(code == 0x00 && sub == 0xff)) {
		scsi_bad_cdb(cmd, 3, -1);
		return;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(pages); i++) {
		if (pages[i].code != code || !log_page_offered(cmd, &pages[i]))
			continue;
		if (!scsi_heap(cmd, LOG_MAX))
			return;
		if (code != 0x0c) {
			send_page(cmd);
			return;
		}
		cmd->priv = calloc(1, sizeof(struct scsi_space));
		if (!cmd->priv) {
			cmd->status = SAM_BUSY;
			scsi_done(cmd);
			return;
		}
		((struct scsi_space *)cmd->priv)->want_used = true;
		cmd->fini = space_free;
		scsi_on_helper(cmd, look_at_space, send_page);
		return;
	}
	scsi_bad_cdb(cmd, 2, 5);
}
