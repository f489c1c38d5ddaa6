/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Text requests in full feature phase (RFC 7143 11.10, 11.11): SendTargets (annex C) and
 * renegotiation. A discovery session runs on the main loop and may look at all targets and portals;
 * a normal session runs on an event thread and only speaks of its own target.
 */
#include <netinet/in.h>

#include "events/bug.h"
#include "events/bytes.h"
#include "tgtd/iscsi/listing.h"
#include "tgtd/iscsi/login.h"
#include "tgtd/iscsi/pdu.h"

void iscsi_text_init(struct iscsi_text *t)
{
	memset(t, 0, sizeof(*t));
	text_in_init(&t->in);
	text_out_init(&t->out);
	listing_cursor_init(&t->list);
	t->ttt = ISCSI_TAG_NONE;
}

void iscsi_text_fini(struct iscsi_text *t)
{
	text_in_fini(&t->in);
	text_out_fini(&t->out);
	listing_close(&t->list);
}

/* ---- SendTargets ----------------------------------------------------------------------------- */

/* In a normal session: this target, at the address in use. Takes nothing from the main loop. */
static int own_target(const struct iscsi_text_ctx *ctx, struct text_out *out)
{
	const struct sockaddr *local = ctx->local;
	unsigned port = ntohs(local->sa_family == AF_INET6 ?
				      ((const struct sockaddr_in6 *)local)->sin6_port :
				      ((const struct sockaddr_in *)local)->sin_port);
	char ip[INET6_ADDRSTRLEN + 2];

	listing_address(local, ip, sizeof(ip));
	text_out_add(out, "TargetName", scsi_target_name(ctx->target));
	return text_out_addf(out, "TargetAddress", "%s:%u,%u", ip, port, ctx->tpgt);
}

static int send_targets(struct iscsi_text *t, const struct iscsi_text_ctx *ctx, const char *which)
{
	if (!ctx->discovery) {
		/* Annex C: "All" must not be supported in a normal session,
		 * and no other target be shown. */
		if (*which && strcmp(which, scsi_target_name(ctx->target)))
			return text_out_add(&t->out, "SendTargets", "Reject");
		return own_target(ctx, &t->out);
	}
	if (!*which)
		return text_out_add(&t->out, "SendTargets", "Reject");
	/* The text follows a PDU at a time, behind the answers to other keys. */
	return listing_open(&t->list, strcmp(which, "All") ? which : NULL);
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
		return send_targets(x->t, x->ctx, value);
	return iscsi_nego_key(&x->t->nego, key, value, &x->t->out);
}

/* A TTT that is never the reserved value and differs from the last one. */
static uint32_t next_ttt(uint32_t last)
{
	return last + 1 == ISCSI_TAG_NONE ? 0 : last + 1;
}

static void discovery_respond(struct iscsi_text *t, const struct iscsi_text_ctx *ctx,
			      const uint8_t *bhs, bool waiting, uint8_t *reply, const char **out,
			      uint32_t *out_len)
{
	bool more = false;

	*out = text_out_take(&t->out, ctx->max_data, out_len, &more);
	more |= t->list.of != NULL;
	memset(reply, 0, ISCSI_BHS_LEN);
	reply[BHS_OPCODE] = ISCSI_TEXT_RSP;
	memcpy(reply + BHS_LUN, bhs + BHS_LUN, 8);
	memcpy(reply + BHS_ITT, bhs + BHS_ITT, 4);
	put_be24(reply + BHS_DATA_LEN, *out_len);
	if (more || waiting || !t->final_asked) {
		reply[BHS_FLAGS] = more ? BHS_TEXT_CONTINUE : 0;
		t->ttt = next_ttt(t->ttt);
		put_be32(reply + BHS_TTT, t->ttt);
		t->answering = more;
		return;
	}
	reply[BHS_FLAGS] = BHS_FINAL;
	put_be32(reply + BHS_TTT, ISCSI_TAG_NONE);
	t->ttt = ISCSI_TAG_NONE;
	t->answering = false;
	*ctx->params = t->params;
	/* The caller still sends from t->out; it is emptied when the next exchange begins. */
}

/* None of it takes effect, and the next request begins anew (7.12). */
static enum text_outcome discovery_fail(struct iscsi_text *t, enum text_outcome outcome)
{
	text_out_reset(&t->out);
	listing_close(&t->list);
	t->answering = false;
	t->ttt = ISCSI_TAG_NONE;
	return outcome;
}

enum text_outcome iscsi_text_resume(struct iscsi_text *t, const struct iscsi_text_ctx *ctx,
				    const uint8_t *bhs, uint8_t *reply_bhs, const char **out,
				    uint32_t *out_len)
{
	struct listing_view view = { ctx->initiator, ctx->peer, ctx->local };

	/* Too much has changed since the beginning: it may ask anew. */
	if (t->list.lost)
		return discovery_fail(t, TEXT_REJECT_RESOURCES);
	/* Only where there is a listing, and not before what was collected fits into a PDU. */
	if (t->list.of && t->out.len - t->out.sent < ctx->max_data) {
		switch (listing_fill(&t->list, &view, &t->out, ctx->max_data, ctx->budget)) {
		case LISTING_STEP:
			return TEXT_NOT_YET;
		case LISTING_NOMEM:
			return discovery_fail(t, TEXT_REJECT_RESOURCES);
		case LISTING_FULL:
		case LISTING_OVER:
			break;
		}
	}
	discovery_respond(t, ctx, bhs, false, reply_bhs, out, out_len);
	return TEXT_REPLY;
}

/* The initiator asks for more of the answer. */
static enum text_outcome discovery_go_on(struct iscsi_text *t, const struct iscsi_text_ctx *ctx,
					 const uint8_t *bhs, uint8_t *reply_bhs, const char **out,
					 uint32_t *out_len)
{
	if (t->out.sent == t->out.len)
		text_out_reset(&t->out);
	return iscsi_text_resume(t, ctx, bhs, reply_bhs, out, out_len);
}

enum text_outcome iscsi_text_rx(struct iscsi_text *t, const struct iscsi_text_ctx *ctx,
				const uint8_t *bhs, const uint8_t *data, uint32_t len,
				uint8_t *reply_bhs, const char **out, uint32_t *out_len)
{
	struct exchange x = { .t = t, .ctx = ctx };
	uint32_t ttt = get_be32(bhs + BHS_TTT), itt = get_be32(bhs + BHS_ITT);
	bool final = bhs[BHS_FLAGS] & BHS_FINAL, continued = bhs[BHS_FLAGS] & BHS_TEXT_CONTINUE;
	int rc;

	if (final && continued)
		return TEXT_REJECT_PROTOCOL;
	if (ttt == ISCSI_TAG_NONE) {
		/* 11.10.4: a new exchange ends whatever was under way. */
		text_in_reset(&t->in);
		text_out_reset(&t->out);
		listing_close(&t->list);
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
		return discovery_go_on(t, ctx, bhs, reply_bhs, out, out_len);
	}
	text_out_reset(&t->out);
	if (text_in_append(&t->in, data, len))
		return TEXT_REJECT_PROTOCOL;
	if (continued) {
		discovery_respond(t, ctx, bhs, true, reply_bhs, out, out_len);
		return TEXT_REPLY;
	}
	rc = text_in_parse(&t->in, on_key, &x);
	text_in_reset(&t->in);
	if (rc || t->out.error)
		return discovery_fail(t,
				      rc == -ENOMEM ? TEXT_REJECT_RESOURCES : TEXT_REJECT_PROTOCOL);
	return iscsi_text_resume(t, ctx, bhs, reply_bhs, out, out_len);
}
