/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * iSNSP messages (RFC 4171 5): what a target registers of itself, what takes it back, and whether a server's
 * answer is one. Bytes in, bytes out; no sockets, no memory of its own.
 */
#ifndef ADMIN_ISNS_MSG_H
#define ADMIN_ISNS_MSG_H

#include <netinet/in.h>
#include "events/base.h"

#define ISNS_PORT 3205
#define ISNS_HEADER 12
#define ISNS_PAYLOAD_MAX 65532 /* a length of 16 bits that is a multiple of four */

enum isns_function {
	ISNS_DEV_ATTR_REG = 0x0001,
	ISNS_DEV_DEREG = 0x0004,
	ISNS_RESPONSE = 0x8000, /* or-ed in */
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

/* Starts a DevAttrReg of @entity, @source being one of its nodes: with the entity's own attributes and @replace
 * (what the server knows of it is forgotten), or to add nodes to it. @period_s: how long it holds unrefreshed. */
void isns_reg_begin(struct isns_msg *m, uint16_t xid, const char *entity, const char *source, bool replace,
		    uint32_t period_s);
void isns_reg_portal(struct isns_msg *m, const struct isns_portal *p);
/* A target, reached by portal groups other than 1 only as @portals say (1 needs no saying). */
void isns_reg_node(struct isns_msg *m, const char *name, const struct isns_portal *portals, unsigned n);
/* A DevDereg of all of @entity. */
void isns_dereg(struct isns_msg *m, uint16_t xid, const char *entity, const char *source);
/* Fills in the length. False when it did not all fit. */
bool isns_end(struct isns_msg *m) must_check;

/* A server's answer to @function, @xid, of which @len bytes are there. -EAGAIN: more is needed; -EPROTO:
 * it is none; 0 and *status (RFC 4171 5.4: 0 is success). */
int isns_answer(const uint8_t *buf, uint32_t len, uint16_t function, uint16_t xid, uint32_t *status) must_check;

#endif
