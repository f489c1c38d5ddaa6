/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reservations as another gateway has written them into a unit's object. The input: the bytes
 * themselves; or, when the first byte's high bit is set, changes of well-formed ones, three bytes
 * each, where and what. Then every action is tried on what came of it.
 *
 * What must hold: they are refused with a reason, or their own form is read back as the same, and
 * no action makes of them what could not be read.
 */
#include <string.h>

#include "events/bug.h"
#include "events/bytes.h"
#include "tgtd/scsi/commands/pr_shared.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t bytes[PR_SHARED_MAX], again[PR_SHARED_MAX], next[PR_SHARED_MAX];

static struct pr_request request(unsigned who, uint8_t action, const uint8_t *parameters)
{
	static const char *const names[] = { "iqn.a,i,0x1", "iqn.b,i,0x1" };
	static const char *const devices[] = { "iqn.a", "iqn.b" };

	return (struct pr_request){ .action = action,
				    .type = PR_EXCLUSIVE_ACCESS_RO,
				    .rtpi = 11,
				    .initiator = names[who],
				    .iqn = devices[who],
				    .data = parameters,
				    .len = 24 };
}

static size_t act(size_t len, unsigned who, uint8_t action)
{
	uint8_t parameters[24] = { [7] = 1, [15] = 2 };
	struct pr_outcome r;
	struct pr_shared s;
	size_t to = 0;
	int err = pr_shared_do(bytes, len, request(who, action, parameters), next, &to, &r);

	BUG_ON(err == -EBADMSG);
	if (err || !r.changed)
		return 0;
	BUG_ON(to > sizeof(next) || pr_decode(&s, next, to));
	pr_fini(&s.pr);
	return to;
}

static size_t well_formed(void)
{
	static const uint8_t actions[] = { PR_REGISTER_AND_IGNORE, PR_CLEAR, PR_REGISTER_AND_IGNORE,
					   PR_RESERVE };
	uint8_t parameters[24] = { [7] = 1, [15] = 1 };
	struct pr_outcome r;
	size_t len = 0;

	for (unsigned i = 0; i < 2 * ARRAY_SIZE(actions); i++) {
		size_t to = len;

		BUG_ON(pr_shared_do(bytes, len, request(i & 1, actions[i / 2], parameters), next,
				    &to, &r));
		if (r.changed)
			memcpy(bytes, next, len = to);
	}
	return len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pr_shared s, t;
	size_t len, n;

	if (size && (data[0] & 0x80)) {
		len = well_formed();
		for (data++, size--; size >= 3; data += 3, size -= 3)
			bytes[get_be16(data) % len] = data[2];
	} else {
		len = MIN(size, sizeof(bytes));
		memcpy(bytes, data, len);
	}
	if (pr_decode(&s, bytes, len))
		return 0;
	BUG_ON(s.pr.nregs > PR_SHARED_REGISTRATIONS || s.ngone > PR_SHARED_GONE);
	n = pr_encode(&s, again);
	BUG_ON(len && (n != len || memcmp(bytes, again, n)));
	BUG_ON(pr_decode(&t, again, n) || t.pr.nregs != s.pr.nregs);
	pr_fini(&s.pr);
	pr_fini(&t.pr);
	for (unsigned i = 0; i < 16; i++)
		act(len, i & 1, (uint8_t)(i / 2));
	return 0;
}
