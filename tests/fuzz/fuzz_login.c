/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Login and text requests. The input is a sequence of PDUs: one byte of flags, one byte that picks
 * the header's oddities, two bytes of length, then that many bytes of text. What must hold: no
 * crash, no leak, every reply within its limits, full feature phase only for who knows the secret
 * and agrees to the digests that are demanded.
 */
#include <netinet/in.h>
#include <stdlib.h>

#include "events/bug.h"
#include "events/bytes.h"
#include "events/log.h"
#include "tgtd/iscsi/login.h"
#include "tgtd/scsi/commands/init.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct scsi_target *open_target, *locked_target, *digest_target;

static uint16_t establish(struct iscsi_login *l)
{
	/* The accounts' secret is not in any input. */
	BUG_ON(l->target == locked_target);
	/* W11: without digests nobody gets in where they are demanded. */
	BUG_ON(l->target == digest_target && !l->iser &&
	       !(l->params.header_digest && l->params.data_digest));
	l->tsih = 1;
	return LOGIN_OK;
}

static const struct iscsi_login_ops ops = { .establish = establish };

static struct scsi_target *make(uint32_t tid, const char *name)
{
	struct scsi_target *t = scsi_target_create(tid, name);

	BUG_ON(!t || iscsi_target_add(t) || iscsi_acl_add(t, ISCSI_ACL_ADDRESS, "ALL"));
	return t;
}

static void once(void)
{
	log_set_level(LOG_LVL_ERROR);
	scsi_commands_init();
	open_target = make(1, "iqn.a:o");
	locked_target = make(2, "iqn.a:l");
	digest_target = make(3, "iqn.a:d");
	BUG_ON(iscsi_target_set(digest_target, "HeaderDigest", "CRC32C") ||
	       iscsi_target_set(digest_target, "DataDigest", "CRC32C"));
	BUG_ON(iscsi_account_new("u", "a-secret-that-nobody-guesses-0912834") ||
	       iscsi_account_bind(locked_target, "u", false));
	BUG_ON(iscsi_account_new("o", "another-secret-5820394") ||
	       iscsi_account_bind(locked_target, "o", true));
}

/* Takes the next PDU off the input; false at its end. */
static bool next(const uint8_t **data, size_t *size, uint8_t *flags, uint8_t *odd,
		 const uint8_t **text, uint32_t *len)
{
	if (*size < 4)
		return false;
	*flags = (*data)[0];
	*odd = (*data)[1];
	*len = get_be16(*data + 2);
	*text = *data + 4;
	*len = MIN(*len, (uint32_t)(*size - 4));
	*data += 4 + *len;
	*size -= 4 + *len;
	return true;
}

static void texts(const uint8_t *data, size_t size, const struct iscsi_login *l)
{
	struct sockaddr_in local = { .sin_family = AF_INET };
	struct iscsi_params params = l->params;
	struct iscsi_offer offer = l->offer;
	struct iscsi_text_ctx ctx = { .discovery = l->discovery,
				      .target = l->target,
				      .initiator = l->initiator,
				      .peer = (struct sockaddr *)&local,
				      .local = (struct sockaddr *)&local,
				      .params = &params,
				      .offer = &offer,
				      .max_data = 512 };
	uint8_t bhs[48] = { 0x04 }, reply[48], flags, odd;
	enum text_outcome rc;
	int budget;
	const uint8_t *text;
	const char *out;
	uint32_t len, out_len;
	struct iscsi_text t;

	iscsi_text_init(&t);
	while (next(&data, &size, &flags, &odd, &text, &len)) {
		bhs[1] = flags;
		put_be32(bhs + 20, odd & 1 ? t.ttt : 0xffffffffu);
		/* SendTargets in steps, and in small PDUs; targets may come between them. */
		budget = odd & 2 ? 1 : 1000;
		ctx.budget = &budget;
		ctx.max_data = odd & 4 ? 5 : 512;
		rc = iscsi_text_rx(&t, &ctx, bhs, text, len, reply, &out, &out_len);
		while (rc == TEXT_NOT_YET) {
			budget = 1;
			rc = iscsi_text_resume(&t, &ctx, bhs, reply, &out, &out_len);
		}
		if (rc == TEXT_REPLY)
			BUG_ON(out_len > ctx.max_data);
		if (odd & 8)
			listing_changed();
	}
	iscsi_text_fini(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct iscsi_reply reply;
	struct sockaddr_storage peer = { .ss_family = AF_INET };
	enum login_outcome outcome = LOGIN_CONTINUE;
	uint8_t bhs[48] = { 0 }, flags, odd;
	const uint8_t *text;
	struct iscsi_login l;
	uint32_t len;

	if (!open_target)
		once();
	iscsi_login_init(&l, &ops, NULL, &peer, &peer, size & 1, 1);
	while (outcome == LOGIN_CONTINUE && next(&data, &size, &flags, &odd, &text, &len)) {
		bhs[0] = odd & 0x80 ? odd : 0x43;
		bhs[1] = flags;
		bhs[3] = odd & 0x40 ? 1 : 0;
		bhs[15] = odd & 0x20 ? 5 : 0;
		outcome = iscsi_login_rx(&l, bhs, text, len, &reply);
		BUG_ON(reply.data_len > LOGIN_REPLY_MAX);
	}
	if (outcome == LOGIN_DONE)
		texts(data, size, &l);
	iscsi_login_fini(&l);
	return 0;
}
