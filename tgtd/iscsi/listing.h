/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What SendTargets lists (RFC 7143 annex C): all targets and portals as they are at one moment. The
 * text is made once. All readers share it until something changes. A reader goes through it at its
 * own pace, a PDU at a time, and keeps no text of its own. Main loop only.
 */
#ifndef TGTD_ISCSI_LISTING_H
#define TGTD_ISCSI_LISTING_H

#include <sys/socket.h>
#include "events/list.h"
#include "tgtd/iscsi/text.h"
#include "tgtd/scsi/target.h"

/* Moments that there are readers of. Beyond it those of the oldest one must ask anew. */
#define LISTINGS_MAX 8

struct listing;
struct listing_entry;

struct listing_cursor {
	struct list link; /* the listing's readers */
	struct listing *of; /* NULL: nothing is left */
	uint32_t at, end; /* targets */
	uint32_t pair;	  /* of the target: 0 its name, then its portals */
	uint32_t off;	  /* bytes of that pair which have been taken */
	int node;	  /* of the target */
	bool shown;	  /* the target may be seen */
	bool lost;	  /* the listing had to go before its end */
};

/* Who asks, and what it sees. */
struct listing_view {
	const char *initiator;
	const struct sockaddr *peer, *local;
};

enum listing_state {
	LISTING_OVER, /* that was all */
	LISTING_FULL, /* the next pair does not fit */
	LISTING_STEP, /* the budget is used up: call again */
	LISTING_NOMEM,
};

void listing_cursor_init(struct listing_cursor *c);
/* Begins with all targets, or with the one called @name (which may be none). 0 or -ENOMEM; a
 * cursor that was open is closed first. */
int listing_open(struct listing_cursor *c, const char *name) must_check;
/* Harmless when it is not open. */
void listing_close(struct listing_cursor *c);
/*
 * Adds whole pairs to @out while no more than @max bytes of it are untaken; a pair is split only
 * when @out has nothing else. A target is left out that @view may not log in to, or that is gone.
 * Takes from @budget about one for each target, rule and pair that is looked at, and stops when
 * nothing of it is left. NULL: no limit.
 */
enum listing_state listing_fill(struct listing_cursor *c, const struct listing_view *view,
				struct text_out *out, uint32_t max, int *budget);
/* What it says has changed: who asks from now on gets another listing. Called as targets come and
 * go; portals are counted in iscsi_core.portals_changed. */
void listing_changed(void);

/* What a target has in listings: made with its iSCSI side, gone with it. NULL: out of memory. */
struct listing_entry *listing_entry_new(struct scsi_target *t);
void listing_entry_gone(struct listing_entry *e);

/* An address as an initiator would dial it: "1.2.3.4" or "[v6]". Any thread. */
void listing_address(const struct sockaddr *addr, char *out, size_t len);

#endif
