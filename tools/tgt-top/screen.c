/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The screen: one view at a time, drawn anew every so often, and keys. */
#include "tools/tgt-top/top.h"

#include <ctype.h>
#include <curses.h>
#include <locale.h>
#include <stdlib.h>

#include "events/clock.h"

#define KEYS                                                                                 \
	" l LUs  i initiators  t threads  n nodes  < > sort  r reverse  / filter  p pause  " \
	"q quit "

struct screen {
	struct wish *wish;
	struct machine now, was;
	bool has_now, has_was, paused, asks_word;
	char err[200];
	unsigned first; /* row at the top */
};

int ask_machine(struct adm_client *c, struct machine *m, char *err, size_t err_len)
{
	const bool connected = c->fd >= 0;
	int rc = machine_read(c, m, NULL, err, err_len);

	/* it may have closed a connection on which nobody asked */
	return rc == -ENOTCONN && connected ? machine_read(c, m, NULL, err, err_len) : rc;
}

static void take_figures(struct screen *s)
{
	struct machine m;

	if (ask_machine(&s->wish->client, &m, s->err, sizeof(s->err)))
		return;
	*s->err = 0;
	if (s->has_was)
		machine_free(&s->was);
	s->was = s->now;
	s->has_was = s->has_now && s->now.pid == m.pid; /* another daemon counts anew */
	if (s->has_now && !s->has_was)
		machine_free(&s->now);
	s->now = m;
	s->has_now = true;
}

static void draw_line(int y, const struct table *t, const struct column *by, const struct row *row)
{
	char text[256];
	int x = 0;

	for (unsigned i = 0; i < t->ncolumns && x < COLS; i++) {
		const struct column *c = &t->columns[i];
		const int width = MIN((int)c->width, COLS - x);

		if (row) /* whole characters, as many as bytes fit */
			print_value(c, row, text, MIN((size_t)width + 1, sizeof(text)));
		else
			snprintf(text, sizeof(text), "%s", c->title);
		if (!row && c == by)
			attron(A_BOLD | A_UNDERLINE);
		mvprintw(y, x, c->form == FORM_TEXT ? "%-*.*s" : "%*.*s", width, width, text);
		if (!row && c == by)
			attroff(A_BOLD | A_UNDERLINE);
		x += (int)c->width + 1;
	}
}

static void draw_rows(struct screen *s)
{
	const struct table *t = &tables[s->wish->view];
	const struct column *by = rates_sorted_by(s->wish->view, s->wish);
	const int room = LINES - 4;
	unsigned n;
	struct row *rows = rates_wanted(s->wish->view, s->wish, &s->now, &s->was, &n);

	if (!rows)
		return;
	s->first = MIN(s->first, n ? n - 1 : 0);
	attron(A_REVERSE);
	mvhline(2, 0, ' ', COLS);
	draw_line(2, t, by, NULL);
	attroff(A_REVERSE);
	for (int i = 0; i < room && s->first + (unsigned)i < n; i++)
		draw_line(3 + i, t, by, &rows[s->first + (unsigned)i]);
	free(rows);
}

static void draw(struct screen *s)
{
	struct totals totals;
	char text[512] = "waiting for the first figures";

	erase();
	if (s->has_was) {
		rates_totals(&s->now, &s->was, &totals);
		print_totals(&s->now, &totals, text, sizeof(text));
	}
	mvprintw(0, 0, "%.*s", COLS, text);
	attron(A_BOLD);
	if (*s->err)
		mvprintw(1, 0, "%.*s", COLS, s->err);
	else if (s->paused)
		mvprintw(1, 0, "paused");
	attroff(A_BOLD);
	if (s->has_was)
		draw_rows(s);
	attron(A_REVERSE);
	mvhline(LINES - 1, 0, ' ', COLS);
	if (s->asks_word || *s->wish->word)
		mvprintw(LINES - 1, 0, " /%s%s", s->wish->word, s->asks_word ? "_" : "");
	else
		mvprintw(LINES - 1, 0, "%.*s", COLS, KEYS);
	attroff(A_REVERSE);
	refresh();
}

static void key_of_word(struct screen *s, int key)
{
	char *word = s->wish->word;
	const size_t n = strlen(word);

	if (key == '\n' || key == KEY_ENTER)
		s->asks_word = false;
	else if (key == 27)
		*word = s->asks_word = false;
	else if ((key == KEY_BACKSPACE || key == 127 || key == '\b') && n)
		word[n - 1] = 0;
	else if (key >= ' ' && key < 127 && n + 1 < sizeof(s->wish->word)) {
		word[n] = (char)key;
		word[n + 1] = 0;
	}
}

static void show_view(struct screen *s, enum view view)
{
	s->wish->view = view;
	s->wish->sort = -1;
	s->first = 0;
}

/* False: the user leaves. */
static bool key_pressed(struct screen *s, int key)
{
	struct wish *w = s->wish;
	const int ncolumns = (int)tables[w->view].ncolumns;
	const int sort = w->sort >= 0 ? w->sort : (int)tables[w->view].sort;

	if (s->asks_word) {
		key_of_word(s, key);
		return true;
	}
	switch (key) {
	case 'q': return false;
	case 'l': show_view(s, VIEW_LUS); break;
	case 'i': show_view(s, VIEW_INITIATORS); break;
	case 't': show_view(s, VIEW_THREADS); break;
	case 'n': show_view(s, VIEW_NODES); break;
	case '<': w->sort = (sort + ncolumns - 1) % ncolumns; break;
	case '>': w->sort = (sort + 1) % ncolumns; break;
	case 'r': w->reverse = !w->reverse; break;
	case 'p':
	case ' ': s->paused = !s->paused; break;
	case '/': s->asks_word = true; break;
	case KEY_DOWN: s->first++; break;
	case KEY_UP: s->first -= s->first > 0; break;
	case KEY_NPAGE: s->first += (unsigned)MAX(LINES - 4, 1); break;
	case KEY_PPAGE: s->first -= MIN(s->first, (unsigned)MAX(LINES - 4, 1)); break;
	case KEY_HOME: s->first = 0; break;
	default: break;
	}
	return true;
}

int screen_run(struct wish *w)
{
	struct screen s = { .wish = w };
	const uint64_t period = (uint64_t)(w->delay * 1e9);
	uint64_t next = 0;
	bool stays = true;

	setlocale(LC_ALL, "");
	if (!initscr()) {
		fputs("tgt-top: no terminal; --once needs none\n", stderr);
		return 1;
	}
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	set_escdelay(50);
	while (stays) {
		uint64_t now = clock_now_ns();
		int key;

		if (now >= next) {
			if (!s.paused)
				take_figures(&s);
			/* the first rates soon: two answers make one */
			next = now + (s.has_was || *s.err ? period : MIN(period, NSEC_PER_SEC / 4));
		}
		draw(&s);
		now = clock_now_ns();
		timeout(next > now ? (int)((next - now) / NSEC_PER_MSEC) + 1 : 0);
		key = getch();
		if (key != ERR)
			stays = key_pressed(&s, key);
	}
	endwin();
	if (s.has_was)
		machine_free(&s.was);
	if (s.has_now)
		machine_free(&s.now);
	return 0;
}
