/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A thread of the daemon that stands still: preloaded, accept4() on a TCP socket does not return
 * while the file $STALL is there: a "sleep" in it makes it sleep, anything else run in a circle.
 * The one that stands still is the main loop, which takes connections in.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	static int (*real)(int, struct sockaddr *, socklen_t *, int);
	const struct timespec nap = { .tv_nsec = 1000000 };
	const char *path = getenv("STALL");
	int domain = 0, file;
	socklen_t dlen = sizeof(domain);
	char how;

	if (!real)
		real = (int (*)(int, struct sockaddr *, socklen_t *, int))dlsym(RTLD_NEXT,
										"accept4");
	getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &dlen);
	while (path && domain != AF_UNIX && (file = open(path, O_RDONLY | O_CLOEXEC)) >= 0) {
		if (read(file, &how, 1) == 1 && how == 's')
			nanosleep(&nap, NULL);
		close(file);
	}
	return real(fd, addr, len, flags);
}
