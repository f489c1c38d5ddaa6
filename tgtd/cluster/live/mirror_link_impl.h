/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of mirror_link.h share. Calls go down this list, never up:
 *
 *     mirror_link_send.c frames find their link
 *     mirror_link.c      links: made, taken
 *     mirror_link_end.c  links: ended, cut
 *     mirror_listen.c    the port
 *     mirror_shake.c     a connection proves who it is (main loop)
 *     mirror_channel.c   frames of a connection (event thread)
 *     mirror_rdma*.c     the same over RDMA; mirror_rdma_impl.h
 *     mirror_guests.c    channels that are with who sends by them
 *     mirror_buf.c       a frame that is to be sent
 *     mirror_auth.c      proofs and codes
 *
 * A slot is a direction of a pair. It has a link at most; one that has ended is replaced, or goes
 * on the main loop when all its channels are closed. Its lock guards what any thread asks: is there
 * a link, and which. While somebody has the lock, that link's memory stays.
 */
#ifndef TGTD_CLUSTER_LIVE_MIRROR_LINK_IMPL_H
#define TGTD_CLUSTER_LIVE_MIRROR_LINK_IMPL_H

#include "tgtd/cluster/live/mirror_channel.h"
#include "tgtd/cluster/live/mirror_listen.h"
#include "tgtd/cluster/live/mirror_shake.h"

struct mirror_link;
struct link_slot {
	struct mirror_links *m;
	unsigned peer;
	bool dials; /* its links are made from here */
	uint64_t not_before;
	uint64_t tcp_until; /* RDMA did not work: it is not asked for until then */
	struct timer again;
	struct loop_msg look;

	pthread_mutex_t lock;
	struct mirror_link *link; /* the last one, or NULL */
	bool up;		  /* it takes frames of all kinds */
	bool posted;
	struct list opens; /* mirror_buf.link: for the next link */
	unsigned nopens;
	struct mirror_links_show past; /* of links that are gone; made, ended, taken */
	char why[96];		       /* the last one that has ended */
	uint64_t ended_at;
};

struct link_end {
	struct mirror_link *link;
	struct mirror_shake *shake; /* main loop; NULL: none is under way */
	struct mirror_channel channel;
	bool open; /* the slot's lock */
};
struct mirror_link {
	struct link_slot *slot;
	uint64_t id; /* not 0 */
	unsigned n;
	bool asks;    /* for RDMA */
	bool refused; /* ... and the other end has ended a connection upon that */
	_Atomic bool ended;
	_Atomic unsigned left; /* channels that are not closed */
	struct loop_msg gone;
	struct link_end end[MIRROR_CHANNELS];
};

struct stranger {
	struct list link;
	struct mirror_links *m;
	struct mirror_shake *shake;
};

struct mirror_links {
	struct mirror_links_conf conf;
	const struct mirror_link_ops *ops;
	void *arg;
	char *group;
	void *secret;
	struct loop **loop;
	unsigned channels;
	struct mirror_listener listener;
	struct mirror_shake_conf dial_conf, accept_conf;
	struct link_slot to[GW_GATEWAYS], of[GW_GATEWAYS];
	struct mirror_rdma_dev *dev; /* NULL: it has none, or is to use none */
	struct loop_msg dev_gone;
	struct list strangers;
	unsigned nstrangers;
	unsigned links; /* and one more while `end` is posted */
	_Atomic bool stopping;
	void (*ended)(void *arg);
	void *ended_arg;
	struct loop_msg end;
	_Atomic uint64_t refused;
	char refused_why[96]; /* main loop */
};

/* Link @id of the slot is over, and what waits for it is lost. Any thread, without locks. */
void link_slot_ends(struct link_slot *s, uint64_t id, const char *why);
/* All of it goes, if it is being stopped and nothing is left. Main loop, as the last thing. */
void links_look_end(struct mirror_links *m);
/* What its channels have counted is added. */
void link_show_add(struct mirror_links_show *show, const struct mirror_link *l);

#endif
