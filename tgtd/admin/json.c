/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Answers as JSON: values, and the writer that makes a large answer in steps. A step has
 * STEP_NS; then the main loop looks after others before the next one. Rows are objects of jansson,
 * one at a time, and become text at once: of an answer only its text takes memory.
 */
#include <stdlib.h>
#include <time.h>

#include "events/bug.h"
#include "events/clock.h"
#include "events/metrics.h"
#include "events/utf8.h"
#include "tgtd/admin/json.h"

#define STEP_NS (200 * NSEC_PER_USEC)
#define LATE_NS NSEC_PER_MSEC

/* ---- values ---------------------------------------------------------------------------------- */

static json_t *repaired_text(const char *text)
{
	char *copy = malloc(strlen(text) * 3 + 1), *to = copy;
	json_t *value;

	if (!copy)
		return NULL;
	while (*text) {
		size_t n = utf8_length(text);

		memcpy(to, n ? text : UTF8_REPLACEMENT, n ? n : 3);
		to += n ? n : 3;
		text += n ? n : 1;
	}
	*to = 0;
	value = json_string(copy);
	free(copy);
	return value;
}

json_t *doc_text(const char *text)
{
	json_t *value = text ? json_string(text) : json_null();

	return value ? value : repaired_text(text);
}

/* Memory ran out since the last row became text: half of a row must not be shown. */
static bool value_failed;

void doc_set(json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new_nocheck(object, key, value))
		value_failed = true;
}

void doc_append(json_t *array, json_t *value)
{
	if (json_array_append_new(array, value))
		value_failed = true;
}

void doc_set_text(json_t *object, const char *key, const char *text)
{
	doc_set(object, key, doc_text(text));
}

void doc_set_int(json_t *object, const char *key, uint64_t value)
{
	doc_set(object, key, json_integer((json_int_t)value));
}

void doc_set_bool(json_t *object, const char *key, bool value)
{
	doc_set(object, key, json_boolean(value));
}

/* ---- text ------------------------------------------------------------------------------------ */

static int dump_some(const char *bytes, size_t n, void *arg)
{
	struct adm_out *out = arg;

	out_put(out, bytes, n);
	return out->failed ? -1 : 0;
}

/* Takes @value. */
static void dump(struct adm_out *out, json_t *value)
{
	if (!value || value_failed ||
	    json_dump_callback(value, dump_some, out, JSON_COMPACT | JSON_ENCODE_ANY))
		out->failed = true;
	value_failed = false;
	json_decref(value);
}

enum adm_status doc_answer(struct adm_call *call, json_t *object)
{
	dump(&call->out, object);
	out_puts(&call->out, "\n");
	return call->out.failed ? ADM_NOMEM : ADM_OK;
}

static json_t *value_of(const char *text)
{
	size_t n = strspn(text, "0123456789");

	return n && n < 19 && !text[n] && (n == 1 || *text != '0') ?
		       json_integer(strtoll(text, NULL, 10)) :
		       doc_text(text);
}

json_t *doc_of_lines(struct adm_out *lines)
{
	json_t *object = lines->failed ? NULL : json_object();
	char *save = NULL;

	out_put(lines, "", 1);
	for (char *line = object && !lines->failed ? strtok_r(lines->buf, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save)) {
		char *value = strchr(line, '=');
		json_t *key;

		ASSERT(value && value != line);
		*value++ = 0;
		key = doc_text(line); /* an initiator's name may be in it */
		if (!key || json_object_set_new(object, json_string_value(key), value_of(value)))
			value_failed = true;
		json_decref(key);
	}
	out_free(lines);
	return object;
}

void doc_open(struct doc *d, const char *key, char bracket)
{
	struct adm_out *out = &d->call->out;

	ASSERT(d->depth < DOC_DEPTH && (bracket == '{' || bracket == '['));
	ASSERT(!d->depth || (d->closing[d->depth - 1] == '}') == !!key);
	if (d->depth) {
		out_puts(out, d->any[d->depth - 1] ? ",\n" : d->depth > 1 ? "\n" : "");
		d->any[d->depth - 1] = true;
	}
	if (key)
		out_printf(out, "\"%s\":", key);
	out_put(out, &bracket, 1);
	d->closing[d->depth] = bracket == '{' ? '}' : ']';
	d->any[d->depth++] = false;
}

void doc_close(struct doc *d)
{
	ASSERT(d->depth);
	out_put(&d->call->out, &d->closing[--d->depth], 1);
}

void doc_add(struct doc *d, const char *key, json_t *value)
{
	struct adm_out *out = &d->call->out;

	ASSERT(d->depth && (d->closing[d->depth - 1] == '}') == !!key);
	out_puts(out, d->any[d->depth - 1] ? ",\n" : d->depth > 1 ? "\n" : "");
	d->any[d->depth - 1] = true;
	if (key)
		out_printf(out, "\"%s\":", key);
	dump(out, value);
}

void doc_open_table(struct doc *d, const char *key, const char *const *columns, size_t n)
{
	json_t *names = json_array();

	for (size_t i = 0; i < n; i++)
		doc_append(names, doc_text(columns[i]));
	doc_open(d, key, '{');
	doc_add(d, "columns", names);
	doc_open(d, "rows", '[');
}

/* ---- steps ----------------------------------------------------------------------------------- */

static uint64_t processor_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static void doc_run(struct loop_msg *msg)
{
	struct doc *d = container_of(msg, struct doc, again);
	struct adm_call *call = d->call;
	const bool leaving = adm.draining || adm.leaving;
	const uint64_t until = clock_now_ns() + STEP_NS, begun = processor_ns();
	bool more = true;

	ASSERT_ON_LOOP(adm.conf.main);
	/* nobody waits for it any more, or it cannot be finished */
	while (more && call->client && !leaving && !call->out.failed && clock_now_ns() < until)
		more = d->step(d);
	metric_inc(M_admin_json_turns);
	if (processor_ns() - begun > LATE_NS)
		metric_inc(M_admin_json_turns_late);
	if (more && call->client && !leaving && !call->out.failed) {
		loop_post(adm.conf.main, msg);
		return;
	}
	if (!more) {
		doc_close(d);
		ASSERT(!d->depth);
		out_puts(&call->out, "\n");
	}
	free(d);
	adm_call_done(call, !leaving ? ADM_OK :
				       admin_refuse(call, ADM_INVALID_REQUEST,
						    "the daemon is shutting down"));
}

enum adm_status doc_begin(struct adm_call *call, bool (*step)(struct doc *d), uint32_t only)
{
	struct doc *d = calloc(1, sizeof(*d));

	ASSERT(call->req.json && !call->out.len);
	if (!d)
		return ADM_NOMEM;
	d->call = call;
	d->step = step;
	d->only_tid = only;
	d->batch = DOC_BATCH;
	d->again.handle = doc_run;
	doc_open(d, NULL, '{');
	loop_post(adm.conf.main, &d->again);
	return ADM_PENDING;
}

bool doc_take(struct doc *d)
{
	uint32_t i = d->seen++;

	return i >= d->at && i < d->at + d->batch;
}

bool doc_walked(struct doc *d)
{
	bool all = d->seen <= d->at + d->batch;

	d->at = all ? 0 : d->at + d->batch;
	d->seen = 0;
	return all;
}

struct adm_target *doc_target(struct doc *d, bool next)
{
	struct adm_target *t = d->tid ? registry_target(d->tid) : NULL;
	struct scsi_target *s;

	if (!next)
		return t;
	if (d->only_tid) {
		t = d->tid < d->only_tid ? registry_target(d->only_tid) : NULL;
		d->tid = d->only_tid;
		return t;
	}
	/* after the last one, which may have gone meanwhile */
	s = scsi_target_next(t ? t->scsi : NULL);
	while (s && scsi_target_tid(s) <= d->tid)
		s = scsi_target_next(s);
	if (s)
		d->tid = scsi_target_tid(s);
	return s ? registry_target(d->tid) : NULL;
}

struct scsi_lu *doc_lu(struct adm_target *t, uint32_t from, struct scsi_lu_info *info)
{
	/* the LU before it is mostly there */
	struct scsi_lu *lu = from ? scsi_lu_find(t->scsi, from - 1) : NULL;

	for (lu = scsi_lu_next(t->scsi, lu); lu; lu = scsi_lu_next(t->scsi, lu)) {
		scsi_lu_get_info(lu, info);
		if (info->conf.lun >= from)
			return lu;
	}
	return NULL;
}
