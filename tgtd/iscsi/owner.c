/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Whose a session is. Anybody can give any initiator name and ISID, and with them go LUN masks,
 * reservations, and the right to end the session that has them (RFC 7143 6.3.5). What is proven
 * at login is an account: it alone can say who is who. Main loop only.
 *
 * An account that is tied to the name is its owner because the administrator says so, whoever has
 * logged in under it before.
 */
#include "tgtd/iscsi/auth.h"
#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/itarget.h"

bool iscsi_owner_same(const struct iscsi_session *s, const struct iscsi_login *l)
{
	return !strcmp(s->user, iscsi_auth_user(l->auth));
}

/* Sessions that end count as well, so that nobody gets between one that is being reinstated and
 * the login that waits for it. */
static bool of_another(const struct iscsi_session *s, const struct scsi_target *t, const char *iqn,
		       const char *user)
{
	return s->target == t && !s->discovery && iscsi_same_name(s->initiator, iqn) &&
	       strcmp(s->user, user);
}

/* It ends without anybody's doing from now on: who has logged out, or hung up, may well be back
 * with another account before all of it is over. */
static bool ends(const struct iscsi_session *s)
{
	struct iscsi_conn *c;

	if (iscsi_session_leaves(s))
		return true;
	list_for_each(c, &s->main_conns, main_link)
		if (!__atomic_load_n(&c->leaving, __ATOMIC_RELAXED))
			return false;
	return true;
}

uint16_t iscsi_owner_check(const struct iscsi_login *l, struct iscsi_session **wait)
{
	const char *user = iscsi_auth_user(l->auth);
	struct iscsi_session *s;

	*wait = NULL;
	if (l->discovery || iscsi_account_tied(l->target, user, l->initiator))
		return LOGIN_OK;
	list_for_each(s, &iscsi_core.sessions, link) {
		if (!of_another(s, l->target, l->initiator, user))
			continue;
		if (!ends(s)) {
			log_ratelimited(LOG_LVL_NOTICE,
					"iscsi: %s has session %u with account '%s', not '%s'",
					l->initiator, s->tsih, s->user, user);
			return LOGIN_AUTHORIZATION_FAILURE;
		}
		*wait = s;
	}
	return *wait ? LOGIN_PENDING : LOGIN_OK;
}

bool iscsi_owner_other(const struct scsi_target *t, const char *iqn, const char *user)
{
	const struct iscsi_session *s;

	if (iscsi_account_tied(t, user, iqn))
		return false;
	list_for_each(s, &iscsi_core.sessions, link)
		if (of_another(s, t, iqn, user))
			return true;
	return false;
}
