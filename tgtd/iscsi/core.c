/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What all files of the layer look at: its one instance. Below all of them. */
#include <netinet/in.h>

#include "tgtd/iscsi/core.h"

struct iscsi_core iscsi_core = {
	.half_open = LIST_INIT(iscsi_core.half_open),
	.sessions = LIST_INIT(iscsi_core.sessions),
	.transports = LIST_INIT(iscsi_core.transports),
};

/* No secret is in it: who shares a bucket with an attacker shares its turn and its share of logins,
 * as all did before, and no more. Sessions are counted by the address itself. */
unsigned iscsi_address_bucket(const struct sockaddr_storage *a)
{
	const uint8_t *p = NULL;
	uint32_t h = 0x811c9dc5;
	unsigned n = 0;

	if (a->ss_family == AF_INET) {
		p = (const uint8_t *)&((const struct sockaddr_in *)a)->sin_addr;
		n = 4;
	} else if (a->ss_family == AF_INET6) {
		const struct in6_addr *a6 = &((const struct sockaddr_in6 *)a)->sin6_addr;

		p = a6->s6_addr + (IN6_IS_ADDR_V4MAPPED(a6) ? 12 : 0);
		n = IN6_IS_ADDR_V4MAPPED(a6) ? 4 : 16;
	}
	for (unsigned i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x01000193;
	return (h ^ h >> 8 ^ h >> 16) % ISCSI_ADDRESS_BUCKETS;
}
