/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See isns_msg.h. */
#include <errno.h>
#include <string.h>

#include "events/bytes.h"
#include "tgtd/admin/isns_msg.h"

/* RFC 4171 5.1.4: flags. The whole message is one PDU. */
enum { FLAG_CLIENT = 0x8000, FLAG_REPLACE = 0x1000, FLAG_LAST = 0x0800, FLAG_FIRST = 0x0400 };

/* RFC 4171 6.1: tags */
enum {
	TAG_DELIMITER = 0,
	TAG_ENTITY = 1,
	TAG_ENTITY_PROTOCOL = 2,
	TAG_REGISTRATION_PERIOD = 6,
	TAG_PORTAL_IP = 16,
	TAG_PORTAL_PORT = 17,
	TAG_ISCSI_NAME = 32,
	TAG_ISCSI_NODE_TYPE = 33,
	TAG_PG_PORTAL_IP = 49,
	TAG_PG_PORTAL_PORT = 50,
	TAG_PG_TAG = 51,
};
enum { PROTOCOL_ISCSI = 2, NODE_TARGET = 1 };

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
static void attr_text(struct isns_msg *m, uint32_t tag, const char *text)
{
	attr(m, tag, text, (uint32_t)strlen(text) + 1);
}

static void attr_u32(struct isns_msg *m, uint32_t tag, uint32_t value)
{
	uint8_t v[4];

	put_be32(v, value);
	attr(m, tag, v, 4);
}

static void begin(struct isns_msg *m, uint16_t function, uint16_t flags, uint16_t xid)
{
	m->full = false;
	m->len = ISNS_HEADER;
	put_be16(m->buf, 1); /* version */
	put_be16(m->buf + 2, function);
	put_be16(m->buf + 6, flags | FLAG_CLIENT | FLAG_FIRST | FLAG_LAST);
	put_be16(m->buf + 8, xid);
	put_be16(m->buf + 10, 0); /* the only one of its sequence */
}

void isns_reg_begin(struct isns_msg *m, uint16_t xid, const char *entity, const char *source, bool replace,
		    uint32_t period_s)
{
	begin(m, ISNS_DEV_ATTR_REG, replace ? FLAG_REPLACE : 0, xid);
	attr_text(m, TAG_ISCSI_NAME, source); /* 5.6.1: source, message key, delimiter, operating attributes */
	attr_text(m, TAG_ENTITY, entity);
	attr(m, TAG_DELIMITER, NULL, 0);
	attr_text(m, TAG_ENTITY, entity);
	if (!replace)
		return;
	attr_u32(m, TAG_ENTITY_PROTOCOL, PROTOCOL_ISCSI);
	attr_u32(m, TAG_REGISTRATION_PERIOD, period_s);
}

void isns_reg_portal(struct isns_msg *m, const struct isns_portal *p)
{
	attr(m, TAG_PORTAL_IP, &p->addr, 16);
	attr_u32(m, TAG_PORTAL_PORT, p->port);
}

void isns_reg_node(struct isns_msg *m, const char *name, const struct isns_portal *portals, unsigned n)
{
	attr_text(m, TAG_ISCSI_NAME, name);
	attr_u32(m, TAG_ISCSI_NODE_TYPE, NODE_TARGET);
	for (unsigned i = 0; i < n; i++) {
		if (portals[i].tpgt == 1)
			continue;
		attr(m, TAG_PG_PORTAL_IP, &portals[i].addr, 16);
		attr_u32(m, TAG_PG_PORTAL_PORT, portals[i].port);
		attr_u32(m, TAG_PG_TAG, portals[i].tpgt);
	}
}

void isns_dereg(struct isns_msg *m, uint16_t xid, const char *entity, const char *source)
{
	begin(m, ISNS_DEV_DEREG, 0, xid);
	attr_text(m, TAG_ISCSI_NAME, source);
	attr(m, TAG_DELIMITER, NULL, 0);
	attr_text(m, TAG_ENTITY, entity);
}

bool isns_end(struct isns_msg *m)
{
	put_be16(m->buf + 4, (uint16_t)(m->len - ISNS_HEADER));
	return !m->full;
}

int isns_answer(const uint8_t *buf, uint32_t len, uint16_t function, uint16_t xid, uint32_t *status)
{
	/* What is wrong in the header is wrong at once, however much is still to come. */
	if (len >= 2 && get_be16(buf) != 1)
		return -EPROTO;
	if (len >= 4 && get_be16(buf + 2) != (function | ISNS_RESPONSE))
		return -EPROTO;
	if (len >= 6 && (get_be16(buf + 4) < 4 || (get_be16(buf + 4) & 3)))
		return -EPROTO;
	if (len >= 10 && get_be16(buf + 8) != xid)
		return -EPROTO;
	/* The status comes first, and it is all that we ask for: what follows repeats what was registered. */
	if (len < ISNS_HEADER + 4)
		return -EAGAIN;
	*status = get_be32(buf + ISNS_HEADER);
	return 0;
}
