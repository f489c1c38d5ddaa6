/* SPDX-License-Identifier: GPL-2.0-or-later */
/* conf/adm_proto.c: what one end writes the other reads, and nothing
 * else is taken for a request. */
#include <stdlib.h>

#include "conf/adm_proto.h"
#include "tests/support/unit.h"

static uint8_t buf[ADM_REQ_HEADER + ADM_REQ_MAX];

static struct adm_req full(void)
{
	struct adm_req r;

	adm_req_init(&r, ADM_LU, ADM_UPDATE);
	r.device_type = ADM_TYPE_PT;
	r.force = r.outgoing = true;
	r.has_tid = r.has_sid = r.has_cid = r.has_lun = r.has_host = true;
	r.tid = INT32_MAX;
	r.cid = UINT32_MAX;
	r.host = 7;
	r.sid = UINT64_MAX;
	r.lun = 1ull << 40;
	for (unsigned i = 0; i < ADM_TEXTS; i++)
		r.text[i] = i % 3 ? "a text, with = and \n" : "";
	return r;
}

START_TEST(everything_comes_back)
{
	struct adm_req r = full(), got;
	size_t n = adm_req_encode(&r, buf, sizeof(buf));

	ck_assert_uint_gt(n, ADM_REQ_HEADER);
	ck_assert_int_eq(adm_req_header(buf), (int)n - ADM_REQ_HEADER);
	ck_assert_int_eq(adm_req_decode(&got, buf + ADM_REQ_HEADER, n - ADM_REQ_HEADER), 0);
	ck_assert_int_eq(got.mode, r.mode);
	ck_assert_int_eq(got.op, r.op);
	ck_assert_int_eq(got.device_type, r.device_type);
	ck_assert(got.force && got.outgoing && got.has_tid && got.has_sid && got.has_cid &&
		  got.has_lun && got.has_host);
	ck_assert_uint_eq(got.tid, r.tid);
	ck_assert_uint_eq(got.sid, r.sid);
	ck_assert_uint_eq(got.cid, r.cid);
	ck_assert_uint_eq(got.lun, r.lun);
	ck_assert_uint_eq(got.host, r.host);
	for (unsigned i = 0; i < ADM_TEXTS; i++)
		ck_assert_str_eq(got.text[i], r.text[i]);
}
END_TEST

START_TEST(what_is_absent_stays_absent)
{
	struct adm_req r, got;
	size_t n;

	adm_req_init(&r, ADM_TARGET, ADM_SHOW);
	n = adm_req_encode(&r, buf, sizeof(buf));
	ck_assert_int_eq(adm_req_decode(&got, buf + ADM_REQ_HEADER, n - ADM_REQ_HEADER), 0);
	ck_assert(!got.has_tid && !got.has_sid && !got.has_cid && !got.has_lun && !got.has_host &&
		  !got.force && !got.outgoing);
	for (unsigned i = 0; i < ADM_TEXTS; i++)
		ck_assert_ptr_null(got.text[i]);
}
END_TEST

/* No prefix of a request is a request, except where a field ends and mode and op have been read. */
START_TEST(cut_short)
{
	struct adm_req r = full(), got;
	size_t n = adm_req_encode(&r, buf, sizeof(buf)) - ADM_REQ_HEADER, taken = 0;

	for (size_t len = 0; len < n; len++)
		taken += adm_req_decode(&got, buf + ADM_REQ_HEADER, len) == 0;
	/* ends of fields from the second on: 8 numbers and flags, ADM_TEXTS
	 * texts, less the complete one */
	ck_assert_uint_eq(taken, 10 - 1 + ADM_TEXTS - 1);
}
END_TEST

START_TEST(does_not_fit)
{
	struct adm_req r;
	char *big = malloc(ADM_REQ_MAX + 1);

	memset(big, 'x', ADM_REQ_MAX);
	big[ADM_REQ_MAX] = 0;
	adm_req_init(&r, ADM_TARGET, ADM_NEW);
	r.text[ADM_T_TARGETNAME] = big;
	ck_assert_uint_eq(adm_req_encode(&r, buf, sizeof(buf)), 0);
	big[30000] = 0;
	ck_assert_uint_gt(adm_req_encode(&r, buf, sizeof(buf)), 30000);
	ck_assert_uint_eq(adm_req_encode(&r, buf, 30000), 0);
	ck_assert_uint_eq(adm_req_encode(&r, buf, 4), 0);
	/* each fits, together they do not */
	r.text[ADM_T_NAME] = r.text[ADM_T_VALUE] = big;
	ck_assert_uint_eq(adm_req_encode(&r, buf, sizeof(buf)), 0);
	free(big);
}
END_TEST

#define HEAD(mode, op) 1, 8, 0, mode, 0, 0, 0, 0, 0, 0, 0, 2, 8, 0, op, 0, 0, 0, 0, 0, 0, 0

static const struct bad {
	const char *why;
	size_t len;
	uint8_t bytes[64];
} bad[] = {
	{ "nothing", 0, { 0 } },
	{ "no op", 11, { 1, 8, 0, 1, 0, 0, 0, 0, 0, 0, 0 } },
	{ "mode out of range", 22, { HEAD(200, 1) } },
	{ "op out of range", 22, { HEAD(1, 200) } },
	{ "a tag twice", 33, { HEAD(1, 1), 1, 8, 0, 1 } },
	{ "unknown number tag", 33, { HEAD(1, 1), 20, 8, 0, 1 } },
	{ "tag 0", 33, { HEAD(1, 1), 0, 8, 0, 1 } },
	{ "unknown text tag", 26, { HEAD(1, 1), 60, 1, 0, 0 } },
	{ "tag beyond all", 26, { HEAD(1, 1), 255, 1, 0, 0 } },
	{ "short number", 29, { HEAD(1, 1), 6, 4, 0, 1, 0, 0, 0 } },
	{ "negative tid", 33, { HEAD(1, 1), 6, 8, 0, 255, 255, 255, 255, 255, 255, 255, 255 } },
	{ "flag that is 2", 33, { HEAD(1, 1), 4, 8, 0, 2 } },
	{ "text without NUL", 26, { HEAD(1, 1), 32, 1, 0, 'x' } },
	{ "empty text field", 25, { HEAD(1, 1), 32, 0, 0 } },
	{ "NUL inside", 28, { HEAD(1, 1), 32, 3, 0, 'x', 0, 'y' } },
	{ "two NULs", 27, { HEAD(1, 1), 32, 2, 0, 0, 0 } },
	{ "field longer than the request", 27, { HEAD(1, 1), 32, 200, 0, 'x', 0 } },
	{ "half a field head", 24, { HEAD(1, 1), 32, 1 } },
};

START_TEST(bad_fields)
{
	struct adm_req got;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		/* exact allocation: the sanitizer sees a read behind the end */
		uint8_t *p = malloc(bad[i].len ? bad[i].len : 1);

		memcpy(p, bad[i].bytes, bad[i].len);
		ck_assert_msg(adm_req_decode(&got, p, bad[i].len) == -EPROTO, "%s was taken",
			      bad[i].why);
		free(p);
	}
	static const uint8_t good[] = { HEAD(1, 1) };

	ck_assert_int_eq(adm_req_decode(&got, good, sizeof(good)), 0);
}
END_TEST

START_TEST(bad_headers)
{
	struct adm_req r;
	uint8_t head[ADM_REQ_HEADER];

	adm_req_init(&r, ADM_TARGET, ADM_SHOW);
	ck_assert_uint_gt(adm_req_encode(&r, buf, sizeof(buf)), 0);
	for (unsigned i = 0; i < 8; i++) {
		memcpy(head, buf, sizeof(head));
		head[i] ^= 0x10;
		ck_assert_int_eq(adm_req_header(head), -EPROTO);
	}
	memcpy(head, buf, sizeof(head));
	head[10] = 1; /* 65536 and some */
	ck_assert_int_eq(adm_req_header(head), -EPROTO);
	head[11] = 0xff; /* negative, if it were an int */
	ck_assert_int_eq(adm_req_header(head), -EPROTO);
}
END_TEST

START_TEST(answers)
{
	uint8_t head[ADM_RSP_HEADER];
	enum adm_status status;
	uint32_t text, detail;

	for (unsigned s = 0; s < ADM_STATUSES; s++) {
		adm_rsp_encode(head, (enum adm_status)s, 70000, 33);
		ck_assert_int_eq(adm_rsp_decode(head, &status, &text, &detail), 0);
		ck_assert_uint_eq(status, s);
		ck_assert_uint_eq(text, 70000);
		ck_assert_uint_eq(detail, 33);
		ck_assert_ptr_nonnull(adm_status_text(status));
	}
	/* What the encoder is never asked for: in little endian, one beyond what each may be. */
	adm_rsp_encode(head, ADM_OK, 0, 0);
	head[4] = ADM_STATUSES;
	ck_assert_int_eq(adm_rsp_decode(head, &status, &text, &detail), -EPROTO);
	adm_rsp_encode(head, ADM_OK, ADM_RSP_MAX, 0);
	ck_assert_int_eq(adm_rsp_decode(head, &status, &text, &detail), 0);
	head[8]++;
	ck_assert_int_eq(adm_rsp_decode(head, &status, &text, &detail), -EPROTO);
	adm_rsp_encode(head, ADM_OK, 0, ADM_REQ_MAX);
	ck_assert_int_eq(adm_rsp_decode(head, &status, &text, &detail), 0);
	head[12]++;
	ck_assert_int_eq(adm_rsp_decode(head, &status, &text, &detail), -EPROTO);
	head[0] = 'x';
	ck_assert_int_eq(adm_rsp_decode(head, &status, &text, &detail), -EPROTO);
}
END_TEST

START_TEST(names)
{
	static const struct {
		const char *text;
		int mode;
	} modes[] = {
		{ "system", ADM_SYSTEM },
		{ "sys", ADM_SYSTEM },
		{ "target", ADM_TARGET },
		{ "tgt", ADM_TARGET },
		{ "logicalunit", ADM_LU },
		{ "lu", ADM_LU },
		{ "portal", ADM_PORTAL },
		{ "pt", ADM_PORTAL },
		{ "session", ADM_SESSION },
		{ "sess", ADM_SESSION },
		{ "connection", ADM_CONN },
		{ "conn", ADM_CONN },
		{ "account", ADM_ACCOUNT },
		{ "lld", ADM_LLD },
		{ "cache", ADM_CACHE },
		{ "Target", -1 },
		{ "", -1 },
		{ "targets", -1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
		ck_assert_int_eq(adm_mode_parse(modes[i].text), modes[i].mode);
	for (unsigned op = 0; op < ADM_OPS; op++)
		ck_assert_int_eq(adm_op_parse(adm_op_name((enum adm_op)op)), (int)op);
	for (unsigned m = 0; m < ADM_MODES; m++)
		ck_assert_int_eq(adm_mode_parse(adm_mode_name((enum adm_mode)m)), (int)m);
	ck_assert_int_eq(adm_op_parse("stats"), -1);
	ck_assert_int_eq(adm_device_type_parse("disk"), ADM_TYPE_DISK);
	ck_assert_int_eq(adm_device_type_parse("ssc"), ADM_TYPE_TAPE);
	ck_assert_int_eq(adm_device_type_parse("floppy"), -1);
}
END_TEST

START_TEST(socket_path)
{
	char path[512], *big = calloc(1, 300);

	unsetenv(ADM_SOCKET_ENV);
	ck_assert_int_eq(adm_socket_path(path, sizeof(path), 7, ""), 0);
	ck_assert_str_eq(path, "/var/run/tgtd/socket.7");
	setenv(ADM_SOCKET_ENV, "/tmp/x", 1);
	ck_assert_int_eq(adm_socket_path(path, sizeof(path), 0, ".lock"), 0);
	ck_assert_str_eq(path, "/tmp/x.0.lock");
	memset(big, 'a', 108);
	setenv(ADM_SOCKET_ENV, big, 1);
	/* fits the buffer, not sockaddr_un */
	ck_assert_int_eq(adm_socket_path(path, sizeof(path), 0, ""), -ENAMETOOLONG);
	ck_assert_int_eq(adm_socket_path(path, 20, 0, ".lock"), -ENAMETOOLONG);
	free(big);
}
END_TEST

UNIT_MAIN("adm_proto", 10, everything_comes_back, what_is_absent_stays_absent, cut_short,
	  does_not_fit, bad_fields, bad_headers, answers, names, socket_path)
