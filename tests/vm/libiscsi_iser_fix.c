/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Preloaded into Debian's iscsi-test-cu when it tests over iSER, to make
 * a long run possible at all.
 *
 * libiscsi 1.19 asks `fd != -1` before it disconnects a context that is destroyed, and over iSER fd
 * is always -1. So no connection is ever closed by the tool: each keeps 64 MiB of registered
 * buffers, and its connection-manager thread goes on with freed memory, which the next context
 * gets; when the target then ends the old connection after the logout, the *next* one is told that
 * it was disconnected, or crashes. Here a context that had a connection is disconnected when it is
 * destroyed, and its own small memory is kept, for the thread's last words.
 *
 * Then, when it does close, it cancels the thread that reads connection manager events. That thread
 * sits in the system call that fetches one, a cancellation point, and the answer to the disconnect
 * arrives just then: the kernel has handed the event over, the thread ends without having seen it,
 * nobody acknowledges it, and rdma_destroy_id() waits for that acknowledgement for ever (README.md,
 * "The hang"). The thread ends by itself at the disconnected event, so here "cancel" waits for
 * that, as libiscsi 1.20 does; a target that does not answer a disconnect is found out by this.
 *
 * (The same release leaves its connection structure uninitialised; the caller sets
 * MALLOC_PERTURB_=255, with which glibc hands out zeroes. Both faults are gone in later releases.)
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DISCONNECT_S 25

struct CU_Suite;
struct CU_Test;
struct iscsi_context;
struct rdma_event_channel;
struct rdma_cm_id;
enum rdma_port_space { RDMA_PS_ANY };

struct CU_Test *CU_add_test(struct CU_Suite *suite, const char *name, void (*fn)(void));
int iscsi_disconnect(struct iscsi_context *iscsi);
int iscsi_destroy_context(struct iscsi_context *iscsi);
int iscsi_service(struct iscsi_context *iscsi, int revents);
int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		   enum rdma_port_space ps);

/* Contexts that have a cm_id now; the tool has at most a handful at a time, and one thread. */
static void *connected[64];

static void **slot_of(const void *context)
{
	for (size_t i = 0; i < sizeof(connected) / sizeof(connected[0]); i++)
		if (connected[i] == context)
			return &connected[i];
	return NULL;
}

static void *next_of(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (!f) {
		fprintf(stderr, "libiscsi_iser_fix: no %s: %s\n", name, dlerror());
		abort();
	}
	return f;
}

/* libiscsi passes its context here, which tells us both that this is iSER
 * and that there is a cm_id. */
int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		   enum rdma_port_space ps)
{
	int (*real)(struct rdma_event_channel *, struct rdma_cm_id **, void *,
		    enum rdma_port_space) = next_of("rdma_create_id");
	int ret = real(channel, id, context, ps);
	void **slot = slot_of(NULL);

	if (ret == 0 && context && !slot_of(context) && slot)
		*slot = context;
	return ret;
}

int iscsi_destroy_context(struct iscsi_context *iscsi)
{
	int (*real)(struct iscsi_context *) = next_of("iscsi_destroy_context");
	void **slot = iscsi ? slot_of(iscsi) : NULL;

	if (!slot)
		return real(iscsi);
	*slot = NULL;
	iscsi_disconnect(iscsi);
	return 0;
}

/* Its loops wait for a second at a time and then ask the transport what is new with no event at
 * all: over iSER that is an error ("revents is not POLLIN"), so that any answer that takes longer
 * than a second fails the command. */
int iscsi_service(struct iscsi_context *iscsi, int revents)
{
	int (*real)(struct iscsi_context *, int) = next_of("iscsi_service");

	return !revents && slot_of(iscsi) ? 0 : real(iscsi, revents);
}

int pthread_cancel(pthread_t thread)
{
	struct timespec end;
	int rc;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += DISCONNECT_S;
	rc = pthread_timedjoin_np(thread, NULL, &end);
	if (rc) {
		fprintf(stderr, "libiscsi_iser_fix: no disconnected event in %d s: %s\n",
			DISCONNECT_S, strerror(rc));
		_exit(9);
	}
	return 0;
}

/* Tests named in CU_LEAVE_OUT ("Suite.Test:...", "*" for any suite) are left out: those that make
 * this libiscsi crash, or that send more by one command than it can: it then reports success
 * without sending anything, and the CmdSN that it used up is missed for ever. The tool looks at the
 * answer only for being one. */
struct CU_Test *CU_add_test(struct CU_Suite *suite, const char *name, void (*fn)(void))
{
	struct CU_Test *(*real)(struct CU_Suite *, const char *, void (*)(void)) =
		next_of("CU_add_test");
	/* Its first member. */
	const char *out = getenv("CU_LEAVE_OUT"), *suite_name = *(char **)suite;
	static struct CU_Test *last;
	char this[256], any[256];

	snprintf(this, sizeof(this), ":%s.%s:", suite_name, name);
	snprintf(any, sizeof(any), ":*.%s:", name);
	if (out && (strstr(out, this) || strstr(out, any)))
		return last ? last : (struct CU_Test *)suite;
	last = real(suite, name, fn);
	return last;
}
