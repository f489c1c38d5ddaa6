/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Receiving ordinary commands: the counterpart of rx.c for those that need nothing of what rx.c
 * knows. See fast.h for the rule.
 */
#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/fast.h"
#include "tgtd/iscsi/flight.h"
#include "tgtd/scsi/timing.h"

void iscsi_rx_hint(struct iscsi_conn *conn, const uint8_t *bhs, size_t stride, unsigned count,
		   bool next)
{
	struct scsi_nexus *nexus = iscsi_conn_nexus(conn);

	if (likely(nexus != NULL) && likely(bhs_opcode(bhs) == ISCSI_SCSI_CMD))
		scsi_cmd_hints(nexus, bhs + BHS_LUN, bhs + BHS_CDB, stride, count, next);
}

/* Is it a SCSI Command that reads and is ordinary in all that its first eight bytes say: not
 * immediate, F and R, no W, SIMPLE or untagged, no AHS, no data? */
static inline bool is_fast_read(const uint8_t *bhs)
{
	uint64_t w;

	memcpy(&w, bhs, sizeof(w));
	return (w & htobe64(0x7fe60000ffffffff)) == htobe64(0x01c0000000000000);
}

/* The same for a write with immediate data, which may be of any length. */
static inline bool is_fast_write(const uint8_t *bhs)
{
	uint64_t w;

	memcpy(&w, bhs, sizeof(w));
	return (w & htobe64(0x7fe60000ff000000)) == htobe64(0x01a0000000000000);
}

/* A task for such a header; its number is taken. NULL: nothing was done. @at: conn->flight is
 * there, and the PDU ends there in the received stream. */
static inline __attribute__((always_inline)) struct iscsi_task *
fast_task(struct iscsi_conn *conn, const uint8_t *bhs, uint32_t edtl, bool write, bool flight,
	  uint32_t at)
{
	const enum flight_state state = write ? FLIGHT_APPLYING : FLIGHT_READ;
	struct iscsi_session *s = conn->sess;
	struct iscsi_task *t = iscsi_task_cache_, **bucket;
	uint32_t itt = get_be32(bhs + BHS_ITT), cmd_sn = get_be32(bhs + BHS_CMD_SN);
	struct scsi_cmd *c;

	if (unlikely(!iscsi_conn_fast(conn)) || unlikely(!t) || unlikely(itt == ISCSI_TAG_NONE))
		return NULL;
	if (unlikely(cmd_sn != s->exp_cmd_sn) || unlikely(sn_lt(s->max_cmd_sn, cmd_sn)) ||
	    unlikely(!list_empty(&s->held)))
		return NULL;
	if (flight && (unlikely(!conn->flight->nspare) ||
		       unlikely(flight_kind(bhs[BHS_CDB]) != state)))
		return NULL;
	bucket = &s->tasks[iscsi_itt_bucket(itt)];
	for (const struct iscsi_task *u = *bucket; unlikely(u != NULL); u = u->hash_next)
		if (unlikely(u->itt == itt))
			return NULL;
	ASSERT(!conn->rx_task && !conn->rx_ctl && list_empty(&conn->unacked));

	iscsi_task_cache_ = t->hash_next;
	ASSERT(t->state == TASK_FREE);
	t->conn = conn;
	t->state_word = ISCSI_TASK_WORD(.state = TASK_RUNNING, .in_window = true, .hashed = true,
					.started = true);
	t->itt = itt;
	t->cmd_sn = cmd_sn;
	t->edtl = edtl;
	t->data_sn = 0;
	t->residual = 0;
	t->residual_flags = 0;
	t->burst_left = conn->params.max_burst;
	t->serial = s->next_serial++;
	t->hash_next = *bucket;
	*bucket = t;
	list_add_tail(&conn->tasks, &t->link);
	memcpy(t->cdb, bhs + BHS_CDB, 16);
	c = &t->cmd;
	ASSERT(c->cdb == t->cdb && c->cdb_len == 16);
	c->nexus = &s->nexus;
	c->lun = get_be64(bhs + BHS_LUN);
	c->born_ns = SCSI_MEASURED ? conn->last_rx_ns : 0;
	c->attr = bhs[BHS_FLAGS] & BHS_CMD_ATTR;
	c->dir_in = !write;
	c->dir_out = write;
	c->edtl_in = write ? 0 : edtl;
	c->edtl_out = write ? edtl : 0;
	c->immediate = write ? edtl : 0;

	__atomic_store_n(&s->exp_cmd_sn, cmd_sn + 1, __ATOMIC_RELAXED); /* taken */
	s->in_window++;
	if (flight)
		iscsi_flight_put(conn->flight, t, bhs, at, state);
	return t; /* iscsi_fast_rx() counts it */
}

/* A write with all of its data, @len bytes at @data. False: nothing was done. */
static inline __attribute__((always_inline)) bool
fast_write(struct iscsi_conn *conn, const uint8_t *bhs, const uint8_t *data, uint32_t len,
	   bool flight, uint32_t at)
{
	struct iscsi_task *t;

	/* Nothing but immediate data, and all that there will be. */
	if (unlikely(!len) || unlikely(len != get_be32(bhs + BHS_EDTL)) ||
	    unlikely(len > conn->fast_write_max))
		return false;
	t = fast_task(conn, bhs, len, true, flight, at);
	if (unlikely(!t))
		return false;
	counter_add(&conn->stats.rxdata_octets, len);
	iscsi_dataout_init(t, len, false);
	t->cmd.imm_data = data;
	conn->rx_task = t; /* it cannot end before its data has been looked at */
	scsi_cmd_start(&t->cmd);
	if (unlikely(conn->rx_task == t)) {
		/* There is no place for it yet, or it is not wanted: as rx.c goes on. */
		t->cmd.imm_data = NULL;
		if (flight && t->flight != FLIGHT_OTHER)
			conn->flight->slot->cmd[t->flight - 1].state = FLIGHT_FREE;
		iscsi_dataout_immediate(t, len);
		iscsi_sink_copy(conn, 0, data, len);
		if (likely(conn->rx_task == t))
			iscsi_dataout_end(t, true);
	}
	return true;
}

/* iscsi_fast_rx() of connections with a flight record, and of those without one. */
static inline __attribute__((always_inline)) uint32_t fast_rx(struct iscsi_conn *conn,
							      const uint8_t *buf, uint32_t len,
							      bool flight)
{
	const uint8_t *p = buf, *end = buf + len;
	const uint32_t at = flight ? conn->flight->at : 0;
	uint64_t serial = conn->sess->next_serial;

	while (end - p >= ISCSI_BHS_LEN) {
		uint32_t n;

		if (likely(is_fast_read(p))) {
			struct iscsi_task *t =
				fast_task(conn, p, get_be32(p + BHS_EDTL), false, flight,
					  at + (uint32_t)(p - buf) + ISCSI_BHS_LEN);

			if (unlikely(!t))
				break;
			p += ISCSI_BHS_LEN;
			__builtin_prefetch(p);
			scsi_cmd_start(&t->cmd); /* may end the connection, and the task */
			continue;
		}
		if (!is_fast_write(p))
			break;
		n = bhs_data_len(p);
		if (n > end - p - ISCSI_BHS_LEN || pdu_pad(n))
			break;
		if (end - p - ISCSI_BHS_LEN - n >= ISCSI_BHS_LEN)
			iscsi_rx_hint(conn, p + ISCSI_BHS_LEN + n, ISCSI_BHS_LEN, 1, true);
		if (!fast_write(conn, p, p + ISCSI_BHS_LEN, n, flight,
				at + (uint32_t)(p - buf) + ISCSI_BHS_LEN + n))
			break;
		p += ISCSI_BHS_LEN + n;
	}
	if (flight) {
		conn->flight->at = at + (uint32_t)(p - buf);
		iscsi_flight_take(conn);
	}
	serial = conn->sess->next_serial - serial; /* each took one */
	metric_add(M_iscsi_commands, serial);
	counter_add(&conn->stats.cmd_pdus, serial);
	return (uint32_t)(p - buf);
}

static __attribute__((noinline)) uint32_t flight_rx(struct iscsi_conn *conn, const uint8_t *buf,
						    uint32_t len)
{
	return fast_rx(conn, buf, len, true);
}

uint32_t iscsi_fast_rx(struct iscsi_conn *conn, const uint8_t *buf, uint32_t len)
{
	ASSERT_ON_LOOP(conn->loop);
	if (!conn->fast_max) /* digests, for one */
		return 0;
	if (unlikely(conn->flight))
		return flight_rx(conn, buf, len);
	return fast_rx(conn, buf, len, false);
}
