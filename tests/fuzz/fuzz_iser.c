/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * iSER: what an initiator can send. First byte: how far the connection gets by good bytes (nothing:
 * private data only; connected: login payloads; logged in: full feature phase, without and with
 * unsolicited Data-Out). Then for the first kind the private data, for the others messages: two
 * bytes of length, that many bytes (a missing header is made up). The adapter is the stand-in,
 * which checks keys, bounds and limits of all that we post. What must hold: no crash, no resource
 * left, and another connection still served.
 */
#include "events/bug.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifndef HAVE_RDMA
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return 0;
}
#else
#include <stdlib.h>

#include "events/log.h"
#include "tests/support/iser_wire.h"

static uint8_t memory[65536];
static uint32_t key;

static void once(void)
{
	ini_target_start("unsolicited_kb=64");
	key = rdmafake_reg(memory, sizeof(memory));
}

static void private_data(const uint8_t *data, size_t size)
{
	struct iser_cm_caps caps;
	uint8_t out[ISER_CM_HDR_LEN];
	struct ini i;
	size_t n;

	iser_cm_parse(data, size, &caps);
	n = iser_cm_build(&caps, caps.send_invalidate, out);
	BUG_ON(n != (caps.header ? ISER_CM_HDR_LEN : 0) || (caps.send_invalidate && !caps.header));
	memset(&i, 0, sizeof(i));
	rdmafake_connect(&i.peer, data, (uint8_t)MIN(size, (size_t)64), size ? data[0] & 7 : 0);
	wire_steps(2);
	BUG_ON(!i.peer.accepted && !i.peer.rejected);
	if (i.peer.accepted)
		ini_hang_up(&i);
}

/* One message; as much of its iSER header as makes it an iSCSI one comes from us, unless the fuzzer
 * wants otherwise (first byte 0xff). */
static void message(struct ini *i, const uint8_t *p, uint32_t len)
{
	uint8_t buf[ISER_HEADERS_LEN + 8192];

	if (len && p[0] == 0xff) {
		rdmafake_send(&i->peer, p + 1, len - 1);
		return;
	}
	memset(buf, 0, sizeof(buf));
	buf[0] = ISER_OP_CONTROL;
	if (len) {
		buf[0] |= p[0] & (ISER_WSV | ISER_RSV);
		p++;
		len--;
	}
	put_be32(buf + 4, key);
	put_be64(buf + 8, (uintptr_t)memory);
	put_be32(buf + 16, key);
	put_be64(buf + 20, (uintptr_t)memory);
	len = MIN(len, (uint32_t)sizeof(buf) - ISER_HDR_LEN);
	memcpy(buf + ISER_HDR_LEN, p, len);
	/* Most inputs get numbers that are in order. */
	if (!(buf[ISER_HDR_LEN + 2] & 0x80) && len >= BHS_EXP_STAT_SN + 4) {
		put_be32(buf + ISER_HDR_LEN + BHS_CMD_SN, i->cmd_sn);
		put_be32(buf + ISER_HDR_LEN + BHS_EXP_STAT_SN, i->exp_stat_sn);
		if (!(buf[ISER_HDR_LEN] & BHS_IMMEDIATE))
			i->cmd_sn++;
	}
	rdmafake_send(&i->peer, buf, MAX(ISER_HDR_LEN + len, (uint32_t)ISER_HEADERS_LEN));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool started;
	struct ini i;
	uint8_t how;

	if (!started) {
		started = true;
		once();
		log_set_level(LOG_LVL_ERROR - 1); /* bad bytes are no news here */
	}
	if (!size)
		return 0;
	how = data[0] & 3;
	data++;
	size--;
	if (how == 0) {
		private_data(data, size);
		return 0;
	}
	if (how == 1)
		BUG_ON(!ini_connect(&i, 0x80));
	else
		ini_up_keys(&i, 1, 0x80, how == 2 ? NULL : INI_UNSOL_KEYS);
	for (unsigned n = 0; n < 32 && size >= 2 && i.peer.id; n++) {
		uint32_t len = get_be16(data);
		struct fake_msg *m;

		data += 2;
		size -= 2;
		len = MIN(len, (uint32_t)size);
		message(&i, data, len);
		data += len;
		size -= len;
		wire_steps(3);
		while ((m = rdmafake_recv(&i.peer))) {
			BUG_ON(m->len < ISER_HEADERS_LEN);
			free(m);
		}
	}
	if (i.peer.id)
		rdmafake_disconnect(&i.peer);
	BUG_ON(!ini_closed(&i));
	rdmafake_peer_gone(&i.peer);
	BUG_ON(fake.qps || fake.cqs || fake.chans || fake.ids != 1);
	return 0;
}
#endif
