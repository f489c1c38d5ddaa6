/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Logical units: LUNs, unit attentions, update, mode pages, reservations of SPC-2, task management
 * and attributes, removable media, statistics. */
#include "events/bytes.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"

static struct host h;

static uint8_t inquiry(struct host_nexus *n, uint32_t lun, int page)
{
	uint8_t cdb[6] = { 0x12, page >= 0, (uint8_t)(page >= 0 ? page : 0), 2, 0, 0 };

	return host_in(n, lun, cdb, 6, 512);
}

START_TEST(lun_addressing)
{
	struct host_nexus *n;

	host_open(&h, "8m", 512);
	host_add_lu(&h, 300, "8m", 512);
	n = host_login_ready(&h, "iqn.a");
	/* peripheral, flat, bad bus, second level */
	ck_assert_uint_eq(
		host_finish(host_start(n, 1ull << 48, (uint8_t[6]){ 0 }, 6, false, NULL, 0)),
		SAM_GOOD);
	ck_assert_uint_eq(
		host_finish(host_start(n, 0x4001ull << 48, (uint8_t[6]){ 0 }, 6, false, NULL, 0)),
		SAM_GOOD);
	host_finish(host_start(n, 0x0101ull << 48, (uint8_t[6]){ 0 }, 6, false, NULL, 0));
	ck_assert_str_eq(host_result(n), "05/25/00");
	host_finish(host_start(n, 1ull << 48 | 1, (uint8_t[6]){ 0 }, 6, false, NULL, 0));
	ck_assert_str_eq(host_result(n), "05/25/00");
	host_tur(n, 5);
	ck_assert_str_eq(host_result(n), "05/25/00");
	ck_assert_uint_eq(inquiry(n, 5, -1), SAM_GOOD);
	ck_assert_uint_eq(n->in[0], 0x7f);
	inquiry(n, 5, 0x83);
	ck_assert_str_eq(host_result(n), "05/24/00");
	ck_assert_uint_eq(host_in(n, 5, (uint8_t[]){ 0x03, 0, 0, 0, 18, 0 }, 6, 18), SAM_GOOD);
	ck_assert_uint_eq(get_be16(n->in + 12), 0x2500);
	/* REPORT LUNS */
	ck_assert_uint_eq(
		host_in(n, 0, (uint8_t[]){ 0xa0, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0 }, 12, 256),
		SAM_GOOD);
	ck_assert_uint_eq(get_be32(n->in), 32);
	ck_assert_uint_eq(get_be64(n->in + 8), 0);
	ck_assert_uint_eq(get_be64(n->in + 16), 1ull << 48);
	ck_assert_uint_eq(get_be64(n->in + 24), 0x412cull << 48);
	ck_assert_uint_eq(get_be64(n->in + 32), 0xc101ull << 48);
	host_in(n, 0, (uint8_t[]){ 0xa0, 0, 5, 0, 0, 0, 0, 0, 1, 0, 0, 0 }, 12, 256);
	ck_assert_str_eq(host_result(n), "05/24/00");
	host_in(n, 0, (uint8_t[]){ 0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 15, 0, 0 }, 12, 256);
	ck_assert_str_eq(host_result(n), "05/24/00");
	/* the well known logical unit */
	ck_assert_uint_eq(
		host_finish(host_start(n, 0xc101ull << 48,
				       (uint8_t[]){ 0xa0, 0, 1, 0, 0, 0, 0, 0, 0, 64, 0, 0 }, 12,
				       true, NULL, 64)),
		SAM_GOOD);
	ck_assert_uint_eq(get_be32(n->in), 8);
	host_close(&h);
}
END_TEST

START_TEST(attentions)
{
	struct host_nexus *a, *b;
	uint8_t sel[16] = { 0, 0, 0, 0, 0x0a, 0x0a, 0x04, 0x10, 0, 0x40, 0, 0, 0xff, 0xff, 0, 0 };

	host_open(&h, "8m", 512);
	a = host_login(&h, "iqn.a");
	ck_assert_uint_eq(inquiry(a, 1, -1), SAM_GOOD); /* does not take it */
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "06/29/00");
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "good");
	b = host_login_ready(&h, "iqn.b");
	/* a changes the control mode page: b is told, a is not */
	host_out(a, 1, (uint8_t[]){ 0x15, 0x10, 0, 0, 16, 0 }, 6, sel, 16);
	ck_assert_str_eq(host_result(a), "good");
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "good");
	host_tur(b, 1);
	ck_assert_uint_eq(b->sense[0], 0x72); /* D_SENSE works at once */
	ck_assert_str_eq(host_result(b), "06/2a/01");
	/* REQUEST SENSE reports and takes an attention */
	host_add_lu(&h, 2, "8m", 512);
	host_in(a, 1, (uint8_t[]){ 0x03, 0, 0, 0, 64, 0 }, 6, 64);
	ck_assert_uint_eq(get_be16(a->in + 12), 0x3f0e);
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "good");
	/* REPORT LUNS takes REPORTED LUNS DATA HAS CHANGED */
	host_in(b, 0, (uint8_t[]){ 0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0 }, 12, 256);
	host_tur(b, 1);
	ck_assert_str_eq(host_result(b), "good");
	host_close(&h);
}
END_TEST

static int updated;
static const char *upd_key, *upd_value;
static void do_update(void *arg)
{
	updated = scsi_lu_update(h.lu, upd_key, upd_value);
}

static int update(const char *key, const char *value)
{
	upd_key = key;
	upd_value = value;
	host_do(&h, do_update, NULL);
	return updated;
}

START_TEST(updates)
{
	struct host_nexus *n;
	struct scsi_lu_info info;
	uint8_t b[512] = { 0 };

	host_open(&h, "8m", 512);
	n = host_login_ready(&h, "iqn.a");
	ck_assert_int_eq(update("vendor_id", "ACME"), 0);
	host_tur(n, 1);
	ck_assert_str_eq(host_result(n), "06/3f/03");
	inquiry(n, 1, -1);
	ck_assert_mem_eq(n->in + 8, "ACME    ", 8);
	ck_assert_int_eq(update("readonly", "1"), 0);
	host_tur(n, 1);
	ck_assert_str_eq(host_result(n), "06/2a/01");
	host_write10(n, 0, 1, b, 512);
	ck_assert_str_eq(host_result(n), "07/27/00");
	host_read10(n, 0, 1);
	ck_assert_str_eq(host_result(n), "good");
	ck_assert_int_eq(update("readonly", "0"), 0);
	host_tur(n, 1);
	host_write10(n, 0, 1, b, 512);
	ck_assert_str_eq(host_result(n), "good");
	ck_assert_int_eq(update("online", "No"), 0);
	host_tur(n, 1);
	ck_assert_str_eq(host_result(n), "02/3a/00");
	host_read10(n, 0, 1);
	ck_assert_str_eq(host_result(n), "02/3a/00");
	ck_assert_int_eq(update("online", "Yes"), 0);
	host_tur(n, 1);
	ck_assert_str_eq(host_result(n), "06/28/00");
	ck_assert_int_eq(update("sense_format", "1"), 0);
	host_tur(n, 1);
	ck_assert_uint_eq(n->sense[0], 0x72);
	ck_assert_int_eq(
		update("mode_page",
		       "8:0:18:0x10:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0"),
		0);
	scsi_lu_get_info(h.lu, &info);
	ck_assert(!info.conf.write_cache);
	host_tur(n, 1);
	host_in(n, 1, (uint8_t[]){ 0x1a, 8, 8, 0, 64, 0 }, 6, 64);
	ck_assert_uint_eq(n->in[4 + 2] & 0x04, 0);
	ck_assert_int_eq(update("mode_page", "2:0:14:0x80:0x80:0:0xa:0:0:0:0:0:0:0:0:0:0"), 0);
	host_tur(n, 1);
	host_in(n, 1, (uint8_t[]){ 0x1a, 8, 2, 0, 64, 0 }, 6, 64);
	ck_assert_uint_eq(n->in_len, 4 + 16);
	ck_assert_int_eq(update("no_such_key", "1"), -ENOENT);
	ck_assert_int_eq(update("lbppbe", "16"), -EINVAL);
	/* U2: cut as tgt does, and it is said how much is left */
	ck_assert_int_eq(update("vendor_id", "MyCompany Inc."), 8);
	host_tur(n, 1);
	inquiry(n, 1, -1);
	ck_assert_mem_eq(n->in + 8, "MyCompan", 8);
	ck_assert_int_eq(update("vendor_id", "MyCompany\tInc."), -EINVAL);
	ck_assert_int_eq(update("scsi_sn", "a\nb"), -EINVAL);
	ck_assert_int_eq(update("readonly", "maybe"), -EINVAL);
	ck_assert_int_eq(update("mode_page", "8:0"), -EINVAL);
	ck_assert_int_eq(update("mode_page", "2:0:3:1:2:3:4"), -EINVAL);
	host_close(&h);
}
END_TEST

START_TEST(spc2_reservation)
{
	struct host_nexus *a, *b;

	host_open(&h, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
	ck_assert_uint_eq(host_none(a, 1, (uint8_t[6]){ 0x16 }, 6), SAM_GOOD);
	ck_assert_uint_eq(host_none(a, 1, (uint8_t[6]){ 0x16 }, 6), SAM_GOOD);
	ck_assert_uint_eq(host_none(b, 1, (uint8_t[6]){ 0x16 }, 6), SAM_RESERVATION_CONFLICT);
	ck_assert_uint_eq(host_read10(b, 0, 1), SAM_RESERVATION_CONFLICT);
	ck_assert_uint_eq(host_tur(b, 1), SAM_RESERVATION_CONFLICT);
	ck_assert_uint_eq(inquiry(b, 1, -1), SAM_GOOD);
	ck_assert_uint_eq(host_none(b, 1, (uint8_t[6]){ 0x17 }, 6), SAM_GOOD); /* no effect */
	ck_assert_uint_eq(host_tur(b, 1), SAM_RESERVATION_CONFLICT);
	ck_assert_uint_eq(host_read10(a, 0, 1), SAM_GOOD);
	ck_assert_uint_eq(host_none(a, 1, (uint8_t[6]){ 0x17 }, 6), SAM_GOOD);
	ck_assert_uint_eq(host_tur(b, 1), SAM_GOOD);
	/* the nexus goes, the reservation goes */
	ck_assert_uint_eq(host_none(a, 1, (uint8_t[6]){ 0x16 }, 6), SAM_GOOD);
	host_logout(a);
	ck_assert_uint_eq(host_tur(b, 1), SAM_GOOD);
	/* so it does with a reset */
	ck_assert_uint_eq(host_none(b, 1, (uint8_t[6]){ 0x16 }, 6), SAM_GOOD);
	a = host_login(&h, "iqn.a");
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "06/29/00");
	ck_assert_uint_eq(host_tur(a, 1), SAM_RESERVATION_CONFLICT);
	ck_assert_int_eq(host_tmf(a, TMF_LU_RESET, 1), TMF_COMPLETE);
	host_tur(b, 1);
	ck_assert_str_eq(host_result(b), "06/29/03");
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "06/29/03");
	ck_assert_uint_eq(host_tur(a, 1), SAM_GOOD);
	host_close(&h);
}
END_TEST

START_TEST(task_management)
{
	struct host_nexus *a, *b;
	struct host_cmd *c[3];
	uint8_t data[512] = { 9 }, cdb[10] = { 0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0 };

	host_open(&h, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
	a->hold_fetch = b->hold_fetch = true;
	ck_assert_int_eq(host_tmf(a, TMF_ABORT_TASK_SET, 9), TMF_NO_LUN);
	ck_assert_int_eq(host_tmf(a, TMF_CLEAR_ACA, 1), TMF_NOT_SUPPORTED);
	ck_assert_int_eq(host_tmf(a, TMF_QUERY_TASK_SET, 1), TMF_COMPLETE);
	c[0] = host_start(a, 1ull << 48, cdb, 10, false, data, 512);
	c[1] = host_start(b, 1ull << 48, cdb, 10, false, data, 512);
	ck_assert_int_eq(host_tmf(a, TMF_QUERY_TASK_SET, 1), TMF_SUCCEEDED);
	ck_assert_int_eq(host_tmf(a, TMF_ABORT_TASK_SET, 1), TMF_COMPLETE);
	ck_assert(c[0]->ended && c[0]->was_aborted);
	ck_assert(!c[1]->completed);
	host_finish(c[0]);
	/* CLEAR TASK SET reaches b, which is told by its status (TAS = 1) */
	c[0] = host_start(a, 1ull << 48, cdb, 10, false, data, 512);
	ck_assert_int_eq(host_tmf(a, TMF_CLEAR_TASK_SET, 1), TMF_COMPLETE);
	ck_assert(c[0]->ended && c[0]->was_aborted);
	ck_assert(c[1]->ended && !c[1]->was_aborted);
	ck_assert_uint_eq(c[1]->status, SAM_TASK_ABORTED);
	host_finish(c[0]);
	host_finish(c[1]);
	host_tur(b, 1);
	ck_assert_str_eq(host_result(b), "good");
	c[1] = host_start(b, 1ull << 48, cdb, 10, false, data, 512);
	/* W6: what concerns everybody there, only where the administrator allows it. */
	ck_assert_int_eq(host_tmf(a, TMF_TARGET_WARM_RESET, 0), TMF_AUTH_FAILED);
	ck_assert_int_eq(host_tmf(a, TMF_TARGET_COLD_RESET, 0), TMF_AUTH_FAILED);
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "good");
	ck_assert(!c[1]->completed);
	scsi_target_allow(h.target, SCSI_ALLOW_RESET, true);
	ck_assert_int_eq(host_tmf(a, TMF_TARGET_WARM_RESET, 0), TMF_COMPLETE);
	ck_assert(c[1]->ended);
	host_finish(c[1]);
	host_tur(b, 1);
	ck_assert_str_eq(host_result(b), "06/29/02");
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "06/29/02");
	ck_assert_int_eq(host_tmf(a, TMF_I_T_NEXUS_RESET, 0), TMF_COMPLETE);
	ck_assert_int_eq(host_tmf(a, TMF_QUERY_ASYNC_EVENT, 1), TMF_SUCCEEDED);
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "06/29/07");
	a->hold_fetch = false;
	host_read10(a, 0, 1);
	ck_assert_uint_eq(a->in[0], 0); /* none of the aborted writes */
	host_close(&h);
}
END_TEST

static bool force;
static void do_lu_delete(void *arg)
{
	scsi_lu_delete(h.lu, force, host_outcome, arg);
}

static void removable(struct scsi_lu_conf *c)
{
	c->removable = true;
}

/* MODE SELECT: what may be changed is, what may not is refused as a
 * whole, lengths are looked at. */
START_TEST(mode_select)
{
	struct host_nexus *n;
	uint8_t p[4 + 8 + 20 + 12] = { [3] = 8, [10] = 2,    [12] = 0x08, 0x12, 0x10, 0,    0xff,
				       0xff,	0,	     0,		  0xff, 0xff, 0xff, 0xff,
				       0x80,	[32] = 0x0a, 0x0a,	  0x02, 0x10, 0,    0x40,
				       0,	0,	     0xff,	  0xff };
	uint8_t cdb[6] = { 0x15, 0x10, 0, 0, sizeof(p) };
	struct scsi_lu_info info;

	host_open(&h, "8m", 512);
	n = host_login_ready(&h, "iqn.a");
	host_out(n, 1, cdb, 6, p, sizeof(p)); /* WCE off, GLTSD on */
	ck_assert_str_eq(host_result(n), "good");
	scsi_lu_get_info(h.lu, &info);
	ck_assert(!info.conf.write_cache);
	host_in(n, 1, (uint8_t[]){ 0x1a, 8, 0x0a, 0, 64, 0 }, 6, 64);
	ck_assert_uint_eq(n->in[4 + 2], 0x02);
	p[14] |= 0x04; /* WCE on, and in the next page something that is not for changing */
	p[32 + 3] = 0;
	host_out(n, 1, cdb, 6, p, sizeof(p));
	ck_assert_str_eq(host_result(n), "05/26/00");
	ck_assert_uint_eq(get_be16(n->sense + 16), 35);
	scsi_lu_get_info(h.lu, &info);
	ck_assert(!info.conf.write_cache);
	p[32 + 3] = 0x10;
	for (unsigned len = 1; len < sizeof(p); len++) { /* cut anywhere but between the pages */
		cdb[4] = (uint8_t)len;
		host_out(n, 1, cdb, 6, p, len);
		if (len == 12 || len == 32)
			ck_assert_str_eq(host_result(n), "good");
		else
			ck_assert_str_eq(host_result(n), "05/1a/00");
	}
	cdb[4] = sizeof(p);
	p[10] = 16; /* another block length */
	host_out(n, 1, cdb, 6, p, sizeof(p));
	ck_assert_str_eq(host_result(n), "05/26/00");
	cdb[1] = 0x11; /* SP */
	host_out(n, 1, cdb, 6, p, sizeof(p));
	ck_assert_str_eq(host_result(n), "05/24/00");
	/* a reset brings the configured values back */
	ck_assert_int_eq(host_tmf(n, TMF_LU_RESET, 1), TMF_COMPLETE);
	scsi_lu_get_info(h.lu, &info);
	ck_assert(info.conf.write_cache);
	host_close(&h);
}
END_TEST

static struct host_cmd *with(struct host_nexus *n, uint8_t attr, bool write)
{
	static const uint8_t data[512];
	struct host_cmd *c;

	n->attr = attr;
	c = write ? host_start(n, 1ull << 48, (uint8_t[10]){ 0x2a, [8] = 1 }, 10, false, data,
			       512) :
		    host_start(n, 1ull << 48, (uint8_t[6]){ 0 }, 6, false, NULL, 0);
	n->attr = 0;
	return c;
}

/* SAM-5 8.6: ORDERED waits for the older and holds back the younger
 * ones; HEAD OF QUEUE passes all. */
START_TEST(task_attributes)
{
	struct host_nexus *a, *b;
	struct host_cmd *c[7];

	host_open(&h, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
	a->hold_fetch = true;
	c[0] = with(a, SCSI_ATTR_SIMPLE, true);
	c[1] = with(a, SCSI_ATTR_ORDERED, false);
	c[2] = with(a, SCSI_ATTR_SIMPLE, false);
	c[3] = with(a, SCSI_ATTR_ORDERED, true);
	c[4] = with(a, SCSI_ATTR_SIMPLE, false);
	c[5] = with(a, SCSI_ATTR_ORDERED, false);
	c[6] = with(a, SCSI_ATTR_HEAD_OF_QUEUE, false);
	host_steps(&h, 5);
	ck_assert(c[6]->ended);
	for (int i = 0; i < 6; i++)
		ck_assert(!c[i]->completed);
	ck_assert_uint_eq(host_tur(b, 1), SAM_GOOD); /* another nexus is not concerned */
	host_do(&h, (void (*)(void *))host_abort, c[5]); /* one that waits */
	host_steps(&h, 5);
	ck_assert(c[5]->ended);
	a->hold_fetch = true;
	host_release(a); /* lets c[0] go; c[3] then fetches at once */
	for (int i = 0; i < 20 && !c[4]->ended; i++)
		host_steps(&h, 1);
	for (int i = 0; i < 7; i++) {
		ck_assert_msg(c[i]->ended, "%d", i);
		host_finish(c[i]);
	}
	/* and all is as before */
	a->hold_fetch = true;
	c[0] = with(a, SCSI_ATTR_SIMPLE, true);
	c[1] = with(a, SCSI_ATTR_SIMPLE, false);
	ck_assert(c[1]->ended);
	host_release(a);
	host_finish(c[0]);
	host_finish(c[1]);
	/* alone, it just runs; the next one comes after it */
	a->hold_fetch = true;
	c[0] = with(a, SCSI_ATTR_ORDERED, true);
	c[1] = with(a, SCSI_ATTR_SIMPLE, false);
	host_steps(&h, 3);
	ck_assert(!c[1]->completed);
	ck_assert_int_eq(host_tmf(b, TMF_LU_RESET, 1), TMF_COMPLETE); /* takes both */
	ck_assert(c[0]->ended && c[1]->ended);
	host_finish(c[0]);
	host_finish(c[1]);
	a->hold_fetch = false;
	host_tur(a, 1);
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "good");
	host_close(&h);
}
END_TEST

START_TEST(removable_medium)
{
	struct host_nexus *a, *b;
	struct host_outcome r = { false, 0 };

	host_open_conf(&h, "8m", 512, removable);
	a = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
	inquiry(a, 1, -1);
	ck_assert_uint_eq(a->in[1], 0x80);
	ck_assert_uint_eq(host_none(a, 1, (uint8_t[]){ 0x1e, 0, 0, 0, 1, 0 }, 6), SAM_GOOD);
	host_none(b, 1, (uint8_t[]){ 0x1b, 0, 0, 0, 2, 0 }, 6);
	ck_assert_str_eq(host_result(b), "05/53/02");
	force = false;
	host_do(&h, do_lu_delete, &r);
	ck_assert_int_eq(r.status, -EBUSY);
	ck_assert_int_eq(update("online", "No"), -EBUSY);
	host_logout(a);
	host_none(b, 1, (uint8_t[]){ 0x1b, 0, 0, 0, 2, 0 }, 6);
	ck_assert_str_eq(host_result(b), "good");
	host_tur(b, 1);
	ck_assert_str_eq(host_result(b), "02/3a/02");
	host_read10(b, 0, 1);
	ck_assert_str_eq(host_result(b), "02/3a/02");
	host_none(b, 1, (uint8_t[]){ 0x1b, 0, 0, 0, 3, 0 }, 6);
	ck_assert_str_eq(host_result(b), "good");
	host_tur(b, 1);
	ck_assert_str_eq(host_result(b), "good");
	host_close(&h);
}
END_TEST

START_TEST(statistics)
{
	struct host_nexus *a;
	struct scsi_lu_stats st;
	uint8_t data[1024] = { 0 };

	host_open(&h, "8m", 512);
	a = host_login_ready(&h, "iqn.a");
	host_write10(a, 0, 2, data, 1024);
	host_read10(a, 0, 2);
	host_read10(a, 0, 1);
	host_read10(a, UINT32_MAX, 1);
	scsi_lu_get_stats(h.lu, &a->n, &st);
	ck_assert_uint_eq(st.rd_done_cmds, 2);
	ck_assert_uint_eq(st.rd_done_bytes, 1536);
	ck_assert_uint_eq(st.wr_subm_cmds, 1);
	ck_assert_uint_eq(st.wr_done_bytes, 1024);
	host_logout(a);
	scsi_lu_get_stats(h.lu, NULL, &st);
	ck_assert_uint_eq(st.rd_done_bytes, 1536); /* those of sessions that ended stay */
	host_close(&h);
}
END_TEST

UNIT_MAIN("lu", 30, lun_addressing, attentions, updates, spc2_reservation, task_management,
	  mode_select, task_attributes, removable_medium, statistics)
