/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The login phase. One request (possibly several PDUs with the C bit) is assembled, parsed into
 * pairs, and then worked on in an order that does not depend on the order of the keys: names first,
 * because they decide which target's rules, accounts and offer count; then the stage's own keys;
 * then the stage transition that the initiator asks for.
 */
#include <stdio.h>
#include <stdlib.h>

#include "events/bug.h"
#include "events/bytes.h"
#include "events/log.h"
#include "tgtd/iscsi/auth.h"
#include "tgtd/iscsi/itarget.h"
#include "tgtd/iscsi/login.h"
#include "tgtd/iscsi/pdu.h"

enum { STAGE_SECURITY = 0, STAGE_OPERATIONAL = 1, STAGE_RESERVED = 2, STAGE_FULL_FEATURE = 3 };

/* More round trips than any sane negotiation: a peer that never comes to an end. */
#define EXCHANGES_MAX 128

struct pair {
	const char *key, *value;
};

struct request {
	struct pair pair[TEXT_KEYS_MAX];
	unsigned n;
};

void iscsi_login_init(struct iscsi_login *l, const struct iscsi_login_ops *ops, void *conn,
		      const struct sockaddr_storage *peer, const struct sockaddr_storage *local,
		      bool iser, uint16_t tpgt)
{
	memset(l, 0, sizeof(*l));
	l->ops = ops;
	l->conn = conn;
	l->peer = *peer;
	l->local = *local;
	l->iser = iser;
	l->tpgt = tpgt;
	text_in_init(&l->in);
	text_out_init(&l->out);
	iscsi_params_init(&l->params);
}

void iscsi_login_fini(struct iscsi_login *l)
{
	text_in_fini(&l->in);
	text_out_fini(&l->out);
	iscsi_auth_destroy(l->auth);
	l->auth = NULL;
}

/* Everything of a response but its flags and data. */
static void reply_header(struct iscsi_login *l, const uint8_t *bhs, uint16_t status,
			 struct iscsi_reply *reply)
{
	uint32_t exp_cmd_sn = get_be32(bhs + BHS_CMD_SN), max_cmd_sn = exp_cmd_sn;

	/* After a failure they mean nothing, so they need not tell anything either. */
	if (l->started && !status && l->ops && l->ops->window)
		l->ops->window(l, &exp_cmd_sn, &max_cmd_sn);
	memset(reply->bhs, 0, sizeof(reply->bhs));
	reply->data_len = 0;
	reply->bhs[BHS_OPCODE] = ISCSI_LOGIN_RSP;
	memcpy(reply->bhs + BHS_ISID, bhs + BHS_ISID, BHS_ISID_LEN);
	put_be16(reply->bhs + BHS_TSIH, l->tsih ? l->tsih : get_be16(bhs + BHS_TSIH));
	memcpy(reply->bhs + BHS_ITT, bhs + BHS_ITT, 4);
	put_be32(reply->bhs + BHS_STAT_SN, l->stat_sn++);
	put_be32(reply->bhs + BHS_EXP_CMD_SN, exp_cmd_sn);
	put_be32(reply->bhs + BHS_MAX_CMD_SN, max_cmd_sn);
	put_be16(reply->bhs + BHS_LOGIN_STATUS, status);
	l->status = status;
}

static void reply_data(struct iscsi_reply *reply, const char *data, uint32_t len)
{
	ASSERT(len <= LOGIN_REPLY_MAX);
	if (len)
		memcpy(reply->data, data, len);
	memset(reply->data + len, 0, 4);
	reply->data_len = len;
	put_be24(reply->bhs + BHS_DATA_LEN, len);
}

/* RFC 7143 11.13.5: after a failure the other fields mean nothing, except for a redirection, which
 * carries its TargetAddress. */
void iscsi_login_refuse(struct iscsi_login *l, const uint8_t *bhs, enum iscsi_login_status status,
			struct iscsi_reply *reply)
{
	reply_header(l, bhs, status, reply);
	reply->bhs[BHS_FLAGS] = bhs[BHS_FLAGS] & BHS_LOGIN_CSG;
	if (status >> 8 == 1)
		reply_data(reply, l->out.buf, MIN(l->out.len, (uint32_t)LOGIN_REPLY_MAX));
}

static enum login_outcome login_refuse(struct iscsi_login *l, const uint8_t *bhs, uint16_t status,
				       struct iscsi_reply *reply, const char *why)
{
	log_ratelimited(LOG_LVL_NOTICE, "login of %s to %s refused with %04x: %s",
			l->initiator[0] ? l->initiator : "?",
			l->target_name[0] ? l->target_name :
			l->discovery	  ? "discovery" :
					    "?",
			status, why);
	snprintf(l->why, sizeof(l->why), "%s", why);
	iscsi_login_refuse(l, bhs, status, reply);
	return LOGIN_FAILED;
}

/* ---- checks of the header -------------------------------------------------------------------- */

static uint8_t stage_of(const uint8_t *bhs)
{
	return (bhs[BHS_FLAGS] & BHS_LOGIN_CSG) >> BHS_LOGIN_CSG_SHIFT;
}

/* 0 or a login status. */
static uint16_t check_header(struct iscsi_login *l, const uint8_t *bhs, const char **why)
{
	uint8_t flags = bhs[BHS_FLAGS];
	unsigned csg = stage_of(bhs), nsg = flags & BHS_LOGIN_NSG;

	*why = "malformed Login Request";
	if (bhs[BHS_VERSION_MIN] > 0) {
		*why = "no common protocol version";
		return LOGIN_UNSUPPORTED_VERSION;
	}
	if (csg != STAGE_SECURITY && csg != STAGE_OPERATIONAL)
		return LOGIN_INITIATOR_ERROR;
	if ((flags & BHS_LOGIN_TRANSIT) &&
	    ((flags & BHS_LOGIN_CONTINUE) || nsg <= csg || nsg == STAGE_RESERVED))
		return LOGIN_INITIATOR_ERROR;
	if (!l->started)
		return 0;
	*why = "identifiers or stage changed in the middle of a login";
	if (memcmp(l->isid, bhs + BHS_ISID, BHS_ISID_LEN) || l->itt != get_be32(bhs + BHS_ITT) ||
	    l->cid != get_be16(bhs + BHS_CID) || csg != l->stage)
		return LOGIN_INITIATOR_ERROR;
	*why = "login does not come to an end";
	return ++l->exchanges > EXCHANGES_MAX ? LOGIN_INITIATOR_ERROR : 0;
}

static void first_request(struct iscsi_login *l, const uint8_t *bhs)
{
	memcpy(l->isid, bhs + BHS_ISID, BHS_ISID_LEN);
	l->tsih = get_be16(bhs + BHS_TSIH);
	l->itt = get_be32(bhs + BHS_ITT);
	l->cid = get_be16(bhs + BHS_CID);
	l->cmd_sn = get_be32(bhs + BHS_CMD_SN);
	l->stage = stage_of(bhs);
	/* Any start will do; the initiator takes it from our first response. */
	l->stat_sn = get_be32(bhs + BHS_EXP_STAT_SN);
	l->started = true;
}

/* ---- names ----------------------------------------------------------------------------------- */

static const char *login_find(const struct request *r, const char *key)
{
	for (unsigned i = 0; i < r->n; i++)
		if (!strcmp(r->pair[i].key, key))
			return r->pair[i].value;
	return NULL;
}

/* RFC 7143 4.2.7.2: letters, digits, dash, dot, colon, and what stringprep leaves of other scripts
 * (bytes above 7Fh). Not refused is what else some initiators put in, but nothing that could be
 * more than one word of one line, where names are shown and written down. */
static bool copy_name(char *out, size_t size, const char *value)
{
	if (!*value || strlen(value) >= size)
		return false;
	for (const char *p = value; *p; p++)
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			return false;
	strcpy(out, value);
	return true;
}

static uint16_t redirect(struct iscsi_login *l, const struct itarget *it)
{
	const char *port = it->redirect_port[0] ? it->redirect_port : "3260";
	bool v6 = strchr(it->redirect_address, ':') && it->redirect_address[0] != '[';

	text_out_reset(&l->out);
	text_out_addf(&l->out, "TargetAddress", v6 ? "[%s]:%s" : "%s:%s", it->redirect_address,
		      port);
	return it->redirect_permanent ? LOGIN_MOVED_PERMANENTLY : LOGIN_MOVED_TEMPORARILY;
}

/* Who, to what: RFC 7143 6.3 wants all of it in the first request. 0 or a login status. */
static uint16_t resolve_names(struct iscsi_login *l, const struct request *r, const char **why)
{
	const char *initiator = login_find(r, "InitiatorName"),
		   *target = login_find(r, "TargetName");
	const char *type = login_find(r, "SessionType"), *alias = login_find(r, "InitiatorAlias");
	struct itarget *it;

	*why = "InitiatorName is missing";
	if (!initiator)
		return LOGIN_MISSING_PARAMETER;
	/* A comma ends it in the name of the port, which is who it is to reservations. */
	*why = "InitiatorName is empty, too long or has a comma";
	if (!copy_name(l->initiator, sizeof(l->initiator), initiator) || strchr(initiator, ','))
		return LOGIN_INITIATOR_ERROR;
	if (alias && strlen(alias) < sizeof(l->initiator_alias)) {
		strcpy(l->initiator_alias, alias);
		/* It is for people to read, on one line. */
		for (char *p = l->initiator_alias; *p; p++)
			if ((unsigned char)*p < ' ' || *p == 0x7f)
				*p = '?';
	}
	if (type && !strcmp(type, "Discovery")) {
		l->discovery = true;
		*why = "a discovery session has one connection";
		return l->tsih ? LOGIN_INITIATOR_ERROR : 0;
	}
	*why = "unknown SessionType";
	if (type && strcmp(type, "Normal"))
		return LOGIN_SESSION_TYPE_UNSUPPORTED;
	*why = "TargetName is missing";
	if (!target)
		return LOGIN_MISSING_PARAMETER;
	*why = "no such target";
	if (!copy_name(l->target_name, sizeof(l->target_name), target))
		return LOGIN_NOT_FOUND;
	l->target = scsi_target_find_name(target);
	it = l->target ? itarget_find(l->target) : NULL;
	if (!it)
		return LOGIN_NOT_FOUND;
	*why = "the target is not bound to this portal";
	if (!iscsi_target_is_at(l->target, (const struct sockaddr *)&l->local))
		return LOGIN_NOT_FOUND;
	*why = "no access rule lets it in";
	if (!iscsi_acl_allows(l->target, l->initiator, (const struct sockaddr *)&l->peer))
		return LOGIN_AUTHORIZATION_FAILURE;
	*why = "target is redirected";
	if (it->redirect_address[0])
		return redirect(l, it);
	*why = "target is offline";
	if (scsi_target_offline(l->target))
		return LOGIN_SERVICE_UNAVAILABLE;
	return 0;
}

static uint16_t login_begin(struct iscsi_login *l, const struct request *r, const char **why)
{
	uint16_t status = resolve_names(l, r, why);

	if (status)
		return status;
	l->names_done = true;
	iscsi_target_offer(l->target, &l->offer);
	iscsi_nego_init(&l->nego, &l->offer, &l->params, l->iser, l->discovery, l->tsih == 0,
			false);
	l->nego.limits = l->limits;
	l->auth = iscsi_auth_create(l->target);
	*why = "out of memory";
	if (!l->auth)
		return LOGIN_OUT_OF_RESOURCES;
	l->auth_required = iscsi_auth_required(l->auth);
	*why = "the initiator skips the authentication that is demanded";
	if (l->auth_required && l->stage != STAGE_SECURITY)
		return LOGIN_AUTH_FAILURE;
	/* 13.9: with the first response to a login of a normal session. */
	if (!l->discovery)
		text_out_addf(&l->out, "TargetPortalGroupTag", "%u", l->tpgt);
	return 0;
}

/* ---- one request ----------------------------------------------------------------------------- */

static int login_collect(void *arg, const char *key, const char *value)
{
	struct request *r = arg;

	r->pair[r->n].key = key;
	r->pair[r->n++].value = value;
	return 0;
}

static bool is_name_key(const char *key)
{
	return !strcmp(key, "InitiatorName") || !strcmp(key, "TargetName") ||
	       !strcmp(key, "SessionType") || !strcmp(key, "InitiatorAlias");
}

static uint16_t one_key(struct iscsi_login *l, const char *key, const char *value, bool first,
			const char **why)
{
	int rc;

	if (is_name_key(key)) {
		*why = "a name key after the first request";
		return first || !strcmp(key, "InitiatorAlias") ? 0 : LOGIN_INITIATOR_ERROR;
	}
	if (iscsi_auth_key(l->auth, key, value)) {
		*why = "security key outside of the security stage";
		return l->stage == STAGE_SECURITY ? 0 : LOGIN_INITIATOR_ERROR;
	}
	*why = "operational key in the security stage";
	if (l->stage == STAGE_SECURITY && iscsi_key_find(key) != KEY_UNKNOWN)
		return LOGIN_INITIATOR_ERROR;
	*why = "key negotiated twice, or too long, or not one of what was offered";
	rc = iscsi_nego_key(&l->nego, key, value, &l->out);
	if (rc == -EPROTO)
		return LOGIN_INITIATOR_ERROR;
	*why = "negotiation grew beyond its limits";
	return rc ? LOGIN_OUT_OF_RESOURCES : 0;
}

/* The security keys of a request. 0 or a login status; LOGIN_PENDING: the same again, later. */
static uint16_t authenticate(struct iscsi_login *l)
{
	const char *tried = l->ops && l->ops->may_try ? iscsi_auth_tries(l->auth) : NULL;
	char user[TEXT_VALUE_MAX + 1];
	uint16_t status;

	if (!tried)
		return iscsi_auth_step(l->auth, &l->out);
	snprintf(user, sizeof(user), "%s", tried);
	status = l->ops->may_try(l, user);
	if (status)
		return status;
	status = iscsi_auth_step(l->auth, &l->out);
	if (status == LOGIN_AUTH_FAILURE)
		l->ops->try_failed(l, user);
	return status;
}

/* The keys of the stage. 0 or a login status. FirstBurstLength depends on MaxBurstLength (RFC 7143
 * 13.14), wherever in the request that is: it comes last. */
static uint16_t stage_keys(struct iscsi_login *l, const struct request *r, bool first,
			   const char **why)
{
	for (int last = 0; last <= 1; last++)
		for (unsigned i = 0; i < r->n; i++) {
			const char *key = r->pair[i].key;
			uint16_t status;

			if ((strcmp(key, "FirstBurstLength") == 0) != last)
				continue;
			status = one_key(l, key, r->pair[i].value, first, why);
			if (status)
				return status;
		}
	*why = "authentication failed";
	return l->stage == STAGE_SECURITY ? authenticate(l) : 0;
}

/* What we have to say at the end of a request of the operational stage. A stage in which we ask for
 * something does not end before it is answered (6.3). 0 or a login status. */
static uint16_t our_keys(struct iscsi_login *l, const char **why)
{
	bool ends = l->pending_transit & BHS_LOGIN_TRANSIT;
	int n = 0;

	*why = "answer too long";
	if (iscsi_nego_declare(&l->nego, &l->out))
		return LOGIN_OUT_OF_RESOURCES;
	if (ends)
		n = iscsi_nego_offer(&l->nego, &l->out);
	if (n < 0)
		return LOGIN_OUT_OF_RESOURCES;
	if (n)
		l->pending_transit = 0;
	return 0;
}

/* The last checks before the session: it takes its time to log in, and who is shut out meanwhile is
 * out. 0 or a login status. */
static uint16_t may_enter(struct iscsi_login *l, const char **why)
{
	*why = "a digest that the target demands was not agreed on";
	if (iscsi_nego_unmet(&l->nego))
		return LOGIN_INITIATOR_ERROR;
	*why = "no access rule lets it in any more";
	if (!l->discovery &&
	    !iscsi_acl_allows(l->target, l->initiator, (const struct sockaddr *)&l->peer))
		return LOGIN_AUTHORIZATION_FAILURE;
	*why = "its account is not one for this initiator name";
	if (!l->discovery &&
	    !iscsi_account_may_use(l->target, iscsi_auth_user(l->auth), l->initiator))
		return LOGIN_AUTHORIZATION_FAILURE;
	*why = "accounts have changed since it began";
	if (!iscsi_auth_holds(l->auth, l->target))
		return LOGIN_AUTH_FAILURE;
	return 0;
}

/* Sends what is collected; makes the stage transition when the last piece leaves. */
static enum login_outcome login_respond(struct iscsi_login *l, const uint8_t *bhs,
					struct iscsi_reply *reply)
{
	bool transit = l->pending_transit & BHS_LOGIN_TRANSIT, more;
	unsigned nsg = l->pending_transit & BHS_LOGIN_NSG;
	uint8_t flags = (uint8_t)(l->stage << BHS_LOGIN_CSG_SHIFT);
	const char *data;
	uint32_t len;

	if (l->stage == STAGE_SECURITY && !iscsi_auth_done(l->auth))
		transit = false;
	/* The transition waits for the last PDU of the answer. */
	if (l->out.len - l->out.sent > LOGIN_REPLY_MAX)
		transit = false;
	if (transit && nsg == STAGE_FULL_FEATURE) {
		const char *why = NULL;
		uint16_t status = may_enter(l, &why);

		if (status)
			return login_refuse(l, bhs, status, reply, why);
		l->params.first_burst = MIN(l->params.first_burst, l->params.max_burst);
		status = l->ops->establish(l);
		if (status == LOGIN_PENDING) {
			memcpy(l->waiting_bhs, bhs, sizeof(l->waiting_bhs));
			return LOGIN_WAIT;
		}
		if (status != LOGIN_OK)
			return login_refuse(l, bhs, status, reply,
					    "the session cannot be established");
	}
	reply_header(l, bhs, LOGIN_OK, reply);
	data = text_out_take(&l->out, LOGIN_REPLY_MAX, &len, &more);
	reply_data(reply, data, len);
	if (more)
		flags |= BHS_LOGIN_CONTINUE;
	else
		text_out_reset(&l->out);
	if (transit) {
		flags |= (uint8_t)(BHS_LOGIN_TRANSIT | nsg);
		l->stage = (uint8_t)nsg;
	}
	reply->bhs[BHS_FLAGS] = flags;
	if (l->stage != STAGE_FULL_FEATURE)
		return LOGIN_CONTINUE;
	/* Digests, and everything else, count from the next PDU on. */
	return LOGIN_DONE;
}

enum login_outcome iscsi_login_rx(struct iscsi_login *l, const uint8_t *bhs, const uint8_t *data,
				  uint32_t len, struct iscsi_reply *reply)
{
	struct request r = { .n = 0 };
	const char *why;
	uint16_t status;
	bool first;

	if (bhs_opcode(bhs) != ISCSI_LOGIN_REQ) {
		if (!l->started)
			return LOGIN_DROP;
		return login_refuse(l, bhs, LOGIN_INVALID_DURING_LOGIN, reply,
				    "not a Login Request");
	}
	status = check_header(l, bhs, &why);
	if (status)
		return login_refuse(l, bhs, status, reply, why);
	if (!l->started)
		first_request(l, bhs);
	if (text_in_append(&l->in, data, len))
		return login_refuse(l, bhs, LOGIN_OUT_OF_RESOURCES, reply, "request too long");
	if (bhs[BHS_FLAGS] & BHS_LOGIN_CONTINUE) {
		reply_header(l, bhs, LOGIN_OK, reply);
		reply->bhs[BHS_FLAGS] = (uint8_t)(l->stage << BHS_LOGIN_CSG_SHIFT);
		return LOGIN_CONTINUE;
	}
	if (l->out.sent < l->out.len && l->out.sent) {
		/* We are in the middle of a long answer: the initiator asks for the next piece. */
		if (l->in.len)
			return login_refuse(l, bhs, LOGIN_INITIATOR_ERROR, reply,
					    "new keys before the end of an answer");
		return login_respond(l, bhs, reply);
	}
	if (text_in_parse(&l->in, login_collect, &r))
		return login_refuse(l, bhs, LOGIN_INITIATOR_ERROR, reply, "malformed text");
	first = !l->names_done;
	status = first ? login_begin(l, &r, &why) : 0;
	if (!status)
		status = stage_keys(l, &r, first, &why);
	text_in_reset(&l->in);
	l->pending_transit = bhs[BHS_FLAGS] & (BHS_LOGIN_TRANSIT | BHS_LOGIN_NSG);
	if (status == LOGIN_PENDING) {
		memcpy(l->waiting_bhs, bhs, sizeof(l->waiting_bhs));
		l->try_waits = true;
		return LOGIN_WAIT;
	}
	if (!status && l->stage == STAGE_OPERATIONAL)
		status = our_keys(l, &why);
	if (status)
		return login_refuse(l, bhs, status, reply, why);
	return login_respond(l, bhs, reply);
}

/* Nothing was taken from the answer yet when it had to wait: the same step again. */
enum login_outcome iscsi_login_resume(struct iscsi_login *l, struct iscsi_reply *reply)
{
	uint16_t status = l->try_waits ? authenticate(l) : 0;

	if (status == LOGIN_PENDING)
		return LOGIN_WAIT;
	l->try_waits = false;
	if (status)
		return login_refuse(l, l->waiting_bhs, status, reply, "authentication failed");
	return login_respond(l, l->waiting_bhs, reply);
}
