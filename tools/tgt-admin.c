/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgt-admin: makes the daemon what targets.conf says. The file becomes a model, the model is
 * checked as a whole, compared with what the daemon has, and only the differences are asked for:
 * sessions of what does not change go on. Options are those of tgt's tool of the same name.
 */
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <scsi/sg.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/adm_client.h"
#include "conf/diff.h"
#include "conf/model.h"

#define DEFAULT_CONF "/etc/tgt/targets.conf"

static struct {
	const char *conf_file;
	int port; /* -1: not said */
	bool ignore_errors, force, pretend, verbose;
	struct adm_client client;
	struct conf have, want;
} g = { .conf_file = DEFAULT_CONF, .port = -1, .client.fd = -1 };

__attribute__((noreturn)) static void usage(void)
{
	fputs("Usage:\n"
	      "tgt-admin [OPTION]...\n"
	      "This tool configures tgt targets.\n\n"
	      "  -e, --execute              read " DEFAULT_CONF
	      ", add what is new, remove what is gone\n"
	      "      --delete <value>       delete all or selected targets\n"
	      "      --offline <value>      put all or selected targets in offline state\n"
	      "      --ready <value>        put all or selected targets in ready state\n"
	      "      --update <value>       change what differs from the file, in all or selected targets\n"
	      "                             (<value>: ALL, tid=<number> or a target's name;\n"
	      "                             help: says more)\n"
	      "  -s, --show                 show all the targets\n"
	      "  -C, --control-port <NNNN>  specify the control port to connect to\n"
	      "  -c, --conf <conf file>     specify an alternative configuration file\n"
	      "      --ignore-errors        continue even if a request is refused\n"
	      "  -f, --force                also what sessions would feel\n"
	      "  -p, --pretend              only print what would be done, as tgtadm command lines\n"
	      "      --dump                 print the daemon's configuration as a file\n"
	      "  -v, --verbose              print what is done\n"
	      "  -h, --help                 show this help\n\n",
	      stdout);
	exit(0);
}

__attribute__((noreturn)) static void help_value(const char *option)
{
	printf("      --%s <value>\n\n"
	       "Example usage:\n"
	       "      --%s help         - display this help\n"
	       "      --%s ALL          - all targets\n"
	       "      --%s tid=4        - target 4 (target with tid 4)\n"
	       "      --%s iqn.2008-08.com.example:some.target - this target\n\n"
	       "What initiators that are logged in would feel is done with --force only.\n\n",
	       option, option, option, option, option);
	exit(0);
}

/* ---- the daemon ------------------------------------------------------------------------------ */

static int control_port(void)
{
	return g.port >= 0 ? g.port : 0;
}

/* Ends the program when there is no daemon. */
static void call(const struct adm_req *req, struct adm_reply *reply)
{
	int err;

	g.client.port = control_port();
	err = adm_call(&g.client, req, reply);
	if (!err)
		return;
	if (err == -ENOTCONN)
		fprintf(stderr, "tgt-admin: no tgtd answers on control port %d\n", control_port());
	else
		fprintf(stderr, "tgt-admin: %s\n", strerror(-err));
	exit(err == -ENOTCONN ? ENOTCONN : EINVAL);
}

static char *ask(enum adm_mode mode, enum adm_op op, const char *name)
{
	struct adm_req req;
	struct adm_reply reply;
	char *text;

	adm_req_init(&req, mode, op);
	req.text[ADM_T_NAME] = name;
	call(&req, &reply);
	if (reply.status != ADM_OK) {
		fprintf(stderr, "tgt-admin: %s%s%s\n", adm_status_text(reply.status),
			*reply.detail ? ": " : "", reply.detail);
		exit(EINVAL);
	}
	text = strdup(reply.text);
	adm_reply_free(&reply);
	if (!text)
		exit(ENOMEM);
	return text;
}

static int print_answer(enum adm_mode mode, const char *name)
{
	char *text = ask(mode, ADM_SHOW, name);

	fputs(text, stdout);
	free(text);
	adm_disconnect(&g.client);
	return fflush(stdout) ? EIO : 0;
}

static void load_daemon(void)
{
	char *text = ask(ADM_SYSTEM, ADM_SHOW, "config"), *accounts;
	struct conf_error err;

	conf_init(&g.have);
	if (conf_parse_text(&g.have, "daemon", text, strlen(text), true, &err)) {
		fprintf(stderr, "tgt-admin: the daemon's answer is not understood: %s\n", err.text);
		exit(EINVAL);
	}
	conf_resolve(&g.have);
	free(text);
	accounts = ask(ADM_ACCOUNT, ADM_SHOW, NULL);
	for (char *line = strtok(accounts, "\n"); line; line = strtok(NULL, "\n"))
		if (!strncmp(line, "    ", 4))
			conf_add_kv(&g.have, &g.have.accounts, line + 4, "");
	free(accounts);
}

/* Marks accounts whose password is another than the file's. The daemon tells no
 * password, but whether one is right. */
static void compare_passwords(const struct list *users)
{
	struct conf_kv *account;
	struct conf_user *u;

	list_for_each(u, users, link) {
		list_for_each(account, &g.have.accounts, link) {
			struct adm_req req;
			struct adm_reply reply;

			if (strcmp(account->key, u->user))
				continue;
			adm_req_init(&req, ADM_ACCOUNT, ADM_SHOW);
			req.text[ADM_T_USER] = u->user;
			req.text[ADM_T_PASSWORD] = u->password;
			call(&req, &reply);
			if (reply.status == ADM_OK && !*reply.text)
				account->value = CONF_STALE;
			adm_reply_free(&reply);
		}
	}
}

static void compare_all_passwords(void)
{
	struct conf_target *t;

	compare_passwords(&g.want.users);
	list_for_each(t, &g.want.targets, link)
		compare_passwords(&t->users);
}

/* Does anybody use this target? */
static bool in_use(uint32_t tid)
{
	struct adm_req req;
	struct adm_reply reply;
	bool any;

	adm_req_init(&req, ADM_CONN, ADM_SHOW);
	req.tid = tid;
	req.has_tid = true;
	call(&req, &reply);
	any = reply.status == ADM_OK && *reply.text;
	adm_reply_free(&reply);
	return any;
}

/* ---- the file -------------------------------------------------------------------------------- */

static void complain(void *arg, const char *text)
{
	fprintf(stderr, "tgt-admin: %s\n", text);
}

/* A string field of INQUIRY data, without its padding. */
static const char *field(const uint8_t *data, size_t from, size_t len, char *buf)
{
	memcpy(buf, data + from, len);
	buf[len] = 0;
	while (len && (buf[len - 1] == ' ' || !buf[len - 1]))
		buf[--len] = 0;
	while (*buf == ' ')
		buf++;
	return buf;
}

static bool sg_command(int fd, const uint8_t *cdb, uint8_t cdb_len, uint8_t *data, unsigned len)
{
	uint8_t cdb_copy[16], sense[32];
	sg_io_hdr_t io = {
		.interface_id = 'S',
		.dxfer_direction = SG_DXFER_FROM_DEV,
		.cmd_len = cdb_len,
		.mx_sb_len = sizeof(sense),
		.dxfer_len = len,
		.dxferp = data,
		.cmdp = cdb_copy,
		.sbp = sense,
		.timeout = 10000,
	};

	memcpy(cdb_copy, cdb, cdb_len);
	memset(data, 0, len);
	return !ioctl(fd, SG_IO, &io) && !(io.info & SG_INFO_CHECK);
}

static void set_unless(struct conf_lu *lu, const char *key, const char *value)
{
	if (*value && !conf_get(&lu->options, key) && !strchr(value, ','))
		conf_add_kv(&g.want, &lu->options, key, value);
}

static void set_number_unless(struct conf_lu *lu, const char *key, unsigned value)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", value);
	if (value)
		set_unless(lu, key, text);
}

/* A direct-store shows itself as the disk that it is: SPC-4 6.6 (INQUIRY),
 * SBC-4 5.20 (READ CAPACITY). */
static void imitate(struct conf_lu *lu)
{
	static const uint8_t inquiry[] = { 0x12, 0, 0, 0, 96, 0 },
			     serial[] = { 0x12, 1, 0x80, 0, 255, 0 },
			     limits[] = { 0x12, 1, 0xb0, 0, 64, 0 },
			     capacity[] = { 0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0 };
	uint8_t data[256];
	char buf[256];
	int fd = open(lu->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return;
	if (sg_command(fd, inquiry, sizeof(inquiry), data, 96)) {
		set_unless(lu, "vendor_id", field(data, 8, 8, buf));
		set_unless(lu, "product_id", field(data, 16, 16, buf));
		set_unless(lu, "product_rev", field(data, 32, 4, buf));
	}
	if (sg_command(fd, serial, sizeof(serial), data, 255) && data[1] == 0x80 && data[3] <= 36)
		set_unless(lu, "scsi_sn", field(data, 4, data[3], buf));
	if (sg_command(fd, limits, sizeof(limits), data, 64) && data[1] == 0xb0) {
		set_number_unless(lu, "optimal_xfer_gran", (unsigned)data[6] << 8 | data[7]);
		set_number_unless(lu, "optimal_xfer_len",
				  (unsigned)data[12] << 24 | (unsigned)data[13] << 16 |
					  (unsigned)data[14] << 8 | data[15]);
	}
	if (sg_command(fd, capacity, sizeof(capacity), data, 32)) {
		set_number_unless(lu, "lbppbe", data[13] & 0xf);
		set_number_unless(lu, "la_lba", (unsigned)(data[14] & 0x3f) << 8 | data[15]);
		set_number_unless(lu, "block-size",
				  (unsigned)data[8] << 24 | (unsigned)data[9] << 16 |
					  (unsigned)data[10] << 8 | data[11]);
	}
	close(fd);
}

/* The "path" of these is a size. */
static bool is_size_store(const struct conf_lu *lu)
{
	const char *type = conf_get(&lu->options, "bs-type");

	return type && (!strcmp(type, "ram") || !strcmp(type, "null"));
}

/* `allow-in-use yes` also means: by another LU of the daemon. */
static void share(struct conf_lu *lu)
{
	const char *allow = conf_get(&lu->options, "allow-in-use");

	if (allow && !strcmp(allow, "yes") && !conf_get(&lu->options, "bsopts") &&
	    !is_size_store(lu))
		conf_add_kv(&g.want, &lu->options, "bsopts", "share=yes");
}

static void load_file(void)
{
	struct conf_error err;
	struct conf_target *t;
	struct conf_lu *lu;

	conf_init(&g.want);
	if (access(g.conf_file, F_OK)) {
		fprintf(stderr, "Config file %s not found. Exiting...\n", g.conf_file);
		exit(2);
	}
	if (conf_parse_file(&g.want, g.conf_file, &err)) {
		fprintf(stderr, "tgt-admin: %s\n", err.text);
		exit(1);
	}
	if (g.want.control_port >= 0) {
		if (g.port > 0 && g.port != g.want.control_port) {
			fprintf(stderr,
				"tgt-admin: the file says control-port %d, the command line %d\n",
				g.want.control_port, g.port);
			exit(1);
		}
		g.port = g.want.control_port;
	}
	g.ignore_errors |= g.want.ignore_errors;
	conf_resolve(&g.want);
	list_for_each(t, &g.want.targets, link) {
		list_for_each(lu, &t->lus, link) {
			share(lu);
			if (lu->direct)
				imitate(lu);
		}
	}
	/* all or nothing: a fault anywhere, and nothing is changed */
	if (conf_verify(&g.want, complain, NULL))
		exit(1);
}

/* ---- doing ----------------------------------------------------------------------------------- */

static bool used_by_daemon(const char *path)
{
	struct conf_target *t;
	struct conf_lu *lu;

	list_for_each(t, &g.have.targets, link)
		list_for_each(lu, &t->lus, link)
			if (!strcmp(lu->path, path) && !is_size_store(lu))
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

static bool usable(void *arg, const struct conf_lu *lu,
		   void (*say)(void *say_arg, const char *note), void *say_arg)
{
	const char *in_use_too = conf_get(&lu->options, "allow-in-use");
	char text[4200];
	struct stat st;
	int fd;

	if (is_size_store(lu))
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
		call(&req, &reply);
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
		conf_step_print(&shown, control_port(), stderr);
	}
	fprintf(stderr,
		"tgt-admin: run it again when the cause is gone: what is made is not made again\n");
}

/* Asks for one step; notes whether it was made. 0, or the exit status that it deserves. */
static int perform(struct conf_step *step)
{
	struct adm_reply reply;
	int rc = 0;

	call(&step->req, &reply);
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
			conf_step_print(step, control_port(), stdout);
			printf("exited with code: %d.\n", EINVAL);
			rc = EINVAL;
		}
	} else {
		step->made = true;
	}
	adm_reply_free(&reply);
	return rc;
}

/* Runs or prints a plan. */
static int execute(struct list *steps)
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
			skip = looked_at && !g.force && !g.pretend && in_use(s->tid);
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
			conf_step_print(s, control_port(), stdout);
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

/* "tid=N" or a name, among @c. NULL: none. */
static struct conf_target *select_target(const struct conf *c, const char *value)
{
	return strncmp(value, "tid=", 4) ? conf_find_target(c, value) :
					   conf_find_tid(c, (uint32_t)strtoul(value + 4, NULL, 10));
}

static int do_execute(void)
{
	struct conf_scope scope = { .remove = true, .force = g.force, .usable = usable };
	struct list steps = LIST_INIT(steps);

	load_file();
	load_daemon();
	compare_all_passwords();
	conf_diff(&g.have, &g.want, &scope, &steps);
	return execute(&steps);
}

static int do_update(const char *value)
{
	struct conf_scope scope = {
		.update = true, .remove = true, .force = g.force, .usable = usable
	};
	struct list steps = LIST_INIT(steps);

	if (!strcmp(value, "help"))
		help_value("update");
	load_file();
	load_daemon();
	compare_all_passwords();
	if (strcmp(value, "ALL")) {
		struct conf_target *t = select_target(&g.have, value);

		scope.target = t ? t->name : value;
		if (!t && !strncmp(value, "tid=", 4)) {
			printf("There is no target with tid %s, can't continue!\n", value + 4);
			return 1;
		}
		if (!t && !conf_find_target(&g.want, value)) {
			printf("Target %s is currently not configured\n"
			       "and does not exist in the config file - can't continue!\n",
			       value);
			return 1;
		}
	}
	conf_diff(&g.have, &g.want, &scope, &steps);
	return execute(&steps);
}

static int do_delete(const char *value)
{
	struct list steps = LIST_INIT(steps);
	struct conf_target *t;

	if (!strcmp(value, "help"))
		help_value("delete");
	load_daemon();
	if (!strcmp(value, "ALL")) {
		list_for_each(t, &g.have.targets, link)
			conf_plan_delete(&g.have, t, g.force, &steps);
		return execute(&steps);
	}
	t = select_target(&g.have, value);
	if (!t) {
		if (g.verbose || g.pretend)
			printf(strncmp(value, "tid=", 4) ?
				       "# Target with name %s does not exist!\n" :
				       "# Target with tid %s does not exist!\n",
			       strncmp(value, "tid=", 4) ? value : value + 4);
		return 0;
	}
	conf_plan_delete(&g.have, t, g.force, &steps);
	return execute(&steps);
}

static void state_step(const struct conf_target *t, const char *state, struct list *steps)
{
	struct conf_step *s = conf_alloc(&g.have, sizeof(*s));

	list_init(&s->link);
	adm_req_init(&s->req, ADM_TARGET, ADM_UPDATE);
	s->req.has_tid = true;
	s->req.tid = s->tid = t->tid;
	s->req.text[ADM_T_NAME] = "state";
	s->req.text[ADM_T_VALUE] = state;
	s->target = t->name;
	list_add_tail(steps, &s->link);
}

static int do_state(const char *value, const char *state)
{
	struct list steps = LIST_INIT(steps);
	struct conf_target *t;

	if (!strcmp(value, "help"))
		help_value(state);
	load_daemon();
	if (!strcmp(value, "ALL")) {
		list_for_each(t, &g.have.targets, link)
			state_step(t, state, &steps);
		return execute(&steps);
	}
	t = select_target(&g.have, value);
	if (!t) {
		printf("There is no target with name \"%s\", can't %s it!\n", value, state);
		return 1;
	}
	state_step(t, state, &steps);
	return execute(&steps);
}

enum { OPT_DELETE = 256, OPT_OFFLINE, OPT_READY, OPT_UPDATE, OPT_IGNORE, OPT_DUMP };

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "execute", no_argument, NULL, 'e' },
		{ "delete", required_argument, NULL, OPT_DELETE },
		{ "offline", required_argument, NULL, OPT_OFFLINE },
		{ "ready", required_argument, NULL, OPT_READY },
		{ "update", required_argument, NULL, OPT_UPDATE },
		{ "show", no_argument, NULL, 's' },
		{ "conf", required_argument, NULL, 'c' },
		{ "ignore-errors", no_argument, NULL, OPT_IGNORE },
		{ "force", no_argument, NULL, 'f' },
		{ "pretend", no_argument, NULL, 'p' },
		{ "dump", no_argument, NULL, OPT_DUMP },
		{ "verbose", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ "control-port", required_argument, NULL, 'C' },
		{ NULL, 0, NULL, 0 },
	};
	int ch, action = 0;
	const char *value = NULL;
	char *end;

	while ((ch = getopt_long(argc, argv, "esc:fpvhC:", options, NULL)) >= 0) {
		switch (ch) {
		case 'e':
		case 's':
		case OPT_DELETE:
		case OPT_OFFLINE:
		case OPT_READY:
		case OPT_UPDATE:
		case OPT_DUMP:
			if (action && action != ch) {
				fprintf(stderr, "tgt-admin: one action at a time\n");
				return 1;
			}
			action = ch;
			value = optarg;
			break;
		case 'c':
			g.conf_file = optarg;
			break;
		case OPT_IGNORE:
			g.ignore_errors = true;
			break;
		case 'f':
			g.force = true;
			break;
		case 'p':
			g.pretend = g.verbose = true;
			break;
		case 'v':
			g.verbose = true;
			break;
		case 'C':
			g.port = (int)strtol(optarg, &end, 10);
			if (*end || end == optarg || g.port < 0 || g.port > INT16_MAX) {
				fprintf(stderr, "tgt-admin: '%s' is not a control port\n", optarg);
				return 1;
			}
			break;
		case 'h':
			usage();
		default:
			/* getopt has said what is wrong: that should not scroll away */
			fputs("Try `tgt-admin --help' for more information.\n", stderr);
			exit(1);
		}
	}
	if (optind < argc) {
		fprintf(stderr, "tgt-admin: unexpected argument '%s'\n", argv[optind]);
		return 1;
	}
	if (argc == 1)
		usage();
	switch (action) {
	case 'e':
		return do_execute();
	case 's':
		return print_answer(ADM_TARGET, NULL);
	case OPT_DUMP:
		return print_answer(ADM_SYSTEM, "config");
	case OPT_DELETE:
		return do_delete(value);
	case OPT_UPDATE:
		return do_update(value);
	case OPT_OFFLINE:
		return do_state(value, "offline");
	case OPT_READY:
		return do_state(value, "ready");
	default:
		printf("No action specified.\n");
		return 0;
	}
}
