/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Portal addresses as text. Pure functions. */
#ifndef TGTD_ISCSI_PORTAL_H
#define TGTD_ISCSI_PORTAL_H

#include <sys/socket.h>
#include "events/base.h"

struct iscsi_portal {
	struct sockaddr_storage addr;
	socklen_t len;
	uint16_t tpgt;
};

/* The portals at which a target can be reached; n is 0: at all. */
#define ISCSI_BIND_MAX 16
#define ISCSI_BIND_TEXT 1024 /* of a list of them; enough */
struct iscsi_bind {
	unsigned n;
	struct iscsi_portal at[ISCSI_BIND_MAX];
};

/* "ip:port;ip:port", each as below, without tags; "": all. 0, -EINVAL. */
int iscsi_bind_parse(const char *text, struct iscsi_bind *b) must_check;
/* Can a target with @b be reached at our address @local? A bound address of all zeros stands for
 * all of its family. */
bool iscsi_bind_allows(const struct iscsi_bind *b, const struct sockaddr *local);
/* @list with @one added or taken out, as text of the same form. 0, -EINVAL, -EEXIST, -ENOENT,
 * -ENOSPC. */
int iscsi_bind_edit(const char *list, const char *one, bool add, char *out, size_t len) must_check;
/* "ip[:port][,tpgt]", "[v6][:port][,tpgt]", a bare v6 address, "" or
 * ":port": any address of IPv4. 0, -EINVAL. */
int iscsi_portal_parse(const char *text, struct iscsi_portal *p) must_check;
/* Is there a portal where a target with @b can be reached? Main loop. */
bool iscsi_bind_anywhere(const struct iscsi_bind *b);
/* The target's ports are the portals that there are of those in @b. Main loop. */
struct scsi_target;
void iscsi_bind_apply(struct scsi_target *t, const struct iscsi_bind *b);
/* @fn whenever portals have come or gone; one, NULL: nobody. Main loop. */
void iscsi_portals_watch(void (*fn)(void));
/* "ip:port,tpgt", v6 in brackets. */
void iscsi_portal_format(const struct iscsi_portal *p, char *out, size_t len);

#endif
