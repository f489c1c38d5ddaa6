/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgtd --group file=: the gateways are those of <cluster> in targets.conf. */
#ifndef TGTD_GROUP_FILE_H
#define TGTD_GROUP_FILE_H

#include <stddef.h>
#include "events/base.h"

/*
 * @arg: "PATH[,self=NAME]". @text: what group_parse() takes. Without self= this gateway is the one
 * that is called as this machine is, with or without its domain. 0, or -errno with the reason.
 * Before there are threads.
 */
int group_of_file(const char *arg, char *text, size_t len, char *why, size_t why_len) must_check;

#endif
