/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See rbd_lib.h. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include "cache/backend/rbd_lib.h"

#define LIBRARY "librbd.so.1" /* brings librados with it */

#if RBD_HEADERS
#define RBD_SAME(ret, name, args)                                                                  \
	static_assert(__builtin_types_compatible_p(__typeof__(&name), ret(*) args),                \
		      #name " is declared otherwise");
RBD_CALLS(RBD_SAME)
RBD_MAYBE_CALLS(RBD_SAME)
#endif

static pthread_mutex_t lib_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rbd_lib lib;
static bool loaded;

/* The name of a call that @handle lacks, or NULL. */
static const char *rbd_lib_fill(void *handle)
{
#define RBD_FIND(ret, name, args)                                                                  \
	*(void **)&lib.name = dlsym(handle, #name);                                                \
	if (!lib.name)                                                                             \
		return #name;
	RBD_CALLS(RBD_FIND)
#define RBD_LOOK_FOR(ret, name, args) *(void **)&lib.name = dlsym(handle, #name);
	RBD_MAYBE_CALLS(RBD_LOOK_FOR)
	return NULL;
}

const struct rbd_lib *rbd_lib_load(char *why, size_t len)
{
	const char *lacks;
	void *handle;

	pthread_mutex_lock(&lib_lock);
	if (!loaded) {
		handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
		lacks = handle ? rbd_lib_fill(handle) : NULL;
		if (!handle)
			snprintf(why, len, "Ceph's library is not here (package librbd1): %s",
				 dlerror());
		else if (lacks)
			snprintf(why, len, "%s is too old: it has no %s()", LIBRARY, lacks);
		loaded = handle && !lacks; /* it stays: its threads may */
	}
	pthread_mutex_unlock(&lib_lock);
	return loaded ? &lib : NULL;
}
