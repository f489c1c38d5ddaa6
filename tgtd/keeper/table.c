/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See table.h. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "events/bug.h"
#include "events/hash.h"
#include "tgtd/keeper/table.h"

#define TABLE_MAGIC 0x74677470656b7431ull
#define FD_MAX (1 << 20) /* above it are none: the daemon's limit */
#define TABLE_MAX (MiB(1) + (size_t)KEPT_MAX * sizeof(struct table_fd))

struct table_head {
	uint64_t magic;
	uint64_t sum; /* of all that follows it */
	uint32_t version, state_len, n, reserved;
};

static uint64_t sum_of(const void *bytes, size_t len)
{
	const size_t from = offsetof(struct table_head, version);

	return fnv1a(FNV1A_INIT, (const char *)bytes + from, len - from);
}

void *table_bytes(const struct table *t, size_t *len)
{
	const size_t fds = t->n * sizeof(*t->fd);
	struct table_head *h;
	uint8_t *p;

	*len = sizeof(*h) + sizeof(t->state) + fds;
	h = calloc(1, *len);
	if (!h)
		return NULL;
	*h = (struct table_head){ .magic = TABLE_MAGIC,
				  .version = TABLE_VERSION,
				  .state_len = sizeof(t->state),
				  .n = t->n };
	p = (uint8_t *)(h + 1);
	memcpy(p, &t->state, sizeof(t->state));
	if (fds)
		memcpy(p + sizeof(t->state), t->fd, fds);
	h->sum = sum_of(h, *len);
	return h;
}

/* ---- what another program has written -------------------------------------------------------- */

static const char *table_head_wrong(const struct table_head *h, const void *bytes, size_t len)
{
	if (h->magic != TABLE_MAGIC)
		return "it is no keeper's table";
	if (h->version != TABLE_VERSION)
		return "its version is another one";
	if (h->n > KEPT_MAX || !h->state_len || h->state_len > MiB(1) || h->state_len % 8 ||
	    len != sizeof(*h) + h->state_len + h->n * sizeof(struct table_fd))
		return "its length is wrong";
	return h->sum == sum_of(bytes, len) ? NULL : "its checksum is wrong";
}

static bool text_ends(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

static const char *state_wrong(const struct table_state *s)
{
	if (s->worker_pid <= 1)
		return "it names no worker";
	if (s->how >= KEPT_END_KINDS)
		return "it has an end of a worker that does not exist";
	if (!text_ends(s->why, sizeof(s->why)) || !text_ends(s->path, sizeof(s->path)) ||
	    s->path[0] != '/')
		return "its texts are none";
	return NULL;
}

/* @fd is another one than all before. */
static bool fd_new(uint8_t *seen, int32_t fd, bool may_lack)
{
	if (fd == -1 && may_lack)
		return true;
	if (fd <= STDERR_FILENO || fd >= FD_MAX || seen[fd / 8] >> fd % 8 & 1)
		return false;
	seen[fd / 8] |= (uint8_t)(1u << fd % 8);
	return true;
}

static const char *fds_wrong(const struct table *t)
{
	static uint8_t seen[FD_MAX / 8];
	const struct table_state *s = &t->state;

	memset(seen, 0, sizeof(seen));
	if (!fd_new(seen, s->worker_fd, false) || !fd_new(seen, s->exe, false) ||
	    !fd_new(seen, s->tombstone, true) || !fd_new(seen, s->before, true) ||
	    !fd_new(seen, s->lock_fd, true))
		return "its descriptors are none";
	for (uint32_t i = 0; i < t->n; i++) {
		if (!text_ends(t->fd[i].key, KEPT_KEY_MAX + 1) || !kept_key_ok(t->fd[i].key))
			return "something that is kept has no key";
		if (!fd_new(seen, t->fd[i].fd, false))
			return "the descriptor of something that is kept is none";
	}
	return NULL;
}

int table_parse(const void *bytes, size_t len, struct table *t, const char **why)
{
	const uint8_t *p = (const uint8_t *)bytes + sizeof(struct table_head);
	struct table_head h;

	memset(t, 0, sizeof(*t));
	*why = "it is too short";
	if (len < sizeof(h))
		return -EBADMSG;
	memcpy(&h, bytes, sizeof(h));
	*why = table_head_wrong(&h, bytes, len);
	if (*why)
		return -EBADMSG;
	memcpy(&t->state, p, MIN((size_t)h.state_len, sizeof(t->state)));
	*why = state_wrong(&t->state);
	if (*why)
		return -EBADMSG;
	t->fd = malloc((h.n ? h.n : 1u) * sizeof(*t->fd));
	if (!t->fd)
		return -ENOMEM;
	t->n = h.n;
	memcpy(t->fd, p + h.state_len, h.n * sizeof(*t->fd));
	*why = fds_wrong(t);
	if (!*why)
		return 0;
	table_free(t);
	return -EBADMSG;
}

int table_read(int fd, struct table *t, const char **why)
{
	struct stat st;
	void *bytes;
	int err;

	*why = "it cannot be read";
	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size <= 0 || (size_t)st.st_size > TABLE_MAX)
		return -EBADMSG;
	bytes = malloc((size_t)st.st_size);
	if (!bytes)
		return -ENOMEM;
	err = pread(fd, bytes, (size_t)st.st_size, 0) == st.st_size ? 0 : -EBADMSG;
	if (!err)
		err = table_parse(bytes, (size_t)st.st_size, t, why);
	free(bytes);
	return err;
}

int table_write(const struct table *t)
{
	size_t len;
	void *bytes = table_bytes(t, &len);
	int fd = bytes ? memfd_create("tgtd-keeper", MFD_CLOEXEC) : -1;

	if (fd >= 0 && pwrite(fd, bytes, len, 0) != (ssize_t)len) {
		close(fd);
		fd = -1;
	}
	free(bytes);
	return fd >= 0 ? fd : -ENOMEM;
}

void table_free(struct table *t)
{
	free(t->fd);
	t->fd = NULL;
	t->n = 0;
}
