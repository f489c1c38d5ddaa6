/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgt-admin: which stores may be used, and the steps of a plan: checked,
 * then made one after the other. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/tgt-admin/admin.h"

static bool used_by_daemon(const char *path)
{
	struct conf_target *t;
	struct conf_lu *lu;

	list_for_each(t, &g.have.targets, link)
		list_for_each(lu, &t->lus, link)
			if (!strcmp(lu->path, path) && !store_is_size(lu))
				return true;
	return false;
}

/* Or by another new LUN of the file? The first one gets it. */
static bool taken(const char *path)
{
	static struct list paths = LIST_INIT(paths);
	struct conf_kv *kv;

	list_for_each(kv, &paths, link)
		if (!strcmp(kv->key, path))
			return true;
	conf_add_kv(&g.want, &paths, path, "");
	return false;
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

bool store_usable(void *arg, const struct conf_lu *lu,
		   void (*say)(void *say_arg, const char *note), void *say_arg)
{
	const char *in_use_too = conf_get(&lu->options, "allow-in-use");
	char text[4200];
	struct stat st;
	int fd;

	if (store_is_size(lu))
		return true;
	if (stat(lu->path, &st) || S_ISDIR(st.st_mode)) {
		snprintf(text, sizeof(text), "Skipping device: %s", lu->path);
		say(say_arg, text);
		snprintf(text, sizeof(text),
			 "%s does not exist - please check the configuration file", lu->path);
		say(say_arg, text);
		return false;
	}
	if (g.force || (in_use_too && !strcmp(in_use_too, "yes")))
		return true;
	if (used_by_daemon(lu->path) || taken(lu->path)) {
		snprintf(text, sizeof(text), "Device %s is used (already tgtd target?).", lu->path);
		say(say_arg, text);
		say_skipping(lu->path, say, say_arg);
		return false;
	}
	/* for a block device O_EXCL asks the kernel whether it is mounted,
	 * swapped on, in an array ... */
	fd = S_ISBLK(st.st_mode) ? open(lu->path, O_RDONLY | O_EXCL | O_CLOEXEC) : -2;
	if (fd == -1 && errno == EBUSY) {
		snprintf(text, sizeof(text),
			 "Device %s is used by the system (mounted, used by swap?).", lu->path);
		say(say_arg, text);
		say_skipping(lu->path, say, say_arg);
		return false;
	}
	if (fd >= 0)
		close(fd);
	return true;
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
		}
		adm_reply_free(&reply);
	}
	if (faults)
		fprintf(stderr, "tgt-admin: nothing was changed\n");
	return faults ? EINVAL : 0;
}

/* What stands after a refusal in the middle. */
static void say_made(const struct list *steps, const struct conf_step *refused, unsigned made)
{
	const struct conf_step *s;
	struct conf_step shown;

	if (!made) {
		fprintf(stderr, "tgt-admin: nothing was changed\n");
		return;
	}
	fprintf(stderr,
		"tgt-admin: stopped there; these %u requests were made before and stay in force:\n",
		made);
	list_for_each(s, steps, link) {
		if (s == refused)
			break;
		if (s->note || !s->made)
			continue;
		fputc('\t', stderr);
		shown = *s;
		if (shown.req.text[ADM_T_PASSWORD])
			shown.req.text[ADM_T_PASSWORD] = "***";
		conf_step_print(&shown, daemon_port(), stderr);
	}
	fprintf(stderr,
		"tgt-admin: run it again when the cause is gone: what is made is not made again\n");
}

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

/* Asks for one step; notes whether it was made. 0, or the exit status that it deserves. */
static int perform(struct conf_step *step)
{
	struct adm_reply reply;
	int rc = 0;

	daemon_call(&step->req, &reply);
	if (reply.status == ADM_TARGET_ACTIVE && step->req.mode == ADM_TARGET &&
	    step->req.op == ADM_DELETE) {
		printf("# Target with tid %u (%s) is in use, it won't be deleted.\n", step->tid,
		       step->target);
	} else if (reply.status != ADM_OK) {
		if (step->pos.file)
			fprintf(stderr, "tgt-admin: %s:%u:\n", step->pos.file, step->pos.line);
		fprintf(stderr, "tgtadm: %s\n", adm_status_text(reply.status));
		if (*reply.detail)
			fprintf(stderr, "tgtadm: %s\n", reply.detail);
		if (!g.ignore_errors) {
			fputs("Command:\n\t", stdout);
			conf_step_print(step, daemon_port(), stdout);
			printf("exited with code: %d.\n", EINVAL);
			rc = EINVAL;
		}
	} else {
		step->made = true;
		say_warnings(step, reply.detail);
	}
	adm_reply_free(&reply);
	return rc;
}

/* Runs or prints a plan. */
int plan_execute(struct list *steps)
{
	unsigned looked_at = 0, made = 0;
	bool skip = false;
	struct conf_step *s;
	int rc = g.pretend || g.ignore_errors ? 0 : check(steps);

	if (rc)
		return rc;

	list_for_each(s, steps, link) {
		if (s->disruptive != looked_at) {
			looked_at = s->disruptive;
			skip = looked_at && !g.force && !g.pretend && daemon_target_in_use(s->tid);
			if (skip)
				printf("# Target with tid %u (%s) is in use, %s won't be changed "
				       "without --force.\n",
				       s->tid, s->target, s->what);
		}
		if (skip)
			continue;
		/* what is left out is said in any case, beside what is printed for scripts */
		if (s->warning && !g.pretend && !g.verbose) {
			fputs("tgt-admin: ", stderr);
			if (s->pos.file)
				fprintf(stderr, "%s:%u: ", s->pos.file, s->pos.line);
			fprintf(stderr, "%s\n", s->note);
		}
		if (g.pretend || g.verbose) {
			conf_step_print(s, daemon_port(), stdout);
			fflush(stdout);
		}
		if (!g.pretend && !s->note) {
			rc = perform(s);
			if (rc) {
				say_made(steps, s, made);
				break;
			}
			made += s->made;
		}
	}
	return rc;
}
