/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Names of portals, as people write them and as the daemon shows them. Any thread. */
#ifndef CONF_PORTAL_H
#define CONF_PORTAL_H

#include "events/base.h"

#define CONF_PORTAL_LEN 96

/*
 * The names that the daemon gives to what @text means: "ip:port,tag", IPv6 in brackets. @text is
 * "ip[:port][,tag]", or "[:port][,tag]" for all addresses; these are two portals, that of IPv6
 * first. Returns how many: 0 when @text is no portal.
 */
unsigned conf_portal_names(const char *text, char names[2][CONF_PORTAL_LEN]);
/* The one name of the address and port that @text means: "ip:port", IPv6 in brackets; @port where
 * @text has none. False: it is no such thing, or no address that another machine could connect to
 * (all addresses, multicast). */
bool conf_address_name(const char *text, unsigned port, char name[CONF_PORTAL_LEN]);
/* Are these two names (as above) of one address and port, whatever the tag? */
bool conf_portal_same_address(const char *a, const char *b);
/* Can there not be both at a time? Of one address and port there is one socket, and none beside one
 * that is at all addresses. */
bool conf_portal_clash(const char *a, const char *b);

#endif
