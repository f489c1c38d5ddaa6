/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The command line of tgtd: tgt's options, and ours behind them. See tgtd.8. */
#ifndef TGTD_OPTIONS_H
#define TGTD_OPTIONS_H

#include "cache/engine/cache.h"
#include "tgtd/cluster/live/group.h"
#include "tgtd/iscsi/iscsi.h"

#define OPTIONS_PORTALS_MAX 64

struct options {
	bool foreground;
	bool debug;
	int control_port;
	unsigned log_level;	     /* enum log_level */
	const char *pidfile;	     /* NULL: none */
	const char *user;	     /* NULL: stay who we are */
	bool seccomp;		     /* threads' system calls are limited */
	int keeper_check;	     /* a table that another keeper would hand on; -1: none */
	bool keeper;		     /* a process that replaces the one that serves */
	unsigned watchdog_s;	     /* see pulse.h */
	const char *admin_ro_group;  /* may show, and change nothing; NULL: none */
	const char *state_dir;	     /* persistent reservations and the like */
	bool accept_loss;	     /* what an earlier daemon has lost is only logged */
	unsigned numa_nodes;	     /* 0: as the machine is; N: simulate */
	const char *sysfs_root;	     /* "" live */
	bool central;		     /* one event thread for all LUs
				      * (comparison, Ren 2015, chapter 5) */
	uint32_t spin_us;
	uint32_t stop_s; /* at the end: of write-back without progress; 0: for ever */
	unsigned io_threads; /* for blocking calls; 0: default */
	bool use_cache;
	struct cache_conf cache;

	/* --iscsi */
	const char *portal[OPTIONS_PORTALS_MAX];
	unsigned portal_tag[OPTIONS_PORTALS_MAX]; /* 0: not said */
	unsigned nportals;
	unsigned nop_interval, nop_count, data_out_timeout;
	unsigned max_connections, login_timeout;
	enum iscsi_keep keep;	     /* --keep-connections */

	/* --group */
	bool has_group;
	struct group_conf group;

	/* --iser */
	bool iser;
	const char *iser_options; /* rest of the text, for the iSER layer */
};

enum options_outcome { OPTIONS_RUN, OPTIONS_EXIT_OK, OPTIONS_EXIT_USAGE };

/* Parses argv; messages go to stderr, --help and --version to stdout. Strings point into argv or
 * into memory that is never freed. */
enum options_outcome options_parse(struct options *o, int argc, char **argv);

#endif
