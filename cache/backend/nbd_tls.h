/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a URI says, and whether an NBD server is to prove who it is. Any thread that may block. */
#ifndef CACHE_BACKEND_NBD_TLS_H
#define CACHE_BACKEND_NBD_TLS_H

#include <limits.h>
#include "events/base.h"

/* The value of the parameter @name of @uri, decoded. False: it has none, or a longer one. */
bool nbd_uri_parameter(const char *uri, const char *name, char value[PATH_MAX]);
/* The connection was not made, and libnbd has @said why: what that may mean, to be put before it.
 * "": that is clear. */
const char *nbd_tls_hint(const char *uri, const char *said);

/*
 * May @uri be connected to? Without a ca-cert.pem libnbd takes the system's authorities, and then
 * checks nothing at all: anybody could be the server. So nbds:// needs a file of them, or of keys
 * (tls-psk-file). A local socket is who may make it, and libnbd checks no certificate there. 0, or
 * -ECONNREFUSED with the reason.
 */
int nbd_tls_check(const char *uri, char *why, size_t len) must_check;

#endif
