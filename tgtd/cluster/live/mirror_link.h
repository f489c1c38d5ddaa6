/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Links between gateways, for frames of mirror_frame.h. A link goes from an owner's gateway to the
 * one that mirrors for it: OPEN and BATCH go there, WELCOME and ACK come back. Two gateways that
 * mirror for each other have two links. It carries frames of all LUs of that pair.
 *
 *     link      channels 0 to n - 1, n = threads, MIRROR_CHANNELS at most: all of them or none
 *     channel   a TCP connection, at both ends on an event thread of its own, or with who sends by
 *               it (mirror_channel.h)
 *
 * - Both ends prove that they know the group's secret; then each frame has a code that only they
 *   can make (mirror_auth.h). Frames that are injected, changed, repeated or left out end the link.
 * - A link is made when an OPEN is to be sent. When any channel fails, all of it ends, and what was
 *   not delivered is lost: mirror_link_ops.down().
 * - Frames of a channel arrive in their order, whole. Channels pass each other.
 * - Frames of one iteration leave by one system call. What the socket does not take waits, up to
 *   MIRROR_BACKLOG; more ends the link. So a gateway that does not read costs that much.
 *
 * Frames may be sent by any thread. The rest is as each function says. Locks within are leaves: no
 * operation is called under one, so they may call back.
 */
#ifndef TGTD_CLUSTER_LIVE_MIRROR_LINK_H
#define TGTD_CLUSTER_LIVE_MIRROR_LINK_H

#include <sys/socket.h>
#include "events/loop.h"
#include "tgtd/cluster/mirror.h"

#define MIRROR_PORT 7260 /* where the group names no other; TCP */
#define MIRROR_SECRET_MIN 16
#define MIRROR_SECRET_MAX 255
/* Of a frame: MIRROR_BATCH blocks of MIRROR_SECTORS sectors. */
#define MIRROR_DATA_MAX ((size_t)MIRROR_BATCH * MIRROR_SECTORS << MIRROR_SHIFT_MAX)
/* Bytes that wait for one channel's socket, at most: two of the largest frames. */
#define MIRROR_BACKLOG (2 * (MIRROR_DATA_MAX + MIRROR_HEAD_MAX))

struct mirror_links;

/* How frames travel, once both ends have proved themselves over TCP. */
enum mirror_transport {
	MIRROR_AUTO, /* by RDMA where both ends can, else by TCP */
	MIRROR_TCP,
	MIRROR_RDMA, /* or not at all */
};

/* Frames of this gateway's memory (mirror_memory.h) that owners may write into by RDMA. Any
 * thread. */
struct mirror_slots {
	void *arg;
	void *base; /* of all frames */
	size_t len;
	unsigned shift; /* log2 of a frame's bytes */
	/* UINT32_MAX: none. *@ticket is of no other loan. */
	uint32_t (*lend)(void *arg, uint64_t *ticket);
	/* By that loan still? Else a record has made it a page. */
	bool (*is_lent)(void *arg, uint32_t frame, uint64_t ticket);
	void (*give_back)(void *arg, uint32_t frame);
};

struct mirror_links_conf {
	unsigned self, gateways; /* indices, as in mirror.h */
	const char *group;	 /* its name: both ends must say the same */
	/* Where each listens; family AF_UNSPEC: it takes no part, and gets no link. @self's: none
	 * may connect. */
	struct sockaddr_storage address[GW_GATEWAYS];
	const void *secret; /* MIRROR_SECRET_MIN to MIRROR_SECRET_MAX bytes; copied */
	size_t secret_len;
	struct loop *main;	  /* listens, and makes links */
	struct loop *const *loop; /* event threads; loop[i % loops] is channel i's home; copied */
	unsigned loops;		  /* 1 or more */
	/* ns. 0: the value in parentheses. */
	uint64_t connect_ns; /* for connection and proof (1 s) */
	uint64_t silent_ns;  /* the other machine does not confirm what it was sent (2 s) */
	enum mirror_transport transport;
	const struct mirror_slots *slots; /* copied; NULL: nobody may write here by RDMA */
};

/* @f and its data are valid during the call. */
struct mirror_link_ops {
	/* WELCOME or ACK of gateway @from, by @channel of the link that was made from here: for
	 * mirror_owner_frame(). On the loop where that channel is. */
	void (*to_owner)(void *arg, unsigned from, unsigned channel, const struct mirror_frame *f);
	/* OPEN or BATCH of gateway @from, by @channel of the link that it has made: for
	 * mirror_peer_frame(), whose answer is mirror_links_answer(). The same. */
	void (*to_peer)(void *arg, unsigned from, unsigned channel, const struct mirror_frame *f);
	/* The link to @peer, made from here, has ended, or could not be made. *All* owners of it
	 * are to be told by mirror_owner_down() before this returns. Until then only OPEN is kept
	 * for the next link, other frames are of sessions that are over, and are dropped. Main
	 * loop. */
	void (*down)(void *arg, unsigned peer);
	/* mirror_links_backlog() of @channel to @peer was beyond half of MIRROR_BACKLOG, and is
	 * below a quarter: for owners that hold back. May be NULL. The loop where it is. */
	void (*room)(void *arg, unsigned peer, unsigned channel);
};

/* Listens, if @self has an address; finds its RDMA device, which may block. A port that is taken
 * (by the process before) is tried again; the log says so. NULL with errno: EINVAL what @conf says,
 * ENOMEM. Main loop. */
struct mirror_links *mirror_links_start(const struct mirror_links_conf *conf,
					const struct mirror_link_ops *ops, void *arg) must_check;
/* Ends all links, without down(), and listens no more. When no operation will be called any more
 * @m is freed, and then @ended is called, later. Nobody may call a function of @m from now on. The
 * loops must run until then; so must others that send, while loop_busy() says so. Main loop. */
void mirror_links_stop(struct mirror_links *m, void (*ended)(void *arg), void *arg);
/* 1 to MIRROR_CHANNELS: those of links that are made from here. Any thread. */
unsigned mirror_links_channels(const struct mirror_links *m);
/* The port that it listens at; 0: none yet. For tests: an address of port 0 gets any. Main. */
unsigned mirror_links_port(const struct mirror_links *m);
/* Where gateway @i listens from now on (tests, whose ports are known late). Main loop. */
void mirror_links_address(struct mirror_links *m, unsigned i, const struct sockaddr *addr,
			  socklen_t len);

/*
 * What mirror_owner_ops.send() does: OPEN or BATCH to @peer by @channel (taken modulo those that
 * there are), in two steps. Those of one channel come one after the other.
 *
 *     out = mirror_links_begin(m, peer, channel, f);
 *     if (out) {
 *             copies each WRITE record's data to out->data, in the records' order
 *             mirror_links_send(out, f);
 *     }
 *
 * Data are *copied* out of the pages between the two, under whatever lock makes them of one moment.
 * The socket could take them from the pages without a copy, but pages change while TCP may still
 * send them again, and then neither CRC nor code would be right. What a copy costs is in
 * tests/bench.
 *
 * begin() sets ref of WRITE records to MIRROR_INLINE, and f->data_len. NULL: there is no link, and
 * @f is not an OPEN: it is lost, which down() says, or has said; or no memory, which ends the link.
 * send() computes the records' CRCs, the form and the code, and queues it. @out is then gone. Both:
 * any thread.
 */
struct mirror_out {
	uint8_t *data;
	size_t len; /* of data */
};
struct mirror_out *mirror_links_begin(struct mirror_links *m, unsigned peer, unsigned channel,
				      struct mirror_frame *f) must_check;
void mirror_links_send(struct mirror_out *out, struct mirror_frame *f);
/* Bytes that wait for the socket. Any thread. */
size_t mirror_links_backlog(const struct mirror_links *m, unsigned peer, unsigned channel);

/* What mirror_peer_ops.send() does: WELCOME or ACK to @to, by @channel of the link that @to has
 * made. Dropped where there is none. Any thread. */
void mirror_links_answer(struct mirror_links *m, unsigned to, unsigned channel,
			 const struct mirror_frame *f);

/* From its return on gateway @from (GW_GATEWAYS or more: any) can write nothing here by RDMA: its
 * queue pairs are in error, and what let it in is invalid. Its link ends, if it was one by RDMA; it
 * may make another one, whose slots are others. For a seal, before it, and before another process
 * goes on. Main loop. */
void mirror_links_cut(struct mirror_links *m, unsigned from);

struct mirror_links_show {
	uint64_t made, ended; /* links that were made from here */
	uint64_t taken;	      /* links of others */
	uint64_t refused;     /* connections that have proved nothing */
	uint64_t frames_out, frames_in, bytes_out, bytes_in, writes; /* writes: system calls */
};
/* Any thread. */
void mirror_links_show(const struct mirror_links *m, struct mirror_links_show *show);
/* The two links between this gateway and @peer: the one that is made from here, and the one that
 * @peer makes. @refused is always 0: who has proved nothing is nobody. */
struct mirror_pair_show {
	struct mirror_links_show sum;
	bool up, taken; /* it is there: made from here; made by @peer */
	/* How their frames travel: "tcp", "rdma", "both" (channels differ), "" (not known yet, or
	 * it is not there). */
	const char *up_by, *taken_by;
	uint64_t waits;	   /* bytes that wait for the socket of the first one */
	char why[96];	   /* one of them ended last, and why; "": none has */
	uint64_t ended_at; /* then (clock_now_ns()) */
};
/* Any thread. */
void mirror_links_show_pair(const struct mirror_links *m, unsigned peer,
			    struct mirror_pair_show *show);
/* Why the last connection was refused; "": none was. Main loop; valid until the next one is. */
const char *mirror_links_refused(const struct mirror_links *m);
/* Is the link to @peer there? Any thread. */
bool mirror_links_up(const struct mirror_links *m, unsigned peer);

#endif
