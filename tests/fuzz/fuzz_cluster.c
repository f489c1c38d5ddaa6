/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Objects and messages of a group of gateways, as others have written them. The input: which of the
 * three kinds (one byte), then either the bytes themselves, or, when the byte's high bit is set,
 * changes of a well-formed one whose checksum is made good: three bytes each, where and what.
 *
 * What must hold: it is refused with a reason, or what is found is within its ranges, and its own
 * form is read back as the same.
 */
#include <stdlib.h>
#include <string.h>

#include "events/bug.h"
#include "events/bytes.h"
#include "events/hash.h"
#include "tgtd/cluster/object.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t bytes[GW_OBJECT_MAX], again[GW_OBJECT_MAX];

static void one_gateway(size_t len)
{
	struct gw_gateway_object a, b;
	size_t n;

	if (gw_decode_gateway(&a, bytes, len))
		return;
	BUG_ON(a.life >= GW_LIVES || strlen(a.now.addr) > GW_ADDR_MAX || a.npast > GW_PAST);
	BUG_ON(strlen(a.now.process) > GW_PROCESS_MAX);
	for (unsigned i = 0; i < a.npast; i++)
		BUG_ON(strlen(a.past[i].addr) > GW_ADDR_MAX ||
		       strlen(a.past[i].process) > GW_PROCESS_MAX);
	n = gw_encode_gateway(&a, again);
	BUG_ON(n != len || gw_decode_gateway(&b, again, n) || memcmp(&a, &b, sizeof(a)));
}

static void one_lu(size_t len)
{
	struct gw_lu_object a, b;
	size_t n;

	if (gw_decode_lu(&a, bytes, len))
		return;
	BUG_ON(a.claim >= GW_CLAIMS || a.nfences > GW_FENCES || a.shared.len > GW_SHARED_MAX);
	BUG_ON(a.claim != GW_FREE && a.owner >= GW_GATEWAYS);
	for (unsigned i = 0; i < a.nfences; i++)
		BUG_ON(a.fence[i].gateway >= GW_GATEWAYS || strlen(a.fence[i].addr) > GW_ADDR_MAX);
	n = gw_encode_lu(&a, again);
	BUG_ON(n != len || gw_decode_lu(&b, again, n) || a.epoch != b.epoch ||
	       a.unit != b.unit || a.shared.len != b.shared.len ||
	       (a.shared.len && memcmp(a.shared.blob, b.shared.blob, a.shared.len)));
}

static void one_msg(size_t len)
{
	struct gw_msg a, b;
	size_t n;

	if (gw_decode_msg(&a, bytes, len))
		return;
	n = gw_encode_msg(&a, again);
	BUG_ON(n != len || n > GW_MESSAGE_MAX || gw_decode_msg(&b, again, n) ||
	       memcmp(&a, &b, sizeof(a)));
}

static size_t well_formed(unsigned kind)
{
	const struct gw_gateway_object g = { .incarnation = 3,
					     .sequence = 9,
					     .now = { "10.0.0.1:0/7", "m/b/1/2/3" },
					     .npast = 2,
					     .past = { { "10.0.0.1:0/6", "m/b/1/2/2" },
						       { "10.0.0.1:0/5", "" } } };
	const struct gw_msg m = { .kind = GW_MSG_ASK, .lu = 5, .epoch = 2, .gen = 4, .cookie = 8 };
	struct gw_lu_object o = { .unit = 7,
				  .epoch = 2,
				  .incarnation = 3,
				  .claim = GW_OWNED,
				  .addr = "10.0.0.1:0/7",
				  .nfences = 2,
				  .fence = { { 1, 2, "10.0.0.2:0/5" }, { 2, 1, "10.0.0.3:0/6" } } };

	o.shared.len = 5;
	o.shared.blob = (uint8_t *)"state";
	return kind == 0 ? gw_encode_gateway(&g, bytes) :
	       kind == 1 ? gw_encode_lu(&o, bytes) :
			   gw_encode_msg(&m, bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const one[])(size_t len) = { one_gateway, one_lu, one_msg };
	unsigned kind;
	size_t len;

	if (!size)
		return 0;
	kind = (data[0] & 0x7f) % ARRAY_SIZE(one);
	if (data[0] & 0x80) {
		len = well_formed(kind);
		for (data++, size--; size >= 3; data += 3, size -= 3)
			bytes[get_be16(data) % len] = data[2];
		put_be64(bytes + len - 8, fnv1a(FNV1A_INIT, bytes, len - 8));
	} else {
		len = MIN(size - 1, sizeof(bytes));
		memcpy(bytes, data + 1, len);
	}
	one[kind](len);
	return 0;
}
