/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See nbd_tls.h. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cache/backend/nbd_tls.h"

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' :
	       (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 :
						    -1;
}

bool nbd_uri_parameter(const char *uri, const char *name, char value[PATH_MAX])
{
	const size_t n = strlen(name), rest = strcspn(uri, "?");
	bool found = false;

	for (const char *p = uri + rest; *p && *p != '#';) {
		const size_t len = strcspn(++p, "&;#");
		size_t at = 0;

		if (len > n && !strncmp(p, name, n) && p[n] == '=' && len - n <= PATH_MAX) {
			for (const char *v = p + n + 1; v < p + len; v++) {
				const bool coded = *v == '%' && hex(v[1]) >= 0 && hex(v[2]) >= 0;

				value[at++] = coded ? (char)(hex(v[1]) << 4 | hex(v[2])) : *v;
				v += coded ? 2 : 0;
			}
			value[at] = '\0';
			found = true; /* the last one counts */
		}
		p += len;
	}
	return found;
}

static bool has_authorities(const char *dir)
{
	char path[PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s/ca-cert.pem", dir);
	return access(path, R_OK) == 0;
}

/* Where libnbd looks when it is not told. */
static bool usual_authorities(void)
{
	static const char *const below[] = { ".pki/libnbd", ".config/pki/libnbd" };
	const char *home = getenv("HOME");
	char dir[PATH_MAX];

	if (geteuid() == 0 || !home)
		return has_authorities("/etc/pki/libnbd");
	for (unsigned i = 0; i < ARRAY_SIZE(below); i++) {
		snprintf(dir, sizeof(dir), "%s/%s", home, below[i]);
		if (has_authorities(dir))
			return true;
	}
	return false;
}

int nbd_tls_check(const char *uri, char *why, size_t len)
{
	char value[PATH_MAX];

	if (strncasecmp(uri, "nbds:", 5) != 0 || nbd_uri_parameter(uri, "tls-psk-file", value))
		return 0;
	if (nbd_uri_parameter(uri, "tls-certificates", value)) {
		if (has_authorities(value))
			return 0;
		snprintf(why, len, "%.100s/ca-cert.pem: %s", value, strerror(errno));
	} else {
		if (usual_authorities())
			return 0;
		snprintf(why, len, "nbds:// needs tls-certificates= or tls-psk-file=");
	}
	return -ECONNREFUSED;
}

/* The library tells of none of them which it is, and the server of nothing at all. */
const char *nbd_tls_hint(const char *uri, const char *said)
{
	if (strncasecmp(uri, "nbds", 4) != 0 || !said)
		return "";
	if (strstr(said, "certificate verification"))
		return "the server's certificate has expired, is revoked, for another name, or not of "
		       "an authority in ca-cert.pem: ";
	if (strstr(said, "non-properly terminated") || strstr(said, "alert has been received") ||
	    strstr(said, "in the pull function"))
		return "the server has ended TLS: it may want client-cert.pem and client-key.pem, or "
		       "another key, or not trust the one it got: ";
	return "";
}
