/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The seam between the iSCSI core and what moves its bytes: TCP (tgtd/tcp) and iSER (iser/).
 *
 * It is cut at the command. The core builds headers, and keeps CmdSN, StatSN and tasks. It knows
 * where the data of a command lies (scsi_seg fragments in arena blocks). A transport moves bytes,
 * and tells when it is done with them. Digests, padding and segmentation into Data-In PDUs exist on
 * TCP only; tagged buffers exist on iSER only.
 *
 *                       TCP                                       iSER (RFC 7145)
 *   received PDU        parsed from the stream, data straight     control-type PDU in a receive
 *                       into the sink: iscsi_rx_begin/_end        buffer: iscsi_rx_pdu()
 *   data-out            unsolicited Data-Out, then R2T and        unsolicited Data-Out when agreed
 *                       Data-Out (->fetch is NULL,                on, then ->fetch: RDMA read
 *                       dataout.c does it)
 *   data-in             Data-In PDUs, last one with status        RDMA write
 *   status              in the last Data-In, or SCSI Response     SCSI Response in a send
 *   control PDUs        ->send_pdu                                ->send_pdu
 *
 * Life of a connection:
 *   main loop: the transport accepts, allocates its own structure with a struct iscsi_conn
 *   embedded, iscsi_conn_init(), then feeds login PDUs. When login succeeds the core calls
 *   ->ffp_prepare, sends the final response and, when that PDU is done, ->detach on main, ->attach
 *   on the session's loop (by message). From there on everything happens on conn->loop, until
 *   iscsi_conn_closed(). ->free follows on main, where the memory came from.
 *
 * A connection is ended by iscsi_conn_fail() (transport or core found something wrong) or by the
 * core (logout, reset). Either way the core calls ->close once. The transport then stops moving
 * bytes and gives everything back in the ordinary way: pdu->done, iscsi_fetched with -ECANCELED,
 * sent segments. That may be later, while the adapter is still at work. It calls
 * iscsi_conn_closed() last.
 */
#ifndef TGTD_ISCSI_TRANSPORT_H
#define TGTD_ISCSI_TRANSPORT_H

#include <sys/socket.h>
#include "tgtd/iscsi/pdu.h"
#include "tgtd/scsi/cmd.h"

struct iscsi_conn;
struct iscsi_limits;
struct iscsi_task;

/* ---- one outgoing PDU ------------------------------------------------------------------------ */
enum iscsi_pdu_kind {
	PDU_CONTROL, /* bhs + data */
	PDU_RESPONSE,/* SCSI Response of ->task: bhs + data (sense) */
	PDU_DATA_IN, /* bytes of ->seg; TCP makes headers with iscsi_datain_header() */
};

enum {
	PDU_F_STAT_SN = 1 << 0,	  /* takes the next StatSN */
	PDU_F_SN_ONLY = 1 << 1,	  /* carries the next StatSN without taking it (NOP-In ping, R2T) */
	PDU_F_STATUS = 1 << 2,	  /* PDU_DATA_IN: the last one carries
				   * the status (phase collapse) */
	PDU_F_LAST = 1 << 3,	  /* PDU_DATA_IN: nothing of the data follows */
	PDU_F_NO_WINDOW = 1 << 4, /* login: the core has filled all fields */
	PDU_F_RESENT = 1 << 5,	  /* again, as it was the first time (SNACK) */
	PDU_F_FAST = 1 << 6,	  /* the one PDU that answers an ordinary command (fast.h): its
				   * header may be made with the batch. Never on iSER */
	PDU_F_FENCE = 1 << 7,	  /* a ping whose StatSN is to be acknowledged (fence.h) */
};

/* The core owns it before send and after done(); in between the
 * transport does. It stays in place. */
struct iscsi_pdu {
	struct list link;	/* the transport's send queue */
	uint8_t kind;		/* enum iscsi_pdu_kind */
	uint8_t flags;
	uint32_t data_len;	/* unpadded data segment of CONTROL and RESPONSE */
	const uint8_t *data;
	struct iscsi_task *task; /* NULL for CONTROL */
	struct scsi_seg *seg;	/* DATA_IN */
	uint32_t seg_off;	/* DATA_IN: the transport's progress in the segment */
	uint32_t seg_end;	/* DATA_IN: where to stop (SNACK sends part of a segment again) */
	void (*done)(struct iscsi_pdu *pdu); /* the wire has the bytes, or
					      * the connection is closing */
	uint32_t stat_sn;	/* as stamped, with PDU_F_STAT_SN */
	uint8_t bhs[ISCSI_BHS_LEN];
	uint8_t bhs_digest[4];	/* the transport's, behind the BHS so that one iovec carries both */
	uint8_t pad_digest[8];	/* the transport's: padding and data digest */
	uint64_t tp_word[2];	/* the transport's */
};

/* ---- what a transport implements ------------------------------------------------------------- */
struct iscsi_transport {
	const char *name; /* "tcp", "iser" */
	bool iser;
	/* Filled in by iscsi_transport_register(); the second is for conn->flight. */
	const struct scsi_transport_ops *scsi_ops, *flight_ops;

	/* Main loop. */
	/* Listens on @addr for portal group @tpgt; *portal is the transport's handle. 0 or -errno.
	 * NULL when the transport listens by other means. */
	int (*listen)(struct loop *main, const struct sockaddr *addr, socklen_t len, uint16_t tpgt,
		      void **portal);
	void (*unlisten)(void *portal);
	/* Login is about to succeed (conn->params are final): make sure that full feature phase can
	 * be received right after the final response (iSER: buffers posted). 0 or -errno (login
	 * fails with 0302). May be NULL. */
	int (*ffp_prepare)(struct iscsi_conn *conn);
	/* iSER: what the receives of @conn can take. Asked in iscsi_conn_init(). */
	void (*limits)(const struct iscsi_conn *conn, struct iscsi_limits *out);
	/* Leaves conn->loop; nothing is being sent, received bytes that
	 * are not yet parsed are kept. */
	void (*detach)(struct iscsi_conn *conn);
	/* The memory, after iscsi_conn_closed(). On main. */
	void (*free)(struct iscsi_conn *conn);
	/* For the admin's listings: writes what the connection has of its own (iSER: its completion
	 * channel) into @text of @size bytes. One line without a newline. The connection is in full
	 * feature phase, perhaps on another thread: only what does not change may be read. May be
	 * NULL. */
	void (*describe)(const struct iscsi_conn *conn, char *text, size_t size);

	/* conn->loop. */
	void (*attach)(struct iscsi_conn *conn); /* conn->loop is the new one; starts receiving,
						  * unless conn->rx_stopped */
	/* Sends a CONTROL or RESPONSE PDU. Order of calls is order on the wire (with send_data
	 * too). Right before the bytes are fixed the transport calls iscsi_pdu_stamp(). May call
	 * done() from a deferred call, never from inside. */
	void (*send_pdu)(struct iscsi_conn *conn, struct iscsi_pdu *pdu);
	/* Sends the bytes of pdu->seg as Data-In. On TCP the PDU with PDU_F_STATUS carries the
	 * status; on iSER that flag is never set (a RESPONSE follows in the same batch). */
	void (*send_data)(struct iscsi_conn *conn, struct iscsi_pdu *pdu);
	/* Brings bytes [off, off + len) of the Data-Out buffer into @seg (at off - seg->off), then
	 * iscsi_fetched(). NULL: the core solicits them with R2T. */
	void (*fetch)(struct iscsi_task *task, struct scsi_seg *seg, uint64_t off, uint32_t len);
	/* Receiving may go on (conn->rx_stopped became false). */
	void (*rx_resume)(struct iscsi_conn *conn);
	/*
	 * Going on in another process (carry.c); all NULL: connections of this transport end with
	 * theirs. On conn->loop, again and again: begins no further PDU. True: nor is one under
	 * way, and nothing is queued or being sent. conn->rx_stopped stays set until ->rx_resume.
	 */
	bool (*pause)(struct iscsi_conn *conn);
	/* On conn->loop, paused: of what has come meanwhile, as far as there is room for it, the
	 * headers are shown to iscsi_rx_peeked(), perhaps again and again. */
	void (*peek)(struct iscsi_conn *conn);
	/* On conn->loop, paused: leaves it, and is not touched any more. Returns its descriptor.
	 * *bytes and *len: what has been received and not looked at. All stay until the end. */
	int (*leave)(struct iscsi_conn *conn, const uint8_t **bytes, uint32_t *len);
	/* Main: its descriptor, for the keeper; the login is over. */
	int (*socket)(const struct iscsi_conn *conn);
	/* Main: how many bytes were taken from, and given to, that descriptor since it was
	 * connected. False: it cannot be told. */
	bool (*count)(int fd, uint64_t *received, uint64_t *sent);
	/* Main: is @fd what ->leave can have said, still connected, with these addresses? */
	bool (*fits)(int fd, const struct sockaddr_storage *peer,
		     const struct sockaddr_storage *local);
	/* Main: who is at the other end of @fd, whatever that is, hears that it is over, whoever
	 * else has it open. It stays the caller's. */
	void (*reset)(int fd);
	/* Main: a connection of @fd, which it owns, by iscsi_conn_init_carried(). On no loop before
	 * ->attach. NULL: out of memory; @fd is closed. */
	struct iscsi_conn *(*adopt)(struct loop *main, int fd, const struct sockaddr_storage *peer,
				    const struct sockaddr_storage *local, uint16_t tpgt,
				    const uint8_t *bytes, uint32_t len);
	/* Main, after ->adopt: @len bytes, heap memory that it owns, are sent before anything
	 * else. */
	void (*owes)(struct iscsi_conn *conn, uint8_t *bytes, uint32_t len);
	/* Main, after ->adopt without bytes: @len bytes that come first are thrown away. */
	void (*skips)(struct iscsi_conn *conn, uint32_t len);
	/* See above. @flush: what is queued should still leave (logout response, reject), within
	 * the transport's own deadline; otherwise at once. */
	void (*close)(struct iscsi_conn *conn, bool flush);
};

/* Makes @tp known (portals will ask it to listen, when it can). Main, before iscsi_start(). */
void iscsi_transport_register(struct iscsi_transport *tp);

/* ---- what the core offers to transports ------------------------------------------------------ */

/* May one more connection come in (limits)? Main. */
bool iscsi_conn_admit(const struct sockaddr *peer);
/* Starts the life of a connection accepted on the main loop; the login timer runs from here. */
void iscsi_conn_init(struct iscsi_conn *conn, const struct iscsi_transport *tp, struct loop *main,
		     const struct sockaddr_storage *peer, const struct sockaddr_storage *local,
		     uint16_t tpgt);
/* The same for one that had its login in another process. */
void iscsi_conn_init_carried(struct iscsi_conn *conn, const struct iscsi_transport *tp,
			     struct loop *main, const struct sockaddr_storage *peer,
			     const struct sockaddr_storage *local, uint16_t tpgt);
/* Ends a connection: broken transport, time-out, foreign bytes beyond repair. @why is logged. Safe
 * to call at any time and more than once, also from inside an up-call. ->close is called before it
 * returns, or right after the present up-call. */
void iscsi_conn_fail(struct iscsi_conn *conn, const char *why);
/* ->close has been carried out: nothing of @conn is with the transport any more. */
void iscsi_conn_closed(struct iscsi_conn *conn);

/*
 * Receiving. begin() takes a header (BHS and @ahs_len bytes of AHS, digests verified) and says
 * where its data segment goes: conn->sink. The transport puts data_len bytes (without padding)
 * there and calls end(). Both may start commands, send PDUs and end the connection. Between
 * begin() and end() the sink may turn into SINK_DISCARD (its command was aborted): look at it anew
 * at each use.
 *
 * After each end() look at conn->rx_stopped: when set, begin() nothing until ->rx_resume. A PDU
 * that has begun is always received to its end.
 */
enum iscsi_sink_kind { SINK_DISCARD, SINK_FRAGS, SINK_FLAT };
struct iscsi_sink {
	uint8_t kind;		/* enum iscsi_sink_kind */
	uint64_t off;		/* SINK_FRAGS: where in frags */
	const struct frags *frags;
	uint8_t *flat;		/* SINK_FLAT */
};

/* iscsi_rx_max_data() (conn.h): the longest data segment that a header may announce now; larger
 * ends the connection. iscsi_rx_open(): without data, end() is needed only when this is true. */
/* False: the connection has ended (do not touch it any more in this up-call). */
bool iscsi_rx_begin(struct iscsi_conn *conn, const uint8_t *bhs, const uint8_t *ahs,
		    uint32_t ahs_len) must_check;
/* @digest_ok: the data digest was right, or there is none. False as above. */
bool iscsi_rx_end(struct iscsi_conn *conn, bool digest_ok) must_check;
/* conn->quiet is there, and @conn at a PDU's border both ways: nothing is unparsed, queued or being
 * sent. So many bytes were taken from, and given to, its socket since it was connected. */
void iscsi_quiet_point(struct iscsi_conn *conn, uint64_t received, uint64_t sent);
/* conn->flight is there: what is recorded of the session holds again (quiet.c). */
void iscsi_quiet_refresh(struct iscsi_conn *conn);
/* A PDU that will be begun later has @bhs: what it acknowledges is so already. */
void iscsi_rx_peeked(struct iscsi_conn *conn, const uint8_t *bhs);
/* @len bytes at @off of the data segment go where the sink says. */
void iscsi_sink_copy(struct iscsi_conn *conn, uint32_t off, const uint8_t *src, uint32_t len);
/* A whole PDU at once, the data being in memory: begin, copy, end. */
bool iscsi_rx_pdu(struct iscsi_conn *conn, const uint8_t *bhs, const uint8_t *ahs, uint32_t ahs_len,
		  const uint8_t *data, uint32_t data_len) must_check;
/* A header digest did not match. ERL 0 ends the connection; so does this core at ERL 1, for without
 * the header the length is unknown (RFC 7143 7.7). */
void iscsi_rx_header_digest_error(struct iscsi_conn *conn);

/* Fills StatSN, ExpCmdSN and MaxCmdSN into @bhs as the PDU goes out, and gives the command's place
 * in the window back with its last PDU. Call once per PDU, in wire order: a DATA_IN calls it
 * through iscsi_datain_header(). */
void iscsi_pdu_stamp(struct iscsi_conn *conn, struct iscsi_pdu *pdu, uint8_t *bhs);
/* TCP: the header of the next Data-In PDU of @pdu, of at most @max and MaxRecvDataSegmentLength
 * bytes and not across a burst; advances pdu->seg_off. Returns its data length; 0: a PDU that is
 * sent again does not fit into @max (it must be as it was). Complete when seg_off == seg_end. */
uint32_t iscsi_datain_header(struct iscsi_conn *conn, struct iscsi_pdu *pdu, uint8_t *bhs,
			     uint32_t max);
/* ->fetch is through with [off, off + len): 0 or -errno. */
void iscsi_fetched(struct iscsi_task *task, struct scsi_seg *seg, uint64_t off, uint32_t len,
		   int status);

#endif
