/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * From what the daemon has to what it should have: the requests, in the order in which they are to
 * be made. What is equal is not touched, so that sessions go on. What can be changed in place is
 * changed in place. The rest is deleted and created again.
 *
 * What goes makes room for what comes. First come all deletions, then LUNs change their stores,
 * then all the rest. Steps belong to parts. A part is made as a whole or not at all, and knows
 * which parts it needs: a new LUN needs the removal of the LUN that has its store. Whoever runs a
 * plan leaves out the parts that need a failed one, and undoes a part that is half made.
 *
 * The order within a target lets nobody in between who is to be kept out. Users are bound, and tied
 * to their names, before others are unbound or untied, since a target without users asks for none.
 * Access rules are added before others are removed.
 */
#ifndef CONF_DIFF_H
#define CONF_DIFF_H

#include "conf/adm_proto.h"
#include "conf/model.h"

/* The caching mode page (SBC-4 6.5.5) with WCE off and on, in the form of --params mode_page: what
 * `write-cache` becomes. */
#define CONF_WRITE_CACHE_OFF                                                                       \
	"8:0:18:0x10:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0"
#define CONF_WRITE_CACHE_ON                                                                        \
	"8:0:18:0x14:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0"

enum conf_part_kind {
	CONF_PART_CHANGE,     /* in place */
	CONF_PART_REMOVE,     /* of a LUN or a target; sessions would feel it */
	CONF_PART_NEW_TARGET, /* half of it is worse than none */
	CONF_PART_NEW_LU,     /* the same */
};

struct conf_part {
	enum conf_part_kind kind;
	const char *target; /* its name */
	const char *what;   /* "LUN 3"; NULL: the target itself */
	uint32_t tid, lun;  /* lun 0: the target itself */
	struct list needs;  /* conf_need */
	/* For whoever runs the plan: */
	bool left, refused;		/* not made: not possible now; the daemon said no */
	bool made;			/* a step that makes something was made */
	bool said;
	const struct conf_part *because; /* the needed part that was not made */
};

struct conf_need {
	struct list link;
	struct conf_part *part;
};

struct conf_step {
	struct list link;
	const char *note;   /* to print, with "# " before it; then there is no request */
	bool warning;	    /* the note is that something of the file is left out */
	struct adm_req req; /* texts live as long as the plan */
	struct conf_pos pos; /* the line that asks for it, if one does */
	const char *target; /* its name; NULL: of the daemon */
	uint32_t tid;
	struct conf_part *part; /* NULL: it stands alone */
};

struct conf_scope {
	const char *target; /* this one only; NULL: all */
	bool update;	    /* also change targets that exist already; else they are left alone */
	bool remove;	    /* take down targets that the configuration does not name */
	bool force;	    /* delete with --force */
	/* May this store be given to a new LU? @taken: a LU that stays has it, or an earlier one of
	 * the file gets it. If not: notes by way of say(). NULL: unless it is taken. */
	bool (*usable)(void *arg, const struct conf_lu *lu, bool taken,
		       void (*say)(void *say_arg, const char *note), void *say_arg);
	/* Into @out what tells the store at @path from others, whatever its name. NULL: the
	 * path. */
	void (*identify)(void *arg, const char *path, char *out, size_t len);
	/* Does anybody use this target of the daemon? NULL: nobody. */
	bool (*in_use)(void *arg, uint32_t tid);
	void *arg;
};

/* Appends struct conf_step to @steps, allocated from @want. Both are resolved, and each target of
 * @have has its tid. */
void conf_diff(const struct conf *have, struct conf *want, const struct conf_scope *scope,
	       struct list *steps);
/* The file or device of a LU: the option `path`, where it says so. */
const char *conf_lu_path(const struct conf_lu *lu);
/* Is it a drive without a medium (CONF_NONE)? */
bool conf_has_no_medium(const struct conf_lu *lu);
/* One step that deletes a target, with its notes; also used by `--delete`. */
void conf_plan_delete(struct conf *memory, const struct conf_target *t, bool force,
		      struct list *steps);

/* The tgtadm command line that makes the same request, as tgt-admin has always printed it. */
void conf_step_print(const struct conf_step *step, int control_port, FILE *to);

#endif
