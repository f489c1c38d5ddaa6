/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See arenacopy.h. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tests/support/arenacopy.h"
#include "tests/support/expect.h"

void copy_into(int fd, int from)
{
	static uint8_t buf[MiB(1)];

	for (off_t at = 0, end; (at = lseek(from, at, SEEK_DATA)) >= 0; at = end) {
		end = lseek(from, at, SEEK_HOLE);
		for (off_t n; at < end; at += n) {
			n = pread(from, buf, (size_t)MIN(end - at, (off_t)sizeof(buf)), at);
			ck_assert_int_gt(n, 0);
			ck_assert_int_eq(pwrite(fd, buf, (size_t)n, at), n);
		}
	}
}

int copy_file(int from, uint64_t len)
{
	int fd = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)len), 0);
	copy_into(fd, from);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return fd;
}

struct copies copy_arenas(const struct cache *c, unsigned nodes)
{
	struct copies k;

	memset(&k, 0xff, sizeof(k));
	for (unsigned i = 0; i < nodes; i++) {
		ck_assert_int_ge(cache_arena_fd(c, i), 0);
		k.fd[i] = copy_file(cache_arena_fd(c, i), c->node[i].arena->map_len);
	}
	return k;
}

void close_copies(struct copies *k)
{
	for (unsigned i = 0; i < TOPO_MAX_NODES; i++)
		if (k->fd[i] >= 0)
			close(k->fd[i]);
}

struct cache_conf copies_conf(const struct copies *k, unsigned nodes, struct loop *loop,
			      struct cache_found *found)
{
	static struct topology topo;
	static struct loop *workers[TOPO_MAX_NODES];

	ck_assert_int_eq(topology_simulate(&topo, nodes), 0);
	for (unsigned i = 0; i < nodes; i++)
		workers[i] = loop;
	return (struct cache_conf){ .topo = &topo,
				    .workers = workers,
				    .stepped = true,
				    .arena_fd = k->fd,
				    .found = found };
}
