/* SPDX-License-Identifier: GPL-2.0-or-later */
/* UTF-8 (RFC 3629), for texts that somebody else has named: paths, initiators. Pure; any thread. */
#ifndef EVENTS_UTF8_H
#define EVENTS_UTF8_H

#include "events/base.h"

/* U+FFFD: what stands for a byte that begins none. */
#define UTF8_REPLACEMENT "\xef\xbf\xbd"

/* Bytes of the character that begins at @text, which ends with NUL. 0: none does. */
static inline size_t utf8_length(const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	const size_t n = *p < 0x80		 ? 1 :
			 *p >= 0xc2 && *p < 0xe0 ? 2 :
			 *p >= 0xe0 && *p < 0xf0 ? 3 :
			 *p >= 0xf0 && *p < 0xf5 ? 4 :
						   0;

	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	/* too long for what it says, a surrogate, or beyond U+10FFFF */
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] >= 0xa0) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] >= 0x90))
		return 0;
	return n;
}

/* As utf8_length(), but 0 also for what a terminal would obey: C0, DEL and C1 (ISO 6429). */
static inline size_t utf8_shown_length(const char *text)
{
	const unsigned char *p = (const unsigned char *)text;

	return *p < ' ' || *p == 0x7f || (*p == 0xc2 && p[1] < 0xa0) ? 0 : utf8_length(text);
}

#endif
