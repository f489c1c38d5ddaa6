/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Memory for secrets: in no core, zeroed before it is used again. */
#include <stdio.h>
#include <stdlib.h>

#include "events/secret.h"
#include "tests/support/unit.h"

/* Is the page of @p left out of core files? As the kernel says it. */
static bool left_out(const void *p)
{
	unsigned long long from, to, at = (uintptr_t)p;
	char line[512], flags[512] = "";
	bool here = false;
	FILE *f = fopen("/proc/self/smaps", "re");

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f)) {
		const char *dash = strchr(line, '-'), *blank = strchr(line, ' ');

		if (dash && dash < blank && sscanf(line, "%llx-%llx ", &from, &to) == 2)
			here = at >= from && at < to;
		else if (here && !strncmp(line, "VmFlags:", 8))
			strcpy(flags, line);
	}
	fclose(f);
	return strstr(flags, " dd");
}

static bool zeroed(const char *p, size_t n)
{
	while (n--)
		if (*p++)
			return false;
	return true;
}

START_TEST(sizes)
{
	static const size_t size[] = { 1, 255, 256, 257, 4096, 4097, 65548, 300000 };
	char *p[ARRAY_SIZE(size)];

	for (size_t i = 0; i < ARRAY_SIZE(size); i++) {
		p[i] = secret_alloc(size[i]);
		ck_assert_ptr_nonnull(p[i]);
		ck_assert(zeroed(p[i], size[i]));
		ck_assert_msg(left_out(p[i]) && left_out(p[i] + size[i] - 1), "%zu", size[i]);
		memset(p[i], (int)i + 1, size[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(size); i++) {
		for (size_t at = 0; at < size[i]; at++)
			ck_assert_int_eq(p[i][at], (int)i + 1);
		secret_free(p[i], size[i]);
	}
	secret_free(NULL, 0);
}
END_TEST

/* More than a chunk of each; what comes back is used again, and has nothing of before in it. */
START_TEST(many)
{
	enum { N = 1000 };
	char *p[N], text[200];

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < N; i++) {
			snprintf(text, sizeof(text), "%d-%d-%0*d", round, i, i % 150 + 1, 0);
			p[i] = secret_strdup(text);
			ck_assert_str_eq(p[i], text);
			ck_assert(zeroed(p[i] + strlen(text), 256 - strlen(text)));
		}
		for (int i = 0; i < N; i++)
			secret_strfree(p[i]);
	}
	/* the first bytes hold the list of what is free */
	ck_assert(zeroed(p[0] + sizeof(void *), 256 - sizeof(void *)));
	secret_strfree(NULL);
}
END_TEST

UNIT_MAIN("secret", 60, sizes, many)
