/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the parts of tgt-admin share. The daemon's configuration and the file's become models, their
 * difference a list of steps (conf/diff.h).
 */
#ifndef TOOLS_TGT_ADMIN_ADMIN_H
#define TOOLS_TGT_ADMIN_ADMIN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/adm_client.h"
#include "conf/diff.h"
#include "conf/model.h"

#define DEFAULT_CONF "/etc/tgt/targets.conf"
/* Exit status: something is not as the file says, since it is in use or not there. */
#define EXIT_LEFT 3

/* main.c: what the command line says, and both models. */
extern struct admin {
	const char *conf_file;
	int port; /* -1: not said */
	bool ignore_errors, force, pretend, verbose;
	bool no_daemon; /* --pretend goes on without one */
	struct adm_client client;
	struct conf have, want;
} g;

/* ---- daemon.c; all of them end the program when there is no daemon --------------------------- */
int daemon_port(void);
/* Waits, a minute at most, until no other tgt-admin is changing this daemon, and keeps the others
 * waiting until the program ends. Before the file and the daemon are looked at: both would be old
 * news afterwards. With --pretend it does nothing. */
void daemon_turn(void);
/* @reply is the caller's to free. */
void daemon_call(const struct adm_req *req, struct adm_reply *reply);
/* Prints what SHOW of @mode answers, as text or JSON. An exit status. */
int daemon_print(enum adm_mode mode, const char *name, bool json);
/* g.have; with --pretend and no daemon an empty one, and g.no_daemon. */
void daemon_load(void);
/* Marks accounts in g.have whose password is another than the file's. */
void daemon_compare_passwords(void);
bool daemon_target_in_use(uint32_t tid);

/* ---- file.c ---------------------------------------------------------------------------------- */
/* g.want, verified; ends the program when anything is wrong with it. */
void file_load(void);
/* Fills in how large those stores of g.want are now that g.have serves, too. Of @target only;
 * NULL: of all. */
void file_sizes(const char *target);
/* Is the LU's path a size, not a file's name? */
bool store_is_file(const struct conf_lu *lu);

/* ---- plan.c ---------------------------------------------------------------------------------- */
/* conf_scope.usable: not by a store that is missing, nor by one that is in use. */
bool store_usable(void *arg, const struct conf_lu *lu, bool taken,
		  void (*say)(void *say_arg, const char *note), void *say_arg);
/* conf_scope.identify: by device number, or file system and inode. */
void store_identify(void *arg, const char *path, char *out, size_t len);
/* conf_scope.in_use */
bool target_in_use(void *arg, uint32_t tid);
/* Checks the steps, then runs or prints them. @strict: a store that is left out is a failure, too.
 * An exit status: 0, EXIT_LEFT, EINVAL (refused), ENOTCONN (pretended without a daemon). With
 * @first also EAGAIN: a target or LUN that is to come is there already; a new plan is needed. */
int plan_execute(struct list *steps, bool strict, bool first);

#endif
