/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * With `tgtd --keep-connections=all`: TCP connections that have commands under way when this
 * process dies go on in the next one, in sessions of one connection at ErrorRecoveryLevel 0. What
 * is written down, as they work, is in flight_form.h. Without that option conn->flight is NULL.
 *
 * flight.c writes, flight_back.c finds, flight_go.c goes on. What a session is, quiet.h has; a
 * session that has no such record, or one that cannot be gone on with, is as quiet.h has it.
 */
#ifndef TGTD_ISCSI_FLIGHT_H
#define TGTD_ISCSI_FLIGHT_H

#include "tgtd/iscsi/session.h"
#include "tgtd/iscsi/flight_form.h"

#define FLIGHT_KEY "flight"
#define FLIGHT_OTHER 0xffffu /* iscsi_task.flight: one that nobody can go on with */

/* Of one session; its loop's. */
struct iscsi_flight {
	struct flight_slot *slot;
	uint32_t at; /* in the received stream, low bits: where the PDU that is begun next begins,
		      * or the one that has begun ends */
	uint32_t nspare;
	uint16_t spare[FLIGHT_CMDS]; /* numbers of commands that nobody has, + 1 */
	uint8_t *data[FLIGHT_CMDS];  /* of those that wait */
};

/* ---- main ------------------------------------------------------------------------------------ */
/* Records for as many sessions as there are slots of quiet.h. 0 or -errno: nothing goes on that has
 * anything under way. */
int iscsi_flight_start(unsigned sessions) must_check;
void iscsi_flight_stop(void);
/* The memfd, -1: there is none. */
int iscsi_flight_fd(void);
/* @s, which no loop has yet, has slot @i; or no loop has it any more. */
void iscsi_flight_session(struct iscsi_session *s, uint32_t i);
void iscsi_flight_forget(struct iscsi_session *s);

/* The cache's memory of @node lies at @base, and is the file that the keeper has of it. Before
 * iscsi_flight_start(). */
void iscsi_flight_arena(unsigned node, const void *base, uint64_t len);
/*
 * In a process that follows one that has died, before the cache is attached to @arena_fd (by node,
 * -1: none; still the caller's): what that process had under way is judged, and what is owed to
 * sockets is copied from the arenas. @count: as of iscsi_transport. From here on the next process
 * finds nothing of it.
 */
void iscsi_flight_take_over(const int arena_fd[], unsigned nodes,
			    bool (*count)(int fd, uint64_t *received, uint64_t *sent));

/* What was under way in the process before (flight_back.c): NULL, there is nothing of @tsih that
 * can be gone on with. *@why: there is something, and it cannot. */
struct flight_taken;
const struct flight_taken *iscsi_flight_taken_of(uint32_t tsih, const char **why);
/* Its numbers, in a record of carry_form.h. False: they do not fit, and it ends. */
struct carry_session;
struct carry_conn;
bool iscsi_flight_patch(const struct flight_taken *f, struct carry_session *s,
			struct carry_conn *c) must_check;
/* *@len bytes that were received and not looked at; they stay until iscsi_flight_let_go(). */
const uint8_t *iscsi_flight_unparsed(const struct flight_taken *f, uint32_t *len);
/* What its socket is owed, which is the caller's from now on, in heap memory; NULL: nothing. */
uint8_t *iscsi_flight_owed(const struct flight_taken *f, uint32_t *len);
/* Bytes that its socket is to bring first, and that are of no use. */
uint32_t iscsi_flight_skip(const struct flight_taken *f);
/* Was anything under way? How many of its commands go on, what its socket is owed: bytes. */
bool iscsi_flight_busy(const struct flight_taken *f);
unsigned iscsi_flight_commands(const struct flight_taken *f);
uint32_t iscsi_flight_owes(const struct flight_taken *f);
/* What iscsi_flight_goes_on() needs, with what @f has of data. Any thread frees it. NULL: no
 * memory. */
struct flight_going {
	uint32_t ncmds; /* by CmdSN */
	struct flight_cmd cmd[FLIGHT_CMDS];
	uint8_t *data[FLIGHT_CMDS]; /* of those that wait */
};
struct flight_going *iscsi_flight_going(const struct flight_taken *f);
void iscsi_flight_going_free(struct flight_going *g);
/* Nothing of it is of use any more. */
void iscsi_flight_let_go(void);

/* ---- the session's loop ---------------------------------------------------------------------- */
/* @conn is in full feature phase from now on. (It is so no more: iscsi_quiet_leave().) */
void iscsi_flight_enter(struct iscsi_conn *conn);
void iscsi_flight_leave(struct iscsi_conn *conn);
/* It goes on from the process before, all other sessions have arrived, and it reads nothing yet:
 * its commands are carried out. */
void iscsi_flight_goes_on(struct iscsi_conn *conn, struct flight_going *g);
/* A command has come whose PDU ends at ->at; it is in the session, and has not been started. */
void iscsi_flight_command(struct iscsi_conn *conn, struct iscsi_task *t, const uint8_t *bhs,
			  bool ordinary);
/* The same of one that was taken by the process before, and stood as @before says. The record is in
 * doubt as a whole still. */
void iscsi_flight_again(struct iscsi_conn *conn, struct iscsi_task *t,
			const struct flight_cmd *before);
/* A write waits for blocks, and has all of its data, which is @data. */
void iscsi_flight_waits(struct iscsi_conn *conn, struct iscsi_task *t, const uint8_t *data,
			uint32_t len);
/* A segment of a write is to be filled: what has been carried out before that is written down. */
void iscsi_flight_stored(struct iscsi_conn *conn, struct iscsi_task *t);
/* An R2T with this tag will be sent. */
void iscsi_flight_asks(struct iscsi_conn *conn, struct iscsi_task *t, uint32_t ttt);
/* A Data-Out PDU that ends at ->at has begun, of sequence @seq of @t; NULL: nobody's. */
void iscsi_flight_into(struct iscsi_conn *conn, const struct iscsi_task *t, unsigned seq,
		       bool final);
/* That PDU has ended, and was of @t, and the last of its sequence. */
void iscsi_flight_over(struct iscsi_conn *conn, struct iscsi_task *t);
/* A PDU that may have been a Data-Out has ended, at ->at. */
void iscsi_flight_passed(struct iscsi_conn *conn);
/* Its number goes back. */
void iscsi_flight_release(struct iscsi_conn *conn, struct iscsi_task *t);
/* @n more things are under way that nobody can go on with, or less. */
void iscsi_flight_doubt(struct iscsi_conn *conn, int n);
/* The transport, ->attach: so many bytes were taken from its socket and looked at, and sent. @skip
 * that are to come are thrown away; iscsi_flight_passed() when they have come. */
void iscsi_flight_begin(struct iscsi_conn *conn, uint64_t received, uint64_t sent, uint32_t skip);
/* All of @log has been taken by the socket. */
void iscsi_flight_log_over(struct iscsi_conn *conn, struct flight_log *log);

/* ---- memory that outlives the process; any thread -------------------------------------------- */
enum flight_room { FLIGHT_RX, FLIGHT_TX, FLIGHT_ROOM_KINDS };
/* FLIGHT_RX_ROOM or FLIGHT_TX_ROOM bytes. NULL: there is none. */
void *iscsi_flight_room(enum flight_room kind);
/* False: it is not of there. */
bool iscsi_flight_room_back(enum flight_room kind, void *p);
/* Where it is in the file; 0: it is not there. */
uint64_t iscsi_flight_offset(const void *p);

/* ---- inline ---------------------------------------------------------------------------------- */

/* A write is about to be carried out. */
static inline void iscsi_flight_applies(const struct iscsi_conn *conn, const struct iscsi_task *t)
{
	if (t->flight != FLIGHT_OTHER)
		conn->flight->slot->cmd[t->flight - 1].state = FLIGHT_APPLYING;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* The PDU of a write has been taken in. One of which nothing is written down yet is in doubt, but
 * for one that is owed data. */
static inline void iscsi_flight_received(struct iscsi_conn *conn, struct iscsi_task *t)
{
	struct flight_cmd *c;

	if (t->flight == FLIGHT_OTHER)
		return;
	c = &conn->flight->slot->cmd[t->flight - 1];
	if (c->state == FLIGHT_FREE && c->owed)
		c->state = FLIGHT_OWED;
	else if (c->state == FLIGHT_FREE)
		iscsi_flight_applies(conn, t);
	if (c->owed)
		iscsi_flight_stored(conn, t);
}

/* A write is over. One that went well will be answered, whatever comes. No other may be carried out
 * again: who has aborted it goes by that, and so does who resets the unit behind its end. Nor may a
 * read that has a unit attention: that pends no more, so it would go well, and nobody be told. */
static inline void iscsi_flight_completes(const struct iscsi_task *t)
{
	const struct scsi_cmd *c = &t->cmd;

	if (likely(t->flight) && likely(t->flight != FLIGHT_OTHER) &&
	    (likely(c->dir_out) || unlikely(c->status == SAM_CHECK_CONDITION &&
					    scsi_sense_key(c) == SENSE_UNIT_ATTENTION)))
		t->conn->flight->slot->cmd[t->flight - 1].state =
			likely(c->status == SAM_GOOD) && !c->aborted && !t->fenced && !t->silent &&
					c->out_total == c->edtl_out ?
				FLIGHT_DONE :
				FLIGHT_APPLYING;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Its number goes back: the log that has its answer is over, so it is free already. */
static inline void iscsi_flight_answered(struct iscsi_conn *conn, struct iscsi_task *t)
{
	struct iscsi_flight *f = conn->flight;

	if (unlikely(t->flight == FLIGHT_OTHER) || unlikely(f->data[t->flight - 1])) {
		iscsi_flight_release(conn, t);
		return;
	}
	ASSERT(conn->failed || f->slot->cmd[t->flight - 1].state == FLIGHT_FREE);
	f->spare[f->nspare++] = t->flight;
	t->flight = 0;
}

/* Writes down a command that is one of @state, of which nothing is known to be answered.
 * FLIGHT_FREE: it has a number, and its PDU has not been taken into account. */
static inline void iscsi_flight_put(struct iscsi_flight *f, struct iscsi_task *t,
				    const uint8_t *bhs, uint32_t at, enum flight_state state)
{
	struct flight_cmd *c;

	t->flight = f->spare[--f->nspare];
	c = &f->slot->cmd[t->flight - 1];
	memcpy(c->bhs, bhs, ISCSI_BHS_LEN);
	c->at = at;
	c->off = c->data_sn = c->burst = c->owed = 0;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	c->state = state;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* What ends at ->at has been taken into account. */
static inline void iscsi_flight_take(struct iscsi_conn *conn)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	conn->flight->slot->taken = flight_taken(conn->flight->at, conn->sess->exp_cmd_sn);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

#endif
