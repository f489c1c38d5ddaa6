/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Portal addresses as text. Pure functions. */
#ifndef ISCSI_PORTAL_H
#define ISCSI_PORTAL_H

#include <sys/socket.h>
#include "events/base.h"

struct iscsi_portal {
	struct sockaddr_storage addr;
	socklen_t len;
	uint16_t tpgt;
};

/* "ip[:port][,tpgt]", "[v6][:port][,tpgt]", a bare v6 address, "" or
 * ":port": any address of IPv4. 0, -EINVAL. */
int iscsi_portal_parse(const char *text, struct iscsi_portal *p) must_check;
/* "ip:port,tpgt", v6 in brackets. */
void iscsi_portal_format(const struct iscsi_portal *p, char *out, size_t len);

#endif
