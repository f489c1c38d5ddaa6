/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Data-Out sequencing: see dataout.h. */
#include <stdlib.h>

#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/flight.h"

/* Write data is owed from now on: *@since is set, and the clock runs (owed.c). */
static void owed_since(struct iscsi_conn *conn, uint64_t *since)
{
	*since = loop_now(conn->loop);
	if (!conn->data_out_timeout_s || conn->owed_armed)
		return;
	conn->owed_armed = true;
	loop_timer_arm(conn->loop, &conn->owed_timer, conn->data_out_timeout_s * NSEC_PER_SEC);
}

void iscsi_dataout_init(struct iscsi_task *t, uint32_t immediate, bool unsolicited)
{
	struct iscsi_dataout *o = &t->out;

	o->unsol_len =
		unsolicited ? MIN((uint64_t)t->conn->params.first_burst, t->edtl) : immediate;
	o->unsol_got = 0;
	o->next = o->unsol_len;
	o->unsol_data_sn = o->r2t_sn = o->owed_looks = 0;
	o->r2t_busy = o->fetching = 0;
	o->unsol_open = unsolicited || immediate;
	o->unsol_lost = o->closed = o->waiting = o->stale = false;
	o->charged = 0;
	if (unsolicited)
		owed_since(t->conn, &o->owed_ns);
	if (o->unsol_ranges)
		o->unsol_ranges->n = 0;
	o->spill = o->rx_spill = NULL;
	o->seg[0] = o->seg[1] = NULL;
	o->rx_r2t = NULL;
	o->rx_len = 0;
	o->rx_final = !unsolicited;
	static_assert(SCSI_CMD_SEGS == 2, "both slots cleared");
}

/* ---- segments -------------------------------------------------------------------------------- */

static struct scsi_seg *seg_for(struct iscsi_dataout *o, uint64_t off, uint64_t len)
{
	for (unsigned i = 0; i < SCSI_CMD_SEGS; i++) {
		struct scsi_seg *seg = o->seg[i];

		if (seg && off >= seg->off && off + len <= seg->off + seg->len)
			return seg;
	}
	return NULL;
}

/* @n more bytes of it are in place. */
static void seg_got(struct iscsi_dataout *o, struct scsi_seg *seg, uint32_t n)
{
	seg->host_word[0] += n;
	ASSERT(seg->host_word[0] <= seg->len);
	if (seg->host_word[0] < seg->len)
		return;
	for (unsigned i = 0; i < SCSI_CMD_SEGS; i++)
		if (o->seg[i] == seg)
			o->seg[i] = NULL;
	if (unlikely(container_of(o, struct iscsi_task, out)->flight))
		iscsi_flight_applies(container_of(o, struct iscsi_task, out)->conn,
				     container_of(o, struct iscsi_task, out));
	scsi_seg_fetched(seg, 0);
}

static void spill_free(struct iscsi_dataout *o, struct iscsi_spill *sp)
{
	iscsi_spill_put(container_of(o, struct iscsi_task, out)->conn->sess, sp);
}

/* Copies what has been waiting for @seg into it. True when that filled it (it may be gone then). */
static bool absorb(struct iscsi_dataout *o, struct scsi_seg *seg)
{
	struct iscsi_spill **pp = &o->spill, *sp;
	uint32_t got = 0;

	while ((sp = *pp)) {
		uint64_t from = MAX(sp->off, seg->off);
		uint64_t to = MIN(sp->off + sp->len, seg->off + seg->len);

		if (sp->complete && from < to) {
			frags_copy_in(&seg->io.data, from - seg->off, sp->data + (from - sp->off),
				      to - from);
			got += (uint32_t)(to - from);
			sp->taken += (uint32_t)(to - from);
			if (sp->taken == sp->len) {
				*pp = sp->next;
				spill_free(o, sp);
				continue;
			}
		}
		pp = &sp->next;
	}
	if (!got)
		return false;
	seg_got(o, seg, got);
	return seg_for(o, seg->off, 0) != seg;
}

/* ---- asking for data ------------------------------------------------------------------------- */

static void r2t_done(struct iscsi_pdu *pdu)
{
	struct iscsi_r2t *r = container_of(pdu, struct iscsi_r2t, pdu);
	struct iscsi_task *t = pdu->task;

	r->sending = false;
	t->pdus_out--;
	iscsi_task_finish(t);
}

/* Slots for R2Ts, with the first of the object's life. */
static bool r2t_slots(struct iscsi_task *t)
{
	struct iscsi_dataout *o = &t->out;

	if (o->r2t)
		return true;
	o->r2t = calloc(ISCSI_R2T_MAX, sizeof(*o->r2t));
	if (!o->r2t) {
		iscsi_conn_fail(t->conn, "out of memory");
		return false;
	}
	for (unsigned slot = 0; slot < ISCSI_R2T_MAX; slot++) {
		o->r2t[slot].ttt = ISCSI_TAG_NONE;
		list_init(&o->r2t[slot].pdu.link);
	}
	return true;
}

/* @since: when the sequence began whose rest is asked for again; 0: it begins now. */
static bool r2t_send(struct iscsi_task *t, uint64_t off, uint32_t len, uint64_t since)
{
	struct iscsi_dataout *o = &t->out;
	struct iscsi_session *s = t->conn->sess;
	struct iscsi_r2t *r;
	uint8_t *bhs;
	unsigned slot;

	if (!r2t_slots(t))
		return false;
	for (slot = 0; slot < ISCSI_R2T_MAX; slot++)
		if (o->r2t[slot].ttt == ISCSI_TAG_NONE && !o->r2t[slot].sending)
			break;
	if (slot == ISCSI_R2T_MAX)
		return false;
	r = &o->r2t[slot];
	/* The slot is in the tag, so that a Data-Out finds its R2T at once. */
	r->ttt = (s->next_ttt++ & FLIGHT_SEQ_TAG >> 3) << 3 | slot;
	r->r2t_sn = o->r2t_sn++;
	r->off = off;
	r->len = len;
	r->got = 0;
	r->data_sn = 0;
	r->lost = false;
	r->ranges.n = 0;
	o->r2t_busy++;
	o->charged += len;
	t->conn->solicited += len;
	owed_since(t->conn, &r->since_ns);
	if (unlikely(since))
		r->since_ns = since;
	bhs = r->pdu.bhs;
	memset(bhs, 0, ISCSI_BHS_LEN);
	bhs[BHS_OPCODE] = ISCSI_R2T;
	bhs[BHS_FLAGS] = BHS_FINAL;
	put_be64(bhs + BHS_LUN, t->cmd.lun);
	put_be32(bhs + BHS_ITT, t->itt);
	put_be32(bhs + BHS_TTT, r->ttt);
	put_be32(bhs + BHS_DATA_SN, r->r2t_sn);
	put_be32(bhs + BHS_BUFFER_OFFSET, (uint32_t)off);
	put_be32(bhs + BHS_R2T_LEN, len);
	r->pdu.kind = PDU_CONTROL;
	r->pdu.flags = PDU_F_SN_ONLY;
	r->pdu.task = t;
	r->pdu.data_len = 0;
	r->pdu.done = r2t_done;
	r->sending = true;
	t->pdus_out++;
	if (unlikely(t->flight))
		iscsi_flight_asks(t->conn, t, r->ttt);
	metric_inc(M_iscsi_r2ts);
	t->conn->tp->send_pdu(t->conn, &r->pdu);
	return true;
}
static_assert(ISCSI_R2T_MAX == 8 && ISCSI_R2T_MAX == FLIGHT_UNSOLICITED, "three bits of the tag");

/* The segment after which the next one begins, i.e. the one that holds
 * o->next or starts first after it. */
static struct scsi_seg *next_seg(struct iscsi_dataout *o)
{
	struct scsi_seg *best = NULL;

	for (unsigned i = 0; i < SCSI_CMD_SEGS; i++) {
		struct scsi_seg *seg = o->seg[i];

		if (seg && seg->off + seg->len > o->next && (!best || seg->off < best->off))
			best = seg;
	}
	return best;
}

/*
 * See ISCSI_SOLICIT_MAX. What is asked for has its blocks already, so it comes and goes without
 * waiting for anybody; who has begun goes before who has not.
 */
static bool dataout_room(const struct iscsi_conn *conn)
{
	return conn->solicited < ISCSI_SOLICIT_MAX;
}

/* May it ask for more now? Else it waits for its turn. */
static bool dataout_admit(struct iscsi_task *t, bool turn)
{
	struct iscsi_dataout *o = &t->out;
	struct iscsi_conn *conn = t->conn;

	if (o->waiting)
		return false;
	if (likely(dataout_room(conn)) && (turn || o->r2t_sn || list_empty(&conn->solicit_waitq)))
		return true;
	o->waiting = true;
	if (o->r2t_sn)
		list_add_head(&conn->solicit_waitq, &o->wait_link);
	else
		list_add_tail(&conn->solicit_waitq, &o->wait_link);
	return false;
}

/* @len bytes that it has asked for have come, or will never. */
static void discharge(struct iscsi_task *t, uint64_t len)
{
	struct iscsi_conn *conn = t->conn;

	ASSERT(t->out.charged >= len && conn->solicited >= len);
	t->out.charged -= len;
	conn->solicited -= len;
	if (!list_empty(&conn->solicit_waitq))
		loop_defer(conn->loop, &conn->solicit_later);
}

static void stop_waiting(struct iscsi_dataout *o)
{
	o->waiting = false;
	list_del(&o->wait_link);
}

/* Solicits what has its blocks and is not on its way. In order (DataSequenceInOrder), and not
 * before the unsolicited data has ended. */
static void pump(struct iscsi_task *t, bool turn)
{
	struct iscsi_dataout *o = &t->out;
	struct iscsi_conn *conn = t->conn;
	unsigned max = MIN(conn->params.max_outstanding_r2t, ISCSI_R2T_MAX);
	struct scsi_seg *seg;

	if (o->unsol_open || o->closed || o->stale)
		return;
	while ((seg = next_seg(o))) {
		uint64_t off = MAX(o->next, seg->off);
		uint32_t len = (uint32_t)(seg->off + seg->len - off);

		if (conn->tp->fetch) {
			o->next = off + len;
			o->fetching++;
			conn->tp->fetch(t, seg, off, len);
			continue;
		}
		if (o->r2t_busy >= max)
			return;
		len = MIN(len, conn->params.max_burst);
		if (!dataout_admit(t, turn) || !r2t_send(t, off, len, 0))
			return;
		o->next = off + len;
	}
}

void iscsi_solicit_more(struct loop_deferred *d)
{
	struct iscsi_conn *conn = container_of(d, struct iscsi_conn, solicit_later);

	while (!list_empty(&conn->solicit_waitq) && !conn->failed && dataout_room(conn)) {
		struct iscsi_dataout *o =
			list_first(&conn->solicit_waitq, struct iscsi_dataout, wait_link);

		stop_waiting(o);
		pump(container_of(o, struct iscsi_task, out), true);
	}
}

void iscsi_fetched(struct iscsi_task *t, struct scsi_seg *seg, uint64_t off, uint32_t len,
		   int status)
{
	struct iscsi_dataout *o = &t->out;

	ASSERT(o->fetching > 0);
	(void)off;
	if (status || o->closed) {
		for (unsigned i = 0; i < SCSI_CMD_SEGS; i++)
			if (o->seg[i] == seg)
				o->seg[i] = NULL;
		scsi_seg_fetched(seg, o->closed ? -ECANCELED : status);
	} else {
		counter_add(&t->conn->stats.dataout_pdus, 1);
		counter_add(&t->conn->stats.rxdata_octets, len);
		seg_got(o, seg, len);
	}
	o->fetching--;
	iscsi_task_finish(t);
}

void iscsi_dataout_fetch(struct scsi_cmd *cmd, struct scsi_seg *seg)
{
	struct iscsi_task *t = iscsi_task_of(cmd);
	struct iscsi_dataout *o = &t->out;

	ASSERT_ON_LOOP(t->conn->loop);
	if (likely(cmd->imm_data) &&
	    likely(!seg->off && seg->len == o->unsol_len && !o->closed && !t->conn->failed)) {
		/* As if it had come just now: nothing waits, nothing is to come. */
		ASSERT(t->conn->rx_task == t && !o->seg[0] && !o->seg[1] && !o->spill &&
		       o->unsol_len == t->edtl);
		frags_copy_in(&seg->io.data, 0, cmd->imm_data, seg->len);
		cmd->imm_data = NULL;
		iscsi_dataout_taken(o);
		t->conn->rx_task = NULL;
		scsi_seg_fetched(seg, 0);
		return;
	}
	seg->host_word[0] = 0;
	if (unlikely(o->closed || t->conn->failed || !cmd->dir_out ||
		     seg->off + seg->len > t->edtl)) {
		scsi_seg_fetched(seg, -ECANCELED);
		return;
	}
	ASSERT(!o->seg[0] || !o->seg[1]);
	o->seg[o->seg[0] != NULL] = seg;
	if (unlikely(t->flight))
		iscsi_flight_stored(t->conn, t);
	if (unlikely(o->spill) && absorb(o, seg))
		return;
	pump(t, false);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* It cannot succeed without the data that it will not have. One that waits for an earlier CmdSN
 * says so in its turn (iscsi_task_answer_lost()): its number must not be missed, nor its answer. */
static void dataout_give_up(struct iscsi_task *t)
{
	if (t->state == TASK_HELD || t->state == TASK_ARRIVING)
		iscsi_dataout_close(t);
	else
		iscsi_task_abort(t, false);
}

/* Bytes [off, off + len) come next: where to? */
static void aim(struct iscsi_task *t, uint64_t off, uint32_t len)
{
	struct iscsi_dataout *o = &t->out;
	struct iscsi_conn *conn = t->conn;
	struct scsi_seg *seg;
	struct iscsi_spill *sp;

	o->rx_off = off;
	o->rx_len = len;
	o->rx_spill = NULL;
	conn->rx_task = t;
	conn->sink.kind = SINK_DISCARD;
	if (o->closed || !len)
		return;
	seg = seg_for(o, off, len);
	if (likely(seg)) {
		conn->sink.kind = SINK_FRAGS;
		conn->sink.frags = &seg->io.data;
		conn->sink.off = off - seg->off;
		return;
	}
	/* Not (all) of it has blocks yet. */
	sp = iscsi_spill_get(conn->sess, off, len);
	if (!sp) {
		metric_inc(M_iscsi_task_set_full);
		t->reply_full = true;
		dataout_give_up(t);
		return;
	}
	sp->next = o->spill;
	o->spill = o->rx_spill = sp;
	conn->sink.kind = SINK_FLAT;
	conn->sink.flat = sp->data;
}

void iscsi_dataout_immediate(struct iscsi_task *t, uint32_t len)
{
	struct iscsi_dataout *o = &t->out;

	/* rx_final: iscsi_dataout_init() knows whether Data-Out follows. */
	o->rx_r2t = NULL;
	o->unsol_got = len;
	owed_since(t->conn, &o->owed_ns);
	aim(t, 0, len);
}

/* The data is not what it has to be, or was damaged: the command cannot succeed any more. It ends
 * with CHECK CONDITION, PROTOCOL SERVICE CRC ERROR (RFC 7143 7.8, 7.9) when the sequence under
 * way is over. */
static void lost(struct iscsi_task *t, uint16_t asc)
{
	t->crc_error = true;
	t->lost_asc = asc;
	t->pdus_out++; /* keeps the task */
	dataout_give_up(t);
	t->pdus_out--;
}

static bool unsol_in_place(struct iscsi_task *t, uint64_t off, uint32_t len)
{
	struct iscsi_dataout *o = &t->out;

	if (!t->conn->params.data_pdu_in_order && !o->unsol_ranges) {
		o->unsol_ranges = calloc(1, sizeof(*o->unsol_ranges));
		if (!o->unsol_ranges)
			return false;
	}
	return iscsi_in_place(t->conn, o->unsol_ranges, 0, o->unsol_got, off, len);
}

/* ---- what the process before had asked for --------------------------------------------------- */

void iscsi_dataout_again(struct iscsi_task *t, const struct flight_cmd *before)
{
	struct iscsi_dataout *o = &t->out;

	iscsi_dataout_init(t, 0, false);
	o->next = before->off;
	o->r2t_sn = before->data_sn;
	if (before->seq[FLIGHT_UNSOLICITED]) {
		o->stale = o->unsol_open = true;
		owed_since(t->conn, &o->owed_ns);
	}
	for (unsigned slot = 0; slot < ISCSI_R2T_MAX && r2t_slots(t); slot++) {
		struct iscsi_r2t *r = &o->r2t[slot];

		if (!before->seq[slot])
			continue;
		r->ttt = before->seq[slot] & FLIGHT_SEQ_TAG;
		r->off = r->len = r->got = 0;
		r->lost = r->sending = false;
		owed_since(t->conn, &r->since_ns);
		o->r2t_busy++;
		o->stale = true;
	}
}

static void stale_begin(struct iscsi_task *t, struct iscsi_r2t *r, uint32_t len, bool final)
{
	struct iscsi_dataout *o = &t->out;

	o->rx_r2t = r;
	o->rx_final = final;
	o->rx_len = 0;
	o->rx_spill = NULL;
	t->conn->rx_task = t;
	t->conn->sink.kind = SINK_DISCARD;
	if (len && !o->closed)
		t->conn->owed_rx_ns = loop_now(t->conn->loop);
}

static void stale_end(struct iscsi_task *t, bool ok)
{
	struct iscsi_dataout *o = &t->out;

	if (o->rx_final && o->rx_r2t) {
		o->rx_r2t->ttt = ISCSI_TAG_NONE;
		o->r2t_busy--;
	} else if (o->rx_final) {
		o->unsol_open = false;
	}
	o->rx_r2t = NULL;
	o->stale = o->unsol_open || o->r2t_busy;
	if (unlikely(!ok && !o->closed))
		lost(t, ASC_PROTOCOL_SERVICE_CRC_ERROR);
	if (o->closed && !iscsi_dataout_pending(t))
		iscsi_task_data_over(t);
	else if (!o->closed)
		pump(t, false);
}

/* ---- receiving, continued -------------------------------------------------------------------- */

bool iscsi_dataout_begin(struct iscsi_task *t, const uint8_t *bhs)
{
	struct iscsi_dataout *o = &t->out;
	uint32_t ttt = get_be32(bhs + BHS_TTT), off = get_be32(bhs + BHS_BUFFER_OFFSET);
	uint32_t sn = get_be32(bhs + BHS_DATA_SN), len = bhs_data_len(bhs);
	bool final = bhs[BHS_FLAGS] & BHS_FINAL, right, amount, next;
	struct iscsi_r2t *r = NULL;

	if (!t->cmd.dir_out)
		return false;
	if (ttt == ISCSI_TAG_NONE) {
		if (!o->unsol_open)
			return o->closed;
	} else {
		r = o->r2t ? &o->r2t[ttt & (ISCSI_R2T_MAX - 1)] : NULL;
		if (!r || r->ttt != ttt)
			return o->closed;
	}
	if (unlikely(t->conn->flight))
		iscsi_flight_into(t->conn, t, r ? (unsigned)(r - o->r2t) : FLIGHT_UNSOLICITED,
				  final);
	if (unlikely(o->stale)) {
		stale_begin(t, r, len, final);
		return true;
	}
	if (!r) {
		next = sn == o->unsol_data_sn;
		amount = len <= o->unsol_len - o->unsol_got;
		right = next && amount && off <= o->unsol_len && len <= o->unsol_len - off &&
			unsol_in_place(t, off, len);
	} else {
		/* F exactly at the end of the burst (11.8: the data asked
		 * for is sent in one sequence). */
		next = sn == r->data_sn;
		amount = len <= r->len - r->got && final == (r->got + len == r->len);
		right = next && amount && off >= r->off &&
			(uint64_t)off + len <= r->off + r->len &&
			iscsi_in_place(t->conn, &r->ranges, r->off, r->got, off, len);
	}
	if (unlikely(!right && !o->closed)) {
		log_ratelimited(LOG_LVL_WARN,
				"iscsi: %s: Data-Out out of sequence (offset %u, DataSN %u)",
				t->conn->peer_text, off, sn);
		/* 11.4.7.2: all that came came in order, and is not as much as was asked for */
		lost(t, next && !amount ? ASC_INCORRECT_AMOUNT_OF_DATA :
					  ASC_PROTOCOL_SERVICE_CRC_ERROR);
	}
	if (r) {
		r->data_sn++;
		r->got += len;
	} else {
		o->unsol_data_sn++;
		o->unsol_got += len;
	}
	o->rx_r2t = r;
	o->rx_final = final;
	if (len && !o->closed)
		t->conn->owed_rx_ns = loop_now(t->conn->loop);
	aim(t, off, len);
	/* Behind a damaged PDU: will be asked for again with it. */
	if (unlikely(r ? r->lost : o->unsol_lost))
		t->conn->sink.kind = SINK_DISCARD;
	return true;
}

/* A PDU of the sequence was damaged. At ErrorRecoveryLevel 1 everything from there on is asked for
 * again, by a recovery R2T behind the sequence (RFC 7143 7.8). True when that will be done. */
static bool note_loss(struct iscsi_task *t, struct iscsi_r2t *r, uint64_t off)
{
	struct iscsi_dataout *o = &t->out;

	if (!iscsi_recovers(t->conn) || t->conn->tp->fetch || !t->conn->params.data_pdu_in_order)
		return false;
	if (r && !r->lost) {
		r->lost = true;
		r->lost_off = off;
	} else if (!r && !o->unsol_lost) {
		o->unsol_lost = true;
		o->unsol_lost_off = off;
	}
	return true;
}

/* Its bytes are in place, or (not @ok) are not. */
static void account(struct iscsi_task *t, struct iscsi_spill *sp, uint64_t off, uint32_t len,
		    bool ok)
{
	struct iscsi_dataout *o = &t->out;

	if (unlikely(sp)) {
		if (!ok) {
			struct iscsi_spill **pp = &o->spill;

			while (*pp != sp)
				pp = &(*pp)->next;
			*pp = sp->next;
			spill_free(o, sp);
			return;
		}
		sp->complete = true;
		for (unsigned i = 0; i < SCSI_CMD_SEGS && !o->closed; i++)
			if (o->seg[i])
				absorb(o, o->seg[i]);
		if (unlikely(t->flight) && o->spill == sp && !sp->taken && sp->len == t->edtl)
			iscsi_flight_waits(t->conn, t, sp->data, sp->len);
	} else if (len && ok) {
		struct scsi_seg *seg = seg_for(o, off, len);

		ASSERT(seg);
		seg_got(o, seg, len);
	}
}

void iscsi_dataout_end(struct iscsi_task *t, bool ok)
{
	struct iscsi_dataout *o = &t->out;
	struct iscsi_r2t *r = o->rx_r2t;
	struct iscsi_spill *sp = o->rx_spill;
	uint64_t off = o->rx_off, again = 0, since = 0;
	uint32_t len = o->rx_len, again_len = 0;

	t->conn->rx_task = NULL;
	if (len && !o->closed)
		t->conn->owed_rx_ns = loop_now(t->conn->loop);
	o->rx_len = 0;
	o->rx_spill = NULL;
	t->pdus_out++; /* keeps the task */
	if (unlikely(t->flight) && o->rx_final)
		iscsi_flight_over(t->conn, t);
	if (unlikely(o->stale)) {
		stale_end(t, ok);
		t->pdus_out--;
		iscsi_task_finish(t);
		return;
	}
	if (unlikely(!ok && !o->closed && !note_loss(t, r, off)))
		lost(t, ASC_PROTOCOL_SERVICE_CRC_ERROR);
	if (unlikely(r ? r->lost : o->unsol_lost))
		ok = false;
	if (o->rx_final) {
		if (r) {
			if (unlikely(r->lost)) {
				again = r->lost_off;
				since = r->since_ns;
				again_len = (uint32_t)(r->off + r->len - again);
			}
			r->ttt = ISCSI_TAG_NONE;
			o->r2t_busy--;
			o->rx_r2t = NULL;
			if (!o->closed)
				discharge(t, r->len);
		} else if (o->unsol_open) {
			/* It may have been less than FirstBurstLength allows, but not with a hole:
			 * what lay in the blocks before would become the unit's. */
			if (o->unsol_ranges && !o->closed &&
			    !iscsi_ranges_whole(o->unsol_ranges, o->unsol_got))
				lost(t, ASC_INCORRECT_AMOUNT_OF_DATA);
			o->unsol_open = false;
			o->unsol_len = o->next = o->unsol_got;
			if (unlikely(o->unsol_lost)) {
				again = o->unsol_lost_off;
				since = o->owed_ns;
				again_len = (uint32_t)(o->unsol_len - again);
				o->unsol_lost = false;
			}
		}
	}
	if (unlikely(o->closed)) {
		if (!iscsi_dataout_pending(t))
			iscsi_task_data_over(t);
	} else {
		account(t, sp, off, len, ok);
		if (unlikely(again_len) && !o->closed && !r2t_send(t, again, again_len, since))
			lost(t, ASC_PROTOCOL_SERVICE_CRC_ERROR);
		if (!o->closed)
			pump(t, false);
	}
	if (unlikely(t->flight))
		iscsi_flight_received(t->conn, t);
	t->pdus_out--;
	iscsi_task_finish(t);
}

/* ---- the end --------------------------------------------------------------------------------- */

bool iscsi_dataout_pending(const struct iscsi_task *t)
{
	const struct iscsi_dataout *o = &t->out;

	return o->unsol_open || o->r2t_busy || t->conn->rx_task == t;
}

void iscsi_dataout_late(struct iscsi_task *t)
{
	struct iscsi_dataout *o = &t->out;

	for (unsigned i = 0; o->r2t_busy && i < ISCSI_R2T_MAX; i++)
		if (o->r2t[i].ttt != ISCSI_TAG_NONE) {
			o->r2t[i].ttt = ISCSI_TAG_NONE;
			o->r2t_busy--;
		}
	o->unsol_open = o->stale = false;
	if (t->conn->rx_task == t) {
		o->rx_r2t = NULL;
		o->rx_final = false;
	}
	if (o->closed)
		iscsi_task_data_over(t);
	else
		lost(t, ASC_INCORRECT_AMOUNT_OF_DATA);
}

void iscsi_dataout_close(struct iscsi_task *t)
{
	struct iscsi_dataout *o = &t->out;
	struct scsi_seg *back[SCSI_CMD_SEGS] = { NULL };

	if (o->closed)
		return;
	o->closed = true;
	if (unlikely(o->waiting))
		stop_waiting(o);
	if (unlikely(o->charged))
		discharge(t, o->charged); /* what comes still goes nowhere, and may never come */
	if (t->conn->rx_task == t) {
		t->conn->sink.kind = SINK_DISCARD;
		o->rx_spill = NULL;
	}
	while (o->spill) {
		struct iscsi_spill *sp = o->spill;

		o->spill = sp->next;
		spill_free(o, sp);
	}
	if (o->fetching)
		return; /* the wire is at work in them: iscsi_fetched() gives them back */
	for (unsigned i = 0; i < SCSI_CMD_SEGS; i++) {
		back[i] = o->seg[i];
		o->seg[i] = NULL;
	}
	t->pdus_out++; /* keeps the task */
	for (unsigned i = 0; i < SCSI_CMD_SEGS; i++)
		if (back[i])
			scsi_seg_fetched(back[i], -ECANCELED);
	t->pdus_out--;
	iscsi_task_finish(t);
}

void iscsi_dataout_fini(struct iscsi_task *t)
{
	struct iscsi_dataout *o = &t->out;

	t->cmd.imm_data = NULL;
	while (o->spill) {
		struct iscsi_spill *sp = o->spill;

		o->spill = sp->next;
		spill_free(o, sp);
	}
	ASSERT(!o->seg[0] && !o->seg[1] && !o->waiting);
	if (unlikely(o->charged))
		discharge(t, o->charged);
	if (o->r2t && o->r2t_busy)
		for (unsigned i = 0; i < ISCSI_R2T_MAX; i++)
			o->r2t[i].ttt = ISCSI_TAG_NONE;
}
