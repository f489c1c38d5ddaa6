/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgt-admin: makes the daemon what targets.conf says. The file becomes a model, the model is
 * checked as a whole, compared with what the daemon has, and only the differences are asked for:
 * sessions of what does not change go on. Options are those of tgt's tool of the same name.
 */
#include <getopt.h>
#include <sys/prctl.h>

#include "tools/tgt-admin/admin.h"

struct admin g = { .conf_file = DEFAULT_CONF, .port = -1, .client.fd = -1 };

__attribute__((noreturn)) static void usage(void)
{
	fputs("Usage:\n"
	      "tgt-admin [OPTION]...\n"
	      "This tool configures tgt targets.\n\n"
	      "  -e, --execute              read " DEFAULT_CONF
	      ", add what is new, remove what is gone\n"
	      "      --delete <value>       delete all or selected targets\n"
	      "      --offline <value>      put all or selected targets in offline state\n"
	      "      --ready <value>        put all or selected targets in ready state\n"
	      "      --update <value>       change what differs from the file, in all or selected targets\n"
	      "                             (<value>: ALL, tid=<number> or a target's name;\n"
	      "                             help: says more)\n"
	      "  -s, --show                 show all the targets\n"
	      "  -C, --control-port <NNNN>  specify the control port to connect to\n"
	      "  -c, --conf <conf file>     specify an alternative configuration file\n"
	      "      --ignore-errors        continue even if a request is refused\n"
	      "  -f, --force                also what sessions would feel\n"
	      "  -p, --pretend              only print what would be done, as tgtadm command lines\n"
	      "      --json                 with --show or --dump: as JSON\n"
	      "      --dump                 print the daemon's configuration as a file\n"
	      "  -v, --verbose              print what is done\n"
	      "  -h, --help                 show this help\n\n",
	      stdout);
	exit(0);
}

__attribute__((noreturn)) static void help_value(const char *option)
{
	printf("      --%s <value>\n\n"
	       "Example usage:\n"
	       "      --%s help         - display this help\n"
	       "      --%s ALL          - all targets\n"
	       "      --%s tid=4        - target 4 (target with tid 4)\n"
	       "      --%s iqn.2008-08.com.example:some.target - this target\n\n"
	       "What initiators that are logged in would feel is done with --force only.\n\n",
	       option, option, option, option, option);
	exit(0);
}

/* "tid=N" or a name, among @c. NULL: none; also for what only begins as a number, or is none that a
 * target can have: it must never mean another target. */
static struct conf_target *select_target(const struct conf *c, const char *value)
{
	unsigned long tid;
	char *end;

	if (strncmp(value, "tid=", 4))
		return conf_find_target(c, value);
	value += 4;
	errno = 0;
	tid = *value >= '0' && *value <= '9' ? strtoul(value, &end, 10) : 0;
	return !tid || *end || errno || tid > INT32_MAX ? NULL : conf_find_tid(c, (uint32_t)tid);
}

/* Both models are loaded. The daemon may still be at work for a run that was killed: what that had
 * asked for comes after it was looked at, and is in the way. Then it is looked at once more. */
static int make_it_so(const struct conf_scope *scope, bool strict)
{
	for (bool first = true;; first = false) {
		struct list steps = LIST_INIT(steps);
		int rc;

		daemon_compare_passwords();
		if (scope->update)
			file_sizes(scope->target);
		conf_diff(&g.have, &g.want, scope, &steps);
		rc = plan_execute(&steps, strict, first);
		if (rc != EAGAIN)
			return rc;
		conf_free(&g.have);
		daemon_load();
	}
}

/* One run at a time for each daemon; the file may say which one it is. */
static void take_turn_and_load(void)
{
	const int port = daemon_port();

	daemon_turn();
	file_load();
	if (daemon_port() != port)
		daemon_turn();
	daemon_load();
	if (!g.no_daemon && g.want.cluster && !conf_cluster_same(&g.want, &g.have))
		fprintf(stderr,
			"tgt-admin: %s:%u: <cluster %s> is not what the daemon has: it takes effect "
			"when tgtd starts with --group file=%s\n",
			g.want.cluster_pos.file, g.want.cluster_pos.line, g.want.cluster,
			g.conf_file);
}

static int do_execute(void)
{
	struct conf_scope scope = { .remove = true,
				    .force = g.force,
				    .usable = store_usable,
				    .identify = store_identify,
				    .in_use = target_in_use };

	take_turn_and_load();
	/* As tgt: a file without any target, such as when the folder that it includes is not
	 * mounted, takes nothing away. --update ALL does. */
	scope.remove = g.want.ntargets;
	/* as ever, and as tgt: a disk that is missing keeps no start-up from going on */
	return make_it_so(&scope, false);
}

static int do_update(const char *value)
{
	struct conf_scope scope = { .update = true,
				    .remove = true,
				    .force = g.force,
				    .usable = store_usable,
				    .identify = store_identify,
				    .in_use = target_in_use };

	if (!strcmp(value, "help"))
		help_value("update");
	take_turn_and_load();
	if (strcmp(value, "ALL")) {
		struct conf_target *t = select_target(&g.have, value);

		scope.target = t ? conf_strdup(&g.want, t->name) : value;
		if (g.no_daemon && !strncmp(value, "tid=", 4))
			return ENOTCONN;
		if (!t && !strncmp(value, "tid=", 4)) {
			printf("There is no target with tid %s, can't continue!\n", value + 4);
			return 1;
		}
		if (!t && !conf_find_target(&g.want, value)) {
			printf("Target %s is currently not configured\n"
			       "and does not exist in the config file - can't continue!\n",
			       value);
			return 1;
		}
	}
	return make_it_so(&scope, true);
}

static int do_delete(const char *value)
{
	struct list steps = LIST_INIT(steps);
	struct conf_target *t;

	if (!strcmp(value, "help"))
		help_value("delete");
	daemon_turn();
	daemon_load();
	if (g.no_daemon)
		return ENOTCONN;
	if (!strcmp(value, "ALL")) {
		list_for_each(t, &g.have.targets, link)
			conf_plan_delete(&g.have, t, g.force, &steps);
		return plan_execute(&steps, true, false);
	}
	t = select_target(&g.have, value);
	if (!t) {
		if (g.verbose || g.pretend)
			printf(strncmp(value, "tid=", 4) ?
				       "# Target with name %s does not exist!\n" :
				       "# Target with tid %s does not exist!\n",
			       strncmp(value, "tid=", 4) ? value : value + 4);
		return 0;
	}
	conf_plan_delete(&g.have, t, g.force, &steps);
	return plan_execute(&steps, true, false);
}

static void state_step(const struct conf_target *t, const char *state, struct list *steps)
{
	struct conf_step *s = conf_alloc(&g.have, sizeof(*s));

	list_init(&s->link);
	adm_req_init(&s->req, ADM_TARGET, ADM_UPDATE);
	s->req.has_tid = true;
	s->req.tid = s->tid = t->tid;
	s->req.text[ADM_T_NAME] = "state";
	s->req.text[ADM_T_VALUE] = state;
	s->target = t->name;
	list_add_tail(steps, &s->link);
}

static int do_state(const char *value, const char *state)
{
	struct list steps = LIST_INIT(steps);
	struct conf_target *t;

	if (!strcmp(value, "help"))
		help_value(state);
	daemon_turn();
	daemon_load();
	if (g.no_daemon)
		return ENOTCONN;
	if (!strcmp(value, "ALL")) {
		list_for_each(t, &g.have.targets, link)
			state_step(t, state, &steps);
		return plan_execute(&steps, true, false);
	}
	t = select_target(&g.have, value);
	if (!t) {
		printf("There is no target with name \"%s\", can't %s it!\n", value, state);
		return 1;
	}
	state_step(t, state, &steps);
	return plan_execute(&steps, true, false);
}

enum { OPT_DELETE = 256, OPT_OFFLINE, OPT_READY, OPT_UPDATE, OPT_IGNORE, OPT_DUMP, OPT_JSON };

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "execute", no_argument, NULL, 'e' },
		{ "delete", required_argument, NULL, OPT_DELETE },
		{ "offline", required_argument, NULL, OPT_OFFLINE },
		{ "ready", required_argument, NULL, OPT_READY },
		{ "update", required_argument, NULL, OPT_UPDATE },
		{ "show", no_argument, NULL, 's' },
		{ "conf", required_argument, NULL, 'c' },
		{ "ignore-errors", no_argument, NULL, OPT_IGNORE },
		{ "force", no_argument, NULL, 'f' },
		{ "pretend", no_argument, NULL, 'p' },
		{ "dump", no_argument, NULL, OPT_DUMP },
		{ "json", no_argument, NULL, OPT_JSON },
		{ "verbose", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ "control-port", required_argument, NULL, 'C' },
		{ NULL, 0, NULL, 0 },
	};
	int ch, action = 0;
	const char *value = NULL;
	bool json = false;
	char *end;

	prctl(PR_SET_DUMPABLE, 0); /* no core: passwords are in our memory */
	while ((ch = getopt_long(argc, argv, "esc:fpvhC:", options, NULL)) >= 0) {
		switch (ch) {
		case 'e':
		case 's':
		case OPT_DELETE:
		case OPT_OFFLINE:
		case OPT_READY:
		case OPT_UPDATE:
		case OPT_DUMP:
			if (action && action != ch) {
				fprintf(stderr, "tgt-admin: one action at a time\n");
				return 1;
			}
			action = ch;
			value = optarg;
			break;
		case 'c':
			g.conf_file = optarg;
			break;
		case OPT_IGNORE:
			g.ignore_errors = true;
			break;
		case 'f':
			g.force = true;
			break;
		case 'p':
			g.pretend = g.verbose = true;
			break;
		case 'v':
			g.verbose = true;
			break;
		case OPT_JSON:
			json = true;
			break;
		case 'C':
			g.port = (int)strtol(optarg, &end, 10);
			if (*end || end == optarg || g.port < 0 || g.port > INT16_MAX) {
				fprintf(stderr, "tgt-admin: '%s' is not a control port\n", optarg);
				return 1;
			}
			break;
		case 'h':
			usage();
		default:
			/* getopt has said what is wrong: that should not scroll away */
			fputs("Try `tgt-admin --help' for more information.\n", stderr);
			exit(1);
		}
	}
	if (optind < argc) {
		fprintf(stderr, "tgt-admin: unexpected argument '%s'\n", argv[optind]);
		return 1;
	}
	if (argc == 1)
		usage();
	if (json && action != 's' && action != OPT_DUMP) {
		fprintf(stderr, "tgt-admin: --json is for --show and --dump\n");
		return 1;
	}
	switch (action) {
	case 'e':
		return do_execute();
	case 's':
		return daemon_print(ADM_TARGET, NULL, json);
	case OPT_DUMP:
		return daemon_print(ADM_SYSTEM, "config", json);
	case OPT_DELETE:
		return do_delete(value);
	case OPT_UPDATE:
		return do_update(value);
	case OPT_OFFLINE:
		return do_state(value, "offline");
	case OPT_READY:
		return do_state(value, "ready");
	default:
		printf("No action specified.\n");
		return 0;
	}
}
