/* SPDX-License-Identifier: GPL-2.0-or-later */
/* --user: the daemon becomes somebody else, before it has threads. See guard.h. */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "events/log.h"
#include "tgtd/guard.h"

/* Is it a name that tgtd gives to what it keeps? A word, and 16 hexadecimal digits once or more,
 * with '-' between them, or worker.pid; ".new" while it is written. */
static bool is_ours(const char *name)
{
	size_t word = strspn(name, "abcdefghijklmnopqrstuvwxyz"), groups = 0;

	if (!strcmp(name, "worker.pid") || !strcmp(name, "worker.pid.new"))
		return true;
	for (name += word; *name == '-'; name += 17, groups++)
		if (strspn(name + 1, "0123456789abcdef") != 16)
			return false;
	return word && groups && (!*name || !strcmp(name, ".new"));
}

/* 0: @name is not what stands in the way of giving the directory away. -errno. */
static int hand_over_file(int dir, const char *name, unsigned uid, unsigned gid, bool really)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1 || !is_ours(name))
		return -ENOTEMPTY;
	if (!really || st.st_uid)
		return 0;
	return fchownat(dir, name, uid, gid, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

static int each_file(int fd, unsigned uid, unsigned gid, bool really)
{
	int err = 0, copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;

	if (!d) {
		err = -errno;
		if (copy >= 0)
			close(copy);
		return err;
	}
	while (!err && (e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			err = hand_over_file(fd, e->d_name, uid, gid, really);
	closedir(d);
	return err;
}

int guard_hand_over(const char *dir, unsigned uid, unsigned gid)
{
	struct stat st;
	int fd, err;

	(void)mkdir(dir, 0700);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	err = fstat(fd, &st) ? -errno : 0;
	if (!err && st.st_uid == 0 && uid) {
		/* what others put there is not to become anybody's: all of it is looked at first */
		err = st.st_mode & 07022 ? -EPERM : each_file(fd, uid, gid, false);
		err = err ?: each_file(fd, uid, gid, true);
		if (!err && fchown(fd, uid, gid))
			err = -errno;
	}
	close(fd);
	return err;
}

static int cannot_have(const char *user, const char *dir, int err)
{
	log_error("--user %s: %s cannot be that user's (%s); --state-dir names another one", user,
		  dir,
		  err == -ENOTEMPTY ? "there is something else in it" :
		  err == -EPERM	    ? "others may write to it" :
		  err == -EACCES    ? "it, or a directory above it, is closed to the user" :
				      strerror(-err));
	return err;
}

int guard_become(const char *user, const char *state_dir)
{
	struct passwd *pw;
	int err;

	errno = 0;
	pw = getpwnam(user);
	if (!pw) {
		log_error("--user %s: no such user", user);
		return errno ? -errno : -ENOENT;
	}
	if (getuid() == pw->pw_uid)
		return 0;
	if (state_dir) {
		err = guard_hand_over(state_dir, pw->pw_uid, pw->pw_gid);
		if (err)
			return cannot_have(user, state_dir, err);
	}
	/* Start-up goes on with the capabilities that it has; guard_main() ends that. */
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || initgroups(user, pw->pw_gid) ||
	    setgid(pw->pw_gid) || setuid(pw->pw_uid)) {
		err = -errno;
		log_error("cannot become user %s: %m", user);
		return err;
	}
	/* As the user, without capabilities: by real ids, as access(2) does. */
	if (state_dir && access(state_dir, R_OK | W_OK | X_OK))
		return cannot_have(user, state_dir, -errno);
	guard_became();
	log_info("running as user %s (uid %u, gid %u)", user, pw->pw_uid, pw->pw_gid);
	return 0;
}
