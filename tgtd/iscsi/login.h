/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The login phase of one connection (RFC 7143 clause 6.3, 11.12, 11.13), and text exchanges:
 * SendTargets, renegotiation (11.10, 11.11). Pure functions over complete PDUs: a request goes in,
 * a response comes out. No sockets, so TCP and iSER, unit tests and fuzzers use the same code.
 *
 * Threads: a login runs on the main loop; a text exchange on the connection's own loop.
 */
#ifndef TGTD_ISCSI_LOGIN_H
#define TGTD_ISCSI_LOGIN_H

#include <sys/socket.h>
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/iscsi/listing.h"
#include "tgtd/iscsi/params.h"
#include "tgtd/iscsi/text.h"

/* RFC 7143 11.13.5: status class << 8 | detail */
enum iscsi_login_status {
	LOGIN_OK = 0x0000,
	LOGIN_MOVED_TEMPORARILY = 0x0101,
	LOGIN_MOVED_PERMANENTLY = 0x0102,
	LOGIN_INITIATOR_ERROR = 0x0200,
	LOGIN_AUTH_FAILURE = 0x0201,
	LOGIN_AUTHORIZATION_FAILURE = 0x0202,
	LOGIN_NOT_FOUND = 0x0203,
	LOGIN_TARGET_REMOVED = 0x0204,
	LOGIN_UNSUPPORTED_VERSION = 0x0205,
	LOGIN_TOO_MANY_CONNECTIONS = 0x0206,
	LOGIN_MISSING_PARAMETER = 0x0207,
	LOGIN_CANNOT_INCLUDE = 0x0208,
	LOGIN_SESSION_TYPE_UNSUPPORTED = 0x0209,
	LOGIN_NO_SESSION = 0x020a,
	LOGIN_INVALID_DURING_LOGIN = 0x020b,
	LOGIN_TARGET_ERROR = 0x0300,
	LOGIN_SERVICE_UNAVAILABLE = 0x0301,
	LOGIN_OUT_OF_RESOURCES = 0x0302,
	/* Not on the wire: establish() cannot say yet (the session being
	 * reinstated is still ending). */
	LOGIN_PENDING = 0xffff,
};

struct iscsi_login;

struct iscsi_login_ops {
	/* The last check before full feature phase finds or makes the session. TSIH 0: a new one,
	 * which reinstates one with the same initiator port name. Other TSIH: adds or reinstates
	 * connection CID. Sets login->tsih. Returns LOGIN_OK, the status to refuse with, or
	 * LOGIN_PENDING: then no reply is made (LOGIN_WAIT) and iscsi_login_resume() will ask
	 * again. */
	uint16_t (*establish)(struct iscsi_login *login);
	/* ExpCmdSN and MaxCmdSN for the responses of this connection. */
	void (*window)(struct iscsi_login *login, uint32_t *exp_cmd_sn, uint32_t *max_cmd_sn);
	/* Both or none: a CHAP response for account @user is about to be verified. LOGIN_OK, a
	 * status to refuse with, or LOGIN_PENDING as above. And: it was wrong. */
	uint16_t (*may_try)(struct iscsi_login *login, const char *user);
	void (*try_failed)(struct iscsi_login *login, const char *user);
};

#define LOGIN_REPLY_MAX 8192

/* One response PDU. */
struct iscsi_reply {
	uint8_t bhs[48];
	uint8_t data[LOGIN_REPLY_MAX + 4]; /* padded */
	uint32_t data_len;		   /* unpadded */
};

struct iscsi_login {
	/* ---- set by the creator ---- */
	const struct iscsi_login_ops *ops;
	void *conn;
	struct sockaddr_storage peer, local;
	bool iser;
	struct iscsi_limits limits; /* iSER: the transport's */
	uint16_t tpgt; /* of the portal */

	/* ---- results, valid once they are known; all at LOGIN_DONE ---- */
	char initiator[ISCSI_NAME_MAX + 1];
	char initiator_alias[TEXT_VALUE_MAX + 1];
	char target_name[ISCSI_NAME_MAX + 1];
	struct scsi_target *target; /* NULL for discovery */
	bool discovery;
	uint8_t isid[6];
	uint16_t tsih, cid;
	uint32_t cmd_sn;   /* first CmdSN of full feature phase (leading connection) */
	uint32_t stat_sn;  /* next StatSN of this connection */
	uint16_t status;   /* enum iscsi_login_status of the last response */
	char why[96];	   /* after LOGIN_FAILED: for people */
	struct iscsi_params params;

	/* ---- private ---- */
	struct iscsi_offer offer;
	struct iscsi_nego nego;
	struct text_in in;
	struct text_out out;
	uint8_t stage; /* CSG now */
	bool started, names_done, auth_required;
	uint32_t itt;
	unsigned exchanges;
	struct iscsi_auth *auth;
	uint8_t pending_transit; /* C-bit: flags of the request being assembled */
	uint8_t waiting_bhs[48]; /* the request that waits in establish() or may_try() */
	bool try_waits;		 /* in may_try() */
};

enum login_outcome {
	LOGIN_CONTINUE, /* send the reply, expect another request */
	LOGIN_DONE,	/* send the reply, full feature phase begins after it */
	LOGIN_FAILED,	/* send the reply, then close */
	LOGIN_DROP,	/* close without a reply */
	LOGIN_WAIT,	/* no reply yet, take no further request: iscsi_login_resume() follows */
};

/* @ops and @conn stay until iscsi_login_fini(); the addresses are copied. Never fails: memory is
 * taken as it is needed. */
void iscsi_login_init(struct iscsi_login *l, const struct iscsi_login_ops *ops, void *conn,
		      const struct sockaddr_storage *peer, const struct sockaddr_storage *local,
		      bool iser, uint16_t tpgt);
void iscsi_login_fini(struct iscsi_login *l);
/* One Login Request: @bhs is 48 bytes, @data its data segment (unpadded length @len). */
enum login_outcome iscsi_login_rx(struct iscsi_login *l, const uint8_t *bhs, const uint8_t *data,
				  uint32_t len, struct iscsi_reply *reply) must_check;
/* After LOGIN_WAIT: calls establish() or may_try() again, and goes on from there. The same
 * outcomes. */
enum login_outcome iscsi_login_resume(struct iscsi_login *l, struct iscsi_reply *reply) must_check;
/* A refusal made outside of the exchange (time-out, limits). */
void iscsi_login_refuse(struct iscsi_login *l, const uint8_t *bhs, enum iscsi_login_status status,
			struct iscsi_reply *reply);

/* ---- text requests in full feature phase ----------------------------------------------------- */
struct iscsi_text {
	struct text_in in;
	struct text_out out;
	struct listing_cursor list; /* discovery: SendTargets' answer, which goes through @out */
	uint32_t ttt;	 /* of the exchange under way, 0xffffffff none */
	uint32_t itt;
	bool answering;	 /* cutting @out, and what @list has, into PDUs */
	bool final_asked;
	/* The negotiation under way. Its results are in force when it has ended well (7.12). */
	struct iscsi_nego nego;
	struct iscsi_params params;
};

/* What a text exchange needs to know of its connection. */
struct iscsi_text_ctx {
	bool discovery, iser;
	struct scsi_target *target;	/* of a normal session */
	const char *initiator;
	const struct sockaddr *peer, *local;
	struct iscsi_params *params;	/* renegotiated when an exchange ends */
	const struct iscsi_offer *offer;
	uint16_t tpgt;			/* of the portal in use */
	uint32_t max_data;		/* largest data segment we may send */
	int *budget;			/* of listing_fill(); NULL: no limit */
};

enum text_outcome {
	TEXT_REPLY,
	TEXT_REJECT_PROTOCOL,
	TEXT_REJECT_INVALID_FIELD,
	TEXT_REJECT_RESOURCES,
	TEXT_NOT_YET, /* the budget is used up: iscsi_text_resume() follows, before any request */
};

/* On the connection's loop; the exchange under way, if any, is forgotten by fini. */
void iscsi_text_init(struct iscsi_text *t);
void iscsi_text_fini(struct iscsi_text *t);
/* One Text Request. Fills @reply_bhs except StatSN, ExpCmdSN, MaxCmdSN; *data stays valid until the
 * next call. */
enum text_outcome iscsi_text_rx(struct iscsi_text *t, const struct iscsi_text_ctx *ctx,
				const uint8_t *bhs, const uint8_t *data, uint32_t len,
				uint8_t *reply_bhs, const char **out, uint32_t *out_len) must_check;
/* After TEXT_NOT_YET: goes on with the same request. The same outcomes. */
enum text_outcome iscsi_text_resume(struct iscsi_text *t, const struct iscsi_text_ctx *ctx,
				    const uint8_t *bhs, uint8_t *reply_bhs, const char **out,
				    uint32_t *out_len) must_check;

/* The target's offer (its configured session keys); a copy. Any thread. */
void iscsi_target_offer(struct scsi_target *t, struct iscsi_offer *out);

#endif
