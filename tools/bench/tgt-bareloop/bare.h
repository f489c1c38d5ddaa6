/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgt-bareloop: what its files share. One thread, so nothing here is locked.
 *
 *   engine_*.c (when to call the kernel) ── rx.c (PDUs) ── command.c, login.c
 *   (answers) ── tx.[ch] (their queue)
 */
#ifndef TOOLS_BENCH_TGT_BARELOOP_BARE_H
#define TOOLS_BENCH_TGT_BARELOOP_BARE_H

#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "tools/bench/tgt-load/wire.h"

enum {
	CONNS_MAX = 1024,
	TAGS = 4096,
	HDRS_BYTES = 512 << 10, /* one side of a connection's headers */
	HDRS_SOFT = HDRS_BYTES / 2,
	IOV_CAP = 24576,
	IOV_SOFT = IOV_CAP - 8192,
	PDUS_MAX = 4000, /* of one read: what is left beyond the soft limits holds their headers */
	IOV_CALL = 1024,
	IO_MAX = 16 << 20,
	WINDOW = 1024, /* commands the initiator may have in flight */
	TEXT_MAX = 8192,
};

/* Command line. */
struct options {
	struct sockaddr_in addr;
	uint32_t max_recv_segment;
	uint32_t first_burst;
	uint32_t max_burst;
	uint64_t lu_bytes;
	uint64_t memory;
	uint32_t recv_size;
	uint64_t spread;
	uint32_t sndbuf;
	uint32_t zerocopy; /* data segments of at least so many bytes are sent
			    * with MSG_ZEROCOPY; 0: none */
	double pauses; /* seconds to look for them; 0: serve */
	bool block;
	bool uring;
	int cpu;
	char congestion[16];
};

/* A write whose data is still coming. */
struct wtask {
	uint32_t itt;
	uint32_t len;
	uint32_t got;
	uint32_t due; /* data is owed up to here: unsolicited, then R2T by R2T */
	uint32_t r2t_sn;
	uint8_t lun[8];
	bool active;
};

struct bconn {
	int fd;
	bool full_feature;
	bool hdr_digest, data_digest;
	bool immediate, initial_r2t;
	bool closing; /* after a logout: ends when all is sent */
	bool stalled; /* commands lie in rbuf for whose answers there was no room */
	uint32_t their_segment;
	uint32_t first_burst, max_burst;
	uint32_t stat_sn, exp_cmd_sn;

	uint8_t *rbuf, *rbase;
	size_t rat;
	uint32_t rend;
	uint32_t skip; /* body and tail bytes of the current PDU still to drop */
	struct wtask *on_skip_end;
	struct wtask *task;

	/*
	 * What is to be sent. The kernel copies the iovec when it is called. But what was sent with
	 * MSG_ZEROCOPY, headers too, must stay as it is until the kernel is done. So headers are
	 * made in one side while those of the other are under way.
	 */
	uint8_t *hdr;     /* the side in use: sides + side * HDRS_BYTES */
	uint8_t *sides;
	unsigned side;
	uint32_t hdr_n;
	struct iovec *iov;
	unsigned iov_at, iov_n;
	bool zc_want;        /* something queued is large enough */
	uint32_t zc_sent;    /* calls with MSG_ZEROCOPY, and those that are over */
	uint32_t zc_done;
	uint32_t zc_mark[2]; /* a side may be used again when zc_done has reached this */

	bool unsent; /* engine_epoll.c: the socket takes no more for now */

	/* engine_uring.c */
	struct msghdr msg;
	unsigned slot, ops; /* its registered file; operations (and notices) that are under way */
	bool sending, receiving, held, dead;
};

extern struct options opt;
extern volatile sig_atomic_t stopping;
extern uint8_t *memory;
extern struct bconn *conns[CONNS_MAX];
extern unsigned nconn;
extern uint64_t zc_calls, zc_copied, zc_refused; /* of all connections: said at the end */

/* conn.c: a connection for an accepted socket, which is its from here on. NULL: closed. */
struct bconn *conn_new(int fd);
void conn_drop(struct bconn *c);

/* rx.c: answer what lies in rbuf as far as there is room; sets c->stalled.
 * False: drop the connection. */
bool rx_parse(struct bconn *c);

/* Where the next bytes are to be received, and how many. */
void rx_place(struct bconn *c, uint8_t **to, uint32_t *room);

/* login.c, command.c: one PDU at h whose n body bytes follow. False: drop the connection. */
void login_answer(struct bconn *c, const uint8_t *h, const char *text, uint32_t n);
bool command_answer(struct bconn *c, const uint8_t *h, uint32_t n);
void nop_answer(struct bconn *c, const uint8_t *h);

/* command.c: what this write was owed for now may have come: ask for more, or done. */
void command_write_step(struct bconn *c, struct wtask *t);

/* The engines: serve until `stopping`. 0, or an exit status after a message. */
int engine_epoll(int lfd);
int engine_uring(int lfd);

/* pauses.c: look at the clock for so long, print the gaps as JSON. An exit status. */
int pauses(double seconds);

#endif
