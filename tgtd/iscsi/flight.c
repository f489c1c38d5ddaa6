/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See flight.h, and flight_form.h for what is stored in which order. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/flight.h"

#define ROOMS_BESIDE 1024u /* buffers that threads keep, beside one a connection */

/* Rooms of one kind that were given back; a list through their first word. */
struct rooms {
	uint64_t off, each;
	uint32_t n, used;
	void *spare;
};

static struct {
	int fd;
	uint8_t *map;
	uint64_t size;
	pthread_mutex_t lock; /* of rooms: when a thread's cache is empty, or full */
	struct rooms room[FLIGHT_ROOM_KINDS];
	struct flight_arena arena[FLIGHT_ARENAS];
} flight = { .fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- the file; main -------------------------------------------------------------------------- */

static int map_flight(uint64_t size)
{
	flight.fd = memfd_create("tgtd-flight", MFD_CLOEXEC);
	if (flight.fd < 0 || ftruncate(flight.fd, (off_t)size))
		return -errno;
	flight.map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, flight.fd, 0);
	if (flight.map == MAP_FAILED) {
		flight.map = NULL;
		return -errno;
	}
	flight.size = size;
	(void)madvise(flight.map, size, MADV_DONTDUMP); /* data of initiators */
	return 0;
}

int iscsi_flight_start(unsigned sessions)
{
	const uint32_t rooms = MIN(sessions + ROOMS_BESIDE, 65536u);
	struct flight_head h = { .version = FLIGHT_VERSION, .slots = sessions, .rooms = rooms };
	int err;

	ASSERT_ON_MAIN();
	ASSERT(flight.fd < 0);
	h.rx_off = FLIGHT_HEAD + sessions * (uint64_t)FLIGHT_SLOT;
	h.tx_off = h.rx_off + rooms * (uint64_t)FLIGHT_RX_ROOM;
	h.size = h.tx_off + rooms * (uint64_t)FLIGHT_TX_ROOM;
	err = map_flight(h.size);
	if (err) {
		iscsi_flight_stop();
		return err;
	}
	h.base = (uintptr_t)flight.map;
	memcpy(h.arena, flight.arena, sizeof(h.arena));
	memcpy(flight.map, &h, sizeof(h));
	flight.room[FLIGHT_RX] = (struct rooms){ .off = h.rx_off, .each = FLIGHT_RX_ROOM,
						 .n = rooms };
	flight.room[FLIGHT_TX] = (struct rooms){ .off = h.tx_off, .each = FLIGHT_TX_ROOM,
						 .n = rooms };
	return 0;
}

void iscsi_flight_stop(void)
{
	if (flight.map)
		munmap(flight.map, flight.size);
	if (flight.fd >= 0)
		close(flight.fd);
	flight.fd = -1;
	flight.map = NULL;
	memset(flight.room, 0, sizeof(flight.room));
}

int iscsi_flight_fd(void)
{
	return flight.fd;
}

void iscsi_flight_arena(unsigned node, const void *base, uint64_t len)
{
	if (node < FLIGHT_ARENAS)
		flight.arena[node] = (struct flight_arena){ (uintptr_t)base, len };
}

/* ---- rooms; any thread ----------------------------------------------------------------------- */

uint64_t iscsi_flight_offset(const void *p)
{
	const uint8_t *at = p;

	return flight.map && at >= flight.map && at < flight.map + flight.size ?
		       (uint64_t)(at - flight.map) :
		       0;
}

void *iscsi_flight_room(enum flight_room kind)
{
	struct rooms *r = &flight.room[kind];
	void *p = NULL;

	if (!flight.map)
		return NULL;
	pthread_mutex_lock(&flight.lock);
	if (r->spare) {
		p = r->spare;
		memcpy(&r->spare, p, sizeof(r->spare));
	} else if (r->used < r->n) {
		p = flight.map + r->off + r->used++ * r->each;
	}
	pthread_mutex_unlock(&flight.lock);
	return p;
}

bool iscsi_flight_room_back(enum flight_room kind, void *p)
{
	struct rooms *r = &flight.room[kind];

	if (!iscsi_flight_offset(p))
		return false;
	(void)madvise(p, r->each, MADV_REMOVE);
	pthread_mutex_lock(&flight.lock);
	memcpy(p, &r->spare, sizeof(r->spare));
	r->spare = p;
	pthread_mutex_unlock(&flight.lock);
	return true;
}

/* ---- a session; main ------------------------------------------------------------------------- */

void iscsi_flight_session(struct iscsi_session *s, uint32_t i)
{
	struct iscsi_flight *f;

	ASSERT_ON_MAIN();
	if (!flight.map || s->params.error_recovery_level || s->params.max_connections > 1)
		return;
	f = calloc(1, sizeof(*f));
	if (!f)
		return; /* it is as without the option */
	f->slot = (struct flight_slot *)(void *)(flight.map + FLIGHT_HEAD +
						 i * (uint64_t)FLIGHT_SLOT);
	while (f->nspare < FLIGHT_CMDS) {
		f->spare[f->nspare] = (uint16_t)(FLIGHT_CMDS - f->nspare);
		f->nspare++;
	}
	s->flight = f;
}

void iscsi_flight_forget(struct iscsi_session *s)
{
	ASSERT_ON_MAIN();
	if (!s->flight)
		return;
	s->flight->slot->version = 0;
	for (unsigned i = 0; i < FLIGHT_CMDS; i++)
		ASSERT(!s->flight->data[i]);
	if (madvise(s->flight->slot, FLIGHT_SLOT, MADV_REMOVE))
		memset(s->flight->slot, 0, FLIGHT_SLOT);
	free(s->flight);
	s->flight = NULL;
}

/* ---- its connection; its loop ---------------------------------------------------------------- */

void iscsi_flight_enter(struct iscsi_conn *conn)
{
	struct iscsi_session *s = conn->sess;
	struct flight_slot *slot;

	ASSERT_ON_LOOP(conn->loop);
	/* Its slot is for the first: commands of that may be there still when another comes. */
	if (!s->flight || s->flight_used || !conn->kept || !conn->quiet)
		return;
	s->flight_used = true;
	slot = s->flight->slot;
	slot->tsih = s->tsih;
	slot->cid = conn->cid;
	slot->stat_sn = conn->stat_sn;
	slot->max_cmd_sn = s->max_cmd_sn;
	conn->flight = s->flight;
	/* The transport's part follows: iscsi_flight_begin(). */
}

void iscsi_flight_begin(struct iscsi_conn *conn, uint64_t received, uint64_t sent, uint32_t skip)
{
	struct flight_slot *slot = conn->flight->slot;

	ASSERT_ON_LOOP(conn->loop);
	if (conn->failed)
		return;
	slot->sent = sent;
	conn->flight->at = (uint32_t)received;
	iscsi_flight_take(conn);
	slot->into = skip ? flight_into((uint32_t)received + skip, 0, 0, false) : 0;
	slot->version = FLIGHT_VERSION;
}

void iscsi_flight_leave(struct iscsi_conn *conn)
{
	if (conn->flight)
		conn->flight->slot->version = 0;
}

void iscsi_flight_doubt(struct iscsi_conn *conn, int n)
{
	conn->flight->slot->doubts += (uint32_t)n;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* ---- commands -------------------------------------------------------------------------------- */

/* One that is owed data, of which nothing has been carried out. */
static struct flight_cmd *put_owed(struct iscsi_flight *f, struct iscsi_task *t, const uint8_t *bhs)
{
	struct flight_cmd *c;

	iscsi_flight_put(f, t, bhs, f->at, FLIGHT_FREE);
	c = &f->slot->cmd[t->flight - 1];
	memset(c->seq, 0, sizeof(c->seq));
	if (!(bhs[BHS_FLAGS] & BHS_FINAL))
		c->seq[FLIGHT_UNSOLICITED] = FLIGHT_SEQ_ASKED | FLIGHT_SEQ_SENT;
	c->owed = 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return c;
}

void iscsi_flight_command(struct iscsi_conn *conn, struct iscsi_task *t, const uint8_t *bhs,
			  bool ordinary)
{
	struct iscsi_flight *f = conn->flight;
	const struct scsi_cmd *c = &t->cmd;
	const uint32_t len = bhs_data_len(bhs);
	const bool final = bhs[BHS_FLAGS] & BHS_FINAL;
	enum flight_state kind = ordinary && f->nspare ? flight_kind(bhs[BHS_CDB]) : FLIGHT_FREE;

	if (c->attr > SCSI_ATTR_SIMPLE ||
	    (kind == FLIGHT_READ ? c->dir_out || len || !final :
				   c->dir_in || !c->dir_out || !t->edtl))
		kind = FLIGHT_FREE;
	if (kind == FLIGHT_FREE) {
		t->flight = FLIGHT_OTHER;
		iscsi_flight_doubt(conn, 1);
	} else if (kind == FLIGHT_READ) {
		iscsi_flight_put(f, t, bhs, f->at, kind);
	} else if (final && len == t->edtl) {
		/* It is, when it is carried out, or waits. */
		iscsi_flight_put(f, t, bhs, f->at, FLIGHT_FREE);
	} else {
		struct flight_cmd *owed = put_owed(f, t, bhs);

		if (!len) /* else when that has come: iscsi_flight_received() */
			owed->state = FLIGHT_OWED;
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
	}
}

void iscsi_flight_release(struct iscsi_conn *conn, struct iscsi_task *t)
{
	struct iscsi_flight *f = conn->flight;

	if (t->flight == FLIGHT_OTHER) {
		iscsi_flight_doubt(conn, -1);
	} else {
		f->slot->cmd[t->flight - 1].state = FLIGHT_FREE;
		f->spare[f->nspare++] = t->flight;
		if (unlikely(f->data[t->flight - 1])) {
			(void)iscsi_flight_room_back(FLIGHT_RX, f->data[t->flight - 1]);
			f->data[t->flight - 1] = NULL;
		}
	}
	t->flight = 0;
}

void iscsi_flight_again(struct iscsi_conn *conn, struct iscsi_task *t,
			const struct flight_cmd *before)
{
	struct flight_cmd *c;

	iscsi_flight_command(conn, t, before->bhs, true);
	if (t->flight == FLIGHT_OTHER)
		return;
	c = &conn->flight->slot->cmd[t->flight - 1];
	c->off = before->off;
	c->data_sn = before->data_sn;
	c->burst = before->burst;
	if (before->state == FLIGHT_OWED) {
		memcpy(c->seq, before->seq, sizeof(c->seq));
		c->state = FLIGHT_OWED;
	}
}

void iscsi_flight_waits(struct iscsi_conn *conn, struct iscsi_task *t, const uint8_t *data,
			uint32_t len)
{
	struct iscsi_flight *f = conn->flight;
	struct flight_cmd *c;
	uint8_t *room;

	if (t->flight == FLIGHT_OTHER)
		return;
	c = &f->slot->cmd[t->flight - 1];
	if (c->owed) /* it asks for all of it again */
		return;
	room = len <= FLIGHT_RX_BYTES ? iscsi_flight_room(FLIGHT_RX) : NULL;
	if (!room || f->data[t->flight - 1]) {
		if (room)
			(void)iscsi_flight_room_back(FLIGHT_RX, room);
		c->state = FLIGHT_APPLYING; /* in doubt: its data is here alone */
		return;
	}
	f->data[t->flight - 1] = room;
	memcpy(room, data, len);
	c->data = (uint32_t)((iscsi_flight_offset(room) - flight.room[FLIGHT_RX].off) /
			     FLIGHT_RX_ROOM);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	c->state = FLIGHT_WRITE;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* ---- writes that are owed data --------------------------------------------------------------- */

void iscsi_flight_stored(struct iscsi_conn *conn, struct iscsi_task *t)
{
	struct flight_cmd *c;
	uint64_t stored;

	if (t->flight == FLIGHT_OTHER)
		return;
	c = &conn->flight->slot->cmd[t->flight - 1];
	if (!c->owed || c->state != FLIGHT_APPLYING || !scsi_cmd_stored(&t->cmd, &stored))
		return;
	c->off = (uint32_t)stored;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	c->state = FLIGHT_OWED;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void iscsi_flight_asks(struct iscsi_conn *conn, struct iscsi_task *t, uint32_t ttt)
{
	struct flight_cmd *c;

	if (t->flight == FLIGHT_OTHER)
		return;
	c = &conn->flight->slot->cmd[t->flight - 1];
	c->seq[ttt % FLIGHT_UNSOLICITED] = FLIGHT_SEQ_ASKED | (uint64_t)ttt;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void iscsi_flight_into(struct iscsi_conn *conn, const struct iscsi_task *t, unsigned seq,
		       bool final)
{
	const struct iscsi_flight *f = conn->flight;
	const bool known = t && t->flight && t->flight != FLIGHT_OTHER;

	f->slot->into = flight_into(f->at, known ? t->flight : 0, seq, final);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void iscsi_flight_passed(struct iscsi_conn *conn)
{
	iscsi_flight_take(conn);
	conn->flight->slot->into = 0;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void iscsi_flight_over(struct iscsi_conn *conn, struct iscsi_task *t)
{
	const struct iscsi_flight *f = conn->flight;
	const uint64_t into = f->slot->into;
	uint64_t *seq;

	if (!into || t->flight == FLIGHT_OTHER)
		return;
	seq = &f->slot->cmd[t->flight - 1].seq[into >> 1 & 0x7f];
	/* One word says that the sequence is over, and how far that is. */
	*seq = (uint64_t)f->at << 32 | FLIGHT_SEQ_OVER;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	iscsi_flight_passed(conn);
	*seq = 0;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* ---- what was sent --------------------------------------------------------------------------- */

void iscsi_flight_log_over(struct iscsi_conn *conn, struct flight_log *log)
{
	struct flight_slot *slot = conn->flight->slot;

	for (uint32_t i = 0; i < log->nheaders; i++) {
		struct flight_cmd *c = log->cmd[i] ? &slot->cmd[log->cmd[i] - 1] : NULL;

		if (!c)
			continue;
		if (flight_answers(log->header[i].bhs))
			c->state = FLIGHT_FREE;
		else
			flight_progress(c, log->header[i].bhs);
	}
	slot->stat_sn = log->stat_sn;
	slot->max_cmd_sn = log->max_cmd_sn;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	slot->sent = log->base + log->total;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	log->total = 0;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	slot->log = 0; /* its memory will be another's */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}
