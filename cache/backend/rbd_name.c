/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See rbd_name.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "cache/backend/rbd_name.h"

/* False: empty, or too long. */
static bool name_part(char *to, size_t room, const char *from, size_t n)
{
	if (!n || n >= room)
		return false;
	memcpy(to, from, n);
	to[n] = '\0';
	return true;
}

static bool name_words(struct rbd_name *n, const char *opts)
{
	bool ok = true;

	while (opts && *opts) {
		const size_t end = strcspn(opts, ";,");

		if (!strncmp(opts, "conf=", 5)) {
			ok &= name_part(n->conf, sizeof(n->conf), opts + 5, end - 5);
		} else if (!strncmp(opts, "cluster=", 8)) {
			ok &= name_part(n->cluster, sizeof(n->cluster), opts + 8, end - 8);
		} else if (!strncmp(opts, "group=", 6)) {
			ok &= name_part(n->group, sizeof(n->group), opts + 6, end - 6);
		} else if (!strncmp(opts, "id=", 3)) {
			const char *id = opts + 3;

			/* The whole name is as good as its second half. */
			if (end - 3 > 7 && !strncmp(id, "client.", 7))
				id += 7;
			ok &= name_part(n->user + 7, sizeof(n->user) - 7, id,
					end - (size_t)(id - opts));
		}
		opts += end + (opts[end] != '\0');
	}
	return ok;
}

static bool name_path(struct rbd_name *n, const char *path)
{
	const size_t len = strlen(path), all = strcspn(path, "@");
	const char *first = memchr(path, '/', all), *second = NULL, *image = path;

	if (first) {
		image = first + 1;
		second = memchr(image, '/', all - (size_t)(image - path));
		if (!name_part(n->pool, sizeof(n->pool), path, (size_t)(first - path)))
			return false;
	}
	if (second) {
		if (!name_part(n->space, sizeof(n->space), image, (size_t)(second - image)))
			return false;
		image = second + 1;
	}
	if (memchr(image, '/', all - (size_t)(image - path)) ||
	    !name_part(n->image, sizeof(n->image), image, all - (size_t)(image - path)))
		return false;
	return all == len || (!strchr(path + all + 1, '@') &&
			      name_part(n->snap, sizeof(n->snap), path + all + 1, len - all - 1));
}

int rbd_name_parse(struct rbd_name *n, const char *path, const char *opts, char *why, size_t len)
{
	*n = (struct rbd_name){ .user = "client.admin", .cluster = "ceph", .pool = "rbd" };
	if (!name_words(n, opts)) {
		snprintf(why, len,
			 "conf=, id=, cluster= and group= want a value of at most %zu bytes",
			 sizeof(n->cluster) - 1);
		return -EINVAL;
	}
	if (!name_path(n, path)) {
		snprintf(why, len,
			 "[POOL/[NAMESPACE/]]IMAGE[@SNAPSHOT] is wanted, each of at most %zu bytes",
			 sizeof(n->image) - 1);
		return -EINVAL;
	}
	return 0;
}
