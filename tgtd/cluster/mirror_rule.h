/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef TGTD_CLUSTER_MIRROR_RULE_H
#define TGTD_CLUSTER_MIRROR_RULE_H

/* The rules, as the simulation breaks them one by one to see that it notices. In the daemon none is
 * ever broken, and the compiler leaves the question out. */
enum mirror_rule {
	MIRROR_RULES_KEPT,
	BREAK_ACK,	   /* a write is answered before the peer has it */
	BREAK_SHOW,	   /* a read shows what the peer lacks */
	BREAK_ONE_FRAME,   /* two frames of one block under way */
	BREAK_NEWEST,	   /* the peer lets an older generation win */
	BREAK_RELEASE,	   /* released when the peer has it, not when the store has it */
	BREAK_RELEASE_GEN, /* the peer releases whatever generation the page has */
	BREAK_TOMB_FIRST,  /* the store is asked before the peer has the tombstone */
	BREAK_TOMB_KEPT,   /* the peer drops pages and keeps no tombstone */
	BREAK_TOMB_DROPS,  /* the peer keeps the pages below a tombstone, and they win */
	BREAK_UNZERO,	   /* the range is free before the peer has dropped the tombstone */
	BREAK_GROUP,	   /* a group goes in several frames */
	BREAK_LOSING,	   /* the peer is lost: answered when the store has it, nothing set */
	BREAK_OUT,	   /* INVALID is set before all is written out */
	BREAK_COPY,	   /* VALID (T) is set before all is copied */
	BREAK_SETTING,	   /* answered by the peer alone before the object names it */
	BREAK_RESUME,	   /* a peer that has lost its pages is gone on with */
	BREAK_SESSION,	   /* the peer takes frames of an earlier session */
	BREAK_FRESH,	   /* a new mirror begins where the valid one is */
	BREAK_SEAL,	   /* the peer acknowledges after its seal */
	BREAK_CLIP,	   /* pages behind the end are taken */
	BREAK_STAMP,	   /* the peer claims by any mirror that it has */
	BREAK_DISMISS,	   /* a slow peer is waited for */
	BREAK_FOUND,	   /* what a restarted owner finds dirty counts as shown */
	BREAK_CLAIM,	   /* anybody claims a LU whose mirror is valid */
	BREAK_UNSEALED,	   /* the peer claims before its seal */
	BREAK_ARENA,	   /* the owner claims without the arena of that epoch */
	BREAK_HANDED,	   /* a hand-over leaves the mirror valid */
	MIRROR_RULES
};
#ifndef MIRROR_SIMULATION
#define mirror_breaks(rule) false
#endif

#endif
