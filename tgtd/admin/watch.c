/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgtadm --op watch: who is told of what happens, as it happens. Reports (events/report.h) are
 * taken ten times a second while somebody watches, and become lines of each watcher. What a watcher
 * does not take is kept up to a limit; beyond it reports are left out, and the next line says how
 * many.
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "events/bug.h"
#include "events/clock.h"
#include "events/kept.h"
#include "events/report.h"
#include "events/utf8.h"
#include "tgtd/admin/admin_int.h"

#define WATCHERS_MAX 8
#define PENDING_MAX 65536 /* bytes of lines that one has not taken */
#define LINE_MAX_ 6144
#define INTERVAL (100 * NSEC_PER_MSEC)

static_assert(LINE_MAX_ > 300 + 6 * (sizeof(((struct report *)0)->what) +
				     sizeof(((struct report *)0)->initiator) +
				     sizeof(((struct report *)0)->address) +
				     sizeof(((struct report *)0)->text)),
	      "a line holds a report of which each byte becomes six");

struct adm_watcher {
	struct list link;
	struct adm_call *call;
	struct adm_out pending;
	uint32_t kinds; /* by enum report_kind */
	uint64_t lost;  /* not yet told */
	bool json;
};

static struct {
	struct list all;
	unsigned n;
	struct timer timer;
} watch = { .all = LIST_INIT(watch.all) };

/* ---- a report as a line ---------------------------------------------------------------------- */

struct line {
	char text[LINE_MAX_];
	size_t len;
	bool json;
};

static void line_add(struct line *l, const char *fmt, ...) printf_like(2, 3);
static void line_add(struct line *l, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(l->text + l->len, sizeof(l->text) - l->len, fmt, ap);
	va_end(ap);
	if (n > 0)
		l->len = MIN(l->len + (size_t)n, sizeof(l->text) - 1);
}

/* RFC 3339, in UTC. */
static void line_time(struct line *l, uint64_t ns)
{
	time_t s = (time_t)(ns / NSEC_PER_SEC);
	struct tm tm;

	gmtime_r(&s, &tm);
	line_add(l, "%04d-%02d-%02dT%02d:%02d:%02d.%03uZ", tm.tm_year + 1900, tm.tm_mon + 1,
		 tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
		 (unsigned)(ns % NSEC_PER_SEC / NSEC_PER_MSEC));
}

/* Foreign names: no byte of them begins a line, ends a word or speaks to the terminal. @text: the
 * last word of a line, which may have blanks. What is no UTF-8 is U+FFFD in JSON. */
static void line_word(struct line *l, const char *key, const char *word, bool text)
{
	if (!*word)
		return;
	line_add(l, l->json ? ",\"%s\":\"" : " %s=", key);
	for (size_t n; *word; word += MAX(n, 1u)) {
		n = l->json ? utf8_length(word) : utf8_shown_length(word);
		if (l->json && n == 1 && (*word < ' ' || strchr("\"\\\x7f", *word)))
			line_add(l, "\\u%04x", (unsigned)*word);
		else if (!n || (!l->json && !text && *word == ' '))
			line_add(l, "%s", l->json ? UTF8_REPLACEMENT : "?");
		else
			line_add(l, "%.*s", (int)n, word);
	}
	if (l->json)
		line_add(l, "\"");
}

static void line_number(struct line *l, const char *key, uint32_t v)
{
	if (v != REPORT_NONE)
		line_add(l, l->json ? ",\"%s\":%u" : " %s=%u", key, v);
}

/* Begins a line: the time, and what it is about. */
static void line_begin(struct line *l, bool json, uint64_t ns, const char *event)
{
	l->len = 0;
	l->json = json;
	line_add(l, json ? "{\"time\":\"" : "%s", "");
	line_time(l, ns);
	line_add(l, json ? "\",\"event\":\"%s\"" : " %s", event);
}

static void line_end(struct line *l)
{
	line_add(l, l->json ? "}\n" : "\n");
}

static void report_line(struct line *l, bool json, const struct report *r)
{
	line_begin(l, json, r->time_ns, report_names[r->kind]);
	line_word(l, "what", r->what, false);
	line_number(l, "tid", r->tid);
	line_number(l, "lun", r->lun);
	line_number(l, "session", r->session);
	line_word(l, "initiator", r->initiator, false);
	line_word(l, "address", r->address, false);
	line_word(l, "text", r->text, true);
	line_end(l);
}

static void lost_line(struct line *l, bool json, uint64_t n)
{
	line_begin(l, json, clock_realtime_ns(), "lost");
	line_number(l, "count", (uint32_t)MIN(n, (uint64_t)REPORT_NONE - 1));
	line_end(l);
}

/* ---- watchers -------------------------------------------------------------------------------- */

/* Sends what is pending, unless the client is still taking what it got before. Nothing of @w may be
 * touched afterwards: the client may have gone. */
static void watch_send(struct adm_watcher *w)
{
	struct adm_call *call = w->call;

	if (!w->pending.len || call->out.len)
		return;
	call->out = w->pending;
	w->pending = (struct adm_out){ 0 };
	(void)!adm_call_push(call);
}

static bool watch_put_line(struct adm_watcher *w, const struct line *l)
{
	if (w->pending.len + l->len > PENDING_MAX)
		return false;
	out_puts(&w->pending, l->text);
	if (!w->pending.failed)
		return true;
	w->pending.failed = false;
	return false;
}

static void watch_put(struct adm_watcher *w, const struct line *l)
{
	struct line lost;

	if (w->lost) {
		lost_line(&lost, w->json, w->lost);
		if (!watch_put_line(w, &lost)) {
			w->lost++;
			return;
		}
		w->lost = 0;
	}
	if (!watch_put_line(w, l))
		w->lost++;
}

void watch_pushed(struct adm_call *call)
{
	struct adm_watcher *w = call->watcher;
	struct line lost;

	if (w->lost && !w->pending.len) {
		lost_line(&lost, w->json, w->lost);
		if (watch_put_line(w, &lost))
			w->lost = 0;
	}
	watch_send(w);
}

static void watch_tick(struct timer *t)
{
	struct adm_watcher *w, *tmp;
	struct report *r, *next;
	uint64_t lost;

	for (r = reports_take(&lost); r; r = next) {
		struct line l;

		next = r->next;
		list_for_each(w, &watch.all, link)
			if (w->kinds >> r->kind & 1) {
				report_line(&l, w->json, r);
				watch_put(w, &l);
			}
		free(r);
	}
	list_for_each_safe(w, tmp, &watch.all, link) {
		w->lost += lost;
		watch_send(w);
	}
	if (watch.n)
		loop_timer_arm(adm.conf.main, t, INTERVAL);
}

/* "login,store"; false: one of them is none. */
static bool watch_kinds(const char *text, uint32_t *kinds)
{
	*kinds = 0;
	for (;;) {
		size_t n = strcspn(text, ",");
		unsigned k = 0;

		while (k < REPORT_KINDS &&
		       (strlen(report_names[k]) != n || memcmp(report_names[k], text, n) != 0))
			k++;
		if (k == REPORT_KINDS)
			return false;
		*kinds |= 1u << k;
		if (!text[n])
			return true;
		text += n + 1;
	}
}

/* Who watched the process before us comes back, and says until when it did. */
static void watch_restarted(struct adm_watcher *w, uint64_t until_s)
{
	const struct kept_origin *o = kept_origin();
	struct report r;
	struct line l;

	if (!o->restarts || o->restarted_s < until_s || !(w->kinds >> REPORT_RESTART & 1))
		return;
	report_init(&r, REPORT_RESTART);
	r.time_ns = o->restarted_s * NSEC_PER_SEC;
	snprintf(r.what, sizeof(r.what), "%s", kept_end_names[o->how]);
	snprintf(r.text, sizeof(r.text), "%s; worker %d is number %u", o->why, getpid(),
		 o->restarts + 1);
	report_line(&l, w->json, &r);
	watch_put(w, &l);
}

static bool watched_until(const char *text, uint64_t *seconds)
{
	char *end;

	*seconds = UINT64_MAX;
	if (!text || !*text)
		return true;
	*seconds = strtoull(text, &end, 10);
	return isdigit((unsigned char)*text) && !*end;
}

enum adm_status watch_begin(struct adm_call *call)
{
	const char *name = call->req.text[ADM_T_NAME];
	uint32_t kinds = (1u << REPORT_KINDS) - 1;
	uint64_t until_s;
	struct adm_watcher *w;
	struct line l;

	if (name && *name && !watch_kinds(name, &kinds))
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "watch takes login, logout, login_failed, change, access, "
				    "store, message and restart, not '%.60s'", name);
	if (!watched_until(call->req.text[ADM_T_VALUE], &until_s))
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "'%.60s' is no time, in seconds since 1970",
				    call->req.text[ADM_T_VALUE]);
	if (watch.n >= WATCHERS_MAX)
		return admin_refuse(call, ADM_INVALID_REQUEST, "%d watch already", WATCHERS_MAX);
	if (!call->client)
		return ADM_OK; /* it has gone already */
	w = calloc(1, sizeof(*w));
	if (!w)
		return ADM_NOMEM;
	w->call = call;
	w->kinds = kinds;
	w->json = call->req.json;
	call->watcher = w;
	list_init(&w->link);
	list_add_tail(&watch.all, &w->link);
	if (!watch.n++) {
		reports_want(true);
		timer_init(&watch.timer, watch_tick);
		loop_timer_arm(adm.conf.main, &watch.timer, INTERVAL);
	}
	/* So that who asked knows from when on nothing is missed. */
	line_begin(&l, w->json, clock_realtime_ns(), "watching");
	line_end(&l);
	watch_put(w, &l);
	watch_restarted(w, until_s);
	watch_send(w);
	return ADM_PENDING;
}

void watch_gone(struct adm_call *call)
{
	struct adm_watcher *w = call->watcher;
	struct report *r, *next;
	uint64_t lost;

	call->watcher = NULL;
	list_del(&w->link);
	out_free(&w->pending);
	free(w);
	if (--watch.n)
		return;
	reports_want(false);
	loop_timer_cancel(adm.conf.main, &watch.timer);
	for (r = reports_take(&lost); r; r = next) {
		next = r->next;
		free(r);
	}
}
