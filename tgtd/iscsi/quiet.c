/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See quiet.h, and quiet_form.h for what is stored in which order. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "events/kept.h"
#include "tgtd/iscsi/carry.h"
#include "tgtd/iscsi/digest.h"
#include "tgtd/iscsi/flight.h"
#include "tgtd/iscsi/quiet.h"

static struct {
	int fd;
	uint8_t *slots;
	uint32_t n;
	uint32_t *spare, nspare; /* numbers of those that nobody has, the lowest last at first */
} quiet = { .fd = -1 };

static struct quiet_slot *slot_at(uint32_t i)
{
	return (struct quiet_slot *)(quiet.slots + (size_t)i * QUIET_SLOT);
}

/* ---- the table; main ------------------------------------------------------------------------- */

static int map_slots(uint32_t n)
{
	const size_t size = (size_t)n * QUIET_SLOT;

	quiet.fd = memfd_create("tgtd-quiet", MFD_CLOEXEC);
	if (quiet.fd < 0 || ftruncate(quiet.fd, (off_t)size))
		return -errno;
	quiet.slots = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, quiet.fd, 0);
	if (quiet.slots == MAP_FAILED) {
		quiet.slots = NULL;
		return -errno;
	}
	(void)madvise(quiet.slots, size, MADV_DONTDUMP); /* names */
	return 0;
}

int iscsi_quiet_start(unsigned sessions)
{
	int err;

	ASSERT_ON_MAIN();
	ASSERT(quiet.fd < 0);
	quiet.spare = calloc(sessions, sizeof(*quiet.spare));
	err = quiet.spare ? map_slots(sessions) : -ENOMEM;
	if (err) {
		iscsi_quiet_stop();
		return err;
	}
	quiet.n = quiet.nspare = sessions;
	for (uint32_t i = 0; i < sessions; i++)
		quiet.spare[i] = sessions - 1 - i;
	return 0;
}

void iscsi_quiet_stop(void)
{
	if (quiet.slots)
		munmap(quiet.slots, (size_t)quiet.n * QUIET_SLOT);
	if (quiet.fd >= 0)
		close(quiet.fd);
	free(quiet.spare);
	memset(&quiet, 0, sizeof(quiet));
	quiet.fd = -1;
}

int iscsi_quiet_fd(void)
{
	return quiet.fd;
}

void iscsi_quiet_session(struct iscsi_session *s)
{
	ASSERT_ON_MAIN();
	ASSERT(!s->quiet && !s->discovery);
	if (!quiet.nspare || s->iser)
		return;
	s->quiet = slot_at(quiet.spare[--quiet.nspare]);
	s->quiet->version = QUIET_VERSION;
	s->quiet->changes = 1; /* and none of them recorded */
	s->nexus.changes = &s->quiet->changes;
	iscsi_flight_session(s, quiet.spare[quiet.nspare]);
}

void iscsi_quiet_forget(struct iscsi_session *s)
{
	ASSERT_ON_MAIN();
	if (!s->quiet)
		return;
	iscsi_flight_forget(s);
	s->quiet->version = 0;
	quiet.spare[quiet.nspare++] =
		(uint32_t)(((uint8_t *)s->quiet - quiet.slots) / QUIET_SLOT);
	/* Its memory goes, and what it says. */
	if (madvise(s->quiet, QUIET_SLOT, MADV_REMOVE))
		memset(s->quiet, 0, QUIET_SLOT);
	s->nexus.changes = NULL;
	s->quiet = NULL;
}

void iscsi_quiet_keep(struct iscsi_conn *conn, bool has_it)
{
	const struct iscsi_session *s = conn->joined;
	char key[CARRY_KEY];
	int err;

	ASSERT_ON_MAIN();
	if (!s->quiet || !conn->tp->socket)
		return;
	carry_key(key, s->tsih, conn->cid);
	err = has_it ? 0 : kept_put_soon(key, conn->tp->socket(conn));
	if (err)
		log_ratelimited(LOG_LVL_WARN, "iscsi: session %u ends with this process: the "
				"keeper does not keep its socket: %s", s->tsih, strerror(-err));
	conn->kept = !err;
}

void iscsi_quiet_drop(struct iscsi_conn *conn)
{
	char key[CARRY_KEY];

	ASSERT_ON_MAIN();
	if (!conn->kept)
		return;
	conn->kept = false;
	carry_key(key, conn->joined->tsih, conn->cid);
	if (kept_drop_soon(key) == -EAGAIN)
		(void)kept_drop(key);
}

/* ---- on the session's loop ------------------------------------------------------------------- */

void iscsi_quiet_enter(struct iscsi_conn *conn)
{
	struct iscsi_session *s = conn->sess;
	uint32_t taken = 0;
	struct iscsi_conn *c;

	if (!s->quiet)
		return;
	iscsi_quiet_changes(s);
	list_for_each(c, &s->conns, sess_link)
		if (c->quiet)
			taken |= 1u << (c->quiet - s->quiet->conn);
	for (unsigned i = 0; conn->kept && i < CARRY_CONNS_MAX; i++)
		if (!(taken & 1u << i)) {
			conn->quiet = &s->quiet->conn[i];
			conn->quiet->check = 0;
			conn->quiet->cid = conn->cid;
			iscsi_flight_enter(conn);
			return;
		}
}

void iscsi_quiet_leave(struct iscsi_conn *conn)
{
	if (!conn->sess)
		return;
	iscsi_quiet_changes(conn->sess);
	iscsi_flight_leave(conn);
	if (conn->quiet)
		conn->quiet->check = 0;
	conn->quiet = NULL;
}

static_assert(sizeof(struct carry_session) + CARRY_CONNS_MAX * sizeof(struct carry_conn) <
		      QUIET_RECORD_MAX,
	      "there is room for both");

/* In place: the stacks of many event threads are to stay as small as they are. */
static bool put_all(struct quiet_slot *q, const struct iscsi_session *s,
		    const struct scsi_carried_lun *luns, unsigned nluns, bool changed)
{
	struct carry_session *r = (struct carry_session *)(void *)q->record;
	struct carry_conn *rc = (struct carry_conn *)(r + 1);
	const struct iscsi_conn *c;
	uint8_t *at, *end = q->record + QUIET_RECORD_MAX;
	size_t n = 1;

	carry_fill_session(r, s);
	r->nluns = nluns;
	r->luns_changed = changed;
	list_for_each(c, &s->conns, sess_link) {
		if (r->nconns == CARRY_CONNS_MAX)
			return false;
		carry_fill_conn(&rc[r->nconns++], c);
	}
	at = (uint8_t *)&rc[r->nconns];
	for (unsigned i = 0; n && i < nluns; i++, at += n)
		n = quiet_put_lun(at, (size_t)(end - at), &luns[i]);
	q->len = (uint32_t)(at - q->record);
	return n;
}

/* Who goes through many logical units, of which each has something to tell, has not all of them
 * written down each time. */
#define LUNS_AT_ONCE 64u
#define FEW_LUNS 4u
#define LUN_NS (10 * NSEC_PER_USEC)

/* False: there is none then. */
static __attribute__((noinline)) bool quiet_record(struct iscsi_session *s)
{
	struct quiet_slot *q = s->quiet;
	const uint32_t changes = __atomic_load_n(&q->changes, __ATOMIC_ACQUIRE);
	/* (An event thread may have no memory of its own otherwise.) */
	struct scsi_carried_lun few[FEW_LUNS], *luns = few;
	bool changed = false, ok;
	unsigned n;

	if (loop_now(s->loop) < s->quiet_next_ns)
		return false;
	n = scsi_carried_count(&s->nexus);
	if (n > LUNS_AT_ONCE)
		s->quiet_next_ns = loop_now(s->loop) + n * LUN_NS;
	if (n > FEW_LUNS)
		luns = calloc(n, sizeof(*luns));
	if (!luns)
		return false;
	q->recorded = changes - 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	(void)scsi_carry_luns(&s->nexus, luns, n, &changed);
	ok = put_all(q, s, luns, n, changed);
	if (luns != few)
		free(luns);
	q->crc = quiet_crc(q->record, q->len, changes);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (ok)
		q->recorded = changes;
	return ok;
}

void iscsi_quiet_refresh(struct iscsi_conn *conn)
{
	struct iscsi_session *s = conn->sess;

	ASSERT_ON_LOOP(conn->loop);
	if (unlikely(__atomic_load_n(&s->quiet->changes, __ATOMIC_RELAXED) != s->quiet->recorded))
		(void)quiet_record(s);
}

/* Of this connection. What others of its session have under way, their own sums tell. */
static inline bool conn_is_quiet(const struct iscsi_conn *c)
{
	return c->state == S5_LOGGED_IN && !c->rx_stopped && !c->failed && list_empty(&c->tasks) &&
	       list_empty(&c->ctls) && !c->rx_task && !c->rx_ctl && list_empty(&c->unacked) &&
	       !c->fence_ask && !iscsi_text_open(c) && c->last_ping_ns <= c->last_rx_ns;
}

static inline bool session_is_quiet(const struct iscsi_session *s)
{
	return list_empty(&s->held) && !s->tmfs && !s->fence.phase &&
	       s->loop_state == Q3_LOGGED_IN;
}

static inline void put_point(struct iscsi_conn *conn, uint64_t received, uint64_t sent)
{
	struct iscsi_session *s = conn->sess;
	struct quiet_conn *c = conn->quiet;
	struct quiet_slot *q = s->quiet;
	uint64_t sn;

	ASSERT_ON_LOOP(conn->loop);
	if (unlikely(__atomic_load_n(&q->changes, __ATOMIC_RELAXED) != q->recorded) &&
	    !quiet_record(s))
		return;
	sn = (uint64_t)s->exp_cmd_sn << 32 | s->max_cmd_sn;
	q->sn = sn;
	q->not_sn = ~sn;
	c->stat_sn = conn->stat_sn;
	__atomic_signal_fence(__ATOMIC_SEQ_CST); /* what the sums vouch for stands before them */
	c->received = received;
	c->sent = sent;
	c->check = quiet_conn_check(received, sent, conn->stat_sn, conn->cid);
}

void iscsi_quiet_point(struct iscsi_conn *conn, uint64_t received, uint64_t sent)
{
	if (conn_is_quiet(conn) && session_is_quiet(conn->sess))
		put_point(conn, received, sent);
}

void iscsi_quiet_arrives(struct iscsi_conn *conn, uint64_t received, uint64_t sent)
{
	if (conn->quiet && conn->sess && conn->sess->loop_state == Q3_LOGGED_IN)
		put_point(conn, received, sent);
}

/* ---- the way back; main ---------------------------------------------------------------------- */

struct quiet_reading {
	uint8_t *out; /* behind room for the head */
	size_t len, room;
	uint32_t n, not_quiet, next_tsih;
	uint8_t slot[QUIET_SLOT];
	uint64_t record[QUIET_OUT_MAX / 8];
};

static bool append(struct quiet_reading *r, const void *data, size_t n)
{
	if (r->len + n > r->room) {
		const size_t room = 2 * r->room + n;
		uint8_t *more = realloc(r->out, room);

		if (!more)
			return false;
		r->out = more;
		r->room = room;
	}
	memcpy(r->out + r->len, data, n);
	r->len += n;
	return true;
}

/* Of one that was not at rest, and may go on. */
static bool busy_numbers(struct carry_session *s, struct carry_conn *c)
{
	const char *why;
	const struct flight_taken *f = iscsi_flight_taken_of(s->tsih, &why);

	return f && iscsi_flight_patch(f, s, c);
}

/* What it had received, and not looked at, behind its only connection. */
static bool append_unparsed(struct quiet_reading *r, uint32_t tsih)
{
	static const uint8_t zero[8];
	const char *why;
	const struct flight_taken *f = iscsi_flight_taken_of(tsih, &why);
	uint32_t len = 0;
	const uint8_t *bytes = f ? iscsi_flight_unparsed(f, &len) : NULL;

	return !len || (append(r, bytes, len) && append(r, zero, -len & 7u));
}

static void read_slot(struct quiet_reading *r, size_t got)
{
	uint32_t tsih;
	size_t n;
	const char *why = quiet_slot_read(r->slot, got, busy_numbers, r->record, &n, &tsih);

	if (why && !*why)
		return;
	if (!why && !(append(r, r->record, n) && append_unparsed(r, tsih)))
		why = "there is no memory for it";
	if (why) {
		const char *busy;

		(void)iscsi_flight_taken_of(tsih, &busy);
		if (busy)
			why = busy;
		r->not_quiet++;
		if (tsih)
			log_ratelimited(LOG_LVL_WARN, "iscsi: session %u of the process before "
					"ends: %s", tsih, why);
		else
			log_ratelimited(LOG_LVL_WARN, "iscsi: a session of the process before "
					"ends: %s", why);
		return;
	}
	r->n++;
	r->next_tsih = MAX(r->next_tsih, tsih + 1);
}

/* Of a sparse file; one that was cut or grown has other slots, or none. */
static void read_slots(struct quiet_reading *r, int fd, uint32_t most)
{
	for (uint32_t i = 0; i < most; i++) {
		const off_t at = lseek(fd, (off_t)i * QUIET_SLOT, SEEK_DATA);
		ssize_t got;

		if (at < 0 || at / QUIET_SLOT >= most)
			return;
		i = (uint32_t)(at / QUIET_SLOT);
		got = pread(fd, r->slot, sizeof(r->slot), (off_t)i * QUIET_SLOT);
		if (got > 0)
			read_slot(r, (size_t)got);
	}
}

#define SLOTS_MAX 65536u

void *iscsi_quiet_read(int fd, size_t *len, unsigned *n, unsigned *not_quiet)
{
	struct quiet_reading *r = calloc(1, sizeof(*r));
	uint8_t *out;
	struct stat st;

	ASSERT_ON_MAIN();
	*len = *n = *not_quiet = 0;
	if (!r || fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		free(r);
		return NULL;
	}
	r->len = r->room = CARRY_HEAD_LEN;
	r->out = calloc(1, CARRY_HEAD_LEN);
	if (r->out)
		read_slots(r, fd, SLOTS_MAX);
	out = r->out;
	if (out)
		carry_put_head(out, r->n, r->next_tsih > UINT16_MAX ? 1 : r->next_tsih,
			       r->len - CARRY_HEAD_LEN,
			       carry_crc(DIGEST_INIT, out + CARRY_HEAD_LEN,
					 r->len - CARRY_HEAD_LEN));
	*len = r->len;
	*n = r->n;
	*not_quiet = r->not_quiet;
	free(r);
	return out;
}
