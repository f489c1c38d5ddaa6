/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Private to conf/parse*.c: a text while it is read.
 *
 *     parse.c        files, blocks, includes, comments
 *     cluster.c      <cluster>
 *     parse_lines.c  what a line says
 */
#ifndef CONF_PARSE_INT_H
#define CONF_PARSE_INT_H

#include "conf/model.h"

struct parser {
	struct conf *c;
	struct conf_error *err;
	struct conf_pos pos;
	struct conf_target *target; /* inside <target> */
	struct conf_lu *lu;	    /* inside <backing-store> */
	unsigned begun;		    /* the target, at this line */
	unsigned depth, *nfiles;
	unsigned comment; /* begun at this line; 0: none */
	bool closed;
	bool cluster; /* inside <cluster> */
};

/* ---- parse_lines.c; all return 0, or -EINVAL with p->err filled ------------------------------ */
/* Always -EINVAL, for `return parse_fail(...)`. The text follows the place. */
int parse_fail(struct parser *p, const char *fmt, ...) printf_like(2, 3);
int parse_unknown(struct parser *p, const char *word, enum conf_place place);
/* Without blanks at its ends; in place. */
char *parse_trim(char *s);
/* Takes a pair of quotes off; true: there was one. */
bool parse_unquote(char **value);
/* @out: NULL, or where the new LU goes. */
int parse_lu_add(struct parser *p, char *path, bool direct, struct conf_lu **out);
/* An option of the LU at work, or of the target's LUs; it is added to @to. */
int parse_lu_option(struct parser *p, struct list *to, const char *key, char *value);
int parse_target_line(struct parser *p, const char *key, char *value);
int parse_global_line(struct parser *p, const char *key, char *value);
/* A number from 0 to @max, in decimal digits; false: it is none. */
bool parse_number(const char *text, uint32_t max, uint32_t *out);

/* ---- cluster.c ------------------------------------------------------------------------------- */
int parse_cluster_begin(struct parser *p, const char *name);
int parse_cluster_line(struct parser *p, const char *key, char *value);
int parse_cluster_end(struct parser *p);

static inline bool parse_blank(char ch)
{
	return ch == ' ' || ch == '\t' || ch == '\r';
}

#endif
