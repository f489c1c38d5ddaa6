/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The admin side as main() sees it. tgtadm and tgt-admin speak conf/adm_proto.h on a UNIX stream
 * socket. The verbs behind it create and delete targets and LUs.
 *
 * Everything here runs on the main loop. Nothing blocks it, but for opening a store (open(2),
 * fstat(2) of a file or device).
 */
#ifndef TGTD_ADMIN_ADMIN_H
#define TGTD_ADMIN_ADMIN_H

#include "cache/engine/cache.h"
#include "events/loop.h"
#include "events/placement.h"
#include "events/topology.h"

struct admin_conf {
	struct loop *main;
	const struct topology *topo;
	struct placement *placement;
	struct cache *cache; /* stacked on every store that is not its own memory; NULL: no cache */
	int control_port;    /* socket.<port>; prefix /var/run/tgtd/socket, or $TGT_IPC_SOCKET */
	/* who may administer, beside root: who started the daemon */
	unsigned admin_uid, admin_gid;
	const char *ro_group; /* whose members may look on; NULL: nobody */
	bool central_events; /* one event thread for all LUs instead of one each (for comparison) */
	uint32_t lu_spin_ns; /* of the LUs' event threads (struct loop_conf) */
	/* Whether iSER runs: `--lld iser` is accepted and shown as ready. NULL: it does not. */
	bool (*iser_runs)(void);
	/* tgtadm --mode system --op delete: to leave as on SIGTERM. The answer to the client has
	 * been handed to the kernel. Its connection stays open until admin_stop(), so that the tool
	 * can wait for the end of the daemon. */
	void (*request_shutdown)(void *arg);
	/* tgtadm --mode system --op update --name restart: the same, for another process to take
	 * its place. NULL: there is none that would start it. */
	void (*request_restart)(void *arg);
	/* The same, --value keeper: another program is to take the keeper's place, if it can. NULL:
	 * there is no keeper, or it is too old for that. */
	void (*request_replace)(void);
	/* Does another program lie where this one was started from? NULL with the above. */
	bool (*program_is_new)(void);
	void *arg;
};

/* Makes the socket (0600, refused when another live daemon holds its .lock) and serves it. 0 or
 * -errno: -EADDRINUSE another daemon has this control port. The configuration is copied. */
int admin_start(const struct admin_conf *conf) must_check;

/*
 * After admin_start(), once transports are there and before anything listens: makes the daemon what
 * the state journal (tgtd/state/journal.h, opened before) says that an earlier process was. Then
 * over(arg), at once when there is nothing. Requests of administrators wait until
 * journal_restored(). What cannot be done is logged. A logical unit whose store is gone, or was
 * memory, is there and NOT READY. Without @portals it does not listen.
 */
void journal_restore(bool portals, void (*over)(void *arg), void *arg);
/* Once, after over() has been called, or in it: who has asked meanwhile is answered. */
void journal_restored(void);
/* From over() on: it listens where the journal said, and not where options say. */
bool journal_had_portals(void);

/* Deletes every target by force: sessions dropped, caches flushed, threads ended. done() runs on
 * the main loop when nothing is left. For shutdown; clients are refused from now on. */
void admin_drain(void (*done)(void *arg), void *arg);

/* This process ends, and another one goes on with the same control port. */
void admin_let_go(void);
/* What workers before had asked some stores for, or all, is over: those that wait for that are
 * opened. */
void admin_earlier_gone(void);
/* Is a unit's store being opened still that others do not wait for (late.c)? Main loop. */
bool admin_has_late(void);
/* Nothing may hold up sessions any more: commands that wait for such a store are answered by NOT
 * READY. Main loop. */
void admin_await_no_store(void);
/* Closes the socket and every client. Targets must be gone (admin_drain()) or are abandoned. */
void admin_stop(void);

#endif
