/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The initiator of fastdiff.h: every choice it makes is a byte of the input, or follows from what
 * the target has sent. */
#ifndef TESTS_SUPPORT_FASTPEER_H
#define TESTS_SUPPORT_FASTPEER_H

#include "tests/support/fastdiff.h"
#include "tests/support/wire.h"

#define FASTPEER_LUN 2
#define FASTPEER_BLOCKS 2048u /* of 512 bytes */
#define FASTPEER_R2TS 32
#define FASTPEER_UNSOLS 16

enum fastpeer_store {
	FASTPEER_RAM,
	FASTPEER_CACHED,      /* a cache whose store answers at once */
	FASTPEER_CACHED_LATER /* ... by message */
};

struct fastpeer_log {
	char *text;
	size_t len, size;
};

/* Data that is to be sent: for an R2T, or unsolicited (ttt ISCSI_TAG_NONE). */
struct fastpeer_due {
	uint32_t itt, ttt, off, end, data_sn;
};

struct fastpeer {
	struct wire w;
	const uint8_t *in; /* the input */
	size_t left;
	enum fastpeer_store store;
	unsigned keys, odd, window;
	uint32_t max_data; /* what it may send in a segment */
	bool immediate, initial_r2t;
	struct fastpeer_log *log;
	/* Not yet written. */
	uint8_t out[1 << 20];
	size_t out_len;
	/* Came, not yet a whole PDU. */
	uint8_t came[1 << 20];
	size_t came_len;
	struct fastpeer_due due[FASTPEER_R2TS];
	unsigned ndue;
	uint32_t itts[16], missing; /* tags used lately; a number that was left out, or 0 */
	uint32_t seed, text_ttt;
	unsigned step;
	uint64_t acked; /* ExpStatSN as the target knows it, summed over the steps */
	struct fastdiff_seen seen;
};

/* Takes the shape of the conversation off the input: the store, the session's keys. */
void fastpeer_begin(struct fastpeer *f);
/* A session, without unit attentions; the unit has something in it. */
void fastpeer_login(struct fastpeer *f);
/* All that is left of the input; then until nothing comes any more. */
void fastpeer_talk(struct fastpeer *f);

/* ---- of fastdiff.c --------------------------------------------------------------------------- */
/* Something that has to be the same in both runs. */
void fastpeer_note(struct fastpeer *f, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The target's side of it, or NULL. */
struct iscsi_conn *fastpeer_conn(void);
/* Waits for what helper threads do. */
void fastpeer_settle(void);

#endif
