/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sessions that another process has handed to the keeper (carry.c) go on in this one.
 *
 *   1. The keeper forgets the record.
 *   2. Each session is read and judged as a whole: its numbers, names and parameters, its target,
 *      its sockets, and that nothing has been received or sent by them since. What is in doubt is
 *      closed, and the initiator logs in again.
 *   3. It is put together on main, as a login would, and enters full feature phase on its loop,
 *      with what it holds of its units: reservations, unit attentions.
 *   4. When all sessions of all loops have done so, the keeper gets what they are now. So what one
 *      does to another from here on is known to who comes after this process.
 *   5. What was under way goes on (flight.h), on all loops.
 *   6. They read on. So no command of one finds another one's reservation missing, or has nobody to
 *      tell, or nothing to abort. Only then others may come.
 *
 * If that process has died instead, there is no such record, but slots of sessions that were quiet
 * (quiet.h), and the rest is the same. They stay with the keeper until those of this process are
 * there. So if this one dies on the way, what it has not touched yet goes on in the next: the sums
 * of a slot hold no more once a byte was read or sent. A socket stays with the keeper as long as
 * its connection lives, and one that nobody goes on with is reset.
 *
 * An initiator notices that its answers came a moment later.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "events/kept.h"
#include "tgtd/iscsi/carry.h"
#include "tgtd/iscsi/carry_form.h"
#include "tgtd/iscsi/flight.h"
#include "tgtd/iscsi/quiet.h"

/* One session on its way: read, and then with its loop. */
struct carried {
	struct list link; /* arrivals.sessions */
	struct iscsi_session *s;
	struct scsi_target *target;
	const struct iscsi_transport *tp;
	struct carry_session r;
	unsigned nconns;
	struct carry_conn conn[CARRY_CONNS_MAX];
	const uint8_t *bytes[CARRY_CONNS_MAX];
	int fd[CARRY_CONNS_MAX];
	struct iscsi_conn *made[CARRY_CONNS_MAX];
	struct flight_going *flight; /* of its only connection; NULL: nothing is under way */
	struct scsi_carried_lun lun[]; /* r.nluns */
};

/* All that go on on one loop. */
struct arrivals {
	struct loop_msg msg;
	struct arrivals *next;
	struct loop *loop;
	struct list sessions;
};

static struct {
	struct arrivals *loops;
	_Atomic unsigned left; /* loops that were told, and have not done it */
	bool at_work; /* something was under way */
	struct loop_msg over;
	struct iscsi_carried count;
	void (*done)(const struct iscsi_carried *c, void *arg);
	void *arg;
	bool lost; /* iscsi_carry_lost() */
} back;

/* ---- on their loop --------------------------------------------------------------------------- */

/* It stays until it reads on, whatever becomes of its connections. */
static void carried_arrives(struct carried *y)
{
	const struct carry_conn *r = y->conn;
	struct iscsi_session *s = y->s;
	bool ok = true;

	ASSERT_ON_LOOP(s->loop);
	s->tmfs++;
	for (unsigned i = 0; i < y->nconns; i++)
		if (y->made[i])
			iscsi_enter_ffp(y->made[i], false);
	/* Until carried_goes_on(); before the keeper has the record. */
	if (y->flight && y->made[0] && y->made[0]->flight)
		iscsi_flight_doubt(y->made[0], 1);
	if (s->loop_state != Q3_LOGGED_IN)
		return;
	for (unsigned i = 0; i < y->r.nluns; i++)
		ok &= scsi_carried_lun(&s->nexus, &y->lun[i]);
	if (y->r.luns_changed)
		scsi_carried_luns_changed(&s->nexus);
	s->nexus.rounds = y->r.rounds;
	s->nexus.full_rounds = y->r.full_rounds;
	if (!ok)
		iscsi_session_drop(s, "there is no memory for its logical units");
	for (unsigned i = 0; ok && i < y->nconns; i++)
		if (y->made[i] && y->flight)
			iscsi_quiet_refresh(y->made[i]);
		else if (y->made[i] && r[i].counted && !r[i].unparsed)
			iscsi_quiet_arrives(y->made[i], r[i].received, r[i].sent);
}

/* What was under way, before anybody reads on. (Its connection may have gone since it arrived.) */
static void carried_goes_on(struct carried *y)
{
	struct iscsi_conn *c = list_first_or_null(&y->s->conns, struct iscsi_conn, sess_link);

	ASSERT_ON_LOOP(y->s->loop);
	if (!y->flight)
		return;
	if (c && !c->failed)
		iscsi_flight_goes_on(c, y->flight);
	if (c && c->flight)
		iscsi_flight_doubt(c, -1);
	iscsi_flight_going_free(y->flight);
	y->flight = NULL;
}

static void carried_reads_on(struct carried *y)
{
	struct iscsi_session *s = y->s;
	struct iscsi_conn *c;

	ASSERT_ON_LOOP(s->loop);
	list_for_each(c, &s->conns, sess_link) {
		if (c->failed)
			continue;
		c->rx_stopped = false;
		c->tp->rx_resume(c); /* (not before this is over) */
	}
	iscsi_carry_open_window(s);
	s->tmfs--;
	if (list_empty(&s->conns))
		iscsi_session_conn_left(s);
	free(y);
}

static void all_read_on(struct loop_msg *msg)
{
	struct arrivals *a = container_of(msg, struct arrivals, msg);
	struct carried *y;

	while ((y = list_first_or_null(&a->sessions, struct carried, link))) {
		list_del(&y->link);
		carried_reads_on(y);
	}
	free(a);
}

/* What this process has of them counts, if it dies, and no more what the one before had. (A word
 * that is under way when it dies is heard.) */
static void keep_slots(void)
{
	int err = kept_put_soon(QUIET_KEY, iscsi_quiet_fd());

	if (err == -EAGAIN)
		err = kept_put(QUIET_KEY, iscsi_quiet_fd());
	if (!err && iscsi_flight_fd() >= 0) {
		err = kept_put_soon(FLIGHT_KEY, iscsi_flight_fd());
		if (err == -EAGAIN)
			err = kept_put(FLIGHT_KEY, iscsi_flight_fd());
	}
	if (err)
		log_error("iscsi: if this process dies all sessions end: the keeper does not keep "
			  "what they are: %s", strerror(-err));
}

static void tell_loops(void (*handle)(struct loop_msg *msg))
{
	struct arrivals *a, *next;
	unsigned n = 0;

	for (a = back.loops; a; a = a->next)
		n++;
	atomic_store(&back.left, n);
	for (a = back.loops; a; a = next) {
		next = a->next; /* (it may be gone as soon as it is told) */
		a->msg.handle = handle;
		loop_post(a->loop, &a->msg);
	}
}

/* The last loop that was told tells main. */
static void loop_has_done(void (*then)(struct loop_msg *msg))
{
	if (atomic_fetch_sub(&back.left, 1) > 1)
		return;
	back.over.handle = then;
	loop_post(iscsi_core.main, &back.over);
}

static void all_may_read(struct loop_msg *msg)
{
	(void)msg;
	ASSERT_ON_MAIN();
	tell_loops(all_read_on);
	back.done(&back.count, back.arg);
}

static void commands_go_on(struct loop_msg *msg)
{
	struct arrivals *a = container_of(msg, struct arrivals, msg);
	struct carried *y;

	list_for_each(y, &a->sessions, link)
		carried_goes_on(y);
	loop_has_done(all_may_read);
}

/* Nobody reads on before all that was under way is there again, on all loops. Else who aborts it
 * would not find it, and be answered, and it would be carried out after that. */
static void carried_back(void)
{
	if (iscsi_quiet_fd() >= 0)
		keep_slots();
	if (back.at_work)
		tell_loops(commands_go_on);
	else
		all_may_read(NULL);
}

static void all_are_back(struct loop_msg *msg)
{
	(void)msg;
	ASSERT_ON_MAIN();
	carried_back();
}

static void all_arrive(struct loop_msg *msg)
{
	struct arrivals *a = container_of(msg, struct arrivals, msg);
	struct carried *y;

	list_for_each(y, &a->sessions, link)
		carried_arrives(y);
	loop_has_done(all_are_back);
}

/* ---- putting it together; main --------------------------------------------------------------- */

static void fill_session(struct iscsi_session *s, const struct carry_session *r)
{
	s->tsih = (uint16_t)r->tsih;
	s->tpgt = (uint16_t)r->tpgt;
	memcpy(s->isid, r->isid, sizeof(s->isid));
	memcpy(s->initiator, r->initiator, sizeof(s->initiator));
	memcpy(s->alias, r->alias, sizeof(s->alias));
	memcpy(s->user, r->user, sizeof(s->user));
	s->peer = r->peer;
	s->window = r->window;
	s->exp_cmd_sn = r->exp_cmd_sn;
	s->max_cmd_sn = r->max_cmd_sn;
	s->next_ttt = r->next_ttt;
	carry_get_params(&s->params, &r->params);
	iscsi_target_offer(s->target, &s->offer);
}

static const struct iscsi_transport *transport(void)
{
	struct iscsi_transport_link *l;

	list_for_each(l, &iscsi_core.transports, link)
		if (l->tp->adopt)
			return l->tp;
	return NULL;
}

/* Its socket is nobody's any more; -1: nor is it here. */
static void let_socket_go(const struct iscsi_transport *tp, const char *key, int fd)
{
	if (fd >= 0 && tp && tp->reset)
		tp->reset(fd);
	if (fd >= 0)
		kept_close(fd);
	if (kept_drop_soon(key) == -EAGAIN)
		(void)kept_drop(key);
}

static void let_sockets_go(const struct carried *y, unsigned i, const struct iscsi_transport *tp)
{
	char key[CARRY_KEY];

	carry_key(key, y->r.tsih, y->conn[i].cid);
	let_socket_go(tp, key, y->fd[i]);
}

/* False: no memory; its socket is closed. */
static bool adopt_conn(struct carried *y, unsigned i)
{
	const struct carry_conn *r = &y->conn[i];
	struct iscsi_conn *c = y->tp->adopt(iscsi_core.main, y->fd[i], &r->peer, &r->local,
					    (uint16_t)r->tpgt, y->bytes[i], r->unparsed);

	y->fd[i] = -1;
	if (!c) {
		let_sockets_go(y, i, NULL);
		return false;
	}
	carry_get_params(&c->params, &r->params);
	c->cid = (uint16_t)r->cid;
	c->stat_sn = r->stat_sn;
	c->exp_stat_sn = r->exp_stat_sn;
	memcpy(&c->stats, r->stats, sizeof(c->stats));
	c->rx_stopped = true;
	if (!iscsi_conn_event(c, CONN_EV_LOGIN_PDU))
		BUG("a new connection that cannot log in");
	iscsi_registry_add_conn(y->s, c);
	iscsi_conn_joins(c);
	iscsi_quiet_keep(c, true);
	c->loop = y->s->loop;
	y->made[i] = c;
	return true;
}

/* What was under way on its only connection. False: no memory. */
static bool adopt_flight(struct carried *y, const struct flight_taken *f)
{
	uint8_t *owed;
	uint32_t len;

	y->flight = iscsi_flight_going(f);
	if (!y->flight)
		return false;
	back.at_work = true;
	owed = iscsi_flight_owed(f, &len);
	if (owed)
		y->tp->owes(y->made[0], owed, len);
	if (iscsi_flight_skip(f))
		y->tp->skips(y->made[0], iscsi_flight_skip(f));
	return true;
}

static struct arrivals *arrivals_of(struct loop *loop)
{
	struct arrivals *a;

	for (a = back.loops; a; a = a->next)
		if (a->loop == loop)
			return a;
	a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	a->loop = loop;
	a->next = back.loops;
	list_init(&a->sessions);
	back.loops = a;
	return a;
}

/* NULL: it goes on, or ends by itself, and @y is its loop's; or why not. */
static const char *go_on(struct carried *y)
{
	struct arrivals *a;
	struct iscsi_session *s = iscsi_registry_session_new(
		y->target, iscsi_address_node((const struct sockaddr *)&y->conn[0].local));
	const char *ignored;
	const struct flight_taken *f = iscsi_flight_taken_of(y->r.tsih, &ignored);
	unsigned made = 0;

	if (!s)
		return "there is no memory for it";
	a = arrivals_of(s->loop);
	if (!a) {
		iscsi_registry_session_free(s);
		return "there is no memory for it";
	}
	y->s = s;
	fill_session(s, &y->r);
	iscsi_quiet_session(s);
	/* In Q2 with no loop that knows of it, it goes with its last connection: but for that it
	 * stays in no list. */
	if (!iscsi_registry_adopt(s)) {
		iscsi_registry_session_free(s);
		return "another one has its TSIH";
	}
	for (unsigned i = 0; i < y->nconns; i++)
		made += adopt_conn(y, i);
	if (f && made && !adopt_flight(y, f))
		iscsi_conn_fail(y->made[0], "out of memory");
	list_add_tail(&a->sessions, &y->link);
	return made ? NULL : "there is no memory for its connections";
}

/* ---- judging --------------------------------------------------------------------------------- */

static const char *socket_wrong(const struct carried *y, unsigned i)
{
	const struct carry_conn *r = &y->conn[i];
	uint64_t received, sent;

	if (y->fd[i] < 0)
		return "a socket was not kept";
	if (!y->tp->fits(y->fd[i], &r->peer, &r->local))
		return "a connection has broken";
	if (r->counted && (!y->tp->count(y->fd[i], &received, &sent) || received != r->received ||
			   sent != r->sent))
		return "a connection is not as it was left";
	return NULL;
}

/* NULL: nothing is. */
static const char *carried_wrong(struct carried *y)
{
	const char *wrong = carry_session_wrong(&y->r);

	for (unsigned i = 0; i < y->nconns && !wrong; i++) {
		wrong = carry_conn_wrong(&y->conn[i], &y->r);
		for (unsigned k = 0; k < i; k++)
			if (y->conn[k].cid == y->conn[i].cid)
				wrong = "two connections have one CID";
	}
	if (wrong)
		return wrong;
	y->target = scsi_target_find_name(y->r.target);
	if (!y->target || scsi_target_tid(y->target) != y->r.tid)
		return "its target is not there";
	y->tp = transport();
	if (!y->tp)
		return "there is no such transport";
	for (unsigned i = 0; i < y->nconns && !wrong; i++)
		wrong = socket_wrong(y, i);
	return wrong;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void carried_free(struct carried *y)
{
	for (unsigned i = 0; i < y->nconns; i++)
		let_sockets_go(y, i, transport());
	free(y);
}

static bool read_lun(struct carry_reader *reader, struct scsi_carried_lun *l, const char **wrong)
{
	struct carry_lun r;

	if (!carry_read_lun(reader, &r))
		return false;
	if (!*wrong)
		*wrong = carry_lun_wrong(&r);
	*l = (struct scsi_carried_lun){ .lun = r.lun,
					.nua = (uint8_t)r.nua,
					.holds = r.holds,
					.blocks = r.blocks,
					.block_size = r.block_size,
					.inquiry = r.inquiry };
	memcpy(l->ua, r.ua, sizeof(l->ua));
	memcpy(&l->stats, r.stats, sizeof(r.stats));
	return true;
}

/* The next session, with its sockets. False: there is none, or no end of it can be found. */
static bool read_carried(struct carry_reader *reader, struct carried **out, const char **wrong)
{
	struct carry_session r;
	char key[CARRY_KEY];
	struct carried *y;

	*wrong = NULL;
	if (!carry_read_session(reader, &r))
		return false;
	y = calloc(1, sizeof(*y) + r.nluns * sizeof(y->lun[0]));
	if (!y)
		return false;
	y->r = r;
	list_init(&y->link);
	for (uint32_t i = 0; i < r.nluns; i++)
		if (!read_lun(reader, &y->lun[i], wrong)) {
			free(y);
			return false;
		}
	for (uint32_t i = 0; i < r.nconns; i++) {
		if (!carry_read_conn(reader, &y->conn[i], &y->bytes[i])) {
			carried_free(y);
			return false;
		}
		carry_key(key, r.tsih, y->conn[i].cid);
		y->fd[i] = kept_take(key);
		y->nconns++;
	}
	*out = y;
	return true;
}

/* It goes on in the middle of commands. */
static void count_busy(struct iscsi_carried *c, uint32_t tsih)
{
	const char *ignored;
	const struct flight_taken *f = iscsi_flight_taken_of(tsih, &ignored);

	if (!f || !iscsi_flight_busy(f))
		return;
	c->busy++;
	c->commands += iscsi_flight_commands(f);
	c->owed += iscsi_flight_owes(f);
	metric_inc(M_iscsi_kept_busy);
	metric_add(M_iscsi_kept_commands, iscsi_flight_commands(f));
}

static void carry_back_all(struct carry_reader *reader, struct iscsi_carried *c)
{
	const uint32_t all = reader->sessions;
	struct carried *y;
	const char *wrong;

	if (reader->next_tsih)
		iscsi_registry_next_tsih((uint16_t)reader->next_tsih);
	while (read_carried(reader, &y, &wrong)) {
		const unsigned tsih = y->r.tsih, conns = y->nconns;

		if (!wrong)
			wrong = carried_wrong(y);
		if (wrong)
			carried_free(y);
		else
			wrong = go_on(y);
		if (wrong) {
			const char *why;

			/* (That it was at work says more.) */
			(void)iscsi_flight_taken_of(tsih, &why);
			if (why)
				wrong = why;
			log_warn("iscsi: session %u of the process before ends: %s", tsih, wrong);
			continue;
		}
		c->sessions++;
		c->conns += conns;
		count_busy(c, tsih);
	}
	c->ended += all - c->sessions;
}

/* The caller's; NULL: it cannot be read. */
static void *read_carried_record(int fd, size_t *len)
{
	struct stat st;
	uint8_t *data;

	if (fstat(fd, &st) || st.st_size <= 0 || (uint64_t)st.st_size > CARRY_SIZE_MAX)
		return NULL;
	data = malloc((size_t)st.st_size);
	for (*len = 0; data && *len < (size_t)st.st_size;) {
		ssize_t n = pread(fd, data + *len, (size_t)st.st_size - *len, (off_t)*len);

		if (n <= 0) {
			free(data);
			return NULL;
		}
		*len += (size_t)n;
	}
	return data;
}

/* What no session has taken. */
static void close_sockets(void)
{
	const struct iscsi_transport *tp = transport();
	const char *key;
	unsigned at = 0;

	while ((key = kept_next(CARRY_SOCKETS, &at)))
		let_socket_go(tp, key, kept_take(key));
}

/* Left in a planned restart. 0 or -errno; *@data NULL: there is nothing. */
static int left_by_plan(struct carry_reader *reader, void **data)
{
	int fd = kept_take(CARRY_RECORD), err;
	size_t len = 0;

	*data = NULL;
	if (fd < 0)
		return 0;
	*data = read_carried_record(fd, &len);
	err = *data ? carry_read(reader, *data, len) : -EBADMSG;
	close(fd);
	return err ?: kept_drop_all(CARRY_RECORD);
}

/* A worker may die of what a session does to it, again and again. */
static bool sessions_may_go_on(void)
{
	const struct kept_origin *o = kept_origin();

	if (o->died_soon < KEPT_DIED_NO_SESSIONS && !o->save && !back.lost)
		return true;
	log_notice("iscsi: the sessions of the process before end: %s",
		   o->save   ? "this one serves nobody" :
		   back.lost ? "what some of them wrote may be lost" :
			       "workers die soon");
	return false;
}

void iscsi_carry_lost(void)
{
	back.lost = true;
}

/* Left by a process that has died. As above. */
static int left_by_death(struct carry_reader *reader, void **data, int fd, struct iscsi_carried *c)
{
	size_t len = 0;
	unsigned n;

	if (fd < 0 || !sessions_may_go_on())
		return 0;
	*data = iscsi_quiet_read(fd, &len, &n, &c->ended);
	return *data ? carry_read(reader, *data, len) : 0;
}

static void start_slots(void)
{
	const enum iscsi_keep keep = kept_fd() >= 0 ? iscsi_core.conf.keep : ISCSI_KEEP_NONE;
	int err = keep != ISCSI_KEEP_NONE ? iscsi_quiet_start(iscsi_core.conf.max_connections) : 0;

	if (err)
		log_error("iscsi: if this process dies all sessions end: %s", strerror(-err));
	else if (keep == ISCSI_KEEP_ALL &&
		 (err = iscsi_flight_start(iscsi_core.conf.max_connections)))
		log_error("iscsi: if this process dies sessions at work end: %s", strerror(-err));
}

static void send_to_loops(void)
{
	if (back.loops)
		tell_loops(all_arrive);
	else
		carried_back();
}

void iscsi_carry_back(void (*done)(const struct iscsi_carried *c, void *arg), void *arg)
{
	const int slots = kept_take(QUIET_KEY);
	struct carry_reader reader;
	void *data;
	int err;

	ASSERT_ON_MAIN();
	back.done = done;
	back.arg = arg;
	start_slots();
	err = left_by_plan(&reader, &data);
	if (!err && !data)
		err = left_by_death(&reader, &data, slots, &back.count);
	if (err)
		log_error("iscsi: the sessions of the process before end: %s",
			  err == -ENOTSUP ? "another version has written down what they are" :
			  err == -EBADMSG ? "what is written down of them is damaged" :
					    strerror(-err));
	else if (data)
		carry_back_all(&reader, &back.count);
	free(data);
	iscsi_flight_let_go();
	close_sockets();
	if (slots >= 0)
		kept_close(slots);
	send_to_loops();
}
