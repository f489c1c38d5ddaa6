/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Encoding and decoding of the admin protocol; the names and texts that both ends share. */
#include "conf/adm_proto.h"
#include "events/bug.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

#define VERSION 1

static const uint8_t req_magic[4] = { 'T', 'G', 'T', 'q' };
static const uint8_t rsp_magic[4] = { 'T', 'G', 'T', 'r' };

/* Tags: numbers first, texts from TAG_TEXT on in the order of enum adm_text. */
enum tag {
	TAG_MODE = 1,
	TAG_OP,
	TAG_DEVICE_TYPE,
	TAG_FORCE,
	TAG_OUTGOING,
	TAG_TID,
	TAG_SID,
	TAG_CID,
	TAG_LUN,
	TAG_HOST,
	TAG_CHECK,
	TAG_JSON,
	TAG_TEXT = 32,
};
#define TAGS (TAG_TEXT + ADM_TEXTS)
_Static_assert(TAGS <= 64, "the set of seen tags is one word");

#define FIELD_HEAD 3

static void put_le(uint8_t *p, uint64_t v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get_le(const uint8_t *p, unsigned n)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < n; i++)
		v |= (uint64_t)p[i] << 8 * i;
	return v;
}

void adm_req_init(struct adm_req *req, enum adm_mode mode, enum adm_op op)
{
	ASSERT(mode < ADM_MODES && op < ADM_OPS);
	*req = (struct adm_req){ .mode = (uint8_t)mode, .op = (uint8_t)op };
}

struct writer {
	uint8_t *buf;
	size_t len, cap;
	bool full;
};

static void write_field(struct writer *w, uint8_t tag, const void *data, size_t len)
{
	if (w->full || len > UINT16_MAX || w->cap - w->len < FIELD_HEAD + len) {
		w->full = true;
		return;
	}
	w->buf[w->len] = tag;
	put_le(w->buf + w->len + 1, len, 2);
	memcpy(w->buf + w->len + FIELD_HEAD, data, len);
	w->len += FIELD_HEAD + len;
}

static void write_number(struct writer *w, uint8_t tag, uint64_t v)
{
	uint8_t le[8];

	put_le(le, v, 8);
	write_field(w, tag, le, sizeof(le));
}

size_t adm_req_encode(const struct adm_req *req, uint8_t *buf, size_t cap)
{
	struct writer w = { .buf = buf, .len = ADM_REQ_HEADER, .cap = cap };

	ASSERT(req->mode < ADM_MODES && req->op < ADM_OPS);
	if (cap < ADM_REQ_HEADER)
		return 0;
	write_number(&w, TAG_MODE, req->mode);
	write_number(&w, TAG_OP, req->op);
	write_number(&w, TAG_DEVICE_TYPE, req->device_type);
	if (req->force)
		write_number(&w, TAG_FORCE, 1);
	if (req->outgoing)
		write_number(&w, TAG_OUTGOING, 1);
	if (req->check)
		write_number(&w, TAG_CHECK, 1);
	if (req->json)
		write_number(&w, TAG_JSON, 1);
	if (req->has_tid)
		write_number(&w, TAG_TID, req->tid);
	if (req->has_sid)
		write_number(&w, TAG_SID, req->sid);
	if (req->has_cid)
		write_number(&w, TAG_CID, req->cid);
	if (req->has_lun)
		write_number(&w, TAG_LUN, req->lun);
	if (req->has_host)
		write_number(&w, TAG_HOST, req->host);
	for (unsigned i = 0; i < ADM_TEXTS; i++)
		if (req->text[i])
			write_field(&w, (uint8_t)(TAG_TEXT + i), req->text[i],
				    strlen(req->text[i]) + 1);
	if (w.full || w.len - ADM_REQ_HEADER > ADM_REQ_MAX)
		return 0;
	memcpy(buf, req_magic, 4);
	put_le(buf + 4, VERSION, 2);
	put_le(buf + 6, 0, 2);
	put_le(buf + 8, w.len - ADM_REQ_HEADER, 4);
	return w.len;
}

int adm_req_header(const uint8_t head[ADM_REQ_HEADER])
{
	uint64_t len = get_le(head + 8, 4);

	if (memcmp(head, req_magic, 4) || get_le(head + 4, 2) != VERSION || get_le(head + 6, 2) ||
	    len > ADM_REQ_MAX)
		return -EPROTO;
	return (int)len;
}

static int take_number(struct adm_req *req, uint8_t tag, uint64_t v)
{
	switch (tag) {
	case TAG_MODE:
		req->mode = (uint8_t)v;
		return v < ADM_MODES ? 0 : -EPROTO;
	case TAG_OP:
		req->op = (uint8_t)v;
		return v < ADM_OPS ? 0 : -EPROTO;
	case TAG_DEVICE_TYPE:
		req->device_type = (uint8_t)v;
		return v <= UINT8_MAX ? 0 : -EPROTO;
	case TAG_FORCE:
		req->force = true;
		return v == 1 ? 0 : -EPROTO;
	case TAG_OUTGOING:
		req->outgoing = true;
		return v == 1 ? 0 : -EPROTO;
	case TAG_CHECK:
		req->check = true;
		return v == 1 ? 0 : -EPROTO;
	case TAG_JSON:
		req->json = true;
		return v == 1 ? 0 : -EPROTO;
	case TAG_TID:
		req->has_tid = true;
		req->tid = (uint32_t)v;
		return v <= INT32_MAX ? 0 : -EPROTO;
	case TAG_SID:
		req->has_sid = true;
		req->sid = v;
		return 0;
	case TAG_CID:
		req->has_cid = true;
		req->cid = (uint32_t)v;
		return v <= UINT32_MAX ? 0 : -EPROTO;
	case TAG_LUN:
		req->has_lun = true;
		req->lun = v;
		return 0;
	case TAG_HOST:
		req->has_host = true;
		req->host = (uint32_t)v;
		return v <= INT32_MAX ? 0 : -EPROTO;
	default:
		return -EPROTO;
	}
}

int adm_req_decode(struct adm_req *req, const uint8_t *fields, size_t len)
{
	uint64_t seen = 0;

	ASSERT(fields || !len);
	*req = (struct adm_req){ 0 };
	while (len) {
		if (len < FIELD_HEAD)
			return -EPROTO;
		uint8_t tag = fields[0];
		size_t n = get_le(fields + 1, 2);
		const uint8_t *data = fields + FIELD_HEAD;

		if (n > len - FIELD_HEAD || tag >= TAGS || (seen & 1ull << tag))
			return -EPROTO;
		seen |= 1ull << tag;
		if (tag >= TAG_TEXT) {
			/* exactly one NUL, and it is the last byte */
			if (!n || memchr(data, 0, n) != data + n - 1)
				return -EPROTO;
			req->text[tag - TAG_TEXT] = (const char *)data;
		} else if (n != 8 || take_number(req, tag, get_le(data, 8))) {
			return -EPROTO;
		}
		fields = data + n;
		len -= FIELD_HEAD + n;
	}
	if (!(seen & 1ull << TAG_MODE) || !(seen & 1ull << TAG_OP))
		return -EPROTO;
	return 0;
}

int adm_store_path(const struct adm_req *req, char *path, size_t len)
{
	const char *found = req->op == ADM_NEW ? req->text[ADM_T_PATH] : NULL;
	size_t n = found ? strlen(found) : 0;

	for (const char *p = req->text[ADM_T_PARAMS]; p; p = *p ? p + 1 : NULL) {
		size_t item = strcspn(p, ",");

		if (!strncmp(p, "path=", 5)) {
			if (found)
				return -ENOENT;
			found = p + 5;
			n = item - 5;
		}
		p += item;
	}
	if (req->mode != ADM_LU || !found)
		return -ENOENT;
	if (n >= len)
		return -ENAMETOOLONG;
	memcpy(path, found, n);
	path[n] = 0;
	return 0;
}

void adm_rsp_encode(uint8_t head[ADM_RSP_HEADER], enum adm_status status, uint32_t text_len,
		    uint32_t detail_len)
{
	ASSERT(status < ADM_STATUSES);
	ASSERT(text_len <= ADM_RSP_MAX && detail_len <= ADM_REQ_MAX);
	memcpy(head, rsp_magic, 4);
	put_le(head + 4, status, 4);
	put_le(head + 8, text_len, 4);
	put_le(head + 12, detail_len, 4);
}

int adm_rsp_decode(const uint8_t head[ADM_RSP_HEADER], enum adm_status *status, uint32_t *text_len,
		   uint32_t *detail_len)
{
	uint64_t s = get_le(head + 4, 4), t = get_le(head + 8, 4), d = get_le(head + 12, 4);

	if (memcmp(head, rsp_magic, 4) || s >= ADM_STATUSES || t > ADM_RSP_MAX || d > ADM_REQ_MAX)
		return -EPROTO;
	*status = (enum adm_status)s;
	*text_len = (uint32_t)t;
	*detail_len = (uint32_t)d;
	return 0;
}

const char *adm_status_text(enum adm_status status)
{
	static const char *const text[ADM_STATUSES] = {
		[ADM_OK] = "success",
		[ADM_UNKNOWN_ERR] = "unknown error",
		[ADM_NOMEM] = "out of memory",
		[ADM_NO_DRIVER] = "can't find the driver",
		[ADM_NO_TARGET] = "can't find the target",
		[ADM_NO_LUN] = "can't find the logical unit",
		[ADM_NO_SESSION] = "can't find the session",
		[ADM_NO_CONNECTION] = "can't find the connection",
		[ADM_NO_BINDING] = "can't find the binding",
		[ADM_TARGET_EXIST] = "this target already exists",
		[ADM_BINDING_EXIST] = "this binding already exists",
		[ADM_LUN_EXIST] = "this logical unit number already exists",
		[ADM_ACL_EXIST] = "this access control rule already exists",
		[ADM_ACL_NOEXIST] = "this access control rule does not exist",
		[ADM_USER_EXIST] = "this account already exists",
		[ADM_NO_USER] = "can't find the account",
		[ADM_TOO_MANY_USER] = "too many accounts",
		[ADM_INVALID_REQUEST] = "invalid request",
		[ADM_OUTACCOUNT_EXIST] = "this target already has an outgoing account",
		[ADM_TARGET_ACTIVE] = "this target is still active",
		[ADM_LUN_ACTIVE] = "this logical unit is still active",
		[ADM_DRIVER_ACTIVE] = "this driver is busy",
		[ADM_UNSUPPORTED] = "this operation isn't supported",
		[ADM_UNKNOWN_PARAM] = "unknown parameter",
		[ADM_NEEDS_FILE] = "this store is for the administrator's tool to open",
		[ADM_PREVENT_REMOVAL] = "this device has Prevent Removal set",
	};

	return (unsigned)status < ADM_STATUSES ? text[status] : "unknown error";
}

struct name {
	const char *text;
	int value;
};

static int find_name(const struct name *names, size_t n, const char *text)
{
	ASSERT(text);
	for (size_t i = 0; i < n; i++)
		if (!strcmp(names[i].text, text))
			return names[i].value;
	return -1;
}

static const char *find_value(const struct name *names, size_t n, int value)
{
	for (size_t i = 0; i < n; i++)
		if (names[i].value == value)
			return names[i].text;
	return "?";
}

static const struct name modes[] = {
	{ "system", ADM_SYSTEM },     { "sys", ADM_SYSTEM },   { "target", ADM_TARGET },
	{ "tgt", ADM_TARGET },	      { "logicalunit", ADM_LU }, { "lu", ADM_LU },
	{ "portal", ADM_PORTAL },     { "pt", ADM_PORTAL },    { "session", ADM_SESSION },
	{ "sess", ADM_SESSION },      { "connection", ADM_CONN }, { "conn", ADM_CONN },
	{ "account", ADM_ACCOUNT },   { "lld", ADM_LLD },      { "cache", ADM_CACHE },
	{ "cluster", ADM_CLUSTER },
};

static const struct name ops[] = {
	{ "new", ADM_NEW },	  { "delete", ADM_DELETE }, { "show", ADM_SHOW },
	{ "bind", ADM_BIND },	  { "unbind", ADM_UNBIND }, { "update", ADM_UPDATE },
	{ "stat", ADM_STAT },	  { "start", ADM_START },   { "stop", ADM_STOP },
	{ "watch", ADM_WATCH },
	{ "latency", ADM_LATENCY }, { "slow", ADM_SLOW },
	{ "explain", ADM_EXPLAIN },
};

static const struct name device_types[] = {
	{ "disk", ADM_TYPE_DISK },	 { "tape", ADM_TYPE_TAPE }, { "ssc", ADM_TYPE_TAPE },
	{ "cd", ADM_TYPE_CD },		 { "changer", ADM_TYPE_CHANGER }, { "osd", ADM_TYPE_OSD },
	{ "pt", ADM_TYPE_PT },
};

int adm_mode_parse(const char *text)
{
	return find_name(modes, ARRAY_SIZE(modes), text);
}

int adm_op_parse(const char *text)
{
	return find_name(ops, ARRAY_SIZE(ops), text);
}

int adm_device_type_parse(const char *text)
{
	return find_name(device_types, ARRAY_SIZE(device_types), text);
}

const char *adm_mode_name(enum adm_mode mode)
{
	return find_value(modes, ARRAY_SIZE(modes), (int)mode);
}

const char *adm_op_name(enum adm_op op)
{
	return find_value(ops, ARRAY_SIZE(ops), (int)op);
}

bool adm_op_looks(enum adm_op op)
{
	return op == ADM_SHOW || op == ADM_STAT || op == ADM_LATENCY || op == ADM_SLOW ||
	       op == ADM_EXPLAIN || op == ADM_WATCH;
}

int adm_socket_path(char *buf, size_t cap, int port, const char *suffix)
{
	const char *prefix = getenv(ADM_SOCKET_ENV);
	int n = snprintf(buf, cap, "%s.%d%s", prefix ? prefix : ADM_SOCKET_PREFIX, port, suffix);

	ASSERT(n < 0 || *suffix == '.' || !*suffix);
	/* a socket's own name must also fit into sockaddr_un */
	if (n < 0 || (size_t)n >= cap ||
	    (!*suffix && (size_t)n >= sizeof(((struct sockaddr_un *)0)->sun_path)))
		return -ENAMETOOLONG;
	return 0;
}
