/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The connection of an nbd store to its server, by libnbd, on an event thread of its own.
 *
 * Requests come to that thread by message, and complete on their own loops. Up to NBD_FLYING of
 * them are with the server at a time; the rest waits in order. When the connection is lost, or the
 * server has not answered for NBD_STALL_S, what it had is asked for again on the next connection.
 * A helper thread makes that, since names are looked up and certificates are read. Requests wait
 * for it NBD_WAIT_S, from the loss on; then they fail, and later ones fail at once, until there is
 * a connection again. One that did not last is made again after a pause, as one that was not made.
 *
 * What a server says is foreign: it may talk for ever, and end nothing. Before it serves, the
 * library reads as long as something comes, and keeps some of it. So its steps are counted. Later
 * it is counted how often the server says something without an answer.
 *
 * Who made the connection anew cannot know whether the server is the same process. So the loss
 * counts as a failed SYNC if anything was written since the last good one: ->lost() says so before
 * anything is asked of the new one.
 */
#ifndef CACHE_BACKEND_NBD_LINK_H
#define CACHE_BACKEND_NBD_LINK_H

#include "cache/blk/blk.h"
#include "events/offload.h"

#define NBD_FLYING 128u
#define NBD_STALL_S 30u
#define NBD_WAIT_S 20u
#define NBD_STEPS_MAX 4096u /* of the library, until a server serves: some 60 do */
#define NBD_READS_MAX (1u << 18) /* times that it says something, and answers nothing */
#define NBD_PIECE_MAX GiB(1) /* of a DISCARD or ZERO: lengths have 32 bits */
#define NBD_CONTEXT "base:allocation"

struct nbd_handle;

/* What a server says of an export. */
struct nbd_export {
	uint64_t size;
	uint32_t block_min, block_max; /* bytes of a request */
	bool readonly, rotational;
	bool flush, fua, trim, zero, cache, extents;
};

struct nbd_link {
	const char *uri;	  /* the caller's; for messages, too */
	struct nbd_export export; /* as at the first connection, but for the size */
	char *name;		  /* of the export, as the server was asked for it */
	/* The server may have forgotten what was written. On the link's thread. */
	void (*lost)(struct nbd_link *l);

	/* The link's own. */
	struct loop *loop;
	struct nbd_handle *h; /* NULL: not connected */
	struct loop_fd fd;
	struct timer tick; /* once a second while anything waits or flies, or @h is NULL */
	struct list waiting, flying, over; /* blk_req.link */
	unsigned nflying;
	uint64_t lost_ns;  /* not connected to a server that answers since; 0: it does */
	uint64_t heard_ns; /* the server has said something, or had nothing to say */
	uint64_t next_ns;  /* not before that another attempt */
	uint64_t made_ns;  /* connected since */
	unsigned attempts;
	unsigned reads; /* since the last answer */
	bool unsynced, in_flush; /* written since a SYNC; since the one that is under way */
	bool connecting, closing, renew;
	_Atomic bool give_up; /* the helper thread's: whatever it waits for */
	struct offload_lane lane;
	struct offload_job job;
	struct nbd_handle *fresh;
	struct nbd_export fresh_export;
	int err;
	char why[512];
	_Atomic uint64_t size; /* as the newest connection says */
	_Atomic uint32_t made; /* how many connections there were */
};

/* Connects and starts the thread. @l is zeroed but for uri and lost. 0, or -errno with the reason.
 * A thread that may block. */
int nbd_link_open(struct nbd_link *l, int node, char *why, size_t len) must_check;
/* No request is under way. May block for as long as a name takes to be looked up. */
void nbd_link_close(struct nbd_link *l);
/* READ with INTO, WRITE, SYNC, DISCARD, ZERO, PREFETCH: completes by message. Any loop. link, msg,
 * drv and drv_word are the link's until then. */
void nbd_link_submit(struct nbd_link *l, struct blk_req *req);
/* Takes @req out if the server has not got it: it completes with -ECANCELED. Its home loop. */
void nbd_link_abort(struct nbd_link *l, struct blk_req *req);
/* Makes the connection anew when nothing is under way, to learn of another size. Waits @ms for
 * that at most; true: it is done. Not on the link's thread. */
bool nbd_link_renew(struct nbd_link *l, unsigned ms);
/* After every call of libnbd that may have got further. On the link's thread. */
void nbd_link_settle(struct nbd_link *l);
/* "base:allocation" of the run at @offset. 0 or -errno. A thread that may block. nbd_extent.c. */
int nbd_link_extent(struct nbd_link *l, uint64_t offset, uint64_t len, enum blk_extent *what,
		    uint64_t *run);

#endif
