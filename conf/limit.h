/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Limits of IOPS and bandwidth in targets.conf: parameters of a store, and of an initiator, where
 * they stand in one line: `initiator-limit NAME iops_limit=500,bandwidth_limit=10M`. Pure.
 */
#ifndef CONF_LIMIT_H
#define CONF_LIMIT_H

#include "conf/model.h"

/* Is it the key of a limit, or of its burst? */
bool conf_limit_known(const char *key);
/* Can @key, which is known, be @value? As the daemon takes it (tgtd/scsi/limit_text.c). */
bool conf_limit_ok(const char *key, const char *value);
/* What is wrong in a line of limits, as text in @why; false: nothing. */
bool conf_limits_wrong(const char *limits, char *why, size_t len);
/* The parameters that lead from @have to @want, which may be NULL; NULL: none. A key alone takes
 * back. Lives as long as @c. */
const char *conf_limits_change(struct conf *c, const char *have, const char *want);

#endif
