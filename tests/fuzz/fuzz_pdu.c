/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The PDU stream in full feature phase: TCP parser, numbering, tasks, Data-Out sequencing,
 * device server and ram store, on one stepped loop. The input's first byte picks session
 * keys; then records follow:
 *
 *   0x00..0x3f  a PDU: 48 bytes of header, 2 of data length, data. Its CmdSN is put right, so that
 *               the fuzzer need not guess it, and tags are folded to a few values
 *   0x40..0x7f  the same, header as it is
 *   0x80..0xbf  raw bytes: 1 of length, then so many
 *   0xc0..0xff  the loop runs, and what the target has sent is thrown away
 *
 * What must hold: no crash, no leak, no session left behind once the connection is gone.
 */
#include <stdlib.h>
#include <sys/socket.h>

#include "events/bug.h"
#include "tests/support/wire.h"
#include "tgtd/iscsi/core.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t last_ttt;

static void drain(struct wire *w)
{
	static uint8_t buf[1 << 20];
	ssize_t n;

	wire_steps(2);
	while ((n = recv(w->fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0) {
		/* R2Ts are worth answering: remember the last tag seen at a PDU's start. */
		for (ssize_t i = 0; i + 48 <= n; i += 48) {
			if (bhs_opcode(buf + i) == ISCSI_R2T)
				last_ttt = get_be32(buf + i + BHS_TTT);
		}
		wire_steps(1);
	}
	if (n == 0)
		w->closed = true;
	/* What was rejected has left a gap (RFC 7143 7.3). */
	if (!list_empty(&iscsi_core.sessions))
		w->cmd_sn =
			list_first(&iscsi_core.sessions, struct iscsi_session, link)->exp_cmd_sn;
}

static void record(struct wire *w, uint8_t kind, const uint8_t *bhs, const uint8_t *data,
		   uint32_t len)
{
	uint8_t h[ISCSI_BHS_LEN], *out = malloc(ISCSI_BHS_LEN + len + 16);

	memcpy(h, bhs, sizeof(h));
	if (kind < 0x40) {
		bool numbered = !bhs_immediate(h) && bhs_opcode(h) < ISCSI_SNACK_REQ &&
				bhs_opcode(h) != ISCSI_DATA_OUT;

		put_be32(h + BHS_ITT, get_be32(h + BHS_ITT) % 8);
		h[BHS_AHS_LEN] = 0;
		if (bhs_opcode(h) == ISCSI_SCSI_CMD) {
			memset(h + BHS_LUN, 0, 8);
			h[9] = 1;
			put_be32(h + BHS_EDTL, get_be32(h + BHS_EDTL) % (1u << 18));
		} else if (bhs_opcode(h) == ISCSI_DATA_OUT) {
			put_be32(h + BHS_TTT, h[BHS_TTT] & 1 ? last_ttt : ISCSI_TAG_NONE);
		}
		put_be32(h + BHS_CMD_SN, w->cmd_sn);
		w->cmd_sn += numbered;
	}
	BUG_ON(!out);
	wire_write(w, out, wire_build(w, out, h, data, len));
	free(out);
}

static bool ended(void)
{
	return scsi_target_nexus_count(wire_target.target) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const keys[] = {
		"",
		"InitialR2T=No\nFirstBurstLength=8192",
		"ImmediateData=No\nMaxOutstandingR2T=4\nMaxBurstLength=4096\nFirstBurstLength=4096",
		"HeaderDigest=CRC32C\nDataDigest=CRC32C",
		"ErrorRecoveryLevel=1\nInitialR2T=No",
		"ErrorRecoveryLevel=1\nDataDigest=CRC32C\nMaxRecvDataSegmentLength=512",
	};
	struct wire w;

	if (!wire_target.loop)
		wire_target_start();
	if (!size)
		return 0;
	wire_open(&w);
	BUG_ON(wire_login(&w, 1, 0, 0, keys[data[0] % ARRAY_SIZE(keys)]));
	wire_ready(&w);
	data++;
	size--;
	while (size && !w.closed) {
		uint8_t kind = *data++;

		size--;
		if (kind < 0x80) {
			uint32_t len;

			if (size < ISCSI_BHS_LEN + 2)
				break;
			len = (uint32_t)MIN(get_be16(data + ISCSI_BHS_LEN),
					    size - ISCSI_BHS_LEN - 2);
			record(&w, kind, data, data + ISCSI_BHS_LEN + 2, len);
			data += ISCSI_BHS_LEN + 2 + len;
			size -= ISCSI_BHS_LEN + 2 + len;
		} else if (kind < 0xc0) {
			size_t len = size ? MIN((size_t)data[0], size - 1) : 0;

			if (!size)
				break;
			wire_write(&w, data + 1, len);
			data += 1 + len;
			size -= 1 + len;
		} else {
			drain(&w);
		}
	}
	drain(&w);
	wire_close(&w);
	for (unsigned i = 0; !ended(); i++) {
		BUG_ON(i > 3000);
		loop_step(wire_target.loop, i > 20 ? 1 : 0);
	}
	return 0;
}
