/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See iser_wire.h. */
#ifdef HAVE_RDMA
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "events/bug.h"
#include "events/log.h"
#include "iser/conn.h"
#include "iser/iser.h"
#include "tests/support/iser_wire.h"

const struct topology *ini_topology;
unsigned ini_patience = 50;
_Thread_local const char *ini_iqn = WIRE_IQN;
static void *portal;
static const char *reg_options;

static void one_step(void)
{
	wire_steps(1);
}
void (*ini_pause)(void) = one_step;

static void start_on_loop(struct loop_msg *msg)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(3260) };

	(void)msg;
	BUG_ON(iser_register(wire_target.loop, ini_topology, reg_options));
	BUG_ON(iser_listen(wire_target.loop, (struct sockaddr *)&a, sizeof(a), 1, &portal));
}

static void unlisten_on_loop(struct loop_msg *msg)
{
	(void)msg;
	iser_unlisten(portal);
}

static void iser_stop_on_loop(struct loop_msg *msg)
{
	(void)msg;
	iser_stop();
}

static void on_loop(void (*fn)(struct loop_msg *))
{
	static struct loop_msg m;

	m.handle = fn;
	loop_post(wire_target.loop, &m);
	wire_steps(1);
}

void ini_target_start(const char *options)
{
	wire_target_start();
	rdmafake_install();
	reg_options = options;
	on_loop(start_on_loop);
}

void ini_target_stop(void)
{
	on_loop(unlisten_on_loop);
	wire_target_stop();
	wire_steps(4);
	on_loop(iser_stop_on_loop);
	BUG_ON(!rdmafake_clean());
}

bool ini_connect(struct ini *i, int header)
{
	uint8_t data[4] = { (uint8_t)header };

	memset(i, 0, sizeof(*i));
	rdmafake_connect(&i->peer, data, header < 0 ? 0 : 4, 4);
	for (unsigned n = 0; n < ini_patience && !i->peer.accepted && i->peer.id; n++)
		ini_pause();
	if (!i->peer.accepted || !i->peer.id)
		return false;
	rdmafake_establish(&i->peer);
	ini_pause();
	i->cmd_sn = 100;
	return true;
}

void ini_send(struct ini *i, const uint8_t *bhs, const struct ini_tag *w, const struct ini_tag *r,
	      const void *data, uint32_t len)
{
	uint8_t buf[ISER_HEADERS_LEN + 16384] = { ISER_OP_CONTROL };

	BUG_ON(len > 16384);
	if (w) {
		buf[0] |= ISER_WSV;
		put_be32(buf + 4, w->rkey);
		put_be64(buf + 8, w->va);
	}
	if (r) {
		buf[0] |= ISER_RSV;
		put_be32(buf + 16, r->rkey);
		put_be64(buf + 20, r->va);
	}
	memcpy(buf + ISER_HDR_LEN, bhs, ISCSI_BHS_LEN);
	put_be24(buf + ISER_HDR_LEN + BHS_DATA_LEN, len);
	if (len)
		memcpy(buf + ISER_HEADERS_LEN, data, len);
	(void)!rdmafake_send(&i->peer, buf, ISER_HEADERS_LEN + len);
}

bool ini_recv(struct ini *i, struct ini_pdu *pdu)
{
	for (unsigned n = 0; n < ini_patience; n++) {
		bool over = i->peer.disconnected || !i->peer.id;
		struct fake_msg *m = rdmafake_recv(&i->peer);

		if (!m && over)
			return false;
		if (!m) {
			ini_pause();
			continue;
		}
		BUG_ON(m->len < ISER_HEADERS_LEN || m->data[0] != ISER_OP_CONTROL);
		*pdu = (struct ini_pdu){ m, m->data + ISER_HDR_LEN, m->data + ISER_HEADERS_LEN,
					 m->len - ISER_HEADERS_LEN };
		BUG_ON(bhs_data_len(pdu->bhs) != pdu->len);
		if (bhs_opcode(pdu->bhs) != ISCSI_LOGIN_RSP)
			i->exp_stat_sn = get_be32(pdu->bhs + BHS_STAT_SN) + 1;
		i->max_cmd_sn = get_be32(pdu->bhs + BHS_MAX_CMD_SN);
		return true;
	}
	return false;
}

void ini_login_start(struct ini *i, uint16_t isid, const char *keys)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_LOGIN_REQ | BHS_IMMEDIATE, 0x87 };
	char text[2048];
	int n = snprintf(
		text, sizeof(text),
		"InitiatorName=iqn.2026-11.org.tgtd.test:iser\nTargetName=%s\nSessionType=Normal\n%s"
		"TargetRecvDataSegmentLength=%u\nInitiatorRecvDataSegmentLength=8192\n%s%s",
		ini_iqn, i->tsih ? "" : "RDMAExtensions=Yes\n" /* of the leading connection */,
		i->dsl ? i->dsl : 8192, keys ? keys : "", keys && *keys ? "\n" : "");

	for (int k = 0; k < n; k++)
		if (text[k] == '\n')
			text[k] = '\0';
	bhs[8] = 0x80;
	put_be16(bhs + 12, isid);
	put_be16(bhs + 14, i->tsih);
	put_be16(bhs + 20, i->cid);
	put_be32(bhs + BHS_ITT, 1);
	put_be32(bhs + BHS_CMD_SN, i->cmd_sn);
	ini_send(i, bhs, NULL, NULL, text, (uint32_t)n);
}

unsigned ini_login(struct ini *i, uint16_t isid, const char *keys)
{
	struct ini_pdu p;
	unsigned status;

	ini_login_start(i, isid, keys);
	if (!ini_recv(i, &p))
		return 0xffff;
	BUG_ON(bhs_opcode(p.bhs) != ISCSI_LOGIN_RSP);
	i->exp_stat_sn = get_be32(p.bhs + BHS_STAT_SN) + 1;
	i->itt = 1;
	status = get_be16(p.bhs + 36);
	i->tsih = get_be16(p.bhs + 14);
	free(p.msg);
	for (unsigned k = 0; k < 3; k++)
		ini_pause();
	return status;
}

static void command(struct ini *i, uint8_t *bhs, uint8_t flags, uint32_t edtl, const uint8_t *cdb,
		    unsigned len)
{
	memset(bhs, 0, ISCSI_BHS_LEN);
	bhs[0] = ISCSI_SCSI_CMD;
	bhs[1] = flags;
	bhs[9] = 1;
	put_be32(bhs + BHS_ITT, ++i->itt);
	put_be32(bhs + BHS_EDTL, edtl);
	put_be32(bhs + BHS_CMD_SN, i->cmd_sn++);
	put_be32(bhs + BHS_EXP_STAT_SN, i->exp_stat_sn);
	memcpy(bhs + BHS_CDB, cdb, len);
}

static unsigned response(struct ini *i)
{
	struct ini_pdu p;
	unsigned status = 0xff;

	if (!ini_recv(i, &p))
		return 0xff;
	if (bhs_opcode(p.bhs) == ISCSI_SCSI_RSP)
		status = p.bhs[3];
	free(p.msg);
	return status;
}

unsigned ini_simple(struct ini *i, uint8_t opcode)
{
	uint8_t bhs[ISCSI_BHS_LEN], cdb[6] = { opcode };

	command(i, bhs, BHS_FINAL, 0, cdb, 6);
	ini_send(i, bhs, NULL, NULL, NULL, 0);
	return response(i);
}

void ini_up(struct ini *i, uint16_t isid, int header)
{
	ini_up_keys(i, isid, header, NULL);
}

void ini_up_keys(struct ini *i, uint16_t isid, int header, const char *keys)
{
	BUG_ON(!ini_connect(i, header));
	BUG_ON(ini_login(i, isid, keys));
	for (unsigned n = 0; n < 4 && ini_simple(i, 0); n++)
		;
}

uint32_t ini_rw_start(struct ini *i, bool write, uint32_t lba, uint16_t blocks, void *data,
		      uint32_t imm)
{
	uint32_t len = blocks * 512u, key = rdmafake_reg(data, len);
	uint8_t bhs[ISCSI_BHS_LEN], cdb[10] = { write ? 0x2a : 0x28 };
	/* As Linux has it: the Base Offset of the first byte that is not sent unasked. */
	struct ini_tag tag = { key, (uintptr_t)data + (write ? imm : 0) };

	put_be32(cdb + 2, lba);
	put_be16(cdb + 7, blocks);
	command(i, bhs, BHS_FINAL | (write ? BHS_CMD_WRITE : BHS_CMD_READ), len, cdb, 10);
	ini_send(i, bhs, write && imm < len ? &tag : NULL, write ? NULL : &tag, data, imm);
	return key;
}

uint32_t ini_unsol_start(struct ini *i, uint32_t lba, uint16_t blocks, const void *data,
			 uint32_t imm, uint32_t unsol, uint32_t dsl)
{
	uint32_t len = blocks * 512u, key = 0, sn = 0;
	uint8_t bhs[ISCSI_BHS_LEN], cdb[10] = { 0x2a };
	struct ini_tag tag;

	BUG_ON(imm + unsol > len);
	if (imm + unsol < len) {
		key = rdmafake_reg((uint8_t *)(uintptr_t)data, len);
		tag = (struct ini_tag){ key, (uintptr_t)data + imm + unsol };
	}
	put_be32(cdb + 2, lba);
	put_be16(cdb + 7, blocks);
	command(i, bhs, BHS_CMD_WRITE, len, cdb, 10);
	ini_send(i, bhs, key ? &tag : NULL, NULL, data, imm);
	for (uint32_t off = imm; off < imm + unsol; sn++) {
		uint32_t n = MIN(dsl, imm + unsol - off);

		memset(bhs, 0, sizeof(bhs));
		bhs[0] = ISCSI_DATA_OUT;
		bhs[1] = off + n == imm + unsol ? BHS_FINAL : 0;
		bhs[9] = 1;
		put_be32(bhs + BHS_ITT, i->itt);
		put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
		put_be32(bhs + BHS_EXP_STAT_SN, i->exp_stat_sn);
		put_be32(bhs + BHS_DATA_SN, sn);
		put_be32(bhs + BHS_BUFFER_OFFSET, off);
		ini_send(i, bhs, NULL, NULL, (const uint8_t *)data + off, n);
		off += n;
	}
	return key;
}

unsigned ini_rw(struct ini *i, bool write, uint32_t lba, uint16_t blocks, void *data, uint32_t imm)
{
	uint32_t key = ini_rw_start(i, write, lba, blocks, data, imm);
	unsigned status = response(i);

	rdmafake_unreg(key);
	return status;
}

unsigned ini_status(struct ini *i)
{
	unsigned status = response(i);

	BUG_ON(status == 0xff);
	return status;
}

struct iser_conn *ini_conn(struct ini *i)
{
	return i->peer.id->qp->qp_context;
}

void ini_prime(struct ini *i)
{
	static uint8_t mem[1u << 20];

	for (unsigned k = 0; k < 2 * 4; k++) {
		BUG_ON(ini_rw(i, true, k % 4 * 2048, 2047, mem, 0));
		BUG_ON(ini_rw(i, false, k % 4 * 2048, 2047, mem, 0));
		BUG_ON(ini_rw(i, false, 30000, 8, mem, 0)); /* a hole */
	}
}

bool ini_closed(struct ini *i)
{
	for (unsigned n = 0; n < ini_patience && i->peer.id; n++)
		ini_pause();
	return !i->peer.id;
}

void ini_hang_up(struct ini *i)
{
	rdmafake_disconnect(&i->peer);
	BUG_ON(!ini_closed(i));
	rdmafake_peer_gone(&i->peer);
}
#endif
