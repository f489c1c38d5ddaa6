/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a group of gateways keeps in RADOS, and what gateways send each other: the values, and their
 * form in bytes. An object a gateway, an object a logical unit (LU). All of it is changed only by
 * compare-and-set on the version that RADOS gives an object.
 *
 * Pure functions; any thread. Integers are big-endian. Bytes that others wrote are refused with a
 * reason, never guessed at: another version, a wrong checksum, a length that does not fit.
 */
#ifndef TGTD_CLUSTER_OBJECT_H
#define TGTD_CLUSTER_OBJECT_H

#include "events/base.h"

#define GW_GATEWAYS 16	      /* of a group; a gateway is known by its index in the configuration */
#define GW_NOBODY 0xff	      /* no gateway */
#define GW_ADDR_MAX 95	      /* characters of a data client's address, as the blocklist takes it */
#define GW_FENCES 16	      /* addresses that a LU's object can name */
#define GW_PROCESS_MAX 127    /* characters of a process's name */
#define GW_PAST 8	      /* data clients of before that a gateway's object can name */
#define GW_SHARED_MAX KiB(64) /* bytes of a LU's shared state */
#define GW_ATTENTIONS 8	      /* counters of unit attentions that concern every initiator */
#define GW_OBJECT_MAX (GW_SHARED_MAX + KiB(8))
#define GW_MESSAGE_MAX 64

/* ---- a gateway's object ---------------------------------------------------------------------- */
/* What has become of the incarnation that the object names. */
enum gw_life {
	GW_UP,	 /* it renews */
	GW_DOWN, /* it was deposed: no renewal of it can succeed. Its lease may still run: wait */
	GW_OVER, /* the same, and its lease is known to be over: it ended, or the wait was paid */
	GW_LIVES
};

/* A data client, and whose it is: enough to tell whether that process is gone (gw_ops.gone()). */
struct gw_past {
	char addr[GW_ADDR_MAX + 1];
	char process[GW_PROCESS_MAX + 1]; /* "": nobody could ever tell */
};

struct gw_gateway_object {
	uint64_t incarnation; /* ascending, from 1: one a data client */
	uint64_t sequence;    /* ascending within the incarnation: one a renewal */
	uint64_t nonce;	     /* of the last write: tells a write that timed out whether it landed */
	uint8_t life;	     /* enum gw_life */
	uint8_t by;	     /* who wrote DOWN or OVER */
	struct gw_past now;  /* .addr is what is to be fenced: its data client's address */
	uint8_t npast;	     /* clients of before, the oldest first, which may be fenced yet */
	struct gw_past past[GW_PAST];
};

/* ---- a LU's object --------------------------------------------------------------------------- */
enum gw_claim {
	GW_FREE,    /* nobody's: the last owner has drained, flushed, and given its lock back */
	GW_CLAIMED, /* the owner is taking: it fences, and must not serve yet */
	GW_OWNED,   /* the owner serves */
	GW_CLAIMS
};

/* An address that has to be on the blocklist before the LU is served. */
struct gw_fence {
	uint8_t gateway;
	uint64_t incarnation;
	char addr[GW_ADDR_MAX + 1];
};

/* The peer that holds what is dirty (mirrored write-back). */
enum gw_mirror_state {
	GW_MIRROR_NONE,	   /* there never was one */
	GW_MIRROR_VALID,   /* only the owner and the peer have what is dirty */
	GW_MIRROR_INVALID, /* nothing that was answered is dirty */
	GW_MIRROR_DOUBT,   /* both were lost, and given up: SYNCs fail until refresh=1 */
	GW_MIRROR_STATES
};
struct gw_mirror {
	uint8_t state, peer;
	uint64_t incarnation, epoch; /* of the peer; of the mirror */
};

/* What every gateway must answer alike. The cluster keeps it and does not know what @blob says. */
struct gw_shared {
	uint64_t gen;			   /* counts changes */
	uint32_t attention[GW_ATTENTIONS]; /* counts; a gateway that sees one move raises it */
	uint32_t len;			   /* of @blob */
	uint8_t *blob; /* reservations, registrations, attentions per registrant */
};

struct gw_lu_object {
	uint64_t unit;		    /* gw_lu_hash() of whose it is; 0: an older tgtd wrote it */
	uint64_t epoch;		    /* ascending: one an owner */
	uint64_t incarnation;	    /* of the owner */
	uint8_t owner;		    /* or GW_NOBODY when FREE and nobody ever owned it */
	uint8_t claim;		    /* enum gw_claim */
	uint8_t home;		    /* where it belongs: configured */
	uint8_t wanted;		    /* where it shall be now; GW_NOBODY: wherever it is */
	char addr[GW_ADDR_MAX + 1]; /* of the owner's data client */
	/* The last write of each gateway. One word for all would be overwritten by the next writer,
	 * and who timed out could not tell "landed, and then changed" from "never landed". */
	uint64_t nonce[GW_GATEWAYS];
	uint8_t nfences;
	struct gw_fence fence[GW_FENCES];
	struct gw_mirror mirror;
	struct gw_shared shared;
};

/* ---- messages between gateways --------------------------------------------------------------- */
/* Each may be late, lost or doubled. None is believed where an object can be read instead. */
enum gw_msg_kind {
	GW_MSG_HINT,  /* the LU's object has changed: read it */
	GW_MSG_ASK,   /* are you, owner of @epoch, at shared state @gen or later? Answer when so */
	GW_MSG_RESET, /* LOGICAL UNIT RESET, from @cookie: answer when it is done */
	GW_MSG_DONE,  /* the answer to either: @kind of the question in @what */
	GW_MSG_WORKING,	 /* the same: not yet. Silence deposes an owner, slowness does not */
	GW_MSG_NOT_MINE, /* the same: I do not own it */
	GW_MSG_REAPED,	 /* the keeper's word: no process of @gateway's @incarnation lives */
	GW_MSG_SIZE,	 /* the LU's image has another size: look */
	GW_MSG_KINDS
};
struct gw_msg {
	uint8_t kind, what;
	uint8_t gateway; /* REAPED */
	uint64_t lu;	 /* gw_lu_hash() of its identity: each gateway counts its LUs itself */
	uint64_t epoch, gen;
	uint64_t cookie; /* comes back with the answer */
	uint64_t incarnation;
};

uint64_t gw_lu_hash(const char *id);

/* ---- their form ------------------------------------------------------------------------------ */
/* Writes into @buf (GW_OBJECT_MAX, GW_MESSAGE_MAX); the bytes used. What is given must be valid:
 * lengths and enumerations within their ranges. */
size_t gw_encode_gateway(const struct gw_gateway_object *o, uint8_t *buf);
size_t gw_encode_lu(const struct gw_lu_object *o, uint8_t *buf);
size_t gw_encode_msg(const struct gw_msg *m, uint8_t *buf);
/* The other way. NULL, or why it is refused: a text for the log; *@o is then zeroed. A LU's blob
 * lies in @bytes. */
const char *gw_decode_gateway(struct gw_gateway_object *o, const void *bytes, size_t len);
const char *gw_decode_lu(struct gw_lu_object *o, const void *bytes, size_t len);
const char *gw_decode_msg(struct gw_msg *m, const void *bytes, size_t len);

#endif
