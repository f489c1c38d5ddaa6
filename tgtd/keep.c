/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See keep.h. */
#include <stdlib.h>
#include <string.h>

#include "events/log.h"
#include "tgtd/daemon.h"
#include "tgtd/guard.h"
#include "tgtd/keep.h"
#include "tgtd/keeper/fdstore.h"
#include "tgtd/keeper/keeper.h"
#include "tgtd/keeper/replace.h"
#include "tgtd/options.h"

static bool in_foreground; /* for keeper_ready(), which is told nothing */

char **keep_args(int argc, char **argv)
{
	char **copy = calloc((size_t)argc + 3, sizeof(*copy));

	for (int i = 0; copy && i < argc; i++)
		if (!(copy[i] = strdup(argv[i])))
			return NULL;
	return copy;
}

static void keeper_ready(const char *status)
{
	daemon_ready(status);
	if (!in_foreground)
		log_open(LOG_SINK_SYSLOG, "tgtd");
}

static struct keeper_conf keeper_conf(char **args, const struct options *opt)
{
	in_foreground = opt->foreground;
	return (struct keeper_conf){ .argv = args,
				     .watchdog_s = opt->watchdog_s,
				     .lock_fd = daemon_pidfile_fd(),
				     .ready = keeper_ready,
				     .stopping = daemon_stopping };
}

int keep_again(struct options *opt, char **args, int table)
{
	struct keeper_conf conf;
	int rc;

	if (!opt->foreground)
		log_open(LOG_SINK_SYSLOG, "tgtd");
	fdstore_init(daemon_has_store() ? daemon_store : NULL);
	daemon_pidfile_again(opt->pidfile, replace_lock_fd(table));
	conf = keeper_conf(args, opt);
	rc = args ? keeper_resume(&conf, table) : 1;
	daemon_end();
	return rc;
}

int keep(struct options *opt, char **args, int argc)
{
	struct keeper_conf conf;
	int rc = opt->pidfile ? daemon_pidfile(opt->pidfile) : 0;

	if (!args)
		rc = -ENOMEM;
	if (rc)
		daemon_give_up(rc);
	if (!opt->foreground) { /* elsewhere than where a relative path begins */
		args[argc] = (char *)(uintptr_t) "--state-dir";
		args[argc + 1] = (char *)(uintptr_t)opt->state_dir;
	}
	guard_keeper(opt->user, opt->seccomp);
	fdstore_init(daemon_has_store() ? daemon_store : NULL);
	daemon_stored(fdstore_found);
	conf = keeper_conf(args, opt);
	conf.found = fdstore_resume();
	rc = keeper_run(&conf);
	daemon_end();
	return rc;
}
