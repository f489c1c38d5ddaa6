/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A call of a library that may take as long as it likes, by a thread of offload_submit_library():
 * who asks for it waits for a time that he chooses, and leaves it to itself then.
 */
#ifndef CACHE_BACKEND_LIBRARY_CALL_H
#define CACHE_BACKEND_LIBRARY_CALL_H

#include "events/offload.h"

struct library_call {
	/* What it does; and what becomes of it when nobody has waited for its end: it frees what
	 * embeds @call. On a library's thread. */
	void (*run)(struct library_call *call);
	void (*late)(struct library_call *call);
	/* Its own. */
	struct offload_job job;
	struct offload_lane lane;
	int state;
};

/* True: run() has ended, and @call is the caller's again. False: late() will have it. A thread that
 * may block. */
bool library_call(struct library_call *call, unsigned ms) must_check;

#endif
