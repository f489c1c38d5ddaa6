/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a LU's owner and the gateway that mirrors it send each other: the values, and their form in
 * bytes. Pure functions; any thread. Integers are big-endian. Foreign bytes are refused with a
 * reason, never guessed at: another version, a wrong CRC32C, a length or a number out of range.
 *
 *     OPEN     owner: a session begins. Fresh: the mirror @mirror begins, empty. Else it goes on
 *     WELCOME  peer: the answer, @result. @peer and @mirror are the mirror's stamp
 *     BATCH    owner: records, done in their order; none: a sign of life
 *     ACK      peer: all of batch @serial is done (@result 0), or none of it
 */
#ifndef TGTD_CLUSTER_MIRROR_FRAME_H
#define TGTD_CLUSTER_MIRROR_FRAME_H

#include "events/base.h"

#define MIRROR_VERSION 1
#define MIRROR_BATCH 64	   /* records of a frame */
#define MIRROR_SECTORS 64  /* of a block at most: one word says which */
#define MIRROR_SHIFT_MIN 9 /* log2 of a sector's bytes */
#define MIRROR_SHIFT_MAX 12
#define MIRROR_INLINE UINT32_MAX /* record.ref: its data follow the records of the frame */
#define MIRROR_HEAD 88		 /* bytes before the records */
#define MIRROR_RECORD 40	 /* bytes of one */
#define MIRROR_HEAD_MAX (MIRROR_HEAD + MIRROR_BATCH * MIRROR_RECORD)

enum mirror_kind { MIRROR_OPEN, MIRROR_WELCOME, MIRROR_BATCHED, MIRROR_ACK, MIRROR_KINDS };

enum mirror_result {
	MIRROR_OK,
	MIRROR_LACKS,  /* there is no such mirror here, or what it held is lost */
	MIRROR_SEALED, /* nothing is taken any more: the peer is about to own the LU */
	MIRROR_BUSY,   /* the same, for now: what an earlier mirror holds may still be needed */
	MIRROR_NOROOM,
	MIRROR_RESULTS
};

enum mirror_op {
	MIRROR_WRITE,	/* sectors @map of block @block, generation @gen; their data */
	MIRROR_ZERO,	/* tombstone: @map blocks from @block on are zero, or unmapped */
	MIRROR_UNZERO,	/* tombstone @gen is over: the store has done it */
	MIRROR_CUT,	/* the LU ends before @block: what is there and behind goes */
	MIRROR_RELEASE, /* the store has @block as of generation @gen: it may go */
	MIRROR_OPS
};

struct mirror_record {
	uint8_t op;
	bool more;    /* the next record belongs to it: done together or not at all */
	uint32_t ref; /* WRITE: MIRROR_INLINE, or the slot of the peer's where its data were put */
	uint32_t crc; /* WRITE: CRC32C of its data */
	uint64_t block, gen, map;
	uint64_t cookie; /* not on the wire: of the group whose data it has, or 0 */
};

/* The session: it orders all that one owner, and those before it, have sent. */
struct mirror_session {
	uint64_t epoch, incarnation; /* the owner's */
	uint32_t number;
};

struct mirror_frame {
	uint8_t kind, from; /* @from: a gateway's index */
	uint8_t result;	    /* WELCOME, ACK: enum mirror_result. OPEN: 1 is a fresh mirror */
	uint8_t shift;	    /* log2 of a sector's bytes */
	uint16_t n;	    /* records */
	uint32_t room;	    /* WELCOME: pages that there are for this mirror */
	uint64_t lu;	    /* gw_lu_hash() of its identity */
	struct mirror_session session;
	uint64_t mirror; /* epoch of the mirror, as the LU's object counts it */
	uint64_t serial; /* of a BATCH, within the session; of the one that an ACK answers */
	uint64_t peer;	 /* WELCOME: the peer's incarnation when the mirror began */
	struct mirror_record record[MIRROR_BATCH];
	const uint8_t *data; /* what follows the records */
	size_t data_len;
};

/* <0, 0, >0: as sessions follow each other. */
int mirror_session_compare(const struct mirror_session *a, const struct mirror_session *b);

/* CRC-32C of a record's data; and in pieces, from MIRROR_SUM on. */
#define MIRROR_SUM UINT32_MAX
uint32_t mirror_sum(const void *data, size_t len);
uint32_t mirror_sum_more(uint32_t sum, const void *data, size_t len);
/* Bytes of a record's data. */
static inline size_t mirror_data_len(const struct mirror_record *r, unsigned shift)
{
	return r->op == MIRROR_WRITE ? (size_t)__builtin_popcountll(r->map) << shift : 0;
}

/* The next run of sectors of *@map, which is not 0, and is taken out of it: its first one; *@n of
 * them follow each other. */
static inline unsigned mirror_run(uint64_t *map, unsigned *n)
{
	const unsigned first = (unsigned)__builtin_ctzll(*map);
	const uint64_t rest = *map >> first;

	*n = ~rest ? (unsigned)__builtin_ctzll(~rest) : 64u;
	*map &= *n == 64 ? 0 : ~(((1ull << *n) - 1) << first);
	return first;
}

/* Head and records into @buf (MIRROR_HEAD_MAX): the bytes used. @f->data_len bytes of data are to
 * follow them on the wire, in the order of the records that say MIRROR_INLINE. What is given must
 * be valid: numbers and enumerations within their ranges. */
size_t mirror_encode(const struct mirror_frame *f, uint8_t *buf);
/* Of an encoded BATCH: its WRITE records (MIRROR_BATCH at most), and how many bytes they are with
 * the head, without data. */
unsigned mirror_encoded_writes(const uint8_t *buf, size_t *head);
/* Sectors of record @i, which is a WRITE, of an encoded BATCH; 0: it is none. */
uint64_t mirror_encoded_map(const uint8_t *buf, unsigned i);
/* The data of an encoded BATCH do not follow it: its @k-th WRITE record has them in the peer's slot
 * @slot[k]. Its form is made anew: the bytes of it. */
size_t mirror_encoded_slots(uint8_t *buf, const uint32_t *slot);
/* How long the frame is of which these are the first MIRROR_HEAD bytes: 0, it is none, and the
 * channel must end. At most @limit. */
size_t mirror_frame_length(const void *head, size_t limit);
/* NULL, or why it is refused: a text for the log; *@f is then zeroed. Data lie in @bytes. */
const char *mirror_decode(struct mirror_frame *f, const void *bytes, size_t len);

#endif
