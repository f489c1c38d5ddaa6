/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sessions that go on in another process: how this one brings them to rest and hands them to the
 * keeper (events/kept.h). The other end is carry_back.c, what is written is carry_form.h.
 *
 *     main: portals closed; sessions that cannot go on are asked to log out
 *        |                                                          LEAVING
 *        v  gone, or LEAVE_NS later
 *     main: asks each session's loop -------------> loop: no command comes any more, those under
 *        |                             RESTING            way end, their responses are sent
 *        |  each says: it rests, or it has ended <-------
 *        |  (some do neither: who rests is served -------> meanwhile, and asked once more)
 *        v
 *     main: asks each that rests -----------------> loop: writes down what it is, lets go of it
 *        |                             TAKING
 *        v  all are back <-------------------------------
 *     main: sockets, then the record of all: to the keeper. done()
 *
 * That a session rests is asked twice, since what others do to it while they come to rest (a unit
 * attention, a reset, its end) counts: what is written is what holds when no session does anything.
 * From then on a session is never touched again.
 *
 * A session rests at a PDU's border of each of its connections. It has no task then, nor an answer
 * that has not been sent or, at ErrorRecoveryLevel 1, acknowledged. MaxCmdSN does not move
 * meanwhile, so no more can come than the initiator was allowed before. As long as the initiator
 * owes nothing, no PDU is begun at all. A session of which nothing ends within REST_LOOKS has a
 * command that hangs, or a peer that does. It is ended, and its initiator may log in again at once.
 *
 * What is not with the keeper when this process ends, at whatever instruction, ends with it. What
 * is there without a record, the next process closes. So no session goes on twice, nor from a state
 * that it is not in any more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "events/kept.h"
#include "tgtd/iscsi/carry.h"
#include "tgtd/iscsi/carry_form.h"
#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/digest.h"

#define LEAVE_MS 1000u			/* for logouts, as at any other end, */
#define LEAVE_NS (1200 * NSEC_PER_MSEC) /* and then they are left */
/* Looks, and not time: a process that gets no processor makes none. */
#define LOOK_NS NSEC_PER_MSEC /* how often a session is looked at */
#define REST_LOOKS 2000u      /* between which nothing is heard of it or ends, */
#define REST_LOOKS_MAX 5000u  /* and all that it has */
/* Nobody waits longer for another one's session. Who was served meanwhile has shown that it comes
 * to rest, and is asked once more: for the last time. */
#define TURN_NS (400 * NSEC_PER_MSEC)
#define TURNS 25u /* then who does not rest ends, however seldom its thread has looked */
#define LAST_TURNS 10u
#define HURRY_LOOKS 100u
#define SOON_LOOKS 500u /* who needed more stays at rest */
#define LAST_LOOKS_MAX 3000u
#define LOOKS_A_CLOCK 16u
#define LOOKS_A_PING 16
#define TELL_NS (20 * NSEC_PER_MSEC) /* for last words of sessions that were ended */

enum carry_state {
	CARRY_ASKED, /* its loop has the message */
	CARRY_RESTS,
	CARRY_AWAKE, /* it goes on as before */
	CARRY_TAKEN,
	CARRY_ENDED,
};

struct carry_socket {
	int fd;
	uint16_t cid;
	size_t at;	      /* its carry_conn, in the record */
	const uint8_t *bytes; /* received and not looked at: where the transport has them */
	uint32_t unparsed;
};

/* One session. The message goes to and fro; who has it has the rest. */
struct iscsi_carry {
	struct loop_msg msg;
	struct list link;
	struct iscsi_session *s;
	uint8_t state; /* enum carry_state */
	bool paused, last;
	unsigned turns, looks, next_ping, until;
	uint64_t ran_ns;  /* of its thread, when that was looked at */
	uint64_t numbers; /* of all that its connections count, summed up */
	struct timer look;
	const char *why; /* CARRY_ENDED: in words */
	uint32_t tsih;
	uint8_t *record; /* all but what was received */
	size_t len;
	unsigned nsockets;
	struct carry_socket socket[CARRY_CONNS_MAX];
};

static struct {
	struct list sessions;
	enum { LEAVING, RESTING, TAKING } phase;
	unsigned left; /* messages that are with loops */
	unsigned ended;
	bool woke; /* some are served meanwhile, */
	bool last; /* or were */
	unsigned turns;
	_Atomic bool hurry;
	struct timer timer;
	void (*done)(const struct iscsi_carried *c, void *arg);
	void *arg;
} carry = { .sessions = LIST_INIT(carry.sessions) };

static void carry_answer(struct iscsi_carry *y, enum carry_state state, const char *why);

/* ---- coming to rest; the session's loop ------------------------------------------------------ */

/* Is there data that will come, or is about to be asked for? */
static bool task_is_owed(const struct iscsi_task *t)
{
	if (!t->cmd.dir_out || t->completed)
		return t->state == TASK_DRAINING;
	return t->out.unsol_open || t->out.r2t_busy || t->cmd.edtl_out > t->out.unsol_len;
}

/* Can it come to rest only by what its initiator sends? */
static bool needs_reading(const struct iscsi_session *s)
{
	const struct iscsi_conn *c;
	const struct iscsi_task *t;

	if (!list_empty(&s->held) || s->fence.phase)
		return true;
	list_for_each(c, &s->conns, sess_link) {
		if (c->rx_task || c->rx_ctl || iscsi_text_open(c))
			return true;
		list_for_each(t, &c->tasks, link)
			if (task_is_owed(t))
				return true;
	}
	return false;
}

static bool all_answered(const struct iscsi_conn *c)
{
	const struct iscsi_task *t;

	list_for_each(t, &c->tasks, link)
		if (t->state != TASK_UNACKED)
			return false;
	return true;
}

/* ErrorRecoveryLevel 1: what was sent is acknowledged with the answer to a ping. */
static void ask_for_acknowledgement(struct iscsi_carry *y)
{
	struct iscsi_conn *c;

	if (y->looks < y->next_ping)
		return;
	y->next_ping = y->looks + LOOKS_A_PING;
	list_for_each(c, &y->s->conns, sess_link)
		if (!list_empty(&c->unacked) && all_answered(c) && !c->failed &&
		    c->state == S5_LOGGED_IN)
			iscsi_ping(c, 0);
}

static bool conn_rests(struct iscsi_conn *c, bool reads)
{
	if (c->failed || c->state != S5_LOGGED_IN)
		return false; /* it ends by itself */
	if (reads)
		return false;
	if (!c->tp->pause(c))
		return false;
	if (!list_empty(&c->unacked))
		c->tp->peek(c); /* what acknowledges them stands behind commands that wait */
	return list_empty(&c->tasks) && list_empty(&c->ctls) && list_empty(&c->unacked) &&
	       !c->ctl_out && !c->rx_task && !c->rx_ctl && !c->fence_ask && !iscsi_text_open(c);
}

static void read_again(struct iscsi_session *s)
{
	struct iscsi_conn *c;

	list_for_each(c, &s->conns, sess_link)
		if (!c->failed && c->rx_stopped && c->state == S5_LOGGED_IN) {
			c->rx_stopped = false;
			c->tp->rx_resume(c);
		}
}

static bool session_rests(struct iscsi_carry *y)
{
	struct iscsi_session *s = y->s;
	const bool reads = needs_reading(s);
	struct iscsi_conn *c;
	bool rests = true;

	if (reads && y->paused)
		read_again(s);
	y->paused = !reads;
	list_for_each(c, &s->conns, sess_link)
		rests &= conn_rests(c, reads);
	/* The one of task management is ours. */
	return rests && s->tmfs == 1 && !s->tmfs_live && list_empty(&s->held) &&
	       list_empty(&s->waits) && !s->fence.phase && !s->in_window && !s->immediates;
}

/* Ours no more: it may end. */
static void carry_let_go(struct iscsi_carry *y, const char *why)
{
	struct iscsi_session *s = y->s;

	loop_timer_cancel(s->loop, &y->look);
	s->carrying = false;
	carry_answer(y, CARRY_ENDED, why);
	s->tmfs--;
	iscsi_session_check_end(s);
}

static void end_session(struct iscsi_carry *y, const char *why)
{
	iscsi_session_drop(y->s, why);
	carry_let_go(y, why);
}

/* What keeps it from coming to rest, in words. */
static const char *unrest(const struct iscsi_session *s)
{
	const struct iscsi_conn *c;
	const struct iscsi_task *t;

	list_for_each(c, &s->conns, sess_link) {
		list_for_each(t, &c->tasks, link)
			if (task_is_owed(t))
				return "the data of a write does not come";
		list_for_each(t, &c->tasks, link)
			if (t->started && !t->completed)
				return "a command does not end";
		if (!list_empty(&c->unacked))
			return "answers are not acknowledged";
		if (!list_empty(&c->tasks) || !list_empty(&c->ctls))
			return "answers are not taken";
	}
	return list_empty(&s->held) ? "it does not come to rest" :
				      "a command before others does not come";
}

/* How much a look counts. A thread that a peer keeps busy looks seldom: what it has run counts as
 * well. One that gets no processor does not run. */
static unsigned look_counts(struct iscsi_carry *y)
{
	struct timespec t = { 0 };
	uint64_t ran, ms;

	if (++y->turns % LOOKS_A_CLOCK)
		return 1;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	ran = (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
	ms = y->ran_ns ? (ran - y->ran_ns) / NSEC_PER_MSEC : 0;
	y->ran_ns = ran;
	return 1 + (unsigned)(ms - MIN(ms, (uint64_t)LOOKS_A_CLOCK));
}

/* Nothing is heard of it and nothing ends for a while, or it takes too long as a whole. */
static bool carry_is_late(struct iscsi_carry *y)
{
	const unsigned most = y->last ? LAST_LOOKS_MAX : REST_LOOKS_MAX;
	const struct iscsi_conn *c;
	uint64_t numbers = 1;

	list_for_each(c, &y->s->conns, sess_link)
		numbers += (uint64_t)c->stat_sn + c->exp_stat_sn + c->stats.rxdata_octets +
			   c->stats.txdata_octets + c->stats.dataout_pdus + c->stats.datain_pdus;
	if (numbers != y->numbers)
		y->until = MIN(y->looks + REST_LOOKS, most);
	y->numbers = numbers;
	y->looks += look_counts(y);
	return y->looks >= y->until ||
	       (y->looks >= HURRY_LOOKS &&
		atomic_load_explicit(&carry.hurry, memory_order_relaxed));
}

static void look_at_rest(struct iscsi_carry *y)
{
	struct iscsi_session *s = y->s;

	ASSERT_ON_LOOP(s->loop);
	if (list_empty(&s->conns) || s->loop_state != Q3_LOGGED_IN) {
		carry_let_go(y, NULL);
		return;
	}
	if (session_rests(y)) {
		carry_answer(y, CARRY_RESTS, NULL);
		return;
	}
	if (carry_is_late(y)) {
		end_session(y, unrest(s));
		return;
	}
	ask_for_acknowledgement(y);
	loop_timer_arm(s->loop, &y->look, LOOK_NS);
}

static void look_at_rest_again(struct timer *t)
{
	look_at_rest(container_of(t, struct iscsi_carry, look));
}

/* Message of main: the first. */
static void come_to_rest(struct loop_msg *msg)
{
	struct iscsi_carry *y = container_of(msg, struct iscsi_carry, msg);
	struct iscsi_session *s = y->s;
	struct iscsi_conn *c;

	ASSERT_ON_LOOP(s->loop);
	s->tmfs++; /* it stays as long */
	s->carrying = true;
	timer_init(&y->look, look_at_rest_again);
	list_for_each(c, &s->conns, sess_link) {
		iscsi_conn_renegotiated(c); /* each command by the general path */
		iscsi_nop_stop(c);
	}
	look_at_rest(y);
}

void iscsi_carry_open_window(struct iscsi_session *s)
{
	struct iscsi_conn *c;

	if (s->loop_state != Q3_LOGGED_IN || s->in_window ||
	    s->max_cmd_sn == s->exp_cmd_sn + s->window - 1)
		return;
	list_for_each(c, &s->conns, sess_link)
		if (!c->failed) {
			iscsi_ping(c, 0);
			return;
		}
}

/* Message of main: others do not come to rest. It does what it did, until it is asked again. */
static void serve_meanwhile(struct loop_msg *msg)
{
	struct iscsi_carry *y = container_of(msg, struct iscsi_carry, msg);
	struct iscsi_session *s = y->s;
	struct iscsi_conn *c;

	ASSERT_ON_LOOP(s->loop);
	s->carrying = false;
	list_for_each(c, &s->conns, sess_link)
		if (!c->failed) {
			iscsi_conn_renegotiated(c);
			iscsi_nop_stop(c);
			iscsi_nop_start(c);
		}
	read_again(s);
	iscsi_carry_open_window(s);
	carry_answer(y, CARRY_AWAKE, NULL);
	s->tmfs--;
	iscsi_session_check_end(s);
}

/* ---- what is written; the session's loop ----------------------------------------------------- */

static size_t record_size(unsigned nluns, unsigned nconns)
{
	return sizeof(struct carry_session) + nluns * sizeof(struct carry_lun) +
	       nconns * sizeof(struct carry_conn);
}

static void put_struct(struct iscsi_carry *y, const void *p, size_t len)
{
	memcpy(y->record + y->len, p, len);
	y->len += len;
}

static void put_session(struct iscsi_carry *y, unsigned nluns, unsigned nconns, bool luns_changed)
{
	struct carry_session r;

	carry_fill_session(&r, y->s);
	r.nluns = nluns;
	r.nconns = nconns;
	r.luns_changed = luns_changed;
	put_struct(y, &r, sizeof(r));
}

static void put_lun(struct iscsi_carry *y, const struct scsi_carried_lun *l)
{
	struct carry_lun r;

	carry_fill_lun(&r, l);
	put_struct(y, &r, sizeof(r));
}

static void put_conn(struct iscsi_carry *y, struct iscsi_conn *c)
{
	struct carry_socket *k = &y->socket[y->nsockets++];
	struct carry_conn r;

	carry_fill_conn(&r, c);
	k->cid = c->cid;
	k->fd = c->tp->leave(c, &k->bytes, &k->unparsed);
	ASSERT(k->unparsed <= CARRY_UNPARSED_MAX);
	r.unparsed = k->unparsed;
	k->at = y->len;
	put_struct(y, &r, sizeof(r));
}

/* False: no memory, and nothing was done. */
static bool write_session(struct iscsi_carry *y)
{
	struct iscsi_session *s = y->s;
	const unsigned nluns = scsi_carried_count(&s->nexus);
	struct scsi_carried_lun *luns = calloc((size_t)nluns + 1, sizeof(*luns));
	struct iscsi_conn *c;
	bool luns_changed;
	unsigned nconns = 0;

	list_for_each(c, &s->conns, sess_link)
		nconns++;
	y->record = malloc(record_size(nluns, nconns));
	if (!luns || !y->record || nconns > CARRY_CONNS_MAX) {
		free(luns);
		return false;
	}
	(void)scsi_carry_luns(&s->nexus, luns, nluns, &luns_changed);
	scsi_carry_facts(&s->nexus, luns, nluns);
	put_session(y, nluns, nconns, luns_changed);
	for (unsigned i = 0; i < nluns; i++)
		put_lun(y, &luns[i]);
	list_for_each(c, &s->conns, sess_link) {
		put_conn(y, c);
		iscsi_owed_stop(c);
		/* Whoever still has something to do with it finds that it has ended. */
		c->failed = true;
	}
	free(luns);
	return true;
}

/* Message of main: the second, when no session does anything any more. */
static void take_session(struct loop_msg *msg)
{
	struct iscsi_carry *y = container_of(msg, struct iscsi_carry, msg);
	struct iscsi_session *s = y->s;

	ASSERT_ON_LOOP(s->loop);
	if (list_empty(&s->conns) || s->loop_state != Q3_LOGGED_IN)
		carry_let_go(y, NULL);
	else if (!session_rests(y))
		end_session(y, "something has happened to it");
	else if (!write_session(y))
		end_session(y, "there is no memory for it");
	else
		carry_answer(y, CARRY_TAKEN, NULL);
}

/* ---- to the keeper; main --------------------------------------------------------------------- */

static const struct iscsi_transport *transport_of(const struct iscsi_carry *y)
{
	return list_first(&y->s->main_conns, struct iscsi_conn, main_link)->tp;
}

/* What went through the socket so far: the next process looks whether that is still so. */
static void count_socket(struct iscsi_carry *y, const struct carry_socket *k,
			 const struct iscsi_transport *tp)
{
	struct carry_conn r;

	memcpy(&r, y->record + k->at, sizeof(r));
	r.counted = tp->count(k->fd, &r.received, &r.sent);
	memcpy(y->record + k->at, &r, sizeof(r));
}

/* Of all sessions that are taken, at once. A session of which one is not kept ends. False: no
 * memory. */
static bool keep_sockets(void)
{
	struct kept_pair *pair;
	struct iscsi_carry *y;
	unsigned n = 0, at = 0;

	list_for_each(y, &carry.sessions, link)
		n += y->state == CARRY_TAKEN ? y->nsockets : 0;
	pair = calloc((size_t)n + 1, sizeof(*pair));
	if (!pair)
		return false;
	list_for_each(y, &carry.sessions, link)
		for (unsigned i = 0; y->state == CARRY_TAKEN && i < y->nsockets; i++, at++) {
			count_socket(y, &y->socket[i], transport_of(y));
			carry_key(pair[at].key, y->tsih, y->socket[i].cid);
			pair[at].fd = y->socket[i].fd;
		}
	kept_put_all(pair, n);
	at = 0;
	list_for_each(y, &carry.sessions, link) {
		int err = 0;

		if (y->state != CARRY_TAKEN)
			continue;
		for (unsigned i = 0; i < y->nsockets; i++)
			err = pair[at++].err ?: err;
		if (!err)
			continue;
		log_warn("iscsi: session %u ends: the keeper does not keep its socket: %s", y->tsih,
			 strerror(-err));
		y->state = CARRY_ENDED;
	}
	free(pair);
	return true;
}

static size_t whole_size(const struct iscsi_carry *y)
{
	size_t len = y->len;

	for (unsigned i = 0; i < y->nsockets; i++)
		len += ALIGN_UP((size_t)y->socket[i].unparsed, (size_t)8);
	return len;
}

/* The record, and behind each connection what was received of it. Returns where it ends; @out is
 * all zeroes before. */
static uint8_t *put_whole(uint8_t *out, const struct iscsi_carry *y)
{
	size_t done = 0;

	for (unsigned i = 0; i < y->nsockets; i++) {
		const struct carry_socket *k = &y->socket[i];
		const size_t upto = k->at + sizeof(struct carry_conn);

		memcpy(out, y->record + done, upto - done);
		out += upto - done;
		done = upto;
		memcpy(out, k->bytes, k->unparsed);
		out += ALIGN_UP((size_t)k->unparsed, (size_t)8);
	}
	ASSERT(done == y->len);
	return out;
}

static bool write_all(int fd, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len) {
		ssize_t n = write(fd, p, len);

		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

/* How much of it fits: what does not ends. *@len: bytes. False: no memory. */
static bool choose_records(struct iscsi_carried *c, uint64_t *len)
{
	unsigned n = 0, i = 0;
	struct iscsi_carry *y;
	uint64_t *size;
	bool *fits;

	list_for_each(y, &carry.sessions, link)
		n += y->state == CARRY_TAKEN;
	size = calloc((size_t)n + 1, sizeof(*size));
	fits = calloc((size_t)n + 1, sizeof(*fits));
	if (!size || !fits) {
		free(size);
		free(fits);
		return false;
	}
	list_for_each(y, &carry.sessions, link)
		if (y->state == CARRY_TAKEN)
			size[i++] = whole_size(y);
	*len = carry_choose(size, fits, n, CARRY_SIZE_MAX / 2);
	i = 0;
	list_for_each(y, &carry.sessions, link) {
		if (y->state != CARRY_TAKEN)
			continue;
		if (fits[i++]) {
			c->sessions++;
			c->conns += y->nsockets;
			continue;
		}
		log_warn("iscsi: session %u ends: what all have sent that is not read yet is too "
			 "much", y->tsih);
		y->state = CARRY_ENDED;
		c->ended++;
	}
	free(size);
	free(fits);
	return true;
}

/* The head, and the records of all that are taken; 0 or -errno. */
static int write_records(int fd, struct iscsi_carried *c)
{
	uint8_t *whole, *at;
	uint64_t len;
	struct iscsi_carry *y;
	bool ok;

	if (!keep_sockets() || !choose_records(c, &len))
		return -ENOMEM;
	whole = calloc(1, CARRY_HEAD_LEN + len);
	if (!whole)
		return -ENOMEM;
	at = whole + CARRY_HEAD_LEN;
	list_for_each(y, &carry.sessions, link)
		if (y->state == CARRY_TAKEN)
			at = put_whole(at, y);
	ASSERT(at == whole + CARRY_HEAD_LEN + len);
	carry_put_head(whole, c->sessions, iscsi_registry_next_tsih(0), len,
		       carry_crc(DIGEST_INIT, whole + CARRY_HEAD_LEN, len));
	ok = write_all(fd, whole, CARRY_HEAD_LEN + len);
	free(whole);
	return ok ? 0 : -ENOSPC;
}

/* The sockets first: what is there without the record is closed. */
static void hand_over(void)
{
	struct iscsi_carried c = { .ended = carry.ended };
	int fd = memfd_create("tgtd-sessions", MFD_CLOEXEC), err;

	err = fd < 0 ? -errno : write_records(fd, &c);
	if (!err && c.sessions)
		err = kept_put(CARRY_RECORD, fd);
	if (err) {
		log_error("iscsi: all sessions end: what they are cannot be kept: %s",
			  strerror(-err));
		c = (struct iscsi_carried){ .ended = carry.ended + c.sessions };
	}
	if (fd >= 0)
		close(fd);
	carry.done(&c, carry.arg);
}

/* ---- one step after the other; main ---------------------------------------------------------- */

static bool carried_on(const struct iscsi_session *s)
{
	const struct iscsi_conn *c;

	if (s->discovery || s->iser || s->state != Q3_LOGGED_IN || list_empty(&s->main_conns))
		return false;
	list_for_each(c, &s->main_conns, main_link)
		if (!c->tp->pause)
			return false;
	return true;
}

static void carry_ask(struct iscsi_carry *y, void (*handle)(struct loop_msg *msg))
{
	y->state = CARRY_ASKED;
	y->s->asked = true; /* it may have told main just now that it has ended */
	y->msg.handle = handle;
	carry.left++;
	loop_post(y->s->loop, &y->msg);
}

static void step_over(void);
static void ask_all(void);

static void all_told(struct timer *t)
{
	struct iscsi_carry *y;

	(void)t;
	carry.phase = TAKING;
	list_for_each(y, &carry.sessions, link)
		if (y->state == CARRY_RESTS)
			carry_ask(y, take_session);
	if (!carry.left)
		step_over();
}

/* All that were asked have answered. */
static void step_over(void)
{
	loop_timer_cancel(iscsi_core.main, &carry.timer);
	if (carry.phase == TAKING) {
		hand_over();
		return;
	}
	if (carry.woke) {
		carry.woke = false;
		carry.last = true;
		ask_all();
		return;
	}
	timer_init(&carry.timer, all_told);
	if (carry.ended)
		loop_timer_arm(iscsi_core.main, &carry.timer, TELL_NS);
	else
		all_told(&carry.timer);
}

static void answer_arrived(struct loop_msg *msg)
{
	struct iscsi_carry *y = container_of(msg, struct iscsi_carry, msg);

	ASSERT_ON_MAIN();
	if (y->state == CARRY_AWAKE)
		y->s->carry_knows = false;
	iscsi_registry_answered(y->s); /* one that rests stays where it is */
	if (y->state == CARRY_AWAKE) {
		list_del(&y->link);
		free(y);
	} else if (y->state == CARRY_ENDED) {
		carry.ended++;
		if (y->why)
			log_warn("iscsi: session %u ends with this process: %s", y->tsih, y->why);
	}
	if (!--carry.left)
		step_over();
}

/* On the session's loop: the message goes back. */
static void carry_answer(struct iscsi_carry *y, enum carry_state state, const char *why)
{
	y->state = (uint8_t)state;
	y->why = why;
	y->msg.handle = answer_arrived;
	loop_post(iscsi_core.main, &y->msg);
}

/* Some sessions do not come to rest: others need not wait for that. */
static void others_wait(struct timer *t)
{
	const unsigned wait = carry.left;
	struct iscsi_carry *y;

	if (++carry.turns >= (carry.last ? LAST_TURNS : TURNS))
		carry.hurry = true;
	list_for_each(y, &carry.sessions, link)
		if (!carry.last && y->state == CARRY_RESTS && y->looks < SOON_LOOKS)
			carry_ask(y, serve_meanwhile);
	if (carry.left > wait && !carry.woke)
		log_notice("iscsi: %u sessions do not come to rest: others are served until they "
			   "do, or end", wait);
	carry.woke |= carry.left > wait;
	loop_timer_arm(iscsi_core.main, t, TURN_NS);
}

/* All that are not at rest, and have not ended. */
static void ask_all(void)
{
	struct iscsi_session *s;

	list_for_each(s, &iscsi_core.sessions, link) {
		struct iscsi_carry *y;

		if (s->carry_knows)
			continue;
		s->carry_knows = true;
		y = carried_on(s) ? calloc(1, sizeof(*y)) : NULL;
		if (!y) {
			carry.ended++;
			continue;
		}
		y->s = s;
		y->tsih = s->tsih;
		y->last = carry.last;
		list_init(&y->link);
		list_add_tail(&carry.sessions, &y->link);
		carry_ask(y, come_to_rest);
	}
	carry.turns = 0;
	carry.hurry = false;
	timer_init(&carry.timer, others_wait);
	if (carry.left)
		loop_timer_arm(iscsi_core.main, &carry.timer, TURN_NS);
	else
		step_over();
}

/* Those that cannot go on have gone, or have had their time. */
static void begin_rest(void)
{
	if (carry.phase != LEAVING)
		return;
	loop_timer_cancel(iscsi_core.main, &carry.timer);
	carry.phase = RESTING;
	ask_all();
}

static void others_gone(void *arg)
{
	(void)arg;
	begin_rest();
}

static void leave_over(struct timer *t)
{
	(void)t;
	begin_rest();
}

void iscsi_carry(void (*done)(const struct iscsi_carried *c, void *arg), void *arg)
{
	ASSERT_ON_MAIN();
	carry.done = done;
	carry.arg = arg;
	carry.phase = LEAVING;
	iscsi_core.returns = true;
	iscsi_portals_close();
	timer_init(&carry.timer, leave_over);
	loop_timer_arm(iscsi_core.main, &carry.timer, LEAVE_NS);
	iscsi_registry_stop(LEAVE_MS, carried_on, others_gone, NULL);
}
