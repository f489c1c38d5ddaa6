/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Persistent reservations: every service action, access by type, aborting, the state file. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "events/bytes.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"
#include "tgtd/scsi/commands/init.h"
#include "tgtd/scsi/commands/pr.h"
#include "tgtd/scsi/lu.h"
#include "tgtd/state/journal.h"

static struct host h;
static struct host_nexus *a, *b, *c;

enum { REGISTER, RESERVE, RELEASE, CLEAR, PREEMPT, PREEMPT_ABORT, REGISTER_IGNORE, MOVE };

static const char *prout(struct host_nexus *n, int sa, int type, uint64_t key, uint64_t sa_key,
			 int flags)
{
	uint8_t cdb[10] = { 0x5f, (uint8_t)sa, (uint8_t)type, 0, 0, 0, 0, 0, 24, 0 }, p[24] = { 0 };

	put_be64(p, key);
	put_be64(p + 8, sa_key);
	p[20] = (uint8_t)flags;
	host_out(n, 1, cdb, 10, p, 24);
	return host_result(n);
}

static unsigned nkeys(struct host_nexus *n)
{
	host_in(n, 1, (uint8_t[]){ 0x5e, 0, 0, 0, 0, 0, 0, 4, 0, 0 }, 10, 1024);
	ck_assert_str_eq(host_result(n), "good");
	return get_be32(n->in + 4) / 8;
}

/* "type key" of the reservation, or "none". */
static const char *reservation(struct host_nexus *n)
{
	static char text[40];

	host_in(n, 1, (uint8_t[]){ 0x5e, 1, 0, 0, 0, 0, 0, 4, 0, 0 }, 10, 1024);
	ck_assert_str_eq(host_result(n), "good");
	if (get_be32(n->in + 4) == 0)
		return "none";
	snprintf(text, sizeof(text), "%u %llx", n->in[21], (unsigned long long)get_be64(n->in + 8));
	return text;
}

static const char *rd(struct host_nexus *n)
{
	host_read10(n, 0, 1);
	return host_result(n);
}

static const char *wr(struct host_nexus *n)
{
	uint8_t data[512] = { 0 };

	host_write10(n, 0, 1, data, 512);
	return host_result(n);
}

static const char *tur(struct host_nexus *n)
{
	host_tur(n, 1);
	return host_result(n);
}

static void open3(void)
{
	host_open(&h, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
	c = host_login_ready(&h, "iqn.c");
}

START_TEST(registering)
{
	open3();
	ck_assert_str_eq(prout(a, REGISTER, 0, 5, 1, 0), "conflict"); /* wrong existing key */
	ck_assert_str_eq(prout(a, REGISTER, 0, 0, 0, 0), "good");     /* nothing */
	ck_assert_uint_eq(nkeys(a), 0);
	ck_assert_str_eq(prout(a, REGISTER, 0, 0, 0xa, 0), "good");
	ck_assert_str_eq(prout(a, REGISTER, 0, 0, 0xb, 0), "conflict");
	ck_assert_str_eq(prout(a, REGISTER, 0, 0xa, 0xaa, 0), "good");
	ck_assert_str_eq(prout(b, REGISTER_IGNORE, 0, 77, 0xb, 0), "good");
	ck_assert_uint_eq(nkeys(c), 2);
	ck_assert_uint_eq(get_be32(c->in), 3); /* generation */
	ck_assert_uint_eq(get_be64(c->in + 8), 0xaa);
	ck_assert_str_eq(prout(a, REGISTER, 0, 0xaa, 0, 0), "good");
	ck_assert_uint_eq(nkeys(c), 1);
	/* it outlives the session */
	host_logout(b);
	b = host_login_ready(&h, "iqn.b");
	ck_assert_str_eq(prout(b, RESERVE, 1, 0xb, 0, 0), "good");
	ck_assert_str_eq(reservation(b), "1 b");
	/* those who are not registered may do nothing else */
	for (int sa = RESERVE; sa <= PREEMPT_ABORT; sa++)
		ck_assert_str_eq(prout(c, sa, 1, 0xb, 0xb, 0), "conflict");
	ck_assert_str_eq(prout(b, RESERVE, 2, 0xb, 0, 0), "05/24/00");
	ck_assert_str_eq(prout(b, RESERVE, 0x11, 0xb, 0, 0), "05/24/00");
	/* APTPL without a place for it */
	ck_assert_str_eq(prout(b, REGISTER, 0, 0xb, 0xb, 1), "05/26/00");
	host_close(&h);
}
END_TEST

START_TEST(access_by_type)
{
	/* what an unregistered nexus, and a registered one that does not hold, may do */
	static const struct { int type; const char *rd, *wr, *reg_rd, *reg_wr;
	} t[] = {
		{ 1, "good", "conflict", "good", "conflict" },
		{ 3, "conflict", "conflict", "conflict", "conflict" },
		{ 5, "good", "conflict", "good", "good" },
		{ 6, "conflict", "conflict", "good", "good" },
		{ 7, "good", "conflict", "good", "good" },
		{ 8, "conflict", "conflict", "good", "good" },
	};

	open3();
	prout(a, REGISTER, 0, 0, 0xa, 0);
	prout(b, REGISTER, 0, 0, 0xb, 0);
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		ck_assert_str_eq(prout(a, RESERVE, t[i].type, 0xa, 0, 0), "good");
		ck_assert_str_eq(rd(a), "good");
		ck_assert_str_eq(wr(a), "good");
		ck_assert_str_eq(rd(b), t[i].reg_rd);
		ck_assert_str_eq(wr(b), t[i].reg_wr);
		ck_assert_str_eq(rd(c), t[i].rd);
		ck_assert_str_eq(wr(c), t[i].wr);
		ck_assert_str_eq(tur(c), "good");
		/* an initiator that comes later, too */
		struct host_nexus *d = host_login_ready(&h, "iqn.d");
		ck_assert_str_eq(wr(d), "conflict");
		host_logout(d);
		ck_assert_str_eq(prout(a, RELEASE, t[i].type == 1 ? 3 : 1, 0xa, 0, 0), "05/26/04");
		ck_assert_str_eq(prout(a, RELEASE, t[i].type, 0xa, 0, 0), "good");
		ck_assert_str_eq(tur(b), t[i].type >= 5 ? "06/2a/04" : "good");
		ck_assert_str_eq(reservation(a), "none");
		ck_assert_str_eq(wr(c), "good");
	}
	host_close(&h);
}
END_TEST

START_TEST(all_registrants)
{
	open3();
	prout(a, REGISTER, 0, 0, 0xa, 0);
	prout(b, REGISTER, 0, 0, 0xb, 0);
	ck_assert_str_eq(prout(a, RESERVE, 7, 0xa, 0, 0), "good");
	ck_assert_str_eq(reservation(c), "7 0");
	ck_assert_str_eq(prout(b, RESERVE, 7, 0xb, 0, 0), "good"); /* holds it as well */
	ck_assert_str_eq(prout(a, REGISTER, 0, 0xa, 0, 0), "good");
	ck_assert_str_eq(reservation(c), "7 0");
	ck_assert_str_eq(prout(b, REGISTER, 0, 0xb, 0, 0), "good"); /* the last one */
	ck_assert_str_eq(reservation(c), "none");
	host_close(&h);
}
END_TEST

START_TEST(preempting)
{
	open3();
	prout(a, REGISTER, 0, 0, 0xa, 0);
	prout(b, REGISTER, 0, 0, 0xb, 0);
	prout(c, REGISTER, 0, 0, 0xb, 0); /* the same key as b */
	ck_assert_str_eq(prout(a, RESERVE, 5, 0xa, 0, 0), "good");
	ck_assert_str_eq(prout(b, PREEMPT, 1, 0xb, 0, 0), "05/26/00");
	ck_assert_str_eq(prout(b, PREEMPT, 1, 0xb, 0x77, 0), "conflict");
	ck_assert_str_eq(prout(b, PREEMPT, 1, 0xb, 0xa, 0), "good");
	ck_assert_str_eq(reservation(b), "1 b");
	ck_assert_uint_eq(nkeys(b), 2);
	ck_assert_str_eq(tur(a), "06/2a/05");
	ck_assert_str_eq(tur(c), "06/2a/04"); /* was a registrants' type, is no longer */
	ck_assert_str_eq(wr(c), "conflict");
	/* registrations only */
	prout(a, REGISTER, 0, 0, 0xa, 0);
	ck_assert_str_eq(prout(b, PREEMPT, 1, 0xb, 0xa, 0), "good");
	ck_assert_str_eq(tur(a), "06/2a/05");
	ck_assert_str_eq(reservation(b), "1 b");
	/* CLEAR */
	prout(a, REGISTER, 0, 0, 0xa, 0);
	ck_assert_str_eq(prout(a, CLEAR, 0, 0xa, 0, 0), "good");
	ck_assert_uint_eq(nkeys(a), 0);
	ck_assert_str_eq(reservation(a), "none");
	ck_assert_str_eq(tur(b), "06/2a/03");
	ck_assert_str_eq(tur(a), "good");
	/* all registrants: zero means all of them */
	host_logout(c);
	prout(a, REGISTER, 0, 0, 0xa, 0);
	prout(b, REGISTER, 0, 0, 0xb, 0);
	prout(b, RESERVE, 8, 0xb, 0, 0);
	ck_assert_str_eq(prout(a, PREEMPT, 3, 0xa, 0, 0), "good");
	ck_assert_str_eq(reservation(a), "3 a");
	ck_assert_uint_eq(nkeys(a), 1);
	host_close(&h);
}
END_TEST

START_TEST(preempt_and_abort)
{
	struct host_cmd *cmd;
	uint8_t data[512];

	memset(data, 'x', sizeof(data));
	open3();
	prout(a, REGISTER, 0, 0, 0xa, 0);
	prout(b, REGISTER, 0, 0, 0xb, 0);
	prout(b, RESERVE, 6, 0xb, 0, 0);
	b->hold_fetch = true;
	cmd = host_start(b, 1ull << 48, (uint8_t[]){ 0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0 }, 10, false,
			 data, 512);
	host_steps(&h, 3);
	ck_assert(!cmd->completed);
	ck_assert_str_eq(prout(a, PREEMPT_ABORT, 6, 0xa, 0xb, 0), "good");
	ck_assert(cmd->ended); /* before the answer */
	ck_assert_uint_eq(cmd->status, SAM_TASK_ABORTED);
	host_finish(cmd);
	b->hold_fetch = false;
	ck_assert_str_eq(reservation(a), "6 a");
	ck_assert_str_eq(tur(b), "06/2a/05");
	ck_assert_str_eq(rd(b), "conflict");
	ck_assert_str_eq(rd(a), "good");
	ck_assert_uint_eq(a->in[0], 0);
	host_close(&h);
}
END_TEST

/* What cannot be saved is told, but it is done, and that is all of it: who was preempted writes no
 * more. */
START_TEST(preempt_and_abort_unsaved)
{
	struct host_cmd *cmd;
	uint8_t data[512];

	memset(data, 'x', sizeof(data));
	scsi_set_state_dir("/proc/nowhere");
	open3();
	ck_assert_str_eq(prout(a, REGISTER, 0, 0, 0xa, 1), "04/44/00");
	ck_assert_str_eq(prout(b, REGISTER, 0, 0, 0xb, 1), "04/44/00");
	ck_assert_str_eq(prout(b, RESERVE, 6, 0xb, 0, 0), "04/44/00");
	b->hold_fetch = true;
	cmd = host_start(b, 1ull << 48, (uint8_t[]){ 0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0 }, 10, false,
			 data, 512);
	host_steps(&h, 3);
	ck_assert(!cmd->completed);
	ck_assert_str_eq(prout(a, PREEMPT_ABORT, 6, 0xa, 0xb, 0), "04/44/00");
	ck_assert_str_eq(reservation(a), "6 a");
	host_steps(&h, 10);
	ck_assert(cmd->ended);
	ck_assert_uint_eq(cmd->status, SAM_TASK_ABORTED);
	host_finish(cmd);
	b->hold_fetch = false;
	ck_assert_str_eq(rd(a), "good");
	ck_assert_uint_eq(a->in[0], 0);
	host_close(&h);
	scsi_set_state_dir(NULL);
}
END_TEST

static size_t transport_id(uint8_t *p, const char *name)
{
	size_t n = ALIGN_UP(strlen(name) + 1, (size_t)4);

	n = MAX(n, (size_t)20);
	memset(p, 0, 4 + n);
	p[0] = strstr(name, ",i,") ? 0x45 : 0x05;
	put_be16(p + 2, (uint16_t)n);
	memcpy(p + 4, name, strlen(name));
	return 4 + n;
}

static const char *prout_ids(struct host_nexus *n, uint64_t key, uint64_t sa_key, const char *x,
			     const char *y)
{
	uint8_t p[512] = { 0 }, cdb[10] = { 0x5f };
	size_t len = 28;

	put_be64(p, key);
	put_be64(p + 8, sa_key);
	p[20] = 0x08;
	len += transport_id(p + len, x);
	if (y)
		len += transport_id(p + len, y);
	put_be32(p + 24, (uint32_t)len - 28);
	put_be32(cdb + 5, (uint32_t)len);
	host_out(n, 1, cdb, 10, p, len);
	return host_result(n);
}

START_TEST(registering_for_others)
{
	open3();
	ck_assert_str_eq(prout_ids(a, 0, 0x5, "iqn.b,i,0x00023d000001", "iqn.c"), "good");
	ck_assert_uint_eq(nkeys(a), 3);
	ck_assert_str_eq(prout(b, RESERVE, 5, 0x5, 0, 0), "good");
	ck_assert_str_eq(wr(c), "good"); /* by its device name */
	/* FULL STATUS */
	host_in(a, 1, (uint8_t[]){ 0x5e, 3, 0, 0, 0, 0, 0, 4, 0, 0 }, 10, 1024);
	ck_assert_str_eq(host_result(a), "good");
	ck_assert_uint_eq(get_be32(a->in + 4) + 8, a->in_len);
	ck_assert_uint_eq(get_be64(a->in + 8), 5);
	ck_assert_uint_eq(a->in[8 + 12], 1); /* R_HOLDER */
	ck_assert_uint_eq(a->in[8 + 13], 5);
	ck_assert_uint_eq(get_be16(a->in + 8 + 18), 1);
	ck_assert_uint_eq(a->in[8 + 24], 0x45);
	ck_assert_str_eq((char *)a->in + 8 + 28, "iqn.b,i,0x00023d000001");
	host_close(&h);

	open3(); /* none at all when one of them is wrong */
	ck_assert_str_eq(prout_ids(a, 0, 0x5, "iqn.b,i,0x00023d000001", "iqn.b,i,0x00023d000001"),
			 "05/26/00");
	ck_assert_uint_eq(nkeys(a), 0);
	/* a name that would be two lines of the state file */
	ck_assert_str_eq(prout_ids(a, 0, 0x5, "iqn.b\nregistration 1,i,0x00023d000001", "iqn.c"),
			 "05/26/00");
	ck_assert_uint_eq(nkeys(a), 0);
	/* who does not register itself registers nobody; and a wrong key comes first */
	ck_assert_str_eq(prout_ids(a, 0, 0, "iqn.b,i,0x00023d000001", NULL), "05/26/00");
	ck_assert_str_eq(prout_ids(a, 7, 0, "iqn.b,i,0x00023d000001", NULL), "conflict");
	ck_assert_uint_eq(nkeys(a), 0);
	/* lengths that lie */
	uint8_t p[64] = { 0 };
	put_be64(p + 8, 1);
	p[20] = 0x08;
	put_be32(p + 24, 1000);
	host_out(a, 1, (uint8_t[]){ 0x5f, 0, 0, 0, 0, 0, 0, 0, 64, 0 }, 10, p, 64);
	ck_assert_str_eq(host_result(a), "05/1a/00");
	put_be32(p + 24, 36);
	p[28] = 0x45;
	put_be16(p + 30, 0xfffc);
	host_out(a, 1, (uint8_t[]){ 0x5f, 0, 0, 0, 0, 0, 0, 0, 64, 0 }, 10, p, 64);
	ck_assert_str_eq(host_result(a), "05/26/00");
	host_out(a, 1, (uint8_t[]){ 0x5f, 0, 0, 0, 0, 0, 0, 0, 23, 0 }, 10, p, 23);
	ck_assert_str_eq(host_result(a), "05/1a/00");
	host_out(a, 1, (uint8_t[]){ 0x5f, 1, 1, 0, 0, 0, 0, 0, 64, 0 }, 10, p, 64);
	ck_assert_str_eq(host_result(a), "05/1a/00");
	host_close(&h);
}
END_TEST

/* Registers @n together with @count others "iqn.o<first>" ... by their device names. */
static const char *register_many(struct host_nexus *n, unsigned first, unsigned count)
{
	static uint8_t p[8192];
	uint8_t cdb[10] = { 0x5f };
	size_t len = 28;
	char name[32];

	memset(p, 0, sizeof(p));
	put_be64(p + 8, 0x5);
	p[20] = 0x08;
	for (unsigned i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "iqn.o%u", first + i);
		len += transport_id(p + len, name);
	}
	put_be32(p + 24, (uint32_t)len - 28);
	put_be32(cdb + 5, (uint32_t)len);
	host_out(n, 1, cdb, 10, p, len);
	return host_result(n);
}

/* When the last place is taken by one of the others, the issuer has none: then nobody is
 * registered. */
START_TEST(no_room_for_the_issuer)
{
	unsigned others = 0, all = 0;
	struct host_nexus *n;
	char name[32];

	host_open(&h, "8m", 512);
	for (unsigned i = 0; i < 12; i++, others += 340, all += 341) {
		snprintf(name, sizeof(name), "iqn.issuer%u", i);
		n = host_login_ready(&h, name);
		ck_assert_str_eq(register_many(n, others, 340), "good");
	}
	a = host_login_ready(&h, "iqn.a");
	ck_assert_uint_eq(nkeys(a), all);
	ck_assert_str_eq(register_many(a, others, 4096 - all), "05/55/04");
	ck_assert_uint_eq(nkeys(a), all);
	/* nor for all of the others */
	ck_assert_str_eq(register_many(a, others, 4096 - all + 1), "05/55/04");
	ck_assert_uint_eq(nkeys(a), all);
	ck_assert_str_eq(register_many(a, others, 4096 - all - 1), "good");
	ck_assert_uint_eq(nkeys(a), 4096);
	host_close(&h);
}
END_TEST

/* Of a unit's registrations one initiator makes a quarter, in its own name or in others'. */
START_TEST(one_initiator_leaves_room)
{
	uint8_t p[128] = { 0 }, cdb[10] = { 0x5f, MOVE };
	size_t len;

	host_open(&h, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_str_eq(register_many(a, 340 * i, 340), "good");
		ck_assert_str_eq(prout(a, REGISTER, 0, 0x5, 0, 0), "good"); /* itself no more */
	}
	ck_assert_str_eq(register_many(a, 340 * 3, 4), "05/55/04");
	ck_assert_str_eq(register_many(a, 340 * 3, 3), "good"); /* and itself: 1,024 */
	c = host_login_ready(&h, "iqn.ab");
	ck_assert_str_eq(register_many(c, 5000, 340), "good");
	/* nor by moving */
	ck_assert_str_eq(prout(a, RESERVE, 1, 0x5, 0, 0), "good");
	put_be64(p, 0x5);
	put_be64(p + 8, 0x6);
	p[19] = 1;
	len = transport_id(p + 24, "iqn.moved");
	put_be32(p + 20, (uint32_t)len);
	put_be32(cdb + 5, 24 + (uint32_t)len);
	host_out(a, 1, cdb, 10, p, 24 + len);
	ck_assert_str_eq(host_result(a), "05/55/04");
	/* what has gone leaves its place */
	ck_assert_str_eq(prout(a, PREEMPT, 1, 0x5, 0x5, 0), "good");
	ck_assert_str_eq(prout(a, REGISTER, 0, 0x5, 0, 0), "good");
	ck_assert_str_eq(register_many(a, 0, 340), "good");
	host_close(&h);
}
END_TEST

START_TEST(moving)
{
	uint8_t p[128] = { 0 }, cdb[10] = { 0x5f, MOVE };
	size_t len;

	open3();
	prout(a, REGISTER, 0, 0, 0xa, 0);
	put_be64(p, 0xa);
	put_be64(p + 8, 0xbb);
	p[17] = 0x02; /* UNREG */
	put_be16(p + 18, 1);
	len = 24 + transport_id(p + 24, "iqn.b,i,0x00023d000001");
	put_be32(p + 20, (uint32_t)len - 24);
	put_be32(cdb + 5, (uint32_t)len);
	host_out(a, 1, cdb, 10, p, len);
	ck_assert_str_eq(host_result(a), "05/24/00"); /* nothing is reserved (SPC-4 5.12.8) */
	prout(b, REGISTER, 0, 0, 0xb, 0);
	prout(b, RESERVE, 5, 0xb, 0, 0);
	host_out(a, 1, cdb, 10, p, len);
	ck_assert_str_eq(host_result(a), "conflict"); /* registered, but b holds it */
	prout(b, REGISTER, 0, 0xb, 0, 0);
	host_tur(a, 1); /* hears that it was released */
	prout(a, RESERVE, 3, 0xa, 0, 0);
	host_out(a, 1, cdb, 10, p, len);
	ck_assert_str_eq(host_result(a), "good");
	ck_assert_str_eq(reservation(b), "3 bb");
	ck_assert_uint_eq(nkeys(b), 1);
	ck_assert_str_eq(wr(b), "good");
	ck_assert_str_eq(wr(a), "conflict");
	host_close(&h);
}
END_TEST

START_TEST(beside_spc2)
{
	open3();
	prout(a, REGISTER, 0, 0, 0xa, 0);
	host_none(c, 1, (uint8_t[6]){ 0x16 }, 6);
	ck_assert_str_eq(host_result(c), "conflict");
	prout(a, RESERVE, 1, 0xa, 0, 0);
	/* CRH: the holder's is accepted and means nothing */
	host_none(a, 1, (uint8_t[6]){ 0x16 }, 6);
	ck_assert_str_eq(host_result(a), "good");
	prout(a, CLEAR, 0, 0xa, 0, 0);
	host_none(a, 1, (uint8_t[6]){ 0x16 }, 6);
	ck_assert_str_eq(host_result(a), "good");
	ck_assert_str_eq(prout(b, REGISTER, 0, 0, 0xb, 0), "conflict");
	host_close(&h);
}
END_TEST

/* ---- the file -------------------------------------------------------------------------------- */

static char dir[] = "/tmp/test_pr.XXXXXX";

static uint32_t tid;
static void do_same_target(void *arg)
{
	scsi_commands_init();
	h.target = scsi_target_create(tid, "iqn.2026-11.test:persistent");
	(void)arg;
}

/* The same target name again, as after a restart of the daemon. */
static void open_target(void)
{
	struct loop_conf conf = { .name = "test", .node = 0, .cpu = -1 };

	memset(&h, 0, sizeof(h));
	list_init(&h.nexuses);
	h.loop = loop_create(&conf);
	tid = 900;
	host_do(&h, do_same_target, NULL);
	ck_assert_ptr_nonnull(h.target);
}

static void open_persistent(void)
{
	open_target();
	h.lu = host_add_lu(&h, 1, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
}

/* On the loop: 0 or why LUN 1 is refused. Of this type it needs no store. */
static void do_create(void *arg)
{
	struct scsi_lu_conf conf;
	int *err = arg;

	scsi_lu_conf_init(&conf);
	conf.lun = 1;
	conf.device_type = 0x0c;
	*err = scsi_lu_create(h.target, &conf) ? 0 : errno;
}

static int create_error(void)
{
	int err;

	open_target();
	host_do(&h, do_create, &err);
	host_close(&h);
	return err;
}

static void put_file(const char *path, const char *text, size_t len)
{
	FILE *f = fopen(path, "w");

	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(text, 1, len, f), len);
	fclose(f);
}

/* The state file @text with one more line, and the checksum for that. */
static void put_sealed(const char *path, const char *text, size_t len, const char *line)
{
	char all[4200];
	uint64_t sum = 0xcbf29ce484222325ull;
	size_t n = (size_t)snprintf(all, sizeof(all), "%.*s%s", (int)len - 21, text, line);

	for (size_t i = 0; i < n; i++)
		sum = (sum ^ (uint8_t)all[i]) * 0x100000001b3ull;
	n += (size_t)snprintf(all + n, sizeof(all) - n, "sum %016llx\n", (unsigned long long)sum);
	put_file(path, all, n);
}

/* What a process has left of a unit, and is no reservation that somebody can have: others may have
 * been kept out, so nobody is let in before somebody has looked. */
START_TEST(left_by_nobody)
{
	static const char *const left[] = {
		"feature persistent reservations\nreservation 5 3\n",
		"feature persistent reservations\nreservation 7 -1\n",
		"feature persistent reservations\nreservation 4 0\n"
		"registration 1 1 0 0 iqn.a,i,0x1\n",
	};
	struct journal_rec rec;
	char key[SCSI_LU_KEY];
	int fd;

	for (size_t i = 0; i < ARRAY_SIZE(left); i++) {
		fd = journal_open(-1, JOURNAL_SIZE_MIN);
		ck_assert_int_ge(fd, 0);
		host_open(&h, "1m", 512);
		snprintf(key, sizeof(key), "s/%u/%u", h.lu->target->tid, h.lu->lun);
		rec = (struct journal_rec){ .key = key, .value = left[i], .len = strlen(left[i]) };
		ck_assert_int_eq(journal_commit(&rec, 1), 0);
		ck_assert_int_eq(scsi_lu_restore(h.lu), -EBADMSG);
		ck_assert(!h.lu->conf.online);
		ck_assert_uint_eq(h.lu->pr->type, PR_NONE);
		journal_freeze(true);
		host_close(&h);
		journal_freeze(false);
		journal_close();
		close(fd);
	}
}
END_TEST

START_TEST(survives)
{
	char path[300], *text;
	size_t len;
	FILE *f;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	scsi_set_state_dir(dir);
	open_persistent();
	ck_assert_str_eq(prout(a, REGISTER, 0, 0, 0xa, 1), "good");
	ck_assert_str_eq(prout(a, RESERVE, 6, 0xa, 0, 0), "good");
	ck_assert_str_eq(prout(b, REGISTER, 0, 0, 0xb, 1), "good");
	host_close(&h);

	open_persistent();
	ck_assert_str_eq(reservation(a), "6 a");
	ck_assert_uint_eq(nkeys(b), 2);
	ck_assert_str_eq(rd(b), "good");
	host_in(a, 1, (uint8_t[]){ 0x5e, 2, 0, 0, 0, 0, 0, 4, 0, 0 }, 10, 1024);
	ck_assert_uint_eq(a->in[2] & 1, 1);
	ck_assert_uint_eq(a->in[3] & 1, 1);
	struct host_nexus *d = host_login_ready(&h, "iqn.d");
	ck_assert_str_eq(rd(d), "conflict");
	host_close(&h);

	/* Cut anywhere, or one bit changed: as a whole, and with it the logical unit. */
	host_state_file(dir, path, sizeof(path));
	f = fopen(path, "r");
	text = calloc(1, 4096);
	len = fread(text, 1, 4096, f);
	fclose(f);
	for (size_t cut = 0; cut < len; cut += 1 + len / 17) {
		put_file(path, text, cut);
		ck_assert_msg(create_error() == EBADMSG, "cut at %zu of %zu", cut, len);
	}
	for (size_t at = 0; at < len; at += 1 + len / 23) {
		text[at] ^= 0x04;
		put_file(path, text, len);
		text[at] ^= 0x04;
		ck_assert_msg(create_error() == EBADMSG, "byte %zu of %zu", at, len);
	}
	/* Whole by its checksum, but a line that is none of ours (a later program's?). */
	put_sealed(path, text, len, "fence 1 2 3\n");
	ck_assert_int_eq(create_error(), EBADMSG);
	/* Removed: no reservations. Whole again: all of them. */
	ck_assert_int_eq(unlink(path), 0);
	open_persistent();
	ck_assert_uint_eq(nkeys(a), 0);
	host_close(&h);
	put_file(path, text, len);
	open_persistent();
	ck_assert_uint_eq(nkeys(a), 2);
	/* There, but not to be opened (a link to itself: root too is
	 * refused): unknown is not none */
	char aside[310];

	host_close(&h);
	snprintf(aside, sizeof(aside), "%s.aside", path);
	ck_assert_int_eq(rename(path, aside), 0);
	ck_assert_int_eq(symlink(path, path), 0);
	ck_assert_int_eq(create_error(), ELOOP);
	ck_assert_int_eq(rename(aside, path), 0);
	open_persistent();
	ck_assert_uint_eq(nkeys(a), 2);
	/* APTPL off: nothing comes back */
	ck_assert_str_eq(prout(a, REGISTER_IGNORE, 0, 0, 0xa, 0), "good");
	host_close(&h);
	open_persistent();
	ck_assert_uint_eq(nkeys(a), 0);
	host_close(&h);
	unlink(path);
	rmdir(dir);
	free(text);
	scsi_set_state_dir(NULL);
}
END_TEST

UNIT_MAIN("pr", 60, registering, access_by_type, all_registrants, preempting, preempt_and_abort,
	  preempt_and_abort_unsaved, registering_for_others, no_room_for_the_issuer,
	  one_initiator_leaves_room, moving,
	  beside_spc2, left_by_nobody, survives)
