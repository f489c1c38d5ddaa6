/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What is written of sessions that go on in the process after this one (carry.h): a head, and then
 * of each session itself, its logical units, and its connections, each followed by the bytes that
 * were received of it and not yet looked at.
 *
 *     head | session | lun ... | conn | bytes | conn | bytes | session | ...
 *
 * The two processes may be of different versions of tgtd. Fields are added at the end of a struct,
 * and the head says how long each is: who knows less ignores the rest, who knows more finds zeroes,
 * which have to mean "as before". What cannot be said so takes another CARRY_VERSION, and whoever
 * does not know that one ends all sessions.
 *
 * The reader trusts nothing: what is not in its range is refused, with the session that it is of.
 * Pure computation, any thread that owns the objects.
 */
#ifndef TGTD_ISCSI_CARRY_FORM_H
#define TGTD_ISCSI_CARRY_FORM_H

#include <sys/socket.h>
#include "tgtd/iscsi/params.h"
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/scsi/carried.h"

#define CARRY_VERSION 1u
#define CARRY_UNPARSED_MAX KiB(256) /* bytes of one connection */
#define CARRY_CONNS_MAX 8u
#define CARRY_SIZE_MAX MiB(1024)

/* Of all that may be negotiated: what a TCP connection has, each value as in iscsi_params. */
struct carry_params {
	uint32_t header_digest, data_digest, initial_r2t, immediate_data, data_pdu_in_order,
		data_sequence_in_order, error_recovery_level, max_connections, max_outstanding_r2t,
		time2wait, time2retain, max_burst, first_burst, max_recv_dsl, max_xmit_dsl,
		reserved;
};

struct carry_session {
	uint32_t tid, tsih, tpgt;
	uint32_t exp_cmd_sn, max_cmd_sn, window, next_ttt;
	uint32_t nluns, nconns;
	uint32_t luns_changed; /* 0, 1: REPORTED LUNS DATA HAS CHANGED pends */
	uint64_t rounds, full_rounds;
	struct carry_params params;
	struct sockaddr_storage peer;
	uint8_t isid[8];					 /* six of them */
	char target[224], initiator[224], alias[256], user[256]; /* with their NULs */
};

struct carry_lun {
	uint32_t lun, nua, holds; /* scsi_carried_lun */
	uint16_t ua[SCSI_CARRIED_UAS];
	uint32_t reserved;
	uint64_t stats[9];
	uint64_t blocks; /* the first field that version 1 did not always have */
	uint32_t block_size, inquiry;
};

struct carry_conn {
	uint32_t cid, tpgt, stat_sn, exp_stat_sn;
	uint32_t unparsed;	 /* bytes that follow, and zeroes up to a multiple of eight */
	uint32_t counted;	 /* 0, 1: the next two say something */
	uint64_t received, sent; /* by the process before, of all that went through the socket */
	uint64_t stats[6];
	struct carry_params params;
	struct sockaddr_storage peer, local;
};

/* ---- writing --------------------------------------------------------------------------------- */

void carry_put_params(struct carry_params *out, const struct iscsi_params *p);
/* The head before @n sessions of @len bytes in all, whose checksum so far is @crc (begun with
 * carry_crc(0, ...)). */
#define CARRY_HEAD_LEN 48
void carry_put_head(uint8_t out[CARRY_HEAD_LEN], uint32_t n, uint32_t next_tsih, uint64_t len,
		    uint32_t crc);
uint32_t carry_crc(uint32_t crc, const void *data, size_t len);
/* Which of @n, that take @size[i] bytes each, have room together: those that take little come
 * first, so who takes much takes it from nobody else. Returns how many bytes @fits are. */
uint64_t carry_choose(const uint64_t *size, bool *fits, unsigned n, uint64_t room);

/* ---- reading --------------------------------------------------------------------------------- */

struct carry_reader {
	const uint8_t *p, *end;
	uint32_t sessions; /* that are to come */
	uint32_t next_tsih;
	uint32_t session_len, lun_len, conn_len;
};

/* 0; -EBADMSG it is damaged, -ENOTSUP of a version that is not known. @data stays where it is. */
int carry_read(struct carry_reader *r, const void *data, size_t len) must_check;
/* The next session; then its luns, then its connections, all of them. False: there is none (any
 * more), or it is not as it says: nothing that follows can be found then. */
bool carry_read_session(struct carry_reader *r, struct carry_session *s) must_check;
bool carry_read_lun(struct carry_reader *r, struct carry_lun *l) must_check;
/* @unparsed points into the data. */
bool carry_read_conn(struct carry_reader *r, struct carry_conn *c,
		     const uint8_t **unparsed) must_check;

/* Are all values in their ranges? NULL, or what is not. The numbers of luns and connections are
 * looked at before, when the session is read. */
const char *carry_session_wrong(const struct carry_session *s);
const char *carry_lun_wrong(const struct carry_lun *l);
const char *carry_conn_wrong(const struct carry_conn *c, const struct carry_session *s);
void carry_get_params(struct iscsi_params *p, const struct carry_params *in);

#endif
