/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See daemon.h. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "events/kept.h"
#include "events/log.h"
#include "tgtd/daemon.h"

static int ready_fd = -1; /* write end of the pipe to the waiting parent */
static const char *pid_path;
static int pid_fd = -1;
static bool worker, in_background, restarts;
static char worker_path[PATH_MAX]; /* of worker.pid, once it is written */

/* The starter's exit status must mean something: it waits until we serve, or are dead. */
static void wait_for_child(int fd, pid_t child)
{
	char byte;
	ssize_t n;

	do
		n = read(fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n == 1)
		_exit(0);
	waitpid(child, NULL, 0);
	_exit(1);
}

int daemon_detach(void)
{
	int fds[2], null;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid > 0) {
		close(fds[1]);
		wait_for_child(fds[0], pid);
	}
	close(fds[0]);
	ready_fd = fds[1];
	setsid();
	if (chdir("/"))
		return -errno;
	/* stderr stays open until daemon_ready(), so that start-up
	 * errors reach whoever starts us. */
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		return -errno;
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	close(null);
	return 0;
}

int daemon_pidfile(const char *path)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char text[32];
	int n;

	pid_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (pid_fd < 0) {
		n = -errno;
		log_error("cannot write pid file %s: %m", path);
		return n;
	}
	if (fcntl(pid_fd, F_OFD_SETLK, &lock)) {
		log_error("pid file %s belongs to a running daemon", path);
		return -EBUSY;
	}
	n = snprintf(text, sizeof(text), "%d\n", getpid());
	if (ftruncate(pid_fd, 0) || write(pid_fd, text, (size_t)n) != n) {
		n = -errno;
		log_error("cannot write pid file %s: %m", path);
		return n;
	}
	pid_path = path;
	return 0;
}

int daemon_pidfile_fd(void)
{
	return pid_fd;
}

void daemon_pidfile_again(const char *path, int fd)
{
	pid_fd = fd;
	if (fd >= 0)
		pid_path = path;
}

void daemon_store(const char *name, int fd)
{
	char text[128];

	snprintf(text, sizeof(text), "%s=1\nFDNAME=%s%s", fd >= 0 ? "FDSTORE" : "FDSTOREREMOVE",
		 name, fd >= 0 ? "\nFDPOLL=0" : "");
	if (sd_pid_notify_with_fds(0, 0, text, &fd, fd >= 0 ? 1 : 0) < 0)
		log_warn("systemd does not keep '%s': %m", name);
}

bool daemon_has_store(void)
{
	return getenv("NOTIFY_SOCKET") != NULL;
}

void daemon_stored(void (*found)(const char *name, int fd))
{
	char **names = NULL;
	const int n = sd_listen_fds_with_names(1, &names);

	for (int i = 0; i < n; i++) {
		found(names && names[i] ? names[i] : "", SD_LISTEN_FDS_START + i);
		if (names)
			free(names[i]);
	}
	free(names);
}

void daemon_worker(bool background)
{
	worker = true;
	in_background = background;
}

/* It comes whole, and over whatever has its name. What the worker before wrote does not stay: its
 * number is another process's some day. */
static int write_worker_pid(const char *dir)
{
	char path[PATH_MAX], fresh[PATH_MAX + 4], text[32];
	int n = snprintf(path, sizeof(path), "%s/worker.pid", dir), fd, err = 0;

	if ((size_t)n >= sizeof(path))
		return -ENAMETOOLONG;
	snprintf(fresh, sizeof(fresh), "%s.new", path);
	(void)unlink(fresh);
	fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	n = snprintf(text, sizeof(text), "%d\n", getpid());
	if (fd < 0 || write(fd, text, (size_t)n) != n || rename(fresh, path))
		err = -errno;
	if (fd >= 0)
		close(fd);
	if (err) {
		(void)unlink(fresh);
		(void)unlink(path);
	} else {
		memcpy(worker_path, path, sizeof(path));
	}
	return err;
}

void daemon_worker_pid(const char *dir)
{
	int err = worker ? write_worker_pid(dir) : 0;

	if (err)
		log_warn("%s/worker.pid: %s", dir, strerror(-err));
}

void daemon_ready(const char *status)
{
	if (worker) {
		kept_tell(KEPT_READY, 0, status);
		if (in_background)
			dup2(STDOUT_FILENO, STDERR_FILENO);
		return;
	}
	sd_notifyf(0, "READY=1\nSTATUS=%s", status);
	if (ready_fd < 0)
		return;
	dup2(STDOUT_FILENO, STDERR_FILENO);
	if (write(ready_fd, "", 1) != 1)
		log_warn("nobody waits for our readiness");
	close(ready_fd);
	ready_fd = -1;
}

void daemon_restarts(const char *why)
{
	restarts = true;
	kept_tell(KEPT_RESTART, 0, why);
	kept_hold();
}

void daemon_stopping(uint64_t usec)
{
	if (restarts)
		return;
	if (worker)
		kept_tell(KEPT_STOPPING, usec, NULL);
	else
		sd_notifyf(0, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu", (unsigned long long)usec);
}

void daemon_end(void)
{
	if (pid_path)
		unlink(pid_path);
	if (*worker_path)
		unlink(worker_path);
}

void daemon_give_up(int rc)
{
	log_error("tgtd cannot start: %s", strerror(-rc));
	daemon_end();
	_exit(1);
}
