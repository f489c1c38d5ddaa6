/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the parts of tgt-top share: views, which are tables of rates between two answers. */
#ifndef TOOLS_TGT_TOP_TOP_H
#define TOOLS_TGT_TOP_TOP_H

#include <stdio.h>

#include "conf/machine.h"

#define TEXTS 4
#define FIGURES 16

enum view { VIEW_LUS, VIEW_INITIATORS, VIEW_THREADS, VIEW_NODES, VIEWS };
enum form { FORM_TEXT, FORM_COUNT, FORM_BYTES, FORM_TIME, FORM_SHARE, FORM_NUMBER };

struct row {
	char id[24];		 /* a LU's "tid:lun" or a node's number */
	const char *text[TEXTS]; /* of the answer; row_text() */
	double v[FIGURES];	 /* a second, bytes, nanoseconds, parts of 1 */
#define SHARE_UNKNOWN (-1.0)
};

struct column {
	const char *key; /* --sort, JSON */
	const char *title;
	unsigned width;
	enum form form;
	unsigned at; /* index of text[] or v[] */
};

struct table {
	const char *name; /* --view, JSON */
	const struct column *columns;
	unsigned ncolumns, sort; /* the column that it is sorted by at first */
};
extern const struct table tables[VIEWS];

struct totals {
	double seconds, iops, read_bytes, write_bytes, dirty, cache, processors;
	double hit_ratio; /* or SHARE_UNKNOWN */
};

/* What the command line and keys have said. */
struct wish {
	enum view view;
	int sort; /* of that view; -1: as the view has it */
	bool reverse;
	char word[64];
	double delay; /* seconds */
	struct adm_client client;
};

/* ---- rates.c --------------------------------------------------------------------------------- */
/* The rows of @view between two answers of one daemon; texts point into @now. NULL: no memory. The
 * caller frees it. */
struct row *rates_rows(enum view view, const struct machine *now, const struct machine *was,
		       unsigned *n);
void rates_totals(const struct machine *now, const struct machine *was, struct totals *t);
/* Its text; the first one, where there is none, is the row's id. Never NULL. */
const char *row_text(const struct row *row, unsigned at);
/* Keeps those of which some text has @word in it (case does not matter), sorts them: figures
 * descending, texts ascending, or the other way round. Returns how many are left. */
unsigned rates_order(struct row *rows, unsigned n, const struct column *by, bool reverse,
		     const char *word);

/* By which column @w has @view sorted, and its rows as @w wants them. NULL: no memory. */
const struct column *rates_sorted_by(enum view view, const struct wish *w);
struct row *rates_wanted(enum view view, const struct wish *w, const struct machine *now,
			 const struct machine *was, unsigned *n);

/* ---- print.c --------------------------------------------------------------------------------- */
/* As it stands in a table; texts without control characters. */
void print_value(const struct column *c, const struct row *row, char *out, size_t size);
/* All views, as text or as JSON. False: it could not be written. */
bool print_text(const struct machine *now, const struct machine *was, const struct wish *w);
bool print_json(const struct machine *now, const struct machine *was, const struct wish *w);
void print_totals(const struct machine *m, const struct totals *t, char *out, size_t size);

/* ---- screen.c -------------------------------------------------------------------------------- */
/* Until the user leaves. An exit status. */
int screen_run(struct wish *w);
/* Asks the daemon; once more when it had closed the connection meanwhile. As machine_read(). */
int ask_machine(struct adm_client *c, struct machine *m, char *err, size_t err_len);

#endif
