/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * `--op latency`: how long the commands of logical units took, and which part of that they spent
 * where; `--op slow`: the slowest of them. Figures are of the logical unit, whoever its sessions
 * were. They are microseconds.
 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "events/bug.h"
#include "tgtd/admin/json.h"
#include "tgtd/iscsi/iscsi.h"

struct at {
	struct adm_out *out;
	uint32_t tid, lun;
};

/* Microseconds with one digit. */
#define US "%" PRIu64 ".%u"
#define US_ARGS(ns) (ns) / 1000, (unsigned)((ns) / 100 % 10)

static void put_us(struct adm_out *out, uint64_t ns)
{
	char text[32];

	snprintf(text, sizeof(text), US, US_ARGS(ns));
	out_printf(out, " %10s", text);
}

static void latency_header(struct adm_out *out)
{
	out_puts(out, "tgt lun class figure       count    mean_us     p50_us     p90_us     p99_us"
		      "    p999_us     max_us\n");
}

static void latency_line(const struct at *at, const char *class, const char *figure,
			 const struct lat_hist *h)
{
	static const unsigned permyriad[] = { 5000, 9000, 9900, 9990, 10000 };

	out_printf(at->out, "%3u %3u %-5s %-7s %10" PRIu64, at->tid, at->lun, class, figure,
		   h->count);
	put_us(at->out, h->count ? h->sum_ns / h->count : 0);
	for (unsigned i = 0; i < ARRAY_SIZE(permyriad); i++)
		put_us(at->out, lat_percentile(h, permyriad[i]));
	out_puts(at->out, "\n");
}

/* What was waited for, in sum: what is 0 is left out. */
static void wait_lines(const struct at *at, const struct lat_sums *sums, unsigned class)
{
	for (unsigned w = 0; w < LAT_WAITS; w++)
		if (sums->wait_ns[class][w])
			out_printf(at->out, "%3u %3u %-5s wait:%s " US "\n", at->tid, at->lun,
				   lat_class_names[class], lat_wait_names[w],
				   US_ARGS(sums->wait_ns[class][w]));
}

static void latency_lu(struct adm_out *out, uint32_t tid, struct scsi_lu *lu)
{
	struct scsi_lu_info info;
	struct lat_sums sums;
	struct lat_hist h;

	scsi_lu_get_info(lu, &info);
	const struct at at = { out, tid, info.conf.lun };

	scsi_lu_get_latency(lu, &sums);
	for (unsigned c = 0; c < LAT_CLASSES; c++) {
		if (!sums.count[c])
			continue;
		for (unsigned f = 0; f < LAT_FIGURES; f++)
			if ((f == LAT_TOTAL || sums.sum_ns[c][f]) &&
			    scsi_lu_get_histogram(lu, c, f, &h))
				latency_line(&at, lat_class_names[c], lat_figure_names[f], &h);
		wait_lines(&at, &sums, c);
	}
	if (sums.lost)
		out_printf(out, "%3u %3u lost  %" PRIu64 " commands: out of memory\n", tid,
			   info.conf.lun, sums.lost);
}

static void latency_target(struct adm_out *out, struct scsi_target *t)
{
	for (struct scsi_lu *lu = scsi_lu_next(t, NULL); lu; lu = scsi_lu_next(t, lu))
		latency_lu(out, scsi_target_tid(t), lu);
}

/* ---- by session ------------------------------------------------------------------------------ */

struct initiator_walk {
	struct at at;
	struct scsi_lu *lu;
	uint32_t last;
};

static void latency_session(const struct iscsi_conn_info *info, void *arg)
{
	struct initiator_walk *w = arg;
	struct scsi_nexus *nexus;
	struct lat_hist h;
	char sid[16];

	if (info->tsih == w->last) /* a further connection */
		return;
	w->last = info->tsih;
	nexus = iscsi_session_nexus(info->tid, info->tsih);
	snprintf(sid, sizeof(sid), "sid:%u", info->tsih);
	for (unsigned c = 0; nexus && c < LAT_CLASSES; c++)
		if (scsi_lu_get_initiator(w->lu, nexus, c, &h))
			latency_line(&w->at, lat_class_names[c], sid, &h);
}

/* ---- verbs ----------------------------------------------------------------------------------- */

enum adm_status verb_lu_latency(struct adm_call *call)
{
	struct adm_target *t = call_target(call);
	struct adm_lu *lu = call_lu(call, t);

	if (!t)
		return ADM_NO_TARGET;
	if (!lu)
		return ADM_NO_LUN;
	if (call->req.json)
		return json_latency(call, t);
	struct initiator_walk w = { .at = { &call->out, t->tid, lu->lun }, .lu = lu->scsi };

	latency_header(&call->out);
	latency_lu(&call->out, t->tid, lu->scsi);
	if (lat_initiators())
		iscsi_conn_each(t->scsi, latency_session, &w);
	return ADM_OK;
}

enum adm_status verb_target_latency(struct adm_call *call)
{
	struct adm_target *t = call_target(call);

	if (!t)
		return ADM_NO_TARGET;
	if (call->req.json)
		return json_latency(call, t);
	latency_header(&call->out);
	latency_target(&call->out, t->scsi);
	return ADM_OK;
}

enum adm_status verb_system_latency(struct adm_call *call)
{
	if (call->req.json)
		return json_latency(call, NULL);
	latency_header(&call->out);
	for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t))
		latency_target(&call->out, t);
	return ADM_OK;
}

/* ---- the slowest ----------------------------------------------------------------------------- */

static void slow_line(struct adm_out *out, const struct lat_slow *s)
{
	time_t at = (time_t)(s->ended_ns / NSEC_PER_SEC);
	char when[32] = "?", what[64];
	bool first = true;
	struct tm tm;

	if (gmtime_r(&at, &tm))
		strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
	if (s->alike)
		snprintf(what, sizeof(what), "%u %ss together", s->alike,
			 lat_class_names[s->class]);
	else if (s->bytes)
		snprintf(what, sizeof(what), "%s %02xh lba %" PRIu64 " bytes %" PRIu64,
			 lat_class_names[s->class], s->opcode, s->lba, s->bytes);
	else
		snprintf(what, sizeof(what), "%s %02xh", lat_class_names[s->class], s->opcode);
	out_printf(out, "%s " US " us: %s:", when, US_ARGS(s->total_ns), what);
	for (unsigned f = LAT_WAITING; f < LAT_FIGURES; f++) {
		if (!s->part_ns[f])
			continue;
		out_printf(out, "%s %s " US, first ? "" : ",", lat_figure_names[f],
			   US_ARGS(s->part_ns[f]));
		first = false;
		for (unsigned w = 0; f == LAT_WAITING && w < LAT_WAITS; w++)
			if (s->wait_ns[w])
				out_printf(out, " (%s " US ")", lat_wait_names[w],
					   US_ARGS(s->wait_ns[w]));
	}
	if (s->aborted)
		out_puts(out, ", aborted");
	else if (s->status)
		out_printf(out, ", status %02xh", s->status);
	out_printf(out, ", %s\n", s->initiator);
}

enum adm_status verb_lu_slow(struct adm_call *call)
{
	struct adm_target *t = call_target(call);
	struct adm_lu *lu = call_lu(call, t);
	struct lat_slow slow[LAT_SLOW_KEPT];
	unsigned n;

	if (!t)
		return ADM_NO_TARGET;
	if (!lu)
		return ADM_NO_LUN;
	if (call->req.json)
		return json_slow(call, lu);
	n = scsi_lu_get_slow(lu->scsi, slow);
	for (unsigned i = 0; i < n; i++)
		slow_line(&call->out, &slow[i]);
	return ADM_OK;
}
