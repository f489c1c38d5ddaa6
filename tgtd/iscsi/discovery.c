/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Text requests in full feature phase (RFC 7143 11.10, 11.11): SendTargets (annex C) and
 * renegotiation. A discovery session runs on the main loop and may look at all targets and portals;
 * a normal session runs on an event thread and only speaks of its own target.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "events/bug.h"
#include "events/bytes.h"
#include "tgtd/iscsi/itarget.h"
#include "tgtd/iscsi/login.h"
#include "tgtd/iscsi/pdu.h"

void iscsi_text_init(struct iscsi_text *t)
{
	memset(t, 0, sizeof(*t));
	text_in_init(&t->in);
	text_out_init(&t->out);
	t->ttt = ISCSI_TAG_NONE;
}

void iscsi_text_fini(struct iscsi_text *t)
{
	text_in_fini(&t->in);
	text_out_fini(&t->out);
}

/* ---- SendTargets ----------------------------------------------------------------------------- */

/* The local address of the connection, as an initiator would dial it: "1.2.3.4" or "[v6]". */
static void local_ip(const struct sockaddr *local, char *out, size_t len)
{
	char ip[INET6_ADDRSTRLEN] = "";

	if (local->sa_family == AF_INET) {
		inet_ntop(AF_INET, &((const struct sockaddr_in *)local)->sin_addr, ip, sizeof(ip));
		snprintf(out, len, "%s", ip);
		return;
	}
	if (local->sa_family == AF_INET6) {
		const struct in6_addr *a6 = &((const struct sockaddr_in6 *)local)->sin6_addr;

		if (IN6_IS_ADDR_V4MAPPED(a6)) {
			inet_ntop(AF_INET, a6->s6_addr + 12, ip, sizeof(ip));
			snprintf(out, len, "%s", ip);
			return;
		}
		inet_ntop(AF_INET6, a6, ip, sizeof(ip));
	}
	snprintf(out, len, "[%s]", ip);
}

static unsigned local_port(const struct sockaddr *local)
{
	return ntohs(local->sa_family == AF_INET6 ?
			     ((const struct sockaddr_in6 *)local)->sin6_port :
			     ((const struct sockaddr_in *)local)->sin_port);
}

struct send_targets {
	const struct iscsi_text_ctx *ctx;
	struct text_out *out;
};

/* A wildcard portal is announced under the address that this initiator reached us by. */
static void add_portal(const char *text, void *arg)
{
	struct send_targets *s = arg;
	const char *rest = NULL;
	char ip[INET6_ADDRSTRLEN + 2];

	if (!strncmp(text, "0.0.0.0:", 8)) {
		/* An IPv6 initiator cannot have come through it, ... */
		local_ip(s->ctx->local, ip, sizeof(ip));
		rest = ip[0] == '[' ? NULL : text + 7;
		if (!rest)
			return;
	} else if (!strncmp(text, "[::]:", 5)) {
		/* ... nor one of IPv4 through this. */
		local_ip(s->ctx->local, ip, sizeof(ip));
		rest = ip[0] == '[' ? text + 4 : NULL;
		if (!rest)
			return;
	}
	if (rest)
		text_out_addf(s->out, "TargetAddress", "%s%s", ip, rest);
	else
		text_out_add(s->out, "TargetAddress", text);
}

static void add_target(struct send_targets *s, struct scsi_target *t)
{
	if (!iscsi_acl_allows(t, s->ctx->initiator, s->ctx->peer))
		return;
	text_out_add(s->out, "TargetName", scsi_target_name(t));
	/* Initiators that use one portal take the first. */
	iscsi_portal_each_near(scsi_target_node(t), add_portal, s);
}

/* In a normal session: this target, at the address in use. Takes nothing from the main loop. */
static void own_target(struct send_targets *s)
{
	char ip[INET6_ADDRSTRLEN + 2];

	local_ip(s->ctx->local, ip, sizeof(ip));
	text_out_add(s->out, "TargetName", scsi_target_name(s->ctx->target));
	text_out_addf(s->out, "TargetAddress", "%s:%u,%u", ip, local_port(s->ctx->local),
		      s->ctx->tpgt);
}

static int send_targets(const struct iscsi_text_ctx *ctx, const char *which, struct text_out *out)
{
	struct send_targets s = { .ctx = ctx, .out = out };

	if (!ctx->discovery) {
		/* Annex C: "All" must not be supported in a normal session,
		 * and no other target be shown. */
		if (*which && strcmp(which, scsi_target_name(ctx->target)))
			return text_out_add(out, "SendTargets", "Reject");
		own_target(&s);
		return out->error;
	}
	if (!strcmp(which, "All")) {
		for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t))
			add_target(&s, t);
	} else if (*which) {
		struct scsi_target *t = scsi_target_find_name(which);

		if (t)
			add_target(&s, t);
	} else {
		return text_out_add(out, "SendTargets", "Reject");
	}
	return out->error;
}

/* ---- one exchange ---------------------------------------------------------------------------- */

struct exchange {
	struct iscsi_text *t;
	const struct iscsi_text_ctx *ctx;
};

static int on_key(void *arg, const char *key, const char *value)
{
	struct exchange *x = arg;

	if (!strcmp(key, "SendTargets"))
		return send_targets(x->ctx, value, &x->t->out);
	return iscsi_nego_key(&x->t->nego, key, value, &x->t->out);
}

/* A TTT that is never the reserved value and differs from the last one. */
static uint32_t next_ttt(uint32_t last)
{
	return last + 1 == ISCSI_TAG_NONE ? 0 : last + 1;
}

static void respond(struct iscsi_text *t, const struct iscsi_text_ctx *ctx, const uint8_t *bhs,
		    bool waiting, uint8_t *reply, const char **out, uint32_t *out_len)
{
	bool more = false;

	*out = text_out_take(&t->out, ctx->max_data, out_len, &more);
	memset(reply, 0, 48);
	reply[0] = ISCSI_TEXT_RSP;
	memcpy(reply + 8, bhs + 8, 8); /* LUN */
	memcpy(reply + 16, bhs + 16, 4); /* ITT */
	put_be24(reply + 5, *out_len);
	if (more || waiting || !t->final_asked) {
		reply[1] = more ? BHS_TEXT_CONTINUE : 0;
		t->ttt = next_ttt(t->ttt);
		put_be32(reply + 20, t->ttt);
		t->answering = more;
		return;
	}
	reply[1] = BHS_FINAL;
	put_be32(reply + 20, ISCSI_TAG_NONE);
	t->ttt = ISCSI_TAG_NONE;
	t->answering = false;
	*ctx->params = t->params;
	/* The caller still sends from t->out; it is emptied when the next exchange begins. */
}

enum text_outcome iscsi_text_rx(struct iscsi_text *t, const struct iscsi_text_ctx *ctx,
				const uint8_t *bhs, const uint8_t *data, uint32_t len,
				uint8_t *reply_bhs, const char **out, uint32_t *out_len)
{
	struct exchange x = { .t = t, .ctx = ctx };
	uint32_t ttt = get_be32(bhs + 20), itt = get_be32(bhs + 16);
	bool final = bhs[1] & BHS_FINAL, continued = bhs[1] & BHS_TEXT_CONTINUE;
	int rc;

	if (final && continued)
		return TEXT_REJECT_PROTOCOL;
	if (ttt == ISCSI_TAG_NONE) {
		/* 11.10.4: a new exchange ends whatever was under way. */
		text_in_reset(&t->in);
		text_out_reset(&t->out);
		t->answering = false;
		t->params = *ctx->params;
		iscsi_nego_init(&t->nego, ctx->offer, &t->params, ctx->iser, ctx->discovery, true,
				true);
	} else if (t->ttt == ISCSI_TAG_NONE || ttt != t->ttt || itt != t->itt) {
		return TEXT_REJECT_INVALID_FIELD;
	}
	t->itt = itt;
	t->final_asked = final;
	if (t->answering) {
		if (len)
			return TEXT_REJECT_PROTOCOL;
		respond(t, ctx, bhs, false, reply_bhs, out, out_len);
		return TEXT_REPLY;
	}
	text_out_reset(&t->out);
	if (text_in_append(&t->in, data, len))
		return TEXT_REJECT_PROTOCOL;
	if (continued) {
		respond(t, ctx, bhs, true, reply_bhs, out, out_len);
		return TEXT_REPLY;
	}
	rc = text_in_parse(&t->in, on_key, &x);
	text_in_reset(&t->in);
	if (rc || t->out.error) {
		/* 7.12: none of it takes effect, and the next request begins anew. */
		text_out_reset(&t->out);
		t->ttt = ISCSI_TAG_NONE;
		return TEXT_REJECT_PROTOCOL;
	}
	respond(t, ctx, bhs, false, reply_bhs, out, out_len);
	return TEXT_REPLY;
}
