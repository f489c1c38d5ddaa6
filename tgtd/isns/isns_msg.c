/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See isns_msg.h. */
#include <string.h>

#include "events/bytes.h"
#include "tgtd/isns/isns_msg.h"

/* RFC 4171 5.1.4: flags. The whole message is one PDU. */
enum { FLAG_CLIENT = 0x8000, FLAG_REPLACE = 0x1000, FLAG_LAST = 0x0800, FLAG_FIRST = 0x0400 };

enum { PROTOCOL_ISCSI = 2 };
enum { NODE_TARGET = 1, NODE_INITIATOR = 2 }; /* 6.4.2 */

static void attr(struct isns_msg *m, uint32_t tag, const void *value, uint32_t len)
{
	uint32_t padded = (len + 3) & ~3u;

	if (m->full || sizeof(m->buf) - m->len < 8 + padded) {
		m->full = true;
		return;
	}
	put_be32(m->buf + m->len, tag);
	put_be32(m->buf + m->len + 4, padded);
	memset(m->buf + m->len + 8, 0, padded);
	if (len)
		memcpy(m->buf + m->len + 8, value, len);
	m->len += 8 + padded;
}

/* Strings are NUL terminated and padded with NULs, which count (6: attributes). */
void isns_put_text(struct isns_msg *m, uint32_t tag, const char *text)
{
	attr(m, tag, text, (uint32_t)strlen(text) + 1);
}

static void attr_u32(struct isns_msg *m, uint32_t tag, uint32_t value)
{
	uint8_t v[4];

	put_be32(v, value);
	attr(m, tag, v, 4);
}

void isns_put(struct isns_msg *m, const void *bytes, uint32_t len)
{
	if (m->full || sizeof(m->buf) - m->len < len) {
		m->full = true;
		return;
	}
	if (len)
		memcpy(m->buf + m->len, bytes, len);
	m->len += len;
}

void isns_begin(struct isns_msg *m, uint16_t function, uint16_t flags, uint16_t xid)
{
	m->full = false;
	m->len = ISNS_HEADER;
	put_be16(m->buf, 1); /* version */
	put_be16(m->buf + 2, function);
	put_be16(m->buf + 6, flags | FLAG_CLIENT | FLAG_FIRST | FLAG_LAST);
	put_be16(m->buf + 8, xid);
	put_be16(m->buf + 10, 0); /* the only one of its sequence */
}

void isns_reg_begin(struct isns_msg *m, uint16_t xid, const char *entity, const char *source,
		    bool replace, uint32_t period_s)
{
	isns_begin(m, ISNS_DEV_ATTR_REG, replace ? FLAG_REPLACE : 0, xid);
	/* 5.6.1: source, message key, delimiter, operating attributes */
	isns_put_text(m, ISNS_TAG_ISCSI_NAME, source);
	isns_put_text(m, ISNS_TAG_ENTITY, entity);
	attr(m, ISNS_TAG_DELIMITER, NULL, 0);
	isns_put_text(m, ISNS_TAG_ENTITY, entity);
	if (!replace)
		return;
	attr_u32(m, ISNS_TAG_ENTITY_PROTOCOL, PROTOCOL_ISCSI);
	attr_u32(m, ISNS_TAG_REGISTRATION_PERIOD, period_s);
}

void isns_reg_portal(struct isns_msg *m, const struct isns_portal *p,
		     const struct isns_ports *ports)
{
	attr(m, ISNS_TAG_PORTAL_IP, &p->addr, 16);
	attr_u32(m, ISNS_TAG_PORTAL_PORT, p->port);
	/* 6.3.5, 6.3.7: no bit but the port's means TCP */
	if (ports->esi) {
		attr_u32(m, ISNS_TAG_ESI_INTERVAL, ports->esi_interval_s);
		attr_u32(m, ISNS_TAG_ESI_PORT, ports->esi);
	}
	if (ports->scn)
		attr_u32(m, ISNS_TAG_SCN_PORT, ports->scn);
}

void isns_reg_node(struct isns_msg *m, const char *name, const struct isns_portal *portals,
		   unsigned n, uint64_t at)
{
	isns_put_text(m, ISNS_TAG_ISCSI_NAME, name);
	attr_u32(m, ISNS_TAG_ISCSI_NODE_TYPE, NODE_TARGET);
	for (unsigned i = 0; i < n; i++) {
		const bool there = at >> i & 1;

		if (there && portals[i].tpgt == 1)
			continue;
		attr(m, ISNS_TAG_PG_PORTAL_IP, &portals[i].addr, 16);
		attr_u32(m, ISNS_TAG_PG_PORTAL_PORT, portals[i].port);
		/* 6.5.3: a tag that is NULL is one of no length */
		if (there)
			attr_u32(m, ISNS_TAG_PG_TAG, portals[i].tpgt);
		else
			attr(m, ISNS_TAG_PG_TAG, NULL, 0);
	}
}

void isns_dereg(struct isns_msg *m, uint16_t xid, const char *entity, const char *source)
{
	isns_begin(m, ISNS_DEV_DEREG, 0, xid);
	isns_put_text(m, ISNS_TAG_ISCSI_NAME, source);
	attr(m, ISNS_TAG_DELIMITER, NULL, 0);
	isns_put_text(m, ISNS_TAG_ENTITY, entity);
}

void isns_scn_reg(struct isns_msg *m, uint16_t xid, const char *name, uint32_t bitmap)
{
	isns_begin(m, ISNS_SCN_REG, 0, xid);
	isns_put_text(m, ISNS_TAG_ISCSI_NAME, name); /* source, and key */
	isns_put_text(m, ISNS_TAG_ISCSI_NAME, name);
	attr(m, ISNS_TAG_DELIMITER, NULL, 0);
	attr_u32(m, ISNS_TAG_SCN_BITMAP, bitmap);
}

void isns_query_entity(struct isns_msg *m, uint16_t xid, const char *source, const char *entity)
{
	isns_begin(m, ISNS_DEV_ATTR_QRY, 0, xid);
	isns_put_text(m, ISNS_TAG_ISCSI_NAME, source);
	isns_put_text(m, ISNS_TAG_ENTITY, entity);
	attr(m, ISNS_TAG_DELIMITER, NULL, 0);
	/* without values: what is asked for */
	attr(m, ISNS_TAG_PORTAL_IP, NULL, 0);
	attr(m, ISNS_TAG_PORTAL_PORT, NULL, 0);
	attr(m, ISNS_TAG_ISCSI_NAME, NULL, 0);
}

void isns_query_initiators(struct isns_msg *m, uint16_t xid, const char *source)
{
	isns_begin(m, ISNS_DEV_ATTR_QRY, 0, xid);
	isns_put_text(m, ISNS_TAG_ISCSI_NAME, source);
	attr_u32(m, ISNS_TAG_ISCSI_NODE_TYPE, NODE_INITIATOR);
	attr(m, ISNS_TAG_DELIMITER, NULL, 0);
	attr(m, ISNS_TAG_ISCSI_NAME, NULL, 0);
}

bool isns_end(struct isns_msg *m)
{
	put_be16(m->buf + 4, (uint16_t)(m->len - ISNS_HEADER));
	return !m->full;
}
