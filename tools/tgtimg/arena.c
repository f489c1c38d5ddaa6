/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See arena.h. The file is read, and never mapped: it may become shorter meanwhile. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/engine/arena_look.h"
#include "tools/tgtimg/arena.h"

#define EXTENTS 16 /* of a store, unless all are wanted */

struct arena_file {
	struct arena_source source;
	int fd;
};

static int file_read(const struct arena_source *s, uint64_t at, void *to, size_t len)
{
	const struct arena_file *f = container_of(s, struct arena_file, source);

	for (size_t done = 0; done < len;) {
		const ssize_t n =
			pread(f->fd, (uint8_t *)to + done, len - done, (off_t)(at + done));

		if (n < 0 && errno != EINTR)
			return -errno;
		if (!n) /* it is shorter than it was */
			return -EIO;
		done += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* What lies there may be anything, and goes to a terminal. */
static void print_name(const char *text)
{
	for (; *text; text++)
		if (*text > ' ' && *text < 0x7f && *text != '\\')
			putchar(*text);
		else
			printf("\\x%02x", (unsigned char)*text);
}

static void print_whole(const struct arena_look *l)
{
	const struct arena_super *h = look_super(l);
	const struct cache_super *says = look_says(l);

	printf("Version: %" PRIu32 "\nCache: %016" PRIx64 "\n", h->layout, says->cookie);
	printf("Arena: %" PRIu32 " of %" PRIu32 "\n", says->index + 1, says->nodes);
	printf("Node: %" PRIu32 "\nLength: %" PRIu64 "\n", h->node, h->length);
	printf("Block size: %" PRIu32 "\nGroup: %" PRIu32 " blocks\nPartitions: %" PRIu32 "\n",
	       1u << h->block_shift, says->group, says->parts);
	printf("Largest request: %" PRIu32 "\n", says->max_len);
	printf("Headers at: %" PRIu64 "\nMaps at: %" PRIu64 ", %" PRIu32 " bytes a block\n",
	       h->header_off, h->extra_off, h->extra);
	printf("Data at: %" PRIu64 "\nTail at: %" PRIu64 ", %" PRIu64 " bytes\n", h->data_off,
	       h->tail_off, h->tail_len);
	for (uint32_t r = 0; r < l->runs.n; r++)
		printf("Run %" PRIu32 ": block %" PRIu32 ", %" PRIu32 " of %" PRIu32
		       " in each partition\n",
		       r, l->runs.run[r].first, l->runs.run[r].have, l->runs.run[r].each);
	printf("Blocks: %" PRIu64 "\n    Free: %" PRIu64 "\n    Being loaded: %" PRIu64
	       "\n    Clean: %" PRIu64 "\n    Dirty: %" PRIu64 "\n    Being written back: %" PRIu64
	       "\n",
	       l->blocks, l->blocks - l->clean - l->dirty - l->filling, l->filling, l->clean,
	       l->dirty, l->in_io);
	printf("Under way:\n    Writes in place: %" PRIu64 "\n    Swaps of several blocks: %" PRIu64
	       "\n",
	       l->in_place, l->swaps);
	printf("Cannot be true: %" PRIu64 "\n", l->damaged);
}

static void print_store(const struct look_store *s, bool all)
{
	const size_t n = all ? s->nextents : MIN(s->nextents, (size_t)EXTENTS);

	printf("Store: ");
	if (s->store_id[0])
		print_name(s->store_id);
	else
		printf("(named in the cache's first arena)");
	printf("\n    Identity: %016" PRIx64 "\n    In doubt: %s\n", s->identity,
	       s->doubt ? "Yes" : "No");
	printf("    Blocks: %" PRIu64 "\n    Dirty blocks: %" PRIu64
	       "\n    Being written back: %" PRIu64 "\n",
	       s->blocks, s->dirty, s->in_io);
	printf("    Dirty bytes: %" PRIu64 "\n    Dirty extents: %zu\n",
	       s->dirty_sectors << SECTOR_SHIFT, s->nextents);
	for (size_t i = 0; i < n; i++)
		printf("        %" PRIu64 " %" PRIu64 "\n", s->extent[i].first << SECTOR_SHIFT,
		       s->extent[i].n << SECTOR_SHIFT);
	if (n < s->nextents)
		printf("        and %zu more (--extents)\n", s->nextents - n);
}

int tgtimg_arena(const char *program, const char *path, bool all)
{
	struct arena_file f = { .source.read = file_read, .fd = open(path, O_RDONLY | O_CLOEXEC) };
	static struct arena_look look;
	char why[128];
	struct stat st;
	int err;

	if (f.fd < 0 || fstat(f.fd, &st)) {
		fprintf(stderr, "%s: cannot read %s: %s\n", program, path, strerror(errno));
		return 2;
	}
	if (!S_ISREG(st.st_mode)) {
		fprintf(stderr, "%s: %s is not a file\n", program, path);
		return 2;
	}
	f.source.length = (uint64_t)st.st_size;
	err = look_into_arena(&look, &f.source, why, sizeof(why));
	close(f.fd);
	if (err) {
		fprintf(stderr, "%s: %s: %s\n", program, path, why);
		return err == -EBADMSG ? 4 : 2;
	}
	print_whole(&look);
	for (uint32_t i = 0; i < look.nstores; i++)
		print_store(&look.store[i], all);
	look_arena_free(&look);
	return 0;
}
