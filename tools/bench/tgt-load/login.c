/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The login phase (RFC 7143, 6.3): security stage with AuthMethod=None, then the operational stage
 * with the keys asked for, then full feature phase. What the target answers is what is in force, as
 * far as it is ours to accept.
 */
#include "tools/bench/tgt-load/conn.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	STAGE_SECURITY = 0,
	STAGE_OPERATIONAL = 1,
	STAGE_FULL = 3,
	TEXT_MAX = 8192, /* MaxRecvDataSegmentLength of the login phase (RFC 7143, 13.12) */
	LOGIN_TIMEOUT_MS = 10000,
	LOGIN_ROUNDS = 32,
};

struct text {
	uint32_t n;
	char b[TEXT_MAX];
};

static void add_key(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_key(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(t->b + t->n, sizeof(t->b) - t->n, fmt, ap);
	va_end(ap);
	if (n > 0 && t->n + (uint32_t)n + 1 <= sizeof(t->b))
		t->n += (uint32_t)n + 1; /* the NUL ends the pair */
}

static int io_wait(struct conn *c, short events)
{
	struct pollfd p = {.fd = c->fd, .events = events};
	int rc;

	do
		rc = poll(&p, 1, LOGIN_TIMEOUT_MS);
	while (rc < 0 && errno == EINTR);
	return rc > 0 ? 0
		      : conn_fail(c, "no answer to the login within %d s", LOGIN_TIMEOUT_MS / 1000);
}

static int send_all(struct conn *c, const void *p, size_t n)
{
	const uint8_t *b = p;

	while (n > 0) {
		ssize_t k = send(c->fd, b, n, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (k < 0 && errno == EAGAIN) {
			if (io_wait(c, POLLOUT) != 0)
				return -1;
			continue;
		}
		if (k < 0)
			return conn_fail(c, "send: %s", strerror(errno));
		b += k;
		n -= (size_t)k;
	}
	return 0;
}

static int recv_all(struct conn *c, void *p, size_t n)
{
	uint8_t *b = p;

	while (n > 0) {
		ssize_t k;

		if (io_wait(c, POLLIN) != 0)
			return -1;
		k = recv(c->fd, b, n, MSG_DONTWAIT);
		if (k < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (k <= 0)
			return conn_fail(c, "login: %s",
					 k == 0 ? "the target closed" : strerror(errno));
		b += k;
		n -= (size_t)k;
	}
	return 0;
}

static int send_login(struct conn *c, unsigned stage, unsigned next, const struct text *t)
{
	uint8_t pdu[BHS + TEXT_MAX] = {OP_LOGIN_REQ | OP_IMMEDIATE};
	uint32_t unique = (uint32_t)getpid() * 4096u + c->index;

	pdu[1] = (uint8_t)(LOGIN_TRANSIT | stage << 2 | next);
	put24(pdu + 5, t->n);
	/* ISID of the "random" type (RFC 7143, 11.12.5): one per connection, so each is a session.
	 */
	pdu[8] = 0x80;
	put24(pdu + 9, unique >> 8);
	put16(pdu + 12, (uint16_t)((unique & 0xff) << 8 | 1));
	put32(pdu + 16, 0);
	put32(pdu + 24, c->cmd_sn);
	put32(pdu + 28, c->exp_stat_sn);
	memcpy(pdu + BHS, t->b, t->n);
	return send_all(c, pdu, BHS + t->n + pad4(t->n));
}

/* Receive one response; its text is appended to *t. */
static int recv_login(struct conn *c, uint8_t *h, struct text *t)
{
	uint8_t pad[4];
	uint32_t n;

	if (recv_all(c, h, BHS) != 0)
		return -1;
	if ((h[0] & OP_MASK) != OP_LOGIN_RSP || h[4] != 0)
		return conn_fail(c, "opcode %#x in the login phase", h[0] & OP_MASK);
	n = get24(h + 5);
	if (n > sizeof(t->b) - t->n)
		return conn_fail(c, "%u bytes of login text are too many", n);
	if (recv_all(c, t->b + t->n, n) != 0 || recv_all(c, pad, pad4(n)) != 0)
		return -1;
	t->n += n;
	if (get16(h + 36) != 0)
		return conn_fail(c, "login refused: status %02x%02x (RFC 7143, 11.13.5)", h[36],
				 h[37]);
	c->exp_stat_sn = get32(h + 24) + 1;
	c->max_cmd_sn = get32(h + 32);
	return 0;
}

static int answer_number(struct conn *c, const char *key, const char *value, uint32_t lo,
			 uint32_t hi, uint32_t *out)
{
	char *end;
	unsigned long v = strtoul(value, &end, 0);

	if (*value == '\0' || *end != '\0' || v < lo || v > hi)
		return conn_fail(c, "the target answers %s=%s", key, value);
	*out = (uint32_t)v;
	return 0;
}

static int answer_bool(struct conn *c, const char *key, const char *value, bool *out)
{
	if (strcmp(value, "Yes") != 0 && strcmp(value, "No") != 0)
		return conn_fail(c, "the target answers %s=%s", key, value);
	*out = value[0] == 'Y';
	return 0;
}

static int answer_digest(struct conn *c, const char *key, const char *value, bool *out)
{
	if (strcmp(value, "None") != 0 && strcmp(value, "CRC32C") != 0)
		return conn_fail(c, "the target answers %s=%s", key, value);
	if (*out != (value[0] == 'C'))
		return conn_fail(c, "the target does not take the digest asked for: %s=%s", key,
				 value);
	return 0;
}

/* One key=value of the target. Unknown ones are its own business. */
static int take_key(struct conn *c, const char *key, const char *value)
{
	struct agreed *a = &c->agreed;

	if (strcmp(key, "MaxRecvDataSegmentLength") == 0)
		return answer_number(c, key, value, 512, (1 << 24) - 1, &a->max_send_segment);
	if (strcmp(key, "FirstBurstLength") == 0)
		return answer_number(c, key, value, 512, a->keys.first_burst, &a->keys.first_burst);
	if (strcmp(key, "MaxBurstLength") == 0)
		return answer_number(c, key, value, 512, a->keys.max_burst, &a->keys.max_burst);
	if (strcmp(key, "MaxOutstandingR2T") == 0)
		return answer_number(c, key, value, 1, a->keys.max_r2t, &a->keys.max_r2t);
	if (strcmp(key, "InitialR2T") == 0)
		return answer_bool(c, key, value, &a->keys.initial_r2t);
	if (strcmp(key, "ImmediateData") == 0)
		return answer_bool(c, key, value, &a->keys.immediate_data);
	if (strcmp(key, "HeaderDigest") == 0)
		return answer_digest(c, key, value, &a->keys.header_digest);
	if (strcmp(key, "DataDigest") == 0)
		return answer_digest(c, key, value, &a->keys.data_digest);
	if (strcmp(key, "AuthMethod") == 0 && strcmp(value, "None") != 0)
		return conn_fail(c, "the target wants authentication (AuthMethod=%s)", value);
	return 0;
}

static int take_text(struct conn *c, struct text *t)
{
	char *p = t->b, *end = t->b + t->n;

	while (p < end) {
		char *stop = memchr(p, '\0', (size_t)(end - p));
		char *eq;

		if (!stop)
			return conn_fail(c, "login text does not end");
		eq = strchr(p, '=');
		if (eq) {
			*eq = '\0';
			if (take_key(c, p, eq + 1) != 0)
				return -1;
		}
		p = stop + 1;
	}
	return 0;
}

/* One stage: offer `t`, then go on with empty requests until the target moves to `next`. */
static int run_stage(struct conn *c, unsigned stage, unsigned next, struct text *t)
{
	struct text answer;
	uint8_t h[BHS];

	for (int round = 0; round < LOGIN_ROUNDS; round++) {
		if (send_login(c, stage, next, t) != 0)
			return -1;
		answer.n = 0;
		if (recv_login(c, h, &answer) != 0)
			return -1;
		while (h[1] & LOGIN_CONTINUE) {
			/* More of the same answer: ask for it with an empty request, no transit. */
			struct text none = {.n = 0};

			if (send_login(c, stage, next, &none) != 0 ||
			    recv_login(c, h, &answer) != 0)
				return -1;
		}
		if (take_text(c, &answer) != 0)
			return -1;
		t->n = 0;
		if (h[1] & LOGIN_TRANSIT) {
			if ((h[1] & 3) != next)
				return conn_fail(c, "the target goes to stage %u, not %u", h[1] & 3,
						 next);
			return 0;
		}
	}
	return conn_fail(c, "the login does not end");
}

int login_run(struct conn *c, const char *target)
{
	const struct keys *k = &c->opts->keys;
	struct text t = {.n = 0};
	bool hd = k->header_digest, dd = k->data_digest;

	c->cmd_sn = 1;
	c->agreed.keys = *k;
	c->agreed.max_send_segment = 8192;
	add_key(&t, "InitiatorName=%s", c->opts->initiator);
	add_key(&t, "SessionType=Normal");
	add_key(&t, "TargetName=%s", target);
	add_key(&t, "AuthMethod=None");
	if (run_stage(c, STAGE_SECURITY, STAGE_OPERATIONAL, &t) != 0)
		return -1;

	t.n = 0;
	add_key(&t, "HeaderDigest=%s", hd ? "CRC32C" : "None");
	add_key(&t, "DataDigest=%s", dd ? "CRC32C" : "None");
	add_key(&t, "InitialR2T=%s", k->initial_r2t ? "Yes" : "No");
	add_key(&t, "ImmediateData=%s", k->immediate_data ? "Yes" : "No");
	add_key(&t, "MaxRecvDataSegmentLength=%u", k->max_recv_segment);
	add_key(&t, "MaxBurstLength=%u", k->max_burst);
	add_key(&t, "FirstBurstLength=%u", k->first_burst);
	add_key(&t, "MaxOutstandingR2T=%u", k->max_r2t);
	add_key(&t, "MaxConnections=1");
	add_key(&t, "DefaultTime2Wait=2");
	add_key(&t, "DefaultTime2Retain=0");
	add_key(&t, "DataPDUInOrder=Yes");
	add_key(&t, "DataSequenceInOrder=Yes");
	add_key(&t, "ErrorRecoveryLevel=0");
	/* During login there are no digests, whatever was agreed so far. */
	if (run_stage(c, STAGE_OPERATIONAL, STAGE_FULL, &t) != 0)
		return -1;
	if (c->agreed.keys.first_burst > c->agreed.keys.max_burst)
		c->agreed.keys.first_burst = c->agreed.keys.max_burst;
	return 0;
}
