/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Channels of mirrors over RDMA: frames as messages of a reliable connection, and the data of WRITE
 * records by RDMA writes into slots of the peer's memory. For the files of the link alone.
 *
 *     owner (dialer)                                        peer (listener)
 *       | proves itself over TCP (mirror_auth.h), and so does the peer
 *       | offer: its queue pair ---------------------- TCP ---> |  has slots lent
 *       | <--- TCP ------------------- offer: its queue pair    |
 *       | message: it is ready --------------------- SEND ----> |  binds a window to each slot
 *       | <---- SEND -------------------------- grants: keys    |
 *       | a block's sectors -------------- RDMA WRITE --> slot  |
 *       | BATCH, records name slots ---------------- SEND ----> |  invalidates their windows, then
 *       |                                                       |  compares codes; the slot becomes
 *       |                                                       |  the page
 *       | <---- SEND ----------------------- ACK, new grants    |
 *
 * - The TCP connection stays, silent: its end is the end of the channel, and the other way round.
 * - A slot is a frame of mirror_memory.h that is lent. A memory window (type 2) on that frame alone
 *   lets this queue pair write, and nobody read. It is invalid before its data are looked at, so
 *   what has been compared cannot change. A write anywhere else puts the queue pair into error.
 * - Data are copied once, at the owner: into registered memory, where its pages may change. At the
 *   peer they lie where they stay. Of a record that has a part of a block, the rest is copied.
 * - The code behind a message (mirror_auth.h) is that of the message and of the data in its slots.
 * - Messages have credits: MIRROR_RDMA_MESSAGES are posted at each end.
 *
 * Not for iWARP: such a device is none. Without HAVE_RDMA there is never a device.
 */
#ifndef TGTD_CLUSTER_LIVE_MIRROR_RDMA_H
#define TGTD_CLUSTER_LIVE_MIRROR_RDMA_H

#include "tgtd/cluster/live/mirror_auth.h"

#define MIRROR_RDMA_SLOTS MIRROR_BATCH /* of a channel: a frame always finds as many */
#define MIRROR_RDMA_MESSAGES 64	       /* that one end may have sent, unseen by the other */
#define MIRROR_RDMA_OFFER 64	       /* bytes of an offer; MIRROR_CODE follow */

#ifndef HAVE_RDMA
#include <stdio.h>
#endif

/* ---- this gateway's device, mirror_rdma_dev.c: main loop, but for memory --------------------- */
struct mirror_rdma_dev;
/* Is there a device that has @addr? It may block. */
bool mirror_rdma_dev_is_there(const struct sockaddr_storage *addr);
/* The device that has @addr. @slots: for owners that write here; NULL: none may. They are
 * registered, all of them, for nobody. @gone: the device is, later, once; every channel of it is to
 * end. NULL, and in @why a reason. It may block. */
struct mirror_rdma_dev *mirror_rdma_dev_open(struct loop *main, const struct sockaddr_storage *addr,
					     const struct mirror_slots *slots,
					     void (*gone)(void *arg), void *arg, char *why,
					     size_t len) must_check;
/* No channel has it any more, and no memory. NULL is fine. */
void mirror_rdma_dev_close(struct mirror_rdma_dev *dev);
bool mirror_rdma_dev_is_gone(const struct mirror_rdma_dev *dev);
/* Can owners write here? */
bool mirror_rdma_dev_lends(const struct mirror_rdma_dev *dev);

/* Registered memory that others cannot reach. Any thread. NULL: there is none. */
struct mirror_rdma_mem {
	struct list link;
	uint8_t *addr;
	size_t len;
	uint32_t lkey;
	void *mr;
	struct mirror_rdma_dev *dev;
};
struct mirror_rdma_mem *mirror_rdma_mem_get(struct mirror_rdma_dev *dev, size_t len) must_check;
void mirror_rdma_mem_put(struct mirror_rdma_mem *mem);

/* ---- a channel's queue pair: its loop, but for mirror_rdma_cut() ----------------------------- */
struct mirror_rdma;
struct mirror_rdma_conf {
	struct loop *loop;
	struct mirror_rdma_dev *dev;
	bool listens;		       /* it has slots; else it writes into the other one's */
	struct mirror_coder *out, *in; /* the channel's */
	struct list *sending;	       /* mirror_buf.link: frames, in their order; the channel's */
	/* NULL, or why @f may not come here. ref of WRITE records: the frame that is lent. */
	const char *(*frame)(void *arg, const struct mirror_frame *f);
	/* Once, as the last thing that is done with it: mirror_rdma_free() from within. */
	void (*failed)(void *arg, const char *why);
	/* @bytes that were queued are at the other end, or no more of them is needed. */
	void (*sent)(void *arg, unsigned frames, size_t bytes);
	void *arg;
};
/* A queue pair that waits for its partner, and slots for a listener. NULL, and *@why. */
struct mirror_rdma *mirror_rdma_new(const struct mirror_rdma_conf *conf,
				    const char **why) must_check;
/* At once: frames that were sent and not confirmed are freed, slots are returned. NULL is fine. */
void mirror_rdma_free(struct mirror_rdma *r);
/* What the other end is told over TCP; @r NULL: there can be no RDMA. */
void mirror_rdma_offer(const struct mirror_rdma *r, uint8_t offer[MIRROR_RDMA_OFFER]);
/* What it has told: NULL and *@can false: there can be none at its end. Else a reason. */
const char *mirror_rdma_offered(const uint8_t offer[MIRROR_RDMA_OFFER], bool *can) must_check;
/* Connects to the partner that has told @offer. NULL, or why not: mirror_rdma_free(). */
const char *mirror_rdma_connect(struct mirror_rdma *r,
				const uint8_t offer[MIRROR_RDMA_OFFER]) must_check;
/* What can be sent of conf.sending is. NULL, or why the channel is to end. */
const char *mirror_rdma_flush(struct mirror_rdma *r) must_check;
/* Has the other end been heard by RDMA? Any thread, while @r stays. */
bool mirror_rdma_is_proved(const struct mirror_rdma *r);
/* From its return on the other end can write nothing here any more. The channel fails soon. Any
 * thread, while @r stays. */
void mirror_rdma_cut(struct mirror_rdma *r);

/* ---- without it there is no device ----------------------------------------------------------- */
#ifndef HAVE_RDMA
#define mirror_rdma_dev_is_there(addr) ((void)(addr), false)
#define mirror_rdma_dev_open(main, addr, slots, gone, arg, why, len)                               \
	((void)(gone), snprintf(why, len, "this tgtd is built without RDMA"),                      \
	 (struct mirror_rdma_dev *)NULL)
#define mirror_rdma_dev_close(dev) ((void)(dev))
#define mirror_rdma_dev_is_gone(dev) ((void)(dev), true)
#define mirror_rdma_dev_lends(dev) ((void)(dev), false)
#define mirror_rdma_mem_get(dev, len) ((void)(dev), (struct mirror_rdma_mem *)NULL)
#define mirror_rdma_mem_put(mem) ((void)(mem))
#define mirror_rdma_new(conf, why) ((void)(conf), *(why) = "no", (struct mirror_rdma *)NULL)
#define mirror_rdma_free(r) ((void)(r))
#define mirror_rdma_offer(r, offer) ((void)(r), memset(offer, 0, MIRROR_RDMA_OFFER))
#define mirror_rdma_offered(offer, can) ((void)(offer), *(can) = false, "there is no RDMA here")
#define mirror_rdma_connect(r, offer) ((void)(r), "there is no RDMA here")
#define mirror_rdma_flush(r) ((void)(r), (const char *)NULL)
#define mirror_rdma_is_proved(r) ((void)(r), false)
#define mirror_rdma_cut(r) ((void)(r))
#endif

#endif
