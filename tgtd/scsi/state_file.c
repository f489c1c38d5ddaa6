/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Small files that survive power loss, one a kind and logical unit. See state_file.h. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "events/hash.h"
#include "tgtd/scsi/state_file.h"

static char *state_dir;

void scsi_set_state_dir(const char *dir)
{
	free(state_dir);
	state_dir = dir ? strdup(dir) : NULL;
}

bool state_file_possible(void)
{
	return state_dir != NULL;
}

/* Named for the unit's place, not its contents: the same after a restart. */
void state_file_path(const struct scsi_lu *lu, const char *kind, const char *suffix, char *path,
		     size_t size)
{
	char unit[300];
	int n = snprintf(unit, sizeof(unit), "%s %u", lu->target->name, lu->lun);

	snprintf(path, size, "%s/%s-%016llx%s", state_dir, kind,
		 (unsigned long long)fnv1a(FNV1A_INIT, unit, (size_t)MIN(n, (int)sizeof(unit) - 1)),
		 suffix);
}

/* ---- writing --------------------------------------------------------------------------------- */

FILE *state_file_begin(const struct scsi_lu *lu, const char *kind, char **text, size_t *len)
{
	FILE *f;

	*text = NULL;
	f = open_memstream(text, len);
	if (f)
		fprintf(f, "tgtd-%s 1\nunit %s %u\n", kind, lu->target->name, lu->lun);
	return f;
}

char *state_file_seal(FILE *f, char **text, size_t *len)
{
	fflush(f);
	fprintf(f, "sum %016llx\n", (unsigned long long)fnv1a(FNV1A_INIT, *text, *len));
	if (fclose(f) != 0) {
		free(*text);
		return NULL;
	}
	return *text;
}

static int state_file_write_all(int fd, const char *p, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int state_file_write(const struct scsi_lu *lu, const char *kind, const char *text, size_t len)
{
	char path[4096], tmp[4096];
	int fd, ret, dir;

	(void)mkdir(state_dir, 0700); /* there already, or open() says what is wrong */
	state_file_path(lu, kind, "", path, sizeof(path));
	state_file_path(lu, kind, ".new", tmp, sizeof(tmp));
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	ret = state_file_write_all(fd, text, len);
	if (ret == 0 && fsync(fd) < 0)
		ret = -errno;
	if (close(fd) < 0 && ret == 0)
		ret = -errno;
	if (ret == 0 && rename(tmp, path) < 0)
		ret = -errno;
	if (ret < 0) {
		unlink(tmp);
		return ret;
	}
	dir = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	if (fsync(dir) < 0)
		ret = -errno;
	close(dir);
	return ret;
}

/* ---- reading --------------------------------------------------------------------------------- */

#define FILE_MAX MiB(4)

/* NULL with *err 0: there is none. */
static char *state_file_read_file(const char *path, size_t *len, int *err)
{
	struct stat st;
	char *text = NULL;
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	*err = 0;
	if (fd < 0) {
		/* ENOTDIR: where no directory is there is no file either */
		if (errno != ENOENT && errno != ENOTDIR)
			*err = -errno;
		return NULL;
	}
	if (fstat(fd, &st) < 0) {
		*err = -errno;
	} else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > FILE_MAX) {
		*err = -EBADMSG;
	} else {
		*len = (size_t)st.st_size;
		text = malloc(*len + 1);
		n = text ? read(fd, text, *len) : -1;
		if (n == (ssize_t)*len) {
			text[*len] = 0;
		} else {
			*err = !text ? -ENOMEM : n < 0 ? -errno : -EIO;
			free(text);
			text = NULL;
		}
	}
	close(fd);
	return text;
}

char *state_file_read(const struct scsi_lu *lu, const char *kind, char **text, int *err)
{
	char path[4096], head[400], *sum;
	unsigned long long want;
	size_t len = 0;
	int n;

	*err = 0;
	*text = NULL;
	if (!state_dir)
		return NULL;
	state_file_path(lu, kind, "", path, sizeof(path));
	*text = state_file_read_file(path, &len, err);
	if (!*text)
		return NULL;
	*err = -EBADMSG;
	/* The checksum first: it covers all that is believed. "sum " 16 digits newline */
	sum = len > 21 ? *text + len - 21 : NULL;
	if (!sum || sscanf(sum, "sum %16llx\n", &want) != 1 ||
	    want != fnv1a(FNV1A_INIT, *text, (size_t)(sum - *text)))
		return NULL;
	*sum = 0;
	n = snprintf(head, sizeof(head), "tgtd-%s 1\nunit %.255s %u\n", kind, lu->target->name,
		     lu->lun);
	if (strncmp(*text, head, (size_t)n) != 0)
		return NULL;
	*err = 0;
	return *text + n;
}
