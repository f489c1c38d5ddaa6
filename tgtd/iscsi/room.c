/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Room for those who come: nobody who has shown nothing yet may take it from those who have.
 *
 *   normal sessions     max_connections, theirs alone; of these one for each initiator that is
 *                       known by its name and has no session, half of them at most
 *   discovery sessions  max_discovery, half of it from one address. Beyond that the one that has
 *                       been silent longest makes room, of the same address where that has its
 *                       share; one that is at work does not
 *   logins              max_half_open. Beyond that the oldest login makes room, of the address that
 *                       has most of them
 *   refused ones        half of max_half_open may linger, so that they read why; more do not
 */
#include <netinet/in.h>

#include "tgtd/iscsi/core.h"

/* ---- logins ---------------------------------------------------------------------------------- */

/* Logins take milliseconds: of many at once, the oldest is the least likely to become one. So a
 * flood of connections that say nothing cannot keep others out. */
static bool drop_oldest_login(void)
{
	unsigned most = 0;
	struct iscsi_conn *c;

	if (iscsi_core.nhalf_open >= 2 * iscsi_core.conf.max_half_open)
		return false; /* those dropped have not gone yet */
	for (unsigned i = 1; i < ISCSI_ADDRESS_BUCKETS; i++)
		if (iscsi_core.half_open_from[i] > iscsi_core.half_open_from[most])
			most = i;
	for (unsigned pass = 0; pass < 2; pass++)
		list_for_each(c, &iscsi_core.half_open, half_open)
			if (!c->failed && !c->login_waiting && !c->login_over &&
			    (pass || c->peer_bucket == most)) {
				iscsi_conn_fail(c, "dropped to make room for another login");
				return true;
			}
	return false;
}

bool iscsi_conn_admit(const struct sockaddr *peer)
{
	const struct iscsi_conf *conf = &iscsi_core.conf;
	const char *why = NULL;

	(void)peer;
	if (iscsi_core.stopping)
		why = "shutting down";
	else if (iscsi_core.nconns >=
		 conf->max_connections + conf->max_discovery + conf->max_half_open)
		why = "too many connections";
	else if (iscsi_core.nconns - iscsi_core.njoined >= conf->max_half_open &&
		 !drop_oldest_login())
		why = "too many logins at once";
	if (why) {
		metric_inc(M_iscsi_conns_refused);
		log_ratelimited(LOG_LVL_WARN, "iscsi: a connection is refused: %s", why);
	}
	return !why;
}

bool iscsi_room_to_linger(void)
{
	unsigned waiting = iscsi_core.nhalf_open + iscsi_core.njoined;

	return iscsi_core.nconns < waiting + iscsi_core.conf.max_half_open / 2;
}

/* ---- sessions -------------------------------------------------------------------------------- */

static bool same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	const struct sockaddr_in *a4 = (const struct sockaddr_in *)a;
	const struct sockaddr_in *b4 = (const struct sockaddr_in *)b;
	const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)a;
	const struct sockaddr_in6 *b6 = (const struct sockaddr_in6 *)b;

	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET6)
		return !memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr));
	return a4->sin_addr.s_addr == b4->sin_addr.s_addr;
}

bool iscsi_discovery_at_work(const struct iscsi_conn *conn)
{
	return !conn->in_ffp || iscsi_text_busy(conn) ||
	       loop_now(iscsi_core.main) - conn->last_request_ns < DISCOVERY_AT_WORK_NS;
}

bool iscsi_room_for_normal(const struct iscsi_login *l)
{
	unsigned used = iscsi_core.njoined - iscsi_core.ndiscovery;
	unsigned max = iscsi_core.conf.max_connections;
	unsigned kept = MIN(iscsi_core.nabsent, max / 2);

	if (used >= max)
		return false;
	return max - used > kept || (!l->tsih && iscsi_known_absent(l->target, l->initiator));
}

bool iscsi_room_for_discovery(const struct iscsi_conn *conn, struct iscsi_conn **out)
{
	unsigned max = iscsi_core.conf.max_discovery, share = MAX(max / 2, MIN(max, 8u));
	unsigned n = 0, nsame = 0;
	struct iscsi_conn *silent = NULL, *same = NULL; /* the longest, of all and of this host */
	struct iscsi_session *s;

	ASSERT_ON_MAIN();
	*out = NULL;
	list_for_each(s, &iscsi_core.sessions, link) {
		struct iscsi_conn *c;
		bool here;

		if (!s->discovery || iscsi_session_leaves(s) || list_empty(&s->main_conns))
			continue;
		c = list_first(&s->main_conns, struct iscsi_conn, main_link);
		here = same_host(&c->peer, &conn->peer);
		n++;
		nsame += here;
		if (c->failed || iscsi_discovery_at_work(c))
			continue;
		if (!silent || c->last_request_ns < silent->last_request_ns)
			silent = c;
		if (here && (!same || c->last_request_ns < same->last_request_ns))
			same = c;
	}
	if (n < max && nsame < share)
		return true;
	if (nsame >= share)
		silent = same;
	*out = silent;
	return silent != NULL;
}
