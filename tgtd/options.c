/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Parsing the command line. Every option that is accepted does something; see tgtd.8. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "events/offload.h"
#include "conf/adm_proto.h"
#include "conf/model.h"
#include "events/log.h"
#include "tgtd/group_file.h"
#include "tgtd/options.h"

enum {
	OPT_NUMA_NODES = 256,
	OPT_CACHE,
	OPT_ISCSI,
	OPT_ISER,
	OPT_CENTRAL,
	OPT_SPIN,
	OPT_STATE_DIR,
	OPT_USER,
	OPT_STOP,
	OPT_SYSFS,
	OPT_AFTER_LOSS,
	OPT_SECCOMP,
	OPT_RO_GROUP,
	OPT_NO_KEEPER,
	OPT_KEEPER_CHECK,
	OPT_WATCHDOG,
	OPT_KEEP,
	OPT_GROUP
};

static const struct option longopts[] = {
	{ "foreground", no_argument, NULL, 'f' },
	{ "dont-daemonize", no_argument, NULL, 'D' },
	{ "control-port", required_argument, NULL, 'C' },
	{ "nr_iothreads", required_argument, NULL, 't' },
	{ "pid-file", required_argument, NULL, 'p' },
	{ "debug", required_argument, NULL, 'd' },
	{ "version", no_argument, NULL, 'V' },
	{ "help", no_argument, NULL, 'h' },
	{ "iscsi", required_argument, NULL, OPT_ISCSI },
	{ "iser", required_argument, NULL, OPT_ISER },
	{ "numa-nodes", required_argument, NULL, OPT_NUMA_NODES },
	{ "cache", required_argument, NULL, OPT_CACHE },
	{ "central-events", no_argument, NULL, OPT_CENTRAL },
	{ "spin", required_argument, NULL, OPT_SPIN },
	{ "state-dir", required_argument, NULL, OPT_STATE_DIR },
	{ "user", required_argument, NULL, OPT_USER },
	{ "stop-timeout", required_argument, NULL, OPT_STOP },
	{ "sysfs-root", required_argument, NULL, OPT_SYSFS },
	{ "after-loss", required_argument, NULL, OPT_AFTER_LOSS },
	{ "seccomp", required_argument, NULL, OPT_SECCOMP },
	{ "admin-ro-group", required_argument, NULL, OPT_RO_GROUP },
	{ "no-keeper", no_argument, NULL, OPT_NO_KEEPER },
	{ "keeper-check", required_argument, NULL, OPT_KEEPER_CHECK },
	{ "watchdog", required_argument, NULL, OPT_WATCHDOG },
	{ "keep-connections", required_argument, NULL, OPT_KEEP },
	{ "group", required_argument, NULL, OPT_GROUP },
	{ NULL, 0, NULL, 0 },
};

static void usage(FILE *out)
{
	fputs("Usage: tgtd [OPTION]...\n"
	      "The iSCSI/iSER target daemon. Configure it with tgtadm(8) or tgt-admin(8).\n\n"
	      "  -f, --foreground           do not detach; log to standard error\n"
	      "  -D, --dont-daemonize       as -f, with debug messages\n"
	      "  -C, --control-port N       which management socket to serve (default 0)\n"
	      "  -p, --pid-file FILE        write the process id there\n"
	      "  -d, --debug LEVEL          0 errors .. 4 everything (default 3)\n"
	      "  -V, --version\n"
	      "  -h, --help\n"
	      "      --iscsi KEY=VALUE,...  portal=IP[:PORT][,tag=N] (repeatable), nop_interval=S,\n"
	      "                         nop_count=N,\n"
	      "                             max_connections=N, login_timeout=S, data_out_timeout=S\n"
	      "      --iser KEY=VALUE,...   port=N, nop=on|off, pool_sz_mb=N, buf_sz_kb=N, cq_vector=N, immediate=on|off,\n"
	      "                             unsolicited_kb=N, completion=, gather=, path=; off\n"
	      "      --cache KEY=VALUE,...  size=, block=, group=, partitions=, nodes=, readahead=,\n"
	      "                             affinity=, threshold=, workers=; off\n"
	      "      --group KEY=VALUE,...  name=, gateways=NAME:TAG[@ADDRESS]+..., self=, pool=, conf=, id=,\n"
	      "                             cluster=: one of several daemons before one Ceph;\n"
	      "                             secret-file=, memory=, transport=: their mirrors;\n"
	      "                             file=targets.conf[,self=]: as its <cluster> says\n"
	      "      --numa-nodes N         simulate N NUMA nodes\n"
	      "      --sysfs-root DIR       read the machine's topology below DIR (default /)\n"
	      "      --central-events       one event thread for all logical units (for comparison)\n"
	      "      --spin MICROSECONDS    how long an event thread looks for work before it sleeps\n"
	      "      --state-dir DIR        where reservations and records are kept (default /var/lib/tgt)\n"
	      "      --after-loss WHAT      doubt (default): SYNC and FUA fail for stores of which an earlier\n"
	      "                             daemon lost data, until tgtadm says refresh=1; accept: a warning\n"
	      "      --stop-timeout SECONDS how long a store that takes nothing is waited for at the end\n"
	      "                             (default 60; 0: for ever)\n"
	      "      --user NAME            become that user; stores are opened by tgtadm\n"
	      "      --admin-ro-group GROUP its members may use tgtadm to show, and to change nothing\n"
	      "      --seccomp on|off       limit the system calls of threads (default on)\n"
	      "      --watchdog SECONDS     a worker whose threads stand still so long is replaced (default\n"
	      "                             30; 0: never)\n"
	      "      --keep-connections WHAT which ones go on when a worker dies: quiet (default), those of\n"
	      "                             sessions with nothing under way; all, under load, too; none\n"
	      "      --no-keeper            serve in the process that is started, which nothing replaces\n"
	      "      --keeper-check=FD      for keepers: could this program go on from that table?\n"
	      "  -t, --nr_iothreads N       threads for system calls that may block (default 4)\n",
	      out);
}

/* A decimal number in [min, max], all of the text. */
static bool options_number(const char *text, unsigned long min, unsigned long max,
			   unsigned long *out)
{
	char *end;

	errno = 0;
	*out = strtoul(text, &end, 10);
	return !errno && end != text && !*end && text[0] != '-' && text[0] != '+' && *out >= min &&
	       *out <= max;
}

static bool bad(const char *what, const char *value)
{
	fprintf(stderr, "tgtd: %s: bad value '%s'; see tgtd --help\n", what, value);
	return false;
}

static bool small_number(const char *what, const char *text, unsigned long min, unsigned long max,
			 unsigned *out)
{
	unsigned long v;

	if (!options_number(text, min, max, &v))
		return bad(what, text);
	*out = (unsigned)v;
	return true;
}

/* portal=a,portal=b,nop_interval=5 */
static bool parse_iscsi(struct options *o, char *text)
{
	for (char *save, *item = strtok_r(text, ",", &save); item;
	     item = strtok_r(NULL, ",", &save)) {
		char *value = strchr(item, '=');

		if (!value)
			return bad("--iscsi", item);
		*value++ = '\0';
		if (!strcmp(item, "portal")) {
			if (o->nportals == OPTIONS_PORTALS_MAX)
				return bad("--iscsi portal (too many)", value);
			o->portal[o->nportals++] = value;
		} else if (!strcmp(item, "tag")) {
			if (!o->nportals)
				return bad("--iscsi tag (of the portal before it)", value);
			if (!small_number("tag", value, 1, 65535, &o->portal_tag[o->nportals - 1]))
				return false;
		} else if (!strcmp(item, "nop_interval")) {
			if (!small_number("nop_interval", value, 0, 3600, &o->nop_interval))
				return false;
		} else if (!strcmp(item, "data_out_timeout")) {
			if (!small_number("data_out_timeout", value, 0, 3600,
					  &o->data_out_timeout))
				return false;
		} else if (!strcmp(item, "nop_count")) {
			if (!small_number("nop_count", value, 0, 1000, &o->nop_count))
				return false;
		} else if (!strcmp(item, "max_connections")) {
			if (!small_number("max_connections", value, 1, 32768, &o->max_connections))
				return false;
		} else if (!strcmp(item, "login_timeout")) {
			if (!small_number("login_timeout", value, 1, 3600, &o->login_timeout))
				return false;
		} else {
			return bad("--iscsi", item);
		}
	}
	return true;
}

/* Its words, or the file that has them. */
static bool group_option(struct options *o, const char *arg)
{
	char text[CONF_CLUSTER_TEXT], err[600];
	int rc = 0;

	if (!strncmp(arg, "file=", 5))
		rc = group_of_file(arg + 5, text, sizeof(text), err, sizeof(err));
	if (!rc)
		rc = group_parse(&o->group, strncmp(arg, "file=", 5) ? arg : text, err,
				 sizeof(err));
	if (!rc)
		rc = group_read_secret(&o->group, err, sizeof(err));
	if (rc)
		fprintf(stderr, "tgtd: --group: %s\n", err);
	o->has_group = !rc;
	return !rc;
}

static bool keep_option(struct options *o, const char *arg)
{
	if (!strcmp(arg, "none"))
		o->keep = ISCSI_KEEP_NONE;
	else if (!strcmp(arg, "quiet"))
		o->keep = ISCSI_KEEP_QUIET;
	else if (!strcmp(arg, "all"))
		o->keep = ISCSI_KEEP_ALL;
	else
		return bad("--keep-connections", arg);
	return true;
}

static bool one_option(struct options *o, int c, char *arg)
{
	char err[256];
	unsigned v;

	switch (c) {
	case 'D':
		o->debug = true;
		o->foreground = true;
		return true;
	case 'f':
		o->foreground = true;
		return true;
	case 'C':
		if (!small_number("--control-port", arg, 0, 65535, &v))
			return false;
		o->control_port = (int)v;
		return true;
	case 't':
		return small_number("--nr_iothreads", arg, 1, OFFLOAD_THREADS_MAX, &o->io_threads);
	case 'p':
		o->pidfile = arg;
		return true;
	case 'd':
		/* tgt's "-d 1" switches debugging on. Ours are levels; 1..4
		 * raise as one would expect. */
		return small_number("--debug", arg, 0, LOG_LVL_DEBUG, &o->log_level);
	case OPT_ISCSI:
		return parse_iscsi(o, arg);
	case OPT_ISER:
		if (!strcmp(arg, "off"))
			o->iser = false;
		else
			o->iser_options = arg;
		return true;
	case OPT_NUMA_NODES:
		return small_number("--numa-nodes", arg, 1, TOPO_MAX_NODES, &o->numa_nodes);
	case OPT_CACHE:
		if (!strcmp(arg, "off")) {
			o->use_cache = false;
			return true;
		}
		if (cache_parse(&o->cache, arg, err, sizeof(err))) {
			fprintf(stderr, "tgtd: --cache: %s\n", err);
			return false;
		}
		return true;
	case OPT_CENTRAL:
		o->central = true;
		return true;
	case OPT_SPIN:
		return small_number("--spin", arg, 0, 1000000, &o->spin_us);
	case OPT_STATE_DIR:
		o->state_dir = arg;
		return true;
	case OPT_STOP:
		return small_number("--stop-timeout", arg, 0, 1000000, &o->stop_s);
	case OPT_USER:
		o->user = arg;
		return true;
	case OPT_AFTER_LOSS:
		if (strcmp(arg, "doubt") != 0 && strcmp(arg, "accept") != 0)
			return bad("--after-loss", arg);
		o->accept_loss = arg[0] == 'a';
		return true;
	case OPT_SECCOMP:
		if (strcmp(arg, "on") != 0 && strcmp(arg, "off") != 0)
			return bad("--seccomp", arg);
		o->seccomp = arg[1] == 'n';
		return true;
	case OPT_RO_GROUP:
		o->admin_ro_group = arg;
		return true;
	case OPT_NO_KEEPER:
		o->keeper = false;
		return true;
	case OPT_KEEPER_CHECK: { /* the keeper's own, see tgtd/keeper/replace.h */
		unsigned fd = 0;

		if (!small_number("--keeper-check", arg, 3, 1 << 20, &fd))
			return false;
		o->keeper_check = (int)fd;
		return true;
	}
	case OPT_WATCHDOG:
		return small_number("--watchdog", arg, 0, 86400, &o->watchdog_s);
	case OPT_KEEP:
		return keep_option(o, arg);
	case OPT_GROUP:
		return group_option(o, arg);
	case OPT_SYSFS:
		o->sysfs_root = arg;
		return true;
	default:
		fputs("Try `tgtd --help' for more information.\n", stderr);
		return false;
	}
}

/* In the background we leave the directory that a relative path begins in. NULL: no memory, or
 * that directory is gone. */
static const char *absolute(const char *path)
{
	char *cwd, *whole = NULL;

	if (!path || path[0] == '/')
		return path;
	cwd = getcwd(NULL, 0);
	if (!cwd || asprintf(&whole, "%s/%s", cwd, path) < 0)
		whole = NULL;
	free(cwd);
	return whole;
}

static bool make_absolute(struct options *o)
{
	const char *pidfile = absolute(o->pidfile), *state_dir = absolute(o->state_dir);
	const char *given = getenv(ADM_SOCKET_ENV), *prefix = absolute(given);

	if ((o->pidfile && !pidfile) || (o->state_dir && !state_dir) || (given && !prefix) ||
	    (prefix != given && setenv(ADM_SOCKET_ENV, prefix, 1))) {
		perror("tgtd: the current directory");
		return false;
	}
	o->pidfile = pidfile;
	o->state_dir = state_dir;
	return true;
}

enum options_outcome options_parse(struct options *o, int argc, char **argv)
{
	int c;

	*o = (struct options){
		.log_level = LOG_LVL_INFO,
		.state_dir = "/var/lib/tgt",
		.sysfs_root = "",
		.spin_us = 20,
		.stop_s = 60,
		.use_cache = true,
		.seccomp = true,
		.keeper = true,
		.keeper_check = -1,
		.watchdog_s = 30,
		.nop_interval = 30,
		.nop_count = 5,
		.data_out_timeout = 20,
		.max_connections = 4096,
		.login_timeout = 15,
		.keep = ISCSI_KEEP_QUIET,
		.iser = true,
		.iser_options = "",
	};
	while ((c = getopt_long(argc, argv, "fDC:t:p:d:Vh", longopts, NULL)) != -1) {
		if (c == 'V') {
			puts(TGT_VERSION);
			return OPTIONS_EXIT_OK;
		}
		if (c == 'h') {
			usage(stdout);
			return OPTIONS_EXIT_OK;
		}
		if (!one_option(o, c, optarg))
			return OPTIONS_EXIT_USAGE;
	}
	if (optind < argc) {
		fprintf(stderr, "tgtd: unexpected argument '%s'; see tgtd --help\n", argv[optind]);
		return OPTIONS_EXIT_USAGE;
	}
	if (o->debug)
		o->log_level = LOG_LVL_DEBUG;
	if (!make_absolute(o))
		return OPTIONS_EXIT_USAGE;
	return OPTIONS_RUN;
}
