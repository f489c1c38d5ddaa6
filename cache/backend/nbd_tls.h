/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Whether an NBD server is to prove who it is. Any thread that may block. */
#ifndef CACHE_BACKEND_NBD_TLS_H
#define CACHE_BACKEND_NBD_TLS_H

#include "events/base.h"

/*
 * May @uri be connected to? Without a ca-cert.pem libnbd takes the system's authorities, and then
 * checks nothing at all: anybody could be the server. So nbds:// needs a file of them, or of keys
 * (tls-psk-file). A local socket is who may make it, and libnbd checks no certificate there. 0, or
 * -ECONNREFUSED with the reason.
 */
int nbd_tls_check(const char *uri, char *why, size_t len) must_check;

#endif
