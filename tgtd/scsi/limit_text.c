/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Limits as administrators say them: key=value. Pure. */
#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include "tgtd/scsi/target.h"

#define IOPS_MAX 1000000000u
#define BANDWIDTH_MIN KiB(1) /* below that a command takes minutes */
#define BANDWIDTH_MAX (1024 * GiB(1))

const char *const scsi_limit_keys[SCSI_LIMIT_KEYS] = {
	"iops_limit",	    "read_iops_limit",	    "write_iops_limit",	     "iops_burst",
	"bandwidth_limit",  "read_bandwidth_limit", "write_bandwidth_limit", "bandwidth_burst",
};

static uint64_t *limit_field(struct scsi_limit_conf *c, unsigned key)
{
	static_assert(SCSI_LIMIT_KEYS == 2 * (SCSI_LIMIT_DIRS + 1), "a burst after the directions");
	unsigned dir = key % (SCSI_LIMIT_DIRS + 1);

	if (key < SCSI_LIMIT_KEYS / 2)
		return dir == SCSI_LIMIT_DIRS ? &c->iops_burst : &c->iops[dir];
	return dir == SCSI_LIMIT_DIRS ? &c->bandwidth_burst : &c->bandwidth[dir];
}

/* A number; @bytes: with K, M, G or T behind it, powers of 1024. */
static bool limit_number(const char *v, bool bytes, uint64_t *out)
{
	static const char units[] = "KMGT";
	const char *unit;
	unsigned shift = 0;
	char *end;

	if (v[0] < '0' || v[0] > '9')
		return false;
	errno = 0;
	*out = strtoull(v, &end, 0);
	unit = *end && bytes ? strchr(units, *end & ~0x20) : NULL;
	if (unit) {
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
	}
	if (errno || *end || *out > BANDWIDTH_MAX >> shift)
		return false;
	*out <<= shift;
	return true;
}

int scsi_limit_parse(struct scsi_limit_conf *c, const char *key, const char *value)
{
	for (unsigned k = 0; k < SCSI_LIMIT_KEYS; k++) {
		bool bytes = k >= SCSI_LIMIT_KEYS / 2;
		uint64_t v;

		if (strcmp(key, scsi_limit_keys[k]) != 0)
			continue;
		if (!limit_number(value, bytes, &v) || (!bytes && v > IOPS_MAX) ||
		    (bytes && v && v < BANDWIDTH_MIN))
			return -EINVAL;
		*limit_field(c, k) = v;
		return 0;
	}
	return -ENOENT;
}

bool scsi_limit_any(const struct scsi_limit_conf *c)
{
	uint64_t any = 0;

	for (unsigned d = 0; d < SCSI_LIMIT_DIRS; d++)
		any |= c->iops[d] | c->bandwidth[d];
	return any;
}

uint64_t scsi_limit_value(const struct scsi_limit_conf *c, unsigned key)
{
	struct scsi_limit_conf copy = *c;

	ASSERT(key < SCSI_LIMIT_KEYS);
	return *limit_field(&copy, key);
}

void scsi_limit_print(const struct scsi_limit_conf *c, char *out, size_t len)
{
	size_t n = 0;

	ASSERT(len >= SCSI_LIMIT_TEXT);
	*out = 0;
	for (unsigned k = 0; k < SCSI_LIMIT_KEYS; k++)
		if (scsi_limit_value(c, k))
			n += (size_t)snprintf(out + n, len - n, "%s%s=%llu", n ? "," : "",
					      scsi_limit_keys[k],
					      (unsigned long long)scsi_limit_value(c, k));
}
