/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What holds for every command that REPORT SUPPORTED OPERATION CODES names: CDB bits that its usage
 * map does not have are refused, one by one; and what reservations, write protection, a missing
 * medium and unit attentions do to it, against tables of the standards (SPC-4 table 43 and 5.12.1,
 * SBC-4 table 13) written down here, not derived from the table under test.
 */
#include <stdlib.h>
#include "events/bytes.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"

static struct host h;
static struct host_nexus *a, *b;

#define NO 0xffff
enum {
	R = 1 << 0, /* reads the medium: kept out by Exclusive Access */
	W = 1 << 1, /* writes it, or what is like it: kept out by Write Exclusive, too */
	P = 1 << 2, /* refused on a write-protected medium */
	M = 1 << 3, /* needs the medium */
	U = 1 << 4, /* does not wait for unit attentions to be reported */
	SELF = 1 << 5, /* depends on parameters: START, PREVENT, keys of PERSISTENT RESERVE OUT */
};

static const struct {
	uint8_t opcode;
	uint16_t sa;
	unsigned what;
} expect[] = {
	{ 0x00, NO, M },	       /* TEST UNIT READY */
	{ 0x03, NO, U },	       /* REQUEST SENSE */
	{ 0x04, NO, R | W | P | M },   /* FORMAT UNIT */
	{ 0x08, NO, R | M },	       /* READ(6) */
	{ 0x0a, NO, R | W | P | M },   /* WRITE(6) */
	{ 0x12, NO, U },	       /* INQUIRY */
	{ 0x15, NO, W | R },	       /* MODE SELECT(6) */
	{ 0x16, NO, SELF },	       /* RESERVE(6) */
	{ 0x17, NO, SELF },	       /* RELEASE(6) */
	{ 0x1a, NO, R },	       /* MODE SENSE(6) */
	{ 0x1b, NO, SELF },	       /* START STOP UNIT */
	{ 0x1d, NO, W | R },	       /* SEND DIAGNOSTIC */
	{ 0x1e, NO, SELF },	       /* PREVENT ALLOW MEDIUM REMOVAL */
	{ 0x25, NO, M },	       /* READ CAPACITY(10) */
	{ 0x28, NO, R | M },	       /* READ(10) */
	{ 0x2a, NO, R | W | P | M },   /* WRITE(10) */
	{ 0x2e, NO, R | W | P | M },   /* WRITE AND VERIFY(10) */
	{ 0x2f, NO, R | M },	       /* VERIFY(10) */
	{ 0x34, NO, R | M },	       /* PRE-FETCH(10) */
	{ 0x35, NO, R | W | M },       /* SYNCHRONIZE CACHE(10) */
	{ 0x37, NO, R | M },	       /* READ DEFECT DATA(10) */
	{ 0x41, NO, R | W | P | M },   /* WRITE SAME(10) */
	{ 0x42, NO, R | W | P | M },   /* UNMAP */
	{ 0x48, 0x01, R | W | P | M }, /* SANITIZE */
	{ 0x48, 0x02, R | W | P | M },
	{ 0x48, 0x1f, R | W | P | M },
	{ 0x4d, NO, 0 },     /* LOG SENSE */
	{ 0x55, NO, W | R }, /* MODE SELECT(10) */
	{ 0x56, NO, SELF },  /* RESERVE(10) */
	{ 0x57, NO, SELF },  /* RELEASE(10) */
	{ 0x5a, NO, R },     /* MODE SENSE(10) */
	{ 0x5e, 0x00, 0 },   /* PERSISTENT RESERVE IN */
	{ 0x5e, 0x01, 0 },
	{ 0x5e, 0x02, 0 },
	{ 0x5e, 0x03, 0 },
	{ 0x5f, 0x00, SELF }, /* PERSISTENT RESERVE OUT */
	{ 0x5f, 0x01, SELF },
	{ 0x5f, 0x02, SELF },
	{ 0x5f, 0x03, SELF },
	{ 0x5f, 0x04, SELF },
	{ 0x5f, 0x05, SELF },
	{ 0x5f, 0x06, SELF },
	{ 0x5f, 0x07, SELF },
	{ 0x83, 0x00, R | W },	       /* EXTENDED COPY(LID1) */
	{ 0x83, 0x01, R | W },	       /* EXTENDED COPY(LID4) */
	{ 0x83, 0x10, R | M },	       /* POPULATE TOKEN */
	{ 0x83, 0x11, R | W | P | M }, /* WRITE USING TOKEN */
	{ 0x83, 0x1c, R | W },	       /* COPY OPERATION ABORT */
	{ 0x84, 0x00, R | W },	       /* RECEIVE COPY RESULTS and its like */
	{ 0x84, 0x03, 0 },	       /* RECEIVE COPY OPERATING PARAMETERS */
	{ 0x84, 0x04, R | W },
	{ 0x84, 0x05, R | W },
	{ 0x84, 0x07, R | W },
	{ 0x88, NO, R | M },	     /* READ(16) */
	{ 0x89, NO, R | W | P | M }, /* COMPARE AND WRITE */
	{ 0x8a, NO, R | W | P | M }, /* WRITE(16) */
	{ 0x8b, NO, R | W | P | M }, /* ORWRITE(16) */
	{ 0x8e, NO, R | W | P | M }, /* WRITE AND VERIFY(16) */
	{ 0x8f, NO, R | M },	     /* VERIFY(16) */
	{ 0x90, NO, R | M },	     /* PRE-FETCH(16) */
	{ 0x91, NO, R | W | M },     /* SYNCHRONIZE CACHE(16) */
	{ 0x93, NO, R | W | P | M }, /* WRITE SAME(16) */
	{ 0x9c, NO, R | W | P | M }, /* WRITE ATOMIC(16) */
	{ 0x9e, 0x10, M },	     /* READ CAPACITY(16) */
	{ 0x9e, 0x12, R | M },	     /* GET LBA STATUS(16) */
	{ 0xa0, NO, U },	     /* REPORT LUNS */
	{ 0xa3, 0x0a, 0 },	     /* REPORT TARGET PORT GROUPS */
	{ 0xa3, 0x0c, R },	     /* REPORT SUPPORTED OPERATION CODES */
	{ 0xa3, 0x0d, R },	     /* REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS */
	{ 0xa3, 0x0f, 0 },	     /* REPORT TIMESTAMP */
	{ 0xa4, 0x0a, R | W },	     /* SET TARGET PORT GROUPS */
	{ 0xa4, 0x0f, R | W },	     /* SET TIMESTAMP */
	{ 0xa8, NO, R | M },	     /* READ(12) */
	{ 0xaa, NO, R | W | P | M }, /* WRITE(12) */
	{ 0xae, NO, R | W | P | M }, /* WRITE AND VERIFY(12) */
	{ 0xaf, NO, R | M },	     /* VERIFY(12) */
	{ 0xb7, NO, R | M },	     /* READ DEFECT DATA(12) */
};

struct listed {
	uint8_t opcode, len, usage[16];
	uint16_t sa;
	unsigned what;
};
static struct listed list[ARRAY_SIZE(expect)];

/* Everything that the target says it has, and nothing else, is in the table above. */
static void learn(void)
{
	uint32_t n;
	uint8_t *all;

	host_in(a, 1, (uint8_t[12]){ 0xa3, 0x0c, [8] = 0x20 }, 12, 0x2000);
	ck_assert_str_eq(host_result(a), "good");
	n = get_be32(a->in) / 8;
	all = malloc(a->in_len);
	memcpy(all, a->in, a->in_len);
	ck_assert_uint_eq(n, ARRAY_SIZE(expect));
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *d = all + 4 + 8 * i;
		struct listed *l = &list[i];
		unsigned found = 0;

		l->opcode = d[0];
		l->sa = d[5] & 1 ? get_be16(d + 2) : NO;
		l->len = (uint8_t)get_be16(d + 6);
		for (unsigned k = 0; k < ARRAY_SIZE(expect); k++)
			if (expect[k].opcode == l->opcode && expect[k].sa == l->sa) {
				l->what = expect[k].what;
				found++;
			}
		ck_assert_msg(found == 1, "%02x/%x", l->opcode, l->sa);
		/* one by one: the same, with the usage map and the time that it takes */
		host_in(a, 1,
			(uint8_t[12]){ 0xa3, 0x0c, (uint8_t)(l->sa == NO ? 0x81 : 0x82), l->opcode,
				       0, (uint8_t)(l->sa == NO ? 0 : l->sa), [9] = 64 },
			12, 64);
		ck_assert_str_eq(host_result(a), "good");
		ck_assert_uint_eq(a->in[1], 0x83);
		ck_assert_uint_eq(get_be16(a->in + 2), l->len);
		ck_assert_uint_eq(a->in_len, 4u + l->len + 12);
		memcpy(l->usage, a->in + 4, l->len);
		ck_assert_uint_eq(l->usage[0], l->opcode);
		if (l->sa != NO)
			ck_assert_uint_eq(l->usage[1] & 0x1f, l->sa);
		ck_assert_uint_eq(l->usage[l->len - 1], 0); /* CONTROL: no NACA */
		ck_assert_uint_eq(get_be16(a->in + 4 + l->len), 0x0a);
		ck_assert_uint_gt(get_be32(a->in + 4 + l->len + 8), 0);
	}
	free(all);
}

static void start(void (*tweak)(struct scsi_lu_conf *c))
{
	host_open_conf(&h, "8m", 512, tweak);
	scsi_target_allow(h.target, SCSI_ALLOW_ALUA, true);
	a = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
	learn();
}

/* Runs it on LUN 1 with nothing but its opcode and service action, and no data. */
static const char *run(struct host_nexus *n, const struct listed *l)
{
	uint8_t cdb[16] = { l->opcode };

	if (l->sa != NO)
		cdb[1] = (uint8_t)l->sa;
	host_none(n, 1, cdb, 16);
	return host_result(n);
}

/* A bit that the usage map has not is not ignored: CHECK CONDITION, with a pointer to it. */
START_TEST(bits_beyond_the_usage_map)
{
	start(NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(list); i++) {
		const struct listed *l = &list[i];

		for (unsigned at = 1; at < l->len; at++)
			for (unsigned bit = 0; bit < 8; bit++) {
				uint8_t cdb[16] = { l->opcode }, sa_bits = 0;

				if (l->sa != NO) {
					cdb[1] = (uint8_t)l->sa;
					sa_bits = at == 1 ? 0x1f : 0;
				}
				if ((l->usage[at] | sa_bits) & 1u << bit)
					continue;
				cdb[at] |= (uint8_t)(1u << bit);
				host_none(a, 1, cdb, 16);
				ck_assert_msg(strcmp(host_result(a), "05/24/00") == 0,
					      "%02x/%x byte %u bit %u: %s", l->opcode, l->sa, at,
					      bit, host_result(a));
				ck_assert_uint_eq(a->sense[15], 0xc8 | bit);
				ck_assert_uint_eq(get_be16(a->sense + 16), at);
			}
	}
	host_close(&h);
}
END_TEST

/* By reservations of each type, held by a: what b may do, unregistered and registered. */
START_TEST(reservations)
{
	static const uint8_t types[] = { 1, 3, 5, 6, 7, 8 };
	uint8_t type = types[_i % 6];
	bool registered = _i >= 6;
	/* Registrants may do all where the type is theirs. */
	unsigned denied =
		registered && type >= 5 ? 0 : (type == 3 || type == 6 || type == 8 ? R | W : W);

	start(NULL);
	ck_assert_str_eq(host_prout(a, 0, 0, 0, 0xa), "good");
	if (registered)
		ck_assert_str_eq(host_prout(b, 0, 0, 0, 0xb), "good");
	ck_assert_str_eq(host_prout(a, 1, type, 0xa, 0), "good");
	for (unsigned i = 0; i < ARRAY_SIZE(list); i++) {
		const struct listed *l = &list[i];
		bool conflict;

		if (l->what & SELF || l->opcode == 0x48)
			continue;
		conflict = strcmp(run(b, l), "conflict") == 0;
		ck_assert_msg(conflict == ((l->what & denied) != 0), "type %u: %02x/%x: %s", type,
			      l->opcode, l->sa, host_result(b));
		ck_assert_msg(strcmp(run(a, l), "conflict") != 0, "type %u: %02x/%x by its holder",
			      type, l->opcode, l->sa);
	}
	/* START, and ALLOW, pass; STOP, power conditions and PREVENT are like writing. */
	if (!registered || type < 5) {
		host_none(b, 1, (uint8_t[6]){ 0x1b, [4] = 1 }, 6);
		ck_assert_str_eq(host_result(b), "good");
		host_none(b, 1, (uint8_t[6]){ 0x1b }, 6);
		ck_assert_str_eq(host_result(b), "conflict");
		host_none(b, 1, (uint8_t[6]){ 0x1b, [4] = 0x21 }, 6);
		ck_assert_str_eq(host_result(b), "conflict");
		host_none(b, 1, (uint8_t[6]){ 0x1e }, 6);
		ck_assert_str_eq(host_result(b), "good");
		host_none(b, 1, (uint8_t[6]){ 0x1e, [4] = 1 }, 6);
		ck_assert_str_eq(host_result(b), "conflict");
	}
	if (!registered) /* SPC-4 5.12.3, CRH */
		ck_assert_str_eq(run(b, &(struct listed){ .opcode = 0x16, .sa = NO }), "conflict");
	host_close(&h);
}
END_TEST

static void readonly(struct scsi_lu_conf *c)
{
	c->readonly = true;
}

START_TEST(write_protection)
{
	start(readonly);
	for (unsigned i = 0; i < ARRAY_SIZE(list); i++) {
		const struct listed *l = &list[i];
		bool refused = strcmp(run(a, l), "07/27/00") == 0;

		ck_assert_msg(refused == ((l->what & P) != 0), "%02x/%x: %s", l->opcode, l->sa,
			      host_result(a));
	}
	host_close(&h);
}
END_TEST

static void removable(struct scsi_lu_conf *c)
{
	c->removable = true;
}

static void do_offline(void *arg)
{
	ck_assert_int_eq(scsi_lu_update(h.lu, "online", "0"), 0);
}

START_TEST(no_medium)
{
	const char *asc = _i ? "02/3a/00" : "02/3a/02";

	start(removable);
	if (_i)
		host_do(&h, do_offline, NULL);
	else
		host_none(a, 1, (uint8_t[6]){ 0x1b, [4] = 2 }, 6); /* eject */
	for (unsigned i = 0; i < ARRAY_SIZE(list); i++) {
		const struct listed *l = &list[i];
		bool refused;

		if (l->what & SELF)
			continue;
		refused = strcmp(run(a, l), asc) == 0;
		ck_assert_msg(refused == ((l->what & M) != 0), "%02x/%x: %s", l->opcode, l->sa,
			      host_result(a));
	}
	host_close(&h);
}
END_TEST

static void do_attention(void *arg)
{
	static unsigned n;

	ck_assert_int_eq(scsi_lu_update(h.lu, "product_rev", n++ & 1 ? "1" : "2"), 0);
}

/* SPC-4: INQUIRY, REPORT LUNS and REQUEST SENSE are carried out; REQUEST SENSE tells it as its
 * data; every other command is refused with it, even one that is unknown or has a bit too many. */
START_TEST(attentions)
{
	start(NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(list); i++) {
		const struct listed *l = &list[i];
		uint8_t cdb[16] = { l->opcode, (uint8_t)(l->sa == NO ? 0 : l->sa) };

		host_do(&h, do_attention, NULL);
		cdb[l->len - 1] = l->what & U ? 0 : 0x04; /* NACA */
		host_none(a, 1, cdb, 16);
		ck_assert_msg((strcmp(host_result(a), "06/3f/03") == 0) == !(l->what & U),
			      "%02x/%x: %s", l->opcode, l->sa, host_result(a));
		if (l->opcode != 0x03) {
			host_in(a, 1, (uint8_t[6]){ 0x03, [4] = 18 }, 6, 18);
			ck_assert_str_eq(host_result(a), "good");
			ck_assert_uint_eq(a->in[2],
					  l->what & U ? SENSE_UNIT_ATTENTION : SENSE_NO_SENSE);
		}
	}
	host_do(&h, do_attention, NULL);
	host_none(a, 1, (uint8_t[6]){ 0xcc }, 6);
	ck_assert_str_eq(host_result(a), "06/3f/03");
	host_none(a, 1, (uint8_t[6]){ 0xcc }, 6);
	ck_assert_str_eq(host_result(a), "05/20/00");
	host_close(&h);
}
END_TEST

/* SPC-4 6.36: ABORT TASK (bit 7), ABORT TASK SET, CLEAR TASK SET (4), LOGICAL UNIT RESET, QUERY
 * TASK (2); QUERY ASYNCHRONOUS EVENT, QUERY TASK SET, I_T NEXUS RESET. */
START_TEST(task_management_functions)
{
	start(NULL);
	host_in(a, 1, (uint8_t[12]){ 0xa3, 0x0d, [9] = 4 }, 12, 4);
	ck_assert_str_eq(host_result(a), "good");
	ck_assert_uint_eq(get_be32(a->in), 0xdc070000u);
	host_close(&h);
}
END_TEST

static bool clock_is_set(uint32_t lun)
{
	host_in(b, lun, (uint8_t[12]){ 0xa3, 0x0f, [9] = 12 }, 12, 12);
	ck_assert_str_eq(host_result(b), "good");
	return b->in[2] == 2;
}

/* A unit's clock is its own: everybody else who sees the unit hears that it was set. Nobody hears
 * it of another unit, which whoever sets clocks might not be allowed to see. */
START_TEST(timestamp)
{
	uint8_t p[12] = { 0 };

	start(NULL);
	host_add_lu(&h, 2, "1m", 512);
	for (unsigned i = 0; i < 4; i++) {
		host_tur(a, 2);
		host_tur(b, 2);
		host_tur(b, 1);
	}
	put_be48(p + 4, 1000);
	host_out(a, 1, (uint8_t[12]){ 0xa4, 0x0f, [9] = 12 }, 12, p, 12);
	ck_assert_str_eq(host_result(a), "good");
	host_tur(b, 1);
	ck_assert_str_eq(host_result(b), "06/2a/10");
	host_tur(b, 2);
	ck_assert_str_eq(host_result(b), "good");
	for (uint32_t lun = 1; lun <= 2; lun++) {
		host_tur(a, lun);
		ck_assert_str_eq(host_result(a), "good");
	}
	ck_assert(clock_is_set(1));
	ck_assert(!clock_is_set(2));
	host_close(&h);
}
END_TEST

UNIT_TABLE("opcodes", 60, { bits_beyond_the_usage_map }, { reservations, 12 }, { write_protection },
	   { no_medium, 2 }, { attentions }, { task_management_functions }, { timestamp })
