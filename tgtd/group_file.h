/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgtd --group: what it names lies in files: <cluster> of targets.conf, the secret of mirrors. */
#ifndef TGTD_GROUP_FILE_H
#define TGTD_GROUP_FILE_H

#include <stddef.h>
#include "events/base.h"
#include "tgtd/cluster/live/group.h"

/*
 * @arg: "PATH[,self=NAME]". @text: what group_parse() takes. Without self= this gateway is the one
 * that is called as this machine is, with or without its domain. 0, or -errno with the reason.
 * Before there are threads.
 */
int group_of_file(const char *arg, char *text, size_t len, char *why, size_t why_len) must_check;
/*
 * c->secret becomes the first line of c->secret_file, where there is one: MIRROR_SECRET_MIN to
 * MIRROR_SECRET_MAX bytes without control characters. 0, or -errno with the reason: the file cannot
 * be read, or by others than its owner, too. Before there are threads.
 */
int group_read_secret(struct group_conf *c, char *why, size_t why_len) must_check;

#endif
