/* SPDX-License-Identifier: GPL-2.0-or-later */
/* conf/portal.c names a portal as the daemon does (tgtd/iscsi/portal.c). */
#include <stdio.h>
#include <stdlib.h>

#include "conf/portal.h"
#include "tests/support/unit.h"
#include "tgtd/iscsi/portal.h"

/* The daemon's name of @text; "": it is none. */
static const char *daemon_name(const char *text)
{
	static char name[CONF_PORTAL_LEN];
	struct iscsi_portal p;

	*name = 0;
	if (!iscsi_portal_parse(text, &p))
		iscsi_portal_format(&p, name, sizeof(name));
	return name;
}

static void compare(const char *text)
{
	char names[2][CONF_PORTAL_LEN];
	unsigned n = conf_portal_names(text, names);

	/* without an address it is two portals, which iscsi_portal_add() makes of it */
	if (n == 2) {
		char six[CONF_PORTAL_LEN + 8], four[CONF_PORTAL_LEN + 8];

		snprintf(six, sizeof(six), "[::]%s", text);
		snprintf(four, sizeof(four), "0.0.0.0%s", text);
		ck_assert_str_eq(names[0], daemon_name(six));
		ck_assert_str_eq(names[1], daemon_name(four));
		return;
	}
	ck_assert_msg(!strcmp(n ? names[0] : "", daemon_name(text)), "'%s': '%s' '%s'", text,
		      n ? names[0] : "", daemon_name(text));
}

START_TEST(names_are_the_daemons)
{
	static const char *const texts[] = {
		"127.0.0.1",	  "127.0.0.1:3261",	 "127.0.0.1:3261,7", "127.0.0.1,7",
		"[::1]",	  "[::1]:3261",		 "[::1]:3261,7",     "::1",
		"fe80::1",	  "[]",			 "[]:5",	     "",
		":3260",	  ":3260,2",		 ",2",		     "[2001:DB8::0:1]:3260",
		"127.0.0.1:",	  "127.0.0.1:0",	 "127.0.0.1:65536",  "1.2.3.4:65535,65535",
		"127.0.0.1:1,0",  "127.0.0.1:1,65536",	 "127.0.0.1:1,",     "localhost",
		"[::1",		  "[::1]3260",		 "[127.0.0.1]:3260", "1.2.3.4.5",
		"127.0.0.1:+1",	  "127.0.0.1: 1",	 "127.0.0.1:1:2",    "[::1]:",
		"0.0.0.0",	  "127.0.0.1:00003260",	 "[::ffff:1.2.3.4]", "1.2.3.4:1,2,3",
	};

	for (unsigned i = 0; i < ARRAY_SIZE(texts); i++)
		compare(texts[i]);
}
END_TEST

START_TEST(whatever_is_written)
{
	static const char alphabet[] = "[]:,.0123456789af";
	char text[40];

	srand(1);
	for (unsigned i = 0; i < 200000; i++) {
		size_t n = (size_t)rand() % 16;

		for (size_t k = 0; k < n; k++)
			text[k] = alphabet[(size_t)rand() % (sizeof(alphabet) - 1)];
		text[n] = 0;
		compare(text);
	}
}
END_TEST

START_TEST(clashes)
{
	static const struct {
		const char *a, *b;
		bool clash;
	} cases[] = {
		{ "127.0.0.1:3260,1", "127.0.0.1:3260,2", true },
		{ "127.0.0.1:3260,1", "127.0.0.1:3261,1", false },
		{ "127.0.0.1:3260,1", "127.0.0.2:3260,1", false },
		{ "127.0.0.1:3260,1", "0.0.0.0:3260,1", true },
		{ "0.0.0.0:3260,1", "127.0.0.1:3260,5", true },
		{ "0.0.0.0:3260,1", "127.0.0.1:326,1", false },
		{ "[::]:3260,1", "127.0.0.1:3260,1", false },
		{ "[::]:3260,1", "[::1]:3260,1", true },
		{ "[::1]:3260,1", "[::2]:3260,1", false },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
		ck_assert_msg(conf_portal_clash(cases[i].a, cases[i].b) == cases[i].clash, "%s %s",
			      cases[i].a, cases[i].b);
}
END_TEST

UNIT_MAIN("portals", 10, names_are_the_daemons, whatever_is_written, clashes)
