/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Answers as JSON (RFC 8259): what a verb does when the request says `json`. Main loop only.
 *
 * A verb whose answer is small makes one object and returns doc_answer(). A verb whose answer grows
 * with targets, LUs or sessions returns doc_begin() with a step function. It is called again and
 * again, with other work of the main loop in between, and writes some members each time:
 *
 *     doc_open(d, "targets", '[');
 *     json_t *row = json_object();             an object of one target, LU or session
 *     doc_set_text(row, "name", name);
 *     doc_add(d, NULL, row);                   takes the row
 *     doc_close(d);
 *
 * Between two steps anything may be deleted: a cursor in `struct doc` is a number, no pointer.
 * A step may write as much as takes some 100 us: about 16 rows.
 *
 * Names are lower case with underscores; figures are numbers in base units (bytes, nanoseconds with
 * the suffix _ns), flags are true and false, what is not there is null or left out. Text that is
 * not UTF-8 (a path may be anything) has U+FFFD for each byte that is none.
 */
#ifndef TGTD_ADMIN_JSON_H
#define TGTD_ADMIN_JSON_H

#include <jansson.h>

#include "tgtd/admin/admin_int.h"

#define DOC_BATCH 16
#define DOC_DEPTH 8

struct doc {
	struct adm_call *call;
	bool (*step)(struct doc *d); /* false: nothing is left */
	struct loop_msg again;
	unsigned depth;
	char closing[DOC_DEPTH];
	bool any[DOC_DEPTH]; /* there is a member before the next one */
	/* The step function's: 0 at first. */
	unsigned stage;
	uint32_t tid, lun, tsih; /* of what was written last */
	uint32_t at, seen;	 /* doc_take() */
	uint32_t batch; /* of doc_take(): DOC_BATCH, unless the step function says more */
	uint32_t only_tid;	 /* 0: all targets */
};

/* ---- values ---------------------------------------------------------------------------------- */
/* All of them: nothing to do for the caller when memory runs out, the answer becomes "out of
 * memory". Keys are literals. */
json_t *doc_text(const char *text); /* NULL: null */
void doc_set(json_t *object, const char *key, json_t *value); /* takes @value */
void doc_append(json_t *array, json_t *value);		      /* the same */
void doc_set_text(json_t *object, const char *key, const char *text);
void doc_set_int(json_t *object, const char *key, uint64_t value);
void doc_set_bool(json_t *object, const char *key, bool value);

/* ---- small answers --------------------------------------------------------------------------- */
/* Takes @object. ADM_OK, or ADM_NOMEM also for NULL. */
enum adm_status doc_answer(struct adm_call *call, json_t *object) must_check;
/* Of lines "key=value" as a text verb prints them; digits become numbers. Frees @lines. */
json_t *doc_of_lines(struct adm_out *lines);

/* ---- large answers --------------------------------------------------------------------------- */
/* ADM_PENDING, or ADM_NOMEM. The answer is one object, open at the first step, closed after the
 * last. @only: 0, or the target that it is about. */
enum adm_status doc_begin(struct adm_call *call, bool (*step)(struct doc *d),
			  uint32_t only) must_check;
/* @key NULL within an array. @bracket '{' or '['. */
void doc_open(struct doc *d, const char *key, char bracket);
void doc_close(struct doc *d);
void doc_add(struct doc *d, const char *key, json_t *value); /* takes @value */
/* A table, for what has a thousand rows: its columns are named once, its rows are arrays.
 * {"columns":["tid",...],"rows":[[1,...],...]}. doc_close() twice ends it. */
void doc_open_table(struct doc *d, const char *key, const char *const *columns, size_t n);

/* For walks with a callback that cannot be left: in the callback, is this item one of this step's?
 * After the walk doc_walked() says whether there are more, for the next step. */
bool doc_take(struct doc *d);
bool doc_walked(struct doc *d);
/* The target that d->tid stands for, or the next one (@next; from 0 the first) as doc_begin()
 * limits it; d->tid is its number then. NULL: it has gone, or there is none. */
struct adm_target *doc_target(struct doc *d, bool next);
/* The first LU of @t whose number is @from or above. */
struct scsi_lu *doc_lu(struct adm_target *t, uint32_t from, struct scsi_lu_info *info);

/* ---- json_show.c, json_stat.c, json_cache.c, json_machine.c: the verbs ----------------------- */
enum adm_status json_targets(struct adm_call *call);
enum adm_status json_target_keys(struct adm_call *call, struct adm_target *t);
enum adm_status json_system(struct adm_call *call);
enum adm_status json_failed_logins(struct adm_call *call);
enum adm_status json_work(struct adm_call *call);
enum adm_status json_llds(struct adm_call *call);
json_t *json_processes(void);
enum adm_status json_threads(struct adm_call *call);
enum adm_status json_nodes(struct adm_call *call);
enum adm_status json_stores(struct adm_call *call);
enum adm_status json_accounts(struct adm_call *call);
enum adm_status json_portals(struct adm_call *call);
/* Of @t, or with NULL of all targets. */
enum adm_status json_sessions(struct adm_call *call, struct adm_target *t);
enum adm_status json_session_keys(struct adm_call *call, struct adm_out *lines);

enum adm_status json_metrics(struct adm_call *call, const char *prefix);
enum adm_status json_counters(struct adm_call *call);
/* What sessions did on LUs: of a target (NULL: of all), and of the LU or the session that the
 * request names. */
enum adm_status json_stat(struct adm_call *call, struct adm_target *t);
enum adm_status json_stat_sessions(struct adm_call *call, struct adm_target *t);
enum adm_status json_stat_connections(struct adm_call *call, struct adm_target *t);
/* Into @row. */
void json_lu_stats(json_t *row, const struct scsi_lu_stats *s);

/* export.c: what `--name config` has as text. */
enum adm_status json_config(struct adm_call *call);

enum adm_status json_cache(struct adm_call *call);
enum adm_status json_cache_stat(struct adm_call *call);
/* The row of a node, without its partitions. */
json_t *json_cache_node(uint32_t node);

/* json_latency.c: of a LU, a target, or (NULL) all; the slowest commands of a LU. */
enum adm_status json_latency(struct adm_call *call, struct adm_target *t);
enum adm_status json_slow(struct adm_call *call, struct adm_lu *lu);
/* What `--op explain` has put into @call->out becomes JSON there. */
enum adm_status json_explain(struct adm_call *call);
/* For the machine: the largest value of each bucket; a LU's histograms of total time, or null. */
json_t *json_latency_bounds(void);
json_t *json_latency_packed(struct scsi_lu *lu);

/* Everything that a picture of the machine needs, at one time: `system stat --name machine`. */
enum adm_status json_machine(struct adm_call *call);

#endif
