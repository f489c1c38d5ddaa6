/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The security stage of a login (RFC 7143 12.1): AuthMethod, then CHAP one-way or mutual, as a
 * small state machine over keys. Whether accounts count (a target's, or discovery's) is read when
 * the stage begins. They are looked up when a response comes: no login holds a copy of a secret,
 * and an administrator may change accounts at any time. Main loop only.
 */
#ifndef TGTD_ISCSI_AUTH_H
#define TGTD_ISCSI_AUTH_H

#include "tgtd/iscsi/iscsi.h"
#include "tgtd/iscsi/text.h"

struct iscsi_auth;

/* @t NULL: discovery. NULL when out of memory. */
struct iscsi_auth *iscsi_auth_create(struct scsi_target *t) must_check;
void iscsi_auth_destroy(struct iscsi_auth *a);
/* Must the initiator authenticate? */
bool iscsi_auth_required(const struct iscsi_auth *a);
/* True: @key is one of the security stage's, remembered for iscsi_auth_step(). */
bool iscsi_auth_key(struct iscsi_auth *a, const char *key, const char *value);
/* After all keys of one request. Adds the answers. 0: go on; otherwise an enum iscsi_login_status
 * that ends the login. */
uint16_t iscsi_auth_step(struct iscsi_auth *a, struct text_out *out);
/* The account name of a response that iscsi_auth_step() is about to verify; NULL: it is not. It
 * stays the caller's to read until that. */
const char *iscsi_auth_tries(const struct iscsi_auth *a);
/* Is what it has proven still enough for @t (NULL: discovery)? The administrator may have bound,
 * unbound, deleted or changed accounts since the login began. Main loop. */
bool iscsi_auth_holds(const struct iscsi_auth *a, const struct scsi_target *t);
/* Which account the initiator has proven to know the secret of; "" none. */
const char *iscsi_auth_user(const struct iscsi_auth *a);
/* The initiator may leave the security stage. */
bool iscsi_auth_done(const struct iscsi_auth *a);

#endif
