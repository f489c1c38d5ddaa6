/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgt-bareloop: just enough of a login (RFC 7143 6): one stage or two, no authentication. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/tgt-bareloop/tx.h"

static const char *find_key(const char *text, uint32_t n, const char *key)
{
	size_t k = strlen(key);

	for (const char *p = text; p < text + n; p += strlen(p) + 1)
		if (strncmp(p, key, k) == 0 && p[k] == '=')
			return p + k + 1;
	return NULL;
}

static uint32_t key_min(const char *text, uint32_t n, const char *key, uint32_t ours)
{
	const char *v = find_key(text, n, key);
	unsigned long theirs = v ? strtoul(v, NULL, 0) : ours;

	return theirs < ours ? (uint32_t)theirs : ours;
}

static bool key_is(const char *text, uint32_t n, const char *key, const char *value)
{
	const char *v = find_key(text, n, key);

	return v && strcmp(v, value) == 0;
}

static uint32_t add_key(char *out, uint32_t at, const char *key, const char *value)
{
	return at + (uint32_t)snprintf(out + at, TEXT_MAX - at, "%s=%s", key, value) + 1;
}

static uint32_t add_number(char *out, uint32_t at, const char *key, uint32_t value)
{
	return at + (uint32_t)snprintf(out + at, TEXT_MAX - at, "%s=%u", key, value) + 1;
}

void login_answer(struct bconn *c, const uint8_t *h, const char *text, uint32_t n)
{
	unsigned stage = h[1] >> 2 & 3, next = h[1] & 3;
	bool hd = false, dd = false;
	char *out = (char *)tx_keep(c, TEXT_MAX);
	uint32_t at = 0;
	uint8_t *r;

	c->exp_cmd_sn = get32(h + 24);
	if (stage == 0) {
		at = add_key(out, at, "AuthMethod", "None");
		at = add_key(out, at, "TargetPortalGroupTag", "1");
	} else {
		hd = key_is(text, n, "HeaderDigest", "CRC32C");
		dd = key_is(text, n, "DataDigest", "CRC32C");
		c->immediate = !key_is(text, n, "ImmediateData", "No");
		c->initial_r2t = !key_is(text, n, "InitialR2T", "No");
		c->their_segment = key_min(text, n, "MaxRecvDataSegmentLength", 16777215);
		c->first_burst = key_min(text, n, "FirstBurstLength", opt.first_burst);
		c->max_burst = key_min(text, n, "MaxBurstLength", opt.max_burst);
		at = add_key(out, at, "HeaderDigest", hd ? "CRC32C" : "None");
		at = add_key(out, at, "DataDigest", dd ? "CRC32C" : "None");
		at = add_key(out, at, "ImmediateData", c->immediate ? "Yes" : "No");
		at = add_key(out, at, "InitialR2T", c->initial_r2t ? "Yes" : "No");
		at = add_number(out, at, "MaxRecvDataSegmentLength", opt.max_recv_segment);
		at = add_number(out, at, "FirstBurstLength", c->first_burst);
		at = add_number(out, at, "MaxBurstLength", c->max_burst);
		at = add_key(out, at, "MaxOutstandingR2T", "1");
		at = add_key(out, at, "MaxConnections", "1");
		at = add_key(out, at, "DefaultTime2Wait", "2");
		at = add_key(out, at, "DefaultTime2Retain", "0");
		at = add_key(out, at, "ErrorRecoveryLevel", "0");
		at = add_key(out, at, "DataPDUInOrder", "Yes");
		at = add_key(out, at, "DataSequenceInOrder", "Yes");
	}
	r = tx_header(c, OP_LOGIN_RSP, h[1] & 0x8f);
	memcpy(r + 8, h + 8, 6); /* ISID */
	put16(r + 14, 1);
	memcpy(r + 16, h + 16, 4);
	put32(r + 24, c->stat_sn++);
	tx_sn(c, r);
	tx_pdu(c, r, (const uint8_t *)out, at);
	if (h[1] & LOGIN_TRANSIT && next == 3) {
		c->full_feature = true;
		c->hdr_digest = hd;
		c->data_digest = dd;
	}
}
