/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Filters for system calls (seccomp(2)), made once, installed by each thread. See guard.h. */
#ifndef TGTD_GUARD_FILTER_H
#define TGTD_GUARD_FILTER_H

#include <stdbool.h>

enum guard_filter {
	FILTER_LOOP,
	FILTER_BLOCKING,
	FILTER_MAIN,
	FILTER_LIBRARY,
	FILTERS,
	FILTER_KEEPER
};

/* Makes all of them; @rdma: loops may use verbs. Main thread, once. 0 or -errno; -ENOSYS: built
 * without libseccomp. */
int guard_filter_make(bool rdma);
/* For the calling thread, for good, and for those that it makes. 0, or -1 with errno. Needs
 * no_new_privs. What is not allowed raises SIGSYS; to a library it is an error and no more, since
 * its threads may block all signals, and SIGSYS would end us then. */
int guard_filter_install(enum guard_filter f);
/* Makes and installs that of the keeper, which all that it runs has, too, besides their own. What
 * is not allowed is an error, and no more. As both. */
int guard_filter_keeper(void);
/* The name of a system call, or "?". Main thread. */
const char *guard_filter_name(int nr);

#endif
