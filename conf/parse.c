/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * targets.conf: lines of `key value`, blocks `<name argument>` ... `</name>`, `include` with globs.
 *
 *     file:    global-line | include | <target IQN> target </target>
 *              | <cluster NAME> line... </cluster>
 *     target:  line | include | <backing-store PATH> line... </backing-store> | <direct-store ...>
 *
 * '#' starts a comment, unless a '\' stands before it; a '\' at the end of a line joins the next
 * one; quotes around a value are taken off. Blocks of the same target merge. As tgt's files may
 * have it: comments from slash-asterisk at the start of a line, or at the end of one; `Include`; a
 * byte order mark.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/parse_int.h"
#include "events/bug.h"
#include "events/secret.h"

#define MAX_DEPTH 16
#define MAX_FILE (16u << 20)
#define MAX_FILES 10000
#define MAX_LINE 8192

/* ---- blocks ---------------------------------------------------------------------------------- */

static int block_begin(struct parser *p, const char *name, char *arg)
{
	if (p->lu)
		return parse_fail(p, "<%s> inside of a store", name);
	if (p->cluster)
		return parse_fail(p, "<%s> inside of a cluster", name);
	if (!strcmp(name, "cluster"))
		return parse_cluster_begin(p, arg);
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
		return parse_lu_add(p, arg, *name == 'd', &p->lu);
	}
	char hint[160];

	conf_hint(name, CONF_IS_BLOCK, hint, sizeof(hint));
	return parse_fail(p, "unknown block <%s>%s", name, hint);
}

static int block_end(struct parser *p, const char *name)
{
	const char *open = p->lu      ? (p->lu->direct ? "direct-store" : "backing-store") :
			   p->target  ? "target" :
			   p->cluster ? "cluster" :
					NULL;

	if (!open || strcasecmp(open, name))
		return parse_fail(p, "</%s> closes nothing%s%s%s", name, open ? ", <" : "",
				  open ? open : "", open ? "> is open" : "");
	if (p->cluster)
		return parse_cluster_end(p);
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
		return block_end(p, parse_trim(s + 2));
	s = parse_trim(s + 1);
	n = strcspn(s, " \t");
	char *arg = s[n] ? parse_trim(s + n + 1) : s + n;

	s[n] = 0;
	n = strlen(arg);
	if (n >= 2 && *arg == '"' && arg[n - 1] == '"') {
		arg[n - 1] = 0;
		arg++;
	} else if (*arg == '"') {
		return parse_fail(p, "the quote before %s is not closed", arg + 1);
	}
	return block_begin(p, s, arg);
}

/* ---- files ----------------------------------------------------------------------------------- */

static int parse_file(struct parser *p, const char *path);

/* A directory of snippets may well be empty; no directory, or files of other names, is a mistake,
 * or a file system that is not mounted. */
static void remark_no_match(struct parser *p, const char *pattern)
{
	const char *end = strrchr(pattern, '/');
	char text[2 * PATH_MAX + 80], dir[PATH_MAX];
	struct dirent *entry = NULL;
	DIR *d;

	snprintf(dir, sizeof(dir), "%.*s", end ? (int)(end - pattern) + 1 : 1,
		 end ? pattern : ".");
	if (strpbrk(dir, "*?["))
		return; /* which of the directories it may be, nobody can tell */
	d = opendir(dir);
	while (d && (entry = readdir(d)) && *entry->d_name == '.')
		;
	if (!d)
		snprintf(text, sizeof(text), "include %s: there is no folder %s", pattern, dir);
	else if (entry)
		snprintf(text, sizeof(text), "include %s: no file in that folder matches",
			 pattern);
	if (!d || entry)
		conf_add_kv(p->c, &p->c->remarks, text, "")->pos = p->pos;
	if (d)
		closedir(d);
}

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
		if (!strpbrk(pattern, "*?["))
			return parse_fail(p, "cannot include %s: no such file", pattern);
		remark_no_match(p, pattern);
		return 0;
	default:
		return parse_fail(p, "cannot include %s", pattern);
	}
	for (size_t i = 0; i < found.gl_pathc && !err; i++) {
		struct parser inner = *p;

		inner.depth++;
		err = parse_file(&inner, found.gl_pathv[i]);
		if (!err && (inner.target != p->target || inner.lu != p->lu ||
			     inner.cluster != p->cluster))
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
	value = parse_trim(value);
	s[n] = 0;
	if (!parse_unquote(&value) && *value == '"')
		return parse_fail(p, "the quote before %s is not closed", value + 1);
	if (!*s)
		return parse_fail(p, "a line begins with '='");
	if (!*value)
		return parse_fail(p, "option %s has a missing value", s);
	if (p->cluster)
		return parse_cluster_line(p, s, value);
	if (!strcasecmp(s, "include"))
		return include(p, value);
	if (p->lu) {
		enum conf_kind kind = conf_kind(s);

		if (kind == CONF_UNKNOWN || kind == CONF_KEY || kind == CONF_SYSTEM)
			return parse_unknown(p, s, CONF_IN_STORE);
		return parse_lu_option(p, &p->lu->options, s, value);
	}
	return p->target ? parse_target_line(p, s, value) : parse_global_line(p, s, value);
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
		char *s = parse_trim(line);

		/* the other spelling of include */
		if (!strncasecmp(s, "<<include", 9) && strlen(s) > 11 &&
		    !strcmp(s + strlen(s) - 2, ">>")) {
			s[strlen(s) - 2] = 0;
			err = include(p, parse_trim(s + 9));
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
	if (!err && p->cluster)
		err = parse_fail(p,
				 "the file ends inside of <cluster %s> of line %u: </cluster> is "
				 "missing",
				 p->c->cluster, p->c->cluster_pos.line);
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
