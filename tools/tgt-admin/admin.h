/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the parts of tgt-admin share. The daemon's configuration and the file's become models, their
 * difference a list of steps (conf/diff.h).
 */
#ifndef TOOLS_TGT_ADMIN_H
#define TOOLS_TGT_ADMIN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/adm_client.h"
#include "conf/diff.h"
#include "conf/model.h"

#define DEFAULT_CONF "/etc/tgt/targets.conf"

/* main.c: what the command line says, and both models. */
extern struct admin {
	const char *conf_file;
	int port; /* -1: not said */
	bool ignore_errors, force, pretend, verbose;
	struct adm_client client;
	struct conf have, want;
} g;

/* ---- daemon.c; all of them end the program when there is no daemon --------------------------- */
int daemon_port(void);
/* @reply is the caller's to free. */
void daemon_call(const struct adm_req *req, struct adm_reply *reply);
/* Prints what SHOW of @mode answers. An exit status. */
int daemon_print(enum adm_mode mode, const char *name);
/* g.have. */
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
bool store_is_size(const struct conf_lu *lu);

/* ---- plan.c ---------------------------------------------------------------------------------- */
/* conf_scope.usable: not by a store that is missing, nor by one that is in use. */
bool store_usable(void *arg, const struct conf_lu *lu,
		  void (*say)(void *say_arg, const char *note), void *say_arg);
/* Runs the steps, or prints them. An exit status. */
int plan_execute(struct list *steps);

#endif
