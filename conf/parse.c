/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * targets.conf: lines of `key value`, blocks `<name argument>` ... `</name>`, `include` with globs.
 *
 *     file:    global-line | include | <target IQN> target </target>
 *     target:  line | include | <backing-store PATH> line... </backing-store> | <direct-store ...>
 *
 * '#' starts a comment, unless a '\' stands before it; a '\' at the end of a line joins the next
 * one; quotes around a value are taken off. Blocks of the same target merge. As tgt's files may
 * have it: comments from slash-asterisk at the start of a line, or at the end of one; `Include`; a
 * byte order mark.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/model.h"
#include "conf/secret_file.h"
#include "events/bug.h"
#include "events/secret.h"

#define MAX_DEPTH 16
#define MAX_FILE (16u << 20)
#define MAX_FILES 10000
#define MAX_LINE 8192

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
};

static int parse_fail(struct parser *p, const char *fmt, ...) printf_like(2, 3);
static int parse_fail(struct parser *p, const char *fmt, ...)
{
	va_list ap;
	int n = 0;

	if (p->pos.file)
		n = snprintf(p->err->text, sizeof(p->err->text), "%s:%u: ", p->pos.file,
			     p->pos.line);
	if (n < 0 || (size_t)n >= sizeof(p->err->text))
		n = 0;
	va_start(ap, fmt);
	vsnprintf(p->err->text + n, sizeof(p->err->text) - (size_t)n, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

static int unknown(struct parser *p, const char *word, enum conf_place place)
{
	char hint[160];

	conf_hint(word, place, hint, sizeof(hint));
	return parse_fail(p, "unknown option '%s' %s%s", word,
			  place == CONF_IN_FILE	  ? "outside of targets" :
			  place == CONF_IN_TARGET ? "in a target" :
						    "in a store",
			  hint);
}

static bool parse_blank(char ch)
{
	return ch == ' ' || ch == '\t' || ch == '\r';
}

static char *trim(char *s)
{
	while (parse_blank(*s))
		s++;
	size_t n = strlen(s);

	/* an escaped blank would be odd; none is kept */
	while (n && parse_blank(s[n - 1]))
		s[--n] = 0;
	return s;
}

static bool parse_u32(const char *text, uint32_t max, uint32_t *out)
{
	char *end;
	unsigned long v;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	v = strtoul(text, &end, 0);
	if (*end || errno || v > max)
		return false;
	*out = (uint32_t)v;
	return true;
}

/* ---- directives ------------------------------------------------------------------------------ */

/* Takes a pair of quotes off; true: there was one. */
static bool unquote(char **value)
{
	size_t n = strlen(*value);

	if (n < 2 || (**value != '"' && **value != '\'') || (*value)[n - 1] != **value)
		return false;
	(*value)[n - 1] = 0;
	++*value;
	return true;
}

/* "user file": the password is in the file. What the daemon says of its own is not looked at. */
static int user_file_line(struct parser *p, struct list *to, char *value, bool outgoing)
{
	size_t n = strcspn(value, " \t");
	char *file = value + n, *password = NULL, err[400];
	struct conf_user *u;
	bool exposed = false;

	if (*file) {
		*file = 0;
		file = trim(file + 1);
		unquote(&file);
	}
	if (*file != '/')
		return parse_fail(p,
				  "expected: a user, and the file of the password from the root");
	list_for_each(u, to, link)
		if (u->outgoing == outgoing && !strcmp(u->user, value))
			return parse_fail(p, "user %s is given twice", value);
	if (!p->closed && conf_read_password(file, false, &password, &exposed, err, sizeof(err)))
		return parse_fail(p, "%s", err);
	u = conf_add_user(p->c, to, value, password, outgoing);
	secret_strfree(password);
	u->file = conf_strdup(p->c, file);
	u->exposed = exposed;
	u->pos = p->pos;
	return 0;
}

/* "user password". tgt's password went through a shell, which took quotes off. */
static int user_line(struct parser *p, struct list *to, char *value, bool outgoing)
{
	size_t n = strcspn(value, " \t");
	struct conf_user *u;
	char *password;
	bool quoted;

	if (!value[n])
		return parse_fail(p, "a user needs a name and a password: '%s' has no second word",
				  value);
	value[n] = 0;
	list_for_each(u, to, link)
		if (u->outgoing == outgoing && !strcmp(u->user, value))
			return parse_fail(p, "user %s is given twice", value);
	password = trim(value + n + 1);
	quoted = unquote(&password);
	u = conf_add_user(p->c, to, value, password, outgoing);
	u->many_words = !quoted && strpbrk(password, " \t");
	u->pos = p->pos;
	return 0;
}

static int lu_add(struct parser *p, char *path, bool direct, struct conf_lu **out)
{
	if (!*path)
		return parse_fail(p, "a store needs a path");
	if (p->c->nlus >= CONF_MAX_LUS)
		return parse_fail(p, "more than %u logical units", CONF_MAX_LUS);
	struct conf_lu *lu = conf_add_lu(p->c, p->target, path);

	lu->direct = direct;
	lu->pos = p->pos;
	if (out)
		*out = lu;
	return 0;
}

static int lu_option(struct parser *p, struct list *to, const char *key, char *value)
{
	uint32_t lun;

	if (!strcmp(key, "lun")) {
		if (!parse_u32(value, CONF_MAX_LUN, &lun) || !lun)
			return parse_fail(p, "lun is 1 to %u, not '%s'", CONF_MAX_LUN, value);
		if (p->lu) {
			if (p->lu->has_lun)
				return parse_fail(p, "lun is given twice");
			p->lu->lun = lun;
			p->lu->has_lun = true;
			return 0;
		}
	}
	if (conf_kind(key) != CONF_MULTI && conf_get(to, key))
		return parse_fail(p, "%s is given twice", key);
	conf_add_kv(p->c, to, key, value)->pos = p->pos;
	return 0;
}

/* expose <initiator name> <luns> */
static int expose_line(struct parser *p, char *value)
{
	size_t n = strcspn(value, " \t");
	struct conf_rule *r;

	if (!value[n])
		return parse_fail(p, "expected: expose <initiator name> <luns>");
	value[n] = 0;
	list_for_each(r, &p->target->rules, link) {
		if (!r->is_name || strcmp(r->text, value))
			continue;
		if (r->luns)
			return parse_fail(p, "what %s sees is given twice", value);
		r->luns = conf_strdup(p->c, trim(value + n + 1));
		return 0;
	}
	return parse_fail(p, "expose needs an initiator-name %s before it", value);
}

/* bind-user <user> <initiator name> */
static int tie_line(struct parser *p, char *value)
{
	size_t n = strcspn(value, " \t");
	const char *name;
	struct conf_user *u;

	if (!value[n])
		return parse_fail(p, "expected: bind-user <user> <initiator name>");
	value[n] = 0;
	name = trim(value + n + 1);
	list_for_each(u, &p->target->users, link) {
		if (u->outgoing || strcmp(u->user, value))
			continue;
		if (conf_get(&u->names, name))
			return parse_fail(p, "bind-user %s %s is given twice", value, name);
		conf_add_kv(p->c, &u->names, name, "")->pos = p->pos;
		return 0;
	}
	return parse_fail(p, "bind-user needs an incominguser %s before it", value);
}

static int rule_line(struct parser *p, const char *value, bool is_name)
{
	struct conf_rule *r;

	if (!is_name && !strcmp(value, CONF_NOBODY)) {
		p->target->nobody = true;
		return 0;
	}
	list_for_each(r, &p->target->rules, link)
		if (r->is_name == is_name && !strcmp(r->text, value))
			return parse_fail(p, "%s is given twice", value);
	conf_add_rule(p->c, p->target, value, is_name)->pos = p->pos;
	return 0;
}

static int target_line(struct parser *p, const char *key, char *value)
{
	struct conf_target *t = p->target;
	bool outgoing = !strcmp(key, "outgoinguser");

	if (!strcmp(key, "backing-store"))
		return lu_add(p, value, false, NULL);
	if (!strcmp(key, "direct-store"))
		return lu_add(p, value, true, NULL);
	if (!strcmp(key, "initiator-address") || !strcmp(key, "initiator-name"))
		return rule_line(p, value, !strcmp(key, "initiator-name"));
	if (!strcmp(key, "expose"))
		return expose_line(p, value);
	if (!strcmp(key, "bind-user"))
		return tie_line(p, value);
	if (outgoing || !strcmp(key, "incominguser"))
		return user_line(p, &t->users, value, outgoing);
	if (!strcmp(key, "incominguser-file") || !strcmp(key, "outgoinguser-file"))
		return user_file_line(p, &t->users, value, *key == 'o');
	if (!strcmp(key, "driver")) {
		if (t->driver)
			return parse_fail(p, "driver is given twice");
		t->driver = conf_strdup(p->c, value);
		t->driver_pos = p->pos;
		return 0;
	}
	if (!strcmp(key, "controller_tid")) {
		if (t->tid)
			return parse_fail(p, "controller_tid is given twice");
		if (!parse_u32(value, INT32_MAX, &t->tid) || !t->tid)
			return parse_fail(p, "controller_tid is a number above 0, not '%s'", value);
		return 0;
	}
	switch (conf_kind(key)) {
	case CONF_UNKNOWN:
		return unknown(p, key, CONF_IN_TARGET);
	case CONF_KEY:
		if (conf_get(&t->keys, key))
			return parse_fail(p, "%s is given twice", key);
		conf_add_kv(p->c, &t->keys, key, value)->pos = p->pos;
		return 0;
	default:
		return lu_option(p, &t->options, key, value);
	}
}

static int global_line(struct parser *p, const char *key, char *value)
{
	struct conf *c = p->c;
	uint32_t port;

	if (!strcmp(key, "default-driver")) {
		if (c->default_driver)
			return parse_fail(p, "default-driver is given twice");
		c->default_driver = conf_strdup(c, value);
		c->default_driver_pos = p->pos;
		return 0;
	}
	if (!strcmp(key, "ignore-errors")) {
		if (strcmp(value, "yes") && strcmp(value, "no"))
			return parse_fail(p, "ignore-errors is yes or no, not '%s'", value);
		c->ignore_errors = !strcmp(value, "yes");
		return 0;
	}
	if (!strcmp(key, "control-port")) {
		if (c->control_port >= 0)
			return parse_fail(p, "control-port is given twice");
		if (!parse_u32(value, INT16_MAX, &port))
			return parse_fail(p, "control-port is %s, not '%s'", conf_says(key), value);
		c->control_port = (int)port;
		return 0;
	}
	if (!strcmp(key, "iSNS") || !strcmp(key, "iSNSServerIP") ||
	    !strcmp(key, "iSNSServerPort") || !strcmp(key, "iSNSAccessControl") ||
	    !strcmp(key, "weak_secrets") || !strcmp(key, "default-mask")) {
		if (conf_get(&c->system, key))
			return parse_fail(p, "%s is given twice", key);
		conf_add_kv(c, &c->system, key, value)->pos = p->pos;
		return 0;
	}
	if (!strcmp(key, "incomingdiscoveryuser") || !strcmp(key, "outgoingdiscoveryuser"))
		return user_line(p, &c->users, value, *key == 'o');
	if (!strcmp(key, "incomingdiscoveryuser-file") ||
	    !strcmp(key, "outgoingdiscoveryuser-file"))
		return user_file_line(p, &c->users, value, *key == 'o');
	return unknown(p, key, CONF_IN_FILE);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static int block_begin(struct parser *p, const char *name, char *arg)
{
	if (p->lu)
		return parse_fail(p, "<%s> inside of a store", name);
	if (!strcmp(name, "target")) {
		if (p->target)
			return parse_fail(p, "<target> inside of a target");
		if (!*arg)
			return parse_fail(p, "a target needs a name");
		p->begun = p->pos.line;
		p->target = conf_find_target(p->c, arg);
		if (p->target)
			return 0;
		if (p->c->ntargets >= CONF_MAX_TARGETS)
			return parse_fail(p, "more than %u targets", CONF_MAX_TARGETS);
		p->target = conf_add_target(p->c, arg);
		p->target->pos = p->pos;
		return 0;
	}
	if (!strcmp(name, "backing-store") || !strcmp(name, "direct-store")) {
		if (!p->target)
			return parse_fail(p, "<%s> outside of targets", name);
		return lu_add(p, arg, *name == 'd', &p->lu);
	}
	char hint[160];

	conf_hint(name, CONF_IS_BLOCK, hint, sizeof(hint));
	return parse_fail(p, "unknown block <%s>%s", name, hint);
}

static int block_end(struct parser *p, const char *name)
{
	const char *open = p->lu     ? (p->lu->direct ? "direct-store" : "backing-store") :
			   p->target ? "target" :
				       NULL;

	if (!open || strcasecmp(open, name))
		return parse_fail(p, "</%s> closes nothing%s%s%s", name, open ? ", <" : "",
				  open ? open : "", open ? "> is open" : "");
	if (p->lu)
		p->lu = NULL;
	else
		p->target = NULL;
	return 0;
}

static int block_line(struct parser *p, char *s)
{
	size_t n = strlen(s);

	if (s[n - 1] != '>')
		return parse_fail(p, "'>' is missing");
	s[n - 1] = 0;
	if (s[1] == '/')
		return block_end(p, trim(s + 2));
	s = trim(s + 1);
	n = strcspn(s, " \t");
	char *arg = s[n] ? trim(s + n + 1) : s + n;

	s[n] = 0;
	n = strlen(arg);
	if (n >= 2 && *arg == '"' && arg[n - 1] == '"') {
		arg[n - 1] = 0;
		arg++;
	}
	return block_begin(p, s, arg);
}

/* ---- files ----------------------------------------------------------------------------------- */

static int parse_file(struct parser *p, const char *path);

static int include(struct parser *p, const char *pattern)
{
	char all[PATH_MAX];
	struct stat st;
	glob_t found;
	int err = 0;

	if (p->closed)
		return parse_fail(p, "include is not allowed here");
	if (p->depth >= MAX_DEPTH)
		return parse_fail(p, "includes are nested deeper than %d", MAX_DEPTH);
	/* a directory means everything in it */
	if (!stat(pattern, &st) && S_ISDIR(st.st_mode) &&
	    snprintf(all, sizeof(all), "%s/*", pattern) < (int)sizeof(all))
		pattern = all;
	switch (glob(pattern, 0, NULL, &found)) {
	case 0:
		break;
	case GLOB_NOMATCH:
		/* a directory of snippets may well be empty; a file that is named must exist */
		return strpbrk(pattern, "*?[") ?
			       0 :
			       parse_fail(p, "cannot include %s: no such file", pattern);
	default:
		return parse_fail(p, "cannot include %s", pattern);
	}
	for (size_t i = 0; i < found.gl_pathc && !err; i++) {
		struct parser inner = *p;

		inner.depth++;
		err = parse_file(&inner, found.gl_pathv[i]);
		if (!err && (inner.target != p->target || inner.lu != p->lu))
			err = parse_fail(&inner, "a block that begins in a file must end there");
	}
	globfree(&found);
	return err;
}

static int key_line(struct parser *p, char *s)
{
	size_t n = strcspn(s, " \t=");
	char *value = s + n;

	while (parse_blank(*value))
		value++;
	if (*value == '=')
		value++;
	value = trim(value);
	s[n] = 0;
	unquote(&value);
	if (!*s)
		return parse_fail(p, "a line begins with '='");
	if (!*value)
		return parse_fail(p, "option %s has a missing value", s);
	if (!strcasecmp(s, "include"))
		return include(p, value);
	if (p->lu) {
		enum conf_kind kind = conf_kind(s);

		if (kind == CONF_UNKNOWN || kind == CONF_KEY)
			return unknown(p, s, CONF_IN_STORE);
		return lu_option(p, &p->lu->options, s, value);
	}
	return p->target ? target_line(p, s, value) : global_line(p, s, value);
}

/* Takes a comment off and resolves \# and \\; true: a '\' at the end asks for the next line. */
static bool unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (*s == '#')
			break;
		if (*s == '\\' && (s[1] == '#' || s[1] == '\\'))
			s++;
		else if (*s == '\\' && (!s[1] || (s[1] == '\r' && !s[2]))) {
			*to = 0;
			return true;
		}
		*to++ = *s;
	}
	*to = 0;
	return false;
}

/* Takes out comments that may have several lines, where tgt's parser saw them: from the start of a
 * line to the end mark, on whatever line; behind something else only at the end of the line, since
 * a path may have these characters, too. A '#' in them is nothing special. */
static void uncomment(struct parser *p, char *line)
{
	char *s = line + strspn(line, " \t");
	size_t n;

	while (p->comment || !strncmp(s, "/*", 2)) {
		char *end = strstr(p->comment ? s : s + 2, "*/");

		if (!end) {
			p->comment = p->comment ? p->comment : p->pos.line;
			*line = 0;
			return;
		}
		p->comment = 0;
		s = end + 2 + strspn(end + 2, " \t");
	}
	memmove(line, s, strlen(s) + 1);
	for (n = strlen(line); n && parse_blank(line[n - 1]);)
		n--;
	if (n <= 4 || strncmp(line + n - 2, "*/", 2))
		return;
	for (s = line + n - 4; s > line; s--)
		if (!strncmp(s, "/*", 2) && parse_blank(s[-1])) {
			*s = 0;
			return;
		}
}

/* @line: room for one line of MAX_LINE bytes. */
static int parse_each(struct parser *p, const char *text, size_t len, char *line)
{
	size_t have = 0;
	int err = 0;

	p->pos.line = 0;
	if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) {
		text += 3;
		len -= 3;
	}
	while (len && !err) {
		const char *end = memchr(text, '\n', len);
		size_t n = end ? (size_t)(end - text) : len;

		p->pos.line++;
		if (have + n >= MAX_LINE)
			return parse_fail(p, "a line is longer than %d bytes", MAX_LINE - 1);
		if (memchr(text, 0, n))
			return parse_fail(p, "a NUL byte");
		memcpy(line + have, text, n);
		line[have + n] = 0;
		if (!have)
			uncomment(p, line);
		text += n + (end != NULL);
		len -= n + (end != NULL);
		if (unescape(line + have)) {
			have += strlen(line + have);
			continue;
		}
		have = 0;
		char *s = trim(line);

		/* the other spelling of include */
		if (!strncasecmp(s, "<<include", 9) && strlen(s) > 11 &&
		    !strcmp(s + strlen(s) - 2, ">>")) {
			s[strlen(s) - 2] = 0;
			err = include(p, trim(s + 9));
		} else if (*s == '<') {
			err = block_line(p, s);
		} else if (*s) {
			err = key_line(p, s);
		}
	}
	if (!err && p->comment)
		err = parse_fail(p, "the comment of line %u has no end", p->comment);
	return err;
}

/* Lines have passwords in them, on our stack, too. */
static int parse_lines(struct parser *p, const char *text, size_t len)
{
	char line[MAX_LINE];
	int err = parse_each(p, text, len, line);

	secret_cleanse(line, sizeof(line));
	return err;
}

/* Up to the end, however long stat(2) says that it is: a pipe has no length, and can be read once.
 * @text, @room bytes, is the caller's to free (secret.h), also after an error. */
static int read_all(struct parser *p, int fd, char **text, size_t *room, size_t *len)
{

	for (;;) {
		ssize_t n;

		if (*len == *room) {
			size_t size = *room ? 2 * *room : 65536;
			char *more = secret_alloc(size);

			if (!more)
				return -ENOMEM;
			if (*len)
				memcpy(more, *text, *len);
			secret_free(*text, *room);
			*text = more;
			*room = size;
		}
		n = read(fd, *text + *len, *room - *len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return parse_fail(p, "cannot be read: %s", strerror(errno));
		if (!n)
			return 0;
		*len += (size_t)n;
		if (*len > MAX_FILE)
			return parse_fail(p, "longer than %u MiB", MAX_FILE >> 20);
	}
}

static int parse_file(struct parser *p, const char *path)
{
	struct stat st;
	char *text = NULL;
	/* What is named on the command line may be a pipe, whose writer is waited for as anybody
	 * would; what a pattern finds may not, it would hang there. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | (p->depth ? O_NONBLOCK : 0)), err;
	size_t len = 0, room = 0;

	if (fd < 0 || fstat(fd, &st)) {
		err = -errno;
		parse_fail(p, "cannot read %s: %s", path, strerror(-err));
		if (fd >= 0)
			close(fd);
		return err;
	}
	p->pos = (struct conf_pos){ conf_strdup(p->c, path), 0 };
	if (!S_ISREG(st.st_mode) && (p->depth || !(S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode))))
		err = parse_fail(p, "not a file");
	else if (++*p->nfiles > MAX_FILES)
		err = parse_fail(p, "more than %d files", MAX_FILES);
	else
		err = read_all(p, fd, &text, &room, &len);
	close(fd);
	if (!err)
		err = parse_lines(p, text, len);
	secret_free(text, room);
	return err;
}

static int parse_end(struct parser *p, int err)
{
	if (!err && (p->lu || p->target)) {
		const char *open =
			p->lu ? p->lu->direct ? "direct-store" : "backing-store" : "target";

		err = parse_fail(p, "the file ends inside of <%s %s> of line %u: </%s> is missing",
				 open, p->lu ? p->lu->path : p->target->name,
				 p->lu ? p->lu->pos.line : p->begun, open);
	}
	return err;
}

int conf_parse_file(struct conf *c, const char *path, struct conf_error *err)
{
	unsigned nfiles = 0;
	struct parser p = { .c = c, .err = err, .nfiles = &nfiles };
	int rc = parse_file(&p, path);

	ASSERT(path && err);
	return parse_end(&p, rc);
}

int conf_parse_text(struct conf *c, const char *name, const char *text, size_t len, bool closed,
		    struct conf_error *err)
{
	unsigned nfiles = 0;
	struct parser p = {
		.c = c,
		.err = err,
		.nfiles = &nfiles,
		.closed = closed,
		.pos = { conf_strdup(c, name), 0 },
	};
	int rc = parse_lines(&p, text, len);

	ASSERT(name && (text || !len) && err);
	return parse_end(&p, rc);
}
