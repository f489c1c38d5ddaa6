/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who is logged in: sessions by TSIH, connections, reinstatement (RFC 7143 6.3.5), limits, and
 * what the admin sees of it. All of it belongs to the main loop; the session's loop reports ends
 * by message:
 *
 *   connection   loop: cleaned --msg--> main: out of the lists, freed
 *   session      loop: detached --msg--> main: freed once it has no connection left; those who
 *                waited for that go on with their login
 *
 * Main asks a loop to end a connection with conn->ctl_msg, which always comes back, so that neither
 * side ever holds the only key to memory that the other still uses.
 */
#include <limits.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <stdio.h>

#include "tgtd/iscsi/auth.h"
#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/itarget.h"
#include "tgtd/iscsi/quiet.h"

static uint16_t next_tsih = 1;
static struct {
	bool active;
	struct timer grace;
	uint16_t seconds; /* that an initiator has to log out */
	bool (*stays)(const struct iscsi_session *s); /* NULL: none does */
	void (*done)(void *arg);
	void *arg;
} stop;

static struct iscsi_session *registry_find(uint16_t tsih)
{
	struct iscsi_session *s;

	list_for_each(s, &iscsi_core.sessions, link)
		if (s->tsih == tsih)
			return s;
	return NULL;
}

/* False: another one has its TSIH. Who comes last has the highest, as a rule. */
static bool insert_session(struct iscsi_session *s)
{
	struct list *at = iscsi_core.sessions.prev;

	while (at != &iscsi_core.sessions &&
	       list_entry(at, struct iscsi_session, link)->tsih > s->tsih)
		at = at->prev;
	if (at != &iscsi_core.sessions &&
	    list_entry(at, struct iscsi_session, link)->tsih == s->tsih)
		return false;
	list_insert_after(at, &s->link);
	return true;
}

static void add_session(struct iscsi_session *s)
{
	while (!next_tsih || registry_find(next_tsih))
		next_tsih++;
	s->tsih = next_tsih++;
	if (!insert_session(s))
		BUG("two sessions have one TSIH");
}

bool iscsi_registry_adopt(struct iscsi_session *s)
{
	ASSERT_ON_MAIN();
	if (!insert_session(s))
		return false;
	iscsi_known_session(s->target, s->initiator, true);
	return iscsi_registry_event(s, SESSION_EV_LOGIN) &&
	       iscsi_registry_event(s, SESSION_EV_LOGGED_IN);
}

uint16_t iscsi_registry_next_tsih(uint16_t next)
{
	if (next)
		next_tsih = next;
	return next_tsih;
}

void iscsi_registry_add_conn(struct iscsi_session *s, struct iscsi_conn *conn)
{
	struct list *at = s->main_conns.prev;

	while (at != &s->main_conns &&
	       list_entry(at, struct iscsi_conn, main_link)->cid > conn->cid)
		at = at->prev;
	list_insert_after(at, &conn->main_link);
	conn->joined = s;
	s->nconns++;
	iscsi_core.njoined++;
	iscsi_core.ndiscovery += s->discovery;
}

static bool same_port(const struct iscsi_session *s, const struct iscsi_login *l)
{
	return s->target == l->target && !memcmp(s->isid, l->isid, sizeof(s->isid)) &&
	       s->tpgt == l->tpgt && iscsi_same_name(s->initiator, l->initiator);
}

static bool registry_same_address(const struct sockaddr_storage *a,
				  const struct sockaddr_storage *b)
{
	const struct sockaddr_in *a4 = (const struct sockaddr_in *)a;
	const struct sockaddr_in *b4 = (const struct sockaddr_in *)b;
	const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)a;
	const struct sockaddr_in6 *b6 = (const struct sockaddr_in6 *)b;

	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET6)
		return a6->sin6_port == b6->sin6_port &&
		       !memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr));
	return a4->sin_port == b4->sin_port && a4->sin_addr.s_addr == b4->sin_addr.s_addr;
}

/* 7.4.2.1: a discovery session has no target; it is its initiator port at this portal. But not one
 * that is at work: open-iscsi has one ISID for all discoveries of a host, however many run at a
 * time, and does not try again when a connection ends between login and SendTargets. */
static bool same_discovery(const struct iscsi_session *s, const struct iscsi_conn *conn)
{
	const struct iscsi_login *l = conn->login;
	const struct iscsi_conn *c;

	if (!s->discovery || list_empty(&s->main_conns))
		return false;
	c = list_first(&s->main_conns, struct iscsi_conn, main_link);
	return !memcmp(s->isid, l->isid, sizeof(s->isid)) && !strcmp(s->initiator, l->initiator) &&
	       iscsi_owner_same(s, l) && registry_same_address(&c->local, &conn->local) &&
	       !iscsi_discovery_at_work(c);
}

void iscsi_session_report(const struct iscsi_session *s, const char *address,
			  enum report_kind kind)
{
	struct report r;

	if (!reports_wanted() || !s->target)
		return; /* discovery is of no target */
	report_init(&r, kind);
	r.tid = scsi_target_tid(s->target);
	r.session = s->tsih;
	snprintf(r.initiator, sizeof(r.initiator), "%s", s->initiator);
	snprintf(r.address, sizeof(r.address), "%s", address);
	report_send(&r);
}

/* ---- a session's life as main knows it (RFC 7143 8.3) ---------------------------------------- */

/* 0: not allowed. Until Q3 no loop knows of it: nothing but its leading connection has to go. */
static const uint8_t transitions[SESSION_STATES][SESSION_EVENTS] = {
	[Q1_FREE] = { [SESSION_EV_LOGIN] = Q2_ACTIVE, [SESSION_EV_CLOSE] = Q1_FREE },
	[Q2_ACTIVE] = { [SESSION_EV_LOGGED_IN] = Q3_LOGGED_IN, [SESSION_EV_CLOSE] = Q1_FREE },
	[Q3_LOGGED_IN] = { [SESSION_EV_CLOSE] = Q4_FAILED, [SESSION_EV_CLEANED] = Q1_FREE },
	[Q4_FAILED] = { [SESSION_EV_CLOSE] = Q4_FAILED, [SESSION_EV_CLEANED] = Q1_FREE },
};

bool iscsi_registry_event(struct iscsi_session *s, enum iscsi_session_event ev)
{
	uint8_t from = s->state, to = transitions[from][ev];
	struct iscsi_conn *c, *tmp;

	ASSERT_ON_MAIN();
	if (!to) {
		log_ratelimited(LOG_LVL_WARN,
				"iscsi: session %u of %s: \"%s\" is out of place in state %s",
				s->tsih, s->initiator, iscsi_session_events[ev],
				iscsi_session_states[from]);
		list_for_each_safe(c, tmp, &s->main_conns, main_link)
			iscsi_registry_close(c, CLOSE_SILENTLY);
		return false;
	}
	if (to != from)
		log_debug("iscsi: session %u of %s: %s -> %s (%s)", s->tsih, s->initiator,
			  iscsi_session_states[from], iscsi_session_states[to],
			  iscsi_session_events[ev]);
	s->state = to;
	return true;
}

/* ---- sessions end ---------------------------------------------------------------------------- */

static bool session_stays(const struct iscsi_session *s)
{
	return stop.stays && stop.stays(s);
}

static void check_stopped(void)
{
	const struct iscsi_session *s;
	unsigned stay = 0;

	if (!stop.active)
		return;
	list_for_each(s, &iscsi_core.sessions, link) {
		if (!session_stays(s))
			return;
		stay += s->nconns;
	}
	if (iscsi_core.nconns != stay)
		return;
	stop.active = false;
	loop_timer_cancel(iscsi_core.main, &stop.grace);
	iscsi_core.started = stop.stays;
	stop.done(stop.arg);
}

static void check_session(struct iscsi_session *s)
{
	struct list waiters = LIST_INIT(waiters);

	list_splice_tail(&waiters, &s->waiters);
	if (list_empty(&s->main_conns) && s->state == Q2_ACTIVE)
		iscsi_registry_event(s, SESSION_EV_CLOSE);
	if (list_empty(&s->main_conns) && s->state == Q1_FREE && !s->asked) {
		list_del(&s->link);
		iscsi_known_session(s->target, s->initiator, false);
		iscsi_registry_session_free(s);
	}
	while (!list_empty(&waiters)) {
		struct iscsi_conn *c = list_first(&waiters, struct iscsi_conn, wait_link);

		list_del(&c->wait_link);
		c->login_wake(c);
	}
}

void iscsi_registry_answered(struct iscsi_session *s)
{
	ASSERT_ON_MAIN();
	s->asked = false;
	check_session(s);
	check_stopped();
}

static void main_session_gone(struct loop_msg *msg)
{
	struct iscsi_session *s = container_of(msg, struct iscsi_session, msg);
	struct iscsi_conn *c;

	ASSERT_ON_MAIN();
	iscsi_session_report(s, "", REPORT_LOGOUT);
	iscsi_registry_event(s, SESSION_EV_CLEANED);
	/* Connections that were about to join it. */
	list_for_each(c, &s->main_conns, main_link)
		if (!c->in_ffp)
			iscsi_conn_fail(c, "its session has ended");
	check_session(s);
	check_stopped();
}

/* ---- establishing ---------------------------------------------------------------------------- */

static void registry_wait_for(struct iscsi_session *s, struct iscsi_conn *conn)
{
	list_del(&conn->wait_link);
	list_add_tail(&s->waiters, &conn->wait_link);
}

static void drop_session(struct iscsi_session *s, enum iscsi_close_how how)
{
	struct iscsi_conn *c, *tmp;

	iscsi_registry_event(s, SESSION_EV_CLOSE);
	list_for_each_safe(c, tmp, &s->main_conns, main_link)
		iscsi_registry_close(c, how);
}

static uint16_t registry_join(struct iscsi_conn *conn, struct iscsi_login *l)
{
	struct iscsi_session *s = registry_find(l->tsih);
	struct iscsi_conn *c;

	if (!s || s->discovery || !same_port(s, l))
		return LOGIN_NO_SESSION;
	if (!iscsi_owner_same(s, l))
		return LOGIN_AUTHORIZATION_FAILURE;
	if (s->state != Q3_LOGGED_IN)
		return LOGIN_NO_SESSION;
	if (s->iser != conn->tp->iser)
		return LOGIN_CANNOT_INCLUDE;
	list_for_each(c, &s->main_conns, main_link)
		if (c->cid == l->cid) {
			/* Connection reinstatement: the old one ends first. */
			iscsi_registry_close(c, CLOSE_SILENTLY);
			registry_wait_for(s, conn);
			return LOGIN_PENDING;
		}
	if (s->nconns >= MIN(s->params.max_connections, ISCSI_MAX_CONNS))
		return LOGIN_TOO_MANY_CONNECTIONS;
	if (!iscsi_room_for_normal(l))
		return LOGIN_OUT_OF_RESOURCES;
	conn->cid = l->cid;
	iscsi_registry_add_conn(s, conn);
	return LOGIN_OK;
}

struct iscsi_session *iscsi_registry_session_new(struct scsi_target *target, int node_wish)
{
	struct scsi_home *home = target ? scsi_home_get(target, node_wish) : NULL;
	struct iscsi_session *s;

	ASSERT_ON_MAIN();
	if (posix_memalign((void **)&s, CACHE_LINE, sizeof(*s))) {
		if (home)
			scsi_home_put(home);
		return NULL;
	}
	memset(s, 0, sizeof(*s));
	iscsi_session_init(s);
	s->msg.handle = main_session_gone;
	s->home = home;
	s->loop = home ? scsi_home_loop(home) : iscsi_core.main;
	s->discovery = !target;
	s->target = target;
	if (target)
		scsi_target_hold(target); /* until check_session() frees it */
	return s;
}

void iscsi_registry_session_free(struct iscsi_session *s)
{
	ASSERT(!list_linked(&s->link) && list_empty(&s->main_conns));
	iscsi_quiet_forget(s);
	if (s->target)
		scsi_target_put(s->target);
	if (s->home)
		scsi_home_put(s->home);
	free(s);
}

uint16_t iscsi_registry_establish(struct iscsi_conn *conn)
{
	struct iscsi_login *l = conn->login;
	struct iscsi_session *s;
	struct iscsi_conn *silent = NULL;
	uint16_t status;

	ASSERT_ON_MAIN();
	ASSERT(!conn->joined);
	if (iscsi_core.stopping)
		return LOGIN_SERVICE_UNAVAILABLE;
	if (l->tsih)
		return registry_join(conn, l);
	status = iscsi_owner_check(l, &s);
	if (status == LOGIN_PENDING)
		registry_wait_for(s, conn);
	if (status)
		return status;
	list_for_each(s, &iscsi_core.sessions, link)
		if (l->discovery ? same_discovery(s, conn) : !s->discovery && same_port(s, l)) {
			log_ratelimited(LOG_LVL_INFO, "iscsi: %s reinstates session %u",
					l->initiator, s->tsih);
			drop_session(s, CLOSE_SILENTLY);
			registry_wait_for(s, conn);
			return LOGIN_PENDING;
		}
	/* Whoever reinstates a session has been here before, and takes no more room than that. */
	if (l->discovery ? !iscsi_room_for_discovery(conn, &silent) : !iscsi_room_for_normal(l))
		return LOGIN_OUT_OF_RESOURCES;
	if (silent) {
		/* It ends at the end of this iteration. */
		iscsi_registry_event(silent->joined, SESSION_EV_CLOSE);
		iscsi_conn_fail(silent, "a silent discovery session makes room for another");
	}
	s = iscsi_registry_session_new(l->target, conn->node_wish);
	if (!s)
		return LOGIN_OUT_OF_RESOURCES;
	s->iser = conn->tp->iser;
	s->window = iscsi_target_window(s->target);
	s->tpgt = l->tpgt;
	memcpy(s->isid, l->isid, sizeof(s->isid));
	snprintf(s->initiator, sizeof(s->initiator), "%s", l->initiator);
	snprintf(s->alias, sizeof(s->alias), "%s", l->initiator_alias);
	snprintf(s->user, sizeof(s->user), "%s", iscsi_auth_user(l->auth));
	s->peer = conn->peer;
	s->offer = l->offer;
	s->exp_cmd_sn = l->cmd_sn;
	s->max_cmd_sn = l->cmd_sn + s->window - 1;
	add_session(s);
	iscsi_known_session(s->target, s->initiator, true);
	iscsi_registry_event(s, SESSION_EV_LOGIN);
	l->tsih = s->tsih;
	conn->cid = l->cid;
	iscsi_registry_add_conn(s, conn);
	return LOGIN_OK;
}

/* The session that a login is about to join, once it has proven the right to. */
static const struct iscsi_session *joining(const struct iscsi_login *l)
{
	const struct iscsi_session *s = l->tsih && l->names_done ? registry_find(l->tsih) : NULL;

	return s && !s->discovery && same_port(s, l) && iscsi_auth_done(l->auth) &&
			       iscsi_owner_same(s, l) ?
		       s :
		       NULL;
}

void iscsi_registry_window(struct iscsi_conn *conn, uint32_t *exp_cmd_sn, uint32_t *max_cmd_sn)
{
	const struct iscsi_session *s = conn->joined ? conn->joined : joining(conn->login);

	if (!s && conn->login->tsih) {
		/* Of a session that it may not know: its own number, and nothing is opened by
		 * that (4.2.2.1). */
		*exp_cmd_sn = conn->login->cmd_sn;
		*max_cmd_sn = conn->login->cmd_sn - 1;
	} else if (s) {
		*exp_cmd_sn = __atomic_load_n(&s->exp_cmd_sn, __ATOMIC_RELAXED);
		*max_cmd_sn = __atomic_load_n(&s->max_cmd_sn, __ATOMIC_RELAXED);
	} else {
		*exp_cmd_sn = conn->login->cmd_sn;
		*max_cmd_sn = conn->login->cmd_sn + iscsi_target_window(conn->login->target) - 1;
	}
}

/* ---- connections end ------------------------------------------------------------------------- */

static void free_conn(struct iscsi_conn *conn)
{
	struct iscsi_session *s = conn->joined;

	ASSERT(!conn->login && !list_linked(&conn->half_open) && !list_linked(&conn->wait_link));
	free(conn->login_reply);
	iscsi_quiet_drop(conn);
	list_del(&conn->main_link);
	iscsi_core.nconns--;
	if (s) {
		s->nconns--;
		iscsi_core.njoined--;
		iscsi_core.ndiscovery -= s->discovery;
	}
	conn->tp->free(conn);
	if (s)
		check_session(s);
	check_stopped();
}

static void main_conn_gone(struct loop_msg *msg)
{
	struct iscsi_conn *conn = container_of(msg, struct iscsi_conn, msg);

	ASSERT_ON_MAIN();
	conn->gone = true;
	if (!conn->ctl_msg_busy)
		free_conn(conn);
}

void iscsi_registry_conn_gone(struct iscsi_conn *conn)
{
	conn->msg.handle = main_conn_gone;
	loop_post(iscsi_core.main, &conn->msg);
}

/* ---- main asks ------------------------------------------------------------------------------- */

static void ctl_back(struct loop_msg *msg)
{
	struct iscsi_conn *conn = container_of(msg, struct iscsi_conn, ctl_msg);

	conn->ctl_msg_busy = false;
	if (conn->gone)
		free_conn(conn);
	else if (conn->close_wanted)
		iscsi_registry_close(conn, conn->close_wanted - 1);
}

static void close_as(struct iscsi_conn *conn, enum iscsi_close_how how)
{
	if (how == CLOSE_ASK && conn->sess)
		iscsi_ask_logout(conn, stop.seconds);
	else if (how == CLOSE_CONN)
		iscsi_conn_drop(conn, ASYNC_DROP_CONNECTION, "closed by the administrator");
	else if (how == CLOSE_SESSION)
		iscsi_conn_drop(conn, ASYNC_DROP_ALL, "its session is dropped");
	else
		iscsi_conn_end(conn, false, "reinstated");
}

static void ctl_on_loop(struct loop_msg *msg)
{
	struct iscsi_conn *conn = container_of(msg, struct iscsi_conn, ctl_msg);

	ASSERT_ON_LOOP(conn->loop);
	if (!conn->failed)
		close_as(conn, conn->close_how);
	msg->handle = ctl_back;
	loop_post(iscsi_core.main, msg);
}

void iscsi_registry_close(struct iscsi_conn *conn, enum iscsi_close_how how)
{
	ASSERT_ON_MAIN();
	if (conn->gone)
		return;
	if (conn->loop == iscsi_core.main) {
		close_as(conn, how);
		return;
	}
	if (conn->ctl_msg_busy) {
		if (how != CLOSE_ASK)
			conn->close_wanted = (uint8_t)how + 1;
		return;
	}
	conn->ctl_msg_busy = true;
	conn->close_how = (uint8_t)how;
	conn->close_wanted = 0;
	conn->ctl_msg.handle = ctl_on_loop;
	loop_post(conn->loop, &conn->ctl_msg);
}

void iscsi_registry_no_logins(const struct scsi_target *target)
{
	struct iscsi_conn *c, *tmp;

	ASSERT_ON_MAIN();
	list_for_each_safe(c, tmp, &iscsi_core.half_open, half_open)
		if (c->login && c->login->target == target)
			iscsi_conn_fail(c, "its target is deleted");
}

struct drop_msg {
	struct loop_msg msg;
	const struct scsi_target *target;
	uint16_t but;
};

static void drop_others(struct loop_msg *msg)
{
	struct drop_msg *d = container_of(msg, struct drop_msg, msg);
	struct iscsi_session *s;

	/* A target that has been deleted meanwhile has no session to find. */
	list_for_each(s, &iscsi_core.sessions, link)
		if (!s->discovery && s->target == d->target && s->tsih != d->but)
			drop_session(s, CLOSE_SESSION);
	free(d);
}

void iscsi_registry_drop_others(const struct iscsi_session *s)
{
	struct drop_msg *d = malloc(sizeof(*d));

	if (!d) {
		log_error("iscsi: out of memory: a target reset does not end the other sessions");
		return;
	}
	*d = (struct drop_msg){ .msg.handle = drop_others, .target = s->target, .but = s->tsih };
	loop_post(iscsi_core.main, &d->msg);
}

static void each_conn(bool ask)
{
	struct iscsi_session *s;
	struct iscsi_conn *c, *tmp;

	list_for_each(s, &iscsi_core.sessions, link) {
		if (session_stays(s))
			continue;
		if (!ask)
			iscsi_registry_event(s, SESSION_EV_CLOSE);
		list_for_each_safe(c, tmp, &s->main_conns, main_link)
			iscsi_registry_close(c, s->discovery ? CLOSE_SILENTLY :
						ask	     ? CLOSE_ASK :
							       CLOSE_SESSION);
	}
	list_for_each_safe(c, tmp, &iscsi_core.half_open, half_open)
		iscsi_conn_end(c, false, "shutting down");
}

static void grace_over(struct timer *t)
{
	(void)t;
	each_conn(false);
}

void iscsi_registry_stop(unsigned grace_ms, bool (*stays)(const struct iscsi_session *s),
			 void (*done)(void *arg), void *arg)
{
	iscsi_core.stopping = true;
	stop.active = true;
	stop.stays = stays;
	stop.done = done;
	stop.arg = arg;
	stop.seconds = (uint16_t)MAX(grace_ms / 1000, 1u);
	timer_init(&stop.grace, grace_over);
	each_conn(grace_ms > 0);
	if (grace_ms)
		loop_timer_arm(iscsi_core.main, &stop.grace, grace_ms * NSEC_PER_MSEC);
	check_stopped();
}

/* ---- what the admin sees --------------------------------------------------------------------- */

static void tell_conn(const struct iscsi_session *s, struct iscsi_conn *c,
		      void (*fn)(const struct iscsi_conn_info *info, void *arg), void *arg)
{
	struct iscsi_conn_info info = { .tid = scsi_target_tid(s->target),
					.tsih = s->tsih,
					.cid = c->cid,
					.iser = c->tp->iser,
					.thread = loop_name(s->loop) };

	snprintf(info.initiator, sizeof(info.initiator), "%s", s->initiator);
	snprintf(info.alias, sizeof(info.alias), "%s", s->alias);
	snprintf(info.address, sizeof(info.address), "%s", c->peer_text);
	for (size_t i = 0; i < sizeof(c->stats) / sizeof(uint64_t); i++)
		((uint64_t *)&info.stats)[i] =
			__atomic_load_n((const uint64_t *)&c->stats + i, __ATOMIC_RELAXED);
	if (c->tp->describe)
		c->tp->describe(c, info.channel, sizeof(info.channel));
	fn(&info, arg);
}

uint32_t iscsi_conn_some(struct scsi_target *t, uint32_t after, unsigned max,
			 void (*fn)(const struct iscsi_conn_info *info, void *arg), void *arg)
{
	struct iscsi_session *s;
	struct iscsi_conn *c;
	uint32_t last = 0;

	ASSERT_ON_MAIN();
	list_for_each(s, &iscsi_core.sessions, link) {
		if (s->tsih <= after || s->discovery || s->state == Q1_FREE ||
		    (t && s->target != t))
			continue;
		if (!max--)
			break;
		last = s->tsih;
		list_for_each(c, &s->main_conns, main_link)
			if (c->in_ffp)
				tell_conn(s, c, fn, arg);
	}
	return last;
}

void iscsi_conn_each(struct scsi_target *t,
		     void (*fn)(const struct iscsi_conn_info *info, void *arg), void *arg)
{
	iscsi_conn_some(t, 0, UINT_MAX, fn, arg);
}

static struct iscsi_session *find_on(uint32_t tid, uint32_t tsih)
{
	struct iscsi_session *s;

	ASSERT_ON_MAIN();
	list_for_each(s, &iscsi_core.sessions, link)
		if (s->tsih == tsih && !s->discovery &&
		    (s->state == Q3_LOGGED_IN || s->state == Q4_FAILED) &&
		    scsi_target_tid(s->target) == tid)
			return s;
	return NULL;
}

int iscsi_session_each_key(uint32_t tid, uint32_t tsih,
			   void (*fn)(const char *key, const char *value, void *arg), void *arg)
{
	struct iscsi_session *s = find_on(tid, tsih);
	const char *key;
	char value[256];

	if (!s)
		return -ENOENT;
	for (unsigned i = 0; iscsi_params_get(&s->params, i, &key, value, sizeof(value)); i++)
		fn(key, value, arg);
	return 0;
}

int iscsi_conn_close(uint32_t tid, uint32_t tsih, uint16_t cid)
{
	struct iscsi_session *s = find_on(tid, tsih);
	struct iscsi_conn *c;

	if (!s)
		return -ENOENT;
	list_for_each(c, &s->main_conns, main_link)
		if (c->in_ffp && c->cid == cid) {
			iscsi_registry_close(c, CLOSE_CONN);
			return 0;
		}
	return -ENOENT;
}

struct scsi_nexus *iscsi_session_nexus(uint32_t tid, uint32_t tsih)
{
	struct iscsi_session *s = find_on(tid, tsih);

	return s ? &s->nexus : NULL;
}
