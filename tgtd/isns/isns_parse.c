/* SPDX-License-Identifier: GPL-2.0-or-later */
/* iSNSP messages that come in: see isns_msg.h. Nothing in them is believed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "events/bug.h"
#include "events/bytes.h"
#include "tgtd/isns/isns_msg.h"

/* RFC 4171 5.1.4 */
enum { FLAG_AUTH = 0x2000, FLAG_LAST = 0x0800, FLAG_FIRST = 0x0400 };

void isns_in_init(struct isns_in *in, uint32_t max)
{
	*in = (struct isns_in){ .max = max };
}

void isns_in_again(struct isns_in *in)
{
	in->have = in->len = 0;
	in->next_seq = 0;
	in->whole = false;
}

void isns_in_free(struct isns_in *in)
{
	free(in->payload);
	in->payload = NULL;
	in->len = in->room = 0;
}

/* What is wrong in a header is wrong at once, however much is still to come. */
static int header(struct isns_in *in)
{
	const uint8_t *h = in->head;
	uint16_t function = get_be16(h + 2), len = get_be16(h + 4), flags = get_be16(h + 6),
		 xid = get_be16(h + 8), seq = get_be16(h + 10);

	/* a signed message has more behind its payload, and we have no key to look at it */
	if (get_be16(h) != 1 || (len & 3) || (flags & FLAG_AUTH))
		return -EPROTO;
	if (seq != in->next_seq || !(flags & FLAG_FIRST) != (seq > 0))
		return -EPROTO;
	if (seq && (function != in->function || xid != in->xid))
		return -EPROTO;
	if (seq == UINT16_MAX && !(flags & FLAG_LAST))
		return -EPROTO;
	if (len > in->max - in->len)
		return -EMSGSIZE;
	in->function = function;
	in->xid = xid;
	if (in->len + len > in->room) {
		uint32_t room = MIN(MAX(in->len + len, in->room * 2), in->max);
		uint8_t *more = realloc(in->payload, room);

		if (!more)
			return -ENOMEM;
		in->payload = more;
		in->room = room;
	}
	return 0;
}

int isns_in_feed(struct isns_in *in, const uint8_t *bytes, uint32_t n, uint32_t *used)
{
	*used = 0;
	ASSERT(!in->whole);
	while (*used < n || in->have >= ISNS_HEADER) {
		uint32_t left = n - *used, take;
		uint16_t len;
		int err;

		if (in->have < ISNS_HEADER) {
			take = MIN(left, ISNS_HEADER - in->have);
			memcpy(in->head + in->have, bytes + *used, take);
			in->have += take;
			*used += take;
			if (in->have < ISNS_HEADER)
				return -EAGAIN;
			err = header(in);
			if (err)
				return err;
			continue;
		}
		len = get_be16(in->head + 4);
		take = MIN(left, ISNS_HEADER + (uint32_t)len - in->have);
		if (take)
			memcpy(in->payload + in->len, bytes + *used, take);
		in->len += take;
		in->have += take;
		*used += take;
		if (in->have < ISNS_HEADER + (uint32_t)len)
			return -EAGAIN;
		if (get_be16(in->head + 6) & FLAG_LAST) {
			in->whole = true;
			return 0;
		}
		in->have = 0;
		in->next_seq++;
	}
	return -EAGAIN;
}

int isns_attr_next(const uint8_t *payload, uint32_t len, uint32_t *at, struct isns_attr *a)
{
	ASSERT(*at <= len);
	if (*at == len)
		return 0;
	if (len - *at < 8)
		return -EPROTO;
	a->tag = get_be32(payload + *at);
	a->len = get_be32(payload + *at + 4);
	if ((a->len & 3) || a->len > len - *at - 8)
		return -EPROTO;
	a->value = payload + *at + 8;
	*at += 8 + a->len;
	return 1;
}

const char *isns_attr_text(const struct isns_attr *a)
{
	return a->len && memchr(a->value, 0, a->len) ? (const char *)a->value : NULL;
}

int isns_answer(const struct isns_in *in, uint16_t function, uint16_t xid, uint32_t *status)
{
	ASSERT(in->whole);
	if (in->function != (function | ISNS_RESPONSE) || in->xid != xid || in->len < 4)
		return -EPROTO;
	*status = get_be32(in->payload);
	return 0;
}

int isns_answer_each(const struct isns_in *in, void (*fn)(const struct isns_attr *a, void *arg),
		     void *arg)
{
	bool behind_key = false;
	struct isns_attr a;
	uint32_t at = 4;
	int rc;

	if (in->len < 4)
		return -EPROTO;
	while ((rc = isns_attr_next(in->payload, in->len, &at, &a)) > 0) {
		if (behind_key)
			fn(&a, arg);
		else if (a.tag == ISNS_TAG_DELIMITER)
			behind_key = true;
	}
	return rc;
}

/* ---- requests of the server ------------------------------------------------------------------ */

/* All of it are attributes; the first one with @tag, if there is one. */
static int look_through(const struct isns_in *in, uint32_t tag, struct isns_attr *found)
{
	struct isns_attr a;
	uint32_t at = 0;
	int rc;

	*found = (struct isns_attr){ 0 };
	while ((rc = isns_attr_next(in->payload, in->len, &at, &a)) > 0)
		if (a.tag == tag && !found->value)
			*found = a;
	return rc;
}

static void put_status(struct isns_msg *m, const struct isns_in *in, enum isns_status status)
{
	uint8_t v[4];

	isns_begin(m, in->function | ISNS_RESPONSE, 0, in->xid);
	put_be32(v, status);
	isns_put(m, v, 4);
}

/* 5.6.5.13, 5.7.5.13: the status, then what was asked. An entity that is not ours (any more) is
 * not said to live. Servers keep names in lower case (6.2.1). */
static void serve_esi(const struct isns_in *in, const struct isns_self *self, struct isns_msg *m)
{
	struct isns_attr entity;
	const char *text;

	if (look_through(in, ISNS_TAG_ENTITY, &entity) < 0 || !(text = isns_attr_text(&entity))) {
		put_status(m, in, ISNS_FORMAT_ERROR);
		return;
	}
	put_status(m, in, strcasecmp(text, self->entity) ? ISNS_NO_SUCH_ENTRY : ISNS_SUCCESS);
	isns_put(m, in->payload, in->len);
}

/* 5.6.5.8, 5.7.5.8: the first name is the node that is told; it is what the answer repeats. */
static bool serve_scn(const struct isns_in *in, const struct isns_self *self, struct isns_msg *m)
{
	struct isns_attr name;
	const char *text;
	bool ours;

	if (look_through(in, ISNS_TAG_ISCSI_NAME, &name) < 0 || !(text = isns_attr_text(&name))) {
		put_status(m, in, ISNS_FORMAT_ERROR);
		return false;
	}
	ours = self->has_node(text, self->arg);
	put_status(m, in, ours ? ISNS_SUCCESS : ISNS_NO_SUCH_ENTRY);
	isns_put_text(m, ISNS_TAG_ISCSI_NAME, text);
	return ours;
}

int isns_serve(const struct isns_in *in, const struct isns_self *self, struct isns_msg *m,
	       bool *changed)
{
	ASSERT(in->whole);
	*changed = false;
	if (in->function & ISNS_RESPONSE)
		return -EPROTO;
	if (in->function == ISNS_ESI)
		serve_esi(in, self, m);
	else if (in->function == ISNS_SCN)
		*changed = serve_scn(in, self, m);
	else
		put_status(m, in, ISNS_NOT_SUPPORTED);
	if (isns_end(m))
		return 0;
	/* what was asked leaves no room for the status before it */
	put_status(m, in, ISNS_FORMAT_ERROR);
	return isns_end(m) ? 0 : -EPROTO;
}
