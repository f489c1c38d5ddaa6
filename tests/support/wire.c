/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See wire.h. */
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "events/bug.h"
#include "events/log.h"
#include "tests/support/wire.h"
#include "tgtd/iscsi/digest.h"
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/scsi/commands/init.h"
#include "tgtd/tcp/tcp.h"

struct wire_target wire_target;

void wire_steps(unsigned n)
{
	while (n--)
		loop_step(wire_target.loop, 0);
}

int wire_node = -1;
struct blk *(*wire_store)(struct blk *lower);

void wire_target_start(void)
{
	struct loop_conf lc = { .name = "wire", .node = wire_node, .cpu = -1 };
	/* Small blocks: requests have many of them. */
	struct blk_open_args args = { .path = "16m,block=4k", .block_size = 512, .node = -1 };
	struct iscsi_conf ic = { .nop_interval_s = 0, .nop_count = 0 };
	struct scsi_lu_conf lu;

	setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 4096, 4096 });
	log_set_level(getenv("WIRE_DEBUG") ? LOG_LVL_DEBUG : LOG_LVL_ERROR);
	ic.main = wire_target.loop = loop_create(&lc);
	BUG_ON(!wire_target.loop);
	tcp_transport_init();
	BUG_ON(iscsi_start(&ic));
	scsi_commands_init();
	wire_target.target = scsi_target_create(1, WIRE_IQN);
	BUG_ON(!wire_target.target || iscsi_target_add(wire_target.target) ||
	       iscsi_acl_add(wire_target.target, ISCSI_ACL_ADDRESS, "ALL"));
	scsi_lu_conf_init(&lu);
	lu.lun = 1;
	lu.online = lu.write_cache = true;
	lu.loop = wire_target.loop;
	lu.blk = blk_open("ram", &args);
	if (lu.blk && wire_store)
		lu.blk = wire_store(lu.blk);
	BUG_ON(!lu.blk || !scsi_lu_create(wire_target.target, &lu));
}

static void flag(void *arg)
{
	*(bool *)arg = true;
}

struct stop_msg {
	struct loop_msg msg;
	unsigned grace_ms;
	bool *done;
};

static void stop_on_loop(struct loop_msg *msg)
{
	struct stop_msg *m = container_of(msg, struct stop_msg, msg);

	iscsi_stop(m->grace_ms, flag, m->done);
}

void wire_stop(unsigned grace_ms, bool *done)
{
	static struct stop_msg m;

	m = (struct stop_msg){ .msg.handle = stop_on_loop, .grace_ms = grace_ms, .done = done };
	*done = false;
	loop_post(wire_target.loop, &m.msg);
	wire_steps(1);
}

void wire_target_stop(void)
{
	bool done = false;

	wire_stop(0, &done);
	for (unsigned i = 0; i < 5000; i++) {
		if (done)
			return;
		loop_step(wire_target.loop, 1);
	}
	BUG("the target does not stop");
}

/* ---- bytes ----------------------------------------------------------------------------------- */

struct start_msg {
	struct loop_msg msg;
	int fd, rc;
};

static void start_on_loop(struct loop_msg *msg)
{
	struct start_msg *m = container_of(msg, struct start_msg, msg);
	struct sockaddr_storage any = { .ss_family = AF_INET };

	((struct sockaddr_in *)&any)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	m->rc = tcp_conn_start(wire_target.loop, m->fd, &any, &any, 1);
}

void wire_open(struct wire *w)
{
	struct start_msg m = { .msg.handle = start_on_loop };
	int fds[2], size = 4 << 20;

	memset(w, 0, sizeof(*w));
	BUG_ON(socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	size = 1;
	ioctl(fds[1], FIONBIO, &size);
	m.fd = fds[1];
	loop_post(wire_target.loop, &m.msg);
	wire_steps(1);
	BUG_ON(m.rc);
	w->fd = fds[0];
}

void wire_close(struct wire *w)
{
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
	wire_steps(6);
}

void wire_write(struct wire *w, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len) {
		ssize_t n = send(w->fd, p, len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN) {
			wire_steps(1);
			continue;
		}
		if (n < 0) {
			w->closed = true;
			return;
		}
		p += n;
		len -= (size_t)n;
		w->written += (uint64_t)n;
	}
}

size_t wire_build(const struct wire *w, uint8_t *out, const uint8_t *bhs, const void *data,
		  uint32_t len)
{
	size_t n = ISCSI_BHS_LEN;
	uint32_t pad = pdu_pad(len);

	memcpy(out, bhs, n);
	put_be24(out + BHS_DATA_LEN, len);
	if (w->header_digest) {
		digest_put(out + n, digest_update(DIGEST_INIT, out, ISCSI_BHS_LEN));
		n += 4;
	}
	if (len) {
		memcpy(out + n, data, len);
		memset(out + n + len, 0, pad);
		if (w->data_digest)
			digest_put(out + n + len + pad,
				   digest_update(DIGEST_INIT, out + n, len + pad));
		n += len + pad + (w->data_digest ? 4 : 0);
	}
	return n;
}

void wire_send(struct wire *w, const uint8_t *bhs, const void *data, uint32_t len)
{
	uint8_t *out = malloc(ISCSI_BHS_LEN + len + 16);

	BUG_ON(!out);
	wire_write(w, out, wire_build(w, out, bhs, data, len));
	free(out);
}

static bool take(struct wire *w, void *to, size_t len)
{
	uint8_t *p = to;

	for (unsigned idle = 0; len;) {
		ssize_t n = recv(w->fd, p, len, MSG_DONTWAIT);

		if (n > 0) {
			p += n;
			len -= (size_t)n;
			w->got += (uint64_t)n;
			idle = 0;
		} else if (n == 0 || errno != EAGAIN) {
			w->closed = true;
			return false;
		} else if (++idle > 60) {
			return false;
		} else {
			loop_step(wire_target.loop, idle > 30 ? 1 : 0);
		}
	}
	return true;
}

bool wire_recv(struct wire *w, struct wire_pdu *pdu)
{
	static uint8_t *buf;
	uint8_t digest[4];
	uint32_t whole;

	if (!buf)
		buf = malloc(17 << 20);
	pdu->data = buf;
	pdu->digests_ok = true;
	if (!take(w, pdu->bhs, ISCSI_BHS_LEN))
		return false;
	if (w->header_digest) {
		BUG_ON(!take(w, digest, 4));
		pdu->digests_ok &=
			digest_ok(digest, digest_update(DIGEST_INIT, pdu->bhs, ISCSI_BHS_LEN));
	}
	pdu->len = bhs_data_len(pdu->bhs);
	whole = pdu->len + pdu_pad(pdu->len);
	if (whole) {
		BUG_ON(!take(w, buf, whole));
		if (w->data_digest) {
			BUG_ON(!take(w, digest, 4));
			pdu->digests_ok &=
				digest_ok(digest, digest_update(DIGEST_INIT, buf, whole));
		}
	}
	if (bhs_opcode(pdu->bhs) != ISCSI_DATA_IN || (pdu->bhs[1] & BHS_DATAIN_STATUS))
		if (bhs_opcode(pdu->bhs) != ISCSI_R2T &&
		    get_be32(pdu->bhs + BHS_STAT_SN) == w->exp_stat_sn &&
		    !(bhs_opcode(pdu->bhs) == ISCSI_NOP_IN &&
		      get_be32(pdu->bhs + BHS_ITT) == ISCSI_TAG_NONE))
			w->exp_stat_sn++;
	w->exp_cmd_sn = get_be32(pdu->bhs + BHS_EXP_CMD_SN);
	w->max_cmd_sn = get_be32(pdu->bhs + BHS_MAX_CMD_SN);
	return true;
}

bool wire_silent(struct wire *w)
{
	uint8_t b;

	wire_steps(10);
	return recv(w->fd, &b, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}

/* ---- requests -------------------------------------------------------------------------------- */

unsigned wire_login(struct wire *w, uint8_t isid, uint16_t tsih, uint16_t cid, const char *keys)
{
	char text[2048];
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_LOGIN_REQ | BHS_IMMEDIATE, 0x87 };
	struct wire_pdu pdu;
	int n = snprintf(
		text, sizeof(text),
		"InitiatorName=iqn.2026-11.org.tgtd.test:initiator\nTargetName=%s\nSessionType=Normal\n%s%s",
		WIRE_IQN, keys ? keys : "", keys && *keys ? "\n" : "");

	for (int i = 0; i < n; i++)
		if (text[i] == '\n')
			text[i] = '\0';
	bhs[8] = 0x80; /* ISID: random format */
	bhs[13] = isid;
	put_be16(bhs + 14, tsih);
	put_be32(bhs + BHS_ITT, 1);
	put_be16(bhs + 20, cid);
	put_be32(bhs + BHS_CMD_SN, w->cmd_sn ? w->cmd_sn : (w->cmd_sn = 100));
	put_be32(bhs + BHS_EXP_STAT_SN, w->exp_stat_sn); /* the target's numbers begin there */
	wire_send(w, bhs, text, (uint32_t)n);
	if (!wire_recv(w, &pdu) || bhs_opcode(pdu.bhs) != ISCSI_LOGIN_RSP)
		return 0xffff;
	w->exp_stat_sn = get_be32(pdu.bhs + BHS_STAT_SN) + 1;
	w->tsih = get_be16(pdu.bhs + 14);
	w->itt = 1;
	if (!get_be16(pdu.bhs + 36) && keys) {
		w->header_digest = strstr(keys, "HeaderDigest=CRC32C") != NULL;
		w->data_digest = strstr(keys, "DataDigest=CRC32C") != NULL;
	}
	return get_be16(pdu.bhs + 36);
}

void wire_command(struct wire *w, uint8_t *bhs, uint8_t flags, uint32_t edtl, const uint8_t *cdb,
		  unsigned cdb_len)
{
	memset(bhs, 0, ISCSI_BHS_LEN);
	bhs[0] = ISCSI_SCSI_CMD;
	bhs[1] = flags;
	bhs[9] = 1; /* LUN 1 */
	put_be32(bhs + BHS_ITT, ++w->itt);
	put_be32(bhs + BHS_EDTL, edtl);
	put_be32(bhs + BHS_CMD_SN, w->cmd_sn++);
	put_be32(bhs + BHS_EXP_STAT_SN, w->exp_stat_sn);
	memcpy(bhs + BHS_CDB, cdb, cdb_len);
}

void wire_rw10(struct wire *w, uint8_t *bhs, bool write, uint32_t lba, uint16_t blocks)
{
	uint8_t cdb[10] = { write ? 0x2a : 0x28 };

	put_be32(cdb + 2, lba);
	put_be16(cdb + 7, blocks);
	wire_command(w, bhs, BHS_FINAL | (write ? BHS_CMD_WRITE : BHS_CMD_READ) | 1, blocks * 512u,
		     cdb, sizeof(cdb));
}

void wire_request(struct wire *w, uint8_t *bhs, uint8_t opcode, uint8_t flags)
{
	memset(bhs, 0, ISCSI_BHS_LEN);
	bhs[0] = opcode | BHS_IMMEDIATE;
	bhs[1] = flags;
	put_be32(bhs + BHS_ITT, ++w->itt);
	put_be32(bhs + BHS_CMD_SN, w->cmd_sn);
	put_be32(bhs + BHS_EXP_STAT_SN, w->exp_stat_sn);
}

void wire_ready(struct wire *w)
{
	for (unsigned i = 0; i < 5; i++) {
		uint8_t bhs[ISCSI_BHS_LEN], cdb[6] = { 0 };
		struct wire_pdu pdu;

		wire_command(w, bhs, BHS_FINAL | 1, 0, cdb, sizeof(cdb));
		wire_send(w, bhs, NULL, 0);
		BUG_ON(!wire_recv(w, &pdu));
		if (bhs_opcode(pdu.bhs) == ISCSI_SCSI_RSP && pdu.bhs[3] == 0)
			return;
	}
	BUG("the unit attentions do not end");
}

unsigned wire_read(struct wire *w, uint32_t lba, uint16_t blocks, void *out)
{
	uint8_t bhs[ISCSI_BHS_LEN];
	struct wire_pdu pdu;

	wire_rw10(w, bhs, false, lba, blocks);
	wire_send(w, bhs, NULL, 0);
	while (wire_recv(w, &pdu)) {
		if (bhs_opcode(pdu.bhs) == ISCSI_SCSI_RSP)
			return pdu.bhs[3];
		BUG_ON(bhs_opcode(pdu.bhs) != ISCSI_DATA_IN || !pdu.digests_ok);
		BUG_ON(get_be32(pdu.bhs + BHS_BUFFER_OFFSET) + pdu.len > blocks * 512u);
		memcpy((uint8_t *)out + get_be32(pdu.bhs + BHS_BUFFER_OFFSET), pdu.data, pdu.len);
		if (pdu.bhs[1] & BHS_DATAIN_STATUS)
			return pdu.bhs[3];
	}
	return 0xff;
}

unsigned wire_write_blocks(struct wire *w, uint32_t lba, uint16_t blocks, const void *data)
{
	uint8_t bhs[ISCSI_BHS_LEN];
	struct wire_pdu pdu;

	wire_rw10(w, bhs, true, lba, blocks);
	wire_send(w, bhs, NULL, 0);
	while (wire_recv(w, &pdu)) {
		uint8_t out[ISCSI_BHS_LEN] = { ISCSI_DATA_OUT, BHS_FINAL };

		if (bhs_opcode(pdu.bhs) == ISCSI_SCSI_RSP)
			return pdu.bhs[3];
		BUG_ON(bhs_opcode(pdu.bhs) != ISCSI_R2T);
		memcpy(out + BHS_ITT, pdu.bhs + BHS_ITT, 8);
		memcpy(out + BHS_BUFFER_OFFSET, pdu.bhs + BHS_BUFFER_OFFSET, 4);
		put_be32(out + BHS_EXP_STAT_SN, w->exp_stat_sn);
		wire_send(w, out, (const uint8_t *)data + get_be32(pdu.bhs + BHS_BUFFER_OFFSET),
			  get_be32(pdu.bhs + BHS_R2T_LEN));
	}
	return 0xff;
}

void wire_pattern(uint8_t *p, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
}

/* ---- a session ------------------------------------------------------------------------------- */

void wire_up(struct wire *w, const char *keys)
{
	wire_target_start();
	wire_open(w);
	ck_assert_uint_eq(wire_login(w, 1, 0, 0, keys), 0);
	wire_ready(w);
}

void wire_down(struct wire *w)
{
	wire_close(w);
	wire_target_stop();
}

unsigned wire_sessions(void)
{
	return scsi_target_nexus_count(wire_target.target);
}
