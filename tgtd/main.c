/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which process this is. The one that is started becomes the keeper (keep.h), and runs this program
 * again, as a worker, which serves (serve.h). With --no-keeper it serves itself.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "events/kept.h"
#include "events/log.h"
#include "tgtd/began.h"
#include "tgtd/daemon.h"
#include "tgtd/keep.h"
#include "tgtd/keeper/launch.h"
#include "tgtd/keeper/replace.h"
#include "tgtd/rlimits.h"
#include "tgtd/options.h"
#include "tgtd/serve.h"

/* In a worker that takes the place of another one stderr is nobody's, unless we have a terminal. */
static void be_worker(const struct options *opt, int keeper)
{
	kept_start(keeper);
	daemon_worker(!opt->foreground);
	if (!opt->foreground && kept_origin()->restarts)
		log_open(LOG_SINK_SYSLOG, "tgtd");
}

/* What is said goes to 2: it must not be a store's, or memory, when our parent has closed it. */
static void open_standard(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

int main(int argc, char **argv)
{
	static struct options opt;
	static char **args; /* (for as long as we run, and known to who looks for leaks) */
	int keeper, table, rc;

	began_main();
	open_standard();
	keeper = launch_link();
	table = keeper < 0 ? replace_link() : -1;
	if (keeper < 0)
		args = keep_args(argc, argv);
	switch (options_parse(&opt, argc, argv)) {
	case OPTIONS_EXIT_OK:
		return 0;
	case OPTIONS_EXIT_USAGE:
		return 1;
	case OPTIONS_RUN:
		break;
	}
	log_set_level((enum log_level)opt.log_level);
	if (opt.keeper_check >= 0)
		return replace_check(opt.keeper_check);
	if (keeper < 0 && table < 0 && !opt.foreground) {
		rc = daemon_detach();
		if (rc) {
			log_error("cannot detach: %s", strerror(-rc));
			return 1;
		}
	}
	if (opt.foreground)
		log_open(LOG_SINK_STDERR, "tgtd");
	rlimits_raise();
	if (table >= 0)
		return keep_again(&opt, args, table);
	if (keeper < 0 && opt.keeper)
		return keep(&opt, args, argc);
	if (keeper >= 0)
		be_worker(&opt, keeper);
	return serve(&opt);
}
