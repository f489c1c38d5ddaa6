/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How long commands took, as JSON: what `--op latency` and `--op slow` say. */
#include <stdio.h>
#include <stdlib.h>

#include "events/bug.h"
#include "tgtd/admin/json.h"
#include "tgtd/iscsi/iscsi.h"

/* ---- in the account of the machine ----------------------------------------------------------- */

json_t *json_latency_bounds(void)
{
	json_t *bounds = json_array();

	/* the last one has no end, and JSON's numbers have a sign */
	for (unsigned i = 0; i < LAT_BUCKETS; i++)
		doc_append(bounds, json_integer((json_int_t)MIN(lat_bucket_last(i),
								(uint64_t)INT64_MAX)));
	return bounds;
}

/* "index:count index:count": as arrays these were most of what the machine takes to make and to
 * read. */
static json_t *packed_buckets(const struct lat_hist *h)
{
	char text[LAT_BUCKETS * 26], *p = text;

	*p = 0;
	for (unsigned i = 0; i < LAT_BUCKETS; i++)
		if (h->bucket[i])
			p += sprintf(p, "%s%u:%llu", p == text ? "" : " ", i,
				     (unsigned long long)h->bucket[i]);
	return json_string_nocheck(text);
}

json_t *json_latency_packed(struct scsi_lu *lu)
{
	json_t *all = NULL;
	struct lat_sums sums;
	struct lat_hist h;

	scsi_lu_get_latency(lu, &sums);
	for (unsigned c = 0; c < LAT_CLASSES; c++) {
		json_t *one;

		if (!sums.count[c] || !scsi_lu_get_histogram(lu, c, LAT_TOTAL, &h))
			continue;
		one = json_object();
		doc_set_int(one, "count", h.count);
		doc_set_int(one, "sum_ns", h.sum_ns);
		doc_set_int(one, "max_ns", h.max_ns);
		doc_set_int(one, "waiting_ns", sums.sum_ns[c][LAT_WAITING]);
		doc_set_int(one, "cache_ns", sums.sum_ns[c][LAT_CACHE]);
		doc_set_int(one, "store_ns", sums.sum_ns[c][LAT_STORE]);
		doc_set_int(one, "wire_ns", sums.sum_ns[c][LAT_WIRE]);
		doc_set(one, "buckets", packed_buckets(&h));
		if (!all)
			all = json_object();
		doc_set(all, lat_class_names[c], one);
	}
	return all ? all : json_null();
}

/* ---- latency --------------------------------------------------------------------------------- */

static json_t *histogram_row(uint32_t tid, uint32_t lun, const char *class, const char *figure,
			     const struct lat_hist *h)
{
	static const struct {
		const char *key;
		unsigned permyriad;
	} of[] = { { "p50_ns", 5000 },
		   { "p90_ns", 9000 },
		   { "p99_ns", 9900 },
		   { "p999_ns", 9990 } };
	json_t *row = json_object(), *buckets = json_array();

	doc_set_int(row, "tid", tid);
	doc_set_int(row, "lun", lun);
	doc_set_text(row, "class", class);
	doc_set_text(row, "figure", figure);
	doc_set_int(row, "count", h->count);
	doc_set_int(row, "sum_ns", h->sum_ns);
	doc_set_int(row, "max_ns", h->max_ns);
	for (unsigned i = 0; i < ARRAY_SIZE(of); i++)
		doc_set_int(row, of[i].key, lat_percentile(h, of[i].permyriad));
	for (unsigned i = 0; i < LAT_BUCKETS; i++) {
		json_t *bucket;

		if (!h->bucket[i])
			continue;
		bucket = json_array();
		doc_append(bucket, json_integer((json_int_t)lat_bucket_first(i)));
		doc_append(bucket, json_integer((json_int_t)MIN(lat_bucket_last(i),
								(uint64_t)INT64_MAX)));
		doc_append(bucket, json_integer((json_int_t)h->bucket[i]));
		doc_append(buckets, bucket);
	}
	doc_set(row, "buckets", buckets);
	return row;
}

static json_t *waits_object(const uint64_t wait_ns[LAT_WAITS])
{
	json_t *waits = json_object();

	for (unsigned w = 0; w < LAT_WAITS; w++)
		doc_set_int(waits, lat_wait_names[w], wait_ns[w]);
	return waits;
}

/* By session, where that is measured: for one LU alone, as in the text. */
struct session_class {
	struct doc *d;
	struct scsi_lu *lu;
	uint32_t tid, lun, last;
};

static void session_class_row(const struct iscsi_conn_info *info, void *arg)
{
	struct session_class *s = arg;
	const enum lat_class class = (enum lat_class)s->d->at;
	struct scsi_nexus *nexus;
	struct lat_hist h;
	json_t *row;

	if (info->tsih == s->last) /* a further connection */
		return;
	s->last = info->tsih;
	nexus = iscsi_session_nexus(info->tid, info->tsih);
	if (!nexus || !scsi_lu_get_initiator(s->lu, nexus, class, &h))
		return;
	row = histogram_row(s->tid, s->lun, lat_class_names[class], "session", &h);
	doc_set_int(row, "sid", info->tsih);
	doc_add(s->d, NULL, row);
}

/* One class of one LU; d->at is the class. */
static void class_rows(struct doc *d, uint32_t tid, uint32_t lun, struct scsi_lu *lu)
{
	struct lat_sums sums;
	struct lat_hist h;

	scsi_lu_get_latency(lu, &sums);
	if (!sums.count[d->at])
		return;
	for (unsigned f = 0; f < LAT_FIGURES; f++) {
		json_t *row;

		if ((f != LAT_TOTAL && !sums.sum_ns[d->at][f]) ||
		    !scsi_lu_get_histogram(lu, d->at, f, &h))
			continue;
		row = histogram_row(tid, lun, lat_class_names[d->at], lat_figure_names[f], &h);
		if (f == LAT_WAITING)
			doc_set(row, "waits_ns", waits_object(sums.wait_ns[d->at]));
		if (f == LAT_TOTAL && sums.lost)
			doc_set_int(row, "lost_commands", sums.lost); /* of all classes */
		doc_add(d, NULL, row);
	}
}

/* Of some sessions; d->tsih is 0 after the last. */
static void session_rows_of(struct doc *d, struct adm_target *t, struct scsi_lu *lu)
{
	struct session_class s = { .d = d, .lu = lu, .tid = t->tid, .lun = d->lun };

	d->tsih = lat_initiators() ?
			  iscsi_conn_some(t->scsi, d->tsih, DOC_BATCH, session_class_row, &s) :
			  0;
}

/* A class of a LU, or on to the next LU or target. */
static bool latency_step(struct doc *d)
{
	const struct adm_req *req = &d->call->req;
	const bool one = req->mode == ADM_LU;
	struct adm_target *t;
	struct scsi_lu_info info;
	struct scsi_lu *lu;

	if (!d->stage++)
		doc_open(d, "latency", '[');
	t = doc_target(d, false);
	lu = t ? doc_lu(t, one && !d->lun ? (uint32_t)req->lun : d->lun, &info) : NULL;
	if (lu && (!one || info.conf.lun == req->lun)) {
		d->lun = info.conf.lun;
		if (!d->tsih)
			class_rows(d, t->tid, info.conf.lun, lu);
		if (one)
			session_rows_of(d, t, lu);
		if (!d->tsih && ++d->at == LAT_CLASSES) {
			d->at = 0;
			d->lun++;
		}
		return true;
	}
	d->lun = d->at = d->tsih = 0;
	if (doc_target(d, true))
		return true;
	doc_close(d);
	return false;
}

enum adm_status json_latency(struct adm_call *call, struct adm_target *t)
{
	return doc_begin(call, latency_step, t ? t->tid : 0);
}

/* ---- the slowest ----------------------------------------------------------------------------- */

static json_t *slow_row(const struct lat_slow *s)
{
	json_t *row = json_object(), *parts = json_object();

	doc_set_int(row, "ended_ns", s->ended_ns);
	doc_set_int(row, "total_ns", s->total_ns);
	doc_set_text(row, "class", lat_class_names[s->class]);
	doc_set_int(row, "commands", s->alike ? s->alike : 1);
	doc_set_int(row, "opcode", s->opcode);
	doc_set_int(row, "lba", s->lba);
	doc_set_int(row, "bytes", s->bytes);
	for (unsigned f = LAT_WAITING; f < LAT_FIGURES; f++)
		doc_set_int(parts, lat_figure_names[f], s->part_ns[f]);
	doc_set(row, "parts_ns", parts);
	doc_set(row, "waits_ns", waits_object(s->wait_ns));
	doc_set_bool(row, "aborted", s->aborted);
	doc_set_int(row, "status", s->status);
	doc_set_text(row, "initiator", s->initiator);
	return row;
}

enum adm_status json_slow(struct adm_call *call, struct adm_lu *lu)
{
	struct lat_slow slow[LAT_SLOW_KEPT];
	const unsigned n = scsi_lu_get_slow(lu->scsi, slow);
	json_t *doc = json_object(), *rows = json_array();

	for (unsigned i = 0; i < n; i++)
		doc_append(rows, slow_row(&slow[i]));
	doc_set(doc, "slow", rows);
	return doc_answer(call, doc);
}

/* ---- why ------------------------------------------------------------------------------------- */

enum adm_status json_explain(struct adm_call *call)
{
	static const char cause[] = "Limited by: ";
	struct adm_out text = call->out;
	json_t *doc = json_object(), *sentences = json_array();
	char *save = NULL;

	call->out = (struct adm_out){ 0 };
	out_put(&text, "", 1);
	for (char *line = text.failed ? NULL : strtok_r(text.buf, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		if (!strncmp(line, cause, strlen(cause)))
			doc_set_text(doc, "limited_by", line + strlen(cause));
		else
			doc_append(sentences, doc_text(line));
	}
	doc_set(doc, "sentences", sentences);
	call->out.failed = text.failed;
	out_free(&text);
	return doc_answer(call, doc);
}
