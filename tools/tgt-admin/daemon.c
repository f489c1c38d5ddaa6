/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgt-admin: what is asked of the daemon. */
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "tools/tgt-admin/admin.h"

#define TURN_PAUSE_US 20000
#define TURN_TRIES 3000 /* a minute */

int daemon_port(void)
{
	return g.port >= 0 ? g.port : 0;
}

void daemon_turn(void)
{
	char path[256];
	int fd = -1; /* never closed: the turn is over when the program is */

	if (!g.pretend && !adm_socket_path(path, sizeof(path), daemon_port(), ".admin.lock"))
		fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	/* without a folder for it there is no daemon, either */
	for (unsigned i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB); i++) {
		if (errno != EWOULDBLOCK || i == TURN_TRIES) {
			fprintf(stderr, "tgt-admin: %s: %s: going on beside another tgt-admin\n",
				path, strerror(errno));
			return;
		}
		usleep(TURN_PAUSE_US);
	}
}

/* Ends the program when there is no daemon. */
void daemon_call(const struct adm_req *req, struct adm_reply *reply)
{
	int err;

	g.client.port = daemon_port();
	err = adm_call(&g.client, req, reply);
	if (!err)
		return;
	if (err == -ENOTCONN)
		fprintf(stderr, "tgt-admin: no tgtd answers on control port %d\n", daemon_port());
	else if (err == -ECONNRESET)
		fprintf(stderr, "tgt-admin: outcome unknown: tgtd has not answered, and may have "
				"done it or not\n");
	else
		fprintf(stderr, "tgt-admin: %s\n", strerror(-err));
	exit(err == -ENOTCONN || err == -ECONNRESET ? -err : EINVAL);
}

static char *ask(enum adm_mode mode, enum adm_op op, const char *name, bool json)
{
	struct adm_req req;
	struct adm_reply reply;
	char *text;

	adm_req_init(&req, mode, op);
	req.text[ADM_T_NAME] = name;
	req.json = json;
	daemon_call(&req, &reply);
	if (reply.status != ADM_OK) {
		fprintf(stderr, "tgt-admin: %s%s%s\n", adm_status_text(reply.status),
			*reply.detail ? ": " : "", reply.detail);
		exit(EINVAL);
	}
	for (char *line = strtok(reply.detail, "\n"); line; line = strtok(NULL, "\n"))
		fprintf(stderr, "warning: %s\n", line);
	text = strdup(reply.text);
	adm_reply_free(&reply);
	if (!text)
		exit(ENOMEM);
	return text;
}

int daemon_print(enum adm_mode mode, const char *name, bool json)
{
	char *text = ask(mode, ADM_SHOW, name, json);

	fputs(text, stdout);
	free(text);
	adm_disconnect(&g.client);
	return fflush(stdout) ? EIO : 0;
}

/* How large the daemon takes each store to be, for file_sizes(). */
static void load_sizes(void)
{
	char *text = ask(ADM_SYSTEM, ADM_SHOW, "stores", false);

	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		unsigned tid, lun, block;
		unsigned long long size;
		struct conf_target *t;
		struct conf_lu *lu;

		if (sscanf(line, "%u %u %llu %u", &tid, &lun, &size, &block) != 4)
			continue;
		t = conf_find_tid(&g.have, tid);
		lu = t ? conf_find_lun(t, lun) : NULL;
		if (!lu || !store_is_file(lu) || !block)
			continue;
		lu->size = size;
		lu->block = block;
	}
	free(text);
}

/* All that there are: the configuration names them only when somebody has set them. Newest first,
 * here as there. */
static void load_portals(void)
{
	char *text = ask(ADM_PORTAL, ADM_SHOW, NULL, false);

	list_init(&g.have.portals);
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		if (!strncmp(line, "Portal: ", 8))
			conf_add_kv(&g.have, &g.have.portals, line + 8, "");
	free(text);
}

/* --pretend: what can be told without a daemon is told. */
static bool nobody_answers(void)
{
	int err;

	g.client.port = daemon_port();
	err = g.pretend ? adm_connect(&g.client, g.client.port) : 0;
	if (!err)
		return false;
	fprintf(stderr, "tgt-admin: no tgtd answers on control port %d: only the file is checked\n",
		daemon_port());
	return true;
}

void daemon_load(void)
{
	char *text, *accounts;
	struct conf_error err;

	conf_init(&g.have);
	g.no_daemon = nobody_answers();
	if (g.no_daemon)
		return;
	text = ask(ADM_SYSTEM, ADM_SHOW, "config", false);
	if (conf_parse_text(&g.have, "daemon", text, strlen(text), true, &err)) {
		fprintf(stderr, "tgt-admin: the daemon's answer is not understood: %s\n", err.text);
		exit(EINVAL);
	}
	conf_resolve(&g.have);
	free(text);
	load_sizes();
	load_portals();
	accounts = ask(ADM_ACCOUNT, ADM_SHOW, NULL, false);
	for (char *line = strtok(accounts, "\n"); line; line = strtok(NULL, "\n"))
		/* lines that are further in tell more of the account before them */
		if (!strncmp(line, "    ", 4) && strncmp(line + 4, "    ", 4))
			conf_add_kv(&g.have, &g.have.accounts, line + 4, "");
	free(accounts);
}

/* Where the daemon says that the password of @user is kept; NULL: it does not say. */
static const char *known_file(const char *user)
{
	const struct conf_target *t;
	const struct conf_user *u;

	list_for_each(u, &g.have.loose, link)
		if (!strcmp(u->user, user))
			return u->file;
	list_for_each(u, &g.have.users, link)
		if (!strcmp(u->user, user))
			return u->file;
	list_for_each(t, &g.have.targets, link)
		list_for_each(u, &t->users, link)
			if (!strcmp(u->user, user))
				return u->file;
	return NULL;
}

static bool same_file(const struct conf_user *u)
{
	const char *known = known_file(u->user);

	return known && u->file ? !strcmp(known, u->file) : known == u->file;
}

/* Marks accounts whose password, or the file that it is kept in, is another than the file's. The
 * daemon tells no password, but whether one is right. */
static void compare_passwords(const struct list *users)
{
	struct conf_kv *account;
	struct conf_user *u;

	list_for_each(u, users, link) {
		list_for_each(account, &g.have.accounts, link) {
			struct adm_req req;
			struct adm_reply reply;

			if (strcmp(account->key, u->user) || !u->password)
				continue;
			adm_req_init(&req, ADM_ACCOUNT, ADM_SHOW);
			req.text[ADM_T_USER] = u->user;
			req.text[ADM_T_PASSWORD] = u->password;
			daemon_call(&req, &reply);
			if (reply.status == ADM_OK && (!*reply.text || !same_file(u)))
				account->value = CONF_STALE;
			adm_reply_free(&reply);
		}
	}
}

void daemon_compare_passwords(void)
{
	struct conf_target *t;

	compare_passwords(&g.want.users);
	compare_passwords(&g.want.loose);
	list_for_each(t, &g.want.targets, link)
		compare_passwords(&t->users);
}

/* Does anybody use this target? */
bool daemon_target_in_use(uint32_t tid)
{
	struct adm_req req;
	struct adm_reply reply;
	bool any;

	adm_req_init(&req, ADM_CONN, ADM_SHOW);
	req.tid = tid;
	req.has_tid = true;
	daemon_call(&req, &reply);
	any = reply.status == ADM_OK && *reply.text;
	adm_reply_free(&reply);
	return any;
}
