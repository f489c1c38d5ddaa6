/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgt-bareloop: the bare loop. It answers an initiator with the bytes a target would send, over the
 * same socket calls, and does nothing else: no LU, no tasks, no checks beyond what keeps it in
 * step. What it reaches is the limit of this machine's TCP, against which targets are measured; it
 * stores nothing and must never serve data.
 *
 *   wait (spin) ── one recv, many commands ── an iovec for each answer ── one sendmsg
 *
 * Reads are answered from fixed memory; write data is received into the receive buffer and dropped,
 * which is always the same memory and so stays in the core's cache, unless --spread says how much
 * memory is received into in turn.
 * Tags of commands in flight must differ in their low 12 bits (tgt-load's do; so do those of
 * Linux).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tools/tgt-load/wire.h"

enum {
	CONNS_MAX = 1024,
	TAGS = 4096,
	HDRS = 8192, /* bytes of headers are HDRS * 64 */
	IOV_CAP = 16384,
	IOV_SOFT = IOV_CAP - 1024,
	IOV_CALL = 1024,
	IO_MAX = 16 << 20,
	WINDOW = 1024, /* commands the initiator may have in flight */
	TEXT_MAX = 8192,
	SPIN_LOOK = 1024, /* idle spins between looks at the listening socket */
};

/* Command line. */
static struct {
	struct sockaddr_in addr;
	uint32_t max_recv_segment;
	uint32_t first_burst;
	uint32_t max_burst;
	uint64_t lu_bytes;
	uint64_t memory;
	uint32_t recv_size;
	uint64_t spread;
	uint32_t sndbuf;
	bool block;
	int cpu;
	char congestion[16];
} opt = {
	.max_recv_segment = 256 << 10,
	.first_burst = 256 << 10,
	.max_burst = 1 << 20,
	.lu_bytes = 1ull << 30,
	.memory = IO_MAX,
	.recv_size = 1 << 20,
	.cpu = -1,
};

/* A write whose data is still coming. */
struct wtask {
	uint32_t itt;
	uint32_t len;
	uint32_t got;
	uint32_t due; /* data is owed up to here: unsolicited, then R2T by R2T */
	uint32_t r2t_sn;
	uint8_t lun[8];
	bool active;
};

struct bconn {
	int fd;
	bool full_feature;
	bool hdr_digest, data_digest;
	bool immediate, initial_r2t;
	bool closing;
	bool unsent;
	uint32_t their_segment;
	uint32_t first_burst, max_burst;
	uint32_t stat_sn, exp_cmd_sn;
	uint8_t *rbuf, *rbase;
	size_t rat;
	uint32_t rend;
	uint32_t skip; /* body and tail bytes of the current PDU still to drop */
	struct wtask *on_skip_end;
	uint8_t *hdr;
	uint32_t hdr_n;
	struct iovec *iov;
	unsigned iov_at, iov_n;
	struct wtask *task;
};

static struct bconn *conns[CONNS_MAX];
static unsigned nconn;
static uint8_t *memory;
static volatile sig_atomic_t stopping;

static void on_signal(int sig)
{
	stopping = 1;
}

/* ---- sending
 * ------------------------------------------------------------------------------------- */

static inline void tx_add(struct bconn *c, const void *p, uint32_t n)
{
	struct iovec *last = &c->iov[c->iov_n - 1];

	if (c->iov_n > c->iov_at &&
	    (const uint8_t *)last->iov_base + last->iov_len == (const uint8_t *)p) {
		last->iov_len += n;
		return;
	}
	c->iov[c->iov_n].iov_base = (void *)(uintptr_t)p;
	c->iov[c->iov_n++].iov_len = n;
}

/* A zeroed header to be filled in and handed to tx_pdu(). */
static inline uint8_t *tx_header(struct bconn *c, uint8_t op, uint8_t flags)
{
	uint8_t *h = c->hdr + c->hdr_n;

	memset(h, 0, BHS);
	h[0] = op;
	h[1] = flags;
	return h;
}

static inline void tx_sn(struct bconn *c, uint8_t *h)
{
	put32(h + 28, c->exp_cmd_sn);
	put32(h + 32, c->exp_cmd_sn + WINDOW - 1);
}

static inline void tx_pdu(struct bconn *c, uint8_t *h, const uint8_t *data, uint32_t n)
{
	uint32_t len = BHS, tail = pad4(n);

	put24(h + 5, n);
	if (c->hdr_digest) {
		crc_store(h + BHS, crc_feed(CRC_START, h, BHS));
		len += 4;
	}
	tx_add(c, h, len);
	c->hdr_n += len;
	if (n == 0)
		return;
	tx_add(c, data, n);
	h = c->hdr + c->hdr_n;
	memset(h, 0, tail);
	if (c->data_digest) {
		crc_store(h + tail, crc_feed(crc_feed(CRC_START, data, n), h, tail));
		tail += 4;
	}
	if (tail)
		tx_add(c, h, tail);
	c->hdr_n += tail;
}

static bool tx_room(const struct bconn *c)
{
	return c->iov_n < IOV_SOFT && c->hdr_n < HDRS * 32;
}

/* One sendmsg for all that is queued (more only beyond IOV_CALL pieces). False: connection is dead.
 */
static bool tx_flush(struct bconn *c)
{
	while (c->iov_at < c->iov_n) {
		unsigned n = c->iov_n - c->iov_at;
		struct msghdr m = {.msg_iov = c->iov + c->iov_at,
				   .msg_iovlen = n < IOV_CALL ? n : IOV_CALL};
		ssize_t sent = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0) {
			c->unsent = errno == EAGAIN || errno == EINTR;
			return c->unsent;
		}
		while (sent > 0) {
			struct iovec *v = &c->iov[c->iov_at];

			if ((size_t)sent < v->iov_len) {
				v->iov_base = (uint8_t *)v->iov_base + sent;
				v->iov_len -= (size_t)sent;
				break;
			}
			sent -= (ssize_t)v->iov_len;
			c->iov_at++;
		}
	}
	c->iov_at = c->iov_n = c->hdr_n = 0;
	c->unsent = false;
	return true;
}

/* ---- login
 * --------------------------------------------------------------------------------------- */

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

static void on_login(struct bconn *c, const uint8_t *h, const char *text, uint32_t n)
{
	static char out[TEXT_MAX];
	unsigned stage = h[1] >> 2 & 3, next = h[1] & 3;
	bool hd = false, dd = false;
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
	tx_flush(c); /* `out` is shared and nothing else is under way */
	if (h[1] & LOGIN_TRANSIT && next == 3) {
		c->full_feature = true;
		c->hdr_digest = hd;
		c->data_digest = dd;
	}
}

/* ---- commands
 * ------------------------------------------------------------------------------------ */

static void tx_status(struct bconn *c, uint32_t itt, uint8_t flags, uint32_t residual)
{
	uint8_t *r = tx_header(c, OP_SCSI_RSP, FL_FINAL | flags);

	put32(r + 16, itt);
	put32(r + 24, c->stat_sn++);
	tx_sn(c, r);
	put32(r + 44, residual);
	tx_pdu(c, r, NULL, 0);
}

static inline void tx_data_in(struct bconn *c, const uint8_t *h, const uint8_t *data, uint32_t n)
{
	uint32_t want = get32(h + 20), at = 0, sn = 0;

	if (n > want)
		n = want;
	do {
		uint32_t k = n - at < c->their_segment ? n - at : c->their_segment;
		bool last = at + k == n;
		uint8_t *r = tx_header(c, OP_DATA_IN, last ? FL_FINAL | DIN_STATUS : 0);

		memcpy(r + 16, h + 16, 4);
		put32(r + 20, TAG_NONE);
		if (last) {
			put32(r + 24, c->stat_sn++);
			if (n < want) {
				r[1] |= RSP_UNDERFLOW;
				put32(r + 44, want - n);
			}
		}
		tx_sn(c, r);
		put32(r + 36, sn++);
		put32(r + 40, at);
		tx_pdu(c, r, data + at, k);
		at += k;
	} while (at < n);
}

static void tx_r2t(struct bconn *c, struct wtask *t)
{
	uint32_t n = t->len - t->got < c->max_burst ? t->len - t->got : c->max_burst;
	uint8_t *r = tx_header(c, OP_R2T, FL_FINAL);

	memcpy(r + 8, t->lun, 8);
	put32(r + 16, t->itt);
	put32(r + 20, t->itt);
	put32(r + 24, c->stat_sn);
	tx_sn(c, r);
	put32(r + 36, t->r2t_sn++);
	put32(r + 40, t->got);
	put32(r + 44, n);
	tx_pdu(c, r, NULL, 0);
	t->due = t->got + n;
}

/* What was due has come: ask for more, or done. */
static void write_step(struct bconn *c, struct wtask *t)
{
	if (t->got < t->due)
		return;
	if (t->got < t->len) {
		tx_r2t(c, t);
		return;
	}
	t->active = false;
	tx_status(c, t->itt, 0, 0);
}

static bool on_write(struct bconn *c, const uint8_t *h, uint32_t n)
{
	uint32_t itt = get32(h + 16), len = get32(h + 20), first;
	struct wtask *t = &c->task[itt & (TAGS - 1)];

	if (t->active || len > IO_MAX || n > len)
		return false;
	first = len < c->first_burst ? len : c->first_burst;
	*t = (struct wtask){.itt = itt, .len = len, .got = n, .active = true};
	memcpy(t->lun, h + 8, 8);
	t->due = h[1] & FL_FINAL ? n : first;
	c->on_skip_end = t;
	return true;
}

static const uint8_t *read_place(uint64_t offset, uint32_t n)
{
	/* With memory as large as the LU every block has its own bytes, as in a real target. */
	if (offset + n <= opt.memory)
		return memory + offset;
	return memory + (opt.memory > n ? offset % (opt.memory - n + 1) & ~511ull : 0);
}

static bool on_command(struct bconn *c, const uint8_t *h, uint32_t n)
{
	uint32_t want = get32(h + 20);
	const uint8_t *cdb = h + 32;
	uint8_t small[36] = {0};
	uint32_t small_n;
	uint8_t *keep;

	if (!(h[0] & OP_IMMEDIATE))
		c->exp_cmd_sn++;
	switch (cdb[0]) {
	case CDB_READ_10:
	case CDB_READ_16:
		if (want > IO_MAX)
			return false;
		tx_data_in(c, h,
			   read_place((cdb[0] == CDB_READ_10 ? get32(cdb + 2) : get64(cdb + 2)) *
					      512ull,
				      want),
			   want);
		return true;
	case CDB_WRITE_10:
	case CDB_WRITE_16:
		return on_write(c, h, n);
	case 0x12: /* INQUIRY */
		memcpy(small, "\0\0\5\2\37\0\0\2TGT     BARE LOOP       0001", 36);
		small_n = 36;
		break;
	case 0x25: /* READ CAPACITY(10) */
		put32(small, (uint32_t)(opt.lu_bytes / 512 - 1));
		put32(small + 4, 512);
		small_n = 8;
		break;
	case 0x9e: /* READ CAPACITY(16) */
		put64(small, opt.lu_bytes / 512 - 1);
		put32(small + 8, 512);
		small_n = 32;
		break;
	default:
		tx_status(c, get32(h + 16), want ? RSP_UNDERFLOW : 0, want);
		return true;
	}
	/* These bytes must outlive this call: they lie among the headers. */
	keep = c->hdr + c->hdr_n;
	memcpy(keep, small, small_n);
	c->hdr_n += small_n;
	tx_data_in(c, h, keep, small_n);
	return true;
}

static void on_nop_out(struct bconn *c, const uint8_t *h)
{
	uint8_t *r;

	if (!(h[0] & OP_IMMEDIATE))
		c->exp_cmd_sn++;
	if (get32(h + 16) == TAG_NONE)
		return;
	r = tx_header(c, OP_NOP_IN, FL_FINAL);
	memcpy(r + 16, h + 16, 4);
	put32(r + 20, TAG_NONE);
	put32(r + 24, c->stat_sn++);
	tx_sn(c, r);
	tx_pdu(c, r, NULL, 0);
}

/* ---- receiving
 * ----------------------------------------------------------------------------------- */

/* One PDU header at h, `n` body bytes follow. False: drop the connection. */
static inline bool on_pdu(struct bconn *c, const uint8_t *h, uint32_t n)
{
	struct wtask *t;
	uint8_t *r;

	c->on_skip_end = NULL;
	switch (h[0] & OP_MASK) {
	case OP_SCSI_CMD:
		return on_command(c, h, n);
	case OP_DATA_OUT:
		t = &c->task[get32(h + 16) & (TAGS - 1)];
		if (!t->active || n > t->len - t->got)
			return false;
		t->got += n;
		c->on_skip_end = t;
		return true;
	case OP_NOP_OUT:
		on_nop_out(c, h);
		return true;
	case OP_LOGOUT_REQ:
		r = tx_header(c, OP_LOGOUT_RSP, FL_FINAL);
		memcpy(r + 16, h + 16, 4);
		put32(r + 24, c->stat_sn++);
		tx_sn(c, r);
		tx_pdu(c, r, NULL, 0);
		c->closing = true;
		return true;
	default:
		return false;
	}
}

/* Parse what lies in rbuf in place. False: drop the connection. */
static bool parse(struct bconn *c)
{
	uint8_t *p = c->rbuf, *end = c->rbuf + c->rend;

	while (!c->closing && tx_room(c)) {
		uint32_t have = (uint32_t)(end - p), need, n, body;

		if (c->skip > 0 || c->on_skip_end) {
			n = have < c->skip ? have : c->skip;
			c->skip -= n;
			p += n;
			if (c->skip > 0)
				break;
			if (c->on_skip_end) {
				write_step(c, c->on_skip_end);
				c->on_skip_end = NULL;
			}
			continue;
		}
		if (have < BHS)
			break;
		need = BHS + 4u * p[4] + (c->hdr_digest ? 4 : 0);
		n = get24(p + 5);
		body = n + pad4(n);
		if (!c->full_feature) {
			if (have < need + body)
				break;
			if ((p[0] & OP_MASK) != OP_LOGIN_REQ || n > TEXT_MAX ||
			    (n > 0 && p[need + n - 1] != 0))
				return false;
			on_login(c, p, (const char *)p + need, n);
			p += need + body;
			continue;
		}
		if (have < need)
			break;
		if (c->hdr_digest && !crc_equal(p + need - 4, crc_feed(CRC_START, p, need - 4)))
			return false;
		if (!on_pdu(c, p, n))
			return false;
		p += need;
		if (n > 0)
			c->skip = body + (c->data_digest ? 4 : 0);
	}
	c->rend = (uint32_t)(end - p);
	if (c->rend > 0 && p != c->rbuf)
		memmove(c->rbuf, p, c->rend);
	return true;
}

/* One recv, parse, one sendmsg. False: close it. *some is set when anything came. */
static bool serve(struct bconn *c, bool *some)
{
	ssize_t n;

	if (c->unsent) {
		if (!tx_flush(c))
			return false;
		if (c->unsent)
			return true;
		*some = true;
		if (c->rend > 0 && (!parse(c) || !tx_flush(c)))
			return false;
	}
	if (c->rend == 0 && opt.spread) {
		c->rat = c->rat + 2 * opt.recv_size <= opt.spread ? c->rat + opt.recv_size : 0;
		c->rbuf = c->rbase + c->rat;
	}
	n = recv(c->fd, c->rbuf + c->rend, opt.recv_size - c->rend, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0)
		return false;
	*some = true;
	c->rend += (uint32_t)n;
	return parse(c) && tx_flush(c) && !(c->closing && !c->unsent);
}

/* ---- connections
 * --------------------------------------------------------------------------------- */

static void bconn_free(struct bconn *c)
{
	close(c->fd);
	free(c->rbase);
	free(c->hdr);
	free(c->iov);
	free(c->task);
	free(c);
}

static void accept_one(int lfd, int epfd)
{
	int one = 1, fd = accept4(lfd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct epoll_event e = {.events = EPOLLIN};
	struct bconn *c;

	if (fd < 0)
		return;
	c = calloc(1, sizeof(*c));
	if (!c || nconn == CONNS_MAX) {
		free(c);
		close(fd);
		return;
	}
	c->fd = fd;
	c->stat_sn = 1;
	c->their_segment = 8192;
	c->rbase = malloc(opt.spread > opt.recv_size ? opt.spread : opt.recv_size);
	c->rbuf = c->rbase;
	c->hdr = malloc(HDRS * 64);
	c->iov = malloc(IOV_CAP * sizeof(*c->iov));
	c->task = calloc(TAGS, sizeof(*c->task));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (opt.sndbuf)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &opt.sndbuf, sizeof(opt.sndbuf));
	if (opt.congestion[0])
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, opt.congestion,
			   (socklen_t)strlen(opt.congestion));
	e.data.ptr = c;
	if (!c->rbuf || !c->hdr || !c->iov || !c->task ||
	    epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &e) != 0) {
		bconn_free(c);
		return;
	}
	conns[nconn++] = c;
}

static void drop(struct bconn *c)
{
	for (unsigned i = 0; i < nconn; i++) {
		if (conns[i] == c) {
			conns[i] = conns[--nconn];
			break;
		}
	}
	bconn_free(c);
}

/* Whether any connection waits for its socket to take more. */
static bool any_unsent(void)
{
	for (unsigned i = 0; i < nconn; i++)
		if (conns[i]->unsent)
			return true;
	return false;
}

static void run(int lfd, int epfd)
{
	struct epoll_event e[64];
	unsigned idle = 0;

	while (!stopping) {
		int n;

		if (nconn == 1 && !opt.block && ++idle % SPIN_LOOK != 0) {
			bool some = false;

			if (!serve(conns[0], &some))
				drop(conns[0]);
			if (some)
				idle = 0;
			continue;
		}
		n = epoll_wait(epfd, e, 64, nconn == 0 || (opt.block && !any_unsent()) ? -1 : 0);
		for (unsigned i = nconn; i-- > 0;)
			if (conns[i]->unsent && !serve(conns[i], &(bool){false}))
				drop(conns[i]), n = 0;
		for (int k = 0; k < n; k++) {
			bool some = false;

			if (!e[k].data.ptr)
				accept_one(lfd, epfd);
			else if (!serve(e[k].data.ptr, &some))
				drop(e[k].data.ptr);
		}
	}
}

/* ---- start
 * --------------------------------------------------------------------------------------- */

static uint64_t size_arg(const char *s)
{
	char *end;
	uint64_t v = strtoull(s, &end, 10);

	switch (*end | 0x20) {
	case 'g':
		return v << 30;
	case 'm':
		return v << 20;
	case 'k':
		return v << 10;
	default:
		return v;
	}
}

static int usage(int rc)
{
	fputs("usage: tgt-bareloop [--portal ADDR:PORT] [--cpu N] [--memory SIZE] [--size SIZE]\n"
	      "                    [--recv-size SIZE] [--spread SIZE] [--sndbuf SIZE] [--congestion NAME] [--wait "
	      "spin|block]\n"
	      "                    [--first-burst SIZE] [--max-burst SIZE] [--max-recv-segment "
	      "SIZE]\n",
	      rc ? stderr : stdout);
	return rc;
}

static int options(int argc, char **argv)
{
	static const struct option longs[] = {
		{"portal", required_argument, NULL, 'p'},
		{"cpu", required_argument, NULL, 'c'},
		{"memory", required_argument, NULL, 'm'},
		{"size", required_argument, NULL, 's'},
		{"recv-size", required_argument, NULL, 'r'},
		{"spread", required_argument, NULL, 'S'},
		{"sndbuf", required_argument, NULL, 'b'},
		{"congestion", required_argument, NULL, 'g'},
		{"wait", required_argument, NULL, 'w'},
		{"first-burst", required_argument, NULL, 'f'},
		{"max-burst", required_argument, NULL, 'x'},
		{"max-recv-segment", required_argument, NULL, 'y'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	char host[64] = "127.0.0.1";
	unsigned port = 3260;
	int o;

	while ((o = getopt_long(argc, argv, "p:c:h", longs, NULL)) != -1) {
		switch (o) {
		case 'p':
			if (sscanf(optarg, "%63[0-9.]:%u", host, &port) != 2)
				return usage(2);
			break;
		case 'c':
			opt.cpu = atoi(optarg);
			break;
		case 'm':
			opt.memory = size_arg(optarg);
			break;
		case 's':
			opt.lu_bytes = size_arg(optarg);
			break;
		case 'r':
			opt.recv_size = (uint32_t)size_arg(optarg);
			break;
		case 'S':
			opt.spread = size_arg(optarg);
			break;
		case 'b':
			opt.sndbuf = (uint32_t)size_arg(optarg);
			break;
		case 'g':
			snprintf(opt.congestion, sizeof(opt.congestion), "%s", optarg);
			break;
		case 'w':
			opt.block = strcmp(optarg, "block") == 0;
			break;
		case 'f':
			opt.first_burst = (uint32_t)size_arg(optarg);
			break;
		case 'x':
			opt.max_burst = (uint32_t)size_arg(optarg);
			break;
		case 'y':
			opt.max_recv_segment = (uint32_t)size_arg(optarg);
			break;
		case 'h':
			usage(0);
			exit(0);
		default:
			return usage(2);
		}
	}
	if (optind != argc || opt.memory < IO_MAX || opt.lu_bytes < 1 << 20 ||
	    opt.recv_size < 16384 || opt.max_recv_segment < 512 ||
	    opt.max_recv_segment > 0xffffff || port == 0 || port > 65535)
		return usage(2);
	opt.addr.sin_family = AF_INET;
	opt.addr.sin_port = htons((uint16_t)port);
	return inet_pton(AF_INET, host, &opt.addr.sin_addr) == 1 ? 0 : usage(2);
}

static int die(const char *what)
{
	fprintf(stderr, "tgt-bareloop: %s: %s\n", what, strerror(errno));
	return 1;
}

int main(int argc, char **argv)
{
	struct epoll_event e = {.events = EPOLLIN};
	int one = 1, lfd, epfd, rc = options(argc, argv);

	if (rc)
		return rc;
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	if (opt.cpu >= 0) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(opt.cpu, &set);
		if (sched_setaffinity(0, sizeof(set), &set) != 0)
			return die("--cpu");
	}
	memory = mmap(NULL, opt.memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return die("memory");
	madvise(memory, opt.memory, MADV_HUGEPAGE);
	memset(memory, 0x5a, opt.memory);
	lfd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (lfd < 0 || setsockopt(lfd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
	    bind(lfd, (struct sockaddr *)&opt.addr, sizeof(opt.addr)) != 0 || listen(lfd, 128) != 0)
		return die("portal");
	epfd = epoll_create1(EPOLL_CLOEXEC);
	if (epfd < 0 || epoll_ctl(epfd, EPOLL_CTL_ADD, lfd, &e) != 0)
		return die("epoll");
	run(lfd, epfd);
	while (nconn > 0)
		drop(conns[0]);
	munmap(memory, opt.memory);
	close(epfd);
	close(lfd);
	return 0;
}
