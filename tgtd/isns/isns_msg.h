/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * iSNSP messages (RFC 4171 5). isns_msg.c makes what a target registers, asks and deregisters.
 * isns_parse.c reads what a server answers, and what it asks of us. Bytes in, bytes out; no
 * sockets.
 */
#ifndef TGTD_ISNS_ISNS_MSG_H
#define TGTD_ISNS_ISNS_MSG_H

#include <netinet/in.h>
#include "events/base.h"

#define ISNS_HEADER 12
#define ISNS_PAYLOAD_MAX 65532 /* a length of 16 bits that is a multiple of four */

enum isns_function {
	ISNS_DEV_ATTR_REG = 0x0001,
	ISNS_DEV_ATTR_QRY = 0x0002,
	ISNS_DEV_DEREG = 0x0004,
	ISNS_SCN_REG = 0x0005,
	ISNS_SCN = 0x0008,
	ISNS_ESI = 0x000d,
	ISNS_RESPONSE = 0x8000, /* or-ed in */
};

/* RFC 4171 5.4 */
enum isns_status {
	ISNS_SUCCESS = 0,
	ISNS_FORMAT_ERROR = 2,
	ISNS_NO_SUCH_ENTRY = 9,
	ISNS_NOT_SUPPORTED = 15, /* the function */
	ISNS_NOT_IMPLEMENTED = 18, /* an attribute */
	ISNS_ESI_NOT_AVAILABLE = 21,
};

/* RFC 4171 6.1: tags */
enum isns_tag {
	ISNS_TAG_DELIMITER = 0,
	ISNS_TAG_ENTITY = 1,
	ISNS_TAG_ENTITY_PROTOCOL = 2,
	ISNS_TAG_REGISTRATION_PERIOD = 6,
	ISNS_TAG_PORTAL_IP = 16,
	ISNS_TAG_PORTAL_PORT = 17,
	ISNS_TAG_ESI_INTERVAL = 19,
	ISNS_TAG_ESI_PORT = 20,
	ISNS_TAG_SCN_PORT = 23,
	ISNS_TAG_ISCSI_NAME = 32,
	ISNS_TAG_ISCSI_NODE_TYPE = 33,
	ISNS_TAG_SCN_BITMAP = 35,
	ISNS_TAG_PG_PORTAL_IP = 49,
	ISNS_TAG_PG_PORTAL_PORT = 50,
	ISNS_TAG_PG_TAG = 51,
};

/* RFC 4171 6.4.4: whose changes a node is told of, and which */
enum isns_scn {
	ISNS_SCN_INITIATORS_AND_SELF = 0x80,
	ISNS_SCN_REMOVED = 0x10,
	ISNS_SCN_ADDED = 0x08,
	ISNS_SCN_UPDATED = 0x04,
};

struct isns_portal {
	struct in6_addr addr; /* IPv4 mapped into IPv6, as the protocol has it */
	uint16_t port, tpgt;
};

struct isns_msg {
	uint8_t buf[ISNS_HEADER + ISNS_PAYLOAD_MAX];
	uint32_t len;
	bool full; /* something did not fit; the message is of no use */
};

/* Starts a DevAttrReg of @entity; @source is one of its nodes. With @replace it has the entity's
 * own attributes, and the server forgets what it knew of it. Without, it adds nodes. @period_s: how
 * long it holds unrefreshed. */
void isns_reg_begin(struct isns_msg *m, uint16_t xid, const char *entity, const char *source,
		    bool replace, uint32_t period_s);
/* Where the server may ask whether we live, and say what has changed: TCP ports at each
 * portal's address; 0: nowhere. */
struct isns_ports {
	uint16_t esi, scn;
	uint32_t esi_interval_s;
};
void isns_reg_portal(struct isns_msg *m, const struct isns_portal *p,
		     const struct isns_ports *ports);
/* A target. It can be reached by those of the @n (64 at most) @portals whose bits are set in @at.
 * That it is in portal group 1 of a portal needs no saying; that it is not there does (RFC 4171
 * 3.4). */
void isns_reg_node(struct isns_msg *m, const char *name, const struct isns_portal *portals,
		   unsigned n, uint64_t at);
/* A DevDereg of all of @entity. */
void isns_dereg(struct isns_msg *m, uint16_t xid, const char *entity, const char *source);
/* An SCNReg: node @name is told of what @bitmap (enum isns_scn) says. */
void isns_scn_reg(struct isns_msg *m, uint16_t xid, const char *name, uint32_t bitmap);
/* A DevAttrQry for the portals and nodes of @entity, by its node @source. */
void isns_query_entity(struct isns_msg *m, uint16_t xid, const char *source, const char *entity);
/* A DevAttrQry for the initiators that share a discovery domain with @source. */
void isns_query_initiators(struct isns_msg *m, uint16_t xid, const char *source);
/* Fills in the length. False when it did not all fit. */
bool isns_end(struct isns_msg *m) must_check;

/* ---- what comes in --------------------------------------------------------------------------- */

/* A message in the making: its PDUs' payloads, one behind the other (RFC 4171 5.1: sequence). */
struct isns_in {
	uint8_t head[ISNS_HEADER];
	uint32_t have; /* bytes of the PDU that is under way, with its header */
	uint8_t *payload;
	uint32_t len, room, max;
	uint16_t function, xid, next_seq;
	bool whole;
};
/* @max: longer messages are refused. */
void isns_in_init(struct isns_in *in, uint32_t max);
/* Ready for the next message; the memory stays. */
void isns_in_again(struct isns_in *in);
void isns_in_free(struct isns_in *in);
/* Takes up to @n bytes, *used of them. 0: @in holds a whole message; -EAGAIN: more is needed;
 * -EPROTO: it is none; -EMSGSIZE: too long; -ENOMEM. After an error @in is of no use but for
 * isns_in_free(). */
int isns_in_feed(struct isns_in *in, const uint8_t *bytes, uint32_t n, uint32_t *used) must_check;

struct isns_attr {
	uint32_t tag, len;
	const uint8_t *value;
};
/* The attribute at *at, which moves on. 1; 0: there is none any more; -EPROTO. */
int isns_attr_next(const uint8_t *payload, uint32_t len, uint32_t *at,
		   struct isns_attr *a) must_check;
/* Its value as text that ends within it; NULL: it is none. */
const char *isns_attr_text(const struct isns_attr *a);

/* Is the whole message @in the answer to @function, @xid? -EPROTO or 0 and
 * *status (enum isns_status). */
int isns_answer(const struct isns_in *in, uint16_t function, uint16_t xid,
		uint32_t *status) must_check;
/* The attributes of an answer behind its key: fn() for each. 0 or -EPROTO
 * (fn may have been called). */
int isns_answer_each(const struct isns_in *in, void (*fn)(const struct isns_attr *a, void *arg),
		     void *arg) must_check;

/* What we know of ourselves, for isns_serve(). */
struct isns_self {
	const char *entity;
	bool (*has_node)(const char *name, void *arg);
	void *arg;
};
/* Makes the answer to a request of the server in @m: to ESI (RFC 4171 5.6.5.13) and SCN (5.6.5.8).
 * Any other function is answered as not supported. *changed: an SCN for one of our nodes came. 0,
 * or -EPROTO: it is no request. */
int isns_serve(const struct isns_in *in, const struct isns_self *self, struct isns_msg *m,
	       bool *changed) must_check;

/* ---- for the two files ----------------------------------------------------------------------- */
void isns_begin(struct isns_msg *m, uint16_t function, uint16_t flags, uint16_t xid);
void isns_put(struct isns_msg *m, const void *bytes, uint32_t len); /* a multiple of 4 */
void isns_put_text(struct isns_msg *m, uint32_t tag, const char *text);

#endif
