/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The admin socket: who may speak, how much and how slowly. A client has one request under way; it
 * is read completely (a header says how long it is), run, and answered; then the next one may come.
 *
 *     READING --complete--> RUNNING --adm_call_done()--> WRITING --sent--> READING
 *
 * A client that stops in the middle of a request or of taking its answer is dropped after
 * STALL_TIMEOUT; a silent one after IDLE_TIMEOUT. One that waits for a slow operation is not.
 */
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "events/bug.h"
#include "events/kept.h"
#include "events/log.h"
#include "events/report.h"
#include "events/secret.h"
#include "tgtd/admin/admin_int.h"
#include "tgtd/isns/isns.h"

#define MAX_CLIENTS 64
#define BACKLOG 128
#define MAX_ONLOOKERS 16
#define STALL_TIMEOUT (10 * NSEC_PER_SEC)
#define IDLE_TIMEOUT (60 * NSEC_PER_SEC)
#define ACCEPT_RETRY (100 * NSEC_PER_MSEC)

enum peer { PEER_STRANGER, PEER_ONLOOKER, PEER_ADMIN };

struct adm_client {
	struct loop_fd lfd;
	struct timer timer;
	struct list link;
	enum { READING, RUNNING, WRITING } state;
	uint8_t head[ADM_REQ_HEADER];
	uint32_t have, want; /* bytes of the header and fields */
	uint8_t *fields;       /* secret.h: a password may be in it */
	size_t fields_size;
	int file;	       /* that came with it, or -1 */
	struct adm_call *call; /* RUNNING, WRITING */
	uint8_t rsp[ADM_RSP_HEADER];
	size_t sent;
	bool onlooker; /* may look, and change nothing */
	bool holds; /* stays open until admin_stop(): waits for the daemon's end */
};

static struct {
	struct loop_fd listener;
	struct list clients;
	unsigned nclients;
	int lock_fd;
	char lock_key[24];
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	kept_key key;	/* of the listener */
	gid_t ro_group; /* with has_ro_group */
	bool has_ro_group;
	unsigned nonlookers;
	struct loop_deferred leave;
	struct timer retry; /* accept() failed */
	struct server_calls calls; /* what answers requests */
} server = { .listener.fd = -1, .lock_fd = -1 };

/* ---- clients --------------------------------------------------------------------------------- */

static void file_drop(int *file)
{
	if (*file >= 0)
		close(*file);
	*file = -1;
}

static void call_free(struct adm_call *call)
{
	file_drop(&call->file);
	ASSERT(call->done && !list_linked(&call->wait));
	out_free(&call->out);
	secret_free(call->fields, call->fields_size);
	free(call);
}

static void listener_arm(bool on)
{
	if (server.listener.loop && !(on && adm.restarting))
		loop_fd_modify(&server.listener, on ? EPOLLIN : 0);
}

static void client_close(struct adm_client *c)
{
	ASSERT(server.nclients && server.nclients <= MAX_CLIENTS);
	loop_fd_del(&c->lfd);
	loop_timer_cancel(adm.conf.main, &c->timer);
	close(c->lfd.fd);
	list_del(&c->link);
	server.nonlookers -= c->onlooker;
	secret_free(c->fields, c->fields_size);
	file_drop(&c->file);
	if (c->call) {
		/* work under way goes on; its answer has nowhere to go */
		c->call->client = NULL;
		if (c->call->watcher) {
			server.calls.gone(c->call);
			c->call->done = true;
		}
		if (c->call->done)
			call_free(c->call);
	}
	free(c);
	if (server.nclients-- == MAX_CLIENTS)
		listener_arm(true);
}

static void client_timeout(struct timer *timer)
{
	struct adm_client *c = container_of(timer, struct adm_client, timer);

	if (c->state != READING || c->have)
		log_notice("admin: a client stalled in the middle of a %s, closing it",
			   c->state == READING ? "request" : "answer");
	client_close(c);
}

/* What it asks for is the next worker's: a client whose request nobody has read asks again. */
static void client_is_left(struct adm_client *c)
{
	loop_timer_cancel(adm.conf.main, &c->timer);
	loop_fd_modify(&c->lfd, 0);
}

static void client_reads(struct adm_client *c)
{
	ASSERT(!c->call && !c->fields && !c->holds);
	c->state = READING;
	c->have = 0;
	c->want = ADM_REQ_HEADER;
	if (adm.restarting) {
		client_is_left(c);
		return;
	}
	loop_timer_arm(adm.conf.main, &c->timer, IDLE_TIMEOUT);
	loop_fd_modify(&c->lfd, EPOLLIN);
}

/* A request is complete. */
static void client_runs(struct adm_client *c)
{
	struct adm_call *call = calloc(1, sizeof(*call));

	ASSERT(c->state == READING && c->have == c->want && !c->call);
	if (!call || adm_req_decode(&call->req, c->fields, c->want - ADM_REQ_HEADER)) {
		log_notice("admin: a request that cannot be understood, closing the client");
		free(call);
		client_close(c);
		return;
	}
	call->fields = c->fields;
	call->fields_size = c->fields_size;
	call->onlooker = c->onlooker;
	call->file = c->file;
	c->file = -1;
	c->fields = NULL;
	call->client = c;
	list_init(&call->wait);
	c->call = call;
	c->state = RUNNING;
	loop_timer_cancel(adm.conf.main, &c->timer);
	loop_fd_modify(&c->lfd, 0);
	/* may free c: nothing after this touches it */
	adm_call_run(call);
}

/* A request may bring a descriptor, one. */
static ssize_t receive(struct adm_client *c, void *at, size_t len)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { at, len };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(c->lfd.fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *cm = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;

	if (cm && cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_RIGHTS &&
	    cm->cmsg_len == CMSG_LEN(sizeof(int))) {
		file_drop(&c->file);
		memcpy(&c->file, CMSG_DATA(cm), sizeof(c->file));
	}
	return n;
}

static void client_read(struct adm_client *c)
{
	for (;;) {
		uint8_t *at = c->have < ADM_REQ_HEADER ? c->head + c->have :
							 c->fields + (c->have - ADM_REQ_HEADER);
		ssize_t n = receive(c, at, c->want - c->have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			client_close(c);
			return;
		}
		if (!c->have)
			loop_timer_arm(adm.conf.main, &c->timer, STALL_TIMEOUT);
		c->have += (uint32_t)n;
		if (c->have < c->want)
			continue;
		if (c->want == ADM_REQ_HEADER) {
			int len = adm_req_header(c->head);

			/* one byte more, so that a request without fields has a buffer too */
			c->fields_size = len < 0 ? 0 : (size_t)len + 1;
			c->fields = len < 0 ? NULL : secret_alloc(c->fields_size);
			if (!c->fields) {
				log_notice("admin: not our protocol, closing the client");
				client_close(c);
				return;
			}
			c->want += (uint32_t)len;
			if (len)
				continue;
		}
		client_runs(c);
		return;
	}
}

/* What an administrator has changed, for those who watch. No secret is among these texts. */
static void report_change(const struct adm_call *call)
{
	static const uint8_t texts[] = { ADM_T_TARGETNAME, ADM_T_NAME,	 ADM_T_VALUE,
					 ADM_T_PATH,	   ADM_T_PARAMS, ADM_T_EXPOSE,
					 ADM_T_USER };
	const struct adm_req *req = &call->req;
	struct report r;
	size_t n = 0;

	if (!reports_wanted() || req->check || adm_op_looks(req->op))
		return;
	report_init(&r, REPORT_CHANGE);
	r.tid = req->has_tid ? req->tid : REPORT_NONE;
	r.lun = req->has_lun ? (uint32_t)req->lun : REPORT_NONE;
	snprintf(r.what, sizeof(r.what), "%s_%s", adm_mode_name(req->mode), adm_op_name(req->op));
	if (req->text[ADM_T_INITIATOR])
		snprintf(r.initiator, sizeof(r.initiator), "%s", req->text[ADM_T_INITIATOR]);
	if (req->text[ADM_T_ADDRESS])
		snprintf(r.address, sizeof(r.address), "%s", req->text[ADM_T_ADDRESS]);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (req->text[texts[i]] && n < sizeof(r.text))
			n += (size_t)snprintf(r.text + n, sizeof(r.text) - n, "%s%s",
					      n ? " " : "", req->text[texts[i]]);
	report_send(&r);
}

static void server_leave(struct loop_deferred *d)
{
	ASSERT(adm.leaving && (adm.restarting || !adm.ntargets));
	if (adm.restarting)
		adm.conf.request_restart(adm.conf.arg);
	else
		adm.conf.request_shutdown(adm.conf.arg);
}

/* Who waits for the end waits for the keeper's, too: it is given a pidfd of it. */
static void send_keeper(struct adm_client *c)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)),
				.cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS } };
	struct iovec iov = { (char[]){ 0 }, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	int fd = kept_fd() < 0 ? -1 : (int)syscall(SYS_pidfd_open, getppid(), 0);

	if (fd < 0)
		return;
	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	if (sendmsg(c->lfd.fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		log_info("admin: a client cannot wait for the keeper: %m");
	close(fd);
}

static void client_write(struct adm_client *c)
{
	struct adm_call *call = c->call;
	size_t detail_len = strlen(call->detail),
	       total = ADM_RSP_HEADER + call->out.len + detail_len;

	ASSERT(c->state == WRITING && (call->done || call->watcher) && call->client == c &&
	       c->sent < total);
	while (c->sent < total) {
		struct iovec iov[3] = {
			{ c->rsp, ADM_RSP_HEADER },
			{ call->out.buf, call->out.len },
			{ call->detail, detail_len },
		};
		struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 3 };
		size_t skip = c->sent;

		while (skip >= msg.msg_iov->iov_len) {
			skip -= msg.msg_iov->iov_len;
			msg.msg_iov++;
			msg.msg_iovlen--;
		}
		msg.msg_iov->iov_base = (char *)msg.msg_iov->iov_base + skip;
		msg.msg_iov->iov_len -= skip;
		ssize_t n = sendmsg(c->lfd.fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			loop_fd_modify(&c->lfd, EPOLLOUT);
			return;
		}
		if (n < 0) {
			client_close(c);
			return;
		}
		c->sent += (size_t)n;
		if (!call->watcher)
			loop_timer_arm(adm.conf.main, &c->timer, STALL_TIMEOUT);
	}
	if (call->watcher) {
		out_free(&call->out);
		c->state = RUNNING;
		loop_fd_modify(&c->lfd, 0);
		server.calls.pushed(call);
		return;
	}
	c->call = NULL;
	call_free(call);
	if (c->holds) {
		if (!adm.restarting)
			send_keeper(c);
		loop_timer_cancel(adm.conf.main, &c->timer);
		loop_fd_modify(&c->lfd, 0);
		loop_defer(adm.conf.main, &server.leave);
		return;
	}
	client_reads(c);
}

static void client_ready(struct loop_fd *lfd, uint32_t revents)
{
	struct adm_client *c = container_of(lfd, struct adm_client, lfd);

	if (c->state == READING && adm.restarting) {
		if (revents & (EPOLLHUP | EPOLLERR))
			client_close(c);
	} else if (c->state == READING && (revents & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		client_read(c);
	else if (c->state == WRITING && !c->holds)
		client_write(c);
	else if (revents & (EPOLLHUP | EPOLLERR))
		client_close(c);
}

void adm_call_run(struct adm_call *call)
{
	ASSERT_ON_LOOP(adm.conf.main);
	ASSERT(!call->done && !list_linked(&call->wait));
	server.calls.execute(call);
}

/* Whoever comes now waits for the next one. */
static void clients_are_left(void)
{
	struct adm_client *c;

	listener_arm(false);
	list_for_each(c, &server.clients, link)
		if (c->state == READING)
			client_is_left(c);
}

/* @c has asked for the end and stays connected until then. NULL: it has gone. */
static void client_holds(struct adm_client *c)
{
	if (adm.restarting)
		clients_are_left();
	if (!c) {
		loop_defer(adm.conf.main, &server.leave);
		return;
	}
	ASSERT(c->call);
	c->holds = true;
}

void adm_call_done(struct adm_call *call, enum adm_status status)
{
	struct adm_client *c = call->client;

	ASSERT_ON_LOOP(adm.conf.main);
	ASSERT(!call->done && status < ADM_STATUSES);
	ASSERT(!list_linked(&call->wait) && (!c || (c->call == call && c->state == RUNNING)));
	call->done = true;
	if (call->out.failed)
		status = ADM_NOMEM;
	if (server.calls.ended)
		server.calls.ended(call, status);
	if (status != ADM_OK) {
		out_free(&call->out);
		if (status != ADM_NEEDS_FILE)
			log_info("admin: %s %s refused: %s%s%s", adm_mode_name(call->req.mode),
				 adm_op_name(call->req.op), adm_status_text(status),
				 *call->detail ? ": " : "", call->detail);
	} else {
		strcpy(call->detail, call->warnings);
		report_change(call);
	}
	if (status == ADM_OK && !call->req.check &&
	    (call->req.mode == ADM_TARGET || call->req.mode == ADM_PORTAL) &&
	    (call->req.op == ADM_NEW || call->req.op == ADM_DELETE))
		isns_changed();
	if (status == ADM_OK && adm.leaving && call->req.mode == ADM_SYSTEM &&
	    (call->req.op == ADM_DELETE || adm.restarting))
		client_holds(c);
	if (call->ended)
		call->ended(call, status);
	if (!c) {
		call_free(call);
		return;
	}
	adm_rsp_encode(c->rsp, status, (uint32_t)call->out.len, (uint32_t)strlen(call->detail));
	c->state = WRITING;
	c->sent = 0;
	loop_timer_arm(adm.conf.main, &c->timer, STALL_TIMEOUT);
	client_write(c);
}

bool adm_call_push(struct adm_call *call)
{
	struct adm_client *c = call->client;

	ASSERT_ON_LOOP(adm.conf.main);
	ASSERT(call->watcher && !call->done && c);
	if (c->state != RUNNING)
		return false;
	/* (Nobody waits for a watcher: it may be as slow as it likes.) */
	adm_rsp_encode(c->rsp, ADM_OK, (uint32_t)call->out.len, 0);
	c->state = WRITING;
	c->sent = 0;
	client_write(c);
	return true;
}

/* ---- accepting ------------------------------------------------------------------------------- */

static void accept_again(struct timer *timer)
{
	if (server.nclients < MAX_CLIENTS)
		listener_arm(true);
}

#define GROUPS_MAX 65536 /* of one process, by the kernel */

/* Is the peer in the group of those who may look on, first or supplementary? */
static bool in_ro_group(int fd, gid_t first)
{
	socklen_t len = GROUPS_MAX * sizeof(gid_t);
	gid_t *groups;
	bool found = server.has_ro_group && first == server.ro_group;

	if (!server.has_ro_group || found)
		return found;
	groups = malloc(len);
	if (groups && !getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len))
		for (size_t i = 0; i < len / sizeof(gid_t); i++)
			found |= groups[i] == server.ro_group;
	free(groups);
	return found;
}

static enum peer peer_is(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return PEER_STRANGER;
	/* (The right user in another group is another.) */
	if ((cred.uid == 0 && cred.gid == 0) ||
	    (cred.uid == adm.conf.admin_uid && cred.gid == adm.conf.admin_gid))
		return PEER_ADMIN;
	return in_ro_group(fd, cred.gid) ? PEER_ONLOOKER : PEER_STRANGER;
}

/* Onlookers leave room for who administers. */
static bool is_admitted(int fd, enum peer peer)
{
	if (peer == PEER_STRANGER)
		log_ratelimited(LOG_LVL_WARN, "admin: refused a client of another user");
	return !adm.draining && peer != PEER_STRANGER &&
	       !(peer == PEER_ONLOOKER && server.nonlookers >= MAX_ONLOOKERS);
}

static void client_open(int fd, enum peer peer)
{
	struct adm_client *c = calloc(1, sizeof(*c));

	ASSERT(server.nclients < MAX_CLIENTS);
	if (!c) {
		close(fd);
		return;
	}
	c->file = -1;
	c->lfd = (struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = client_ready };
	timer_init(&c->timer, client_timeout);
	if (loop_fd_add(adm.conf.main, &c->lfd)) {
		close(fd);
		free(c);
		return;
	}
	c->onlooker = peer == PEER_ONLOOKER;
	server.nonlookers += c->onlooker;
	list_init(&c->link);
	list_add_tail(&server.clients, &c->link);
	if (++server.nclients == MAX_CLIENTS)
		listener_arm(false);
	client_reads(c);
}

static void server_listener_ready(struct loop_fd *lfd, uint32_t revents)
{
	while (server.nclients < MAX_CLIENTS) {
		int fd = accept4(lfd->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0 && errno == EINTR)
			continue;
		if (fd < 0) {
			if (errno == EAGAIN)
				return;
			if (errno == ECONNABORTED)
				continue;
			/* out of descriptors or memory: level-triggered, so do not spin on it */
			log_ratelimited(LOG_LVL_WARN, "admin: accept: %s", strerror(errno));
			listener_arm(false);
			loop_timer_arm(adm.conf.main, &server.retry, ACCEPT_RETRY);
			return;
		}
		enum peer peer = peer_is(fd);

		if (is_admitted(fd, peer))
			client_open(fd, peer);
		else
			close(fd);
	}
}

/* ---- start and stop -------------------------------------------------------------------------- */

/* What the worker before had locked, if that is the file at @path; or -1. */
static int left_lock(const char *path)
{
	int fd = kept_take(server.lock_key);
	struct stat is, at;

	if (fd < 0 || (!fstat(fd, &is) && !stat(path, &at) && S_ISREG(is.st_mode) &&
		       is.st_dev == at.st_dev && is.st_ino == at.st_ino))
		return fd;
	(void)kept_drop(server.lock_key);
	kept_close(fd);
	return -1;
}

/* One daemon per control port: the lock lives as long as the daemon, or until admin_let_go(). The
 * keeper has it, too: a worker that has died may have its files still, for as long as a store
 * hangs. */
static int take_lock(int port)
{
	char path[256];
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int err = adm_socket_path(path, sizeof(path), port, ".lock");

	if (err)
		return err;
	if (!getenv(ADM_SOCKET_ENV))
		mkdir("/var/run/tgtd", 0755);
	server.lock_fd = left_lock(path);
	if (server.lock_fd < 0)
		server.lock_fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (server.lock_fd < 0) {
		err = -errno;
		log_error("admin: cannot open %s: %s", path, strerror(-err));
		return err;
	}
	if (fcntl(server.lock_fd, F_OFD_SETLK, &lock)) {
		err = errno == EACCES || errno == EAGAIN ? -EADDRINUSE : -errno;
		log_error("admin: another tgtd holds %s", path);
		close(server.lock_fd);
		server.lock_fd = -1;
		return err;
	}
	(void)kept_put(server.lock_key, server.lock_fd); /* (or the next one may have to wait) */
	return 0;
}

/* Whoever has a duplicate has it no more. */
static void drop_lock(void)
{
	struct flock none = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	if (server.lock_fd < 0)
		return;
	(void)fcntl(server.lock_fd, F_OFD_SETLK, &none);
	close(server.lock_fd);
	server.lock_fd = -1;
}

/* The process before left its socket, and who has connected to it meanwhile: -1, or it. Listening
 * again makes its peer credentials ours. */
static int left_socket(const char *key, const char *path)
{
	struct sockaddr_un at = { 0 };
	socklen_t len = sizeof(at) - 1;
	int fd = kept_take(key);
	struct stat st;

	/* (Whoever left it may have gone wrong.) */
	if (fd < 0 || (!getsockname(fd, (struct sockaddr *)&at, &len) &&
		       at.sun_family == AF_UNIX && !strcmp(at.sun_path, path) &&
		       !lstat(path, &st) && S_ISSOCK(st.st_mode) &&
		       !fcntl(fd, F_SETFL, O_NONBLOCK) && !listen(fd, BACKLOG)))
		return fd;
	(void)kept_drop(key);
	kept_close(fd);
	return -1;
}

static int make_socket(const char *key, int port)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int err = adm_socket_path(addr.sun_path, sizeof(addr.sun_path), port, "");

	if (err)
		return err;
	int fd = left_socket(key, addr.sun_path);

	memcpy(server.path, addr.sun_path, sizeof(server.path));
	if (fd >= 0)
		return fd;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	/* the lock is ours: whatever is there is a dead daemon's */
	unlink(addr.sun_path);
	mode_t old = umask(0177);
	int rc = bind(fd, (struct sockaddr *)&addr, sizeof(addr));

	err = -errno;
	umask(old);
	/* Who may connect may not do all: see verbs.c. */
	if (!rc && server.has_ro_group &&
	    (chown(addr.sun_path, (uid_t)-1, server.ro_group) || chmod(addr.sun_path, 0660))) {
		err = -errno;
		rc = -1;
	}
	if (rc || listen(fd, BACKLOG)) {
		err = rc ? err : -errno;
		log_error("admin: cannot listen on %s: %s", addr.sun_path, strerror(-err));
		close(fd);
		return err;
	}
	(void)kept_put(key, fd); /* (or who connects during a restart is refused) */
	return fd;
}

static int find_ro_group(void)
{
	const char *name = adm.conf.ro_group;
	struct group *g = name ? getgrnam(name) : NULL;

	server.has_ro_group = g;
	if (g)
		server.ro_group = g->gr_gid;
	if (name && !g)
		log_error("--admin-ro-group %s: no such group", name);
	return name && !g ? -ENOENT : 0;
}

int server_start(const struct server_calls *calls)
{
	int err, fd;

	ASSERT(calls->execute && adm.conf.main && server.listener.fd < 0 && server.lock_fd < 0);
	server.calls = *calls;
	list_init(&server.clients);
	loop_deferred_init(&server.leave, server_leave);
	timer_init(&server.retry, accept_again);
	err = find_ro_group();
	if (err)
		return err;
	snprintf(server.lock_key, sizeof(server.lock_key), "admin-lock/%d", adm.conf.control_port);
	err = take_lock(adm.conf.control_port);
	if (err)
		return err;
	snprintf(server.key, sizeof(server.key), "admin/%d", adm.conf.control_port);
	fd = make_socket(server.key, adm.conf.control_port);
	if (fd < 0) {
		drop_lock();
		return fd;
	}
	server.listener =
		(struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = server_listener_ready };
	err = loop_fd_add(adm.conf.main, &server.listener);
	if (err)
		server_stop();
	return err;
}

void server_stop(void)
{
	struct adm_client *c, *tmp;

	loop_undefer(&server.leave);
	loop_timer_cancel(adm.conf.main, &server.retry);
	if (server.listener.fd >= 0) {
		loop_fd_del(&server.listener);
		close(server.listener.fd);
		server.listener.fd = -1;
		if (!adm.restarting)
			unlink(server.path);
		(void)kept_drop(server.key);
	}
	list_for_each_safe(c, tmp, &server.clients, link)
		client_close(c);
	drop_lock();
	(void)kept_drop(server.lock_key);
}

void admin_let_go(void)
{
	drop_lock();
}
