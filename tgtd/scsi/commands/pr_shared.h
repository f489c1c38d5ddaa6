/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Persistent reservations as the gateways of a group share them: bytes in the unit's object in
 * RADOS (tgtd/cluster/object.h), where every gateway may change them by compare-and-set. Pure
 * functions; any thread. What others wrote is refused with a reason, never guessed at.
 *
 *     0   form (1 byte: 1), generation (4), type (1), APTPL (1), holder's id (8; 0: none),
 *         the last id that was given (8)
 *     23  registrations (2 bytes: how many), ids ascending, each:
 *         id (8), key (8), relative port (2), PR_SHARED_* (1), releases (4), name (1 + n),
 *         maker (1 + n; only with PR_SHARED_MAKER)
 *     ..  registrations that are gone (2 bytes: how many), oldest first, each:
 *         id (8), unit attention (2), whether its commands are aborted (1)
 *
 * Unit attentions: each gateway compares the state that it saw last with this one, and tells its
 * own nexuses. Whose registration is gone is told what the list says of its id; when that has
 * become too old for the list, REGISTRATIONS PREEMPTED. Nothing needs to be acknowledged.
 */
#ifndef TGTD_SCSI_COMMANDS_PR_SHARED_H
#define TGTD_SCSI_COMMANDS_PR_SHARED_H

#include "tgtd/scsi/commands/pr_rules.h"

/* Of a unit, and of them, those that one initiator has made: a quarter. Names may be long, so bytes
 * are limited, too: 24 and the name for each. */
#define PR_SHARED_REGISTRATIONS 512u
#define PR_SHARED_INITIATOR (PR_SHARED_REGISTRATIONS / 4)
#define PR_SHARED_BYTES KiB(56)
#define PR_SHARED_INITIATOR_BYTES (PR_SHARED_BYTES / 4)
#ifndef PR_SHARED_GONE
#define PR_SHARED_GONE 512u
#endif
/* All of it is never more. */
#define PR_SHARED_MAX (PR_SHARED_BYTES + 11 * PR_SHARED_GONE + 32)

enum { PR_SHARED_DEVICE = 1, PR_SHARED_ALL_PORTS = 2, PR_SHARED_MAKER = 4, PR_SHARED_BITS = 7 };

struct pr_gone {
	uint64_t id;
	uint16_t ua; /* 0: it is not told, it has asked for it */
	bool abort;
};
struct pr_shared {
	struct scsi_pr pr; /* first: the unit's */
	unsigned ngone;
	struct pr_gone gone[PR_SHARED_GONE]; /* oldest first */
};

void pr_shared_init(struct pr_shared *s);
/* Writes it into @buf (PR_SHARED_MAX); the bytes used. */
size_t pr_encode(const struct pr_shared *s, uint8_t *buf);
/* Of no bytes at all: nobody is registered. NULL: *@s is what they say, for pr_fini(&s->pr).
 * Otherwise why not, and nothing is to be given back. */
const char *pr_decode(struct pr_shared *s, const void *bytes, size_t len);
/* Carries out @q, whose limits are set here. With ->changed, *@to_len bytes of @to (PR_SHARED_MAX)
 * are the new state. 0, or -EBADMSG: @from is not understood; -ENOMEM. */
int pr_shared_do(const uint8_t *from, size_t from_len, struct pr_request q, uint8_t *to,
		 size_t *to_len, struct pr_outcome *r) must_check;
/* What has become of registration @id, which is not in s->pr. */
struct pr_gone pr_shared_gone(const struct pr_shared *s, uint64_t id);

#endif
