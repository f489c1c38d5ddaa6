/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An iSER connection, and the devices that carry them: what the files of this folder share.
 *
 *   main      cm.c: listening, connection manager events; dev.c: devices, registered memory; login
 *   conn.loop from hand-over on: completion queue, receive ring, sends, RDMA, close
 *
 * Main makes and frees; the connection manager's events come to main and go to the connection's
 * loop as a message. Nothing else is shared.
 */
#ifndef ISER_CONN_H
#define ISER_CONN_H

#include "cache/memory/arena.h"
#include "events/log.h"
#include "events/metrics.h"
#include "iser/iser_spec.h"
#include "iser/options.h"
#include "tgtd/rdma/verbs.h"
#include "tgtd/iscsi/conn.h"
#include "tgtd/iscsi/task.h"
#include "tgtd/iscsi/transport.h"

#define ISER_SQ_DEPTH 512      /* work requests outstanding, at most; a power of two */
#define ISER_SQ_MIN 16	       /* ... and at least */
#define ISER_RX_SLACK 16       /* receives beyond the credit */
#define ISER_SGE_MAX 32	       /* elements of a work request that we make use of */
#define ISER_TX_HDR 128	       /* one slot for headers and a little data; see ISER_TX_DATA */
#define ISER_TX_DATA (ISER_TX_HDR - ISER_HEADERS_LEN)
#define ISER_RX_LEAD 52	       /* before a message, so that its data is aligned to 128 */
#define ISER_AHS_MAX 256       /* MaxAHSLength in force */
#define ISER_SLOTS 4	       /* bounce slots of a connection */
/* A connection with a small ring, one of many: see iser_conn_new(). */
#define ISER_LEAN_SQ 128
#define ISER_LEAN_SGE 8
#define ISER_SMALL_RING_SLOTS 1
#define ISER_SMALL_RING_DSL 512 /* TargetRecvDataSegmentLength; no immediate data */
#define ISER_FLUSH_MS 1000     /* for what is queued to leave before a close, and
			        * for the peer to hang up first */
#define ISER_DRAIN_MS 3000     /* for the adapter to give our memory back */
#define ISER_PARK_POLLS 256    /* empty polls after which an adaptive
			        * connection waits for an event */
static_assert((ISER_RX_LEAD + ISER_HEADERS_LEN) % 64 == 0, "data of a slot is aligned");
static_assert((ISER_SQ_DEPTH & (ISER_SQ_DEPTH - 1)) == 0, "ring arithmetic");

/* ---- devices (dev.c) ------------------------------------------------------------------------- */

/* One arena on one device. It has more than one piece where max_mr_size asks for it, or where the
 * arena is sparse: its pieces are registered as they come into use. Or where it changes its size:
 * then @map is its data alone, and pieces come and go with it. */
struct iser_arena_mr {
	const uint8_t *map;
	size_t map_len, piece_len;
	unsigned n;
	unsigned shift;		 /* log2 of piece_len, or 0 */
	struct ibv_mr *zero;	 /* what of it is not in @map and may be sent, or NULL */
	struct arena *growing;	 /* pieces may still come; NULL: none does */
	_Atomic bool want;	 /* look at the pieces' */
	struct iser_piece {
		struct ibv_mr *_Atomic mr;
		_Atomic bool want;
	} piece[];
};

struct iser_dev {
	struct list link;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	const char *name;
	int node;		 /* NUMA node of the adapter, -1 unknown */
	_Atomic bool removed;
	unsigned conns;
	unsigned next_vector;
	uint64_t ffp_bytes;	 /* registered memory in use by connections in full feature phase */
	/*
	 * What the device can do, asked and not assumed:
	 *   max_mr_size          arenas in several pieces; less than 2 MiB: copied; too little for
	 *                        the larger ring: no unsolicited data
	 *   max_qp_wr, max_cqe   send queue 512 down to 16; no unsolicited data; too
	 *                        short for the window: refused
	 *   max_cq, max_qp       when they are used up: refused, connections that exist go on
	 *   max_sge, max_sge_rd  elements of an RDMA write and send, of an RDMA read;
	 *                        a device with 1 is not used
	 *   max_qp_init_rd_atom  with what the initiator serves: RDMA reads in flight;
	 *                        max_qp_rd_atom: what we serve
	 * Data sent inline: 128 bytes are asked for, then 76, then 0.
	 */
	struct ibv_device_attr attr;
	uint32_t max_msg;	 /* bytes of one operation: max_msg_sz of the ports */
	struct list free_mem;	 /* iser_mem that connections gave back */
	uint64_t free_bytes;
	struct loop_fd async;
	struct arena_watcher watcher;
	/* By arena id. Written by the thread that creates or destroys an arena, when nobody has
	 * blocks of it. Holders of blocks read it without a lock, others under one (dev.c). */
	struct iser_arena_mr *arena[ARENA_MAX];
	_Atomic unsigned arena_top;
};

/* Private registered memory of a connection. */
struct iser_mem {
	struct list link;
	uint8_t *addr;
	size_t len;
	int node;
	struct ibv_mr *mr;
};

/* Main. */
struct iser_conn;

/* Who is told of what happens to a device, on main. */
struct iser_dev_hooks {
	void (*gone)(struct iser_dev *dev);	 /* it ends the device's connections, then it */
	void (*broken)(struct iser_conn *ic);	 /* its queue pair or completion queue is */
};
/* Opens what there is; again after more has come. How many there are. @h stays. */
int iser_dev_init(struct loop *main, const struct topology *topo,
		  const struct iser_dev_hooks *h);
void iser_dev_fini(void);
unsigned iser_dev_count(void);
/* The device of @ctx, opened now when it is new. NULL: it cannot be used (logged). */
struct iser_dev *iser_dev_get(struct ibv_context *ctx);
void iser_dev_removed(struct iser_dev *dev);
void iser_dev_unref(struct iser_dev *dev); /* a connection is freed */
struct iser_mem *iser_mem_get(struct iser_dev *dev, size_t len, int node);
void iser_mem_put(struct iser_dev *dev, struct iser_mem *m);

/* The local key for [p, p+len) of @buf's arena (buf NULL: the arena is looked for by address).
 * False: not registered memory; when it is a piece of a sparse arena, it will be soon. *run:
 * bytes from @p on that the same key serves. Any thread. */
bool iser_lkey(const struct iser_dev *dev, const struct block *block, const uint8_t *p,
	       uint32_t *lkey, size_t *run);

/* ---- connections ----------------------------------------------------------------------------- */

/* RFC 7145 clauses 4 and 5; README.md draws it. */
enum iser_state {
	IS_IDLE,	  /* connection request accepted by us, not yet by the network */
	IS_LOGIN,	  /* established: login PDUs in sends and receives, main loop */
	IS_ALLOCATED,	  /* Allocate_Connection_Resources: receive ring
			   * posted, final response may leave */
	IS_DATAMOVER,	  /* Enable_Datamover: full feature phase, iSER-assisted */
	IS_FLUSHING,	  /* Connection_Terminate, last PDUs leaving, peer expected to hang up */
	IS_DRAINING,	  /* queue pair in error: work requests come back */
	IS_CLOSED,	  /* Connection_Terminate_Notify given; nothing
			   * of the core's is left here */
	IS_STATES
};
enum iser_event {
	IE_ESTABLISHED,	  /* RDMA_CM_EVENT_ESTABLISHED, or the first message (it may be faster) */
	IE_ALLOCATE,	  /* Allocate_Connection_Resources */
	IE_ENABLE,	  /* Enable_Datamover */
	IE_TERMINATE_FLUSH, /* Connection_Terminate, after what is queued */
	IE_TERMINATE,	  /* Connection_Terminate at once; or the time for the flush is over */
	IE_DRAINED,	  /* the last work request came back, or the queue pair is gone */
	IE_EVENTS
};

enum iser_wr_kind { WR_SEND, WR_WRITE, WR_READ };
#define NO_SLOT UINT16_MAX

/* One work request on the send queue. */
struct iser_wr {
	void *obj;	/* struct iscsi_pdu, or of an RDMA read struct scsi_seg */
	uint32_t off;	/* RDMA read into a bounce slot: where in the segment */
	uint32_t len;
	uint16_t slot;	/* bounce slot or NO_SLOT */
	uint8_t kind;	/* enum iser_wr_kind */
	bool last;	/* of its object */
};

struct iser_rx {
	struct ibv_recv_wr wr;
	struct ibv_sge sge;
	struct iser_rx *next; /* to be posted, or held back */
	uint32_t len;	      /* received */
};

/* Bits that main posts to the connection's loop. */
enum { CM_DISCONNECTED = 1, CM_REMOVED = 2, CM_FAILED = 4, CM_ESTABLISHED = 8, CM_QP_FATAL = 16 };

struct iser_conn {
	struct iscsi_conn conn;
	/* ---- on conn.loop ---- */
	struct iser_dev *dev;
	struct rdma_cm_id *id;
	struct ibv_qp *qp;	/* NULL: destroyed by force */
	struct ibv_cq *cq;
	struct ibv_comp_channel *chan;
	struct loop_fd lfd;	/* of the completion channel */
	struct loop_poller poller;
	bool polling;		/* poller is on the loop */
	bool armed;
	bool in_poll;
	bool gone;		/* the device or the queue pair is: nothing will be flushed */
	bool hung_up;		/* the peer has disconnected */
	bool post_failed;
	bool ffp;		/* receive ring and send slots are there */
	bool use_inv;		/* send with invalidate */
	uint8_t state;		/* enum iser_state */
	void (*progress)(struct iser_conn *ic); /* data.c tells qp.c: a close may go on */
	unsigned empty_polls;
	unsigned cq_events;	/* not acknowledged */
	struct loop_deferred flush, again;
	struct timer timer;	/* of flushing, draining */
	/* receiving */
	struct iser_rx *rx_post;  /* to be posted, newest first */
	struct iser_rx *held, **held_tail; /* received while rx_stopped */
	uint32_t rx_posted;
	struct iser_rx *rx;	/* [rx_n] */
	uint32_t rx_cap;	  /* receives that the queue pair can
				   * hold, the login's not counted */
	uint32_t rx_n, rx_slot_len; /* of the ring, from Allocate_Connection_Resources on */
	struct iser_rx login_rx;
	/* sending */
	struct list txq;	/* iscsi_pdu */
	struct list rdq;	/* scsi_seg to be RDMA read */
	uint64_t sq_head, sq_tail; /* posted, returned */
	uint32_t sq_depth;
	uint32_t max_sge, max_sge_rd, max_inline;
	uint32_t rd_out, rd_max; /* RDMA reads outstanding, and how many the initiator takes */
	uint64_t unsignalled_bytes;
	uint8_t *tx_hdr;	/* [sq_depth][ISER_TX_HDR], in ->ffp_mem */
	uint8_t *slots;		/* [nslots][slot_len] */
	uint16_t free_slot[ISER_SLOTS];
	uint16_t nfree_slots, nslots;
	struct iser_mem *login_mem, *ffp_mem;
	struct iser_wr *sq;	/* [sq_depth], a power of two */
	/* ---- main's ---- */
	struct loop *main;
	struct list all;
	struct iser_cm_caps caps;
	bool small_ring;
	struct loop_msg cm_msg, bye;
	_Atomic unsigned cm_bits;
	_Atomic bool cm_posted;
	bool deaf;		/* told nothing any more: it is about to be freed */
};

static inline struct iser_conn *iser_of(struct iscsi_conn *conn)
{
	return container_of(conn, struct iser_conn, conn);
}

/* Tags of the command, as handed through conn->rx_word and task->tp_word. */
enum { TAG_FLAGS, TAG_WRITE_VA, TAG_READ_VA, TAG_STAGS };
static inline uint32_t tag_write_stag(const uint64_t *w)
{
	return (uint32_t)w[TAG_STAGS];
}
static inline uint32_t tag_read_stag(const uint64_t *w)
{
	return (uint32_t)(w[TAG_STAGS] >> 32);
}

/* state.c: performs and logs a transition; false: out of place, and the connection ends. */
bool iser_event(struct iser_conn *ic, enum iser_event ev);
const char *iser_state_name(enum iser_state s);

/* cm.c; main */
/* Connections that come are @transport's. */
int iser_cm_open(struct loop *main, struct iscsi_transport *transport);
void iser_cm_close(void);
int iser_listen(struct loop *main, const struct sockaddr *addr, socklen_t len, uint16_t tpgt,
		void **portal);
void iser_unlisten(void *portal);
extern const struct iser_dev_hooks iser_cm_dev_hooks;

/* qp.c */
/* From main to the connection's loop; nothing once that loop has said that it is done. */
void iser_cm_tell(struct iser_conn *ic, unsigned bits);
struct iser_conn *iser_conn_new(struct iser_dev *dev, struct rdma_cm_id *id,
				const struct rdma_conn_param *param);
void iser_free(struct iscsi_conn *conn);
void iser_describe(const struct iscsi_conn *conn, char *text, size_t size);
/* Takes a connection that was never shown to the core apart. */
void iser_conn_destroy(struct iser_conn *ic);
void iser_attach(struct iscsi_conn *conn);
void iser_detach(struct iscsi_conn *conn);
void iser_close(struct iscsi_conn *conn, bool want_flush);
int iser_cq_start(struct iser_conn *ic, struct loop *loop);

/* login.c; main */
void iser_limits(const struct iscsi_conn *conn, struct iscsi_limits *out);
/* How many receives an initiator that keeps to the window may need at once. A command may bring
 * @unsolicited bytes of Data-Out, in PDUs of @dsl bytes. */
uint32_t iser_ring_size(const struct iscsi_conn *conn, uint32_t unsolicited, uint32_t dsl);
/* Registered memory of a connection in full feature phase. */
size_t iser_ffp_bytes(uint32_t sq_depth, uint32_t receives, uint32_t dsl, unsigned slots);
int iser_login_prepare(struct iser_conn *ic);
int iser_ffp_prepare(struct iscsi_conn *conn);
void iser_login_recv(struct iser_conn *ic);

/* recv.c */
void iser_rx_done(struct iser_conn *ic, struct iser_rx *rx, uint32_t len);
void iser_rx_post(struct iser_conn *ic);
void iser_rx_resume(struct iscsi_conn *conn);

/* data.c */
void iser_send_pdu(struct iscsi_conn *conn, struct iscsi_pdu *pdu);
void iser_send_data(struct iscsi_conn *conn, struct iscsi_pdu *pdu);
void iser_fetch(struct iscsi_task *task, struct scsi_seg *seg, uint64_t off, uint32_t len);
void iser_data_init(struct iser_conn *ic);
/* The completion of the work request with this number has come: it and
 * all before it are through. */
void iser_sq_done(struct iser_conn *ic, uint64_t number, bool ok);
/* Everything that was never posted goes back. The send queue is empty. */
void iser_data_drop(struct iser_conn *ic);

#endif
