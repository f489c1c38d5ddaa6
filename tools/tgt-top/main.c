/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgt-top: what the daemon does now, as tables: logical units, initiators, threads, nodes. It asks
 * by the admin socket what tgt-exporter asks, and changes nothing.
 */
#include "tools/tgt-top/top.h"

#include <getopt.h>
#include <stdlib.h>
#include <time.h>

#define DELAY_MIN 0.1
#define DELAY_MAX 3600
#define DAEMON_TIMEOUT_S 5 /* for an answer: then it counts as not there, and keys work */

__attribute__((noreturn)) static void help(void)
{
	printf("tgt-top %s - what tgtd does now\n\n"
	       "Usage: tgt-top [OPTION...]\n\n"
	       "  -d, --delay <seconds>      between two pictures, default 2\n"
	       "  -v, --view <name>          lus, initiators, threads or nodes\n"
	       "  -s, --sort <column>        of that view, by its name in --once --json\n"
	       "  -r, --reverse\n"
	       "  -f, --filter <word>        only rows with this in a name\n"
	       "  -1, --once                 one table of each, between two answers; no terminal\n"
	       "  -j, --json                 with --once\n"
	       "  -C, --control-port <port>  which daemon (tgtd --control-port)\n"
	       "  -h, --help\n"
	       "  -V, --version\n\n"
	       "See tgt-top(8).\n",
	       TGT_VERSION);
	exit(0);
}

__attribute__((noreturn)) static void refuse_usage(const char *what, const char *value)
{
	fprintf(stderr, "tgt-top: %s '%s'\nTry `tgt-top --help' for more information.\n", what,
		value);
	exit(EINVAL);
}

static enum view view_named(const char *name)
{
	unsigned view = 0;

	while (view < VIEWS && strcmp(tables[view].name, name))
		view++;
	if (view == VIEWS)
		refuse_usage("no view", name);
	return (enum view)view;
}

static int column_named(enum view view, const char *name)
{
	for (unsigned i = 0; i < tables[view].ncolumns; i++)
		if (!strcmp(tables[view].columns[i].key, name))
			return (int)i;
	refuse_usage("no column", name);
}

static int once(struct wish *w, bool json)
{
	const struct timespec pause = { .tv_sec = (time_t)w->delay,
					.tv_nsec = (long)((w->delay - (double)(time_t)w->delay) *
							  1e9) };
	struct machine was, now;
	char err[200];
	bool ok;
	int rc = ask_machine(&w->client, &was, err, sizeof(err));

	if (!rc) {
		nanosleep(&pause, NULL);
		rc = ask_machine(&w->client, &now, err, sizeof(err));
		if (rc)
			machine_free(&was);
	}
	if (!rc && now.pid != was.pid) {
		rc = -EAGAIN;
		snprintf(err, sizeof(err), "the daemon was started anew meanwhile");
		machine_free(&was);
		machine_free(&now);
	}
	if (rc) {
		fprintf(stderr, "tgt-top: %s\n", err);
		return rc == -ENOTCONN ? ENOTCONN : EINVAL;
	}
	ok = json ? print_json(&now, &was, w) : print_text(&now, &was, w);
	if (!ok)
		fputs("tgt-top: cannot write the tables\n", stderr);
	machine_free(&was);
	machine_free(&now);
	return ok ? 0 : EIO;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "delay", required_argument, NULL, 'd' },
		{ "view", required_argument, NULL, 'v' },
		{ "sort", required_argument, NULL, 's' },
		{ "reverse", no_argument, NULL, 'r' },
		{ "filter", required_argument, NULL, 'f' },
		{ "once", no_argument, NULL, '1' },
		{ "json", no_argument, NULL, 'j' },
		{ "control-port", required_argument, NULL, 'C' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	struct wish w = { .sort = -1,
			  .delay = 2,
			  .client = { .fd = -1, .timeout_s = DAEMON_TIMEOUT_S } };
	const char *sort = NULL;
	bool alone = false, json = false;
	char *end;
	int ch, rc;

	while ((ch = getopt_long(argc, argv, "d:v:s:rf:1jC:hV", options, NULL)) >= 0) {
		switch (ch) {
		case 'd':
			w.delay = strtod(optarg, &end);
			if (end == optarg || *end ||
			    !(w.delay >= DELAY_MIN && w.delay <= DELAY_MAX))
				refuse_usage("a delay is 0.1 to 3600 seconds, not", optarg);
			break;
		case 'v': w.view = view_named(optarg); break;
		case 's': sort = optarg; break;
		case 'r': w.reverse = true; break;
		case 'f':
			if (strlen(optarg) >= sizeof(w.word))
				refuse_usage("too long", optarg);
			strcpy(w.word, optarg);
			break;
		case '1': alone = true; break;
		case 'j': json = true; break;
		case 'C':
			w.client.port = (int)strtol(optarg, &end, 10);
			if (end == optarg || *end || w.client.port < 0 || w.client.port > INT16_MAX)
				refuse_usage("no control port", optarg);
			break;
		case 'h': help();
		case 'V': printf("%s\n", TGT_VERSION); return 0;
		default:
			fputs("Try `tgt-top --help' for more information.\n", stderr);
			return EINVAL;
		}
	}
	if (optind < argc)
		refuse_usage("unexpected argument", argv[optind]);
	if (sort)
		w.sort = column_named(w.view, sort);
	if (json && !alone)
		refuse_usage("only with --once:", "--json");
	rc = alone ? once(&w, json) : screen_run(&w);
	adm_disconnect(&w.client);
	return rc;
}
