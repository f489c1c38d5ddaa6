/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * From what the daemon has to what it should have: the requests, in the order in which they are to
 * be made. What is equal is not touched, so that sessions go on; what can be changed in place is
 * changed in place; the rest is taken down and made again.
 *
 * Order within a target keeps it closed at every step: users are bound, and tied to their names,
 * before others are unbound or untied,
 * and access rules are added before others are removed, since a target without users asks for none.
 */
#ifndef CONF_DIFF_H
#define CONF_DIFF_H

#include "conf/adm_proto.h"
#include "conf/model.h"

struct conf_step {
	struct list link;
	const char *note;   /* to print, with "# " before it; then there is no request */
	bool warning;	    /* the note is that something of the file is left out */
	struct adm_req req; /* texts live as long as the plan */
	struct conf_pos pos; /* the line that asks for it, if one does */
	const char *target; /* its name; NULL: of the daemon */
	uint32_t tid;
	/* A step that sessions would feel: to be skipped while the target has any,
	 * unless forced. The steps that follow with the same number (not 0) depend on
	 * it and are skipped with it. */
	unsigned disruptive;
	bool made;	  /* whoever runs the plan may note it here */
	const char *what; /* of a disruptive step, for the message: "LUN 3", "driver" */
};

struct conf_scope {
	const char *target; /* this one only; NULL: all */
	bool update;	    /* also change targets that exist already; else they are left alone */
	bool remove;	    /* take down targets that the configuration does not name */
	bool force;	    /* delete with --force */
	/* May this store be given to a new LU? If not: notes by way of say(). NULL: yes. */
	bool (*usable)(void *arg, const struct conf_lu *lu,
		       void (*say)(void *say_arg, const char *note), void *say_arg);
	void *arg;
};

/* Appends struct conf_step to @steps, allocated from @want. Both are resolved. */
void conf_diff(const struct conf *have, struct conf *want, const struct conf_scope *scope,
	       struct list *steps);
/* One step that deletes a target, with its notes; also used by `--delete`. */
void conf_plan_delete(struct conf *memory, const struct conf_target *t, bool force,
		      struct list *steps);

/* The tgtadm command line that makes the same request, as tgt-admin has always printed it. */
void conf_step_print(const struct conf_step *step, int control_port, FILE *to);

#endif
