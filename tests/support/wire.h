/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A target in this process and a handmade initiator at the other end of socket pairs, all on one
 * loop that the test steps: every byte, its order and its time are the test's choice. Real iSCSI
 * core, TCP transport, device server and ram store. LUN 1 is 16 MiB of 512-byte blocks.
 */
#ifndef TESTS_SUPPORT_WIRE_H
#define TESTS_SUPPORT_WIRE_H

#include <check.h>

#include "cache/blk/blk.h"
#include "events/loop.h"
#include "tgtd/iscsi/pdu.h"
#include "tgtd/scsi/target.h"

#define WIRE_IQN "iqn.2026-11.org.tgtd.test:wire"

struct wire_target {
	struct loop *loop;
	struct scsi_target *target;
};
extern struct wire_target wire_target;

/* The node of its loop; -1. */
extern int wire_node;
/* Puts a store of the test's before LUN 1's; NULL. */
extern struct blk *(*wire_store)(struct blk *lower);
/* Once per test process. */
void wire_target_start(void);
/* Ends all sessions and takes the target down; a leak checker sees nothing left. */
void wire_target_stop(void);
/* iscsi_stop() from the loop; *done when it is over. */
void wire_stop(unsigned grace_ms, bool *done);
void wire_steps(unsigned n);

struct wire {
	int fd;
	uint32_t itt, cmd_sn, exp_stat_sn, exp_cmd_sn, max_cmd_sn;
	uint16_t tsih;
	bool header_digest, data_digest;
	bool closed; /* the target has closed it */
	uint64_t written, got; /* bytes */
};

struct wire_pdu {
	uint8_t bhs[ISCSI_BHS_LEN];
	uint32_t len;
	uint8_t *data; /* valid until the next wire_recv() */
	bool digests_ok;
};

static inline unsigned wire_opcode(const struct wire_pdu *pdu)
{
	return bhs_opcode(pdu->bhs);
}

/* The target, and one session with it that is ready for commands; the other way round. */
void wire_up(struct wire *w, const char *keys);
void wire_down(struct wire *w);
/* Sessions that the target has. */
unsigned wire_sessions(void);
/* A connection, not logged in. */
void wire_open(struct wire *w);
void wire_close(struct wire *w);
/* Raw bytes. */
void wire_write(struct wire *w, const void *data, size_t len);
/* Builds one PDU with padding and digests into @out (at least 48 + len
 * + 12); returns its length. */
size_t wire_build(const struct wire *w, uint8_t *out, const uint8_t *bhs, const void *data,
		  uint32_t len);
void wire_send(struct wire *w, const uint8_t *bhs, const void *data, uint32_t len);
/* Steps until a PDU is there; false when the target closed the connection, or (time-out) sent
 * nothing. Tracks StatSN and the window. */
bool wire_recv(struct wire *w, struct wire_pdu *pdu);
/* The next PDU is there, and of this kind. */
#define wire_expect(w, pdu, opcode)                                  \
	do {                                                         \
		ck_assert(wire_recv(w, pdu));                        \
		ck_assert_uint_eq(wire_opcode(pdu), opcode);         \
	} while (0)
/* Nothing comes. */
bool wire_silent(struct wire *w);

/* Logs in to LUN 1's target in one exchange. @isid distinguishes sessions; @tsih,
 * @cid for more connections;
 * @keys: further "key=value" separated by '\n'. Returns the login status. */
unsigned wire_login(struct wire *w, uint8_t isid, uint16_t tsih, uint16_t cid, const char *keys);

/* A SCSI Command header with the next ITT and CmdSN; the caller may change it before sending. */
void wire_command(struct wire *w, uint8_t *bhs, uint8_t flags, uint32_t edtl, const uint8_t *cdb,
		  unsigned cdb_len);
void wire_rw10(struct wire *w, uint8_t *bhs, bool write, uint32_t lba, uint16_t blocks);
/* Any other request: opcode with the I bit, next ITT, present CmdSN. */
void wire_request(struct wire *w, uint8_t *bhs, uint8_t opcode, uint8_t flags);
/* Clears pending unit attentions. */
void wire_ready(struct wire *w);
/* READ(10) of @blocks into @out by any number of Data-In PDUs; the SCSI status. */
unsigned wire_read(struct wire *w, uint32_t lba, uint16_t blocks, void *out);
/* WRITE(10), answering R2Ts. The SCSI status. */
unsigned wire_write_blocks(struct wire *w, uint32_t lba, uint16_t blocks, const void *data);
void wire_pattern(uint8_t *p, size_t len, uint32_t seed);

#endif
