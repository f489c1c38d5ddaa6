/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What an iSNS server answers (RFC 4171 5). The input: two bytes of function, two of the exchange's number, then the
 * bytes as they come. What must hold: nothing beyond them is read, an answer that is one stays the same one when it
 * comes byte by byte, and what is none is not taken for one later.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "events/bug.h"
#include "events/bytes.h"
#include "tgtd/admin/isns_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t whole_status = 0, status = 0, len;
	int whole, rc = -EAGAIN;
	uint16_t function, xid;

	if (size < 4)
		return 0;
	function = get_be16(data);
	xid = get_be16(data + 2);
	len = (uint32_t)size - 4;
	for (uint32_t n = 0; n <= len && rc == -EAGAIN; n++) {
		uint8_t *exact = malloc(n + !n); /* so that the sanitizer sees one byte too many */

		BUG_ON(!exact);
		memcpy(exact, data + 4, n);
		rc = isns_answer(exact, n, function, xid, &status);
		BUG_ON(rc != 0 && rc != -EAGAIN && rc != -EPROTO);
		free(exact);
	}
	whole = isns_answer(data + 4, len, function, xid, &whole_status);
	BUG_ON(rc != whole || (!rc && status != whole_status));
	return 0;
}
