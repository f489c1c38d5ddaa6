/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What an iSNS server answers and asks (RFC 4171 5). The input: two bytes of function, two
 * of the exchange's number, then the bytes as they come. What must hold: nothing beyond them
 * is read, a message stays the same one however it is cut into pieces, and what is answered
 * to it is a message itself.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "events/bug.h"
#include "events/bytes.h"
#include "tgtd/isns/isns_msg.h"

#define ENTITY "entity"
#define NODE "iqn.x:a"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const struct isns_attr *a, void *arg)
{
	const char *text = isns_attr_text(a);
	unsigned *sum = arg;

	for (uint32_t i = 0; i < a->len; i++)
		*sum += a->value[i];
	*sum += text ? (unsigned)strlen(text) : 1;
}

static bool has_node(const char *name, void *arg)
{
	(void)arg;
	return !strcmp(name, NODE);
}

/* The first message of @data, fed in pieces of @step; -EAGAIN when it is not all there. */
static int feed(struct isns_in *in, const uint8_t *data, uint32_t len, uint32_t step, uint32_t *at)
{
	int rc = -EAGAIN;

	for (*at = 0; *at < len && rc == -EAGAIN;) {
		uint32_t n = MIN(step, len - *at), used;
		uint8_t *exact = malloc(n); /* so that the sanitizer sees one byte too many */

		BUG_ON(!exact);
		memcpy(exact, data + *at, n);
		rc = isns_in_feed(in, exact, n, &used);
		BUG_ON(rc != 0 && rc != -EAGAIN && rc != -EPROTO && rc != -EMSGSIZE);
		BUG_ON(used > n || (rc == -EAGAIN && used != n));
		free(exact);
		*at += used;
	}
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct isns_msg m;
	const struct isns_self self = { .entity = ENTITY, .has_node = has_node };
	uint32_t status, len, at, at1, used;
	struct isns_in one, all, answer;
	unsigned sum = 0;
	uint16_t function, xid;
	bool changed;
	int rc;

	if (size < 4)
		return 0;
	function = get_be16(data);
	xid = get_be16(data + 2);
	data += 4;
	len = (uint32_t)size - 4;
	isns_in_init(&one, 1 << 16);
	isns_in_init(&all, 1 << 16);
	rc = feed(&all, data, len, len, &at);
	BUG_ON(feed(&one, data, len, 1, &at1) != rc || (!rc && at != at1));
	if (!rc) {
		BUG_ON(one.len != all.len ||
		       (one.len && memcmp(one.payload, all.payload, one.len)));
		BUG_ON(!one.whole || one.function != all.function || one.xid != all.xid);
		if (!isns_answer(&all, function & 0x7fff, xid, &status))
			rc = isns_answer_each(&all, look, &sum);
		BUG_ON(rc != 0 && rc != -EPROTO);
		if (!isns_serve(&all, &self, &m, &changed)) {
			BUG_ON(all.function & ISNS_RESPONSE);
			isns_in_init(&answer, sizeof(m.buf));
			BUG_ON(isns_in_feed(&answer, m.buf, m.len, &used) || used != m.len);
			BUG_ON(isns_answer(&answer, all.function, all.xid, &status));
			BUG_ON(changed && (all.function != ISNS_SCN || status));
			isns_in_free(&answer);
		}
		isns_in_again(&all);
		rc = at < len ? isns_in_feed(&all, data + at, len - at, &used) : 0;
	}
	isns_in_free(&one);
	isns_in_free(&all);
	return 0;
}
