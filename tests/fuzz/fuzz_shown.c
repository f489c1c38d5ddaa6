/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names that strangers chose, on their way to who looks: lines of --op watch, as text and as JSON,
 * and values of JSON answers. The input: a byte of what, then texts that end with NUL. What must
 * hold: a line is one line, of which a terminal obeys no byte; JSON is read by a parser, and says
 * what was said, but for what is no UTF-8.
 */
#include <stdlib.h>

#include "tgtd/admin/json.h"
#include "tgtd/admin/watch.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The next text of the input, into @to, cut. */
static void next_text(const uint8_t **data, size_t *size, char *to, size_t room)
{
	const size_t n = strnlen((const char *)*data, *size), copy = MIN(n, room - 1);

	memcpy(to, *data, copy);
	to[copy] = 0;
	*data += MIN(n + 1, *size);
	*size -= MIN(n + 1, *size);
}

/* @said is @text, whose bytes that are no UTF-8 are U+FFFD. */
static void says_the_same(const char *said, const char *text)
{
	while (*text) {
		const size_t n = utf8_length(text);

		if (n) {
			BUG_ON(strncmp(said, text, n));
			said += n;
		} else {
			BUG_ON(strncmp(said, UTF8_REPLACEMENT, 3));
			said += 3;
		}
		text += MAX(n, 1u);
	}
	BUG_ON(*said);
}

static void has_text(json_t *object, const char *key, const char *text)
{
	json_t *value = json_object_get(object, key);

	BUG_ON(!value != !*text);
	if (value)
		says_the_same(json_string_value(value), text);
}

static void as_json(const struct report *r)
{
	struct line l;
	json_t *object;
	size_t end;

	report_line(&l, true, r);
	BUG_ON(l.len != strlen(l.text) || !l.len || l.text[l.len - 1] != '\n');
	BUG_ON(strchr(l.text, '\n') != l.text + l.len - 1);
	object = json_loads(l.text, JSON_REJECT_DUPLICATES, NULL);
	BUG_ON(!object);
	has_text(object, "what", r->what);
	has_text(object, "initiator", r->initiator);
	has_text(object, "address", r->address);
	has_text(object, "text", r->text);
	end = json_object_size(object);
	BUG_ON(end < 2 || end > 9);
	json_decref(object);
}

static void as_text(const struct report *r)
{
	struct line l;

	report_line(&l, false, r);
	BUG_ON(l.len != strlen(l.text) || !l.len || l.text[l.len - 1] != '\n');
	for (size_t i = 0, n; i + 1 < l.len; i += n) {
		n = utf8_shown_length(l.text + i);
		BUG_ON(!n);
	}
}

/* A value, and a list of figures of which the names may be anybody's. */
static void as_answer(const struct report *r)
{
	struct adm_out lines = { 0 };
	json_t *value = doc_text(r->text), *object, *again;
	char key[sizeof(r->initiator)], *text;

	BUG_ON(!value);
	says_the_same(json_string_value(value), r->text);
	text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
	again = json_loads(text, JSON_DECODE_ANY, NULL);
	BUG_ON(!again || !json_equal(value, again));
	json_decref(again);
	json_decref(value);
	free(text);
	/* Whoever prints figures has no line end and no '=' in a name. */
	snprintf(key, sizeof(key), "%s", r->initiator);
	for (char *p = key; *p; p++)
		*p = *p == '\n' || *p == '=' ? '.' : *p;
	if (!*key || strchr(r->address, '\n'))
		return;
	out_printf(&lines, "%s=%s\n", key, r->address);
	object = doc_of_lines(&lines);
	BUG_ON(!object || json_object_size(object) != 1);
	text = json_dumps(object, JSON_COMPACT);
	again = json_loads(text, 0, NULL);
	BUG_ON(!again || !json_equal(object, again));
	json_decref(again);
	json_decref(object);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct report r = { 0 };
	uint32_t kinds;
	char list[64];

	if (!size)
		return 0;
	report_init(&r, data[0] % REPORT_KINDS);
	r.tid = data[0] & 8 ? data[0] : REPORT_NONE;
	r.lun = data[0] & 16 ? data[0] : REPORT_NONE;
	r.session = data[0] & 32 ? data[0] : REPORT_NONE;
	r.time_ns = (uint64_t)data[0] << 52;
	data++;
	size--;
	next_text(&data, &size, r.what, sizeof(r.what));
	next_text(&data, &size, r.initiator, sizeof(r.initiator));
	next_text(&data, &size, r.address, sizeof(r.address));
	next_text(&data, &size, r.text, sizeof(r.text));
	next_text(&data, &size, list, sizeof(list));
	as_json(&r);
	as_text(&r);
	as_answer(&r);
	if (watch_kinds(list, &kinds))
		BUG_ON(!kinds || kinds >> REPORT_KINDS);
	return 0;
}
