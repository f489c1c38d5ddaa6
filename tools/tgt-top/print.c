/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Figures as people read them, and both forms of --once. */
#include "tools/tgt-top/top.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "events/utf8.h"

static void scaled(double v, const char *const *units, unsigned n, double step, char *out,
		   size_t size)
{
	unsigned i = 0;

	while (v >= step * 0.9995 && i + 1 < n) {
		v /= step;
		i++;
	}
	snprintf(out, size, "%.*f%s", v >= 99.95 || (!i && v == floor(v)) ? 0 : 1, v, units[i]);
}

/* What a terminal would obey, or what is no UTF-8, is shown as '?'. */
static void plain(const char *text, char *out, size_t size)
{
	size_t n = 0;

	while (*text) {
		const size_t len = utf8_shown_length(text), more = MAX(len, 1u);

		if (n + more >= size)
			break;
		memcpy(out + n, len ? text : "?", more);
		n += more;
		text += more;
	}
	out[n] = 0;
}

void print_value(const struct column *c, const struct row *row, char *out, size_t size)
{
	static const char *const counts[] = { "", "k", "M", "G" };
	static const char *const sizes[] = { "B", "K", "M", "G", "T", "P" };
	static const char *const times[] = { "ns", "us", "ms", "s" };
	const double v = row->v[c->at];

	switch (c->form) {
	case FORM_TEXT: plain(row_text(row, c->at), out, size); break;
	case FORM_COUNT: scaled(v, counts, ARRAY_SIZE(counts), 1000, out, size); break;
	case FORM_BYTES: scaled(v, sizes, ARRAY_SIZE(sizes), 1024, out, size); break;
	case FORM_TIME:
		if (v > 0)
			scaled(v, times, ARRAY_SIZE(times), 1000, out, size);
		else
			snprintf(out, size, "-");
		break;
	case FORM_SHARE:
		if (v < 0)
			snprintf(out, size, "-");
		else
			snprintf(out, size, "%.1f%%", v * 100);
		break;
	case FORM_NUMBER: snprintf(out, size, "%.0f", v); break;
	}
}

void print_totals(const struct machine *m, const struct totals *t, char *out, size_t size)
{
	const struct row row = { .v = { t->iops, t->read_bytes, t->write_bytes, t->dirty, t->cache,
					t->hit_ratio } };
	static const struct column c[] = {
		{ .form = FORM_COUNT, .at = 0 }, { .form = FORM_BYTES, .at = 1 },
		{ .form = FORM_BYTES, .at = 2 }, { .form = FORM_BYTES, .at = 3 },
		{ .form = FORM_BYTES, .at = 4 }, { .form = FORM_SHARE, .at = 5 },
	};
	char v[ARRAY_SIZE(c)][16];

	for (unsigned i = 0; i < ARRAY_SIZE(c); i++)
		print_value(&c[i], &row, v[i], sizeof(v[i]));
	snprintf(out, size,
		 "tgtd %s, %s: %s IOPS, read %s/s, write %s/s, hits %s, dirty %s of %s, %u "
		 "sessions, %.2f processors",
		 m->version, m->state, v[0], v[1], v[2], v[5], v[3], v[4],
		 m->nsessions, t->processors);
}

bool print_text(const struct machine *now, const struct machine *was, const struct wish *w)
{
	struct totals totals;
	char text[512];

	rates_totals(now, was, &totals);
	print_totals(now, &totals, text, sizeof(text));
	puts(text);
	for (unsigned view = 0; view < VIEWS; view++) {
		const struct table *t = &tables[view];
		unsigned n;
		struct row *rows = rates_wanted((enum view)view, w, now, was, &n);

		if (!rows)
			return false;
		putchar('\n');
		for (unsigned c = 0; c < t->ncolumns; c++)
			printf(t->columns[c].form == FORM_TEXT ? "%-*s " : "%*s ",
			       (int)t->columns[c].width, t->columns[c].title);
		putchar('\n');
		for (unsigned i = 0; i < n; i++) {
			for (unsigned c = 0; c < t->ncolumns; c++) {
				print_value(&t->columns[c], &rows[i], text, sizeof(text));
				printf(t->columns[c].form == FORM_TEXT ? "%-*s " : "%*s ",
				       (int)t->columns[c].width, text);
			}
			putchar('\n');
		}
		free(rows);
	}
	return !fflush(stdout);
}

static json_t *json_share(double v)
{
	return v < 0 ? json_null() : json_real(v);
}

static json_t *json_rows(enum view view, const struct machine *now, const struct machine *was,
			 const struct wish *w)
{
	const struct table *t = &tables[view];
	json_t *array = json_array();
	unsigned n;
	struct row *rows = rates_wanted(view, w, now, was, &n);

	if (!rows)
		return NULL;
	for (unsigned i = 0; i < n; i++) {
		json_t *row = json_object();

		for (unsigned c = 0; c < t->ncolumns; c++) {
			const struct column *col = &t->columns[c];

			json_object_set_new(row, col->key,
					    col->form == FORM_TEXT ?
						    json_string(row_text(&rows[i], col->at)) :
					    col->form == FORM_SHARE ?
						    json_share(rows[i].v[col->at]) :
						    json_real(rows[i].v[col->at]));
		}
		json_array_append_new(array, row);
	}
	free(rows);
	return array;
}

bool print_json(const struct machine *now, const struct machine *was, const struct wish *w)
{
	json_t *doc = json_object(), *sum = json_object();
	struct totals t;
	bool ok = true;

	rates_totals(now, was, &t);
	json_object_set_new(doc, "version", json_string(now->version));
	json_object_set_new(doc, "state", json_string(now->state));
	json_object_set_new(doc, "seconds", json_real(t.seconds));
	json_object_set_new(sum, "iops", json_real(t.iops));
	json_object_set_new(sum, "read_bytes", json_real(t.read_bytes));
	json_object_set_new(sum, "write_bytes", json_real(t.write_bytes));
	json_object_set_new(sum, "hit_ratio", json_share(t.hit_ratio));
	json_object_set_new(sum, "dirty_bytes", json_real(t.dirty));
	json_object_set_new(sum, "cache_bytes", json_real(t.cache));
	json_object_set_new(sum, "processors", json_real(t.processors));
	json_object_set_new(doc, "totals", sum);
	for (unsigned view = 0; view < VIEWS; view++)
		ok &= !json_object_set_new(doc, tables[view].name,
					   json_rows((enum view)view, now, was, w));
	ok = ok && !json_dumpf(doc, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) &&
	     putchar('\n') != EOF && !fflush(stdout);
	json_decref(doc);
	return ok;
}
