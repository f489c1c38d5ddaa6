/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Limits as lines of targets.conf have them; see limit.h. */
#include "conf/limit.h"

#include <errno.h>
#include <stdlib.h>

#include "events/bug.h"

static const char *const limit_words[] = {
	"iops_limit",	    "read_iops_limit",	    "write_iops_limit",	     "iops_burst",
	"bandwidth_limit",  "read_bandwidth_limit", "write_bandwidth_limit", "bandwidth_burst",
};

bool conf_limit_known(const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(limit_words); i++)
		if (!strcmp(limit_words[i], key))
			return true;
	return false;
}

bool conf_limit_ok(const char *key, const char *value)
{
	bool bytes = strstr(key, "bandwidth");
	unsigned long long v, max = bytes ? 1ull << 40 : 1000000000;
	const char *unit;
	unsigned shift = 0;
	char *end;

	if (*value < '0' || *value > '9')
		return false;
	errno = 0;
	v = strtoull(value, &end, 0);
	unit = *end && bytes ? strchr("KMGT", *end & ~0x20) : NULL;
	if (unit) {
		static const unsigned shifts['T' + 1] = {
			['K'] = 10, ['M'] = 20, ['G'] = 30, ['T'] = 40
		};

		shift = shifts[(unsigned char)*unit];
		end++;
	}
	if (errno || *end || v > max >> shift)
		return false;
	return !bytes || !v || v << shift >= 1024;
}

/* The next pair of @limits: its key (not ended) has *key_len characters, its value, if it has one,
 * *value_len behind a '='. Returns where the one after it begins; NULL: there was none. */
static const char *limit_pair_next(const char *limits, size_t *key_len, const char **value,
			     size_t *value_len)
{
	size_t n = strcspn(limits, ",");

	if (!*limits)
		return NULL;
	*key_len = strcspn(limits, "=,");
	*value = *key_len < n ? limits + *key_len + 1 : NULL;
	*value_len = *value ? n - *key_len - 1 : 0;
	return limits + n + (limits[n] != 0);
}

bool conf_limits_wrong(const char *limits, char *why, size_t len)
{
	const char *next, *value;
	size_t key_len, value_len;

	for (; (next = limit_pair_next(limits, &key_len, &value, &value_len)); limits = next) {
		char key[40], text[40];

		snprintf(key, sizeof(key), "%.*s", (int)MIN(key_len, sizeof(key)), limits);
		snprintf(text, sizeof(text), "%.*s", (int)MIN(value_len, sizeof(text)),
			 value ? value : "");
		if (!value || !conf_limit_known(key)) {
			snprintf(why, len,
				 "'%.*s' is no limit and its value, such as iops_limit=500",
				 (int)MIN(next - limits, 60), limits);
			return true;
		}
		if (value_len >= sizeof(text) || !conf_limit_ok(key, text)) {
			snprintf(why, len, "%s is %s, not '%s'", key, conf_says(key), text);
			return true;
		}
	}
	return false;
}

/* The value of a key in @limits, the last one if there are several. */
static const char *limit_value_in(const char *limits, const char *key, size_t key_len, size_t *len)
{
	const char *next, *value, *found = NULL;
	size_t n, value_len;

	for (; limits && (next = limit_pair_next(limits, &n, &value, &value_len)); limits = next) {
		if (n != key_len || memcmp(limits, key, n) != 0)
			continue;
		found = value;
		*len = value_len;
	}
	return found;
}

const char *conf_limits_change(struct conf *c, const char *have, const char *want)
{
	char *out, *at;

	ASSERT(have || want);
	out = at = conf_alloc(c, sizeof(limit_words) / sizeof(limit_words[0]) * 80);
	for (size_t i = 0; i < ARRAY_SIZE(limit_words); i++) {
		const char *key = limit_words[i], *was, *is, *comma = at > out ? "," : "";
		size_t was_len = 0, is_len = 0;

		was = limit_value_in(have, key, strlen(key), &was_len);
		is = limit_value_in(want, key, strlen(key), &is_len);
		if (is && (!was || was_len != is_len || memcmp(was, is, is_len) != 0))
			at += sprintf(at, "%s%s=%.*s", comma, key, (int)MIN(is_len, 40u), is);
		else if (was && !is)
			at += sprintf(at, "%s%s", comma, key);
	}
	return at > out ? out : NULL;
}
