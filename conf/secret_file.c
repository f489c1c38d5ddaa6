/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See secret_file.h. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/secret_file.h"
#include "events/bug.h"
#include "events/secret.h"

/* A byte at a time: what follows the line on a pipe is somebody else's. The length, -errno. */
static int read_line(int fd, char *line, size_t max)
{
	size_t n = 0;

	for (;;) {
		ssize_t got = read(fd, line + n, 1);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (!got || line[n] == '\n' || ++n == max)
			break;
	}
	line[n] = 0; /* instead of the line end */
	if (n && line[n - 1] == '\r')
		line[--n] = 0;
	return (int)n;
}

static const char *fault_of(const char *line, int n)
{
	if (!n)
		return "there is no password on the first line";
	if (n > CONF_PASSWORD_MAX)
		return "the first line is longer than 255 bytes";
	for (int i = 0; i < n; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			return "the first line has control characters in it";
	return NULL;
}

int conf_read_password(const char *path, bool wait, char **password, bool *exposed, char *err,
		       size_t err_len)
{
	bool standard = !strcmp(path, "-");
	int fd = standard ? STDIN_FILENO :
			    open(path, O_RDONLY | O_CLOEXEC | (wait ? 0 : O_NONBLOCK));
	const size_t size = CONF_PASSWORD_MAX + 3;
	const char *why;
	struct stat st;
	char *line;
	int n;

	ASSERT(path && password && exposed && err && err_len);
	*password = NULL;
	*exposed = false;
	if (fd < 0 || fstat(fd, &st)) {
		n = -errno;
		snprintf(err, err_len, "cannot read %s: %s", path, strerror(-n));
		if (fd >= 0 && !standard)
			close(fd);
		return n;
	}
	*exposed = S_ISREG(st.st_mode) && (st.st_mode & 077);
	line = secret_alloc(size);
	n = line ? read_line(fd, line, size - 1) : -ENOMEM;
	if (!standard)
		close(fd);
	why = n < 0 ? strerror(-n) : fault_of(line, n);
	if (!why)
		*password = secret_strdup(line);
	secret_free(line, size);
	if (why)
		snprintf(err, err_len, "%s: %s", standard ? "standard input" : path, why);
	if (why)
		return n < 0 ? n : -EINVAL;
	return *password ? 0 : -ENOMEM;
}
