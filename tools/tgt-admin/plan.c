/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgt-admin: which stores may be used, and the steps of a plan: checked,
 * then made one after the other. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/tgt-admin/admin.h"

void store_identify(void *arg, const char *path, char *out, size_t len)
{
	struct stat st;

	if (stat(path, &st))
		snprintf(out, len, "%s", path);
	else if (S_ISBLK(st.st_mode))
		snprintf(out, len, "disk %llu", (unsigned long long)st.st_rdev);
	else
		snprintf(out, len, "file %llu %llu", (unsigned long long)st.st_dev,
			 (unsigned long long)st.st_ino);
}

bool target_in_use(void *arg, uint32_t tid)
{
	return !g.no_daemon && daemon_target_in_use(tid);
}

static void say_skipping(const char *path, void (*say)(void *say_arg, const char *note),
			 void *say_arg)
{
	char text[4200];

	snprintf(text, sizeof(text), "Skipping device %s - it is in use.", path);
	say(say_arg, text);
	say(say_arg, "You can override it with --force or 'allow-in-use yes' config option.");
	say(say_arg, "Note - do so only if you know what you're doing, you may damage your data.");
}

bool store_usable(void *arg, const struct conf_lu *lu, bool taken,
		  void (*say)(void *say_arg, const char *note), void *say_arg)
{
	const char *in_use_too = conf_get(&lu->options, "allow-in-use");
	const char *path = conf_lu_path(lu);
	char text[4200];
	struct stat st;
	int fd;

	if (!store_is_file(lu) || conf_has_no_medium(lu))
		return true;
	if (stat(path, &st) || S_ISDIR(st.st_mode)) {
		snprintf(text, sizeof(text), "Skipping device: %s", path);
		say(say_arg, text);
		snprintf(text, sizeof(text),
			 "%s does not exist - please check the configuration file", path);
		say(say_arg, text);
		return false;
	}
	if (g.force || (in_use_too && !strcmp(in_use_too, "yes")))
		return true;
	if (taken) {
		snprintf(text, sizeof(text), "Device %s is used (already tgtd target?).", path);
		say(say_arg, text);
		say_skipping(path, say, say_arg);
		return false;
	}
	/* for a block device O_EXCL asks the kernel whether it is mounted,
	 * swapped on, in an array ... */
	fd = S_ISBLK(st.st_mode) ? open(path, O_RDONLY | O_EXCL | O_CLOEXEC) : -2;
	if (fd == -1 && errno == EBUSY) {
		snprintf(text, sizeof(text),
			 "Device %s is used by the system (mounted, used by swap?).", path);
		say(say_arg, text);
		say_skipping(path, say, say_arg);
		return false;
	}
	if (fd >= 0)
		close(fd);
	return true;
}

/* ---- checking -------------------------------------------------------------------------------- */

/* Of what was done, but not quite as the file says it. */
static void say_warnings(const struct conf_step *step, char *lines)
{
	for (char *line = strtok(lines, "\n"); line; line = strtok(NULL, "\n")) {
		fputs("tgt-admin: ", stderr);
		if (step->pos.file)
			fprintf(stderr, "%s:%u: ", step->pos.file, step->pos.line);
		fprintf(stderr, "warning: %s\n", line);
	}
}

/* Would the daemon refuse any of it for what it says? All of that is told,
 * and then nothing is begun. */
static int check(struct list *steps)
{
	struct adm_reply reply;
	struct conf_step *s;
	unsigned faults = 0;

	list_for_each(s, steps, link) {
		struct adm_req req = s->req;

		if (s->note)
			continue;
		req.check = true;
		daemon_call(&req, &reply);
		if (reply.status != ADM_OK) {
			fputs("tgt-admin: ", stderr);
			if (s->pos.file)
				fprintf(stderr, "%s:%u: ", s->pos.file, s->pos.line);
			fprintf(stderr, "%s%s%s\n", s->target ? s->target : "",
				s->target ? ": " : "",
				*reply.detail ? reply.detail : adm_status_text(reply.status));
			faults++;
		} else if (g.pretend) {
			say_warnings(s, reply.detail);
		}
		adm_reply_free(&reply);
	}
	if (faults)
		fprintf(stderr, "tgt-admin: nothing was changed\n");
	return faults ? EINVAL : 0;
}

/* ---- what cannot be done --------------------------------------------------------------------- */

static void say_in_use(const struct conf_part *part)
{
	if (part->what)
		printf("# Target with tid %u (%s) is in use, %s won't be changed "
		       "without --force.\n",
		       part->tid, part->target, part->what);
	else
		printf("# Target with tid %u (%s) is in use, it won't be deleted.\n", part->tid,
		       part->target);
	fflush(stdout);
}

/* A part that it needs and that is not made, or is not going to be. */
static const struct conf_part *missing(const struct conf_part *part)
{
	const struct conf_need *n;

	list_for_each(n, &part->needs, link)
		if (n->part->left || n->part->refused)
			return n->part;
	return NULL;
}

/* What sessions would feel is left, and with it whatever needs that: told before anything is
 * changed, so that nothing is taken down for what cannot come. */
static void find_impossible(struct list *steps)
{
	bool again = !g.force;
	struct conf_step *s;

	for (; again;) {
		again = false;
		list_for_each(s, steps, link) {
			struct conf_part *part = s->part;

			if (!part || part->left)
				continue;
			if (part->kind == CONF_PART_REMOVE && !part->said) {
				part->said = true; /* has been asked about */
				part->left = target_in_use(NULL, part->tid);
				if (part->left)
					say_in_use(part);
			}
			part->because = part->left ? NULL : missing(part);
			part->left |= part->because != NULL;
			again |= part->left;
		}
	}
	list_for_each(s, steps, link)
		if (s->part)
			s->part->said = false;
}

/* ---- doing ----------------------------------------------------------------------------------- */

/* With --force a LUN goes under its sessions, between two of their commands. */
#define BUSY_TRIES 200
#define BUSY_PAUSE_US 50000

static void ask(const struct adm_req *req, struct adm_reply *reply)
{
	for (unsigned i = 0;; i++) {
		daemon_call(req, reply);
		if (reply->status != ADM_LUN_ACTIVE || !g.force || i == BUSY_TRIES)
			return;
		adm_reply_free(reply);
		usleep(BUSY_PAUSE_US);
	}
}

/* Half of it is worse than none. */
static void take_back(struct conf_part *part)
{
	struct adm_reply reply;
	struct adm_req req;

	if (!part->made || (part->kind != CONF_PART_NEW_TARGET && part->kind != CONF_PART_NEW_LU))
		return;
	adm_req_init(&req, part->kind == CONF_PART_NEW_LU ? ADM_LU : ADM_TARGET, ADM_DELETE);
	req.tid = part->tid;
	req.has_tid = true;
	req.lun = part->lun;
	req.has_lun = part->kind == CONF_PART_NEW_LU;
	req.force = part->kind == CONF_PART_NEW_TARGET;
	daemon_call(&req, &reply);
	fprintf(stderr, "tgt-admin: %s%s%s %s\n", part->target, part->what ? ": " : "",
		part->what ? part->what : "",
		reply.status == ADM_OK ? "was half made, and is taken away again" :
					 "is half made, and cannot be taken away again");
	adm_reply_free(&reply);
}

/* What was to go has gone already: an earlier run was ended while the daemon did what it had asked
 * for, or somebody did it by hand. */
static bool is_gone(const struct conf_step *step, enum adm_status status)
{
	switch (status) {
	case ADM_NO_TARGET:
	case ADM_NO_LUN:
	case ADM_NO_USER:
	case ADM_NO_BINDING:
	case ADM_ACL_NOEXIST:
		return step->req.op == ADM_DELETE || step->req.op == ADM_UNBIND;
	default:
		return false;
	}
}

/* What was to come has come already: an earlier run was ended while the daemon did what it had
 * asked for. */
static bool has_come(const struct conf_step *step, enum adm_status status)
{
	return step->req.op == ADM_NEW && (status == ADM_LUN_EXIST || status == ADM_TARGET_EXIST);
}

/* Asks for one step. 0, or the exit status that it deserves; EAGAIN: a new plan is needed. */
static int perform(struct conf_step *step, bool first)
{
	struct conf_part *part = step->part;
	struct adm_reply reply;
	int rc = 0;

	ask(&step->req, &reply);
	if (reply.status == ADM_OK || is_gone(step, reply.status)) {
		if (part)
			part->made |= step->req.op == ADM_NEW;
		say_warnings(step, reply.detail);
	} else if (first && has_come(step, reply.status)) {
		rc = EAGAIN;
	} else if (reply.status == ADM_TARGET_ACTIVE && part && part->kind == CONF_PART_REMOVE) {
		part->left = true; /* somebody has logged in meanwhile */
		say_in_use(part);
	} else {
		if (step->pos.file)
			fprintf(stderr, "tgt-admin: %s:%u:\n", step->pos.file, step->pos.line);
		fprintf(stderr, "tgtadm: %s\n", adm_status_text(reply.status));
		if (*reply.detail)
			fprintf(stderr, "tgtadm: %s\n", reply.detail);
		if (!g.ignore_errors) {
			fputs("Command:\n\t", stdout);
			conf_step_print(step, daemon_port(), stdout);
			printf("exited with code: %d.\n", EINVAL);
			fflush(stdout);
			rc = EINVAL;
		}
	}
	adm_reply_free(&reply);
	return rc;
}

/* Is this step left out? It may be only now that something which it needs was refused. */
static bool leave_out(struct conf_part *part)
{
	if (!part)
		return false;
	if (!part->left && !part->refused) {
		part->because = missing(part);
		part->left = part->because;
	}
	return part->left || part->refused;
}

/* What is left out of the file is said in any case, beside what is printed for scripts. */
static void say_warning(const struct conf_step *s)
{
	fputs("tgt-admin: ", stderr);
	if (s->pos.file)
		fprintf(stderr, "%s:%u: ", s->pos.file, s->pos.line);
	fprintf(stderr, "%s\n", s->note);
}

static void say_part(const struct conf_part *part)
{
	fprintf(stderr, "%s%s%s", part->target ? part->target : "",
		part->target && part->what ? ": " : "", part->what ? part->what : "");
}

/* Which parts were not made. 0, or EXIT_LEFT if there are any. */
static int say_left(const struct list *steps)
{
	struct conf_step *s;
	int rc = 0;

	list_for_each(s, steps, link) {
		struct conf_part *part = s->part;

		if (!part || part->said || !(part->left || part->refused))
			continue;
		part->said = true;
		rc = EXIT_LEFT;
		fputs("tgt-admin: not made: ", stderr);
		say_part(part);
		if (part->because) {
			fputs(": it needs what is in the way: ", stderr);
			say_part(part->because);
			fputc('\n', stderr);
		} else {
			fputs(part->refused ? ": refused\n" : ": in use; --force does it\n",
			      stderr);
		}
	}
	return rc;
}

int plan_execute(struct list *steps, bool strict, bool first)
{
	int rc = g.no_daemon || g.ignore_errors ? 0 : check(steps), err, left;
	bool skipped = false;
	struct conf_step *s;

	if (rc)
		return rc;
	find_impossible(steps);
	list_for_each(s, steps, link) {
		if (leave_out(s->part))
			continue;
		skipped |= s->warning;
		if (s->warning && !g.pretend && !g.verbose)
			say_warning(s);
		if (g.pretend || g.verbose) {
			conf_step_print(s, daemon_port(), stdout);
			fflush(stdout);
		}
		if (g.pretend || s->note)
			continue;
		err = perform(s, first);
		if (!err)
			continue;
		if (err == EAGAIN)
			return EAGAIN;
		rc = err;
		if (s->part) {
			s->part->refused = true;
			take_back(s->part);
		}
	}
	left = say_left(steps);
	if (g.no_daemon)
		return ENOTCONN;
	return rc ? rc : left ? left : skipped && strict ? EXIT_LEFT : 0;
}
